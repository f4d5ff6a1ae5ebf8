"""A service under load: what a configuration costs, and how long requests wait.

Replicas take requests in batches, several batches at a time. A batch takes a fixed time and some
for each request. What runs side by side on one replica slows each other down. Requests wait for
their batch to fill and for a free place, the longer the fuller the service is. The constants are
plausible and not measured. The shape is that of queues: calm at first, then steep.
"""

from collections.abc import Mapping

import numpy as np

from tunerd.core.arrays import FloatArray
from tunerd.core.observation import Value

__all__ = ["STUDY", "cost_of", "load_of", "p99_ms"]

STUDY = """
schema = 1
name = "service"
mode = "publish"
explore_share = 0.05
objective = { metric = "replicas_paid", goal = "minimize", unit = "replicas", scale = "log" }
predictor = { name = "boosted_trees" }

[context]
rps = { type = "float", scale = "log", signal = "rps", over = "15m" }

[guards]
p99_ms = { max = 250 }

[parameters]
replicas = { type = "int", values = [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 18, 20, 24] }
batch = { type = "int", values = [1, 2, 4, 8, 16], scale = "log" }
concurrency = { type = "int", values = [1, 2, 4], scale = "log" }

[[baseline]]
config = { replicas = 24, batch = 8, concurrency = 4 }
"""
FIXED_MS, EACH_MS = 18.0, 4.0
"""A batch takes this long, and this much longer for each request in it."""
SLOWED = 0.35
"""Share by which each further batch on a replica slows the others."""
MOST_MS = 10_000.0
"""Where a service cannot keep up, requests are given up after so long."""
SLOTS_A_DAY = 96


def load_of(days: int, rng: np.random.Generator, *, structure: bool = True) -> FloatArray:
    """Requests a second in each quarter of an hour, (days · 96,): with a day, a week and bursts, or
    wandering without any of these."""
    slots = np.arange(days * SLOTS_A_DAY)
    wander = np.zeros(len(slots))
    for i in range(1, len(slots)):
        wander[i] = 0.97 * wander[i - 1] + rng.normal(0.0, 0.02 if structure else 0.04)
    if not structure:
        return np.asarray(800.0 * np.exp(wander))
    hour = slots % SLOTS_A_DAY / 4.0
    day = slots // SLOTS_A_DAY % 7
    morning = 1.0 / (1.0 + np.exp(-(hour - 8.0) / 0.6))
    evening = 1.0 / (1.0 + np.exp((hour - 20.0) / 0.9))
    shape = 0.15 + morning * evening * (1.0 + 0.25 * np.sin((hour - 8.0) / 12.0 * np.pi))
    shape *= np.where(day >= 5, 0.45, 1.0)
    factor = np.ones(len(slots))
    for begin in np.flatnonzero(rng.random(len(slots)) < 0.5 / SLOTS_A_DAY):
        end = begin + int(rng.integers(1, 5))
        factor[begin:end] = rng.uniform(1.4, 2.0)
    return np.asarray(1350.0 * shape * factor * np.exp(wander))


def cost_of(config: Mapping[str, Value]) -> float:
    """Replicas that are paid for."""
    return float(_number(config, "replicas"))


def p99_ms(config: Mapping[str, Value], rps: float) -> float:
    """99th percentile of what requests wait, without noise, in ms."""
    replicas, batch = _number(config, "replicas"), _number(config, "batch")
    side_by_side = _number(config, "concurrency")
    took = (FIXED_MS + EACH_MS * batch) * (1.0 + SLOWED * (side_by_side - 1.0))
    takes = 1000.0 * batch * side_by_side / took * replicas
    used = rps / takes
    fills = 1000.0 * (batch - 1.0) / max(rps / replicas, 1e-9)
    if used >= 1.0:
        return MOST_MS
    waits = took / side_by_side * np.log(100.0) * used**2 / (1.0 - used)
    return float(min(took + min(fills, 50.0) + waits, MOST_MS))


def _number(config: Mapping[str, Value], name: str) -> float:
    value = config[name]
    assert isinstance(value, int | float)
    return float(value)
