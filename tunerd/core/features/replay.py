"""Which observations a rebuild learns from: the latest, and an even sample of all older ones.

What is kept at sequence S depends on S alone: the latest :data:`LATEST` observations, and among
the older ones the :data:`SAMPLED` whose sequence has the smallest hash. So the sample can be kept
up to date in memory at O(log n) per observation, and recovery finds the very same one in the
store (:func:`sequences_at`). Every older observation has the same chance to be in it, whatever
its context: drift is the business of the latest ones.
"""

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tunerd.core.arrays import FloatArray, IntArray, stirred
from tunerd.core.features.rows import FeatureRows

__all__ = ["LATEST", "SAMPLED", "ReplayBuffer", "ReplaySample", "sequences_at"]

LATEST = 2_000
"""Observations kept because they are new."""
SAMPLED = 18_000
"""Older ones kept. With LATEST 20,000 rows: a full fit of four members takes seconds, in the
background; prediction gains little from more."""


@dataclass(frozen=True)
class ReplaySample:
    """Rows, and which observations they are."""

    rows: FeatureRows
    sequences: IntArray
    """(n,) ascending."""
    finished: FloatArray
    """(n,) when the jobs ended, in days of any one calendar."""

    def take(self, where: IntArray) -> "ReplaySample":
        """Return the rows at these places, in this order."""
        return ReplaySample(self.rows.take(where), self.sequences[where], self.finished[where])

    def by_time(self) -> "ReplaySample":
        """Return the rows in the order in which their jobs ended: what an import tells last may
        have been first."""
        if (np.diff(self.finished) >= 0.0).all():
            return self
        return self.take(np.argsort(self.finished, kind="stable"))


def sequences_at(sequence: int, latest: int | None = None, sampled: int | None = None) -> IntArray:
    """Sequences that a replay holds after observation ``sequence``, ascending; of :data:`LATEST`
    and :data:`SAMPLED` where not said.

    Vectorised over all of history, 10 ms per million: for recovery, not for every event.
    """
    latest = LATEST if latest is None else latest
    sampled = SAMPLED if sampled is None else sampled
    older = np.arange(1, max(sequence - latest, 0) + 1, dtype=np.int64)
    if len(older) > sampled:
        older = np.sort(older[np.argpartition(_hash(older), sampled)[:sampled]])
    newest = np.arange(max(sequence - latest, 0) + 1, sequence + 1, dtype=np.int64)
    return np.concatenate([older, newest])


class _ReplayEntry(NamedTuple):
    sequence: int
    row: FloatArray
    """All that is a number, side by side."""
    context_key: str
    finished: float


class ReplayBuffer:
    """The sample of :func:`sequences_at`, kept up to date in memory."""

    def __init__(self, latest: int | None = None, sampled: int | None = None) -> None:
        self._latest = LATEST if latest is None else latest
        self._sampled = SAMPLED if sampled is None else sampled
        self._newest: deque[_ReplayEntry] = deque()
        self._older: list[tuple[int, _ReplayEntry]] = []
        """Heap by negative hash: what leaves the sample first is on top."""
        self._now: float | None = None
        """See :attr:`now`; None where it has to be looked for."""

    def __len__(self) -> int:
        return len(self._newest) + len(self._older)

    def add(self, rows: FeatureRows, sequences: IntArray, finished: FloatArray) -> None:
        """Add rows in the order of their sequences, which continue those added before."""
        packed = np.column_stack(
            [rows.X, rows.score, rows.ran, rows.ran_weight, rows.weight, rows.margin]
        )
        if self._now is not None and len(finished):
            self._now = max(self._now, float(finished.max())) if len(self) else None
        described = zip(
            sequences.tolist(), packed, rows.context_key, finished.tolist(), strict=True
        )
        for sequence, row, key, ended in described:
            # A copy of its own: a view would keep the whole batch in memory for one row.
            self._newest.append(_ReplayEntry(sequence, row.copy(), key, ended))
        leaving = [self._newest.popleft() for _ in range(len(self._newest) - self._latest)]
        hashes = _hash(np.array([kept.sequence for kept in leaving], dtype=np.int64))
        for place, kept in zip(hashes.tolist(), leaving, strict=True):
            if len(self._older) < self._sampled:
                heapq.heappush(self._older, (-place, kept))
            elif heapq.heappushpop(self._older, (-place, kept))[1].finished == self._now:
                self._now = None

    @property
    def now(self) -> float:
        """When the newest job ended, of those kept: what follows from them alone is the same after
        recovery. 0 without any."""
        if self._now is None:
            kept = [*self._newest, *(kept for _, kept in self._older)]
            self._now = max((row.finished for row in kept), default=0.0)
        return self._now

    def sample(self) -> ReplaySample:
        """Everything kept, in order of sequence. A copy: safe to hand to another thread."""
        older = sorted((kept for _, kept in self._older), key=lambda kept: kept.sequence)
        return _unpack([*older, *self._newest])

    def recent(self, count: int) -> ReplaySample:
        """The ``count`` rows whose jobs ended last, in order of sequence; of the latest ones only,
        so that an import of more than those is all that is recent until jobs come again."""
        newest = list(self._newest)
        if len(newest) > count:
            ended = np.array([kept.finished for kept in newest])
            last = np.argsort(ended, kind="stable")[-count:]
            newest = [newest[i] for i in np.sort(last).tolist()]
        return _unpack(newest)

    def forget_score(self, sequence: int, *, whole: bool = False) -> bool:
        """Let one of the latest rows have no score any more, or with ``whole`` nothing that it
        says; says whether it was there."""
        for kept in self._newest:
            if kept.sequence == sequence:
                kept.row[-5] = np.nan
                if whole:
                    kept.row[-4], kept.row[-3], kept.row[-1] = np.nan, 0.0, np.nan
                return True
        return False

    def since(self, sequence: int) -> ReplaySample:
        """Rows above ``sequence``, as far as they are among the latest."""
        return _unpack([kept for kept in self._newest if kept.sequence > sequence])


def _unpack(kept: Sequence[_ReplayEntry]) -> ReplaySample:
    if not kept:
        return ReplaySample(FeatureRows.empty(), np.empty(0, np.int64), np.empty(0))
    sequences, numbers, keys, finished = zip(*kept, strict=True)
    packed = np.stack(numbers)
    rows = FeatureRows(
        X=np.ascontiguousarray(packed[:, :-5]),
        score=packed[:, -5].copy(),
        ran=packed[:, -4].copy(),
        ran_weight=packed[:, -3].copy(),
        context_key=keys,
        weight=packed[:, -2].copy(),
        margin=packed[:, -1].copy(),
    )
    return ReplaySample(rows, np.array(sequences, dtype=np.int64), np.array(finished))


def _hash(sequences: IntArray) -> IntArray:
    """Numbers by which any run of sequences looks evenly spread; no two ever tie."""
    return stirred(sequences.astype(np.uint64)).view(np.int64)
