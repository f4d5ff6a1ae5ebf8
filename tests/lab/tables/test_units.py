"""One quantity in several units, within a column or beside each other, and lists of one value."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.lab.tables.test_draft import drafted, outcomes
from tests.lab.tables.test_guess import roles
from tests.lab.tables.test_more_strangers import saved
from tests.lab.tables.test_strangers import GRID, read, rows_of, speed
from tunerd.errors import MisconfiguredError
from tunerd.lab.tables.exports.units import base_of
from tunerd.lab.tables.files import ReadOptions, open_table
from tunerd.lab.tables.rows import TableRow

UNITS = {
    "latency": {"ms": 1e-3, "s": 1.0, "us": 1e-6},
    "rate": {"tok/s": 1.0, "tokens/s": 1.0, "tokens/min": 1 / 60},
    "bandwidth": {"MB/s": 1e6, "GB/s": 1e9, "MiB/s": 2.0**20},
    "perf": {"GFLOPS": 1e9, "TFLOP/s": 1e12},
}


@pytest.mark.parametrize(
    ("header", "line"),
    [
        ("threads,batch,{q}", "{a},{b},{v!r} {u}"),
        ("threads,batch,{q},unit", "{a},{b},{v!r},{u}"),
        ("threads,batch,unit,{q}", "{a},{b},{u},{v!r}"),
        ("threads,batch,{q},{q}_unit", "{a},{b},{v!r},{u}"),
    ],
)
@pytest.mark.parametrize(
    ("quantity", "goal"),
    [("latency", "minimize"), ("bandwidth", "maximize"), ("perf", "maximize")],
)
def test_units_that_differ_from_row_to_row(
    header: str, line: str, quantity: str, goal: str, tmp_path: Path
) -> None:
    """Beside a number, its unit was a parameter or nothing, and 5 s less than 6 ms."""
    units = list(UNITS[quantity].items())
    true = [1e3 * speed(a, b) for a, b in GRID]
    lines = []
    for place, ((a, b), value) in enumerate(zip(GRID, true, strict=True)):
        unit, factor = units[place % len(units)]
        lines.append(line.format(a=a, b=b, v=value / factor, u=unit))
    path = saved(tmp_path / "runs.csv", header.format(q=quantity), lines)
    guesses, _ = read(path)
    assert (guesses.objective.column.name, guesses.goal) == (quantity, goal)
    assert {c for c, role in roles(guesses).items() if role == "parameter"} == {"threads", "batch"}
    _, study, table = drafted(path)
    assert outcomes(study, table) == {"succeeded": len(GRID)}
    assert guesses.objective.column.numbers == pytest.approx(true)


def test_a_file_with_one_unit_alone_means_the_same_as_the_one_that_was_drafted_from(
    tmp_path: Path,
) -> None:
    lines = [f"{a},{b},{speed(a, b)!r},ms" for a, b in GRID]
    path = saved(tmp_path / "runs.csv", "threads,batch,latency,unit", lines)
    assert open_table(path).export is None
    rows = list(open_table(path, ReadOptions(export="units")).rows())
    values = [row.values["latency"] for row in rows if isinstance(row, TableRow)]
    assert values == pytest.approx([speed(a, b) / 1e3 for a, b in GRID])


@pytest.mark.parametrize("names", [("latency_ms", "latency_s"), ("tok/s", "tokens/s")])
def test_two_columns_of_which_each_row_has_one_are_one(
    names: tuple[str, str], tmp_path: Path
) -> None:
    factors = [base_of("ms" if "ms" in name else "s") or ("", 1.0) for name in names]
    path = tmp_path / "runs.jsonl"
    records: list[dict[str, Any]] = []
    for place, (a, b) in enumerate(GRID):
        value = speed(a, b) / factors[place % 2][1]
        records.append({"threads": a, "batch": b, names[place % 2]: value})
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    guesses, told = read(path)
    assert guesses.objective.column.numbers == pytest.approx([speed(a, b) for a, b in GRID])
    assert guesses.objective.sure > 0.5
    assert any("several units" in sentence for sentence in told)


def test_a_value_with_its_unit_in_a_record(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    records = [
        {"threads": a, "batch": b, "latency": {"value": speed(a, b), "unit": "ms"}} for a, b in GRID
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    _, study, table = drafted(path)
    assert (study.objective.unit, study.objective.goal) == ("ms", "minimize")
    assert outcomes(study, table) == {"succeeded": len(GRID)}


def test_units_of_different_things_are_left_as_they_are(tmp_path: Path) -> None:
    lines = [f"{a},{b},{speed(a, b)},{'ms' if a % 2 else 'MB'}" for a, b in GRID]
    path = saved(tmp_path / "runs.csv", "threads,batch,result,unit", lines)
    assert open_table(path).export is None
    assert rows_of(path)[0]["unit"] == "ms"


@pytest.mark.parametrize("unit", ["Mb", "Gb/s", "furlong", "", "s/it", "tokens", "ns/day", "%"])
def test_what_is_no_unit_of_one_meaning_has_no_base(unit: str) -> None:
    """A small b is a bit for some, and a byte for others."""
    assert base_of(unit) is None


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    quantity=st.sampled_from(sorted(UNITS)),
    rows=st.lists(
        st.tuples(st.floats(1e-6, 1e6), st.integers(0, 9)), min_size=2, max_size=20, unique=True
    ),
)
def test_whatever_its_unit_a_number_is_the_same_number(
    quantity: str, rows: list[tuple[float, int]], tmp_path: Path
) -> None:
    units = list(UNITS[quantity].items())
    given_units = [units[k % len(units)] for _, k in rows]
    lines = [f"{v / f!r},{u}" for (v, _), (u, f) in zip(rows, given_units, strict=True)]
    path = saved(tmp_path / "runs.csv", "value,unit", lines)
    table = open_table(path, ReadOptions(export="units"))
    read_rows = [row.values["value"] for row in table.rows() if isinstance(row, TableRow)]
    assert read_rows == pytest.approx([value for value, _ in rows])


def test_lists_of_one_value_are_that_value(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    records = [{"threads": [a], "mode": [f"m{b}"], "throughput": [speed(a, b)]} for a, b in GRID]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    guesses, _ = read(path)
    assert (guesses.objective.column.name, guesses.goal_sure > 0.5) == ("throughput", True)
    _, study, table = drafted(path)
    assert {parameter.name: parameter.type for parameter in study.parameters} == {
        "threads": "int",
        "mode": "category",
    }
    assert outcomes(study, table) == {"succeeded": len(GRID)}


def test_units_that_only_later_rows_have_are_refused_with_what_to_do(tmp_path: Path) -> None:
    """The first rows say what a table is."""
    lines = [f"{a},{b},{speed(a, b)},ms" for a, b in GRID * 20] + ["1,16,0.5,s"]
    path = saved(tmp_path / "runs.csv", "threads,batch,latency,unit", lines)
    with pytest.raises(MisconfiguredError, match=r"several units \(ms, s\).*--export units"):
        read(path)
    guesses, _ = read(path, ReadOptions(export="units"))
    assert guesses.objective.column.numbers[-1] == 0.5
