"""Publish, step by step: everything once, the newest only, whatever fails in between."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.contracts.store_data import STUDY, add_study, message, recommended
from tests.stages.fakes import CrashError, FakeStream, Heard, ListSink, Time, away, crash_in
from tunerd import telemetry
from tunerd.errors import (
    FencedOutError,
    StoreBehindError,
    StoreUnavailableError,
    StreamUnavailableError,
)
from tunerd.settings.model import PublishSettings, TopicSettings
from tunerd.stages.publish import BACK_S, CLOCKS, PublishStage
from tunerd.store import OutboxMessage, RecommendationRow, Store


@pytest.fixture
def stream() -> FakeStream:
    return FakeStream()


@pytest.fixture
def publish(stream: FakeStream, store: Store, time: Time, heard: Heard) -> PublishStage:
    add_study(store)
    return stage(stream, store, time, heard)


def stage(
    stream: FakeStream, store: Store, time: Time, heard: Heard, most: int = 500
) -> PublishStage:
    """The stage, as a process that has just started has it."""
    settings = PublishSettings(batch_messages=most)
    topics = TopicSettings(recommendations="recommendations", rejected="rejected")
    return PublishStage(stream, store, settings, topics, "tunerd", heard, time.now, time.clock)


def enqueue(store: Store, time: Time, *messages: OutboxMessage) -> None:
    with store.transaction() as tx:
        tx.enqueue(*[replace(one, created_at=time.now()) for one in messages])


def sent(stream: FakeStream) -> list[tuple[bytes | None, bytes | None]]:
    return [(one.key, one.value) for one in stream.sent]


def test_what_waits_is_sent_in_order_and_marked(
    publish: PublishStage, stream: FakeStream, store: Store, time: Time, heard: Heard
) -> None:
    assert not publish.step()
    enqueue(store, time, recommended("a", 1), message("r", headers=(("reason", b"no"),)))
    enqueue(store, time, recommended("b", 1))
    assert publish.step()
    assert sent(stream) == [(b"a", b"1"), (None, b"r"), (b"b", b"1")]
    assert stream.sent[1].headers == (("reason", b"no"),)
    assert stream.sinks[0].role == "tunerd"
    assert store.unsent(10) == []
    assert heard.of(telemetry.MessagesPublished)[0].messages == {"recommendation": 2, "rejected": 1}
    assert not publish.step()


def test_only_the_newest_revision_of_a_key_goes_out(
    publish: PublishStage, stream: FakeStream, store: Store, time: Time
) -> None:
    enqueue(store, time, recommended("a", 1), recommended("b", 1))
    enqueue(store, time, recommended("a", 2))
    enqueue(store, time, recommended("a", 3, value=None))
    publish.step()
    assert sent(stream) == [(b"b", b"1"), (b"a", None)]


def test_a_store_that_was_restored_under_it_has_nothing_older_sent(
    publish: PublishStage, stream: FakeStream, store: Store, time: Time
) -> None:
    enqueue(store, time, recommended("a", 5), recommended("b", 1))
    assert publish.step()
    enqueue(store, time, recommended("b", 2), recommended("a", 2))
    for _ in range(2):
        with pytest.raises(StoreBehindError, match=r"\(a: 5\).*tunerd recover"):
            publish.step()
    assert sent(stream) == [(b"a", b"5"), (b"b", b"1")]


def test_a_key_that_was_freed_may_begin_anew(
    publish: PublishStage, stream: FakeStream, store: Store, time: Time
) -> None:
    for one in (recommended("a", 5), replace(recommended("a", 6), value=None), recommended("a", 1)):
        enqueue(store, time, one)
        assert publish.step()
    assert sent(stream) == [(b"a", b"5"), (b"a", None), (b"a", b"1")]


def test_a_batch_is_no_larger_than_asked(
    stream: FakeStream, store: Store, time: Time, heard: Heard
) -> None:
    publish = stage(stream, store, time, heard, most=2)
    enqueue(store, time, *[message(f"m{i}") for i in range(5)])
    assert [publish.step() for _ in range(4)] == [True, True, True, False]
    assert [value for _, value in sent(stream)] == [b"m0", b"m1", b"m2", b"m3", b"m4"]


@pytest.mark.parametrize("kept", [0, 1, 2, 3])
def test_what_a_failed_sending_left_undone_is_done_and_no_more(
    publish: PublishStage, stream: FakeStream, store: Store, time: Time, kept: int
) -> None:
    enqueue(store, time, recommended("a", 1), message("r"), recommended("b", 1))
    stream.fails = [(kept, away())]
    with pytest.raises(StreamUnavailableError):
        publish.step()
    assert len(store.unsent(10)) == 3
    assert stream.sinks[0].closed
    publish.step()
    assert sent(stream) == [(b"a", b"1"), (None, b"r"), (b"b", b"1")]
    assert store.unsent(10) == []


def test_a_crash_between_sending_and_marking_sends_nothing_twice(
    publish: PublishStage,
    stream: FakeStream,
    store: Store,
    time: Time,
    heard: Heard,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    enqueue(store, time, recommended("a", 1), message("r"), recommended("b", 1))
    with crash_in(monkeypatch, "mark_sent", of=Store), pytest.raises(CrashError):
        publish.step()
    enqueue(store, time, recommended("b", 2), recommended("c", 1))
    stage(stream, store, time, heard).step()
    assert sent(stream) == [(b"a", b"1"), (None, b"r"), (b"b", b"1"), (b"b", b"2"), (b"c", b"1")]
    assert store.unsent(10) == []
    assert stream.sinks[1].looked == [time.now() - CLOCKS]


def test_after_a_crash_a_backlog_is_compared_batch_by_batch(
    stream: FakeStream,
    store: Store,
    time: Time,
    heard: Heard,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    enqueue(store, time, *[message(f"m{i}") for i in range(5)])
    with crash_in(monkeypatch, "mark_sent", of=Store), pytest.raises(CrashError):
        stage(stream, store, time, heard, most=3).step()
    again = stage(stream, store, time, heard, most=2)
    while again.step():
        pass
    assert [value for _, value in sent(stream)] == [b"m0", b"m1", b"m2", b"m3", b"m4"]
    assert len(stream.sinks[1].looked) == 1


def test_a_store_that_is_away_when_it_was_sent_does_not_have_it_sent_again(
    publish: PublishStage,
    stream: FakeStream,
    store: Store,
    time: Time,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def gone() -> StoreUnavailableError:
        return StoreUnavailableError("locked")

    enqueue(store, time, recommended("a", 1))
    with crash_in(monkeypatch, "mark_sent", gone, of=Store):
        for _ in range(2):
            with pytest.raises(StoreUnavailableError):
                publish.step()
    assert not publish.step()
    assert sent(stream) == [(b"a", b"1")]
    assert len(stream.sinks) == 1


def test_only_the_last_record_of_a_key_counts_as_there(
    publish: PublishStage, stream: FakeStream, store: Store, time: Time, heard: Heard
) -> None:
    """A key that was freed, taken and withdrawn again is freed again, by the same record."""
    for value in (b"1", None, b"2"):
        enqueue(store, time, recommended("a", 1, value=value))
        publish.step()
    enqueue(store, time, recommended("a", 1, value=None))
    stage(stream, store, time, heard).step()
    assert [value for _, value in sent(stream)] == [b"1", None, b"2", None]


def test_one_that_was_fenced_out_sends_nothing_and_ends(
    publish: PublishStage, stream: FakeStream, store: Store, time: Time
) -> None:
    enqueue(store, time, recommended("a", 1))
    stream.fails = [(0, FencedOutError("another has taken over"))]
    with pytest.raises(FencedOutError):
        publish.step()
    assert len(store.unsent(10)) == 1


def test_one_with_nothing_to_send_notices_too_that_it_was_fenced_out(
    publish: PublishStage, stream: FakeStream, time: Time
) -> None:
    assert not publish.step()
    stream.taken_over = True
    time.pass_(seconds=60)
    with pytest.raises(FencedOutError):
        publish.step()


def test_what_was_sent_is_forgotten_after_a_day(
    publish: PublishStage, store: Store, time: Time
) -> None:
    for key in ("a", "b"):
        enqueue(store, time, recommended(key, 1))
        publish.step()
        time.pass_(hours=23)
        publish.step()
    left = store.prune_outbox(time.now() + timedelta(days=1))
    assert left == 1  # a went after its day, b is in its last hour


def test_a_flood_is_forgotten_as_fast_as_it_came_while_more_is_sent(
    publish: PublishStage, store: Store, time: Time
) -> None:
    enqueue(store, time, *[message(f"r{number}") for number in range(2500)])
    while publish.step():
        pass
    time.pass_(hours=25)
    for number in range(3):
        enqueue(store, time, message(f"later {number}"))
        publish.step()
    assert store.prune_outbox(time.now() - timedelta(hours=1)) == 0


def test_closing_lets_go_of_the_sink(
    publish: PublishStage, stream: FakeStream, store: Store, time: Time
) -> None:
    publish.close()
    enqueue(store, time, recommended("a", 1))
    publish.step()
    publish.close()
    assert stream.sinks[0].closed


def test_what_is_active_is_said_again_where_the_topic_is_empty(
    stream: FakeStream, store: Store, time: Time, heard: Heard
) -> None:
    add_study(store)
    keep(store, time, "a", 2)
    keep(store, time, "b", 1, state="withdrawn")
    keep(store, time, "c", 5, valid_until=time.now())
    enqueue(store, time, recommended("a", 2), message("r"))
    publish = stage(stream, store, time, heard)
    assert publish.say_again() == 1  # it was on its way, and goes once
    publish.step()
    assert sent(stream) == [(None, b"r"), (b"a", b"2")]
    for former in (publish, stage(stream, store, time, heard)):
        assert former.say_again() == 0
    stream.sent.clear()
    assert stage(stream, store, time, heard).say_again() == 1
    assert store.unsent(10)[0].revision == 2


def keep(store: Store, time: Time, key: str, revision: int, **changes: Any) -> None:
    """Have a recommendation in the store."""
    values: dict[str, Any] = {
        "study": STUDY,
        "context_key": key,
        "revision": revision,
        "recommendation_id": f"{key}#{revision}",
        "state": "active",
        "value": str(revision),
        "issued_at": time.now(),
        "valid_until": time.now() + timedelta(days=7),
    }
    with store.transaction() as tx:
        tx.save_recommendation(RecommendationRow(**values | changes))


def test_what_waited_while_its_topic_got_another_name_goes_to_that(
    publish: PublishStage, stream: FakeStream, store: Store, time: Time
) -> None:
    former = [replace(recommended("a", 1), topic="tuned"), replace(message("r"), topic="bad")]
    enqueue(store, time, *former)
    publish.step()
    assert [one.topic for one in stream.sent] == ["recommendations", "rejected"]
    assert store.unsent(10) == []


def test_a_message_that_can_never_be_sent_holds_up_no_other(
    publish: PublishStage, stream: FakeStream, store: Store, time: Time, heard: Heard
) -> None:
    too_large = ValueError("a message is larger than the broker takes")
    # The batch as a whole, and then the first of its three.
    stream.fails += [(0, too_large), (0, too_large)]
    enqueue(store, time, message("huge"), message("a"), message("b"))
    publish.step()
    assert [value for _, value in sent(stream)] == [b"a", b"b"]
    assert store.unsent(10) == []
    (lost,) = heard.of(telemetry.MessageDropped)
    assert lost.problem == str(too_large)
    assert not publish.step()


# -- one of several instances publishes -----------------------------------------------------


def one_of_several(
    stream: FakeStream, store: Store, time: Time, heard: Heard, owner: str
) -> PublishStage:
    publish = stage(stream, store, time, heard)
    publish.owner = owner
    return publish


def expire(store: Store) -> None:
    """The lease to publish runs out, as when its holder is paused."""
    with store.transaction() as tx:
        (lease,) = tx.leases()
        assert lease.owner is not None
        assert tx.renew_lease(lease.name, lease.owner, lease.epoch, -1)


def test_only_one_of_two_sends(stream: FakeStream, store: Store, time: Time, heard: Heard) -> None:
    add_study(store)
    first, second = (one_of_several(stream, store, time, heard, name) for name in "ab")
    assert not first.step()
    enqueue(store, time, recommended("a", 1))
    assert not second.step()
    assert (first.leads, second.leads, len(stream.sinks)) == (True, False, 1)
    assert first.step()
    assert sent(stream) == [(b"a", b"1")]


def test_who_takes_over_sends_what_is_left_and_the_former_nothing_any_more(
    stream: FakeStream,
    store: Store,
    time: Time,
    heard: Heard,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    add_study(store)
    first, second = (one_of_several(stream, store, time, heard, name) for name in "ab")
    first.step()
    enqueue(store, time, recommended("a", 1), recommended("b", 1))
    with crash_in(monkeypatch, "mark_sent"), pytest.raises(CrashError):
        first.step()  # paused here: sent, and not marked
    expire(store)
    enqueue(store, time, recommended("b", 2))
    assert second.step()
    assert sent(stream) == [(b"a", b"1"), (b"b", b"1"), (b"b", b"2")]

    enqueue(store, time, recommended("c", 1))
    assert not first.step()  # it wakes, before it looks whether it still has the lease
    assert not first.leads
    assert len(store.unsent(10)) == 1
    time.pass_(seconds=5)
    assert not first.step()
    assert second.step()
    assert sent(stream)[3:] == [(b"c", b"1")]


def test_what_was_sent_just_before_the_role_was_taken_is_not_sent_again(
    stream: FakeStream, store: Store, time: Time, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The outbox is read after the role was taken. Read before, it would show what the former
    holder still sends meanwhile."""
    add_study(store)
    first, second = (one_of_several(stream, store, time, heard, name) for name in "ab")
    first.step()
    expire(store)
    hold = ListSink.hold

    def late(sink: ListSink) -> None:
        enqueue(store, time, recommended("a", 1), recommended("a", 2))
        monkeypatch.setattr(ListSink, "hold", hold)
        first._leased_at = time.clock()
        first.step()
        hold(sink)

    monkeypatch.setattr(ListSink, "hold", late)
    second.step()
    enqueue(store, time, recommended("a", 3))
    second.step()
    assert sent(stream) == [(b"a", b"2"), (b"a", b"3")]


def test_the_role_is_taken_back_from_one_that_was_late_and_not_from_a_stranger_for_ever(
    stream: FakeStream, store: Store, time: Time, heard: Heard
) -> None:
    add_study(store)
    first = one_of_several(stream, store, time, heard, "a")
    first.step()
    enqueue(store, time, recommended("a", 1))
    stream.sink("tunerd").hold()  # it had the lease, and was paused before it took the role
    assert not first.step()
    assert first.step()
    assert sent(stream) == [(b"a", b"1")]

    def again() -> None:
        for _ in range(10):
            enqueue(store, time, recommended("a", 2))
            stream.sink("tunerd").hold()
            first.step()

    with pytest.raises(FencedOutError):
        again()


def test_without_a_broker_the_lease_is_not_kept_from_others(
    stream: FakeStream, store: Store, time: Time, heard: Heard
) -> None:
    add_study(store)
    first, second = (one_of_several(stream, store, time, heard, name) for name in "ab")
    first.step()
    enqueue(store, time, recommended("a", 1))
    stream.fails = [(0, away())]
    with pytest.raises(StreamUnavailableError):
        first.step()
    expire(store)
    assert second.step()
    time.pass_(seconds=5)
    assert not first.step()


def test_one_that_does_not_get_through_leaves_publishing_to_others(
    stream: FakeStream, store: Store, time: Time, heard: Heard
) -> None:
    """Its clock, its rights or its network may be what is wrong, and not the broker."""
    add_study(store)
    first, second = (one_of_several(stream, store, time, heard, name) for name in "ab")
    first.step()
    enqueue(store, time, recommended("a", 1))
    for _ in range(6):
        stream.fails = [(0, away())]
        with pytest.raises(StreamUnavailableError):
            first.step()
        time.pass_(seconds=2)
    assert not first.leads
    assert not first.step()
    assert second.step()
    assert sent(stream) == [(b"a", b"1")]
    second.close()
    expire(store)  # nobody else is left
    time.pass_(seconds=BACK_S)
    enqueue(store, time, recommended("a", 2))
    assert first.step()
    assert sent(stream)[1:] == [(b"a", b"2")]
