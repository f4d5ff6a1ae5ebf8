"""How many jobs came without a usable objective, and why: for those who look at a study."""

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tunerd.core.observation import Observation, Status
from tunerd.core.study import Study
from tunerd.core.study.study import Unusable

__all__ = ["LATELY", "ObjectiveUsability", "unusable_jobs"]

LATELY = 100
"""Latest succeeded jobs that are counted on their own: what is wrong now shows among them."""


def unusable_jobs(study: Study, jobs: Iterable[Observation]) -> list[Unusable | None]:
    """For each job that could have told a speed: why it has no usable objective, None where it
    has. A job that failed for another reason need not have one and is left out, unless its value
    is impossible."""
    unusable: list[Unusable | None] = []
    for job in jobs:
        why = study.unusable(job.metrics)
        if why is None or why == "impossible" or job.status is Status.SUCCEEDED:
            unusable.append(why)
    return unusable


@dataclass
class ObjectiveUsability:
    """Counts over all jobs of a study, imported ones too."""

    jobs: int = 0
    """Jobs that could have told a speed."""
    missing: int = 0
    """Of them, those without a value."""
    impossible: int = 0
    """Of them, those with a value that the metric cannot have."""
    example: float | None = None
    """The latest such value."""
    implausible: int = 0
    """Of all jobs, those that went into quarantine (:mod:`.outliers`)."""
    held_back: float | None = None
    """The latest such value."""
    latest: deque[bool] = field(default_factory=lambda: deque(maxlen=LATELY))
    """Of the latest such jobs, whether the objective was usable."""
    news: Counter[str] = field(default_factory=Counter)
    """By why, jobs since somebody looked and emptied it."""

    def see(self, study: Study, jobs: Iterable[Observation]) -> None:
        """Count jobs."""
        jobs = list(jobs)
        for why in unusable_jobs(study, jobs):
            self.jobs += 1
            self.missing += why == "missing"
            self.impossible += why == "impossible"
            self.latest.append(why is None)
            if why is not None:
                self.news[why] += 1
        for job in reversed(jobs):
            if study.unusable(job.metrics) == "impossible":
                value = float(job.metrics[study.objective.metric])
                self.example = max(-1e308, min(value, 1e308))
                break

    def hold_back(self, value: float | None) -> None:
        """Count a job that goes into quarantine, with the value of its objective."""
        self.implausible += 1
        self.held_back = self.held_back if value is None else value
        self.news["implausible"] += 1

    def dump(self) -> dict[str, Any]:
        """State as JSON values."""
        return {
            "jobs": self.jobs,
            "missing": self.missing,
            "impossible": self.impossible,
            "example": self.example,
            "implausible": self.implausible,
            "held_back": self.held_back,
            "latest": "".join("+" if usable else "-" for usable in self.latest),
        }

    @classmethod
    def load(cls, state: Mapping[str, Any]) -> "ObjectiveUsability":
        """Build from what :meth:`dump` gave."""
        names = ("jobs", "missing", "impossible", "example", "implausible", "held_back")
        loaded = cls(*(state[name] for name in names))
        loaded.latest.extend(mark == "+" for mark in state["latest"])
        return loaded
