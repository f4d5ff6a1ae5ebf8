"""``tunerd commands``: who asked for what, when, why, and what came of it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tunerd.cli.options import (
    json_option,
    open_the_store,
    read_settings,
    settings_option,
    study_argument,
    tell_json,
    unknown_study,
)

if TYPE_CHECKING:
    from tunerd.store import OperatorCommand

__all__ = ["commands", "told", "words"]

LATEST = 50


@click.command()
@settings_option
@study_argument(required=False)
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=LATEST,
    show_default=True,
    help="Only so many latest.",
)
@json_option
def commands(file: Path | None, study: str | None, limit: int, as_json: bool) -> None:
    """Show the commands that operators gave: who, when, why, and what came of them.

    Of STUDY, or of all studies; the latest last.
    """
    settings = read_settings(file)
    with open_the_store(settings, upgrade=False) as store:
        if study is not None and store.study(study) is None:
            raise unknown_study(store, study)
        listed = store.commands(study, pending=False)[-limit:]
    if as_json:
        tell_json([told(command) for command in listed])
    elif not listed:
        click.echo("No commands yet.")
    else:
        from tunerd.cli.status_view import show_commands

        show_commands([told(command) for command in listed])


def _many(number: int, name: str) -> str:
    return f"{number} {name}" if number == 1 else f"{number} {name}s"


def words(number: int, command: str, arguments: Mapping[str, Any]) -> str:
    """What a command asks for, for a person."""
    from tunerd.store.command_arguments import arguments_problem

    if arguments_problem(command, arguments) is not None:
        return f"{command} {json.dumps(dict(arguments))}"
    match command:
        case "approve" | "decline":
            return f"{command} {arguments['recommendation_id']} for {arguments['context_key']}"
        case "campaign":
            start = f"{_many(arguments['jobs'], 'job')} and " if arguments["jobs"] else ""
            rounds = f"{_many(arguments['rounds'], 'round')} of {arguments['round_size']}"
            where = arguments.get("context_key", arguments["context"])
            return f"campaign of {start}{rounds} in {where}"
        case "cancel":
            return f"cancel the campaign in {arguments['context_key']}"
        case "lift":
            return f"lift {arguments['number']}"
        case "back":
            return f"go back to version {arguments['version']} of the model"
        case "release" | "confirm":
            what = "release from quarantine" if command == "release" else "call bad"
            sequences = arguments["sequences"]
            first = ", ".join(map(str, sequences[:5]))
            more = f" and {len(sequences) - 5} more" if len(sequences) > 5 else ""
            return f"{what}: {_many(len(sequences), 'job')} ({first}{more})"
        case "latest":
            return "let the latest model serve"
        case "pause" | "resume" | "pin" | "forbid":
            from tunerd.core.decisions.overrides import Override

            kind: Any = command
            order = Override(number, kind, arguments["context"], arguments.get("config", {}))
            return order.what + order.where
    return command if not arguments else f"{command} {json.dumps(arguments)}"


def told(command: "OperatorCommand") -> dict[str, Any]:
    """Everything about a command, for a program or a table."""
    return {
        "id": command.id,
        "study": command.study,
        "command": command.command,
        "arguments": dict(command.arguments),
        "words": words(command.id, command.command, command.arguments),
        "who": command.who,
        "at": command.at,
        "why": command.why,
        "finished_at": command.finished_at,
        "result": command.result,
    }
