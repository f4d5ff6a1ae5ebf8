"""Tables in Parquet, batch by batch. pyarrow is imported when there is one."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tunerd.core.observation import Value
from tunerd.errors import MisconfiguredError, Problem
from tunerd.tables.rows import Row, Unreadable, flattened

__all__ = ["parquet_columns", "parquet_rows"]

BATCH = 1_024


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
            return list(names(file.schema_arrow, ""))
    except (OSError, pyarrow.ArrowException) as error:
        raise _broken(path, error) from error


def parquet_rows(path: Path) -> Iterator[tuple[Row | Unreadable, float]]:
    """The rows, each with the share of the file that has been read."""
    import pyarrow
    from pyarrow.parquet import ParquetFile

    number = 0
    try:
        with ParquetFile(path) as file:
            total = max(1, file.metadata.num_rows)
            for batch in file.iter_batches(batch_size=BATCH):
                for record in _records(_plain(batch)):
                    number += 1
                    yield _row(number, record), number / total
    except (OSError, pyarrow.ArrowException) as error:
        raise _broken(path, error) from error


def _records(batch: Any) -> Iterator[dict[str, Any] | str]:
    """Its records, and why there is none where a value is beyond what Python can hold."""
    try:
        yield from batch.to_pylist()
        return
    except (ValueError, OverflowError):
        pass
    for place in range(batch.num_rows):
        record, mistake = {}, ""
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            try:
                record[name] = column[place].as_py()
            except UnicodeDecodeError:
                mistake = mistake or "is not UTF-8"
            except (ValueError, OverflowError) as error:
                mistake = mistake or f"{name!r}: {error}"
        yield mistake or record


def _row(number: int, record: dict[str, Any] | str) -> Row | Unreadable:
    if isinstance(record, str):
        return Unreadable(number, record, "")
    try:
        values: dict[str, Value] = flattened(record)
    except (ValueError, RecursionError) as error:
        return Unreadable(number, str(error), "")
    return Row(number, values)


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
    return MisconfiguredError([Problem(str(path), f"cannot be read as Parquet: {why}")])
