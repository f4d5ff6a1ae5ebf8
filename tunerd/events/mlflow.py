"""MLflow: a run as ``runs/search`` and ``runs/get`` of its REST API return it.

Its fields are those of ``Run`` in ``mlflow/protos/service.proto`` (MLflow 1.0 to 3). Parameters are
the configuration. Tags say what of them is context, and of which study: ``tunerd.study``,
``tunerd.context``.
"""

from collections.abc import Mapping
from typing import Any

from tunerd.events.foreign import (
    JobNotes,
    at,
    half,
    in_words,
    is_name,
    mapping,
    measured,
    note_names,
    read_notes,
    since_1970,
    text,
    the_only,
    typed,
    whole,
)
from tunerd.events.rejection import Rejection
from tunerd.events.values import MAX_INTEGER, describe

__all__ = ["MlflowRun"]

NOTES = "tunerd."
ENDS: Mapping[str, str] = {"FINISHED": "succeeded", "FAILED": "failed", "KILLED": "cancelled"}
RUNNING = frozenset({"RUNNING", "SCHEDULED"})
HINT = "curl … | jq -c '.runs[]'"
MOST = 1_000
"""Parameters, tags and metrics that are looked at."""


class MlflowRun:
    """Recognised by ``info.run_id`` and ``data``; a whole answer by its ``runs``."""

    name = "mlflow"

    def recognises(self, content: Mapping[str, Any], headers: Mapping[str, bytes]) -> bool:  # noqa: ARG002
        """Whether this record is a run of MLflow."""
        if "schema" in content:
            return False
        return _is_run(content) or _is_run(content.get("run")) or _are_runs(content)

    def unwrap(
        self,
        content: dict[str, Any],
        headers: Mapping[str, bytes],  # noqa: ARG002
    ) -> dict[str, Any] | Rejection:
        """Half an event: ``completed`` of a run that ended, ``reported`` of one that logs."""
        run: Any = content
        if not _is_run(run):
            run = content.get("run") if _is_run(content.get("run")) else None
        if run is None:
            run = the_only(content, "runs", HINT)
            if isinstance(run, Rejection):
                return run
        info, data = mapping(run.get("info")), mapping(run.get("data"))
        status = info.get("status")
        word = status if isinstance(status, str) else ""
        if word not in ENDS and word not in RUNNING:
            expected = ", ".join((*ENDS, *sorted(RUNNING)))
            return Rejection("info.status", f"expected one of {expected}, got {describe(status)}")
        if info.get("lifecycle_stage") == "deleted":
            return Rejection("info.lifecycle_stage", "somebody deleted this run")
        params, tags = _pairs(data.get("params")), _pairs(data.get("tags"))
        notes = read_notes({**params, **tags}, NOTES)
        job_id = notes.job_id or text(info.get("run_id"))
        if job_id is None:
            return Rejection("info.run_id", f"expected a text, got {describe(info.get('run_id'))}")
        return _half(notes, job_id, word, info, data, params, tags)


def _half(
    notes: JobNotes,
    job_id: str,
    word: str,
    info: Mapping[str, Any],
    data: Mapping[str, Any],
    params: Mapping[str, Any],
    tags: Mapping[str, Any],
) -> dict[str, Any]:
    noted = set(note_names(NOTES, params))
    settings = {
        name: value
        for name, raw in params.items()
        if name not in noted and (value := typed(raw)) is not None
    }
    started, ended = since_1970(info.get("start_time"), 1_000), None
    if word in ENDS:
        ended = since_1970(info.get("end_time"), 1_000)
    metrics, steps = _metrics(data.get("metrics"))
    fields = notes.duration(started, ended) if word == "FINISHED" else {}
    metrics = {**fields.pop("metrics", {}), **metrics}
    labels = {
        "run_name": text(info.get("run_name")) or text(tags.get("mlflow.runName")),
        "experiment_id": text(info.get("experiment_id")),
        "source": text(tags.get("mlflow.source.name")),
    }
    kind: Any = "completed" if word in ENDS else "reported" if metrics else "started"
    return half(
        kind,
        f"mlflow/{notes.cluster or 'mlflow'}",
        job_id,
        attempt=notes.attempt,
        status=ENDS.get(word),
        started_at=started,
        finished_at=ended,
        user=text(info.get("user_id")) or text(tags.get("mlflow.user")),
        labels={name: value for name, value in labels.items() if value is not None} or None,
        metrics=metrics or None,
        steps=steps,
        **fields,
        **notes.launched(settings),
    )


def _is_run(content: object) -> bool:
    return at(content, "info", "run_id") is not None and isinstance(at(content, "data"), dict)


def _are_runs(content: Mapping[str, Any]) -> bool:
    runs = content.get("runs")
    return isinstance(runs, list) and bool(runs) and _is_run(runs[0])


def _pairs(listed: object) -> dict[str, Any]:
    """Of ``[{"key": "lr", "value": "0.1"}]``; the last of a name counts."""
    pairs = listed[:MOST] if isinstance(listed, list) else []
    return {
        pair["key"]: pair.get("value")
        for pair in pairs
        if isinstance(pair, dict) and isinstance(pair.get("key"), str) and is_name(pair["key"])
    }


def _metrics(listed: object) -> tuple[dict[str, float], int | None]:
    """Metrics that were logged last, without those of the machine; and their highest step."""
    metrics: dict[str, float] = {}
    highest = None
    for entry in listed[:MOST] if isinstance(listed, list) else ():
        name, number = at(entry, "key"), measured(at(entry, "value"))
        if isinstance(name, str) and is_name(name) and not name.startswith("system/"):
            step = whole(at(entry, "step"), MAX_INTEGER)
            highest = step if highest is None else max(highest, step or 0)
            if number is not None:
                metrics[in_words(name)] = number
    return metrics, highest
