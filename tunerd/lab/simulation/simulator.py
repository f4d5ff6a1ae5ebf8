"""Runs one job of a study: a cost model's physics, then the noise and troubles of a real cluster.

:data:`COST_MODELS` says which studies can be simulated, by the first part of their name. The same
seed, context, configuration and job index give the same run, whoever asks for it, so that runs
under different policies can be compared.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tunerd.core.arrays import FloatArray
from tunerd.core.observation import Scalar, Status, Value
from tunerd.core.study import Study
from tunerd.lab.simulation import fsdp, llm
from tunerd.lab.simulation.cost_model import Columns, CostEstimate, CostModel

__all__ = [
    "COST_MODELS",
    "CostSimulator",
    "FaultModel",
    "SimulatedRun",
    "Simulator",
    "columns_of",
    "job_rng",
    "simulator_for",
]

COST_MODELS: dict[str, CostModel] = {
    "ads-fsdp": fsdp.measure,
    "llm-pretrain": llm.measure,
}
"""A study is simulated by the longest of these names that its own name starts with."""

STARTUP_S = 180.0  # scheduling, loading, compiling, the first steps that nobody measures
STARTUP_SPREAD = 0.3  # of its log: queues, file systems
MEASURED_STEPS = 100
CRASH_S = 30.0  # after startup: an allocation fails within the first steps


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """How a job ended."""

    status: Status
    metrics: Mapping[str, float]
    duration_s: float
    """From start to end, simulated."""
    measured_s: float
    """Of which the metrics were measured; 0 when there are none."""


@dataclass(frozen=True, slots=True)
class FaultModel:
    """What makes a real cluster differ from its cost model."""

    noise: float = 0.02
    """Standard deviation of the log of a run's speed: placement, neighbours, clocks."""
    gpu_hours_per_failure: float = 50_000.0
    """Llama 3 (2407.21783, table 5): 419 interruptions in 54 days on 16,384 GPUs."""
    preempted: float = 0.01
    """Chance that a job of higher priority takes the nodes."""


class Simulator(Protocol):
    """What the simulated cluster and the benchmarks need of a simulated study."""

    study: Study

    def run(
        self, context: Mapping[str, Scalar], config: Mapping[str, Value], rng: np.random.Generator
    ) -> SimulatedRun:
        """One job. Raises ``ValueError`` when context or configuration lack something."""
        ...

    def expected(
        self, context: Mapping[str, Scalar], configs: Sequence[Mapping[str, Value]] | Columns
    ) -> FloatArray:
        """(n,) objective without noise; NaN where it does not run or breaks a guard."""
        ...


class CostSimulator:
    """A :class:`Simulator` made of a cost model and troubles."""

    def __init__(
        self, study: Study, cost_model: CostModel, troubles: FaultModel | None = None
    ) -> None:
        self.study = study
        self._cost_model = cost_model
        self._troubles = troubles or FaultModel()

    def run(
        self, context: Mapping[str, Scalar], config: Mapping[str, Value], rng: np.random.Generator
    ) -> SimulatedRun:
        measured = self._cost_model(context, columns_of(self.study, [config]))
        # Always the same draws, whatever happens: a configuration that dies must not shift the
        # luck of anything else.
        (noise, waited), (failure, preemption, moment) = rng.standard_normal(2), rng.random(3)
        startup = STARTUP_S * math.exp(STARTUP_SPREAD * waited)
        if measured.failed[0]:
            return SimulatedRun(Status.FAILED, {}, startup, 0.0)
        if measured.out_of_memory[0]:
            return SimulatedRun(Status.OUT_OF_MEMORY, {}, startup + CRASH_S, 0.0)
        slower = math.exp(-self._troubles.noise * noise)
        training = MEASURED_STEPS * float(measured.metrics["step_time_s"][0]) * slower
        gpu_hours = _gpus(context) * (startup + training) / 3600
        if failure < -math.expm1(-gpu_hours / self._troubles.gpu_hours_per_failure):
            return SimulatedRun(Status.NODE_FAILURE, {}, startup + moment * training, 0.0)
        if preemption < self._troubles.preempted:
            return SimulatedRun(Status.PREEMPTED, {}, startup + moment * training, 0.0)
        metrics = self._reported(measured, slower)
        return SimulatedRun(Status.SUCCEEDED, metrics, startup + training, training)

    def expected(
        self, context: Mapping[str, Scalar], configs: Sequence[Mapping[str, Value]] | Columns
    ) -> FloatArray:
        columns = configs if isinstance(configs, Mapping) else columns_of(self.study, configs)
        measured = self._cost_model(context, columns)
        runs = measured.runs
        for guard in self.study.guards:
            values = measured.metrics.get(guard.metric)
            if values is not None:
                runs &= ~np.array([guard.broken_by(float(value)) for value in values], dtype=bool)
        return np.where(runs, measured.metrics[self.study.objective.metric], np.nan)

    def measure(
        self, context: Mapping[str, Scalar], configs: Sequence[Mapping[str, Value]] | Columns
    ) -> CostEstimate:
        """Everything that the cost model says, for those who look inside."""
        columns = configs if isinstance(configs, Mapping) else columns_of(self.study, configs)
        return self._cost_model(context, columns)

    def _reported(self, measured: CostEstimate, slower: float) -> dict[str, float]:
        """Metrics of a run: speeds are noisy, memory is not."""
        metrics = {}
        for name, values in measured.metrics.items():
            value = float(values[0])
            if name == "step_time_s":
                value *= slower
            elif not name.startswith("peak_memory"):
                value /= slower
            metrics[name] = float(f"{value:.6g}")
        return metrics


def simulator_for(study: Study, troubles: FaultModel | None = None) -> CostSimulator:
    """The simulator of a study. Raises ``ValueError`` that lists what can be simulated."""
    names = [n for n in COST_MODELS if study.name == n or study.name.startswith(f"{n}-")]
    if not names:
        known = ", ".join(COST_MODELS)
        raise ValueError(
            f"study {study.name!r} is not simulated; a name must be, or start with, one of {known}"
        )
    return CostSimulator(study, COST_MODELS[max(names, key=len)], troubles)


def columns_of(study: Study, configs: Sequence[Mapping[str, Value]]) -> Columns:
    """Configurations as columns. Raises ``ValueError`` naming a parameter that one lacks."""
    columns = {}
    for parameter in study.parameters:
        values = [config.get(parameter.name) for config in configs]
        if any(value is None for value in values):
            raise ValueError(f"config.{parameter.name}: every simulated job needs a value")
        rows = [parameter.clean(value) for value in values]
        try:
            columns[parameter.name] = np.array(rows)
        except ValueError:
            columns[parameter.name] = np.array(rows, dtype=object)
        if columns[parameter.name].dtype == object:
            raise ValueError(f"config.{parameter.name}: not all values are usable")
    return columns


def job_rng(
    seed: int, context: Mapping[str, Scalar], config: Mapping[str, Value], index: int
) -> np.random.Generator:
    """The luck of one job: the same for the same seed, context, configuration and job index."""
    text = json.dumps([seed, context, config, index], sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:16], "big"))


def _gpus(context: Mapping[str, Scalar]) -> float:
    n_gpus = context.get("n_gpus")
    return float(n_gpus) if isinstance(n_gpus, int | float) else 1.0
