"""Kubernetes: states of a Job (batch/v1) and of Kueue's Workload, as objects or watch events.

Their fields are those of ``staging/src/k8s.io/api/batch/v1/types.go`` in Kubernetes (1.27 to 1.34)
and of ``apis/kueue/v1beta1/workload_types.go`` in Kueue (0.9 to 0.14; v1beta2 has the same). An
object is seen again whenever anything about it changes, so a half has what of it is final in each
state: the same state is the same half, however often it comes.

A run that was cut short, because the Job was suspended or Kueue evicted it, is a job of its own:
its name has the time behind it (``UID@TIME``). Kubernetes does not count such runs, and the
trainer in the pod could not know the number. The run that ends the Job has the Job's own name.
"""

import re
from collections.abc import Mapping
from typing import Any

from tunerd.events.foreign import JobNotes, at, half, mapping, read_notes, text, the_only, whole
from tunerd.events.rejection import Rejection
from tunerd.events.values import describe

__all__ = ["DEFAULT_CLUSTER", "NOTES", "KubernetesState", "kubernetes_notes"]

NOTES = "tunerd.dev/"
"""What annotations and labels for tunerd begin with."""
DEFAULT_CLUSTER = "kubernetes"
"""An object does not say in which cluster it is; ``tunerd.dev/cluster`` does."""
QUEUE = "kueue.x-k8s.io/queue-name"
OF_JOB = "kueue.x-k8s.io/job-uid"
WATCHED = frozenset({"ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"})
HINT = "kubectl get jobs -o json | jq -c '.items[]'"
MOST_CONTAINERS = 100
_GOOD = re.compile(r"\b(?:success|succeeded|complete)")
_BAD = re.compile(r"\b(?:fail|error|not|never|without|cannot|unable)|n't\b")
"""What turns such a word round: "has not completed"."""


class KubernetesState:
    """Recognised by ``kind`` and ``apiVersion``, in a watch event by its ``object``."""

    name = "kubernetes"

    def recognises(self, content: Mapping[str, Any], headers: Mapping[str, bytes]) -> bool:  # noqa: ARG002
        """Whether this record is an object of Kubernetes, or says that one changed."""
        if "schema" in content:
            return False
        return isinstance(content.get("apiVersion"), str) or _is_watched(content)

    def unwrap(
        self,
        content: dict[str, Any],
        headers: Mapping[str, bytes],  # noqa: ARG002
    ) -> dict[str, Any] | Rejection:
        """Half an event: ``started`` until it has ended, then ``completed``."""
        where, deleted, obj = "", False, content
        if _is_watched(content):
            if content["type"] in ("BOOKMARK", "ERROR"):
                return Rejection("type", f"{describe(content['type'])} says nothing of a job")
            where, deleted, obj = "object.", content["type"] == "DELETED", content["object"]
        if isinstance(obj.get("items"), list):
            only = the_only(obj, "items", HINT)
            if isinstance(only, Rejection):
                return only
            obj = only
        group = (text(obj.get("apiVersion")) or "").partition("/")[0]
        if group == "batch" and obj.get("kind") == "Job":
            return _job(obj, where, deleted)
        if group == "kueue.x-k8s.io" and obj.get("kind") == "Workload":
            return _workload(obj, where, deleted)
        return Rejection(
            f"{where}kind",
            f"expected a Job of batch/v1 or a Workload of kueue.x-k8s.io, got "
            f"{describe(obj.get('kind'))}",
        )


def kubernetes_notes(metadata: object) -> JobNotes:
    """What an object's annotations and labels say for tunerd; annotations have the last word."""
    labels, annotations = mapping(at(metadata, "labels")), mapping(at(metadata, "annotations"))
    return read_notes({**labels, **annotations}, NOTES)


# -- Job ------------------------------------------------------------------------------------------


def _job(obj: Mapping[str, Any], where: str, deleted: bool) -> dict[str, Any] | Rejection:
    metadata, status = mapping(obj.get("metadata")), mapping(obj.get("status"))
    notes = kubernetes_notes(metadata)
    job_id = notes.job_id or text(metadata.get("uid"))
    if job_id is None:
        return Rejection(f"{where}metadata.uid", "is missing; expected that of the Job")
    true = _conditions(status)
    started = text(status.get("startTime"))
    labels = {"job_name": _name(metadata), "queue": text(at(metadata, "labels", QUEUE))}
    known = {
        **_known(notes, metadata, labels),
        "started_at": started,
        "gpus": _gpus(mapping(obj.get("spec"))),
    }
    if (ended := true.get("Complete")) is not None:
        finished = text(status.get("completionTime")) or _since(ended)
        known |= notes.duration(started, finished, least_s=1.0)
        return _completed(notes, job_id, known, "succeeded", finished, ended)
    if (ended := true.get("Failed")) is not None:
        late = ended.get("reason") == "DeadlineExceeded"
        return _completed(
            notes, job_id, known, "timeout" if late else "failed", _since(ended), ended
        )
    if deleted:
        finished = text(metadata.get("deletionTimestamp"))
        return _completed(notes, job_id, known, "cancelled", finished, {"reason": "Deleted"})
    # Of a Job of Kueue's the Workload says why it was suspended, and says it once.
    if (suspended := true.get("Suspended")) is not None and started and not labels["queue"]:
        return _completed(
            notes, f"{job_id}@{started}", known, "preempted", _since(suspended), suspended
        )
    return half("started", _source(notes), job_id, attempt=notes.attempt, **known)


def _gpus(spec: Mapping[str, Any]) -> int | None:
    """Of all pods that run at a time: limits of resources called ``…/gpu``."""
    containers = at(spec, "template", "spec", "containers")
    each_pod = 0
    for container in containers[:MOST_CONTAINERS] if isinstance(containers, list) else ():
        for name, count in mapping(at(container, "resources", "limits")).items():
            if name.endswith("/gpu"):
                each_pod += whole(count) or 0
    pods = whole(spec.get("parallelism"))
    return min(each_pod * (1 if pods is None else pods), 2**31 - 1) or None


# -- Workload -------------------------------------------------------------------------------------


def _workload(obj: Mapping[str, Any], where: str, deleted: bool) -> dict[str, Any] | Rejection:
    metadata, status = mapping(obj.get("metadata")), mapping(obj.get("status"))
    notes = kubernetes_notes(metadata)
    owner = _owner(metadata)
    job_id = (
        notes.job_id
        or text(at(metadata, "labels", OF_JOB))
        or text(owner.get("uid"))
        or text(metadata.get("uid"))
    )
    if job_id is None:
        return Rejection(f"{where}metadata.uid", "is missing; expected that of the Workload")
    true = _conditions(status)
    admitted = true.get("Admitted")
    labels = {
        "job_name": text(owner.get("name")) or _name(metadata),
        "queue": text(at(obj, "spec", "queueName")),
    }
    known = _known(notes, metadata, labels)
    if (ended := true.get("Finished")) is not None:
        return _completed(notes, job_id, known, _finish(ended), _since(ended), ended)
    if (evicted := true.get("Evicted")) is not None:
        since = _since(evicted)
        named = f"{job_id}@{since or ''}"
        return _completed(notes, named, known, _eviction(evicted), since, evicted)
    if deleted:
        finished = text(metadata.get("deletionTimestamp"))
        return _completed(notes, job_id, known, "cancelled", finished, {"reason": "Deleted"})
    known["started_at"] = None if admitted is None else _since(admitted)
    return half("started", _source(notes), job_id, attempt=notes.attempt, **known)


def _owner(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """The job that the Workload is of."""
    owners = metadata.get("ownerReferences")
    owners = [mapping(owner) for owner in owners] if isinstance(owners, list) else []
    return next((owner for owner in owners if owner.get("controller") is True), {})


def _finish(condition: Mapping[str, Any]) -> str:
    """Before version 0.9 the reason is ``JobFinished`` whatever came of it."""
    reason = condition.get("reason")
    if reason == "Succeeded":
        return "succeeded"
    if reason in ("AdmissionChecksRejected", "OutOfSync"):
        return "cancelled"
    message = (text(condition.get("message"), 1_000) or "").lower()
    good = reason == "JobFinished" and _GOOD.search(message) and not _BAD.search(message)
    return "succeeded" if good else "failed"


def _eviction(condition: Mapping[str, Any]) -> str:
    reason = text(condition.get("reason")) or ""
    if "MaximumExecutionTimeExceeded" in reason:
        return "timeout"
    if reason.startswith(("Deactivated", "InactiveWorkload")):
        return "cancelled"
    return "node_failure" if reason == "NodeFailures" else "preempted"


# -- both -----------------------------------------------------------------------------------------


def _is_watched(content: Mapping[str, Any]) -> bool:
    kind = content.get("type")
    return isinstance(kind, str) and kind in WATCHED and isinstance(content.get("object"), dict)


def _conditions(status: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Those that hold, by type."""
    conditions = status.get("conditions")
    return {
        condition["type"]: condition
        for condition in (conditions if isinstance(conditions, list) else ())
        if isinstance(condition, dict)
        and isinstance(condition.get("type"), str)
        and condition.get("status") == "True"
    }


def _since(condition: Mapping[str, Any]) -> str | None:
    return text(condition.get("lastTransitionTime"))


def _name(metadata: Mapping[str, Any]) -> str | None:
    name, namespace = text(metadata.get("name")), text(metadata.get("namespace"))
    return name if name is None or namespace is None else f"{namespace}/{name}"


def _source(notes: JobNotes) -> str:
    return f"kubernetes/{notes.cluster or DEFAULT_CLUSTER}"


def _known(
    notes: JobNotes, metadata: Mapping[str, Any], labels: Mapping[str, str | None]
) -> dict[str, Any]:
    """What is the same in each state."""
    given = {name: value for name, value in labels.items() if value is not None}
    submitted = text(metadata.get("creationTimestamp"))
    return {**notes.launched(), "submitted_at": submitted, "labels": given or None}


def _completed(
    notes: JobNotes,
    job_id: str,
    known: Mapping[str, Any],
    status: str,
    finished: str | None,
    condition: Mapping[str, Any],
) -> dict[str, Any]:
    reason = text(condition.get("reason"))
    labels = (known["labels"] or {}) | ({"reason": reason} if reason else {})
    ended = {**known, "labels": labels or None, "status": status, "finished_at": finished}
    return half("completed", _source(notes), job_id[:256], attempt=notes.attempt, **ended)
