"""``tunerd init``: what a person sees; what is guessed is tested in ``tests/lab/tables``."""

import contextlib
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Said
from tunerd.core.study.mapping import StatusTable
from tunerd.core.study_file import parse_study
from tunerd.lab.tables.open_guesses import A_GUESS

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


def test_spoilt_cells_are_told(tunerd: Tunerd, table: Path) -> None:
    spoilt = TABLE.replace("gpt,16,2,1,", "gpt,16,2,#####,")
    table.write_text(spoilt)
    said = tunerd("init", table, "--out", "-")
    assert "micro_batch: '#####' in 1 row count as missing" in said.err
    assert "tokens_per_s" in said.err
    assert parse_study(said.out).objective.metric == "tokens_per_s"


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


def at_a_terminal(*arguments: object, answers: str) -> str:
    """Run ``tunerd init`` where a person sits; what was shown."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "tunerd", "init", *map(str, arguments)],
        stdin=theirs,
        stderr=theirs,
        stdout=subprocess.PIPE,
        env={**os.environ, "TERM": "dumb", "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    os.close(theirs)
    os.write(ours, answers.encode())
    shown = b""
    with contextlib.suppress(OSError):  # Linux says so when the other side has closed
        while part := os.read(ours, 1000):
            shown += part
    os.close(ours)
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(30) == 0, shown.decode()
    return shown.decode()


@pytest.mark.slow
def test_on_a_terminal_it_asks(table: Path) -> None:
    """The answers change the draft; Return takes the guess."""
    head, *rows = TABLE.splitlines()
    model, gpus, tp, batch, _, state = rows[0].split(",")
    rows[0] = ",".join((model, gpus, tp, batch, "0", state))
    table.write_text("\n".join((head, *rows)) + "\n")
    answers = "tokens_per_s\nminimize\nfurlongs/s\nran\n" + "\n" * 12
    shown = at_a_terminal(table, "--out", "asked.toml", answers=answers)
    assert "What is to be made better" in shown
    study = parse_study(Path("asked.toml").read_text())
    assert "1 of 24 rows have tokens_per_s = 0" in shown
    assert study.objective.goal == "minimize"
    assert (study.objective.scale, study.objective.impossible) == ("log", "ran")
    assert study.objective.unit == "furlongs/s"


UNSURE = "zork,blip,flux,state,value\n" + "".join(
    f"{n % 3},{'xyz'[n % 3]},{n % 5},{['fine', 'weird', 'odd'][n % 3]},"
    f"{'' if n % 3 == 1 else n + 0.5}\n"
    for n in range(60)
)


@pytest.mark.slow
def test_what_is_a_guess_is_asked_about_and_repeated_until_it_is_confirmed(
    tunerd: Tunerd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    jobs = tmp_path / "jobs.csv"
    jobs.write_text(UNSURE)
    said = tunerd("init", jobs, "--yes")
    assert "entries are guesses; repeated until confirmed" in said.out
    draft = Path("studies/jobs.toml")
    text = draft.read_text()
    count = text.count(A_GUESS)
    assert count >= 3
    check = tunerd("check")
    assert check.code == 0
    assert check.out.count("    line ") == count
    assert 'goal = "maximize"  # nothing says which way is better' in check.out
    assert len(tunerd("check", "--json").json["studies"][0]["guesses"]) == count
    draft.write_text(text.replace(f"{A_GUESS}: ", "", 1))
    assert tunerd("check").out.count("    line ") == count - 1
    draft.write_text(text.replace(A_GUESS, "I looked at it"))
    assert "guessed" not in tunerd("check").out
    answers = "value\nmin\n\nlabel\n\ncancelled\nfailed\n"
    shown = at_a_terminal(jobs, "--force", answers=answers + "\n" * 12)
    assert "What does 'weird' mean" in shown
    assert "blip: x, y, z" in shown
    assert A_GUESS not in draft.read_text()
    study = parse_study(draft.read_text())
    assert study.mapping.status is not None
    assert "guessed" not in tunerd("check").out


def test_each_role_can_be_said(
    tunerd: Tunerd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    header = "a,b,c,d,e,f,g,h,i"
    rows = [
        f"{n % 3},{'xy'[n % 2]},{['good', 'bad'][n % 5 == 0]},2026-01-{n % 28 + 1:02},j{n},"
        f"u{n % 4},{n}.5,{n * 7 % 11}.25,{n % 2}"
        for n in range(60)
    ]
    Path("jobs.csv").write_text("\n".join([header, *rows]))
    roles = {
        "parameter": "a", "context": "b", "status": "c", "finished-at": "d", "job-id": "e",
        "user": "f", "objective": "g", "metric": "h", "label": "i",
    }  # fmt: skip
    options = [part for name, column in roles.items() for part in (f"--{name}", column)]
    said = tunerd("init", "jobs.csv", "--yes", "--goal", "minimize", *options)
    assert said.code == 0, said.err
    study = parse_study(Path("studies/jobs.toml").read_text())
    mapping = study.mapping
    assert [one.name for one in study.parameters] == ["a"]
    assert [one.name for one in study.context] == ["b"]
    assert (study.objective.metric, study.objective.goal) == ("g", "minimize")
    assert (mapping.finished_at, mapping.job_id, mapping.user) == ("d", "e", "f")
    assert (mapping.metrics, mapping.labels) == (["h"], ["i"])
    assert isinstance(mapping.status, StatusTable)
    assert mapping.status.values == {"good": "succeeded", "bad": "failed"}
    assert "A GUESS" not in said.err


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (("--status", "tp", "--parameter", "tp"), "'tp' cannot be status and parameter"),
        (("--finished-at", "model"), "holds no times"),
        (("--metric", "model"), "holds no numbers"),
        (("--objective", "tp", "--context", "tp"), "cannot be the objective and context too"),
        (("--export", "optuma"), "there is no 'optuma'"),
    ],
)
def test_roles_that_cannot_be_are_refused(
    tunerd: Tunerd, table: Path, options: tuple[str, ...], part: str
) -> None:
    said = tunerd("init", table, "--yes", *options)
    assert said.code == 2
    assert part in said.err


@pytest.mark.parametrize(("reports", "jobs"), [("last", 12), ("best", 12), ("all", 60)])
def test_reports_of_runs_as_a_person_says(
    tunerd: Tunerd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reports: str, jobs: int
) -> None:
    monkeypatch.chdir(tmp_path)
    file = Path(__file__).parents[1] / "lab" / "tables" / "exports" / "ray_results.jsonl"
    said = tunerd("init", file, "--yes", "--name", "ray", "--reports", reports)
    assert f"{jobs} rows" in said.err
    study = parse_study(Path("studies/ray.toml").read_text())
    assert (study.mapping.export, study.mapping.reports) == ("ray_tune", reports)
    assert f"{jobs} are jobs" in tunerd("import", "ray", file, "--dry-run").out
