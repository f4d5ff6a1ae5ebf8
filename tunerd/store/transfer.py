"""Moving what a store holds into another one, on SQLite or PostgreSQL.

A file of JSON lines, gzipped: a head, one line for each row, an end with their number and digest.
All of it is read and written in one transaction each, so that a file is of one moment, and a file
that was cut short or damaged changes nothing. Whole stores keep their ids. A study that joins
others gets new ids for its commands and requests, and what refers to these follows.
"""

import base64
import gzip
import hashlib
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import sqlalchemy as sa

from tunerd import __version__
from tunerd.errors import MisconfiguredError, ValidationProblem
from tunerd.store import tables
from tunerd.store.engine import Database
from tunerd.store.leases import study_lease
from tunerd.store.schema import HEAD

__all__ = ["Show", "export_store", "load_store"]

FORMAT = "tunerd.store/1"
AT_ONCE, AT_ONCE_BYTES = 500, 16 * 1024 * 1024
"""Rows written with one statement, and bytes of the file."""
LONGEST_LINE = 256 * 1024 * 1024
"""Bytes. The largest rows are checkpoints."""

Show = Callable[[str, float, float], None]

OF_INSTALLATION = (
    tables.positions,
    tables.attempts,
    tables.outbox,
    tables.signals,
    tables.signal_points,
)
"""What belongs to no study: exported with a whole store only."""
NUMBERED = (tables.commands, tables.requests)
"""Tables of a study whose rows are numbered across studies."""


def export_store(
    database: Database, target: Path, studies: Sequence[str] | None, now: datetime, show: Show
) -> dict[str, int]:
    """Write a file with some studies, or with all that there is; returns rows by table.

    Raises:
        MisconfiguredError: there is no such study.
        OSError: the file cannot be written; what is left of it is no valid file.
    """
    counts: dict[str, int] = {}
    with database.snapshot() as connection:
        known = connection.execute(sa.select(tables.studies.c.name)).scalars().all()
        if missing := [name for name in studies or () if name not in known]:
            raise MisconfiguredError(
                [ValidationProblem("STUDY", f"there is no study {name!r}") for name in missing]
            )
        names = sorted(known if studies is None else set(studies))
        selects = {
            str(table.name): _select(table, names, whole=studies is None) for table in _tables()
        }
        total = sum(_count(connection, select) for select in selects.values())
        digest, done = hashlib.sha256(), 0
        with gzip.open(target, "wb", compresslevel=3) as file:

            def write(value: object) -> None:
                line = msgspec.json.encode(value) + b"\n"
                digest.update(line)
                file.write(line)

            write(_head(names, now, whole=studies is None))
            for name, select in selects.items():
                counts[name] = 0
                for row in connection.execution_options(yield_per=AT_ONCE).execute(select):
                    write([name, *_leased(name, row)])
                    counts[name] += 1
                    done += 1
                    if done % AT_ONCE == 0:
                        show("writing rows", done, total)
            end = {"rows": done, "sha256": digest.hexdigest()}
            file.write(msgspec.json.encode(end) + b"\n")
    return counts


def load_store(database: Database, source: Path, show: Show) -> tuple[list[str], dict[str, int]]:
    """Take up what a file holds; returns the studies, and rows by table. All of it, or nothing.

    No daemon may have the store meanwhile: :meth:`~tunerd.store.store.Store.guard`.

    Raises:
        MisconfiguredError: the file is not whole, is of another version, or what it holds is there
            already.
    """
    counts: dict[str, int] = {}
    try:
        with gzip.open(source, "rb") as file, database.writing() as connection:
            lines = _Lines(file)
            head = lines.head()
            _check_room(connection, head)
            move = _Renumbering(connection, whole=head["whole"])
            for name, rows in _batches(lines, show):
                table = tables.metadata.tables[name]
                values = [move.moved(name, _values(table, head["tables"][name], r)) for r in rows]
                connection.execute(sa.insert(table), values)
                counts[name] = counts.get(name, 0) + len(values)
            _count_on(connection)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise _wrong(f"it is damaged or was cut short ({error})") from error
    except UnicodeDecodeError as error:
        raise _wrong("it is damaged: not text") from error
    except (msgspec.DecodeError, ValueError, TypeError, LookupError) as error:
        # A wrong byte is met in a row before it is met in the digest at the end.
        raise _wrong(f"it is damaged or was cut short ({error})") from error
    except sa.exc.IntegrityError as error:
        what = "jobs of this file are in the store already, in another study"
        raise _wrong(what) from error
    return head["studies"], counts


def _tables() -> list[sa.Table]:
    """In the order in which rows can be inserted; not what belongs to a running daemon."""
    running = (tables.daemons, tables.instances, tables.search_tasks)
    return [table for table in tables.metadata.sorted_tables if table not in running]


def _select(table: sa.Table, studies: Sequence[str], *, whole: bool) -> sa.Select[Any]:
    order = list(table.primary_key.columns)
    if table is tables.leases:
        names = [study_lease(study) for study in studies]
        return sa.select(table).where(table.c.name.in_(names)).order_by(*order)
    if whole:
        return sa.select(table).order_by(*order)
    if table in OF_INSTALLATION:
        return sa.select(table).where(sa.false())
    column = table.c.name if table is tables.studies else table.c.study
    return sa.select(table).where(column.in_(studies)).order_by(*order)


def _count(connection: sa.Connection, select: sa.Select[Any]) -> int:
    number: int = connection.execute(
        sa.select(sa.func.count()).select_from(select.order_by(None).subquery())
    ).scalar_one()
    return number


def _head(studies: Sequence[str], now: datetime, *, whole: bool) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "schema": HEAD,
        "tunerd": __version__,
        "whole": whole,
        "studies": studies,
        "exported_at": now.isoformat(),
        "tables": {
            str(table.name): [str(column.name) for column in table.columns] for table in _tables()
        },
    }


def _leased(name: str, row: sa.Row[Any]) -> Iterable[object]:
    """A row as it is kept: of a lease only the epoch, nobody holds it elsewhere."""
    return (
        None if key == "owner" and name == "leases" else row[i] for i, key in enumerate(row._fields)
    )


class _Lines:
    """The lines of a file, checked when the last was read."""

    def __init__(self, file: gzip.GzipFile) -> None:
        self._file, self._digest, self.rows = file, hashlib.sha256(), 0
        self.read = 0
        """Bytes, so far."""

    def head(self) -> dict[str, Any]:
        """The first line, of a file that this tunerd can read."""
        head = self._decoded(self._file.readline(LONGEST_LINE))
        if not isinstance(head, dict) or head.get("format") != FORMAT:
            raise _wrong("it is no file of `tunerd store export`")
        if head["schema"] != HEAD:
            raise _wrong(
                f"it is of schema {head['schema']} (tunerd {head['tunerd']}), this tunerd has "
                f"{HEAD}: export it again with the same version"
            )
        return head

    def __iter__(self) -> Iterator[list[Any]]:
        while line := self._file.readline(LONGEST_LINE):
            if line.startswith(b"{"):
                end = msgspec.json.decode(line)
                if end != {"rows": self.rows, "sha256": self._digest.hexdigest()}:
                    raise _wrong("it is damaged: its rows are not those that were written")
                return
            self.rows += 1
            yield self._decoded(line)
        raise _wrong("it was cut short: its end is missing")

    def _decoded(self, line: bytes) -> Any:
        self._digest.update(line)
        self.read += len(line)
        return msgspec.json.decode(line)


def _batches(lines: _Lines, show: Show) -> Iterator[tuple[str, list[list[Any]]]]:
    """Rows of one table after the other, some at a time."""
    name, rows, begun = "", list[list[Any]](), 0
    for number, (of, *row) in enumerate(lines, 1):
        full = len(rows) >= AT_ONCE or lines.read - begun > AT_ONCE_BYTES
        if rows and (of != name or full):
            yield name, rows
            rows, begun = [], lines.read
            show("reading rows", number, 0)
        name = of
        rows.append(row)
    if rows:
        yield name, rows


def _values(table: sa.Table, names: Sequence[str], row: Sequence[Any]) -> dict[str, Any]:
    return {
        name: _value(table.columns[name].type, value)
        for name, value in zip(names, row, strict=True)
    }


def _value(kind: Any, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(kind, sa.LargeBinary):
        return base64.b64decode(value)
    return datetime.fromisoformat(value) if isinstance(kind, tables.UtcDateTime) else value


def _check_room(connection: sa.Connection, head: Mapping[str, Any]) -> None:
    """That nothing of what comes is there already."""
    known = set(connection.execute(sa.select(tables.studies.c.name)).scalars())
    if head["whole"] and known:
        raise _wrong("it holds a whole store, and this one is not empty; export single studies")
    if both := sorted(known.intersection(head["studies"])):
        raise _wrong(f"the store has a study {both[0]!r} already")


class _Renumbering:
    """New ids for commands and requests that join others, and for what refers to them."""

    def __init__(self, connection: sa.Connection, *, whole: bool) -> None:
        self._added = {
            table.name: 0
            if whole
            else connection.execute(sa.select(sa.func.max(table.c.id))).scalar_one() or 0
            for table in NUMBERED
        }

    def moved(self, name: str, row: dict[str, Any]) -> dict[str, Any]:
        """A row with the ids that it has here."""
        if name in self._added:
            row["id"] += self._added[name]
        if self._added["commands"] and name == "commands" and row["command"] == "lift":
            arguments = msgspec.json.decode(row["arguments"])
            arguments["number"] += self._added["commands"]
            row["arguments"] = msgspec.json.encode(arguments).decode()
        if self._added["commands"] and name == "study_states":
            row["state"] = msgspec.json.encode(self._orders(msgspec.json.decode(row["state"])))
            row["state"] = row["state"].decode()
        if self._added["commands"] and name == "derivations":
            basis = msgspec.json.decode(zlib.decompress(row["basis"]))
            row["basis"] = zlib.compress(msgspec.json.encode(self._orders(basis)))
        return row

    def _orders(self, state: dict[str, Any]) -> dict[str, Any]:
        """An order is called by the number of the command that gave it."""
        for order in state.get("orders", ()):
            order["number"] += self._added["commands"]
        return state


def _count_on(connection: sa.Connection) -> None:
    """Ids go on after the largest; SQLite sees to that itself."""
    if connection.dialect.name != "postgresql":
        return
    for table in _tables():
        if "id" not in table.c or table.c.id.autoincrement is not True:
            continue
        connection.execute(
            sa.text(
                f"SELECT setval(pg_get_serial_sequence('{table.name}', 'id'),"  # noqa: S608
                f" GREATEST((SELECT COALESCE(MAX(id), 1) FROM {table.name}), 1),"
                f" EXISTS (SELECT 1 FROM {table.name}))"
            )
        )


def _wrong(problem: str) -> MisconfiguredError:
    return MisconfiguredError([ValidationProblem("FILE", problem)])
