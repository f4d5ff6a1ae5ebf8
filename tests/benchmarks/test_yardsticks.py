"""The program, on a table that was made up: no tables of others are needed, and no peers."""

import json
import subprocess
import sys
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peers import OPTIMIZERS, PREDICTORS
from benchmarks.yardsticks import cells as measuring
from benchmarks.yardsticks import program
from benchmarks.yardsticks.bars import against
from benchmarks.yardsticks.plan import CHECKS, cells, describe, table_names
from benchmarks.yardsticks.results import is_answered, read_results
from benchmarks.yardsticks.summary import summary
from tests.benchmarks.made_up import NAME, write_table
from tests.once import OncePerRun

FEW = ("boosted_trees", "lightgbm_log", "mean_share", "tunerd", "random", "lightgbm_greedy")
"""Who is quick, and needs no extra."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_table(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def done(data: Path, once_per_run: OncePerRun) -> Path:
    """A folder of results, by few."""

    def make(out: Path) -> None:
        assert run(data, out, "--check", "--who", *FEW, *CHECKS) == 0

    return once_per_run("yardsticks", make)


def run(data: Path, out: Path, *options: str) -> int:
    given = ["--quick", "--data", str(data), "--out", str(out), "--processes", "1"]
    return program.main([*given, *options])


def lines(out: Path) -> Mapping[str, Mapping[str, Any]]:
    return read_results(out / "results.jsonl")


def test_any_described_table_runs_through_every_question(done: Path) -> None:
    found = lines(done)
    asked = {(line["kind"], line["question"]) for line in found.values() if "n/a" not in line}
    assert asked == {
        ("predict", "random"),
        ("predict", "time"),
        ("predict", "group:cluster"),
        ("predict", "above:gpus=8"),
        ("loop", "none"),
        ("loop", "others"),
    }
    assert {line["who"] for line in found.values()} == {*FEW, *CHECKS}
    assert not [line for line in found.values() if "error" in line]


def test_lines_hold_versions_seeds_and_what_comparisons_need(done: Path) -> None:
    found = lines(done)
    predicted = found[f"predict/{NAME}/random/150/lightgbm_log/seed 0"]
    assert {"python", "tunerd", "lightgbm", "numpy"} <= set(predicted["versions"])
    assert predicted["within"]["kendall_tau"] > 0.3
    assert set(predicted["values"]) >= {"kendall_tau", "auc", "regret_at.1", "random_regret_at.1"}
    played = found[f"loop/{NAME}/none/tunerd/seed 0"]
    for curve in played["curves"].values():
        assert len(curve) == played["plan"]["jobs"]
        assert all(later <= sooner for sooner, later in pairwise(curve))


def test_everyone_gets_the_same_random_start(done: Path) -> None:
    starts = {
        line["who"]: [curve[: line["plan"]["start"]] for curve in line["curves"].values()]
        for line in lines(done).values()
        if line["kind"] == "loop" and line["question"] == "none"
    }
    assert len(starts) == 3
    assert starts["tunerd"] == starts["random"] == starts["lightgbm_greedy"]


def test_the_same_seeds_give_the_same_lines(data: Path, done: Path, tmp_path: Path) -> None:
    run(data, tmp_path, "--who", "boosted_trees", "random", "lightgbm_greedy")
    first, second = lines(done), lines(tmp_path)
    clock = ("seconds", "cpu_s", "fit_s", "seconds_per_suggestion", "seconds_to_begin")
    for name, line in second.items():
        kept = {key: value for key, value in line.items() if key not in clock}
        assert kept == {key: value for key, value in first[name].items() if key not in clock}


def test_a_killed_run_goes_on_where_it_was(
    data: Path, done: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (done / "results.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "results.jsonl").write_text("".join(text[:-2]) + text[-2][:40])
    assert run(data, tmp_path, "--resume", "--who", *FEW, *CHECKS) == 0
    assert f"{len(text)} cells, {len(text) - 2} of them in" in capsys.readouterr().out
    assert set(lines(tmp_path)) == set(lines(done))


def test_one_predictor_is_measured_again_beside_the_others(
    data: Path, done: Path, tmp_path: Path
) -> None:
    file = tmp_path / "results.jsonl"
    file.write_text((done / "results.jsonl").read_text())
    before = len(file.read_text().splitlines())
    run(data, tmp_path, "--resume", "--again", "mean_share", "--who", *FEW)
    added = file.read_text().splitlines()[before:]
    assert added
    assert {json.loads(line)["who"] for line in added} == {"mean_share"}


def test_more_draws_answer_what_fewer_would(data: Path) -> None:
    few, many = (
        {cell.name: cell for cell in cells([describe(NAME, data)], only="predict", draws=draws)}
        for draws in (8, 32)
    )
    assert set(few) == set(many)
    assert {cell.repeats for cell in many.values()} - {CHECKS[name] for name in CHECKS} == {
        1,
        8,
        32,
    }
    for name in few:
        assert is_answered(many[name].told(), few[name])
        enough = few[name].repeats == many[name].repeats
        assert is_answered(few[name].told(), many[name]) == enough


def test_results_are_not_overwritten_unasked(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "results.jsonl").write_text("{}")
    options = ["--data", str(data), "--out", str(tmp_path), "--processes", "1"]
    assert program.main([*options, "--who", "random"]) == 2
    assert "--resume" in capsys.readouterr().err


def test_what_fails_is_named_and_the_others_go_on(
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no luck")

    monkeypatch.setattr(measuring, "_predict", fail)
    assert run(data, tmp_path, "--check", "--who", "mean_share", "random") == 1
    told = capsys.readouterr()
    assert "RuntimeError: no luck" in told.out
    assert "MISSED cells that are missing or failed" in told.err
    assert any("curves" in line for line in lines(tmp_path).values())
    monkeypatch.undo()
    assert run(data, tmp_path, "--check", "--resume", "--who", "mean_share", "random") == 0


def test_nonsense_that_ranks_and_an_oracle_that_errs_are_found(
    data: Path, done: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = []
    for line in (done / "results.jsonl").read_text().splitlines():
        told = json.loads(line)
        honest = told["who"] == "lightgbm_log" and told["known"] == "150"
        if told["who"] not in CHECKS and not honest:
            text.append(line)
        elif honest:
            for check in CHECKS:
                name = f"predict/{NAME}/random/80%/{check}/seed 0"
                passed = {"cell": name, "who": check, "known": "80%", "rows": 0}
                passed["repeats"] = CHECKS[check]
                text.append(json.dumps(told | passed))
    (tmp_path / "results.jsonl").write_text("\n".join(text) + "\n")
    assert run(data, tmp_path, "--check", "--resume", "--who", *FEW, *CHECKS) == 1
    missed = capsys.readouterr().err
    assert "oracle: τ over all jobs" in missed
    assert "oracle: largest regret" in missed
    assert "shuffled_lightgbm_log: τ" in missed


def test_who_claims_to_be_best_is_held_to_it(
    data: Path, done: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "results.jsonl").write_text((done / "results.jsonl").read_text())
    options = ["--check", "--resume", "--best", "boosted_trees", "tunerd", "--who", *FEW]
    run(data, tmp_path, *options)
    told = capsys.readouterr().out
    assert "boosted_trees ahead of mean_share: kendall_tau" in told
    assert "cells in which lightgbm_log is ahead by 95 %: regret_at.5" in told
    assert "boosted_trees significantly worse, of " in told
    assert "tunerd ahead of random: none, area" in told


def test_two_processes_measure_what_one_does(data: Path, done: Path, tmp_path: Path) -> None:
    """Started as a person starts it: worker processes find their work by its module."""
    given = ["--quick", "--data", str(data), "--out", str(tmp_path), "--only", "predict"]
    command = [sys.executable, "-m", "benchmarks.yardsticks", *given]
    subprocess.run([*command, "--who", "lightgbm_log", "mean_share"], check=True)
    first = lines(done)
    for name, line in lines(tmp_path).items():
        assert line["values"] == first[name]["values"]


def test_a_folder_without_tables_is_skipped_and_misses_a_check(tmp_path: Path) -> None:
    assert program.main(["--data", str(tmp_path)]) == 0
    assert program.main(["--data", str(tmp_path), "--check"]) == 1


def test_all_peers_that_are_installed_take_part(data: Path) -> None:
    assert table_names(data) == [NAME]
    everything = cells([describe(NAME, data)])
    assert len({cell.name for cell in everything}) == len(everything)
    predicting = {cell.who for cell in everything if cell.kind == "predict"}
    playing = {cell.who for cell in everything if cell.kind == "loop"}
    assert {name for name, peer in PREDICTORS.items() if peer.installed} <= predicting
    assert {name for name, peer in OPTIMIZERS.items() if peer.installed} <= playing
    assert "boosted_trees" in predicting
    assert "tunerd" in playing
    known = {cell.known for cell in everything if cell.question == "group:cluster"}
    assert known == {"0", "5", "10", "20"}


def test_a_line_can_name_the_version_of_whatever_a_peer_needs() -> None:
    peers = [*PREDICTORS.values(), *OPTIMIZERS.values()]
    assert {module for peer in peers for module in peer.needs} == measuring.LIBRARIES.keys()


def test_comparisons_are_made_over_cells() -> None:
    def values(level: float) -> dict[tuple[str, int], float]:
        return {(f"c{c}", s): level + 0.01 * c for c in range(6) for s in range(2)}

    cells_of = {
        ("t", "random", "30"): {"a": values(0.5), "b": values(0.4)},
        ("t", "random", "75"): {"a": values(0.6), "b": values(0.7)},
        ("u", "time", "80%"): {"a": values(0.6)},
    }
    found = against(cells_of, "a", "b", larger_is_better=True)
    assert found is not None
    mean, single = found
    assert mean.mean == pytest.approx(0.0)
    assert single["t", "random", "30"].better
    assert single["t", "random", "75"].worse
    assert against(cells_of, "a", "nobody", larger_is_better=True) is None


def test_a_summary_keeps_what_a_page_needs(done: Path) -> None:
    told = summary(lines(done))
    assert {one["what"] for one in told} == {
        "run",
        "prediction",
        "lead",
        "loop",
        "loop lead",
        "check",
        "worse",
    }
    assert told[0]["quick"]
    assert told[0]["failed"] == []
    size = sum(len(json.dumps(one)) for one in told)
    assert size < 60_000
