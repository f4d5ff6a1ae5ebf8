"""Jobs in time order, and the truth beside each."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import msgspec
import numpy as np

from tunerd.core.arrays import FloatArray
from tunerd.core.observation import Observation, Value
from tunerd.core.study import Study
from tunerd.errors import MisconfiguredError, ValidationProblem
from tunerd.lab.evaluation.streams.changes import (
    ChangeScenario,
    ChangeTruth,
    InjectedChange,
    log_speeds,
    make_change,
)
from tunerd.lab.evaluation.streams.workload import JobArrival, UserWorkload, WorkloadOptions
from tunerd.lab.evaluation.tabular import TabularBenchmark, TabularContext

__all__ = ["DriftStream", "StreamJob", "make_stream"]


@dataclass(frozen=True, slots=True)
class StreamJob:
    """A job that has finished."""

    arrival: JobArrival
    config: int
    """The configuration that it ran, by its place in ``Measured.configs``."""
    job: Observation
    """What a daemon hears of it; its sequence is its number + 1."""
    ran: bool
    true_mean: float | None
    """Of the objective, in its unit, over all jobs that might have been this one; None where the
    job failed."""
    usual_mean: float | None
    """What it would have been if nothing ever changed."""
    changed: bool
    """Whether a change acts on it: its truth is not the usual one."""


class DriftStream:
    """A month on a cluster. Every job follows from the seed; nothing is kept.

    Feed ``jobs()`` to what is under test, or, where it decides what is run, take ``arrivals()``
    and :meth:`run` each with what it says. The same job comes out the same whoever runs it with
    the same configuration: its luck is its own.
    """

    def __init__(
        self,
        contexts: Sequence[TabularContext],
        changes: Sequence[InjectedChange],
        traffic: WorkloadOptions,
        seed: int,
    ) -> None:
        self.contexts = tuple(contexts)
        self.changes = tuple(changes)
        self.traffic, self.seed = traffic, seed
        self.habits = UserWorkload(contexts, traffic, seed)
        self._usual = [log_speeds(context) for context in contexts]

    @property
    def study(self) -> Study:
        return self.contexts[0].study

    @property
    def truths(self) -> tuple[ChangeTruth, ...]:
        """What happens."""
        return tuple(change.truth for change in self.changes)

    @cached_property
    def only(self) -> dict[str, tuple[Mapping[str, Value], ...]]:
        """By context key the configurations that exist, for ``Tuner(only=…)``."""
        return {context.context_key: context.configs for context in self.contexts}

    def arrivals(self) -> Iterator[JobArrival]:
        """Jobs that are about to be launched, in order of time."""
        return self.habits.arrivals(self.changes)

    def jobs(self) -> Iterator[StreamJob]:
        """Jobs that ran what their users would run, in order of time."""
        return (self.run(arrival) for arrival in self.arrivals())

    def index(self, context: int, config: Mapping[str, Value]) -> int:
        """The place of a configuration; raises KeyError where it was never measured."""
        return self._places[context][_name(config)]

    def true_scores(self, context: int, number: int) -> FloatArray:
        """(n,) true score of each configuration at a job, NaN for one that never runs."""
        study = self.study
        speeds = self._usual[context] + self._effect(context, number)
        return _scores(study, speeds)

    def run(
        self,
        arrival: JobArrival,
        config: int | None = None,
        recommendation_id: str | None = None,
        candidate_id: str | None = None,
    ) -> StreamJob:
        """Run a job with a configuration, its user's own unless another is given."""
        target = self.contexts[arrival.context]
        index = arrival.own if config is None else config
        rng = np.random.default_rng([self.seed, 3, arrival.number])
        rows, luck, draw = self._rows(arrival.context, index), rng.normal(), rng.random()
        row = rows[int(draw * len(rows))]
        _, ran = target.told(row)
        effect = float(self._effect(arrival.context, arrival.number)[index])
        usual = true = None
        metrics = row.metrics
        if ran:
            usual = self._metric(self._usual[arrival.context][index])
            true = self._metric(self._usual[arrival.context][index] + effect)
            # Mean 1, so that the truth is the mean.
            noise = float(np.exp(self.traffic.noise * luck - self.traffic.noise**2 / 2))
            metrics = {**metrics, self.study.objective.metric: true * noise}
        name = f"stream-{self.seed}-{arrival.number}"
        job = msgspec.structs.replace(
            row,
            source="stream",
            event_id=name,
            job_id=name,
            finished_at=arrival.at,
            metrics=metrics,
            sequence=arrival.number + 1,
            user=arrival.user,
            recommendation_id=recommendation_id,
            candidate_id=candidate_id,
            history=False,
        )
        return StreamJob(arrival, index, job, ran, true, usual, ran and effect != 0.0)

    def _rows(self, context: int, index: int) -> Sequence[Observation]:
        """What a job may come to; one of a configuration that does not run only to a failure."""
        target = self.contexts[context]
        if np.isfinite(self._usual[context][index]):
            return target.rows[index]
        return [row for row in target.rows[index] if not target.told(row)[1]]

    def _effect(self, context: int, number: int) -> FloatArray:
        total = np.zeros(len(self.contexts[context].configs))
        for change in self.changes:
            if context in change.effects:
                total = total + change.extent(number) * change.effects[context]
        return total

    def _metric(self, speed: float) -> float:
        return float(np.exp(speed if self.study.objective.goal == "maximize" else -speed))

    @cached_property
    def _places(self) -> list[dict[str, int]]:
        return [{_name(c): i for i, c in enumerate(context.configs)} for context in self.contexts]


def make_stream(
    table: TabularBenchmark,
    kinds: Sequence[str] = ("nothing",),
    traffic: WorkloadOptions | None = None,
    seed: int = 0,
    at: Sequence[float] = (0.5,),
) -> DriftStream:
    """Turn a table into a stream in which these things happen.

    Args:
        table: the contexts with the most configurations are taken.
        kinds: names of :data:`CHANGES`, one after the other.
        traffic: how much of everything.
        seed: of everything that is random.
        at: for each kind, after what share of the jobs.

    Raises:
        MisconfiguredError: the table has nothing that could change so, or no context at all.
    """
    traffic = traffic or WorkloadOptions()
    if not table.contexts:
        raise MisconfiguredError(
            [ValidationProblem("table", "no context has enough configurations")]
        )
    order = sorted(table.contexts, key=lambda context: (-len(context.configs), context.context_key))
    contexts = order[: traffic.contexts]
    busy = UserWorkload(contexts, traffic, seed).busy
    rng = np.random.default_rng([seed, 4])
    changes = [
        make_change(
            kind, ChangeScenario(contexts, busy, traffic.jobs, int(moment * traffic.jobs), rng)
        )
        for kind, moment in zip(kinds, at, strict=True)
    ]
    return DriftStream(contexts, changes, traffic, seed)


def _scores(study: Study, speeds: FloatArray) -> FloatArray:
    """Oriented objective of log speeds."""
    if study.objective.scale == "log":
        return speeds
    sign = 1.0 if study.objective.goal == "maximize" else -1.0
    scores: FloatArray = sign * np.exp(sign * speeds)
    return scores


def _name(config: Mapping[str, Value]) -> str:
    return json.dumps(config, sort_keys=True)
