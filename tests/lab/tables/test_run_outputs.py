"""What load generators and small benchmarks print, in one log or a file for each run."""

import itertools
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.lab.tables.test_draft import drafted, outcomes
from tunerd.errors import MisconfiguredError
from tunerd.lab.tables.documents import is_log, log_records, taken_apart
from tunerd.lab.tables.exports.genai_perf import run_of
from tunerd.lab.tables.files import open_table
from tunerd.lab.tables.guess import UserAnswers, guess
from tunerd.lab.tables.not_tables import advice_for
from tunerd.lab.tables.path_settings import path_settings
from tunerd.lab.tables.profile import profile
from tunerd.lab.tables.rows import TableRow

GRID = list(itertools.product((1, 2, 4), (10, 50, 100)))


def speed(a: float, b: float) -> float:
    """A speed that follows two settings, with many digits."""
    return round(1000 * math.pow(a, 0.7) * math.pow(b, 0.2) * (1 + (37 * a + 11 * b) % 7 / 1000), 2)


def _wrk(threads: int, connections: int, shown: float) -> str:
    return f"""Running 30s test @ http://127.0.0.1:8080/
  {threads} threads and {connections} connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   635.91us    0.89ms  12.92ms   93.69%
    Req/Sec    56.20k     8.07k   62.00k    86.54%
  Latency Distribution
     50%  {shown / 7:.2f}us
     99%    5.80ms
  22464657 requests in 30.00s, 17.76GB read
Requests/sec: {shown}
Transfer/sec:    606.33MB
"""


def _hey(shown: float) -> str:
    return f"""
Summary:
  Total:	10.0041 secs
  Slowest:	0.1229 secs
  Fastest:	0.0006 secs
  Average:	{10 / shown:.4f} secs
  Requests/sec:	{shown}

Latency distribution:
  50%% in 0.0121 secs
  99%% in 0.0325 secs

Status code distribution:
  [200]	40532 responses
"""


def _ab(concurrency: int, shown: float) -> str:
    return f"""This is ApacheBench, Version 2.3 <$Revision: 1843412 $>
Server Software:        nginx
Document Path:          /
Document Length:        612 bytes

Concurrency Level:      {concurrency}
Time taken for tests:   2.345 seconds
Complete requests:      10000
Failed requests:        0
Requests per second:    {shown} [#/sec] (mean)
Time per request:       23.450 [ms] (mean)
Time per request:       0.235 [ms] (mean, across all concurrent requests)

Percentage of the requests served within a certain time (ms)
  50%     23
 100%     45 (longest request)
"""


def _k6(users: int, shown: float) -> str:
    return f"""     execution: local
        script: load.js
     http_req_duration..............: avg=146.82ms min=1ms med=99.1ms max=1.2s p(90)=2s p(95)=3s
     http_req_failed................: 0.00%  ✓ 0        ✗ 1500
     http_reqs......................: 1500   {shown}/s
     iterations.....................: 1500   25.0/s
     vus............................: {users}     min={users}      max={users}
     vus_max........................: {users}     min={users}      max={users}
"""


def _iperf3(shown: float) -> str:
    return f"""Connecting to host 10.0.0.1, port 5201
[ ID] Interval           Transfer     Bitrate         Retr  Cwnd
[  5]   0.00-1.00   sec   112 MBytes   941 Mbits/sec    0    365 KBytes
[ ID] Interval           Transfer     Bitrate         Retr
[  5]   0.00-10.00  sec  1.10 GBytes   {shown} Mbits/sec    7             sender
[  5]   0.00-10.04  sec  1.09 GBytes   {shown} Mbits/sec                  receiver
"""


def _ycsb(shown: float) -> str:
    return f"""[OVERALL], RunTime(ms), {9e7 / shown:.0f}
[OVERALL], Throughput(ops/sec), {shown}
[READ], Operations, 500000
[READ], AverageLatency(us), {1e6 / shown:.3f}
[READ], 99thPercentileLatency(us), 900
"""


def _redis(test: str, clients: int, shown: float) -> str:
    return f"""====== {test} ======
  100000 requests completed in 1.23 seconds
  {clients} parallel clients
  3 bytes payload
  throughput summary: {shown} requests per second
  latency summary (msec):
          avg       min       p50       p95       p99       max
        0.300     0.100     0.290     0.500     0.700     2.000
"""


def _dd(shown: float) -> str:
    return f"""1024+0 records in
1024+0 records out
1073741824 bytes (1.1 GB, 1.0 GiB) copied, {1e6 / shown:.4f} s, {shown} MB/s
"""


def _stress(hogs: int, shown: float) -> str:
    return f"""stress-ng: info:  [1] dispatching hogs: {hogs} cpu
stress-ng: metrc: [1] stressor       bogo ops real time  usr time  sys time   bogo ops/s
stress-ng: metrc: [1]                           (secs)    (secs)    (secs)   (real time)
stress-ng: metrc: [1] cpu               12345     60.00    239.90      0.05       {shown}     51.45
stress-ng: info:  [1] passed: {hogs}: cpu ({hogs})
"""


def _osu(shown: float) -> str:
    rows = "".join(f"{size:<10}{shown * size**0.5:>20.2f}\n" for size in (1, 1024, 65536))
    return f"# OSU MPI Bandwidth Test v5.6.2\n# Size      Bandwidth (MB/s)\n{rows}"


LOGS: Mapping[str, tuple[str, str, str, str]] = {
    "wrk": (
        "".join(_wrk(a, b, speed(a, b)) for a, b in GRID),
        "requests_per_s", "threads connections", ""),
    "hey": (
        "".join(f"$ WORKERS={a} hey -z 10s -c {b} http://x/\n{_hey(speed(a, b))}" for a, b in GRID),
        "requests_per_s", "concurrency", ""),
    "ab": ("".join(_ab(b, speed(a, b)) for a, b in GRID), "requests_per_s", "concurrency", ""),
    "k6": ("".join(_k6(b, speed(a, b)) for a, b in GRID), "requests_per_s", "", "vus"),
    "ycsb": (
        "".join(f"./bin/ycsb run redis -s -P workloads/a -threads {a} -target {b}\n"
                f"{_ycsb(speed(a, b))}" for a, b in GRID),
        "operations_per_s", "threads target", ""),
    "redis-benchmark": (
        "".join(f"redis-benchmark -t set,get -c {b} -P {a}\n" + "".join(
            _redis(test, b, speed(a, b) * (2 if test == "GET" else 1)) for test in ("SET", "GET"))
                for a, b in GRID),
        "requests_per_s", "pipeline clients", "test"),
    "iperf3": (
        "".join(f"+ iperf3 -c 10.0.0.1 -P {a} -w {b}K\n{_iperf3(speed(a, b))}" for a, b in GRID),
        "bits_per_s", "parallel window", ""),
    "dd": (
        "".join(f"$ dd if=/dev/zero of=/mnt/t bs={b}k count=1024 oflag={flag}\n{_dd(speed(a, b))}"
                for flag, (a, b) in itertools.product(("direct", "dsync"), GRID[:6])),
        "copied_bytes_per_s", "bs oflag", ""),
    "stress-ng": (
        "".join(_stress(a, speed(a, b)) for a, b in GRID), "cpu_bogo_ops_per_s", "cpu_hogs", ""),
    "osu": (
        "".join(f"$ mpirun -np 2 -x UCX_TLS={tls} --map-by {a} ./osu_bw\n{_osu(speed(k, 9))}"
                for k, (tls, a) in enumerate(
                    itertools.product(("rc", "ud", "dc"), ("node", "core")), 1)),
        "Bandwidth_MB_s", "UCX_TLS map_by", "size"),
}  # fmt: skip


CONSTANT = {"url", "path", "document_length", "script", "P", "tests", "payload_size", "osu_test"}


@pytest.mark.parametrize("tool", LOGS)
def test_what_a_program_prints_of_several_runs_is_a_table(tool: str, tmp_path: Path) -> None:
    text, objective, tuned, context = LOGS[tool]
    log = tmp_path / "runs.txt"
    log.write_text(text)
    _, study, table = drafted(log)
    assert table.export is not None
    assert table.export.key == tool
    assert (study.objective.metric, study.objective.goal) == (objective, "maximize")
    inputs = {one.name for one in study.parameters} | {one.name for one in study.context}
    assert {*tuned.split(), *context.split()} <= inputs
    assert not inputs - {*tuned.split(), *context.split()} - CONSTANT
    assert set(outcomes(study, table)) == {"succeeded"}


def test_answers_that_were_errors_are_no_work_that_was_done(tmp_path: Path) -> None:
    log = tmp_path / "runs.txt"
    runs = [_wrk(a, b, speed(a, b)) for a, b in GRID]
    runs[4] = runs[4].replace("Requests/sec", "  Non-2xx or 3xx responses: 22464657\nRequests/sec")
    log.write_text("".join(runs))
    _, study, table = drafted(log)
    assert outcomes(study, table) == {"succeeded": 8, "failed": 1}


def test_a_file_for_each_run_has_its_settings_in_its_name(tmp_path: Path) -> None:
    for a, b in GRID:
        (tmp_path / f"nginx_w{a}_c{b}.txt").write_text(_hey(speed(a, b)))
    (tmp_path / "notes.txt").write_text("by me\n")
    _, study, table = drafted(tmp_path)
    assert {one.name for one in study.parameters} == {"w", "c"}
    assert (study.objective.metric, study.objective.goal) == ("requests_per_s", "maximize")
    assert outcomes(study, table) == {"succeeded": 9}


def test_iperf3_in_json_is_one_run_a_file(tmp_path: Path) -> None:
    for (a, b), control in itertools.product(GRID, ("cubic", "bbr")):
        run = {
            "start": {"version": "iperf 3.9", "timestamp": {"timesecs": 1740830000 + a},
                      "test_start": {"protocol": "TCP", "num_streams": a, "blksize": 1024 * b}},
            "intervals": [{"sum": {"bits_per_second": 1}}, {"sum": {"bits_per_second": 2}}],
            "end": {"sum_sent": {"retransmits": 7},
                    "sum_received": {"bits_per_second": speed(a, b)},
                    "sender_tcp_congestion": control},
        }  # fmt: skip
        (tmp_path / f"{control}_P{a}_{b}.json").write_text(json.dumps(run, indent=1))
    _, study, table = drafted(tmp_path)
    assert (study.objective.metric, study.objective.goal) == ("bits_per_second", "maximize")
    assert {one.name for one in study.parameters} >= {"num_streams", "congestion", "blksize"}
    assert outcomes(study, table) == {"succeeded": 18}


def test_what_genai_perf_measured_is_a_sweep_of_a_server(tmp_path: Path) -> None:
    for a, b in GRID:
        folder = tmp_path / f"llama-tp{a}-concurrency{b}"
        folder.mkdir()
        run = {
            "output_token_throughput": {"unit": "tokens/sec", "avg": speed(a, b)},
            "time_to_first_token": {"unit": "ms", "avg": 2e4 / speed(a, b), "p99": 50.5, "std": 1},
            "inter_token_latency": {"unit": "ms", "avg": 1e4 / speed(a, b)},
            "request_latency": {"unit": "ms", "avg": 9e4 / speed(a, b)},
            "input_config": {"model": ["llama"], "perf_analyzer": {"stimulus": {"concurrency": b}}},
        }
        (folder / "profile_export_genai_perf.json").write_text(json.dumps(run))
        (folder / "inputs.json").write_text(json.dumps({"data": [{"payload": [{"a": 1}]}] * 3}))
    _, study, table = drafted(tmp_path)
    assert table.export is not None
    assert table.export.key == "serving"
    assert (study.objective.metric, study.objective.goal) == ("output_throughput", "maximize")
    assert {one.name for one in study.parameters} == {"tp", "max_concurrency"}
    assert outcomes(study, table) == {"succeeded": 9}


def test_what_went_into_a_run_may_stand_in_another_file_than_what_came_out(tmp_path: Path) -> None:
    for number, (a, b) in enumerate(GRID):
        folder = tmp_path / str(number)
        (folder / ".hydra").mkdir(parents=True)
        (folder / ".hydra" / "overrides.yaml").write_text(f"- optim.width={a}\n")
        (folder / "config.json").write_text(json.dumps({"batch": b}))
        (folder / "run.json").write_text(json.dumps({"speed": speed(a, b), "status": "COMPLETED"}))
    _, study, table = drafted(tmp_path)
    assert len(table.columns) == 5
    assert {one.name for one in study.parameters} == {"batch", "optim_width"}
    assert study.objective.goal == "maximize"
    assert outcomes(study, table) == {"succeeded": 9}


def test_files_of_the_same_kind_in_several_folders_are_a_run_each(tmp_path: Path) -> None:
    for model, (a, b) in itertools.product(("small", "large"), GRID):
        (tmp_path / model).mkdir(exist_ok=True)
        record = {"tp": a, "mb": b, "tokens_per_s": speed(a, b) * len(model)}
        (tmp_path / model / f"run{a}{b}.json").write_text(json.dumps(record))
    table = open_table(tmp_path)
    assert sum(1 for _ in table.rows()) == 18


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (["wrk_t4_c100.txt", "wrk_t8_c50.txt"], [{"t": "4", "c": "100"}, {"t": "8", "c": "50"}]),
        (["lr=0.1,d=2/m.json", "lr=1e-3,d=4/m.json"],
         [{"lr": "0.1", "d": "2"}, {"lr": "1e-3", "d": "4"}]),
        (["size-64/run1.json", "size-128/run2.json"], [{"size": "64"}, {"size": "128"}]),
        (["a_4.log", "b_4.log", "a_8.log", "b_8.log"],
         [{"name_1": "a"}, {"name_1": "b"}, {"name_1": "a"}, {"name_1": "b"}]),
        (["run01.json", "run02.json"], [{}, {}]),
        (["h100/fp16_tp4.json", "h100/fp16_tp8.json", "a100/bf16_tp4.json", "a100/bf16_tp8.json"],
         [{"name_1": gpu, "name_2": kind, "tp": tp} for gpu, kind in
          (("h100", "fp16"), ("a100", "bf16")) for tp in ("4", "8")]),
        (["t4_c10.json", "c20_t8.json"], [{"t": "4", "c": "10"}, {"t": "8", "c": "20"}]),
        (["baseline.json", "wrk_t4.json", "wrk_t8.json", "wrk_t2.json"],
         [None, {"t": "4"}, {"t": "8"}, {"t": "2"}]),
        (["2025-03-01/12-00-00/x.json", "2025-03-02/12-00-00/x.json"], [{}, {}]),
        (["a.json", "b_4.json"], [{}, {}]),
        ([], []),
    ],
)  # fmt: skip
def test_what_names_of_files_say(paths: list[str], expected: list[dict[str, str] | None]) -> None:
    assert path_settings([Path(path) for path in paths]) == expected


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("name        old time/op    new time/op    delta\nGob   13.6ms ± 1%  11.8ms ± 1%  -13%\n",
         "go test -bench"),
        ("goos: linux\npkg: x\n          │   old.txt   │   new.txt   │\n          │ sec/op │\n",
         "go test -bench"),
        ("9823,,cycles,100,100.00,,\n2823,,instructions,100,100.00,2.0,insn per cycle\n", "perf"),
        ('"Time","rate{job=""a""}","rate{job=""b""}"\n"2025-03-01 12:00:00","1","2"\n', "moment"),
    ],
)  # fmt: skip
def test_what_compares_or_follows_runs_is_refused_with_what_to_do(
    text: str, advice: str, tmp_path: Path
) -> None:
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(MisconfiguredError, match=advice):
        open_table(tmp_path / "x.csv")


@pytest.mark.parametrize(
    "text",
    [
        "name\tns/op\tthreads\nb\t70.87\t1\nb\t62.09\t2\n",
        "name  time/op  threads\nb  70.87  1\nb  62.09  2\n",
        "timestamp,flags {a=b},threads,time_s\n2026-01-01,x,1,7.4\n",
        "1.98,adam,resnet,1,85.41,x\n1.98,adam,resnet,2,45.41,y\n",
    ],
)
def test_tables_with_a_mark_of_something_else_are_tables(text: str) -> None:
    assert not advice_for(text)


@pytest.mark.parametrize(
    ("names", "setting"),
    [
        (["1 threads", "8 threads", "64 threads"], "threads"),
        (["np=1", "np=2", "np=3"], ""),
        (["bs16", "bs32", "bs64"], "bs"),
        (["1", "2", "4"], "across"),
        (["2019", "2020", "2021"], ""),
        (["p50", "p90", "p99"], ""),
        (["epoch_1", "epoch_2", "epoch_3"], ""),
        (["run 1", "run 2", "run 3"], ""),
        (["split0_score", "split1_score", "split2_score"], ""),
        (["batch_size_1", "batch_size_2", "batch_size_3"], ""),
        (["gpu0", "gpu1", "gpu2"], ""),
    ],
)
def test_a_setting_may_run_along_the_columns(
    names: list[str], setting: str, tmp_path: Path
) -> None:
    """Each cell is a run then, and which way is better is asked."""
    path = tmp_path / "wide.csv"
    rows = [(pool, [speed(pool, k) for k in (1, 8, 64)]) for pool in (1, 4, 16, 64)]
    lines = [",".join(["pool_size", *names]), *(f"{p},{','.join(map(str, s))}" for p, s in rows)]
    path.write_text("\n".join(lines) + "\n")
    export = open_table(path).export
    assert (export.columns[1] if export is not None else "") == setting
    if setting:
        assert export is not None
        assert export.key == "pivoted"
        assert sum(1 for _ in open_table(path).rows()) == 12
        guesses = guess(profile(open_table(path)))
        assert (guesses.objective.column.name, guesses.goal_sure < 0.5) == ("value", True)


@pytest.mark.parametrize(
    "line",
    [
        "lr,hidden_size_16,hidden_size_32,hidden_size_64,out|0.1,{a},{b},{a},{speed}",
        "lr,hidden_size_16,hidden_size_32,hidden_size_64|0.1,{a},{b},{a}",
        "threads,0,1,2|{a},{speed},{speed}1,{speed}2",
    ],
)
def test_numbered_settings_and_repeats_are_not_pivoted(line: str, tmp_path: Path) -> None:
    path = tmp_path / "wide.csv"
    names, row = line.split("|")
    path.write_text("\n".join([names, *(row.format(a=a, b=b, speed=speed(a, b)) for a, b in GRID)]))
    assert open_table(path).export is None


def test_records_within_records_are_runs(tmp_path: Path) -> None:
    runs = [{"config": {"threads": a, "tile": b}, "time_s": 1e5 / speed(a, b)} for a, b in GRID]
    grouped = {"by": "me", "experiments": [{"model": m, "runs": runs} for m in ("a", "b")]}
    keyed = {"version": 3, "jobs": {f"{k}.srv": {"model": "a", **r} for k, r in enumerate(runs)}}
    wrapped = {"by": "me", "results": {"runs": [{"model": "a", **run} for run in runs]}}
    for name, document, jobs in (("grouped", grouped, 18), ("keyed", keyed, 9), ("in", wrapped, 9)):
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(document, indent=1))
        _, study, table = drafted(path)
        assert {one.name for one in study.parameters} == {"threads", "tile"}
        assert {one.name for one in study.context} == {"model"}
        assert outcomes(study, table) == {"succeeded": jobs}


@pytest.mark.parametrize(
    "document",
    [
        {"lr": 0.1, "history": [{"epoch": 1, "loss": 2.0}, {"epoch": 2, "loss": 1.0}]},
        {"optimizer": {"encoder": {"lr": 0.1}, "decoder": {"lr": 0.2}}, "loss": 3.0},
    ],
)
def test_parts_of_a_run_are_no_runs(document: Any, tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / f"{number}.json").write_text(json.dumps([document]))
    assert sum(1 for _ in open_table(tmp_path).rows()) == 4


@pytest.mark.parametrize(
    "document",
    [
        {"threads": 8, "result": {"time_s": 5.1, "devices": [{"util": 3}, {"util": 9}]}},
        {"by": "me", "result": {"time_s": 5.1, "devices": [{"util": 3}, {"util": 9}]}},
        {"threads": 2, "layers": {f"l{k}": {"time_ms": k, "gb": 1} for k in range(6)}},
        {"by": "me", "layers": {f"l{k}": {"time_ms": k} for k in range(6)}},
    ],
)
def test_records_beside_a_setting_or_measurement_are_parts_of_one_run(document: Any) -> None:
    assert taken_apart(document) == [document]


@pytest.mark.parametrize(
    "line", ["{{'tp': {0}, 'flash': True, 'gpu': None, 'ms': {1}}}", '{{"tp": {0}, "ms": {1},}}']
)
def test_records_as_people_and_python_write_them(line: str, tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text("\n".join(line.format(a, speed(a, b)) for a, b in GRID) + "\n")
    if "'" not in line:
        path.write_text("[" + ",\n".join(path.read_text().splitlines()) + ",\n]\n")
    _, study, table = drafted(path, UserAnswers("ms"))
    assert [one.name for one in study.parameters if len(one.choices) > 1] == ["tp"]
    assert outcomes(study, table) == {"succeeded": 9}


def test_days_and_months_that_may_be_either_are_asked_about(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    for last, sure in ((12, False), (28, True)):
        rows = [
            f"{k % 12 + 1:02}/{(last if k == 7 else k % 9 + 1):02}/2025 10:00" for k in range(18)
        ]
        lines = [f"{day},{a},{speed(a, b)}" for day, (a, b) in zip(rows, GRID * 2, strict=True)]
        path.write_text("\n".join(["date,threads,ops_per_s", *lines]) + "\n")
        (end,) = guess(profile(open_table(path))).having("finished_at")
        assert (end.sure >= 0.5) == sure


def records(text: str, folder: Path) -> list[dict[str, Any]]:
    (folder / "log.txt").write_text(text)
    return [
        dict(row.values) for row in log_records(folder / "log.txt") if isinstance(row, TableRow)
    ]


@pytest.mark.parametrize(
    "command",
    [
        "bin/ycsb run redis -p redis.password=hunter2 -threads {0}\n[OVERALL], RunTime(ms), 9\n",
        "bin/ycsb run mongodb -p mongodb.url=mongodb://u:hunter2@h/ -p n={0}\n[OVERALL], X, 1\n"
        "[OVERALL], RunTime(ms), 9\n",
        "k6 run -e PASSWORD=hunter2 --env DB_PW=hunter2 -u {0} load.js\n" + _k6(1, 7.5),
        "redis-benchmark -a hunter2x -c {0}\n" + _redis("GET", 1, 7.5),
        "redis-benchmark --pass hunter2x -c {0}\n" + _redis("GET", 1, 7.5),
        "hey -A hunter2x -c {0} http://h/\n" + _hey(7.5),
        "k6 run --header 'Authorization: hunter2' -u {0} load.js\n" + _k6(1, 7.5),
        _wrk(1, 2, 7.5).replace("http://", "http://admin:hunter2@"),
        _wrk(1, 2, 7.5).replace(":8080/", ":8080/?a=1&api_key=hunter2&b=2"),
        _ab(1, 7.5).replace("Document Path:", "Document Path:   /x?token=hunter2"),
        "export PROXY=http://me:hunter2@h/\n$ mpirun -n {0} osu_bw\n" + _osu(7.5),
        "export HF_TOKEN=hunter2\n$ mpirun -x MY_PW=hunter2 -n {0} osu_bw\n" + _osu(7.5),
    ],
)
def test_secrets_of_a_command_are_in_no_record(command: str, tmp_path: Path) -> None:
    rows = records(command.replace("{0}", "4"), tmp_path)
    assert rows
    assert "hunter2" not in str(rows)


def test_logs_of_blank_or_endless_lines_take_no_time() -> None:
    """A pattern that went back for each character would take minutes here."""
    assert not is_log("\n" * 60_000)
    assert not is_log("\n " * 30_000)


@pytest.mark.slow
@pytest.mark.parametrize("line", ["1" * 4_090, "[1]" * 400 + " 1 bits/sec" * 250])
def test_endless_lines_are_passed_over(line: str, tmp_path: Path) -> None:
    for tool, (text, *_) in LOGS.items():
        assert len(records(text + f"{line}\n" * 50, tmp_path)) == len(records(text, tmp_path)), tool


def test_runs_that_were_cut_short_or_refused_did_not_succeed(tmp_path: Path) -> None:
    start = _iperf3(3.0).partition("[ ID] Interval           Transfer     Bitrate         Retr\n")[
        0
    ]
    (cut,) = records(f"{start}iperf3: error - unable to receive control message\n", tmp_path)
    assert cut["status"] == "failed"
    ends = "\nStatus code distribution:\n  [200] 20 responses\n"
    refused = '\nError distribution:\n  [180] Get "http://h": dial tcp: connection refused\n'
    bare = _hey(3.0).partition("\nStatus code")[0]
    (run,) = records(bare + ends + refused, tmp_path)
    assert (run["status"], run["errors"], run["requests"]) == ("failed", 180, 200)
    (run,) = records(bare + ends + "  [404] 150 responses\n  [503] 1 responses\n", tmp_path)
    assert (run["status"], run["errors"]) == ("failed", 151)


def test_the_options_of_a_command_hold_for_all_its_tests(tmp_path: Path) -> None:
    saved = '  host configuration "save": 3600 1 300 100 60 10000\n'
    tests = "".join(_redis(test, 9, 7.5) for test in ("SET", "GET"))
    rows = records(f"redis-benchmark -P 16 -c 9\n{tests}{saved}", tmp_path)
    assert [(row["option.pipeline"], row["latency_mean_ms"]) for row in rows] == [(16, 0.3)] * 2


def test_numbers_are_read_to_their_end(tmp_path: Path) -> None:
    (run,) = records("[OVERALL], RunTime(ms), 9\n[OVERALL], Throughput(ops/sec), 4.0E7\n", tmp_path)
    assert run["operations_per_s"] == 4e7
    (run,) = records(_hey(3.0).replace("3.0", "7,793.21", 1), tmp_path)
    assert run["requests_per_s"] == 7793.21
    (run,) = records("1+0 records in\n1048576 bytes (1.0 MB) copied, 0.0125 s, 84 MB/s\n", tmp_path)
    assert run["copied_bytes_per_s"] == 1048576 / 0.0125


def test_logs_of_runs_count_beside_a_document_about_them(tmp_path: Path) -> None:
    for a, b in GRID:
        (tmp_path / f"wrk_t{a}_c{b}.txt").write_text(_wrk(a, b, speed(a, b)))
    (tmp_path / "meta.json").write_text(json.dumps({"by": "me"}))
    table = open_table(tmp_path)
    rows = [row for row in table.rows() if isinstance(row, TableRow)]
    assert sum("requests_per_s" in row.values for row in rows) == 9
    (tmp_path / "dd_t1_c1.txt").write_text(_dd(80.0))
    with pytest.raises(MisconfiguredError, match="dd and wrk"):
        list(open_table(tmp_path).rows())


def test_the_only_file_without_settings_in_its_name_is_left_out(tmp_path: Path) -> None:
    for a, b in GRID:
        record = {"latency_ms": 1e5 / speed(a, b)}
        (tmp_path / f"wrk_t{a}_c{b}.json").write_text(json.dumps(record))
    (tmp_path / "baseline.json").write_text(json.dumps({"latency_ms": 7.25}))
    rows = list(open_table(tmp_path).rows())
    (odd,) = [row for row in rows if not isinstance(row, TableRow)]
    assert "no settings" in odd.reason
    assert {("t" in row.values) for row in rows if isinstance(row, TableRow)} == {True}


def test_overrides_of_hydra_are_of_the_run_itself(tmp_path: Path) -> None:
    runs, elsewhere = tmp_path / "runs", tmp_path / "elsewhere"
    elsewhere.mkdir()
    lines = ["lr=0.1", "~gone=1", "'x=[1,2]'", "+new=3", "db.password=hunter2"]
    (elsewhere / "overrides.yaml").write_text("".join(f"- {line}\n" for line in lines))
    for number in range(2):
        (runs / str(number)).mkdir(parents=True)
        (runs / str(number) / "m.json").write_text(json.dumps({"speed": number}))
    (runs / "0" / ".hydra").symlink_to(elsewhere)
    (runs / "1" / ".hydra").mkdir()
    (runs / "1" / ".hydra" / "overrides.yaml").write_text(
        (elsewhere / "overrides.yaml").read_text()
    )
    first, second = [
        {name: value for name, value in row.values.items() if name.startswith("config") and value}
        for row in open_table(runs).rows()
        if isinstance(row, TableRow)
    ]
    assert not first
    assert second == {
        "config.lr": "0.1", "config.x": "[1,2]", "config.new": "3"
    }  # fmt: skip


def test_settings_of_genai_perf_with_one_last_name_are_several() -> None:
    config = {"input_tokens": {"mean": 100}, "output_tokens": {"mean": 200, "stddev": 3}}
    measured = {"time_to_first_token": {"unit": "ms", "avg": 1.5}}
    run = run_of({**measured, "input_config": config})
    assert run is not None
    assert {name: value for name, value in run.items() if name.startswith("option")} == {
        "option.input_tokens.mean": 100, "option.output_tokens.mean": 200, "option.stddev": 3
    }  # fmt: skip


def test_validated_and_empty_messages_of_osu_are_records(tmp_path: Path) -> None:
    text = "# OSU MPI Latency Test v7.2\n# Size    Avg Latency(us)    Validation\n4  1.20  Pass\n"
    rows = records(f"{text}8  1.50  Fail\n", tmp_path)
    assert [row["status"] for row in rows] == ["succeeded", "failed"]
    (row,) = records("# OSU MPI Barrier Latency Test v7.2\n# Avg Latency(us)\n  12.34\n", tmp_path)
    assert row["Avg Latency(us)"] == 12.34
