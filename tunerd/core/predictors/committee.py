"""``committee``: several predictors of different kinds, and each context's own jobs.

No kind of predictor is the best everywhere: a process on tens of jobs, trees on thousands, networks
where what matters is the order, and the one that is best on a study may be useless on the next. So
several are asked, and weighted by how well each does here, down to 0, when they are not asked any
more (learners/blending.py). Two sets of weights stand on jobs that the members had not seen: for
contexts that nobody has run yet, and for those with jobs of their own. They come from fits that
leave whole contexts out, and others that leave single jobs out, and then from every job that
arrives, predicted before it is learned. With the jobs of a context its weights move from the ones
to the others.

In a context with jobs of its own there is one member more, a process over these jobs alone, around
what members say that have *not* seen this context (learners/local.py): the fits that leave contexts
out serve for that, each context in exactly one of them. It learns a job at once and in
milliseconds; members wait for the next fit. With nothing known elsewhere it is all there is.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from safetensors.numpy import load, save

from tunerd.core.arrays import BoolArray, FloatArray, IntArray
from tunerd.core.features.rows import Rows
from tunerd.core.folds import Fold, apart
from tunerd.core.learners.blending import LEAST, Record, pooled, weights_of
from tunerd.core.learners.blobs import seal, seal_json, unseal, unseal_json
from tunerd.core.learners.local import Local
from tunerd.core.learners.own_jobs import OwnJobs, familiar
from tunerd.core.left_out import LeftOut, doubted
from tunerd.core.predictors.base import Prediction, Predictor
from tunerd.core.predictors.council import MEMBERS, Council, rows_at
from tunerd.core.predictors.errors import FEW_ROWS, follow_errors, noise_of

if TYPE_CHECKING:
    from tunerd.core.features import FeatureMap
    from tunerd.core.study import Study

__all__ = ["Committee"]

PRIOR: Mapping[str, float] = {"process": 2.0}
"""Of the members, before any job tells: on tens of jobs a process is mostly the best of them; each
of the others counts 1."""
LOCAL = 0.1
"""Weight of a context's own process beside all members together, before any job tells: they have
seen the same jobs, and those of contexts alike. As jobs come that they have not seen, it gains;
before, :data:`LEAST` leaves it out."""
ENOUGH_ROWS = 6
"""Rows below which there are no members …"""
ALONE = 100
"""… and where there is one context only: what is known of it alone is the process's business."""
KEPT = 400
"""Predictions of jobs left out that weights stand on, of each kind; of more a random sample."""
LIVE = 200
"""Predictions of the latest jobs that weights stand on, of each kind."""
UNKNOWN_LEFT = 0.3
"""What other contexts leave to be known of one, before enough was left out to tell, as a part of
how far the scores of a context lie apart."""
MAX_CONTEXTS = 2_000
MOST_PROCESSES = 64
"""Processes of single contexts that are kept ready."""


class _Said(NamedTuple):
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


class Committee(Predictor):
    """See the module. Deterministic for its rows and seed."""

    def __init__(
        self,
        features: "FeatureMap",
        whole: Council,
        parts: Sequence[Council],
        part_of: Mapping[str, int],
        own: Mapping[str, OwnJobs],
        state: Mapping[str, Any],
        left_out: tuple[Record, Record],
        live: tuple[Record, Record],
    ) -> None:
        self._features, self._whole, self._parts = features, whole, tuple(parts)
        self._part_of = dict(part_of)
        """Context key → which of the parts has not seen it."""
        self._own = OrderedDict(own)
        self._carry = np.array(state["carry"])
        """(M,) weights of what other contexts say, as they were at the fit: the process around it
        would mistake a change of them for news."""
        self._left: float | None = state["left"]
        """What that leaves within a context, standard deviation."""
        self._typical: float = state["typical"]
        self._unknown: float = state["unknown"]
        """Score, and spread, of a job before anything is known."""
        self._noise: float = state["noise"]
        """Variance of a job in units of the members' own idea of it."""
        self._usual: float | None = state["usual"]
        """The members' own idea of how far off they are on the jobs that told this, if any did."""
        self._wider: float = state["wider"]
        """How much more that is in contexts that nobody has run yet."""
        self._left_out, self._live = left_out, live
        """In contexts that are new, and in known ones."""
        self._ready: OrderedDict[str, Local] = OrderedDict()
        self._left_out_told: LeftOut | None = None
        self._weigh()

    @classmethod
    def fit(cls, study: "Study", features: "FeatureMap", rows: Rows, seed: int) -> Self:
        """See :meth:`Predictor.fit`. About twice what its members cost."""
        rows = rows.take(np.flatnonzero(np.isfinite(rows.score)))
        own = _own(rows)
        state = {
            "carry": [0.0] * len(MEMBERS),
            "left": None,
            "typical": float(rows.score.mean()) if len(rows) else 0.0,
            "unknown": float(np.sqrt(noise_of(np.zeros(0), rows.score))),
            "noise": 1.0,
            "usual": None,
            "wider": 1.0,
        }
        nothing = Record.empty(len(MEMBERS)), Record.empty(len(MEMBERS) + 1)
        if len(rows) < ENOUGH_ROWS or (len(own) == 1 and len(rows) < ALONE):
            return cls(features, Council({}), (), {}, own, state, nothing, nothing)
        whole = Council.fit(study, features, rows, seed)
        folds = list(apart(rows, features, seed))
        councils = [whole.refitted(study, features, rows, fold.kept, seed) for fold in folds]
        each = list(zip(folds, councils, strict=True))
        strange = [(fold, council) for fold, council in each if fold.without]
        parts = [council for _, council in strange]
        part_of = {key: i for i, (fold, _) in enumerate(strange) for key in sorted(fold.without)}
        found = cls(features, whole, parts, part_of, own, state, nothing, nothing)
        found._examine(strange, [one for one in each if not one[0].without], rows, seed)
        found._tell(found._own)
        return found

    @property
    def weights(self) -> dict[str, dict[str, float]]:
        """Member → its weight in contexts that are ``known`` and in ``new`` ones; ``own`` is the
        process over a context's own jobs."""
        both = zip([*MEMBERS, "own"], self._known.tolist(), [*self._new.tolist(), 0.0], strict=True)
        return {name: {"known": known, "new": new} for name, known, new in both}

    def update(self, rows: Rows, recent: Rows) -> None:
        """See :meth:`Predictor.update`. Members wait for the next fit."""
        del recent
        rows = rows.take(np.flatnonzero(np.isfinite(rows.score)))
        if len(rows) == 0:
            return
        said = self._said(rows, everybody=True)
        blended = self._blended(said)
        errors = (rows.score - blended.mean) / blended.spread
        self._noise = follow_errors(self._noise, np.abs(errors))
        self._follow(said, rows)
        for key in dict.fromkeys(rows.context_key):
            if key in self._own:
                self._own[key].keep(self._process(key).theta)
        for i, key in enumerate(rows.context_key):
            own = self._own.pop(key, None) or OwnJobs()
            self._own[key] = own
            own.add(rows.X[i], float(rows.score[i]), float(rows.weight[i]), float(said.told[i]))
            own.expect([float(errors[i])] if own.jobs > 1 else [])
            self._ready.pop(key, None)
        while len(self._own) > MAX_CONTEXTS:
            self._own.popitem(last=False)
        self._weigh()

    def predict(self, rows: Rows) -> Prediction:
        """See :meth:`Predictor.predict`."""
        return self._blended(self._said(rows))

    def correlations(self, rows: Rows) -> Callable[[int], FloatArray]:
        """See :meth:`Predictor.correlations`: as the context's own process has it."""
        process = self._process(rows.context_key[0])
        told, Z = self._known_of(self._told(rows)), self._places(rows.X)
        sd = np.sqrt(process.predict(Z, told)[1])

        def with_one(row: int) -> FloatArray:
            found = process.covariance(Z, told, row) / (sd * sd[row])
            return np.asarray(found.clip(-1.0, 1.0), np.float64)

        return with_one

    def left_out(
        self, study: "Study", features: "FeatureMap", rows: Rows, seed: int
    ) -> LeftOut | None:
        """See :meth:`Predictor.left_out`: what the fit itself left out."""
        del study, features, rows, seed
        return self._left_out_told

    # -- what is believed -------------------------------------------------------------------

    def _said(self, rows: Rows, *, everybody: bool = False) -> _Said:
        """Ask those whose word counts for each row, or everybody who counts anywhere."""
        n, members = len(rows), len(MEMBERS)
        mean, spread, weight = np.zeros((3, n, members + 1))
        doubt, told = np.zeros(n), np.full(n, np.nan)
        owns = [self._own.get(key) for key in rows.context_key]
        points = np.array([len(o.points) if o else 0 for o in owns], np.int64)
        if self._whole.members:
            share = np.array([o.share if o else 1.0 for o in owns])
            weight[:, :-1] = share[:, None] * self._weights(points)[:, :-1]
            asked = np.maximum(self._new, self._known[:-1]) if everybody else weight[:, :-1]
            mean[:, :-1], spread[:, :-1] = self._whole.ask(rows, asked)
        weight[:, -1] = 1.0 - weight[:, :-1].sum(axis=1)
        mean[:, -1], spread[:, -1] = self._typical, self._unknown
        where = np.arange(n) if everybody else np.flatnonzero(points)
        if len(where):
            told[where] = self._told(rows_at(rows, where))
        Z = self._places(rows.X)
        for key, where in _by_context(rows.context_key):
            own = self._own.get(key)
            if own is None and (self._whole.members or len(self._own) != 1):
                continue
            # Where no member is there yet, the only context known speaks for others too.
            process = self._process(key if own else next(iter(self._own)))
            mean[where, -1], doubt[where] = process.predict(Z[where], self._known_of(told[where]))
            spread[where, -1] = np.sqrt(doubt[where] + process.noise)
            if own is None or own.jobs == 1:  # it says where that context lies, if anything
                spread[where, -1] = np.maximum(spread[where, -1], self._first_spread())
        return _Said(mean, spread, weight, doubt, told, points)

    def _blended(self, said: _Said) -> Prediction:
        mean, spread = pooled(said.mean, said.spread, said.weight)
        apart = (said.weight * (said.mean - mean[:, None]) ** 2).sum(axis=1)
        strange = (1.0 - familiar(said.points)) * said.weight[:, :-1].sum(axis=1)
        caution = self._caution(spread)
        spread = spread * caution * np.sqrt(self._noise * self._wider**strange)
        doubt = np.minimum(caution * np.sqrt(said.doubt + apart), spread)
        return Prediction(mean, spread, np.where(said.points == 0, spread, doubt))

    def _caution(self, spread: FloatArray) -> FloatArray:
        """(n,) how much of the members' caution is kept, 1 for none, where they are this unsure.

        That they are too cautious where jobs lie close says nothing of where they know less: a
        spread is narrowed the less, the wider it is beside those of the jobs that told it.
        """
        if self._usual is None or self._noise >= 1.0:
            return np.ones(len(spread))
        close = np.minimum((self._usual / spread) ** 2, 1.0)
        return np.asarray(self._noise ** ((close - 1.0) / 2.0), np.float64)

    def _weights(self, points: IntArray) -> FloatArray:
        """(n, M + 1) of each member and of the own process, where so many (n,) configurations of a
        context were tried: between those for a new one and those for a known one."""
        known = familiar(points)[:, None]
        mixed = (1.0 - known) * np.append(self._new, 0.0) + known * self._known
        mixed = np.where(mixed < LEAST, 0.0, mixed)
        return np.asarray(mixed / mixed.sum(axis=1, keepdims=True), np.float64)

    def _told(self, rows: Rows) -> FloatArray:
        """(n,) what other contexts say of rows; NaN where nothing is known elsewhere."""
        told = np.full(len(rows), np.nan)
        if not self._whole.members or self._left is None:
            return told
        part = np.array([self._part_of.get(key, -1) for key in rows.context_key], np.int64)
        for i, council in ((-1, self._whole), *enumerate(self._parts)):
            where = np.flatnonzero(part == i)
            if len(where):
                told[where] = council.means(rows_at(rows, where), self._carry)
        return told

    def _known_of(self, told: FloatArray) -> FloatArray | None:
        """What a process takes: None where nothing is known elsewhere."""
        return told if self._whole.members and self._left is not None else None

    def _process(self, key: str) -> Local:
        """The process over a context's own jobs, of which there may be none."""
        process = self._ready.get(key)
        if process is None:
            own = self._own.get(key) or OwnJobs()
            process = self._around(own, None if own.theta is None else np.array(own.theta))
            self._ready[key] = process
            if len(self._ready) > MOST_PROCESSES:
                self._ready.popitem(last=False)
        self._ready.move_to_end(key)
        return process

    def _around(self, own: OwnJobs, theta: FloatArray | None = None) -> Local:
        """A process over some jobs around what other contexts say of them."""
        X, score, weight, told = own.arrays(len(self._features.columns))
        groups = self._features.coordinate_groups
        about = self._known_of(told)
        return Local.fit(groups, self._places(X), score, weight, about, self._left, theta)

    def _first_spread(self) -> float:
        return self._unknown if self._left is None else self._left

    def _places(self, X: FloatArray) -> FloatArray:
        """(n, F) → (n, C) coordinates, in which each parameter has unit variance."""
        count = len(self._features.study.parameters)
        return np.asarray(self._features.coordinates(X) * np.sqrt(count), np.float64)

    # -- what each is worth -----------------------------------------------------------------

    def _examine(
        self,
        strange: Sequence[tuple[Fold, Council]],
        known: Sequence[tuple[Fold, Council]],
        rows: Rows,
        seed: int,
    ) -> None:
        """Weigh members by what those say that have not seen some contexts, and some jobs; and see
        how far off they are all together."""
        rng = np.random.default_rng([seed, 2])
        far = Record.empty(len(MEMBERS))
        for i, (fold, council) in enumerate(strange):
            asked = rows.take(_some(fold.held, rng))
            said = council.ask(asked, np.ones(len(MEMBERS)))
            far = far.joined(_record(said, asked, f"{i} "))
        self._left_out = far, self._left_out[1]
        self._weigh()
        self._carry = self._new.copy()
        if len(far):
            left = _within_sd(far.score - far.mean @ self._carry, far.keys)
            usual = _within_sd(rows.score, rows.context_key)
            self._left = left if len(far) >= FEW_ROWS else max(left, UNKNOWN_LEFT * usual)
        near = Record.empty(len(MEMBERS) + 1)
        tried, points = np.zeros(0, bool), np.zeros(0, np.int64)
        for i, (fold, council) in enumerate(known):
            asked = rows.take(_some(fold.held, rng))
            said, again, there = self._as_known(council, rows.take(fold.kept), asked)
            near = near.joined(_record(said, asked, f"{i} "))
            tried, points = np.append(tried, again), np.append(points, there)
        self._left_out = far, near
        self._weigh()
        weights = self._weights(points)
        off, off_far = self._off(near, weights), self._off(far, self._new)
        told = near.blended(weights) if off else far.blended(self._new) if off_far else None
        self._usual = None if told is None else float(np.median(told[1]))
        self._noise = off or off_far or 1.0
        self._wider = float(np.clip((off_far or off or 1.0) / self._noise, 1.0, 25.0))
        odd = (1.0 - familiar(points)) * weights[:, :-1].sum(axis=1)
        self._left_out_told = self._told_apart(far, near, tried, weights, odd)

    def _as_known(
        self, council: Council, seen: Rows, asked: Rows
    ) -> tuple[tuple[FloatArray, FloatArray], BoolArray, IntArray]:
        """What members that were fitted on ``seen``, and the contexts' processes over those jobs,
        say of the rows ``asked``; which of them are of configurations seen there, and how many of
        those there are."""
        mean, spread = np.zeros((2, len(asked), len(MEMBERS) + 1))
        mean[:, :-1], spread[:, :-1] = council.ask(asked, np.ones(len(MEMBERS)))
        told, Z = self._told(asked), self._places(asked.X)
        owns = _own(seen)
        self._tell(owns)
        again, points = np.zeros(len(asked), bool), np.zeros(len(asked), np.int64)
        for key, where in _by_context(asked.context_key):
            own = owns.get(key) or OwnJobs()
            process = self._around(own)
            mean[where, -1], variance = process.predict(Z[where], self._known_of(told[where]))
            spread[where, -1] = np.sqrt(variance + process.noise)
            again[where] = [asked.X[at].tobytes() in own.points for at in where.tolist()]
            points[where] = len(own.points)
        return (mean, spread), again, points

    def _tell(self, owns: Mapping[str, OwnJobs]) -> None:
        """Note what other contexts say of points: it stays as it is until the next fit, and takes
        more time than all the rest."""
        keys = [key for key, own in owns.items() for _ in own.points]
        X = b"".join(b"".join(own.points) for own in owns.values())
        width = len(self._features.columns)
        told = self._told(Rows.asked(np.frombuffer(X).reshape(len(keys), width), keys))
        points = (point for own in owns.values() for point in own.points.values())
        for point, said in zip(points, told.tolist(), strict=True):
            point.told = said

    def _weigh(self) -> None:
        there = self._whole.members
        prior = np.array([PRIOR.get(name, 1.0) if name in there else 0.0 for name in MEMBERS])
        prior /= max(prior.sum(), 1.0)
        new, known = (a.joined(b) for a, b in zip(self._left_out, self._live, strict=True))
        self._new = weights_of(new, prior)
        self._known = weights_of(known, np.append((1.0 - LOCAL) * prior, LOCAL))

    def _follow(self, said: _Said, rows: Rows) -> None:
        """Note what was said of rows before they are learned."""
        if not self._whole.members:
            return
        seen = [self._own.get(key) for key in rows.context_key]
        new = np.array([own is None for own in seen], bool)
        known = np.array([own is not None and own.share > 0.5 for own in seen], bool)
        one, other = self._live
        if new.any():
            part = rows.take(np.flatnonzero(new))
            one = one.joined(_record((said.mean[new, :-1], said.spread[new, :-1]), part))
        if known.any():
            part = rows.take(np.flatnonzero(known))
            other = other.joined(_record((said.mean[known], said.spread[known]), part))
        self._live = one.take(slice(-LIVE, None)), other.take(slice(-LIVE, None))

    def _off(self, record: Record, weights: FloatArray) -> float | None:
        """How far off the blend is on jobs left out, squared and in its own spreads; None if they
        are too few to say."""
        if len(record) < FEW_ROWS:
            return None
        mean, spread = record.blended(weights)
        off = noise_of((record.score - mean) / spread, record.score)
        return float(np.clip(doubted(off, len(record)), 0.04, 25.0))

    def _told_apart(
        self,
        far: Record,
        near: Record,
        tried: BoolArray,
        weights: FloatArray,
        strange: FloatArray,
    ) -> LeftOut | None:
        """What was said of contexts left out and of jobs left out; of the latter which
        configurations had been ``tried`` (n,), what each member counted (n, M + 1), and how
        ``strange`` (n,) the context was."""
        if not len(far) and not len(near):
            return None
        one, other = far.blended(self._new), near.blended(weights)
        spread = np.append(one[1], other[1])
        odd = np.append(np.ones(len(far)), strange)
        return LeftOut(
            far.keys + near.keys,
            np.concatenate([one[0], other[0]]),
            spread * self._caution(spread) * np.sqrt(self._noise * self._wider**odd),
            np.concatenate([far.score, near.score]),
            np.arange(len(far) + len(near)) >= len(far),
            np.append(np.zeros(len(far), bool), tried),
        )

    # -- keeping ----------------------------------------------------------------------------

    def dump(self) -> dict[str, bytes]:
        """See :meth:`Predictor.dump`."""
        records = {
            f"{name} {kind}": record
            for name, pair in (("left_out", self._left_out), ("live", self._live))
            for kind, record in zip(("new", "known"), pair, strict=True)
        }
        width = len(self._features.columns)
        points = [own.arrays(width) for own in self._own.values()]
        state = {
            "columns": [column.name for column in self._features.columns],
            "part_of": self._part_of,
            "parts": [list(council.members) for council in self._parts],
            "whole": list(self._whole.members),
            "own": [[key, len(own.points), own.dump()] for key, own in self._own.items()],
            "keys": {name: list(record.keys) for name, record in records.items()},
            "carry": self._carry.tolist(),
            "left": self._left,
            "typical": self._typical,
            "unknown": self._unknown,
            "noise": self._noise,
            "usual": self._usual,
            "wider": self._wider,
        }
        own = {
            "X": np.concatenate([np.zeros((0, width)), *(X for X, *_ in points)]),
            "values": np.concatenate(
                [np.zeros((0, 3)), *(np.stack(three, axis=1) for _, *three in points)]
            ),
        }
        blobs = {"committee": seal_json(state), "own": seal(save(own))}
        for name, record in records.items():
            blobs[name] = seal(save(dict(record.arrays())))
        for i, council in enumerate((self._whole, *self._parts)):
            blobs |= council.dump(f"{i}.")
        return blobs

    @classmethod
    def load(cls, study: "Study", features: "FeatureMap", blobs: Mapping[str, bytes]) -> Self:
        """See :meth:`Predictor.load`."""
        try:
            state = unseal_json(blobs["committee"])
            if state["columns"] != [column.name for column in features.columns]:
                raise ValueError(
                    f"this model is of another generation of {study.name}; fit it again"
                )
            values = load(unseal(blobs["own"]))
            records = {
                name: Record.of(load(unseal(blobs[name])), keys)
                for name, keys in state["keys"].items()
            }
            own, at = {}, 0
            for key, points, told in state["own"]:
                part = slice(at, at := at + points)
                own[key] = OwnJobs.load(told, values["X"][part], values["values"][part])
            councils = [
                Council.load(study, features, blobs, f"{i}.", names)
                for i, names in enumerate([state["whole"], *state["parts"]])
            ]
            left_out, live = (
                (records[f"{name} new"], records[f"{name} known"]) for name in ("left_out", "live")
            )
            return cls(
                features, councils[0], councils[1:], state["part_of"], own, state, left_out, live
            )
        except KeyError as missing:
            raise ValueError(f"damaged model: {missing} is missing; fit it again") from None


def _own(rows: Rows) -> dict[str, OwnJobs]:
    own: dict[str, OwnJobs] = {}
    for i, key in enumerate(rows.context_key):
        own.setdefault(key, OwnJobs()).add(rows.X[i], float(rows.score[i]), float(rows.weight[i]))
    for jobs in own.values():
        jobs.fitted = jobs.jobs
    latest = Counter({key: i for i, key in enumerate(rows.context_key)}).most_common(MAX_CONTEXTS)
    return {key: own[key] for key, _ in reversed(latest)}


def _by_context(keys: Sequence[str]) -> Iterable[tuple[str, IntArray]]:
    places: dict[str, list[int]] = {}
    for i, key in enumerate(keys):
        places.setdefault(key, []).append(i)
    return [(key, np.array(where, np.int64)) for key, where in places.items()]


def _record(said: tuple[FloatArray, FloatArray], rows: Rows, mark: str = "") -> Record:
    keys = tuple(mark + key for key in rows.context_key)  # errors compare within one fit
    return Record(said[0], said[1], rows.score, keys)


def _within_sd(values: FloatArray, keys: Sequence[str]) -> float:
    """Typical size of (n,) values once each context's own mean is taken off; wild ones do not
    count."""
    rest = np.concatenate([values[where] - values[where].mean() for _, where in _by_context(keys)])
    return max(float(np.quantile(np.abs(rest), 0.68)), 1e-6)


def _some(where: IntArray, rng: np.random.Generator) -> IntArray:
    return where if len(where) <= KEPT else np.sort(rng.permutation(where)[:KEPT])
