"""A study, a recommendation for it, and Jobs that want to be filled."""

import base64
import copy
import json
from pathlib import Path
from typing import Any

import pytest

from tunerd.client import Recommendations, context_key
from tunerd.webhook.launch import LaunchPlanner
from tunerd.webhook.review import answer

STUDY = """
schema = 1
name = "compress"
mode = "publish"
[objective]
metric = "wall_s"
goal = "minimize"
unit = "s"
[context]
file = { type = "category" }
[parameters]
threads = { type = "int", values = [1, 2, 4, 8] }
mode = { type = "category", values = ["fast", "best"] }
[[baseline]]
config = { threads = 1, mode = "fast" }
"""
KEY = context_key("compress", {"file": "category"}, {"file": "logs"})

JOB: dict[str, Any] = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {
        "name": "compress-7",
        "namespace": "ml",
        "annotations": {"tunerd.dev/study": "compress", "tunerd.dev/context.file": "logs"},
    },
    "spec": {
        "backoffLimit": 0,
        "template": {
            "spec": {
                "restartPolicy": "Never",
                "containers": [
                    {
                        "name": "main",
                        "image": "example.org/compress:1.0",
                        "command": ["zstd"],
                        "args": ["-T{threads}", "--mode={mode}", "${HOME}/{file}", "{}", "{{x}}"],
                        "env": [{"name": "LEVEL", "value": "3"}],
                    }
                ],
            }
        },
    },
}


def message(**changes: Any) -> dict[str, Any]:
    """A recommendation that is followed by every job."""
    return {
        "schema": "tunerd.recommendation/1",
        "recommendation_id": "r-1",
        "revision": 1,
        "state": "active",
        "study": "compress",
        "context_key": KEY,
        "context": {"file": "logs"},
        "valid_until": "2999-01-01T00:00:00Z",
        "candidates": [
            {
                "candidate_id": "c-1",
                "rank": 1,
                "kind": "exploit",
                "share": 1.0,
                "wanted": 0,
                "config": {"threads": 8, "mode": "best"},
            }
        ],
        "incumbent": None,
        "baseline": {"threads": 1, "mode": "fast"},
        "round": None,
        **changes,
    }


def save(path: Path, *messages: dict[str, Any]) -> None:
    known = Recommendations()
    for one in messages:
        known.take(one["context_key"], one)
    known.save(path)


def review(job: dict[str, Any], **changes: Any) -> bytes:
    """As Kubernetes sends it."""
    request = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": {"group": "batch", "version": "v1", "kind": "Job"},
        "resource": {"group": "batch", "version": "v1", "resource": "jobs"},
        "requestKind": {"group": "batch", "version": "v1", "kind": "Job"},
        "requestResource": {"group": "batch", "version": "v1", "resource": "jobs"},
        "name": "compress-7",
        "namespace": "ml",
        "operation": "CREATE",
        "userInfo": {"username": "ada", "groups": ["system:authenticated"]},
        "object": job,
        "oldObject": None,
        "dryRun": False,
        "options": {"apiVersion": "meta.k8s.io/v1", "kind": "CreateOptions"},
        **changes,
    }
    body = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}
    return json.dumps(body).encode()


def patched(job: dict[str, Any], response: dict[str, Any]) -> dict[str, Any]:
    """The object after the answer's JSON Patch (RFC 6902; only the operations that we send)."""
    made: Any = copy.deepcopy(job)
    if "patch" not in response:
        return made  # type: ignore[no-any-return]
    assert response["patchType"] == "JSONPatch"
    for step in json.loads(base64.b64decode(response["patch"])):
        *parents, name = [
            part.replace("~1", "/").replace("~0", "~") for part in step["path"][1:].split("/")
        ]
        inner = made
        for parent in parents:
            inner = inner[int(parent) if isinstance(inner, list) else parent]
        assert step["op"] == "add" or name in inner
        assert isinstance(inner, dict)
        inner[name] = step["value"]
    return made  # type: ignore[no-any-return]


class Webhook:
    """Answers in this process."""

    def __init__(self, folder: Path) -> None:
        self.studies = folder / "studies"
        self.studies.mkdir()
        (self.studies / "compress.toml").write_text(STUDY)
        self.file = folder / "recommendations.jsonl"
        self.now = 0.0
        save(self.file, message())
        self.planner = LaunchPlanner(self.studies, self.file, lambda: self.now)

    def ask(self, job: dict[str, Any], **changes: Any) -> dict[str, Any]:
        said = answer(review(job, **changes), self.planner)
        assert (said["apiVersion"], said["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
        response: dict[str, Any] = said["response"]
        assert response["uid"] == "705ab4f5-6393-11e8-b7cc-42010a800002"
        assert response["allowed"] is True
        return response

    def fill(self, job: dict[str, Any], **changes: Any) -> dict[str, Any]:
        response = self.ask(job, **changes)
        assert "warnings" not in response, response
        return patched(job, response)


@pytest.fixture
def webhook(tmp_path: Path) -> Webhook:
    return Webhook(tmp_path)
