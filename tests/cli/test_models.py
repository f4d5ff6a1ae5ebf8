"""``tunerd models``: what it lists, and what going back leaves in the store."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.cli.conftest import Installation, Said
from tests.cli.test_overrides import daemon
from tunerd.store import ModelVersion

Tunerd = Callable[..., Said]
NOW = datetime(2026, 11, 20, 10, tzinfo=UTC)
CONTEST: dict[str, Any] = {
    "jobs": 61,
    "champion": {"kendall": 0.71234, "error": 0.05, "coverage": 0.8},
    "challenger": {"kendall": 0.83456, "error": 0.031, "coverage": 0.75},
    "by": "ranks",
    "won": True,
}
FIRST = ModelVersion(
    version=1,
    generation=1,
    checkpoint=None,
    why="first",
    fitted_sequence=5,
    decided_sequence=5,
    took_over=True,
    decided_at=NOW,
)


def stands(installation: Installation, *, pinned: bool = False, rebuild: Any = None) -> list[str]:
    """As the tune stage leaves it: version 1 no longer kept, 2 and 4 kept, 3 turned down. Returns
    the names of the checkpoints of 2 and 4."""
    with installation.open_store() as store, store.transaction() as tx:
        names = [tx.save_checkpoint("llm", one, NOW) for one in (b"two", b"four")]
        for one in (
            replace(FIRST, checkpoint="sha256:" + 64 * "0"),
            replace(FIRST, version=2, checkpoint=names[0], why="grown", fitted_sequence=360),
            replace(
                FIRST,
                version=3,
                why="grown",
                took_over=False,
                detail={"contest": CONTEST | {"won": False}},
            ),
            replace(
                FIRST, version=4, checkpoint=names[1], why="drift", detail={"contest": CONTEST}
            ),
        ):
            tx.add_model("llm", one)
        training = {"pinned": pinned, "rebuild": rebuild}
        state = {"ended": False, "orders": [], "tuner": {"training": training}}
        tx.save_study_state("llm", state, epoch=1, now=NOW)
    return names


def test_before_there_is_a_model(tunerd: Tunerd, installation: Installation) -> None:
    said = tunerd("models", "llm", "--settings", installation.file)
    assert said.code == 0
    assert "no model yet" in said.out
    told = json.loads(tunerd("models", "llm", "--settings", installation.file, "--json").out)
    assert (told["serves"], told["versions"], told["pinned"]) == (None, [], False)


def test_the_list_for_a_person(tunerd: Tunerd, installation: Installation) -> None:
    names = stands(installation)
    said = tunerd("models", "llm", "--settings", installation.file)
    assert said.code == 0, said.err
    assert "version 4 serves" in said.out
    assert "4 *" in said.out
    assert "jobs behave differently" in said.out
    assert names[1].removeprefix("sha256:")[:12] in said.out
    assert "61 jobs, told by the order" in said.out
    assert "τ within contexts 0.835 beside 0.712" in said.out
    assert "mean error 3.1% beside 5.1%" in said.out
    assert "band" not in said.out  # of raw spreads: nobody can tell the served bands by it
    assert "turned down, not kept" in said.out
    assert "kept no longer" in said.out
    short = tunerd("models", "llm", "--settings", installation.file, "--limit", 1)
    assert "turned down" not in short.out


def test_a_rebuild_that_failed_is_listed_with_its_error(
    tunerd: Tunerd, installation: Installation
) -> None:
    stands(installation)
    trace = "Traceback (most recent call last):\n  ...\nLinAlgError: not positive definite"
    with installation.open_store() as store, store.transaction() as tx:
        failed = replace(FIRST, version=5, took_over=False, detail={"failed": trace})
        tx.add_model("llm", failed)
    said = tunerd("models", "llm", "--settings", installation.file)
    assert "version 4 serves" in said.out
    assert "LinAlgError: not positive definite" in said.out
    assert "Traceback" not in said.out
    told = json.loads(tunerd("models", "llm", "--settings", installation.file, "--json").out)
    assert told["versions"][0]["detail"]["failed"] == trace
    back = tunerd("models", "llm", "--settings", installation.file, "--back", 5)
    assert back.code == 2
    assert "version 5 could not be built" in back.err


def test_the_list_for_a_program(tunerd: Tunerd, installation: Installation) -> None:
    names = stands(
        installation,
        pinned=True,
        rebuild={"why": "grown", "started_at": 432, "decide_at": 496, "ends": []},
    )
    told = json.loads(tunerd("models", "llm", "--settings", installation.file, "--json").out)
    assert (told["study"], told["serves"], told["pinned"]) == ("llm", 4, True)
    assert told["rebuild"] == {"why": "grown", "started_at": 432, "decide_at": 496}
    assert [one["version"] for one in told["versions"]] == [4, 3, 2, 1]
    assert [one["kept"] for one in told["versions"]] == [True, False, True, False]
    newest = told["versions"][0]
    assert newest["checkpoint"] == names[1]
    assert newest["detail"]["contest"] == CONTEST
    assert newest["serves"]
    shown = tunerd("models", "llm", "--settings", installation.file).out
    assert "pinned" in shown
    assert "`tunerd models llm --latest`" in shown
    assert "A rebuild on 432 jobs (history has grown)" in shown


@pytest.mark.parametrize(("pinned", "version"), [(True, 4), (False, None)])
def test_the_status_says_that_a_model_is_pinned(
    tunerd: Tunerd, installation: Installation, pinned: bool, version: int | None
) -> None:
    stands(installation, pinned=pinned)
    said = tunerd("status", "--settings", installation.file)
    assert ("model 4 serves whatever comes" in said.out) == pinned
    told = json.loads(tunerd("status", "--settings", installation.file, "--json").out)
    assert told["studies"][0]["pinned_model"] == version


@pytest.mark.parametrize("by", ["number", "name", "prefix"])
def test_going_back_is_a_command(tunerd: Tunerd, installation: Installation, by: str) -> None:
    names = stands(installation)
    version = {"number": "2", "name": names[0], "prefix": names[0][7:15]}[by]
    arguments = ("--settings", installation.file, "--back", version, "--why", "it was better")
    said = tunerd("models", "llm", *arguments)
    assert said.code == 0, said.err
    assert "go back to version 2 of the model" in said.out
    assert "No daemon answers here" in said.out
    with installation.open_store() as store:
        (command,) = store.commands()
    assert (command.command, command.arguments, command.why) == (
        "back",
        {"version": 2},
        "it was better",
    )
    said = tunerd("models", "llm", "--settings", installation.file, "--latest")
    assert "let the latest model serve" in said.out
    shown = tunerd("commands", "llm", "--settings", installation.file)
    assert "go back to version 2 of the model" in shown.out


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--back 9", "llm has no version 9; it can go back to: 4, 2"),
        ("--back 1", "version 1 is kept no longer; llm can go back to: 4, 2"),
        ("--back 3", "version 3 was turned down"),
        ("--back abc", "say at least 6 digits"),
        ("--back sha256:ffffffffffff", "has no version sha256:ffffffffffff"),
        ("--back 2 --latest", "not both"),
    ],
)
def test_what_cannot_be_gone_back_to(
    tunerd: Tunerd, installation: Installation, line: str, said: str
) -> None:
    stands(installation)
    refused = tunerd("models", "llm", "--settings", installation.file, *line.split())
    assert refused.code == 2
    assert said in refused.err
    with installation.open_store() as store:
        assert store.commands() == []


def test_an_unknown_study(tunerd: Tunerd, installation: Installation) -> None:
    for more in ((), ("--latest",)):
        said = tunerd("models", "lm", "--settings", installation.file, *more)
        assert said.code == 2
        assert "the store knows no study lm; it knows: llm" in said.err


def test_a_refusal_of_the_daemon_is_the_exit_code(
    tunerd: Tunerd, installation: Installation
) -> None:
    stands(installation)
    with daemon(installation, "refused: version 2 is kept no longer"):
        said = tunerd("models", "llm", "--settings", installation.file, "--back", "2")
    assert said.code == 2
    assert "kept no longer" in said.err
