"""``boosted_trees``: the paper's tabular predictor (CubicML, arXiv 2409.04585, A.1.2), online.

A prediction is a sum of four parts, from coarse to fine::

    trend(context, configuration)     ridge over logarithms: carries to unseen contexts
    + level[context]                  shrunken mean of the context's own residuals
    + trees(context, configuration)   LightGBM on what is left; categories as categories
    + correction(…)                   a few trees on the recent window alone

A fit makes the first three from a bounded sample. Learning a job then costs the same at any age:
its context's level moves at once, and the correction is grown from scratch on the recent window
(after a shift as good as training on new data only, and nothing grows: τ .96 where retraining on
everything gives .84). Each of a few members is fitted without its own share of the rows. Those
rows tell how far off predictions are; with the members' disagreement they make the spread.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import numpy as np

from tunerd.core.arrays import BoolArray, FloatArray, IntArray
from tunerd.core.features.rows import Rows
from tunerd.core.learners.blobs import seal_json, unseal_json
from tunerd.core.learners.trees import Forest, TreeOptions, TreesData
from tunerd.core.learners.trend import Trend
from tunerd.core.predictors.base import Prediction, Predictor
from tunerd.core.predictors.errors import FEW_ROWS, folds_of, follow_errors, noise_of, widening
from tunerd.core.predictors.levels import Levels

if TYPE_CHECKING:
    from tunerd.core.features import FeatureMap
    from tunerd.core.study import Study

__all__ = ["BoostedTrees"]

CORRECTION_TREES = 50
CORRECTION_ROWS = 16
"""Recent rows with a score below which there is no correction."""


@dataclass(frozen=True, slots=True)
class _Fitted:
    """What a fit made; nothing of it changes afterwards."""

    trend: Trend
    forest: Forest | None
    """None while there are too few rows to split."""
    hidden: BoolArray
    """(F,) columns that the trees do not see."""

    def predict(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(n, F) → (n, members) sum of trend and trees, and (n,) leverage."""
        members, leverage = self.trend.predict(X)
        if self.forest is not None:
            members = members + self.forest.predict(_without(X, self.hidden))
        return members, leverage


class BoostedTrees(Predictor):
    """See the module. Trains on one thread; deterministic for its rows and seed."""

    def __init__(
        self,
        columns: Sequence[tuple[str, bool]],
        fitted: _Fitted,
        levels: Levels,
        noise: float,
        seed: int,
        correction: Forest | None = None,
    ) -> None:
        self._columns = tuple(columns)
        self._fitted = fitted
        self._levels = levels
        self._noise = noise
        """Variance of a job's score around its prediction, on the data."""
        self._seed = seed
        self._correction = correction
        self._sealed: dict[str, bytes] = {}

    @classmethod
    def fit(cls, study: "Study", features: "FeatureMap", rows: Rows, seed: int) -> Self:
        """See :meth:`Predictor.fit`. Seconds at 20,000 rows."""
        rows = rows.take(np.flatnonzero(np.isfinite(rows.score)))
        columns = [(c.name, c.categorical) for c in features.columns]
        categorical = [c for _, c in columns]
        options = study.predictor
        folds = folds_of(len(rows), options.members, seed)
        members = int(folds.max(initial=0)) + 1
        masks = [(folds != m) | (members == 1) for m in range(members)]
        trend = Trend.fit(rows.X, rows.score, rows.weight, categorical, masks)
        expected, leverage = trend.predict(rows.X)
        rest = rows.score[:, None] - expected
        levels = Levels.fit(rows.context_key, rest.mean(axis=1), rows.weight)
        level, jobs = levels.of(rows.context_key)
        rest = rest - level[:, None]
        forest = None
        hidden = cls.hidden(features)
        if members > 1 or len(rows) >= FEW_ROWS:
            seen = replace(rows, X=_without(rows.X, hidden))
            forest = Forest(
                [
                    _data(seen, categorical, np.flatnonzero(mask)).grow(
                        rest[mask, m], cls.growth(int(mask.sum()), options.trees, seed + m)
                    )
                    for m, mask in enumerate(masks)
                ]
            )
            rest = rest - forest.predict(seen.X)
        left_out = rest[np.arange(len(rows)), folds]
        noise = noise_of(left_out / np.sqrt(widening(leverage, jobs)), rows.score)
        levels.expect(noise)
        return cls(columns, _Fitted(trend, forest, hidden), levels, noise, seed)

    @classmethod
    def growth(cls, n: int, trees: int, seed: int) -> TreeOptions:
        """Options for n rows. Capacity grows with the data: at 350 rows 63 leaves cost .005 τ, at
        1,400 they gain .003. What predictions cost is the number of trees; fewer ones take larger
        steps instead."""
        leaves = 15 if n < 500 else 31 if n < 1_000 else 63
        min_rows = 3 if n < 500 else 5 if n < 5_000 else 10
        return TreeOptions(trees, leaves, min_rows, seed, min(15.0 / trees, 0.3))

    @classmethod
    def hidden(cls, features: "FeatureMap") -> BoolArray:
        """(F,) columns that the trees of a fit do not see: none here."""
        return np.zeros(len(features.columns), bool)

    def update(self, rows: Rows, recent: Rows) -> None:
        """See :meth:`Predictor.update`."""
        rows = rows.take(np.flatnonzero(np.isfinite(rows.score)))
        if len(rows):
            prediction = self.predict(rows)
            errors = np.abs(rows.score - prediction.mean) / prediction.spread
            self._noise = follow_errors(self._noise, errors)
            base, _ = self._fitted.predict(rows.X)
            self._levels.learn(rows.context_key, rows.score - base.mean(axis=1))
        self._correct(recent.take(np.flatnonzero(np.isfinite(recent.score))))
        self._sealed.pop("correction", None)

    def predict(self, rows: Rows) -> Prediction:
        """See :meth:`Predictor.predict`."""
        members, leverage = self._fitted.predict(rows.X)
        if self._correction is not None:
            members = members + self._correction.predict(rows.X)
        level, jobs = self._levels.of(rows.context_key)
        variance = self._noise * widening(leverage, jobs)
        if members.shape[1] > 1:
            variance = variance + members.var(axis=1, ddof=1)
        return Prediction(members.mean(axis=1) + level, np.sqrt(variance))

    def contributions(self, rows: Rows) -> tuple[FloatArray, FloatArray]:
        """What each column adds to predictions (n, F), and what the context's own level does (n,).

        Trend: slope times distance from the mean of the data, which is the Shapley value of a
        line. Trees: LightGBM's. Rows sum to the prediction but for one constant.
        """
        trend = self._fitted.trend
        parts = trend.design(rows.X) * trend.slopes.mean(axis=1)
        found = np.zeros(rows.X.shape)
        for column, origin in enumerate(trend.design.origins.tolist()):
            found[:, origin] += parts[:, column]
        for forest, X in (
            (self._fitted.forest, _without(rows.X, self._fitted.hidden)),
            (self._correction, rows.X),
        ):
            if forest is not None:
                found += forest.contributions(X)[:, :-1]
        level, _ = self._levels.of(rows.context_key)
        return found, level

    def dump(self) -> dict[str, bytes]:
        """See :meth:`Predictor.dump`. What a fit made is the same bytes until the next one."""
        if "trend" not in self._sealed:
            columns = [list(column) for column in self._columns]
            state = {"columns": columns, "seed": self._seed, "trend": self._fitted.trend.dump()}
            self._sealed["trend"] = seal_json(state)
            if self._fitted.forest is not None:
                self._sealed["forest"] = self._fitted.forest.dump()
        if self._correction is not None and "correction" not in self._sealed:
            self._sealed["correction"] = self._correction.dump()
        live = {"levels": self._levels.dump(), "noise": self._noise}
        return {**self._sealed, "live": seal_json(live)}

    @classmethod
    def load(cls, study: "Study", features: "FeatureMap", blobs: Mapping[str, bytes]) -> Self:
        """See :meth:`Predictor.load`."""
        if not {"trend", "live"} <= set(blobs):
            raise ValueError("damaged model: parts are missing; fit it again")
        state, live = unseal_json(blobs["trend"]), unseal_json(blobs["live"])
        columns = [(name, categorical) for name, categorical in state["columns"]]
        if columns != [(c.name, c.categorical) for c in features.columns]:
            raise ValueError(f"this model is of another generation of {study.name}; fit it again")
        forest, correction = (
            Forest.load(blobs[name]) if name in blobs else None for name in ("forest", "correction")
        )
        return cls(
            columns,
            _Fitted(Trend.load(state["trend"]), forest, cls.hidden(features)),
            Levels.load(live["levels"]),
            live["noise"],
            state["seed"],
            correction,
        )

    def _correct(self, recent: Rows) -> None:
        self._correction = None
        if len(recent) < CORRECTION_ROWS or self._fitted.forest is None:
            return
        members, _ = self._fitted.predict(recent.X)
        level, _ = self._levels.of(recent.context_key)
        rest = (recent.score - level)[:, None] - members
        data = _data(recent, [c for _, c in self._columns], np.arange(len(recent)))
        self._correction = Forest(
            [
                data.grow(
                    rest[:, m],
                    TreeOptions(CORRECTION_TREES, leaves=7, min_rows=5, seed=self._seed + m),
                )
                for m in range(rest.shape[1])
            ]
        )


def _without(X: FloatArray, hidden: BoolArray) -> FloatArray:
    return np.where(hidden, np.nan, X) if hidden.any() else X


def _data(rows: Rows, categorical: Sequence[bool], where: IntArray) -> TreesData:
    return TreesData(rows.X[where], np.flatnonzero(categorical).tolist(), rows.weight[where])
