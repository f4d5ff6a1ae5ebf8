"""deploy/kubernetes/chart, rendered by a real helm: it is what Kustomize renders, and refuses what
cannot be right."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from click.testing import CliRunner, Result

from tests.deploy.pods import laid_out
from tests.needs import without
from tunerd import __version__
from tunerd.cli import cli

Object = dict[str, Any]

FOLDER = Path(__file__).parents[2] / "deploy" / "kubernetes"
CHART = FOLDER / "chart"
SETTINGS = (FOLDER / "daemon" / "tunerd.toml").read_text()
STUDY = (FOLDER / "daemon" / "studies" / "compress.toml").read_text()
VALUES: Object = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA: Object = json.loads((CHART / "values.schema.json").read_text())
CHART_ONLY = {
    "app.kubernetes.io/instance",
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/version",
    "helm.sh/chart",
    "helm.sh/resource-policy",
    "checksum/settings",
    "checksum/studies",
}
"""Labels and annotations that Kustomize has no use for: it renders one installation, and a changed
file has another name there."""


def helm(*arguments: str, values: Object | None = None) -> subprocess.CompletedProcess[str]:
    program = shutil.which("helm") or without("helm", 'PATH="$PATH:$(.ci/helm)" builds it with Go')
    return subprocess.run(
        [program, *arguments, *(() if values is None else ("--values", "-"))],
        input=None if values is None else yaml.safe_dump(values),
        capture_output=True,
        text=True,
    )


def render(
    values: Object | None = None, release: str = "tunerd", chart: Path = CHART
) -> list[Object]:
    """What Helm would apply; each object that Kubernetes itself knows keeps to its schema."""
    done = helm("template", release, str(chart), "--namespace=tunerd", values=values or {})
    assert done.returncode == 0, done.stderr
    for document in yaml.compose_all(done.stdout, yaml.CSafeLoader):
        no_key_is_there_twice(document)
    objects = [one for one in yaml.load_all(done.stdout, yaml.CSafeLoader) if one is not None]
    for one in objects:
        if one["apiVersion"].split("/")[0] not in ("monitoring.coreos.com", "kafka.strimzi.io"):
            for version in ("1.31", "1.37"):
                kubernetes_validate.validate(one, version, strict=True)
    return objects


def no_key_is_there_twice(node: Any) -> None:
    """YAML's readers take the last one in silence."""
    if isinstance(node, yaml.MappingNode):
        keys = [key.value for key, _ in node.value]
        assert len(keys) == len(set(keys)), keys
        for _, value in node.value:
            no_key_is_there_twice(value)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            no_key_is_there_twice(value)


def refused(values: Object, release: str = "tunerd") -> str:
    done = helm("template", release, str(CHART), values=values)
    assert done.returncode != 0
    assert done.stdout == ""
    return done.stderr


def only(objects: list[Object], kind: str, name: str | None = None) -> Object:
    (found,) = [
        one for one in objects if one["kind"] == kind and name in (None, one["metadata"]["name"])
    ]
    return found


def pod(objects: list[Object]) -> Object:
    template: Object = only(objects, "Deployment")["spec"]["template"]
    return template


def kustomized() -> list[Object]:
    """What Kustomize renders, without the hashes in its names."""
    if shutil.which("kubectl"):
        command = ["kubectl", "kustomize"]
    elif shutil.which("kustomize"):
        command = ["kustomize", "build"]
    else:
        without("kustomize", 'PATH="$PATH:$(.ci/helm)" builds it with Go')
    done = subprocess.run([*command, FOLDER / "daemon"], capture_output=True, text=True, check=True)
    text = re.sub(r"(tunerd-daemon(-studies)?)-[a-z0-9]{10}\b", r"\1", done.stdout)
    return list(yaml.safe_load_all(text))


def shared(value: Any) -> Any:
    """All of it that Kustomize has as well."""
    if isinstance(value, list):
        return [shared(item) for item in value]
    if isinstance(value, dict):
        inner = {key: shared(item) for key, item in value.items() if key not in CHART_ONLY}
        return {key: item for key, item in inner.items() if (key, item) != ("annotations", {})}
    return value


def by_name(objects: list[Object]) -> dict[tuple[str, str], Object]:
    return {(one["kind"], one["metadata"]["name"]): one for one in objects}


# -- one fact, one home --------------------------------------------------------------------


@pytest.mark.slow
def test_it_renders_what_kustomize_renders() -> None:
    chart, folder = by_name(shared(render())), by_name(kustomized())
    assert chart.keys() == folder.keys()
    for key, expected in folder.items():
        # Kustomize labels some objects with their name, the chart labels all of them.
        expected["metadata"]["labels"].setdefault("app.kubernetes.io/name", "tunerd")
        assert chart[key] == expected, key


@pytest.mark.slow
def test_strimzi_gets_what_the_file_says() -> None:
    plain = by_name(render())
    more = by_name(render({"strimzi": {"enabled": True}}))
    objects = [shared(more[key]) for key in more.keys() - plain.keys()]
    file = list(yaml.safe_load_all((FOLDER / "daemon" / "kafka.yaml").read_text()))
    for one in file:
        one["metadata"]["namespace"] = "kafka"
        one["metadata"]["labels"] |= {
            "app.kubernetes.io/name": "tunerd",
            "app.kubernetes.io/part-of": "tunerd",
        }
    assert by_name(objects) == by_name(file)
    # A release that is uninstalled takes no topic with it.
    for one in more.values():
        kept = one["metadata"].get("annotations", {}).get("helm.sh/resource-policy")
        assert kept == ("keep" if one["kind"] == "KafkaTopic" else None)


def test_versions_are_the_same() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    (image,) = yaml.safe_load((FOLDER / "daemon" / "kustomization.yaml").read_text())["images"]
    assert chart["appVersion"] == image["newTag"] == __version__
    assert VALUES["image"]["repository"] == image["newName"]


def test_the_schema_knows_the_values_that_are_there_and_no_others() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    jsonschema.validate(VALUES, SCHEMA)

    def compare(schema: Object, values: Object, where: str) -> None:
        schema = (
            SCHEMA["definitions"][schema["$ref"].split("/")[-1]] if "$ref" in schema else schema
        )
        if "properties" not in schema:
            return
        assert schema["additionalProperties"] is False, where
        assert schema["properties"].keys() - {"global"} == values.keys(), where
        for key, value in values.items():
            if isinstance(value, dict):
                compare(schema["properties"][key], value, f"{where}.{key}")

    compare(SCHEMA, VALUES, "values")


@pytest.mark.slow
def test_it_passes_helms_linter() -> None:
    everything = {"strimzi": {"enabled": True}, "secrets": {"http": "tunerd-http"}}
    for values in ({}, everything):
        done = helm("lint", "--strict", str(CHART), values=values)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "[WARNING]" not in done.stdout


@pytest.mark.slow
def test_a_package_needs_no_checkout(tmp_path: Path) -> None:
    """In a checkout files/ has links; a package has what they point at."""
    done = helm("package", str(CHART), "--destination", str(tmp_path))
    assert done.returncode == 0, done.stderr
    (package,) = tmp_path.glob("tunerd-*.tgz")
    values = {"strimzi": {"enabled": True}}
    assert render(values, chart=package) == render(values)


@pytest.mark.slow
def test_a_chart_whose_links_are_gone_says_so(tmp_path: Path) -> None:
    shutil.copytree(
        CHART, tmp_path / "chart", ignore=shutil.ignore_patterns("files"), symlinks=True
    )
    done = helm("template", "tunerd", str(tmp_path / "chart"))
    assert done.returncode != 0
    assert "files/tunerd.toml is missing from the chart: links were not followed" in done.stderr


# -- what it renders is what tunerd takes --------------------------------------------------


@pytest.mark.slow
def test_tunerd_accepts_the_settings_and_the_studies(tmp_path: Path) -> None:
    objects = render()
    settings = only(objects, "ConfigMap", "tunerd-daemon")["data"]["tunerd.toml"]
    studies = only(objects, "ConfigMap", "tunerd-daemon-studies")["data"]
    file = laid_out(tmp_path, pod(objects)["spec"], settings, studies)

    def check() -> Result:
        return CliRunner().invoke(cli, ["check", "--settings", str(file)], standalone_mode=False)

    answer = check()
    assert answer.return_value == 0, answer.output
    assert "compress" in answer.output
    # It would have said what is wrong.
    (tmp_path / "etc/tunerd/studies/wrong.toml").write_text("schema = 1")
    assert check().return_value == 2


@pytest.mark.slow
def test_what_leaves_a_pod_is_encrypted_and_nobody_is_asked_in_but_prometheus() -> None:
    objects = render({"strimzi": {"enabled": True}})
    settings = only(objects, "ConfigMap", "tunerd-daemon")["data"]["tunerd.toml"]
    assert 'security_protocol = "SSL"' in settings
    assert "sslmode=verify-full" in settings
    assert only(objects, "KafkaUser")["spec"]["authentication"] == {"type": "tls"}
    assert only(objects, "Service")["spec"]["clusterIP"] == "None"
    assert not {"Ingress", "Secret", "Role", "ClusterRole"} & {one["kind"] for one in objects}
    policy = only(objects, "NetworkPolicy")["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    for rule in (*policy["ingress"], *policy["egress"]):
        assert rule.get("from") or rule.get("to")
        assert rule["ports"]


# -- values ---------------------------------------------------------------------------------

PEERS = [{"ipBlock": {"cidr": "10.1.0.0/16"}}]
NAMED = SETTINGS.replace('name = "tunerd"', 'name = "night"').replace(
    "[topics]", '[topics]\njobs = "night.jobs"\ndrift = "night.drift"'
)
SECURE = SETTINGS.replace(
    "port = 9464",
    """port = 8443
pages = true
certificate_file = "/etc/tunerd/http/tls.crt"
key_file = "/etc/tunerd/http/tls.key"
read_token_file = "/etc/tunerd/http/token"
""",
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "kinds"),
    [
        ("networkPolicy", {"NetworkPolicy"}),
        ("serviceMonitor", {"ServiceMonitor"}),
        ("prometheusRule", {"PrometheusRule"}),
    ],
)
def test_what_is_turned_off_is_gone_and_nothing_else(key: str, kinds: set[str]) -> None:
    before, after = by_name(render()), by_name(render({key: {"enabled": False}}))
    assert {kind for kind, _ in before.keys() - after.keys()} == kinds
    assert all(before[name] == one for name, one in after.items())


@pytest.mark.slow
def test_what_exists_is_not_made() -> None:
    objects = render({"existingSettings": "mine", "existingStudies": "ours"})
    assert "ConfigMap" not in {one["kind"] for one in objects}
    assert "annotations" not in pod(objects)["metadata"]
    names = [v["configMap"]["name"] for v in pod(objects)["spec"]["volumes"] if "configMap" in v]
    assert names == ["mine", "ours"]


@pytest.mark.slow
def test_secrets_are_files_and_those_without_a_name_are_not_mounted() -> None:
    objects = render({"secrets": {"kafkaCa": "", "kafkaUser": "sasl", "http": "certificate"}})
    spec = pod(objects)["spec"]
    secrets = {v["name"]: v["secret"]["secretName"] for v in spec["volumes"] if "secret" in v}
    assert secrets == {"kafka-user": "sasl", "postgres": "tunerd-postgres", "http": "certificate"}
    mounted = {m["name"]: m["mountPath"] for m in spec["containers"][0]["volumeMounts"]}
    assert mounted["http"] == "/etc/tunerd/http"
    assert mounted.keys() == {volume["name"] for volume in spec["volumes"]}
    assert "env" not in spec["containers"][0]


@pytest.mark.slow
def test_the_objects_follow_the_settings() -> None:
    objects = render({"settings": NAMED, "strimzi": {"enabled": True, "jobsPartitions": 24}})
    topics = {
        one["metadata"]["name"]: one["spec"]["partitions"]
        for one in objects
        if one["kind"] == "KafkaTopic"
    }
    assert topics.pop("night.jobs") == 24
    assert topics.keys() == {
        "night.drift", "tunerd.requests", "tunerd.recommendations", "tunerd.rejected",
    }  # fmt: skip
    rights = {
        (rule["resource"]["type"], rule["resource"]["name"]): set(rule["operations"])
        for rule in only(objects, "KafkaUser")["spec"]["authorization"]["acls"]
    }
    assert {name for kind, name in rights if kind == "topic"} == {*topics, "night.jobs"}
    assert {name for kind, name in rights if kind == "group"} == {"night", "night.requests"}
    assert rights["transactionalId", "night"] == {"Write", "Describe"}
    assert "Write" not in rights["topic", "night.jobs"]


@pytest.mark.slow
def test_pages_are_served_over_https_with_a_token() -> None:
    endpoint = {
        "authorization": {"credentials": {"name": "certificate", "key": "token"}},
        "tlsConfig": {"serverName": "tunerd.tunerd.svc"},
    }
    objects = render(
        {
            "settings": SECURE,
            "secrets": {"http": "certificate"},
            "serviceMonitor": {"endpoint": endpoint},
        }
    )
    container = pod(objects)["spec"]["containers"][0]
    assert container["ports"] == [{"name": "http", "containerPort": 8443}]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["scheme"] == "HTTPS"
    assert only(objects, "Service")["spec"]["ports"][0]["port"] == 8443
    assert only(objects, "NetworkPolicy")["spec"]["ingress"][0]["ports"][0]["port"] == 8443
    (scraped,) = only(objects, "ServiceMonitor")["spec"]["endpoints"]
    assert scraped == {
        "port": "http", "path": "/metrics", "interval": "15s", "scheme": "https", **endpoint,
    }  # fmt: skip


@pytest.mark.slow
def test_values_come_where_they_belong() -> None:
    toleration = {"key": "batch", "operator": "Exists"}
    term = {"matchExpressions": [{"key": "arch", "operator": "In", "values": ["amd64"]}]}
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}
        }
    }
    objects = render(
        {
            "image": {
                "repository": "example.org:5000/t/tunerd",
                "digest": f"sha256:{'a' * 64}",
                "pullPolicy": "Always",
                "pullSecrets": ["pull"],
            },
            "replicas": 5,
            "resources": {"requests": {"cpu": 2, "memory": "4Gi"}, "limits": {"memory": "8Gi"}},
            "volumes": {"data": "5Gi"},
            "topology": {"keys": ["example.org/rack"], "whenUnsatisfiable": "DoNotSchedule"},
            "disruptionBudget": {"maxUnavailable": 2},
            "nodeSelector": {"pool": "services"},
            "tolerations": [toleration],
            "affinity": affinity,
            "priorityClassName": "high",
            "labels": {"example.org/team": "platform"},
            "podAnnotations": {"note": '{{ .Values }}: "quoted"\nand more'},
            "networkPolicy": {"scrapers": PEERS, "kafka": {"port": 9094, "peers": PEERS}},
            "serviceMonitor": {"labels": {"release": "prometheus"}, "interval": "1m"},
            "prometheusRule": {"labels": {"release": "prometheus"}},
        },
        release="night",
    )
    assert {one["metadata"]["labels"]["example.org/team"] for one in objects} == {"platform"}
    assert {one["metadata"]["name"].removesuffix("-daemon-studies").removesuffix("-daemon")
            for one in objects} == {"night-tunerd"}  # fmt: skip
    assert only(objects, "Deployment")["spec"]["replicas"] == 5
    template = pod(objects)
    assert template["metadata"]["labels"]["example.org/team"] == "platform"
    assert template["metadata"]["annotations"]["note"] == '{{ .Values }}: "quoted"\nand more'
    spec = template["spec"]
    (container,) = spec["containers"]
    assert container["image"] == f"example.org:5000/t/tunerd@sha256:{'a' * 64}"
    assert container["imagePullPolicy"] == "Always"
    assert container["resources"]["requests"] == {"cpu": 2, "memory": "4Gi"}
    assert spec["imagePullSecrets"] == [{"name": "pull"}]
    assert spec["priorityClassName"] == "high"
    assert (spec["nodeSelector"], spec["tolerations"], spec["affinity"]) == (
        {"pool": "services"}, [toleration], affinity,
    )  # fmt: skip
    (spread,) = spec["topologySpreadConstraints"]
    assert spread["topologyKey"] == "example.org/rack"
    assert spread["whenUnsatisfiable"] == "DoNotSchedule"
    assert {"name": "data", "emptyDir": {"sizeLimit": "5Gi"}} in spec["volumes"]
    assert only(objects, "PodDisruptionBudget")["spec"]["maxUnavailable"] == 2
    policy = only(objects, "NetworkPolicy")["spec"]
    assert policy["ingress"][0]["from"] == PEERS
    assert policy["egress"][1] == {"to": PEERS, "ports": [{"protocol": "TCP", "port": 9094}]}
    # Two releases in a namespace do not find each other's Pods, and rules find both.
    for kind in ("Service", "PodDisruptionBudget", "NetworkPolicy", "Deployment"):
        selector = only(objects, kind)["spec"].get("selector") or policy["podSelector"]
        selector = selector.get("matchLabels", selector)
        assert selector["app.kubernetes.io/instance"] == "night"
        assert selector.items() <= template["metadata"]["labels"].items()
    monitor = only(objects, "ServiceMonitor")
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert monitor["spec"]["endpoints"][0]["interval"] == "1m"
    assert only(objects, "PrometheusRule")["metadata"]["labels"]["release"] == "prometheus"
    labels = only(objects, "Service")["metadata"]["labels"]
    assert labels[monitor["spec"]["jobLabel"]] == "tunerd"
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()


@pytest.mark.slow
def test_a_changed_file_replaces_the_instances() -> None:
    def checksums(values: Object) -> Object:
        annotations: Object = pod(render(values))["metadata"]["annotations"]
        return annotations

    before = checksums({})
    assert checksums({"replicas": 5}) == before
    assert checksums({"settings": SETTINGS}) == before
    setting = checksums({"settings": SETTINGS.replace("json", "console")})
    assert setting["checksum/settings"] != before["checksum/settings"]
    assert setting["checksum/studies"] == before["checksum/studies"]
    study = checksums({"studies": {"compress.toml": STUDY.replace("observe", "publish")}})
    assert study["checksum/settings"] == before["checksum/settings"]
    assert study["checksum/studies"] != before["checksum/studies"]


# -- strangers' values ----------------------------------------------------------------------

HOSTILE = """\
# {{ .Release.Name }} {{ fail "x" }} "quotes" 'others' \\ ---
---
# é \u2028 \u202e : - | > & * # ! %
"""


@pytest.mark.slow
def test_text_stays_text() -> None:
    settings, study = HOSTILE.replace("---\n", "") + SETTINGS, f"# ---\n# {{{{ end }}}}\n{STUDY}"
    study += '\n# """\t trailing   \n\n\n'
    objects = render({"settings": settings, "studies": {"a.toml": study}})
    assert len(objects) == len(render())
    assert only(objects, "ConfigMap", "tunerd-daemon")["data"] == {"tunerd.toml": settings}
    assert only(objects, "ConfigMap", "tunerd-daemon-studies")["data"] == {"a.toml": study}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("values", "message"),
    [
        # What the schema refuses.
        ({"replica": 4}, "additional properties 'replica' not allowed"),
        ({"replicas": "three"}, "at '/replicas': got string, want integer"),
        ({"replicas": 0}, "at '/replicas': minimum: got 0, want 1"),
        ({"image": {"tag": 0.2}}, "at '/image/tag': got number, want string"),
        ({"image": {"tag": "1\n  command: [sh]"}}, "at '/image/tag'"),
        ({"image": {"repository": 'a" evil: "b'}}, "at '/image/repository'"),
        ({"image": None}, "missing property 'image'"),
        ({"existingSettings": "{{ .Release.Name }}"}, "at '/existingSettings'"),
        ({"secrets": {"postgres": "a\nb: c"}}, "at '/secrets/postgres'"),
        ({"secrets": {"password": "hunter2"}}, "additional properties 'password' not allowed"),
        ({"labels": {"a": 'b"\nc: d'}}, "at '/labels/a'"),
        ({"labels": {"a: b": "c"}}, "'a: b' does not match pattern"),
        ({"labels": {"a": "{{ 1 }}"}}, "at '/labels/a'"),
        ({"studies": {"../a.toml": STUDY}}, "'../a.toml' does not match pattern"),
        ({"studies": {"a.txt": STUDY}}, "'a.txt' does not match pattern"),
        ({"topology": {"keys": ["a\nb"]}}, "at '/topology/keys/0'"),
        ({"topology": {"whenUnsatisfiable": "Never"}}, "at '/topology/whenUnsatisfiable'"),
        ({"resources": {"requests": {"cpu": "much"}}}, "at '/resources/requests/cpu'"),
        ({"networkPolicy": {"scrapers": []}}, "at '/networkPolicy/scrapers': minItems"),
        ({"networkPolicy": {"kafka": {"peers": [{}]}}}, "at '/networkPolicy/kafka/peers/0'"),
        ({"networkPolicy": {"kafka": {"port": 70000}}}, "at '/networkPolicy/kafka/port'"),
        ({"serviceMonitor": {"interval": "often"}}, "at '/serviceMonitor/interval'"),
        ({"strimzi": {"namespace": ""}}, "at '/strimzi/namespace'"),
        # What the templates refuse.
        ({"settings": "name ="}, "settings: no TOML:"),
        ({"settings": "http = 5"}, "settings: http has to be a table"),
        ({"settings": SETTINGS.replace("0.0.0.0", "127.0.0.1")}, "http.host is loopback"),  # noqa: S104
        ({"settings": f"{SETTINGS}[http]\nenabled = false"}, "settings: no TOML:"),
        (
            {"settings": SETTINGS.replace("port = 9464", "enabled = false")},
            "settings: http.enabled is false",
        ),
        ({"settings": SETTINGS.split("[http]")[0]}, "http.host is loopback"),
        (
            {"settings": SETTINGS.replace("port = 9464", "pages = true")},
            "need http.certificate_file and http.read_token_file",
        ),
        ({"settings": SETTINGS.replace("postgresql:", "sqlite:")}, "store.url has to be"),
        ({"settings": SETTINGS.replace('"kafka"', '"folder"')}, 'stream.kind has to be "kafka"'),
        ({"studies": {"a.toml": f"# \u0085\n{STUDY}"}}, "studies: a.toml: U+0085 gets lost"),
        ({"studies": {"a.toml": "name = "}}, "studies: a.toml: no TOML:"),
        (
            {"labels": {"app.kubernetes.io/name": "other"}},
            "labels: app.kubernetes.io/name is the chart's own",
        ),
        ({"fullnameOverride": "1st"}, '"1st" cannot be the name of a Service'),
        (
            {"strimzi": {"enabled": True}, "secrets": {"kafkaUser": ""}},
            "secrets.kafkaUser names the KafkaUser",
        ),
        (
            {"strimzi": {"enabled": True}, "settings": NAMED.replace("night.jobs", "Night_jobs")},
            '"Night_jobs" cannot be the name of a KafkaTopic',
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_right_is_refused(values: Object, message: str) -> None:
    assert message in refused(values)


@pytest.mark.slow
def test_the_values_of_the_documentation_are_accepted() -> None:
    text = (FOLDER.parents[1] / "docs" / "kubernetes.md").read_text().split("### With Helm")[1]
    block = re.search(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert block is not None
    objects = render({"settings": SETTINGS, **yaml.safe_load(block[1])})
    assert only(objects, "Deployment")["spec"]["replicas"] == 5
    for key in VALUES:
        assert f"`{key}`" in text, key
