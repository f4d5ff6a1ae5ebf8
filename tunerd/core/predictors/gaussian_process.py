"""``gaussian_process``: a trend, and a Gaussian process on what it leaves.

A prediction is a sum of four parts::

    trend(context, configuration)       ridge over logarithms: carries to unseen contexts
    + process(context, configuration)   what jobs alike have shown beyond it (learners/process.py)
    + level[context]                    shrunken mean of the context's own residuals
    + correction(…)                     ridge on what is left in the recent window alone

Of many rows a random sample is kept: what a process costs grows with their cube. New rows join it
as they come, so that a context's first jobs count at once for all that is like them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import numpy as np
from safetensors.numpy import load, save

from tunerd.core.arrays import BoolArray, FloatArray
from tunerd.core.features.rows import Rows
from tunerd.core.learners.blobs import seal, seal_json, unseal, unseal_json
from tunerd.core.learners.design import Design
from tunerd.core.learners.process import Kernel, Process
from tunerd.core.learners.trend import Trend
from tunerd.core.predictors.base import Prediction, Predictor
from tunerd.core.predictors.errors import FEW_ROWS, follow_errors, noise_of, widening
from tunerd.core.predictors.levels import Levels

if TYPE_CHECKING:
    from tunerd.core.features import FeatureMap
    from tunerd.core.study import Study

__all__ = ["GaussianProcess"]

LEARN_ROWS = 400
"""Rows that the kernel is chosen by: 40 steps take half a second."""
KEPT_ROWS = 1_000
"""Rows that a fit conditions on."""
NEW_ROWS = 300
"""Rows learned since the fit that it is conditioned on as well, the latest ones."""
CORRECTION_ROWS = 16
"""Recent rows with a score below which there is no correction."""


@dataclass(frozen=True, slots=True)
class _Base:
    """Trend and process: what a fit made, and the rows that have joined since."""

    trend: Trend
    process: Process | None
    """None while there are too few rows."""
    scale: float
    """Score units of one unit of the process."""
    y: FloatArray
    weight: FloatArray
    """(n,) of the process's rows."""
    fitted: int
    """How many of them, the first ones, were there at the fit."""

    def predict(self, X: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """(n, F) → (n,) mean; (n,) variance of the process, large where nothing is alike; and
        (n,) leverage of the trend, large where nothing is near, and beyond the values at which
        its columns are clipped."""
        mean, _ = self.trend.predict(X)
        away = self.trend.design.unclipped(X) @ self.trend.whitener
        leverage = np.einsum("nr,nr->n", away, away)
        if self.process is None:
            return mean[:, 0], np.zeros(len(X)), leverage
        found, variance = self.process.predict(self.trend.design(X))
        return mean[:, 0] + self.scale * found, self.scale**2 * variance, leverage

    def joined(self, rows: Rows) -> "_Base":
        """The base with further rows; of those since the fit only the latest are kept."""
        if self.process is None:
            return self
        rest = (rows.score - self.trend.predict(rows.X)[0][:, 0]) / self.scale
        Z = np.concatenate([self.process.Z, self.trend.design(rows.X)])
        y = np.concatenate([self.y, rest])
        weight = np.concatenate([self.weight, rows.weight])
        since = np.arange(self.fitted, len(y))[-NEW_ROWS:]
        kept = np.concatenate([np.arange(self.fitted), since])
        Z, y, weight = Z[kept], y[kept], weight[kept]
        process = Process.given(self.process.kernel, Z, y, weight)
        return replace(self, process=process, y=y, weight=weight)


class GaussianProcess(Predictor):
    """See the module. Deterministic for its rows and seed."""

    def __init__(
        self,
        columns: Sequence[tuple[str, bool]],
        base: _Base,
        levels: Levels,
        noise: float,
        correction: Trend | None = None,
    ) -> None:
        self._columns = tuple(columns)
        self._base = base
        self._levels = levels
        self._noise = noise
        """Variance of a job's score around its prediction, on the data."""
        self._correction = correction

    @classmethod
    def fit(cls, study: "Study", features: "FeatureMap", rows: Rows, seed: int) -> Self:  # noqa: ARG003
        """See :meth:`Predictor.fit`. About a second."""
        return cls._fitted(features, rows, seed, None)

    def refitted(self, features: "FeatureMap", rows: Rows, seed: int) -> Self:
        """Fit anew on other rows, with the kernel that was chosen here. A tenth of a second."""
        process = self._base.process
        return self._fitted(features, rows, seed, process.kernel if process else None)

    @classmethod
    def _fitted(cls, features: "FeatureMap", rows: Rows, seed: int, kernel: Kernel | None) -> Self:
        rows = rows.take(np.flatnonzero(np.isfinite(rows.score)))
        columns = [(c.name, c.categorical) for c in features.columns]
        trend = _trend(rows, columns, rows.score)
        rest = rows.score - trend.predict(rows.X)[0][:, 0]
        scale = float(np.sqrt(np.mean(rest**2))) if len(rows) else 0.0
        scale = scale if scale > 1e-9 else 1.0
        base = _Base(trend, None, scale, np.zeros(0), np.ones(0), 0)
        off = rest
        if len(rows) >= FEW_ROWS:
            order = np.random.default_rng(seed).permutation(len(rows))[:KEPT_ROWS]
            Z, y, weight = trend.design(rows.X[order]), rest[order] / scale, rows.weight[order]
            some = slice(0, LEARN_ROWS)
            context = _of_context(trend.design, features)
            if kernel is None or len(kernel.context) != len(context):
                kernel = Kernel.start(context).fitted(Z[some], y[some], weight[some])
            process = Process.given(kernel, Z, y, weight)
            base = _Base(trend, process, scale, y, weight, len(y))
            # In its own standard deviations: how much wider than it thinks a band must be.
            off = process.left_out() * scale * np.sqrt(np.exp(kernel.noise))
        levels = Levels.fit(rows.context_key, rows.score - base.predict(rows.X)[0], rows.weight)
        noise = noise_of(off, rows.score)
        levels.expect(noise)
        return cls(columns, base, levels, noise)

    def update(self, rows: Rows, recent: Rows) -> None:
        """See :meth:`Predictor.update`."""
        rows = rows.take(np.flatnonzero(np.isfinite(rows.score)))
        if len(rows) == 0:
            return
        prediction = self.predict(rows)
        errors = np.abs(rows.score - prediction.mean) / prediction.spread
        self._noise = follow_errors(self._noise, errors)
        self._levels.learn(rows.context_key, rows.score - self._base.predict(rows.X)[0])
        self._base = self._base.joined(rows)
        recent = recent.take(np.flatnonzero(np.isfinite(recent.score)))
        if len(recent) >= CORRECTION_ROWS:
            level, _ = self._levels.of(recent.context_key)
            rest = recent.score - level - self._base.predict(recent.X)[0]
            self._correction = _trend(recent, self._columns, rest)

    def predict(self, rows: Rows) -> Prediction:
        """See :meth:`Predictor.predict`."""
        mean, variance, leverage = self._base.predict(rows.X)
        if self._correction is not None:
            mean = mean + self._correction.predict(rows.X)[0][:, 0]
        level, jobs = self._levels.of(rows.context_key)
        variance = variance + self._noise * widening(leverage, jobs)
        return Prediction(mean + level, np.sqrt(variance))

    def dump(self) -> dict[str, bytes]:
        """See :meth:`Predictor.dump`."""
        base = self._base
        state = {
            "columns": [list(column) for column in self._columns],
            "trend": base.trend.dump(),
            "scale": base.scale,
            "fitted": base.fitted,
            "kernel": base.process and base.process.kernel.dump(),
        }
        live = {
            "levels": self._levels.dump(),
            "noise": self._noise,
            "correction": self._correction and self._correction.dump(),
        }
        blobs = {"fitted": seal_json(state), "live": seal_json(live)}
        if base.process is not None:
            blobs["rows"] = seal(save({"Z": base.process.Z, "y": base.y, "weight": base.weight}))
        return blobs

    @classmethod
    def load(cls, study: "Study", features: "FeatureMap", blobs: Mapping[str, bytes]) -> Self:
        """See :meth:`Predictor.load`."""
        if not {"fitted", "live"} <= set(blobs):
            raise ValueError("damaged model: parts are missing; fit it again")
        state, live = unseal_json(blobs["fitted"]), unseal_json(blobs["live"])
        columns = [(name, categorical) for name, categorical in state["columns"]]
        if columns != [(c.name, c.categorical) for c in features.columns]:
            raise ValueError(f"this model is of another generation of {study.name}; fit it again")
        process, y, weight = None, np.zeros(0), np.ones(0)
        if state["kernel"]:
            if "rows" not in blobs:
                raise ValueError("damaged model: parts are missing; fit it again")
            rows = load(unseal(blobs["rows"]))
            y, weight = rows["y"], rows["weight"]
            process = Process.given(Kernel.load(state["kernel"]), rows["Z"], y, weight)
        trend = Trend.load(state["trend"])
        base = _Base(trend, process, state["scale"], y, weight, state["fitted"])
        correction = live["correction"] and Trend.load(live["correction"])
        return cls(columns, base, Levels.load(live["levels"]), live["noise"], correction)


def _trend(rows: Rows, columns: Sequence[tuple[str, bool]], score: FloatArray) -> Trend:
    everything = [np.ones(len(rows), bool)]
    return Trend.fit(rows.X, score, rows.weight, [c for _, c in columns], everything)


def _of_context(design: Design, features: "FeatureMap") -> BoolArray:
    """(D,) which columns of a design belong to the context."""
    groups = [column.group in ("context", "lookup") for column in features.columns]
    return np.array([groups[i] for i in design.origins.tolist()], bool)
