"""How a new configuration gets into a context, and how it gets out again.

Jobs of an everyday context mostly run the incumbent. Everything else that runs there is a
*challenger*: its jobs are held against those of the incumbent that ran at the same time, so that
whatever slows the whole cluster cancels. A test that may be looked at after every job
(:mod:`.sequential`) promotes it to incumbent or withdraws it. A new incumbent is on *probation*: it
is held against the level of the one before, which comes back when it does not keep up. Each ends
with a verdict, which says what the introduction cost and won.

Where the incumbent itself has hardly been run, a campaign profiles the context, or most jobs are
there to find something, nothing is held against it: there the best estimate is the incumbent.
Constant time and bounded state per job.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

from msgspec import field

from tunerd.core.evidence.config_stats import PRIOR_NOISE, TINY
from tunerd.core.evidence.decision_inputs import MeasuredConfig
from tunerd.core.evidence.paired_tests import (
    LEAST_RUNS,
    PRIOR_RUNS,
    PairedTest,
    PromotionGuard,
    RollbackReview,
)
from tunerd.core.evidence.sequential import log_odds
from tunerd.core.evidence.uplift import PROBATION, UpliftTracker
from tunerd.core.saved_state import FrozenState, SavedState

__all__ = [
    "ESTABLISHED",
    "REPEATS",
    "ChallengerEstimate",
    "Rollout",
    "RolloutResult",
    "SlowedIncumbent",
    "elect",
]

REPEATS = 2
"""Runs that an elected incumbent has at least, where any configuration has as many."""
ESTABLISHED = 3
"""Runs after which an incumbent has to be beaten in a test. Before, the best estimate counts."""
PROMOTE = math.log(20)
"""One in twenty configurations that are no better may win, however long they run."""
WITHDRAW = math.log(5)
"""A configuration that is no worse and is withdrawn costs a chance, and no job."""
HOPELESS = 0.1
"""Probability to be better below which a challenger is given up."""
MOST_RUNS = 30
"""Runs after which a challenger is given up whose difference nobody can tell."""
LAST_LOOK = 2.0
"""… unless its estimate is by then so many standard deviations better."""
LEAST_AGAIN = 2
"""Runs before a promotion of what was measured before a change …"""
CLEARLY = 2.0
"""… and standard deviations that it must be ahead."""
HEALED = 0.2
"""Probability that what a change made slow is as it was, from which on it is run again."""
SECOND_LOOK = 3
"""Jobs of a former incumbent that is back, after which it is clear whether it is as fast as it
was."""
MOST_DUELS = 32
"""Challengers of a context that are tested at a time."""
MOST_CLOSED = 128
MOST_VERDICTS = 32
MOST_FORMERS = 3
LEVEL = 0.1
"""Weight of the latest job in the incumbent's level."""
NOISE_MEMORY = 0.98
"""Weight of the noise that was seen one job ago; about 50 jobs count."""
OUTLIER = 4.0
"""Standard deviations at which a difference says no more about the usual noise."""

_NORMAL = NormalDist()


class RolloutResult(FrozenState, frozen=True):
    """How an introduction ended."""

    candidate_id: str
    outcome: Literal["promoted", "withdrawn", "given_up", "failed", "returned", "slowed"]
    """Promoted to incumbent; withdrawn because it is worse; given up because nobody can tell;
    failed to run; returned: promoted before, did not keep up, and the former one is back; slowed:
    the incumbent, which a change made slow, gave way to a measured alternative."""
    sequence: int
    at: str
    """When the job ended that decided it, ISO 8601; empty where nobody knows."""
    runs: int
    gain: float
    """Difference to the incumbent as measured, in scores."""
    cost: float
    """Sum over its jobs of what the incumbent would have been ahead, in scores."""


@dataclass(frozen=True, slots=True)
class ChallengerEstimate:
    """What is believed of a challenger's difference to the incumbent, in scores."""

    candidate_id: str
    mean: float
    sd: float
    runs: int

    @property
    def better(self) -> float:
        """Probability to be better than the incumbent."""
        return _NORMAL.cdf(self.mean / max(self.sd, TINY))

    @property
    def worth(self) -> float:
        """Expected improvement over the incumbent."""
        sd = max(self.sd, TINY)
        z = self.mean / sd
        return self.mean * _NORMAL.cdf(z) + sd * _NORMAL.pdf(z)


class SlowedIncumbent(FrozenState, frozen=True):
    """An incumbent that a change made slow."""

    candidate_id: str
    level: float
    """What it gave before, in scores."""
    since: int
    """Sequence of the first job after that change."""


class Rollout(SavedState):
    """What is being introduced in one context."""

    incumbent: str | None = None
    """Candidate id; None before anything was measured."""
    established: bool = False
    """Whether it has to be beaten in a test."""
    scale: float = 1.0
    """What a relative noise of 1 is in scores."""
    last: float | None = None
    """Score of the incumbent's latest job."""
    level: float | None = None
    """Score that the incumbent lately gave."""
    uplift: UpliftTracker = field(default_factory=UpliftTracker)
    """By how much the incumbent is better than the first one here."""
    noise_squares: float = 0.0
    noise_weight: float = 0.0
    duels: dict[str, PairedTest] = field(default_factory=dict)
    closed: dict[str, int] = field(default_factory=dict)
    """Withdrawn or given up: candidate id → sequence."""
    probation: PromotionGuard | None = None
    doubt: RollbackReview | None = None
    verdicts: list[RolloutResult] = field(default_factory=list)
    """The latest ones."""
    formers: list[str] = field(default_factory=list)
    """Established incumbents that gave way to what is better: the first one here, and the latest
    ones."""
    recheck: list[str] = field(default_factory=list)
    """What has to be run again after a drift, because it was the incumbent once."""
    fallen: list[SlowedIncumbent] = field(default_factory=list)
    """Incumbents that gave way because a change made them slow, the latest ones: it may be over
    one day."""

    @property
    def fallen_ids(self) -> set[str]:
        """Candidate ids of :attr:`fallen`."""
        return {rival.candidate_id for rival in self.fallen}

    # -- learning ---------------------------------------------------------------------------

    @property
    def noise(self) -> float:
        """Standard deviation of one run, from differences of the incumbent's successive jobs: a
        cluster that got slower as a whole makes no noise."""
        prior = (PRIOR_NOISE * self.scale) ** 2
        total = PRIOR_RUNS * prior + self.noise_squares
        return math.sqrt(total / (PRIOR_RUNS + self.noise_weight))

    def see(self, candidate_id: str, score: float | None, sequence: int) -> None:
        """Take in one live job; ``score`` is None when it has none or broke a guard."""
        if self.incumbent is None:
            return
        if not self.established:
            if candidate_id == self.incumbent and score is not None:
                self.level = score if self.level is None else (self.level + score) / 2
            return
        if candidate_id != self.incumbent:
            if candidate_id not in self.closed:
                self._challenger_ran(candidate_id, score, sequence)
        elif score is not None:
            self._incumbent_ran(score)

    def _challenger_ran(self, candidate_id: str, score: float | None, sequence: int) -> None:
        duel = self.duels.get(candidate_id)
        if duel is None:
            duel = self.duels[candidate_id] = PairedTest(sequence)
            if len(self.duels) > MOST_DUELS:
                self._make_room(candidate_id, sequence)
        if score is not None:
            duel.ran(score)
            duel.compare(self.noise)

    def _make_room(self, newest: str, sequence: int) -> None:
        """Drop the duel whose jobs come most seldom. Not the newest: where many had been run a few
        times, nothing new could ever be tested."""
        rates = {
            cid: duel.runs / (sequence - duel.since + 1)
            for cid, duel in self.duels.items()
            if cid != newest
        }
        del self.duels[min(rates, key=lambda cid: (rates[cid], cid))]

    def _incumbent_ran(self, score: float) -> None:
        noise = self.noise
        for duel in self.duels.values():
            duel.other.add(score)
            duel.compare(noise)
        if self.probation is not None:
            self.probation.ran(score)
        if self.doubt is not None:
            self.doubt.ran(score)
        if self.last is not None:
            step = min(abs(score - self.last), OUTLIER * math.sqrt(2) * noise)
            self.noise_squares = NOISE_MEMORY * self.noise_squares + step**2 / 2
            self.noise_weight = NOISE_MEMORY * self.noise_weight + 1.0
        self.last = score
        self.level = score if self.level is None else self.level + LEVEL * (score - self.level)

    def reopen(self, sequence: int, at: str = "", since: int | None = None) -> None:
        """Begin anew: what was found out may no longer hold (drift). Who was the incumbent before
        is run again first: what replaced it may have suffered more. Tests that began with the job
        of sequence ``since``, or later, saw nothing else and go on.

        What looks like a drift may be a new incumbent that does not keep up. Where its probation
        leans that way, the former one is back, and the new one has to prove itself again; where it
        does not, the probation goes on.
        """
        if since is None:
            since = sequence + 1
        self.duels = {cid: duel for cid, duel in self.duels.items() if duel.since >= since}
        self.closed.clear()
        doubted = None
        if self.probation is not None and self.probation.doubt > 0.0:
            doubted = self.incumbent
            self._return((sequence, at))
        self.level = None
        earlier = [cid for cid in (doubted, *self.formers) if cid not in (None, self.incumbent)]
        self.recheck = [cid for cid in dict.fromkeys(earlier) if cid is not None]

    # -- settling ---------------------------------------------------------------------------

    def settle(
        self,
        rivals: Sequence[MeasuredConfig],
        min_feasible: float,
        *,
        profiling: bool,
        sequence: int,
        at: str = "",
        scale: float = 1.0,
        barred: Sequence[MeasuredConfig] = (),
        changed: int | None = None,
    ) -> str | None:
        """Draw the consequences of what was seen; says who is the incumbent.

        ``rivals`` are all configurations that may be run and were measured, ``barred`` those that
        only a limit rules out; ``changed`` is the first sequence after the latest change of speed
        here, None where there was none. With ``profiling`` a campaign is under way, or most jobs
        are there to find something: the best estimate is the incumbent.
        """
        self.scale = scale
        known = {r.candidate_id: r for r in rivals if r.trial.run_share >= min_feasible}
        now = (sequence, at)
        self._drop_failed({r.candidate_id for r in rivals}, known, now)
        current = known.get(self.incumbent or "")
        measured = [*rivals, *barred]
        self.uplift.estimate_again(self.incumbent, current, measured, profiling=profiling)
        self.recheck = [cid for cid in self.recheck if cid not in self.duels]
        weak = current is not None and not self.established and current.trial.runs < ESTABLISHED
        if profiling or current is None or weak:
            best = elect(list(known.values()))
            if best is None or best.candidate_id != self.incumbent:
                ahead = self.uplift.estimated(best, self.incumbent, measured)
                if current is not None and self.established:
                    self._remember(current.candidate_id)
                self._install(best.candidate_id if best else None, ahead)
                self.level = best.estimate.mean if best else None
            self.established = best is not None and best.trial.runs >= ESTABLISHED
            return self.incumbent
        self.established = True
        self._look_back(rivals, current, sequence)
        self._end_probation(known, now)
        self._end_doubt(known, now)
        self._promote(rivals, known, now, changed)
        self._withdraw(rivals, now)
        return self.incumbent

    def challenges(self, rivals: Sequence[MeasuredConfig]) -> list[ChallengerEstimate]:
        """What is open, the most promising first."""
        by_id = {r.candidate_id: r for r in rivals}
        current = by_id.get(self.incumbent or "")
        if current is None:
            return []
        challengers = [
            self._challenge(rival, current)
            for rival in rivals
            if rival is not current and rival.candidate_id not in self.closed
        ]
        return sorted(
            challengers, key=lambda challenger: (-challenger.worth, challenger.candidate_id)
        )

    def _challenge(self, rival: MeasuredConfig, current: MeasuredConfig) -> ChallengerEstimate:
        """A duel's difference, drawn towards the expected one; of what had no duel, the difference
        of the estimates, which are drawn already."""
        duel = self.duels.get(rival.candidate_id)
        # Soon after a change the incumbent's runs since say more of it than the few of the duel.
        again = rival.trial.former is not None and rival.trial.runs <= ESTABLISHED
        if duel is None or not duel.weight or again:
            return ChallengerEstimate(
                rival.candidate_id,
                rival.estimate.mean - current.estimate.mean,
                math.hypot(rival.estimate.sd, current.estimate.sd),
                rival.trial.runs,
            )
        mean, precision = 0.0, 1.0 / (PRIOR_NOISE * self.scale) ** 2
        if rival.expected is not None and current.expected is not None:
            mean = rival.expected.mean - current.expected.mean
            sd = math.hypot(rival.expected.sd, current.expected.sd)
            precision = 1.0 / max(sd, 1e-3 * self.scale) ** 2
        own = duel.weight / duel.noise(self.noise) ** 2
        total = precision + own
        difference = (precision * mean + own * duel.difference) / total
        return ChallengerEstimate(rival.candidate_id, difference, math.sqrt(1.0 / total), duel.runs)

    def _install(self, candidate_id: str | None, ahead: float) -> None:
        """Put an incumbent into its place, so far ahead unless it has been there before."""
        self.uplift.pass_on(self.incumbent, candidate_id, ahead)
        self.incumbent = candidate_id
        self.duels.clear()
        self.probation = self.doubt = None
        self.last = None
        self.level = None

    def _drop_failed(
        self, measured: set[str], known: Mapping[str, MeasuredConfig], now: tuple[int, str]
    ) -> None:
        for cid in [cid for cid in self.duels if cid in measured and cid not in known]:
            self._close(cid, "failed", now)

    def _look_back(
        self, rivals: Sequence[MeasuredConfig], current: MeasuredConfig, sequence: int
    ) -> None:
        """Have incumbents run again that a change made slow and that may have healed.

        What has lasted for a while lasts as long again in half of all cases (Lindy's law): of a
        change that was ``a`` jobs old when a configuration ran last, and is ``b`` jobs old now,
        the probability to be over is 1 - a/b. So the times between two looks grow by the same
        factor each, and a cluster that stays as it is pays less and less for looking.
        """
        by_id = {rival.candidate_id: rival for rival in rivals}
        self.fallen = [rival for rival in self.fallen if rival.candidate_id != self.incumbent]
        for fallen in self.fallen:
            cid = fallen.candidate_id
            rival = by_id.get(cid)
            if rival is None or cid in self.duels or fallen.level <= current.estimate.mean:
                continue
            last, age = rival.trial.last_sequence - fallen.since, sequence - fallen.since
            if 1.0 - max(last, 0) / max(age, 1) >= HEALED:
                self.closed.pop(cid, None)
                self.recheck = list(dict.fromkeys([*self.recheck, cid]))

    def _end_probation(self, known: Mapping[str, MeasuredConfig], now: tuple[int, str]) -> None:
        probation, failing = self.probation, self.incumbent
        if probation is None or failing is None:
            return
        if probation.former in known and probation.doubt >= PROMOTE:
            self._return(now)
            self.closed[failing] = now[0]
        elif probation.runs >= PROBATION or probation.former not in known:
            self.probation = None

    def _return(self, now: tuple[int, str]) -> None:
        """Put the former incumbent back into its place."""
        probation, failing = self.probation, self.incumbent
        assert probation is not None
        assert failing is not None
        self.incumbent = None  # it did not keep up: its lead is not one to remember
        self._install(probation.former, self.uplift.ahead - probation.gain)
        self.level = probation.level
        self.doubt = RollbackReview(failing, probation.level, probation.noise, probation.gain)
        gain = probation.mean - probation.level
        self._say(
            RolloutResult(failing, "returned", *now, probation.runs, gain, -probation.runs * gain)
        )

    def _end_doubt(self, known: Mapping[str, MeasuredConfig], now: tuple[int, str]) -> None:
        """Let who gave way go on where the former one is as slow by now."""
        doubt, former = self.doubt, self.incumbent
        if doubt is None or former is None or len(doubt.scores) < SECOND_LOOK:
            return
        self.doubt = None
        if doubt.candidate_id not in known or not doubt.unfounded:
            return
        self._install(doubt.candidate_id, self.uplift.ahead + doubt.gain)
        self.closed.pop(doubt.candidate_id, None)
        self.level = doubt.level_now + doubt.gain
        self.probation = PromotionGuard(former, doubt.level_now, doubt.noise, gain=doubt.gain)
        runs = len(doubt.scores)
        self._say(RolloutResult(doubt.candidate_id, "promoted", *now, runs, doubt.gain, 0.0))

    def _promote(
        self,
        rivals: Sequence[MeasuredConfig],
        known: Mapping[str, MeasuredConfig],
        now: tuple[int, str],
        changed: int | None,
    ) -> None:
        challenges = self.challenges(rivals)
        won = [
            (log_odds(duel.better), cid)
            for cid, duel in self.duels.items()
            if cid in known and duel.runs >= LEAST_RUNS and log_odds(duel.better) >= PROMOTE
        ]
        if not won:
            # What is known from before a change is as steady as it was: fewer runs are enough, but
            # not where it did not keep up as the incumbent.
            unsteady = {
                verdict.candidate_id for verdict in self.verdicts if verdict.outcome == "returned"
            }
            won = [
                (c.mean / c.sd, c.candidate_id)
                for c in challenges
                if c.candidate_id in self.duels
                and c.candidate_id in known
                and c.candidate_id not in unsteady
                and known[c.candidate_id].trial.former is not None
                and self.duels[c.candidate_id].runs >= LEAST_AGAIN
                and c.mean > CLEARLY * c.sd
            ]
        if not won:
            # Who has had all its runs is looked at once more, and by its estimate.
            won = [
                (c.mean / c.sd, c.candidate_id)
                for c in challenges
                if c.candidate_id in self.duels
                and self.duels[c.candidate_id].runs >= MOST_RUNS
                and c.mean > LAST_LOOK * c.sd
            ]
        if not won:
            return
        _, winner = max(won)
        former = self.incumbent
        assert former is not None
        self._remember(former)
        fell = known[former].trial.former if former in known else None
        if changed is not None and fell is not None and fell[0] > known[winner].estimate.mean:
            earlier = [rival for rival in self.fallen if rival.candidate_id != former]
            self.fallen = [*earlier[1 - MOST_FORMERS :], SlowedIncumbent(former, fell[0], changed)]
            runs, moved = known[former].trial.runs, known[former].trial.mean - fell[0]
            self._say(RolloutResult(former, "slowed", *now, runs, moved, -runs * moved))
        duel = self.duels[winner]
        self._say(_verdict(winner, "promoted", now, duel))
        noise = self.noise
        gain = next(c.mean for c in challenges if c.candidate_id == winner)
        self._install(winner, self.uplift.ahead + gain)
        self.uplift.untested = None
        self.established = True
        self.level = duel.level + gain
        self.probation = PromotionGuard(former, duel.level, noise, gain=gain)

    def _remember(self, former: str) -> None:
        earlier = [cid for cid in self.formers if cid != former]
        self.formers = [*earlier[:1], *earlier[1:][2 - MOST_FORMERS :], former]

    def _withdraw(self, rivals: Sequence[MeasuredConfig], now: tuple[int, str]) -> None:
        """Take back what is worse, or most likely so, and what nobody will ever tell apart."""
        hopeless = {c.candidate_id for c in self.challenges(rivals) if c.better < HOPELESS}
        for cid, duel in list(self.duels.items()):
            worse = log_odds(duel.worse) >= WITHDRAW or duel.slow >= PROMOTE
            if duel.weight and (cid in hopeless or worse):
                self._close(cid, "withdrawn", now)
            elif duel.weight and duel.runs >= MOST_RUNS and log_odds(duel.better) < PROMOTE:
                self._close(cid, "given_up", now)  # what won waits where a limit rules it out

    def _close(
        self,
        candidate_id: str,
        outcome: Literal["withdrawn", "given_up", "failed"],
        now: tuple[int, str],
    ) -> None:
        self._say(_verdict(candidate_id, outcome, now, self.duels.pop(candidate_id)))
        self.closed[candidate_id] = now[0]
        while len(self.closed) > MOST_CLOSED:
            del self.closed[next(iter(self.closed))]

    def _say(self, verdict: RolloutResult) -> None:
        self.verdicts = [*self.verdicts[1 - MOST_VERDICTS :], verdict]


def elect(rivals: Sequence[MeasuredConfig]) -> MeasuredConfig | None:
    """The best cautious estimate: mean less one standard deviation, so that a second and third run
    of a good one count for it. One run makes no incumbent while another configuration has two: what
    was measured once and looked best is mostly luck."""
    repeated = [r for r in rivals if r.trial.runs >= REPEATS]
    return max(repeated or rivals, key=lambda r: r.estimate.mean - r.estimate.sd, default=None)


def _verdict(
    candidate_id: str,
    outcome: Literal["promoted", "withdrawn", "given_up", "failed"],
    now: tuple[int, str],
    duel: PairedTest,
) -> RolloutResult:
    return RolloutResult(candidate_id, outcome, *now, duel.runs, duel.difference, duel.cost)
