"""``random``: distinct feasible configurations, evenly spread. What any searcher has to beat."""

import numpy as np

from tunerd.core.arrays import Codes
from tunerd.core.searchers.base import CachedScorer, Searcher
from tunerd.core.space import SearchSpace

__all__ = ["RandomSearcher"]

BATCH = 1_024
"""Configurations drawn at a time."""
PATIENCE = 3
"""Batches in a row with nothing new after which the space counts as exhausted."""


class RandomSearcher(Searcher):
    """Spends the whole budget on random configurations."""

    def _explore(
        self, space: SearchSpace, scored: CachedScorer, begin: Codes, rng: np.random.Generator
    ) -> None:
        del begin
        idle = 0
        while scored.left and idle < PATIENCE:
            before = len(scored)
            scored(space.sample(min(BATCH, scored.left), rng))
            idle = 0 if len(scored) > before else idle + 1
