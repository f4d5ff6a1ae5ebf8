"""The members of ``committee``, fitted on the same rows.

Which there are, with how many rows each takes part, and what they say when asked together.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from tunerd.core.arrays import FloatArray, IntArray
from tunerd.core.features import FeatureMap, FeatureRows
from tunerd.core.predictors.base import Predictor
from tunerd.core.predictors.boosted_trees import BoostedTrees
from tunerd.core.predictors.gaussian_process import GaussianProcess
from tunerd.core.predictors.neural_ensemble import NeuralEnsemble
from tunerd.core.predictors.tree_variants import ConfigurationTrees, ExtraTrees
from tunerd.core.study import Study

__all__ = ["MEMBERS", "CommitteeMembers", "rows_at"]

MEMBERS: Mapping[str, type[Predictor]] = {
    "process": GaussianProcess,
    "networks": NeuralEnsemble,
    "boosted": BoostedTrees,
    "extra": ExtraTrees,
    "configuration": ConfigurationTrees,
}
NETWORK_ROWS = 25
"""Rows below which networks are not asked: they take more time than all others together, for pairs
that are few."""


@dataclass(frozen=True)
class CommitteeMembers:
    """Members that were fitted on the same rows; none where these were too few."""

    members: Mapping[str, Predictor]

    @classmethod
    def fit(cls, study: Study, features: FeatureMap, rows: FeatureRows, seed: int) -> Self:
        """Fit all that so many rows are enough for."""
        names = [n for n in MEMBERS if n != "networks" or len(rows) >= NETWORK_ROWS]
        return cls({name: MEMBERS[name].fit(study, features, rows, seed) for name in names})

    def refitted(
        self, study: Study, features: FeatureMap, rows: FeatureRows, kept: IntArray, seed: int
    ) -> "CommitteeMembers":
        """The same members, roughly, as if they had seen nothing but the rows ``kept``: all of
        them, for what a member is worth that needs thousands is not told by fewer."""
        training = rows.take(kept)
        members = self.members.items()
        return CommitteeMembers(
            {name: m.roughly(study, features, training, seed) for name, m in members}
        )

    def ask(self, rows: FeatureRows, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(n, M) means and spreads, by weights (M,) or (n, M): who has none is not asked."""
        mean, spread = np.zeros((2, len(rows), len(MEMBERS)))
        weights = np.broadcast_to(weights, mean.shape)
        for m, name in enumerate(MEMBERS):
            where = np.flatnonzero(weights[:, m])
            if len(where) and name in self.members:
                predicted = self.members[name].predict(rows_at(rows, where))
                mean[where, m], spread[where, m] = predicted.mean, predicted.std
        return mean, spread

    def means(self, rows: FeatureRows, weights: FloatArray) -> FloatArray:
        """(n,) mean of all by weights (M,)."""
        mean = np.zeros(len(rows))
        for name, weight in zip(MEMBERS, weights.tolist(), strict=True):
            if weight > 0 and name in self.members:
                mean += weight * self.members[name].means(rows)
        return mean

    def dump(self, prefix: str) -> dict[str, bytes]:
        """State as named blobs, each name beginning with ``prefix``."""
        return {
            f"{prefix}{name}.{part}": blob
            for name, member in self.members.items()
            for part, blob in member.dump().items()
        }

    @classmethod
    def load(
        cls,
        study: Study,
        features: FeatureMap,
        blobs: Mapping[str, bytes],
        prefix: str,
        names: Sequence[str],
    ) -> Self:
        """Build from what :meth:`dump` gave, of these members."""
        return cls(
            {n: MEMBERS[n].load(study, features, _below(blobs, f"{prefix}{n}.")) for n in names}
        )


def rows_at(rows: FeatureRows, where: IntArray) -> FeatureRows:
    """The rows at some places, ascending; nothing is copied where that is all of them."""
    return rows if len(where) == len(rows) else rows.take(where)


def _below(blobs: Mapping[str, bytes], prefix: str) -> dict[str, bytes]:
    return {k[len(prefix) :]: v for k, v in blobs.items() if k.startswith(prefix)}
