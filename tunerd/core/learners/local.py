"""A Gaussian process over one context's own jobs, around what other contexts predict for it.

One form with and without history::

    score = level + b T(x) + f(x) + noise      level ~ N(·, LEVEL²), b ~ N(1, SLOPE²), f ~ GP(k)

``T`` is what was learned elsewhere; where nothing was, half of a straight line through the jobs: a
whole one follows a few jobs too far. ``k`` is Matérn 5/2 over the configuration alone, one length
per coordinate. Lengths, amplitude and noise are chosen by their posterior (MAP) with exact
gradients; the priors on the lengths are weak, or a few jobs could not tell which parameters do not
matter. A fit on sixty jobs takes a few milliseconds, so that it is made anew whenever it is needed.
Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006: algorithm 2.1, equations 5.9
and 5.12.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.optimize import minimize

from tunerd.core.arrays import FloatArray, IntArray

__all__ = ["Local"]

LENGTH_PRIOR = (0.7, 2.0)
"""Mean and standard deviation of the logarithm of a length; a parameter has unit variance."""
AMPLITUDE_PRIOR = (0.0, 1.5)
NOISE_PRIOR = (-4.0, 1.5)
BOUND = 8.0
"""No logarithm leaves ±BOUND: beyond it nothing changes but the condition of the matrix."""
ITERATIONS = 40
LEVEL = 2.0
"""Standard deviation of the level, in units of how far scores lie apart."""
SLOPE = 0.5
"""… of how much more or less everything matters here than elsewhere."""
CARRIED_JOBS = 4.0
"""Jobs that what ``T`` leaves elsewhere counts as, beside the context's own."""
TILT = 0.5
"""How much of a straight line through its own jobs is believed, where nothing else is known."""
PENALTIES = (0.3, 3.0, 30.0, 300.0)
"""Of that line; the one with the least generalised cross-validation."""
LEARN_ROWS = 120
"""Rows that lengths are chosen by: the gradient costs n² per length."""
JITTER = 1e-8
CHUNK = 1024
ROOT5 = float(np.sqrt(5.0))


@dataclass(frozen=True)
class Local:
    """What is believed of one context. Inside, scores are in units of ``unit``."""

    groups: IntArray
    """(C,) which length each coordinate has."""
    Z: FloatArray
    """(n, C) configurations that were run; n may be 0."""
    told: FloatArray
    """(n,) what other contexts say of them, in scores."""
    tilt: FloatArray | None
    """(C,) slope of the line that stands for that where nobody says anything."""
    theta: FloatArray
    """(G + 2,) logarithms of lengths, amplitude and noise."""
    factor: FloatArray
    """(n, n) lower Cholesky factor of their covariance."""
    alpha: FloatArray
    """(n,)"""
    unit: float
    """Score units per unit of the process."""
    middle: float
    """Mean of ``told``: the slope turns around it."""
    level: float
    """Mean of scores less ``told``."""

    @classmethod
    def fit(
        cls,
        groups: IntArray,
        Z: FloatArray,
        score: FloatArray,
        weight: FloatArray,
        told: FloatArray | None = None,
        left: float | None = None,
        theta: FloatArray | None = None,
    ) -> Self:
        """Learn from (n, C) configurations with ``score`` (n,), noise e^noise / ``weight`` (n,).

        ``told`` (n,) is what other contexts say of them, None for nothing; ``left`` is the standard
        deviation of what that leaves in other contexts. ``theta`` (G + 2,) is taken where it is
        given, and chosen otherwise.
        """
        n = len(score)
        tilt = None
        if told is None:
            tilt = _tilt(Z, score)
            told = Z @ tilt
        middle = float(told.mean()) if n else 0.0
        rest = score - told
        level = float(rest.mean()) if n else 0.0
        carried = 0.0 if left is None else CARRIED_JOBS
        squares = float(((rest - level) ** 2).sum()) + carried * (left or 0.0) ** 2
        unit = float(np.sqrt(squares / max(n - 1 + carried, 1.0)))
        unit = unit if unit > 1e-9 else 1.0
        y = (rest - level) / unit
        slope = (told - middle) / unit if tilt is None else np.zeros(n)
        count = int(groups.max(initial=-1)) + 1
        chosen = theta is not None
        if theta is None:
            theta = np.array([LENGTH_PRIOR[0]] * count + [AMPLITUDE_PRIOR[0], NOISE_PRIOR[0]])
        if n > 2 and count and not chosen:
            some = slice(0, LEARN_ROWS)
            apart = _apart(Z[some], groups, count)
            found = minimize(
                lambda at: _posterior(at, apart, y[some], slope[some], weight[some]),
                theta,
                jac=True,
                method="L-BFGS-B",
                bounds=[(-BOUND, BOUND)] * len(theta),
                options={"maxiter": ITERATIONS},
            )
            theta = found.x
        empty = cls(groups, Z, told, tilt, theta, np.zeros((0, 0)), y, unit, middle, level)
        if not n:
            return empty
        K = empty._between(Z, told, Z, told)
        K[np.diag_indices(n)] += np.exp(theta[-1]) / weight + JITTER
        factor = np.tril(cho_factor(K, lower=True)[0])
        alpha = cho_solve((factor, True), y)
        return cls(groups, Z, told, tilt, theta, factor, alpha, unit, middle, level)

    @property
    def noise(self) -> float:
        """Variance of one run, in scores."""
        return float(np.exp(self.theta[-1])) * self.unit**2

    def predict(
        self, Z: FloatArray, told: FloatArray | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """(m, C) → (m,) mean, and (m,) variance without the noise of a run."""
        told = self._line(Z, told)
        mean, variance = np.zeros(len(Z)), self._prior(told)
        for start in range(0, len(Z) if len(self.Z) else 0, CHUNK):
            part = slice(start, start + CHUNK)
            across = self._between(Z[part], told[part], self.Z, self.told)
            mean[part] = across @ self.alpha
            known = solve_triangular(self.factor, across.T, lower=True, check_finite=False)
            variance[part] -= np.einsum("nm,nm->m", known, known)
        return told + self.level + mean * self.unit, np.maximum(variance, 1e-9) * self.unit**2

    def covariance(self, Z: FloatArray, told: FloatArray | None, row: int) -> FloatArray:
        """(m, C) → (m,) covariance of each with one of them, without the noise of a run."""
        told = self._line(Z, told)
        found = self._between(Z, told, Z[[row]], told[[row]])[:, 0]
        if len(self.Z):
            one = self._between(self.Z, self.told, Z[[row]], told[[row]])[:, 0]
            pull = cho_solve((self.factor, True), one)
            found = found - self._between(Z, told, self.Z, self.told) @ pull
        return np.asarray(found * self.unit**2, np.float64)

    def _between(self, Z: FloatArray, t: FloatArray, W: FloatArray, u: FloatArray) -> FloatArray:
        scale = np.exp(-self.theta[self.groups])
        A, B = Z * scale, W * scale
        squares = (A**2).sum(axis=1)[:, None] + (B**2).sum(axis=1)[None, :] - 2.0 * A @ B.T
        k = np.exp(self.theta[-2]) * _matern(np.sqrt(np.maximum(squares, 0.0)))
        slope = np.outer(t - self.middle, u - self.middle) * self._slope**2
        return np.asarray(LEVEL**2 + slope + k, np.float64)

    def _prior(self, t: FloatArray) -> FloatArray:
        slope = ((t - self.middle) * self._slope) ** 2
        return np.asarray(LEVEL**2 + slope + np.exp(self.theta[-2]), np.float64)

    @property
    def _slope(self) -> float:
        """There is nothing to turn around before the first job, nor without other contexts."""
        return SLOPE / self.unit if len(self.Z) and self.tilt is None else 0.0

    def _line(self, Z: FloatArray, told: FloatArray | None) -> FloatArray:
        if told is None:
            told = np.zeros(len(Z)) if self.tilt is None else Z @ self.tilt
        return told


def _tilt(Z: FloatArray, score: FloatArray) -> FloatArray:
    """(C,) part of the slope of a ridge regression (Golub, Heath and Wahba 1979)."""
    if len(Z) < 3:
        return np.zeros(Z.shape[1])
    U, size, V = np.linalg.svd(Z - Z.mean(axis=0), full_matrices=False)
    pulls = U.T @ (score - score.mean())
    found = []
    for penalty in PENALTIES:
        kept = size**2 / (size**2 + penalty)
        off = score - score.mean() - U @ (kept * pulls)
        free = max(len(Z) - 1.0 - kept.sum(), 0.5)
        found.append((float(off @ off) / free**2, penalty))
    penalty = min(found)[1]
    return np.asarray(TILT * (V.T @ (size / (size**2 + penalty) * pulls)), np.float64)


def _matern(r: FloatArray) -> FloatArray:
    return np.asarray((1.0 + ROOT5 * r + (5.0 / 3.0) * r**2) * np.exp(-ROOT5 * r), np.float64)


def _apart(Z: FloatArray, groups: IntArray, count: int) -> FloatArray:
    """(G, n, n) squared distances in each group of coordinates."""
    apart = np.zeros((count, len(Z), len(Z)))
    for column, group in enumerate(groups.tolist()):
        apart[group] += (Z[:, None, column] - Z[None, :, column]) ** 2
    return apart


def _posterior(
    theta: FloatArray, apart: FloatArray, y: FloatArray, slope: FloatArray, weight: FloatArray
) -> tuple[float, FloatArray]:
    """Negative logarithm of the posterior but for a constant, and its gradient."""
    n = len(y)
    falls = np.exp(-2.0 * theta[:-2])
    r = np.sqrt(np.tensordot(falls, apart, axes=1))
    amplitude, noise = np.exp(theta[-2]), np.exp(theta[-1]) / weight
    fall = np.exp(-ROOT5 * r)
    k = amplitude * (1.0 + ROOT5 * r + (5.0 / 3.0) * r**2) * fall
    K = LEVEL**2 + SLOPE**2 * np.outer(slope, slope) + k
    K[np.diag_indices(n)] += noise + JITTER
    factor = cho_factor(K, lower=True, check_finite=False)
    alpha = cho_solve(factor, y, check_finite=False)
    value = 0.5 * float(y @ alpha) + float(np.log(np.diag(factor[0])).sum())
    pull = 0.5 * (cho_solve(factor, np.eye(n), check_finite=False) - np.outer(alpha, alpha))
    # dk / d log ℓ = amplitude (5/3)(1 + √5 r) e^(-√5 r) d² / ℓ²
    around = pull * (amplitude * (5.0 / 3.0)) * (1.0 + ROOT5 * r) * fall
    by_length = falls * np.einsum("gnm,nm->g", apart, around)
    gradient = np.array([*by_length, np.vdot(pull, k), float(np.diag(pull) @ noise)])
    priors = [LENGTH_PRIOR] * len(falls) + [AMPLITUDE_PRIOR, NOISE_PRIOR]
    mean, sd = np.array(priors).T
    off = (theta - mean) / sd
    return value + 0.5 * float(off @ off), gradient + off / sd
