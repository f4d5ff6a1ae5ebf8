"""The page of a study's forecast: bands, plan and what came, as the command says it."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.stages.tuning import tamper
from tests.ui.conftest import serving
from tests.ui.test_api import held_to_the_schema
from tests.ui.world import EVIL, World
from tunerd.cli import run
from tunerd.core.decisions.context_state import ContextState
from tunerd.core.forecasting.rhythm import ContextForecast

PATH = "/studies/toy/forecast"
WAIT = {"wait": [1.25, 2.0, 3.75, 1.0, 5.0]}
"""The band of a further signal."""


def hours(key: str, first_s: float, count: int, **more: Any) -> list[dict[str, Any]]:
    return [
        {
            "start_s": first_s + 3600 * i,
            "end_s": first_s + 3600 * (i + 1),
            "low": 80.0,
            "median": 100.0 + i,
            "high": 123.0,
            "lowest": 50.0,
            "highest": 200.0,
            "contexts": {key: 0.6},
            "key": key,
            **more,
        }
        for i in range(count)
    ]


@pytest.fixture
def planned(world: World, tmp_path: Path) -> World:
    """A plan that was withdrawn, of names that somebody else chose."""
    own, now = world.copy(tmp_path / "world"), datetime.now(UTC)
    begins = now.timestamp() // 3600 * 3600
    plan = {
        "signal": f"rps{{service={EVIL}}}",
        "context": {"service": EVIL},
        "state": "withdrawn",
        "why": EVIL,
        "methods": {"last value": 1.0},
        "others": {"wait": {"signal": "wait", "methods": {"last value": 1.0}}},
        "windows": hours("toy|n=8", begins, 24, others=WAIT),
        "past": hours(
            "toy|n=8", begins - 3 * 3600, 3, came=111.5, others=WAIT, others_came={"wait": 2.5}
        ),
    }
    with own.opened() as store, store.transaction() as tx:
        tx.save_forecast_plan("toy", {"feature": "n", "signals": [plan]}, now)
    return own


@pytest.mark.slow
def test_the_page_has_bands_plan_and_what_came(
    planned: World, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(planned) as site:
        page, told = site.page(PATH), site.json(PATH)
        assert PATH in site.page("/studies/toy")
    held_to_the_schema("/studies/{study}/forecast", told)
    (signal,) = told["signals"]
    assert [hour["came"] for hour in signal["past"]] == [111.5] * 3
    assert {hour["recommended"] for hour in signal["windows"]} == {"active"}
    assert "<script>alert" not in page
    assert "The plan is withdrawn" in page
    assert page.count("The plan is withdrawn") == 1
    assert page.count("<circle") == 2 * 27  # each signal's band
    bands = ("foreseen, 80.00 to 123.0", "2.500 came, 1.250 to 3.750", "stands on 2 signals")
    for text in ("111.5", *bands, "/studies/toy/contexts/n=8"):
        assert text in page
    assert run(["forecast", "toy", "--json", "--settings", str(planned.settings)]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said.pop("made_at").replace("+00:00", "Z") == told.pop("made_at")
    assert said == told


@pytest.mark.slow
def test_contexts_that_come_by_the_hour_of_the_week_are_shown(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own, now = world.copy(tmp_path / "world"), datetime.now(UTC)
    with own.opened() as store:
        row = store.context_state("toy", "toy|n=8")
        assert row is not None
        state = ContextState.load(row.state)
        comes_at = datetime(2027, 3, 1, 6, tzinfo=UTC)
        state.foreseen = ContextForecast(now, comes_at, now + timedelta(days=1), 0.9, "rhythm")
        with store.transaction() as tx:
            tx.save_context_states("toy", [replace(row, state=state.dump())])
        tamper(
            store,
            "UPDATE study_states SET state = json_set(state, '$.ahead', json('[\"toy|n=8\"]'))",
        )
    with serving(own) as site:
        page, told = site.page(PATH), site.json(PATH)
    held_to_the_schema("/studies/{study}/forecast", told)
    assert [context["key"] for context in told["contexts"]] == ["toy|n=8"]
    assert "Contexts to come" in page
    assert "Mon 2027-03-01 06:00" in page
    assert "/studies/toy/contexts/n=8" in page
    assert run(["forecast", "toy", "--json", "--settings", str(own.settings)]) == 0
    (said,) = json.loads(capsys.readouterr().out)["contexts"]
    assert said.pop("comes_at").replace("+00:00", "Z") == told["contexts"][0].pop("comes_at")
    assert said == told["contexts"][0]


def test_a_study_without_a_forecast_says_why(world: World) -> None:
    with serving(world) as site:
        assert "There is no forecast" in site.page(PATH)
        assert site.json(PATH)["signals"] == []
