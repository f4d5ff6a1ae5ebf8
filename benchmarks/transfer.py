"""What history is worth in a context that it has never seen, and what it costs where it is wrong.

Each context of each table is left out and played from nothing, five jobs at a time: without
history, and with the jobs of all other contexts known beforehand. These are as they were measured,
or made wrong on purpose: their values shuffled among the configurations of each context (history
is *useless*), or their order turned around in a tenth or a half of the contexts (*reversed*).

Told are the mean regret after 1, 3, 5, 10 and 20 jobs, and in which share of contexts history did
harm after ten jobs: a regret more than a percentage point above the one without it. An interval is
one of 95 % for a mean over contexts: a bootstrap over these, for one generalises to others.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from msgspec import structs

from benchmarks.kit import Bars, arguments, counted
from benchmarks.tables import DATA, TABLES, read_table
from tunerd.core.arrays import FloatArray
from tunerd.core.observation import Observation
from tunerd.core.study import Study
from tunerd.core.study_file import parse_study
from tunerd.lab.evaluation.closed_loop import BenchmarkPlan, play
from tunerd.lab.evaluation.optimizers import TunerdOptimizer
from tunerd.lab.evaluation.tabular import TabularBenchmark, TabularContext, measured

KINDS = ("none", "right", "useless", "reversed in a tenth", "reversed in a half")
AFTER = (1, 3, 5, 10, 20)
"""Jobs."""
JUDGED = 10
HARM = 0.01
MIN_CONFIGS = 20
"""Of a context that is left out."""
MOST_CONTEXTS, MOST_HISTORY, SEEDS = 8, 1_500, 2
QUICK_CONTEXTS, QUICK_HISTORY, QUICK_SEEDS = 2, 200, 1
DRAWS = 4_000
"""Of the bootstrap."""


@dataclass(frozen=True)
class TransferCurve:
    """The regret of one context and seed with one kind of history."""

    table: str
    kind: str
    context: str
    seed: int
    regret: tuple[float, ...]
    """After 1, 2, … jobs."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = arguments(__doc__)
    parser.add_argument("--tables", nargs="+", default=TABLES, metavar="NAME", help="only these")
    parser.add_argument("--data", type=Path, default=DATA, metavar="FOLDER", help="their folder")
    parser.add_argument("--kinds", nargs="+", choices=KINDS[1:], default=KINDS[1:], metavar="KIND")
    parser.add_argument("--predictor", metavar="NAME", help="instead of the studies' own")
    parser.add_argument("--contexts", type=int, metavar="N", help="of each table at most")
    parser.add_argument("--seeds", type=int, metavar="N", help="repeats of each context")
    options = parser.parse_args(argv)
    most = options.contexts or (QUICK_CONTEXTS if options.quick else MOST_CONTEXTS)
    seeds = options.seeds or (QUICK_SEEDS if options.quick else SEEDS)
    history = QUICK_HISTORY if options.quick else MOST_HISTORY
    bars = Bars("transfer")
    curves: list[TransferCurve] = []
    for name in options.tables:
        table = read_table(name, options.data)
        benchmark = measured(parse_study(table.study), table.observations, MIN_CONFIGS)
        if not benchmark.contexts:
            bars.say(
                f"{name}: no context has enough configurations; the most is", benchmark.largest
            )
            continue
        targets = spread(benchmark.contexts, most)
        player = TunerdOptimizer(None, options.predictor)
        plays = [
            (target, seed, kind)
            for target in targets
            for seed in range(seeds)
            for kind in ("none", *options.kinds)
        ]
        for target, seed, kind in counted(name, plays):
            known = past(benchmark, target, kind, seed, history)
            plan = BenchmarkPlan(jobs=AFTER[-1], batch=5, start=0, seeds=(seed,))
            curve = play(target, player, plan, seed, known)
            curves.append(TransferCurve(name, kind, target.context_key, seed, curve.regret))
        tell(bars, name, [curve for curve in curves if curve.table == name], options.kinds)
    if len(options.tables) > 1:
        tell(bars, "all tables", curves, options.kinds, held=True)
    return bars.end(options)


def spread(contexts: Sequence[TabularContext], most: int) -> list[TabularContext]:
    """At most so many contexts, evenly from first to last."""
    if len(contexts) <= most:
        return list(contexts)
    places = np.linspace(0, len(contexts) - 1, most).round().astype(int)
    return [contexts[place] for place in places.tolist()]


def past(
    benchmark: TabularBenchmark, target: TabularContext, kind: str, seed: int, most: int
) -> tuple[Observation, ...]:
    """What is known beforehand: at most so many jobs of other contexts, the latest."""
    if kind == "none":
        return ()
    study, rng = benchmark.study, np.random.default_rng([seed, KINDS.index(kind)])
    jobs = list(benchmark.others(target))[-most:]
    contexts: dict[str, list[int]] = {}
    for place, job in enumerate(jobs):
        key = study.context_key(study.clean_context(job.context))
        contexts.setdefault(key, []).append(place)
    wrong = {"right": 0.0, "useless": 1.0, "reversed in a tenth": 0.1, "reversed in a half": 0.5}
    count = max(round(wrong[kind] * len(contexts)), wrong[kind] > 0)
    for key in rng.permutation(sorted(contexts))[:count].tolist():
        for place, job in spoilt(study, [(i, jobs[i]) for i in contexts[key]], kind, rng):
            jobs[place] = job
    return tuple(structs.replace(job, sequence=i) for i, job in enumerate(jobs, 1))


def spoilt(
    study: Study, jobs: Sequence[tuple[int, Observation]], kind: str, rng: np.random.Generator
) -> Iterator[tuple[int, Observation]]:
    """The jobs of one context that ran, with other values of the objective."""
    metric = study.objective.metric
    ran = [(place, job) for place, job in jobs if study.score(job.metrics) is not None]
    values = np.array([job.metrics[metric] for _, job in ran], float)
    if kind == "useless":
        given = rng.permutation(values)
    else:  # the fastest becomes the slowest
        given = np.empty(len(values))
        given[np.argsort(values, kind="stable")] = np.sort(values)[::-1]
    for (place, job), value in zip(ran, given.tolist(), strict=True):
        yield place, structs.replace(job, metrics={**job.metrics, metric: value})


def tell(
    bars: Bars,
    title: str,
    curves: Iterable[TransferCurve],
    kinds: Sequence[str],
    *,
    held: bool = False,
) -> None:
    """Means, the difference that history makes, and where it did harm."""
    by_kind: dict[str, dict[tuple[str, str], list[tuple[float, ...]]]] = {}
    for curve in curves:
        context = by_kind.setdefault(curve.kind, {}).setdefault((curve.table, curve.context), [])
        context.append(curve.regret)
    means = {
        kind: {context: np.mean(regrets, axis=0) for context, regrets in contexts.items()}
        for kind, contexts in by_kind.items()
    }
    for kind in ("none", *kinds):
        regret = np.stack(list(means[kind].values())).mean(axis=0)
        after = " / ".join(f"{100 * regret[jobs - 1]:.1f}" for jobs in AFTER)
        bars.say(f"{title}, {kind}: regret after 1/3/5/10/20 jobs", after, "%")
        if kind == "none":
            continue
        apart = np.array(
            [means[kind][one][JUDGED - 1] - means["none"][one][JUDGED - 1] for one in means["none"]]
        )
        low, high = interval(apart)
        bars.say(f"{title}, {kind}: beside none after ten", f"{100 * apart.mean():+.1f}", "points")
        bars.say(f"{title}, {kind}: its interval", f"{100 * low:+.1f} to {100 * high:+.1f}")
        harmed = apart > HARM
        bars.say(f"{title}, {kind}: contexts harmed", float(harmed.mean()))
        bars.say(f"{title}, {kind}: by", float(100 * apart[harmed].mean()) if harmed.any() else 0.0)
        if held and kind != "right":
            bars.hold(
                f"{title}, {kind}: no worse after ten than without",
                100 * low,
                low <= 0.0,
                "low end <= 0",
                "points",
            )


def interval(values: FloatArray) -> tuple[float, float]:
    """95 % for the mean."""
    rng = np.random.default_rng(0)
    draws = values[rng.integers(len(values), size=(DRAWS, len(values)))].mean(axis=1)
    low, high = np.quantile(draws, (0.025, 0.975)).tolist()
    return low, high


if __name__ == "__main__":
    sys.exit(main())
