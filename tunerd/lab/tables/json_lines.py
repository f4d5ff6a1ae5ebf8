"""JSON lines: one record a line. A line that is none is told, and reading goes on after it."""

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from tunerd.lab.tables.exports.literals import record_in
from tunerd.lab.tables.rows import SkippedRows, TableRow, UnreadableLine, flattened
from tunerd.lab.tables.text_reader import TextReader, is_comment

__all__ = ["json_rows"]


def json_rows(file: TextReader, not_jobs: SkippedRows) -> Iterator[TableRow | UnreadableLine]:
    """One row for each line that is a JSON object; comments between them are told."""
    number = 0
    for line, mistake in _json_lines(file):
        if is_comment(line):
            not_jobs.add("a comment", file.line)
            continue
        number += 1
        reason = mistake
        if not reason:
            try:
                values = flattened(_object(line))
            except RecursionError:
                reason = "is nested too deeply"
            except ValueError as error:
                reason = str(error)
        yield UnreadableLine(number, reason, file.shown()) if reason else TableRow(number, values)


def _json_lines(file: TextReader) -> Iterator[tuple[str, str]]:
    while True:
        file.taken.clear()
        try:
            line, mistake = next(file), ""
        except StopIteration:
            return
        except ValueError as error:
            line, mistake = "", str(error)
        if mistake or line.strip():
            yield line, mistake


def _object(line: str) -> dict[str, Any]:
    try:
        record = msgspec.json.decode(line)
    except UnicodeEncodeError:
        raise ValueError("is not UTF-8") from None
    except msgspec.DecodeError as error:
        try:  # Python's own writer puts NaN where a number is missing
            record = json.loads(line, parse_constant=str)
            json.dumps(record, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("has half of a surrogate pair") from None
        except ValueError:
            record = record_in(line.strip())  # as Python prints a dictionary
            if record is None:
                raise ValueError(f"is not JSON: {error}") from None
    if not isinstance(record, dict):
        raise ValueError("is not a JSON object")
    return record
