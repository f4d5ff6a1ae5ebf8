"""What new readers of recommendations find to follow."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from benchmarks.witness import FreshReaders, Line

LATER = (datetime.now(UTC) + timedelta(days=1)).isoformat()
ACTIVE: dict[str, object] = {
    "state": "active",
    "valid_until": LATER,
    "candidates": [{}],
    "incumbent": None,
    "baseline": None,
}


def line(key: str, **changes: object) -> Line:
    return Line(key, json.dumps(ACTIVE | changes).encode())


@pytest.mark.parametrize(
    "after",
    [
        [],
        [Line("a", None)],
        [line("a", state="withdrawn")],
        [line("a", valid_until="2026-01-01T00:00:00+00:00")],
        [line("a", candidates=[])],
        [line("a"), line("a", state="withdrawn")],
    ],
)
def test_a_context_with_nothing_to_follow_any_more_is_noticed(after: list[Line]) -> None:
    readers = FreshReaders("", "")
    readers._look([line("a"), line("b")])
    readers._look([*after, line("b")])
    readers._look([line("a"), line("b")])
    assert readers.without == {"a": 1}
    assert readers.keys == {"a", "b"}


def test_what_was_never_recommended_is_not_missed() -> None:
    readers = FreshReaders("", "")
    readers._look([line("a", state="withdrawn")])
    readers._look([line("a", candidates=[], incumbent={"config": {}})])
    assert not readers.without
