"""Log odds: in which evidence about a probability adds up, however near to 0 or 1 it is."""

import numpy as np
from scipy.special import logit

from tunerd.core.arrays import FloatArray

__all__ = ["log_odds"]

SURE = 1e-6
"""Nothing is as improbable as this, or as probable. At .001 most of what a forest finds hopeless is
equally hopeless, and the order among it is lost."""


def log_odds(p: FloatArray) -> FloatArray:
    """Of probabilities, 0 and 1 included; of the same shape."""
    return np.asarray(logit(np.clip(p, SURE, 1.0 - SURE)), np.float64)
