"""``tunerd recover``: after a backup of the store was restored, before the daemon starts."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tunerd.cli.options import open_the_store, read_settings, settings_option
from tunerd.errors import MisconfiguredError, Problem

if TYPE_CHECKING:
    from tunerd.core.recommendation import Recommendation
    from tunerd.settings import Settings
    from tunerd.store import RecommendationRow, Store

__all__ = ["recover"]

MOST_UNSENT = 1_000_000


@click.command()
@settings_option
@click.option("--dry-run", is_flag=True, help="Only say what would be changed.")
def recover(file: Path | None, dry_run: bool) -> None:
    """After restoring a backup of the store: take up what was published since.

    Readers drop a revision that is lower than one that they have seen. A restored store counts on
    from the backup's revisions, so it has to learn of the later ones first. Run this while no
    daemon runs; events need nothing, they are read again from the backup's positions.
    """
    settings = read_settings(file)
    now = datetime.now(UTC)
    with open_the_store(settings) as store, store.guard(now):
        known = {row.name for row in store.studies()}
        if not known:
            problem = "there is no study in this store; restore the backup first"
            raise MisconfiguredError([Problem("store.url", problem)])
        published = _published(settings)
        for name in sorted({one.study for one in published} - known):
            click.echo(f"{name}: the store does not know this study; left alone")
        newer = [one for one in published if one.study in known and _is_newer(store, one)]
        for one in newer:
            click.echo(f"{one.context_key}: revision {one.revision}, {one.state.value}")
        if not dry_run:
            _take_up(store, newer, now)
    found = f"{len(newer)} of {len(published)} keys on the topic are newer than the store"
    click.echo(f"{found}{', nothing was changed' if dry_run else ' and were taken up'}.")


def _published(settings: "Settings") -> "list[Recommendation]":
    """What the recommendations topic holds, the last of each key. Others may write there, too:
    what is no recommendation is told."""
    from tunerd.daemon import stream_of
    from tunerd.events import from_bytes
    from tunerd.streams.base import EVER

    topic = settings.topics.recommendations
    sink = stream_of(settings).sink()
    last: dict[bytes | None, Recommendation | None] = {}
    try:
        for record in sink.sent_since([topic], EVER):
            try:
                last[record.key] = None if record.value is None else from_bytes(record.value)
            except ValueError as error:
                where = f"{record.topic}, partition {record.partition}, offset {record.offset}"
                click.echo(f"{where}: {error}; left alone")
    finally:
        sink.close()
    return [one for one in last.values() if one is not None]


def _is_newer(store: "Store", published: "Recommendation") -> bool:
    row = store.recommendation(published.study, published.context_key)
    return row is None or row.revision < published.revision


def _take_up(store: "Store", newer: "list[Recommendation]", now: datetime) -> None:
    revisions = {(one.study, one.context_key): one.revision for one in newer}
    overtaken = [
        message.id
        for message in store.unsent(MOST_UNSENT)
        if message.revision is not None
        and message.revision <= revisions.get((message.study or "", message.context_key or ""), 0)
    ]
    with store.transaction() as tx:
        for one in newer:
            tx.save_recommendation(_row(one))
        tx.mark_sent(overtaken, now)


def _row(published: "Recommendation") -> "RecommendationRow":
    from tunerd.core.lifecycle import FREE_KEY_AFTER
    from tunerd.core.recommendation import State
    from tunerd.events import to_bytes
    from tunerd.store import RecommendationRow

    active = published.state is State.ACTIVE
    half = (published.valid_until - published.issued_at) / 2
    return RecommendationRow(
        study=published.study,
        context_key=published.context_key,
        revision=published.revision,
        recommendation_id=published.recommendation_id,
        state=published.state.value,
        value=to_bytes(published).decode(),
        issued_at=published.issued_at,
        valid_until=published.valid_until,
        renew_at=published.issued_at + (half if active else FREE_KEY_AFTER),
    )
