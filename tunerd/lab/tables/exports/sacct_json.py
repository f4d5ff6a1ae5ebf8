"""``sacct --json``: the jobs with the columns that ``sacct -P`` has."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from tunerd.events.foreign import mapping

__all__ = ["jobs_of_sacct"]

_TIMES = {"Submit": "submission", "Eligible": "eligible", "Start": "start", "End": "end"}
_TEXTS = {
    "JobID": "job_id", "JobName": "name", "User": "user", "Account": "account",
    "Partition": "partition", "QOS": "qos", "Cluster": "cluster", "NodeList": "nodes",
    "WorkDir": "working_directory",
}  # fmt: skip
_TRES = {"cpu": "NCPUS", "node": "NNodes", "gres/gpu": "AllocGRES", "mem": "AllocMem"}


def jobs_of_sacct(document: Any) -> Iterable[Mapping[str, Any]] | None:
    """The jobs in a document, or ``None`` when it is none of sacct's. Steps count as their job."""
    jobs = document.get("jobs") if isinstance(document, dict) else None
    if not isinstance(jobs, list) or not jobs:
        return None
    known = all(
        isinstance(job, dict) and {"job_id", "state", "time", "tres"} <= job.keys() for job in jobs
    )
    return [_job(job) for job in jobs] if known else None


def _job(job: Mapping[str, Any]) -> dict[str, Any]:
    times, required = mapping(job.get("time")), mapping(job.get("required"))
    row: dict[str, Any] = {
        column: str(job[key]) for column, key in _TEXTS.items() if job.get(key) not in (None, "")
    }
    row["State"] = _state(job["state"])
    row["ElapsedRaw"] = _number(times.get("elapsed"))
    row |= {column: _moment(times.get(key)) for column, key in _TIMES.items()}
    allocated = _tres(mapping(job.get("tres")).get("allocated"))
    row |= {column: allocated.get(kind) for kind, column in _TRES.items() if kind in allocated}
    if (each := _number(required.get("memory_per_cpu"))) is not None:
        row["ReqMem"] = f"{each}Mc"
    elif (each := _number(required.get("memory_per_node"))) is not None:
        row["ReqMem"] = f"{each}Mn"
    used = [_used(step) for step in job.get("steps") or () if isinstance(step, dict)]
    row["MaxRSS"] = max((size for size in used if size is not None), default=None)
    return row


def _state(state: Any) -> str | None:
    """The first word of a state: sacct lists the state and what else is the case."""
    current = mapping(state).get("current", state)
    word = current[0] if isinstance(current, list) and current else current
    return word if isinstance(word, str) else None


def _number(value: Any) -> int | float | None:
    """A number, or Slurm's ``{"set": true, "number": 4}``."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") and not value.get("infinite") else None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _moment(value: Any) -> str | None:
    seconds = _number(value)
    if not seconds or not 0 < seconds < 2**33:
        return None
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _tres(entries: Any) -> dict[str, int | float | None]:
    """How much of each resource there is, by ``cpu`` and ``gres/gpu``."""
    amounts: dict[str, int | float | None] = {}
    for entry in entries if isinstance(entries, list) else ():
        given = mapping(entry)
        kind = "/".join(str(part) for part in (given.get("type"), given.get("name")) if part)
        amounts[kind] = _number(given.get("count"))
    return amounts


def _used(step: Mapping[str, Any]) -> int | float | None:
    """Bytes of memory that the largest task of a step had."""
    consumed = mapping(mapping(step.get("tres")).get("requested"))
    return _tres(consumed.get("max")).get("mem")
