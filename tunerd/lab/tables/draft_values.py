"""Values, scales and keys of drafted context features and parameters."""

from collections.abc import Sequence
from decimal import Decimal
from itertools import pairwise

from tunerd.lab.tables.metric_columns import many_digits
from tunerd.lab.tables.profile import ColumnProfile

__all__ = ["context_table", "parameter_table"]

LISTED = 64
"""Values that are listed one by one; more become a range."""
FEW = 12
"""Values that people list, even where none comes again."""
VERY_FEW = 5
"""… and so many, where none comes again and most have many digits."""
SPREAD = 8.0
"""Numbers that differ by more than this factor are compared by their ratios."""
MANY = 50
"""Numbers of the context that are different jobs more than different contexts."""


def context_table(column: ColumnProfile, follows: bool) -> dict[str, object]:
    """The entry of a context feature; ``follows`` if another feature nearly decides it."""
    kind = "category" if column.kind in ("text", "datetime", "list", "empty") else column.kind
    table: dict[str, object] = {"type": kind}
    numbers = _numbers(column)
    if column.numeric and _spread(numbers):
        table["scale"] = "log"
    if follows:
        table["key"] = "ignore"
    elif column.numeric and column.distinct > MANY:
        table["key"] = {"bucket": 1.25}
    return table


def parameter_table(column: ColumnProfile, repeat: int | None) -> tuple[dict[str, object], str]:
    """The entry of a parameter, and what should be known about it."""
    if column.kind == "list" and repeat is not None:
        return _repeated(column, repeat), ""
    if column.kind == "bool":
        return {"type": "bool"}, ""
    if column.kind == "category":
        return {"type": "category", "values": [str(value) for value in column.counts]}, ""
    kind = "int" if column.kind == "int" else "float"
    values = [value for value in column.counts if isinstance(value, int | float)]
    table: dict[str, object] = {"type": kind}
    if _spread([float(value) for value in values]):
        table["scale"] = "log"
    if (step := _step(values)) is not None and len(values) > 4:
        by_one = kind == "int" and step == 1
        ends = {"low": values[0], "high": values[-1]}
        return table | ends | ({} if by_one else {"step": step}), ""
    if len(values) <= LISTED and not _drawn(column):
        return table | {"values": values}, ""
    note = f"{len(values):,} values occur; all between them are tried"
    return table | {"low": values[0], "high": values[-1]}, note


def _drawn(column: ColumnProfile) -> bool:
    """Whether numbers were drawn from a range, as a random search does: hardly any comes again."""
    if column.distinct <= FEW:
        return (
            column.distinct > VERY_FEW and column.distinct == column.present and many_digits(column)
        )
    return column.distinct >= 0.7 * column.present


def _repeated(column: ColumnProfile, repeat: int) -> dict[str, object]:
    lists = [value for value in column.counts if isinstance(value, tuple)]
    values = sorted({entry for value in lists for entry in value}, key=str)  # of one type
    first = values[0]
    if isinstance(first, bool):
        return {"type": "bool", "repeat": repeat}
    if isinstance(first, int):
        whole = sorted(number for number in values if isinstance(number, int))
        return {"type": "int", "values": whole, "repeat": repeat}
    return {"type": "category", "values": values, "repeat": repeat}


def _numbers(column: ColumnProfile) -> list[float]:
    return [float(value) for value in column.counts if isinstance(value, int | float)]


def _spread(numbers: Sequence[float]) -> bool:
    low, high = min(numbers, default=0.0), max(numbers, default=0.0)
    return low > 0 and high >= SPREAD * low


def _step(values: Sequence[int | float]) -> int | float | None:
    """The distance of evenly spaced values, exactly as they are written; ``None`` if they are not.

    Powers of two up to 4 are evenly spaced by chance; who lists a few values means those.
    """
    exact = [Decimal(str(value)) for value in values]
    gaps = {after - before for before, after in pairwise(exact)}
    if len(gaps) != 1:
        return None
    gap = gaps.pop()
    return int(gap) if isinstance(values[0], int) else float(gap)
