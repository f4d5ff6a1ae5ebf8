"""What was tried in one context and whether it ran: evidence for configurations near it.

Bounded, and in the order of the jobs: the state is a pure function of the outcomes added.
"""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import sposv
from scipy.special import betaln, expit, softmax

from tunerd.core.arrays import Array, FloatArray
from tunerd.core.estimators.matern import matern, squares
from tunerd.core.feasibility.log_odds import log_odds

__all__ = ["CHANCE", "ConfigOutcomes", "ContextOutcomes", "share_of"]

MAX_CONFIGURATIONS = 200
"""Configurations kept per context, those with the latest jobs."""
MEMORY = 0.9
"""What an older outcome of a configuration still counts beside the next one, so that a
configuration which stopped running (or started to) is noticed after about ten jobs."""
NEAR = 0.85
"""Length over which outcomes speak for their neighbours, in units of ``FeatureMap.coordinates``:
six tenths of what two random configurations are apart."""
UNEXPLAINED = 8.0
"""Variance of log odds that neighbours have in common, around the share that runs where there is
no classifier: one failure brings a configuration that was expected to run from .95 to .4. With half
of it closed loops where little runs find later what does …"""
EXPLAINED = 4.0
"""… and around what a classifier expects, which explains much of it already …"""
ELSEWHERE = 2.0
"""… beside what a whole context has in common: a classifier may be right of other contexts and off
in this one."""
ITS_OWN = 1.0
"""Variance that a configuration has to itself: however often one ran, it says so much of its
neighbours and no more."""
STEPS = 30
FAR = 4.0
"""Log odds that one step of Newton's goes at most: beyond, it would not come back."""
CLOSE = 0.1
"""… and at least: what the next one would add is its square, which moves no probability by .001."""
EVERYTHING = (14.25, 0.75)
"""Successes and failures seen beforehand of a space in which as good as everything runs: .95, above
any sensible ``min_feasible``, so that a new study or context is not held up by knowing nothing …"""
ANYTHING = (0.5, 0.5)
"""… and of one in which any share may."""
HARD = 0.001
"""Probability, before any job, of the latter. It takes over after about five failures at once, and
the former's fifteen jobs are forgotten: two of fifteen that ran are then .16 and not .5."""
CHANCE = 0.25
"""Share of jobs that fail whatever they run: more than clusters see on quiet days, so that one
failure of unknown cause takes little where most runs, and a second takes much."""
LEAST_LUCK = 1e-9
"""Nothing is put down to bad luck with less, so that what failed all night is forgiven in a day."""

SAME = 1e-9
"""Squared distance below which two configurations are one."""

Singles = NDArray[np.float32]


@dataclass(slots=True)
class ConfigOutcomes:
    """How the jobs of one configuration went. Firm sums fade by :data:`MEMORY` with each job."""

    yes: float = 0.0
    no: float = 0.0
    weak: float = 0.0
    """Failures of unknown cause. Repetition makes them believable, so these do not fade by age."""
    luck: float = 1.0
    """How likely these are by bad luck alone."""
    expected: float | None = None
    """Probability to run that was expected when this configuration was last seen; None while the
    share that runs is all that is."""


class ContextOutcomes:
    """Outcomes of one context's configurations, by their coordinates."""

    def __init__(self) -> None:
        self.outcomes: OrderedDict[bytes, ConfigOutcomes] = OrderedDict()
        """Coordinates as float32 bytes → outcomes, latest last."""
        self._cache: tuple[bool, FloatArray, FloatArray, FloatArray] | None = None
        """Whether a classifier made them, (m,) expected log odds, (m, C) points, (m,) how much each
        moves what is like it."""

    def add(self, point: bytes, ran: bool, firm: bool, chance: float = CHANCE) -> None:
        """Add one job's outcome; a failure of unknown cause is ``ran=False, firm=False``, and
        ``chance`` how many jobs fail whatever they run."""
        outcomes = self.outcomes.pop(point, None) or ConfigOutcomes()
        outcomes.yes *= MEMORY
        outcomes.no *= MEMORY
        if ran:
            outcomes.yes += 1.0
            # It does run: earlier failures of unknown cause were more likely not its own.
            outcomes.weak *= 0.5
            outcomes.luck **= 0.5
        elif firm:
            outcomes.no += 1.0
        else:
            outcomes.weak += 1.0
            outcomes.luck = max(outcomes.luck * chance, LEAST_LUCK)
        self.outcomes[point] = outcomes
        if len(self.outcomes) > MAX_CONFIGURATIONS:
            self.outcomes.popitem(last=False)
        self._cache = None

    def expect(self, point: bytes, probability: float) -> None:
        """Note what the classifier expects of a configuration that was tried."""
        outcomes = self.outcomes.get(point)
        if outcomes is not None:
            outcomes.expected = probability

    def believed(self, points: Iterable[bytes], share: float) -> FloatArray:
        """How firmly the failures of unknown cause of n configurations say no, (n,) 0 to 1. Of one
        that is not kept any more ``share`` says how many run."""
        gone = ConfigOutcomes(luck=CHANCE, expected=share)
        return self._blamed(self.outcomes.get(point, gone) for point in points)

    def _blamed(self, tried: Iterable[ConfigOutcomes]) -> FloatArray:
        """How probably configurations are themselves why they failed for no known cause, rather
        than bad luck, which fails those as well that run: Bayes' rule around what is expected of
        each, or the share of all others here that ran."""
        ran = sum(o.yes > 0.0 for o in self.outcomes.values())
        failed = len(self.outcomes) - ran
        others = share_of(ran, max(failed - 1, 0)), share_of(max(ran - 1, 0), failed)
        blamed = []
        for o in tried:
            runs = others[o.yes > 0.0] if o.expected is None else o.expected
            blamed.append((1.0 - runs) / (1.0 - runs + runs * o.luck))
        return np.array(blamed)

    def correct(
        self, points: FloatArray, prior: FloatArray, share: float, *, classified: bool
    ) -> FloatArray:
        """Correct (n,) prior probabilities by the outcomes near (n, C) points. ``share`` is that of
        all configurations which runs; ``classified`` says whether a classifier made the prior.

        A Gaussian process in log odds around what the classifier expects (Rasmussen and Williams
        2006, algorithms 3.1 and 3.2, the mode): what it explains already is not counted twice, nor
        what several neighbours say alike. An average over neighbours would let the failures all
        around drown the few that ran, and a correction of probabilities would shuffle what is
        hopeless.
        """
        where, pull = self._pulls(share, classified)
        apart = squares(points, where)
        itself = ITS_OWN * ((apart < SAME) @ pull)
        moved = itself + _alike(apart, classified) @ pull
        corrected: FloatArray = expit(log_odds(prior) + moved)
        return corrected

    def _pulls(self, share: float, classified: bool) -> tuple[FloatArray, FloatArray]:
        """(m, C) points, (m,) how much each moves what is like it."""
        promised = [share if o.expected is None else o.expected for o in self.outcomes.values()]
        expected = log_odds(np.array(promised))
        known = self._cache
        if known is None or known[0] != classified or not np.array_equal(known[1], expected):
            tried = self.outcomes.values()
            points = np.frombuffer(b"".join(self.outcomes), np.float32).reshape(len(tried), -1)
            yes, no, weak = np.array([(o.yes, o.no, o.weak) for o in tried]).T
            if weak.any():
                no += weak * self._blamed(tried)
            K = _alike(squares(points, points), classified)
            K.flat[:: len(K) + 1] += ITS_OWN
            where, pulls = points.astype(np.float64), _mode(K, expected, yes, no)
            self._cache = known = classified, expected, where, pulls
        return known[2:]


def share_of(ran: float, failed: float) -> float:
    """Share of a space that runs, by how many jobs did and did not."""
    kinds = np.array([EVERYTHING, ANYTHING])
    counts = kinds + np.array([ran, failed])
    likely = betaln(*counts.T) - betaln(*kinds.T) + np.log([1.0 - HARD, HARD])
    return float(softmax(likely) @ (counts[:, 0] / counts.sum(axis=1)))


def _alike(apart: Array, classified: bool) -> Array:
    """What log odds have in common at (n, m) squared distances, which are overwritten."""
    apart /= NEAR**2
    similar = matern(apart)
    similar *= EXPLAINED if classified else UNEXPLAINED
    similar += ELSEWHERE if classified else 0.0
    return similar


def _mode(K: Singles, expected: Array, yes: Array, no: Array) -> FloatArray:
    """(m,) pulls, by which the most probable log odds are ``expected`` + K pulls.

    In single precision, which is plenty beside :data:`CLOSE` and takes half as long."""
    expected, yes, no = (values.astype(np.float32) for values in (expected, yes, no))
    mass, moved = yes + no, np.zeros(len(K), np.float32)
    pulls = moved
    for _ in range(STEPS):
        p = expit(expected + moved)
        root = np.sqrt(mass * p * (1.0 - p))
        towards = root**2 * moved + yes - mass * p
        inner = K * root
        inner *= root[:, None]
        inner.flat[:: len(K) + 1] += 1.0
        new = towards - root * sposv(inner.T, root * (K @ towards), overwrite_a=True)[1]
        step = K @ new - moved
        most = float(np.abs(step).max())
        part = min(1.0, FAR / max(most, 1e-12))
        pulls, moved = pulls + part * (new - pulls), moved + part * step
        if most < CLOSE:
            break
    return pulls.astype(np.float64)
