"""The paper's experiments on language models (Figures 3 and 4) on public tables.

Every table that lies beside the checkout takes part where it has what a question needs: a date, a
scale, another kind of hardware. ``benchmarks/tables.py`` says where each comes from. One of them is
simulated (``calculon_simulated_16k``); the page says so wherever it stands.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from benchmarks import peers
from benchmarks.paper.intervals import Answers, compared, correlations
from benchmarks.paper.sizes import Sizes
from benchmarks.tables import read_table
from benchmarks.yardsticks.plan import describe
from tunerd.core import scores
from tunerd.core.arrays import FloatArray, IntArray
from tunerd.core.features import FeatureRows
from tunerd.core.observation import Observation
from tunerd.core.predictors import PREDICTORS as OWN
from tunerd.core.study import Study
from tunerd.core.study_file import parse_study
from tunerd.errors import MisconfiguredError
from tunerd.lab.evaluation.closed_loop import BenchmarkPlan, Optimizer, play_all
from tunerd.lab.evaluation.forecaster import Forecaster, stripped
from tunerd.lab.evaluation.optimizers import RandomOptimizer, TunerdOptimizer
from tunerd.lab.evaluation.splits import SplitFold, folds, parse_known, parse_split
from tunerd.lab.evaluation.tabular import measured
from tunerd.lab.evaluation.tunerd_forecaster import forecaster

__all__ = ["LANGUAGE_MODELS", "PEERS", "Question", "curve", "groups", "loops", "questions", "split"]

LANGUAGE_MODELS = ("vtrain_megatron", "llmfoundry_fsdp", "calculon_simulated_16k")
SIMULATED = ("calculon_simulated_16k",)
PEERS = ("lightgbm", "lightgbm_log")
"""LightGBM as it comes; and on the logarithm, as a careful person would."""
AMOUNTS = ("0", "5", "10", "20")
POINTS = 150
SHUFFLES = 5
HARDWARE = {"llmfoundry_fsdp": "gpu", "vtrain_megatron": "cluster"}
"""Columns of another kind of hardware, or of another topology."""
GROUPS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "vtrain_megatron": {
        "architecture": ("hidden_size", "n_layers", "n_heads", "seq_len"),
        "parallelism and batch": ("tp", "dp", "pp", "micro_batch", "global_batch"),
        "infrastructure": ("cluster", "n_gpus"),
    },
    "llmfoundry_fsdp": {
        "architecture": ("model", "n_params", "seq_len"),
        "parallelism and batch": (
            *("micro_batch", "grad_accum", "global_batch"),
            *("sharding", "act_ckpt", "act_offload"),
        ),
        "precision": ("precision", "mp_mode"),
        "infrastructure": ("gpu", "n_gpus"),
    },
    "calculon_simulated_16k": {
        "architecture": ("model",),
        "parallelism and batch": (
            *("global_batch", "tp", "pp", "dp", "micro_batch", "pp_interleave", "recompute"),
            *("zero1", "tp_comm", "tp_overlap", "ag_redo", "dp_overlap"),
        ),
        "infrastructure": ("n_gpus", "system"),
    },
}
"""Table → group → columns."""


@dataclass(frozen=True)
class Question:
    """One split of one table, with so many jobs of the target known."""

    table: str
    what: str
    """``random``, ``time``, ``scale`` or ``hardware``."""
    split: str
    """As ``tunerd backtest --split`` takes it."""
    known: str = ""


def questions(names: Sequence[str], data: Path) -> list[Question]:
    """The splits that these tables allow."""
    found: list[Question] = []
    for name in names:
        about = describe(name, data)
        found.append(Question(name, "random", "random"))
        if about.dated:
            found.append(Question(name, "time", "time"))
        if about.above is not None:
            found += [Question(name, "scale", f"above:{about.above}", n) for n in AMOUNTS]
        if name in HARDWARE:
            split = f"group:{HARDWARE[name]}"
            found += [Question(name, "hardware", split, n) for n in AMOUNTS[:3]]
    return found


def split(question: Question, data: Path, sizes: Sizes) -> dict[str, Any]:
    """Everybody's correlations on one question, and tunerd's lead over LightGBM."""
    study, jobs = _jobs(question.table, data, sizes.rows)
    amounts = parse_known(question.known) if question.known else ()
    draws = sizes.draws if question.known not in ("", "0") else 1
    found: dict[str, Any] = {"question": msgspec.to_builtins(question), "rows": len(jobs)}
    try:
        made = folds(study, parse_split(question.split, study), jobs, amounts, draws)
    except MisconfiguredError as error:
        return found | {"n/a": str(error)}
    if question.what == "random":
        made = made[: sizes.folds]
    # The committee takes ten times as long: it is asked where the paper asks.
    asked_too = question.table in LANGUAGE_MODELS and question.what != "hardware"
    own = sizes.predictors if asked_too else sizes.predictors[:1]
    answers, asked, known = [], [], []
    for fold in made:
        answer = _answers(study, jobs, fold, own)
        if answer is not None:
            answers.append(answer)
            asked.append(len(answer.actual))
            known.append(len(fold.train))
    if not answers:
        return found | {"n/a": "too few jobs with an objective"}
    first = answers[0]
    told = first.told[own[0]]
    some = np.random.default_rng(0).permutation(len(told))[:POINTS]
    points = np.stack([first.actual, told], axis=1)[some]
    goal = study.objective
    return (
        found
        | compared(answers, own, sizes.bootstrap)
        | {"asked": float(np.mean(asked)), "known_rows": float(np.mean(known))}
        | {"points": _metric(study)(points.ravel()).reshape(-1, 2).tolist()}
        | {"metric": goal.metric, "unit": goal.unit}
    )


def _answers(
    study: Study, jobs: Sequence[Observation], fold: SplitFold, own: Sequence[str]
) -> Answers | None:
    """What everybody says of the jobs asked about that have an objective."""
    asked = [jobs[i] for i in fold.asked.tolist()]
    score = [study.score(job.metrics) for job in asked]
    asked = [job for job, one in zip(asked, score, strict=True) if one is not None]
    if len(asked) < 2 * scores.MIN_ROWS:
        return None
    known = [jobs[i] for i in fold.train.tolist()]
    hidden = [stripped(job) for job in asked]
    told = {
        who: _forecaster(who).foretell(study, known, hidden, fold.repeat).score
        for who in (*own, *PEERS)
    }
    return Answers(np.array([one for one in score if one is not None]), told, _metric(study))


def _metric(study: Study) -> Callable[[FloatArray], FloatArray]:
    return lambda score: np.array([study.metric_value(one) for one in score.tolist()])


def _forecaster(name: str) -> Forecaster:
    return forecaster(name) if name in OWN else peers.forecaster(name)


@lru_cache(maxsize=2)
def _jobs(name: str, data: Path, rows: int) -> tuple[Study, tuple[Observation, ...]]:
    """A table's jobs; of more than ``rows`` with an objective as many drawn at random."""
    table = read_table(name, data)
    study = parse_study(table.study)
    jobs = table.observations
    if rows and len(jobs) > rows:
        scored = [i for i, job in enumerate(jobs) if study.score(job.metrics) is not None]
        some = np.sort(np.random.default_rng(0).permutation(scored)[:rows]).tolist()
        jobs = tuple(msgspec.structs.replace(jobs[at], sequence=i + 1) for i, at in enumerate(some))
    return study, jobs


# ── Figure 4 ─────────────────────────────────────────────────────────────────────────────────


def curve(name: str, data: Path, sizes: Sizes) -> dict[str, Any]:
    """Correlations of gradient boosting by the number of known jobs, the same asked about; each
    amount drawn anew for each seed."""
    study, jobs = _jobs(name, data, sizes.rows)
    scored = [job for job in jobs if study.score(job.metrics) is not None]
    found: dict[str, Any] = {"table": name, "figures": {}}
    for seed in range(sizes.seeds):
        order = np.random.default_rng([seed, 23]).permutation(len(scored))
        count = min(sizes.held_out, len(scored) // 3)
        asked = [scored[i] for i in order[:count].tolist()]
        actual = np.array([study.score(job.metrics) for job in asked], np.float64)
        for amount in sizes.amounts:
            if amount > len(scored) - count:
                continue
            known = [scored[i] for i in np.sort(order[count : count + amount]).tolist()]
            told = forecaster("boosted_trees").foretell(study, known, asked, seed).score
            for figure, value in correlations(told, actual, _metric(study)).items():
                found["figures"].setdefault(str(amount), {}).setdefault(figure, []).append(value)
    return found


# ── which features carry the prediction ──────────────────────────────────────────────────────


def groups(name: str, data: Path, sizes: Sizes) -> dict[str, Any]:
    """What predictions of held-out jobs lose when a group of columns is shuffled among them."""
    study, jobs = _jobs(name, data, sizes.rows)
    found: dict[str, Any] = {"table": name, "groups": {}}
    for fold in folds(study, parse_split("random", study), jobs)[: max(sizes.folds, 2)]:
        features, model = forecaster("boosted_trees").fit(
            study, [jobs[i] for i in fold.train.tolist()], 0
        )
        rows = features.rows([jobs[i] for i in fold.asked.tolist()])
        rows = rows.take(np.flatnonzero(np.isfinite(rows.score)))
        before = model.predictor.predict(rows).mean
        error = float(np.mean(np.abs(before - rows.score)))
        tau = scores.kendall(before, rows.score)
        rng = np.random.default_rng(0)
        for group, names in GROUPS[name].items():
            places = [i for i, one in enumerate(features.columns) if one.name in names]
            if not places:
                continue
            context = any(features.columns[i].group == "context" for i in places)
            losses = []
            for _ in range(SHUFFLES):
                other = _shuffled(rows, np.array(places), context, rng)
                told = model.predictor.predict(other).mean
                losses.append(
                    (
                        tau - scores.kendall(told, rows.score),
                        float(np.mean(np.abs(told - rows.score))) - error,
                    )
                )
            lost, rise = np.mean(losses, axis=0).tolist()
            one = found["groups"].setdefault(group, {"tau": [], "error": []})
            one["tau"].append(lost)
            one["error"].append(100 * float(np.expm1(rise)))
    return found


def _shuffled(
    rows: FeatureRows, places: IntArray, context: bool, rng: np.random.Generator
) -> FeatureRows:
    order = rng.permutation(len(rows))
    X: FloatArray = rows.X.copy()
    X[:, places] = rows.X[order][:, places]
    keys = rows.context_key
    if context:  # what is known of a context by its key is part of what the context says
        keys = tuple(keys[i] for i in order.tolist())
    return replace(rows, X=X, context_key=keys)

    return replace(rows, X=X, context_key=keys)


# ── how few jobs suffice ─────────────────────────────────────────────────────────────────────


def loops(name: str, data: Path, sizes: Sizes) -> dict[str, Any]:
    """Jobs to within 5 % of the best measured configuration of a context, in closed loops."""
    table = read_table(name, data)
    bench = measured(parse_study(table.study), table.observations)
    plan = BenchmarkPlan(jobs=40, start=5, seeds=tuple(range(sizes.draws)))
    found: dict[str, Any] = {"table": name, "contexts": len(bench.contexts)}
    players: list[Optimizer] = [TunerdOptimizer(), RandomOptimizer()]
    for who in players:
        curves = list(play_all(bench, who, plan))
        reached = [_reached(one.regret) for one in curves]
        found[who.name] = {
            "jobs": reached,
            "regret": np.mean([one.regret for one in curves], axis=0).tolist() if curves else [],
        }
    return found


def _reached(regret: Sequence[float]) -> int | None:
    return next((i + 1 for i, value in enumerate(regret) if value <= 0.05), None)
