"""Closed loop on a table of measured jobs: who finds a good configuration in the fewest jobs?

Only configurations that the table holds exist. A job of one returns one of its measured rows, the
same for everyone who runs it for the k-th time; a failure is told as a failure. Everyone gets the
same random start, then is asked for a batch a round. An :class:`Optimizer` is tunerd itself, a
peer, or a yardstick such as random; it sees :class:`BenchmarkProblem` and what its jobs came to, no
more.

Regret after n jobs: how far the best configuration among those that ran, by its mean over all of
its measured rows that ran, is from the best there is in the context; 1 while nothing has run.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from time import perf_counter
from typing import Literal, Protocol

import msgspec

from tunerd.core.observation import Observation, Scalar, Value
from tunerd.core.study import Study
from tunerd.lab.evaluation.tabular import TabularBenchmark, TabularContext

__all__ = [
    "BenchmarkPlan",
    "BenchmarkProblem",
    "Optimizer",
    "OptimizerRun",
    "RegretCurve",
    "TrialResult",
    "play",
    "play_all",
]

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
"""When the first job ends where nothing came before; the next end a minute apart."""


@dataclass(frozen=True)
class BenchmarkProblem:
    """One context, and what is known beforehand."""

    study: Study
    context: Mapping[str, Scalar]
    """Values in the study's types (``Study.clean_context``)."""
    context_key: str
    configs: tuple[Mapping[str, Value], ...]
    """The distinct configurations that were measured here: the study's parameters, each with one
    of the values of its grid or None where the table has none. Nothing else may be tried."""
    history: tuple[Observation, ...] = ()
    """Jobs of other contexts that are known beforehand, oldest first, sequences 1, 2, …"""


@dataclass(frozen=True, slots=True)
class TrialResult:
    """What one job came to."""

    index: int
    """Which of ``Problem.configs`` it ran."""
    score: float | None
    """Oriented objective (``Study.score``: larger is better), None if the job has none or broke
    a guard."""
    ran: bool
    """Whether the configuration ran: False for a failure and for a broken guard."""
    job: Observation
    """The job as the daemon would have heard of it; its sequence follows those before."""


class OptimizerRun(Protocol):
    """One optimizer at work on one problem."""

    def ask(self, n: int) -> Sequence[int]:
        """Say which configurations to run next, n indices into ``Problem.configs``.

        The same one twice, or one tried before, is allowed and costs a job. The loop never asks
        for more than there are configurations that were not tried, and ends when all were.
        """

    def tell(self, jobs: Sequence[TrialResult]) -> None:
        """Learn what jobs came to: the start that everyone gets (not called if that is empty),
        later the batch that was asked for, in this order."""


class Optimizer(Protocol):
    """Who takes part."""

    @property
    def name(self) -> str:
        """How results call it."""

    def begin(self, problem: BenchmarkProblem, seed: int) -> OptimizerRun:
        """Start on a problem; what can be learned from its history is learned here. The same
        seed must lead to the same run."""


@dataclass(frozen=True, slots=True)
class BenchmarkPlan:
    """What everyone is put through."""

    jobs: int = 60
    """In all, in each context, the start included."""
    batch: int = 5
    """Jobs that run side by side: a batch is asked for when the one before is done."""
    start: int = 15
    """Distinct random configurations at the beginning, the same for everyone; 0 asks for the first
    batch too."""
    seeds: tuple[int, ...] = (0, 1, 2)
    history: Literal["none", "others"] = "none"
    """Whether the jobs of all other contexts are known beforehand."""
    unknown: str | None = None
    """With history: only of contexts that differ from the target in this feature."""


@dataclass(frozen=True)
class RegretCurve:
    """How one optimizer did in one context with one seed."""

    context: Mapping[str, Scalar]
    context_key: str
    seed: int
    regret: tuple[float, ...]
    """After 1, 2, … jobs. Where all configurations were tried before, the last value goes on."""
    tried: tuple[int, ...]
    """Which configuration each job ran."""
    begin_s: float
    """Seconds for what was known beforehand."""
    suggest_s: float
    """Seconds to learn what came and to suggest, in all."""
    suggestions: int
    """Jobs that were suggested."""


def play_all(
    table: TabularBenchmark, optimizer: Optimizer, plan: BenchmarkPlan
) -> Iterator[RegretCurve]:
    """Play every context with every seed, one curve each, context by context."""
    for target in table.contexts:
        history = table.others(target, plan.unknown) if plan.history == "others" else ()
        for seed in plan.seeds:
            yield play(target, optimizer, plan, seed, history)


def play(
    target: TabularContext,
    optimizer: Optimizer,
    plan: BenchmarkPlan,
    seed: int,
    history: Sequence[Observation] = (),
) -> RegretCurve:
    """One optimizer in one context.

    Raises:
        ValueError: the optimizer asks for another number of jobs than it was asked for, or for
            what is not there.
    """
    problem = BenchmarkProblem(
        target.study, target.context, target.context_key, target.configs, tuple(history)
    )
    cluster = _TabularCluster(target, seed, history)
    began = perf_counter()
    run = optimizer.begin(problem, seed)
    begun = perf_counter()
    start = target.start(min(plan.start, plan.jobs), seed)
    if start:
        run.tell([cluster.run(index) for index in start])
    suggest_s, suggestions = 0.0, 0
    while cluster.jobs < plan.jobs and cluster.untried:
        count = min(plan.batch, plan.jobs - cluster.jobs, cluster.untried)
        asked = perf_counter()
        chosen = list(run.ask(count))
        suggest_s += perf_counter() - asked
        _check(optimizer, chosen, count, len(target.configs))
        outcomes = [cluster.run(index) for index in chosen]
        told_at = perf_counter()
        run.tell(outcomes)
        suggest_s += perf_counter() - told_at
        suggestions += count
    lasting = plan.jobs - cluster.jobs
    return RegretCurve(
        context=target.context,
        context_key=target.context_key,
        seed=seed,
        regret=tuple(cluster.regrets + cluster.regrets[-1:] * lasting),
        tried=tuple(cluster.tried),
        begin_s=begun - began,
        suggest_s=suggest_s,
        suggestions=suggestions,
    )


def _check(optimizer: Optimizer, chosen: Sequence[int], count: int, configs: int) -> None:
    if len(chosen) != count or not all(0 <= index < configs for index in chosen):
        raise ValueError(
            f"{optimizer.name} was asked for {count} of {configs} configurations, it said {chosen}"
        )


class _TabularCluster:
    """Runs jobs by looking them up, and keeps the score."""

    def __init__(self, target: TabularContext, seed: int, history: Sequence[Observation]) -> None:
        self.target, self.seed = target, seed
        self.tried: list[int] = []
        self.regrets: list[float] = []
        self._times: Counter[int] = Counter()
        self._sequence = len(history)
        self._now = max((row.finished_at for row in history), default=EPOCH)

    @property
    def jobs(self) -> int:
        return len(self.tried)

    @property
    def untried(self) -> int:
        """Configurations that no job has run."""
        return len(self.target.configs) - len(self._times)

    def run(self, index: int) -> TrialResult:
        """Run one job."""
        row = self.target.row(index, self._times[index], self.seed)
        self._times[index] += 1
        self._sequence += 1
        self._now += timedelta(minutes=1)
        self.tried.append(index)
        score, ran = self.target.told(row)
        regret = float(self.target.regrets[index]) if score is not None else 1.0
        self.regrets.append(min([regret, *self.regrets[-1:]]))
        job = msgspec.structs.replace(
            row,
            event_id=f"{row.event_id}/{self._sequence}",
            job_id=f"{row.job_id}/{self._sequence}",
            finished_at=self._now,
            sequence=self._sequence,
            history=False,
        )
        return TrialResult(index, score, ran, job)
