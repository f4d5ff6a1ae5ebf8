"""What is particular to ``boosted_trees``: trend, level, correction, and what they cost."""

import time
from dataclasses import replace

import lightgbm
import numpy as np
import pytest

from tests.core.contract import CONTRACT, METRICS, job
from tunerd.core.arrays import FloatArray
from tunerd.core.features import FeatureMap, FeatureRows
from tunerd.core.observation import Observation, Value
from tunerd.core.predictors.boosted_trees import BoostedTrees
from tunerd.core.scores import kendall, within_contexts
from tunerd.core.space import SearchSpace

CLUSTERS = (64, 128, 256, 512)


def context(n_gpus: int) -> dict[str, Value]:
    return {"model_params": 7e9, "gpu": "H100", "n_gpus": n_gpus, "global_batch": 4096}


SPACES = {n: SearchSpace(CONTRACT, context(n)) for n in (*CLUSTERS, 1024, 2048)}


def true_score(n_gpus: int, config: dict[str, Value], fp8: float = 0.4) -> float:
    """Powers of the parameters, with a knee that no line follows and a level per cluster."""
    tp, pp, micro = float(str(config["tp"])), float(str(config["pp"])), config["micro_batch"]
    level = {64: 0.0, 128: -0.3, 256: 0.2, 512: -0.1}.get(n_gpus, 0.5)
    return float(
        6.0
        + level
        - 0.25 * np.log2(tp)
        - 0.1 * np.log2(pp)
        + 0.3 * min(np.log2(float(str(micro))), 1.0)
        + fp8 * (config["precision"] == "fp8") * (tp < 8)
    )


def jobs(
    count: int, seed: int, clusters: tuple[int, ...] = CLUSTERS, fp8: float = 0.4
) -> list[Observation]:
    rng = np.random.default_rng(seed)
    found = []
    for i in range(count):
        n_gpus = clusters[i % len(clusters)]
        config = SPACES[n_gpus].decode(SPACES[n_gpus].sample(1, rng)[0])
        score = true_score(n_gpus, config, fp8) + rng.normal(0, 0.02)
        found.append(job(context(n_gpus), config, {k: float(np.exp(score)) for k in METRICS}))
    return found


FEATURES = FeatureMap(CONTRACT)
ROWS = FEATURES.rows(jobs(600, seed=0))
PROBE = FEATURES.rows(jobs(400, seed=1))


def fit(rows: FeatureRows, members: int = 4) -> BoostedTrees:
    changed = replace(CONTRACT, predictor=replace(CONTRACT.predictor, members=members))
    return BoostedTrees.fit(changed, FEATURES, rows, seed=0)


def first(count: int) -> FeatureRows:
    return ROWS.take(np.arange(count))


def tau(mean: FloatArray, rows: FeatureRows) -> float:
    return within_contexts(kendall, mean, rows.score, rows.context_key)


@pytest.mark.parametrize("count", [60, 600])
def test_it_ranks_at_least_as_well_as_default_lightgbm(count: int) -> None:
    rows = first(count)
    ours = tau(fit(rows).predict(PROBE).mean, PROBE)
    categorical = [i for i, c in enumerate(FEATURES.columns) if c.categorical]
    data = lightgbm.Dataset(rows.X, rows.score, categorical_feature=categorical)
    plain = lightgbm.train({"verbosity": -1, "num_threads": 1}, data)
    assert ours > tau(np.asarray(plain.predict(PROBE.X, num_threads=1)), PROBE)


def test_an_unseen_context_gets_the_trend_and_its_first_job_corrects_the_level() -> None:
    predictor = fit(ROWS)
    unseen = FEATURES.rows(jobs(60, seed=2, clusters=(2048,)))

    def level_error() -> float:
        return float(np.mean(predictor.predict(unseen).mean - unseen.score))

    before = level_error()
    spread = predictor.predict(unseen).std.mean()
    assert tau(predictor.predict(unseen).mean, unseen) > 0.8
    assert before < -0.3  # no column says that this cluster is faster
    one = unseen.take(np.array([0]))
    predictor.update(one, one)
    assert abs(level_error()) < abs(before) / 2
    assert predictor.predict(unseen).std.mean() < spread


def test_one_odd_job_does_not_take_a_known_context_with_it() -> None:
    predictor = fit(ROWS)
    before = predictor.predict(PROBE).mean
    odd = replace(first(1), score=first(1).score - 2.0)
    predictor.update(odd, odd)
    same = np.array([key == odd.context_key[0] for key in PROBE.context_key])
    moved = np.abs(predictor.predict(PROBE).mean - before)
    assert moved[same].max() < 0.15
    assert moved[~same].max() == 0.0


@pytest.mark.slow
def test_a_shift_that_depends_on_the_configuration_is_learned_from_the_recent_window() -> None:
    predictor = fit(ROWS)
    stale = predictor.predict(PROBE).mean
    now = FEATURES.rows(jobs(400, seed=1, fp8=-0.4))  # a driver that makes fp8 slow
    window = FEATURES.rows(jobs(200, seed=3, fp8=-0.4))
    for start in range(0, 200, 10):
        seen = window.take(np.arange(start + 10))
        predictor.update(window.take(np.arange(start, start + 10)), seen)
    after = predictor.predict(now).mean
    assert tau(stale, now) < 0.5
    assert tau(after, now) > tau(stale, now) + 0.2


def test_live_errors_widen_the_spread_and_calm_narrows_it_again() -> None:
    predictor = fit(ROWS)
    usual = predictor.predict(PROBE).std.mean()
    rng = np.random.default_rng(0)
    wild = replace(PROBE, score=PROBE.score + rng.normal(0, 0.3, len(PROBE)))
    none = ROWS.take(np.arange(0))
    for start in range(0, 200, 10):
        predictor.update(wild.take(np.arange(start, start + 10)), none)
    widened = predictor.predict(PROBE).std.mean()
    assert widened > 1.5 * usual
    for start in range(0, 400, 10):
        predictor.update(PROBE.take(np.arange(start, start + 10)), none)
    assert predictor.predict(PROBE).std.mean() < widened


def test_many_surprises_at_once_widen_the_spread_to_their_size_and_no_further() -> None:
    predictor = fit(ROWS)
    off = replace(PROBE, score=PROBE.score + 3.0)
    predictor.update(off, ROWS.take(np.arange(0)))
    assert 0.5 < np.median(predictor.predict(off).std) < 5.0


def test_members_disagree_less_with_more_data() -> None:
    few, many = fit(first(60)).predict(PROBE), fit(ROWS).predict(PROBE)
    assert few.std.mean() > many.std.mean()


def test_one_member_has_a_spread_too() -> None:
    assert (fit(first(100), members=1).predict(PROBE).std > 0).all()


def test_what_a_fit_made_is_dumped_once() -> None:
    predictor = fit(first(200))
    before = predictor.dump()
    predictor.update(ROWS.take(np.arange(200, 210)), first(210))
    after = predictor.dump()
    assert after["forest"] is before["forest"]
    assert after["trend"] is before["trend"]
    assert after["live"] != before["live"]
    assert "correction" in after


def test_learning_ten_jobs_and_predicting_four_thousand_are_moments() -> None:
    predictor = fit(ROWS)
    recent = ROWS.take(np.arange(100, 600))
    started = time.thread_time()
    predictor.update(ROWS.take(np.arange(590, 600)), recent)
    # 0.03 s on a core of its own; 0.15 s is what a step may take.
    assert time.thread_time() - started < 0.15
    space = SPACES[1024]
    candidates = FEATURES.candidates(space, space.sample(4_000, np.random.default_rng(0)))
    started = time.thread_time()
    predictor.predict(candidates)
    # 0.1 s, twice that on a busy machine.
    assert time.thread_time() - started < 0.3
