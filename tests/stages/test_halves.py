"""Halves through ingest: what waits, what is joined, and what a crash costs."""

import json
from datetime import timedelta
from typing import Any

import pytest

from tests.stages.fakes import CrashError, FakeStream, Heard, Time, crash_in
from tests.stages.test_ingest import TOPICS
from tunerd import telemetry
from tunerd.core.observation import CorrectedObservation, Observation, Status, effective
from tunerd.settings.model import IngestSettings
from tunerd.stages.ingest import IngestStage
from tunerd.store import Store, WaitingAttempt

STUDY = "llm"
BEGAN, REPORTED = "2026-11-20T05:00:00+00:00", "2026-11-20T08:00:00+00:00"
FILE = """
schema = 1
name = "llm"
[objective]
metric = "tps"
goal = "maximize"
unit = "tokens/s"
[context]
n = { type = "int" }
[parameters]
tp = { type = "int", values = [1, 2, 4, 8] }
"""


@pytest.fixture
def stream() -> FakeStream:
    return FakeStream()


@pytest.fixture
def ingest(stream: FakeStream, store: Store, time: Time, heard: Heard) -> IngestStage:
    publish(store, time)
    return stage(stream, store, time, heard)


def stage(
    stream: FakeStream, store: Store, time: Time, heard: Heard, **settings: Any
) -> IngestStage:
    made = IngestSettings(**settings)
    return IngestStage(stream, store, TOPICS, "group", made, heard, time.now, time.clock)


def publish(store: Store, time: Time, text: str = FILE) -> None:
    store.publish_generation(STUDY, f"sha256:{hash(text)}", text, "test", time.now())


def half(kind: str, job: str = "1", **fields: Any) -> bytes:
    attempt = fields.get("attempt", 1)
    event = {
        "schema": "tunerd.job/1",
        "type": kind,
        "source": "torch/a" if kind == "reported" else "slurm/a",
        "event_id": f"{job}/{attempt}",
        "job_id": job,
    }
    return json.dumps(event | fields).encode()


def start(job: str = "1", **fields: Any) -> bytes:
    known = {"study": STUDY, "context": {"n": 8}, "config": {"tp": 4}}
    return half("started", job, **{"started_at": BEGAN} | known | fields)


def report(job: str = "1", speed: float | None = 100.0, steps: int = 10, **fields: Any) -> bytes:
    known = {"metrics": {"tps": speed}, "steps": steps, "event_id": f"{job}/{steps}"}
    return half("reported", job, **{"reported_at": REPORTED} | known | fields)


def end(time: Time, job: str = "1", status: str = "succeeded", **fields: Any) -> bytes:
    finished = (time.now() - timedelta(minutes=1)).isoformat()
    return half("completed", job, status=status, **{"finished_at": finished} | fields)


def history(store: Store) -> list[Observation]:
    found = store.observations(STUDY, limit=10_000)
    assert [one.sequence for one in found] == list(range(1, len(found) + 1))
    return found


def waiting(store: Store) -> list[WaitingAttempt]:
    return store.waiting_attempts()


def run(ingest: IngestStage) -> None:
    while ingest.step():
        pass


def test_halves_become_one_observation(
    ingest: IngestStage, stream: FakeStream, store: Store, time: Time, heard: Heard
) -> None:
    stream.write(start(user="anna", recommendation_id="r-1"), report(measured_s=60.5))
    run(ingest)
    assert history(store) == []
    (one,) = waiting(store)
    assert (one.cluster, one.job_id, one.attempt, one.study) == ("a", "1", 1, STUDY)
    assert one.missing == ("completed",)
    stream.write(end(time, gpus=8))
    run(ingest)
    (seen,) = history(store)
    assert (seen.study, seen.source, seen.job_id, seen.attempt) == (STUDY, "a", "1", 1)
    assert seen.status is Status.SUCCEEDED
    assert (seen.context, seen.config, seen.metrics) == ({"n": 8}, {"tp": 4}, {"tps": 100.0})
    assert (seen.user, seen.gpus, seen.measured_s) == ("anna", 8, 60.5)
    assert seen.recommendation_id == "r-1"
    assert waiting(store) == []
    told = heard.of(telemetry.BatchIngested)
    assert [(one.halves, one.joined) for one in told] == [(2, {}), (1, {"ended": 1})]


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize(
    "order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (2, 0, 1), (0, 2, 1), (1, 2, 0)]
)
def test_the_order_does_not_matter(
    ingest: IngestStage,
    stream: FakeStream,
    store: Store,
    time: Time,
    order: tuple[int, ...],
    together: bool,
) -> None:
    halves = [start(), report(), end(time)]
    for place in order:
        stream.write(halves[place])
        if not together:
            run(ingest)
    run(ingest)
    (seen,) = history(store)
    assert (seen.status, seen.metrics) == (Status.SUCCEEDED, {"tps": 100.0})


def test_repeats_are_dropped_and_counted(
    ingest: IngestStage, stream: FakeStream, store: Store, time: Time, heard: Heard
) -> None:
    whole = [start(), report(), end(time)]
    stream.write(start(), *whole, *whole)
    run(ingest)
    stream.write(*whole)
    run(ingest)
    assert len(history(store)) == 1
    assert sum(one.duplicates for one in heard.of(telemetry.BatchIngested)) == 7
    assert store.unsent(10) == []


def test_an_id_with_other_content_is_a_conflict(
    ingest: IngestStage, stream: FakeStream, store: Store
) -> None:
    stream.write(start(), start(config={"tp": 8}))
    run(ingest)
    (refused,) = store.unsent(10)
    assert refused.value == stream.events[1].value
    assert dict(refused.headers)["reason"].startswith(b"event_id: the text '1/1'")


def test_requeues_arrays_and_components_are_attempts_of_their_own(
    ingest: IngestStage, stream: FakeStream, store: Store, time: Time
) -> None:
    stream.write(
        start(),
        start(attempt=2, config={"tp": 8}),
        start("1_3"),
        start("1+0"),
        end(time, status="preempted"),
        report(attempt=2, event_id="r2"),
        report("1_3"),
        end(time, attempt=2),
        end(time, "1_3"),
        end(time, "1+0", status="out_of_memory"),
    )
    run(ingest)
    seen = {(one.job_id, one.attempt): one for one in history(store)}
    assert len(seen) == 4
    assert seen["1", 1].status is Status.PREEMPTED
    assert seen["1", 2].config == {"tp": 8}
    assert seen["1_3", 1].metrics == {"tps": 100.0}
    assert seen["1+0", 1].status is Status.OUT_OF_MEMORY
    assert waiting(store) == []


def test_clusters_are_told_apart(
    ingest: IngestStage, stream: FakeStream, store: Store, time: Time
) -> None:
    stream.write(start(), report(cluster="b"), end(time))
    run(ingest)
    assert history(store) == []
    assert {(one.cluster, one.missing) for one in waiting(store)} == {
        ("a", ("reported",)),
        ("b", ("study", "context", "config", "completed")),
    }


def test_halves_of_a_cluster_without_a_name_are_joined(
    ingest: IngestStage, stream: FakeStream, store: Store, time: Time
) -> None:
    begun, measured = start(source="slurm/"), report(source="trainer/", cluster="")
    stream.write(begun, measured, end(time, source="sacct/"))
    run(ingest)
    (job,) = history(store)
    assert (job.metrics, job.status) == ({"tps": 100.0}, Status.SUCCEEDED)
    assert waiting(store) == []


def test_the_report_with_the_most_steps_counts(
    ingest: IngestStage, stream: FakeStream, store: Store, time: Time
) -> None:
    stream.write(start(), report(speed=90.0, steps=50), report(speed=70.0, steps=20), end(time))
    run(ingest)
    (seen,) = history(store)
    assert seen.metrics == {"tps": 90.0}
    assert seen.extra["steps"] == 50


def test_a_failure_counts_at_once_and_a_late_report_corrects_it(
    ingest: IngestStage, stream: FakeStream, store: Store, time: Time
) -> None:
    stream.write(start(), end(time, status="timeout"))
    run(ingest)
    (first,) = history(store)
    assert (first.status, first.metrics) == (Status.TIMEOUT, {})
    stream.write(report())
    run(ingest)
    found = history(store)
    assert isinstance(found[1], CorrectedObservation)
    assert found[1].earlier == first
    (counts,) = effective(found)
    assert (counts.status, counts.metrics) == (Status.TIMEOUT, {"tps": 100.0})
    assert waiting(store) == []


def test_a_running_job_counts_once_and_its_end_corrects_it(
    ingest: IngestStage, stream: FakeStream, store: Store, time: Time, heard: Heard
) -> None:
    soon = "2026-11-20T05:59:00+00:00"
    stream.write(start(), report(steps=99), report(steps=100, event_id="r", reported_at=soon))
    run(ingest)
    assert history(store) == []
    stream.write(report(speed=120.0, steps=101))
    run(ingest)
    stream.write(report(speed=125.0, steps=200))
    run(ingest)
    (running,) = history(store)
    assert (running.status, running.metrics) == (Status.RUNNING, {"tps": 120.0})
    assert running.finished_at.isoformat() == REPORTED
    assert [one.counts for one in waiting(store)] == [True]
    stream.write(end(time, status="out_of_memory"))
    run(ingest)
    found = history(store)
    assert isinstance(found[1], CorrectedObservation)
    assert found[1].earlier == running
    (counts,) = effective(found)
    assert (counts.status, counts.metrics) == (Status.OUT_OF_MEMORY, {"tps": 125.0})
    joined = [one.joined for one in heard.of(telemetry.BatchIngested) if one.joined]
    assert joined == [{"running": 1}, {"corrected": 1}]


def test_a_running_job_that_was_pruned_meanwhile_counts_anew_when_it_ends(
    ingest: IngestStage, stream: FakeStream, store: Store, time: Time
) -> None:
    stream.write(start(), report(speed=120.0, steps=101))
    run(ingest)
    (running,) = history(store)
    with store.transaction() as tx:
        tx.lock_prunings(STUDY, time.now())
        assert tx.prune_jobs(STUDY, [running.sequence], time.now()) == 1
    stream.write(end(time))
    run(ingest)
    (ended,) = store.observations(STUDY)
    assert not isinstance(ended, CorrectedObservation)
    assert (ended.sequence, ended.status) == (2, Status.SUCCEEDED)


@pytest.mark.parametrize("options", ["counts = false", "min_steps = 1001", "min_hours = 4"])
def test_a_study_can_wait_for_the_end(
    ingest: IngestStage, stream: FakeStream, store: Store, time: Time, options: str
) -> None:
    publish(store, time, f"{FILE}\n[running]\n{options}\n")
    stream.write(start(), report(steps=1000))
    run(ingest)
    assert history(store) == []
    stream.write(end(time))
    run(ingest)
    assert [one.status for one in history(store)] == [Status.SUCCEEDED]


def test_what_misses_a_half_for_long_is_incomplete_and_a_late_half_joins_it(
    ingest: IngestStage, stream: FakeStream, store: Store, time: Time
) -> None:
    stream.write(start(), end(time), start("2"))
    run(ingest)
    time.pass_(days=8)
    before = time.now() - timedelta(days=7)
    counts = store.attempt_counts(before)
    assert (counts.waiting, counts.incomplete) == (0, 2)
    assert [one.missing for one in store.waiting_attempts(before=before)] == [
        ("reported",),
        ("reported", "completed"),
    ]
    stream.write(report())
    run(ingest)
    assert len(history(store)) == 1
    assert store.attempt_counts(before).incomplete == 1


def test_a_joined_attempt_is_forgotten_after_a_day_and_stays_joined_once(
    ingest: IngestStage, stream: FakeStream, store: Store, time: Time, heard: Heard
) -> None:
    whole = [start(), report(), end(time)]
    stream.write(*whole)
    run(ingest)
    time.pass_(days=2)
    run(ingest)  # tidies
    stream.write(report(speed=50.0, steps=1000), *whole)
    run(ingest)
    assert [one.metrics for one in history(store)] == [{"tps": 100.0}]
    assert waiting(store) == []
    assert sum(one.duplicates for one in heard.of(telemetry.BatchIngested)) == 4


def test_an_incomplete_attempt_is_forgotten_in_the_end(
    ingest: IngestStage, stream: FakeStream, store: Store, time: Time
) -> None:
    stream.write(start())
    run(ingest)
    time.pass_(days=96)
    run(ingest)
    assert len(waiting(store)) == 1
    time.pass_(days=2)
    stream.write(start("2"))
    run(ingest)  # also while there is work
    assert [one.job_id for one in waiting(store)] == ["2"]


def test_what_is_damaged_is_forgotten_and_the_others_go_on(
    ingest: IngestStage, stream: FakeStream, store: Store, time: Time
) -> None:
    stream.write(start(), report(), start("2"))
    run(ingest)
    with store.transaction() as tx:
        row = tx.take_attempts([("a", "1", 1)], time.now())["a", "1", 1]
        row.halves = '{"parts": [[1,'
        tx.save_attempts([row])
    stream.write(end(time), report("2"), end(time, "2"))
    run(ingest)
    assert [one.job_id for one in history(store)] == ["2"]
    assert [one.missing[0] for one in waiting(store)] == ["study"]


def test_halves_come_as_cloudevents_too(
    ingest: IngestStage, stream: FakeStream, store: Store, time: Time
) -> None:
    for number, value in enumerate((start(), report(), end(time))):
        data = {k: v for k, v in json.loads(value).items() if k not in ("event_id", "source")}
        event = {"specversion": "1.0", "id": f"{number}", "source": "slurm/a", "data": data}
        stream.write(json.dumps(event).encode())
    run(ingest)
    assert [one.source for one in history(store)] == ["a"]


def test_an_unknown_study_is_rejected_where_a_half_names_it(
    ingest: IngestStage, stream: FakeStream, store: Store
) -> None:
    stream.write(start(study="lm"), report())
    run(ingest)
    (refused,) = store.unsent(10)
    assert dict(refused.headers)["reason"] == (
        b"study: no study is called 'lm'; did you mean 'llm'?"
    )
    assert [one.missing[0] for one in waiting(store)] == ["study"]


def test_an_attempt_is_no_larger_than_an_event(
    ingest: IngestStage, stream: FakeStream, store: Store, time: Time
) -> None:
    labels = [{f"{n}-{i}": "x" * 1_000 for i in range(150)} for n in range(2)]
    stream.write(start(labels=labels[0]), report(labels=labels[1]), report(), end(time))
    run(ingest)
    (refused,) = store.unsent(10)
    reason = b"value: with it the halves of this attempt are more than 256 KiB"
    assert dict(refused.headers)["reason"] == reason
    assert len(history(store)) == 1


def test_there_is_room_for_so_many_attempts(
    stream: FakeStream, store: Store, time: Time, heard: Heard
) -> None:
    publish(store, time)
    ingest = stage(stream, store, time, heard, max_waiting_attempts=3)
    stream.write(*(start(str(n)) for n in range(3)))
    run(ingest)
    stream.write(start("3"), report("0"), end(time, "0"))
    run(ingest)
    (refused,) = store.unsent(10)
    assert dict(refused.headers)["reason"].startswith(b"job_id: 3 attempts wait")
    assert len(history(store)) == 1
    time.pass_(minutes=1)
    stream.write(start("3"))
    run(ingest)
    assert len(waiting(store)) == 3


@pytest.mark.parametrize(
    "where", ["take_attempts", "add_observations", "save_attempts", "enqueue", "expect_position"]
)
def test_a_crash_loses_and_doubles_nothing(
    stream: FakeStream,
    store: Store,
    time: Time,
    heard: Heard,
    where: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    publish(store, time)
    first = stage(stream, store, time, heard)
    stream.write(start())
    run(first)
    stream.write(report(), end(time), start("2"))
    with crash_in(monkeypatch, where), pytest.raises(CrashError):
        run(first)
    assert history(store) == []
    run(stage(stream, store, time, heard))
    assert len(history(store)) == 1
    assert [one.job_id for one in waiting(store)] == ["2"]
