"""The table of ``tunerd models`` for a person."""

import math
from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

__all__ = ["show_models"]

WHY = {
    "first": "the first",
    "grown": "history has grown",
    "drift": "jobs behave differently",
    "generation": "the study has changed, or tunerd",
    "back": "an operator went back",
    "latest": "an operator wants the latest",
}
TOLD_BY = {
    "ranks": "told by the order",
    "errors": "told by the errors",
    "few": "too few jobs to tell: the newer one takes over",
    "even": "no difference: the newer one takes over",
    "broken": "one of them predicts what is no number",
}


def show_models(told: Mapping[str, Any]) -> None:
    """Print the versions of a study's model."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=200)  # a file or a pipe has no edge to wrap at
    console.print(_head(told))
    if told["versions"]:
        console.print(_table(told))


def _head(told: Mapping[str, Any]) -> Text:
    text = Text(f"{told['study']}  ", style="bold")
    if told["serves"] is None:
        text.append("no model yet: the first follows five jobs with an objective", style="not bold")
        return text
    text.append(f"version {told['serves']} serves", style="not bold")
    if told["pinned"]:
        text.append(", pinned", style="not bold yellow")
        text.append(
            f": `tunerd models {told['study']} --latest` lets others take over again",
            style="not bold",
        )
    if rebuild := told["rebuild"]:
        left = max(rebuild["decide_at"] - told["jobs"], 0)
        text.append(
            f"\nA rebuild on {rebuild['started_at']:,} jobs ({WHY[rebuild['why']]}) is compared "
            f"with it; decided after {left} more jobs",
            style="not bold",
        )
    return text


def _table(told: Mapping[str, Any]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_lines=True)
    for name in ("version", "built", "why", "before it took over, beside the one that served"):
        table.add_column(name, overflow="fold")
    linear = told["objective"]["scale"] == "linear"
    unit = f" {told['objective']['unit']}".rstrip() if linear else ""
    for version in told["versions"]:
        at = version["decided_at"].astimezone().strftime("%Y-%m-%d %H:%M")
        name = (version["checkpoint"] or "").removeprefix("sha256:")[:12]
        table.add_row(
            Text(f"{version['version']}{' *' if version['serves'] else ''}"),
            Text(
                f"{at}\non {version['fitted_sequence']:,} jobs, job {version['decided_sequence']:,}"
            ),
            Text(f"{_why(version)}\n{name if version['kept'] else _not_kept(version)}"),
            Text(_became(version["detail"], linear, unit)),
        )
    return table


def _why(one: Mapping[str, Any]) -> str:
    text: str = WHY.get(one["why"], one["why"])
    if "of" in one["detail"]:
        text += f": version {one['detail']['of']}"
    if command := one["command"]:
        why = f", “{command['why']}”" if command["why"] else ""
        text += f"\nby {command['who']}{why} (command {command['id']})"
    return text


def _not_kept(one: Mapping[str, Any]) -> str:
    if "failed" in one["detail"]:
        return "failed"
    return "kept no longer" if one["took_over"] else "turned down, not kept"


def _became(detail: Mapping[str, Any], linear: bool, unit: str) -> str:
    if failed := detail.get("failed"):
        return f"{failed.splitlines()[-1]}\n--json shows where"
    return _compared(detail["contest"], linear, unit) if "contest" in detail else "–"


def _compared(contest: Mapping[str, Any], linear: bool, unit: str) -> str:
    head = f"{contest['jobs']} jobs, {TOLD_BY.get(contest['by'], contest['by'])}"
    pairs = [
        ("τ within contexts", "kendall", "{:.3f}"),
        ("mean error", "error", "{:.3g}" if linear else "{:.1%}"),
    ]
    lines = [head]
    for name, key, form in pairs:
        new, old = (contest[side][key] for side in ("challenger", "champion"))
        if key == "error" and not linear:
            new, old = (None if v is None else math.expm1(v) for v in (new, old))
        lines.append(
            f"{name} {_number(new, form)} beside {_number(old, form)}"
            + (unit if key == "error" else "")
        )
    return "\n".join(lines)


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else form.format(value)
