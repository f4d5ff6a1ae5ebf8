"""``tunerd attempts``: which halves of which jobs are missing."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from tests.cli.conftest import Installation, Said
from tunerd.store import AttemptRow

Tunerd = Callable[..., Said]

NOW = datetime.now(UTC)


@pytest.fixture
def waiting(installation: Installation) -> Installation:
    """Two jobs that wait for long, one that does for a minute, and one that was joined."""
    rows = [
        (("a", "4711", 1), 30.0, "reported", None, False),
        (("a", "4712_3", 2), 9.0, "reported,completed", None, False),
        (("b", "17\x1b[2J", 1), 0.001, "completed", 5, False),
        (("b", "18", 1), 30.0, "", 6, True),
    ]
    with installation.open_store() as store, store.transaction() as tx:
        tx.take_attempts([key for key, *_ in rows], NOW - timedelta(days=30))
        tx.save_attempts(
            [
                AttemptRow(
                    key=key,
                    first_at=NOW,
                    last_at=NOW - timedelta(days=days),
                    study="llm" if key[0] == "a" else None,
                    missing=missing,
                    sequence=sequence,
                    ended=ended,
                    halves="{}",
                )
                for key, days, missing, sequence, ended in rows
            ]
        )
    return installation


def test_it_lists_what_waits_for_long(tunerd: Tunerd, waiting: Installation) -> None:
    said = tunerd("attempts", "--settings", waiting.file)
    assert said.code == 0, said.err
    head, _, first, second = said.out.splitlines()
    assert head == "1 waiting for halves, 2 incomplete: no half for 7 days."
    assert first.split()[:5] == ["a", "4711", "1", "llm", "reported"]
    assert second.split()[:3] == ["a", "4712_3", "2"]
    assert "reported, completed" in second


def test_all_of_one_study_and_as_json(tunerd: Tunerd, waiting: Installation) -> None:
    said = tunerd("attempts", "--all", "--settings", waiting.file)
    assert "\x1b" not in said.out
    assert "completed (counts, as running)" in said.out
    found = tunerd("attempts", "--all", "--json", "--settings", waiting.file).json
    assert [one["job_id"] for one in found] == ["4711", "4712_3", "17\x1b[2J"]
    assert found[0]["missing"] == ["reported"]
    assert found[2]["counts"] is True
    of_study = tunerd(
        "attempts", "llm", "--all", "--limit", 1, "--json", "--settings", waiting.file
    )
    assert [one["job_id"] for one in of_study.json] == ["4711"]
    assert tunerd("attempts", "lm", "--settings", waiting.file).code == 2


def test_status_counts_them(tunerd: Tunerd, waiting: Installation) -> None:
    said = tunerd("status", "--settings", waiting.file)
    assert "halves   1 attempt of jobs not joined yet; 2 incomplete" in said.out
    counts = tunerd("status", "--json", "--settings", waiting.file).json["attempts"]
    assert (counts["waiting"], counts["incomplete"]) == (1, 2)


def test_without_halves_status_says_nothing_of_them(
    tunerd: Tunerd, installation: Installation
) -> None:
    assert "\nhalves" not in tunerd("status", "--settings", installation.file).out
    said = tunerd("attempts", "--settings", installation.file)
    assert said.out == "0 waiting for halves, 0 incomplete: no half for 7 days.\n"
