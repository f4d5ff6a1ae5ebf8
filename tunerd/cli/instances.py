"""``tunerd instances``: who shares the store, and what each of them does."""

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

if TYPE_CHECKING:
    from tunerd.store import Store

__all__ = ["instances", "instances_in_short"]


@click.command()
@settings_option
@json_option
def instances(file: Path | None, as_json: bool) -> None:
    """Show which instances share the store: where they run, what each reads, tunes and sends.

    Several daemons can share a store on PostgreSQL where the stream is Kafka. One that was silent
    for ten seconds counts as lost; its studies and partitions go to the others.
    """
    settings = read_settings(file)
    with open_the_store(settings, upgrade=False) as store:
        rows_shown = instances_in_short(store)
        shared = store.is_shareable and settings.stream.kind == "kafka"
    if as_json:
        tell_json(rows_shown)
        return
    if not shared:
        click.echo("One daemon at a time works on this store: several need PostgreSQL and Kafka.")
        return
    if not rows_shown:
        click.echo("No instance is there.")
        return
    for line in _lines(rows_shown):
        click.echo(line)


def instances_in_short(store: "Store") -> list[dict[str, Any]]:
    """Each instance: where it runs, and what it holds."""
    from tunerd.stages.placement import LEASE_S
    from tunerd.store import PUBLISH_LEASE, leased_study

    held = [lease for lease in store.leases() if lease.alive]
    studies: dict[str, list[str]] = {}
    load: dict[str, float] = {}
    publisher = None
    for lease in held:
        assert lease.owner is not None
        if (study := leased_study(lease.name)) is not None:
            studies.setdefault(lease.owner, []).append(study)
            load[lease.owner] = load.get(lease.owner, 0.0) + lease.load
        elif lease.name == PUBLISH_LEASE:
            publisher = lease.owner
    return [
        {
            "instance": row.name,
            "host": row.host,
            "pid": row.pid,
            "version": row.version,
            "stages": list(row.stages),
            "started_at": row.started_at,
            "heartbeat_age_s": round(row.silent_s, 1),
            "silent": row.silent_s > LEASE_S,
            "partitions": list(row.partitions) if row.silent_s <= LEASE_S else [],
            "lag_records": row.lag,
            "studies": studies.get(row.owner, []),
            "load": round(load.get(row.owner, 0.0), 4),
            "publishes": row.owner == publisher,
            "searched_for_others": row.searched,
        }
        for row in store.instances()
    ]


def _lines(rows_shown: list[dict[str, Any]]) -> list[str]:
    """One for each, in columns."""
    rows = [
        (
            *("instance", "host", "version", "partitions", "studies", "load", "lag", "publishes"),
            *("searched for others", "heartbeat"),
        )
    ]
    for shown in rows_shown:
        age = f"{shown['heartbeat_age_s']:.0f} s ago"
        rows.append(
            (
                shown["instance"],
                f"{shown['host']}:{shown['pid']}",
                shown["version"],
                ",".join(shown["partitions"]) or "-",
                str(len(shown["studies"])),
                f"{shown['load']:.2f}",
                "-" if shown["lag_records"] is None else f"{shown['lag_records']:,}",
                "yes" if shown["publishes"] else "-",
                f"{shown['searched_for_others']:,}",
                f"{age}, silent" if shown["silent"] else age,
            )
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
