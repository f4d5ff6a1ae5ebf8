"""Small pieces of SVG that fit any width: x in per cent of the picture, y in pixels.

So text and marks keep their size on a telephone and on a wide screen, without a script. Colours
come from the page's style by class. Everything that is put in is escaped.
"""

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from tunerd.events.printable import printable_value

__all__ = ["PlotAxis", "linear_axis", "log_axis", "picture", "tag"]

MARGIN = 0.04
"""Share of an axis that is left free at each end."""
MOST_TICKS = 6
"""Of a logarithmic axis."""


def tag(name: str, *children: str | Markup, **attributes: object) -> Markup:
    """An element. ``class_`` is class, ``stroke_width`` is stroke-width; None leaves one out."""
    attribute_text = Markup("").join(
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), _text(value))
        for key, value in attributes.items()
        if value is not None
    )
    inside = Markup("").join(escape(printable_value(child)) for child in children)
    return Markup("<{0}{1}>{2}</{0}>").format(name, attribute_text, inside)


def picture(name: str, title: str, description: str, height: float, *marks: Markup) -> Markup:
    """A whole picture, with what it shows for those who do not see it. ``name`` is its id."""
    return tag(
        "svg",
        tag("title", title, id=f"{name}-title"),
        tag("desc", description, id=f"{name}-desc"),
        *marks,
        class_="plot",
        role="img",
        width="100%",
        height=height,
        aria_labelledby=f"{name}-title {name}-desc",
    )


@dataclass(frozen=True)
class PlotAxis:
    """A scale: where a value lies, from 0 to 1, and where ticks are."""

    place: Callable[[float], float]
    ticks: tuple[float, ...]


def linear_axis(low: float, high: float, count: int = 5, *, margin: float = MARGIN) -> PlotAxis:
    """An axis over at least these values."""
    if not high > low:
        pad = abs(low) * 0.05 or 1.0
        low, high = low - pad, high + pad
    room = margin * (high - low)
    start, end = low - room, high + room
    step = _nice((high - low) / max(count - 1, 1))
    first, last = math.ceil(start / step), math.floor(end / step)
    ticks = tuple(round(k * step, 12) for k in range(first, last + 1))
    return PlotAxis(lambda value: (value - start) / (end - start), ticks)


def log_axis(low: float, high: float) -> PlotAxis:
    """The same for positive values, equal ratios equally far apart; linear ticks below a factor
    of three."""
    start, end = math.log(low), math.log(high)
    if end - start < 1e-9:
        start, end = start - 0.05, end + 0.05
    room = MARGIN * (end - start)
    start, end = start - room, end + room
    if high < 3 * low:
        ticks = linear_axis(low, high, 4).ticks
    else:
        last = min(math.ceil(end / math.log(10)), sys.float_info.max_10_exp)
        decades = range(math.floor(start / math.log(10)), last + 1)
        steps = (1,) if len(decades) > 4 else (1, 2, 5)
        ticks = tuple(k * 10.0**d for d in decades for k in steps)
    inside = tuple(t for t in ticks if t > 0 and start <= math.log(t) <= end)
    return PlotAxis(lambda value: (math.log(value) - start) / (end - start), _thin(inside))


def _thin(ticks: Sequence[float]) -> tuple[float, ...]:
    return tuple(ticks[:: math.ceil(len(ticks) / MOST_TICKS)] if len(ticks) > MOST_TICKS else ticks)


def _nice(step: float) -> float:
    power = 10.0 ** math.floor(math.log10(step))
    return next(k for k in (1, 2, 2.5, 5, 10) if k * power >= step * 0.999) * power


def _text(value: object) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
