"""The front door: help costs nothing, exit codes mean something."""

import json
import os
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Installation, Said
from tunerd import __version__
from tunerd.cli import COMMANDS

Tunerd = Callable[..., Said]

HEAVY = ("lightgbm", "torch", "kafka", "matplotlib", "sqlalchemy")
IMPORTED = """
import json, sys
from tunerd.cli import run
heavy, *lines = json.loads(sys.argv[1])
for line in lines:
    code = run(line)
    imported = [name for name in heavy if name in sys.modules]
    if code or imported:
        sys.exit(f"{line}: exit code {code}, imported {imported}")
"""


def run_all(heavy: tuple[str, ...], lines: list[list[str]]) -> tuple[str, str]:
    """Run command lines one after the other in a process that imports none of these libraries.

    Returns what they print, and what they say on standard error.
    """
    given = json.dumps([heavy, *lines])
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED, given], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


@pytest.mark.slow
def test_help_imports_nothing_heavy() -> None:
    lines = [["--help"], *([name, "--help"] for name in COMMANDS)]
    out, err = run_all(HEAVY, lines)
    assert (out.count("Usage: tunerd"), err) == (len(lines), "")


@pytest.mark.slow
def test_who_reads_a_store_imports_no_learners(installation: Installation) -> None:
    """They take a second."""
    lines = [["status"], ["ledger", "llm"], ["commands", "llm"], ["pause", "llm", "--why", "test"]]
    settings = ["--settings", str(installation.file)]
    run_all(("lightgbm", "torch", "scipy", "sklearn"), [line + settings for line in lines])


@pytest.mark.slow
def test_help_is_quick() -> None:
    """Processor time of the best of three: the machine may be busy with other tests."""
    taken = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "tunerd", "--help"], stdout=-3, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    assert min(taken) < 0.5


@pytest.mark.slow
def test_the_program_is_installed() -> None:
    program = Path(sys.executable).with_name("tunerd")
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"tunerd, version {__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [["nope"], ["run", "--nope"], ["run", "--stages", "ingest,tun"], ["schema", "x"], []],
)
def test_wrong_use_is_misconfigured(tunerd: Tunerd, arguments: list[str]) -> None:
    said = tunerd(*arguments)
    assert said.code == 2
    assert "Usage: tunerd" in said.err


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("statsu", "did you mean 'status'?"),
        ("reprot llm", "did you mean 'report'?"),
        ("run --stage ingest", "Did you mean '--stages'?"),
        ("report lmm", "it knows: llm; did you mean 'llm'?"),
        ("status lmm", "it knows: llm; did you mean 'llm'?"),
        ("explain lmm", "did you mean 'llm'?"),
        ("derive --study lmm", "did you mean 'llm'?"),
        ("approve --study lmm", "did you mean 'llm'?"),
        ("backtest lmm", "did you mean 'llm'?"),
        ("simulate lmm", "did you mean 'llm'?"),
        ("import lmm jobs.csv", "did you mean 'llm'?"),
        ("cluster ads-fspd", "did you mean 'ads-fsdp'?"),
        ("pause llm --context n_gpu=8", "did you mean 'n_gpus'?"),
        ("check studies/lmm.toml", "did you mean 'llm.toml'?"),
        ("import llm job.csv", "did you mean 'jobs.csv'?"),
        ("init job.csv", "did you mean 'jobs.csv'?"),
        ("backtest llm job.csv", "did you mean 'jobs.csv'?"),
        ("simulate llm job.csv", "did you mean 'jobs.csv'?"),
        ("status --settings tunerd.tml", "did you mean 'tunerd.toml'?"),
    ],
)
def test_what_is_mistyped_gets_the_nearest(
    tunerd: Tunerd,
    installation: Installation,
    monkeypatch: pytest.MonkeyPatch,
    typed: str,
    meant: str,
) -> None:
    monkeypatch.chdir(installation.folder)
    Path("jobs.csv").write_text("gpu,n_gpus,tp,pp,speed\nA,8,1,1,3.2\n")
    said = tunerd(*typed.split())
    assert said.code == 2
    assert meant in said.err


@pytest.mark.parametrize("made", [[], ["tunerd.toml"], ["studies/"]])
def test_an_empty_folder_is_told_what_to_do_first_and_left_empty(
    tunerd: Tunerd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in made:
        Path(name).mkdir() if name.endswith("/") else Path(name).write_text("")
    said = tunerd("run")
    assert said.code == 2
    assert "tunerd init" in said.err
    assert "tunerd demo" in said.err
    for command in ("status", "report x", "check", "reload", "pause x", "import x y.csv"):
        tunerd(*command.split())
    assert sorted(path.name for path in tmp_path.iterdir()) == [name.strip("/") for name in made]


NO_JSON = {
    "exec": "standard output is the program's",
    "run": "never ends by itself; log.format = json has its log in lines of JSON",
    "subscribe": "never ends by itself; what it says is for a journal",
    "webhook": "never ends by itself; it answers AdmissionReviews",
    "ui": "serves a page, whose every table has its JSON beside it",
    "schema": "prints contracts and other programs' files as they are",
}


GROUPS = {
    "store": ("store export", "store load"),
    "quarantine": (
        "quarantine list",
        "quarantine show",
        "quarantine release",
        "quarantine confirm",
    ),
}


@pytest.mark.parametrize(
    "command",
    [one for name in COMMANDS if name not in NO_JSON for one in GROUPS.get(name, (name,))],
)
def test_every_command_has_the_same_json(tunerd: Tunerd, command: str) -> None:
    said = tunerd(*command.split(), "--help")
    assert re.search(r"--json +Print (the result as|one) JSON", said.out)


@pytest.mark.parametrize(
    "typed",
    [
        "check",
        "status",
        "status llm",
        "commands",
        "approve",
        "decline",
        "pause llm",
        "resume llm",
        "pin llm --set tp=2",
        "forbid llm --set tp=2",
        "lift llm 1",
        "campaign llm --context gpu=A --context n_gpus=8 --jobs 4 --rounds 1",
        "models llm",
        "ledger llm",
        "report llm",
        "reload",
        "recover",
        "end llm",
        "init jobs.csv --yes",
        "import llm jobs.csv --dry-run",
        "backtest llm jobs.csv --no-importance --repeats 1",
        "simulate llm jobs.csv --jobs 2 --start 2 --seeds 1 --min-configs 2",
        "recommend llm --context gpu=A --context n_gpus=8",
        "cluster ads-fsdp --stream-folder stream --jobs 1",
    ],
)
def test_json_is_all_that_standard_output_has(
    tunerd: Tunerd, installation: Installation, monkeypatch: pytest.MonkeyPatch, typed: str
) -> None:
    monkeypatch.chdir(installation.folder)
    rows = [f"A,8,{tp},{pp},{tp * pp + i}" for tp in (1, 2, 4) for pp in (1, 2) for i in range(2)]
    Path("jobs.csv").write_text("\n".join(["gpu,n_gpus,tp,pp,speed", *rows]))
    if typed == "lift llm 1":
        tunerd("pause", "llm")
    said = tunerd(*typed.split(), "--json")
    assert said.code in (0, 1), said.err  # 1: there is nothing to say
    assert isinstance(said.json, dict | list)
    wrong = tunerd(*typed.split(), "--json", "--nope")
    assert (wrong.code, wrong.out) == (2, "")


def test_shells_complete_commands_options_and_studies(
    tunerd: Tunerd,
    installation: Installation,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(installation.folder)

    def completed(line: str) -> list[str]:
        monkeypatch.setenv("_TUNERD_COMPLETE", "bash_complete")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
        with pytest.raises(SystemExit):
            tunerd()
        return [one.partition(",")[2] for one in capsys.readouterr().out.splitlines()]

    assert completed("tunerd rep") == ["replay-rejected", "report"]
    assert completed("tunerd report --ht") == ["--html"]
    assert completed("tunerd report l") == ["llm"]
    assert completed("tunerd status ") == ["llm"]
    assert completed("tunerd approve --study ") == ["llm"]
    assert completed("tunerd explain --settings tunerd.toml l") == ["llm"]
    (installation.folder / "studies" / "wrong.toml").write_text("name =")
    assert completed("tunerd report ") == ["llm"]


def test_mistakes_are_told_without_a_traceback(tunerd: Tunerd, tmp_path: Path) -> None:
    (tmp_path / "tunerd.toml").write_text("[htpp]\n[lgo]\n")
    for command in ("run", "status", "check", "approve"):
        said = tunerd(command, "--settings", tmp_path / "tunerd.toml")
        assert said.code == 2
        assert "did you mean http?" in said.err
        assert "did you mean log?" in said.err
        assert "Traceback" not in said.err


def test_settings_may_be_named_by_the_environment(
    tunerd: Tunerd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNERD_SETTINGS", str(tmp_path / "none.toml"))
    assert "none.toml: there is no such file" in tunerd("check").err


@pytest.mark.slow
def test_a_reader_that_stops_reading_is_no_crash() -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "tunerd", "schema", "settings"],
            stdout=write,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    finally:
        os.close(write)
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("terminal", [False, True])
def test_no_locale_ends_a_command(tmp_path: Path, terminal: bool) -> None:
    study = tmp_path / "one.toml"
    study.write_text(
        'schema = 1\nname = "one"\nparameters.tp = { type = "int", values = [1, 2] }\n'
        'objective = { metric = "took", goal = "minimize", unit = "東s" }\n',
        encoding="utf-8",
    )
    read, write = os.openpty() if terminal else os.pipe()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "tunerd", "check", str(study)],
            stdout=write,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env={**os.environ, "PYTHONIOENCODING": "latin-1"},
        )
        assert (done.returncode, done.stderr) == (0, "")
        said = os.read(read, 4_096).decode()
    finally:
        os.close(read)
        os.close(write)
    assert ("(?s)" if terminal else "(東s)") in said


@pytest.mark.slow
def test_folders_that_a_user_may_not_enter(installation: Installation) -> None:
    """An operator's own user, where only the daemon's may look: a line each, no traceback."""
    (installation.folder / "jobs.csv").write_text("tp,gpu,speed\n1,A,3.2\n2,A,4.1\n")
    data, studies = installation.folder / "tunerd-data", installation.folder / "studies"
    closed, settings = [data, studies], ["--settings", str(installation.file)]
    draft = ["init", str(installation.folder / "jobs.csv"), "--yes", "--name", "new"]
    commands = [
        ["status", *settings],
        ["recover", *settings],
        ["import", "llm", str(installation.folder / "jobs.csv"), *settings],
        ["check", *settings],
        [*draft, "--out", str(data / "new.toml")],
    ]
    program = "import sys, json; from tunerd.cli import run; "
    program += "sys.exit(str([run(one) for one in json.loads(sys.argv[1])]))"
    # Root enters any folder; what else it may do has to be taken from it.
    powerless = ["setpriv", "--bounding-set", "-all", "--inh-caps", "-all"]
    started = powerless if os.geteuid() == 0 else []
    try:
        for folder in closed:
            folder.chmod(0)
        done = subprocess.run(
            [*started, sys.executable, "-c", program, json.dumps(commands)],
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        for folder in closed:
            folder.chmod(0o700)
    *told, codes = [line for line in done.stderr.splitlines() if line]
    assert codes == "[1, 1, 2, 2, 1]"
    store, new = data / "tunerd.sqlite", data / "new.toml"
    assert told[0].startswith(f"tunerd: store.url: {store}: Permission denied; run this as the")
    assert told[1] == told[0]
    assert told[2] == told[3] == f"{studies}: cannot read the folder of studies: Permission denied"
    assert told[-1] == f"tunerd: {new}: Permission denied"
