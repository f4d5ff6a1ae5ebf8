"""Is one better than the other, or was it luck? Paired differences with bootstrap intervals.

Two methods were measured on the same contexts with the same seeds, so what is compared is the
difference in each pair. Contexts are not the ones that the next user has, and seeds are luck, so
both are drawn again: contexts and seeds independently of each other, a pair weighing the product
of how often its context and its seed were drawn (the *pigeonhole* bootstrap, Owen 2007; drawing
single pairs would take ten seeds of one context for ten contexts). Several measurements of the
same tables, such as the cells of a table of results, are drawn together: a context that is drawn
twice is drawn twice in all of them.

Percentiles of a bootstrap over few contexts are too narrow: with five contexts "95 %" holds in
84 %. They are taken further out for it (Hesterberg 2015, *expanded* percentiles), which leaves
them as they are where there are many.

One comparison in forty that is nothing but luck comes out as significantly worse. Where hundreds
are looked at, :func:`found_worse` says which are beyond that (Benjamini and Hochberg 1995).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from tunerd.core.arrays import FloatArray, IntArray

__all__ = ["Cell", "Difference", "Values", "area", "difference", "found_worse", "mean_difference"]

DRAWS = 4_000
LEVEL = 0.95
FALSE = 0.05
"""Share of what :func:`found_worse` finds that may be luck."""

Values = Mapping[tuple[str, int], float]
"""(context, seed) → figure. NaN and pairs that the other side lacks do not count."""


@dataclass(frozen=True)
class Cell:
    """One measurement of two methods."""

    population: str
    """What its contexts are drawn from: cells that share it (a table's) are drawn together."""
    ours: Values
    theirs: Values


@dataclass(frozen=True)
class Difference:
    """How far ours is ahead of theirs: positive is better for us."""

    mean: float
    low: float
    high: float
    """Ends of the 95 % interval; infinite where a single pair allows no interval."""
    contexts: int
    pairs: int
    p_worse: float
    """Probability of being this far behind, or farther, where there is no difference."""

    @property
    def better(self) -> bool:
        """Significantly better."""
        return self.low > 0

    @property
    def worse(self) -> bool:
        """Significantly worse."""
        return self.high < 0

    def __str__(self) -> str:
        return f"{self.mean:+.4g} ({self.low:+.4g} … {self.high:+.4g})"


def difference(
    ours: Values, theirs: Values, *, larger_is_better: bool, draws: int = DRAWS, seed: int = 0
) -> Difference:
    """Compare two methods on what both were measured on: mean over pairs.

    Raises:
        ValueError: they have no pair in common.
    """
    cells = [Cell("", ours, theirs)]
    return mean_difference(cells, larger_is_better=larger_is_better, draws=draws, seed=seed)


def mean_difference(
    cells: Sequence[Cell], *, larger_is_better: bool, draws: int = DRAWS, seed: int = 0
) -> Difference:
    """Compare two methods over several cells: mean over cells of the mean over pairs.

    Cells without a common pair do not count.

    Raises:
        ValueError: there is no common pair in any cell.
    """
    sign = 1.0 if larger_is_better else -1.0
    grids = [grid for cell in cells if (grid := _Grid.of(cell, sign)) is not None]
    if not grids:
        raise ValueError("nothing to compare: the two have no context and seed in common")
    rng = np.random.default_rng(seed)
    drawn: dict[str, _Drawn] = {}
    for population in sorted({grid.population for grid in grids}):
        mine = [grid for grid in grids if grid.population == population]
        contexts = sorted({c for grid in mine for c in grid.contexts})
        seeds = sorted({s for grid in mine for s in grid.seeds})
        drawn[population] = _Drawn.of(contexts, seeds, draws, rng)
    spread = np.array([grid.means(drawn[grid.population]) for grid in grids])
    # A draw may miss all pairs of a sparse cell: the others speak for it then.
    there = np.isfinite(spread).sum(axis=0)
    total = np.nansum(spread, axis=0)[there > 0] / there[there > 0]
    mean, units = float(np.mean([grid.mean() for grid in grids])), _units(grids, spread)
    low, high = _interval(total, units)
    return Difference(
        mean=mean,
        low=low,
        high=high,
        contexts=len({(grid.population, c) for grid in grids for c in grid.contexts}),
        pairs=sum(int(grid.known.sum()) for grid in grids),
        p_worse=_p_worse(mean, float(total.std()), units),
    )


def found_worse(compared: Sequence[Difference]) -> list[bool]:
    """Which of many comparisons are significantly worse, luck among so many counted: of those
    found at most :data:`FALSE` are expected to be luck."""
    if not compared:
        return []
    adjusted = stats.false_discovery_control([one.p_worse for one in compared])
    return [bool(p <= FALSE) for p in adjusted]


def area(curve: Sequence[float], first: int, last: int) -> float:
    """Mean of a regret curve from job ``first`` to job ``last``, both included: the area under
    it, in its own unit.

    ``curve[n - 1]`` is the regret after n jobs. A curve that ends earlier stays where it ended:
    nothing was left to run.

    Raises:
        ValueError: the curve is empty, or the range is.
    """
    if not len(curve) or not 1 <= first <= last:
        raise ValueError(f"no area from job {first} to {last} under {len(curve)} jobs")
    places = np.minimum(np.arange(first - 1, last), len(curve) - 1)
    return float(np.mean(np.asarray(curve, dtype=np.float64)[places]))


@dataclass(frozen=True)
class _Grid:
    """The differences of a cell as contexts × seeds."""

    population: str
    contexts: tuple[str, ...]
    seeds: tuple[int, ...]
    values: FloatArray
    """(C, S), 0 where unknown."""
    known: FloatArray
    """(C, S) 1 or 0."""

    @classmethod
    def of(cls, cell: Cell, sign: float) -> "_Grid | None":
        pairs = {
            pair: sign * (value - cell.theirs[pair])
            for pair, value in cell.ours.items()
            if pair in cell.theirs and math.isfinite(value - cell.theirs[pair])
        }
        if not pairs:
            return None
        contexts = tuple(sorted({context for context, _ in pairs}))
        seeds = tuple(sorted({seed for _, seed in pairs}))
        values = np.zeros((len(contexts), len(seeds)))
        known = np.zeros_like(values)
        for (context, seed), value in pairs.items():
            at = contexts.index(context), seeds.index(seed)
            values[at], known[at] = value, 1.0
        return cls(cell.population, contexts, seeds, values, known)

    def mean(self) -> float:
        return float(self.values.sum() / self.known.sum())

    def means(self, drawn: "_Drawn") -> FloatArray:
        """(draws,) mean of each draw, NaN where it holds no pair of this cell."""
        contexts = drawn.contexts[:, [drawn.context_at[c] for c in self.contexts]]
        seeds = drawn.seeds[:, [drawn.seed_at[s] for s in self.seeds]]
        totals = np.einsum("dc,cs,ds->d", contexts, self.values, seeds, optimize=True)
        weights = np.einsum("dc,cs,ds->d", contexts, self.known, seeds, optimize=True)
        means: FloatArray = np.where(
            weights > 0, totals / np.where(weights > 0, weights, 1), np.nan
        )
        return means


@dataclass(frozen=True)
class _Drawn:
    """How often each context and seed of a population was drawn, per draw."""

    context_at: Mapping[str, int]
    seed_at: Mapping[int, int]
    contexts: FloatArray
    """(draws, C)."""
    seeds: FloatArray
    """(draws, S)."""

    @classmethod
    def of(
        cls, contexts: Sequence[str], seeds: Sequence[int], draws: int, rng: np.random.Generator
    ) -> "_Drawn":
        return cls(
            {context: at for at, context in enumerate(contexts)},
            {seed: at for at, seed in enumerate(seeds)},
            _counts(len(contexts), draws, rng).astype(np.float64),
            _counts(len(seeds), draws, rng).astype(np.float64),
        )


def _counts(n: int, draws: int, rng: np.random.Generator) -> IntArray:
    counts: IntArray = rng.multinomial(n, np.full(n, 1.0 / n), size=draws)
    return counts


def _units(grids: Sequence["_Grid"], spread: FloatArray) -> float:
    """How many contexts (of a single one: seeds) the mean over cells stands on.

    A table with few contexts that differ much decides, however many others have: Welch's and
    Satterthwaite's effective number, from what each population adds to the variance.
    """
    variance, freedom = [], []
    for population in sorted({grid.population for grid in grids}):
        mine = [i for i, grid in enumerate(grids) if grid.population == population]
        contexts = {c for i in mine for c in grids[i].contexts}
        seeds = {s for i in mine for s in grids[i].seeds}
        units = len(contexts) if len(contexts) > 1 else len(seeds)
        if units < 2 and len(grids) == 1:
            return 1.0
        # One pair alone in its table: its luck cannot be told, that of the others can.
        added = np.nan_to_num(spread[mine], nan=0.0).sum(axis=0)
        variance.append(float(added.var()))
        freedom.append(max(units - 1, 1))
    total = sum(variance)
    if total <= 0:
        return 1.0 + sum(freedom)
    each = sum(v * v / f for v, f in zip(variance, freedom, strict=True))
    return 1.0 + total * total / each


def _interval(means: FloatArray, units: float) -> tuple[float, float]:
    if units < 2:
        return -math.inf, math.inf
    # How far out a t-interval over this few units would go, as a normal quantile.
    t = stats.t.ppf(0.5 + LEVEL / 2, units - 1) * _expanded(units)
    tail = float(stats.norm.cdf(-t))
    low, high = np.quantile(means, [tail, 1.0 - tail])
    return float(low), float(high)


def _p_worse(mean: float, sd: float, units: float) -> float:
    """By the t-interval that :func:`_interval` is made as wide as: percentiles of some thousand
    draws end where hundreds of comparisons begin to tell."""
    if units < 2 or sd == 0:
        return float(units < 2 or mean >= 0)
    return float(stats.t.cdf(mean / (sd * _expanded(units)), units - 1))


def _expanded(units: float) -> float:
    return math.sqrt(units / (units - 1))
