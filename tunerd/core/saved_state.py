"""States that are saved and restored by their fields, and the layout that follows from these.

A state is a struct of JSON values and of other states. Its fields say how it is saved, so that
nobody writes that down once more, and :func:`layout_of` sums up all fields. A field that is added,
renamed or of another type makes another layout, under which nothing is restored that was saved
under this one.
"""

import hashlib
from collections.abc import Iterator
from datetime import datetime
from functools import cache
from typing import Annotated, Any, Self

import msgspec
from msgspec import inspect

__all__ = ["FrozenState", "Moment", "SavedState", "layout_of"]

Moment = Annotated[datetime, msgspec.Meta(tz=True)]
"""A time with its zone: one without cannot be compared with others."""


class _DumpMixin:
    """Saves and restores a struct."""

    __slots__ = ()

    def dump(self) -> Any:
        """State as JSON values; :meth:`load` gives it back exactly."""
        return msgspec.to_builtins(self, str_keys=True)

    @classmethod
    def load(cls, state: Any) -> Self:
        """Build from what :meth:`dump` gave.

        Raises:
            ValueError: a field is missing, unknown or of another type.
        """
        made = cls.load_with_defaults(state)
        for name in _missing(made, state):
            raise ValueError(f"{name} is missing")
        return made

    @classmethod
    def load_with_defaults(cls, state: Any) -> Self:
        """Build from what another version's :meth:`dump` may have given. Fields that it did not
        have yet begin with their defaults.

        Raises:
            ValueError: a field is unknown or of another type, or missing without a default.
        """
        return msgspec.convert(state, cls, str_keys=True)


class SavedState(_DumpMixin, msgspec.Struct, forbid_unknown_fields=True):
    """Base of a state that changes in place."""


class FrozenState(_DumpMixin, msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Base of a state, or of a part of one, that is replaced as a whole."""


def layout_of(*kinds: type[msgspec.Struct]) -> str:
    """Return a short text for names and types of all fields of states, whatever these are called
    and whatever their defaults are."""
    shapes = [_shape(info) for info in inspect.multi_type_info(kinds)]
    return hashlib.sha256(msgspec.json.encode(shapes)).hexdigest()[:12]


def _shape(info: Any) -> Any:
    if isinstance(info, inspect.Field):
        return [info.encode_name, _shape(info.type)]
    if isinstance(info, inspect.Type):
        parts = (getattr(info, name) for name in info.__struct_fields__ if name != "cls")
        return [type(info).__name__, *map(_shape, parts)]
    return [_shape(part) for part in info] if isinstance(info, tuple) else info


def _missing(made: Any, state: Any) -> Iterator[str]:
    """Fields of the states that were made of ``state`` which it does not have."""
    if isinstance(made, msgspec.Struct):
        names = made.__struct_fields__
        if len(state) < len(names):  # it has none that is unknown
            there = names[: len(state)] if isinstance(state, list) else state
            yield from (name for name in names if name not in there)
        elif nested := _nested(type(made)):
            given = dict(zip(names, state, strict=True)) if isinstance(state, list) else state
            for name in nested:
                yield from _missing(getattr(made, name), given[name])
    elif isinstance(made, dict):
        for value, saved in zip(made.values(), state.values(), strict=True):
            yield from _missing(value, saved)
    elif isinstance(made, list):
        for value, saved in zip(made, state, strict=True):
            yield from _missing(value, saved)


@cache
def _nested(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """Names of the fields in which there are states."""
    fields = inspect.type_info(kind).fields  # type: ignore[attr-defined]
    return tuple(field.name for field in fields if "StructType(" in repr(field.type))
