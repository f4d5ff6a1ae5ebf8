"""``committee``: several predictors of different kinds, and each context's own jobs.

No kind of predictor is the best everywhere: a process on tens of jobs, trees on thousands, networks
where what matters is the order, and the one that is best on a study may be useless on the next. So
several are asked, and weighted by how well each does here, down to 0, when they are not asked any
more (weighing.py): by fits that leave out whole contexts, most of some, and single jobs, and then
by every job that arrives, predicted before it is learned.

In a context with jobs of its own there is one member more, a process over these jobs alone, around
what members say that have *not* seen this context (learners/local.py): the fits that leave contexts
out serve for that, each context in exactly one of them. It learns a job at once and in
milliseconds; members wait for the next fit. Where there are none yet, random forests over the same
jobs speak beside it (learners/own_trees.py), and nobody else.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from tunerd.core.arrays import BoolArray, FloatArray, IntArray, jobs_of, places_of, shuffled
from tunerd.core.estimators.codec import pack, seal, seal_json, unpack, unseal, unseal_json
from tunerd.core.estimators.local_gp import Elsewhere
from tunerd.core.estimators.local_history import LocalHistory, familiar
from tunerd.core.estimators.sharded_state import ShardedState
from tunerd.core.estimators.stacked_regression import MemberPredictions, pooled
from tunerd.core.features import FeatureMap, FeatureRows
from tunerd.core.predictors.base import Predictor
from tunerd.core.predictors.errors import (
    FEW_ROWS,
    follow_errors,
    mean_of,
    noise_of,
    quantile,
    typical_size,
)
from tunerd.core.predictors.folds import ValidationFold, all_but_few, apart
from tunerd.core.predictors.local_gps import LocalGPSet, load_jobs, own_jobs
from tunerd.core.predictors.members import MEMBERS, CommitteeMembers, rows_at
from tunerd.core.predictors.out_of_fold import OutOfFoldPredictions, doubted
from tunerd.core.predictors.predictions import Predictions
from tunerd.core.predictors.stacking import (
    KINDS,
    StackingRecords,
    StackingWeights,
    recorded,
    typically,
)
from tunerd.core.study import Study

__all__ = ["CommitteePredictor"]

ENOUGH_ROWS = 6
"""Rows below which there are no members …"""
ALONE = 100
"""… and where there is one context only: what is known of it alone is the process's business."""
KEPT = 400
"""Predictions of jobs left out that weights stand on, of each kind; of more a random sample."""
CARRIED_CONTEXTS = 2.0
"""Contexts that what is believed beforehand of how far they lie apart counts as."""
UNKNOWN_LEFT = 0.3
"""What other contexts leave to be known of one, before enough was left out to tell, as a part of
how far the scores of a context lie apart."""


class _CommitteePredictions(NamedTuple):
    """What is believed of n rows, in pieces."""

    mean: FloatArray
    """(n, M + 1) by member, the context's own process last."""
    spread: FloatArray
    """(n, M + 1)"""
    weight: FloatArray
    """(n, M + 1)"""
    doubt: FloatArray
    """(n,) variance of the own process, without a run's noise; 0 where there is none."""
    told: FloatArray
    """(n,) what other contexts say; NaN where nobody was asked."""
    points: IntArray
    """(n,) configurations tried in its context; 0 where it is new."""


class CommitteePredictor(Predictor):
    """See the module. Deterministic for its rows and seed."""

    def __init__(
        self,
        features: FeatureMap,
        whole: CommitteeMembers,
        own: LocalGPSet,
        state: Mapping[str, Any],
        weights: StackingWeights,
    ) -> None:
        self._features, self._whole, self._own = features, whole, own
        self._typical: float = state["typical"]
        self._unknown: float = state["unknown"]
        """Score, and spread, of a job before anything is known."""
        self._noise: float = state["noise"]
        """Variance of a job in units of the members' own idea of it."""
        self._usual: float | None = state["usual"]
        """The members' own idea of how far off they are on the jobs that told this, if any did."""
        self._wider: float = state["wider"]
        """How much more that is in contexts that nobody has run yet."""
        self.weights = weights
        self._left_out_told: OutOfFoldPredictions | None = None
        self._dumped: dict[str, bytes] | None = None
        """Blobs of what a fit leaves as it is, once they were made."""

    @classmethod
    def fit(cls, study: Study, features: FeatureMap, rows: FeatureRows, seed: int) -> Self:
        """See :meth:`Predictor.fit`. About twice what its members cost."""
        rows = rows.take(np.flatnonzero(np.isfinite(rows.score)))
        jobs = own_jobs(rows)
        state = {
            "typical": mean_of(rows.score, rows.counts) if len(rows) else 0.0,
            "unknown": float(np.sqrt(noise_of(np.zeros(0), rows.score, study.unit(rows.score)))),
            "noise": 1.0,
            "usual": None,
            "wider": 1.0,
        }
        carry = np.zeros(len(MEMBERS))
        if len(rows) < ENOUGH_ROWS or (len(jobs) == 1 and len(rows) < ALONE):
            whole = CommitteeMembers({})
            own = LocalGPSet(features, whole, (), {}, ShardedState(jobs.items()), carry, None)
            return cls(features, whole, own, state, StackingWeights((), StackingRecords.empty()))
        whole = CommitteeMembers.fit(study, features, rows, seed)

        def refitted(
            folds: Iterable[ValidationFold],
        ) -> list[tuple[ValidationFold, CommitteeMembers]]:
            return [(f, whole.refitted(study, features, rows, f.kept, seed)) for f in folds]

        each = refitted(apart(rows, features, seed))
        few = refitted(all_but_few(rows, features, seed))
        strange = [(fold, council) for fold, council in each if fold.without]
        parts = [council for _, council in strange]
        part_of = {key: i for i, (fold, _) in enumerate(strange) for key in sorted(fold.without)}
        own = LocalGPSet(features, whole, parts, part_of, ShardedState(jobs.items()), carry, None)
        committee = cls(
            features, whole, own, state, StackingWeights(whole.members, StackingRecords.empty())
        )
        known = [fold for fold in each if not fold[0].without]
        committee._examine(strange, few, known, rows, seed)
        return committee

    def update(self, rows: FeatureRows, recent: FeatureRows) -> None:
        """See :meth:`Predictor.update`. Members wait for the next fit."""
        del recent
        rows = rows.take(np.flatnonzero(np.isfinite(rows.score)))
        if len(rows) == 0:
            return
        predictions = self._said(rows, everybody=True)
        blended = self._blended(predictions)
        errors = (rows.score - blended.mean) / blended.std
        self._noise = follow_errors(self._noise, np.abs(errors), rows.counts)
        if self._whole.members:
            histories = [self._own.jobs.get(key) for key in rows.context_key]
            new = np.array([own is None for own in histories], bool)
            known = np.array([own is not None and own.share > 0.5 for own in histories], bool)
            self.weights.follow(
                (predictions.mean, predictions.spread), rows, predictions.points, new, known
            )
        self._own.add(rows, predictions.told, errors)

    def predict(self, rows: FeatureRows) -> Predictions:
        """See :meth:`Predictor.predict`."""
        return self._blended(self._said(rows))

    def correlations(self, rows: FeatureRows) -> Callable[[int], FloatArray]:
        """See :meth:`Predictor.correlations`: as the context's own process has it."""
        return self._own.correlations(rows)

    def left_out(
        self, study: Study, features: FeatureMap, rows: FeatureRows, seed: int
    ) -> OutOfFoldPredictions | None:
        """See :meth:`Predictor.left_out`: what the fit itself left out."""
        del study, features, rows, seed
        return self._left_out_told

    # -- what is believed -------------------------------------------------------------------

    def _said(self, rows: FeatureRows, *, everybody: bool = False) -> _CommitteePredictions:
        """Ask those whose word counts for each row, or everybody who counts anywhere."""
        n, members = len(rows), len(MEMBERS)
        mean, spread, weight = np.zeros((3, n, members + 1))
        doubt, expected = np.zeros(n), np.full(n, np.nan)
        jobs = self._own.jobs
        owns = [jobs.get(key) for key in rows.context_key]
        points = np.array([len(o.points) if o else 0 for o in owns], np.int64)
        if self._whole.members:
            share = np.array([o.share if o else 1.0 for o in owns])
            weight[:, :-1] = share[:, None] * self.weights.of(points)[:, :-1]
            asked = self.weights.ever if everybody else weight[:, :-1]
            mean[:, :-1], spread[:, :-1] = self._whole.ask(rows, asked)
        mean[:, -1], spread[:, -1] = self._typical, self._unknown
        where = np.arange(n) if everybody else np.flatnonzero(points)
        if len(where):
            expected[where] = self._own.told(rows_at(rows, where))
        Z = self._own.places(rows.X)
        for key, where in places_of(rows.context_key).items():
            own = jobs.get(key)
            if own is None and (self._whole.members or len(jobs) != 1):
                continue
            # Where no member is there yet, the only context known speaks for others too.
            speaks = key if own else next(iter(jobs))
            process = self._own.of(speaks)
            predicted, doubt[where] = self._own.predict(process, Z[where], expected[where])
            if not self._whole.members:
                predicted = self._own.beside_trees(speaks, Z[where], predicted)
            mean[where, -1] = predicted
            weight[where, :-1] *= 1.0 - process.alone_share  # members know other contexts too
            spread[where, -1] = np.sqrt(doubt[where] + process.noise)
            if own is None or own.jobs == 1:  # it says where that context lies, if anything
                elsewhere = self._own.elsewhere
                first = self._unknown if elsewhere is None else elsewhere.left
                spread[where, -1] = np.maximum(spread[where, -1], first)
        weight[:, -1] = 1.0 - weight[:, :-1].sum(axis=1)
        return _CommitteePredictions(mean, spread, weight, doubt, expected, points)

    def _blended(self, said: _CommitteePredictions) -> Predictions:
        mean, spread = pooled(said.mean, said.spread, said.weight)
        apart = (said.weight * (said.mean - mean[:, None]) ** 2).sum(axis=1)
        strange = (1.0 - familiar(said.points)) * said.weight[:, :-1].sum(axis=1)
        doubt = self._caution(spread) * np.sqrt(said.doubt + apart)
        spread = self._widened(spread, strange)
        doubt = np.where(said.points == 0, spread, np.minimum(doubt, spread))
        return Predictions.of_scores(mean, spread, doubt)

    def _widened(self, spread: FloatArray, strange: FloatArray) -> FloatArray:
        """(n,) the members' spreads, made as wide as the blend was seen to be off, in contexts so
        ``strange`` (n,)."""
        scale = np.sqrt(self._noise * self._wider**strange)
        return np.asarray(spread * self._caution(spread) * scale, np.float64)

    def _caution(self, spread: FloatArray) -> FloatArray:
        """(n,) how much of the members' caution is kept, 1 for none, where they are this unsure.

        That they are too cautious where jobs lie close says nothing of where they know less: a
        spread is narrowed the less, the wider it is beside those of the jobs that told it.
        """
        if self._usual is None or self._noise >= 1.0:
            return np.ones(len(spread))
        close = np.minimum((self._usual / spread) ** 2, 1.0)
        return np.asarray(self._noise ** ((close - 1.0) / 2.0), np.float64)

    # -- what each is worth -----------------------------------------------------------------

    def _examine(
        self,
        strange: Sequence[tuple[ValidationFold, CommitteeMembers]],
        few: Sequence[tuple[ValidationFold, CommitteeMembers]],
        known: Sequence[tuple[ValidationFold, CommitteeMembers]],
        rows: FeatureRows,
        seed: int,
    ) -> None:
        """Weigh members by what those say that have not seen some contexts, most of some, and some
        jobs; and see how far off they are all together."""
        rng = np.random.default_rng([seed, 2])
        far = MemberPredictions.empty(len(MEMBERS))
        for i, (fold, council) in enumerate(strange):
            asked = rows.take(_some(fold.held, rows, rng))
            predictions = council.ask(asked, np.ones(len(MEMBERS)))
            far = far.joined(recorded(predictions, asked, f"{i} "))
        there = self._whole.members
        self.weights = StackingWeights(there, StackingRecords.empty()._replace(new=far))
        own = self._own
        own.carry = self.weights.new.copy()
        if len(far):
            errors = far.score - far.mean @ own.carry
            left = _within_sd(errors, far.keys, far.told)
            usual = _within_sd(rows.score, rows.context_key, rows.counts)
            left = left if len(far) >= FEW_ROWS else max(left, UNKNOWN_LEFT * usual)
            own.elsewhere = Elsewhere(left, _levels_sd(errors, far.keys, far.told, left))
        own.tell(own.jobs)
        own.compare()
        scarce, _, few_points = self._asked_as_known(few, rows, rng)
        near, tried, points = self._asked_as_known(known, rows, rng)
        typical = typically(few_points), typically(points)
        self.weights = StackingWeights(there, StackingRecords(far, scarce, near), tried=typical)
        weights, new = self.weights.of(points), self.weights.new
        off, off_far = self._off(near, weights), self._off(far, new)
        blended = near.blended(weights) if off else far.blended(new) if off_far else None
        self._usual = None if blended is None else float(np.median(blended[1]))
        self._noise = off or off_far or 1.0
        self._wider = float(np.clip((off_far or off or 1.0) / self._noise, 1.0, 25.0))
        odd = (1.0 - familiar(points)) * weights[:, :-1].sum(axis=1)
        self._left_out_told = self._told_apart(far, near, tried, weights, odd)

    def _asked_as_known(
        self,
        folds: Sequence[tuple[ValidationFold, CommitteeMembers]],
        rows: FeatureRows,
        rng: np.random.Generator,
    ) -> tuple[MemberPredictions, BoolArray, IntArray]:
        """What was said of n rows left out of contexts that are known, whether their
        configurations had been seen there (n,), and how many had (n,)."""
        near = MemberPredictions.empty(len(MEMBERS) + 1)
        tried, points = np.zeros(0, bool), np.zeros(0, np.int64)
        for i, (fold, council) in enumerate(folds):
            asked = rows.take(_some(fold.held, rows, rng))
            predicted, again, there = self._as_known(council, rows.take(fold.kept), asked)
            near = near.joined(recorded(predicted, asked, f"{i} "))
            tried, points = np.append(tried, again), np.append(points, there)
        return near, tried, points

    def _as_known(
        self, council: CommitteeMembers, seen: FeatureRows, asked: FeatureRows
    ) -> tuple[tuple[FloatArray, FloatArray], BoolArray, IntArray]:
        """What members that were fitted on ``seen``, and the contexts' processes over those jobs,
        say of the rows ``asked``; which of them are of configurations seen there, and how many of
        those there are."""
        mean, spread = np.zeros((2, len(asked), len(MEMBERS) + 1))
        mean[:, :-1], spread[:, :-1] = council.ask(asked, np.ones(len(MEMBERS)))
        expected, Z = self._own.told(asked), self._own.places(asked.X)
        jobs = own_jobs(seen)
        self._own.tell(jobs)
        again, points = np.zeros(len(asked), bool), np.zeros(len(asked), np.int64)
        for key, where in places_of(asked.context_key).items():
            own = jobs.get(key) or LocalHistory()
            process = self._own.around(own)
            mean[where, -1], variance = self._own.predict(process, Z[where], expected[where])
            spread[where, -1] = np.sqrt(variance + process.noise)
            again[where] = [asked.X[at].tobytes() in own.points for at in where.tolist()]
            points[where] = len(own.points)
        return (mean, spread), again, points

    def _off(self, record: MemberPredictions, weights: FloatArray) -> float | None:
        """How far off the blend is on jobs left out, squared and in its own spreads; None if they
        are too few to say."""
        if len(record) < FEW_ROWS:
            return None
        mean, spread = record.blended(weights)
        off = typical_size((record.score - mean) / spread, record.told) ** 2
        return float(np.clip(doubted(off, jobs_of(record.told)), 0.04, 25.0))

    def _told_apart(
        self,
        far: MemberPredictions,
        near: MemberPredictions,
        tried: BoolArray,
        weights: FloatArray,
        strange: FloatArray,
    ) -> OutOfFoldPredictions | None:
        """What was said of contexts left out and of jobs left out; of the latter which
        configurations had been ``tried`` (n,), what each member counted (n, M + 1), and how
        ``strange`` (n,) the context was."""
        if not len(far) and not len(near):
            return None
        far_blend, other = far.blended(self.weights.new), near.blended(weights)
        spread = np.append(far_blend[1], other[1])
        odd = np.append(np.ones(len(far)), strange)
        return OutOfFoldPredictions(
            far.keys + near.keys,
            np.concatenate([far_blend[0], other[0]]),
            self._widened(spread, odd),
            np.concatenate([far.score, near.score]),
            np.arange(len(far) + len(near)) >= len(far),
            np.append(np.zeros(len(far), bool), tried),
            np.append(far.told, near.told),
        )

    # -- keeping ----------------------------------------------------------------------------

    def dump(self) -> dict[str, bytes]:
        """See :meth:`Predictor.dump`."""
        if self._dumped is None:
            self._dumped = self._dump_fitted()
        live = {
            "noise": self._noise,
            "keys": [record.keys for record in self.weights.live],
            "contexts": len(self._own.jobs),
        }
        blobs = {**self._dumped, **self._own.dump(), "live": seal_json(live)}
        for kind, record in zip(KINDS, self.weights.live, strict=True):
            blobs[f"live {kind}"] = seal(pack(record.arrays()))
        for i, council in enumerate((self._whole, *self._own.parts)):
            blobs |= council.dump(f"{i}.")
        return blobs

    def _dump_fitted(self) -> dict[str, bytes]:
        """What stays as the fit left it."""
        state = {
            "columns": [column.name for column in self._features.columns],
            "part_of": self._own.part_of,
            "parts": [list(council.members) for council in self._own.parts],
            "whole": list(self._whole.members),
            "keys": [record.keys for record in self.weights.left_out],
            "carry": self._own.carry.tolist(),
            "elsewhere": self._own.elsewhere,
            "chosen": None if self._own.chosen is None else self._own.chosen.tolist(),
            "typical": self._typical,
            "unknown": self._unknown,
            "usual": self._usual,
            "wider": self._wider,
            "tried": self.weights.tried,
        }
        records = zip(KINDS, self.weights.left_out, strict=True)
        arrays = {f"left_out {kind}": seal(pack(record.arrays())) for kind, record in records}
        return {"committee": seal_json(state), **arrays}

    @classmethod
    def load(cls, study: Study, features: FeatureMap, blobs: Mapping[str, bytes]) -> Self:
        """See :meth:`Predictor.load`."""
        try:
            state, live = unseal_json(blobs["committee"]), unseal_json(blobs["live"])
            if state["columns"] != [column.name for column in features.columns]:
                raise ValueError(
                    f"this model is of another generation of {study.name}; fit it again"
                )
            records = [
                MemberPredictions.of(unpack(unseal(blobs[f"{name} {kind}"])), keys)
                for name, both in (("left_out", state["keys"]), ("live", live["keys"]))
                for kind, keys in zip(KINDS, both, strict=True)
            ]
            councils = [
                CommitteeMembers.load(study, features, blobs, f"{i}.", names)
                for i, names in enumerate([state["whole"], *state["parts"]])
            ]
            whole, *parts = councils
            own = LocalGPSet(
                features,
                whole,
                parts,
                state["part_of"],
                load_jobs(blobs),
                np.array(state["carry"]),
                state["elsewhere"] and Elsewhere(*state["elsewhere"]),
            )
            own.chosen = None if state["chosen"] is None else np.array(state["chosen"])
            if len(own.jobs) != live["contexts"]:
                raise KeyError("what some contexts' jobs said")
            state["noise"] = live["noise"]
            left_out, latest = (
                StackingRecords(*records[: len(KINDS)]),
                StackingRecords(*records[len(KINDS) :]),
            )
            weights = StackingWeights(whole.members, left_out, latest, tuple(state["tried"]))
            return cls(features, whole, own, state, weights)
        except KeyError as missing:
            raise ValueError(f"damaged model: {missing} is missing; fit it again") from None


def _within_sd(values: FloatArray, keys: Sequence[str], counts: FloatArray) -> float:
    """Typical size of (n,) values, of which each counts so much (n,), once each context's own mean
    is taken off; wild ones do not count."""
    places = places_of(keys).values()
    rest = np.concatenate([values[at] - mean_of(values[at], counts[at]) for at in places])
    return max(quantile(np.abs(rest), 0.68, counts[np.concatenate([*places])]), 1e-6)


def _levels_sd(off: FloatArray, keys: Sequence[str], counts: FloatArray, left: float) -> float:
    """How far whole contexts lie off what was said of them, by errors (n,) of their jobs; before
    any it is as far as jobs lie within one, for which :data:`CARRIED_CONTEXTS` count."""
    means = [mean_of(off[at], counts[at]) for at in places_of(keys).values()]
    total = float(np.square(means).sum()) + CARRIED_CONTEXTS * left**2
    return float(np.sqrt(total / (len(means) + CARRIED_CONTEXTS)))


def _some(where: IntArray, rows: FeatureRows, rng: np.random.Generator) -> IntArray:
    if len(where) <= KEPT:
        return where
    return np.sort(where[shuffled(rng, rows.counts[where])[:KEPT]])
