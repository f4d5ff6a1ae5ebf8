"""``tunerd init``: what a person sees; what is guessed is tested in ``tests/tables``."""

import contextlib
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Said
from tunerd.core.study_file import parse_study

Tunerd = Callable[..., Said]

ROWS = "\n".join(
    f"{model},{gpus},{tp},{batch},{gpus * tp * batch + len(model)},ok"
    for model in ("gpt", "llama")
    for gpus in (8, 16)
    for tp in (1, 2, 4)
    for batch in (1, 2)
)
TABLE = f"model,n_gpus,tp,micro_batch,tokens_per_s,state\n{ROWS}\n"


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "old jobs.csv"
    path.write_text(TABLE)
    return path


def test_a_draft_and_what_to_do_next(tunerd: Tunerd, table: Path) -> None:
    said = tunerd("init", table)
    assert said.code == 0, said.err
    assert "studies/old-jobs.toml\n  tunerd import" in said.out
    assert f"tunerd import old-jobs '{table}'" in said.out
    assert "tokens_per_s" in said.err
    study = parse_study(Path("studies/old-jobs.toml").read_text())
    assert study.mode == "observe"
    assert [one.name for one in study.context] == ["model", "n_gpus"]
    assert [one.name for one in study.parameters] == ["tp", "micro_batch"]
    assert study.objective.metric == "tokens_per_s"
    check = tunerd("check", "studies/old-jobs.toml")
    assert check.code == 0, check.err


def test_what_is_there_is_not_overwritten(tunerd: Tunerd, table: Path) -> None:
    assert tunerd("init", table, "--out", "study.toml").code == 0
    again = tunerd("init", table, "--out", "study.toml", "--context", "tp")
    assert again.code == 2
    assert "--force" in again.err
    assert tunerd("init", table, "--out", "study.toml", "--context", "tp", "--force").code == 0
    study = parse_study(Path("study.toml").read_text())
    assert "tp" in [one.name for one in study.context]


def test_it_can_be_piped(tunerd: Tunerd, table: Path) -> None:
    said = tunerd("init", table, "--out", "-", "--name", "piped")
    assert said.code == 0
    assert parse_study(said.out).name == "piped"


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("nothing.csv",), "nothing.csv"),
        (("old jobs.csv", "--objective", "model"), "model"),
        (("old jobs.csv", "--context", "colour"), "colour"),
        (("old jobs.csv", "--name", "Not A Name"), "--name"),
    ],
)
def test_mistakes_name_what_is_wrong(
    tunerd: Tunerd,
    table: Path,  # noqa: ARG001
    arguments: tuple[str, ...],
    part: str,
) -> None:
    said = tunerd("init", *arguments)
    assert said.code == 2
    assert part in said.err
    assert "Traceback" not in said.err


def test_on_a_terminal_it_asks(table: Path) -> None:
    """The answers change the draft; Return takes the guess."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "tunerd", "init", str(table), "--out", "asked.toml"],
        stdin=theirs,
        stderr=theirs,
        stdout=subprocess.PIPE,
        env={**os.environ, "TERM": "dumb", "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    os.close(theirs)
    os.write(ours, b"tokens_per_s\nminimize\nfurlongs/s\n" + b"\n" * 12)
    shown = b""
    with contextlib.suppress(OSError):  # Linux says so when the other side has closed
        while part := os.read(ours, 1000):
            shown += part
    os.close(ours)
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(30) == 0, shown.decode()
    assert b"What is to be made better" in shown
    study = parse_study(Path("asked.toml").read_text())
    assert study.objective.goal == "minimize"
    assert study.objective.unit == "furlongs/s"
