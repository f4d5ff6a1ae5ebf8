"""Columns that follow from others: ``total_cores`` is ``n_workers`` times what ``vm_type`` has."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import reduce
from itertools import combinations, islice
from operator import and_

import numpy as np

from tunerd.core.arrays import FloatArray, IntArray
from tunerd.lab.tables.column_names import ColumnName
from tunerd.lab.tables.profile import ColumnProfile
from tunerd.lab.tables.relations import determines, grouped, products

__all__ = ["DerivationRule", "Multiples", "following", "rounded_of", "rule_of", "total_of"]

_TOTALS = {"total", "overall", "sum", "aggregate", "all"}


@dataclass(frozen=True, slots=True)
class DerivationRule:
    """How a column follows: numbers multiplied, times what a category has."""

    numbers: tuple[str, ...] = ()
    thing: str | None = None
    has: Mapping[str, float] = field(default_factory=dict)
    """The factor by the category's value; empty when some value's is not known."""
    times: float = 1.0
    """What the numbers are multiplied by besides."""
    follows: tuple[str, ...] = ()
    """Columns that fix it in a way that nobody can write down."""

    @property
    def why(self) -> str:
        if self.follows:
            return f"follows from {' and '.join(self.follows)} in every row"
        if self.thing is None:
            times = "" if self.times == 1 else f" * {self.times:g}"
            return f"is {' * '.join(self.numbers)}{times} in every row"
        if not self.numbers:
            return f"follows from {self.thing}"
        return f"is {' * '.join(self.numbers)} times what {self.thing} has of it"

    def expression(self, names: Mapping[str, str]) -> str | None:
        """It in the language of studies; ``None`` where that would be no exact one, or endless.

        ``names`` are those of the study by column; without one of them there is no expression.
        """
        if self.follows or not float(self.times).is_integer():
            return None
        needed = [*self.numbers, *([self.thing] if self.thing is not None else [])]
        if self.thing is not None and not self.has:
            return None
        plain = all(_plain(value) for value in self.has)
        whole = all(float(factor).is_integer() for factor in self.has.values())
        if (
            not all(name in names for name in needed)
            or not plain
            or not whole
            or len(self.has) > 12
        ):
            return None
        factors = [names[name] for name in self.numbers]
        if self.thing is not None:
            *others, last = [(value, int(factor)) for value, factor in self.has.items()]
            cases = [
                f"{factor} if {names[self.thing]} == '{value}' else" for value, factor in others
            ]
            chosen = " ".join([*cases, str(last[1])])
            factors.append(f"({chosen})" if factors else chosen)
        if self.times != 1:
            factors.append(str(int(self.times)))
        return " * ".join(factors)


def _plain(value: str) -> bool:
    return value.isprintable() and "'" not in value and len(value) <= 60


SCREENED = 32
"""Rows that rule nearly all pairs out, and cost little."""


class Multiples:
    """Which numbers may be multiples of others. A few rows of all of them rule most pairs out at
    once: a table of 1,000 columns has a million pairs."""

    def __init__(self, columns: Sequence[ColumnProfile]) -> None:
        self._numbers = [column for column in columns if column.numeric]
        rows = len(columns[0].codes) if columns else 0
        self._places = np.unique(np.linspace(0, max(0, rows - 1), SCREENED).astype(int))[:rows]
        few = [column.numbers[self._places] for column in self._numbers]
        self._few = np.stack(few) if few else np.empty((0, 0))

    def of(self, column: ColumnProfile, thing: ColumnProfile | None = None) -> list[ColumnProfile]:
        """The other numbers that a column may always be as many times, or as many times for each
        value of a category."""
        codes = np.zeros(len(self._places)) if thing is None else thing.codes[self._places]
        order = np.argsort(codes, kind="stable")
        with np.errstate(all="ignore"):
            ratios = (column.numbers[self._places] / self._few)[:, order]
            apart = np.abs(np.diff(ratios)) > 2e-9 * np.maximum(1.0, np.abs(ratios[:, 1:]))
        same = (np.diff(codes[order]) == 0) & (codes[order][1:] >= 0)
        may = ~(apart & same & np.isfinite(ratios[:, 1:] + ratios[:, :-1])).any(axis=1)
        return [c for c, fits in zip(self._numbers, may, strict=True) if fits and c is not column]


def rule_of(
    column: ColumnProfile,
    name: ColumnName,
    inputs: Sequence[ColumnProfile],
    tuned: Collection[str],
    multiples: Multiples,
) -> DerivationRule | None:
    """How a number that few would set by hand follows from other inputs; ``None`` if it does not.

    Categories count only where they are ``tuned``: what follows from the context tells about it.
    """
    if not column.numeric or name.weight("context") >= 3:
        return None
    others = [c for c in inputs if c is not column]
    if set(name.words) & _TOTALS:
        numbers = [c for c in others if c.kind == "int"]
        for product in products([column, *numbers]):
            if product.total == column.name:
                return DerivationRule(product.factors)
    if name.weight("parameter") >= 3:
        return None
    things = (c for c in others if c.kind == "category" and c.name in tuned)
    for thing in islice(things, MOST):
        if determines(grouped([thing], len(column.codes)), column):
            return DerivationRule((), thing.name, _whole(_factors(column.numbers, thing), thing))
        for number in multiples.of(column, thing):
            if (has := _multiple(column, number, thing)) is not None:
                return DerivationRule((number.name,), thing.name, _whole(has, thing))
    return None


def rounded_of(
    column: ColumnProfile, name: ColumnName, inputs: Sequence[ColumnProfile]
) -> DerivationRule | None:
    """How a number is a product or a quotient of two others, rounded as it is written: the cells of
    each rank. ``None`` if it is not. What holds exactly is one only where its name says "per"."""
    values = [value for value in column.counts if isinstance(value, int | float)]
    if not column.numeric or name.weight("parameter") >= 3 or len(values) < SEVERAL:
        return None
    rounding = 0.51 * 10.0 ** -max(map(_decimals, values))
    most = column.distinct if "per" in name.words else column.distinct - 1
    numbers = [c for c in inputs if c.numeric and c is not column and 1 < c.distinct <= most][:MOST]
    for first, second in _nearly_made(column, numbers, rounding):
        products = [first.numbers / second.numbers]
        products += [first.numbers * second.numbers] if first.place < second.place else []
        for product in products:
            gaps = np.abs(product - column.numbers)[np.isfinite(column.numbers)]
            if not np.isfinite(gaps).all() or gaps.max(initial=0) > rounding:
                continue
            if len(np.unique(np.stack([first.codes, second.codes]), axis=1)[0]) <= SEVERAL:
                continue
            exact = gaps.max(initial=0) <= 1e-9 * float(np.nanmax(np.abs(column.numbers)))
            fine = rounding < 0.05 * float(np.nanmin(np.abs(product)))
            if (fine and not exact) or ("per" in name.words and fine):
                return DerivationRule(follows=(first.name, second.name))
    return None


def _nearly_made(
    column: ColumnProfile, numbers: Sequence[ColumnProfile], rounding: float
) -> Iterator[tuple[ColumnProfile, ColumnProfile]]:
    """The pairs of numbers of which a column is the product or the quotient in its first rows."""
    if len(numbers) < 2:
        return
    few = np.stack([number.numbers[:SCREENED] for number in numbers])
    made = column.numbers[:SCREENED]
    with np.errstate(all="ignore"):
        apart = [
            (np.abs(pairs - made) > rounding).any(axis=2)
            for pairs in (few[:, None] / few[None], few[:, None] * few[None])
        ]
    for first, second in np.argwhere(~(apart[0] & apart[1])):
        if first != second:
            yield numbers[first], numbers[second]


def _decimals(value: float) -> int:
    """Digits behind the point of a number as it is written."""
    exponent = Decimal(repr(value)).normalize().as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0


def total_of(
    column: ColumnProfile, inputs: Mapping[str, ColumnProfile], multiples: Multiples
) -> DerivationRule | None:
    """How a whole number is made of smaller ones in every row: of one, a few times; of several,
    multiplied, perhaps a few times; of one and what a category has of it. ``None`` if it is not.

    What is a total is nothing to set by itself: a launcher asks for nodes and gets their CPUs.
    """
    others = [c for c in inputs.values() if c is not column and c.kind == "int"]
    for other in _whole_inputs(multiples.of(column), inputs):
        ratio = _ratio(column, other)
        if ratio is not None and ratio > 1 and ratio.is_integer() and _is_told(column, other):
            return DerivationRule((other.name,), times=ratio)
    for product in products([column, *others], times_of=column.name):
        if product.total == column.name:
            return DerivationRule(product.factors, times=float(product.times))
    for thing in islice((c for c in inputs.values() if c.kind == "category"), MOST):
        for other in _whole_inputs(multiples.of(column, thing), inputs):
            has = _multiple(column, other, thing)
            if has is not None and min(has.values()) > 1 and _is_told(column, other):
                # Nobody knows what a value of it has that comes later.
                return DerivationRule(follows=(other.name, thing.name))
    return None


def _whole_inputs(
    columns: Sequence[ColumnProfile], inputs: Mapping[str, ColumnProfile]
) -> list[ColumnProfile]:
    return [column for column in columns if column.kind == "int" and column.name in inputs]


def _is_told(column: ColumnProfile, other: ColumnProfile) -> bool:
    """Whether several values in several rows say so."""
    return len(column.codes) >= FEWEST and min(column.distinct, other.distinct) >= SEVERAL


SEVERAL = 3
"""Values of both columns from which on a ratio that never changes is no chance."""
FEWEST = 8
"""Different rows from which on it is no chance that one column fixes another."""
MOST = 14
"""Inputs among which it is looked for what fixes a column."""


def following(
    columns: Sequence[ColumnProfile], names: Mapping[str, ColumnName], tuned: Collection[str]
) -> dict[str, DerivationRule]:
    """The inputs that follow from tuned ones, one to three of them, in every row.

    Advice that changes what a context follows from leaves that context, and nobody can follow it:
    the number of weights of a model whose depth is tuned. Each combination must occur with several
    values of the other columns, else any column would follow from the rest. What a product says
    is left to a constraint, and what people set by hand to them.
    """
    among = list(columns)
    if len(among) < 2:
        return {}
    rows = np.unique(np.stack([column.codes for column in among], axis=1), axis=0)
    if len(rows) < 3:
        return {}
    pairs = _alike_pairs(rows)
    multiplied = {name for product in products(among) for name in (product.total, *product.factors)}
    rules: dict[str, DerivationRule] = {}
    places = sorted(range(len(among)), key=lambda place: (-among[place].distinct, -place))
    tuned_first = sorted(range(len(among)), key=lambda place: among[place].name not in tuned)
    for place in places:
        column = among[place]
        by_hand = names[column.name].weight("parameter") >= 3
        if by_hand or column.name in multiplied or column.distinct < 2 or len(column.counts) < 2:
            continue
        others = (
            other
            for other in tuned_first
            if other != place
            and among[other].name not in rules
            and not _switches(column, among[other])
        )
        rule = _fixed_by(place, list(islice(others, MOST)), among, rows, pairs, names, tuned)
        if rule is not None and not (column.name in tuned and _is_part(rule)):
            rules[column.name] = rule
    return rules


def _switches(column: ColumnProfile, other: ColumnProfile) -> bool:
    """Whether a column says no more than whether another has a value: that is the switch of it."""
    there = other.codes >= 0
    off, on = set(column.codes[~there].tolist()), set(column.codes[there].tolist())
    return column.distinct == 2 and len(off) == len(on) == 1 and off != on


def _is_part(rule: DerivationRule) -> bool:
    """Whether the other column is a whole number of times this one: then it is the total."""
    parts = 1 / rule.times if rule.times else 0.0
    return bool(rule.numbers) and parts > 1.5 and abs(parts - round(parts)) < 1e-6


def _fixed_by(
    place: int,
    others: Sequence[int],
    among: Sequence[ColumnProfile],
    rows: IntArray,
    pairs: Sequence[int],
    names: Mapping[str, ColumnName],
    tuned: Collection[str],
) -> DerivationRule | None:
    column = among[place]
    strong = names[column.name].weight("context") >= 3
    apart = ~pairs[place]
    for size in (1, 2, 3):
        for by in combinations(others, size):
            if reduce(and_, map(pairs.__getitem__, by), apart):
                continue  # two of the first rows differ in nothing else
            free = sum(among[place_by].name in tuned for place_by in by)
            most = max(among[place_by].distinct for place_by in by)
            # With the context's help it must tell far more apart: n_gpus may go with a model.
            enough = column.distinct > most if free == size else column.distinct >= 2 * most
            if not free or (size > 1 and not (enough and _may_repeat(rows, by, among, most))):
                continue
            brought = [place_by for place_by in by if among[place_by].name not in tuned]
            if brought and _fixed_groups(rows, brought, place):
                continue  # what is tuned has no part in it
            groups = _fixed_groups(rows, by, place)
            if not groups:
                continue
            if not (
                _often(rows, groups)
                or _is_grid(groups, [among[place_by] for place_by in by], column)
            ):
                if size == 1 and groups >= 3 and _ratio(column, among[by[0]]) is not None:
                    return DerivationRule(
                        (among[by[0]].name,), times=_ratio(column, among[by[0]]) or 1.0
                    )
                continue
            if size > 1:
                return DerivationRule(follows=tuple(among[place_by].name for place_by in by))
            other = among[by[0]]
            ratio = _ratio(column, other)
            alike = column.distinct == other.distinct
            if ratio is not None and (alike or not strong):
                return DerivationRule((other.name,), times=ratio)
            if not strong:
                return DerivationRule(follows=(other.name,))
    return None


def _may_repeat(
    rows: IntArray, by: Sequence[int], among: Sequence[ColumnProfile], most: int
) -> bool:
    """Whether combinations can stand as often as :func:`_often` or :func:`_is_grid` ask."""
    cells = math.prod(among[place].distinct for place in by)
    return 2 * most <= len(rows) or cells <= len(rows)


def _often(rows: IntArray, groups: int) -> bool:
    """Whether each combination occurs with several values of the other columns."""
    return groups >= 2 and len(rows) >= 2 * groups and len(rows) - groups >= FEWEST // 2


def _is_grid(groups: int, by: Sequence[ColumnProfile], column: ColumnProfile) -> bool:
    """Whether all combinations were run, and another column has a value for nearly each: nobody
    varies three things so that one of them never goes its own way."""
    cells = math.prod(column_by.distinct for column_by in by)
    return len(by) > 1 and groups == cells >= FEWEST and 10 * column.distinct >= 8 * groups


PAIRED = 200
"""Rows of which all pairs are looked at: they rule nearly everything out, and cost little."""


def _alike_pairs(rows: IntArray) -> list[int]:
    """For each column the pairs of the first rows that are alike in it, as bits."""
    first, second = np.triu_indices(min(PAIRED, len(rows)), 1)
    return [
        int.from_bytes(np.packbits(codes[first] == codes[second]).tobytes(), "big")
        for codes in rows.T
    ]


def _fixed_groups(rows: IntArray, by: Sequence[int], place: int) -> int:
    """How many combinations of some columns there are, where each fixes another; else 0."""
    width = int(rows.max(initial=0)) + 2
    keys = np.zeros(len(rows), dtype=np.int64)
    for column in by:  # at most three of 20,000 values each, and the other
        keys = keys * width + rows[:, column] + 1
    groups = len(np.unique(keys))
    return groups if len(np.unique(keys * width + rows[:, place] + 1)) == groups else 0


def _ratio(column: ColumnProfile, other: ColumnProfile) -> float | None:
    """What the other is multiplied by in every row; ``None`` where that differs."""
    if not column.numeric or not other.numeric:
        return None
    with np.errstate(all="ignore"):
        ratios = column.numbers / other.numbers
    ratios = ratios[np.isfinite(ratios)]
    if not len(ratios) or np.ptp(ratios) > 1e-9 * abs(float(ratios[0])):
        return None
    return round(float(ratios[0]), 9)


def _whole(has: Mapping[str, float] | None, thing: ColumnProfile) -> Mapping[str, float]:
    return has if has is not None and len(has) == thing.distinct else {}


def _multiple(
    column: ColumnProfile, number: ColumnProfile, thing: ColumnProfile
) -> Mapping[str, float] | None:
    """What each category multiplies the number by, if nothing else does and it differs."""
    with np.errstate(all="ignore"):
        ratios = column.numbers / number.numbers
    has = _factors(ratios, thing)
    return has if has is not None and len(set(has.values())) > 1 else None


def _factors(ratios: FloatArray, thing: ColumnProfile) -> dict[str, float] | None:
    """The number that goes with each category; ``None`` if one category has several."""
    there = np.isfinite(ratios) & (thing.codes >= 0)
    if there.sum() < 10:
        return None
    factors: dict[str, float] = {}
    for code, value in enumerate(thing.counts):
        those = ratios[there & (thing.codes == code)]
        if not len(those):
            continue
        if np.ptp(those) > 1e-9 * max(1.0, abs(float(those[0]))):
            return None
        factors[str(value)] = round(float(those[0]), 9)
    return factors
