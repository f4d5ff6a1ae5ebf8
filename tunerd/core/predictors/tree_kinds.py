"""Two relatives of ``boosted_trees`` that the committee asks beside it.

They differ in how the trees are grown and in what these see; trend, levels, correction, and what an
update does are the same.
"""

from typing import TYPE_CHECKING

import numpy as np

from tunerd.core.arrays import BoolArray
from tunerd.core.learners.trees import TreeOptions
from tunerd.core.predictors.boosted_trees import BoostedTrees

if TYPE_CHECKING:
    from tunerd.core.features import FeatureMap

__all__ = ["ConfigurationTrees", "RandomForest"]


class RandomForest(BoostedTrees):
    """A random forest (Breiman 2001) on what trend and levels leave: it smooths where boosting
    follows single rows."""

    @classmethod
    def growth(cls, n: int, trees: int, seed: int) -> TreeOptions:
        """See :meth:`BoostedTrees.growth`. Trees as deep as the rows allow, as is usual."""
        leaves = int(np.clip(n // 2, 8, 1_024))
        return TreeOptions((trees + 3) // 4, leaves, 1, seed, rows_share=0.9, averaged=True)


class ConfigurationTrees(BoostedTrees):
    """Boosted trees that see no context, on what trend and levels leave.

    Where contexts have thousands of rows and are few, trees that see the context learn it by heart;
    what is good in all of them is what carries to the next one. These stay small: what is special
    about a configuration is left to its effect, which asks contexts alike first.
    """

    @classmethod
    def growth(cls, n: int, trees: int, seed: int) -> TreeOptions:
        """See :meth:`BoostedTrees.growth`."""
        del n
        return TreeOptions(trees, 7, 3, seed, min(15.0 / trees, 0.3))

    @classmethod
    def hidden(cls, features: "FeatureMap") -> BoolArray:
        """(F,) the columns of the context."""
        return features.of_context
