"""A small tuning problem with a known answer, for the tests of what learns and searches."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import numpy as np

from tunerd.core.observation import Observation, Status, Value
from tunerd.core.study import Study
from tunerd.core.study_file import parse_study
from tunerd.core.tuner import Tuner

START = datetime(2026, 11, 1, tzinfo=UTC)

TEXT = """
schema = 1
name = "toy"
mode = "publish"
explore_share = 0.5
[objective]
metric = "speed"
goal = "maximize"
unit = "1/s"
scale = "log"
[context]
n = { type = "int", scale = "log" }
[parameters]
x = { type = "int", values = [1, 2, 3, 4, 5, 6, 7, 8] }
y = { type = "category", values = ["a", "b", "c"] }
z = { type = "bool" }
[constraints]
fits = "x <= n"
[search]
evaluations = 200
keep = 32
[predictor]
name = "boosted_trees"
members = 3
trees = 30
[[baseline]]
config = { x = 1, y = "a", z = false }
"""


class Inline(Executor):
    """Runs what is submitted at once, in the caller's thread."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def study(**changes: str) -> Study:
    """The toy study, with lines of its text replaced: ``mode='"observe"'``."""
    lines = TEXT.splitlines()
    for name, value in changes.items():
        lines = [f"{name} = {value}" if line.startswith(f"{name} =") else line for line in lines]
    return parse_study("\n".join(lines))


def changed(*replaced: tuple[str, str]) -> Study:
    """The toy study, with pieces of its text replaced."""
    text = TEXT
    for old, new in replaced:
        assert old in text
        text = text.replace(old, new)
    return parse_study(text)


def renamed() -> Study:
    """The toy study after x became ex, and n gpus."""
    text = TEXT.replace("x = { type", 'ex = { was = "x", type')
    text = text.replace("n = { type", 'gpus = { was = "n", type')
    return parse_study(text.replace("x <= n", "ex <= gpus").replace("{ x = 1", "{ ex = 1"))


def true_speed(context: Mapping[str, Any], config: Mapping[str, Any]) -> float:
    """Best at x = 6 (or the largest that fits), y = "c", z = true."""
    y = {"a": 0.0, "b": 0.1, "c": 0.3}[config["y"]]
    return float(
        100 * context["n"] * np.exp(-0.05 * (config["x"] - 6) ** 2 + y + 0.1 * config["z"])
    )


def job(
    sequence: int,
    context: Mapping[str, Value],
    config: Mapping[str, Value],
    *,
    speed: float | None = None,
    status: Status = Status.SUCCEEDED,
    recommendation_id: str | None = None,
    candidate_id: str | None = None,
) -> Observation:
    """One finished job."""
    return Observation(
        study="toy",
        source="test",
        event_id=f"e{sequence}",
        job_id=f"j{sequence}",
        status=status,
        finished_at=START + timedelta(minutes=sequence),
        context=dict(context),
        config=dict(config),
        metrics={} if speed is None else {"speed": speed},
        sequence=sequence,
        recommendation_id=recommendation_id,
        candidate_id=candidate_id,
        content_hash=f"h{sequence}",
    )


def random_jobs(
    count: int,
    seed: int = 0,
    first: int = 1,
    noise: float = 0.02,
    sizes: Sequence[int] = (4, 8, 16),
) -> list[Observation]:
    """Jobs with random configurations in a few contexts; one in twelve fails."""
    return list(_random_jobs(count, seed, first, noise, sizes))


def _random_jobs(
    count: int, seed: int, first: int, noise: float, sizes: Sequence[int]
) -> Iterator[Observation]:
    rng = np.random.default_rng(seed)
    for i in range(count):
        context: dict[str, Value] = {"n": int(rng.choice(sizes))}
        config: dict[str, Value] = {
            "x": int(rng.integers(1, min(8, int(str(context["n"]))) + 1)),
            "y": str(rng.choice(["a", "b", "c"])),
            "z": bool(rng.integers(2)),
        }
        if rng.random() < 1 / 12:
            yield job(first + i, context, config, status=Status.NODE_FAILURE)
            continue
        speed = true_speed(context, config) * float(np.exp(rng.normal(0, noise)))
        yield job(first + i, context, config, speed=speed)


def steps(observations: Sequence[Observation], size: int = 10) -> list[list[Observation]]:
    """Jobs in the steps that they come in."""
    return [list(observations[i : i + size]) for i in range(0, len(observations), size)]


_LEARNED: dict[tuple[str, int, bytes], Tuner] = {}


def learned_tuner(jobs: Sequence[Observation], size: int, of_study: Study | None = None) -> Tuner:
    """A tuner that learned these jobs in steps of this size. The first test that asks for it waits
    while it learns, those after it get a copy: that takes a twentieth of the time."""
    of_study = of_study or study()
    key = (repr(of_study), size, msgspec.json.encode(jobs))
    if key not in _LEARNED:
        tuner = Tuner(of_study, Inline())
        for step in steps(jobs, size):
            tuner.learn(step)
        _LEARNED[key] = tuner
    return deepcopy(_LEARNED[key])
