"""What may go into a text column: JSON that comes back as it went in, and text that both take."""

import hashlib
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from tunerd.errors import CorruptDataError

__all__ = [
    "context_id",
    "from_json",
    "object_from_json",
    "text_problem",
    "to_json",
    "to_jsons",
    "whole_json",
]

log = logging.getLogger(__name__)

_LONGEST_ID = 500
"""Characters. PostgreSQL refuses index entries above 2,700 bytes."""


def context_id(context_key: str) -> str:
    """What a context key is looked up by: itself, or if it is very long, its start and digest."""
    if len(context_key) <= _LONGEST_ID:
        return context_key
    digest = hashlib.sha256(context_key.encode()).hexdigest()
    return f"{context_key[: _LONGEST_ID - 100]}…sha256:{digest}"


def to_json(value: object, what: str) -> str:
    """JSON text of ``value``.

    Raises:
        ValueError: ``what`` holds something that JSON cannot hold (NaN, infinity, a lone surrogate,
            an object that is no JSON value).
    """
    return to_jsons([value], what)[0]


def to_jsons(values: Sequence[object], what: str) -> list[str]:
    """:func:`to_json` of each: 0.5 µs for what is in an event, which is why there are many."""
    try:
        texts = [_encode(value).decode() for value in values]
    except (TypeError, UnicodeEncodeError, RecursionError) as error:
        raise ValueError(f"{what} cannot be kept as JSON: {error}") from error
    for text, value in zip(texts, values, strict=True):
        # msgspec writes NaN and infinity as null; only then is a closer look worth its time.
        if "null" in text and not _finite(value):
            raise ValueError(f"{what} cannot be kept as JSON: it holds NaN or infinity")
    return texts


def from_json(text: str, what: str = "a row") -> Any:
    """What :func:`to_json` was given; tuples come back as lists.

    Raises:
        CorruptDataError: it is no JSON any more; it names ``what``.
    """
    try:
        return msgspec.json.decode(text)
    except (ValueError, TypeError, RecursionError) as error:  # also half of a surrogate pair
        raise CorruptDataError(f"{what} is damaged: {error}") from error


def object_from_json(text: str, what: str = "a row") -> dict[str, Any]:
    """:func:`from_json` of what is an object.

    Raises:
        CorruptDataError: it is no JSON object.
    """
    value = from_json(text, what)
    if not isinstance(value, dict):
        raise CorruptDataError(f"{what} is damaged: it should be an object")
    return value


def whole_json(text: str, what: str, instead: Any) -> Any:
    """:func:`from_json`, or where that is damaged ``instead`` of it, with a line in the log. An
    object where ``instead`` is one, a list where that is one: anything else is damaged too."""
    try:
        value = from_json(text, what)
        if type(value) is not type(instead):
            raise CorruptDataError(f"{what} is damaged: it should be a {type(instead).__name__}")
        return value
    except CorruptDataError as error:
        log.error("%s; %r is taken instead", error, instead)
        return instead


def text_problem(texts: Iterable[str]) -> str | None:
    """What keeps one of these texts out of a text column (PostgreSQL's; SQLite would take it); None
    when nothing does."""
    whole = "".join(texts)
    if "\0" in whole:
        return "holds a NUL character, which no text column can keep"
    if not whole.isascii():
        try:
            whole.encode()
        except UnicodeEncodeError:
            return "holds a lone surrogate, which is not text"
    return None


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no JSON value")


_encode = msgspec.json.Encoder(enc_hook=_plain).encode


def _finite(value: object) -> bool:
    """Whether no float in it is NaN or infinite. Python's own encoder asks that in C: a state of a
    context, which has a null almost always, takes a tenth of the time of a walk through it."""
    try:
        json.dumps(value, allow_nan=False, check_circular=False, default=_walked)
    except ValueError:
        return False
    return True


def _walked(value: object) -> object:
    return dict(value) if isinstance(value, Mapping) else None
