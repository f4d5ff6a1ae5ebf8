"""``tunerd store export`` and ``load`` move studies between stores, ``migrate`` prepares one."""

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import click

from tunerd.cli.options import (
    json_option,
    open_the_store,
    read_settings,
    settings_option,
    study_names,
    tell_json,
)
from tunerd.cli.progress import progress
from tunerd.errors import MisconfiguredError, ValidationProblem
from tunerd.report.formatting import plural

__all__ = ["store"]

_file = click.Path(path_type=Path, dir_okay=False)


@click.group()
def store() -> None:
    """Move studies between stores, or bring a store's schema up to date."""


@store.command()
@settings_option
@click.argument("studies", metavar="[STUDY]...", nargs=-1, shell_complete=study_names)
@click.option("--out", required=True, type=_file, help="The file to write; it must not exist.")
@json_option
def export(file: Path | None, studies: tuple[str, ...], out: Path, as_json: bool) -> None:
    """Write a file with all that the store holds, or with some studies.

    The file is of one moment; the daemon may go on meanwhile, but what it does afterwards is not
    in the file. To move, stop the daemon first. The file holds everything that jobs said: it is
    readable by you alone.
    """
    settings = read_settings(file)
    if out.exists():
        raise MisconfiguredError([ValidationProblem("--out", f"{out} exists already")])
    part = out.with_name(f"{out.name}.part")
    try:
        part.unlink(missing_ok=True)  # of an export that was killed, or somebody's link
        os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        with open_the_store(settings, upgrade=False) as opened, progress() as show:
            counts = opened.export(part, studies or None, datetime.now(UTC), show)
        part.replace(out)
    except OSError as error:
        raise MisconfiguredError(
            [ValidationProblem("--out", f"cannot write {part}: {error.strerror or error}")]
        ) from error
    finally:
        part.unlink(missing_ok=True)
    _tell(f"Wrote {out}", counts, as_json)


@store.command()
@settings_option
@click.argument("source", metavar="FILE", type=click.Path(path_type=Path, exists=True))
@json_option
def load(file: Path | None, source: Path, as_json: bool) -> None:
    """Take up what `tunerd store export` wrote: all of it, or nothing.

    No daemon may run on the store. A file of a whole store goes into an empty one, a study into a
    store that has none of its name.
    """
    settings = read_settings(file)
    with open_the_store(settings) as opened, opened.guard(datetime.now(UTC)), progress() as show:
        studies, counts = opened.load(source, show)
    _tell(f"Took up {', '.join(studies) or 'no study'}", counts, as_json)


@store.command()
@settings_option
def migrate(file: Path | None) -> None:
    """Bring the schema of the store up to date, or make it, and do nothing else.

    For a PostgreSQL where the daemon's user may not change tables. Run it as their owner before
    the newer daemon starts; older ones may go on meanwhile. The owner is named by the environment:
    TUNERD_STORE__URL and TUNERD_STORE__PASSWORD_FILE come before the settings file.
    """
    from tunerd.store.schema import HEAD

    open_the_store(read_settings(file)).close()
    click.echo(f"The store has schema {HEAD}.")


def _tell(what: str, counts: Mapping[str, int], as_json: bool) -> None:
    if as_json:
        tell_json({"schema": "tunerd.store/1", "rows": counts})
        return
    jobs, contexts = counts.get("observations", 0), counts.get("context_states", 0)
    rows = plural(sum(counts.values()), "row")
    click.echo(f"{what}: {plural(jobs, 'job')} in {plural(contexts, 'context')}, {rows} in all.")
