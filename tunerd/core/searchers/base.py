"""The contract of a searcher, and what all searchers share.

A searcher sees a space, a score function, a generator, a budget, and what is known to be good;
never a predictor. Whatever it does, :meth:`Searcher.search` holds four promises for it: no
configuration is scored twice, the score function is never asked for more than the budget, a space
whose feasible set fits the budget is simply scored whole, which is both exact and cheapest, and
what comes back is not worse than what the search began with.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from typing import ClassVar

import numpy as np

from tunerd.core.arrays import Codes, FloatArray, IntArray, names_of
from tunerd.core.space import SearchSpace
from tunerd.core.study import PluginOptions, SearchOptions
from tunerd.errors import MisconfiguredError, ValidationProblem

__all__ = ["CachedScorer", "ScoreFunction", "SearchBudget", "SearchResult", "Searcher"]

ScoreFunction = Callable[[Codes], FloatArray]
"""(n, D) feasible distinct configurations → (n,) scores, larger is better. -inf and NaN mean
"never this one"."""


@dataclass(frozen=True, slots=True)
class SearchBudget:
    """How much a search may spend and how much it brings home."""

    evaluations: int
    """Configurations that the score function may be asked for."""
    keep: int
    """Configurations to return at most."""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What a search found: distinct feasible configurations, best first."""

    codes: Codes
    """(k, D) choice indices; k is at most ``Budget.keep``."""
    scores: FloatArray
    """(k,) descending, all finite or +inf."""
    evaluations: int
    """Configurations that were scored."""


class CachedScorer:
    """Remembers every score, so that a policy that repeats itself costs nothing."""

    def __init__(self, score: ScoreFunction, width: int, evaluations: int) -> None:
        self.left = evaluations
        """Evaluations that the budget still allows."""
        self.lane = 0
        """Who asks from now on: each search that begins by itself has a number of its own."""
        self._score = score
        self._known: dict[bytes, int] = {}
        self._codes: list[Codes] = [np.empty((0, width), dtype=np.int32)]
        self._scores = np.empty(0)
        self._lanes: list[int] = []
        self._last_lane = 0

    def __len__(self) -> int:
        return len(self._known)

    def __call__(self, codes: Codes, lanes: IntArray | None = None) -> FloatArray:
        """Score (n, D) feasible configurations, repeats welcome; ``lanes`` (n,) says for whom,
        where it is not :attr:`lane` for all.

        Returns (n,) scores; NaN where the budget was gone before the row's turn.
        """
        codes = np.ascontiguousarray(codes, dtype=np.int32)
        places = np.full(len(codes), -1)
        fresh: list[int] = []
        for i, key in enumerate(names_of(codes)):
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
            self._lanes += [self.lane] * len(fresh) if lanes is None else lanes[fresh].tolist()
        all_scores: FloatArray = np.append(self._scores, np.nan)[places]
        return all_scores

    def new_lane(self) -> int:
        """The number of a search that begins now."""
        self._last_lane += 1
        return self._last_lane

    @contextmanager
    def reserve(self, share: float) -> Iterator[None]:
        """Hold back a share of what the budget still allows, for what comes afterwards."""
        kept = int(share * self.left)
        self.left -= kept
        try:
            yield
        finally:
            self.left += kept

    def best(self, keep: int, lane: int | None = None) -> SearchResult:
        """The ``keep`` best so far, of one lane or of all; of equals the one scored first."""
        order = self._order(lane)[:keep]
        return SearchResult(
            np.concatenate(self._codes)[order], self._scores[order], len(self._known)
        )

    def merged(self, keep: int) -> SearchResult:
        """The best so far, half of them whoever found them, the others from each lane in turn.

        Searches side by side end in different places. The best place alone has more good
        configurations than anybody wants, nearly the same; whoever chooses among them wants the
        other places too.
        """
        order = self._order()
        chosen = dict.fromkeys(order[: (keep + 1) // 2].tolist())
        lanes = np.array(self._lanes, dtype=np.int64)[order]
        first = dict.fromkeys(lanes.tolist())  # of more lanes than places the best ones
        turns = zip_longest(*(order[lanes == lane].tolist() for lane in first))
        for place in (place for turn in turns for place in turn if place is not None):
            if len(chosen) == keep:
                break
            chosen[place] = None
        places = np.array(sorted(chosen, key=lambda place: (-self._scores[place], place)), np.int64)
        return SearchResult(
            np.concatenate(self._codes)[places], self._scores[places], len(self._known)
        )

    def _order(self, lane: int | None = None) -> IntArray:
        """Places of what is usable, best first."""
        usable = self._scores > -np.inf  # False for NaN as well
        if lane is not None:
            usable &= np.array(self._lanes, dtype=np.int64) == lane
        places = np.flatnonzero(usable)
        order: IntArray = places[np.argsort(-self._scores[places], kind="stable")]
        return order


class Searcher(ABC):
    """Proposes configurations. Register in ``searchers/__init__.py``."""

    options_type: ClassVar[type[PluginOptions]] = PluginOptions
    """Options of its own."""

    def __init__(self, options: SearchOptions) -> None:
        """Raises:
        MisconfiguredError: see :meth:`problem`.
        """
        if (problem := self.problem(options)) is not None:
            raise MisconfiguredError([ValidationProblem("search.searcher", problem)])
        self.options = options

    @classmethod
    def problem(cls, options: SearchOptions) -> str | None:
        """Why nothing can be searched for with these options here; ``None`` where all is well."""
        del options
        return None

    def search(
        self,
        space: SearchSpace,
        score: ScoreFunction,
        rng: np.random.Generator,
        budget: SearchBudget,
        begin: Codes | None = None,
    ) -> SearchResult:
        """Look for the configurations with the largest scores.

        ``begin`` (n, D), best first, is where to begin: what the last search in this context
        brought, what ran well. Numbers between choices are moved to the nearest choice; rows that
        are not feasible are left out.

        The same space, score function, generator state, budget and beginning give the same
        answer. What scored -inf or NaN is not returned, so that the answer may be empty.
        """
        scored = CachedScorer(score, len(space.dimensions), budget.evaluations)
        table = space.table(budget.evaluations)
        if table is not None:
            scored(table)
            return scored.best(budget.keep)
        begin = np.empty((0, len(space.dimensions)), np.int32) if begin is None else begin
        if len(begin):
            begin = space.on_choices(begin)
            begin = begin[space.feasible(begin)]
        scored(begin)
        self._explore(space, scored, begin, rng)
        return scored.merged(budget.keep)

    @abstractmethod
    def _explore(
        self, space: SearchSpace, scored: CachedScorer, begin: Codes, rng: np.random.Generator
    ) -> None:
        """Call ``scored`` with promising feasible configurations until its budget is gone or
        nothing new is to be expected. ``begin`` is feasible and was scored."""
