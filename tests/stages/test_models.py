"""Versions of models through the tune stage: what is listed, kept, gone back to, and survives."""

from pathlib import Path

import pytest

from tests.stages.fakes import CrashError, Heard, crash_in
from tests.stages.tuning import Tuning, another, random_jobs, study, tamper
from tunerd.core.model.model import StudyModel
from tunerd.core.study_file import parse_study
from tunerd.settings.model import TuneSettings
from tunerd.stages.checkpoints import parts_of
from tunerd.store import ModelVersion
from tunerd.telemetry import StepCommitted


def learned(tuning: Tuning, count: int = 120) -> None:
    """A study in mode publish that has learned jobs, in steps of 30."""
    if tuning.store.generation("toy") is None:
        tuning.publish()
    tune = tuning.start()
    known = tuning.store.study("toy")
    assert known is not None
    for first in range(known.last_sequence + 1, known.last_sequence + count, 30):
        tuning.add(random_jobs(30, first=first, seed=first))
        tuning.run(tune)


def versions(tuning: Tuning) -> dict[int, ModelVersion]:
    return {one.version: one for one in tuning.store.models("toy")}


def serving(tuning: Tuning) -> ModelVersion:
    return next(one for one in tuning.store.models("toy") if one.took_over)


def test_every_model_that_was_built_is_listed_with_its_checkpoint(tuning: Tuning) -> None:
    learned(tuning)
    found = tuning.store.models("toy")
    assert [one.version for one in found] == list(range(len(found), 0, -1))
    assert [one.why for one in reversed(found)] == ["first"] + ["grown"] * (len(found) - 1)
    for one in found:
        assert one.took_over
        assert one.checkpoint is not None
        assert tuning.store.checkpoint("toy", one.checkpoint)
    assert len(tuning.lines.of("model took over")) == len(found)
    step = next(one for one in tuning.store.steps("toy") if one.swapped_model)
    assert step.swapped_model == found[0].checkpoint


def test_a_comparison_is_told_with_both_sides(tuning: Tuning) -> None:
    learned(tuning, 480)
    told = [one for one in tuning.store.models("toy") if "contest" in one.detail]
    assert told
    contest = told[-1].detail["contest"]
    assert contest["jobs"] >= 50
    assert contest["won"] == told[-1].took_over
    for side in ("champion", "challenger"):
        assert 0 < contest[side]["kendall"] <= 1
        assert contest[side]["error"] > 0


def test_an_operator_goes_back_and_it_stays_until_the_latest_is_wanted(tuning: Tuning) -> None:
    learned(tuning, 180)
    newest = serving(tuning)
    tune = tuning.start()
    back = tuning.command("back", version=2)
    tuning.run(tune)
    assert tuning.result(back) == "version 2 serves from here on, until `--latest`"
    now = serving(tuning)
    assert (now.why, now.detail) == ("back", {"of": 2, "command": back})
    assert now.fitted_sequence == versions(tuning)[2].fitted_sequence
    assert now.checkpoint not in {one.checkpoint for one in versions(tuning).values() if one != now}
    # It learns on and is not replaced, whoever goes on with it.
    learned(tuning, 240)
    assert serving(tuning) == now
    state = tuning.store.study_state("toy")
    assert state is not None
    assert state.state["tuner"]["training"]["pinned"]
    known = tuning.store.study("toy")
    assert known is not None
    assert known.learned_sequence == 420
    latest = tuning.command("latest")
    tuning.run(tuning.start())
    result = f"version {newest.version} serves from here on, and may be replaced again"
    assert tuning.result(latest) == result
    assert serving(tuning).fitted_sequence == newest.fitted_sequence
    learned(tuning, 120)
    assert serving(tuning).version > now.version + 1


@pytest.mark.parametrize("at", ["add_model", "save_step", "finish_command"])
def test_a_crash_while_going_back_costs_a_repeat(
    tuning: Tuning, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    learned(tuning, 90)
    before = tuning.store.models("toy")
    number = tuning.command("back", version=1)
    with crash_in(monkeypatch, at), pytest.raises(CrashError):
        tuning.run(tuning.start())
    assert tuning.store.models("toy") == before
    tuning.run(tuning.start())
    assert tuning.result(number) == "version 1 serves from here on, until `--latest`"
    assert len(tuning.store.models("toy")) == len(before) + 1


def test_what_cannot_be_gone_back_to(tuning: Tuning) -> None:
    tuning.settings = TuneSettings(keep_models=2)
    learned(tuning, 90)
    tune = tuning.start()
    newest = serving(tuning).version
    unknown = tuning.command("back", version=99)
    latest = tuning.command("latest")
    same = tuning.command("back", version=newest)
    tuning.run(tune)
    assert "refused: there is no version 99" in (tuning.result(unknown) or "")
    assert "refused: nobody went back" in (tuning.result(latest) or "")
    said = f"version {newest} serves already, and does so until `--latest`"
    assert tuning.result(same) == said
    again = tuning.command("latest")
    tuning.run(tune)
    assert "may be replaced again" in (tuning.result(again) or "")
    tuning.publish(explore_share="0.25")
    tuning.run(tuning.start())
    assert serving(tuning).why == "generation"
    assert serving(tuning).generation == 2
    other = tuning.command("back", version=newest)
    tuning.run(tuning.start())
    assert f"refused: version {newest} is of generation 1" in (tuning.result(other) or "")
    # The old text is a generation of its own, whose model nobody went back to.
    tuning.publish()
    tuning.run(tuning.start())
    other = tuning.command("back", version=newest)
    tuning.run(tuning.start())
    assert "the study is at 3: with each version of its file" in (tuning.result(other) or "")


def test_of_models_built_in_one_step_the_last_alone_is_kept(tuning: Tuning) -> None:
    tuning.publish()
    tuning.add(random_jobs(120))
    tuning.run(tuning.start())
    assert serving(tuning).checkpoint is not None
    gone = next(one for one in versions(tuning).values() if one.checkpoint is None)
    number = tuning.command("back", version=gone.version)
    tuning.run(tuning.start())
    said = f"refused: version {gone.version} served within one step only, and was not kept"
    assert tuning.result(number) == said


def test_only_so_many_are_kept(tuning: Tuning, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tunerd.stages.checkpoints.PRUNE_EVERY", 1)
    monkeypatch.setattr("tunerd.stages.checkpoints.KEEP_CHECKPOINTS", 1)
    tuning.settings = TuneSettings(keep_models=3)
    learned(tuning, 210)
    kept = {row.name for row in tuning.store.checkpoints("toy")}
    there = [one.version for one in tuning.store.models("toy") if one.checkpoint in kept]
    newest = serving(tuning).version
    assert there == [newest, newest - 1, newest - 2]
    number = tuning.command("back", version=newest - 3)
    tuning.run(tuning.start())
    assert "refused" in (tuning.result(number) or "")
    number = tuning.command("back", version=newest - 2)
    tuning.run(tuning.start())
    assert "serves from here on" in (tuning.result(number) or "")


def test_the_latest_checkpoints_are_kept_whole(
    tuning: Tuning, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the default predictor a manifest is longer than many of the parts that it lists."""
    monkeypatch.setattr("tunerd.stages.checkpoints.PRUNE_EVERY", 1)
    monkeypatch.setattr("tunerd.stages.checkpoints.KEEP_CHECKPOINTS", 6)
    monkeypatch.setattr("tunerd.stages.checkpoints.STEPS_PER_CHECKPOINT", 1)
    tuning.settings = TuneSettings(keep_models=1)
    new = parse_study(study().text.replace("boosted_trees", "committee"))
    tuning.store.publish_generation(
        "toy", new.content_hash, new.text, "test", tuning.time.now(), force=True
    )
    learned(tuning, 60)
    tune = tuning.start()
    for i in range(61, 70):
        tuning.add(random_jobs(1, seed=i, first=i))
        tuning.run(tune)
    steps = tuning.store.steps("toy", limit=100)
    made_from = list(dict.fromkeys(step.model for step in steps if step.model))
    assert len(made_from) > 6
    for name in made_from[:5]:
        assert parts_of(tuning.store, "toy", name)
    assert len(tuning.store.checkpoint("toy", made_from[0])) > 4_096
    with pytest.raises(LookupError):
        parts_of(tuning.store, "toy", made_from[-1])
    damaged = "UPDATE checkpoints SET blob = substr(blob, 1, 100) WHERE name = ?"
    tamper(tuning.store, damaged, made_from[0])
    tuning.add(random_jobs(1, seed=70, first=70))
    assert tuning.run(tune)
    left = {row.name for row in tuning.store.checkpoints("toy")}
    assert made_from[0] not in left
    (told,) = tuning.lines.of("checkpoint damaged")
    assert made_from[0] in told["problem"]
    assert made_from[1] in left


def test_a_rebuild_that_fails_is_told_and_the_model_that_serves_goes_on(
    tuning: Tuning, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    learned(tuning, 60)
    before = serving(tuning)

    def broken(*_: object) -> StudyModel:
        raise ArithmeticError("no number")

    with monkeypatch.context() as trouble:
        trouble.setattr(StudyModel, "fit", broken)
        learned(tuning, 30)
    newest = tuning.store.models("toy")[0]
    assert (newest.took_over, newest.checkpoint) == (False, None)
    assert "Traceback" in newest.detail["failed"]
    assert newest.detail["failed"].endswith("ArithmeticError: no number")
    (line,) = tuning.lines.of("rebuild failed")
    assert line["problem"] == newest.detail["failed"]
    assert sum(one.rebuilds_failed for one in heard.of(StepCommitted)) == 1
    assert serving(tuning) == before
    learned(tuning, 60)
    assert serving(tuning).version > newest.version


def test_what_another_tunerd_saved_in_its_own_way_is_learned_anew(tuning: Tuning) -> None:
    learned(tuning, 60)
    said = tuning.rows()
    saved = tuning.store.study_state("toy")
    assert saved is not None
    state = saved.state | {"layout": 1, "tuner": {"sequence": 60, "unheard": "of"}}
    with tuning.store.transaction() as tx:
        tx.save_study_state("toy", state, epoch=saved.epoch, now=tuning.time.now())
    tuning.run(tuning.start())
    assert serving(tuning).why == "generation"
    assert set(tuning.rows()) == set(said)
    learned(tuning, 30)


@pytest.mark.slow
def test_another_tuner_process_goes_on_with_a_comparison(tmp_path: Path) -> None:
    """Killed after every step, it comes to the same verdicts as one that runs through."""

    def verdicts(killed: bool, folder: Path) -> list[ModelVersion]:
        with another(folder) as one:
            one.publish()
            tune = one.start()
            for first in (1, 101, 201, *range(301, 480, 20)):
                one.add(random_jobs(100 if first <= 201 else 20, first=first, seed=first))
                tune = one.start() if killed else tune
                one.run(tune)
            return one.store.models("toy")

    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    through, killed = verdicts(False, tmp_path / "a"), verdicts(True, tmp_path / "b")
    assert any("contest" in one.detail for one in through)
    strip = [(v.version, v.checkpoint, v.why, v.took_over, v.detail) for v in through]
    assert [(v.version, v.checkpoint, v.why, v.took_over, v.detail) for v in killed] == strip
