"""What a page shows of studies and contexts, as data: the same goes out as JSON."""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from tunerd.core.decisions.context_state import UNREADABLE, ContextState
from tunerd.core.evidence.config_stats import ConfigStats, Z
from tunerd.core.evidence.rollout import RolloutResult
from tunerd.core.observation import Scalar, Value
from tunerd.core.recommendation import candidate_id
from tunerd.core.study import Study
from tunerd.errors import CorruptDataError
from tunerd.queries.accounts import account, lead_share
from tunerd.queries.digest import ContextLine, JobBlock, StudyDigest
from tunerd.queries.study_status import recommendation_summary
from tunerd.report.formatting import context_label, plural
from tunerd.store import ProvenanceRow, Store

__all__ = [
    "AttentionNote",
    "CampaignView",
    "ContextDetail",
    "ContextList",
    "ContextRowView",
    "GainBlock",
    "MeasuredRow",
    "RunPoint",
    "SaidRow",
    "StudyDetail",
    "StudyLine",
    "StudyList",
    "attention",
    "context_detail",
    "context_list",
    "context_path",
    "study_detail",
    "study_line",
    "study_list",
]

WEEK, MONTH = 7, 30
MOST_CONFIGS = 40
"""Configurations that are shown of a context, the best ones."""
MOST_SAID = 20
MOST_RUNS = 400
MOST_CAMPAIGNS = 3
_NEVER = datetime.min.replace(tzinfo=UTC)
MOST_GENERATIONS = 20
BEHIND = 200
"""Jobs that are not learned yet from which on a study is behind."""
LEVELS = {"act": 0, "look": 1, "know": 2}


class AttentionNote(msgspec.Struct, frozen=True):
    """Something that somebody should see."""

    level: Annotated[
        Literal["act", "look", "know"],
        Meta(description="act: waits for a person or costs; look: has changed; know: good to know"),
    ]
    text: str


class StudyLine(msgspec.Struct, frozen=True, kw_only=True):
    """One study in a line."""

    name: str
    mode: str | None
    jobs: int
    learned: int
    contexts: int
    gain: Annotated[
        float | None,
        Meta(
            description="Of the latest jobs over what was launched first in their contexts, mean; "
            "0.04 is 4 % better."
        ),
    ]
    followed: Annotated[
        float | None, Meta(description="Share of the last week's jobs that followed, of those told")
    ]
    net_gpu_hours: Annotated[
        float | None,
        Meta(description="Saved by following less spent on trying in the last 7 days"),
    ]
    kendall: float | None
    drifts: int
    waiting: Annotated[int, Meta(description="Recommendations that wait for approval")]
    last_job_at: datetime | None
    attention: list[AttentionNote]


class StudyList(msgspec.Struct, frozen=True, kw_only=True):
    """All studies, those first that need attention most."""

    schema: Literal["tunerd.studies/1"] = "tunerd.studies/1"
    studies: list[StudyLine]
    being_read: Annotated[int, Meta(description="Studies whose jobs are still being read")]
    unreadable: Annotated[dict[str, str], Meta(description="Why others cannot be read, by name")]


class GainBlock(msgspec.Struct, frozen=True, kw_only=True):
    """Consecutive live jobs."""

    first_at: datetime
    last_at: datetime
    jobs: int
    failed: int
    gain: float | None
    low: float | None
    high: float | None
    in_band: Annotated[float | None, Meta(description="Share of jobs within their 80 % band")]


class RunPoint(msgspec.Struct, frozen=True, kw_only=True):
    """A job that brought an objective."""

    sequence: int
    value: float
    round: Annotated[
        int | None,
        Meta(
            description="First round of the campaign that asked for its configuration; 0 is "
            "the random start"
        ),
    ] = None


class CampaignView(msgspec.Struct, frozen=True, kw_only=True):
    """A campaign in a context, job by job: Figure 2a of the CubicML paper."""

    context_key: str
    label: str
    round: Annotated[int, Meta(description="-1 before the random start, 0 in it")]
    rounds: int
    missing: Annotated[int, Meta(description="Runs that the round still waits for")]
    finished: bool
    runs: Annotated[list[RunPoint], Meta(description="Oldest first")]


class StudyDetail(msgspec.Struct, frozen=True, kw_only=True):
    """A study."""

    schema: Literal["tunerd.study/1"] = "tunerd.study/1"
    line: StudyLine
    objective: dict[str, str]
    gains: list[GainBlock]
    week: Annotated[dict[str, Any], Meta(description="The ledger of the last 7 days")]
    month: Annotated[dict[str, Any], Meta(description="The ledger of the last 30 days")]
    statuses: Annotated[dict[str, int], Meta(description="Jobs by how they ended")]
    following: Annotated[dict[str, int], Meta(description="Live jobs by what they did")]
    models: Annotated[list[dict[str, Any]], Meta(description="Versions, newest first")]
    generations: list[dict[str, Any]]
    commands: Annotated[list[dict[str, Any]], Meta(description="The latest, newest first")]
    campaigns: Annotated[
        list[CampaignView], Meta(description="Those with the latest jobs, three at most")
    ]
    status: Annotated[dict[str, Any], Meta(description="As `tunerd status --json` has it")]


class ContextRowView(msgspec.Struct, frozen=True, kw_only=True):
    """One context in a line."""

    context_key: str
    context: dict[str, Any]
    label: str
    states: list[str]
    jobs: int
    last_job_at: datetime | None
    gain: Annotated[
        float | None, Meta(description="Of the incumbent over what was launched there first")
    ]
    incumbent: str | None
    latest: Annotated[list[float], Meta(description="Objective of the latest jobs, oldest first")]


class ContextList(msgspec.Struct, frozen=True, kw_only=True):
    """Contexts of a study, a page of them."""

    schema: Literal["tunerd.contexts/1"] = "tunerd.contexts/1"
    study: str
    contexts: list[ContextRowView]
    total: Annotated[int, Meta(description="Contexts that the search finds")]
    page: int
    pages: int


class MeasuredRow(msgspec.Struct, frozen=True, kw_only=True):
    """What jobs of one configuration showed in a context."""

    candidate_id: str
    config: dict[str, Any]
    runs: int
    mean: float | None
    low: Annotated[float | None, Meta(description="Lower end of an 80 % band of the mean")]
    high: float | None
    ran: int
    failures: int
    unasked: int
    latest: Annotated[list[float], Meta(description="Objective of the latest runs, oldest first")]
    sequences: Annotated[list[int], Meta(description="Their jobs")]
    role: Annotated[str, Meta(description="incumbent, baseline, exploit, explore, confirm or ''")]


class SaidRow(msgspec.Struct, frozen=True, kw_only=True):
    """A recommendation that was made."""

    recommendation_id: str
    said_at: datetime
    sequence: int
    reason: str
    candidates: list[dict[str, Any]]
    outcomes: Annotated[
        dict[str, str], Meta(description="What became of its candidates, by candidate id")
    ]


class ContextDetail(msgspec.Struct, frozen=True, kw_only=True):
    """A context."""

    schema: Literal["tunerd.context/1"] = "tunerd.context/1"
    study: str
    unit: str
    metric: str
    goal: str
    context_key: str
    context: dict[str, Any]
    label: str
    jobs: int
    gain: float | None
    last_job_at: datetime | None
    recommendations: Annotated[
        list[dict[str, Any]], Meta(description="What stands, as `tunerd status NAME --json` has it")
    ]
    configs: list[MeasuredRow]
    configs_total: int
    runs: Annotated[
        list[RunPoint], Meta(description="Latest runs of every configuration, oldest first")
    ]
    verdicts: Annotated[list[dict[str, Any]], Meta(description="Introductions that ended")]
    campaign: dict[str, Any] | None
    said: list[SaidRow]


def context_path(key: str) -> str:
    """What stands for a context in a URL: its key without the study."""
    return key.partition("|")[2] or "-"


def study_line(digest: StudyDigest, now: datetime) -> StudyLine:
    """A study in a line."""
    status = digest.status
    week = digest.account(WEEK, now)
    advised = sum(count for name, count in week.following.items() if name != "unasked")
    scores = status.get("scores") or {}
    return StudyLine(
        name=digest.name,
        mode=status["mode"],
        jobs=status["observations"],
        learned=status["learned"],
        contexts=status["contexts"],
        gain=_latest_gain(digest),
        followed=week.following.get("followed", 0) / advised if advised else None,
        net_gpu_hours=week.saved - week.spent if week.gpu_hours else None,
        kendall=scores.get("kendall"),
        drifts=len(status["drift"]),
        waiting=status["waiting_for_approval"],
        last_job_at=digest.last_job_at,
        attention=attention(digest, now),
    )


def _latest_gain(digest: StudyDigest) -> float | None:
    """Of the last fifth of the live jobs."""
    blocks = digest.blocks[-max(1, len(digest.blocks) // 5) :]
    measured = sum(block.measured for block in blocks)
    return sum(block.gain for block in blocks) / measured if measured else None


def attention(digest: StudyDigest, now: datetime) -> list[AttentionNote]:
    """What somebody should see of a study, the most urgent first."""
    status = digest.status
    notes: list[tuple[Literal["act", "look", "know"], str]] = []
    if status["set_aside"]:
        notes.append(("act", "set aside: it is not tuned any more; the log says why"))
    if waiting := status["waiting_for_approval"]:
        verb = "waits" if waiting == 1 else "wait"
        notes.append(("act", f"{plural(waiting, 'recommendation')} {verb} for approval"))
    week = digest.account(WEEK, now)
    net = week.saved - week.spent
    if week.gpu_hours and net < -0.01 * week.gpu_hours:
        notes.append(
            ("act", f"trying cost {-net:,.0f} GPU-hours more than following saved this week")
        )
    unusable = status["unusable"]
    if (
        unusable
        and unusable["latest_jobs"]
        and 2 * unusable["latest_unusable"] > unusable["latest_jobs"]
    ):
        notes.append(("act", f"most jobs come without a usable {unusable['metric']}"))
    notes += [("look", note["message"]) for note in status["drift"]]
    if status["given_up"]:
        count = len(status["given_up"])
        notes.append(("look", f"{plural(count, 'incumbent')} gave way after a change"))
    behind = status["observations"] - status["learned"]
    if behind > BEHIND:
        notes.append(("look", f"{plural(behind, 'job')} are not learned yet"))
    waiting = {
        "pending_commands": ("command", "not carried out"),
        "quarantined": ("job", "in quarantine: nothing is learned from them"),
    }
    notes += [
        ("look", f"{plural(status[name], thing)} {what}")
        for name, (thing, what) in waiting.items()
        if status[name]
    ]
    if names := status["hardly_ever_the_same"]:
        notes.append(("look", f"hardly two jobs have the same {', '.join(names)}"))
    advised = sum(count for name, count in week.following.items() if name != "unasked")
    if advised >= 20 and not week.following.get("followed"):
        notes.append(("look", "no job followed this week"))
    notes += [("know", order["words"]) for order in status["orders"]]
    if status["orders_damaged"]:
        notes.append(("look", "pauses and limits cannot be shown: what was saved is damaged"))
    if status["pinned_model"] is not None:
        notes.append(("know", f"kept to model version {status['pinned_model']}"))
    if status["ended"]:
        notes.append(("know", "ended"))
    notes.sort(key=lambda note: LEVELS[note[0]])
    return [AttentionNote(level, text) for level, text in notes]


def study_list(
    digests: Sequence[StudyDigest], unreadable: Mapping[str, str], total: int, now: datetime
) -> StudyList:
    """All studies, those first that need attention most."""
    lines = [study_line(digest, now) for digest in digests]

    def urgency(line: StudyLine) -> tuple[int, float, str]:
        levels = [LEVELS[note.level] for note in line.attention]
        first = min(levels, default=len(LEVELS))
        return first, -levels.count(first) if levels else 0, line.name

    return StudyList(
        studies=sorted(lines, key=urgency),
        being_read=max(total - len(lines) - len(unreadable), 0),
        unreadable=dict(unreadable),
    )


def study_detail(store: Store, digest: StudyDigest, now: datetime) -> StudyDetail:
    """A study."""
    objective = digest.study.objective
    current = digest.generation
    numbers = range(current, max(current - MOST_GENERATIONS, 0), -1)
    generations = [store.generation(digest.name, number) for number in numbers]
    commands = store.latest_commands(digest.name, MOST_SAID)
    return StudyDetail(
        line=study_line(digest, now),
        objective={"metric": objective.metric, "goal": objective.goal, "unit": objective.unit},
        gains=[_block(item) for item in digest.blocks.copy()],
        week=account(digest.account(WEEK, now)),
        month=account(digest.account(MONTH, now)),
        statuses=dict(digest.statuses.most_common()),
        following=dict(digest.following.most_common()),
        models=[
            {
                "version": item.version,
                "why": item.why,
                "took_over": item.took_over,
                "decided_at": item.decided_at,
                "decided_sequence": item.decided_sequence,
                "generation": item.generation,
            }
            for item in store.models(digest.name)
        ],
        generations=[
            {"generation": g.generation, "published_at": g.published_at, "by": g.published_by}
            for g in generations
            if g is not None
        ],
        commands=[
            {
                "id": item.id,
                "command": item.command,
                "arguments": dict(item.arguments),
                "who": item.who,
                "at": item.at,
                "why": item.why,
                "result": item.result,
            }
            for item in commands
        ],
        campaigns=_campaigns(store, digest),
        status=digest.status,
    )


def _campaigns(store: Store, digest: StudyDigest) -> list[CampaignView]:
    lines = [line for line in digest.contexts.copy().values() if line.profiled]
    lines.sort(key=lambda line: (line.last_job_at or _NEVER, line.key), reverse=True)
    details = (context_detail(store, digest.study, line.key) for line in lines[:MOST_CAMPAIGNS])
    return [
        CampaignView(
            context_key=detail.context_key,
            label=detail.label,
            **{name: detail.campaign[name] for name in ("round", "rounds", "missing", "finished")},
            runs=detail.runs,
        )
        for detail in details
        if detail is not None and detail.campaign is not None
    ]


def _block(one: JobBlock) -> GainBlock:
    mean, low, high = one.mean_gain or (None, None, None)
    return GainBlock(
        first_at=one.first_at,
        last_at=one.last_at,
        jobs=one.jobs,
        failed=one.failed,
        gain=mean,
        low=low,
        high=high,
        in_band=one.held / one.judged if one.judged else None,
    )


# -- contexts -------------------------------------------------------------------------------

SORTS: Mapping[str, Callable[[ContextLine], Any]] = {
    "last": lambda one: one.last_job_at or _NEVER,
    "jobs": lambda one: one.jobs,
    "gain": lambda one: -1e9 if one.gain is None else one.gain,
    "state": lambda one: one.states[0] if one.states else "",
    "context": lambda one: one.key,
}


def context_list(
    digest: StudyDigest, *, search: str, sort: str, page: int, limit: int
) -> ContextList:
    """Contexts whose key or state holds every word that is searched for."""
    words = search.lower().split()
    lines = [
        line
        for line in digest.contexts.copy().values()
        if not words or all(word in f"{line.text} {' '.join(line.states)}" for word in words)
    ]
    key, falling = sort.removeprefix("-"), sort.startswith("-")
    if key != "context":
        lines.sort(key=lambda line: line.key)
    lines.sort(key=SORTS[key], reverse=falling)
    pages = max(1, -(-len(lines) // limit))
    page = min(page, pages)
    return ContextList(
        study=digest.name,
        contexts=[
            context_row(digest.study, line) for line in lines[(page - 1) * limit : page * limit]
        ],
        total=len(lines),
        page=page,
        pages=pages,
    )


def context_row(study: Study, line: ContextLine) -> ContextRowView:
    """A context in a line."""
    return ContextRowView(
        context_key=line.key,
        context=dict(line.context),
        label=context_label(line.key, _ordered(study, line.context)),
        states=line.states,
        jobs=line.jobs,
        last_job_at=line.last_job_at,
        gain=line.gain,
        incumbent=line.incumbent,
        latest=[study.metric_value(score) for score in line.latest.copy()],
    )


def _ordered(study: Study, context: Mapping[str, Scalar]) -> dict[str, Scalar]:
    return {
        feature.name: context[feature.name] for feature in study.context if feature.name in context
    }


def context_detail(store: Store, study: Study, key: str) -> ContextDetail | None:
    """A context; None where the study knows none of this key."""
    try:
        saved = store.context_state(study.name, key)
        state = ContextState.load_other(saved.state)[0] if saved else None
    except (CorruptDataError, *UNREADABLE):
        saved, state = None, None
    row = store.recommendation(study.name, key)
    if state is None and row is None:
        return None
    messages: list[dict[str, Any]] = []
    if row is not None and (standing := row.standing(study.mode)):
        messages.append(recommendation_summary(row, standing, json.loads))
    context = _ordered(study, state.context) if state else {}
    measured = _measured(study, key, state, messages) if state else []
    introduction = state.introduction if state else None
    ahead = introduction.uplift.ahead if introduction and introduction.incumbent else None
    verdicts = introduction.verdicts if introduction else []
    outcomes = {item.candidate_id: item.outcome for item in verdicts}
    return ContextDetail(
        study=study.name,
        unit=study.objective.unit,
        metric=study.objective.metric,
        goal=study.objective.goal,
        context_key=key,
        context=dict(context),
        label=context_label(key, context),
        jobs=state.evidence.jobs if state else 0,
        gain=None if ahead is None else lead_share(study, ahead),
        last_job_at=saved.last_job_at if saved else None,
        recommendations=messages,
        configs=measured[:MOST_CONFIGS],
        configs_total=len(measured),
        runs=_runs(measured, state.rounds_asked if state else []),
        verdicts=[_verdict(study, item) for item in reversed(verdicts)],
        campaign=_campaign(state),
        said=[_said(row, outcomes) for row in store.said_in(study.name, key, MOST_SAID)],
    )


def _verdict(study: Study, verdict: RolloutResult) -> dict[str, Any]:
    """How the introduction of a candidate ended."""
    return {
        "candidate_id": verdict.candidate_id,
        "outcome": verdict.outcome,
        "at": verdict.at or None,
        "sequence": verdict.sequence,
        "runs": verdict.runs,
        "gain": lead_share(study, verdict.gain),
    }


def _said(row: ProvenanceRow, outcomes: Mapping[str, str]) -> SaidRow:
    """A recommendation that was made, with what became of its candidates."""
    candidates = list(row.message.get("candidates") or [])
    named = [str(candidate["candidate_id"]) for candidate in candidates]
    return SaidRow(
        recommendation_id=row.recommendation_id,
        said_at=row.said_at,
        sequence=row.sequence,
        reason=str(row.message.get("reason") or ""),
        candidates=candidates,
        outcomes={name: outcomes[name] for name in named if name in outcomes},
    )


def _campaign(state: ContextState | None) -> dict[str, Any] | None:
    """The present campaign, else the latest one; None where there was none."""
    if state is None or (state.campaign is None and not state.rounds_asked):
        return None
    if (now := state.campaign) is None:
        rounds = len(state.rounds_asked) - 1
        asked = len({cid for ids in state.rounds_asked for cid in ids})
        return {
            "round": rounds,
            "rounds": rounds,
            "missing": 0,
            "configurations": asked,
            "finished": True,
        }
    return {
        "round": now.round,
        "rounds": now.rounds,
        "missing": now.missing,
        "configurations": now.configurations,
        "finished": now.finished,
    }


def _measured(
    study: Study, key: str, state: ContextState, messages: Sequence[Mapping[str, Any]]
) -> list[MeasuredRow]:
    """Configurations that ran, the best first; those that never gave anything last."""
    roles = _roles(study, key, state, messages)
    scale = 1.0
    if study.objective.scale != "log":
        means = [abs(stats.mean) for stats in state.evidence.trials.values() if stats.runs]
        scale = sorted(means)[len(means) // 2] if means else 1.0
    noise = state.evidence.noise(scale)
    ranked = sorted(
        state.evidence.trials.items(),
        key=lambda item: (not item[1].runs, -item[1].mean, -item[1].last_sequence),
    )
    return [_measured_row(study, name, stats, noise, roles.get(name, "")) for name, stats in ranked]


def _runs(rows: Sequence[MeasuredRow], asked: Sequence[Sequence[str]]) -> list[RunPoint]:
    """The latest runs of all configurations in the order in which they came."""
    round_of = {cid: i for i, ids in reversed(list(enumerate(asked))) for cid in ids}
    runs = [
        RunPoint(sequence=sequence, value=value, round=round_of.get(row.candidate_id))
        for row in rows
        for sequence, value in zip(row.sequences, row.latest, strict=True)
    ]
    return sorted(runs, key=lambda run: run.sequence)[-MOST_RUNS:]


def _roles(
    study: Study, key: str, state: ContextState, messages: Sequence[Mapping[str, Any]]
) -> dict[str, str]:
    roles: dict[str, str] = {}
    baseline = study.baseline(state.context)
    if baseline is not None:
        whole: Mapping[str, Value] = state.evidence.usual(baseline) or baseline
        roles[candidate_id(study.name, key, whole)] = "baseline"
    for message in messages:
        for candidate in (message.get("proposal") or message).get("candidates") or []:
            roles[candidate["candidate_id"]] = candidate["kind"]
    if state.introduction.incumbent:
        roles[state.introduction.incumbent] = "incumbent"
    return roles


def _measured_row(
    study: Study, name: str, one: ConfigStats, noise: float, role: str
) -> MeasuredRow:
    mean = low = high = None
    if one.runs:
        half = Z * one.noise(noise) / max(one.sureness, 1e-9) ** 0.5
        mean = study.metric_value(one.mean)
        low, high = sorted(study.metric_value(one.mean + side) for side in (-half, half))
    return MeasuredRow(
        candidate_id=name,
        config=dict(one.config),
        runs=one.runs,
        mean=mean,
        low=low,
        high=high,
        ran=one.ran,
        failures=one.failures,
        unasked=one.unasked,
        latest=[study.metric_value(score) for score, _, _ in one.latest],
        sequences=[sequence for _, _, sequence in one.latest],
        role=role,
    )
