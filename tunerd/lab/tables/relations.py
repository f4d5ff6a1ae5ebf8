"""How columns of a table depend on each other: what determines what, and what multiplies to what.

Everything works on the sample's codes and numbers; what is found held in every row looked at.
"""

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations, islice

import numpy as np

from tunerd.core.arrays import BoolArray, FloatArray, IntArray
from tunerd.lab.tables.profile import ColumnProfile

__all__ = [
    "BoundRelation",
    "ProductRelation",
    "bounds",
    "counts_up_within",
    "determines",
    "explained",
    "gaps_of",
    "grouped",
    "nearly_decides",
    "products",
    "varies_within",
]

MOST_COLUMNS = 24
"""Columns among which products are looked for."""
FACTORS = 4


@dataclass(frozen=True, slots=True)
class ProductRelation:
    """``total`` is the product of ``factors`` in every row, times a number that never changes."""

    total: str
    factors: tuple[str, ...]
    times: int = 1


@dataclass(frozen=True, slots=True)
class BoundRelation:
    """The product of ``small`` is at most that of ``large`` in every row, or divides it."""

    small: tuple[str, ...]
    large: tuple[str, ...]
    divides: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.small, *self.large)


def grouped(columns: Sequence[ColumnProfile], rows: int) -> IntArray:
    """A number for each row of the sample; rows alike in all columns have the same."""
    groups = np.zeros(rows, dtype=np.int64)
    for column in columns:
        pairs = groups * (column.codes.max(initial=0) + 2) + column.codes + 1
        groups = np.unique(pairs, return_inverse=True)[1].astype(np.int64)
    return groups


def varies_within(groups: IntArray, column: ColumnProfile) -> float | None:
    """Share of the rows, of those in groups of several, whose group has several of its values.

    ``None`` when groups of several rows are too few to say anything.
    """
    there = column.codes >= 0
    inside, codes = groups[there], column.codes[there]
    sizes = np.bincount(inside, minlength=1)
    pairs = np.unique(np.stack([inside, codes]), axis=1)
    kinds = np.bincount(pairs[0], minlength=len(sizes))
    several = sizes > 1
    rows = sizes[several].sum()
    return float(sizes[several & (kinds > 1)].sum() / rows) if rows >= 20 else None


def counts_up_within(groups: IntArray, column: ColumnProfile) -> bool:
    """Whether a whole number counts the rows of nearly every group, from 0 or 1, each once."""
    there = np.isfinite(column.numbers)
    inside, numbers = np.unique(groups[there], return_inverse=True)[1], column.numbers[there]
    first = float(numbers.min(initial=2.0))
    if column.kind != "int" or first not in (0, 1):
        return False
    sizes = np.bincount(inside, minlength=1)
    pairs = np.unique(np.stack([inside, numbers]), axis=1)
    kinds = np.bincount(pairs[0].astype(int), minlength=len(sizes))
    last = np.zeros(len(sizes))
    np.maximum.at(last, inside, numbers)
    counted = (kinds == sizes) & (last - first + 1 == sizes) & (sizes > 1)
    return bool(sizes[counted].sum() >= 0.9 * len(numbers))


def determines(groups: IntArray, column: ColumnProfile) -> bool:
    """Whether a grouping fixes a column's value, and rows enough say so for it to be a rule."""
    there = column.codes >= 0
    inside, codes = groups[there], column.codes[there]
    if len(codes) < 10 or len(np.unique(codes)) < 2:
        return False
    distinct = len(np.unique(inside))
    pairs = len(np.unique(inside.astype(np.int64) * (int(codes.max()) + 1) + codes))
    return pairs == distinct and len(codes) >= 3 * distinct


def nearly_decides(thing: ColumnProfile, number: ColumnProfile, factor: float) -> bool:
    """Whether a category leaves a positive number within a factor, and separates its values."""
    there = np.isfinite(number.numbers) & (thing.codes >= 0)
    numbers, codes = number.numbers[there], thing.codes[there]
    if len(numbers) < 10 or numbers.min() <= 0 or len(np.unique(codes)) < 3:
        return False
    order = np.argsort(codes, kind="stable")
    parts = np.split(np.log(numbers[order]), np.flatnonzero(np.diff(codes[order])) + 1)
    widest = max(float(np.ptp(part)) for part in parts)
    return widest <= math.log(factor) < float(np.ptp(np.log(numbers)))


def gaps_of(column: ColumnProfile) -> bytes | None:
    """In which rows of the sample a column has no value; ``None`` where it has one in each."""
    gaps = column.codes < 0
    return gaps.tobytes() if gaps.any() else None


def explained(column: ColumnProfile, by: Sequence[ColumnProfile]) -> float:
    """The largest share of a number's variance that one other column explains, 0 to 1.

    Numbers by their rank correlation, few values by the means of their groups; corrected for
    the number of groups, so that chance explains nothing.
    """
    there = np.isfinite(column.numbers)
    ranks = _ranks(column.numbers[there])
    return max((_explained(column, there, ranks, other) for other in by), default=0.0)


def _explained(
    column: ColumnProfile, there: BoolArray, ranks: FloatArray, other: ColumnProfile
) -> float:
    codes = other.codes[there]
    if (codes < 0).any():
        there = there & (other.codes >= 0)
        codes, ranks = other.codes[there], _ranks(column.numbers[there])
    count = len(codes)
    if count < 10:
        return 0.0
    sizes = np.bincount(codes)
    sums = np.bincount(codes, ranks)[sizes > 0]
    sizes = sizes[sizes > 0]
    groups = len(sizes)
    if groups < 2:
        return 0.0
    if groups > count / 3:
        if len(other.numbers) == 0:
            return 0.0
        correlation = np.corrcoef(ranks, _ranks(other.numbers[there]))[0, 1]
        return float(np.nan_to_num(correlation) ** 2)
    means = sums / sizes
    total = float(np.var(ranks)) or 1.0
    raw = float(np.average((means - ranks.mean()) ** 2, weights=sizes)) / total
    return max(0.0, 1 - (1 - raw) * (count - 1) / max(1, count - groups))


def _ranks(numbers: FloatArray) -> FloatArray:
    inverse, counts = np.unique(numbers, return_inverse=True, return_counts=True)[1:]
    ends = np.cumsum(counts)
    ranks: FloatArray = (ends - (counts - 1) / 2)[inverse].astype(float)
    return ranks


def products(
    columns: Sequence[ColumnProfile], times_of: str | None = None
) -> list[ProductRelation]:
    """The products that hold in every row: the shortest ones, each said once.

    Only integers; each factor has several values and is needed, and the rows tell the product
    from a coincidence. With ``times_of`` only those that make this column are looked for; it may
    also be a whole number of times a product.
    """
    among = _whole_numbers(columns)
    if len(among) < 3:
        return []
    rows = np.unique(np.stack([column.numbers for column in among], axis=1), axis=0)
    rows = rows[np.isfinite(rows).all(axis=1)]
    if len(rows) < 8:
        return []
    logs = np.log(rows)
    products: list[ProductRelation] = []
    scaled = next((place for place, column in enumerate(among) if column.name == times_of), None)
    if times_of is not None and scaled is None:
        return []
    for total, factors, times in _candidates(logs, scaled):
        names = tuple(among[place].name for place in factors)
        held = ProductRelation(among[total].name, names, times)
        shorter = any(
            set(product.factors) <= set(names) and product.total == held.total
            for product in products
        )
        if not shorter and not _follows(held, products):
            products.append(held)
    return products


def _whole_numbers(columns: Sequence[ColumnProfile]) -> list[ColumnProfile]:
    """Columns of several positive integers, not too many of them."""
    positive = (
        column
        for column in columns
        if column.kind == "int" and column.distinct > 1 and min(_integers(column)) > 0
    )
    return list(islice(positive, MOST_COLUMNS))


def _integers(column: ColumnProfile) -> list[float]:
    return [float(value) for value in column.counts if isinstance(value, int)]


def _candidates(logs: FloatArray, scaled: int | None) -> Iterator[tuple[int, tuple[int, ...], int]]:
    """Totals and factors that hold, fewer factors first, and the number of times: only for the
    column at ``scaled`` where there is one, else 1."""
    for size in range(2, FACTORS + 1):
        for factors, place in _screened(logs[:FIRST], size, scaled):
            gap = logs[:, place] - logs[:, factors].sum(axis=1)
            times = round(math.exp(float(gap[0]))) if place == scaled else 1
            if place in factors or times < 1 or np.abs(gap - math.log(times)).max() > 1e-9:
                continue
            if _is_a_rule(logs, factors):
                yield place, factors, times


FIRST = 8
"""Rows that rule nearly all products out, and cost little."""


def _screened(
    few: FloatArray, size: int, scaled: int | None
) -> Iterator[tuple[tuple[int, ...], int]]:
    """Factors and totals that hold in a few rows."""
    factors = _combined(few.shape[1], size)
    sums = few[:, factors].sum(axis=2)
    if scaled is not None:
        held = np.ptp(few[:, scaled, None] - sums, axis=0) < 1e-9
        pairs = [(place, scaled) for place in np.flatnonzero(held)]
    else:
        held = np.stack(
            [np.abs(total[:, None] - sums).max(axis=0) < 1e-9 for total in few.T], axis=1
        )
        pairs = [(place, total) for place, total in np.argwhere(held)]
    yield from ((tuple(map(int, factors[place])), int(total)) for place, total in pairs)


@lru_cache(maxsize=64)
def _combined(count: int, size: int) -> IntArray:
    """All sets of so many of some columns, in order."""
    return np.array(list(combinations(range(count), size)), dtype=np.int64).reshape(-1, size)


def _is_a_rule(logs: FloatArray, factors: tuple[int, ...]) -> bool:
    """Whether every factor varies while the others stand still or the total does."""
    table = logs[:, factors]
    return len(np.unique(table, axis=0)) >= 6 and bool((np.ptp(table, axis=0) > 0).all())


def _follows(product: ProductRelation, known: Sequence[ProductRelation]) -> bool:
    """Whether a product follows from two known ones: a * b == c and c * d == e give a * b * d."""
    for relation in known:
        rest = set(product.factors) - set(relation.factors)
        if len(rest) < len(product.factors) - 1:
            put = rest | {relation.total}
            if any(set(other.factors) == put and other.total == product.total for other in known):
                return True
    return False


TIGHT = 0.05
"""Share of the rows in which a bound must be reached: a rule is felt, a coincidence is not."""
SURPRISING = 0.2
"""Share of the rows that would break a bound if the columns had nothing to do with each other."""
MOST_BOUNDS = 6


def bounds(
    columns: Sequence[ColumnProfile], tuned: Collection[str], known: Sequence[ProductRelation]
) -> list[BoundRelation]:
    """Bounds that hold in every row and would not hold by chance.

    Whole positive numbers only, one of them tuned: a <= b, a <= b * c, a * b <= c, and what
    divides what. What follows from a product or from another bound is not said.
    """
    among = _whole_numbers(columns)
    rows = np.stack([column.numbers for column in among], axis=1) if among else np.empty((0, 0))
    rows = np.unique(rows[np.isfinite(rows).all(axis=1)], axis=0)
    if len(rows) < 30 or len(among) < 2:
        return []
    shuffled = _shuffled(rows)
    names = [column.name for column in among]
    bounds: list[BoundRelation] = []
    for small, large in _sides(len(among)):
        bound = BoundRelation(tuple(names[i] for i in small), tuple(names[i] for i in large))
        if set(bound.names).isdisjoint(tuned) or _implied(bound, bounds, known):
            continue
        if _divides(rows, shuffled, small, large):
            bounds.append(replace(bound, divides=True))
        elif _bounds(rows, shuffled, small, large):
            bounds.append(bound)
    return bounds[:MOST_BOUNDS]


def _divides(
    rows: FloatArray, shuffled: FloatArray, small: Sequence[int], large: Sequence[int]
) -> bool:
    """Whether one number is a multiple of the other side in every row, and not by chance."""
    if len(large) > 1 or _rest(rows, small, large).any():
        return False
    return float((_rest(shuffled, small, large) != 0).mean()) >= SURPRISING / 2


def _bounds(
    rows: FloatArray, shuffled: FloatArray, small: Sequence[int], large: Sequence[int]
) -> bool:
    """Whether one side is at most the other in every row, reaches it, and not by chance."""
    gaps = _gap(rows, small, large)
    if gaps.max() > 0 or (gaps == 0).mean() < TIGHT:
        return False
    return float((_gap(shuffled, small, large) > 0).mean()) >= SURPRISING


def _rest(rows: FloatArray, small: Sequence[int], large: Sequence[int]) -> FloatArray:
    rest: FloatArray = rows[:, large].prod(axis=1) % rows[:, small].prod(axis=1)
    return rest


def _sides(count: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Places on both sides of a bound; what says more comes first."""
    places = range(count)
    pairs = list(combinations(places, 2))
    yield from ((pair, (single,)) for pair in pairs for single in places if single not in pair)
    yield from (((a,), (b,)) for a in places for b in places if a != b)
    yield from (((single,), pair) for pair in pairs for single in places if single not in pair)


def _gap(rows: FloatArray, small: Sequence[int], large: Sequence[int]) -> FloatArray:
    gap: FloatArray = rows[:, small].prod(axis=1) - rows[:, large].prod(axis=1)
    return gap


def _shuffled(rows: FloatArray) -> FloatArray:
    """Each column in an order of its own."""
    rng = np.random.default_rng(0)
    return np.stack([rng.permutation(column) for column in rows.T], axis=1)


def _implied(
    one: BoundRelation, found: Sequence[BoundRelation], known: Sequence[ProductRelation]
) -> bool:
    """Whether a bound follows from a product (a factor is no more than it) or another bound."""
    for product in known:
        if set(one.small) <= set(product.factors) and product.total in one.large:
            return True
        if {*one.small, *one.large} <= {*product.factors, product.total}:
            return True
    return any(
        set(one.small) <= set(other.small) and set(one.large) >= set(other.large) for other in found
    )
