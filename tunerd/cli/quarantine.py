"""``tunerd quarantine``: jobs that nothing is learned from; release them, or call them bad."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tunerd.cli.command_submission import giving
from tunerd.cli.options import (
    json_option,
    open_the_store,
    read_settings,
    settings_option,
    study_argument,
    study_names,
    tell_json,
    unknown_study,
    why_option,
)
from tunerd.events.printable import printable
from tunerd.report.formatting import plural

if TYPE_CHECKING:
    from tunerd.core.observation import Observation
    from tunerd.store import QuarantineRow, QuarantineState

__all__ = ["quarantine"]

F = TypeVar("F", bound=Callable[..., Any])

LISTED = 50
STATES: "tuple[QuarantineState, ...]" = ("held", "released", "bad", "corrected", "learned")
REASONS = ("bounds", "unit_slip", "beyond_best", "far", "bad")
MOST = 10_000
"""Jobs that one command names."""
_SEQUENCE = click.IntRange(1, 2**63 - 1)


def _filters(command: F) -> F:
    for option in (
        click.option("--node", metavar="NAME", help="Only jobs that had this node."),
        click.option("--user", metavar="NAME", help="Only jobs of this user."),
        click.option("--reason", type=click.Choice(REASONS), help="Only those held for this."),
    ):
        command = option(command)
    return command


def _which(command: F) -> F:
    """The arguments of the commands that settle jobs."""
    for option in (
        json_option,
        why_option,
        click.option(
            "--all", "everything", is_flag=True, help="All that wait, within the filters."
        ),
        _filters,
        click.argument("sequences", metavar="[SEQUENCE]...", nargs=-1, type=_SEQUENCE),
        study_argument(),
        settings_option,
    ):
        command = option(command)
    return command


@click.group()
def quarantine() -> None:
    """Jobs that reported what cannot be right: kept, and not learned from."""


@quarantine.command("list")
@settings_option
@click.option("--study", metavar="STUDY", shell_complete=study_names, help="Only of this study.")
@_filters
@click.option("--all", "everything", is_flag=True, help="Those that were settled, too.")
@click.option("--limit", type=click.IntRange(1, MOST), default=LISTED, show_default=True)
@json_option
def list_(
    file: Path | None,
    study: str | None,
    reason: str | None,
    user: str | None,
    node: str | None,
    everything: bool,
    limit: int,
    as_json: bool,
) -> None:
    """List jobs in quarantine, the latest first."""
    with open_the_store(read_settings(file), upgrade=False) as store:
        if study is not None and store.study(study) is None:
            raise unknown_study(store, study)
        rows = store.quarantined(
            study,
            states=STATES if everything else ("held",),
            reason=reason,
            user=user,
            node=node,
            limit=limit,
        )
        waiting = store.quarantine_counts(study)
        known = store.quarantined_jobs(rows)
        jobs = [
            _described(row, known[row.study, row.sequence])
            for row in rows
            if (row.study, row.sequence) in known
        ]
    if as_json:
        tell_json({"schema": "tunerd.quarantine/1", "waiting": waiting, "jobs": jobs})
        return
    for job in jobs:
        _show_line(job)
    total = sum(waiting.values())
    shown = "" if len(jobs) == total or everything else f"; {len(jobs)} are shown"
    click.echo(f"{plural(total, 'job')} in quarantine{shown}.")


@quarantine.command()
@settings_option
@study_argument()
@click.argument("sequence", type=_SEQUENCE)
@json_option
def show(file: Path | None, study: str, sequence: int, as_json: bool) -> None:
    """Show one job: what it reported, and why nothing is learned from it."""
    with open_the_store(read_settings(file), upgrade=False) as store:
        if store.study(study) is None:
            raise unknown_study(store, study)
        row = store.quarantine_rows(study, [sequence]).get(sequence)
        if row is None:
            raise click.UsageError(f"job {sequence} of {study} is not in quarantine, and never was")
        job = _described(row, store.quarantined_jobs([row])[study, sequence], whole=True)
    if as_json:
        tell_json({"schema": "tunerd.quarantine/1", **job})
        return
    _show_line(job)
    for name in ("state", "settled_at", "settled_by", "why", "job_id", "status", "finished_at"):
        _field(name, job[name])
    for name in ("context", "config", "metrics"):
        _field(name, ", ".join(f"{key} = {value}" for key, value in job[name].items()))


@quarantine.command()
@_which
def release(**given: Any) -> int:
    """Learn from jobs of STUDY after all, by their numbers or by a filter.

    Each is learned once, with the next jobs. Values near theirs are believed from then on.
    """
    return _settle("release", **given)


@quarantine.command()
@_which
def confirm(**given: Any) -> int:
    """Call jobs of STUDY bad: no repeat releases them any more, and they confirm no other."""
    return _settle("confirm", **given)


def _settle(
    command: str,
    file: Path | None,
    study: str,
    sequences: Sequence[int],
    everything: bool,
    why: str,
    as_json: bool,
    **filters: Any,
) -> int:
    filtered = any(name is not None for name in filters.values())
    if bool(sequences) == (filtered or everything):
        raise click.UsageError(
            "name jobs by their numbers, or say --reason, --user, --node or --all"
        )
    with giving(file, why, as_json=as_json) as giver:
        giver.study(study)
        if not sequences:
            rows = giver.store.quarantined(study, limit=MOST, **filters)
            sequences = sorted(row.sequence for row in rows)
            if not sequences:
                raise click.UsageError("no such job waits in quarantine")
        giver.give([(study, command, {"sequences": list(sequences)})])
        return giver.follow()


def _described(row: "QuarantineRow", job: "Observation", *, whole: bool = False) -> dict[str, Any]:
    """A job in quarantine, for a program or a person."""
    from dataclasses import asdict

    from tunerd.store import nodes_of

    shown = asdict(row) | {"user": job.user, "nodes": nodes_of(job), "job_id": job.job_id}
    if whole:
        shown |= {
            "status": job.status.value,
            "finished_at": job.finished_at,
            "context": dict(job.context),
            "config": dict(job.config),
            "metrics": dict(job.metrics),
        }
    return shown


def _show_line(job: dict[str, Any]) -> None:
    who = f" by {printable(job['user'])}" if job["user"] else ""
    value = "" if job["value"] is None else f" {job['value']:.6g}:"
    click.echo(f"{job['study']} {job['sequence']}  {job['reason']}{who}")
    click.echo(f"    {printable(job['context_key'])}:{value} {printable(job['text'])}")


def _field(name: str, value: object) -> None:
    if value is not None:
        click.echo(f"    {name:<12}{printable(str(value))}")
