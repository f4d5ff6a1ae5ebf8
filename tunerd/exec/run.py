"""The course of ``tunerd exec``, top to bottom."""

import os
import resource
import shlex
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from tunerd.client import JobReporter
from tunerd.exec.causes import CausePatterns, FailureCause, OomCounter
from tunerd.exec.child import CannotRunError, ChildExit, run_child
from tunerd.exec.choose import ChosenConfig, choose
from tunerd.exec.fill import FilledCommand, fill, placeholders
from tunerd.exec.metrics import MetricPattern, collect, from_clock
from tunerd.exec.output import LineSplitter
from tunerd.exec.plan import JobPlan, derived_values, make_plan
from tunerd.exec.stream import reporter_to
from tunerd.job_identity import attempt_of, boot_id, job_id_of, rank_of, user_name
from tunerd.spool import EventSpool, SpoolEntry, job_event, spool_folder, state_folder

__all__ = ["ExecOptions", "run_job"]


@dataclass(frozen=True)
class ExecOptions:
    """What was typed."""

    command: tuple[str, ...]
    study: str
    context: tuple[str, ...] = ()
    settings: Path | None = None
    metrics: list[MetricPattern] = field(default_factory=list)
    causes: CausePatterns = field(default_factory=lambda: CausePatterns([]))
    write: tuple[str, ...] = ()
    templates: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    offline: Path | None = None
    ask_s: float = 0.0
    job_id: str | None = None
    attempt: int | None = None
    timeout_s: float | None = None
    kill_after_s: float = 10.0
    local: bool = False
    verbose: bool = False
    dry_run: bool = False


def run_job(job: ExecOptions, environ: Mapping[str, str]) -> int:
    """Choose, fill, run, report; the exit code is the program's.

    Where a signal ended the program, this process ends by the same one and does not return.

    Raises:
        MisconfiguredError: nothing was started.
        OSError: a file of the configuration cannot be written; nothing was started.
    """
    if not job.local:
        return _run_plan(job, make_plan(job.study, job.context, job.settings, environ), environ)
    from tunerd.exec.local import local_folder, prepare, used

    settings, study = prepare(job.study, environ)
    own = {name: value for name, value in environ.items() if not name.startswith("TUNERD_")}
    with used(local_folder(environ)):
        plan = make_plan(study, job.context, settings, own)
        return _run_plan(job, plan, environ)


def _run_plan(job: ExecOptions, plan: JobPlan, environ: Mapping[str, str]) -> int:
    state = state_folder(environ) / "exec"
    spool = spool_folder(environ, plan.stream, plan.where, plan.jobs_topic)
    rank = rank_of(environ)
    job_id, attempt = job.job_id or job_id_of(environ), job.attempt or attempt_of(environ)
    chosen = choose(
        plan,
        job_id,
        attempt,
        defaults=job.defaults,
        offline=job.offline,
        ask_s=job.ask_s,
        state=state,
    )
    if chosen.note:
        _tell(f"{chosen.note}; {chosen.kind} is used")
    known = dict(plan.context)
    if plan.derived and set(placeholders(job.command)) & set(plan.derived):
        known |= derived_values(plan, chosen.config)
    filled = fill(job.command, chosen.config, known, write=job.write, templates=job.templates)
    if job.verbose or job.dry_run:
        values = " ".join(f"{name}={value}" for name, value in chosen.config.items())
        _tell(f"{chosen.kind}: {values or 'nothing known'}")
    if job.dry_run:
        print(shlex.join(filled.arguments))
        _remove(filled.made)
        return 0
    telling = (
        _JobEventWriter(plan, EventSpool(spool), job_id, attempt, chosen) if rank == 0 else None
    )
    try:
        return _run(job, filled, telling, environ)
    finally:
        _remove(filled.made)


def _run(
    job: ExecOptions,
    filled: FilledCommand,
    telling: "_JobEventWriter | None",
    environ: Mapping[str, str],
) -> int:
    if telling:
        if not telling.chosen.note:  # the stream is away, which was said
            telling.send_what_waits()
        telling.begin(os.path.basename(filled.arguments[0]))
    descriptor, name = tempfile.mkstemp(".jsonl", "tunerd-metrics-")
    os.close(descriptor)
    metrics_file = Path(name)
    environment = {**environ, **filled.environment, "TUNERD_METRICS": name}
    counter = OomCounter()
    stdout, stderr = _listeners(job)
    try:
        ended = run_child(
            filled.arguments,
            environment,
            telling.child if telling else lambda _: None,
            stdout=stdout,
            stderr=stderr,
            timeout_s=job.timeout_s,
            kill_after_s=job.kill_after_s,
        )
        for listener in (stdout, stderr):
            if listener is not None:
                listener.end()
        cause = job.causes.of(ended, counter.rose(), environ)
        metrics = from_clock(ended, whole=cause.status == "succeeded" and not ended.stopped)
        metrics |= collect(job.metrics, metrics_file)
    except CannotRunError as error:
        if telling:
            telling.forget()
        _tell(str(error))
        return error.code
    finally:
        metrics_file.unlink(missing_ok=True)
    for pattern in [metric.pattern for metric in job.metrics] + job.causes.patterns:
        if pattern is not None and pattern.set_aside:
            _tell(f"the pattern {pattern.text!r} took too long on a line and was set aside")
    if telling:
        telling.end(cause, metrics, ended)
    if job.verbose:
        _tell(_in_words(cause, metrics, ended))
    return _end_like(ended)


def _listeners(job: ExecOptions) -> tuple[LineSplitter | None, LineSplitter | None]:
    """Who reads along. What nobody wants to see goes its own way."""
    asked = [metric.pattern for metric in job.metrics if metric.pattern] + job.causes.own_patterns
    everything = [*asked, *job.causes.known_patterns]
    if asked:
        return LineSplitter(everything), LineSplitter(everything)
    # A person at a terminal sees the program's own words; there only patterns are worth a detour.
    with suppress(OSError):
        if not os.isatty(2):
            return None, LineSplitter(everything)
    return None, None


class _JobEventWriter:
    """The event of one job, from its beginning in the spool to the stream."""

    def __init__(
        self, plan: JobPlan, spool: EventSpool, job_id: str, attempt: int, chosen: ChosenConfig
    ) -> None:
        self.plan, self.spool = plan, spool
        self.job_id, self.attempt, self.chosen = job_id, attempt, chosen
        self.entry: SpoolEntry | None = None

    def send_what_waits(self) -> None:
        """What earlier wrappers left behind."""
        try:
            with _LazyReporter(self.plan) as send:
                self.spool.send(send)
        except Exception as error:  # whatever it is, the program has to run
            _tell(f"events of earlier jobs wait in {self.spool.folder}: {error}")

    def begin(self, program: str) -> None:
        """Before anything is started."""
        choice = self.chosen.choice
        begin = {
            "study": self.plan.study,
            "job_id": self.job_id,
            "event_id": uuid4().hex,
            "attempt": self.attempt,
            "context": self.plan.context,
            "config": self.chosen.config,
            "started_at": datetime.now(UTC).isoformat(),
            "user": user_name(),
            "nodes": [socket.gethostname()[:256]],
            "labels": {"program": program[:1024], "kind": self.chosen.kind},
            "choice": choice and [choice.kind, choice.recommendation_id, choice.candidate_id],
            "boot": boot_id(),
        }
        try:
            self.entry = self.spool.new()
            self.entry.write_begin(begin)
        except OSError as error:
            _tell(f"{self.spool.folder}: {error.strerror}; the event is lost if I am killed")
            self.entry = None
        self.said = begin

    def child(self, pid: int) -> None:
        """It runs."""
        if self.entry:
            with suppress(OSError):
                self.entry.write_child(pid)

    def forget(self) -> None:
        """Nothing was started."""
        if self.entry:
            self.entry.remove()

    def end(self, cause: FailureCause, metrics: Mapping[str, float], ended: ChildExit) -> None:
        """It ended, and how."""
        code = {"signal": ended.signal} if ended.signal else {"exit_code": ended.code}
        labels = {"cause": cause.reason} if cause.reason else {}
        try:
            event = job_event(self.said, cause.status, metrics, labels | code, ended.wall_s)
        except ValueError as error:
            self.forget()
            _tell(f"the event cannot be sent: {error}")
            return
        try:
            if self.entry:
                self.entry.write_event(event)
        except OSError as error:
            _tell(f"{self.spool.folder}: {error.strerror}")
        try:
            with _LazyReporter(self.plan) as send:
                send(event)
        except Exception as error:  # the program has run; its end is what counts
            waits = f"waits in {self.spool.folder}" if self.entry else "is lost"
            _tell(f"{error}; the event {waits}")
            return
        if self.entry:
            self.entry.remove()


class _LazyReporter:
    """How to send to the jobs topic; connects when there is something to send."""

    def __init__(self, plan: JobPlan) -> None:
        self.plan = plan
        self.reporter: JobReporter | None = None

    def __enter__(self) -> Callable[[bytes], None]:
        return self.send

    def send(self, event: bytes) -> None:
        if self.reporter is None:
            self.reporter = reporter_to(self.plan)
        self.reporter.send(event)

    def __exit__(self, *_: object) -> None:
        if self.reporter is not None:
            with suppress(Exception):
                self.reporter.close()


# -- the end ----------------------------------------------------------------------------------


def _in_words(cause: FailureCause, metrics: Mapping[str, float], ended: ChildExit) -> str:
    measured = " ".join(f"{name}={value:.6g}" for name, value in metrics.items())
    why = f" ({cause.reason})" if cause.reason else ""
    return f"{cause.status}{why} after {ended.wall_s:.3f} s: {measured}"


def _end_like(ended: ChildExit) -> int:
    """Return the exit code, or end by the signal that ended the program."""
    if ended.signal is None:
        return ended.code
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core of ours says nothing
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    with suppress(OSError, ValueError):
        signal.signal(ended.signal, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {ended.signal})
    os.kill(os.getpid(), ended.signal)
    return 128 + ended.signal


def _remove(files: list[Path]) -> None:
    for file in files:
        with suppress(OSError):
            file.unlink(missing_ok=True)


def _tell(text: str) -> None:
    with suppress(OSError, ValueError, AttributeError):
        print(f"tunerd exec: {text}", file=sys.stderr, flush=True)
