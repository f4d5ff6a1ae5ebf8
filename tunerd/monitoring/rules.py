"""Prometheus' rule file, as YAML that a person can read."""

import json
import re
import textwrap

from tunerd.monitoring.alerts import AlertRule, AlertTimings, RuleGroup, groups
from tunerd.monitoring.promql import span

__all__ = ["PAGE", "rule_file", "rule_object"]

PAGE = "docs/alerts.md"


def rule_file(times: AlertTimings | None = None) -> str:
    """The file ``deploy/prometheus/alerts.yml``; with other times for tests."""
    lines = [
        "# Made by `tunerd schema alerts`; a test compares the two. What each means and what to do",
        f"# is in {PAGE}.",
        "groups:",
    ]
    for group in groups(times):
        lines += _group(group)
    return "\n".join(lines) + "\n"


def rule_object() -> str:
    """The same rules as a PrometheusRule, for the operator of Prometheus in Kubernetes."""
    _, _, *rules = rule_file().splitlines()
    return "\n".join(
        [
            "# Made by `tunerd schema prometheusrule`; a test compares the two.",
            "apiVersion: monitoring.coreos.com/v1",
            "kind: PrometheusRule",
            "metadata:",
            "  name: tunerd",
            "spec:",
            *(f"  {line}" for line in rules),
            "",
        ]
    )


def _group(group: RuleGroup) -> list[str]:
    lines = [f"  - name: {group.name}", "    rules:"]
    for alert in group.alerts:
        lines += _rule(alert)
    return lines


def _rule(alert: AlertRule) -> list[str]:
    return [
        f"      - alert: {alert.name}",
        "        expr: |-",
        f"          {alert.expr}",
        *([f"        for: {span(alert.hold)}"] if alert.hold else []),
        "        labels:",
        f"          severity: {alert.severity}",
        "        annotations:",
        # A JSON text is a YAML text.
        f"          summary: {json.dumps(alert.summary, ensure_ascii=False)}",
        *_folded("description", _description(alert)),
        f"          runbook: {PAGE}#{alert.name.lower()}",
    ]


def _description(alert: AlertRule) -> str:
    """Plain text: links on the page mean nothing in a message."""
    first = re.sub(r"\[(.+?)\]\(.+?\)", r"\1", alert.do[0])
    return f"{alert.means} First look: {first}"


def _folded(key: str, text: str) -> list[str]:
    """A text over several lines, in which nothing needs to be escaped."""
    indent = 12 * " "
    lines = textwrap.wrap(text, 100 - len(indent), break_long_words=False, break_on_hyphens=False)
    return [f"          {key}: >-", *(indent + line for line in lines)]
