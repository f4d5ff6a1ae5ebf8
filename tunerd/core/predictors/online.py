"""What predictors share that learn online: a base that a fit made, and what moves since.

A prediction is a sum::

    base(context, configuration)      the mean of its members
    + level[context]                  shrunken mean of the context's own residuals
    + effect[configuration]           of those that were run in several contexts (.effects)
    + correction(…)                   what the recent window alone says of the rest

Learning a job costs the same at any age: its context's level moves at once, the base may take it
in, and the correction is fitted anew on the recent window. What the base says of its own variance
and its members' disagreement make the spread, with the noise that jobs left out of a fit and live
ones show.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np

from tunerd.core.arrays import FloatArray, IntArray
from tunerd.core.estimators.codec import seal_json, unseal_json
from tunerd.core.estimators.trend import RidgeTrend
from tunerd.core.features import FeatureMap, FeatureRows
from tunerd.core.predictors.base import Predictor
from tunerd.core.predictors.config_effects import ConfigEffects
from tunerd.core.predictors.context_effects import ContextEffects
from tunerd.core.predictors.errors import follow_errors, noise_of, widening
from tunerd.core.predictors.predictions import Predictions
from tunerd.core.study import Study

__all__ = [
    "BasePredictions",
    "Columns",
    "FittedBase",
    "OnlineCorrection",
    "OnlinePredictor",
    "RidgeCorrection",
    "scored",
]

Columns = Sequence[tuple[str, bool]]
"""Name of each column, and whether it is categorical."""
CORRECTION_ROWS = 16
"""Recent rows with a score below which there is no correction."""


class BasePredictions(NamedTuple):
    """What a base says of n rows, in score units."""

    members: FloatArray
    """(n, members)"""
    leverage: FloatArray
    """(n,) large where nothing is near."""
    variance: FloatArray | float = 0.0
    """(n,) what it says of its own; noise and disagreement are apart."""


class FittedBase(Protocol):
    """What a fit made. Immutable: learning gives another one."""

    def predict(self, X: FloatArray) -> BasePredictions:
        """Predict (n, F)."""

    def members(self, X: FloatArray) -> FloatArray:
        """(n, members) of :meth:`predict`, where nobody asks how sure they are."""

    def learned(self, rows: FeatureRows, recent: FeatureRows) -> Self:
        """Take in new rows, or not; all of both have a score."""

    def dump(self) -> dict[str, bytes]:
        """State as named blobs that notice damage."""


class OnlineCorrection(Protocol):
    """What the recent window says of the rest."""

    def predict(self, X: FloatArray) -> FloatArray:
        """(n, F) → (n, 1) or (n, members)."""

    def dump(self) -> bytes:
        """State as a blob that notices damage."""


@dataclass(frozen=True)
class RidgeCorrection:
    """A straight line as correction."""

    line: RidgeTrend

    @classmethod
    def fit(cls, rows: FeatureRows, rest: FloatArray, categorical: Sequence[bool]) -> Self:
        """Fit to what is left (n,) of some rows."""
        everything = [np.ones(len(rows), bool)]
        return cls(RidgeTrend.fit(rows.X, rest, rows.weight, categorical, everything))

    def predict(self, X: FloatArray) -> FloatArray:
        """See :class:`OnlineCorrection`."""
        return self.line.predict(X)[0]

    def dump(self) -> bytes:
        """See :class:`OnlineCorrection`."""
        return seal_json(self.line.dump())

    @classmethod
    def load(cls, blob: bytes) -> Self:
        """Build from what :meth:`dump` gave."""
        return cls(RidgeTrend.load(unseal_json(blob)))


B = TypeVar("B", bound=FittedBase)


class OnlinePredictor(Predictor, Generic[B]):
    """See the module. A subclass fits a base, loads it, and may correct it in its own way."""

    def __init__(
        self,
        columns: Columns,
        base: B,
        levels: ContextEffects,
        effects: ConfigEffects,
        noise: float,
        correction: OnlineCorrection | None = None,
    ) -> None:
        self._columns = tuple(columns)
        self._base = base
        self._levels = levels
        self._effects = effects
        self._noise = noise
        """Variance of a job's score around its prediction, on the data."""
        self._correction = correction
        self._dumped: tuple[B, dict[str, bytes]] | None = None

    @classmethod
    def settled(
        cls,
        features: FeatureMap,
        base: B,
        levels: ContextEffects,
        rows: FeatureRows,
        rest: FloatArray,
        unseen: IntArray,
        off: FloatArray,
        counts: FloatArray,
    ) -> Self:
        """What a fit ends with: ``rest`` (n, members) is what base and levels leave of its rows,
        ``unseen`` (n,) which member has not seen each, ``off`` errors on jobs left out, in units of
        how much wider than on the data a prediction of them was to be, and ``counts`` what is left
        of each of these jobs. What is faint repeats as it was."""
        fresh = rows.fresh()
        effects = ConfigEffects.fit(features, rows.take(fresh), rest[fresh], unseen[fresh])
        unit = features.study.unit(rows.score)
        noise = noise_of(off * np.sqrt(effects.left), rows.score, unit, counts)
        levels.expect(noise)
        columns = [(c.name, c.categorical) for c in features.columns]
        return cls(columns, base, levels, effects, noise)

    def update(self, rows: FeatureRows, recent: FeatureRows) -> None:
        """See :meth:`Predictor.update`."""
        rows, recent = scored(rows), scored(recent)
        if len(rows) == 0:
            return
        prediction, members = self._said(rows)
        errors = np.abs(rows.score - prediction.mean) / prediction.std
        self._noise = follow_errors(self._noise, errors, rows.counts)
        rest = rows.score - members.mean(axis=1)
        self._levels.learn(rows.context_key, rest, rows.counts)
        self._base = self._base.learned(rows, recent)
        self._correction = None
        if len(recent) >= CORRECTION_ROWS:
            level, _ = self._levels.of(recent.context_key)
            each = (recent.score - level)[:, None] - self._members(recent.X)
            self._correction = self.correct(recent, each)

    def predict(self, rows: FeatureRows) -> Predictions:
        """See :meth:`Predictor.predict`."""
        return self._said(rows)[0]

    def means(self, rows: FeatureRows) -> FloatArray:
        """See :meth:`Predictor.means`."""
        members = self._members(rows.X)
        if self._correction is not None:
            members = members + self._correction.predict(rows.X)
        level, _ = self._levels.of(rows.context_key)
        return np.asarray(members.mean(axis=1) + level, np.float64)

    def _said(self, rows: FeatureRows) -> tuple[Predictions, FloatArray]:
        """The prediction, and of the same rows what :meth:`_members` gives."""
        members, leverage, own = self._base.predict(rows.X)
        special, wider = self._effects.of(rows.X)
        members = members + special[:, None]
        each = members
        if self._correction is not None:
            each = members + self._correction.predict(rows.X)
        level, jobs = self._levels.of(rows.context_key)
        variance = own + self._noise * widening(leverage, jobs) * wider
        if each.shape[1] > 1:
            variance = variance + each.var(axis=1, ddof=1)
        return Predictions.of_scores(each.mean(axis=1) + level, np.sqrt(variance)), members

    def _members(self, X: FloatArray) -> FloatArray:
        """(n, members) of all that a context has no part of its own in, but for the correction."""
        return self._base.members(X) + self._effects.of(X)[0][:, None]

    def dump(self) -> dict[str, bytes]:
        """See :meth:`Predictor.dump`. A base is the same bytes as long as it is the same."""
        if self._dumped is None or self._dumped[0] is not self._base:
            self._dumped = self._base, self._base.dump() | self._effects.dump()
        live = {
            "columns": [list(column) for column in self._columns],
            "levels": self._levels.dump(),
            "noise": self._noise,
            "corrected": self._correction is not None,
        }
        blobs = {**self._dumped[1], "live": seal_json(live)}
        if self._correction is not None:
            blobs["correction"] = self._correction.dump()
        return blobs

    @classmethod
    def load(cls, study: Study, features: FeatureMap, blobs: Mapping[str, bytes]) -> Self:
        """See :meth:`Predictor.load`."""
        try:
            live: Mapping[str, Any] = unseal_json(blobs["live"])
            columns = [(name, categorical) for name, categorical in live["columns"]]
            if columns != [(c.name, c.categorical) for c in features.columns]:
                raise ValueError(
                    f"this model is of another generation of {study.name}; fit it again"
                )
            base = cls.load_base(features, blobs)
            effects = ConfigEffects.load(blobs)
            correction = cls.load_correction(blobs["correction"]) if live["corrected"] else None
        except KeyError as missing:
            raise ValueError(f"damaged model: {missing} is missing; fit it again") from None
        levels = ContextEffects.load(live["levels"])
        return cls(columns, base, levels, effects, live["noise"], correction)

    @classmethod
    @abstractmethod
    def load_base(cls, features: FeatureMap, blobs: Mapping[str, bytes]) -> B:
        """Build a base from what it dumped. Raises KeyError for a missing blob, ValueError for a
        damaged one."""

    def correct(self, recent: FeatureRows, rest: FloatArray) -> OnlineCorrection | None:
        """Fit what base and levels leave (n, members) of the recent window."""
        return RidgeCorrection.fit(recent, rest.mean(axis=1), [c for _, c in self._columns])

    @classmethod
    def load_correction(cls, blob: bytes) -> OnlineCorrection:
        """Build from what a correction dumped."""
        return RidgeCorrection.load(blob)


def scored(rows: FeatureRows) -> FeatureRows:
    """The rows that have a score."""
    return rows.take(np.flatnonzero(np.isfinite(rows.score)))
