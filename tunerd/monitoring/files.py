"""The two files as they are, and what is made of them for Kubernetes and for the documentation."""

import json
import textwrap
from importlib.resources import files
from typing import Any

__all__ = ["alert_rules", "dashboard", "dashboard_page", "rule_object"]

_RULE_OBJECT = """\
# Made by `tunerd schema prometheusrule`; a test compares the two.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: tunerd
spec:
"""
_PAGE = """\
# Dashboard

<!-- Made by `tunerd schema dashboard --markdown`; a test compares the two. -->

What `deploy/grafana/dashboards/tunerd.json` shows, for Grafana 11 and later: import it, or let
`deploy/grafana/provisioning` do so. At its top one chooses the Prometheus, the daemons and the
studies; starts of the daemon are marked in all panels. Numbers that are watched have
[alerts](alerts.md); [metrics.md](metrics.md) says what each metric is.

In the queries `$instance` and `$study` stand for what was chosen, `$__rate_interval` and `$__range`
for times that Grafana fills in.
"""


def alert_rules() -> str:
    """Prometheus' rule file."""
    return (files(__package__) / "alerts.yml").read_text(encoding="utf-8")


def rule_object() -> str:
    """The same rules as a PrometheusRule, for the operator of Prometheus in Kubernetes."""
    _, _, rules = alert_rules().split("\n", 2)  # without the two lines of comment
    return _RULE_OBJECT + textwrap.indent(rules, "  ")


def dashboard() -> dict[str, Any]:
    """Grafana's JSON of the dashboard, in its classic model, which Grafana 11 and later read."""
    text = (files(__package__) / "dashboard.json").read_text(encoding="utf-8")
    content: dict[str, Any] = json.loads(text)
    return content


def dashboard_page() -> str:
    """``docs/dashboard.md``: the same for people who only read."""
    return _PAGE + "".join(map(_section, dashboard()["panels"]))


def _section(panel: dict[str, Any]) -> str:
    if panel["type"] == "row":
        return f"\n## {panel['title']}\n"
    about = textwrap.fill(panel["description"], 100, break_long_words=False, break_on_hyphens=False)
    series = (
        (target["legendFormat"].replace("{{", "*").replace("}}", "*"), target["expr"])
        for target in panel["targets"]
    )
    queries = "".join(f"- {legend}: `{expression}`\n" for legend, expression in series)
    return f"\n### {panel['title']}\n\n{about}\n\n{queries}"
