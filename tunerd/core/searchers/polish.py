"""The last steps of a search: look at everything beside the best, until nothing beside is better.

A policy converges to where its average draw scores well, which may be one change away from a far
better configuration: on the wrong side of a cliff such as ``min_feasible``. In the ads study with
24 layers, three of four searches ended below one without this, and none with it.
"""

from typing import TYPE_CHECKING

import numpy as np

from tunerd.core.arrays import Codes, IntArray
from tunerd.core.searchers.base import Scored

if TYPE_CHECKING:
    from tunerd.core.space import Space

__all__ = ["neighbours", "polish"]

TABLE_ROWS = 512
"""Rows up to which a whole block is exchanged, so that tied dimensions move together."""
CHOICES = 64
"""Choices up to which all of a dimension are tried; of more, the nearest and some others."""
ROWS = 2_048
"""Neighbours of one configuration that are looked at, drawn at random where there are more."""


def polish(space: "Space", scored: Scored, count: int, rng: np.random.Generator) -> None:
    """Score the neighbours of the ``count`` best, again and again while the best improves."""
    while scored.left:
        best = scored.best(count)
        if not len(best.codes):
            return
        scored(np.concatenate([neighbours(space, code, rng) for code in best.codes]))
        if scored.best(1).scores[0] <= best.scores[0]:
            return


def neighbours(space: "Space", code: Codes, rng: np.random.Generator) -> Codes:
    """Return feasible configurations that differ from ``code`` (D,) in one small block or, within
    a larger one, in one dimension: (n, D), in random order, ``code`` itself perhaps among them."""
    changes: list[tuple[IntArray, Codes]] = []
    for block in space.blocks:
        if block.table is not None and len(block.table) <= TABLE_ROWS:
            changes.append((block.dimensions, block.table))
            continue
        for dimension in block.dimensions.tolist():
            values = _choices(int(space.sizes[dimension]), int(code[dimension]))
            changes.append((np.array([dimension]), values[:, None].astype(np.int32)))
    found: list[Codes] = []
    for place in rng.permutation(len(changes)).tolist():
        dimensions, values = changes[place]
        rows = np.repeat(code[None, :], len(values), axis=0)
        rows[:, dimensions] = values
        found.append(rows[space.feasible(rows)])
        if sum(map(len, found)) >= ROWS:
            break
    return np.concatenate(found)[:ROWS]


def _choices(size: int, at: int) -> IntArray:
    if size <= CHOICES:
        return np.arange(size)
    near = np.arange(max(at - 8, 0), min(at + 9, size))
    return np.union1d(near, np.linspace(0, size - 1, CHOICES - len(near)).astype(np.int64))
