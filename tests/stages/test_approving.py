"""Mode approve through the tune stage: what waits, what is credited, what a yes or no does."""

from typing import Any

import pytest

from tests.stages.fakes import START
from tests.stages.test_generations import CONTEXT_RENAMED, Changes
from tests.stages.tuning import NAME, Tuning, job, random_jobs, study, true_speed
from tunerd import telemetry
from tunerd.cli.approve import waiting
from tunerd.core.decisions.ledger import ledger
from tunerd.core.observation import Observation, Value
from tunerd.core.recommendation import Candidate, Recommendation
from tunerd.core.study import Study
from tunerd.core.study_file import parse_study
from tunerd.events import from_bytes
from tunerd.queries.explanation import standing
from tunerd.report.gather import gather
from tunerd.stages.replay import derive
from tunerd.stages.tune import TuneStage


def proposed(tuning: Tuning, mode: str = '"approve"') -> TuneStage:
    """Proposals wait in three contexts."""
    tuning.learned(mode=mode)
    return tuning.start()


def approved(tuning: Tuning, n: int = 8) -> tuple[TuneStage, Recommendation]:
    """One of them was approved."""
    tune = proposed(tuning)
    answered(tuning, tune, "approve", n)
    return tune, tuning.said(n)


def answered(tuning: Tuning, tune: TuneStage, answer: str, n: int = 8) -> str:
    """A person answers what waits in a context; what came of it."""
    row = tuning.row(n)
    waits = row.recommendation_id
    if row.proposal is not None:
        waits = from_bytes(row.proposal.encode()).recommendation_id
    number = tuning.command(answer, context_key=tuning.key(n), recommendation_id=waits)
    tuning.run(tune)
    return tuning.result(number) or ""


def trying(said: Recommendation, one: Candidate, sequence: int, **changed: Value) -> Observation:
    """A job that was told to try a candidate, and perhaps changed it."""
    config: dict[str, Value] = {**one.config, **changed}
    return job(
        sequence,
        said.context,
        config,
        speed=true_speed(said.context, config),
        recommendation_id=said.recommendation_id,
        candidate_id=one.candidate_id,
    )


def changed(tuning: Tuning, changes: Changes, mode: str = "approve") -> Study:
    """A new generation, still in this mode."""
    text = study(mode=f'"{mode}"').text
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    new_study = parse_study(text)
    tuning.store.publish_generation(
        NAME, new_study.content_hash, text, "test", tuning.time.now(), force=True
    )
    return new_study


def promising(said: Recommendation) -> Candidate:
    return next(one for one in said.candidates if one.gain is not None)


# ── what is credited ─────────────────────────────────────────────────────────────────────────


def test_what_was_approved_is_compared_with_what_comes(tuning: Tuning) -> None:
    tune, said = approved(tuning)
    one = promising(said)
    tuning.add([trying(said, one, 61)])
    tuning.run(tune)
    total = ledger(study(), tuning.store.predictions(NAME)).study
    assert total.tried == {one.kind.value: 1}
    assert total.promises == 1
    assert one.gain is not None
    assert abs(total.promised - one.gain.median) < 1e-6
    assert tuning.heard.of(telemetry.StepCommitted)[-1].gain_jobs == 1


def test_who_changed_a_candidate_says_nothing_of_it(tuning: Tuning) -> None:
    tune, said = approved(tuning)
    one = promising(said)
    other = 1 if one.config["x"] != 1 else 2
    tuning.add([trying(said, one, 61, x=other)])
    tuning.run(tune)
    (*_, judged) = tuning.store.predictions(NAME)
    assert judged.outcome.following == "changed"
    assert tuning.heard.of(telemetry.StepCommitted)[-1].gain_jobs == 0


# ── what waits ───────────────────────────────────────────────────────────────────────────────


def test_what_was_observed_waits_for_approval_from_then_on_and_back(tuning: Tuning) -> None:
    tune = proposed(tuning, '"observe"')
    assert waiting(tuning.store, NAME) == []
    tuning.publish(mode='"approve"')
    tuning.run(tune)
    assert {row.state for row in tuning.rows().values()} == {"pending"}
    assert {one.context_key for one in waiting(tuning.store, NAME)} == {*tuning.rows()}
    assert "published" in answered(tuning, tune, "approve")
    tuning.publish(mode='"observe"')
    tuning.run(tuning.start())
    assert waiting(tuning.store, NAME) == []
    assert {row.state for row in tuning.rows().values()} == {"observed", "withdrawn"}


def test_what_is_found_in_the_step_of_an_approval_waits_beside_it(tuning: Tuning) -> None:
    tune = proposed(tuning)
    first = tuning.said()
    tuning.add(random_jobs(40, first=61, seed=3))
    assert answered(tuning, tune, "approve") == f"published for {first.context_key}"
    row = tuning.row()
    assert (row.state, row.recommendation_id) == ("active", first.recommendation_id)
    assert row.proposal is not None
    assert from_bytes(row.proposal.encode()).recommendation_id != first.recommendation_id


def test_what_runs_already_does_not_wait_for_approval(tuning: Tuning) -> None:
    tune, runs = approved(tuning)
    tuning.command("campaign", context={"n": 8}, jobs=2, rounds=0, round_size=2, repeats=1)
    tuning.run(tune)
    assert [one.context_key for one in waiting(tuning.store, NAME)].count(runs.context_key) == 1
    tuning.command("cancel", context_key=runs.context_key)
    tuning.run(tune)
    assert tuning.said().recommendation_id == runs.recommendation_id
    assert runs.context_key not in [one.context_key for one in waiting(tuning.store, NAME)]


def test_where_nothing_is_feasible_any_more_nothing_waits(tuning: Tuning) -> None:
    tune = proposed(tuning)
    tuning.publish(mode='"approve"', fits='"x <= n and n != 8"')
    tuning.run(tune)
    assert tuning.row(8).state == "dropped"
    assert tuning.row(16).state == "pending"


@pytest.mark.parametrize("forbid_first", [True, False])
def test_what_is_approved_and_ruled_out_in_one_step_is_refused(
    tuning: Tuning, forbid_first: bool
) -> None:
    tune = proposed(tuning)
    said = tuning.said()
    config = {"y": said.candidates[0].config["y"]}
    yes: tuple[str, dict[str, Any]] = (
        "approve",
        {"context_key": said.context_key, "recommendation_id": said.recommendation_id},
    )
    no: tuple[str, dict[str, Any]] = ("forbid", {"config": config, "context": {}})
    given = [no, yes] if forbid_first else [yes, no]
    numbers = {name: tuning.command(name, **told) for name, told in given}
    tuning.run(tune)
    assert (tuning.result(numbers["approve"]) or "").startswith("refused: it breaks a limit")
    assert tuning.outbox() == []


def test_what_is_approved_and_paused_in_one_step_is_refused(tuning: Tuning) -> None:
    tune = proposed(tuning)
    said = tuning.said()
    number = tuning.command(
        "approve", context_key=said.context_key, recommendation_id=said.recommendation_id
    )
    tuning.command("pause", context={"n": 8})
    tuning.run(tune)
    assert (tuning.result(number) or "").startswith(f"refused: {said.context_key} is paused")
    assert tuning.outbox() == []


def test_what_is_approved_as_the_study_ends_is_refused(tuning: Tuning) -> None:
    tune = proposed(tuning)
    said = tuning.said()
    number = tuning.command(
        "approve", context_key=said.context_key, recommendation_id=said.recommendation_id
    )
    tuning.command("end")
    tuning.run(tune)
    assert tuning.result(number) == "refused: the study has ended"
    assert tuning.outbox() == []


def test_what_is_approved_under_a_name_that_is_gone_is_refused_and_waits_anew(
    tuning: Tuning,
) -> None:
    tune = proposed(tuning)
    said = tuning.said()
    now = changed(tuning, CONTEXT_RENAMED)
    number = tuning.command(
        "approve", context_key=said.context_key, recommendation_id=said.recommendation_id
    )
    tuning.run(tune)
    assert (tuning.result(number) or "").startswith("refused: the study has changed")
    keys = {one.context_key for one in waiting(tuning.store, NAME)}
    assert keys == {now.context_key({"n": n}) for n in (4, 8, 16)}
    assert tuning.outbox() == []


def test_the_report_and_explain_tell_the_same(tuning: Tuning) -> None:
    tune = proposed(tuning)
    answered(tuning, tune, "approve", 16)
    answered(tuning, tune, "decline", 8)
    tuning.command("pause", context={"n": 4})
    tuning.run(tune)
    stands = standing(tuning.store, study(mode='"approve"'))
    assert [(one.message.context_key, one.state) for one in stands] == [(tuning.key(16), "active")]
    told = gather(tuning.store, NAME, START, tuning.time.now(), past=False).told
    assert {key: one.state for key, one in told.items()} == {
        tuning.key(4): "dropped",
        tuning.key(8): "declined",
        tuning.key(16): "active",
    }
    assert not told[tuning.key(8)].recommendation.candidates
    assert told[tuning.key(8)].recommendation.reason == "An operator declined what was proposed."
    tuning.publish(mode='"observe"')
    tuning.run(tuning.start())
    stands = standing(tuning.store, study(mode='"observe"'))
    assert (tuning.key(16), "observed") in [(one.message.context_key, one.state) for one in stands]
    told = gather(tuning.store, NAME, START, tuning.time.now(), past=False).told
    assert told[tuning.key(16)].state == "observed"


@pytest.mark.parametrize("mode", ["observe", "approve", "publish"])
def test_what_was_said_under_a_name_that_is_gone_is_told_no_more_once_its_key_is_free(
    tuning: Tuning, mode: str
) -> None:
    proposed(tuning, f'"{mode}"')
    now = changed(tuning, CONTEXT_RENAMED, mode)
    tune = tuning.start()
    tuning.run(tune)
    for days in (4, 4):
        tuning.run(tune, days=days)
    told = {row.context_key: row.standing(mode) for row in tuning.store.recommendations(NAME)}
    assert {key for key, stands in told.items() if stands} == {
        now.context_key({"n": n}) for n in (4, 8, 16)
    }


def test_what_was_proposed_and_approved_is_derived_again(tuning: Tuning) -> None:
    tune = proposed(tuning)
    for first in (61, 81, 101):
        tuning.add(random_jobs(20, first=first, seed=first))
        answered(tuning, tune, "approve")
        said = tuning.said()
        tuning.add([trying(said, one, first) for one in said.candidates if one.gain])
        tuning.run(tune)
    known = [one for _, one, _ in tuning.store.derivable(NAME, limit=1000)]
    assert len(known) > 9
    for one in known[:3]:
        kept = tuning.store.derivation(one)
        assert kept is not None
        derived = derive(tuning.store, kept)
        assert derived.same, derived.checks
