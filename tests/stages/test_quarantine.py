"""Jobs that report what cannot be right: kept, not learned, and learned once when released."""

import pytest
from msgspec import structs

from tests.stages.tuning import NAME, Tuning, job, random_jobs
from tunerd import telemetry
from tunerd.core.observation import Observation, ReleasedObservation, Status, Value, corrected
from tunerd.core.tuner import Tuner
from tunerd.stages.replay import derive
from tunerd.stages.tune import TuneStage

KEY = Tuning.key(8)
FAST: dict[str, Value] = {"x": 3, "y": "a", "z": False}


def by(user: str | None, *jobs: Observation) -> list[Observation]:
    return [structs.replace(one, user=user) for one in jobs]


def usual(count: int = 40, first: int = 1) -> list[Observation]:
    return by("bob", *random_jobs(count, first=first, sizes=(8,)))


def slip(sequence: int, user: str | None = "eve", factor: float = 1e6) -> list[Observation]:
    return by(user, job(sequence, {"n": 8}, FAST, speed=factor))


def tuner_of(stage: TuneStage) -> Tuner:
    return stage._books[NAME].tuner


def states(tuning: Tuning) -> dict[int, tuple[str, str]]:
    rows = tuning.store.quarantined(NAME, states=("held", "released", "bad", "learned"))
    return {row.sequence: (row.state, row.reason) for row in rows}


def held(tuning: Tuning) -> TuneStage:
    """Forty jobs, and one a thousand times too fast."""
    tuning.publish(mode='"publish"')
    tuning.add([*usual(), *slip(41)])
    stage = tuning.start()
    tuning.run(stage)
    return stage


def test_a_slip_is_kept_and_nothing_is_learned_from_it(tuning: Tuning) -> None:
    stage = held(tuning)
    assert states(tuning) == {41: ("held", "far")}
    (kept,) = tuning.store.observations_at(NAME, [41])
    assert kept.metrics == {"speed": 1e6}
    context = tuner_of(stage).contexts[KEY]
    assert context.evidence.jobs == 40
    assert "u:eve" not in context.influence.who
    (record,) = tuning.store.predictions_at(NAME, [41]).values()
    assert (record.outcome.score, record.outcome.ran) == (None, None)
    assert record.outcome.gpu_hours is None
    assert tuning.heard.of(telemetry.StepCommitted)[-1].quarantined == 1


def test_a_released_job_is_learned_once_and_derives_again(tuning: Tuning) -> None:
    stage = held(tuning)
    command = tuning.command("release", sequences=[41])
    tuning.run(stage)
    assert tuning.result(command) == "released 1 job, learned with the next jobs"
    assert states(tuning) == {41: ("released", "far")}
    (again,) = tuning.store.observations(NAME, after=41)
    assert isinstance(again, ReleasedObservation)
    assert (again.sequence, again.earlier.sequence) == (42, 41)
    tuner = tuner_of(stage)
    assert tuner.sequence == 42
    assert tuner.contexts[KEY].evidence.jobs == 41
    (record,) = tuning.store.predictions_at(NAME, [41]).values()
    assert record.outcome.score == pytest.approx(13.8155, abs=1e-3)
    twice = tuning.command("release", sequences=[41, 7])
    tuning.run(stage)
    assert tuning.result(twice) == "refused: none of these jobs waits in quarantine"
    # Another process, and a rebuild from history, know the same.
    tuning.add(usual(20, 43))
    other = tuning.start()
    tuning.run(other)
    evidence = tuner_of(other).contexts[KEY].evidence.dump()
    kept = tuning.store.said_in(NAME, KEY)[0]
    assert kept.sequence > 42
    derived = derive(tuning.store, kept)
    assert derived.same, derived.checks
    tuning.publish(mode='"publish"', explore_share="0.2")
    anew = tuning.start()
    tuning.run(anew)
    assert tuner_of(anew).contexts[KEY].evidence.dump() == evidence
    assert states(tuning) == {41: ("released", "far")}
    assert tuning.store.observations(NAME, after=62) == []


def test_another_users_repeat_releases_and_ones_own_does_not(tuning: Tuning) -> None:
    stage = held(tuning)
    tuning.add(slip(42, "eve", 1.1e6))
    tuning.run(stage)
    assert states(tuning) == {41: ("held", "far"), 42: ("held", "far")}
    tuning.add(slip(43, "bob", 1.2e6))
    tuning.run(stage)
    assert states(tuning) == {41: ("released", "far"), 42: ("released", "far")}
    assert tuner_of(stage).contexts[KEY].evidence.jobs == 43
    assert tuning.store.quarantine_counts() == {}


def test_what_was_called_bad_confirms_nothing_even_when_history_is_learned_anew(
    tuning: Tuning,
) -> None:
    stage = held(tuning)
    command = tuning.command("confirm", sequences=[41])
    tuning.run(stage)
    assert tuning.result(command) == "called 1 job bad, never learned"
    tuning.publish(mode='"publish"', explore_share="0.2")
    tuning.add(slip(42, "bob", 1.1e6))
    tuning.run(tuning.start())
    assert states(tuning) == {41: ("bad", "far"), 42: ("held", "far")}


def test_bounds_of_the_study_hold_whoever_repeats_and_a_change_lets_out(tuning: Tuning) -> None:
    bounds = "bounds = { speed = [0.001, 5000] }"
    tuning.publish(scale=f'"log"\n[plausibility]\n{bounds}')
    tuning.add([*usual(), *slip(41), *slip(42, "bob", 1.1e6)])
    tuning.run(tuning.start())
    assert states(tuning) == {41: ("held", "bounds"), 42: ("held", "bounds")}
    text = tuning.store.quarantine_rows(NAME, [41])[41].text
    assert text == "speed = 1e+06 is outside 0.001 to 5000"
    tuning.publish()
    stage = tuning.start()
    tuning.run(stage)
    assert states(tuning) == {41: ("released", "bounds"), 42: ("learned", "bounds")}
    assert tuner_of(stage).contexts[KEY].evidence.jobs == 42


def ran(stage: TuneStage) -> tuple[int, int]:
    """Jobs of :data:`FAST` that count, as having run and with a speed."""
    trials = tuner_of(stage).contexts[KEY].evidence.trials.values()
    return next(((t.ran, t.runs) for t in trials if t.config == FAST), (0, 0))


def report(tuning: Tuning, speed: float) -> tuple[TuneStage, tuple[int, int]]:
    """Forty jobs, and a 41st that runs yet and reports a speed; with what counted before it."""
    tuning.publish(mode='"publish"')
    tuning.add(usual())
    stage = tuning.start()
    tuning.run(stage)
    before = ran(stage)
    running = job(41, {"n": 8}, FAST, speed=speed, status=Status.RUNNING)
    tuning.add(by("eve", running))
    tuning.run(stage)
    return stage, before


def end(tuning: Tuning, speed: float, earlier: int = 41) -> None:
    """The end of the 41st job comes in."""
    (before,) = tuning.store.observations_at(NAME, [earlier])
    last = by("eve", job(60, {"n": 8}, FAST, speed=speed))[0]
    tuning.add([corrected(last, before)])


def same_anew(tuning: Tuning, stage: TuneStage) -> None:
    """A rebuild from history knows of FAST what is known."""
    known = ran(stage)
    tuning.publish(mode='"publish"', explore_share="0.2")
    anew = tuning.start()
    tuning.run(anew)
    assert ran(anew) == known


@pytest.mark.parametrize("release_first", [True, False])
def test_a_job_that_is_released_and_then_ends_is_learned_once(
    tuning: Tuning, release_first: bool
) -> None:
    stage, before = report(tuning, 1e6)
    assert states(tuning) == {41: ("held", "far")}
    if release_first:
        tuning.command("release", sequences=[41])
        tuning.run(stage)
        end(tuning, 1.2e6)
    else:  # the operator's command is carried out while the end waits to be learned
        end(tuning, 400.0)
        with tuning.store.transaction() as tx:
            tx.release_quarantined(NAME, [41], who="ann", why="it is", now=tuning.time.now())
    tuning.run(stage)
    assert ran(stage) == (before[0] + 1, before[1] + 1)
    same_anew(tuning, stage)
    assert states(tuning)[41] == ("released", "far")


def test_an_end_that_goes_into_quarantine_takes_its_report_along_and_counts_once(
    tuning: Tuning,
) -> None:
    stage, before = report(tuning, 400.0)
    assert ran(stage) == (before[0] + 1, before[1] + 1)
    end(tuning, 1e6)
    tuning.run(stage)
    assert states(tuning) == {42: ("held", "far")}
    assert ran(stage) == before
    tuning.command("release", sequences=[42])
    tuning.run(stage)
    assert ran(stage) == (before[0] + 1, before[1] + 1)
    same_anew(tuning, stage)


def test_a_released_job_among_the_first_of_its_context_stays_released(tuning: Tuning) -> None:
    tuning.publish(mode='"publish"')
    first = [job(x, {"n": 8}, {**FAST, "x": x}, speed=400.0 + x) for x in range(1, 8)]
    tuning.add([*by("bob", *first), *slip(8)])
    stage = tuning.start()
    tuning.run(stage)
    assert states(tuning) == {8: ("held", "far")}
    tuning.command("release", sequences=[8])
    tuning.run(stage)
    tuning.add(usual(3, 9))
    tuning.run(stage)
    assert states(tuning) == {8: ("released", "far")}


def test_what_is_taken_back_later_derives_again(tuning: Tuning) -> None:
    tuning.publish(mode='"publish"')
    tuning.add([*slip(1), *usual(5, 2)])
    stage = tuning.start()
    tuning.run(stage)
    assert states(tuning) == {}
    tuning.add(usual(40, 7))
    tuning.run(stage)
    assert states(tuning) == {1: ("held", "far")}
    derived = derive(tuning.store, tuning.store.said_in(NAME, KEY)[0])
    assert derived.same, derived.checks


def test_a_release_does_not_count_a_round_of_a_campaign_twice(tuning: Tuning) -> None:
    stage = held(tuning)
    tuning.command("campaign", context={"n": 8}, jobs=0, rounds=1, round_size=3, repeats=4)
    tuning.run(stage)
    campaign = tuner_of(stage).contexts[KEY].campaign
    assert campaign is not None
    assert campaign.missing == 12
    tuning.add(by("eve", job(42, {"n": 8}, campaign.asks[0].config, speed=3e7)))
    tuning.run(stage)
    assert states(tuning)[42][0] == "held"
    assert campaign.missing == 11
    tuning.command("release", sequences=[42])
    tuning.run(stage)
    assert states(tuning)[42][0] == "released"
    campaign = tuner_of(stage).contexts[KEY].campaign
    assert campaign is not None
    assert campaign.missing == 11


def test_what_a_repeat_releases_in_the_same_step_is_not_called_bad(tuning: Tuning) -> None:
    stage = held(tuning)
    command = tuning.command("confirm", sequences=[41])
    tuning.add(slip(42, "bob", 1.1e6))
    tuning.run(stage)
    assert states(tuning) == {41: ("released", "far")}
    assert tuning.result(command) == "refused: none of these jobs waits in quarantine"


def test_a_job_without_a_speed_stays_bad_when_history_is_learned_anew(tuning: Tuning) -> None:
    bounds = "bounds = { gib = [0.1, 80] }"
    tuning.publish(scale=f'"log"\n[plausibility]\n{bounds}')
    failed = job(41, {"n": 8}, FAST, status=Status.OUT_OF_MEMORY)
    tuning.add([*usual(), structs.replace(failed, metrics={"gib": 9e9})])
    stage = tuning.start()
    tuning.run(stage)
    tuning.command("confirm", sequences=[41])
    tuning.run(stage)
    assert states(tuning) == {41: ("bad", "bounds")}
    known = tuner_of(stage).contexts[KEY].evidence.jobs
    tuning.publish()
    anew = tuning.start()
    tuning.run(anew)
    assert tuner_of(anew).contexts[KEY].evidence.jobs == known


@pytest.mark.parametrize("number", [2**63, 10**30])
def test_numbers_that_no_database_has_are_refused(tuning: Tuning, number: int) -> None:
    stage = held(tuning)
    command = tuning.command("release", sequences=[41, number])
    tuning.run(stage)
    assert (tuning.result(command) or "").startswith("refused: release cannot be done")
    assert states(tuning) == {41: ("held", "far")}


def test_a_study_that_has_ended_still_learns_what_is_released(tuning: Tuning) -> None:
    stage = held(tuning)
    tuning.command("end")
    tuning.run(stage)
    command = tuning.command("release", sequences=[41])
    tuning.run(stage)
    assert (tuning.result(command) or "").startswith("released 1 job")
    assert states(tuning) == {41: ("released", "far")}
    assert tuner_of(stage).contexts[KEY].evidence.jobs == 41
