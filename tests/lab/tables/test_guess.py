"""What columns are taken for: tables of many fields, and each kind of evidence on its own."""

import json
import math
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from tests.lab.tables.sketches import SKETCHES, sketched
from tests.lab.tables.synthetic import MAKERS, Made, make, write
from tunerd.errors import MisconfiguredError
from tunerd.lab.tables.column_names import identifier, read_name, unit_of, words
from tunerd.lab.tables.files import open_table
from tunerd.lab.tables.guess import TableGuess, UserAnswers, guess
from tunerd.lab.tables.profile import profile

RIGHT = {
    "context": {"context"},
    "tunable": {"parameter"},
    "objective": {"objective", "metric"},
    "status": {"status"},
    "timestamp": {"finished_at", "time"},
    "auxiliary": {"metric", "derived", "job_id", "user", "label", "ignored"},
}

NOTHING = UserAnswers()


def guessed(
    made: Made | Sequence[Mapping[str, Any]], path: Path, given: UserAnswers = NOTHING
) -> TableGuess:
    if not isinstance(made, Made):
        made = Made(list(map(dict, made)), dict.fromkeys(made[0], ""), "", "")
    return guess(profile(open_table(write(made, path))), given)


def roles(guesses: TableGuess) -> dict[str, str]:
    return {one.column.name: one.role for one in guesses.columns}


def wrong(made: Made, guesses: TableGuess) -> list[str]:
    found = roles(guesses)
    return [
        f"{column}: {found[column]}, is {role}"
        for column, role in made.roles.items()
        if found[column] not in RIGHT[role]
    ]


@pytest.mark.parametrize("name", MAKERS)
def test_tables_of_many_fields(name: str, tmp_path: Path) -> None:
    made = make(name)
    guesses = guessed(made, tmp_path / ("jobs.jsonl" if name == "serving" else "jobs.csv"))
    mistakes = wrong(made, guesses)
    assert len(mistakes) <= 0.1 * len(made.roles), mistakes
    assert (guesses.objective.column.name, guesses.goal) == (made.objective, made.goal)


@pytest.mark.slow
def test_sketches_of_tables(tmp_path: Path) -> None:
    mistakes: list[str] = []
    columns = 0
    for name in SKETCHES:
        made = sketched(name)
        guesses = guessed(made, tmp_path / f"{name}.csv")
        mistakes += [f"{name}.{mistake}" for mistake in wrong(made, guesses)]
        columns += len(made.roles)
        assert made.roles[guesses.objective.column.name] == "objective", name
    assert len(mistakes) <= 0.1 * columns, mistakes


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("n_gpus", ("gpu",)),
        ("numGPUs", ("gpu",)),
        ("nGPUs", ("gpu",)),
        ("OMP_NUM_THREADS", ("omp", "thread")),
        ("tokens/s/GPU", ("token", "per", "s", "per", "gpu")),
        ("blocksize", ("block", "size")),
        ("elapsedtime", ("elapsed", "time")),
        ("Write bandwidth (MiB/s)", ("write", "bandwidth", "mib", "per", "s")),
        ("mbs", ("micro", "batch", "size")),
        ("cache_misses", ("cache", "miss")),
        ("#", ("n",)),
        ("", ()),
        ("日本", ()),
        ("线程数", ("thread",)),
        ("バッチサイズ", ("batch", "size")),
    ],
)
def test_words_of_names(name: str, expected: tuple[str, ...]) -> None:
    assert words(name) == expected
    read_name(name)


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("tokens_per_s_per_gpu", "tokens/s/GPU"),
        ("samples_per_second", "samples/s"),
        ("step_time_ms", "ms"),
        ("peak_mem_gib", "GiB"),
        ("Write bandwidth (MiB/s)", "MiB/s"),
        ("GFLOPS", "GFLOP/s"),
        ("speed", ""),
        ("s", ""),
        ("Throughput [k tok/s]", "k tokens/s"),
        ("million_samples_per_s", "M samples/s"),
    ],
)
def test_units_of_names(name: str, unit: str) -> None:
    assert unit_of(name) == unit


def test_identifiers() -> None:
    assert identifier("File size (GiB)", ()) == "File_size_GiB"
    assert identifier("2d", ()) == "c2d"
    assert identifier("min", ()) == "min_"
    assert identifier("größe", ()) == "groe" or identifier("größe", ()).isascii()
    assert identifier("日本", {"column"}) == "column_2"
    assert len(identifier("x" * 500, {"x" * 56})) <= 64


def _rows(count: int, **columns: Any) -> list[dict[str, Any]]:
    """Rows of columns; a column is a list to choose from, or a function of the row so far."""
    rng = random.Random(1)
    rows = []
    for number in range(count):
        row: dict[str, Any] = {"#": number}
        for name, values in columns.items():
            row[name] = values(row, rng) if callable(values) else rng.choice(values)
        del row["#"]
        rows.append(row)
    return rows


def _speed(_: Mapping[str, Any], rng: random.Random) -> float:
    return 100 * rng.lognormvariate(0, 0.1)


def test_what_never_varies_within_a_context_is_context(tmp_path: Path) -> None:
    batch = {"a": 512, "b": 1024, "c": 1536}
    fixed = _rows(
        200,
        model=["a", "b", "c"],
        global_batch=lambda row, _: batch[row["model"]],
        tp=[1, 2, 4],
        tokens_per_s=_speed,
    )
    assert roles(guessed(fixed, tmp_path / "fixed.csv"))["global_batch"] == "context"
    free = _rows(
        200, model=["a", "b", "c"], global_batch=[512, 1024, 1536], tp=[1, 2], tokens_per_s=_speed
    )
    assert roles(guessed(free, tmp_path / "free.csv"))["global_batch"] == "parameter"


def test_what_follows_from_others_is_derived(tmp_path: Path) -> None:
    cores = {"m5.large": 2, "m5.xlarge": 4, "m5.2xlarge": 8}
    table = _rows(
        300,
        dataset=["x", "y"],
        instance_type=list(cores),
        n_workers=[1, 2, 4, 8],
        total_vcpus=lambda row, _: row["n_workers"] * cores[row["instance_type"]],
        threads=[1, 2, 4],
        total_threads=lambda row, _: row["threads"] * row["n_workers"],
        runtime_s=_speed,
    )
    found = roles(guessed(table, tmp_path / "jobs.csv"))
    assert found["total_vcpus"] == found["total_threads"] == "derived"
    assert found["n_workers"] == found["instance_type"] == "parameter"


def test_products_and_bounds_that_hold_in_every_row(tmp_path: Path) -> None:
    table = _rows(
        400,
        n_gpus=[8, 16, 32],
        tp=[1, 2, 4, 8],
        dp=lambda row, _: row["n_gpus"] // row["tp"],
        micro_batch=[1, 2, 3, 4, 6],
        global_batch=lambda row, rng: row["dp"] * row["micro_batch"] * rng.choice([1, 2, 5]),
        tokens_per_s=_speed,
    )
    guesses = guessed(table, tmp_path / "jobs.csv")
    (product,) = guesses.products
    assert (set(product.factors), product.total) == ({"tp", "dp"}, "n_gpus")
    (bound,) = guesses.bounds
    assert (set(bound.small), bound.large) == ({"dp", "micro_batch"}, ("global_batch",))
    assert bound.divides


@pytest.mark.parametrize(
    ("columns", "total", "rule"),
    [
        ({"workers": [1, 2, 4, 8], "threads": (32, "workers")}, "threads", "workers * 32"),
        (
            {
                "NNodes": [1, 2, 4],
                "NTasksPerNode": [4, 8, 16],
                "slots": (1, "NNodes", "NTasksPerNode"),
            },
            "slots",
            "NNodes * NTasksPerNode",
        ),
        (
            {
                "NNodes": [1, 2, 4],
                "TasksPerNode": [4, 8, 16],
                "slots": (2, "NNodes", "TasksPerNode"),
            },
            "slots",
            "NNodes * TasksPerNode * 2",
        ),
        (
            {
                "batch_per_gpu": [1, 2, 4],
                "n_gpus": [2, 4, 8],
                "batch": (1, "batch_per_gpu", "n_gpus"),
            },
            "batch",
            "batch_per_gpu * n_gpus",
        ),
    ],
)
def test_what_is_made_of_others_is_neither_tuned_nor_context(
    columns: dict[str, Any], total: str, rule: str, tmp_path: Path
) -> None:
    times, *factors = columns[total]

    def made(row: Mapping[str, Any], _: random.Random) -> int:
        return math.prod((times, *(row[factor] for factor in factors)))

    table = _rows(120, **{**columns, total: made}, runtime_s=_speed)
    guesses = guessed(table, tmp_path / "jobs.csv")
    found = roles(guesses)
    assert found[total] == "derived"
    assert "parameter" in {found[factor] for factor in factors}
    (told,) = [one.rule for one in guesses.columns if one.column.name == total]
    assert told is not None
    assert told.expression({name: name for name in columns}) == rule
    said = UserAnswers(roles={total: "parameter"})
    assert roles(guess(guesses.profile, said))[total] == "parameter"


def test_what_a_kind_of_machine_has_of_it_is_not_tuned(tmp_path: Path) -> None:
    cores = {"a": 64, "b": 32}
    table = _rows(
        120,
        partition=["a", "b"],
        workers=[1, 2, 4, 8],
        threads=lambda row, _: row["workers"] * cores[row["partition"]],
        runtime_s=_speed,
    )
    found = roles(guessed(table, tmp_path / "jobs.csv"))
    assert (found["workers"], found["threads"]) == ("parameter", "derived")


def test_what_is_made_of_others_in_nearly_every_row_is_tuned(tmp_path: Path) -> None:
    table = _rows(
        120,
        NNodes=[1, 2, 4],
        NTasksPerNode=[4, 8],
        slots=lambda row, rng: row["NNodes"] * row["NTasksPerNode"] * rng.choice([1, 1, 1, 2]),
        runtime_s=_speed,
    )
    assert roles(guessed(table, tmp_path / "jobs.csv"))["slots"] == "parameter"


def test_columns_of_chance_have_no_rules(tmp_path: Path) -> None:
    table = _rows(
        500, a=[1, 2, 4], b=[1, 2, 4, 8], c=[2, 4, 8, 16], d=[1, 3, 9], e=[5, 10], speed=_speed
    )
    guesses = guessed(table, tmp_path / "jobs.csv")
    assert (guesses.products, guesses.bounds) == ((), ())


def test_a_goal_is_inferred_from_what_moves_along(tmp_path: Path) -> None:
    table = _rows(100, tp=[1, 2, 4], score=_speed, latency_ms=lambda row, _: 1_000 / row["score"])
    guesses = guessed(table, tmp_path / "jobs.csv", UserAnswers(objective="score"))
    assert (guesses.goal, guesses.goal_why) == ("maximize", "it falls with latency_ms")


def test_randomly_drawn_settings_are_no_measurements(tmp_path: Path) -> None:
    table = _rows(
        300,
        model=["a", "b"],
        knob=lambda _, rng: rng.uniform(0, 3),
        other=[1, 2, 3],
        throughput=lambda row, rng: row["other"] * rng.lognormvariate(0, 0.1),
        echo=lambda row, rng: row["other"] * rng.lognormvariate(0, 0.2),
    )
    found = roles(guessed(table, tmp_path / "jobs.csv"))
    assert (found["knob"], found["echo"]) == ("parameter", "metric")


def test_a_person_is_right(tmp_path: Path) -> None:
    table = _rows(100, model=["a", "b"], tp=[1, 2], tokens_per_s=_speed, step_time_s=_speed)
    given = UserAnswers("step_time_s", "maximize", {"model": "parameter", "tp": "ignored"})
    guesses = guessed(table, tmp_path / "jobs.csv", given)
    assert guesses.goal == "maximize"
    assert roles(guesses) == {
        "model": "parameter",
        "tp": "ignored",
        "tokens_per_s": "metric",
        "step_time_s": "objective",
    }


def test_where_nothing_can_be_tuned_that_is_said(tmp_path: Path) -> None:
    cases: dict[str, tuple[list[dict[str, Any]], UserAnswers]] = {
        "no column looks measured": (_rows(20, name=["a", "b"], kind=["c", "d"]), UserAnswers()),
        "no column that could be tuned": (_rows(20, speed=_speed), UserAnswers()),
        "has no rows": ([], UserAnswers()),
        "has no column 'sped'": (_rows(20, tp=[1, 2], speed=_speed), UserAnswers(objective="sped")),
        "holds no numbers": (_rows(20, tp=["a", "b"], speed=_speed), UserAnswers(objective="tp")),
    }
    for number, (message, (rows, given)) in enumerate(cases.items()):
        made = Made(rows, dict.fromkeys(rows[0] if rows else ["tp", "speed"], ""), "", "")
        with pytest.raises(MisconfiguredError, match=message):
            guessed(made, tmp_path / f"{number}.csv", given)


@pytest.mark.parametrize(
    ("speed", "why"),
    [
        (
            lambda n: f"1.{n:03d},5" if n % 2 else f"1,{n:03d}.5",
            r"tokens_per_s holds text such as '1[.,]\d+[.,]5'",
        ),
        (
            lambda n: f"{n}.5 {'s' if n % 2 else 'GB'}",
            "tokens_per_s holds text such as '.*': write 1234.5",
        ),
        (lambda _: 100.0, "tokens_per_s is the same in all rows"),
        (lambda _: None, "tokens_per_s is empty"),
    ],
)
def test_what_people_chose_is_no_objective(
    tmp_path: Path, speed: Callable[[int], Any], why: str
) -> None:
    rows = _rows(100, gpu=["a", "b"], tp=[1, 2, 4, 8], n_gpus=[8, 16, 32])
    for n, row in enumerate(rows):
        row["tokens_per_s"] = speed(n)
    made = Made(rows, dict.fromkeys(rows[0], ""), "", "")
    with pytest.raises(MisconfiguredError, match=f"no column looks measured.*{why}"):
        guessed(made, tmp_path / "jobs.csv")


@pytest.mark.parametrize(
    ("speed", "write"),
    [
        (lambda n: f"1,{n % 900 + 100}.5" if n % 2 else f"1.{n + 100},5", "1234.5, without comma"),
        (lambda n: f"{n}.5 {'tok/s' if n % 3 else 'req/s'}", "1234.5, without comma or unit"),
        (lambda n: f"00:{n % 60 + 40:02d}:{n % 59:02d} h", "seconds"),
    ],
)
def test_what_is_measured_beside_a_speed_that_cannot_be_read_is_no_objective(
    tmp_path: Path, speed: Callable[[int], str], write: str
) -> None:
    rows = _rows(100, gpu=["a", "b"], tp=[1, 2, 4, 8], n_gpus=[8, 16, 32], peak_memory=_speed)
    for n, row in enumerate(rows):
        row["goodput"] = speed(n)
    made = Made(rows, dict.fromkeys(rows[0], ""), "", "")
    with pytest.raises(
        MisconfiguredError, match=rf"goodput looks like .* write {write}.*\. To make"
    ):
        guessed(made, tmp_path / "jobs.csv")
    for given in (UserAnswers("peak_memory"), UserAnswers(roles={"goodput": "ignored"})):
        assert guessed(made, tmp_path / "jobs.csv", given).objective.column.name == "peak_memory"


@pytest.mark.parametrize(
    ("end", "role", "form"),
    [
        ("03/14/2026 01:{:02d}:59 PM", "finished_at", "%m/%d/%Y %I:%M:%S %p"),
        ("3/14/2026 1:{:02d} PM", "finished_at", "%m/%d/%Y %I:%M %p"),
        ("Mar 14, 2026 1:{:02d} PM", "finished_at", "%b %d, %Y %I:%M %p"),
        ("46095.{:02d}42", "ignored", "auto"),
        ("2026-03-14T13:{:02d}:59", "finished_at", "auto"),
    ],
)
def test_ends_as_spreadsheets_write_them(tmp_path: Path, end: str, role: str, form: str) -> None:
    rows = _rows(100, gpu=["a", "b"], tp=[1, 2, 4, 8], n_gpus=[8, 16, 32], goodput=_speed)
    for n, row in enumerate(rows):
        row["end"] = end.format(n % 60)
    if role == "finished_at":
        rows[7]["end"] = rows[70]["end"] = "Unknown"  # as Slurm has it while a job runs
    guesses = guessed(rows, tmp_path / "jobs.csv")
    assert roles(guesses)["end"] == role
    assert guesses.profile.column("end").form == form


def test_where_no_line_is_a_row_the_header_is_named(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("Jobs, March\ngpu;tp;speed\na;1;2.5\n")
    seen = profile(open_table(path))
    with pytest.raises(MisconfiguredError, match=r"none of 2 lines .* header \(Jobs, March\)"):
        guess(seen)


def test_the_last_resort_is_a_context_that_varies(tmp_path: Path) -> None:
    guesses = guessed(_rows(50, model=["a", "b"], nodes=[1, 2], runtime=_speed), tmp_path / "a.csv")
    (parameter,) = guesses.having("parameter")
    assert parameter.unsure


def test_what_may_have_been_set_is_tuned_where_nothing_else_can_be(tmp_path: Path) -> None:
    """Guild AI's runs of a search over ``x``: which stands behind the time that was measured."""
    rng = random.Random(3)
    rows = [
        {"run": f"{n:08x}", "operation": "train", "time_s": 9 + rng.random(), "noise": 0.1,
         "x": round(rng.uniform(-2, 2), 6), "loss": rng.random()}
        for n in range(30)
    ]  # fmt: skip
    (parameter,) = guessed(rows, tmp_path / "runs.csv").having("parameter")
    assert (parameter.column.name, parameter.unsure) == ("x", True)


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        ("datetime_start", "datetime_complete"),
        ("start_time", "end_time"),
        ("Start", "End"),
        ("started_at", "finished_at"),
        ("begin", "stop"),
        ("created", "updated"),
        ("submit_time", "completion_time"),
        ("Submitted At", "Completed At"),
        ("start_ts", "end_ts"),
        ("time_started", "time_ended"),
        ("t0", "t1"),
        ("date_created", "date"),
    ],
)
@pytest.mark.parametrize("first", ["begin", "end"])
def test_the_end_of_a_job_is_preferred_to_its_start(
    tmp_path: Path, begin: str, end: str, first: str
) -> None:
    rows = []
    for n in range(40):
        times = {begin: f"2026-03-01T{n % 24:02}:10:00", end: f"2026-03-01T{n % 24:02}:40:00"}
        ordered = times if first == "begin" else dict(reversed(times.items()))
        rows.append({**ordered, "tp": 1 << n % 3, "tokens_per_s": 100.5 + n})
    found = guessed(rows, tmp_path / "jobs.csv")
    assert roles(found)[end] == "finished_at"
    assert roles(found)[begin] == "time"


@pytest.mark.parametrize(
    ("name", "values", "role"),
    [
        ("model_id", ["small", "large"], "context"),
        ("dataset_id", ["17", "21", "44"], "context"),
        ("kernel_id", ["gemm", "conv"], "context"),
        ("model_id", [f"m{n}" for n in range(40)], "label"),
        ("job_id", [f"j{n}" for n in range(40)], "job_id"),
        ("session_id", [f"s{n}" for n in range(40)], "label"),
    ],
)
def test_an_id_of_few_values_says_what_was_run(
    tmp_path: Path, name: str, values: Sequence[str], role: str
) -> None:
    rows = [
        {
            name: values[n % len(values)],
            "tp": 1 << n // 2 % 3,
            "tokens_per_s": 100.5 + n % len(values) * 50 + n / 7,
        }
        for n in range(40)
    ]
    assert roles(guessed(rows, tmp_path / "jobs.csv"))[name] == role


@pytest.mark.parametrize("count", [3, 31, 300])
def test_ways_in_which_jobs_end_are_counted_by_their_meaning(tmp_path: Path, count: int) -> None:
    rows = [
        {
            "threads": 1 << n % 4,
            "State": "COMPLETED" if n % 2 else f"CANCELLED by {10_000 + n // 2 % count}",
            "throughput": 10.5 + n if n % 2 else None,
        }
        for n in range(700)
    ]
    found = guessed(rows, tmp_path / "jobs.csv")
    assert roles(found) == {"threads": "parameter", "State": "status", "throughput": "objective"}


# ── directions and units in names ────────────────────────────────────────────────────────────

RATES = {
    "samples_sec": "samples/s",
    "samples_s": "samples/s",
    "gb_s": "GB/s",
    "req_sec": "requests/s",
    "steps_s": "steps/s",
    "images_gpu_s": "images/s/GPU",
    "tokens_per_gpu_s": "tokens/s/GPU",
    "tok/s/GPU": "tokens/s/GPU",
    "tok_s_gpu": "tokens/s/GPU",
    "it/s": "iterations/s",
    "img/sec": "images/s",
    "rows_s": "rows/s",
    "queries_s": "queries/s",
    "ops_sec": "operations/s",
    "TFLOP/s/GPU": "TFLOP/s/GPU",
    "mem_bw_gb_s": "GB/s",
    "Write bandwidth (MiB/s)": "MiB/s",
    "tokensPerSecond": "tokens/s",
    "requests_per_second_mean": "requests/s",
    "ns/day": "ns/day",
    "jobs_per_hour": "jobs/h",
    "スループット(件/秒)": "items/s",
    "スループット（件／秒）": "items/s",
    "吞吐量(请求/秒)": "requests/s",
    "每秒请求数": "requests/s",
    "처리량 (건/초)": "items/s",
    "пропускная способность (запросов/с)": "requests/s",
    "Gbps": "Gbit/s",
    "tgs": "tokens/s/GPU",
    "throughput": "",
    "MFU": "",
    "goodput": "",
    **dict.fromkeys(("f1_score", "reward", "win_rate", "compression_ratio", "qph", "psnr"), ""),
}
DURATIONS = {
    "latency_p99_ms": "ms",
    "step_ms": "ms",
    "ms_per_step": "ms/step",
    "s/it": "s/iteration",
    "sec_per_step": "s/step",
    "seconds_per_epoch": "s/epoch",
    "forward_per_step_ms": "ms",
    "latency/ms": "ms",
    "time/s": "s",
    "time (s)": "s",
    "elapsed_s": "s",
    "runtime_sec": "s",
    "hours_per_ns": "h/ns",
    "joules_per_token": "J/token",
    "seconds": "s",
    "millis": "ms",
    "延迟（毫秒）": "ms",
    "実行時間(秒)": "s",
    "지연 시간(밀리초)": "ms",
    "время, с": "s",
    **dict.fromkeys(("nll", "drop_rate", "rtt", "cross_entropy"), ""),
}
BOTH_WAYS = [
    *("step_s", "iter_s", "it_s", "batch_sec", "sample_s", "tokens_ms", "ops_us", "widgets_s"),
    *(
        "images_ms",
        "tokens_per_step_s",
        "speed_ms",
        "throughput_loss",
        "memory_gb_s",
        "usd_per_hour",
    ),
]


@pytest.mark.parametrize(
    ("name", "goal", "unit"),
    [(name, "maximize", unit) for name, unit in RATES.items()]
    + [(name, "minimize", unit) for name, unit in DURATIONS.items()],
)
def test_the_direction_and_unit_of_a_name(name: str, goal: str, unit: str) -> None:
    read = read_name(name)
    assert (read.goal, unit_of(name)) == (goal, unit)
    assert read.goal_sure >= 0.5


@pytest.mark.parametrize("name", BOTH_WAYS)
def test_a_name_that_can_be_read_both_ways_is_never_sure(name: str, tmp_path: Path) -> None:
    rows = _rows(40, gpu=["a", "b"], tp=[1, 2, 4, 8])
    for n, row in enumerate(rows):
        row[name] = 100 + 1.37 * n
    guesses = guessed(rows, tmp_path / "jobs.csv", UserAnswers(objective=name))
    assert guesses.goal_sure < 0.5
    assert "both ways" in guesses.goal_why


def test_a_rate_is_made_larger(tmp_path: Path) -> None:
    rows = _rows(12, gpu=["A100"], batch=[16, 32], workers=[2, 4])
    for n, row in enumerate(rows):
        row["samples_sec"] = 210.4 + 31.3 * n
    guesses = guessed(rows, tmp_path / "jobs.csv")
    assert (guesses.objective.column.name, guesses.goal) == ("samples_sec", "maximize")


# ── what is constant, follows, was measured ──────────────────────────────────────────────────


def test_what_never_changed_is_no_parameter(tmp_path: Path) -> None:
    rows = _rows(20, batch=[1, 2, 4, 8], optimizer_cpu_offload=[False], offload_fraction=[1])
    for n, row in enumerate(rows):
        row["tokens_per_s"] = 10.08 + 1.37 * n
    found = roles(guessed(rows, tmp_path / "jobs.csv"))
    assert found["optimizer_cpu_offload"] == found["offload_fraction"] == "ignored"
    assert found["batch"] == "parameter"


def _weights(row: Mapping[str, Any]) -> int:
    return int(50_824 + row["base_filters"] ** 2 * row["depth"] * 97)


@pytest.mark.parametrize(
    ("name", "follows"),
    [
        ("n_weights", lambda row: _weights(row)),
        ("model_params", lambda row: _weights(row)),
        ("memory_estimate", lambda row: row["depth"] * 1000 + row["base_filters"]),
        ("prompts_in_all", lambda row: 10 * row["batch_size"]),
        ("label_of_size", lambda row: f"size-{_weights(row)}"),
    ],
)
def test_what_follows_from_parameters_is_neither_context_nor_tuned(
    name: str, follows: Callable[[Mapping[str, Any]], Any], tmp_path: Path
) -> None:
    inputs: list[dict[str, Any]] = [
        {"depth": d, "base_filters": f, "batch_size": b}
        for d in (2, 3, 4)
        for f in (16, 32, 64)
        for b in (128, 256, 512, 1024)
    ]
    rows = [
        {**row, name: follows(row), "images_per_s": 1e6 / (n + 1) + 0.37}
        for n, row in enumerate(inputs)
    ]
    guesses = guessed(rows, tmp_path / "jobs.csv")
    found = roles(guesses)
    assert found[name] not in ("context", "parameter"), found
    tuned = ("depth", "base_filters", "batch_size")
    assert [found[one] for one in tuned] == ["parameter"] * 3
    assert guesses.having("context") == []


def _of_layers(row: Mapping[str, Any]) -> int:
    return int(10_007 * row["n_layers"] + row["width"])


@pytest.mark.parametrize(
    ("inputs", "name", "follows"),
    [
        # All combinations and nothing else: no other column shows that it never varies.
        ({"depth": (2, 3, 4), "base_filters": (16, 32, 64)}, "n_weights", _weights),
        ({"n_layers": (2, 4, 8), "width": (1, 2, 4)}, "n_params", _of_layers),
        ({"nodes": (1, 2, 4), "x": (1,)}, "n_gpus", lambda r: 8 * r["nodes"]),
    ],
)  # fmt: skip
def test_what_follows_is_found_in_small_grids_too(
    inputs: Mapping[str, Sequence[int]],
    name: str,
    follows: Callable[[Mapping[str, Any]], int],
    tmp_path: Path,
) -> None:
    configs: list[dict[str, Any]] = [{}]
    for column, values in inputs.items():
        configs = [{**config, column: value} for config in configs for value in values]
    rows = [
        {
            **config,
            name: follows({"depth": 0, "base_filters": 0} | config),
            "images_per_s": 9.37 + n,
        }
        for n, config in enumerate(configs * 4)
    ]
    found = roles(guessed(rows, tmp_path / "jobs.csv"))
    assert found[name] == "derived", found


def test_what_follows_from_the_context_alone_is_of_the_context(tmp_path: Path) -> None:
    """Weights of a model and its positions, whatever else is tuned."""
    sizes = {"125m": 124_000_000, "350m": 354_000_000, "1b": 1_300_000_000}
    rows = [
        {"model": m, "n_params": sizes[m] + 768 * s, "seq_len": s, "micro_batch": b,
         "grad_accum": a, "tokens_per_s": 9e12 / sizes[m] * (1 + b / 90) + 1.37 * s / b + a}
        for m in sizes for s in (2048, 4096, 8192) for b in (1, 2, 4, 8, 12, 16) for a in (1, 2)
    ]  # fmt: skip
    found = roles(guessed(rows, tmp_path / "jobs.csv"))
    assert (found["n_params"], found["micro_batch"]) == ("context", "parameter")


def test_configurations_that_ran_several_times_make_nothing_follow(tmp_path: Path) -> None:
    rng = random.Random(7)
    configs = [
        {"lr": rng.uniform(1e-4, 1e-1), "batch_size": 2 ** rng.randrange(4, 9)}
        | {"dropout": rng.uniform(0, 0.5), "hidden_units": rng.choice([64, 128, 256])}
        for _ in range(12)
    ]
    rows = [{**config, "tokens_per_s": rng.uniform(100, 200)} for config in configs * 5]
    found = roles(guessed(rows, tmp_path / "jobs.csv"))
    assert "derived" not in found.values(), found


MEASURED = [
    *("gpu_power_mean_w", "completed", "completed_requests", "latency_std", "ttft_ci95", "itl_p99"),
    *("latency_median_ms", "peak_memory_gib", "max_memory_allocated", "gpu_util_avg", "MaxRSS"),
    *("power_draw_w", "step_time_p50", "throughput_stderr", "memory_used_gib"),
]


@pytest.mark.parametrize("name", MEASURED)
@pytest.mark.parametrize("values", [[304, 316, 364, 556], [40, 40, 40, 160], [7, 7, 7, 7]])
def test_what_was_measured_is_never_tuned_or_context(
    name: str, values: Sequence[int], tmp_path: Path
) -> None:
    rows = [
        {"gpu": "ab"[n % 2], "tp": 1 << n % 4, name: values[n % 4], "tok_s": 100 + 1.37 * n}
        for n in range(40)
    ]
    found = roles(guessed(rows, tmp_path / "jobs.csv"))
    assert found[name] in ("metric", "ignored"), found
    assert found["tok_s"] == "objective"


@pytest.mark.parametrize("name", ["power_cap_w", "memory_limit_gib", "init_std"])
def test_what_is_set_is_not_taken_for_measured(name: str, tmp_path: Path) -> None:
    rows = [
        {
            "gpu": "ab"[n % 2],
            "tp": 1 << n % 4,
            name: (300, 400)[n // 4 % 2],
            "tok_s": 100 + 1.37 * n,
        }
        for n in range(40)
    ]
    assert roles(guessed(rows, tmp_path / "jobs.csv"))[name] in ("parameter", "context")


NOTHING_TO_TUNE_BY: dict[str, Callable[[int], Any]] = {
    "pid": lambda n: 4_000 + n % 5,
    "hostname": lambda n: f"n{n % 3}",
    "node": lambda n: f"gpu-node-{n % 3:02}",
    "node_ip": lambda n: f"10.0.0.{n % 3}",
    "endpoint_url": lambda n: f"http://10.0.0.{n % 3}:8000/v1",
    "run_uuid": lambda n: f"6f9619ff-8b86-d011-b42d-00c04fc9{n % 4:04}",
    "artifact": lambda n: f"/scratch/run-{n % 3}/out.bin",
    "start": lambda n: f"{n % 24:02}:13:07",
    "logdir": lambda n: f"runs/{n % 3}",
    "digest": lambda n: f"9f86d081884c7d659a2feaa0c55ad01{n % 4}",
    "owner_email": lambda n: f"user{n % 3}@example.org",
}


@pytest.mark.parametrize("name", NOTHING_TO_TUNE_BY)
def test_what_machines_call_things_by_is_nothing(name: str, tmp_path: Path) -> None:
    rows = [
        {"gpu": "ab"[n % 2], "tp": 1 << n % 4, name: NOTHING_TO_TUNE_BY[name](n), "tok_s": 9.5 + n}
        for n in range(48)
    ]
    found = roles(guessed(rows, tmp_path / "jobs.csv"))
    assert found[name] in ("label", "ignored", "time", "user", "finished_at"), found
    assert found["gpu"] == "context"


@pytest.mark.parametrize(
    ("name", "value", "role"),
    [
        ("model_id", lambda n: ("small", "large")[n % 2], "context"),
        ("dataset_id", lambda n: n % 3, "context"),
        ("dataset_path", lambda n: f"/data/{('a', 'b')[n % 2]}/train", "context"),
        ("run_id", lambda n: 1_000 + n * 7919 % 997, "job_id"),
        ("sample_id", lambda n: f"s{n * 7919 % 1000}", "label"),
    ],
)
def test_ids_of_what_was_run_and_ids_of_rows(
    name: str, value: Callable[[int], Any], role: str, tmp_path: Path
) -> None:
    rows = [
        {"gpu": "A", name: value(n), "tp": 1 << n // 3 % 4, "tokens_per_second": 9.5 + 1.37 * n}
        for n in range(48)
    ]
    assert roles(guessed(rows, tmp_path / "jobs.csv"))[name] == role


@pytest.mark.parametrize("name", ["iter", "iteration", "sample", "run_no", "idx", "repeat #"])
@pytest.mark.parametrize("first", [0, 1])
def test_the_number_of_a_repeat_is_nothing(name: str, first: int, tmp_path: Path) -> None:
    rng = random.Random(1)
    rows = [
        {"gpu": gpu, "tp": tp, name: first + n, "tok_s": tp * 100 * rng.uniform(0.95, 1.05)}
        for gpu in ("A", "H")
        for tp in (1, 2, 4, 8)
        for n in range(5)
    ]
    assert roles(guessed(rows, tmp_path / "jobs.csv"))[name] in ("ignored", "label")


def test_a_full_grid_of_what_matters_is_no_number_of_repeats(tmp_path: Path) -> None:
    rows = [
        {"gpu": gpu, "tp": tp, "samples": 1 + n, "tok_s": tp * 100.5 * (1 + n)}
        for gpu in ("A", "H")
        for tp in (1, 2, 4, 8)
        for n in range(5)
    ]
    assert roles(guessed(rows, tmp_path / "jobs.csv"))["samples"] in ("context", "parameter")


@pytest.mark.parametrize(
    ("name", "goal", "unit"),
    [
        ("train/images_per_s", "maximize", "images/s"),
        ("perf/samples_per_sec", "maximize", "samples/s"),
        ("train/tokens/s", "maximize", "tokens/s"),
        ("perf/fps", "maximize", "frames/s"),
        ("time/train_step_ms", "minimize", "ms"),
        ("tokens/sec/gpu", "maximize", "tokens/s/GPU"),
        ("s/it", "minimize", "s/iteration"),
        ("cost/token", "minimize", None),
        ("eval/loss", "minimize", None),
        ("epoch/loss", "minimize", None),
        ("eval/samples_per_second", "maximize", "samples/s"),
        ("user/latency", "minimize", None),
        ("kernel/time/ms", "minimize", "ms"),
        ("GFLOPS/node", "maximize", "GFLOP/s/node"),
    ],
)
def test_a_slash_divides_a_path_or_two_quantities(name: str, goal: str, unit: str | None) -> None:
    assert (read_name(name).goal, read_name(name).goal_sure) == (goal, 0.9)
    assert unit is None or unit_of(name) == unit


@pytest.mark.parametrize(
    ("column", "value", "goal"),
    [
        ("Unit", "ms/op", "minimize"),
        ("scoreUnit", "ops/s", "maximize"),
        ("unit", "us", "minimize"),
        ("direction", "min", "minimize"),
        ("spec.goal", "MAXIMIZE", "maximize"),
        ("spec.objective.type", "minimize", "minimize"),
        ("score_unit", "ms", "minimize"),
    ],
)
def test_a_column_may_say_which_way_is_better(
    column: str, value: str, goal: str, tmp_path: Path
) -> None:
    rows = [{"threads": 1 + n % 4, "score": 1.37 * n + 9.51, column: value} for n in range(40)]
    guesses = guessed(rows, tmp_path / "jobs.csv")
    assert (guesses.objective.column.name, guesses.goal) == ("score", goal)
    assert guesses.goal_sure > 0.5


@pytest.mark.parametrize(
    ("column", "value"),
    [("budget_unit", "minutes"), ("elapsed_time_unit", "s"), ("scan_direction", "min to max")],
)
def test_what_is_said_of_something_else_says_nothing(
    column: str, value: str, tmp_path: Path
) -> None:
    rows = [{"threads": 1 + n % 4, "score": 1.37 * n + 9.51, column: value} for n in range(40)]
    guesses = guessed(rows, tmp_path / "jobs.csv")
    assert (guesses.objective.column.name, guesses.goal_sure) == ("score", 0.2)


def test_settings_loads_and_secrets_are_what_they_are(tmp_path: Path) -> None:
    rows = [
        {
            "spot": ("yes", "no")[n % 2],
            "users": (10, 100)[n // 2 % 2],
            "tp": 1 << n // 4 % 4,
            "env.DB_PASSWORD": ("a1", "b2")[n // 3 % 2],
            "tok_s": 9.51 + 1.37 * n,
        }
        for n in range(48)
    ]
    found = roles(guessed(rows, tmp_path / "jobs.csv"))
    assert found["spot"] in ("parameter", "context")
    assert found["users"] == "context"
    assert found["env.DB_PASSWORD"] == "ignored"  # noqa: S105 - a role


@hypothesis.given(st.text(st.sampled_from("a/s _tokensep."), max_size=30))
def test_any_name_is_read(name: str) -> None:
    read_name(name)


@pytest.mark.slow
def test_a_name_of_many_slashes_is_read_like_a_short_one() -> None:
    """With the square of its length this took minutes, beyond the limit of a test."""
    assert read_name("part/" * 40_000 + "tokens_per_s").goal == "maximize"


def test_an_author_is_no_secret(tmp_path: Path) -> None:
    rows = [
        {"author": f"a{n % 3}", "auth_header": f"h{n % 2}", "tp": 1 << n % 4, "tok_s": 9.51 + n}
        for n in range(48)
    ]
    found = roles(guessed(rows, tmp_path / "jobs.csv"))
    assert found["author"] != "ignored"
    assert found["auth_header"] == "ignored"


def test_errors_a_second_give_way_to_a_latency(tmp_path: Path) -> None:
    rows = [
        {"pool": 1 << n % 4, "errors/s": 0.51 * (n % 7), "latency/p50/ms": 9.51 + 1.37 * n}
        for n in range(48)
    ]
    guesses = guessed(rows, tmp_path / "jobs.csv")
    assert (guesses.objective.column.name, guesses.goal) == ("latency/p50/ms", "minimize")


def test_a_status_that_never_changes_gives_way_to_one_that_does(tmp_path: Path) -> None:
    rows = [
        {"sys/state": "done", "sys/failed": n % 9 == 0, "tp": 1 << n % 4, "tok_s": 9.51 + 1.37 * n}
        for n in range(48)
    ]
    found = roles(guessed(rows, tmp_path / "jobs.csv"))
    assert (found["sys/failed"], found["tp"]) == ("status", "parameter")


def test_names_beside_their_values_are_columns(tmp_path: Path) -> None:
    trials = [
        {
            "parameters": [{"parameterId": "batch", "value": 8 << n % 4}, *_threads(n)],
            "finalMeasurement": {
                "metrics": [{"metricId": "images_per_s", "value": 9.5 + 1.37 * n}]
            },
            "observation": {"metrics": [{"name": "loss", "latest": 0.5 / (1 + n), "max": 1.0}]},
        }
        for n in range(48)
    ]
    file = tmp_path / "trials.json"
    file.write_text(json.dumps({"name": "sweep", "trials": trials}))
    found = roles(guess(profile(open_table(file))))
    assert found["parameters.batch"] == found["parameters.threads"] == "parameter"
    assert found["finalMeasurement.metrics.images_per_s"] == "objective"
    assert found["observation.metrics.loss"] == "metric"


def _threads(n: int) -> list[dict[str, Any]]:
    return [{"parameterId": "threads", "value": 1 + n % 3}]


@pytest.mark.parametrize("name", ["Starttime", "start_time", "submittime"])
def test_a_start_in_one_word_is_no_measurement(name: str, tmp_path: Path) -> None:
    rows = [
        {name: 1_772_355_600.5 + 61 * n, "tp": 1 << n % 4, "tok_s": 9.51 + 1.37 * n}
        for n in range(48)
    ]
    assert roles(guessed(rows, tmp_path / "jobs.csv"))[name] in ("finished_at", "time")
