"""The plots of the page. Each is one picture of SVG with a title and a description."""

from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise

from markupsafe import Markup

from tunerd.report.formatting import percent, percent_tick, plural, span, tick
from tunerd.report.model import (
    ReportGainBin,
    ReportInterval,
    ReportObjective,
    ReportPeriod,
    ReportPoint,
    ReportReliabilityBin,
)
from tunerd.report.svg import PlotAxis, linear_axis, log_axis, picture, tag

__all__ = [
    "context_axis",
    "context_bar",
    "error_plot",
    "points_plot",
    "reliability_plot",
    "steps_plot",
]

HEIGHT = 260.0
TOP, BOTTOM = 18.0, 226.0
"""Of what is plotted; below are the labels of the horizontal axis."""
DOT = 3.0
BAR = 28
"""Height of a row's bar."""


def points_plot(name: str, points: Sequence[ReportPoint], objective: ReportObjective) -> Markup:
    """Predicted against actual; jobs outside their band are rings."""
    values = [v for p in points for v in (p.predicted, p.actual)]
    low, high = min(values), max(values)
    axis = log_axis(low, high) if low > 0 and high > 1.5 * low else linear_axis(low, high)
    dots = [
        tag(
            "circle",
            cx=_x(axis, p.predicted),
            cy=_y(axis, p.actual),
            r=DOT,
            class_="dot" if p.held else "dot out",
        )
        for p in points
    ]
    outside = sum(not p.held for p in points)
    return picture(
        name,
        "Predicted against actual",
        f"{plural(len(points), 'job')}: {objective.metric} in {objective.unit}, predicted "
        f"before the job was learned (across) against what came (up). On the line both are equal. "
        f"{outside} lie outside the band that was predicted for them.",
        HEIGHT,
        *_grid(axis, [tick(t) for t in axis.ticks]),
        *_labels(axis, [(t, tick(t)) for t in axis.ticks]),
        _equal(axis, low, high),
        *dots,
    )


def steps_plot(name: str, steps: Sequence[ReportGainBin]) -> Markup:
    """What came of predicted differences, with 90 % intervals."""
    values = [v for s in steps for v in (s.predicted, s.came.value, s.came.low, s.came.high)]
    known = [v for v in values if v is not None]
    axis = linear_axis(min(known), max(known), 5)
    marks = []
    for step in steps:
        caption = (
            f"{plural(step.jobs, 'job')} predicted {percent(step.predicted)}: "
            f"{percent(step.came.value)} ({span(step.came)})"
        )
        marks += _dot_with_span(axis, step.predicted, step.came, caption, DOT + 1.5)
    return picture(
        name,
        "What became of predicted differences",
        f"Jobs beside others of their context and time, in {plural(len(steps), 'group')} from the "
        "worst predicted to the best: the gain predicted (across) against the gain that came (up), "
        "with 90 % intervals. On the line both are equal.",
        HEIGHT,
        *_grid(axis, [percent_tick(t) for t in axis.ticks]),
        *_labels(axis, [(t, percent_tick(t)) for t in axis.ticks]),
        _equal(axis, min(known), max(known)),
        *marks,
    )


def error_plot(name: str, periods: Sequence[ReportPeriod]) -> Markup:
    """Median error over time."""
    points = [(i, p, p.error) for i, p in enumerate(periods) if p.error is not None]
    across = linear_axis(0, max(len(periods) - 1, 1), margin=0.0)
    up = linear_axis(0.0, max((e for _, _, e in points), default=0.01), 4, margin=0.0)
    at = [(_x(across, i), _y(up, e)) for i, _, e in points]
    lines = [
        tag("line", x1=a[0], y1=a[1], x2=b[0], y2=b[1], class_="line") for a, b in pairwise(at)
    ]
    dots = [
        tag(
            "circle",
            tag("title", f"{plural(p.jobs, 'job')}: {percent(e, sign=False)}"),
            cx=x,
            cy=y,
            r=DOT + 0.5,
            class_="mark",
        )
        for (x, y), (_, p, e) in zip(at, points, strict=True)
    ]
    ends = (
        (_day(periods[0].since, "first"), 0.0, "start"),
        (_day(periods[-1].until, "last"), 1.0, "end"),
    )
    first, last = (points[0][2], points[-1][2]) if points else (None, None)
    return picture(
        name,
        "Error over time",
        f"Median absolute error of predictions in {plural(len(periods), 'part')} of the jobs, from "
        f"{percent(first, sign=False)} at first to {percent(last, sign=False)} at last.",
        HEIGHT,
        *_grid(up, [percent_tick(t) for t in up.ticks]),
        *(_label(place, text, anchor) for text, place, anchor in ends),
        *lines,
        *dots,
    )


def reliability_plot(name: str, bins: Sequence[ReportReliabilityBin]) -> Markup:
    """Share that ran against the probability that was given, with 90 % intervals."""
    axis = linear_axis(0.0, 1.0, 5, margin=0.03)
    most = max(bin_.jobs for bin_ in bins)
    marks = []
    for bin_ in bins:
        caption = (
            f"{plural(bin_.jobs, 'job')} given {bin_.predicted:.0%}: {bin_.observed.value:.0%} ran"
        )
        size = DOT + 4.0 * (bin_.jobs / most) ** 0.5
        marks += _dot_with_span(axis, bin_.predicted, bin_.observed, caption, size)
    return picture(
        name,
        "Did they run as often as predicted?",
        "Share of jobs that ran (up) against the probability to run that they were given (across), "
        "with 90 % intervals. On the line both are equal.",
        HEIGHT,
        *_grid(axis, [percent_tick(t) for t in axis.ticks]),
        *_labels(axis, [(t, percent_tick(t)) for t in axis.ticks]),
        _equal(axis, 0.0, 1.0),
        *marks,
    )


def context_axis(gains: Sequence[ReportInterval]) -> PlotAxis:
    """One axis for the bars of all contexts; zero is on it. Ends far out are cut."""
    ends = sorted(v for g in gains for v in (g.value, g.low, g.high) if v is not None)
    if not ends:
        return linear_axis(-0.1, 0.1)
    cut = max(3 * max(abs(g.value) for g in gains), 0.02)
    return linear_axis(max(min(ends[0], 0.0), -cut), min(max(ends[-1], 0.0), cut), 5, margin=0.05)


def context_bar(gain: ReportInterval, axis: PlotAxis, title: str) -> Markup:
    """The gain of one context with its interval, in a row of a table."""

    def inside(value: float) -> str:
        return f"{100 * min(max(axis.place(value), 0.0), 1.0):.2f}%"

    marks = []
    for value in axis.ticks:
        kind = "zero" if value == 0 else "grid"
        x = inside(value)
        marks.append(tag("line", x1=x, y1=0, x2=x, y2=BAR, class_=kind))
    kind = "unsure"
    if gain.low is not None and gain.high is not None:
        kind = "good" if gain.low > 0 else "bad" if gain.high < 0 else "unsure"
        x1, x2 = inside(gain.low), inside(gain.high)
        marks.append(tag("line", x1=x1, y1=BAR / 2, x2=x2, y2=BAR / 2, class_=f"span {kind}"))
    marks.append(tag("circle", cx=inside(gain.value), cy=BAR / 2, r=5, class_=f"mark {kind}"))
    return tag(
        "svg", tag("title", title), *marks, class_="bar", role="img", width="100%", height=BAR
    )


# ── pieces ───────────────────────────────────────────────────────────────────────────────────

CHARACTER_PX, GAP_PX = 7.5, 8.0
"""Room for a character of a label, and between two of them."""
NARROW_PX, WIDE_PX = 270.0, 560.0
"""Width of a picture on a small telephone, and on the narrowest screen that counts as wide."""
GUTTER = 12.0
"""Per cent of the width at the left for the numbers of the upright axis."""


def _x(axis: PlotAxis, value: float) -> str:
    return _across(axis.place(value))


def _y(axis: PlotAxis, value: float) -> float:
    return BOTTOM - (BOTTOM - TOP) * axis.place(value)


def _across(place: float) -> str:
    return f"{GUTTER + (100 - GUTTER) * place:.3f}%"


def _dot_with_span(
    axis: PlotAxis, x: float, value: ReportInterval, said: str, size: float
) -> list[Markup]:
    at = _x(axis, x)
    marks = []
    if value.low is not None and value.high is not None:
        y1, y2 = _y(axis, value.low), _y(axis, value.high)
        marks.append(tag("line", x1=at, y1=y1, x2=at, y2=y2, class_="span"))
    y = _y(axis, value.value)
    return [*marks, tag("circle", tag("title", said), cx=at, cy=y, r=size, class_="mark")]


def _equal(axis: PlotAxis, low: float, high: float) -> Markup:
    return tag(
        "line",
        x1=_x(axis, low),
        y1=_y(axis, low),
        x2=_x(axis, high),
        y2=_y(axis, high),
        class_="equal",
    )


def _grid(axis: PlotAxis, texts: Sequence[str]) -> list[Markup]:
    """Horizontal lines, each with its value at the left."""
    marks = []
    for value, text in zip(axis.ticks, texts, strict=True):
        y = _y(axis, value)
        marks.append(tag("line", x1=_across(0.0), y1=y, x2="100%", y2=y, class_="grid"))
        marks.append(tag("text", text, x="0%", y=y + 4, class_="tick"))
    return marks


def _labels(axis: PlotAxis, texts: Sequence[tuple[float, str]]) -> list[Markup]:
    """Those below the horizontal axis: every k-th, so that none lies on the next. On a telephone
    fewer have room than on a wide screen."""
    placed = [(axis.place(value), text) for value, text in texts]
    wide = _every(placed, WIDE_PX, 1)
    narrow = _every(placed, NARROW_PX, wide)
    return [
        _label(place, text, _anchor(place), "" if i % narrow == 0 else " roomy")
        for i, (place, text) in enumerate(placed)
        if i % wide == 0
    ]


def _every(placed: Sequence[tuple[float, str]], width: float, least: int) -> int:
    """The smallest multiple of ``least`` that leaves room between labels on so many pixels."""
    k = least
    while k < len(placed):
        shown = [_extent(place, text, width) for place, text in placed[::k]]
        if all(b[0] - a[1] >= GAP_PX for a, b in pairwise(shown)):
            break
        k += least
    return k


def _extent(place: float, text: str, width: float) -> tuple[float, float]:
    """Where a label begins and ends, in pixels."""
    at, long = (1 - GUTTER / 100) * width * place, CHARACTER_PX * len(text)
    return (at - long, at) if _anchor(place) == "end" else (at - long / 2, at + long / 2)


def _anchor(place: float) -> str:
    return "end" if place > 0.9 else "middle"


def _label(place: float, text: str, anchor: str, also: str = "") -> Markup:
    kind = f"tick across{also}"
    return tag("text", text, x=_across(place), y=BOTTOM + 20, class_=kind, text_anchor=anchor)


def _day(at: datetime | None, else_: str) -> str:
    return else_ if at is None else f"{at.day} {at:%b %Y}"
