"""Makes the stores beside this file: ``python -m tests.store.released.make 0003``.

It needs a clone with its history. For each schema, the daemon of the last commit that had it runs
on a folder and a SQLite file. A seeded cluster sends it jobs and follows some recommendations, and
somebody gives it a command. What it left is dumped as SQL. What its own ``tunerd ledger --json``
said is kept beside. A daemon decides by the clock too: a second run makes another store, and as
good a one.
"""

import gzip
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from tests.core.tuning import true_speed
from tests.integration.daemons import Daemon, events
from tests.store.released import FOLDER

__all__ = ["COMMITS"]

COMMITS = {
    "0001": "29d9d571d003a012f2afc28a0904e8a254ef107b",
    "0002": "6fd0b274778a3fe27d33aa6a69fefde589aec2af",
    "0003": "f172bc8b90b84ad2aa12dfaf7f7201d7ba249bce",
    "0004": "fbf2329973a691697bd682171781a5fbc36aef33",
    "0005": "76724374ee47b7d8ce1a117eae9c6c67e306264e",
    "0006": "d22c3dbf85f9e5b898663bdf1163462db074a361",
    "0007": "9cfd0ac61809a7ac65d03300d78ae21a39454a50",
    "0008": "9c5a409f81d0bb3af0caf85e2981dcb13497d630",
    "0009": "185ba085e16edd16c4f22ef9d252202285fa24a0",
}
"""The last commit of each schema; of the newest, the last one when its store was made."""
RANDOM, FOLLOWED = 48, 12
LEARNED = "SELECT count(*) FROM studies WHERE learned_sequence = ?"
SENT = "SELECT count(*) = 0 FROM outbox WHERE settled_at IS NULL"
HALF = {
    "schema": "tunerd.job/1",
    "type": "started",
    "source": "slurm/a",
    "event_id": "start/half",
    "study": "toy",
    "job_id": "half",
    "started_at": "2026-11-20T13:00:00Z",
    "context": {"n": 8},
    "config": {"x": 4, "y": "b", "z": True},
}
"""Half a job, of which no more is told."""
SIGNAL = {
    "schema": "tunerd.signal/1",
    "name": "rps",
    "time": "2026-11-20T13:00:00Z",
    "value": 840,
}


def make(schema: str) -> None:
    """Write the files of one schema."""
    with tempfile.TemporaryDirectory(prefix="tunerd-released-") as folder, _code(schema) as code:
        # Without a safe path, the code of this folder would come before that of the worktree.
        environ = {"PYTHONPATH": str(code), "PYTHONSAFEPATH": "1"}
        # A section for the store keeps it from being given an empty one of today's schema.
        daemon = Daemon(Path(folder), environ=environ, settings="[store]\n")
        if schema < "0003":  # they know no such topic
            text = daemon.file.read_text()
            daemon.file.write_text(text.replace('requests = "tunerd.requests"\n', ""))
        try:
            _live(daemon, schema)
        finally:
            daemon.end()
        with closing(sqlite3.connect(daemon.folder / "data/tunerd.sqlite")) as store:
            dump = "\n".join(store.iterdump()) + "\n"
        (FOLDER / f"{schema}.sql.gz").write_bytes(gzip.compress(dump.encode(), mtime=0))
        if schema >= "0003":
            said = _tunerd(daemon, "ledger", "toy", "--since", "2026-01-01", "--json")
            (FOLDER / f"{schema}.ledger.json").write_text(said)


def _live(daemon: Daemon, schema: str) -> None:
    """What it goes through: jobs, followers, a slip, a command, half a job, a signal, a stop."""
    daemon.start()
    daemon.send(events(RANDOM))
    _until(daemon, LEARNED, RANDOM)
    _until(daemon, "SELECT count(*) >= 3 FROM recommendations")
    _until(daemon, SENT)
    newest = {line["key"]: line["value"] for line in daemon.recommended()}
    followers = [_follower(i, list(newest.values())) for i in range(FOLLOWED)]
    if schema >= "0007":  # one that nobody believes
        followers[-1] = _follower(FOLLOWED - 1, list(newest.values()), factor=1e6)
    daemon.send(followers)
    _until(daemon, LEARNED, RANDOM + FOLLOWED)
    if schema >= "0007":
        _until(daemon, "SELECT count(*) FROM quarantine")
    asked: tuple[str, ...] = ("forbid", "toy", "--set", "y=a")
    if schema == "0001":  # it knows nothing to forbid
        asked = ("campaign", "toy", "--context", "n=8", "--jobs", "2", "--rounds", "1")
    _tunerd(daemon, *asked, "--why", "to see it after an upgrade")
    _until(daemon, "SELECT count(*) FROM commands WHERE finished_at IS NOT NULL")
    if schema >= "0004":
        daemon.send([json.dumps(HALF).encode()])
        _until(daemon, "SELECT count(*) FROM attempts")
    if schema >= "0006":
        daemon.send([json.dumps(SIGNAL).encode()])
        _until(daemon, "SELECT count(*) FROM signal_points")
    _until(daemon, SENT)
    assert daemon.stop()[0] == 0


def _follower(number: int, newest: list[dict[str, Any]], factor: float = 1.0) -> bytes:
    """A job that runs what was recommended, and reports so many times its speed."""
    advice = newest[number % len(newest)]
    candidate = advice["candidates"][number % len(advice["candidates"])]
    event: dict[str, Any] = json.loads(events(1, first=100 + number)[0])
    speed = true_speed(advice["context"], candidate["config"]) * (1 + 0.01 * (number % 3))
    speed *= factor
    return json.dumps(
        event
        | {"status": "succeeded", "context": advice["context"], "config": candidate["config"]}
        | {"metrics": {"speed": speed}, "recommendation_id": advice["recommendation_id"]}
        | {"candidate_id": candidate["candidate_id"]}
    ).encode()


def _tunerd(daemon: Daemon, *arguments: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "tunerd", *arguments, "--settings", str(daemon.file)],
        env=os.environ | daemon.environ,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout


def _until(daemon: Daemon, statement: str, *values: int) -> None:
    def true() -> bool:
        with closing(sqlite3.connect(daemon.folder / "data/tunerd.sqlite")) as store:
            return bool(store.execute(statement, values).fetchone()[0])

    daemon.until(true, statement)


@contextmanager
def _code(schema: str) -> Iterator[Path]:
    """A worktree with the code of this schema."""
    with tempfile.TemporaryDirectory(prefix="tunerd-code-") as folder:
        code = Path(folder) / schema
        subprocess.run(["git", "worktree", "add", "--detach", code, COMMITS[schema]], check=True)
        try:
            yield code
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", code], check=True)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        make(name)
