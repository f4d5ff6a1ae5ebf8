"""What every store promises, whichever database it keeps its tables in."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.contracts.store_data import (
    NOW,
    STUDY,
    add_study,
    message,
    observation,
    recommended,
)
from tunerd.core.observation import Observation, Status
from tunerd.errors import FencedOutError, LostPartitionError
from tunerd.store import (
    ContextRow,
    OutboxMessage,
    RecommendationRow,
    Store,
    TuneStep,
    study_lease,
)
from tunerd.streams.base import Position

LATER = NOW + timedelta(hours=1)


class TestTransactions:
    def test_an_exception_takes_everything_back(self, store: Store) -> None:
        add_study(store)

        def write_and_fail() -> None:
            with store.transaction() as tx:
                tx.add_observations(STUDY, [observation()], NOW)
                tx.enqueue(message())
                tx.expect_position(None, Position("c", "jobs", "0", 1, "f"))
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
                assert [replace(one, sequence=0) for one in added.accepted] == batch
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
    START = Position("c1", "jobs", "0", 5, "aa")

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


class TestGenerations:
    def test_the_first_and_the_next(self, store: Store) -> None:
        first = store.publish_generation("s", "h1", "one", "start on a", NOW)
        same = store.publish_generation("s", "h1", "one", "start on b", LATER)
        second = store.publish_generation("s", "h2", "two", "reload on a", LATER)
        assert [(one.generation, one.outcome) for one in (first, same, second)] == [
            (1, "new"),
            (1, "current"),
            (2, "new"),
        ]
        current = store.generation("s")
        assert current is not None
        assert (current.generation, current.text, current.published_at, current.published_by) == (
            2,
            "two",
            LATER,
            "reload on a",
        )
        assert [one.content_hash for one in store.generations("s")] == ["h1", "h2"]

    def test_an_older_file_never_overwrites_a_newer_one(self, store: Store) -> None:
        for content in ("h1", "h2"):
            store.publish_generation("s", content, content, "a", NOW)
        older = store.publish_generation("s", "h1", "h1", "start on an old host", LATER)
        assert (older.generation, older.outcome) == (2, "older")
        assert len(store.generations("s")) == 2

    def test_going_back_on_purpose_is_a_new_generation(self, store: Store) -> None:
        for content in ("h1", "h2"):
            store.publish_generation("s", content, content, "a", NOW)
        back = store.publish_generation("s", "h1", "h1", "operator", LATER, force=True)
        assert (back.generation, back.outcome) == (3, "new")
        again = store.publish_generation("s", "h1", "h1", "start on b", LATER)
        assert (again.generation, again.outcome) == (3, "current")
        older = store.publish_generation("s", "h2", "h2", "start on c", LATER)
        assert (older.generation, older.outcome) == (3, "older")

    def test_an_unknown_study(self, store: Store) -> None:
        assert store.study("s") is None
        assert store.generation("s") is None
        assert store.generations("s") == []

    def test_an_earlier_generation(self, store: Store) -> None:
        for content in ("h1", "h2"):
            store.publish_generation("s", content, content, "a", NOW)
        earlier = store.generation("s", 1)
        assert earlier is not None
        assert earlier.content_hash == "h1"
        assert store.generation("s", 3) is None

    def test_learned_goes_up_to_what_there_is(self, store: Store) -> None:
        add_study(store)
        with store.transaction() as tx:
            tx.add_observations(STUDY, [observation()], NOW)
            tx.mark_learned(STUDY, 1)
        row = store.study(STUDY)
        assert row is not None
        assert row.learned_sequence == 1
        with pytest.raises(ValueError, match="has no observation 2"), store.transaction() as tx:
            tx.mark_learned(STUDY, 2)


class TestLearned:
    def test_states_are_replaced(self, store: Store) -> None:
        add_study(store)
        assert store.study_state(STUDY) is None
        for number, epoch in ((1, 3), (2, 4)):
            with store.transaction() as tx:
                tx.save_study_state(STUDY, {"n": number, "x": 0.1}, epoch=epoch, now=NOW)
                tx.save_context_states(
                    STUDY,
                    [
                        ContextRow("a", {"n": number}, NOW, number),
                        ContextRow("x" * 9_000, {}, None, -1),
                    ],
                )
        state = store.study_state(STUDY)
        assert state is not None
        assert (state.state, state.epoch, state.saved_at) == ({"n": 2, "x": 0.1}, 4, NOW)
        assert store.context_states(STUDY, ["a", "b"]) == [ContextRow("a", {"n": 2}, NOW, 2)]
        assert len(store.context_states(STUDY)) == 2
        with store.transaction() as tx:
            tx.forget_contexts(STUDY, ["x" * 9_000])
            tx.save_context_states(STUDY, [])
        assert [row.context_key for row in store.context_states(STUDY)] == ["a"]

    def test_a_state_that_json_would_change_is_refused(self, store: Store) -> None:
        add_study(store)
        with pytest.raises(ValueError, match="NaN"), store.transaction() as tx:
            tx.save_study_state(STUDY, {"error": float("nan")}, epoch=0, now=NOW)

    def test_steps_count_up(self, store: Store) -> None:
        add_study(store)
        step = TuneStep(
            study=STUDY,
            epoch=1,
            generation=1,
            sequence_from=1,
            sequence_to=9,
            seeds=(1, 2, 3),
            model=None,
            swapped_model="sha256:00",
            contexts=("a", "b"),
            detail={"search_s": 0.25},
            finished_at=NOW,
        )
        with store.transaction() as tx:
            assert [tx.save_step(step), tx.save_step(step)] == [1, 2]
        assert store.steps(STUDY) == [replace(step, step=2), replace(step, step=1)]
        assert store.steps(STUDY, limit=1) == [replace(step, step=2)]

    def test_a_checkpoint_is_named_by_its_content(self, store: Store) -> None:
        add_study(store)
        blob = bytes(range(256)) * 100
        with store.transaction() as tx:
            name = tx.save_checkpoint(STUDY, blob, NOW)
            assert tx.save_checkpoint(STUDY, blob, LATER) == name
            other = tx.save_checkpoint(STUDY, b"", LATER)
        assert name.startswith("sha256:")
        assert store.checkpoint(STUDY, name) == blob
        assert [(row.name, row.size) for row in store.checkpoints(STUDY)] == [
            (other, 0),
            (name, 25_600),
        ]
        with store.transaction() as tx:
            tx.delete_checkpoints(STUDY, [name])
        with pytest.raises(LookupError, match=name):
            store.checkpoint(STUDY, name)


class TestRecommendations:
    def row(self, key: str, revision: int, state: str = "active") -> RecommendationRow:
        return RecommendationRow(
            study=STUDY,
            context_key=key,
            revision=revision,
            recommendation_id=f"r-{revision}",
            state=state,
            value=f'{{"revision":{revision}}}',
            issued_at=NOW,
            valid_until=LATER,
            renew_at=NOW + timedelta(minutes=30 * revision),
        )

    def test_revisions_never_restart(self, store: Store) -> None:
        add_study(store)
        for state in ("active", "withdrawn", "active"):
            with store.transaction() as tx:
                revision = tx.next_revision(STUDY, "k")
                tx.save_recommendation(self.row("k", revision, state))
        assert store.recommendation(STUDY, "k") == self.row("k", 3)
        with store.transaction() as tx:
            assert tx.next_revision(STUDY, "k") == 4
            assert tx.next_revision(STUDY, "new") == 1

    def test_an_older_revision_does_not_come_back(self, store: Store) -> None:
        add_study(store)
        with store.transaction() as tx:
            tx.save_recommendation(self.row("k", 2))
        with pytest.raises(ValueError, match="above 1"), store.transaction() as tx:
            tx.save_recommendation(self.row("k", 1))
        assert store.recommendation(STUDY, "k") == self.row("k", 2)

    def test_a_proposal_waits_beside_what_is_published(self, store: Store) -> None:
        add_study(store)
        waiting = replace(self.row("k", 1), proposal='{"new":1}')
        with store.transaction() as tx:
            tx.save_recommendation(self.row("k", 1))
            tx.save_recommendation(waiting)
        assert store.recommendation(STUDY, "k") == waiting

    def test_asking_for_some(self, store: Store) -> None:
        add_study(store)
        rows = [self.row("a", 1), self.row("b", 2, "withdrawn"), self.row("x" * 9_000, 3)]
        with store.transaction() as tx:
            for row in rows:
                tx.save_recommendation(row)
        assert store.recommendations(STUDY) == rows
        assert store.recommendations(STUDY, states=["withdrawn"]) == rows[1:2]
        soon = NOW + timedelta(minutes=61)
        assert store.recommendations(STUDY, states=["active"], renew_before=soon) == rows[:1]
        assert store.recommendation(STUDY, "c") is None


class TestLeases:
    def test_one_owner_at_a_time(self, store: Store) -> None:
        assert store.take_lease("publish", "a", 60) == 1
        assert store.take_lease("publish", "b", 60) is None
        assert store.take_lease("publish", "a", 60) == 1
        assert store.take_lease("study/x", "b", 60) == 1
        assert [(lease.name, lease.owner) for lease in store.leases()] == [
            ("publish", "a"),
            ("study/x", "b"),
        ]

    def test_a_new_owner_is_a_new_epoch(self, store: Store) -> None:
        first = store.take_lease("publish", "a", 60)
        assert first == 1
        store.release_lease("publish", "a", first)
        assert store.take_lease("publish", "b", 60) == 2
        assert not store.renew_lease("publish", "a", 1, 60)
        store.release_lease("publish", "a", 1)
        assert store.take_lease("publish", "a", 60) is None

    def test_an_expired_lease_is_free(self, store: Store) -> None:
        assert store.take_lease("publish", "a", -1) == 1
        assert store.take_lease("publish", "b", 60) == 2
        assert not store.renew_lease("publish", "a", 1, 60)

    def test_taking_again_after_expiry_is_a_new_epoch(self, store: Store) -> None:
        assert store.take_lease("publish", "a", -1) == 1
        assert store.take_lease("publish", "a", 60) == 2

    def test_renewing_what_expired_but_nobody_took(self, store: Store) -> None:
        assert store.take_lease("publish", "a", -1) == 1
        assert store.renew_lease("publish", "a", 1, 60)
        assert store.take_lease("publish", "b", 60) is None
        assert not store.renew_lease("other", "a", 1, 60)

    def test_a_former_holder_cannot_write(self, store: Store) -> None:
        add_study(store)
        lease = study_lease(STUDY)
        former = store.take_lease(lease, "a", -1)
        current = store.take_lease(lease, "b", 60)
        assert former is not None
        assert current is not None

        def write(epoch: int) -> None:
            with store.transaction() as tx:
                tx.enqueue(message())
                tx.fence(STUDY, epoch)

        with pytest.raises(FencedOutError, match="in epoch 2"):
            write(former)
        assert store.unsent(10) == []
        write(current)
        assert len(store.unsent(10)) == 1

    def test_without_a_lease_the_epoch_is_zero(self, store: Store) -> None:
        with store.transaction() as tx:
            tx.fence(STUDY, 0)
        with pytest.raises(FencedOutError), store.transaction() as tx:
            tx.fence(STUDY, 1)


class TestCommands:
    def test_given_carried_out_and_remembered(self, store: Store) -> None:
        add_study(store)
        with store.transaction() as tx:
            first = tx.add_command(
                STUDY, "campaign", {"jobs": 8}, who="ann", why="new cluster", now=NOW
            )
            second = tx.add_command(STUDY, "approve", {}, who="bob", why="", now=NOW)
        assert [command.id for command in store.commands(STUDY)] == [first, second]
        with store.transaction() as tx:
            tx.finish_command(first, "8 jobs asked for", LATER)
        assert [command.id for command in store.commands()] == [second]
        done = store.command(first)
        assert done is not None
        assert (done.arguments, done.who, done.at, done.why) == (
            {"jobs": 8},
            "ann",
            NOW,
            "new cluster",
        )
        assert (done.finished_at, done.result) == (LATER, "8 jobs asked for")
        assert len(store.commands(STUDY, pending=False)) == 2
        assert store.command(99) is None

    def test_for_an_unknown_study(self, store: Store) -> None:
        with pytest.raises(LookupError, match="'nowhere'"), store.transaction() as tx:
            tx.add_command("nowhere", "approve", {}, who="ann", why="", now=NOW)

    def test_a_reason_that_is_no_text(self, store: Store) -> None:
        add_study(store)
        with pytest.raises(ValueError, match="lone surrogate"), store.transaction() as tx:
            tx.add_command(STUDY, "approve", {}, who="ann", why="\udcff", now=NOW)


def test_overview(store: Store) -> None:
    assert store.overview() == []
    add_study(store)
    add_study(store, "other")
    with store.transaction() as tx:
        tx.add_observations(STUDY, [observation("a"), observation("b")], NOW)
        tx.save_context_states(STUDY, [ContextRow("k", {}, NOW, 1)])
        for key, state in (("a", "active"), ("b", "active"), ("c", "withdrawn")):
            tx.save_recommendation(TestRecommendations().row(key, 1, state))
        tx.add_command(STUDY, "approve", {}, who="ann", why="", now=NOW)
    ours, other = store.overview()
    assert (ours.study.name, ours.study.last_sequence, ours.contexts) == (STUDY, 2, 1)
    assert ours.recommendations == {"active": 2, "withdrawn": 1}
    assert (ours.pending_commands, ours.last_step) == (1, None)
    assert (other.study.name, other.contexts, other.recommendations) == ("other", 0, {})
