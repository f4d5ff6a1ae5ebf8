"""Columns: the values of a name or an expression in many configurations at once."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tunerd.core.arrays import Array, BoolArray

__all__ = [
    "Lookup",
    "ValueColumn",
    "aligned",
    "constant",
    "either",
    "looked_up",
    "numeric",
    "somewhere",
]


@dataclass(frozen=True, slots=True, eq=False)
class ValueColumn:
    """The values of a name or an expression in n configurations."""

    values: Array
    """() for a constant, (n,) for plain values, (n, repeat) for a repeat parameter; bool, int64
    or float64. Where undefined, anything."""
    undefined: BoolArray | None = None
    """Broadcasts to the shape of ``values``; ``None`` when everything is defined."""
    texts: tuple[str, ...] | None = None
    """For texts: ``values`` are indices into this."""
    attributes: Mapping[str, "ValueColumn"] | None = None
    """For categories with a lookup: its numbers, by name."""

    def satisfied(self) -> BoolArray:
        """Where a truth value is true and defined."""
        truth = self.values.astype(bool, copy=False)
        return truth if self.undefined is None else truth & ~self.undefined

    def plain(self, n: int) -> Array:
        """Return n rows as a plain array: text as text, NaN or ``None`` where undefined."""
        values = self.values
        if self.texts is not None:
            values = np.array(self.texts)[values]
        if self.undefined is not None and self.undefined.any():
            # An undefined number or truth value makes the column one of floats.
            text = self.texts is not None
            nothing = np.array(None if text else np.nan, dtype=object if text else np.float64)
            values = np.where(self.undefined, nothing, values)
        return np.broadcast_to(values, (n, *values.shape[1:]))

    def take(self, values: Array, undefined: BoolArray | None) -> "ValueColumn":
        """Return the same kind of column with other values."""
        return ValueColumn(values, undefined, self.texts, self.attributes)


Lookup = Mapping[str, Mapping[str, float]]
"""Text → attribute → number."""


def constant(value: bool | int | float | str | None, lookup: Lookup | None = None) -> ValueColumn:
    """Return a value that is the same in every configuration; ``None`` is undefined."""
    if value is None:
        return looked_up(ValueColumn(np.zeros((), np.int64), np.ones((), bool), ("",)), lookup)
    if isinstance(value, str):
        return looked_up(ValueColumn(np.zeros((), np.int64), None, (value,)), lookup)
    kind = bool if isinstance(value, bool) else np.int64 if isinstance(value, int) else np.float64
    return ValueColumn(np.asarray(value, dtype=kind))


def looked_up(column: ValueColumn, lookup: Lookup | None) -> ValueColumn:
    """Give a text column the numbers of a lookup; undefined for texts that it does not have."""
    if not lookup:
        return column
    attributes = {}
    for name in dict.fromkeys(name for numbers in lookup.values() for name in numbers):
        known = [lookup.get(text, {}).get(name) for text in column.texts or ()]
        whole = all(isinstance(n.get(name, 0), int) for n in lookup.values())
        table = np.array([n or 0 for n in known], dtype=np.int64 if whole else np.float64)
        unknown = np.array([n is None for n in known])[column.values]
        attributes[name] = ValueColumn(
            table[column.values], either(column.undefined, somewhere(unknown))
        )
    return ValueColumn(column.values, column.undefined, column.texts, attributes)


def aligned(*columns: ValueColumn) -> list[ValueColumn]:
    """Give plain values a second axis where another column has one, so that they broadcast."""
    if max(column.values.ndim for column in columns) < 2:
        return list(columns)
    return [_widened(column) if column.values.ndim == 1 else column for column in columns]


def _widened(column: ValueColumn) -> ValueColumn:
    undefined = column.undefined
    if undefined is not None and undefined.ndim:
        undefined = undefined[:, None]
    return column.take(column.values[:, None], undefined)


def either(*masks: BoolArray | None) -> BoolArray | None:
    """Return where any mask is true; None, which is true nowhere, when all are None."""
    either_mask: BoolArray | None = None
    for mask in masks:
        if mask is not None:
            either_mask = mask if either_mask is None else either_mask | mask
    return either_mask


def somewhere(mask: BoolArray) -> BoolArray | None:
    """Return a mask if it is true somewhere: most columns have none, and then need no care."""
    return mask if mask.any() else None


def numeric(column: ValueColumn) -> Array:
    """Return the values as numbers: true counts as 1."""
    values = column.values
    return values.astype(np.int64) if values.dtype == bool else values
