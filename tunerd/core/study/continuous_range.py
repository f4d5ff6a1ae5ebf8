"""Numbers of a range that lie between the points on which it is searched, as codes.

A configuration is kept as 32-bit codes. The codes below :data:`BETWEEN` are places among a
parameter's choices. The codes from there on stand for every other number of the range, written with
:data:`DIGITS` significant digits, or finer where the range is narrow. So ``30.250000000003`` and
``30.25`` are one value, and the same value has the same code in every space and every process.
"""

import math
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Protocol

__all__ = ["BETWEEN", "DIGITS", "ContinuousRange", "continuum"]

BETWEEN = 1 << 20
"""The first code that is no place among choices: far above the number that a parameter may have."""
DIGITS = 6
"""Significant digits of a float; what passed through 32 bits, or through ``%.6g``, keeps them."""
_FIRST, _MANTISSAS = 10 ** (DIGITS - 1), 9 * 10 ** (DIGITS - 1)
_COARSE = 1e-4
"""Share of half a range by which a value may lie beyond an end that it was rounded from."""
_LEAST = -300
"""The smallest decade that is told from 0; below it, digits of a float are lost."""
_BITS, _MOST = 24, 1 << 24
"""Bits of an integer that are kept where a range has too many integers for the codes."""
_ROOM = (1 << 31) - BETWEEN


class ContinuousRange(Protocol):
    """All numbers of a range."""

    def rounded(self, value: float) -> float | None:
        """Return the number that stands for a value; ``None`` when it is outside the range."""

    def code(self, value: float) -> int:
        """Return the code of a rounded number."""

    def value(self, code: int) -> float:
        """Return the number of a code."""


def continuum(kind: str, low: float, high: float) -> ContinuousRange:
    """Return the numbers of type ``kind`` (``int`` or ``float``) from low to high."""
    return _IntegerRange(int(low), int(high)) if kind == "int" else _FloatRange(low, high)


@dataclass(frozen=True)
class _FloatRange:
    """Floats. A number is rounded to :data:`DIGITS` significant digits, or to a millionth of the
    range's power of ten where that is finer. An end stands for what is written like it."""

    low: float
    high: float

    @cached_property
    def _decade(self) -> int:
        return (Decimal(self.high) - Decimal(self.low)).adjusted()

    @cached_property
    def _step(self) -> int:
        """Power of ten between neighbours where the range, not the number, sets the precision."""
        return self._decade - DIGITS

    @cached_property
    def _start(self) -> int:
        return math.floor(Decimal(self.low).scaleb(-self._step))

    @cached_property
    def _small(self) -> int:
        """The first code of the numbers that are small beside the range."""
        return BETWEEN + math.ceil(Decimal(self.high).scaleb(-self._step)) - self._start + 1

    def _fine(self, value: float) -> float:
        if not value:
            return 0.0
        step = min(Decimal(value).adjusted() - DIGITS + 1, self._step)
        if step < _LEAST - DIGITS:
            return 0.0
        return float(f"{round(Decimal(value).scaleb(-step))}e{step}") + 0.0

    def rounded(self, value: float) -> float | None:
        fine = self._fine(value)
        for end in (self.low, self.high):
            if fine == self._fine(end):
                return end
        if self.low < value < self.high:
            return fine
        end = self.low if value < self.low else self.high
        coarse = abs(value - end) <= (self.high / 2 - self.low / 2) * _COARSE
        return end if coarse and f"{value:.{DIGITS}g}" == f"{end:.{DIGITS}g}" else None

    def code(self, value: float) -> int:
        exact = Decimal(repr(value))
        decade = exact.adjusted() if value else _LEAST - 1
        if not value or decade >= self._decade - 1:
            place: int = round(exact.scaleb(-self._step)) - self._start
            return BETWEEN + place
        digits: int = round(abs(exact).scaleb(DIGITS - 1 - decade))
        signed = 2 * (decade - _LEAST) + (value < 0)
        code: int = self._small + signed * _MANTISSAS + digits - _FIRST
        return code

    def value(self, code: int) -> float:
        if code < self._small:
            return float(f"{code - BETWEEN + self._start}e{self._step}") + 0.0
        signed, digits = divmod(code - self._small, _MANTISSAS)
        decade, negative = divmod(signed, 2)
        number = float(f"{digits + _FIRST}e{decade + _LEAST - DIGITS + 1}")
        return -number if negative else number


@dataclass(frozen=True)
class _IntegerRange:
    """Integers, each by itself. In a range of two billion and more they are rounded to
    :data:`_BITS` bits: seven significant digits."""

    low: int
    high: int

    @cached_property
    def _each(self) -> bool:
        return self.high - self.low < _ROOM

    def rounded(self, value: float) -> int | None:
        exact = int(value)
        if not self.low <= exact <= self.high:
            return None
        if self._each:
            return exact
        shift = max(abs(exact).bit_length() - _BITS, 0)
        near = round(Decimal(exact) / (1 << shift)) << shift
        return min(max(near, self.low), self.high)

    def code(self, value: float) -> int:
        exact = int(value)
        if self._each:
            return BETWEEN + exact - self.low
        size, shift = abs(exact), 0
        while size >= _MOST:
            size, shift = size >> 1, shift + 1
        return BETWEEN + 2 * (shift * _MOST + size) + (exact < 0)

    def value(self, code: int) -> int:
        if self._each:
            return code - BETWEEN + self.low
        number, negative = divmod(code - BETWEEN, 2)
        shift, size = divmod(number, _MOST)
        return -(size << shift) if negative else size << shift
