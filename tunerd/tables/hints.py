"""What a known export says of its columns, as guesses; a person's word goes before it."""

from collections.abc import Mapping
from typing import cast

from tunerd.tables.exports import INPUT, Hint
from tunerd.tables.profile import Column, Profile
from tunerd.tables.roles import Guess, Role
from tunerd.tables.tunable import can_be_tuned
from tunerd.tables.words import Name

__all__ = ["hinted", "inputs_of", "not_aside"]


def hinted(
    profile: Profile, names: Mapping[str, Name], known: Mapping[str, Guess]
) -> dict[str, Guess]:
    """What the columns are whose export says it; columns in ``known`` are left as they are."""
    taken = {one.role for one in known.values()}
    found: dict[str, Guess] = {}
    for column, hint in _hints(profile, known):
        role = _role(column, hint, taken)
        if role is not None:
            found[column.name] = Guess(column, names[column.name], role, hint.sure, hint.why)
    return found


def inputs_of(
    profile: Profile, names: Mapping[str, Name], known: Mapping[str, Guess]
) -> dict[str, Guess]:
    """The columns that went into a run, as its export says: they were not measured, and are
    tuned or context by what they are called and hold."""
    return {
        column.name: Guess(column, names[column.name], "context", 0.5, hint.why)
        for column, hint in _hints(profile, known)
        if hint.role in (INPUT, "parameter") and column.kind not in ("empty", "datetime")
    }


def not_aside(profile: Profile, found: Mapping[str, Guess]) -> Mapping[str, Guess]:
    """The guesses without what a tool measured of itself, if anything else was measured."""
    aside = {
        name for name, hint in _all_hints(profile).items() if hint.aside and hint.role == "metric"
    }
    rest = {name: one for name, one in found.items() if name not in aside}
    measured = any(one.role == "metric" and one.column.distinct > 1 for one in rest.values())
    return rest if measured else found


def _all_hints(profile: Profile) -> Mapping[str, Hint]:
    return {} if profile.export is None else profile.export.hints


def _hints(profile: Profile, known: Mapping[str, Guess]) -> list[tuple[Column, Hint]]:
    hints = _all_hints(profile)
    return [
        (column, hints[column.name])
        for column in profile.columns
        if column.name in hints and column.name not in known
    ]


_ONE_EACH = ("objective", "status", "finished_at", "job_id", "user")


def _role(column: Column, hint: Hint, taken: set[Role]) -> Role | None:
    """The role of a column; ``None`` where its values do not bear it out, or say more."""
    role = cast("Role", hint.role)
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
