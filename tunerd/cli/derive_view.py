"""What ``tunerd derive`` found, for a person."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from tunerd.events.printable import printable
from tunerd.stages.replay import ReplayResult

__all__ = ["show"]

WIDTH = 120
MOST = 20
LONGEST = 60
MARKS = {True: ("same", "green"), False: ("differs", "bold red"), None: ("not told", "yellow")}


def show(derived: ReplayResult, stands: Sequence[Mapping[str, Any]]) -> None:
    """Print it."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(width=WIDTH, highlight=False)
    console.print(Group(*_parts(derived, stands)))


def _parts(derived: ReplayResult, stands: Sequence[Mapping[str, Any]]) -> Iterator[RenderableType]:
    kept = derived.kept
    yield Text.assemble(
        (kept.recommendation_id, "bold"),
        f", said {kept.said_at:%Y-%m-%d %H:%M:%S} UTC for {printable(kept.context_key)} "
        f"after {kept.sequence:,} jobs",
    )
    table = Table(box=None, pad_edge=False, show_header=False)
    for check in derived.checks:
        mark, style = MARKS[check.same]
        table.add_row(f"  {check.what}", Text(mark, style), Text(printable(check.text)))
    yield table
    if derived.differences:
        rows = [
            (difference.field, difference.said, difference.derived)
            for difference in derived.differences
        ]
        yield _table(("field", "as said", "derived now"), rows)
    if stands:
        yield Text("What stands in the store under this id is not what was said:", "bold red")
        rows = [
            (difference["field"], difference["said"], difference["stands"]) for difference in stands
        ]
        yield _table(("field", "as said", "in the store"), rows)
    yield _verdict(derived, stands)


def _verdict(derived: ReplayResult, stands: Sequence[Mapping[str, Any]]) -> Text:
    if derived.same and not stands:
        return Text("The same, bit for bit.", "bold green")
    if derived.message is None:
        return Text("It could not be made again.", "bold red")
    reasons = [check.what for check in derived.checks if check.same is False]
    if not derived.differences:
        return Text("What it says comes out the same, but see above.", "bold yellow")
    if reasons:
        return Text(f"It differs; the likely reason: {', '.join(reasons)}.", "bold red")
    return Text("It differs, and nothing says why: please report this.", "bold red")


def _table(head: Sequence[str], rows: Sequence[tuple[str, Any, Any]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    for name in head:
        table.add_column(name, overflow="fold")
    for name, field, other in rows[:MOST]:
        table.add_row(printable(name), _short(field), _short(other))
    if len(rows) > MOST:
        table.add_row(f"… and {len(rows) - MOST} more", "", "")
    return table


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return printable(text if len(text) <= LONGEST else text[: LONGEST - 1] + "…")
