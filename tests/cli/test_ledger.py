"""``tunerd ledger``, from a store to a person and to a program."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from msgspec import structs

from tests.cli.conftest import Installation, Said
from tests.report.world import world
from tunerd.core.decisions.context_state import ContextState
from tunerd.core.evidence.prequential import LedgerEntry
from tunerd.core.evidence.rollout import RolloutResult
from tunerd.store import ContextRow, TuneStep

Tunerd = Callable[..., Said]

NOW = datetime.now(UTC)
KEY = "llm|gpu=H100|n_gpus=8"


@pytest.fixture
def month(installation: Installation) -> Installation:
    rows = [
        structs.replace(
            one,
            context_key=KEY,
            finished_at=NOW - timedelta(hours=200 - i),
            outcome=structs.replace(
                one.outcome,
                following="followed",
                told_to_try=i % 10 == 0,
                score=1.0,
                gpu_hours=2.0,
                entry=LedgerEntry(
                    lead=0.0, ahead=0.1, promised=0.05 if i % 10 == 0 else None, kind="explore"
                ),
            ),
        )
        for i, one in enumerate(world(1).run(200)[0])
    ]
    state = ContextState({"gpu": "H100", "n_gpus": 8})
    at = (NOW - timedelta(hours=3)).isoformat()
    state.introduction.verdicts = [RolloutResult("c-new", "promoted", 150, at, 4, 0.1, -0.4)]
    state.introduction.uplift.ahead = 0.1
    with installation.open_store() as store, store.transaction() as tx:
        tx.add_predictions("llm", rows)
        tx.save_context_states("llm", [ContextRow(KEY, state.dump(), NOW, 200)])
    return installation


def test_for_a_person(tunerd: Tunerd, month: Installation) -> None:
    said = tunerd("ledger", "llm", "--settings", month.file)
    assert (said.code, said.err) == (0, "")
    for part in ("200 jobs", "followed", "predicted +5.0%, realised +0.0%", "saved 38", "promoted"):
        assert part in said.out


def test_for_a_program(tunerd: Tunerd, month: Installation) -> None:
    told = tunerd("ledger", "llm", "--settings", month.file, "--json").json
    assert told["schema"] == "tunerd.ledger/1"
    assert told["total"]["overrated"] == pytest.approx(0.05)
    assert told["contexts"][0]["gpu_hours_saved"] == pytest.approx(180 * 2 * 0.10517, rel=1e-3)
    assert told["introductions"][0]["outcome"] == "promoted"


@pytest.mark.parametrize("incumbent", [None, "c-new"])
def test_a_lead_is_an_incumbents(
    tunerd: Tunerd, month: Installation, incumbent: str | None
) -> None:
    with month.open_store() as store, store.transaction() as tx:
        (row,) = store.context_states("llm")
        state = ContextState.load(row.state)
        state.introduction.incumbent = incumbent
        tx.save_context_states("llm", [ContextRow(KEY, state.dump(), NOW, 200)])
    said = tunerd("ledger", "llm", "--settings", month.file).out
    told = tunerd("ledger", "llm", "--settings", month.file, "--json").json
    assert ("incumbent +10.5% on the first one here" in said) is (incumbent is not None)
    assert ("on the first one" in said) is (incumbent is not None)
    assert (told["contexts"][0]["ahead"] is None) is (incumbent is None)


@pytest.mark.parametrize(
    ("options", "jobs"),
    [
        (("--context", "gpu=H100"), 200),
        (("--context", "gpu=A100"), 0),
        (("--since", (NOW - timedelta(hours=20)).isoformat()), 20),
    ],
)
def test_only_some_of_it(
    tunerd: Tunerd, month: Installation, options: tuple[str, str], jobs: int
) -> None:
    told = tunerd("ledger", "llm", "--settings", month.file, "--json", *options).json
    assert told["total"]["jobs"] == pytest.approx(jobs, abs=1)


def test_an_unknown_study(tunerd: Tunerd, installation: Installation) -> None:
    said = tunerd("ledger", "nosuch", "--settings", installation.file)
    assert said.code == 2
    assert "it knows: llm" in said.err


def test_a_beginning_that_has_not_come(tunerd: Tunerd, month: Installation) -> None:
    said = tunerd("ledger", "llm", "--since", "2999-01-01", "--settings", month.file)
    assert said.code == 2
    assert "not in the past" in said.err


def test_what_another_version_learned_is_learned_anew_first(
    tunerd: Tunerd, month: Installation
) -> None:
    with month.open_store() as store, store.transaction() as tx:
        (row, *_) = store.context_states("llm")
        tx.save_context_states("llm", [without_introduction(row)])
    said = tunerd("ledger", "llm", "--settings", month.file)
    assert said.code == 2
    assert "another version of tunerd learned llm; `tunerd run` learns it anew" in said.err


def test_of_a_context_no_more_is_read_than_is_told(tunerd: Tunerd, month: Installation) -> None:
    with month.open_store() as store, store.transaction() as tx:
        (row, *_) = store.context_states("llm")
        tx.save_context_states("llm", [replace(row, state={**row.state, "evidence": {}})])
    said = tunerd("ledger", "llm", "--settings", month.file)
    assert (said.code, "promoted" in said.out) == (0, True)


def without_introduction(row: ContextRow) -> ContextRow:
    return replace(row, state={**row.state, "introduction": {}})


def test_jobs_of_contexts_that_the_study_knows_no_longer_count_all_the_same(
    tunerd: Tunerd, month: Installation
) -> None:
    with month.open_store() as store, store.transaction() as tx:
        tx.forget_contexts("llm", [KEY])
    told = tunerd("ledger", "llm", "--settings", month.file, "--json").json
    assert (told["total"]["jobs"], told["contexts"][0]["context_key"]) == (200, KEY)
    assert told["contexts"][0]["ahead"] is None
    assert f"{KEY}: 200 jobs" in tunerd("ledger", "llm", "--settings", month.file).out


def test_what_was_judged_by_another_objective_is_left_out(
    tunerd: Tunerd, month: Installation
) -> None:
    text = month.study_file.read_text()
    with month.open_store() as store, store.transaction() as tx:
        for generation, (first, last) in enumerate([(1, 150), (151, 200)], start=1):
            tx.save_step(
                TuneStep(
                    study="llm",
                    epoch=1,
                    generation=generation,
                    sequence_from=first,
                    sequence_to=last,
                    seeds=(1,),
                    model=None,
                    finished_at=NOW,
                )
            )
    with month.open_store() as store:
        store.publish_generation(
            "llm", "2", text.replace('"speed"', '"other"'), "test", NOW, force=True
        )
    told = tunerd("ledger", "llm", "--settings", month.file, "--json").json
    assert (told["total"]["jobs"], told["jobs_of_another_objective"]) == (50, 150)
    said = tunerd("ledger", "llm", "--settings", month.file).out
    assert "50 jobs\n  150 earlier ones were judged by another objective" in said
    report = tunerd("report", "llm", "--settings", month.file, "--json").json
    assert report["counts"]["jobs"] == 50
    assert report["notes"][0].startswith("150 jobs were judged by another objective")
