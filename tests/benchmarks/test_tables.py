"""Any described table runs without a change of code."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.tables import read_table
from tunerd.core.observation import FeasibilityLabel, Status
from tunerd.core.study_file import parse_study

ROWS = """when,GPU type,n,tp size,sum,note,time,outcome
2024-01-02,H100,8,1,a,x,1.5,good
2024-01-01,H100,16,2,b,x,1.2,good
2024-01-03,H100,8,2,,x,1.2,good
2024-01-04,A100,8,4,b,x,,exploded
2024-01-04,A100,8,4,b,x,,OOM
2024-01-05,A100,8,4,b,x,,node_fail
2024-01-05,A100,8,4,b,x,,
"""


def column(name: str, role: str, kind: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "role": role, "type": kind, **more}


COLUMNS = [
    column("when", "timestamp", "datetime"),
    column("GPU type", "context", "category"),
    column("n", "context", "int"),
    column("tp size", "tunable", "int"),
    column("sum", "tunable", "string"),
    column("note", "auxiliary", "string"),
    column("time", "objective", "float", direction="min", unit="s"),
    column("outcome", "status", "category"),
]


def write(folder: Path, columns: list[dict[str, Any]], rows: str = ROWS) -> None:
    (folder / "odd.json").write_text(json.dumps({"name": "odd", "columns": columns}))
    (folder / "odd.csv").write_text(rows)


def test_failures_dates_repeats_and_missing_values_are_read(tmp_path: Path) -> None:
    write(tmp_path, COLUMNS)
    table = read_table("odd", tmp_path)
    study = parse_study(table.study)
    assert table.dated
    assert study.objective.goal == "minimize"
    assert [p.name for p in study.parameters] == ["tp_size", "c_sum"]  # sum is a function
    assert [p.choices for p in study.parameters] == [(1, 2, 4), ("a", "b")]
    days = [one.finished_at.day for one in table.observations]
    assert days == sorted(days)
    statuses = [one.status for one in table.observations]
    assert statuses.count(Status.SUCCEEDED) == 3
    # A word that nobody knows, for a row without a result: what was tried did not run.
    assert [study.ran(one) for one in table.observations].count(FeasibilityLabel.NO) == 2
    assert statuses.count(Status.NODE_FAILURE) == 1
    assert sum(table.unusable.values()) == 1  # neither status nor objective
    assert table.observations[2].config == {"tp_size": 2}
    assert [one.sequence for one in table.observations] == [1, 2, 3, 4, 5, 6]


def test_roles_can_be_told_otherwise(tmp_path: Path) -> None:
    write(tmp_path, COLUMNS)
    table = read_table("odd", tmp_path, as_context=("tp size",), as_parameter=("n",))
    study = parse_study(table.study)
    assert {f.name for f in study.context} == {"GPU_type", "tp_size"}
    assert {p.name for p in study.parameters} == {"n", "c_sum"}


def test_without_a_status_a_row_without_the_objective_has_failed(tmp_path: Path) -> None:
    write(tmp_path, COLUMNS[:-1])
    table = read_table("odd", tmp_path)
    study = parse_study(table.study)
    ran = [study.ran(one) for one in table.observations]
    assert ran.count(FeasibilityLabel.YES) == 3
    assert ran.count(FeasibilityLabel.WEAK_NO) == 4


def test_an_objective_that_is_not_positive_is_compared_by_differences(tmp_path: Path) -> None:
    write(tmp_path, COLUMNS, ROWS.replace(",1.5,", ",-1.5,"))
    assert parse_study(read_table("odd", tmp_path).study).objective.scale == "linear"


def test_a_table_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"even\.csv"):
        read_table("even", tmp_path)
