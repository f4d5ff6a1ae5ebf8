"""The arrays that rooms of the core hand each other."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Array", "BoolArray", "Codes", "FloatArray", "IntArray", "places_of"]

Array = npt.NDArray[Any]
BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]
"""Configurations as choice indices: (n, dimensions), or (dimensions,) for one."""


def places_of(keys: Iterable[str]) -> dict[str, IntArray]:
    """Key → (m,) at which places it stands, in the order in which keys first come."""
    places: dict[str, list[int]] = {}
    for i, key in enumerate(keys):
        places.setdefault(key, []).append(i)
    return {key: np.array(where, np.int64) for key, where in places.items()}
