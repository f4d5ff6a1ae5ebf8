"""The answer of ``tunerd recommend`` for a person."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from tunerd.core.study.context_key import written_config
from tunerd.report.formatting import gain_text, number, percent, plural

__all__ = ["show_recommendation"]

_STANDING = {
    "published": "published",
    "renewed": "published before, and renewed",
    "observed": "observed, not published",
    "pending": "waits for approval, not published",
    "computed": "computed here, not published",
    "nothing": "nothing to say",
}


def show_recommendation(told: Mapping[str, Any]) -> None:
    """Print an answer."""
    message = told["recommendation"]
    head = Text(told["context_key"], style="bold", overflow="fold")
    standing = _STANDING[told["outcome"]]
    if told["outcome"] in ("published", "renewed"):
        standing += f", revision {message['revision']}, until {message['valid_until'][:16]}Z"
    head.append(f"\n{standing}", style="not bold")
    head.append(f"\n{told['reason']}", style="not bold")
    parts: list[RenderableType] = [head]
    if message is not None:
        parts.append(_table(message, told["unit"]))
    parts += [Text(f"Note: {note}", style="yellow") for note in told["notes"]]
    console = Console()
    if not console.is_terminal:
        console = Console(width=200)  # a file or a pipe has no edge to wrap at
    console.print(Group(*parts))


def _table(said: Mapping[str, Any], unit: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    table.add_column("share", justify="right")
    table.add_column(f"predicted, {unit}" if unit else "predicted", justify="right")
    table.add_column("gain", justify="right")
    table.add_column("runs", justify="right")
    table.add_column("configuration", overflow="fold")
    better = [candidate for candidate in said["candidates"] if candidate["kind"] == "exploit"]
    _add_candidates(table, better)
    _add_known(table, said)
    _add_candidates(
        table, [candidate for candidate in said["candidates"] if candidate["kind"] != "exploit"]
    )
    return table


def _add_candidates(table: Table, candidates: Sequence[Mapping[str, Any]]) -> None:
    for candidate in candidates:
        wanted = (
            f"{candidate['wanted']} wanted" if candidate["wanted"] else f"{candidate['share']:.1%}"
        )
        table.add_row(
            candidate["kind"],
            wanted,
            _band(candidate["predicted"]),
            _gain(candidate["gain"]),
            "–"
            if candidate["feasible"] is None
            else percent(candidate["feasible"], sign=False, digits=0),
            written_config(candidate["config"]),
        )


def _add_known(table: Table, said: Mapping[str, Any]) -> None:
    """What the other jobs run."""
    left = f"{max(0.0, 1 - sum(candidate['share'] for candidate in said['candidates'])):.1%}"
    incumbent, baseline = said["incumbent"], said["baseline"]
    if incumbent is not None:
        jobs = plural(incumbent["jobs"], "job")
        table.add_row(
            "incumbent", left, _band(incumbent), "", jobs, written_config(incumbent["config"])
        )
    elif baseline is not None:
        table.add_row("baseline", left, "–", "", "–", written_config(baseline))
    else:
        table.add_row("as asked for", left, "–", "", "–", "what would be launched without tunerd")


def _band(one: Mapping[str, Any] | None) -> str:
    if one is None:
        return "–"
    return f"{number(one['median'])} ({number(one['low'])} to {number(one['high'])})"


def _gain(gain: Mapping[str, Any] | None) -> str:
    return "–" if gain is None else gain_text(gain["median"], gain["low"])
