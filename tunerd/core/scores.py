"""How well predictions rank and fit what then happened.

Kendall's τ within contexts is the figure that matters to a search: it asks which of two
configurations *of the same context* is faster, and nobody chooses the context. Over all rows
together the differences between contexts drown those between configurations.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec import field

from tunerd.core.arrays import FloatArray, places_of
from tunerd.core.saved_state import SavedState

__all__ = [
    "MIN_ROWS",
    "MOST_ERROR",
    "PrequentialWindow",
    "WindowScores",
    "kendall",
    "kendall_large",
    "mape",
    "pearson",
    "ranks",
    "relative_errors",
    "spearman",
    "within_contexts",
]

MIN_ROWS = 8
"""Rows a context needs to count in :func:`within_contexts`: below, one swapped pair moves τ by a
tenth or more."""
MANY_ROWS = 100
"""Rows that smaller contexts need together to count where there are no larger ones."""
MOST_ERROR = 10.0
"""A relative error counts as tenfold at most: one job whose metric is close to 0 would drown all
others."""


def kendall(predicted: FloatArray, actual: FloatArray) -> float:
    """Kendall's τ-b of two (n,) arrays; NaN below two rows or when one side is constant.

    Looks at every pair, n²/2 of them: 2 ms at 500 rows. For tens of thousands of rows use
    another library.
    """
    n = len(predicted)
    concordant = tied_predicted = tied_actual = 0
    for start in range(0, n, 1024):  # in strips, so that memory stays at n · 1024
        rows = slice(start, start + 1024)
        p = np.sign(predicted[rows, None] - predicted[None, :]).astype(np.int8)
        a = np.sign(actual[rows, None] - actual[None, :]).astype(np.int8)
        concordant += int(np.sum(p * a, dtype=np.int64))
        tied_predicted += int(np.sum(p == 0))
        tied_actual += int(np.sum(a == 0))
    # Every pair was seen from both sides, and every row beside itself as a tie.
    pairs = n * n
    untied = float(pairs - tied_predicted) * float(pairs - tied_actual)
    return concordant / float(np.sqrt(untied)) if untied > 0 else float("nan")


def kendall_large(predicted: FloatArray, actual: FloatArray) -> float:
    """The same of any number of rows: n log n beyond a thousand, with scipy (.5 s to import)."""
    if len(predicted) <= 1_000:
        return kendall(predicted, actual)
    from scipy.stats import kendalltau

    return float(kendalltau(predicted, actual).statistic)


def pearson(predicted: FloatArray, actual: FloatArray) -> float:
    """Pearson's correlation; NaN below two rows or when one side is constant."""
    if len(predicted) < 2:
        return float("nan")
    p, a = predicted - predicted.mean(), actual - actual.mean()
    size = float(np.sqrt((p @ p) * (a @ a)))
    return float(p @ a) / size if size > 0 else float("nan")


def spearman(predicted: FloatArray, actual: FloatArray) -> float:
    """Spearman's rank correlation, ties at their mean rank; NaN as for :func:`pearson`."""
    return pearson(ranks(predicted), ranks(actual))


def mape(predicted: FloatArray, actual: FloatArray) -> float:
    """Mean absolute error relative to the actual value, 0.05 for 5 %; rows at 0 are left out.

    Meaningful for raw metric values, not for scores, whose zero is arbitrary.
    """
    errors = relative_errors(predicted, actual)
    return float(np.mean(errors)) if len(errors) else float("nan")


def relative_errors(predicted: FloatArray, actual: FloatArray) -> FloatArray:
    """Absolute errors relative to the actual value, of the rows that are not at 0; none is above
    :data:`MOST_ERROR`."""
    usable = actual != 0
    with np.errstate(over="ignore", invalid="ignore"):
        errors: FloatArray = np.abs(predicted[usable] / actual[usable] - 1.0)
    errors[~(errors < MOST_ERROR)] = MOST_ERROR
    return errors


def within_contexts(
    score: Callable[[FloatArray, FloatArray], float],
    predicted: FloatArray,
    actual: FloatArray,
    contexts: Sequence[str],
) -> float:
    """Mean of ``score`` over contexts, weighted by rows.

    Contexts with fewer than :data:`MIN_ROWS` rows, or where the score is undefined because the
    actual values are all equal, do not count; a predictor that says the same of all rows of a
    context where they differ counts as 0 there. Where no context has so many rows, those of two and
    more count if these are :data:`MANY_ROWS` together: of the latest 500 jobs in 500 contexts
    nothing could be said otherwise. NaN when no context counts.
    """
    total = weight = 0.0
    groups = (rows for rows in places_of(contexts).values() if len(rows) > 1)
    telling = [rows for rows in groups if np.ptp(actual[rows]) > 0]
    large = [rows for rows in telling if len(rows) >= MIN_ROWS]
    for rows in large or (telling if sum(map(len, telling)) >= MANY_ROWS else ()):
        value = score(predicted[rows], actual[rows])
        total += len(rows) * (0.0 if np.isnan(value) else value)
        weight += len(rows)
    return total / weight if weight else float("nan")


@dataclass(frozen=True, slots=True)
class WindowScores:
    """The figures of one window. NaN where there are too few rows to say."""

    rows: int
    kendall: float
    spearman: float
    pearson: float
    mape: float
    """Relative, in raw metric values: 0.05 is 5 %."""
    coverage: float
    """Share of the jobs that fell into the band predicted for them."""
    kendall_within: float
    spearman_within: float
    pearson_within: float


class PrequentialWindow(SavedState):
    """The latest predictions beside what then happened, made before the job was learned.

    Bounded; one per study. Values are scores (oriented objective).
    """

    size: int = 500
    rows: list[tuple[str, float, float, bool | None]] = field(default_factory=list)
    """Context key, predicted and actual score, and whether the band held."""

    def __len__(self) -> int:
        return len(self.rows)

    def add(
        self, context_key: str, predicted: float, actual: float, held: bool | None = None
    ) -> None:
        """Add one job: what was predicted before it was learned, and its score; ``held`` says
        whether that fell into the predicted band."""
        self.rows.append((context_key, predicted, actual, held))
        del self.rows[: -self.size]

    def arrays(self) -> tuple[tuple[str, ...], FloatArray, FloatArray]:
        """Context keys, predicted and actual scores, oldest first."""
        keys = tuple(key for key, _, _, _ in self.rows)
        values = np.array([(p, a) for _, p, a, _ in self.rows]).reshape(-1, 2)
        return keys, values[:, 0].copy(), values[:, 1].copy()

    def scores(self, metric_value: Callable[[float], float] = float) -> WindowScores:
        """All figures over the window, a few milliseconds at 500 rows.

        ``metric_value`` turns a score into the raw metric (``Study.metric_value``), for MAPE.
        """
        keys, predicted, actual = self.arrays()
        raw_predicted = np.array([metric_value(float(v)) for v in predicted])
        raw_actual = np.array([metric_value(float(v)) for v in actual])
        return WindowScores(
            rows=len(self),
            kendall=kendall(predicted, actual),
            spearman=spearman(predicted, actual),
            pearson=pearson(predicted, actual),
            mape=mape(raw_predicted, raw_actual),
            coverage=self._coverage(),
            kendall_within=within_contexts(kendall, predicted, actual, keys),
            spearman_within=within_contexts(spearman, predicted, actual, keys),
            pearson_within=within_contexts(pearson, predicted, actual, keys),
        )

    def _coverage(self) -> float:
        held = [held for _, _, _, held in self.rows if held is not None]
        return sum(held) / len(held) if held else float("nan")


def ranks(values: FloatArray) -> FloatArray:
    """(n,) ranks 1 … n, ties at their mean rank."""
    _, group, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    mean_rank: FloatArray = (last - (counts - 1) / 2)[group]
    return mean_rank
