"""``tunerd end``: a study is over."""

from datetime import UTC, datetime
from pathlib import Path

import click

from tunerd.cli.options import (
    next_step,
    open_the_store,
    read_settings,
    settings_option,
    who,
    why_option,
)

__all__ = ["end"]


@click.command()
@settings_option
@click.argument("study")
@why_option
def end(file: Path | None, study: str, why: str) -> None:
    """End STUDY: withdraw all that is recommended, and recommend nothing more.

    Its history stays, and its jobs are still taken in. A new version of its file opens it again.
    """
    settings = read_settings(file)
    with open_the_store(settings, upgrade=False) as store, store.transaction() as tx:
        try:
            number = tx.add_command(study, "end", {}, who=who(), why=why, now=datetime.now(UTC))
        except LookupError as error:
            raise click.UsageError(str(error)) from None
    click.echo(f"Command {number}: end {study}.")
    click.echo(next_step(settings, study))
