"""Mode approve through the tune stage: what waits, what is credited, what a yes or no does."""

from tests.stages.tuning import NAME, Tuning, job, random_jobs, study, true_speed
from tunerd import reports
from tunerd.cli.approve import waiting
from tunerd.core.ledger import ledger
from tunerd.core.observation import Observation, Value
from tunerd.core.recommendation import Candidate, Recommendation
from tunerd.events import from_bytes
from tunerd.stages.tune import Tune


def proposed(tuning: Tuning, mode: str = '"approve"') -> Tune:
    """Proposals wait in three contexts."""
    tuning.publish(mode=mode)
    tuning.add(random_jobs(60))
    tune = tuning.start()
    tuning.run(tune)
    return tune


def approved(tuning: Tuning, n: int = 8) -> tuple[Tune, Recommendation]:
    """One of them was approved."""
    tune = proposed(tuning)
    answered(tuning, tune, "approve", n)
    return tune, tuning.said(n)


def answered(tuning: Tuning, tune: Tune, answer: str, n: int = 8) -> str:
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
    assert tuning.heard.of(reports.Stepped)[-1].gain_jobs == 1


def test_who_changed_a_candidate_says_nothing_of_it(tuning: Tuning) -> None:
    tune, said = approved(tuning)
    one = promising(said)
    other = 1 if one.config["x"] != 1 else 2
    tuning.add([trying(said, one, 61, x=other)])
    tuning.run(tune)
    (*_, judged) = tuning.store.predictions(NAME)
    assert judged.outcome.following == "changed"
    assert tuning.heard.of(reports.Stepped)[-1].gain_jobs == 0


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
