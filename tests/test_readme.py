"""What the README and the examples show works as it stands there."""

import csv
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tunerd.core.study_file import parse_study
from tunerd.settings import load_settings

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
EXAMPLES = ROOT / "examples"


def block(language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", README, re.M | re.S)
    return str(found)


def test_the_study_is_the_one_that_ships() -> None:
    shown = parse_study(block("toml"))
    ships = parse_study((EXAMPLES / "neighbours.toml").read_text())
    assert shown.content_hash == ships.content_hash  # the mapping is not part of it
    assert shown.mode == "observe"


def test_the_scheduler_is_the_one_that_ships() -> None:
    ships = (EXAMPLES / "scheduler.py").read_text()
    assert block("python") in ships
    assert len([line for line in block("python").splitlines() if line]) <= 30


def test_the_table_has_an_optimum_repeats_failures_and_contexts() -> None:
    with (EXAMPLES / "neighbours.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert f"has {len(rows)} such jobs" in README
    assert len({(row["points"], row["dims"]) for row in rows}) == 4
    assert sum(row["status"] == "out_of_memory" for row in rows) >= 5
    names = ("points", "dims", "method", "chunk", "dtype", "reuse")
    configurations = [tuple(row[name] for name in names) for row in rows]
    assert len(set(configurations)) < 0.8 * len(rows)
    assert any(float(row["distance_error"] or 0) > 0.01 for row in rows)


@pytest.mark.slow
def test_the_program_measures_such_rows(tmp_path: Path) -> None:
    table = tmp_path / "new.csv"
    program = [sys.executable, str(EXAMPLES / "measure.py"), str(table), "--jobs", "4"]
    subprocess.run(program, check=True, capture_output=True)
    header, *rows = table.read_text().splitlines()
    assert header == (EXAMPLES / "neighbours.csv").read_text().splitlines()[0]
    assert len(rows) == 4
    study = parse_study((EXAMPLES / "neighbours.toml").read_text())
    assert {guard.metric for guard in study.guards} <= set(header.split(","))


@pytest.mark.slow
def test_where_no_daemon_has_been_the_scheduler_says_so(tmp_path: Path) -> None:
    program = [sys.executable, str(EXAMPLES / "scheduler.py"), "1"]
    done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "no tunerd daemon has been here" in done.stderr


def test_the_example_settings_are_sound(tmp_path: Path) -> None:
    (tmp_path / "tunerd.toml").write_text((ROOT / "deploy" / "tunerd.toml").read_text())
    for secret in ("kafka-password", "store-password"):
        (tmp_path / secret).write_text("x\n")
    (tmp_path / "studies").mkdir()
    settings = load_settings(tmp_path / "tunerd.toml", {})
    assert settings.stream.kind == "kafka"
