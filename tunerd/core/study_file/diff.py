"""What one version of a study says that another does not, entry by entry, in words."""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

from tunerd.core.study.context_key import BucketKey
from tunerd.core.study.parts import ContextFeature, Parameter
from tunerd.core.study.study import Study
from tunerd.core.study_file.plugins import study_file_model

__all__ = ["StudyDifference", "differences"]

SHOWN = 8
"""Values named; the rest is counted."""
APART = ("parameters", "context", "mapping", "schema", "name")
"""Compared in their own way, or not at all: the mapping makes no new generation."""

Kind = Literal["added", "removed", "renamed", "changed"]


class _NamedEntry(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def was(self) -> tuple[str, ...]: ...


E = TypeVar("E", bound=_NamedEntry)


@dataclass(frozen=True, slots=True)
class StudyDifference:
    """One entry that is not as it was."""

    where: str
    """Its place in the study file, by its present name: ``parameters.tp``."""
    kind: Kind
    what: str
    """For a person, the old value first."""


def differences(old: Study, new: Study) -> list[StudyDifference]:
    """Return what changes from ``old`` to ``new``, in the order of the study file."""
    return [
        *_context(old, new),
        *_parameters(old, new),
        *_rest(old, new),
    ]


def _matched(old: Mapping[str, E], new: Mapping[str, E]) -> Iterator[tuple[E | None, E | None]]:
    """Pair entries by name, and by the names that they had."""
    before = dict(old)
    for name, entry in new.items():
        known = next((called for called in (name, *entry.was) if called in before), None)
        yield (None if known is None else before.pop(known)), entry
    for gone in before.values():
        yield gone, None


def _named(entries: Sequence[E]) -> dict[str, E]:
    return {entry.name: entry for entry in entries}


def _parameters(old: Study, new: Study) -> Iterator[StudyDifference]:
    for before, after in _matched(_named(old.parameters), _named(new.parameters)):
        if after is None:
            assert before is not None
            yield StudyDifference(
                f"parameters.{before.name}", "removed", "jobs differ in it no longer"
            )
            continue
        where = f"parameters.{after.name}"
        if before is None:
            yield StudyDifference(
                where, "added", f"{_values(after.choices)}; {_of_old_jobs(after)}"
            )
            continue
        if before.name != after.name:
            yield StudyDifference(where, "renamed", f"was {before.name}")
        for what in _parameter(before, after):
            yield StudyDifference(where, "changed", what)


def _parameter(before: Parameter, after: Parameter) -> Iterator[str]:
    for name in ("type", "scale", "repeat"):
        if getattr(before, name) != getattr(after, name):
            yield f"{name} {getattr(before, name)} → {getattr(after, name)}"
    known, wanted = dict.fromkeys(before.choices), dict.fromkeys(after.choices)
    more = [value for value in wanted if value not in known]
    less = [value for value in known if value not in wanted]
    if more:
        yield f"more values: {_values(more)}"
    if less:
        yield f"values that are gone: {_values(less)}"
    if not more and not less and before.choices != after.choices:
        yield "the same values in another order"
    if before.absent != after.absent:
        yield f"absent {before.absent!r} → {after.absent!r}"


def _context(old: Study, new: Study) -> Iterator[StudyDifference]:
    for before, after in _matched(_named(old.context), _named(new.context)):
        if after is None:
            assert before is not None
            keyed = "" if before.key == "ignore" else "; it is no longer part of the context key"
            yield StudyDifference(
                f"context.{before.name}", "removed", f"jobs differ in it no longer{keyed}"
            )
            continue
        where = f"context.{after.name}"
        if before is None:
            keyed = "" if after.key == "ignore" else "; it becomes part of the context key"
            yield StudyDifference(where, "added", f"{after.type}{keyed}; {_of_old_jobs(after)}")
            continue
        if before.name != after.name:
            keyed = "" if after.key == "ignore" else "; the context key has the new name"
            yield StudyDifference(where, "renamed", f"was {before.name}{keyed}")
        for name in ("type", "scale"):
            if getattr(before, name) != getattr(after, name):
                yield StudyDifference(
                    where, "changed", f"{name} {getattr(before, name)} → {getattr(after, name)}"
                )
        if before.key != after.key:
            keys = f"{_key(before)} → {_key(after)}"
            yield StudyDifference(where, "changed", f"in the context key: {keys}")
        if before.absent != after.absent:
            yield StudyDifference(where, "changed", f"absent {before.absent!r} → {after.absent!r}")


def _key(feature: ContextFeature) -> str:
    if isinstance(feature.key, BucketKey):
        return f"buckets of {feature.key.factor:g}"
    return feature.key


def _of_old_jobs(entry: Parameter | ContextFeature) -> str:
    if entry.absent is None:
        return "jobs that do not have it miss it (`absent = …` says otherwise)"
    return f"jobs that do not have it count as {entry.absent!r}"


def _values(values: Sequence[object]) -> str:
    more = f" and {len(values) - SHOWN} more" if len(values) > SHOWN else ""
    return ", ".join(map(str, values[:SHOWN])) + more


def _rest(old: Study, new: Study) -> Iterator[StudyDifference]:
    before, after = dict(_leaves(_tables(old))), dict(_leaves(_tables(new)))
    for where in dict.fromkeys([*before, *after]):
        was, now = before.get(where), after.get(where)
        if was == now:
            continue
        if where not in after:
            yield StudyDifference(where, "removed", f"was {_said(was)}")
        elif where not in before:
            yield StudyDifference(where, "added", _said(now))
        else:
            yield StudyDifference(where, "changed", f"{_said(was)} → {_said(now)}")


def _tables(study: Study) -> dict[str, Any]:
    """What a file says, defaults filled in, so that a default that is spelt out is no change."""
    table = study_file_model().model_validate(tomllib.loads(study.text)).model_dump(by_alias=True)
    table["baseline"] = {str(i): entry for i, entry in enumerate(table["baseline"], 1)}
    return {name: value for name, value in table.items() if name not in APART}


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for name, entry in value.items():
            yield from _leaves(entry, f"{path}.{name}" if path else name)
    elif value is not None:
        yield path, value


def _said(value: object) -> str:
    return value if isinstance(value, str) else str(value)
