"""Traces of jobs are read and played: the Standard Workload Format and tables with a time."""

import gzip
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from benchmarks.contexts_to_come import main, play
from benchmarks.job_traces import read_trace

MONDAY = datetime(1996, 1, 1, tzinfo=UTC)


def swf_line(
    number: int, at: datetime, *, user: int, requested: int = -1, allocated: int = 4, took: int = 60
) -> str:
    submit = int((at - MONDAY).total_seconds())
    fields = [number, submit, 5, took, allocated, -1, -1, requested, -1, -1, 1, user, 7, 2, 1, -1]
    return " ".join(map(str, [*fields, -1, -1]))


def write_swf(path: Path, lines: Sequence[str]) -> Path:
    header = f"; Version: 2.2\n; UnixStartTime: {int(MONDAY.timestamp())}\n;\n"
    path.write_text(header + "\n".join(lines) + "\n")
    return path


def test_of_each_context_the_first_job_of_each_day_is_read(tmp_path: Path) -> None:
    lines = [
        swf_line(1, MONDAY + timedelta(hours=9), user=3, took=-1),
        swf_line(2, MONDAY + timedelta(hours=8), user=3, took=7200),
        swf_line(3, MONDAY + timedelta(hours=10), user=3, requested=16),
        swf_line(4, MONDAY + timedelta(days=1), user=3),
        swf_line(5, MONDAY + timedelta(days=2, hours=1), user=4),
        swf_line(6, MONDAY + timedelta(days=3), user=4),
    ]
    trace = read_trace(write_swf(tmp_path / "site-1.1-cln.swf", lines), days=3)
    assert [(job.at - MONDAY, job.context["user"], job.context["processors"]) for job in trace] == [
        (timedelta(hours=8), "3", "4"),
        (timedelta(hours=10), "3", "16"),
        (timedelta(days=1), "3", "4"),
        (timedelta(days=2, hours=1), "4", "4"),
    ]
    assert set(trace[0].context) == {"user", "processors"}, "what never differs is no context"
    assert trace[0].takes == timedelta(hours=2)


def test_a_table_and_a_compressed_file_are_read(tmp_path: Path) -> None:
    text = "time,model,gpus\n2026-01-05T06:00:00+01:00,a,8\n1767679200,b,8\n2026-01-07,b,16\n"
    path = tmp_path / "jobs.csv.gz"
    path.write_bytes(gzip.compress(text.encode()))
    trace = read_trace(path, days=30)
    assert [job.at for job in trace] == [
        datetime(2026, 1, 5, 5, tzinfo=UTC),
        datetime(2026, 1, 6, 6, tzinfo=UTC),
        datetime(2026, 1, 7, tzinfo=UTC),
    ]
    assert trace[2].context == {"model": "b", "gpus": "16"}


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("a.swf", "1 2 3\n", "line 1: 3 fields, expected 18"),
        ("a.swf", "; nothing\n", "no jobs"),
        ("a.swf", "1 x" + " 1" * 16, "line 1: expected a number, not 'x'"),
        ("a.swf", "1 1e300" + " 1" * 16, "line 1: no time: 1e+300"),
        ("a.csv", "when,a\n1,2\n", "line 1: expected the columns time and context"),
        ("a.csv", "time,a\nyesterday,2\n", "line 2: expected a number, not 'yesterday'"),
        ("a.csv", "time,a\n1,2,3\n", "line 2: 3 columns, expected 2"),
        ("long.swf", f"1 0 0 1e300 {' '.join(['1'] * 14)}\n", "line 1: no run time: 1e+300"),
        ("late.csv", "time,queue\n9999-12-31T23:00:00,1\n", "line 2: no time: 2.53402e+11"),
        ("wide.csv", f"time,queue\n1,{'x' * 200_000}\n", "field larger than field limit"),
        ("none.csv", None, "No such file"),
    ],
)
def test_what_is_no_trace_is_refused_with_a_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: str | None, reason: str
) -> None:
    path = tmp_path / name
    if text is not None:
        path.write_text(text)
    with pytest.raises(SystemExit) as stopped:
        main(["--trace", str(path)])
    assert stopped.value.code == 2
    assert reason in capsys.readouterr().err


def test_a_compressed_trace_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cut.csv.gz"
    path.write_bytes(gzip.compress(b"time,queue\n" + b"1,2\n" * 1000)[:-12])
    with pytest.raises(ValueError, match="ended before"):
        read_trace(path, 30)


def test_days_begin_at_midnight_utc_whatever_the_zone_that_is_written(tmp_path: Path) -> None:
    path = tmp_path / "zones.csv"
    path.write_text("\ufefftime,queue\n2026-01-05T01:00+02:00,a\n2026-01-04T23:30Z,a\n")
    assert [job.at for job in read_trace(path, 30)] == [datetime(2026, 1, 4, 23, tzinfo=UTC)]


@pytest.mark.slow
def test_what_comes_weekly_in_a_trace_is_recommended_for_before_it_comes(tmp_path: Path) -> None:
    lines = [
        swf_line(10 * week + user, MONDAY + timedelta(weeks=week, days=user, hours=6), user=user)
        for week in range(5)
        for user in (1, 3)
    ]
    path = write_swf(tmp_path / "weekly.swf", lines)
    scenario = "trace, forgets after five days"
    reactive, proactive = (play((scenario, foresees, 35, 1, path)) for foresees in (False, True))
    assert len(reactive.ready) == len(proactive.ready) == 10
    assert reactive.share(2) == 0.0
    assert proactive.share(3) == 1.0  # before, there is no model yet
