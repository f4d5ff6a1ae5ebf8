"""How the report says things to a person: the same words in terminal, page and JSON."""

import math
from collections.abc import Mapping
from itertools import groupby
from urllib.parse import unquote

from tunerd.core.observation import Scalar, Value
from tunerd.core.percent import gain_text, percent
from tunerd.report.model import (
    CandidateSummary,
    CounterfactualGain,
    ImportedSummary,
    JobCounts,
    ReportContext,
    ReportInterval,
    ReportQuality,
    Verdict,
)

__all__ = [
    "STATES",
    "TRIED",
    "VERDICTS",
    "beyond",
    "changes",
    "changes_text",
    "config_text",
    "context_label",
    "gain_text",
    "headline",
    "jobs_text",
    "number",
    "percent",
    "percent_tick",
    "plural",
    "range_text",
    "rounded",
    "sentence",
    "span",
    "tick",
    "value_text",
]

VERDICTS: Mapping[Verdict, str] = {
    "shown": "shown by jobs",
    "likely": "likely",
    "untested": "not enough to say",
    "small": "nothing worth mentioning",
    "unclear": "not enough to say",
    "worse": "would have cost",
}
STATES = {
    "active": "recommended",
    "pending": "waits for approval",
    "observed": "observed, said to nobody",
    "withdrawn": "withdrawn",
    "declined": "declined",
    "dropped": "taken back",
}
"""Of what is told of a context."""
TRIED = {"exploit": "recommended", "explore": "to learn from", "confirm": "to test again"}
"""Of a candidate beside what is best known, by its kind."""


def number(value: float | None) -> str:
    """A metric, or hours: four digits, thousands apart."""
    if value is None or not math.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    if abs(value) >= 1e12 or abs(value) < 1e-3:
        return f"{value:.4g}".replace("e+", "e").replace("-", "−")
    digits = max(3 - math.floor(math.log10(abs(value))), 0)
    return f"{value:,.{digits}f}".replace("-", "−")


def rounded(value: float | None) -> str:
    """An amount that is known roughly: three digits."""
    if value is None or not math.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    digits = 2 - math.floor(math.log10(abs(value)))
    if not -10 <= digits <= 5:
        return number(value)
    return f"{round(value, digits):,.{max(digits, 0)}f}".replace("-", "−")


def tick(value: float) -> str:
    """A number on an axis: as short as it can be."""
    if abs(value) >= 1e7 or (value and abs(value) < 1e-3):
        return f"{value:g}".replace("e+0", "e").replace("e+", "e").replace("-", "−")
    return f"{value:,.6f}".rstrip("0").rstrip(".").replace("-", "−")


def percent_tick(value: float) -> str:
    """A share on an axis."""
    return f"{100 * value:.6g}%".replace("-", "−")


def span(range_: ReportInterval | None) -> str:
    """The interval of a gain: +1.1% to +6.3%."""
    if range_ is None or range_.low is None or range_.high is None:
        return "–"
    return f"{percent(range_.low)} to {percent(range_.high)}"


def plural(count: int, noun: str) -> str:
    """1 job, 1,234 jobs."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def value_text(value: Value) -> str:
    """A parameter's value; a list as runs of equal values: FULL_SHARD×6, NO_SHARD×2."""
    if not isinstance(value, list):
        return _scalar(value)
    runs = [(entry, len(list(group))) for entry, group in groupby(value)]
    return ", ".join(
        f"{_scalar(entry)}×{count}" if count > 1 else _scalar(entry) for entry, count in runs
    )


def jobs_text(context: ReportContext) -> str:
    """How many jobs a context had."""
    if not context.imported:
        return plural(context.jobs, "job")
    imported = plural(context.imported, "imported job")
    return f"{plural(context.jobs, 'job')}, {imported}" if context.jobs else imported


def config_text(config: Mapping[str, Value]) -> str:
    """A configuration on a line."""
    return "  ".join(f"{name}={value_text(value)}" for name, value in config.items())


def changes(
    config: Mapping[str, Value], before: Mapping[str, Value]
) -> list[tuple[str, Value, Value]]:
    """Name, value and former value of what differs; everything when there was nothing before."""
    return [
        (name, value, before.get(name))
        for name, value in config.items()
        if name not in before or before[name] != value
    ]


def changes_text(config: Mapping[str, Value], before: Mapping[str, Value]) -> str:
    """What a configuration changes, on a line."""
    if not before:
        return config_text(config)
    changed = changes(config, before)
    if not changed:
        return "the same"
    return "  ".join(
        f"{name}={value_text(value)}" + (f" (was {value_text(old)})" if name in before else "")
        for name, value, old in changed
    )


def range_text(range_: ReportInterval | None) -> str:
    """A figure and its interval: 0.71 (0.65 to 0.77)."""
    if range_ is None:
        return "–"
    if range_.low is None or range_.high is None:
        return f"{range_.value:.2f}"
    return f"{range_.value:.2f} ({range_.low:.2f} to {range_.high:.2f})"


def context_label(key: str, values: Mapping[str, Scalar]) -> str:
    """A context for a person: its values, else what its key says."""
    if not values:
        parts = (part.partition("=") for part in key.split("|")[1:])
        pairs = [(name, "–" if value == "~" else unquote(value)) for name, _, value in parts]
    else:
        pairs = [(name, _scalar(value)) for name, value in values.items()]
    # No break between a name and its value.
    return ", ".join(f"{name}\u00a0{value}" for name, value in pairs) or "any"


def sentence(would: CounterfactualGain) -> str:
    """What a counterfactual comes to, and how sure it is."""
    who = f"the {plural(would.jobs, 'job')} that ran something else"
    if would.verdict == "untested":
        return (
            f"Not enough to say what {who} would have gained with the best configuration already "
            f"known in their context: tunerd predicts {percent(would.predicted)}, but no job has "
            "run it since, and too few were predicted nearly as good."
        )
    assert would.gain is not None
    sure = f"{percent(would.gain.value)} ({span(would.gain)}, 90% sure)"
    if would.verdict == "unclear":
        return (
            f"Not enough to say what {who} would have gained with the best configuration already "
            f"known in their context: {sure}."
        )
    if would.verdict == "small":
        return (
            f"Nothing worth mentioning to gain with what is known: the best configuration known in "
            f"their context would have brought {who} {sure}."
        )
    if would.verdict == "worse":
        return (
            f"The best configuration known in their context would have cost {who}: {sure}. They "
            "ran something better."
        )
    why = (
        f"{plural(would.matched, 'job')} that did run it bear this out."
        if would.verdict == "shown"
        else "Hardly any ran just that; of what was predicted for jobs nearly as good, "
        f"{_came_true(would)}."
    )
    return (
        f"Had {who} run the best configuration already known in their context, they would have "
        f"gained {sure}{_hours(would)}. {why}"
    )


def _came_true(would: CounterfactualGain) -> str:
    share = would.came_true.value if would.came_true else None
    came = f"{percent(share, sign=False, digits=0)} came true"
    return came if share is not None and share >= 0.995 else f"{came}, and the rest is taken off"


def beyond(candidates: CandidateSummary) -> str:
    """What lies beyond what has been run."""
    if not candidates.tried:
        return (
            "Beyond what has been run, tunerd predicts "
            f"{percent(candidates.predicted)} over the best known for the first candidates of its "
            "search. Nobody knows whether that is so: a search picks what is overrated, and no job "
            "has run one because it was told to. A campaign, or a small share of the jobs, would "
            "tell."
        )
    tried = plural(candidates.tried, "job")
    came = (
        f"came out {percent(candidates.came.value)} ({span(candidates.came)})"
        if candidates.came
        else "are too few to say what came of it"
    )
    ran = f"{candidates.tried_ran:,} of the {candidates.tried_said:,} that tell ran"
    return (
        f"Beyond the best known: {tried} tried a candidate of the search that was predicted "
        f"{percent(candidates.tried_predicted)} over it on average; {ran}, and they {came}."
    )


def _hours(would: CounterfactualGain) -> str:
    if would.gpu_hours is None or not would.gpu_hours_of:
        return ""
    return f", about {rounded(would.gpu_hours.value)} of {rounded(would.gpu_hours_of)} GPU-hours"


def headline(
    counts: JobCounts,
    would: CounterfactualGain | None,
    quality: ReportQuality | None,
    past: ImportedSummary | None,
) -> str:
    """The answer in a sentence."""
    if not counts.jobs:
        return f"No jobs came in this time.{_imported(past)}"
    if not counts.predicted:
        few = "Too few jobs with an objective came in this time to predict any beforehand."
        return f"{few}{_imported(past)}"
    if would is None:
        followed = "followed what was recommended, " if counts.following.get("followed") else ""
        known = (
            f"Nearly all jobs {followed}ran the best configuration that is known in their context, "
            "or none is known yet: nothing to gain that has been seen."
        )
        return f"{known}{_imported(past)}" if quality is None else known
    return would.sentence


def _imported(past: ImportedSummary | None) -> str:
    if past is None or past.quality is None:
        return ""
    error = percent(past.quality.median_error, sign=False)
    ranks = past.quality.kendall
    ranks_text = f", rank correlation {ranks.value:.2f}" if ranks else ""
    return (
        f" Of {plural(past.jobs, 'imported job')}, {past.predicted:,} were predicted before they "
        f"were learned: typical error {error}{ranks_text}."
    )


def _scalar(value: Scalar) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.6g}".replace("e+", "e")
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 100_000 else str(value)
    return value
