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
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from benchmarks.kit import Bars, arguments
from tunerd.stages.placement import TOLERANCE, plan_placement

SIZES = ((100, 10_000, 60),)
"""Instances, studies, and seconds that are played after a change at most."""
LARGE = ((1_000, 100_000, 2),)
QUICK = ((20, 1_000, 60),)


@dataclass
class Cluster:
    """Who holds what; every second each instance looks once, in any order."""

    loads: dict[str, float]
    tuners: set[str]
    rng: np.random.Generator
    holders: dict[str, str | None] = field(default_factory=dict)
    moved: int = 0

    def second(self) -> None:
        """Each looks, sees what the others did before it, and does what it plans."""
        for me in self.rng.permutation(sorted(self.tuners)):
            plan = plan_placement(str(me), self.tuners, self.loads, self.holders, self.loads)
            for study in plan.take:
                self.holders[study] = str(me)
            for study in plan.give:
                self.holders[study] = None
            self.moved += len(plan.give)

    def crash(self, gone: set[str]) -> None:
        """Their leases have run out."""
        self.tuners -= gone
        for study, holder in self.holders.items():
            if holder in gone:
                self.holders[study] = None

    @property
    def free(self) -> int:
        """Studies that nobody holds."""
        return sum(holder is None for holder in self.holders.values())

    @property
    def balance(self) -> float:
        """Most load of an instance against the mean."""
        sums = dict.fromkeys(self.tuners, 0.0)
        for study, holder in self.holders.items():
            if holder is not None:
                sums[holder] += self.loads[study]
        return max(sums.values()) / (sum(sums.values()) / len(sums))


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
    cluster = Cluster(loads, set(names), rng, dict.fromkeys(loads))
    what = f"{instances:,} instances, {studies:,} studies"
    largest = float(costs.max() / (costs.sum() / instances))
    bar = 1 + 2 * TOLERANCE + largest
    gone = set(names[: instances // 10])
    for name in ("start", "a tenth crashes", "as many join"):
        if name == "a tenth crashes":
            cluster.crash(gone)
        elif name == "as many join":
            cluster.tuners |= gone
        cluster.moved = 0
        began = time.perf_counter()
        seconds = settle(cluster, most)
        looks = len(cluster.tuners) * seconds
        bars.say(f"{what}, {name}: seconds until it rests", seconds, f"of {most} played")
        bars.say(f"{what}, {name}: studies that moved from one to another", cluster.moved)
        bars.say(f"{what}, {name}: a plan takes", (time.perf_counter() - began) / looks * 1e3, "ms")
        bars.hold(f"{what}, {name}: held by nobody", cluster.free, not cluster.free, "none")
        even = cluster.balance
        if seconds < most or name != "as many join":
            bars.hold(f"{what}, {name}: most against mean", even, even <= bar, f"{bar:.2f}", "x")
        else:
            bars.say(f"{what}, {name}: most against mean, still moving", even, "x")


def main(argv: Sequence[str] | None = None) -> int:
    """Run it."""
    parser: argparse.ArgumentParser = arguments(__doc__)
    parser.add_argument("--large", action="store_true", help="1,000 instances: takes long")
    options = parser.parse_args(argv)
    bars = Bars("placement")
    for size in QUICK if options.quick else LARGE if options.large else SIZES:
        play(bars, *size)
    return bars.end(options)


if __name__ == "__main__":
    sys.exit(main())
