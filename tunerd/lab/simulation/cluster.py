"""The simulated cluster: launches jobs, follows recommendations as the contract says, reports.

It is a scheduler like any other: what it knows of tunerd comes through :mod:`tunerd.client`. Time
is simulated. At most ``concurrency`` jobs run at once and end in the order of their durations, so
that a job's event arrives only after others were launched; nothing waits for the wall clock except
the pace that the caller sets (a tuner in another process needs a moment to answer).
"""

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, get_args

import numpy as np

from tunerd.client import Choice, JobReporter, Recommendations
from tunerd.core.observation import Scalar, Status, Value
from tunerd.core.space import SearchSpace
from tunerd.lab.simulation.simulator import SimulatedRun, Simulator, job_rng

__all__ = ["POLICIES", "FinishedJob", "Policy", "SimulatedCluster"]

Policy = Literal["recommended", "baseline", "random"]
POLICIES: tuple[Policy, ...] = get_args(Policy)

TAUGHT_NOTHING = frozenset({Status.PREEMPTED, Status.NODE_FAILURE, Status.CANCELLED})
USERS = 7  # people who take turns; in events only


@dataclass(frozen=True, slots=True)
class FinishedJob:
    """One job that ended, as it was reported."""

    index: int
    """Place in the order of launching, from 0."""
    job_id: str
    context: Mapping[str, Scalar]
    context_key: str
    config: Mapping[str, Value]
    kind: str
    """``unasked``, or what was followed: exploit, explore, confirm, incumbent or baseline."""
    recommendation_id: str | None
    candidate_id: str | None
    status: Status
    objective: float | None
    """As measured."""
    expected: float | None
    """Of the same configuration without noise; ``None`` when it does not run."""
    ended_s: float
    """Simulated seconds since the cluster started."""

    def line(self) -> dict[str, object]:
        """What ``tunerd cluster --json`` prints."""
        return {
            "job": self.index,
            "job_id": self.job_id,
            "context_key": self.context_key,
            "context": dict(self.context),
            "config": dict(self.config),
            "kind": self.kind,
            "recommendation_id": self.recommendation_id,
            "candidate_id": self.candidate_id,
            "status": self.status.value,
            "objective": self.objective,
            "expected": self.expected,
            "ended_s": round(self.ended_s, 3),
        }


@dataclass(frozen=True, slots=True)
class _RunningJob:
    index: int
    job_id: str
    context: Mapping[str, Scalar]
    config: dict[str, Value]
    choice: Choice | None
    outcome: SimulatedRun


class SimulatedCluster:
    """Runs jobs of one study in turn over some contexts. Iterate over :meth:`run`.

    Raises ``ValueError`` at once when a context has no complete baseline in the study: that is
    what jobs run that nobody advises.
    """

    def __init__(
        self,
        simulator: Simulator,
        contexts: Sequence[Mapping[str, Scalar]],
        reporter: JobReporter,
        recommendations: Recommendations | None = None,
        *,
        policy: Policy = "recommended",
        concurrency: int = 8,
        seed: int = 0,
        name: str = "sim",
        pace: Callable[[], None] = lambda: None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._simulator = simulator
        self._study = simulator.study
        self._contexts = [self._study.clean_context(context) for context in contexts]
        self._keys = [self._study.context_key(context) for context in self._contexts]
        self._baselines = [self._baseline(context) for context in self._contexts]
        self._spaces = [SearchSpace(self._study, context) for context in self._contexts]
        self._reporter = reporter
        self._recommendations = recommendations
        self._policy = policy
        self._concurrency = concurrency
        self._seed = seed
        self._name = name
        self._pace = pace
        self._now = now

    def run(self, jobs: int) -> Iterator[FinishedJob]:
        """Launch and finish this many jobs; yields each when its event has been sent."""
        running: list[tuple[float, int, _RunningJob]] = []
        clock, launched = 0.0, 0
        while launched < jobs or running:
            while launched < jobs and len(running) < self._concurrency:
                job = self._launch(launched)
                heapq.heappush(running, (clock + job.outcome.duration_s, launched, job))
                launched += 1
            clock, _, job = heapq.heappop(running)
            self._pace()
            yield self._finish(job, clock)

    def _launch(self, index: int) -> _RunningJob:
        at = index % len(self._contexts)
        context = self._contexts[at]
        job_id = f"{self._name}-{self._seed}-{index:05d}"
        choice: Choice | None = None
        config = dict(self._baselines[at])
        if self._policy == "random":
            space = self._spaces[at]
            rng = np.random.default_rng([self._seed, index])
            config = space.decode(space.sample(1, rng)[0])
        elif self._policy == "recommended" and self._recommendations is not None:
            self._recommendations.poll()
            choice = self._recommendations.choose(self._keys[at], job_id)
            if choice is not None:
                config |= choice.config  # a baseline in a message may be partial
        rng = job_rng(self._seed, context, config, index)
        outcome = self._simulator.run(context, config, rng)
        return _RunningJob(index, job_id, context, config, choice, outcome)

    def _finish(self, job: _RunningJob, clock: float) -> FinishedJob:
        outcome, choice = job.outcome, job.choice
        finished = self._now()
        gpus = job.context.get("n_gpus")
        self._reporter.report(
            study=self._study.name,
            job_id=job.job_id,
            status=outcome.status.value,
            context=job.context,
            config=job.config,
            metrics=outcome.metrics,
            finished_at=finished,
            choice=choice,
            started_at=(finished - timedelta(seconds=outcome.duration_s)).isoformat(),
            measured_s=outcome.measured_s or None,
            gpus=int(gpus) if isinstance(gpus, int | float) else None,
            user=f"user-{job.index % USERS}",
            labels={"policy": self._policy},
        )
        if outcome.status in TAUGHT_NOTHING and self._recommendations is not None:
            self._recommendations.lost(job.job_id)
        expected = float(self._simulator.expected(job.context, [job.config])[0])
        return FinishedJob(
            index=job.index,
            job_id=job.job_id,
            context=job.context,
            context_key=self._keys[job.index % len(self._contexts)],
            config=job.config,
            kind=choice.kind if choice else "unasked",
            recommendation_id=choice.recommendation_id if choice else None,
            candidate_id=choice.candidate_id if choice else None,
            status=outcome.status,
            objective=outcome.metrics.get(self._study.objective.metric),
            expected=None if np.isnan(expected) else expected,
            ended_s=clock,
        )

    def _baseline(self, context: Mapping[str, Scalar]) -> dict[str, Value]:
        baseline = dict(self._study.baseline(context) or {})
        missing = [p.name for p in self._study.parameters if p.name not in baseline]
        if missing:
            raise ValueError(
                f"study {self._study.name}: no baseline for {', '.join(missing)} in context "
                f"{self._study.context_key(context)}; jobs that nobody advises need one"
            )
        return baseline
