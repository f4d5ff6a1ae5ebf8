"""A value that no other job comes near waits for a repeat; a change that is real does not."""

import json
import math
from collections.abc import Callable, Sequence

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

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
        runs = [400.0, 410.0, 395.0] if config == "known" else []
        latest = [(math.log(one), place) for place, one in enumerate(runs)]
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


class Cluster:
    """Jobs of several users and configurations, as a filter sees them that learns their runs."""

    def __init__(
        self, *, log: bool = True, goal: int = 1, users: int = 5, configs: int = 20, seed: int = 0
    ) -> None:
        self.rng = np.random.default_rng(seed)
        self.outliers, self.goal, self.users = OutlierFilter(log), goal, users
        self.levels = 400.0 * np.exp(self.rng.normal(0.0, 0.4, configs))
        self.runs = dict[int, list[tuple[float, int]]]()
        self.count = 0
        self.waits = set[int]()

    def run(self, factor: float = 1.0, config: int | None = None, user: str | None = "") -> int:
        """Let one job report ``factor`` times what it got; returns its place."""
        config = int(self.rng.integers(len(self.levels))) if config is None else config
        value = float(self.levels[config] * np.exp(self.rng.normal(0.0, 0.05)) * factor)
        user = f"u{self.rng.integers(self.users)}" if user == "" and self.users else user or None
        score = self.goal * (math.log(value) if self.outliers.log else value)
        report = ReportedScore(score, value, self.count, str(config), user)
        runs = self.runs.setdefault(config, [])
        screening = self.outliers.see("c", report, runs[-8:])
        held = {one.report.sequence for one in screening.held}
        self.waits = (self.waits | held) - set(screening.confirmed)
        for place in held - {self.count}:
            for known in self.runs.values():
                known[:] = [one for one in known if one[1] != place]
        if self.count not in held:
            runs.append((score, self.count))
        self.count += 1
        return self.count - 1


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("users", [5, 0])
@pytest.mark.parametrize(("log", "goal"), [(True, 1), (True, -1), (False, 1), (False, -1)])
@pytest.mark.parametrize("factors", [(3600.0,), (1e3,), (1e6,), (1e3, 3600.0, 1e6)])
def test_slips_of_many_users_do_not_confirm_each_other(
    factors: tuple[float, ...], log: bool, goal: int, users: int, seed: int
) -> None:
    """Every 13th job of whoever reports 3,600 times too much: that was published as a gain of
    2,928 times."""
    cluster = Cluster(log=log, goal=goal, users=users, seed=seed)
    slips = {
        cluster.run(float(cluster.rng.choice(factors)) if i % 13 == 12 else 1.0) for i in range(600)
    }
    assert cluster.waits == {i for i in slips if i % 13 == 12}


@pytest.mark.parametrize("factor", [1e-3, 1 / 3600])
@pytest.mark.parametrize("share", [0.01, 0.05, 1 / 13])
def test_slips_that_come_by_chance_do_not_confirm_each_other(factor: float, share: float) -> None:
    cluster = Cluster(seed=5)
    slips = {i for i in range(1000) if cluster.rng.random() < share}
    for i in range(1000):
        cluster.run(factor if i in slips else 1.0)
    assert cluster.waits == slips


def test_a_day_on_which_a_third_slips_confirms_nothing() -> None:
    cluster = Cluster()
    slips = {i for i in range(200, 260) if cluster.rng.random() < 1 / 3}
    for i in range(400):
        cluster.run(1000.0 if i in slips else 1.0)
    assert cluster.waits == slips


@pytest.mark.parametrize("places", [(0, 4), (2, 9), (1, 5, 8)])
def test_several_slips_among_the_first_are_taken_back(places: tuple[int, ...]) -> None:
    cluster = Cluster()
    for i in range(40):
        cluster.run(3600.0 if i in places else 1.0)
    assert cluster.waits == set(places)


@pytest.mark.parametrize("users", [5, 0])
@pytest.mark.parametrize("factor", [3.0, 10.0, 1e3, 0.1, 1e-3, 1e6])
@pytest.mark.parametrize("slipping", [0.0, 0.05])
def test_a_change_of_all_is_believed_soon(factor: float, users: int, slipping: float) -> None:
    cluster = Cluster(users=users)
    for i in range(300):
        cluster.run(1e9 if i % 20 == 19 and slipping else 1.0)
    before = set(cluster.waits)
    for i in range(12):
        cluster.run(factor * (1e9 if i == 5 and slipping else 1.0))
    assert cluster.waits - before <= {305}
    for _ in range(200):
        cluster.run(factor)
    assert cluster.waits - before <= {305}


def test_a_change_that_comes_bit_by_bit_is_believed_when_all_have_it() -> None:
    cluster = Cluster()
    for i in range(340):
        cluster.run(1000.0 if i >= 300 and i % 2 else 1.0)
    assert len(cluster.waits) == 20
    for _ in range(100):
        cluster.run(1000.0)
    assert not [i for i in cluster.waits if i > 360]


@pytest.mark.parametrize("factor", [5.0, 30.0, 1e3])
@pytest.mark.parametrize(("slipping", "runs"), [(False, 2), (True, 6)])
def test_a_new_configuration_that_is_far_faster_is_believed_when_it_is_repeated(
    factor: float, slipping: bool, runs: int
) -> None:
    cluster = Cluster()
    for i in range(300):
        cluster.run(1e9 if i % 20 == 19 and slipping else 1.0)
    before = set(cluster.waits)
    cluster.levels = np.append(cluster.levels, factor * cluster.levels.max())
    for _ in range(runs):
        cluster.run(config=20)
        for _ in range(10):
            cluster.run()
    assert cluster.waits == before


@pytest.mark.parametrize("runs", [0, 8])
def test_slips_of_one_configuration_wait_among_its_own_runs(runs: int) -> None:
    cluster = Cluster()
    for _ in range(100):
        cluster.run(config=cluster.count % 19)
    for _ in range(runs):
        cluster.run(config=19)
    slips = set[int]()
    for i in range(400):
        if i % 39 == 38:
            slips.add(cluster.run(1000.0, 19))
        else:
            cluster.run(config=i % 20)
    assert cluster.waits == slips


def test_a_release_opens_no_door_to_slips_of_what_ran_as_usual_since() -> None:
    cluster = Cluster()
    for _ in range(200):
        cluster.run()
    first = cluster.run(1000.0, 3)
    report = cluster.outliers.contexts["c"].waiting[-1]
    cluster.outliers.accept("c", report._replace(sequence=cluster.count), [first])
    cluster.runs[3].append((report.score, cluster.count))
    cluster.count += 1
    for _ in range(200):
        cluster.run()
    slips = {cluster.run(1000.0) for _ in range(100) if cluster.run() % 7 == 0}
    assert cluster.waits - {first} == slips


@given(st.lists(st.floats(-700, 700), max_size=120), st.booleans(), st.integers(1, 4))
def test_the_state_is_bounded_and_goes_on_after_a_restart(
    scores: list[float], log: bool, configs: int
) -> None:
    outliers, runs = OutlierFilter(log), dict[str, list[tuple[float, int]]]()
    for i, score in enumerate(scores):
        name = str(i % configs)
        report = ReportedScore(score, score, i, name, f"u{i % 3}")
        again = OutlierFilter.load(json.loads(json.dumps(outliers.dump())))
        own = runs.setdefault(name, [])
        screening = outliers.see("c", report, own[-8:])
        assert again.see("c", report, own[-8:]) == screening
        assert again.dump() == outliers.dump()
        if not screening.held:
            own.append((score, i))
        assert len(outliers.contexts["c"].waiting) <= 20


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
@pytest.mark.parametrize(("factor", "scale"), [(3600.0, "log"), (3600.0, "linear"), (1e-3, "log")])
def test_slips_of_many_users_move_nothing_that_is_said(factor: float, scale: str) -> None:
    """That was a published gain of 2,940 times."""
    jobs = random_jobs(200, sizes=(8,))
    slips = {place for place in range(12, 200, 13) if jobs[place].metrics}
    for place, one in enumerate(jobs):
        speeds = {name: v * factor if place in slips else v for name, v in one.metrics.items()}
        jobs[place] = msgspec.structs.replace(one, metrics=speeds, user=f"u{place % 5}")
    tuner = learned_tuner(
        jobs, 10, changed(('scale = "log"\n[context]', f'scale = "{scale}"\n[context]'))
    )
    assert set(tuner.features.quarantined) == {place + 1 for place in slips}
    advice = tuner.advise(KEY, None)
    assert advice.incumbent is not None
    assert advice.incumbent.high < 2_500
    for candidate in advice.candidates:
        assert candidate.gain is not None
        assert candidate.gain.median < 0.5


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
