"""Tables in Parquet, batch by batch. pyarrow is imported when there is one."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tunerd.core.observation import Value
from tunerd.errors import MisconfiguredError, ValidationProblem
from tunerd.lab.tables.rows import TableRow, UnreadableLine, flattened

__all__ = ["parquet_columns", "parquet_rows"]

BATCH = 1_024
"""Rows read at a time, at most."""
BATCH_BYTES = 256 << 20
"""What they may take where one value can be very long."""
MAX_VALUE = 1 << 20
"""Bytes of one value, as of one line of a text table."""
MOST_ITEMS = 10_000
"""Of the lists of a column, in the mean."""

_REPEATING = {"DELTA_BYTE_ARRAY", "RLE_DICTIONARY", "PLAIN_DICTIONARY"}
"""Encodings by which little in a file is much in memory."""
_LONG = f"{{!r}}: is longer than {MAX_VALUE:,} bytes"


def parquet_columns(path: Path) -> list[str]:
    """Names of the columns; those of nested records as ``record.name``."""
    import pyarrow
    from pyarrow.parquet import ParquetFile

    def names(fields: Any, before: str) -> Iterator[str]:
        for field in fields:
            name = before + field.name
            if pyarrow.types.is_struct(field.type) and field.type.num_fields:
                yield from names(field.type, f"{name}.")
            else:
                yield name

    try:
        with ParquetFile(path) as file:
            _plan(path, file.metadata)
            return list(names(file.schema_arrow, ""))
    except (OSError, pyarrow.ArrowException) as error:
        raise _broken(path, error) from error


def parquet_rows(path: Path) -> Iterator[tuple[TableRow | UnreadableLine, float]]:
    """The rows, each with the share of the file that has been read."""
    import pyarrow
    from pyarrow.parquet import ParquetFile

    number = 0
    try:
        with ParquetFile(path) as file:
            shared, many = _plan(path, file.metadata)
        with ParquetFile(path, read_dictionary=shared) as file:
            total = max(1, file.metadata.num_rows)
            for batch in file.iter_batches(batch_size=many):
                for record in _records(_plain(batch)):
                    number += 1
                    yield _row(number, record), number / total
    except (OSError, pyarrow.ArrowException) as error:
        raise _broken(path, error) from error


def _plan(path: Path, metadata: Any) -> tuple[list[str], int]:
    """How to read a file in bounded memory: columns whose values are kept once each, as they are
    in the file, and rows of a batch.

    A value that stands once in the file may stand in every row. Kept once each, that costs
    nothing; where the format or pyarrow cannot do that, a batch has fewer rows.
    """
    shared, unshared = set[str](), set[str]()
    largest = 1
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for chunk in map(group.column, range(group.num_columns)):
            name, size = chunk.path_in_schema, chunk.total_uncompressed_size
            each = size / max(1, chunk.num_values)
            if chunk.num_values > MOST_ITEMS * max(1, group.num_rows):
                raise _too_large(path, f"column {name!r} has lists of more than {MOST_ITEMS:,}")
            if each > MAX_VALUE:
                raise _too_large(path, f"column {name!r} has values of {each:,.0f} bytes")
            if chunk.physical_type != "BYTE_ARRAY":
                continue
            if "." in name or "DELTA_BYTE_ARRAY" in chunk.encodings:
                unshared.add(name)
                largest = max(largest, size if _REPEATING & set(chunk.encodings) else 1)
            else:
                shared.add(name)
    return sorted(shared - unshared), max(1, min(BATCH, BATCH_BYTES // largest))


def _too_large(path: Path, what: str) -> MisconfiguredError:
    return MisconfiguredError([ValidationProblem(str(path), f"{what}; leave that column out")])


def _records(batch: Any) -> Iterator[dict[str, Any] | str]:
    """Its records, and why there is none where a value is beyond what Python can hold."""
    names = batch.schema.names
    try:
        columns = list(map(_values, batch.columns))
    except (ValueError, OverflowError):
        yield from _records_one_by_one(batch)
        return
    for values in zip(*columns, strict=True):
        long = next((n for n, v in zip(names, values, strict=True) if _is_long(v)), None)
        yield dict(zip(names, values, strict=True)) if long is None else _LONG.format(long)


def _values(column: Any) -> list[Any]:
    """The values of a column; one that stands in many rows is one object."""
    from pyarrow import types

    if not types.is_dictionary(column.type):
        return column.to_pylist()  # type: ignore[no-any-return]
    known = column.dictionary.to_pylist()
    return [None if place is None else known[place] for place in column.indices.to_pylist()]


def _is_long(value: object) -> bool:
    return isinstance(value, str | bytes) and len(value) > MAX_VALUE


def _records_one_by_one(batch: Any) -> Iterator[dict[str, Any] | str]:
    for place in range(batch.num_rows):
        record, mistake = {}, ""
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            try:
                record[name] = column[place].as_py()
                if _is_long(record[name]):
                    mistake = mistake or _LONG.format(name)
            except UnicodeDecodeError:
                mistake = mistake or "is not UTF-8"
            except (ValueError, OverflowError) as error:
                mistake = mistake or f"{name!r}: {error}"
        yield mistake or record


def _row(number: int, record: dict[str, Any] | str) -> TableRow | UnreadableLine:
    if isinstance(record, str):
        return UnreadableLine(number, record, "")
    try:
        values: dict[str, Value] = flattened(record)
    except (ValueError, RecursionError) as error:
        return UnreadableLine(number, str(error), "")
    return TableRow(number, values)


def _plain(batch: Any) -> Any:
    """The batch with times that Python can hold."""
    import pyarrow

    columns = [column.cast(_held(column.type), safe=False) for column in batch.columns]
    return pyarrow.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _held(kind: Any) -> Any:
    """The type with times in microseconds, in UTC where they have a zone.

    A zone's name may mean nothing on this machine, and nanoseconds would need pandas.
    """
    import pyarrow
    from pyarrow import types

    if types.is_timestamp(kind):
        return pyarrow.timestamp("us", tz=None if kind.tz is None else "+00:00")
    if types.is_duration(kind):
        return pyarrow.duration("us")
    if types.is_time64(kind):
        return pyarrow.time64("us")
    if types.is_list(kind):
        return pyarrow.list_(_held(kind.value_type))
    if types.is_struct(kind):
        return pyarrow.struct([field.with_type(_held(field.type)) for field in kind])
    return kind


def _broken(path: Path, error: Exception) -> MisconfiguredError:
    why = str(error).splitlines()[0] if str(error) else type(error).__name__
    return MisconfiguredError([ValidationProblem(str(path), f"cannot be read as Parquet: {why}")])
