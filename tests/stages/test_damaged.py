"""What is saved gets damaged: the study is learned again by itself, and others go on."""

from collections.abc import Callable

import pytest

from tests.contracts.store_data import NOW, STUDY, add_study
from tests.stages.tuning import Tuning, random_jobs, study, tamper
from tunerd import telemetry
from tunerd.cli.commands import words
from tunerd.core.tuner import Tuner
from tunerd.store import Store


def _learned(tuning: Tuning, jobs: int = 40) -> None:
    """A study that has learned, in a process that is gone."""
    tuning.learned(jobs)
    tuning.outbox()
    tuning.heard.reports.clear()


def _goes_on(tuning: Tuning, jobs: int) -> None:
    """The next process learns new jobs and says what follows from all of them."""
    revision = tuning.row().revision
    tuning.add(random_jobs(20, first=jobs + 1, seed=7))
    tuning.run(tuning.start())
    known = tuning.store.study("toy")
    assert known is not None
    assert known.learned_sequence == known.last_sequence == jobs + 20
    assert tuning.heard.of(telemetry.StudySetAside) == []
    assert tuning.row().revision >= revision
    assert tuning.lines.of("study failed") == []


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE checkpoints SET blob = spoilt(blob)",
        "UPDATE checkpoints SET blob = substr(blob, 1, length(blob) / 2)",
        "DELETE FROM checkpoints",
        "DELETE FROM checkpoints WHERE substr(blob, 1, 8) != CAST('{\"parts\"' AS BLOB)",
        "UPDATE study_states SET state = half(state)",
        "UPDATE study_states SET state = CAST(spoilt(state) AS TEXT)",
        """UPDATE study_states SET state = '{"layout": 18}'""",
        "UPDATE study_states SET state = replace(state, '\"sequence\":40', '\"sequence\":4')",
        "UPDATE study_states SET state = replace(state, '\"window\"', '\"widow\"')",
        "UPDATE study_states SET state = json_set(state, '$.history.digest', 5)",
        "UPDATE study_states SET state = json_remove(state, '$.history.since')",
        "UPDATE context_states SET state = half(state)",
        "UPDATE context_states SET state = replace(state, '\"watched\"', '\"watches\"')",
        "UPDATE context_states SET state = json_set(state, '$.context', 3)",
        "UPDATE context_states SET state = json_set(state, '$.context.n', json('[1]'))",
        "UPDATE context_states SET state = json_remove(state, '$.context')",
        "UPDATE context_states SET state = '[]'",
        "UPDATE context_states SET state = json_set(state, '$.evidence', NULL)",
        "UPDATE context_states SET state = json_remove(state, '$.evidence')",
        "UPDATE context_states SET state = json_set(state, '$.evidence.begun', json('[[1]]'))",
        """UPDATE context_states SET state = json_set(state, '$.evidence.begun', '[["x", 1]]')""",
        "UPDATE context_states SET state = json_set(state, '$.last_job_at', '2026-01-01T00:00')",
    ],
)
def test_a_study_whose_saved_state_is_damaged_is_learned_anew(
    tuning: Tuning, statement: str
) -> None:
    _learned(tuning)
    tamper(tuning.store, statement)
    _goes_on(tuning, 40)
    (told,) = tuning.heard.of(telemetry.StudyRelearned)
    (line,) = tuning.lines.of("saved state damaged: learned anew from history")
    assert told.why == line["problem"] != ""
    tuning.run(tuning.start())  # it was made whole
    assert len(tuning.heard.of(telemetry.StudyRelearned)) == 1


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE recommendations SET value = half(value)",
        "UPDATE recommendations SET value = CAST(spoilt(value) AS TEXT)",
        "UPDATE recommendations SET value = '{}'",
        "UPDATE tune_steps SET detail = '{', contexts = '{', seeds = '['",
        "UPDATE observations SET metrics = '{' WHERE sequence IN (5, 17)",
        "UPDATE observations SET context = '{', config = '{' WHERE sequence = 9",
        "UPDATE observations SET context = '[]', config = '7' WHERE sequence = 9",
        "UPDATE observations SET metrics = '\"fast\"', extra = '[]' WHERE sequence = 9",
        "UPDATE observations SET extra = CAST(spoilt(content_hash) AS TEXT) WHERE sequence = 9",
        "UPDATE observations SET status = 'suceeded' WHERE sequence = 9",
        "UPDATE derivations SET basis = half(basis)",
        "UPDATE outbox SET headers = '{'",
    ],
)
def test_other_rows_that_are_damaged_end_nothing(tuning: Tuning, statement: str) -> None:
    _learned(tuning)
    tamper(tuning.store, statement)
    _goes_on(tuning, 40)
    tuning.publish(explore_share="0.4")  # and all history is learned again
    _goes_on(tuning, 60)
    assert tuning.store.unsent(1000)


def test_damaged_jobs_of_a_backlog_teach_nothing(tuning: Tuning) -> None:
    tuning.publish()
    tuning.add(random_jobs(40))
    tamper(tuning.store, "UPDATE observations SET metrics = '{' WHERE sequence % 2 = 0")
    tuning.run(tuning.start())
    known = tuning.store.study("toy")
    assert known is not None
    assert known.learned_sequence == 40


def test_what_operators_ordered_outlives_a_damaged_state(tuning: Tuning) -> None:
    _learned(tuning)
    tune = tuning.start()
    tuning.command("pin", context={}, config={"x": 2})
    lifted = tuning.command("forbid", context={}, config={"x": 4})
    tuning.command("lift", number=lifted)
    tuning.command("pause", context={"n": 4})
    tuning.command("pause", context={"n": 16})
    tuning.command("resume", context={"n": 16})
    tuning.command("pause", context={"n": "nonsense", "m": 1})  # refused
    tuning.run(tune)
    before = tune._books["toy"].tuner.orders.standing
    assert [one.kind for one in before] == ["pin", "pause"]
    tamper(tuning.store, "UPDATE study_states SET state = '{'")
    again = tuning.start()
    tuning.run(again)
    assert again._books["toy"].tuner.orders.standing == before
    assert tuning.heard.of(telemetry.StudyRelearned)


WRONG = [
    ("campaign", '{"jobs": 3}', "context"),
    ("campaign", '{"context": [], "jobs": 3, "rounds": 1, "round_size": 3}', "context"),
    (
        "campaign",
        '{"context": {"n": 8}, "jobs": "3", "rounds": 1, "round_size": 3, "repeats": 1}',
        "jobs",
    ),
    (
        "campaign",
        '{"context": {"n": 8}, "jobs": -3, "rounds": 1, "round_size": 3, "repeats": 1}',
        "jobs",
    ),
    (
        "campaign",
        '{"context": {"n": 8}, "jobs": 3, "rounds": 1, "round_size": 3, "repeats": null}',
        "repeats",
    ),
    ("cancel", "{}", "context_key"),
    ("cancel", '{"context_key": ["toy"]}', "context_key"),
    ("approve", '{"context_key": "toy"}', "recommendation_id"),
    ("decline", '{"context_key": 7, "recommendation_id": "x"}', "context_key"),
    ("pause", '{"context": "n=8"}', "context"),
    ("pause", '{"context": {"n": {"at least": 8}}}', "context"),
    ("pause", "{}", "context"),
    ("resume", '{"context": [["n", 8]]}', "context"),
    ("pin", '{"context": {}, "config": ["x", 2]}', "config"),
    ("pin", '{"context": {}}', "config"),
    ("forbid", '{"context": {}, "config": {"x": [2]}}', "config"),
    ("lift", '{"number": "1"}', "number"),
    ("back", '{"version": [1]}', "version"),
    ("back", "{}", "version"),
    ("latest", "[]", "damaged"),
    ("end", '"now"', "damaged"),
    ("pause", "null", "damaged"),
    ("pause", "{", "damaged"),
    ("dance", '{"context": 1}', "dance"),
]
"""A command, its arguments as somebody wrote them, and a word of the reason for refusing it."""


def test_commands_with_wrong_arguments_are_refused_with_the_reason_and_all_goes_on(
    tuning: Tuning,
) -> None:
    _learned(tuning)
    numbers = [tuning.command(name, of="a row that somebody wrote") for name, _, _ in WRONG]
    later = tuning.command("pause", context={"n": 4})
    for number, (_, arguments, _) in zip(numbers, WRONG, strict=True):
        statement = "UPDATE commands SET arguments = ?, at = 'yesterday' WHERE id = ?"
        tamper(tuning.store, statement, arguments, number)
    _goes_on(tuning, 40)
    for number, (name, arguments, why) in zip(numbers, WRONG, strict=True):
        result = tuning.result(number) or ""
        assert result.startswith("refused: "), (name, arguments)
        assert why in result, (name, arguments)
        assert (given := tuning.store.command(number)) is not None
        assert words(number, name, given.arguments)
    assert tuning.result(later) == "paused; 1 recommendation withdrawn"
    tamper(tuning.store, "UPDATE commands SET result = 'in force' WHERE id != ?", later)
    tamper(tuning.store, "UPDATE study_states SET state = '{'")  # orders are read from commands
    tuning.run(tuning.start())
    assert not tuning.heard.of(telemetry.StudySetAside)


def test_a_study_that_ended_stays_so_when_its_state_is_damaged(tuning: Tuning) -> None:
    _learned(tuning)
    tuning.command("end")
    tuning.run(tuning.start())
    tamper(tuning.store, "UPDATE study_states SET state = '{'")
    again = tuning.start()
    tuning.run(again)
    assert again._books["toy"].ended
    assert {row.state for row in tuning.rows().values()} == {"withdrawn"}


@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_study_that_fails_is_tried_again_then_learned_anew_then_left_and_others_go_on(
    tuning: Tuning, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    _learned(tuning)
    other = study().text.replace('name = "toy"', 'name = "other"')
    tuning.store.publish_generation("other", "other", other, "test", tuning.time.now())
    _fail(monkeypatch, times)
    number = tuning.command("latest")
    tune = tuning.start()
    tuning.run(tune)
    assert [one["times"] for one in tuning.lines.of("study failed")] == list(range(1, times + 1))
    assert "other" in {one.study for one in tuning.heard.of(telemetry.StepCommitted)}
    assert len(tuning.heard.of(telemetry.StudyRelearned)) == (times >= 2)
    aside = [one.why for one in tuning.heard.of(telemetry.StudySetAside)]
    assert aside == (["ArithmeticError: of ours"] if times == 3 else [])
    tuning.run(tune)
    result = tuning.result(number)
    assert result is not None
    assert result.startswith(
        "refused: toy is set aside: Arith" if times == 3 else "refused: nobody"
    )
    tuning.publish(explore_share="0.3")  # a new version of its file is tried
    tuning.run(tune)
    known = tuning.store.study("toy")
    assert known is not None
    assert known.learned_sequence == 40


def _fail(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """So many of the next restores and renewals of the toy study raise."""
    left = [times]

    def failing(real: Callable[..., object]) -> Callable[..., object]:
        def fails(self: Tuner, *arguments: object, **more: object) -> object:
            if left[0] and self.study.name == "toy":
                left[0] -= 1
                raise ArithmeticError("of ours")
            return real(self, *arguments, **more)

        return fails

    monkeypatch.setattr(Tuner, "close_overdue", failing(Tuner.close_overdue))


def test_a_checkpoint_that_was_damaged_is_whole_when_it_is_saved_again(store: Store) -> None:
    add_study(store)
    with store.transaction() as tx:
        name = tx.save_checkpoint(STUDY, b"what was learned", NOW)
    tamper(store, "UPDATE checkpoints SET blob = x'00'")
    with store.transaction() as tx:
        assert tx.save_checkpoint(STUDY, b"what was learned", NOW) == name
    assert store.checkpoint(STUDY, name) == b"what was learned"


def test_a_study_file_that_was_damaged_is_whole_after_a_start(tuning: Tuning) -> None:
    tuning.publish()
    new = study()
    tamper(tuning.store, "UPDATE generations SET text = 'name ='")
    tune = tuning.start()
    tuning.run(tune)
    assert len(tuning.heard.of(telemetry.StudySetAside)) == 1
    tuning.store.publish_generation("toy", new.content_hash, new.text, "test", tuning.time.now())
    tuning.run(tuning.start())
    assert tuning.heard.of(telemetry.StudyLoaded)
