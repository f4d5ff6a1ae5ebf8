"""``tunerd init``: draft a study from a table of old jobs."""

import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from tunerd.cli.options import (
    json_option,
    read_settings,
    tell_json,
)
from tunerd.cli.progress import progress
from tunerd.errors import MisconfiguredError, ValidationProblem

if TYPE_CHECKING:
    from tunerd.lab.tables.files import ReadOptions, TableFile
    from tunerd.lab.tables.guess import TableGuess, UserAnswers
    from tunerd.lab.tables.profile import TableProfile
    from tunerd.lab.tables.roles import Role

__all__ = ["init"]

F = TypeVar("F", bound=Callable[..., Any])
STUDY_NAME = r"[a-z0-9][a-z0-9-]{0,62}"


def _role_option(name: str, meaning: str, *, several: bool = False) -> Callable[[F], F]:
    """An option that says which column has a role."""
    text = f"{meaning} Repeatable." if several else meaning
    return click.option(f"--{name}", multiple=several, metavar="COLUMN", help=text)


@click.command()
@click.argument("file", metavar="[FILE]", required=False, type=click.Path(path_type=Path))
@click.option(
    "--from-command",
    "command",
    metavar="COMMAND",
    help="Draft a study for `tunerd exec` instead, from a command with {name} where a value is to "
    "be tuned.",
)
@click.option(
    "--try",
    "tries",
    multiple=True,
    metavar="NAME=VALUE...",
    help="With --from-command: values that were tried, today's first; 1,2,4 lists some, 1..16 is a "
    "range. Repeatable.",
)
@click.option(
    "--out",
    metavar="STUDY.toml",
    type=click.Path(path_type=Path),
    help="Where to write the study; - is the standard output. [default: NAME.toml in the folder of"
    " studies]",
)
@click.option("--name", help="The study's name. [default: from the name of FILE]")
@_role_option("objective", "What is to be made better.")
@click.option("--goal", type=click.Choice(["maximize", "minimize"]), help="Which way is better.")
@click.option("--unit", help="The objective's unit, for people.")
@_role_option("context", "What a job brings.", several=True)
@_role_option("parameter", "What to tune.", several=True)
@_role_option("metric", "What was measured too.", several=True)
@_role_option("status", "How a job ended.")
@_role_option("finished-at", "When a job finished.")
@_role_option("job-id", "The scheduler's name of a job.")
@_role_option("user", "Whose job it was.")
@_role_option("label", "What to keep and not to learn from.", several=True)
@_role_option("ignore", "What to leave out.", several=True)
@click.option(
    "--export",
    metavar="KIND",
    default="auto",
    show_default=True,
    help="Which tool wrote FILE; none reads it as it stands.",
)
@click.option(
    "--reports",
    type=click.Choice(["last", "best", "all"]),
    default="last",
    show_default=True,
    help="Which report of a run is its job, where FILE has several of each.",
)
@click.option(
    "--columns",
    "header",
    metavar="NAME,NAME,...",
    help="Names of the columns of a CSV that has none, in their order.",
)
@click.option("--yes", is_flag=True, help="Ask nothing, also on a terminal.")
@click.option("--force", is_flag=True, help="Overwrite the study if there is one.")
@json_option
def init(
    file: Path | None,
    command: str | None,
    tries: tuple[str, ...],
    out: Path | None,
    name: str | None,
    objective: str | None,
    goal: Any,
    unit: str | None,
    export: str,
    reports: str,
    header: str | None,
    yes: bool,
    force: bool,
    as_json: bool,
    **columns: str | tuple[str, ...] | None,
) -> None:
    """Draft a study from a table of old jobs: CSV, JSON, Parquet, or what another tool exports.

    Guesses what each column is (objective, context, parameter, status, time, ...), its type and
    values, and writes a study in mode observe whose comments say what each guess rests on. On a
    terminal it asks where it is not sure; `tunerd check` repeats what is left. Read the draft
    before you use it.

    \b
    tunerd init --from-command 'zstd -T{threads} -{level} {file} -o /dev/null'
        --context file --try 'threads=1 level=3' --try 'threads=2 level=19'

    Drafts a study for `tunerd exec` in the same way, from a command instead of a table.
    """
    request = DraftRequest(out, name, yes, force, as_json)
    if command is not None:
        if file is not None:
            raise click.UsageError("say either FILE or --from-command")
        context = cast("tuple[str, ...]", columns["context"])
        _from_command(command, tries, request, context, objective, goal, unit)
        return
    if file is None:
        raise click.UsageError("Missing argument 'FILE', or --from-command.")
    if as_json and str(out) == "-":
        raise click.UsageError("--out - and --json both write to standard output: say one")
    from tunerd.lab.tables.guess import UserAnswers

    answers = UserAnswers(objective, goal, _roles(columns))
    from tunerd.lab.tables.files import ReadOptions

    first = "last" if reports == "best" else reports
    names = tuple(name.strip() for name in (header or "").split(",") if name.strip())
    reading = ReadOptions(export, first, header=names)
    _from_table(file, request, answers, unit, reading, best=reports == "best")


@dataclass(frozen=True)
class DraftRequest:
    """Where a draft is to be written and under which name, and what a person wants to see."""

    out: Path | None
    name: str | None
    yes: bool
    force: bool
    as_json: bool

    def target(self, called: str, folder: Path) -> Path:
        """Where to write; raises MisconfiguredError where a file stands there already."""
        target = self.out if self.out is not None else folder / f"{called}.toml"
        if str(target) != "-" and target.exists() and not self.force:
            message = "is there already; --force overwrites it, --out writes somewhere else"
            raise MisconfiguredError([ValidationProblem(str(target), message)])
        return target


def _from_table(
    file: Path,
    request: DraftRequest,
    given: "UserAnswers",
    unit: str | None,
    reading: "ReadOptions",
    *,
    best: bool,
) -> None:
    """Draft a study for a table; says what each column was taken for, and what to do next."""
    from tunerd.lab.tables.draft import draft, study_name
    from tunerd.lab.tables.open_guesses import open_guesses

    called = _checked_name(request.name) if request.name is not None else study_name(file)
    target = request.target(called, _folder())
    interactive = not request.yes and sys.stdin.isatty() and sys.stderr.isatty()
    table, guesses, unit = _guessed(file, reading, given, unit, best=best, interactive=interactive)
    made = draft(guesses, called, file, unit)
    for line in _told(file, guesses, made.names, table.told()):
        click.echo(line, err=True)
    if str(target) == "-":
        click.echo(made.text, nl=False)
        return
    _write(target, made.text)
    if request.as_json:
        tell_json(_for_programs(called, target, guesses))
        return
    _say_what_next(target, len(open_guesses(made.text)), called, file)


def _say_what_next(target: Path, guesses: int, called: str, file: Path) -> None:
    from tunerd.lab.tables.rows import spelt_out

    click.echo(f"\nWrote {target}, in mode observe: it publishes nothing. Read it, then:")
    entries = "1 entry is a guess" if guesses == 1 else f"{guesses} entries are guesses"
    more = f"    # {entries}; repeated until confirmed" if guesses else ""
    click.echo(f"  tunerd check {shlex.quote(str(target))}{more}")
    click.echo(f"  tunerd import {called} {spelt_out(shlex.quote(str(file)))}")


def _guessed(
    file: Path,
    reading: "ReadOptions",
    given: "UserAnswers",
    unit: str | None,
    *,
    best: bool,
    interactive: bool,
) -> "tuple[TableFile, TableGuess, str | None]":
    """What the columns of a table are, with the table and the objective's unit; a person is asked
    where that is not sure."""
    from tunerd.lab.tables.guess import guess

    table, rows_read = _look_at(file, reading)
    try:
        guesses = guess(rows_read, given)
        if best:  # of a trial's reports; by which metric, the first look said
            metric = guesses.objective.column.name
            reading = replace(reading, reports="best", metric=metric, goal=guesses.goal)
            table, rows_read = _look_at(file, reading)
            given = replace(given, objective=metric, goal=guesses.goal)
            guesses = guess(rows_read, given)
        if interactive:
            from tunerd.cli.prompts import ask

            guesses, unit = ask(rows_read, guesses, given, unit)
    except MisconfiguredError as error:
        for line in table.told():
            click.echo(f"  {line}.", err=True)
        raise MisconfiguredError(
            [ValidationProblem(f"{file}: {p.where}", p.message) for p in error.problems]
        ) from error
    return table, guesses, unit


def _from_command(
    command: str,
    tries: Sequence[str],
    request: DraftRequest,
    context: Sequence[str],
    objective: str | None,
    goal: str | None,
    unit: str | None,
) -> None:
    """Draft a study for a program; says what to do with it."""
    from tunerd.cli.init_command import at_a_terminal, init_from_command, name_of
    from tunerd.exec.draft import exec_line

    called = _checked_name(request.name) if request.name is not None else name_of(command)
    target = request.target(called, Path())
    ask = not request.yes and at_a_terminal()
    text = init_from_command(command, tries, called, context, objective, goal, unit, ask=ask)
    if str(target) == "-":
        click.echo(text, nl=False)
        return
    _write(target, text)
    if request.as_json:
        tell_json({"study": called, "file": str(target)})
        return
    shown = shlex.quote(str(target))
    click.echo(f"Wrote {target}. Read it, then:")
    click.echo(f"  tunerd check {shown}")
    line = exec_line(f"--local --study {shown}", command, context, objective or "wall_s")
    click.echo(f"  {line}")


def _write(target: Path, text: str) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")


def _look_at(file: Path, reading: "ReadOptions") -> "tuple[TableFile, TableProfile]":
    """The table, and what its columns hold."""
    from tunerd.lab.tables.files import open_table
    from tunerd.lab.tables.profile import profile

    table = open_table(file, reading)
    with progress() as show:
        return table, profile(table, partial(show, f"reading {file.name}"))


_ROLES: "dict[str, Role]" = {"ignore": "ignored"}
"""Roles of the options that are not called like them."""


def _roles(columns: "Mapping[str, str | tuple[str, ...] | None]") -> "dict[str, Role]":
    """The role of each column that an option names; raises UsageError where two name it."""
    roles: dict[str, Role] = {}
    for option, named in columns.items():
        names = (named,) if isinstance(named, str) else named or ()
        role = _ROLES.get(option, cast("Role", option))
        for name in names:
            if roles.get(name, role) != role:
                raise click.UsageError(f"{name!r} cannot be {roles[name]} and {role}")
            roles[name] = role
    return roles


def _for_programs(name: str, file: Path, guesses: "TableGuess") -> dict[str, Any]:
    """What the draft says, and what was taken for what."""
    columns = [
        {
            "column": guess.column.name,
            "role": guess.role,
            "sure": guess.sure,
            "unsure": guess.unsure,
        }
        for guess in guesses.columns
    ]
    return {
        "study": name,
        "file": str(file),
        "objective": guesses.objective.column.name,
        "goal": guesses.goal,
        "columns": columns,
    }


def _checked_name(name: str) -> str:
    import re

    if not re.fullmatch(STUDY_NAME, name):
        message = "has lower-case letters, digits and hyphens, at most 63, no hyphen first"
        raise MisconfiguredError([ValidationProblem("--name", message)])
    return name


def _folder() -> Path:
    """The folder of studies, where the settings say which; a mistake in them is not ours."""
    try:
        return read_settings(None).studies
    except MisconfiguredError:
        return Path("studies")


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
    file: Path, guesses: "TableGuess", names: "dict[str, str] | Any", read: Sequence[str]
) -> Iterator[str]:
    """What each column was taken for, and how sure that is."""
    from tunerd.lab.tables.metadata_columns import meaning

    profile = guesses.profile
    bad = f", {profile.unreadable:,} lines unreadable" if profile.unreadable else ""
    yield f"{file}: {profile.rows:,} rows, {len(profile.columns)} columns{bad}"
    yield from (f"  {line}." for line in read)
    yield from (f"  A GUESS that this is a table of runs: {doubt}." for doubt in guesses.doubts)
    width = min(40, max(len(guess.column.name) for guess in guesses.columns))
    for guess in guesses.columns:
        role = _SHOWN.get(guess.role, guess.role)
        role += f" ({guesses.goal})" if guess.role == "objective" else ""
        kind = f"{guess.column.kind}"
        how = min(guess.sure, guesses.goal_sure) if guess.role == "objective" else guess.sure
        sure = "sure" if how >= 0.7 else "likely" if how >= 0.5 else "A GUESS"
        called = names.get(guess.column.name, guess.column.name)
        new = f" -> {called}" if called != guess.column.name else ""
        shown = f"{guess.column.name:{width}}  {role:21} {kind:8} {sure:8}{new}"
        yield f"  {shown.rstrip()}"
    for guess in guesses.columns:
        words = {w: n for w, n in guess.column.words.items() if meaning(w) is None}
        if words and guess.role not in ("ignored", "label"):
            yield f"  {_spoilt(guess.column.name, words)}"
    if (values := guesses.values).rows:
        meanings = {"ran": "a run that was not measured"}.get(values.meaning, "a run that failed")
        yield (
            f"  {guesses.objective.column.name} = {values.shown} in {values.rows:,} rows is taken "
            f"for {meanings}: see `impossible` in the draft"
        )


def _spoilt(column: str, words: "Mapping[str, int]") -> str:
    """What stands where a column has numbers, and that it counts as missing."""
    rows = sum(words.values())
    shown = ", ".join(repr(word[:20]) for word in list(words)[:3])
    more = ", ..." if len(words) > 3 else ""
    return f"{column}: {shown}{more} in {rows:,} row{'' if rows == 1 else 's'} count as missing"
