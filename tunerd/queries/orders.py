"""What an operator types to limit recommendations, in the study's types."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tunerd.core.decisions.overrides import Override, OverrideSet
from tunerd.core.observation import Scalar
from tunerd.core.study import Study
from tunerd.errors import TunerdError
from tunerd.store import Store

__all__ = ["COMMANDS", "InvalidOrderError", "order_arguments", "read_values"]

COMMANDS = ("approve", "decline", "pause", "resume", "pin", "forbid")
"""Commands that a page may give."""


class InvalidOrderError(TunerdError):
    """Raised when an order makes no sense. Says everything that is wrong."""


def read_values(study: Study, given: Sequence[str]) -> tuple[dict[str, Scalar], list[str]]:
    """Bring ``name=value`` texts of parameters into the study's types; with everything that is
    wrong."""
    parameters = {parameter.name: parameter for parameter in study.parameters}
    config: dict[str, Scalar] = {}
    wrong = []
    for text in given:
        entry, equals, value = text.partition("=")
        parameter = parameters.get(entry.partition("[")[0])
        clean: Scalar = value
        if parameter is not None and parameter.clean_one(value) is not None:
            clean = parameter.clean_one(value)
        if not equals:
            wrong.append(f"{text}: should be name=value")
        elif entry in config:
            wrong.append(f"{text}: {entry} is given twice")
        elif problem := OverrideSet(study).problem(Override(0, "pin", {}, {entry: clean})):
            wrong.append(problem)
        config[entry] = clean
    return config, wrong


def order_arguments(
    store: Store, study: Study, command: str, context_key: str | None, values: Sequence[str]
) -> Mapping[str, Any]:
    """The arguments of a command as the store keeps it.

    Args:
        store: where recommendations wait.
        study: which one.
        command: one of :data:`COMMANDS`.
        context_key: of one context; None for the whole study.
        values: ``name=value`` texts, for ``pin`` and ``forbid``.

    Raises:
        InvalidOrderError: it makes no sense.
    """
    if command not in COMMANDS:
        raise InvalidOrderError(f"{command}: should be one of {', '.join(COMMANDS)}")
    if command in ("approve", "decline"):
        return _answer(store, study, context_key)
    context = {} if context_key is None else _context(store, study, context_key)
    if command in ("pause", "resume"):
        return {"context": context}
    if not values:
        raise InvalidOrderError(f"{command}: name at least one value, for instance tp=8")
    config, wrong = read_values(study, values)
    if wrong:
        raise InvalidOrderError("; ".join(wrong))
    return {"context": context, "config": config}


def _answer(store: Store, study: Study, context_key: str | None) -> dict[str, str]:
    row = store.recommendation(study.name, context_key) if context_key is not None else None
    waiting = (
        []
        if row is None
        else [text for state, text in row.standing(study.mode) if state == "pending"]
    )
    if row is None or not waiting:
        raise InvalidOrderError("nothing waits for approval here")
    return {
        "context_key": row.context_key,
        "recommendation_id": json.loads(waiting[0])["recommendation_id"],
    }


def _context(store: Store, study: Study, context_key: str) -> dict[str, Scalar]:
    row = store.context_state(study.name, context_key)
    if row is None:
        raise InvalidOrderError(f"{study.name} has no such context")
    known = {feature.name for feature in study.context}
    return {
        name: value
        for name, value in row.state["context"].items()
        if name in known and value is not None
    }
