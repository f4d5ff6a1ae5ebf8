"""The API's schema, OpenAPI 3.1, made from the types that answers are made of."""

from functools import cache
from typing import Any

import msgspec

from tunerd import __version__
from tunerd.queries.explanation import StudyExplanation
from tunerd.queries.forecasts import StudyForecast
from tunerd.queries.job_views import ClusterLedger, JobDetail, JobList, LedgerWindow
from tunerd.queries.views import SORTS, ContextDetail, ContextList, StudyDetail, StudyList

__all__ = ["ANSWERS", "openapi"]

ANSWERS: dict[str, tuple[str, Any]] = {
    "/studies": ("All studies, those first that need attention most", StudyList),
    "/ledger": ("What following was worth, over all studies", ClusterLedger),
    "/studies/{study}": ("A study", StudyDetail),
    "/studies/{study}/contexts": ("Contexts of a study, a page of them", ContextList),
    "/studies/{study}/contexts/{context}": ("A context", ContextDetail),
    "/studies/{study}/jobs": ("The latest jobs of a study", JobList),
    "/studies/{study}/jobs/{sequence}": ("A job", JobDetail),
    "/studies/{study}/ledger": ("What following was worth", LedgerWindow),
    "/studies/{study}/forecast": (
        "What signals will be, what is planned, and what came",
        StudyForecast,
    ),
    "/studies/{study}/importance": ("What matters in a study", StudyExplanation),
    "/studies/{study}/recommendations/{recommendation}": (
        "What each change of a recommendation is expected to bring",
        StudyExplanation,
    ),
    "/studies/{study}/try": ("What would be recommended in a context; nobody publishes it", dict),
}
_PLACES = {
    "study": "Name of a study.",
    "context": "The context key without the study, percent-encoded once more; - for the empty one.",
    "sequence": "Number of the job within its study.",
    "recommendation": "Id of a recommendation that stands or is remembered.",
}
_WHOLE = {"type": "integer", "minimum": 1}
_QUERIES: dict[str, list[tuple[str, str, dict[str, Any]]]] = {
    "/studies/{study}/contexts": [
        ("search", "Words that the key or the state must hold.", {"type": "string"}),
        (
            "sort",
            "By what; with - in front the largest first.",
            {"type": "string", "enum": [sign + name for name in SORTS for sign in ("", "-")]},
        ),
        ("page", "From 1.", _WHOLE),
        ("limit", "Contexts a page, 200 at most.", _WHOLE | {"maximum": 200}),
    ],
    "/studies/{study}/jobs": [
        ("before", "Only jobs with a lower sequence.", _WHOLE),
        ("limit", "Jobs a page, 200 at most.", _WHOLE | {"maximum": 200}),
        ("user", "Only of this user, among the latest 20,000.", {"type": "string"}),
        ("status", "Only with this status.", {"type": "string"}),
        ("job", "Only with this job_id.", {"type": "string"}),
    ],
    "/studies/{study}/ledger": [("days", "The last so many days; 7 by default.", _WHOLE)],
    "/ledger": [("days", "The last so many days; 7 by default.", _WHOLE)],
}
_REF = "#/components/schemas/{name}"


@cache
def openapi() -> dict[str, Any]:
    """The schema."""
    kinds = [kind for _, kind in ANSWERS.values()]
    shapes, components = msgspec.json.schema_components(kinds, ref_template=_REF)
    shown = dict(zip(ANSWERS, shapes, strict=True))
    problem = {"type": "object", "properties": {"problem": {"type": "string"}}}
    running = {"type": "object", "properties": {"state": {"const": "running"}}}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "tunerd",
            "version": __version__,
            "description": "What tunerd knows. Read-only; the same as its pages show.",
        },
        "servers": [{"url": "/api/v1"}],
        "paths": {
            path: {
                "get": {
                    "summary": about,
                    "parameters": _parameters(path),
                    "responses": {
                        "200": _answer("As asked.", shown[path]),
                        "202": _answer("It is being computed: ask again in a second.", running),
                        "400": _answer("The question makes no sense.", problem),
                        "404": _answer("There is no such thing.", problem),
                        "409": _answer("There is no answer yet.", problem),
                        "503": _answer("The store does not answer, or too much is asked.", problem),
                    },
                }
            }
            for path, (about, _) in ANSWERS.items()
        },
        "components": {"schemas": components},
    }


def _parameters(path: str) -> list[dict[str, Any]]:
    parameters: list[dict[str, Any]] = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": about,
            "schema": {"type": "integer" if name == "sequence" else "string"},
        }
        for name, about in _PLACES.items()
        if f"{{{name}}}" in path
    ]
    for name, about, shape in _QUERIES.get(path, ()):
        parameters.append({"name": name, "in": "query", "description": about, "schema": shape})
    return parameters


def _answer(about: str, shape: Any) -> dict[str, Any]:
    return {"description": about, "content": {"application/json": {"schema": shape}}}
