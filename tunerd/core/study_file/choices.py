"""From a parameter's table to its choices, with everything that can be wrong about them."""

from collections.abc import Sequence
from typing import Any

from tunerd.core.study.context_key import INT64, clean_value
from tunerd.core.study_file.grid import MAX_CHOICES, float_range, int_range, stepped
from tunerd.core.study_file.keys import ParameterTable
from tunerd.core.study_file.messages import Path, shown
from tunerd.core.study_file.read import ParseResult

__all__ = ["choices_of"]

Choice = bool | int | float | str
_WORDS = {"int": "an integer", "float": "a number", "category": "a text", "bool": "true or false"}


def choices_of(
    table: ParameterTable, wanted: Sequence[Any], reading: ParseResult, path: Path
) -> tuple[Choice, ...]:
    """Return a parameter's values as printed; empty after a mistake, which ``reading`` then has.

    ``wanted`` are the values of baselines: a range of floats without a step holds them too.
    """
    before = len(reading.problems)
    if table.scale == "log" and table.type in ("category", "bool"):
        reading.mistake((*path, "scale"), f"a {table.type} has no scale")
    if table.type in ("category", "bool"):
        for key in ("low", "high", "step"):
            if getattr(table, key) is not None:
                reading.mistake((*path, key), f"a {table.type} has no range; give `values`")
    choices = (
        _listed(table, reading, path) if table.values else _ranged(table, wanted, reading, path)
    )
    return tuple(choices) if len(reading.problems) == before else ()


def _listed(table: ParameterTable, reading: ParseResult, path: Path) -> list[Choice]:
    where = (*path, "values")
    given = [key for key in ("low", "high", "step") if getattr(table, key) is not None]
    if given and table.type in ("int", "float"):
        reading.mistake(path, f"has `values` and `{given[0]}`: give a list or a range, not both")
    if len(table.values or ()) > MAX_CHOICES:
        message = f"has {len(table.values or ()):,} values, at most {MAX_CHOICES:,}"
        reading.mistake(where, message)
        return []
    distinct: dict[Choice, None] = {}
    for value in table.values or ():
        choice = _typed(value, table.type)
        if choice is None:
            hint = ": put it in quotes" if table.type == "category" else ""
            reading.mistake(where, f"{shown(value)} should be {_WORDS[table.type]}{hint}")
        elif choice in distinct:
            reading.mistake(where, f"{shown(value)} is there twice")
        elif table.scale == "log" and not isinstance(choice, str) and choice <= 0:
            reading.mistake(where, f"{shown(value)} is not positive, which a log scale needs")
        else:
            distinct[choice] = None
    return list(distinct)


def _typed(value: Choice, kind: str) -> Choice | None:
    if kind == "bool":
        return value if isinstance(value, bool) else None
    if kind == "category":
        return value if isinstance(value, str) else None
    if isinstance(value, bool | str):
        return None
    if kind == "float":
        return float(value) + 0.0 if clean_value(value, "float") is not None else None
    return value if isinstance(value, int) and value in INT64 else None


def _ranged(
    table: ParameterTable, wanted: Sequence[Any], reading: ParseResult, path: Path
) -> list[Choice]:
    if table.type == "bool":
        return [False, True]
    if table.type == "category":
        reading.mistake(path, "needs `values`, a list of texts")
        return []
    if not _range_is_sound(table, reading, path):
        return []
    low, high = table.low, table.high
    assert low is not None
    assert high is not None
    if table.step is not None:
        return _stepped(table, reading, path)
    if table.type == "int":
        return list(int_range(int(low), int(high), table.scale))
    values = [
        entry for value in wanted for entry in (value if isinstance(value, list) else [value])
    ]
    inside = {
        float(value)
        for value in values
        if isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high
    }
    return sorted(inside.union(float_range(float(low), float(high), table.scale)))


def _range_is_sound(table: ParameterTable, reading: ParseResult, path: Path) -> bool:
    ends = {"low": table.low, "high": table.high, "step": table.step}
    if table.low is None or table.high is None:
        both = "`values`, or `low` and `high`"
        missing = [key for key in ("low", "high") if ends[key] is None]
        message = f"needs {both}" if len(missing) == 2 else f"has no `{missing[0]}`"
        reading.mistake(path, message)
        return False
    sound = True
    for key, value in ends.items():
        if value is not None and _typed(value, table.type) is None:
            message = f"{shown(value)} should be {_WORDS[table.type]}"
            reading.mistake(
                (*path, key), message if table.type != "int" else f"{message} of 64 bits"
            )
            sound = False
    if sound and table.low >= table.high:
        reading.mistake((*path, "low"), f"low {table.low} should be below high {table.high}")
        sound = False
    if table.scale == "log" and table.low <= 0:
        reading.mistake((*path, "low"), f"{table.low} is not positive, which a log scale needs")
        sound = False
    return sound


def _stepped(table: ParameterTable, reading: ParseResult, path: Path) -> list[Choice]:
    assert table.low is not None
    assert table.high is not None
    assert table.step is not None
    exact = stepped(table.low, table.high, table.step)
    where = (*path, "step")
    if len(exact) > MAX_CHOICES:
        message = f"makes more than {MAX_CHOICES:,} values: take a larger step"
        reading.mistake(where, message)
        return []
    if len(exact) == 1:
        reading.mistake(where, "is larger than the range: one value is left")
        return []
    if table.type == "int":
        return [int(value) for value in exact]
    floats = [float(value) + 0.0 for value in exact]
    if len(set(floats)) < len(floats):
        reading.mistake(where, "is too small for numbers of this size")
        return []
    return list(floats)
