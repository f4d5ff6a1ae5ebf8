"""Champion against challenger: which of two models predicted the same jobs better.

Both predicted each job before they learned it. What counts is the order within a context, because
that is what a search follows; where the order cannot tell the two apart, the size of the errors
does; where neither can, the challenger wins: it was built from more jobs, or from newer ones.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tunerd.core.arrays import FloatArray, places_of
from tunerd.core.conformal import HALF
from tunerd.core.predictors.predictions import Predictions
from tunerd.core.scores import kendall, within_contexts

__all__ = ["ModelComparison", "ModelScore", "contest"]

FEW = 12
"""Jobs with an objective below which nothing can be told."""
CLEAR = 1.0
"""Standard errors by which a difference must pass zero. One, not two: keeping the better of two
models that are close is worth more than never being wrong about which it is."""


@dataclass(frozen=True, slots=True)
class ModelScore:
    """How well one model predicted the jobs. None where there are too few to say, or where it said
    of one what is no number."""

    kendall: float | None
    """τ within contexts."""
    error: float | None
    """Mean absolute error in score units: with a log objective 0.05 is about 5 %."""
    coverage: float | None
    """Share of the jobs within the 80 % band of the model itself."""


@dataclass(frozen=True, slots=True)
class ModelComparison:
    """How it went."""

    jobs: int
    """Jobs with an objective that both predicted."""
    champion: ModelScore
    challenger: ModelScore
    by: str
    """``ranks`` or ``errors`` told them apart; ``few``: too few jobs; ``even``: nothing did;
    ``broken``: one of them predicted what is no number."""
    won: bool
    """Whether the challenger takes over."""

    def dump(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


def contest(
    keys: Sequence[str],
    score: FloatArray,
    champion: Predictions,
    challenger: Predictions,
) -> ModelComparison:
    """Compare on the jobs that have a score; all arrays are (n,), in the order of the jobs."""
    scored = np.flatnonzero(np.isfinite(score))
    keys, actual = [keys[i] for i in scored.tolist()], score[scored]
    old, new = champion.mean[scored], challenger.mean[scored]
    by, won = _decided(keys, actual, old, new)
    return ModelComparison(
        jobs=len(scored),
        champion=_scored(keys, actual, old, champion.std[scored]),
        challenger=_scored(keys, actual, new, challenger.std[scored]),
        by=by,
        won=won,
    )


def _decided(
    keys: Sequence[str], actual: FloatArray, old: FloatArray, new: FloatArray
) -> tuple[str, bool]:
    if not np.isfinite(new).all():  # compared with NaN, nothing would tell, and it would win
        return "broken", False
    if not np.isfinite(old).all():
        return "broken", True
    if len(actual) < FEW:
        return "few", True
    probability, doubt = _ranks_better(keys, actual, old, new)
    if abs(probability) > CLEAR * doubt:
        return "ranks", probability > 0
    better = np.abs(old - actual) - np.abs(new - actual)
    probability, doubt = float(better.mean()), float(better.std(ddof=1)) / len(better) ** 0.5
    if abs(probability) > CLEAR * doubt:
        return "errors", probability > 0
    return "even", True


def _ranks_better(
    keys: Sequence[str], actual: FloatArray, old: FloatArray, new: FloatArray
) -> tuple[float, float]:
    """By how much ``new`` orders more of the pairs within contexts rightly, from -2 to 2, and the
    standard error of that by leaving out one job at a time. Zeros without pairs."""
    gained, pairs = np.zeros(len(actual)), np.zeros(len(actual))
    for at in places_of(keys).values():
        truth = _order(actual[at])
        gained[at] = (truth * (_order(new[at]) - _order(old[at]))).sum(axis=1)
        pairs[at] = np.abs(truth).sum(axis=1)
    total = pairs.sum() / 2
    if total == 0:
        return 0.0, 0.0
    wins = gained.sum() / 2
    left = np.maximum(total - pairs, 1.0)
    without = (wins - gained) / left
    n = len(actual)
    doubt = ((n - 1) / n * np.sum((without - without.mean()) ** 2)) ** 0.5
    return float(wins / total), float(doubt)


def _order(values: FloatArray) -> FloatArray:
    return np.sign(values[:, None] - values[None, :])


def _scored(
    keys: Sequence[str], actual: FloatArray, mean: FloatArray, spread: FloatArray
) -> ModelScore:
    if len(actual) == 0 or not np.isfinite(mean).all():
        return ModelScore(None, None, None)
    tau = within_contexts(kendall, mean, actual, keys)
    error = np.abs(mean - actual)
    return ModelScore(
        kendall=None if np.isnan(tau) else float(tau),
        error=float(error.mean()),
        coverage=float(np.mean(error <= HALF * spread)),
    )
