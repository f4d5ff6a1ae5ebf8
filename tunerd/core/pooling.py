"""Repeats of a configuration, before a predictor learns from them.

An incumbent with a hundred runs says no more about the rest of the space than one with three, and
must not crowd it out of what a model can hold. So the latest :data:`STAND_INS` runs stand for all:
they lie around where all of them lie, wild ones counting less, and as far apart as they came.
"""

from collections import defaultdict
from dataclasses import replace

import numpy as np

from tunerd.core.arrays import FloatArray
from tunerd.core.features.rows import Rows

__all__ = ["CUT", "apart", "location", "pooled"]

STAND_INS = 3
LATEST = 32
"""Runs that say where a configuration lies, the latest ones."""
CUT = 2.0
"""Robust standard deviations off beyond which a run counts less (Huber)."""


def apart(scores: FloatArray) -> float:
    """Robust standard deviation of runs around where they lie."""
    return 1.4826 * float(np.median(np.abs(scores - np.median(scores))))


def location(scores: FloatArray, weight: FloatArray) -> tuple[float, FloatArray]:
    """Where runs (n,) lie, and what each counts: from three on less, the farther off it is."""
    counts, mean = weight, float(weight @ scores / weight.sum())
    if len(scores) > 2 and (usual := CUT * apart(scores)) > 0:
        mean = float(np.median(scores))
        for _ in range(3):
            counts = weight * np.minimum(1.0, usual / np.maximum(np.abs(scores - mean), usual))
            mean = float(counts @ scores / counts.sum())
    return mean, counts


def pooled(rows: Rows) -> Rows:
    """The rows with a score, in their order, at most :data:`STAND_INS` of one configuration in one
    context."""
    rows = rows.take(np.flatnonzero(np.isfinite(rows.score)))
    runs: defaultdict[tuple[str, bytes], list[int]] = defaultdict(list)
    for i, name in enumerate(rows.names):
        runs[name].append(i)
    score, weight = rows.score.copy(), rows.weight.copy()
    kept = np.ones(len(rows), bool)
    for places in runs.values():
        if len(places) < 3:
            continue
        latest = np.array(places[-LATEST:])
        mean, counts = location(score[latest], weight[latest])
        last, their = latest[-STAND_INS:], counts[-STAND_INS:]
        reach = CUT * apart(score[latest])
        off = np.clip(score[last] - mean, -reach, reach)
        score[last] = mean + off - float(their @ off / their.sum())
        weight[last] = their
        kept[places[:-STAND_INS]] = False
    return replace(rows, score=score, weight=weight).take(np.flatnonzero(kept))
