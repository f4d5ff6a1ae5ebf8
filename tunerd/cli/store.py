"""``tunerd store export`` and ``load`` move studies between stores, ``migrate`` prepares one, and
``prune`` lets old jobs leave history."""

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tunerd.cli.options import (
    json_option,
    open_the_store,
    read_settings,
    settings_option,
    study_names,
    tell_json,
    unknown_study,
)
from tunerd.cli.progress import progress
from tunerd.errors import MisconfiguredError, ValidationProblem
from tunerd.report.formatting import plural

if TYPE_CHECKING:
    from tunerd.settings import Settings
    from tunerd.stages.retention import PruneResult, RetentionLimits
    from tunerd.store import Store

__all__ = ["store"]

_file = click.Path(path_type=Path, dir_okay=False)


@click.group()
def store() -> None:
    """Move studies between stores, prune their history, or bring a store's schema up to date."""


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


@store.command()
@settings_option
@click.argument("studies", metavar="[STUDY]...", nargs=-1, shell_complete=study_names)
@click.option("--dry-run", is_flag=True, help="Say what would go, and change nothing.")
@click.option("--max-age-days", type=float, help="Instead of retention.max_age_days.")
@click.option("--max-jobs", type=int, help="Instead of retention.max_jobs.")
@json_option
def prune(
    file: Path | None,
    studies: tuple[str, ...],
    dry_run: bool,
    max_age_days: float | None,
    max_jobs: int | None,
    as_json: bool,
) -> None:
    """Let old jobs leave history now, of some studies or of all.

    What they said is dropped for good. Kept are the jobs that studies learn from, event ids, and
    the ledger. A daemon may run meanwhile; it does the same by itself where [retention] says so.
    """
    settings = read_settings(file)
    limits = _limits(settings, max_age_days=max_age_days, max_jobs=max_jobs)
    with open_the_store(settings, upgrade=False) as opened:
        for name in studies:
            if opened.study(name) is None:
                raise unknown_study(opened, name)
        results = {
            name: _prune(opened, name, limits, dry_run=dry_run)
            for name in studies or [row.name for row in opened.studies()]
        }
    if as_json:
        tell_json(
            {
                "schema": "tunerd.prune/1",
                "dry_run": dry_run,
                "studies": {
                    name: {
                        "pruned": result.pruned,
                        "bytes": result.bytes,
                        "forgotten": result.forgotten,
                    }
                    for name, result in results.items()
                },
            }
        )
        return
    would = "would be " if dry_run else ""
    for name, result in results.items():
        size = f"{result.bytes / 1e6:,.1f} MB"
        click.echo(
            f"{name}: {plural(result.pruned, 'job')} {would}pruned ({size}), "
            f"{result.forgotten:,} of those pruned before {would}forgotten"
        )


def _limits(settings: "Settings", **given: float | None) -> "RetentionLimits":
    """The settings' limits, with those that were given instead."""
    from pydantic import ValidationError

    from tunerd.settings.model import RetentionSettings
    from tunerd.stages.retention import RetentionLimits

    named = {name: value for name, value in given.items() if value is not None}
    try:
        retention = RetentionSettings(**settings.retention.model_dump() | named)
    except ValidationError as error:
        wrong = error.errors(include_input=False)[0]
        option = f"--{wrong['loc'][0]}".replace("_", "-")
        raise click.UsageError(f"{option}: {wrong['msg']}") from None
    limits = RetentionLimits.of(retention, settings.ingest, settings.tune)
    if not limits.limited:
        raise click.UsageError(
            "nothing says how long history is kept: set retention.max_age_days or "
            "retention.max_jobs, or say --max-age-days or --max-jobs"
        )
    return limits


def _prune(
    opened: "Store", name: str, limits: "RetentionLimits", *, dry_run: bool
) -> "PruneResult":
    """One pass over a study's history."""
    from tunerd.core.study_file import parse_study
    from tunerd.stages.retention import PruneResult, RetentionPass

    result, now = PruneResult(), datetime.now(UTC)
    generation = opened.generation(name)
    if generation is None:
        return result
    work = RetentionPass.begin(opened, parse_study(generation.text, name), limits, now)
    with progress() as show:
        last = work.at
        while work.at:
            result.add(work.look(now) if dry_run else work.step(now))
            show(f"pruning {name}", last - work.at, last)
    return result


def _tell(what: str, counts: Mapping[str, int], as_json: bool) -> None:
    if as_json:
        tell_json({"schema": "tunerd.store/1", "rows": counts})
        return
    jobs, contexts = counts.get("observations", 0), counts.get("context_states", 0)
    rows = plural(sum(counts.values()), "row")
    click.echo(f"{what}: {plural(jobs, 'job')} in {plural(contexts, 'context')}, {rows} in all.")
