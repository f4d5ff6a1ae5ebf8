"""Whether the daemon works: what ``/readyz``, the watchdog and ``tunerd status`` say of it."""

import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from tunerd.outage import Outage

__all__ = ["HealthMonitor"]

HUNG_AFTER_S = 60.0
"""A stage in the parent comes round several times a second; broker and database calls end within
their own time limits, the longest of which is half of this."""


@dataclass
class _StageHealth:
    progressed_at: float
    seen_at: float
    """When its loop last came round, with progress or with trouble."""
    has_work: bool = False
    outage: Outage = field(default_factory=Outage)


@dataclass
class HealthMonitor:
    """Told by the stages' loops, asked by HTTP and the watchdog; thread-safe.

    A stage is well while it makes progress or has nothing to do.
    """

    stages: Iterable[str]
    stalled_after_s: float
    clock: Callable[[], float]
    """Monotonic seconds."""
    children: Collection[str] = ()
    """Stages that run in a process of their own: that has a deadline within a step, and between
    steps it says every second that it is there."""
    _stages: dict[str, _StageHealth] = field(init=False)
    _notes: dict[str, str] = field(init=False, default_factory=dict)
    _remarks: dict[str, str] = field(init=False, default_factory=dict)
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)

    def __post_init__(self) -> None:
        now = self.clock()
        self._stages = {name: _StageHealth(now, now) for name in self.stages}

    def stepped(self, stage: str, worked: bool) -> bool:
        """A step ended well. Says whether this ends an outage."""
        with self._lock:
            now, state = self.clock(), self._stages[stage]
            state.progressed_at = state.seen_at = now
            state.has_work = worked
            return state.outage.succeeded(now)

    def is_away(self, stage: str) -> bool:
        """Whether a stage cannot reach what it needs, or could not a moment ago."""
        with self._lock:
            return bool(self._stages[stage].outage.problem)

    def troubled(self, stage: str, problem: str) -> bool:
        """A step failed for a reason outside; says whether that is news."""
        with self._lock:
            state = self._stages[stage]
            state.has_work = True
            state.seen_at = self.clock()
            return state.outage.failed(problem)

    def working(self, stage: str) -> None:
        """A step that has work began."""
        with self._lock:
            self._stages[stage].has_work = True

    def note(self, subject: str, problem: str) -> bool:
        """Remember (or, with an empty text, forget) something that keeps the daemon from ready;
        says whether that is news."""
        with self._lock:
            news = self._notes.get(subject, "") != problem
            if problem:
                self._notes[subject] = problem
            else:
                self._notes.pop(subject, None)
            return news

    def remark(self, subject: str, remark: str) -> None:
        """Remember (or, with an empty text, forget) something that somebody must see although the
        daemon is ready."""
        with self._lock:
            if remark:
                self._remarks[subject] = remark
            else:
                self._remarks.pop(subject, None)

    def remarks(self) -> list[str]:
        """What somebody must see although the daemon is ready, in sentences."""
        with self._lock:
            return list(self._remarks.values())

    def hung(self) -> list[str]:
        """Stages whose loop no longer comes round: only a new start helps."""
        now = self.clock()
        with self._lock:
            return [
                f"{name}: has not come round for {now - state.seen_at:.0f} s"
                for name, state in self._stages.items()
                if name not in self.children and now - state.seen_at > HUNG_AFTER_S
            ]

    def problems(self) -> list[str]:
        """Everything that keeps the daemon from being ready, in sentences; empty when it is."""
        now = self.clock()
        with self._lock:
            notes = list(self._notes.values())
            for name, state in self._stages.items():
                silent = now - state.progressed_at
                if state.outage.problem:
                    notes.append(f"{name}: {state.outage.problem}")
                elif state.has_work and silent > self.stalled_after_s:
                    notes.append(f"{name}: has work and made no progress for {silent:.0f} s")
                elif name in self.children and silent > self.stalled_after_s:
                    notes.append(f"{name}: its process has said nothing for {silent:.0f} s")
            return notes
