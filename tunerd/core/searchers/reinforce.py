"""``reinforce``: the paper's search (CubicML, arXiv 2409.04585, A.1.1).

Policies propose batches of configurations, learn from their scores by REINFORCE with Adam, and
converge on what scores well; several of them start side by side and their best are merged, and
polished (:mod:`.polish`). The gradient of a categorical policy is a count of choices, so that no
autograd is needed.
"""

from typing import TYPE_CHECKING

import numpy as np

from tunerd.core.arrays import FloatArray
from tunerd.core.searchers.base import Scored, Searcher
from tunerd.core.searchers.policy import Policies
from tunerd.core.searchers.polish import polish

if TYPE_CHECKING:
    from tunerd.core.space import Space

__all__ = ["Reinforce"]

ENTROPY = 0.05
"""Weight of the entropy bonus at the first step; it falls to 0 at the last. Advantages have unit
variance, so that it means the same for every objective."""
DECAY = (0.9, 0.99)
"""Adam's memory of the gradient and of its square; the square's is short, as searches are."""
PATIENCE = 5
NOVELTY = 0.02
"""A search ends when over PATIENCE steps fewer than this share of the draws were new: a converged
policy repeats itself."""

POLISHED = 4
"""Best configurations whose neighbours are looked at in the end."""
POLISH_SHARE = 0.25
"""Share of the budget that is kept for them."""


class Reinforce(Searcher):
    """One policy per seed of the study's ``[search]`` table; ``steps`` batches of ``batch``."""

    def _explore(self, space: "Space", scored: Scored, rng: np.random.Generator) -> None:
        with scored.reserve(POLISH_SHARE):
            self._learn(space, scored, rng)
        polish(space, scored, POLISHED, rng)

    def _learn(self, space: "Space", scored: Scored, rng: np.random.Generator) -> None:
        options = self.options
        policies = Policies(space, len(options.seeds))
        adam = _Adam(policies.logits.shape, options.learning_rate)
        fresh: list[int] = []
        for step in range(options.steps):
            before = len(scored)
            codes = policies.draw(options.batch, rng)
            scores = scored(codes.reshape(-1, codes.shape[2])).reshape(codes.shape[:2])
            if not scored.left:
                return
            fresh = [*fresh, len(scored) - before][-PATIENCE:]
            if sum(fresh) < NOVELTY * PATIENCE * scores.size and len(fresh) == PATIENCE:
                return
            gradient = policies.gradient(codes, _advantage(scores))
            bonus = ENTROPY * (1.0 - step / options.steps)
            policies.logits += adam.step(gradient + bonus * policies.entropy_gradient())


class _Adam:
    """Adam, ascending (Kingma & Ba, arXiv 1412.6980)."""

    def __init__(self, shape: tuple[int, ...], rate: float) -> None:
        self._rate = rate
        self._mean, self._square = np.zeros(shape), np.zeros(shape)
        self._steps = 0

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
