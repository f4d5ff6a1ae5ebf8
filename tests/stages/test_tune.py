"""Tune, step by step: what is learned and said, how recommendations live, what a crash costs."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from tests.core.tuning import Inline
from tests.stages.fakes import CrashError, Heard, Time, crash_in
from tests.stages.tuning import Tuning, another, job, random_jobs, study, true_speed
from tunerd import telemetry
from tunerd.core.observation import Observation, Value
from tunerd.core.recommendation import Advice, Recommendation, State
from tunerd.core.scores import MOST_ERROR
from tunerd.core.tuner import Tuner
from tunerd.errors import StoreUnavailableError
from tunerd.events import from_bytes
from tunerd.settings.model import TuneSettings
from tunerd.stages.checkpoints import parts_of

# -- learning and saying --------------------------------------------------------------------


def test_without_a_study_or_a_job_there_is_nothing_to_do(tuning: Tuning) -> None:
    tune = tuning.start()
    assert not tune.step()
    tuning.publish()
    tuning.run(tune)
    assert tuning.rows() == {}
    assert tuning.store.study("toy") is not None
    assert tuning.heard.of(telemetry.StepCommitted)[-1].sequence == 0


def test_what_is_learned_is_saved_with_what_follows_from_it(tuning: Tuning) -> None:
    tuning.publish()
    tuning.add(random_jobs(40))
    tuning.run(tuning.start())
    rows, waiting = tuning.rows(), tuning.outbox()
    assert set(rows) == {tuning.key(n) for n in (4, 8, 16)}
    assert {key: value for key, _, value in waiting} == {
        key: row.value.encode() for key, row in rows.items()
    }
    assert all((row.state, row.revision) == ("active", 1) for row in rows.values())
    known = tuning.store.study("toy")
    assert known is not None
    assert known.learned_sequence == 40
    said = tuning.said()
    assert said.made_from.sequence == 40
    assert said.made_from.model is not None
    assert tuning.store.checkpoint("toy", said.made_from.model)
    stepped = [one for one in tuning.heard.of(telemetry.StepCommitted) if one.observations]
    assert [(one.observations, one.issued, one.waiting) for one in stepped] == [(40, 3, 0)]
    assert {line["context"] for line in tuning.lines.of("recommended")} == set(rows)


def test_every_step_leaves_a_row_and_they_follow_without_a_gap(tuning: Tuning) -> None:
    tuning.publish()
    tune = tuning.start()
    for first in range(1, 50, 9):
        tuning.add(random_jobs(9, first=first, seed=first))
        tuning.run(tune)
    steps = tuning.store.steps("toy", limit=1000)[::-1]
    learned = [s for s in steps if s.sequence_to >= s.sequence_from]
    ends = [(s.sequence_from, s.sequence_to) for s in learned]
    assert ends == [(first, first + 8) for first in range(1, 50, 9)]
    assert all(s.generation == 1 and s.epoch == 1 and s.seeds == (1, 2, 3) for s in steps)


def test_a_backlog_is_learned_in_bounded_steps(
    tuning: Tuning, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tunerd.stages.tune.LEARN_MOST", 25)
    tuning.publish()
    tuning.add(random_jobs(60))
    tuning.run(tuning.start())
    counts = [s.observations for s in tuning.heard.of(telemetry.StepCommitted) if s.observations]
    assert counts == [25, 25, 10]


def test_a_backlog_that_takes_long_is_learned_in_short_steps_and_to_the_same_model(
    tuning: Tuning,
) -> None:
    tuning.heard = Slow(tuning.time)
    tuning.settings = TuneSettings(checkpoint_every=1)
    tuning.publish()
    tuning.add(random_jobs(200))
    tuning.run(tuning.start())
    counts = [s.observations for s in tuning.heard.of(telemetry.StepCommitted) if s.observations]
    assert counts == [64, 64, 72]  # a portion takes three seconds
    # The parent's deadline counts from the last of these: it is for what hangs.
    assert len(tuning.heard.of(telemetry.StepStarted)) >= 3 + 6
    whole = Tuner(study(), Inline())
    whole.learn(tuning.store.observations("toy", after=0, limit=200))
    saved = tuning.store.study_state("toy")
    assert saved is not None
    assert whole.model is not None
    parts = parts_of(tuning.store, "toy", saved.state["model"])
    assert parts == whole.model.dump()


class Slow(Heard):
    """A machine that takes three seconds between any two words."""

    def __init__(self, time: Time) -> None:
        super().__init__()
        self.time = time

    def hear(self, report: telemetry.Report, /) -> None:
        super().hear(report)
        if isinstance(report, telemetry.StepStarted):
            self.time.pass_(seconds=3)


def test_what_is_predicted_is_compared_with_what_comes(tuning: Tuning) -> None:
    tuning.publish()
    tune = tuning.start()
    for first in (1, 61, 121):
        tuning.add(random_jobs(60, first=first, seed=first))
        tuning.run(tune)
    scores = tuning.heard.of(telemetry.StepCommitted)[-1].scores
    assert scores is not None
    assert scores.kendall is not None
    assert scores.kendall > 0.5


def test_an_objective_close_to_zero_leaves_the_error_a_number(tuning: Tuning) -> None:
    tuning.publish()
    tune = tuning.start()
    tuning.add(random_jobs(60))
    tuning.run(tune)
    (last,) = random_jobs(1, first=61)
    tuning.add([structs.replace(last, metrics={"speed": 5e-324})])
    tuning.run(tune)
    scores = tuning.heard.of(telemetry.StepCommitted)[-1].scores
    assert scores is not None
    assert scores.mape is not None
    assert 0.0 < scores.mape < MOST_ERROR


def test_every_job_leaves_what_was_thought_of_it_in_the_step_that_learned_it(
    tuning: Tuning,
) -> None:
    tuning.publish()
    tune = tuning.start()
    tuning.add(random_jobs(60))
    tuning.run(tune)
    tuning.add(random_jobs(60, first=61, seed=2))
    tuning.run(tune)
    rows = tuning.store.predictions("toy")
    assert [one.sequence for one in rows] == list(range(1, 121))
    assert [one.outcome.following for one in rows] == ["unasked"] * 60 + ["ignored"] * 60
    assert all(one.outcome.predicted is None for one in rows[:32])
    assert all(one.outcome.predicted is not None for one in rows[32:])
    later = [one.outcome for one in rows[60:]]
    assert all(one.predicted is not None and one.first is not None for one in later)
    assert any(one.incumbent is not None for one in later)
    stepped = [one for one in tuning.heard.of(telemetry.StepCommitted) if one.observations]
    assert [one.following for one in stepped] == [{"unasked": 60}, {"ignored": 60}]
    assert stepped[1].scores is not None
    assert stepped[1].scores.coverage is not None
    assert 0.5 < stepped[1].scores.coverage <= 1.0


def test_what_was_predicted_long_ago_is_dropped(tuning: Tuning) -> None:
    tuning.publish()
    tuning.add(random_jobs(10))
    tuning.run(tuning.start())
    tuning.time.pass_(days=500)
    tuning.add(random_jobs(10, first=11))
    tuning.run(tuning.start())
    assert [one.sequence for one in tuning.store.predictions("toy")] == list(range(11, 21))


def history(jobs: Sequence[Observation]) -> list[Observation]:
    """Old jobs, as an import sends them."""
    return [structs.replace(one, history=True) for one in jobs]


def test_imported_jobs_of_years_ago_lead_to_a_recommendation(tuning: Tuning) -> None:
    tuning.publish(mode='"observe"')
    tuning.add(history(random_jobs(300)))
    tuning.time.pass_(days=1000)
    tuning.run(tuning.start())
    assert [row.state for row in tuning.rows().values()] == ["observed"] * 3
    known = tuning.store.study("toy")
    assert known is not None
    assert known.learned_sequence == 300
    # Judged in their order by what was known before, but not part of how well tunerd does now.
    judged = tuning.store.predictions("toy", history=True)
    assert sum(one.outcome.predicted is not None for one in judged) >= 250
    assert {one.outcome.following for one in judged} == {None}
    scores = tuning.heard.of(telemetry.StepCommitted)[-1].scores
    assert scores is not None
    assert scores.observations == 0


def test_contexts_are_searched_when_all_old_jobs_are_learned(tuning: Tuning) -> None:
    tuning.publish()
    tuning.add(history(random_jobs(300)))
    tuning.run(tuning.start())
    searched = [step for step in tuning.store.steps("toy", limit=100) if step.contexts]
    assert {step.sequence_to for step in searched} == {300}
    tuning.add(random_jobs(1, first=301))
    tuning.run(tuning.start())
    assert tuning.heard.of(telemetry.StepCommitted)[-1].observations == 1


def test_a_live_job_among_old_ones_is_scored_and_answered(tuning: Tuning) -> None:
    tuning.publish()
    tuning.add(history(random_jobs(100)))
    tuning.run(tuning.start())
    tuning.add([*random_jobs(5, first=101), *history(random_jobs(5, first=106))])
    tuning.run(tuning.start())
    judged = tuning.store.predictions("toy", history=False)
    assert [one.sequence for one in judged] == [101, 102, 103, 104, 105]
    scores = tuning.heard.of(telemetry.StepCommitted)[-1].scores
    assert scores is not None
    assert scores.observations == sum(one.outcome.score is not None for one in judged)


def test_imported_contexts_outlive_a_new_generation_and_a_restart(tuning: Tuning) -> None:
    tuning.publish()
    tuning.add(history(random_jobs(100)))
    tuning.time.pass_(days=400)
    tuning.run(tuning.start())
    before = {key: row.state for key, row in tuning.rows().items()}
    tuning.publish(explore_share="0.2")
    tuning.run(tuning.start(), days=20)
    assert {key: row.state for key, row in tuning.rows().items()} == before
    tuning.run(tuning.start(), days=20)  # nobody came in a month
    assert {row.state for row in tuning.rows().values()} == {"withdrawn"}


def test_a_context_in_which_nothing_is_feasible_is_named_and_the_others_go_on(
    tuning: Tuning,
) -> None:
    tuning.publish()
    tuning.add([*random_jobs(20), job(21, {"n": 0}, {"x": 1}, speed=1.0)])
    tuning.run(tuning.start())
    assert len(tuning.rows()) == 3
    (line,) = tuning.lines.of("nothing feasible")
    assert "fits" in line["problem"]


def test_a_study_that_is_set_aside_is_left_alone(tuning: Tuning) -> None:
    tuning.publish()
    tuning.add(random_jobs(20))
    number = tuning.command("latest")
    assert tuning.run(tuning.start(set_aside={"toy": "it hangs"})) == 0
    assert tuning.result(number) == "refused: toy is set aside: it hangs"


def test_values_that_a_study_does_not_have_are_counted(tuning: Tuning) -> None:
    tuning.publish()
    usual: dict[str, Value] = {"x": 1, "y": "a", "z": False}
    ran = [usual | {"x": 16, "y": "d"}, usual | {"x": "1.5"}, usual | {"new": 3}, usual]
    tuning.add([job(i, {"n": 8}, one, speed=9.0) for i, one in enumerate(ran, start=1)])
    tuning.run(tuning.start())
    told = [one.outside for one in tuning.heard.of(telemetry.StepCommitted) if one.observations]
    assert told == [{"x": 2, "y": 1, "": 1}]


def test_a_study_that_only_a_newer_tunerd_can_read_is_told_and_left_alone(tuning: Tuning) -> None:
    tuning.publish()
    other, newer = (
        study().text.replace(*change)
        for change in (('"toy"', '"other"'), ('"boosted_trees"', '"of tomorrow"'))
    )
    tuning.store.publish_generation("other", "other", other, "test", tuning.time.now())
    tuning.store.publish_generation("toy", "newer", newer, "newer", tuning.time.now())
    tuning.add(random_jobs(20))
    tune = tuning.start()
    tuning.run(tune)
    (line,) = tuning.lines.of("study set aside: this tunerd cannot read it")
    assert line["study"] == "toy"
    assert "there is no predictor 'of tomorrow'" in line["problem"]
    (aside,) = tuning.heard.of(telemetry.StudySetAside)
    assert (aside.study, aside.why) == ("toy", line["problem"])
    assert [one.study for one in tuning.heard.of(telemetry.StudyLoaded)] == ["other"]
    tuning.publish()  # as a reload does with a file that can be read
    tuning.run(tune)
    assert [one.study for one in tuning.heard.of(telemetry.StudyLoaded)] == ["other", "toy"]
    assert len(tuning.rows()) == 3


def test_asked_to_stop_it_saves_what_it_has_and_the_next_one_goes_on(tuning: Tuning) -> None:
    tuning.publish()
    tuning.add(random_jobs(20))
    tuning.stop = lambda: True
    first = tuning.start()
    first.step()
    assert first.step()
    first.close = lambda: None  # type: ignore[method-assign]
    known = tuning.store.study("toy")
    assert known is not None
    assert known.learned_sequence == 20
    assert tuning.rows() == {}
    tuning.stop = lambda: False
    tuning.run(tuning.start())
    assert len(tuning.rows()) == 3


def test_what_has_just_come_in_is_told_before_older_contexts_are_looked_at(tuning: Tuning) -> None:
    """The clock stands still: there is time for all of them in one step."""
    tuning.publish()
    tuning.add(random_jobs(40))
    tune = tuning.start()
    tuning.run(tune)
    tuning.add(random_jobs(60, seed=1, first=41, sizes=[8]))
    assert tune.step()
    steps = tuning.heard.of(telemetry.StepCommitted)
    assert (steps[-1].observations, steps[-1].contexts_searched) == (60, 1)
    tuning.run(tune)
    later = tuning.heard.of(telemetry.StepCommitted)[len(steps) :]
    assert sum(step.contexts_searched for step in later) == 2


def test_whose_job_waits_already_does_not_wait_behind_every_newer_one(
    tuning: Tuning, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search takes 0.7 seconds here, so that a step has time for two of them."""
    order = slow_searches(tuning, monkeypatch, lambda: None)
    tuning.publish()
    tuning.add([job(i, {"n": n}, {"x": 1}) for i, n in enumerate((4, 8, 16), 1)])
    tune = tuning.start()
    tune.step()
    assert tune.step()
    assert order == [4, 8]
    tuning.add([job(i, {"n": n}, {"x": 1}) for i, n in enumerate((2, 6), 4)])
    assert tune.step()
    assert order == [4, 8, 16, 2]
    assert tune.step()
    assert order == [4, 8, 16, 2, 6]


@pytest.mark.parametrize("comes", [False, True])
def test_where_many_contexts_wait_steps_are_longer_until_a_job_comes(
    tuning: Tuning, monkeypatch: pytest.MonkeyPatch, comes: bool
) -> None:
    """A search takes 0.7 seconds here: a step has time for two of them, or for three."""

    def meanwhile() -> None:
        if comes and len(order) == 2:
            tuning.add([job(4, {"n": 2}, {"x": 1})])

    monkeypatch.setattr("tunerd.stages.tune.BRIEF_ABOVE", 2)
    order = slow_searches(tuning, monkeypatch, meanwhile)
    tuning.publish()
    tuning.add([job(i, {"n": n}, {"x": 1}) for i, n in enumerate((4, 8, 16), 1)])
    tune = tuning.start()
    tune.step()
    assert tune.step()
    assert order == ([4, 8] if comes else [4, 8, 16])


def test_older_contexts_leave_most_of_the_time_to_jobs_while_these_come(
    tuning: Tuning, monkeypatch: pytest.MonkeyPatch
) -> None:
    tuning.publish()
    tuning.add(random_jobs(40))
    tune = tuning.start()
    tuning.run(tune)
    new = iter((job(61, {"n": 4}, {"x": 1}, speed=30.0), job(62, {"n": 4}, {"x": 2}, speed=30.0)))

    def comes() -> None:
        if order[-1] != 4 and (one := next(new, None)) is not None:
            tuning.add([one])

    order = slow_searches(tuning, monkeypatch, comes)
    tuning.add(random_jobs(20, seed=1, first=41, sizes=[4]))
    assert tune.step()
    assert order == [4]
    assert tune.step()
    assert len(order) == 2  # an older one, and meanwhile a job came in
    assert tune.step()
    assert order[2:] == [4]
    assert not tune.step()
    tuning.time.pass_(seconds=6.0)
    assert tune.step()
    assert order.count(4) == 2
    assert {8, 16} < set(order)


def slow_searches(
    tuning: Tuning, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], None]
) -> list[object]:
    """Let every search take 0.7 seconds; returns a list in which they are noted, by context."""
    order: list[object] = []
    advise = Tuner.advise

    def slow(
        tuner: Tuner, key: str, running: Recommendation | None, *, brief: bool = False
    ) -> Advice:
        if not tuner.is_fallback(key):
            order.append(tuner.contexts[key].context["n"])
        tuning.time.pass_(seconds=0.7)
        meanwhile()
        return advise(tuner, key, running, brief=brief)

    monkeypatch.setattr(Tuner, "advise", slow)
    return order


# -- modes and commands ---------------------------------------------------------------------


def test_observing_publishes_nothing_and_says_what_it_would(tuning: Tuning) -> None:
    tuning.learned(40, mode='"observe"')
    assert [row.state for row in tuning.rows().values()] == ["observed"] * 3
    assert tuning.outbox() == []
    assert len(tuning.lines.of("would recommend")) == 3
    steps = tuning.heard.of(telemetry.StepCommitted)
    assert sum(step.issued for step in steps) == 0
    assert sum(step.suggested for step in steps) == 3
    assert (steps[-1].running, steps[-1].proposed) == (0, 3)
    assert sum(sum(step.candidates.values()) for step in steps) > 0
    tuning.run(tuning.start(), days=60)
    assert tuning.outbox() == []


def test_approving_publishes_what_was_proposed(tuning: Tuning) -> None:
    tuning.learned(40, mode='"approve"')
    tune = tuning.start()
    assert {row.state for row in tuning.rows().values()} == {"pending"}
    assert tuning.outbox() == []
    proposed = tuning.said()
    command = tuning.command(
        "approve",
        context_key=proposed.context_key,
        recommendation_id=proposed.recommendation_id,
    )
    tuning.run(tune, days=2)
    assert tuning.result(command) == f"published for {proposed.context_key}"
    ((key, revision, value),) = tuning.outbox()
    assert (key, revision) == (proposed.context_key, 1)
    published = from_bytes(value or b"")
    assert published.recommendation_id == proposed.recommendation_id
    assert published.candidates == proposed.candidates
    assert published.issued_at == tuning.time.now()
    assert tuning.row().state == "active"


def test_an_approved_one_stays_until_a_newer_proposal_is_approved(tuning: Tuning) -> None:
    tuning.learned(40, mode='"approve"')
    tune = tuning.start()
    first = tuning.said()
    tuning.command(
        "approve", context_key=first.context_key, recommendation_id=first.recommendation_id
    )
    tuning.run(tune)
    tuning.outbox()
    tuning.add(random_jobs(60, first=41, seed=5))
    tuning.run(tune)
    assert tuning.said() == replace(
        first, issued_at=tuning.said().issued_at, valid_until=tuning.said().valid_until
    )
    assert tuning.outbox() == []
    row = tuning.row()
    assert row.state == "active"
    assert row.proposal is not None
    again = tuning.start()  # a proposal survives a restart
    newer = from_bytes(row.proposal.encode())
    assert newer.recommendation_id != first.recommendation_id
    stale = tuning.command(
        "approve", context_key=first.context_key, recommendation_id=first.recommendation_id
    )
    good = tuning.command(
        "approve", context_key=newer.context_key, recommendation_id=newer.recommendation_id
    )
    tuning.run(again)
    assert (tuning.result(stale) or "").startswith("refused")
    assert (tuning.result(good) or "").startswith("published")
    assert [(key, revision) for key, revision, _ in tuning.outbox()] == [(row.context_key, 2)]
    assert tuning.row().proposal is None


def test_commands_that_make_no_sense_are_refused_in_words(tuning: Tuning) -> None:
    tuning.publish()
    tuning.add(random_jobs(10))
    tune = tuning.start()
    approve = tuning.command("approve", context_key=tuning.key(8), recommendation_id="r-1")
    other = tuning.command("reboot")
    nowhere = tuning.command(
        "campaign", context={"n": 0}, jobs=3, rounds=1, round_size=3, repeats=1
    )
    tuning.run(tune)
    assert tuning.result(approve) == (
        "refused: the study is in mode publish, nothing waits for approval"
    )
    assert tuning.result(other) == "refused: this version of tunerd knows no command 'reboot'"
    assert "fits" in (tuning.result(nowhere) or "")
    assert (tuning.lines.of("command carried out")[0]["who"]) == "ann"


def test_a_campaign_asks_for_runs_round_by_round(tuning: Tuning) -> None:
    tuning.publish()
    tune = tuning.start()
    command = tuning.command(
        "campaign", context={"n": 8}, jobs=4, rounds=2, round_size=2, repeats=2
    )
    tuning.run(tune)
    assert tuning.result(command) == f"campaign begun in {tuning.key(8)}"
    rounds: list[tuple[int | None, int, int]] = []
    sequence = 0
    while (said := tuning.said()).round is not None:
        wanted = [c for c in said.candidates if c.wanted]
        rounds.append((said.round, len(wanted), sum(c.wanted for c in wanted)))
        jobs = []
        for candidate in wanted:
            for _ in range(candidate.wanted):
                sequence += 1
                speed = true_speed({"n": 8}, candidate.config)
                jobs.append(job(sequence, {"n": 8}, candidate.config, speed=speed))
        tuning.add(jobs)
        tune = tuning.start() if len(rounds) == 2 else tune  # it survives a restart
        tuning.run(tune)
    assert rounds == [(0, 4, 8), (1, 2, 4), (2, 2, 4)]


def test_a_campaign_without_a_random_start_begins_with_the_best_predicted(tuning: Tuning) -> None:
    tuning.learned(40)
    tune = tuning.start()
    tuning.command("campaign", context={"n": 8}, jobs=0, rounds=1, round_size=3, repeats=1)
    tuning.run(tune)
    said = tuning.said()
    wanted = [c for c in said.candidates if c.wanted]
    assert (said.round, len(wanted)) == (1, 3)
    assert all(c.predicted is not None for c in wanted)


# -- how a recommendation lives -------------------------------------------------------------


def published(tuning: Tuning) -> None:
    """Recommendations are out in three contexts, and sent."""
    tuning.learned(40)
    assert len(tuning.outbox()) == 3


def test_it_is_renewed_at_half_its_validity(tuning: Tuning) -> None:
    published(tuning)
    tune, before = tuning.start(), tuning.said()
    tuning.run(tune, days=3.4)
    assert tuning.outbox() == []
    tuning.run(tune, days=0.1)
    assert sorted((key, revision) for key, revision, _ in tuning.outbox()) == sorted(
        (tuning.key(n), 2) for n in (4, 8, 16)
    )
    after = tuning.said()
    assert after == replace(
        before, revision=2, issued_at=after.issued_at, valid_until=after.valid_until
    )
    assert (after.valid_until - after.issued_at).days == 7
    assert after.valid_until > before.valid_until
    assert [one.renewed for one in tuning.heard.of(telemetry.StepCommitted) if one.renewed] == [3]


def test_it_is_withdrawn_when_its_context_is_no_longer_active_and_its_key_freed(
    tuning: Tuning,
) -> None:
    published(tuning)
    tune = tuning.start()
    for _ in range(9):  # after thirty days it is withdrawn
        tuning.run(tune, days=3.6)
    last = {key: (revision, value) for key, revision, value in tuning.outbox()}
    assert set(last) == {tuning.key(n) for n in (4, 8, 16)}
    for _, value in last.values():
        assert value is not None
        withdrawn = from_bytes(value)
        assert withdrawn.state is State.WITHDRAWN
        assert withdrawn.candidates == ()
        assert "30 days" in withdrawn.reason
    tuning.run(tune, days=6.9)
    assert tuning.outbox() == []
    tuning.run(tune, days=0.2)
    assert {key: value for key, _, value in tuning.outbox()} == dict.fromkeys(last)
    tuning.run(tune, days=20)
    assert tuning.outbox() == []
    # A job wakes the context up; its revisions count on.
    tuning.add([job(41, {"n": 8}, {"x": 1, "y": "a", "z": False}, speed=50.0)])
    tuning.run(tune)
    ((key, revision, _),) = tuning.outbox()
    assert revision is not None
    assert revision > (last[key][0] or 0)
    assert tuning.row().state == "active"


def test_a_study_that_ended_is_silent_until_its_next_generation(tuning: Tuning) -> None:
    published(tuning)
    command = tuning.command("end")
    tuning.run(tuning.start())
    assert tuning.result(command) == "ended; 3 recommendations withdrawn"
    assert [from_bytes(value or b"").reason for _, _, value in tuning.outbox()] == [
        "The study has ended."
    ] * 3
    tuning.add(random_jobs(10, first=41, seed=3))
    again = tuning.start()
    tuning.run(again)
    assert tuning.outbox() == []
    known = tuning.store.study("toy")
    assert known is not None
    assert known.learned_sequence == 50
    # Nobody tells anything of a study that is over, so that no alert goes on about it.
    over = tuning.heard.reports.index(telemetry.StudyReleased(study="toy"))
    after = tuning.heard.reports[over:]
    assert not [one for one in after if isinstance(one, telemetry.StudyStatus)]
    tuning.publish(explore_share="0.4")
    tuning.run(again)
    assert [revision for _, revision, _ in tuning.outbox()] == [3, 3, 3]


def test_a_generation_that_knows_contexts_by_other_names_withdraws_the_old_ones(
    tuning: Tuning,
) -> None:
    published(tuning)
    tune = tuning.start()
    tuning.publish(n='{ type = "int", scale = "log", key = { bucket = 10 } }')
    tuning.run(tune)
    outbox = {key: from_bytes(value or b"") for key, _, value in tuning.outbox()}
    old = {tuning.key(n) for n in (4, 8, 16)}
    assert {key for key, one in outbox.items() if one.state is State.WITHDRAWN} == old
    assert all("no longer" in outbox[key].reason for key in old)
    active = {key: one for key, one in outbox.items() if one.state is State.ACTIVE}
    assert active
    assert all(one.revision == 1 and one.made_from.sequence == 40 for one in active.values())
    assert {row.context_key for row in tuning.store.context_states("toy")} == set(active)


def test_going_back_to_observing_withdraws_what_is_out(tuning: Tuning) -> None:
    published(tuning)
    tune = tuning.start()
    tuning.publish(mode='"observe"')
    tuning.run(tune)
    assert {from_bytes(value or b"").reason for _, _, value in tuning.outbox()} == {
        "The study only observes now."
    }
    tuning.publish(mode='"publish"')
    tuning.run(tune)
    assert {revision for _, revision, _ in tuning.outbox()} == {3}


def test_a_generation_learns_its_history_anew_and_a_crash_in_that_costs_nothing(
    tuning: Tuning, monkeypatch: pytest.MonkeyPatch
) -> None:
    published(tuning)
    tuning.publish(explore_share="0.4")
    with crash_in(monkeypatch, "save_study_state"), pytest.raises(CrashError):
        tuning.run(tuning.start())
    assert tuning.outbox() == []
    tuning.run(tuning.start())
    assert all(one.revision == 2 for one in map(tuning.said, (4, 8, 16)))
    assert tuning.said().made_from.study == study(explore_share="0.4").content_hash


def ran(tuning: Tuning, first: int, *values: int) -> None:
    """Jobs of n = 8 with these values of x; the larger, the faster, and the more they draw."""
    tuning.add(
        [
            structs.replace(
                job(first + i, {"n": 8}, {"x": x, "y": "a", "z": False}),
                metrics={"speed": 10.0 * x, "power": 100.0 + x},
            )
            for i, x in enumerate(values)
        ]
    )


def serves(tuning: Tuning) -> object:
    """Value of x of the incumbent of n = 8."""
    incumbent = tuning.said().incumbent
    return None if incumbent is None else incumbent.config["x"]


def test_a_generation_with_another_goal_elects_its_incumbents_at_once(tuning: Tuning) -> None:
    tuning.publish(explore_share="0.1")
    ran(tuning, 1, 6, 6, 6, 1, 1, 1)
    tuning.run(tuning.start())
    assert serves(tuning) == 6
    tuning.publish(explore_share="0.1", goal='"minimize"')
    tuning.run(tuning.start())
    assert serves(tuning) == 1
    assert tuning.said().objective.goal == "minimize"


@pytest.mark.parametrize(
    ("changes", "then"),
    [
        ({}, 1),
        ({"unit": '"jobs/s"'}, 1),
        ({"scale": '"linear"'}, 6),
        ({"metric": '"power"'}, 6),
    ],
)
def test_what_is_established_stays_while_scores_mean_the_same(
    tuning: Tuning, changes: dict[str, str], then: int
) -> None:
    """Three runs that look better are no promotion yet; by evidence alone they would be."""
    tuning.publish(explore_share="0.1")
    tune = tuning.start()
    ran(tuning, 1, *[1] * 12)
    tuning.run(tune)
    ran(tuning, 13, *[6] * 3)
    tuning.run(tune)
    assert serves(tuning) == 1
    tuning.publish(explore_share="0.2", **changes)
    tuning.run(tuning.start())
    assert serves(tuning) == then


# -- crashes and rivals ---------------------------------------------------------------------

ALWAYS = ("fence", "save_context_states", "save_study_state", "save_step", "mark_learned")
"""Methods that every step that learns something calls."""


@pytest.mark.parametrize("method", ["save_checkpoint", "save_recommendation", "enqueue", *ALWAYS])
def test_a_crash_in_the_middle_of_saving_leaves_nothing_and_is_made_good(
    tuning: Tuning, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    published(tuning)
    tuning.add(random_jobs(30, first=41, seed=7))
    before, steps = tuning.rows(), tuning.store.steps("toy", limit=100)
    tune = tuning.start()
    tune.step()  # loads
    with crash_in(monkeypatch, method), pytest.raises(CrashError):
        tune.step()
    assert tuning.rows() == before
    assert tuning.store.steps("toy", limit=100) == steps
    assert tuning.store.unsent(10) == []
    known = tuning.store.study("toy")
    assert known is not None
    assert known.learned_sequence == 40
    tuning.run(tuning.start())
    assert tuning.said().made_from.sequence == 70
    assert tuning.said().revision == 2


def test_a_store_that_is_away_costs_a_repeat(
    tuning: Tuning, monkeypatch: pytest.MonkeyPatch
) -> None:
    tuning.publish()
    tuning.add(random_jobs(40))
    tune = tuning.start()
    tune.step()

    def gone() -> StoreUnavailableError:
        return StoreUnavailableError("locked")

    with crash_in(monkeypatch, "mark_learned", gone), pytest.raises(StoreUnavailableError):
        tune.step()
    tune.forget()  # as the tuner process does
    tuning.run(tune)
    assert [revision for _, revision, _ in tuning.outbox()] == [1, 1, 1]


def test_a_study_that_is_loaded_says_how_it_stands(tuning: Tuning) -> None:
    """After a start nobody has to wait for the next job to see what was known before it."""
    published(tuning)
    before = tuning.heard.of(telemetry.StepCommitted)[-1]
    tuning.start().step()
    (loaded,) = [one for one in tuning.heard.of(telemetry.StudyLoaded) if one.sequence]
    for name in telemetry.StudyStatus.__struct_fields__:
        assert getattr(loaded, name) == getattr(before, name), name
    assert loaded.running == 3


def test_one_that_lost_its_lease_writes_nothing(tuning: Tuning) -> None:
    published(tuning)
    former, latter = tuning.start(), tuning.start()
    former.step()
    latter.step()
    tuning.add(random_jobs(30, first=41, seed=7))
    before = tuning.rows()
    assert former.step()
    assert tuning.rows() == before
    assert tuning.outbox() == []
    assert tuning.lines.of("study taken over")
    assert telemetry.StudyReleased(study="toy") in tuning.heard.reports
    assert latter.step()
    assert tuning.said().made_from.sequence == 70


# -- the same again -------------------------------------------------------------------------


def life(tuning: Tuning, crash: pytest.MonkeyPatch | None) -> dict[str, str]:
    """A study's life in the same steps, with or without crashes. Returns all that it said last.

    With them, the tuner process dies in the middle of every second step."""
    tuning.publish()
    tune = tuning.start()
    first = 1
    for turn, size in enumerate((3, 5, 30, 7, 60, 11, 250, 40, 17, 30, 30, 21)):
        tuning.add(random_jobs(size, first=first, seed=first))
        first += size
        if crash is not None and turn % 2:
            with crash_in(crash, ALWAYS[turn % len(ALWAYS)]), pytest.raises(CrashError):
                tuning.run(tune)
            tuning.time.pass_(seconds=-10.1)  # the same time for the same step
            tune = tuning.start()
        elif crash is not None and not turn % 3:
            tune = tuning.start()
        tuning.run(tune)
    return {key: row.value for key, row in tuning.rows().items()}


def test_with_crashes_the_same_steps_say_the_same_to_the_last_bit(
    tuning: Tuning, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calm = life(tuning, None)
    with another(tmp_path) as crashing:
        assert life(crashing, monkeypatch) == calm
    assert len(calm) == 3
    assert all(json.loads(value)["revision"] > 1 for value in calm.values())
