"""Two configurations beside each other in everyday running, job by job.

A *duel* holds a challenger's jobs against those of the incumbent that ran at the same time. A
*probation* holds a new incumbent against the level that the one before had; a *doubt* asks of one
that gave way again whose fault it was. What follows from them is the introduction's business
(:mod:`.rollout`). Constant time and bounded state per job.
"""

import math
from statistics import median

from msgspec import field

from tunerd.core.evidence.sequential import counted, log_odds, raised, start
from tunerd.core.saved_state import SavedState

__all__ = ["LEAST_RUNS", "PRIOR_RUNS", "PairedTest", "PromotionGuard", "RollbackReview"]

LEAST_RUNS = 4
"""Runs before a promotion, however good they were. What is fast in half of its runs and slow in the
others shows no noise while it is lucky."""
PRIOR_RUNS = 3.0
"""Differences that the prior noise counts as."""
SLOW = 1.5
"""Standard deviations behind the incumbent at which one run is slow: of what is as fast as the
incumbent, one run in fifteen. What is often slow is not wanted, whatever it gains at other
times."""
UNSTEADY = 3.0
"""Times the usual noise at which a configuration's own runs lie so far apart that it is fast at one
time and slow at another …"""
SLOW_AT_TIMES = 0.5
"""… and standard deviations behind at which its runs are slow: those of its slow half are all."""
FALLEN = 3.0
"""Standard deviations by which a former incumbent is clearly no longer what it was."""
MOST_LOOKS = 16
"""Latest jobs that say so, at most."""


class _PendingScores(SavedState):
    """Jobs since the last comparison."""

    runs: int = 0
    total: float = 0.0

    def add(self, score: float) -> None:
        self.runs += 1
        self.total += score


class _WelfordStats(SavedState, kw_only=True):
    """A configuration's own runs, and how far they lie apart (Welford 1962)."""

    runs: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def add(self, score: float) -> None:
        self.runs += 1
        step = score - self.mean
        self.mean += step / self.runs
        self.squares += step * (score - self.mean)


class PairedTest(_WelfordStats):
    """A challenger beside the incumbent. Everything in scores."""

    since: int
    """Sequence of its first job."""
    better: list[float] = field(default_factory=start)
    """Capital of who bets that it is better than the incumbent."""
    worse: list[float] = field(default_factory=start)
    slow: float = 0.0
    """Capital of who bets that its runs are often slow."""
    weight: float = 0.0
    difference: float = 0.0
    """Mean difference to the incumbent of the same time."""
    level: float = 0.0
    """Of the incumbent at those times."""
    cost: float = 0.0
    """Sum over its jobs of what the incumbent would have been ahead; negative when it won."""
    own: _PendingScores = field(default_factory=_PendingScores)
    other: _PendingScores = field(default_factory=_PendingScores)

    def ran(self, score: float) -> None:
        """One job of the challenger."""
        self.add(score)
        self.own.add(score)

    def compare(self, noise: float) -> None:
        """Settle the jobs since the last comparison, once both sides have some."""
        own, other = self.own, self.other
        if not (own.runs and other.runs):
            return
        difference = own.total / own.runs - other.total / other.runs
        steadiness = self.noise(noise)
        z = difference / math.sqrt(steadiness**2 / own.runs + noise**2 / other.runs)
        self.better = raised(self.better, z)
        self.worse = raised(self.worse, -z)
        usual = noise * math.sqrt(1.0 / own.runs + 1.0 / other.runs)
        self.slow = counted(self.slow, happened=difference < -SLOW * usual)
        weight = own.runs * other.runs / (own.runs + other.runs)
        self.weight += weight
        self.difference += (difference - self.difference) * weight / self.weight
        self.level += (other.total / other.runs - self.level) * weight / self.weight
        self.cost -= own.runs * difference
        self.own, self.other = _PendingScores(), _PendingScores()

    def noise(self, usual: float) -> float:
        """Standard deviation of one of its runs: never less than what is usual here, more for a
        configuration that is fast at one time and slow at another."""
        own = (PRIOR_RUNS * usual**2 + self.squares) / (PRIOR_RUNS + max(self.runs - 1, 0))
        return max(usual, math.sqrt(own))


class PromotionGuard(_WelfordStats):
    """A new incumbent beside the level of the one before."""

    former: str
    level: float
    """What the former one gave at the time of the duel."""
    noise: float
    """Of one run, at that time: what is fast at one time and slow at another must not hide behind
    its own noise."""
    gain: float = 0.0
    """What the promotion added to :attr:`.UpliftTracker.ahead`."""
    worse: list[float] = field(default_factory=start)
    slow: float = 0.0
    """Capital of who bets that it is often slow: half of the runs 30 % slower are found out by a
    few of them, long before the mean tells."""

    def ran(self, score: float) -> None:
        """One job of the new incumbent."""
        behind = (self.level - score) / self.noise
        slow = SLOW if self.steady else SLOW_AT_TIMES
        self.worse = raised(self.worse, behind)
        self.slow = counted(self.slow, happened=behind > slow)
        self.add(score)

    @property
    def steady(self) -> bool:
        """Whether its runs are as much alike as usual."""
        spread = math.sqrt(self.squares / max(self.runs - 1, 1))
        return self.runs < LEAST_RUNS or spread <= UNSTEADY * self.noise

    @property
    def doubt(self) -> float:
        """Logarithm of the capital against it."""
        return max(log_odds(self.worse), self.slow)


class RollbackReview(SavedState):
    """A new incumbent that gave way again, while the former one shows whose fault it was: where
    that is slow now too, the cluster slowed down, and the new one goes on."""

    candidate_id: str
    level: float
    """What the former one gave at the time of the duel."""
    noise: float
    gain: float
    scores: list[float] = field(default_factory=list)
    """Of the former one's latest jobs since it is back, :data:`MOST_LOOKS` at most."""

    def ran(self, score: float) -> None:
        """One job of the former one."""
        self.scores = [*self.scores, score][-MOST_LOOKS:]

    @property
    def level_now(self) -> float:
        """What the former one gives now: one straggler among its few jobs does not tell."""
        return median(self.scores)

    @property
    def unfounded(self) -> bool:
        """Whether the former one is no longer as fast as it was."""
        fallen = FALLEN * self.noise / math.sqrt(len(self.scores))
        return self.level_now < self.level - fallen
