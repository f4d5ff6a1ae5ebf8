"""``tunerd recover``: after a backup of the store was restored, before the daemon starts."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tunerd.cli.options import (
    json_option,
    open_the_store,
    read_settings,
    settings_option,
    tell_json,
)
from tunerd.errors import MisconfiguredError, ValidationProblem

if TYPE_CHECKING:
    from tunerd.streams.base import StreamRecord

__all__ = ["recover"]


@click.command()
@settings_option
@click.option("--dry-run", is_flag=True, help="Only say what would be changed.")
@json_option
def recover(file: Path | None, dry_run: bool, as_json: bool) -> None:
    """After restoring a backup of the store: take up what was published since.

    Readers drop a revision that is lower than one that they have seen. A restored store counts on
    from the backup's revisions, so it has to learn of the later ones first. Run this while no
    daemon runs; events need nothing, they are read again from the backup's positions.
    """
    from tunerd.connections import stream_of
    from tunerd.stages.topic_check import newer_than, published, take_up
    from tunerd.streams.base import EVER

    settings = read_settings(file)
    now = datetime.now(UTC)
    with open_the_store(settings) as store, store.guard(now):
        known = {row.name for row in store.studies()}
        if not known:
            problem = "there is no study in this store; restore the backup first"
            raise MisconfiguredError([ValidationProblem("store.url", problem)])
        topic = settings.topics.recommendations
        messages = published(stream_of(settings), topic, EVER, _leave_alone)
        for name in sorted({message.study for message in messages} - known):
            click.echo(f"{name}: the store does not know this study; left alone", err=True)
        newer = newer_than(store, messages)
        if not dry_run:
            take_up(store, newer, now)
    if as_json:
        listed = [
            {"context_key": o.context_key, "revision": o.revision, "state": o.state.value}
            for o in newer
        ]
        tell_json({"keys": len(messages), "newer": listed, "taken_up": not dry_run})
        return
    for message in newer:
        click.echo(f"{message.context_key}: revision {message.revision}, {message.state.value}")
    summary = f"{len(newer)} of {len(messages)} keys on the topic are newer than the store"
    click.echo(f"{summary}{', nothing was changed' if dry_run else ' and were taken up'}.")


def _leave_alone(record: "StreamRecord", error: ValueError) -> None:
    where = f"{record.topic}, partition {record.partition}, offset {record.offset}"
    click.echo(f"{where}: {error}; left alone", err=True)
