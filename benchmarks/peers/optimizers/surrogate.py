"""Expected improvement over every configuration, times the probability to run: what the peers
share that put a model of their own under it.

They train on the context's own jobs and, where there are any, on jobs of other contexts beside
them, the context's columns telling them apart. A batch is chosen one by one; each choice is
believed to come out as predicted before the next (the *kriging believer*).
"""

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
from scipy import stats

from benchmarks.peers.grid import PeerRun, as_jobs
from benchmarks.peers.matrix import MANY, Jobs, boosted_chance
from benchmarks.peers.predictors.extra_trees import forest_chance
from tunerd.core.arrays import FloatArray, IntArray
from tunerd.lab.evaluation.closed_loop import BenchmarkProblem

__all__ = ["SurrogateRun", "log_expected_improvement"]

TREES = 100
LEAST_CHANCE = 1e-3


class SurrogateRun(PeerRun):
    """Expected improvement × probability to run, under a model that subclasses bring."""

    def __init__(self, problem: BenchmarkProblem, seed: int, old_rows: int) -> None:
        super().__init__(problem, seed)
        jobs = Jobs.of(problem.study, problem.history, as_jobs(problem))
        old, self.here = jobs.plain()
        near = _nearest(jobs, old_rows)
        self.old, self.old_score = old[near], jobs.known.score[near]
        """Jobs of other contexts, of the nearest ones."""
        self._history, self._all_old = jobs, old

    @abstractmethod
    def model(
        self, X: FloatArray, score: FloatArray, asked: FloatArray, *, again: bool
    ) -> tuple[FloatArray, FloatArray]:
        """Mean and standard deviation of ``asked`` after jobs; ``again`` when only a believed
        one was added, so that what is expensive may stay as it was."""

    def choose(self, n: int) -> Sequence[int]:
        """One after the other, each believed."""
        own = self.scores
        ran = np.isfinite(own)
        X = np.concatenate([self.old, self.here[self.tried][ran]])
        score = np.concatenate([self.old_score, own[ran]])
        chance = np.log(np.maximum(self._chance(), LEAST_CHANCE))
        if len(X) < 2:
            return self._best(chance, n)
        # With nothing of one's own there is nothing to improve on: the best predicted is taken.
        best = float(own[ran].max()) if ran.any() else -np.inf
        picks: list[int] = []
        while len(picks) < n:
            mean, sd = self.model(X, score, self.here, again=bool(picks))
            value = mean if best == -np.inf else log_expected_improvement(mean, sd, best)
            value = value + chance
            value[picks] = -np.inf
            picks += self._best(value, 1)
            believed = picks[-1]
            X = np.concatenate([X, self.here[[believed]]])
            score = np.append(score, mean[believed])
            best = max(best, float(mean[believed]))
        return picks

    def _chance(self) -> FloatArray:
        """(configurations,) probability to run, by old jobs and one's own: boosted trees where
        there are many, extra trees where there are few."""
        old, asked = self._history.known, self._history.asked
        ran = np.concatenate([old.ran, self.ran])
        if len(ran) < MANY:
            X = np.concatenate([self._all_old, self.here[self.tried]])
            return forest_chance(X, ran, self.here, self.seed, TREES)
        X = np.concatenate([old.X, asked.X[self.tried]])
        return boosted_chance(X, ran, asked.X, self._history.categorical, self.seed)

    def _best(self, value: FloatArray, n: int) -> list[int]:
        there = self.there
        order = np.lexsort((self.rng.random(len(there)), -value[there]))
        best: list[int] = there[order[:n]].tolist()
        return best


def log_expected_improvement(mean: FloatArray, sd: FloatArray, best: float) -> FloatArray:
    """(n,) log EI of predictions over the best score so far; stable far below it."""
    sd = np.maximum(sd, 1e-9)
    z = (mean - best) / sd
    # EI/sd = φ(z) + zΦ(z); below −5 its leading term, φ(z)/z².
    near = stats.norm.pdf(z) + z * stats.norm.cdf(z)
    far = stats.norm.logpdf(z) - 2 * np.log(np.maximum(-z, 1.0))
    value = np.where(z > -5, np.log(np.maximum(near, 1e-300)), far)
    told: FloatArray = value + np.log(sd)
    return told


def _nearest(jobs: Jobs, most: int) -> IntArray:
    """At most so many known jobs with a score, of the nearest contexts; of the last context that
    has a place an even sample."""
    contexts, asked = jobs.plain("context")
    far = ((contexts - asked[0]) ** 2).sum(axis=1)
    order = np.lexsort((np.random.default_rng(0).random(len(far)), far))
    nearest: IntArray = order[jobs.scored[order]][:most].astype(np.int64)
    return nearest
