"""Tables of other tools through the command line, as a person types it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Said

Tunerd = Callable[..., Said]
FILES = Path(__file__).parents[1] / "lab" / "tables" / "exports"


@pytest.mark.parametrize(
    ("name", "told", "jobs"),
    [
        ("optuna_trials.csv", "recognised as trials of Optuna", "20 rows, of which 20 are jobs"),
        ("vllm_sweep.csv", "recognised as a sweep of a serving benchmark", "84 are jobs"),
        ("ray_results.jsonl", "48 rows are no jobs: an earlier report of a trial", "12 are jobs"),
        ("kernel_tuner_cache.json", "recognised as configurations that Kernel", "36 are jobs"),
        ("sklearn_cv_results.csv", "recognised as scikit-learn's cv_results_", "8 are jobs"),
        ("header_in_the_middle.csv", "line 20 is no job: the header again", "36 are jobs"),
        ("sacct_steps.csv", "40 rows are no jobs: a step, joined into its job", "20 are jobs"),
        ("sacct_p.txt", "50 rows are no jobs: a step, joined into its job", "25 are jobs"),
        ("pbs.log", "recognised as an accounting log of PBS or Torque", "20 are jobs"),
        ("parallel_joblog.log", "recognised as a joblog of GNU parallel", "24 are jobs"),
        ("results.md", "tokens/s", "24 are jobs"),
        ("state_31_words.csv", "State", "60 cancelled, 60 succeeded"),
        ("model_id.csv", "model_id", "8 are jobs"),
    ],
)
def test_init_check_and_import(
    tunerd: Tunerd,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    told: str,
    jobs: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    drafted = tunerd("init", FILES / name, "--yes", "--name", "old")
    assert drafted.code == 0, drafted.err
    assert told in drafted.err
    assert tunerd("check", "studies/old.toml").code == 0
    said = tunerd("import", "studies/old.toml", FILES / name, "--dry-run")
    assert said.code == 0, said.err
    assert jobs in said.out
    if " " in told:
        assert told in said.err


@pytest.mark.slow
def test_trials_are_learned_and_reported(
    tunerd: Tunerd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert tunerd("init", FILES / "kernel_tuner_cache.json", "--yes", "--name", "old").code == 0
    said = tunerd("import", "old", FILES / "kernel_tuner_cache.json")
    assert "1 context has a recommendation" in said.out, said.err
    report = tunerd("report", "old", "--history")
    assert report.code == 0
    assert "block_size_x" in report.out


def test_a_folder_of_runs(tunerd: Tunerd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for n in range(12):
        run = tmp_path / "runs" / f"run{n:02}" / "result.json"
        run.parent.mkdir(parents=True)
        run.write_text(json.dumps({"config": {"tp": 1 << n % 3}, "tokens_per_s": 100.5 + n}))
    drafted = tunerd("init", "runs", "--yes", "--name", "old")
    assert drafted.code == 0, drafted.err
    assert "runs: 12 rows" in drafted.err
    said = tunerd("import", "old", "runs", "--dry-run")
    assert said.code == 0, said.err
    assert "12 are jobs (12 with tokens_per_s" in said.out


@pytest.mark.slow
def test_how_many_jobs_lie_in_the_space(
    tunerd: Tunerd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a range, what lies between the points of a grid is inside."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "studies").mkdir()
    study = tmp_path / "studies" / "old.toml"
    text = (
        'schema = 1\nname = "old"\nobjective = { metric = "loss", goal = "minimize" }\n'
        'parameters.lr = { type = "float", low = 0.001, high = 0.01 }\n'
    )
    study.write_text(text)
    table = tmp_path / "jobs.csv"
    rows = [f"{0.00113 + n * 0.0003},{2 + n / 50}" for n in range(30)]
    table.write_text("\n".join(["lr,loss", *rows, "0.5,1.5"]) + "\n")
    said = tunerd("import", "old", table)
    assert "30 of 31 jobs lie in the space; 1: lr is not within 0.001 to 0.01." in said.out
    assert "30 of 31 jobs lie in the space; 1: lr is not" in tunerd("check", "--history").out
    assert "30 of 31 jobs lie in the space" in tunerd("report", "old", "--history").out
    assert "lr continuous" in tunerd("check").out
    study.write_text(text.replace("0.001,", "0.002,"))
    [told] = tunerd("check", study, "--history", "--json").json["studies"]
    assert told["history"] == {"in_space": 27, "outside": {"lr is not within 0.002 to 0.01": 4}}
