"""Grafana's JSON of the dashboard, in its classic model, which Grafana 11 and later read."""

from collections.abc import Iterator
from typing import Any

from tunerd.metrics import definitions as d
from tunerd.monitoring.panels import ROWS, DashboardPanel, DashboardRow, chosen
from tunerd.monitoring.promql import STARTED, of

__all__ = ["dashboard"]

SCHEMA_VERSION = 41
COLUMNS = 24
HEIGHTS = {"stat": 4, "lines": 8, "bars": 8}
TYPES = {"stat": "stat", "lines": "timeseries", "bars": "timeseries"}
SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def dashboard() -> dict[str, Any]:
    """The whole dashboard."""
    return {
        "uid": "tunerd",
        "title": "tunerd",
        "description": "Is it working, is it right, is it worth it, what is it doing?",
        "tags": ["tunerd"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": True,
        "graphTooltip": 1,
        "timezone": "browser",
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": _variables()},
        "annotations": {"list": [_starts()]},
        "links": [],
        "panels": list(_placed(ROWS)),
    }


def _placed(rows: tuple[DashboardRow, ...]) -> Iterator[dict[str, Any]]:
    """Rows and their panels, from left to right and top to bottom."""
    number, y = 0, 0
    for row in rows:
        number += 1
        yield _row(number, row, y)
        x, y, tallest = 0, y + 1, 0
        for panel in row.panels:
            height = HEIGHTS[panel.kind]
            if x + panel.width > COLUMNS:
                x, y, tallest = 0, y + tallest, 0
            number += 1
            place = {"x": x, "y": y, "w": panel.width, "h": height}
            yield _panel(number, panel, place)
            x, tallest = x + panel.width, max(tallest, height)
        y += tallest


def _row(number: int, row: DashboardRow, y: int) -> dict[str, Any]:
    place = {"x": 0, "y": y, "w": COLUMNS, "h": 1}
    return {
        "id": number,
        "type": "row",
        "title": row.title,
        "collapsed": False,
        "gridPos": place,
        "panels": [],
    }


def _panel(number: int, panel: DashboardPanel, place: dict[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": TYPES[panel.kind],
        "title": panel.title,
        "description": panel.good,
        "datasource": SOURCE,
        "gridPos": place,
        "targets": [
            {
                "refId": chr(ord("A") + i),
                "datasource": SOURCE,
                "editorMode": "code",
                "expr": query.expr,
                "legendFormat": query.legend,
                "range": panel.kind != "stat",
                "instant": panel.kind == "stat",
            }
            for i, query in enumerate(panel.queries)
        ],
        "fieldConfig": {"defaults": _field(panel), "overrides": []},
        "options": _stat_options(panel) if panel.kind == "stat" else _time_options(),
    }


def _field(panel: DashboardPanel) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"value": None, "color": panel.below}]
    steps += [{"value": value, "color": color} for value, color in panel.steps]
    field: dict[str, Any] = {
        "unit": panel.unit,
        "color": {"mode": "thresholds" if panel.kind == "stat" else "palette-classic"},
        "thresholds": {"mode": "absolute", "steps": steps},
        "mappings": [_words(panel)] if panel.words else [],
    }
    if panel.low is not None:
        field["min"] = panel.low
    if panel.high is not None:
        field["max"] = panel.high
    if panel.empty:
        field["noValue"] = panel.empty
    if panel.kind != "stat":
        field["custom"] = _drawn(panel)
    return field


def _words(panel: DashboardPanel) -> dict[str, Any]:
    options = {f"{value:g}": {"text": text, "color": color} for value, text, color in panel.words}
    return {"type": "value", "options": options}


def _drawn(panel: DashboardPanel) -> dict[str, Any]:
    bars = panel.kind == "bars"
    return {
        "drawStyle": "bars" if bars else "line",
        "fillOpacity": 60 if bars else 8,
        "lineWidth": 1 if bars else 2,
        "showPoints": "never",
        "spanNulls": False,
        "stacking": {"mode": "normal" if bars else "none", "group": "A"},
        "thresholdsStyle": {"mode": "dashed" if panel.steps else "off"},
    }


def _stat_options(panel: DashboardPanel) -> dict[str, Any]:
    return {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "colorMode": "value",
        "graphMode": "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "textMode": "name" if panel.names else "auto",
        "wideLayout": True,
        "showPercentChange": False,
        "percentChangeColorMode": "standard",
    }


def _time_options() -> dict[str, Any]:
    return {
        "legend": {
            "displayMode": "list",
            "placement": "bottom",
            "showLegend": True,
            "calcs": [],
        },
        "tooltip": {"mode": "multi", "sort": "desc"},
    }


def _variables() -> list[dict[str, Any]]:
    of_these = 'instance=~"$instance"'
    return [
        {
            "name": "datasource",
            "label": "Prometheus",
            "type": "datasource",
            "query": "prometheus",
            "hide": 0,
            "refresh": 1,
            "regex": "",
            "multi": False,
            "includeAll": False,
            "options": [],
        },
        _variable("instance", "daemon", f"label_values({of(d.BUILD)}, instance)"),
        _variable("study", "study", f"label_values({of(d.LEARNED, of_these)}, study)"),
    ]


def _variable(name: str, label: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": SOURCE,
        "definition": query,
        "query": {"query": query, "refId": "PrometheusVariableQueryEditor-VariableQuery"},
        "hide": 0,
        "refresh": 2,
        "regex": "",
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".+",
        "options": [],
        "current": {"text": ["All"], "value": ["$__all"]},
    }


def _starts() -> dict[str, Any]:
    """Starts of the daemon as marks over all panels: much has its cause in one."""
    return {
        "name": "Start of the daemon",
        "datasource": SOURCE,
        "enable": True,
        "hide": False,
        "iconColor": "blue",
        "expr": f"max by (instance) ({chosen(STARTED)}) * 1000",
        "useValueForTime": True,
        "titleFormat": "tunerd was started",
        "textFormat": "{{instance}}",
    }
