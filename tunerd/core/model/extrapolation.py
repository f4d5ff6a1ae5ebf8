"""How far jobs lie beyond what was ever varied.

A predictor learns what a value does from jobs that differ in it. Where all jobs so far had one
value (one kind of GPU, one model), nothing tells what another will do, and none of its own
uncertainties knows: leaving jobs out cannot show what there is only one of. Then all that can be
said is that the effect may be as large as the differences between all jobs so far; for a number, as
large for each two doublings.

Of a context's kinds (five models) a sixth is one more draw of what makes them differ: leaving each
of them out of a straight line through the others says how far apart they are beyond what their
numbers tell, and the fewer they are, the less sure that is (Student's t).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import stdtrit

from tunerd.core.arrays import FloatArray
from tunerd.core.conformal import BAND, HALF
from tunerd.core.estimators.trend import RidgeTrend
from tunerd.core.features import FeatureMap, FeatureRows

__all__ = ["Extrapolation"]

DOUBLINGS = 2.0
MOST = 3.0
"""Effects of full size that one value counts as, at most."""
ENOUGH_ROWS = 1_000
"""Rows by which kinds are compared; of more every so many-th."""
MOST_KINDS = 12
"""Kinds that are left out in turn, those with the most jobs."""
FEW_ROWS = 5
"""Jobs of all others below which a kind is not left out."""


@dataclass
class Extrapolation:
    """The columns that never varied, and what they held."""

    only: dict[int, float | None]
    """Column of a parameter, or of a number of the context → the one value that it has had, NaN as
    None."""
    categorical: frozenset[int]
    scale: float
    """Standard deviation of scores, as far as jobs of different kinds are known."""
    kinds: dict[int, tuple[set[float], float]] = field(default_factory=dict)
    """Categorical column of a context feature → its values so far, and the standard deviation of
    what one more does."""

    @classmethod
    def of(cls, features: FeatureMap, rows: FeatureRows) -> "Extrapolation":
        """What the rows of a fit vary."""
        rows = rows.take(np.flatnonzero(np.isfinite(rows.score)))
        scale = float(np.std(rows.score)) if len(rows) else 0.0
        only, kinds = {}, {}
        for i, column in enumerate(features.columns):
            there = np.unique(rows.X[:, i])
            if column.group == "context" and column.categorical:
                values = set(there[~np.isnan(there)].tolist())
                kinds[i] = values, _between(features, rows, i, scale)
            elif column.group in ("context", "parameter") and len(there) == 1:
                only[i] = None if np.isnan(there[0]) else float(there[0])
        categorical = frozenset(i for i in only if features.columns[i].categorical)
        return cls(only, categorical, scale, kinds)

    def learn(self, rows: FeatureRows) -> None:
        """A value that has come is no longer beyond."""
        X = rows.X[np.isfinite(rows.score)]
        for i in [i for i, value in self.only.items() if self._away(X[:, i], i, value).any()]:
            del self.only[i]
        for i, (values, _) in self.kinds.items():
            values.update(X[~np.isnan(X[:, i]), i].tolist())

    def beyond(self, rows: FeatureRows) -> FloatArray:
        """(n,) standard deviation of what is not known, in score units; 0 where everything has
        been varied."""
        total = np.zeros(len(rows))
        for i, value in self.only.items():
            total += self._away(rows.X[:, i], i, value) ** 2
        strange = np.zeros(len(rows))
        for i, (values, effect) in self.kinds.items():
            new = ~np.isnan(rows.X[:, i]) & ~np.isin(rows.X[:, i], list(values))
            strange = np.maximum(strange, effect * new)
        away: FloatArray = np.hypot(self.scale * np.sqrt(total), strange)
        return away

    @property
    def ends(self) -> bool:
        """Whether anything is beyond."""
        return bool(self.only or self.kinds)

    def _away(self, values: FloatArray, column: int, value: float | None) -> FloatArray:
        if value is None:
            return np.where(np.isnan(values), 0.0, 1.0)
        differs = np.where(np.isnan(values) | (values == value), 0.0, 1.0)
        if column in self.categorical or value <= 0:
            return differs
        with np.errstate(all="ignore"):
            away = np.abs(np.log2(values / value)) / DOUBLINGS
        far: FloatArray = np.clip(np.nan_to_num(away, nan=1.0), 0.1, MOST)
        return far * differs

    def dump(self) -> dict[str, Any]:
        """State as JSON values."""
        only = [[i, value] for i, value in self.only.items()]
        kinds = [[i, sorted(values), effect] for i, (values, effect) in self.kinds.items()]
        return {
            "only": only,
            "categorical": sorted(self.categorical),
            "scale": self.scale,
            "kinds": kinds,
        }

    @classmethod
    def load(cls, state: Mapping[str, Any]) -> "Extrapolation":
        """Build from what :meth:`dump` gave."""
        only = {int(i): value for i, value in state["only"]}
        kinds = {int(i): (set(values), effect) for i, values, effect in state["kinds"]}
        return cls(only, frozenset(state["categorical"]), state["scale"], kinds)


def _between(features: FeatureMap, rows: FeatureRows, column: int, scale: float) -> float:
    """How far off one more kind may be: root mean square of how far the mean of each is off when
    it is left out, by a straight line or by the mean of the others, whichever does better; wider
    for being read off few. One kind counts as two that are ``scale`` apart."""
    if len(rows) > ENOUGH_ROWS:
        rows = rows.take(np.linspace(0, len(rows) - 1, ENOUGH_ROWS).astype(np.intp))
    values, place = np.unique(rows.X[:, column], return_inverse=True)
    count = np.bincount(place)
    chosen = np.argsort(-count, kind="stable")[:MOST_KINDS]
    chosen = chosen[(len(rows) - count[chosen] >= FEW_ROWS) & ~np.isnan(values[chosen])]
    if len(chosen) < 2:
        return _unsure(2) * scale
    masks = [place != i for i in chosen]
    categorical = [c.categorical for c in features.columns]
    predicted = RidgeTrend.fit(rows.X, rows.score, rows.weight, categorical, masks).predict(rows.X)[
        0
    ]
    means = np.array([rows.score[~mask].mean() for mask in masks])
    by_line = means - np.array([predicted[~mask, m].mean() for m, mask in enumerate(masks)])
    by_mean = means - np.array([np.delete(means, m).mean() for m in range(len(means))])
    off = min(float(np.mean(by_line**2)), float(np.mean(by_mean**2)))
    return _unsure(len(chosen)) * float(np.sqrt(off))


def _unsure(kinds: int) -> float:
    """By how much a band that stands on so many is wider than one that stands on many."""
    return float(stdtrit(kinds - 1, (1 + BAND) / 2)) / HALF
