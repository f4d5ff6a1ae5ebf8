"""Who runs what, and when: traffic as on a cluster that people share.

Contexts come at rates that differ by far and swing over the days; every context has a default that
somebody once wrote down, of middling speed, and a few users, who each made it a habit of their own.
Most jobs run the habit, some a variation of it, few something else altogether.

Whatever a job is, follows from the seed and its number alone: streams that differ in noise or in
what changes have the same jobs otherwise, so that they can be compared job by job.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache

import numpy as np

from tunerd.core.arrays import FloatArray, IntArray
from tunerd.core.observation import Value
from tunerd.lab.evaluation.streams.changes import InjectedChange
from tunerd.lab.evaluation.tabular import TabularContext

__all__ = ["JobArrival", "UserWorkload", "WorkloadOptions"]

HABIT, VARIATION = 0.7, 0.22
"""Shares of jobs that run their user's habit, and that run a variation of it; the rest is random.

As on clusters whose traces are public, where most jobs repeat an earlier one."""
NEAREST = 6
"""Configurations that a variation picks from: the ones most like the habit."""
NIGHT = 0.6
"""How much less there is at night than by day, and how much contexts swing over days."""


@dataclass(frozen=True)
class WorkloadOptions:
    """How much of everything there is."""

    jobs: int = 10_000
    days: float = 30.0
    contexts: int = 20
    """At most; those with the most configurations are taken."""
    noise: float = 0.03
    """Log-normal, on every draw: standard deviation of the logarithm."""
    users: int = 12
    start: datetime = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class JobArrival:
    """A job that is about to be launched."""

    number: int
    """From 0, in order of time."""
    at: datetime
    context: int
    """Which of ``Stream.contexts``."""
    user: str
    own: int
    """The configuration that its user would run, by its place in ``Measured.configs``."""


class UserWorkload:
    """The people on the cluster."""

    def __init__(
        self, contexts: Sequence[TabularContext], traffic: WorkloadOptions, seed: int
    ) -> None:
        self.contexts, self.traffic, self.seed = tuple(contexts), traffic, seed
        rng = np.random.default_rng([seed, 0])
        n = len(contexts)
        self._rates = np.exp(rng.normal(0.0, 1.0, n))
        self._period = rng.uniform(3.0, 10.0, n)
        self._phase = rng.uniform(0.0, 2 * np.pi, n)
        self.defaults = [self._default(context) for context in contexts]
        """The configuration that is written down for each context."""
        self._crews: list[IntArray] = [
            rng.choice(
                traffic.users, size=min(int(rng.integers(1, 5)), traffic.users), replace=False
            )
            for _ in contexts
        ]
        self._near = lru_cache(maxsize=4_096)(self._nearest)

    @property
    def busy(self) -> list[int]:
        """The half of the contexts that has most of the jobs."""
        order = np.argsort(-self._rates, kind="stable").tolist()
        return sorted(order[: (len(order) + 1) // 2])

    def arrivals(self, changes: Sequence[InjectedChange] = ()) -> Iterator[JobArrival]:
        """Jobs in order of time; from the beginning again with every call."""
        at = 0.0
        for number in range(self.traffic.jobs):
            rng = np.random.default_rng([self.seed, 1, number])
            at = self._next(at, rng)
            moment = self.traffic.start + timedelta(days=at)
            lucky = rng.random()
            context = self._context(at, self._there(number, changes), rng)
            crew = self._crews[context]
            rank = min(int(rng.geometric(0.5)), len(crew)) - 1
            user = int(crew[rank])
            own = self._own(user, context, rng)
            burst = next((c.burst for c in changes if c.burst and c.extent(number)), None)
            if burst is not None and lucky < burst.share:
                config = burst.configs[int(rng.integers(len(burst.configs)))]
                yield JobArrival(number, moment, burst.context, burst.user, config)
            else:
                yield JobArrival(number, moment, context, f"user{user:02}", own)

    def _next(self, at: float, rng: np.random.Generator) -> float:
        """Days until the next job: a Poisson process, thinned at night."""
        fastest = (1 + NIGHT) * self.traffic.jobs / self.traffic.days
        while True:
            at += rng.exponential(1 / fastest)
            if rng.random() * (1 + NIGHT) < 1 - NIGHT * np.cos(2 * np.pi * at):
                return at

    def _there(self, number: int, changes: Sequence[InjectedChange]) -> FloatArray:
        there = np.ones(len(self.contexts))
        for change in changes:
            if change.absent and not change.extent(number):
                there[list(change.absent)] = 0.0
        return there

    def _context(self, at: float, there: FloatArray, rng: np.random.Generator) -> int:
        swing = 1 + NIGHT * np.sin(2 * np.pi * at / self._period + self._phase)
        sums = np.cumsum(self._rates * swing * there)
        return int(np.searchsorted(sums, rng.random() * sums[-1], side="right"))

    def _own(self, user: int, context: int, rng: np.random.Generator) -> int:
        habit = self.habit(user, context)
        kind = rng.random()
        if kind < HABIT:
            return habit
        if kind < HABIT + VARIATION:
            near = self._near(context, habit)
            return near[int(rng.integers(len(near)))]
        return int(rng.integers(len(self.contexts[context].configs)))

    def habit(self, user: int, context: int) -> int:
        """What a user runs most of the time: the default, or one that is like it and runs."""
        rng = np.random.default_rng([self.seed, 2, user, context])
        default = self.defaults[context]
        if rng.random() < 0.5:
            return default
        scores = self.contexts[context].scores
        near = [i for i in self._near(context, default) if np.isfinite(scores[i])]
        return near[int(rng.integers(len(near)))] if near else default

    @staticmethod
    def _default(context: TabularContext) -> int:
        """The configuration of median speed among those that run."""
        ran = np.flatnonzero(np.isfinite(context.scores))
        order = ran[np.argsort(context.scores[ran], kind="stable")]
        return int(order[len(order) // 2])

    def _nearest(self, context: int, config: int) -> tuple[int, ...]:
        """The other configurations that differ least: in few values, and by few steps."""
        target = self.contexts[context]
        here = target.configs[config]
        far = np.zeros(len(target.configs))
        for parameter in target.study.parameters:
            places = {choice: place for place, choice in enumerate(parameter.choices)}
            for i, other in enumerate(target.configs):
                far[i] += _apart(here[parameter.name], other[parameter.name], places)
        order = np.argsort(far, kind="stable")
        return tuple(int(i) for i in order if i != config)[:NEAREST]


def _apart(one: Value, other: Value, places: dict[bool | int | float | str, int]) -> float:
    if one == other:
        return 0.0
    if isinstance(one, list) or isinstance(other, list) or one is None or other is None:
        return 1.0
    return 1.0 + abs(places[one] - places[other]) / len(places)
