"""How far the incumbents of a context are ahead of the first one there: what the ledger counts by.

A promotion adds what its test measured, drawn towards what was predicted. Who takes over without a
test is as far ahead as the estimates say, which are made again as it runs; who comes back is as far
ahead as it was.
"""

from collections.abc import Mapping, Sequence

from msgspec import field

from tunerd.core.evidence.decision_inputs import MeasuredConfig
from tunerd.core.saved_state import SavedState

__all__ = ["PROBATION", "UntestedIncumbents", "UpliftTracker"]

PROBATION = 40
"""Jobs for which a new incumbent is held against the level of the one before; then nothing is left
of its luck."""
MOST_LEADS = 32


class UntestedIncumbents(SavedState):
    """Incumbents that took over without a test, one after the other. Each was at its luckiest when
    it was chosen: differences from one to the next would add up to a lead that nobody has."""

    former: str
    """The incumbent before all of them, which they are measured against …"""
    ahead: float
    """… and how far that one was ahead."""
    runs: dict[str, int] = field(default_factory=dict)
    """Candidate id → runs at which its lead was estimated last."""

    def lead(self, one: MeasuredConfig, former: MeasuredConfig) -> float:
        """How far ahead one of them is believed to be."""
        return self.ahead + one.estimate.mean - former.estimate.mean


class UpliftTracker(SavedState):
    """Of one context, in scores."""

    ahead: float = 0.0
    """Of the incumbent; 0 without one."""
    earlier: dict[str, float] = field(default_factory=dict)
    """Of earlier incumbents, the latest last. Else limits that come and go, or two that take turns,
    would add up to something."""
    untested: UntestedIncumbents | None = None

    def of(self, candidate_id: str, incumbent: str | None) -> float:
        """Of the incumbent or an earlier one; 0 for any other."""
        return self.ahead if candidate_id == incumbent else self.earlier.get(candidate_id, 0.0)

    def pass_on(self, former: str | None, successor: str | None, ahead: float) -> None:
        """Another one is the incumbent: so far ahead, unless it has been there before. ``former``
        is None where there was none, or its lead is not one to remember."""
        if former is not None:
            self.earlier.pop(former, None)
            self.earlier[former] = self.ahead
            if len(self.earlier) > MOST_LEADS:
                del self.earlier[next(iter(self.earlier))]
        self.ahead = 0.0 if successor is None else self.earlier.get(successor, ahead)

    def estimated(
        self, best: MeasuredConfig | None, incumbent: str | None, measured: Sequence[MeasuredConfig]
    ) -> float:
        """How far ahead one is that takes over without a test: by what it is believed to give
        beside the last one before whom a test, or nothing, was."""
        if best is None:
            return 0.0
        by_id = {rival.candidate_id: rival for rival in measured}
        if self.untested is None or self.untested.former not in by_id:
            latest, ahead = incumbent, self.ahead
            if latest is None and self.earlier:
                latest, ahead = next(reversed(self.earlier.items()))
            if latest is None or latest not in by_id:
                return ahead
            self.untested = UntestedIncumbents(latest, ahead)
        if best.candidate_id not in self.earlier:
            self.untested.runs[best.candidate_id] = best.trial.runs
            if len(self.untested.runs) > MOST_LEADS:
                del self.untested.runs[next(iter(self.untested.runs))]
        return self.untested.lead(best, by_id[self.untested.former])

    def estimate_again(
        self,
        incumbent: str | None,
        current: MeasuredConfig | None,
        measured: Sequence[MeasuredConfig],
        *,
        profiling: bool,
    ) -> None:
        """Estimate the leads of those that took over without a test once more, as far as they ran
        since; ``current`` is what is known of the incumbent, where it runs. After a probation's
        worth of jobs nothing is left of an incumbent's luck; from then on it is the one that others
        are measured against, for the former one hardly runs any more and would tell of another
        time."""
        untested = self.untested
        if untested is None:
            return
        by_id = {rival.candidate_id: rival for rival in measured}
        if (former := by_id.get(untested.former)) is not None:
            self._again(untested, former, by_id, incumbent)
        # While a campaign goes on, who was the former one may be so again, and others after it.
        stays = profiling and incumbent == untested.former
        if current is not None and current.trial.runs > PROBATION and not stays:
            self.untested = None

    def _again(
        self,
        untested: UntestedIncumbents,
        former: MeasuredConfig,
        by_id: Mapping[str, MeasuredConfig],
        incumbent: str | None,
    ) -> None:
        for cid, runs in untested.runs.items():
            rival = by_id.get(cid)
            if rival is None or rival.trial.runs == runs:
                continue
            untested.runs[cid] = rival.trial.runs
            if cid == incumbent:
                self.ahead = untested.lead(rival, former)
            elif cid in self.earlier:
                self.earlier[cid] = untested.lead(rival, former)
