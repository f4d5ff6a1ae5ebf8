"""``reinforce``: the paper's search (CubicML, arXiv 2409.04585, A.1.1).

Policies propose batches of configurations, learn from their scores by REINFORCE with Adam, and
converge on what scores well; several of them learn side by side and their best are merged, and
polished (:mod:`.polish`). The gradient of a categorical policy is a count of choices, so that no
autograd is needed.

Three things make it frugal with predictions. What was scored is never asked for again. Each policy
keeps learning from the best that it has seen beside what it draws anew. And half of what it draws
are its best, changed in some places as the policy says: the policy learns which choices are good,
these find out which are good together.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tunerd.core.arrays import Codes, FloatArray
from tunerd.core.searchers.alike import common, first_draws, repeated
from tunerd.core.searchers.base import Scored, Searcher
from tunerd.core.searchers.genes import distinct, genes_of
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
SMALLEST = 8
"""Draws of a policy in one step at least. With few predictions allowed, many small steps find more
than few large ones."""
CHANGED = 0.5
"""Share of a step's draws that are the policy's best with some places drawn anew."""
REACH = 0.7
"""From one to so many places (a power of their number) are drawn anew, few more often than many."""
ANYWHERE = 0.5
"""Share of changes that are drawn from the space and not by the policy: it may be wrong."""
TRADED = 0.2
"""Share of changes that let two positions of a repeat parameter trade places: what is scarce, such
as memory, is then used elsewhere."""
PATIENCE = 5
NOVELTY = 0.02
"""A search ends when over PATIENCE steps fewer than this share of the draws were new: a converged
policy repeats itself."""
WARM = 1.5
"""What a policy that begins with good configurations adds to the logits of choices that all of
them share."""
POLISH_SHARE = 0.25
"""Share of the budget that is kept for polishing."""


class Reinforce(Searcher):
    """One policy per seed of the study's ``[search]`` table; at most ``steps`` times ``batch``
    draws of each."""

    def _explore(
        self, space: "Space", scored: Scored, begin: Codes, rng: np.random.Generator
    ) -> None:
        with scored.reserve(POLISH_SHARE):
            self._learn(space, scored, begin, rng)
        polish(space, scored, rng)

    def _learn(
        self, space: "Space", scored: Scored, begin: Codes, rng: np.random.Generator
    ) -> None:
        options, count = self.options, len(self.options.seeds)
        size = min(max(scored.left // (count * options.steps), SMALLEST), options.batch)
        steps = min(options.steps, max(scored.left // (count * size), 1))
        policies, changes = Policies(space, count), _Changes(space)
        groups = common(space)
        adam = _Adam((count, len(groups) + groups.shape[1]), options.learning_rate)
        warm = (count + 1) // 2 if len(begin) else 0
        policies.lean_to(begin, WARM, warm)
        lanes = np.repeat(np.arange(1, count + 1), size)
        best: _Best | None = None
        fresh: list[int] = []
        for step in range(steps):
            before = len(scored)
            if best is None:
                codes = first_draws(space, count * size, rng).reshape(count, size, -1)
                # The first draws of half of the policies are what is known to be good.
                codes[:warm, : min(len(begin), size)] = begin[:size]
            else:
                codes = policies.draw(size, rng)
                some = int(CHANGED * size)
                codes[:, :some] = changes.made(best, codes[:, :some], rng)
            flat = codes.reshape(count * size, -1)
            scores = scored(flat, lanes).reshape(count, size)
            if not scored.left:
                return
            fresh = [*fresh, len(scored) - before][-PATIENCE:]
            if sum(fresh) < NOVELTY * PATIENCE * scores.size and len(fresh) == PATIENCE:
                return
            if best is not None:
                codes = np.concatenate([codes, best.codes], axis=1)
                scores = np.concatenate([scores, best.scores], axis=1)
            best = _best(codes, scores, size)
            gradient = policies.gradient(codes, _advantage(scores))
            bonus = ENTROPY * (1.0 - step / steps)
            gradient += bonus * policies.entropy_gradient()
            change = adam.step(np.concatenate([gradient, gradient @ groups], axis=1))
            policies.logits += change[:, : len(groups)] + change[:, len(groups) :] @ groups.T


@dataclass(frozen=True, slots=True)
class _Best:
    """The best that each policy has seen: codes (S, m, D) and scores (S, m), best first."""

    codes: Codes
    scores: FloatArray


def _best(codes: Codes, scores: FloatArray, keep: int) -> _Best:
    """The ``keep`` best of each policy, each once while there are enough."""
    values = np.where(np.isnan(scores), -np.inf, scores)
    found = np.empty((len(codes), keep), np.int64)
    for s in range(len(codes)):
        first = distinct(codes[s])
        found[s] = np.resize(first[np.argsort(-values[s][first], kind="stable")], keep)
    places = np.arange(len(codes))[:, None]
    return _Best(codes[places, found], scores[places, found])


class _Changes:
    """Makes configurations out of good ones and newly drawn ones."""

    def __init__(self, space: "Space") -> None:
        self._space = space
        self._gene_of, self._genes = genes_of(space)
        self._runs = list(repeated(space, least=2).values())

    def made(self, best: _Best, drawn: Codes, rng: np.random.Generator) -> Codes:
        """Good configurations that take some places from ``drawn`` (S, n, D), or from anywhere;
        feasible. In some, positions of a repeat parameter trade places instead."""
        count, n, width = drawn.shape
        # Of two at random the better one is changed.
        good = best.codes[:, rng.integers(best.codes.shape[1], size=(2, n)).min(axis=0)]
        anywhere = self._space.sample(count * n, rng).reshape(drawn.shape)
        other = np.where(rng.random((count, n, 1)) < ANYWHERE, anywhere, drawn)
        places = self._genes ** (rng.random((count, n, 1)) * REACH)
        taken = rng.random((count, n, self._genes)) < places / self._genes
        made = np.where(taken[:, :, self._gene_of], other, good).reshape(count * n, width)
        traded = np.flatnonzero(rng.random(count * n) < TRADED * bool(self._runs))
        for row in traded.tolist():
            run = self._runs[rng.integers(len(self._runs))]
            one, two = rng.choice(run, size=2, replace=False)
            made[row] = good.reshape(count * n, width)[row]
            made[row, [one, two]] = made[row, [two, one]]
        return self._space.repair(made.astype(np.int32), rng).reshape(drawn.shape)


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
