"""deploy/kubernetes/daemon: three instances. Rendered, held to schemas, to each other, and to a
real Kafka that allows what the KafkaUser names and nothing more."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.cimpl import NewTopic

from tests.deploy.pods import laid_out
from tests.integration.daemons import Daemon, events, read_topic
from tests.servers.secure import PASSWORD, USER, secure_kafka
from tunerd.monitoring.files import alert_rules, rule_object
from tunerd.settings import Settings, load_settings

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "kubernetes" / "daemon"
STRIMZI = list(yaml.safe_load_all((FOLDER / "kafka.yaml").read_text()))
OBJECTS: list[dict[str, Any]] = [
    one
    for name in ("deployment", "network", "monitoring")
    for one in yaml.safe_load_all((FOLDER / f"{name}.yaml").read_text())
]
NATIVE = [one for one in OBJECTS if "monitoring.coreos.com" not in one["apiVersion"]]


def only(kind: str) -> dict[str, Any]:
    (found,) = [one for one in OBJECTS if one["kind"] == kind]
    return found


POD = only("Deployment")["spec"]["template"]["spec"]


@pytest.mark.parametrize("version", ["1.31", "1.37"])
def test_objects_keep_to_their_schemas(version: str) -> None:
    assert len(NATIVE) == 5
    for one in NATIVE:
        kubernetes_validate.validate(one, version, strict=True)


@pytest.mark.slow
def test_kustomize_renders_them() -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("no `kubectl` on the PATH; the objects themselves are checked all the same")
    done = subprocess.run(
        ["kubectl", "kustomize", str(FOLDER)], capture_output=True, text=True, check=True
    )
    rendered = list(yaml.safe_load_all(done.stdout))
    kinds = sorted(one["kind"] for one in rendered)
    assert kinds == sorted(
        [*(one["kind"] for one in OBJECTS), "PrometheusRule", "ConfigMap", "ConfigMap"]
    )
    assert {one["metadata"]["namespace"] for one in rendered} == {"tunerd"}
    (deployment,) = [one for one in rendered if one["kind"] == "Deployment"]
    pod = deployment["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == "registry.example.org/tunerd:0.1.0"
    # Files that changed have other names, so that the instances are replaced.
    made = {one["metadata"]["name"] for one in rendered if one["kind"] == "ConfigMap"}
    assert {v["configMap"]["name"] for v in pod["volumes"] if "configMap" in v} == made
    for one in rendered:
        if "monitoring.coreos.com" not in one["apiVersion"]:
            kubernetes_validate.validate(one, "1.37", strict=True)


def test_alerts_are_those_of_prometheus() -> None:
    text = (FOLDER / "alerts.yaml").read_text()
    assert text == rule_object()
    assert yaml.safe_load(text)["spec"] == yaml.safe_load(alert_rules())


def settings_of(tmp_path: Path) -> Settings:
    studies = {file.name: file.read_text() for file in (FOLDER / "studies").iterdir()}
    text = (FOLDER / "tunerd.toml").read_text()
    return load_settings(laid_out(tmp_path, POD, text, studies), {})


def test_the_settings_are_sound_and_what_they_name_is_mounted(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    assert str(settings.data_dir).startswith(str(tmp_path))
    assert settings.store.url.startswith("postgresql://")
    assert "sslmode=verify-full" in settings.store.url
    kafka = settings.stream.kafka
    for file in (kafka.ssl_cafile, kafka.ssl_certfile, kafka.ssl_keyfile):
        assert file is not None
        assert file.is_relative_to(tmp_path)
    assert settings.http.port == POD["containers"][0]["ports"][0]["containerPort"]
    assert not settings.http.actions


def test_names_fit_each_other(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    topics = {one["metadata"]["name"] for one in STRIMZI if one["kind"] == "KafkaTopic"}
    chosen = settings.topics
    assert topics == {
        chosen.jobs,
        chosen.requests,
        chosen.recommendations,
        chosen.rejected,
        chosen.drift,
    }
    assert not chosen.create
    (user,) = [one for one in STRIMZI if one["kind"] == "KafkaUser"]
    secrets = {v["secret"]["secretName"] for v in POD["volumes"] if "secret" in v}
    assert user["metadata"]["name"] in secrets
    labels = only("Deployment")["spec"]["template"]["metadata"]["labels"]
    for kind in ("Service", "PodDisruptionBudget", "NetworkPolicy", "Deployment"):
        spec = only(kind)["spec"]
        selector = spec.get("selector") or spec["podSelector"]
        assert selector.get("matchLabels", selector).items() <= labels.items()
    jobs = next(one for one in STRIMZI if one["metadata"]["name"] == chosen.jobs)
    assert jobs["spec"]["partitions"] >= only("Deployment")["spec"]["replicas"]
    assert only("ServiceMonitor")["spec"]["selector"]["matchLabels"].items() <= (
        only("Service")["metadata"]["labels"].items()
    )


# -- its rights, on a Kafka that asks ------------------------------------------------------

OPERATIONS = {
    "Read": AclOperation.READ,
    "Write": AclOperation.WRITE,
    "Describe": AclOperation.DESCRIBE,
    "DescribeConfigs": AclOperation.DESCRIBE_CONFIGS,
}
KINDS = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactionalId": ResourceType.TRANSACTIONAL_ID,
}


def rules() -> Iterator[AclBinding]:
    (user,) = [one for one in STRIMZI if one["kind"] == "KafkaUser"]
    for rule in user["spec"]["authorization"]["acls"]:
        about = rule["resource"]
        assert about["patternType"] == "literal"
        for operation in rule["operations"]:
            yield AclBinding(
                KINDS[about["type"]],
                about["name"],
                ResourcePatternType.LITERAL,
                f"User:{USER}",
                "*",
                OPERATIONS[operation],
                AclPermissionType.ALLOW,
            )


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_daemon_runs_with_the_rights_that_are_named_and_with_no_others(tmp_path: Path) -> None:
    server, _ = secure_kafka(tmp_path / "kafka")
    server.set(
        {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "auto.create.topics.enable": "false",
        }
    )
    (tmp_path / "password").write_text(PASSWORD)
    daemon = Daemon(
        tmp_path,
        server.addresses["SASL"],
        environ={
            "TUNERD_STREAM__KAFKA__SECURITY_PROTOCOL": "SASL_PLAINTEXT",
            "TUNERD_STREAM__KAFKA__SASL_MECHANISM": "PLAIN",
            "TUNERD_STREAM__KAFKA__SASL_USERNAME": USER,
            "TUNERD_STREAM__KAFKA__SASL_PASSWORD_FILE": str(tmp_path / "password"),
            "TUNERD_TOPICS__CREATE": "false",
        },
    )
    try:
        server.start()
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        topics = [one for one in STRIMZI if one["kind"] == "KafkaTopic"]
        for answer in admin.create_topics(
            [
                NewTopic(
                    one["metadata"]["name"],
                    one["spec"]["partitions"],
                    1,
                    config={
                        name: str(value)
                        for name, value in one["spec"]["config"].items()
                        if name != "min.insync.replicas"  # there is one broker
                    },
                )
                for one in topics
            ]
        ).values():
            answer.result(timeout=20)
        for answer in admin.create_acls(list(rules())).values():
            answer.result(timeout=20)
        daemon.start()
        producer = Producer({"bootstrap.servers": server.bootstrap})
        for value in [*events(8), b"rubbish"]:
            producer.produce("tunerd.jobs", value)
        assert producer.flush(20) == 0
        daemon.learned(8)
        sent = {
            topic: read_topic(server.bootstrap, topic)
            for topic in ("tunerd.recommendations", "tunerd.rejected")
        }
        assert len(sent["tunerd.recommendations"]) > 1
        assert len(sent["tunerd.rejected"]) == 1
        daemon.until(lambda: daemon.get("/readyz")[0] == 200, "it is ready")
        assert not json.loads(daemon.get("/readyz")[1]).get("remarks")
        # Started again, it goes on where it was: nothing is sent twice.
        code, _ = daemon.stop()
        assert code == 0
        daemon.start()
        daemon.learned(8)
        after = read_topic(server.bootstrap, "tunerd.recommendations")
        assert len(after) == len(sent["tunerd.recommendations"])

        # The broker does ask: more than that is refused.
        intruder = AdminClient(
            {
                "bootstrap.servers": server.addresses["SASL"],
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": USER,
                "sasl.password": PASSWORD,
            }
        )
        with pytest.raises(KafkaException, match="AUTHORIZATION"):
            intruder.delete_topics(["tunerd.jobs"])["tunerd.jobs"].result(timeout=20)
    finally:
        daemon.end()
        server.stop()
