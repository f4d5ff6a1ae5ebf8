"""Two instances on one store, of which one tunes the study and the other has nothing to do."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import cast

from tests.stages.fakes import Heard, Time
from tests.stages.tuning import NAME, TOPIC, Lines, Tuning, random_jobs
from tunerd import __version__, logs
from tunerd.settings.model import TuneSettings
from tunerd.stages.placement import StudyPlacement
from tunerd.stages.tune import TuneStage
from tunerd.store import InstanceRow, TuneStep

__all__ = ["SIZES", "Instance", "Ticking", "elsewhere", "join", "offer", "settle"]

SIZES = range(4, 28)
"""Contexts of the study."""


@dataclass
class Ticking(Time):
    """A clock that a search takes a while by: it goes on whenever somebody looks."""

    tick_s: float = 0.5

    def clock(self) -> float:
        self.pass_(seconds=self.tick_s)
        return super().clock()


@dataclass
class Instance:
    """One of them."""

    stage: TuneStage
    lines: Lines = field(default_factory=Lines)
    heard: Heard = field(default_factory=Heard)


def join(tuning: Tuning, name: str, settings: TuneSettings | None = None) -> Instance:
    """An instance that has just come."""
    owner, time = f"{name}/1", tuning.time
    row = InstanceRow(
        name=name,
        owner=owner,
        installation="{}",
        host="host",
        pid=1,
        version=__version__,
        stages=["tune"],
        started_at=time.now(),
        heartbeat_at=time.now(),
    )
    with tuning.store.transaction() as tx:
        tx.join_instance(row)
    heard, lines = Heard(), Lines()
    stage = TuneStage(
        tuning.store,
        settings or TuneSettings(),
        TOPIC,
        heard,
        cast(logs.Log, lines),
        time.now,
        time.clock,
        placement=StudyPlacement(tuning.store, name, owner, time.clock),
    )
    tuning.made.append(stage)
    return Instance(stage, lines, heard)


def offer(tuning: Tuning, owner: Instance, others: Collection[Instance]) -> list[str]:
    """Jobs come in many contexts, and the owner goes on until it offers some of them."""
    if tuning.store.study(NAME) is None:
        tuning.publish()
    first = tuning.store.study(NAME).last_sequence + 1  # type: ignore[union-attr]
    tuning.add(random_jobs(72, first=first, seed=first, sizes=SIZES))
    for _ in range(60):
        owner.stage.step()
        if (books := owner.stage._books.get(NAME)) is not None and books.offered:
            return list(books.offered)
        for other in others:
            other.stage._placed(tuning.store.studies())  # and it is seen to be there
    raise AssertionError("nothing was offered")


def settle(owner: Instance, others: Collection[Instance] = ()) -> None:
    """All go on until there is nothing to do."""
    idle = 0
    for _ in range(400):
        worked = [instance.stage.step() for instance in (owner, *others)]
        books = owner.stage._books.get(NAME)
        idle = 0 if any(worked) or books is None or books.waiting else idle + 1
        if idle == 3:
            return
    raise AssertionError("they do not come to rest")


def elsewhere(steps: Collection[TuneStep]) -> dict[str, int]:
    """Contexts that were searched elsewhere, and what had been learned then."""
    return {
        key: sequence
        for step in steps
        for key, sequence in step.detail.get("elsewhere", {}).items()
    }
