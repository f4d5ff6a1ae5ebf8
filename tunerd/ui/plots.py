"""The plots of the pages, beside those of the report."""

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise

from markupsafe import Markup

from tunerd.events.printable import printable_value
from tunerd.queries.forecasts import SignalPlan
from tunerd.queries.job_views import JobRow
from tunerd.queries.views import GainBlock, MeasuredRow, RunPoint, StudyDetail
from tunerd.report.formatting import number, percent, percent_tick, plural, tick, value_text
from tunerd.report.svg import PlotAxis, linear_axis, log_axis, picture, tag

__all__ = [
    "band_plot",
    "forecast_plot",
    "gain_plot",
    "hour_text",
    "parallel_plot",
    "progress_plot",
    "share_bar",
    "slice_plot",
    "sparkline",
    "timeline_plot",
]

HEIGHT, TOP, BOTTOM = 230.0, 14.0, 196.0
GUTTER = 12.0
"""Per cent of the width at the left for the numbers of the upright axis."""
DOT = 3.5
SPARK_WIDTH, SPARK_HEIGHT = 96, 24
MOST_SLICES = 8
MOST_LINES = 60
LANES, LANE = 20.0, 26.0
"""Per cent of the width at the left for the names of lanes, and the height of one."""


def _x(place: float) -> str:
    return f"{GUTTER + (100 - GUTTER) * min(max(place, 0.0), 1.0):.3f}%"


def _y(axis: PlotAxis, value: float) -> float:
    return BOTTOM - (BOTTOM - TOP) * min(max(axis.place(value), -0.05), 1.05)


def _day(at: datetime, first: datetime, last: datetime) -> str:
    """A moment as short as the span around it allows."""
    if (last - first).total_seconds() < 2 * 86400:
        return f"{at:%d %b %H:%M}"
    return f"{at.day} {at:%b %Y}"


def gain_plot(blocks: Sequence[GainBlock]) -> Markup:
    """Mean gain of consecutive jobs, with the band of the mean."""
    measured = [(i, b) for i, b in enumerate(blocks) if b.gain is not None]
    values = [v for _, b in measured for v in (b.gain, b.low, b.high) if v is not None]
    low, high = min([*values, 0.0]), max([*values, 0.005])
    up = linear_axis(low, high, 4)
    count = max(len(blocks) - 1, 1)
    at = [(i / count, b) for i, b in measured]
    band = [(x, b.high) for x, b in at] + [(x, b.low) for x, b in reversed(at)]
    marks = _grid(up, [percent_tick(t) for t in up.ticks], zero=True)
    # A band of one colour as quadrilaterals: x is in per cent, which a path does not take.
    for (x1, a), (x2, b) in pairwise(at):
        marks += _between(up, x1, a, x2, b)
    line = [(_x(x), _y(up, b.gain or 0.0)) for x, b in at]
    marks += [
        tag("line", x1=a[0], y1=a[1], x2=b[0], y2=b[1], class_="line") for a, b in pairwise(line)
    ]
    marks += [
        tag(
            "circle",
            tag(
                "title",
                f"{plural(b.jobs, 'job')} until {b.last_at:%Y-%m-%d %H:%M}: {percent(b.gain)}",
            ),
            cx=_x(x),
            cy=_y(up, b.gain or 0.0),
            r=DOT if len(at) < 40 else 2.0,
            class_="mark",
        )
        for x, b in at
    ]
    first, last = blocks[0].first_at, blocks[-1].last_at
    marks += _ends(_day(first, first, last), _day(last, first, last))
    ends = (
        f"from {percent(measured[0][1].gain)} at first to {percent(measured[-1][1].gain)} at last"
    )
    jobs = plural(sum(b.jobs for b in blocks), "job")
    return (
        picture(
            "gain",
            "Gain over time",
            f"{jobs} in {plural(len(blocks), 'part')}: mean gain of their configurations over "
            f"what was launched first in their contexts, {ends}. The band is a 90 % interval.",
            HEIGHT,
            *marks,
        )
        if band
        else Markup("")
    )


def _between(up: PlotAxis, x1: float, a: GainBlock, x2: float, b: GainBlock) -> list[Markup]:
    """A strip of the band, in upright slices."""
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return []
    steps = 6
    marks = []
    for k in range(steps):
        share = (k + 0.5) / steps
        low, high = a.low + share * (b.low - a.low), a.high + share * (b.high - a.high)
        width = (100 - GUTTER) * (x2 - x1) / steps
        top, bottom = _y(up, high), _y(up, low)
        marks.append(
            tag(
                "rect",
                x=_x(x1 + (x2 - x1) * k / steps),
                y=top,
                width=f"{width + 0.02:.3f}%",
                height=max(bottom - top, 0.5),
                class_="band",
            )
        )
    return marks


def band_plot(blocks: Sequence[GainBlock]) -> Markup:
    """Share of jobs that failed, over time."""
    up = linear_axis(
        0.0, max([b.failed / b.jobs for b in blocks if b.jobs] + [0.05]), 4, margin=0.0
    )
    count = len(blocks)
    marks = _grid(up, [percent_tick(t) for t in up.ticks])
    for i, b in enumerate(blocks):
        share = b.failed / b.jobs if b.jobs else 0.0
        y = _y(up, share)
        title = (
            f"{b.failed} of {plural(b.jobs, 'job')} until {b.last_at:%Y-%m-%d %H:%M} did not run"
        )
        marks.append(
            tag(
                "rect",
                tag("title", title),
                x=_x((i + 0.1) / count),
                y=y,
                width=f"{0.8 * (100 - GUTTER) / count:.3f}%",
                height=max(BOTTOM - y, 0.0),
                class_="fails",
            )
        )
    first, last = blocks[0].first_at, blocks[-1].last_at
    marks += _ends(_day(first, first, last), _day(last, first, last))
    failed, jobs = sum(b.failed for b in blocks), sum(b.jobs for b in blocks)
    return picture(
        "failures",
        "Jobs that did not run, over time",
        f"{failed:,} of {plural(jobs, 'job')} did not run.",
        HEIGHT,
        *marks,
    )


def sparkline(values: Sequence[float], title: str) -> Markup:
    """The latest values, small."""
    known = [v for v in values if math.isfinite(v)]
    if len(known) < 2:
        return Markup("")
    low, high = min(known), max(known)
    span = (high - low) or 1.0
    step = (SPARK_WIDTH - 6) / (len(known) - 1)
    points = [
        (3 + i * step, 3 + (SPARK_HEIGHT - 6) * (1 - (v - low) / span)) for i, v in enumerate(known)
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return tag(
        "svg",
        tag("title", title),
        tag("polyline", points=line, class_="spark"),
        tag("circle", cx=points[-1][0], cy=points[-1][1], r=2.5, class_="mark"),
        class_="sparkline",
        role="img",
        width=SPARK_WIDTH,
        height=SPARK_HEIGHT,
    )


def share_bar(share: float, title: str, kind: str = "") -> Markup:
    """A share as a bar, in a row of a table."""
    return tag(
        "svg",
        tag("title", title),
        tag("rect", x=0, y=4, width="100%", height=8, rx=3, class_="rail"),
        tag(
            "rect",
            x=0,
            y=4,
            width=f"{100 * min(max(share, 0.0), 1.0):.2f}%",
            height=8,
            rx=3,
            class_=f"fill {kind}".strip(),
        ),
        class_="sharebar",
        role="img",
        width="100%",
        height=16,
    )


def slice_plot(name: str, rows: Sequence[MeasuredRow], parameter: str, title: str) -> Markup:
    """What configurations gave, by the value of one parameter."""
    measured = [
        row for row in rows if row.mean is not None and row.config.get(parameter) is not None
    ]
    texts = {value_text(row.config[parameter]): row.config[parameter] for row in measured}
    order = sorted(texts, key=lambda text: _sort_key(texts[text]))
    values = [row.mean for row in measured if row.mean is not None]
    up = (
        log_axis(min(values), max(values))
        if min(values) > 0
        else linear_axis(min(values), max(values))
    )
    marks = _grid(up, [tick(t) for t in up.ticks])
    places = {text: (i + 0.5) / len(order) for i, text in enumerate(order)}
    for row in measured:
        x = _x(places[value_text(row.config[parameter])])
        kind = "dot best" if row.role == "incumbent" else "dot"
        value = value_text(row.config[parameter])
        hint = f"{value}: {number(row.mean)} over {plural(row.runs, 'run')}"
        marks.append(
            tag(
                "circle",
                tag("title", hint),
                cx=x,
                cy=_y(up, row.mean or 0.0),
                r=DOT + (1.5 if row.role == "incumbent" else 0),
                class_=kind,
            )
        )
    k = max(1, -(-len(order) // 6))
    marks += [
        tag(
            "text",
            _short(text),
            x=_x(places[text]),
            y=BOTTOM + 20,
            class_="tick",
            text_anchor="middle",
        )
        for text in order[::k]
    ]
    return picture(
        name, title, f"{plural(len(measured), 'configuration')} by {parameter}.", HEIGHT, *marks
    )


def parallel_plot(rows: Sequence[MeasuredRow], parameters: Sequence[str]) -> Markup:
    """Configurations as lines over the parameters; the best ones stand out."""
    measured = [row for row in rows if row.mean is not None][:MOST_LINES]
    axes: list[tuple[str, dict[str, float], list[str]]] = []
    for name in parameters:
        texts = {
            value_text(row.config[name]): row.config[name] for row in measured if name in row.config
        }
        order = sorted(texts, key=lambda text: _sort_key(texts[text]))
        places = {t: (i / (len(order) - 1) if len(order) > 1 else 0.5) for i, t in enumerate(order)}
        axes.append((name, places, order))
    count = max(len(axes) - 1, 1)

    def across(i: int) -> str:
        return f"{6 + 88 * i / count:.3f}%"

    def upward(place: float) -> float:
        return BOTTOM - (BOTTOM - TOP - 24) * place

    marks: list[Markup] = []
    for rank, row in reversed(list(enumerate(measured))):
        kind = (
            "path best"
            if row.role == "incumbent"
            else "path good"
            if rank < len(measured) / 5
            else "path"
        )
        points = [
            (across(i), upward(places[value_text(row.config[name])]))
            for i, (name, places, _) in enumerate(axes)
            if name in row.config
        ]
        marks += [
            tag("line", x1=a[0], y1=a[1], x2=b[0], y2=b[1], class_=kind)
            for a, b in pairwise(points)
        ]
    for i, (name, places, order) in enumerate(axes):
        x = across(i)
        anchor = "start" if i == 0 else "end" if i == len(axes) - 1 else "middle"
        marks.append(tag("line", x1=x, y1=upward(0), x2=x, y2=upward(1), class_="zero"))
        marks.append(
            tag("text", _short(name, 14), x=x, y=TOP, class_="tick strong", text_anchor=anchor)
        )
        for text in {order[0], order[-1]} if order else ():
            y = upward(places[text]) + (16 if places[text] <= 0.5 else -4)
            marks.append(tag("text", _short(text), x=x, y=y, class_="tick", text_anchor=anchor))
    return picture(
        "parallel",
        "Configurations over the parameters",
        f"{plural(len(measured), 'configuration')}, each a line; the best fifth and the incumbent "
        "stand out. The table below has them as numbers.",
        HEIGHT + 6,
        *marks,
    )


def jobs_plot(rows: Sequence[JobRow]) -> Markup:
    """Jobs as they came: what came and the band that was predicted."""
    measured = [row for row in reversed(rows) if row.value is not None]
    ends = [
        v for r in measured for v in (r.value, r.low, r.high) if v is not None and math.isfinite(v)
    ]
    if len(measured) < 2:
        return Markup("")
    up = log_axis(min(ends), max(ends)) if min(ends) > 0 else linear_axis(min(ends), max(ends))
    marks = _grid(up, [tick(t) for t in up.ticks])
    for i, row in enumerate(measured):
        x = _x((i + 0.5) / len(measured))
        if row.low is not None and row.high is not None:
            marks.append(
                tag("line", x1=x, y1=_y(up, row.low), x2=x, y2=_y(up, row.high), class_="wick")
            )
        hint = f"{row.job_id}: {number(row.value)}, predicted {number(row.predicted)}"
        marks.append(
            tag(
                "circle",
                tag("title", hint),
                cx=x,
                cy=_y(up, row.value or 0.0),
                r=DOT,
                class_="mark",
            )
        )
    return picture(
        "latest",
        "The latest jobs",
        f"{plural(len(measured), 'job')}, the latest at the right: what came, and the band.",
        HEIGHT,
        *marks,
    )


def forecast_plot(name: str, signal: SignalPlan) -> Markup:
    """A signal's hours, a day back and two ahead: the band, its middle, and what came."""
    hours = [*signal.past[-24:], *signal.windows[:48]]
    values = [v for h in hours for v in (h.low, h.high, h.came) if v is not None]
    if not values:
        return Markup("")
    up = linear_axis(min([*values, 0.0]), max(values))
    marks = _grid(up, [tick(t) for t in up.ticks])
    for i, hour in enumerate(hours):
        x = _x((i + 0.5) / len(hours))
        marks.append(
            tag("line", x1=x, y1=_y(up, hour.low), x2=x, y2=_y(up, hour.high), class_="wick")
        )
        came = hour.came is not None
        value = hour.median if hour.came is None else hour.came
        band = f"{number(hour.low)} to {number(hour.high)}"
        hint = (
            f"{hour_text(hour.start_s)}: {number(value)} {'came' if came else 'foreseen'}, {band}"
        )
        dot = tag(
            "circle",
            tag("title", hint),
            cx=x,
            cy=_y(up, value),
            r=DOT if came else DOT / 2,
            class_="mark",
        )
        marks.append(dot)
    return picture(
        name,
        "The signal by the hour",
        "A line is the band that holds 80 %. A large dot is what came, a small one the middle of"
        " what is foreseen.",
        HEIGHT,
        *marks,
    )


def hour_text(seconds: float) -> str:
    """The beginning of an hour, in UTC."""
    return f"{datetime.fromtimestamp(seconds, UTC):%a %H:%M}"


def progress_plot(runs: Sequence[RunPoint], goal: str, name: str = "progress") -> Markup:
    """Every run in the order in which it came, and the best so far; rounds of a campaign begin at
    upright lines, as in Figure 2a of the CubicML paper."""
    known = [run for run in runs if math.isfinite(run.value)]
    if len(known) < 5:
        return Markup("")
    values = [run.value for run in known]
    up = log_axis(min(values), max(values)) if min(values) > 0 else linear_axis(*_ends_of(values))
    marks = _grid(up, [tick(t) for t in up.ticks])
    marks += _rounds(known)
    better = max if goal == "maximize" else min
    best, count = values[0], len(known)
    for i, run in enumerate(known):
        best, before = better(best, run.value), best
        x, y = _x((i + 0.5) / count), _y(up, best)
        if i:
            left = _x((i - 0.5) / count)
            marks.append(
                tag("line", x1=left, y1=_y(up, before), x2=x, y2=_y(up, before), class_="line")
            )
            if best != before:
                marks.append(tag("line", x1=x, y1=_y(up, before), x2=x, y2=y, class_="line"))
        hint = f"job {run.sequence:,}{_round_text(run.round, ', ')}: {number(run.value)}"
        kind = "dot" if run.round is None else "dot start" if run.round == 0 else "dot asked"
        marks.append(
            tag("circle", tag("title", hint), cx=x, cy=_y(up, run.value), r=2.5, class_=kind)
        )
    marks += _ends(f"job {known[0].sequence:,}", f"job {known[-1].sequence:,}")
    return picture(
        name,
        "Every run, and the best so far",
        f"{plural(count, 'run')} in the order in which they came, from {number(values[0])}; the "
        f"best so far ends at {number(best)}.",
        HEIGHT,
        *marks,
    )


def _rounds(runs: Sequence[RunPoint]) -> list[Markup]:
    """Where each round's first run is."""
    marks: list[Markup] = []
    latest = -1
    for i, run in enumerate(runs):
        if run.round is None or run.round <= latest:
            continue
        latest = run.round
        x = _x(i / len(runs))
        marks.append(tag("line", x1=x, y1=TOP - 4, x2=x, y2=BOTTOM, class_="round"))
        label = "start" if latest == 0 else str(latest)
        marks.append(tag("text", label, x=x, y=TOP + 6, dx=4, class_="tick"))
    return marks


def _round_text(round_: int | None, before: str) -> str:
    if round_ is None:
        return ""
    return before + ("random start" if round_ == 0 else f"round {round_}")


def timeline_plot(view: StudyDetail) -> Markup:
    """Drift, models, generations of the study and commands on one line of time each.

    Full marks are what took effect: a model that serves since, a command that was carried out.
    """
    lanes = _timeline_lanes(view)
    moments = [at for _, marks in lanes for at, _, _ in marks]
    if len(moments) < 2 or (first := min(moments)) == (last := max(moments)):
        return Markup("")
    span = (last - first).total_seconds()
    marks: list[Markup] = []
    for lane, (name, events) in enumerate(lanes):
        y = TOP + 10 + LANE * lane
        marks.append(tag("text", name, x="0%", y=y + 4, class_="tick"))
        marks.append(tag("line", x1=f"{LANES}%", y1=y, x2="99%", y2=y, class_="grid"))
        for at, text, took_effect in events:
            place = (at - first).total_seconds() / span
            marks.append(
                tag(
                    "circle",
                    tag("title", f"{at:%Y-%m-%d %H:%M}: {text}"),
                    cx=f"{LANES + (99 - LANES) * place:.3f}%",
                    cy=y,
                    r=DOT + 1,
                    class_="mark" if took_effect else "ring",
                )
            )
    foot = TOP + 10 + LANE * len(lanes)
    marks += [
        tag("text", _day(first, first, last), x=f"{LANES}%", y=foot, class_="tick"),
        tag("text", _day(last, first, last), x="99%", y=foot, class_="tick", text_anchor="end"),
    ]
    counts = ", ".join(f"{name}: {len(events)}" for name, events in lanes)
    return picture("timeline", "What changed, over time", f"{counts}.", foot + 8, *marks)


def _timeline_lanes(view: StudyDetail) -> list[tuple[str, list[tuple[datetime, str, bool]]]]:
    status = view.status
    drift = [(note["noticed"]["finished_at"], note["message"], True) for note in status["drift"]]
    drift += [(note["at"], note["message"], True) for note in status["given_up"]]
    models = [(m["decided_at"], f"version {m['version']}", m["took_over"]) for m in view.models]
    generations = [
        (g["published_at"], f"generation {g['generation']}", True) for g in view.generations
    ]
    commands = [(c["at"], f"{c['command']}, {c['who']}", bool(c["result"])) for c in view.commands]
    lanes = {"drift": drift, "models": models, "study": generations, "commands": commands}
    return [(name, [_event(*item) for item in events if item[0]]) for name, events in lanes.items()]


def _event(at: datetime | str, text: str, took_effect: bool) -> tuple[datetime, str, bool]:
    moment = datetime.fromisoformat(at) if isinstance(at, str) else at
    return moment, str(printable_value(text))[:300], took_effect


def _ends_of(values: Sequence[float]) -> tuple[float, float]:
    return min(values), max(values)


def varying(rows: Sequence[MeasuredRow]) -> list[str]:
    """Parameters that differ among configurations, those with most values first."""
    values_of: dict[str, set[str]] = {}
    for row in rows:
        if row.mean is not None:
            for name, value in row.config.items():
                values_of.setdefault(name, set()).add(value_text(value))
    names = [name for name, values in values_of.items() if len(values) > 1]
    return sorted(names, key=lambda name: -len(values_of[name]))[:MOST_SLICES]


def _sort_key(value: object) -> tuple[int, float, str]:
    if isinstance(value, bool | int | float):
        return (0, float(value), "")
    return (1, 0.0, str(value))


def _short(text: str, most: int = 10) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _grid(axis: PlotAxis, texts: Sequence[str], *, zero: bool = False) -> list[Markup]:
    marks = []
    for value, text in zip(axis.ticks, texts, strict=True):
        y = _y(axis, value)
        kind = "zero" if zero and value == 0 else "grid"
        marks.append(tag("line", x1=_x(0.0), y1=y, x2="100%", y2=y, class_=kind))
        marks.append(tag("text", text, x="0%", y=y + 4, class_="tick"))
    return marks


def _ends(first: str, last: str) -> list[Markup]:
    return [
        tag("text", first, x=_x(0.0), y=BOTTOM + 22, class_="tick", text_anchor="start"),
        tag("text", last, x="100%", y=BOTTOM + 22, class_="tick", text_anchor="end"),
    ]


def by_name(rows: Mapping[str, int]) -> list[tuple[str, int, float]]:
    """Name, count and share of all."""
    total = sum(rows.values()) or 1
    return [(name, count, count / total) for name, count in rows.items()]
