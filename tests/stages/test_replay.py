"""Recommendations made again from history: bit for bit, and what is said where they are not.

A store is filled once, through everything that a recommendation can depend on: the first fits, a
restart, a campaign, limits, a backlog, a rebuild in the background, a new generation. Tests that
tamper have a copy of it.
"""

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from tests.empty_store import empty_store
from tests.stages.fakes import Heard, Time
from tests.stages.tuning import NAME, Tuning, random_jobs, tamper
from tunerd.core.observation import Observation
from tunerd.core.recommendation import Advice, Recommendation
from tunerd.core.tuner import Tuner
from tunerd.stages import replay
from tunerd.stages.build_info import build
from tunerd.stages.replay import ReplayResult, derive
from tunerd.store import ProvenanceRow, Store, open_store

STEP = 12


def said(store: Store) -> list[ProvenanceRow]:
    """All that can be derived, in the order in which it was said."""
    found = [store.derivation(one) for _, one, _ in store.derivable(NAME, limit=1000)]
    return sorted((one for one in found if one is not None), key=lambda one: one.said_at)


def check(derived: ReplayResult, what: str) -> tuple[bool | None, str]:
    return next((one.same, one.text) for one in derived.checks if one.what == what)


def followed(tuning: Tuning, jobs: list[Observation]) -> list[Observation]:
    """Some of the jobs, as if they had followed what is recommended to them."""
    rows = tuning.rows()
    found = []
    for i, job in enumerate(jobs):
        row = rows.get(tuning.key(job.context["n"]))  # type: ignore[arg-type]
        candidates = json.loads(row.value)["candidates"] if row and i % 3 == 0 else []
        if row is not None and candidates:
            mine = {
                "candidate_id": candidates[0]["candidate_id"],
                "config": candidates[0]["config"],
            }
            job = structs.replace(job, recommendation_id=row.recommendation_id, **mine)
        found.append(job)
    return found


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tuning]:
    store = open_store(empty_store(tmp_path_factory.mktemp("derived") / "store.sqlite"))
    tuning = Tuning(store, Time(), Heard())
    tuning.publish()
    stage = tuning.start()
    first = 1

    def go(times: int, jobs: int = STEP) -> None:
        nonlocal first
        for _ in range(times):
            tuning.add(followed(tuning, random_jobs(jobs, first=first, seed=first)))
            tuning.run(stage)
            first += jobs

    go(4)
    tuning.command("campaign", context={"n": 8}, jobs=4, rounds=1, round_size=3, repeats=1)
    go(3)
    tuning.command("pin", context={}, config={"z": True})
    tuning.command("forbid", context={"n": 4}, config={"y": "b"})
    go(2)
    go(1, 240)  # a backlog, and a rebuild in the background
    stage = tuning.start()
    go(8)
    tuning.command("lift", number=2)
    tuning.publish(explore_share="0.3")
    go(3)
    yield tuning
    tuning.end()
    store.close()


@pytest.fixture
def copied(filled: Tuning, tmp_path: Path) -> Iterator[Store]:
    """A store to tamper with."""
    assert filled.store._database.path is not None
    target = sqlite3.connect(tmp_path / "store.sqlite")
    with sqlite3.connect(filled.store._database.path) as source:
        source.backup(target)
    source.close()
    target.close()
    with open_store(f"sqlite:///{tmp_path}/store.sqlite") as opened:
        yield opened


def last(store: Store) -> ProvenanceRow:
    """The last that a context of its own was told, with something to try."""
    return next(
        one
        for one in reversed(said(store))
        if one.message["candidates"] and one.context_key != NAME
    )


def test_everything_that_was_said_comes_out_the_same(filled: Tuning) -> None:
    """Whatever it was made from, model and message are the same to the last bit."""
    all_of_it = said(filled.store)[::2]
    assert len(all_of_it) > 10
    assert {one.generation for one in all_of_it} == {1, 2}
    models = []
    for kept in all_of_it:
        derived = derive(filled.store, kept, "rebuilt")
        assert derived.same, (kept.sequence, derived.checks, derived.differences)
        assert [one.same for one in derived.checks] == [True] * 6
        assert derived.message == kept.message
        models.append(check(derived, "model")[1])
    assert any("taught 0 times" in one for one in models)
    assert len({one.partition(" and ")[0] for one in models}) > 3
    assert {one.message["round"] for one in all_of_it} >= {None, 0}


@pytest.mark.slow
def test_the_entry_for_the_empty_context_comes_out_the_same(store: Store, time: Time) -> None:
    """It is made from many contexts."""
    tuning = Tuning(store, time, Heard())
    tuning.publish()
    tuning.add(random_jobs(400, sizes=(6, 8, 12, 16, 24, 32, 48)))
    stage = tuning.start()
    tuning.run(stage)
    tuning.command("forbid", context={"n": 8}, config={"x": 6})
    tuning.run(stage)
    entries = [one for one in said(store) if one.context_key == NAME]
    assert len(entries) >= 2
    for kept in entries:
        derived = derive(store, kept)
        assert derived.same, (derived.checks, derived.differences)
        assert "7 contexts" in check(derived, "evidence")[1]
    stage._background.shutdown()


def test_what_is_published_is_what_is_kept(filled: Tuning) -> None:
    for row in filled.rows().values():
        kept = filled.store.derivation(row.recommendation_id)
        assert kept is not None
        assert kept.message["candidates"] == json.loads(row.value)["candidates"]


def test_the_checkpoint_does_as_well(filled: Tuning) -> None:
    derived = derive(filled.store, last(filled.store), "kept")
    assert derived.same
    assert check(derived, "model")[0] is None


def test_a_model_that_learned_very_often_is_taken_from_its_checkpoint(
    filled: Tuning, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "MOST_PORTIONS", 0)
    kept = next(one for one in reversed(said(filled.store)) if one.generation == 1)
    derived = derive(filled.store, kept)
    assert derived.same
    assert "--model rebuilt" in check(derived, "model")[1]


@pytest.mark.slow
def test_a_changed_job_is_found_out_and_where(copied: Store) -> None:
    kept = last(copied)
    at = kept.sequence - STEP - 3
    faster = '{"speed": 9999.5}'
    tamper(copied, "UPDATE observations SET metrics = ? WHERE sequence = ?", faster, at)
    derived = derive(copied, kept)
    same, text = check(derived, "history")
    assert (derived.same, same) == (False, False)
    step = next(s for s in copied.steps_between(NAME, 0, kept.sequence) if s.sequence_to >= at)
    assert f"jobs {step.sequence_from} to {step.sequence_to}" in text
    assert check(derived, "model")[0] is False
    assert "made_from.model" in {one.field for one in derived.differences}


def test_a_job_of_another_context_is_found_out_too(copied: Store) -> None:
    tamper(copied, "UPDATE observations SET username = 'eve' WHERE sequence = 5")
    derived = derive(copied, last(copied), "kept")
    assert check(derived, "history")[0] is False
    assert not derived.differences  # nobody looks at who it was
    assert not derived.same


@pytest.mark.slow
@pytest.mark.parametrize("where", [7, -1])
def test_a_deleted_job_is_missed(copied: Store, where: int) -> None:
    kept = last(copied)
    at = where if where > 0 else kept.sequence
    tamper(copied, "DELETE FROM observations WHERE sequence = ?", at)
    derived = derive(copied, kept)
    assert check(derived, "history")[0] is False
    assert f"{at if where > 0 else at - 1}" in check(derived, "history")[1]
    assert check(derived, "model")[0] is None
    assert derived.message is None


@pytest.mark.slow
def test_without_its_checkpoint_the_model_is_fitted_again(copied: Store) -> None:
    kept = last(copied)
    model = kept.message["made_from"]["model"]
    with copied.transaction() as tx:
        tx.delete_checkpoints(NAME, [model])
    derived = derive(copied, kept, "kept")
    assert derived.same
    assert "no checkpoint" in check(derived, "model")[1]


@pytest.mark.slow
def test_a_damaged_checkpoint_is_made_again(copied: Store) -> None:
    kept = last(copied)
    model = kept.message["made_from"]["model"]
    tamper(copied, "UPDATE checkpoints SET blob = x'00' WHERE name = ?", model)
    derived = derive(copied, kept)
    assert derived.same
    assert "damaged" in check(derived, "model")[1]


@pytest.mark.slow
def test_without_a_checkpoint_or_its_version_nothing_can_be_done(copied: Store) -> None:
    kept = last(copied)
    model = kept.message["made_from"]["model"]
    tamper(copied, "DELETE FROM checkpoints WHERE name = ?", model)
    tamper(copied, "DELETE FROM models")
    derived = derive(copied, kept)
    assert derived.message is None
    assert "cannot be made again" in check(derived, "model")[1]


def test_another_build_is_named(copied: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    other = build() | {"numpy": "3.0"}
    monkeypatch.setattr(replay, "build", lambda: other)
    derived = derive(copied, last(copied), "kept")
    same, text = check(derived, "build")
    assert same is False
    assert text.count("→") == 1
    assert "→ 3.0" in text
    assert not derived.differences


@pytest.mark.slow
def test_an_order_that_nobody_gave_is_found_out(copied: Store) -> None:
    kept = last(copied)
    assert kept.basis["orders"]
    tamper(copied, "DELETE FROM commands WHERE command = 'forbid'")
    derived = derive(copied, kept, "kept")
    assert check(derived, "orders")[0] is False
    assert not derived.same


def test_a_changed_study_is_found_out(copied: Store) -> None:
    kept = last(copied)
    tamper(
        copied,
        "UPDATE generations SET text = replace(text, 'explore_share = 0.3', 'explore_share = 0.2')"
        " WHERE generation = ?",
        kept.generation,
    )
    derived = derive(copied, kept, "kept")
    assert check(derived, "study")[0] is False
    assert any("share" in one.field for one in derived.differences)


def test_a_message_that_was_changed_is_found_out(copied: Store) -> None:
    kept = last(copied)
    first = kept.message["candidates"][0]
    changed = {**kept.message, "candidates": [{**first, "share": 0.9}]}
    with copied.transaction() as tx:
        tx.save_derivation(replace(kept, message=changed))
    again = copied.derivation(kept.recommendation_id)
    assert again is not None
    derived = derive(copied, again, "kept")
    assert not derived.same
    assert any(one.field.startswith("candidates") for one in derived.differences)


def test_only_the_latest_are_kept(copied: Store) -> None:
    before = said(copied)
    with copied.transaction() as tx:
        assert tx.prune_derivations(NAME, 5, before[0].said_at) == len(before) - 5
    after = said(copied)
    assert len(after) == 5
    assert after[0].said_at >= max(one.said_at for one in before if one not in after)


@pytest.mark.slow
def test_after_a_drift_as_well(store: Store, time: Time) -> None:
    """Evidence begins again, and a model with the new regime in front takes over."""
    tuning = Tuning(store, time, Heard())
    tuning.publish()
    stage = tuning.start()
    first = 1
    for times, jobs, factor in ((1, 300, 1.0), (4, STEP, 1.0), (6, STEP, 0.7)):
        for _ in range(times):
            found = [
                structs.replace(one, metrics={k: factor * v for k, v in one.metrics.items()})
                for one in random_jobs(jobs, first=first, seed=first)
            ]
            tuning.add(found)
            tuning.run(stage)
            first += jobs
    drifted = [one for one in said(store) if one.basis["tuner"]["training"]["regimes"]]
    assert drifted
    for kept in drifted:
        derived = derive(store, kept)
        assert derived.same, (derived.checks, derived.differences)
        assert check(derived, "evidence")[0] is None
        assert check(derived, "model")[0] is True
    stage._background.shutdown()


def test_a_brief_look_comes_out_the_same_and_a_whole_one_follows(
    tuning: Tuning, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where many contexts wait, one that has nothing yet is looked at briefly first."""
    monkeypatch.setattr("tunerd.stages.tune.BRIEF_ABOVE", 1)
    monkeypatch.setattr("tunerd.core.decisions.advisor.BRIEF", 16)
    advise, kinds = Tuner.advise, list[tuple[str, bool]]()

    def watched(
        tuner: Tuner, key: str, running: Recommendation | None, *, brief: bool = False
    ) -> Advice:
        kinds.append((key, brief))
        return advise(tuner, key, running, brief=brief)

    monkeypatch.setattr(Tuner, "advise", watched)
    tuning.publish()
    tuning.add(random_jobs(60))
    stage = tuning.start()
    tuning.run(stage)
    for _ in range(3):
        tuning.run(stage)  # when nothing else is to do
    stage._background.shutdown()
    first = {
        one.context_key: one for one in reversed(said(tuning.store)) if one.context_key != NAME
    }
    looks = [key for step in tuning.store.steps(NAME) for key in step.contexts if key in first]
    brief = [one for one in first.values() if one.basis["brief"]]
    assert brief
    assert all(kinds.count((one.context_key, True)) == 1 for one in brief)
    assert all(looks.count(one.context_key) > 1 for one in brief)
    for kept in brief:
        derived = derive(tuning.store, kept, "rebuilt")
        assert derived.same, (derived.checks, derived.differences)


def test_what_is_kept_of_a_recommendation_does_not_grow_with_contexts(tuning: Tuning) -> None:
    """Of the tuner's state only what the context's own search reads."""
    tuning.publish()
    tuning.add(random_jobs(60))
    stage = tuning.start()
    tuning.run(stage)
    stage._background.shutdown()
    for kept in said(tuning.store):
        if kept.context_key != NAME:
            bands = list(kept.basis["tuner"]["bands"]["contexts"])
            assert bands in ([], [kept.context_key])
            assert not {"watch", "window", "plausibility"} & kept.basis["tuner"].keys()
