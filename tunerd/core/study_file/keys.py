"""The study file: what a person writes. One field here is one key of the reference.

Shapes and types only; what the keys mean together is checked in :mod:`.compile`.
"""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from tunerd.core.study.mapping import MappingTable
from tunerd.core.study.shapes import Number, Seed, StudyFileTable, Text, Value

__all__ = [
    "BaselineTable",
    "BucketTable",
    "DriftTable",
    "FeatureTable",
    "ForecastTable",
    "GuardTable",
    "HistoryTable",
    "LimitsTable",
    "ObjectiveTable",
    "ParameterTable",
    "PlausibilityTable",
    "PredictorTable",
    "RunningTable",
    "SearchTable",
    "StudyFile",
]


class ObjectiveTable(StudyFileTable):
    """What to make better: one number that every good job reports."""

    metric: Text = Field(description="Name of the metric in the events.")
    goal: Literal["maximize", "minimize"] = Field(description="Which way is better.")
    unit: str = Field(default="", description="Unit, for people.", max_length=100)
    scale: Literal["log", "linear"] = Field(
        default="log",
        description='"log" compares by ratios and needs a positive metric; "linear" otherwise.',
    )
    min: Number | None = Field(
        default=None,
        description="Smallest value that the metric can have: 0 for an energy whose zeros are"
        " real. No prediction lies below. On a log scale 0 and less are impossible anyway.",
    )
    max: Number | None = Field(
        default=None,
        description="Largest value that the metric can have: 1 for an accuracy. No prediction lies"
        " above.",
    )
    failed_values: list[Number] = Field(
        default_factory=list,
        description="Values that stand for a run that failed, such as 1e20 or 999999. They are as"
        " impossible as what lies beyond `min` and `max`.",
        max_length=100,
    )
    impossible: Literal["failed", "ran"] = Field(
        default="failed",
        description="What a job says that succeeded with an impossible value, such as a speed of 0."
        ' "failed" counts against its configuration, more as it repeats. "ran" leaves the value'
        " out and nothing more.",
    )
    missing: Literal["failed", "ran"] = Field(
        default="failed",
        description="The same for a job that succeeded without a value (none, or null).",
    )


class GuardTable(StudyFileTable):
    """A metric that must stay within a bound; a run that breaks it counts as not having run."""

    max: Number | None = Field(default=None, description="Largest value allowed.")
    min: Number | None = Field(default=None, description="Smallest value allowed.")
    unit: str = Field(default="", description="Unit, for people.", max_length=100)


class BucketTable(StudyFileTable):
    """Values within a factor share a context key."""

    bucket: float = Field(
        gt=1.001,
        le=1e6,
        description="Factor from one bucket to the next: 1.25 puts 100 and 105 together.",
    )


class FeatureTable(StudyFileTable):
    """One thing that a job brings and nobody tunes."""

    type: Literal["int", "float", "category", "bool"] = Field(
        description="What it holds. A category is open: values it has never seen are fine."
    )
    scale: Literal["linear", "log"] = Field(
        default="linear", description='"log" for numbers whose ratios matter.'
    )
    key: Literal["value", "ignore"] | BucketTable = Field(
        default="value",
        description='How it enters the context key: "value", "ignore", or { bucket = 1.25 }.',
    )
    was: Text | list[Text] | None = Field(
        default=None,
        description="Its name in older jobs, after it was renamed; a list when it had several,"
        " the latest first. A job that has the present name goes by that.",
    )
    absent: Value | None = Field(
        default=None,
        description="Its value in jobs that do not have it, for instance from before it was added."
        " Without this it is missing there.",
    )
    signal: Text | None = Field(
        default=None,
        description="The signal that it comes from where a job does not bring it, such as"
        " `rps{service=$service}`: `$service` is another feature of the context. Without a `key` of"
        " its own it is in buckets of 1.25.",
    )
    over: Text = Field(
        default="5m",
        description="Time before its end that a job's signal is averaged over, at least: 30s, 5m,"
        " 1h. A job that ran for longer gets the mean while it ran.",
    )


class ParameterTable(StudyFileTable):
    """One thing to tune: a list of values, or a range."""

    type: Literal["int", "float", "category", "bool"] = Field(description="What it holds.")
    values: list[Value] | None = Field(
        default=None,
        description="Its values, in the order in which they are shown. A bool needs none.",
        min_length=1,
    )
    low: Number | None = Field(
        default=None,
        description="Start of a range of numbers. Without `step` every number from `low` to"
        " `high` is in the space: floats that agree in six significant digits (more in a narrow"
        " range) are one value. A search proposes every integer (above 32,768 of them: 257 spread"
        " over the scale), or 33 floats spread over the scale; and whatever baselines, pins and"
        " the best so far use.",
    )
    high: Number | None = Field(default=None, description="End of the range; it belongs to it.")
    step: Number | None = Field(
        default=None,
        gt=0,
        description="Distance between the values of a range, counted from `low`, exactly:"
        " values are kept by their place and printed as written.",
    )
    scale: Literal["linear", "log"] = Field(
        default="linear",
        description='"log" for numbers whose ratios matter; they must be positive.',
    )
    repeat: int | None = Field(
        default=None,
        ge=2,
        le=4_096,
        description="How many of it there are, for instance one per layer; a configuration then"
        " holds a list.",
    )
    was: Text | list[Text] | None = Field(
        default=None,
        description="Its name in older jobs, after it was renamed; a list when it had several,"
        " the latest first. A job that has the present name goes by that.",
    )
    absent: Value | list[Value] | None = Field(
        default=None,
        description="Its value in jobs that do not have it, for instance from before it was added;"
        " it need not be one of `values`. Without this it is missing there.",
    )


class BaselineTable(StudyFileTable):
    """What people launch without tunerd."""

    when: Text | None = Field(
        default=None,
        description="Condition on the context; the first baseline whose condition holds counts.",
    )
    config: dict[str, Value | list[Value]] = Field(
        description="Parameter values. What is omitted is what unasked jobs most often use."
        " A single value for a repeat parameter stands for all positions."
    )


class SearchTable(StudyFileTable):
    """How candidates are looked for."""

    searcher: str = Field(
        default="reinforce",
        description="Name of the searcher: reinforce, evolution, optuna or random. Where a context"
        " has at most twice `evaluations` feasible configurations, all are looked at instead.",
    )
    seeds: list[Seed] = Field(
        default=[1, 2, 3],
        min_length=1,
        max_length=64,
        description="One search per seed; their best are merged.",
    )
    evaluations: int = Field(
        default=10_000, ge=1, le=10_000_000, description="Predictions that one search may ask for."
    )
    keep: int = Field(
        default=128, ge=1, le=1_000, description="Best configurations that a search returns."
    )


class PredictorTable(StudyFileTable):
    """How speed is predicted from configurations."""

    name: str = Field(default="committee", description="Name of the predictor.")
    members: int = Field(
        default=8,
        ge=1,
        le=64,
        description="Models whose disagreement is the spread, each fitted without its share of the "
        "rows; of networks half as many.",
    )
    trees: int = Field(default=40, ge=1, le=10_000, description="Trees of one member.")
    seed: Seed = Field(default=0, description="Seed of what is random in learning.")


class HistoryTable(StudyFileTable):
    """How much of history counts when a model is built, and what old jobs that are told late, by an
    import, move in between: a job that counts less than a tenth waits until the next is built. Ages
    are relative to the newest job, never to a clock. What is known of single configurations,
    incumbents among them, does not age."""

    window_days: float | None = Field(
        default=None,
        gt=0,
        le=36_500,
        description="Jobs that ended more days before the newest one are left out. Without it all"
        " of history counts.",
    )
    half_life_days: float | None = Field(
        default=None,
        gt=0,
        le=36_500,
        description="The speed of a job that ended so many days before the newest one counts half,"
        " of one twice as old a quarter. Whether it ran at all counts in full.",
    )


class DriftTable(StudyFileTable):
    """What is done about jobs that no longer are as they were."""

    quiet_jobs: int = Field(
        default=10_000,
        ge=100,
        le=100_000_000,
        description="Budget of false alarms: one in so many jobs while nothing changes, at most.",
    )
    act: bool = Field(
        default=True,
        description="Whether a drift of speed or ranks makes a new model, with the jobs since in"
        " front, and wider bands; else it is only told.",
    )


class RunningTable(StudyFileTable):
    """Whether a job of which trainers report counts before it ends."""

    counts: bool = Field(
        default=True,
        description="Whether it counts once, as soon as its speed over enough steps is known; its"
        " end corrects that. Else only its end counts.",
    )
    min_steps: int = Field(
        default=100,
        ge=1,
        le=2**53,
        description="Steps over which its speed has to be measured before it counts.",
    )
    min_hours: float = Field(
        default=1.0,
        ge=0.0,
        le=8_784.0,
        description="Hours that it has to have run by then: what ends sooner is worth no second"
        " look.",
    )


class ForecastTable(StudyFileTable):
    """What is done about signals and contexts that can be foreseen."""

    ahead: bool = Field(
        default=True,
        description="Whether contexts that are to come are searched, and recommended for, before"
        " their first job.",
    )
    rhythm: bool = Field(
        default=True,
        description="Whether a context without a recent job is foreseen where its jobs came at the"
        " same hour of the week before, or on the same date of several months.",
    )
    growth: bool = Field(
        default=False,
        description="Whether the next larger context is foreseen where a number of the context"
        " grew, such as 8, 16 and 32 GPUs.",
    )
    profiling: int = Field(
        default=0,
        ge=0,
        le=100,
        description="Configurations that such a larger context asks profiling jobs for, once,"
        " before anybody needs it.",
    )
    horizon_hours: float = Field(
        default=24.0,
        ge=0.5,
        le=14 * 24.0,
        description="How far ahead signals, and contexts by their rhythm, are foreseen.",
    )
    min_probability: float = Field(
        default=0.1,
        gt=0,
        le=1,
        description="A context is searched ahead from this probability on that it comes at some"
        " hour within the horizon.",
    )
    switching_cost: float = Field(
        default=0.0,
        ge=0,
        le=10,
        description="Predicted gain, as a share of the objective, that a change of the plan has to"
        " bring: 0.05 is 5 %.",
    )
    quantile: float | None = Field(
        default=None,
        ge=0.01,
        le=0.99,
        description="What the plan of an hour is made for: 0.95 is a value of the signal that is"
        " exceeded in no slot of it with more than 5 %. For guards that a high load breaks; without"
        " it the plan is for the most probable context.",
    )


class LimitsTable(StudyFileTable):
    """How far candidates may go from what runs, and how much one user, node or label may count."""

    max_changes: int | None = Field(
        default=None,
        ge=1,
        le=4_096,
        description="Values in which a candidate may differ from the incumbent, else from the"
        " baseline; of a repeat parameter each position is one.",
    )
    max_steps: dict[str, int] = Field(
        default_factory=dict,
        max_length=1_000,
        description="Places on a parameter's grid by which a candidate may differ from it, by name:"
        " { tp = 1 }. Numbers count in ascending order, however they are listed; any other"
        " category is one place away, and 0 leaves it as it is.",
    )
    max_user_share: float = Field(
        default=0.5,
        gt=0,
        le=1,
        description="Share of the evidence for a configuration that jobs of one user make up at"
        " most, or their share of the context's jobs where that is larger. What is above it counts"
        " neither for the incumbent nor in tests of candidates.",
    )
    max_node_share: float = Field(
        default=0.5, gt=0, le=1, description="The same for jobs that had one node among theirs."
    )
    max_label_share: dict[str, Annotated[float, Field(gt=0, le=1)]] = Field(
        default_factory=dict,
        max_length=8,
        description="The same for jobs that have one value of a label in common, by the label's"
        " name: { team = 0.5 }.",
    )


class PlausibilityTable(StudyFileTable):
    """What a job may report. One that reports something else goes into quarantine: it is kept, and
    nothing is learned from it until repeats or an operator release it."""

    bounds: dict[str, list[Number]] = Field(
        default_factory=dict,
        max_length=1_000,
        description="Smallest and largest value of a metric that are believed, by its name:"
        " { tokens_per_s = [10, 100000] }. Of the objective, a guard or any other metric. Only an"
        " operator releases what lies outside. A value that the metric cannot have at all belongs"
        " in `[objective]`: it counts as a failure.",
    )
    unit_slips: bool = Field(
        default=True,
        description="Whether a value waits for a repeat that lies a power of ten, of 1,024 or of 60"
        " away from what its configuration gave in three runs close together; in two, where that is"
        " more than 30 times.",
    )
    beyond_best: float = Field(
        default=1000.0,
        ge=2,
        le=1e30,
        description="How many times better than the best of its context a value may be before it"
        " waits for a repeat; on a log scale. What lies far outside all others waits anyway.",
    )


class StudyFile(StudyFileTable):
    """A study: an objective, a context, parameters, and the rules between them."""

    model_config = ConfigDict(title="tunerd study, version 1")

    schema_version: Literal[1] = Field(alias="schema", description="Version of this file format.")
    name: str = Field(
        pattern=r"^[a-z0-9][a-z0-9-]{0,62}$",
        description="Name of the study, in events, keys and metrics.",
    )
    mode: Literal["observe", "approve", "publish"] = Field(
        default="observe",
        description='"observe" only says what it would recommend, "approve" publishes what a person'
        ' approved, "publish" publishes.',
    )
    explore_share: float = Field(
        default=0.1,
        ge=0,
        le=1,
        description="Share of a context's jobs for everything new together.",
    )
    min_feasible: float = Field(
        default=0.8,
        ge=0,
        le=1,
        description="Below this probability to run nothing is recommended where anything is known "
        "to run; elsewhere what is likeliest to is tried within explore_share. "
        "A campaign may try more: `tunerd campaign --min-feasible`.",
    )
    objective: ObjectiveTable = Field(description="What to make better.")
    guards: dict[str, GuardTable] = Field(
        default_factory=dict,
        max_length=1_000,
        description="Metrics that must stay within a bound, by name.",
    )
    context: dict[str, FeatureTable] = Field(
        default_factory=dict,
        max_length=1_000,
        description="What a job brings and nobody tunes, by name.",
    )
    lookup: dict[str, dict[str, dict[str, Number]]] = Field(
        default_factory=dict,
        max_length=1_000,
        description="Numbers that describe a category of the context: feature, value, name, number."
        " Expressions read them as feature.name.",
    )
    parameters: dict[str, ParameterTable] = Field(
        description="What may be tuned, by name.", min_length=1, max_length=4_096
    )
    derived: dict[str, Text] = Field(
        default_factory=dict,
        max_length=1_000,
        description="Values that follow from others, as expressions.",
    )
    constraints: dict[str, Text] = Field(
        default_factory=dict,
        max_length=1_000,
        description="Expressions that must be true; undefined counts as not true.",
    )
    baseline: list[BaselineTable] = Field(
        default_factory=list, max_length=1_000, description="What people launch without tunerd."
    )
    search: SearchTable = Field(
        default_factory=SearchTable, description="Options of the search for candidates."
    )
    predictor: PredictorTable = Field(
        default_factory=PredictorTable, description="Options of the predictor."
    )
    history: HistoryTable = Field(
        default_factory=HistoryTable,
        description="How much of history counts when a model is built.",
    )
    limits: LimitsTable = Field(
        default_factory=LimitsTable,
        description="Limits: how far candidates may go from what runs, and how much one user or"
        " node may count.",
    )
    plausibility: PlausibilityTable = Field(
        default_factory=PlausibilityTable,
        description="Plausibility: which jobs go into quarantine instead of being learned.",
    )
    drift: DriftTable = Field(
        default_factory=DriftTable,
        description="Drift: what is done about jobs that no longer are as they were.",
    )
    running: RunningTable = Field(
        default_factory=RunningTable,
        description="Running jobs: whether one of which a trainer reports counts before it ends.",
    )
    forecast: ForecastTable = Field(
        default_factory=ForecastTable,
        description="Forecasts: what is done about signals that can be foreseen.",
    )
    mapping: MappingTable = Field(
        default_factory=MappingTable,
        description="Where tables of old jobs have all this, for `tunerd import`. Changing it"
        " makes no new generation of the study.",
    )
