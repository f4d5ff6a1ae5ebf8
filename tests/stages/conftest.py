"""A real SQLite store for each test, and a clock that only the test moves."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.empty_store import empty_store
from tests.stages.fakes import Heard, Time
from tests.stages.tuning import Tuning
from tunerd.store import Store, open_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(empty_store(tmp_path / "store.sqlite")) as opened:
        yield opened


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def tuning(store: Store, time: Time, heard: Heard) -> Iterator[Tuning]:
    """Tune stages on that store. Their processes end with the test."""
    made = Tuning(store, time, heard)
    yield made
    made.end()
