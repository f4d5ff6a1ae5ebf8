"""Streams: jobs in time order, and nothing changes but what is said to."""

import math
from collections import Counter
from itertools import islice, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.tuning import job, study
from tests.lab.evaluation.loops import STUDY, rows
from tunerd.core.observation import Status, Value
from tunerd.core.study_file import parse_study
from tunerd.core.tuner import Tuner
from tunerd.errors import MisconfiguredError
from tunerd.lab.evaluation.streams import (
    CHANGES,
    DriftStream,
    StreamJob,
    WorkloadOptions,
    make_stream,
)
from tunerd.lab.evaluation.streams.changes import log_speeds, reversal
from tunerd.lab.evaluation.tabular import measured
from tunerd.lab.evaluation.tunerd_forecaster import InlineExecutor

TABLE = measured(STUDY, rows((4, 5, 8, 16)), min_configs=20)
JOBS = 1_000


def stream(
    kind: str = "nothing", jobs: int = JOBS, seed: int = 0, noise: float = 0.03
) -> DriftStream:
    return make_stream(TABLE, [kind], WorkloadOptions(jobs=jobs, noise=noise), seed)


def metric(one: StreamJob) -> float:
    return one.job.metrics["speed"]


KINDS = st.sampled_from(list(CHANGES))
SEEDS = st.integers(0, 1_000)


@pytest.mark.slow
@settings(max_examples=25)
@given(KINDS, SEEDS)
def test_jobs_come_in_order_from_what_was_measured(kind: str, seed: int) -> None:
    made = stream(kind, 200, seed)
    jobs = list(made.jobs())
    assert [one.arrival.number for one in jobs] == list(range(200))
    assert [one.job.sequence for one in jobs] == list(range(1, 201))
    assert all(a.job.finished_at <= b.job.finished_at for a, b in pairwise(jobs))
    assert len({one.job.event_id for one in jobs}) == 200
    for one in jobs:
        target = made.contexts[one.arrival.context]
        assert one.job.config == target.configs[one.config]
        assert one.job.context == target.context
        assert one.ran == (one.true_mean is not None) == (one.usual_mean is not None)
        assert one.ran == ("speed" in one.job.metrics) == (one.job.status is Status.SUCCEEDED)
        assert one.ran or not one.changed


@pytest.mark.slow
@settings(max_examples=15)
@given(KINDS, SEEDS)
def test_a_stream_follows_from_its_seed_and_can_be_read_again(kind: str, seed: int) -> None:
    made = stream(kind, 100, seed)
    assert list(made.jobs()) == list(made.jobs()) == list(stream(kind, 100, seed).jobs())
    assert list(made.jobs()) != list(stream(kind, 100, seed + 1).jobs())


@pytest.mark.slow
@settings(max_examples=15)
@given(KINDS, SEEDS)
def test_before_anything_changes_all_streams_are_alike(kind: str, seed: int) -> None:
    """But for contexts that do not exist yet, which is what a change of hardware is."""
    made, quiet = stream(kind, 120, seed), stream("nothing", 120, seed)
    first = made.truths[0].first_job
    for one, usual in zip(made.jobs(), quiet.jobs(), strict=True):
        assert one.job.finished_at == usual.job.finished_at
        assert one.usual_mean is None or one.arrival.number >= first or not one.changed
        if kind not in ("new_hardware", "burst"):
            assert one.arrival == usual.arrival
            assert one.usual_mean == usual.true_mean
            assert one.arrival.number >= first or one == usual


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.03, 0.10])
def test_noise_is_log_normal_of_the_stated_size_with_the_truth_as_its_mean(noise: float) -> None:
    ratios = [
        metric(one) / one.true_mean
        for one in stream("slower", 4_000, noise=noise).jobs()
        if one.true_mean is not None
    ]
    logs = np.log(ratios)
    assert np.std(logs) == pytest.approx(noise, rel=0.05)
    assert np.mean(ratios) == pytest.approx(1.0, abs=4 * noise / math.sqrt(len(ratios)))
    quiet = stream("slower", 50, noise=0.0)
    assert all(metric(one) == one.true_mean for one in quiet.jobs() if one.ran)


def test_two_contexts_become_slower() -> None:
    made = stream("slower")
    (truth,) = made.truths
    assert len(truth.contexts) == 2
    assert truth.first_job == JOBS // 2
    assert truth.is_drift
    changed = 0
    for one in made.jobs():
        if one.true_mean is None or one.usual_mean is None:
            continue
        key = made.contexts[one.arrival.context].context_key
        hit = key in truth.contexts and one.arrival.number >= truth.first_job
        assert one.true_mean / one.usual_mean == pytest.approx(0.8 if hit else 1.0)
        assert one.changed == hit
        changed += hit
    assert changed > 50


def test_slower_takes_longer_where_less_is_better() -> None:
    less = parse_study(STUDY.text.replace('"maximize"', '"minimize"'))
    made = make_stream(measured(less, rows(), 20), ["slower"], WorkloadOptions(jobs=200))
    ratios = {
        round(one.true_mean / one.usual_mean, 9)
        for one in made.jobs()
        if one.true_mean and one.usual_mean
    }
    assert ratios == {1.0, 1.25}


def test_a_reversed_effect_is_that_of_one_parameter_alone() -> None:
    """Log speed of the toy problem is a sum of what each parameter does."""
    (target,) = measured(STUDY, rows((16,), noise=0.0)).contexts
    usual = log_speeds(target)
    turned = usual + reversal(target, "y")
    ran = np.isfinite(usual)
    assert np.array_equal(ran, np.isfinite(turned))
    by_config = {(c["x"], c["y"], c["z"]): i for i, c in enumerate(target.configs)}
    for (x, y, z), i in by_config.items():
        a, c = by_config[x, "a", z], by_config[x, "c", z]
        assert turned[a] - turned[c] == pytest.approx(usual[c] - usual[a], abs=1e-5)
        other = by_config[1, y, z]
        if ran[i]:
            assert turned[i] - turned[other] == pytest.approx(usual[i] - usual[other])
    assert np.mean(turned[ran]) == pytest.approx(np.mean(usual[ran]))


def test_the_parameter_that_matters_most_is_reversed_everywhere() -> None:
    made = stream("reversed")
    (truth,) = made.truths
    assert truth.parameter == "x"
    assert set(truth.contexts) == {one.context_key for one in made.contexts}
    for context, target in enumerate(made.contexts):
        before, after = made.true_scores(context, 0), made.true_scores(context, JOBS)
        ran = np.isfinite(before)
        assert np.corrcoef(before[ran], after[ran])[0, 1] < 0
        assert np.array_equal(before, target.scores, equal_nan=True)


@pytest.mark.slow
def test_new_hardware_was_not_seen_before() -> None:
    made = stream("new_hardware")
    (truth,) = made.truths
    assert (truth.feature, truth.value) == ("n", 16)
    with_it = [one.arrival.number for one in made.jobs() if one.job.context["n"] == 16]
    assert min(with_it) >= truth.first_job
    assert len(with_it) > 20
    assert not truth.is_drift
    assert not any(one.changed for one in made.jobs())


def test_new_hardware_is_rather_a_category() -> None:
    text = STUDY.text.replace("[context]", '[context]\ngpu = { type = "category" }')
    jobs = [
        job(i, {"gpu": gpu, "n": n}, row.config, speed=row.metrics["speed"])
        for i, (gpu, n, row) in enumerate(
            (gpu, n, row)
            for gpu, sizes in (("H100", (8, 16, 32)), ("B200", (8, 16)))
            for n in sizes
            for row in rows((8,), 1)
            if row.metrics
        )
    ]
    (truth,) = make_stream(measured(parse_study(text), jobs), ["new_hardware"]).truths
    assert (truth.feature, truth.value) == ("gpu", "B200")
    assert len(truth.contexts) == 2


def test_where_nothing_could_be_new_it_says_so() -> None:
    with pytest.raises(MisconfiguredError, match="no feature has a value that could be new"):
        make_stream(measured(STUDY, rows((8,))), ["new_hardware"])


def test_a_decay_is_slow() -> None:
    made = stream("decay")
    ratios = [
        (one.arrival.number, one.true_mean / one.usual_mean)
        for one in made.jobs()
        if one.true_mean and one.usual_mean
    ]
    assert all(a >= b for (_, a), (_, b) in pairwise(ratios))
    assert ratios[0][1] == 1.0
    assert ratios[-1][1] == pytest.approx(0.8, abs=0.002)
    half = next(ratio for number, ratio in ratios if number >= 3 * JOBS // 4)
    assert half == pytest.approx(math.sqrt(0.8), abs=0.01)


@pytest.mark.slow
def test_a_burst_is_one_users_and_ends() -> None:
    made = stream("burst", 2_000)
    (truth,) = made.truths
    assert truth.last_job == truth.first_job + 199
    burst = [one for one in made.jobs() if one.arrival.user == truth.user]
    numbers = [one.arrival.number for one in burst]
    assert truth.first_job <= min(numbers)
    assert max(numbers) <= truth.last_job
    assert len(burst) == pytest.approx(160, abs=25)
    assert {made.contexts[one.arrival.context].context_key for one in burst} == {*truth.contexts}
    assert len({one.config for one in burst}) == 3
    target = made.contexts[burst[0].arrival.context]
    ranked = np.argsort(target.scores)[: np.isfinite(target.scores).sum() // 4]
    assert {one.config for one in burst} <= set(ranked.tolist())
    assert not any(one.changed for one in made.jobs())


def test_several_things_may_happen() -> None:
    made = make_stream(TABLE, ["slower", "decay"], WorkloadOptions(jobs=400), at=[0.25, 0.5])
    assert [truth.first_job for truth in made.truths] == [100, 200]
    context = next(
        c for c, one in enumerate(made.contexts) if one.context_key in made.truths[0].contexts
    )
    drop = made.true_scores(context, 400) - made.true_scores(context, 0)
    assert drop[np.isfinite(drop)] == pytest.approx(2 * math.log(0.8))


@pytest.mark.slow
def test_users_mostly_run_a_habit_of_middling_speed() -> None:
    made = stream(jobs=3_000)
    by_who: dict[tuple[int, str], Counter[int]] = {}
    for one in made.jobs():
        who = (one.arrival.context, one.arrival.user)
        by_who.setdefault(who, Counter())[one.config] += 1
    first = sum(counts.most_common(1)[0][1] for counts in by_who.values())
    assert 0.65 < first / 3_000 < 0.85
    for context, default in enumerate(made.habits.defaults):
        ranks = np.argsort(np.argsort(made.contexts[context].scores))
        ran = np.isfinite(made.contexts[context].scores).sum()
        assert ranks[default] == ran // 2
    rates = Counter(one.context for one in made.arrivals())
    assert max(rates.values()) > 1.5 * min(rates.values())


@pytest.mark.slow
def test_nights_are_quieter() -> None:
    made = stream(jobs=6_000)
    hours = Counter(one.at.hour // 6 for one in made.arrivals())
    assert hours[0] + hours[3] < 0.75 * (hours[1] + hours[2])


def test_a_job_has_the_same_luck_whatever_it_runs() -> None:
    """So that two policies can be compared job by job."""
    made = stream("slower")
    ran = [i for i, score in enumerate(made.contexts[0].scores) if np.isfinite(score)]
    for arrival in islice((a for a in made.arrivals() if a.context == 0), 20):
        luck = []
        for config in ran[:5]:
            one = made.run(arrival, config, recommendation_id="r-1", candidate_id="c-1")
            assert (one.job.recommendation_id, one.job.candidate_id) == ("r-1", "c-1")
            assert one.true_mean is not None
            luck.append(metric(one) / one.true_mean)
            score = made.true_scores(0, arrival.number)[config]
            assert STUDY.score({"speed": one.true_mean}) == pytest.approx(score)
        assert luck == pytest.approx([luck[0]] * 5)
    assert made.index(0, made.contexts[0].configs[7]) == 7


def test_true_scores_are_in_the_units_of_the_study() -> None:
    linear = parse_study(
        STUDY.text.replace('scale = "log"\n[context]', 'scale = "linear"\n[context]')
    )
    assert linear.objective.scale == "linear"
    made = make_stream(measured(linear, rows()), ["slower"], WorkloadOptions(jobs=10))
    np.testing.assert_allclose(made.true_scores(0, 0), made.contexts[0].scores)


def test_nothing_is_made_before_it_is_asked_for() -> None:
    made = make_stream(TABLE, ["decay"], WorkloadOptions(jobs=50_000_000))
    assert len(list(islice(made.jobs(), 10))) == 10


def test_what_mostly_fails_always_fails() -> None:
    mostly: dict[str, Value] = {"x": 1, "y": "a", "z": True}
    more = [job(i, {"n": 8}, mostly, status=Status.FAILED) for i in range(3)]
    made = make_stream(measured(STUDY, [*rows((8,)), *more]), traffic=WorkloadOptions(jobs=30))
    index = made.index(0, mostly)
    assert np.isnan(made.true_scores(0, 0)[index])
    assert not any(made.run(arrival, index).ran for arrival in made.arrivals())


@pytest.mark.slow
def test_a_tuner_learns_a_stream() -> None:
    made = stream(jobs=120)
    tuner = Tuner(made.study, InlineExecutor(), made.only)
    jobs = [one.job for one in made.jobs()]
    for at in range(0, 120, 20):
        tuner.learn(jobs[at : at + 20])
    for context in made.contexts:
        for candidate in tuner.advise(context.context_key, None).candidates:
            assert made.index(made.contexts.index(context), candidate.config) >= 0


def test_an_objective_that_is_not_positive_is_refused() -> None:
    linear = parse_study(
        STUDY.text.replace('scale = "log"\n[context]', 'scale = "linear"\n[context]')
    )
    jobs = [job(x, {"n": 8}, {"x": x, "y": "a", "z": True}, speed=x - 3.0) for x in range(1, 6)]
    with pytest.raises(MisconfiguredError, match="an objective that is positive everywhere"):
        make_stream(measured(linear, jobs, 2), ["slower"])
    with pytest.raises(MisconfiguredError, match="no context has enough configurations"):
        make_stream(measured(study(), []))
