"""How long a stop takes while the daemon learns a backlog and other programs want its cores.

Each round starts a daemon on a folder with a backlog, waits until it learns, and sends SIGTERM.
Five seconds are promised, whatever it is at.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.kit import Bars, Daemon, arguments
from benchmarks.latency import history
from tests.servers import tied
from tunerd.core.study_file import parse_study
from tunerd.lab.simulation.shipped import shipped_study
from tunerd.lab.simulation.simulator import simulator_for

STOP_S = 5.0
JOBS = 4_000
BUSY = "while True: pass"


@contextmanager
def busy(count: int) -> Iterator[None]:
    """So many other programs want a core each."""
    others = [subprocess.Popen([*tied(), sys.executable, "-c", BUSY]) for _ in range(count)]
    try:
        yield
    finally:
        for one in others:
            one.kill()
            one.wait()


def stopped(folder: Path, text: str, lines: bytes, wait_s: float, others: int) -> float:
    """Seconds from SIGTERM until the process is gone."""
    daemon = Daemon(folder, {"llm-pretrain": text})
    stream = folder / "data/stream"
    stream.mkdir(parents=True)
    (stream / f"{daemon.jobs}.jsonl").write_bytes(lines)
    with busy(others):
        daemon.start()
        time.sleep(wait_s)
        assert daemon.process is not None
        begin = time.monotonic()
        daemon.process.send_signal(signal.SIGTERM)
        daemon.process.wait(60)
        return time.monotonic() - begin


def main() -> int:
    """Run it; the exit code."""
    parser = arguments(__doc__)
    parser.add_argument("--others", type=int, default=2 * (os.cpu_count() or 1))
    options = parser.parse_args()
    bars = Bars("stopping")
    study = parse_study(shipped_study("llm-pretrain"))
    text = shipped_study("llm-pretrain")
    jobs = history(simulator_for(study), 400 if options.quick else JOBS)
    lines = b"".join(json.dumps(job).encode() + b"\n" for job in jobs)
    for wait_s in (1.0,) if options.quick else (0.5, 2.0, 4.0, 8.0):
        with tempfile.TemporaryDirectory(prefix="stopping-") as folder:
            took = stopped(Path(folder), text, lines, wait_s, options.others)
        name = f"SIGTERM {wait_s:g} s after it was ready"
        bars.hold(name, took, took < STOP_S, f"under {STOP_S:g}", "s")
    return bars.end(options)


if __name__ == "__main__":
    sys.exit(main())
