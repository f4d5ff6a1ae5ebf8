"""A Gaussian process over contexts and configurations, for tens to hundreds of rows.

Its kernel says that two jobs are alike when their contexts are, when their configurations are, and
most of all when both are::

    k = e^a0 + e^a1 kc + e^a2 kx + e^a3 kc kx        kc, kx: Matérn 5/2, one length per column

The product lets what a configuration does depend on the context. Lengths, amplitudes and noise are
chosen by their posterior (MAP) with exact gradients, under weak priors. Rasmussen and Williams,
Gaussian Processes for Machine Learning, 2006: algorithm 2.1, equations 5.9 and 5.12.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from tunerd.core.arrays import BoolArray, FloatArray
from tunerd.core.estimators.array_state import ArrayState
from tunerd.core.estimators.matern import matern, sloped, squares

__all__ = ["ExactGP", "Kernel", "posterior"]

LENGTH_PRIOR = (1.8, 0.8)
"""Mean and standard deviation of the logarithm of a length, in standard deviations of a column:
believed to be smooth until jobs tell. With as many columns as jobs, short lengths explain every job
and predict none (Hvarfner, Hellsten and Nardi, ICML 2024)."""
AMPLITUDE_PRIOR = (-0.5, 1.0)
NOISE_PRIOR = (-4.0, 2.0)
START_LENGTH = 0.4
START_AMPLITUDES = (-1.0, 0.0, 0.0, -0.5)
START_NOISE = -4.0
JITTER = 1e-8
"""Noise that there is anyway, beside the variance of a job: a matrix must not be singular."""
BOUND = 4.0
"""Standard deviations of its prior that nothing chosen leaves: a search that tries its ends there
finds no matrix that cannot be factored."""
ITERATIONS = 40
VARIANCE_ROWS = 300
"""Rows that the variance of a prediction is told by."""
CHUNK = 256
"""Rows predicted at a time: what is between them and all others stays in the cache."""


class Kernel(ArrayState, frozen=True, eq=False):
    """What a process believes of how jobs are alike. Logarithms throughout."""

    context: BoolArray
    """(D,) columns that belong to the context; the others to the configuration."""
    lengths: FloatArray
    """(D,)"""
    amplitudes: FloatArray
    """(4,) constant, context, configuration, both."""
    noise: float

    @classmethod
    def start(cls, context: BoolArray) -> Self:
        """Before anything was seen: contexts are believed to be smoother."""
        lengths = np.where(context, START_LENGTH + 0.5, START_LENGTH)
        return cls(context, lengths, np.array(START_AMPLITUDES), START_NOISE)

    def fitted(self, Z: FloatArray, y: FloatArray, weight: FloatArray) -> "Kernel":
        """Return the kernel of highest posterior for ``Z`` (n, D), ``y`` (n,) of unit spread and
        ``weight`` (n,): noise is e^noise / weight."""
        from scipy.optimize import minimize  # a fifth of a second, for those who fit one

        fitted_theta = minimize(
            lambda theta: posterior(self.at(theta), Z, y, weight),
            self.theta,
            jac=True,
            method="L-BFGS-B",
            bounds=self.ends,
            options={"maxiter": ITERATIONS},
        )
        return self.at(fitted_theta.x)

    def between(self, Z: FloatArray, W: FloatArray) -> FloatArray:
        """(n, D) and (m, D) → (n, m) covariance without noise."""
        same_context = len(Z) > 1 and bool((Z[:, self.context] == Z[0, self.context]).all())
        kc = matern(
            self.apart(Z[:1] if same_context else Z, W, self.context)
        )  # candidates share a context
        both = matern(self.apart(Z, W, ~self.context))
        a = np.exp(self.amplitudes)
        both *= a[2] + a[3] * kc
        both += a[0] + a[1] * kc
        return both

    @property
    def variance(self) -> float:
        """Of a job anywhere, before anything was seen, without noise."""
        return float(np.exp(self.amplitudes).sum())

    def apart(self, Z: FloatArray, W: FloatArray, columns: BoolArray) -> FloatArray:
        """(n, D) and (m, D) → (n, m) squared distances in some columns, in units of lengths."""
        scale = np.exp(-self.lengths[columns])
        return squares(Z[:, columns] * scale, W[:, columns] * scale)

    @property
    def theta(self) -> FloatArray:
        """(D + 5,) everything that is chosen: lengths, amplitudes, noise."""
        return np.concatenate([self.lengths, self.amplitudes, [self.noise]])

    @property
    def ends(self) -> FloatArray:
        """(D + 5, 2) between which they are chosen."""
        mean, sd = _priors(self)
        return np.stack([mean - BOUND * sd, mean + BOUND * sd], axis=1)

    def at(self, theta: FloatArray) -> "Kernel":
        """Return the kernel with these choices."""
        d = len(self.lengths)
        return Kernel(self.context, theta[:d], theta[d : d + 4], float(theta[d + 4]))


@dataclass(frozen=True)
class ExactGP:
    """A kernel conditioned on rows."""

    kernel: Kernel
    Z: FloatArray
    """(n, D) rows that were seen, n at least 1."""
    factor: FloatArray
    """(n, n) upper Cholesky factor of their covariance."""
    alpha: FloatArray
    """(n,)"""
    near: FloatArray
    """(≤ VARIANCE_ROWS, ≤ VARIANCE_ROWS) inverse of that of the last rows alone: a product takes
    two thirds of the time that solving does."""

    @classmethod
    def given(cls, kernel: Kernel, Z: FloatArray, y: FloatArray, weight: FloatArray) -> Self:
        """Condition on rows: ``Z`` (n, D), ``y`` (n,), ``weight`` (n,) positive."""
        K = _covariance(kernel, Z, weight)
        last = K[-VARIANCE_ROWS:, -VARIANCE_ROWS:]
        near = solve_triangular(cho_factor(last, lower=False)[0], np.eye(len(last)))
        factor = np.triu(cho_factor(K, lower=False)[0])
        return cls(kernel, Z, factor, cho_solve((factor, False), y), near)

    def left_out(self) -> FloatArray:
        """(n,) error in predicting each row from all others, in its own standard deviations."""
        inverse = solve_triangular(self.factor, np.eye(len(self.alpha)))
        residuals: FloatArray = self.alpha / np.sqrt(np.einsum("nm,nm->n", inverse, inverse))
        return residuals

    def mean(self, Z: FloatArray) -> FloatArray:
        """(m, D) → (m,) mean alone, at half of what :meth:`predict` costs."""
        chunks = [
            self.kernel.between(Z[start : start + CHUNK], self.Z) @ self.alpha
            for start in range(0, len(Z), CHUNK)
        ]
        return np.concatenate([np.zeros(0), *chunks])

    def predict(self, Z: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(m, D) → (m,) mean, and (m,) variance without noise, as the last rows alone have it:
        never too small, and at 1,300 rows a tenth of the work."""
        mean, variance = np.empty(len(Z)), np.empty(len(Z))
        for start in range(0, len(Z), CHUNK):
            part = slice(start, start + CHUNK)
            across = self.kernel.between(Z[part], self.Z)
            known = across[:, -VARIANCE_ROWS:] @ self.near
            mean[part] = across @ self.alpha
            variance[part] = self.kernel.variance - np.einsum("nm,nm->n", known, known)
        return mean, np.maximum(variance, 0.0)


def _covariance(kernel: Kernel, Z: FloatArray, weight: FloatArray) -> FloatArray:
    K = kernel.between(Z, Z)
    K[np.diag_indices_from(K)] += np.exp(kernel.noise) / weight + JITTER * (1.0 + kernel.variance)
    return K


def posterior(
    kernel: Kernel, Z: FloatArray, y: FloatArray, weight: FloatArray
) -> tuple[float, FloatArray]:
    """Negative logarithm of the posterior but for a constant, and its gradient."""
    n = len(y)
    kc, near_c = sloped(kernel.apart(Z, Z, kernel.context))
    kx, near_x = sloped(kernel.apart(Z, Z, ~kernel.context))
    a, noise = np.exp(kernel.amplitudes), np.exp(kernel.noise) / weight
    K = a[0] + a[1] * kc + (a[2] + a[3] * kc) * kx
    K[np.diag_indices(n)] += noise + JITTER * (1.0 + kernel.variance)
    factor = cho_factor(K, lower=False)
    alpha = cho_solve(factor, y)
    value = 0.5 * float(y @ alpha) + float(np.log(np.diag(factor[0])).sum())
    pull = 0.5 * (cho_solve(factor, np.eye(n)) - np.outer(alpha, alpha))
    both = kc * kx
    by_amplitude = [
        a[0] * pull.sum(),
        *(s * np.vdot(pull, k) for s, k in zip(a[1:], (kc, kx, both), strict=True)),
    ]
    by_length = np.empty(len(kernel.lengths))
    for columns, around, near in (
        (kernel.context, a[1] + a[3] * kx, near_c),
        (~kernel.context, a[2] + a[3] * kc, near_x),
    ):
        scaled = Z[:, columns] * np.exp(-kernel.lengths[columns])
        by_length[columns] = _by_length(pull * around * near, scaled)
    by_noise = float(np.diag(pull) @ noise)
    gradient = np.concatenate([by_length, by_amplitude, [by_noise]])
    theta, (mean, sd) = kernel.theta, _priors(kernel)
    off = (theta - mean) / sd
    return value + 0.5 * float(off @ off), gradient + off / sd


def _by_length(W: FloatArray, scaled: FloatArray) -> FloatArray:
    """Σ over pairs of W (5/3) (difference in a column)², for each column; W is symmetric."""
    rows = W.sum(axis=1)
    pairs = np.einsum("nd,nd->d", scaled, W @ scaled)
    squared: FloatArray = (10.0 / 3.0) * (rows @ scaled**2 - pairs)
    return squared


def _priors(kernel: Kernel) -> tuple[FloatArray, FloatArray]:
    d = len(kernel.lengths)
    priors: Sequence[tuple[float, float]] = [
        *[LENGTH_PRIOR] * d,
        *[AMPLITUDE_PRIOR] * 4,
        NOISE_PRIOR,
    ]
    mean, sd = np.array(priors).T
    return mean, sd
