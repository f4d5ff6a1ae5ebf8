"""What a configuration is worth trying for, and which of them to try side by side.

The acquisition is the expected improvement over the best known here, times the probability to run,
in logarithms, so that it tells far-off configurations apart too (Ament et al., arXiv 2310.20708).
A batch is chosen one by one: each choice is believed to come out as predicted before the next (the
*kriging believer*; Ginsbourger et al., 2010), which leaves means where they are, takes away what is
uncertain together with it, and may raise the best.

A batch also takes predictions at their word: its first choice is the best predicted, whatever may
be hoped of others. Where most of what is believed was learned in other contexts, every other choice
is: spreads are wide there until some jobs ran, and hopes many.
"""

from collections.abc import Callable

import numpy as np
from scipy.special import erfcx, log_ndtr

from tunerd.core.arrays import FloatArray

__all__ = ["LEAST_FEASIBLE", "chosen", "likely_first", "log_expected_improvement", "worth_trying"]

LEAST_FEASIBLE = 1e-3
FIRST_CARE = 2.0
"""How often the probability to run counts where nothing is known to run here: the best of what is
predicted is what the probability was guessed too high of, and a first batch that fails teaches
little."""
HALF_LOG_2PI = 0.5 * float(np.log(2.0 * np.pi))
LIKELY = 0.5
"""Probability to run from which a choice counts as something to improve on."""
HOPELESS = 100.0
"""What is worth less than minus this keeps its order, but hardly counts as worth less any more: of
numbers that a float has, the last comes to -7e4 …"""
UNLIKELY = 1e5
"""… so that less than minus this is what most likely does not run."""
SLOPE = 1e3
"""By how much what surely fails is worth less than what is sure to run, among the unlikely."""


def log_expected_improvement(mean: FloatArray, uncertainty: FloatArray, best: float) -> FloatArray:
    """(n,) logarithm of E[max(score - ``best``, 0)], scores normal; exact far below too.

    ``mean`` and ``uncertainty`` (standard deviation) are (n,), all in score units.
    """
    sd = np.maximum(uncertainty, 1e-12)
    z = (mean - best) / sd
    # log(φ(z) + zΦ(z)) = log φ(z) + log(1 + zΦ(z)/φ(z)), where Φ(z)/φ(z) = √(π/2) erfcx(-z/√2)
    low = np.minimum(z, -1.0)
    ratio = 1.0 + low * np.sqrt(0.5 * np.pi) * erfcx(-low / np.sqrt(2.0))
    far = -0.5 * low**2 - HALF_LOG_2PI + np.log(np.maximum(ratio, 1e-300))
    very_far = -0.5 * low**2 - HALF_LOG_2PI - 2.0 * np.log(-low)  # where the ratio loses digits
    near = np.exp(-0.5 * z**2 - HALF_LOG_2PI) + z * np.exp(log_ndtr(z))
    tail = np.where(low < -1e4, very_far, far)
    improvement = np.where(z > -1.0, np.log(np.maximum(near, 1e-300)), tail)
    return np.asarray(improvement + np.log(sd), np.float64)


def worth_trying(
    mean: FloatArray, uncertainty: FloatArray, feasible: FloatArray, best: float | None
) -> FloatArray:
    """(n,) acquisition of configurations; ``best`` is the best known here, None for nothing: then
    there is nothing to improve on, and what is predicted best is worth most.

    All in units of which 1 is a relative difference of 1.
    """
    runs = np.log(np.clip(feasible, LEAST_FEASIBLE, 1.0))
    if best is None:
        return np.asarray(mean + FIRST_CARE * runs, np.float64)
    return np.asarray(log_expected_improvement(mean, uncertainty, best) + runs, np.float64)


def likely_first(worth: FloatArray, feasible: FloatArray, least: float) -> FloatArray:
    """(n,) ``worth`` such that all of which the probability to run is below ``least`` comes after
    all else, however little is hoped of that.

    What most likely fails is not run, but its order shows a search where things run.
    """
    far = -HOPELESS * (1.0 + np.log(np.maximum(worth / -HOPELESS, 1.0)))
    worth = np.where(worth < -HOPELESS, far, worth)
    sunk = np.minimum(worth, 0.0) - UNLIKELY - SLOPE * (1.0 - feasible)
    return np.asarray(np.where(feasible < least, sunk, worth), np.float64)


def chosen(
    mean: FloatArray,
    uncertainty: FloatArray,
    feasible: FloatArray,
    best: float | None,
    correlation: Callable[[int], FloatArray],
    noise: FloatArray,
    count: int,
    bonus: FloatArray | float = 0.0,
    *,
    least: float = 0.0,
    elsewhere: bool = False,
) -> list[int]:
    """Which of n configurations to try side by side, ``count`` at most, in order.

    ``correlation`` says of one of them how what is uncertain of all goes together with what is
    uncertain of it, (n,) in [-1, 1]; ``noise`` (n,) is the variance of a run; ``bonus`` (n,) is
    added to the acquisition; what runs with a probability below ``least`` is taken last;
    ``elsewhere`` says that most of what is believed was learned in other contexts.
    """
    variance = uncertainty**2
    believed: list[FloatArray] = []
    picks: list[int] = []
    usable = np.ones(len(mean), bool)
    predicted = _best_predicted(mean, uncertainty, feasible)
    step = 2 if elsewhere else count
    while len(picks) < min(count, len(mean)):
        left = np.sqrt(np.maximum(variance, 0.0))
        at_its_word = best is not None and len(picks) % step == 0
        value = predicted if at_its_word else worth_trying(mean, left, feasible, best)
        value = likely_first(value, feasible, least) + bonus
        value = np.where(np.isnan(value), -np.inf, value)[usable]  # argmax would take NaN first
        pick = int(np.flatnonzero(usable)[np.argmax(value)])
        picks.append(pick)
        usable[pick] = False
        if feasible[pick] >= LIKELY or best is None:
            best = float(mean[pick]) if best is None else max(best, float(mean[pick]))
        together = correlation(pick) * uncertainty * uncertainty[pick]
        for belief in believed:
            together = together - belief[pick] * belief
        firmly = max(float(together[pick] + noise[pick]), 1e-18)
        believed.append(together / np.sqrt(firmly))
        variance = variance - believed[-1] ** 2
    return picks


def _best_predicted(mean: FloatArray, uncertainty: FloatArray, feasible: FloatArray) -> FloatArray:
    """(n,) mean, and the probability to run in units of how unsure means are."""
    runs = np.log(np.clip(feasible, LEAST_FEASIBLE, 1.0))
    return np.asarray(mean + float(np.median(uncertainty)) * runs, np.float64)
