"""Ingest, step by step: what a batch leaves in the store, and what trouble costs."""

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.broken_events import good_event
from tests.stages.fakes import CrashError, FakeStream, Heard, Time, crash_in
from tunerd import telemetry
from tunerd.errors import StoreUnavailableError
from tunerd.settings.model import IngestSettings, TopicSettings
from tunerd.stages.ingest import STUDIES_AGE_S, IngestStage
from tunerd.store import OutboxMessage, Store
from tunerd.streams.base import StreamPosition

STUDY = "llm-pretrain"
TOPICS = TopicSettings(jobs="jobs", recommendations="recommendations", rejected="rejected")


@pytest.fixture
def stream() -> FakeStream:
    return FakeStream()


@pytest.fixture
def ingest(stream: FakeStream, store: Store, time: Time, heard: Heard) -> IngestStage:
    add_study(store, time)
    return stage(stream, store, time, heard)


def stage(
    stream: FakeStream, store: Store, time: Time, heard: Heard, most: int = 500
) -> IngestStage:
    """The stage, as a process that has just started has it."""
    settings = IngestSettings(batch_records=most)
    return IngestStage(stream, store, TOPICS, "group", settings, heard, time.now, time.clock)


def add_study(store: Store, time: Time, name: str = STUDY) -> None:
    store.publish_generation(name, f"sha256:{name}", "text", "test", time.now())


def event(time: Time, name: str, **changes: Any) -> bytes:
    return json.dumps(good_event(name, time.now(), **changes)).encode()


def names(store: Store, study: str = STUDY) -> list[str]:
    """Event ids in history, which must have dense sequences."""
    found = store.observations(study, limit=10_000)
    assert [one.sequence for one in found] == list(range(1, len(found) + 1))
    return [one.event_id for one in found]


def refused(store: Store) -> list[tuple[bytes | None, str]]:
    """Values and reasons in the outbox."""
    return [(one.value, header(one, "reason")) for one in store.unsent(1000)]


def header(message: OutboxMessage, name: str) -> str:
    return dict(message.headers)[name].decode()


def position(store: Store) -> int:
    (only,) = store.positions()
    return only.offset


# -- what a batch leaves --------------------------------------------------------------------


def test_nothing_to_read_is_no_work(ingest: IngestStage, stream: FakeStream, store: Store) -> None:
    assert ingest.lag() is None
    assert not ingest.step()
    assert store.positions() == []
    assert ingest.lag() == 0
    stream.write(b"{}")
    assert ingest.lag() == 1


def test_events_become_history_and_rubbish_a_rejection(
    ingest: IngestStage, stream: FakeStream, store: Store, time: Time, heard: Heard
) -> None:
    stream.write(event(time, "a"), b"\xff\xfe", event(time, "b", metrics={"x": 1.5}), b"")
    assert ingest.step()
    assert names(store) == ["a", "b"]
    assert store.observations(STUDY)[1].metrics == {"x": 1.5}
    assert [value for value, _ in refused(store)] == [b"\xff\xfe", b""]
    assert all(one.topic == "rejected" for one in store.unsent(10))
    assert position(store) == 4
    (told,) = heard.of(telemetry.BatchIngested)
    assert told.accepted == {STUDY: 2}
    assert sum(told.rejected.values()) == 2
    assert not ingest.step()


def test_positions_are_told_to_the_broker_after_the_commit(
    ingest: IngestStage, stream: FakeStream, store: Store, time: Time
) -> None:
    stream.write(event(time, "a"), event(time, "b"))
    ingest.step()
    assert stream.sources[0].committed == store.positions()


def test_a_duplicate_is_dropped_and_a_conflict_rejected(
    ingest: IngestStage, stream: FakeStream, store: Store, time: Time, heard: Heard
) -> None:
    stream.write(event(time, "a"), event(time, "a"))
    ingest.step()
    other = event(time, "a", metrics={"tokens_per_second_per_gpu": 1.0})
    stream.write(event(time, "a"), other, event(time, "b"))
    ingest.step()
    assert names(store) == ["a", "b"]
    ((value, reason),) = refused(store)
    assert value == other
    assert reason.startswith("event_id")
    assert [
        (one.duplicates, sum(one.rejected.values())) for one in heard.of(telemetry.BatchIngested)
    ] == [
        (1, 0),
        (1, 1),
    ]


def test_the_same_id_of_another_source_is_another_event(
    ingest: IngestStage, stream: FakeStream, store: Store, time: Time
) -> None:
    stream.write(event(time, "a"), event(time, "a", source="slurm/cluster-b"))
    ingest.step()
    assert names(store) == ["a", "a"]


def test_an_unknown_study_is_rejected_with_a_reason_and_known_soon_after_it_exists(
    ingest: IngestStage, stream: FakeStream, store: Store, time: Time
) -> None:
    stream.write(event(time, "a", study="llm-pretrian"), event(time, "b"))
    ingest.step()
    ((_, reason),) = refused(store)
    assert reason.startswith("study")
    assert "llm-pretrian" in reason
    assert names(store) == ["b"]
    add_study(store, time, "ads")
    time.pass_(seconds=STUDIES_AGE_S + 0.1)
    stream.write(event(time, "c", study="ads"))
    ingest.step()
    assert names(store, "ads") == ["c"]


def test_several_studies_in_one_batch_have_sequences_of_their_own(
    ingest: IngestStage, stream: FakeStream, store: Store, time: Time
) -> None:
    add_study(store, time, "ads")
    for i in range(10):
        stream.write(event(time, f"e{i}", study="ads" if i % 3 else STUDY))
    ingest.step()
    assert len(names(store, "ads")) == 6
    assert len(names(store)) == 4


def test_a_batch_is_no_larger_than_asked(
    stream: FakeStream, store: Store, time: Time, heard: Heard
) -> None:
    add_study(store, time)
    ingest = stage(stream, store, time, heard, most=3)
    stream.write(*[event(time, f"e{i}") for i in range(7)])
    assert [ingest.step() for _ in range(4)] == [True, True, True, False]
    assert len(names(store)) == 7


# -- trouble --------------------------------------------------------------------------------


def test_a_batch_waits_for_a_store_that_is_away_and_is_not_read_again(
    ingest: IngestStage,
    stream: FakeStream,
    store: Store,
    time: Time,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream.write(event(time, "a"), b"rubbish")

    def gone() -> StoreUnavailableError:
        return StoreUnavailableError("the disk is full")

    for method in ("expect_position", "add_observations", "enqueue"):
        with crash_in(monkeypatch, method, gone), pytest.raises(StoreUnavailableError):
            ingest.step()
        assert store.positions() == []
        assert names(store) == []
    assert stream.sources[0].committed == []
    stream.write(event(time, "b"))
    assert ingest.step()
    assert stream.sources[0].polls == 1
    assert names(store) == ["a"]
    ingest.step()
    assert names(store) == ["a", "b"]
    assert len(refused(store)) == 1


def test_a_crash_before_the_commit_reads_again_and_one_after_it_goes_on(
    ingest: IngestStage,
    stream: FakeStream,
    store: Store,
    time: Time,
    heard: Heard,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream.write(event(time, "a"), b"rubbish", event(time, "b"))
    with crash_in(monkeypatch, "enqueue"), pytest.raises(CrashError):
        ingest.step()
    again = stage(stream, store, time, heard)
    again.step()
    third = stage(stream, store, time, heard)
    stream.write(event(time, "c"))
    third.step()
    assert not third.step()
    assert names(store) == ["a", "b", "c"]
    assert len(refused(store)) == 1


def test_who_lost_the_partition_writes_nothing_and_reads_again_from_the_store(
    ingest: IngestStage, stream: FakeStream, store: Store, time: Time, heard: Heard
) -> None:
    stream.write(event(time, "a"))
    ingest.step()
    stream.write(event(time, "b"), event(time, "c"))
    other = stage(stream, store, time, heard, most=1)
    other.step()
    assert ingest.step()  # it believes to read b and c
    assert names(store) == ["a", "b"]
    assert stream.sources[0].resets == 1
    assert ingest.step()
    assert names(store) == ["a", "b", "c"]
    assert stream.sources[0].resets == 1


def test_a_commit_that_took_place_although_it_seemed_to_fail_is_not_repeated(
    ingest: IngestStage,
    stream: FakeStream,
    store: Store,
    time: Time,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream.write(event(time, "a"), b"rubbish")
    transaction = store.transaction

    def breaks() -> Any:
        class Broken:
            def __enter__(self) -> Any:
                self.inner = transaction()
                return self.inner.__enter__()

            def __exit__(self, *error: Any) -> None:
                self.inner.__exit__(*error)
                raise StoreUnavailableError("the connection broke during the commit")

        return Broken()

    with monkeypatch.context() as patched:
        patched.setattr(store, "transaction", breaks)
        with pytest.raises(StoreUnavailableError):
            ingest.step()
    assert ingest.step()
    assert not ingest.step()
    assert names(store) == ["a"]
    assert len(refused(store)) == 1


def test_a_topic_made_anew_starts_at_its_beginning_and_drops_what_is_known(
    ingest: IngestStage, stream: FakeStream, store: Store, time: Time, heard: Heard
) -> None:
    stream.write(event(time, "a"), event(time, "b"))
    ingest.step()
    # The source has noticed that the fingerprint is another's, and begins at 0.
    stream.events.clear()
    stream.write(event(time, "b"), event(time, "c"))
    stream.sources[0].at = 0
    assert ingest.step()
    assert names(store) == ["a", "b", "c"]
    assert heard.of(telemetry.BatchIngested)[-1].duplicates == 1


def test_rejections_have_ids_that_name_their_place(
    ingest: IngestStage, stream: FakeStream, store: Store
) -> None:
    stream.write(b"rubbish", b"rubbish")
    ingest.step()
    ids = [one.message_id for one in store.unsent(10)]
    assert ids == ["cluster-1/jobs/0/0", "cluster-1/jobs/0/1"]


def test_closing_leaves_the_group(ingest: IngestStage, stream: FakeStream, store: Store) -> None:
    stream.write(b"rubbish")
    ingest.step()
    ingest.close()
    assert stream.sources[0].closed
    ingest.close()
    stored = store.positions()[0]
    assert replace(stored, fingerprint="") == StreamPosition("cluster-1", "jobs", "0", 1, "")
