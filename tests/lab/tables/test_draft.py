"""Drafted studies: always sound, readable by what imports tables, and honest about each guess."""

import csv
import json
import random
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from tests.lab.tables.sketches import SKETCHES, sketched
from tests.lab.tables.synthetic import MAKERS, make, write
from tunerd.core.study import Study
from tunerd.core.study_file import parse_study
from tunerd.errors import MisconfiguredError
from tunerd.lab.tables.draft import draft, study_name
from tunerd.lab.tables.files import AS_IT_STANDS, ReadOptions, TableFile, TableRow, open_table
from tunerd.lab.tables.guess import UserAnswers, guess
from tunerd.lab.tables.mapping import TableReader, UnusableRow
from tunerd.lab.tables.profile import profile
from tunerd.lab.tables.values import status_in

NOTHING = UserAnswers()


def drafted(
    path: Path, given: UserAnswers = NOTHING, reading: ReadOptions = AS_IT_STANDS
) -> tuple[str, Study, TableFile]:
    table = open_table(path, reading)
    text = draft(guess(profile(table), given), study_name(path), path).text
    return text, parse_study(text), table


def written(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def outcomes(study: Study, table: TableFile) -> Counter[str]:
    """What import would make of the rows: the status, or why a row cannot be used."""
    reader = TableReader(study, study.mapping, table)
    found: Counter[str] = Counter()
    for row in table.rows():
        one = reader.observation(row)
        found[str(one) if isinstance(one, UnusableRow) else one.status.value] += 1
    return found


def test_commas_between_thousands_are_no_part_of_a_setting(tmp_path: Path) -> None:
    """As a category "1,024" would never be the 1024 of a job that comes."""
    rows = [
        {"batch": f"{512 << n % 4:,}", "tp": 1 << n % 3, "tokens_per_s": 100.5 + n}
        for n in range(60)
    ]
    text, study, table = drafted(written(tmp_path / "jobs.csv", rows))
    assert study.parameters[0].choices == (512, 1024, 2048, 4096)
    assert 'columns.batch = { column = "batch", format = "1,234.5" }' in text
    assert outcomes(study, table) == {"succeeded": 60}
    table_of_semicolons = tmp_path / "europe.csv"
    lines = [
        "batch;tp;tokens_per_s",
        *(f"{r['batch']};{r['tp']};{r['tokens_per_s']}" for r in rows),
    ]
    table_of_semicolons.write_text("\n".join(lines))
    _, study, table = drafted(table_of_semicolons)
    assert study.parameters[0].choices == (512, 1024, 2048, 4096)  # 100.5 has a decimal point
    assert outcomes(study, table) == {"succeeded": 60}


def test_results_in_lists_within_lists_are_to_be_named(tmp_path: Path) -> None:
    """As AutoTVM logs them; nobody can tell which of the numbers is meant."""
    rows = [{"tile": 1 << n % 3, "result": [[n + 0.5], 0, 3.1]} for n in range(20)]
    with pytest.raises(MisconfiguredError, match=r"result holds lists .*under a name of its own"):
        drafted(written(tmp_path / "tuning.jsonl", rows))


@pytest.mark.parametrize("name", [*MAKERS, *SKETCHES])
def test_every_row_of_a_table_can_be_imported(name: str, tmp_path: Path) -> None:
    made = make(name) if name in MAKERS else sketched(name)
    _, study, table = drafted(write(made, tmp_path / "jobs.csv"))
    assert study.mode == "observe"
    found = outcomes(study, table)
    assert set(found) <= {
        "succeeded",
        "out_of_memory",
        "failed",
        "timeout",
        "node_failure",
    }, found


# -- whatever table there is ---------------------------------------------------------------------

some_names = st.one_of(
    st.sampled_from(
        ["tp", "n_gpus", "model", "status", "time", "end_time", "tokens_per_s", "loss", "min"]
    ),
    st.sampled_from(
        ["job_id", "user", "peak_mem_gib", "config.tp", "metrics/x", "a.b", "and", " "]
    ),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
)
finite = st.floats(allow_nan=False, allow_infinity=False)
columns_of_values: st.SearchStrategy[st.SearchStrategy[Any]] = st.one_of(
    st.just(st.booleans()),
    st.just(st.integers(-(2**70), 2**70)),
    st.just(finite),
    st.just(finite.map(lambda number: abs(number) + 1e-3)),
    st.just(st.text(st.characters(exclude_categories=["Cs"]), max_size=5)),
    st.just(st.text("0123456789.-+e:TZ", max_size=8)),
    st.just(st.datetimes().map(lambda moment: moment.isoformat())),
    st.just(st.lists(st.sampled_from(["a", "b"]), min_size=2, max_size=2)),
    st.just(st.lists(st.integers(0, 3), max_size=3)),
    st.lists(st.integers(-5, 5_000), min_size=1, max_size=4).map(st.sampled_from),
    st.lists(finite, min_size=1, max_size=4).map(st.sampled_from),
    st.lists(st.sampled_from(["ok", "oom", "none", "true", "1", "x\n", '"']), min_size=1).map(
        st.sampled_from
    ),
)


@st.composite
def tables(draw: st.DrawFn) -> list[dict[str, Any]]:
    names = draw(st.lists(some_names, min_size=1, max_size=6, unique=True))
    kinds = {name: draw(columns_of_values) for name in names}
    gaps = {name: draw(st.booleans()) for name in names}
    count = draw(st.integers(0, 40))
    return [
        {name: draw(st.none() | kinds[name] if gaps[name] else kinds[name]) for name in names}
        for _ in range(count)
    ]


@pytest.mark.slow
@settings(
    max_examples=120,
    deadline=None,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
    ],
)
@given(tables(), st.sampled_from([".csv", ".jsonl"]))
def test_a_draft_is_sound_or_says_why_there_is_none(
    tmp_path: Path, rows: list[dict[str, Any]], suffix: str
) -> None:
    if not rows:
        return
    path = written(tmp_path / f"jobs{suffix}", rows)
    try:
        table = open_table(path)
        text = draft(guess(profile(table)), "any", path).text
    except MisconfiguredError as error:
        event(str(error)[-40:])
        return
    event("drafted")
    study = parse_study(text)
    assert tomllib.loads(text)["mode"] == "observe"
    reader = TableReader(study, study.mapping, table)
    for row in table.rows():
        reader.observation(row)


# -- what stands in a draft ----------------------------------------------------------------------


def speeds(count: int, seed: int = 0) -> list[float]:
    rng = random.Random(seed)
    return [rng.uniform(50, 150) for _ in range(count)]


def test_names_that_are_none_in_expressions(tmp_path: Path) -> None:
    rows = [
        {"Batch size (#)": n % 4 + 1, "größe": n % 3 + 1, "min": n % 5 + 1, "Speed [it/s]": speed}
        for n, speed in enumerate(speeds(60))
    ]
    _, study, table = drafted(written(tmp_path / "jobs.csv", rows))
    assert {parameter.name for parameter in study.parameters} == {"Batch_size", "grosse", "min_"}
    assert study.objective.metric == "Speed_it_s"
    assert study.objective.unit == "its/s" or study.objective.unit
    assert outcomes(study, table) == {"succeeded": 60}


def test_statuses_are_mapped_and_strange_ones_by_their_results(tmp_path: Path) -> None:
    words = ["fine", "CUDA OOM", "weird", "odd", "TIMEOUT"]
    rows = [
        {
            "tp": n % 3 + 1,
            "state": words[n % 5],
            "tokens_per_s": speed if words[n % 5] in ("fine", "odd") else None,
        }
        for n, speed in enumerate(speeds(50))
    ]
    text, study, table = drafted(written(tmp_path / "jobs.csv", rows))
    assert outcomes(study, table) == {
        "succeeded": 20,
        "out_of_memory": 10,
        "failed": 10,
        "timeout": 10,
    }
    assert "A GUESS, look at it, from whether there is a result: weird, odd." in text


def test_jobs_that_have_not_ended_have_not_failed(tmp_path: Path) -> None:
    words = ["COMPLETED", "RUNNING", "PENDING"]
    rows = [
        {"tp": n % 4 + 1, "state": words[n % 3], "tokens_per_s": None if n % 3 else speed}
        for n, speed in enumerate(speeds(60))
    ]
    _, study, table = drafted(written(tmp_path / "jobs.csv", rows))
    assert outcomes(study, table) == {"succeeded": 20, "cancelled": 40}


@pytest.mark.parametrize(
    ("column", "good", "bad", "status"),
    [
        ("oom", False, True, "out_of_memory"),
        ("success", True, False, "failed"),
        ("feasible", 1, 0, "out_of_memory"),
        ("exit_code", 0, 137, "failed"),
        ("crashed", 0, 1, "failed"),
    ],
)
def test_truth_and_codes_as_status(
    tmp_path: Path, column: str, good: Any, bad: Any, status: str
) -> None:
    rows = [
        {"tp": n % 3 + 1, column: bad if n % 4 == 0 else good, "tokens_per_s": speed}
        for n, speed in enumerate(speeds(60))
    ]
    _, study, table = drafted(written(tmp_path / "jobs.csv", rows))
    assert outcomes(study, table) == {"succeeded": 45, status: 15}


def test_words_where_the_speed_should_be_are_the_status(tmp_path: Path) -> None:
    rows = [
        {"tp": n % 3 + 1, "pp": n % 2 + 1, "tokens_per_s": "OOM" if n % 20 == 0 else speed}
        for n, speed in enumerate(speeds(100))
    ]
    text, study, table = drafted(written(tmp_path / "jobs.csv", rows))
    assert outcomes(study, table) == {"succeeded": 95, "out_of_memory": 5}
    assert "words where numbers belong" in text


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    rows = [
        {"tp": n % 3 + 1, "micro_batch": n % 4 + 1 if n % 4 else None, "tokens_per_s": speed}
        for n, speed in enumerate(speeds(60))
    ]
    text, _, _ = drafted(written(tmp_path / "jobs.csv", rows))
    assert "missing in 25 % of the rows" in text


def test_lists_repeat(tmp_path: Path) -> None:
    rng = random.Random(0)
    rows = [
        {"sharding": [rng.choice(["full", "none"]) for _ in range(8)], "tokens_per_s": speed}
        for speed in speeds(60)
    ]
    _, study, table = drafted(written(tmp_path / "jobs.jsonl", rows))
    (parameter,) = study.parameters
    assert (parameter.name, parameter.repeat, parameter.choices) == (
        "sharding",
        8,
        ("full", "none"),
    )
    assert outcomes(study, table) == {"succeeded": 60}


def test_values_and_scales(tmp_path: Path) -> None:
    rng = random.Random(0)
    rows = [
        {
            "gpu": rng.choice(["A100-40GB", "H100"]),
            "model_params": rng.choice([10**8, 10**9, 10**10]),
            "hbm_reserved": rng.choice([0.77, 0.78, 0.79, 0.8, 0.81, 0.82, 0.83]),
            "prefetch": rng.randrange(1, 12),
            "lr": 10 ** rng.uniform(-5, -2),
            "batch_size": rng.choice([8, 64, 512]),
            "loss_delta": rng.uniform(-1, 1),
        }
        for _ in range(300)
    ]
    text, study, _ = drafted(
        written(tmp_path / "jobs.csv", rows), UserAnswers("loss_delta", "minimize")
    )
    file = tomllib.loads(text)
    assert file["objective"]["scale"] == "linear"
    assert file["context"]["model_params"] == {"type": "int", "scale": "log"}
    parameters = file["parameters"]
    assert parameters["hbm_reserved"] == {"type": "float", "low": 0.77, "high": 0.83, "step": 0.01}
    assert parameters["prefetch"] == {"type": "int", "scale": "log", "low": 1, "high": 11}
    assert parameters["batch_size"] == {"type": "int", "scale": "log", "values": [8, 64, 512]}
    assert parameters["lr"]["scale"] == "log"
    assert {"low", "high"} <= set(parameters["lr"])
    assert "# A100-40GB = { tflops = 312, memory_gib = 40, link_gbs = 300 }" in text
    proposed = "\n".join(
        line.removeprefix("# ")
        for line in text.splitlines()
        if line.startswith(("# [lookup", "# A100", "# H100"))
    )
    assert set(tomllib.loads(proposed)["lookup"]["gpu"]) == {"A100-40GB", "H100"}
    assert study.objective.goal == "minimize"


def test_a_number_that_a_name_decides_is_no_key_of_its_own(tmp_path: Path) -> None:
    rng = random.Random(0)
    sizes = {"small": 10**8, "medium": 10**9, "large": 10**10}
    rows = []
    for speed in speeds(300):
        model = rng.choice(list(sizes))
        rows.append({
            "model": model,
            "n_params": int(sizes[model] * rng.uniform(1, 1.1)),
            "tp": rng.choice([1, 2, 4]),
            "tokens_per_s": speed,
        })  # fmt: skip
    text, study, _ = drafted(written(tmp_path / "jobs.csv", rows))
    keys = {feature.name: feature.key for feature in study.context}
    assert keys == {"model": "value", "n_params": "ignore"}
    assert "3 combinations in these rows" in text


def test_rules_stand_in_the_draft_and_bind_the_space(tmp_path: Path) -> None:
    from tunerd.core.space import SearchSpace

    rng = random.Random(0)
    rows = []
    for speed in speeds(200):
        gpus, tp = rng.choice([8, 16]), rng.choice([1, 2, 4, 8])
        rows.append({"n_gpus": gpus, "tp": tp, "dp": gpus // tp, "tokens_per_s": speed})
    _, study, _ = drafted(written(tmp_path / "jobs.csv", rows))
    assert [one.name for one in study.constraints] == ["makes_n_gpus"]
    table = SearchSpace(study, {"n_gpus": 8}).table(1_000)
    assert table is not None
    assert len(table) == 4


def test_what_follows_is_computed_and_stays_in_its_range(tmp_path: Path) -> None:
    from tunerd.core.space import SearchSpace

    rng = random.Random(0)
    cores = {"m5.large": 2, "m5.xlarge": 4, "m5.2xlarge": 8}
    rows = []
    for speed in speeds(300):
        kind, count = rng.choice(
            [(k, n) for k in cores for n in (1, 2, 4, 8) if cores[k] * n <= 16]
        )
        rows.append({
            "dataset": rng.choice(["a", "b"]),
            "instance_type": kind,
            "n_workers": count,
            "total_cores": count * cores[kind],
            "vcpus": cores[kind],
            "samples_per_s": speed,
        })  # fmt: skip
    _, study, table = drafted(written(tmp_path / "jobs.csv", rows))
    assert {one.name for one in study.derived} == {"total_cores", "vcpus"}
    assert [one.name for one in study.constraints] == ["total_cores_as_it_was"]
    space = SearchSpace(study, {"dataset": "a"}).table(1_000)
    assert space is not None
    assert len(space) == 4 + 3 + 2
    assert outcomes(study, table) == {"succeeded": 300}


def test_job_events_are_a_table_too(tmp_path: Path) -> None:
    rng = random.Random(0)
    rows = [
        {
            "schema": "tunerd.job/1",
            "event_id": f"e{n}",
            "study": "llm",
            "job_id": f"j{n}",
            "attempt": 1,
            "status": "succeeded" if n % 9 else "out_of_memory",
            "finished_at": f"2026-01-01T00:{n % 60:02}:00Z",
            "gpus": 8,
            "context": {"gpu": "H100", "n_gpus": 8},
            "config": {"tp": rng.choice([1, 2, 4, 8])},
            "metrics": {"tokens_per_s": speed},
        }
        for n, speed in enumerate(speeds(60))
    ]
    _, study, table = drafted(written(tmp_path / "jobs.jsonl", rows))
    assert {one.name for one in study.context} == {"gpu", "n_gpus"}
    assert [one.name for one in study.parameters] == ["tp"]
    assert study.objective.metric == "tokens_per_s"
    assert outcomes(study, table) == {"succeeded": 53, "out_of_memory": 7}
    event = TableReader(study, study.mapping, table).event(next(r for r in table.rows()))
    assert not isinstance(event, UnusableRow)
    assert (event["event_id"], event["gpus"], event["attempt"]) == ("e0", 8, 1)


def test_odd_texts_in_comments_and_values(tmp_path: Path) -> None:
    rows = [
        {
            "mode": ['a"b', "tab\there", "new\nline", "\x7f", "#", "é"][n % 6],
            "status\n[x]": "ok",
            "tokens_per_s": speed,
        }
        for n, speed in enumerate(speeds(60))
    ]
    _, study, table = drafted(written(tmp_path / "jobs.jsonl", rows))
    (parameter,) = study.parameters
    assert len(parameter.choices) == 6
    assert outcomes(study, table) == {"succeeded": 60}


@pytest.mark.slow
def test_a_large_table_takes_bounded_memory_and_little_time(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    rng = random.Random(0)
    with path.open("w") as file:
        file.write("job_id,tp,tokens_per_s\n")
        file.writelines(f"{n},{n % 4 + 1},{rng.uniform(1, 2):.6f}\n" for n in range(60_000))
    seen: list[int] = []
    found = profile(open_table(path), lambda done, _: seen.append(done))
    assert (found.rows, found.sampled) == (60_000, 20_000)
    assert len(found.column("job_id").counts) == 20_000
    assert found.column("tp").counts == dict.fromkeys((1, 2, 3, 4), 15_000)
    assert seen == sorted(seen)
    assert {row.number for row in open_table(path).rows() if isinstance(row, TableRow)} == set(
        range(1, 60_001)
    )


@pytest.mark.parametrize(
    ("word", "status"),
    [
        ("CANCELLED by 10000", "cancelled"),
        ("CANCELLED by alice", "cancelled"),
        ("COMPLETED (0:0)", "succeeded"),
        ("FAILED (exit code 137)", "failed"),
        ("Failed: exit 1", "failed"),
        ("failed - CUDA out of memory. Tried to allocate 2.00 GiB", "out_of_memory"),
        ("OOM on node17", "out_of_memory"),
        ("TIMEOUT after 3600 s", "timeout"),
        ("NODE_FAIL on n-17", "node_failure"),
        ("Preempted by job 4711", "preempted"),
        ("ERROR 42", "failed"),
        ("completed with errors", None),
        ("not completed", None),
    ],
)
def test_details_do_not_count_in_how_a_job_ended(word: str, status: str | None) -> None:
    assert status_in(word) == status


def test_meanings_are_counted_and_not_words(tmp_path: Path) -> None:
    ends = ["COMPLETED", "FAILED", "TIMEOUT", "OUT_OF_MEMORY"]
    rows = [
        {
            "threads": 1 << n % 4,
            "State": ends[n // 4 % 4] if n % 3 else f"CANCELLED by {10_000 + n}",
        }
        | {"throughput": 16.8 + 0.37 * n if n % 3 and n // 4 % 4 == 0 else ""}
        for n in range(160)
    ]
    text, study, table = drafted(written(tmp_path / "jobs.csv", rows))
    assert 'status = "State"  # how jobs ended; its 5 words are known' in text
    assert [one.name for one in study.parameters] == ["threads"]
    assert study.context == ()
    assert set(outcomes(study, table)) == {
        *("succeeded", "failed", "timeout", "out_of_memory", "cancelled")
    }


def test_words_that_differ_in_details_have_one_line(tmp_path: Path) -> None:
    rows = [
        {"threads": 1 << n % 4, "State": "ok" if n % 2 else f"evaporated on node{n}"}
        | {"throughput": 16.8 + 0.37 * n if n % 2 else ""}
        for n in range(60)
    ]
    text, study, table = drafted(written(tmp_path / "jobs.csv", rows))
    assert 'values = { evaporated = "failed" }' in text
    assert outcomes(study, table) == {"succeeded": 30, "failed": 30}


def test_what_sensors_say_is_measured(tmp_path: Path) -> None:
    rows = [
        {"batch": 8 << n % 3, "gpu_temp_c": 60 + n % 7, "gpu_util": 90 + n % 9, "tok/s": speed}
        for n, speed in enumerate(speeds(60))
    ]
    _, study, _ = drafted(written(tmp_path / "jobs.csv", rows))
    assert [one.name for one in study.parameters] == ["batch"]
    assert not study.context


def test_a_time_beside_a_loss_is_a_guess(tmp_path: Path) -> None:
    rows = [
        {"lr": [0.1, 0.01][n % 2], "val_loss": 1 / speed, "wall_s": 900 + speed}
        for n, speed in enumerate(speeds(40))
    ]
    text, study, _ = drafted(written(tmp_path / "jobs.csv", rows))
    assert study.objective.metric == "wall_s"
    assert "A GUESS, look at it" in text.partition("metric = ")[0].splitlines()[-1]
    assert "val_loss may be meant instead" in text


def test_what_a_short_random_search_drew_is_a_range(tmp_path: Path) -> None:
    rng = random.Random(3)
    rows = [
        {"learning_rate": 10 ** rng.uniform(-4, -1), "layers": n % 2 + 1, "loss": speed}
        for n, speed in enumerate(speeds(10))
    ]
    _, study, _ = drafted(written(tmp_path / "jobs.csv", rows))
    assert next(one for one in study.parameters if one.name == "learning_rate").ranged


def test_a_draft_spells_out_bytes_in_the_name_of_its_table(tmp_path: Path) -> None:
    rows = [{"threads": k % 3 + 1, "time_s": k + 0.25 * (k % 5)} for k in range(12)]
    text, _, _ = drafted(written(tmp_path / "x\udcff.csv", rows))
    assert "from x\\xff.csv" in text
