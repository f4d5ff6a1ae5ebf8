"""Words for an event that was refused: which field, what it should be, what came instead."""

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tunerd.core.observation import END_STATUSES
from tunerd.events.rejection import Rejection
from tunerd.events.values import MAX_INTEGER, MIN_INTEGER, describe, step

__all__ = [
    "LABEL_NAME",
    "MAX_ENTRIES",
    "MAX_INT32",
    "MAX_LABEL_NAME",
    "MAX_NAME",
    "MAX_TEXT",
    "MOST_LABELS",
    "conflict",
    "unknown_study",
    "why_invalid",
    "why_no_half",
    "why_no_request",
    "why_no_signal",
]

MAX_NAME = 256
"""Characters of an id or of the name of an entry; the store indexes them."""

MAX_TEXT = 1_024
"""Characters of a text in context, config and labels; context texts become part of keys."""

MAX_ENTRIES = 1_000
"""Entries of context, config and metrics, and of a list in them."""

MOST_LABELS = 30
MAX_LABEL_NAME = 100
LABEL_NAME = "[A-Za-z_][A-Za-z0-9_]*"
"""Of a signal: as Prometheus has them."""

MAX_INT32 = 2**31 - 1

_STATUSES = ", ".join(END_STATUSES)
_ID = f"a text of 1 to {MAX_NAME} characters"
_NOTE = f"a text of at most {MAX_NAME} characters or null"
_TIME = "an RFC 3339 time with a zone, such as 2026-11-20T10:00:00Z"
_OBJECT = "an object, {…}"

_EXPECTED = {
    "source": _NOTE,
    "cluster": _NOTE,
    "partial": "true, false or null",
    "event_id": _ID,
    "study": _ID,
    "job_id": _ID,
    "attempt": f"a whole number from 1 to {MAX_INT32:,} or null",
    "submitted_at": f"{_TIME}, or null",
    "started_at": f"{_TIME}, or null",
    "reported_at": f"{_TIME}, or null",
    "finished_at": _TIME,
    "steps": "a whole number of steps, not negative, or null",
    "measured_s": "a number of seconds, not negative, or null",
    "gpus": f"a whole number from 0 to {MAX_INT32:,} or null",
    "user": _NOTE,
    "nodes": "a list of texts or null",
    "context": _OBJECT,
    "config": _OBJECT,
    "metrics": "an object, {…}, or null",
    "labels": "an object, {…}, or null",
    "recommendation_id": _NOTE,
    "candidate_id": _NOTE,
    "history": "true, false or null",
    "requested_at": f"{_TIME}, or null",
}
_FIELD_IN_ERROR = re.compile(r"required field `(\w+)`|\$\.(\w+)")


def why_invalid(content: Mapping[str, Any], error: str) -> Rejection:
    """Why msgspec refused `content` as a job event; `error` is what it said."""
    return (
        _why_schema(content, "tunerd.job/1")
        or _why_type(content)
        or _why_status(content)
        or _why_field(content, error)
    )


def why_no_half(content: Mapping[str, Any], error: str) -> Rejection:
    """Why msgspec refused `content` as half a job event; `error` is what it said."""
    return (
        _why_schema(content, "tunerd.job/1")
        or _why_type(content)
        or (_why_status(content) if "status" in error else None)
        or _why_field(content, error)
    )


def why_no_request(content: Mapping[str, Any], error: str) -> Rejection:
    """Why msgspec refused `content` as a request; `error` is what it said."""
    return _why_schema(content, "tunerd.request/1") or _why_field(content, error)


_OF_SIGNAL = {
    "name": "a name such as rps: letters, digits, '_', ':' and '.', not starting with a digit",
    "labels": f"an object of texts, {{…}}, at most {MOST_LABELS}, or null",
    "time": _TIME,
    "value": "a number",
}


def why_no_signal(content: Mapping[str, Any], error: str) -> Rejection:
    """Why msgspec refused `content` as a signal record; `error` is what it said."""
    if wrong := _why_schema(content, "tunerd.signal/1"):
        return wrong
    for field, expected in _OF_SIGNAL.items():
        if f"`{field}`" in error or f".{field}" in error or f"$.{field}" in error:
            if field not in content:
                return Rejection(field, f"is missing; expected {expected}")
            if field == "labels" and (wrong := _why_labels(content[field])):
                return wrong
            return Rejection(field, f"expected {expected}, got {describe(content[field])}")
    return Rejection("value", error)


def _why_labels(labels: object) -> Rejection | None:
    """Which label it is."""
    if not isinstance(labels, Mapping):
        return None
    if len(labels) > MOST_LABELS:
        return Rejection("labels", f"there are {len(labels)}, more than {MOST_LABELS}")
    for name, value in labels.items():
        field = step("labels", name)
        if not isinstance(value, str):
            return Rejection(field, f"expected a text, got {describe(value)}")
        if len(name) > MAX_LABEL_NAME or not re.fullmatch(LABEL_NAME, name):
            expected = "letters, digits and '_', not starting with a digit"
            return Rejection(field, f"its name should be of {expected}, at most {MAX_LABEL_NAME}")
        if len(value) > MAX_NAME:
            return Rejection(field, f"has {len(value):,} characters, more than {MAX_NAME}")
    return None


def _why_field(content: Mapping[str, Any], error: str) -> Rejection:
    match = _FIELD_IN_ERROR.search(error)
    field = (match[1] or match[2]) if match else ""
    if field not in _EXPECTED:
        return Rejection(field or "value", error)
    if field not in content:
        return Rejection(field, f"is missing; expected {_EXPECTED[field]}")
    value = content[field]
    if isinstance(value, dict) and (inside := _ENTRY_CHECKS.get(field)) is not None:
        return _why_entries(field, value, inside) or Rejection(field, error)
    if isinstance(value, str) and len(value) > MAX_NAME:
        return Rejection(field, f"has {len(value):,} characters, more than {MAX_NAME}")
    return Rejection(field, f"expected {_EXPECTED[field]}, got {describe(value)}")


def _why_schema(content: Mapping[str, Any], expected: str) -> Rejection | None:
    schema = content.get("schema")
    if schema == expected:
        return None
    right = f"expected '{expected}'"
    if schema is None:
        return Rejection("schema", f"is missing; {right}")
    if isinstance(schema, str) and schema.startswith(expected.partition("/")[0] + "/"):
        return Rejection("schema", f"{describe(schema)} is a version not known here; {right}")
    return Rejection("schema", f"{right}, got {describe(schema)}")


def _why_type(content: Mapping[str, Any]) -> Rejection | None:
    kind = content.get("type")
    if kind in (None, "started", "reported", "completed"):
        return None
    return Rejection("type", f"expected 'started', 'reported' or 'completed', got {describe(kind)}")


def _why_status(content: Mapping[str, Any]) -> Rejection | None:
    if "status" not in content:
        return Rejection("status", f"is missing; expected one of {_STATUSES}")
    status = content["status"]
    if isinstance(status, str) and status in END_STATUSES:
        return None
    hint = did_you_mean(status.lower(), END_STATUSES) if isinstance(status, str) else ""
    return Rejection("status", f"expected one of {_STATUSES}, got {describe(status)}{hint}")


def _why_entries(
    field: str, entries: Mapping[str, Any], why_value: Callable[[str, Any], Rejection | None]
) -> Rejection | None:
    if len(entries) > MAX_ENTRIES:
        return Rejection(field, f"{len(entries):,} entries are more than {MAX_ENTRIES:,}")
    for name, value in entries.items():
        if not name:
            return Rejection(field, "an entry has an empty name")
        path = step(field, name)
        if len(name) > MAX_NAME:
            return Rejection(path, f"its name has {len(name):,} characters, more than {MAX_NAME}")
        if (fault := why_value(path, value)) is not None:
            return fault
    return None


def _why_metric(path: str, value: object) -> Rejection | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return Rejection(path, f"expected a number, got {describe(value)}")
    try:
        float(value)
    except OverflowError:
        return Rejection(path, f"expected a number, got {describe(value)}, which is too large")
    return None


def _why_plain(path: str, value: object) -> Rejection | None:
    if isinstance(value, list | dict):
        return Rejection(path, f"expected a number, text, boolean or null, got {describe(value)}")
    if isinstance(value, str) and len(value) > MAX_TEXT:
        return Rejection(path, f"has {len(value):,} characters, more than {MAX_TEXT:,}")
    if isinstance(value, int) and not MIN_INTEGER <= value <= MAX_INTEGER:
        return Rejection(path, f"{describe(value)} is beyond 64 bits")
    return None


def _why_value(path: str, value: object) -> Rejection | None:
    if isinstance(value, dict):
        return Rejection(
            path, "expected a number, text, boolean, null or a list of these, got an object"
        )
    if not isinstance(value, list):
        return _why_plain(path, value)
    if len(value) > MAX_ENTRIES:
        return Rejection(path, f"{len(value):,} values are more than {MAX_ENTRIES:,}")
    faults = (_why_plain(f"{path}[{i}]", inner) for i, inner in enumerate(value))
    return next((fault for fault in faults if fault is not None), None)


_ENTRY_CHECKS = {
    "context": _why_value,
    "config": _why_value,
    "metrics": _why_metric,
    "labels": _why_plain,
}


def unknown_study(name: str, known: Iterable[str]) -> Rejection:
    """The rejection of an event for a study that does not exist here."""
    studies = sorted(known)
    if hint := did_you_mean(name, studies):
        return Rejection("study", f"no study is called {name[:63]!r}{hint}")
    some = ", ".join(studies[:5]) + (", …" if len(studies) > 5 else "")
    return Rejection("study", f"no study is called {name[:63]!r}; there is {some or 'none yet'}")


def conflict(event_id: str, source: str) -> Rejection:
    """The rejection of an event whose id was already accepted with other content."""
    return Rejection(
        "event_id",
        f"{describe(event_id)} from source {source[:63]!r} was accepted before with other content;"
        " another attempt of the job says so in attempt or started_at",
    )


def did_you_mean(name: str, right: Iterable[str]) -> str:
    """``; did you mean 'x'?`` for the closest of `right`, or nothing."""
    close = difflib.get_close_matches(name[:MAX_NAME], list(right), n=1)
    return f"; did you mean '{close[0]}'?" if close else ""
