"""``tunerd report``, from a store to the terminal, a program and a page."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import jsonschema
import pytest
from msgspec import structs

from tests.cli.conftest import Installation, Said
from tests.report.made import told
from tests.report.world import world
from tunerd.core.evidence.prequential import PrequentialRecord
from tunerd.events import to_bytes
from tunerd.store import RecommendationRow

Tunerd = Callable[..., Said]

NOW = datetime.now(UTC)
KEY = "llm|gpu=H100|n_gpus=8"


def keep(
    installation: Installation, rows: list[PrequentialRecord], *, until: datetime = NOW
) -> None:
    """As if they had been learned: the last of them ended just now, the others before."""
    last = rows[-1].finished_at
    moved = [
        structs.replace(one, finished_at=until - timedelta(minutes=1) - (last - one.finished_at))
        for one in rows
    ]
    with installation.open_store() as store, store.transaction() as tx:
        tx.add_predictions("llm", moved)


def recommend(installation: Installation) -> None:
    message = told(KEY, {"gpu": "H100", "n_gpus": 8}, study="llm")
    with installation.open_store() as store, store.transaction() as tx:
        tx.save_recommendation(
            RecommendationRow(
                study="llm",
                context_key=KEY,
                revision=0,
                recommendation_id=message.recommendation_id,
                state="observed",
                value=to_bytes(message).decode(),
                issued_at=NOW,
                valid_until=NOW + timedelta(days=7),
            )
        )


@pytest.fixture
def month(installation: Installation) -> Installation:
    keep(installation, world(1).run(200)[0])
    recommend(installation)
    return installation


def test_for_a_person(tunerd: Tunerd, month: Installation) -> None:
    said = tunerd("report", "llm", "--settings", month.file)
    assert (said.code, said.err) == (0, "")
    for part in ("200 jobs in 5 contexts", "bear this out", "Kendall", "gpu", "best known"):
        assert part in said.out


@pytest.mark.slow
def test_for_a_program(tunerd: Tunerd, month: Installation) -> None:
    report = tunerd("report", "llm", "--settings", month.file, "--json").json
    schema = tunerd("schema", "report").json
    jsonschema.validate(report, schema)
    assert report["schema"] == "tunerd.report/1"
    assert report["counts"]["jobs"] == 200
    assert report["would"]["verdict"] == "shown"
    assert report["contexts"][-1]["values"] == {"gpu": "H100", "n_gpus": 8}


@pytest.mark.slow
def test_as_a_page(tunerd: Tunerd, month: Installation, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    said = tunerd("report", "llm", "--settings", month.file, "--html", file)
    assert str(file) in said.out
    assert "bear this out" in said.out
    assert file.read_text(encoding="utf-8").startswith("<!doctype html>")
    both = tunerd("report", "llm", "--settings", month.file, "--html", file, "--json")
    assert both.json["counts"]["jobs"] == 200


@pytest.mark.parametrize(
    ("option", "jobs"),
    [
        (("--days", "1"), 72),
        (("--days", "0.01"), 1),
        (("--since", (NOW - timedelta(hours=10)).isoformat()), 30),
        (("--since", "2020-01-01"), 200),
    ],
)
def test_the_window(
    tunerd: Tunerd, month: Installation, option: tuple[str, str], jobs: int
) -> None:
    report = tunerd("report", "llm", "--settings", month.file, "--json", *option).json
    assert report["counts"]["jobs"] == pytest.approx(jobs, abs=1)


def test_nothing_yet(tunerd: Tunerd, installation: Installation) -> None:
    said = tunerd("report", "llm", "--settings", installation.file)
    assert (said.code, "No jobs came in this time." in said.out) == (0, True)


@pytest.mark.slow
def test_imported_jobs_are_shown_when_asked_for_and_where_there_is_little_else(
    tunerd: Tunerd, installation: Installation
) -> None:
    past, _ = world(2).run(120)
    keep(
        installation,
        [structs.replace(one, history=True, sequence=one.sequence + 1000) for one in past],
        until=NOW - timedelta(days=900),
    )
    said = tunerd("report", "llm", "--settings", installation.file)
    assert "Of 120 imported jobs, 120 were predicted" in " ".join(said.out.split())
    keep(installation, world(1).run(200)[0])
    command = ("report", "llm", "--settings", installation.file, "--json")
    assert tunerd(*command).json["history"] is None
    asked = tunerd(*command, "--history").json
    assert (asked["history"]["jobs"], asked["counts"]["jobs"]) == (120, 200)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("nope",), "the store knows no study nope; it knows: llm"),
        (("llm", "--days", "3", "--since", "2026-01-01"), "either --days or --since"),
        (("llm", "--since", "yesterday"), "not a date such as 2026-11-20"),
        (("llm", "--since", "0001-01-01T00:00:00+14:00"), "not a date such as 2026-11-20"),
        (("llm", "--since", "2026-01-01T10:00:00"), "needs a zone"),
        (("llm", "--since", "2999-01-01"), "not in the past"),
        (("llm", "--days", "0"), "x>0"),
        (("llm", "--days", "1e9"), "there were no jobs"),
        (("llm", "--html", "/nowhere/report.html"), "cannot write /nowhere/report.html"),
    ],
)
def test_used_wrongly(
    tunerd: Tunerd, installation: Installation, arguments: tuple[str, ...], problem: str
) -> None:
    said = tunerd("report", "--settings", installation.file, *arguments)
    assert said.code == 2
    assert problem in said.err


def test_json_is_json_on_a_wide_page_of_unicode(tunerd: Tunerd, month: Installation) -> None:
    out = tunerd("report", "llm", "--settings", month.file, "--json").out
    assert json.loads(out)["headline"].isprintable()
