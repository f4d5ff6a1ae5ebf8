"""What a Job is launched with: a recommendation, else the study's baseline."""

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tunerd.client import Choice, RecommendationFile
from tunerd.core.study import Study
from tunerd.core.study.context_key import category_text
from tunerd.core.study.context_texts import read_context
from tunerd.errors import MisconfiguredError
from tunerd.settings.studies import load_studies

__all__ = ["LaunchError", "LaunchPlan", "LaunchPlanner"]

log = logging.getLogger("tunerd.webhook")

LOOK_EVERY_S = 5.0
"""How often the folder of studies is looked at."""


class LaunchError(Exception):
    """Nothing can be filled in; says why."""


@dataclass(frozen=True)
class LaunchPlan:
    """What one Job gets."""

    config: dict[str, Any]
    choice: Choice | None
    """None where nothing is recommended and the baseline counts."""


@dataclass
class LaunchPlanner:
    """Chooses for Jobs. Safe to share between threads."""

    studies: Path
    """The folder of study files; it is read again when it changes."""
    recommendations: Path
    """The file that ``tunerd subscribe`` keeps."""
    clock: Callable[[], float] = time.monotonic
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _known: Mapping[str, Study] = field(default_factory=dict)
    _files: Sequence[tuple[str, int, int]] = ()
    _looked_at: float = float("-inf")

    def __post_init__(self) -> None:
        self._file = RecommendationFile(self.recommendations)
        self._load(self._listed())

    def plan(
        self,
        study: str,
        context: Mapping[str, Any],
        job_id: str,
        attempt: int,
        defaults: Mapping[str, Any],
        *,
        counts: bool = True,
    ) -> LaunchPlan:
        """What to launch a Job with.

        ``defaults`` say what neither a recommendation nor the baseline does. Without ``counts``
        the answer is not one of those that a profiling round waits for, as for a dry run.

        Raises:
            LaunchError: there is no such study, or nothing to fill in.
        """
        known = self._study(study)
        texts = read_context(known, [f"{name}={_text(value)}" for name, value in context.items()])
        if texts.wrong:
            raise LaunchError("; ".join(texts.wrong))
        key = known.context_key(texts.context)
        file = self._file if counts else RecommendationFile(self.recommendations)
        choice = file.choose(key, job_id, attempt=attempt)
        config = dict(choice.config) if choice else dict(known.baseline(texts.context) or {})
        config |= {name: value for name, value in defaults.items() if name not in config}
        if not config:
            raise LaunchError(f"nothing is recommended for {key}, and {study} has no baseline")
        return LaunchPlan(config, choice)

    def _study(self, name: str) -> Study:
        with self._lock:
            if self.clock() - self._looked_at > LOOK_EVERY_S and self._listed() != self._files:
                with suppress(MisconfiguredError):
                    self._load(self._listed())
            if name not in self._known:
                there = ", ".join(sorted(self._known)[:5]) or "none"
                raise LaunchError(f"there is no study {name[:63]!r} here; there is {there}")
            return self._known[name]

    def _listed(self) -> Sequence[tuple[str, int, int]]:
        self._looked_at = self.clock()
        places: list[tuple[str, int, int]] = []
        with suppress(OSError):
            for entry in os.scandir(self.studies):
                if entry.name.endswith(".toml"):
                    status = entry.stat()
                    places.append((entry.name, status.st_mtime_ns, status.st_size))
        return sorted(places)

    def _load(self, listed: Sequence[tuple[str, int, int]]) -> None:
        """Read the studies; raises MisconfiguredError, and then the former ones stay."""
        self._files = listed
        try:
            self._known = {study.name: study for study in load_studies(self.studies)}
        except MisconfiguredError as error:
            log.error("studies are not read: %s", error)
            raise


def _text(value: Any) -> str:
    """As a number is the text of a category in the events, so that the key is theirs."""
    return category_text(value) if isinstance(value, bool | int | float) else str(value)
