"""The tuner process: what it says while the store is away."""

import threading
from types import SimpleNamespace
from typing import cast

import pytest

from tests.stages.tuning import Lines
from tunerd import logs, tuner_main
from tunerd.errors import StoreUnavailableError
from tunerd.settings import Settings
from tunerd.stages.tune import Tune


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
    monkeypatch.setattr(Tune, "open", lambda *_, **__: stage)
    monkeypatch.setattr(tuner_main, "TROUBLE_S", 0.0)
    tuner_main._run(Settings(), cast(logs.Log, lines), (), stop)
    said = [detail["problem"] for detail in lines.of("store unavailable, trying again")]
    assert said == ["the disk is full", "the disk is full", "locked"]
