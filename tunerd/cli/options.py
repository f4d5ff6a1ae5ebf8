"""Options that several commands share."""

import getpass
import math
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from itertools import islice
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec
from click.shell_completion import CompletionItem

if TYPE_CHECKING:  # commands that need no settings must not pay for pydantic
    from tunerd.core.study import Study
    from tunerd.errors import ValidationProblem
    from tunerd.settings import Settings
    from tunerd.store import Store

__all__ = [
    "FiniteRange",
    "json_option",
    "next_step",
    "open_the_store",
    "read_settings",
    "settings_option",
    "stored_study",
    "study_argument",
    "study_names",
    "tell_json",
    "tell_problems",
    "unknown_study",
    "who",
    "why_option",
    "yes_option",
]


MOST_FILES = 1_000
"""Of a folder, among which the one is looked for that a mistyped name means."""

F = TypeVar("F", bound=Callable[..., Any])


class FiniteRange(click.FloatRange):
    """A number within bounds; click takes ``nan`` for within any, and ``inf`` where one is open."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number


def settings_option(command: F) -> F:
    """``--settings FILE``."""
    return click.option(
        "--settings",
        "file",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="Settings file; else $TUNERD_SETTINGS, else tunerd.toml here if there is one.",
    )(command)


def json_option(command: F) -> F:
    """``--json``: the result as JSON on standard output, and nothing else there.

    What is wrong, notes and progress go to standard error. Without a result, standard output stays
    empty.
    """
    return click.option(
        "--json", "as_json", is_flag=True, help="Print the result as JSON, for programs."
    )(command)


def tell_json(result: Any) -> None:
    """Print a result as every ``--json`` does: times as RFC 3339, what is not finite as null."""
    click.echo(msgspec.json.format(msgspec.json.encode(_plain(result)), indent=2))


def _plain(value: Any) -> Any:
    if type(value) in _AS_IT_IS:
        return value
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, datetime):
        return value.isoformat()
    return value if isinstance(value, str | int | float) else str(value)


_AS_IT_IS = frozenset([str, int, float, bool, NoneType, msgspec.Raw])
"""What msgspec writes as it should be: what is not finite as null. Raw is JSON already."""


def study_argument(*, required: bool = True) -> Callable[[F], F]:
    """``STUDY``, the name of a study; shells complete it."""
    metavar = "STUDY" if required else "[STUDY]"
    return click.argument("study", metavar=metavar, required=required, shell_complete=study_names)


def study_names(
    context: click.Context, _option: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The studies' names for a shell, and files where none begins like that. Whatever is wrong
    with the settings or a file is for the command to say."""
    matching = [name for name in _names(context.params.get("file")) if name.startswith(incomplete)]
    return [CompletionItem(name) for name in matching] or [CompletionItem(incomplete, type="file")]


def _names(file: Path | None) -> list[str]:
    from tunerd.errors import MisconfiguredError

    try:
        settings = read_settings(file)
    except MisconfiguredError:
        return []
    names = {name for path in settings.studies.glob("*.toml") if (name := _name_in(path))}
    return sorted(names)


def _name_in(path: Path) -> str | None:
    """The name in a study's file, without reading all of what the file means."""
    from tunerd.core.toml import MOST_BYTES, load_toml
    from tunerd.files import read_text

    try:
        name = load_toml(read_text(path, MOST_BYTES)).get("name")
    except (OSError, ValueError):
        return None
    return name if isinstance(name, str) else None


def why_option(command: F) -> F:
    """``--why TEXT``."""
    return click.option(
        "--why",
        default="",
        metavar="TEXT",
        callback=_text,
        help="Reason; kept with who asked and when.",
    )(command)


def _text(_context: click.Context, _option: click.Parameter, value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:  # umlauts as a terminal with another encoding sends them
        raise click.BadParameter("is not UTF-8 text") from None
    return value


def yes_option(command: F) -> F:
    """``--yes``."""
    return click.option(
        "--yes", "sure", is_flag=True, help="Do not ask whether I am sure, on a terminal."
    )(command)


def read_settings(file: Path | None, *, check_studies: bool = False) -> "Settings":
    """The settings; raises MisconfiguredError. Commands that only look need no sound studies."""
    from tunerd.settings import load_settings

    return load_settings(file, os.environ, check_studies=check_studies)


def open_the_store(settings: "Settings", *, upgrade: bool = True) -> "Store":
    """The store that the settings name; without ``upgrade`` one that is there and up to date."""
    from tunerd.connections import store_of

    return store_of(settings, upgrade=upgrade)


def stored_study(store: "Store", name: str) -> "Study":
    """A study as its current generation has it. Raises :func:`unknown_study`."""
    from tunerd.core.study_file import parse_study

    generation = store.generation(name)
    if generation is None:
        raise unknown_study(store, name)
    return parse_study(generation.text, f"{name}, generation {generation.generation}")


def unknown_study(store: "Store", name: str) -> click.UsageError:
    """What to raise when the store has no study of this name."""
    return click.UsageError(str(store.unknown_study(name)))


def next_step(settings: "Settings", study: str) -> str:
    """When a command that was put into the store is carried out."""
    from tunerd.cli.daemon_probe import probe

    if probe(settings.http)["running"] is False:
        return f"No daemon answers here: it is carried out by the next one that tunes {study}."
    return f"It is carried out in the next step on {study}; `tunerd status {study}` shows it."


def who() -> str:
    """Who types: ``user@host``."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container's user without a name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def tell_problems(problems: "Sequence[ValidationProblem]") -> None:
    """Print what is wrong, a line each, on standard error."""
    for problem in problems:
        click.echo(f"{problem}{_nearest(problem)}", err=True)


def _nearest(problem: "ValidationProblem") -> str:
    """The file that may be meant by one that is not there."""
    path = Path(problem.where)
    if "no such file" not in problem.message.lower() or not path.name:
        return ""
    from tunerd.core.expressions import suggestion

    try:
        names = sorted(islice((entry.name for entry in path.parent.iterdir()), MOST_FILES))
    except (OSError, ValueError):
        return ""
    return suggestion(path.name, names)
