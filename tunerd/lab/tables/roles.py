"""What a column of a table of old jobs may be, and how sure a guess of it is."""

from dataclasses import dataclass
from typing import Literal

from tunerd.lab.tables.column_names import ColumnName
from tunerd.lab.tables.derived_columns import DerivationRule
from tunerd.lab.tables.profile import ColumnProfile

__all__ = ["SAID", "ColumnGuess", "Goal", "Role", "sureness"]

Role = Literal[
    "objective",
    "metric",
    "context",
    "parameter",
    "derived",
    "status",
    "finished_at",
    "time",
    "job_id",
    "user",
    "label",
    "ignored",
]
"""``metric`` was measured and is not the objective; ``derived`` follows from other columns;
``time`` is one that is not when the job finished; ``label`` is kept and not learned from."""

SAID = "you said so"
"""Why a column is what a person said."""

Goal = Literal["maximize", "minimize"]


@dataclass(frozen=True)
class ColumnGuess:
    """What one column is."""

    column: ColumnProfile
    name: ColumnName
    role: Role
    sure: float
    """0 (nothing spoke for it) to 1."""
    why: str
    rule: DerivationRule | None = None
    """Of a derived column."""

    @property
    def unsure(self) -> bool:
        """Whether a person should be asked."""
        return self.sure < 0.5


def sureness(margin: float) -> float:
    """How sure a margin of evidence makes: 1 is a guess, 2 is likely, 4 is as good as certain."""
    return min(0.99, abs(margin) / (abs(margin) + 1.2))
