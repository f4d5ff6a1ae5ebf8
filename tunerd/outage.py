"""How long a stage counts as cut off from what it needs."""

from dataclasses import dataclass

__all__ = ["SETTLED_S", "Outage"]

SETTLED_S = 5.0
"""For so long steps must go well before an outage is over. A step may not touch what fails: a study
that cannot be saved is loaded again, and who asks for a lease asks once a second."""


@dataclass
class Outage:
    """What one stage could not reach. ``now`` is in monotonic seconds."""

    problem: str = ""
    """Empty when there is no outage."""
    _well_since: float | None = None

    def failed(self, problem: str) -> bool:
        """A step failed. Says whether that is news."""
        news = problem != self.problem
        self.problem, self._well_since = problem, None
        return news

    def succeeded(self, now: float) -> bool:
        """A step went well. Says whether this ends an outage."""
        if not self.problem:
            return False
        if self._well_since is None:
            self._well_since = now
        if now - self._well_since < SETTLED_S:
            return False
        self.problem = ""
        return True
