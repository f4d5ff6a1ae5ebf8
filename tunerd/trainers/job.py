"""One training: chosen for, timed, told. ``tunerd.client.job`` opens it.

The training's own thread only counts. Threads of ours have the disk and the network
(:mod:`tunerd.trainers.teller`); only the end waits for them, and not for long.
"""

import atexit
import json
import logging
import math
import os
import signal
import socket
import sys
import threading
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self
from uuid import uuid4

from tunerd.client import Choice, context_key
from tunerd.exec.causes import FailureCause, stopped_by
from tunerd.job_identity import (
    attempt_of,
    boot_id,
    job_id_of,
    rank_of,
    scheduler_job_id,
    user_name,
)
from tunerd.spool import EventSpool, job_event, reported_half, spool_folder
from tunerd.trainers.destination import EventDestination, find_destination, read_study_file
from tunerd.trainers.guard import guarded
from tunerd.trainers.outcome import outcome_of
from tunerd.trainers.speed import MeasuredSpeed, StepTimer
from tunerd.trainers.teller import EventTeller, append_metrics

__all__ = ["JobOptions", "TrainingJob", "configuration_of"]

log = logging.getLogger("tunerd.trainers")
"""Says once per training what went wrong in here. A warning that nobody listens to is on standard
error."""

SOURCE = "tunerd trainers"
HALVES_SOURCE = "trainer"
"""Then a slash and the cluster, by which halves are joined."""
INHERITED = "TUNERD_TRAINING"
"""What a training says to the processes that it starts: they are its other ranks."""
CHOOSE_WITHIN_S = 5.0
"""Then the training starts with its defaults."""
END_WITHIN_S = 5.0
"""What is not sent by then waits in the spool."""
DIE_WITHIN_S = 2.0
"""The same after SIGTERM: who sent it sends SIGKILL before long."""
GIB = 1 << 30


@dataclass(frozen=True)
class JobOptions:
    """What ``tunerd.client.job`` was called with."""

    study: str
    context: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    choice: Choice | None = None
    stream: str | Path | None = None
    kafka: str | None = None
    kafka_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    job_id: str | None = None
    attempt: int | None = None
    gpus: int | None = None
    replicas: int | None = None
    warmup_steps: int = 10
    labels: Mapping[str, Any] = field(default_factory=dict)
    handle_sigterm: bool = True
    halves: bool = False
    cluster: str | None = None


class TrainingJob:
    """A training that tunerd hears of. A context manager; :meth:`end` does without.

    Its methods return at once, but for :meth:`end`, which waits for five seconds at most. None
    raises.
    """

    config: dict[str, Any]
    """What to train with: the configuration that was given or chosen."""
    choice: Choice | None = None
    """The recommendation that is followed; None where there is none."""

    def __init__(self, options: JobOptions) -> None:
        given = options.config if options.config is not None else options.defaults
        self._start_empty(dict(given) if isinstance(given, Mapping) else {})
        self._open(options)

    def _start_empty(self, config: dict[str, Any]) -> None:
        self.config = config
        self._speed = StepTimer()
        self._metrics: dict[str, Any] = {}
        self._refused: set[str] = set()
        self._objective: str | None = None
        self._teller: EventTeller | None = None
        self._metrics_file: Path | None = None
        self._begin: dict[str, Any] = {}
        self._replicas: int | None = None
        self._ended = self._told = False
        self._first = True
        self._signal: int | None = None
        self._handler_before: Any = None
        self._last_error = getattr(sys, "last_value", None)

    # -- the beginning ----------------------------------------------------------------------------

    @guarded
    def _open(self, options: JobOptions) -> None:
        self._speed = StepTimer(options.warmup_steps)
        self._replicas = options.replicas
        environ = os.environ
        if self._inherit(options, environ):
            self._ended = True
            return
        if file := environ.get("TUNERD_METRICS"):  # `tunerd exec` chose, and will report
            self._take_over(options, environ)
            self._metrics_file = Path(file)
            self._ended = _rank(environ) != 0
            return
        options = _as_launched(options, environ)
        destination = find_destination(
            options.stream, options.kafka, options.kafka_options, environ
        )
        study, table = read_study_file(options.study, destination.studies)
        objective = table.get("objective")
        self._objective = objective.get("metric") if isinstance(objective, Mapping) else None
        named = scheduler_job_id(environ) if options.halves else job_id_of(environ)
        job_id, attempt = options.job_id or named, options.attempt or attempt_of(environ)
        asked = replace(options, job_id=job_id, attempt=attempt)
        self.config, self.choice = configuration_of(asked, destination)
        note = {"pid": os.getpid(), "study": options.study, "config": self.config}
        environ[INHERITED] = json.dumps(note, default=str)
        if _rank(environ) != 0:
            self._ended = True
            return
        self._begin = _beginning(study, job_id, attempt, self, options)
        if options.halves:
            launched_in = environ.get("TUNERD_CLUSTER") or environ.get("SLURM_CLUSTER_NAME", "")
            cluster = options.cluster or launched_in
            self._begin |= {"by": HALVES_SOURCE, "cluster": cluster}
        job_event(self._begin, "succeeded", {}, {}, None)  # says now what would be wrong at the end
        spool = EventSpool(
            spool_folder(environ, destination.stream, destination.where, destination.jobs_topic)
        )
        self._teller = EventTeller(self._begin, spool, destination, SOURCE, self._progress)
        self._teller.start()
        _OPEN.add(self)
        atexit.register(_end_at_exit, weakref.ref(self))
        if options.handle_sigterm:
            self._listen()

    def _inherit(self, options: JobOptions, environ: Mapping[str, str]) -> bool:
        """Whether a training that still runs started this process, as one of its ranks."""
        with suppress(ValueError, KeyError, TypeError):
            note = json.loads(environ[INHERITED])
            if note["pid"] != os.getpid() and note["study"] == options.study:
                self.config = dict(note["config"])
                return True
        return False

    def _take_over(self, options: JobOptions, environ: Mapping[str, str]) -> None:
        if options.config is None:
            with suppress(ValueError, TypeError):
                self.config |= json.loads(environ.get("TUNERD_CONFIG", "{}"))

    def _listen(self) -> None:
        """Hear SIGTERM, where nobody else has a say in it: not outside of the main thread, and not
        where a library in C listens."""
        if threading.current_thread() is not threading.main_thread():
            return
        before = signal.getsignal(signal.SIGTERM)
        if before is signal.SIG_DFL or callable(before):
            self._handler_before = before
            signal.signal(signal.SIGTERM, self._terminated)

    def _terminated(self, number: int, frame: FrameType | None) -> None:
        before = self._handler_before
        self._signal = number
        if callable(before):  # it decides what becomes of the training
            before(number, frame)
            return
        self._end_as(stopped_by(number, os.environ), DIE_WITHIN_S)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    # -- the course -------------------------------------------------------------------------------

    def step(self, /, **amounts: float) -> None:
        """One step is done, and did this much: ``step(tokens=4096)``, ``step(samples=32)``.

        Counts are of this process. They are multiplied by the number of replicas, which is that
        of all ranks unless ``replicas`` said another. A number that lies on a GPU is not taken:
        looking at it would wait for the GPU.
        """
        try:
            if self._first:
                self._first = False
                if not self._ended and _rank(os.environ) != 0:
                    self._forget()  # ranks were not known before
            for amount in amounts.values():
                if amount.__class__ is not int and amount.__class__ is not float:
                    amounts = self._plain(amounts)
                    break
            if not self._ended:
                self._speed.step(amounts)
        except Exception as error:
            self.fault(error)

    def _plain(self, amounts: Mapping[str, Any]) -> dict[str, float]:
        """Amounts as numbers, without those at which nobody may look now."""
        plain = {}
        for name, amount in amounts.items():
            device = getattr(getattr(amount, "device", None), "type", "cpu")
            if device == "cpu":
                plain[name] = float(amount)
            elif name not in self._refused:
                self._refused.add(name)
                self.fault(TypeError(f"step({name}=…) is a tensor on {device}, not a number"))
        return plain

    @contextmanager
    def paused(self) -> Iterator[None]:
        """While this lasts the training stands still: an evaluation, a checkpoint."""
        self.pause()
        try:
            yield
        finally:
            self.resume()

    @guarded
    def pause(self) -> None:
        """The training stands still until :meth:`resume`, or the next step."""
        self._speed.pause()

    @guarded
    def resume(self) -> None:
        """The training goes on."""
        self._speed.resume()

    @guarded
    def log(self, /, **metrics: Any) -> None:
        """Metrics of the study that are no speed: the last value of each counts.

        A tensor is looked at when the training ends, not now.
        """
        for name, value in metrics.items():
            self._metrics[name] = value.detach() if hasattr(value, "detach") else value

    # -- the end ----------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __deepcopy__(self, _: object) -> Self:
        """Frameworks copy callbacks. There is one training."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """What reaches another process knows the configuration, and tells nothing."""
        return _copied, (dict(self.config), self.choice)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.end(error)

    @guarded
    def end(self, error: BaseException | None = None, *, status: str | None = None) -> None:
        """The training is over: it succeeded, or ``error`` ended it, or ``status`` says how.

        Waits for five seconds at most. Only the first end counts.
        """
        if self._ended:
            return
        if status is not None:
            cause = FailureCause(status, "")
        elif error is not None and self._signal is not None and not isinstance(error, Exception):
            cause = stopped_by(self._signal, os.environ)  # a handler of somebody else's raised
        else:
            cause = outcome_of(error, os.environ)
        self._end_as(cause, END_WITHIN_S)

    def _end_as(self, cause: FailureCause, within_s: float) -> None:
        if self._ended:
            return
        self._ended = True
        try:
            self._tell(cause, within_s)
        except Exception as error:
            self.fault(error)
        finally:
            self._let_go()

    def _tell(self, cause: FailureCause, within_s: float) -> None:
        status, labels = cause.status, {"cause": cause.reason} if cause.reason else {}
        measured = self._measured(whole=status == "succeeded")
        if self._teller is not None and self._begin.get("cluster") is not None:
            if measured["labels"]:
                self._teller.tell(reported_half(self._begin, **measured), within_s)
            else:
                self._teller.forget()
            return
        if self._metrics_file is not None:
            append_metrics(self._metrics_file, measured["metrics"])
            return
        if self._teller is None:
            return
        missing = self._missing(measured)
        if status == "succeeded" and missing:
            # Success without a speed speaks against the configuration, and it is not to blame.
            status, labels = "cancelled", {"cause": missing}
            log.warning("tunerd: %s, so the training is told as cancelled", missing)
        labels = {**measured["labels"], **labels}
        event = job_event(self._begin, status, measured["metrics"], labels, measured["measured_s"])
        self._teller.tell(event, within_s)

    def _missing(self, measured: Mapping[str, Any]) -> str:
        """What a training that succeeded should have measured and did not, in words."""
        if not measured["labels"] and not self._metrics:
            return "fewer than two steps were counted"
        if self._refused:
            return f"step() was given {', '.join(sorted(self._refused))} as a tensor on a GPU"
        if self._objective and self._objective not in measured["metrics"]:
            there = ", ".join(sorted(measured["metrics"]))
            return f"there is no {self._objective}, which the study is about, only {there}"
        return ""

    def _progress(self) -> dict[str, Any]:
        """What the spool is told on the way."""
        if not self._speed.warm:
            return {}
        return self._measured(whole=False)

    def _measured(self, *, whole: bool) -> dict[str, Any]:
        """Metrics, labels and seconds. A run that broke off in its warm-up has no speed."""
        speed = self._speed.measure() if whole or self._speed.warm else None
        gpus = self._begin.get("gpus") or _gpus_in_use()
        metrics = _rates(speed, self._replicas or _world_size(os.environ), gpus) if speed else {}
        labels = {}
        if speed is not None:
            labels = {
                "speed": f"median of {speed.stretches} stretches",
                "steps": speed.steps,
                "warmup_steps": speed.warmup_steps,
            }
        metrics |= _peak_memory() | _numbers(self._metrics)
        return {"metrics": metrics, "labels": labels, "measured_s": speed and speed.seconds}

    def _forget(self) -> None:
        """Another process tells."""
        self._ended = True
        if self._teller is not None:
            self._teller.forget()
        self._let_go()

    def _let_go(self) -> None:
        _OPEN.discard(self)
        os.environ.pop(INHERITED, None)
        with suppress(ValueError):  # not in the main thread
            if signal.getsignal(signal.SIGTERM) == self._terminated:
                signal.signal(signal.SIGTERM, self._handler_before)

    def fault(self, error: Exception) -> None:
        """Something is wrong in here: say so once, and leave the training alone."""
        if not self._told:
            self._told = True
            with suppress(Exception):
                log.warning("tunerd: %s: %s; the training goes on", type(error).__name__, error)


def _copied(config: dict[str, Any], choice: Choice | None) -> TrainingJob:
    job = TrainingJob.__new__(TrainingJob)
    job._start_empty(config)
    job.choice, job._ended = choice, True
    return job


_OPEN: "weakref.WeakSet[TrainingJob]" = weakref.WeakSet()


def _end_at_exit(reference: "weakref.ref[TrainingJob]") -> None:
    """The program ends and nobody said how the training did: its last uncaught exception does."""
    job = reference()
    if job is None or job._ended:
        return
    error = getattr(sys, "last_value", None)
    if error is not None and error is not job._last_error:
        job.end(error)
    else:
        job._end_as(
            FailureCause("cancelled", "the program ended before the training"), END_WITHIN_S
        )


def _in_forked_child() -> None:
    """A worker that loads data is not the training: it must not end it, nor hold its lock."""
    for job in list(_OPEN):
        job._ended = True
        if job._teller is not None:
            job._teller.close_in_child()
        with suppress(ValueError):
            if signal.getsignal(signal.SIGTERM) == job._terminated:
                signal.signal(signal.SIGTERM, job._handler_before)


os.register_at_fork(after_in_child=_in_forked_child)


# -- what is known ----------------------------------------------------------------------------


def configuration_of(
    options: JobOptions, destination: EventDestination
) -> tuple[dict[str, Any], Choice | None]:
    """What to train with, and the recommendation that this follows.

    Raises OSError and ValueError for a study's file that cannot be read.
    """
    if options.config is not None:
        return dict(options.config), options.choice
    choice = options.choice
    if choice is None:
        study, table = read_study_file(options.study, destination.studies)
        features = table.get("context") or _features(options.context)
        key = context_key(study, features, options.context)
        choice = _choose(destination, key, options.job_id or "", options.attempt or 1)
    return {**options.defaults, **(choice.config if choice else {})}, choice


def _choose(destination: EventDestination, key: str, job_id: str, attempt: int) -> Choice | None:
    """The recommendation to follow; None in time, or where nobody is there."""
    choices: list[Choice | None] = []

    def look() -> None:
        try:
            recommendations = destination.recommendations()
            try:
                recommendations.catch_up(CHOOSE_WITHIN_S)
                choices.append(recommendations.choose(key, job_id, attempt=attempt))
            finally:
                recommendations.close()
        except Exception as error:
            log.warning("tunerd: %s; the defaults are used", error)
            choices.append(None)

    thread = threading.Thread(target=look, name="tunerd", daemon=True)
    thread.start()
    thread.join(CHOOSE_WITHIN_S)
    if not choices:
        log.warning("tunerd: no recommendation within %.0f s; defaults are used", CHOOSE_WITHIN_S)
    return choices[0] if choices else None


def _features(context: Mapping[str, Any]) -> dict[str, str]:
    """Types of the values, where no study file says them."""
    types = {bool: "bool", int: "int", float: "float"}
    return {name: types.get(type(value), "category") for name, value in context.items()}


def _as_launched(options: JobOptions, environ: Mapping[str, str]) -> JobOptions:
    """With the configuration that who launched this training chose, such as ``tunerd webhook``."""
    if options.config is not None or options.choice is not None:
        return options
    try:
        config = json.loads(environ.get("TUNERD_CONFIG", ""))
    except ValueError:
        return options
    if not isinstance(config, dict):
        return options
    choice = None
    if recommendation := environ.get("TUNERD_RECOMMENDATION_ID"):
        candidate = environ.get("TUNERD_CANDIDATE_ID") or None
        choice = Choice(config, "launched", recommendation, candidate)
    return replace(options, config={**options.defaults, **config}, choice=choice)


def _beginning(
    study: str, job_id: str, attempt: int, job: TrainingJob, options: JobOptions
) -> dict[str, Any]:
    """As ``tunerd exec`` writes it into the spool."""
    choice = job.choice
    kind = choice.kind if choice else "given" if options.config is not None else "defaults"
    return {
        "by": SOURCE,
        "study": study,
        "job_id": job_id,
        "event_id": uuid4().hex,
        "attempt": attempt,
        "context": dict(options.context),
        "config": job.config,
        "started_at": datetime.now(UTC).isoformat(),
        "user": user_name(),
        "nodes": [socket.gethostname()[:256]],
        "gpus": options.gpus,
        "labels": {"kind": kind, **options.labels},
        "choice": choice and [choice.kind, choice.recommendation_id, choice.candidate_id],
        "boot": boot_id(),
    }


def _rank(environ: Mapping[str, str]) -> int:
    """This process's number among the training's."""
    distributed = _distributed()
    if distributed is not None:
        return int(distributed.get_rank())
    context = _ray_context()
    return rank_of(environ) if context is None else int(context.get_world_rank())


def _world_size(environ: Mapping[str, str]) -> int:
    distributed = _distributed()
    if distributed is not None:
        return int(distributed.get_world_size())
    context = _ray_context()
    if context is not None:
        return int(context.get_world_size())
    size = environ.get("WORLD_SIZE", "")
    return int(size) if size.isdecimal() and int(size) else 1


def _distributed() -> Any:
    """torch.distributed once it is initialised, else None. Nothing is imported for it."""
    module = sys.modules.get("torch.distributed")
    ready = module is not None and module.is_available() and module.is_initialized()
    return module if ready else None


def _ray_context() -> Any:
    """Ray Train's context in one of its workers, else None."""
    module = sys.modules.get("ray.train")
    if module is None:
        return None
    try:
        context = module.get_context()
        context.get_world_rank()
    except Exception:  # not in a worker
        return None
    return context


def _cuda() -> Any:
    """torch.cuda once the training uses it: asking earlier would start CUDA before a fork."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    return cuda if cuda is not None and cuda.is_initialized() else None


def _gpus_in_use() -> int | None:
    return _world_size(os.environ) if _cuda() is not None else None


def _rates(speed: MeasuredSpeed, replicas: int, gpus: int | None) -> dict[str, float]:
    """Speeds by the names that studies have for them."""
    rates = {"steps_per_second": speed.rates["steps"]}
    for name, rate in speed.rates.items():
        if name != "steps":
            rates[f"{name}_per_second"] = rate * replicas
            if gpus:
                rates[f"{name}_per_second_per_gpu"] = rate * replicas / gpus
    return rates


def _peak_memory() -> dict[str, float]:
    """Of this process's GPU, what its allocator took from it."""
    cuda = _cuda()
    if cuda is None:
        return {}
    try:
        return {"peak_memory_gib": cuda.max_memory_reserved() / GIB}
    except Exception:  # after a fault of the GPU nothing can be asked of it
        return {}


def _numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    numbers = {}
    for name, value in metrics.items():
        with suppress(Exception):
            number = float(value)
            if math.isfinite(number):
                numbers[name] = number
    return numbers
