"""The contract of a searcher, and what all searchers share.

A searcher sees a space, a score function, a generator and a budget; never a predictor. Whatever
it does, :meth:`Searcher.search` holds three promises for it: no configuration is scored twice,
the score function is never asked for more than the budget, and a space whose feasible set fits
the budget is simply scored whole, which is both exact and cheapest.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tunerd.core.arrays import Codes, FloatArray

if TYPE_CHECKING:
    from tunerd.core.space import Space
    from tunerd.core.study import SearchOptions

__all__ = ["Budget", "Found", "ScoreFunction", "Scored", "Searcher"]

ScoreFunction = Callable[[Codes], FloatArray]
"""(n, D) feasible distinct configurations → (n,) scores, larger is better. -inf and NaN mean
"never this one"."""


@dataclass(frozen=True, slots=True)
class Budget:
    """How much a search may spend and how much it brings home."""

    evaluations: int
    """Configurations that the score function may be asked for."""
    keep: int
    """Configurations to return at most."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found: distinct feasible configurations, best first."""

    codes: Codes
    """(k, D) choice indices; k is at most ``Budget.keep``."""
    scores: FloatArray
    """(k,) descending, all finite or +inf."""
    evaluations: int
    """Configurations that were scored."""


class Scored:
    """Remembers every score, so that a policy that repeats itself costs nothing."""

    def __init__(self, score: ScoreFunction, width: int, evaluations: int) -> None:
        self.left = evaluations
        """Evaluations that the budget still allows."""
        self._score = score
        self._known: dict[bytes, int] = {}
        self._codes: list[Codes] = [np.empty((0, width), dtype=np.int32)]
        self._scores = np.empty(0)

    def __len__(self) -> int:
        return len(self._known)

    def __call__(self, codes: Codes) -> FloatArray:
        """Score (n, D) feasible configurations, repeats welcome.

        Returns (n,) scores; NaN where the budget was gone before the row's turn.
        """
        codes = np.ascontiguousarray(codes, dtype=np.int32)
        raw, step = codes.tobytes(), codes.shape[1] * codes.itemsize
        places = np.full(len(codes), -1)
        fresh: list[int] = []
        for i in range(len(codes)):
            key = raw[i * step : (i + 1) * step]
            place = self._known.get(key, -1)
            if place < 0 and self.left > 0:
                place = self._known[key] = len(self._known)
                self.left -= 1
                fresh.append(i)
            places[i] = place
        if fresh:
            self._codes.append(codes[fresh])
            scores = np.asarray(self._score(codes[fresh]), dtype=np.float64)
            self._scores = np.concatenate([self._scores, scores])
        found: FloatArray = np.append(self._scores, np.nan)[places]
        return found

    @contextmanager
    def reserve(self, share: float) -> Iterator[None]:
        """Hold back a share of what the budget still allows, for what comes afterwards."""
        kept = int(share * self.left)
        self.left -= kept
        try:
            yield
        finally:
            self.left += kept

    def best(self, keep: int) -> Found:
        """The ``keep`` best so far; of equals the one that was scored first."""
        usable = np.flatnonzero(self._scores > -np.inf)  # False for NaN as well
        order = usable[np.argsort(-self._scores[usable], kind="stable")][:keep]
        return Found(np.concatenate(self._codes)[order], self._scores[order], len(self._known))


class Searcher(ABC):
    """Proposes configurations. Register in ``searchers/__init__.py``."""

    def __init__(self, options: "SearchOptions") -> None:
        self.options = options

    def search(
        self, space: "Space", score: ScoreFunction, rng: np.random.Generator, budget: Budget
    ) -> Found:
        """Look for the configurations with the largest scores.

        The same space, score function, generator state and budget give the same answer. What
        scored -inf or NaN is not returned, so that the answer may be empty.
        """
        scored = Scored(score, len(space.dimensions), budget.evaluations)
        table = space.table(budget.evaluations)
        if table is not None:
            scored(table)
        else:
            self._explore(space, scored, rng)
        return scored.best(budget.keep)

    @abstractmethod
    def _explore(self, space: "Space", scored: Scored, rng: np.random.Generator) -> None:
        """Call ``scored`` with promising feasible configurations until its budget is gone or
        nothing new is to be expected."""
