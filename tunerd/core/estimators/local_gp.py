"""A Gaussian process over one context's own jobs, around what other contexts predict for it.

One form with and without history::

    score = level + b T(x) + f(x) + noise      level ~ N(0, apart²), b ~ N(1, e^2s), f ~ GP(k)
    k(x, y) = e^a x·y + e^c matern(|x - y|)    over the configuration, in units of the lengths

``T`` is what was learned elsewhere, 0 where nothing was. The first part of ``k`` is a straight line
with a slope of its own for each coordinate, the second Matérn 5/2; they share one length per
parameter. Lengths, amplitudes, noise and how far ``b`` may be from 1 are chosen by their posterior
(MAP) with exact gradients.
Ten jobs tell lengths badly, and what is chosen is believed as if it were known: the priors are firm
enough that a few jobs do not make it follow their noise, and where there are other contexts, theirs
say what is usual (:func:`usual`). A fit on sixty jobs takes a few milliseconds, so that it is made
anew whenever it is needed. Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006:
algorithm 2.1, equations 4.17, 5.9 and 5.12.

What others say may be so good that a few jobs can only spoil it, or so wrong that only these count.
So ``b`` and ``f`` count by how well they tell each job from the others, beside ``T`` and the level
alone (stacking, Wolpert 1992). A few jobs tell that badly: before them it is what replays of other
contexts showed. How far whole contexts lie off ``T`` is learned from those too: if that is seldom
far, five slow jobs of one corner say that the corner is slow, and not that everything is.

All of that is learned elsewhere too, and may be as wrong here as ``T``: where scores are noise in
every other context, ten jobs hardly move a process that expects noise. So a process that knows of
its own few jobs alone stands beside it, by how well both tell each of these from the others
(:meth:`LocalGP.hedged`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.linalg.lapack import dtrtri
from scipy.optimize import minimize

from tunerd.core.arrays import FloatArray, IntArray
from tunerd.core.estimators.matern import matern, sloped, squares

__all__ = ["ContextRuns", "Elsewhere", "LocalGP", "replayed_share", "usual"]

LENGTH_PRIOR = (1.3, 0.8)
"""Mean and standard deviation of the logarithm of a length; a parameter has unit variance."""
SLOPE_PRIOR = (-0.7, 1.0)
"""… of the standard deviation of ``b``, by how much more or less everything matters than elsewhere.
What lies far below all that was tried is as unsure as that allows: where contexts agree and it did
not say so, the worst there is was worth trying."""
STRAIGHT_PRIOR = (0.5, 1.0)
AMPLITUDE_PRIOR = (0.5, 1.0)
NOISE_PRIOR = (-3.5, 1.0)
BOUND = 4.0
"""Standard deviations of its prior that nothing chosen leaves."""
ITERATIONS = 40
LEVEL = 2.0
"""Standard deviation of the level, in units of how far scores lie apart."""
CARRIED_JOBS = 4.0
"""Jobs that what ``T`` leaves elsewhere counts as, beside the context's own."""
TOLD_JOBS = 4.0
"""Jobs that what replays of other contexts showed counts as, beside the context's own."""
HEDGED = (3, 40)
"""Least and most configurations with which a process that knows nothing of other contexts is asked:
it costs a second fit. With more the first has learned what is different here."""
FADING = 15.0
"""Configurations over which the second's word ends, not all at once."""
HEDGE_JOBS = 2.0
"""Jobs that trusting the first alone counts as, beside the context's own."""
REPLAYED = (5, 10)
"""Jobs after which a replay looks at the others of a context."""
REPLAYED_MOST, REPLAYED_LEAST = 100, 5
"""Jobs that it looks at."""
DOUBTED = 0.5
"""Replays beforehand by which what others say needs no correction but the level's."""
WILD = 4.0
"""Median errors beyond which an error in a replay counts no more."""
USUAL = 0.5
"""Standard deviations around what is usual in other contexts, in those of the priors."""
USUAL_ROWS = 60
"""Rows of one context that this is chosen by."""
LEARN_ROWS = 120
"""Rows that lengths are chosen by: the gradient costs n² per length."""
JITTER = 1e-8
"""Noise that there is anyway, beside the variance of scores: a matrix must not be singular, however
far from all others a configuration lies."""
SAME = 1e-9
"""Squared distance below which two configurations are one."""
CHUNK = 1024


class ContextRuns(NamedTuple):
    """What was run in a context."""

    Z: FloatArray
    """(n, C) configurations."""
    score: FloatArray
    """(n,)"""
    weight: FloatArray
    """(n,) runs that each counts as."""
    told: FloatArray
    """(n,) what other contexts say of them, in scores."""


class Elsewhere(NamedTuple):
    """What other contexts tell of how far one goes its own way."""

    left: float
    """Standard deviation of what ``T`` leaves within a context, in scores."""
    apart: float | None = None
    """… of how far whole contexts lie off ``T``, in scores; None where nothing tells it."""
    share: float = 0.0
    """What :attr:`LocalGP.share` came to in replays of them."""


@dataclass(frozen=True)
class LocalGP:
    """What is believed of one context. Inside, scores are in units of ``unit``."""

    groups: IntArray
    """(C,) which length each coordinate has."""
    Z: FloatArray
    """(n, C) configurations that were run; n may be 0."""
    told: FloatArray
    """(n,) what other contexts say of them, in scores; 0 where nobody says anything."""
    theta: FloatArray
    """(G + 4,) logarithms of lengths, of how far the slope may be from 1, of the amplitudes of both
    parts, and of the noise."""
    factor: FloatArray
    """(n, n) lower Cholesky factor of their covariance."""
    alpha: FloatArray
    """(n,)"""
    unit: float
    """Score units per unit of the process."""
    middle: float
    """Mean of ``told``: the slope turns around it."""
    level: float
    """Of scores less ``told``, by these and by what is known beforehand."""
    origin: float
    """What the level is around beforehand …"""
    level_variance: float
    """… and how far it may be from that: variance, in squared units."""
    share: float = 1.0
    """Of what is said of configurations beyond ``told`` and the level, where they were not run."""
    alone: Self | None = None
    """A process over the same configurations that knows nothing of other contexts …"""
    alone_share: float = 0.0
    """… and how much of what is said is its, where it knows what there is to know."""

    @classmethod
    def fit(
        cls,
        groups: IntArray,
        Z: FloatArray,
        score: FloatArray,
        weight: FloatArray,
        told: FloatArray | None = None,
        elsewhere: Elsewhere | None = None,
        theta: FloatArray | None = None,
        around: FloatArray | None = None,
    ) -> Self:
        """Learn from (n, C) configurations with ``score`` (n,), noise e^noise / ``weight`` (n,).

        ``told`` (n,) is what other contexts say of them, None for nothing, and ``elsewhere`` what
        those tell of how much that leaves. ``theta`` (G + 4,) is taken where it is
        given, and chosen otherwise: around what is :func:`usual`, if ``around`` says that.
        """
        n = len(score)
        told = np.zeros(n) if told is None else told
        runs = ContextRuns(Z, score, weight, told)
        middle = float(told.mean()) if n else 0.0
        level, unit = _scale(runs, elsewhere)
        origin, level_variance = level, LEVEL**2
        if elsewhere is not None and elsewhere.apart is not None:
            origin, level_variance = 0.0, (elsewhere.apart / unit) ** 2
            level *= float(_kept(level_variance, np.minimum(weight, 1.0).sum()))
        y = (score - told - origin) / unit
        count = int(groups.max(initial=-1)) + 1
        if theta is None:
            mean, sd = _priors(count)
            prior = (mean, sd) if around is None else (around, USUAL * sd)
            # Those tried last: older ones may be of other times.
            some = ContextRuns(*(values[-LEARN_ROWS:] for values in runs))
            told_by = n > 2 and count > 0
            terms = [_terms(some, groups, origin, unit, level_variance)] if told_by else []
            theta = _chosen(prior, terms)
        empty = cls(
            *(groups, Z, told, theta, np.zeros((0, 0)), y, unit, middle),
            *(level, origin, level_variance),
        )
        if not n:
            return empty
        K = _noisy(empty._between(Z, told, Z, told), np.exp(theta[-1]) / weight)
        factor = np.tril(cho_factor(K, lower=True)[0])
        alpha = cho_solve((factor, True), y)
        process = replace(empty, factor=factor, alpha=alpha)
        if elsewhere is None or n < 2:
            return process
        return replace(process, share=process._carried(runs, elsewhere))

    def hedged(self, score: FloatArray, weight: FloatArray) -> Self:
        """The same beside a process over ``score`` (n,) and ``weight`` (n,) alone, in the share
        that makes squared errors smallest where each job is told by the others (equation 5.12).

        Far from all that ran here that process knows a level and nothing else. There others keep
        their word, however wrong they were: what they call good is worth a look once what they
        called better was bad.
        """
        if not HEDGED[0] <= len(score) <= HEDGED[1]:
            return self
        alone = self.fit(self.groups, self.Z, score, weight)
        # Left out, a job is alpha / precision off, in units: equation 5.12.
        expected = self.told + self.level
        own = expected + self.share * (score - self.unit * self.alpha / self._precision - expected)
        other = score - alone.unit * alone.alpha / alone._precision
        apart = alone._known_left_out(weight) * (other - own)
        share = _share(np.minimum(weight, 1.0), apart, score - own, HEDGE_JOBS)
        fading = min((HEDGED[1] + 1 - len(score)) / FADING, 1.0)
        return replace(self, alone=alone, alone_share=fading * share)

    @property
    def noise(self) -> float:
        """Variance of one run, in scores."""
        noise = float(np.exp(self.theta[-1])) * self.unit**2
        if self.alone is None:
            return noise
        return noise + self.alone_share * (self.alone.noise - noise)

    def predict(
        self, Z: FloatArray, told: FloatArray | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """(m, C) → (m,) mean, and (m,) variance without the noise of a run."""
        mean, variance = self._predict(Z, told)
        if self.alone is None or not self.alone_share:
            return mean, variance
        other, its = self.alone.predict(Z)
        share = self.alone_share * self.alone._known(Z, its)
        apart = other - mean
        variance += share * (its - variance) + share * (1.0 - share) * apart**2
        return mean + share * apart, variance

    def _predict(self, Z: FloatArray, told: FloatArray | None) -> tuple[FloatArray, FloatArray]:
        told = np.zeros(len(Z)) if told is None else told
        mean, variance = np.zeros(len(Z)), self._prior(Z, told)
        share = np.full(len(Z), self.share)
        for start in range(0, len(Z) if len(self.Z) else 0, CHUNK):
            part = slice(start, start + CHUNK)
            across = self._between(Z[part], told[part], self.Z, self.told)
            mean[part] = across @ self.alpha + (self.origin - self.level) / self.unit
            known = solve_triangular(self.factor, across.T, lower=True, check_finite=False)
            variance[part] -= np.einsum("nm,nm->m", known, known)
            if self.share < 1.0:  # of what was run itself the process is right
                share[part][(squares(Z[part], self.Z) < SAME).any(axis=1)] = 1.0
        variance = np.maximum(variance, 1e-9)
        if self.share < 1.0:  # two that are believed by shares, the other as sure as jobs lie apart
            other = np.maximum(variance, 1.0 - np.exp(self.theta[-1]))
            variance = share * variance + (1.0 - share) * (other + share * mean**2)
        return told + self.level + share * mean * self.unit, variance * self.unit**2

    def _known(self, Z: FloatArray, variance: FloatArray) -> FloatArray:
        """(m,) how much of what sets (m, C) apart is known, 0 to 1; ``variance`` (m,) of them."""
        before = self._prior(Z, np.zeros(len(Z))) - self.level_variance
        return np.maximum(1.0 - variance / self.unit**2 / before, 0.0)

    def _known_left_out(self, weight: FloatArray) -> FloatArray:
        """(n,) the same of each of its own by the others (equation 5.12); ``weight`` (n,)."""
        variance = np.maximum(1.0 / self._precision - np.exp(self.theta[-1]) / weight, 0.0)
        return self._known(self.Z, variance * self.unit**2)

    def left_out(self, part: IntArray) -> FloatArray:
        """(n,) what it would say of its own configurations without those of the same ``part`` (n,),
        what was chosen staying as it is: equation 5.12, for several at once."""
        inverse = cho_solve((self.factor, True), np.eye(len(self.Z)))
        y = self.factor @ (self.factor.T @ self.alpha)
        off = np.zeros(len(y))
        for context_id in np.unique(part):
            there = np.flatnonzero(part == context_id)
            off[there] = np.linalg.solve(inverse[np.ix_(there, there)], self.alpha[there])
        return np.asarray(self.told + self.origin + (y - off) * self.unit, np.float64)

    def _carried(self, seen: ContextRuns, elsewhere: Elsewhere) -> float:
        """Share of what the process says of each job, told by the others (equation 5.12), beyond
        the level that these tell, at which squared errors are smallest; drawn to what
        replays showed by :data:`TOLD_JOBS`."""
        counts = np.minimum(seen.weight, 1.0)
        rest = seen.score - seen.told
        others = counts.sum() - counts
        level = ((counts @ rest) - counts * rest) / others
        if elsewhere.apart is not None:
            level = level * _kept(self.level_variance, others)
        missing = rest - level
        moved = missing - self.unit * self.alpha / self._precision
        return _share(counts, moved, missing, TOLD_JOBS, elsewhere.share)

    def covariance(self, Z: FloatArray, told: FloatArray | None, row: int) -> FloatArray:
        """(m, C) → (m,) covariance of each with one of them, without the noise of a run."""
        told = np.zeros(len(Z)) if told is None else told
        covariances = self._between(Z, told, Z[[row]], told[[row]])[:, 0]
        if len(self.Z):
            row_covariance = self._between(self.Z, self.told, Z[[row]], told[[row]])[:, 0]
            pull = cho_solve((self.factor, True), row_covariance)
            covariances = covariances - self._between(Z, told, self.Z, self.told) @ pull
        # What lies apart has nothing in common.
        covariances = self.share * covariances * self.unit**2
        if self.alone is not None:
            other = self.alone.covariance(Z, None, row)
            share = self.alone_share * self.alone._known(Z[[row]], self.alone.predict(Z[[row]])[1])
            covariances += share * (other - covariances)
        covariances[row] = self.predict(Z[[row]], told[[row]])[1][0]
        return np.asarray(covariances, np.float64)

    def _between(self, Z: FloatArray, t: FloatArray, W: FloatArray, u: FloatArray) -> FloatArray:
        A, B = self._scaled(Z), self._scaled(W)
        straight, amplitude = np.exp(self.theta[-3:-1])
        k = matern(squares(A, B))
        k *= amplitude
        k += A @ (straight * B).T
        k += np.outer(t - self.middle, (u - self.middle) * self._slope**2)
        k += self.level_variance
        return k

    def _prior(self, Z: FloatArray, t: FloatArray) -> FloatArray:
        straight, amplitude = np.exp(self.theta[-3:-1])
        k = straight * (self._scaled(Z) ** 2).sum(axis=1) + amplitude
        slope = ((t - self.middle) * self._slope) ** 2
        return np.asarray(self.level_variance + slope + k, np.float64)

    def _scaled(self, Z: FloatArray) -> FloatArray:
        return np.asarray(Z * np.exp(-self.theta[self.groups]), np.float64)

    @property
    def _precision(self) -> FloatArray:
        """(n,) diagonal of the inverse of their covariance."""
        return np.asarray((dtrtri(self.factor, lower=1)[0] ** 2).sum(axis=0), np.float64)

    @property
    def _slope(self) -> float:
        """There is nothing to turn around before the first job."""
        return float(np.exp(self.theta[-4])) / self.unit if len(self.Z) else 0.0


def usual(
    groups: IntArray, contexts: Sequence[ContextRuns], elsewhere: Elsewhere | None
) -> FloatArray:
    """(G + 4,) what several contexts choose together: a prior for the next one (Wang et al.,
    arXiv 2109.08215). ``elsewhere`` as in :meth:`LocalGP.fit`."""
    count = int(groups.max(initial=-1)) + 1
    latest = [ContextRuns(*(values[-USUAL_ROWS:] for values in runs)) for runs in contexts if count]
    terms = [_terms(runs, groups, *_scale(runs, elsewhere), LEVEL**2) for runs in latest]
    return _chosen(_priors(count), terms)


def replayed_share(
    groups: IntArray,
    contexts: Sequence[ContextRuns],
    elsewhere: Elsewhere,
    theta: FloatArray,
) -> float:
    """Share of what processes over the first jobs of several contexts said of their later ones,
    beyond ``told`` and the level, at which squared errors are smallest, 0 to 1.

    Each context counts the same, whatever its unit. ``theta`` is what they have chosen.
    """
    agreed, moved_most = 0.0, DOUBTED
    for runs in contexts:
        for first in REPLAYED:
            if len(runs.score) < first + REPLAYED_LEAST:
                continue
            known = ContextRuns(*(values[:first] for values in runs))
            later = ContextRuns(*(values[first : first + REPLAYED_MOST] for values in runs))
            process = replace(LocalGP.fit(groups, *known, elsewhere, theta), share=1.0)
            expected = later.told + process.level
            moved = process.predict(later.Z, later.told)[0] - expected
            missing = later.score - expected
            typical = max(float(np.median(np.abs(missing))), 1e-12)
            missing = np.clip(missing, -WILD * typical, WILD * typical) / typical
            agreed += float((moved / typical * missing).mean())
            moved_most += float(((moved / typical) ** 2).mean())
    return min(max(agreed / moved_most, 0.0), 1.0)


def _share(
    counts: FloatArray,
    moved: FloatArray,
    missing: FloatArray,
    jobs: float,
    before: float = 0.0,
) -> float:
    """Share, 0 to 1, of what was ``moved`` (n,) at which squares of what is ``missing`` (n,) are
    smallest, each counting ``counts`` (n,); drawn to ``before`` as by so many ``jobs``."""
    firm = jobs * float(counts @ missing**2) / float(counts.sum())
    agreed = float(counts @ (moved * missing)) + firm * before
    share = agreed / max(float(counts @ moved**2) + firm, 1e-300)
    return min(max(share, 0.0), 1.0)


def _kept(level_variance: float, jobs: FloatArray) -> FloatArray:
    """Part of the mean of so many jobs that the level is: jobs lie one unit apart."""
    return np.asarray(level_variance / (level_variance + 1.0 / np.maximum(jobs, 1e-9)), np.float64)


def _scale(seen: ContextRuns, elsewhere: Elsewhere | None) -> tuple[float, float]:
    """Level and unit of a process over some jobs. What counts little any more tells no level."""
    n, counts = len(seen.score), np.minimum(seen.weight, 1.0)
    rest = seen.score - seen.told
    level = float(counts @ rest) / float(counts.sum()) if n else 0.0
    carried, left = (0.0, 0.0) if elsewhere is None else (CARRIED_JOBS, elsewhere.left)
    total = float(((rest - level) ** 2).sum()) + carried * left**2
    unit = float(np.sqrt(total / max(n - 1 + carried, 1.0)))
    return level, unit if unit > 1e-9 else 1.0


def _terms(
    seen: ContextRuns, groups: IntArray, level: float, unit: float, level_variance: float
) -> tuple[FloatArray, ...]:
    """What :func:`_likelihood` takes beside what is chosen."""
    slope = (seen.told - seen.told.mean()) / unit
    y = (seen.score - seen.told - level) / unit
    parts = _parts(seen.Z, groups, int(groups.max(initial=-1)) + 1)
    return (*parts, y, slope, seen.weight, np.array(level_variance))


def _chosen(
    prior: tuple[FloatArray, FloatArray], terms: Sequence[tuple[FloatArray, ...]]
) -> FloatArray:
    """(G + 4,) of highest posterior by all of these jobs; the prior's mean where there are none."""
    mean, sd = prior
    if not terms:
        return mean
    posterior_mode = minimize(
        _posterior,
        mean,
        args=(prior, terms),
        jac=True,
        method="L-BFGS-B",
        bounds=np.stack([mean - BOUND * sd, mean + BOUND * sd], axis=1),
        options={"maxiter": ITERATIONS},
    )
    return np.asarray(posterior_mode.x, np.float64)


def _parts(Z: FloatArray, groups: IntArray, count: int) -> tuple[FloatArray, FloatArray]:
    """(G, n, n) squared distances and products in each group of coordinates."""
    apart, products = np.zeros((2, count, len(Z), len(Z)))
    for column, group in enumerate(groups.tolist()):
        z = Z[:, column]
        apart[group] += (z[:, None] - z) ** 2
        products[group] += z[:, None] * z
    return apart, products


def _priors(count: int) -> tuple[FloatArray, FloatArray]:
    """(G + 4,) means and standard deviations of what is chosen."""
    rest = [SLOPE_PRIOR, STRAIGHT_PRIOR, AMPLITUDE_PRIOR, NOISE_PRIOR]
    priors = [LENGTH_PRIOR] * count + rest
    mean, sd = np.array(priors).T
    return mean, sd


def _noisy(K: FloatArray, noise: FloatArray) -> FloatArray:
    K[np.diag_indices(len(K))] += noise + JITTER * np.mean(np.diag(K))
    return K


def _posterior(
    theta: FloatArray,
    prior: tuple[FloatArray, FloatArray],
    terms: Sequence[tuple[FloatArray, ...]],
) -> tuple[float, FloatArray]:
    """Negative logarithm of the posterior but for a constant, and its gradient."""
    mean, sd = prior
    off = (theta - mean) / sd
    value, gradient = 0.5 * float(off @ off), off / sd
    for term in terms:
        more, slope = _likelihood(theta, *term)
        value, gradient = value + more, gradient + slope
    return value, gradient


def _likelihood(
    theta: FloatArray,
    apart: FloatArray,
    products: FloatArray,
    y: FloatArray,
    slope: FloatArray,
    weight: FloatArray,
    level_variance: FloatArray,
) -> tuple[float, FloatArray]:
    """Negative logarithm of the likelihood but for a constant, and its gradient."""
    n = len(y)
    falls = np.exp(-2.0 * theta[:-4])
    slopes = np.exp(2.0 * theta[-4])
    straight, amplitude = np.exp(theta[-3:-1])
    noise = np.exp(theta[-1]) / weight
    k, near = sloped(np.tensordot(falls, apart, axes=1))
    k *= amplitude
    line = straight * np.tensordot(falls, products, axes=1)
    K = _noisy(level_variance + slopes * np.outer(slope, slope) + line + k, noise)
    factor = cho_factor(K, lower=True, check_finite=False)
    alpha = cho_solve(factor, y, check_finite=False)
    value = 0.5 * float(y @ alpha) + float(np.log(np.diag(factor[0])).sum())
    pull = 0.5 * (cho_solve(factor, np.eye(n), check_finite=False) - np.outer(alpha, alpha))
    # dk / d log ℓ = amplitude (5/3)(1 + √5 r) e^(-√5 r) d² / ℓ²
    # and of the straight part: -2 straight (z z') / ℓ²
    around = pull * (amplitude * (5.0 / 3.0)) * near
    by_length = np.einsum("gnm,nm->g", apart, around)
    by_length -= 2.0 * straight * np.einsum("gnm,nm->g", products, pull)
    by_amplitude = [2.0 * slopes * (slope @ pull @ slope), np.vdot(pull, line), np.vdot(pull, k)]
    gradient = np.array([*falls * by_length, *by_amplitude, float(np.diag(pull) @ noise)])
    return value, gradient
