"""Joining the halves of an attempt, in any order, into one whole job event.

Every value keeps the rank of the half that said it. What a higher half says replaces it, entry by
entry in context, configuration, metrics and labels. So the same halves make the same event, in
whatever order and however often they came. Pure: no clock, no store.
"""

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Struct

from tunerd.core.observation import Observation, Status
from tunerd.events.half import AttemptKey, HalfType, JobHalf
from tunerd.events.job import JOB_SCHEMA, TimeLimits, content_hash, read_content
from tunerd.events.rejection import MAX_EVENT_BYTES, Rejection

__all__ = ["AttemptHalves", "HalfRank", "Merged", "attempt_event_id"]

MOST_IDS = 32
"""Latest halves of an attempt whose ids are remembered. A repeated report that was forgotten joins
to nothing new anyway."""
LONGEST_ID = 240

_RANK: Mapping[HalfType, int] = {"started": 0, "reported": 1, "completed": 2}
_BY_ENTRY = frozenset({"context", "config", "metrics", "labels"})
_MATERIAL = (
    "status",
    "context",
    "config",
    "metrics",
    "measured_s",
    "recommendation_id",
    "candidate_id",
)
"""Fields whose change teaches something else."""

_encode = msgspec.json.Encoder(order="deterministic").encode

_NO_TIME = datetime(2000, 1, 1, tzinfo=UTC)

Merged = Literal["fresh", "duplicate", "conflict", "too large"]


class HalfRank(NamedTuple):
    """Which of two halves has the last word. Reports of one attempt measure more and more steps."""

    type: int
    steps: int
    at: str
    event_id: str
    content_hash: str


class _HalfPart(Struct):
    """What of a half no higher one says."""

    rank: HalfRank
    fields: dict[str, Any]


class AttemptHalves(Struct):
    """What the halves of one attempt say together."""

    parts: list[_HalfPart] = []
    """In ascending rank."""
    types: dict[str, int] = {}
    """Halves by type, repeats apart."""
    ids: dict[str, str] = {}
    """Digests of the latest ids, and of what came with each."""

    def add(self, half: JobHalf) -> Merged:
        """Take in a half, unless it is known or the attempt would be larger than an event may."""
        name = _digest(f"{half.type}\n{half.source}\n{half.event_id}")
        content = _digest(half.content_hash)
        known = self.ids.get(name)
        if known is not None:
            return "duplicate" if known == content else "conflict"
        if len(_encode(self._fields())) + len(_encode(half.fields)) > MAX_EVENT_BYTES:
            return "too large"
        self.ids[name] = content
        if len(self.ids) > MOST_IDS:
            del self.ids[next(iter(self.ids))]
        steps = half.steps if half.type == "reported" else -1
        rank = HalfRank(_RANK[half.type], steps, half.at, half.event_id, half.content_hash)
        if any(part.rank == rank for part in self.parts):
            return "duplicate"
        self.types[half.type] = self.types.get(half.type, 0) + 1
        fields = {
            name: dict(value) if name in _BY_ENTRY else value for name, value in half.fields.items()
        }
        for part in self.parts:
            low, high = (part.fields, fields) if part.rank < rank else (fields, part.fields)
            _yield(low, high)
        self.parts = sorted(
            [*(part for part in self.parts if part.fields), _HalfPart(rank, fields)],
            key=lambda part: part.rank,
        )
        return "fresh"

    @property
    def study(self) -> str | None:
        """The study that learns from it, once a half has said so."""
        name: str | None = self._fields().get("study")
        return name

    @property
    def history(self) -> bool:
        """Whether a half says that it is an old job."""
        return bool(self._fields().get("history"))

    @property
    def missing(self) -> tuple[str, ...]:
        """What is not known yet and must be: ``study``, ``context``, ``config``, ``reported``,
        ``completed``. An attempt that did not succeed need not have been reported on."""
        known = self._fields()
        unknown = [name for name in ("study", "context", "config") if name not in known]
        if "metrics" not in known and known.get("status") in (None, Status.SUCCEEDED.value):
            unknown.append("reported")
        if "status" not in known:
            unknown.append("completed")
        return tuple(unknown)

    def measured(self, metric: str, min_steps: int, min_hours: float) -> bool:
        """Whether a metric is known over so many steps, of an attempt that had run for so long.
        Where it is not said when it started or was reported on, what it was measured over counts.
        """
        known = self._fields()
        if known.get("metrics", {}).get(metric) is None or known.get("steps", -1) < min_steps:
            return False
        ran_s: float = known.get("measured_s", 0.0)
        if "started_at" in known and "reported_at" in known:
            # As it was validated: Python's own reader knows fewer ways to write a time.
            began = msgspec.convert(known["started_at"], datetime)
            ran_s = (msgspec.convert(known["reported_at"], datetime) - began).total_seconds()
        return ran_s >= min_hours * 3600.0

    @property
    def material(self) -> str:
        """A digest of what teaches something."""
        known = self._fields()
        return content_hash({name: known.get(name) for name in _MATERIAL})

    def observation(
        self, key: AttemptKey, event_id: str, *, running_at: datetime | None = None
    ) -> Observation | Rejection:
        """What the attempt teaches, read like any whole event; with ``running_at``, the time in
        UTC, as one that has not ended."""
        fields = self._fields()
        if running_at is not None:
            at = fields.get("reported_at") or running_at.isoformat()
            fields |= {"finished_at": at, "status": Status.SUCCEEDED.value}
        names = {"schema": JOB_SCHEMA, "type": "completed", "source": key.cluster}
        which = {"event_id": event_id, "job_id": key.job_id, "attempt": key.attempt}
        # Times were looked at when the halves came.
        read = read_content({**fields, **names, **which}, _NO_TIME, TimeLimits(None, None))
        if running_at is not None and isinstance(read, Observation):
            return msgspec.structs.replace(read, status=Status.RUNNING)
        return read

    def _fields(self) -> dict[str, Any]:
        """What all say together, as a job event has it."""
        fields: dict[str, Any] = {}
        for part in self.parts:
            for name, value in part.fields.items():
                fields[name] = fields.get(name, {}) | value if name in _BY_ENTRY else value
        return fields


def attempt_event_id(key: AttemptKey) -> str:
    """The id of an attempt's joined event, the same one however it was joined."""
    named = f"attempt/{key.job_id}/{key.attempt}"
    if len(named) <= LONGEST_ID:
        return named
    return f"attempt/sha256:{hashlib.sha256(named.encode()).hexdigest()}"


def _yield(low: dict[str, Any], high: Mapping[str, Any]) -> None:
    """Take out of ``low`` what ``high`` says."""
    for name in high.keys() & low.keys():
        if name not in _BY_ENTRY:
            del low[name]
            continue
        low[name] = {entry: v for entry, v in low[name].items() if entry not in high[name]}
        if not low[name]:
            del low[name]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
