"""Repeats of a configuration, before a predictor learns from them.

An incumbent with a hundred runs says no more about the rest of the space than one with three, and
must not crowd it out of what a model can hold. So the latest :data:`STAND_INS` runs stand for all:
they lie around where all of them lie, wild ones counting less, and as far apart as they came.
"""

from collections import defaultdict
from dataclasses import replace

import numpy as np

from tunerd.core.arrays import FloatArray
from tunerd.core.features.rows import FeatureRows

__all__ = ["CUT", "apart", "held", "location", "pooled"]

STAND_INS = 3
LATEST = 32
"""Runs that say where a configuration lies, the latest ones."""
CUT = 2.0
"""Robust standard deviations off beyond which a run counts less (Huber)."""
WILD = 10.0
"""Robust standard deviations off that a run is held at while no other says the like. Jobs a fifth
slower are seldom that far off, and the second of them is believed in any case."""
FEW = 4
"""Runs of a configuration, that one among them, below which none is held."""


def apart(scores: FloatArray) -> float:
    """Robust standard deviation of runs around where they lie."""
    return 1.4826 * _median(np.abs(scores - _median(scores)))


def _median(values: FloatArray) -> float:
    """What ``np.median`` says of finite numbers, in a tenth of the time where they are few: every
    job of a stream asks several times."""
    ordered, half = np.sort(values), len(values) // 2
    if len(values) % 2:
        return float(ordered[half])
    return float((ordered[half - 1] + ordered[half]) / 2.0)


def location(scores: FloatArray, weight: FloatArray) -> tuple[float, FloatArray]:
    """Where runs (n,) lie, and what each counts: from three on less, the farther off it is."""
    counts, mean = weight, float(weight @ scores / weight.sum())
    if len(scores) > 2 and (usual := CUT * apart(scores)) > 0:
        mean = _median(scores)
        for _ in range(3):
            counts = weight * np.minimum(1.0, usual / np.maximum(np.abs(scores - mean), usual))
            mean = float(counts @ scores / counts.sum())
    return mean, counts


def pooled(rows: FeatureRows) -> FeatureRows:
    """The rows with a score, in their order, at most :data:`STAND_INS` of one configuration in one
    context."""
    rows = rows.take(np.flatnonzero(np.isfinite(rows.score)))
    score, weight = rows.score.copy(), rows.weight.copy()
    kept = np.ones(len(rows), bool)
    for places in _runs(rows).values():
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


def held(rows: FeatureRows, recent: FeatureRows) -> tuple[FeatureRows, FeatureRows]:
    """New rows, and the window that includes them, as a model may learn them at once, before a fit
    pools them: a run that is far off all others of its configuration in the window is no farther
    off than :data:`WILD`."""
    often = {name: at for name, at in _runs(recent).items() if len(at) >= FEW}
    if not often:
        return rows, recent
    new, score, latest = _runs(rows), rows.score.copy(), recent.score.copy()
    spreads = {name: apart(recent.score[at]) for name, at in often.items()}
    usual = float(np.median(list(spreads.values())))
    for name, at in often.items():
        own, reach = recent.score[at], WILD * max(spreads[name], usual)
        latest[at] = _within(own, own, reach)
        if name in new:
            score[new[name]] = _within(score[new[name]], own, reach)
    return replace(rows, score=score), replace(recent, score=latest)


def _within(score: FloatArray, own: FloatArray, reach: float) -> FloatArray:
    """Scores (k,) of a configuration, those held that are this far off all its other runs."""
    if reach == 0.0:  # nobody knows how noisy runs are
        return score
    near = np.sort(np.abs(own[:, None] - score), axis=0)[1]  # the nearest is itself
    middle = float(np.median(own))
    return np.where(near > reach, np.clip(score, middle - reach, middle + reach), score)


def _runs(rows: FeatureRows) -> dict[tuple[str, bytes], list[int]]:
    """The places of the rows with a score, by context and configuration."""
    runs: defaultdict[tuple[str, bytes], list[int]] = defaultdict(list)
    for i, name in enumerate(rows.names):
        if np.isfinite(rows.score[i]):
            runs[name].append(i)
    return runs
