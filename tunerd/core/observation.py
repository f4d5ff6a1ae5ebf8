"""What tunerd keeps of a job."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import Enum, StrEnum

import msgspec

__all__ = [
    "END_STATUSES",
    "CorrectedObservation",
    "FeasibilityLabel",
    "Observation",
    "ReleasedObservation",
    "Scalar",
    "Status",
    "Value",
    "corrected",
    "effective",
    "released",
    "started",
]

LONGEST_H = 24 * 366.0
"""Hours; a job that claims to have run for longer has a wrong clock."""

Scalar = bool | int | float | str | None
"""One value of a context feature or parameter; ``None`` is missing."""

Value = Scalar | list[Scalar]
"""A parameter's value; a list for a ``repeat`` parameter."""


class Status(StrEnum):
    """How a job ended (contract: job event, ``status``)."""

    SUCCEEDED = "succeeded"
    OUT_OF_MEMORY = "out_of_memory"
    FAILED = "failed"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    PREEMPTED = "preempted"
    NODE_FAILURE = "node_failure"
    RUNNING = "running"
    """It has not ended, and counts already: what was joined from halves (:mod:`tunerd.events`)."""


END_STATUSES = tuple(status for status in Status if status is not Status.RUNNING)
"""What an event may say."""


class FeasibilityLabel(Enum):
    """What a job says about whether its configuration runs at all (design: what a job teaches)."""

    YES = "yes"
    NO = "no"
    WEAK_NO = "weak_no"
    """A failure of unknown cause: believed as it repeats, while what ran before goes on to run."""
    UNKNOWN = "unknown"


class Observation(msgspec.Struct, frozen=True, gc=False):
    """A finished job, raw: context and configuration as the event had them.

    Parameters that no study knows yet are kept, so that a later generation of the study can
    learn from them. ``sequence`` is dense within the study and given by the store; 0 before.

    A Struct that the garbage collector need not look at: as a dataclass it cost 3 µs of the 13
    that reading an event takes.
    """

    study: str
    source: str
    event_id: str
    job_id: str
    status: Status
    finished_at: datetime
    context: Mapping[str, Value]
    config: Mapping[str, Value]
    metrics: Mapping[str, float]
    sequence: int = 0
    attempt: int = 1
    measured_s: float | None = None
    gpus: int | None = None
    user: str | None = None
    recommendation_id: str | None = None
    candidate_id: str | None = None
    history: bool = False
    """Imported from a table of old jobs: it is learned, but says nothing about how well tunerd
    does now."""
    extra: Mapping[str, object] = {}
    """Event fields that nothing reads yet (nodes, labels, times, unknown ones)."""
    content_hash: str = ""
    """SHA-256 of the event's canonical content: tells a duplicate from a conflict."""


class CorrectedObservation(Observation, frozen=True, gc=False, kw_only=True):
    """What is known of an attempt after it counted before: it takes the place of ``earlier``.

    A class of its own, so that other observations cost and hash what they did.
    """

    earlier: Observation


class ReleasedObservation(CorrectedObservation, frozen=True, gc=False, kw_only=True):
    """A job that was in quarantine, as ``earlier``, and is learned from now on."""


def corrected(observation: Observation, earlier: Observation) -> CorrectedObservation:
    """The observation as one that takes the place of ``earlier``."""
    known = {name: getattr(observation, name) for name in Observation.__struct_fields__}
    return CorrectedObservation(earlier=earlier, **known)


def released(observation: Observation, earlier: Observation) -> ReleasedObservation:
    """The observation as the release of ``earlier``."""
    known = {name: getattr(observation, name) for name in Observation.__struct_fields__}
    return ReleasedObservation(earlier=earlier, **known)


def effective(observations: Iterable[Observation]) -> list[Observation]:
    """Those that no later one among them takes the place of, in their order."""
    jobs = list(observations)
    gone = {job.earlier.sequence for job in jobs if isinstance(job, CorrectedObservation)}
    return [job for job in jobs if job.sequence not in gone] if gone else jobs


def started(job: Observation) -> datetime | None:
    """When a job began; None where its event does not say so, or what cannot be."""
    begun_at = job.extra.get("started_at")
    if not isinstance(begun_at, str):
        return None
    try:
        began = datetime.fromisoformat(begun_at)
        hours = (job.finished_at - began).total_seconds() / 3600
    except (ValueError, TypeError, OverflowError):
        return None
    return began if 0 <= hours < LONGEST_H else None
