"""The first hour of a newcomer: what README and the first study show, typed in a fresh clone.

The clone has what git knows, and an environment as ``make setup`` leaves it. Blocks are run in
their order; ``tunerd run`` stays until the page ends.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.test_commands import FIRST_HOUR, ROOT, blocks, start, stop
from tests.servers import free_ports

PATIENCE_S = 120.0


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What git would clone of this tree as it stands, with an environment."""
    folder = tmp_path / "tunerd"
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if not name.startswith("tests/") and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    for compiled in (ROOT / "tunerd").rglob("__pycache__"):  # it takes seconds to do it again
        shutil.copytree(compiled, folder / compiled.relative_to(ROOT))
    _environment(folder / ".venv")
    (port,) = free_ports(1)
    monkeypatch.setenv("TUNERD_HTTP__PORT", str(port))  # another test may have the usual one
    return folder


def _environment(folder: Path) -> None:
    """The one that runs these tests, where a newcomer has theirs."""
    (folder / "bin").mkdir(parents=True)
    (folder / ".ready").touch()
    binaries = Path(sys.executable).parent
    (folder / "bin" / "activate").write_text(f'PATH="{binaries}:$PATH"\n')


@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", FIRST_HOUR)
def test_every_command_of_the_first_hour_runs(page: str, clone: Path) -> None:
    daemon: int | None = None
    port = {"TUNERD_HTTP__PORT": os.environ["TUNERD_HTTP__PORT"]}
    try:
        for block in blocks(page):
            assert block.runs, f"{page}: what a newcomer types is run"
            if block.text.startswith("tunerd run"):
                daemon = start(clone, "tunerd run", PYTHONPATH=str(clone), **port)
                continue
            done = _typed(clone, block.text)
            assert done.returncode == 0, f"{block.text}\n{done.stdout}{done.stderr}"
            assert "Traceback" not in done.stderr
            _expect(clone, block.text, done.stdout)
    finally:
        if daemon is not None:
            stop(clone, daemon)


def _typed(clone: Path, text: str) -> "subprocess.CompletedProcess[str]":
    """One block as a shell has it; of ``make`` only what it would do."""
    environ = {**os.environ, "PYTHONPATH": str(clone)}
    environ["PATH"] = f"{Path(sys.executable).parent}:{environ['PATH']}"
    return subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", re.sub(r"^make ", "make -n ", text, flags=re.M)],
        cwd=clone,
        env=environ,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def _expect(clone: Path, text: str, said: str) -> None:
    """What the page promises of some commands."""
    if "scheduler.py 4" in text:
        assert said.count("habit  ") == 4, "mode observe publishes nothing"
    if "tunerd reload" in text:
        assert "mode  changed: observe → publish" in said
        assert "The daemon has taken it up." in said
        assert "habit  " not in said, "advice is out when reload has answered"
        assert said.count("incumbent") + said.count("exploit") >= 8
    if "--html report.html" in text:
        assert (clone / "report.html").exists()
