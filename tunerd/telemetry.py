"""What the stages say about their work, for whoever listens: metrics, logs, the demo's display.

Reports are plain frozen values. The tuner process sends them to its parent over a pipe as JSON
(:func:`dump_report`, :func:`load_report`). Listeners overhear, they never decide: nothing may
depend on whether a report arrived.
"""

from typing import Literal, Protocol

import msgspec

__all__ = [
    "AttemptBacklog",
    "BatchIngested",
    "ConsumerLag",
    "DependencyUnreachable",
    "HistoryPruned",
    "MessageDropped",
    "MessagesPublished",
    "NullListener",
    "OutboxBacklog",
    "PrequentialScores",
    "PrometheusAsked",
    "Report",
    "RequestBacklog",
    "RequestsAnswered",
    "RequestsIngested",
    "Stage",
    "StageProgressed",
    "StageStarting",
    "StepCommitted",
    "StepStarted",
    "StudyBacklog",
    "StudyLoaded",
    "StudyRelearned",
    "StudyReleased",
    "StudySetAside",
    "StudyStatus",
    "TelemetryListener",
    "TunerMemory",
    "TunerReady",
    "TunerRestarted",
    "dump_report",
    "load_report",
]

Stage = Literal["ingest", "requests", "tune", "publish"]


class BatchIngested(msgspec.Struct, frozen=True, kw_only=True, tag="ingested"):
    """A batch of records was committed."""

    accepted: dict[str, int] = {}
    """New observations by study."""
    duplicates: int = 0
    """Events that were known already."""
    halves: int = 0
    """New halves of jobs that were kept."""
    joined: dict[str, int] = {}
    """Attempts of jobs that were joined from halves: ended, running, corrected."""
    rejected: dict[str, int] = {}
    """Records by kind of reason (a few words, not the whole reason)."""
    seconds: float
    """From having the records until the commit."""


class RequestsIngested(msgspec.Struct, frozen=True, kw_only=True, tag="asked"):
    """A batch of requests was committed."""

    accepted: dict[str, int] = {}
    """New requests by study."""
    duplicates: int = 0
    rejected: dict[str, int] = {}
    """Records by kind of reason."""
    seconds: float
    """From having the records until the commit."""


class RequestsAnswered(msgspec.Struct, frozen=True, kw_only=True, tag="answered"):
    """Requests were answered: the transaction with their answers was committed."""

    study: str
    outcomes: dict[str, int] = {}
    """How many, by outcome: published, renewed, observed, pending, nothing."""
    seconds: tuple[float, ...] = ()
    """Of each, from coming in until then."""


class RequestBacklog(msgspec.Struct, frozen=True, kw_only=True, tag="unanswered"):
    """How many requests wait for an answer; ``None`` when nobody can say."""

    requests: int | None


class AttemptBacklog(msgspec.Struct, frozen=True, kw_only=True, tag="attempts"):
    """How many attempts wait for halves; ``None`` when nobody can say."""

    waiting: int | None
    incomplete: int | None = None
    """Of which no half came for longer than halves are waited for."""


class PrometheusAsked(msgspec.Struct, frozen=True, kw_only=True, tag="prometheus"):
    """A Prometheus was asked for a signal."""

    points: int = 0
    """New ones that were kept."""
    failed: bool = False
    """Whether there was no answer, or none that could be used."""


class ConsumerLag(msgspec.Struct, frozen=True, kw_only=True, tag="lagging"):
    """How far ingest is behind the jobs topic; ``None`` when nobody can say."""

    records: int | None


class PrequentialScores(msgspec.Struct, frozen=True, kw_only=True, tag="scores"):
    """How well the last observations were predicted before they were learned (prequential).

    What is not defined (all values equal, too few of them) is ``None``; NaN arrives as that.
    """

    observations: int
    """Observations in the window."""
    kendall: float | None = None
    """Kendall's tau-b within contexts, -1 to 1."""
    spearman: float | None = None
    pearson: float | None = None
    mape: float | None = None
    """Mean absolute error relative to the metric; 0.1 is 10 %."""
    coverage: float | None = None
    """Share of them that fell into the band that was predicted, which promises 0.8."""
    noise: float | None = None
    """How far equal jobs lie apart: standard deviation of one run, relative; 0.02 is 2 %."""
    repeats: int = 0
    """Runs of a configuration after its first that this stands on, over all contexts."""


class StudyStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How a study stands after what is reported."""

    study: str
    sequence: int
    """Last observation learned."""
    waiting: int = 0
    """Observations in history that are not learned yet."""
    contexts_active: int = 0
    scores: PrequentialScores | None = None
    gain_predicted: float | None = None
    """Gain over the incumbent that candidates promised which have been run since; 0.04 is 4 %."""
    gain_realised: float | None = None
    """Gain that the same candidates showed."""
    overrated: float | None = None
    """By how much chosen candidates gained less than was predicted of them, as lower bounds take it
    off; 0.02 is 2 points."""
    gain_jobs: int = 0
    """Jobs that both are over."""
    running: int = 0
    """Contexts with a recommendation that schedulers follow."""
    proposed: int = 0
    """Contexts with one that was only observed, or waits for approval."""
    paused: bool = False
    """Whether an operator has paused the study."""
    drifting: dict[str, int] = {}
    """Drifts that are not over, by kind: speed, ranks, inputs, failures."""
    quarantined: int = 0
    """Jobs in quarantine of which nobody has said anything."""


class StudyLoaded(StudyStatus, frozen=True, kw_only=True, tag="loaded"):
    """The tune stage has taken a study's lease and loaded it: its gauges are ours to tell."""


class StepCommitted(StudyStatus, frozen=True, kw_only=True, tag="stepped"):
    """One step of the tune stage on one study was committed."""

    observations: int = 0
    """Observations learned in this step."""
    learn_s: float | None = None
    search_s: float | None = None
    contexts_searched: int = 0
    contexts_searched_elsewhere: int = 0
    """Those among them that another instance searched."""
    rebuilt: bool = False
    """Whether a newly fitted model was put in place."""
    rebuilds_failed: int = 0
    """Rebuilds that ended with an error."""
    issued: int = 0
    renewed: int = 0
    withdrawn: int = 0
    suggested: int = 0
    """Recommendations that were only observed, or that wait for approval."""
    candidates: dict[str, int] = {}
    """Candidates in what was issued or suggested, by kind: exploit, explore, confirm."""
    introductions: dict[str, int] = {}
    """Introductions of configurations that ended in this step, by outcome."""
    contexts_foreseen: dict[str, int] = {}
    """Contexts without a signal by what became of them in this step: foreseen, came, missed."""
    following: dict[str, int] = {}
    """Jobs learned in this step by what they did with the recommendation: followed, changed,
    ignored, unasked. Imported jobs are not counted."""
    outside: dict[str, int] = {}
    """Jobs learned in this step that have a value which the study does not have, by parameter;
    under an empty name those with a parameter that it does not know."""
    unusable: dict[str, int] = {}
    """Jobs of this step without a usable objective that could have had one, by why: missing,
    impossible, implausible: put into quarantine."""
    drift: dict[str, int] = {}
    """Drifts that began or grew among them, by kind."""


class MessagesPublished(msgspec.Struct, frozen=True, kw_only=True, tag="published"):
    """Messages were acknowledged by the stream and marked as sent."""

    messages: dict[str, int] = {}
    """By kind: recommendation, rejected."""
    seconds: float
    """From sending until all were acknowledged."""


class MessageDropped(msgspec.Struct, frozen=True, kw_only=True, tag="unsendable"):
    """The stream can never take a message; it was let go, so that others are not held up."""

    kind: str
    message_id: str
    problem: str


class OutboxBacklog(msgspec.Struct, frozen=True, kw_only=True, tag="outbox"):
    """What waits to be published; ``None`` when nobody can say."""

    waiting: int | None
    oldest_s: float | None = None
    """Age of the oldest message that waits; 0 when none does."""


class StudyBacklog(msgspec.Struct, frozen=True, kw_only=True, tag="backlog"):
    """How far a study has come, as the store says, whether or not anybody tunes it."""

    study: str
    sequence: int
    """Last observation learned."""
    waiting: int
    """Observations in history that are not learned yet."""
    last_at: float | None = None
    """When the last observation came in, in seconds since 1970."""
    recommended: dict[str, dict[str, float]] = {}
    """Numbers that most jobs of a context are told, by context and parameter; of a bounded number
    of contexts. A context without its signal has those of the one that is foreseen now."""
    foreseen: dict[str, dict[str, dict[str, float]]] = {}
    """Quantiles of each signal in this hour, by context without signals, feature and quantile."""
    signals_shifted: int = 0
    """Signals that are at another level than was foreseen."""


class TunerMemory(msgspec.Struct, frozen=True, kw_only=True, tag="tuner_size"):
    """Memory of the tuner process; ``None`` when there is none, or nobody can say."""

    resident_bytes: int | None


class StageStarting(msgspec.Struct, frozen=True, kw_only=True, tag="starting"):
    """A stage is about to take its first step."""

    stage: Stage


class StageProgressed(msgspec.Struct, frozen=True, kw_only=True, tag="progressed"):
    """A stage finished a step; ``worked`` says whether there was anything to do."""

    stage: Stage
    worked: bool = True
    reachable: bool = True
    """False while a failure is so recent that what it needs still counts as away."""


class DependencyUnreachable(msgspec.Struct, frozen=True, kw_only=True, tag="unreachable"):
    """A step of a stage failed because the stream or the store could not be reached. The stage
    tries again, and a :class:`StageProgressed` says when it could be."""

    stage: Stage
    what: Literal["stream", "store"]
    problem: str


class TopicStates(msgspec.Struct, frozen=True, kw_only=True, tag="topics"):
    """Which topics are not as they should be, by what each is for (``jobs``, ``drift`` …): True;
    None while nobody can say."""

    wrong: dict[str, bool | None]


class SaidAgain(msgspec.Struct, frozen=True, kw_only=True, tag="said_again"):
    """Recommendations that hold were not on their topic any more and go out once more."""

    keys: int


class TunerRestarted(msgspec.Struct, frozen=True, kw_only=True, tag="tuner_replaced"):
    """The tuner process was started again."""

    why: Literal["died", "deadline"]


class StudySetAside(msgspec.Struct, frozen=True, kw_only=True, tag="set_aside"):
    """A study is not tuned any more because it failed too often or cannot be read; or it is again,
    with ``aside=False``."""

    study: str
    aside: bool = True
    why: str = ""


class StudyRelearned(msgspec.Struct, frozen=True, kw_only=True, tag="learned_anew"):
    """What was saved of a study could not be used; it was learned from its history again."""

    study: str
    why: str


class HistoryPruned(msgspec.Struct, frozen=True, kw_only=True, tag="pruned"):
    """Old jobs of a study left history."""

    study: str
    jobs: int
    """Of which only what duplicates and the ledger need is kept."""
    forgotten: int
    """Pruned long ago, of which nothing is kept any more."""


class TunerReady(msgspec.Struct, frozen=True, kw_only=True, tag="ready"):
    """The tuner process has loaded its studies."""


class StepStarted(msgspec.Struct, frozen=True, kw_only=True, tag="began"):
    """A step of the tune stage on one study began: its deadline runs."""

    study: str
    helping: bool = False
    """Whether it is a search for another instance, which tunes the study."""


class StudyReleased(msgspec.Struct, frozen=True, kw_only=True, tag="study_gone"):
    """A study ended, or another instance tunes it now: its metrics are no longer ours to tell."""

    study: str


Report = (
    BatchIngested
    | RequestsIngested
    | HistoryPruned
    | RequestsAnswered
    | RequestBacklog
    | AttemptBacklog
    | PrometheusAsked
    | ConsumerLag
    | StudyLoaded
    | StepCommitted
    | MessagesPublished
    | MessageDropped
    | OutboxBacklog
    | StudyBacklog
    | TunerMemory
    | StageStarting
    | StageProgressed
    | DependencyUnreachable
    | TopicStates
    | SaidAgain
    | TunerRestarted
    | StudySetAside
    | StudyRelearned
    | StudyReleased
    | TunerReady
    | StepStarted
)


class TelemetryListener(Protocol):
    """Whoever wants to know."""

    def hear(self, report: Report, /) -> None:
        """Take note. Must be quick, thread-safe, and must not raise."""


class NullListener:
    """The listener that nobody needs."""

    def hear(self, report: Report, /) -> None:
        """Do nothing."""


_ENCODER = msgspec.json.Encoder()
_DECODER: msgspec.json.Decoder[Report] = msgspec.json.Decoder(Report)


def dump_report(report: Report) -> bytes:
    """A report as JSON, for the pipe."""
    return _ENCODER.encode(report)


def load_report(text: bytes) -> Report:
    """What :func:`dump_report` wrote."""
    return _DECODER.decode(text)
