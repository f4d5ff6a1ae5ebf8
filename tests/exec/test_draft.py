"""``tunerd init --from-command``: a study from a command line that is run anyway."""

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.exec.conftest import Place
from tunerd.cli import run
from tunerd.core.study import Study
from tunerd.core.study_file import parse_study

COMMAND = "zstd -T{threads} -{level} --long={window} {file} -o /dev/null"
Said = tuple[int, str, str]
Init = Callable[..., Said]


@pytest.fixture
def init(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Init:
    monkeypatch.chdir(tmp_path)

    def command(*arguments: str) -> Said:
        code = run(["init", "--from-command", *arguments])
        return (code, *capsys.readouterr())

    return command


def drafted(init: Init, command: str, *arguments: str) -> Study:
    code, out, err = init(command, *arguments, "--out", "-")
    assert code == 0, err
    return parse_study(out)


def values(study: Study) -> dict[str, Any]:
    return {one.name: (one.choices[0], one.choices[-1]) for one in study.parameters}


def test_ranges_come_from_a_few_tries(init: Init) -> None:
    study = drafted(
        *(init, COMMAND, "--context", "file"),
        *("--try", "threads=1 level=3 window=20", "--try", "threads=2 level=19 window=27"),
    )
    assert (study.name, study.mode) == ("zstd", "publish")
    assert values(study) == {"threads": (1, 2), "level": (3, 19), "window": (20, 27)}
    assert [one.name for one in study.context] == ["file"]
    assert study.baseline({}) == {"threads": 1, "level": 3, "window": 20}
    objective = study.objective
    assert (objective.metric, objective.goal, objective.unit) == ("wall_s", "minimize", "s")


def test_lists_ranges_switches_and_words(init: Init) -> None:
    study = drafted(
        *(init, "prog {mode} {flag} {rate} {batch} {odd}", "--try", "mode=b,a flag=true,false"),
        *("--try", "rate=0.001..1 rate=0.1 batch=4,1,2 odd=1,auto"),
        *("--objective", "speed", "--goal", "maximize", "--unit", "1/s"),
    )
    kinds = {one.name: one.type for one in study.parameters}
    assert kinds == {
        "mode": "category",
        "flag": "bool",
        "rate": "float",
        "batch": "int",
        "odd": "category",
    }
    baseline = study.baseline({})
    assert baseline == {"mode": "b", "flag": True, "rate": 0.1, "batch": 4, "odd": "1"}
    assert study.objective.goal == "maximize"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("zstd -3 x",), "has no {name}"),
        (("prog {größe}",), "has no {name}"),  # a study has no such names
        (("zstd -{level} 'x",), "No closing quotation"),
        (("zstd -{level}",), "--try 'level=1,2,4' lists values"),
        (("zstd -{level}", "--try", "level=3"), "one value only"),
        (("zstd -{level}", "--try", "lvl=3"), "a name of the command: level"),
        (("zstd -{level}", "--try", "level=9..3"), "the smaller one first"),
        (("zstd -{level}", "--try", "level=a..z"), "two numbers"),
        (("zstd -{level}", "--context", "level"), "nothing to tune"),
        (("zstd -{level}", "--try", "level=1,2", "--objective", "speed"), "--goal"),
    ],
)
def test_what_is_missing_is_said(init: Init, arguments: tuple[str, ...], says: str) -> None:
    code, out, err = init(*arguments)
    assert (code, out) == (2, "")
    assert says in err
    assert not list(Path.cwd().iterdir())


def test_a_study_that_is_there_stays(init: Init) -> None:
    arguments = ("zstd -{level}", "--try", "level=1,2")
    assert init(*arguments)[0] == 0
    written = Path("zstd.toml").read_text()
    assert init("zstd -{level}", "--try", "level=1,5")[0] == 2
    assert Path("zstd.toml").read_text() == written
    assert init(*arguments, "--force")[0] == 0


def test_strange_commands_make_no_broken_file(init: Init) -> None:
    study = drafted(
        init,
        "prog '\n\x07\"' {a} 'ü'",
        "--try",
        r"a=x\"y,z",
        "--name",
        "strange",
        "--try",
        "a='\x7f'",
    )
    assert study.name == "strange"


def test_a_bound_alone_is_told_as_a_guess(init: Init) -> None:
    _, out, _ = init("prog {a}", "--try", "a=1..9", "--out", "-")
    assert "A GUESS, look at it" in out
    assert values(parse_study(out)) == {"a": (1, 9)}


def test_what_it_says_to_run_next_runs(place: Place, init: Init) -> None:
    code, _, err = init("echo {level}", "--try", "level=1,2", "--out", str(place.folder / "e.toml"))
    assert code == 0, err
    done = place.run("--study", "e.toml", "--context", "file=a", "--", "echo", "{level}")
    assert b"has no context feature 'file'" in done.stderr
    (place.folder / "e.toml").rename(place.folder / "studies" / "e.toml")
    line = place.line("--study", "echo", "--", "echo", "{level}")
    line.remove("file=a")
    line.remove("--context")
    shown = subprocess.run(
        line, cwd=place.folder, env=place.environment, capture_output=True, check=True
    )
    assert shown.stdout == b"1\n"


def test_at_a_terminal_it_asks(tmp_path: Path) -> None:
    pid, end = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        line = [sys.executable, "-m", "tunerd", "init", "--from-command", "p {a} {b}"]
        os.execv(sys.executable, line)  # noqa: S606
    seen = b""
    deadline = time.monotonic() + 30
    answers = [(b"a: values", b"4,1\n"), (b"b: values", b"7\n"), (b"b: values", b"1..9\n")]
    answers += [(b"b: what is it today", b"5\n")]
    while time.monotonic() < deadline:
        if answers and answers[0][0] in seen:
            os.write(end, answers.pop(0)[1])
            seen = b""
        if select.select([end], [], [], 0.1)[0]:
            try:
                seen += os.read(end, 4096)
            except OSError:
                break
    _, status = os.waitpid(pid, 0)
    os.close(end)
    assert status == 0, seen
    study = parse_study((tmp_path / "p.toml").read_text())
    assert study.baseline({}) == {"a": 4, "b": 5}
    assert values(study) == {"a": (1, 4), "b": (1, 9)}
