"""What is read from a plan of the coming hours, as the forecast stage keeps it in the store."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from tunerd.core.recommendation import ForecastBasis

__all__ = ["FORECAST_SOURCE", "made_ahead"]

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
            )
            return _moment(first["start_s"]), basis
    return None


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
