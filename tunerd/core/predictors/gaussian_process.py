"""``gaussian_process``: a trend, and a Gaussian process on what it leaves.

A prediction is a sum of five parts::

    trend(context, configuration)       ridge over logarithms: carries to unseen contexts
    + process(context, configuration)   what jobs alike have shown beyond it (learners/process.py)
    + level[context]                    shrunken mean of the context's own residuals
    + effect[configuration]             what still repeats from context to context
    + correction(…)                     ridge on what is left in the recent window alone

Of many rows a random sample is kept: what a process costs grows with their cube. New rows join it
as they come, so that a context's first jobs count at once for all that is like them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from tunerd.core.arrays import FloatArray, shuffled
from tunerd.core.estimators.codec import pack, seal, seal_json, unpack, unseal, unseal_json
from tunerd.core.estimators.exact_gp import ExactGP, Kernel
from tunerd.core.estimators.trend import RidgeTrend
from tunerd.core.features import FeatureMap, FeatureRows
from tunerd.core.predictors.context_effects import ContextEffects
from tunerd.core.predictors.errors import FEW_ROWS
from tunerd.core.predictors.online import BasePredictions, OnlinePredictor, scored
from tunerd.core.study import Study

__all__ = ["GaussianProcess"]

PENALTY = 300.0
"""Of the trend: three times as firm as where trees follow it. A process carries slopes as well."""
LEARN_ROWS = 400
"""Rows that the kernel is chosen by: 40 steps take half a second."""
NEW_ROWS = 300
"""Rows learned since the fit that it is conditioned on as well, the latest ones."""


@dataclass(frozen=True, slots=True)
class _GaussianProcessBase:
    """Trend and process: what a fit made, and the rows that have joined since."""

    trend: RidgeTrend
    process: ExactGP | None
    """None while there are too few rows."""
    scale: float
    """Score units of one unit of the process."""
    y: FloatArray
    weight: FloatArray
    """(n,) of the process's rows."""
    fitted: int
    """How many of them, the first ones, were there at the fit."""

    def predict(self, X: FloatArray) -> BasePredictions:
        """Sum of trend and process, with the process's variance, which is large where nothing is
        alike; leverage grows beyond the values at which the trend's columns are clipped."""
        mean, _ = self.trend.predict(X)
        away = self.trend.design.unclipped(X) @ self.trend.whitener
        leverage = np.einsum("nr,nr->n", away, away)
        if self.process is None:
            return BasePredictions(mean, leverage)
        predicted, variance = self.process.predict(self.trend.design(X))
        return BasePredictions(
            mean + self.scale * predicted[:, None], leverage, self.scale**2 * variance
        )

    def members(self, X: FloatArray) -> FloatArray:
        """See :meth:`FittedBase.members`."""
        mean, _ = self.trend.predict(X)
        if self.process is None:
            return mean
        return mean + self.scale * self.process.mean(self.trend.design(X))[:, None]

    def learned(self, rows: FeatureRows, recent: FeatureRows) -> Self:
        """Let rows join; of those since the fit only the latest are kept."""
        del recent
        if self.process is None:
            return self
        rest = (rows.score - self.trend.predict(rows.X)[0][:, 0]) / self.scale
        Z = np.concatenate([self.process.Z, self.trend.design(rows.X)])
        y = np.concatenate([self.y, rest])
        weight = np.concatenate([self.weight, rows.weight])
        since = np.arange(self.fitted, len(y))[-NEW_ROWS:]
        kept = np.concatenate([np.arange(self.fitted), since])
        Z, y, weight = Z[kept], y[kept], weight[kept]
        process = ExactGP.given(self.process.kernel, Z, y, weight)
        return replace(self, process=process, y=y, weight=weight)

    def dump(self) -> dict[str, bytes]:
        """State as named blobs."""
        state = {
            "trend": self.trend.dump(),
            "scale": self.scale,
            "fitted": self.fitted,
            "kernel": self.process and self.process.kernel.dump(),
        }
        blobs = {"fitted": seal_json(state)}
        if self.process is not None:
            blobs["rows"] = seal(pack({"Z": self.process.Z, "y": self.y, "weight": self.weight}))
        return blobs


class GaussianProcess(OnlinePredictor[_GaussianProcessBase]):
    """See the module. Deterministic for its rows and seed."""

    kept_rows: ClassVar[int] = 1_000
    """Rows that a fit conditions on."""

    @classmethod
    def fit(cls, study: Study, features: FeatureMap, rows: FeatureRows, seed: int) -> Self:  # noqa: ARG003
        """See :meth:`Predictor.fit`. About a second."""
        return cls._fitted(features, rows, seed, None)

    def roughly(
        self, study: Study, features: FeatureMap, rows: FeatureRows, seed: int
    ) -> "GaussianProcess":
        """See :meth:`Predictor.roughly`: with the kernel that was chosen here."""
        del study
        return self.refitted(features, rows, seed)

    def refitted(self, features: FeatureMap, rows: FeatureRows, seed: int) -> Self:
        """Fit anew on other rows, with the kernel that was chosen here. A tenth of a second."""
        return self._fitted(features, rows, seed, self._base)

    @classmethod
    def _fitted(
        cls, features: FeatureMap, rows: FeatureRows, seed: int, chosen: _GaussianProcessBase | None
    ) -> Self:
        rows = scored(rows)
        categorical = features.categories
        everything = [np.ones(len(rows), bool)]
        trend = RidgeTrend.fit(rows.X, rows.score, rows.weight, categorical, everything, PENALTY)
        rest = rows.score - trend.predict(rows.X)[0][:, 0]
        context = features.of_context[trend.design.origins]
        kernel = chosen.process.kernel if chosen and chosen.process else None
        if chosen and kernel and len(kernel.context) == len(context):
            scale = chosen.scale  # noise and amplitudes of the kernel are in this unit
        else:
            kernel, scale = None, float(np.sqrt(np.mean(rest**2))) if len(rows) else 0.0
            scale = scale if scale > 1e-9 else 1.0
        base = _GaussianProcessBase(trend, None, scale, np.zeros(0), np.ones(0), 0)
        off, unseen, counts = rest, np.ones(len(rows), np.int64), rows.counts
        if len(rows) >= FEW_ROWS:
            drawn = shuffled(np.random.default_rng(seed), rows.counts)
            order, others = np.split(drawn, [cls.kept_rows])
            unseen[others], counts = 0, rows.counts[order]
            Z, y, weight = trend.design(rows.X[order]), rest[order] / scale, rows.weight[order]
            some = slice(0, LEARN_ROWS)
            if kernel is None:
                kernel = Kernel.start(context).fitted(Z[some], y[some], weight[some])
            process = ExactGP.given(kernel, Z, y, weight)
            base = _GaussianProcessBase(trend, process, scale, y, weight, len(y))
            # In its own standard deviations: how much wider than it thinks a band must be.
            off = process.left_out() * scale * np.sqrt(np.exp(kernel.noise))
        rest = rows.score - base.members(rows.X)[:, 0]
        levels = ContextEffects.fit(rows.context_key, rest, rows.weight)
        level, _ = levels.of(rows.context_key)
        rest = (rest - level)[:, None]
        return cls.settled(features, base, levels, rows, rest, unseen, off, counts)

    @classmethod
    def load_base(cls, features: FeatureMap, blobs: Mapping[str, bytes]) -> _GaussianProcessBase:
        """See :meth:`OnlinePredictor.load_base`."""
        del features
        state = unseal_json(blobs["fitted"])
        process, y, weight = None, np.zeros(0), np.ones(0)
        if state["kernel"]:
            rows = unpack(unseal(blobs["rows"]))
            y, weight = rows["y"], rows["weight"]
            process = ExactGP.given(Kernel.load(state["kernel"]), rows["Z"], y, weight)
        trend = RidgeTrend.load(state["trend"])
        return _GaussianProcessBase(trend, process, state["scale"], y, weight, state["fitted"])
