"""What the daemon asks of a stage."""

from typing import Protocol

__all__ = ["Stage"]


class Stage(Protocol):
    """Work on the store that can be done in small, repeatable steps."""

    @property
    def name(self) -> str:
        """Name in logs, metrics and ``--stages``."""

    def step(self) -> bool:
        """Do one bounded unit of work and say whether there was any.

        Raises:
            StreamUnavailableError, StoreUnavailableError: wait and call again; nothing is lost.
            Exception: anything else is a fault of tunerd; the process ends and starts anew.
        """

    def close(self) -> None:
        """Let go of connections. Whatever is committed is committed."""
