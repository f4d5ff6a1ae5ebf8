"""Pages from templates. Whatever comes from jobs is escaped, and made printable."""

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment
from markupsafe import Markup

from tunerd import __version__
from tunerd.events.printable import printable_value
from tunerd.queries.views import context_path
from tunerd.report import plots as report_plots
from tunerd.report.formatting import (
    STATES,
    changes,
    context_label,
    gain_text,
    number,
    percent,
    plural,
    rounded,
    value_text,
)
from tunerd.report.page import template_environment
from tunerd.ui import plots

__all__ = ["asset", "asset_path", "render"]

ASSETS = {"page.css": "text/css; charset=utf-8", "page.js": "text/javascript; charset=utf-8"}
OUTCOMES = {
    "promoted": "became the incumbent",
    "withdrawn": "was worse: withdrawn",
    "given_up": "no difference to be told: given up",
    "failed": "often did not run",
    "returned": "did not keep up: the former incumbent is back",
    "slowed": "a change made it slow",
}
FOLLOWING = {
    "followed": "ran what a recommendation offered",
    "changed": "carried a recommendation's id and ran something else",
    "ignored": "ran without one though there was one",
    "unasked": "there was nothing to follow",
}
MODES = {
    "observe": "only observes",
    "approve": "publishes what is approved",
    "publish": "publishes",
    None: "unknown",
}
KINDS = {
    "incumbent": "best known",
    "baseline": "baseline",
    "exploit": "recommended",
    "explore": "to learn from",
    "confirm": "to test again",
}
WHY = {
    "first": "first model",
    "grown": "built anew as history grew",
    "drift": "built anew after a change",
    "generation": "built anew for a new generation of the study",
    "back": "an operator went back to it",
    "latest": "an operator let the latest serve again",
}


def render(name: str, **values: Any) -> bytes:
    """A page, as UTF-8."""
    text: str = _environment().get_template(name).render(now=datetime.now(UTC), **values)
    return text.encode(errors="replace")


@cache
def asset(name: str) -> tuple[bytes, str]:
    """A file that pages refer to, and its type.

    Raises:
        KeyError: there is none of this name.
    """
    kind = ASSETS[name]
    content = files("tunerd.ui").joinpath("static", name).read_bytes()
    if name == "page.css":  # the report's own style is the base of both
        base = files("tunerd.report").joinpath("templates", "style.css").read_bytes()
        content = base + content
    return content, kind


@cache
def asset_path(name: str) -> str:
    """Where it is; another content has another path, so that browsers keep it."""
    digest = hashlib.sha256(asset(name)[0]).hexdigest()[:12]
    return f"/static/{name}?v={digest}"


@cache
def _environment() -> Environment:
    environment = template_environment("tunerd.ui")
    environment.globals |= {
        "asset": asset_path,
        "changes": changes,
        "context_url": context_url,
        "following": FOLLOWING,
        "gain_text": gain_text,
        "hour_text": plots.hour_text,
        "job_url": job_url,
        "kinds": KINDS,
        "label": context_label,
        "modes": MODES,
        "number": number,
        "outcomes": OUTCOMES,
        "percent": percent,
        "plots": plots,
        "plural": plural,
        "report_plots": report_plots,
        "rounded": rounded,
        "states": STATES,
        "study_url": study_url,
        "value_text": value_text,
        "version": __version__,
        "whys": WHY,
        "with_query": with_query,
    }
    environment.filters |= {
        "ago": _ago,
        "moment": _moment,
        "short": _short,
        "count": _count,
        "signed": _signed,
        "stamp": _stamp,
    }
    return environment


def study_url(name: str, *more: str) -> str:
    """Where a study's pages are."""
    return "/".join(["/studies", quote(name, safe=""), *more])


def context_url(study: str, key: str) -> str:
    """Where a context's page is."""
    return study_url(study, "contexts", quote(context_path(key), safe="=,~"))


def job_url(study: str, sequence: int) -> str:
    """Where a job's page is."""
    return study_url(study, "jobs", str(sequence))


def with_query(path: str, **values: object) -> str:
    """A path with a query; what is None or empty is left out."""
    given: Mapping[str, object] = {k: v for k, v in values.items() if v not in (None, "")}
    return f"{path}?{urlencode(given)}" if given else path


def _ago(at: datetime | None, now: datetime) -> str:
    if at is None:
        return "never"
    seconds = (now - at).total_seconds()
    if seconds < 0:
        return "in the future"
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit} ago"
    return "just now" if seconds < 5 else f"{seconds:.0f} s ago"


def _moment(at: Any) -> str:
    if isinstance(at, str):
        try:
            at = datetime.fromisoformat(at)
        except ValueError:
            return str(at)
    return "–" if at is None else f"{at:%Y-%m-%d %H:%M}"


def _stamp(at: datetime | None, now: datetime) -> Markup:
    """How long ago, with the moment itself for who wants it."""
    if at is None:
        return Markup("never")
    return Markup('<time datetime="{}" title="{} UTC">{}</time>').format(
        at.isoformat(), _moment(at), _ago(at, now)
    )


def _short(text: object, most: int = 48) -> Markup | str:
    """A long text cut, whole for who points at it."""
    whole = str(printable_value(str(text)))
    if len(whole) <= most:
        return whole
    return Markup('<span title="{}">{}…</span>').format(whole[:2000], whole[: most - 1])


def _count(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def _signed(value: float | None) -> str:
    """GPU-hours with their sign."""
    if value is None:
        return "–"
    text = f"{value:+,.0f}" if abs(value) >= 10 or value == 0 else f"{value:+,.1f}"
    return ("0" if text in ("+0", "+0.0", "-0", "-0.0") else text).replace("-", "−")
