"""A folder with a stream, and trainings as the programs that a shell starts."""

import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from tests.launched import LaunchFolder
from tunerd.client import context_key

ROOT = Path(__file__).parents[2]
STUDY = """
schema = 1
name = "tiny"
mode = "publish"
objective = { metric = "tokens_per_second", goal = "maximize", unit = "tokens/s", scale = "log" }
context.gpu = { type = "category" }
parameters.batch = { type = "int", values = [1, 2, 4, 8] }
[[baseline]]
config = { batch = 2 }
"""
KEY = context_key("tiny", {"gpu": "category"}, {"gpu": "none"})
LOOP = """
import time, tunerd.client
with tunerd.client.job("tiny", {"gpu": "none"}, config={"batch": 4}) as job:
    for step in range(60):
        time.sleep(0.001)
        job.step(tokens=100)
"""


class TrainingPlace(LaunchFolder):
    """Where a training runs."""

    @property
    def environment(self) -> dict[str, str]:
        strange = ("TUNERD_", "SLURM_", "RANK", "WORLD_SIZE", "TORCHELASTIC_")
        ours = {k: v for k, v in os.environ.items() if not k.startswith(strange)}
        return ours | {"XDG_STATE_HOME": str(self.folder / "state"), "PYTHONPATH": str(ROOT)}

    def start(
        self,
        program: str,
        *,
        prefix: Sequence[str] = (),
        environ: Mapping[str, str] = MappingProxyType({}),
    ) -> "subprocess.Popen[str]":
        script = self.folder / "training.py"
        script.write_text(textwrap.dedent(program))
        return subprocess.Popen(
            [*prefix, sys.executable, str(script)],
            cwd=self.folder,
            env=self.environment | dict(environ),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(
        self,
        program: str = LOOP,
        *,
        code: int = 0,
        prefix: Sequence[str] = (),
        timeout: float = 110,
        environ: Mapping[str, str] = MappingProxyType({}),
    ) -> str:
        """Run a training to its end, which must be with this exit code; what it printed."""
        running = self.start(program, prefix=prefix, environ=environ)
        out, err = running.communicate(timeout=timeout)
        assert running.returncode == code, f"{running.returncode}\n{out}\n{err}"
        return out + err

    def advise(self, **changes: Any) -> None:
        """Publish a recommendation for the context."""
        message = {
            "schema": "tunerd.recommendation/1",
            "recommendation_id": "r-1",
            "revision": 1,
            "state": "active",
            "context_key": KEY,
            "valid_until": "2999-01-01T00:00:00Z",
            "candidates": [],
            "incumbent": {"config": {"batch": 8}},
            "baseline": {"batch": 2},
            **changes,
        }
        self.recommend(message)


@pytest.fixture
def place(tmp_path: Path) -> TrainingPlace:
    """With a study file, and a stream that a daemon made."""
    (tmp_path / "tunerd-data" / "stream").mkdir(parents=True)
    for topic in ("jobs", "recommendations"):
        (tmp_path / "tunerd-data" / "stream" / f"tunerd.{topic}.jsonl").touch()
    (tmp_path / "studies").mkdir()
    (tmp_path / "studies" / "tiny.toml").write_text(STUDY)
    return TrainingPlace(tmp_path)
