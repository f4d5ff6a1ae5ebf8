"""Where configurations stop running: a straight boundary beside a forest.

What does not fit into memory is a sum that passes a limit, and a sum is what a line in the
logarithms sees with far fewer failures than trees need: with 120 jobs of the simulated ads study
log loss .15 instead of .22. Where the boundary is crooked (`calculon_simulated_16k`) the forest is
better, .07 instead of .18. So both are fitted, and their weights come from rows left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
class Boundary:
    """Forest and line, blended by their log odds."""

    forest: Forest
    line: Logistic
    share: float
    """Of the forest in the blend."""

    @classmethod
    def fit(
        cls,
        X: FloatArray,
        ran: FloatArray,
        weight: FloatArray,
        categorical: Sequence[bool],
        seed: int,
    ) -> "Boundary":
        """Fit on (n, F) with outcomes 0 or 1 and positive weights (n,)."""
        folds = np.random.default_rng(seed).permutation(len(X)) % FOLDS
        left_out = np.zeros((2, len(X)))
        for fold in range(FOLDS):
            rest, there = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
            forest = _grow(X, ran, weight, categorical, rest, seed)
            line = Logistic.fit(X[rest], ran[rest], weight[rest], categorical)
            left_out[:, there] = _logit(forest.predict(X[there])[:, 0]), line.logit(X[there])
        losses = [_log_loss(s * left_out[0] + (1 - s) * left_out[1], ran, weight) for s in SHARES]
        return cls(
            _grow(X, ran, weight, categorical, np.arange(len(X)), seed),
            Logistic.fit(X, ran, weight, categorical),
            SHARES[int(np.argmin(losses))],
        )

    def predict(self, X: FloatArray) -> FloatArray:
        """(n, F) → (n,) probability to run."""
        logit = np.zeros(len(X))
        if self.share > 0:
            logit += self.share * _logit(self.forest.predict(X)[:, 0])
        if self.share < 1:
            logit += (1 - self.share) * self.line.logit(X)
        return _sigmoid(logit)

    def dump(self) -> tuple[bytes, dict[str, Any]]:
        """The forest as a blob, the rest as JSON values; numbers survive to the last bit."""
        line = {
            "design": self.line.design.dump(),
            "intercept": self.line.intercept,
            "slopes": self.line.slopes.tolist(),
        }
        return self.forest.dump(), {"line": line, "share": self.share}

    @classmethod
    def load(cls, forest: bytes, state: Mapping[str, Any]) -> "Boundary":
        """Build from what :meth:`dump` gave."""
        line = state["line"]
        slopes = np.array(line["slopes"], dtype=np.float64)
        logistic = Logistic(Design.load(line["design"]), line["intercept"], slopes)
        return cls(Forest.load(forest), logistic, state["share"])


def _grow(
    X: FloatArray,
    ran: FloatArray,
    weight: FloatArray,
    categorical: Sequence[bool],
    where: IntArray,
    seed: int,
) -> Forest:
    leaves = 7 if len(X) < 500 else 15
    options = TreeOptions(60, leaves, min_rows=5, seed=seed, objective="binary")
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
