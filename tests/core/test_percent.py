"""Gains in words: no low end that is a loss, and one way of rounding."""

import math

import pytest

from tunerd.core.percent import gain_text


@pytest.mark.parametrize(
    ("median", "low", "text"),
    [
        (0.206, 0.135, "+20.6% (at least +13.5%)"),
        (0.021, -0.45, "+2.1% (perhaps none)"),
        (-0.139, -0.377, "−13.9%"),
        (0.0, -0.1, "+0.0%"),
        (-12.87, -62.98, "−1287%"),
        (math.nan, 0.1, "–"),
        (None, None, "–"),
    ],
)
def test_a_gain(median: float | None, low: float | None, text: str) -> None:
    assert gain_text(median, low) == text
