"""Records of Slurm's ``jobcomp/kafka`` and ``jobcomp/elasticsearch``, as they are.

Slurm writes one for each job that ended, and with a topic for starts one for each that began. It
knows who ran where and how it ended, and nothing of context, configuration and speed: a record
becomes half of an event, and the launcher's and the trainer's halves say the rest. The fields are
those of ``jobcomp_common_job_record_to_data`` in Slurm's source (23.02 and later). Its batch
script, which may hold secrets, and its paths are not kept.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from tunerd.events.job import JOB_SCHEMA
from tunerd.events.rejection import Rejection
from tunerd.events.values import describe

__all__ = ["SlurmJobcomp", "gpus_in", "hosts"]

STATUSES: Mapping[str, str] = {
    "COMPLETED": "succeeded",
    "CANCELLED": "cancelled",
    "FAILED": "failed",
    "TIMEOUT": "timeout",
    "DEADLINE": "timeout",
    "NODE_FAIL": "node_failure",
    "BOOT_FAIL": "node_failure",
    "PREEMPTED": "preempted",
    "OUT_OF_MEMORY": "out_of_memory",
    "REVOKED": "cancelled",
}
"""Slurm's states of a job that ended → ours."""
BEGAN = frozenset({"RUNNING", "CONFIGURING"})
LABELS = ("job_name", "partition", "account", "qos", "exit_code", "failed_node")
NOTHING = ("", "Unknown", "None", "(null)", "None assigned")
"""What Slurm writes where there is nothing."""
MOST_HOSTS = 10_000
MOST_BRACKETS = 4
"""In one name: racks, chassis, blades."""
_GPUS = re.compile(r"(?:^|,)gres/gpu=(\d{1,9})(?:,|$)")
_TYPED_GPUS = re.compile(r"(?:^|,)gres/gpu:[^=,]+=(\d{1,9})")


class SlurmJobcomp:
    """Recognised by ``jobid``, ``state`` and ``@end`` without a schema of ours."""

    name = "slurm-jobcomp"

    def recognises(self, content: Mapping[str, Any], headers: Mapping[str, bytes]) -> bool:  # noqa: ARG002
        """Whether this record is one of Slurm's."""
        return "schema" not in content and content.keys() >= {"jobid", "state", "@end"}

    def unwrap(
        self,
        content: dict[str, Any],
        headers: Mapping[str, bytes],  # noqa: ARG002
    ) -> dict[str, Any] | Rejection:
        """Half an event: ``started`` of a job that began, ``completed`` of one that ended."""
        job_id = _job_id(content)
        if isinstance(job_id, Rejection):
            return job_id
        state = content["state"]
        word = state.split()[0].upper() if isinstance(state, str) and state.split() else ""
        began = word in BEGAN
        if not began and word not in STATUSES:
            return Rejection("state", f"expected how a job ended, got {describe(state)}")
        start, end = _text(content, "@start"), _text(content, "@end")
        half = {
            "schema": JOB_SCHEMA,
            "type": "started" if began else "completed",
            "partial": None if began else True,
            "source": f"slurm/{_text(content, 'cluster') or ''}",
            # Told again it is the same event: Slurm sends once more what a broker did not confirm.
            "event_id": f"{job_id}-{start or ''}-{'' if began else end}-{word}",
            "job_id": job_id,
            "attempt": _attempt(content),
            "status": None if began else STATUSES[word],
            "submitted_at": _utc(_text(content, "@submit")),
            "started_at": _utc(start),
            "finished_at": None if began else _utc(end),
            "gpus": gpus_in(_text(content, "tres_alloc") or ""),
            "user": _text(content, "username"),
            "nodes": hosts(_text(content, "nodes") or "") or None,
            "labels": {
                name: value for name in LABELS if (value := _text(content, name)) is not None
            },
        }
        return {name: value for name, value in half.items() if value not in (None, {})}


def _job_id(content: Mapping[str, Any]) -> str | Rejection:
    """As Slurm shows it: ``123``, task 4 of an array ``123_4``, a heterogeneous part ``123+1``."""
    for whole, part, mark in (
        ("array_job_id", "array_task_id", "_"),
        ("het_job_id", "het_job_offset", "+"),
    ):
        of, number = _whole(content, whole), _whole(content, part)
        if of is not None and number is not None:
            return f"{of}{mark}{number}"
    job = content["jobid"]
    if _whole(content, "jobid") is not None or (isinstance(job, str) and 0 < len(job) <= 64):
        return str(job)
    return Rejection("jobid", f"expected the number of a job, got {describe(job)}")


def _whole(content: Mapping[str, Any], name: str) -> int | None:
    value = content.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _attempt(content: Mapping[str, Any]) -> int:
    """A requeued job keeps its number; some versions count its restarts."""
    for name in ("restart_cnt", "restarts"):
        count = _whole(content, name)
        if count is not None and 0 <= count < 2**31 - 1:
            return count + 1
    return 1


def _text(content: Mapping[str, Any], name: str) -> str | None:
    value = content.get(name)
    return value if isinstance(value, str) and value not in NOTHING else None


def _utc(time: str | None) -> str | None:
    """Slurm writes UTC and does not say so."""
    if time is None or re.search(r"(?:Z|[+-]\d\d:?\d\d)$", time):
        return time
    return f"{time}Z"


def gpus_in(tres: str) -> int | None:
    """Of ``cpu=8,mem=64G,gres/gpu=8``; by type where there is no sum."""
    if (match := _GPUS.search(tres)) is not None:
        return int(match[1])
    typed = [int(count) for count in _TYPED_GPUS.findall(tres)]
    return min(sum(typed), 2**31 - 1) if typed else None


def hosts(nodes: str) -> list[str]:
    """The hosts of Slurm's ``gpu[01-04,07],login1``, at most 10,000; one that is no such list is
    kept as it is."""
    names: list[str] = []
    for part in re.findall(r"[^,\[]+(?:\[[^\]]*\][^,\[]*)*", nodes):
        left = MOST_HOSTS - len(names)
        names += islice(_expanded(part.strip()), left)
    return names


def _expanded(name: str) -> Iterator[str]:
    before, bracket, rest = name.partition("[")
    inside, closed, after = rest.partition("]")
    if not (bracket and closed) or name.count("[") > MOST_BRACKETS:
        if name:
            yield name
        return
    for part in inside.split(","):
        low, dash, high = part.partition("-")
        if not (low.isascii() and low.isdigit() and len(low) <= 9):
            yield f"{before}{part}{after}"
        elif not dash:
            yield from _expanded(f"{before}{low}{after}")
        elif high.isascii() and high.isdigit() and len(high) <= 9 and int(low) <= int(high):
            for number in range(int(low), int(high) + 1):
                yield from _expanded(f"{before}{number:0{len(low)}d}{after}")
        else:
            yield f"{before}{part}{after}"
