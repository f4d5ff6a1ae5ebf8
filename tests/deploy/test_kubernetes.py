"""deploy/kubernetes: nothing here is a cluster, so everything short of that is checked."""

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.webhook.conftest import patched, review
from tunerd.cli.webhook import webhook
from tunerd.events import JobHalf, Rejection, read_job
from tunerd.metrics.definitions import DEFINITIONS
from tunerd.settings import load_settings
from tunerd.webhook.launch import LaunchPlanner
from tunerd.webhook.review import answer

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "kubernetes"
OBJECTS: list[dict[str, Any]] = [
    one for file in sorted(FOLDER.glob("*.yaml")) for one in yaml.safe_load_all(file.read_text())
]
OTHERS = ("cert-manager.io/v1", "keda.sh/v1alpha1")
"""Kinds that Kubernetes itself has no schema of."""


def find(kind: str, **labels: str) -> dict[str, Any]:
    (found,) = [
        one
        for one in OBJECTS
        if one["kind"] == kind and labels.items() <= one["metadata"].get("labels", {}).items()
    ]
    return found


DEPLOYMENT = find("Deployment")
POD = DEPLOYMENT["spec"]["template"]["spec"]
(HOOK,) = find("MutatingWebhookConfiguration")["webhooks"]


@pytest.mark.parametrize("version", ["1.31", "1.37"])
def test_objects_keep_to_their_schemas(version: str) -> None:
    native = [one for one in OBJECTS if one["apiVersion"] not in OTHERS]
    assert len(native) == 8
    for one in native:
        kubernetes_validate.validate(one, version, strict=True)


def test_the_webhook_never_refuses_and_never_keeps_waiting() -> None:
    assert HOOK["failurePolicy"] == "Ignore"
    assert HOOK["timeoutSeconds"] <= 5
    assert HOOK["sideEffects"] == "NoneOnDryRun"
    assert HOOK["rules"][0]["operations"] == ["CREATE"]


def test_names_fit_each_other() -> None:
    service = find("Service")
    client = HOOK["clientConfig"]["service"]
    assert (client["name"], client["namespace"]) == (
        service["metadata"]["name"],
        service["metadata"]["namespace"],
    )
    labels = DEPLOYMENT["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    certificate = find("Certificate")
    tls = next(one for one in POD["volumes"] if one["name"] == "tls")
    assert tls["secret"]["secretName"] == certificate["spec"]["secretName"]
    assert certificate["spec"]["dnsNames"] == [f"{client['name']}.{client['namespace']}.svc"]
    injected = find("MutatingWebhookConfiguration")["metadata"]["annotations"]
    name = f"{certificate['metadata']['namespace']}/{certificate['metadata']['name']}"
    assert injected["cert-manager.io/inject-ca-from"] == name


def test_the_command_line_is_understood_and_what_it_names_is_mounted() -> None:
    command, *arguments = POD["containers"][0]["args"]
    assert command == "webhook"
    given = webhook.make_context("webhook", arguments).params
    mounts = [Path(one["mountPath"]) for one in POD["containers"][0]["volumeMounts"]]
    for name in ("file", "certificate", "key"):
        assert given[name].parent in mounts
    assert given["port"] == POD["containers"][0]["ports"][0]["containerPort"]


def test_the_settings_are_sound(tmp_path: Path) -> None:
    file = tmp_path / "tunerd.toml"
    file.write_text(find("ConfigMap")["data"]["tunerd.toml"])
    assert load_settings(file, {}, check_studies=False).stream.kind == "kafka"


def test_it_has_no_rights() -> None:
    assert not {"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"} & {
        one["kind"] for one in OBJECTS
    }
    assert POD["automountServiceAccountToken"] is False
    security = POD["containers"][0]["securityContext"]
    assert security["readOnlyRootFilesystem"] is True
    assert security["capabilities"] == {"drop": ["ALL"]}


STUDIES = {
    "compress": """
schema = 1
name = "compress"
[objective]
metric = "wall_s"
goal = "minimize"
[context]
file = { type = "category" }
[parameters]
threads = { type = "int", values = [1, 2] }
level = { type = "int", values = [1, 3] }
[[baseline]]
config = { threads = 2, level = 3 }
""",
    "llm-pretrain": (ROOT / "deploy" / "studies" / "llm-pretrain.toml").read_text(),
}


@pytest.mark.parametrize("file", ["job.yaml", "job-kueue.yaml"])
def test_the_jobs_are_sent_filled_and_read(file: str, tmp_path: Path) -> None:
    job: dict[str, Any] = yaml.safe_load((FOLDER / file).read_text())
    study = job["metadata"]["labels"]["tunerd.dev/study"]
    assert HOOK["objectSelector"]["matchExpressions"][0]["key"] == "tunerd.dev/study"
    (tmp_path / f"{study}.toml").write_text(STUDIES[study])
    job["metadata"]["annotations"] |= {
        f"tunerd.dev/default.{name}": "1" for name in ("tp", "pp", "micro_batch")
    }
    planner = LaunchPlanner(tmp_path, tmp_path / "none.jsonl")
    response = answer(review(job), planner)["response"]
    assert "warnings" not in response, response
    filled = patched(job, response)
    kubernetes_validate.validate(filled, "1.37", strict=True)
    arguments = " ".join(filled["spec"]["template"]["spec"]["containers"][0]["args"])
    assert "{" not in arguments
    filled["metadata"] |= {"uid": "u-1", "creationTimestamp": "2026-11-20T08:00:00Z"}

    seen = read_job(json.dumps(filled).encode(), (), datetime(2026, 11, 21, tzinfo=UTC))
    assert isinstance(seen, JobHalf), seen if isinstance(seen, Rejection) else ""
    assert (seen.study, seen.type) == (study, "started")
    assert seen.fields["config"]


def test_the_metric_that_keda_asks_for_is_exported() -> None:
    (trigger,) = find("ScaledObject")["spec"]["triggers"]
    series = {one.series: one for one in DEFINITIONS if one.kind != "histogram"}
    metric = series["tunerd_recommended_parameter"]
    assert metric.name in trigger["metadata"]["query"]
    labels = [label.name for label in metric.labels]
    assert sorted(labels) == ["context", "parameter", "study"]
    for label in labels:
        assert f'{label}="' in trigger["metadata"]["query"]


AIRFLOW = """
class BaseOperator:
    def __init__(self, **options): pass
    class log:
        info = staticmethod(lambda *a: None)
"""
RUN = """
import sys
from types import SimpleNamespace
from tunerd_operator import TunerdOperator, AirflowException
def task(number, *command):
    operator = TunerdOperator(
        task_id="t", study="s", context={"file": "a"}, features={"file": "category"},
        command=command, defaults={"n": 3}, recommendations="none.jsonl", stream="stream",
    )
    ti = SimpleNamespace(dag_id="d", task_id="t", run_id="r", try_number=number)
    return operator.execute({"ti": ti})
assert task(1, sys.executable, "-c", "import sys; sys.exit({n} != 3)") > 0
try:
    task(2, sys.executable, "-c", "import sys; sys.exit({n})")
except AirflowException as error:
    assert "exit code 3" in str(error)
else:
    raise SystemExit("it failed and said nothing")
"""


@pytest.mark.slow
def test_airflow_s_operator_runs_and_reports_between_stubs(tmp_path: Path) -> None:
    (tmp_path / "airflow").mkdir()
    (tmp_path / "airflow" / "__init__.py").touch()
    (tmp_path / "airflow" / "models.py").write_text(AIRFLOW)
    (tmp_path / "airflow" / "exceptions.py").write_text("class AirflowException(Exception): pass\n")
    (tmp_path / "stream").mkdir()
    operator = (ROOT / "examples" / "airflow" / "tunerd_operator.py").read_text()
    (tmp_path / "tunerd_operator.py").write_text(operator)
    path = f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(ROOT)!r}]\n"
    subprocess.run([sys.executable, "-c", path + RUN], cwd=tmp_path, check=True)
    lines = (tmp_path / "stream" / "tunerd.jobs.jsonl").read_text().splitlines()
    first, second = map(json.loads, lines)
    assert (first["status"], first["config"], first["job_id"]) == ("succeeded", {"n": 3}, "d/t/r")
    assert (second["status"], second["attempt"], second["metrics"]) == ("failed", 2, {})
