"""``tunerd campaign`` and ``tunerd approve`` leave commands in the store."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.cli.conftest import STUDY, Installation, Said
from tests.cli.test_status import VALUE, recommend
from tunerd.core.decisions.campaign import MIN_FEASIBLE
from tunerd.errors import StoreUnavailableError
from tunerd.store import Store, Transaction

Tunerd = Callable[..., Said]

CONTEXT = ("--context", "gpu=H100", "--context", "n_gpus=8")


def test_a_campaign(tunerd: Tunerd, installation: Installation) -> None:
    said = tunerd(
        "campaign", "llm", "--settings", installation.file, *CONTEXT,
        "--jobs", 20, "--rounds", 3, "--round-size", 5, "--repeats", 2, "--why", "new driver",
    )  # fmt: skip
    assert said.code == 0, said.err
    assert "70 runs in all under llm|gpu=H100|n_gpus=8" in said.out
    assert "waits for `tunerd approve`" in said.out
    assert "No daemon answers here" in said.out
    with installation.open_store() as store:
        (command,) = store.commands("llm")
    assert (command.command, command.why) == ("campaign", "new driver")
    assert "@" in command.who
    assert command.arguments == {
        "context_key": "llm|gpu=H100|n_gpus=8",
        "context": {"gpu": "H100", "n_gpus": 8},
        "jobs": 20,
        "rounds": 3,
        "round_size": 5,
        "repeats": 2,
        "patience_h": 168.0,
        "min_feasible": MIN_FEASIBLE,
    }
    assert "campaign" in tunerd("status", "--settings", installation.file).out


def test_a_command_that_could_not_be_kept_is_not_said_to_be_given(
    tunerd: Tunerd, installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    transaction = Store.transaction

    @contextmanager
    def full(store: Store) -> Iterator[Transaction]:
        with transaction(store) as tx:
            yield tx
            raise StoreUnavailableError("the disk is full")

    monkeypatch.setattr(Store, "transaction", full)
    said = tunerd("resume", "llm", "--settings", installation.file)
    assert said.code == 1
    assert said.out == ""
    assert "the disk is full" in said.err


def test_rounds_are_as_large_as_the_start(tunerd: Tunerd, installation: Installation) -> None:
    options = ("--settings", installation.file, *CONTEXT, "--jobs", 4, "--rounds", 1)
    assert "8 runs in all" in tunerd("campaign", "llm", *options).out


def test_a_campaign_where_enough_is_known(tunerd: Tunerd, installation: Installation) -> None:
    options = ("--jobs", 0, "--rounds", 2, "--round-size", 5, "--min-feasible", 0.5)
    said = tunerd("campaign", "llm", "--settings", installation.file, *CONTEXT, *options)
    assert "campaign of 2 rounds of 5 in llm|" in said.out
    assert "10 runs in all" in said.out
    assert "Round 1 (at most 5 jobs) waits" in said.out
    assert "At most 10 runs" in said.out
    with installation.open_store() as store:
        (command,) = store.commands("llm")
    assert (command.arguments["jobs"], command.arguments["min_feasible"]) == (0, 0.5)


def test_a_campaign_that_cannot_be(tunerd: Tunerd, installation: Installation) -> None:
    def ask(study: str, *options: object) -> str:
        said = tunerd("campaign", study, "--settings", installation.file, *options)
        assert said.code == 2
        return said.err

    assert "it knows: llm" in ask("lmm", *CONTEXT, "--jobs", 4, "--rounds", 1)
    assert "missing: n_gpus" in ask("llm", "--context", "gpu=a", "--jobs", 4, "--rounds", 1)
    assert "should be an integer" in ask(
        "llm", "--context", "gpu=a", "--context", "n_gpus=x", "--jobs", 4, "--rounds", 1
    )
    assert "jobs" in ask("llm", *CONTEXT, "--jobs", -1, "--rounds", 1)
    assert "--round-size" in ask("llm", *CONTEXT, "--jobs", 0, "--rounds", 1)
    assert "--rounds" in ask("llm", *CONTEXT, "--jobs", 0, "--rounds", 0, "--round-size", 4)
    assert "min-feasible" in ask("llm", *CONTEXT, "--jobs", 4, "--rounds", 1, "--min-feasible", 1.5)
    assert "--rounds" in ask("llm", *CONTEXT, "--jobs", 4)
    for option in ("--patience", "--min-feasible"):
        for value in ("nan", "inf"):
            given = ask("llm", *CONTEXT, "--jobs", 4, "--rounds", 1, option, value)
            assert f"Invalid value for '{option}'" in given
    with installation.open_store() as store:
        assert store.commands() == []


def test_the_mode_decides_what_happens_next(tunerd: Tunerd, installation: Installation) -> None:
    from datetime import UTC, datetime

    for mode, part in (("observe", "nothing will be published"), ("publish", "goes out on")):
        text = STUDY.replace("approve", mode)
        with installation.open_store() as store:
            store.publish_generation("llm", mode, text, "test", datetime.now(UTC))
        said = tunerd(
            "campaign", "llm", "--settings", installation.file, *CONTEXT, "--jobs", 2, "--rounds", 0
        )
        assert part in said.out


def test_approving_one(tunerd: Tunerd, installation: Installation) -> None:
    recommend(installation, state="pending")
    listed = tunerd("approve", "--settings", installation.file)
    assert listed.out == "r-1  llm|gpu=H100|n_gpus=8\n"
    said = tunerd("approve", "r-1", "--settings", installation.file, "--why", "looks good")
    assert said.code == 0, said.err
    with installation.open_store() as store:
        (command,) = store.commands("llm")
    assert (command.command, command.why) == ("approve", "looks good")
    assert command.arguments == {
        "context_key": "llm|gpu=H100|n_gpus=8",
        "recommendation_id": "r-1",
    }


def test_approving_all_that_wait(tunerd: Tunerd, installation: Installation) -> None:
    recommend(installation, state="active", proposal=VALUE.replace("r-1", "r-2"))
    said = tunerd("approve", "--all", "--study", "llm", "--settings", installation.file)
    assert "approve r-2" in said.out
    assert tunerd("approve", "r-1", "--settings", installation.file).code == 2


def test_nothing_to_approve(tunerd: Tunerd, installation: Installation) -> None:
    assert tunerd("approve", "--settings", installation.file).out == "Nothing waits for approval.\n"
    said = tunerd("approve", "--all", "--settings", installation.file)
    assert (said.code, "nothing waits" in said.err) == (2, True)
    assert tunerd("approve", "r-1", "--all", "--settings", installation.file).code == 2
    assert tunerd("approve", "--study", "no", "--settings", installation.file).code == 2


def test_a_reason_that_is_no_text(tunerd: Tunerd, installation: Installation) -> None:
    said = tunerd("end", "llm", "--why", "zu gro\udcdf", "--settings", installation.file)
    assert (said.code, "Invalid value for '--why'" in said.err) == (2, True)


def test_an_end(tunerd: Tunerd, installation: Installation) -> None:
    said = tunerd("end", "llm", "--settings", installation.file, "--why", "project over")
    assert said.code == 0, said.err
    with installation.open_store() as store:
        (command,) = store.commands("llm")
    assert (command.command, command.why) == ("end", "project over")
    unknown = tunerd("end", "lmm", "--settings", installation.file)
    assert unknown.code == 2
    assert "lmm" in unknown.err
