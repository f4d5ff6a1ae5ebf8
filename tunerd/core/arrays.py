"""The arrays that rooms of the core hand each other."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = [
    "Array",
    "BoolArray",
    "Codes",
    "FloatArray",
    "IntArray",
    "Words",
    "jobs_of",
    "names_of",
    "numbered",
    "places_of",
    "shuffled",
    "stirred",
]

Array = npt.NDArray[Any]
BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Codes = npt.NDArray[np.int32]
"""Configurations as choice indices: (n, dimensions), or (dimensions,) for one."""


def names_of(codes: Codes) -> list[bytes]:
    """The name of each of (n, dimensions) configurations, by which they are told apart."""
    codes = np.ascontiguousarray(codes, np.int32)
    raw, step = codes.tobytes(), codes.shape[1] * codes.itemsize
    return [raw[i * step : (i + 1) * step] for i in range(len(codes))]


def places_of(keys: Iterable[str]) -> dict[str, IntArray]:
    """Key → (m,) at which places it stands, in the order in which keys first come."""
    places: dict[str, list[int]] = {}
    for i, key in enumerate(keys):
        places.setdefault(key, []).append(i)
    return {key: np.array(where, np.int64) for key, where in places.items()}


def numbered(keys: Sequence[str]) -> IntArray:
    """(n,) the number of each key, in the order in which keys first come."""
    numbers = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    return np.array([numbers[key] for key in keys], np.int64)


def jobs_of(counts: FloatArray) -> float:
    """How many jobs that count in full tell as much as (n,) jobs that count so much (Kish)."""
    squares = float((counts**2).sum())
    return float(counts.sum()) ** 2 / squares if squares else 0.0


def shuffled(rng: np.random.Generator, counts: FloatArray) -> IntArray:
    """(n,) places at random, those that count more (n,) the earlier: as if at any moment the next
    came by lot, with as many tickets as it counts (Efraimidis and Spirakis 2006)."""
    order = rng.permutation(len(counts))
    if not len(counts) or (counts == counts[0]).all():
        return order
    late = np.empty(len(counts))
    late[order] = (np.arange(len(counts)) + 0.5) / len(counts)
    return np.argsort(-np.log1p(-late) / counts, kind="stable")


def stirred(words: Words) -> Words:
    """Mix 64 bits each, so that what differs in few of them looks evenly spread (SplitMix64's
    finalizer). One to one: no two ever become the same."""
    z = words * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(z ^ (z >> np.uint64(31)), np.uint64)
