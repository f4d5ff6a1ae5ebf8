"""``tunerd quarantine``: what it lists, and what it leaves in the store."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, get_args

import pytest
from sqlalchemy import Engine, event

from tests.cli.conftest import Installation, Said
from tunerd.cli.quarantine import REASONS
from tunerd.core.observation import Observation, Status
from tunerd.core.outliers import QuarantineReason
from tunerd.store import QuarantineRow

Tunerd = Callable[..., Said]
Quarantine = Callable[..., Said]
NOW = datetime(2026, 11, 20, 10, tzinfo=UTC)


@pytest.fixture(autouse=True)
def two_jobs(installation: Installation) -> None:
    """Two jobs in quarantine, of eve and of nobody."""
    with installation.open_store() as store, store.transaction() as tx:
        for sequence, user in enumerate(("eve\x1b[2J", None), 1):
            job = Observation(
                study="llm",
                source="s",
                event_id=f"e{sequence}",
                job_id=f"j{sequence}",
                status=Status.SUCCEEDED,
                finished_at=NOW,
                context={"gpu": "H100", "n_gpus": 8},
                config={"tp": 1, "pp": 1},
                metrics={"speed": 4e5},
                user=user,
                extra={"nodes": ["n7"]},
            )
            tx.add_observations("llm", [job], NOW)
            text = "1,000 times farther than every other job of its context"
            tx.add_quarantined(
                [
                    QuarantineRow(
                        study="llm",
                        sequence=sequence,
                        reason="far",
                        text=text,
                        value=4e5,
                        context_key="llm|gpu=H100|n_gpus=8",
                        config_id="c",
                        held_at=NOW,
                    )
                ]
            )


@pytest.fixture
def quarantine(tunerd: Tunerd, installation: Installation) -> Quarantine:
    """``tunerd quarantine SUBCOMMAND … --settings FILE``."""
    return lambda *words: tunerd("quarantine", *words, "--settings", installation.file)


def test_jobs_are_listed_and_shown(quarantine: Quarantine) -> None:
    said = quarantine("list")
    assert "llm 1  far by eve" in said.out
    assert "\x1b" not in said.out
    assert "llm|gpu=H100|n_gpus=8: 400000: 1,000 times farther" in said.out
    assert "2 jobs in quarantine." in said.out
    listed = json.loads(quarantine("list", "--node", "n7", "--json").out)
    assert listed["waiting"] == {"llm": 2}
    assert [(job["sequence"], job["nodes"]) for job in listed["jobs"]] == [(2, ["n7"]), (1, ["n7"])]
    assert json.loads(quarantine("list", "--node", "n8", "--json").out)["jobs"] == []
    shown = quarantine("show", "llm", "2")
    assert "metrics     speed = 400000.0" in shown.out
    assert quarantine("show", "llm", "3").code == 2


def test_a_reason_that_does_not_exist_is_refused_and_the_others_named(
    quarantine: Quarantine,
) -> None:
    for words in (("list",), ("release", "llm"), ("confirm", "llm")):
        said = quarantine(*words, "--reason", "nonsense")
        assert said.code == 2
        assert all(repr(reason) in said.err for reason in REASONS)
    assert quarantine("list", "--reason", "far", "--json").json["jobs"]
    assert get_args(QuarantineReason) == REASONS


def test_the_jobs_of_a_list_are_read_at_once(
    quarantine: Quarantine,
) -> None:
    statements: list[str] = []

    def note(*arguments: Any) -> None:
        statements.append(arguments[2])

    event.listen(Engine, "before_cursor_execute", note)
    try:
        assert len(quarantine("list", "--json").json["jobs"]) == 2
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    assert sum("FROM observations" in statement for statement in statements) == 1


@pytest.mark.parametrize("command", ["release", "confirm"])
def test_what_is_said_of_jobs_is_a_command(
    quarantine: Quarantine, tunerd: Tunerd, installation: Installation, command: str
) -> None:
    assert quarantine(command, "llm", "1", "--why", "a slip").code == 0
    assert quarantine(command, "llm", "--all").code == 0
    assert quarantine(command, "llm").code == 2
    assert quarantine(command, "llm", "1", "--all").code == 2
    assert quarantine(command, "llm", "--user", "nobody").code == 2
    with installation.open_store() as store:
        given = store.commands("llm")
    assert [(row.command, row.arguments["sequences"]) for row in given] == [
        (command, [1]),
        (command, [1, 2]),
    ]
    assert given[0].why == "a slip"
    what = "release from quarantine" if command == "release" else "call bad"
    assert (
        f"{what}: 2 jobs (1, 2)" in tunerd("commands", "llm", "--settings", installation.file).out
    )


def test_status_says_how_many_wait(tunerd: Tunerd, installation: Installation) -> None:
    shown = tunerd("status", "--settings", installation.file).out
    assert "\n  quarantine 2 jobs in quarantine" in shown
