"""How well the probability to run holds, and how many recommended jobs do run.

On a table in which most configurations fail (``calculon_simulated_16k``: 9 % run) and on jobs of
the simulated LLM cluster, which has memory limits and a guard near them: those that run report how
near. Of the latter the first jobs foretell all others. Of both, jobs are left out at random,
context by context, and all but a few of each context in turn: area under the curve, Brier score
beside that of knowing the share that runs, distance between what was promised and what came (ten
bins), and what share ran of what was given at least 0.8. Then tunerd tunes each context of the
table with the others known: how many of its first twenty jobs run. And from nothing, once as it is
told that jobs ran out of memory, and once as schedulers tell it that do not know: "failed".
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import msgspec
import numpy as np

from benchmarks.kit import Bars, arguments, observation
from benchmarks.learning import CONTEXTS
from benchmarks.tables import DATA, read_table
from tunerd.core.arrays import FloatArray, IntArray
from tunerd.core.feasibility import FeasibilityModel
from tunerd.core.features import FeatureMap, FeatureRows
from tunerd.core.observation import Observation, Status
from tunerd.core.space import SearchSpace
from tunerd.core.study import Study
from tunerd.core.study_file import parse_study
from tunerd.lab.evaluation.closed_loop import BenchmarkPlan, play
from tunerd.lab.evaluation.optimizers import TunerdOptimizer
from tunerd.lab.evaluation.scores import auc, brier
from tunerd.lab.evaluation.tabular import measured
from tunerd.lab.simulation.shipped import shipped_study
from tunerd.lab.simulation.simulator import simulator_for

TABLE = "calculon_simulated_16k"
SURE = 0.8
FOLDS, JOBS = 5, 20
FEW = 20
"""Jobs of a context that are known in the third way."""
KNOWN = 2_000
"""Simulated jobs that are learned."""
AT_RANDOM, SEARCHED = 15, 45
"""Jobs from nothing: drawn at random, and searched for."""
UNTOLD = 0.5
"""Of what runs where causes are told, at least so much where they are not."""
FIRST = (60, 150, 400)
"""Of which so many foretell the others."""


@dataclass(frozen=True)
class Told:
    """What was promised of n jobs, and whether they ran."""

    p: FloatArray
    ran: FloatArray

    @property
    def share(self) -> float:
        return float(self.ran.mean())

    @property
    def miscalibration(self) -> float:
        """Mean distance between promised and came, over ten bins of what was promised."""
        bins = np.clip((self.p * 10).astype(int), 0, 9)
        parts = [(bins == b) for b in range(10) if (bins == b).any()]
        return float(sum(m.mean() * abs(self.p[m].mean() - self.ran[m].mean()) for m in parts))


def main(argv: Sequence[str] | None = None) -> int:
    parser = arguments(__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the table")
    parser.add_argument("--predictor", help="instead of the default one")
    options = parser.parse_args(argv)
    bars = Bars("running")
    study = parse_study(shipped_study("llm-pretrain"))
    jobs = simulated(study, 300 if options.quick else KNOWN)
    print(f"simulated LLM cluster, {len(jobs):,} jobs")
    for count in FIRST:
        if count < len(jobs):
            early(bars, study, jobs, count)
    judge(bars, "simulated", study, jobs, 2 if options.quick else FOLDS)
    if not (options.data / f"{TABLE}.json").exists():
        bars.say("skipped: no table in", str(options.data), "(--data says where it is)")
        return bars.end(options)
    table = read_table(TABLE, options.data)
    study, known = parse_study(table.study), table.observations
    print(f"{TABLE}, {len(known):,} jobs")
    judge(bars, TABLE, study, known[::10] if options.quick else known, 2 if options.quick else 5)
    recommended(bars, study, known, options.predictor, options.quick)
    told = from_nothing(bars, "causes told", study, known, options.predictor, options.quick)
    without = [untold(job) for job in known]
    share = from_nothing(bars, "no cause told", study, without, options.predictor, options.quick)
    bars.hold(
        "from nothing: of that without causes", share / told, share >= UNTOLD * told, f">= {UNTOLD}"
    )
    return bars.end(options)


def simulated(study: Study, count: int) -> list[Observation]:
    """Jobs with random configurations, as their cluster reports them, each context in its turn."""
    simulator, rng = simulator_for(study), np.random.default_rng(0)
    spaces = [SearchSpace(study, context) for context in CONTEXTS]
    each = [space.sample(count // len(spaces) + 1, rng) for space in spaces]
    jobs: list[Observation] = []
    for turn in range(min(map(len, each))):
        for space, codes in zip(spaces, each, strict=True):
            config = space.decode(codes[turn])
            outcome = simulator.run(space.context, config, rng)
            jobs.append(observation(space, config, outcome, len(jobs) + 1))
    return jobs[:count]


def early(bars: Bars, study: Study, jobs: Sequence[Observation], count: int) -> None:
    """What the first jobs say of all others, three times with others as the first."""
    features = FeatureMap(study)
    rows = features.rows(jobs)
    rows = rows.take(np.flatnonzero(np.isfinite(rows.ran)))
    told = []
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(rows))
        model = FeasibilityModel.fit(study, features, rows.take(np.sort(order[:count])), 0)
        rest = rows.take(order[count:])
        told.append(Told(model.predict(rest), rest.ran))
    bars.say(f"simulated, {count} jobs known: AUC", fmean(auc(t.p, t.ran > 0) for t in told))
    score = fmean(brier(t.p, t.ran > 0) for t in told)
    bars.say(f"simulated, {count} jobs known: Brier score", score)


def judge(bars: Bars, title: str, study: Study, jobs: Sequence[Observation], folds: int) -> None:
    """Leave jobs out at random, by context, and but for a few of each context."""
    features = FeatureMap(study)
    rows = features.rows(jobs)
    rows = rows.take(np.flatnonzero(np.isfinite(rows.ran)))
    bars.say(f"{title}: share that runs", float(rows.ran.mean()))
    at_random = np.random.default_rng(0).permutation(len(rows)) % folds
    _, by_context = np.unique(rows.context_key, return_inverse=True)
    few = f"by context but for {FEW}"
    ways = (("at random", at_random, 0), ("by context", by_context, 0), (few, by_context, FEW))
    for how, parts, kept in ways:
        told = list(left_out(study, features, rows, parts % 12, kept))
        for name, value in (
            ("AUC", fmean(auc(t.p, t.ran > 0) for t in told)),
            ("Brier score", fmean(brier(t.p, t.ran > 0) for t in told)),
            ("the same, knowing the share", fmean(t.share * (1 - t.share) for t in told)),
            ("promised beside came", fmean(t.miscalibration for t in told)),
        ):
            bars.say(f"{title}, {how}: {name}", value)
        p, ran = (np.concatenate(part) for part in zip(*((t.p, t.ran) for t in told), strict=True))
        sure = p >= SURE
        bars.say(f"{title}, {how}: given at least {SURE}", float(sure.mean()))
        if sure.any():
            share = float(ran[sure].mean())
            if how == "at random":
                bars.hold(f"{title}, {how}: of which ran", share, share >= SURE, f">= {SURE}")
            else:
                bars.say(f"{title}, {how}: of which ran", share)


def left_out(
    study: Study, features: FeatureMap, rows: FeatureRows, parts: IntArray, kept: int
) -> Iterator[Told]:
    """Each part predicted from the others and so many of its own jobs, drawn at random."""
    for part in np.unique(parts):
        there = np.random.default_rng(part).permutation(np.flatnonzero(parts == part))
        asked = there[kept:]
        rest = np.setdiff1d(np.arange(len(rows)), asked)
        model = FeasibilityModel.fit(study, features, rows.take(rest), 0)
        yield Told(model.predict(rows.take(asked)), rows.ran[asked])


def recommended(
    bars: Bars, study: Study, jobs: Sequence[Observation], predictor: str | None, quick: bool
) -> None:
    """The first jobs in each context, the others known: four batches of five."""
    table = measured(study, jobs)
    plan = BenchmarkPlan(
        jobs=JOBS, batch=5, start=0, seeds=(0,) if quick else (0, 1, 2), history="others"
    )
    ran = []
    for target in table.contexts[: 1 if quick else None]:
        history = table.others(target)
        runs = np.isfinite(target.scores)
        for seed in plan.seeds:
            curve = play(target, TunerdOptimizer(predictor=predictor), plan, seed, history)
            ran.append(float(np.mean([runs[i] for i in curve.tried])))
        bars.say(f"{target.context}: share that runs", float(runs.mean()))
        bars.say(f"{target.context}: of the first {JOBS} ran", fmean(ran[-len(plan.seeds) :]))
    share = float(np.mean([np.isfinite(t.scores).mean() for t in table.contexts]))
    bars.hold(
        f"of the first {JOBS} recommended jobs ran",
        fmean(ran),
        fmean(ran) > share,
        f"> {share:.2f}",
    )


def untold(job: Observation) -> Observation:
    """The same job, as somebody tells it who does not know why it failed."""
    unknown = job.status is Status.OUT_OF_MEMORY
    return msgspec.structs.replace(job, status=Status.FAILED) if unknown else job


def from_nothing(
    bars: Bars,
    title: str,
    study: Study,
    jobs: Sequence[Observation],
    predictor: str | None,
    quick: bool,
) -> float:
    """What share runs of the jobs that follow on random ones, nothing else known."""
    plan, seeds = (
        BenchmarkPlan(jobs=AT_RANDOM + SEARCHED, start=AT_RANDOM),
        range(1 if quick else 5),
    )
    ran, regrets = [], []
    for target in measured(study, jobs).contexts:
        runs = np.isfinite(target.scores)
        for seed in seeds:
            curve = play(target, TunerdOptimizer(predictor=predictor), plan, seed)
            ran += [float(runs[i]) for i in curve.tried[AT_RANDOM:]]
            regrets.append(fmean(curve.regret[AT_RANDOM:]))
    bars.say(f"from nothing, {title}: mean regret of {SEARCHED} jobs", fmean(regrets))
    bars.say(f"from nothing, {title}: of these ran", fmean(ran))
    return fmean(ran)


if __name__ == "__main__":
    sys.exit(main())
