"""Jobs without a usable objective count against their configuration, and are counted."""

import pytest

from tests.core.tuning import changed, job, learned_tuner, random_jobs, steps, study
from tunerd.core.drift.alarms import DriftUpdate
from tunerd.core.observation import Observation, Value
from tunerd.core.study import Study
from tunerd.core.tuner import Tuner
from tunerd.core.usability import LATELY

KEY = study().context_key({"n": 8})
GOOD: dict[str, Value] = {"x": 6, "y": "c", "z": True}


def learned(jobs: list[Observation], size: int = 5, of_study: Study | None = None) -> Tuner:
    return learned_tuner(jobs, size, of_study)


def without(
    first: int, count: int, speed: float | None, config: dict[str, Value]
) -> list[Observation]:
    return [job(first + i, {"n": 8}, config, speed=speed) for i in range(count)]


@pytest.mark.parametrize("speed", [0.0, -1.0, None, 1.7976931348623157e308])
def test_after_three_jobs_without_a_speed_a_configuration_is_not_offered(
    speed: float | None,
) -> None:
    """It stayed exploit, with "99 % likely to run"."""
    grid: list[dict[str, Value]] = [{"x": x, "y": "a", "z": False} for x in (1, 2, 4, 8)]
    jobs: list[Observation] = []
    for _ in range(4):
        for config in grid:
            x = int(str(config["x"]))
            told = speed if x == 8 else 100.0 * x
            jobs += [job(len(jobs) + 1, {"n": 8}, config, speed=told)]
    tuner = learned(jobs[:15], size=3)
    advice = tuner.advise(KEY, None)
    assert all(c.config != grid[3] for c in advice.candidates)
    assert advice.incumbent is not None
    assert advice.incumbent.config == grid[2]
    seen = tuner.usability
    assert (seen.jobs, seen.missing + seen.impossible) == (15, 3)
    assert (seen.missing == 3) is (speed is None)
    assert seen.example == (None if speed is None else min(speed, 1e308))


@pytest.mark.parametrize("speed", [0.0, None])
def test_where_every_job_stops_telling_a_speed_a_drift_of_failures_is_told(
    speed: float | None,
) -> None:
    """Sixty good jobs and then 250 of speed 0 left no word."""
    good = [job(i, {"n": 8}, GOOD, speed=100.0 + i % 7) for i in range(1, 61)]
    tuner = learned(good)
    changes: list[DriftUpdate] = []
    for step in steps(without(61, 100, speed, GOOD), 5):
        changes += tuner.learn(step).drift
    assert "failures" in {change.drift.kind for change in changes}
    assert tuner.usability.latest.count("-") == LATELY


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "speed"), [('impossible = "ran"', 0.0), ('missing = "ran"', None)]
)
def test_a_study_may_say_that_such_jobs_ran(line: str, speed: float | None) -> None:
    jobs = random_jobs(40)
    jobs += without(41, 12, speed, GOOD)
    plain = learned(jobs)
    head = 'scale = "log"\n'
    lenient = learned(jobs, of_study=changed((head, f"{head}{line}\n")))
    name = next(k for k, t in plain.contexts[KEY].evidence.trials.items() if t.config == GOOD)
    ran = [one.contexts[KEY].evidence.trials[name].run_share for one in (plain, lenient)]
    assert ran[0] < 0.3
    assert ran[1] == 1.0
    assert lenient.usability.dump() == plain.usability.dump()  # they are counted all the same


def test_counts_survive_a_restart() -> None:
    tuner = learned(without(1, 3, 0.0, GOOD) + without(4, 2, 5.0, GOOD))
    state = tuner.dump()["usability"]
    assert state == {
        "jobs": 5,
        "missing": 0,
        "impossible": 3,
        "example": 0.0,
        "implausible": 0,
        "held_back": None,
        "latest": "---++",
    }
    assert type(tuner.usability).load(state).dump() == state
