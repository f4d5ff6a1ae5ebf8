"""Every command of the documentation is run, as it stands there, in a folder as a reader has it.

A page's ``sh`` blocks are run in their order, in a copy of an installation: settings, the study
``llm-pretrain``, a store that has learned some of its jobs, and a table of old jobs under every
name of a table that the page mentions. ``tunerd run`` stays in the background to its block's end.
A block that cannot run on any machine says ``no-run`` after ``sh``; its ``tunerd`` commands are
still checked to be ones.
"""

import contextlib
import csv
import io
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.once import OncePerRun
from tests.servers import free_ports, wait_until
from tunerd.cli import COMMANDS
from tunerd.cli import run as run_tunerd
from tunerd.store import open_store

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", *(str(p.relative_to(ROOT)) for p in sorted((ROOT / "docs").rglob("*.md")))]
FIRST_HOUR = ("README.md", "docs/first-study.md")
"""Are typed in a fresh clone instead: ``test_first_hour.py``."""
STUDY = "llm-pretrain"
JOBS = 60
PATIENCE_S = 60.0
BLOCK = re.compile(r"^```sh([^\n]*)\n(.*?)^```$", re.M | re.S)
ELSEWHERE = ("make ", "pip ", "python -m benchmarks", "docker ", "systemctl ", "git ")
"""What other tests, or nobody here, can run: targets of the Makefile are what CI calls, benchmarks
have their own smoke test, and there are no containers."""

SHELL = frozenset("|<>;&$`*?")
"""With one of these, a line is for a shell."""


@dataclass(frozen=True)
class Block:
    """One block of commands."""

    page: str
    text: str
    runs: bool

    @property
    def commands(self) -> list[str]:
        """Its lines, continued ones joined, without those that are run elsewhere."""
        lines = re.sub(r"\\\n\s*", "", self.text).splitlines()
        kept = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
        return [line for line in kept if not line.startswith(ELSEWHERE)]


def blocks(page: str) -> list[Block]:
    found = BLOCK.findall((ROOT / page).read_text())
    return [Block(page, text, "no-run" not in info) for info, text in found]


def installation(folder: Path) -> None:
    """Settings and the study that comes with tunerd."""
    folder.mkdir(exist_ok=True)
    settle(folder)
    (folder / "studies").mkdir()
    shutil.copy(ROOT / "tunerd/lab/simulation/studies" / f"{STUDY}.toml", folder / "studies")


def settle(folder: Path) -> None:
    """Settings, with a port that nobody else has."""
    (port,) = free_ports(1)
    (folder / "tunerd.toml").write_text(f"[http]\nport = {port}\n")


def shell(
    folder: Path, script: str, timeout_s: float = PATIENCE_S, **more: str
) -> "subprocess.CompletedProcess[str]":
    binaries = Path(sys.executable).parent
    environ = {k: v for k, v in os.environ.items() if not k.startswith("TUNERD_")}
    environ |= {"PATH": f"{binaries}:{environ['PATH']}", "PYTHONPATH": str(ROOT)} | more
    return subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", script],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def start(folder: Path, command: str = "tunerd run", **more: str) -> int:
    """Start the daemon, and wait until it says so. Returns its process id."""
    log = folder / "daemon.log"
    log.unlink(missing_ok=True)
    said = shell(folder, f"{command} >{log.name} 2>&1 & echo $!", PATIENCE_S, **more)
    wait_until(lambda: '"started"' in log.read_text(), PATIENCE_S, f"{command}: {folder}")
    return int(said.stdout)


def stop(folder: Path, pid: int) -> None:
    os.kill(pid, signal.SIGTERM)
    log = folder / "daemon.log"
    wait_until(lambda: '"stopped"' in log.read_text(), PATIENCE_S, "the daemon stops")


@pytest.fixture(scope="session")
def learned(once_per_run: OncePerRun) -> Path:
    """An installation that has learned, and a table of old jobs beside it."""
    return once_per_run("documentation", _learn)


def _learn(folder: Path) -> None:
    installation(folder)
    pid = start(folder)
    stream = "tunerd-data/stream"
    shell(folder, f"echo rubbish >> {stream}/tunerd.jobs.jsonl")  # pages look at what was rejected
    jobs = shell(
        folder,
        f"tunerd cluster {STUDY} --stream-folder {stream} --jobs {JOBS} --policy random",
    )
    assert jobs.returncode == 0, jobs.stderr

    with open_store(f"sqlite:///{folder}/tunerd-data/tunerd.sqlite", upgrade=False) as store:

        def done() -> bool:
            row = store.study(STUDY)
            return row is not None and row.learned_sequence >= JOBS and not store.outbox_depths()

        wait_until(done, PATIENCE_S, "the jobs are learned")
    stop(folder, pid)
    _write_table(folder)


def _write_table(folder: Path) -> None:
    with open_store(f"sqlite:///{folder}/tunerd-data/tunerd.sqlite") as store:
        jobs = store.observations(STUDY, after=0, limit=JOBS)
    rows = [
        {
            "job_id": f"old-{job.job_id}",
            "finished_at": job.finished_at.isoformat(),
            "status": job.status.value,
            **job.context,
            **job.config,
            **job.metrics,
        }
        for job in jobs
    ]
    names = list(dict.fromkeys(name for row in rows for name in row))
    with (folder / "old-jobs.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(rows)


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    "page",
    [p for p in PAGES if p not in FIRST_HOUR and any(block.runs for block in blocks(p))],
)
def test_what_a_page_shows_works(page: str, learned: Path, tmp_path: Path) -> None:
    folder = tmp_path / "here"
    shutil.copytree(learned, folder)
    (folder / "daemon.log").unlink()
    settle(folder)
    for table in re.findall(r"[\w./-]+\.csv\b", (ROOT / page).read_text()):
        if not (folder / table).exists() and not table.startswith("/"):
            (folder / table).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(folder / "old-jobs.csv", folder / table)
    for block in blocks(page):
        if block.runs:
            run(folder, block)


def run(folder: Path, block: Block) -> None:
    """Type one block."""
    daemon: int | None = None
    try:
        for command in block.commands:
            if command.startswith("tunerd run"):
                daemon = start(folder, command.partition("#")[0].strip())
                continue
            code, text = typed(folder, command)
            assert code == 0, f"{command}\n{text}"
    finally:
        if daemon is not None:
            stop(folder, daemon)


def typed(folder: Path, command: str) -> tuple[int, str]:
    """Type one command: its exit code, and what it says.

    One that needs no shell runs in this process, as starting Python and importing what it needs
    takes longer than most of them. ``test_first_hour.py`` starts each in a shell.
    """
    if not command.startswith("tunerd ") or set(command) & SHELL:
        done = shell(folder, command)
        return done.returncode, done.stdout + done.stderr
    written = io.BytesIO()
    out = io.TextIOWrapper(written, encoding="utf-8", write_through=True)
    with (
        pytest.MonkeyPatch.context() as patched,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(out),
    ):
        patched.chdir(folder)
        for name in [name for name in os.environ if name.startswith("TUNERD_")]:
            patched.delenv(name)
        code = run_tunerd(shlex.split(command, comments=True)[1:])
    return code, written.getvalue().decode()


@pytest.mark.parametrize("page", PAGES)
def test_commands_and_options_exist(page: str) -> None:
    """Those in blocks that cannot run, and those named in the text."""
    text = (ROOT / page).read_text()
    named = re.findall(r"`(?:/opt/tunerd/bin/)?tunerd ([^`\n]+)`", text)
    for block in blocks(page):
        if not block.runs:
            named += re.findall(r"(?:^|/)tunerd ([a-z][^\n]*)", "\n".join(block.commands), re.M)
    for arguments in named:
        word, *rest = shlex.split(arguments.replace("…", ""), comments=True)
        for name in word.split("|"):
            if name.startswith("-"):
                continue
            assert name in COMMANDS, f"{page}: tunerd {arguments}"
            shown = _help(name)
            rest = rest[: rest.index("--")] if "--" in rest else rest  # then comes a program
            for option in (one.partition("=")[0] for one in rest if one.startswith("--")):
                assert option in shown, f"{page}: tunerd {arguments}: no {option}"


_HELP: dict[str, str] = {}


def _help(command: str) -> str:
    if command not in _HELP:
        from click import Context, Group
        from click.testing import CliRunner

        from tunerd.cli import cli

        made = cli.get_command(Context(cli), command)
        below = list(made.commands) if isinstance(made, Group) else []
        typed = [[command], *([command, name] for name in below)]
        _HELP[command] = "".join(
            CliRunner().invoke(cli, [*words, "--help"]).output for words in typed
        )
    return _HELP[command]


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    path = ROOT / page
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)(#[^)]*)?\)", path.read_text()):
        linked = (path.parent / target).resolve() if target else path
        assert linked.exists(), f"{page}: {target}"
        if anchor and linked.suffix == ".md":
            assert anchor[1:] in _anchors(linked.read_text()), f"{page}: {target}{anchor}"


def _anchors(text: str) -> set[str]:
    """As a forge makes them of headings."""
    heads = re.findall(r"^#+ (.*)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}
