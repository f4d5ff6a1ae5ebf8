"""When a job of a table finished: the many ways in which tables write it."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

from tunerd.core.observation import Value

__all__ = ["UNDATED", "pattern_problem", "read_time", "time_zone", "zone_problem"]

UNDATED = datetime(1970, 1, 1, tzinfo=UTC)
"""When the first job of a table without times counts as finished; a second later for each row."""

_OFFSET = re.compile(r"([+-])([01][0-9]|2[0-3]):?([0-5][0-9])")
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]*)?([eE]\+?[0-9]{1,2})?")
_PER_SECOND = ((10**11, 1), (10**14, 10**3), (10**17, 10**6), (10**20, 10**9))
"""What is smaller than the first counts so many to the second: 10**11 seconds are the year 5138,
10**11 milliseconds were in 1973."""


def read_time(value: Value, form: str, zone: tzinfo) -> datetime:
    """The time that a table's value means, in UTC.

    Args:
        value: text or number.
        form: "auto", "seconds", "milliseconds" or a pattern of ``strptime``.
        zone: of times that do not say theirs.

    Raises:
        ValueError: says what was expected.
    """
    try:
        moment = _reader(form)(value)
        return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).astimezone(UTC)
    except (ValueError, OverflowError, OSError, re.error):  # a pattern may name a part twice
        raise ValueError(_EXPECTED.get(form, f"expected a time like {form}")) from None


_EXPECTED = {
    "auto": "expected a time such as 2026-11-20T10:00:00Z, a date, or seconds since 1970",
    "seconds": "expected a number of seconds since 1970",
    "milliseconds": "expected a number of milliseconds since 1970",
}


def _reader(form: str) -> Callable[[Value], datetime]:
    if form == "auto":
        return _any
    if form in ("seconds", "milliseconds"):
        return lambda value: _since_1970(value, 1 if form == "seconds" else 1_000)
    return lambda value: datetime.strptime(str(value), form)  # noqa: DTZ007 - the caller has the zone


def _any(value: Value) -> datetime:
    if isinstance(value, str) and not _NUMBER.fullmatch(value):
        return datetime.fromisoformat(value)
    return _since_1970(value, None)


def _since_1970(value: Value, per_second: int | None) -> datetime:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError
    number = float(value)
    if per_second is None:
        # 20240131 would be a day in August 1970: more likely a date without its hyphens.
        if isinstance(value, str) and len(value) == 8 and value.isdigit():
            return datetime.fromisoformat(value)
        fitting = [many for bound, many in _PER_SECOND if abs(number) < bound]
        if not fitting:
            raise ValueError
        per_second = fitting[0]
    return UNDATED + timedelta(microseconds=round(number * 1_000_000 / per_second))


def pattern_problem(pattern: str) -> str | None:
    """What is wrong with a pattern of ``strptime``, whatever it is to read."""
    try:
        datetime.strptime("", pattern)  # noqa: DTZ007 - nothing is read
    except re.error:
        return "names a part of the time twice"
    except ValueError as error:
        if not str(error).startswith(("time data", "unconverted data")):
            return "has a % that means nothing" if "%" in str(error) else str(error)
    return None


@cache
def time_zone(name: str) -> tzinfo:
    """The zone of a name or an offset.

    Raises:
        LookupError: there is none.
    """
    if (offset := _OFFSET.fullmatch(name)) is not None:
        minutes = int(offset[2]) * 60 + int(offset[3])
        return timezone(timedelta(minutes=-minutes if offset[1] == "-" else minutes))
    if name not in _zones():
        raise LookupError(name)
    return ZoneInfo(name)


def zone_problem(name: str) -> str | None:
    """What is wrong with the name of a zone."""
    from tunerd.core.expressions import suggestion

    try:
        time_zone(name)
    except LookupError:
        hint = suggestion(name, _zones()) or '; write "Europe/Berlin" or "+02:00"'
        return f"there is no time zone {name!r} here{hint}"
    return None


@cache
def _zones() -> frozenset[str]:
    return frozenset(available_timezones())
