"""What others write and read is described, field by field, where a reader looks for it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tunerd.cli.schema import SCHEMAS, _call

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {
    "job": "events.md",
    "half": "events.md",
    "request": "events.md",
    "recommendation": "events.md",
    "plan": "events.md",
    "signal": "forecasts.md",
    "drift": "drift.md",
}
"""By message, the page that describes it."""
OTHERS = {"settings", "study", "backtest", "report"}
"""Schemas of files and of what a command prints; settings and studies have pages that are made."""


def parts(schema: Any, name: str) -> Iterator[Any]:
    """All that stands under a name in a schema, however deep."""
    if isinstance(schema, dict):
        if name in schema:
            yield schema[name]
        for part in schema.values():
            yield from parts(part, name)
    elif isinstance(schema, list):
        for part in schema:
            yield from parts(part, name)


def test_every_message_has_its_page() -> None:
    assert SCHEMAS.keys() == PAGES.keys() | OTHERS


@pytest.mark.parametrize("message", PAGES)
def test_every_published_field_is_described(message: str) -> None:
    schema = _call(SCHEMAS[message])
    page = (DOCS / PAGES[message]).read_text()
    fields = [field for some in parts(schema, "properties") for field in some.items()]
    assert fields
    assert [name for name, field in fields if not field.get("description")] == []
    words = [word for some in parts(schema, "enum") for word in some if word is not None]
    assert {word for word in [*words, *dict(fields)] if f"`{word}`" not in page} == set()
