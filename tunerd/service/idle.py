"""How long a loop that finds nothing to do waits before it looks again."""

__all__ = ["IdlePause"]

SHORTEST_S = 0.03
"""Right after work: part of the time from an event to its recommendation."""
LONGEST_S = 0.15
"""After two seconds without work. Each look asks the database: with the shortest pause for ever,
most of what an idle daemon costs."""
GROWTH = 1.05


class IdlePause:
    """The pause of one loop: it grows while there is nothing to do, and starts over with work."""

    def __init__(self) -> None:
        self._next_s = SHORTEST_S

    def after(self, worked: bool) -> float:
        """Seconds to wait after a step: none after one that worked."""
        if worked:
            self._next_s = SHORTEST_S
            return 0.0
        pause_s, self._next_s = self._next_s, min(self._next_s * GROWTH, LONGEST_S)
        return pause_s
