"""``tunerd backtest``."""

import csv
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.cli.conftest import STUDY, Installation, Said
from tests.core.tuning import TEXT, random_jobs
from tests.needs import need_library
from tunerd.core.observation import Observation, Status

pytestmark = pytest.mark.slow

Tunerd = Callable[..., Said]


@pytest.fixture
def study(tmp_path: Path) -> Path:
    file = tmp_path / "toy.toml"
    file.write_text(TEXT)
    return file


def write(file: Path, jobs: list[Observation], *, dated: bool = True) -> Path:
    """A table of the toy study's jobs; what has x = 1 ran out of memory."""
    with file.open("w", newline="") as opened:
        table = csv.writer(opened)
        table.writerow(["n", "x", "y", "z", "speed", "status", *(["finished_at"] if dated else [])])
        for one in jobs:
            failed = one.config["x"] == 1
            status = Status.OUT_OF_MEMORY if failed else one.status
            speed = "" if failed else one.metrics.get("speed", "")
            config = [one.config[name] for name in "xyz"]
            row = [one.context["n"], *config, speed, status.value]
            table.writerow([*row, one.finished_at.isoformat()] if dated else row)
    return file


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write(tmp_path / "jobs.csv", random_jobs(150))


def test_a_table_says_how_well_it_would_have_been_predicted(
    tunerd: Tunerd, study: Path, table: Path
) -> None:
    said = tunerd("backtest", study, table, "--split", "group:n", "--repeats", 1)
    assert said.code == 0
    assert "toy: group:n" in said.out
    assert "Kendall τ in contexts" in said.out
    assert "all parameters" in said.out
    splits = ("--split", "random", "--split", "group:n", "--split", "time")
    report = tunerd("backtest", study, table, *splits, "--live", "--repeats", 1, "--json").json
    assert report["schema"] == "tunerd.backtest/1"
    assert report["rows"] == 150
    found = {(r["split"], r["predictor"]) for r in report["results"]}
    assert found == {
        ("random", "boosted_trees"),
        ("group:n", "boosted_trees"),
        ("time", "boosted_trees"),
        ("time", "boosted_trees_live"),
    }
    first = report["results"][0]
    assert first["kendall_tau"] == first["overall"]["kendall_tau"] > 0.8
    assert set(first["per_context"]) == {"toy|n=4", "toy|n=8", "toy|n=16"}
    assert set(report["importance"]) == {
        f"{s} boosted_trees" for s in ("random", "group:n", "time")
    }


def test_the_report_fits_its_schema_and_is_the_same_from_several_processes(
    tunerd: Tunerd, study: Path, table: Path
) -> None:
    jsonschema = need_library("jsonschema", "test")
    reports = []
    for processes in (1, 2):
        more = ("--processes", processes, "--known", "40", "--repeats", 2, "--json")
        reports.append(tunerd("backtest", study, table, *more).json)
        for result in reports[-1]["results"]:
            del result["seconds"]
    assert reports[0] == reports[1]
    schema = tunerd("schema", "backtest").json
    reports[0]["results"][0]["seconds"] = 1.0
    jsonschema.validate(reports[0], schema)


def test_plots(tunerd: Tunerd, study: Path, table: Path, tmp_path: Path) -> None:
    folder = tmp_path / "plots"
    splits = ("--split", "above:n=8", "--split", "curve", "--known", "0,10", "--repeats", 1)
    assert tunerd("backtest", study, table, *splits, "--plots", folder).code == 0
    names = {path.name for path in folder.iterdir()}
    drawn = {"above-n-8-predicted", "above-n-8-known", "curve-predicted", "importance"}
    assert {f"{name}.{ending}" for name in drawn for ending in ("png", "svg")} <= names
    assert (folder / "curve-predicted.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (folder / "curve-predicted.svg").read_text()


def test_without_a_table_the_history_in_the_store_counts(
    tunerd: Tunerd, installation: Installation
) -> None:
    jobs = [
        Observation(
            study="llm",
            source="test",
            event_id=f"e{i}",
            job_id=f"j{i}",
            status=Status.SUCCEEDED,
            finished_at=datetime.fromtimestamp(1_700_000_000 + i, UTC),
            context={"gpu": "H100", "n_gpus": 4 + 4 * (i % 2)},
            config={"tp": (1, 2, 4)[i % 3], "pp": 1 + i // 3 % 2},
            metrics={"speed": 100.0 + i % 3 + i // 3 % 2},
            content_hash=f"h{i}",
        )
        for i in range(60)
    ]
    settings = ("--settings", installation.file)
    said = tunerd("backtest", "llm", *settings)
    assert said.code == 2
    assert "no job has finished yet" in said.err
    with installation.open_store() as store, store.transaction() as tx:
        tx.add_observations("llm", jobs, datetime.now(UTC))
    told = tunerd("backtest", "llm", *settings, "--split", "time", "--json").json
    assert told["jobs"] == "history of llm"
    assert told["rows"] == 60
    said = tunerd("backtest", "lmm", *settings)
    assert said.code == 2
    assert "there are llm" in said.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--split", "group:gpu"], "no column 'gpu'; there are n, x, y, z, context_key"),
        (["--split", "sometimes"], "none of random, time, group:COLUMN"),
        (["--known", "many"], "neither a number of jobs"),
        (["--predictor", "tea_leaves"], "no predictor 'tea_leaves'"),
        (["--live"], "needs --split time"),
        (["--split", "above:n=99"], "n goes from 4 to 16"),
    ],
)
def test_wrong_use_says_what_would_be_right(
    tunerd: Tunerd, study: Path, table: Path, arguments: list[str], says: str
) -> None:
    said = tunerd("backtest", study, table, *arguments)
    assert said.code == 2
    assert says in said.err
    assert said.out == ""


def test_time_needs_dates(tunerd: Tunerd, study: Path, tmp_path: Path) -> None:
    undated = write(tmp_path / "undated.csv", random_jobs(50), dated=False)
    said = tunerd("backtest", study, undated, "--split", "time")
    assert said.code == 2
    assert "mapping.finished_at" in said.err


def test_a_mapping_needs_a_table(tunerd: Tunerd, study: Path, tmp_path: Path) -> None:
    said = tunerd("backtest", study, "--mapping", tmp_path / "mapping.toml")
    assert said.code == 2
    assert "there is none" in said.err


def test_rows_that_cannot_be_used_are_told(tunerd: Tunerd, tmp_path: Path, table: Path) -> None:
    (tmp_path / "llm.toml").write_text(STUDY)
    said = tunerd("backtest", tmp_path / "llm.toml", table)
    assert said.code == 2
    with table.open("a") as opened:
        opened.write("8,2,a,yes,fast,succeeded,2026-11-01T00:00:00Z\n")
    (tmp_path / "toy.toml").write_text(TEXT)
    said = tunerd("backtest", tmp_path / "toy.toml", table, "--no-importance", "--repeats", 1)
    assert said.code == 0
    assert "1 row cannot be used" in said.err
    assert "metrics.speed" in said.err
