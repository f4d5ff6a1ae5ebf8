"""What tunerd tells the schedulers: the recommendation of the contract, as plain frozen values.

The core decides and builds these; :mod:`tunerd.events.recommendation` turns them into bytes and
back, field by field in the order below. The text in an ``Annotated`` is the description that
``tunerd schema recommendation`` prints, so it is written for the person who reads the topic.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal

from msgspec import UNSET, UnsetType

from tunerd.core.observation import Scalar, Value

__all__ = [
    "LARGEST",
    "RECOMMENDATION_SCHEMA",
    "Advice",
    "Candidate",
    "ForecastBasis",
    "Gain",
    "Incumbent",
    "Kind",
    "MadeFrom",
    "Predicted",
    "Recommendation",
    "State",
    "StatedObjective",
    "candidate_id",
    "recommendation_id",
]

RECOMMENDATION_SCHEMA: Literal["tunerd.recommendation/1"] = "tunerd.recommendation/1"

LARGEST = 1e300
"""What is published in the place of an infinite number, which JSON does not have."""
_SHARE_ROUNDING = 1e-9
"""Shares such as ten times 0.1 may pass 1 by the rounding of a sum, never by more."""


class Kind(StrEnum):
    """Why a candidate is worth jobs."""

    EXPLOIT = "exploit"
    """Believed to be better than the incumbent."""
    EXPLORE = "explore"
    """Worth running for what it would teach."""
    CONFIRM = "confirm"
    """Looked better; runs again before it may become the incumbent."""


class State(StrEnum):
    """Whether a recommendation is to be followed."""

    ACTIVE = "active"
    WITHDRAWN = "withdrawn"


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedObjective:
    """The study's objective as schedulers see it."""

    metric: Annotated[str, "Name of the metric in job events."]
    goal: Annotated[Literal["maximize", "minimize"], "Which direction is better."]
    unit: Annotated[str, "Unit of the metric and of every value predicted for it."]


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """What the predictor expects of a candidate, in the unit of the objective."""

    median: Annotated[float, "As likely to be passed as not."]
    low: Annotated[float, "Lower end of the band."]
    high: Annotated[float, "Upper end of the band."]
    band: Annotated[float, "Share of jobs that should fall between low and high."] = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """Relative to the incumbent; 0.042 is 4.2 % better, whatever the goal."""

    median: Annotated[float, "As likely to be passed as not."]
    low: Annotated[float, "What it gains if the prediction is at the bad end of its band."]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A configuration to run, and how many of the coming jobs should run it."""

    candidate_id: Annotated[
        str, "Derived from study, context key and configuration. Send it back in the job event."
    ]
    rank: Annotated[int, "1 is the first; shares are cumulated in this order."]
    kind: Annotated[Kind, "Why it is worth jobs."]
    share: Annotated[float, "Of the context's coming jobs, between 0 and 1."]
    wanted: Annotated[
        int, "Runs asked for in a profiling round; served before any share, best expected first."
    ] = 0
    config: Annotated[Mapping[str, Value], "One value for every parameter of the study."]
    predicted: Annotated[
        Predicted | None, "Null in a random start, before there is anything to predict from."
    ] = None
    feasible: Annotated[
        float | None, "Probability that it runs, between 0 and 1; null when nothing is known."
    ] = None
    gain: Annotated[
        Gain | None,
        "Null when there is no incumbent or no prediction, or where the incumbent may as well give "
        "0, of which nothing is a share.",
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Incumbent:
    """The best configuration by evidence so far, in the unit of the objective."""

    config: Annotated[Mapping[str, Value], "One value for every parameter of the study."]
    median: Annotated[float, "Estimate over its jobs, never the luckiest single run."]
    low: Annotated[float, "Lower end of that estimate's band."]
    high: Annotated[float, "Upper end of that estimate's band."]
    jobs: Annotated[int, "Jobs that the estimate rests on."]


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeFrom:
    """Provenance: with these the same recommendation comes out again."""

    sequence: Annotated[int, "Last observation of the study that was learned."]
    model: Annotated[str | None, "Checkpoint of the predictor; null in a random start."]
    study: Annotated[str, "Content hash of the study's generation."]
    seeds: Annotated[tuple[int, ...], "Seeds of the search."]
    tunerd: Annotated[str, "Version of tunerd."]


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalBand:
    """What a further signal of a study is foreseen to be."""

    feature: Annotated[str, "The context feature that the signal fills in."]
    signal: Annotated[str, "The signal, as Prometheus writes it."]
    low: Annotated[float, "10 % quantile of the signal in that hour."]
    median: Annotated[float, "Its 50 % quantile."]
    high: Annotated[float, "Its 90 % quantile."]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastBasis:
    """What a recommendation made ahead stands on: the forecast that has its context come."""

    signal: Annotated[
        str, "The signal that was foreseen, as Prometheus writes it; of several, the first."
    ]
    made_at: Annotated[datetime, "When it was foreseen."]
    until: Annotated[datetime, "End of the last hour in which the context is foreseen."]
    probability: Annotated[
        float, "That the context holds in the hour that begins at valid_from, between 0 and 1."
    ]
    low: Annotated[float, "10 % quantile of the signal in that hour."]
    median: Annotated[float, "Its 50 % quantile."]
    high: Annotated[float, "Its 90 % quantile."]
    others: Annotated[
        tuple[SignalBand, ...] | UnsetType,
        "The study's further signals in that hour; absent where it has only one.",
    ] = UNSET


@dataclass(frozen=True, slots=True)
class Advice:
    """The part of a recommendation that is decided; the rest is book-keeping."""

    candidates: tuple[Candidate, ...]
    incumbent: Incumbent | None
    baseline: Mapping[str, Value] | None
    reason: str
    round: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """What to launch in one context: ranked candidates, each with a share of the coming jobs.

    An empty ``recommendation_id`` is filled in. Raises ValueError when ranks do not count up
    from 1, a share lies outside 0 to 1, shares sum to more than 1, or a wanted candidate also
    claims a share.
    """

    schema: Annotated[Literal["tunerd.recommendation/1"], "Name and major version."] = (
        RECOMMENDATION_SCHEMA
    )
    recommendation_id: Annotated[
        str,
        "Derived from what it was made from. A renewal and a withdrawal keep it; "
        "context key and revision together name one message.",
    ] = ""
    revision: Annotated[
        int, "Counts up per study and context key and never restarts; drop older ones."
    ]
    state: Annotated[State, "A withdrawn recommendation is not to be followed."] = State.ACTIVE
    study: Annotated[str, "Name of the study."]
    context_key: Annotated[str, "The message's key, `study|name=value|…`."]
    context: Annotated[Mapping[str, Scalar], "The values behind the context key."]
    objective: Annotated[StatedObjective, "What is made better."]
    issued_at: Annotated[datetime, "When this revision was written."]
    valid_from: Annotated[
        datetime | UnsetType,
        "From when its context is foreseen; absent means now. Who has the context before follows "
        "it before: it holds for its context whenever that comes.",
    ] = UNSET
    valid_until: Annotated[datetime, "Do not follow it after this; expiry needs no message."]
    forecast: Annotated[
        ForecastBasis | UnsetType, "What it stands on; absent unless it was made ahead."
    ] = UNSET
    candidates: Annotated[tuple[Candidate, ...], "Best first; shares sum to at most 1."] = ()
    incumbent: Annotated[
        Incumbent | None, "Gets the jobs that no share claims; null before there is evidence."
    ] = None
    baseline: Annotated[
        Mapping[str, Value] | None,
        "What people launch without tunerd, possibly partial; stands in for the incumbent.",
    ] = None
    reason: Annotated[str, "Why, in words for a person."]
    round: Annotated[int | None, "Number of the profiling round; null outside a campaign."] = None
    made_from: Annotated[MadeFrom, "With these the same recommendation comes out again."]

    def __post_init__(self) -> None:
        _check(self.candidates)
        if not self.recommendation_id:
            object.__setattr__(self, "recommendation_id", recommendation_id(self))

    def renewed(
        self, *, revision: int, issued_at: datetime, valid_until: datetime
    ) -> "Recommendation":
        """The same advice for longer: next revision, later end, same ids."""
        return replace(self, revision=revision, issued_at=issued_at, valid_until=valid_until)

    def withdrawn(self, *, revision: int, issued_at: datetime, reason: str) -> "Recommendation":
        """The revision that takes this advice back. It is over at once and has no candidates."""
        return replace(
            self,
            revision=revision,
            state=State.WITHDRAWN,
            issued_at=issued_at,
            valid_until=issued_at,
            candidates=(),
            reason=reason,
        )


def candidate_id(study: str, context_key: str, config: Mapping[str, Value]) -> str:
    """Name of a configuration in a context, the same on every machine and in every generation.

    3.0 counts as 3: a configuration that went through a scheduler's Lua or JavaScript keeps its id.
    """
    return "c-" + _digest({"study": study, "context_key": context_key, "config": _plain(config)})


def recommendation_id(recommendation: Recommendation) -> str:
    """Name of a piece of advice: what it was made from and what it says.

    Revision, times, forecast, state and the wording of the reason are left out, so that a renewal,
    which says the same for longer, keeps the id that jobs already carry.
    """
    fields = {
        "study": recommendation.study,
        "context_key": recommendation.context_key,
        "made_from": _made_from(recommendation.made_from),
        "round": recommendation.round,
        "candidates": [
            [c.candidate_id, c.rank, c.kind.value, c.share, c.wanted, _plain(c.config)]
            for c in recommendation.candidates
        ],
        "incumbent": recommendation.incumbent and _plain(recommendation.incumbent.config),
        "baseline": recommendation.baseline and _plain(recommendation.baseline),
    }
    return "r-" + _digest(fields)


def _made_from(made_from: MadeFrom) -> list[object]:
    return [
        made_from.sequence,
        made_from.model,
        made_from.study,
        list(made_from.seeds),
        made_from.tunerd,
    ]


def _plain(config: Mapping[str, Value]) -> dict[str, Value]:
    return {
        name: [_whole(entry) for entry in value] if isinstance(value, list) else _whole(value)
        for name, value in config.items()
    }


def _whole(value: Scalar) -> Scalar:
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value


def _digest(content: object) -> str:
    """First 80 bits of SHA-256 of the canonical JSON: collisions stay unlikely at 10^9 ids."""
    text = json.dumps(
        content, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    )
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def _check(candidates: Sequence[Candidate]) -> None:
    if [candidate.rank for candidate in candidates] != list(range(1, len(candidates) + 1)):
        raise ValueError("candidates: ranks must count up from 1 in the order of the list")
    for candidate in candidates:
        if not 0 <= candidate.share <= 1:
            raise ValueError(f"candidates[{candidate.rank}].share: must be between 0 and 1")
        if candidate.wanted < 0:
            raise ValueError(f"candidates[{candidate.rank}].wanted: must not be negative")
        if candidate.wanted and candidate.share:
            raise ValueError(f"candidates[{candidate.rank}].share: must be 0 where runs are wanted")
    if sum(candidate.share for candidate in candidates) > 1 + _SHARE_ROUNDING:
        raise ValueError("candidates: shares must sum to at most 1")
