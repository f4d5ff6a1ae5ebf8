"""Tables that look like another kind than they are: they were read wrongly, or not at all."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.lab.tables.test_guess import roles
from tests.lab.tables.test_strangers import GRID, read, rows_of, speed
from tunerd.errors import MisconfiguredError
from tunerd.lab.tables.files import open_table
from tunerd.lab.tables.guess import DOUBTED, guess
from tunerd.lab.tables.profile import profile

ROWS = [(str(a), str(b), str(speed(a, b))) for a, b in GRID]
NAMES = ("threads", "batch", "ops_per_s")


def saved(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def in_html(rows: Sequence[Sequence[str]], head: Sequence[str] = NAMES, cell: str = "th") -> str:
    names = "".join(f"<{cell}>{name}</{cell}>" for name in head)
    body = (f"<tr>{''.join(f'<td>{text}</td>' for text in row)}</tr>\n" for row in rows)
    return f"<table><tr>{names}</tr>\n{''.join(body)}</table>"


# ── one setting down and one across ──────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("header", "line"),
    [
        ("batch/threads,time_s,ops_per_s", "{b}/{a},{t},{v}"),
        ('"threads, batch",ops_per_s,time_s', '"{a}, {b}",{v},{t}'),
        (",0,1,2", "{n},{a},{b},{v}"),
    ],
)
def test_these_have_no_setting_across(header: str, line: str, tmp_path: Path) -> None:
    lines = [
        line.format(n=n, a=a, b=b, v=v, t=round(1e4 / float(v), 2))
        for n, (a, b, v) in enumerate(ROWS)
    ]
    table = open_table(saved(tmp_path / "runs.csv", header, *lines))
    assert (table.export, profile(table).rows) == (None, 12)


@pytest.mark.parametrize("header", ["option,default,min,max", "name,mean,std,min,max"])
def test_a_description_of_columns_has_no_column_for_each_run(header: str, tmp_path: Path) -> None:
    names = ("threads", "batch_size", "ops_per_s", "latency_ms")
    lines = [f"{name},{n},{n + 1},{n + 2},{n + 3}" for n, name in enumerate(names, 1)]
    width = header.count(",") + 1
    cut = [",".join(line.split(",")[:width]) for line in lines]
    assert open_table(saved(tmp_path / "runs.csv", header, *cut)).export is None


def test_the_first_of_columns_for_each_run_may_be_a_setting(tmp_path: Path) -> None:
    down = zip(NAMES, zip(*ROWS, strict=True), strict=True)
    path = saved(tmp_path / "runs.csv", *(",".join([name, *texts]) for name, texts in down))
    guesses, _ = read(path)
    assert roles(guesses) == dict(zip(NAMES, ("parameter", "parameter", "objective"), strict=True))
    assert [tuple(map(str, row.values())) for row in rows_of(path)] == ROWS


# ── HTML ─────────────────────────────────────────────────────────────────────────────────────────


def test_merged_cells_with_all_ends_in_html(tmp_path: Path) -> None:
    rows = [f"<tr><td>{b}</td><td>{v}</td></tr>" for _, b, v in ROWS]
    for first in range(0, 12, 3):
        rows[first] = rows[first].replace("<tr>", f"<tr><td rowspan=3>{ROWS[first][0]}</td>")
    path = saved(tmp_path / "runs.html", in_html([])[:-8], *rows, "</table>")
    assert [tuple(row.values()) for row in rows_of(path)] == ROWS


@pytest.mark.parametrize(
    "text",
    [
        in_html(ROWS).replace("</tr>", "").replace("</td>", "").replace("</table>", ""),
        f"<center>{in_html(ROWS)}</center>",
        f"<body><h1>Runs</h1>{in_html(ROWS)}</body>",
        f"<!-- saved from a page -->\n<html>{in_html(ROWS)}</html>",
        in_html(ROWS, ("threads<script>var t = '<td>'</script>", *NAMES[1:])),
    ],
)
def test_all_rows_of_a_page_are_read(text: str, tmp_path: Path) -> None:
    path = saved(tmp_path / "runs.html", text)
    assert [tuple(row.values()) for row in rows_of(path)] == ROWS
    assert open_table(path).columns == NAMES


def test_a_table_in_html_without_names_keeps_its_first_row(tmp_path: Path) -> None:
    path = saved(tmp_path / "runs.html", in_html(ROWS[1:], ROWS[0], "td"))
    assert [tuple(row.values()) for row in rows_of(path)] == ROWS


def test_the_mark_of_a_note_is_no_digit(tmp_path: Path) -> None:
    rows = [(a, b, f"{v}<sup>1</sup>") for a, b, v in ROWS]
    path = saved(tmp_path / "runs.html", in_html(rows))
    assert [row["ops_per_s"] for row in rows_of(path)] == [f"{v}^1" for *_, v in ROWS]


@pytest.mark.parametrize("header", ["<p>threads</p>,batch,ops_per_s", "<table>,batch,ops_per_s"])
def test_marks_in_the_names_of_a_csv_make_no_page(header: str, tmp_path: Path) -> None:
    assert len(rows_of(saved(tmp_path / "runs.csv", header, *map(",".join, ROWS)))) == 12


def test_a_page_without_a_table_is_told_what_to_write(tmp_path: Path) -> None:
    with pytest.raises(MisconfiguredError, match="Write a line for each job"):
        open_table(saved(tmp_path / "page.html", "<html><p>no table</p></html>"))


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ('{| class="wikitable"\n! threads !! ops\n|-\n| 1 || 2\n|}', "in HTML"),
        ("^ threads ^ ops ^\n| 1 | 2 |\n| 2 | 4 |", "in HTML"),
        ('<?xml version="1.0"?>\n<?mso-application progid="Excel.Sheet"?>\n<Workbook/>', "as CSV"),
    ],
)
def test_what_to_do_about_markup(text: str, advice: str, tmp_path: Path) -> None:
    with pytest.raises(MisconfiguredError, match=advice):
        open_table(saved(tmp_path / "page.txt", text))


# ── which way is better ──────────────────────────────────────────────────────────────────────────


def test_a_speed_in_seconds_a_step_is_made_small(tmp_path: Path) -> None:
    lines = [f"{a},{b},{1e4 / float(v):.3f} s/it" for a, b, v in ROWS]
    guesses, _ = read(saved(tmp_path / "runs.csv", "threads,batch,speed", *lines))
    assert (guesses.objective.column.name, guesses.goal) == ("speed", "minimize")


# ── summaries of other tables ────────────────────────────────────────────────────────────────────

DESCRIBED = ("count", "mean", "std", "min", "25%", "50%", "75%", "max")
QUARTILES = ("Min.", "1st Qu.", "Median", "Mean", "3rd Qu.", "Max.")
CORRELATED = ("threads", "batch", "lr", "time_s")


@pytest.mark.parametrize(
    ("down", "doubt"),
    [(DESCRIBED, "statistics"), (QUARTILES, "statistics"), (CORRELATED, "matrix")],
)
def test_a_summary_of_a_table_may_be_no_list_of_runs(
    down: tuple[str, ...], doubt: str, tmp_path: Path
) -> None:
    lines = [
        f"{name},{n + 1}.5,{8 + 3 * n}.0,.{n + 1},{7 + n * n}.2" for n, name in enumerate(down)
    ]
    path = saved(tmp_path / "summary.csv", "," + ",".join(CORRELATED), *lines)
    guesses = guess(profile(open_table(path)))
    assert any(doubt in reason for reason in guesses.doubts)
    assert guesses.objective.sure <= DOUBTED


def test_ways_to_pool_are_settings_and_no_statistics(tmp_path: Path) -> None:
    lines = [
        f"{pool},{batch},{speed(batch, n + 1)}"
        for n, pool in enumerate(("mean", "max", "min", "median"))
        for batch in (8, 16, 32)
    ]
    path = saved(tmp_path / "runs.csv", "pooling,batch,ops_per_s", *lines)
    assert guess(profile(open_table(path))).doubts == ()
