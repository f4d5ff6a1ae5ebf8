"""What a decision in one context looks at: what was found, what was tried, what is wanted, what is
ruled out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tunerd.core.evidence.evidence import Estimate, Trial
from tunerd.core.observation import Value

__all__ = ["UNHELD", "Held", "Prospect", "Rival", "Wanted"]


@dataclass(frozen=True, slots=True)
class Prospect:
    """A configuration that a search found. Scores are oriented: larger is better."""

    candidate_id: str
    config: Mapping[str, Value]
    mean: float | None
    spread: float
    feasible: float | None
    at_random: bool = False
    """Drawn at random rather than searched for."""
    again: bool = False
    """An incumbent of earlier that has to be run again after a drift."""


@dataclass(frozen=True, slots=True)
class Rival:
    """A configuration of the space that was tried here, with what is believed of it now."""

    candidate_id: str
    trial: Trial
    estimate: Estimate
    feasible: float
    expected: Estimate | None = None
    """What the predictor alone says; None before there is one."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a profiling round still asks for, best predicted first."""

    round: int
    prospects: tuple[tuple[Prospect, int], ...]
    """With the number of runs still missing."""


@dataclass(frozen=True, slots=True)
class Held:
    """What limits hold back in this context."""

    limits: tuple[str, ...] = ()
    """As a reason names them."""
    rivals: Sequence[Rival] = ()
    """Measured configurations that they rule out."""
    baseline: bool = False
    """Whether the baseline is ruled out too."""
    outside: Rival | None = None
    """The best that ran here and lies outside the study's space …"""
    why_outside: str = ""
    """… and by what."""


UNHELD = Held()
"""Where no limits are set."""
