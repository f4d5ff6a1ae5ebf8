"""How columns write their numbers, told from each column as a whole."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tunerd.core.study_file import parse_study
from tunerd.events.quantities import NumberNotation, read_quantity
from tunerd.lab.tables.draft import draft
from tunerd.lab.tables.files import open_table
from tunerd.lab.tables.guess import guess
from tunerd.lab.tables.mapping import TableJobs, read_observations
from tunerd.lab.tables.notations import notations
from tunerd.lab.tables.profile import TableProfile, profile


def seen(
    path: Path, header: str, rows: Sequence[Sequence[object]], separator: str = ","
) -> TableProfile:
    def cell(value: object) -> str:
        return f'"{value}"' if separator in str(value) else str(value)

    lines = [header.replace(",", separator)]
    lines += [separator.join(map(cell, row)) for row in rows]
    path.write_text("\n".join(lines) + "\n")
    return profile(open_table(path))


def imported(path: Path) -> tuple[str, TableJobs]:
    made = draft(guess(profile(open_table(path))), "made", path)
    return made.text, read_observations(parse_study(made.text), None, [open_table(path)])


def written(
    texts: Sequence[str], name: str = "x", delimiter: str = ","
) -> tuple[NumberNotation, str]:
    (one,) = notations([(name, texts)], delimiter)
    return one.notation, one.doubt


@pytest.mark.parametrize(
    ("texts", "name", "notation"),
    [
        (["12.5 ms", "13.1 ms", "9 ms"], "x", NumberNotation("number", "ms")),
        (
            ["12,5 ms", "13,1 ms", "9,75 ms", "1,25 ms", "4,4 ms", "7,5 ms"],
            "x",
            NumberNotation("1.234,5", "ms"),
        ),
        (["45 %", "46 %"], "x", NumberNotation("number", "%")),
        (["45%", "46.5%"], "x", NumberNotation("number", "%")),
        (["$1.20", "$0.35"], "cost", NumberNotation("number", "$")),
        (["1,204.5 tok/s", "998 tok/s"], "x", NumberNotation("1,234.5", "tok/s")),
        (["350ms", "1.2s"], "x", NumberNotation("duration")),
        (["2-01:24:56", "01:09:48", "00:05.079"], "x", NumberNotation("duration")),
        (["0 days 00:00:40", "1 days 00:00:41"], "x", NumberNotation("duration")),
        (["1h 20m", "45m", "3h"], "x", NumberNotation("duration")),
        (["PT1H20M", "PT5M"], "x", NumberNotation("duration")),
        (["16000Mn", "4Gn"], "ReqMem", NumberNotation("size")),
        (["3532K", "12M", "0"], "MaxRSS", NumberNotation("size")),
        (["16G", "500M"], "mem", NumberNotation("size")),
        (["4 GiB", "512 MiB"], "x", NumberNotation("size")),
        (["1.5 GB", "800 MB"], "x", NumberNotation("size")),
        (["880.0K", "1.25M", "950"], "ConsumedEnergy", NumberNotation("count")),
        (["12.5k", "980", "3M"], "throughput", NumberNotation("count")),
        (["1.25M", "0.01M"], "AveDiskRead", NumberNotation("size")),
        (["64K", "1M"], "chunk", NumberNotation()),
        (
            ["UNLIMITED", *(f"{n}:00:00" for n in range(10, 40))],
            "timelimit",
            NumberNotation("duration"),
        ),
        (["1 234,5", "2 000,25", "17,125", "3,5"], "x", NumberNotation("1.234,5")),
        (["1'234.5", "2'000.25"], "x", NumberNotation("1,234.5")),
        # What is none of that stays as it is.
        (["7B", "13B", "70B"], "params", NumberNotation()),
        (["350M", "1.3B"], "model_size", NumberNotation()),
        (["350M", "760M"], "model_params", NumberNotation()),
        (["10m", "50m"], "rows", NumberNotation()),
        (["1-2", "2-4"], "grid", NumberNotation()),
        (["0:0", "1:0"], "ExitCode", NumberNotation()),
        (["v1.2.3", "v1.3.0"], "version", NumberNotation()),
        (["A100", "H100"], "gpu", NumberNotation()),
        (["2024-01-02", "2024-01-03"], "day", NumberNotation()),
        (["14:05:33", "15:05:33"], "start", NumberNotation()),
        (["1.234,5", "1,234.5"], "x", NumberNotation()),
    ],
)
def test_notations_of_columns(texts: Sequence[str], name: str, notation: NumberNotation) -> None:
    assert written(texts, name, ";" if "1.234,5" in texts else ",")[0] == notation


@pytest.mark.parametrize(
    ("texts", "delimiter", "format_", "doubtful"),
    [
        (["944,84", "1067,85", "1.050,5"], ";", "1.234,5", False),
        (["1,024", "2,048", "512"], ",", "1,234.5", True),
        (["1,024", "2,048", "4,500"], ";", "1.234,5", True),
        (["1,024,000", "2,048"], ";", "1,234.5", False),
        (["1,024.5", "2,048"], ";", "1,234.5", False),
        (["0,125", "2,048"], ",", "1.234,5", True),
        (["2,4", "4,2"], ",", "1.234,5", True),
    ],
)
def test_a_comma_that_may_be_both_is_doubtful(
    texts: Sequence[str], delimiter: str, format_: str, doubtful: bool
) -> None:
    notation, doubt = written(texts, "x", delimiter)
    assert (notation.format, bool(doubt)) == (format_, doubtful)


def test_other_columns_tell_what_a_comma_is() -> None:
    either, point = ["1,024", "2,048"], ["1.024", "2.048"]
    comma, plain = ["944,84", "1067,85", "0,5"], ["12.5", "13.75"]
    german = notations([("a", either), ("b", comma), ("c", point)], ";")
    assert [one.notation.format for one in german] == ["1.234,5"] * 3
    assert [bool(one.doubt) for one in german] == [False, False, True]
    english = notations([("a", either), ("b", plain), ("c", point)], ";")
    assert [one.notation.format for one in english] == ["1,234.5", "number", "number"]
    assert not any(one.doubt for one in english)


@settings(max_examples=60, deadline=None)
@given(
    numbers=st.lists(st.floats(0.001, 1e7), min_size=8, max_size=40, unique=True),
    german=st.booleans(),
    unit=st.sampled_from(["", " ms", " GiB", " tok/s", "%"]),
)
def test_a_column_of_a_spreadsheet_is_read_as_it_was_meant(
    numbers: list[float], german: bool, unit: str
) -> None:
    texts = [f"{number:,.2f}" for number in numbers]
    meant = [float(text.replace(",", "")) for text in texts]
    if german:
        texts = [text.translate(str.maketrans(",.", ".,")) for text in texts]
    (one,) = notations([("x", [text + unit for text in texts])], ";" if german else ",")
    assert [read_quantity(text + unit, one.notation) for text in texts] == meant


# ── through the table ────────────────────────────────────────────────────────────────────────


def test_a_spreadsheet_with_decimal_commas(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    rows = [(16 << n % 3, 1 << n % 2, f"{900 + 7.37 * n:.2f}".replace(".", ",")) for n in range(30)]
    lines = ["Größe;Fäden;Durchsatz", *(";".join(map(str, row)) for row in rows)]
    path.write_bytes("\n".join(lines).encode("utf-8-sig"))
    guesses = guess(profile(open_table(path)))
    assert guesses.objective.column.name == "Durchsatz"
    assert [one.column.name for one in guesses.having("parameter")] == ["Größe", "Fäden"]
    text, history = imported(path)
    assert 'format = "1.234,5"' in text
    assert history.unusable == {}
    assert history.observations[1].metrics == {"Durchsatz": 907.37}


@pytest.mark.parametrize(
    ("values", "kind", "distinct"),
    [
        (
            [30.3, "30.300000000003", 30.25, "30.2500000001", 35.5, "35.500000000003", 31],
            "float",
            4,
        ),
        (["0.10000000149", "0.1", "0.30000001192", "0.2"], "float", 3),
        (["1.0", "2.0", "4.0"], "int", 3),
        (["1.0", "1", "2"], "int", 2),
        (["1", "2.5", "1.0"], "float", 2),
        (["True", "1", "False", "0"], "bool", 2),
        (["True", "N/A", "False", "-"], "bool", 2),
        (["1", "2", "null", "4", "N/A", "-", "", "nan"], "int", 3),
        (["A", "B", "-", "N/A"], "category", 2),
        (["5", "10", "None"], "category", 3),
        (["100.25", "100.2500001", "100.2500002"], "float", 1),
        ([f"{100 + n * 1e-5:.6f}" for n in range(40)], "float", 40),
    ],
)
def test_values_that_are_written_in_several_ways(
    tmp_path: Path, values: Sequence[object], kind: str, distinct: int
) -> None:
    rows = [(values[n % len(values)], 10.37 * n + 1) for n in range(10 * len(values))]
    column = seen(tmp_path / "jobs.csv", "x,speed", rows).column("x")
    assert (column.kind, column.distinct) == (kind, distinct), list(column.counts)


def test_a_rare_none_is_a_gap_and_a_common_one_a_value(tmp_path: Path) -> None:
    rare = [("None" if n == 7 else 1 << n % 3, 10.37 * n) for n in range(60)]
    assert seen(tmp_path / "jobs.csv", "depth,speed", rare).column("depth").kind == "int"


def test_rounding_makes_no_advice(tmp_path: Path) -> None:
    noise = [30.3, 30.300000000003, 30.25, 30.2500000001, 35.5, 35.500000000003, 31, 30.9999999999]
    rows = [(noise[n % 8], 25 + 5 * (n % 2), 30 + 0.37 * n) for n in range(40)]
    path = tmp_path / "jobs.csv"
    seen(path, "nacl,temp,yield", rows)
    text, history = imported(path)
    study = parse_study(text)
    assert study.parameters[0].choices == (30.25, 30.3, 31, 35.5)
    assert all(study.outside(job.config) == [] for job in history.observations)


CELLS: list[tuple[str, Callable[[int], str], Callable[[int], float]]] = [
    ("latency", lambda n: f"{5 + 0.21 * n:.2f} ms", lambda n: round(5 + 0.21 * n, 2)),
    ("elapsed", lambda n: f"{n}-00:{n:02}:07", lambda n: n * 86_400 + n * 60 + 7),
    ("elapsed", lambda n: [f"{n}s", f"{n}ms"][n % 2], lambda n: [n, n / 1e3][n % 2]),
    ("maxrss", lambda n: f"{3532 + n}K", lambda n: (3532 + n) * 1024),
    ("throughput", lambda n: f"{1000 + 3.7 * n:,.1f} tok/s", lambda n: round(1000 + 3.7 * n, 1)),
    ("duration", lambda n: f"PT{n}M{n}S", lambda n: 61 * n),
]  # fmt: skip


@pytest.mark.parametrize(("name", "cell", "number"), CELLS)
def test_what_is_measured_is_read_with_its_unit(
    tmp_path: Path, name: str, cell: Callable[[int], str], number: Callable[[int], float]
) -> None:
    path = tmp_path / "jobs.csv"
    seen(path, f"gpu,tp,{name}", [("ab"[n % 2], 1 << n % 3, cell(n)) for n in range(1, 41)])
    text, history = imported(path)
    assert history.unusable == {}, text
    found = [next(iter(job.metrics.values())) for job in history.observations]
    assert all(math.isclose(a, number(n)) for n, a in enumerate(found, 1)), text


def test_what_is_launched_keeps_its_spelling(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    sizes, limits = ["500M", "4G", "16G"], ["01:00:00", "02:00:00", "1-00:00:00"]
    rows: list[tuple[Any, ...]] = [
        (sizes[n % 3], limits[n // 3 % 3], 100 + 1.37 * n) for n in range(54)
    ]
    seen(path, "executor_memory,timelimit,speed", rows)
    text, history = imported(path)
    memory, limit = parse_study(text).parameters
    assert memory.choices == ("500M", "4G", "16G")
    assert limit.choices == ("01:00:00", "02:00:00", "1-00:00:00")
    assert history.observations[0].config == {"executor_memory": "500M", "timelimit": "01:00:00"}
