"""How far jobs lie beyond what was ever varied.

A predictor learns what a value does from jobs that differ in it. Where all jobs so far had one
value (one kind of GPU, one model), nothing tells what another will do, and none of its own
uncertainties knows: leaving jobs out cannot show what there is only one of. Then all that can be
said is that the effect may be as large as the differences between all jobs so far; for a number, as
large for each two doublings.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tunerd.core.arrays import FloatArray

if TYPE_CHECKING:
    from tunerd.core.features import FeatureMap, Rows

__all__ = ["Reach"]

DOUBLINGS = 2.0
MOST = 3.0
"""Effects of full size that one value counts as, at most."""


@dataclass
class Reach:
    """The columns that never varied, and what they held."""

    only: dict[int, float | None]
    """Column of a context feature or parameter → the one value that it has had, NaN as None."""
    categorical: frozenset[int]
    scale: float
    """Standard deviation of scores, as far as jobs of different kinds are known."""

    @classmethod
    def of(cls, features: "FeatureMap", rows: "Rows") -> "Reach":
        """What the rows of a fit vary."""
        scored = np.isfinite(rows.score)
        only = {}
        for i, column in enumerate(features.columns):
            if column.group in ("context", "parameter"):
                there = np.unique(rows.X[scored, i])
                if len(there) == 1:
                    only[i] = None if np.isnan(there[0]) else float(there[0])
        kinds = frozenset(i for i in only if features.columns[i].categorical)
        return cls(only, kinds, float(np.std(rows.score[scored])) if scored.any() else 0.0)

    def learn(self, rows: "Rows") -> None:
        """A value that has come is no longer beyond."""
        X = rows.X[np.isfinite(rows.score)]
        for i in [i for i, value in self.only.items() if self._away(X[:, i], i, value).any()]:
            del self.only[i]

    def beyond(self, rows: "Rows") -> FloatArray:
        """(n,) standard deviation of what is not known, in score units; 0 where everything has
        been varied."""
        total = np.zeros(len(rows))
        for i, value in self.only.items():
            total += self._away(rows.X[:, i], i, value) ** 2
        away: FloatArray = self.scale * np.sqrt(total)
        return away

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
        return {"only": only, "categorical": sorted(self.categorical), "scale": self.scale}

    @classmethod
    def load(cls, state: Mapping[str, Any]) -> "Reach":
        """Build from what :meth:`dump` gave."""
        only = {int(i): value for i, value in state["only"]}
        return cls(only, frozenset(state["categorical"]), state["scale"])
