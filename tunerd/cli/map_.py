"""``tunerd map``: what a sample of records would become."""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING, Any

import click

from tunerd.cli.options import json_option, tell_json

if TYPE_CHECKING:
    from tunerd.core.observation import Observation
    from tunerd.events import JobHalf, Rejection

__all__ = ["map_"]

REJECTED = 2
"""Exit code where a record would be rejected."""


@click.command(name="map")
@click.argument("file", type=click.File("rb"))
@json_option
def map_(file: IO[bytes], as_json: bool) -> None:
    """Show what records of FILE would become on the jobs topic, line by line; - reads from a pipe.

    A line is a record: a job event, half of one, a CloudEvent, or one of Slurm's jobcomp. Nothing
    is sent and no settings are needed. Exits with 2 where a record would be rejected.
    """
    from tunerd.events import JobHalf, Rejection

    counts: Counter[str] = Counter()
    attempts: dict[Any, set[str]] = {}
    answers: list[dict[str, Any]] = []
    for number, form, record in _records(file):
        kind = _kind(record)
        counts[kind] += 1
        if isinstance(record, JobHalf):
            attempts.setdefault(record.key, set()).add(record.type)
        if as_json:
            what = {"reason": record.reason} if isinstance(record, Rejection) else _event(record)
            answers.append({"line": number, "format": form, "becomes": kind, **what})
        else:
            line = f"{number}: {form or 'unknown'} → {_said(record)}"
            # What others chose to call their jobs must not write to the terminal.
            click.echo("".join(c if c.isprintable() else repr(c)[1:-1] for c in line))
    if as_json:
        tell_json({"schema": "tunerd.map/1", "records": answers, "counts": dict(counts)})
    else:
        shares = ", ".join(f"{count:,} {kind}" for kind, count in sorted(counts.items()))
        click.echo(f"{counts.total():,} records: {shares or 'none'}.")
        if attempts:
            whole = sum(len(types) > 1 and "completed" in types for types in attempts.values())
            click.echo(f"Halves of {len(attempts):,} attempts; {whole:,} have an end and more.")
    if counts["rejected"]:
        raise click.exceptions.Exit(REJECTED)


def _records(
    file: IO[bytes],
) -> "Iterator[tuple[int, str | None, Observation | JobHalf | Rejection]]":
    """Number, format and meaning of each line; a line longer than an event may be is cut."""
    from tunerd.events import format_of, read_job
    from tunerd.events.rejection import MAX_EVENT_BYTES

    now, number, longest = datetime.now(UTC), 0, MAX_EVENT_BYTES + 2
    while line := file.readline(longest):
        number += 1
        size = len(line)
        while not line.endswith(b"\n") and size >= longest and (rest := file.readline(longest)):
            size += len(rest)
            if rest.endswith(b"\n"):
                break
        value = line.removeprefix(b"\xef\xbb\xbf").strip() if number == 1 else line.strip()
        if value:
            most = size if size > MAX_EVENT_BYTES + 1 else None
            yield number, format_of(value), read_job(value, (), now, size=most)


def _kind(seen: "Observation | JobHalf | Rejection") -> str:
    from tunerd.core.observation import Observation
    from tunerd.events import Rejection

    if isinstance(seen, Rejection):
        return "rejected"
    return "jobs" if isinstance(seen, Observation) else f"{seen.type} halves"


def _said(seen: "Observation | JobHalf | Rejection") -> str:
    from tunerd.core.observation import Observation
    from tunerd.events import Rejection

    if isinstance(seen, Rejection):
        return f"rejected: {seen.reason}"
    if isinstance(seen, Observation):
        metrics = ", ".join(f"{name} {value:g}" for name, value in seen.metrics.items())
        return (
            f"job {seen.job_id} of {seen.study}: {seen.status.value}"
            f"{f', {metrics}' if metrics else ', nothing measured'}"
        )
    where = f" on {seen.key.cluster}" if seen.key.cluster else ""
    says = ", ".join(sorted(seen.fields)) or "nothing more"
    return (
        f"{seen.type} half of job {seen.key.job_id}, attempt {seen.key.attempt}{where}; says {says}"
    )


def _event(seen: "Observation | JobHalf") -> dict[str, Any]:
    from tunerd.core.observation import Observation

    if isinstance(seen, Observation):
        return {
            "study": seen.study,
            "job_id": seen.job_id,
            "attempt": seen.attempt,
            "status": seen.status.value,
            "finished_at": seen.finished_at,
            "context": dict(seen.context),
            "config": dict(seen.config),
            "metrics": dict(seen.metrics),
        }
    key = seen.key
    return {
        "study": seen.study,
        "cluster": key.cluster,
        "job_id": key.job_id,
        "attempt": key.attempt,
        "fields": dict(seen.fields),
    }
