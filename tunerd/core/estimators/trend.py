"""The log-linear trend of an objective: what carries a predictor to where it has no data.

Speed follows products of powers over wide ranges, so that a straight line over logarithms already
ranks unseen contexts; trees alone know nothing beyond their last split.
"""

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from tunerd.core.arrays import BoolArray, FloatArray
from tunerd.core.estimators.array_state import ArrayState
from tunerd.core.estimators.design import DesignTransform

__all__ = ["RidgeTrend"]

PENALTY = 100.0
"""Of the ridge, times the share of the variance that the trend leaves. In a noisy mixture it takes
a hundred jobs until a slope is believed, and tens are told better by what follows the trend; of a
clean law few are enough. Chosen by cross-validation among thirty jobs it is luck."""
LEAST_PENALTY = 0.3
STEPS = 20
"""In which penalty and share settle."""
WHITENING = 3.0
"""The same for leverage, which is about how far from the jobs a row is and not about slopes."""


class RidgeTrend(ArrayState, frozen=True, eq=False):
    """Ridge regressions on one design, several side by side."""

    design: DesignTransform
    intercepts: FloatArray
    """(members,)"""
    slopes: FloatArray
    """(width of the design, members)"""
    whitener: FloatArray
    """(width, rank): squared length of a row through it is its leverage."""

    @classmethod
    def fit(
        cls,
        X: FloatArray,
        y: FloatArray,
        weight: FloatArray,
        categorical: Sequence[float] | FloatArray,
        masks: Sequence[BoolArray],
        penalty: float = PENALTY,
    ) -> "RidgeTrend":
        """Fit one regression per mask, each on the rows where its mask is true.

        ``X`` (n, F), ``y`` (n,) scores, ``weight`` (n,) positive, n at least 1; ``penalty`` as
        :data:`PENALTY`.
        """
        design = DesignTransform.fit(X, categorical)
        Z = design(X)
        fits = [_ridge(Z, y, weight * mask, penalty) for mask in masks]
        return cls(
            design=design,
            intercepts=np.array([intercept for intercept, _ in fits]),
            slopes=np.stack([slope for _, slope in fits], axis=1),
            whitener=_whitener(Z),
        )

    def predict(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(n, F) → (n, members) trend, and (n,) leverage: about columns/rows among the data, more
        the farther a row is from it."""
        Z = self.design(X)
        away = Z @ self.whitener
        return self.intercepts + Z @ self.slopes, np.einsum("nr,nr->n", away, away)

    def flat(self) -> "RidgeTrend":
        """The same without slopes; how far a row is from the data stays."""
        return replace(self, slopes=np.zeros_like(self.slopes))


def _ridge(
    Z: FloatArray, y: FloatArray, weight: FloatArray, penalty: float
) -> tuple[float, FloatArray]:
    """Weighted ridge with an unpenalised intercept, its penalty as its fit leaves it."""
    total = weight.sum()
    if total <= 0:
        return 0.0, np.zeros(Z.shape[1])
    zbar, ybar = weight @ Z / total, float(weight @ y / total)
    used = weight > 0
    root = np.sqrt(weight[used] * used.sum() / total)
    A, b = (Z[used] - zbar) * root[:, None], (y[used] - ybar) * root
    size, vectors = np.linalg.eigh(A.T @ A)
    size, projected = np.maximum(size, 0.0), vectors.T @ (A.T @ b)
    n, squares, full = len(b), max(float(b @ b), 1e-24), penalty
    for _ in range(STEPS):
        explained = float(projected**2 @ ((size + 2.0 * penalty) / (size + penalty) ** 2))
        freedom = 1.0 + float(np.sum(size / (size + penalty)))
        share = max(squares - explained, 0.0) / squares * (n - 1.0) / max(n - freedom, 1e-9)
        penalty = max(full * min(share, 1.0), LEAST_PENALTY)
    slope = vectors @ (projected / (size + penalty))
    return ybar - float(zbar @ slope), slope


def _whitener(Z: FloatArray) -> FloatArray:
    size, vectors = np.linalg.eigh(Z.T @ Z)
    root: FloatArray = vectors / np.sqrt(np.maximum(size, 0.0) + WHITENING)
    return root
