"""What operators have ordered of a study, for as long as it stands: pauses, pins and forbidden
configurations.

Pins and forbidden configurations are *limits*: constraints that the study file does not have. They
become constraints like any other, so that whatever samples, lists, repairs or judges configurations
keeps to them without knowing of them. An order holds where the context has the given values; one
that does not fit a later generation of the study is kept, and does nothing until it fits again.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Literal

from msgspec import field

from tunerd.core.expressions import Expression, ExpressionType, names_in, suggestion
from tunerd.core.expressions.tree import (
    CallNode,
    CompareNode,
    IndexNode,
    LogicalNode,
    NameNode,
    Node,
    NotNode,
)
from tunerd.core.expressions.tree import LiteralNode as Constant
from tunerd.core.observation import Scalar, Value
from tunerd.core.recommendation import Recommendation
from tunerd.core.saved_state import FrozenState
from tunerd.core.study import Constraint, Parameter, Study
from tunerd.core.study.context_key import clean_value, written
from tunerd.core.study_file.baselines import values_of

__all__ = ["Override", "OverrideSet"]

ANYWHERE = "[any]"
_ENTRY = re.compile(r"(\w+)(?:\[(any|\d{1,4})\])?", re.ASCII)


class Override(FrozenState, frozen=True):
    """One order. ``number`` is the command's, by which people name it."""

    number: int
    kind: Literal["pause", "pin", "forbid"]
    context: Mapping[str, Scalar] = field(default_factory=dict)
    """Values of context features; it holds in the contexts that have all of them."""
    config: Mapping[str, Scalar] = field(default_factory=dict)
    """Values of parameters, all of them together. Of a repeat parameter: ``sharding`` is every
    position, ``sharding[3]`` one of them, ``sharding[any]`` at least one."""
    why: str = ""

    @property
    def what(self) -> str:
        """Without number and context: ``pin tp = 8``."""
        return f"{self.kind} {_listed(self.config)}".strip()

    @property
    def where(self) -> str:
        """`` where gpu = H100``; empty where it holds everywhere."""
        return f" where {_listed(self.context)}" if self.context else ""

    @property
    def named(self) -> str:
        """As a recommendation's reason names it: ``pin 12 (tp = 8)``."""
        return f"{self.kind} {self.number} ({_listed(self.config)})"


class OverrideSet:
    """The orders that stand, under one generation of a study."""

    def __init__(self, study: Study, standing: Iterable[Override] = ()) -> None:
        self.study = study
        self.standing = tuple(standing)
        """In the order they were given, fitting or not."""
        self._parameters = {parameter.name: parameter for parameter in study.parameters}
        self._fitting = [
            (order, self.parts(order.context))
            for order in self.standing
            if self.problem(order) is None
        ]
        self._constraints = {
            order.number: Constraint(f"{order.kind} {order.number}", self._expression(order))
            for order, _ in self._fitting
            if order.kind != "pause"
        }
        self._studies: dict[tuple[int, ...], Study] = {}

    def given(self, order: Override) -> "OverrideSet":
        """These and one more."""
        return OverrideSet(self.study, (*self.standing, order))

    def lifted(self, numbers: Iterable[int]) -> "OverrideSet":
        """These without some."""
        gone = set(numbers)
        return OverrideSet(
            self.study, (override for override in self.standing if override.number not in gone)
        )

    # ── where they hold ──────────────────────────────────────────────────────────────────────

    def parts(self, context: Mapping[str, Scalar]) -> frozenset[str]:
        """The parts of a context key that say these values: buckets and rounding as in the key."""
        named = dict(
            part.partition("=")[::2] for part in _parts_of(self.study.context_key(context))
        )
        return frozenset(f"{name}={named[name]}" for name in context)

    def within(self, context: Mapping[str, Scalar], keys: Iterable[str]) -> list[str]:
        """Those of the context keys that have these values."""
        parts = self.parts(context)
        return [key for key in keys if parts.issubset(_parts_of(key))]

    def paused(self, key: str) -> Override | None:
        """The order that pauses a context, if any does."""
        return next((override for override in self._holding(key) if override.kind == "pause"), None)

    def limits(self, key: str) -> tuple[Override, ...]:
        """Pins and forbidden configurations that hold in a context."""
        return tuple(override for override in self._holding(key) if override.kind != "pause")

    @property
    def all_paused(self) -> Override | None:
        """The order that pauses the whole study, if any does."""
        return next((o for o, parts in self._fitting if o.kind == "pause" and not parts), None)

    def pauses_over(self, context: Mapping[str, Scalar]) -> list[Override]:
        """Pauses of everything that has these values, and possibly of more."""
        given = self.parts(context)
        return [o for o, parts in self._fitting if o.kind == "pause" and parts <= given]

    def pauses_within(self, context: Mapping[str, Scalar]) -> list[Override]:
        """Pauses of these values, or of some of the contexts that have them."""
        given = self.parts(context)
        return [o for o, parts in self._fitting if o.kind == "pause" and parts >= given]

    def _holding(self, key: str) -> list[Override]:
        if not self._fitting:
            return []
        if key == self.study.name:
            # The entry for the empty context: readers of any context fall back on it.
            return [order for order, _ in self._fitting]
        key_parts = set(_parts_of(key))
        return [order for order, parts in self._fitting if parts <= key_parts]

    # ── what they rule out ───────────────────────────────────────────────────────────────────

    def study_in(self, key: str) -> Study:
        """The study as it is to be searched in a context: with the limits as constraints."""
        numbers = tuple(order.number for order in self.limits(key))
        if not numbers:
            return self.study
        if numbers not in self._studies:
            added = tuple(self._constraints[number] for number in numbers)
            # A number that is pinned may lie between those that are searched.
            study = self.study.with_choices(
                {entry.partition("[")[0]: value}
                for order in self.limits(key)
                if order.kind == "pin"
                for entry, value in order.config.items()
            )
            self._studies[numbers] = replace(study, constraints=(*study.constraints, *added))
        return self._studies[numbers]

    def broken(self, key: str, config: Mapping[str, Value]) -> Override | None:
        """The first limit that a configuration surely breaks; one that lacks parameters may."""
        return next(
            (override for override in self.limits(key) if self._breaks(override, config)), None
        )

    def broken_by(self, said: Recommendation) -> Override | None:
        """The first limit that anything a recommendation names breaks."""
        configs = [candidate.config for candidate in said.candidates]
        configs += [said.incumbent.config] if said.incumbent else []
        configs += [said.baseline] if said.baseline else []
        breaking = (self.broken(said.context_key, config) for config in configs)
        return next((order for order in breaking if order is not None), None)

    def completed(self, key: str, config: Mapping[str, Value]) -> dict[str, Value]:
        """A partial configuration with what is pinned added where it says nothing."""
        known = dict(config)
        for order in self.limits(key):
            if order.kind == "pin":
                for entry, value in order.config.items():
                    parameter = self._parameters.get(entry)
                    if parameter is not None and entry not in known:
                        known[entry] = [value] * parameter.repeat if parameter.repeated else value
        return known

    def _breaks(self, order: Override, config: Mapping[str, Value]) -> bool:
        truths = [self._is(entry, value, config) for entry, value in order.config.items()]
        return False in truths if order.kind == "pin" else all(truth is True for truth in truths)

    def _is(self, entry: str, value: Scalar, config: Mapping[str, Value]) -> bool | None:
        """Whether a configuration has a value; None when it does not say."""
        parameter, position = self._entry(entry)
        assert parameter is not None
        if parameter.name not in config:
            return None
        indices = [parameter.index(choice) for choice in parameter.spread(config[parameter.name])]
        same = [place == parameter.index(value) for place in indices]
        if isinstance(position, int):
            return same[position]
        return any(same) if position == "any" else all(same)

    # ── whether they make sense ──────────────────────────────────────────────────────────────

    def problem(self, order: Override) -> str | None:
        """Why an order does not fit this generation; None when it does."""
        if order.kind != "pause" and not order.config:
            return "it names no parameter"
        for name, value in order.context.items():
            if wrong := self._wrong_context(name, value):
                return wrong
        for entry, value in order.config.items():
            if wrong := self._wrong_value(entry, value):
                return wrong
        return None

    def _wrong_context(self, name: str, value: Scalar) -> str | None:
        features = {feature.name: feature for feature in self.study.context}
        if name not in features:
            hint = suggestion(name, features) or f"; it has {', '.join(features) or 'none'}"
            return f"the study has no context feature {name!r}{hint}"
        if features[name].key == "ignore":
            return f'contexts are not told apart by {name!r}: its key is "ignore"'
        if value is not None and clean_value(value, features[name].type) is None:
            return f"{name} = {value!r} is not of type {features[name].type}"
        return None

    def _wrong_value(self, entry: str, value: Scalar) -> str | None:
        parameter, position = self._entry(entry)
        if parameter is None:
            name = entry.partition("[")[0]
            hint = suggestion(name, self._parameters) or f"; it has {', '.join(self._parameters)}"
            return f"the study has no parameter {name!r}{hint}"
        if position is not None and not parameter.repeated:
            return f"{entry}: {parameter.name} is a single value, it has no positions"
        if isinstance(position, int) and position >= parameter.repeat:
            return f"{entry}: {parameter.name} has positions 0 to {parameter.repeat - 1}"
        if parameter.index(value) is None:
            return f"{entry} = {written(value)} is outside the space: {values_of(parameter)}"
        return None

    def _entry(self, entry: str) -> tuple[Parameter | None, int | str | None]:
        """``sharding[3]`` → the parameter and 3."""
        match = _ENTRY.fullmatch(entry)
        if match is None:
            return None, None
        name, position = match.groups()
        place = int(position) if position is not None and position.isdecimal() else position
        return self._parameters.get(name), place

    # ── limits as constraints ────────────────────────────────────────────────────────────────

    def _expression(self, order: Override) -> Expression:
        """What must be true. Made as a tree: a category's text may hold any quotes."""
        entry, value = next(iter(order.config.items()))
        parts: list[Node]
        if order.kind == "pin":
            parts = [node for item in order.config.items() for node in self._apart(*item)]
        elif len(order.config) == 1 and entry.endswith(ANYWHERE):
            parts = [NotNode(rule, 0) for rule in self._apart(entry.removesuffix(ANYWHERE), value)]
        else:
            parts = [NotNode(_every([self._node(*item) for item in order.config.items()]), 0)]
        node = _every(parts)
        text = " and ".join(f"{entry} == {written(value)}" for entry, value in order.config.items())
        text = f"not ({text})" if order.kind == "forbid" else text
        return Expression(text, node, ExpressionType("bool"), names_in(node))

    def _apart(self, entry: str, value: Scalar) -> list[Node]:
        """One truth for each position: each is settled by itself, where a single one over 48
        layers would be too wide for a table (a sample took 30 times as long)."""
        parameter, position = self._entry(entry)
        assert parameter is not None
        if position is not None or not parameter.repeated:
            return [self._node(entry, value)]
        return [self._node(f"{entry}[{place}]", value) for place in range(parameter.repeat)]

    def _node(self, entry: str, value: Scalar) -> Node:
        parameter, position = self._entry(entry)
        assert parameter is not None
        place = parameter.index(value)
        assert place is not None
        name = NameNode(parameter.name, 0)
        left = IndexNode(name, Constant(position, 0), 0) if isinstance(position, int) else name
        same = CompareNode((left, Constant(parameter.value(place), 0)), ("==",), 0)
        if isinstance(position, int) or not parameter.repeated:
            return same
        return CallNode("any" if position == "any" else "all", (same,), 0)


def _every(parts: list[Node]) -> Node:
    return parts[0] if len(parts) == 1 else LogicalNode("and", tuple(parts), 0)


def _parts_of(key: str) -> list[str]:
    return key.split("|")[1:]


def _listed(values: Mapping[str, Scalar]) -> str:
    return ", ".join(f"{name} = {written(value)}" for name, value in values.items())
