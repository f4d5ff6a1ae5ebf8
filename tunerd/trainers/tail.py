"""The course of ``tunerd tail``: a log is read, followed while the training runs, and told once."""

import signal
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import IO, Any
from uuid import uuid4

from tunerd.errors import MisconfiguredError, ValidationProblem
from tunerd.exec.causes import FailureCause
from tunerd.exec.plan import JobPlan, make_plan
from tunerd.exec.stream import reporter_to
from tunerd.job_identity import attempt_of, boot_id, job_id_of, user_name
from tunerd.spool import EventSpool, SpoolEntry, job_event, spool_folder
from tunerd.trainers.logs import FORMATS, LogReader

__all__ = ["TailOptions", "tail_log"]

SOURCE = "tunerd tail"
LOOK_EVERY_S = 0.5
CHUNK = 1 << 16
PROGRESS_EVERY_S = 60.0


@dataclass(frozen=True)
class TailOptions:
    """What was typed."""

    file: Path
    log_format: str
    study: str
    context: tuple[str, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    settings: Path | None = None
    job_id: str | None = None
    attempt: int | None = None
    status: str | None = None
    gpus: int | None = None
    tokens_per_sample: float | None = None
    warmup_steps: int = 10
    follow: bool = False
    pid: int | None = None


def tail_log(options: TailOptions, environ: Mapping[str, str]) -> tuple[dict[str, Any], str]:
    """Read the log and send what it comes to: status, metrics and labels, and where it waits.

    Raises:
        MisconfiguredError: with everything that is wrong in what was typed.
        OSError: the log, or the spool, cannot be opened.
    """
    plan = make_plan(options.study, options.context, options.settings, environ)
    unknown = sorted(set(options.config) - set(plan.parameters))
    if unknown:
        there = ", ".join(plan.parameters)
        raise MisconfiguredError(
            [ValidationProblem("--config", f"{name} should be one of {there}") for name in unknown]
        )
    spool = EventSpool(spool_folder(environ, plan.stream, plan.where, plan.jobs_topic))
    with options.file.open("rb") as log:
        entry = spool.new()
        entry.write_begin(_beginning(plan, options, environ))
        reader = LogReader(FORMATS[options.log_format], options.warmup_steps)
        _read(log, reader, options, entry)
    reader.end()
    cause = FailureCause(options.status, "") if options.status else reader.outcome
    metrics = _metrics(reader, options)
    if cause.status == "succeeded" and plan.objective not in metrics:
        # Success without a speed speaks against the configuration, and it is not to blame.
        cause = FailureCause("cancelled", f"the log says nothing of {plan.objective}")
    labels = reader.labels | ({"cause": cause.reason} if cause.reason else {})
    entry.write_event(job_event(entry.begin, cause.status, metrics, labels, None))
    half = {"status": cause.status, "metrics": metrics, "labels": labels}
    return half, _send(plan, spool, entry)


def _read(log: IO[bytes], reader: LogReader, options: TailOptions, entry: SpoolEntry) -> None:
    at = time.monotonic()
    with _asked_to_stop() as asked:
        while True:
            # Asked before reading: what was written before the end is read.
            gone = options.pid is not None and not Path(f"/proc/{options.pid}").exists()
            over = gone or bool(asked) or not (options.follow or options.pid)
            while data := log.read(CHUNK):
                reader.hear(data)
            if over or reader.finished:
                return
            if time.monotonic() - at > PROGRESS_EVERY_S and reader.labels:
                at = time.monotonic()
                progress = {"metrics": _metrics(reader, options), "labels": reader.labels}
                entry.write_progress(progress)
            time.sleep(LOOK_EVERY_S)


@contextmanager
def _asked_to_stop() -> Iterator[list[int]]:
    """Signals that asked for the end; what was read until then is told."""
    asked: list[int] = []

    def heard(number: int, _: FrameType | None) -> None:
        asked.append(number)

    before = {number: signal.signal(number, heard) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _metrics(reader: LogReader, options: TailOptions) -> dict[str, float]:
    """What the log says, and tokens where samples of a known length are counted."""
    metrics = reader.metrics
    if options.tokens_per_sample is not None and "samples_per_second" in metrics:
        metrics["tokens_per_second"] = metrics["samples_per_second"] * options.tokens_per_sample
    if options.gpus:
        for name in ("tokens_per_second", "samples_per_second"):
            if name in metrics:
                metrics[f"{name}_per_gpu"] = metrics[name] / options.gpus
    return metrics


def _beginning(plan: JobPlan, options: TailOptions, environ: Mapping[str, str]) -> dict[str, Any]:
    """As ``tunerd exec`` writes it into the spool."""
    return {
        "by": SOURCE,
        "study": plan.study,
        "job_id": options.job_id or job_id_of(environ),
        "event_id": uuid4().hex,
        "attempt": options.attempt or attempt_of(environ),
        "context": plan.context,
        "config": dict(options.config),
        "started_at": datetime.now(UTC).isoformat(),
        "user": user_name(),
        "nodes": [socket.gethostname()[:256]],
        "gpus": options.gpus,
        "labels": {"log": options.file.name[:256], "format": options.log_format},
        "choice": None,
        "boot": boot_id(),
    }


def _send(plan: JobPlan, spool: EventSpool, entry: SpoolEntry) -> str:
    """Send the event; in words where it waits otherwise."""
    assert entry.event is not None
    try:
        reporter = reporter_to(plan)
        try:
            reporter.send(entry.event)
        finally:
            with suppress(Exception):
                reporter.close()
    except Exception as error:  # whatever a stream says: the event is safe
        return f"{error}; the event waits in {spool.folder}"
    entry.remove()
    return ""
