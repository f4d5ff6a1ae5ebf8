"""Judged jobs without a tuner: contexts, configurations, and what changes in them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import numpy as np

from tunerd.core.drift import ContextMonitor, DriftMonitor, DriftUpdate
from tunerd.core.drift.monitor import MonitoredJob
from tunerd.core.evidence.prequential import PrequentialOutcome, PrequentialRecord
from tunerd.core.observation import Status
from tunerd.core.study import Study
from tunerd.core.study_file import parse_study

__all__ = ["Effect", "Job", "Place", "dumped", "feed", "jobs", "study"]

START = datetime(2026, 1, 1, tzinfo=UTC)

STUDY = """
schema = 1
name = "watched"
[objective]
metric = "speed"
goal = "maximize"
scale = "linear"
[context]
model = { type = "category" }
[parameters]
tp = { type = "int", values = [1, 2, 4, 8] }
precision = { type = "category", values = ["bf16", "fp8"] }
[drift]
quiet_jobs = 10000
"""


def study(extra: str = "") -> Study:
    return parse_study(STUDY + extra)


@dataclass(slots=True)
class Place:
    watched: ContextMonitor = field(default_factory=ContextMonitor)


@dataclass(frozen=True, slots=True)
class Job:
    judged: PrequentialRecord
    ran: MonitoredJob


Effect = Callable[[int, int, int, int], float]
"""(number, context, tp, precision) → what is added to the score."""


def nothing(_number: int, _context: int, _tp: int, _precision: int) -> float:
    return 0.0


def jobs(
    count: int,
    seed: int = 0,
    *,
    effect: Effect = nothing,
    noise: float = 0.05,
    contexts: int = 6,
    scale: float = 1.0,
    shift: float = 0.0,
    model: Callable[[int, int], int] | None = None,
    fails: Effect | None = None,
    following: Callable[[int], bool] | None = None,
) -> Iterator[Job]:
    """Jobs whose predictor knows contexts, and half of what a configuration does."""
    rng = np.random.default_rng(seed)
    usual = rng.normal(0.0, 1.0, contexts).tolist()
    for number in range(count):
        context = min(int(rng.geometric(0.35)), contexts) - 1
        context = context if model is None else model(number, context)
        tp, precision = int(rng.integers(4)), int(rng.integers(2))
        known = 0.1 * tp - 0.2 * precision
        luck = noise * float(rng.normal())
        failed = float(rng.random()) < (fails(number, context, tp, precision) if fails else 0.0)
        base = usual[context % contexts] + context // contexts
        score = base + known + luck + effect(number, context, tp, precision)
        predicted, spread = base + 0.5 * known, max(2 * noise, 0.05)
        followed = following(number) if following else False
        yield Job(
            PrequentialRecord(
                sequence=number + 1,
                finished_at=START + timedelta(minutes=5 * number),
                history=False,
                context_key=f"watched|model=m{context}",
                outcome=PrequentialOutcome(
                    config_id=f"c-{tp}{precision}00000000000",
                    status=Status.OUT_OF_MEMORY if failed else Status.SUCCEEDED,
                    score=None if failed else scale * score + shift,
                    ran=not failed,
                    predicted=scale * predicted + shift,
                    low=scale * (predicted - 1.28 * spread) + shift,
                    high=scale * (predicted + 1.28 * spread) + shift,
                    feasible=0.95,
                    following="followed" if followed else "unasked",
                    told_to_try=followed,
                ),
            ),
            MonitoredJob(
                {"model": f"m{context}"},
                {"tp": (1, 2, 4, 8)[tp], "precision": ("bf16", "fp8")[precision]},
            ),
        )


def feed(
    watch: DriftMonitor, places: dict[str, Place], stream: Sequence[Job] | Iterator[Job]
) -> list[DriftUpdate]:
    found: list[DriftUpdate] = []
    for job in stream:
        places.setdefault(job.judged.context_key, Place())
        found += watch.see([job.judged], [job.ran], places)
    return found


def dumped(watch: DriftMonitor, places: dict[str, Place]) -> object:
    return [watch.dump(), {key: place.watched.dump() for key, place in places.items()}]
