"""More tables, logs and documents of strangers: tuners, wikis, spreadsheets, and what is no list of
runs at all."""

import itertools
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.contexts_to_come import trace_study
from benchmarks.job_traces import read_trace
from tests.lab.tables.test_draft import drafted, outcomes
from tests.lab.tables.test_guess import roles
from tests.lab.tables.test_strangers import GRID, read, rows_of, speed
from tunerd.cli.init_command import init_from_command
from tunerd.core.study_file import parse_study
from tunerd.errors import MisconfiguredError
from tunerd.lab.tables.column_names import read_name, unit_of
from tunerd.lab.tables.files import open_table
from tunerd.lab.tables.guess import UserAnswers, guess
from tunerd.lab.tables.profile import profile

RNG = random.Random(7)


def saved(path: Path, header: str, lines: Sequence[str], end: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([header, *lines]) + "\n" + end)
    return path


# ── what was set is called like a time, and a score is what was tuned for ────────────────────────


@pytest.mark.parametrize(
    ("header", "line"),
    [
        (
            "cycle_time_ms,tensor_fusion_threshold,hierarchical_allreduce,score",
            "{t:.6f},{b},{i},{v}",
        ),
        ("fusion_threshold, cycle_time, score", "{b} MB, {t:.4f} ms, {v}"),
    ],
)
def test_horovod_tunes_for_its_score(header: str, line: str, tmp_path: Path) -> None:
    """Its search draws each cycle time from a range."""
    rng = random.Random(3)
    lines = [
        line.format(t=rng.uniform(1, 100), b=2**k, i=k % 2, v=rng.uniform(1e8, 9e8))
        for k in [rng.randrange(7) for _ in range(40)]
    ]
    guesses, _ = read(saved(tmp_path / "autotune.csv", header, lines))
    assert guesses.objective.column.name == "score"
    assert guesses.goal_sure < 0.5
    assert {r for c, r in roles(guesses).items() if "cycle" in c or "fusion" in c} == {"parameter"}


@pytest.mark.parametrize(
    ("name", "goal"),
    [
        ("log_likelihood", "maximize"),
        ("val_elbo", "maximize"),
        ("neg_log_likelihood", "minimize"),
        ("negative log likelihood", "minimize"),
        ("BIC", "minimize"),
    ],
)
def test_which_way_likelihoods_are_better(name: str, goal: str) -> None:
    assert (read_name(name).goal, read_name(name).goal_sure > 0.5) == (goal, True)


@pytest.mark.parametrize(
    ("name", "goal"),
    [
        ("time_to_failure_s", "maximize"),
        ("mtbf_hours", "maximize"),
        ("battery_life_min", "maximize"),
        ("requests_within_slo", "maximize"),
        ("epochs_to_accuracy", "minimize"),
        ("time_to_accuracy", "minimize"),
        ("failed_req/s", "minimize"),
        ("context_switches_per_sec", "minimize"),
        ("disk_usage", "minimize"),
        ("acceptance_rate", "maximize"),
    ],
)
def test_other_words_turn_what_is_better(name: str, goal: str) -> None:
    """Each of these was the other way round, and "sure", by its last word."""
    assert (read_name(name).goal, read_name(name).goal_sure > 0.5) == (goal, True)


@pytest.mark.parametrize(
    "name",
    [
        *("time_saved_s", "latency_headroom", "free_memory", "accuracy_drop", "lost_throughput"),
        *("unused_bandwidth", "inverse_throughput", "1/latency", "goodput_deficit", "time_to_live"),
        *("flops_per_token", "energy_savings_pct", "p99_latency_under_slo", "utilization_gap"),
    ],
)
def test_where_other_words_turn_it_it_is_asked(name: str) -> None:
    assert read_name(name).goal_sure < 0.5


def test_a_likelihood_of_the_other_sign_is_asked_about(tmp_path: Path) -> None:
    lines = [f"{a},{b},{-speed(a, b)}" for a, b in GRID]
    guesses, _ = read(saved(tmp_path / "runs.csv", "lr,batch,neg_log_likelihood", lines))
    assert guesses.goal_sure < 0.5


def test_a_rate_in_the_cells_is_a_rate(tmp_path: Path) -> None:
    lines = [f"{a},{b},{1e4 / speed(a, b):.2f} s,{speed(a, b)} tokens/s" for a, b in GRID]
    guesses, _ = read(saved(tmp_path / "runs.csv", "threads,batch,total duration,eval", lines))
    assert (guesses.objective.column.name, guesses.goal) == ("eval", "maximize")


def test_the_unit_behind_a_name_is_of_the_whole() -> None:
    assert unit_of("throughput per GPU (TFLOP/s/GPU)") == "TFLOP/s/GPU"


@pytest.mark.parametrize("name", ["output/params/level", "outputs.config.threads"])
def test_what_was_set_stays_so_under_an_output(name: str) -> None:
    assert read_name(name).weight("parameter") > 0
    assert not read_name(name).weight("measured")


def test_a_model_within_a_configuration_is_context(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    rows = [
        {"config": {"backend": {"model": m, "batch_size": b, "threads": a}}, "ms": speed(a, b)}
        for (a, b), m in itertools.product(GRID, ("llama-7b", "qwen-14b"))
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    assert roles(read(path)[0])["config.backend.model"] == "context"


# ── words of other languages ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("header", "objective", "goal"),
    [
        ("Fäden;Stapelgröße;Durchsatz", "Durchsatz", "maximize"),
        ("hilos;tamaño_lote;tiempo_ejecución (s)", "tiempo_ejecución (s)", "minimize"),
        ("nb fils;taille_lot;temps_execution", "temps_execution", "minimize"),
        ("threads;tamanho_do_lote;vazão", "vazão", "maximize"),
    ],
)
def test_headers_in_other_languages(header: str, objective: str, goal: str, tmp_path: Path) -> None:
    lines = [f"{a};{b};{speed(a, b)}".replace(".", ",") for a, b in GRID]
    guesses, _ = read(saved(tmp_path / "läufe.csv", header, lines))
    assert (guesses.objective.column.name, guesses.goal) == (objective, goal)
    assert guesses.goal_sure > 0.5
    assert [c.sure >= 0.5 for c in guesses.having("parameter")] == [True, True]


def test_dates_as_they_are_written_in_chinese(tmp_path: Path) -> None:
    lines = [f"{a},{b},{speed(a, b)},2026年3月{n + 1}日" for n, (a, b) in enumerate(GRID)]
    path = saved(tmp_path / "runs.csv", "线程数,批大小,吞吐量,完成时间", lines)
    assert roles(read(path)[0])["完成时间"] == "finished_at"
    _, study, table = drafted(path)
    assert outcomes(study, table) == {"succeeded": 12}


# ── one setting down, one across; a column for each run ──────────────────────────────────────────

ACROSS = (16, 32, 64)


@pytest.mark.parametrize(
    ("header", "firsts", "names"),
    [
        (",16,32,64", ("1", "2", "4"), ("column_1", "across")),
        (",16,32,64", ("ring", "tree", "nvls"), ("column_1", "across")),
        (",none,lz4,zstd", ("ring", "tree", "nvls"), ("column_1", "across")),
        ("threads\\batch,16,32,64", ("1", "2", "4"), ("threads\\batch", "batch")),
        ("batch,16,32,64\nthreads,,,", ("1", "2", "4"), ("threads\\batch", "batch")),
        (",tile=16,tile=32,tile=64", ("fft", "gemm", "stencil"), ("column_1", "across")),
    ],
)
def test_one_setting_down_and_one_across(
    header: str, firsts: Sequence[str], names: Sequence[str], tmp_path: Path
) -> None:
    lines = [f"{f},{','.join(str(speed(n, b)) for b in ACROSS)}" for n, f in enumerate(firsts, 1)]
    path = saved(tmp_path / "pivot.csv", header, lines)
    guesses, _ = read(path)
    assert guesses.profile.rows == 9
    assert tuple(c.column.name for c in guesses.having("parameter", "context")) == tuple(names)
    assert (guesses.objective.column.name, guesses.goal_sure < 0.5) == ("value", True)
    _, study, table = drafted(path)
    assert outcomes(study, table) == {"succeeded": 9}


def test_a_corner_that_names_both_settings_names_them_in_the_study(tmp_path: Path) -> None:
    lines = [f"{a},{','.join(str(speed(a, b)) for b in ACROSS)}" for a in (1, 2, 4)]
    _, study, _ = drafted(saved(tmp_path / "pivot.csv", "threads \\ batch,16,32,64", lines))
    assert [p.name for p in study.parameters] == ["threads", "batch"]


@pytest.mark.parametrize(
    ("header", "line"),
    [(",threads,batch,tokens", "{n},{a},{b},{v}"), (",x,y,z", "{n},{a},{b},{v}")],
)
def test_an_index_without_a_name_is_no_corner(header: str, line: str, tmp_path: Path) -> None:
    lines = [line.format(n=n, a=a, b=b, v=speed(a, b)) for n, (a, b) in enumerate(GRID)]
    assert open_table(saved(tmp_path / "runs.csv", header, lines)).export is None


def test_a_column_for_each_run(tmp_path: Path) -> None:
    """r2 is a run here, and no coefficient of determination."""
    pairs = GRID[:6]
    lines = [
        ",".join(["threads", *(str(a) for a, _ in pairs)]),
        ",".join(["batch", *(str(b) for _, b in pairs)]),
        ",".join(["tokens_per_s", *(str(speed(a, b)) for a, b in pairs)]),
    ]
    path = saved(tmp_path / "sheet.csv", "run,r1,r2,r3,r4,r5,r6", lines)
    guesses, told = read(path)
    assert (guesses.objective.column.name, guesses.profile.rows) == ("tokens_per_s", 6)
    assert any("a column for each run" in sentence for sentence in told)
    _, study, table = drafted(path)
    assert {p.name for p in study.parameters} == {"threads", "batch"}
    assert outcomes(study, table) == {"succeeded": 6}


# ── HTML and wikis ───────────────────────────────────────────────────────────────────────────────


def html_of_pandas(rows: Sequence[Sequence[Any]]) -> str:
    head = "".join(f"<th>{name}</th>\n" for name in ("", "threads", "batch", "tokens_per_s"))
    body = "".join(
        f"<tr><th>{n}</th>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>\n"
        for n, row in enumerate(rows)
    )
    return (
        '<table border="1" class="dataframe"><thead><tr style="text-align: right;">'
        f"{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def html_of_a_page(rows: Sequence[Sequence[Any]]) -> str:
    """Without ends of rows and cells, with merged cells, another table and a script."""
    body = ""
    for begin in range(0, len(rows), 3):
        first, *others = rows[begin : begin + 3]
        body += f"<tr><td rowspan=3><p>{first[0]}</p><td>{first[1]}<td><b>{first[2]}</b>"
        body += "".join(f"<tr><td>{b}<td>{v}<!-- {v} -->" for _, b, v in others)
    return (
        "<!DOCTYPE html><html><head><style>td{}</style></head><body><h1>Runs &amp; notes</h1>"
        "<table><tr><td>Author<td>Bob</table><script>var t='<table><tr><td>1</td></tr></table>'"
        "</script><table><tr><th colspan=3>Results<tr><th>threads<th>batch<th>tokens_per_s"
        f"{body}</table></body></html>"
    )


@pytest.mark.parametrize("page", [html_of_pandas, html_of_a_page])
def test_tables_in_html(page: Any, tmp_path: Path) -> None:
    path = tmp_path / "runs.html"
    path.write_text(page([(a, b, speed(a, b)) for a, b in GRID]))
    rows = [
        tuple(row[name] for name in ("threads", "batch", "tokens_per_s")) for row in rows_of(path)
    ]
    assert rows == [(str(a), str(b), str(speed(a, b))) for a, b in GRID]
    _, study, table = drafted(path)
    assert {p.name for p in study.parameters} == {"threads", "batch"}
    assert outcomes(study, table) == {"succeeded": 12}


@pytest.mark.parametrize(
    "text",
    [
        "<html><body><p>no table</p></body></html>",
        "<table>" * 5_000,
        "<table><tr><th>a<th>b" + "<tr><td colspan=99999 rowspan=99999>1" * 50,
        "<table><tr>" + "<td>1" * 30_000,
    ],
)
def test_pages_without_a_table_of_runs_are_refused_in_no_time(text: str, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(text)
    with pytest.raises(MisconfiguredError):
        guess(profile(open_table(path)))


def test_tables_of_a_wiki(tmp_path: Path) -> None:
    lines = [f"|{a}|{b}|{speed(a, b)}|" for a, b in GRID]
    path = saved(tmp_path / "page.txt", "h2. Results\n||threads||batch||ops/s||", lines)
    assert len(rows_of(path)) == 12
    assert roles(read(path)[0])["ops/s"] == "objective"


# ── tuners ───────────────────────────────────────────────────────────────────────────────────────


def drawn(number: int) -> dict[str, Any]:
    return {"lr": 10 ** RNG.uniform(-5, -1), "batch": (16, 32, 64)[number % 3]}


TRIALS: dict[str, tuple[list[dict[str, Any]], str, set[str]]] = {
    "nni": (
        [
            {
                "trialJobId": f"aB{n}c",
                "status": "SUCCEEDED",
                "hyperParameters": [json.dumps({"parameter_id": n, "parameters": drawn(n)})],
                "finalMetricData": [{"type": "FINAL", "sequence": 0, "data": f"{1 / (n + 1):.5f}"}],
            }
            for n in range(20)
        ],
        "finalMetricData.data",
        {"hyperParameters.parameters.lr", "hyperParameters.parameters.batch"},
    ),
    "azure": (
        [
            {
                "run_id": f"HD_{n}",
                "hyperparameters": json.dumps(drawn(n)),
                "best_metric": 1.5 / (n + 2),
            }
            for n in range(20)
        ],
        "best_metric",
        {"hyperparameters.lr", "hyperparameters.batch"},
    ),
    "opentuner": (
        [{"id": n, "configuration": str(drawn(n)), "time": 1.5 + n % 7 / 3} for n in range(20)],
        "time",
        {"configuration.lr", "configuration.batch"},
    ),
    "hyperopt": (
        [
            {
                "tid": n,
                "result": {"loss": 1 / (n + 1.5), "status": "ok"},
                "misc": {
                    "idxs": {"lr": [n], "batch": [n]},
                    "vals": {name: [value] for name, value in drawn(n).items()},
                },
            }
            for n in range(20)
        ],
        "result.loss",
        {"misc.vals.lr", "misc.vals.batch"},
    ),
    "bayes_opt": (
        [
            {
                "target": -RNG.uniform(1, 9),
                "params": {"x": RNG.uniform(-2, 2), "y": RNG.uniform(-3, 3)},
                "datetime": {
                    "datetime": f"2026-01-01 10:00:{n:02}",
                    "elapsed": n / 2,
                    "delta": 0.5,
                },
            }
            for n in range(20)
        ],
        "target",
        {"params.x", "params.y"},
    ),
}


@pytest.mark.parametrize("tuner", TRIALS)
def test_trials_of_tuners(tuner: str, tmp_path: Path) -> None:
    trials, objective, parameters = TRIALS[tuner]
    path = tmp_path / "trials.json"
    path.write_text(json.dumps(trials))
    guesses, _ = read(path)
    assert guesses.objective.column.name == objective
    assert {c.column.name for c in guesses.having("parameter")} == parameters
    _, study, table = drafted(path)
    assert outcomes(study, table) == {"succeeded": 20}


def test_hpbandster_writes_two_files(tmp_path: Path) -> None:
    configs = [[[0, 0, n], drawn(n), {"model_based_pick": False}] for n in range(15)]
    results = [
        [c[0], 9.0, {"submitted": 1.0, "started": 1.77e9 + n, "finished": 1.77e9 + n + 5},
         None if n == 4 else {"loss": 1.5 / (n + 1), "info": {}}, None]
        for n, c in enumerate(configs)
    ]  # fmt: skip
    for name, lines in (("configs", configs), ("results", results)):
        (tmp_path / f"{name}.json").write_text("\n".join(map(json.dumps, lines)) + "\nno JSON\n")
    guesses, _ = read(tmp_path)
    assert (guesses.objective.column.name, guesses.goal) == ("cost", "minimize")
    assert {c.name.leaf for c in guesses.having("parameter")} == {"lr", "batch"}
    _, study, table = drafted(tmp_path)
    assert outcomes(study, table) == {"succeeded": 14, "failed": 1}


def test_a_run_that_failed_may_lack_its_results(tmp_path: Path) -> None:
    """DeepSpeed's autotuning has a folder for each experiment, and says a setting twice."""
    for stage, batch in itertools.product((0, 1, 2, 3), (1, 2, 4)):
        folder = tmp_path / f"z{stage}_tmbspg{batch}"
        given = {"train_micro_batch_size_per_gpu": batch, "zero_optimization": {"stage": stage}}
        batch_alone = {"train_micro_batch_size_per_gpu": batch}
        files = {
            "ds_config.json": given,
            "exp.json": {"name": folder.name, "ds_config": batch_alone, "num_gpus": 8},
            "metrics.json": {"throughput": speed(batch, 16 * (stage + 1))},
        }
        if (stage, batch) == (0, 4):
            del files["metrics.json"]
        folder.mkdir()
        for name, content in files.items():
            (folder / name).write_text(json.dumps(content))
    guesses, _ = read(tmp_path)
    assert guesses.objective.column.name == "metrics.throughput"
    assert {c.column.name for c in guesses.having("parameter")} == {
        "ds_config.train_micro_batch_size_per_gpu",
        "ds_config.zero_optimization.stage",
    }


def test_perf_analyzer_measures_parts_of_its_latency(tmp_path: Path) -> None:
    header = (
        "Concurrency,Inferences/Second,Client Send,Network+Server Send/Recv,Server Queue,"
        "Server Compute Input,Server Compute Infer,Client Recv,p50 latency,p99 latency"
    )
    lines = [f"{c},{speed(c, 16)},5,{50 + c},{c % 3},7,{500 + c},0,{600 + c},{900 + c}"
             for c in (1, 2, 4, 8, 16, 32)]  # fmt: skip
    guesses, _ = read(saved(tmp_path / "perf.csv", header, lines))
    assert guesses.objective.column.name == "Inferences/Second"
    assert [c.column.name for c in guesses.having("parameter", "context")] == ["Concurrency"]


# ── what programs print ──────────────────────────────────────────────────────────────────────────

H2LOAD = """starting benchmark...
spawning thread #0: {a} total client(s). 10000 total requests
Application protocol: h2
finished in 1.50s, {v} req/s, 9.16MB/s
requests: 10000 total, 10000 started, 10000 done, 10000 succeeded, 0 failed, 0 errored, 0 timeout
time for request:      412us     12.45ms      3.01ms      1.02ms    72.10%
"""
DB_BENCH = """./db_bench --benchmarks=fillrandom --threads={a} --block_size={b}
Keys:       16 bytes each
Values:     100 bytes each
fillrandom   :       1.234 micros/op {v} ops/sec 10.0 seconds 100000 operations;  8.3 MB/s
"""
IOR = """IOR-3.4.0: MPI Coordinated Test of Parallel I/O
Command line        : ior -a POSIX -t {b}k -N {a}
tasks               : {a}
xfersize            : {b} KiB
blocksize           : 64 MiB
Max Write: {v} MiB/sec (104.86 MB/sec)
Max Read:  812.50 MiB/sec (104.86 MB/sec)
"""
MEMTIER = """{a}         Threads
{b}        Connections per thread
10000     Requests per client


ALL STATS
Type         Ops/sec     Hits/sec   Misses/sec    Avg. Latency     p50 Latency
--------------------------------------------------------------------------------
Sets        12.50          ---          ---         0.41         0.39
Totals      {v}        10.00      9999.00         0.41         0.39
"""
LAMMPS = """LAMMPS (2 Aug 2023)
Loop time of 9.50 on {b} procs for 100 steps with 32000 atoms

Performance: 123.4 ns/day, 0.2 hours/ns, {v} timesteps/s
99.8% CPU use with {b} MPI tasks x {a} OpenMP threads
"""
QACCT = """==============================================================
qname        all.q
hostname     node1
owner        bob
jobnumber    {n}
end_time     Mon Mar  2 10:{n:02}:55 2026
granted_pe   mpi
slots        {a}
failed       0
exit_status  {code}
ru_wallclock {v}s
maxvmem      1.{n}GB
"""


@pytest.mark.parametrize(
    ("text", "objective", "goal", "parameter", "ended"),
    [
        (H2LOAD, "requests_per_s", "maximize", "clients", {"succeeded": 12}),
        (DB_BENCH, "operations_per_s", "maximize", "option.threads", {"succeeded": 12}),
        (IOR, "write_mib_per_s", "maximize", "transfer_bytes", {"succeeded": 12}),
        (QACCT, "ru_wallclock", "minimize", "slots", {"succeeded": 9, "failed": 3}),
        (MEMTIER, "operations_per_s", "maximize", "connections", {"succeeded": 12}),
        (LAMMPS, "steps_per_s", "maximize", "threads", {"succeeded": 12}),
    ],
    ids=["h2load", "db_bench", "ior", "qacct", "memtier", "lammps"],
)
def test_what_still_more_programs_print(
    text: str, objective: str, goal: str, parameter: str, ended: dict[str, int], tmp_path: Path
) -> None:
    path = tmp_path / "runs.txt"
    runs = enumerate(GRID)
    path.write_text(
        "".join(text.format(a=a, b=b, n=n, code=int(n % 5 == 4 or n == 0), v=speed(a, b))
                for n, (a, b) in runs)
    )  # fmt: skip
    guesses, _ = read(path)
    assert (guesses.objective.column.name, guesses.goal) == (objective, goal)
    assert roles(guesses)[parameter] == "parameter"
    _, study, table = drafted(path)
    assert outcomes(study, table) == ended


# ── what is no list of runs ──────────────────────────────────────────────────────────────────────


def series(name: str, of: str) -> str:
    lines = [
        of.format(n=n, s=n * 100, v=RNG.uniform(1, 99), w=RNG.uniform(1, 9)) for n in range(40)
    ]
    return "\n".join([name, *lines]) + "\n"


@pytest.mark.parametrize(
    ("text", "doubt"),
    [
        (series("time,us,sy,cs", "10:00:{n:02},{v:.0f},{w:.0f},{v:.1f}"), "rises evenly"),
        (series("step,train_loss,val_loss,lr", "{s},{v:.4f},{w:.4f},{w:.6f}"), "rises evenly"),
        (
            series("workload,cpuRequest,memRequest", "svc-{n},{v:.0f}m,{w:.1f}Gi"),
            "another workload",
        ),
        ("tp,pp,tokens_per_s\n8,1,500.5\n4,1,400.5\n", "too few"),
        ("test,rps,p99_ms\nSET,9e4,1.5\nGET,8e4,1.2\nINCR,7e4,1.1\nPUSH,6e4,1.9\n", "another test"),
    ],
)
def test_what_may_be_no_list_of_runs_is_never_sure(text: str, doubt: str, tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text(text)
    guesses, _ = read(path)
    assert doubt in " ".join(guesses.doubts)
    assert guesses.objective.unsure
    assert doubt in " ".join(drafted(path)[0].replace("#", "").split())


@pytest.mark.parametrize("column", ["Precision", "Prec."])
def test_a_precision_between_0_and_1_was_measured(column: str, tmp_path: Path) -> None:
    lines = [f"{a},{b},{0.5 + n / 40:.3f},{0.6 + n % 5 / 30:.3f}" for n, (a, b) in enumerate(GRID)]
    guesses, _ = read(saved(tmp_path / "runs.csv", f"depth,trees,{column},MCC", lines))
    assert roles(guesses)[column] in ("metric", "objective")
    assert roles(guesses)["MCC"] in ("metric", "objective")


def test_a_log_with_a_slash_in_its_first_name_is_no_pivot(tmp_path: Path) -> None:
    """As Stable-Baselines writes the course of a training."""
    lines = [f"{n},{-200 + n}.5,0.{n}1,{2048 * n}" for n in range(1, 12)]
    header = "time/iterations,rollout/ep_rew_mean,train/loss,time/total_timesteps"
    assert open_table(saved(tmp_path / "progress.csv", header, lines)).export is None


def test_a_file_of_one_run_is_a_table_within_a_folder(tmp_path: Path) -> None:
    for users in (10, 20, 40, 80):
        saved(
            tmp_path / f"users-{users}_stats.csv",
            "Type,Name,Request Count,Failure Count,Average Response Time,Requests/s",
            [f"GET,/,{900 + users},0,40.5,{speed(users, 16)}", ",Aggregated,900,0,40.5,1.5"],
        )
    guesses, _ = read(tmp_path)
    assert guesses.objective.column.name == "Requests/s"
    assert "users" in roles(guesses)


def test_who_says_what_was_tuned_is_not_doubted(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text(series("step,batch,val_loss", "{s},{v:.0f},{w:.4f}"))
    said = UserAnswers(roles={"batch": "parameter"})
    assert guess(profile(open_table(path)), said).doubts == ()


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("             JOBID PARTITION     NAME     USER ST       TIME  NODES\n", "sacct"),
        ("Type,Name,Request Count,Failure Count,Median Response Time\nGET,/,9,0,5\n", "Locust"),
        ("Linux 5.14.0 (n1)  03/01/2026  _x86_64_  (64 CPU)\n\n10:00:01  CPU  %user\n", "sysstat"),
    ],
)
def test_one_run_from_moment_to_moment_is_refused(text: str, what: str, tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text(text)
    with pytest.raises(MisconfiguredError, match=what):
        open_table(tmp_path / "table.csv")


# ── names and secrets ────────────────────────────────────────────────────────────────────────────


def test_a_refusal_repeats_no_values(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("".join(f"{a},{b},hf_SECRET{a},{speed(a, b)}\n" for a, b in GRID))
    with pytest.raises(MisconfiguredError, match="of 4 values") as refused:
        open_table(path)
    assert "SECRET" not in str(refused.value)


@pytest.mark.parametrize(("good", "bad"), [("✅", "❌"), ("✓", "✗")])
def test_signs_say_how_a_run_ended(good: str, bad: str, tmp_path: Path) -> None:
    """Also where a run that failed has a time."""
    lines = [f"{a},{b},{bad if b == 64 else good},{speed(a, b)}" for a, b in GRID]
    path = saved(tmp_path / "runs.csv", "threads,batch,status,time_ms", lines)
    _, study, table = drafted(path)
    assert outcomes(study, table) == {"succeeded": 8, "failed": 4}


def test_names_with_blanks_make_a_study_of_a_trace(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("time,a b,gpus\n2026-01-05T06:00:00,x,8\n2026-01-06T06:00:00,y,16\n")
    study = parse_study(trace_study(read_trace(path, 30)))
    assert [feature.name for feature in study.context] == ["a_b", "gpus"]


def test_names_with_blanks_are_refused_of_a_command() -> None:
    with pytest.raises(MisconfiguredError, match="'a b'"):
        init_from_command("x {n}", ["n=1,2"], "x", ["a b"], None, None, None, ask=False)
