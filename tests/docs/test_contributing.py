"""The recipes of CONTRIBUTING.md, followed to the letter in a copy of the code."""

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
STUDY = """
schema = 1
name = "s"
objective = { metric = "speed", goal = "maximize" }
parameters.x = { type = "bool" }
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the code in which all recipes were followed."""
    folder = tmp_path_factory.mktemp("contributing")
    for name in ("tunerd", "tests"):
        shutil.copytree(ROOT / name, folder / name)
    shutil.copy(ROOT / "pyproject.toml", folder)
    for path, code in re.findall(r"Write `(\S+)`:\n\n +```python\n(.*?)```", TEXT, re.DOTALL):
        (folder / path).write_text(textwrap.dedent("   " + code.lstrip()))
    added = r"Add to `(\w+)` in `(\S+)`:\n\n +```python\n +(.*?)\n +```(?:\n\n   and `(\w+)` to)?"
    for registry, path, line, module in re.findall(added, TEXT):
        text = (folder / path).read_text()
        text, count = re.subn(
            rf"^({registry}\b[^=\n]* = [({{])$", rf"\1\n    {line}", text, flags=re.M
        )
        assert count == 1, registry
        if module:
            package = path.removesuffix("/__init__.py").replace("/", ".")
            text = re.sub(
                r"^(from)", rf"from {package} import {module}\n\1", text, count=1, flags=re.M
            )
        (folder / path).write_text(text)
    return folder


def run(copy: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=copy,
        env=os.environ | {"PYTHONPATH": str(copy)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("kind", ["searcher", "predictor"])
def test_what_is_added_keeps_its_contract(copy: Path, kind: str) -> None:
    command = re.search(rf"`pytest (tests/contracts/test_{kind}.py -k \w+)`", TEXT)
    assert command is not None
    line = ["-q", "-n", "0", "-p", "no:cacheprovider", *command[1].split()]
    told = run(copy, "-m", "pytest", *line)
    assert re.search(r"\d\d passed", told), told


def test_a_predictors_own_options_are_settings_of_a_study(copy: Path) -> None:
    good = STUDY + '[predictor]\nname = "shallow_trees"\nleaves = 3\nmembers = 2\n'
    wrong = STUDY.replace('"speed"', '""') + '[predictor]\nname = "shallow_trees"\nleafs = 1\n'
    program = (
        "import sys\nfrom tunerd.core.predictors import predictor_class\n"
        "from tunerd.core.study_file import parse_study\n"
        "from tunerd.errors import MisconfiguredError\n"
        "good, plain, wrong = sys.argv[1:]\n"
        "for text in (good, plain):\n    options = parse_study(text).predictor\n"
        "    print(predictor_class('shallow_trees').growth(100, options, 0).leaves)\n"
        "try:\n    parse_study(wrong)\nexcept MisconfiguredError as error:\n"
        "    print(*error.problems, sep='\\n')\n"
    )
    chosen, default, *mistakes = run(copy, "-c", program, good, STUDY, wrong).splitlines()
    assert (chosen, default) == ("3", "7")
    for place in (
        "predictor.leafs",
        "did you mean 'leaves'",
        "predictor.leaves",
        "objective.metric",
    ):
        assert place in "\n".join(mistakes)
    page = run(copy, "-m", "tunerd", "schema", "study", "--markdown")
    assert "| `leaves` | `7` | Leaves of a tree. |" in page
    schema = json.loads(run(copy, "-m", "tunerd", "schema", "study"))
    assert schema["$defs"]["PredictorTable"]["properties"]["leaves"]["maximum"] == 31


def test_an_event_format_is_unwrapped(copy: Path) -> None:
    event = {
        "schema": "tunerd.job/1",
        "event_id": "1",
        "source": "site",
        "study": "s",
        "job_id": "j",
        "status": "succeeded",
        "finished_at": "2026-11-01T00:00:00Z",
        "context": {},
        "config": {"x": 1},
        "metrics": {"speed": 1.0},
    }
    program = (
        "import sys\nfrom datetime import UTC, datetime\nfrom tunerd.events import read_job\n"
        "now = datetime(2026, 11, 2, tzinfo=UTC)\n"
        "for line in sys.argv[1:]:\n    print(read_job(line.encode(), [], now))\n"
    )
    good = json.dumps({"envelope": 1, "payload": event})
    bad = json.dumps({"envelope": 1})
    first, second = run(copy, "-c", program, good, bad).splitlines()
    assert first.startswith("Observation(")
    assert "payload" in second


def test_an_importer_is_recognised(copy: Path) -> None:
    rows = [f"r{n},{n % 3},{1.0 + n % 3}" for n in range(12)]
    (copy / "runs.csv").write_text("\n".join(["gridlog_id,level,gridlog_time_s", *rows]))
    told = run(copy, "-m", "tunerd", "init", "runs.csv", "--yes")
    assert "runs of Gridlog" in told
