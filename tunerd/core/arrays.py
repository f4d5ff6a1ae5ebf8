"""The arrays that rooms of the core hand each other."""

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Array", "BoolArray", "Codes", "FloatArray", "IntArray"]

Array = npt.NDArray[Any]
BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]
"""Configurations as choice indices: (n, dimensions), or (dimensions,) for one."""
