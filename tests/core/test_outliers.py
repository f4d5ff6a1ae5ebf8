"""A value that no other job comes near waits for a repeat; a change that is real does not."""

import json
import math
from collections.abc import Callable, Sequence

import msgspec
import numpy as np
import pytest

from tests.core.model.test_training import restored
from tests.core.tuning import Inline, changed, job, learned_tuner, random_jobs, steps, study
from tunerd.core.observation import Observation, Value
from tunerd.core.outliers import HeldScore, OutlierFilter, ReportedScore, is_mark
from tunerd.core.tuner import Tuner

KEY = study().context_key({"n": 8})


def seen(values: Sequence[float], *, log: bool = True, configs: int = 3) -> list[int]:
    """Places of values that wait, of jobs of ``configs`` configurations in turn."""
    told, waits = OutlierFilter(log), set[int]()
    for i, value in enumerate(values):
        told = OutlierFilter.load(json.loads(json.dumps(told.dump())))
        score = math.log(value) if log else value
        waits |= {
            one.report.sequence
            for one in told.see("c", ReportedScore(score, value, i, str(i % configs))).held
        }
    return sorted(waits)


def usual(count: int, seed: int = 0) -> list[float]:
    draws = np.random.default_rng(seed).normal(size=count)
    return [400 * math.exp(0.3 * one) for one in draws.tolist()]


@pytest.mark.parametrize("place", [0, 3, 6, 9, 29])
@pytest.mark.parametrize("factor", [1000.0, 1e-3, 1e10, 3600.0, 1 / 1024])
def test_one_slip_waits_wherever_it_comes(place: int, factor: float) -> None:
    values = usual(30)
    values[place] *= factor
    assert seen(values) == [place]


def test_one_slip_on_a_linear_scale_waits() -> None:
    values = np.random.default_rng(0).normal(3.0, 2.0, size=30).tolist()
    assert seen(values, log=False) == []
    values[20] = -4_000.0
    assert seen(values, log=False) == [20]


@pytest.mark.parametrize("factor", [1000.0, 1e-3])
def test_a_whole_stream_that_changes_is_believed_with_its_third_job(factor: float) -> None:
    values = usual(20) + [factor * one for one in usual(20, 1)]
    assert seen(values) == [20, 21]
    assert seen(values, configs=1) == [20]


def test_what_really_changes_is_seen_at_once() -> None:
    """As when the best of three configurations falls from 400 to 30."""
    values = [100.0, 200.0, 400.0] * 15 + [30.0, 31.0, 29.0] * 10
    assert seen(values) == []


def test_configurations_that_differ_by_a_thousand_do_not_wait() -> None:
    rng = np.random.default_rng(0)
    levels = np.exp(rng.uniform(0, math.log(1e3), size=60))
    assert seen(levels.tolist(), configs=60) == []


def test_a_mark_never_repeats_itself() -> None:
    values = usual(40)
    values[15::5] = [1e20] * len(values[15::5])
    assert seen(values) == list(range(15, 40, 5))


@pytest.mark.parametrize("value", [1e20, 999999.0, 3.4028234663852886e38])
@pytest.mark.parametrize("first", [0, 2])
def test_a_mark_that_comes_from_the_beginning_is_taken_back(value: float, first: int) -> None:
    values = usual(40)
    values[first::4] = [value] * len(values[first::4])
    assert seen(values) == list(range(first, 40, 4))


def test_what_was_released_stays_so_though_it_is_among_the_first() -> None:
    """History is learned anew after retention pruned what came before: then a job that was released
    is among its context's first, and its value is one that is often a mark."""
    outliers = OutlierFilter(True)
    low = ReportedScore(math.log(1e-3), 1e-3, 0, "x", "eve")
    assert not outliers.see("c", low).held
    outliers.accept("c", low._replace(sequence=1), [0])
    held: list[HeldScore] = []
    for i, value in enumerate(usual(8), 2):
        held += outliers.see("c", ReportedScore(math.log(value), value, i, "y", "bob")).held
    again = outliers.see("c", low._replace(sequence=10, user="eve"))
    assert [*held, *again.held] == []


def screened(*jobs: tuple[float, str, str | None], usual_user: str = "bob") -> list[list[str]]:
    """What becomes of jobs (value, configuration, user) after forty ordinary ones: the reasons why
    each is held, or the places of those that it confirms."""
    outliers = OutlierFilter(True)
    for i, value in enumerate(usual(40)):
        outliers.see("c", ReportedScore(math.log(value), value, i, str(i % 3), usual_user))
    became: list[list[str]] = []
    for i, (value, config, user) in enumerate(jobs):
        latest = [math.log(400.0), math.log(410.0), math.log(395.0)] if config == "known" else []
        report = ReportedScore(math.log(value), value, 100 + i, config, user)
        screening = outliers.see("c", report, latest)
        confirmed = [str(sequence - 100) for sequence in screening.confirmed]
        reasons: list[str] = [held.reason for held in screening.held]
        became.append(reasons or confirmed)
        outliers = OutlierFilter.load(json.loads(json.dumps(outliers.dump())))
    return became


def test_nobody_confirms_himself_but_who_runs_most() -> None:
    alone = [(4e5 + i, "x", "eve") for i in range(6)]
    assert screened(*alone) == [["far"]] * 6
    assert screened(*alone[:2], (4.1e5, "x", "ann")) == [["far"], ["far"], ["0", "1"]]
    assert screened(*alone[:2], usual_user="eve") == [["far"], ["0"]]
    nobody = [(4e5 + i, "x", None) for i in range(2)]
    assert screened(*nobody) == [["far"], ["0"]]


def test_what_was_believed_once_is_believed_at_once() -> None:
    jobs = [(4e5, "x", "eve"), (4.1e5, "x", "ann"), (4.2e5, "y", "eve")]
    assert screened(*jobs) == [["far"], ["0"], []]


@pytest.mark.parametrize("factor", [10.0, 0.1, 100.0, 60.0, 1024.0, 1e-3])
def test_a_unit_slip_shows_beside_the_runs_of_its_configuration(factor: float) -> None:
    assert screened((400.0 * factor, "known", "eve")) == [["unit_slip"]]


@pytest.mark.parametrize("factor", [1.3, 2.0, 5.0, 0.5])
def test_what_only_is_faster_is_no_slip(factor: float) -> None:
    assert screened((400.0 * factor, "known", "eve")) == [[]]


def test_a_thousand_times_the_best_waits_however_far_all_lie_apart() -> None:
    outliers = OutlierFilter(True)
    for i in range(40):
        value = 10.0 ** (8 * (i % 20) / 20)
        assert not outliers.see("c", ReportedScore(math.log(value), value, i, str(i))).held
    (held,) = outliers.see("c", ReportedScore(math.log(7e11), 7e11, 40, "x")).held
    assert (held.reason, held.text) == (
        "beyond_best",
        "17,583 times better than the best of its context",
    )


def test_marks() -> None:
    assert all(map(is_mark, (1.0, 1e20, 999999.0, 3.4028234663852886e38, 2.0**31 - 1, 0.001)))
    assert not any(map(is_mark, (12.0, 998.0, 1e20 / 3, 0.0035, 985380.0)))


def slipped(place: int, factor: float, count: int = 120) -> list[Observation]:
    """Jobs of the toy study, of which the first at or after a place slips."""
    jobs = random_jobs(count, sizes=(8,))
    at = next(i for i in range(place, count) if jobs[i].metrics)
    told = {"speed": jobs[at].metrics["speed"] * factor}
    jobs[at] = msgspec.structs.replace(jobs[at], metrics=told)
    return jobs


def learned(jobs: list[Observation], size: int) -> Tuner:
    return learned_tuner(jobs, size)


@pytest.mark.slow
@pytest.mark.parametrize("size", [5, 120])
@pytest.mark.parametrize("place", [0, 60])
@pytest.mark.parametrize("factor", [1000.0, 1e-3])
def test_a_slip_moves_nothing_that_is_said(place: int, factor: float, size: int) -> None:
    """Of one job that told a thousand times too much came "+107,481 % (at least +102,757 %)"."""
    tuner = learned(slipped(place, factor), size)
    advice = tuner.advise(KEY, None)
    fastest = max(one.metrics["speed"] for one in random_jobs(120, sizes=(8,)) if one.metrics)
    assert advice.incumbent is not None
    assert advice.incumbent.high < 2 * fastest
    for one in advice.candidates:
        assert one.predicted is not None
        assert one.predicted.high < 3 * fastest
        assert one.gain is not None
        assert -1 < one.gain.low <= one.gain.median < 2
    assert len(tuner.features.quarantined) == tuner.usability.implausible == 1
    (held,) = tuner.features.quarantined
    trials = tuner.contexts[KEY].evidence.trials.values()
    assert sum(trial.ran - trial.runs for trial in trials) == 0  # it teaches nothing at all
    assert held >= place + 1


@pytest.mark.slow
@pytest.mark.parametrize("place", [0, 60])
def test_what_is_held_back_survives_a_restart(place: int) -> None:
    jobs = slipped(place, 1000.0, 200)
    tuner, parts = Tuner(study(), Inline()), dict[str, bytes]()
    for step in steps(jobs[:150], 10):
        if tuner.learn(step).swapped:
            assert tuner.model is not None
            parts = tuner.model.dump()
    again = restored(tuner, parts, jobs)
    assert again.dump() == tuner.dump()
    for step in steps(jobs[150:], 10):
        assert again.learn(step) == tuner.learn(step)
    assert again.dump() == tuner.dump()
    assert again.advise(KEY, None) == tuner.advise(KEY, None)


@pytest.mark.slow
def test_history_learned_anew_holds_the_same_back() -> None:
    jobs = slipped(60, 1000.0)
    tuner = Tuner(study(), Inline())
    tuner.gather(jobs)
    tuner.catch_up()
    assert tuner.features.quarantined == learned(jobs, 5).features.quarantined


@pytest.mark.slow
def test_two_jobs_of_a_configuration_are_believed_and_the_low_end_is_that_of_the_prediction() -> (
    None
):
    jobs = random_jobs(120, sizes=(8,))
    fast: dict[str, Value] = {"x": 3, "y": "a", "z": False}
    jobs += [job(121 + i, {"n": 8}, fast, speed=1e6 * (1 + i / 100)) for i in range(3)]
    tuner = learned(jobs, 1)
    assert len(tuner.features.quarantined) == 1
    advice = tuner.advise(KEY, None)
    assert advice.incumbent is not None
    for one in advice.candidates:
        if one.config == fast:
            assert one.predicted is not None
            assert one.gain is not None
            low = one.predicted.low / advice.incumbent.median - 1
            assert one.gain.low <= low + 1e-9


@pytest.mark.slow
@pytest.mark.parametrize(
    ("value", "scale"), [(500.0, "log"), (0.1, "linear"), (1e6, "log"), (0.0, "linear")]
)
def test_a_metric_that_never_changes_is_predicted_as_it_is(value: float, scale: str) -> None:
    constant = changed(('scale = "log"', f'scale = "{scale}"'))
    same: Callable[[Observation], Observation] = lambda one: msgspec.structs.replace(  # noqa: E731
        one, metrics={"speed": value} if one.metrics else {}
    )
    jobs = list(map(same, random_jobs(60, sizes=(8,))))
    tuner = Tuner(constant, Inline())
    told = [one.outcome for step in steps(jobs, 5) for one in tuner.learn(step).judged]
    for one in told[20:]:
        assert one.predicted is not None
        assert one.low is not None
        assert one.high is not None
        came = constant.metric_value(one.predicted), constant.metric_value(one.low)
        assert came == pytest.approx((value, value), rel=1e-4, abs=1e-6)
    advice = tuner.advise(KEY, None)
    assert not advice.candidates
    assert "nothing can be told apart" in advice.reason
