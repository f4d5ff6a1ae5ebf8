"""What each member of ``committee`` counts for, in three kinds of contexts.

Members are worth something else for a context that nobody has run yet than for one with a few jobs
of its own, and again for one with many. The weights of each kind stand on what was said of jobs
that nobody had seen: those that fits left out, and those that came (learners/blending.py). With the
configurations that a context has tried, its weights move from one kind's to the next.
"""

import math
from collections.abc import Collection, Mapping
from typing import NamedTuple, Self

import numpy as np

from tunerd.core.arrays import BoolArray, FloatArray, IntArray
from tunerd.core.estimators.local_history import familiar
from tunerd.core.estimators.stacked_regression import LEAST, MemberPredictions, weights_of
from tunerd.core.features.rows import FeatureRows
from tunerd.core.predictors.members import MEMBERS

__all__ = ["KINDS", "StackingRecords", "StackingWeights", "recorded", "typically"]

PRIOR: Mapping[str, float] = {"process": 2.0}
"""Of the members, before any job tells: on tens of jobs a process is mostly the best of them; each
of the others counts 1."""
LOCAL = 0.1
"""Weight of a context's own process beside all members together, before any job tells: they have
seen the same jobs, and those of contexts alike. As jobs come that they have not seen, it gains;
before, :data:`LEAST` leaves it out."""
LIVE = 200
"""Predictions of the latest jobs that weights stand on, of each kind."""
CLOSE = 2.0
"""Where contexts have no more than so many times as many configurations as those that were left a
few jobs, both are of one kind."""


class StackingRecords(NamedTuple):
    """What was said of jobs not yet seen, by kind of context: nobody has run it, a few jobs are
    known of it, many are. The own process has no say in new ones."""

    new: MemberPredictions
    few: MemberPredictions
    known: MemberPredictions

    @classmethod
    def empty(cls) -> Self:
        """Of nothing yet."""
        members = len(MEMBERS)
        return cls(*(MemberPredictions.empty(m) for m in (members, members + 1, members + 1)))


KINDS = StackingRecords._fields


class StackingWeights:
    """Of the members that are ``there`` (names), and of a context's own process, the last."""

    new: FloatArray
    """(M,) in contexts that nobody has run …"""
    few: FloatArray
    """(M + 1,) in those with a few jobs …"""
    known: FloatArray
    """(M + 1,) and in those with many."""

    def __init__(
        self,
        there: Collection[str],
        left_out: StackingRecords,
        live: StackingRecords | None = None,
        tried: tuple[float, float] = (0.0, 0.0),
    ) -> None:
        self._there, self.left_out, self.live = there, left_out, live or StackingRecords.empty()
        self.tried = tried
        """Configurations that were typically tried, where a few jobs were left and where many."""
        self._weigh()

    def follow(
        self,
        said: tuple[FloatArray, FloatArray],
        rows: FeatureRows,
        points: IntArray,
        new: BoolArray,
        known: BoolArray,
    ) -> None:
        """Go by what was ``said`` of n rows before they were learned, (n, M + 1) mean and spread:
        in ``new`` contexts (n,), and in ``known`` ones (n,) that have tried so many ``points``."""
        few = known & self._apart & (points < math.sqrt(math.prod(self.tried)))
        rows_followed = []
        kinds = (new, len(MEMBERS)), (few, None), (known & ~few, None)
        for record, (of_kind, members) in zip(self.live, kinds, strict=True):
            where = np.flatnonzero(of_kind)
            heard = said[0][where, :members], said[1][where, :members]
            rows_followed.append(
                record.joined(recorded(heard, rows.take(where))).take(slice(-LIVE, None))
            )
        self.live = StackingRecords(*rows_followed)
        self._weigh()

    def of(self, points: IntArray) -> FloatArray:
        """(n, M + 1) where so many (n,) configurations of a context were tried: between those for a
        new one and those for a known one."""
        new = np.append(self.new, 0.0)
        if self._apart:
            tried = np.log1p(np.array([0.0, *self.tried]))
            way = np.interp(np.log1p(points), tried, [0.0, 1.0, 2.0])[:, None]
            few, known = 1.0 - np.abs(way - 1.0), np.maximum(way - 1.0, 0.0)
            mixed = (1.0 - few - known) * new + few * self.few + known * self.known
        else:
            known = familiar(points)[:, None]
            mixed = (1.0 - known) * new + known * self.known
        mixed = np.where(mixed < LEAST, 0.0, mixed)
        return np.asarray(mixed / mixed.sum(axis=1, keepdims=True), np.float64)

    @property
    def ever(self) -> FloatArray:
        """(M,) of the members, the most that each counts anywhere."""
        return np.asarray(np.maximum(self.new, np.maximum(self.few, self.known)[:-1]), np.float64)

    def named(self) -> dict[str, dict[str, float]]:
        """Member → its weight by kind (:data:`KINDS`); ``own`` is the context's own process."""
        kinds = np.stack([np.append(self.new, 0.0), self.few, self.known], axis=1)
        return {
            name: dict(zip(KINDS, of_kinds, strict=True))
            for name, of_kinds in zip([*MEMBERS, "own"], kinds.tolist(), strict=True)
        }

    @property
    def _apart(self) -> bool:
        """Whether it is known of few jobs what it is of many."""
        few, many = self.tried
        return 0.0 < few * CLOSE < many

    def _weigh(self) -> None:
        prior = np.array([PRIOR.get(name, 1.0) if name in self._there else 0.0 for name in MEMBERS])
        prior /= max(prior.sum(), 1.0)
        new, few, known = (a.joined(b) for a, b in zip(self.left_out, self.live, strict=True))
        self.new = weights_of(new, prior)
        prior = np.append((1.0 - LOCAL) * prior, LOCAL)
        self.known = weights_of(known, prior)
        between = 0.5 * (np.append(self.new, 0.0) + self.known)
        self.few = weights_of(few, 0.5 * (prior + between))


def recorded(
    said: tuple[FloatArray, FloatArray], rows: FeatureRows, mark: str = ""
) -> MemberPredictions:
    """What was ``said`` of n rows, (n, M) mean and spread. Errors compare within one fit: ``mark``
    tells one fit's contexts from another's."""
    keys = tuple(mark + key for key in rows.context_key)
    return MemberPredictions(said[0], said[1], rows.score, keys, rows.fading)


def typically(points: IntArray) -> float:
    """Geometric mean of numbers (n,) from 0 on; 0 of none."""
    return float(np.expm1(np.log1p(points).mean())) if len(points) else 0.0
