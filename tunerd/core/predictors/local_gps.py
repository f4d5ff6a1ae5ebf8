"""Each context's own jobs, and a process over them around what other contexts say
(learners/local.py).

What they say must come from members that have *not* seen the context, or it would hold its jobs
already: the fits that leave contexts out serve for that, each context in exactly one of them. A
process learns a job at once and in milliseconds, and is made when it is asked for.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from tunerd.core.arrays import FloatArray
from tunerd.core.estimators.codec import pack, seal_headed, unpack, unseal_headed
from tunerd.core.estimators.local_gp import ContextRuns, Elsewhere, LocalGP, replayed_share, usual
from tunerd.core.estimators.local_history import LocalHistory
from tunerd.core.estimators.local_trees import LocalTrees
from tunerd.core.estimators.sharded_state import ShardedState
from tunerd.core.features import FeatureMap, FeatureRows
from tunerd.core.predictors.members import CommitteeMembers, rows_at

__all__ = ["LocalGPSet", "load_jobs", "own_jobs"]

JOBS = "own."
"""What the names of the blobs with the contexts' jobs begin with."""
MAX_CONTEXTS = 2_000
COMPARED = 8
"""Contexts that say what is usual …"""
LEAST_COMPARED = 5
"""… and configurations that each has at least."""
READY_SIZE = 2_500_000
"""Of the processes of single contexts that are kept ready, the sum of their points squared: 64 of
the largest, or thousands of contexts with a few jobs each; 20 to 60 MB."""
READY_LEAST = 500
"""What one counts at least."""


class LocalGPSet:
    """See the module."""

    def __init__(
        self,
        features: FeatureMap,
        whole: CommitteeMembers,
        parts: Sequence[CommitteeMembers],
        part_of: Mapping[str, int],
        jobs: ShardedState[LocalHistory],
        carry: FloatArray,
        elsewhere: Elsewhere | None,
    ) -> None:
        self._features, self._whole, self.parts = features, whole, tuple(parts)
        self.part_of = dict(part_of)
        """Context key → which of the parts has not seen it."""
        self.jobs = jobs
        """Context key → its jobs."""
        self.carry = carry
        """(M,) weights of what other contexts say, as they were at the fit: the process around it
        would mistake a change of them for news."""
        self.elsewhere = elsewhere
        """What that leaves in contexts; None before it was seen."""
        self.chosen: FloatArray | None = None
        """What processes of contexts choose, by several together; None before they were asked."""
        self._ready: OrderedDict[str, LocalGP] = OrderedDict()
        self._size = 0
        """Of those: see :data:`READY_SIZE`."""
        self._trees: dict[str, LocalTrees | None] = {}
        """Of those of the former that were asked for."""

    @property
    def knows(self) -> bool:
        """Whether other contexts say anything."""
        return bool(self._whole.members) and self.elsewhere is not None

    def told(self, rows: FeatureRows) -> FloatArray:
        """(n,) what other contexts say of rows; NaN where nothing is known elsewhere."""
        expected = np.full(len(rows), np.nan)
        if not self.knows:
            return expected
        part = np.array([self.part_of.get(key, -1) for key in rows.context_key], np.int64)
        for i, council in ((-1, self._whole), *enumerate(self.parts)):
            where = np.flatnonzero(part == i)
            if len(where):
                expected[where] = council.means(rows_at(rows, where), self.carry)
        return expected

    def tell(self, jobs: Mapping[str, LocalHistory]) -> None:
        """Note at the points of ``jobs`` what other contexts say of them: it stays as it is until
        the next fit, and takes more time than all the rest."""
        keys = [key for key, own in jobs.items() for _ in own.points]
        X = b"".join(b"".join(own.points) for own in jobs.values())
        expected = self.told(
            FeatureRows.asked(np.frombuffer(X).reshape(len(keys), self._width), keys)
        )
        points = (point for own in jobs.values() for point in own.points.values())
        for point, value in zip(points, expected.tolist(), strict=True):
            point.told = value

    def compare(self) -> None:
        """Learn what is usual from the contexts with most jobs, where others say anything, and how
        much a context's first jobs told of its later ones."""
        if self.elsewhere is None or not self.knows:
            return
        most = sorted(self.jobs.values(), key=lambda own: -len(own.points))[:COMPARED]
        arrays = [own.arrays(self._width) for own in most if len(own.points) >= LEAST_COMPARED]
        runs = [ContextRuns(self.places(X), *values) for X, *values in arrays]
        groups = self._features.coordinate_groups
        self.chosen = usual(groups, runs, self.elsewhere)
        share = replayed_share(groups, runs, self.elsewhere, self.chosen)
        self.elsewhere = self.elsewhere._replace(share=share)

    def of(self, key: str) -> LocalGP:
        """The process over a context's own jobs, of which there may be none."""
        process = self._ready.get(key)
        if process is None:
            own = self.jobs.get(key) or LocalHistory()
            process = self.around(own, None if own.theta is None else np.array(own.theta))
            self._ready[key] = process
            self._size += _size(process)
            while self._size > READY_SIZE and len(self._ready) > 1:
                self._drop(next(iter(self._ready)))
        self._ready.move_to_end(key)
        return process

    def _drop(self, key: str) -> None:
        process = self._ready.pop(key, None)
        self._trees.pop(key, None)
        if process is not None:
            self._size -= _size(process)

    def around(self, own: LocalHistory, theta: FloatArray | None = None) -> LocalGP:
        """A process over some jobs around what other contexts say of them."""
        X, score, weight, expected = own.arrays(self._width)
        groups, Z = self._features.coordinate_groups, self.places(X)
        about = self._about(expected)
        process = LocalGP.fit(groups, Z, score, weight, about, self.elsewhere, theta, self.chosen)
        return process if about is None else process.hedged(score, weight)

    def predict(
        self, process: LocalGP, places: FloatArray, told: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """(n,) means and (n,) variances of one of them, without the noise of a run, at
        :meth:`places` of which other contexts say ``told`` (n,)."""
        return process.predict(places, self._about(told))

    def beside_trees(self, key: str, places: FloatArray, mean: FloatArray) -> FloatArray:
        """(n,) what a context's process, which says ``mean`` (n,) at these :meth:`places`, and
        trees over the same jobs say together. They know nothing of what other contexts say."""
        if key not in self._trees:
            _, score, weight, _ = self.jobs[key].arrays(self._width)
            self._trees[key] = LocalTrees.fit(self.of(key), score, weight)
        trees = self._trees[key]
        return mean if trees is None else trees.beside(places, mean)

    def correlations(self, rows: FeatureRows) -> Callable[[int], FloatArray]:
        """See :meth:`Predictor.correlations`."""
        process = self.of(rows.context_key[0])
        about, Z = self._about(self.told(rows)), self.places(rows.X)
        sd = np.sqrt(process.predict(Z, about)[1])

        def with_one(row: int) -> FloatArray:
            covariances = process.covariance(Z, about, row) / (sd * sd[row])
            return np.asarray(covariances.clip(-1.0, 1.0), np.float64)

        return with_one

    def add(self, rows: FeatureRows, told: FloatArray, errors: FloatArray) -> None:
        """Learn jobs of which other contexts say ``told`` (n,), and whose scores are ``errors``
        (n,) standard deviations off what was expected."""
        for key in dict.fromkeys(rows.context_key):
            if key in self.jobs:
                self.jobs[key].keep(self.of(key).theta)
        for i, (key, x, score, weight, count) in enumerate(_each(rows)):
            own = self.jobs.get(key) or LocalHistory()
            self.jobs.put(key, own)
            own.add(x, score, weight, count, float(told[i]))
            own.expect([float(errors[i])] if own.jobs > 1 else [])
            self._drop(key)
        while len(self.jobs) > MAX_CONTEXTS:
            self.jobs.drop_first()

    def places(self, X: FloatArray) -> FloatArray:
        """(n, F) → (n, C) coordinates, in which each parameter has unit variance."""
        count = len(self._features.study.parameters)
        return np.asarray(self._features.coordinates(X) * np.sqrt(count), np.float64)

    def _about(self, told: FloatArray) -> FloatArray | None:
        """What a process is built around: (n,) what other contexts say, if they say anything."""
        return told if self.knows else None

    @property
    def _width(self) -> int:
        return len(self._features.columns)

    def dump(self) -> dict[str, bytes]:
        """The jobs as blobs, of which a further job changes one."""
        return self.jobs.dump(JOBS, self._pack)

    def _pack(self, told: Sequence[tuple[str, int, LocalHistory]]) -> bytes:
        points = [own.arrays(self._width) for _, _, own in told]
        values = {
            "X": np.concatenate([X for X, *_ in points]),
            "values": np.concatenate([np.stack(v, axis=1) for _, *v in points]),
        }
        head = [[key, turn, len(own.points), own.dump()] for key, turn, own in told]
        return seal_headed(head, pack(values))


def _size(process: LocalGP) -> int:
    return max(READY_LEAST, len(process.Z) ** 2)


def own_jobs(rows: FeatureRows) -> dict[str, LocalHistory]:
    """Jobs by context, of the contexts that had one last."""
    own: dict[str, LocalHistory] = {}
    for key, x, score, weight, count in _each(rows):
        own.setdefault(key, LocalHistory()).add(x, score, weight, count)
    for jobs in own.values():
        jobs.fitted = jobs.jobs
    latest = Counter({key: i for i, key in enumerate(rows.context_key)}).most_common(MAX_CONTEXTS)
    return {key: own[key] for key, _ in reversed(latest)}


def _each(rows: FeatureRows) -> Iterator[tuple[str, FloatArray, float, float, float]]:
    """Context key, row of X, score, weight and what is left of each job."""
    numbers = rows.score.tolist(), rows.weight.tolist(), rows.counts.tolist()
    return zip(rows.context_key, rows.X, *numbers, strict=True)


def load_jobs(blobs: Mapping[str, bytes]) -> ShardedState[LocalHistory]:
    """Build from what :meth:`LocalGPSet.dump` gave, among other blobs."""
    return ShardedState.load(blobs, JOBS, _unpack)


def _unpack(blob: bytes) -> Iterator[tuple[str, int, LocalHistory]]:
    header, body = unseal_headed(blob)
    values, at = unpack(body), 0
    for key, turn, points, state in header:
        part = slice(at, at := at + points)
        yield key, turn, LocalHistory.load(state, values["X"][part], values["values"][part])
