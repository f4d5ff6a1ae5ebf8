"""An ensemble of small networks trained to rank, as one batched computation.

CubicML (arXiv 2409.04585), A.1.1: one hidden layer, dropout, AMSGrad, a margin ranking loss, and an
ensemble of identical networks that differ by their seeds. Here the members stand in a leading axis
M of every array, so that a step of all of them is two batched products; pairs are drawn within a
context, because only there does a higher score mean a better configuration; and the margin of a
pair is the difference that was measured, so that what is learned has the objective's scale.

The gradient of one hidden layer is a few products, written out here. With torch, training takes two
to three times the processor time and 700 MB more memory (docs/decisions/networks.md).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from tunerd.core.arrays import BoolArray, FloatArray, IntArray
from tunerd.core.estimators.codec import pack, unpack

__all__ = ["HIDDEN", "RankingNetworks", "TrainingSchedule"]

HIDDEN = 64
"""Units of the hidden layer: few, as rows are few, and each costs time at every step."""
DROPPED = 8
"""Of 256 hidden units that training leaves out at random: 3 %."""
RISING = 0.3
"""Share of the steps in which the rate rises."""
SQUARES = 0.999
"""Memory of the squared gradients."""
BATCH = 256
"""Rows of a step and member; each with a partner from its context."""
DECAY = 1e-4
LEVEL_WEIGHT = 0.3
"""Weight of the squared error beside the ranking loss: it pins down what no pair does."""

Weights = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class TrainingSchedule:
    """How long to train, and from which random numbers."""

    steps: int
    seed: int
    rate: float
    ranking: float = 1.0
    """Weight of the margin ranking loss."""
    squared: float = LEVEL_WEIGHT
    """Weight of the squared error."""


@dataclass(frozen=True)
class RankingNetworks:
    """M networks with D inputs and one output each."""

    into: Weights
    """(M, D, H)"""
    bias: Weights
    """(M, 1, H)"""
    out: Weights
    """(M, H, 1)"""
    shift: Weights
    """(M, 1, 1)"""

    @classmethod
    def fresh(cls, members: int, inputs: int, seed: int, hidden: int = HIDDEN) -> Self:
        """Untrained networks (He initialisation)."""
        rng = np.random.default_rng(seed)
        into = rng.normal(0.0, np.sqrt(2.0 / max(inputs, 1)), (members, inputs, hidden))
        out = rng.normal(0.0, np.sqrt(1.0 / hidden), (members, hidden, 1))
        return cls(
            into.astype(np.float32),
            np.zeros((members, 1, hidden), np.float32),
            out.astype(np.float32),
            np.zeros((members, 1, 1), np.float32),
        )

    def predict(self, Z: FloatArray) -> FloatArray:
        """(n, D) → (n, M)."""
        hidden = np.maximum(Z.astype(np.float32) @ self.into + self.bias, 0.0)
        return np.asarray((hidden @ self.out + self.shift)[:, :, 0].T, np.float64)

    def trained(
        self,
        Z: FloatArray,
        y: FloatArray,
        group: IntArray,
        masks: BoolArray,
        how: TrainingSchedule,
        counts: FloatArray | None = None,
    ) -> "RankingNetworks":
        """Return the networks after some more steps.

        ``Z`` (n, D) inputs, ``y`` (n,) targets of about unit spread, ``group`` (n,) number of each
        row's context, ``masks`` (M, n) which rows each member may see; every member sees some.
        ``counts`` (n,) is how often each is looked at beside others, alike without.
        """
        rng = np.random.default_rng(how.seed)
        inputs, targets = Z.astype(np.float32), y.astype(np.float32)
        optimizer = _AmsGrad((self.into, self.bias, self.out, self.shift))
        pairs = _PairSampler(group, masks, counts)
        for rate, momentum in _one_cycle(how):
            gradients = _gradients(optimizer.parameters, inputs, targets, pairs.draw(rng), rng, how)
            optimizer.step(gradients, rate, momentum)
        return RankingNetworks(*optimizer.parameters)

    def dump(self) -> bytes:
        """Weights in the format of safetensors."""
        return pack({"into": self.into, "bias": self.bias, "out": self.out, "shift": self.shift})

    @classmethod
    def load(cls, blob: bytes) -> Self:
        """Build from what :meth:`dump` gave; its caller has checked that nothing is damaged."""
        weights: Mapping[str, Weights] = unpack(blob)
        return cls(weights["into"], weights["bias"], weights["out"], weights["shift"])


def _gradients(
    parameters: Sequence[Weights],
    inputs: Weights,
    targets: Weights,
    both: IntArray,
    rng: np.random.Generator,
    how: TrainingSchedule,
) -> list[Weights]:
    """Of the loss of rows and their partners, the second half of the batch: the margin ranking
    loss mean(max(0, |margin| - sign(margin) (f(first) - f(second)))), and a little squared error.

    ``inputs`` (n, D), ``targets`` (n,), ``both`` (M, 2 B) row numbers; members share nothing.
    """
    into, bias, out, shift = parameters
    goal, few = targets[both], len(inputs) < both.shape[1]
    # Of few rows, each stands in a batch several times: what is said of it is the same.
    gathered = inputs if few else inputs[both]
    hidden = np.matmul(gathered, into)
    hidden += bias
    # A byte of randomness each: floats cost more than the products do.
    kept = np.frombuffer(rng.bytes(hidden.size), np.uint8).reshape(hidden.shape) >= DROPPED
    alive = ((hidden > 0) & kept) * np.float32(256 / (256 - DROPPED))
    hidden *= alive
    scores = (np.matmul(hidden, out) + shift)[:, :, 0]
    if few:
        scores = np.take_along_axis(scores, both, axis=1)
    batch = both.shape[1] // 2
    margin = goal[:, :batch] - goal[:, batch:]
    sign = np.sign(margin)
    missed = np.abs(margin) > sign * (scores[:, :batch] - scores[:, batch:])
    push = sign * missed * np.float32(how.ranking / batch)
    slope = np.concatenate([-push, push], axis=1)
    slope += (scores - goal) * np.float32(how.squared / batch)
    if few:
        slope = _summed(slope, both, len(inputs))
    by_score = slope[:, :, None]
    by_out = np.matmul(hidden.transpose(0, 2, 1), by_score)
    alive *= by_score
    alive *= out.transpose(0, 2, 1)
    return [
        np.matmul(gathered.swapaxes(-1, -2), alive),
        alive.sum(axis=1, keepdims=True),
        by_out,
        by_score.sum(axis=1, keepdims=True),
    ]


def _summed(slope: Weights, both: IntArray, rows: int) -> Weights:
    """(M, 2 B) of places in a batch → (M, rows) of rows, which may stand in several places."""
    members = len(both)
    place = both + rows * np.arange(members)[:, None]
    summed = np.bincount(place.ravel(), slope.ravel(), members * rows)
    return summed.reshape(members, rows).astype(np.float32)


class _AmsGrad:
    """Adam with AMSGrad (Reddi et al. 2018), and a little decay of the weights."""

    def __init__(self, parameters: Sequence[Weights]) -> None:
        self.parameters = [p.copy() for p in parameters]
        self._mean, self._square, self._largest = (
            [np.zeros_like(p) for p in parameters] for _ in range(3)
        )
        self._faded = np.array([1.0, 1.0])
        """What is left of the zeros that both averages began with."""

    def step(self, gradients: Sequence[Weights], rate: float, momentum: float) -> None:
        self._faded *= momentum, SQUARES
        ahead = np.float32(rate / (1.0 - self._faded[0]))
        scale = np.float32(1.0 / np.sqrt(1.0 - self._faded[1]))
        for p, g, mean, square, largest in zip(
            self.parameters, gradients, self._mean, self._square, self._largest, strict=True
        ):
            g = g + np.float32(DECAY) * p
            mean += np.float32(1.0 - momentum) * (g - mean)
            square += np.float32(1.0 - SQUARES) * (g * g - square)
            np.maximum(largest, square, out=largest)
            p -= ahead * mean / (np.sqrt(largest) * scale + np.float32(1e-8))


def _one_cycle(how: TrainingSchedule) -> Iterator[tuple[float, float]]:
    """Rate and momentum of each step: the rate rises for a third of them, then falls to nothing,
    the momentum the other way round (Smith and Topin 2017)."""
    rising = max(RISING * how.steps - 1.0, 1e-9)
    for step in range(how.steps):
        if step <= rising:
            share, low = step / rising, 1.0 / 25.0
        else:
            share, low = 1.0 - (step - rising) / max(how.steps - 1.0 - rising, 1e-9), 4e-6
        up = 0.5 - 0.5 * np.cos(np.pi * share)
        yield how.rate * (low + (1.0 - low) * up), 0.95 - 0.1 * up


class _PairSampler:
    """Draws rows and, for each, a partner from the same context."""

    def __init__(self, group: IntArray, masks: BoolArray, counts: FloatArray | None) -> None:
        order = [np.flatnonzero(mask)[np.argsort(group[mask], kind="stable")] for mask in masks]
        self._sizes = np.array([[len(rows)] for rows in order])
        shape = (len(order), max(len(rows) for rows in order))
        self._rows = np.zeros(shape, np.int64)
        """(M, widest) rows that a member sees, context by context."""
        self._begin, self._length = np.zeros(shape, np.int64), np.ones(shape, np.int64)
        for m, rows in enumerate(order):
            _, begin, inverse, length = np.unique(
                group[rows], return_index=True, return_inverse=True, return_counts=True
            )
            self._rows[m, : len(rows)] = rows
            self._begin[m, : len(rows)] = begin[inverse]
            self._length[m, : len(rows)] = length[inverse]
        self._member = shape[1] * np.arange(shape[0])[:, None]
        """(M, 1) where a member's rows begin in the flat arrays, which are quicker to take from."""
        alike = counts is None or bool((counts == counts[0]).all())
        self._lots = None if counts is None or alike else self._tickets(counts)
        """(M, widest + 1) what all rows before one count together; None where all count alike."""

    def _tickets(self, counts: FloatArray) -> FloatArray:
        used = np.arange(self._rows.shape[1]) < self._sizes
        each = np.where(used, counts[self._rows], 0.0)
        return np.pad(np.cumsum(each, axis=1), ((0, 0), (1, 0)))

    def draw(self, rng: np.random.Generator) -> IntArray:
        """(M, 2 BATCH) row numbers: rows, then their partners."""
        place, other = rng.random((2, len(self._rows), BATCH))
        if self._lots is not None:
            return np.stack([self._drawn(m, place[m], other[m]) for m in range(len(place))])
        place = (place * self._sizes).astype(np.int64) + self._member
        partner = self._begin.take(place) + (other * self._length.take(place)).astype(np.int64)
        places = np.concatenate([place, partner + self._member], axis=1)
        return self._rows.take(places)

    def _drawn(self, member: int, place: FloatArray, other: FloatArray) -> IntArray:
        """(2 BATCH,) row numbers of one member, by lots (BATCH,) from 0 to 1."""
        assert self._lots is not None
        lots, size = self._lots[member], int(self._sizes[member, 0])

        first = np.searchsorted(lots[1:size], place * lots[size], side="right")
        begin, length = self._begin[member, first], self._length[member, first]
        low, high = lots[begin], lots[begin + length]
        partner = np.searchsorted(lots[1:size], low + other * (high - low), side="right")
        partner = partner.clip(begin, begin + length - 1)
        return np.asarray(self._rows[member, np.concatenate([first, partner])], np.int64)
