"""Shapley values: how a difference between two outcomes is divided among what changed.

Of n changes made together, each is worth what it adds on average over all orders in which they
could have been made, one after the other (Shapley 1953). The shares sum to the whole difference.
"""

import math
from collections.abc import Callable

import numpy as np

from tunerd.core.arrays import BoolArray, FloatArray

__all__ = ["EXACT_UP_TO", "shapley"]

EXACT_UP_TO = 10
"""Changes up to which all 2^n combinations are asked for."""
ORDERS = 64
"""Orders that are drawn beyond that; each is also gone through backwards."""


def shapley(
    outcomes: Callable[[BoolArray], FloatArray], players: int, seed: int, most: int = 1 << 14
) -> tuple[FloatArray, bool]:
    """Divide the difference between all changes made and none, (players, m), and whether exactly.

    Args:
        outcomes: (rows, players) which changes are made → (rows, m) outcomes, m of them at once.
        players: how many changes.
        seed: of the orders that are drawn where combinations are too many; the same one gives the
            same result.
        most: combinations that may be asked for.
    """
    if players <= EXACT_UP_TO and 1 << players <= most:
        return _exact(outcomes, players), True
    orders = max(min(ORDERS, most // (2 * (players + 1))), 1)
    return _sampled(outcomes, players, np.random.default_rng(seed), orders), False


def _exact(outcomes: Callable[[BoolArray], FloatArray], players: int) -> FloatArray:
    numbers = np.arange(1 << players)
    made = (numbers[:, None] >> np.arange(players) & 1).astype(bool)
    values = outcomes(made)
    sizes = made.sum(axis=1)
    # In this share of the orders exactly a set of this size comes before one given change.
    weights = np.array(
        [
            math.factorial(size) * math.factorial(players - size - 1) / math.factorial(players)
            for size in range(players)
        ]
    )
    shares = []
    for player in range(players):
        without = numbers[~made[:, player]]
        steps = values[without | 1 << player] - values[without]
        shares.append(weights[sizes[without]] @ steps)
    return np.stack(shares) if shares else np.zeros((0, values.shape[1]))


def _sampled(
    outcomes: Callable[[BoolArray], FloatArray],
    players: int,
    rng: np.random.Generator,
    orders: int,
) -> FloatArray:
    drawn = [rng.permutation(players) for _ in range(orders)]
    paths = [path for order in drawn for path in (order, order[::-1])]
    # (paths, players + 1, players): one more change made at each stop.
    places = np.argsort(np.stack(paths), axis=1)
    made = places[:, None, :] < np.arange(players + 1)[None, :, None]
    values = outcomes(made.reshape(-1, players)).reshape(len(paths), players + 1, -1)
    steps = np.diff(values, axis=1)  # in the order of the path
    shares: FloatArray = np.take_along_axis(steps, places[:, :, None], axis=1).mean(axis=0)
    return shares
