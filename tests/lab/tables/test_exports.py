"""Exports of other tools: each is recognised, and its columns are what the tool means by them.

The files in ``exports/`` are made up after what the tools write.
"""

import json
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.lab.tables.test_draft import drafted, outcomes
from tunerd.core.study_file import parse_study
from tunerd.errors import MisconfiguredError
from tunerd.lab.tables.draft import draft
from tunerd.lab.tables.exports import EXPORTERS
from tunerd.lab.tables.exports.command_lines import arguments_of
from tunerd.lab.tables.files import ReadOptions, TableRow, open_table
from tunerd.lab.tables.guess import TableGuess, UserAnswers, guess
from tunerd.lab.tables.mapping import TableReader, read_mapping, read_observations, reading_of
from tunerd.lab.tables.profile import profile

FILES = Path(__file__).parent / "exports"


@dataclass(frozen=True)
class Expected:
    """What a file must be read as."""

    key: str | None
    objective: str
    goal: str
    tuned: str
    """Names of the parameters in the study, in the order of the table."""
    context: str = ""
    jobs: Mapping[str, int] = field(default_factory=dict)
    """How many ended how."""
    finished: str | None = None
    job_id: str | None = None


OK = "succeeded"
EXPECTED = {
    "optuna_trials.csv": Expected(
        "optuna", "value", "minimize", "lr dropout hidden_dim", "", {OK: 20},
        "datetime_complete", "number"),
    "optuna_two_objectives.csv": Expected(
        "optuna", "values_0", "minimize", "optimizer lr momentum n_layers", "",
        {OK: 17, "cancelled": 5, "failed": 2}, "datetime_complete", "number"),
    "optuna_named_metric.csv": Expected(
        "optuna", "accuracy", "maximize", "lr n_layers", "", {OK: 20}, "datetime_complete",
        "number"),
    "optuna_multi_index.csv": Expected(
        "optuna", "value", "minimize", "lr dropout", "", {OK: 20}, "datetime_complete", "number"),
    "hyperfine.json": Expected(
        "hyperfine", "median_s", "minimize", "threads opt", "", {OK: 7, "failed": 1}),
    "hyperfine.csv": Expected("hyperfine", "median_s", "minimize", "threads opt", "", {OK: 8}),
    "google_benchmark.csv": Expected(
        "google_benchmark", "real_time_s", "minimize", "threads", "function arg1",
        {OK: 12, "failed": 1}),
    "google_benchmark.json": Expected(
        "google_benchmark", "real_time_s", "minimize", "threads", "function arg1", {OK: 12},
        "date"),
    "pytest_benchmark.json": Expected(
        "pytest_benchmark", "median_s", "minimize", "algo", "test n", {OK: 6}, "datetime"),
    "wandb_nested.csv": Expected(
        "wandb", "eval_acc", "maximize", "model_depth optim_lr", "", {OK: 30}, "Created"),
    "vllm.log": Expected(
        "serving", "output_throughput", "maximize", "tensor_parallel_size max_concurrency",
        "model request_rate", {OK: 9}),
    "vllm_summary.csv": Expected(
        "serving", "output_throughput", "maximize", "max_num_seqs tensor_parallel_size", "",
        {OK: 18}),
    "sglang_one_batch.jsonl": Expected(
        "serving", "overall_throughput", "maximize", "batch_size", "input_len", {OK: 18}),
    "ray_results.jsonl": Expected(
        "ray_tune", "mean_loss", "minimize", "lr bs model_layers model_act", "", {OK: 12},
        "timestamp", "trial_id"),
    "ray_progress.csv": Expected(
        "ray_tune", "mean_accuracy", "maximize", "lr batch", "", {OK: 10},
        "timestamp", "trial_id"),
    "ray_dataframe.csv": Expected(
        "ray_tune", "mean_accuracy", "maximize", "lr batch", "", {OK: 14},
        "timestamp", "trial_id"),
    "mlflow_runs.csv": Expected(
        "mlflow", "throughput", "maximize", "batch_size lr", "model gpu",
        {OK: 21, "failed": 4, "cancelled": 5}, "end_time", "run_id"),
    "mlflow_page.csv": Expected(
        "mlflow", "mae", "minimize", "alpha l1_ratio", "", {OK: 27}, "Start Time", "Run ID"),
    "wandb_page.csv": Expected(
        "wandb", "val_accuracy", "maximize", "batch_size learning_rate optimizer",
        "", {OK: 27, "failed": 4, "cancelled": 1}, "Created"),
    "wandb_api.csv": Expected(
        "wandb", "samples_per_sec", "maximize", "lr batch_size amp", "model_name model_layers",
        {OK: 25}, "summary._timestamp", "name"),
    "sacct_steps.csv": Expected(
        "sacct", "Elapsed", "minimize", "NNodes NCPUS", "", {OK: 15, "timeout": 5}, "End", "JobID"),
    "sacct_p.txt": Expected(
        "sacct", "ElapsedRaw", "minimize", "AllocCPUS", "",
        {OK: 16, "out_of_memory": 3, "timeout": 4, "cancelled": 2}, "End", "JobID"),
    "sacct.json": Expected(
        "sacct", "ElapsedRaw", "minimize", "NCPUS ReqMem", "",
        {OK: 22, "out_of_memory": 1, "timeout": 1}, "End", "JobID"),
    "pbs.log": Expected(
        "pbs", "walltime", "minimize", "chunks ncpus_per_chunk", "queue",
        {OK: 16, "timeout": 1, "out_of_memory": 1, "failed": 1, "cancelled": 1}, "end", "job_id"),
    "torque.log": Expected(
        "pbs", "walltime", "minimize", "nodes ppn", "queue",
        {OK: 13, "timeout": 2, "failed": 1}, "end", "job_id"),
    "parallel_joblog.log": Expected(
        "parallel", "JobRuntime", "minimize", "OMP_NUM_THREADS level fused", "",
        {OK: 21, "timeout": 1, "failed": 1, "cancelled": 1}, "finished_at"),
    "jmh.csv": Expected(
        "jmh", "s_per_op", "minimize", "threads impl", "benchmark mode size", {OK: 24}),
    "jmh.json": Expected(
        "jmh", "ops_per_s", "maximize", "threads impl jvm_arguments", "benchmark mode", {OK: 18}),
    "smac_runhistory.json": Expected(
        "smac", "cost", "minimize", "lr depth gamma", "budget",
        {OK: 30, "failed": 2, "timeout": 2, "out_of_memory": 2}, "endtime"),
    "smac_version_1.json": Expected(
        "smac", "cost", "minimize", "lr depth gamma", "",
        {OK: 15, "failed": 1, "timeout": 1, "out_of_memory": 1}, "endtime"),
    "go_bench.txt": Expected(
        "go_bench", "ns_per_op", "minimize", "gomaxprocs workers", "function size", {OK: 24}),
    "go_workers.txt": Expected(
        "go_bench", "ns_per_op", "minimize", "workers", "function size", {OK: 18}),
    "joblog_of_shells.log": Expected(
        "parallel", "JobRuntime", "minimize", "threads tol", "", {OK: 12}, "finished_at"),
    "joblog_of_pipes.log": Expected(
        "parallel", "JobRuntime", "minimize", "T level", "input",
        {OK: 17, "failed": 1}, "finished_at"),
    "criterion.csv": Expected(
        "criterion", "time_per_iteration_s", "minimize", "value", "function", {OK: 32}),
    "ncu.csv": Expected(
        "long", "Duration", "minimize", "Block_Size", "Kernel_Name Grid_Size", {OK: 16}),
    "autotvm.json": Expected(
        "autotvm", "time_s", "minimize", "tile_y tile_x tile_k auto_unroll", "",
        {OK: 25, "failed": 5}, "finished_at"),
    "results.md": Expected(
        None, "tokens_s", "maximize", "TP batch kv", "GPU", {OK: 24}),
    "benchmark_dotnet.csv": Expected(
        "benchmark_dotnet", "mean_ns", "minimize", "Method Server Threads", "Size",
        {OK: 23, "failed": 1}),
    "hpl.txt": Expected(
        "hpl", "gflops", "maximize", "NB P depth rfact", "N", {OK: 23, "failed": 1}, "finished_at"),
    "nccl_tests.log": Expected(
        "nccl_tests", "time_us", "minimize", "NCCL_ALGO NCCL_MIN_NCHANNELS", "size",
        {OK: 23, "failed": 1}),
    "kernel_tuner_cache.json": Expected(
        "kernel_tuner", "time", "minimize", "block_size_x tile vec",
        "device_name kernel_name problem_size", {OK: 33, "failed": 3}, "timestamp"),
    "kernel_tuner_open.json": Expected(
        "kernel_tuner", "time", "minimize", "block_size_x block_size_y use_padding",
        "device_name kernel_name problem_size", {OK: 10, "failed": 2}, "timestamp"),
    "kernel_tuner_cut.json": Expected(
        "kernel_tuner", "time", "minimize", "block_size_x block_size_y use_padding",
        "device_name kernel_name problem_size",
        {OK: 10, "failed": 1, "row: the file ends in the middle of it": 1}, "timestamp"),
    "kernel_tuner_t4.json": Expected(
        "kernel_tuner", "time", "minimize", "bx by", "", {OK: 8, "failed": 1}, "timestamp"),
    "vllm_sweep.csv": Expected(
        "serving", "output_throughput", "maximize", "tp max_concurrency",
        "model isl osl request_rate", {OK: 84}),
    "vllm_results.json": Expected(
        "serving", "output_throughput", "maximize", "max_concurrency tensor_parallel_size",
        "", {OK: 18}, "date"),
    "sglang.jsonl": Expected(
        "serving", "output_throughput", "maximize", "max_concurrency", "request_rate", {OK: 27}),
    "trtllm.json": Expected(
        "serving", "system_output_throughput_tok_s", "maximize", "tp_size max_batch_size", "",
        {OK: 12}),
    "trtllm.csv": Expected(
        "serving", "token_throughput_token_sec", "maximize", "tp max_batch_size", "", {OK: 27}),
    "fio.json": Expected(
        "fio", "iops", "maximize", "ioengine iodepth numjobs", "rw",
        {OK: 24, "failed": 1}, "timestamp"),
    "tfruns.csv": Expected(
        "tfruns", "eval_loss", "minimize", "dropout1 units batch_size", "", {OK: 26},
        "end", "run_dir"),
    "clearml.csv": Expected(
        "clearml", "validation_loss_Last", "minimize", "lr batch_size optimizer", "",
        {OK: 18, "failed": 2, "cancelled": 8}, "UPDATED"),
    "clearml_sections.csv": Expected(
        "clearml", "accuracy_val_max", "maximize", "lr batch_size", "layers",
        {OK: 16, "cancelled": 6, "failed": 2}, "UPDATED", "ID"),
    "clearml_hpo.csv": Expected(
        "clearml", "objective", "maximize", "lr layers", "", {OK: 20}, None, "task id"),
    "pgbench.log": Expected("pgbench", "tps", "maximize", "clients threads", "", {OK: 12}),
    "pgbench_old.log": Expected(
        "pgbench", "tps", "maximize", "shared_buffers clients", "", {OK: 12}),
    "sysbench.log": Expected(
        "sysbench", "transactions_per_s", "maximize", "threads", "table_size", {OK: 12}),
    "sysbench_cpu.log": Expected(
        "sysbench", "events_per_s", "maximize", "threads", "", {OK: 12}),
    "sklearn_cv_results.csv": Expected(
        "sklearn", "mean_fit_time", "minimize", "kernel max_leaf_nodes C", "", {OK: 8}),
    "sklearn_full.csv": Expected(
        "sklearn", "mean_test_score", "maximize", "svc_C svc_gamma svc_kernel", "", {OK: 12}),
    "header_in_the_middle.csv": Expected(
        None, "tokens_per_second", "maximize", "tp micro_batch", "", {OK: 36}),
    "state_31_words.csv": Expected(
        None, "throughput", "maximize", "threads", "", {OK: 60, "cancelled": 60}),
    "model_id.csv": Expected(
        None, "tokens_per_second", "maximize", "tp", "model_id", {OK: 8}),
}  # fmt: skip


NOTHING = UserAnswers()


def guessed(path: Path, given: UserAnswers = NOTHING) -> TableGuess:
    return guess(profile(open_table(path)), given)


@pytest.mark.parametrize("name", list(EXPECTED))
def test_each_export_is_read_as_its_tool_means_it(name: str) -> None:
    wanted, path = EXPECTED[name], FILES / name
    text, study, table = drafted(path)
    assert (table.export.key if table.export else None) == wanted.key
    if wanted.key:
        assert f'export = "{wanted.key}"' in text
        assert "recognised as" in table.told()[0]
    assert (study.objective.metric, study.objective.goal) == (wanted.objective, wanted.goal)
    tuned = [one.name for one in study.parameters if len(one.choices) > 1]
    assert tuned == wanted.tuned.split()
    context = {one.name for one in study.context}
    assert set(wanted.context.split()) <= context
    varying = {g.column.name for g in guessed(path).having("context") if g.column.distinct > 1}
    assert len(varying) <= len(wanted.context.split())
    found = {one.role: one.column.name for one in guessed(path).columns}
    assert found.get("finished_at") == wanted.finished
    if wanted.job_id:
        assert found["job_id"] == wanted.job_id
    assert outcomes(study, open_table(path, reading_of(study, study.mapping))) == wanted.jobs


def test_what_was_drawn_from_a_range_is_a_range() -> None:
    """The best of a random search lies between values that anybody would list."""
    text, study, _ = drafted(FILES / "optuna_trials.csv")
    lr, dropout, hidden = study.parameters
    assert (lr.scale, lr.continuous, dropout.continuous, hidden.continuous) == (
        *("log", True, True),
        False,
    )
    assert 'lr = { type = "float", scale = "log", low = 0.011285, high = 0.099773 }' in text


def test_the_registry_has_each_export_once() -> None:
    keys = [one.key for one in EXPORTERS]
    assert len(keys) == len(set(keys))
    assert {one.key for one in EXPECTED.values() if one.key} <= set(keys)


def test_fio_is_read_as_one_file_a_run_too_and_blocks_of_several_sizes_are_compared_by_bytes(
    tmp_path: Path,
) -> None:
    runs = [json.loads(line) for line in (FILES / "fio.json").read_text().splitlines()]
    for number, run in enumerate(runs):
        run["jobs"][0]["job options"]["bs"] = ("4k", "64k")[number % 2]
        (tmp_path / f"{number:02}.json").write_text(json.dumps(run, indent=2))
    table = open_table(tmp_path)
    assert table.export is not None
    assert table.export.key == "fio"
    assert guessed(tmp_path).objective.column.name == "bandwidth_bytes_s"
    whole = tmp_path / "all.json"
    whole.write_text(json.dumps(runs))
    assert len(list(open_table(whole).rows())) == 25


def test_what_fio_mixed_or_measured_long_ago_is_read(tmp_path: Path) -> None:
    read, write = {"iops": 700.0, "bw": 2800}, {"iops": 300.0, "bw": 1200, "bw_bytes": 1228800}
    job = {"jobname": "j", "error": 0, "read": read, "write": write}
    record = {"fio version": "fio-2.2.10", "jobs": [job | {"job options": {"iodepth": "4"}}]}
    path = tmp_path / "old.json"
    path.write_text(json.dumps(record, indent=1))
    (row,) = open_table(path).rows()
    assert isinstance(row, TableRow)
    assert (row.values["iops"], row.values["bandwidth_bytes_s"]) == (1000.0, 4096000.0)
    assert "latency_mean_s" not in row.values


# -- what a person says goes before what was recognised -------------------------------------------


def test_a_mapping_puts_right_what_was_recognised(tmp_path: Path) -> None:
    path = FILES / "ray_results.jsonl"
    assert len(list(open_table(path).rows())) == 12
    plain = open_table(path, ReadOptions(export="none"))
    assert (plain.export, len(list(plain.rows()))) == (None, 60)
    every = open_table(path, ReadOptions(reports="all"))
    assert len(list(every.rows())) == 60
    _, study, _ = drafted(path)
    mapping = tmp_path / "mapping.toml"
    mapping.write_text(
        'reports = "best"\njob_id = "trial_id"\n'
        'columns = { lr = "config.lr", bs = "config.bs", model_layers = "config.model.layers",'
        ' model_act = "config.model.act" }\n'
    )
    told = read_mapping(mapping, study)
    best = open_table(path, reading_of(study, told))
    jobs = read_observations(study, told, [best]).observations
    assert len(jobs) == 12
    lowest: dict[str, float] = {}
    for line in path.read_text().splitlines():
        row = json.loads(line)
        known = lowest.get(row["trial_id"], float("inf"))
        lowest[row["trial_id"]] = min(known, row["mean_loss"])
    assert {job.job_id: job.metrics["mean_loss"] for job in jobs} == lowest
    assert "by its best report" in " ".join(best.told())


@pytest.mark.parametrize(
    ("asked", "part"), [("optuna", "does not look like optuna"), ("optuma", "there is no 'optuma'")]
)
def test_an_export_that_it_is_not_is_refused(asked: str, part: str) -> None:
    with pytest.raises(MisconfiguredError) as caught:
        open_table(FILES / "model_id.csv", ReadOptions(export=asked))
    assert part in str(caught.value)


def test_a_person_overrules_an_export() -> None:
    path = FILES / "optuna_two_objectives.csv"
    found = guessed(path, UserAnswers("values_1", "maximize", {"params_n_layers": "context"}))
    roles = {one.column.name: one.role for one in found.columns}
    assert (roles["values_1"], roles["values_0"], found.goal) == ("objective", "metric", "maximize")
    assert roles["params_n_layers"] == "context"


# -- rows that are not jobs ------------------------------------------------------------------------


def read(path: Path, text: str) -> tuple[list[dict[str, object]], list[str]]:
    path.write_text(text)
    table = open_table(path)
    rows = list(table.rows())
    assert sorted(row.number for row in rows) == [row.number for row in rows]
    return [dict(row.values) for row in rows if isinstance(row, TableRow)], table.told()


def body(start: int = 0, stop: int = 12, ends: str = "\n") -> str:
    return "".join(f"{1 << n % 3},{n % 4 + 1},{100 + n}.5{ends}" for n in range(start, stop))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f"tp,mb,tps\n{body()}TP, MB, TPS\n",
         "line 14 is no job: the header again"),
        (f"tp,mb,tps\n{body(0, 6)}\ufefftp,mb,tps\n{body(6)}",
         "line 8 is no job: the header again"),
        (f"tp,mb,tps\n{body()}tp,mb,tps\n", "line 14 is no job: the header again"),
        (f"tp,mb,tps\n{body(0, 2)}tp,mb,tps\n{body(2, 4)}tp,mb,tps\n{body(4)}",
         "lines 4, 7 are no jobs: the header again"),
        (f"tp,mb,tps\n[-],[-],[tok/s]\n{body()}", "1 row is no job: units under the header"),
        (f"tp,mb,tps\nint,int,float\n{body()}", "1 row is no job: units under the header"),
        (f"tp,mb,tps\n-,-,req/s\n{body()}", "1 row is no job: units under the header"),
        (f"tp,mb,tps\n{body()}Total,,1300.0\n", "1 row is no job: a row of totals (Total)"),
        (f"tp,mb,tps\n{body()}mean,,105.0\n", "1 row is no job: a row of totals (mean)"),
        (f"# March\n# nodes: 4, \"new\ntp,mb,tps\n{body(0, 5)}# node 3 died\n{body(5)}",
         "lines 1, 2, 9 are no jobs: a comment"),
        (f"# tp,mb,tps\n{body()}", ""),
        (f"tp,mb,tps\n{body()},,\n\n,,\n", ""),
        (f"tp,mb,tps\n---,---,---\n{body()}(12 rows)\n", "line 15 is no job: a footer"),
        (f"tp,mb,tps,\n{body(ends=chr(44) + chr(10))}", ""),
    ],
)  # fmt: skip
def test_rows_that_are_no_jobs(tmp_path: Path, text: str, told: str) -> None:
    rows, lines = read(tmp_path / "jobs.csv", text)
    assert [float(str(row["tps"])) for row in rows] == [100.5 + n for n in range(12)]
    assert all(set(row) == {"tp", "mb", "tps"} for row in rows)
    assert told in lines if told else not lines


def test_a_header_of_two_lines(tmp_path: Path) -> None:
    """pandas writes grouped columns so, and Optuna with ``multi_index=True``."""
    text = ",number,value,params,params,state\n,,,lr,dropout,\n0,0,0.5,0.1,0.2,COMPLETE\n"
    rows, _ = read(tmp_path / "jobs.csv", text)
    assert rows == [
        {"column_1": "0", "number": "0", "value": "0.5", "params_lr": "0.1",
         "params_dropout": "0.2", "state": "COMPLETE"}
    ]  # fmt: skip


def test_a_second_header_may_name_other_columns(tmp_path: Path) -> None:
    """Rows under it are read by its names: else a speed would be taken for a setting."""
    text = "tp,mb,tps\n1,2,10.5\n2,2,20.5\n4,2,30.5\nmb,tps,tp,note\n8,11.5,1,x\n8,21.5,2,y\n"
    rows, told = read(tmp_path / "jobs.csv", text)
    assert rows[-1] == {"tp": "2", "mb": "8", "tps": "21.5"}
    assert told == ["line 5 is no job: the header again"]


@pytest.mark.parametrize("word", ["mean", "max", "all", "total"])
def test_a_setting_may_be_called_like_a_total(tmp_path: Path, word: str) -> None:
    words = [word, "none"]
    text = "pool,tp,tps\n" + "".join(f"{words[n % 2]},{n % 3 + 1},{n}.5\n" for n in range(12))
    rows, told = read(tmp_path / "jobs.csv", text)
    assert (len(rows), told) == (12, [])


def test_a_word_among_speeds_is_no_unit(tmp_path: Path) -> None:
    rows, told = read(tmp_path / "jobs.csv", f"tp,mb,tps\n1,1,OOM\n{body()}")
    assert (rows[0], told) == ({"tp": "1", "mb": "1", "tps": "OOM"}, [])


@pytest.mark.parametrize(
    ("units", "value"),
    [("Stück;Tokens/s", "12,5"), ("-;[hh:mm:ss]", "00:12:02"), ("int;(GiB)", "16G")],
)
def test_units_above_numbers_in_any_notation(tmp_path: Path, units: str, value: str) -> None:
    text = f"tp;x\n{units}\n" + "".join(f"{n % 3 + 1};{value}\n" for n in range(12))
    rows, told = read(tmp_path / "jobs.csv", text.replace("Stück", "-"))
    assert (len(rows), told) == (12, ["1 row is no job: units under the header"])


def test_units_under_the_header_are_those_of_the_study(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(f"tp,mb,throughput\n[-],[-],[tok/s]\n{body()}")
    _, study, _ = drafted(path)
    assert study.objective.unit == "tok/s"


def test_steps_are_joined_into_their_jobs() -> None:
    rows = [
        row for row in open_table(FILES / "sacct_steps.csv").rows() if isinstance(row, TableRow)
    ]
    assert len(rows) == 20
    assert {row.values["MaxRSS"] for row in rows} == {"3532K"}
    assert all(str(row.values["JobID"]).isdigit() for row in rows)
    assert all(row.values["JobName"] == "train" for row in rows)
    largest = [row.values["MaxRSS"] for row in open_table(FILES / "sacct_p.txt").rows()
               if isinstance(row, TableRow)]  # fmt: skip
    assert all(str(one).endswith("G") for one in largest)


def test_a_job_that_failed_at_once_is_not_fast() -> None:
    """Slurm knows a time of each job; only who completed did the work in it."""
    rows = [
        row.values for row in open_table(FILES / "sacct_p.txt").rows() if isinstance(row, TableRow)
    ]
    timed = {str(row["State"]) for row in rows if row["ElapsedRaw"] is not None}
    assert (timed, len({str(row["State"]) for row in rows})) == ({"COMPLETED"}, 4)


FIXED = """
JobID           JobName  AllocCPUS      State ExitCode    Elapsed             End
------------ ---------- ---------- ---------- -------- ---------- ---------------
4000              train          4  COMPLETED      0:0   00:20:00 2026-03-01T00:1
4000.batch        batch          4  COMPLETED      0:0   00:20:00 2026-03-01T00:1
4001              train          8 OUT_OF_ME+    0:125   00:01:00 2026-03-01T00:1
4002              train          8  COMPLETED      0:0   00:10:00 2026-03-01T00:1
"""


PBS = (
    "03/01/2026 09:00:00;E;{}.pbs;user=a jobname={} {} Exit_status={} resources_used.walltime={}\n"
)


def test_a_job_of_pbs_is_read_whatever_it_asked_for(tmp_path: Path) -> None:
    """Chunks that differ stay text; Torque's own codes are PBS's for something else."""
    asked = "end=1772359999 Resource_List.walltime=01:00:00 Resource_List.select="
    path = tmp_path / "20260301"
    path.write_text(
        PBS.format(1, "my run", f"{asked}1:ncpus=8+2:ncpus=4", 0, "00:05:00")
        + PBS.format(2, '"a b=c"', f"{asked}2:ncpus=8:fast", 271, "01:00:00")
        + PBS.format("3[7]", "'x'", f"owner=a@h {asked}2:ncpus=8", -10, "00:00:01")
        + PBS.format(4, "x", asked.replace("end", "nd"), "", "")
    )
    table = open_table(path)
    assert table.export is not None
    assert table.export.key == "pbs"
    rows = [row.values for row in table.rows() if isinstance(row, TableRow)]
    assert [row["jobname"] for row in rows] == ["my run", "a b=c", "x", "x"]
    assert [row["status"] for row in rows] == ["succeeded", "timeout", "out_of_memory", None]
    assert [row["resources_used.walltime"] for row in rows] == ["00:05:00", None, None, None]
    assert rows[0]["Resource_List.select"] == "1:ncpus=8+2:ncpus=4"
    assert (rows[1]["select.count"], rows[1]["select.ncpus"], rows[1]["select.fast"]) == (
        *("2", "8"),
        True,
    )


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("./train --batch 8 --lr=-1e-3 --amp", "program=./train batch=8 lr=-1e-3 amp=true"),
        ("A=1 cmd -t4 -v -n -2 x | tee -a log", "A=1 program=cmd t=4 v=true n=-2 arg1=x"),
        ("cd w && python run.py model=big opt.lr=1 --dry-run > o", "program=python arg1=run.py"
         " model=big opt.lr=1 dry_run=true"),
        ("java -Xmx4g -threads 4 -- a", "program=java Xmx4g=true threads=4 arg1=a"),
        ("db --password hunter2 API_KEY=k --db-token=t", "program=db"),
        ("mpirun -np 8 -x NCCL_ALGO=Ring -x NCCL_NTHREADS=2 ./perf", "program=mpirun np=8"
         " NCCL_ALGO=Ring NCCL_NTHREADS=2 arg1=./perf"),
        ("cat f.txt | xz -T1 -6 | wc -c", "input=f.txt program=xz T=1 level=6"),
        ("bash -c 'module load x; ./solve --threads 4 < in | tee log; echo done'",
         "program=./solve threads=4"),
        ("env A=1 sh -xc 'time ./a -O3' b", "A=1 program=./a O=3"),
        ("bash run.sh 4", "program=bash arg1=run.sh arg2=4"),
        ("echo 'it", ""),
        ("", ""),
        ("x " + "y" * 5_000, ""),
    ],
)  # fmt: skip
def test_what_a_command_sets(command: str, arguments: str) -> None:
    assert arguments_of(command) == dict(word.split("=", 1) for word in arguments.split())


def test_bytes_in_a_log_that_are_no_text_end_no_import(tmp_path: Path) -> None:
    """No event can hold them; a job with a strange name is a job."""
    lines = "".join(
        PBS.format(
            n, "x\udc81\udcff", f"end=1772359{n:03} Resource_List.ncpus={1 << n % 3}", 0, n + 9
        )
        for n in range(12)
    )
    path = tmp_path / "pbs"
    path.write_bytes(lines.encode(errors="surrogateescape"))
    _, study, table = drafted(path)
    reader = TableReader(study, study.mapping, table)
    events = [reader.event(row) for row in table.rows()]
    assert [isinstance(event, dict) and event["labels"]["jobname"] for event in events] == [
        "x��"
    ] * 12


@pytest.mark.parametrize(
    ("mode", "score", "unit", "rate", "time"),
    [
        ("thrpt", "2000", "ops/ms", 2e6, 5e-7),
        ("avgt", '"2,5"', "us/op", 4e5, 2.5e-6),
        ("ss", "2", "min/op", 1 / 120, 120),
        ("avgt", "0", "s/op", None, None),
        ("avgt", "NaN", "s/op", None, None),
        ("thrpt", "12", "MB/sec", None, None),
    ],
)
def test_scores_of_jmh_are_of_one_unit(
    tmp_path: Path, mode: str, score: str, unit: str, rate: float | None, time: float | None
) -> None:
    path = tmp_path / "results.csv"
    path.write_text(f"Benchmark,Mode,Threads,Samples,Score,Unit\na.B.c,{mode},1,5,{score},{unit}\n")
    (row,) = open_table(path).rows()
    assert isinstance(row, TableRow)
    assert row.values["ops_per_s"] == pytest.approx(rate)
    assert row.values["s_per_op"] == pytest.approx(time)


def test_trials_of_smac_are_read_as_each_version_wrote_them(tmp_path: Path) -> None:
    """Version 2 wrote lists of ten, then of eleven, then objects; a cost may be several."""
    trials = [
        [1, None, 0, 5.0, [0.5, 3], 1.5, 1, 1772355600, 1772355630, {}],
        [1, "a", 0, 5.0, [0.25, 4], 1.5, 1.4, 4, 1772355600, 0, {}],
        [2, "a", 1, None, [0.125, 5], 1.5, 1.4, 0, 1772355600, 0, {}],
    ]
    path = tmp_path / "runhistory.json"
    path.write_text(json.dumps({"data": trials, "configs": {"1": {"lr": 0.1}}}, indent=2))
    rows = [row.values for row in open_table(path).rows() if isinstance(row, TableRow)]
    assert [(row["config.lr"], row["status"], row["endtime"]) for row in rows] == [
        (0.1, "succeeded", 1772355630),
        (0.1, "out_of_memory", None),
    ]
    assert [(row["cost_0"], row["cost_1"]) for row in rows[:1]] == [(0.5, 3)]


def test_what_programs_print_among_benchmarks_of_go_says_nothing_of_them(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    path.write_text(
        "commit: abc\npkg: a\nBenchmarkX/sort/n-1 5 2 ns/op\nnote: 7\nBenchmarkX 9\n"
        "pkg: b\nBenchmarkX/k=a=b-2\t5\t2.5e3 ns/op 7.5 p99-ns\n"
    )
    rows = [row.values for row in open_table(path).rows() if isinstance(row, TableRow)]
    first = {"commit": "abc", "pkg": "a", "function": "X", "gomaxprocs": 1, "ns/op": 2}
    assert rows[0] == first | {
        "arg.arg1": "sort", "arg.arg2": "n", "arg.k": None, "p99-ns": None
    }  # fmt: skip
    assert rows[1] == first | {
        "pkg": "b",
        "gomaxprocs": 2,
        "arg.k": "a=b",
        "ns/op": 2500.0,
        "p99-ns": 7.5,
        "arg.arg1": None,
        "arg.arg2": None,
    }


def test_of_several_tables_in_markdown_the_longest_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short, long = "a | b\n--|--\n1 | 2\n", "||mb|tps|\n|:-|-|-:|\n|1|`2`| **3.5** |\n|1||7|\n||||\n"
    path = tmp_path / "README.md"
    for most, text in ((1_000, short + "\n" + long), (3, long + "x\n" + short + "\n" + long)):
        monkeypatch.setattr("tunerd.lab.tables.exports.markdown.MOST_HELD", most)
        path.write_text(text)
        rows = [row.values for row in open_table(path).rows() if isinstance(row, TableRow)]
        assert rows[0] == {"column_1": "1", "mb": "2", "tps": "3.5"}
        assert rows[1] == {"column_1": "1", "mb": None, "tps": "7"}
        assert len(rows) == 2 * text.count("7")


@pytest.mark.parametrize(
    ("text", "mean", "allocated"),
    [
        ("Method;Mean;Error;Allocated\nA;1.234,5 us;0,1 us;2 KB\n", 1_234_500, 2_048),
        ("Method;Mean;Error;Allocated\nA;1'234 ns;1 ns;2,5 MB\n", 1_234, 2_621_440),
        ("Method;Mean [ms];Error [ms];Allocated [B]\nA;1,234.5;0.1;-\n", 1_234_500_000, None),
        ("| Method | Mean | Error |Median|\n|--|--:|--:|--:|\n|A| 2 s |1 s|1 s|\n", 2e9, None),
    ],
)  # fmt: skip
def test_a_mean_of_benchmark_dotnet_is_in_nanoseconds(
    tmp_path: Path, text: str, mean: float, allocated: float | None
) -> None:
    path = tmp_path / "report.csv"
    path.write_text(text)
    table = open_table(path)
    assert table.export is not None
    assert table.export.key == "benchmark_dotnet"
    (row,) = table.rows()
    assert isinstance(row, TableRow)
    assert (row.values["Mean"], row.values.get("Allocated")) == (mean, allocated)


def test_means_without_a_unit_are_of_another_tool(tmp_path: Path) -> None:
    path = tmp_path / "means.csv"
    path.write_text("Method,Mean,Median,StdDev\nA,1.5,1.4,0.1\nB,2.5,2.4,0.1\n")
    assert open_table(path).export is None


def test_processes_of_linpack_are_split_as_there_are_some(tmp_path: Path) -> None:
    """P times Q is how many processes there are: no study may ask for more."""
    head = "T/V                N    NB     P     Q               Time                 Gflops\n"
    path = tmp_path / "HPL.out"
    path.write_text(
        "".join(
            f"{head}WC0  40000 {nb} {p} {ranks // p} 8.80 {nb * p + n / 7:.4e} ( 7.6e+03)\n"
            for n, (nb, p, ranks) in enumerate(
                (nb, p, ranks) for nb in (96, 192) for ranks in (4, 8, 16) for p in (1, 2, 4)
            )
        )
    )
    text, study, _ = drafted(path)
    assert [one.name for one in study.parameters] == ["NB", "P", "Q"]
    assert 'makes_ranks = "P * Q == ranks"' in text


def test_runs_of_nccl_tests_have_what_was_set_above_them(tmp_path: Path) -> None:
    run = (
        "# Collective test starting: all_gather_perf\n# nThread 1 nGpus 1 minBytes 8\n"
        "#  Rank  0 Group  0 Pid  1 on n1 device  0 [0x07] A100\n"
        "#  size  count  type  redop  time  algbw  busbw  error\n"
        "  8  2  float  sum  {}  0.01  0.01  0e+00\n"
    )
    path = tmp_path / "job.out"
    path.write_text(
        "export NCCL_PROTO=LL\n$ mpirun -np 2 ./all_gather_perf -b 8 -g 1\n"
        + run.format("20.5")
        + "NCCL_PROTO=Simple\n"
        + run.format("30.5")
    )
    rows = [row.values for row in open_table(path).rows() if isinstance(row, TableRow)]
    assert [
        (
            row["option.NCCL_PROTO"],
            row["option.np"],
            row["collective"],
            row["ranks"],
            row["time_us"],
        )
        for row in rows
    ] == [("LL", "2", "all_gather", 1, 20.5), ("Simple", "2", "all_gather", 1, 30.5)]


def test_columns_of_fixed_width(tmp_path: Path) -> None:
    """As sacct writes them without -P."""
    path = tmp_path / "sacct.txt"
    path.write_text(FIXED.lstrip())
    table = open_table(path)
    assert table.export is not None
    assert table.export.key == "sacct"
    rows = [row.values for row in table.rows() if isinstance(row, TableRow)]
    assert [row["JobID"] for row in rows] == ["4000", "4001", "4002"]
    assert [row["AllocCPUS"] for row in rows] == ["4", "8", "8"]
    assert [row["Elapsed"] for row in rows] == ["00:20:00", None, "00:10:00"]


def test_numbers_of_rows_rise_where_rows_are_joined(tmp_path: Path) -> None:
    """An import that was killed goes on behind the last number."""
    lines = (FILES / "sacct_steps.csv").read_text().splitlines()
    path = tmp_path / "sacct.txt"
    path.write_text("\n".join([*lines[:3], "a line|that is no row", *lines[3:]]))
    numbers = [row.number for row in open_table(path).rows()]
    assert numbers == list(range(1, 22))


def test_reports_of_a_run_are_one_job(tmp_path: Path) -> None:
    rng = random.Random(0)
    lines = ["run_id,epoch,batch_size,loss,samples_per_s"]
    for run in range(9):
        size = rng.choice([8, 16, 32])
        lines += [f"r{run},{e},{size},{1 / e + run / 100},{size * 9 + e}.5" for e in range(1, 5)]
    rng.shuffle(body_ := lines[1:])
    rows, told = read(tmp_path / "sorted.csv", "\n".join(lines))
    assert [row["epoch"] for row in rows] == ["4"] * 9
    assert "27 rows are no jobs: an earlier report of a run" in told
    mixed = tmp_path / "mixed.csv"
    mixed.write_text("\n".join([lines[0], *body_]))
    table = open_table(mixed, ReadOptions(export="reports"))
    found = [row.values for row in table.rows() if isinstance(row, TableRow)]
    assert Counter(str(row["epoch"]) for row in found) == {"4": 9}


def test_runs_without_a_name_end_where_their_epochs_begin_anew(tmp_path: Path) -> None:
    lines = ["Epoch,lr,batch,loss"]
    for run in range(8):
        lr, batch = [0.1, 0.01][run % 2], 8 << run % 3
        lines += [f"{e},{lr},{batch},{1 / e + run / 100:.4f}" for e in range(1, 6 - run % 2)]
    rows, told = read(tmp_path / "jobs.csv", "\n".join(lines))
    assert [row["Epoch"] for row in rows] == ["5", "4"] * 4
    assert "28 rows are no jobs: an earlier report of a run" in told


def test_repeats_of_a_configuration_are_jobs(tmp_path: Path) -> None:
    """A benchmark that counts its repeats has measured each of them."""
    lines = ["block,iteration,time_ms"]
    lines += [f"{16 << n // 5 % 3},{n % 5},{n * 7 % 31}.5" for n in range(45)]
    rows, told = read(tmp_path / "jobs.csv", "\n".join(lines))
    assert (len(rows), told) == (45, [])


def test_one_trial_alone_is_no_study(tmp_path: Path) -> None:
    first = (FILES / "ray_results.jsonl").read_text().splitlines()[:5]
    path = tmp_path / "result.json"
    path.write_text("\n".join(first))
    with pytest.raises(MisconfiguredError) as caught:
        drafted(path)
    assert "name the folder of all of them" in str(caught.value)


def test_runs_with_settings_that_change_are_jobs_of_their_own(tmp_path: Path) -> None:
    """Where a job changes its batch from report to report, each report measured something."""
    lines = ["run_id,step,batch,samples_per_s"]
    lines += [f"r{n // 4},{n % 4},{8 << n % 3},{n}.5" for n in range(40)]
    rows, _ = read(tmp_path / "jobs.csv", "\n".join(lines))
    assert len(rows) == 40


# -- JSON documents --------------------------------------------------------------------------------

RECORDS = [{"config": {"tp": 1 << n % 3, "mb": n % 4 + 1}, "tokens_per_s": n + 0.5}
           for n in range(18)]  # fmt: skip


@pytest.mark.parametrize(
    "document",
    [
        json.dumps(RECORDS),
        json.dumps(RECORDS, indent=2),
        json.dumps({"machine": "a", "results": RECORDS}, indent=1),
        json.dumps({f"run{n}": record for n, record in enumerate(RECORDS)}),
        "\n".join(json.dumps(record, indent=4) for record in RECORDS),
        "".join(json.dumps(record) for record in RECORDS),
        json.dumps([*RECORDS, RECORDS[0]], indent=2)[:-40],
        json.dumps(
            {
                "config.tp": [r["config"]["tp"] for r in RECORDS],  # type: ignore[index]
                "config.mb": [r["config"]["mb"] for r in RECORDS],  # type: ignore[index]
                "tokens_per_s": [r["tokens_per_s"] for r in RECORDS],
            }
        ),
    ],
    ids=["array", "indented", "results", "keyed", "stream", "run together", "no end", "columns"],
)
def test_json_that_is_no_json_lines(tmp_path: Path, document: str) -> None:
    path = tmp_path / "jobs.json"
    path.write_text(document)
    _, study, table = drafted(path)
    assert {one.name for one in study.parameters} == {"tp", "mb"}
    found = outcomes(study, table)
    assert found.pop("row: the file ends in the middle of it", 0) <= 1
    assert found == {"succeeded": 18}


def test_a_document_that_is_too_large_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tunerd.lab.tables.documents.MAX_DOCUMENT", 100)
    path = tmp_path / "jobs.json"
    path.write_text(json.dumps(RECORDS))
    with pytest.raises(MisconfiguredError) as caught:
        open_table(path)
    assert "jq" in str(caught.value)


# -- folders ---------------------------------------------------------------------------------------


def in_folder(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_store_of_mlflow_is_a_table(tmp_path: Path) -> None:
    store = tmp_path / "mlruns"
    in_folder(store / "1" / "meta.yaml", "experiment_id: '1'\nname: exp\n")
    for n in range(20):
        run = store / "1" / f"{n:032x}"
        ends = f"end_time: {1740000030000 + n}\nstatus: {4 if n == 7 else 3}\n"
        in_folder(run / "meta.yaml", f"run_id: {run.name}\nexperiment_id: '1'\n{ends}")
        in_folder(run / "params" / "batch_size", str(8 << n % 3))
        in_folder(run / "params" / "lr", ["0.1", "0.01"][n % 2])
        if n != 7:
            in_folder(run / "metrics" / "val_loss", f"1 9.5 0\n2 {1 + n / 9} 1\n")
    _, study, table = drafted(store)
    assert table.export is not None
    assert table.export.key == "mlflow"
    assert [one.name for one in study.parameters] == ["batch_size", "lr"]
    assert (study.objective.metric, study.objective.goal) == ("val_loss", "minimize")
    assert outcomes(study, table) == {"succeeded": 19, "failed": 1}
    losses = {row.values["metrics.val_loss"] for row in table.rows() if isinstance(row, TableRow)}
    assert "9.5" not in losses  # the last value of a metric counts
    fingerprint = open_table(store).fingerprint
    in_folder(store / "1" / f"{0:032x}" / "params" / "lr", "0.5")
    assert open_table(store).fingerprint != fingerprint


def test_a_folder_of_trials_is_a_table(tmp_path: Path) -> None:
    for n in range(12):
        trial = tmp_path / f"train_{n:05}"
        in_folder(
            trial / "params.json", json.dumps({"lr": [0.1, 0.01][n % 2], "width": 8 << n % 3})
        )
        reports = [
            {"loss": 1 / (i + 1) + n, "training_iteration": i + 1, "time_total_s": i + 0.5,
             "timestamp": 1740000000 + 100 * n + i, "pid": n, "done": i == 3}
            for i in range(4)
        ]  # fmt: skip
        in_folder(trial / "result.json", "".join(json.dumps(one) + "\n" for one in reports))
        in_folder(trial / "progress.csv", "loss\n1\n")
    outside = tmp_path.parent / "outside.json"
    outside.write_text('{"loss": 1}')
    (tmp_path / "result.json").symlink_to(outside)  # a link is not followed
    _, study, table = drafted(tmp_path)
    assert [one.name for one in study.parameters] == ["lr", "width"]
    assert outcomes(study, table) == {"succeeded": 12}


def test_a_folder_with_a_json_file_for_each_run_is_a_table(tmp_path: Path) -> None:
    for n, record in enumerate(RECORDS):
        in_folder(tmp_path / f"run{n:02}.json", json.dumps(record, indent=2))
    in_folder(tmp_path / "broken.json", "{")
    _, study, table = drafted(tmp_path)
    assert {one.name for one in study.parameters} == {"tp", "mb"}
    found = outcomes(study, table)
    assert found.pop("succeeded") == 18
    assert list(found.values()) == [1]


SYSBENCH = """+ sysbench oltp_read_write --tables=10 --threads={0} run
sysbench 1.0.20 (using bundled LuaJIT 2.1.0-beta2)

Running the test with following options:
Number of threads: {0}
{1}
"""


def test_runs_in_a_log_that_came_to_nothing(tmp_path: Path) -> None:
    """One that says why failed; one that just ends was cut short."""
    good = "    transactions:   5000   (83.10 per sec.)\n    total time:  60.0s"
    runs = [(8, good), (512, "FATAL: mysql_stmt_prepare() failed"), (16, good), (32, "")]
    path = tmp_path / "sysbench.log"
    path.write_text("".join(SYSBENCH.format(*run) for run in runs))
    rows = [row.values for row in open_table(path).rows() if isinstance(row, TableRow)]
    assert [(row["sysbench.threads"], row["status"]) for row in rows] == [
        (8, "succeeded"),
        (512, "failed"),
        (16, "succeeded"),
        (32, "cancelled"),
    ]


def test_options_of_a_log_hold_no_secret() -> None:
    text = (FILES / "sysbench.log").read_text()
    assert "--mysql-password=secret" in text
    rows = [
        row.values for row in open_table(FILES / "sysbench.log").rows() if isinstance(row, TableRow)
    ]
    assert "secret" not in json.dumps(rows)
    for name in ("vllm.log", "parallel_joblog.log"):
        assert "sk-123" in (FILES / name).read_text()
        rows = [row.values for row in open_table(FILES / name).rows() if isinstance(row, TableRow)]
        assert "sk-123" not in json.dumps(rows)


def test_a_draft_of_an_export_reads_another_of_its_kind() -> None:
    """One trial more, with one report: what was recognised stands in the mapping."""
    made = draft(guessed(FILES / "ray_results.jsonl"), "any", FILES / "ray_results.jsonl")
    study = parse_study(made.text)
    assert study.mapping.export == "ray_tune"
    table = open_table(FILES / "ray_results.jsonl", reading_of(study, study.mapping))
    assert table.export is not None


# -- whatever stands in them -----------------------------------------------------------------------

QUICK = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
TEXTS = {
    path.name: path.read_text()
    for path in sorted(FILES.iterdir())
    if path.suffix in (".json", ".log", ".jsonl", ".csv", ".txt", ".md")
}


def read_or_refuse(path: Path) -> None:
    """Draft a study and read each row by it, or say why that cannot be."""
    try:
        _, study, table = drafted(path)
    except MisconfiguredError:
        return
    outcomes(study, open_table(path, reading_of(study, study.mapping)))
    assert table.told() is not None


@pytest.mark.slow
@QUICK
@given(st.data())
def test_a_damaged_export_is_read_or_refused(tmp_path: Path, data: st.DataObject) -> None:
    """Cut, doubled, or with lines of another: nothing but a sentence may end the reading."""
    name = data.draw(st.sampled_from(sorted(TEXTS)))
    text = TEXTS[name]
    cut = data.draw(st.integers(1, len(text)))
    match data.draw(st.sampled_from(["cut", "tail", "hole", "mixed", "doubled"])):
        case "cut":
            text = text[:cut]
        case "tail":
            text = text[cut - 1 :]
        case "hole":
            text = text[:cut] + text[cut + data.draw(st.integers(1, 400)) :]
        case "mixed":
            other = TEXTS[data.draw(st.sampled_from(sorted(TEXTS)))]
            text = text[:cut] + other[: data.draw(st.integers(1, 2_000))]
        case _:
            text += text
    path = tmp_path / name
    path.write_text(text)
    read_or_refuse(path)


MARKS = sorted({
    column
    for path in FILES.iterdir()
    for column in open_table(path).columns
})  # fmt: skip
CELLS = st.one_of(
    st.none(),
    st.integers(-5, 5_000),
    st.floats(allow_nan=True),
    st.booleans(),
    st.sampled_from(
        ["COMPLETED", "FINISHED", "{'a': 1}", "4000.batch", "2026-03-01", "12:00", "-"]
    ),
    st.text(max_size=6),
    st.lists(st.integers(0, 3), max_size=3),
    st.dictionaries(st.sampled_from(["a", "b"]), st.integers(0, 3), max_size=2),
)


@pytest.mark.slow
@QUICK
@given(st.data())
def test_columns_of_exports_may_hold_anything(tmp_path: Path, data: st.DataObject) -> None:
    path = FILES / data.draw(st.sampled_from(sorted(TEXTS)))
    known = list(open_table(path).columns)
    names = data.draw(st.lists(st.sampled_from(known), min_size=2, max_size=12, unique=True))
    names += data.draw(st.lists(st.sampled_from(MARKS), max_size=3, unique=True))
    rows = data.draw(st.lists(st.fixed_dictionaries(dict.fromkeys(names, CELLS)), max_size=12))
    if not rows:
        return
    made = tmp_path / "jobs.jsonl"
    made.write_text("".join(json.dumps(row) + "\n" for row in rows))
    read_or_refuse(made)
