"""A record of another tool, read: a half of a job, or the reason why it is none."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from tunerd.events import JobHalf, Rejection, read_job

__all__ = ["NOW", "half", "read", "reason"]

NOW = datetime(2026, 11, 21, tzinfo=UTC)


def read(record: Mapping[str, Any]) -> JobHalf | Rejection:
    """Whatever becomes of it, but a whole job."""
    event = read_job(json.dumps(record).encode(), (), NOW)
    assert isinstance(event, JobHalf | Rejection)
    return event


def half(record: Mapping[str, Any]) -> JobHalf:
    """The half of a job that it is; samples have secrets in them, which no half may hold."""
    event = read(record)
    assert isinstance(event, JobHalf), event
    assert "secret" not in repr(event)
    return event


def reason(record: Mapping[str, Any]) -> str:
    """Why it is none."""
    event = read(record)
    assert isinstance(event, Rejection), event
    return event.reason
