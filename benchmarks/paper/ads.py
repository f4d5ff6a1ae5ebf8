"""The paper's ads experiments (Figures 2a, 2b and 4, A.2.1) on a simulated cluster.

The space is the paper's: a sharding strategy for each group of layers, the local batch size in
steps of 32, the share of memory kept from embeddings in steps of .01. The cluster that runs the
jobs is ``tunerd/lab/simulation/fsdp.py``: a cost model with noise, whose constants are plausible
and not measured. Figures without noise are the cost model's own.
"""

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from benchmarks.kit import observation
from benchmarks.paper.intervals import correlations
from benchmarks.paper.sizes import Sizes
from tunerd import __version__
from tunerd.core import scores
from tunerd.core.arrays import Codes, FloatArray
from tunerd.core.decisions.campaign import Campaign
from tunerd.core.decisions.lifecycle import compose, is_news
from tunerd.core.estimators.design import DesignTransform
from tunerd.core.estimators.networks import RankingNetworks, TrainingSchedule
from tunerd.core.features import FeatureMap
from tunerd.core.model.model import StudyModel
from tunerd.core.observation import Observation, Scalar, Value
from tunerd.core.recommendation import MadeFrom, Recommendation
from tunerd.core.searchers import searcher_class
from tunerd.core.searchers.base import CachedScorer, SearchBudget, Searcher
from tunerd.core.searchers.local_search import climb
from tunerd.core.searchers.optuna import OptunaOptions
from tunerd.core.space import SearchSpace
from tunerd.core.study import Study
from tunerd.core.study_file import parse_study
from tunerd.core.tuner import Tuner
from tunerd.lab.evaluation.closed_loop import EPOCH
from tunerd.lab.evaluation.forecast_scores import weighed
from tunerd.lab.evaluation.optimizers import followed
from tunerd.lab.evaluation.tunerd_forecaster import InlineExecutor, forecaster
from tunerd.lab.simulation.simulator import job_rng, simulator_for

__all__ = ["accuracy", "campaign", "few_jobs", "hardware", "losses", "searches", "space_facts"]

ROUNDS = 3
SEEDS = (1, 2, 3)
"""Of the paper's searches."""
CONTEXT: Mapping[str, Scalar] = {"gpu": "H100", "n_gpus": 256, "dense_params": 4e9}
"""Model and cluster of ``tunerd demo``."""
KINDS = ("A100", "H100", "B200")
OPTIMISM_FREE = "neural_ensemble"
"""The paper's predictor; its search maximises what is predicted, without a bonus."""
STARTS = (10, 30, 75)
SMALL_ROUND = 10
NOISE = 0.02
WITHIN = 0.05


@dataclass(frozen=True)
class _Cluster:
    """One context of the ads study, and the cluster that runs its jobs."""

    study: Study
    space: SearchSpace

    @classmethod
    def of(cls, **context: Scalar) -> "_Cluster":
        text = (Path(__file__).parent / "ads.toml").read_text(encoding="utf-8")
        study = parse_study(text)
        return cls(study, SearchSpace(study, study.clean_context({**CONTEXT, **context})))

    def expected(self, codes: Codes) -> FloatArray:
        """(n,) samples/s without noise, NaN for what does not run."""
        space = self.space
        return simulator_for(self.study).expected(space.context, space.columns(codes))

    def run(self, config: Mapping[str, Value], sequence: int, seed: int) -> Observation:
        """One job, as the daemon hears of it."""
        rng = job_rng(seed, self.space.context, config, sequence)
        outcome = simulator_for(self.study).run(self.space.context, config, rng)
        return observation(self.space, config, outcome, sequence)

    def codes(self, configs: Sequence[Mapping[str, Value]]) -> Codes:
        found = [self.space.encode(config) for config in configs]
        return np.array([code for code in found if code is not None], np.int32)

    def ran(self, count: int, seed: int) -> list[Observation]:
        """Random jobs, as many as are wanted of those that ran."""
        rng = np.random.default_rng([seed, 17])
        jobs: list[Observation] = []
        while len(jobs) < count:
            codes = self.space.sample(4 * count, rng)
            for code in codes[np.isfinite(self.expected(codes))]:
                job = self.run(self.space.decode(code), len(jobs) + 1, seed)
                if self.study.score(job.metrics) is not None and len(jobs) < count:
                    jobs.append(job)
        return jobs


@cache
def _cluster() -> _Cluster:
    return _Cluster.of()


@cache
def _human() -> tuple[float, int]:
    """The best of twenty uniform configurations by their speed without noise, and how many were
    tried: strategy and batch first, then memory, then the batch again."""
    cluster, tried = _cluster(), dict[tuple[str, int, float], float]()

    def look(points: Sequence[tuple[str, int, float]]) -> tuple[str, int, float]:
        configs: list[Mapping[str, Value]] = [
            {"sharding": [one] * 8, "local_batch": batch, "hbm_reserved": share}
            for one, batch, share in points
        ]
        values = cluster.expected(cluster.codes(configs))
        tried.update(zip(points, np.nan_to_num(values).tolist(), strict=True))
        return max(tried, key=lambda point: tried[point])

    strategies = ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD")
    best = look(list(itertools.product(strategies, (256, 512, 1024, 1536), (0.81,))))
    best = look([(best[0], best[1], share) for share in (0.77, 0.79, 0.83, 0.85)])
    best = look([(best[0], best[1] + step, best[2]) for step in (-64, -32, 32, 64)])
    return tried[best], len(tried)


@cache
def _best(calls: int) -> float:
    """The best that a long search by the cost model itself finds: as good as is known."""
    cluster = _cluster()

    def truth(codes: Codes) -> FloatArray:
        return np.nan_to_num(np.log(cluster.expected(codes)), nan=0.0)

    found = [
        _searcher("reinforce").search(
            cluster.space, truth, np.random.default_rng(seed), SearchBudget(calls, 1)
        )
        for seed in SEEDS
    ]
    return float(np.exp(max(one.scores[0] for one in found)))


def space_facts(sizes: Sizes, seed: int) -> dict[str, Any]:
    """How large the space is, what of it runs, and what there is to gain."""
    cluster, (human, tried) = _cluster(), _human()
    best = _best(sizes.truth_calls)
    values = cluster.expected(cluster.space.sample(20_000, np.random.default_rng(seed)))
    return {
        "configurations": cluster.space.size,
        "share_that_runs": float(np.isfinite(values).mean()),
        "human": human,
        "human_jobs": tried,
        "best": best,
        "possible_gain": 100 * (best / human - 1),
        "context": dict(cluster.space.context),
    }


# ── Figure 2a ────────────────────────────────────────────────────────────────────────────────


def campaign(sizes: Sizes, seed: int) -> dict[str, Any]:
    """Random jobs and three rounds: by the paper's recipe, by tunerd, and at random."""
    started = time.perf_counter()
    cluster, total = _cluster(), sizes.random_jobs + ROUNDS * sizes.round_size
    played = {
        "paper": _recipe(cluster, sizes.random_jobs, [sizes.round_size] * ROUNDS, sizes, seed),
        "tunerd": _campaign(cluster, sizes, seed),
        "random": _random(cluster, total, seed),
    }
    found: dict[str, Any] = {"seed": seed, "seconds": time.perf_counter() - started}
    for name, jobs in played.items():
        curve = _frontier(cluster, jobs)
        ends = [sizes.random_jobs + n * sizes.round_size for n in range(ROUNDS + 1)]
        measured = [_measured(cluster.study, job) for job in jobs]
        found[name] = {
            "curve": curve,
            "gains": [_gain(curve[min(end, len(curve)) - 1]) for end in ends],
            "ran": int(np.isfinite(measured).sum()),
            "jobs": measured if seed == 1 else [],
            "order": _order(measured, ends),
        }
    return found


def _order(measured: Sequence[float], ends: Sequence[int]) -> list[float]:
    """Spearman between the predicted order and what was measured, round by round."""
    found = []
    for start, end in itertools.pairwise(ends):
        values = np.array(measured[start:end])
        there = np.flatnonzero(np.isfinite(values))
        if len(there) > 2:
            found.append(scores.spearman(-there.astype(np.float64), values[there]))
    return found


def _recipe(
    cluster: _Cluster, start: int, rounds: Sequence[int], sizes: Sizes, seed: int
) -> list[Observation]:
    """The paper's: fit the ensemble, search by REINFORCE from three seeds, run the best predicted
    first."""
    rng = np.random.default_rng([seed, 3])
    configs = [cluster.space.decode(code) for code in cluster.space.sample(start, rng)]
    jobs = [cluster.run(config, i + 1, seed) for i, config in enumerate(configs)]
    for size in rounds:
        score = _score(cluster, jobs, seed)
        tried = {code.tobytes() for code in cluster.codes([job.config for job in jobs])}
        found = _searcher("reinforce").search(
            cluster.space, score, rng, SearchBudget(sizes.evaluations, len(tried) + size)
        )
        fresh = [code for code in found.codes if code.tobytes() not in tried][:size]
        for code in fresh:
            jobs.append(cluster.run(cluster.space.decode(code), len(jobs) + 1, seed))
    return jobs


def _score(
    cluster: _Cluster, jobs: Sequence[Observation], seed: int, predictor: str = OPTIMISM_FREE
) -> Callable[[Codes], FloatArray]:
    """What is predicted after these jobs, far lower where it most likely does not run."""
    options = replace(cluster.study.predictor, name=predictor, seed=seed)
    study = replace(cluster.study, predictor=options)
    features = FeatureMap(study)
    model = StudyModel.fit(study, features, features.rows(jobs), len(jobs))

    def score(codes: Codes) -> FloatArray:
        said = model.outlook(features.candidates(cluster.space, codes))
        return weighed(said.mean, said.p_run, study.min_feasible)

    return score


def _campaign(cluster: _Cluster, sizes: Sizes, seed: int) -> list[Observation]:
    """``tunerd campaign`` as the daemon's tuner runs it, with the study's own predictor."""
    search = replace(cluster.study.search, seeds=tuple(seed + 100 * one for one in SEEDS))
    study = replace(cluster.study, search=search)
    tuner, now = Tuner(study, InlineExecutor()), EPOCH
    key = tuner.start_campaign(
        cluster.space.context, Campaign(sizes.random_jobs, ROUNDS, sizes.round_size), now
    )
    running: Recommendation | None = None
    jobs: list[Observation] = []
    made = MadeFrom(
        sequence=0, model=None, study=study.content_hash, seeds=search.seeds, tunerd=__version__
    )
    while len(jobs) < sizes.random_jobs + ROUNDS * sizes.round_size:
        advice = tuner.advise(key, running)
        if is_news(study, advice, running):
            state = tuner.contexts[key]
            revision = running.revision + 1 if running else 1
            running = compose(
                study, key, state, advice, made, revision=revision, now=now, valid=timedelta(days=1)
            )
            tuner.promise(key, advice)
        assert running is not None
        wanted = sum(one.wanted for one in running.candidates)
        told: list[Observation] = []
        for candidate in followed(running.candidates, wanted):
            job = cluster.run(candidate.config, len(jobs) + len(told) + 1, seed)
            told.append(
                msgspec.structs.replace(
                    job,
                    recommendation_id=running.recommendation_id,
                    candidate_id=candidate.candidate_id,
                )
            )
        if not told:
            break
        now = told[-1].finished_at
        tuner.learn(told)
        jobs += told
    return jobs


def _random(cluster: _Cluster, count: int, seed: int) -> list[Observation]:
    codes = cluster.space.sample(count, np.random.default_rng([seed, 5]))
    return [cluster.run(cluster.space.decode(code), i + 1, seed) for i, code in enumerate(codes)]


def _measured(study: Study, job: Observation) -> float:
    value = job.metrics.get(study.objective.metric)
    return float("nan") if value is None else float(value)


def _frontier(cluster: _Cluster, jobs: Sequence[Observation]) -> list[float]:
    """After each job the speed without noise of the one that measured best; NaN before any ran."""
    expected = cluster.expected(cluster.codes([job.config for job in jobs]))
    best, seen, curve = float("nan"), -np.inf, []
    for job, value in zip(jobs, expected.tolist(), strict=True):
        measured = _measured(cluster.study, job)
        if np.isfinite(measured) and measured > seen:
            best, seen = value, measured
        curve.append(best)
    return curve


def _gain(value: float) -> float:
    """Per cent over the human's baseline."""
    return 100 * (value / _human()[0] - 1)


# ── Figures 2b and 4 ─────────────────────────────────────────────────────────────────────────


def accuracy(sizes: Sizes, seed: int) -> dict[str, Any]:
    """How well held-out jobs are predicted after so many that ran."""
    cluster = _cluster()
    jobs = cluster.ran(max(sizes.amounts) + sizes.held_out, seed)
    asked = jobs[: sizes.held_out]
    known = jobs[sizes.held_out :]
    actual = np.array([_score_of(cluster.study, job) for job in asked])
    found: dict[str, Any] = {"seed": seed, "figures": {}, "points": []}
    for who in (OPTIMISM_FREE, "boosted_trees"):
        for amount in sizes.amounts:
            told = forecaster(who).foretell(cluster.study, known[:amount], asked, seed).score
            found["figures"].setdefault(who, {})[str(amount)] = correlations(told, actual, np.exp)
            if who == OPTIMISM_FREE and seed == 1 and amount == _about(sizes.amounts, 150):
                found["points"] = np.exp(np.stack([actual, told], axis=1)).tolist()
    return found


def _about(amounts: Sequence[int], wanted: int) -> int:
    return min(amounts, key=lambda one: abs(one - wanted))


def _score_of(study: Study, job: Observation) -> float:
    score = study.score(job.metrics)
    assert score is not None
    return score


# ── ablations ────────────────────────────────────────────────────────────────────────────────

LOSSES = {"margin ranking": (1.0, 0.3), "ranking alone": (1.0, 0.0), "squared error": (0.0, 1.0)}
"""Weights of the ranking loss and of the squared error. The first is what ships."""
MEMBERS = (1, 5)


def losses(sizes: Sizes, seed: int) -> dict[str, Any]:
    """Kendall's τ of networks alone on held-out jobs, by loss and size of the ensemble."""
    cluster = _cluster()
    known_jobs = _about(sizes.amounts, 150)
    jobs = cluster.ran(known_jobs + sizes.held_out, seed)
    features = FeatureMap(cluster.study)
    rows = features.rows(jobs)
    known = np.arange(known_jobs)
    design = DesignTransform.fit(rows.X[known], list(features.categories))
    Z, score = design(rows.X), rows.score
    target = (score[known] - score[known].mean()) / score[known].std()
    group = np.zeros(known_jobs, np.int64)
    found = {}
    for (loss, (ranking, squared)), members in itertools.product(LOSSES.items(), MEMBERS):
        fresh = RankingNetworks.fresh(members, design.width, seed)
        how = TrainingSchedule(600, seed, 1e-2, ranking=ranking, squared=squared)
        masks = np.ones((members, known_jobs), bool)
        told = fresh.trained(Z[known], target, group, masks, how).predict(Z[known_jobs:])
        tau = scores.kendall(told.mean(axis=1), score[known_jobs:])
        found[f"{loss}, {members}"] = float(np.nan_to_num(tau))
    return {"seed": seed, "tau": found}


class _LocalSearch(Searcher):
    """Climbs to the best neighbour from one random configuration after another."""

    def _explore(
        self, space: SearchSpace, scored: CachedScorer, begin: Codes, rng: np.random.Generator
    ) -> None:
        del begin
        while scored.left:
            code = space.sample(1, rng)
            before = scored.left
            climb(space, scored, code[0], float(scored(code)[0]), rng)
            if scored.left == before:
                return


def _searcher(name: str, **options: Any) -> Searcher:
    own = parse_study((Path(__file__).parent / "ads.toml").read_text(encoding="utf-8")).search
    kind = _LocalSearch if name == "local search" else searcher_class(name)
    return kind(replace(own, **{"seeds": SEEDS, **options}))


SEARCHERS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "REINFORCE, three seeds": ("reinforce", {}),
    "REINFORCE, one seed": ("reinforce", {"seeds": (1,)}),
    "evolution": ("evolution", {}),
    "local search": ("local search", {}),
    "random": ("random", {}),
    "CMA-ES (Optuna)": ("optuna", {"own": (OptunaOptions(sampler="CmaEsSampler"),), "seeds": (1,)}),
    "TPE (Optuna)": ("optuna", {"own": (OptunaOptions(),), "seeds": (1,)}),
}


def searches(sizes: Sizes, seed: int) -> dict[str, Any]:
    """Everybody searches the same predictor with as many predictions. What is best is what anybody
    found, one search with ten times the most predictions included."""
    cluster = _cluster()
    score = _score(cluster, _random(cluster, sizes.random_jobs, seed), seed)
    spread = score(cluster.space.sample(1_000, np.random.default_rng(0)))
    # Of what most likely does not run the score is far below: not part of the range.
    mean = float(spread[spread > spread.max() - 2.0].mean())
    best, _ = _search(cluster, score, "reinforce", {}, 10 * sizes.calls[-1], seed)
    found: dict[str, Any] = {"seed": seed, "searchers": {}}
    for name, (kind, options) in SEARCHERS.items():
        if kind == "optuna" and not sizes.peers:
            continue
        for calls in sizes.calls:
            value, told = _search(cluster, score, kind, options, calls, seed)
            best = max(best, value)
            found["searchers"].setdefault(name, {})[str(calls)] = told
    for one in (one for by_calls in found["searchers"].values() for one in by_calls.values()):
        one["loss"] = 100 * (best - one["score"]) / max(best - mean, 1e-9)
    return found


def _search(
    cluster: _Cluster,
    score: Callable[[Codes], FloatArray],
    kind: str,
    options: Mapping[str, Any],
    calls: int,
    seed: int,
) -> tuple[float, dict[str, float]]:
    """The best score that a search finds, and what it is truly worth."""
    started = time.process_time()
    result = _searcher(kind, **options).search(
        cluster.space, score, np.random.default_rng([seed, 7]), SearchBudget(calls, 1)
    )
    value = float(result.scores[0])
    return value, {
        "score": value,
        "true_gain": _gain(float(cluster.expected(result.codes[:1])[0])),
        "seconds": time.process_time() - started,
    }


# ── what the paper leaves open ───────────────────────────────────────────────────────────────


def few_jobs(sizes: Sizes, seed: int) -> dict[str, Any]:
    """Campaigns that begin with few random jobs: regret by job, and jobs to within 5 %."""
    cluster = _cluster()
    small = replace(sizes, evaluations=sizes.evaluations // 2)
    found: dict[str, Any] = {"seed": seed, "regret": {}, "jobs": {}}
    for start in [one for one in STARTS if one < sizes.few_jobs]:
        rounds = [SMALL_ROUND] * ((sizes.few_jobs - start) // SMALL_ROUND)
        _regrets(found, sizes, f"{start} random", _recipe(cluster, start, rounds, small, seed))
    _regrets(found, sizes, "random only", _random(cluster, sizes.few_jobs, seed))
    return found


def _regrets(found: dict[str, Any], sizes: Sizes, name: str, jobs: Sequence[Observation]) -> None:
    curve = np.array(_frontier(_cluster(), jobs))
    regret = np.where(np.isfinite(curve), 1 - curve / _best(sizes.truth_calls), 1.0)
    there = np.flatnonzero(regret <= WITHIN)
    found["regret"][name] = (100 * regret).tolist()
    found["jobs"][name] = int(there[0]) + 1 if len(there) else None


def hardware(sizes: Sizes, seed: int) -> dict[str, Any]:
    """Asked about one kind of GPU, the others known, with 0, 5 and 10 of its own jobs."""
    amount = _about(sizes.amounts, 75)
    jobs = {kind: _Cluster.of(gpu=kind).ran(amount + sizes.held_out, seed) for kind in KINDS}
    study = _cluster().study
    found: dict[str, Any] = {"seed": seed, "known": amount, "figures": {}}
    for kind in KINDS:
        others = [job for other in KINDS if other != kind for job in jobs[other][:amount]]
        asked = jobs[kind][amount:]
        actual = np.array([_score_of(study, job) for job in asked])
        for own in (0, 5, 10):
            known = [
                msgspec.structs.replace(job, sequence=i + 1)
                for i, job in enumerate([*others, *jobs[kind][:own]])
            ]
            for who in (OPTIMISM_FREE, "boosted_trees"):
                told = forecaster(who).foretell(study, known, asked, seed).score
                figures = correlations(told, actual, np.exp)
                figures["error"] = 100 * float(np.mean(np.abs(np.expm1(told - actual))))
                found["figures"].setdefault(who, {}).setdefault(kind, {})[str(own)] = figures
    return found
