"""Drift: what is noticed, how soon, how often for nothing, and what noticing is worth.

Streams with known changes (:mod:`tunerd.lab.evaluation.streams`) go through the tuner as a daemon
would feed it. Quiet streams count false alarms, of every kind. Streams with a change say after how
many jobs it was found, whether it was called what it is, and how the order of configurations was
predicted before, at the worst, and 50 affected jobs later: Kendall's τ between prediction and truth
over all configurations of the affected contexts, beside the same predictor that is told nothing
(``[drift] act = false``).

The predictor is ``boosted_trees`` with one member of 40 trees, for speed: what is noticed hardly
depends on it. ``--predictor committee`` tries that one on a few streams.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from benchmarks.kit import Bars, arguments, counted
from benchmarks.streams import AS_CONTEXT, NOISES, TABLES
from benchmarks.tables import DATA, read_table
from tunerd.core.drift.alarms import DriftUpdate
from tunerd.core.features import FeatureRows
from tunerd.core.scores import kendall
from tunerd.core.study_file import parse_study
from tunerd.core.tuner import Tuner
from tunerd.errors import MisconfiguredError
from tunerd.lab.evaluation.streams import ChangeTruth, DriftStream, WorkloadOptions, make_stream
from tunerd.lab.evaluation.tabular import measured

STEP = 10
"""Jobs that come in together."""
WITHIN = 40
"""Jobs of the affected contexts within which a change is to be found …"""
SHARE = 0.9
"""… in so many streams."""
BUDGET = 10_000
LOOK_EVERY = 10
"""Affected jobs between two looks at how configurations are ranked."""
LATER = 50


@dataclass(frozen=True)
class Task:
    """One stream through one tuner."""

    table: str
    kind: str
    noise: float
    seed: int
    jobs: int
    predictor: str
    act: bool
    ranks: bool
    """Whether to look at how configurations are ranked."""
    data: Path


@dataclass
class Told:
    """What came of it."""

    task: Task
    truth: ChangeTruth | None = None
    """None where the table has nothing that could change so."""
    changes: list[DriftUpdate] = field(default_factory=list)
    affected: dict[str, list[int]] = field(default_factory=dict)
    """Context → sequences of its jobs from the change on."""
    taus: list[tuple[int, float]] = field(default_factory=list)
    """Affected jobs so far (0: before), and mean τ over the affected contexts."""
    held: list[bool] = field(default_factory=list)
    """Of the affected jobs, whether the predicted band held."""
    seconds: float = 0.0

    @property
    def alarms(self) -> list[DriftUpdate]:
        return [one for one in self.changes if one.phase != "over"]

    def after(self, change: DriftUpdate, keys: Sequence[str]) -> int:
        """Affected jobs of these contexts until a change was noticed, itself included."""
        return sum(s <= change.at for key in keys for s in self.affected.get(key, []))


def main(argv: Sequence[str] | None = None) -> int:
    parser = arguments(__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the tables")
    parser.add_argument("--tables", nargs="+", default=TABLES, help="which ones")
    parser.add_argument("--noises", nargs="+", type=float, default=NOISES)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--quiet-jobs", type=int, default=10_000, help="of each quiet stream")
    parser.add_argument("--jobs", type=int, default=4_000, help="of each stream with a change")
    parser.add_argument("--predictor", default="boosted_trees")
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args(argv)
    bars = Bars("drift")
    if options.quick:
        options.tables, options.seeds, options.quiet_jobs = options.tables[:1], 1, 3_000
        options.jobs = 2_000
    if not (options.data / f"{options.tables[0]}.json").exists():
        bars.say("skipped: no tables in", str(options.data), "(--data says where they are)")
        return 1 if options.check else 0
    found = list(run(list(tasks(options)), options.workers))
    quiet(bars, [one for one in found if one.task.kind == "nothing"])
    acting = [one for one in found if one.task.act and one.truth is not None]
    slower(bars, [one for one in acting if one.task.kind == "slower"])
    for kind in ("reversed", "decay"):
        noticed(bars, kind, [one for one in acting if one.task.kind == kind])
    for kind in ("new_hardware", "burst"):
        in_peace(bars, kind, [one for one in acting if one.task.kind == kind])
    for kind in ("slower", "reversed"):
        worth(bars, kind, [one for one in found if one.task.kind == kind and one.taus])
    bars.say("a job", 1e3 * sum(t.seconds for t in found) / sum(t.task.jobs for t in found), "ms")
    return bars.end(options)


def tasks(options: argparse.Namespace) -> Iterator[Task]:
    for table in counted("drift", options.tables):
        for noise in options.noises:
            for seed in range(options.seeds):
                first = Task(
                    table,
                    "nothing",
                    noise,
                    seed,
                    options.quiet_jobs,
                    options.predictor,
                    act=True,
                    ranks=False,
                    data=options.data,
                )
                yield first
                for kind in ("slower", "reversed", "decay", "new_hardware", "burst"):
                    ranks = kind in ("slower", "reversed")
                    task = replace(first, kind=kind, jobs=options.jobs, ranks=ranks)
                    yield task
                    if ranks:
                        yield replace(task, act=False)


def run(all_tasks: list[Task], workers: int) -> Iterator[Told]:
    if workers == 1:
        results: Iterator[Told] = map(one_stream, all_tasks)
    else:
        results = ProcessPoolExecutor(workers, get_context("spawn")).map(one_stream, all_tasks)
    for told in results:
        task = told.task
        alarms = Counter(f"{one.drift.kind}" for one in told.alarms)
        shown = ", ".join(f"{count} {kind}" for kind, count in alarms.items()) or "no alarm"
        what = f"{task.table} {task.kind} {task.noise:.0%} seed {task.seed}"
        how = "" if task.act else " (told nothing)"
        print(f"  {what}{how}: {shown}, {told.seconds:.0f} s", flush=True)
        yield told


def one_stream(task: Task) -> Told:
    told = Told(task)
    read = read_table(task.table, task.data, as_context=AS_CONTEXT.get(task.table, ()))
    study = parse_study(read.study)
    predictor = replace(study.predictor, name=task.predictor)
    if task.predictor == "boosted_trees":
        predictor = replace(predictor, members=1, trees=40)
    study = replace(
        study,
        predictor=predictor,
        drift=replace(study.drift, quiet_jobs=BUDGET, act=task.act),
    )
    table = measured(study, read.observations)
    try:
        stream = make_stream(
            table, [task.kind], WorkloadOptions(jobs=task.jobs, noise=task.noise), task.seed
        )
    except MisconfiguredError:
        return told
    (told.truth,) = stream.truths
    started = time.perf_counter()
    with ThreadPoolExecutor(1) as background:
        _through(stream, Tuner(stream.study, background), told)
    told.seconds = time.perf_counter() - started
    return told


def _through(stream: DriftStream, tuner: Tuner, told: Told) -> None:
    truth = told.truth
    assert truth is not None
    waiting, hit, looked = [], 0, -1
    for job in stream.jobs():
        if told.task.ranks and job.arrival.number == truth.first_job and tuner.model:
            told.taus.append((0, _tau(stream, tuner, truth, job.arrival.number - 1)))
        waiting.append(job.job)
        if len(waiting) < STEP and job.arrival.number + 1 < told.task.jobs:
            continue
        learned = tuner.learn(waiting)
        told.changes += learned.drift
        for one in learned.judged:
            if one.sequence > truth.first_job and one.context_key in truth.contexts:
                told.affected.setdefault(one.context_key, []).append(one.sequence)
                hit += one.outcome.score is not None
                score, low, high = one.outcome.score, one.outcome.low, one.outcome.high
                if score is not None and low is not None and high is not None:
                    told.held.append(low <= score <= high)
        waiting = []
        if told.task.ranks and hit // LOOK_EVERY > max(looked, 0) and hit <= 4 * LATER:
            looked = hit // LOOK_EVERY
            told.taus.append((hit, _tau(stream, tuner, truth, job.arrival.number)))


def _tau(stream: DriftStream, tuner: Tuner, truth: ChangeTruth, number: int) -> float:
    """Mean over the affected contexts, the busiest few of them."""
    assert tuner.model is not None
    found: list[float] = []
    for c, context in enumerate(stream.contexts):
        if context.context_key not in truth.contexts or len(found) >= 6:
            continue
        actual = stream.true_scores(c, number)
        ran = np.flatnonzero(np.isfinite(actual))
        rows: FeatureRows = tuner.features.rows([context.rows[i][0] for i in ran])
        found.append(kendall(tuner.model.outlook(rows).mean, actual[ran]))
    return float(np.nanmean(found))


# -- what is said ---------------------------------------------------------------------------


def quiet(bars: Bars, streams: Sequence[Told]) -> None:
    jobs = sum(one.task.jobs for one in streams)
    kinds: Counter[str] = Counter(a.drift.kind for one in streams for a in one.alarms)
    rate = BUDGET * sum(kinds.values()) / jobs
    bars.say("quiet jobs", jobs)
    for kind, count in kinds.items():
        bars.say(f"quiet: false alarms, {kind}", count)
    # One alarm in less than the budget's worth of jobs says nothing yet.
    ok = rate <= 1 or (jobs < BUDGET and sum(kinds.values()) <= 1)
    bars.hold("quiet: false alarms in 10,000 jobs", rate, ok, "at most 1")


def slower(bars: Bars, streams: Sequence[Told]) -> None:
    """20 % in two contexts."""
    together: list[int | None] = []
    each: list[int | None] = []
    early = 0
    for told in streams:
        assert told.truth is not None
        early += sum(a.at <= told.truth.first_job for a in told.alarms if a.drift.of_speed)
        hits = [a for a in told.alarms if a.at > told.truth.first_job and a.drift.kind == "speed"]
        named = [
            a for a in hits if set(a.drift.contexts or told.truth.contexts) & told.affected.keys()
        ]
        together.append(told.after(named[0], told.truth.contexts) if named else None)
        for key in told.truth.contexts:
            mine = [a for a in named if a.drift.concerns(key)]
            if mine or len(told.affected.get(key, [])) >= WITHIN:
                each.append(told.after(mine[0], [key]) if mine else None)
    for name, found in (("first alarm", together), ("each context by itself", each)):
        within = sum(n is not None and n <= WITHIN for n in found) / max(len(found), 1)
        known = [n for n in found if n is not None]
        bars.say(f"20 % slower, {name}: streams or contexts", len(found))
        bars.say(f"20 % slower, {name}: median jobs", float(np.median(known)) if known else "none")
        bars.hold(
            f"20 % slower, {name}: found within {WITHIN} affected jobs",
            within,
            within >= SHARE,
            f"at least {SHARE:g}",
        )
    bars.say("20 % slower: alarms of speed or ranks before it", early)


def noticed(bars: Bars, kind: str, streams: Sequence[Told]) -> None:
    after: list[int | None] = []
    right = 0
    for told in streams:
        assert told.truth is not None
        hits = [a for a in told.alarms if a.drift.of_speed and a.at > told.truth.first_job]
        after.append(told.after(hits[0], told.truth.contexts) if hits else None)
        right += any(a.drift.parameter == told.truth.parameter for a in hits if a.drift.parameter)
    known = [n for n in after if n is not None]
    bars.say(f"{kind}: streams", len(after))
    bars.say(f"{kind}: found", len(known))
    bars.say(f"{kind}: median affected jobs", float(np.median(known)) if known else "none")
    if kind == "reversed":
        bars.say(f"{kind}: the parameter named", right)


def in_peace(bars: Bars, kind: str, streams: Sequence[Told]) -> None:
    """What is a change of inputs and none of speed."""
    false, seen, jobs, after = 0, 0, 0, []
    for told in streams:
        assert told.truth is not None
        false += sum(a.drift.of_speed for a in told.alarms)
        hits = [a for a in told.alarms if a.drift.kind == "inputs" and a.at > told.truth.first_job]
        seen += bool(hits)
        jobs += told.task.jobs
        if hits:
            after.append(hits[0].at - told.truth.first_job)
    bars.say(f"{kind}: streams", len(streams))
    bars.say(f"{kind}: told as a change of inputs", seen)
    bars.say(f"{kind}: median jobs until then", float(np.median(after)) if after else "none")
    rate = BUDGET * false / max(jobs, 1)
    ok = rate <= 1 or (jobs < BUDGET and false <= 1)
    bars.hold(f"{kind}: false alarms of speed in 10,000 jobs", rate, ok, "at most 1")


def worth(bars: Bars, kind: str, streams: Sequence[Told]) -> None:
    """Kendall's τ before, at the worst, and later; with and without being told."""
    for act, name in ((True, "told"), (False, "told nothing")):
        mine = [one for one in streams if one.task.act == act]
        before = [one.taus[0][1] for one in mine]
        worst = [min(tau for _, tau in one.taus[1:]) for one in mine if len(one.taus) > 1]
        later = [
            next(tau for hit, tau in one.taus[1:] if hit >= LATER)
            for one in mine
            if one.taus and one.taus[-1][0] >= LATER
        ]
        held = [held for one in mine for held in one.held[LATER : 3 * LATER]]
        for what, values in (("before", before), ("worst", worst), (f"{LATER} jobs after", later)):
            bars.say(f"{kind}, {name}: τ {what}", float(np.mean(values)) if values else "none")
        bars.say(
            f"{kind}, {name}: in bands, jobs {LATER} to {3 * LATER}",
            float(np.mean(held)) if held else "none",
        )


if __name__ == "__main__":
    sys.exit(main())
