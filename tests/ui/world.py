"""Stores to look at: of a small cluster that has been tuned, an empty one, a hostile one."""

import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import structs

from tests.core.tuning import TEXT, random_jobs, true_speed
from tests.empty_store import empty_store
from tests.stages.fakes import Heard, Time
from tests.stages.tuning import Tuning
from tunerd.core.observation import Observation, Status, Value
from tunerd.core.study import Study
from tunerd.core.study_file import parse_study
from tunerd.events import from_bytes
from tunerd.store import Store, open_store

__all__ = ["EVIL", "HOSTILE", "NAMES", "World", "build_hostile", "build_world", "file_of"]

EVIL = "<script>alert(1)</script>\"'`{{7*7}}&|=/%2F\\\x1b[2J\u202ert\u0000l"
LONG = "W" * 3_000
HOSTILE = [EVIL, LONG, "'\"><img src=x onerror=alert(2)>", "=cmd|' /C calc'!A0", "..", "\u202e.gpj"]
NAMES = ("toy", "waiting", "quiet")


@dataclass(frozen=True)
class World:
    """Where a store is, with settings that lead to it."""

    folder: Path

    @property
    def settings(self) -> Path:
        return self.folder / "tunerd.toml"

    def copy(self, folder: Path) -> "World":
        """A world of one's own. By another process: one that closes a file of a store that it has
        open gives up SQLite's locks on it."""
        subprocess.run(["cp", "-r", str(self.folder), str(folder)], check=True)
        return World(folder)

    @contextmanager
    def opened(self) -> Iterator[Store]:
        with open_store(f"sqlite:///{self.folder}/data/tunerd.sqlite", upgrade=False) as store:
            yield store


def study_named(name: str, *replaced: tuple[str, str]) -> Study:
    text = TEXT.replace('name = "toy"', f'name = "{name}"')
    for old, new in replaced:
        assert old in text
        text = text.replace(old, new)
    return parse_study(text)


def file_of(folder: Path) -> World:
    """A folder as an installation has it, with an empty store."""
    empty_store(folder / "data" / "tunerd.sqlite")
    (folder / "studies").mkdir()
    (folder / "tunerd.toml").write_text('data_dir = "data"\nstudies = "studies"\n')
    return World(folder)


def build_world(folder: Path) -> World:
    """Three studies: one that publishes and is followed, one where recommendations wait for a
    person, one without a job."""
    world = file_of(folder)
    time = Time(datetime.now(UTC) - timedelta(hours=8))
    with world.opened() as store, _tuning(store, time) as tuning:
        _publish(store, study_named("toy"), time)
        _publish(store, study_named("waiting", ('mode = "publish"', 'mode = "approve"')), time)
        _publish(store, study_named("quiet", ('mode = "publish"', 'mode = "observe"')), time)
        tune = tuning.start()
        for name in ("toy", "waiting"):
            _add(store, name, random_jobs(40, seed=3), time)
        tuning.run(tune)
        for part in range(4):
            time.pass_(hours=1)
            _add(store, "toy", _following(store, "toy", 41 + 20 * part), time)
            tuning.run(tune)
        with store.transaction() as tx:
            arguments: dict[str, Any] = {"context": {}, "config": {"x": 8, "y": "a"}}
            tx.add_command("toy", "forbid", arguments, who="ann", why="fans", now=time.now())
        tuning.run(tune)
        _profile(store, time, lambda: tuning.run(tune))
    return world


def _profile(store: Store, time: Time, step: Callable[[], object]) -> None:
    """A campaign in a context of its own: six at random, then two rounds of three, all run."""
    key, context = "toy|n=24", {"n": 24}
    wanted = {
        "context_key": key,
        "context": context,
        "jobs": 6,
        "rounds": 2,
        "round_size": 3,
        "repeats": 1,
    }
    with store.transaction() as tx:
        tx.add_command("toy", "campaign", wanted, who="ann", why="new", now=time.now())
    step()
    jobs = random_jobs(12, seed=9, first=900, sizes=(24,))
    for _ in range(3):
        row = store.recommendation("toy", key)
        assert row is not None
        asked = [c.config for c in from_bytes(row.value.encode()).candidates if c.wanted]
        assert asked
        ran = []
        for config in asked:
            one = jobs.pop()
            metrics = {"speed": true_speed(context, config)}
            ran.append(
                structs.replace(one, config=dict(config), metrics=metrics, status=Status.SUCCEEDED)
            )
        time.pass_(hours=0.2)
        _add(store, "toy", ran, time)
        step()


@contextmanager
def _tuning(store: Store, time: Time) -> Iterator[Tuning]:
    tuning = Tuning(store, time, Heard())
    yield tuning
    for stage in tuning.made:
        stage.close()
    tuning.end()


def _publish(store: Store, study: Study, time: Time) -> None:
    store.publish_generation(study.name, study.content_hash, study.text, "test", time.now())


def _add(store: Store, study: str, jobs: Sequence[Observation], time: Time) -> None:
    """Jobs finish now, each of some user on eight GPUs."""
    told = []
    for place, one in enumerate(jobs):
        ended = time.now() - timedelta(minutes=len(jobs) - place)
        began = ended - timedelta(minutes=90)
        told.append(
            structs.replace(
                one,
                study=study,
                source=study,
                finished_at=ended,
                gpus=8,
                user=one.user or f"user-{place % 3}",
                extra={"started_at": began.isoformat(), **one.extra},
            )
        )
    with store.transaction() as tx:
        tx.add_observations(study, told, time.now())


def _following(store: Store, study: str, first: int) -> list[Observation]:
    """Twenty jobs: most run what is recommended, a user of their own never does."""
    rng = np.random.default_rng(first)
    jobs = random_jobs(20, seed=first, first=first)
    found = []
    for place, one in enumerate(jobs):
        if place % 5 == 0:
            found.append(structs.replace(one, user="never-follows"))
            continue
        found.append(_follower(store, study, one, place, rng))
    return found


def _follower(
    store: Store, study: str, one: Observation, place: int, rng: np.random.Generator
) -> Observation:
    row = store.recommendation(study, f"{study}|n={one.context['n']}")
    if row is None or row.state != "active":
        return one
    said = from_bytes(row.value.encode())
    config: dict[str, Value] | None = None
    candidate = None
    if place % 3 == 0 and said.candidates:
        chosen = said.candidates[place % len(said.candidates)]
        config, candidate = dict(chosen.config), chosen.candidate_id
    elif said.incumbent is not None:
        config = dict(said.incumbent.config)
    if config is None:
        return one
    speed = true_speed(one.context, config) * float(np.exp(rng.normal(0, 0.02)))
    return structs.replace(
        one,
        config=config,
        metrics={"speed": speed},
        status=Status.SUCCEEDED,
        recommendation_id=said.recommendation_id,
        candidate_id=candidate,
    )


def build_hostile(folder: Path) -> World:
    """Names that would be markup, scripts, formulas, paths; very long ones; some that turn text
    round."""
    world = file_of(folder)
    time = Time(datetime.now(UTC) - timedelta(hours=1))
    changed = (
        (
            'n = { type = "int", scale = "log" }',
            'n = { type = "int" }\nwho = { type = "category" }',
        ),
        ('unit = "1/s"', "unit = '</title><b>\"'"),
    )
    with world.opened() as store, _tuning(store, time) as tuning:
        _publish(store, study_named("toy", *changed), time)
        jobs = []
        for place, one in enumerate(random_jobs(48, seed=5, sizes=(8,))):
            name = HOSTILE[place % len(HOSTILE)].replace("\x00", "")
            more: dict[str, Any] = {"who": name}
            jobs.append(
                structs.replace(
                    one,
                    job_id=f"{place} {name}",
                    event_id=f"{place} {name}"[:200],
                    user=name[:300],
                    recommendation_id=name[:200],
                    candidate_id=name[:200],
                    context={**one.context, **more},
                    config={**one.config, name[:100]: name} if place % 2 else one.config,
                    metrics={**one.metrics, name[:100]: 1.0},
                    extra={name[:100]: name, "nodes": [name]},
                )
            )
        _add(store, "toy", jobs, time)
        with store.transaction() as tx:
            why = EVIL.replace("\x00", "")
            tx.add_command("toy", "pause", {"context": {"n": 4}}, who=why, why=why, now=time.now())
        tuning.run(tuning.start())
    return world
