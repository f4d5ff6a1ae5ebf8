"""Where configurations stop running: a straight boundary beside a forest.

What does not fit into memory is a sum that passes a limit, and a sum is what a line in the
logarithms sees with far fewer failures than trees need. Where the boundary is crooked the forest is
better. So both are fitted, and their weights come from rows left out.

In a context that nobody has run yet they are too sure of themselves (`benchmarks.running`). So
contexts are left out as well, and what is said of them is recalibrated (Platt 1999) by what came,
each context counting the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import numpy as np

from tunerd.core.arrays import FloatArray, IntArray
from tunerd.core.learners.design import Design
from tunerd.core.learners.trees import Forest, TreeOptions, TreesData

__all__ = ["Boundary", "Logistic"]

PENALTY = 1.0
FOLDS = 3
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Shares of the forest in the blend to choose from."""
MAX_STEPS = 30
NEW_SLOPE = 0.7
"""By how much log odds are believed in a context that nobody has run, before any was left out."""
SPREAD = (0.3, 0.7)
"""How far slope and shift may be from that, as standard deviations."""
CONTEXT = 30.0
"""Jobs that one context counts as: more of them say more of it and not of the next one."""


@dataclass(frozen=True)
class Logistic:
    """Logistic regression with a ridge penalty on a design."""

    design: Design
    intercept: float
    slopes: FloatArray

    @classmethod
    def fit(
        cls, X: FloatArray, ran: FloatArray, weight: FloatArray, categorical: Sequence[bool]
    ) -> "Logistic":
        """Newton's method on (n, F) with outcomes and weights (n,)."""
        design = Design.fit(X, categorical)
        Z = np.column_stack([np.ones(len(X)), design(X)])
        penalty = np.full(Z.shape[1], PENALTY)
        penalty[0] = 1e-6
        slopes = np.zeros(Z.shape[1])
        for _ in range(MAX_STEPS):
            p = _sigmoid(Z @ slopes)
            gradient = Z.T @ (weight * (p - ran)) + penalty * slopes
            curvature = (Z * (weight * p * (1 - p))[:, None]).T @ Z + np.diag(penalty)
            step = np.linalg.solve(curvature, gradient)
            slopes = slopes - step
            if float(np.abs(step).max()) < 1e-6:
                break
        return cls(design, float(slopes[0]), slopes[1:])

    def logit(self, X: FloatArray) -> FloatArray:
        """(n, F) → (n,) log odds to run."""
        return self.intercept + self.design(X) @ self.slopes


@dataclass(frozen=True)
class Trust:
    """How line and forest are blended and believed: log odds = slope * blend + shift."""

    share: float
    """Of the forest in the blend."""
    slope: float = 1.0
    shift: float = 0.0

    def __call__(self, forest: FloatArray, line: FloatArray) -> FloatArray:
        """Log odds (n,) from those of both."""
        found: FloatArray = self.slope * (self.share * forest + (1 - self.share) * line)
        return found + self.shift

    @classmethod
    def learned(
        cls, forest: FloatArray, line: FloatArray, ran: FloatArray, weight: FloatArray
    ) -> Self:
        """The share of highest likelihood on rows that neither had seen."""
        losses = [_log_loss(s * forest + (1 - s) * line, ran, weight) for s in SHARES]
        return cls(SHARES[int(np.argmin(losses))])

    def recalibrated(
        self,
        forest: FloatArray,
        line: FloatArray,
        ran: FloatArray,
        weight: FloatArray,
        slope: float = 1.0,
    ) -> "Trust":
        """Slope and shift of highest posterior on rows that neither had seen, around ``slope``
        and no shift. The weights say how many independent jobs there are."""
        Z = np.column_stack([replace(self, slope=1.0, shift=0.0)(forest, line), np.ones(len(ran))])
        prior, firm = np.array([slope, 0.0]), np.diag([1.0 / s**2 for s in SPREAD])
        at = prior
        for _ in range(MAX_STEPS):
            p = _sigmoid(Z @ at)
            gradient = Z.T @ (weight * (p - ran)) + firm @ (at - prior)
            curvature = (Z * (weight * p * (1 - p))[:, None]).T @ Z + firm
            at = at - np.linalg.solve(curvature, gradient)
            at[0] = min(max(at[0], 0.05), 2.5)
        return replace(self, slope=float(at[0]), shift=float(at[1]))


@dataclass(frozen=True)
class Boundary:
    """Forest and line, blended by their log odds."""

    forest: Forest
    line: Logistic
    known: Trust
    """In contexts that have outcomes of their own."""
    new: Trust
    """In contexts that have none."""

    @classmethod
    def fit(
        cls,
        X: FloatArray,
        ran: FloatArray,
        weight: FloatArray,
        categorical: Sequence[bool],
        keys: Sequence[str],
        seed: int,
    ) -> "Boundary":
        """Fit on (n, F) with outcomes 0 or 1, positive weights, and context keys (n,)."""

        def left_out(folds: IntArray) -> tuple[FloatArray, FloatArray]:
            told = np.zeros((2, len(X)))
            for fold in np.unique(folds):
                rest, there = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
                forest = _grow(X, ran, weight, categorical, rest, seed)
                line = Logistic.fit(X[rest], ran[rest], weight[rest], categorical)
                told[:, there] = _logit(forest.predict(X[there])[:, 0]), line.logit(X[there])
            return told[0], told[1]

        rng = np.random.default_rng(seed)
        told = left_out(rng.permutation(len(X)) % FOLDS)
        known = Trust.learned(*told, ran, weight).recalibrated(*told, ran, weight)
        new = replace(known, slope=NEW_SLOPE)
        _, context = np.unique(keys, return_inverse=True)
        count = np.bincount(context, weight)
        if len(count) > 1:
            told = left_out((rng.permutation(len(count)) % FOLDS)[context])
            each = weight * (CONTEXT / np.maximum(count, CONTEXT))[context]
            # The share stays: what another one gains on a few contexts is luck, and order is lost.
            new = known.recalibrated(*told, ran, each, NEW_SLOPE)
        forest = _grow(X, ran, weight, categorical, np.arange(len(X)), seed)
        return cls(forest, Logistic.fit(X, ran, weight, categorical), known, new)

    def predict(self, X: FloatArray, known: FloatArray) -> FloatArray:
        """(n, F) → (n,) probability to run; ``known`` (n,) says by how much, 0 to 1, a row's
        context has outcomes of its own."""
        forest, line = _logit(self.forest.predict(X)[:, 0]), self.line.logit(X)
        found = known * _sigmoid(self.known(forest, line))
        return found + (1.0 - known) * _sigmoid(self.new(forest, line))

    def dump(self) -> tuple[bytes, dict[str, Any]]:
        """The forest as a blob, the rest as JSON values; numbers survive to the last bit."""
        line = {
            "design": self.line.design.dump(),
            "intercept": self.line.intercept,
            "slopes": self.line.slopes.tolist(),
        }
        trust = {"known": asdict(self.known), "new": asdict(self.new)}
        return self.forest.dump(), {"line": line, **trust}

    @classmethod
    def load(cls, forest: bytes, state: Mapping[str, Any]) -> "Boundary":
        """Build from what :meth:`dump` gave."""
        line = state["line"]
        slopes = np.array(line["slopes"], dtype=np.float64)
        logistic = Logistic(Design.load(line["design"]), line["intercept"], slopes)
        known, new = Trust(**state["known"]), Trust(**state["new"])
        return cls(Forest.load(forest), logistic, known, new)


def _grow(
    X: FloatArray,
    ran: FloatArray,
    weight: FloatArray,
    categorical: Sequence[bool],
    where: IntArray,
    seed: int,
) -> Forest:
    n = len(where)  # capacity grows with the data
    trees, leaves = (60, 7) if n < 500 else (60, 15) if n < 1_000 else (100, 31)
    options = TreeOptions(trees, leaves, min_rows=5, seed=seed, objective="binary")
    data = TreesData(X[where], np.flatnonzero(categorical).tolist(), weight[where])
    return Forest([data.grow(ran[where], options)])


def _sigmoid(logit: FloatArray) -> FloatArray:
    return 1.0 / (1.0 + np.exp(-np.clip(logit, -30.0, 30.0)))


def _logit(p: FloatArray) -> FloatArray:
    p = np.clip(p, 1e-3, 1 - 1e-3)
    return np.log(p / (1 - p))


def _log_loss(logit: FloatArray, ran: FloatArray, weight: FloatArray) -> float:
    p = np.clip(_sigmoid(logit), 1e-3, 1 - 1e-3)
    return -float(weight @ (ran * np.log(p) + (1 - ran) * np.log(1 - p)))
