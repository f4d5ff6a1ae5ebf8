"""Do leases spread evenly, and how soon? Instances and studies without a database.

Each instance plans by itself, as its tuner process does once a second
(:func:`tunerd.stages.placement.plan_placement`): it sees who holds what, takes its part of what is
free and gives up what is too much. What tuning a study costs is log-normal. Played are a start, a
tenth of the instances that crash, and as many that join. The database is not in it: how often
instances can look at all leases is another question (docs/scale.md).
"""

import argparse
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from benchmarks.kit import Bars, arguments
from tunerd.stages.placement import TOLERANCE, ClusterLoads, plan_placement

SIZES = ((100, 10_000, 60),)
"""Instances, studies, and seconds that are played after a change at most."""
LARGE = ((1_000, 100_000, 600),)
QUICK = ((20, 1_000, 60),)


@dataclass
class Cluster:
    """Who holds what; every second each instance looks once, in any order."""

    loads: Mapping[str, float]
    rng: np.random.Generator
    held: dict[str, dict[str, float]]
    """By instance, the loads of its studies."""
    free: dict[str, float] = field(default_factory=dict)
    moved: int = 0
    plan_s: float = 0.0
    """What planning took."""
    plans: int = 0
    _of_tuner: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.free = dict(self.loads)
        self._of_tuner = dict.fromkeys(self.held, 0.0)

    def second(self) -> None:
        """Each looks, sees what the others did before it, and does what it plans."""
        for me in map(str, self.rng.permutation(sorted(self.held))):
            began = time.perf_counter()
            plan = plan_placement(me, ClusterLoads(self._of_tuner, self.free), self.held[me])
            self.plan_s += time.perf_counter() - began
            self.plans += 1
            for study in plan.take:
                self.held[me][study] = self.free.pop(study)
            for study in plan.give:
                self.free[study] = self.held[me].pop(study)
            self._of_tuner[me] = sum(self.held[me].values())
            self.moved += len(plan.give)

    def crash(self, gone: Iterable[str]) -> None:
        """Their leases have run out."""
        for tuner in gone:
            self.free |= self.held.pop(tuner)
            del self._of_tuner[tuner]

    def join(self, new: Iterable[str]) -> None:
        """They look for studies from now on."""
        for tuner in new:
            self.held[tuner], self._of_tuner[tuner] = {}, 0.0

    @property
    def balance(self) -> float:
        """Most load of an instance against the mean."""
        return max(self._of_tuner.values()) / (sum(self._of_tuner.values()) / len(self.held))


def settle(cluster: Cluster, most: int) -> int:
    """Seconds until everything is held and nothing moves any more, at most so many."""
    for seconds in range(1, most + 1):
        before = cluster.moved
        cluster.second()
        if not cluster.free and cluster.moved == before:
            return seconds
    return most


def play(bars: Bars, instances: int, studies: int, most: int) -> None:
    """A start, a crash of a tenth, and as many that join."""
    rng = np.random.default_rng(instances)
    names = [f"i{number:05}" for number in range(instances)]
    costs = np.exp(rng.normal(0.0, 1.0, studies))
    loads = {f"s{number:06}": float(cost) for number, cost in enumerate(costs)}
    cluster = Cluster(loads, rng, {name: {} for name in names})
    what = f"{instances:,} instances, {studies:,} studies"
    largest = float(costs.max() / (costs.sum() / instances))
    bar = 1 + 2 * TOLERANCE + largest
    gone = names[: instances // 10]
    for name in ("start", "a tenth crashes", "as many join"):
        if name == "a tenth crashes":
            cluster.crash(gone)
        elif name == "as many join":
            cluster.join(gone)
        cluster.moved, cluster.plan_s, cluster.plans = 0, 0.0, 0
        seconds = settle(cluster, most)
        bars.say(f"{what}, {name}: seconds until it rests", seconds, f"of {most} played")
        bars.say(f"{what}, {name}: studies that moved from one to another", cluster.moved)
        bars.say(f"{what}, {name}: a plan takes", cluster.plan_s / cluster.plans * 1e3, "ms")
        bars.hold(f"{what}, {name}: held by nobody", len(cluster.free), not cluster.free, "none")
        even = cluster.balance
        if seconds < most or name != "as many join":
            bars.hold(f"{what}, {name}: most against mean", even, even <= bar, f"{bar:.2f}", "x")
        else:
            bars.say(f"{what}, {name}: most against mean, still moving", even, "x")


def main(argv: Sequence[str] | None = None) -> int:
    """Run it."""
    parser: argparse.ArgumentParser = arguments(__doc__)
    parser.add_argument("--large", action="store_true", help="1,000 instances, 100,000 studies")
    options = parser.parse_args(argv)
    bars = Bars("placement")
    for size in QUICK if options.quick else LARGE if options.large else SIZES:
        play(bars, *size)
    return bars.end(options)


if __name__ == "__main__":
    sys.exit(main())
