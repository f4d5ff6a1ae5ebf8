"""The tuner process: what it says while the store is away."""

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests.stages.tuning import Lines
from tunerd import logs
from tunerd.errors import StoreUnavailableError
from tunerd.service import tuner_main
from tunerd.settings import Settings
from tunerd.settings.model import StoreSettings
from tunerd.stages.tune import TuneStage
from tunerd.store import open_store
from tunerd.telemetry import DependencyUnreachable, Report, TunerReady


def test_a_store_that_stays_away_is_one_line_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    stop, lines = threading.Event(), Lines()
    problems = ["the disk is full", "the disk is full", "", "the disk is full", "locked", "locked"]

    def step() -> bool:
        if len(problems) == 1:
            stop.set()
        if problem := problems.pop(0):
            raise StoreUnavailableError(problem)
        return True

    stage = SimpleNamespace(step=step, forget=lambda: None, close=lambda: None)
    monkeypatch.setattr(TuneStage, "open", lambda *_, **__: stage)
    monkeypatch.setattr(tuner_main, "TROUBLE_S", 0.0)
    tuner_main._run(Settings(), cast(logs.Log, lines), {}, (), stop)
    said = [detail["problem"] for detail in lines.of("store unavailable, trying again")]
    # One step that went well in between ends nothing: it may have touched nothing.
    assert said == ["the disk is full", "locked"]


def test_a_store_that_is_away_at_the_start_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop, lines, heard = threading.Event(), Lines(), list[str]()
    in_the_way, ready = tmp_path / "store.sqlite", tmp_path / "ready.sqlite"
    in_the_way.mkdir()
    open_store(f"sqlite:///{ready}").close()  # as the daemon leaves it to its tuner

    class Parent:
        def hear(self, report: Report) -> None:
            heard.append(type(report).__name__)
            if isinstance(report, DependencyUnreachable) and len(heard) > 1:
                in_the_way.rmdir()
                ready.rename(in_the_way)
            if isinstance(report, TunerReady):
                stop.set()

    monkeypatch.setattr(tuner_main, "PipeListener", Parent)
    monkeypatch.setattr(tuner_main, "TROUBLE_S", 0.0)
    settings = Settings(store=StoreSettings(url=f"sqlite:///{in_the_way}"))
    tuner_main._run(settings, cast(logs.Log, lines), {}, (), stop)
    assert heard[:3] == ["DependencyUnreachable", "DependencyUnreachable", "TunerReady"]
    (said,) = lines.of("store unavailable, trying again")
    assert said["problem"].startswith(f"{in_the_way}: the file cannot be opened")
