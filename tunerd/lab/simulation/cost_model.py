"""What a cost model is: noise-free physics of many configurations in one context, as arrays."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from tunerd.core.arrays import Array, BoolArray, FloatArray
from tunerd.core.observation import Scalar

__all__ = ["Columns", "CostEstimate", "CostModel", "number"]

Columns = Mapping[str, Array]
"""Parameter -> its values, (n,), or (n, repeat) for a ``repeat`` parameter."""


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """What n configurations would measure without noise; every array is (n,)."""

    metrics: Mapping[str, FloatArray]
    """What a run would report if it ran: the objective, ``step_time_s``, ``peak_memory_gib`` and
    ``peak_memory_share`` (of the GPU's memory) at least."""
    out_of_memory: BoolArray
    failed: BoolArray
    """Cannot start at all, e.g. fp8 on hardware without it."""

    @property
    def runs(self) -> BoolArray:
        return ~(self.out_of_memory | self.failed)


class CostModel(Protocol):
    """Computes n configurations in one context. Raises ``ValueError`` naming what is missing."""

    def __call__(self, context: Mapping[str, Scalar], columns: Columns) -> CostEstimate: ...


def number(context: Mapping[str, Scalar], name: str) -> float:
    """A positive number of the context; raises ``ValueError`` that says what is missing."""
    value = context.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise ValueError(f"context.{name}: a positive number is needed, not {value!r}")
    return float(value)
