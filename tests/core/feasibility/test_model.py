"""The probability to run: what one failure, a repeated one, and a firm one do to it."""

from collections.abc import Callable, Container, Mapping, Sequence
from itertools import pairwise

import numpy as np
import pytest

from tests.core.contract import CONTRACT, job
from tests.core.tuning import study
from tunerd.core.arrays import BoolArray
from tunerd.core.feasibility import FeasibilityModel
from tunerd.core.features import FeatureMap, FeatureRows
from tunerd.core.observation import Observation, Status, Value
from tunerd.core.space import SearchSpace
from tunerd.core.study_file import parse_study
from tunerd.lab.evaluation.scores import auc

MIN_FEASIBLE = CONTRACT.min_feasible
CONTEXT: dict[str, Value] = {"model_params": 7e9, "gpu": "H100", "n_gpus": 64, "global_batch": 512}
SPACE = SearchSpace(CONTRACT, CONTEXT)
CODES = SPACE.sample(400, np.random.default_rng(0))
CONFIGS = [SPACE.decode(code) for code in CODES]


def outcomes(
    which: Sequence[int], status: Status = Status.SUCCEEDED, n_gpus: int = 64
) -> list[Observation]:
    metrics = {"tokens_per_second_per_gpu": 400.0} if status is Status.SUCCEEDED else {}
    return [job(CONTEXT | {"n_gpus": n_gpus}, CONFIGS[i], metrics, status) for i in which]


def model_of(jobs: Sequence[Observation]) -> tuple[FeasibilityModel, FeatureMap]:
    features = FeatureMap(CONTRACT)
    return FeasibilityModel.fit(CONTRACT, features, features.rows(jobs), 0), features


def probability(jobs: Sequence[Observation], of: int) -> float:
    model, features = model_of(jobs)
    return float(model.predict(features.candidates(SPACE, CODES[of : of + 1]))[0])


def by_distance(features: FeatureMap, of: int) -> list[int]:
    """Other configurations, nearest first."""
    at = features.coordinates(features.candidates(SPACE, CODES).X)
    away = np.linalg.norm(at - at[of], axis=1)
    return [i for i in np.argsort(away).tolist() if away[i] > 1e-6]


def test_knowing_nothing_holds_nothing_up() -> None:
    features = FeatureMap(CONTRACT)
    model = FeasibilityModel.fit(CONTRACT, features, FeatureRows.empty(len(features.columns)), 0)
    assert model.predict(features.candidates(SPACE, CODES)).min() >= 0.9


def test_where_nothing_failed_everything_is_expected_to_run() -> None:
    model, features = model_of(outcomes(range(50)))
    assert model.predict(features.candidates(SPACE, CODES)).min() >= 0.9
    elsewhere = SearchSpace(CONTRACT, CONTEXT | {"n_gpus": 256})
    unseen = features.candidates(elsewhere, elsewhere.sample(50, np.random.default_rng(0)))
    assert model.predict(unseen).min() >= 0.9


def test_out_of_memory_lowers_it_there_and_nearby_but_not_far_away() -> None:
    _, features = model_of([])
    near = by_distance(features, 0)
    failed = outcomes([0], Status.OUT_OF_MEMORY)
    before = probability([], 0)
    assert probability(failed, 0) < 0.6
    assert probability(failed, near[0]) < before - 0.1
    assert probability(failed, near[-1]) > before - 0.1


def test_one_out_of_memory_counts_beside_an_incumbent_that_ran_a_hundred_times() -> None:
    _, features = model_of([])
    neighbour = by_distance(features, 0)[0]
    jobs = outcomes([neighbour] * 100) + outcomes([0], Status.OUT_OF_MEMORY)
    assert probability(jobs, 0) < MIN_FEASIBLE
    assert probability(jobs, neighbour) > MIN_FEASIBLE


@pytest.mark.parametrize("status", [Status.FAILED, Status.TIMEOUT])
def test_a_failure_of_unknown_cause_is_believed_as_it_repeats(status: Status) -> None:
    _, features = model_of([])
    neighbours = by_distance(features, 0)[:3]
    around = outcomes(neighbours)
    falling = [probability(around + outcomes([0] * k, status), 0) for k in range(5)]
    assert falling[1] >= MIN_FEASIBLE  # a single one does not condemn it
    assert falling[2] < MIN_FEASIBLE
    assert all(later < earlier for earlier, later in pairwise(falling))


def test_what_fails_with_one_value_is_seen_whatever_the_cause() -> None:
    """A value that crashes whatever else is chosen, each configuration tried once: as on a cluster
    whose scheduler calls a lack of memory "failed"."""
    fails = [config["pp"] == 1 for config in CONFIGS]
    assert 0.1 < np.mean(fails) < 0.6
    failing, running = ([i for i in range(200) if fails[i] is one] for one in (True, False))
    jobs = [
        one
        for bad, good in zip(failing[:12], running[:12], strict=True)
        for one in outcomes([bad], Status.FAILED) + outcomes([good])
    ]
    model, features = model_of(jobs)
    new = model.predict(features.candidates(SPACE, CODES[200:]))
    assert auc(new, ~np.array(fails[200:])) > 0.95
    assert new[np.array(fails[200:])].mean() < 0.4


def test_what_failed_for_ever_is_told_and_forgiven() -> None:
    failed = outcomes([1] * 5) + outcomes([0] * 600, Status.FAILED)
    assert 0.0 < probability(failed, 0) < 0.2
    assert probability(failed + outcomes([0] * 30), 0) > MIN_FEASIBLE


def test_what_fails_while_all_else_fails_is_not_blamed() -> None:
    calm = outcomes([1] * 30) + outcomes([0, 0], Status.FAILED)
    storm = outcomes([1] * 30) + outcomes([1] * 10 + [0, 0], Status.FAILED) + outcomes([1] * 30)
    assert probability(storm, 0) > probability(calm, 0) + 0.2
    assert probability(storm, 1) > MIN_FEASIBLE


def test_a_single_failure_alone_does_not_condemn_either() -> None:
    assert probability(outcomes([0], Status.FAILED), 0) >= MIN_FEASIBLE
    assert probability(outcomes([0] * 3, Status.FAILED), 0) < MIN_FEASIBLE


@pytest.mark.parametrize("status", [Status.CANCELLED, Status.PREEMPTED, Status.NODE_FAILURE])
def test_what_says_nothing_changes_nothing(status: Status) -> None:
    assert probability(outcomes([0] * 20, status), 0) == probability([], 0)


def test_a_configuration_that_runs_again_is_forgiven() -> None:
    broken = outcomes([0] * 4, Status.OUT_OF_MEMORY)
    assert probability(broken, 0) < 0.3
    assert probability(broken + outcomes([0] * 20), 0) > MIN_FEASIBLE


def test_other_contexts_teach_what_does_not_run() -> None:
    """A rule that holds in every context (here: fp8 runs out of memory) is learned from others."""
    fp8 = [i for i, config in enumerate(CONFIGS) if config["precision"] == "fp8"]
    bf16 = [i for i in range(len(CONFIGS)) if i not in fp8]
    jobs = outcomes(fp8[:60], Status.OUT_OF_MEMORY, n_gpus=128) + outcomes(bf16[:60], n_gpus=128)
    model, features = model_of(jobs)
    expected = model.predict(features.candidates(SPACE, CODES))
    assert expected[fp8].max() < 0.5
    assert expected[bf16].min() > MIN_FEASIBLE


def test_learning_at_once_is_as_good_as_at_fitting() -> None:
    """Without a classifier (too few failures) a fit and updates know the same."""
    jobs = (
        outcomes(range(20)) + outcomes([30], Status.OUT_OF_MEMORY) + outcomes([31], Status.FAILED)
    )
    fitted, features = model_of(jobs)
    updated, _ = model_of([])
    for one in jobs:
        row = features.rows([one])
        updated.update(row, row)
    candidates = features.candidates(SPACE, CODES)
    # Not equal to the bit: what was expected of a configuration is noted when it is tried.
    np.testing.assert_allclose(updated.predict(candidates), fitted.predict(candidates), atol=0.03)


def test_dump_and_load_give_the_same_bits_and_go_on_alike() -> None:
    jobs = outcomes(range(40)) + outcomes(range(40, 60), Status.OUT_OF_MEMORY)
    jobs += outcomes([70, 70, 71], Status.FAILED)
    model, features = model_of(jobs)
    again = FeasibilityModel.load(CONTRACT, FeatureMap(CONTRACT, features.dump()), model.dump())
    candidates = features.candidates(SPACE, CODES)
    np.testing.assert_array_equal(again.predict(candidates), model.predict(candidates))
    new = features.rows(outcomes([80, 81], Status.FAILED) + outcomes([82]))
    for one in (model, again):
        one.update(new, new)
    np.testing.assert_array_equal(again.predict(candidates), model.predict(candidates))
    assert again.dump() == model.dump()


def test_damage_and_other_generations_are_refused() -> None:
    model, features = model_of(outcomes(range(20)) + outcomes(range(20, 40), Status.OUT_OF_MEMORY))
    blobs = model.dump()
    (tried,) = blobs.keys() - {"state", "forest"}  # of the one context that there is
    for name, blob in blobs.items():
        with pytest.raises(ValueError, match="damaged"):
            FeasibilityModel.load(CONTRACT, features, blobs | {name: blob[:-10]})
    for less in ({}, {name: blob for name, blob in blobs.items() if name != tried}):
        with pytest.raises(ValueError, match="missing"):
            FeasibilityModel.load(CONTRACT, features, less)
    with pytest.raises(ValueError, match="another generation"):
        FeasibilityModel.load(study(), FeatureMap(study()), blobs)


def test_memory_is_bounded_by_configurations_not_by_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tunerd.core.feasibility.model.MAX_TRIED", 50)
    model, features = model_of([])
    for n_gpus in (64, 128, 256):
        rows = features.rows(outcomes(range(30), n_gpus=n_gpus))
        model.update(rows, rows)
    # The oldest context went; the latest are whole.
    assert sum(map(len, model.dump().values())) < 60 * 4 * 40
    assert model._tried == 30


def test_a_fit_on_more_than_is_kept_keeps_the_latest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tunerd.core.feasibility.model.MAX_TRIED", 20)
    jobs = [one for n in (64, 128, 256) for one in outcomes(range(15), n_gpus=n)]
    model, features = model_of(jobs)
    rows = features.rows(jobs)
    model.update(rows, rows)
    assert model._tried <= 20 + 15
    assert np.isfinite(model.predict(rows)).all()


def test_failures_of_unknown_cause_that_are_not_kept_any_more_still_count() -> None:
    """Else a long history would tell of successes alone, and nothing of a region that fails."""
    features = FeatureMap(CONTRACT)
    at = features.candidates(SPACE, CODES).X
    column = int(np.argmax([len(np.unique(at[:, i])) > 1 for i in range(at.shape[1])]))
    fails = at[:, column] > np.median(at[:, column])
    old = [
        one
        for i in range(100, len(CODES))
        for one in outcomes([i], Status.FAILED if fails[i] else Status.SUCCEEDED)
    ]
    latest = outcomes([i for i in range(len(CODES)) if not fails[i]][:250])
    jobs = [*old, *latest]
    model, _ = model_of(jobs)
    asked = features.candidates(SPACE, CODES[:100])
    assert auc(model.predict(asked), ~fails[:100]) > 0.95


ROOMY = """
schema = 1
name = "roomy"
mode = "publish"
[objective]
metric = "speed"
goal = "maximize"
unit = "1/s"
[parameters]
a = { type = "int", scale = "log", values = [1, 2, 4, 8, 16, 32, 64, 128] }
b = { type = "int", scale = "log", values = [1, 2, 4, 8, 16, 32, 64] }
c = { type = "int", scale = "log", values = [1, 2, 4, 8, 16, 32] }
d = { type = "category", values = ["x", "y", "z"] }
"""


def straight(config: Mapping[str, Value]) -> float:
    """Memory as a product of powers."""
    a, b, c = (float(np.log2(float(str(config[name])))) for name in "abc")
    return a - 0.8 * b + 0.7 * c + 0.5 * (config["d"] == "y")


def crooked(config: Mapping[str, Value]) -> float:
    """Only along a ridge, and not too large."""
    a, b, c = (float(np.log2(float(str(config[name])))) for name in "abc")
    return max(1.2 * abs(a - b - 1.0), c - 1.0) + 1.5 * (config["d"] == "y" and c > 2)


@pytest.mark.slow
@pytest.mark.parametrize("memory", [straight, crooked])
def test_where_little_runs_a_few_outcomes_say_where(
    memory: Callable[[Mapping[str, Value]], float],
) -> None:
    study = parse_study(ROOMY)
    features, space = FeatureMap(study), SearchSpace(study, {})
    codes = space.table(2_000)
    assert codes is not None
    configs = [space.decode(code) for code in codes]
    used = np.array([memory(config) for config in configs])
    runs = used < np.quantile(used, 0.1)
    found, shares = [], []
    for seed in range(12):
        tried = np.random.default_rng(seed).permutation(len(configs))[:30]
        jobs = [
            job({}, configs[i], {"speed": 1.0})
            if runs[i]
            else job({}, configs[i], {}, Status.OUT_OF_MEMORY)
            for i in tried.tolist()
        ]
        p = FeasibilityModel.fit(study, features, features.rows(jobs), 0).predict(
            features.candidates(space, codes)
        )
        if 0 < runs[tried].sum() < 5:  # too few for a classifier
            rest = np.setdiff1d(np.arange(len(configs)), tried)
            found.append(auc(p[rest], runs[rest]))
            shares.append(p[rest].mean())
    assert len(found) >= 4
    assert np.mean(found) > 0.75
    assert np.mean(shares) < 0.25  # and not everything is promised to run


def elsewhere(
    runs_if: Callable[[list[dict[str, Value]]], BoolArray], few: Container[int] = (2, 3, 4)
) -> list[float]:
    """AUC in a context that nobody has run, by 30 jobs in six others, of which a few failed, or a
    few ran; of up to twelve draws."""
    study = parse_study(
        ROOMY.replace("[parameters]", '[context]\nn = { type = "int" }\n[parameters]')
    )
    features, space, found = FeatureMap(study), SearchSpace(study, {"n": 9}), []
    codes = space.table(2_000)
    assert codes is not None
    configs = [dict(space.decode(code)) for code in codes]
    runs = runs_if(configs)
    for seed in range(60):
        tried = np.random.default_rng(seed).permutation(len(configs))[:30].tolist()
        ran = int(runs[tried].sum())
        if min(ran, 30 - ran) not in few:
            continue
        jobs = [
            job({"n": turn % 6}, configs[i], {"speed": 1.0})
            if runs[i]
            else job({"n": turn % 6}, configs[i], {}, Status.OUT_OF_MEMORY)
            for turn, i in enumerate(tried)
        ]
        model = FeasibilityModel.fit(study, features, features.rows(jobs), 0)
        found.append(auc(model.predict(features.candidates(space, codes)), runs))
        if len(found) == 12:
            break
    assert len(found) >= 4
    return found


@pytest.mark.slow
def test_across_contexts_a_few_failures_say_what_runs_in_another() -> None:
    def small(configs: list[dict[str, Value]]) -> BoolArray:
        used = np.array([straight(config) for config in configs])
        return np.asarray(used < np.quantile(used, 0.9))

    assert np.mean(elsewhere(small)) > 0.8  # without a classifier nothing is known there: .5


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.1, 0.9])
def test_across_contexts_one_failure_or_one_success_says_something(share: float) -> None:
    def small(configs: list[dict[str, Value]]) -> BoolArray:
        used = np.array([straight(config) for config in configs])
        return np.asarray(used < np.quantile(used, share))

    assert np.mean(elsewhere(small, few=(1,))) > 0.8


@pytest.mark.slow
def test_three_failures_of_thirty_are_seen_to_have_one_value_in_common() -> None:
    found = elsewhere(lambda configs: np.array([config["a"] != 128 for config in configs]))
    assert np.mean(found) > 0.9


GUARDED = """
schema = 1
name = "guarded"
mode = "publish"
explore_share = 0.5
[objective]
metric = "speed"
goal = "maximize"
unit = "1/s"
scale = "log"
[guards]
memory = { max = 80 }
[context]
n = { type = "int", scale = "log" }
[parameters]
batch = { type = "int", scale = "log", values = [1, 2, 4, 8, 16, 32, 64] }
kind = { type = "category", values = ["a", "b"] }
"""


def guarded(
    batches: Sequence[int], reported: bool = True, count: int = 60
) -> tuple[FeasibilityModel, FeatureMap]:
    """Jobs whose memory is 2 GiB a row, with a little noise; the guard's bound is at 80."""
    study, rng = parse_study(GUARDED), np.random.default_rng(0)
    features, jobs = FeatureMap(study), []
    for i in range(count):
        batch, kind = batches[i % len(batches)], "ab"[i % 2]
        memory = 2.0 * batch * float(np.exp(0.02 * rng.normal()))
        metrics = {"speed": 10.0 + batch} | ({"memory": memory} if reported else {})
        jobs.append(job({"n": 8}, {"batch": batch, "kind": kind}, metrics))
    return FeasibilityModel.fit(study, features, features.rows(jobs), 0), features


def of_batch(model: FeasibilityModel, features: FeatureMap) -> dict[int, float]:
    space = SearchSpace(features.study, {"n": 8})
    codes = space.table(100)
    assert codes is not None
    found = model.predict(features.candidates(space, codes)).tolist()
    return {int(str(space.decode(c)["batch"])): p for c, p in zip(codes, found, strict=True)}


def test_a_guard_that_is_approached_says_so_before_any_job_has_broken_it() -> None:
    near = of_batch(*guarded([1, 2, 4, 8, 16]))
    assert near[1] > 0.9
    assert near[16] > 0.9
    assert near[64] < 0.5
    assert min(of_batch(*guarded([1, 2, 4, 8, 16], reported=False)).values()) > 0.9


def test_what_a_margin_explains_is_not_held_against_all() -> None:
    """Nearly all jobs break the guard, and say how far; what is smaller runs as elsewhere."""
    told = of_batch(*guarded([64, 64, 64, 32, 64, 64], count=12))
    assert told[8] > 0.7
    assert told[64] < 0.05


def test_margins_are_kept_and_learned_on() -> None:
    model, features = guarded([1, 2, 4, 8, 16])
    again = FeasibilityModel.load(features.study, features, model.dump())
    assert of_batch(again, features) == of_batch(model, features)
    rows = features.rows(
        [job({"n": 8}, {"batch": 32, "kind": "a"}, {"speed": 9.0, "memory": 70.0})]
    )
    model.update(rows, rows)
    again.update(rows, rows)
    assert again.dump() == model.dump()


@pytest.mark.slow
def test_in_a_context_that_nobody_has_run_it_is_less_sure() -> None:
    """Where contexts differ in what runs, what others say is believed less there."""
    rng = np.random.default_rng(0)
    jobs = []
    for n_gpus, limit in ((16, 0.2), (32, 0.9), (64, 0.5), (128, 0.1), (256, 0.8)):
        for i in rng.permutation(len(CONFIGS))[:60].tolist():
            ran = (i % 100) / 100 < limit
            status = Status.SUCCEEDED if ran else Status.OUT_OF_MEMORY
            jobs += outcomes([i], status, n_gpus)
    model, features = model_of(jobs)

    def sureness(n_gpus: int) -> float:
        space = SearchSpace(CONTRACT, CONTEXT | {"n_gpus": n_gpus})
        codes = space.sample(200, np.random.default_rng(1))
        p = model.predict(features.candidates(space, codes))
        return float(np.abs(p - 0.5).mean())

    assert sureness(512) < sureness(128)


@pytest.mark.slow
def test_what_runs_all_day_says_no_more_of_others_than_what_ran_once() -> None:
    """What people launch runs, again and again; of what was tried beside it half fails."""
    contexts = [2**n for n in range(4, 10)]
    known = [outcomes([turn], n_gpus=n) for turn, n in enumerate(contexts)]
    tried = [
        outcomes([i], Status.OUT_OF_MEMORY if i // 6 % 2 else Status.SUCCEEDED, n)
        for i, n in zip(range(12, 36), contexts * 4, strict=True)
    ]
    features = FeatureMap(CONTRACT)
    elsewhere = SearchSpace(CONTRACT, CONTEXT | {"n_gpus": 1024})
    fresh = features.candidates(elsewhere, elsewhere.sample(200, np.random.default_rng(1)))

    def promised(often: int, since: int = 0) -> float:
        once = [job for jobs in (*known, *tried) for job in jobs]
        before = [job for jobs in known for job in jobs * often]
        model = FeasibilityModel.fit(CONTRACT, features, features.rows([*before, *once]), 0)
        rows = features.rows([job for jobs in known for job in jobs] * max(since, 1))
        if since:
            model.update(rows, rows)
        return float(model.predict(fresh).mean())

    assert promised(0) < 0.75
    assert promised(60) == pytest.approx(promised(0), abs=0.02)
    assert promised(0, since=60) == pytest.approx(promised(0), abs=0.02)
