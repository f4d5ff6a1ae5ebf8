"""Does it cost a daemon anything that ten browsers look at its pages?

One daemon on a real Kafka, with history. Rounds alternate: nobody looks, ten browsers look. What a
browser does here is what the script of the pages does: it listens to `/events` and fetches its page
again when there is news. All ten run in a process of their own. In each round probes measure the
time from event to recommendation (see `latency`), and a burst how fast events get into history.

The two kinds of rounds share the machine with whatever else runs, so only their ratio counts.
"""

import argparse
import http.client
import json
import multiprocessing
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path

from confluent_kafka import Producer

from benchmarks.kit import Bars, Daemon, arguments, kafka_broker, percentile, running
from benchmarks.latency import history, probe
from tunerd.core.study import Study
from tunerd.core.study_file import parse_study
from tunerd.lab.simulation.shipped import shipped_study
from tunerd.lab.simulation.simulator import simulator_for

BROWSERS = 10
RATIO = 1.25
"""What counts as within noise: medians of rounds of the same kind differ by that much."""
PATHS = ("/", "/studies/{study}", "/studies/{study}/contexts", "/studies/{study}/jobs")


def browse(port: int, path: str, fetched: "Synchronized[int]") -> None:
    """As the pages' script: a page, then the same again whenever there is news."""
    while True:
        with suppress(OSError, http.client.HTTPException):
            stream = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            stream.request("GET", "/events")
            lines = stream.getresponse()
            while line := lines.readline():
                if line.startswith(b"data:"):
                    page = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
                    page.request("GET", path)
                    page.getresponse().read()
                    page.close()
                    with fetched.get_lock():
                        fetched.value += 1
                    time.sleep(0.3)  # so long the script waits, too
        time.sleep(0.2)


def browsers(port: int, study: str, fetched: "Synchronized[int]") -> None:
    """Ten of them, until the process is ended."""
    threads = [
        threading.Thread(
            target=browse, args=(port, PATHS[i % len(PATHS)].format(study=study), fetched)
        )
        for i in range(BROWSERS)
    ]
    for thread in threads:
        thread.start()


@contextmanager
def looked_at(port: int, study: str) -> Iterator["Synchronized[int]"]:
    """While ten browsers look; gives how many pages they fetched."""
    fetched: Synchronized[int] = multiprocessing.Value("q", 0)
    process = multiprocessing.Process(target=browsers, args=(port, study, fetched))
    process.start()
    try:
        yield fetched
    finally:
        process.kill()
        process.join()


def burst(daemon: Daemon, bootstrap: str, study: Study, count: int, tag: int) -> float:
    """Events a second from the first sent until the last is in history."""
    events = history(simulator_for(study), count, seed=1_000 + tag)
    for number, event in enumerate(events):
        event["event_id"] = event["job_id"] = f"burst-{tag}-{number}"
    records = [json.dumps(event).encode() for event in events]
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    # From the store: /metrics would wait in one line with the browsers.
    with closing(
        sqlite3.connect(f"file:{daemon.folder}/data/tunerd.sqlite?mode=ro", uri=True)
    ) as store:
        before, began = in_history(store), time.monotonic()
        for record in records:
            producer.produce(daemon.jobs, record)
            producer.poll(0)
        producer.flush()
        while in_history(store) < before + count:
            time.sleep(0.01)
        return count / (time.monotonic() - began)


def in_history(store: sqlite3.Connection) -> int:
    """How many jobs there are."""
    return int(store.execute("SELECT max(sequence) FROM observations").fetchone()[0] or 0)


def measure(options: argparse.Namespace, bars: Bars, bootstrap: str) -> None:
    """Rounds in turn, on one daemon."""
    study = parse_study(shipped_study("llm-pretrain"))
    simulator = simulator_for(study)
    jobs, size = (300, 300) if options.quick else (2_000, 6_000)
    took: dict[bool, list[float]] = {False: [], True: []}
    rates: dict[bool, list[float]] = {False: [], True: []}
    pages = lost = 0
    with tempfile.TemporaryDirectory(prefix="tunerd-bench-") as folder:
        daemon = Daemon(
            Path(folder), {study.name: study.text}, bootstrap, f"looking-{time.time_ns()}"
        )
        with running(daemon):
            known = burst(daemon, bootstrap, study, jobs, 0) and jobs
            learned = f'tunerd_learned_sequence{{study="{study.name}"}}'
            daemon.wait_for(learned, known, 600)
            time.sleep(5 if options.quick else 20)  # what the flood left to search again
            # Bursts come last: a burst brings a rebuild, and who comes while it is decided waits.
            for round_ in range(1, 2 * options.rounds + 1):
                look = round_ % 2 == 0
                with looked_at(daemon.port, study.name) if look else quiet() as fetched:
                    seconds, missing = probe(daemon, bootstrap, simulator, options.probes, round_)
                    pages += fetched.value
                took[look] += seconds
                lost += missing
                known += options.probes
            for round_ in range(1, 2 * options.rounds + 1):
                daemon.wait_for(learned, known, 600)
                look = round_ % 2 == 0
                with looked_at(daemon.port, study.name) if look else quiet() as fetched:
                    rates[look].append(burst(daemon, bootstrap, study, size, round_))
                    pages += fetched.value
                known += size
    bars.say("pages that browsers fetched", pages)
    for look, name in ((False, "nobody looks"), (True, "ten browsers look")):
        bars.say(f"{name}: p50", percentile(sorted(took[look]), 0.5), "s")
        bars.say(f"{name}: p99", percentile(sorted(took[look]), 0.99), "s")
        bars.say(f"{name}: events into history, median", percentile(sorted(rates[look]), 0.5), "/s")
    ratio = percentile(sorted(took[True]), 0.99) / percentile(sorted(took[False]), 0.99)
    bars.hold(
        "p99, looked at against not", ratio, ratio < RATIO and not lost, f"under {RATIO}", "x"
    )
    rate = percentile(sorted(rates[False]), 0.5) / percentile(sorted(rates[True]), 0.5)
    bars.hold("ingest, not looked at against looked at", rate, rate < RATIO, f"under {RATIO}", "x")


@contextmanager
def quiet() -> Iterator["Synchronized[int]"]:
    """Nobody looks."""
    yield multiprocessing.Value("q", 0)


def main() -> int:
    """Run it."""
    parser = arguments(__doc__)
    parser.add_argument("--probes", type=int, default=60, help="in each round")
    parser.add_argument("--rounds", type=int, default=3, help="of each kind")
    options = parser.parse_args()
    if options.quick:
        options.probes, options.rounds = 10, 1
    bars = Bars("looking")
    with kafka_broker(options) as bootstrap:
        measure(options, bars, bootstrap)
    return bars.end(options)


if __name__ == "__main__":
    sys.exit(main())
