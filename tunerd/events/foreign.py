"""Records of other tools: reading them without trusting them, and making halves of what they say.

Nothing here raises, whatever a record holds. What is missing, of the wrong kind or too large to be
stored comes out as None, and the field is left out.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, Literal

import msgspec

from tunerd.events.job import JOB_SCHEMA
from tunerd.events.reasons import MAX_ENTRIES, MAX_INT32, MAX_NAME, MAX_TEXT
from tunerd.events.rejection import Rejection
from tunerd.events.values import MAX_INTEGER, MIN_INTEGER, describe, lenient_json

__all__ = [
    "JobNotes",
    "at",
    "entries",
    "half",
    "in_words",
    "is_name",
    "mapping",
    "measured",
    "note_names",
    "plain",
    "read_notes",
    "since_1970",
    "text",
    "the_only",
    "typed",
    "utc",
    "whole",
]

MOST_DEPTH = 8
"""Levels of a nested configuration; what is deeper is no setting of a job."""
_LATEST_S = 253_402_300_799
"""The last second of the year 9999."""
_ZONE = re.compile(r"(?:[Zz]|[+-]\d\d:?\d\d)$")
_RATE = re.compile(r"/(?:s|sec|second|min|h|hour|gpu|node|core|step|it|token|request)s?\b", re.I)

_encode = msgspec.json.Encoder(order="deterministic").encode


# -- values ---------------------------------------------------------------------------------------


def mapping(value: object) -> Mapping[str, Any]:
    """An object; an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def at(content: object, *path: str) -> Any:
    """What stands at a path of names; None where there is nothing."""
    for name in path:
        content = content.get(name) if isinstance(content, dict) else None
    return content


def text(value: object, most: int = MAX_NAME) -> str | None:
    """A text that says something, cut where it is too long; a whole number is its digits."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value) if MIN_INTEGER <= value <= MAX_INTEGER else None
    return value[:most] if isinstance(value, str) and value.strip() and _storable(value) else None


def _storable(value: str) -> bool:
    """Whether a database keeps it: of JSON within JSON nobody has looked at the texts."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in value


def whole(value: object, most: int = MAX_INT32) -> int | None:
    """A whole number from 0 on, also as digits."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 19:
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    fits = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most
    return value if fits and isinstance(value, int) else None


def plain(value: object) -> Any:
    """A value that can be stored: a number, a text, a boolean, or a list of these."""
    if isinstance(value, list):
        scalars = [_scalar(item) for item in value] if len(value) <= MAX_ENTRIES else [None]
        return None if any(item is None for item in scalars) else scalars
    return _scalar(value)


def _scalar(value: object) -> Any:
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if MIN_INTEGER <= value <= MAX_INTEGER else None
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    fits = isinstance(value, str) and len(value) <= MAX_TEXT and _storable(value)
    return value if fits else None


def typed(value: object) -> Any:
    """What a tool that keeps texts alone was given: ``"8"`` is 8, ``"True"`` true, ``"[1, 2]"`` a
    list. Any other text is itself."""
    if not isinstance(value, str):
        return plain(value)
    if value in ("True", "False"):
        return value == "True"
    if value[:1] in set("-0123456789[tf") and len(value) <= MAX_TEXT:
        try:
            decoded = plain(json.loads(value, parse_constant=_refuse))
        except (ValueError, RecursionError):
            decoded = None
        if decoded is not None and not isinstance(decoded, str):
            return decoded
    return plain(value)


def _refuse(name: str) -> Any:
    raise ValueError(name)


def measured(value: object) -> float | None:
    """A finite number, also as text; a run that diverged measured nothing."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str) and len(value) <= 40:
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, int | float):
        try:
            number = float(value)
        except OverflowError:
            return None
        return number if math.isfinite(number) else None
    return None


def since_1970(value: object, per_second: int = 1) -> str | None:
    """RFC 3339 of a number of seconds (or milliseconds: 1,000 per second); None for 0 too."""
    number = measured(value)
    if number is None or not 0 < number / per_second <= _LATEST_S:
        return None
    moment = datetime.fromtimestamp(0, UTC) + timedelta(
        microseconds=round(number * 1_000_000 / per_second)
    )
    return moment.isoformat().replace("+00:00", "Z")


def utc(value: object) -> str | None:
    """A time; in UTC where it does not say its zone."""
    moment = text(value)
    return moment if moment is None or _ZONE.search(moment) else f"{moment}Z"


def entries(content: object) -> dict[str, Any]:
    """The values in a nested object that can be stored, under dotted names: ``model.tp``."""
    flat: dict[str, Any] = {}
    open_ = [("", content, 0)]
    while open_ and len(flat) < MAX_ENTRIES:
        prefix, value, depth = open_.pop()
        if isinstance(value, dict):
            if depth < MOST_DEPTH:
                open_ += [
                    (f"{prefix}.{name}" if prefix else str(name), inner, depth + 1)
                    for name, inner in list(value.items())[:MAX_ENTRIES][::-1]
                ]
        elif is_name(prefix) and (kept := plain(value)) is not None:
            flat[prefix] = kept
    return flat


def is_name(name: str) -> bool:
    """Whether an entry can be called that."""
    return 0 < len(name) <= MAX_NAME and _storable(name)


def in_words(name: str) -> str:
    """A name whose slashes are of sections, ``val/loss``, as words: those of rates stay."""
    return name if _RATE.search(name) else name.replace("/", "_")


def the_only(content: Mapping[str, Any], name: str, hint: str) -> dict[str, Any] | Rejection:
    """The one record of a document with a list of them; a message holds one record."""
    records = content.get(name)
    if isinstance(records, list) and len(records) == 1 and isinstance(records[0], dict):
        return records[0]
    if not isinstance(records, list):
        return Rejection(name, f"expected a list of records, got {describe(records)}")
    return Rejection(name, f"holds {len(records):,} records; send each by itself: {hint}")


# -- what people wrote on a job -------------------------------------------------------------------


@dataclass(frozen=True)
class JobNotes:
    """What somebody wrote on a job for tunerd, in annotations, tags or metadata."""

    study: str | None = None
    job_id: str | None = None
    attempt: int | None = None
    cluster: str | None = None
    recommendation_id: str | None = None
    candidate_id: str | None = None
    duration_metric: str | None = None
    """The metric that the time from start to end is, where nothing else measures."""
    context: Mapping[str, Any] | None = None
    context_names: tuple[str, ...] = ()
    """Settings of the job that are its context."""
    config: Mapping[str, Any] | None = None

    def launched(self, settings: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Fields of a half that say how the job was launched, with the settings that the tool
        itself keeps. A job of a study without a word about its context has an empty one."""
        settings = settings or {}
        named = {name: settings[name] for name in self.context_names if name in settings}
        rest = {name: value for name, value in settings.items() if name not in named}
        context = {**named, **(self.context or {})}
        config = {**rest, **(self.config or {})}
        given = self.context is not None or bool(self.context_names) or self.study is not None
        return {
            "study": self.study,
            "context": context if given else None,
            "config": config or None,
            "recommendation_id": self.recommendation_id,
            "candidate_id": self.candidate_id,
        }

    def duration(
        self, started: str | None, finished: str | None, least_s: float = 0.0
    ) -> dict[str, Any]:
        """The time that a job ran as a metric, where its notes say that this is what counts.

        ``least_s`` is what a job took at least: 1 where times are whole seconds.
        """
        if self.duration_metric is None or started is None or finished is None:
            return {}
        try:
            ran = datetime.fromisoformat(finished) - datetime.fromisoformat(started)
        except (ValueError, TypeError):
            return {}
        seconds = ran.total_seconds()
        if seconds < 0:  # clocks that differ: it would be the fastest job of all
            return {}
        seconds = max(seconds, least_s)
        if seconds == 0:  # no speed at all, and would count as a failure
            return {}
        return {"metrics": {self.duration_metric: seconds}, "measured_s": seconds}


_NOTES = ("study", "job_id", "cluster", "recommendation_id", "candidate_id", "duration_metric")


def note_names(prefix: str, content: Mapping[str, Any]) -> list[str]:
    """The names among these that are for tunerd."""
    return [name for name in content if name.startswith(prefix)]


def read_notes(content: Mapping[str, Any], prefix: str) -> JobNotes:
    """What stands under ``prefix`` in annotations, tags or metadata: ``tunerd.study``.

    ``context`` is an object, its text, or names of settings with commas between; ``context.gpu``
    one value of it. So is ``config``.
    """
    texts: dict[str, Any] = {}
    groups: dict[str, dict[str, Any]] = {}
    names: tuple[str, ...] = ()
    attempt = None
    for name in note_names(prefix, content):
        value, own = content[name], name[len(prefix) :]
        group, dot, entry = own.partition(".")
        own = own.replace("-", "_")
        if own in _NOTES:
            texts[own] = text(value)
        elif own == "attempt":
            attempt = whole(value) or None
        elif own in ("context", "config"):
            given = _object(value)
            if given is not None:
                groups[own] = given | groups.get(own, {})
            elif own == "context":
                names = _names(value)
        elif dot and group in ("context", "config") and is_name(entry):
            kept = typed(value)
            groups.setdefault(group, {})
            if kept is not None:
                groups[group][entry] = kept
    return JobNotes(
        **texts,
        attempt=attempt,
        context=groups.get("context"),
        context_names=names,
        config=groups.get("config"),
    )


def _object(value: object) -> dict[str, Any] | None:
    if isinstance(value, str) and value.lstrip()[:1] == "{":
        try:
            value = lenient_json(value)
        except ValueError:
            return None
    return entries(value) if isinstance(value, dict) else None


def _names(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        value = value.split(",")[:MAX_ENTRIES]
    given = value if isinstance(value, list) else []
    return tuple(item.strip() for item in given if isinstance(item, str) and item.strip())


# -- halves ---------------------------------------------------------------------------------------


def half(
    kind: Literal["started", "reported", "completed"],
    source: str,
    job_id: object,
    **fields: Any,
) -> dict[str, Any]:
    """Half an event of the contract, without what is None.

    Its id is made from what it says. So the same record seen ten times is one half, and one that
    says something else corrects the attempt instead of conflicting with it.
    """
    content = {
        "schema": JOB_SCHEMA,
        "type": kind,
        "partial": True if kind == "completed" else None,
        "source": source[:MAX_NAME],
        "job_id": job_id,
        **fields,
    }
    made = {name: value for name, value in content.items() if value is not None}
    made["event_id"] = f"{kind}-{sha256(_encode(made)).hexdigest()[:24]}"
    return made
