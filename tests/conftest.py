"""Servers that several tests share, one of each per run.

Where a server cannot run, its tests are skipped and the end of the run says so in a block that
nobody can miss; in CI (``CI=true``) they fail. ``TUNERD_TEST_KAFKA`` (host:port) and
``TUNERD_TEST_POSTGRES`` (a URL whose user may create databases) name servers that exist already.
"""

import os
import secrets
import shutil
import sys
from collections.abc import Generator, Iterator
from itertools import groupby
from pathlib import Path

import pytest
from hypothesis import settings

from tests import quick
from tests.needs import MISSING, without
from tests.once import OncePerRun
from tests.servers import MissingServerError
from tests.servers.kafka import KafkaServer
from tests.servers.postgres import Databases, PostgresServer

# How long an example takes says more about the machine's other work than about the code.
settings.register_profile("tunerd", deadline=None)
settings.load_profile("tunerd")


# Where nothing keeps byte code, each process that a test starts compiles tunerd anew: a fifth of
# what starting it costs. And pytest rewrites the assertions of all tests anew: 15 s.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

TESTS = Path(__file__).parent


def pytest_configure() -> None:
    """Keep what tests write in memory, where there is room: SQLite waits for the disk at the end of
    every transaction."""
    memory = Path("/dev/shm")  # noqa: S108 - pytest makes a folder of this user's own in it
    if (
        memory.is_dir()
        and not os.statvfs(memory).f_flag & os.ST_NOEXEC
        and shutil.disk_usage(memory).free > 4 << 30
    ):
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(memory))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--quick", action="store_true", help="no servers, no processes, no fits that take long"
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    known = collection_path.is_relative_to(TESTS) and collection_path != TESTS
    folder = collection_path.relative_to(TESTS).parts[0] if known else ""
    return True if config.getoption("quick") and folder in quick.SLOW_FOLDERS else None


@pytest.hookimpl(trylast=True)  # after pytest-randomly
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("quick"):
        sorted_out: dict[bool, list[pytest.Item]] = {True: [], False: []}
        for item in items:
            sorted_out[_reason(item) is None].append(item)
        config.hook.pytest_deselected(items=sorted_out[False])
        items[:] = sorted_out[True]
    items[:] = _longest_first(items)


def _longest_first(items: list[pytest.Item]) -> list[pytest.Item]:
    """Order test modules so that each worker begins with those that take long: a minute of one
    test, when all others are done, would be a minute for one core only.

    ``--dist worksteal`` gives each worker one stretch of the list.
    """
    modules = [list(tests) for _, tests in groupby(items, key=lambda item: item.path)]
    modules.sort(key=lambda tests: _rank(tests[0].path))
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    shares = [modules[worker::workers] for worker in range(workers)]
    return [test for share in shares for tests in share for test in tests]


def _rank(path: Path) -> int:
    folder = path.relative_to(TESTS).parts[0]
    return 0 if folder in ("docs", "integration") else 1 if folder in quick.SLOW_FOLDERS else 2


def _reason(item: pytest.Item) -> str | None:
    called = getattr(item, "callspec", None)
    return quick.reason(
        item.path.relative_to(TESTS),
        getattr(item, "fixturenames", ()),
        called.params.values() if called else (),
        {mark.name for mark in item.iter_markers()},
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    if not item.config.getoption("quick"):
        return (yield)
    with quick.no_processes():
        return (yield)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for what, reason in MISSING.items():
        terminalreporter.section(f"NOT TESTED: everything that needs {what}", red=True)
        terminalreporter.line(f"Its tests were skipped: {reason}.", red=True, bold=True)


@pytest.fixture(scope="session")
def once_per_run(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> OncePerRun:
    """Makes what all workers share."""
    base = tmp_path_factory.getbasetemp()
    return OncePerRun((base if worker_id == "master" else base.parent) / "shared")


@pytest.fixture(scope="session")
def _own_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    server = KafkaServer(tmp_path_factory.mktemp("kafka") / "broker")
    try:
        server.start()
    except MissingServerError as error:
        without("real Apache Kafka", str(error))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def kafka_bootstrap(request: pytest.FixtureRequest) -> str:
    """Address of a real Kafka. Shared by all tests: use topics and groups with unique names."""
    address = os.environ.get("TUNERD_TEST_KAFKA")
    if address:
        return address
    server: KafkaServer = request.getfixturevalue("_own_kafka")
    return server.bootstrap


@pytest.fixture
def kafka_server(request: pytest.FixtureRequest) -> KafkaServer:
    """The broker itself, for tests that stop, kill or freeze it; they leave it running."""
    if os.environ.get("TUNERD_TEST_KAFKA"):
        pytest.skip("TUNERD_TEST_KAFKA names a broker that is not ours to kill")
    server: KafkaServer = request.getfixturevalue("_own_kafka")
    return server


@pytest.fixture
def unique() -> str:
    """A short name that no other test has, for topics and groups."""
    return f"t{secrets.token_hex(5)}"


@pytest.fixture(scope="session")
def _own_postgres() -> Iterator[PostgresServer]:
    try:
        server = PostgresServer()
    except MissingServerError as error:
        without("real PostgreSQL", str(error))
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture(scope="session")
def postgres_databases(request: pytest.FixtureRequest) -> Iterator[Databases]:
    """Makes fresh databases: ``postgres_databases.create()`` returns a SQLAlchemy URL."""
    url = os.environ.get("TUNERD_TEST_POSTGRES")
    if not url:
        server: PostgresServer = request.getfixturevalue("_own_postgres")
        url = server.url
    databases = Databases(url)
    yield databases
    databases.drop_all()


@pytest.fixture
def postgres_url(postgres_databases: Databases) -> Iterator[str]:
    """SQLAlchemy URL of an empty database of this test's own, dropped after it."""
    url = postgres_databases.create()
    yield url
    postgres_databases.drop(url)


@pytest.fixture
def postgres_server(request: pytest.FixtureRequest) -> PostgresServer:
    """The server itself, for tests that stop or kill it; they leave it running."""
    if os.environ.get("TUNERD_TEST_POSTGRES"):
        pytest.skip("TUNERD_TEST_POSTGRES names a server that is not ours to kill")
    server: PostgresServer = request.getfixturevalue("_own_postgres")
    return server
