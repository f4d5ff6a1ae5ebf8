"""From a request sent to its answer received, in contexts that no job ever ran in.

A request goes to the requests topic of a daemon that knows much or little; the clock runs until an
independent client receives the recommendation under the context's key. With little and with much
history in the same run, on a real Kafka or on a folder; and once more while jobs come in.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from confluent_kafka import Consumer, Producer

from benchmarks.kit import Bars, Daemon, arguments, kafka_broker, percentile, running
from benchmarks.latency import history
from tunerd.core.observation import Scalar
from tunerd.core.study import Study
from tunerd.core.study_file import parse_study
from tunerd.lab.simulation.shipped import shipped_study
from tunerd.lab.simulation.simulator import simulator_for

P99_S = 2.0
GAP_S = 0.25
"""Between an answer and the next request."""
LOST_S = 30.0
JOBS_PER_S = 2.0
SETTLED_S = 2.0
"""So long without a search, and what the flood of history left to do is done."""


class Wire(Protocol):
    """A way to the daemon's topics."""

    def send(self, topic: str, events: Sequence[dict[str, Any]]) -> None:
        """Send and return once they are safe."""

    def receive(self) -> list[tuple[str, dict[str, Any] | None]]:
        """What came on the recommendations topic since the last time."""


class KafkaWire:
    """confluent_kafka, which tunerd does not use."""

    def __init__(self, daemon: Daemon, bootstrap: str) -> None:
        self.producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"asking-{time.time_ns()}",
                "auto.offset.reset": "latest",
                "fetch.wait.max.ms": 10,
                "isolation.level": "read_committed",
                # It is not polled while history is learned; having to join again would count.
                "max.poll.interval.ms": 3_600_000,
            }
        )
        self.consumer.subscribe([daemon.recommendations])
        deadline = time.monotonic() + 30
        while not self.consumer.assignment() and time.monotonic() < deadline:
            self.consumer.poll(0.1)

    def send(self, topic: str, events: Sequence[dict[str, Any]]) -> None:
        for event in events:
            self.producer.produce(topic, json.dumps(event).encode())
            self.producer.poll(0)
        self.producer.flush()

    def receive(self) -> list[tuple[str, dict[str, Any] | None]]:
        found: list[tuple[str, dict[str, Any] | None]] = []
        for record in self.consumer.consume(100, 0.005):
            key, value = record.key(), record.value()
            if record.error() is None and key is not None:
                found.append((key.decode(), json.loads(value) if value else None))
        return found


class FolderWire:
    """Lines in files."""

    def __init__(self, daemon: Daemon) -> None:
        self.folder = daemon.folder / "data/stream"
        self.path = self.folder / f"{daemon.recommendations}.jsonl"
        self.offset = self.path.stat().st_size if self.path.exists() else 0

    def send(self, topic: str, events: Sequence[dict[str, Any]]) -> None:
        with (self.folder / f"{topic}.jsonl").open("a") as file:
            file.write("".join(json.dumps(event) + "\n" for event in events))

    def receive(self) -> list[tuple[str, dict[str, Any] | None]]:
        time.sleep(0.005)
        if not self.path.exists():
            return []
        with self.path.open("rb") as file:
            if self.path.stat().st_size < self.offset:
                self.offset = 0  # it was compacted
            file.seek(self.offset)
            read = file.read()
        whole = read[: read.rfind(b"\n") + 1]
        self.offset += len(whole)
        lines = [json.loads(line) for line in whole.splitlines()]
        return [(line["key"], line["value"]) for line in lines]


def unseen(count: int, seed: int) -> Iterator[dict[str, Scalar]]:
    """Contexts that are not in the history: other model sizes, in between and beyond."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        size = float(rng.choice([2, 5, 10, 20, 34, 65, 100])) * 1e9
        yield {
            "gpu": str(rng.choice(["H100", "A100"])),
            "n_gpus": int(2 ** rng.integers(4, 11)),
            "model_params": size + number * 1e6 + seed * 1e5,
            "global_batch": int(2 ** rng.integers(8, 12)),
            "seq_len": int(2 ** rng.integers(11, 14)),
        }


def request(study: Study, name: str, context: dict[str, Scalar]) -> dict[str, Any]:
    """A request of the contract."""
    return {
        "schema": "tunerd.request/1",
        "source": "bench",
        "event_id": name,
        "study": study.name,
        "context": context,
    }


def probe(
    wire: Wire, daemon: Daemon, study: Study, count: int, tag: int, meanwhile: Callable[[], None]
) -> tuple[list[float], int, int]:
    """Seconds from request to answer; how many got none, and how many were told nothing."""
    took: list[float] = []
    lost = silent = 0
    for number, context in enumerate(unseen(count, tag)):
        key = study.context_key(context)
        sent = time.monotonic()
        wire.send(daemon.requests, [request(study, f"q{tag}-{number}", context)])
        answer = None
        while answer is None and time.monotonic() < sent + LOST_S:
            answer = next((value for name, value in wire.receive() if name == key), None)
        if answer is None:
            lost += 1
        else:
            took.append(time.monotonic() - sent)
            silent += answer["state"] != "active"
        after = time.monotonic() + GAP_S
        while time.monotonic() < after:
            meanwhile()
            time.sleep(0.01)
    return sorted(took), lost, silent


def settle(daemon: Daemon) -> None:
    """Wait until nothing is searched any more."""
    name, seen, since = "tunerd_searched_contexts_total", -1.0, time.monotonic()
    deadline = since + 180
    while time.monotonic() < min(since + SETTLED_S, deadline):
        now = sum(value for one, value in daemon.metrics().items() if one.startswith(name))
        if now != seen:
            seen, since = now, time.monotonic()
        time.sleep(0.2)


def jobs_meanwhile(
    wire: Wire, daemon: Daemon, events: Sequence[dict[str, Any]]
) -> Callable[[], None]:
    """Sends the next job when it is time."""
    left, begin, sent = iter(events), time.monotonic(), [0]

    def send() -> None:
        if time.monotonic() >= begin + sent[0] / JOBS_PER_S:
            sent[0] += 1
            wire.send(daemon.jobs, [next(left)])

    return send


def measure(options: argparse.Namespace, bars: Bars, bootstrap: str | None) -> None:
    """One daemon per size of history."""
    study = parse_study(_study_text(options.predictor))
    most = max(options.sizes)
    events = history(simulator_for(study), most + 1000)
    for tag, size in enumerate(options.sizes):
        with tempfile.TemporaryDirectory(prefix="tunerd-bench-") as folder:
            name = f"asking-{tag}-{time.time_ns()}"
            daemon = Daemon(Path(folder), {study.name: study.text}, bootstrap, name)
            with running(daemon):
                wire: Wire = KafkaWire(daemon, bootstrap) if bootstrap else FolderWire(daemon)
                wire.send(daemon.jobs, events[:size])
                learned = f'tunerd_learned_sequence{{study="{study.name}"}}'
                daemon.wait_for(learned, size, 600)
                settle(daemon)
                count = options.questions
                took, lost, silent = probe(wire, daemon, study, count, 2 * tag + 1, _idle)
                _tell(bars, f"{size} observations", took, lost, silent, count, P99_S)
                busy = jobs_meanwhile(wire, daemon, events[most:])
                took, lost, silent = probe(wire, daemon, study, count, 2 * tag + 2, busy)
                told = f"{size} observations, jobs at {JOBS_PER_S:g}/s"
                _tell(bars, told, took, lost, silent, count, None)


def _tell(
    bars: Bars, what: str, took: list[float], lost: int, silent: int, count: int, bar: float | None
) -> None:
    p50, p99 = percentile(took, 0.5), percentile(took, 0.99)
    bars.say(f"{what}: answered with nothing to say", silent)
    bars.say(f"{what}: p50", p50, "s")
    if bar is None:
        bars.say(f"{what}: p99 ({lost} of {count} lost)", p99, "s")
    else:
        kept = p99 < bar and not lost
        bars.hold(f"{what}: p99", p99, kept, f"under {bar:g} s, none lost ({lost} lost)", "s")


def _idle() -> None: ...


def _study_text(predictor: str) -> str:
    """The LLM study with a predictor of choice."""
    text = shipped_study("llm-pretrain")
    if predictor == parse_study(text).predictor.name:
        return text
    if "[predictor]" in text:
        return text.replace("[predictor]", f'[predictor]\nname = "{predictor}"', 1)
    return f'{text}\n[predictor]\nname = "{predictor}"\n'


def main() -> int:
    """Run it."""
    parser = arguments(__doc__)
    parser.add_argument("--questions", type=int, default=120, help="for each size of history")
    parser.add_argument("--counts", default="1000,20000", help="sizes of history")
    parser.add_argument("--predictor", default="committee", help="of the study")
    parser.add_argument("--folder", action="store_true", help="a folder instead of a broker")
    options = parser.parse_args()
    options.sizes = [int(size) for size in options.counts.split(",")]
    if options.quick:
        options.sizes, options.questions = [300], 15
    bars = Bars("asking")
    where = "a folder" if options.folder else "Kafka"
    print(f"{options.questions} requests on {where}, each in a context that no job ran in")
    with nullcontext() if options.folder else kafka_broker(options) as bootstrap:
        measure(options, bars, bootstrap)
    return bars.end(options)


if __name__ == "__main__":
    sys.exit(main())
