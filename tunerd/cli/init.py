"""``tunerd init``: draft a study from a table of old jobs."""

import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tunerd.cli.options import read_settings
from tunerd.errors import MisconfiguredError, Problem

if TYPE_CHECKING:
    from tunerd.tables.guess import Given, Guesses
    from tunerd.tables.profile import Profile
    from tunerd.tables.roles import Guess, Role

__all__ = ["init"]

LARGE = 20 << 20
"""Bytes of a file above which a bar shows that it is being read."""
MOST_ASKED = 12
"""Columns that a person is asked about; the draft marks all that are unsure."""
STUDY_NAME = r"[a-z0-9][a-z0-9-]{0,62}"


@click.command()
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option(
    "--out",
    metavar="STUDY.toml",
    type=click.Path(path_type=Path),
    help="Where to write the study; - is the standard output. [default: NAME.toml in the folder of"
    " studies]",
)
@click.option("--name", help="The study's name. [default: from the name of FILE]")
@click.option("--objective", metavar="COLUMN", help="What is to be made better.")
@click.option("--goal", type=click.Choice(["maximize", "minimize"]), help="Which way is better.")
@click.option("--unit", help="The objective's unit, for people.")
@click.option("--context", multiple=True, metavar="COLUMN", help="What a job brings. Repeatable.")
@click.option("--parameter", multiple=True, metavar="COLUMN", help="What to tune. Repeatable.")
@click.option("--ignore", multiple=True, metavar="COLUMN", help="What to leave out. Repeatable.")
@click.option("--yes", is_flag=True, help="Ask nothing, also on a terminal.")
@click.option("--force", is_flag=True, help="Overwrite the study if there is one.")
def init(
    file: Path,
    out: Path | None,
    name: str | None,
    objective: str | None,
    goal: Any,
    unit: str | None,
    context: tuple[str, ...],
    parameter: tuple[str, ...],
    ignore: tuple[str, ...],
    yes: bool,
    force: bool,
) -> None:
    """Draft a study from a table of old jobs: CSV, JSON lines or Parquet.

    Guesses what each column is (objective, context, parameter, status, time, ...), its type and
    values, and writes a study in mode observe whose comments say what each guess rests on. On a
    terminal it asks where it is not sure. Read the draft before you use it.
    """
    from tunerd.tables.draft import draft, study_name
    from tunerd.tables.files import open_table
    from tunerd.tables.guess import Given, guess
    from tunerd.tables.profile import profile

    called = _checked_name(name) if name is not None else study_name(file)
    target = out if out is not None else _folder() / f"{called}.toml"
    if str(target) != "-" and target.exists() and not force:
        message = "is there already; --force overwrites it, --out writes somewhere else"
        raise MisconfiguredError([Problem(str(target), message)])
    table = open_table(file)
    with _bar(file) as tick:
        seen = profile(table, tick)
    roles: dict[str, Role] = {}
    for role, names in (("context", context), ("parameter", parameter), ("ignored", ignore)):
        roles |= dict.fromkeys(names, role)  # type: ignore[arg-type]
    given = Given(objective, goal, roles)
    try:
        guesses = guess(seen, given)
        if not yes and sys.stdin.isatty() and sys.stderr.isatty():
            guesses, unit = _ask(seen, guesses, given, unit)
    except MisconfiguredError as error:
        raise MisconfiguredError(
            [Problem(f"{file}: {p.where}", p.message) for p in error.problems]
        ) from error
    made = draft(guesses, called, file, unit)
    for line in _told(file, guesses, made.names, table.told()):
        click.echo(line, err=True)
    if str(target) == "-":
        click.echo(made.text, nl=False)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(made.text, encoding="utf-8")
    click.echo(f"\nWrote {target}, in mode observe: it publishes nothing. Read it, then:")
    click.echo(f"  tunerd check {shlex.quote(str(target))}")
    click.echo(f"  tunerd import {called} {shlex.quote(str(file))}")


def _checked_name(name: str) -> str:
    import re

    if not re.fullmatch(STUDY_NAME, name):
        message = "has lower-case letters, digits and hyphens, at most 63, no hyphen first"
        raise MisconfiguredError([Problem("--name", message)])
    return name


def _folder() -> Path:
    """The folder of studies, where the settings say which; a mistake in them is not ours."""
    try:
        return read_settings(None).studies
    except MisconfiguredError:
        return Path("studies")


@contextmanager
def _bar(file: Path) -> Iterator[Callable[[int, int], None] | None]:
    """Show that a large file is being read; nothing where nobody looks."""
    size = file.stat().st_size
    if size < LARGE or not sys.stderr.isatty():
        yield None
        return
    with click.progressbar(length=size, label=f"Reading {file.name}", file=sys.stderr) as bar:

        def tick(done: int, _: int) -> None:
            bar.update(done - bar.pos)

        yield tick


# -- asking -------------------------------------------------------------------------------------


def _ask(
    seen: "Profile", first: "Guesses", given: "Given", unit: str | None
) -> "tuple[Guesses, str | None]":
    """Ask for what is not sure, with the guess as the answer of who just presses Return."""
    from tunerd.tables.guess import guess
    from tunerd.tables.words import unit_of

    guesses = first
    _say("Return takes the guess in brackets.\n")
    if given.objective is None:
        numbers = [one.column.name for one in first.columns if one.column.numeric]
        measured = [one.column.name for one in first.having("objective", "metric")]
        _say(f"Measured: {', '.join(measured)}")
        answer = _choice("What is to be made better", numbers, first.objective.column.name)
        given = replace(given, objective=answer)
        guesses = guess(seen, given)
    if given.goal is None:
        goal = _choice(f"Make {guesses.objective.column.name} ...", _GOALS, guesses.goal)
        given = replace(given, goal=goal)  # type: ignore[arg-type]
    if unit is None:
        found = unit_of(guesses.objective.column.name)
        unit = click.prompt("Its unit", default=found, show_default=bool(found), err=True)
    unsure = [one for one in guesses.having("context", "parameter", "label") if one.unsure]
    unsure.sort(key=lambda one: one.sure)
    roles = dict(given.roles)
    for one in unsure[:MOST_ASKED]:
        roles[one.column.name] = _ask_role(one)
    return guess(seen, replace(given, roles=roles)), unit


_GOALS = ("maximize", "minimize")
_ANSWERS: "dict[str, Role]" = {"context": "context", "parameter": "parameter", "ignore": "ignored"}


def _ask_role(one: "Guess") -> "Role":
    values = ", ".join(str(value) for value in one.column.values[:8])
    more = ", ..." if one.column.distinct > 8 else ""
    _say(f"\n{one.column.name}: {values}{more} ({one.why})")
    default = one.role if one.role in ("context", "parameter") else "ignore"
    return _ANSWERS[_choice("Is it", list(_ANSWERS), default)]


def _choice(question: str, among: Sequence[str], default: str) -> str:
    """One of several; the first letters do, where they are of one only."""
    while True:
        shown = f" ({', '.join(among)})" if len(among) <= 4 else ""
        answer = str(click.prompt(f"{question}{shown}", default=default, err=True)).strip()
        fitting = [one for one in among if one.lower().startswith(answer.lower())]
        if answer in among:
            return answer
        if len(fitting) == 1:
            return fitting[0]
        _say(f"There is no {answer!r}; there are {', '.join(among)}.")


def _say(text: str) -> None:
    click.echo(text, err=True)


# -- telling ------------------------------------------------------------------------------------

_SHOWN = {
    "finished_at": "when it finished",
    "ignored": "not used",
    "job_id": "job id",
    "label": "label, not used",
    "metric": "measured too",
    "time": "another time",
}


def _told(
    file: Path, guesses: "Guesses", names: "dict[str, str] | Any", read: Sequence[str]
) -> Iterator[str]:
    """What each column was taken for, and how sure that is."""
    profile = guesses.profile
    bad = f", {profile.unreadable:,} lines unreadable" if profile.unreadable else ""
    yield f"{file}: {profile.rows:,} rows, {len(profile.columns)} columns{bad}"
    yield from (f"  {line}." for line in read)
    width = min(40, max(len(one.column.name) for one in guesses.columns))
    for one in guesses.columns:
        role = _SHOWN.get(one.role, one.role)
        role += f" ({guesses.goal})" if one.role == "objective" else ""
        kind = f"{one.column.kind}"
        sure = "sure" if one.sure >= 0.7 else "likely" if one.sure >= 0.5 else "A GUESS"
        called = names.get(one.column.name, one.column.name)
        new = f" -> {called}" if called != one.column.name else ""
        shown = f"{one.column.name:{width}}  {role:21} {kind:8} {sure:8}{new}"
        yield f"  {shown.rstrip()}"
