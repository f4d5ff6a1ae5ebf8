"""Shares as every text prints them, so that no two lines round one figure differently."""

import math

__all__ = ["gain_text", "percent"]

WHOLE = 10.0
"""Shares from which on percents are whole …"""
MOST = 1_000.0
"""… and beyond which nobody wants to know them."""


def percent(value: float | None, *, sign: bool = True, digits: int = 1) -> str:
    """0.0423 as +4.2%; whole percent from 1,000 on."""
    if value is None or not math.isfinite(value):
        return "–"
    if abs(value) >= WHOLE:
        digits = 0
    if abs(value) > MOST:
        return f"{'below −' if value < 0 else 'above +' if sign else 'above '}{MOST:.0%}"
    text = f"{value:+z.{digits}%}" if sign else f"{value:z.{digits}%}"  # z: nothing is −0.0%
    return text.replace("-", "−")


def gain_text(median: float | None, low: float | None) -> str:
    """A predicted gain and its low end, which is told only where it is a gain."""
    if median is None or not median > 0 or low is None:
        return percent(median)
    return f"{percent(median)} ({f'at least {percent(low)}' if low > 0 else 'perhaps none'})"
