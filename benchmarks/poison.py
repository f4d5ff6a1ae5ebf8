"""How far does one user move what is recommended, who reports more than he got?

A simulated cluster runs jobs of a study in a few contexts, in mode ``observe``. Nineteen of twenty
jobs are of seven people who have their habits and report what they got. One in twenty is eve's. She
always launches a configuration of her own, a tenth slower than the best habit, and reports 1.3 or
1,000 times her speed. The same jobs are learned five times: as they really went, and with each
factor with and without tunerd's protection (the quarantine, and ``[limits] max_user_share``).

After a third, two thirds and all of the jobs, each context's incumbent and first candidate are
looked up in the simulator without noise. Reported, by scenario: the *regret*, the mean of how much
slower they really are than the best that anybody ran there; how often they are eve's configuration;
and by which factor the incumbent's speed is overstated.

Bars, with protection, for both factors:

- the incumbents' regret is at most half a percent, or two standard errors of the paired difference,
  above the undisturbed one;
- eve's configuration is the incumbent no more often than undisturbed;
- an incumbent's speed is overstated by at most 2 % more than undisturbed, in the mean;
- of 1,000 times, no plausible job is in the quarantine, and all of eve's are, but those among the
  first five of a context.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import numpy as np
from msgspec import structs

from benchmarks.kit import Bars, arguments, counted, observation
from tunerd.core.arrays import FloatArray
from tunerd.core.observation import Observation, Scalar, Value
from tunerd.core.outliers import OutlierFilter, Screening
from tunerd.core.recommendation import Advice
from tunerd.core.space import SearchSpace
from tunerd.core.study import Study
from tunerd.core.study_file import parse_study
from tunerd.core.tuner import Tuner
from tunerd.lab.evaluation.tunerd_forecaster import InlineExecutor
from tunerd.lab.simulation.shipped import demo_contexts, shipped_study
from tunerd.lab.simulation.simulator import CostSimulator, job_rng, simulator_for

__all__ = ["Eve", "main"]

START = datetime(2026, 11, 1, tzinfo=UTC)
STUDY = "ads-fsdp"
PEOPLE = 7
HABITS = 4
SHARE = 0.05
SLOWER = 0.9
"""What eve's configuration gives beside the best habit."""
LOOKS = 3
AT_ONCE = 8
FACTORS = (1000.0, 1.3)


class _NoFilter(OutlierFilter):
    """Believes everything."""

    def see(self, *_: object, **__: object) -> Screening:
        return Screening()


@dataclass
class Eve:
    """The jobs of a cluster, one in twenty of them eve's."""

    seed: int
    contexts: int
    jobs: int
    study: Study = field(init=False)
    simulator: CostSimulator = field(init=False)
    history: list[Observation] = field(init=False, default_factory=list)
    """As everything really went."""

    def __post_init__(self) -> None:
        text = shipped_study(STUDY).replace('mode = "publish"', 'mode = "observe"')
        self.study = parse_study(text, STUDY)
        self.simulator = simulator_for(self.study)
        self.places = [self.study.clean_context(c) for c in demo_contexts(STUDY)[: self.contexts]]
        self.spaces = [SearchSpace(self.study, place) for place in self.places]
        self.rng = np.random.default_rng(self.seed)
        habits = [self._habits(c) for c in range(len(self.places))]
        self.own = [self._slower(c, habits[c]) for c in range(len(self.places))]
        self.best = [
            float(np.nanmax(self.speed(c, [*mine, self.own[c]]))) for c, mine in enumerate(habits)
        ]
        for number in range(1, self.jobs + 1):
            self.history.append(self._job(number, habits))

    def speed(self, c: int, configs: Sequence[Mapping[str, Value]]) -> FloatArray:
        """(n,) what configurations give in a context, without noise."""
        return self.simulator.expected(self.places[c], configs)

    def reported(self, factor: float) -> list[Observation]:
        """The jobs as they are reported."""
        metric = self.study.objective.metric
        return [
            structs.replace(job, metrics={**job.metrics, metric: factor * job.metrics[metric]})
            if job.user == "eve" and metric in job.metrics
            else job
            for job in self.history
        ]

    def _habits(self, c: int) -> list[dict[str, Value]]:
        """Configurations that run, a few for each person: the baseline and variations of it."""
        base = dict(self.study.baseline(self.places[c]) or {})
        habits = [base]
        while len(habits) < PEOPLE * HABITS:
            other = self.spaces[c].decode(self.spaces[c].sample(1, self.rng)[0])
            config = dict(base)
            for name in self.rng.permutation(list(config))[: 1 + int(self.rng.integers(3))]:
                config[name] = other[name]
            if self.spaces[c].encode(config) is not None and np.isfinite(
                self.speed(c, [config])[0]
            ):
                habits.append(config)
        return habits

    def _slower(self, c: int, habits: Sequence[Mapping[str, Value]]) -> dict[str, Value]:
        """A configuration of nobody else, about as much slower than the best as eve's shall be."""
        drawn = [self.spaces[c].decode(codes) for codes in self.spaces[c].sample(400, self.rng)]
        wanted = SLOWER * float(np.nanmax(self.speed(c, habits)))
        away = np.abs(np.log(self.speed(c, drawn) / wanted))
        return next(drawn[i] for i in np.argsort(away) if drawn[i] not in habits)

    def _job(self, number: int, habits: Sequence[Sequence[dict[str, Value]]]) -> Observation:
        c = int(self.rng.integers(len(self.places)))
        person, habit = int(self.rng.integers(PEOPLE)), int(self.rng.integers(HABITS))
        user, config = f"person-{person}", habits[c][person * HABITS + habit]
        if self.rng.random() < SHARE:
            user, config = "eve", self.own[c]
        place: Mapping[str, Scalar] = self.places[c]
        run = self.simulator.run(place, config, job_rng(self.seed, place, config, number))
        job = observation(self.spaces[c], config, run, number)
        at = START + timedelta(minutes=5 * number)
        return structs.replace(job, user=user, finished_at=at)


@dataclass
class _Looks:
    """What was recommended, over contexts and moments."""

    regret: list[float] = field(default_factory=list)
    """Of incumbents."""
    first_regret: list[float] = field(default_factory=list)
    """Of first candidates that run."""
    hers: list[bool] = field(default_factory=list)
    """Whether the incumbent is eve's configuration."""
    first_hers: list[bool] = field(default_factory=list)
    overstated: list[float] = field(default_factory=list)
    """Logarithm of what is said of the incumbent over what it gives."""
    wrongly_held: int = 0
    let_in: int = 0
    """Jobs of eve that were learned, beyond those that could not be told yet."""

    def add(self, eve: Eve, c: int, advice: Advice) -> None:
        assert advice.incumbent is not None
        configs = [advice.incumbent.config, *(first.config for first in advice.candidates[:1])]
        speeds = eve.speed(c, configs) / eve.best[c]
        self.regret.append(1.0 - float(np.nan_to_num(speeds[0])))
        self.hers.append(configs[0] == eve.own[c])
        self.overstated.append(
            float(np.log(advice.incumbent.median / (np.nan_to_num(speeds[0]) * eve.best[c])))
        )
        if len(configs) > 1 and np.isfinite(speeds[1]):
            self.first_regret.append(1.0 - float(speeds[1]))
            self.first_hers.append(configs[1] == eve.own[c])


def looks(eve: Eve, factor: float, *, protected: bool) -> _Looks:
    """Learn all jobs, and look at each context's advice now and then."""
    study = eve.study
    if not protected:
        text = study.text + "\n[limits]\nmax_user_share = 1.0\nmax_node_share = 1.0\n"
        study = parse_study(text, STUDY)
    tuner = Tuner(study, InlineExecutor())
    if not protected:
        tuner.plausibility = _NoFilter(study.objective.scale == "log")
    jobs, result = eve.reported(factor), _Looks()
    marks = {len(jobs) * look // LOOKS for look in range(1, LOOKS + 1)}
    for start in range(0, len(jobs), AT_ONCE):
        tuner.learn(jobs[start : start + AT_ONCE])
        if marks & set(range(start + 1, start + AT_ONCE + 1)):
            for c, place in enumerate(eve.places):
                result.add(eve, c, tuner.advise(study.context_key(place), None))
    held = tuner.features.quarantined
    result.wrongly_held = sum(job.user != "eve" for job in jobs if job.sequence in held)
    for place in eve.places:
        here = [job for job in jobs if job.context == place]
        metric = study.objective.metric
        result.let_in += sum(
            job.user == "eve" and metric in job.metrics and job.sequence not in held
            for job in here[5:]
        )
    return result


def main() -> int:
    """Run it."""
    options = arguments(__doc__).parse_args()
    bars = Bars("poison")
    seeds, contexts, jobs = (1, 2, 150) if options.quick else (2, 3, 400)
    scenarios = {"undisturbed": (1.0, True)}
    for factor in FACTORS:
        scenarios[f"x{factor:g}, protected"] = (factor, True)
        scenarios[f"x{factor:g}, without"] = (factor, False)
    results: dict[str, list[_Looks]] = {name: [] for name in scenarios}
    work = [(seed, name) for seed in range(seeds) for name in scenarios]
    clusters = [Eve(seed, contexts, jobs) for seed in range(seeds)]
    for seed, name in counted("scenarios", work):
        factor, protected = scenarios[name]
        results[name].append(looks(clusters[seed], factor, protected=protected))
    clean = _pooled(results["undisturbed"])
    for name, parts in results.items():
        pooled = _pooled(parts)
        _say(bars, name, pooled)
        if name.endswith("protected"):
            _hold(bars, name, pooled, clean, thousand=scenarios[name][0] > 100)
    return bars.end(options)


def _pooled(parts: Sequence[_Looks]) -> _Looks:
    pooled = _Looks()
    for part in parts:
        pooled.regret += part.regret
        pooled.first_regret += part.first_regret
        pooled.hers += part.hers
        pooled.first_hers += part.first_hers
        pooled.overstated += part.overstated
        pooled.wrongly_held += part.wrongly_held
        pooled.let_in += part.let_in
    return pooled


def _say(bars: Bars, name: str, result: _Looks) -> None:
    bars.say(f"{name}: regret of incumbents", 100 * float(np.mean(result.regret)), "%")
    if result.first_regret:
        bars.say(f"{name}: regret of candidates", 100 * float(np.mean(result.first_regret)), "%")
        bars.say(f"{name}: candidates that are eve's", 100 * float(np.mean(result.first_hers)), "%")
    bars.say(f"{name}: incumbents that are eve's", 100 * float(np.mean(result.hers)), "%")
    bars.say(f"{name}: incumbents overstated", float(np.exp(np.mean(result.overstated))), "times")


def _hold(bars: Bars, name: str, result: _Looks, clean: _Looks, *, thousand: bool) -> None:
    apart = np.array(result.regret) - np.array(clean.regret)
    luck = max(0.005, 2 * float(apart.std(ddof=1)) / np.sqrt(len(apart)))
    worse = float(apart.mean())
    bars.hold(
        f"{name}: regret above undisturbed", 100 * worse, worse <= luck, f"{100 * luck:.2g}", "%"
    )
    more = sum(result.hers) - sum(clean.hers)
    bars.hold(f"{name}: incumbents that became eve's", more, more <= 0, "0")
    over = float(np.mean(result.overstated) - np.mean(clean.overstated))
    bars.hold(f"{name}: overstated more", 100 * over, over <= 0.02, "2", "%")
    if thousand:
        held = result.wrongly_held
        bars.hold(f"{name}: plausible jobs in quarantine", held, held == 0, "0")
        bars.hold(f"{name}: slips that were learned", result.let_in, result.let_in == 0, "0")


if __name__ == "__main__":
    sys.exit(main())
