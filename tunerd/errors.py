"""Every error that tunerd raises on purpose, on one screen.

The class says what the caller has to do; the text says what is wrong, where, and what would be
right. No text ever holds a secret or an event's raw content.
"""

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = [
    "AlreadyRunningError",
    "CannotStartError",
    "CorruptDataError",
    "DemoError",
    "FencedOutError",
    "LostPartitionError",
    "MisconfiguredError",
    "NothingFeasibleError",
    "StoreUnavailableError",
    "StreamUnavailableError",
    "TunerdError",
    "UnknownStudyError",
    "ValidationProblem",
]


class TunerdError(Exception):
    """Base of all errors below."""


@dataclass(frozen=True, slots=True)
class ValidationProblem:
    """One mistake in a settings or study file: where it is, and what would be right."""

    where: str
    """File and key, e.g. ``studies/llm.toml: parameters.tp.values``."""
    message: str
    """What is wrong and what would be right."""

    def __str__(self) -> str:
        return f"{self.where}: {self.message}"


class MisconfiguredError(TunerdError):
    """Raised when settings or studies are wrong. Carries every problem found; exit code 2."""

    def __init__(self, problems: Sequence[ValidationProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


class NothingFeasibleError(TunerdError):
    """Raised when no configuration satisfies a study's constraints in a context.

    The text names the constraint and the context.
    """


class UnknownStudyError(TunerdError):
    """Raised when the store has no such study; names those that it has. Exit code 2."""


class AlreadyRunningError(TunerdError):
    """Raised when another daemon holds this folder or store. Names it; exit code 2."""


class CannotStartError(TunerdError):
    """Raised when the machine refuses what a start needs: a folder, a port. Exit code 1."""


class DemoError(TunerdError):
    """Raised when a process of the demo failed. Names its log."""


class StreamUnavailableError(TunerdError):
    """Raised when the broker or the folder cannot be reached. Wait and try again.

    ``may_pass``: a start waits for it too, as for a broker that is slow or starts again. A wrong
    address or password will still be wrong then.
    """

    def __init__(self, problem: str, *, may_pass: bool = False) -> None:
        self.may_pass = may_pass
        super().__init__(problem)


class StoreUnavailableError(TunerdError):
    """Raised when the database cannot be reached or written. Wait and try again."""


class CorruptDataError(TunerdError):
    """Raised when something in the store is not what was saved there. Names it.

    The database itself works: do without that one thing, or make it again.
    """


class LostPartitionError(TunerdError):
    """Raised when a stored position is not the one that this reader went on from.

    Another reader has the partition. Nothing was written; read the stored position, seek, go on.
    """


class StoreBehindError(TunerdError):
    """Raised when more was published than the store knows: it was restored, or lost transactions.

    Readers would drop what it says as old. Say nothing more; ``tunerd recover`` takes it up.
    """


class FencedOutError(TunerdError):
    """Raised when a newer epoch holds the study, or another process has this one's role on the
    stream. Nothing was written; drop what was learned, and do not take the role back."""
