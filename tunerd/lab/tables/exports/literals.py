"""Records that stand in a cell of a table as text: JSON, or as Python prints a dictionary."""

import ast
import json
from typing import Any

__all__ = ["record_in"]

MAX_TEXT = 1 << 16
"""Characters of such a text."""


def record_in(text: Any) -> dict[str, Any] | None:
    """The record in a text; ``None`` when there is none, or a name or call stands in it."""
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


def _plain(text: str) -> str:
    """The text with what Python prints for numbers that are none as ``None``."""
    for word in ("nan", "inf", "-inf"):
        for end in (",", "}", "]"):
            text = text.replace(f": {word}{end}", f": None{end}")
    return text
