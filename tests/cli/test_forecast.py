"""``tunerd forecast``, and ``tunerd recommend --at``."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.cli.conftest import Said
from tests.empty_store import empty_store
from tests.stages.test_signals import busy
from tests.stages.tuning import SIGNAL_STUDY as TEXT
from tests.stages.tuning import Lines
from tunerd.core.decisions.context_state import ContextState
from tunerd.core.forecasting.rhythm import ContextForecast
from tunerd.core.study_file import parse_study
from tunerd.stages.forecast import ForecastStage
from tunerd.store import ContextRow, open_store

Tunerd = Callable[..., Said]


@pytest.fixture
def foreseen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> datetime:
    """A store whose signal has a plan; when that was made."""
    url = empty_store(tmp_path / "tunerd.sqlite")
    monkeypatch.setenv("TUNERD_STORE__URL", url)
    monkeypatch.chdir(tmp_path)
    now, study = datetime.now(UTC), parse_study(TEXT)
    context = ContextState({"service": "a", "rps": 100.0}, last_job_at=now)
    with open_store(url) as store:
        store.publish_generation("web", study.content_hash, TEXT, "test", now)
        with store.transaction() as tx:
            times = [now - timedelta(minutes=m) for m in range(4 * 24 * 60, 0, -10)]
            points = [('rps{service="a"}', at, busy(at.hour) + at.minute) for at in times]
            tx.add_signal_points(points, now)
            key = study.context_key(context.context)
            tx.save_context_states("web", [ContextRow(key, context.dump(), now, -1)])
        assert ForecastStage(store, "me", Lines(), lambda: now).step()  # type: ignore[arg-type]
    return now


@pytest.mark.slow
def test_hours_to_come_are_shown(foreseen: datetime, tunerd: Tunerd) -> None:
    said = tunerd("forecast", "web")
    assert said.code == 0, said.err
    assert 'rps{service="a"}' in said.out
    assert "nothing yet" in said.out
    assert "12:00" in said.out
    told = tunerd("forecast", "web", "--json").json
    assert told["schema"] == "tunerd.forecast/1"
    (signal,) = told["signals"]
    assert all(window["low"] <= window["high"] for window in signal["windows"])
    assert datetime.fromisoformat(told["made_at"]) == foreseen


@pytest.mark.slow
def test_what_to_launch_at_a_time_to_come(foreseen: datetime, tunerd: Tunerd) -> None:
    day = foreseen + timedelta(hours=23)
    noon = next(
        foreseen + timedelta(hours=h)
        for h in range(1, 24)
        if (foreseen + timedelta(hours=h)).hour in range(10, 17)
    )
    said = tunerd("recommend", "web", "--context", "service=a", "--at", noon.isoformat(), "--json")
    assert said.code == 0, said.err
    assert 500 < said.json["context"]["rps"] < 1000
    assert any("foreseen for" in note for note in said.json["notes"])
    late = (day + timedelta(days=9)).isoformat()
    beyond = tunerd("recommend", "web", "--context", "service=a", "--at", late)
    assert beyond.code == 2
    assert "no plan of this context reaches" in beyond.err


def test_contexts_that_are_foreseen_are_listed_however_many_come_daily(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tunerd: Tunerd
) -> None:
    url = f"sqlite:///{tmp_path}/tunerd.sqlite"
    monkeypatch.setenv("TUNERD_STORE__URL", url)
    monkeypatch.chdir(tmp_path)
    now, study = datetime.now(UTC), parse_study(TEXT)
    weekly, larger = ContextState({"service": "weekly"}), ContextState({"service": "larger"})
    comes_at = now.replace(minute=0, second=0, microsecond=0) + timedelta(hours=5)
    until = now + timedelta(hours=29)
    weekly.foreseen = ContextForecast(now, comes_at, until, 0.3, "rhythm")
    larger.foreseen = ContextForecast(now, None, until, None, "growth")
    missed = ContextState({"service": "missed"})
    missed.foreseen = ContextForecast(now, now, now, 0.9, "rhythm")
    daily = [ContextState({"service": f"daily{i}"}) for i in range(60)]
    for state in daily:
        for day in range(1, 30):
            state.rhythm.add(comes_at - timedelta(days=day))
    with open_store(url) as store:
        text = TEXT + "[forecast]\ngrowth = true\n"
        store.publish_generation("web", parse_study(text).content_hash, text, "test", now)
        rows = [
            ContextRow(study.context_key(state.context), state.dump(), now, -1)
            for state in (weekly, larger, missed, *daily)
        ]
        with store.transaction() as tx:
            tx.save_context_states("web", rows)
    said = tunerd("forecast", "web")
    assert said.code == 0, said.err
    assert "contexts to come" in said.out
    line, other = [line for line in said.out.splitlines() if "service=" in line]
    for text in (f"{comes_at:%a %Y-%m-%d %H}:00 UTC", "service=weekly", "nothing yet", "30%"):
        assert text in line
    for text in ("at a time unknown", "service=larger"):
        assert text in other
    context, _ = tunerd("forecast", "web", "--json").json["contexts"]
    assert (context["key"], context["why"]) == (study.context_key(weekly.context), "rhythm")
    off = TEXT + "[forecast]\nrhythm = false\n"
    with open_store(url) as store:
        store.publish_generation("web", parse_study(off).content_hash, off, "test", now)
    assert "service=" not in tunerd("forecast", "web").out


def test_without_a_forecast_it_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tunerd: Tunerd
) -> None:
    url = empty_store(tmp_path / "tunerd.sqlite")
    monkeypatch.setenv("TUNERD_STORE__URL", url)
    monkeypatch.chdir(tmp_path)
    with open_store(url) as store:
        study = parse_study(TEXT)
        store.publish_generation("web", study.content_hash, TEXT, "test", datetime.now(UTC))
    said = tunerd("forecast", "web")
    assert said.code == 0
    assert "has no forecast" in said.out


def planned_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str) -> datetime:
    """A store with a plan of one hour for a service of a size; the middle of the hour."""
    url = empty_store(tmp_path / "tunerd.sqlite")
    monkeypatch.setenv("TUNERD_STORE__URL", url)
    monkeypatch.chdir(tmp_path)
    now = datetime.now(UTC)
    text = TEXT.replace("[context]\n", '[context]\nsize = { type = "float" }\n')
    study = parse_study(text)
    window: dict[str, object] = {
        "start_s": now.timestamp() - 1800,
        "end_s": now.timestamp() + 1800,
        "low": 80.0,
        "lowest": 70.0,
        "highest": 130.0,
    }
    window |= {"high": 120.0, "median": 100.0, "key": key, "contexts": {key: 1.0}}
    plan: dict[str, object] = {
        "signal": 'rps{service="a"}',
        "context": {"service": "a", "size": 7e9},
    }
    plan |= {"state": "active", "why": "", "methods": {}, "windows": [window], "past": []}
    with open_store(url) as store:
        store.publish_generation("web", study.content_hash, text, "test", now)
        with store.transaction() as tx:
            tx.save_forecast_plan("web", {"feature": "rps", "signals": [plan]}, now)
    return now


def test_each_signal_of_a_study_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tunerd: Tunerd
) -> None:
    """Those of a plan that two signals stand on, with their own bands and methods."""
    planned_by_hand(tmp_path, monkeypatch, "web|rps=86.7362|service=a|size=7e+09")
    with open_store(f"sqlite:///{tmp_path}/tunerd.sqlite") as store:
        made_at, document = store.forecast_plan("web") or (datetime.now(UTC), {})
        (plan,) = document["signals"]
        plan["others"] = {"wait": {"signal": "wait", "methods": {"last value": 1.0}}}
        (window,) = plan["windows"]
        window["others"] = {"wait": [2.0, 3.25, 4.0, 1.0, 5.0]}
        before = {**window, "came": 90.0, "others_came": {"wait": 4.5}}
        plan["past"] = [before | {key: window[key] - 3600 for key in ("start_s", "end_s")}]
        with store.transaction() as tx:
            tx.save_forecast_plan("web", document, made_at)
    said = tunerd("forecast", "web").out
    first, second = said.split("\nwait: by last value 100%\n")
    assert 'rps{service="a"}: by' in first
    assert "  90 came, inside" in first
    assert "4.5 came, outside" in second
    assert "3.25" in second
    assert 'The plan stands on rps{service="a"}, wait, paired quantile by quantile.' in second
    (told,) = tunerd("forecast", "web", "--json").json["signals"]
    assert told["others"]["wait"]["signal"] == "wait"
    assert told["windows"][0]["others"]["wait"]["median"] == 3.25


def test_a_plan_is_found_however_its_context_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tunerd: Tunerd
) -> None:
    at = planned_by_hand(tmp_path, monkeypatch, "web|rps=86.7362|service=a|size=7e+09").isoformat()
    order = ("recommend", "web", "--context", "service=a", "--context", "size=7e9", "--at", at)
    said = tunerd(*order, "--here", "--json")
    assert said.code == 0, said.err
    assert said.json["context"]["rps"] == pytest.approx(96.97, abs=0.01)
    # What a signal says is not named beside --at, and every mistake is told at once.
    wrong = tunerd(*order, "--context", "rps=5", "--context", "sice=5")
    assert wrong.code == 2
    assert "rps" in wrong.err
    assert "sice" in wrong.err


@pytest.mark.parametrize("key", ["web|load=86.7362|service=a", "web|rps=~|service=a|size=7e+09"])
def test_a_plan_that_says_nothing_of_the_feature_is_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tunerd: Tunerd, key: str
) -> None:
    """It was made before the feature had its name, or its number is none that a job may have."""
    at = planned_by_hand(tmp_path, monkeypatch, key).isoformat()
    said = tunerd("recommend", "web", "--context=service=a", "--context=size=7e9", "--at", at)
    assert said.code == 2
    assert "no plan of this context reaches" in said.err


@pytest.mark.parametrize("hours", ["0", "-5"])
def test_hours_to_show_are_at_least_one(hours: str, tunerd: Tunerd) -> None:
    assert tunerd("forecast", "web", "--hours", hours).code == 2
