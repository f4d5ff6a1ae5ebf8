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
from benchmarks.peers.matrix import Jobs
from benchmarks.peers.predictors.extra_trees import forest_chance
from tunerd.core.arrays import BoolArray, FloatArray, IntArray
from tunerd.evaluation.closed_loop import Problem

__all__ = ["SurrogateRun", "log_expected_improvement"]

TREES = 100
LEAST_CHANCE = 1e-3


class SurrogateRun(PeerRun):
    """Expected improvement × probability to run, under a model that subclasses bring."""

    def __init__(self, problem: Problem, seed: int, old_rows: int) -> None:
        super().__init__(problem, seed)
        jobs = Jobs.of(problem.study, problem.history, as_jobs(problem))
        old, self.here = jobs.plain()
        near = _nearest(jobs, old_rows)
        self.old = old[near]
        """(m, P) jobs of other contexts, the nearest contexts' first."""
        self.old_score, self.old_ran = jobs.known.score[near], jobs.known.ran[near]

    @abstractmethod
    def model(
        self, X: FloatArray, score: FloatArray, asked: FloatArray, *, again: bool
    ) -> tuple[FloatArray, FloatArray]:
        """Mean and standard deviation of ``asked`` after jobs; ``again`` when only a believed
        one was added, so that what is expensive may stay as it was."""

    def choose(self, n: int) -> Sequence[int]:
        """One after the other, each believed."""
        X = np.concatenate([self.old, self.here[self.tried]])
        score = np.concatenate([self.old_score, self.scores])
        own = self.scores[np.isfinite(self.scores)]
        usable: BoolArray = np.isfinite(score)
        chance = self._chance(X)
        if usable.sum() < 2:
            if not len(X):
                return self.at_random(n)
            return self._first(chance + 1e-6 * self.rng.random(len(chance)), n)
        X, score = X[usable], score[usable]
        best = float(own.max()) if len(own) else -np.inf
        picks: list[int] = []
        while len(picks) < n:
            mean, sd = self.model(X, score, self.here, again=bool(picks))
            # With nothing of one's own there is nothing to improve on: the best predicted.
            value = mean if best == -np.inf else log_expected_improvement(mean, sd, best)
            value = value + np.log(np.maximum(chance, LEAST_CHANCE))
            value[~self.untried] = -np.inf
            value[picks] = -np.inf
            picks.append(int(np.argmax(value)))
            X = np.concatenate([X, self.here[picks[-1:]]])
            score = np.append(score, mean[picks[-1]])
            best = max(best, float(mean[picks[-1]]))
        return picks

    def _chance(self, X: FloatArray) -> FloatArray:
        ran = np.concatenate([self.old_ran, self.ran])
        return forest_chance(X, ran, self.here, self.seed, TREES)

    def _first(self, value: FloatArray, n: int) -> list[int]:
        there = self.there
        first: list[int] = there[np.argsort(-value[there], kind="stable")][:n].tolist()
        return first


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


def _nearest(jobs: Jobs, rows: int) -> IntArray:
    """Old jobs of the nearest contexts, at most so many; an even sample of the last context."""
    contexts, asked = jobs.plain("context")
    if not len(contexts):
        return np.zeros(0, dtype=np.int64)
    far = ((contexts - asked[0]) ** 2).sum(axis=1)
    order = np.lexsort((np.random.default_rng(0).random(len(far)), far))
    nearest: IntArray = order[:rows].astype(np.int64)
    return nearest
