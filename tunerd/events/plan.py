"""The plan of the contract: which context is foreseen in which of the coming hours.

It lies on the recommendations topic beside what is recommended, under ``plan:`` and the key of the
context without its signal. The null value withdraws it.
"""

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from tunerd.core.observation import Scalar

__all__ = [
    "PLAN_KEY",
    "PublishedBand",
    "PublishedHours",
    "PublishedPlan",
    "plan_schema",
    "plan_to_bytes",
]

PLAN_KEY = "plan:"
"""What a plan's key on the topic begins with. No study is called so: its name has no colon."""


class PublishedBand(msgspec.Struct, frozen=True, kw_only=True):
    """What a further signal is foreseen to be in some hours."""

    low: Annotated[float, Meta(description="Least 10 % quantile of the signal in these hours.")]
    median: Annotated[float, Meta(description="Mean of its 50 % quantiles.")]
    high: Annotated[float, Meta(description="Largest 90 % quantile.")]


class PublishedHours(msgspec.Struct, frozen=True, kw_only=True):
    """Hours in which one context is planned for."""

    valid_from: Annotated[datetime, Meta(description="When they begin.")]
    valid_until: Annotated[datetime, Meta(description="When they are over.")]
    context_key: Annotated[str, Meta(description="Whose recommendation holds then.")]
    low: Annotated[float, Meta(description="Least 10 % quantile of the signal in these hours.")]
    median: Annotated[float, Meta(description="Mean of its 50 % quantiles.")]
    high: Annotated[float, Meta(description="Largest 90 % quantile.")]
    others: Annotated[
        dict[str, PublishedBand] | UnsetType,
        Meta(description="The plan's further signals, by feature; absent where it has only one."),
    ] = UNSET


class PublishedPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Which context to take for one of which the signal is not known, by the time."""

    schema: Annotated[Literal["tunerd.plan/1"], Meta(description="Name and major version.")] = (
        "tunerd.plan/1"
    )
    study: Annotated[str, Meta(description="Name of the study.")]
    context_key: Annotated[
        str, Meta(description="Key of the context without signals, whose value is `~` there.")
    ]
    context: Annotated[dict[str, Scalar], Meta(description="The values behind that key.")]
    feature: Annotated[
        str,
        Meta(description="The context feature that the signal fills in; of several, the first."),
    ]
    signal: Annotated[str, Meta(description="The signal, as Prometheus writes it.")]
    others: Annotated[
        dict[str, str] | UnsetType,
        Meta(
            description="The further signals that the plan stands on, by the feature that each"
            " fills in; absent where the study has only one."
        ),
    ] = UNSET
    made_at: Annotated[datetime, Meta(description="When it was foreseen.")]
    windows: Annotated[
        list[PublishedHours], Meta(description="In the order of time, at most 48 hours.")
    ]


def plan_to_bytes(plan: PublishedPlan) -> bytes:
    """Canonical JSON, as of a recommendation."""
    return msgspec.json.encode(plan, order="deterministic")


def plan_schema() -> dict[str, Any]:
    """JSON Schema of the plan, version 1."""
    return msgspec.json.schema(PublishedPlan)
