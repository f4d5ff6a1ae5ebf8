"""Ray: jobs of its job submission API, its export events of them, and results of Ray Train.

A job is ``JobDetails`` of ``ray/dashboard/modules/job/pydantic_models.py`` (``GET /api/jobs/``). An
export event is ``ExportSubmissionJobEventData`` of ``export_submission_job_event.proto``, as Ray
writes it into ``event_EXPORT_SUBMISSION_JOB.log``. What a job is of says its ``metadata``
(``ray job submit --metadata-json``). A result is a line of ``result.json``, which Ray Tune and the
first version of Ray Train write for each report (``python/ray/tune/logger/json.py``).
"""

import re
from collections.abc import Mapping
from typing import Any

from tunerd.events.foreign import (
    entries,
    half,
    in_words,
    mapping,
    measured,
    note_names,
    read_notes,
    since_1970,
    text,
    whole,
)
from tunerd.events.rejection import Rejection
from tunerd.events.values import MAX_INTEGER, describe

__all__ = ["RayJob", "RayResult"]

NOTES = "tunerd."
ENDS: Mapping[str, str] = {"SUCCEEDED": "succeeded", "FAILED": "failed", "STOPPED": "cancelled"}
WAITING, RUNNING = "PENDING", "RUNNING"
EXPORTED = "EXPORT_SUBMISSION_JOB"
LOOP = "train_loop_config."
"""Where Ray Train keeps what the loop was given."""
_NO_MEMORY = re.compile(r"out of memory|OutOfMemoryError", re.IGNORECASE)
_MOST_MESSAGE = 20_000
_OWN_METRICS = frozenset(
    {
        "training_iteration", "timestamp", "time_total_s", "time_this_iter_s", "pid", "done",
        "iterations_since_restore", "time_since_restore", "timesteps_total", "episodes_total",
        "should_checkpoint", "date", "hostname", "node_ip", "trial_id", "config",
    }
)  # fmt: skip


class RayJob:
    """Recognised by ``submission_id``, ``status`` and ``entrypoint``; an export event by its
    ``source_type``."""

    name = "ray-job"

    def recognises(self, content: Mapping[str, Any], headers: Mapping[str, bytes]) -> bool:  # noqa: ARG002
        """Whether this record is a job of Ray."""
        if "schema" in content:
            return False
        if content.get("source_type") == EXPORTED:
            return isinstance(content.get("event_data"), dict)
        return content.keys() >= {"submission_id", "status", "entrypoint"}

    def unwrap(
        self,
        content: dict[str, Any],
        headers: Mapping[str, bytes],  # noqa: ARG002
    ) -> dict[str, Any] | Rejection:
        """Half an event: ``completed`` of a job that ended, ``started`` of any other."""
        where = ""
        job: Mapping[str, Any] = content
        if content.get("source_type") == EXPORTED:
            where, job = "event_data.", mapping(content.get("event_data"))
        status = job.get("status")
        word = status if isinstance(status, str) else ""
        if word not in ENDS and word not in (WAITING, RUNNING):
            expected = ", ".join((WAITING, RUNNING, *ENDS))
            return Rejection(
                f"{where}status", f"expected one of {expected}, got {describe(status)}"
            )
        notes = read_notes(mapping(job.get("metadata")), NOTES)
        # A driver that nobody submitted has no submission id.
        named = "submission_job_id" if where else "submission_id"
        job_id = notes.job_id or text(job.get(named)) or text(job.get("job_id"))
        if job_id is None:
            return Rejection(f"{where}{named}", f"expected a text, got {describe(job.get(named))}")
        started = since_1970(job.get("start_time"), 1_000)
        ended = since_1970(job.get("end_time"), 1_000) if word in ENDS else None
        outcome = ENDS.get(word)
        message = text(job.get("message"), _MOST_MESSAGE)
        if outcome == "failed" and message and _NO_MEMORY.search(message):
            outcome = "out_of_memory"
        fields = notes.duration(started, ended) if outcome == "succeeded" else {}
        error = text(job.get("error_type"))
        return half(
            "started" if outcome is None else "completed",
            f"ray/{notes.cluster or 'ray'}",
            job_id,
            attempt=notes.attempt,
            status=outcome,
            # Of a job that waits it is the time of its submission.
            submitted_at=started,
            started_at=None if word == WAITING else started,
            finished_at=ended,
            labels=None if error is None else {"error_type": error},
            **fields,
            **notes.launched(),
        )


class RayResult:
    """Recognised by ``training_iteration``, ``trial_id`` and ``config``."""

    name = "ray-result"

    def recognises(self, content: Mapping[str, Any], headers: Mapping[str, bytes]) -> bool:  # noqa: ARG002
        """Whether this record is a result of Ray Train or Ray Tune."""
        ours = content.keys() >= {"training_iteration", "trial_id", "config"}
        return ours and "schema" not in content

    def unwrap(
        self,
        content: dict[str, Any],
        headers: Mapping[str, bytes],  # noqa: ARG002
    ) -> dict[str, Any] | Rejection:
        """Half an event: ``reported``, and ``completed`` of the result that says it is done."""
        settings = {
            name.removeprefix(LOOP): value for name, value in entries(content.get("config")).items()
        }
        notes = read_notes(settings, NOTES)
        noted = set(note_names(NOTES, settings))
        settings = {name: value for name, value in settings.items() if name not in noted}
        job_id = notes.job_id or text(content.get("trial_id"))
        if job_id is None:
            trial = describe(content.get("trial_id"))
            return Rejection("trial_id", f"expected a text, got {trial}")
        done = content.get("done") is True
        measured_s = measured(content.get("time_total_s"))
        host = text(content.get("hostname"))
        at_time = since_1970(content.get("timestamp"))
        return half(
            "completed" if done else "reported",
            f"ray/{notes.cluster or 'ray'}",
            job_id,
            attempt=notes.attempt,
            status="succeeded" if done else None,
            reported_at=None if done else at_time,
            finished_at=at_time if done else None,
            nodes=None if host is None else [host],
            metrics=_metrics(content),
            steps=whole(content.get("training_iteration"), MAX_INTEGER),
            measured_s=measured_s if measured_s is not None and measured_s >= 0 else None,
            **notes.launched(settings),
        )


def _metrics(content: Mapping[str, Any]) -> dict[str, float]:
    """Numbers that were reported, without Ray's own."""
    reported = {name: value for name, value in content.items() if name not in _OWN_METRICS}
    return {
        in_words(name): number
        for name, value in entries(reported).items()
        if not isinstance(value, bool) and (number := measured(value)) is not None
    }
