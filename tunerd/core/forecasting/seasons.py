"""Which seasons a signal has: a day and a week where it is long enough, and one of its own."""

import numpy as np

from tunerd.core.arrays import FloatArray

__all__ = ["DAY_S", "WEEK_S", "find_own_season"]

DAY_S = 86_400
WEEK_S = 7 * DAY_S
LEAST_CORRELATION = 0.3
"""Autocorrelation from which a period counts as a season."""
LEAST_PERIOD = 3


def find_own_season(values: FloatArray, known: tuple[int, ...]) -> int | None:
    """The period, in slots, that repeats most clearly; None where none does.

    Args:
        values: (n,) without gaps, oldest first.
        known: periods in slots that are looked at anyway. A multiple or a whole part of one of
            them is no news.
    """
    n = len(values)
    if n < 8 * LEAST_PERIOD:
        return None
    position = np.arange(n, dtype=np.float64)
    centred = values - np.polyval(np.polyfit(position, values, 1), position)
    if not np.any(centred):
        return None
    power = np.abs(np.fft.rfft(centred, 2 * n)) ** 2
    correlation = np.fft.irfft(power)[: n // 3]
    correlation = correlation / max(correlation[0], 1e-300) * n / (n - np.arange(n // 3))
    peak = (correlation[1:-1] > correlation[:-2]) & (correlation[1:-1] >= correlation[2:])
    for lag in (np.flatnonzero(peak) + 1)[np.argsort(-correlation[1:-1][peak], kind="stable")]:
        if correlation[lag] < LEAST_CORRELATION:
            return None
        if lag >= LEAST_PERIOD and not any(_related(int(lag), period) for period in known):
            return int(lag)
    return None


def _related(lag: int, period: int) -> bool:
    """Whether one is about a multiple of the other."""
    long, short = max(lag, period), min(lag, period)
    times = round(long / short)
    return abs(long / times - short) <= max(1.0, 0.05 * short)
