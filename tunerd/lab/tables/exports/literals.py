"""Records that stand in a cell of a table as text: JSON, or as Python prints a dictionary."""

import ast
import json
from collections.abc import Collection, Mapping
from typing import Any

from tunerd.lab.tables.rows import flattened

__all__ = ["apart", "record_in"]

MAX_TEXT = 1 << 16
"""Characters of such a text."""


def record_in(text: Any) -> dict[str, Any] | None:
    """The record in a text, or in a list of one; ``None`` when there is none, or a name or call
    stands in it."""
    if isinstance(text, list) and len(text) == 1:
        text = text[0]
    if not isinstance(text, str) or len(text) > MAX_TEXT or not text.startswith("{"):
        return None
    try:
        record = json.loads(text, parse_constant=lambda _: None)
    except RecursionError:
        return None
    except ValueError:
        try:
            # Reads constants alone: no name is looked up, nothing is called.
            record = ast.literal_eval(_plain(text))
        except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
            return None
    return {str(k): v for k, v in record.items()} if isinstance(record, dict) else None


def apart(values: Mapping[str, Any], columns: Collection[str]) -> dict[str, Any]:
    """A row with what the records in some of its columns say in columns of their own."""
    values_apart: dict[str, Any] = {}
    for name, value in values.items():
        record = record_in(value) if name in columns else None
        inside = {} if record is None else flattened(record)
        values_apart |= {f"{name}.{k}": v for k, v in inside.items()} if inside else {name: value}
    return values_apart


def _plain(text: str) -> str:
    """The text with what Python prints for numbers that are none as ``None``."""
    for word in ("nan", "inf", "-inf"):
        for end in (",", "}", "]"):
            text = text.replace(f": {word}{end}", f": None{end}")
    return text
