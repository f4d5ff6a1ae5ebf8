"""One cell of the yardsticks, run: what its line of results says.

Lines hold what depends on data, versions and seeds, and apart from it the seconds of the machine.
"""

import math
import platform
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from benchmarks import peers
from benchmarks.tables import read_table
from benchmarks.yardsticks.plan import Cell, Description, loop_plan
from tunerd import __version__
from tunerd.core.decisions.campaign import MIN_FEASIBLE
from tunerd.core.observation import Observation
from tunerd.core.predictors import PREDICTORS as OWN
from tunerd.core.study import Study
from tunerd.core.study_file import parse_study
from tunerd.errors import MisconfiguredError
from tunerd.lab.evaluation.backtest import SplitScore, answer, ask, verdicts
from tunerd.lab.evaluation.closed_loop import (
    BenchmarkProblem,
    Optimizer,
    OptimizerRun,
    TrialResult,
    play,
)
from tunerd.lab.evaluation.forecast_scores import ForecastScores, GroundTruth
from tunerd.lab.evaluation.forecaster import Forecaster, JobForecasts
from tunerd.lab.evaluation.optimizers import TunerdOptimizer
from tunerd.lab.evaluation.results import results
from tunerd.lab.evaluation.splits import folds, parse_known, parse_split
from tunerd.lab.evaluation.tabular import TabularBenchmark, TabularContext, measured
from tunerd.lab.evaluation.tunerd_forecaster import forecaster

__all__ = ["Oracle", "Shuffled", "died", "run"]

DIGITS = 6
PER_CONTEXT = ("kendall_tau", "auc")
LIBRARIES = {
    "botorch": ("botorch", "gpytorch", "torch"),
    "cmaes": ("cmaes",),
    "optuna": ("optuna",),
    "sklearn": ("scikit-learn",),
    "smac": ("smac", "ConfigSpace"),
    "torch": ("torch",),
}
"""Module that a peer needs → distributions whose versions matter."""


def run(cell: Cell, description: Description, data: Path) -> dict[str, Any]:
    """Measure one cell: its line. What cannot be asked of a table is told as ``n/a`` with the
    reason, what went wrong as ``error``."""
    line: dict[str, Any] = {"cell": cell.name, **cell.told()}
    started, busy = time.perf_counter(), time.process_time()
    try:
        with warnings.catch_warnings():
            # Ours are looked at by the tests; what peers grumble about is their business.
            warnings.simplefilter("ignore")
            line |= (
                _predict(cell, data) if cell.kind == "predict" else _play(cell, description, data)
            )
    except MisconfiguredError as error:
        line["n/a"] = "; ".join(problem.message for problem in error.problems)
    except Exception as error:  # a peer may fail in any way; the others go on
        line["error"] = f"{type(error).__name__}: {error}"
    line["versions"] = _versions(cell)
    line["seconds"] = round(time.perf_counter() - started, 3)
    line["cpu_s"] = round(time.process_time() - busy, 3)
    told: dict[str, Any] = _rounded(line)
    return told


def died(cell: Cell) -> dict[str, Any]:
    """The line of a cell whose process died."""
    told = {"cell": cell.name, **cell.told(), "error": "its process died"}
    return told | {"versions": _versions(cell), "seconds": 0.0, "cpu_s": 0.0}


def _versions(cell: Cell) -> dict[str, str]:
    registry = peers.PREDICTORS if cell.kind == "predict" else peers.OPTIMIZERS
    peer = registry.get(cell.who)
    needed = [name for module in (peer.needs if peer else ()) for name in LIBRARIES[module]]
    told = {"python": platform.python_version(), "tunerd": __version__}
    return told | {name: metadata.version(name) for name in ("numpy", "lightgbm", *needed)}


def _rounded(value: Any) -> Any:
    """Numbers to six digits after the point; what is not finite becomes null."""
    if isinstance(value, float):
        return round(value, DIGITS) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _rounded(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(one) for one in value]
    return value


# ── predictions ──────────────────────────────────────────────────────────────────────────────


@lru_cache(maxsize=2)
def _jobs(table: str, data: Path, rows: int) -> tuple[Study, tuple[Observation, ...], GroundTruth]:
    read = read_table(table, data)
    study, jobs = parse_study(read.study), read.observations
    if rows and len(jobs) > rows:
        kept = np.sort(np.random.default_rng(0).permutation(len(jobs))[:rows])
        jobs = tuple(
            msgspec.structs.replace(jobs[at], sequence=i + 1) for i, at in enumerate(kept.tolist())
        )
    # What is predicted best is run to be looked at, as a round of a closed loop is.
    profiling = replace(study, min_feasible=MIN_FEASIBLE)
    return study, jobs, GroundTruth.of(profiling, jobs)


def _predict(cell: Cell, data: Path) -> dict[str, Any]:
    study, jobs, truth = _jobs(cell.table, data, cell.rows)
    split = parse_split(cell.question, study)
    amounts = parse_known(cell.known) if cell.known else ()
    made = folds(study, split, jobs, amounts, cell.repeats, cell.seed)
    who = _forecaster(cell.who, jobs)
    answers = [answer(study, jobs, question) for question in ask(made, [who], cell.seed)]
    judged = list(verdicts(truth, answers, cell.seed))
    (result,) = results(judged, cell.seed)
    return {
        "amount": result.known,
        "known_rows": result.known_rows,
        "parts": result.parts,
        "fit_s": result.seconds,
        "overall": msgspec.to_builtins(result.overall),
        "within": msgspec.to_builtins(result.within_contexts),
        "intervals": msgspec.to_builtins(result.intervals),
        "values": _values(judged),
    }


def _values(judged: Sequence[SplitScore]) -> dict[str, dict[str, dict[str, float]]]:
    """Figure → context → repeat: what paired comparisons are made of."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for verdict in judged:
        for context, figures in verdict.judged.per_context.items():
            for name, value in _told(figures):
                found.setdefault(name, {}).setdefault(context, {})[str(verdict.repeat)] = value
    return found


def _told(figures: ForecastScores) -> list[tuple[str, float]]:
    told = [(name, getattr(figures, name)) for name in PER_CONTEXT]
    told += [(f"regret_at.{k}", value) for k, value in figures.regret_at.items()]
    told += [(f"random_regret_at.{k}", value) for k, value in figures.random_regret_at.items()]
    return [(name, value) for name, value in told if value is not None]


def _forecaster(name: str, jobs: Sequence[Observation]) -> Forecaster:
    if name == "oracle":
        return Oracle(jobs)
    if name.startswith("shuffled_"):
        return Shuffled(peers.forecaster(name.removeprefix("shuffled_")))
    return forecaster(name) if name in OWN else peers.forecaster(name)


class Oracle:
    """Knows what will happen: must get τ 1 and regret 0."""

    name = "oracle"

    def __init__(self, jobs: Sequence[Observation]) -> None:
        self._by_sequence = {job.sequence: job for job in jobs}

    def foretell(
        self, study: Study, known: Sequence[Observation], asked: Sequence[Observation], seed: int
    ) -> JobForecasts:
        del known, seed
        truth = GroundTruth.of(study, [self._by_sequence[job.sequence] for job in asked])
        score = np.nan_to_num(truth.score, nan=0.0)
        return JobForecasts(score, runs=np.nan_to_num(truth.ran, nan=1.0))


class Shuffled:
    """Learns from jobs whose outcomes were dealt out anew: must be no better than random."""

    def __init__(self, of: Forecaster) -> None:
        self._of = of
        self.name = f"shuffled_{of.name}"

    def foretell(
        self, study: Study, known: Sequence[Observation], asked: Sequence[Observation], seed: int
    ) -> JobForecasts:
        dealt = np.random.default_rng([seed, 11]).permutation(len(known)).tolist()
        nonsense = [
            msgspec.structs.replace(job, metrics=known[at].metrics, status=known[at].status)
            for job, at in zip(known, dealt, strict=True)
        ]
        return self._of.foretell(study, nonsense, asked, seed)


# ── closed loops ─────────────────────────────────────────────────────────────────────────────


@lru_cache(maxsize=2)
def _table(table: str, data: Path, as_context: tuple[str, ...]) -> TabularBenchmark:
    read = read_table(table, data, as_context=as_context)
    return measured(parse_study(read.study), read.observations)


@lru_cache(maxsize=64)
def _history(
    table: str, data: Path, as_context: tuple[str, ...], unknown: str | None, context: int
) -> tuple[Observation, ...]:
    there = _table(table, data, as_context)
    return there.others(there.contexts[context], unknown)


def _play(cell: Cell, description: Description, data: Path) -> dict[str, Any]:
    as_context = description.as_context
    table = _table(cell.table, data, as_context)
    if not table.contexts:
        return {"n/a": "no context has enough configurations to search"}
    plan = loop_plan(cell, description)
    optimizer = TunerdOptimizer() if cell.who == "tunerd" else peers.optimizer(cell.who)
    curves: dict[str, list[float]] = {}
    seconds, begin_s, suggestions = 0.0, 0.0, 0
    targets = table.contexts[: cell.contexts or None]
    for place, target in enumerate(targets):
        history: tuple[Observation, ...] = ()
        if plan.history == "others":
            history = _history(cell.table, data, as_context, plan.unknown, place)
        spared = _Spared(optimizer, target)
        curve = play(target, spared, plan, cell.seed, history)
        curves[target.context_key] = list(curve.regret)
        seconds += curve.suggest_s
        begin_s += curve.begin_s
        suggestions += spared.suggested
    return {
        "plan": {"jobs": plan.jobs, "start": plan.start, "batch": plan.batch},
        "configurations": {one.context_key: len(one.configs) for one in targets},
        "curves": curves,
        "seconds_per_suggestion": seconds / suggestions if suggestions else None,
        "seconds_to_begin": begin_s / len(targets),
    }


class _Spared:
    """Stops asking once the best there is was run: regret stays 0 whatever follows, and half of
    all suggestions need not be made."""

    def __init__(self, optimizer: Optimizer, target: TabularContext) -> None:
        self._optimizer = optimizer
        self._best = set(np.flatnonzero(target.regrets <= 0.0).tolist())
        self.suggested = 0
        """Jobs that the optimizer did suggest."""

    @property
    def name(self) -> str:
        return self._optimizer.name

    def begin(self, problem: BenchmarkProblem, seed: int) -> OptimizerRun:
        self._run = self._optimizer.begin(problem, seed)
        self._rest = dict.fromkeys(range(len(problem.configs)))
        self._found = False
        return self

    def ask(self, n: int) -> Sequence[int]:
        if self._found:
            return list(self._rest)[:n]
        self.suggested += n
        return self._run.ask(n)

    def tell(self, jobs: Sequence[TrialResult]) -> None:
        for job in jobs:
            self._rest.pop(job.index, None)
            self._found = self._found or (job.score is not None and job.index in self._best)
        if not self._found:
            self._run.tell(jobs)
