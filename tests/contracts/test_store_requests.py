"""What every store promises about requests."""

from datetime import timedelta

import pytest

from tests.contracts.store_data import LATER, NOW, STUDY, add_study
from tunerd.core.request import AdviceRequest, RequestAnswer, RequestOutcome
from tunerd.store import InsertedRequests, Store, open_store

CONTEXT = {"gpu": "H100", "n_gpus": 64, "parts": ["a", None, True, 0.1]}


def request(name: str = "a", **changes: object) -> AdviceRequest:
    given = {
        "study": STUDY,
        "source": "slurm",
        "event_id": name,
        "context": CONTEXT,
        "requested_at": NOW,
        "user": "ann",
        "content_hash": f"sha256:{name}",
    }
    return AdviceRequest(**given | changes)  # type: ignore[arg-type]


def ask(store: Store, *batch: AdviceRequest) -> InsertedRequests:
    with store.transaction() as tx:
        return tx.add_requests(batch, NOW)


ANSWER = RequestAnswer(
    outcome=RequestOutcome.PUBLISHED,
    context_key="llm-pretrain|n_gpus=64",
    reason="First guesses.",
    revision=3,
    recommendation_id="r-1",
)


class TestRequests:
    def test_one_waits_as_it_was_asked_until_it_is_answered(self, store: Store) -> None:
        add_study(store)
        assert ask(store) == InsertedRequests((), 0, ())
        asked = ask(store, request(), request("b", requested_at=None, user=None))
        assert (len(asked.fresh), asked.duplicates, asked.conflicts) == (2, 0, ())
        first, second = store.requests()
        assert (first.request, first.received_at) == (request(), NOW)
        assert (first.answered_at, first.answer) == (None, None)
        assert second.request == request("b", requested_at=None, user=None)
        assert store.requests_waiting() == {STUDY: 2}
        with store.transaction() as tx:
            tx.answer_request(first.id, ANSWER, LATER)
        assert store.requests(STUDY) == [second]
        done = store.request(first.id)
        assert done is not None
        assert (done.answered_at, done.answer) == (LATER, ANSWER)
        assert store.request(4711) is None
        assert store.requests("another") == []

    def test_the_first_answer_stays(self, store: Store) -> None:
        add_study(store)
        (number,) = ask(store, request()).fresh
        with store.transaction() as tx:
            tx.answer_request(number, ANSWER, NOW)
            other = RequestAnswer(outcome=RequestOutcome.NOTHING, context_key="k", reason="no")
            tx.answer_request(number, other, LATER)
        found = store.request(number)
        assert found is not None
        assert found.answer == ANSWER

    def test_the_same_id_is_dropped_and_with_other_content_a_conflict(self, store: Store) -> None:
        add_study(store)
        other = request(content_hash="sha256:other")
        asked = ask(store, request(), request(), other, request("b"))
        assert (len(asked.fresh), asked.duplicates, asked.conflicts) == (2, 1, (other,))
        asked = ask(store, request("b"), request("b", source="another"))
        assert (len(asked.fresh), asked.duplicates, asked.conflicts) == (1, 1, ())

    def test_what_is_rolled_back_was_never_asked(self, store: Store) -> None:
        add_study(store)
        with pytest.raises(LookupError, match="nowhere"):
            ask(store, request(), request("b", study="nowhere"))
        assert store.requests() == []
        with pytest.raises(ValueError, match="NUL"):
            ask(store, request("b\0"))
        assert store.requests() == []

    def test_old_answers_are_pruned_and_what_waits_is_not(self, store: Store) -> None:
        add_study(store)
        first, second, _ = ask(store, request(), request("b"), request("c")).fresh
        with store.transaction() as tx:
            tx.answer_request(first, ANSWER, NOW)
            tx.answer_request(second, ANSWER, LATER)
            assert tx.prune_requests(STUDY, NOW + timedelta(seconds=1)) == 1
        assert store.request(first) is None
        assert store.request(second) is not None
        assert len(store.requests()) == 1


def test_who_looks_sees_whether_a_daemon_has_the_store(store: Store, store_url: str) -> None:
    assert not store.held()
    with open_store(store_url) as another, another.guard(NOW):
        assert store.held()
        assert another.held()
    assert not store.held()


def test_who_comes_right_after_another_has_released_a_store_finds_it_free(store: Store) -> None:
    for _ in range(100):
        store.guard(NOW).release()
        assert not store.held()
