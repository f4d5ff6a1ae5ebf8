"""What the watch remembers of one context: its configurations' levels, its latest jobs, its rises.

A configuration's *level* is the mean score of its jobs so far, begun by what the predictor expected
of the first. A job's error against it has variance σ²·(1 + 1/jobs) and, while nothing changes, owes
nothing to earlier errors (Helmert's residuals), whatever the predictor learns meanwhile. Errors of
a predictor that learns shrink, hang together and forget the very change that is looked for.
"""

from math import prod
from statistics import fmean, median
from typing import NamedTuple

from msgspec import field

from tunerd.core.drift.shiryaev_roberts import Moment, ShiryaevRoberts
from tunerd.core.saved_state import SavedState

__all__ = [
    "FAILURE_ALTERNATIVES",
    "SPEED_ALTERNATIVES",
    "ConfigLevel",
    "ContextMonitor",
    "FailureOutcome",
    "RecentScore",
]

SPEED_ALTERNATIVES = 6
FAILURE_ALTERNATIVES = 2
MOST_CELLS = 256
"""Configurations remembered; the one that ran longest ago falls out."""
LATELY = 48
"""Latest jobs remembered: a change is found after about ten."""
OUTCOMES = 128
"""Latest outcomes remembered: it takes a hundred jobs to see that a few more of them fail."""
MEMORY = 50.0
"""Jobs that a level counts as at most."""


class ConfigLevel(SavedState, array_like=True):
    """One configuration."""

    weight: float = 0.0
    """Jobs that the level counts as; below one before the first."""
    level: float = 0.0
    """In scores."""
    ran: int = 0
    failed: int = 0

    def learn(self, score: float) -> None:
        """Move the level."""
        self.weight = min(self.weight + 1.0, MEMORY)
        self.level += (score - self.level) / self.weight


class RecentScore(NamedTuple):
    """A job that was scored."""

    sequence: int
    finished_at: float
    cell: str
    score: float


class FailureOutcome(NamedTuple):
    """A job whose outcome was held against its chance to fail."""

    sequence: int
    chance: float
    failed: bool


class ContextMonitor(SavedState):
    """The watch's memory of one context. Bounded; saved with the context."""

    cells: dict[str, ConfigLevel] = field(default_factory=dict)
    """By the beginning of a candidate id, the one that ran last at the end."""
    lately: list[RecentScore] = field(default_factory=list)
    speed: ShiryaevRoberts = field(default_factory=lambda: ShiryaevRoberts.of(SPEED_ALTERNATIVES))
    failing: ShiryaevRoberts = field(
        default_factory=lambda: ShiryaevRoberts.of(FAILURE_ALTERNATIVES)
    )
    outcomes: list[FailureOutcome] = field(default_factory=list)
    """What ``failing`` has seen of late: by how much more fail, and whether it is here."""
    jobs: int = 0
    mean: float = 0.0
    """Of the scores."""
    errors: list[float] = field(default_factory=lambda: [0.0, 0.0])
    """Repeats, and the sum of their squared errors: this context's own noise."""
    fresh: list[float] = field(default_factory=lambda: [0.0, 0.0])
    """First jobs of configurations, and their mean error: the predictor's bias here."""
    failures: list[float] = field(default_factory=lambda: [0.0, 0.0])
    """Failures that were to be expected, and those that came: how a context usually differs."""
    lean: list[float] = field(default_factory=lambda: [0.0, 0.0])
    """How the latest jobs lean together: what is left when that is gone tells configurations
    apart."""

    def cell(self, name: str) -> ConfigLevel:
        """A configuration's cell; it is now the one that ran last."""
        cell = self.cells.pop(name, None) or ConfigLevel()
        self.cells[name] = cell
        if len(self.cells) > MOST_CELLS:
            del self.cells[next(iter(self.cells))]
        return cell

    def scored(self, name: str, score: float, at: Moment) -> None:
        """A job's score is known now."""
        self.lately = [*self.lately, RecentScore(*at, name, score)][-LATELY:]
        self.jobs += 1
        self.mean += (score - self.mean) / min(self.jobs, MEMORY)

    def before(self, since: int) -> dict[str, tuple[float, float]]:
        """Weight and level of configurations as they were before a sequence."""
        levels = {name: (cell.weight, cell.level) for name, cell in self.cells.items()}
        for recent in reversed(self.lately):
            if recent.sequence >= since and recent.cell in levels:
                weight, level = levels[recent.cell]
                left = weight - 1.0
                levels[recent.cell] = (
                    (left, level + (level - recent.score) / left) if left > 1e-9 else (0.0, 0.0)
                )
        return levels

    def moved(self, since: int) -> tuple[float, float] | None:
        """By how much scores moved at a sequence, configuration by configuration, and what they
        were before."""
        before = self.before(since)
        pairs = [
            (recent.score, before[recent.cell][1])
            for recent in self.lately
            if recent.sequence >= since and before.get(recent.cell, (0.0, 0.0))[0] > 0
        ]
        if not pairs:
            return None
        return median(score - level for score, level in pairs), fmean(level for _, level in pairs)

    def begin_again(self, since: int, moved: float | None) -> None:
        """Count levels from a sequence on. What configurations that ran since were worth before
        stays as half a job, ``moved`` along with the others, or goes when it tells nothing (None).
        Whether the rest moved along nobody knows: a level that is wrong would look like the next
        change once they run again."""
        before = self.before(since)
        fresh = [recent for recent in self.lately if recent.sequence >= since]
        # The mean goes along as far as it has not: every value would seem to have the effect of
        # the move, and a move back would look as if all of them had lost it.
        behind = prod(1.0 - 1.0 / min(self.jobs - i, MEMORY) for i in range(len(fresh)))
        self.mean += (moved or 0.0) * behind
        ran = {recent.cell for recent in fresh}
        for name, cell in self.cells.items():
            weight, level = before[name]
            kept = moved is not None and weight > 0 and name in ran
            cell.weight = 0.5 if kept else 0.0
            cell.level = level + (moved or 0.0) if kept else 0.0
        for recent in fresh:
            if recent.cell in self.cells:
                self.cells[recent.cell].learn(recent.score)
        self.speed.reset()
        self.lean = [0.0, 0.0]

    def ended(self, outcome: FailureOutcome) -> None:
        """A job's outcome was held against its chance to fail."""
        self.outcomes = [*self.outcomes, outcome][-OUTCOMES:]

    def came(self, since: int) -> list[FailureOutcome]:
        """The latest outcomes from a sequence on."""
        return [outcome for outcome in self.outcomes if outcome.sequence >= since]
