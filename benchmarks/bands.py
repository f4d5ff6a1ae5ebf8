"""Do bands hold what they promise, and at what width?

Streams with known changes over the tables of :mod:`benchmarks.tables` go through a study as it
serves: every job is predicted before it is learned, and what is counted is whether it fell into the
80 % band that was said of it. Beside it, in the same run and around the same model's predictions, a
plain split-conformal band: one width for all jobs, the 80 % quantile of all errors so far.

Jobs after a change are counted twice: the study's jobs 50 to 150 after it, and jobs 50 to 150 of
the contexts that it acts on. ``--alarm truth`` tells the bands of a change by the truth beside the
jobs, after :data:`DELAY` jobs that it acted on; else the study's own watch does.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from benchmarks.kit import Bars, arguments, counted
from benchmarks.streams import AS_CONTEXT, TABLES
from benchmarks.tables import DATA, read_table
from tunerd.core.arrays import BoolArray, FloatArray
from tunerd.core.conformal import BAND
from tunerd.core.study_file import parse_study
from tunerd.core.tuner import Tuner
from tunerd.errors import MisconfiguredError
from tunerd.lab.evaluation.streams import DriftStream, StreamJob, WorkloadOptions, make_stream
from tunerd.lab.evaluation.tabular import measured
from tunerd.lab.evaluation.tunerd_forecaster import InlineExecutor

KINDS = ("nothing", "slower", "reversed", "decay", "new_hardware")
NOISES = (0.03, 0.10)
"""Of even and of odd seeds."""
BATCH = 10
DELAY = 8
LOW, HIGH = 0.76, 0.84
FEW = 10
"""Errors before which there is no split-conformal band; jobs before the first are not counted."""


@dataclass(frozen=True)
class Told:
    """What was said of the n jobs of a stream that have an objective."""

    number: FloatArray
    score: FloatArray
    low: FloatArray
    high: FloatArray
    plain_low: FloatArray
    plain_high: FloatArray
    tried: BoolArray
    """Whether the context knew the configuration."""
    hit: BoolArray
    """Whether the change acts on the context, and has begun."""
    since: FloatArray
    """Jobs of such contexts since the change, this one included."""
    first: float
    """Job with which the change begins; infinite where nothing changes."""
    seconds: float = 0.0


@dataclass(frozen=True)
class Task:
    """One stream."""

    table: str
    kind: str
    seed: int
    traffic: WorkloadOptions
    predictor: str
    truth: bool
    data: Path

    @property
    def name(self) -> str:
        return f"{self.table}, {self.kind}, seed {self.seed}"


def main(argv: Sequence[str] | None = None) -> int:
    parser = arguments(__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the tables")
    parser.add_argument("--tables", nargs="+", default=TABLES, help="which ones")
    parser.add_argument("--kinds", nargs="+", default=KINDS, help="of change")
    parser.add_argument("--predictor", default="committee")
    parser.add_argument("--seeds", type=int, default=2, help="streams of each table and kind")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1_000)
    parser.add_argument("--contexts", type=int, default=10)
    parser.add_argument("--alarm", choices=("watch", "truth"), default="watch")
    parser.add_argument("--workers", type=int, default=1, help="processes, one core each")
    options = parser.parse_args(argv)
    if options.quick:
        options.tables, options.kinds = options.tables[:2], ("slower", "reversed")
        options.seeds, options.jobs = 1, min(options.jobs, 700)
    bars = Bars("bands")
    if not (options.data / f"{options.tables[0]}.json").exists():
        bars.say("skipped: no tables in", str(options.data), "(--data says where they are)")
        return 1 if options.check else 0
    told: dict[str, list[Told]] = {kind: [] for kind in options.kinds}
    started = time.perf_counter()
    for task, one in run(list(tasks(options)), options.workers):
        if one is None:
            print(f"  {task.name}: this table has nothing for it", flush=True)
            continue
        told[task.kind].append(one)
        held, plain = inside(one), inside(one, plain=True)
        print(
            f"  {task.name}: holds {held.mean():.3f} at {width(one):.3f}; split conformal "
            f"{plain.mean():.3f} at {width(one, plain=True):.3f}; {one.seconds:.0f} s",
            flush=True,
        )
    report(bars, told)
    bars.say("all of it", time.perf_counter() - started, "s")
    return bars.end(options)


def tasks(options: argparse.Namespace) -> Iterator[Task]:
    for table in counted("bands", options.tables):
        for kind in options.kinds:
            for seed in range(options.first_seed, options.first_seed + options.seeds):
                noise = NOISES[seed % len(NOISES)]
                traffic = WorkloadOptions(jobs=options.jobs, contexts=options.contexts, noise=noise)
                truth = options.alarm == "truth"
                yield Task(table, kind, seed, traffic, options.predictor, truth, options.data)


def run(all_tasks: list[Task], workers: int) -> Iterator[tuple[Task, "Told | None"]]:
    """What was said in each stream, in their order."""
    if workers == 1:
        yield from zip(all_tasks, map(one_stream, all_tasks), strict=True)
        return
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        yield from zip(all_tasks, pool.map(one_stream, all_tasks), strict=True)


def one_stream(task: Task) -> "Told | None":
    """Follow one; None where its table has nothing for it."""
    read = read_table(task.table, task.data, as_context=AS_CONTEXT.get(task.table, ()))
    table = measured(parse_study(read.study), read.observations)
    try:
        stream = make_stream(table, [task.kind], task.traffic, task.seed)
    except MisconfiguredError:
        return None
    started = time.perf_counter()
    told = follow(stream, task.predictor, task.truth)
    return replace(told, seconds=time.perf_counter() - started)


def follow(stream: DriftStream, predictor: str, truth: bool = False) -> Told:
    """Let a study serve the stream, and write down what it said."""
    study = stream.study
    study = replace(study, predictor=replace(study.predictor, name=predictor))
    if truth:
        study = replace(study, drift=replace(study.drift, act=False))
    tuner = Tuner(study, InlineExecutor())
    (change,) = stream.truths
    errors: list[float] = []
    lines: list[tuple[float, ...]] = []
    since, alarmed = 0, False
    for batch in batches(stream.jobs()):
        jobs = [job.job for job in batch]
        raw = tuner.model.outlook(tuner.features.rows(jobs)).mean if tuner.model else None
        learned = tuner.learn(jobs)
        if raw is None:
            continue
        half = float("nan")
        if len(errors) >= FEW:
            at = min(int(np.ceil(BAND * (len(errors) + 1))), len(errors)) - 1
            half = float(np.partition(errors, at)[at])
        for job, one, mean in zip(batch, learned.judged, raw.tolist(), strict=True):
            outcome = one.outcome
            if outcome.score is None or outcome.low is None or outcome.high is None:
                continue
            number = job.arrival.number
            hit = one.context_key in change.contexts and number >= change.first_job
            since += hit
            errors.append(abs(outcome.score - mean))
            if np.isfinite(half):
                band = (outcome.low, outcome.high, mean - half, mean + half)
                lines.append((number, outcome.score, *band, outcome.tried > 0, hit, since))
        if truth and change.is_drift and not alarmed and since >= DELAY:
            alarmed = True
            tuner.bands.alarm(change.contexts if len(change.contexts) <= 4 else None)
    number, score, low, high, plain_low, plain_high, tried, acted, nth = np.array(lines).T
    first = float("inf") if change.kind == "nothing" else float(change.first_job)
    return Told(number, score, low, high, plain_low, plain_high, tried > 0, acted > 0, nth, first)


def batches(jobs: Iterator[StreamJob]) -> Iterator[list[StreamJob]]:
    batch: list[StreamJob] = []
    for job in jobs:
        batch.append(job)
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def inside(told: Told, plain: bool = False) -> BoolArray:
    """(n,) which jobs fell into the band."""
    low, high = (told.plain_low, told.plain_high) if plain else (told.low, told.high)
    return np.asarray((told.score >= low) & (told.score <= high), bool)


def width(told: Told, plain: bool = False) -> float:
    """Mean, in score units."""
    low, high = (told.plain_low, told.plain_high) if plain else (told.low, told.high)
    return float(np.mean(high - low))


def interval_score(told: Told, plain: bool = False) -> float:
    """Width, and for a job outside ten times by how much (Gneiting and Raftery, 2007)."""
    low, high = (told.plain_low, told.plain_high) if plain else (told.low, told.high)
    beyond = np.maximum(low - told.score, 0) + np.maximum(told.score - high, 0)
    return float(np.mean(high - low + 2 / (1 - BAND) * beyond))


def report(bars: Bars, told: dict[str, list[Told]]) -> None:
    """All streams together, and by what changes."""
    everything = [one for some in told.values() for one in some]
    count = len(everything)
    bars.say("streams", count)
    share(bars, "later jobs held", everything, lambda one: np.ones(len(one.score), bool), True)
    share(bars, "… tried before in their context", everything, lambda one: one.tried)
    share(bars, "… new in their context", everything, lambda one: ~one.tried)
    changed = [one for one in everything if np.isfinite(one.first)]
    share(
        bars,
        "jobs 50 to 150 after a change",
        changed,
        lambda one: (one.number >= one.first + 50) & (one.number < one.first + 150),
        True,
    )
    for low, high in ((0, 10), (10, 50), (50, 150)):
        name = f"jobs {low} to {high} in affected contexts"
        share(bars, name, changed, partial(_affected, low, high), low == 50)
    for kind, some in told.items():
        share(bars, f"{kind}: held", some, lambda one: np.ones(len(one.score), bool))
        share(
            bars,
            f"{kind}: jobs 50 to 150 in affected contexts",
            some,
            partial(_affected, 50, 150),
        )
    if count:
        wider = [np.log(width(one) / width(one, plain=True)) for one in everything]
        worse = [
            np.log(interval_score(one) / interval_score(one, plain=True)) for one in everything
        ]
        bars.say("width beside split conformal", float(np.exp(np.mean(wider))))
        bars.say("interval score beside split conformal", float(np.exp(np.mean(worse))))
        each = [float(inside(one).mean()) for one in everything]
        bars.say("streams hold at least", min(each))
        bars.say("streams hold at most", max(each))


def _affected(low: int, high: int, told: Told) -> BoolArray:
    return told.hit & (told.since > low) & (told.since <= high)


def share(
    bars: Bars,
    name: str,
    told: Sequence[Told],
    which: Callable[[Told], BoolArray],
    bar: bool = False,
) -> None:
    """Of these jobs those inside the band, all streams pooled, beside split conformal."""
    chosen = [which(one) for one in told]
    n = sum(int(some.sum()) for some in chosen)
    if not n:
        return
    held = sum(int(inside(one)[some].sum()) for one, some in zip(told, chosen, strict=True)) / n
    pairs = zip(told, chosen, strict=True)
    plain = sum(int(inside(one, plain=True)[some].sum()) for one, some in pairs) / n
    told_of = f"of {n}; split conformal {plain:.3f}"
    if bar:
        bars.hold(name, held, LOW <= held <= HIGH, f"{LOW}..{HIGH}", told_of)
    else:
        bars.say(name, held, told_of)


if __name__ == "__main__":
    sys.exit(main())
