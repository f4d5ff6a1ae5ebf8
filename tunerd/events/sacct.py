"""Slurm's accounting: jobs of ``sacct --json``, and rows of ``sacct -P`` as objects.

A job of ``sacct --json`` has the fields of ``PARSER_ARRAY(JOB)`` in Slurm's source
(``src/plugins/data_parser/v0.0.39/parsers.c`` and later, ``src/plugins/openapi/dbv0.0.38``). What
may be missing is a number there, null, or since 23.02 ``{"set": false, "number": 0}``. A row has
the columns of ``sacct -P`` by their names. As a record of jobcomp it is half of a job: how it was
launched and how fast it was, others say.
"""

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from tunerd.events.foreign import at, half, plain, since_1970, text, the_only, utc, whole
from tunerd.events.quantities import read_duration, read_size
from tunerd.events.rejection import Rejection
from tunerd.events.slurm import BEGAN, NOTHING, STATUSES, gpus_in, hosts
from tunerd.events.values import describe

__all__ = ["SacctJob", "SacctRow"]

WAITING = frozenset({"PENDING", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT"})
RUNNING = BEGAN | {"SUSPENDED", "RESIZING", "COMPLETING", "STAGE_OUT", "STOPPED", "SIGNALING"}
ENDS: Mapping[str, str] = {**STATUSES, "REQUEUED": "cancelled"}
"""Also the record of an attempt that was sent back into the queue: it says nothing."""
HINT = "sacct --json | jq -c '.jobs[]'"
_NOBODY = 0xFFFFFFF0
"""Slurm's numbers from here on say that there is none (``NO_VAL``, ``INFINITE``)."""
_MOST_FLAGS = 32
_WORD = re.compile(r"[A-Z_]+")
_STEP = re.compile(r"\d+(?:_\d+)?(?:\+\d+)?\.(?:batch|extern|interactive|\d+).*", re.ASCII)


class SacctJob:
    """Recognised by ``job_id``, ``state.current`` and ``time``; a whole answer by its ``jobs``."""

    name = "sacct-json"

    def recognises(self, content: Mapping[str, Any], headers: Mapping[str, bytes]) -> bool:  # noqa: ARG002
        """Whether this record is a job of ``sacct --json``."""
        if "schema" in content:
            return False
        return _is_job(content) or (isinstance(content.get("jobs"), list) and "meta" in content)

    def unwrap(
        self,
        content: dict[str, Any],
        headers: Mapping[str, bytes],  # noqa: ARG002
    ) -> dict[str, Any] | Rejection:
        """Half an event: ``completed`` of a job that ended, ``started`` of any other."""
        if not _is_job(content):
            only = the_only(content, "jobs", HINT)
            if isinstance(only, Rejection):
                return only
            content = only
        state = _state(at(content, "state", "current"))
        if state == "FAILED" and any(
            _state(at(step, "state")) == "OUT_OF_MEMORY" for step in _steps(content)
        ):
            state = "OUT_OF_MEMORY"  # the job's own state keeps the exit code alone
        job = content.get("job_id")
        labels = {
            "job_name": text(content.get("name")),
            "partition": text(content.get("partition")),
            "account": text(content.get("account")),
            "qos": text(content.get("qos")),
            "exit_code": _exit_code(content.get("exit_code")),
            "failed_node": text(content.get("failed_node")),
            "elapsed_s": whole(at(content, "time", "elapsed")),
        }
        times = {
            name: since_1970(_number(at(content, "time", key)))
            for name, key in (("submit", "submission"), ("start", "start"), ("end", "end"))
        }
        restarts = _number(content.get("restart_cnt"))
        return _half(
            _job_id(content) or text(job),
            job,
            "job_id",
            state or content.get("state"),
            "state",
            times,
            cluster=text(content.get("cluster")) or text(at(content, "association", "cluster")),
            attempt=None if restarts is None else restarts + 1,
            gpus=_gpus(at(content, "tres", "allocated")),
            user=text(content.get("user")) or text(at(content, "association", "user")),
            nodes=content.get("nodes"),
            labels=labels,
        )


class SacctRow:
    """Recognised by ``JobID`` (or ``JobIDRaw``) and ``State``, sacct's names of columns."""

    name = "sacct-row"

    def recognises(self, content: Mapping[str, Any], headers: Mapping[str, bytes]) -> bool:  # noqa: ARG002
        """Whether this record is a row of sacct."""
        named = "JobID" in content or "JobIDRaw" in content
        return named and "State" in content and "schema" not in content

    def unwrap(
        self,
        content: dict[str, Any],
        headers: Mapping[str, bytes],  # noqa: ARG002
    ) -> dict[str, Any] | Rejection:
        """Half an event, as of :class:`SacctJob`."""
        column = "JobID" if "JobID" in content else "JobIDRaw"
        job_id = text(content[column])
        if job_id is not None and _STEP.fullmatch(job_id):
            return Rejection(column, f"{describe(job_id)} is a step; sacct -X lists jobs alone")
        start, end = _time(content.get("Start")), _time(content.get("End"))
        elapsed = _duration(content)
        if end is None and start is not None and elapsed is not None:
            end = _later(start, elapsed)
        restarts = whole(content.get("Restarts"))
        labels = {
            "job_name": _text(content, "JobName"),
            "partition": _text(content, "Partition"),
            "account": _text(content, "Account"),
            "qos": _text(content, "QOS"),
            "exit_code": _text(content, "ExitCode"),
            "failed_node": _text(content, "FailedNode"),
            "elapsed_s": elapsed,
            "max_rss_bytes": _size(content.get("MaxRSS")),
        }
        return _half(
            job_id,
            content[column],
            column,
            _state(content["State"]) or content["State"],
            "State",
            {"submit": _time(content.get("Submit")), "start": start, "end": end},
            cluster=_text(content, "Cluster"),
            attempt=None if restarts is None else restarts + 1,
            gpus=gpus_in(_text(content, "AllocTRES") or ""),
            user=_text(content, "User"),
            nodes=content.get("NodeList"),
            labels=labels,
        )


def _half(
    job_id: str | None,
    given: object,
    named: str,
    state: object,
    stated: str,
    times: Mapping[str, str | None],
    *,
    cluster: str | None,
    attempt: int | None,
    nodes: object,
    labels: Mapping[str, Any],
    **fields: Any,
) -> dict[str, Any] | Rejection:
    if job_id is None:
        return Rejection(named, f"expected the number of a job, got {describe(given)}")
    word = state if isinstance(state, str) else ""
    ended = word in ENDS
    if not ended and word not in WAITING | RUNNING:
        return Rejection(stated, f"expected a state of Slurm's jobs, got {describe(state)}")
    listed = text(nodes, 1 << 18)
    return half(
        "completed" if ended else "started",
        f"slurm/{cluster or ''}",
        job_id,
        attempt=attempt,
        status=ENDS.get(word),
        submitted_at=times["submit"],
        # Of a job that waits sacct says when it may begin.
        started_at=None if word in WAITING else times["start"],
        finished_at=times["end"] if ended else None,
        nodes=(hosts(listed) if listed and listed not in NOTHING else []) or None,
        labels={name: v for name, value in labels.items() if (v := plain(value)) is not None}
        or None,
        **fields,
    )


# -- sacct --json ---------------------------------------------------------------------------------


def _is_job(content: Mapping[str, Any]) -> bool:
    state = content.get("state")
    known = isinstance(state, dict) and "current" in state
    return known and "job_id" in content and isinstance(content.get("time"), dict)


def _number(value: object) -> int | None:
    """A number of Slurm's that may be missing, in each way in which its versions say so."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") is True else None
    return whole(value, _NOBODY - 1)


def _state(value: object) -> str | None:
    """The word that says how a job stands, of a text or a list of the state and its flags in any
    order. A job that was sent back and waits, or runs again, has not ended."""
    if isinstance(value, dict):
        value = value.get("current")
    texts = value[:_MOST_FLAGS] if isinstance(value, list) else [value]
    words: list[str] = []
    for shown in texts:
        words += _WORD.findall(shown.upper()) if isinstance(shown, str) else []
    if "REQUEUED" in words:
        for now in (WAITING, {"RUNNING"}, STATUSES):
            if (word := next((word for word in words if word in now), None)) is not None:
                return word
    return words[0] if words else None


def _steps(content: Mapping[str, Any]) -> list[Any]:
    shown = content.get("steps")
    return shown if isinstance(shown, list) else []


def _job_id(content: Mapping[str, Any]) -> str | None:
    """Of a task of an array ``123_4``, of a part of a heterogeneous job ``123+1``."""
    for group, part, mark in (("array", "task_id", "_"), ("het", "job_offset", "+")):
        of, number = _number(at(content, group, "job_id")), _number(at(content, group, part))
        if of and number is not None:
            return f"{of}{mark}{number}"
    return None


def _exit_code(value: object) -> str | None:
    code = _number(at(value, "return_code"))
    if code is None:
        return None
    signal = at(value, "signal")
    number = _number(at(signal, "id")) or _number(at(signal, "signal_id")) or 0
    return f"{code}:{number}"


def _gpus(tres: object) -> int | None:
    """Of ``[{"type": "gres", "name": "gpu", "count": 8}]``; by type where there is no sum."""
    named: dict[str, int] = {}
    for entry in tres if isinstance(tres, list) else ():
        name, count = at(entry, "name"), whole(at(entry, "count"))
        if at(entry, "type") == "gres" and isinstance(name, str) and count is not None:
            named[name] = count
    if "gpu" in named:
        return named["gpu"]
    kinds = [count for name, count in named.items() if name.startswith("gpu:")]
    return min(sum(kinds), 2**31 - 1) if kinds else None


# -- rows -----------------------------------------------------------------------------------------


def _text(content: Mapping[str, Any], name: str) -> str | None:
    shown = text(content.get(name))
    return None if shown in NOTHING else shown


def _time(value: object) -> str | None:
    """As ``SLURM_TIME_FORMAT=%s`` writes it, or ISO; UTC where it says no zone."""
    shown = text(value)
    if shown is None or shown in NOTHING:
        return None
    return since_1970(shown) or utc(shown)


def _duration(content: Mapping[str, Any]) -> float | None:
    if (seconds := whole(content.get("ElapsedRaw"))) is not None:
        return seconds
    try:
        return read_duration(text(content.get("Elapsed")) or "")
    except ValueError:
        return None


def _size(value: object) -> float | None:
    try:
        return read_size(text(value) or "")
    except ValueError:
        return None


def _later(start: str, seconds: float) -> str | None:
    try:
        return (datetime.fromisoformat(start) + timedelta(seconds=seconds)).isoformat()
    except (ValueError, OverflowError):
        return None
