"""Two relatives of ``boosted_trees`` that the committee asks beside it.

They differ in how the trees are grown and in what these see; effects, correction, and what an
update does are the same.
"""

from collections.abc import Sequence

import numpy as np

from tunerd.core.arrays import BoolArray, FloatArray
from tunerd.core.estimators.extra_trees import extra_trees
from tunerd.core.estimators.trees import TreeBooster, TreeOptions
from tunerd.core.features import FeatureMap
from tunerd.core.features.rows import FAINT, FeatureRows
from tunerd.core.predictors.boosted_trees import BoostedTrees
from tunerd.core.study import PredictorOptions

__all__ = ["ConfigurationTrees", "ExtraTrees"]

ROWS_EACH = 2_000
"""Rows that one of the extra trees is grown from at most; each draws its own."""


class ExtraTrees(BoostedTrees):
    """Extremely randomized trees on the scores themselves.

    Where trend and levels are taken off first, what is left looks the same in all contexts, and
    what a context has of its own is found last. These find it first: they are worth least where
    contexts differ in level alone, and most where they differ in what is good.
    """

    on_rest = False

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
        """See :meth:`BoostedTrees.grown`. A quarter of the trees, far deeper: down to single rows,
        of which one that is faint would count in full where it is alone."""
        fresh = mask & (rows.counts >= FAINT)
        mask = fresh if fresh.any() else mask
        text = extra_trees(
            rows.X[mask],
            label[mask],
            rows.weight[mask],
            np.flatnonzero(categorical).tolist(),
            trees=(options.trees + 3) // 4,
            rows_each=ROWS_EACH,
            seed=seed,
        )
        return TreeBooster(text)


class ConfigurationTrees(BoostedTrees):
    """Boosted trees that see no context, on what trend and levels leave.

    Where contexts have thousands of rows and are few, trees that see the context learn it by heart;
    what is good in all of them is what carries to the next one. These stay small: what is special
    about a configuration is left to its effect, which asks contexts alike first.
    """

    @classmethod
    def growth(cls, n: int, options: PredictorOptions, seed: int) -> TreeOptions:
        """See :meth:`BoostedTrees.growth`."""
        del n
        return TreeOptions(options.trees, 7, 3, seed, min(15.0 / options.trees, 0.3))

    @classmethod
    def hidden(cls, features: FeatureMap) -> BoolArray:
        """(F,) the columns of the context."""
        return features.of_context
