"""Asking: a request becomes an answer in the step that finds it, whatever happens in between."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec import structs

from tests.stages.fakes import CrashError, FakeStream, Heard, Time, crash_in
from tests.stages.tuning import NAME, Tuning, random_jobs
from tunerd import telemetry
from tunerd.core.observation import Status
from tunerd.core.recommendation import State
from tunerd.core.request import AdviceRequest, RequestAnswer, RequestOutcome
from tunerd.events import from_bytes
from tunerd.settings.model import IngestSettings, TopicSettings
from tunerd.stages.requests import RequestStage
from tunerd.stages.tune import TuneStage

TOPICS = TopicSettings(
    jobs="jobs", requests="requests", recommendations="recommendations", rejected="rejected"
)
UNSEEN = 7


@pytest.fixture
def tuning(tuning: Tuning) -> Tuning:
    tuning.publish()
    return tuning


def ask(tuning: Tuning, *sizes: int, name: str = "q") -> list[int]:
    """Somebody asks about contexts; the ids of the requests."""
    batch = [
        AdviceRequest(study=NAME, source="s", event_id=f"{name}{n}", context={"n": n})
        for n in sizes
    ]
    with tuning.store.transaction() as tx:
        return list(tx.add_requests(batch, tuning.time.now()).fresh)


def answer(tuning: Tuning, number: int) -> RequestAnswer:
    row = tuning.store.request(number)
    assert row is not None
    assert row.answer is not None, "it still waits"
    return row.answer


def knowing(tuning: Tuning) -> TuneStage:
    """A stage that has learned some jobs in other contexts, with nothing left to send."""
    tuning.add(random_jobs(60))
    tune = tuning.start()
    tuning.run(tune)
    tuning.outbox()
    return tune


def test_a_context_that_nobody_has_run_gets_an_answer(tuning: Tuning, heard: Heard) -> None:
    tune = knowing(tuning)
    (number,) = ask(tuning, UNSEEN)
    tuning.time.pass_(seconds=0.5)
    assert tune.step()
    ((key, revision, value),) = tuning.outbox()
    assert (key, revision) == (tuning.key(UNSEEN), 1)
    assert value is not None
    said = from_bytes(value)
    assert said.candidates
    assert all(one.predicted is not None for one in said.candidates)
    assert all(one.config["x"] <= UNSEEN for one in said.candidates)  # type: ignore[operator]
    found = answer(tuning, number)
    assert (found.outcome, found.revision) == (RequestOutcome.PUBLISHED, 1)
    assert found.recommendation_id == said.recommendation_id
    (told,) = heard.of(telemetry.RequestsAnswered)
    assert (told.outcomes, told.seconds) == ({"published": 1}, (0.5,))
    assert tuning.store.requests_waiting() == {}


def test_who_asks_again_gets_what_runs_renewed(tuning: Tuning) -> None:
    tune = knowing(tuning)
    ask(tuning, UNSEEN)
    tuning.run(tune)
    ((_, _, first),) = tuning.outbox()
    numbers = [*ask(tuning, UNSEEN, name="again"), *ask(tuning, UNSEEN, name="and again")]
    tuning.run(tune)
    ((_, revision, second),) = tuning.outbox()
    assert revision == 2
    assert first is not None
    assert second is not None
    assert from_bytes(second).candidates == from_bytes(first).candidates
    assert from_bytes(second).recommendation_id == from_bytes(first).recommendation_id
    found = [answer(tuning, number) for number in numbers]
    assert [(one.outcome, one.revision) for one in found] == [(RequestOutcome.RENEWED, 2)] * 2


def test_before_anything_is_known_the_answer_is_a_random_start(tuning: Tuning) -> None:
    tune = tuning.start()
    (number,) = ask(tuning, UNSEEN)
    tuning.run(tune)
    assert answer(tuning, number).outcome == RequestOutcome.PUBLISHED
    assert "nothing to predict from" in answer(tuning, number).reason
    assert tuning.said(UNSEEN).baseline == {"x": 1, "y": "a", "z": False}


def test_where_nothing_is_feasible_the_answer_says_so(tuning: Tuning) -> None:
    tune = knowing(tuning)
    (number,) = ask(tuning, 0)
    tuning.run(tune)
    found = answer(tuning, number)
    assert found.outcome == RequestOutcome.NOTHING
    assert "fits" in found.reason
    assert tuning.said(0).state is State.WITHDRAWN
    assert tuning.said(0).reason == found.reason
    assert [(key, revision) for key, revision, _ in tuning.outbox()] == [(tuning.key(0), 1)]
    (number,) = ask(tuning, 0, name="again")
    tuning.run(tune)
    assert answer(tuning, number).revision == 2


@pytest.mark.parametrize(
    ("mode", "outcome"), [("observe", RequestOutcome.OBSERVED), ("approve", RequestOutcome.PENDING)]
)
def test_a_study_that_does_not_publish_answers_those_who_look(
    tuning: Tuning, mode: str, outcome: RequestOutcome
) -> None:
    tuning.publish(mode=f'"{mode}"')
    tune = knowing(tuning)
    for name in ("a", "b"):
        (number,) = ask(tuning, UNSEEN, name=name)
        tuning.run(tune)
        found = answer(tuning, number)
        assert (found.outcome, found.revision) == (outcome, None)
        row = tuning.row(UNSEEN)
        assert from_bytes((row.proposal or row.value).encode()).recommendation_id == (
            found.recommendation_id
        )
    (number,) = ask(tuning, 0)
    tuning.run(tune)
    assert answer(tuning, number).outcome == RequestOutcome.NOTHING
    assert tuning.outbox() == []


def test_what_was_declined_is_not_proposed_to_who_asks(tuning: Tuning) -> None:
    tuning.publish(mode='"approve"')
    tune = knowing(tuning)
    (number,) = ask(tuning, UNSEEN)
    tuning.run(tune)
    wanted = {"context_key": tuning.key(UNSEEN)}
    proposed = answer(tuning, number).recommendation_id
    tuning.command("decline", recommendation_id=proposed, **wanted)
    tuning.run(tune)
    (number,) = ask(tuning, UNSEEN, name="again")
    tuning.run(tune)
    assert answer(tuning, number).outcome == RequestOutcome.NOTHING
    assert "declined" in answer(tuning, number).reason


def test_what_was_declined_once_is_no_reason_when_there_is_nothing_to_say(tuning: Tuning) -> None:
    tuning.publish(mode='"approve"', config='{ x = 1 }\nwhen = "n > 99"')
    tune, small = knowing(tuning), 1
    (number,) = ask(tuning, small)
    tuning.run(tune)
    proposed = answer(tuning, number).recommendation_id
    tuning.command("decline", recommendation_id=proposed, context_key=tuning.key(small))
    all_of_it = [
        structs.replace(one, status=Status.OUT_OF_MEMORY, metrics={})
        for one in random_jobs(40, first=61, sizes=(small,))
    ]
    tuning.add(all_of_it)
    tuning.run(tune)
    (number,) = ask(tuning, small, name="again")
    tuning.run(tune)
    assert answer(tuning, number).outcome == RequestOutcome.NOTHING
    assert "likely enough to run" in answer(tuning, number).reason


def test_a_paused_context_and_an_ended_study_say_why_they_are_silent(tuning: Tuning) -> None:
    tune = knowing(tuning)
    tuning.command("pause", context={"n": UNSEEN})
    tuning.run(tune)
    (number,) = ask(tuning, UNSEEN)
    tuning.run(tune)
    assert answer(tuning, number).outcome == RequestOutcome.NOTHING
    assert answer(tuning, number).reason == "Paused by an operator (command 1): because."
    assert tuning.said(UNSEEN).state is State.WITHDRAWN
    tuning.command("end")
    tuning.run(tune)
    (number,) = ask(tuning, 9)
    tuning.run(tune)
    assert answer(tuning, number).reason == "The study has ended."
    assert tuning.said(9).reason == "The study has ended."


def test_it_goes_first_and_what_waits_is_learned_all_the_same(tuning: Tuning) -> None:
    tune = knowing(tuning)
    tuning.add(random_jobs(200, seed=3, first=61))
    (number,) = ask(tuning, UNSEEN)
    assert tune.step()
    assert answer(tuning, number).outcome == RequestOutcome.PUBLISHED
    row = tuning.store.study(NAME)
    assert row is not None
    assert row.learned_sequence == 60
    ask(tuning, UNSEEN, name="again")
    assert tune.step()
    row = tuning.store.study(NAME)
    assert row is not None
    assert row.learned_sequence == 260


def test_asking_makes_a_context_active_and_it_is_forgotten_at_last(tuning: Tuning) -> None:
    tune = knowing(tuning)
    ask(tuning, UNSEEN)
    tuning.run(tune)
    tuning.add(random_jobs(400, seed=4, first=61))
    tuning.run(tune)
    searched = {key for step in tuning.store.steps(NAME, 50) for key in step.contexts}
    assert tuning.key(UNSEEN) in searched
    tuning.run(tune, days=29)
    assert tuning.said(UNSEEN).state is State.ACTIVE
    tuning.run(tune, days=2)
    assert tuning.said(UNSEEN).state is State.WITHDRAWN
    tuning.run(tune)
    tuning.run(tune)
    kept = {row.context_key for row in tuning.store.context_states(NAME)}
    assert tuning.key(UNSEEN) not in kept
    assert tuning.key(8) in kept
    (number,) = ask(tuning, UNSEEN, name="again")
    tuning.run(tune)
    assert answer(tuning, number).revision == tuning.said(UNSEEN).revision > 2


def test_a_new_generation_keeps_what_was_asked(tuning: Tuning) -> None:
    tune = knowing(tuning)
    ask(tuning, UNSEEN)
    tuning.run(tune)
    tuning.publish(explore_share="0.2")
    tuning.run(tune)
    assert tuning.said(UNSEEN).state is State.ACTIVE
    assert sum(one.share for one in tuning.said(UNSEEN).candidates) <= 0.2


STEPS = ["answer_request", "save_step", "enqueue", "save_recommendation", "save_context_states"]


@pytest.mark.parametrize("method", STEPS)
def test_a_crash_costs_a_repeat(
    tuning: Tuning, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tune = knowing(tuning)
    numbers = ask(tuning, UNSEEN, 0)
    with crash_in(monkeypatch, method), pytest.raises(CrashError):
        tune.step()
    assert tuning.store.requests_waiting() == {NAME: 2}
    assert tuning.outbox() == []
    tuning.run(tuning.start())
    assert [answer(tuning, number).outcome for number in numbers] == ["published", "nothing"]
    assert len(tuning.outbox()) == 2


def test_many_at_once_are_all_answered(tuning: Tuning) -> None:
    tune = knowing(tuning)
    numbers = ask(tuning, *range(1, 301))
    tuning.run(tune)
    assert {answer(tuning, number).outcome for number in numbers} <= {"published", "renewed"}
    assert {key for key, _, _ in tuning.outbox()} == {tuning.key(n) for n in range(1, 301)}


# -- the requests stage ---------------------------------------------------------------------


def event(name: str, **changes: Any) -> bytes:
    given = {
        "schema": "tunerd.request/1",
        "source": "s",
        "event_id": name,
        "study": NAME,
        "context": {"n": UNSEEN},
    }
    return json.dumps(given | changes).encode()


@pytest.fixture
def stream() -> FakeStream:
    return FakeStream()


@pytest.fixture
def stage(tuning: Tuning, stream: FakeStream, time: Time, heard: Heard) -> RequestStage:
    return requests_stage(tuning, stream, time, heard)


def requests_stage(tuning: Tuning, stream: FakeStream, time: Time, heard: Heard) -> RequestStage:
    settings = IngestSettings()
    return RequestStage(
        stream, tuning.store, TOPICS, "group", settings, heard, time.now, time.clock
    )


def test_requests_are_kept_and_rubbish_is_rejected(
    tuning: Tuning, stage: RequestStage, stream: FakeStream, heard: Heard
) -> None:
    other = event("a", context={"n": 1})
    unknown = event("c", study="toi")
    old = event("d", requested_at=datetime(2020, 1, 1, tzinfo=UTC).isoformat())
    stream.write(event("a"), b"{", event("a"), other, unknown, old, event("b"))
    assert stage.step()
    assert not stage.step()
    assert [row.request.event_id for row in tuning.store.requests()] == ["a", "b"]
    waiting = tuning.store.unsent(10)
    reasons = {bytes(m.value or b""): dict(m.headers)["reason"].decode() for m in waiting}
    assert all(message.topic == "rejected" for message in waiting)
    assert reasons[other].startswith("event_id")
    assert "did you mean 'toy'" in reasons[unknown]
    assert reasons[old].startswith("requested_at")
    assert len(reasons) == 4
    (told,) = heard.of(telemetry.RequestsIngested)
    assert (told.accepted, told.duplicates, sum(told.rejected.values())) == ({NAME: 2}, 1, 4)
    (position,) = tuning.store.positions()
    assert position.offset == 7


@pytest.mark.parametrize("method", ["add_requests", "expect_position", "enqueue"])
def test_a_crash_of_the_stage_costs_a_repeat(
    tuning: Tuning,
    stream: FakeStream,
    time: Time,
    heard: Heard,
    method: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream.write(event("a"), b"{")
    stage = requests_stage(tuning, stream, time, heard)
    with crash_in(monkeypatch, method), pytest.raises(CrashError):
        stage.step()
    assert tuning.store.requests() == []
    again = requests_stage(tuning, stream, time, heard)
    assert again.step()
    assert [row.request.event_id for row in tuning.store.requests()] == ["a"]
    assert len(tuning.store.unsent(10)) == 1
