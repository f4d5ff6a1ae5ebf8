"""When somebody should look: Prometheus' alert rules, what each means, and what to do.

An alert is a measure, which always has a value while all is well, and a condition that it must
not meet; so a test can see that a rule measures something, and not only that it is silent.
"""

from dataclasses import dataclass
from typing import Literal

from tunerd.metrics import definitions as d
from tunerd.metrics.definitions import MetricDefinition
from tunerd.monitoring.promql import STARTED, UP, of, span

__all__ = [
    "COULD_FOLLOW",
    "ENOUGH_COVERED",
    "ENOUGH_JOBS",
    "LOW_TAU",
    "OUTBOX_S",
    "STALLED_S",
    "AlertRule",
    "AlertTimings",
    "RuleGroup",
    "groups",
]

STALLED_S = 300.0
OUTBOX_S = 300.0
LOW_TAU = 0.2
ENOUGH_COVERED = 0.6
"""Of the 0.8 that bands promise."""
ENOUGH_JOBS = 50
"""Below this many, what is said of predictions jumps about."""
COULD_FOLLOW = ("followed", "changed", "ignored")
MANY_REJECTED = 0.1
MANY_HELD = 0.03
FAR_BEHIND = 1000


@dataclass(frozen=True, slots=True)
class AlertTimings:
    """All that is measured in time, in seconds; tests have less of it."""

    moment: float = 120
    """Longer than a restart or one lost scrape."""
    stalled: float = STALLED_S
    outbox: float = OUTBOX_S
    window: float = 900
    """Over which rates and directions are taken."""
    hour: float = 3600
    day: float = 86400


@dataclass(frozen=True, slots=True)
class AlertRule:
    """One rule."""

    name: str
    severity: Literal["critical", "warning", "info"]
    """Critical: nothing is tuned until somebody acts. Warning: it works, but not as it should."""
    measure: str
    """PromQL that has a value while all is well."""
    breached: str
    """Condition on the measure."""
    summary: str
    """One line, with Prometheus' templates."""
    means: str
    do: tuple[str, ...]
    """What to look at and what to do, in this order."""
    only_if: str = ""
    """A further condition, on series with the same labels."""
    hold: float = 0
    """Seconds that it must last."""

    @property
    def expr(self) -> str:
        """The rule's expression."""
        return f"{self.measure} {self.breached}" + (f" and {self.only_if}" if self.only_if else "")


@dataclass(frozen=True, slots=True)
class RuleGroup:
    """Alerts that answer the same question."""

    name: str
    title: str
    alerts: tuple[AlertRule, ...]


BY = "sum by (job, instance)"
BY_STUDY = "sum by (job, instance, study)"


def groups(times: AlertTimings | None = None) -> tuple[RuleGroup, ...]:
    """All alert rules."""
    t = times or AlertTimings()
    return (
        RuleGroup(
            "tunerd-working", "Is it working?", (*_up(t), *_moving(t), *_tuner(t), *_outside(t))
        ),
        RuleGroup("tunerd-right", "Is it right?", _right(t)),
        RuleGroup("tunerd-worth", "Is it worth it?", _worth(t)),
    )


def _up(t: AlertTimings) -> tuple[AlertRule, ...]:
    return (
        AlertRule(
            "TunerdDown",
            "critical",
            UP,
            "== 0",
            "{{ $labels.instance }}: tunerd does not answer",
            "Prometheus cannot scrape the daemon: it has ended, hangs, or cannot be reached over "
            "the network. Nothing is learned or published. Events wait on the stream; running "
            "recommendations hold until they expire.",
            (
                "`systemctl status tunerd`, or the container's state. Exit code 2 means that it is "
                "misconfigured and will not start until that is mended: `tunerd check` says what.",
                "The last lines of its log. `cannot start` and `crashed` say why.",
                "If it runs: `curl` its `/livez` from the machine itself, then from Prometheus'. "
                "`[http] host` is loopback unless set.",
            ),
            hold=t.moment,
        ),
        AlertRule(
            "TunerdMissing",
            "critical",
            f"(count({UP}) or vector(0))",
            "== 0",
            "Prometheus has no target for tunerd",
            "No scrape target of the job `tunerd` exists, so no other alert here can fire.",
            (
                "Prometheus' page Status → Targets, and its configuration: the job must be called "
                "`tunerd`.",
            ),
            hold=t.moment,
        ),
        AlertRule(
            "TunerdRestarting",
            "warning",
            f"changes({STARTED}[{span(t.hour)}])",
            "> 3",
            "{{ $labels.instance }}: tunerd was started {{ $value }} times within "
            f"{span(t.hour)}",
            "The daemon ends and is started anew, again and again. What is committed stays "
            "committed, but each start costs seconds.",
            (
                "Its log: `crashed` or `stage crashed` with a traceback is a fault of tunerd; "
                "please report it.",
                "The system's log for the out-of-memory killer, or a watchdog that was too short.",
            ),
        ),
    )


def _behind(
    name: str, what: MetricDefinition, t: AlertTimings, told: str, why: str, do: str
) -> AlertRule:
    window = span(t.window)
    return AlertRule(
        name,
        "warning",
        of(what),
        f"> {FAR_BEHIND}",
        told,
        why,
        (
            "The dashboard's “How far is it behind?”: a line that falls catches up by itself, as "
            "after an import or a pause.",
            do,
        ),
        only_if=f"deriv({of(what)}[{window}]) >= 0",
        hold=t.window,
    )


def _moving(t: AlertTimings) -> tuple[AlertRule, ...]:
    return (
        AlertRule(
            "TunerdStalled",
            "critical",
            f"time() - {of(d.PROGRESS)}",
            f"> {t.stalled:g}",
            "{{ $labels.instance }}: stage {{ $labels.stage }} made no progress for "
            "{{ $value | humanizeDuration }}",
            "A stage has not got through a step, not even an idle one. It waits for something that "
            "does not come, or its process is stopped.",
            (
                "`/readyz` says in a sentence what each stage waits for.",
                "[TunerdUnreachable](#tunerdunreachable), if that fires as well: the cause is "
                "outside.",
                "For `tune`: a new generation of a study with a very long history is learned anew "
                "first; the log says `study loaded` when that is done. A tuner process in state T "
                "or D (`ps`) is stopped, or waits for a disk: kill it, it is replaced at once and "
                "nothing is lost.",
                "For `ingest` and `publish`: restart the daemon, nothing is lost.",
            ),
        ),
        _behind(
            "TunerdBehindStream",
            d.LAG,
            t,
            "{{ $labels.instance }}: {{ $value | humanize }} records on the jobs topic wait, and "
            "no fewer than before",
            "Jobs end faster than they are ingested. Recommendations rest on older and older jobs.",
            "One core ingests some 30,000 events a second. The dashboard's “How long do ingest and "
            "publish take for a batch?” shows whether the store is slow: its disk, its locks, its "
            "network.",
        ),
        _behind(
            "TunerdBehindHistory",
            d.UNLEARNED,
            t,
            "{{ $labels.study }}: {{ $value | humanize }} jobs are not learned, and no fewer than "
            "before",
            "Jobs are stored, and the tuner does not keep up with them.",
            "“How long does a step of the tuner take?”, then the processor: the tuner wants one or "
            "two cores. Many studies and contexts share one tuner; `tune.budget_s` and "
            "`tune.max_contexts` bound what it searches beside new jobs.",
        ),
        _requests_unanswered(t),
        _rejects(t),
        _quarantine(t),
        _no_jobs(t),
    )


def _requests_unanswered(t: AlertTimings) -> AlertRule:
    return AlertRule(
        "TunerdRequestsUnanswered",
        "warning",
        f"{BY} ({of(d.UNANSWERED)})",
        "> 0",
        "{{ $labels.instance }}: {{ $value | humanize }} requests wait, and none is answered",
        "Somebody asked what to launch in a context and has had no answer for minutes; two "
        "seconds are what is meant. Requests are kept, and answered when that is possible.",
        (
            "[TunerdStalled](#tunerdstalled), [TunerdUnreachable](#tunerdunreachable) and "
            "[TunerdStudySetAside](#tunerdstudysetaside), if one of them fires as well.",
            "`tunerd status` says how many wait, by study. A new generation of a study with a "
            "very long history is learned anew first; the log says `study loaded` when that is "
            "done.",
        ),
        only_if=f"({BY} (increase({of(d.ANSWERED)}[{span(t.stalled)}])) or "
        f"{BY} (0 * {of(d.UNANSWERED)})) == 0",
        hold=t.stalled,
    )


def _rejects(t: AlertTimings) -> AlertRule:
    window = span(t.window)
    rejected = f"{BY} (rate({of(d.RECORDS, outcome='rejected')}[{window}]))"
    return AlertRule(
        "TunerdRejects",
        "warning",
        f"{rejected} / {BY} (rate({of(d.RECORDS)}[{window}]))",
        f"> {MANY_REJECTED:g}",
        "{{ $labels.instance }}: {{ $value | humanizePercentage }} of the records are rejected",
        "Many records on the jobs topic are no usable job events. They are kept on the "
        "rejected topic, each with its reason; good ones between them are learned.",
        (
            "The dashboard's “Which field makes records unusable?”",
            "The rejected topic: the header `reason` says what is wrong with which field, and "
            "what was expected. `study` means that no study is called that.",
            "Whoever sends: `tunerd schema job` is the contract. Once mended, the rejected "
            "values can be corrected and sent again; ids that are known are dropped.",
        ),
        only_if=f"{BY} (increase({of(d.RECORDS, outcome='rejected')}[{window}])) > 10",
        hold=t.moment,
    )


def _quarantine(t: AlertTimings) -> AlertRule:
    window = span(t.window)
    held = f"{BY_STUDY} (increase({of(d.UNUSABLE, why='implausible')}[{window}]))"
    return AlertRule(
        "TunerdQuarantine",
        "warning",
        f"{held} / {BY_STUDY} (increase({of(d.LEARNED)}[{window}]))",
        f"> {MANY_HELD:g}",
        "{{ $labels.study }}: {{ $value | humanizePercentage }} of the jobs go into quarantine",
        "Many jobs report what cannot be right. They are kept, and nothing is learned from them "
        "until a repeat or an operator releases them.",
        (
            "`tunerd quarantine list --study STUDY` says which, whose and why.",
            "Whoever sends, if it is a slip of units or a broken counter; then `tunerd quarantine "
            "confirm`.",
            "If it is real, a change that large of all that runs: `tunerd quarantine release`. If "
            "bounds are too narrow: `[plausibility]` in the study file.",
        ),
        only_if=f"{held} > 10",
        hold=t.moment,
    )


def _no_jobs(t: AlertTimings) -> AlertRule:
    return AlertRule(
        "TunerdNoJobs",
        "warning",
        f"time() - {of(d.LAST_OBSERVATION)}",
        f"> {t.day:g}",
        "{{ $labels.study }}: no job came in for {{ $value | humanizeDuration }}",
        "The study had jobs, and nobody sends them any more, or what they send is rejected or "
        "goes to another study.",
        (
            "[TunerdRejects](#tunerdrejects), and whether the jobs topic grows.",
            "The scheduler's hook or the trainer's reporter: is it installed on what runs now?",
            "A study that is over: `tunerd end STUDY` withdraws its recommendations and ends "
            "this alert.",
        ),
    )


def _tuner(t: AlertTimings) -> tuple[AlertRule, ...]:
    return (
        AlertRule(
            "TunerdTunerRestarts",
            "warning",
            f"{BY} (increase({of(d.RESTARTS)}[{span(t.hour)}]))",
            "> 2",
            "{{ $labels.instance }}: the tuner process was replaced "
            f"{{{{ $value | humanize }}}} times within {span(t.hour)}",
            "The process that learns and searches died or passed its deadline, more than once. "
            "Each time it goes on from what was committed.",
            (
                "The log's `tuner process replaced`: it names the cause and the study.",
                "Killed by signal 9 that nobody sent: the out-of-memory killer. “How much memory "
                "does it take?”",
                "Its step took too long: a study with a very large search space, or a machine "
                "without a free core; `tune.step_deadline_s`.",
            ),
        ),
        AlertRule(
            "TunerdStudySetAside",
            "critical",
            of(d.ASIDE),
            "== 1",
            "{{ $labels.study }}: not tuned any more, the log says why",
            "A study that fails, or ends the tuner process, several times in a row is left alone, "
            "so that the others are tuned; and so is one that this tunerd cannot read. Before "
            "that it was tried without what was saved of it. Its running recommendations hold "
            "until they expire, and commands for it are refused.",
            (
                "`tunerd status` and `/readyz` say why.",
                "The log's `tuner process replaced` or `study failed` for this study; the "
                "traceback before it is a fault of tunerd, please report it.",
                "A changed study file, if that was the beginning: take the change back, then "
                "restart the daemon. A restart takes every study up again.",
                "The log's `this tunerd cannot read it`: an older tunerd was started on a newer "
                "one's store. Install the newer one again.",
            ),
        ),
        AlertRule(
            "TunerdRebuildFailed",
            "warning",
            f"{BY_STUDY} (increase({of(d.REBUILD_FAILED)}[{span(t.day)}]))",
            "> 0",
            "{{ $labels.study }}: its model could not be built anew",
            "A rebuild ended with an error. The model that served before goes on and learns every "
            "job, but it is not built on all of them again until a later rebuild succeeds.",
            (
                "The log's `rebuild failed`, or `tunerd models STUDY --json`: the traceback is a "
                "fault of tunerd, please report it.",
                "`MemoryError`: the machine has too little memory for a rebuild of this study.",
                "“Is it right?” on the dashboard: as long as predictions hold, nothing is lost.",
            ),
        ),
        _study_paused(t),
    )


def _study_paused(t: AlertTimings) -> AlertRule:
    return AlertRule(
        "TunerdStudyPaused",
        "info",
        of(d.PAUSED),
        "== 1",
        "{{ $labels.study }}: paused for a day or longer",
        "An operator paused this study. It learns and says nothing new; perhaps somebody forgot.",
        ("`tunerd commands STUDY` says who, when and why; `tunerd resume STUDY` goes on.",),
        hold=t.day,
    )


def _outside(t: AlertTimings) -> tuple[AlertRule, ...]:
    return (
        AlertRule(
            "TunerdUnreachable",
            "critical",
            of(d.REACHABLE),
            "== 0",
            "{{ $labels.instance }}: stage {{ $labels.stage }} cannot reach the {{ $labels.what }}",
            "The broker or the database does not answer, refuses the login, or lacks the topic. "
            "Stages wait and go on by themselves; nothing is lost meanwhile.",
            (
                "`/readyz` and the log's `unavailable, trying again` have the cause in words.",
                "The broker or the database itself, then what lies between: names, certificates, "
                "firewalls, an expired password.",
            ),
            hold=t.moment,
        ),
        AlertRule(
            "TunerdPrometheusUnread",
            "warning",
            f"{BY} (increase({of(d.PROMETHEUS_ASKED, outcome='failed')}[{span(t.window)}]))",
            "> 3",
            "{{ $labels.instance }}: signals cannot be read from Prometheus",
            "The Prometheus that `signals.prometheus` names does not answer, or not as it should. "
            "Jobs of studies with such a signal lack it, and forecasts are not corrected. What is "
            "missing is read later, as far back as `signals.prometheus.backfill_days`.",
            (
                "`tunerd status`, `/readyz` and the log's `signal not read from Prometheus` say "
                "for each query what is wrong.",
            ),
        ),
        AlertRule(
            "TunerdTopicWrong",
            "warning",
            of(d.TOPIC_WRONG),
            "== 1",
            "{{ $labels.instance }}: the topic of {{ $labels.topic }} is not as it should be",
            "A topic is missing, has another cleanup policy, fewer partitions or a shorter "
            "retention than it should, has no leader, or too few brokers in sync. A broker that "
            "creates topics by itself makes them with its own defaults, and deletes "
            "recommendations after a week.",
            (
                "`tunerd status` and `/readyz` say what is wrong, with the command that mends it.",
                "The broker's `auto.create.topics.enable`: with `false` no topic comes back with "
                "settings that nobody chose.",
                "What a compacted topic lost is sent again by itself, within a minute.",
            ),
            hold=t.moment,
        ),
        AlertRule(
            "TunerdOutboxOld",
            "critical",
            of(d.OLDEST),
            f"> {t.outbox:g}",
            "{{ $labels.instance }}: a message has waited for {{ $value | humanizeDuration }} to "
            "be sent",
            "Recommendations or rejected records are in the store and do not get out. Schedulers "
            "follow what they have until it expires.",
            (
                "[TunerdUnreachable](#tunerdunreachable) for the stream, if that fires as well.",
                "On Kafka: WRITE on both output topics, and on the transactional id, for this "
                "user.",
            ),
        ),
        _messages_lost(t),
    )


def _messages_lost(t: AlertTimings) -> AlertRule:
    return AlertRule(
        "TunerdMessagesLost",
        "warning",
        f"{BY} (increase({of(d.LOST)}[{span(t.hour)}]))",
        "> 0",
        "{{ $labels.instance }}: {{ $value | humanize }} messages were let go",
        "The stream can never take a message, most often because it is larger than the broker "
        "allows. It was let go so that the others are not held up.",
        (
            "The log's `message let go`, with the id and the broker's words.",
            "The topic's `max.message.bytes`: a rejected record has up to 256 KiB and its headers.",
            "A recommendation that was let go comes with its context's next revision, at half "
            "of `tune.valid_days` at the latest; `tunerd pause` and `tunerd resume` of the "
            "study bring all of them at once.",
        ),
    )


def _right(t: AlertTimings) -> tuple[AlertRule, ...]:
    enough = f"{of(d.WINDOW)} >= {ENOUGH_JOBS}"
    return (
        AlertRule(
            "TunerdRankCorrelationLow",
            "warning",
            of(d.KENDALL),
            f"< {LOW_TAU:g}",
            "{{ $labels.study }}: predictions rank configurations hardly better than chance "
            "(τ {{ $value | humanize }})",
            "Of two configurations of the same context, the one that was predicted to be faster is "
            "faster hardly more often than not. What is recommended is then a guess.",
            (
                "“Does it rank configurations right?”: since when? Something that the context does "
                "not tell (a driver, a data set, another network) may have changed then. Tell it "
                "in the context, or give the model some hundred jobs to learn it.",
                "Nearly all jobs run one configuration: then only pairs that noise decides are "
                "left, and a low value does no harm. “How far off are its predictions?” stays low.",
                "The metric: is it measured over the same part of the job by all who send it?",
                "`tunerd pause STUDY` keeps what runs until you know.",
            ),
            only_if=enough,
            hold=t.window,
        ),
        AlertRule(
            "TunerdCoverageLow",
            "warning",
            of(d.COVERAGE),
            f"< {ENOUGH_COVERED:g}",
            "{{ $labels.study }}: only {{ $value | humanizePercentage }} of the jobs fall into "
            "bands that promise 80 %",
            "tunerd is surer of its predictions than it should be; promised gains may be too high.",
            (
                "“How far off are its predictions?”: if that rose at the same time, something "
                "changed; as under [TunerdRankCorrelationLow](#tunerdrankcorrelationlow).",
                "If not, jobs of equal configuration differ more than they did: other jobs on the "
                "same network or file system, shorter measurements.",
            ),
            only_if=enough,
            hold=t.window,
        ),
        _drift(),
        _signal_shifted(),
    )


def _drift() -> AlertRule:
    return AlertRule(
        "TunerdDrift",
        "info",
        f"{BY_STUDY} ({of(d.DRIFTING, kind=('speed', 'ranks', 'failures'))})",
        "> 0",
        "{{ $labels.study }}: jobs no longer are as they were",
        "Jobs are slower or faster than the same jobs were, other configurations are the fast "
        "ones, or more jobs fail. Of failures tunerd only tells. For the others, unless the "
        "study says `act = false`, it makes a new model with the jobs since in front and "
        "widens its bands until predictions hold again. Whether something is wrong with the "
        "cluster, it cannot know.",
        (
            "`tunerd status STUDY` says what, where and since when; so does the event on the "
            "drift topic, and the log line `drift`.",
            "What changed at that time: a driver, an image, a network, another job's traffic? "
            "If it was meant to, nothing is left to do.",
            "If nothing changed and it comes again and again: the objective may be measured "
            "differently by some who send it; or raise `[drift] quiet_jobs` in the study file.",
        ),
    )


def _signal_shifted() -> AlertRule:
    return AlertRule(
        "TunerdSignalShifted",
        "info",
        f"{BY_STUDY} ({of(d.SIGNALS_SHIFTED)})",
        "> 0",
        "{{ $labels.study }}: a signal is at another level than was foreseen",
        "A signal kept to one side of its forecast for hours. Forecasts follow the new level by "
        "themselves within a day or two; plans are for the wrong contexts meanwhile, or withdrawn.",
        (
            "`tunerd status STUDY` says which signal, and on which side; `tunerd forecast STUDY` "
            "what was foreseen and what came.",
            "What sends it: a service that moved, a unit that changed, a label that is missing?",
        ),
    )


def _worth(t: AlertTimings) -> tuple[AlertRule, ...]:
    day = span(t.day)
    ignored = f"{BY_STUDY} (increase({of(d.JOBS, following='ignored')}[{day}]))"
    asked = f"{BY_STUDY} (increase({of(d.JOBS, following=COULD_FOLLOW)}[{day}]))"
    return (
        AlertRule(
            "TunerdGainsNotKept",
            "warning",
            f"{of(d.GAIN_REALISED)} - {of(d.GAIN_PREDICTED)}",
            "< -0.05",
            "{{ $labels.study }}: candidates gain {{ $value | humanizePercentage }} against what "
            "was promised",
            "Configurations that were recommended turn out slower than predicted, by more than "
            "five points on average.",
            (
                "[TunerdRankCorrelationLow](#tunerdrankcorrelationlow) and "
                "[TunerdCoverageLow](#tunerdcoveragelow) first: a model that is wrong promises "
                "wrongly.",
                "If both are well, it picks what looks best by luck: let `explore_share` be small "
                "and wait for confirmation, or `tunerd pause STUDY`.",
            ),
            only_if=f"{of(d.GAIN_JOBS)} >= 20",
            hold=t.hour,
        ),
        AlertRule(
            "TunerdNotFollowed",
            "info",
            f"{ignored} / {asked}",
            "> 0.9",
            "{{ $labels.study }}: {{ $value | humanizePercentage }} of the jobs that could follow "
            "a recommendation carry no trace of one",
            "Recommendations are published, and jobs of the same contexts do not use them.",
            (
                "Whether schedulers read the recommendations topic, and look up the context key "
                "that tunerd publishes; `tunerd status STUDY` prints the keys.",
                "Whether they send `recommendation_id` and `candidate_id` back in the job event: "
                "without them tunerd cannot tell.",
            ),
            only_if=f"{asked} > 20",
            hold=t.hour,
        ),
    )
