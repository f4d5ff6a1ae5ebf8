"""What ``make test-quick`` leaves out: servers, processes, and fits that take long.

Most of it is recognised by fixtures and folders. A test that takes a quarter of a second, or
more, says so itself: ``@pytest.mark.slow``. A quick test that starts a process fails.
"""

import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["SLOW_FOLDERS", "no_processes", "reason"]

SLOW_FOLDERS = frozenset(
    {"benchmarks", "browser", "docs", "exec", "integration", "servers", "slurm", "trainers"}
)
"""Folders below ``tests`` in which nearly everything starts processes."""
_SERVERS = frozenset(
    {"_own_kafka", "browser", "kafka_bootstrap", "kafka_server", "postgres_databases", "secure"}
)
"""Fixtures: whatever else needs a server asks for one of these."""
_FITS = frozenset({"filled", "tuned", "tuning", "world"})
"""Fixtures: a tune stage on a store, and three that have learned."""
_KINDS = frozenset({"kafka", "postgresql"})
"""Parameters of fixtures that ask for a server when they run."""


def reason(
    path: Path, fixtures: Collection[str], parameters: Collection[object], marks: Collection[str]
) -> str | None:
    """Say why a test is not quick; None for one that is. ``path`` is relative to ``tests``."""
    if path.parts[0] in SLOW_FOLDERS:
        return "processes"
    texts = (one for one in parameters if isinstance(one, str))  # others may be long to write out
    if _SERVERS.intersection(fixtures) or any(one in _KINDS for one in texts):
        return "server"
    return "slow" if "slow" in marks or _FITS.intersection(fixtures) else None


_forbidden = False
_listening = False


@contextmanager
def no_processes() -> Iterator[None]:
    """Fail the test that starts a process meanwhile."""
    global _forbidden, _listening
    if not _listening:
        sys.addaudithook(_hear)  # until the end: nobody can take one away
        _listening = True
    _forbidden = True
    try:
        yield
    finally:
        _forbidden = False


def _hear(event: str, arguments: tuple[object, ...]) -> None:
    if _forbidden and event in ("subprocess.Popen", "os.fork", "os.posix_spawn"):
        what = arguments[1] if event == "subprocess.Popen" else event
        pytest.fail(f"a quick test starts a process ({what}): mark it slow", pytrace=False)
