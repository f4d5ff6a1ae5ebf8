"""What learning costs as history grows: ten jobs, a rebuild, scoring, memory, a checkpoint.

For each predictor and each length of history a process of its own takes in simulated jobs of a
dozen contexts (random configurations, which is the most there is to learn from), fits its model,
and then learns batches of ten further jobs through the daemon's own code: predict them, watch for
drift, learn them. The last length may cost 1.5 times what the first does. Scoring is what a search
asks for: 10,000 configurations of one context. Times are the wall's medians: run it on a machine
that does nothing else.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice

import numpy as np

from benchmarks.kit import Bars, arguments, peak_mib, resident_mib
from tunerd.core.observation import Observation, Scalar, Status
from tunerd.core.space import SearchSpace
from tunerd.core.study import Study
from tunerd.core.study_file import parse_study
from tunerd.core.tuner import Tuner
from tunerd.lab.evaluation.tunerd_forecaster import InlineExecutor
from tunerd.lab.simulation.shipped import shipped_study
from tunerd.lab.simulation.simulator import simulator_for
from tunerd.threads import THREADS

SCORING_MS = {"boosted_trees": 150.0, "committee": 500.0}
"""Bars: 10,000 configurations."""
GROWTH = 1.5
"""Bar: a batch with the longest history beside one with the shortest."""
LENGTHS, QUICK = (1_000, 10_000, 100_000), (300, 1_500)
BATCH, CONFIGURATIONS, STEP = 10, 10_000, 1_000
CONTEXTS: tuple[dict[str, Scalar], ...] = tuple(
    {"model_params": size, "gpu": gpu, "n_gpus": n, "global_batch": 1024, "seq_len": 4096}
    for gpu, size in (("A100", 7e9), ("H100", 70e9), ("H200", 175e9))
    for n in (64, 128, 256, 512)
)


def main(argv: Sequence[str] | None = None) -> int:
    parser = arguments(__doc__)
    parser.add_argument("--only", nargs=2, metavar=("PREDICTOR", "JOBS"), help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.only:
        print(json.dumps(measured(options.only[0], int(options.only[1]), options.quick)))
        return 0
    bars = Bars("learning")
    lengths = QUICK if options.quick else LENGTHS
    for name, most in SCORING_MS.items():
        found = {}
        for jobs in lengths:
            found[jobs] = one = apart(name, jobs, options.quick)
            title = f"{name}, {jobs:,} jobs"
            bars.say(f"{title}: learning {BATCH} jobs", one["learn_ms"], "ms")
            bars.say(f"{title}: rebuild", one["rebuild_s"], "s")
            score = one["score_ms"]
            bars.hold(
                f"{title}: scoring {CONFIGURATIONS:,}", score, score < most, f"< {most:.0f}", "ms"
            )
            bars.say(f"{title}: probability to run of them", one["runs_ms"], "ms")
            bars.say(f"{title}: model, as saved", one["model_mib"], "MiB")
            bars.say(f"{title}: saved anew after {BATCH} jobs", one["written_kib"], "KiB")
            bars.say(f"{title}: memory of the process", one["resident_mib"], "MiB")
            bars.say(f"{title}: at its most", one["peak_mib"], "MiB")
        growth = found[lengths[-1]]["learn_ms"] / found[lengths[0]]["learn_ms"]
        title = f"{name}: learning, {lengths[-1]:,} beside {lengths[0]:,}"
        bars.hold(title, growth, growth <= GROWTH, f"<= {GROWTH}")
    return bars.end(options)


def apart(name: str, jobs: int, quick: bool) -> dict[str, float]:
    """:func:`measured` in a process of its own, so that memory is its own."""
    command = [sys.executable, "-m", "benchmarks.learning", "--only", name, str(jobs)]
    done = subprocess.run(
        [*command, *(["--quick"] if quick else [])],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | THREADS,  # as the tuner process is started
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def measured(name: str, jobs: int, quick: bool) -> dict[str, float]:
    """One predictor with one length of history."""
    study = parse_study(shipped_study("llm-pretrain"))
    study = replace(study, predictor=replace(study.predictor, name=name))
    tuner = Tuner(study, InlineExecutor())
    stream = simulated(study)
    for _ in range(0, jobs, STEP):
        tuner.gather(list(islice(stream, min(STEP, jobs - tuner.sequence))))
    started = time.perf_counter()
    tuner.catch_up()
    rebuild = time.perf_counter() - started
    # Few enough that no rebuild falls among them: it is counted above.
    batches = [list(islice(stream, BATCH)) for _ in range(4 if quick else 12)]
    took = [seconds(lambda b=batch: tuner.learn(b)) for batch in batches]  # type: ignore[misc]
    model = tuner.model
    assert model is not None
    space = SearchSpace(study, CONTEXTS[5])
    codes = space.sample(CONFIGURATIONS, np.random.default_rng(1))
    codes = codes[np.arange(CONFIGURATIONS) % len(codes)]
    rows = tuner.features.candidates(space, codes)
    repeats = 2 if quick else 7
    score = [seconds(lambda: model.predictor.predict(rows)) for _ in range(repeats)]
    runs = [seconds(lambda: model.runs.predict(rows)) for _ in range(repeats)]
    saved = model.dump()
    tuner.learn(list(islice(stream, BATCH)))
    changed = [part for name, part in model.dump().items() if saved.get(name) != part]
    return {
        "learn_ms": 1e3 * float(np.median(took[1:])),
        "rebuild_s": rebuild,
        "score_ms": 1e3 * float(np.median(score)),
        "runs_ms": 1e3 * float(np.median(runs)),
        "model_mib": sum(map(len, saved.values())) / 2**20,
        "written_kib": sum(map(len, changed)) / 2**10,
        "resident_mib": resident_mib(os.getpid()),
        "peak_mib": peak_mib(os.getpid()),
    }


def seconds(what: Callable[[], object]) -> float:
    """How long a call takes."""
    started = time.perf_counter()
    what()
    return time.perf_counter() - started


def simulated(study: Study) -> Iterator[Observation]:
    """Jobs without end: random feasible configurations, each context in its turn."""
    simulator, rng = simulator_for(study), np.random.default_rng(0)
    spaces = [SearchSpace(study, context) for context in CONTEXTS]
    at, sequence = datetime(2026, 1, 1, tzinfo=UTC), 0
    while True:
        portions = []
        for space in spaces:
            configs = [space.decode(code) for code in space.sample(100, rng)]
            portions.append((space, configs, simulator.expected(space.context, configs)))
        for turn in range(min(len(configs) for _, configs, _ in portions)):
            for space, configs, speed in portions:
                sequence += 1
                at += timedelta(minutes=1)
                ran = bool(np.isfinite(speed[turn]))
                told = float(speed[turn] * np.exp(0.02 * rng.normal())) if ran else 0.0
                yield Observation(
                    study=study.name,
                    source="benchmark",
                    event_id=str(sequence),
                    job_id=str(sequence),
                    status=Status.SUCCEEDED if ran else Status.OUT_OF_MEMORY,
                    finished_at=at,
                    context=space.context,
                    config=configs[turn],
                    metrics={study.objective.metric: told} if ran else {},
                    sequence=sequence,
                )


if __name__ == "__main__":
    sys.exit(main())
