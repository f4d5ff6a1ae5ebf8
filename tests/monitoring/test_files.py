"""What lies in ``deploy/`` and ``docs/`` is what tunerd makes, and speaks of metrics that exist.

The names are read from the files as operators get them, and held against the definitions that the
daemon exports: whoever renames a metric and forgets a file learns of it here.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from tests.monitoring.names import SERIES, labels_of, series_in
from tunerd.cli.schema import schema
from tunerd.metrics import DEFINITIONS

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
MADE = {
    "deploy/grafana/dashboards/tunerd.json": ("dashboard",),
    "deploy/prometheus/alerts.yml": ("alerts",),
    "docs/dashboard.md": ("dashboard", "--markdown"),
    "docs/metrics.md": ("metrics", "--markdown"),
}
DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana/dashboards/tunerd.json").read_text())
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((DEPLOY / "prometheus/alerts.yml").read_text())["groups"]
    for rule in group["rules"]
]
SCENARIOS: list[dict[str, Any]] = yaml.safe_load((DEPLOY / "prometheus/tests.yml").read_text())[
    "tests"
]


@pytest.mark.parametrize("path", MADE)
def test_a_file_is_what_tunerd_makes(path: str) -> None:
    made = CliRunner().invoke(schema, MADE[path], catch_exceptions=False)
    wanted = f"tunerd schema {' '.join(MADE[path])} > {path}"
    assert (ROOT / path).read_text() == made.output, wanted


def in_the_dashboard() -> list[str]:
    queries = [target["expr"] for one in DASHBOARD["panels"] for target in one.get("targets", ())]
    variables = [
        one["definition"] for one in DASHBOARD["templating"]["list"] if "definition" in one
    ]
    return [*queries, *variables, *(one["expr"] for one in DASHBOARD["annotations"]["list"])]


def test_the_dashboard_asks_for_series_that_exist() -> None:
    asked = {name for expression in in_the_dashboard() for name in series_in(expression)}
    assert len(asked) > 20


@pytest.mark.parametrize("rule", RULES, ids=[rule["alert"] for rule in RULES])
def test_an_alert_watches_series_that_exist(rule: dict[str, Any]) -> None:
    assert series_in(rule["expr"])


def test_the_tests_of_the_rules_make_up_series_that_exist() -> None:
    for scenario in SCENARIOS:
        for one in scenario["input_series"]:
            name, labels = labels_of(one["series"])
            if labels["job"] == "tunerd":
                assert set(labels) == {*SERIES[name], "job", "instance"}, one["series"]


def test_every_alert_fires_in_a_test_of_the_rules() -> None:
    told = json.dumps(SCENARIOS)
    assert not [rule["alert"] for rule in RULES if rule["alert"] not in told]


@pytest.mark.parametrize(
    "wrong",
    [
        "tunerd_stream_lag > 3",
        "rate(tunerd_jobs[5m])",
        "tunerd_learn_seconds",
        'tunerd_jobs_total{following="asked"}',
        "tunerd_stream_lag_records{study=~'.+', topic=\"x\"}",
        "sum by (reason) (tunerd_jobs_total)",
    ],
)
def test_what_is_not_exported_is_noticed(wrong: str) -> None:
    with pytest.raises(AssertionError):
        series_in(wrong)


UNWATCHED = {
    # Another way to say what is on the dashboard, for those who ask.
    "tunerd_learned_sequence",
    "tunerd_observations_total",
    "tunerd_outbox_messages",
    # No mistake, and `tunerd status` tells it.
    "tunerd_pruned_jobs_total",
    "tunerd_forgotten_jobs_total",
    "tunerd_outside_jobs_total",
    "tunerd_prediction_pearson",
    "tunerd_prediction_spearman",
    # `tunerd forecast` tells it; how often it came says how good the forecast is.
    "tunerd_foreseen_contexts_total",
    # An alert tells when questions fail.
    "tunerd_prometheus_points_total",
    # `/readyz` says it, and an alert tells when many come.
    "tunerd_quarantined_jobs",
    # For schedulers and autoscalers; what is recommended, people see elsewhere.
    "tunerd_recommended_parameter",
    "tunerd_foreseen_signal",
    "tunerd_stage_steps_total",
}


def test_every_metric_is_looked_at_or_meant_not_to_be() -> None:
    expressions = [*in_the_dashboard(), *(rule["expr"] for rule in RULES)]
    asked = {name for expression in expressions for name in series_in(expression)}
    exported = {one.buckets if one.kind == "histogram" else one.series for one in DEFINITIONS}
    assert exported - asked == UNWATCHED


def test_the_alert_of_drift_claims_no_more_than_is_done() -> None:
    """Nothing is done about failures, and nothing at all where the study says so."""
    (text,) = (
        rule["annotations"]["description"] for rule in RULES if rule["alert"] == "TunerdDrift"
    )
    assert "Of failures tunerd only tells. For the others, unless the study says `act" in text


def test_every_alert_says_where_its_page_is() -> None:
    page = (ROOT / "docs/alerts.md").read_text()
    for rule in RULES:
        path, _, section = rule["annotations"]["runbook"].partition("#")
        assert (path, section) == ("docs/alerts.md", rule["alert"].lower())
        about = page.split(f"\n### {rule['alert']}\n")[1].split("\n#")[0]
        assert f"```promql\n{rule['expr']}\n```" in about, rule["alert"]
        assert f"this has lasted for {rule['for']}:" in about if "for" in rule else True
        assert f"| [{rule['alert']}](#{section}) | {rule['labels']['severity']} |" in page
        assert rule["labels"]["severity"] in ("critical", "warning", "info")


def test_names_follow_prometheus_conventions() -> None:
    assert len({one.name for one in DEFINITIONS}) == len(DEFINITIONS)
    for one in DEFINITIONS:
        assert one.name.startswith("tunerd_")
        assert not one.name.endswith(("_total", "_count", "_sum", "_bucket"))
        assert one.about.endswith(".")
