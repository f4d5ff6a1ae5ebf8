"""``tunerd status``: what the daemon does and has found, from its store and its HTTP port."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

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
    from tunerd.store import RecommendationRow, Store

__all__ = ["status"]

MOST_CONTEXTS = 20
"""Contexts that are shown of a study, those with the latest jobs, unless all are asked for."""


@click.command()
@settings_option
@study_argument(required=False)
@click.option(
    "--all", "every", is_flag=True, help="With STUDY: all contexts, also where there are many."
)
@json_option
def status(file: Path | None, study: str | None, every: bool, as_json: bool) -> None:
    """Show what the daemon does and has found; with STUDY also what it recommends.

    Reads the store, and asks the daemon on its HTTP port how it is.
    """
    settings = read_settings(file)
    with open_the_store(settings, upgrade=False) as store:
        report = _report(settings, store, study)
        if study is not None:
            most = None if every or as_json else MOST_CONTEXTS
            report |= _recommendations(store, study, report["studies"][0]["mode"], most, as_json)
    if as_json:
        del report["left_out"]
        tell_json(report)
    else:
        from tunerd.cli.status_view import show

        show(report)


def _report(settings: "Settings", store: "Store", study: str | None) -> dict[str, Any]:
    from tunerd.cli.attempts import attempts_in_short
    from tunerd.cli.daemon_probe import probe
    from tunerd.cli.study_files import study_files
    from tunerd.queries.study_status import study_status

    overviews = store.overview()
    if study is not None:
        overviews = [overview for overview in overviews if overview.study.name == study]
        if not overviews:
            raise unknown_study(store, study)
    files = study_files(settings.studies)
    daemon = probe(settings.http)
    metrics = daemon.pop("metrics")
    return {
        "left_out": 0,
        "name": settings.name,
        "store": settings.store.url,
        "stream": settings.stream.kind,
        "daemon": daemon,
        "stages": metrics.labels("tunerd_stage_last_progress_timestamp_seconds", "stage"),
        "lag_records": metrics.one("tunerd_stream_lag_records"),
        "rejected_records": metrics.of("tunerd_ingest_records_total", outcome="rejected"),
        "rejected_topic": settings.topics.rejected,
        "attempts": attempts_in_short(settings, store),
        "unsendable_messages": metrics.sum("tunerd_unsendable_messages_total"),
        "outbox": {
            kind: {"unsent": depth.unsent, "oldest_at": depth.oldest_at}
            for kind, depth in store.outbox_depths().items()
        },
        "studies": [
            study_status(store, overview, metrics)
            | {"file": files.beside(store, overview.study.name)}
            for overview in overviews
        ],
        "study_files": files.told({row.name for row in store.studies()}),
        "commands": [
            {"id": c.id, "study": c.study, "command": c.command, "who": c.who, "at": c.at}
            for c in store.commands(study)
        ],
    }


def _recommendations(
    store: "Store", study: str, mode: str | None, most: int | None, as_json: bool
) -> dict[str, Any]:
    """What stands in a study's contexts: in all of them or, of more than ``most``, in those with
    the latest jobs; and how many are left out. For a program messages stay the text that they are:
    read and written again, those of 50,000 contexts take half a minute."""
    from tunerd.queries.study_status import recommendation_summary

    last_jobs = store.last_jobs(study)
    if most is None:
        rows: Iterable[RecommendationRow | None] = store.recommendations(study)
        left_out = 0
    else:
        keys = [row.context_key for row in store.standing_rows(study) if row.standing(mode)]
        shown = keys if len(keys) <= most else _latest(keys, last_jobs, most)
        rows = [store.recommendation(study, key) for key in shown]
        left_out = len(keys) - len(shown)
    read: Callable[[str], Mapping[str, Any]] = json.loads
    if as_json:
        read = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
    standing = ((row, row.standing(mode)) for row in rows if row is not None)
    return {
        "recommendations": [
            recommendation_summary(row, states, read)
            | {"last_job_at": last_jobs.get(row.context_key)}
            for row, states in standing
            if states
        ],
        "left_out": left_out,
    }


def _latest(keys: Sequence[str], last_jobs: Mapping[str, datetime], most: int) -> list[str]:
    """The entry for all other contexts, and the contexts with the latest jobs; the latest first."""
    general = [key for key in keys if "|" not in key]
    contexts = [key for key in keys if "|" in key]
    never = datetime.min.replace(tzinfo=UTC)
    contexts.sort(key=lambda key: last_jobs.get(key, never), reverse=True)
    return general + contexts[: most - len(general)]
