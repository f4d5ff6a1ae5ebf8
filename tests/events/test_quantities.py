"""Numbers as people and programs write them, one by one."""

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.lab.tables.test_mapping import mistakes, reader
from tunerd.events.quantities import NumberNotation, read_duration, read_quantity, read_size
from tunerd.lab.tables.files import TableRow

DURATIONS = {
    "2-01:24:56": 177_896,
    "54-06:56:32": 4_690_592,
    "01:09:48": 4_188,
    "100:00:00": 360_000,
    "00:05.079": 5.079,
    "12:34": 754,
    "1-02": 93_600,
    "1-02:03": 93_780,
    "0 days 00:00:40": 40,
    "0 days 00:00:40.123456": 40.123456,
    "1 day, 2:03:04": 93_784,
    "-1 days +23:59:59": -1,
    "3 days": 259_200,
    "1h 20m": 4_800,
    "1h20m30s": 4_830,
    "1 h and 20 min": 4_800,
    "1 hour, 20 minutes": 4_800,
    "PT1H20M": 4_800,
    "P1DT2H": 93_600,
    "PT0.35S": 0.35,
    "P2W": 1_209_600,
    "350ms": 0.35,
    "12µs": 12e-6,
    "12 usec": 12e-6,
    "7 ns": 7e-9,
    "1,5 h": 5_400,
    "20 Min.": 1_200,
    "0m12.345s": 12.345,
    "40.7": 40.7,
    "90": 90,
}
SIZES = {
    "16000Mn": 16_000 << 20,
    "4Gc": 4 << 30,
    "3532K": 3_532 << 10,
    "16G": 16 << 30,
    "16Gi": 16 << 30,
    "1.5T": 3 << 39,
    "4 GiB": 4 << 30,
    "4GB": 4 * 10**9,
    "350 kB": 350_000,
    "16 gb": 16 * 10**9,
    "512 bytes": 512,
    "0": 0,
    "4096": 4_096,
}


@pytest.mark.parametrize(("text", "seconds"), DURATIONS.items())
def test_durations(text: str, seconds: float) -> None:
    assert read_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "T5M", "5M", "1:75", "1:2:3:4", "soon", "1x", "UNLIMITED", "1-2-3", "h"]
)
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="expected a duration"):
        read_duration(text)


@pytest.mark.parametrize(("text", "size"), SIZES.items())
def test_sizes(text: str, size: float) -> None:
    assert read_size(text) == size


@pytest.mark.parametrize("text", ["", "G", "1iB", "16 apples", "0x10", "1-2", "16GG", "1 2"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="expected a size"):
        read_size(text)


@given(days=st.integers(0, 999), seconds=st.integers(0, 86_399))
def test_a_duration_comes_back_however_it_is_written(days: int, seconds: int) -> None:
    minutes, s = divmod(seconds, 60)
    h, m = divmod(minutes, 60)
    total = 86_400 * days + seconds
    for text in (
        f"{days}-{h:02}:{m:02}:{s:02}",
        f"{days} days {h:02}:{m:02}:{s:02}",
        f"{days} days, {h}:{m:02}:{s:02}",
        f"{days}d {h}h {m}m {s}s",
        f"P{days}DT{h}H{m}M{s}S",
        f"{24 * days + h}:{m:02}:{s:02}",
        str(total),
    ):
        assert read_duration(text) == total


@given(text=st.text(alphabet="0123456789.,:-+ dhmsPTkKMGiBn'", max_size=30))
def test_any_text_is_a_finite_number_or_refused(text: str) -> None:
    for form in ("number", "1.234,5", "1,234.5", "duration", "size"):
        try:
            found = read_quantity(text, NumberNotation(form))
        except ValueError:
            continue
        assert math.isfinite(found)


@given(number=st.floats(-1e12, 1e12), grouping=st.booleans())
def test_numbers_with_commas(number: float, grouping: bool) -> None:
    english = f"{number:,.4f}" if grouping else f"{number:.4f}"
    german = english.translate(str.maketrans(",.", ".,"))
    assert read_quantity(english, NumberNotation("1,234.5")) == float(f"{number:.4f}")
    assert read_quantity(german, NumberNotation("1.234,5")) == float(f"{number:.4f}")


@pytest.mark.parametrize(
    ("text", "form", "number"),
    [
        ("1 234,5", "1.234,5", 1234.5),
        ("1'234'567", "1,234.5", 1234567),
        ("1\u202f234,5", "1.234,5", 1234.5),
        ("1,5e-3", "1.234,5", 0.0015),
        ("12.5", "1.234,5", None),
        ("12,34", "1,234.5", None),
        ("1,2345", "1,234.5", None),
        ("1.234.56,7", "1.234,5", None),
    ],
)
def test_a_misplaced_separator_is_refused(text: str, form: str, number: float | None) -> None:
    notation = NumberNotation(form)  # type: ignore[arg-type]
    if number is None:
        with pytest.raises(ValueError, match="written like"):
            read_quantity(text, notation)
    else:
        assert read_quantity(text, notation) == number


def test_a_mapping_says_how_numbers_are_written(tmp_path: Path) -> None:
    mapping = """
[mapping]
measured_s = { column = "Elapsed", format = "duration" }
[mapping.columns]
n_gpus = { format = "1,234.5" }
qps = { column = "speed", format = "1.234,5", unit = "q/s" }
peak_gib = { column = "mem", format = "size", factor = 9.313225746154785e-10 }
"""
    row = {"gpu": "H100", "n_gpus": "1,024", "tp": "2", "Elapsed": "1-00:00:10"}
    row |= {"speed": "1.412,5 q/s", "mem": "16G"}
    made = reader(tmp_path, ",".join(row), mapping)
    found = made.event(TableRow(1, row))
    assert isinstance(found, dict), found
    assert found["context"]["n_gpus"] == 1_024
    assert found["metrics"] == {"qps": 1412.5, "peak_gib": 16}
    assert found["measured_s"] == 86_410
    why = made.event(TableRow(2, row | {"speed": "1412.5 q/s"}))
    assert "expected a number written like 1.234,5 in q/s" in str(why)


def test_only_numbers_are_written_in_a_format(tmp_path: Path) -> None:
    (wrong,) = mistakes(tmp_path, "gpu,tp,qps", '[mapping.columns]\ngpu = { format = "size" }\n')
    assert wrong == "mapping.columns.gpu.format: 'gpu' is no number"
