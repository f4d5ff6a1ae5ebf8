"""Tables, logs and documents as others have them: shapes that no tool of docs/import.md names."""

import itertools
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.lab.tables.test_draft import drafted, outcomes
from tests.lab.tables.test_guess import roles
from tunerd.errors import MisconfiguredError
from tunerd.lab.tables import documents
from tunerd.lab.tables.documents import log_records, taken_apart
from tunerd.lab.tables.exports.command_lines import arguments_of
from tunerd.lab.tables.files import AS_IT_STANDS, ReadOptions, open_table
from tunerd.lab.tables.guess import TableGuess, guess
from tunerd.lab.tables.notations import notations
from tunerd.lab.tables.profile import profile
from tunerd.lab.tables.rows import TableRow

GRID = list(itertools.product((1, 2, 4, 8), (16, 32, 64)))


def speed(a: int, b: int) -> float:
    return round(100 * math.pow(a, 0.8) + b + (37 * a + 11 * b) % 7 / 10, 2)


def read(path: Path, reading: ReadOptions = AS_IT_STANDS) -> tuple[TableGuess, list[str]]:
    table = open_table(path, reading)
    return guess(profile(table)), table.told()


def rows_of(path: Path) -> list[Mapping[str, Any]]:
    return [row.values for row in open_table(path).rows() if isinstance(row, TableRow)]


def written(path: Path, header: str, line: str, end: str = "") -> Path:
    lines = [line.format(a=a, b=b, v=speed(a, b)) for a, b in GRID]
    path.write_text("\n".join([*([header] if header else []), *lines]) + "\n" + end)
    return path


def test_names_that_come_again_are_told_apart(tmp_path: Path) -> None:
    path = written(tmp_path / "runs.csv", "threads,batch,ops_per_s,name,name", "{a},{b},{v},x{a},y")
    guesses, told = read(path)
    assert [c.column.name for c in guesses.columns][3:] == ["name", "name (2)"]
    assert any("name (2)" in sentence for sentence in told)
    _, study, table = drafted(path)
    assert {p.name for p in study.parameters} == {"threads", "batch"}
    assert outcomes(study, table) == {"succeeded": 12}


def test_a_number_behind_a_name_says_nothing_of_its_column(tmp_path: Path) -> None:
    path = written(tmp_path / "runs.csv", "threads,time_s,batch,time_s", "{a},{v},{b},{b}.5{a}")
    guesses, _ = read(path)
    found = roles(guesses)
    assert (found["time_s"], found["time_s (2)"]) == ("objective", "metric")
    assert drafted(path)[1].objective.metric == "time_s"


def test_a_header_that_comes_again_in_another_order_names_both_columns(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("tp,ms,ms\n1,10,20\n2,30,40\nms,tp,ms\n50,4,60\n")
    assert dict(rows_of(path)[-1]) == {"tp": "4", "ms": "50", "ms (2)": "60"}


@pytest.mark.parametrize("line", ["{a},{b},{v}", "A{a},{b},{v},ok", "2026-03-01 10:{b}:00,{a},{v}"])
def test_a_table_without_names_is_refused_until_somebody_names_them(
    line: str, tmp_path: Path
) -> None:
    path = written(tmp_path / "runs.csv", "", line)
    with pytest.raises(MisconfiguredError, match=r"no names of columns.*--columns"):
        open_table(path)
    names = ("threads", "batch", "ops_per_s", "state")[: line.count(",") + 1]
    guesses, _ = read(path, ReadOptions(header=names))
    assert guesses.profile.rows == 12
    assert tuple(c.name for c in guesses.profile.columns) == names


@pytest.mark.parametrize(
    "text",
    ["kernel,1,2,4\nfft,3.5,2.5,1.5\ngemm,4.5,3.5,2.5\n", "threads,1,2\n8,3.5,2.5\n9,4.5,3.5\n"],
)
def test_numbers_may_be_names_of_columns(text: str, tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text(text)
    assert open_table(tmp_path / "runs.csv", ReadOptions("none")).columns[1] == "1"


def test_names_that_somebody_gave_hold_for_an_import(tmp_path: Path) -> None:
    path = written(tmp_path / "runs.csv", "", "{a},{b},{v}")
    reading = ReadOptions(header=("threads", "batch", "ops_per_s"))
    text, study, table = drafted(path, reading=reading)
    assert 'header = ["threads", "batch", "ops_per_s"]' in text
    assert outcomes(study, table) == {"succeeded": 12}


@pytest.mark.parametrize(
    "document",
    [
        {"results": {"runs": ...}},
        {"version": "1", "meta": {"host": "n1"}, "results": {"summary": {"n": 12}, "runs": ...}},
        {"data": {"data": {"items": ...}}, "status": "ok"},
        {"count": 12, "next": None, "results": ...},
    ],
)
def test_the_deepest_list_of_records_has_the_rows(document: Any) -> None:
    runs = [{"threads": a, "batch": b, "ops_per_s": speed(a, b)} for a, b in GRID]
    records = taken_apart(json.loads(json.dumps(document, default=lambda _: runs)))
    assert [record["ops_per_s"] for record in records] == [run["ops_per_s"] for run in runs]


@pytest.mark.parametrize(
    ("texts", "delimiter", "format_", "doubtful"),
    [
        (["4.012", "7.793", "512"], ";", "1.234,5", True),
        (["4.012", "7.793", "512"], ",", "1.234,5", True),
        (["4.012", "7.793", "1.512"], ";", "number", True),
        (["4.012", "7.793", "1.512"], ",", "number", False),
        (["0.512", "7.793", "4"], ",", "number", False),
        (["4,012.5", "7,793"], ",", "1,234.5", False),
    ],
)
def test_a_point_between_thousands_is_asked_about(
    texts: list[str], delimiter: str, format_: str, doubtful: bool
) -> None:
    (one,) = notations([("tokens_per_s", texts)], delimiter)
    assert (one.notation.format, bool(one.doubt)) == (format_, doubtful)


def records(text: str, folder: Path) -> list[dict[str, Any]]:
    (folder / "log.txt").write_text(text)
    return [
        dict(row.values) for row in log_records(folder / "log.txt") if isinstance(row, TableRow)
    ]


def test_a_comma_in_what_a_program_prints_is_read_by_its_other_numbers(tmp_path: Path) -> None:
    text = "\nSummary:\n  Total:\t10.5 secs\n  Average:\t0{0}05 secs\n  Requests/sec:\t7,793\n"
    (english,), (german,) = (records(text.format(sign), tmp_path) for sign in ".,")
    assert (english["requests_per_s"], german["requests_per_s"]) == (7793, 7.793)
    (alone,) = records(
        "[OVERALL], RunTime(ms), 9\n[OVERALL], Throughput(ops/sec), 7,793\n", tmp_path
    )
    assert alone["operations_per_s"] == "7,793"


BOTH = """Connecting to host 10.0.0.2, port 5201
[ ID][Role] Interval           Transfer     Bitrate         Retr
[  5][TX-C]   0.00-10.00  sec  10.9 GBytes  9.40 Gbits/sec    3             sender
[  5][TX-C]   0.00-10.04  sec  10.9 GBytes  9.30 Gbits/sec                  receiver
[  7][RX-C]   0.00-10.00  sec  10.4 GBytes  8.90 Gbits/sec    7             sender
[  7][RX-C]   0.00-10.04  sec  10.4 GBytes  8.80 Gbits/sec                  receiver
"""


def test_both_ways_of_iperf3_count(tmp_path: Path) -> None:
    text = "[ ID] Interval           Transfer     Bitrate\n" + BOTH
    (run,) = records(text, tmp_path)
    assert (run["tx_bits_per_s"], run["rx_bits_per_s"]) == (9.3e9, 8.8e9)
    assert run["bits_per_s"] == pytest.approx(1.81e10)
    assert run["status"] == "succeeded"


@pytest.mark.parametrize(
    "command",
    [
        "mysqlslap -uroot -phunter2 --concurrency=8",
        "mysqlslap -u root -phunter --concurrency=8",
        "sysbench --mysql-user=root -p123 --threads=8 run",
        "mongoperf -u admin -p hunter2 --threads 8",
        "sshpass -phunter ssh h ./run --threads 8",
        "curl -u bob:hunter2 --threads 8",
        "./bench -pHunter2! --threads 8",
    ],
)
def test_passwords_that_are_glued_to_their_option_are_no_arguments(command: str) -> None:
    arguments = arguments_of(command)
    assert "8" in arguments.values()
    assert not any(word in str(arguments) for word in ("hunter", "Hunter", "123"))


def test_options_that_begin_with_p_are_kept() -> None:
    arguments = arguments_of("./bench -p8 -parallel 4 -policy=lru -pinned")
    assert arguments == {
        "program": "./bench", "p": "8", "parallel": "4", "policy": "lru", "pinned": "true"
    }  # fmt: skip


def _seff(job: int, cores: int, seconds: float, state: str = "COMPLETED (exit code 0)") -> str:
    return f"""Job ID: {job}
Cluster: snellius
User/Group: alice/alice
State: {state}
Nodes: 1
Cores per node: {cores}
CPU Utilized: 01:02:03
CPU Efficiency: {80 - cores - job % 16 / 10:.2f}% of 02:00:{cores:02d} core-walltime
Job Wall-clock time: 00:{int(seconds) // 60:02d}:{int(seconds) % 60:02d}
Memory Utilized: {cores / 7 + job % 16 / 50:.2f} GB
Memory Efficiency: 20.{cores}% of 16.00 GB
"""


def test_accounts_of_seff_are_a_table(tmp_path: Path) -> None:
    path = tmp_path / "seff.txt"
    cores = (4, 8, 16, 32) * 4
    path.write_text("\n".join(_seff(n, c, 3300 / c + n % 16) for n, c in enumerate(cores, 4000)))
    path.write_text(path.read_text().replace("COMPLETED (exit code 0)", "FAILED (exit code 1)", 1))
    guesses, _ = read(path)
    found = roles(guesses)
    assert found["Job Wall-clock time"] == "objective"
    assert guesses.goal == "minimize"
    assert found["CPU Efficiency"] == found["Memory Utilized"] == "metric"
    assert (found["Cores per node"], found["State"], found["Cluster"]) == (
        "parameter", "status", "context")  # fmt: skip
    _, study, table = drafted(path)
    assert outcomes(study, table) == {"succeeded": 15, "failed": 1}


def test_accounts_of_one_job_a_file_are_a_table(tmp_path: Path) -> None:
    for number, cores in enumerate((4, 8, 16)):
        (tmp_path / f"{number}.txt").write_text(_seff(number, cores, 900))
    assert [row["Cores per node"] for row in rows_of(tmp_path)] == ["4", "8", "16"]


@pytest.mark.parametrize(
    "block",
    [
        "threads = {a}\nbatch = {b}\nops_per_s = {v}\n\n",
        "threads: {a}\nbatch: {b}\nops_per_s: {v}\n---\n",
        "[[run]]\nthreads = {a}\nbatch = {b}\nops_per_s = {v}\n",
        "Setup:\n  threads: {a}\n  batch: {b}\n  ops_per_s: {v} (best of 3)\n\n",
        "Machine Summary::threads={a}\nMachine Summary::batch={b}\nFinal Summary::ops_per_s={v}\n",
        "2026-03-01 10:00:01 INFO finished threads={a} batch={b} ops_per_s={v}\n",
        "train,host=a threads={a},batch={b},ops_per_s={v} 17{b}{a}\n",
        'time=2026-03-01T10:00:{b}Z msg="run finished" threads={a} batch={b} ops_per_s={v}\n',
    ],
)
def test_runs_in_blocks_or_lines_of_names_and_values(block: str, tmp_path: Path) -> None:
    path = tmp_path / "runs.log"
    path.write_text("".join(block.format(a=a, b=b, v=speed(a, b)) for a, b in GRID))
    guesses, _ = read(path)
    found = roles(guesses)
    assert (found["threads"], found["batch"]) == ("parameter", "parameter")
    assert guesses.objective.column.name == "ops_per_s"
    assert guesses.profile.rows == 12


@pytest.mark.parametrize(
    "line",
    [
        " [2026-03-01 10:01:11] iteration {s:8d}/ 100 | elapsed time per iteration (ms): {v:.1f} |"
        " lm loss: {loss:.6E} | loss scale: 1.0 |",
        "[rank0]: step {s:5d} | loss {loss:.4f} | {v:.1f} samples/s | lr 1e-4",
    ],
)
def test_reports_in_a_log_of_a_trainer_are_joined(line: str, tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    head = "using world size: 16, data size: 8\n  micro_batch_size ........ {a}\n  tp ....... {b}\n"
    reports = [(s, 9 - s / 10) for s in (10, 20, 30)]
    runs = [
        head.format(a=a, b=b)
        + "".join(
            line.format(s=s, loss=loss + a / b, v=speed(a, b) + s) + "\n" for s, loss in reports
        )
        for a, b in GRID
    ]
    path.write_text("".join(runs))
    guesses, told = read(path)
    found = roles(guesses)
    assert guesses.profile.rows == 12
    assert any("one job, by its last report" in sentence for sentence in told)
    assert (found["micro_batch_size"], found["tp"]) == ("parameter", "parameter")
    assert guesses.objective.column.name in ("samples/s", "elapsed time per iteration (ms)")


@pytest.mark.parametrize(
    ("text", "row"),
    [
        ("threads  schedule   time_s\n", "{a:7d}  static     {v:7.2f}\n"),
        ('"threads" "schedule" "time_s"\n', '"{b}" {a} "static 1" {v}\n'),
        ("   threads schedule  time_s\n", "{b:<3d} {a:7d} dynamic {v:7.2f}\n"),
        ("# my results\n# threads schedule time_s\n", "{a} static {v}\n"),
        ("\\begin{tabular}{llr}\nthreads & schedule & time_s \\\\ \\hline\n",
         "{a} & static & {v} \\\\\n"),
        ("=======  ========  ======\nthreads  schedule  time_s\n=======  ========  ======\n",
         "{a:<7d}  static    {v}\n"),
    ],
)  # fmt: skip
def test_columns_between_white_space(text: str, row: str, tmp_path: Path) -> None:
    path = tmp_path / "table.txt"
    path.write_text(text + "".join(row.format(a=a, b=b, v=speed(a, b)) for a, b in GRID))
    found = roles(read(path)[0])
    assert (found["threads"], found["time_s"]) == ("parameter", "objective")
    assert len(rows_of(path)) == 12


@pytest.mark.parametrize(
    "text",
    [
        "the job began at 10\nthe job ended at 11\nthe job began at 12\nthe job ended at 13\n",
        "Mar  1 10:00:00 n1 sshd[1]: a b\n" * 6,
        "my job,start time,x\n" + "a job,2026-01-01 10:00:00,3\n" * 6,
    ],
)
def test_what_only_has_as_many_words_in_each_line_is_no_table_of_words(
    text: str, tmp_path: Path
) -> None:
    (tmp_path / "x").write_text(text)
    try:
        table = open_table(tmp_path / "x")
    except MisconfiguredError:
        return
    assert table.form == "csv"


def test_ruled_lines_between_all_rows(tmp_path: Path) -> None:
    path = tmp_path / "table.rst"
    rule = "+----+----+----+\n"
    lines = "".join(f"| {a} | {b} | {speed(a, b)} |\n{rule}" for a, b in GRID)
    path.write_text(f"{rule}| threads | batch | ops_per_s |\n{rule.replace('-', '=')}{lines}")
    assert [row["ops_per_s"] for row in rows_of(path)] == [str(speed(a, b)) for a, b in GRID]


def test_a_folder_of_tables_is_one(tmp_path: Path) -> None:
    for a, b in GRID:
        (tmp_path / f"bwa.threads{a}.mem{b}.tsv").write_text(
            f"s\th:m:s\tmax_rss\n{9000 / speed(a, b):.4f}\t0:01:{b}\t{b}12.5\n"
        )
    found = roles(read(tmp_path)[0])
    assert found["threads"] == "parameter"
    assert found["s"] == "objective" or found["h:m:s"] == "objective"
    (tmp_path / "odd.tsv").write_text("no table of anything\n")
    assert len(rows_of(tmp_path)) == 12


def test_a_label_of_a_load_is_context(tmp_path: Path) -> None:
    path = tmp_path / "jmeter.csv"
    lines = [
        f"{a},{b},{label},{900 / speed(a, b) * k:.0f},{speed(a, b) / k:.4f}"
        for a, b in GRID
        for k, label in enumerate(("login", "search", "TOTAL"), 1)
    ]
    path.write_text("\n".join(["threads,heap_gb,Label,Average,Throughput", *lines]) + "\n")
    found = roles(read(path)[0])
    assert (found["Label"], found["Throughput"]) == ("context", "objective")


def test_units_in_cells_say_which_way_is_better(tmp_path: Path) -> None:
    path = written(tmp_path / "runs.csv", "threads,block,rate", "{a},{b}KiB,{v}MB/s")
    guesses, _ = read(path)
    assert (guesses.goal, guesses.goal_sure >= 0.5) == ("maximize", True)
    assert 'unit = "MB/s"' in drafted(path)[0]


def test_what_a_step_of_a_workflow_gives_was_measured(tmp_path: Path) -> None:
    runs = [
        {
            "spec": {"arguments": {"parameters": [{"name": "lr", "value": str(a / 100)}]}},
            "status": {"outputs": {"parameters": [{"Name": "accuracy", "Value": f"{b}.{a}1"}]}},
        }
        for a, b in GRID
    ]
    path = tmp_path / "argo.json"
    path.write_text(json.dumps({"kind": "List", "items": runs}))
    guesses, _ = read(path)
    assert guesses.objective.column.name == "status.outputs.parameters.accuracy"


def _perf(a: int, b: int) -> str:
    return f"""
 Performance counter stats for './solver --threads {a} --tile {b}':

         11,812.34 msec task-clock                       #    {a}.98 CPUs utilized
             1,2{b}      context-switches                 #    0.1 K/sec
     3,312,123,4{b}      cycles:u                         #    3.312 GHz

       {900 / speed(a, b):.9f} seconds time elapsed

"""


def _stress(a: int, b: int) -> str:
    return f"""Running with {a * b} threads for 1000000 iterations
Results:
Op rate                   : {speed(a, b) * 100:,.0f} op/s  [WRITE: 9,000 op/s]
Latency 99th percentile   : {b / 7:.1f} ms [WRITE: 4.0 ms]
"""


def _hammer(a: int, b: int) -> str:
    result = f"Vuser 1:TEST RESULT : System achieved {speed(a, b) * 100:.0f} NOPM from {b}0000 TPM"
    return f"Vuser 1:{a * b} Active Virtual Users configured\n{result}\n"


@pytest.mark.parametrize(
    ("one", "objective", "goal", "setting"),
    [
        (_perf, "time_s", "minimize", "option.threads"),
        (_stress, "operations_per_s", "maximize", "threads"),
        (_hammer, "nopm", "maximize", "virtual_users"),
    ],
)
def test_what_more_programs_print(
    one: Any, objective: str, goal: str, setting: str, tmp_path: Path
) -> None:
    path = tmp_path / "log.txt"
    path.write_text("".join(one(a, b) for a, b in GRID))
    guesses, _ = read(path)
    assert (guesses.objective.column.name, guesses.goal) == (objective, goal)
    assert roles(guesses)[setting] == "parameter"
    assert guesses.profile.rows == 12


def test_names_of_secrets_in_blocks_are_left_out(tmp_path: Path) -> None:
    block = "threads: {a}\npassword: hunter2\nurl: http://me:hunter2@h/\nops: {v}\n"
    lines = "threads={a} password=hunter2 url=http://me:hunter2@h/ ops={v}\n"
    for text in (block, lines):
        rows = records("".join(text.format(a=a, v=speed(a, b)) for a, b in GRID), tmp_path)
        assert len(rows) == 12
        assert "hunter2" not in str(rows)


@pytest.mark.parametrize("user", ["-uroot", "--password=hunter2", "-P9"])
def test_what_time_says_of_commands(user: str, tmp_path: Path) -> None:
    path = tmp_path / "time.txt"
    path.write_text(
        "".join(
            f'\tCommand being timed: "./solve {user} -phunter2 -t {a} --opt {b}"\n'
            f"\tUser time (seconds): {a * 900 / speed(a, b):.2f}\n"
            f"\tPercent of CPU this job got: {97 * a}%\n"
            f"\tElapsed (wall clock) time (h:mm:ss or m:ss): 0:{9 + 900 / speed(a, b):05.2f}\n"
            "\tExit status: 0\n"
            for a, b in GRID
        )
    )
    guesses, _ = read(path)
    found = roles(guesses)
    assert (found["t"], found["opt"]) == ("parameter", "parameter")
    assert found["Percent of CPU this job got"] == "metric"
    assert guesses.objective.column.name.startswith("Elapsed")
    assert "hunter2" not in str(rows_of(path)) + drafted(path)[0]


def test_what_stream_measures(tmp_path: Path) -> None:
    path = tmp_path / "stream.txt"
    path.write_text(
        "".join(
            f"STREAM version $Revision: 5.10 $\nArray size = {b}000000 (elements), Offset = 0\n"
            f"Number of Threads requested = {a}\nNumber of Threads counted = {a}\n"
            "Function    Best Rate MB/s  Avg time     Min time     Max time\n"
            + "".join(
                f"{name + ':':12}{speed(a, b) + k:8.1f}     0.0135     0.0133     0.0139\n"
                for k, name in enumerate(("Copy", "Scale", "Add", "Triad"))
            )
            for a, b in GRID
        )
    )
    guesses, _ = read(path)
    found = roles(guesses)
    assert guesses.objective.column.name == "triad_mb_per_s"
    assert (found["threads"], found["array_size"], found["copy_mb_per_s"]) == (
        "parameter", "context", "metric"
    )  # fmt: skip


@pytest.mark.parametrize(
    "name", ["时间戳", "タイムスタンプ", "временная_метка", "Zeitstempel", "horodatage", "запись"]
)
@pytest.mark.parametrize("scale", [1, 1000, 1.001])
def test_moments_under_any_name_are_no_objective(name: str, scale: float, tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    lines = [
        f"{(1764000000 + 301 * n) * scale},{a},{b},{speed(a, b)}" for n, (a, b) in enumerate(GRID)
    ]
    path.write_text("\n".join([f"{name},线程,批次大小,结果", *lines]) + "\n")
    found = roles(read(path)[0])
    assert found[name] == "finished_at"
    assert found["结果"] == "objective"


def test_numbers_that_were_in_the_names_stay_in_them(tmp_path: Path) -> None:
    path = written(tmp_path / "runs.csv", "batch,threads (2),threads,ops_per_s", "{b},{a},x,{v}")
    _, told = read(path)
    assert not any("twice" in sentence for sentence in told)
    text, _, _ = drafted(path)
    assert 'threads_2 = "threads (2)"' in text
    path = written(
        tmp_path / "runs.csv", "threads,batch,latency (50),latency (99)", "{a},{b},{v},{v}"
    )
    assert drafted(path)[1].objective.metric == "latency_50"


def test_names_in_the_second_comment_are_names(tmp_path: Path) -> None:
    path = written(tmp_path / "runs.csv", "# on host a\n# threads,batch,ops_per_s", "{a},{b},{v}")
    assert roles(read(path)[0]) == {
        "threads": "parameter", "batch": "parameter", "ops_per_s": "objective"
    }  # fmt: skip


@pytest.mark.parametrize("name", ["exit", "exit_code", "rc"])
def test_an_exit_code_of_one_is_a_failure(name: str, tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    lines = [f"{a},{b},{int(a == 8)},{speed(a, b)}" for a, b in GRID]
    path.write_text("\n".join([f"threads,batch,{name},ops_per_s", *lines]) + "\n")
    assert '0 = "succeeded", 1 = "failed"' in drafted(path)[0]


def test_runs_at_the_top_come_before_those_within_the_configuration() -> None:
    sweep = [{"threads": a, "time_s": 1} for a, _ in GRID]
    runs = [{"threads": a, "latency": speed(a, b)} for a, b in GRID[:6]]
    document = {"config": {"sweep": sweep}, "results": runs}
    assert [record["latency"] for record in taken_apart(document)] == [r["latency"] for r in runs]


def test_what_stands_beside_is_put_together_only_for_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    merged = 0
    merge = documents._merged

    def counted(shared: Mapping[str, Any], record: Mapping[str, Any]) -> dict[str, Any]:
        nonlocal merged
        merged += 1
        return merge(shared, record)

    monkeypatch.setattr(documents, "_merged", counted)
    taken_apart({f"k{n}": {f"a{n}": {"b": n}} for n in range(50)})
    assert merged < 50


def test_blocks_that_begin_with_a_secret(tmp_path: Path) -> None:
    path = written(
        tmp_path / "runs.txt",
        "",
        "Password: hunter2\nDB_PASS: hunter3\nthreads: {a}\nbatch: {b}\nspeed: {v}\n",
    )
    rows = rows_of(path)
    assert len(rows) == len(GRID)
    assert set(rows[0]) == {"threads", "batch", "speed"}
