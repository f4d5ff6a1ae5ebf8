"""The report as one HTML page: no script, no network, nothing beside it.

Names of studies, contexts and values come from outside; Jinja2 escapes all of them, and the page's
own policy lets nothing be loaded.
"""

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from tunerd.events.printable import printable_value
from tunerd.report import plots
from tunerd.report.formatting import (
    STATES,
    TRIED,
    VERDICTS,
    changes,
    context_label,
    gain_text,
    jobs_text,
    number,
    percent,
    percent_tick,
    plural,
    range_text,
    rounded,
    span,
    value_text,
)
from tunerd.report.model import ReportInterval, StudyReport

__all__ = ["page", "template_environment"]

OPEN = 3
"""Contexts whose advice is open from the start."""


def page(report: StudyReport) -> str:
    """The page, a few hundred kilobytes at most."""
    text: str = _environment().get_template("page.html.j2").render(report=report, **_drawn(report))
    return text.strip() + "\n"


def template_environment(package: str) -> Environment:
    """Of the templates in a package: what comes from jobs is escaped, and made printable."""
    return Environment(
        loader=PackageLoader(package),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=printable_value,
    )


@cache
def _environment() -> Environment:
    environment = template_environment("tunerd.report")
    environment.globals |= {
        "states": STATES,
        "tried": TRIED,
        "gain_text": gain_text,
        "changes": changes,
        "jobs_text": jobs_text,
        "label": context_label,
        "number": number,
        "open": OPEN,
        "percent": percent,
        "percent_tick": percent_tick,
        "plots": plots,
        "plural": plural,
        "range_text": range_text,
        "rounded": rounded,
        "span": span,
        "value_text": value_text,
        "verdicts": VERDICTS,
    }
    return environment


def _drawn(report: StudyReport) -> dict[str, Any]:
    gained = [context for context in report.contexts if context.gain is not None]
    gains: list[ReportInterval] = [context.gain for context in gained if context.gain is not None]
    return {"gained": gained, "axis": plots.context_axis(gains)}
