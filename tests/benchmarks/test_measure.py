"""Trainings that are measured: real ones with torch, and the table that they make."""

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from benchmarks import live, measure
from benchmarks.workloads.machine import CONTEXTS, STUDY, Limits, Machine, alone, machine
from tests.needs import need_library
from tunerd.core.observation import Value
from tunerd.core.study_file import parse_study
from tunerd.lab.tables.files import open_table
from tunerd.lab.tables.mapping import read_observations

TEXT = STUDY.read_text()
TABLE = STUDY.with_suffix(".csv")
CONVNET = CONTEXTS[0]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Machine]:
    need_library("torch", "trainers")
    with machine(Limits(window_s=0.05, limit_s=20.0, tries=2, patience_s=1.0)) as started:
        yield started


def baseline(**changes: Value) -> Mapping[str, Value]:
    study = parse_study(TEXT)
    return {**(study.baseline(dict(CONVNET)) or {}), "threads": 1, **changes}


def test_a_longer_plan_begins_like_a_shorter_one_and_repeats_some() -> None:
    study = parse_study(TEXT)
    plan = measure.planned(study, 600, 1)
    assert measure.planned(study, 50, 1) == plan[:50]
    assert measure.planned(study, 50, 2) != plan[:50]
    places = [(str(job.context), str(job.config)) for job in plan]
    assert 0.05 < 1 - len(set(places)) / len(places) < 0.2
    assert {str(job.context) for job in plan[: len(CONTEXTS)]} == {str(one) for one in CONTEXTS}


@pytest.mark.slow
@pytest.mark.parametrize("context", CONTEXTS[:4], ids=lambda context: str(context["model"]))
@pytest.mark.parametrize("parallelism", ["single", "ddp", "fsdp"])
def test_each_model_trains_in_one_process_and_in_two(
    cluster: Machine, context: Mapping[str, Value], parallelism: str
) -> None:
    config = baseline(parallelism=parallelism, checkpointing=True, precision="bfloat16_mixed")
    outcome = cluster.run(context, {**config, "accumulation_steps": 2, "loader_workers": 1})
    assert outcome["status"] == "succeeded", outcome
    assert outcome["samples_per_s"] > 1
    assert outcome["peak_memory_mib"] > 1


@pytest.mark.slow
def test_what_breaks_a_limit_or_cannot_be_is_told_by_its_reason(cluster: Machine) -> None:
    limits = cluster.limits
    try:
        cluster.limits = Limits(window_s=0.05, limit_s=20.0, memory_mib=24)
        outcome = cluster.run(CONTEXTS[9], baseline(batch_size=256))
        assert (outcome["status"], outcome["reason"]) == ("out_of_memory", "over 24 MiB")
        cluster.limits = Limits(window_s=0.05, limit_s=0.01)
        outcome = cluster.run(CONVNET, baseline(batch_size=256, parallelism="ddp"))
        assert outcome["status"] == "timeout"
    finally:
        cluster.limits = limits
    outcome = cluster.run(CONVNET, baseline(parallelism="fsdp", channels_last=True))
    assert outcome["status"] == "failed"
    assert "FSDP does not support non-contiguous parameters" in outcome["reason"]


@pytest.mark.slow
def test_work_of_others_is_seen_and_the_run_repeated(cluster: Machine) -> None:
    spinning = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(spinning) for _ in range(2)]
    try:
        outcome = cluster.run_alone(CONVNET, baseline())
    finally:
        for other in others:
            other.kill()
            other.wait()
    assert not alone(outcome)


@pytest.mark.slow
def test_a_table_goes_on_where_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    need_library("torch", "trainers")
    table = tmp_path / "training.csv"
    assert measure.main([str(table), "--quick", "--jobs", "3"]) == 0
    before = measure.read_rows(table)
    assert len(before) == 3
    with table.open("a") as file:
        file.write("training-1-00003,2026-01-01T00:00:00+00:00,succ")  # killed while writing
    assert measure.main([str(table), "--quick"]) == 0
    rows = measure.read_rows(table)
    assert sorted(row["job_id"] for row in rows) == [f"training-1-{n:05}" for n in range(20)]
    assert all(row in rows for row in before if alone(row))
    assert {row["status"] for row in rows} <= {"succeeded", "failed", "out_of_memory", "timeout"}
    assert any(row["status"] == "succeeded" for row in rows)
    assert all(row["reason"] for row in rows if row["status"] != "succeeded")
    assert "20 jobs" in capsys.readouterr().out


def test_a_disturbed_job_waits_for_the_others_and_the_quietest_run_counts() -> None:
    plan = measure.planned(parse_study(TEXT), 2, 1)
    shares = iter([0.5, 0.0, 0.3, 0.2, 0.4])

    def run(context: object, config: object) -> dict[str, object]:
        del context, config
        return {"foreign_utilization": next(shares)}

    outcomes = measure.undisturbed(run, plan, 4, lambda *_: None)
    ended = [(job.job_id, outcome["foreign_utilization"]) for job, outcome in outcomes]
    assert ended == [(plan[1].job_id, 0.0), (plan[0].job_id, 0.2)]
    assert next(shares, None) is None


def test_the_table_that_ships_is_of_its_study() -> None:
    history = read_observations(parse_study(TEXT), None, [open_table(TABLE)])
    assert len(history.observations) == 1_600
    assert not history.unusable
    rows = measure.read_rows(TABLE)
    assert len({(row["model"], row["width"], row["data_size"]) for row in rows}) == len(CONTEXTS)
    assert sum(alone(row) for row in rows) >= 1_590
    assert Counter(row["status"] for row in rows)["succeeded"] > 1_200


@pytest.mark.slow
def test_init_takes_each_column_of_such_a_table_for_what_it_is(tmp_path: Path) -> None:
    study = parse_study(TEXT)
    drafted = tmp_path / "drafted.toml"
    command = [sys.executable, "-m", "tunerd", "init", str(TABLE), "--yes", "--name", "training"]
    subprocess.run([*command, "--out", str(drafted)], check=True, cwd=tmp_path)
    draft = parse_study(drafted.read_text())
    assert draft.objective.metric == study.objective.metric
    assert {f.name for f in draft.context} == {f.name for f in study.context}
    assert {p.name for p in draft.parameters} == {p.name for p in study.parameters}


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_tunerd_and_a_rival_are_tuned_live_and_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    need_library("torch", "trainers")
    need_library("optuna")
    arguments = ["--quick", "--who", "optuna_tpe", "--out", str(tmp_path)]
    assert live.main([*arguments, "--runs", "3"]) == 0
    assert live.main(arguments) == 0
    lines = live.Record(tmp_path / "runs.jsonl").lines
    runs = [(line["who"], line["number"]) for line in lines if "who" in line]
    whole = [(who, n) for who in ("tunerd", "optuna_tpe") for n in range(live.START + 2)]
    assert sorted(runs) == sorted(whole)
    campaign = [line["outcome"] for line in lines if line.get("who") == "tunerd"]
    assert all(outcome["candidate_id"] for outcome in campaign)
    assert "after 12 runs: tunerd beside optuna_tpe" in capsys.readouterr().out
