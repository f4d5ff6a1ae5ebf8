"""``tunerd init --from-command``: a study for a program, from its command line."""

import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tunerd.errors import MisconfiguredError, ValidationProblem

if TYPE_CHECKING:
    from tunerd.exec.draft import KnownValues

__all__ = ["at_a_terminal", "init_from_command", "name_of"]


def name_of(command: str) -> str:
    """A study's name from the program's."""
    try:
        program = shlex.split(command)[0]
    except (ValueError, IndexError):
        return "program"
    name = re.sub(r"[^a-z0-9]+", "-", Path(program).stem.lower()).strip("-")[:63]
    return name or "program"


def init_from_command(
    command: str,
    tries: Sequence[str],
    name: str,
    context: Sequence[str],
    objective: str | None,
    goal: str | None,
    unit: str | None,
    *,
    ask: bool,
) -> str:
    """The text of a study for a command; what is not known is asked for at a terminal.

    Raises:
        MisconfiguredError: with everything that is missing or wrong.
    """
    from tunerd.exec.draft import GOALS, draft, names_in, parse_tries

    metric = objective or "wall_s"
    names = names_in(command)
    parameters = [option for option in names if option not in context]
    values = parse_tries(tries, parameters)
    problems = [
        ValidationProblem(
            "--context", f"{name!r}: a name has ASCII letters, digits and underscores"
        )
        for name in context
        if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII)
    ]
    if goal is None and metric not in GOALS:
        problems.append(
            ValidationProblem("--goal", f"say whether {metric} is to be maximized or minimized")
        )
    for option in parameters:
        if option not in values or not values[option].enough:
            if ask:
                values[option] = _ask(option)
            else:
                problems.append(ValidationProblem("--try", _missing(option, values.get(option))))
    if not parameters:
        problems.append(ValidationProblem("--context", "leaves nothing to tune in the command"))
    if problems:
        raise MisconfiguredError(problems)
    ordered = {option: values[option] for option in parameters}
    goal = goal or "minimize"
    unit = GOALS.get(metric, "") if unit is None else unit
    return draft(name, command, ordered, context, metric, goal, unit)


def _missing(name: str, values: "KnownValues | None") -> str:
    if values is None:
        return f"nothing is known of {name}: --try '{name}=1,2,4' lists values, 1..16 is a range"
    return f"{name} has one value only, {values.first!r}: --try '{name}=…' adds another"


def _ask(name: str) -> "KnownValues":
    from tunerd.exec.draft import parse_values

    question = f"{name}: values to choose from, today's first (4,1,2,8), or a range (1..16)"
    while True:
        try:
            values = parse_values(name, _prompt(question))
        except MisconfiguredError as error:
            click.echo(str(error), err=True)
            continue
        if values.bounds is not None:
            today = parse_values(name, _prompt(f"{name}: what is it today"))
            values.single = today.single
        if values.enough:
            return values
        click.echo(f"{name}: one value leaves nothing to choose", err=True)


def _prompt(text: str) -> str:
    answer: Any = click.prompt(text, err=True)
    return str(answer).strip()


def at_a_terminal() -> bool:
    """Whether there is somebody to ask."""
    return sys.stdin.isatty() and sys.stderr.isatty()
