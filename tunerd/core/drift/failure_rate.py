"""Whether more jobs fail than was to be expected of what they ran.

Each job's chance to fail was known before it: from its configuration's earlier jobs, else from the
model of what runs; both are held against how often such jobs did fail here. What is watched for are
odds three and ten times as high, in each context and over the study; nobody is woken because fewer
jobs fail.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from msgspec import field

from tunerd.core.drift.context_monitor import FAILURE_ALTERNATIVES, ConfigLevel, FailureOutcome
from tunerd.core.saved_state import SavedState

__all__ = ["FailureCalibration", "failing_places", "failure_gains", "more_fail"]

ODDS = (3.0, 10.0)
assert len(ODDS) == FAILURE_ALTERNATIVES
BINS = 8
"""Alike in log odds, as what is watched for is: in eighths of the chance, a configuration known to
fail once in ten runs shared one with those that never do, and its jobs in a row were an alarm."""
PRIOR = 4.0
"""Jobs that a chance as it was told counts as, against how often such jobs failed."""
MEMORY = 400.0
LEAST, MOST = 0.005, 0.98
FEW_FAILURES, MOST_FAILURES = 3.0, 60.0
"""Expected failures that a context is like others for, and that its past counts for at most."""
PLAIN = 2.5
"""Log odds, 12 to 1, that plainly say that more fail in a context, or not in the others."""
WEIGHT = 1.0
"""Jobs that the model's word counts as beside a configuration's own."""


class FailureCalibration(SavedState):
    """How chances to fail that were told compare with what came. Bounded."""

    bins: list[list[float]] = field(default_factory=lambda: [[0.0, 0.0] for _ in range(2 * BINS)])
    """Jobs and their failures, by what was told: first jobs of a configuration, then others."""

    def chance(self, cell: ConfigLevel | None, feasible: float | None) -> tuple[float, int]:
        """Chance to fail of a job, and what it was told by."""
        probability = 1.0 - feasible if feasible is not None else self.usual
        weight = 0 if cell is None else cell.ran + cell.failed
        first = not weight
        if cell is not None and weight:
            probability = (cell.failed + WEIGHT * probability) / (weight + WEIGHT)
        probability = min(max(probability, LEAST), MOST)
        place = _bin(probability) + (0 if first else BINS)
        jobs, failed = self.bins[place]
        return min(max((failed + PRIOR * probability) / (jobs + PRIOR), LEAST), MOST), place

    @property
    def usual(self) -> float:
        """Share of all jobs that failed."""
        jobs = sum(totals[0] for totals in self.bins)
        return (sum(totals[1] for totals in self.bins) + 0.5) / (jobs + 5.0)

    @staticmethod
    def of_context(chance: float, failures: list[float]) -> float:
        """The chance in a context that has had more or fewer failures than were expected there:
        what always was so is no change."""
        expected, came = failures
        usual = (came + FEW_FAILURES) / (expected + FEW_FAILURES)
        return min(max(chance * usual, LEAST), MOST)

    @staticmethod
    def learn_context(failures: list[float], chance: float, *, failed: bool) -> list[float]:
        """What a context is known for after a job with this chance to fail, as it was told."""
        expected, came = failures
        keep = 1.0 if expected < MOST_FAILURES else 1.0 - chance / MOST_FAILURES
        return [keep * expected + chance, keep * came + failed]

    def learn(self, place: int, *, failed: bool) -> None:
        """Take in what came."""
        bin_ = self.bins[place]
        if bin_[0] >= MEMORY:
            bin_[1] *= (MEMORY - 1.0) / bin_[0]
            bin_[0] = MEMORY - 1.0
        bin_[0] += 1.0
        bin_[1] += failed


def _log_odds(chance: float) -> float:
    return math.log(chance / (1.0 - chance))


def _bin(chance: float) -> int:
    low, high = _log_odds(LEAST), _log_odds(MOST)
    return min(int(BINS * (_log_odds(chance) - low) / (high - low)), BINS - 1)


def failure_gains(chance: float, *, failed: bool) -> list[float]:
    """Log likelihood ratios of a job's outcome under higher odds."""
    return [
        _gain(chance, chance * odds / (1.0 - chance + chance * odds), failed=failed)
        for odds in ODDS
    ]


def _gain(chance: float, raised: float, *, failed: bool) -> float:
    return math.log(raised / chance) if failed else math.log1p(-raised) - math.log1p(-chance)


def more_fail(came: Iterable[FailureOutcome]) -> float | None:
    """By how much the share of jobs that failed is above what was to be expected, -1 to 1; None
    without jobs."""
    above = [outcome.failed - outcome.chance for outcome in came]
    return fmean(above) if above else None


def failing_places(came: Mapping[str, Sequence[FailureOutcome]]) -> list[str]:
    """Contexts in which more jobs fail, where outcomes since a change plainly say that it is these,
    and that in the others there are not even half as many more; empty where they do not."""
    named = [key for key, jobs in came.items() if _evidence(jobs) > PLAIN]
    more = more_fail(job for key in named for job in came[key])
    if more is None:
        return []
    others = [job for key, jobs in came.items() if key not in named for job in jobs]
    among_others = sum(
        _gain(outcome.chance, min(outcome.chance + more / 2.0, MOST), failed=outcome.failed)
        for outcome in others
    )
    return named if among_others < -PLAIN else []


def _evidence(jobs: Sequence[FailureOutcome]) -> float:
    gains = [failure_gains(outcome.chance, failed=outcome.failed) for outcome in jobs]
    return max(map(sum, zip(*gains, strict=True)), default=0.0)
