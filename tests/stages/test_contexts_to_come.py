"""Contexts that are foreseen from a study's own jobs: searched before their first job, after all
others, and forgotten where they do not come."""

from collections.abc import Iterator
from datetime import timedelta
from itertools import count
from pathlib import Path

import pytest
from msgspec import structs

from tests.core.tuning import START as FIRST_JOB
from tests.core.tuning import changed
from tests.stages.fakes import Heard
from tests.stages.tuning import NAME, Tuning, another, random_jobs, tamper
from tunerd import telemetry
from tunerd.core.decisions.context_state import ContextState
from tunerd.core.recommendation import State
from tunerd.core.study_file import parse_study
from tunerd.events import from_bytes
from tunerd.queries.forecasts import study_forecast
from tunerd.settings.model import TuneSettings
from tunerd.stages.tune import FORESEE_EVERY_S, HOUSEKEEP_EVERY_S

pytestmark = pytest.mark.slow

RARE, OFTEN = 16, (4, 8)


class Weeks:
    """A study whose context ``RARE`` has jobs on one day of the week, and others daily."""

    def __init__(self, tuning: Tuning, *forecast: str, days: int = 0) -> None:
        """``days`` have passed already, in another tuner process."""
        self.tuning = tuning
        tuning.settings = TuneSettings(active_days=3.0)
        if not days:
            text = changed().text + "".join(f"\n{line}" for line in ("[forecast]", *forecast))
            self.publish(text)
        self.numbers: Iterator[int] = count(1 + days)
        self.tune = tuning.start()

    def publish(self, text: str) -> None:
        digest, now = parse_study(text).content_hash, self.tuning.time.now()
        self.tuning.store.publish_generation(NAME, digest, text, "test", now, force=True)

    def jobs(self, *sizes: int, each: int = 4, lasted: timedelta = timedelta(0)) -> None:
        first = next(self.numbers) * 1000
        jobs = random_jobs(each * len(sizes), first, first, sizes=sizes)
        extra = {"started_at": (self.tuning.time.now() - lasted).isoformat()}
        self.tuning.add([structs.replace(job, finished_at=FIRST_JOB, extra=extra) for job in jobs])
        self.tuning.run(self.tune)

    def day(self, *sizes: int, lasted: timedelta = timedelta(0)) -> None:
        """A day with jobs of these sizes that end in its first hour."""
        self.jobs(*sizes, lasted=lasted)
        rest = timedelta(days=1) - timedelta(seconds=2 * (HOUSEKEEP_EVERY_S + 0.1))
        self.tuning.run(self.tune, seconds=rest.total_seconds())

    def pass_(self, weeks: int, rare: bool = True) -> None:
        for day in range(7 * weeks):
            self.day(*OFTEN, *([RARE] if rare and day % 7 == 0 else []))

    @property
    def state(self) -> str | None:
        row = self.tuning.rows().get(self.tuning.key(RARE))
        return None if row is None else row.state

    def saved(self, n: int = RARE) -> ContextState:
        row = self.tuning.store.context_state(NAME, self.tuning.key(n))
        assert row is not None
        return ContextState.load(row.state)


@pytest.fixture
def weeks(tuning: Tuning) -> Weeks:
    tuning.once("two weeks", lambda: Weeks(tuning).pass_(2))
    return Weeks(tuning, days=14)


def outcomes(heard: Heard) -> dict[str, int]:
    total: dict[str, int] = {}
    for step in heard.of(telemetry.StepCommitted):
        for outcome, number in step.contexts_foreseen.items():
            total[outcome] = total.get(outcome, 0) + number
    return total


def test_what_comes_weekly_is_recommended_for_before_its_first_job(
    weeks: Weeks, tuning: Tuning, heard: Heard
) -> None:
    assert weeks.state == State.ACTIVE  # the last day of the week has passed
    (line,) = tuning.lines.of("contexts ahead")
    assert line["foreseen"] == 1
    said = from_bytes(tuning.rows()[tuning.key(RARE)].value.encode())
    assert said.issued_at >= tuning.time.now() - timedelta(days=1)
    assert said.candidates
    assert outcomes(heard) == {"foreseen": 1}
    weeks.jobs(*OFTEN, RARE)
    tuning.run(weeks.tune, seconds=FORESEE_EVERY_S)
    assert outcomes(heard) == {"foreseen": 1, "came": 1}
    assert weeks.saved().foreseen is None


def test_what_comes_as_it_grows_old_is_not_withdrawn_between_two_looks(
    tuning: Tuning, heard: Heard
) -> None:
    made = Weeks(tuning)
    tuning.settings = TuneSettings(active_days=7.0)
    made.tune = tuning.start()
    made.pass_(2)  # the latest job of the rare context is seven days old
    revision = tuning.rows()[tuning.key(RARE)].revision
    tuning.run(made.tune)
    assert made.state == State.ACTIVE
    tuning.run(made.tune, seconds=FORESEE_EVERY_S)
    assert tuning.rows()[tuning.key(RARE)].revision == revision
    assert outcomes(heard) == {"foreseen": 1}


def test_a_long_job_that_may_be_running_keeps_what_its_context_was_told(
    tuning: Tuning, heard: Heard
) -> None:
    """The context grows old between its job's beginning and its end."""
    made, lasted = Weeks(tuning), timedelta(hours=30)
    tuning.settings = TuneSettings(active_days=6.5)
    made.tune = tuning.start()
    for day in range(13):
        made.day(*OFTEN, *([RARE] if day % 7 == 0 else []), lasted=lasted)
    revision = tuning.rows()[tuning.key(RARE)].revision
    tuning.run(made.tune, hours=14)
    tuning.run(made.tune, seconds=FORESEE_EVERY_S)
    assert made.state == State.ACTIVE
    assert tuning.rows()[tuning.key(RARE)].revision <= revision + 1  # it was not withdrawn
    told = {
        each.key: each for each in study_forecast(tuning.store, NAME, tuning.time.now()).contexts
    }
    comes_at = told[tuning.key(RARE)].comes_at
    assert comes_at is not None
    assert comes_at < tuning.time.now()
    tuning.run(made.tune, hours=24)
    assert made.state == State.WITHDRAWN
    assert outcomes(heard) == {"foreseen": 1, "missed": 1}


def test_nothing_is_foreseen_where_the_study_does_not_want_it(tuning: Tuning) -> None:
    for line in ("rhythm = false", "ahead = false"):
        quiet = Weeks(tuning, line)
        quiet.pass_(3)
        assert quiet.state == State.WITHDRAWN
        assert not tuning.lines.of("contexts ahead")


def test_what_does_not_come_is_withdrawn_and_given_up(weeks: Weeks, heard: Heard) -> None:
    weeks.day(*OFTEN)
    weeks.day(*OFTEN)
    assert weeks.state == State.WITHDRAWN
    assert outcomes(heard) == {"foreseen": 1, "missed": 1}
    weeks.pass_(6, rare=False)
    assert weeks.state == State.WITHDRAWN
    assert outcomes(heard) == {"foreseen": 3, "missed": 3}
    assert weeks.saved().foreseen is None


def test_a_new_process_goes_on_with_what_was_foreseen(weeks: Weeks, tuning: Tuning) -> None:
    before, asked = weeks.saved(), len(tuning.lines.of("contexts ahead"))
    revision = tuning.rows()[tuning.key(RARE)].revision
    weeks.tune = tuning.start()
    tuning.run(weeks.tune)
    assert weeks.state == State.ACTIVE
    assert weeks.saved().dump() == before.dump()
    assert len(tuning.lines.of("contexts ahead")) == asked
    assert tuning.rows()[tuning.key(RARE)].revision == revision


def test_a_new_generation_knows_the_rhythm_from_history(weeks: Weeks, tuning: Tuning) -> None:
    rhythm = weeks.saved().rhythm
    weeks.publish(changed(("explore_share = 0.5", "explore_share = 0.4")).text)
    tuning.run(weeks.tune)
    assert weeks.saved().rhythm == rhythm
    assert weeks.state == State.ACTIVE


def test_jobs_that_come_go_first(weeks: Weeks, tuning: Tuning) -> None:
    weeks.day(*OFTEN, RARE)
    for _ in range(4):
        weeks.day(*OFTEN)
    assert weeks.state == State.WITHDRAWN
    tuning.time.pass_(hours=30)
    began = tuning.time.now()
    weeks.jobs(*OFTEN)
    steps = [step for step in tuning.store.steps(NAME, limit=20)[::-1] if step.finished_at > began]
    order = [key for step in steps for key in step.contexts]
    at = order.index(tuning.key(RARE))
    assert {tuning.key(n) for n in OFTEN} <= set(order[:at])
    assert (tuning.key(RARE),) in [step.contexts for step in steps]


def test_what_is_advised_for_jobs_that_came_is_the_same(tuning: Tuning, tmp_path: Path) -> None:
    Weeks(tuning, "rhythm = true").pass_(3)
    with another(tmp_path) as other:
        Weeks(other, "rhythm = false").pass_(3)
        for n in OFTEN:
            said, beside = (
                from_bytes(each.rows()[tuning.key(n)].value.encode()) for each in (tuning, other)
            )
            assert said.candidates == beside.candidates


def grown(tuning: Tuning, *forecast: str) -> Weeks:
    """A study whose contexts grew from 4 to 8 to 16 within a week."""
    made = Weeks(tuning, *forecast)
    for size in (4, 8, 16):
        made.day(size)
    return made


def test_a_size_to_come_is_predicted_from_the_smaller_ones(tuning: Tuning, heard: Heard) -> None:
    made = grown(tuning, "growth = true")
    said = from_bytes(tuning.rows()[tuning.key(32)].value.encode())
    smaller = from_bytes(tuning.rows()[tuning.key(16)].value.encode())
    (first, *_), (beside, *_) = said.candidates, smaller.candidates
    assert first.predicted is not None
    assert beside.predicted is not None
    # Speed is told on a log scale: the band is wider by its ends' ratio.
    wide, narrow = (one.high / one.low for one in (first.predicted, beside.predicted))
    assert wide > narrow
    assert outcomes(heard) == {"foreseen": 2, "came": 1}  # 16 and 32
    made.day(16)
    made.day(16)
    assert outcomes(heard) == {"foreseen": 2, "came": 1, "missed": 1}
    assert tuning.rows()[tuning.key(32)].state == State.WITHDRAWN
    assert tuning.store.context_state(NAME, tuning.key(32)) is None


def test_profiling_jobs_are_asked_for_where_nobody_has_run_anything(tuning: Tuning) -> None:
    made = grown(tuning, "growth = true", "profiling = 3")
    said = from_bytes(tuning.rows()[tuning.key(32)].value.encode())
    assert said.round == 1
    assert [candidate.wanted for candidate in said.candidates if candidate.wanted] == [1] * 3
    made.day(16)
    made.day(16)
    assert tuning.rows()[tuning.key(32)].state == State.WITHDRAWN
    assert tuning.store.context_state(NAME, tuning.key(32)) is None


def test_growth_is_foreseen_only_where_the_study_wants_it(tuning: Tuning) -> None:
    grown(tuning)
    assert tuning.key(32) not in tuning.rows()


def test_what_is_to_come_is_told(weeks: Weeks) -> None:
    tuning = weeks.tuning
    view = study_forecast(tuning.store, NAME, tuning.time.now())
    told = {context.key: context for context in view.contexts}
    rare = told[tuning.key(RARE)]
    assert (rare.why, rare.recommended) == ("rhythm", "active")
    assert rare.comes_at is not None
    assert abs(rare.comes_at - tuning.time.now()) < timedelta(hours=2)
    assert rare.probability is not None
    assert rare.probability > 0.5
    # Of contexts that are not foreseen nothing is read, however many there are.
    key = tuning.key(OFTEN[0])
    statement = "UPDATE context_states SET state = half(state) WHERE context_key = '{}'"
    tamper(tuning.store, statement.format(key))
    assert study_forecast(tuning.store, NAME, tuning.time.now()) == view
