"""Tables in files: every format gives back what was written, and says what it cannot read."""

import csv
import gzip
import json
import resource
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow
import pytest
import zstandard
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from tunerd.errors import MisconfiguredError
from tunerd.lab.tables.documents import records_in
from tunerd.lab.tables.files import TableFile, TableRow, UnreadableLine, open_table
from tunerd.lab.tables.profile import profile

QUICK = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".zst": lambda data: zstandard.compress(data),
}

names = st.lists(
    st.text("abcdefgh_.é", min_size=1, max_size=8).map(str.strip).filter(bool),
    min_size=1,
    max_size=5,
    unique=True,
)
texts = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], include_characters="\n"), max_size=12
).map(str.strip)
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**53), 2**53), st.floats(allow_nan=False), texts
)


def read(path: Path) -> tuple[TableFile, list[Mapping[str, Any]]]:
    table = open_table(path)
    rows = list(table.rows())
    assert [row.number for row in rows] == list(range(1, len(rows) + 1))
    assert table.progress() == (path.stat().st_size, path.stat().st_size)
    return table, [row.values for row in rows if isinstance(row, TableRow)]


def written(path: Path, content: bytes | str) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def refusal(path: Path, content: bytes | str) -> str:
    with pytest.raises(MisconfiguredError) as caught:
        list(open_table(written(path, content)).rows())
    assert str(path) in str(caught.value)
    return str(caught.value)


@pytest.mark.slow
@QUICK
@given(st.data())
def test_csv_comes_back(tmp_path: Path, data: st.DataObject) -> None:
    columns = data.draw(names)
    cells = st.lists(texts, min_size=len(columns), max_size=len(columns))
    rows = data.draw(st.lists(cells, max_size=6))
    delimiter = data.draw(st.sampled_from(",\t;|"))
    suffix = data.draw(st.sampled_from(list(PACKERS)))
    path = tmp_path / f"jobs.csv{suffix}"
    text = tmp_path / "plain"
    ends = data.draw(st.sampled_from(["\r\n", "\n"]))
    mark = data.draw(st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]))
    with text.open("w", newline="", encoding=mark) as file:
        writer = csv.writer(file, delimiter=delimiter, quoting=csv.QUOTE_ALL, lineterminator=ends)
        writer.writerows([columns, *rows])
    path.write_bytes(PACKERS[suffix](text.read_bytes()))
    table, found = read(path)
    assert table.columns == tuple(columns)
    missing = {"", "NULL", "null", "N/A", "#N/A", "<NA>", "\\N"}
    # What is empty below a full first cell may have been merged with it: tests of its own.
    firsts = [row[0] in missing for row in rows]
    assume(not firsts or firsts[0] or not any(firsts))
    cleaned = [[None if cell in missing else cell for cell in row] for row in rows]
    if len(columns) > 1:
        cleaned = [row for row, whole in zip(cleaned, rows, strict=True) if any(whole)]
    assert [list(row.values()) for row in found] == cleaned


@pytest.mark.slow
@QUICK
@given(st.data())
def test_json_lines_come_back(tmp_path: Path, data: st.DataObject) -> None:
    columns = data.draw(names.filter(lambda found: not any("." in name for name in found)))
    values = st.one_of(scalars, st.lists(scalars, max_size=3))
    record = st.fixed_dictionaries(
        {columns[0]: values}, optional=dict.fromkeys(columns[1:], values)
    )
    rows = data.draw(st.lists(record, min_size=1, max_size=6))
    suffix = data.draw(st.sampled_from(list(PACKERS)))
    lines = "".join(json.dumps(row, allow_nan=False) + "\n" for row in _finite(rows))
    table, found = read(written(tmp_path / f"jobs.jsonl{suffix}", PACKERS[suffix](lines.encode())))
    assert set(table.columns) == set().union(*rows)
    assert found == [dict.fromkeys(table.columns) | row for row in _finite(rows)]


@pytest.mark.slow
@QUICK
@given(st.data())
def test_parquet_comes_back(tmp_path: Path, data: st.DataObject) -> None:
    columns = data.draw(names)
    kinds: Sequence[st.SearchStrategy[Any]] = [
        st.booleans(),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(allow_nan=False, allow_infinity=False),
        texts,
        st.lists(st.integers(0, 9), max_size=3),
    ]
    size = data.draw(st.integers(0, 5))
    content = {
        name: data.draw(
            st.lists(st.none() | data.draw(st.sampled_from(kinds)), min_size=size, max_size=size)
        )
        for name in columns
    }
    path = tmp_path / "jobs.parquet"
    parquet.write_table(pyarrow.table(content), path)
    table, found = read(path)
    assert table.columns == tuple(columns)
    assert {name: [row[name] for row in found] for name in columns} == content


def _finite(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    def clean(value: Any) -> Any:
        if isinstance(value, list):
            return [clean(one) for one in value]
        infinite = isinstance(value, float) and abs(value) == float("inf")
        return None if infinite else value

    return [{name: clean(value) for name, value in row.items()} for row in rows]


def test_parquet_times_and_records(tmp_path: Path) -> None:
    path = tmp_path / "jobs.parquet"
    when = datetime(2026, 11, 20, 10, tzinfo=UTC)
    content = {
        "at": pyarrow.array([when], pyarrow.timestamp("ns", "Europe/Berlin")),
        "naive": pyarrow.array([when.replace(tzinfo=None)], pyarrow.timestamp("ns")),
        "day": [date(2026, 11, 20)],
        "config": [{"tp": 4, "deep": {"zero": True}}],
        "gpu": pyarrow.array(["H100"]).dictionary_encode(),
        "gone": [float("nan")],
    }
    parquet.write_table(pyarrow.table(content), path)
    table, rows = read(path)
    assert table.columns == ("at", "naive", "day", "config.tp", "config.deep.zero", "gpu", "gone")
    assert list(rows[0].values()) == [
        "2026-11-20T10:00:00+00:00",
        "2026-11-20T10:00:00",
        "2026-11-20",
        4,
        True,
        "H100",
        None,
    ]


def test_parquet_times_that_need_more_than_python_has(tmp_path: Path) -> None:
    path = tmp_path / "jobs.parquet"
    nanoseconds = 1_700_000_000_123_456_789
    record = pyarrow.struct([("at", pyarrow.timestamp("ns"))])
    content = {
        "took": pyarrow.array([nanoseconds], pyarrow.duration("ns")),
        "clock": pyarrow.array([86_399_999_999_999], pyarrow.time64("ns")),
        "job": pyarrow.array([{"at": nanoseconds}], record),
        "seen": pyarrow.array([[nanoseconds]], pyarrow.list_(pyarrow.timestamp("ns"))),
    }
    parquet.write_table(pyarrow.table(content), path)
    _, (row,) = read(path)
    moment = "2023-11-14T22:13:20.123456"
    assert row == {
        "took": 1_700_000_000.123456,
        "clock": "23:59:59.999999",
        "job.at": moment,
        "seen": [moment],
    }


def test_parquet_values_that_python_cannot_hold_cost_their_row(tmp_path: Path) -> None:
    path = tmp_path / "jobs.parquet"
    lengths = pyarrow.py_buffer(bytes([0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0]))
    words = pyarrow.StringArray.from_buffers(3, lengths, pyarrow.py_buffer(b"a\xffc"))
    days = pyarrow.array([1, 2, 10**8], pyarrow.int32()).cast(pyarrow.date32())
    parquet.write_table(pyarrow.table({"word": words, "day": days}), path)
    first, second, third = open_table(path).rows()
    assert first == TableRow(1, {"word": "a", "day": "1970-01-02"})
    assert second == UnreadableLine(2, "is not UTF-8", "")
    assert isinstance(third, UnreadableLine)
    assert third.reason.startswith("'day': date value out of range")


def test_an_integer_that_no_float_holds_is_text(tmp_path: Path) -> None:
    _, (row,) = read(written(tmp_path / "jobs.jsonl", f'{{"a": {10**400}, "b": {-(2**64)}}}\n'))
    assert row == {"a": str(10**400), "b": -(2**64)}


def test_one_nul_spoils_no_table(tmp_path: Path) -> None:
    _, rows = read(written(tmp_path / "jobs.csv", "a,b\n1,2\n3,x\0y\n5,6\n"))
    assert [row["b"] for row in rows] == ["2", "x\0y", "6"]


def test_records_in_json_lines_are_flattened(tmp_path: Path) -> None:
    lines = '{"config": {"tp": 4, "shards": ["a", "b"]}, "x": NaN, "odd": [[1]], "none": {}}\n'
    table, (row,) = read(written(tmp_path / "jobs.log", lines))
    assert table.form == "jsonl"
    assert row == {
        "config.tp": 4,
        "config.shards": ["a", "b"],
        "x": "NaN",
        "odd": "[[1]]",
        "none": None,
    }


def test_lines_that_are_no_rows(tmp_path: Path) -> None:
    content = (
        b"a,b\r\n1,2\r\n\r\n1,2,3\r\n\xff,2\r\n3\r\n" + b"x" * (3 << 20) + b"\r\n5,\xc3\xa9\r\n"
    )
    rows = list(open_table(written(tmp_path / "jobs.csv", content)).rows())
    assert [type(row) for row in rows] == [TableRow, *[UnreadableLine] * 4, TableRow]
    reasons = [(row.number, row.reason) for row in rows if isinstance(row, UnreadableLine)]
    assert reasons == [
        (2, "has 3 fields, the header has 2"),
        (3, "is not UTF-8"),
        (4, "has 1 fields, the header has 2"),
        (5, "is longer than 1,048,576 characters"),
    ]
    shown = [row.text for row in rows if isinstance(row, UnreadableLine)]
    assert shown[:3] == ["1,2,3", "\ufffd,2", "3"]
    assert len(shown[3]) == 4_096
    assert rows[-1] == TableRow(6, {"a": "5", "b": "é"})


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "cp1252", "utf-16", "utf-16-le", "utf-16-be", "utf-32"]
)
@pytest.mark.parametrize("packed", [False, True])
def test_tables_of_many_encodings(tmp_path: Path, encoding: str, packed: bool) -> None:
    content = "Größe,Fäden\n1,2 €\n".encode(encoding)
    if packed:
        content = gzip.compress(content)
    table = open_table(written(tmp_path / "jobs.csv", content))
    assert table.columns == ("Größe", "Fäden")
    assert list(table.rows()) == [TableRow(1, {"Größe": "1", "Fäden": "2 €"})]


def test_lines_that_are_no_objects(tmp_path: Path) -> None:
    deep = '{"a":' * 100_000 + "1" + "}" * 100_000
    lines = ['{"a": 1}', "", "{", "[1]", '{"a.b": 1, "a": {"b": 2}}', deep, '{"a": 2, "late": 3}']
    rows = list(open_table(written(tmp_path / "jobs.jsonl", "\n".join(lines))).rows())
    assert [type(row) for row in rows] == [TableRow, *[UnreadableLine] * 4, TableRow]
    reasons = [row.reason for row in rows if isinstance(row, UnreadableLine)]
    assert reasons[0].startswith("is not JSON")
    assert reasons[1:3] == ["is not a JSON object", "has 'a.b' twice"]
    assert "deep" in reasons[3] or "not JSON" in reasons[3]


@pytest.mark.slow
@pytest.mark.parametrize("line", ['"3,4', '3,"4', '"3" of,"4,5', '"3,4,'])
@pytest.mark.parametrize("after", [2, 30_000])
def test_an_unclosed_quote_costs_its_own_line(tmp_path: Path, line: str, after: int) -> None:
    more = [f"{n},6" for n in range(after)]
    content = "\n".join(["a,b", "1,2", line, *more])
    rows = list(open_table(written(tmp_path / "jobs.csv", content)).rows())
    assert rows[0] == TableRow(1, {"a": "1", "b": "2"})
    why = "opens a quotation that does not end in the line"
    assert rows[1] == UnreadableLine(2, why, line)
    assert rows[2] == TableRow(3, {"a": "0", "b": "6"})
    assert [type(row) for row in rows[2:]] == [TableRow] * after


def test_a_line_without_end_behind_an_unclosed_quote(tmp_path: Path) -> None:
    long = "x" * (3 << 20)
    content = f'a,b\n"1,2\n3,4\n{long}\n5,6\n{long}'
    rows = list(open_table(written(tmp_path / "jobs.csv", content)).rows())
    assert [type(row) for row in rows] == [
        UnreadableLine,
        TableRow,
        UnreadableLine,
        TableRow,
        UnreadableLine,
    ]
    assert [row.values["a"] for row in rows if isinstance(row, TableRow)] == ["3", "5"]


def test_numbers_with_a_decimal_comma_and_columns_without_a_name(tmp_path: Path) -> None:
    table, rows = read(written(tmp_path / "jobs.csv", ";b\n0;1,5\n1;2,5\n"))
    assert (table.delimiter, table.columns) == (";", ("column_1", "b"))
    assert rows[0] == {"column_1": "0", "b": "1,5"}


@pytest.mark.parametrize("first", ["sep=;\r\n", '"sep=;"\r\n', "\ufeffSEP=;\n"])
def test_the_line_in_which_excel_names_its_delimiter_is_no_header(
    tmp_path: Path, first: str
) -> None:
    table, rows = read(written(tmp_path / "jobs.csv", f"{first}a,x;b\n0,1;1,5\n"))
    assert (table.delimiter, table.columns) == (";", ("a,x", "b"))
    assert rows == [{"a,x": "0,1", "b": "1,5"}]


def test_a_title_is_no_header(tmp_path: Path) -> None:
    said = refusal(tmp_path / "jobs.csv", "Jobs of March,,\ngpu,node,kind\na,b,c\n")
    assert "line 1 names one of 3 columns ('Jobs of March')" in said


def test_the_fingerprint_is_that_of_the_content(tmp_path: Path) -> None:
    plain = b"a,b\n1,2\n"
    paths = [
        written(tmp_path / f"jobs.csv{suffix}", pack(plain)) for suffix, pack in PACKERS.items()
    ]
    assert len({open_table(path).fingerprint for path in paths}) == 1
    assert (
        open_table(written(tmp_path / "more.csv", plain + b"3,4\n")).fingerprint
        != open_table(paths[0]).fingerprint
    )


def test_what_is_no_table_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    assert "no such file" in str(_error(tmp_path / "gone.csv"))
    assert "is a folder" in str(_error(tmp_path))
    for empty in (b"", b"\n \n", b"\xef\xbb\xbf", gzip.compress(b"")):
        assert "is empty" in refusal(path, empty)
    assert "no names of columns" in refusal(path, "1,2.5\n3,4\n")
    assert "no column names" in refusal(path, ",,\n1,2,3\n")
    assert "neither a text table" in refusal(path, b"\x7fELF\0\0")
    assert "not UTF-8" in refusal(path, b"caf\xe9,\xc3\xa9\n1,2\n")
    assert "line 1 is not a JSON object" in refusal(tmp_path / "jobs.jsonl", "a,b\n1,2\n")
    assert "line 1: is not JSON" in refusal(tmp_path / "jobs.jsonl", "{\n")
    assert "without a single key" in refusal(tmp_path / "jobs.jsonl", "{}\n")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("- id: 0\n  config:\n    tp: 1\n- id: 1\n", "'- id: 0'. Write"),
        ("=====\nHPLinpack 2.3, of 2018\n=====\nT/V  N  NB\nWR1  10  96\n", "'HPLinpack 2.3"),
        ("- {tp: 1, tps: 3.5}\n- {tp: 2, tps: 4.5}\n", "yq -o json"),
        ("2026-03-01 10:00:00,12 INFO a\n2026-03-01 10:00:01,12 INFO b\n", "INFO a"),
        (f"# {'x' * 500}\nsome words\n", f"{'x' * 58}...'"),
    ],
)
def test_a_text_that_is_no_table_is_shown(tmp_path: Path, text: str, shown: str) -> None:
    message = refusal(tmp_path / "runs", text)
    assert "no table that tunerd can read" in message
    assert shown in message


@pytest.mark.parametrize(
    "text",
    [
        "tps\n1\n2\n",
        "Time: s,Time: mean\n1,2\n3,4\n",
        "command,tps\nthreads=8,2\nthreads=4,4\n",
        "# when,tps\n2026-03-01 10:00,2\n2026-03-01 11:00,3\n",
    ],
)
def test_a_table_with_strange_names_is_a_table(tmp_path: Path, text: str) -> None:
    assert len(read(written(tmp_path / "jobs.csv", text))[1]) == 2


@pytest.mark.slow
def test_a_truncated_file_is_not_a_short_one(tmp_path: Path) -> None:
    lines = "a,b\n" + "".join(f"{n},{n * 7919 % 1009}\n" for n in range(100_000))
    for suffix in (".gz", ".zst"):
        packed = PACKERS[suffix](lines.encode())
        assert "compress" in refusal(tmp_path / f"jobs.csv{suffix}", packed[: len(packed) // 2])
    path = tmp_path / "jobs.parquet"
    parquet.write_table(pyarrow.table({"a": list(range(1000))}), path)
    assert "Parquet" in refusal(path, path.read_bytes()[:500])


@pytest.mark.slow
def test_progress_grows(tmp_path: Path) -> None:
    path = written(tmp_path / "jobs.csv", "a,b\n" + "1,2\n" * 100_000)
    table = open_table(path)
    seen = {table.progress()[0] for _ in table.rows()}
    assert len(seen) > 10
    assert max(seen) == path.stat().st_size


def _error(path: Path) -> MisconfiguredError:
    with pytest.raises(MisconfiguredError) as caught:
        open_table(path)
    return caught.value


def _long_strings(kind: str, path: Path) -> None:
    long = "x" * 3_000_000
    one = pyarrow.array([0] * 500, pyarrow.int32())
    values = {
        "dictionary": pyarrow.DictionaryArray.from_arrays(one, pyarrow.array([long])),
        "delta": pyarrow.array([long] * 50),
        "plain": pyarrow.array([long] * 50),
        "lists": pyarrow.array([[0] * 1_000_000] * 5),
    }[kind]
    table = pyarrow.table({"a": values, "speed": list(range(len(values)))})
    given: dict[str, dict[str, Any]] = {
        "delta": {"use_dictionary": False, "column_encoding": {"a": "DELTA_BYTE_ARRAY"}},
        "plain": {"use_dictionary": False},
    }
    parquet.write_table(table, path, compression="zstd", **given.get(kind, {}))
    assert path.stat().st_size < 20_000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("dictionary", "'a': is longer than 1,048,576 bytes"),
        ("delta", "'a': is longer than 1,048,576 bytes"),
        ("plain", "column 'a' has values of 3,000,005 bytes; leave that column out"),
        ("lists", "has lists of more than 10,000; leave that column out"),
    ],
)
def test_parquet_that_is_little_on_disk_and_much_in_memory(
    tmp_path: Path, kind: str, told: str
) -> None:
    _long_strings(kind, tmp_path / "jobs.parquet")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if "leave that column out" in told:
        with pytest.raises(MisconfiguredError, match=told):
            open_table(tmp_path / "jobs.parquet")
    else:
        rows = list(open_table(tmp_path / "jobs.parquet").rows())
        assert {row.reason for row in rows if isinstance(row, UnreadableLine)} == {told}
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 600_000  # KiB


def test_parquet_with_values_that_repeat_comes_back(tmp_path: Path) -> None:
    names = ["a", "b", None, "a"] * 1_000
    records = [{"name": name, "deep": {"er": name}} for name in names]
    parquet.write_table(pyarrow.Table.from_pylist(records), tmp_path / "jobs.parquet")
    rows = list(open_table(tmp_path / "jobs.parquet").rows())
    values = [row.values for row in rows if isinstance(row, TableRow)]
    assert values == [{"name": name, "deep.er": name} for name in names]


@pytest.mark.parametrize(
    ("above", "delimiter"),
    [
        ("Throughput of our cluster;;;\n;;;\n", ";"),
        ("Run of 2026-10-01\nmachine,node1\n\n", ","),
        ("# a comment\nRunning ./bench\n", "\t"),
    ],
)
def test_what_stands_above_the_names_of_the_columns_is_no_row(
    tmp_path: Path, above: str, delimiter: str
) -> None:
    rows = [["tp", "mb", "host", "tokens"], *([str(n), "2", "n1", f"{n}.5"] for n in range(1, 9))]
    file = tmp_path / "table.csv"
    file.write_text(above + "".join(delimiter.join(row) + "\n" for row in rows))
    table = open_table(file)
    assert list(table.columns) == rows[0]
    assert [row.values["tp"] for row in table.rows() if isinstance(row, TableRow)] == list(
        "12345678"
    )


@pytest.mark.parametrize(
    "text", ["1,2,3\n4,5,6\n7,8,9\n", "a,b\n1,2,x\n3,4,y\n5,6,z\n", "a,b,c,\nx,y,z\nx,y,w\nq,y,w\n"]
)
def test_a_table_whose_first_line_is_odd_loses_none_without_a_word(
    tmp_path: Path, text: str
) -> None:
    file = tmp_path / "table.csv"
    file.write_text(text)
    try:
        rows = list(open_table(file).rows())
    except MisconfiguredError:
        return
    assert len(rows) == text.count("\n") - 1


def test_excels_own_first_line_is_no_text_above_the_table(tmp_path: Path) -> None:
    path = tmp_path / "excel.csv"
    path.write_text("sep=;\ntp;pp;tokens\n1;2;30.5\n2;2;31.5\n4;2;33\n")
    assert open_table(path).columns == ("tp", "pp", "tokens")


def test_a_json_text_with_endless_commas_or_quotes_is_read_once() -> None:
    (row,) = records_in('[{"a":1}' + "," * 100_000 + "]")
    assert isinstance(row, TableRow)
    assert row.values == {"a": 1}
    quotes = '{"a": "' + '\\"' * 100_000
    _, row, rest = records_in('[{"a": ",]"}, {"a": 2},' + quotes)
    assert isinstance(row, TableRow)
    assert isinstance(rest, UnreadableLine)


@pytest.mark.slow
def test_a_table_with_too_many_columns_is_refused_at_its_header(tmp_path: Path) -> None:
    path = tmp_path / "wide.csv"
    path.write_text(",".join(f"c{k}" for k in range(60_000)) + "\n" + "1," * 59_999 + "1\n")
    with pytest.raises(MisconfiguredError, match="60,000 columns, at most 1,000"):
        profile(open_table(path))


def test_names_of_files_that_are_not_utf_8_are_spelt_out(tmp_path: Path) -> None:
    for k in range(3):
        (tmp_path / f"\udcff_{k}.json").write_text(json.dumps({"threads": k, "time_s": k + 0.5}))
    table = open_table(tmp_path)
    names = {row.values["file"] for row in table.rows() if isinstance(row, TableRow)}
    assert names == {f"\\xff_{k}.json" for k in range(3)}
