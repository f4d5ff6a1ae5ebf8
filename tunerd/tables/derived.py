"""Columns that follow from others: ``total_cores`` is ``n_workers`` times what ``vm_type`` has."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tunerd.core.arrays import FloatArray
from tunerd.tables.profile import Column
from tunerd.tables.relations import determines, grouped, products
from tunerd.tables.words import Name

__all__ = ["Rule", "rule_of"]

_TOTALS = {"total", "overall", "sum", "aggregate", "all"}


@dataclass(frozen=True, slots=True)
class Rule:
    """How a column follows: numbers multiplied, times what a category has."""

    numbers: tuple[str, ...] = ()
    thing: str | None = None
    has: Mapping[str, float] = field(default_factory=dict)
    """The factor by the category's value; empty when some value's is not known."""

    @property
    def why(self) -> str:
        if self.thing is None:
            return f"is {' * '.join(self.numbers)} in every row"
        if not self.numbers:
            return f"follows from {self.thing}"
        return f"is {' * '.join(self.numbers)} times what {self.thing} has of it"

    def expression(self, names: Mapping[str, str]) -> str | None:
        """It in the language of studies; ``None`` where that would be no exact one, or endless.

        ``names`` are those of the study by column; without one of them there is no expression.
        """
        needed = [*self.numbers, *([self.thing] if self.thing is not None else [])]
        if self.thing is not None and not self.has:
            return None
        plain = all(_plain(value) for value in self.has)
        whole = all(float(factor).is_integer() for factor in self.has.values())
        if not all(one in names for one in needed) or not plain or not whole or len(self.has) > 12:
            return None
        factors = [names[one] for one in self.numbers]
        if self.thing is not None:
            *others, last = [(value, int(factor)) for value, factor in self.has.items()]
            cases = [
                f"{factor} if {names[self.thing]} == '{value}' else" for value, factor in others
            ]
            chosen = " ".join([*cases, str(last[1])])
            factors.append(f"({chosen})" if factors else chosen)
        return " * ".join(factors)


def _plain(value: str) -> bool:
    return value.isprintable() and "'" not in value and len(value) <= 60


def rule_of(
    column: Column, name: Name, inputs: Sequence[Column], tuned: Collection[str]
) -> Rule | None:
    """How a number that few would set by hand follows from other inputs; ``None`` if it does not.

    Categories count only where they are ``tuned``: what follows from the context tells about it.
    """
    if not column.numeric or name.weight("context") >= 3:
        return None
    others = [c for c in inputs if c is not column]
    if set(name.words) & _TOTALS:
        numbers = [c for c in others if c.kind == "int"]
        for one in products([column, *numbers]):
            if one.total == column.name:
                return Rule(one.factors)
    if name.weight("parameter") >= 3:
        return None
    for thing in others:
        if thing.kind != "category" or thing.name not in tuned:
            continue
        if determines(grouped([thing], len(column.codes)), column):
            return Rule((), thing.name, _whole(_factors(column.numbers, thing), thing))
        for number in others:
            if number.numeric and (has := _multiple(column, number, thing)) is not None:
                return Rule((number.name,), thing.name, _whole(has, thing))
    return None


def _whole(has: Mapping[str, float] | None, thing: Column) -> Mapping[str, float]:
    return has if has is not None and len(has) == thing.distinct else {}


def _multiple(column: Column, number: Column, thing: Column) -> Mapping[str, float] | None:
    """What each category multiplies the number by, if nothing else does and it differs."""
    with np.errstate(all="ignore"):
        ratios = column.numbers / number.numbers
    has = _factors(ratios, thing)
    return has if has is not None and len(set(has.values())) > 1 else None


def _factors(ratios: FloatArray, thing: Column) -> dict[str, float] | None:
    """The number that goes with each category; ``None`` if one category has several."""
    there = np.isfinite(ratios) & (thing.codes >= 0)
    if there.sum() < 10:
        return None
    found: dict[str, float] = {}
    for code, value in enumerate(thing.counts):
        those = ratios[there & (thing.codes == code)]
        if not len(those):
            continue
        if np.ptp(those) > 1e-9 * max(1.0, abs(float(those[0]))):
            return None
        found[str(value)] = round(float(those[0]), 9)
    return found
