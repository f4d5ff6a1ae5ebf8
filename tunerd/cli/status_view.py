"""The tables of ``tunerd status`` for a person."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

__all__ = ["show"]


def show(report: Mapping[str, Any], console: Console | None = None) -> None:
    """Print a status report."""
    now = datetime.now(UTC)
    parts: list[RenderableType] = [_head(report, now)]
    if report["studies"]:
        parts.append(_studies(report["studies"], now))
    else:
        parts.append(Text("No studies yet: `tunerd run` takes them from the folder of studies."))
    if report["commands"]:
        parts.append(_commands(report["commands"], now))
    if "recommendations" in report:
        parts.append(_recommendations(report["recommendations"], now))
    (console or Console()).print(Group(*parts))


def _head(report: Mapping[str, Any], now: datetime) -> Text:
    daemon = report["daemon"]
    text = Text()
    text.append(f"{report['name']}  ", style="bold")
    if daemon["running"] is None:
        text.append("cannot tell whether the daemon runs", style="yellow")
    elif not daemon["running"]:
        text.append("the daemon is not running", style="red")
        text.append(f" (nothing of tunerd answers on {daemon['url']})")
    elif daemon["ready"]:
        text.append("running, ready", style="green")
    else:
        text.append("running, not ready", style="red")
    for problem in daemon["problems"]:
        text.append(f"\n  {problem}")
    lag = report["lag_records"]
    text.append(f"\nstream   {report['stream']}")
    text.append(f", {lag:,.0f} records not ingested yet\n" if lag is not None else "\n")
    text.append(f"store    {report['store']}\n")
    waiting = [
        f"{depth['unsent']} {kind} since {_ago(depth['oldest_at'], now)}"
        for kind, depth in report["outbox"].items()
    ]
    text.append(f"outbox   {', '.join(waiting) or 'empty'}")
    return text


def _studies(studies: list[Mapping[str, Any]], now: datetime) -> Table:
    table = Table(title="Studies", title_justify="left", title_style="bold")
    for title in ("study", "mode"):
        table.add_column(title)
    for title in ("jobs", "learned", "contexts", "recommended", "last step", "τ", "gain"):
        table.add_column(title, justify="right")
    for study in studies:
        scores = study["scores"] or {}
        name = Text(study["name"])
        if study["set_aside"]:
            name.append(" set aside", style="red")
        table.add_row(
            name,
            study["mode"] or "",
            f"{study['observations']:,}",
            f"{study['learned']:,}",
            f"{study['contexts']:,}",
            _states(study["recommendations"]),
            _ago(study["last_step_at"], now),
            _number(scores.get("kendall"), "{:.2f}"),
            _number(study["gain_realised"], "{:+.1%}"),
        )
    return table


def _commands(commands: list[Mapping[str, Any]], now: datetime) -> Table:
    table = Table(title="Commands that wait", title_justify="left", title_style="bold")
    for name in ("id", "study", "command", "who", "given"):
        table.add_column(name)
    for command in commands:
        at = _ago(command["at"], now)
        row = (str(command["id"]), command["study"], command["command"], command["who"], at)
        table.add_row(*row)
    return table


def _recommendations(rows: list[Mapping[str, Any]], now: datetime) -> Table:
    table = Table(
        title="Recommendations", title_justify="left", title_style="bold", show_lines=True
    )
    for name in ("context", "state", "best candidate", "why"):
        table.add_column(name, overflow="fold")
    for row in rows:
        shown = row["proposal"] or row
        until = f"for {_ahead(row['valid_until'], now)}" if row["state"] == "active" else ""
        state = f"{row['state']}, revision {row['revision']}\n{until}".strip()
        if row["proposal"]:
            state += f"\nwaits for approval:\n{row['proposal'].get('recommendation_id')}"
        table.add_row(
            "\n".join(row["context_key"].split("|")[1:]) or "any",
            state,
            _best(shown.get("candidates") or []),
            shown.get("reason") or "",
        )
    return table


def _best(candidates: list[Mapping[str, Any]]) -> str:
    if not candidates:
        return "none"
    best = candidates[0]
    config = " ".join(f"{name}={_value(value)}" for name, value in best["config"].items())
    gain = (best.get("gain") or {}).get("median")
    said = f"{best['wanted']} wanted" if best.get("wanted") else f"share {best['share']:g}"
    more = f"\nand {len(candidates) - 1} more" if len(candidates) > 1 else ""
    return f"{best['kind']}, {said}, gain {_number(gain, '{:+.1%}')}\n{config}{more}"


def _value(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _states(states: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {state}" for state, count in states.items()) or "none"


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else form.format(value)


def _ago(at: datetime | None, now: datetime) -> str:
    return "never" if at is None else f"{_span((now - at).total_seconds())} ago"


def _ahead(at: datetime, now: datetime) -> str:
    return _span((at - now).total_seconds()) if at > now else "no longer"


def _span(seconds: float) -> str:
    seconds = max(seconds, 0.0)
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
