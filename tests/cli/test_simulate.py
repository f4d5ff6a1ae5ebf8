"""``tunerd simulate`` end to end, on a table made up for the purpose."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Said
from tests.lab.evaluation.loops import STUDY, rows
from tunerd.cli import run

Answer = tuple[int, str, str]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A study file and a table with words of its own."""
    mapping = (
        '\n[mapping]\ncolumns = { n = "nodes" }\n'
        'status = { column = "how", values = { ok = "succeeded", oom = "out_of_memory" } }\n'
    )
    (tmp_path / "study.toml").write_text(STUDY.text + mapping)
    with (tmp_path / "jobs.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["nodes", "x", "y", "z", "speed", "how"])
        for row in rows((4, 8, 16)):
            speed = row.metrics.get("speed")
            ended = "oom" if speed is None else "ok"
            cells = [row.context["n"], row.config["x"], row.config["y"], row.config["z"]]
            table.writerow([*cells, speed, ended])
    return tmp_path


@pytest.fixture
def simulated(folder: Path, tunerd: Callable[..., Said]) -> Callable[..., dict[str, Any]]:
    """Run it on that table, for a program."""

    def simulated(*options: str) -> dict[str, Any]:
        table = [folder / "study.toml", folder / "jobs.csv"]
        said = tunerd("simulate", *table, "--json", *options)
        assert said.code == 0
        told: dict[str, Any] = said.json
        return told

    return simulated


def timeless(told: dict[str, Any]) -> dict[str, Any]:
    return {
        key: timeless(value) if isinstance(value, dict) else value
        for key, value in told.items()
        if not key.startswith("seconds_")
    }


@pytest.mark.slow
def test_the_whole_command(
    folder: Path, tunerd: Callable[..., Said], simulated: Callable[..., dict[str, Any]]
) -> None:
    options = ["--jobs", "24", "--start", "9", "--seeds", "2", "--batch", "5"]
    told = simulated(*options)
    table = [folder / "study.toml", folder / "jobs.csv"]
    shown = tunerd("simulate", *table, *options, "--plots", folder / "plots")
    assert "toy: 2 contexts, 2 seeds, from nothing" in shown.out
    assert "s per suggestion" in shown.out
    assert "the context has fewer than 40 configurations" in shown.err

    assert told["schema"] == "tunerd.lab.simulation/1"
    assert list(told["mean_regret"]) == [str(n) for n in range(1, 25)]
    regrets = list(told["mean_regret"].values())
    assert regrets == sorted(regrets, reverse=True)
    assert told["mean_regret"]["9"] == told["random"]["mean_regret"]["9"]
    assert regrets[-1] < told["random"]["mean_regret"]["24"]
    assert 0 < told["jobs_to_5_percent"]["share_reached"] <= 1
    assert told["seconds_per_suggestion"] > 0
    assert len(told["curves"]) == 4
    for curve in told["curves"]:
        assert len(curve["regret"]) == len(curve["tried"]) == 24
        assert told["configurations"][curve["context_key"]] == 48
    assert told["rows"] == 240
    assert told["left_out"] == {"the context has fewer than 40 configurations": 48}
    for name in ("regret.png", "regret_by_context.png"):
        assert (folder / "plots" / name).read_bytes().startswith(b"\x89PNG")


def test_a_single_loop_has_no_interval_and_it_is_the_same_again(
    folder: Path, tunerd: Callable[..., Said], simulated: Callable[..., dict[str, Any]]
) -> None:
    table = folder / "jobs.csv"
    header, *lines = table.read_text().splitlines()
    one = [line for line in lines if line.startswith("8,")]
    table.write_text("\n".join([header, *one]))
    options = ["--jobs", "4", "--start", "4", "--seeds", "1"]
    shown = tunerd("simulate", folder / "study.toml", table, *options).out
    assert timeless(simulated(*options)) == timeless(simulated(*options))
    assert "toy: 1 context, 1 seed, from nothing" in shown
    assert "% to " not in shown
    assert "–" in shown


@pytest.mark.slow
def test_history_of_the_others_is_a_better_start(
    simulated: Callable[..., dict[str, Any]],
) -> None:
    options = ["--jobs", "6", "--start", "0", "--seeds", "1", "--min-configs", "20"]
    warm = simulated(*options, "--history", "others")
    cold = simulated(*options)
    assert len(warm["configurations"]) == 3
    assert warm["mean_regret"]["1"] < cold["mean_regret"]["1"]
    assert warm["history"] == "others"


def test_another_searcher_and_a_campaign(simulated: Callable[..., dict[str, Any]]) -> None:
    options = ["--jobs", "12", "--start", "6", "--seeds", "1"]
    told = simulated(*options, "--searcher", "random", "--follow", "campaign")
    assert (told["searcher"], told["follow"]) == ("random", "campaign")
    assert all(len(set(curve["tried"])) == 12 for curve in told["curves"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--searcher", "best"], "--searcher: no searcher 'best'; there are"),
        (["--unknown", "n"], "--unknown leaves contexts out of --history others"),
        (["--history", "others", "--unknown", "gpu"], "no context feature 'gpu'; there are n"),
        (["--min-configs", "49"], "no context has 49 configurations; the most is 48"),
    ],
)
def test_mistakes_are_said(
    folder: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    table = [str(folder / "study.toml"), str(folder / "jobs.csv")]
    assert run(["simulate", *table, "--jobs", "20", *options]) == 2
    assert message in capsys.readouterr().err
