"""What the jobs of one context said of each configuration that was tried there, as points for a
process (:mod:`.local`).

Repeats are pooled: a configuration is one point, the firmer the more and the longer its runs were.
When jobs stop being what is expected of them, all to the same side, what was learned before counts
for little: the context has changed.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from tunerd.core.arrays import FloatArray, IntArray

__all__ = ["LocalHistory", "PooledRuns", "familiar"]

MOST = 200
"""Configurations kept, those that were tried last: a process costs their number cubed."""
FIRMEST = 10.0
"""Runs that a point counts as, at most."""
NEWEST = 0.1
"""Share that a further run of today has in a point at least: what was measured long ago fades."""
LATEST = 6
"""Jobs whose errors tell whether the context has changed …"""
CHANGED = 2.5
"""… if their mean is so many standard deviations off, each cut at :data:`WILDEST`."""
WILDEST = 4.0
CHEAP = 60
"""Jobs up to which the process chooses anew after each …"""
GROWTH = 1.15
"""… and by how much they grow until it does so later."""
FADED = 0.01
"""What older points count for after a change."""


FAMILIAR = 3.0
"""Configurations tried with which a context is half known."""


def familiar(points: IntArray) -> FloatArray:
    """(n,) how well contexts are known, 0 to 1, by how many configurations were tried in each."""
    return np.asarray(points / (points + FAMILIAR), np.float64)


@dataclass(slots=True)
class PooledRuns:
    """A configuration that was tried."""

    score: float
    """Mean of its runs, the latest counting most."""
    runs: float
    """Runs that it counts as."""
    told: float
    """Score that other contexts predict for it; NaN where nobody says anything."""


@dataclass
class LocalHistory:
    """One context's points."""

    points: OrderedDict[bytes, PooledRuns] = field(default_factory=OrderedDict)
    """Row of X → what is known of it; the last tried last."""
    jobs: int = 0
    """That had a score."""
    fitted: int = 0
    """How many of them the fit of the study's predictor has seen."""
    errors: deque[float] = field(default_factory=lambda: deque(maxlen=LATEST))
    """Of the latest jobs, in standard deviations of what was expected."""
    theta: tuple[float, ...] | None = None
    """What the process over them has chosen; None when it has to choose anew."""
    chosen_at: int = 0
    """Jobs that it was chosen by."""

    @property
    def share(self) -> float:
        """Share of its jobs that the fit of the study's predictor has seen."""
        return min(self.fitted / self.jobs, 1.0) if self.jobs else 0.0

    def add(
        self, x: FloatArray, score: float, weight: float, count: float, told: float = np.nan
    ) -> None:
        """Take in a job that ran ``x`` (F,), of which other contexts say ``told``. ``count`` is
        what is left of it, 1 for one of today."""
        self.jobs += 1
        name = x.tobytes()
        point = self.points.pop(name, None) or PooledRuns(score, 0.0, told)
        share = max(weight / (point.runs + weight), count * NEWEST) if point.runs else 1.0
        point.score += share * (score - point.score)
        point.runs = min(point.runs + weight, FIRMEST)
        self.points[name] = point
        if len(self.points) > MOST:
            self.points.popitem(last=False)

    def keep(self, theta: FloatArray) -> None:
        """Note what the process chose, before further jobs come."""
        if self.theta is None:
            self.theta, self.chosen_at = tuple(theta.tolist()), self.jobs
        if self.jobs < CHEAP or self.jobs >= GROWTH * self.chosen_at:
            self.theta = None

    def expect(self, errors: Iterable[float]) -> None:
        """Compare jobs that come next with what was expected of them."""
        for error in errors:
            self.errors.append(max(-WILDEST, min(WILDEST, error)))
            if len(self.errors) == LATEST and abs(sum(self.errors)) > CHANGED * LATEST:
                self._fade()

    def _fade(self) -> None:
        keep = set(list(self.points)[-LATEST:])
        for name, point in self.points.items():
            if name not in keep:
                point.runs *= FADED
        self.fitted = 0
        self.errors.clear()

    def arrays(self, width: int) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """(n, ``width``) rows, (n,) scores, (n,) weights and (n,) of what other contexts say."""
        X = np.frombuffer(b"".join(self.points)).reshape(len(self.points), width)
        triples = [(point.score, point.runs, point.told) for point in self.points.values()]
        score, weight, expected = np.array(triples).reshape(-1, 3).T
        return X, score, weight, expected

    def dump(self) -> dict[str, Any]:
        """All but the points, as JSON values."""
        return {
            "jobs": self.jobs,
            "fitted": self.fitted,
            "errors": list(self.errors),
            "theta": self.theta and list(self.theta),
            "chosen_at": self.chosen_at,
        }

    @classmethod
    def load(cls, state: Mapping[str, Any], X: FloatArray, values: FloatArray) -> Self:
        """Build from what :meth:`dump` and :meth:`arrays` gave; ``values`` is (n, 3)."""
        points = OrderedDict(
            (x.tobytes(), PooledRuns(*value)) for x, value in zip(X, values.tolist(), strict=True)
        )
        theta = state["theta"]
        return cls(
            points,
            state["jobs"],
            state["fitted"],
            deque(state["errors"], maxlen=LATEST),
            theta and tuple(theta),
            state["chosen_at"],
        )
