"""An installation in a folder, with a study, and the command line in this process."""

import json
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.empty_store import empty_store
from tunerd.cli import run
from tunerd.settings import load_settings
from tunerd.settings.studies import load_studies
from tunerd.store import Store, open_store

STUDY = """
schema = 1
name = "llm"
mode = "approve"
[objective]
metric = "speed"
goal = "maximize"
unit = "tokens/s"
[context]
gpu = { type = "category" }
n_gpus = { type = "int", scale = "log" }
[parameters]
tp = { type = "int", values = [1, 2, 4] }
pp = { type = "int", values = [1, 2] }
[constraints]
fits = "tp * pp <= n_gpus"
"""


@dataclass(frozen=True)
class Installation:
    """A folder with ``tunerd.toml``, one study, and a store that knows it."""

    folder: Path
    port: int

    @property
    def file(self) -> Path:
        return self.folder / "tunerd.toml"

    @property
    def study_file(self) -> Path:
        return self.folder / "studies" / "llm.toml"

    def open_store(self) -> Store:
        return open_store(load_settings(self.file, {}).store.url)


@pytest.fixture
def installation(tmp_path: Path, free_port: int) -> Installation:
    made = Installation(tmp_path, free_port)
    made.file.write_text(f'name = "test"\n[http]\nport = {free_port}\n')
    made.study_file.parent.mkdir()
    made.study_file.write_text(STUDY)
    (study,) = load_studies(made.study_file.parent)
    empty_store(tmp_path / "tunerd-data" / "tunerd.sqlite")
    with made.open_store() as store:
        now = datetime.now(UTC)
        store.publish_generation(study.name, study.content_hash, study.text, "test", now)
    return made


@pytest.fixture
def free_port() -> Iterator[int]:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # bound and not listened on: nobody answers, nobody takes it
        yield held.getsockname()[1]


@dataclass(frozen=True)
class Said:
    """What a command line came to."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def tunerd(capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """Run a command line in this process."""

    def command(*arguments: object) -> Said:
        code = run([str(argument) for argument in arguments])
        return Said(code, *capsys.readouterr())

    return command
