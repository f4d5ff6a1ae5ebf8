"""What every store promises to ingest and publish, whichever database it keeps its tables in."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from tests.contracts.store_data import (
    LATER,
    NOW,
    STUDY,
    add_study,
    message,
    observation,
    recommended,
)
from tunerd.core.observation import Observation, Status
from tunerd.errors import LostPartitionError
from tunerd.store import OutboxMessage, Store
from tunerd.streams.base import StreamPosition


class TestProgress:
    def test_it_tells_how_far_each_study_has_come(self, store: Store) -> None:
        for name in ("b", "a", "c"):
            add_study(store, name)
        with store.transaction() as tx:
            tx.add_observations("a", [observation("e1", study="a")], NOW)
            tx.add_observations("a", [observation("e2", study="a")], LATER)
            tx.add_observations("b", [observation("e3", study="b")], NOW)
            tx.mark_learned("a", 1)
        told = [
            (one.name, one.last_sequence, one.learned_sequence, one.last_received_at)
            for one in store.progress()
        ]
        assert told == [("a", 2, 1, LATER), ("b", 1, 0, NOW), ("c", 0, 0, None)]


class TestTransactions:
    def test_an_exception_takes_everything_back(self, store: Store) -> None:
        add_study(store)

        def write_and_fail() -> None:
            with store.transaction() as tx:
                tx.add_observations(STUDY, [observation()], NOW)
                tx.enqueue(message())
                tx.expect_position(None, StreamPosition("c", "jobs", "0", 1, "f"))
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            write_and_fail()
        assert store.observations(STUDY) == []
        assert store.unsent(10) == []
        assert store.positions() == []

    def test_a_transaction_reads_its_own_writes_and_nobody_else_does(self, store: Store) -> None:
        add_study(store)
        with store.transaction() as tx:
            tx.add_observations(STUDY, [observation()], NOW)
            assert len(tx.observations(STUDY)) == 1
            assert store.observations(STUDY) == []
        assert len(store.observations(STUDY)) == 1


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("aé\0$", max_size=3), inner)
    ),
    max_leaves=8,
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
INSTANTS = st.datetimes(
    datetime(1970, 1, 2),  # noqa: DTZ001 - Hypothesis adds the zone
    datetime(2200, 1, 1),  # noqa: DTZ001
    timezones=st.sampled_from([UTC, timezone(timedelta(hours=-9, minutes=-30))]),
)
OBSERVATIONS = st.builds(
    Observation,
    study=st.just(STUDY),
    source=TEXTS,
    event_id=TEXTS,
    job_id=TEXTS,
    status=st.sampled_from(Status),
    finished_at=INSTANTS,
    context=st.dictionaries(st.text("ab\0ü", max_size=4), SCALARS | st.lists(SCALARS, max_size=3)),
    config=st.dictionaries(st.text("ab\0ü", max_size=4), SCALARS | st.lists(SCALARS, max_size=3)),
    metrics=st.dictionaries(
        st.text("ab", max_size=4), st.floats(allow_nan=False, allow_infinity=False)
    ),
    attempt=st.integers(-(2**63), 2**63 - 1),
    measured_s=st.none() | st.floats(allow_nan=False, allow_infinity=False),
    gpus=st.none() | st.integers(-(2**63), 2**63 - 1),
    user=st.none() | TEXTS,
    recommendation_id=st.none() | TEXTS,
    candidate_id=st.none() | TEXTS,
    history=st.booleans(),
    extra=st.dictionaries(st.text("ab", max_size=4), JSON, max_size=3),
    content_hash=TEXTS,
)


class TestHistory:
    def test_sequences_are_dense_within_the_study(self, store: Store) -> None:
        add_study(store)
        add_study(store, "other")
        with store.transaction() as tx:
            first = tx.add_observations(STUDY, [observation("a"), observation("b")], NOW)
        with store.transaction() as tx:
            tx.add_observations("other", [observation("x", study="other")], NOW)
            second = tx.add_observations(STUDY, [observation("c")], NOW)
        assert [one.sequence for one in first.accepted] == [1, 2]
        assert [one.sequence for one in second.accepted] == [3]
        assert [(one.sequence, one.event_id) for one in store.observations(STUDY)] == [
            (1, "a"),
            (2, "b"),
            (3, "c"),
        ]
        assert [(row.name, row.last_sequence) for row in store.studies()] == [
            (STUDY, 3),
            ("other", 1),
        ]

    @pytest.mark.slow
    def test_it_says_which_events_it_has_and_with_what_content(self, store: Store) -> None:
        add_study(store)
        names = [f"e{place}" for place in range(1_500)]
        with store.transaction() as tx:
            tx.add_observations(STUDY, [observation(name) for name in names[:1_200]], NOW)
            tx.add_observations(STUDY, [observation("x", source="other")], NOW)
        (source,) = {one.source for one in store.observations(STUDY, limit=5)}
        found = store.content_hashes(source, [*names, "x"])
        assert found == {name: f"sha256:{name}" for name in names[:1_200]}
        assert store.content_hashes(source, []) == {}

    def test_it_says_which_events_another_study_has(self, store: Store) -> None:
        add_study(store)
        add_study(store, "other")
        with store.transaction() as tx:
            tx.add_observations(STUDY, [observation("a"), observation("b")], NOW)
            tx.add_observations("other", [observation("c", study="other")], NOW)
        (source,) = {one.source for one in store.observations(STUDY, limit=5)}
        assert store.ids_elsewhere("other", source, ["a", "c", "x"]) == {"a"}
        assert store.ids_elsewhere(STUDY, source, ["a", "c", "x"]) == {"c"}
        assert store.ids_elsewhere("other", "nobody", ["a"]) == set()

    def test_a_duplicate_is_counted_and_dropped(self, store: Store) -> None:
        add_study(store)
        with store.transaction() as tx:
            tx.add_observations(STUDY, [observation("a")], NOW)
        with store.transaction() as tx:
            added = tx.add_observations(
                STUDY, [observation("a"), observation("b"), observation("b")], NOW
            )
        assert added.duplicates == 2
        assert added.conflicts == ()
        assert [one.event_id for one in added.accepted] == ["b"]
        assert added.accepted[0].sequence == 2

    def test_the_same_id_with_other_content_is_a_conflict(self, store: Store) -> None:
        add_study(store)
        stored, changed = observation("a"), observation("a", content_hash="sha256:other")
        with store.transaction() as tx:
            tx.add_observations(STUDY, [stored], NOW)
        with store.transaction() as tx:
            late, twin = observation("b"), observation("b", content_hash="sha256:twin")
            added = tx.add_observations(STUDY, [changed, late, twin], NOW)
        assert added.conflicts == (changed, twin)
        assert added.fresh == (late,)
        assert [one.event_id for one in store.observations(STUDY)] == ["a", "b"]

    def test_a_job_that_comes_again_is_another_attempt(self, store: Store) -> None:
        add_study(store)
        began = {"started_at": "2026-11-20T08:00:00Z"}
        first = observation("a", extra=began)
        second = observation("a", attempt=2, extra=began, content_hash="sha256:second")
        later = {"started_at": "2026-11-20T09:00:00Z"}
        third = observation("a", extra=later, content_hash="sha256:third")
        with store.transaction() as tx:
            added = tx.add_observations(STUDY, [first, second], NOW)
        assert (len(added.fresh), added.conflicts) == (2, ())
        changed = observation("a", attempt=2, extra=began, content_hash="sha256:changed")
        other_job = observation("a", job_id="x", attempt=3, content_hash="sha256:job")
        with store.transaction() as tx:
            added = tx.add_observations(STUDY, [second, third, changed, other_job], NOW)
        assert (len(added.fresh), added.duplicates) == (1, 1)
        assert added.conflicts == (changed, other_job)
        assert [one.attempt for one in store.observations(STUDY)] == [1, 2, 1]
        assert [one.extra for one in store.observations(STUDY)] == [began, began, later]

    def test_an_id_belongs_to_its_source_and_to_one_study(self, store: Store) -> None:
        add_study(store)
        add_study(store, "other")
        with store.transaction() as tx:
            both = [observation("a"), observation("a", source="slurm/b")]
            assert len(tx.add_observations(STUDY, both, NOW).fresh) == 2
        with store.transaction() as tx:
            elsewhere = observation("a", study="other", content_hash="sha256:other")
            assert tx.add_observations("other", [elsewhere], NOW).conflicts == (elsewhere,)

    def test_batches_larger_than_one_statement(self, store: Store) -> None:
        add_study(store)
        batch = [observation(f"e{number}") for number in range(2_500)]
        with store.transaction() as tx:
            assert len(tx.add_observations(STUDY, batch, NOW).fresh) == 2_500
        with store.transaction() as tx:
            assert tx.add_observations(STUDY, batch, NOW).duplicates == 2_500
        assert len(store.observations(STUDY, limit=10_000)) == 2_500

    def test_an_empty_batch_changes_nothing(self, store: Store) -> None:
        add_study(store)
        with store.transaction() as tx:
            assert tx.add_observations(STUDY, [], NOW).accepted == ()

    def test_an_unknown_study_is_an_error(self, store: Store) -> None:
        unknown = pytest.raises(LookupError, match="'llm-pretrain' is not in the store")
        with unknown, store.transaction() as tx:
            tx.add_observations(STUDY, [observation()], NOW)

    @pytest.mark.parametrize(
        ("changes", "problem"),
        [
            ({"event_id": "a\0b"}, "NUL character"),
            ({"user": "\ud800"}, "lone surrogate"),
            ({"context": {"gpu": "\ud800"}}, "surrogates not allowed"),
            ({"metrics": {"speed": float("nan")}}, "NaN or infinity"),
            ({"config": {"a": [None, float("inf")]}}, "NaN or infinity"),
            ({"measured_s": float("inf")}, "measured_s that is not finite"),
            ({"attempt": 2**63}, "beyond 64 bits"),
            ({"finished_at": NOW.replace(tzinfo=None)}, "has no zone"),
            ({"study": "other"}, "is of study 'other'"),
        ],
    )
    def test_what_no_column_can_keep_is_refused(
        self, store: Store, changes: dict[str, Any], problem: str
    ) -> None:
        add_study(store)
        bad = observation(**{"event_id": "bad"} | changes)
        with pytest.raises(ValueError, match=problem), store.transaction() as tx:
            tx.add_observations(STUDY, [observation(), bad], NOW)
        assert store.observations(STUDY) == []

    @pytest.mark.slow
    @settings(
        max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
    )
    @given(st.lists(OBSERVATIONS, max_size=5, unique_by=lambda one: (one.source, one.event_id)))
    def test_an_observation_comes_back_as_it_went_in(
        self, store: Store, batch: list[Observation]
    ) -> None:
        add_study(store)

        def round_trip() -> None:
            with store.transaction() as tx:
                added = tx.add_observations(STUDY, batch, NOW)
                assert tx.observations(STUDY) == list(added.accepted)
                assert [structs.replace(one, sequence=0) for one in added.accepted] == batch
                raise _TakeBackError

        with pytest.raises(_TakeBackError):
            round_trip()

    def test_instants_are_kept_exactly_and_come_back_in_utc(self, store: Store) -> None:
        add_study(store)
        east = timezone(timedelta(hours=5, minutes=30))
        finished_at = datetime(2026, 3, 1, 2, 3, 4, 567_891, tzinfo=east)
        with store.transaction() as tx:
            tx.add_observations(STUDY, [observation(finished_at=finished_at)], NOW)
        (stored,) = store.observations(STUDY)
        assert stored.finished_at == finished_at
        assert stored.finished_at.tzinfo == UTC

    def test_reading_on_from_a_sequence(self, store: Store) -> None:
        add_study(store)
        with store.transaction() as tx:
            tx.add_observations(STUDY, [observation(str(n)) for n in range(10)], NOW)
        read = store.observations(STUDY, after=4, limit=3)
        assert [one.sequence for one in read] == [5, 6, 7]

    def test_reading_a_sample(self, store: Store) -> None:
        add_study(store)
        with store.transaction() as tx:
            tx.add_observations(STUDY, [observation(str(n)) for n in range(3_000)], NOW)
        wanted = [*range(3_000, 0, -1), 7, 7]
        assert [one.sequence for one in store.observations_at(STUDY, wanted)] == wanted
        assert store.observations_at(STUDY, []) == []
        with pytest.raises(LookupError, match="no observation with sequence 3001"):
            store.observations_at(STUDY, [1, 3_001])


class _TakeBackError(Exception):
    pass


class TestPositions:
    START = StreamPosition("c1", "jobs", "0", 5, "aa")

    def test_the_first_position_needs_an_unread_partition(self, store: Store) -> None:
        with store.transaction() as tx:
            tx.expect_position(None, self.START)
        with pytest.raises(LostPartitionError), store.transaction() as tx:
            tx.expect_position(None, replace(self.START, offset=9))
        assert store.positions() == [self.START]

    @pytest.mark.parametrize("believed", [{"offset": 4}, {"fingerprint": "bb"}])
    def test_who_went_on_from_elsewhere_has_lost(
        self, store: Store, believed: dict[str, Any]
    ) -> None:
        with store.transaction() as tx:
            tx.expect_position(None, self.START)
        old = replace(self.START, **believed)

        def write() -> None:
            with store.transaction() as tx:
                tx.enqueue(message())
                tx.expect_position(old, replace(self.START, offset=9))

        with pytest.raises(LostPartitionError, match=r"jobs\[0\]"):
            write()
        assert store.positions() == [self.START]
        assert store.unsent(10) == []

    def test_moving_on_and_starting_again(self, store: Store) -> None:
        further = replace(self.START, offset=80, fingerprint="bb")
        anew = replace(self.START, offset=1, fingerprint="cc")
        for old, new in ((None, self.START), (self.START, further), (further, anew)):
            with store.transaction() as tx:
                tx.expect_position(old, new)
        assert store.positions() == [anew]

    def test_each_cluster_topic_and_partition_has_its_own(self, store: Store) -> None:
        others = [
            self.START,
            replace(self.START, cluster="c2"),
            replace(self.START, topic="other"),
            replace(self.START, partition="1"),
        ]
        with store.transaction() as tx:
            for position in others:
                tx.expect_position(None, position)
        assert store.restore_positions("c1", "jobs", ["0", "1", "2"]) == {
            "0": self.START,
            "1": others[3],
        }
        assert store.restore_positions("c1", "jobs", ["1"]) == {"1": others[3]}
        with pytest.raises(ValueError, match="not of one partition"), store.transaction() as tx:
            tx.expect_position(self.START, others[3])


class TestOutbox:
    def test_messages_come_back_as_they_went_in_and_in_order(self, store: Store) -> None:
        given = [
            message("m1", headers=(("reason", b"\xff\0"), ("reason", b""))),
            message("m2", key=b"\0k", value=None),
            recommended("k", 1),
        ]
        with store.transaction() as tx:
            tx.enqueue(*given)
        read = store.unsent(10)
        assert [replace(one, id=0) for one in read] == given
        assert [one.id for one in read] == sorted(one.id for one in read)

    def test_what_was_sent_is_not_sent_again(self, store: Store) -> None:
        with store.transaction() as tx:
            tx.enqueue(message("m1"), message("m2"), message("m3"))
        first = store.unsent(2)
        store.mark_sent([one.id for one in first], LATER)
        assert [one.message_id for one in store.unsent(2)] == ["m3"]

    def test_only_the_newest_unsent_revision_per_key(self, store: Store) -> None:
        with store.transaction() as tx:
            tx.enqueue(recommended("a", 1), recommended("b", 1), recommended("a", 2))
        with store.transaction() as tx:
            tx.enqueue(recommended("a", 3), recommended("a", 1, study="other"))
        assert _names(store.unsent(10)) == ["b#1", "a#3", "a#1"]

    def test_a_newer_revision_while_the_older_is_on_its_way(self, store: Store) -> None:
        with store.transaction() as tx:
            tx.enqueue(recommended("a", 1))
        on_its_way = store.unsent(10)
        with store.transaction() as tx:
            tx.enqueue(recommended("a", 2))
        store.mark_sent([one.id for one in on_its_way], LATER)
        assert _names(store.unsent(10)) == ["a#2"]

    def test_very_long_context_keys_are_told_apart(self, store: Store) -> None:
        long = "s|gpu=" + "x" * 20_000
        with store.transaction() as tx:
            tx.enqueue(recommended(long + "1", 1), recommended(long + "2", 1))
            tx.enqueue(recommended(long + "1", 2))
        assert [(one.context_key, one.revision) for one in store.unsent(10)] == [
            (long + "2", 1),
            (long + "1", 2),
        ]

    def test_reading_is_bounded_in_bytes(self, store: Store) -> None:
        with store.transaction() as tx:
            tx.enqueue(*(message(f"m{n}", value=bytes(1000)) for n in range(10)))
        assert len(store.unsent(10, max_bytes=3_000)) == 3
        assert len(store.unsent(10, max_bytes=10)) == 1

    def test_depths(self, store: Store) -> None:
        with store.transaction() as tx:
            tx.enqueue(message("m1"), message("m2", created_at=LATER), recommended("a", 1))
        store.mark_sent([store.unsent(1)[0].id], LATER)
        depths = store.outbox_depths()
        assert (depths["rejected"].unsent, depths["rejected"].oldest_at) == (1, LATER)
        assert depths["recommendation"].unsent == 1

    def test_pruning_in_pieces_leaves_what_is_unsent_or_new(self, store: Store) -> None:
        with store.transaction() as tx:
            tx.enqueue(*(message(f"m{n}") for n in range(7)), recommended("a", 1))
            tx.enqueue(recommended("a", 2))
        ids = [one.id for one in store.unsent(10)]
        store.mark_sent(ids[:5], NOW)
        store.mark_sent(ids[5:6], LATER)
        assert [store.prune_outbox(LATER, limit=4) for _ in range(3)] == [4, 2, 0]
        assert _names(store.unsent(10)) == ["m6", "a#2"]

    def test_an_id_is_never_given_twice(self, store: Store) -> None:
        with store.transaction() as tx:
            tx.enqueue(message("m1"))
        (first,) = store.unsent(1)
        store.mark_sent([first.id], NOW)
        store.prune_outbox(LATER)
        with store.transaction() as tx:
            tx.enqueue(message("m2"))
        assert store.unsent(1)[0].id > first.id


def _names(messages: list[OutboxMessage]) -> list[str]:
    return [one.message_id for one in messages]
