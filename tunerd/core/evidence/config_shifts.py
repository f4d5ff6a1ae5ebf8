"""By how much each configuration's speed moved at a change, told from those that ran since.

After a change only what ran since says where it is now. Whether the rest moved along is open: the
context may have slowed down as a whole, or whatever shares a parameter's value, or a number may
count for more or less than it did, or the one configuration moved that all jobs run. Each is an
explanation of its own: a Gaussian process over configurations, of which most of the covariance is
of that kind. What ran since decides between them by how likely each makes it (Bayesian model
averaging), and the first runner-up that runs mostly tells.

Rasmussen & Williams, *Gaussian Processes for Machine Learning* (2006): eqs. 2.25 and 2.26 for the
posterior, 2.30 for the likelihood, 5.12 for leaving one observation out.
"""

import json
from collections.abc import Mapping, Sequence

import numpy as np

from tunerd.core.arrays import BoolArray, FloatArray
from tunerd.core.observation import Value

__all__ = ["shifts"]

MAINLY, BESIDE = 0.7, 0.1
"""Parts of a shift's variance that are of an explanation's kind, and of each of the others."""


def shifts(
    configs: Sequence[Mapping[str, Value]],
    moved: FloatArray,
    variance: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """What is believed of each configuration's shift, its own jobs since the change left out.

    Args:
        configs: n configurations.
        moved: (n,) by how much those that ran since have moved, in scores; NaN for the others.
        variance: (n,) of what ``moved`` says, as an estimate.

    Returns:
        (n,) means and (n,) standard deviations, in scores.
    """
    ran = np.isfinite(moved)
    moved_ran = moved[ran]
    if not len(moved_ran):
        return np.zeros(len(configs)), np.full(len(configs), np.inf)
    scale = float(np.mean(np.maximum(moved_ran**2, variance[ran])))
    explanations = [
        _explained(scale * covariance, scale * own, ran, moved_ran, variance[ran])
        for covariance, own in _explanations(configs, ran)
    ]
    likelihood = np.array([explanation[2] for explanation in explanations])
    weight = np.exp(likelihood - likelihood.max())
    weight /= weight.sum()
    means, variances = (
        np.stack([explanation[0] for explanation in explanations]),
        np.stack([explanation[1] for explanation in explanations]),
    )
    mean = weight @ means
    spread = weight @ (variances + (means - mean) ** 2)
    return mean, np.sqrt(np.maximum(spread, 1e-12 * scale))


def _explained(
    prior: FloatArray, own: FloatArray, ran: BoolArray, seen: FloatArray, variance: FloatArray
) -> tuple[FloatArray, FloatArray, float]:
    """(n,) means and (n,) variances by one explanation, and the logarithm of how likely it makes
    what was ``seen`` (r,). ``prior`` (n, r) is the covariance of all with those that ran, ``own``
    (n,) the variance of each."""
    covariance = prior[ran] + np.diag(variance + 1e-9 * own.max())
    inverse = np.linalg.inv(covariance)
    weighed = prior @ inverse
    mean = weighed @ seen
    left = own - (weighed * prior).sum(axis=1)
    # Of what ran itself, as the others tell it.
    weight = inverse.diagonal()
    mean[ran] = seen - (inverse @ seen) / weight
    left[ran] = 1.0 / weight - variance
    likelihood = -0.5 * (seen @ inverse @ seen + np.linalg.slogdet(covariance)[1])
    return mean, np.maximum(left, 0.0), float(likelihood)


def _explanations(
    configs: Sequence[Mapping[str, Value]], ran: BoolArray
) -> list[tuple[FloatArray, FloatArray]]:
    """By each kind of change, before anything is known of it: the (n, r) covariances of the shifts
    of configurations with those that ran, and the (n,) variances, in units of the scale."""
    shape = (len(configs), int(ran.sum()))
    names = sorted({name for config in configs for name in config})
    same, slopes, steep = np.zeros(shape), np.zeros(shape), np.zeros(len(configs))
    for name in names:
        values = [config.get(name) for config in configs]
        texts = [json.dumps(value) for value in values]
        index = {text: i for i, text in enumerate(dict.fromkeys(texts))}
        codes = np.array([index[text] for text in texts])
        same += codes[:, None] == codes[ran]
        if len(index) > 1 and all(_is_number(value) for value in values):
            known, places = np.unique(np.array(values, np.float64), return_inverse=True)
            x = 2.0 * places / (len(known) - 1) - 1.0
            slopes += np.outer(x, x[ran])
            steep += x**2
    whole, ones = max(len(names), 1), np.ones(len(configs))
    parts = [
        (np.ones(shape), ones),
        (same / whole, ones),
        (slopes / whole, steep / whole),
        ((same == len(names)) * 1.0, ones),
    ]
    rest = [BESIDE * np.sum([part[i] for part in parts], axis=0) for i in (0, 1)]
    more = MAINLY - BESIDE
    return [(rest[0] + more * both, rest[1] + more * own) for both, own in parts]


def _is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
