"""How many jobs came without a usable objective, and why: for those who look at a study."""

from collections.abc import Iterable, Sequence

from tunerd.core.observation import Observation, Status
from tunerd.core.saved_state import SavedState
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


class ObjectiveUsability(SavedState):
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
    latest: str = ""
    """Of the latest such jobs, a ``+`` where the objective was usable and a ``-`` where not."""

    def see(self, study: Study, jobs: Sequence[Observation]) -> list[Unusable | None]:
        """Count jobs; returns what :func:`unusable_jobs` says of them."""
        reasons = unusable_jobs(study, jobs)
        for why in reasons:
            self.jobs += 1
            self.missing += why == "missing"
            self.impossible += why == "impossible"
            self.latest = (self.latest + ("+" if why is None else "-"))[-LATELY:]
        for job in reversed(jobs):
            if study.unusable(job.metrics) == "impossible":
                value = float(job.metrics[study.objective.metric])
                self.example = max(-1e308, min(value, 1e308))
                break
        return reasons

    def hold_back(self, value: float | None) -> None:
        """Count a job that goes into quarantine, with the value of its objective."""
        self.implausible += 1
        self.held_back = self.held_back if value is None else value
