"""What is foreseeing worth? A service whose replicas are tuned, with and without a forecast.

A simulated service (`tunerd/lab/simulation/service.py`) under a load with a day, a week and bursts.
Each quarter of an hour is a job: what was paid, and whether the guard on the 99th percentile of
waiting was kept. New replicas take a quarter of an hour to be up, so a configuration is chosen for
a load that is not known yet:

- *reactive*: what tunerd recommends for the load that was measured last,
- *proactive*: what it recommends for a quantile of the load that is foreseen (`--quantile`),
- *static*: the cheapest single configuration that keeps the guard in 99 of 100 quarters,
- *oracle*: the cheapest configuration for the load that will come, by the cost model itself.

Both that learn begin with the same 400 old jobs, and learn from every quarter of an hour.

A second load wanders without a day or a week. Nothing can be foreseen there, and foreseeing should
do no harm.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from itertools import product

import numpy as np

from benchmarks.changes import START, Tuned
from benchmarks.kit import Bars, arguments, counted
from benchmarks.side_by_side import side_by_side
from tunerd.core.arrays import FloatArray
from tunerd.core.forecasting.forecaster import SignalForecaster
from tunerd.core.forecasting.plan import bucket_value
from tunerd.core.observation import Observation, Status, Value
from tunerd.core.study import Study
from tunerd.core.study_file import parse_study
from tunerd.lab.simulation.service import STUDY, cost_of, load_of, p99_ms

DAYS, SEEDS, WARM_DAYS = 28, 5, 14
"""Before the days that count the signal is there, and nothing is tuned."""
SLOT_S = 900
OLD_JOBS = 400
NOISE = 0.04
QUANTILE = 0.75
"""Higher ones break less, and cost more where nothing can be foreseen."""
STEP = 16
"""Quarters of an hour that are learned together: one by one, a run takes ten minutes."""
AHEAD = 1
"""Slots until a choice is up."""


@dataclass
class Outcome:
    """What came of one policy."""

    cost: list[float] = field(default_factory=list)
    broken: list[bool] = field(default_factory=list)

    @property
    def mean_cost(self) -> float:
        """Replicas paid."""
        return float(np.mean(self.cost))

    @property
    def share_broken(self) -> float:
        """Of quarters of an hour in which the guard did not hold."""
        return float(np.mean(self.broken))


class Service:
    """One run of the service under one load; noise is the same for every policy."""

    def __init__(self, rps: FloatArray, study: Study, seed: int) -> None:
        self.rps, self.study = rps, study
        self.first = WARM_DAYS * 96
        self.noise = np.exp(np.random.default_rng([seed, 1]).normal(0, NOISE, len(rps)))
        self.limit = next(guard.max for guard in study.guards if guard.max is not None)
        names = [parameter.name for parameter in study.parameters]
        values = [parameter.choices for parameter in study.parameters]
        self.configs: list[dict[str, Value]] = [
            dict(zip(names, row, strict=True)) for row in product(*values)
        ]
        self.costs = np.array([cost_of(config) for config in self.configs])

    def run(self, slot: int, config: dict[str, Value], outcome: Outcome) -> float:
        """A quarter of an hour; what the 99th percentile was."""
        waited = p99_ms(config, float(self.rps[slot])) * float(self.noise[slot])
        outcome.cost.append(cost_of(config))
        outcome.broken.append(waited > self.limit)
        return waited

    def cheapest(self, rps: Sequence[float] | FloatArray, share: float) -> dict[str, Value]:
        """Cheapest configuration that keeps the guard, with a margin for noise, in such a share."""
        for place in np.argsort(self.costs, kind="stable"):
            config = self.configs[int(place)]
            held = [p99_ms(config, float(one)) * (1 + 2 * NOISE) <= self.limit for one in rps]
            if np.mean(held) >= share:
                return config
        return self.configs[int(np.argmax(self.costs))]


def observed(
    study: Study, number: int, rps: float, config: dict[str, Value], waited: float, choice: object
) -> Observation:
    """A quarter of an hour as a job; jobs are numbered from 1."""
    return Observation(
        study=study.name,
        source="benchmark",
        event_id=str(number),
        job_id=str(number),
        sequence=number,
        status=Status.SUCCEEDED,
        finished_at=START + timedelta(seconds=SLOT_S * number),
        context={"rps": rps},
        config=config,
        metrics={"replicas_paid": cost_of(config), "p99_ms": waited},
        recommendation_id=getattr(choice, "recommendation_id", None),
        candidate_id=getattr(choice, "candidate_id", None),
    )


def old_jobs(service: Service, seed: int) -> list[Observation]:
    """Random configurations under loads of the weeks before."""
    rng = np.random.default_rng([seed, 2])
    jobs = []
    for number in range(OLD_JOBS):
        slot = int(rng.integers(service.first))
        config = service.configs[int(rng.integers(len(service.configs)))]
        rps = float(service.rps[slot])
        waited = p99_ms(config, rps) * float(np.exp(rng.normal(0, NOISE)))
        jobs.append(observed(service.study, number + 1, rps, config, waited, None))
    return jobs


def learning(service: Service, seed: int, quantile: float | None) -> Outcome:
    """tunerd, for the load that was, or for this quantile of the load that comes."""
    study, load = service.study, service.rps
    (feature,) = study.context
    baseline = dict(study.baseline({"rps": 1.0}) or {})
    tuned = Tuned(study, baseline, seed)
    tuned.learn(old_jobs(service, seed))
    forecaster = SignalForecaster(SLOT_S, 8, every=4, lowest=0.0)
    for slot in range(service.first):
        forecaster.add(SLOT_S * slot + 1.0, float(load[slot]))
    forecaster.resume(SLOT_S * 96.0 * 3)
    outcome, ended = Outcome(), list[Observation]()
    chosen: list[tuple[dict[str, Value], object]] = [(baseline, None)] * AHEAD
    for slot in range(service.first, len(load)):
        wanted = float(load[slot - 1])
        if quantile is not None:
            forecaster.advance(SLOT_S * float(slot))
            forecast = forecaster.forecast()
            assert forecast is not None
            wanted = float(forecast.quantile(quantile)[AHEAD])
        context = study.clean_context({"rps": bucket_value(feature, max(wanted, 1.0))})
        key = study.context_key(context)
        tuned.look_ahead(key, context)
        choice = tuned.reader.choose(key, f"{seed}-{slot}", now=tuned.now)
        chosen.append((baseline if choice is None else dict(choice.config), choice))
        config, made_by = chosen.pop(0)
        waited = service.run(slot, config, outcome)
        rps = float(load[slot])
        forecaster.add(SLOT_S * slot + 1.0, rps)
        number = OLD_JOBS + 1 + slot - service.first
        ended.append(observed(study, number, rps, config, waited, made_by))
        if len(ended) == STEP:
            tuned.learn(ended)
            ended = []
    return outcome


def fixed(service: Service, share: float) -> Outcome:
    """One configuration all along."""
    config = service.cheapest(service.rps[service.first :], share)
    outcome = Outcome()
    for slot in range(service.first, len(service.rps)):
        service.run(slot, config, outcome)
    return outcome


def oracle(service: Service) -> Outcome:
    """Whoever knows what comes."""
    outcome = Outcome()
    for slot in range(service.first, len(service.rps)):
        config = service.cheapest([float(service.rps[slot])], 1.0)
        service.run(slot, config, outcome)
    return outcome


def play(structure: bool, options: argparse.Namespace, seed: int) -> dict[str, Outcome]:
    """All policies under one load."""
    rng = np.random.default_rng([seed, 0])
    load = load_of(WARM_DAYS + options.days, rng, structure=structure)
    service = Service(load, parse_study(STUDY), seed)
    return {
        "reactive": learning(service, seed, None),
        "proactive": learning(service, seed, options.quantile),
        "static": fixed(service, 0.99),
        "oracle": oracle(service),
    }


def measure(options: argparse.Namespace, bars: Bars, structure: bool) -> None:
    """All policies on all seeds."""
    what = "day and week" if structure else "no structure"
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    plays = side_by_side(partial(play, structure, options), seeds, os.cpu_count() or 1)
    played = [made for _ in counted(what, seeds) if (made := next(plays)[1]) is not None]
    bars.hold(f"{what}: loads played", len(played), len(played) == options.seeds, "all")
    if not played:
        return
    names = played[0]
    cost = {name: float(np.mean([run[name].mean_cost for run in played])) for name in names}
    broken = {name: float(np.mean([run[name].share_broken for run in played])) for name in names}
    for name in cost:
        bars.say(f"{what}, {name}: replicas paid", cost[name])
        bars.say(f"{what}, {name}: guard broken", 100 * broken[name], "%")
    gap = broken["reactive"] - broken["oracle"]
    closed = (broken["reactive"] - broken["proactive"]) / gap if gap > 0 else 1.0
    dearer = cost["proactive"] / cost["reactive"]
    if structure:
        bars.hold(f"{what}: share of the gap closed", closed, closed >= 0.5, "at least 0.5")
        bars.hold(f"{what}: cost against reactive", dearer, dearer <= 1.0, "at most 1", "x")
    else:
        harm = broken["proactive"] - broken["reactive"]
        bars.hold(f"{what}: more broken than reactive", 100 * harm, harm <= 0.005, "0.5", "%")
        bars.hold(f"{what}: cost against reactive", dearer, dearer <= 1.05, "at most 1.05", "x")


def main(argv: Sequence[str] | None = None) -> int:
    """Run it."""
    parser = arguments(__doc__)
    parser.add_argument("--days", type=int, default=DAYS)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--quantile", type=float, default=QUANTILE, help="of the load to plan for")
    options = parser.parse_args(argv)
    if options.quick:
        options.days, options.seeds = 4, 1
    bars = Bars("proactive")
    for structure in (True, False):
        measure(options, bars, structure)
    return bars.end(options)


if __name__ == "__main__":
    sys.exit(main())
