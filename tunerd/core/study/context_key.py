"""The context key: one canonical text for what a job brings and nobody tunes.

Schedulers in any language write the same key: ``docs/context-key-vectors.json`` has test vectors.
:mod:`tunerd.client`, one file that people copy, writes it with code of its own.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Literal
from urllib.parse import quote

from tunerd.core.observation import Scalar, Value

__all__ = [
    "MISSING",
    "BucketKey",
    "BucketValue",
    "ValueType",
    "bucket_edge",
    "canonical_context_key",
    "category_text",
    "clean_value",
    "value_text",
    "written",
    "written_config",
]

ValueType = Literal["int", "float", "category", "bool"]
"""What a context feature or parameter holds."""

MISSING = "~"
"""How a missing value is written. Inside a value ``~`` becomes ``%7E``, so the two never meet."""

EXACT = 2.0**53
"""Up to here floats are exact integers."""
_TRUE = frozenset({"true", "t", "yes", "y", "on", "1"})
_FALSE = frozenset({"false", "f", "no", "n", "off", "0"})
INT64 = range(-(2**63), 2**63)
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,4})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class BucketKey:
    """A feature whose values share a key within a factor: ``key = { bucket = 1.25 }``."""

    factor: float


@dataclass(frozen=True, slots=True)
class BucketValue:
    """A number that enters the key as the lower edge of its bucket."""

    value: int | float
    factor: float


def canonical_context_key(study: str, values: Mapping[str, Scalar | BucketValue]) -> str:
    """Return ``study|name=value|…`` with names sorted; just ``study`` when there are no values.

    Values are taken by their Python type; ``None`` is missing. :meth:`tunerd.core.study.Study.
    context_key` brings them into the types of the study first.
    """
    return "|".join([study, *(f"{name}={_text(values[name])}" for name in sorted(values))])


def _text(value: Scalar | BucketValue) -> str:
    if value is None:
        return MISSING
    if isinstance(value, BucketValue):
        return value_text(bucket_edge(value.value, value.factor))
    if isinstance(value, str):
        return quote(value, safe="").replace("~", "%7E")
    return value_text(value)


def value_text(value: bool | int | float | str) -> str:
    """Write one value: integers decimal, floats ``%.6g`` without a negative zero, true/false."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return "%.6g" % (value or 0.0)
    return str(value)


def category_text(value: bool | int | float) -> str:
    """Write a number as the text of a category, so that no two numbers share one: whole ones
    decimal, others with 15 significant digits (``%.15g``), which hides rounding and no more."""
    if isinstance(value, float):
        number = value or 0.0
        whole = number.is_integer() and abs(number) < EXACT
        return str(int(number)) if whole else f"{number:.15g}"
    return value_text(value)


def written(value: Value) -> str:
    """Write one value as orders take it: true/false, and ``~`` for a missing one; a list as runs of
    equal values: ``FULL_SHARD×6,NO_SHARD×2``."""
    if isinstance(value, list):
        runs = [(written(entry), len(list(group))) for entry, group in groupby(value)]
        return ",".join(f"{text}×{count}" if count > 1 else text for text, count in runs)
    if value is None:
        return MISSING
    return str(value).lower() if isinstance(value, bool) else str(value)


def written_config(config: Mapping[str, Value]) -> str:
    """Write a configuration on one line: ``tp=4 precision=bf16``."""
    return " ".join(f"{name}={written(value)}" for name, value in config.items())


def bucket_edge(value: int | float, factor: float) -> float:
    """Return the largest whole power of ``factor`` that is not above ``value``.

    A value that is a power up to rounding (1e-9) is its own edge, however it was computed. Zero
    is its own bucket; negative values mirror positive ones.
    """
    if value < 0:
        return -bucket_edge(-value, factor)
    if value == 0:
        return 0.0
    reach = float(value) * (1 + 1e-9)
    power = math.floor(math.log(value) / math.log(factor))
    # The quotient of logarithms can be one off at exact powers: look at both neighbours.
    for candidate in (power + 1, power):
        if _power(factor, candidate) <= reach:
            return _power(factor, candidate)
    return _power(factor, power - 1)


def _power(factor: float, exponent: int) -> float:
    try:
        return float(factor**exponent)
    except OverflowError:
        return math.inf


def clean_value(value: object, kind: ValueType) -> Scalar:
    """Bring a raw value into a type; ``None`` when it is missing or cannot be used.

    Integral floats count as integers, numbers as the text of a category, and numbers and booleans
    may arrive as text (labels and environment variables carry nothing else): "4.0" is 4, "yes" and
    "1" are true. Numbers that are not finite, integers beyond 64 bits, lists and text that is not
    Unicode cannot be used.
    """
    if kind == "category":
        return _clean_text(value)
    if kind == "bool":
        return _clean_bool(value)
    if isinstance(value, bool):
        return None
    return _clean_int(value) if kind == "int" else _clean_float(value)


def _clean_text(value: object) -> str | None:
    if isinstance(value, str):
        return value if _is_unicode(value) else None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, int | float):
        return category_text(value) if isinstance(value, bool | float) or value in INT64 else None
    return None


def _clean_bool(value: object) -> bool | None:
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        text = value.strip().lower()
        if text in _TRUE or text in _FALSE:
            return text in _TRUE
        value = _clean_float(text)  # 1.0, as what passed through floats is written
    return bool(value) if isinstance(value, int | float) and value in (0, 1) else None


def _clean_int(value: object) -> int | None:
    if isinstance(value, str):
        text = value.strip()
        value = int(text) if _INTEGER.fullmatch(text) else _clean_float(text)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and value in INT64 else None


def _clean_float(value: object) -> float | None:
    if isinstance(value, str) and not _NUMBER.fullmatch(value.strip()):
        return None
    if not isinstance(value, int | float | str):
        return None
    try:
        # `float` itself takes fewer characters for space than `strip`.
        number = float(value.strip() if isinstance(value, str) else value)
    except OverflowError:
        return None
    return number + 0.0 if math.isfinite(number) else None


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # JSON may carry half of a surrogate pair
        return False
    return True
