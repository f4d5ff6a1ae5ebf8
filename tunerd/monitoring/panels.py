"""What the dashboard shows: an operator's questions, top to bottom, and what answers them.

Here is the content; :mod:`tunerd.monitoring.dashboard` makes Grafana's JSON and the page of it.
"""

from dataclasses import dataclass
from typing import Literal

from tunerd.metrics import definitions as d
from tunerd.metrics.definitions import MetricDefinition
from tunerd.monitoring.alerts import (
    COULD_FOLLOW,
    ENOUGH_COVERED,
    ENOUGH_JOBS,
    LOW_TAU,
    OUTBOX_S,
    STALLED_S,
)
from tunerd.monitoring.promql import RESIDENT, STARTED, UP, of, quantile

__all__ = ["ROWS", "DashboardPanel", "DashboardRow", "PanelQuery", "chosen"]

Color = Literal["green", "yellow", "orange", "red", "blue", "text"]

RATE = "$__rate_interval"
RANGE = "$__range"


@dataclass(frozen=True, slots=True)
class PanelQuery:
    """PromQL with the dashboard's variables, and what its series are called."""

    expr: str
    legend: str


@dataclass(frozen=True, slots=True)
class DashboardPanel:
    """One question."""

    title: str
    good: str
    """What good looks like, and what it is made of; shown on hovering."""
    queries: tuple[PanelQuery, ...]
    unit: str = "short"
    """Of Grafana's."""
    width: int = 8
    """Of 24 columns."""
    kind: Literal["stat", "lines", "bars"] = "lines"
    """The latest value large; over time as lines; over time as stacked bars."""
    steps: tuple[tuple[float, Color], ...] = ()
    """From which value on which colour; below the first it is ``below``."""
    below: Color = "green"
    words: tuple[tuple[float, str, Color], ...] = ()
    """Values that are shown as words."""
    low: float | None = None
    high: float | None = None
    names: bool = False
    """Whether a large value is worth less than its series' name."""
    empty: str = ""
    """What is said where nothing is there to show."""


@dataclass(frozen=True, slots=True)
class DashboardRow:
    """One of the four questions that all others belong to."""

    title: str
    panels: tuple[DashboardPanel, ...]


def shown(metric: MetricDefinition, **labels: str | tuple[str, ...]) -> str:
    """A metric's series of what was chosen at the top of the dashboard."""
    chosen = 'instance=~"$instance"' + (', study=~"$study"' if metric.of_a_study else "")
    return of(metric, chosen, **labels)


def chosen(selector: str) -> str:
    """A selector of series that are not ours, of the instances that were chosen."""
    return selector.replace("}", ', instance=~"$instance"}')


def _rate(metric: MetricDefinition, by: str) -> str:
    return f"sum by ({by}) (rate({shown(metric)}[{RATE}]))"


def _increase(metric: MetricDefinition, by: str) -> str:
    return f"sum by ({by}) (increase({shown(metric)}[{RATE}]))"


def _quantiles(metric: MetricDefinition, what: str) -> tuple[PanelQuery, PanelQuery]:
    chosen = 'instance=~"$instance"'
    return (
        PanelQuery(quantile(0.5, metric, RATE, chosen), f"{what}, half of them"),
        PanelQuery(quantile(0.95, metric, RATE, chosen), f"{what}, 95 %"),
    )


_FOLLOWED = f"sum(increase({shown(d.JOBS, following='followed')}[{RANGE}]))"
_ASKED = f"sum(increase({shown(d.JOBS, following=COULD_FOLLOW)}[{RANGE}]))"

WORKING = DashboardRow(
    "Is it working?",
    (
        DashboardPanel(
            "Is the daemon up?",
            "Up. Down means that Prometheus could not scrape it.",
            (PanelQuery(chosen(UP), "{{instance}}"),),
            kind="stat",
            width=4,
            words=((0, "down", "red"), (1, "up", "green")),
        ),
        DashboardPanel(
            "How long has it been up?",
            "Days. Minutes, again and again, mean that it crashes and is started anew.",
            (PanelQuery(f"time() - {chosen(STARTED)}", "{{instance}}"),),
            "s",
            kind="stat",
            width=4,
            below="orange",
            steps=((600, "green"),),
        ),
        DashboardPanel(
            "How long since each stage got through a step?",
            "Seconds: an idle stage takes steps as well. Minutes mean that it hangs or waits.",
            (PanelQuery(f"max by (stage) (time() - {shown(d.PROGRESS)})", "{{stage}}"),),
            "s",
            kind="stat",
            width=6,
            steps=((STALLED_S / 5, "orange"), (STALLED_S, "red")),
        ),
        DashboardPanel(
            "Can it reach the stream and the store?",
            "Both are reached. Away: a stage waits for it and goes on by itself; nothing is lost.",
            (PanelQuery(f"min by (what) ({shown(d.REACHABLE)})", "{{what}}"),),
            kind="stat",
            width=5,
            words=((0, "away", "red"), (1, "reached", "green")),
        ),
        DashboardPanel(
            "How many studies rest?",
            "None set aside: such a study failed too often and is not tuned until the daemon "
            "starts anew, or this tunerd cannot read it. Paused are those that an operator paused. "
            "Learned anew are those whose saved state was damaged, since the start.",
            (
                PanelQuery(f"sum({shown(d.ASIDE)})", "set aside"),
                PanelQuery(f"sum({shown(d.PAUSED)})", "paused"),
                PanelQuery(f"sum({shown(d.LEARNED_ANEW)})", "learned anew"),
            ),
            kind="stat",
            width=5,
            steps=((1, "orange"),),
        ),
        DashboardPanel(
            "What comes in, and what becomes of it?",
            "As many records a second as jobs end, nearly all accepted. Duplicates are harmless.",
            (PanelQuery(_rate(d.RECORDS, "outcome"), "{{outcome}}"),),
            "cps",
            low=0,
        ),
        DashboardPanel(
            "Which field makes records unusable?",
            "Nothing. A new field with many: a sender changed. “value” is a record that is no JSON "
            "object, “study” a study that is not known. The rejected topic has each with its "
            "reason.",
            (PanelQuery(f"{_increase(d.REJECTED, 'reason')} > 0", "{{reason}}"),),
            kind="bars",
            empty="none rejected",
        ),
        DashboardPanel(
            "How far is it behind?",
            "Near 0, or falling. Not ingested: records on the jobs topic. Not learned: jobs in "
            "history that the tuner has not seen.",
            (
                PanelQuery(shown(d.LAG), "not ingested, {{instance}}"),
                PanelQuery(f"sum by (study) ({shown(d.UNLEARNED)})", "not learned, {{study}}"),
            ),
            low=0,
        ),
        DashboardPanel(
            "How long ago did the last job come in?",
            "About as long as jobs usually lie apart. A line that only rises: nobody sends.",
            (PanelQuery(f"min by (study) (time() - {shown(d.LAST_OBSERVATION)})", "{{study}}"),),
            "s",
            low=0,
            empty="no job yet",
        ),
        DashboardPanel(
            "How old is the oldest message that waits to be sent?",
            "A few seconds at most. Minutes: the stream does not take messages.",
            (PanelQuery(f"max by (instance) ({shown(d.OLDEST)})", "{{instance}}"),),
            "s",
            low=0,
            steps=((OUTBOX_S / 5, "orange"), (OUTBOX_S, "red")),
        ),
        DashboardPanel(
            "What went wrong?",
            "Nothing. Away: steps that could not reach the stream or the store. Tuner replaced: "
            "its process died or passed its deadline. Let go: messages that the stream can never "
            "take. Said again: recommendations that others had overwritten or deleted.",
            (
                PanelQuery(_increase(d.UNREACHABLE, "what"), "{{what}} away"),
                PanelQuery(_increase(d.RESTARTS, "why"), "tuner replaced: {{why}}"),
                PanelQuery(_increase(d.LOST, "kind"), "let go: {{kind}}"),
                PanelQuery(_increase(d.SAID_AGAIN, "job"), "said again"),
            ),
            kind="bars",
        ),
        DashboardPanel(
            "Do the halves of jobs come together?",
            "As many that wait as jobs run or have just ended, and hardly an incomplete one. Many "
            "that are incomplete: a scheduler or a trainer stopped to send, or they name clusters, "
            "jobs or attempts differently; `tunerd attempts` says what is missing.",
            (
                PanelQuery(f"sum({shown(d.ATTEMPTS_WAITING)})", "wait"),
                PanelQuery(f"sum({shown(d.ATTEMPTS_INCOMPLETE)})", "incomplete"),
                PanelQuery(_increase(d.JOINED, "how"), "joined: {{how}}"),
            ),
            low=0,
            empty="no halves",
        ),
    ),
)

RIGHT = DashboardRow(
    "Is it right?",
    (
        DashboardPanel(
            "Does it rank configurations right?",
            "Kendall's τ within contexts, each job predicted before it was learned: 1 is the right "
            "order, 0 is chance. Above 0.5 is useful, 0.8 is good. It falls without harm when most "
            "jobs run nearly equal configurations; a sudden fall means that something changed.",
            (PanelQuery(f"max by (study) ({shown(d.KENDALL)})", "{{study}}"),),
            width=6,
            high=1,
            below="red",
            steps=((LOW_TAU, "orange"), (0.5, "green")),
            empty="nothing predicted yet",
        ),
        DashboardPanel(
            "How far off are its predictions?",
            "Mean absolute error, relative to what was measured, and how far equal jobs lie apart: "
            "near that is as good as it gets.",
            (
                PanelQuery(f"max by (study) ({shown(d.MAPE)})", "{{study}}"),
                PanelQuery(f"max by (study) ({shown(d.NOISE)})", "{{study}}, equal jobs"),
            ),
            "percentunit",
            width=6,
            low=0,
            empty="nothing predicted yet",
        ),
        DashboardPanel(
            "Do its bands hold what they promise?",
            "Share of jobs that fell into the band predicted for them, which promises 80 %. Lower: "
            "it is too sure of itself. Higher: it promises less than it could.",
            (PanelQuery(f"max by (study) ({shown(d.COVERAGE)})", "{{study}}"),),
            "percentunit",
            width=6,
            low=0,
            high=1,
            below="red",
            steps=((ENOUGH_COVERED, "orange"), (0.7, "green"), (0.95, "yellow")),
            empty="nothing predicted yet",
        ),
        DashboardPanel(
            "On how many jobs is that judged?",
            f"Some hundred. Below {ENOUGH_JOBS} the three beside this one jump about.",
            (PanelQuery(f"max by (study) ({shown(d.WINDOW)})", "{{study}}"),),
            width=6,
            low=0,
        ),
        DashboardPanel(
            "Are jobs still as they were?",
            "Nothing. Speed, ranks: what was learned of them no longer holds; tunerd learns anew, "
            "with wider bands meanwhile. Inputs: other jobs come. Failures: more of them fail.",
            (PanelQuery(f"max by (study, kind) ({shown(d.DRIFTING)})", "{{kind}}, {{study}}"),),
            width=12,
            low=0,
        ),
        DashboardPanel(
            "What has changed lately?",
            "Now and then. False alarms are rarer than one in ten thousand jobs, unless the study "
            "says otherwise.",
            (PanelQuery(_increase(d.DRIFTS, "kind"), "{{kind}}"),),
            kind="bars",
            width=12,
        ),
    ),
)

WORTH = DashboardRow(
    "Is it worth it?",
    (
        DashboardPanel(
            "Do candidates gain what was promised?",
            "Shown near promised: gain over the incumbent of that moment, the mean over the latest "
            "jobs that ran a candidate to exploit or confirm it. Both above 0. Shown well below "
            "promised is a fault. Taken off: by how much lower bounds are lower, because what was "
            "chosen for looking good was overrated. Empty while no candidate was run, and in mode "
            "observe.",
            (
                PanelQuery(f"max by (study) ({shown(d.GAIN_PREDICTED)})", "promised, {{study}}"),
                PanelQuery(f"max by (study) ({shown(d.GAIN_REALISED)})", "shown, {{study}}"),
                PanelQuery(f"max by (study) ({shown(d.OVERRATED)})", "taken off, {{study}}"),
            ),
            "percentunit",
            width=10,
            empty="no candidate was run yet",
        ),
        DashboardPanel(
            "What do jobs do with the recommendation?",
            "Followed, nearly all. Ignored: it was there, and the job carries no trace of it. "
            "Changed: somebody ran something else. Unasked: there was nothing to follow.",
            (PanelQuery(_increase(d.JOBS, "following"), "{{following}}"),),
            kind="bars",
            width=8,
        ),
        DashboardPanel(
            "How many of those that could follow did?",
            "Most. Of the jobs in the range shown for which there was a recommendation.",
            (PanelQuery(f"{_FOLLOWED} / {_ASKED}", "followed"),),
            "percentunit",
            kind="stat",
            width=3,
            below="orange",
            steps=((0.5, "green"),),
            empty="nothing to follow",
        ),
        DashboardPanel(
            "Over how many jobs are the gains?",
            "The more the surer: below 20 a gain says little.",
            (PanelQuery(f"max by (study) ({shown(d.GAIN_JOBS)})", "{{study}}"),),
            kind="stat",
            width=3,
            below="text",
        ),
    ),
)

DOING = DashboardRow(
    "What is it doing?",
    (
        DashboardPanel(
            "How many contexts have a recommendation?",
            "Near the number of active ones. Running: schedulers follow it. Proposed: only "
            "observed, or waits for approval.",
            (
                PanelQuery(f"sum by (study) ({shown(d.ACTIVE)})", "active, {{study}}"),
                PanelQuery(
                    f"sum by (study, state) ({shown(d.RECOMMENDED)})", "{{state}}, {{study}}"
                ),
            ),
            low=0,
        ),
        DashboardPanel(
            "What does it say?",
            "Much at first, then little: issued is news for schedulers, renewed says the same for "
            "longer, suggested is only observed or waits for approval.",
            (PanelQuery(_increase(d.RECOMMENDATIONS, "change"), "{{change}}"),),
            kind="bars",
        ),
        DashboardPanel(
            "What becomes of what it introduces?",
            "Mostly withdrawn: it is tried to be found out. Some promoted; returned, which is a "
            "promotion taken back, hardly ever.",
            (PanelQuery(_increase(d.INTRODUCTIONS, "outcome"), "{{outcome}}"),),
            kind="bars",
        ),
        DashboardPanel(
            "What kinds of candidates does it propose?",
            "Exploit is believed to be better, confirm looked better once, explore teaches.",
            (PanelQuery(_increase(d.CANDIDATES, "kind"), "{{kind}}"),),
            kind="bars",
        ),
        DashboardPanel(
            "How long does a step of the tuner take?",
            "A second or two. It ends in a restart at tune.step_deadline_s.",
            (*_quantiles(d.LEARN_S, "learning"), *_quantiles(d.SEARCH_S, "searching")),
            "s",
            low=0,
        ),
        DashboardPanel(
            "How much does it learn and search?",
            "As many jobs as come in; every context of a new job is searched.",
            (
                PanelQuery(_rate(d.LEARNED, "study"), "jobs learned, {{study}}"),
                PanelQuery(_rate(d.SEARCHED, "study"), "contexts searched, {{study}}"),
                PanelQuery(_rate(d.REBUILT, "study"), "models refitted, {{study}}"),
                PanelQuery(_rate(d.REBUILD_FAILED, "study"), "rebuilds failed, {{study}}"),
            ),
            "cps",
            low=0,
        ),
        DashboardPanel(
            "How long do ingest and publish take for a batch?",
            "Well under a second: the store's commit, and the stream's acknowledgement.",
            (*_quantiles(d.INGEST_S, "ingest"), *_quantiles(d.PUBLISH_S, "publish")),
            "s",
            low=0,
        ),
        DashboardPanel(
            "What goes out?",
            "Recommendations; rejected records only where something is wrong with a sender.",
            (PanelQuery(_rate(d.MESSAGES, "kind"), "{{kind}}"),),
            "cps",
            low=0,
        ),
        DashboardPanel(
            "How long does somebody who asks wait for an answer?",
            "Two seconds at most, from a request's coming in until its answer is committed.",
            _quantiles(d.ANSWER_S, "answer"),
            "s",
            low=0,
            empty="nobody asked",
        ),
        DashboardPanel(
            "What comes of requests?",
            "As many answered as come in. Nothing: there was nothing to say, and the answer says "
            "why. Many that wait: the tuner is busy or away.",
            (
                PanelQuery(_rate(d.REQUESTS, "outcome"), "{{outcome}}"),
                PanelQuery(_rate(d.ANSWERED, "outcome"), "answered: {{outcome}}"),
                PanelQuery(f"sum({shown(d.UNANSWERED)})", "wait"),
            ),
            low=0,
        ),
        DashboardPanel(
            "How much memory does it take?",
            "Level after some hours. The daemon up to 200 MiB; the tuner more, with studies and "
            "history.",
            (
                PanelQuery(chosen(RESIDENT), "daemon, {{instance}}"),
                PanelQuery(shown(d.TUNER_SIZE), "tuner, {{instance}}"),
            ),
            "bytes",
            low=0,
        ),
        DashboardPanel(
            "Which version runs?",
            "One version, the one that you meant.",
            (PanelQuery(f"count by (version) ({shown(d.BUILD)})", "{{version}}"),),
            kind="stat",
            names=True,
            below="text",
        ),
    ),
)

ROWS = (WORKING, RIGHT, WORTH, DOING)
