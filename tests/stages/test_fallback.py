"""The entry for the empty context, as schedulers see it."""

import json
from datetime import timedelta

import pytest

from tests.stages.tuning import NAME, Tuning, random_jobs, true_speed
from tunerd.client import Recommendations
from tunerd.core.recommendation import State
from tunerd.events import from_bytes
from tunerd.stages.tune import TuneStage

SIZES = (6, 8, 12, 16, 24, 32, 48)


@pytest.fixture
def tuning(tuning: Tuning) -> Tuning:
    tuning.publish()
    return tuning


def knowing(tuning: Tuning) -> TuneStage:
    """A stage that knows many contexts."""
    tuning.add(random_jobs(400, sizes=SIZES))
    tune = tuning.start()
    tuning.run(tune)
    return tune


def test_readers_without_an_entry_of_their_own_find_it(tuning: Tuning) -> None:
    knowing(tuning)
    recommendations = Recommendations()
    for key, _, value in tuning.outbox():
        recommendations.take(key, value and json.loads(value))
    found = recommendations.find("toy|n=1000", tuning.time.now())
    assert found is not None
    assert (found["context_key"], found["context"], found["candidates"]) == (NAME, {}, [])
    choice = recommendations.choose("toy|n=1000", "job", now=tuning.time.now())
    assert choice is not None
    assert choice.kind == "incumbent"
    config = choice.config
    usual = {"x": 1, "y": "a", "z": False}
    assert all(true_speed({"n": n}, config) > true_speed({"n": n}, usual) for n in SIZES)
    assert "contexts without an entry of their own" in found["reason"]


def test_it_is_renewed_and_outlives_a_restart(tuning: Tuning) -> None:
    tune = knowing(tuning)
    tuning.outbox()
    tuning.run(tune, days=4)
    assert NAME in {key for key, _, _ in tuning.outbox()}
    before = tuning.rows()[NAME]
    again = tuning.start()
    tuning.run(again)
    assert tuning.rows()[NAME] == before
    tuning.run(again, days=40)
    assert from_bytes(tuning.rows()[NAME].value.encode()).state is State.WITHDRAWN


def test_an_order_has_it_made_again_and_a_restart_under_the_order_has_not(tuning: Tuning) -> None:
    tune = knowing(tuning)

    def made() -> int:
        return sum(NAME in step.contexts for step in tuning.store.steps(NAME, limit=1000))

    before = made()
    tuning.command("forbid", context={}, config={"x": 7})
    tuning.run(tune)
    assert made() == before + 1
    tuning.run(tuning.start())
    assert made() == before + 1


def test_it_is_silent_while_any_context_is_paused(tuning: Tuning) -> None:
    tune = knowing(tuning)
    tuning.command("pause", context={"n": 8})
    tuning.run(tune)
    said = from_bytes(tuning.rows()[NAME].value.encode())
    assert said.state is State.WITHDRAWN
    assert "Paused by an operator" in said.reason
    tuning.command("resume", context={"n": 8})
    tuning.run(tune)
    assert from_bytes(tuning.rows()[NAME].value.encode()).state is State.ACTIVE


def test_it_keeps_to_the_limits_of_every_context(tuning: Tuning) -> None:
    tune = knowing(tuning)
    said = from_bytes(tuning.rows()[NAME].value.encode())
    assert said.incumbent is not None
    best = dict(said.incumbent.config)
    tuning.command("forbid", context={"n": 8}, config={"x": best["x"]})
    tuning.run(tune)
    said = from_bytes(tuning.rows()[NAME].value.encode())
    if said.state is State.ACTIVE:
        assert said.incumbent is not None
        assert said.incumbent.config["x"] != best["x"]


def test_a_study_that_only_observes_proposes_it(tuning: Tuning) -> None:
    tuning.publish(mode='"observe"')
    knowing(tuning)
    assert tuning.rows()[NAME].state == "observed"
    assert tuning.outbox() == []


def test_a_few_contexts_are_not_enough(tuning: Tuning) -> None:
    tuning.add(random_jobs(200))
    tuning.run(tuning.start())
    assert NAME not in tuning.rows()


def test_it_ends_with_the_study(tuning: Tuning) -> None:
    tune = knowing(tuning)
    tuning.command("end")
    tuning.run(tune)
    assert from_bytes(tuning.rows()[NAME].value.encode()).reason == "The study has ended."


def test_it_goes_with_the_last_job(tuning: Tuning) -> None:
    tune = knowing(tuning)
    tuning.time.at += timedelta(days=31)
    tuning.run(tune)
    assert from_bytes(tuning.rows()[NAME].value.encode()).state is State.WITHDRAWN
