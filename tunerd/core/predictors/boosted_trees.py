"""``boosted_trees``: the paper's tabular predictor (CubicML, arXiv 2409.04585, A.1.2), online.

A prediction is a sum of five parts, from coarse to fine::

    trend(context, configuration)     ridge over logarithms: carries to unseen contexts
    + level[context]                  shrunken mean of the context's own residuals
    + trees(context, configuration)   LightGBM on what is left; categories as categories
    + effect[configuration]           what still repeats from context to context
    + correction(…)                   a few trees on the recent window alone

A fit makes all but the last from a bounded sample. Learning a job then costs the same at any age:
its context's level moves at once, and the correction is grown from scratch on the recent window
(after a shift as good as training on new data only, and nothing grows). Each of a few members is
fitted without its own share of the rows. Those rows tell how far off predictions are; with the
members' disagreement they make the spread.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from tunerd.core.arrays import BoolArray, FloatArray, IntArray
from tunerd.core.estimators.codec import seal_json, unseal_json
from tunerd.core.estimators.trees import BoosterEnsemble, TreeBooster, TreeDataset, TreeOptions
from tunerd.core.estimators.trend import RidgeTrend
from tunerd.core.features import FeatureMap, FeatureRows
from tunerd.core.predictors.context_effects import ContextEffects
from tunerd.core.predictors.errors import FEW_ROWS, folds_of, widening
from tunerd.core.predictors.online import BasePredictions, OnlinePredictor, scored
from tunerd.core.study import PredictorOptions, Study

__all__ = ["BoostedTrees"]


@dataclass(frozen=True, slots=True)
class _BoostedTreesBase:
    """Trend and trees; nothing of them changes after a fit."""

    trend: RidgeTrend
    forest: BoosterEnsemble | None
    """None while there are too few rows to split."""
    hidden: BoolArray
    """(F,) columns that the trees do not see."""
    seed: int

    def predict(self, X: FloatArray) -> BasePredictions:
        """Sum of trend and trees."""
        members, leverage = self.trend.predict(X)
        if self.forest is not None:
            members = members + self.forest.predict(_without(X, self.hidden))
        return BasePredictions(members, leverage)

    def members(self, X: FloatArray) -> FloatArray:
        """See :meth:`FittedBase.members`."""
        return self.predict(X).members

    def learned(self, rows: FeatureRows, recent: FeatureRows) -> Self:
        """Leave new rows to levels and correction."""
        del rows, recent
        return self

    def dump(self) -> dict[str, bytes]:
        """State as named blobs."""
        state = {
            "trend": self.trend.dump(),
            "hidden": self.hidden.tolist(),
            "seed": self.seed,
            "grown": self.forest is not None,
        }
        blobs = {"trend": seal_json(state)}
        if self.forest is not None:
            blobs["forest"] = self.forest.dump()
        return blobs


class BoostedTrees(OnlinePredictor[_BoostedTreesBase]):
    """See the module. Trains on one thread; deterministic for its rows and seed."""

    on_rest: ClassVar[bool] = True
    """Whether trees grow on what trend and levels leave, as they do here, or on scores."""

    @classmethod
    def fit(cls, study: Study, features: FeatureMap, rows: FeatureRows, seed: int) -> Self:
        """See :meth:`Predictor.fit`. Seconds at 20,000 rows."""
        rows = scored(rows)
        categorical = features.categories
        options = study.predictor
        folds = folds_of(len(rows), options.members, seed)
        members = int(folds.max(initial=0)) + 1
        masks = [(folds != m) | (members == 1) for m in range(members)]
        trend = RidgeTrend.fit(rows.X, rows.score, rows.weight, categorical, masks)
        if not cls.on_rest:
            trend = trend.flat()
        expected, leverage = trend.predict(rows.X)
        rest = rows.score[:, None] - expected
        apart = rest.mean(axis=1) if cls.on_rest else np.zeros(len(rows))
        levels = ContextEffects.fit(rows.context_key, apart, rows.weight)
        level, jobs = levels.of(rows.context_key)
        rest = rest - level[:, None]
        forest = None
        hidden = cls.hidden(features)
        if members > 1 or len(rows) >= FEW_ROWS:
            shown = replace(rows, X=_without(rows.X, hidden))
            forest = BoosterEnsemble(
                [
                    cls.grown(shown, categorical, mask, rest[:, m], options, seed + m)
                    for m, mask in enumerate(masks)
                ]
            )
            rest = rest - forest.predict(shown.X)
        off = rest[np.arange(len(rows)), folds] / np.sqrt(widening(leverage, jobs))
        base = _BoostedTreesBase(trend, forest, hidden, seed)
        unseen = folds if members > 1 else np.ones(len(rows), np.int64)
        return cls.settled(features, base, levels, rows, rest, unseen, off, rows.counts)

    @classmethod
    def grown(
        cls,
        rows: FeatureRows,
        categorical: Sequence[float] | FloatArray,
        mask: BoolArray,
        label: FloatArray,
        options: PredictorOptions,
        seed: int,
    ) -> TreeBooster:
        """Grow one member's trees on the rows of its mask (n,); ``label`` (n,)."""
        data = _data(rows, categorical, np.flatnonzero(mask))
        return data.grow(label[mask], cls.growth(int(mask.sum()), options, seed))

    @classmethod
    def growth(cls, n: int, options: PredictorOptions, seed: int) -> TreeOptions:
        """Options for n rows. Capacity grows with the data: many leaves cost ranks on few rows and
        gain some on many. What predictions cost is the number of trees; fewer ones take larger
        steps instead."""
        trees = options.trees
        leaves = 15 if n < 500 else 31 if n < 1_000 else 63
        min_rows = 3 if n < 500 else 5 if n < 5_000 else 10
        return TreeOptions(trees, leaves, min_rows, seed, min(15.0 / trees, 0.3))

    @classmethod
    def hidden(cls, features: FeatureMap) -> BoolArray:
        """(F,) columns that the trees of a fit do not see: none here."""
        return np.zeros(len(features.columns), bool)

    @classmethod
    def load_base(cls, features: FeatureMap, blobs: Mapping[str, bytes]) -> _BoostedTreesBase:
        """See :meth:`OnlinePredictor.load_base`."""
        del features
        state = unseal_json(blobs["trend"])
        forest = BoosterEnsemble.load(blobs["forest"]) if state["grown"] else None
        hidden = np.array(state["hidden"], bool)
        return _BoostedTreesBase(RidgeTrend.load(state["trend"]), forest, hidden, state["seed"])

    def correct(self, recent: FeatureRows, rest: FloatArray) -> BoosterEnsemble | None:
        """Grow a few trees with large steps for each member: every update pays for all."""
        if self._base.forest is None:
            return None
        data = _data(recent, [c for _, c in self._columns], np.arange(len(recent)))
        seeds = range(self._base.seed, self._base.seed + rest.shape[1])
        options = [TreeOptions(25, leaves=7, min_rows=5, seed=s, learning_rate=0.2) for s in seeds]
        return BoosterEnsemble([data.grow(rest[:, m], how) for m, how in enumerate(options)])

    def contributions(self, rows: FeatureRows) -> tuple[FloatArray, FloatArray]:
        """What each column adds to predictions (n, F), and what the context's own level does (n,).

        Trend: slope times distance from the mean of the data, which is the Shapley value of a
        line. Trees: LightGBM's. What is special about a configuration belongs to all its
        parameters alike. Rows sum to the prediction but for one constant.
        """
        trend = self._base.trend
        parts = trend.design(rows.X) * trend.slopes.mean(axis=1)
        shares = np.zeros(rows.X.shape)
        for column, origin in enumerate(trend.design.origins.tolist()):
            shares[:, origin] += parts[:, column]
        for forest, X in (
            (self._base.forest, _without(rows.X, self._base.hidden)),
            (self._correction, rows.X),
        ):
            if isinstance(forest, BoosterEnsemble):
                shares += forest.contributions(X)[:, :-1]
        special = self._effects.columns
        shares[:, special] += self._effects.of(rows.X)[0][:, None] / max(len(special), 1)
        level, _ = self._levels.of(rows.context_key)
        return shares, level

    @classmethod
    def load_correction(cls, blob: bytes) -> BoosterEnsemble:
        """See :meth:`OnlinePredictor.load_correction`."""
        return BoosterEnsemble.load(blob)


def _without(X: FloatArray, hidden: BoolArray) -> FloatArray:
    return np.where(hidden, np.nan, X) if hidden.any() else X


def _data(
    rows: FeatureRows, categorical: Sequence[float] | FloatArray, where: IntArray
) -> TreeDataset:
    return TreeDataset(rows.X[where], np.flatnonzero(categorical).tolist(), rows.weight[where])
