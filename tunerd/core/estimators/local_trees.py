"""Trees over one context's own jobs, beside the process over them (:mod:`.local`).

Where nothing is known elsewhere, that process is mostly the best there is. Where what is good hangs
on steps, or on categories together, trees find it first. So both are asked. What trees are worth is
told by configurations left out: their weight is that of the smallest squared error of the two
together, drawn to :data:`PRIOR`.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from tunerd.core.arrays import FloatArray
from tunerd.core.estimators.local_gp import LocalGP
from tunerd.core.estimators.trees import BoosterEnsemble, TreeDataset, TreeOptions

__all__ = ["LocalTrees"]

LEAST = 10
"""Configurations below which there are no trees."""
PARTS = 8
"""Random forests, of which each leaves out another part of the configurations: together they
answer, and each says what trees are worth of those that it has not seen."""
TREES = 20
"""In each of them."""
LEAVES = 256
"""More than a context keeps configurations: trees are as deep as they can be, as is usual."""
ROWS_SHARE = 0.63
"""What is left of rows that are drawn as often as there are rows, each time from all (Breiman
2001)."""
PRIOR = 0.5
"""Weight of the trees before any job tells. It counts as much as one job of which both are as far
apart as scores are."""


@dataclass(frozen=True)
class LocalTrees:
    """See the module."""

    forest: BoosterEnsemble
    """Of scores less ``level``, in units of ``unit``: LightGBM keeps seven digits of a label."""
    level: float
    unit: float
    weight: float
    """Of the trees, 0 to 1; the rest is the process's."""

    @classmethod
    def fit(cls, process: LocalGP, score: FloatArray, weight: FloatArray) -> Self | None:
        """Learn from the n configurations of a process, with ``score`` (n,) and ``weight`` (n,) as
        it was given them; None where they are too few, or all the same."""
        n, firm = len(score), float(score.var())
        if n < LEAST or firm <= 0.0:
            return None
        label = (score - process.level) / process.unit
        part = np.random.default_rng(n).permutation(n) % PARTS
        forests, expected = [], np.zeros(n)
        for part_number in range(PARTS):
            training = part != part_number
            options = TreeOptions(
                TREES, LEAVES, 1, part_number, rows_share=ROWS_SHARE, averaged=True
            )
            forests.append(
                TreeDataset(process.Z[training], (), weight[training]).grow(
                    label[training], options
                )
            )
            expected[~training] = forests[-1].predict(process.Z[~training])
        left_out = process.left_out(part)
        apart, off = process.level + expected * process.unit - left_out, score - left_out
        share = float((off @ apart + firm * PRIOR) / (apart @ apart + firm))
        return cls(BoosterEnsemble(forests), process.level, process.unit, min(max(share, 0.0), 1.0))

    def beside(self, Z: FloatArray, mean: FloatArray) -> FloatArray:
        """(m,) what both say together of (m, C) coordinates of which the process says ``mean``."""
        if self.weight == 0.0:
            return mean
        expected = self.level + self.unit * self.forest.predict(Z).mean(axis=1)
        return np.asarray(mean + self.weight * (expected - mean), np.float64)
