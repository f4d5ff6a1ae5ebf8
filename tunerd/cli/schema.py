"""``tunerd schema``: what others write and read, for programs and for people."""

import json
from importlib import import_module
from operator import attrgetter
from typing import Any

import click

__all__ = ["schema"]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
SCHEMAS = {
    "settings": "tunerd.settings:Settings.model_json_schema",
    "study": "tunerd.core.study_file:study_schema",
    "job": "tunerd.events.job:job_schema",
    "half": "tunerd.events.half:half_schema",
    "recommendation": "tunerd.events.recommendation:recommendation_schema",
    "plan": "tunerd.events.plan:plan_schema",
    "request": "tunerd.events.request:request_schema",
    "signal": "tunerd.events.signal:signal_schema",
    "drift": "tunerd.events.drift:drift_schema",
    "backtest": "tunerd.lab.evaluation.results:backtest_schema",
    "report": "tunerd.report.model:report_schema",
}
"""Functions that give a JSON Schema, as ``module:name``: imported when called."""
FILES = {
    "dashboard": "tunerd.monitoring.files:dashboard",
    "alerts": "tunerd.monitoring.files:alert_rules",
    "prometheusrule": "tunerd.monitoring.files:rule_object",
}
"""… that give another program's file: its text, or JSON."""
PAGES = {
    "settings": "tunerd.settings.reference:settings_page",
    "study": "tunerd.core.study_file.reference:study_page",
    "metrics": "tunerd.metrics:metrics_page",
    "dashboard": "tunerd.monitoring.files:dashboard_page",
}
"""… that give a page of the documentation."""


@click.command()
@click.argument("name", type=click.Choice(list(dict.fromkeys([*SCHEMAS, *PAGES, *FILES]))))
@click.option("--markdown", is_flag=True, help="The page of the documentation instead.")
def schema(name: str, markdown: bool) -> None:
    """Print the JSON Schema of settings, study files, events, recommendations or results.

    Of the dashboard and the alerts, print Grafana's and Prometheus' own file; prometheusrule is the
    alerts as an object for the operator of Prometheus in Kubernetes. With --markdown, the
    page that explains all settings, study files, metrics or panels.
    """
    if markdown:
        if name not in PAGES:
            raise click.UsageError(f"there is a page of {' and of '.join(PAGES)}, not of {name}")
        click.echo(_call(PAGES[name]), nl=False)
    elif name in FILES:
        made = _call(FILES[name])
        click.echo(made if isinstance(made, str) else _json(made) + "\n", nl=False)
    elif name in SCHEMAS:
        click.echo(_json({"$schema": DIALECT} | _call(SCHEMAS[name])).replace("``", "`"))
    else:
        raise click.UsageError(f"{name} have no JSON Schema; add --markdown")


def _call(function: str) -> Any:
    module, _, name = function.partition(":")
    return attrgetter(name)(import_module(module))()


def _json(made: Any) -> str:
    return json.dumps(made, indent=2, ensure_ascii=False)
