"""docker-compose.yml: nothing here can run containers, so everything short of that is checked."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tunerd.cli.cluster import cluster
from tunerd.settings import load_settings

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
each_service = pytest.mark.parametrize("name", SERVICES)


@pytest.mark.slow
def test_it_keeps_to_the_schema_of_compose() -> None:
    subprocess.run(
        [
            *(sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"),
            ROOT / "docker-compose.yml",
        ],
        check=True,
    )


@each_service
def test_versions_are_pinned(name: str) -> None:
    assert re.fullmatch(r"[\w./-]+:v?\d+\.\d+(\.\d+)?(-\w+)?", SERVICES[name]["image"])


@each_service
def test_it_is_reached_from_this_machine_only(name: str) -> None:
    for port in SERVICES[name].get("ports", ()):
        assert port.startswith("127.0.0.1:")


@each_service
def test_who_depends_waits_for_health(name: str) -> None:
    for other, how in SERVICES[name].get("depends_on", {}).items():
        assert how == {"condition": "service_healthy"}
        # Ours has its check in the image.
        assert "test" in SERVICES[other].get("healthcheck", {}) or other == "tunerd"


@each_service
def test_what_it_mounts_is_there(name: str) -> None:
    for mount in SERVICES[name].get("volumes", ()):
        source = mount.split(":")[0]
        if source.startswith("."):
            assert (ROOT / source).is_dir(), source
            assert mount.endswith(":ro")
        else:
            assert source in COMPOSE["volumes"]


def test_the_settings_are_sound(tmp_path: Path) -> None:
    service = SERVICES["tunerd"]
    mounts = dict(mount.split(":")[:2][::-1] for mount in service["volumes"])
    (tmp_path / "password").write_text("x\n")
    environ = service["environment"] | {
        "TUNERD_STUDIES": str(ROOT / mounts["/etc/tunerd/studies"]),
        "TUNERD_DATA_DIR": str(tmp_path),
        "TUNERD_STORE__PASSWORD_FILE": str(tmp_path / "password"),
    }
    settings = load_settings(None, environ)
    assert settings.stream.kind == "kafka"
    assert settings.store.url.startswith("postgresql://")
    assert settings.http.host == "0.0.0.0"  # noqa: S104 - inside a container of its own


def test_the_cluster_understands_its_command_line() -> None:
    command, *arguments = SERVICES["cluster"]["command"]
    assert command == "cluster"
    assert cluster.make_context("cluster", arguments).params["bootstrap"] == "kafka:9092"


def test_secrets_are_not_in_the_file() -> None:
    for secret in COMPOSE["secrets"].values():
        assert set(secret) == {"environment"}
    for service in SERVICES.values():
        for variable, value in service.get("environment", {}).items():
            if "PASSWORD" in variable:
                assert value.startswith("/run/secrets/")
