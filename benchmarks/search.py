"""What one search costs, and what it finds: policies of three seeds asking ``boosted_trees``, and
``committee`` in a space of categories with hundreds of values.

The model has learned 1,000 jobs of the simulated cluster. Where a space has fewer feasible
configurations than a search may ask for, it is scored whole; with ``policies`` in its name the
same search gets a budget that forbids that. What is found is measured against random search with
the same budget.
"""

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.kit import Bars, arguments, observation
from tunerd.core.arrays import Codes, FloatArray
from tunerd.core.features import FeatureMap, FeatureRows
from tunerd.core.model.model import StudyModel
from tunerd.core.observation import Scalar, Status
from tunerd.core.searchers import searcher_class
from tunerd.core.searchers.base import SearchBudget, SearchResult
from tunerd.core.space import SearchSpace
from tunerd.core.study import Study
from tunerd.core.study_file import parse_study
from tunerd.lab.evaluation.forecast_scores import weighed
from tunerd.lab.simulation.shipped import ads_study, demo_contexts, shipped_study
from tunerd.lab.simulation.simulator import SimulatedRun, job_rng, simulator_for

SEARCH_S = 2.0
"""Bar: seconds of a processor for one search."""
UPDATE_S = 0.15
PREDICT_S = 0.2
OPTIMISM = 0.5
"""Standard deviations of the prediction that count in favour of trying."""
MIN_FEASIBLE = 0.8
"""Probability to run below which a configuration lies far below, whatever the study says: as most
studies have it. The lower, the easier a space is to climb."""
TUNER_ENVIRONMENT = {"OMP_WAIT_POLICY": "passive", "OPENBLAS_NUM_THREADS": "1"}
"""The tuner process is started with these; they must be there before the libraries are loaded."""


@dataclass(frozen=True)
class Situation:
    """A study, what was learned of it, and the space that is searched."""

    study: Study
    features: FeatureMap
    rows: FeatureRows
    model: StudyModel
    space: SearchSpace

    def score(self, codes: Codes) -> FloatArray:
        """Upper confidence bound times the probability to run."""
        seen = self.model.outlook(self.features.candidates(self.space, codes))
        optimistic = seen.mean + OPTIMISM * seen.std
        return weighed(optimistic, seen.p_run, self.study.min_feasible)


def main(argv: Sequence[str] | None = None) -> int:
    options = arguments(__doc__).parse_args(argv)
    bars = Bars("search")
    repeats = 2 if options.quick else 7
    llm = learned(shipped_study("llm-pretrain"), most_gpus(demo_contexts("llm-pretrain")))
    layers = learned(ads_study(24), demo_contexts("ads-fsdp")[0])
    many = wide()
    for title, situation, evaluations in (
        ("LLM study, 16,384 GPUs", llm, llm.study.search.evaluations),
        ("LLM study, 16,384 GPUs, policies", llm, 4_000),
        ("ads study, 24 layers", layers, layers.study.search.evaluations),
        ("categories of 1,600, 400 and 100 values", many, many.study.search.evaluations),
    ):
        print(f"{title}: {situation.space.size:,} feasible configurations")
        measure(bars, title, situation, evaluations, repeats)
    print("the model, with the study of 24 layers; processor time")
    recent = layers.rows.take(np.arange(len(layers.rows) - 500, len(layers.rows)))
    new = recent.take(np.arange(490, 500))
    took = seconds(lambda: layers.model.update(new, recent, 1_000), repeats)
    bars.hold("learning 10 jobs", took, took < UPDATE_S, f"< {UPDATE_S} s", "s")
    codes = layers.space.sample(4_000, np.random.default_rng(0))
    rows = layers.features.candidates(layers.space, codes)
    took = seconds(lambda: layers.model.predictor.predict(rows), repeats)
    bars.hold("predicting 4,000 configurations", took, took < PREDICT_S, f"< {PREDICT_S} s", "s")
    bars.say(
        "probability to run of 4,000", seconds(lambda: layers.model.runs.predict(rows), 3), "s"
    )
    return bars.end(options)


def most_gpus(contexts: Sequence[Mapping[str, Scalar]]) -> Mapping[str, Scalar]:
    return max(contexts, key=lambda context: float(str(context["n_gpus"])))


def learned(text: str, context: Mapping[str, Scalar], jobs: int = 1_000) -> Situation:
    """A model of simulated jobs in ``context`` and at a half and a quarter of its GPUs."""
    study = replace(parse_study(text), min_feasible=MIN_FEASIBLE)
    simulator, features, rng = simulator_for(study), FeatureMap(study), np.random.default_rng(0)
    gpus = int(str(context["n_gpus"]))
    contexts = [{**context, "n_gpus": gpus // divisor} for divisor in (1, 2, 4)]
    spaces = [SearchSpace(study, one) for one in contexts]
    observations = []
    for i in range(jobs):
        space = spaces[i % len(spaces)]
        config = space.decode(space.sample(1, rng)[0])
        outcome = simulator.run(space.context, config, job_rng(0, space.context, config, i))
        observations.append(observation(space, config, outcome, i + 1))
    rows = features.rows(observations)
    return Situation(study, features, rows, StudyModel.fit(study, features, rows, jobs), spaces[0])


def wide(jobs: int = 200) -> Situation:
    """A model of jobs with made-up speeds, in ten contexts of a study with wide categories."""
    sizes = {"image": 1_600, "kernel": 400, "node": 100}
    parameters = [
        f'{name} = {{ type = "category", values = {[f"{name}{i}" for i in range(size)]} }}'
        for name, size in sizes.items()
    ]
    text = "\n".join(
        [
            "schema = 1",
            'name = "wide"',
            'objective = { metric = "speed", goal = "maximize", scale = "log" }',
            'context.n = { type = "int" }',
            "[parameters]",
            *parameters,
            'fused = { type = "bool" }',
        ]
    )
    study = parse_study(text)
    features, rng = FeatureMap(study), np.random.default_rng(0)
    spaces = [SearchSpace(study, {"n": n}) for n in range(1, 11)]
    worth = [rng.normal(size=size) for size in spaces[0].sizes.tolist()]
    observations = []
    for i in range(jobs):
        space = spaces[i % len(spaces)]
        code = space.sample(1, rng)[0]
        speed = float(np.exp(0.3 * sum(w[c] for w, c in zip(worth, code.tolist(), strict=True))))
        outcome = SimulatedRun(Status.SUCCEEDED, {"speed": speed}, 60.0, 60.0)
        observations.append(observation(space, space.decode(code), outcome, i + 1))
    rows = features.rows(observations)
    return Situation(study, features, rows, StudyModel.fit(study, features, rows, jobs), spaces[0])


def measure(bars: Bars, title: str, situation: Situation, evaluations: int, repeats: int) -> None:
    """Time the study's searcher, and compare it with random search."""
    study = situation.study
    budget = SearchBudget(evaluations, study.search.keep)

    def search(name: str, seed: int) -> SearchResult:
        searcher = searcher_class(name)(replace(study.search, searcher=name))
        return searcher.search(
            situation.space, situation.score, np.random.default_rng(seed), budget
        )

    took, passed, found = [], [], []
    for seed in range(repeats):
        started, at = time.thread_time(), time.perf_counter()
        found.append(search(study.search.searcher, seed))
        took.append(time.thread_time() - started)
        passed.append(time.perf_counter() - at)
    median = float(np.median(took))
    bars.hold(f"{title}: one search", median, median < SEARCH_S, f"< {SEARCH_S} s", "s")
    bars.say(f"{title}: slowest", max(took), "s")
    bars.say(f"{title}: one search by the clock", float(np.median(passed)), "s")
    bars.say(f"{title}: predictions asked for", int(np.median([f.evaluations for f in found])))
    best = [float(f.scores[0]) for f in found]
    plain = [float(search("random", seed).scores[0]) for seed in range(2)]
    bars.say(f"{title}: best score, lowest of the searches", min(best))
    bars.say(f"{title}: best score, highest of the searches", max(best))
    bars.say(f"{title}: best score, random search", max(plain))


def seconds(what: Callable[[], object], repeats: int) -> float:
    """Median processor time of a call: whatever else the machine does, this is what it costs."""
    took = []
    for _ in range(repeats):
        started = time.thread_time()
        what()
        took.append(time.thread_time() - started)
    return float(np.median(took))


if __name__ == "__main__":
    if any(os.environ.get(name) != value for name, value in TUNER_ENVIRONMENT.items()):
        command = [sys.executable, "-m", "benchmarks.search", *sys.argv[1:]]
        os.execve(sys.executable, command, os.environ | TUNER_ENVIRONMENT)  # noqa: S606
    sys.exit(main())
