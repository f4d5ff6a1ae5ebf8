"""``tunerd report``: what was predicted, recommended and to be gained."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from tunerd.cli.options import (
    FiniteRange,
    json_option,
    open_the_store,
    read_settings,
    settings_option,
    study_argument,
)

__all__ = ["instant", "report"]

DAYS = 30


@click.command()
@study_argument()
@settings_option
@click.option(
    "--days",
    type=FiniteRange(min=0, min_open=True),
    help=f"Look at the jobs that ended in the last so many days.  [default: {DAYS}]",
)
@click.option(
    "--since", metavar="DATE", help="… or since then: 2026-11-20, or with a time and zone."
)
@click.option(
    "--history",
    is_flag=True,
    help="Show imported jobs too, in a section of their own (always with few live ones).",
)
@json_option
@click.option(
    "--html",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write one page with plots, which needs nothing else.",
)
def report(
    study: str,
    file: Path | None,
    days: float | None,
    since: str | None,
    history: bool,
    as_json: bool,
    html: Path | None,
) -> None:
    """Say of STUDY what tunerd would have recommended, how well it predicted the jobs that came
    before it learned them, what people would have gained, and how sure that is.

    Reads the store; a daemon need not run. Without --json or --html it prints to the terminal.
    """
    if days is not None and since is not None:
        raise click.UsageError("say either --days or --since")
    now = datetime.now(UTC)
    begin = now - _span(days or DAYS, now) if since is None else instant(since, now)
    from tunerd.report.compute import compute
    from tunerd.report.gather import gather

    settings = read_settings(file)
    with open_the_store(settings, upgrade=False) as store:
        material = gather(store, study, begin, now, past=history)
    made = compute(material, now)
    if html is not None:
        from tunerd.report.page import page

        try:
            html.write_text(page(made), encoding="utf-8")
        except OSError as error:
            raise click.UsageError(f"--html: cannot write {html}: {error.strerror}") from None
    if as_json:
        from tunerd.report.model import report_json

        click.echo(report_json(made), nl=False)
    elif html is None:
        from tunerd.report.terminal import show

        show(made)
    else:
        click.echo(f"{made.headline}\nThe page is {html}.")


def _span(days: float, now: datetime) -> timedelta:
    try:
        span = timedelta(days=days)
        _ = now - span
    except OverflowError:
        raise click.UsageError(f"--days: {days:g} days ago there were no jobs") from None
    return span


def instant(text: str, now: datetime) -> datetime:
    """A moment in the past; a date is midnight UTC, a time needs a zone."""
    try:
        moment = datetime.fromisoformat(text)
        moment_utc = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise click.UsageError(f"--since: {text} is not a date such as 2026-11-20") from None
    if moment.tzinfo is None and len(text) > len("2026-11-20"):
        raise click.UsageError(f"--since: {text} needs a zone, for instance {text}Z")
    if moment_utc >= now:
        raise click.UsageError(f"--since: {text} is not in the past")
    return moment_utc
