"""Halves of jobs, shuffled over an hour, and ``kill -9`` of the daemon while they are joined.

5 % of the halves are late by an hour, 2 % never come, 5 % come twice; a tenth of the jobs is
preempted and requeued, others are tasks of arrays or components of heterogeneous jobs. Each attempt
must be joined once, as what was sent of it, and the rest must be visible with what is missing. The
hour passes as fast as the daemon reads. With ``--stages ingest`` nothing is learned meanwhile.
"""

import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.kit import Bars, Daemon, arguments
from tests.core.tuning import TEXT
from tests.split_jobs import SplitJobs, compare, split_jobs
from tunerd.store import open_store

JOBS = 10_000
KILLS = 10
ALIVE_S = (0.0, 0.5)
"""How long a daemon goes on before it is killed, once it has read some of what came last."""
BATCH = 500
"""Records of a transaction: small, so that it is killed in the middle of what came."""
MOST_S = 900.0


def read(folder: Path) -> int:
    """Bytes of the jobs topic that were read and kept: only ingest moves its position, and it does
    so with what it has joined."""
    with open_store(f"sqlite:///{folder}/data/tunerd.sqlite", upgrade=False) as store:
        return sum(one.offset for one in store.positions())


def reached(folder: Path, offset: int) -> None:
    """Wait until so many bytes were read."""
    deadline = time.monotonic() + MOST_S
    while read(folder) < offset:
        if time.monotonic() > deadline:
            raise RuntimeError("not everything was read in time")
        time.sleep(0.05)


def joined_under_fire(folder: Path, made: SplitJobs, kills: int, stages: str, bars: Bars) -> None:
    """Send everything, kill the daemon so many times meanwhile, and look at what is there."""
    daemon = Daemon(folder, {"toy": TEXT}, settings=f"[ingest]\nbatch_records = {BATCH}")
    stream = folder / "data/stream"
    stream.mkdir(parents=True)
    file = stream / f"{daemon.jobs}.jsonl"
    file.touch()
    rng = np.random.default_rng(1)
    pieces = np.array_split(np.arange(len(made.events)), kills + 1)
    begin = time.monotonic()
    sent = killed_within = 0
    for number, piece in enumerate(pieces):
        daemon.start("--stages", stages)
        with file.open("ab") as stream_file:
            stream_file.write(b"".join(made.events[i] + b"\n" for i in piece.tolist()))
        before, sent = sent, file.stat().st_size
        if number < kills:
            reached(folder, before + 1)
            time.sleep(float(rng.uniform(*ALIVE_S)))
            assert daemon.process is not None
            daemon.process.kill()
            daemon.process.wait()
            killed_within += read(folder) < sent
    bars.say("killed before it had read what there was", killed_within)
    reached(folder, sent)
    bars.say("joined and kept after", time.monotonic() - begin, "s")
    with open_store(f"sqlite:///{folder}/data/tunerd.sqlite", upgrade=False) as store:
        daemon.stop()
        count = store.progress()[0].last_sequence
        history = store.observations("toy", limit=count + 1)
        waiting = store.waiting_attempts(limit=10**6)
        rejected = sum(depth.unsent for depth in store.outbox_depths().values())
    found = compare(made, history, waiting)
    bars.say("halves sent", len(made.events))
    bars.say("attempts to be joined", len(made.joined))
    bars.say("attempts that miss a half", len(made.waiting))
    bars.say("observations, corrected ones with them", len(history))
    for name in ("lost", "doubled", "wrong", "invisible", "unexpected"):
        keys = getattr(found, name)
        bars.hold(f"attempts {name}", len(keys), not keys, "0")
    bars.hold("halves rejected", rejected, not rejected, "0")


def main() -> int:
    """Run it; the exit code."""
    parser = arguments(__doc__)
    parser.add_argument("--jobs", type=int, help=f"{JOBS:,} unless --quick")
    parser.add_argument("--kills", type=int, help=f"{KILLS} unless --quick")
    parser.add_argument("--stages", default="ingest,publish,tune,requests")
    options = parser.parse_args()
    bars = Bars("halves")
    made = split_jobs(options.jobs or (300 if options.quick else JOBS))
    kills = options.kills if options.kills is not None else (2 if options.quick else KILLS)
    bars.say("kills", kills)
    with tempfile.TemporaryDirectory(prefix="halves-") as folder:
        joined_under_fire(Path(folder), made, kills, options.stages, bars)
    return bars.end(options)


if __name__ == "__main__":
    sys.exit(main())
