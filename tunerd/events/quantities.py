"""Numbers as people and programs write them: durations, sizes, decimal commas, units.

A :class:`NumberNotation` says how a column writes its numbers; :func:`read_quantity` reads one of
them. Nothing is guessed here: what a notation does not allow is refused. Which notation a column
has, :mod:`tunerd.lab.tables.notations` finds out from the column as a whole.
"""

import math
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # its own package brings pydantic and numpy
    from tunerd.core.study.mapping import NumberFormat

__all__ = [
    "PLAIN",
    "SPREAD",
    "NumberNotation",
    "read_count",
    "read_duration",
    "read_quantity",
    "read_size",
    "without_unit",
]


@dataclass(frozen=True, slots=True)
class NumberNotation:
    """How a column writes its numbers."""

    format: "NumberFormat" = "number"
    unit: str = ""
    """What stands behind each number, or before it, and is taken off."""

    @property
    def plain(self) -> bool:
        """Whether these are numbers as programs write them."""
        return self.format == "number" and not self.unit


PLAIN = NumberNotation()
SPREAD = "±"
"""The unit of numbers with what they spread by: ``14.9 ± 0.4``."""
_SPREAD = re.compile(r"\s*\(?(?:±|\+/-|\+-)")
MAX_LENGTH = 100
"""Characters of a number. What is longer is prose, and would take time."""


def read_quantity(text: str, notation: NumberNotation) -> int | float:
    """The number that a text means in a notation: seconds of a duration, bytes of a size.

    Raises:
        ValueError: says what was expected.
    """
    expected = f"expected {_EXPECTED[notation.format]}" + (
        f" in {notation.unit}" if notation.unit else ""
    )
    try:
        bare = text.strip()
        if len(bare) > MAX_LENGTH:
            raise ValueError
        if notation.unit:
            bare = without_unit(bare, notation.unit)
        value = _READERS[notation.format](bare)
    except ValueError:
        raise ValueError(expected) from None
    if not math.isfinite(value):
        raise ValueError(expected)
    return value


def without_unit(text: str, unit: str) -> str:
    """A number without its unit; as it stands where it has none. Its spread may be its unit."""
    if unit == SPREAD:
        return _SPREAD.split(text, maxsplit=1)[0].rstrip()
    if text.endswith(unit):
        return text[: -len(unit)].rstrip()
    return text[len(unit) :].lstrip() if text.startswith(unit) else text


# ── plain numbers ────────────────────────────────────────────────────────────────────────────

_PLAIN = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?", re.ASCII)
_GAP = r"[ '’_\u00a0\u2009\u202f]"
"""What stands between thousands whatever the decimal sign is."""


def _grouped(thousands: str, decimal: str) -> re.Pattern[str]:
    gap = rf"(?:{_GAP}|{re.escape(thousands)})"
    digits = rf"(?:[1-9][0-9]{{0,2}}(?P<gap>{gap})[0-9]{{3}}(?:(?P=gap)[0-9]{{3}})*|[0-9]+)"
    fraction = rf"(?:{re.escape(decimal)}[0-9]*)?"
    return re.compile(
        rf"[+-]?(?:{digits}{fraction}|{re.escape(decimal)}[0-9]+)(?:[eE][+-]?[0-9]{{1,4}})?"
    )


_COMMA_DECIMAL, _POINT_DECIMAL = _grouped(".", ","), _grouped(",", ".")


def _number(text: str) -> int | float:
    if not _PLAIN.fullmatch(text):
        raise ValueError
    return _value(text)


def _value(text: str) -> int | float:
    return float(text) if set(text) & set(".eE") else int(text)


def _comma_decimal(text: str) -> int | float:
    if not _COMMA_DECIMAL.fullmatch(text):
        raise ValueError
    return _value(re.sub(rf"{_GAP}|\.", "", text).replace(",", "."))


def _point_decimal(text: str) -> int | float:
    if not _POINT_DECIMAL.fullmatch(text):
        raise ValueError
    return _value(re.sub(rf"{_GAP}|,", "", text))


# ── durations ────────────────────────────────────────────────────────────────────────────────

_CLOCK = re.compile(
    r"(?P<sign>-)?(?:(?P<days>[0-9]{1,6})-(?=[0-9]+(?::|$)))?"
    r"(?P<parts>[0-9]{1,9}(?::[0-9]{2}){0,2})(?P<fraction>[.,][0-9]+)?"
)
"""Slurm's ``2-01:24:56`` and ``00:05.079``; ``01:09:48`` of anybody."""
_DELTA = re.compile(
    r"(?P<days>[+-]?[0-9]{1,9}) days?,? *(?:\+?(?P<sign>-)?"
    r"(?P<h>[0-9]{1,2}):(?P<m>[0-9]{2}):(?P<s>[0-9]{2}(?:[.,][0-9]+)?))?"
)
"""Python's and pandas' ``1 day, 2:03:04`` and ``0 days 00:00:40.5``."""
_AMOUNT = r"[0-9]+(?:[.,][0-9]+)?|[.][0-9]+"
_PARTS = re.compile(rf"({_AMOUNT})\s*([A-Za-zµμ]+)\.?")
_ISO = re.compile(
    rf"(?P<sign>[+-])?P(?:(?P<w>{_AMOUNT})W)?(?:(?P<d>{_AMOUNT})D)?"
    rf"(?:T(?:(?P<h>{_AMOUNT})H)?(?:(?P<m>{_AMOUNT})M)?(?:(?P<s>{_AMOUNT})S)?)?"
)
_SECONDS = {
    **dict.fromkeys(("ns", "nsec", "nsecs", "nanosecond", "nanoseconds"), Decimal("1e-9")),
    **dict.fromkeys(
        ("us", "µs", "μs", "usec", "usecs", "microsecond", "microseconds"), Decimal("1e-6")
    ),
    **dict.fromkeys(
        ("ms", "msec", "msecs", "millis", "millisecond", "milliseconds"), Decimal("1e-3")
    ),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), Decimal(1)),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), Decimal(60)),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), Decimal(3_600)),
    **dict.fromkeys(("d", "day", "days"), Decimal(86_400)),
    **dict.fromkeys(("w", "wk", "wks", "week", "weeks"), Decimal(604_800)),
}


def read_duration(text: str) -> int | float:
    """Seconds of a duration: ``2-01:24:56``, ``00:05.079``, ``1h 20m``, ``PT5M``, ``350ms``.

    A number alone is seconds, two parts are minutes and seconds, as Slurm writes them.

    Raises:
        ValueError: it is none.
    """
    bare = text.strip()
    if len(bare) > MAX_LENGTH:
        raise ValueError("expected a duration")
    if _PLAIN.fullmatch(bare.lstrip("-")):
        return _value(bare)
    for read in (_clock, _delta, _iso, _amounts):
        if (seconds := read(bare)) is not None:
            return int(seconds) if seconds.is_integer() and abs(seconds) < 1e15 else seconds
    raise ValueError("expected a duration such as 1-02:03:04, 00:05.079, 1h 20m or 350ms")


def _clock(text: str) -> float | None:
    match = _CLOCK.fullmatch(text)
    if match is None:
        return None
    parts = [int(part) for part in match["parts"].split(":")]
    if len(parts) == 1 and match["days"] is None:
        return None
    if match["days"] is not None:  # 1-02 and 1-02:03 are hours, and hours and minutes
        parts += [0] * (3 - len(parts))
    if len(parts) > 1 and any(part > 59 for part in parts[1:]):
        return None
    seconds = 0.0
    for part in parts:
        seconds = seconds * 60 + part
    seconds += 86_400 * int(match["days"] or 0)
    seconds += _amount("0" + match["fraction"]) if match["fraction"] else 0.0
    return -seconds if match["sign"] else seconds


def _delta(text: str) -> float | None:
    match = _DELTA.fullmatch(text)
    if match is None:
        return None
    seconds = 0.0
    if match["h"] is not None:
        seconds = 3_600 * int(match["h"]) + 60 * int(match["m"]) + _amount(match["s"])
    return 86_400 * int(match["days"]) + (-seconds if match["sign"] else seconds)


def _iso(text: str) -> float | None:
    match = _ISO.fullmatch(text)
    parts = {} if match is None else {unit: match[unit] for unit in "wdhms" if match[unit]}
    if match is None or not parts:
        return None
    seconds = float(sum(_exact(many) * _SECONDS[unit] for unit, many in parts.items()))
    return -seconds if match["sign"] == "-" else seconds


def _amounts(text: str) -> float | None:
    sign, rest = (-1.0, text[1:].lstrip()) if text.startswith("-") else (1.0, text)
    at, seconds = 0, list[Decimal]()
    while at < len(rest):
        match = _PARTS.match(rest, at)
        if match is None:
            return None
        unit = match[2] if len(match[2]) == 1 and match[2] != "M" else match[2].lower()
        scale = _SECONDS.get(unit, _SECONDS.get(unit.lower()))
        if scale is None or match[2] == "M":  # 5M are five million of something
            return None
        seconds.append(_exact(match[1]) * scale)
        at = match.end()
        while at < len(rest) and rest[at] in " ,":
            at += 1
        if rest.startswith("and ", at):
            at += 4
    return sign * float(sum(seconds)) if seconds else None


def _amount(text: str) -> float:
    return float(text.replace(",", "."))


def _exact(text: str) -> Decimal:
    return Decimal(text.replace(",", "."))


# ── sizes ────────────────────────────────────────────────────────────────────────────────────

_SIZE = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+(?:[.,][0-9]+)?|[.][0-9]+)(?:[eE][+-]?[0-9]{1,2})?)\s*"
    r"(?:(?P<prefix>[kKmMgGtTpPeE])?(?P<binary>i)?(?P<bytes>B|b|[bB]ytes?)?)(?P<per>[nc])?"
)


def read_size(text: str) -> int | float:
    """Bytes of a size: ``16000Mn``, ``3532K``, ``16G``, ``4 GiB``, ``1.5 GB``, ``512``.

    K, M, G alone and with ``i`` count by 1,024, as in Slurm, Java and ``ls -h``; KB, MB, GB by
    1,000. Slurm's ``n`` and ``c`` (for each node, for each core) are taken off.

    Raises:
        ValueError: it is none.
    """
    bare = text.strip()
    match = _SIZE.fullmatch(bare) if len(bare) <= MAX_LENGTH else None
    if match is None or (match["binary"] and not match["prefix"]):
        raise ValueError("expected a size such as 16G, 3532K, 4 GiB or 1.5 GB")
    number = _amount(match["number"])
    power = " kmgtpe".index((match["prefix"] or " ").lower())
    base = 1_000 if match["bytes"] and not match["binary"] else 1_024
    size = number * float(base**power)
    return int(size) if size.is_integer() and abs(size) < 2**62 else size


_COUNT = re.compile(
    rf"(?P<number>[+-]?(?:{_AMOUNT})(?:[eE][+-]?[0-9]{{1,2}})?)\s*(?P<prefix>[kKMGTP]?)"
)


def read_count(text: str) -> int | float:
    """A number with a decimal prefix: ``880.0K``, ``12.5k``, ``3M``, ``512``.

    Raises:
        ValueError: it is none.
    """
    bare = text.strip()
    match = _COUNT.fullmatch(bare) if len(bare) <= MAX_LENGTH else None
    if match is None:
        raise ValueError("expected a count such as 12.5k, 880.0K or 3M")
    power = " KMGTP".index(match["prefix"].upper() or " ")
    amount = match["number"]
    count = float(_exact(amount) * 1_000**power) if power else _amount(amount)
    return int(count) if count.is_integer() and abs(count) < 2**53 else count


_READERS = {
    "number": _number,
    "1.234,5": _comma_decimal,
    "1,234.5": _point_decimal,
    "duration": read_duration,
    "size": read_size,
    "count": read_count,
}
_EXPECTED = {
    "number": "a number",
    "1.234,5": "a number written like 1.234,5",
    "1,234.5": "a number written like 1,234.5",
    "duration": "a duration such as 1-02:03:04, 00:05.079, 1h 20m or 350ms",
    "size": "a size such as 16G, 3532K, 4 GiB or 1.5 GB",
    "count": "a count such as 12.5k, 880.0K or 3M",
}
