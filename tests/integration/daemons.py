"""A daemon as an operator runs it: its own process, a settings file, a folder of studies."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition
from prometheus_client.parser import text_string_to_metric_families

from tests.core.tuning import START, TEXT, random_jobs
from tests.empty_store import empty_store
from tests.servers import free_ports, wait_until
from tunerd.metrics import MetricDefinition
from tunerd.store import Store, StudyRow, open_store

__all__ = ["PATIENCE_S", "Daemon", "events", "read_events", "read_topic"]

PATIENCE_S = 45.0
"""How long a test waits for what should take a second or two: other tests may run beside it."""


@dataclass
class Daemon:
    """Started by ``start``; ``end`` makes sure that nothing of it is left."""

    folder: Path
    bootstrap: str | None = None
    name: str = "tunerd"
    studies: Mapping[str, str] = field(default_factory=lambda: {"toy": TEXT})
    settings: str = ""
    """Further sections of the settings file."""
    environ: Mapping[str, str] = field(default_factory=dict)
    process: "subprocess.Popen[bytes] | None" = None

    def __post_init__(self) -> None:
        for name, text in self.studies.items():
            self.write_study(text, name)
        (self.port,) = free_ports(1)
        stream = 'kind = "jsonl"'
        if self.bootstrap:
            stream = f'kind = "kafka"\n[stream.kafka]\nbootstrap_servers = "{self.bootstrap}"'
        self.file = self.folder / "tunerd.toml"
        self.file.write_text(
            f'name = "{self.name}"\ndata_dir = "data"\nstudies = "studies"\n[stream]\n{stream}\n'
            f'[topics]\njobs = "{self.name}.jobs"\nrejected = "{self.name}.rejected"\n'
            f'recommendations = "{self.name}.recommendations"\n'
            f'requests = "{self.name}.requests"\n'
            f"[http]\nport = {self.port}\n{self.settings}\n"
        )
        self.log = self.folder / "log"

    def write_study(self, text: str, name: str = "toy") -> None:
        """Write a study's file."""
        (self.folder / "studies").mkdir(parents=True, exist_ok=True)
        (self.folder / "studies" / f"{name}.toml").write_text(text)

    # -- its life ---------------------------------------------------------------------------

    def start(self) -> None:
        """Start it, and wait until it says that it has started."""
        lines = len(self.lines("started"))
        self.spawn()
        self.until(lambda: len(self.lines("started")) > lines, "the daemon starts")

    def spawn(self, *program: str) -> "subprocess.Popen[bytes]":
        """Start it, as ``python -m tunerd`` or as another ``program``. Its store is there as a
        rule: each first start would bring one up to the schema, which takes longer than the start.
        ``tests/docs`` starts in an empty folder."""
        command = program or (sys.executable, "-m", "tunerd")
        elsewhere = any(name.startswith("TUNERD_STORE") for name in self.environ)
        if not elsewhere and "[store]" not in self.file.read_text():
            empty_store(self.folder / "data/tunerd.sqlite")
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "run", "--settings", str(self.file)],
                stderr=log,
                stdout=log,
                env=os.environ | self.environ,
            )
        return self.process

    def run(self) -> tuple[int, str]:
        """Start one that cannot run; its exit code, and all that it said."""
        done = subprocess.run(
            [sys.executable, "-m", "tunerd", "run", "--settings", str(self.file)],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    def stop(self) -> tuple[int, float]:
        """SIGTERM; the exit code, and how many seconds it took."""
        assert self.process is not None
        begin = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(PATIENCE_S)
        return code, time.monotonic() - begin

    def end(self) -> None:
        """Whatever the test did."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def until(self, true: Callable[[], bool], what: str) -> None:
        """Wait for something that it does; it must not end meanwhile."""

        def checked() -> bool:
            if self.process is not None and self.process.poll() is not None:
                raise AssertionError(f"the daemon ended: {self.log.read_text()[-3000:]}")
            return true()

        try:
            wait_until(checked, PATIENCE_S, what)
        except TimeoutError as error:
            raise AssertionError(f"{error}; {self.log.read_text()[-3000:]}") from None

    # -- what it says -----------------------------------------------------------------------

    def lines(self, event: str | None = None) -> list[dict[str, Any]]:
        """Its log, of which every line is a JSON object."""
        if not self.log.exists():
            return []
        whole = self.log.read_text().rpartition("\n")[0].splitlines()
        found = [json.loads(line) for line in whole]
        return [line for line in found if event in (None, line["event"])]

    def get(self, path: str) -> tuple[int, str]:
        """Status and text of a page; 0 while nobody answers."""
        try:
            with urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as page:
                return page.status, page.read().decode()
        except HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except (URLError, OSError):
            return 0, ""

    def metric(self, metric: MetricDefinition, **labels: str) -> float | None:
        """The value of a series; None when it is not there."""
        for family in text_string_to_metric_families(self.get("/metrics")[1]):
            for sample in family.samples:
                if (sample.name, sample.labels) == (metric.series, labels):
                    return sample.value
        return None

    @property
    def tuner_pid(self) -> int | None:
        """Process id of the tuner process."""
        assert self.process is not None
        with contextlib.suppress(OSError):
            children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
            for pid in map(int, children.read_text().split()):
                if "tunerd.service.tuner_main" in Path(f"/proc/{pid}/cmdline").read_text():
                    return pid
        return None

    # -- what goes in and comes out ---------------------------------------------------------

    def send(self, values: Sequence[bytes], topic: str = "jobs") -> None:
        """Jobs finish; or, to the topic ``requests``, somebody asks."""
        if self.bootstrap is None:
            with (self.folder / f"data/stream/{self.name}.{topic}.jsonl").open("ab") as file:
                file.write(b"".join(value + b"\n" for value in values))
            return
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for value in values:
            producer.produce(f"{self.name}.{topic}", value)
        assert producer.flush(PATIENCE_S) == 0

    def recommended(self) -> list[dict[str, Any]]:
        """Lines of the recommendations' file, for a folder."""
        path = self.folder / f"data/stream/{self.name}.recommendations.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()]

    @contextlib.contextmanager
    def store(self) -> Iterator[Store]:
        """Its store, to look at."""
        with open_store(f"sqlite:///{self.folder}/data/tunerd.sqlite", upgrade=False) as store:
            yield store

    def study(self, name: str = "toy") -> StudyRow:
        """How far a study is."""
        with self.store() as store:
            row = store.study(name)
            assert row is not None
            return row

    def learned(self, count: int, name: str = "toy") -> None:
        """Wait until so many observations are learned and all that follows is sent."""

        with self.store() as store:  # opening it takes five times as long as asking it

            def done() -> bool:
                row = store.study(name)
                settled = row is not None and row.learned_sequence >= count
                return settled and not store.outbox_depths()

            self.until(done, f"{count} observations are learned")


def events(count: int, first: int = 1, study: str = "toy") -> list[bytes]:
    """Jobs of the toy study that have just finished."""
    now = datetime.now(UTC) - timedelta(hours=1)
    return [
        json.dumps(
            {
                "schema": "tunerd.job/1",
                "source": "test",
                "event_id": f"{study}-{one.event_id}",
                "study": study,
                "job_id": one.job_id,
                "status": one.status.value,
                "finished_at": (now + (one.finished_at - START)).isoformat(),
                "context": one.context,
                "config": one.config,
                "metrics": one.metrics,
            }
        ).encode()
        for one in random_jobs(count, seed=first, first=first)
    ]


def read_topic(bootstrap: str, topic: str) -> list[Message]:
    """All that was committed on a topic, by another client than ours."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "look",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
        }
    )
    partitions = consumer.list_topics(topic, 10).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
    found, ended = [], 0
    while ended < len(partitions):
        record = consumer.poll(10)
        assert record is not None
        if record.error() is None:
            found.append(record)
        else:
            ended += 1
    consumer.close()
    return found


def read_events(bootstrap: str, topic: str) -> list[dict[str, Any]]:
    """The JSON objects of a topic."""
    return [json.loads(record.value() or b"null") for record in read_topic(bootstrap, topic)]
