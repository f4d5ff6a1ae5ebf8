"""What was tried in one context and whether it ran: evidence for configurations near it.

Bounded, and in the order of the jobs: the state is a pure function of the outcomes added.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tunerd.core.arrays import FloatArray

__all__ = ["Outcomes", "Tried"]

MAX_CONFIGURATIONS = 200
"""Configurations kept per context, those with the latest jobs."""
MEMORY = 0.9
"""What an older outcome of a configuration still counts beside the next one, so that a
configuration which stopped running (or started to) is noticed after about ten jobs."""
NEAR = 0.7
"""Length over which outcomes speak for their neighbours, in units of ``FeatureMap.coordinates``:
half of what two random configurations are apart."""
ITS_OWN = 0.25
"""Variance that a configuration has to itself, beside 1 that it shares with its neighbours: however
often one ran, it says so much of them and no more."""
ONE_JOB = 1.0 + ITS_OWN
"""Variance of what one job says: alone it moves its own configuration half the way."""
BESIDE = 0.3
"""Length within which neighbours that run speak for a failure of unknown cause."""
NEIGHBOURS = (0.3, 1.0)
"""Successes and trials that a weak failure's neighbourhood is taken to have had at first: alone,
one failure of unknown cause takes little from a configuration, and a second takes much."""

Point = NDArray[np.float32]


@dataclass(slots=True)
class Outcomes:
    """How the jobs of one configuration went. Firm sums fade by :data:`MEMORY` with each job."""

    yes: float = 0.0
    no: float = 0.0
    weak: float = 0.0
    """Failures of unknown cause. Repetition makes them believable, so these do not fade by age."""
    expected: float = 0.5
    """Probability to run that the classifier gave when it last saw this configuration."""


class Tried:
    """Outcomes of one context's configurations, by their coordinates."""

    def __init__(self) -> None:
        self.outcomes: OrderedDict[bytes, Outcomes] = OrderedDict()
        """Coordinates as float32 bytes → outcomes, latest last."""
        self._cache: tuple[FloatArray, FloatArray] | None = None

    def add(self, point: bytes, ran: bool, firm: bool) -> None:
        """Add one job's outcome; a weak failure is ``ran=False, firm=False``."""
        outcomes = self.outcomes.pop(point, None) or Outcomes()
        outcomes.yes *= MEMORY
        outcomes.no *= MEMORY
        if ran:
            outcomes.yes += 1.0
            # It does run: earlier failures of unknown cause were more likely not its own.
            outcomes.weak *= 0.5
        elif firm:
            outcomes.no += 1.0
        else:
            outcomes.weak += 1.0
        self.outcomes[point] = outcomes
        if len(self.outcomes) > MAX_CONFIGURATIONS:
            self.outcomes.popitem(last=False)
        self._cache = None

    def expect(self, point: bytes, probability: float) -> None:
        """Note what the classifier expects of a configuration that was tried."""
        outcomes = self.outcomes.get(point)
        if outcomes is not None:
            outcomes.expected = probability
            self._cache = None

    def believed(self, point: bytes) -> float:
        """How firmly one weak failure of this configuration says no, 0 to 1: 1 − 2⁻ᵏ after k of
        them, times the share of its neighbours that run. Of one that is not kept any more, nor
        are its neighbours, as of a first one alone."""
        if point not in self.outcomes:
            return 0.5 * NEIGHBOURS[0] / NEIGHBOURS[1]
        place = list(self.outcomes).index(point)
        return float(self._weak(self._sums(), np.array([place]))[0])

    def correct(self, points: FloatArray, prior: FloatArray) -> FloatArray:
        """Correct (n,) prior probabilities by the outcomes near (n, C) points.

        A Gaussian process over what the classifier did not expect, ran − P₀ᵢ: what it explains
        already is not counted twice, nor what several neighbours say alike. An average over
        neighbours would let the failures all around drown the few that ran.
        """
        where, pull = self._pulls()
        similar, same = _similarity(points, where, NEAR)
        corrected: FloatArray = prior + (similar + ITS_OWN * same) @ pull
        return np.clip(corrected, 0.0, 1.0)

    def _sums(self) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        where = np.array([np.frombuffer(p, np.float32) for p in self.outcomes], np.float64)
        sums = np.array([(o.yes, o.no, o.weak) for o in self.outcomes.values()])
        return where, sums[:, 0], sums[:, 1], sums[:, 2]

    def _pulls(self) -> tuple[FloatArray, FloatArray]:
        """(m, C) points, (m,) how much each moves what is like it."""
        if self._cache is None:
            sums = self._sums()
            where, yes, no, weak = sums
            failed = np.flatnonzero(weak)
            if len(failed):
                no = no.copy()
                no[failed] += weak[failed] * self._weak(sums, failed)
            mass = np.maximum(yes + no, 1e-6)
            expected = np.array([o.expected for o in self.outcomes.values()])
            K, _ = _similarity(where, where, NEAR)
            K[np.diag_indices(len(K))] += ITS_OWN + ONE_JOB / mass
            self._cache = where, np.linalg.solve(K, yes / mass - expected)
        return self._cache

    @staticmethod
    def _weak(sums: Sequence[FloatArray], places: NDArray[np.intp]) -> FloatArray:
        where, yes, no, weak = sums
        similar, same = _similarity(where[places], where, BESIDE)
        firm = yes + no
        weights = np.where(same, 0.0, similar * np.minimum(firm, 1.0))
        ran = yes / np.maximum(firm, 1e-12)
        share = (weights @ ran + NEIGHBOURS[0]) / (weights.sum(axis=1) + NEIGHBOURS[1])
        believed: FloatArray = (1.0 - 0.5 ** weak[places]) * share
        return believed


def _similarity(
    a: FloatArray, b: FloatArray, length: float
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Matérn-5/2 of the distances between (n, C) and (m, C), and which pairs are one point."""
    squares = (a * a).sum(axis=1)[:, None] + (b * b).sum(axis=1) - 2.0 * (a @ b.T)
    same = squares < 1e-9
    reach = np.sqrt(5.0 * np.maximum(squares, 0.0)) / length
    similar: FloatArray = (1.0 + reach + reach * reach / 3.0) * np.exp(-reach)
    return np.where(same, 1.0, similar), same
