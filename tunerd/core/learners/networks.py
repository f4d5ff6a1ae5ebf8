"""An ensemble of small networks trained to rank, as one batched computation.

CubicML (arXiv 2409.04585), A.1.1: one hidden layer, dropout, AMSGrad, a margin ranking loss, and an
ensemble of identical networks that differ by their seeds. Here the members stand in a leading axis
M of every array, so that a step of all of them is two batched products; pairs are drawn within a
context, because only there does a higher score mean a better configuration; and the margin of a
pair is the difference that was measured, so that what is learned has the objective's scale.

torch trains; predicting needs numpy only.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
import numpy.typing as npt

from tunerd.core.arrays import BoolArray, FloatArray, IntArray

if TYPE_CHECKING:
    import torch

__all__ = ["Networks", "Schedule"]

HIDDEN = 64
"""Units of the hidden layer; 512 are four times slower and rank the same on a few hundred rows."""
DROPOUT = 0.03
BATCH = 256
"""Rows of a step and member; each with a partner from its context."""
DECAY = 1e-4
LEVEL_WEIGHT = 0.3
"""Weight of the squared error beside the ranking loss: it pins down what no pair does."""

Weights = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Schedule:
    """How long to train, and from which random numbers."""

    steps: int
    seed: int
    rate: float


@dataclass(frozen=True)
class Networks:
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
    def fresh(cls, members: int, inputs: int, seed: int) -> Self:
        """Untrained networks (He initialisation)."""
        rng = np.random.default_rng(seed)
        into = rng.normal(0.0, np.sqrt(2.0 / max(inputs, 1)), (members, inputs, HIDDEN))
        out = rng.normal(0.0, np.sqrt(1.0 / HIDDEN), (members, HIDDEN, 1))
        return cls(
            into.astype(np.float32),
            np.zeros((members, 1, HIDDEN), np.float32),
            out.astype(np.float32),
            np.zeros((members, 1, 1), np.float32),
        )

    def predict(self, Z: FloatArray) -> FloatArray:
        """(n, D) → (n, M)."""
        hidden = np.maximum(Z.astype(np.float32) @ self.into + self.bias, 0.0)
        return np.asarray((hidden @ self.out + self.shift)[:, :, 0].T, np.float64)

    def trained(
        self, Z: FloatArray, y: FloatArray, group: IntArray, masks: BoolArray, how: Schedule
    ) -> "Networks":
        """Return the networks after some more steps.

        ``Z`` (n, D) inputs, ``y`` (n,) targets of about unit spread, ``group`` (n,) number of each
        row's context, ``masks`` (M, n) which rows each member may see; every member sees some.
        """
        import torch

        torch.set_num_threads(1)  # products this small are faster so, and their sums reproducible
        draws = torch.Generator().manual_seed(how.seed)
        parameters = [
            torch.from_numpy(w.copy()).requires_grad_()
            for w in (self.into, self.bias, self.out, self.shift)
        ]
        optimizer = torch.optim.Adam(parameters, lr=how.rate, weight_decay=DECAY, amsgrad=True)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, max_lr=how.rate, total_steps=max(how.steps, 2)
        )
        inputs = torch.from_numpy(Z.astype(np.float32))
        targets = torch.from_numpy(y.astype(np.float32))
        pairs = _Pairs(group, masks)
        for _ in range(how.steps):
            first, second = pairs.draw(draws)
            both = torch.cat([first, second], dim=1)
            scores = _forward(parameters, inputs[both], draws)
            optimizer.zero_grad(set_to_none=True)
            _loss(scores, targets[both]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
        return Networks(*(p.detach().numpy().copy() for p in parameters))

    def dump(self) -> bytes:
        """Weights in the format of safetensors."""
        from safetensors.numpy import save

        return save({"into": self.into, "bias": self.bias, "out": self.out, "shift": self.shift})

    @classmethod
    def load(cls, blob: bytes) -> Self:
        """Build from what :meth:`dump` gave; its caller has checked that nothing is damaged."""
        from safetensors.numpy import load

        weights: Mapping[str, Weights] = load(blob)
        return cls(weights["into"], weights["bias"], weights["out"], weights["shift"])


def _forward(
    parameters: "list[torch.Tensor]", inputs: "torch.Tensor", draws: "torch.Generator"
) -> "torch.Tensor":
    """(M, B, D) → (M, B), with dropout."""
    import torch

    into, bias, out, shift = parameters
    hidden = torch.relu(torch.baddbmm(bias, inputs, into))
    kept = torch.rand(hidden.shape, generator=draws) >= DROPOUT
    hidden = hidden * kept / (1.0 - DROPOUT)
    return torch.baddbmm(shift, hidden, out)[:, :, 0]


def _loss(scores: "torch.Tensor", targets: "torch.Tensor") -> "torch.Tensor":
    """Margin ranking loss of rows and their partners, the second half of the batch, and a little
    squared error. ``scores`` and ``targets`` (M, 2 B); summed over members, which share nothing."""
    import torch

    first, second = scores.chunk(2, dim=1)
    better, worse = targets.chunk(2, dim=1)
    margin = better - worse
    ranking = torch.relu(margin.abs() - margin.sign() * (first - second))
    squared = (scores - targets) ** 2
    return (ranking.mean(dim=1) + LEVEL_WEIGHT * squared.mean(dim=1)).sum()


class _Pairs:
    """Draws rows and, for each, a partner from the same context."""

    def __init__(self, group: IntArray, masks: BoolArray) -> None:
        import torch

        order = [np.flatnonzero(mask)[np.argsort(group[mask], kind="stable")] for mask in masks]
        self._sizes = torch.tensor([[len(rows)] for rows in order])
        widest = max(len(rows) for rows in order)
        self._rows = torch.zeros((len(order), widest), dtype=torch.int64)
        """(M, widest) rows that a member sees, context by context."""
        self._begin = torch.zeros_like(self._rows)
        self._length = torch.ones_like(self._rows)
        for m, rows in enumerate(order):
            _, begin, inverse, length = np.unique(
                group[rows], return_index=True, return_inverse=True, return_counts=True
            )
            self._rows[m, : len(rows)] = torch.from_numpy(rows)
            self._begin[m, : len(rows)] = torch.from_numpy(begin[inverse])
            self._length[m, : len(rows)] = torch.from_numpy(length[inverse])

    def draw(self, draws: "torch.Generator") -> "tuple[torch.Tensor, torch.Tensor]":
        """Two (M, BATCH) arrays of row numbers."""
        import torch

        shape = (len(self._rows), BATCH)
        place = (torch.rand(shape, generator=draws) * self._sizes).long()
        begin = self._begin.gather(1, place)
        length = self._length.gather(1, place)
        partner = begin + (torch.rand(shape, generator=draws) * length).long()
        return self._rows.gather(1, place), self._rows.gather(1, partner)
