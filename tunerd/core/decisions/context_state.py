"""What a study knows of one context: its history, its campaign, and when it was last looked at."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, cast

import msgspec
from msgspec import field

from tunerd.core.decisions.campaign import Campaign
from tunerd.core.decisions.context_history import ContextHistory
from tunerd.core.evidence.config_stats import ConfigStatsTable
from tunerd.core.evidence.gain_calibration import PredictedGain
from tunerd.core.forecasting.rhythm import ContextForecast, JobRhythm
from tunerd.core.observation import Scalar
from tunerd.core.saved_state import Moment

__all__ = ["UNREADABLE", "ContextState", "readable_state"]

UNREADABLE = (LookupError, TypeError, ValueError, AttributeError)
"""What loading raises where another version kept a state in another form."""
PROMISES = 32
"""Candidates whose promise is remembered: those of the last few revisions."""


class ContextState(ContextHistory):
    """One context of a study. Saved whole, in the transaction of the step that changed it."""

    last_job_at: Moment | None = None
    """Latest job or campaign; a context without any for a while is no longer active."""
    imported_at: Moment | None = None
    """When its old jobs were last imported: that is a request, however old they are."""
    asked_at: Moment | None = None
    """When somebody last asked what to launch here."""
    waiting_since: int = 0
    """First sequence that came after the last search; 0 when none did."""
    searched: int = -1
    """Sequence that the study had learned when this context was last searched; −1 for never."""
    campaign: Campaign | None = None
    rounds_asked: list[list[str]] = field(default_factory=list)
    """Candidate ids that each round of the latest campaign asked for, the random start first. Kept
    after its end for people who look at it; a new generation may know the same by other ids."""
    promised: dict[str, PredictedGain] = field(default_factory=dict)
    """By candidate id, the latest last."""
    renamed: dict[str, str] = field(default_factory=dict)
    """Candidate ids of former generations, which jobs may carry, and what they are now."""
    declined: str | None = None
    """Gist of the proposal that an operator declined last: it is not made again."""
    rhythm: JobRhythm = field(default_factory=JobRhythm)
    """When its jobs begin."""
    foreseen: ContextForecast | None = None
    """That jobs of it are to come, where it had none for a while."""

    @property
    def alive_at(self) -> datetime | None:
        """When a job, an import or a request last named it; None where none has yet."""
        moments = (self.last_job_at, self.imported_at, self.asked_at)
        return max((at for at in moments if at is not None), default=None)

    def promise(self, promises: Mapping[str, PredictedGain]) -> None:
        """Remember what was just published; the oldest promises fall out."""
        for candidate_id, promise in promises.items():
            self.promised.pop(candidate_id, None)
            self.promised[candidate_id] = promise
        for candidate_id in list(self.promised)[:-PROMISES]:
            del self.promised[candidate_id]

    @classmethod
    def load_other(cls, state: Mapping[str, Any]) -> tuple["ContextState", list[str]]:
        """Build from what another version's :meth:`dump` may have given. What this one cannot read
        begins anew, and is named."""
        state = _in_present_form(state)
        try:
            return cls.load_with_defaults(state), []
        except UNREADABLE:
            read = cls(state["context"]).dump()
        unread = []
        for part in read.keys() & state.keys():
            try:
                cls.load_with_defaults({**read, part: state[part]})
            except UNREADABLE:
                unread.append(part)
            else:
                read[part] = state[part]
        return cls.load_with_defaults(read), sorted(unread)


def readable_state(state: Any) -> Mapping[str, Any] | None:
    """Return what can be read of a saved state that may be damaged, or another version's: as it is,
    or without evidence, which history tells again. None where not even the context can be told."""
    try:
        msgspec.convert(state["context"], dict[str, Scalar])
    except UNREADABLE:
        return None
    try:
        msgspec.convert(state["evidence"].get("begun", []), list[tuple[int, float | None]])
    except UNREADABLE:
        return {**state, "evidence": ConfigStatsTable().dump()}
    return cast("Mapping[str, Any]", state)


def _in_present_form(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a saved state with what earlier versions kept otherwise. One noted no hours: its jobs
    count as from long ago, for what grows. Others kept hours as pairs, and leads flat."""
    try:
        rhythm = state.get("rhythm", (0 if state["last_job_at"] else None, 0, ()))
        first, week, hours, *later = rhythm
        present = {**state, "rhythm": [first, week, dict(hours), *later]}
        flat = state["introduction"]
        if "ahead" in flat:
            own = {"ahead": flat["ahead"], "earlier": flat["leads"], "untested": flat["untested"]}
            rest = {k: v for k, v in flat.items() if k not in ("ahead", "leads", "untested")}
            present["introduction"] = {**rest, "uplift": own}
    except UNREADABLE:
        return state
    return present
