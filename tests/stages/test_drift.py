"""Drift, from a step of the tune stage to whoever wants to know."""

import json

import msgspec
import pytest
from msgspec import structs

from tests.core.drift.test_acting import CHANGE, slowed
from tests.stages.fakes import CrashError, crash_in
from tests.stages.tuning import Tuning
from tunerd import telemetry
from tunerd.core.drift import Drift
from tunerd.events.drift import DriftEvent
from tunerd.metrics import MetricsExporter
from tunerd.stages.drift_events import follow_shift


@pytest.fixture
def tuning(tuning: Tuning) -> Tuning:
    tuning.publish(mode='"observe"')
    return tuning


def test_it_is_told_once_however_often_the_tuner_dies(tuning: Tuning) -> None:
    jobs = slowed(CHANGE + 220)
    for start in range(0, len(jobs), 20):
        tuning.add([structs.replace(job, sequence=0) for job in jobs[start : start + 20]])
        tuning.run(tuning.start() if start % 60 == 0 else tuning.made[-1])
    waiting = [one for one in tuning.store.unsent(1000) if one.kind == "drift"]
    assert all((one.topic, one.key) == ("tunerd.drift", b"toy") for one in waiting)
    events = [msgspec.json.decode(one.value or b"", type=DriftEvent) for one in waiting]
    assert [(one.phase, one.kind) for one in events] == [("began", "speed"), ("over", "speed")]
    began, over = events
    assert began.context_keys == (tuning.key(8),)
    assert began.size == pytest.approx(-1 / 3, abs=0.04)
    assert CHANGE < began.since.sequence <= began.noticed.sequence < CHANGE + 60
    assert over.drift_id == began.drift_id
    assert [line["message"] for line in tuning.lines.of("drift")] == [
        began.message,
        over.message,
    ]
    assert {one.kind: one.message_id for one in waiting}["drift"] == over.event_id

    metrics = MetricsExporter()
    for report in tuning.heard.reports:
        metrics.hear(report)
    text = metrics.render()[0].decode()
    assert 'tunerd_drifts_total{kind="speed",study="toy"} 1.0' in text
    assert 'tunerd_drifting{kind="speed",study="toy"} 0.0' in text
    most = max(one.drifting.get("speed", 0) for one in tuning.heard.of(telemetry.StepCommitted))
    assert most == 1


def test_status_says_it_while_it_lasts(tuning: Tuning) -> None:
    from tunerd.queries.study_status import drifts

    tune = tuning.start()
    for jobs in (slowed(CHANGE), slowed(CHANGE + 40)[CHANGE:]):
        tuning.add([structs.replace(job, sequence=0) for job in jobs])
        tuning.run(tune)
    saved, generation = tuning.store.study_state("toy"), tuning.store.generation("toy")
    assert saved is not None
    (told,) = drifts(generation, saved.state)
    assert told["context_keys"] == [tuning.key(8)]
    assert "worse in toy|n=8" in told["message"]
    json.dumps(told, default=str)

    (active,) = saved.state["tuner"]["watch"]["active"]
    first = Drift.load(active["drift"])
    assert first.moved is not None
    # Back to what it was.
    later = structs.replace(first, since=400, noticed=409, moved=-first.moved)
    active["drift"] = first.again(later).dump()
    (again,) = drifts(generation, saved.state)
    assert (again["drift_id"], again["since"]["sequence"]) == (told["drift_id"], 400)
    assert "better in toy|n=8, since job 400, " in again["message"]
    assert "; it changed again, seen with job 409. Asked again in toy|n=8: " in again["message"]
    assert again["noticed"]["sequence"] == 409


def test_a_new_generation_ends_what_it_does_not_watch_any_more(tuning: Tuning) -> None:
    """Its watch begins anew: nobody would ever say that it is over."""
    tune = tuning.start()
    for jobs in (slowed(CHANGE), slowed(CHANGE + 40)[CHANGE:]):
        tuning.add([structs.replace(job, sequence=0) for job in jobs])
        tuning.run(tune)
    tuning.publish(mode='"observe"', keep="31")
    with crash_in(pytest.MonkeyPatch(), "mark_learned"), pytest.raises(CrashError):
        tuning.run(tune)
    tuning.run(tuning.start())
    tuning.run(tuning.start())
    waiting = [one for one in tuning.store.unsent(1000) if one.kind == "drift"]
    began, over = (msgspec.json.decode(one.value or b"", type=DriftEvent) for one in waiting)
    assert (began.phase, over.phase) == ("began", "over")
    assert over.drift_id == began.drift_id
    assert over.message.endswith("over. What is usual is learned anew.")
    assert over.noticed.sequence == CHANGE + 40


def test_a_shift_that_a_new_forecaster_tells_again_is_over_once() -> None:
    """It tells the same shift some hours later: that is no news, and no reason to begin anew."""
    kept, phase = follow_shift(None, 1_000.0, True, 1_000.0)
    assert phase == "began"
    again_s = 1_000.0 + 3 * 3600.0
    phases = []
    for step in range(900):
        now_s = again_s + 300.0 * step
        kept, phase = follow_shift(kept, again_s, True, now_s)
        if phase is not None:
            phases.append(phase)
        if phase == "over":
            kept = None
    assert phases == ["over"]
