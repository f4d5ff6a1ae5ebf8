"""What every metric is called, which labels it has, and what it means.

From here come what the daemon exports and ``docs/metrics.md``. Tests hold the dashboard and the
alert rules (:mod:`tunerd.monitoring`) to it: whoever renames a metric learns where it is used.
"""

from dataclasses import dataclass
from itertools import product
from typing import Literal

from tunerd.core.request import RequestOutcome
from tunerd.events import HalfEvent, JobEvent, RequestEvent

__all__ = ["DEFINITIONS", "OTHER", "MetricDefinition", "MetricLabel"]

OTHER = "_other"
"""Stands for the studies beyond those that have series of their own, and for fields that only a
sender knows. No study and no field of ours is called that: their names begin with a letter or
digit."""


@dataclass(frozen=True, slots=True)
class MetricLabel:
    """A label, with its values where they are known beforehand.

    Counters begin at 0 for those: Prometheus sees no increase from nothing to something.
    """

    name: str
    values: tuple[str, ...] = ()
    about: str = ""
    """What the values are, where the list would not say it."""


@dataclass(frozen=True, slots=True)
class MetricDefinition:
    """One metric."""

    name: str
    """Without what its kind adds (``_total``, ``_bucket``)."""
    kind: Literal["counter", "gauge", "histogram"]
    about: str
    labels: tuple[MetricLabel, ...] = ()

    @property
    def series(self) -> str:
        """Name of a counter's or a gauge's series."""
        if self.kind == "histogram":
            raise ValueError(f"{self.name} has three series: buckets, sum and count")
        return self.name + ("_total" if self.kind == "counter" else "")

    @property
    def buckets(self) -> str:
        """Name of a histogram's buckets."""
        if self.kind != "histogram":
            raise ValueError(f"{self.name} is a {self.kind}, it has no buckets")
        return f"{self.name}_bucket"

    @property
    def of_a_study(self) -> bool:
        """Whether each study has series of its own."""
        return any(label.name == "study" for label in self.labels)

    def known(self, study: str | None = None) -> list[tuple[str, ...]]:
        """All combinations of label values that are known beforehand, of one study if need be;
        empty where some values are not known."""
        values = [
            (study,) if label.name == "study" and study else label.values for label in self.labels
        ]
        return list(product(*values))


STUDY = MetricLabel("study")
STAGE = MetricLabel("stage", ("ingest", "requests", "tune", "publish"))
OUTCOME = MetricLabel("outcome", ("accepted", "duplicate", "rejected"))
RECORD_OUTCOME = MetricLabel("outcome", ("accepted", "half", "duplicate", "rejected"))
PROMETHEUS_OUTCOME = MetricLabel("outcome", ("answered", "failed"))
JOINED_HOW = MetricLabel("how", ("ended", "running", "corrected"))
ENVELOPE = ("specversion", "data", "data_base64", "ce_specversion", "ce_id", "ce_source")
REASON = MetricLabel(
    "reason",
    tuple(
        dict.fromkeys(
            (
                "value",
                *JobEvent.__struct_encode_fields__,
                *HalfEvent.__struct_encode_fields__,
                *RequestEvent.__struct_encode_fields__,
                *ENVELOPE,
                OTHER,
            )
        )
    ),
    f"field of the event that is wrong; `{OTHER}`: one that no contract names",
)
ANSWER = MetricLabel("outcome", tuple(RequestOutcome))
PARAMETER = MetricLabel(
    "parameter", about=f"of the study; `{OTHER}`: one that it does not know, and all of `{OTHER}`"
)
CONTEXT = MetricLabel(
    "context", about="the context key without the study; empty for the study's fallback"
)
CONTEXT_PARAMETER = MetricLabel("parameter", about="of the study")
FEATURE = MetricLabel("feature", about="of the context, which the signal fills in")
QUANTILE = MetricLabel("quantile", ("0.1", "0.5", "0.9"))
FOLLOWING = MetricLabel("following", ("followed", "changed", "ignored", "unasked"))
UNUSABLE_WHY = MetricLabel("why", ("missing", "impossible", "implausible"))
CHANGE = MetricLabel("change", ("issued", "renewed", "withdrawn", "suggested"))
DRIFT_KIND = MetricLabel("kind", ("speed", "ranks", "inputs", "failures"))
ENDING = MetricLabel(
    "outcome", ("promoted", "withdrawn", "given_up", "failed", "returned", "slowed")
)
FORESEEN = MetricLabel("outcome", ("foreseen", "came", "missed"))
CANDIDATE_KIND = MetricLabel("kind", ("exploit", "explore", "confirm"))
MESSAGE_KIND = MetricLabel("kind", ("recommendation", "plan", "rejected", "drift"))
TOPIC = MetricLabel("topic", ("jobs", "requests", "recommendations", "rejected", "drift"))
STATE = MetricLabel("state", ("running", "proposed"))
WHY = MetricLabel("why", ("died", "deadline"))
WHAT = MetricLabel("what", ("stream", "store"))


def _counter(name: str, about: str, *labels: MetricLabel) -> MetricDefinition:
    return MetricDefinition(f"tunerd_{name}", "counter", about, labels)


def _gauge(name: str, about: str, *labels: MetricLabel) -> MetricDefinition:
    return MetricDefinition(f"tunerd_{name}", "gauge", about, labels)


def _seconds(name: str, about: str) -> MetricDefinition:
    return MetricDefinition(f"tunerd_{name}_seconds", "histogram", about)


BUILD = _gauge("build_info", "Always 1; the label says which tunerd runs.", MetricLabel("version"))

# -- ingest ---------------------------------------------------------------------------------
RECORDS = _counter(
    "ingest_records",
    "Records of the jobs topic by what became of them; half: kept, to be joined with others.",
    RECORD_OUTCOME,
)
JOINED = _counter(
    "attempts_joined",
    "Attempts of jobs that were joined from halves: they ended, count while they run, or count "
    "otherwise than before.",
    JOINED_HOW,
)
ATTEMPTS_WAITING = _gauge(
    "attempts_waiting",
    "Attempts of jobs that wait for halves, one of which came lately; NaN while nobody can say.",
)
ATTEMPTS_INCOMPLETE = _gauge(
    "attempts_incomplete",
    "Attempts of which something is missing and no half came for ingest.halves_wait_days; NaN "
    "while nobody can say.",
)
OBSERVATIONS = _counter("observations", "New observations in history.", STUDY)
REJECTED = _counter(
    "ingest_rejected", "Rejected records by the field of the event that is wrong.", REASON
)
INGEST_S = _seconds("ingest_batch", "From having a batch of records to its commit.")
SIGNAL_POINTS = _counter("prometheus_points", "New points of signals read from Prometheus.")
PROMETHEUS_ASKED = _counter(
    "prometheus_questions", "Times that Prometheus was asked for a signal.", PROMETHEUS_OUTCOME
)
LAG = _gauge(
    "stream_lag_records", "Records on the jobs topic not ingested yet; NaN while nobody can say."
)
LAST_OBSERVATION = _gauge(
    "last_observation_timestamp_seconds",
    "When the last observation came in, in seconds since 1970.",
    STUDY,
)

# -- requests -------------------------------------------------------------------------------
REQUESTS = _counter("requests", "Records of the requests topic by what became of them.", OUTCOME)
UNANSWERED = _gauge(
    "requests_unanswered", "Requests that wait for an answer; NaN while nobody can say."
)
ANSWERED = _counter("requests_answered", "Requests answered, by what came of them.", STUDY, ANSWER)
ANSWER_S = _seconds("request_answer", "From a request's coming in until its answer was committed.")

# -- tune -----------------------------------------------------------------------------------
LEARNED = _counter("learned_observations", "Observations learned.", STUDY)
SEQUENCE = _gauge("learned_sequence", "Last observation learned.", STUDY)
UNLEARNED = _gauge(
    "unlearned_observations", "Observations in history that are not learned yet.", STUDY
)
LEARN_S = _seconds("learn", "Learning new observations, per step.")
SEARCH_S = _seconds("search", "Searching and deciding, per step.")
SEARCHED = _counter("searched_contexts", "Contexts searched.", STUDY)
SEARCHED_ELSEWHERE = _counter(
    "contexts_searched_elsewhere",
    "Contexts searched by another instance than the one that tunes their study.",
    STUDY,
)
ACTIVE = _gauge(
    "active_contexts", "Contexts with a recent job or request, which are searched.", STUDY
)
REBUILT = _counter("models_rebuilt", "Newly fitted models put in place.", STUDY)
REBUILD_FAILED = _counter(
    "rebuilds_failed", "Rebuilds that ended with an error; the model that served goes on.", STUDY
)
KENDALL = _gauge(
    "prediction_kendall_tau",
    "Rank correlation within contexts between what was predicted and what came, over a window of "
    "the last observations, each predicted before it was learned.",
    STUDY,
)
SPEARMAN = _gauge("prediction_spearman", "Spearman's rank correlation over the same window.", STUDY)
PEARSON = _gauge("prediction_pearson", "Pearson's correlation over the same window.", STUDY)
MAPE = _gauge(
    "prediction_mape_ratio",
    "Mean absolute relative error over the same window; 0.1 is 10 %.",
    STUDY,
)
COVERAGE = _gauge(
    "prediction_coverage_ratio",
    "Share of the window that fell into the band predicted for it, which promises 0.8.",
    STUDY,
)
NOISE = _gauge(
    "job_noise_ratio",
    "How far equal jobs lie apart: standard deviation of one run around its configuration's others "
    "in the same context, relative; no prediction can be better. Absent without repeats.",
    STUDY,
)
WINDOW = _gauge("prediction_window_observations", "Observations in that window.", STUDY)
DRIFTS = _counter(
    "drifts",
    "Times that jobs no longer were as they had been: how fast they are, which configurations are "
    "the fast ones, which jobs come, how many fail.",
    STUDY,
    DRIFT_KIND,
)
DRIFTING = _gauge("drifting", "Such changes that are not over.", STUDY, DRIFT_KIND)
GAIN_PREDICTED = _gauge(
    "gain_predicted_ratio",
    "Gain over the incumbent that candidates promised which have been run since, except those that "
    "explore; 0.04 is 4 %.",
    STUDY,
)
GAIN_REALISED = _gauge("gain_realised_ratio", "Gain that the same candidates showed.", STUDY)
GAIN_JOBS = _gauge("gain_jobs", "Latest jobs that both gains are the means of.", STUDY)
OVERRATED = _gauge(
    "overrated_ratio",
    "By how much chosen candidates gained less than was predicted of them; lower bounds of gains "
    "are lower by it.",
    STUDY,
)
INTRODUCTIONS = _counter(
    "introductions",
    "Introductions of configurations that ended: promoted to incumbent, withdrawn for being worse, "
    "given up without a difference, failed to run, returned: promoted before and taken back, or "
    "slowed: incumbents that a change made slow and that gave way.",
    STUDY,
    ENDING,
)
FORESEEN_CONTEXTS = _counter(
    "foreseen_contexts",
    "Contexts that were foreseen from the study's own jobs, and those among them that came or were "
    "missed, where no job came.",
    STUDY,
    FORESEEN,
)
JOBS = _counter("jobs", "Jobs learned, by what they did with the recommendation.", STUDY, FOLLOWING)
OUTSIDE = _counter(
    "outside_jobs",
    "Jobs learned with a value of this parameter that the study does not have, imported ones too. "
    "They teach all the same; no such configuration is recommended.",
    STUDY,
    PARAMETER,
)
UNUSABLE = _counter(
    "unusable_objectives",
    "Jobs learned without a usable objective that could have had one, imported ones too. Unless "
    "the study says otherwise, each counts against its configuration; an implausible one goes into "
    "quarantine and counts for nothing until it is released.",
    STUDY,
    UNUSABLE_WHY,
)
RECOMMENDATIONS = _counter(
    "recommendations",
    "Recommendations by what was said; suggested: only observed, or waits for approval.",
    STUDY,
    CHANGE,
)
CANDIDATES = _counter(
    "candidates",
    "Candidates in issued or suggested recommendations by kind.",
    STUDY,
    CANDIDATE_KIND,
)
RECOMMENDED = _gauge(
    "recommended_contexts",
    "Contexts with a recommendation; running: schedulers follow it; proposed: only observed, or "
    "waits for approval.",
    STUDY,
    STATE,
)
RECOMMENDED_NUMBER = _gauge(
    "recommended_parameter",
    "Recommended value of a numeric parameter: the incumbent's, else the baseline's, which most "
    "jobs of the context are launched with. Of the 20 contexts of a study that were recommended "
    "for last, and 20 parameters. A context whose signal is `~` has the numbers of the one that is "
    "planned for now, as long as the plan holds; there are 20 of them, too.",
    STUDY,
    CONTEXT,
    CONTEXT_PARAMETER,
)
FORESEEN_SIGNAL = _gauge(
    "foreseen_signal",
    "What a signal is foreseen to be in this hour. Of 20 contexts of a study, without the signal, "
    "while their plan holds.",
    STUDY,
    CONTEXT,
    FEATURE,
    QUANTILE,
)
SIGNALS_SHIFTED = _gauge(
    "signals_shifted",
    "Signals of a study that kept to one side of their forecast, within the last day.",
    STUDY,
)
PAUSED = _gauge("study_paused", "1 for a study that an operator has paused.", STUDY)
QUARANTINED = _gauge(
    "quarantined_jobs",
    "Jobs in quarantine of which nobody has said anything: nothing is learned from them. `tunerd "
    "quarantine` lists them.",
    STUDY,
)
ASIDE = _gauge(
    "study_set_aside",
    "1 for a study that is not tuned any more because it failed or ended the tuner too often, or "
    "because this tunerd cannot read it.",
    STUDY,
)
PRUNED = _counter(
    "pruned_jobs",
    "Jobs that left history because their time was over (retention.max_age_days, max_jobs): what "
    "they said is dropped, their event ids and the ledger stay.",
    STUDY,
)
FORGOTTEN = _counter(
    "forgotten_jobs", "Jobs pruned long ago whose event ids are not known any more either.", STUDY
)
LEARNED_ANEW = _counter(
    "studies_learned_anew",
    "Studies learned from their history again because what was saved of them was damaged.",
    STUDY,
)
RESTARTS = _counter("tuner_restarts", "Tuner processes replaced, by why.", WHY)
TUNER_SIZE = _gauge("tuner_resident_memory_bytes", "Resident memory of the tuner process.")

# -- publish --------------------------------------------------------------------------------
MESSAGES = _counter("published_messages", "Messages sent, by kind.", MESSAGE_KIND)
TOPIC_WRONG = _gauge(
    "topic_wrong",
    "1: this topic is missing, or not as it should be, and `/readyz` says what mends it; no "
    "series while nobody can say.",
    TOPIC,
)
SAID_AGAIN = _counter(
    "recommendations_said_again",
    "Recommendations that hold and were sent again: somebody had overwritten or deleted them.",
)
LOST = _counter(
    "unsendable_messages", "Messages that the stream can never take, let go.", MESSAGE_KIND
)
PUBLISH_S = _seconds("publish", "From sending a batch until it was acknowledged.")
WAITING = _gauge("outbox_messages", "Messages that wait to be published; NaN while nobody can say.")
OLDEST = _gauge(
    "outbox_oldest_seconds",
    "Age of the oldest message that waits to be published; 0 when none does.",
)

# -- all stages -----------------------------------------------------------------------------
PROGRESS = _gauge(
    "stage_last_progress_timestamp_seconds",
    "When a stage last finished a step, with or without work, in seconds since 1970; until its "
    "first, when the daemon started.",
    STAGE,
)
STEPS = _counter("stage_steps", "Steps of a stage that had work.", STAGE)
REACHABLE = _gauge(
    "reachable",
    "0 while a stage waits because it cannot reach the stream or the store, else 1.",
    STAGE,
    WHAT,
)
UNREACHABLE = _counter(
    "unreachable", "Times that the stream or the store could not be reached.", WHAT
)

DEFINITIONS: tuple[MetricDefinition, ...] = tuple(
    definition
    for definition in list(globals().values())
    if isinstance(definition, MetricDefinition)
)
"""All of them, in this order."""
