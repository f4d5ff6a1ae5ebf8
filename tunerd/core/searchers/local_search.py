"""The last steps of a search: look at everything beside the best, until nothing beside is better.

A policy converges to where its average draw scores well, which may be one change away from a far
better configuration: on the wrong side of a cliff such as ``min_feasible``. In the ads study with
24 layers, three of four searches ended below one without this, and none with it.

All changes of one configuration are looked at together, and those that help are then combined:
where parameters hardly depend on each other, one round finds what single steps need fifty for.
"""

from collections.abc import Iterable

import numpy as np

from tunerd.core.arrays import Codes, FloatArray, IntArray
from tunerd.core.searchers.base import CachedScorer
from tunerd.core.searchers.groups import runs, trades
from tunerd.core.space import SearchSpace

__all__ = ["climb", "neighbours", "polish"]

TABLE_ROWS = 512
"""Rows up to which a whole block is exchanged, so that tied dimensions move together; of larger
ones those that differ in one or two dimensions."""
CHOICES = 64
"""Choices up to which all of a dimension are tried; of more, the nearest and some others."""
ROWS = 2_048
"""Neighbours of one configuration that are looked at, drawn at random where there are more."""


def polish(
    space: SearchSpace, scored: CachedScorer, lanes: Iterable[int], rng: np.random.Generator
) -> None:
    """Climb from the best, then from the best of each of these lanes while the budget lasts."""
    lane = scored.new_lane()
    while scored.left:
        best = scored.best(1)
        if not len(best.codes):
            return
        scored.lane = lane
        climb(space, scored, best.codes[0], float(best.scores[0]), rng)
        if scored.best(1).scores[0] <= best.scores[0]:
            break
    for other in lanes:
        scored.lane = other
        best = scored.best(1, other)
        if len(best.codes):
            climb(space, scored, best.codes[0], float(best.scores[0]), rng)


def climb(
    space: SearchSpace, scored: CachedScorer, code: Codes, score: float, rng: np.random.Generator
) -> tuple[Codes, float]:
    """Go to the best configuration beside ``code`` (D,), again and again while that is better;
    returns the last."""
    traded = False
    while scored.left:
        if traded:
            beside = trades(space, code, rng)
        else:
            beside = np.concatenate([runs(space, code), neighbours(space, code, rng)])
        scores = _usable(scored(beside))
        combined = _combined(space, code, beside, scores, score)
        beside = np.concatenate([beside, combined])
        scores = np.concatenate([scores, _usable(scored(combined))])
        if not len(scores) or scores.max() <= score:
            if traded:
                break
            traded = True  # the last resort, and the dearest
            continue
        traded = False
        at = int(scores.argmax())
        code, score = beside[at], float(scores[at])
    return code, score


def _usable(scores: FloatArray) -> FloatArray:
    return np.where(np.isnan(scores), -np.inf, scores)


def _combined(
    space: SearchSpace, code: Codes, beside: Codes, scores: FloatArray, score: float
) -> Codes:
    """The best changes together: the first two, three, four, six, … that touch different
    dimensions."""
    order = np.argsort(-scores, kind="stable")
    order = order[scores[order] > score]
    together, free, passed, wanted = code.copy(), np.ones(len(code), bool), [], 2
    count = 0
    for row in beside[order]:
        changed = row != code
        if not free[changed].all():
            continue
        together[changed] = row[changed]
        free &= ~changed
        count += 1
        if count == wanted:
            passed.append(together.copy())
            wanted += max(wanted // 2, 1)
    if count > 1:
        passed.append(together)
    rows = np.array(passed, np.int32).reshape(len(passed), len(code))
    return rows[space.feasible(rows)] if len(rows) else rows


def neighbours(space: SearchSpace, code: Codes, rng: np.random.Generator) -> Codes:
    """Return feasible configurations that differ from ``code`` (D,) in one small block or, within
    a larger one, in one dimension or two: (n, D), in random order, ``code`` itself perhaps among
    them."""
    changes: list[tuple[IntArray, Codes]] = []
    for block in space.blocks:
        if block.table is not None and len(block.table) <= TABLE_ROWS:
            changes.append((block.dimensions, block.table))
            continue
        if block.table is not None and len(block.dimensions) > 1:
            changes.append((block.dimensions, _near(block.table, code[block.dimensions], rng)))
            continue
        for dimension in block.dimensions.tolist():
            values = _choices(int(space.sizes[dimension]), int(code[dimension]))
            changes.append((np.array([dimension]), values[:, None].astype(np.int32)))
    moves: list[Codes] = []
    for place in rng.permutation(len(changes)).tolist():
        dimensions, values = changes[place]
        rows = np.repeat(code[None, :], len(values), axis=0)
        rows[:, dimensions] = values
        moves.append(rows[space.feasible(rows)])
        if sum(map(len, moves)) >= ROWS:
            break
    return np.concatenate(moves)[:ROWS]


def _near(table: Codes, at: Codes, rng: np.random.Generator) -> Codes:
    """Rows of a table that differ in one dimension, and some of those that differ in two."""
    differ = (table != at).sum(axis=1)
    single, two = np.flatnonzero(differ == 1), np.flatnonzero(differ == 2)
    some = rng.permutation(two)[: max(len(single), CHOICES)]
    near: Codes = table[np.concatenate([single, some])]
    return near


def _choices(size: int, at: int) -> IntArray:
    if size <= CHOICES:
        return np.arange(size)
    near = np.arange(max(at - 8, 0), min(at + 9, size))
    return np.union1d(near, np.linspace(0, size - 1, CHOICES - len(near)).astype(np.int64))
