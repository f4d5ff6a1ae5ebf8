"""How good a configuration each searcher finds in large spaces, by predictions and by seconds.

The ads study with 8, 24 and 48 layers, up to 3^48 x 65 x 9 configurations, and the LLM study at
16,384 GPUs with a budget that forbids scoring it whole. What is searched is fixed: the mean that
``boosted_trees`` predicts after 1,000 simulated jobs, and the simulator's own speed without noise;
what most likely does not run lies far below either. Everybody gets the same number of predictions;
Optuna's samplers get one Optuna study each, and what they propose is scored eight at a time.

Losses are shares of the range from the mean of random configurations that run to the best that
anybody found. Seconds are processor time, the predictions included; speed is compared by the
prediction, as some searches end before their budget does.
"""

import os
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from benchmarks.kit import Bars, arguments
from benchmarks.search import TUNER_ENVIRONMENT, Situation, learned, most_gpus
from tunerd.core.arrays import Codes, FloatArray
from tunerd.core.searchers import searcher_class
from tunerd.core.searchers.base import SearchBudget
from tunerd.core.searchers.optuna import OptunaOptions
from tunerd.lab.evaluation.forecast_scores import weighed
from tunerd.lab.simulation.shipped import ads_study, demo_contexts, shipped_study
from tunerd.lab.simulation.simulator import simulator_for

WITHIN = 0.01
"""Bar: share of the range that ``reinforce`` may lie below the best with the same calls."""
FASTER = 10.0
"""Bar: how much longer any of Optuna's samplers takes for as many calls."""
CALLS = 2_000
MANY = 10_000
"""Calls for those that can afford them: the default of a study."""
SEARCHERS: dict[str, Mapping[str, object]] = {
    "reinforce": {"searcher": "reinforce"},
    "evolution": {"searcher": "evolution"},
    "random": {"searcher": "random"},
    "optuna TPE": {"searcher": "optuna", "own": (OptunaOptions(),), "seeds": (1,)},
    "optuna CMA-ES": {
        "searcher": "optuna",
        "own": (OptunaOptions(sampler="CmaEsSampler"),),
        "seeds": (1,),
    },
}
SPACES = ("ads-8", "ads-24", "ads-48", "llm-16384")
Score = Callable[[Codes], FloatArray]


@dataclass
class Curve:
    """What one search had found when: a score function that takes notes."""

    score: Score
    calls: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    best: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._started = time.thread_time()

    def __call__(self, codes: Codes) -> FloatArray:
        scores = self.score(codes)
        self.calls.append((self.calls[-1] if self.calls else 0) + len(codes))
        self.seconds.append(time.thread_time() - self._started)
        self.best.append(max(float(scores.max()), self.best[-1] if self.best else -np.inf))
        return scores

    def end(self) -> None:
        """The search is over: what it took in all."""
        self.seconds[-1] = time.thread_time() - self._started


@dataclass
class Cell:
    """One space with one score function."""

    title: str
    situation: Situation
    score: Score
    curves: dict[str, list[Curve]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        scores = self.score(self.situation.space.sample(2_000, np.random.default_rng(0)))
        self.mean = float(scores[scores > scores.max() - 2.0].mean())
        """Of random configurations, without those that do not run."""

    def run(self, name: str, calls: int, seeds: int) -> None:
        """Search with one searcher, once per seed."""
        options = replace(self.situation.study.search, **SEARCHERS[name])  # type: ignore[arg-type]
        self.curves[name] = []
        for seed in range(seeds):
            curve = Curve(self.score)
            searcher_class(options.searcher)(options).search(
                self.situation.space,
                curve,
                np.random.default_rng([seed, 7]),
                SearchBudget(calls, 128),
            )
            curve.end()
            self.curves[name].append(curve)

    def found(self, name: str) -> float:
        """Median over seeds of the best score."""
        return float(np.median([curve.best[-1] for curve in self.curves[name]]))

    def loss(self, score: float, best: float) -> float:
        """Share of the range that a score lies below the best."""
        return (best - score) / (best - self.mean)

    @property
    def top(self) -> float:
        """The best that anybody found in any search."""
        return max(curve.best[-1] for curves in self.curves.values() for curve in curves)

    def took(self, name: str) -> float:
        """Median seconds of a search."""
        return float(np.median([curve.seconds[-1] for curve in self.curves[name]]))

    def each(self, name: str) -> float:
        """Median seconds for each prediction: some end before their budget does."""
        curves = self.curves[name]
        return float(np.median([curve.seconds[-1] / curve.calls[-1] for curve in curves]))


def main(argv: Sequence[str] | None = None) -> int:
    parser = arguments(__doc__)
    parser.add_argument("--calls", type=int, help=f"predictions of a search  [default: {CALLS}]")
    parser.add_argument("--many", type=int, help=f"and without Optuna  [default: {MANY}]")
    parser.add_argument("--seeds", type=int, help="searches of each  [default: 5]")
    parser.add_argument("--peer-seeds", type=int, help="searches of Optuna's  [default: as many]")
    parser.add_argument("--spaces", default=",".join(SPACES), help="with commas between")
    parser.add_argument("--plots", type=Path, metavar="DIR", help="draw the curves there")
    options = parser.parse_args(argv)
    calls = options.calls or (200 if options.quick else CALLS)
    many = options.many or (1_000 if options.quick else MANY)
    seeds = options.seeds or (2 if options.quick else 5)
    names = list(SEARCHERS)
    if find_spec("optuna") is None or find_spec("cmaes") is None:
        print("Optuna is not installed, and left out: pip install -e '.[optuna]'")
        names = [name for name in names if not name.startswith("optuna")]
    own = [name for name in names if not name.startswith("optuna")]
    peers = options.peer_seeds or seeds
    bars = Bars("large_spaces")
    for space in options.spaces.split(","):
        situation = _situation(space)
        print(f"{space}: {situation.space.size:,} feasible configurations")
        for what, score in (("trees", _trees(situation)), ("truth", _truth(situation))):
            cell = Cell(f"{space}, {what}", situation, score)
            for name in names:
                cell.run(name, calls, peers if name.startswith("optuna") else seeds)
            _judge(bars, cell, calls, options.quick)
            if options.plots:
                _plot(cell, options.plots)
            if situation.space.size is not None and situation.space.size <= many:
                continue  # so small a space is scored whole
            cell = Cell(f"{space}, {what}", situation, score)
            for name in own:
                cell.run(name, many, seeds)
            _judge(bars, cell, many, options.quick)
    return bars.end(options)


def _situation(space: str) -> Situation:
    kind, _, size = space.partition("-")
    if kind == "llm":
        return learned(shipped_study("llm-pretrain"), most_gpus(demo_contexts("llm-pretrain")))
    return learned(ads_study(int(size)), demo_contexts("ads-fsdp")[0])


def _trees(situation: Situation) -> Score:
    """What is predicted, and far below it what most likely does not run."""

    def score(codes: Codes) -> FloatArray:
        seen = situation.model.outlook(situation.features.candidates(situation.space, codes))
        return weighed(seen.mean, seen.p_run, situation.study.min_feasible)

    return score


def _truth(situation: Situation) -> Score:
    """What the simulator knows, and far below it what does not run."""
    space, simulator = situation.space, simulator_for(situation.study)

    def speed(codes: Codes) -> FloatArray:
        expected: FloatArray = np.log(simulator.expected(space.context, space.columns(codes)))
        return expected

    floor = float(np.nanmin(speed(space.sample(2_000, np.random.default_rng(0))))) - 5.0
    return lambda codes: np.nan_to_num(speed(codes), nan=floor)


def _judge(bars: Bars, cell: Cell, calls: int, quick: bool) -> None:
    """Tell losses and seconds; hold ``reinforce`` against its bars unless there is too little."""
    top = cell.top
    for name in cell.curves:
        bars.say(f"{cell.title}, {calls:,} calls: loss of {name}", _percent(cell, name, top), "%")
    others = max(cell.found(name) for name in cell.curves if name != "reinforce")
    behind = 100 * (others - cell.found("reinforce")) / (top - cell.mean)
    title = f"{cell.title}, {calls:,} calls: reinforce behind the best"
    if quick:
        bars.say(title, behind, "%")
    else:
        bars.hold(title, behind, behind <= 100 * WITHIN, f"at most {WITHIN:.0%}", "%")
    for name in cell.curves:
        bars.say(f"{cell.title}, {calls:,} calls: time of {name}", cell.took(name), "s")
    slow = [cell.each(name) for name in cell.curves if name.startswith("optuna")]
    if slow:
        ratio = min(slow) / cell.each("reinforce")
        title = f"{cell.title}, {calls:,} calls: times that reinforce is faster than Optuna"
        bars.hold(title, ratio, ratio >= FASTER, f"at least {FASTER:g}")


def _percent(cell: Cell, name: str, top: float) -> float:
    return 100 * cell.loss(cell.found(name), top)


def _plot(cell: Cell, folder: Path) -> None:
    """Draw the median loss against calls and against seconds."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    folder.mkdir(parents=True, exist_ok=True)
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for name, curves in cell.curves.items():
        for axes, along in ((left, "calls"), (right, "seconds")):
            ends = [getattr(curve, along)[-1] for curve in curves]
            first = max(getattr(curve, along)[0] for curve in curves)
            at = np.geomspace(max(first, 1e-4), max(ends), 200)
            median = np.median([_at(curve, along, at) for curve in curves], axis=0)
            loss = 100 * (cell.top - median) / (cell.top - cell.mean)
            axes.plot(at, np.maximum(loss, 0.01), label=name, lw=1.6)
    for axes, label in ((left, "predictions"), (right, "seconds of processor time")):
        axes.set(xscale="log", yscale="log", xlabel=label)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    left.set_ylabel("% of the range below the best found")
    left.legend(frameon=False)
    figure.suptitle(f"{cell.title}: medians")
    figure.savefig(folder / f"{cell.title.replace(', ', '-')}.png", dpi=130)
    pyplot.close(figure)


def _at(curve: Curve, along: str, at: FloatArray) -> FloatArray:
    """Best score by then."""
    place = np.searchsorted(getattr(curve, along), at, side="right") - 1
    found: FloatArray = np.array(curve.best)[np.maximum(place, 0)]
    return found


if __name__ == "__main__":
    if any(os.environ.get(name) != value for name, value in TUNER_ENVIRONMENT.items()):
        command = [sys.executable, "-m", "benchmarks.large_spaces", *sys.argv[1:]]
        os.execve(sys.executable, command, os.environ | TUNER_ENVIRONMENT)  # noqa: S606
    warnings.simplefilter("ignore", RuntimeWarning)  # logarithms of what does not run
    sys.exit(main())
