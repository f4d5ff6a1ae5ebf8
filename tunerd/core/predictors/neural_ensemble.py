"""``neural_ensemble``: the paper's neural predictor (CubicML, arXiv 2409.04585, A.1.1), online.

A prediction is a sum of five parts::

    scale * networks(context, configuration)   which is better within a context, learned from pairs
    + trend(context, configuration)            ridge over logarithms on what is left: the level
    + level[context]                           shrunken mean of the context's own residuals
    + effect[configuration]                    what still repeats from context to context
    + correction(context, configuration)       ridge on what is left in the recent window alone

The ranking loss says nothing about how fast a context is as a whole; the trend and the levels do.
Learning a job moves its context's level at once, the networks take a few steps on the recent
window, and the correction is fitted to it anew. Each member is fitted without its own share of the
rows, which tell how far off it is. There are half as many members as shares: a network costs more
than all trees together, and sees the more rows for it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from tunerd.core.arrays import FloatArray, IntArray
from tunerd.core.estimators.codec import seal, seal_json, unseal, unseal_json
from tunerd.core.estimators.design import DesignTransform
from tunerd.core.estimators.networks import RankingNetworks, TrainingSchedule
from tunerd.core.estimators.trend import RidgeTrend
from tunerd.core.features import FeatureMap, FeatureRows
from tunerd.core.predictors.context_effects import ContextEffects
from tunerd.core.predictors.errors import FEW_ROWS, folds_of, mean_of, widening
from tunerd.core.predictors.online import BasePredictions, OnlinePredictor, scored
from tunerd.core.study import Study

__all__ = ["NeuralEnsemble"]

STEPS = 600
"""Of a fit on a few rows; more with more rows, up to MOST_STEPS: where contexts have thousands,
more steps rank unseen ones better. Wider layers gain nothing there."""
MOST_STEPS = 4_000
FEW_VALUES = 16
"""Values up to which a numeric column may enter as a category as well …"""
OFTEN = 20
"""… once each of them was seen in so many rows."""
RATE = 1e-2
UPDATE_STEPS = 10
UPDATE_RATE = 1e-3
UPDATE_ROWS = 16
"""Recent rows with a score below which an update leaves the networks alone."""


@dataclass(frozen=True, slots=True)
class _NeuralEnsembleBase:
    """Networks that go on learning, and the trend of what they left at the fit."""

    design: DesignTransform
    few: IntArray
    """Columns of numbers with few values, which enter as categories as well."""
    scale: float
    """Score units of one unit of the networks."""
    trend: RidgeTrend
    networks: RankingNetworks
    seed: int
    updates: int = 0

    def inputs(self, X: FloatArray) -> FloatArray:
        """(n, F) → (n, D) what the networks see."""
        return self.design(_with_few(X, self.few))

    def predict(self, X: FloatArray) -> BasePredictions:
        """Sum of networks and trend."""
        expected, leverage = self.trend.predict(X)
        return BasePredictions(
            self.scale * self.networks.predict(self.inputs(X)) + expected, leverage
        )

    def members(self, X: FloatArray) -> FloatArray:
        """See :meth:`FittedBase.members`."""
        return self.predict(X).members

    def learned(self, rows: FeatureRows, recent: FeatureRows) -> Self:
        """Take a few steps on the recent window."""
        del rows
        if len(recent) < UPDATE_ROWS:
            return self
        updates = self.updates + 1
        target, group = _centred(recent)
        networks = self.networks.trained(
            self.inputs(recent.X),
            target / self.scale,
            group,
            np.ones((len(self.networks.into), len(recent)), bool),
            TrainingSchedule(UPDATE_STEPS, self.seed + 7919 * updates, UPDATE_RATE),
            recent.counts,
        )
        return replace(self, networks=networks, updates=updates)

    def dump(self) -> dict[str, bytes]:
        """State as named blobs."""
        state = {
            "design": self.design.dump(),
            "few": self.few.tolist(),
            "scale": self.scale,
            "trend": self.trend.dump(),
            "seed": self.seed,
            "updates": self.updates,
        }
        return {"fitted": seal_json(state), "networks": seal(self.networks.dump())}


class NeuralEnsemble(OnlinePredictor[_NeuralEnsembleBase]):
    """See the module. Trains on one thread; deterministic for its rows and seed."""

    @classmethod
    def fit(cls, study: Study, features: FeatureMap, rows: FeatureRows, seed: int) -> Self:
        """See :meth:`Predictor.fit`. About a second at 1,000 rows."""
        return cls._trained(study, features, rows, seed, 1.0)

    def roughly(
        self, study: Study, features: FeatureMap, rows: FeatureRows, seed: int
    ) -> "NeuralEnsemble":
        """See :meth:`Predictor.roughly`."""
        return self.fit_roughly(study, features, rows, seed)

    @classmethod
    def fit_roughly(cls, study: Study, features: FeatureMap, rows: FeatureRows, seed: int) -> Self:
        """Fit in a third of the steps: enough to tell what a whole fit would be worth."""
        return cls._trained(study, features, rows, seed, 1 / 3)

    @classmethod
    def _trained(
        cls, study: Study, features: FeatureMap, rows: FeatureRows, seed: int, share: float
    ) -> Self:
        rows = scored(rows)
        categorical = features.categories
        folds = folds_of(len(rows), study.predictor.members, seed)
        shares = int(folds.max(initial=0)) + 1
        members = (shares + 1) // 2
        masks = np.array([(folds != m) | (shares == 1) for m in range(members)])
        few = _few(rows.X, categorical)
        design = DesignTransform.fit(_with_few(rows.X, few), [*categorical, *(1.0 for _ in few)])
        networks = RankingNetworks.fresh(members, design.width, seed)
        scale = study.unit(rows.score)
        Z = design(_with_few(rows.X, few))
        if len(rows) >= FEW_ROWS:
            target, group = _centred(rows)
            scale = float(np.sqrt(mean_of(target**2, rows.counts))) or 1.0
            steps = int(share * _steps(len(rows)))
            networks = networks.trained(
                Z, target / scale, group, masks, TrainingSchedule(steps, seed, RATE), rows.counts
            )
        else:  # untrained, they would say anything
            networks = replace(networks, out=np.zeros_like(networks.out))
        rest = rows.score[:, None] - scale * networks.predict(Z)
        everything = [np.ones(len(rows), bool)]
        trend = RidgeTrend.fit(rows.X, rest.mean(axis=1), rows.weight, categorical, everything)
        expected, leverage = trend.predict(rows.X)
        rest = rest - expected
        levels = ContextEffects.fit(rows.context_key, rest.mean(axis=1), rows.weight)
        level, jobs = levels.of(rows.context_key)
        held = np.flatnonzero(folds < members)
        rest = rest - level[:, None]
        left_out = rest[held, folds[held]]
        off = left_out / np.sqrt(widening(leverage, jobs)[held])
        base = _NeuralEnsembleBase(design, few, scale, trend, networks, seed)
        unseen = np.minimum(folds if shares > 1 else folds + 1, members)
        return cls.settled(features, base, levels, rows, rest, unseen, off, rows.counts[held])

    @classmethod
    def load_base(cls, features: FeatureMap, blobs: Mapping[str, bytes]) -> _NeuralEnsembleBase:
        """See :meth:`OnlinePredictor.load_base`."""
        del features
        state = unseal_json(blobs["fitted"])
        return _NeuralEnsembleBase(
            DesignTransform.load(state["design"]),
            np.array(state["few"], np.int64),
            state["scale"],
            RidgeTrend.load(state["trend"]),
            RankingNetworks.load(unseal(blobs["networks"])),
            state["seed"],
            state["updates"],
        )


def _steps(n: int) -> int:
    """Steps of a fit on n rows: with more rows there is more to learn."""
    return min(20 * n, STEPS + n, MOST_STEPS)


def _few(X: FloatArray, categorical: Sequence[float] | FloatArray) -> IntArray:
    """Numeric columns with few values, each of which was seen often.

    One-hot, as the paper has all of them, a value can be good whatever its neighbours are, which
    ranks better once there are many rows. As numbers, which they stay as well, they carry beyond
    what was seen: on few rows one-hot alone ranks worse.
    """
    picked = []
    for i in np.flatnonzero(~np.asarray(categorical, bool)).tolist():
        _, counts = np.unique(X[~np.isnan(X[:, i]), i], return_counts=True)
        if 2 < len(counts) <= FEW_VALUES and counts.min() >= OFTEN:
            picked.append(i)
    return np.array(picked, np.int64)


def _with_few(X: FloatArray, few: IntArray) -> FloatArray:
    return np.concatenate([X, X[:, few]], axis=1)


def _centred(rows: FeatureRows) -> tuple[FloatArray, IntArray]:
    """(n,) scores less the mean of their context, and (n,) number of the context.

    A context with a job or two is drawn to the mean of all: its own mean says little.
    """
    _, group = np.unique(rows.context_key, return_inverse=True)
    count = np.bincount(group, rows.counts)
    total = mean_of(rows.score, rows.counts)
    mean = (np.bincount(group, rows.counts * rows.score) + total) / (count + 1.0)
    return rows.score - mean[group], group.astype(np.int64)
