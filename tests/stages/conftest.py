"""A real SQLite store for each test, and a clock that only the test moves."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stages.fakes import Heard, Time
from tests.stages.tuning import Tuning
from tunerd.store import Store, open_store


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with tunerd's schema; copied for each test, which is quicker than migrating."""
    path = tmp_path_factory.mktemp("store") / "empty.sqlite"
    open_store(f"sqlite:///{path}").close()
    return path


@pytest.fixture
def store(tmp_path: Path, empty_store: Path) -> Iterator[Store]:
    shutil.copy(empty_store, tmp_path / "store.sqlite")
    with open_store(f"sqlite:///{tmp_path}/store.sqlite") as opened:
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
