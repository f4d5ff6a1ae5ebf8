"""Which jobs to leave out of a fit, to see what it says of jobs that it has not seen.

Whole contexts, because a context that nobody has run is predicted worse than a new configuration in
one that is known. And not any contexts, but all of one kind and the largest, because that is how
new contexts come, with a new GPU type or as jobs grow: how a predictor does on contexts that have
near relatives says little of how it does on those that have none.

And jobs alone, in fits of their own: one that misses half of the contexts would tell less of the
others too, and who learns from a context's own jobs would seem to be worth more than it is.

Between the two lie contexts of which a few jobs are known (:func:`all_but_few`): who is best there
is best neither where nothing is known nor where hundreds of jobs are.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tunerd.core.arrays import BoolArray, FloatArray, IntArray
from tunerd.core.features import FeatureMap, FeatureRows

__all__ = ["FEW_ROWS", "ValidationFold", "all_but_few", "apart"]

MOST_LEFT = 0.6
"""Share of all rows that one fit leaves out at most, if there are contexts enough."""
ONE_IN = 5
"""One in so many rows is left out alone, …"""
TURNS = 2
"""… so many times, …"""
ENOUGH = 400
"""… or until so many were."""
FEW_ROWS = 5
"""Rows that have to be left for a fit."""
MOST_KEPT = 20
"""Rows that a context keeps of which most are left out; never more than half."""


@dataclass(frozen=True)
class ValidationFold:
    """A fit that leaves rows out."""

    without: frozenset[str]
    """Contexts of which it sees nothing; none where rows are left out alone."""
    held: IntArray
    """The rows left out: all rows of those contexts, or some of any."""
    kept: IntArray
    """All others."""


def apart(rows: FeatureRows, features: FeatureMap, seed: int) -> Iterator[ValidationFold]:
    """Leave each context out once, where there are several: one kind of them; of the others the
    largest; and the rest. Then leave out rows alone."""
    rng = np.random.default_rng(seed)
    names, first, group = np.unique(
        np.array(rows.context_key), return_index=True, return_inverse=True
    )
    turn = rng.permutation(len(rows)) % ONE_IN
    if len(names) > 1:
        part = _parted(rows.X[first], np.bincount(group), features, rng)
        for fold in np.unique(part).tolist():
            yield from _fold(part[group] == fold, frozenset(names[part == fold]))
    for fold in range(1 if len(rows) >= ENOUGH * ONE_IN else TURNS):
        yield from _fold(turn == fold, frozenset())


def all_but_few(rows: FeatureRows, features: FeatureMap, seed: int) -> Iterator[ValidationFold]:
    """Leave out most rows of one kind of contexts and of the largest, as it is soon after they were
    new, in one fold: each keeps between 1 and :data:`MOST_KEPT`, 1 or 2 as often as 10 to 20. Where
    there are several contexts and rows enough."""
    rng = np.random.default_rng([seed, 1])
    names, first, group, size = np.unique(
        np.array(rows.context_key), return_index=True, return_inverse=True, return_counts=True
    )
    if len(names) < 2:
        return
    part = _parted(rows.X[first], size, features, rng)
    kinds = [kind for kind in (0, 1) if (part == kind).any()] or [2]
    if size[np.isin(part, kinds)].sum() > MOST_LEFT * len(rows):
        kinds = kinds[:1]
    places = np.split(np.argsort(group, kind="stable"), np.cumsum(size)[:-1])
    held = np.zeros(len(rows), bool)
    for context in np.flatnonzero(np.isin(part, kinds)).tolist():
        there = rng.permutation(places[context])
        held[there[min(round(MOST_KEPT ** rng.random()), max(len(there) // 2, 1)) :]] = True
    yield from _fold(held, frozenset())


def _fold(held: BoolArray, without: frozenset[str]) -> Iterator[ValidationFold]:
    if held.any() and (~held).sum() >= FEW_ROWS:
        yield ValidationFold(without, np.flatnonzero(held), np.flatnonzero(~held))


def _parted(
    X: FloatArray, size: IntArray, features: FeatureMap, rng: np.random.Generator
) -> IntArray:
    """(contexts,) the fold that each of some contexts (contexts, F) is left out in."""
    part = np.full(len(X), 2)
    columns = [(i, c) for i, c in enumerate(features.columns) if c.group == "context"]
    left = np.ones(len(X), bool)
    for fold, categorical in ((0, True), (1, False)):
        masks = []
        for i, column in columns:
            there = np.unique(X[left & ~np.isnan(X[:, i]), i])
            if column.categorical is not categorical or len(there) < 2:
                continue
            chosen = X[:, i] == rng.choice(there)
            if not categorical:
                chosen = X[:, i] > there[(2 * len(there) - 1) // 3]
            masks.append(chosen & left)
        usable = [m for m in masks if m.any() and size[m].sum() <= MOST_LEFT * size.sum()]
        if usable:
            part[chosen := usable[int(rng.integers(len(usable)))]] = fold
            left &= ~chosen
    if size[left].sum() > MOST_LEFT * size.sum():  # nothing tells them apart
        rest = np.flatnonzero(left)
        part[rng.permutation(rest)] = 2 + np.arange(len(rest)) % 3
    return part
