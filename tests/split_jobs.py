"""Jobs of which a scheduler and a trainer each tell their half, and what should come of them.

Tests send a few hundred, the benchmark 10,000: shuffled over an hour, some late, some missing, some
twice, with requeues, arrays and heterogeneous jobs.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from tests.core.tuning import true_speed
from tunerd.core.observation import Observation, Status, effective
from tunerd.store import WaitingAttempt

__all__ = ["Mismatches", "SplitJobs", "compare", "split_jobs"]

Key = tuple[str, str, int]
HOUR_S = 3600.0
LATE, MISSING, TWICE = 0.05, 0.02, 0.05
STEPS = 500
ENDINGS = (Status.SUCCEEDED, Status.OUT_OF_MEMORY, Status.FAILED, Status.TIMEOUT)
SHARES = (0.85, 0.05, 0.05, 0.05)


@dataclass
class SplitJobs:
    """Events in the order in which they come, and what they say together."""

    events: list[bytes] = field(default_factory=list)
    joined: dict[Key, dict[str, Any]] = field(default_factory=dict)
    """By attempt, what history should have of it."""
    waiting: dict[Key, tuple[str, ...]] = field(default_factory=dict)
    """By attempt, what is missing of it."""


@dataclass
class Mismatches:
    """What is not as it should be; all 0 and empty where everything is."""

    lost: list[Key] = field(default_factory=list)
    doubled: list[Key] = field(default_factory=list)
    wrong: list[Key] = field(default_factory=list)
    invisible: list[Key] = field(default_factory=list)
    unexpected: list[Key] = field(default_factory=list)
    """Joined or waiting, and should not be."""

    def __bool__(self) -> bool:
        return any((self.lost, self.doubled, self.wrong, self.invisible, self.unexpected))


def split_jobs(count: int, seed: int = 0, now: datetime | None = None) -> SplitJobs:
    """So many jobs of the toy study that ended in the hour before ``now``; attempts are a tenth
    more, for a job that is preempted is requeued."""
    rng = np.random.default_rng(seed)
    now = now or datetime.now(UTC)
    made = SplitJobs()
    timed: list[tuple[float, bytes]] = []
    for number in range(count):
        for job_id, attempt, status in _attempts(number, rng):
            known: dict[str, dict[str, Any]] = {}
            sent = []
            for name, event in _halves(job_id, attempt, status, rng, now):
                if rng.random() < MISSING:
                    continue
                known[name] = event
                times = 1 + (rng.random() < TWICE)
                sent += [json.dumps(event).encode()] * times
            for value in sent:
                late = HOUR_S if rng.random() < LATE else 0.0
                timed.append((rng.uniform(0, HOUR_S) + late, value))
            _expect(made, ("a", job_id, attempt), status, known)
    made.events = [value for _, value in sorted(timed, key=lambda one: one[0])]
    return made


def compare(
    made: SplitJobs, history: Sequence[Observation], waiting: Sequence[WaitingAttempt]
) -> Mismatches:
    """Hold history and what waits against what was sent."""
    found = Mismatches()
    seen: dict[Key, Observation] = {}
    for one in effective(history):
        key = (one.source, one.job_id, one.attempt)
        if key in seen:
            found.doubled.append(key)
        seen[key] = one
    ended = {key: one for key, one in seen.items() if one.status is not Status.RUNNING}
    found.lost = [key for key in made.joined if key not in ended]
    found.unexpected = [key for key in ended if key not in made.joined]
    for key, wanted in made.joined.items():
        if key in ended and any(getattr(ended[key], name) != v for name, v in wanted.items()):
            found.wrong.append(key)
    visible = {(one.cluster, one.job_id, one.attempt): one for one in waiting}
    for key, missing in made.waiting.items():
        if key not in visible or visible[key].missing != missing:
            found.invisible.append(key)
    found.unexpected += [key for key in visible if key not in made.waiting]
    running = {key for key, one in seen.items() if one.status is Status.RUNNING}
    found.unexpected += [key for key in running if key not in visible or not visible[key].counts]
    return found


def _attempts(number: int, rng: np.random.Generator) -> Iterator[tuple[str, int, Status]]:
    """Job ids, attempts and how they ended: plain, of an array, heterogeneous, requeued."""
    kind = rng.choice(["plain", "array", "component", "requeued"], p=[0.7, 0.15, 0.05, 0.1])
    job_id = {"array": f"{number // 8}_{number % 8}", "component": f"{number}+{number % 2}"}.get(
        str(kind), str(number)
    )
    attempt = 1
    if kind == "requeued":
        yield job_id, 1, Status.PREEMPTED
        attempt = 2
    yield job_id, attempt, ENDINGS[int(rng.choice(len(ENDINGS), p=SHARES))]


def _halves(
    job_id: str, attempt: int, status: Status, rng: np.random.Generator, now: datetime
) -> Iterator[tuple[str, dict[str, Any]]]:
    context = {"n": int(rng.choice([4, 8, 16]))}
    config = {
        "x": int(rng.integers(1, context["n"] // 2 + 1)),
        "y": str(rng.choice(["a", "b", "c"])),
        "z": bool(rng.integers(2)),
    }
    names = {"schema": "tunerd.job/1", "job_id": job_id, "attempt": attempt}
    ended = now - timedelta(seconds=float(rng.uniform(0, HOUR_S)))
    began = ended - timedelta(hours=5)
    yield (
        "started",
        {
            **names,
            "type": "started",
            "source": "slurm/a",
            "event_id": f"start/{job_id}/{attempt}",
            "study": "toy",
            "started_at": began.isoformat(),
            "context": context,
            "config": config,
        },
    )
    reports = 0 if status is Status.OUT_OF_MEMORY else int(rng.integers(1, 4))
    for steps in range(STEPS, STEPS * reports + 1, STEPS):
        yield (
            f"reported {steps}",
            {
                **names,
                "type": "reported",
                "source": "torch/a",
                "event_id": f"speed/{job_id}/{attempt}/{steps}",
                "reported_at": (began + timedelta(seconds=10 * steps)).isoformat(),
                "steps": steps,
                "measured_s": 60.0 + steps,
                "metrics": {"speed": true_speed(context, config) * float(rng.uniform(0.97, 1.03))},
            },
        )
    yield (
        "completed",
        {
            **names,
            "type": "completed",
            "source": "slurm/a",
            "event_id": f"end/{job_id}/{attempt}",
            "status": status.value,
            "finished_at": ended.isoformat(),
            "gpus": context["n"],
        },
    )


def _expect(
    made: SplitJobs, key: Key, status: Status, known: Mapping[str, Mapping[str, Any]]
) -> None:
    if not known:
        return
    reports = [event for name, event in known.items() if name.startswith("reported")]
    missing = [] if "started" in known else ["study", "context", "config"]
    needed = status is Status.SUCCEEDED or "completed" not in known
    if needed and not reports:
        missing.append("reported")
    if "completed" not in known:
        missing.append("completed")
    if missing:
        made.waiting[key] = tuple(missing)
        return
    last = reports[-1] if reports else None
    made.joined[key] = {
        "status": status,
        "context": known["started"]["context"],
        "config": known["started"]["config"],
        "metrics": last["metrics"] if last else {},
        "measured_s": last["measured_s"] if last else None,
        "gpus": known["completed"]["gpus"],
    }
