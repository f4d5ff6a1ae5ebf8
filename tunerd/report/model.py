"""The report as values: the JSON of ``tunerd report``, described by ``tunerd schema report``.

Gains are relative, 0.042 is 4.2 % better whatever the goal; metrics are in the objective's unit;
what cannot be said is null.
"""

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from tunerd.core.observation import Scalar, Value

__all__ = [
    "REPORT_SCHEMA",
    "CandidateSummary",
    "CounterfactualGain",
    "FollowerGains",
    "ImportedSummary",
    "JobCounts",
    "ReportAdvice",
    "ReportCandidate",
    "ReportComparison",
    "ReportContext",
    "ReportGainBin",
    "ReportIncumbent",
    "ReportInterval",
    "ReportObjective",
    "ReportPeriod",
    "ReportPoint",
    "ReportQuality",
    "ReportReliability",
    "ReportReliabilityBin",
    "StudyReport",
    "Verdict",
    "report_json",
    "report_schema",
]

REPORT_SCHEMA: Literal["tunerd.report/1"] = "tunerd.report/1"

Verdict = Literal["shown", "likely", "untested", "small", "unclear", "worse"]
"""How sure a gain is; the words are in :mod:`tunerd.report.formatting`."""


class ReportInterval(msgspec.Struct, frozen=True):
    """An estimate with its 90 % interval."""

    value: float
    low: float | None
    high: float | None


class ReportObjective(msgspec.Struct, frozen=True, kw_only=True):
    """What is made better."""

    metric: str
    goal: Literal["maximize", "minimize"]
    unit: str


class JobCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The live jobs of the window."""

    jobs: int
    contexts: Annotated[int, Meta(description="Different contexts that they came from.")]
    predicted: Annotated[
        int, Meta(description="With an objective, and predicted before they were learned.")
    ]
    did_not_run: Annotated[
        int, Meta(description="That say that their configuration does not run, or may not.")
    ]
    said_nothing: Annotated[
        int, Meta(description="Without an objective, and for a reason outside (preempted, …).")
    ]
    following: Annotated[
        dict[str, int],
        Meta(description="By what they did with advice: followed, changed, ignored, unasked."),
    ]
    gpu_hours: Annotated[float | None, Meta(description="Of the jobs whose events tell.")]
    gpu_hours_jobs: Annotated[int, Meta(description="How many jobs that are.")]
    first_at: datetime | None
    last_at: datetime | None
    left_out: Annotated[int, Meta(description="Earlier jobs of the window that are not looked at.")]


class ReportIncumbent(msgspec.Struct, frozen=True, kw_only=True):
    """The best configuration by evidence in a context."""

    config: dict[str, Value]
    median: float
    low: float
    high: float
    jobs: Annotated[int, Meta(description="That the estimate rests on.")]


class ReportCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """The first configuration that tunerd would try."""

    config: dict[str, Value]
    kind: Literal["exploit", "explore", "confirm"]
    share: Annotated[float, Meta(description="Of the coming jobs.")]
    wanted: Annotated[int, Meta(description="Runs asked for in a profiling round.")]
    median: float | None
    low: Annotated[float | None, Meta(description="Lower end of the 80 % band.")]
    high: float | None
    feasible: Annotated[float | None, Meta(description="Probability to run.")]
    gain: Annotated[float | None, Meta(description="Predicted, over the incumbent.")]
    gain_low: Annotated[float | None, Meta(description="At the bad end of the band.")]


class ReportAdvice(msgspec.Struct, frozen=True, kw_only=True):
    """What is, or would be, recommended in a context now."""

    state: Annotated[
        str,
        Meta(description="observed: said to nobody; pending: waits for approval; active; …"),
    ]
    issued_at: datetime
    reason: str
    incumbent: ReportIncumbent | None
    baseline: dict[str, Value] | None
    candidate: ReportCandidate | None
    candidates: Annotated[int, Meta(description="How many there are.")]


class ReportContext(msgspec.Struct, frozen=True, kw_only=True):
    """One context."""

    key: str
    values: dict[str, Scalar]
    jobs: int
    imported: Annotated[int, Meta(description="Imported jobs, where those are shown.")]
    elsewhere: Annotated[
        int, Meta(description="Jobs that ran something else than the best known configuration.")
    ]
    matched: Annotated[int, Meta(description="Jobs that ran it, by following or by coincidence.")]
    predicted: Annotated[float | None, Meta(description="Predicted gain of the jobs elsewhere.")]
    gain: Annotated[
        ReportInterval | None,
        Meta(description="What they would have gained, corrected by what came."),
    ]
    gpu_hours: Annotated[ReportInterval | None, Meta(description="That this would have saved.")]
    advice: ReportAdvice | None


class ReportGainBin(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that were predicted to differ about alike from others of their context and time."""

    jobs: int
    predicted: Annotated[float, Meta(description="Mean gain over those others, as predicted.")]
    came: Annotated[ReportInterval, Meta(description="As it came.")]


class CounterfactualGain(msgspec.Struct, frozen=True, kw_only=True):
    """What the jobs would have gained that ran something else than the best known configuration
    of their context at that moment."""

    verdict: Annotated[
        Verdict,
        Meta(
            description="shown: other jobs ran it and bear it out; likely: by the predictor, "
            "which was right about jobs predicted nearly as good; untested: neither; small: less "
            "than 1 %; unclear: not enough to say; worse: it would have cost."
        ),
    ]
    sentence: Annotated[str, Meta(description="The same for a person.")]
    jobs: Annotated[int, Meta(description="That ran something else.")]
    of: Annotated[int, Meta(description="Jobs that did not follow, and can be judged.")]
    matched: Annotated[int, Meta(description="That ran it, by following or by coincidence.")]
    compared: Annotated[
        float, Meta(description="Of these, as far as there are others to compare them with.")
    ]
    near: Annotated[int, Meta(description="Jobs that were predicted nearly as good.")]
    predicted: Annotated[float | None, Meta(description="Gain as predicted.")]
    came_true: Annotated[
        ReportInterval | None,
        Meta(description="Share of predicted differences that came true; 1 is all."),
    ]
    gain: Annotated[
        ReportInterval | None,
        Meta(description="Mean gain of these jobs, corrected by what came; null when untested."),
    ]
    above_zero: Annotated[float | None, Meta(description="Probability that it is above zero.")]
    gpu_hours: Annotated[
        ReportInterval | None,
        Meta(description="That would have been saved, if the objective is a speed or a time."),
    ]
    gpu_hours_of: Annotated[float | None, Meta(description="GPU-hours of the jobs that tell.")]
    steps: Annotated[
        list[ReportGainBin],
        Meta(description="What became of predicted differences, worst to best."),
    ]


class CandidateSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What lies beyond the best known: candidates that a search picked. Gains over the best known
    configuration of that moment."""

    sentence: Annotated[str, Meta(description="The same for a person.")]
    jobs: Annotated[int, Meta(description="That came while a first candidate was thought better.")]
    predicted: Annotated[float | None, Meta(description="Mean predicted gain of those candidates.")]
    feasible: Annotated[float | None, Meta(description="Their mean probability to run.")]
    tried: Annotated[
        int, Meta(description="Jobs that were told to run a candidate thought better, and did.")
    ]
    tried_said: Annotated[int, Meta(description="Of these, that say whether it runs.")]
    tried_ran: int
    tried_predicted: Annotated[
        float | None, Meta(description="Mean predicted gain of those tried.")
    ]
    came: Annotated[
        ReportInterval | None,
        Meta(description="What came of it; null when too few can be compared."),
    ]


class ReportComparison(msgspec.Struct, frozen=True, kw_only=True):
    """Some jobs beside others of their context and time that did not follow."""

    jobs: int
    compared: Annotated[
        float, Meta(description="Of these, as far as there are others to compare them with.")
    ]
    gain: Annotated[ReportInterval | None, Meta(description="Null when there are too few.")]


class FollowerGains(msgspec.Struct, frozen=True, kw_only=True):
    """What jobs that followed came out with."""

    kept: Annotated[ReportComparison, Meta(description="Those told to keep to the best known.")]
    tried: Annotated[
        ReportComparison,
        Meta(description="Those told to try a candidate, to learn or because it looked better."),
    ]


class ReportPeriod(msgspec.Struct, frozen=True, kw_only=True):
    """Consecutive jobs."""

    since: Annotated[datetime | None, Meta(description="Null for imported jobs without dates.")]
    until: datetime | None
    jobs: int
    error: Annotated[float | None, Meta(description="Median absolute error, relative.")]
    kendall: float | None
    coverage: float


class ReportPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One job, for the plot."""

    predicted: float
    actual: float
    held: Annotated[bool, Meta(description="Whether it fell into the predicted band.")]


class ReportQuality(msgspec.Struct, frozen=True, kw_only=True):
    """How well jobs were predicted before they were learned."""

    jobs: int
    kendall: Annotated[
        ReportInterval | None,
        Meta(
            description="Kendall's tau-b within contexts of eight jobs or more; of two, where there"
            " is none and these have a hundred together."
        ),
    ]
    spearman: ReportInterval | None
    mape: Annotated[float | None, Meta(description="Mean absolute error, relative.")]
    median_error: Annotated[float | None, Meta(description="Median absolute error, relative.")]
    coverage: Annotated[
        ReportInterval,
        Meta(description="Share of jobs that fell into their band, which promises 0.8."),
    ]
    half_width: Annotated[float | None, Meta(description="Typical half width of a band, relative.")]
    periods: list[ReportPeriod]
    points: list[ReportPoint]


class ReportReliabilityBin(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that were given about the same probability to run."""

    low: float
    high: float
    jobs: int
    predicted: Annotated[float, Meta(description="Their mean probability.")]
    observed: Annotated[ReportInterval, Meta(description="Share of them that ran.")]


class ReportReliability(msgspec.Struct, frozen=True, kw_only=True):
    """How the probability to run turned out."""

    jobs: Annotated[int, Meta(description="That say whether their configuration runs.")]
    ran: int
    brier: Annotated[float, Meta(description="Mean squared error; 0 is perfect.")]
    plain: Annotated[float, Meta(description="That of always saying the share that ran.")]
    bins: list[ReportReliabilityBin]


class ImportedSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Imported jobs, predicted in the order in which they were imported."""

    jobs: int
    contexts: int
    predicted: int
    first_at: Annotated[datetime | None, Meta(description="Null for jobs without dates.")]
    last_at: datetime | None
    left_out: int
    quality: ReportQuality | None
    fresh: Annotated[ReportQuality | None, Meta(description="New configurations alone, as above.")]
    reliability: ReportReliability | None


class StudyReport(msgspec.Struct, frozen=True, kw_only=True):
    """What tunerd saw of a study, and what it would have done about it."""

    schema: Literal["tunerd.report/1"] = REPORT_SCHEMA
    study: str
    mode: Literal["observe", "approve", "publish"]
    generation: int
    objective: ReportObjective
    made_at: datetime
    since: datetime
    until: datetime
    tunerd: Annotated[str, Meta(description="Version.")]
    headline: Annotated[str, Meta(description="The answer in a sentence.")]
    counts: JobCounts
    would: Annotated[CounterfactualGain | None, Meta(description="What people would have gained.")]
    candidates: CandidateSummary | None
    followed: FollowerGains | None
    quality: ReportQuality | None
    fresh: Annotated[
        ReportQuality | None,
        Meta(description="Of jobs alone whose configuration was new to their context."),
    ]
    reliability: ReportReliability | None
    contexts: Annotated[list[ReportContext], Meta(description="Those with most jobs first.")]
    contexts_total: int
    history: ImportedSummary | None
    notes: Annotated[list[str], Meta(description="What to keep in mind, for a person.")]
    changed: Annotated[
        list[str],
        Meta(description="What changes of speed led to: given up, and asked again; for a person."),
    ]


_encode = msgspec.json.Encoder().encode


def report_json(report: StudyReport) -> str:
    """The report as JSON text."""
    return msgspec.json.format(_encode(report), indent=2).decode() + "\n"


def report_schema() -> dict[str, Any]:
    """JSON Schema of the report, version 1."""
    return msgspec.json.schema(StudyReport)
