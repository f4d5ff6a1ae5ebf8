"""A study drafted from a command line with ``{name}`` in it, and from what was tried before."""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tunerd.errors import MisconfiguredError, ValidationProblem
from tunerd.exec.fill import placeholders

__all__ = ["KnownValues", "draft", "exec_line", "names_in", "parse_tries", "parse_values"]

LOG_FROM = 50.0
"""A range whose end is so many times its start is searched by ratios."""
GOALS = {"wall_s": "s", "cpu_s": "s", "peak_memory_mib": "MiB", "peak_memory_gib": "GiB"}
"""What ``tunerd exec`` measures by itself: less is better of each. Metric and unit."""
GUESS = "A GUESS, look at it"
"""``tunerd check`` repeats entries that say this."""


@dataclass
class KnownValues:
    """What is known of a parameter's values."""

    single: list[Any] = field(default_factory=list)
    """From one try each, the first try first."""
    listed: list[Any] = field(default_factory=list)
    bounds: tuple[Any, Any] | None = None

    def take(self, text: str) -> None:
        """``4``, ``1,2,4`` or ``1..16``. Raises ValueError."""
        low, dots, high = text.partition("..")
        if dots:
            ends = _value(low), _value(high)
            if not all(_is_number(end) for end in ends) or not ends[0] < ends[1]:
                raise ValueError(f"{text}: should be two numbers, the smaller one first")
            self.bounds = ends
        elif "," in text:
            self.listed += [_value(part.strip()) for part in text.split(",") if part.strip()]
        else:
            self.single.append(_value(text))

    @property
    def first(self) -> Any:
        """What is run today: the first that was named; None where only a range is known."""
        return next(iter([*self.single, *self.listed]), None)

    @property
    def all(self) -> list[Any]:
        """Each once."""
        return list(dict.fromkeys([*self.single, *self.listed]))

    @property
    def enough(self) -> bool:
        """Whether there is anything to choose from."""
        return self.bounds is not None or len(self.all) > 1


def names_in(command: str) -> list[str]:
    """The names in a command's braces. Raises MisconfiguredError."""
    try:
        names = placeholders(shlex.split(command))
    except ValueError as error:
        raise MisconfiguredError([ValidationProblem("--from-command", str(error))]) from None
    if not names:
        message = "has no {name}: put braces around a name where a value is to be tuned; it has "
        message += "ASCII letters, digits and underscores"
        raise MisconfiguredError([ValidationProblem("--from-command", message)])
    return names


def parse_values(name: str, text: str) -> KnownValues:
    """The values that one text says. Raises MisconfiguredError."""
    values = KnownValues()
    try:
        values.take(text)
    except ValueError as error:
        raise MisconfiguredError([ValidationProblem(name, str(error))]) from None
    return values


def parse_tries(tries: Sequence[str], names: Sequence[str]) -> dict[str, KnownValues]:
    """What tries such as ``threads=2 level=1..19`` say of each name.

    Raises:
        MisconfiguredError: with every mistake.
    """
    values_of: dict[str, KnownValues] = {}
    problems = []
    for text in tries:
        for part in shlex.split(text):
            name, equals, value = part.partition("=")
            if not equals or name not in names:
                known = ", ".join(names)
                message = f"{part}: should be NAME=VALUE with a name of the command: {known}"
                problems.append(ValidationProblem("--try", message))
                continue
            try:
                values_of.setdefault(name, KnownValues()).take(value)
            except ValueError as error:
                problems.append(ValidationProblem("--try", f"{name}={error}"))
    if problems:
        raise MisconfiguredError(problems)
    return values_of


def exec_line(options: str, command: str, context: Sequence[str], objective: str) -> str:
    """What to type to run a command; what is not known stands as an ellipsis."""
    wanted = "" if objective in GOALS else f"--metric '{objective}=…([0-9.]+)' "
    given = "".join(f"--context {name}=… " for name in context)
    return f"tunerd exec {options} {given}{wanted}-- {command}"


def draft(
    name: str,
    command: str,
    parameters: Mapping[str, KnownValues],
    context: Sequence[str],
    objective: str,
    goal: str,
    unit: str,
) -> str:
    """The text of a study file."""
    lines = [
        "# Drafted by `tunerd init` from a command. Run it as",
        f"#   {_comment(exec_line(f'--study {name}', command, context, objective))}",
        "schema = 1",
        f"name = {_text(name)}",
        'mode = "publish"        # exec follows what is published',
        "explore_share = 0.8     # of the runs, for everything that is new; less once it is good",
        "",
        "[objective]",
        f"metric = {_text(objective)}",
        f"goal = {_text(goal)}",
        *([f"unit = {_text(unit)}"] if unit else []),
        'scale = "log"           # compares by ratios, as speeds and times are compared',
    ]
    if context:
        lines += ["", "[context]               # what a run brings and nobody tunes"]
        lines += [f'{key} = {{ type = "category" }}' for key in context]
    lines += ["", "[parameters]"]
    lines += [f"{key} = {_parameter(values)}" for key, values in parameters.items()]
    baseline = {key: _baseline(values) for key, values in parameters.items()}
    unsure = [key for key, values in parameters.items() if values.first is None]
    lines += [
        "",
        "[[baseline]]            # what is run without tunerd"
        + (f"; {', '.join(unsure)}: {GUESS}" if unsure else ""),
        f"config = {{ {', '.join(f'{key} = {_text(value)}' for key, value in baseline.items())} }}",
    ]
    return "\n".join(lines) + "\n"


def _parameter(values: KnownValues) -> str:
    known = values.all
    if values.bounds is not None or (not values.listed and all(map(_is_number, known))):
        low, high = values.bounds or (min(known), max(known))
        low, high = min([low, *filter(_is_number, known)]), max([high, *filter(_is_number, known)])
        whole = all(isinstance(number, int) for number in (low, high, *known))
        scale = ', scale = "log"' if low > 0 and high / low >= LOG_FROM else ""
        kind = "int" if whole else "float"
        note = "" if values.bounds else f"    # from {len(values.single)} tries"
        return f'{{ type = "{kind}", low = {low}, high = {high}{scale} }}{note}'
    if all(isinstance(value, bool) for value in known):
        return '{ type = "bool" }'
    if all(map(_is_number, known)):
        kind = "int" if all(isinstance(number, int) for number in known) else "float"
        return f'{{ type = "{kind}", values = {_text(sorted(known))} }}'
    texts = [value if isinstance(value, str) else json.dumps(value) for value in known]
    return f'{{ type = "category", values = {_text(texts)} }}'


def _baseline(values: KnownValues) -> Any:
    if values.first is None:
        assert values.bounds is not None
        return values.bounds[0]
    mixed = any(isinstance(value, str) for value in values.all)
    first = values.first
    return first if isinstance(first, str) or not mixed else json.dumps(first)


def _value(text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, bool) or _is_number(value) else text


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _comment(text: str) -> str:
    """A command in a comment: one line, nothing that TOML refuses there."""
    return "".join(char if char.isprintable() else " " for char in text)
