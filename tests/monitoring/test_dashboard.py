"""The dashboard's JSON, as Grafana reads it. No Grafana runs here: its form is checked."""

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FILE = ROOT / "deploy/grafana/dashboards/tunerd.json"
DASHBOARD: dict[str, Any] = json.loads(FILE.read_text())
ROWS = [one for one in DASHBOARD["panels"] if one["type"] == "row"]
PANELS = [one for one in DASHBOARD["panels"] if one["type"] != "row"]
UNITS = {"short", "s", "bytes", "percentunit", "cps"}
"""Names that Grafana has for units: an unknown one is shown behind the number, and not used."""
each_panel = pytest.mark.parametrize("panel", PANELS, ids=[one["title"] for one in PANELS])


def test_it_asks_an_operators_questions_in_their_order() -> None:
    asked = ["Is it working?", "Is it right?", "Is it worth it?", "What is it doing?"]
    assert [row["title"] for row in ROWS] == asked
    assert DASHBOARD["panels"][0]["type"] == "row"
    tops = [one["gridPos"]["y"] for one in DASHBOARD["panels"]]
    assert tops == sorted(tops)


def test_each_panel_has_its_own_id_and_title() -> None:
    assert len({one["id"] for one in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    assert len({one["title"] for one in PANELS}) == len(PANELS)


def test_no_panel_lies_on_another() -> None:
    places = [one["gridPos"] for one in DASHBOARD["panels"]]
    for place in places:
        assert place["x"] >= 0
        assert place["x"] + place["w"] <= 24
    for a, b in combinations(places, 2):
        beside = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
        below = a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]
        assert beside or below, (a, b)


def test_a_line_of_panels_is_full() -> None:
    """A gap at the end of a line is a panel that somebody forgot, but for the last of a row."""
    for row, after in zip(ROWS, [*ROWS[1:], None], strict=True):
        end = after["gridPos"]["y"] if after else 10**9
        mine = [p["gridPos"] for p in PANELS if row["gridPos"]["y"] < p["gridPos"]["y"] < end]
        lines = sorted({place["y"] for place in mine})
        widths = [sum(place["w"] for place in mine if place["y"] == y) for y in lines]
        assert widths[:-1] == [24] * (len(widths) - 1), row["title"]


@each_panel
def test_a_panel_says_what_good_looks_like_and_in_which_unit(panel: dict[str, Any]) -> None:
    assert panel["title"].endswith("?")
    assert len(panel["description"]) > 15
    assert panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"] in UNITS


@each_panel
def test_a_panel_asks_the_prometheus_that_was_chosen(panel: dict[str, Any]) -> None:
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    assert panel["datasource"] == chosen
    assert panel["targets"]
    assert all(target["datasource"] == chosen for target in panel["targets"])
    references = [target["refId"] for target in panel["targets"]]
    assert len(set(references)) == len(references)
    legends = [target["legendFormat"] for target in panel["targets"]]
    assert all(legends)
    assert len(set(legends)) == len(legends)


@each_panel
def test_thresholds_rise_from_a_first_without_a_value(panel: dict[str, Any]) -> None:
    first, *steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
    assert first["value"] is None
    assert [step["value"] for step in steps] == sorted({step["value"] for step in steps})


def test_every_variable_of_a_query_is_one_of_the_dashboard() -> None:
    names = {one["name"]: one for one in DASHBOARD["templating"]["list"]}
    assert list(names) == ["datasource", "instance", "study"]
    assert names["datasource"]["type"] == "datasource"
    assert names["datasource"]["query"] == "prometheus"
    for panel in PANELS:
        for target in panel["targets"]:
            rest = target["expr"]
            for known in ("$__rate_interval", "$__range", "$instance", "$study"):
                rest = rest.replace(known, "")
            assert "$" not in rest
            assert 'instance=~"$instance"' in target["expr"], panel["title"]
