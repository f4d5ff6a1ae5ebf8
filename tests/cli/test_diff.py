"""``tunerd check --diff``: what it says to a person and to a program."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import STUDY, Installation, Said
from tunerd.core.observation import Observation, Status

Tunerd = Callable[..., Said]
NOW = datetime(2026, 11, 20, 10, tzinfo=UTC)


def jobs(installation: Installation, *configs: dict[str, Any]) -> None:
    with installation.open_store() as store, store.transaction() as tx:
        tx.add_observations(
            "llm",
            [
                Observation(
                    study="llm",
                    source="test",
                    event_id=f"e{i}",
                    job_id=f"j{i}",
                    status=Status.SUCCEEDED,
                    finished_at=NOW,
                    context={"gpu": "H100", "n_gpus": 8},
                    config=config,
                    metrics={"speed": 100.0 + i},
                    content_hash=f"h{i}",
                )
                for i, config in enumerate(configs)
            ],
            NOW,
        )


def diff(tunerd: Tunerd, installation: Installation, *more: object) -> Any:
    said = tunerd("check", "--settings", installation.file, "--diff", "--json", *more)
    assert said.code == 0, said.err
    (study,) = said.json["studies"]
    return study["diff"]


def test_nothing_changes(tunerd: Tunerd, installation: Installation) -> None:
    found = diff(tunerd, installation)
    assert found["against"] == "generation 1"
    assert (found["new_generation"], found["changes"], found["history"]) == (False, [], None)
    said = tunerd("check", "--settings", installation.file, "--diff")
    assert "says what generation 1 says: nothing changes" in said.out


def test_what_is_not_installed_is_new(tunerd: Tunerd, installation: Installation) -> None:
    installation.study_file.write_text(STUDY.replace('"llm"', '"other"'))
    assert diff(tunerd, installation)["against"] is None
    said = tunerd("check", "--settings", installation.file, "--diff")
    assert "not installed yet: everything is new" in said.out


def test_every_kind_of_change(tunerd: Tunerd, installation: Installation) -> None:
    new = (
        STUDY.replace("tp = { type", 'tensor = { was = "tp", type')
        .replace("values = [1, 2, 4]", "values = [2, 4, 8]")
        .replace('pp = { type = "int", values = [1, 2] }', 'cp = { type = "int", values = [1, 2] }')
        .replace('fits = "tp * pp <= n_gpus"', 'whole = "tensor <= n_gpus"')
        .replace("[parameters]", 'nodes = { type = "int", absent = 1 }\n[parameters]')
        .replace('gpu = { type = "category" }', 'gpu = { type = "category", key = "ignore" }')
        .replace('mode = "approve"', 'mode = "observe"\nexplore_share = 0.1')
        + "[history]\nwindow_days = 90\n"
    )
    installation.study_file.write_text(new)
    changes = {(c["where"], c["kind"]): c["what"] for c in diff(tunerd, installation)["changes"]}
    assert changes == {
        ("context.gpu", "changed"): "in the context key: value → ignore",
        ("context.nodes", "added"): "int; it becomes part of the context key; jobs that do not "
        "have it count as 1",
        ("parameters.tensor", "renamed"): "was tp",
        ("parameters.tensor", "changed"): "values that are gone: 1",
        ("parameters.cp", "added"): "1, 2; jobs that do not have it miss it (`absent = …` says "
        "otherwise)",
        ("parameters.pp", "removed"): "jobs differ in it no longer",
        ("mode", "changed"): "approve → observe",
        ("constraints.fits", "removed"): "was tp * pp <= n_gpus",
        ("constraints.whole", "added"): "tensor <= n_gpus",
        ("history.window_days", "added"): "90.0",
    }


def test_history_for_a_person(tunerd: Tunerd, installation: Installation) -> None:
    jobs(installation, *({"tp": tp, "pp": 1} for tp in (1, 2, 4, 4)))
    installation.study_file.write_text(
        STUDY.replace("values = [1, 2, 4]", "values = [1, 2]")
        .replace("n_gpus = {", 'gpus = { was = "n_gpus",')
        .replace('"tp * pp <= n_gpus"', '"tp * pp <= gpus"')
    )
    said = tunerd("check", "--settings", installation.file, "--diff")
    assert said.code == 0, said.err
    for line in (
        "beside generation 1:",
        "parameters.tp  changed: values that are gone: 4",
        "context.gpus  renamed: was n_gpus; the context key has the new name",
        "history: 4 jobs, all learned anew; the configuration of 2 lies in the space, of 4 does",
        "2 jobs lost: tp = 4 is not one of its values",
        "context keys that vanish: 1",
        "llm|gpu=H100|n_gpus=8, 4 jobs",
        "llm|gpu=H100|gpus=8, 4 jobs",
        "recommendations: 0 active",
        "incumbents: 0 stay, 1 fall out, 0 change",
        "falls out in llm|gpu=H100|n_gpus=8: tp = 4 is not one of its values (tp=4 pp=1, 2 jobs)",
    ):
        assert line in said.out


def test_jobs_that_say_something_else_for_a_person(
    tunerd: Tunerd, installation: Installation
) -> None:
    jobs(installation, *({"tp": tp, "pp": 1} for tp in (1, 2, 4, 4)))
    said = {}
    for what, new in (
        ("guard", STUDY + "[guards]\nspeed = { max = 102.5 }\n"),
        ("metric", STUDY.replace('metric = "speed"', 'metric = "pace"')),
    ):
        installation.study_file.write_text(new)
        said[what] = tunerd("check", "--settings", installation.file, "--diff").out
    for line in (
        "the configuration of 4 lies in the space",
        "  1 job breaking the guard of speed",
        "incumbents: 0 stay, 1 fall out, 0 change",
        "1 of its 2 jobs run and keep to the guards (tp=4 pp=1, 2 jobs)",
    ):
        assert line in said["guard"]
    assert "  4 jobs losing the objective: no usable pace" in said["metric"]
    assert "none of its jobs has a usable pace (tp=4 pp=1, 2 jobs)" in said["metric"]


def test_against_another_file(tunerd: Tunerd, tmp_path: Path, monkeypatch: Any) -> None:
    """Without an installation: the files alone."""
    monkeypatch.chdir(tmp_path)
    Path("old.toml").write_text(STUDY)
    Path("new.toml").write_text(STUDY.replace("[1, 2, 4]", "[1, 2, 4, 8]"))
    said = tunerd("check", "new.toml", "--diff", "--against", "old.toml")
    assert said.code == 0, said.err
    assert "beside old.toml:" in said.out
    assert "parameters.tp  changed: more values: 8" in said.out
    assert "history" not in said.out


def test_against_another_file_with_the_history_that_is_there(
    tunerd: Tunerd, installation: Installation, tmp_path: Path
) -> None:
    jobs(installation, {"tp": 1, "pp": 1}, {"tp": 8, "pp": 1})
    wider = tmp_path / "wider.toml"
    wider.write_text(STUDY.replace("[1, 2, 4]", "[1, 2, 4, 8]"))
    found = diff(tunerd, installation, wider, "--against", installation.study_file)
    assert (found["history"]["known_before"], found["history"]["known_after"]) == (1, 2)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--against a.toml", "--against needs --diff"),
        ("--diff --against a.toml", "--against needs exactly one STUDY.toml"),
    ],
)
def test_used_wrongly(tunerd: Tunerd, installation: Installation, line: str, said: str) -> None:
    wrong = tunerd("check", "--settings", installation.file, *line.split())
    assert wrong.code == 2
    assert said in wrong.err


def test_nothing_to_compare_with(tunerd: Tunerd, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    Path("new.toml").write_text(STUDY)
    said = tunerd("check", "new.toml", "--diff")
    assert said.code == 2
    assert "does not exist" in said.err
    Path("other.toml").write_text(STUDY.replace('"llm"', '"other"'))
    said = tunerd("check", "new.toml", "--diff", "--against", "other.toml")
    assert said.code == 2
    assert "another study" in said.err


def test_a_mistake_is_said_and_nothing_compared(tunerd: Tunerd, installation: Installation) -> None:
    installation.study_file.write_text(STUDY.replace("tp * pp", "tp * qq"))
    said = tunerd("check", "--settings", installation.file, "--diff")
    assert said.code == 2
    assert "unknown name" in said.err
    assert "beside" not in said.out
