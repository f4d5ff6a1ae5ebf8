"""``neural_ensemble``: the paper's neural predictor (CubicML, arXiv 2409.04585, A.1.1), online.

A prediction is a sum of four parts::

    scale * networks(context, configuration)   which is better within a context, learned from pairs
    + trend(context, configuration)            ridge over logarithms on what is left: the level
    + level[context]                           shrunken mean of the context's own residuals
    + correction(context, configuration)       ridge on what is left in the recent window alone

The ranking loss says nothing about how fast a context is as a whole; the trend and the levels do.
Learning a job moves its context's level at once, the networks take a few steps on the recent
window, and the correction is fitted to it anew. Each member is fitted without its own share of the
rows, which tell how far off it is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from tunerd.core.arrays import FloatArray, IntArray
from tunerd.core.features.rows import Rows
from tunerd.core.learners.blobs import seal, seal_json, unseal, unseal_json
from tunerd.core.learners.design import Design
from tunerd.core.learners.networks import Networks, Schedule
from tunerd.core.learners.trend import Trend
from tunerd.core.predictors.base import Prediction, Predictor
from tunerd.core.predictors.errors import FEW_ROWS, folds_of, follow_errors, noise_of, widening
from tunerd.core.predictors.levels import Levels

if TYPE_CHECKING:
    from tunerd.core.features import FeatureMap
    from tunerd.core.study import Study

__all__ = ["NeuralEnsemble"]

STEPS = 600
"""Of a fit on a few rows; more with more rows, up to MOST_STEPS."""
MOST_STEPS = 1_500
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
class _Fitted:
    """What a fit made beside the networks; nothing of it changes afterwards."""

    design: Design
    few: IntArray
    """Columns of numbers with few values, which enter as categories as well."""
    scale: float
    """Score units of one unit of the networks."""
    trend: Trend

    def inputs(self, X: FloatArray) -> FloatArray:
        """(n, F) → (n, D) what the networks see."""
        return self.design(_with_few(X, self.few))


class NeuralEnsemble(Predictor):
    """See the module. Trains on one thread; deterministic for its rows and seed."""

    def __init__(
        self,
        columns: Sequence[tuple[str, bool]],
        fitted: _Fitted,
        networks: Networks,
        levels: Levels,
        noise: float,
        seed: int,
        updates: int = 0,
        correction: Trend | None = None,
    ) -> None:
        self._columns = tuple(columns)
        self._fitted = fitted
        self._networks = networks
        self._levels = levels
        self._noise = noise
        """Variance of a job's score around its prediction, on the data."""
        self._seed = seed
        self._updates = updates
        self._correction = correction

    @classmethod
    def fit(cls, study: "Study", features: "FeatureMap", rows: Rows, seed: int) -> Self:
        """See :meth:`Predictor.fit`. About a second at 1,000 rows."""
        return cls._trained(study, features, rows, seed, 1.0)

    @classmethod
    def fit_roughly(cls, study: "Study", features: "FeatureMap", rows: Rows, seed: int) -> Self:
        """Fit in a third of the steps: enough to tell what a whole fit would be worth."""
        return cls._trained(study, features, rows, seed, 1 / 3)

    @classmethod
    def _trained(
        cls, study: "Study", features: "FeatureMap", rows: Rows, seed: int, share: float
    ) -> Self:
        rows = rows.take(np.flatnonzero(np.isfinite(rows.score)))
        columns = [(c.name, c.categorical) for c in features.columns]
        categorical = [c for _, c in columns]
        folds = folds_of(len(rows), study.predictor.members, seed)
        members = int(folds.max(initial=0)) + 1
        masks = np.array([(folds != m) | (members == 1) for m in range(members)])
        few = _few(rows.X, categorical)
        design = Design.fit(_with_few(rows.X, few), [*categorical, *(True for _ in few)])
        networks = Networks.fresh(members, design.width, seed)
        scale = 1.0
        Z = design(_with_few(rows.X, few))
        if len(rows) >= FEW_ROWS:
            target, group = _centred(rows)
            scale = float(np.sqrt(np.mean(target**2))) or 1.0
            steps = int(share * min(STEPS + len(rows), MOST_STEPS))
            networks = networks.trained(
                Z, target / scale, group, masks, Schedule(steps, seed, RATE)
            )
        found = networks.predict(Z)
        rest = rows.score[:, None] - scale * found
        trend = Trend.fit(
            rows.X, rest.mean(axis=1), rows.weight, categorical, [np.ones(len(rows), bool)]
        )
        expected, leverage = trend.predict(rows.X)
        rest = rest - expected
        levels = Levels.fit(rows.context_key, rest.mean(axis=1), rows.weight)
        level, jobs = levels.of(rows.context_key)
        left_out = (rest - level[:, None])[np.arange(len(rows)), folds]
        noise = noise_of(left_out / np.sqrt(widening(leverage, jobs)), rows.score)
        levels.expect(noise)
        return cls(columns, _Fitted(design, few, scale, trend), networks, levels, noise, seed)

    def update(self, rows: Rows, recent: Rows) -> None:
        """See :meth:`Predictor.update`."""
        rows = rows.take(np.flatnonzero(np.isfinite(rows.score)))
        if len(rows) == 0:
            return
        prediction = self.predict(rows)
        errors = np.abs(rows.score - prediction.mean) / prediction.spread
        self._noise = follow_errors(self._noise, errors)
        self._levels.learn(rows.context_key, rows.score - self._base(rows)[0].mean(axis=1))
        recent = recent.take(np.flatnonzero(np.isfinite(recent.score)))
        if len(recent) >= UPDATE_ROWS:
            self._updates += 1
            target, group = _centred(recent)
            members = len(self._networks.into)
            how = Schedule(UPDATE_STEPS, self._seed + 7919 * self._updates, UPDATE_RATE)
            self._networks = self._networks.trained(
                self._fitted.inputs(recent.X),
                target / self._fitted.scale,
                group,
                np.ones((members, len(recent)), bool),
                how,
            )
            self._correction = self._corrected(recent)

    def _corrected(self, recent: Rows) -> Trend:
        level, _ = self._levels.of(recent.context_key)
        rest = recent.score - level - self._base(recent)[0].mean(axis=1)
        categorical = [c for _, c in self._columns]
        everything = [np.ones(len(recent), bool)]
        return Trend.fit(recent.X, rest, recent.weight, categorical, everything)

    def predict(self, rows: Rows) -> Prediction:
        """See :meth:`Predictor.predict`."""
        members, leverage = self._base(rows)
        if self._correction is not None:
            members = members + self._correction.predict(rows.X)[0]
        level, jobs = self._levels.of(rows.context_key)
        variance = self._noise * widening(leverage, jobs)
        if members.shape[1] > 1:
            variance = variance + members.var(axis=1, ddof=1)
        return Prediction(members.mean(axis=1) + level, np.sqrt(variance))

    def _base(self, rows: Rows) -> tuple[FloatArray, FloatArray]:
        """(n, members) networks and trend, and (n,) leverage."""
        expected, leverage = self._fitted.trend.predict(rows.X)
        found = self._networks.predict(self._fitted.inputs(rows.X))
        return self._fitted.scale * found + expected, leverage

    def dump(self) -> dict[str, bytes]:
        """See :meth:`Predictor.dump`."""
        fitted = self._fitted
        state = {
            "columns": [list(column) for column in self._columns],
            "seed": self._seed,
            "design": fitted.design.dump(),
            "few": fitted.few.tolist(),
            "scale": fitted.scale,
            "trend": fitted.trend.dump(),
        }
        live = {
            "levels": self._levels.dump(),
            "noise": self._noise,
            "updates": self._updates,
            "correction": self._correction and self._correction.dump(),
        }
        return {
            "fitted": seal_json(state),
            "networks": seal(self._networks.dump()),
            "live": seal_json(live),
        }

    @classmethod
    def load(cls, study: "Study", features: "FeatureMap", blobs: Mapping[str, bytes]) -> Self:
        """See :meth:`Predictor.load`."""
        if set(blobs) < {"fitted", "networks", "live"}:
            raise ValueError("damaged model: parts are missing; fit it again")
        state, live = unseal_json(blobs["fitted"]), unseal_json(blobs["live"])
        columns = [(name, categorical) for name, categorical in state["columns"]]
        if columns != [(c.name, c.categorical) for c in features.columns]:
            raise ValueError(f"this model is of another generation of {study.name}; fit it again")
        return cls(
            columns,
            _Fitted(
                Design.load(state["design"]),
                np.array(state["few"], np.int64),
                state["scale"],
                Trend.load(state["trend"]),
            ),
            Networks.load(unseal(blobs["networks"])),
            Levels.load(live["levels"]),
            live["noise"],
            state["seed"],
            live["updates"],
            live["correction"] and Trend.load(live["correction"]),
        )


def _few(X: FloatArray, categorical: Sequence[bool]) -> IntArray:
    """Numeric columns with few values, each of which was seen often.

    One-hot, as the paper has all of them, a value can be good whatever its neighbours are: at 1,000
    rows that gains .03 τ. As numbers, which they stay as well, they carry beyond what was seen:
    one-hot from the start costs .05 τ at 150 rows.
    """
    found = []
    for i in np.flatnonzero(~np.asarray(categorical, bool)).tolist():
        _, counts = np.unique(X[~np.isnan(X[:, i]), i], return_counts=True)
        if 2 < len(counts) <= FEW_VALUES and counts.min() >= OFTEN:
            found.append(i)
    return np.array(found, np.int64)


def _with_few(X: FloatArray, few: IntArray) -> FloatArray:
    return np.concatenate([X, X[:, few]], axis=1)


def _centred(rows: Rows) -> tuple[FloatArray, IntArray]:
    """(n,) scores less the mean of their context, and (n,) number of the context.

    A context with a job or two is drawn to the mean of all: its own mean says little.
    """
    _, group = np.unique(rows.context_key, return_inverse=True)
    count = np.bincount(group)
    total = float(rows.score.mean())
    mean = (np.bincount(group, rows.score) + total) / (count + 1.0)
    return rows.score - mean[group], group.astype(np.int64)
