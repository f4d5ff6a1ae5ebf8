"""``docs/alerts.md`` and ``docs/dashboard.md``: the same for people who only read."""

import re
import textwrap

from tunerd.monitoring.alerts import AlertRule, groups
from tunerd.monitoring.panels import ROWS, DashboardPanel
from tunerd.monitoring.promql import JOB, span

__all__ = ["alerts_page", "dashboard_page"]

_ALERTS = f"""\
# Alerts

<!-- Made by `tunerd schema alerts --markdown`; a test compares the two. -->

What each rule in `deploy/prometheus/alerts.yml` means and what to do. The rules expect the scrape
job to be called `{JOB}`, as `deploy/prometheus/prometheus.yml` has it, and are silent while all is
well. *Critical*: nothing is tuned, or nothing gets out, until somebody acts. *Warning*: it works,
but not as it should. *Info*: worth knowing. Running recommendations hold until they expire,
whatever happens to tunerd.

`runbook` of each alert points here. “Quoted” names are panels of [the dashboard](dashboard.md).

"""

_DASHBOARD = """\
# Dashboard

<!-- Made by `tunerd schema dashboard --markdown`; a test compares the two. -->

What `deploy/grafana/dashboards/tunerd.json` shows, for Grafana 11 and later: import it, or let
`deploy/grafana/provisioning` do so. At its top one chooses the Prometheus, the daemons and the
studies; starts of the daemon are marked in all panels. Numbers that are watched have
[alerts](alerts.md); [metrics.md](metrics.md) says what each metric is.

In the queries `$instance` and `$study` stand for what was chosen, `$__rate_interval` and `$__range`
for times that Grafana fills in.
"""


def alerts_page() -> str:
    """``docs/alerts.md``."""
    parts = [_ALERTS, "| alert | severity | in short |\n|---|---|---|\n"]
    for group in groups():
        parts += map(_line, group.alerts)
    for group in groups():
        parts.append(f"\n## {group.title}\n")
        parts += map(_section, group.alerts)
    return "".join(parts)


def _line(alert: AlertRule) -> str:
    short = re.split(r"[.:] ", alert.means)[0].rstrip(".")
    return f"| [{alert.name}](#{alert.name.lower()}) | {alert.severity} | {short} |\n"


def _section(alert: AlertRule) -> str:
    when = f"once this has lasted for {span(alert.hold)}" if alert.hold else "as soon as this holds"
    steps = "".join(_wrapped(step, f"{i}. ") for i, step in enumerate(alert.do, 1))
    return (
        f"\n### {alert.name}\n\n{_wrapped(alert.means)}\n{steps}\n"
        f"Fires {when}:\n\n```promql\n{alert.expr}\n```\n"
    )


def dashboard_page() -> str:
    """``docs/dashboard.md``."""
    parts = [_DASHBOARD]
    for row in ROWS:
        parts.append(f"\n## {row.title}\n")
        parts += map(_question, row.panels)
    return "".join(parts)


def _question(panel: DashboardPanel) -> str:
    queries = "".join(f"- {_series(q.legend)}: `{q.expr}`\n" for q in panel.queries)
    return f"\n### {panel.title}\n\n{_wrapped(panel.good)}\n{queries}"


def _series(legend: str) -> str:
    return legend.replace("{{", "*").replace("}}", "*")


def _wrapped(text: str, mark: str = "") -> str:
    return (
        textwrap.fill(
            text,
            100,
            initial_indent=mark,
            subsequent_indent=" " * len(mark),
            break_long_words=False,
            break_on_hyphens=False,
        )
        + "\n"
    )
