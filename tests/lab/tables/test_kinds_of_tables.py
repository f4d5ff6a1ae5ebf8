"""Kinds of tables that people really have: load tests, full grids, searches, rounded products."""

import itertools
import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.lab.tables.test_guess import guessed, roles
from tunerd.errors import MisconfiguredError
from tunerd.lab.tables import derived_columns, relations
from tunerd.lab.tables.column_names import read_name
from tunerd.lab.tables.files import TableRow, open_table
from tunerd.lab.tables.guess import TableGuess
from tunerd.lab.tables.metadata_columns import meaning
from tunerd.lab.tables.profile import ColumnProfile

RNG = random.Random(11)


def grid(**columns: Any) -> Iterator[dict[str, Any]]:
    """All combinations of some settings."""
    for values in itertools.product(*columns.values()):
        yield dict(zip(columns, values, strict=True))


def near(value: float, digits: int = 3) -> float:
    return round(value * RNG.lognormvariate(0, 0.05), digits)


@pytest.mark.parametrize(
    "name",
    [
        *("95%", "90% Line", "99.900%", "99th", "5th", "p(95)", "http_req_duration_p(95)"),
        *("Latency 99%", "99%ile", "50% in secs", "99th percentile latency (us)"),
        *("Failed requests", "Failure Count", "skipped iterations"),
    ],
)
def test_percentiles_and_mishaps_are_measured_however_they_are_written(name: str) -> None:
    assert read_name(name).certainly_measured


@pytest.mark.parametrize("name", ["4th layer", "max_failures", "MFU %", "P100", "n_95"])
def test_what_only_looks_like_a_percentile_is_none(name: str) -> None:
    assert not read_name(name).certainly_measured


def _load_test(settings: Any, reported: Mapping[str, float]) -> list[dict[str, Any]]:
    """Runs of all settings, with what a program reports of each: whole numbers where given so."""
    return [
        {"Name": "all", **g}
        | {n: near(v) if isinstance(v, float) else round(near(v)) for n, v in reported.items()}
        for g in grid(**settings)
    ]


LOAD_TESTS: Mapping[str, list[dict[str, Any]]] = {
    "jmeter": _load_test(
        {"Threads": [50, 100, 200], "Heap": ["2g", "4g"], "GC": ["G1", "ZGC"]},
        {"# Samples": 9_500, "Average": 95, "Median": 84, "90% Line": 210, "95% Line": 310,
         "99% Line": 420, "Max": 950, "Error %": 0.1, "Throughput": 280.0},
    ),
    "locust": _load_test(
        {"users": [50, 100], "gunicorn_workers": [1, 2, 4], "db_pool": [5, 10]},
        {"Request Count": 4_500, "Failure Count": 7, "Median Response Time": 95,
         "Requests/s": 43.0, "50%": 95, "95%": 295, "100%": 900},
    ),
    "mutilate": _load_test(
        {"memcached_threads": [1, 2, 4], "conn": [4, 16], "depth": [1, 4]},
        {"QPS": 29_000.0, "avg": 90.0, "5th": 60.0, "90th": 150.0, "95th": 197.0, "99th": 407.0,
         "rx": 10**9},
    ),
    "hey": _load_test(
        {"workers": [1, 2, 4], "connections": [10, 50, 100]},
        {"Requests/sec": 900.0, "Average": 50.0, "Fastest": 10.0, "Slowest": 300.0,
         "50% in ms": 50.0, "99% in ms": 200.0},
    ),
    "perf_analyzer": _load_test(
        {"instance_count": [1, 2, 4], "Concurrency": [1, 2, 4, 8]},
        {"Inferences/Second": 100.0, "Client Send": 30, "Server Queue": 70, "Client Recv": 60,
         "p50 latency": 950, "p99 latency": 2_100},
    ),
}  # fmt: skip
SET_IN_LOAD_TESTS = {
    *("Threads", "Heap", "GC", "users", "gunicorn_workers", "db_pool", "memcached_threads"),
    *("conn", "depth", "workers", "connections"),
    *("instance_count", "Concurrency"),
}


@pytest.mark.parametrize("name", LOAD_TESTS)
def test_what_a_load_test_reports_is_measured(name: str, tmp_path: Path) -> None:
    found = roles(guessed(LOAD_TESTS[name], tmp_path / "jobs.csv"))
    chosen = {column for column, role in found.items() if role in ("context", "parameter")}
    assert chosen <= SET_IN_LOAD_TESTS | {"Name"}, found
    assert chosen >= SET_IN_LOAD_TESTS & found.keys()


def test_in_a_full_grid_what_follows_nothing_was_measured(tmp_path: Path) -> None:
    """Its name says nothing, and no single setting explains it."""
    rows = [
        {**g, "Pair %": near(70.0), "zork": near(9.0), "time_s": near(9.0 / g["MPI"])}
        for g in grid(MPI=[1, 2, 4, 8], package=["opt", "omp"], skin=[0.3, 1.0, 2.0])
    ]
    found = roles(guessed(rows, tmp_path / "jobs.csv"))
    assert (found["Pair %"], found["zork"]) == ("metric", "metric")
    assert {found[name] for name in ("MPI", "package", "skin")} == {"parameter"}


def test_settings_of_a_planned_design_are_no_measurements(tmp_path: Path) -> None:
    """Nine runs of four settings with three values each, each pair of values once."""
    rows = [
        {"alpha_a": a, "beta_b": b, "gamma_c": (a + b) % 3, "delta_d": (a + 2 * b) % 3,
         "time_s": near(9.0 + a)}
        for a in range(3) for b in range(3)
    ]  # fmt: skip
    found = roles(guessed(rows, tmp_path / "jobs.csv"))
    assert "metric" not in found.values(), found


@pytest.mark.parametrize("name", ["learning_rate", "dropout", "weight_decay"])
def test_what_a_search_drew_at_random_was_not_measured(name: str, tmp_path: Path) -> None:
    """Few trials: by chance a loss follows nearly anything."""
    for seed in range(5):
        rng = random.Random(seed)
        rows = [
            {"val_loss": rng.uniform(0.3, 0.5), name: 10 ** rng.uniform(-4, -1),
             "num_layers": rng.choice([2, 3, 4])}
            for _ in range(20)
        ]  # fmt: skip
        found = roles(guessed(rows, tmp_path / "jobs.csv"))
        assert (found[name], found["num_layers"]) == ("parameter", "parameter"), found


@pytest.mark.parametrize("name", ["budget", "fidelity", "rung"])
def test_what_a_trial_was_given_is_not_tuned(name: str, tmp_path: Path) -> None:
    """A loss after one epoch is no worse than one after nine: it is of another job."""
    rows = [
        {name: given, "lr": 10 ** RNG.uniform(-4, -1), "loss": near(0.5 / given)}
        for _ in range(15)
        for given in (1, 3, 9)
    ]
    assert roles(guessed(rows, tmp_path / "jobs.csv"))[name] == "context"


@pytest.mark.parametrize(
    ("name", "digits", "role"), [("Cells/rank", 0, "derived"), ("load_each", 1, "metric")]
)
def test_a_rounded_quotient_is_neither_context_nor_tuned(
    name: str, digits: int, role: str, tmp_path: Path
) -> None:
    rows = [
        {**g, name: round(g["cells"] / g["ranks"], digits), "time_s": near(g["cells"] / g["ranks"])}
        for g in grid(cells=[10_000, 25_000, 70_001], ranks=[3, 7, 12, 31], solver=["cg", "mg"])
    ]
    found = roles(guessed(rows, tmp_path / "jobs.csv"))
    assert found[name] == role, found
    assert found["ranks"] != "derived"


def test_the_price_of_a_machine_is_not_what_its_jobs_measured(tmp_path: Path) -> None:
    price = {"c6i": 1.36, "m6i": 1.54, "r6i": 2.02}
    rows = [
        {**g, "Price/hr": price[g["Instance"]], "Runtime (h)": near(9.0 / g["nodes"])}
        for g in grid(Instance=list(price), nodes=[1, 2, 4, 8], rep=[1, 2])
    ]
    assert guessed(rows, tmp_path / "jobs.csv").objective.column.name == "Runtime (h)"


def test_a_number_beside_its_spread_is_read(tmp_path: Path) -> None:
    rows = [
        {**g, "t/s": f"{near(90.0 * g['threads'], 2)} ± {near(0.5, 2)}"}
        for g in grid(model=["7B", "13B"], threads=[4, 8, 16], n_batch=[256, 512])
    ]
    guesses = guessed(rows, tmp_path / "jobs.csv")
    assert guesses.objective.column.name == "t/s"
    assert guesses.objective.column.numbers.min() > 200


# -- spoilt cells ------------------------------------------------------------------------------


def _damaged(column: str, word: str) -> list[dict[str, Any]]:
    rows = [
        {"walltime": f"0{n % 3 + 1}:{n + 20}:{(7 * n) % 40 + 10}", "threads": 1 << n % 4,
         "end": f"2026-03-{n + 1:02} 10:00:00"}
        for n in range(16)
    ]  # fmt: skip
    rows[5][column] = word
    return rows


@pytest.mark.parametrize("word", ["-1:-1:-1", "0?:12:3x", "#####", "#VALUE!"])
def test_a_spoilt_cell_changes_no_objective(word: str, tmp_path: Path) -> None:
    guesses = guessed(_damaged("walltime", word), tmp_path / "jobs.csv")
    objective = guesses.objective.column
    assert (objective.name, guesses.goal, objective.present) == ("walltime", "minimize", 15)


def test_spoilt_cells_change_no_parameter_and_no_time(tmp_path: Path) -> None:
    rows = _damaged("threads", "8a")
    rows[7]["end"] = "2026-13-45 99:00:00"
    guesses = guessed(rows, tmp_path / "jobs.csv")
    kinds = {guess.column.name: (guess.role, guess.column.kind) for guess in guesses.columns}
    assert kinds["threads"] == ("parameter", "int")
    assert kinds["end"] == ("finished_at", "datetime")


def test_a_word_that_may_be_set_is_a_value_and_not_spoilt(tmp_path: Path) -> None:
    guesses = guessed(_damaged("threads", "auto"), tmp_path / "jobs.csv")
    kinds = {guess.column.name: guess.column.kind for guess in guesses.columns}
    assert kinds["threads"] == "category"


# -- headers of several lines ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "columns"),
    [
        (",,time,time,mem\n,,mean,std,max\nn,block,,,", "n block time_mean time_std mem_max"),
        ("kind,,time,time,mem\nstat,,mean,std,max\nunit,,s,s,MB\nn,block,,,",
         "n block time_mean_s time_std_s mem_max_MB"),
        (",Config,,Results,\nn,block,tile,time,power\n,,,s,W", "n block tile time power"),
        ("Setup,,,Measured,\nn,block,tile,time,power", "n block tile time power"),
        ("n,block,time,,mem\n,,mean,std,", "n block time_mean time_std mem"),
    ],
)  # fmt: skip
def test_a_header_of_several_lines(header: str, columns: str, tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    body = "".join(f"{n},{1 << n % 3},{n}.5,{n}.25,{n + 90}\n" for n in range(1, 13))
    path.write_text(f"{header}\n{body}")
    table = open_table(path)
    assert table.columns == tuple(columns.split())
    assert len(list(table.rows())) == 12


@pytest.mark.parametrize(
    "text",
    [
        ",tp,state\nr1,OOM,bad\nr2,1,good\nr3,2,good\nr4,4,good\n",  # an index without a name
        "tp,state,\na,OOM,\nb,1,\nc,2,\nd,4,\n",
    ],
)
def test_a_row_of_words_is_no_header(text: str, tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(text)
    assert len(list(open_table(path).rows())) == 4


def test_units_below_the_header_are_told_by_where_they_stand(tmp_path: Path) -> None:
    path = tmp_path / "ncu.csv"
    path.write_text(
        '==PROF== Connected to process 7 (./app)\n==PROF== Profiling "gemm" - 0: 100%\n'
        "ID,Kernel Name,Block Size,gpu__time_duration.sum,registers\n,,,usecond,register/x\n"
        + "".join(f"{n},gemm,{64 << n % 3},{n}.5,32\n" for n in range(12))
    )
    table = open_table(path)
    assert table.units["gpu__time_duration.sum"] == "usecond"
    assert len(list(table.rows())) == 12


@pytest.mark.parametrize(
    "text",
    [
        "- tp: 1\n  tps: 3\n- tp: 2\n  tps: 4\n",
        "runs:\n  - tp: 1\n    tps: 3\n  - tp: 2\n    tps: 4\n",
    ],
)
def test_yaml_is_refused_with_what_makes_json_of_it(text: str, tmp_path: Path) -> None:
    path = tmp_path / "runs.yaml"
    path.write_text(text)
    with pytest.raises(MisconfiguredError, match="yq -o json"):
        open_table(path)


JTL = (
    "timeStamp,elapsed,label,responseCode,responseMessage,threadName,dataType,success,failureMessage,"
    "bytes,sentBytes,grpThreads,allThreads,URL,Latency,IdleTime,Connect\n"
)


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        (JTL + "17,120,Home,200,OK,T 1,text,true,,900,100,1,1,u,9,0,3\n" * 3, "log of JMeter"),
        ('{"type":"Metric","data":{"name":"http_reqs"},"metric":"http_reqs"}\n' * 2, "log of k6"),
        ('{"metric":"vus","type":"Point","data":{"value":1}}\n' * 2, "log of k6"),
        ('{"Event":"SparkListenerLogStart","Spark Version":"3.5.0"}\n' * 2, "event log of Spark"),
        ("3;fio-3.28;a;0;0;12;4\n" * 3, "--output-format=json"),
        ('{"Action":"output","Package":"x","Output":"BenchmarkX-8 1 2 ns/op"}\n', "go test -bench"),
        ('{"i": [["[\\"a\\", 8]", "llvm"], [[], []]], "r": [[0.1], 0, 1, 2]}\n' * 3,
         "auto-scheduler"),
    ],
)  # fmt: skip
def test_what_is_known_to_be_no_table_of_runs_is_refused_with_what_to_do(
    text: str, advice: str, tmp_path: Path
) -> None:
    path = tmp_path / "log"
    path.write_text(text)
    with pytest.raises(MisconfiguredError, match=advice):
        open_table(path)


def test_requests_with_what_was_set_beside_them_are_a_table(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(
        f"{JTL.strip()},heap\n" + "17,120,H,200,OK,T 1,text,true,,9,1,1,1,u,9,0,3,2g\n" * 3
    )
    assert open_table(path).columns[-1] == "heap"


def test_measurements_in_rows_of_their_own_make_one_job_of_a_run(tmp_path: Path) -> None:
    """Also where a run was repeated, and where each value has the unit that suits it."""
    path = tmp_path / "jobs.csv"
    lines = [
        f"{threads},{metric},{unit},{value}\n"
        for _ in range(2)
        for threads in (1, 2, 4)
        for metric, unit, value in (
            ("runtime", *(("ms", 9_000 / threads) if threads > 2 else ("s", 9 / threads))),
            ("power", "W", 90 + threads),
        )
    ]  # fmt: skip
    path.write_text("threads,Metric Name,Metric Unit,Metric Value\n" + "".join(lines))
    table = open_table(path)
    rows = [row.values for row in table.rows() if isinstance(row, TableRow)]
    assert [(row["threads"], row["power"]) for row in rows] == [
        (str(n), str(90 + n)) for n in (1, 2, 4, 1, 2, 4)
    ]
    assert [float(str(row["runtime"])) for row in rows] == [9, 4.5, 2.25] * 2
    assert table.units == {"runtime": "s", "power": "W"}


# -- commands, merged cells, accounts -----------------------------------------------------------


def test_what_the_commands_of_a_table_set_are_columns(tmp_path: Path) -> None:
    """Without those that are there already; and no password comes along."""
    rows = [
        {"Command": f"./s --threads {g['threads']} --mode {g['mode']} --password x{n}"
         + (" --fast" if n % 5 else ""), "threads": g["threads"], "Elapsed (s)": near(9.0)}
        for n, g in enumerate(grid(threads=[1, 2, 4], mode=["a", "b"], rep=[1, 2]))
    ]  # fmt: skip
    guesses = guessed(rows, tmp_path / "jobs.csv")
    found = roles(guesses)
    assert found == {
        "threads": "parameter",
        "option.mode": "parameter",
        "option.fast": "parameter",
        "Elapsed (s)": "objective",
    }


def test_hyperfine_without_parameters_is_read_by_its_commands(tmp_path: Path) -> None:
    rows = [
        {"command": f"./s --threads {g['threads']} --mode {g['mode']}",
         **dict.fromkeys(("mean", "stddev", "median", "user", "system", "min", "max"), near(0.3))}
        for g in grid(threads=[1, 2, 4], mode=["a", "b"])
    ]  # fmt: skip
    guesses = guessed(rows, tmp_path / "jobs.csv")
    assert [guess.name.leaf for guess in guesses.having("parameter")] == ["threads", "mode"]


def test_cells_that_were_merged_are_filled(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    lines = [
        f"{model * (threads * batch == 16)},{threads * (batch == 16) or ''},{batch},9\n"
        for model in ("a", "b")
        for threads in (1, 2, 4)
        for batch in (16, 32)
    ]  # fmt: skip
    path.write_text("model,threads,batch,time_s\n" + "".join(lines))
    table = open_table(path)
    for _ in range(2):
        rows = [row.values for row in table.rows() if isinstance(row, TableRow)]
        assert [(row["model"], row["threads"]) for row in rows] == [
            (model, threads) for model in "ab" for threads in "124" for _ in (16, 32)
        ]
    assert "empty cells of model, threads" in table.told()[0]


@pytest.mark.parametrize(
    "firsts",
    ["a,,,b,c,,", "a,b,,,,,c", "a,,a,,a,", ",a,,b,,c", "a,b,c,d,,,"],
)
def test_values_that_are_missing_are_not_filled(firsts: str, tmp_path: Path) -> None:
    """Blocks differ in length, a value comes again, or the first row has none."""
    path = tmp_path / "jobs.csv"
    path.write_text("gpu,tps\n" + "".join(f"{first},1.5\n" for first in firsts.split(",")))
    rows = [row.values for row in open_table(path).rows() if isinstance(row, TableRow)]
    assert [row["gpu"] or "" for row in rows] == firsts.split(",")


def test_accounts_of_lsf(tmp_path: Path) -> None:
    rows = [
        {"JOBID": 88_000 + n, "USER": "ab"[n % 2], "STAT": "EXIT" if n == 7 else "DONE",
         "SUBMIT_TIME": f"Nov {n % 20 + 1} 10:{n + 10}", "NPROCS": 32 << n % 3,
         "MEM": f"{near(15.8, 1)} Gbytes", "RUN_TIME": f"{1400 + 7 * n} second(s)",
         "HOG_FACTOR": near(0.89, 2)}
        for n in range(30)
    ]  # fmt: skip
    found = roles(guessed(rows, tmp_path / "jobs.csv"))
    expected = {"STAT": "status", "RUN_TIME": "objective", "HOG_FACTOR": "metric", "MEM": "metric"}
    assert found == found | expected
    assert found["SUBMIT_TIME"] == "label"
    assert found["NPROCS"] == "parameter"


# -- where a column stands ----------------------------------------------------------------------


def _drawn(rows: int = 48, **columns: Any) -> list[dict[str, Any]]:
    """Runs of settings that were drawn at random: no grid tells what came out."""
    rng = random.Random(3)
    return [
        {
            name: rng.choice(values) if isinstance(values, list) else near(values)
            for name, values in columns.items()
        }
        for _ in range(rows)
    ]


def test_what_stands_behind_measurements_was_measured_too(tmp_path: Path) -> None:
    rows = _drawn(
        preset=["fast", "slow"], threads=[4, 8], fps=90.0, size_MB=40.0, psnr=40.0, q=24.0
    )
    found = roles(guessed(rows, tmp_path / "jobs.csv"))
    assert (found["size_MB"], found["q"]) == ("metric", "metric")
    assert (found["preset"], found["threads"]) == ("parameter", "parameter")


def test_what_stands_before_measurements_among_settings_was_not_measured(tmp_path: Path) -> None:
    """As many different values as a measurement has: they were drawn at random. By chance one of
    many settings seems to explain them."""
    for seed in range(6):
        rng = random.Random(seed)
        rows = [
            {"max_depth": rng.randint(3, 10), "subfrac": round(rng.uniform(0.5, 1), 3),
             "bytree": round(rng.uniform(0.5, 1), 3), "booster": rng.choice(["a", "b"]),
             "rounds_n": rng.choice([100, 300, 500]), "rmse": rng.uniform(0.3, 0.4)}
            for _ in range(40)
        ]  # fmt: skip
        found = roles(guessed(rows, tmp_path / "jobs.csv"))
        assert (found["subfrac"], found["bytree"]) == ("parameter", "parameter"), seed


def test_errors_are_counted_and_say_not_how_a_run_ended(tmp_path: Path) -> None:
    rows = _drawn(workers=[1, 2, 4], rps=900.0, errors=[0, 0, 1, 4])
    assert roles(guessed(rows, tmp_path / "jobs.csv"))["errors"] != "status"


def test_a_mean_is_an_objective_before_its_spread(tmp_path: Path) -> None:
    rows = _drawn(n_batch=[256, 512], n_threads=[8, 16], stddev_ns=9e6, avg_ns=9e8)
    guesses = guessed(rows, tmp_path / "jobs.csv")
    assert (guesses.objective.column.name, guesses.goal) == ("avg_ns", "minimize")


@pytest.mark.parametrize("name", ["Temps (s)", "Epochs [s]", "samples (ms)"])
def test_a_unit_in_brackets_is_of_the_whole(name: str) -> None:
    read = read_name(name)
    assert (read.goal, read.goal_sure >= 0.5) == ("minimize", True)


def test_what_was_set_in_a_full_grid_was_not_measured(tmp_path: Path) -> None:
    """The latency and the losses of a network that was emulated."""
    rows = [
        {**g, "goodput_mbps": near(90.0), "handshake_ms": near(30.0)}
        for g in grid(cc=["bbr", "cubic"], loss_pct=[0, 1, 2], rtt_ms=[10, 50, 100])
    ]
    found = roles(guessed(rows, tmp_path / "jobs.csv"))
    assert {found["loss_pct"], found["rtt_ms"]} <= {"context", "parameter"}, found


@pytest.mark.parametrize("name", ["W-Amp", "Space-Amp", "total gc count", "NOPM", "cpu_user", "KO"])
def test_names_of_what_servers_and_stores_count(name: str, tmp_path: Path) -> None:
    rows = _drawn(write_buffer_mb=[64, 128], jobs=[2, 4], compression=["lz4", "zstd"], ops_s=900.0)
    rng = random.Random(5)
    rows = [row | {name: rng.randint(40, 90)} for row in rows]
    assert roles(guessed(rows, tmp_path / "jobs.csv"))[name] in ("metric", "objective")


@pytest.mark.slow
@pytest.mark.parametrize("contexts", [True, False])
def test_settings_drawn_at_random_are_no_measurements_whatever_stands_beside(
    contexts: bool, tmp_path: Path
) -> None:
    """The same number of draws for each benchmark on each machine; or by chance each combination
    of some settings as often as any other."""
    choices: dict[str, list[Any]]
    choices = {"spin": [0, 10, 20], "eager_kb": [4, 8, 16, 32, 64, 128], "pool": [1, 2, 3, 4, 6]}
    choices |= {"style": ["a", "b", "c"], "polls": [0, 1], "rx": [600, 700, 900]}
    given = {"benchmark": ["bt", "cg", "lu"], "machine": ["skx", "rome"]} if contexts else {}
    for seed in range(12):
        rng = random.Random(seed)
        rows = [
            {**g, **{name: rng.choice(values) for name, values in choices.items()},
             "time_s": rng.uniform(70, 90)}
            for g in grid(**given) for _ in range(6 if contexts else 36)
        ]  # fmt: skip
        found = roles(guessed(rows, tmp_path / "jobs.csv"))
        assert {found[name] for name in choices} <= {"parameter", "context"}, (seed, found)


def test_a_setting_of_three_values_beside_a_full_grid_is_no_measurement(tmp_path: Path) -> None:
    rows = [
        {**g, "interp_t": RNG.choice([5, 6, 8]), "time_s": near(9.0)}
        for g in grid(
            coarsening=["a", "b", "c"], threshold=[0.25, 0.5, 0.75], relax=["x", "y", "z"]
        )
    ]
    found = roles(guessed(rows, tmp_path / "jobs.csv"))
    assert found["interp_t"] in ("parameter", "context"), found


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("synchronous_commit", ["on", "off", "local"]),
        ("cacheline_size", [64, 128]),
        ("num_ports", [1, 2, 4]),
        ("sweeps", [1, 2, 3]),
        ("index_level", [1, 2, 3]),
        ("coll_id", [1, 2, 3, 5]),
        ("link", ["nvl", "ib", "eth"]),
        ("trace", ["t1", "t2"]),
        ("env_id", ["Hopper-v4", "HalfCheetah-v4", "Walker2d-v4"]),
        ("max_latency_ms", [100, 500]),
    ],
)
def test_few_values_are_set_even_where_their_name_is_of_labels(
    name: str, values: list[Any], tmp_path: Path
) -> None:
    columns: dict[str, Any] = {name: values, "tile": [8, 16], "gbps": 90.0, "p95_ms": 30.0}
    rows = _drawn(48, model=["a", "b"], **columns)
    assert roles(guessed(rows, tmp_path / "jobs.csv"))[name] in ("parameter", "context")


@pytest.mark.parametrize("name", ["seed", "fold", "experiment_id", "run_id", "user_id"])
def test_few_values_that_tell_repeats_apart_are_none(name: str, tmp_path: Path) -> None:
    columns: dict[str, Any] = {name: [1, 2, 3], "tile": [8, 16], "gbps": 90.0}
    rows = _drawn(48, model=["a", "b"], **columns)
    assert roles(guessed(rows, tmp_path / "jobs.csv"))[name] in ("label", "user", "job_id")


def test_what_the_command_time_says(tmp_path: Path) -> None:
    rows = _drawn(jobs=[1, 4, 8], linker=["lld", "bfd"], real=90.0, user=140.0, sys=9.0)
    for row in rows:
        row |= {n: f"{int(row[n] // 60)}m{row[n] % 60:.3f}s" for n in ("real", "user", "sys")}
    guesses = guessed(rows, tmp_path / "jobs.csv")
    found = roles(guesses)
    assert (guesses.objective.column.name, guesses.goal) == ("real", "minimize")
    assert (found["user"], found["sys"]) == ("metric", "metric")


def test_a_switch_does_not_follow_from_what_it_switches(tmp_path: Path) -> None:
    """Also where the columns are read in the other order."""
    rows = _drawn(finline=[0, 1], inline_threshold=[150, 225, 500], funroll=[0, 1], speedup=1.1)
    for row in rows:
        row |= {} if row["finline"] else {"inline_threshold": None}
    found = roles(guessed(rows, tmp_path / "jobs.csv"))
    assert (found["finline"], found["inline_threshold"]) == ("parameter", "parameter")


def test_the_degree_of_a_graph_is_tuned_beside_its_searches(tmp_path: Path) -> None:
    rows = _drawn(dataset=["sift", "glove"], M=[8, 16, 32], efConstruction=[100, 200], qps=900.0)
    assert roles(guessed(rows, tmp_path / "jobs.csv"))["M"] == "parameter"


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("Estado", "correcto", "fallo"),
        ("État", "réussi", "échec"),
        ("Zustand", "erfolgreich", "fehlgeschlagen"),
        ("Estado", "concluído", "falha"),
        ("Stato", "completato", "errore"),
        ("状态", "成功", "失败"),
        ("結果", "正常", "エラー"),
        ("Состояние", "успешно", "ошибка"),
    ],
)
def test_how_jobs_ended_in_other_languages(name: str, good: str, bad: str, tmp_path: Path) -> None:
    rows = [row | {name: bad if n % 7 == 3 else good} for n, row in enumerate(
        _drawn(threads=[1, 2, 4], schedule=["a", "b"], time_s=90.0)
    )]  # fmt: skip
    assert roles(guessed(rows, tmp_path / "jobs.csv"))[name] == "status"
    assert (meaning(good), meaning(bad)) == ("succeeded", "failed")


def test_efficiencies_as_seff_writes_them_are_measured(tmp_path: Path) -> None:
    rows = _drawn(nodes=[1, 2], tasks_per_node=[8, 16], CPUEff=80.0, MemEff=30.0, Elapsed=900.0)
    found = roles(guessed(rows, tmp_path / "jobs.csv"))
    assert (found["CPUEff"], found["MemEff"]) == ("metric", "metric")


def test_what_differs_in_every_row_is_no_sure_parameter(tmp_path: Path) -> None:
    """Whatever its name is of: a ratio, a depth, the number of compilations."""
    rng = random.Random(4)
    rows = [
        row | {"ratio": rng.uniform(2, 3), "depth": rng.randint(60, 900),
               "nodes": rng.randint(9, 10**5), "speed_mbps": rng.uniform(90, 99),
               "flush_count": rng.randint(9, 10**4), "compile_s": rng.uniform(1, 2),
               "compactions": rng.randint(9, 900)}
        for row in _drawn(codec=["lz4", "zstd"], level=[1, 3, 9], MaxGCPauseMillis=[50, 100, 200])
    ]  # fmt: skip
    guesses = guessed(rows, tmp_path / "jobs.csv")
    found = {one.column.name: one for one in guesses.columns}
    for name in ("ratio", "depth", "nodes", "compactions"):
        assert found[name].unsure or found[name].role == "metric", found[name]
    assert found["nodes"].role == "metric"
    assert found["flush_count"].role == found["compile_s"].role == "metric"
    for name in ("codec", "level", "MaxGCPauseMillis"):
        assert (found[name].role, found[name].unsure) == ("parameter", False)


@pytest.mark.parametrize("first", [True, False])
def test_what_a_search_draws_from_a_range_is_still_a_parameter(first: bool, tmp_path: Path) -> None:
    """A result before the settings says nothing of what stands behind it."""
    for seed in range(5):
        rng = random.Random(seed)
        rows = []
        for _ in range(40):
            result = {"throughput": rng.uniform(90, 99)}
            settings = {
                "learning_rate": 10 ** rng.uniform(-5, -2), "params.momentum": rng.uniform(0, 1),
                "shared_buffers_mb": rng.randint(64, 16_000), "opt": rng.choice(["a", "b"]),
            }  # fmt: skip
            rows.append({**result, **settings} if first else {**settings, **result})
        guesses = guessed(rows, tmp_path / "jobs.csv")
        found = {one.column.name: one for one in guesses.columns}
        names = ("learning_rate", "params.momentum", "shared_buffers_mb", "opt")
        assert {found[name].role for name in names} == {"parameter"}, (seed, roles(guesses))
        assert not found["learning_rate"].unsure
        assert not found["params.momentum"].unsure


def _best(tmp_path: Path, **columns: Any) -> TableGuess:
    """What is guessed of runs with these columns, see :func:`_drawn`, and two settings."""
    settings: dict[str, Any] = {"threads": [1, 2, 4], "policy": ["lru", "fifo"]}
    rows = _drawn(**settings | columns)
    return guessed(rows, tmp_path / "jobs.csv")


def test_an_objective_that_rises_with_a_cost_is_not_surely_one(tmp_path: Path) -> None:
    rows = [
        {"depth": depth, "algo": algo, "objective": near(depth), "latency_ms": near(3 * depth)}
        for depth in range(1, 21)
        for algo in ("a", "b")
    ]
    guesses = guessed(rows, tmp_path / "jobs.csv")
    assert guesses.objective.column.name == "objective"
    assert guesses.goal_sure < 0.5
    named = [{("fitness" if k == "objective" else k): v for k, v in row.items()} for row in rows]
    guesses = guessed(named, tmp_path / "named.csv")
    assert (guesses.goal, guesses.goal_sure >= 0.5) == ("maximize", True)


@pytest.mark.parametrize(
    ("name", "goal", "sure"),
    [
        *((n, "maximize", True) for n in ("neg_mean_squared_error", "test_neg_log_loss")),
        *((n, "maximize", True) for n in ("ns/day", "us per day", "SYPD", "sim days per hour")),
        *((n, "maximize", True) for n in ("instructions per cycle", "insn per cycle", "IPC")),
        *((n, "maximize", True) for n in ("fitness", "MRR", "nDCG@10", "mAP50", "r2_score")),
        *((n, "maximize", True) for n in ("Score ↑", "time (higher is better)", "AUROC")),
        *((n, "minimize", True) for n in ("FID ↓", "throughput (Lower is better)", "regret")),
        *((n, "minimize", False) for n in ("$/hour", "€ per hour")),
        *((n, "maximize", True) for n in ("avg_prec", "average precision")),
        *((n, "maximize", True) for n in ("ep_rew_mean", "rollout/ep_rew_mean", "EpRet")),
        *((n, "minimize", True) for n in ("hours per sim day", "wall min per simulated day")),
        *((n, "minimize", True) for n in ("sec/day", "h/ns", "days/ns", "hours per model year")),
        *((n, "minimize", True) for n in ("耗时(s)", "レイテンシ(ms)", "neg_throughput")),
        *((n, "minimize", True) for n in ("cycles per instruction", "total_min")),
        *((n, "maximize", False) for n in ("ms/day", "ns/s")),
        *((n, "minimize", True) for n in ("latency_ms [max]", "平均延迟(ms)", "Loss ↓")),
        *((n, "maximize", True) for n in ("throughput (tok/s) [min]", "正解率 ↑")),
        *((n, "maximize", False) for n in ("Mbit/s ↓", "Speed ↓ (Mbit/s)", "每秒错误数")),
        *((n, "minimize", False) for n in ("Download ↓", "latency ↑", "单位时间处理数")),
        *((n, "minimize", False) for n in ("単位時間あたり処理数", "시간당 생산량", "时间差")),
        *((n, "minimize", False) for n in ("运行时间减少率", "时延改善", "节省时间")),
        *((n, "minimize", False) for n in ("剩余内存", "무지연 처리", "剩余时间(ms)")),
        *((n, "maximize", False) for n in ("точность вычислений", "速度提升")),
    ],
)
def test_which_way_names_say(name: str, goal: str, sure: bool) -> None:
    read = read_name(name)
    assert (read.goal, read.goal_sure >= 0.5) == (goal, sure), read.goal_why


def test_what_is_negative_in_every_row_is_no_time(tmp_path: Path) -> None:
    guesses = _best(tmp_path, wns_ns=-0.4)
    assert guesses.objective.column.name == "wns_ns"
    assert (guesses.goal, guesses.goal_sure < 0.5) == ("maximize", True)


def test_sizes_in_capitals_are_no_rates(tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"TP": [1, 2, 4], "PP": [1, 2], "MBS": [1, 2, 4], "GBS": [256, 512]}
    rows = _drawn(**sizes, iter_time_ms=900.0)
    guesses = guessed(rows, tmp_path / "jobs.csv")
    assert guesses.objective.column.name == "iter_time_ms"
    found = roles(guesses)
    assert {found["TP"], found["PP"], found["MBS"]} == {"parameter"}
    assert found["GBS"] in ("context", "parameter")
    for batches in ([1536, 3072], [96, 1000, 1500]):
        wide = _drawn(TP=[1, 2, 4], PP=[1, 2], MBS=[1, 2, 4], GBS=batches, tflops=300.0)
        assert guessed(wide, tmp_path / "wide.csv").objective.column.name == "tflops"
        assert roles(guessed(wide, tmp_path / "wide.csv"))["GBS"] in ("context", "parameter")
    rows = [row | {"MBS": near(90.0)} for row in rows]
    guesses = guessed(rows, tmp_path / "rates.csv")
    assert (guesses.objective.column.name, guesses.goal) == ("MBS", "maximize")


@pytest.mark.parametrize(
    ("whole", "part"),
    [
        *(("total_min", "setup_s"), ("epoch_s", "data_s"), ("step_ms", "backward_ms")),
        *(("total_time", "solve_time"), ("val/box_loss", "train/box_loss")),
        *(("eval_loss", "train_loss"), ("timing.total", "timing.setup")),
    ],
)
def test_the_whole_is_an_objective_before_a_part(whole: str, part: str, tmp_path: Path) -> None:
    guesses = _best(tmp_path, **{part: 12.0, whole: 40.0})
    assert (guesses.objective.column.name, guesses.goal) == (whole, "minimize")


@pytest.mark.parametrize(
    "quality",
    [
        *("val_score", "mean_test_score", "cv_score", "neg_mean_squared_error", "r2", "fidelity"),
        *("mAP", "MRR", "nDCG@10"),
    ],
)
def test_beside_a_quality_a_time_is_in_doubt(quality: str, tmp_path: Path) -> None:
    guesses = _best(tmp_path, runtime_s=40.0, **{quality: 0.8})
    assert guesses.having("metric")
    assert guesses.objective.unsure or guesses.objective.column.name == quality


@pytest.mark.slow
def test_a_place_far_behind_outweighs_no_name(tmp_path: Path) -> None:
    rows = [
        row | {f"note_{i}": "same" for i in range(900)} | {"throughput": near(90.0)}
        for row in _drawn(threads=[1, 2, 4], setup_time=3.0)
    ]
    assert guessed(rows, tmp_path / "jobs.csv").objective.column.name == "throughput"


@pytest.mark.parametrize("end", [",", ",,", ", "])
def test_a_comma_may_end_each_line(end: str, tmp_path: Path) -> None:
    table = tmp_path / "jobs.csv"
    lines = [f"{1 + i % 4},{8 * (1 + i % 3)},{100 + i * 0.37}{end}" for i in range(30)]
    for header in ("threads,batch,throughput", f"threads,batch,throughput{end}"):
        table.write_text("\n".join([header, *lines]))
        rows = list(open_table(table).rows())
        first = {"threads": "1", "batch": "8", "throughput": "100.0"}
        assert rows[0] == TableRow(1, dict(first))
        assert all(isinstance(row, TableRow) for row in rows)


def test_what_a_search_draws_under_any_name_is_no_sure_measurement(tmp_path: Path) -> None:
    """Behind the result, with a model alone before it; and before the result, where by chance one
    of the settings explains another."""
    names = ("spin", "window", "zeta", "slots", "pool")
    for seed in range(12):
        rng = random.Random(seed)
        rows = []
        for _ in range(36):
            result = {"model": rng.choice(["a", "b", "c"]), "time_s": rng.uniform(80, 90)}
            drawn = {name: round(rng.uniform(0, 3), 4) for name in names[:3]}
            drawn |= {name: rng.randint(16, 16_000) for name in names[3:]}
            rows.append({**result, **drawn} if seed % 2 else {**drawn, **result})
        guesses = guessed(rows, tmp_path / "jobs.csv")
        found = {one.column.name: one for one in guesses.columns}
        sure = [n for n in names if found[n].role == "metric" and not found[n].unsure]
        assert not sure, (seed, sure)


def test_the_seed_of_a_part_is_a_label(tmp_path: Path) -> None:
    rows = _drawn(circuit=["qft", "ghz"], layout=["a", "b"], transpile_s=9.0)
    rows = [row | {"seed_transpiler": 17 * n % 997} for n, row in enumerate(rows)]
    assert roles(guessed(rows, tmp_path / "jobs.csv"))["seed_transpiler"] == "label"


@pytest.mark.parametrize("name", ["CPU use", "memory use", "prefetch_wait_ms"])
def test_names_of_what_machines_use(name: str, tmp_path: Path) -> None:
    rng = random.Random(6)
    rows = _drawn(threads=[1, 2, 4], bucket_cap_mb=[25, 50], step_ms=90.0)
    rows = [row | {name: rng.randint(80, 95)} for row in rows]
    assert roles(guessed(rows, tmp_path / "jobs.csv"))[name] in ("metric", "objective")


@pytest.mark.parametrize(
    "name", ["ep_rew_mean", "branches", "rows_in", "bytes_out", "records_read", "episode_len"]
)
def test_what_runs_count_and_earn_is_called_measured(name: str) -> None:
    read = read_name(name)
    assert read.weight("measured") > max(read.weight("context"), read.weight("parameter"))


@pytest.mark.slow
def test_a_wide_table_is_guessed_without_a_look_at_each_pair_of_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pairs are told apart by a few rows of all columns at once."""
    looked = 0
    plain = derived_columns._ratio

    def counted(column: ColumnProfile, other: ColumnProfile) -> float | None:
        nonlocal looked
        looked += 1
        return plain(column, other)

    monkeypatch.setattr(derived_columns, "_ratio", counted)
    rows = []
    for n in range(40):
        threads = 1 << n % 4
        knobs = {f"knob_{k}": RNG.randint(1, 9) for k in range(60)}
        rows.append({"threads": threads, **knobs, "run_time_s": near(90.0 / threads)})
    found = roles(guessed(rows, tmp_path / "jobs.csv"))
    assert found["run_time_s"] == "objective"
    assert looked < 20 * len(found)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        (derived_columns, "determines"),
        (derived_columns.Multiples, "of"),
        (relations, "_explained"),
    ],
)
def test_wide_tables_of_words_and_numbers_take_time_in_proportion(
    module: Any, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = 0
    plain = getattr(module, name)

    def counted(*given: Any) -> Any:
        nonlocal looked
        looked += 1
        return plain(*given)

    monkeypatch.setattr(module, name, counted)

    def looks(many: int) -> int:
        nonlocal looked
        rng, looked = random.Random(3), 0
        kinds: tuple[Callable[[], Any], ...] = (
            lambda: rng.choice("abcdef"), lambda: round(rng.random(), 5), lambda: rng.randrange(100)
        )  # fmt: skip
        rows = [
            {"threads": 1 << n % 4, **{f"c{k}": kinds[k % 3]() for k in range(many)}, "time_s": n}
            for n in range(150)
        ]
        guessed([row | {"time_s": near(90.0 / row["threads"])} for row in rows], tmp_path / "x.csv")
        return looked

    narrow = looks(100)
    assert looks(200) < 2.6 * narrow + 100


def test_what_stands_among_parameters_was_not_measured(tmp_path: Path) -> None:
    """Drawn at random, and called like a result."""
    rows = [
        {"params.x": RNG.uniform(-5, 5), "params.y": RNG.uniform(-5, 5), "fitness": near(3.0)}
        for _ in range(30)
    ]
    found = roles(guessed(rows, tmp_path / "runs.csv"))
    assert found == {"params.x": "parameter", "params.y": "parameter", "fitness": "objective"}


def test_what_has_two_values_is_no_objective(tmp_path: Path) -> None:
    """Jobs of a service that says of each what it was given, and not how long it took."""
    rows = [{**g, "vcpus": 2 + 2 * (n % 2)} for n, g in enumerate([*grid(threads=[1, 2]), {}] * 9)]
    with pytest.raises(MisconfiguredError, match="no column looks measured"):
        guessed([{"threads": 4} | row for row in rows], tmp_path / "jobs.csv")
