"""An instance whose clock is two years ahead: what the others wrote lately is not old to it."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from tests.stages.fakes import FakeStream, Heard, Time
from tests.stages.test_halves import publish, run, stage, start, waiting
from tests.stages.test_signals import forecasting, short_load
from tests.stages.tuning import NAME, Tuning, random_jobs
from tunerd.store import Store, open_store

AHEAD = timedelta(days=800)


@pytest.fixture
def shared(postgres_url: str) -> Iterator[Store]:
    """With a clock of its own."""
    with open_store(postgres_url) as store:
        yield store


@pytest.fixture
def right() -> Time:
    return Time(datetime.now(UTC))


@pytest.fixture
def wrong(right: Time) -> Time:
    return Time(right.at + AHEAD)


@pytest.mark.slow
def test_halves_that_wait_for_others_are_kept(shared: Store, right: Time, wrong: Time) -> None:
    stream = FakeStream()
    publish(shared, right)
    stream.write(start())
    run(stage(stream, shared, right, Heard()))
    run(stage(stream, shared, wrong, Heard()))
    assert [attempt.job_id for attempt in waiting(shared)] == ["1"]


@pytest.mark.slow
def test_points_of_signals_are_kept(shared: Store, right: Time, wrong: Time) -> None:
    short_load(shared, right, "load")
    forecasting(shared, wrong).step()
    assert list(shared.signal_names()) == ["load"]


def test_predictions_are_kept(tuning: Tuning) -> None:
    tuning.learned(60)
    before = tuning.store.count_predictions(NAME)
    assert before > 10
    tuning.add(random_jobs(10, first=61))
    tuning.time.pass_(seconds=AHEAD.total_seconds())
    tuning.run(tuning.start())
    assert tuning.store.count_predictions(NAME) > before
