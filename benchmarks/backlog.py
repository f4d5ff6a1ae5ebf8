"""How long a backlog takes to be learned: 100,000 simulated jobs in 20 and in 2,000 contexts.

All jobs lie in the store before the tune stage begins, once as jobs that have just ended and once
as imported ones, as ``tunerd import`` leaves them. The stage runs in a process of its own until
nothing is left to learn and every context has a recommendation. Beside it, on fewer jobs, what a
backlog does to the model: Kendall's tau within contexts over configurations that no job ran, and
what the best predicted of them loses, after a backlog and after the same jobs as they come.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any, cast

import numpy as np
from msgspec import structs

from benchmarks.kit import Bars, arguments, peak_mib
from tunerd import logs
from tunerd.core.observation import Observation, Scalar, Status
from tunerd.core.scores import kendall
from tunerd.core.space import SearchSpace
from tunerd.core.space.space import Codes
from tunerd.core.study import Study
from tunerd.core.study_file import parse_study
from tunerd.core.tuner import Tuner
from tunerd.lab.evaluation.tunerd_forecaster import InlineExecutor
from tunerd.lab.simulation.shipped import shipped_study
from tunerd.lab.simulation.simulator import Simulator, simulator_for
from tunerd.settings.model import TuneSettings
from tunerd.stages.tune import TuneStage
from tunerd.store import Store, open_store
from tunerd.threads import THREADS

STUDY = "llm-pretrain"
JOBS, CONTEXTS, QUALITY = 100_000, (20, 2_000), 3_000
QUICK_JOBS, QUICK_CONTEXTS, QUICK_QUALITY = 2_000, (20, 200), 1_000
STUDIES, QUICK_STUDIES, STUDY_JOBS, STUDIES_S = 50, 4, 100, 60.0
KINDS = ("live", "import", "studies", "quality")
LEARNED_S, RECOMMENDED_S, MOST_MIB, LEAST_SCORES = 300.0, 600.0, 1024.0, 2_000
LEAST_TAU, MOST_LOSS = -0.01, 0.005
"""Of a backlog's model beside the usual one."""
CONFIGURATIONS, HELD_OUT, BATCH = 60, 60, 1_000
QUALITY_SEEDS = 3


def main(argv: Sequence[str] | None = None) -> int:
    parser = arguments(__doc__)
    parser.add_argument("--jobs", type=int, metavar="N", help="another number of jobs")
    parser.add_argument("--contexts", type=int, nargs="+", metavar="N", help="other numbers")
    parser.add_argument("--kind", choices=KINDS, help="only one part")
    parser.add_argument("--only", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.only:
        kind, contexts, jobs = options.only[0], int(options.only[1]), int(options.only[2])
        parts = {"quality": quality, "studies": many_studies}
        found = parts[kind](contexts, jobs) if kind in parts else learned(kind, contexts, jobs)
        print(json.dumps(found))
        return 0
    bars = Bars("backlog")
    jobs = options.jobs or (QUICK_JOBS if options.quick else JOBS)
    for contexts in options.contexts or (QUICK_CONTEXTS if options.quick else CONTEXTS):
        for kind in ("live", "import") if options.kind is None else (options.kind,):
            if kind in ("quality", "studies"):
                continue
            one = apart(kind, contexts, jobs)
            title = f"{kind}, {jobs:,} jobs in {contexts:,} contexts"
            took, most = one["learned_s"], LEARNED_S
            bars.hold(f"{title}: learned", took, took < most, f"< {most:g}", "s")
            bars.say(f"{title}: jobs a second", jobs / took)
            took, most = one["recommended_s"], RECOMMENDED_S
            bars.hold(f"{title}: all recommended", took, took < most, f"< {most:g}", "s")
            count = one["recommended"]
            bars.hold(f"{title}: contexts with one", count, count >= contexts, f">= {contexts}")
            least = min(LEAST_SCORES, jobs // 2)
            count = one["scores"]
            bars.hold(f"{title}: jobs told first", count, count >= least, f">= {least:,}")
            memory = one["peak_mib"]
            bars.hold(f"{title}: memory", memory, memory < MOST_MIB, f"< {MOST_MIB:g}", "MiB")
            bars.say(f"{title}: models", one["models"])
            bars.say(f"{title}: processor time", one["cpu_s"], "s")
    if options.kind in (None, "studies"):
        count = QUICK_STUDIES if options.quick else STUDIES
        one = apart("studies", count, STUDY_JOBS)
        title = f"{count} studies of {STUDY_JOBS} jobs"
        took, most = one["learned_s"], STUDIES_S
        bars.hold(f"{title}: learned", took, took < most, f"< {most:g}", "s")
        bars.say(f"{title}: all recommended", one["recommended_s"], "s")
        bars.say(f"{title}: processor time", one["cpu_s"], "s")
    if options.kind in (None, "quality"):
        one = apart("quality", 20, QUICK_QUALITY if options.quick else QUALITY)
        bars.say("tau, jobs as they come", one["usual_tau"])
        gap = one["tau"] - one["usual_tau"]
        bars.hold("tau after a backlog beside that", gap, gap >= LEAST_TAU, f">= {LEAST_TAU}")
        bars.say("loss of the best predicted, jobs as they come", one["usual_loss"])
        gap = one["loss"] - one["usual_loss"]
        bars.hold("loss after a backlog beside that", gap, gap <= MOST_LOSS, f"<= {MOST_LOSS}")
        bars.say("models, jobs as they come", one["usual_models"])
        bars.say("models of a backlog", one["models"])
    return bars.end(options)


def apart(kind: str, contexts: int, jobs: int) -> dict[str, float]:
    """One part in a process of its own, so that memory is its own."""
    command = [sys.executable, "-m", "benchmarks.backlog", "--only", kind, str(contexts), str(jobs)]
    done = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, env=os.environ | THREADS
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


class Quiet:
    """Hears nothing, logs nothing."""

    def hear(self, report: object) -> None:
        """Do nothing."""

    def info(self, event: str, **detail: object) -> None:
        """Do nothing."""

    warning = info

    def error(self, event: str, **detail: object) -> None:
        """What must not happen here is shown."""
        print(event, detail, file=sys.stderr)

    exception = error


def learned(kind: str, contexts: int, count: int) -> dict[str, float]:
    """Let the stage learn a backlog."""
    study, quiet = parse_study(shipped_study(STUDY)), Quiet()
    with tempfile.TemporaryDirectory(prefix="tunerd-bench-") as folder:
        store = open_store(f"sqlite:///{Path(folder) / 'store.sqlite'}")
        now = datetime.now(UTC)
        store.publish_generation(study.name, study.content_hash, study.text, "benchmark", now)
        fill(store, study, contexts, count, history=kind == "import")
        stage = stage_of(store, quiet, contexts)
        started, spent, learned_s, said = time.perf_counter(), time.process_time(), 0.0, 0
        while (said < contexts or not learned_s) and (stage.step() or not learned_s):
            row = store.study(study.name)
            assert row is not None
            took = time.perf_counter() - started
            if not learned_s and row.learned_sequence == row.last_sequence:
                learned_s = took
            said = len([one for one in store.standing_rows(study.name) if "|" in one.context_key])
        found = {
            "learned_s": learned_s,
            "recommended_s": time.perf_counter() - started,
            "recommended": said,
            "cpu_s": time.process_time() - spent,
            "scores": len(told(store, study.name, history=kind == "import")),
            "models": len(store.models(study.name)),
            "peak_mib": peak_mib(os.getpid()),
        }
        stage.close()
    return found


def many_studies(count: int, jobs: int) -> dict[str, float]:
    """Let the stage learn a few jobs of each of many studies."""
    like, quiet = shipped_study(STUDY), Quiet()
    with tempfile.TemporaryDirectory(prefix="tunerd-bench-") as folder:
        store = open_store(f"sqlite:///{Path(folder) / 'store.sqlite'}")
        now = datetime.now(UTC)
        for number in range(count):
            study = parse_study(like.replace(f'"{STUDY}"', f'"{STUDY}-{number}"', 1))
            store.publish_generation(study.name, study.content_hash, study.text, "benchmark", now)
            fill(store, study, 4, jobs, history=False)
        stage = stage_of(store, quiet, 4)
        started, spent, learned_s = time.perf_counter(), time.process_time(), 0.0
        while stage.step():
            rows = store.studies()
            if not learned_s and all(row.learned_sequence == row.last_sequence for row in rows):
                learned_s = time.perf_counter() - started
        found = {
            "learned_s": learned_s,
            "recommended_s": time.perf_counter() - started,
            "cpu_s": time.process_time() - spent,
        }
        stage.close()
    return found


def stage_of(store: Store, quiet: Quiet, contexts: int) -> TuneStage:
    """The stage, as a tuner's process has it."""
    return TuneStage(
        store,
        TuneSettings(max_contexts=2 * contexts),
        "recommendations",
        quiet,
        cast(logs.Log, quiet),
        lambda: datetime.now(UTC),
        time.monotonic,
    )


def told(store: Store, study: str, *, history: bool) -> list[Any]:
    """The jobs that a model predicted before it learned them."""
    judged = store.predictions(study, history=history)
    return [one for one in judged if one.outcome.predicted is not None]


def fill(store: Store, study: Study, contexts: int, count: int, *, history: bool) -> None:
    """Put a backlog into a store."""
    jobs = simulated(study, contexts, count)[0]
    last = datetime.now(UTC) - jobs[-1].finished_at
    for begin in range(0, count, BATCH):
        batch = [
            structs.replace(one, finished_at=one.finished_at + last, history=history)
            for one in jobs[begin : begin + BATCH]
        ]
        with store.transaction() as tx:
            tx.add_observations(study.name, batch, datetime.now(UTC))


def places(count: int) -> list[dict[str, Scalar]]:
    """So many contexts."""
    names = ("model_params", "gpu", "n_gpus", "global_batch", "seq_len")
    sizes, gpus = (7e9, 13e9, 20e9, 30e9, 70e9, 120e9, 175e9), ("A100", "H100", "H200")
    values = product(
        sizes,
        gpus,
        (64, 128, 256, 512, 1024),
        (512, 768, 1024, 1536, 2048, 3072, 4096),
        (2048, 4096, 8192),
    )
    grid = [dict(zip(names, one, strict=True)) for one in values]
    order = np.random.default_rng(5).permutation(len(grid))
    return [cast(dict[str, Scalar], grid[i]) for i in order[:count]]


def simulated(
    study: Study, contexts: int, count: int, seed: int = 1
) -> tuple[list[Observation], list[tuple[SearchSpace, Codes]]]:
    """Jobs of random configurations in random contexts, and of each context its space with the
    codes of configurations that no job ran."""
    simulator, rng = simulator_for(study), np.random.default_rng(seed)
    pools, held_out = [], []
    for context in places(contexts):
        space = SearchSpace(study, study.clean_context(context))
        codes = space.sample(CONFIGURATIONS + HELD_OUT, rng)
        configs = [space.decode(code) for code in codes[:CONFIGURATIONS]]
        pools.append((context, configs, simulator.expected(space.context, configs)))
        held_out.append((space, codes[CONFIGURATIONS:]))
    jobs, at = [], datetime(2026, 1, 1, tzinfo=UTC)
    for sequence in range(1, count + 1):
        context, configs, speed = pools[int(rng.integers(len(pools)))]
        turn = int(rng.integers(len(configs)))
        ran = bool(np.isfinite(speed[turn]))
        value = float(speed[turn] * np.exp(0.02 * rng.normal())) if ran else 0.0
        jobs.append(
            Observation(
                study=study.name,
                source="benchmark",
                event_id=f"{study.name}-{sequence}",
                job_id=str(sequence),
                status=Status.SUCCEEDED if ran else Status.OUT_OF_MEMORY,
                finished_at=at + timedelta(seconds=10 * sequence),
                context=context,
                config=configs[turn],
                metrics={study.objective.metric: value} if ran else {},
                sequence=sequence,
            )
        )
    return jobs, held_out


def quality(contexts: int, count: int) -> dict[str, float]:
    """How good a model is after a backlog, and after the same jobs as they come: means over
    seeds, for one of them decides by luck."""
    study = parse_study(shipped_study(STUDY))
    figures = defaultdict[str, list[float]](list)
    for seed in range(1, QUALITY_SEEDS + 1):
        jobs, held_out = simulated(study, contexts, count, seed)
        for prefix, size in (("usual_", 10), ("", BATCH)):
            tuner = Tuner(study, InlineExecutor())
            for begin in range(0, count, size):
                batch = jobs[begin : begin + size]
                waiting = count - batch[-1].sequence if size == BATCH else 0
                tuner.learn(batch, waiting=waiting)
            tau, loss = judged(tuner, simulator_for(study), held_out)
            figures[f"{prefix}tau"].append(tau)
            figures[f"{prefix}loss"].append(loss)
            figures[f"{prefix}models"].append(len(tuner.training.built))
    return {name: float(np.mean(values)) for name, values in figures.items()}


def judged(
    tuner: Tuner, simulator: Simulator, held_out: Sequence[tuple[SearchSpace, Codes]]
) -> tuple[float, float]:
    """Mean tau within contexts, and mean share that the best predicted is slower than the best."""
    means = defaultdict[str, list[float]](list)
    model = tuner.model
    assert model is not None
    for space, codes in held_out:
        true = simulator.expected(space.context, [space.decode(code) for code in codes])
        said = model.predictor.predict(tuner.features.candidates(space, codes)).mean
        ran = np.isfinite(true)
        if ran.sum() < 2:
            continue
        means["tau"].append(kendall(said[ran], true[ran]))
        means["loss"].append(1.0 - true[ran][said[ran].argmax()] / true[ran].max())
    return float(np.mean(means["tau"])), float(np.mean(means["loss"]))


if __name__ == "__main__":
    sys.exit(main())
