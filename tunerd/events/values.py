"""JSON from strangers: bytes to an object that can be stored anywhere, or the reason why not.

The fast way is one msgspec call. Only when that fails, or what it read looks suspicious, does
the slow way here read the bytes again, leniently, to find which field is at fault.
"""

import json
from collections.abc import Iterable
from typing import Any

import msgspec

from tunerd.events.rejection import Rejection

__all__ = [
    "MAX_DEPTH",
    "MAX_INTEGER",
    "MIN_INTEGER",
    "decode_object",
    "describe",
    "first_unstorable",
    "lenient_json",
    "step",
]

MIN_INTEGER, MAX_INTEGER = -(2**63), 2**63 - 1
"""What a database column and a float conversion take without overflow."""

MAX_DEPTH = 32
"""Levels of nesting in a field that nothing reads; whoever reads it back must not recurse far."""

_QUOTED = 40
_LONG_PATH = 160
_LONG_NUMBER = 25

_decode = msgspec.json.Decoder().decode


class _InvalidNumber:
    """Stands in for a number that JSON or a float cannot hold."""

    def __init__(self, problem: str, *, infinite: bool = False) -> None:
        self.problem = problem
        self.infinite = infinite
        """Whether it is NaN or beyond all floats, as what a run that diverged measured."""


def decode_object(value: bytes) -> dict[str, Any] | Rejection:
    """The JSON object in `value`: no NUL, no lone surrogate, every float finite; never raises.

    Integers may still be of any size and nesting as deep as the interpreter allows:
    :func:`first_unstorable` finds these where no declared type does.
    """
    try:
        content = _decode(value)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return _why_not_json(value)
    if type(content) is not dict:
        return _no_object(content)
    if b"\\u0000" in value and (fault := first_unstorable(content)) is not None:
        return fault
    return content


def _why_no_text(value: bytes) -> str:
    """Why bytes are no text in UTF-8, by their beginning; "" where they may be one."""
    if value.startswith(b"\xef\xbb\xbf"):
        return "starts with a byte-order mark; send plain UTF-8"
    if value.startswith((b"\x1f\x8b", b"\x28\xb5\x2f\xfd")):
        return "is compressed by its sender (gzip, zstd); send it as it is"
    if value.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in value[:4]:
        return "is binary, UTF-16 or UTF-32; send JSON in plain UTF-8"
    return "" if value.strip() else "is empty; expected a JSON object"


def _no_object(content: object) -> Rejection:
    several = "; send each event as a record of its own" if isinstance(content, list) else ""
    return Rejection("value", f"expected a JSON object, got {describe(content)}{several}")


def _why_not_json(value: bytes) -> dict[str, Any] | Rejection:
    """The object in `value` whose metrics were NaN or infinite, or why there is none."""
    if why := _why_no_text(value):
        return Rejection("value", why)
    try:
        content = json.loads(
            value.decode("utf-8", "surrogateescape"),
            parse_int=_integer,
            parse_float=_float,
            parse_constant=lambda name: _InvalidNumber(
                f"{name} is not JSON; send null", infinite=True
            ),
        )
    except RecursionError:
        return Rejection("value", f"is nested more than {MAX_DEPTH} levels deep")
    except json.JSONDecodeError as error:
        if (at := _first_foreign_byte(value)) is not None:
            return Rejection("value", f"is neither JSON nor UTF-8, from byte {at + 1} on")
        if error.msg == "Extra data" and error.doc[error.pos] in "{[":
            return Rejection("value", "holds several JSON values; send each as a record of its own")
        what = error.msg.removesuffix(" at")
        return Rejection("value", f"is not JSON: {what} at character {error.pos + 1}")
    if not isinstance(content, dict | _InvalidNumber):
        return _no_object(content)
    if isinstance(content, dict) and _is_ours(content):
        repaired = _measured_nothing(content)
    else:
        repaired = _said_nothing(content)
    if isinstance(content, dict) and repaired:
        return first_unstorable(content) or content
    if (fault := first_unstorable(content)) is not None:
        return fault
    return Rejection("value", "is not JSON")


def _is_ours(content: dict[str, Any]) -> bool:
    """Whether this is an event of the contract, which says what may stand where, or carries one."""
    return "schema" in content or "specversion" in content


def _said_nothing(content: object) -> bool:
    """Whether numbers of another tool's record were none; they are null then, wherever they stand:
    Ray and W&B write NaN and Infinity in settings and results alike."""
    missing, open_ = False, [content]
    while open_:
        container = open_.pop()
        for name, value in list(_entries(container)):
            if isinstance(value, _InvalidNumber):
                container[name] = None  # type: ignore[index]
                missing = True
            elif isinstance(value, dict | list):
                open_.append(value)
    return missing


def _measured_nothing(content: dict[str, Any]) -> bool:
    """Whether metrics were NaN or infinite; they are null then: Python's own writer sends NaN."""
    unmeasured = False
    for part in (content, content.get("data")):  # of a CloudEvent
        metrics = part.get("metrics") if isinstance(part, dict) else None
        for name, value in metrics.items() if isinstance(metrics, dict) else ():
            if isinstance(value, _InvalidNumber) and value.infinite:
                metrics[name] = None  # type: ignore[index]
                unmeasured = True
    return unmeasured


def lenient_json(text: str) -> Any:
    """What a JSON text holds that stands within a record of another tool; NaN and infinity are
    None.

    Raises:
        ValueError: it is no JSON, or nested too deep.
    """
    try:
        return json.loads(text, parse_int=_plain_integer, parse_constant=lambda _: None)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def _plain_integer(digits: str) -> int | None:
    number = _integer(digits)
    return number if isinstance(number, int) else None


def _first_foreign_byte(value: bytes) -> int | None:
    try:
        value.decode()
    except UnicodeDecodeError as error:
        return error.start
    return None


_TOO_LARGE = _InvalidNumber("the number is too large", infinite=True)


def _integer(digits: str) -> int | _InvalidNumber:
    # Longer ones would raise in int(), which refuses more than 4,300 digits.
    if len(digits) > _LONG_NUMBER:
        return _InvalidNumber(f"a number of {len(digits.lstrip('-')):,} digits is too large")
    return int(digits)


def _float(digits: str) -> float | _InvalidNumber:
    number = float(digits)
    return number if abs(number) != float("inf") else _TOO_LARGE


def first_unstorable(content: object) -> Rejection | None:
    """The first place in `content` that a database or a float cannot hold, or None.

    That is a text with NUL or a lone surrogate, an integer beyond 64 bits, and more than
    MAX_DEPTH levels of nesting.
    """
    if (problem := _problem(content)) is not None:
        return Rejection("value", problem)
    level: list[tuple[str, object]] = [("", content)]
    for _ in range(MAX_DEPTH + 1):
        below: list[tuple[str, object]] = []
        for where, container in level:
            for name, value in _entries(container):
                if isinstance(name, str) and (problem := _problem(name)) is not None:
                    return Rejection(step(where, name), f"its name: {problem}")
                if (problem := _problem(value)) is not None:
                    return Rejection(step(where, name), problem)
                if isinstance(value, dict | list):
                    below.append((step(where, name), value))
        if not below:
            return None
        level = below
    top = level[0][0].partition(".")[0].partition("[")[0]
    return Rejection(top or "value", f"is nested more than {MAX_DEPTH} levels deep")


def _entries(container: object) -> Iterable[tuple[str | int, object]]:
    if isinstance(container, dict):
        return container.items()
    return enumerate(container) if isinstance(container, list) else ()


def _problem(value: object) -> str | None:
    if isinstance(value, _InvalidNumber):
        return value.problem
    if isinstance(value, str):
        if "\0" in value:
            return "contains the character NUL, which a database cannot store"
        try:
            value.encode()
        except UnicodeEncodeError as error:
            escaped = "\udc80" <= value[error.start] <= "\udcff"
            return "is not UTF-8" if escaped else "contains half of a surrogate pair"
    elif isinstance(value, int) and not MIN_INTEGER <= value <= MAX_INTEGER:
        return f"{describe(value)} is beyond 64 bits"
    return None


def step(path: str, name: str | int) -> str:
    """`path` with an entry's name or a list's index added, printable and of bounded length."""
    if len(path) > _LONG_PATH:
        return path  # deep below long names: thousands of such paths must not fill the memory
    if isinstance(name, int):
        return f"{path}[{name}]"
    shown = name if name.isprintable() and len(name) <= 2 * _QUOTED else repr(name[:_QUOTED])
    return f"{path}.{shown}" if path else shown


def describe(value: object) -> str:
    """What a value is, for a person, in a few characters of it at most."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        more = "…" if len(value) > _QUOTED else ""
        return f"the text {value[:_QUOTED]!r}{more}" if value else "an empty text"
    if isinstance(value, int):
        # str() of more than 4,300 digits raises; a bit length never does.
        digits = int(value.bit_length() * 0.30103)
        digits += abs(value) >= 10**digits
        return f"the number {value}" if digits <= _LONG_NUMBER else f"a number of {digits} digits"
    if isinstance(value, float):
        return f"the number {value!r}"
    return "a list" if isinstance(value, list | tuple) else "an object"
