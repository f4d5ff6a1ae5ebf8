"""What follows from a plan of the coming hours, as the forecast stage keeps it in the store."""

import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec import UNSET

from tunerd.core.recommendation import ForecastBasis, SignalBand
from tunerd.core.study import Study
from tunerd.events.plan import PLAN_KEY, PublishedBand, PublishedHours, PublishedPlan, plan_to_bytes
from tunerd.store import OutboxMessage, Transaction

__all__ = ["FORECAST_SOURCE", "made_ahead", "publish_plans", "send_plans_again"]

MOST_HOURS = 48
"""Hours of a plan that are published."""
SOON_S = AGAIN_S = 3600.0
"""A change of what begins so soon is sent at once, any other so long after the last message."""

FORECAST_SOURCE = "tunerd/forecast"
"""Source of the requests that ask about contexts to come."""


def made_ahead(
    kept: tuple[datetime, Mapping[str, Any]] | None, key: str, least: float
) -> tuple[datetime, ForecastBasis] | None:
    """From when a context is foreseen, and by what; None where no plan that holds has it.

    Args:
        kept: when a study's plan was made, and the plan.
        key: of the context.
        least: probability from which on an hour counts.
    """
    if kept is None:
        return None
    for plan in kept[1]["signals"]:
        hours = [
            window
            for window in plan["windows"]
            if window["contexts"].get(key, 0.0) >= least or window["key"] == key
        ]
        if plan["state"] == "active" and hours:
            first = hours[0]
            basis = ForecastBasis(
                signal=plan["signal"],
                made_at=kept[0],
                until=_moment(hours[-1]["end_s"]),
                probability=first["contexts"].get(key, 0.0),
                low=first["low"],
                median=first["median"],
                high=first["high"],
                others=tuple(
                    SignalBand(
                        feature=name, signal=other["signal"], low=low, median=median, high=high
                    )
                    for name, other in plan.get("others", {}).items()
                    for low, median, high, *_ in [first["others"][name]]
                )
                or UNSET,
            )
            return _moment(first["start_s"]), basis
    return None


def publish_plans(
    study: str,
    speaks: Study | None,
    plans: Sequence[dict[str, Any]],
    before: Sequence[Mapping[str, Any]],
    topic: str,
    now: datetime,
) -> list[OutboxMessage]:
    """What the topic has to be told of a study's plans. Notes in each plan what stands there.

    A plan is sent again once another context is planned for within the hour, or later and the last
    message is an hour old, or half of what was sent is over. It is withdrawn with the null value.

    Args:
        study: name.
        speaks: the study where it publishes; else all its plans are withdrawn.
        plans: as they are kept from now on.
        before: as they were kept, with what stood on the topic.
    """
    stood = {
        plan["published"]["key"]: plan["published"] for plan in before if plan.get("published")
    }
    messages = []
    for plan in plans:
        plan["published"] = None
        if speaks is None or plan["state"] != "active":
            continue
        key = speaks.context_key(plan["context"])
        hours = [window for window in plan["windows"] if window["end_s"] > now.timestamp()]
        if not hours:
            continue
        stands = stood.pop(key, None)
        if stands is None or _is_old(stands, hours, now.timestamp()):
            stands = {
                "key": key,
                "sent_s": now.timestamp(),
                "hours": [[hour["start_s"], hour["end_s"], hour["key"]] for hour in hours][
                    :MOST_HOURS
                ],
            }
            value = plan_to_bytes(_published(speaks, key, plan, hours[:MOST_HOURS], now))
            messages.append(_message(study, key, value, topic, now))
        plan["published"] = stands
    return [*messages, *(_message(study, key, None, topic, now) for key in stood)]


def _is_old(stands: Mapping[str, Any], hours: Sequence[Mapping[str, Any]], now_s: float) -> bool:
    planned = {start_s: key for start_s, _, key in stands["hours"]}
    changed = [
        hour["start_s"]
        for hour in hours
        if planned.get(hour["start_s"], hour["key"]) != hour["key"]
    ]
    if changed and (min(changed) <= now_s + SOON_S or now_s >= stands["sent_s"] + AGAIN_S):
        return True
    return bool(2 * now_s >= stands["sent_s"] + stands["hours"][-1][1])


def send_plans_again(tx: Transaction, study: str) -> None:
    """The topic may hold other plans of a study than was noted, or none: the next forecast sends
    those that hold and withdraws the others."""
    kept = tx.forecast_plan(study)
    if kept is None or not any(plan.get("published") for plan in kept[1]["signals"]):
        return
    signals = [
        {**plan, "published": {**plan["published"], "sent_s": 0.0}}
        if plan.get("published")
        else plan
        for plan in kept[1]["signals"]
    ]
    tx.save_forecast_plan(study, {**kept[1], "signals": signals}, kept[0])


def _published(
    study: Study,
    key: str,
    plan: Mapping[str, Any],
    hours: Sequence[Mapping[str, Any]],
    now: datetime,
) -> PublishedPlan:
    same: list[list[Mapping[str, Any]]] = []
    for hour in hours:
        if same and same[-1][-1]["key"] == hour["key"] and same[-1][-1]["end_s"] == hour["start_s"]:
            same[-1].append(hour)
        else:
            same.append([hour])
    return PublishedPlan(
        study=study.name,
        context_key=key,
        context=plan["context"],
        feature=study.signals[0].name,
        signal=plan["signal"],
        others={name: other["signal"] for name, other in plan.get("others", {}).items()} or UNSET,
        made_at=now,
        windows=[
            PublishedHours(
                valid_from=_moment(run[0]["start_s"]),
                valid_until=_moment(run[-1]["end_s"]),
                context_key=run[0]["key"],
                low=min(hour["low"] for hour in run),
                median=sum(hour["median"] for hour in run) / len(run),
                high=max(hour["high"] for hour in run),
                others={name: _over(run, name) for name in plan.get("others", {})} or UNSET,
            )
            for run in same
        ],
    )


def _over(run: Sequence[Mapping[str, Any]], feature: str) -> PublishedBand:
    """A further signal in some hours."""
    lows, medians, highs, *_ = zip(*(hour["others"][feature] for hour in run), strict=True)
    return PublishedBand(low=min(lows), median=sum(medians) / len(run), high=max(highs))


def _message(study: str, key: str, value: bytes | None, topic: str, now: datetime) -> OutboxMessage:
    name = PLAN_KEY + key
    digest = hashlib.sha256(f"{name} {now.isoformat()}".encode()).hexdigest()[:20]
    return OutboxMessage(
        kind="plan",
        message_id=f"p-{digest}",
        topic=topic,
        key=name.encode(),
        value=value,
        study=study,
        context_key=name,
        created_at=now,
    )


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
