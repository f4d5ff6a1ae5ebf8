"""``tunerd map``: what a sample of records would become."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from tunerd.cli.options import json_option, tell_json

if TYPE_CHECKING:
    from tunerd.core.observation import Observation
    from tunerd.events import EventFormat, JobHalf, Rejection, SignalPoint
    from tunerd.events.half import AttemptKey
    from tunerd.events.joining import AttemptHalves

__all__ = ["map_"]

REJECTED = 2
"""Exit code where a record would be rejected."""


MOST_DOCUMENT = 1 << 28
"""Bytes of a document that is taken apart."""
LISTS = ("jobs", "items", "runs")
"""What documents of records call the list of them: sacct's, Kubernetes' and MLflow's."""


@click.command(name="map")
@click.argument("file", type=click.File("rb"))
@click.option(
    "--mapping",
    "mappings",
    metavar="FILE.toml",
    type=click.Path(path_type=Path),
    help="Mappings of other formats, as ingest.mappings names them.",
)
@json_option
def map_(file: IO[bytes], mappings: Path | None, as_json: bool) -> None:
    """Show what records of FILE would become on the jobs topic, line by line; - reads from a pipe.

    A line is a record: a job event, half of one, a CloudEvent, or a record of Slurm, Kubernetes,
    Ray, MLflow or W&B. A document over several lines is shown record by record. Nothing is sent and
    no settings are needed. Exits with 2 where a record would be rejected.
    """
    from tunerd.events import Rejection

    formats: Sequence[EventFormat] = ()
    if mappings is not None:
        from tunerd.events.mapping import load_mappings

        formats = load_mappings(mappings)
    counts: Counter[str] = Counter()
    sample = _Sample()
    answers: list[dict[str, Any]] = []
    for number, form, record in _records(file, formats):
        record, again = sample.take(number, record)
        kind = "duplicates" if again else _kind(record)
        counts[kind] += 1
        if as_json:
            what = {"reason": record.reason} if isinstance(record, Rejection) else _event(record)
            same = {"same_as": again} if again else {}
            answers.append({"line": number, "format": form, "becomes": kind, **same, **what})
        else:
            dropped = f"; says the same as {again}, dropped" if again else ""
            line = f"{number}: {form or 'unknown'} → {_said(record)}{dropped}"
            # What others chose to call their jobs must not write to the terminal.
            click.echo("".join(c if c.isprintable() else repr(c)[1:-1] for c in line))
    if as_json:
        attempts = [
            {
                "cluster": key.cluster,
                "job_id": key.job_id,
                "attempt": key.attempt,
                "missing": missing,
            }
            for key, missing in sample.missing()
        ]
        missing = {"records": answers, "counts": dict(counts), "attempts": attempts}
        tell_json({"schema": "tunerd.map/1", **missing})
    else:
        shares = ", ".join(f"{count:,} {kind}" for kind, count in sorted(counts.items()))
        click.echo(f"{counts.total():,} records: {shares or 'none'}.")
        sample.tell()
    if counts["rejected"]:
        raise click.exceptions.Exit(REJECTED)


class _Sample:
    """What the daemon would do with the records, if it knew these alone."""

    def __init__(self) -> None:
        self.halves: dict[AttemptKey, AttemptHalves] = {}
        self.lines: dict[tuple[str, ...], int] = {}
        self.content: dict[tuple[str, ...], str] = {}

    def take(
        self, number: int, record: "Observation | JobHalf | SignalPoint | Rejection"
    ) -> "tuple[Observation | JobHalf | SignalPoint | Rejection, int | None]":
        """What becomes of a record after those before, and which of them said the same."""
        from tunerd.core.observation import Observation
        from tunerd.events import Rejection, SignalPoint, conflict

        if isinstance(record, SignalPoint):
            point = (record.signal, record.time.isoformat())
            return record, self._first(point, number, point in self.lines)
        if isinstance(record, Rejection):
            return record, None
        if isinstance(record, Observation):
            attempt = f"{record.job_id}/{record.attempt}/{record.extra.get('started_at')}"
            name = (record.source, record.event_id, attempt)
            known = self.content.setdefault(name, record.content_hash)
            place: tuple[str, ...] = ("", *name)
            if known != record.content_hash:
                return conflict(record.event_id, record.source), None
            return record, self._first(place, number, place in self.lines)
        from tunerd.events.joining import AttemptHalves

        place = (record.type, *map(str, record.key), record.source, record.event_id)
        match self.halves.setdefault(record.key, AttemptHalves()).add(record):
            case "conflict":
                return conflict(record.event_id, record.source), None
            case "too large":
                return Rejection("value", "with it the halves of this attempt are too large"), None
            case outcome:
                return record, self._first(place, number, outcome == "duplicate")

    def _first(self, place: tuple[str, ...], number: int, again: bool) -> int | None:
        first = self.lines.setdefault(place, number)
        return first if again else None

    def missing(self) -> "list[tuple[AttemptKey, list[str]]]":
        """What is not known of each attempt; nothing of one that would be joined."""
        return [(key, list(made.missing)) for key, made in self.halves.items()]

    def tell(self) -> None:
        """Say what would be joined."""
        if not self.halves:
            return
        waiting = Counter(", ".join(missing) for _, missing in self.missing())
        joined = waiting.pop("", 0)
        click.echo(f"Halves of {len(self.halves):,} attempts; {joined:,} would be joined.")
        for names, count in waiting.most_common():
            click.echo(f"  {count:,} would wait for: {names}")


def _records(
    file: IO[bytes], formats: "Sequence[EventFormat]"
) -> "Iterator[tuple[int, str | None, Observation | JobHalf | SignalPoint | Rejection]]":
    """Number, format and meaning of each line; a line longer than an event may be is cut."""
    from tunerd.events import format_of, read_job
    from tunerd.events.rejection import MAX_EVENT_BYTES

    now, number, longest = datetime.now(UTC), 0, MAX_EVENT_BYTES + 2
    while line := file.readline(longest):
        number += 1
        if number == 1 and line.strip() in (b"{", b"["):
            for place, value in enumerate(_in_document(line + file.read(MOST_DOCUMENT)), start=1):
                record = read_job(value, (), now, mappings=formats)
                yield place, format_of(value, (), formats), record
            return
        size = len(line)
        while not line.endswith(b"\n") and size >= longest and (rest := file.readline(longest)):
            size += len(rest)
            if rest.endswith(b"\n"):
                break
        value = line.removeprefix(b"\xef\xbb\xbf").strip() if number == 1 else line.strip()
        if value:
            most = size if size > MAX_EVENT_BYTES + 1 else None
            record = read_job(value, (), now, size=most, mappings=formats)
            yield number, format_of(value, (), formats), record


def _in_document(content: bytes) -> "Iterator[bytes]":
    """The records in a document over several lines, each as the topic would have it."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise click.ClickException(f"FILE is neither lines of records nor JSON: {error}") from None
    name = next(
        (n for n in LISTS if isinstance(document, dict) and isinstance(document.get(n), list)), ""
    )
    records = document[name] if name else document if isinstance(document, list) else [document]
    query = f".{name}[]" if name else ".[]" if isinstance(document, list) else "."
    click.echo(
        f"One document with {len(records):,} records. On the topic each is a line of its own:"
        f" jq -c '{query}'",
        err=True,
    )
    for record in records:
        yield json.dumps(record).encode()


def _kind(record: "Observation | JobHalf | SignalPoint | Rejection") -> str:
    from tunerd.core.observation import Observation
    from tunerd.events import Rejection, SignalPoint

    if isinstance(record, SignalPoint):
        return "signals"
    if isinstance(record, Rejection):
        return "rejected"
    return "jobs" if isinstance(record, Observation) else f"{record.type} halves"


def _said(record: "Observation | JobHalf | SignalPoint | Rejection") -> str:
    from tunerd.core.observation import Observation
    from tunerd.events import Rejection, SignalPoint

    if isinstance(record, SignalPoint):
        return f"signal {record.signal}: {record.value:g} at {record.time.isoformat()}"
    if isinstance(record, Rejection):
        return f"rejected: {record.reason}"
    if isinstance(record, Observation):
        metrics = ", ".join(f"{name} {value:g}" for name, value in record.metrics.items())
        return (
            f"job {record.job_id} of {record.study}: {record.status.value}"
            f"{f', {metrics}' if metrics else ', nothing measured'}"
        )
    where = f" on {record.key.cluster}" if record.key.cluster else ""
    says = ", ".join(sorted(record.fields)) or "nothing more"
    attempt = f"attempt {record.key.attempt}{where}"
    return f"{record.type} half of job {record.key.job_id}, {attempt}; says {says}"


def _event(record: "Observation | JobHalf | SignalPoint") -> dict[str, Any]:
    from tunerd.core.observation import Observation
    from tunerd.events import SignalPoint

    if isinstance(record, SignalPoint):
        return {"signal": record.signal, "time": record.time, "value": record.value}
    if isinstance(record, Observation):
        return {
            "study": record.study,
            "job_id": record.job_id,
            "attempt": record.attempt,
            "status": record.status.value,
            "finished_at": record.finished_at,
            "context": dict(record.context),
            "config": dict(record.config),
            "metrics": dict(record.metrics),
        }
    key = record.key
    return {
        "study": record.study,
        "cluster": key.cluster,
        "job_id": key.job_id,
        "attempt": key.attempt,
        "fields": dict(record.fields),
    }
