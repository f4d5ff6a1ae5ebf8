"""Observations and messages for tests of the store."""

from datetime import UTC, datetime, timedelta
from typing import Any

from tunerd.core.observation import Observation, Status
from tunerd.store import OutboxMessage, Store

NOW = datetime(2026, 11, 20, 10, 0, 0, 123456, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)
STUDY = "llm-pretrain"


def observation(event_id: str = "e1", **changes: Any) -> Observation:
    """A finished job of STUDY."""
    values: dict[str, Any] = {
        "study": STUDY,
        "source": "slurm/a",
        "event_id": event_id,
        "job_id": f"job-{event_id}",
        "status": Status.SUCCEEDED,
        "finished_at": NOW - timedelta(minutes=5),
        "context": {"gpu": "H100", "n_gpus": 128},
        "config": {"tp": 8, "sharding": ["FULL_SHARD", "NO_SHARD"]},
        "metrics": {"tokens_per_second_per_gpu": 412.7},
        "content_hash": f"sha256:{event_id}",
    }
    return Observation(**values | changes)


def message(name: str = "m", **changes: Any) -> OutboxMessage:
    """A rejected record in the outbox."""
    values: dict[str, Any] = {
        "kind": "rejected",
        "message_id": name,
        "topic": "rejected",
        "key": None,
        "value": name.encode(),
        "created_at": NOW,
    }
    return OutboxMessage(**values | changes)


def recommended(key: str, revision: int, **changes: Any) -> OutboxMessage:
    """A revision of a recommendation in the outbox."""
    values: dict[str, Any] = {
        "kind": "recommendation",
        "topic": "recommendations",
        "key": key.encode(),
        "value": str(revision).encode(),
        "study": STUDY,
        "context_key": key,
        "revision": revision,
    }
    return message(f"{key}#{revision}", **values | changes)


def add_study(store: Store, name: str = STUDY) -> None:
    """Publish a first generation."""
    store.publish_generation(name, "sha256:first", "first", "test", NOW)
