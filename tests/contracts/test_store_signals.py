"""What every store promises about signals."""

from datetime import timedelta
from random import Random

import pytest
import sqlalchemy as sa

from tests.contracts.store_data import LATER, STUDY, add_study
from tests.contracts.store_data import NOW as RECEIVED
from tunerd.events.signal import LONGEST
from tunerd.store import Store
from tunerd.store.signals import KEPT, MOST_SIGNALS

MINUTE = timedelta(minutes=1)
NOW = RECEIVED.replace(microsecond=0)


def add(store: Store, *points: tuple[str, int, float]) -> tuple[int, int, tuple[int, ...]]:
    with store.transaction() as tx:
        added = tx.add_signal_points([(n, NOW - at * MINUTE, v) for n, at, v in points], NOW)
    assert not added.outdated
    return added.fresh, added.duplicates, added.refused


class TestSignals:
    def test_points_come_back_in_the_order_of_times(self, store: Store) -> None:
        assert add(store, ("a", 5, 1.0), ("b", 5, 9.0), ("a", 7, 2.5)) == (3, 0, ())
        at = (NOW - 5 * MINUTE).timestamp()
        assert store.signal_points("a", NOW - 60 * MINUTE) == [(at - 120, 2.5), (at, 1.0)]
        assert store.signal_points("a", NOW - 6 * MINUTE) == [(at, 1.0)]
        assert store.signal_points("a", NOW - 60 * MINUTE, NOW - 6 * MINUTE) == [(at - 120, 2.5)]
        assert store.signal_points("c", NOW - 60 * MINUTE) == []
        assert store.signal_names() == {"a": NOW - 5 * MINUTE, "b": NOW - 5 * MINUTE}

    def test_a_second_value_of_a_time_is_a_duplicate(self, store: Store) -> None:
        assert add(store, ("a", 5, 1.0), ("a", 5, 2.0)) == (1, 1, ())
        assert add(store, ("a", 5, 3.0), ("a", 4, 4.0)) == (1, 1, ())
        assert [value for _, value in store.signal_points("a", NOW - KEPT)] == [1.0, 4.0]

    def test_the_mean_of_an_interval_has_its_ends(self, store: Store) -> None:
        add(store, ("a", 5, 1.0), ("a", 4, 3.0), ("a", 1, 100.0))
        assert store.signal_mean("a", NOW - 5 * MINUTE, NOW - 4 * MINUTE) == 2.0
        assert store.signal_mean("a", NOW - 3 * MINUTE, NOW - 2 * MINUTE) is None
        assert store.signal_mean("b", NOW - 5 * MINUTE, NOW) is None

    @pytest.mark.slow
    def test_only_so_many_signals_are_kept(self, store: Store) -> None:
        names = [(f"s{n}", 1, 0.0) for n in range(MOST_SIGNALS)]
        assert add(store, *names) == (MOST_SIGNALS, 0, ())
        assert add(store, ("more", 1, 0.0), ("s1", 2, 0.0)) == (1, 0, (0,))

    def test_the_longest_name_is_kept(self, store: Store) -> None:
        random = Random(1)  # what compresses well is short in an index
        name = "".join(chr(random.randrange(0x20000, 0x2A000)) for _ in range(LONGEST // 4))
        assert add(store, (name, 1, 0.0)) == (1, 0, ())
        assert list(store.signal_names()) == [name]

    def test_old_points_and_signals_are_forgotten(self, store: Store) -> None:
        add(store, ("a", 5, 1.0), ("b", 5, 1.0))
        later = NOW + KEPT
        with store.transaction() as tx:
            tx.add_signal_points([("b", later, 2.0)], later)
            assert tx.add_signal_points([("b", NOW - MINUTE, 2.0)], later).fresh == 0
            assert tx.prune_signals(later) == 2
        assert list(store.signal_names()) == ["b"]

    def test_points_too_old_to_keep_take_no_place(self, store: Store) -> None:
        old = round((KEPT + MINUTE) / MINUTE)
        names = [(f"s{n}", old, 0.0) for n in range(MOST_SIGNALS)]
        with store.transaction() as tx:
            points = [(name, NOW - at * MINUTE, value) for name, at, value in names]
            added = tx.add_signal_points([*points, ("young", NOW, 1.0)], NOW)
        assert (added.fresh, added.duplicates, added.refused) == (1, 0, ())
        assert added.outdated == tuple(range(MOST_SIGNALS))
        assert add(store, ("more", 1, 0.0)) == (1, 0, ())
        assert set(store.signal_names()) == {"more", "young"}

    def test_a_plan_takes_the_place_of_the_one_before(self, store: Store) -> None:
        add_study(store)
        assert store.forecast_plan(STUDY) is None
        with store.transaction() as tx:
            tx.save_forecast_plan(STUDY, {"feature": "a", "signals": []}, NOW)
            tx.save_forecast_plan(STUDY, {"feature": "b", "signals": [], "more": None}, LATER)
        assert store.forecast_plan(STUDY) == (LATER, {"feature": "b", "signals": [], "more": None})

    def test_a_damaged_plan_is_none_and_told(
        self, store: Store, caplog: pytest.LogCaptureFixture
    ) -> None:
        add_study(store)
        with store.transaction() as tx:
            tx.save_forecast_plan(STUDY, {"feature": "a", "signals": [{}]}, NOW)
        assert store.forecast_plan(STUDY) is None
        assert f"the forecast of study {STUDY} is damaged" in caplog.text

    def test_points_of_a_time_are_counted(self, store: Store) -> None:
        add(store, ("a", 5, 1.0), ("a", 4, 1.0), ("a", 3, 1.0), ("b", 4, 1.0))
        counts = store.count_signal_points(["a", "c"], NOW - 5 * MINUTE, NOW - 3 * MINUTE)
        assert counts == {"a": 2, "c": 0}

    def test_points_of_several_signals_are_read_at_once(self, store: Store) -> None:
        add(store, ("a", 5, 1.0), ("b", 4, 2.0), ("a", 3, 3.0), ("c", 4, 9.0), ("a", 1, 4.0))
        points = store.points_by_signal(["b", "a", "none"], NOW - 9 * MINUTE, NOW - 2 * MINUTE)
        at = (NOW - 5 * MINUTE).timestamp()
        assert points == {"a": [(at, 1.0), (at + 120, 3.0)], "b": [(at + 60, 2.0)], "none": []}

    def test_a_batch_takes_no_more_statements_for_more_signals(self, store: Store) -> None:
        """Each of its own was six times the processor time."""
        statements: list[str] = []
        sa.event.listen(
            store._database.engine,
            "before_cursor_execute",
            lambda *given: statements.append(given[2]),
        )

        def batch(signals: int, minutes: int) -> int:
            points = [(f"s{number}", minutes, 1.0) for number in range(signals)]
            add(store, *points)  # such as are new take one each, once
            statements.clear()
            assert add(store, *((name, at - 1, v) for name, at, v in points))[0] == signals
            return len(statements)

        assert batch(40, 9) == batch(2, 7)
