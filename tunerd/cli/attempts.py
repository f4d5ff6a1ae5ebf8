"""``tunerd attempts``: jobs that wait for halves, and what is missing."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
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
    unknown_study,
)

if TYPE_CHECKING:
    from tunerd.settings import Settings
    from tunerd.store import Store, WaitingAttempt

__all__ = ["attempts", "attempts_in_short"]

LONGEST = 50


@click.command()
@settings_option
@study_argument(required=False)
@click.option("--all", "every", is_flag=True, help="Also those that wait for less than that.")
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=LONGEST,
    show_default=True,
    help="Only so many, the longest silent first.",
)
@json_option
def attempts(file: Path | None, study: str | None, every: bool, limit: int, as_json: bool) -> None:
    """List attempts of jobs of which a half is missing for long, and what is missing.

    Of STUDY, where a half has named it, or of all. How long halves are waited for, the settings say
    (ingest.halves_wait_days); a half that comes at last still joins them.
    """
    settings = read_settings(file)
    with open_the_store(settings, upgrade=False) as store:
        if study is not None and store.study(study) is None:
            raise unknown_study(store, study)
        before = None if every else _before(settings)
        waiting = store.waiting_attempts(before=before, study=study, limit=limit)
        summary = attempts_in_short(settings, store)
    if as_json:
        tell_json([_told(attempt) for attempt in waiting])
        return
    click.echo(_head(summary, settings))
    for line in _lines(waiting):
        click.echo(line)


def attempts_in_short(settings: "Settings", store: "Store") -> dict[str, Any]:
    """How many attempts wait, and how many are incomplete."""
    counts = store.attempt_counts(_before(settings))
    return {
        "waiting": counts.waiting,
        "incomplete": counts.incomplete,
        "oldest_at": counts.oldest_at,
        "wait_days": settings.ingest.halves_wait_days,
    }


def _before(settings: "Settings") -> datetime:
    return datetime.now(UTC) - timedelta(days=settings.ingest.halves_wait_days)


def _head(summary: dict[str, Any], settings: "Settings") -> str:
    days = f"{settings.ingest.halves_wait_days:g} days"
    return (
        f"{summary['waiting']:,} waiting for halves, {summary['incomplete']:,} incomplete: "
        f"no half for {days}."
    )


def _lines(found: "Sequence[WaitingAttempt]") -> list[str]:
    """One for each, in columns."""
    if not found:
        return []
    rows = [("cluster", "job", "attempt", "study", "missing", "last half")]
    rows += [
        (
            attempt.cluster or "-",
            attempt.job_id,
            str(attempt.attempt),
            attempt.study or "-",
            ", ".join(attempt.missing) + (" (counts, as running)" if attempt.counts else ""),
            f"{attempt.last_at:%Y-%m-%d %H:%M}",
        )
        for attempt in found
    ]
    # What others chose to call their jobs must not write to the terminal.
    rows = [tuple(cell if cell.isprintable() else repr(cell) for cell in row) for row in rows]  # type: ignore[misc]
    widths = [max(len(row[i]) for row in rows) for i in range(6)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _told(one: "WaitingAttempt") -> dict[str, Any]:
    return {
        "cluster": one.cluster,
        "job_id": one.job_id,
        "attempt": one.attempt,
        "study": one.study,
        "missing": list(one.missing),
        "counts": one.counts,
        "first_at": one.first_at,
        "last_at": one.last_at,
    }
