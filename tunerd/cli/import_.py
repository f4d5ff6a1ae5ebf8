"""``tunerd import``: old jobs from tables, the way that live ones come."""

import time
from collections.abc import Iterable, Sequence
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
)
from tunerd.cli.progress import progress
from tunerd.errors import MisconfiguredError, ValidationProblem

if TYPE_CHECKING:
    from tunerd.core.study import Study
    from tunerd.lab.importing.run import ImportResult, ImportRun
    from tunerd.settings import Settings

__all__ = ["import_"]

NOTHING = 1
"""Exit code when no row could be used."""


@click.command("import")
@settings_option
@study_argument()
@click.argument(
    "files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path)
)
@click.option(
    "--mapping",
    "mapping_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="TOML file with the keys of [mapping], instead of the study's own.",
)
@click.option(
    "--rejects",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Where to write what cannot be used, as JSON lines; else a file in data_dir/imports.",
)
@click.option("--dry-run", is_flag=True, help="Only say what could be used.")
@click.option("--send-only", is_flag=True, help="Send, and do not wait until it is learned.")
@json_option
def import_(
    file: Path | None,
    study: str,
    files: tuple[Path, ...],
    mapping_file: Path | None,
    rejects: Path | None,
    dry_run: bool,
    send_only: bool,
    as_json: bool,
) -> int:
    """Import old jobs from tables: CSV, JSON lines or Parquet.

    STUDY is a study's name or its file; its [mapping], or --mapping, says what the columns mean.
    The jobs go onto the jobs topic, marked as history: they may be of any age, they are learned,
    and they do not count in how well tunerd does. Then the command waits until they are learned
    and their contexts searched; where no daemon runs, it does that itself and publishes nothing.

    Importing again doubles nothing, and an import that was killed goes on where it was. What
    cannot be used is counted by reason and written to a file. Exit code 0, or 1 when nothing
    could be used, 2 when the mapping does not fit.
    """
    from tunerd.lab.importing.run import ImportRun
    from tunerd.lab.tables.files import open_table
    from tunerd.lab.tables.mapping import read_mapping, readers_of, reading_of

    settings = read_settings(file)
    target = _study(settings, study, must_be_known=not dry_run)
    mapping, where = target.mapping, f"{study}: mapping."
    if mapping_file is not None:
        mapping, where = read_mapping(mapping_file, target), f"{mapping_file}: mapping."
    reading = reading_of(target, mapping)
    tables = [open_table(path, reading) for path in files]
    readers = readers_of(target, mapping, tables, where)
    notes = [*dict.fromkeys(note for reader in readers for note in reader.notes)]
    _note(notes)
    begin = time.monotonic()
    with progress() as show:
        run = ImportRun(
            settings,
            file,
            target,
            mapping,
            tables,
            readers,
            show,
            lambda text: click.echo(text, err=True),
            rejects_path=rejects,
        )
        outcome = run.count() if dry_run else _run(run, settings, send_only)
    later = [f"{table.path}: {line}" for table in tables for line in table.told()]
    _note(later)
    summary = _told(target, outcome, notes + later, time.monotonic() - begin)
    if as_json:
        tell_json(summary)
    else:
        _tell(summary, target, dry_run=dry_run)
    tally = outcome.tally
    used = tally.usable if dry_run else tally.sent + tally.known
    return 0 if used else NOTHING


def _note(notes: Iterable[str]) -> None:
    for note in notes:
        click.echo(f"Note: {note}.", err=True)


def _run(run: "ImportRun", settings: "Settings", send_only: bool) -> "ImportResult":
    if send_only:
        return run.run(None)
    with open_the_store(settings) as store:
        return run.run(store)


def _study(settings: "Settings", given: str, *, must_be_known: bool) -> "Study":
    """The study of a name or a file; it must be one that the daemon will know."""
    from tunerd.core.expressions import suggestion
    from tunerd.settings.studies import load_studies, read_study

    path = Path(given)
    wanted = read_study(path) if path.suffix == ".toml" or path.is_file() else None
    if wanted is not None and not must_be_known:
        return wanted
    known = {study.name: study for study in load_studies(settings.studies)}
    if wanted is None:
        if given in known:
            return known[given]
        hint = suggestion(given, known) or f"; there are {', '.join(known) or 'none yet'}"
        message = f"there is no study {given!r} in {settings.studies}{hint}"
        raise MisconfiguredError([ValidationProblem("STUDY", message)])
    if wanted.name not in known:
        message = (
            f"study {wanted.name!r} is not in {settings.studies}, where the daemon looks for "
            f"studies: cp {path} {settings.studies}/"
        )
        raise MisconfiguredError([ValidationProblem(given, message)])
    if wanted.content_hash != known[wanted.name].content_hash:
        message = f"is another version of {wanted.name!r} than the one in {settings.studies}"
        raise MisconfiguredError([ValidationProblem(given, message)])
    return wanted


# -- what came of it --------------------------------------------------------------------------


def _told(
    study: "Study", outcome: "ImportResult", notes: Sequence[str], seconds: float
) -> dict[str, Any]:
    tally = outcome.tally
    return {
        "study": study.name,
        "rows": tally.rows,
        "usable": tally.usable,
        "with_objective": tally.measured,
        "statuses": tally.statuses,
        "impossible": tally.impossible,
        "in_space": tally.in_space,
        "outside": dict(sorted(tally.outside.items(), key=lambda item: -item[1])),
        "repeated": tally.repeated,
        "sent": tally.sent,
        "known": tally.known,
        "conflicts": tally.conflicts,
        "unusable": dict(sorted(tally.unusable.items(), key=lambda item: -item[1])),
        "rejects": str(outcome.rejects) if outcome.rejects else None,
        "notes": list(notes),
        "learned": outcome.learned,
        "recommendations": outcome.recommendations,
        "seconds": round(seconds, 1),
    }


def _tell(told: dict[str, Any], study: "Study", *, dry_run: bool) -> None:
    from tunerd.core.decisions.space_cache import in_space_text
    from tunerd.report.formatting import plural

    metric = study.objective.metric
    statuses = ", ".join(f"{count:,} {status}" for status, count in told["statuses"].items())
    click.echo(
        f"{study.name}: {plural(told['rows'], 'row')}, of which {told['usable']:,} "
        f"{'is a job' if told['usable'] == 1 else 'are jobs'} "
        f"({told['with_objective']:,} with {metric}; {statuses or 'none'})."
    )
    if count := told["impossible"]:
        counts = study.objective.impossible == "failed"
        says = "each counts against its configuration" if counts else "these are left out"
        click.echo(
            f"  {count:,} of them with a value that {metric} cannot have: {says} "
            f'([objective] impossible = "{study.objective.impossible}").'
        )
    if told["usable"]:
        click.echo(f"  {in_space_text(told['in_space'], told['outside'])}.")
    if told["repeated"]:
        click.echo(f"  {told['repeated']:,} of them stand in an earlier table too.")
    if unusable := sum(told["unusable"].values()):
        where = f", see {told['rejects']}" if told["rejects"] else ""
        click.echo(f"  {unusable:,} could not be used{where}:")
        for reason, count in told["unusable"].items():
            click.echo(f"    {count:8,}  {reason}")
    if dry_run:
        click.echo("Nothing was sent (--dry-run).")
        return
    known = f", {told['known']:,} were known already" if told["known"] else ""
    click.echo(f"  {told['sent']:,} sent{known}; {told['seconds']:.0f} s.")
    if told["learned"]:
        count = told["recommendations"]
        contexts = "1 context has" if count == 1 else f"{count:,} contexts have"
        click.echo(
            f"All is learned: {contexts} a recommendation, in mode {study.mode}. "
            f"`tunerd report {study.name} --history` shows them."
        )
