"""Ray Train: a loop with a job, and a callback for loops that nobody changes.

    trainer = TorchTrainer(with_job(loop, "llm", {"gpu": "H100"}, defaults={"batch": 8}), ...)

    def loop(config, job):          # `config` has what is recommended
        ...
        job.step(tokens=4096)

The driver chooses, so that all workers get the same. The worker of rank 0 tells: it sees each step,
and the exception that ends it.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from ray.train.v2._internal.execution.callback import ControllerCallback, ReportCallback

from tunerd.job_identity import attempt_of, job_id_of
from tunerd.trainers.destination import find_destination
from tunerd.trainers.guard import guarded
from tunerd.trainers.job import JobOptions, TrainingJob, configuration_of

__all__ = ["RayCallback", "with_job"]

Loop = Callable[[dict[str, Any], TrainingJob], Any]


def with_job(
    loop: Loop, study: str | Path, context: Mapping[str, Any], **options: Any
) -> Callable[[dict[str, Any]], Any]:
    """The function that a trainer takes, of a loop that takes its config and a job.

    `options` are those of :func:`tunerd.client.job`. What is recommended goes over the trainer's
    ``train_loop_config``.
    """
    chosen = _settled(study, context, options)

    def train_loop(config: dict[str, Any]) -> Any:
        with TrainingJob(chosen) as job:
            return loop({**config, **job.config}, job)

    return train_loop


class RayCallback(ControllerCallback, ReportCallback):  # type: ignore[misc]
    """Counts what workers report: ``RunConfig(callbacks=[RayCallback("llm", {"gpu": "H100"})])``.

    A report is a step. `counts` are metrics of it that count since the report before, summed over
    the workers: ``counts=("tokens",)``. `metrics` are others; the last value of the first worker is
    told. ``callback.config`` has what is recommended, for ``train_loop_config``.

    It lives in Ray's controller, which sees reports when it asks workers for them. So
    :func:`with_job` measures better. Ray's public callbacks do not hear of the end; this one uses
    those of ``ray.train.v2._internal``.
    """

    def __init__(
        self,
        study: str | Path,
        context: Mapping[str, Any],
        *,
        counts: Sequence[str] = (),
        metrics: Sequence[str] = (),
        **options: Any,
    ) -> None:
        self._options = _settled(study, context, options)
        self._counts, self._metrics = tuple(counts), tuple(metrics)
        self._job: TrainingJob | None = None

    @property
    def config(self) -> dict[str, Any]:
        """What to train with."""
        return dict(self._options.config or {})

    def fault(self, error: Exception) -> None:
        """Something is wrong in here."""
        if self._job is not None:
            self._job.fault(error)

    @guarded
    def after_controller_start(self, *_: Any, **__: Any) -> None:
        """It begins."""
        self._job = TrainingJob(replace(self._options, replicas=1, handle_sigterm=False))

    @guarded
    def after_report(self, training_report: Any, metrics: Sequence[Mapping[str, Any]]) -> None:  # noqa: ARG002
        """All workers have reported."""
        if self._job is None:
            return
        counts = {
            name: sum(metric[name] for metric in metrics if name in metric) for name in self._counts
        }
        self._job.step(**counts)
        first = metrics[0] if metrics else {}
        self._job.log(**{name: first[name] for name in self._metrics if name in first})

    @guarded
    def after_controller_finish(self, result: Any) -> None:
        """It ended."""
        if self._job is not None:
            self._job.end(getattr(result, "error", None))

    @guarded
    def before_controller_abort(self) -> None:
        """Somebody ends it."""
        if self._job is not None:
            self._job.end(status="cancelled")


def _settled(
    study: str | Path, context: Mapping[str, Any], options: Mapping[str, Any]
) -> JobOptions:
    """Everything that workers in other folders, on other machines, could not find out: where events
    go, and the configuration. Where that fails, it fails in the job, which says so."""
    job = JobOptions(study=str(study), context=context, **options)
    job = replace(
        job,
        job_id=job.job_id or job_id_of(os.environ),
        attempt=job.attempt or attempt_of(os.environ),
    )
    with suppress(Exception):
        to = find_destination(job.stream, job.kafka, job.kafka_options, os.environ)
        if to.stream == "jsonl":
            job = replace(job, stream=to.where)
        else:
            job = replace(job, kafka=to.where, kafka_options=to.options)
        file = job.study if job.study.endswith(".toml") else Path(to.studies, f"{job.study}.toml")
        if Path(file).exists():
            job = replace(job, study=os.path.abspath(file))
        config, choice = configuration_of(job, to)
        job = replace(job, config=config, choice=choice)
    return job
