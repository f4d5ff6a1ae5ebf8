"""What every store promises to the tune stage and to operators: studies, models, advice, leases."""

from dataclasses import replace
from datetime import timedelta

import pytest

from tests.contracts.store_data import LATER, NOW, STUDY, add_study, message, observation
from tunerd.errors import FencedOutError
from tunerd.store import ContextRow, RecommendationRow, Store, TuneStep, study_lease


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

    def test_an_older_file_never_overwrites_a_newer_one(self, store: Store) -> None:
        for content in ("h1", "h2"):
            store.publish_generation("s", content, content, "a", NOW)
        older = store.publish_generation("s", "h1", "h1", "start on an old host", LATER)
        assert (older.generation, older.outcome) == (2, "older")
        assert store.generation("s", 3) is None

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
        first, second = store.context_states(STUDY)
        assert first == ContextRow("a", {"n": 2}, NOW, 2)
        assert second == ContextRow("x" * 9_000, {}, None, -1)
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
            other = tx.save_checkpoint(STUDY, b"{}", LATER)
        assert name.startswith("sha256:")
        assert store.checkpoint(STUDY, name) == blob
        assert [(row.name, row.size, row.begins) for row in store.checkpoints(STUDY)] == [
            (other, 2, b"{}"),
            (name, 25_600, bytes(range(8))),
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

    @pytest.mark.parametrize("state", ["active", "withdrawn"])
    def test_a_proposal_waits_beside_what_is_published(self, store: Store, state: str) -> None:
        add_study(store)
        published = self.row("k", 1, state)
        waiting = replace(published, proposal='{"new":1}')
        with store.transaction() as tx:
            tx.save_recommendation(published)
            tx.save_recommendation(waiting)
        assert store.recommendation(STUDY, "k") == waiting
        with store.transaction() as tx:
            tx.save_recommendation(published)
        assert store.recommendation(STUDY, "k") == published
        declined = replace(published, state="declined", renew_at=None)
        with store.transaction() as tx:
            tx.save_recommendation(declined)
        assert store.recommendations(STUDY, renew_before=LATER) == []
        assert store.recommendation(STUDY, "k") == declined

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
        tx.add_command(STUDY, "approve", {}, who="ann", why="", now=NOW)
    ours, other = store.overview()
    assert (ours.study.name, ours.study.last_sequence, ours.contexts) == (STUDY, 2, 1)
    assert (ours.pending_commands, ours.last_step) == (1, None)
    assert (other.study.name, other.contexts) == ("other", 0)
