"""Jobs that report what cannot be right: kept, not learned, and learned once when released."""

import pytest
from msgspec import structs

from tests.stages.tuning import NAME, Tuning, job, random_jobs
from tunerd import telemetry
from tunerd.core.observation import Observation, ReleasedObservation, Value
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
