"""A campaign: profiling jobs as in the paper, a random start and then rounds of the best predicted
(CubicML, section 3 and Figure 2a), each configuration wanted a stated number of times."""

from collections.abc import Iterable, Mapping
from datetime import datetime

from msgspec import field

from tunerd.core.observation import Value
from tunerd.core.saved_state import SavedState

__all__ = ["MIN_FEASIBLE", "PATIENCE_H", "Campaign", "PendingRuns"]

PATIENCE_H = 168.0
"""Hours that a round waits for its next run, unless said otherwise: as long as a recommendation is
valid by default."""
MIN_FEASIBLE = 0.3
"""Probability to run below which a round wants nothing while there is anything else, unless said
otherwise. Far below a study's: a profiling job is there to find something and may fail, and where
most of a space does not run, being careful finds less. In one of which nine tenths fail, 0.02 found
the same with more failures, 0.8 less; with other contexts known 0.5 found it later."""


class PendingRuns(SavedState):
    """A configuration and the number of its runs that are still missing."""

    candidate_id: str
    config: dict[str, Value]
    missing: int


class Campaign(SavedState):
    """Where one context's campaign stands. Round 0 is the random start."""

    jobs: int
    """Configurations of the random start; none where enough is known to go by."""
    rounds: int
    """Rounds of best predicted configurations that follow."""
    round_size: int
    """Configurations per round."""
    repeats: int = 1
    """Runs wanted of each configuration."""
    patience_h: float = PATIENCE_H
    """Hours without a run of the round after which it is closed with what it has: a job that was
    lost must not hold up the rest for ever."""
    min_feasible: float = MIN_FEASIBLE
    round: int = -1
    asks: list[PendingRuns] = field(default_factory=list)
    waits_since: str | None = None
    """When the round was seen to wait for its next run, ISO 8601."""

    def __post_init__(self) -> None:
        if not self.jobs:
            self.round = max(self.round, 0)

    @property
    def round_done(self) -> bool:
        """Whether nothing of the current round is missing (true before the first)."""
        return all(ask.missing <= 0 for ask in self.asks)

    @property
    def configurations(self) -> int:
        """All that it would ask for, in a space that has as many."""
        return self.jobs + self.rounds * self.round_size

    @property
    def missing(self) -> int:
        """Runs that the current round still waits for."""
        return sum(max(ask.missing, 0) for ask in self.asks)

    @property
    def finished(self) -> bool:
        """Whether the last round is done."""
        return self.round_done and self.round >= self.rounds

    @property
    def next_size(self) -> int:
        """Configurations that the next round asks for."""
        return self.jobs if self.round < 0 else self.round_size

    def begin_round(self, chosen: Iterable[tuple[str, Mapping[str, Value]]]) -> None:
        """Ask for the next round's configurations, best predicted first."""
        self.round += 1
        distinct = dict(chosen)  # in a small space a spread-out start repeats itself
        self.asks = [
            PendingRuns(cid, dict(config), self.repeats) for cid, config in distinct.items()
        ]
        self.waits_since = None

    def count(self, candidate_id: str) -> None:
        """A job of this configuration ended and said something about it."""
        for ask in self.asks:
            if ask.candidate_id == candidate_id:
                ask.missing -= 1
                self.waits_since = None

    def close_if_overdue(self, now: datetime) -> int:
        """Give up the runs that a round waits for in vain; says how many. To be called now and
        then while schedulers can see the round."""
        if self.round_done:
            return 0
        if self.waits_since is None:
            self.waits_since = now.isoformat()
        waited = now - datetime.fromisoformat(self.waits_since)
        if waited.total_seconds() <= 3600 * self.patience_h:
            return 0
        given_up = self.missing
        for ask in self.asks:
            ask.missing = min(ask.missing, 0)
        return given_up
