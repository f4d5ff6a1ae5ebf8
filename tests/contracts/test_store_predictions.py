"""What every store promises about the predictions that are kept."""

from datetime import timedelta

from tests.contracts.store_data import LATER, NOW, STUDY, add_study
from tunerd.core.evidence.prequential import PrequentialOutcome, PrequentialRecord, TargetPrediction
from tunerd.core.observation import Status
from tunerd.store import Store

TARGET = TargetPrediction(config_id="c-1", kind="incumbent", score=0.1, spread=0.25, feasible=1.0)
KEY = "llm-pretrain|gpu=" + "x" * 3000


def judged(sequence: int, *, history: bool = False, days: float = 0.0) -> PrequentialRecord:
    return PrequentialRecord(
        sequence,
        NOW + timedelta(days=days),
        history,
        KEY,
        PrequentialOutcome(
            config_id=f"c-{sequence}",
            status=Status.OUT_OF_MEMORY,
            ran=False,
            predicted=0.1 + 0.2,
            low=-1e300,
            high=5e-324,
            feasible=0.5,
            following=None if history else "unasked",
            ran_as="incumbent",
            incumbent=TARGET,
            gpu_hours=12.5,
        ),
    )


def keep(store: Store, *rows: PrequentialRecord) -> None:
    with store.transaction() as tx:
        tx.add_predictions(STUDY, rows)


class TestPredictions:
    def test_they_come_back_as_they_were(self, store: Store) -> None:
        add_study(store)
        assert store.predictions(STUDY) == []
        keep(store)
        rows = [judged(1), judged(2)]
        keep(store, *rows)
        assert store.predictions(STUDY) == rows
        assert store.predictions("another") == []

    def test_a_window_is_by_the_time_that_jobs_ended(self, store: Store) -> None:
        add_study(store)
        keep(store, *(judged(n, days=-n) for n in range(1, 8)))
        found = store.predictions(STUDY, since=NOW - timedelta(days=5), until=NOW - timedelta(2))
        assert [one.sequence for one in found] == [3, 4, 5]
        assert [one.sequence for one in store.predictions(STUDY, most=2)] == [1, 2]
        assert store.predictions(STUDY, since=LATER) == []
        assert store.count_predictions(STUDY) == 7
        assert store.count_predictions(STUDY, since=NOW - timedelta(days=5)) == 5
        assert store.count_predictions(STUDY, history=True) == 0

    def test_imported_jobs_are_a_list_of_their_own(self, store: Store) -> None:
        add_study(store)
        keep(store, judged(1, history=True, days=-900), judged(2), judged(3, history=True))
        assert [one.sequence for one in store.predictions(STUDY)] == [2]
        assert [one.sequence for one in store.predictions(STUDY, history=True)] == [1, 3]
        assert [one.sequence for one in store.predictions(STUDY, history=True, most=1)] == [3]

    def test_old_live_ones_are_pruned(self, store: Store) -> None:
        add_study(store)
        keep(store, judged(1, history=True, days=-900), judged(2, days=-900), judged(3))
        with store.transaction() as tx:
            assert tx.prune_predictions(STUDY, NOW - timedelta(days=400)) == 1
            assert tx.prune_predictions(STUDY, NOW - timedelta(days=400)) == 0
        assert [one.sequence for one in store.predictions(STUDY)] == [3]
        assert [one.sequence for one in store.predictions(STUDY, history=True)] == [1]
