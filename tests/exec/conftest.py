"""A folder with a study and a stream, and ``tunerd exec`` as the program that a shell starts."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.launched import LaunchFolder
from tunerd.client import context_key

STUDY = """
schema = 1
name = "zip"
mode = "publish"
explore_share = 0.5
objective = { metric = "wall_s", goal = "minimize", unit = "s", scale = "log" }
context.file = { type = "category" }
parameters.level = { type = "int", values = [1, 3, 5, 9] }
parameters.threads = { type = "int", values = [1, 2] }
parameters.mode = { type = "category", values = ["fast", "very small"] }
[[baseline]]
config = { level = 3, threads = 1, mode = "very small" }
"""
BASELINE = {"level": 3, "threads": 1, "mode": "very small"}
KEY = context_key("zip", {"file": "category"}, {"file": "a"})


class Place(LaunchFolder):
    """Where a program is run."""

    @property
    def plans(self) -> Path:
        """What ``tunerd exec`` read of settings and studies."""
        return self.folder / "state" / "tunerd" / "exec" / "plans"

    @property
    def environment(self) -> dict[str, str]:
        here = {"XDG_STATE_HOME": str(self.folder / "state"), "TMPDIR": str(self.folder / "tmp")}
        ours = {k: v for k, v in os.environ.items() if not k.startswith(("TUNERD_", "SLURM_"))}
        return ours | here

    def line(self, *arguments: object) -> list[str]:
        """The command line; options, ``--``, the program."""
        own = ["-m", "tunerd", "exec", "--study", "zip", "--context", "file=a"]
        return [sys.executable, *own, *map(str, arguments)]

    def run(self, *arguments: object, **options: Any) -> "subprocess.CompletedProcess[bytes]":
        environment = self.environment | options.pop("env", {})
        return subprocess.run(
            self.line(*arguments),
            cwd=self.folder,
            env=environment,
            capture_output=True,
            check=False,
            timeout=60,
            **options,
        )

    def start(self, *arguments: object, **options: Any) -> "subprocess.Popen[bytes]":
        environment = self.environment | options.pop("env", {})
        return subprocess.Popen(self.line(*arguments), cwd=self.folder, env=environment, **options)


@pytest.fixture(scope="session")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the folder of each test is while it runs."""
    return tmp_path_factory.mktemp("exec")


@pytest.fixture
def place(ground: Path, tmp_path: Path) -> Iterator[Place]:
    """A folder of this test's own, under the path of all the others until the test ends.

    A plan is kept for settings and a study at a path. So only the first test has to read these in
    full, which takes three times as long as everything else that ``tunerd exec`` does.
    """
    made, plans = Place(ground / "here"), ground / "plans"
    (made.folder / "tmp").mkdir(parents=True)
    (made.folder / "studies").mkdir()
    (made.folder / "studies" / "zip.toml").write_text(STUDY)
    (made.folder / "tunerd.toml").write_text("http.enabled = false\n")
    made.stream.mkdir(parents=True)
    if plans.is_dir():
        made.plans.parent.mkdir(parents=True)
        plans.rename(made.plans)
    yield made
    if made.plans.is_dir():
        made.plans.rename(plans)
    made.folder.rename(tmp_path / "here")


def message(
    config: dict[str, Any], *, key: str = KEY, valid: str = "2099-01-01T00:00:00Z"
) -> dict[str, Any]:
    """A recommendation whose incumbent is this configuration."""
    return {
        "schema": "tunerd.recommendation/1",
        "recommendation_id": "r1",
        "revision": 1,
        "state": "active",
        "study": "zip",
        "context_key": key,
        "context": {"file": "a"},
        "valid_until": valid,
        "candidates": [],
        "incumbent": {"config": config, "median": 1.0, "low": 1.0, "high": 1.0, "jobs": 3},
        "baseline": None,
    }


@pytest.fixture
def until() -> Callable[[Callable[[], object]], None]:
    """Wait for something that another process does."""

    def wait(done: Callable[[], object]) -> None:
        deadline = time.monotonic() + 90
        while not done():
            assert time.monotonic() < deadline, "it did not happen"
            time.sleep(0.01)

    return wait
