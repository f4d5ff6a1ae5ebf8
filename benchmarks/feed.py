"""Events for a benchmark that must lose none: with upstream's duplicates, and rubbish between."""

import json
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import numpy as np
from confluent_kafka import Producer

__all__ = ["PARTITIONS", "STUDY", "TEXT", "Feeder", "Traffic", "traffic"]

STUDY = "crash"
TEXT = """
schema = 1
name = "crash"
mode = "publish"
explore_share = 0.5
[objective]
metric = "speed"
goal = "maximize"
unit = "1/s"
[context]
n = { type = "int", scale = "log" }
gpu = { type = "category" }
[parameters]
x = { type = "int", values = [1, 2, 3, 4, 5, 6, 7, 8] }
y = { type = "category", values = ["a", "b", "c"] }
z = { type = "bool" }
[constraints]
fits = "x <= n"
[search]
seeds = [1]
steps = 20
evaluations = 400
[predictor]
members = 2
trees = 15
"""
SIZES = (2, 4, 8, 16, 32, 64)
GPUS = ("A100", "H100", "H200", "B200")
DUPLICATES = 0.1
"""Share of the events that are sent a second time, a while after the first."""
BROKEN = 0.01
"""Beside them as many records that are no events, each with a content of its own."""
PARTITIONS = 3


@dataclass
class Traffic:
    """Records to send, in order, and what must come of them."""

    records: list[bytes] = field(default_factory=list)
    events: set[str] = field(default_factory=set)
    broken: int = 0


def traffic(count: int, rng: np.random.Generator, studies: Sequence[str] = (STUDY,)) -> Traffic:
    """``count`` events in two dozen contexts of each study, with upstream's duplicates and rubbish
    between."""
    made = Traffic()
    begin = datetime.now(UTC) - timedelta(days=1)
    placed: list[tuple[float, bytes]] = []
    for i in range(count):
        n, x = int(rng.choice(SIZES)), int(rng.integers(1, 9))
        y, z = str(rng.choice(["a", "b", "c"])), bool(rng.integers(2))
        speed = 100 * n * np.exp(-0.05 * (x - 6) ** 2 + 0.3 * (y == "c") + rng.normal(0, 0.05))
        event = {
            "schema": "tunerd.job/1",
            "source": "crashes",
            "event_id": f"e{i}",
            "study": studies[i % len(studies)],
            "job_id": f"j{i}",
            "status": "succeeded" if rng.random() < 0.95 else "out_of_memory",
            "finished_at": (begin + timedelta(seconds=i)).isoformat(),
            "context": {"n": n, "gpu": str(rng.choice(GPUS))},
            "config": {"x": min(x, n), "y": y, "z": z},
            "metrics": {"speed": float(speed)},
        }
        if event["status"] != "succeeded":
            event["metrics"] = {}
        raw = json.dumps(event).encode()
        made.events.add(f"e{i}")
        placed.append((i, raw))
        if rng.random() < DUPLICATES:
            placed.append((i + float(rng.exponential(100.0)), raw))
        if rng.random() < BROKEN:
            placed.append((i + 0.5, f"rubbish {i}".encode()))
            made.broken += 1
    made.records = [raw for _, raw in sorted(placed, key=lambda one: one[0])]
    return made


class Feeder:
    """Sends the records evenly over a time, in a thread, and then what is left at once."""

    def __init__(self, bootstrap: str, topic: str, records: Sequence[bytes], within_s: float):
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "linger.ms": 5, "enable.idempotence": True}
        )
        self._topic, self._records, self._within_s = topic, records, within_s
        self._hurry = threading.Event()
        self._failed: list[object] = []
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        """Send the rest; returns once the broker has everything."""
        self._hurry.set()
        self._thread.join()
        if self._producer.flush(60) or self._failed:
            raise RuntimeError(f"Kafka did not take all events: {self._failed[:1]}")

    def _run(self) -> None:
        begin, total = time.monotonic(), len(self._records)
        for i, raw in enumerate(self._records):
            self._producer.produce(
                self._topic, raw, partition=i % PARTITIONS, on_delivery=self._delivered
            )
            self._producer.poll(0)
            ahead_s = (i + 1) / total * self._within_s - (time.monotonic() - begin)
            if ahead_s > 0.05:
                self._hurry.wait(ahead_s)

    def _delivered(self, error: object, _: object) -> None:
        if error is not None:
            self._failed.append(error)
