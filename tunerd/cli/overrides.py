"""``tunerd pause``, ``resume``, ``pin``, ``forbid`` and ``lift``: orders that stand."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tunerd.cli.command_submission import giving
from tunerd.cli.options import (
    json_option,
    settings_option,
    study_argument,
    why_option,
    yes_option,
)

if TYPE_CHECKING:
    from tunerd.core.observation import Scalar
    from tunerd.core.study import Study

__all__ = ["forbid", "lift", "pause", "pin", "resume"]

F = TypeVar("F", bound=Callable[..., Any])


def _context_option(command: F) -> F:
    return click.option(
        "--context",
        multiple=True,
        metavar="NAME=VALUE",
        help="Only contexts with this value of a context feature; several must all be there.",
    )(command)


def _set_option(command: F) -> F:
    return click.option(
        "--set",
        "chosen",
        multiple=True,
        required=True,
        metavar="NAME=VALUE",
        help="A parameter's value. Of a repeat parameter: every position; NAME[3] is one of them, "
        "NAME[any] at least one.",
    )(command)


@click.command()
@settings_option
@study_argument()
@_context_option
@why_option
@yes_option
@json_option
def pause(
    file: Path | None,
    study: str,
    context: tuple[str, ...],
    why: str,
    sure: bool,
    as_json: bool,
) -> int:
    """Stop recommending for STUDY, or for some of its contexts; it learns on.

    What is published is withdrawn, with the reason that you give; `tunerd resume` brings advice
    back at once.
    """
    with giving(file, why, as_json=as_json) as giver:
        values = _context(giver.study(study), context)
        if not values:
            giver.confirm(study, f"`tunerd resume {study}` brings advice back.", sure=sure)
        giver.give([(study, "pause", {"context": values})])
        return giver.follow()


@click.command()
@settings_option
@study_argument()
@_context_option
@why_option
@json_option
def resume(file: Path | None, study: str, context: tuple[str, ...], why: str, as_json: bool) -> int:
    """Recommend again for STUDY, or for contexts that were paused: lifts every pause of these
    values, and of some of their contexts."""
    with giving(file, why, as_json=as_json) as giver:
        values = _context(giver.study(study), context)
        giver.give([(study, "resume", {"context": values})])
        return giver.follow()


@click.command()
@settings_option
@study_argument()
@_set_option
@_context_option
@why_option
@json_option
def pin(**given: Any) -> int:
    """Recommend for STUDY only configurations with these values."""
    return _limit("pin", **given)


@click.command()
@settings_option
@study_argument()
@_set_option
@_context_option
@why_option
@json_option
def forbid(**given: Any) -> int:
    """Never recommend for STUDY a configuration with all of these values together."""
    return _limit("forbid", **given)


@click.command()
@settings_option
@study_argument()
@click.argument("number", type=int)
@why_option
@json_option
def lift(file: Path | None, study: str, number: int, why: str, as_json: bool) -> int:
    """Lift a pin, a forbidden configuration or a pause of STUDY, by its number.

    `tunerd status STUDY` lists those that stand.
    """
    with giving(file, why, as_json=as_json) as giver:
        giver.study(study)
        saved = giver.store.study_state(study)
        try:
            standing = [order["number"] for order in saved.state.get("orders", [])] if saved else []
        except (LookupError, TypeError):  # damaged: the daemon knows which stand
            standing = [number]
        coming = [command.id for command in giver.store.commands(study)]
        if number not in (*standing, *coming):
            numbers = ", ".join(map(str, standing)) or "none"
            raise click.UsageError(f"no order {number} stands for {study}; there are: {numbers}")
        giver.give([(study, "lift", {"number": number})])
        return giver.follow()


def _limit(
    kind: str,
    file: Path | None,
    study: str,
    chosen: Sequence[str],
    context: Sequence[str],
    why: str,
    as_json: bool,
) -> int:
    with giving(file, why, as_json=as_json) as giver:
        parsed = giver.study(study)
        values, config = _context(parsed, context), _config(parsed, chosen)
        giver.give([(study, kind, {"context": values, "config": config})])
        return giver.follow()


def _context(study: "Study", given: Sequence[str]) -> "dict[str, Scalar]":
    from tunerd.cli.contexts import parse_context
    from tunerd.core.decisions.overrides import Override, OverrideSet

    values = parse_context(study, given, partial=True)
    if wrong := OverrideSet(study).problem(Override(0, "pause", values)):
        raise click.UsageError(f"--context: {wrong}")
    return values


def _config(study: "Study", given: Sequence[str]) -> "dict[str, Scalar]":
    """Bring ``name=value`` texts into the study's types.

    Raises:
        click.UsageError: with everything that is wrong.
    """
    from tunerd.queries.orders import read_values

    config, wrong = read_values(study, given)
    if wrong:
        raise click.UsageError("--set: " + "\n  ".join(wrong))
    return config
