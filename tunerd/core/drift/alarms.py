"""What the watch finds, in words of the domain."""

import hashlib
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from msgspec import field
from msgspec.structs import replace

from tunerd.core.model.history_weights import Regime
from tunerd.core.observation import Scalar
from tunerd.core.saved_state import FrozenState, Moment, SavedState

__all__ = ["Drift", "DriftUpdate", "Kind", "Phase", "drift_id"]

Kind = Literal["speed", "ranks", "inputs", "failures"]
"""What no longer is as it was: how fast jobs are, which configurations are the fast ones, which
jobs come, how many fail."""
Phase = Literal["began", "grew", "over"]


class Drift(FrozenState, frozen=True):
    """A change that was noticed and is not over."""

    drift_id: str
    kind: Kind
    since: int
    """Sequence of the first job that it, or its latest change of speed or ranks, is believed to act
    on."""
    since_at: Moment
    """When that job finished."""
    noticed: int
    """Sequence of the job that gave it away, the last time."""
    noticed_at: Moment
    contexts: tuple[str, ...] = ()
    """Keys of the contexts; none stands for the whole study."""
    parameter: str | None = None
    """Whose effect is no longer what it was, or whose values come in other shares."""
    feature: str | None = None
    """Of the context, whose values come in other shares …"""
    value: Scalar = None
    """… or that takes this value, which was never seen before."""
    moved: float | None = None
    """For ``speed``: by how much scores moved. For ``failures`` and ``inputs``: by how much a share
    did, 0.3 for 30 points."""
    level: float | None = None
    """For ``speed``: what scores were there before, to say what share of it ``moved`` is; None
    where it is none, for scores lie on both sides of 0."""
    times: int = 1
    """How often the alarm rose: again while it was not over means that it grew or, of speed and
    ranks, that there was another change."""

    def concerns(self, context_key: str) -> bool:
        """Whether it acts on a context."""
        return not self.contexts or context_key in self.contexts

    @property
    def of_speed(self) -> bool:
        """Whether what was learned of speed no longer holds."""
        return self.kind in ("speed", "ranks")

    def regime(self) -> Regime:
        """How jobs from before it count in what is learned from now on.

        Where a context became slower as a whole, its old jobs still tell which configurations are
        the fast ones: they count half, moved along. Where the order changed they tell little, and
        even a tenth of their weight keeps the model from the new order for long.
        """
        keys = self.contexts or None
        if self.kind == "ranks":
            return Regime(self.since, keys, before=0.02)
        return Regime(self.since, keys, before=0.5, moved=self.moved or 0.0)

    @property
    def place(self) -> tuple[object, ...]:
        """Two drifts of one place are one."""
        value = self.value if self.kind == "inputs" else None
        where = self.contexts if self.kind in ("speed", "failures") else ()
        return (self.kind, where, self.parameter, self.feature, value)

    def again(self, later: "Drift") -> "Drift":
        """This one, after another alarm.

        Of speed and ranks it is from then on what the later alarm found: the watch measured that
        from where the first had left things, and it may as well be the way back. Other kinds have
        grown since they began.
        """
        if self.of_speed:
            return replace(later, drift_id=self.drift_id, times=self.times + 1)
        return replace(
            self,
            times=self.times + 1,
            noticed=later.noticed,
            noticed_at=later.noticed_at,
            moved=later.moved,
            contexts=later.contexts,
        )


@dataclass(frozen=True, slots=True)
class DriftUpdate:
    """Something to say about a drift."""

    phase: Phase
    drift: Drift
    at: int
    """Sequence of the job with which it was noticed."""
    at_time: datetime
    why: str = ""
    """For ``over``: what says so."""


class DriftRecovery(SavedState):
    """How jobs do since a drift was noticed: whether it is over."""

    drift: Drift
    jobs: int = 0
    """Affected ones, live and scored."""
    held: list[bool] = field(default_factory=list)
    """Of the latest of them, whether the predicted band held."""
    errors: list[float] = field(default_factory=list)
    """Of the same, the error in half widths of that band."""


def drift_id(study: str, drift_kind: Kind, place: tuple[object, ...], noticed: int) -> str:
    """The same for the same finding, whoever makes it again."""
    text = repr((study, drift_kind, place, noticed))
    return f"drift-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
