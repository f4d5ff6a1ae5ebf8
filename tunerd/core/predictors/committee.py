"""``committee``: several predictors of different kinds, weighted by how well each does here.

No kind of predictor is the best everywhere: a process on tens of jobs, trees on thousands, networks
where what matters is the order, and the one that is best on a study may be useless on the next. A
prediction is the weighted mean of members'. Two sets of weights stand on jobs that the members had
not seen: for contexts with jobs of their own, and for contexts that nobody has run yet; between
them a context moves as its jobs come in. They come from fits that leave out whole contexts and some
jobs of all others, and then from every job that arrives, predicted before it is learned. Members
that do not help get weight 0 and are not asked (learners/blending.py).

The spread is that of the members and their disagreement, as much wider or narrower as the jobs left
out say.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Self

import numpy as np
from safetensors.numpy import load, save

from tunerd.core.arrays import BoolArray, FloatArray, IntArray
from tunerd.core.features.rows import Rows
from tunerd.core.learners.blending import Record, weights_of
from tunerd.core.learners.blobs import seal, seal_json, unseal, unseal_json
from tunerd.core.predictors.base import Prediction, Predictor
from tunerd.core.predictors.boosted_trees import BoostedTrees
from tunerd.core.predictors.errors import FEW_ROWS, follow_errors, noise_of
from tunerd.core.predictors.gaussian_process import GaussianProcess
from tunerd.core.predictors.neural_ensemble import NeuralEnsemble
from tunerd.core.predictors.tree_kinds import ConfigurationTrees, ExtraTrees

if TYPE_CHECKING:
    from tunerd.core.features import FeatureMap
    from tunerd.core.study import Study

__all__ = ["MEMBERS", "Committee"]

MEMBERS: Mapping[str, type[Predictor]] = {
    "process": GaussianProcess,
    "networks": NeuralEnsemble,
    "boosted": BoostedTrees,
    "extra": ExtraTrees,
    "configuration": ConfigurationTrees,
}
MOST_LEFT = 0.7
"""Share of all rows that is left out at most."""
ALSO_LEFT = 5
"""One in so many jobs of contexts that stay is left out too."""
ENOUGH_ROWS = 12
"""Rows below which nothing is left out: what is kept would say nothing."""
KEPT = 600
"""Predictions of jobs left out that weights stand on, at most; of more a random sample."""
LIVE = 300
"""Predictions of the latest jobs that weights stand on."""
FAMILIAR = 3.0
"""Jobs with which a context is half known."""
MAX_CONTEXTS = 2_000


class Committee(Predictor):
    """See the module. Deterministic for its rows and seed."""

    def __init__(
        self,
        members: Mapping[str, Predictor],
        seen: Mapping[str, int],
        left_out: Record,
        live: Record,
        noise: float,
        wider: float,
    ) -> None:
        self._members = dict(members)
        self._seen = OrderedDict(seen)
        """Context key → jobs of it that were learned, the latest contexts."""
        self._left_out = left_out
        self._live = live
        self._noise = noise
        """Variance of a job in units of the members' own idea of it."""
        self._wider = wider
        """How much more that is in contexts that nobody has run yet."""
        self._weigh()

    @classmethod
    def fit(cls, study: "Study", features: "FeatureMap", rows: Rows, seed: int) -> Self:
        """See :meth:`Predictor.fit`. About twice what its members cost."""
        rows = rows.take(np.flatnonzero(np.isfinite(rows.score)))
        members = {name: kind.fit(study, features, rows, seed) for name, kind in MEMBERS.items()}
        record = Record.empty(len(MEMBERS))
        if len(rows) >= ENOUGH_ROWS:
            rough = replace(study, predictor=replace(study.predictor, members=1))
            for fold, (held, known) in enumerate(_folds(rows, features, seed)):
                kept = rows.take(np.setdiff1d(np.arange(len(rows)), held))
                if len(kept) >= FEW_ROWS and len(held):
                    refits = [_refit(m, rough, features, kept, seed) for m in members.values()]
                    told = _told(refits, rows.take(held), known)
                    # Errors are compared within one context and fit.
                    keys = tuple(f"{fold} {key}" for key in told.keys)
                    record = record.joined(replace(told, keys=keys))
        if len(record) > KEPT:
            some = np.random.default_rng(seed).permutation(len(record))[:KEPT]
            record = record.take(np.sort(some))
        seen = Counter(rows.context_key)
        latest = list(OrderedDict.fromkeys(reversed(rows.context_key)))[:MAX_CONTEXTS]
        found = cls(
            members,
            {key: seen[key] for key in reversed(latest)},
            record,
            record.take(slice(0)),
            1.0,
            1.0,
        )
        near, far = found._off(record.known), found._off(~record.known)
        found._noise = near or far or 1.0
        found._wider = float(np.clip((far or near or 1.0) / found._noise, 1.0, 25.0))
        return found

    @property
    def weights(self) -> dict[str, dict[str, float]]:
        """Member → its weight in contexts that are ``known`` and in ``new`` ones."""
        both = zip(MEMBERS, self._known.tolist(), self._new.tolist(), strict=True)
        return {name: {"known": known, "new": new} for name, known, new in both}

    def update(self, rows: Rows, recent: Rows) -> None:
        """See :meth:`Predictor.update`."""
        rows = rows.take(np.flatnonzero(np.isfinite(rows.score)))
        if len(rows) == 0:
            return
        known = np.array([key in self._seen for key in rows.context_key])
        told = _told(list(self._members.values()), rows, known)
        prediction = self._blended(told)
        errors = np.abs(rows.score - prediction.mean) / prediction.spread
        self._noise = follow_errors(self._noise, errors)
        self._live = self._live.joined(told).take(slice(-LIVE, None))
        for key in rows.context_key:
            self._seen[key] = self._seen.pop(key, 0) + 1
        while len(self._seen) > MAX_CONTEXTS:
            self._seen.popitem(last=False)
        for member in self._members.values():
            member.update(rows, recent)
        self._weigh()

    def predict(self, rows: Rows) -> Prediction:
        """See :meth:`Predictor.predict`. Asks those members alone that have a weight."""
        asked = (self._known > 0) | (self._new > 0)
        n, members = len(rows), len(self._members)
        mean, spread = np.zeros((n, members)), np.ones((n, members))
        for m, member in enumerate(self._members.values()):
            if asked[m]:
                one = member.predict(rows)
                mean[:, m], spread[:, m] = one.mean, one.spread
        blank = np.zeros(n)
        return self._blended(Record(mean, spread, blank, blank > 0, rows.context_key))

    def dump(self) -> dict[str, bytes]:
        """See :meth:`Predictor.dump`."""
        state = {
            "seen": list(self._seen.items()),
            "noise": self._noise,
            "wider": self._wider,
            "left_out": list(self._left_out.keys),
            "live": list(self._live.keys),
        }
        blobs = {
            "committee": seal_json(state),
            "left_out": seal(save(dict(self._left_out.arrays()))),
            "live": seal(save(dict(self._live.arrays()))),
        }
        for name, member in self._members.items():
            blobs |= {f"{name}.{part}": blob for part, blob in member.dump().items()}
        return blobs

    @classmethod
    def load(cls, study: "Study", features: "FeatureMap", blobs: Mapping[str, bytes]) -> Self:
        """See :meth:`Predictor.load`."""
        if not {"committee", "left_out", "live"} <= set(blobs):
            raise ValueError("damaged model: parts are missing; fit it again")
        state = unseal_json(blobs["committee"])
        members = {
            name: kind.load(
                study,
                features,
                {k.partition(".")[2]: v for k, v in blobs.items() if k.startswith(name + ".")},
            )
            for name, kind in MEMBERS.items()
        }
        left_out, live = (
            Record.of(load(unseal(blobs[name])), state[name]) for name in ("left_out", "live")
        )
        return cls(members, dict(state["seen"]), left_out, live, state["noise"], state["wider"])

    def _weigh(self) -> None:
        record = self._left_out.joined(self._live)
        equal = np.full(len(self._members), 1.0 / len(self._members))
        together = weights_of(record, equal)
        self._known = weights_of(record.take(np.flatnonzero(record.known)), together)
        self._new = weights_of(record.take(np.flatnonzero(~record.known)), together)

    def _blended(self, told: Record) -> Prediction:
        jobs = np.array([self._seen.get(key, 0) for key in told.keys], np.float64)
        return self._as(told, jobs / (jobs + FAMILIAR))

    def _as(self, told: Record, known: FloatArray) -> Prediction:
        """The blend where contexts are ``known`` (n,) by so much, 0 to 1."""
        weight = known[:, None] * self._known + (1.0 - known)[:, None] * self._new
        mean = (weight * told.mean).sum(axis=1)
        apart = (told.mean - mean[:, None]) ** 2
        variance = (weight * (told.spread**2 + apart)).sum(axis=1)
        wider = known + (1.0 - known) * self._wider
        return Prediction(mean, np.sqrt(self._noise * wider * variance))

    def _off(self, which: BoolArray) -> float | None:
        """How far off the blend is on jobs left out, squared and in its own spreads; None if they
        are too few to say."""
        record = self._left_out.take(np.flatnonzero(which))
        if len(record) < FEW_ROWS:
            return None
        prediction = self._as(record, record.known.astype(np.float64))
        errors = (record.score - prediction.mean) / prediction.spread
        return float(np.clip(noise_of(errors, record.score), 0.04, 25.0))


def _refit(
    member: Predictor, study: "Study", features: "FeatureMap", rows: Rows, seed: int
) -> Predictor:
    if isinstance(member, GaussianProcess):
        return member.refitted(features, rows, seed)  # choosing the kernel is nine tenths of a fit
    if isinstance(member, NeuralEnsemble):
        return member.fit_roughly(study, features, rows, seed)
    return type(member).fit(study, features, rows, seed)


def _told(members: Sequence[Predictor], rows: Rows, known: BoolArray) -> Record:
    said = [member.predict(rows) for member in members]
    return Record(
        np.stack([one.mean for one in said], axis=1),
        np.stack([one.spread for one in said], axis=1),
        rows.score,
        known,
        rows.context_key,
    )


def _folds(rows: Rows, features: "FeatureMap", seed: int) -> Iterator[tuple[IntArray, BoolArray]]:
    """Rows to leave out, and which of them are of contexts that stay.

    A third of the contexts; one kind of them, as if a new model or GPU type had come; and the
    largest, as if jobs grew: how members do on contexts that have near relatives says little of
    how they do on those that have none. And in each fold one in :data:`ALSO_LEFT` rows of the rest.
    """
    rng = np.random.default_rng(seed)
    names, group = np.unique(np.array(rows.context_key), return_inverse=True)
    size = np.bincount(group)
    third = np.cumsum(size[order := rng.permutation(len(names))]) <= max(len(rows) / 3, size.min())
    leave = [np.isin(group, order[third]) if len(names) > 1 else np.zeros(len(rows), bool)]
    columns = [(i, c) for i, c in enumerate(features.columns) if c.group == "context"]
    kinds = [_kind(rows.X[:, i], rng) for i, c in columns if c.categorical]
    sizes = [_largest(rows.X[:, i]) for i, c in columns if not c.categorical]
    for found in (kinds or sizes, sizes or kinds):
        usable = [mask for mask in found if 0 < mask.mean() <= MOST_LEFT]
        leave.append(
            usable[int(rng.integers(len(usable)))] if usable else np.roll(leave[0], len(leave))
        )
    turn = rng.permutation(len(rows)) % ALSO_LEFT
    for fold, whole in enumerate(leave):
        gone = np.isin(group, group[whole])  # no context is left out by half
        held = np.flatnonzero(gone | (turn == fold))
        if gone.mean() <= MOST_LEFT:
            yield held, ~gone[held]


def _kind(values: FloatArray, rng: np.random.Generator) -> BoolArray:
    """(n,) rows of one of a column's values."""
    return np.asarray(values == rng.choice(np.unique(values)), bool)


def _largest(values: FloatArray) -> BoolArray:
    """(n,) rows above the value that two thirds of a column's values are not above."""
    there = np.unique(values[~np.isnan(values)])
    if len(there) < 2:
        return np.zeros(len(values), bool)
    return np.asarray(values > there[(2 * len(there) - 1) // 3], bool)
