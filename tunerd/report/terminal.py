"""The report on a terminal of 80 columns or more."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec
from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tunerd.events.printable import printable
from tunerd.report.formatting import (
    STATES,
    TRIED,
    VERDICTS,
    changes_text,
    config_text,
    context_label,
    jobs_text,
    number,
    percent,
    plural,
    range_text,
    rounded,
    span,
)
from tunerd.report.model import (
    ImportedSummary,
    ReportAdvice,
    ReportContext,
    ReportQuality,
    ReportReliability,
    StudyReport,
)

__all__ = ["show"]

WIDTH = 100
"""Where there is no terminal."""
MOST = 10
"""Contexts that are shown; the page and the JSON have more."""
BARS = " ▁▂▃▄▅▆▇█"
STYLES = {"shown": "bold green", "likely": "green", "worse": "bold red"}


def show(report: StudyReport, console: Console | None = None) -> None:
    """Print it."""
    console = console or Console()
    if not console.is_terminal:
        console = Console(width=WIDTH, file=console.file)  # a file or a pipe has no edge
    plain = msgspec.convert(_printable(msgspec.to_builtins(report)), StudyReport)
    console.print(Group(*_parts(plain)))


def _printable(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {_printable(name): _printable(inner) for name, inner in value.items()}
    return [_printable(inner) for inner in value] if isinstance(value, list) else value


def _parts(report: StudyReport) -> Iterator[RenderableType]:
    yield _head(report)
    yield _answer(report)
    if report.candidates is not None:
        yield Padding(Text(report.candidates.sentence), (1, 2, 0, 2))
    if report.would or report.followed:
        yield _gains(report)
    if report.quality is not None:
        yield _title("How well jobs were predicted before they were learned")
        yield _quality(report.quality, report.fresh, report.reliability)
    if report.history is not None and not report.counts.jobs:
        yield from _past(report.history)
    if report.contexts:
        yield from _contexts(report)
    if report.changed:
        yield _title("What changed")
        yield from (Padding(Text(line), (0, 2)) for line in report.changed)
    if report.history is not None and report.counts.jobs:
        yield from _past(report.history)
    for note in report.notes:
        yield Padding(Text(f"· {note}", style="dim"), (0, 2, 0, 2))


def _title(text: str) -> Text:
    return Text(f"\n{text}", style="bold")


def _head(report: StudyReport) -> Text:
    counts = report.counts
    text = Text()
    text.append(report.study, style="bold")
    text.append(f"  {report.mode}, {_day(report.since)} to {_day(report.until)}\n")
    text.append(f"{plural(counts.jobs, 'job')} in {plural(counts.contexts, 'context')}")
    if counts.did_not_run:
        text.append(f", {counts.did_not_run:,} did not run")
    if counts.gpu_hours is not None:
        text.append(f", {rounded(counts.gpu_hours)} GPU-hours")
    asked = {k: v for k, v in counts.following.items() if k != "unasked"}
    if asked:
        text.append("; " + ", ".join(f"{v:,} {k}" for k, v in asked.items()))
    return text


def _answer(report: StudyReport) -> RenderableType:
    style = STYLES.get(report.would.verdict, "bold") if report.would else "bold"
    return Padding(Text(report.headline, style=style), (1, 2, 0, 2))


def _gains(report: StudyReport) -> Table:
    table = _table("What people would have gained")
    for name, justify in (
        ("with", "left"),
        ("jobs", "right"),
        ("predicted", "right"),
        ("came true", "right"),
        ("gain", "right"),
        ("90%", "right"),
        ("how sure", "left"),
    ):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    would, candidates = report.would, report.candidates
    if would is not None:
        table.add_row(
            "best known",
            f"{would.jobs:,}",
            percent(would.predicted),
            percent(would.came_true.value if would.came_true else None, sign=False, digits=0),
            percent(would.gain.value if would.gain else None),
            span(would.gain),
            Text(VERDICTS[would.verdict], style=STYLES.get(would.verdict, "")),
        )
    if candidates is not None and candidates.tried:
        table.add_row(
            "candidates tried",
            f"{candidates.tried:,}",
            percent(candidates.tried_predicted),
            "",
            percent(candidates.came.value if candidates.came else None),
            span(candidates.came),
            "over best known" if candidates.came else "too few",
        )
    followed = report.followed
    parts = [("kept to it", followed.kept), ("tried others", followed.tried)] if followed else []
    for name, part in parts:
        if part.jobs:
            table.add_row(
                f"followers, {name}",
                f"{part.jobs:,}",
                "",
                "",
                percent(part.gain.value if part.gain else None),
                span(part.gain),
                "over others" if part.gain else "too few",
            )
    return table


def _quality(
    quality: ReportQuality, fresh: ReportQuality | None, runs: ReportReliability | None
) -> RenderableType:
    table = Table(box=None, pad_edge=False, padding=(0, 2), show_header=True)
    table.add_column("")
    table.add_column(f"all {quality.jobs:,} jobs", justify="right")
    if fresh is not None:
        table.add_column(f"{fresh.jobs:,} new to their context", justify="right")
    both = [quality] if fresh is None else [quality, fresh]
    for name, values in (
        ("Kendall τ within contexts", [range_text(q.kendall) for q in both]),
        ("Spearman within contexts", [range_text(q.spearman) for q in both]),
        ("mean absolute error", [percent(q.mape, sign=False) for q in both]),
        ("in their 80% band", [percent(q.coverage.value, sign=False) for q in both]),
        ("half width of a band", [percent(q.half_width, sign=False) for q in both]),
    ):
        table.add_row(name, *values)
    parts: list[RenderableType] = [Padding(table, (0, 2))]
    if quality.periods:
        errors = [p.error for p in quality.periods]
        parts.append(
            Padding(
                Text(
                    f"error over time  {_sparkline(errors)}  "
                    f"{percent(errors[0], sign=False)} → {percent(errors[-1], sign=False)}"
                ),
                (0, 2),
            )
        )
    if runs is not None and runs.ran < runs.jobs:
        parts.append(_runs(runs))
    return Group(*parts)


def _runs(runs: ReportReliability) -> Table:
    table = _table(f"Did they run? {runs.ran:,} of {runs.jobs:,} did")
    table.add_column("given a probability of")
    table.add_column("jobs", justify="right")
    table.add_column("mean", justify="right")
    table.add_column("ran", justify="right")
    for bin_ in runs.bins:
        table.add_row(
            f"{bin_.low:.0%} to {bin_.high:.0%}",
            f"{bin_.jobs:,}",
            f"{bin_.predicted:.0%}",
            f"{bin_.observed.value:.0%}",
        )
    return table


def _contexts(report: StudyReport) -> Iterator[RenderableType]:
    verb = "recommends" if report.mode == "publish" else "would recommend"
    yield _title(f"What tunerd {verb}")
    for context in report.contexts[:MOST]:
        yield Padding(_context(context), (0, 2, 1, 2))
    rest = report.contexts_total - min(MOST, len(report.contexts))
    if rest > 0:
        yield Padding(
            Text(f"… and {plural(rest, 'context')} more; --html and --json show 50.", "dim"), (0, 2)
        )


def _context(context: ReportContext) -> RenderableType:
    head = Text(context_label(context.key, context.values), style="bold")
    head.append(f"  {jobs_text(context)}", style="not bold")
    if context.gain is not None:
        head.append(
            f", {context.elsewhere:,} elsewhere: {percent(context.gain.value)} "
            f"({span(context.gain)})",
            style="not bold",
        )
    if context.advice is None:
        return Group(head, Text("nothing yet"))
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in _advice(context.advice):
        table.add_row(name, text)
    return Group(head, table)


def _advice(advice: ReportAdvice) -> Iterator[tuple[str, Text]]:
    now, new = advice.incumbent, advice.candidate
    best: list[tuple[str, Text]] = []
    if now is not None:
        best.append(("best known", Text(config_text(now.config))))
        best.append(("", Text(f"{number(now.median)} over {plural(now.jobs, 'job')}", "dim")))
    elif advice.baseline is not None:
        best.append(("baseline", Text(config_text(advice.baseline))))
    tried: list[tuple[str, Text]] = []
    if new is not None:
        basis = now.config if now else advice.baseline or {}
        label = TRIED[new.kind] if now else "first to try"
        tried.append((label, Text(changes_text(new.config, basis))))
        rows = []
        if new.median is not None:
            rows.append(f"{number(new.median)} predicted ({number(new.low)} to {number(new.high)})")
        if new.feasible is not None:
            rows.append(f"probability to run {percent(new.feasible, sign=False, digits=0)}")
        tried.append(("", Text("; ".join(rows) or "nothing to predict from yet", "dim")))
    yield from tried + best if new is not None and new.kind == "exploit" else best + tried
    yield "state", Text(STATES.get(advice.state, advice.state))
    yield "why", Text(advice.reason)


def _past(past: ImportedSummary) -> Iterator[RenderableType]:
    yield _title("On imported jobs, in their order")
    text = f"{plural(past.jobs, 'job')} in {plural(past.contexts, 'context')}"
    if past.first_at and past.last_at:
        text += f", {_day(past.first_at)} to {_day(past.last_at)}"
    text += f"; {past.predicted:,} were predicted before they were learned."
    if past.left_out:
        text += f" The first {past.left_out:,} are not looked at."
    yield Padding(Text(text), (0, 2))
    if past.quality is not None:
        yield _quality(past.quality, past.fresh, past.reliability)


def _table(title: str) -> Table:
    return Table(
        title=f"\n{title}",
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )


def _sparkline(values: list[float | None]) -> str:
    known = [v for v in values if v is not None]
    top = max(known, default=0.0) or 1.0
    return "".join(" " if v is None else BARS[round(v / top * (len(BARS) - 1))] for v in values)


def _day(at: datetime) -> str:
    return f"{at:%Y-%m-%d}"
