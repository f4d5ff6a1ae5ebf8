"""Streams with known changes, looked at and checked against what is said of them.

For each kind of change and each noise: what the truth beside the jobs says, and what the jobs
themselves say of it, as somebody would find it who knew where to look. ``--plots DIR`` draws one
picture for each noise: every job by how far it is from the usual, the affected contexts coloured.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.kit import Bars, arguments
from benchmarks.tables import DATA, read_table
from tunerd.core.arrays import BoolArray, FloatArray
from tunerd.core.study_file import parse_study
from tunerd.errors import MisconfiguredError
from tunerd.lab.evaluation.streams import (
    CHANGES,
    DriftStream,
    StreamJob,
    WorkloadOptions,
    make_stream,
)
from tunerd.lab.evaluation.tabular import TabularBenchmark, measured

TABLES = ("vtrain_megatron", "trimtuner_ps", "pollux_dp", "calculon_simulated_16k")
AS_CONTEXT = {"pollux_dp": ("num_replicas",)}
"""More GPUs are always faster there: how many is given, not tuned."""
NOISES = (0.03, 0.10)
TENTH = 10
"""The last part of a stream, in which a slow decay is nearly there in full."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = arguments(__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the tables")
    parser.add_argument("--tables", nargs="+", default=TABLES, help="which ones")
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plots", type=Path, metavar="DIR")
    options = parser.parse_args(argv)
    bars = Bars("streams")
    tables = options.tables[:1] if options.quick else options.tables
    if not (options.data / f"{tables[0]}.json").exists():
        bars.say("skipped: no tables in", str(options.data), "(--data says where they are)")
        return 1 if options.check else 0
    jobs = min(options.jobs, 4_000) if options.quick else options.jobs
    for name in tables:
        read = read_table(name, options.data, as_context=AS_CONTEXT.get(name, ()))
        table = measured(parse_study(read.study), read.observations)
        for noise in NOISES:
            shown = look(bars, name, table, WorkloadOptions(jobs=jobs, noise=noise), options.seed)
            if options.plots:
                plot(options.plots / f"{name}_{noise:g}.png", f"{name}, noise {noise:.0%}", shown)
    return bars.end(options)


def look(
    bars: Bars, name: str, table: TabularBenchmark, traffic: WorkloadOptions, seed: int
) -> list[tuple[DriftStream, list[StreamJob]]]:
    """Every kind of change, checked."""
    shown = []
    for kind in CHANGES:
        title = f"{name}, {traffic.noise:.0%}, {kind}"
        try:
            stream = make_stream(table, [kind], traffic, seed)
        except MisconfiguredError as error:
            bars.say(f"{title}: not there", str(error))
            continue
        jobs = list(stream.jobs())
        shown.append((stream, jobs))
        print(f"{title}: {len(stream.contexts)} contexts. {stream.truths[0].sentence}")
        check_noise(bars, title, stream, jobs)
        check_change(bars, title, stream, jobs, traffic)
    return shown


def check_noise(bars: Bars, title: str, stream: DriftStream, jobs: Sequence[StreamJob]) -> None:
    """What is left when the truth is taken away."""
    metric, noise = stream.study.objective.metric, stream.traffic.noise
    ran = [(job.job.metrics[metric], job.true_mean) for job in jobs if job.true_mean is not None]
    left = np.array([np.log(came / true) for came, true in ran])
    off = abs(float(left.std()) / noise - 1)
    bars.hold(f"{title}: noise", float(left.std()), off < 0.05, f"{noise} within 5 %")


def check_change(
    bars: Bars, title: str, stream: DriftStream, jobs: Sequence[StreamJob], traffic: WorkloadOptions
) -> None:
    """Jobs of the affected contexts, before and after, against the usual truth."""
    (truth,) = stream.truths
    numbers, off, hit = residuals(stream, jobs)
    error = 4 * traffic.noise
    quiet = off[~hit | (numbers < truth.first_job)] if truth.is_drift else off
    near = abs(float(quiet.mean())) < error / np.sqrt(len(quiet))
    bars.hold(f"{title}: elsewhere and before", float(quiet.mean()), near, "0 within its error")
    if truth.kind in ("slower", "decay"):
        late = truth.first_job if truth.kind == "slower" else traffic.jobs * (1 - 1 / TENTH)
        after = off[hit & (numbers >= late)]
        wanted = np.log1p(-truth.size) * (1 if truth.kind == "slower" else 1 - 1 / TENTH)
        reach = error / np.sqrt(len(after)) + (0 if truth.kind == "slower" else 0.005)
        near = abs(float(after.mean()) - wanted) < reach
        bars.hold(f"{title}: after", float(after.mean()), near, f"{wanted:.4f} within its error")
    if truth.kind == "reversed":
        alike = [agreement(stream, context) for context in range(len(stream.contexts))]
        bars.say(f"{title}: order of configurations, before and after (τ)", float(np.mean(alike)))
    if truth.kind == "new_hardware":
        early = sum(hit[numbers < truth.first_job])
        bars.hold(f"{title}: jobs before", int(early), not early, "none")
        bars.say(f"{title}: jobs after", int(hit.sum()))
    if truth.kind == "burst":
        assert truth.last_job is not None
        span = truth.last_job - truth.first_job + 1
        share = sum(job.arrival.user == truth.user for job in jobs) / span
        bars.hold(f"{title}: share of one user", share, abs(share - 0.8) < 0.05, "0.8 within 0.05")


def residuals(
    stream: DriftStream, jobs: Sequence[StreamJob]
) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Of the jobs that ran: number, log speed less the usual, and whether the context is one that
    the change acts on."""
    (truth,) = stream.truths
    objective = stream.study.objective
    # The mean of a log-normal is the truth; its logarithm lies above the mean of logarithms.
    shift = stream.traffic.noise**2 / 2
    sign = 1.0 if objective.goal == "maximize" else -1.0
    numbers, off, hit = [], [], []
    for job in jobs:
        if job.usual_mean is not None:
            numbers.append(job.arrival.number)
            ratio = job.job.metrics[objective.metric] / job.usual_mean
            off.append(sign * (np.log(ratio) + shift))
            key = stream.contexts[job.arrival.context].context_key
            hit.append(key in truth.contexts)
    return np.array(numbers, np.float64), np.array(off, np.float64), np.array(hit, np.bool_)


def agreement(stream: DriftStream, context: int) -> float:
    from scipy.stats import kendalltau

    before = stream.true_scores(context, 0)
    after = stream.true_scores(context, stream.traffic.jobs)
    ran = np.isfinite(before)
    return float(kendalltau(before[ran], after[ran]).statistic)


def plot(file: Path, title: str, shown: Sequence[tuple[DriftStream, list[StreamJob]]]) -> None:
    """One panel for each kind of change."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 2.1 * len(shown)), layout="constrained")
    panels: Any = figure.subplots(len(shown), 1, squeeze=False, sharex=True)
    for panel, (stream, jobs) in zip(panels[:, 0], shown, strict=True):
        (truth,) = stream.truths
        numbers, off, hit = residuals(stream, jobs)
        panel.plot(numbers[~hit], 100 * off[~hit], ".", ms=1.5, color="#b0b0b0")
        panel.plot(numbers[hit], 100 * off[hit], ".", ms=1.5, color="#0b6e99")
        if truth.kind != "nothing":
            panel.axvline(truth.first_job, color="#c4572b", lw=1)
        if truth.last_job is not None:
            panel.axvline(truth.last_job, color="#c4572b", lw=1, ls=":")
        panel.set_title(truth.sentence[:150], fontsize=8, loc="left")
        panel.set_ylabel("log speed, % off", fontsize=8)
        panel.spines[["top", "right"]].set_visible(False)
    panels[-1, 0].set_xlabel("job")
    figure.suptitle(title)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=110)


if __name__ == "__main__":
    sys.exit(main())
