"""A cluster that changes under schedulers that follow: how soon is what turned slow given up?

Small spaces in which everything was measured, one configuration that all jobs run, and a change:
the best falls, whatever has one value of a parameter slows down, it heals again, it decays slowly,
one parameter's effect turns round, everything slows alike, better hardware comes, one of several
contexts changes; and nothing at all, to see what exploring costs. tunerd advises through its own
tuner and the reader that schedulers import. Beside it run three policies: an oracle that knows the
change, one that never changes its mind, and one that explores a fixed tenth.

What a job would have given under another configuration is known without noise.
"""

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import product
from multiprocessing import get_context
from typing import Protocol

import numpy as np

from benchmarks.kit import Bars, arguments
from tunerd import __version__
from tunerd.client import Recommendations
from tunerd.core.decisions.lifecycle import compose, is_news
from tunerd.core.observation import Observation, Scalar, Status, Value
from tunerd.core.recommendation import MadeFrom, Recommendation
from tunerd.core.study import Study
from tunerd.core.study_file import parse_study
from tunerd.core.tuner import Tuner
from tunerd.events import to_bytes
from tunerd.lab.evaluation.tunerd_forecaster import InlineExecutor

__all__ = ["SCENARIOS", "Played", "Scenario", "play"]

START = datetime(2026, 11, 1, tzinfo=UTC)
QUIET = 30
"""Jobs a context between the measured ones and the change."""
AFTER = 300
"""Jobs a context after the change."""
STEP = 2
"""Jobs between two looks of the tuner, a context."""
HALF_OF = 20
"""Jobs of which half must run the new best."""
SETTLED = 150
"""Jobs after which everything should be in order."""
AS_GOOD = 0.01
"""What is within this of the best counts as the best."""

LOOP = 0.5
"""Share of followers from which on the bar on the first half holds: a tenth is too few to count."""
POLICIES = ("tunerd", "oracle", "never", "a tenth")

Config = Mapping[str, Value]
Truth = Callable[[Config, int], float]
"""Speed of a configuration, and jobs in its context since the change; negative before it."""


@dataclass(frozen=True)
class Scenario:
    """A space, what it gives, and how that changes."""

    name: str
    parameters: Mapping[str, tuple[int, ...]]
    truth: Truth
    measured: int
    """Runs of each configuration before."""
    contexts: int = 1
    """The change comes to the first one only …"""
    new: bool = False
    """… or the first one is new and comes with the change."""
    half_by: int | None = None
    """Bar: jobs until half run the new best; None for none."""
    settled: float | None = None
    """Bar: mean share of the best from job :data:`SETTLED` on; None for none."""

    @property
    def grid(self) -> list[dict[str, Value]]:
        """Every configuration."""
        names = list(self.parameters)
        return [dict(zip(names, one, strict=True)) for one in product(*self.parameters.values())]


def _three(config: Config, fallen: float) -> float:
    mb = float(str(config["mb"]))
    return fallen if mb == 4 else 100 * mb


def _grid(config: Config) -> float:
    return float(100 * float(str(config["tp"])) ** 0.5 * float(str(config["mb"])) ** 0.3)


def _falls(config: Config, since: int) -> float:
    return _three(config, 30.0 if since >= 0 else 400.0)


def _heals(config: Config, since: int) -> float:
    return _three(config, 30.0 if 0 <= since < 100 else 400.0)


def _link(config: Config, since: int) -> float:
    return _grid(config) * (0.6 if since >= 0 and config["tp"] == 8 else 1.0)


def _decays(config: Config, since: int) -> float:
    lost = 0.6 * min(max(since, 0) / 200, 1.0)
    return _grid(config) * (1.0 - lost if config["tp"] == 8 else 1.0)


def _reversed(config: Config, since: int) -> float:
    tp, mb = float(str(config["tp"])), float(str(config["mb"]))
    return float(100 * (8 / tp if since >= 0 else tp) ** 0.5 * mb**0.3)


def _slower(config: Config, since: int) -> float:
    return _grid(config) * (0.6 if since >= 0 else 1.0)


def _hardware(config: Config, _since: int) -> float:
    """The new generation is 2.5 times as fast, and best with smaller parts."""
    tp, mb = float(str(config["tp"])), float(str(config["mb"]))
    return float(250 * tp**0.2 * 2 ** (-0.3 * abs(np.log2(mb) - 2)))


def _nothing(config: Config, _since: int) -> float:
    return _grid(config)


THREE = {"mb": (1, 2, 4)}
GRID = {"tp": (1, 2, 4, 8), "mb": (1, 2, 4, 8)}
SCENARIOS = {
    one.name: one
    for one in (
        Scenario("falls", THREE, _falls, 15, half_by=40, settled=0.95),
        Scenario("link", GRID, _link, 10, half_by=80, settled=0.95),
        Scenario("heals", THREE, _heals, 15, half_by=40, settled=0.95),
        Scenario("decays", GRID, _decays, 10),
        Scenario("reversed", GRID, _reversed, 10),
        Scenario("slower", GRID, _slower, 10),
        Scenario("hardware", GRID, _hardware, 10, contexts=2, new=True),
        Scenario("one of four", THREE, _falls, 15, contexts=4, half_by=40, settled=0.95),
        Scenario("nothing", GRID, _nothing, 10),
    )
}
STUDY = """
schema = 1
name = "s"
mode = "publish"
explore_share = {explore}
objective = {{ metric = "speed", goal = "maximize", unit = "tokens/s" }}
context.gpu = {{ type = "category" }}
{parameters}
"""


def study_of(scenario: Scenario, explore: float) -> Study:
    """The study that a scenario is tuned by."""
    lines = [
        f'parameters.{name} = {{ type = "int", values = {list(values)}, scale = "log" }}'
        for name, values in scenario.parameters.items()
    ]
    return parse_study(STUDY.format(explore=explore, parameters="\n".join(lines)), "changes")


@dataclass(frozen=True)
class Task:
    """One stream under one policy."""

    scenario: str
    policy: str
    seed: int
    noise: float
    following: float
    """Share of the jobs that follow; the rest runs whatever its users like."""
    explore: float


@dataclass(frozen=True)
class Played:
    """What the jobs of the changed context that followed did, from the change on."""

    task: Task
    shares: tuple[float, ...]
    """Of the best of the moment."""
    best: tuple[bool, ...]
    """Whether it was the best."""
    at: tuple[int, ...]
    """How many jobs of the context the change was ago."""
    tried: float
    """Share that ran neither incumbent nor baseline."""

    @property
    def half_at(self) -> int | None:
        """Jobs until half run the best, of as many that followed as there are in the next
        :data:`HALF_OF`; None where that never came. Where it heals: after the fall."""
        for start in range(len(self.best) - HALF_OF // 2):
            some = self.best[start : start + HALF_OF]
            if sum(some) >= len(some) / 2:
                return self.at[start]
        return None

    def mean(self, since: int = 0) -> float:
        """Mean share of the best from a job on."""
        return float(
            np.mean([s for s, at in zip(self.shares, self.at, strict=True) if at >= since])
        )


class Policy(Protocol):
    """What says which configuration a job runs."""

    def choose(self, context: str, number: int, /) -> tuple[dict[str, Value], str, object]:
        """Configuration, kind (``incumbent`` or another), and what the job carries of it."""

    def learn(self, jobs: Sequence[Observation]) -> None:
        """Jobs have ended."""


@dataclass
class Tuned:
    """tunerd itself."""

    study: Study
    fallback: dict[str, Value]
    seed: int
    running: dict[str, Recommendation] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tuner = Tuner(self.study, InlineExecutor())
        self.reader = Recommendations()
        self.now = START

    def choose(self, context: str, number: int) -> tuple[dict[str, Value], str, object]:
        key = self.study.context_key({"gpu": context})
        choice = self.reader.choose(key, f"{self.seed}-{context}-{number}", now=self.now)
        if choice is None:
            return self.fallback, "none", None
        return dict(choice.config), choice.kind, choice

    def learn(self, jobs: Sequence[Observation]) -> None:
        learned = self.tuner.learn(jobs)
        self.now = jobs[-1].finished_at
        for key in self.tuner.due(learned.contexts, learned.contexts):
            self._look(key)

    def look_ahead(self, key: str, context: dict[str, Scalar]) -> None:
        """As a request does: a context that is to come is searched before its first job."""
        if key not in self.running:
            self.tuner.ask(context, self.now)
            self._look(key)

    def _look(self, key: str) -> None:
        advice = self.tuner.advise(key, self.running.get(key))
        before = self.running.get(key)
        if not is_news(self.study, advice, before):
            return
        message = compose(
            self.study,
            key,
            self.tuner.contexts[key],
            advice,
            MadeFrom(
                sequence=self.tuner.sequence,
                model=None,
                study=self.study.content_hash,
                seeds=self.study.search.seeds,
                tunerd=__version__,
            ),
            revision=before.revision + 1 if before else 1,
            now=self.now,
            valid=timedelta(days=60),
        )
        self.running[key] = message
        self.tuner.promise(key, advice)
        self.reader.take(key, json.loads(to_bytes(message)))


@dataclass
class Beside:
    """The policies beside it, which keep the mean of the latest runs of each configuration."""

    grid: Sequence[dict[str, Value]]
    explore: float
    """Share that is drawn at random."""
    learns: bool
    rng: np.random.Generator
    latest: dict[tuple[str, str], list[float]] = field(default_factory=dict)

    def choose(self, context: str, _number: int) -> tuple[dict[str, Value], str, object]:
        if self.rng.random() < self.explore:
            return dict(self.grid[int(self.rng.integers(len(self.grid)))]), "explore", None
        means = [
            float(np.mean(self.latest.get((context, json.dumps(one)), [0.0]))) for one in self.grid
        ]
        return dict(self.grid[int(np.argmax(means))]), "incumbent", None

    def learn(self, jobs: Sequence[Observation]) -> None:
        if not self.learns and jobs[0].candidate_id == "after":
            return
        for job in jobs:
            name = str(job.context["gpu"]), json.dumps(job.config)
            self.latest[name] = [*self.latest.get(name, []), job.metrics["speed"]][-10:]


def play(task: Task) -> Played:
    """Let the jobs of one stream run under one policy."""
    scenario = SCENARIOS[task.scenario]
    rng = np.random.default_rng([task.seed, *task.scenario.encode()])
    grid, study = scenario.grid, study_of(scenario, task.explore)
    contexts = [chr(ord("A") + i) for i in range(scenario.contexts)]
    policy: Policy
    if task.policy == "tunerd":
        policy = Tuned(study, grid[0], task.seed)
    else:
        policy = Beside(
            grid,
            0.1 if task.policy == "a tenth" else 0.0,
            task.policy == "a tenth",
            np.random.default_rng(task.seed),
        )
    sequence = 0

    def speed(context: str, config: Config, since: int) -> float:
        if context != "A" and scenario.new:
            return _grid(config)
        return scenario.truth(config, since if context == "A" else -1)

    def ended(context: str, config: dict[str, Value], since: int, choice: object) -> Observation:
        nonlocal sequence
        sequence += 1
        value = speed(context, config, since) * float(np.exp(rng.normal(0, task.noise)))
        return Observation(
            study="s",
            source="benchmark",
            event_id=str(sequence),
            job_id=str(sequence),
            status=Status.SUCCEEDED,
            finished_at=START + timedelta(minutes=sequence),
            context={"gpu": context},
            config=dict(config),
            metrics={"speed": value},
            sequence=sequence,
            recommendation_id=getattr(choice, "recommendation_id", None),
            candidate_id=getattr(choice, "candidate_id", "after" if since >= 0 else None),
            content_hash=str(sequence),
        )

    known = contexts[1:] if scenario.new else contexts
    for _ in range(scenario.measured):
        policy.learn([ended(context, config, -1, None) for config in grid for context in known])
    shares, best, at, tried = [], [], [], 0
    batch: list[Observation] = []
    for number in range(-QUIET, AFTER):
        for context in contexts if number >= 0 else known:
            config, kind, choice = policy.choose(context, number + QUIET)
            speeds = [speed(context, one, number) for one in grid]
            follows = rng.random() < task.following
            if not follows:
                config, choice = dict(grid[int(rng.integers(len(grid)))]), None
            elif task.policy == "oracle":
                config = dict(grid[int(np.argmax(speeds))])
            if context == "A" and number >= 0 and follows:
                share = speed(context, config, number) / max(speeds)
                shares.append(share)
                best.append(share >= 1 - AS_GOOD)
                at.append(number)
                tried += kind not in ("incumbent", "none", "baseline")
            batch.append(ended(context, config, number, choice))
        if len(batch) >= STEP * len(contexts):
            policy.learn(batch)
            batch = []
    return Played(task, tuple(shares), tuple(best), tuple(at), tried / max(len(shares), 1))


def main() -> int:
    """The program."""
    options = arguments(__doc__)
    options.add_argument("--only", nargs="+", choices=list(SCENARIOS), default=list(SCENARIOS))
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--noise", type=float, nargs="+", default=[0.05, 0.1])
    options.add_argument("--following", type=float, nargs="+", default=[1.0, 0.5, 0.1])
    options.add_argument("--explore", type=float, default=0.2, help="the study's explore_share")
    options.add_argument("--workers", type=int, default=1, help="processes, one core each")
    chosen = options.parse_args()
    seeds = 1 if chosen.quick else chosen.seeds
    noises = chosen.noise[:1] if chosen.quick else chosen.noise
    following = chosen.following[:1] if chosen.quick else chosen.following
    tasks = [
        Task(name, policy, seed, noise, follow, chosen.explore)
        for name in chosen.only
        for follow in following
        for noise in noises
        for policy in POLICIES
        for seed in range(1, seeds + 1)
    ]
    bars = Bars("changes")
    print(
        "Half: jobs after the change until half of the next 20 that follow run the new best."
        f" Mean and from {SETTLED}: share of the best, over {AFTER} jobs and the later ones."
    )
    if chosen.workers == 1:
        report(bars, map(play, tasks), seeds)
    else:
        with ProcessPoolExecutor(chosen.workers, get_context("spawn")) as pool:
            report(bars, pool.map(play, tasks), seeds)
    return bars.end(chosen)


def report(bars: Bars, found: Iterable[Played], seeds: int) -> None:
    """Tell each setting as soon as all its seeds have been played."""
    some: list[Played] = []
    for one in found:
        some.append(one)
        if len(some) == seeds:
            tell(bars, some)
            some = []


def tell(bars: Bars, played: Sequence[Played]) -> None:
    """One setting: its seeds together."""
    task, scenario = played[0].task, SCENARIOS[played[0].task.scenario]
    where = f"{task.scenario}, {task.noise:.0%} noise, {task.following:.0%} follow"
    mean = float(np.mean([one.mean() for one in played]))
    settled = [one.mean(SETTLED) for one in played]
    if task.policy != "tunerd":
        tried = float(np.mean([one.tried for one in played]))
        says = f"from {SETTLED} {np.mean(settled):.3f}, tried {tried:.3f}"
        bars.say(f"{where}: {task.policy}", mean, says)
        return
    halves = [AFTER if one.half_at is None else one.half_at for one in played]
    shown = f"half at {sorted(halves)}, tried {np.mean([one.tried for one in played]):.3f}"
    bars.say(f"{where}: mean share of the best", mean, shown)
    if scenario.half_by is not None and task.following >= LOOP:
        worst = max(halves)
        by = scenario.half_by
        bars.hold(f"{where}: half by", worst, worst <= by, f"at most {by}, every seed")
    if scenario.settled is not None:
        usual = float(np.mean(settled))
        bar = f"at least {scenario.settled} on average"
        bars.hold(f"{where}: from job {SETTLED} on", usual, usual >= scenario.settled, bar)
        bars.say(f"{where}: from there on, of the worst seed", min(settled))
    if scenario.name == "nothing":
        bars.hold(f"{where}: lost by exploring", 1 - mean, mean >= 0.999, "at most 0.001")


if __name__ == "__main__":
    sys.exit(main())
