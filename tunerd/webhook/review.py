"""One AdmissionReview (admission.k8s.io/v1): what is filled into a Job, as a JSON Patch.

The fields are those of ``staging/src/k8s.io/api/admission/v1/types.go`` in Kubernetes. A Job says
by annotations that it wants to be filled (``tunerd.dev/study``); anything else is left alone.
An object that was filled before is filled with the same again, so Kubernetes may ask twice.
"""

import base64
import json
import logging
import re
from collections.abc import Mapping
from typing import Any

from tunerd.errors import MisconfiguredError
from tunerd.events.foreign import JobNotes, at, mapping, text, typed
from tunerd.events.kubernetes import DEFAULT_CLUSTER, NOTES, kubernetes_notes
from tunerd.exec.fill import environment_of, fill
from tunerd.webhook.launch import LaunchError, LaunchPlan, LaunchPlanner

__all__ = ["NoReviewError", "answer"]

log = logging.getLogger("tunerd.webhook")

TEMPLATES: Mapping[str, tuple[str, ...]] = {
    "Job": ("spec", "template"),
    "PodTemplate": ("template",),
    "Pod": (),
}
"""By kind, where the pod is."""
JOB_UID = "metadata.labels['batch.kubernetes.io/controller-uid']"
"""Kubernetes 1.27 and later label the pods of a Job with its uid."""
VARIABLE = re.compile(r"[-._A-Za-z][-._A-Za-z0-9]*")
"""With a variable of any other name Kubernetes refuses the Job; ``TUNERD_CONFIG`` has its value."""
MOST_WARNING = 200
MOST_CONTAINERS = 100


class NoReviewError(ValueError):
    """A request that is no AdmissionReview: there is no uid to answer."""


def answer(body: bytes, planner: LaunchPlanner, cluster: str = DEFAULT_CLUSTER) -> dict[str, Any]:
    """The AdmissionReview to send back.

    Raises:
        NoReviewError: the body is none.
    """
    request = _request(body)
    response: dict[str, Any] = {"uid": request["uid"], "allowed": True}
    try:
        patch = _patch(request, planner, cluster)
    except (LaunchError, MisconfiguredError) as error:
        response["warnings"] = [_warning(str(error))]
    except Exception as error:  # a fault of ours: the Job must not wait for its repair
        log.exception("a Job was admitted unchanged")
        response["warnings"] = [_warning(f"{type(error).__name__} in tunerd webhook")]
    else:
        if patch:
            response["patchType"] = "JSONPatch"
            response["patch"] = base64.b64encode(json.dumps(patch).encode()).decode()
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": response,
    }


def _request(body: bytes) -> Mapping[str, Any]:
    try:
        review = json.loads(body)
    except (ValueError, RecursionError):
        raise NoReviewError("the body is not JSON") from None
    if at(review, "kind") != "AdmissionReview" or at(review, "apiVersion") != "admission.k8s.io/v1":
        raise NoReviewError("expected an AdmissionReview of admission.k8s.io/v1")
    request = at(review, "request")
    if not isinstance(at(request, "uid"), str):
        raise NoReviewError("request.uid is missing")
    return mapping(request)


def _warning(message: str) -> str:
    """One short line: Kubernetes shows it to whoever creates the Job."""
    line = "".join(c if c.isprintable() else " " for c in f"tunerd: {message}; unchanged")
    return line if len(line) <= MOST_WARNING else f"{line[: MOST_WARNING - 1]}…"


def _patch(
    request: Mapping[str, Any], planner: LaunchPlanner, cluster: str
) -> list[dict[str, Any]]:
    job = mapping(request.get("object"))
    path = TEMPLATES.get(text(job.get("kind")) or "")
    if request.get("operation") != "CREATE" or path is None:
        return []
    template = mapping(at(job, *path))
    metadata = mapping(job.get("metadata"))
    notes = kubernetes_notes(metadata)
    if notes.study is None:
        metadata = mapping(template.get("metadata"))
        notes = kubernetes_notes(metadata)
    if notes.study is None:
        return []
    plan = _plan(request, metadata, notes, planner)
    environment = _environment(str(job["kind"]), plan, notes, cluster)
    containers = at(template, "spec", "containers")
    if not isinstance(containers, list) or not containers:
        raise LaunchError("the pod has no containers")
    wanted = _wanted(metadata, containers)
    patch: list[dict[str, Any]] = []
    for place, container in enumerate(containers[:MOST_CONTAINERS]):
        if isinstance(container, dict) and text(container.get("name")) in wanted:
            where = "/" + "/".join((*path, "spec", "containers", str(place)))
            patch += _filled(where, container, plan, notes, environment)
    return patch + _annotated(job, plan, notes, cluster)


def _plan(
    request: Mapping[str, Any],
    metadata: Mapping[str, Any],
    notes: JobNotes,
    planner: LaunchPlanner,
) -> LaunchPlan:
    """What the Job is launched with; what it says itself stays."""
    if notes.config is not None:
        return LaunchPlan(dict(notes.config), None)
    if f"{NOTES}config" in mapping(metadata.get("annotations")):
        # It would stay, and the record of the Job's end would not say what it ran with.
        raise LaunchError(f"{NOTES}config is no JSON object")
    # Of a name that Kubernetes will complete nothing is known yet but this request.
    job_id = notes.job_id or text(metadata.get("name")) or str(request["uid"])
    space = text(request.get("namespace")) or ""
    prefix = f"{NOTES}default."
    defaults = {
        name.removeprefix(prefix): typed(value)
        for name, value in mapping(metadata.get("annotations")).items()
        if name.startswith(prefix)
    }
    return planner.plan(
        notes.study or "",
        notes.context or {},
        f"{space}/{job_id}",
        notes.attempt or 1,
        defaults,
        counts=request.get("dryRun") is not True,
    )


def _wanted(metadata: Mapping[str, Any], containers: list[Any]) -> set[str | None]:
    """Names of the containers to fill: all, or those of ``tunerd.dev/containers``."""
    names = {text(at(container, "name")) for container in containers}
    given = text(at(metadata, "annotations", f"{NOTES}containers"), 10_000)
    if given is None:
        return names
    wanted: set[str | None] = {name.strip() for name in given.split(",")}
    if missing := wanted - names:
        raise LaunchError(f"there is no container {min(map(str, missing))[:63]!r}")
    return wanted


def _filled(
    where: str,
    container: Mapping[str, Any],
    plan: LaunchPlan,
    notes: JobNotes,
    environment: list[dict[str, Any]],
) -> list[dict[str, Any]]:
    former = container.get("env")
    env = former if isinstance(former, list) else []
    there = {text(at(variable, "name")) for variable in env}
    if notes.config is not None and "TUNERD_CONFIG" in there:
        return []  # it was filled before: a brace that is left is the program's own
    patch: list[dict[str, Any]] = []
    for field in ("command", "args"):
        given = container.get(field)
        if not isinstance(given, list) or not all(isinstance(part, str) for part in given):
            continue
        filled = _arguments(given, plan, notes)
        if filled != given:
            patch.append({"op": "replace", "path": f"{where}/{field}", "value": filled})
    added = [variable for variable in environment if variable["name"] not in there]
    if added:
        # First, so that the container's own variables may refer to them.
        patch.append({"op": "add", "path": f"{where}/env", "value": [*added, *env]})
    return patch


def _arguments(given: list[str], plan: LaunchPlan, notes: JobNotes) -> list[str]:
    """The arguments with their placeholders filled in. Raises MisconfiguredError."""
    config, context = _escaped(plan.config), _escaped(notes.context or {})
    return fill(given, config, context).arguments


def _escaped(values: Mapping[str, Any]) -> dict[str, Any]:
    """Kubernetes itself replaces ``$(NAME)`` in arguments and variables, unless it is ``$$(``."""
    return {
        name: value.replace("$(", "$$(") if isinstance(value, str) else value
        for name, value in values.items()
    }


def _environment(
    kind: str, plan: LaunchPlan, notes: JobNotes, cluster: str
) -> list[dict[str, Any]]:
    named: dict[str, str | None] = {
        **_escaped(environment_of(plan.config)),
        "TUNERD_JOB_ID": notes.job_id,
        "TUNERD_ATTEMPT": None if notes.attempt is None else str(notes.attempt),
        "TUNERD_CLUSTER": notes.cluster or cluster,
        "TUNERD_RECOMMENDATION_ID": _recommendation(plan, notes),
        "TUNERD_CANDIDATE_ID": plan.choice.candidate_id if plan.choice else notes.candidate_id,
    }
    variables: list[dict[str, Any]] = [
        {"name": name, "value": value}
        for name, value in named.items()
        if value is not None and VARIABLE.fullmatch(name)
    ]
    if notes.job_id is None:
        # The uid is not known before the Job is created. Kubernetes tells it to the pod.
        path = JOB_UID if kind == "Job" else "metadata.uid"
        source = {"fieldRef": {"fieldPath": path}}
        variables.append({"name": "TUNERD_JOB_ID", "valueFrom": source})
    return variables


def _recommendation(plan: LaunchPlan, notes: JobNotes) -> str | None:
    return plan.choice.recommendation_id if plan.choice else notes.recommendation_id


def _annotated(
    job: Mapping[str, Any], plan: LaunchPlan, notes: JobNotes, cluster: str
) -> list[dict[str, Any]]:
    """Annotations that say what was filled in: for people, and for the record of the Job's end."""
    choice = plan.choice
    wanted = {
        "config": None if notes.config is not None else json.dumps(plan.config),
        "recommendation-id": choice and choice.recommendation_id,
        "candidate-id": choice and choice.candidate_id,
        "choice": choice and f"{choice.kind}, {choice.match}",
        "cluster": None if notes.cluster else cluster,
    }
    there = at(job, "metadata", "annotations")
    known = mapping(there)
    added: list[dict[str, Any]] = [
        {"op": "add", "path": f"/metadata/annotations/tunerd.dev~1{name}", "value": value}
        for name, value in wanted.items()
        if value is not None and f"{NOTES}{name}" not in known
    ]
    if added and not isinstance(there, dict):
        added = [{"op": "add", "path": "/metadata/annotations", "value": {}}, *added]
        if not isinstance(job.get("metadata"), dict):
            added = [{"op": "add", "path": "/metadata", "value": {}}, *added]
    return added
