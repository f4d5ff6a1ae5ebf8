"""The tables of ``tunerd explain`` for a person."""

from collections.abc import Iterator
from math import expm1

from rich import box
from rich.bar import Bar
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tunerd.events.printable import printable
from tunerd.queries.explanation import (
    CandidateExplanation,
    GlobalExplanation,
    ParameterContribution,
    PrequentialAccuracy,
    RecommendationExplanation,
    StudyExplanation,
)
from tunerd.report.formatting import context_label, percent, plural, value_text
from tunerd.report.formatting import gain_text as predicted_gain

__all__ = ["AGAINST", "change_text", "gain_text", "show", "size"]

WIDTH = 100
"""Where there is no terminal."""
BAR = 24
LONG = 30
MOST_ROWS = 40
AGAINST = {
    "incumbent": "the incumbent",
    "baseline": "the baseline",
    "random": "feasible configurations drawn at random",
}


def show(made: StudyExplanation, console: Console | None = None) -> None:
    """Print it."""
    console = console or Console(highlight=False)
    if not console.is_terminal:
        console = Console(width=WIDTH, file=console.file, highlight=False)
    console.print(Group(*_parts(made)))


def size(made: StudyExplanation, score: float) -> str:
    """A score difference for a person: in per cent where scores are logarithms."""
    return _number(made, score) if made.ratios else f"{_number(made, score)} {made.unit}".strip()


def gain_text(made: StudyExplanation, one: ParameterContribution | CandidateExplanation) -> str:
    """A gain for a person: in the objective's unit where it is a share of nothing."""
    if one.gain is not None:
        return percent(one.gain)
    return f"{one.score:+.4g} {made.unit}".replace("-", "−").strip()


def _number(made: StudyExplanation, score: float) -> str:
    return f"{expm1(score):.1%}" if made.ratios else f"{score:.4g}"


def _parts(made: StudyExplanation) -> Iterator[RenderableType]:
    model = made.model
    yield Text.assemble(
        (made.study, "bold"),
        f": {made.metric}, by {model.predictor} after {model.jobs:,} jobs "
        f"(generation {model.generation})",
    )
    if made.overall is not None:
        yield from _overall(made, made.overall)
    if made.recommendation is not None:
        yield from _recommendation(made, made.recommendation)


def _overall(made: StudyExplanation, overall: GlobalExplanation) -> Iterator[RenderableType]:
    permuted = overall.method == "permutation"
    table = Table(box=box.SIMPLE_HEAD)
    # Where it is narrow the bars are shorter, and names stay whole.
    longest = max(
        (len(printable(feature.name)) for feature in overall.matters[:MOST_ROWS]), default=0
    )
    table.add_column("", no_wrap=longest <= LONG)
    table.add_column("kind", no_wrap=True)
    unit = "" if made.ratios or not made.unit else f"\n{made.unit}"
    table.add_column(("error rises by" if permuted else "moves it by") + unit, justify="right")
    table.add_column("share", justify="right")
    table.add_column("", max_width=BAR)
    if permuted:
        table.add_column("τ falls by", justify="right")
    fails = permuted and any((feature.feasible or 0.0) >= SEEN for feature in overall.matters)
    if fails:
        table.add_column("chance to run\nmoves by", justify="right")
    most = max((feature.share for feature in overall.matters), default=1.0) or 1.0
    row: list[RenderableType]
    for feature in overall.matters[:MOST_ROWS]:
        bar = Bar(most, 0.0, feature.share)
        importance = _number(made, feature.importance)
        name = Text(printable(feature.name), overflow="fold")
        row = [name, feature.group, importance, f"{feature.share:.0%}", bar]
        if permuted:
            row.append("" if feature.kendall_tau is None else f"{feature.kendall_tau:.3f}")
        if fails:
            row.append("" if feature.feasible is None else f"{feature.feasible:.1%}")
        table.add_row(*row)
    if others := overall.matters[MOST_ROWS:]:
        importance = _number(made, sum(feature.importance for feature in others))
        share = sum(feature.share for feature in others)
        bar = Bar(most, 0.0, min(share, most))
        table.add_row(f"and {len(others):,} more", "together", importance, f"{share:.0%}", bar)
    yield table
    tau = "" if overall.kendall_tau is None else f", τ within contexts {overall.kendall_tau:.3f}"
    jobs = f"{plural(overall.jobs, 'job')} in {plural(overall.contexts, 'context')}"
    learned = "jobs that it has learned, so new ones are told less well"
    yield Text(f"On {jobs} it is {size(made, overall.error)} off{tau}: {learned}.", style="dim")
    yield _beforehand(overall.beforehand)
    if permuted:
        where = "the jobs of a context" if overall.within_contexts else "all jobs"
        how = f"Parameters were shuffled among {where}, context features among all jobs."
    else:
        how = "SHAP: by how much a value moves a prediction, on average."
    yield Text(how, style="dim")


def _beforehand(told: PrequentialAccuracy | None) -> Text:
    """What the model knows of jobs that it has not learned. Of those that it has, it also tells
    noise well."""
    if told is None:
        return Text(
            "How well it tells new ones nobody knows yet: no context has enough of the latest jobs "
            "that were predicted before they were learned.",
            style="yellow",
        )
    jobs = f"{told.jobs:,} {'imported ' if told.imported else ''}jobs"
    tau = f"{told.kendall_tau:.3f}".replace("-", "−")
    sentence = f"On the latest {jobs}, predicted before they were learned, τ is {tau}"
    if not told.chance:
        return Text(f"{sentence}.", style="dim")
    return Text(
        f"{sentence}: chance would do as well. Nobody knows yet whether the model tells which "
        "configuration is better, and what the table says may be noise.",
        style="yellow",
    )


def _recommendation(
    made: StudyExplanation, told: RecommendationExplanation
) -> Iterator[RenderableType]:
    values = {k: printable(v) if isinstance(v, str) else v for k, v in told.context.items()}
    label = context_label(printable(told.context_key), values)
    yield Text(f"{told.recommendation_id}, {told.state}, for {label}")
    yield Text(printable(told.reason))
    if not made.model.same:
        yield Text(
            "The model that made it cannot be read any more: this is what the present one says.",
            style="yellow",
        )
    if not told.candidates:
        yield Text("\nIt has no candidates: there is nothing to explain.")
    for candidate in told.candidates:
        yield from _candidate(made, told, candidate)
    if any(not candidate.exact for candidate in told.candidates):
        yield Text("Of many changes, orders were sampled: always the same ones.", style="dim")


def _candidate(
    made: StudyExplanation, told: RecommendationExplanation, one: CandidateExplanation
) -> Iterator[RenderableType]:
    head = Text.assemble(f"\n{one.rank}. ", (one.kind, "bold"), f" {one.candidate_id}: ")
    if one.said_gain is not None:
        head.append(f"said {predicted_gain(one.said_gain, one.said_gain_low)}, ")
    head.append(f"{gain_text(made, one)} against {AGAINST[told.against]} by the model alone; ")
    head.append(f"runs with {one.feasible:.0%}, there {one.feasible_before:.0%}")
    yield head
    if not one.changes:
        yield Text("   It is the same configuration.")
        return
    table = Table(box=None, pad_edge=False, show_header=True, header_style="dim")
    for name, right in (("   change", False), ("gain", True), ("chance to run", True), ("", False)):
        table.add_column(name, justify="right" if right else "left")
    most = max(abs(change.score) for change in one.changes) or 1.0
    for change in one.changes:
        bar = "█" * round(BAR * abs(change.score) / most)
        style = "green" if change.score > 0 else "red"
        feasible = percent(change.feasible) if abs(change.feasible) >= SEEN else ""
        table.add_row(
            Padding.indent(Text(printable(change_text(change)), overflow="fold"), 3),
            gain_text(made, change),
            feasible,
            Text(bar, style),
        )
    yield table


SEEN = 5e-4
"""Moves of the chance to run below this are not shown."""


def change_text(one: ParameterContribution) -> str:
    """A change: name: old → new."""
    new = value_text(one.new)
    return (
        f"{one.parameter} = {new}"
        if one.old is None
        else (f"{one.parameter}: {value_text(one.old)} → {new}")
    )
