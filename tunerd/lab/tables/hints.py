"""What a known export says of its columns, as guesses; a person's word goes before it."""

from collections.abc import Mapping
from typing import cast

from tunerd.lab.tables.column_names import ColumnName
from tunerd.lab.tables.exports import INPUT, ColumnHint
from tunerd.lab.tables.exports.base import A_SEED, is_seed
from tunerd.lab.tables.profile import ColumnProfile, TableProfile
from tunerd.lab.tables.roles import ColumnGuess, Role
from tunerd.lab.tables.tunable import can_be_tuned

__all__ = ["hinted", "inputs_of", "not_aside"]


def hinted(
    profile: TableProfile, names: Mapping[str, ColumnName], known: Mapping[str, ColumnGuess]
) -> dict[str, ColumnGuess]:
    """What the columns are whose export says it; columns in ``known`` are left as they are."""
    taken = {guess.role for guess in known.values()}
    guesses: dict[str, ColumnGuess] = {}
    for column, hint in _hints(profile, known):
        role = _role(column, hint, taken)
        if role is not None:
            why = A_SEED if role == "label" and hint.role in (INPUT, "parameter") else hint.why
            guesses[column.name] = ColumnGuess(column, names[column.name], role, hint.sure, why)
    return guesses


def inputs_of(
    profile: TableProfile, names: Mapping[str, ColumnName], known: Mapping[str, ColumnGuess]
) -> dict[str, ColumnGuess]:
    """The columns that went into a run, as its export says: they were not measured, and are
    tuned or context by what they are called and hold."""
    return {
        column.name: ColumnGuess(column, names[column.name], "context", 0.5, hint.why)
        for column, hint in _hints(profile, known)
        if hint.role in (INPUT, "parameter") and column.kind not in ("empty", "datetime")
    }


def not_aside(profile: TableProfile, found: Mapping[str, ColumnGuess]) -> Mapping[str, ColumnGuess]:
    """The guesses without what a tool measured of itself, if anything else was measured."""
    aside = {
        name for name, hint in _all_hints(profile).items() if hint.aside and hint.role == "metric"
    }
    rest = {name: guess for name, guess in found.items() if name not in aside}
    measured = any(guess.role == "metric" and guess.column.distinct > 1 for guess in rest.values())
    return rest if measured else found


def _all_hints(profile: TableProfile) -> Mapping[str, ColumnHint]:
    return {} if profile.export is None else profile.export.hints


def _hints(
    profile: TableProfile, known: Mapping[str, ColumnGuess]
) -> list[tuple[ColumnProfile, ColumnHint]]:
    hints = _all_hints(profile)
    return [
        (column, hints[column.name])
        for column in profile.columns
        if column.name in hints and column.name not in known
    ]


_ONE_EACH = ("objective", "status", "finished_at", "job_id", "user")


def _role(column: ColumnProfile, hint: ColumnHint, taken: set[Role]) -> Role | None:
    """The role of a column; ``None`` where its values do not bear it out, or say more."""
    role = cast("Role", hint.role)
    if hint.role in (INPUT, "parameter") and is_seed(hint.name or column.name):
        return "label"
    if not hint.role or hint.role == INPUT:
        return None
    if column.kind == "empty":
        return None
    if role in _ONE_EACH and role in taken:
        return "metric" if role == "objective" and column.numeric else "label"
    if role == "objective" and (not column.numeric or column.distinct < 2):
        return None
    if role == "parameter" and not can_be_tuned(column):
        return None
    if role == "finished_at" and column.kind != "datetime" and not column.numeric:
        return None
    if role == "metric" and not column.numeric:
        return "label"
    return role
