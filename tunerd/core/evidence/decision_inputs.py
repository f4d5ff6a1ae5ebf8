"""What a decision in one context looks at: what was found, what was tried, what is wanted, what is
ruled out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tunerd.core.evidence.config_stats import ConfigStats, ScoreEstimate
from tunerd.core.observation import Value

__all__ = ["UNHELD", "ExcludedConfigs", "MeasuredConfig", "RoundRequest", "SearchCandidate"]


@dataclass(frozen=True, slots=True)
class SearchCandidate:
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
class MeasuredConfig:
    """A configuration of the space that was tried here, with what is believed of it now."""

    candidate_id: str
    trial: ConfigStats
    estimate: ScoreEstimate
    feasible: float
    expected: ScoreEstimate | None = None
    """What the predictor alone says; None before there is one."""


@dataclass(frozen=True, slots=True)
class RoundRequest:
    """What a profiling round still asks for, best expected first."""

    round: int
    prospects: tuple[tuple[SearchCandidate, int], ...]
    """With the number of runs still missing."""


@dataclass(frozen=True, slots=True)
class ExcludedConfigs:
    """What limits hold back in this context."""

    limits: tuple[str, ...] = ()
    """As a reason names them."""
    rivals: Sequence[MeasuredConfig] = ()
    """Measured configurations that they rule out."""
    baseline: bool = False
    """Whether the baseline is ruled out too."""
    outside: MeasuredConfig | None = None
    """The best that ran here and lies outside the study's space …"""
    why_outside: str = ""
    """… and by what."""


UNHELD = ExcludedConfigs()
"""Where no limits are set."""
