"""The values of a range, exactly as a person would write them.

``0.77 + 6 * 0.01`` is 0.8300000000000001 in binary; here it is 0.83, because ranges are computed
in decimal from the text of their ends.
"""

import math
from decimal import Decimal
from itertools import pairwise
from typing import Literal

__all__ = ["MAX_CHOICES", "float_range", "int_range", "stepped"]

MAX_CHOICES = 32_768
"""Values that one parameter may have. A range of integers above it is thinned; a power of two
above the largest clusters, so that a parallel degree is never thinned."""

CONTINUOUS_POINTS = 33
"""Points of a range of floats: finer than what jobs' noise can tell apart."""

THINNED_POINTS = 257

Scale = Literal["linear", "log"]


def stepped(low: int | float, high: int | float, step: int | float) -> list[Decimal]:
    """Return low, low + step, … up to high, exactly. At most ``MAX_CHOICES`` + 1 of them."""
    start, end, width = (Decimal(str(number)) for number in (low, high, step))
    count = min(int((end - start) / width), MAX_CHOICES)
    return [start + place * width for place in range(count + 1)]


def int_range(low: int, high: int, scale: Scale) -> list[int]:
    """Return every integer, or ``THINNED_POINTS`` spread over the scale when they are too many."""
    if high - low < MAX_CHOICES:
        return list(range(low, high + 1))
    points = (round(point) for point in _spread(low, high, scale, THINNED_POINTS))
    return sorted({low, high, *(min(max(point, low), high) for point in points)})


def float_range(low: float, high: float, scale: Scale) -> list[float]:
    """Return points spread over the scale, six digits each where that tells them apart."""
    points = _spread(low, high, scale, CONTINUOUS_POINTS)
    short = [low, *(float(f"{point:.6g}") for point in points[1:-1]), high]
    if all(left < right for left, right in pairwise(short)):
        return short
    return sorted({low, *points[1:-1], high})


def _spread(low: float, high: float, scale: Scale, count: int) -> list[float]:
    steps = [place / (count - 1) for place in range(count)]
    if scale == "log":
        start, width = math.log(low), math.log(high) - math.log(low)
        points = [math.exp(start + width * step) for step in steps]
    else:
        points = [low * (1 - step) + high * step for step in steps]
    return [min(max(point, low), high) for point in points]
