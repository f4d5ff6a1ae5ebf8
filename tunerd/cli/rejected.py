"""``tunerd rejected`` and ``tunerd replay-rejected``: what was turned down, and sent again."""

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tunerd.cli.options import (
    json_option,
    open_the_store,
    read_settings,
    settings_option,
    tell_json,
)
from tunerd.events.printable import printable
from tunerd.report.formatting import plural

if TYPE_CHECKING:
    from tunerd.settings import Settings
    from tunerd.streams.base import StreamRecord

__all__ = ["rejected", "replay_rejected"]

QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|\d+(?:\.\d+)?")
"""What differs between reasons of one kind: what a record says, and numbers."""
EXAMPLE_CHARACTERS = 160
AT_ONCE = 500
"""Records sent with one call."""
LISTED = 20


@dataclass
class ReasonGroup:
    """Records that were rejected for the same kind of reason."""

    reason: str
    """Of the latest of them."""
    count: int = 0
    latest: "StreamRecord | None" = None


@click.command()
@settings_option
@click.option("--reason", metavar="TEXT", help="Only reasons with this text in them.")
@json_option
def rejected(file: Path | None, reason: str | None, as_json: bool) -> None:
    """Say what was rejected, by reason, with the latest example of each.

    Reads the rejected topic. A record that was mended at its source, or whose study was, can be
    sent again: `tunerd replay-rejected`.
    """
    settings = read_settings(file)
    groups: dict[str, ReasonGroup] = {}
    for record in _records(settings, reason):
        why = _header(record, "reason")
        group = groups.setdefault(QUOTED.sub("…", why), ReasonGroup(why))
        group.reason, group.latest = why, record
        group.count += 1
    ordered = sorted(groups.values(), key=lambda group: -group.count)
    total = sum(group.count for group in ordered)
    if as_json:
        reasons = [_group(group) for group in ordered]
        tell_json({"schema": "tunerd.rejected/1", "records": total, "reasons": reasons})
        return
    for group in ordered[:LISTED]:
        assert group.latest is not None
        click.echo(f"{group.count:>7,}  {printable(group.reason)}")
        click.echo(f"         {_header(group.latest, 'id')}: {_example(group.latest)}")
    more = len(ordered) - LISTED
    click.echo(
        f"{plural(total, 'record')} rejected for {plural(len(ordered), 'kind')} of reason"
        + (f"; {more} kinds are not shown (--json has all)" if more > 0 else "")
        + "."
    )


@click.command("replay-rejected")
@settings_option
@click.option("--reason", metavar="TEXT", help="Only reasons with this text in them.")
@click.option("--dry-run", is_flag=True, help="Only say what would be accepted now.")
@json_option
def replay_rejected(file: Path | None, reason: str | None, dry_run: bool, as_json: bool) -> None:
    """Send rejected records to the jobs topic again, those that would be accepted now.

    For when a study or a mapping was added or mended. What would be rejected again stays where it
    is, and what was sent before is dropped as a duplicate, so that doing it twice does no harm.
    Records that were cut short, and those whose id another event has, are never sent.
    """
    from tunerd.connections import stream_of
    from tunerd.events import original_headers
    from tunerd.streams.base import StreamMessage

    settings = read_settings(file)
    accepts = _Acceptance(settings)
    kept: Counter[str] = Counter()
    done: set[str] = set()
    waiting: list[StreamMessage] = []
    accepted = 0
    with closing(stream_of(settings).sink()) as sink:
        for record in _records(settings, reason):
            position = _header(record, "id")
            if position in done:
                continue  # sent twice after a crash
            done.add(position)
            if (why := accepts.why_not(record)) is not None:
                kept[why] += 1
                continue
            accepted += 1
            if dry_run:
                continue
            assert record.value is not None
            headers = original_headers(record.headers)
            value = record.value.replace(b"\n", b" ").replace(b"\r", b" ")  # no JSON text has these
            waiting.append(StreamMessage(settings.topics.jobs, None, value, headers))
            if len(waiting) >= AT_ONCE:
                sink.send(waiting)
                waiting.clear()
        if waiting:
            sink.send(waiting)
    if as_json:
        tell_json(
            {
                "schema": "tunerd.replay-rejected/1",
                "accepted_now": accepted,
                "sent": 0 if dry_run else accepted,
                "kept": dict(kept.most_common()),
            }
        )
        return
    for why, count in kept.most_common(LISTED):
        click.echo(f"{count:>7,} stay: {printable(why)}")
    verb = "would be sent again" if dry_run else "sent again"
    click.echo(f"{plural(accepted, 'record')} {verb}, {kept.total():,} stay rejected.")


def _records(settings: "Settings", reason: str | None) -> "Iterator[StreamRecord]":
    """What the rejected topic holds, oldest first."""
    from tunerd.connections import stream_of
    from tunerd.streams.base import EVER

    with closing(stream_of(settings).sink()) as sink:
        for record in sink.sent_since([settings.topics.rejected], EVER):
            if reason is None or reason.casefold() in _header(record, "reason").casefold():
                yield record


class _Acceptance:
    """What ingest would accept now: by the studies in the store, and the mappings in the file."""

    def __init__(self, settings: "Settings") -> None:
        from tunerd.events.job import TimeLimits
        from tunerd.events.mapping import load_mappings

        with open_the_store(settings, upgrade=False) as store:
            self._studies = frozenset(row.name for row in store.studies())
            self._signals = store.signal_names().keys()
        ingest = settings.ingest
        self._topic = settings.topics.jobs
        self._mappings = load_mappings(ingest.mappings) if ingest.mappings is not None else ()
        self._limits = TimeLimits(
            timedelta(hours=ingest.max_future_hours), timedelta(days=ingest.max_age_days)
        )

    def why_not(self, record: "StreamRecord") -> str | None:
        """Why a record would be rejected again; None where it would be accepted."""
        from tunerd.events import Rejection, SignalPoint, original_headers, read_job
        from tunerd.stages.signal_context import too_many_signals
        from tunerd.store.signals import MOST_SIGNALS

        if _header(record, "topic") != self._topic:
            return "topic: it did not come from the jobs topic"
        if "was accepted before with other content" in _header(record, "reason"):
            return "event_id: another event has this id"
        if not record.value or _header(record, "size") != str(len(record.value)):
            return "value: it is not kept whole"
        now = datetime.now(UTC)
        headers = original_headers(record.headers)
        read = read_job(record.value, headers, now, self._limits, mappings=self._mappings)
        if isinstance(read, Rejection):
            return QUOTED.sub("…", read.reason)
        if isinstance(read, SignalPoint):
            room = read.signal in self._signals or len(self._signals) < MOST_SIGNALS
            return None if room else too_many_signals().reason
        if read.study is not None and read.study not in self._studies:
            return f"study: there is no study {read.study!r}"
        return None


def _header(record: "StreamRecord", name: str) -> str:
    return next(
        (value.decode(errors="replace") for key, value in record.headers if key == name), ""
    )


def _group(group: ReasonGroup) -> dict[str, Any]:
    assert group.latest is not None
    return {
        "reason": group.reason,
        "count": group.count,
        "latest": {
            "id": _header(group.latest, "id"),
            "example": _example(group.latest),
        },
    }


def _example(record: "StreamRecord") -> str:
    """The beginning of what was sent; what others wrote must not write to the terminal."""
    text = (record.value or b"").decode(errors="replace")
    cut = "…" if len(text) > EXAMPLE_CHARACTERS else ""
    return printable(" ".join(text[:EXAMPLE_CHARACTERS].split())) + cut
