"""How much each of several predictors is worth: weights from what they said of jobs not yet seen.

Weights stand on the errors within contexts, for which two configurations are compared; an error
that is the same for all of a context costs little. They are the weights of the best blend (a
quadratic programme: no weight below 0, all together 1), drawn to prior weights the more, the fewer
the jobs (stacked regressions, Breiman 1996). Members that do not help the others get 0.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from scipy.optimize import nnls

from tunerd.core.arrays import FloatArray, IntArray, jobs_of, numbered

__all__ = ["LEAST", "MemberPredictions", "pooled", "weights_of"]

DRAWN = 0.1
"""How much the prior weights count for beside what was seen: jobs of one context err alike, so that
more of them hardly say more."""
FEW = 10.0
"""Jobs by which the prior counts for more."""
LEAST = 0.1
"""A weight below this is 0: it would cost a prediction and change hardly any."""
WILD = 3.0
"""Standard deviations at which an error is cut: one wild job decides nothing."""


@dataclass(frozen=True)
class MemberPredictions:
    """What M members said of n jobs before they had seen them, and what happened."""

    mean: FloatArray
    """(n, M)"""
    spread: FloatArray
    """(n, M)"""
    score: FloatArray
    """(n,)"""
    keys: tuple[str, ...]
    """Of their contexts; errors are compared within one."""
    counts: FloatArray | None = None
    """(n,) what is left of each; None where that is all of it."""

    @classmethod
    def empty(cls, members: int) -> Self:
        """Of nothing yet."""
        none = np.zeros((0, members))
        return cls(none, none, np.zeros(0), ())

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def told(self) -> FloatArray:
        """(n,) what each job counts."""
        return np.ones(len(self)) if self.counts is None else self.counts

    def joined(self, other: "MemberPredictions") -> "MemberPredictions":
        """This one, then the other."""
        faded = self.counts is not None or other.counts is not None
        return MemberPredictions(
            np.concatenate([self.mean, other.mean]),
            np.concatenate([self.spread, other.spread]),
            np.concatenate([self.score, other.score]),
            self.keys + other.keys,
            np.concatenate([self.told, other.told]) if faded else None,
        )

    def take(
        self, where: "np.ndarray[tuple[int], np.dtype[np.int64]] | slice"
    ) -> "MemberPredictions":
        """The jobs at these places."""
        places = np.arange(len(self))[where]
        return MemberPredictions(
            self.mean[places],
            self.spread[places],
            self.score[places],
            tuple(self.keys[i] for i in places.tolist()),
            None if self.counts is None else self.counts[places],
        )

    def blended(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(n,) mean and spread of all together, by weights (M,) or (n, M)."""
        return pooled(self.mean, self.spread, np.broadcast_to(weights, self.mean.shape))

    def arrays(self) -> Mapping[str, FloatArray]:
        """All but the keys, by name."""
        arrays = {"mean": self.mean, "spread": self.spread, "score": self.score}
        return arrays if self.counts is None else {**arrays, "counts": self.counts}

    @classmethod
    def of(cls, arrays: Mapping[str, FloatArray], keys: Sequence[str]) -> Self:
        """The reverse of :meth:`arrays`."""
        fields = arrays["mean"], arrays["spread"], arrays["score"]
        return cls(*fields, tuple(keys), arrays.get("counts"))


def weights_of(record: MemberPredictions, prior: FloatArray) -> FloatArray:
    """(M,) weights, drawn to ``prior`` (M,). Who has 0 there is not there, and keeps it."""
    if len(record) < 2:
        return prior
    there = np.flatnonzero(prior)
    if len(there) < len(prior):
        weights = np.zeros(len(prior))
        weights[there] = weights_of(replace(record, mean=record.mean[:, there]), prior[there])
        return weights
    counts = record.told
    group = numbered(record.keys)
    off = _within(record.mean - record.score[:, None], group, counts)
    size = _within(record.score[:, None], group, counts)[:, 0]
    off = off / _scale(size, group, counts)[:, None]
    off = off.clip(-WILD, WILD) * np.sqrt(counts)[:, None]
    squares = off.T @ off
    typical = max(float(np.median(np.diag(squares))), 1e-12)
    pull = (DRAWN + FEW / jobs_of(counts)) * typical
    members = len(prior)
    above, vectors = np.linalg.eigh(squares)
    root = np.sqrt(np.maximum(above, 0.0))[:, None] * vectors.T
    firm = 1e3 * float(np.sqrt(np.trace(squares) + pull))
    A = np.concatenate([root, np.sqrt(pull) * np.eye(members), np.full((1, members), firm)])
    b = np.concatenate([np.zeros(members), np.sqrt(pull) * prior, [firm]])
    weights, _ = nnls(A, b)
    weights = np.where(weights < LEAST, 0.0, weights)
    return np.asarray(weights / weights.sum(), np.float64)


def pooled(
    mean: FloatArray, spread: FloatArray, weight: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """(n, M) → (n,) mean and spread of all. The spread is the geometric mean of how far off each
    would be: one that hardly counts and is wildly unsure does not set it."""
    together = (weight * mean).sum(axis=1)
    off = np.where(weight > 0, spread**2 + (mean - together[:, None]) ** 2, 1.0)
    return together, np.exp(0.5 * (weight * np.log(np.maximum(off, 1e-24))).sum(axis=1))


def _within(values: FloatArray, group: IntArray, counts: FloatArray) -> FloatArray:
    """(n, M) values less the mean of their context, drawn to 0: a job that is alone in its context
    keeps half of its own."""
    count = np.bincount(group, counts)
    centred = np.empty_like(values)
    for m in range(values.shape[1]):
        mean = np.bincount(group, counts * values[:, m]) / (count + 1.0)
        centred[:, m] = values[:, m] - mean[group]
    return centred


def _scale(size: FloatArray, group: IntArray, counts: FloatArray) -> FloatArray:
    """(n,) how far the scores of each job's context lie apart: a context in which everything
    matters more is not worth more."""
    squares = counts * size**2
    overall = float(np.mean(squares) / np.mean(counts))
    count = np.bincount(group, counts)
    variance = (np.bincount(group, squares) + 2.0 * overall) / (count + 2.0)
    return np.asarray(np.sqrt(np.maximum(variance, 1e-18))[group], np.float64)
