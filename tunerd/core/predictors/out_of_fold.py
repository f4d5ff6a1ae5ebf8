"""How far off a predictor is on jobs that it has not seen, before there are live ones to tell.

Part of the rows is left out (:mod:`.folds`), the predictor fitted again without them, and asked.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tunerd.core.arrays import BoolArray, FloatArray, jobs_of, shuffled
from tunerd.core.conformal import HALF, Standing
from tunerd.core.features import FeatureMap, FeatureRows
from tunerd.core.predictors.folds import apart

__all__ = ["OutOfFoldPredictions", "doubted", "left_out"]

MOST_ROWS = 2_000
"""Rows that are used; of more a random sample, so that this costs no more than a small fit."""
NARROWER = 40.0
"""Jobs left out by which bands narrower than the predictor's own are half believed. With few jobs a
fit without some of them is much less sure of itself than the real one: what is too wide there need
not be too wide here."""
ENOUGH_ROWS = 12
"""Rows below which nothing is left out: what is kept would say nothing."""


@dataclass(frozen=True)
class OutOfFoldPredictions:
    """What a predictor said of n jobs that it had not seen, and what came of them."""

    keys: tuple[str, ...]
    """Of their contexts; jobs of one context in two fits are two contexts."""
    mean: FloatArray
    spread: FloatArray
    score: FloatArray
    known: BoolArray
    """Whether the fit saw others of the context …"""
    tried: BoolArray
    """… and of the very configuration."""
    counts: FloatArray | None = None
    """What is left of each job; None where that is all of it."""

    @property
    def told(self) -> FloatArray:
        """What each job counts."""
        return np.ones(len(self.keys)) if self.counts is None else self.counts

    def joined(self, other: "OutOfFoldPredictions") -> "OutOfFoldPredictions":
        """Return these and others."""
        return OutOfFoldPredictions(
            self.keys + other.keys,
            np.concatenate([self.mean, other.mean]),
            np.concatenate([self.spread, other.spread]),
            np.concatenate([self.score, other.score]),
            np.concatenate([self.known, other.known]),
            np.concatenate([self.tried, other.tried]),
            np.concatenate([self.told, other.told]),
        )

    def starts(self) -> dict[Standing, tuple[float, int]]:
        """What ``Bands.start`` takes: for each standing the 80 % quantile of sizes, and how many
        jobs it counts as.

        Errors in one context are alike, so a context that nobody has run counts as one job. An
        early context lies between a strange and a known one; a configuration that was tried is as
        one that was not, where none was left out.
        """
        size = np.abs(self.score - self.mean) / (HALF * np.maximum(self.spread, 1e-300))
        unknown = np.flatnonzero(~self.known)
        keys = [self.keys[i] for i in unknown.tolist()]
        counts = self.told
        strange = _quantile(size[unknown], counts[unknown], keys)
        fresh, again = self.known & ~self.tried, self.known & self.tried
        new = _quantile(size[fresh], counts[fresh])
        tried = _quantile(size[again], counts[again])
        near, same, far = new or tried or strange, tried or new or strange, strange or new or tried
        if near is None or same is None or far is None:
            return {}
        early = float(np.sqrt(far[0] * near[0])), far[1]
        return {"strange": far, "early": early, "new": near, "tried": same}


def doubted(factor: float, jobs: float) -> float:
    """A factor on spreads that so many jobs left out tell, drawn to 1 if it is below."""
    return factor if factor >= 1.0 else factor ** (jobs / (jobs + NARROWER))


def left_out(
    told: Callable[[FeatureRows, FeatureRows], tuple[FloatArray, FloatArray]],
    features: FeatureMap,
    rows: FeatureRows,
    seed: int,
) -> OutOfFoldPredictions | None:
    """Leave rows out, fit without them, and ask; None where there are too few. ``told`` fits on
    its first rows and returns mean and spread of its second, (n,) each. Costs up to five fits on
    at most :data:`MOST_ROWS` rows."""
    rows = rows.take(np.flatnonzero(np.isfinite(rows.score)))
    if len(rows) > MOST_ROWS:
        some = shuffled(np.random.default_rng(seed), rows.counts)[:MOST_ROWS]
        rows = rows.take(np.sort(some))
    if len(rows) < ENOUGH_ROWS:
        return None
    predictions: OutOfFoldPredictions | None = None
    for i, fold in enumerate(apart(rows, features, seed)):
        asked, kept = rows.take(fold.held), rows.take(fold.kept)
        mean, spread = told(kept, asked)
        known = np.full(len(asked), not fold.without)
        names_kept = set(kept.names)
        tried = np.array([name in names_kept for name in asked.names])
        keys = tuple(f"{i} {key}" for key in asked.context_key)
        fold_predictions = OutOfFoldPredictions(
            keys, mean, spread, asked.score, known, tried, asked.counts
        )
        predictions = (
            fold_predictions if predictions is None else predictions.joined(fold_predictions)
        )
    return predictions


def _quantile(
    sizes: FloatArray, counts: FloatArray, groups: Sequence[str] | None = None
) -> tuple[float, int] | None:
    """The 80 % quantile, a little above where it stands on little, and what it stands on, by what
    each size counts. Of ``groups`` each has the same weight. None without any."""
    if not len(sizes):
        return None
    weight = np.ones(len(sizes))
    if groups is not None:
        count: Mapping[str, int] = {g: groups.count(g) for g in dict.fromkeys(groups)}
        weight = np.array([1.0 / count[g] for g in groups])
    jobs = float(weight.sum()) * (jobs_of(counts) / len(counts))
    weight = weight * counts
    order = np.argsort(sizes, kind="stable")
    level = (0.8 + 0.2 / (jobs + 1.0)) * float(weight.sum())
    at = int(np.searchsorted(np.cumsum(weight[order]), level - 1e-9))
    return float(sizes[order[min(at, len(order) - 1)]]), max(round(jobs), 1)
