"""The watch over a study: what it finds, where and since when, and what it leaves in peace."""

import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from tests.core.drift.jobs import Effect, Job, Place, dumped, feed, jobs, study
from tunerd.core.drift import ContextMonitor, Drift, DriftMonitor, DriftUpdate


def began(found: list[DriftUpdate], kind: str) -> list[Drift]:
    return [one.drift for one in found if one.drift.kind == kind and one.phase == "began"]


def watched(stream: list[Job]) -> list[DriftUpdate]:
    return feed(DriftMonitor.of(study()), {}, stream)


@pytest.mark.slow
def test_quiet_jobs_are_left_in_peace() -> None:
    assert watched(list(jobs(6_000, seed=1))) == []


@pytest.mark.slow
def test_a_context_that_became_slower_is_named_with_the_job_since_when() -> None:
    def slower(number: int, context: int, _tp: int, _precision: int) -> float:
        return -0.2 if number >= 1_000 and context == 1 else 0.0

    stream = list(jobs(1_600, seed=2, effect=slower))
    drift, *others = began(watched(stream), "speed")
    assert not others
    assert drift.contexts == ("watched|model=m1",)
    affected = [j for j in stream if j.judged.context_key == drift.contexts[0]]
    after = [j.judged.sequence for j in affected if j.judged.sequence > 1_000]
    assert after.index(drift.noticed) < 15
    assert abs(drift.since - after[0]) < 30
    assert drift.moved == pytest.approx(-0.2, abs=0.05)
    at = next(j.judged.finished_at for j in stream if j.judged.sequence == drift.since)
    assert drift.since_at == at


@pytest.mark.slow
@pytest.mark.parametrize("after", [0.0, -0.6])
def test_a_second_change_before_the_first_is_over_is_told_as_what_it_is(after: float) -> None:
    def twice(number: int, context: int, _tp: int, _precision: int) -> float:
        return 0.0 if number < 1_000 or context else -0.3 if number < 1_100 else after

    found = watched(list(jobs(1_250, seed=9, effect=twice)))
    first, again = (one for one in found if one.phase != "over")
    assert (first.phase, again.phase) == ("began", "grew")
    assert first.drift.moved == pytest.approx(-0.3, abs=0.1)
    assert abs(first.drift.since - 1_000) < 30
    assert again.drift.moved == pytest.approx(after + 0.3, abs=0.1)
    assert abs(again.drift.since - 1_100) < 30
    assert (again.drift.noticed, again.drift.noticed_at) == (again.at, again.at_time)
    assert (again.drift.drift_id, again.drift.times) == (first.drift.drift_id, 2)


@pytest.mark.slow
def test_a_study_that_became_slower_as_a_whole_is_one_drift() -> None:
    def slower(number: int, _context: int, _tp: int, _precision: int) -> float:
        return -0.05 if number >= 1_000 else 0.0

    found = watched(list(jobs(1_300, seed=3, effect=slower)))
    drift, *others = began(found, "speed")
    assert drift.contexts == ()
    assert not others
    assert 1_000 < drift.noticed < 1_080


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3, 7])
def test_the_way_back_is_no_change_of_order(seed: int) -> None:
    def slower(number: int, _context: int, _tp: int, _precision: int) -> float:
        return -1.0 if 1_000 <= number < 1_200 else 0.0

    found = watched(list(jobs(1_260, seed=seed, effect=slower)))
    assert {one.drift.kind for one in found} == {"speed"}
    assert any(one.at > 1_200 and one.drift.moved == pytest.approx(1.0, abs=0.1) for one in found)


@pytest.mark.slow
def test_an_effect_that_is_turned_round_names_the_parameter() -> None:
    def turned(number: int, _context: int, tp: int, _precision: int) -> float:
        return -0.2 * (tp - 1.5) if number >= 1_000 else 0.0

    drift = began(watched(list(jobs(1_400, seed=4, effect=turned))), "ranks")[0]
    assert drift.parameter == "tp"
    assert 1_000 < drift.noticed < 1_050


@pytest.mark.slow
def test_a_value_that_nobody_has_seen_is_an_input_and_not_a_drift_of_speed() -> None:
    def newer(number: int, context: int) -> int:
        return 7 if number >= 1_000 and context < 1 else context

    found = watched(list(jobs(1_800, seed=5, model=newer)))
    assert {one.drift.kind for one in found} == {"inputs"}
    drift = began(found, "inputs")[0]
    assert (drift.feature, drift.value) == ("model", "m7")
    assert 1_000 < drift.since < 1_010


@pytest.mark.slow
def test_other_shares_of_what_is_known_are_an_input() -> None:
    def others(number: int, context: int) -> int:
        return 5 if number >= 1_500 and number % 5 else context

    drift = began(watched(list(jobs(2_500, seed=6, model=others))), "inputs")[0]
    assert (drift.feature, drift.value) == ("model", None)
    assert abs(drift.since - 1_500) < 40


@pytest.mark.slow
def test_what_tunerd_makes_jobs_run_is_no_shift_of_inputs() -> None:
    quiet = [job for job in jobs(2_000, seed=7) if job.judged.sequence <= 1_000]
    one_config = [
        job
        for job in jobs(12_000, seed=7, following=lambda number: number >= 1_000)
        if job.judged.sequence > 1_000 and job.ran.config == {"tp": 8, "precision": "bf16"}
    ]
    found = watched(quiet + one_config)
    assert [one for one in found if one.drift.parameter] == []


@pytest.mark.slow
@pytest.mark.parametrize("follow", [False, True], ids=["nobody follows", "all follow"])
def test_more_failures_than_expected_are_told(*, follow: bool) -> None:
    def fails(number: int, _context: int, _tp: int, _precision: int) -> float:
        return 0.5 if number >= 1_000 else 0.03

    stream = list(jobs(1_200, seed=8, fails=fails, following=lambda _: follow))
    drift = began(watched(stream), "failures")[0]
    assert 1_000 < drift.noticed < 1_040


def test_failures_of_what_was_chosen_and_hardly_ran_are_no_drift() -> None:
    """A search goes where the predictor errs in its favour, also about what runs."""

    def fresh(job: Job) -> Job:
        name = f"c-{job.judged.sequence // 2:04d}000000"
        outcome = structs.replace(job.judged.outcome, config_id=name)
        return Job(structs.replace(job.judged, outcome=outcome), job.ran)

    def fails(number: int, _context: int, _tp: int, _precision: int) -> float:
        return 0.5 if number >= 1_000 else 0.03

    stream = list(jobs(1_600, seed=8, fails=fails, following=lambda number: number >= 1_000))
    found = watched([*stream[:1_000], *map(fresh, stream[1_000:])])
    assert began(found, "failures") == []


def failing(*contexts: int, since: int = 1_000, until: int = 10_000) -> Effect:
    """Half of the jobs fail in these contexts for a while; else one in twenty."""

    def fails(number: int, context: int, _tp: int, _precision: int) -> float:
        return 0.5 if since <= number < until and context in contexts else 0.05

    return fails


def share_failed(stream: Sequence[Job], drift: Drift) -> float:
    """Of the jobs that a drift acted on until it was noticed."""
    came = [
        job.judged.outcome.ran
        for job in stream
        if drift.since <= job.judged.sequence <= drift.noticed
        and drift.concerns(job.judged.context_key)
    ]
    return came.count(False) / len(came)


@pytest.mark.slow
@pytest.mark.parametrize("contexts", [(0,), range(6)])
def test_of_failures_it_says_by_how_much_their_share_changed(contexts: Sequence[int]) -> None:
    stream = list(jobs(1_200, seed=0, fails=failing(*contexts)))
    drift = began(watched(stream), "failures")[0]
    assert drift.moved == pytest.approx(share_failed(stream, drift) - 0.05, abs=0.05)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("contexts", [(1, 3), (0, 1, 2, 3)])
def test_of_failures_in_some_contexts_alone_these_are_named(
    contexts: Sequence[int], seed: int
) -> None:
    def fails(number: int, context: int, _tp: int, _precision: int) -> float:
        return 0.5 if number >= 600 and context in contexts else 0.0

    stream = list(jobs(700, seed, fails=fails, contexts=4, model=lambda number, _: number % 4))
    drift = began(watched(stream), "failures")[0]
    named = () if len(contexts) == 4 else tuple(f"watched|model=m{c}" for c in contexts)
    assert drift.contexts == named
    assert drift.moved == pytest.approx(share_failed(stream, drift), abs=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 7])
def test_jobs_of_a_configuration_known_to_fail_may_come_in_a_row(seed: int) -> None:
    """One in ten of them fails, and hardly any other: that is as it was."""
    rng = np.random.default_rng(seed)
    stream = []
    for number, job in enumerate(jobs(1_500, seed, contexts=2)):
        flaky = number // 50 % 5 == 4
        outcome = structs.replace(
            job.judged.outcome,
            config_id="c-flaky" if flaky else "c-sound",
            ran=float(rng.random()) >= (0.1 if flaky else 0.002),
        )
        stream.append(replace(job, judged=structs.replace(job.judged, outcome=outcome)))
    assert not [one for one in watched(stream) if one.drift.kind == "failures"]


@pytest.mark.slow
@pytest.mark.parametrize(("contexts", "seed"), [((0, 2), 0), ((0, 2), 5), ((1, 3, 4), 5)])
def test_an_alarm_of_failures_ends_no_other_drift_of_failures(
    contexts: Sequence[int], seed: int
) -> None:
    found = watched(list(jobs(1_600, seed=seed, fails=failing(*contexts))))
    alarms = [one for one in found if one.drift.kind == "failures" and one.phase != "over"]
    assert len({one.drift.contexts for one in alarms}) > 1
    for over in (one for one in found if one.drift.kind == "failures" and one.phase == "over"):
        before = [one.at for one in alarms if one.at <= over.at]
        assert over.at - max(before) + 1 >= 30


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 4])
def test_a_context_fails_no_more_when_its_own_jobs_say_so(seed: int) -> None:
    watch, places = DriftMonitor.of(study()), dict[str, Place]()
    ends = 0
    for job in jobs(1_600, seed=seed, fails=failing(0, 2)):
        for one in feed(watch, places, [job]):
            if one.phase == "over" and one.drift.contexts:
                ends += 1
                own = [places[key].watched.failing.dump() for key in one.drift.contexts]
                assert not any(sum(rise["sums"]) for rise in own)
    assert ends


@pytest.mark.slow
def test_a_drift_is_over_when_predictions_hold_again() -> None:
    def outage(number: int, context: int, _tp: int, _precision: int) -> float:
        return -0.3 if 1_000 <= number < 1_300 and context == 0 else 0.0

    found = watched(list(jobs(2_500, seed=9, effect=outage)))
    told = [(one.phase, one.drift.kind) for one in found if one.drift.contexts]
    assert told[0] == ("began", "speed")
    assert ("over", "speed") in told
    last = [one for one in found if one.drift.kind == "speed"][-1]
    assert last.phase == "over"
    assert last.why


@pytest.mark.slow
@given(scale=st.floats(1e-6, 1e6), shift=st.floats(-1e3, 1e3), at=st.integers(500, 900))
@settings(max_examples=5, deadline=None)
def test_units_of_the_objective_do_not_matter(scale: float, shift: float, at: int) -> None:
    def slower(number: int, context: int, _tp: int, _precision: int) -> float:
        return -0.3 if number >= at and context == 0 else 0.0

    def said(scale: float, shift: float) -> list[tuple[object, ...]]:
        found = watched(list(jobs(1_100, seed=10, effect=slower, scale=scale, shift=shift)))
        return [(one.phase, one.drift.kind, one.at, one.drift.contexts) for one in found]

    assert said(scale, shift * scale) == said(1.0, 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("cut", [10, 300, 1_050, 1_150])
def test_what_was_dumped_goes_on_as_if_nothing_happened(cut: int) -> None:
    def slower(number: int, context: int, tp: int, _precision: int) -> float:
        return -0.3 if 1_000 <= number < 1_100 and context == 0 else 0.01 * tp

    stream = list(jobs(1_400, seed=11, effect=slower, fails=lambda _n, _c, tp, _p: 0.1 * (tp == 3)))
    whole, places = DriftMonitor.of(study()), dict[str, Place]()
    told = feed(whole, places, stream[:cut])
    kept = json.loads(json.dumps(dumped(whole, places)))
    back = DriftMonitor.load(kept[0])
    there = {key: Place(ContextMonitor.load(state)) for key, state in kept[1].items()}
    assert dumped(back, there) == dumped(whole, places)
    assert feed(back, there, stream[cut:]) == feed(whole, places, stream[cut:])
    assert dumped(back, there) == dumped(whole, places)
    assert told == [] or cut > 1_000


@pytest.mark.slow
@pytest.mark.parametrize("cut", [1_010, 1_020, 1_060, 1_150])
def test_failures_go_on_from_what_was_dumped(cut: int) -> None:
    stream = list(jobs(1_400, seed=0, fails=failing(0, 2)))
    whole, places = DriftMonitor.of(study()), dict[str, Place]()
    feed(whole, places, stream[:cut])
    kept = json.loads(json.dumps(dumped(whole, places)))
    back = DriftMonitor.load(kept[0])
    there = {key: Place(ContextMonitor.load(state)) for key, state in kept[1].items()}
    assert dumped(back, there) == dumped(whole, places)
    told = feed(whole, places, stream[cut:])
    assert {one.drift.kind for one in told} == {"failures"}
    assert feed(back, there, stream[cut:]) == told
    assert dumped(back, there) == dumped(whole, places)


@pytest.mark.slow
def test_what_is_kept_is_bounded() -> None:
    watch, places = DriftMonitor.of(study()), dict[str, Place]()
    sizes = []
    stream = list(jobs(6_000, seed=12))
    for end in (3_000, 6_000):
        feed(watch, places, stream[end - 3_000 : end])
        sizes.append(len(json.dumps(dumped(watch, places))))
    assert sizes[1] < 1.1 * sizes[0]


@pytest.mark.slow
def test_imported_jobs_teach_and_raise_no_alarm() -> None:
    import msgspec

    stream = [
        Job(msgspec.structs.replace(job.judged, history=True), job.ran)
        for job in jobs(1_500, seed=13, effect=lambda n, _c, _t, _p: -1.0 * (n > 700))
    ]
    assert watched(stream) == []
