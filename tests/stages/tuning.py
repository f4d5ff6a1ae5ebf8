"""One study and the tune stage on it: what its tests have in common."""

import sqlite3
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, cast

from msgspec import structs

from tests.core.tuning import START as FIRST_JOB
from tests.core.tuning import job, random_jobs, study, true_speed
from tests.empty_store import empty_store
from tests.stages.fakes import Heard, Time
from tunerd import logs
from tunerd.core.observation import Observation
from tunerd.core.recommendation import Recommendation
from tunerd.events import from_bytes
from tunerd.settings.model import TuneSettings
from tunerd.stages.tune import HOUSEKEEP_EVERY_S, TuneStage
from tunerd.store import RecommendationRow, Store, open_store
from tunerd.telemetry import Report

__all__ = [
    "SIGNAL_STUDY",
    "Lines",
    "Tuning",
    "another",
    "job",
    "random_jobs",
    "study",
    "tamper",
    "true_speed",
]

NAME = "toy"
TOPIC = "recommendations"
SIGNAL_STUDY = """
schema = 1
name = "web"
[objective]
metric = "requests_per_dollar"
goal = "maximize"
[context]
service = { type = "category" }
rps = { type = "float", scale = "log", signal = "rps{service=$service}", over = "10m" }
[parameters]
replicas = { type = "int", values = [1, 2, 4, 8] }
"""


@dataclass
class Lines:
    """A log that remembers: event and details."""

    lines: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def info(self, event: str, **detail: Any) -> None:
        self.lines.append((event, detail))

    warning = error = exception = info

    def of(self, event: str) -> list[dict[str, Any]]:
        return [detail for name, detail in self.lines if name == event]


@dataclass(frozen=True)
class _Snapshot:
    """What a study's first jobs came to."""

    store: sqlite3.Connection
    at: datetime
    reports: Sequence[Report]
    lines: Sequence[tuple[str, dict[str, Any]]]


_SNAPSHOTS: dict[Hashable, _Snapshot] = {}


@dataclass
class Tuning:
    """A store with the toy study, and a tuner process after another."""

    store: Store
    time: Time
    heard: Heard
    settings: TuneSettings = field(default_factory=TuneSettings)
    made: list[TuneStage] = field(default_factory=list)
    lines: Lines = field(default_factory=Lines)
    stop: Callable[[], bool] = lambda: False

    def publish(self, **changes: str) -> None:
        """Publish a generation of the study, with lines of its file changed."""
        new = study(**changes)
        self.store.publish_generation(
            NAME, new.content_hash, new.text, "test", self.time.now(), force=True
        )

    def start(self, set_aside: Mapping[str, str] | None = None) -> TuneStage:
        """A tuner process that has just started."""
        self.made.append(
            TuneStage(
                self.store,
                self.settings,
                TOPIC,
                self.heard,
                cast(logs.Log, self.lines),
                self.time.now,
                self.time.clock,
                set_aside or {},
                self.stop,
            )
        )
        return self.made[-1]

    def end(self) -> None:
        """End the threads of all its tuner processes."""
        for stage in self.made:
            stage._background.shutdown()

    def add(self, observations: Sequence[Observation]) -> None:
        """Jobs finish now, so that their contexts are active."""
        with self.store.transaction() as tx:
            tx.add_observations(
                NAME,
                [
                    structs.replace(
                        one, finished_at=self.time.now() + (one.finished_at - FIRST_JOB)
                    )
                    for one in observations
                ],
                self.time.now(),
            )

    def run(self, tune: TuneStage, **wait: float) -> int:
        """Let time pass, enough at least that the stage looks after commands and renewals; then
        step until there is nothing to do. Returns how many steps it took."""
        self.time.pass_(**wait)
        steps = 0
        self.time.pass_(seconds=HOUSEKEEP_EVERY_S + 0.1)
        while tune.step():
            steps += 1
            assert steps < 1000
        return steps

    def learned(self, jobs: int = 60, mode: str = '"publish"') -> None:
        """The study is there, has learned so many jobs, and its tuner process is gone."""

        def learn() -> None:
            self.publish(mode=mode)
            self.add(random_jobs(jobs))
            self.run(self.start())

        self.once((jobs, mode, self.settings), learn)

    def once(self, key: Hashable, make: Callable[[], object]) -> None:
        """Do this to a store in which nothing is yet, in the first test. Those after it get a copy
        of what came of it, as the same jobs teach the same."""
        path = self.store._database.path
        assert path is not None
        assert self.store.study(NAME) is None
        with closing(sqlite3.connect(path)) as here:
            if key in _SNAPSHOTS:
                _SNAPSHOTS[key].store.backup(here)
                self.time.at = _SNAPSHOTS[key].at
                self.heard.reports.extend(_SNAPSHOTS[key].reports)
                self.lines.lines.extend(_SNAPSHOTS[key].lines)
                return
            make()
            kept = sqlite3.connect(":memory:", check_same_thread=False)
            here.backup(kept)
        reports, lines = tuple(self.heard.reports), tuple(self.lines.lines)
        _SNAPSHOTS[key] = _Snapshot(kept, self.time.at, reports, lines)

    def command(self, name: str, **arguments: Any) -> int:
        """An operator gives a command."""
        with self.store.transaction() as tx:
            return tx.add_command(
                NAME, name, arguments, who="ann", why="because", now=self.time.now()
            )

    def result(self, number: int) -> str | None:
        """What came of a command."""
        command = self.store.command(number)
        assert command is not None
        return command.result

    # -- what is there --------------------------------------------------------------------

    def rows(self) -> dict[str, RecommendationRow]:
        """By context key."""
        return {row.context_key: row for row in self.store.recommendations(NAME)}

    def row(self, n: int = 8) -> RecommendationRow:
        """Of one context."""
        return self.rows()[self.key(n)]

    def said(self, n: int = 8) -> Recommendation:
        """The message of one context."""
        return from_bytes(self.row(n).value.encode())

    @staticmethod
    def key(n: int) -> str:
        return study().context_key({"n": n})

    def outbox(self) -> list[tuple[str, int | None, bytes | None]]:
        """Key, revision and value of what waits, and then it is sent."""
        waiting = self.store.unsent(1000)
        self.store.mark_sent([one.id for one in waiting], self.time.now())
        return [(one.context_key or "", one.revision, one.value) for one in waiting]


def tamper(store: Store, statement: str, *values: object) -> None:
    """Change a row behind tunerd's back. ``half`` and ``spoilt`` damage a value; the latter gives
    bytes that are no text."""
    assert store._database.path is not None
    with sqlite3.connect(store._database.path) as connection:
        connection.create_function("half", 1, lambda value: value[: len(value) // 2])
        connection.create_function("spoilt", 1, _spoilt)
        assert connection.execute(statement, values).rowcount > 0
    connection.close()


def _spoilt(value: str | bytes) -> bytes:
    raw = value if isinstance(value, bytes) else value.encode()
    return raw[: len(raw) // 2] + b"\xff" + raw[len(raw) // 2 + 1 :]


@contextmanager
def another(folder: Path) -> Iterator[Tuning]:
    """Another store in this folder, and its tuner processes."""
    with open_store(empty_store(folder / "another.sqlite")) as store:
        tuning = Tuning(store, Time(), Heard())
        yield tuning
        tuning.end()
