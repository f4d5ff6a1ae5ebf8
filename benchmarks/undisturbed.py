"""The steps of a disturbed run, taken once more by a process that nobody disturbs.

What a step learns and searches depends on when jobs come in, so no two runs take the same steps.
But each leaves a row: which jobs it learned, which contexts it searched and when it was saved. Here
an empty store gets the same history. The tune stage takes these steps in it, one after the other:
it is loaded once, and never again. Where another instance had searched a context, rows say in which
step that was offered and in which it was taken over. Here the same is offered, searched from what
the task's row has, and taken over. What it recommends in the end must be what the disturbed store
recommends, byte for byte, with revisions, times and ids.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, cast

from benchmarks.side_by_side import side_by_side
from tunerd import logs
from tunerd.core.observation import Observation
from tunerd.settings.model import TuneSettings
from tunerd.stages.replay import differences
from tunerd.stages.shared_search import SearchHelper, SearchOffers
from tunerd.stages.study_session import StepPlan, StudySession
from tunerd.stages.tune import HOUSEKEEP_EVERY_S, TuneStage
from tunerd.store import CollectedSearch, Store, StudyRow, TuneStep, open_store
from tunerd.telemetry import NullListener

__all__ = ["SteppedAgain", "differing", "step_again"]

TOPIC = "recommendations"
BATCH = 1000
MOST_STEPS = 10**9


class SteppedAgain(NamedTuple):
    """What came of one study."""

    steps: int
    keys: int
    differing: Mapping[str, Sequence[str]]
    """Keys whose recommendation is another than the disturbed run's, and the fields that are."""


class _Quiet:
    """A log that nobody reads; what goes wrong is raised."""

    def info(self, event: str, **detail: object) -> None:
        """Say nothing."""

    warning = error = info


@dataclass
class _Clock:
    """Stands still within a step, so that none is cut short."""

    at: datetime = datetime(2000, 1, 1, tzinfo=UTC)
    seconds: float = 0.0

    def now(self) -> datetime:
        return self.at

    def clock(self) -> float:
        return self.seconds

    def go_on(self, step: TuneStep) -> None:
        """To when a step was saved, and on until the stage looks after everything."""
        self.at = step.finished_at
        self.seconds += 2 * HOUSEKEEP_EVERY_S


@dataclass
class _RecordedOffers(SearchOffers):
    """Offers what was offered then, and gives back what was taken over."""

    recorded: TuneStep | None = None
    results: dict[int, CollectedSearch] = field(default_factory=dict)
    """By the ids of their tasks."""

    def choose(self, books: StudySession, *, brief: bool) -> dict[str, bool]:  # noqa: ARG002
        assert self.recorded is not None
        return dict(self.recorded.detail.get("offered", {}))

    def collect(self, books: StudySession) -> Sequence[CollectedSearch]:
        assert self.recorded is not None
        self.results |= {row.id: row for row in super().collect(books)}
        return [
            self.results[books.offered[key].id] for key in self.recorded.detail.get("elsewhere", ())
        ]


@dataclass
class _RecordedSteps(TuneStage):
    """The tune stage, which is told what a step learns and searches."""

    recorded: TuneStep | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.offers = self.recorded_offers = _RecordedOffers(self.store, None, self.clock)
        self.helper = SearchHelper(
            self.store, "helper", "helper/1", self._background, self.log, self.listener, self.clock
        )

    def take(self, row: StudyRow, step: TuneStep) -> None:
        """Take one step as it was taken then."""
        self.recorded = self.recorded_offers.recorded = step
        # How many jobs waited decides when a model is fitted.
        self._step_study(replace(row, last_sequence=step.detail["known"]))
        assert self.helper is not None
        while self.helper.step(()):
            pass

    def _unlearned(self, row: StudyRow, books: StudySession) -> Sequence[Observation]:
        assert self.recorded is not None
        count = self.recorded.sequence_to - books.tuner.sequence
        if count == 0:
            return []
        return self.store.observations(row.name, after=books.tuner.sequence, limit=count)

    def _search(self, row: StudyRow, books: StudySession, changes: StepPlan) -> float:  # noqa: ARG002
        assert self.recorded is not None
        for key in self.recorded.contexts:
            if key not in changes.elsewhere:
                brief = key in self.recorded.detail.get("brief", ())
                self._advise(key, books, changes, brief=brief)
        return 0.0


def step_again(disturbed: Store, study: str, folder: Path) -> SteppedAgain:
    """Take a study's steps again, in a store of its own in ``folder``, and compare."""
    wanted = _recommended(disturbed, study)
    steps = disturbed.steps(study, limit=MOST_STEPS)[::-1]
    clock = _Clock()
    with open_store(f"sqlite:///{folder}/{study}.sqlite") as store:
        _copy(disturbed, store, study)
        log = cast(logs.Log, _Quiet())
        stage = _RecordedSteps(
            store, TuneSettings(), TOPIC, NullListener(), log, clock.now, clock.clock
        )
        row = store.study(study)
        assert row is not None
        stage._load(row)
        for step in steps:
            clock.go_on(step)
            stage.take(row, step)
        stage._background.shutdown()
        derived = _recommended(store, study)
    keys = sorted(wanted.keys() | derived.keys())
    other = {
        key: _fields(wanted.get(key), derived.get(key))
        for key in keys
        if wanted.get(key) != derived.get(key)
    }
    return SteppedAgain(len(steps), len(keys), other)


def differing(
    store_url: str, studies: Sequence[str], folder: Path, processes: int
) -> dict[str, SteppedAgain | None]:
    """Take the steps of all studies again, side by side; None for one whose process died."""
    tasks = [(store_url, study, folder) for study in studies]
    return {task[1]: result for task, result in side_by_side(_work, tasks, processes)}


def _work(task: tuple[str, str, Path]) -> SteppedAgain:
    store_url, study, folder = task
    with open_store(store_url, upgrade=False) as disturbed:
        return step_again(disturbed, study, folder)


def _recommended(store: Store, study: str) -> Mapping[str, str]:
    """By context key, the message as it was published."""
    return {row.context_key: row.value for row in store.recommendations(study)}


def _fields(then: str | None, again: str | None) -> Sequence[str]:
    if then is None or again is None:
        return ["all of it"]
    return [each.field for each in differences(json.loads(then), json.loads(again))]


def _copy(disturbed: Store, store: Store, study: str) -> None:
    """Study and history, and nothing that was learned."""
    generation = disturbed.generation(study)
    assert generation is not None
    assert generation.generation == 1
    now = generation.published_at
    store.publish_generation(study, generation.content_hash, generation.text, "again", now)
    at = 0
    while batch := disturbed.observations(study, after=at, limit=BATCH):
        with store.transaction() as tx:
            tx.add_observations(study, batch, now)
        at = batch[-1].sequence
