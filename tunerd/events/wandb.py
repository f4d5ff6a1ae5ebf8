"""Weights & Biases: a run with its config and its summary, as programs export them.

Their names are those of ``Run`` in ``wandb/apis/public/runs.py`` (wandb 0.15 to 0.22) and of W&B's
GraphQL API, which has ``config`` and ``summaryMetrics`` as JSON texts. The key ``tunerd`` of the
config says of which study a run is, and what of the config is context.
"""

from collections.abc import Mapping
from typing import Any

from tunerd.events.foreign import (
    at,
    entries,
    half,
    in_words,
    measured,
    note_names,
    read_notes,
    since_1970,
    text,
    utc,
    whole,
)
from tunerd.events.rejection import Rejection
from tunerd.events.values import MAX_INTEGER, describe, lenient_json

__all__ = ["WandbRun"]

NOTES = "tunerd."
ENDS: Mapping[str, str] = {
    "finished": "succeeded",
    "crashed": "failed",
    "failed": "failed",
    "killed": "cancelled",
    "preempted": "preempted",
    "preempting": "preempted",
}
RUNNING = frozenset({"running", "pending"})
SUMMARIES = ("summary", "summaryMetrics", "summary_metrics")
_OWN = ("_", "gradients/", "gradients.", "graph", "parameters/", "system/")


class WandbRun:
    """Recognised by ``state``, ``config`` and a summary."""

    name = "wandb"

    def recognises(self, content: Mapping[str, Any], headers: Mapping[str, bytes]) -> bool:  # noqa: ARG002
        """Whether this record is a run of W&B."""
        if "schema" in content:
            return False
        summary = any(name in content for name in SUMMARIES)
        named = "id" in content or "name" in content
        return summary and named and {"state", "config"} <= content.keys()

    def unwrap(
        self,
        content: dict[str, Any],
        headers: Mapping[str, bytes],  # noqa: ARG002
    ) -> dict[str, Any] | Rejection:
        """Half an event: ``completed`` of a run that ended, ``reported`` of one that logs."""
        state = content["state"]
        word = state.lower() if isinstance(state, str) else ""
        if word not in ENDS and word not in RUNNING:
            expected = ", ".join((*ENDS, *sorted(RUNNING)))
            return Rejection("state", f"expected one of {expected}, got {describe(state)}")
        summary = next((content[name] for name in SUMMARIES if name in content), None)
        config, summary = _config(_object(content["config"])), _object(summary)
        settings = entries(config)
        notes = read_notes(settings, NOTES)
        noted = set(note_names(NOTES, settings))
        settings = {
            name: value
            for name, value in settings.items()
            if name not in noted and not name.startswith("_")
        }
        # In the GraphQL API a run's `name` is what everybody else calls its id.
        named = "id" if "id" in content and "displayName" not in content else "name"
        job_id = notes.job_id or text(content.get(named))
        if job_id is None:
            return Rejection(named, f"expected a text, got {describe(content.get(named))}")
        metrics = _metrics(summary)
        kind: Any = "completed" if word in ENDS else "reported" if metrics else "started"
        started = utc(_first(content, "created_at", "createdAt"))
        labels = {
            "run_name": text(_first(content, "display_name", "displayName", "name")),
            "project": text(at(content, "project", "name")) or text(content.get("project")),
            "group": text(content.get("group")),
            "sweep": text(_first(content, "sweep_id", "sweepId", "sweepName")),
        }
        return half(
            kind,
            f"wandb/{notes.cluster or 'wandb'}",
            job_id,
            attempt=notes.attempt,
            status=ENDS.get(word),
            started_at=started,
            finished_at=_end(content, summary) if word in ENDS else None,
            user=text(at(content, "user", "username")) or text(content.get("user")),
            labels={name: value for name, value in labels.items() if value is not None} or None,
            metrics=metrics or None,
            steps=whole(at(summary, "_step"), MAX_INTEGER),
            measured_s=_runtime(summary),
            **notes.launched(settings),
        )


def _object(value: object) -> Any:
    if isinstance(value, str):
        try:
            return lenient_json(value)
        except ValueError:
            return None
    return value


def _config(config: object) -> object:
    """Without the ``{"value": …, "desc": …}`` around each entry, which the GraphQL API has."""
    if not isinstance(config, dict):
        return None
    return {
        name: value["value"] if isinstance(value, dict) and "value" in value else value
        for name, value in config.items()
    }


def _metrics(summary: object) -> dict[str, float]:
    """Numbers of the summary, without W&B's own."""
    if not isinstance(summary, dict):
        return {}
    logged = {name: value for name, value in summary.items() if not name.startswith(_OWN)}
    return {
        in_words(name): number
        for name, value in entries(logged).items()
        if not isinstance(value, bool) and (number := measured(value)) is not None
    }


def _runtime(summary: object) -> float | None:
    seconds = measured(at(summary, "_runtime"))
    return seconds if seconds is not None and seconds >= 0 else None


def _end(content: Mapping[str, Any], summary: object) -> str | None:
    """When it was heard of last: W&B keeps no other end."""
    heard = _first(content, "heartbeat_at", "heartbeatAt", "heartbeat", "updatedAt", "updated_at")
    return since_1970(at(summary, "_timestamp")) or utc(heard)


def _first(content: Mapping[str, Any], *names: str) -> Any:
    return next((content[name] for name in names if content.get(name) is not None), None)
