"""``reinforce``: the paper's search (CubicML, arXiv 2409.04585, A.1.1).

Policies propose batches of configurations, learn from their scores by REINFORCE with Adam, and
converge on what scores well; several of them learn side by side and their best are merged, and
polished (:mod:`.local_search`). The gradient of a categorical policy is a count of choices, so that
no autograd is needed.

What makes it frugal with predictions: nothing is scored twice. What positions of a repeat parameter
and neighbouring numbers have in common is learned at once (:mod:`.groups`). Each policy goes on
learning from the best that it has seen. And most of what it tries are its best, changed in some
places as it says (:mod:`.mutations`): the policy learns which choices are good, these find out
which are good together. Steps are small and many. A policy that finds nothing better begins anew,
and what a cycle of learning and polishing leaves of the budget goes into another.
"""

import numpy as np
from pydantic import Field

from tunerd.core.arrays import Codes, FloatArray
from tunerd.core.searchers.base import CachedScorer, Searcher
from tunerd.core.searchers.groups import common, first_draws
from tunerd.core.searchers.local_search import polish
from tunerd.core.searchers.mutations import EliteMutator, PolicyElites
from tunerd.core.searchers.policy import CategoricalPolicies
from tunerd.core.space import SearchSpace
from tunerd.core.study import PluginOptions, SearchOptions

__all__ = ["ReinforceOptions", "ReinforceSearcher"]

ENTROPY = 0.05
"""Weight of the entropy bonus at the first step; it falls to 0 at the last. Advantages have unit
variance, so that it means the same for every objective."""
DECAY = (0.9, 0.99)
"""Adam's memory of the gradient and of its square; the square's is short, as searches are."""
SMALLEST = 4
"""Draws of a policy in one step where the budget is short: many small steps find more than few
large ones, and cost more calls of the predictor."""
VALUES = 2
"""Values of the widest category for each draw of a step. Eight draws hardly tell which of a
thousand values is good. They cost nearly the time of a hundred: a call of the predictor is dear."""
MOST_DRAWS = 64
"""Draws that the values of a category ask for at most."""
FEW_STEPS = 30
"""Steps that a cycle has at least, however many draws are asked for."""
CHANGED = 0.75
"""Share of a step's draws that are the policy's best with some places changed."""
STUCK = 40
"""Steps without anything better after which a policy begins anew, elsewhere."""
PATIENCE = 5
NOVELTY = 0.25
"""A cycle ends when over PATIENCE steps fewer than this share of the draws were new: a converged
policy repeats itself."""
CYCLES = 2
"""Cycles in a row without anything better after which a search ends."""
SHORTEST = 10
"""Steps that the budget must allow for another cycle."""
WARM = 1.5
"""What a policy that begins with good configurations adds to the logits of choices that all of
them share."""
POLISH_SHARE = 0.2
"""Share of a cycle's budget that is kept for polishing."""


class ReinforceOptions(PluginOptions):
    """How its policies learn."""

    steps: int = Field(
        default=200,
        ge=1,
        le=100_000,
        description="Steps after which policies of reinforce begin anew, while there is budget.",
    )
    batch: int = Field(
        default=8,
        ge=2,
        le=65_536,
        description="Configurations that each policy of reinforce tries in a step, fewer where the"
        " budget is short.",
    )
    learning_rate: float = Field(
        default=0.07, gt=0, le=10, description="Step size of a learned policy."
    )


class ReinforceSearcher(Searcher):
    """One policy per seed of the study's ``[search]`` table; a cycle takes at most ``steps`` times
    ``batch`` draws of each."""

    options_type = ReinforceOptions

    def _explore(
        self, space: SearchSpace, scored: CachedScorer, begin: Codes, rng: np.random.Generator
    ) -> None:
        barren, best = 0, -np.inf
        while barren < CYCLES:
            with scored.reserve(POLISH_SHARE):
                cycle = _ReinforceCycle(space, scored, self.options, begin, rng)
                cycle.run()
            polish(space, scored, cycle.lanes.tolist(), rng)
            best_found = scored.best(SMALLEST)
            if scored.left < SHORTEST * SMALLEST * len(self.options.seeds):
                return
            improved = len(best_found.scores) > 0 and best_found.scores[0] > best
            barren = 0 if improved else barren + 1
            best = best_found.scores[0] if improved else best
            begin = best_found.codes


class _ReinforceCycle:
    """Policies that learn side by side until they converge or the budget is gone."""

    def __init__(
        self,
        space: SearchSpace,
        scored: CachedScorer,
        options: SearchOptions,
        begin: Codes,
        rng: np.random.Generator,
    ) -> None:
        own = ReinforceOptions.among(options.own)
        count = self.count = len(options.seeds)
        wide = min(_widest(space) // VALUES, MOST_DRAWS)
        wanted, steps = max(own.batch, wide), own.steps
        if wide > own.batch:
            steps = min(steps, max(scored.left // (count * wanted), FEW_STEPS))
        self.size = min(max(scored.left // (count * steps), SMALLEST), wanted)
        self.steps = min(steps, max(scored.left // (count * self.size), 1))
        self.space, self.scored, self.rng = space, scored, rng
        self.policies, self.changes = CategoricalPolicies(space, count), EliteMutator(space)
        self.groups = common(space)
        width = sum(self.groups.shape)
        self.adam = _AdamOptimizer((count, width), own.learning_rate)
        self.idle = np.zeros(count, np.int64)
        self.lanes = np.array([scored.new_lane() for _ in options.seeds])
        self.best = self._begun(begin)

    def _begun(self, begin: Codes) -> PolicyElites:
        """The first draws; half of the policies begin with what is known to be good."""
        codes = first_draws(self.space, self.count * self.size, self.rng)
        codes = codes.reshape(self.count, self.size, -1)
        warm = (self.count + 1) // 2 if len(begin) else 0
        codes[:warm, : min(len(begin), self.size)] = begin[: self.size]
        self.policies.lean_to(begin, WARM, warm)
        return PolicyElites.of(codes, self._scores(codes), self.size)

    def _scores(self, codes: Codes) -> FloatArray:
        lanes = np.repeat(self.lanes, codes.shape[1])
        return self.scored(codes.reshape(len(lanes), -1), lanes).reshape(codes.shape[:2])

    def run(self) -> None:
        """Learn."""
        fresh: list[int] = []
        for step in range(self.steps):
            before = len(self.scored)
            codes = self.policies.draw(self.size, self.rng)
            some = int(CHANGED * self.size)
            codes[:, :some] = self.changes.made(self.best, codes[:, :some], self.rng)
            scores = self._scores(codes)
            if not self.scored.left:
                return
            fresh = [*fresh, len(self.scored) - before][-PATIENCE:]
            if sum(fresh) < NOVELTY * PATIENCE * scores.size and len(fresh) == PATIENCE:
                return
            self._learn(
                np.concatenate([codes, self.best.codes], axis=1),
                np.concatenate([scores, self.best.scores], axis=1),
                ENTROPY * (1.0 - step / self.steps),
            )
            if self.steps - step > STUCK:
                for policy in np.flatnonzero(self.idle > STUCK).tolist():
                    self._renew(policy)

    def _learn(self, codes: Codes, scores: FloatArray, bonus: float) -> None:
        best = PolicyElites.of(codes, scores, self.size)
        better = best.scores[:, 0] > self.best.scores[:, 0]
        self.idle = np.where(better, 0, self.idle + 1)
        self.best = best
        gradient = self.policies.gradient(codes, _advantage(scores))
        gradient += bonus * self.policies.entropy_gradient()
        change = self.adam.step(np.concatenate([gradient, gradient @ self.groups], axis=1))
        own, shared = np.split(change, [len(self.groups)], axis=1)
        self.policies.logits += own + shared @ self.groups.T

    def _renew(self, policy: int) -> None:
        """Let one policy begin anew."""
        self.scored.lane = self.lanes[policy] = self.scored.new_lane()
        codes = first_draws(self.space, self.size, self.rng)[None]
        begun = PolicyElites.of(codes, self.scored(codes[0])[None], self.size)
        self.best.codes[policy], self.best.scores[policy] = begun.codes[0], begun.scores[0]
        self.idle[policy] = 0
        self.policies.logits[policy] = 0.0
        self.adam.forget(policy)


def _widest(space: SearchSpace) -> int:
    """Values of the category that has most of them. Numbers are learned by their neighbours."""
    categories = {
        parameter.name for parameter in space.study.parameters if parameter.type == "category"
    }
    sizes = zip(space.dimensions, space.sizes.tolist(), strict=True)
    return max((size for dimension, size in sizes if dimension.parameter in categories), default=0)


class _AdamOptimizer:
    """Adam, ascending (Kingma & Ba, arXiv 1412.6980)."""

    def __init__(self, shape: tuple[int, ...], rate: float) -> None:
        self._rate = rate
        self._mean, self._square = np.zeros(shape), np.zeros(shape)
        self._steps = 0

    def forget(self, row: int) -> None:
        """Begin anew with one row of the parameters."""
        self._mean[row] = self._square[row] = 0.0

    def step(self, gradient: FloatArray) -> FloatArray:
        """Return the change of the parameters."""
        self._steps += 1
        first, second = DECAY
        self._mean = first * self._mean + (1 - first) * gradient
        self._square = second * self._square + (1 - second) * gradient**2
        mean = self._mean / (1 - first**self._steps)
        square = self._square / (1 - second**self._steps)
        change: FloatArray = self._rate * mean / (np.sqrt(square) + 1e-8)
        return change


def _advantage(scores: FloatArray) -> FloatArray:
    """(S, n) scores → advantages over the batch mean in batch standard deviations.

    −inf and NaN count as a little worse than the worst usable score. Where all are the same
    there is nothing to learn and the advantage is 0.
    """
    usable = np.isfinite(scores)
    worst = np.min(scores, axis=1, keepdims=True, where=usable, initial=np.inf)
    best = np.max(scores, axis=1, keepdims=True, where=usable, initial=-np.inf)
    known = np.isfinite(worst)
    reach = np.where(known, best - worst, 0.0)
    floor = np.where(known, worst, 0.0) - 0.1 * reach - (~usable).any(axis=1, keepdims=True) * 1e-12
    values = np.where(usable, scores, floor)
    values = values - values.mean(axis=1, keepdims=True)
    spread = values.std(axis=1, keepdims=True)
    return np.where(spread > 1e-12, values / np.maximum(spread, 1e-12), 0.0)
