"""What more programs print: boxes, several tables in a page, LSF, and benchmarks."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.lab.tables.test_draft import drafted, outcomes
from tests.lab.tables.test_guess import roles
from tests.lab.tables.test_more_strangers import saved
from tests.lab.tables.test_strangers import GRID, read, rows_of, speed
from tunerd.errors import MisconfiguredError
from tunerd.lab.tables.files import open_table

ROWS = [(a, b, speed(a, b)) for a, b in GRID]


def text(path: Path, content: str) -> Path:
    path.write_text(content)
    return path


# ── tables ───────────────────────────────────────────────────────────────────────────────────────

POLARS = (
    "shape: (12, 3)\n┌─────────┬───────┬────────┐\n│ threads ┆ batch ┆ time_s │\n"
    "│ ---     ┆ ---   ┆ ---    │\n│ i64     ┆ i64   ┆ f64    │\n╞═════════╪═══════╪════════╡\n"
    + "".join(f"│ {a:<7} ┆ {b:<5} ┆ {v:<6} │\n" for a, b, v in ROWS)
    + "└─────────┴───────┴────────┘\n"
)
RICH = (
    "┏━━━━━━━━━┳━━━━━━━┳━━━━━━━━┓\n┃ threads ┃ batch ┃ time_s ┃\n┡━━━━━━━━━╇━━━━━━━╇━━━━━━━━┩\n"
    + "".join(f"│ {a:<7} │ {b:<5} │ {v:<6} │\n" for a, b, v in ROWS)
    + "└─────────┴───────┴────────┘\n"
)
TIBBLE = "# A tibble: 12 × 3\n   threads batch time_s\n     <dbl> <dbl>  <dbl>\n" + "".join(
    f"{k:2} {a:7} {b:5} {v:7}\n" for k, (a, b, v) in enumerate(ROWS, 1)
)


@pytest.mark.parametrize("content", [POLARS, RICH, TIBBLE])
def test_tables_as_libraries_draw_them(content: str, tmp_path: Path) -> None:
    path = text(tmp_path / "runs.txt", content)
    guesses, _ = read(path)
    assert (guesses.objective.column.name, guesses.goal) == ("time_s", "minimize")
    assert {guess.column.name for guess in guesses.having("parameter")} == {"threads", "batch"}
    _, study, table = drafted(path)
    assert outcomes(study, table) == {"succeeded": 12}


def in_html(header: list[str], rows: list[tuple[Any, ...]]) -> str:
    def line(cells: Any, tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{cell}</{tag}>" for cell in cells) + "</tr>\n"

    return "<table>" + line(header, "th") + "".join(line(row, "td") for row in rows) + "</table>\n"


def in_markdown(header: list[str], rows: list[tuple[Any, ...]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines) + "\n"


@pytest.mark.parametrize("draw", [in_html, in_markdown])
@pytest.mark.parametrize("others", [3, 20])
def test_of_several_tables_it_is_said_which_was_not_read(
    draw: Any, others: int, tmp_path: Path
) -> None:
    """The longest won without a word, whatever it was of."""
    machines = [(f"n{k}", "epyc", 256 + k) for k in range(others)]
    page = draw(["host", "cpu", "ram"], machines) + draw(["threads", "batch", "ops/s"], ROWS)
    path = text(tmp_path / "page.txt", f"<!doctype html>{page}" if draw is in_html else page)
    table = open_table(path)
    rows = list(table.rows())
    lost = ("host, cpu, ram", 3) if others == 3 else ("threads, batch, ops/s", 12)
    assert [row.number for row in rows] == list(range(1, max(others, 12) + 1))
    (said,) = [sentence for sentence in table.told() if "another table" in sentence]
    assert said.startswith(f"{lost[1]} rows are no jobs")
    assert lost[0] in said
    assert "file of its own" in said


def test_a_row_alone_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = text(tmp_path / "summary.json", json.dumps({"metrics": {"rate": 9.1, "vus": 10}}))
    with pytest.raises(MisconfiguredError, match=r"one row alone.*folder of all"):
        read(path)


def test_settings_and_measurements_in_rows_of_their_own(tmp_path: Path) -> None:
    lines = [
        f"{k},{name},{value}"
        for k, (a, b, v) in enumerate(ROWS)
        for name, value in (("threads", a), ("batch", b), ("latency_ms", v))
    ]
    guesses, _ = read(saved(tmp_path / "runs.csv", "trial,name,value", lines))
    assert (guesses.objective.column.name, guesses.profile.rows) == ("latency_ms", 12)
    assert {guess.column.name for guess in guesses.having("parameter")} == {"threads", "batch"}


def test_values_of_things_with_names_stay_rows(tmp_path: Path) -> None:
    lines = [
        f"{a},{name},{speed(a, b)}" for a in (1, 2, 4, 8) for name, b in (("sort", 16), ("fft", 32))
    ]
    guesses, _ = read(saved(tmp_path / "runs.csv", "threads,name,value", lines))
    assert guesses.profile.rows == 8


def test_notes_below_a_table_are_no_jobs(tmp_path: Path) -> None:
    """They made words of a column of numbers."""
    lines = [f"{a},{b},{v}" for a, b, v in ROWS]
    end = "\n* measured on node7,,\nSource: internal,,\n"
    path = saved(tmp_path / "runs.csv", "threads,batch,time_s", lines, end)
    guesses, told = read(path)
    assert {guess.column.name for guess in guesses.having("parameter")} == {"threads", "batch"}
    assert any("a note" in sentence for sentence in told)
    assert outcomes(*drafted(path)[1:]) == {"succeeded": 12}


def test_a_sign_between_two_columns_is_no_column(tmp_path: Path) -> None:
    """JMH's error was the objective: each column was taken for the one before it."""
    header = "Benchmark   (size)  (threads)   Mode  Cnt     Score    Error  Units"
    lines = [f"Bench.run  {b:6}  {a:9}  thrpt   10  {v}  ± 9.{a}  ops/s" for a, b, v in ROWS]
    guesses, _ = read(saved(tmp_path / "jmh.txt", header, lines))
    assert (guesses.objective.column.name, guesses.goal) == ("Score", "maximize")


@pytest.mark.parametrize("arrow", ["↑", "↓"])
def test_an_arrow_is_of_what_was_measured(arrow: str, tmp_path: Path) -> None:
    lines = [f"net-{k},{v},{70 + k % 3}.{k}" for k, (*_, v) in enumerate(ROWS)]
    guesses, _ = read(saved(tmp_path / "ablation.csv", f"Method,Latency (ms),Top-1 {arrow}", lines))
    assert roles(guesses)[f"Top-1 {arrow}"] in ("metric", "objective")
    assert all(guess.unsure for guess in guesses.having("parameter", "context"))


def test_marks_before_a_result_are_no_part_of_it(tmp_path: Path) -> None:
    blocks = [
        f"SCALE: {b}\nnum_mpi_processes: {a}\nbfs  mean_time: {1 / v:.6f}\n"
        f"bfs  harmonic_mean_TEPS: !  {v}e6\n\n"
        for a, b, v in ROWS
    ]
    guesses, _ = read(text(tmp_path / "graph500.txt", "".join(blocks)))
    assert (guesses.objective.column.name, guesses.goal) == ("bfs  harmonic_mean_TEPS", "maximize")


# ── benchmarks ───────────────────────────────────────────────────────────────────────────────────

IOZONE = (
    "\tIozone: Performance Test of File I/O\n\t        Version $Revision: 3.489 $\n\n"
    "\tCommand line used: iozone -a -g 512\n\tOutput is in kBytes/sec\n"
    "                                                    random    random     bkwd\n"
    "      kB  reclen    write  rewrite    read    reread    read     write     read\n"
    + "".join(f"{64 * b:8}{a:8}" + 7 * f"{int(1e3 * v):9}" + "\n" for a, b, v in ROWS)
    + "\niozone test complete.\n"
)
STREAM = (
    "MIGRATED TCP STREAM TEST from 0.0.0.0 (0.0.0.0) port 0 AF_INET to 10.0.0.2 () port 0 AF_INET\n"
    "Recv   Send    Send                          \nSize   Size    Size     Time     Throughput  \n"
    "bytes  bytes   bytes    secs.    10^6bits/sec  \n\n"
)
NETPERF = "".join(
    f"$ netperf -H 10.0.0.2 -l 10 -- -m {64 * b} -s {a}\n{STREAM}"
    f"{131072:6} {a:6} {64 * b:6}    10.02    {v:.2f}   \n"
    for a, b, v in ROWS
)
REQUESTS = "".join(
    "MIGRATED TCP REQUEST/RESPONSE TEST from 0.0.0.0 () port 0 AF_INET to 10.0.0.2 () : first 0\n"
    "Local /Remote\nSend   Recv   Size     Size    Time     Rate\n\n"
    f"{16384:6} {131072:6} {a:<8} {b:<7} 10.00    {v:.2f}   \n16384  131072\n"
    for a, b, v in ROWS
)
VEGETA = "".join(
    f"Requests      [total, rate, throughput]         {a * b}, {b}.00, {b - 0.1:.2f}\n"
    "Duration      [total, attack, wait]             10.01s, 10s, 10.1ms\n"
    f"Latencies     [min, mean, 50, 90, 95, 99, max]  1.2ms, {v:.3f}ms, 3ms, 4ms, 5ms, 6ms, 1.9s\n"
    "Success       [ratio]                           100.00%\n"
    for a, b, v in ROWS
)
GROMACS = "".join(
    f"Command line:\n  gmx mdrun -ntmpi {a} -ntomp {b} -s bench.tpr\n\nUsing {a} MPI threads\n"
    f"\n               Core t (s)   Wall t (s)        (%)\n"
    f"       Time:     {9 * v:.3f}      {v:.3f}     {a * 100}.0\n"
    f"                 (ns/day)    (hour/ns)\nPerformance:       {v:.3f}        {24 / v:.3f}\n\n"
    for a, b, v in ROWS
)
CLICKHOUSE = "".join(
    f"$ clickhouse-benchmark -c {a} --max_block_size {b}\nLoaded 1 queries.\n\n"
    f"Queries executed: 10.\n\nlocalhost:9000, queries: 10, QPS: {v / 2}, RPS: 9.1, MiB/s: 1.2.\n\n"
    f"Queries executed: 20.\n\nlocalhost:9000, queries: 20, QPS: {v}, RPS: 9.1, MiB/s: 1.2.\n\n"
    "50%\t\t0.006 sec.\t\n99.9%\t\t0.012 sec.\t\n\n"
    for a, b, v in ROWS
)


@pytest.mark.parametrize(
    ("content", "objective", "goal", "inputs"),
    [
        (IOZONE, "write_kib_per_s", "maximize", {"file_kib", "record_kib"}),
        (NETPERF, "throughput_mbit_per_s", "maximize", {"message_bytes", "send_socket_bytes"}),
        (REQUESTS, "transactions_per_s", "maximize", {"request_bytes", "response_bytes"}),
        (VEGETA, "latency_mean_s", "minimize", {"rate"}),
        (GROMACS, "ns_per_day", "maximize", {"option.ntmpi", "option.ntomp"}),
        (CLICKHOUSE, "queries_per_s", "maximize", {"option.concurrency", "option.max_block_size"}),
    ],
)
def test_benchmarks(
    content: str, objective: str, goal: str, inputs: set[str], tmp_path: Path
) -> None:
    path = text(tmp_path / "runs.log", content)
    guesses, _ = read(path)
    assert (guesses.objective.column.name, guesses.goal) == (objective, goal)
    assert guesses.profile.rows == 12
    taken = {c for c, role in roles(guesses).items() if role in ("parameter", "context", "derived")}
    assert inputs <= taken
    scale = {"write_kib_per_s": 1e3, "latency_mean_s": 1e-3}.get(objective, 1.0)
    assert guesses.objective.column.numbers == pytest.approx(
        [v * scale for *_, v in ROWS], rel=1e-3
    )


COMPARE = """[------------- Batched dot -------------]
                      |  mul/sum   |  bmm  
1 threads: ------------------------------
      [1, 64]         |       6.2  |     13
      [64, 64]        |      10.1  |     19
4 threads: ------------------------------
      [1, 64]         |       6.3  |     12
      [64, 64]        |       8.2  |     15

Times are in microseconds (us).
"""  # noqa: W291


def test_comparisons_of_torch(tmp_path: Path) -> None:
    """The lines with the numbers of threads were lost, and each column was a measurement."""
    path = text(tmp_path / "compare.txt", COMPARE)
    rows = rows_of(path)
    assert len(rows) == 8
    assert rows[1] == {
        "label": "Batched dot",
        "sub_label": "[1, 64]",
        "description": "bmm",
        "threads": 1,
        "time_s": pytest.approx(13e-6),
    }
    guesses, _ = read(path)
    assert guesses.goal == "minimize"
    found = roles(guesses)
    assert (found["description"], found["threads"], found["sub_label"]) == (
        "parameter",
        "parameter",
        "context",
    )


def test_results_of_airspeed_velocity(tmp_path: Path) -> None:
    sizes, ways = ["1000", "10000", "100000"], ["'quick'", "'heap'"]
    times = [0.1, 0.2, None, 0.4, 0.5, 0.6]
    document = {
        "commit_hash": "abc123",
        "env_name": "virtualenv-py3.11",
        "params": {"cpu": "Intel", "num_cpu": "8"},
        "result_columns": ["result", "params", "version", "started_at"],
        "results": {
            "suite.time_sort": [times, [sizes, ways], "v1", 1.7e12],
            "suite.peakmem_sort": [[3e7, 3.1e7, 3.2e7], [sizes], "v2", 1.7e12],
            "suite.time_simple": [[0.0123], [], "v3", 1.7e12],
        },
        "version": 2,
    }
    path = text(tmp_path / "result.json", json.dumps(document))
    rows = rows_of(path)
    assert len(rows) == 6 + 3 + 1
    assert (rows[3]["arg1"], rows[3]["arg2"], rows[3]["time_s"]) == (10000, "heap", 0.4)
    assert (rows[2]["status"], rows[2]["time_s"]) == ("failed", None)
    assert rows[6]["memory_bytes"] == 3e7
    guesses, _ = read(path)
    assert (guesses.objective.column.name, guesses.goal) == ("time_s", "minimize")


# ── LSF ──────────────────────────────────────────────────────────────────────────────────────────


def of_bacct(number: int, threads: int, block: int, seconds: float, end: str) -> str:
    done = end == "done"
    how = "Completed <done>" if done else f"Completed <exit>; {end}: job killed"
    return (
        f"Job <{number}>, Job Name <run{number}>, User <alice>, Project <default>, Status"
        f" <{'DONE' if done else 'EXIT'}>, Queue <normal>, Command <./solve --threads {threads}"
        f" --block {block} --password hunter2 > out.txt>, Share group charged </alice>\n"
        f"Thu Mar  6 10:01:12: Submitted from host <login1>, CWD <$HOME>, {threads} Task(s),"
        " Requested Resources <span[hosts=1]>;\n"
        f"Thu Mar  6 10:01:14: Dispatched {threads} Task(s) on Host(s) <{threads}*node7>;\n"
        f"Thu Mar  6 11:02:33: {how}.\n\nAccounting information about this job:\n"
        "     CPU_T     WAIT     TURNAROUND   STATUS     HOG_FACTOR    MEM    SWAP\n"
        f"   {seconds * threads:7.2f}        2             {int(seconds) + 2}     "
        f"{'done' if done else 'exit'}         0.9000   345M    1.2G\n{'-' * 78}\n\n"
    )


def of_bjobs(number: int, threads: int, block: int, minutes: int) -> str:
    """Lines are cut at 80 characters, whatever stands there."""
    gap = " " * 21
    return (
        f"\nJob <{number}>, Job Name <run{number}>, User <alice>, Status <DONE>, \n"
        f"{gap}Queue <normal>, Command <./solve --threads {threads} --blo\n{gap}ck {block}>, Share"
        f" group charged </alice>\nThu Mar  6 10:01:12: Submitted from host <login1>, {threads}"
        f" Task(s);\nThu Mar  6 10:01:14: Started {threads} Task(s) on Host(s) <node7>, Allocated"
        f" {threads} S\n{gap}lot(s) on Host(s) <node7>;\n"
        f"Thu Mar  6 10:{minutes + 1:02}:14: Done successfully. The CPU time used is 412.5"
        " seconds.\n\n"
        f" MEMORY USAGE:\n MAX MEM: 345 Mbytes;  AVG MEM: 90 Mbytes\n\n{'-' * 78}\n"
    )


def test_jobs_of_bacct(tmp_path: Path) -> None:
    ends = {3: "TERM_MEMLIMIT", 5: "TERM_RUNLIMIT", 7: "TERM_OWNER", 8: "TERM_UNKNOWN"}
    jobs = [of_bacct(100 + k, a, b, v, ends.get(k, "done")) for k, (a, b, v) in enumerate(ROWS)]
    head = "\nAccounting information about jobs that are: \n  - submitted by users alice, \n"
    path = text(tmp_path / "bacct.txt", head + "-" * 78 + "\n\n" + "".join(jobs))
    rows = rows_of(path)
    assert len(rows) == 12
    assert dict(rows[0]) == {
        "job_id": "100",
        "job_name": "run100",
        "user": "alice",
        "queue": "normal",
        "project": "default",
        "slots": 1,
        "resources": "span[hosts=1]",
        "cpu_time_s": pytest.approx(ROWS[0][2], abs=0.01),
        "max_memory": "345M",
        "wait_s": 2,
        "run_time_s": int(ROWS[0][2]),
        "status": "succeeded",
        "option.threads": 1,
        "option.block": 16,
    }
    assert [rows[k]["status"] for k in (3, 5, 7, 8)] == [
        "out_of_memory",
        "timeout",
        "cancelled",
        "failed",
    ]
    assert all(rows[k]["run_time_s"] is None for k in ends)
    guesses, _ = read(path)
    found: Mapping[str, str] = roles(guesses)
    assert (guesses.objective.column.name, guesses.goal) == ("run_time_s", "minimize")
    assert {found[c] for c in ("option.threads", "option.block", "slots")} <= {
        "parameter",
        "derived",
    }
    assert (found["cpu_time_s"], found["wait_s"], found["job_id"]) == ("metric", "metric", "job_id")


def test_jobs_of_bjobs(tmp_path: Path) -> None:
    jobs = [of_bjobs(100 + k, a, b, k + 10) for k, (a, b, _) in enumerate(ROWS)]
    rows = rows_of(text(tmp_path / "bjobs.txt", "".join(jobs)))
    assert [row["run_time_s"] for row in rows] == [60 * (k + 10) for k in range(12)]
    assert {row["option.block"] for row in rows} == {16, 32, 64}
    assert {row["slots"] for row in rows} == {1, 2, 4, 8}


def test_a_summary_of_bacct_is_refused_with_what_to_do(tmp_path: Path) -> None:
    content = (
        "\nAccounting information about jobs that are: \n  - submitted by users alice, \n"
        f"{'-' * 78}\n\nSUMMARY:      ( time unit: second ) \n Total number of done jobs:      12\n"
    )
    with pytest.raises(MisconfiguredError, match="bacct -l"):
        open_table(text(tmp_path / "bacct.txt", content))
