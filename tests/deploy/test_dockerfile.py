"""The Dockerfile: what can be said of it without running containers."""

import json
import re
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tunerd.ui.server import HttpServer

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "deploy" / "Dockerfile").read_text()
LINES = re.sub(r"\\\n", "", re.sub(r"^#.*\n", "", TEXT, flags=re.M)).splitlines()
INSTRUCTIONS = [tuple(line.split(maxsplit=1)) for line in LINES if line.strip()]


def arguments(instruction: str) -> list[str]:
    return [one[1] for one in INSTRUCTIONS if one[0] == instruction]


def test_it_runs_as_somebody_without_rights() -> None:
    assert arguments("USER")[-1] == "10001:10001"
    assert INSTRUCTIONS[-1] == ("CMD", '["run"]')


def test_what_it_copies_is_there_and_not_ignored() -> None:
    kept = {
        line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"
    }
    for line in arguments("COPY"):
        if not line.startswith("--from"):
            *sources, _ = line.split()
            for source in sources:
                assert (ROOT / source).exists(), source
                assert source in kept


def test_versions_are_pinned() -> None:
    assert re.search(r"^ARG PYTHON_IMAGE=python:3\.\d+\.\d+-slim-\w+$", TEXT, re.M)
    assert re.search(r"uv==\d+\.\d+\.\d+", TEXT)
    assert "--constraint constraints.txt" in TEXT


@pytest.mark.slow
def test_its_health_check_asks_the_daemon() -> None:
    (check,) = (INSTRUCTIONS[i][1] for i, one in enumerate(INSTRUCTIONS) if one[0] == "HEALTHCHECK")
    _, code, program = json.loads(check[check.index("[") :])
    problems: list[str] = []
    server = HttpServer("127.0.0.1", 0, lambda _: (b"", "text/plain"), alive=lambda: problems)
    try:

        def healthy() -> bool:
            done = subprocess.run(
                [sys.executable, code, program],
                env={"TUNERD_HTTP__PORT": str(server.port)},
                capture_output=True,
                check=False,
            )
            return done.returncode == 0

        assert healthy()
        problems.append("tune hangs")
        assert not healthy()
    finally:
        server.close()


@pytest.mark.slow
def test_the_package_has_all_its_files() -> None:
    """What is installed from a wheel is what package-data names, not what lies in the checkout."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["package-data"]["tunerd"]
    listed = subprocess.run(
        ["git", "ls-files", "tunerd"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("not a checkout of git")
    for file in listed.stdout.splitlines():
        name = file.removeprefix("tunerd/")
        assert name.endswith(".py") or any(fnmatch(name, pattern) for pattern in patterns), name
