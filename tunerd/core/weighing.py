"""What a configuration is worth, given that it may not run."""

import numpy as np

from tunerd.core.arrays import FloatArray

__all__ = ["weighed"]


def weighed(value: FloatArray, feasible: FloatArray, min_feasible: float) -> FloatArray:
    """Values (n,) in score units times the probability to run: on a log scale a product is a sum.

    What most likely does not run sinks below everything else, but keeps its order, so that a
    policy still feels the slope towards what runs.
    """
    worth = value + np.log(np.clip(feasible, 1e-3, 1.0))
    sunk: FloatArray = worth - 10.0 * (1.0 - feasible)
    return np.where(feasible < min_feasible, sunk, worth)
