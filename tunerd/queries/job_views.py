"""What a page shows of jobs and of the ledger, as data: the same goes out as JSON."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from tunerd.core.decisions.ledger import LedgerAccount, realised
from tunerd.core.evidence.prequential import PrequentialRecord, TargetPrediction
from tunerd.core.observation import Observation
from tunerd.core.recommendation import Recommendation
from tunerd.core.study import Study
from tunerd.errors import TunerdError
from tunerd.events import from_bytes
from tunerd.queries.accounts import account
from tunerd.queries.digest import StudyDigest, first_day, join
from tunerd.store import Store

__all__ = [
    "ClusterLedger",
    "JobDetail",
    "JobList",
    "JobRow",
    "LedgerRow",
    "LedgerWindow",
    "PredictedTarget",
    "cluster_ledger",
    "job_detail",
    "job_list",
    "jobs_at",
    "ledger_window",
]

MOST_ROWS = 200
"""Contexts, and users, of a ledger."""
NOBODY = "(not named)"
PRUNED = "What it reported was pruned from history."


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """A job in a line."""

    sequence: int
    job_id: str
    finished_at: datetime
    status: str
    user: str | None
    context_key: str
    value: Annotated[float | None, Meta(description="The objective, in its unit")]
    predicted: Annotated[float | None, Meta(description="Before the job was learned")]
    low: Annotated[float | None, Meta(description="Lower end of its 80 % band")]
    high: float | None
    following: Annotated[str | None, Meta(description="followed, changed, ignored or unasked")]
    ran_as: Annotated[str | None, Meta(description="incumbent, first or candidate")]
    ran: Annotated[bool | None, Meta(description="What it says of whether its configuration runs")]
    imported: bool
    gpu_hours: float | None


class JobList(msgspec.Struct, frozen=True, kw_only=True):
    """The latest jobs of a study."""

    schema: Literal["tunerd.jobs/1"] = "tunerd.jobs/1"
    study: str
    jobs: list[JobRow]
    next_before: Annotated[
        int | None, Meta(description="`before` of the next page; null on the last")
    ]


class PredictedTarget(msgspec.Struct, frozen=True, kw_only=True):
    """What was expected, at the moment of a job, of what was recommended."""

    kind: str
    candidate_id: str
    value: float
    feasible: float


class JobDetail(msgspec.Struct, frozen=True, kw_only=True):
    """A job."""

    schema: Literal["tunerd.job-detail/1"] = "tunerd.job-detail/1"
    study: str
    metric: str
    unit: str
    row: JobRow
    source: str
    event_id: str
    attempt: int
    learned: bool
    context: dict[str, Any]
    config: dict[str, Any]
    metrics: dict[str, float]
    measured_s: float | None
    gpus: int | None
    extra: dict[str, Any]
    recommendation_id: Annotated[str | None, Meta(description="That the job carried")]
    candidate_id: Annotated[str | None, Meta(description="That the job carried")]
    config_id: Annotated[str | None, Meta(description="Candidate id of what it ran")]
    probability_to_run: float | None
    tried: Annotated[int | None, Meta(description="Earlier jobs of this configuration here")]
    advised: Annotated[
        list[PredictedTarget], Meta(description="What was recommended when it came, as predicted")
    ]
    advised_config: Annotated[
        dict[str, Any] | None, Meta(description="The incumbent's configuration at that time")
    ]
    reason: Annotated[str | None, Meta(description="Of the recommendation that stood")]
    realised_gain: Annotated[
        float | None, Meta(description="Over the incumbent of its time, as a share")
    ]
    taught: Annotated[list[str], Meta(description="What it taught, in words")]


def job_list(
    store: Store, study: Study, *, before: int | None, limit: int, equal: Mapping[str, str]
) -> JobList:
    """The latest jobs below a sequence, with these values."""
    sequences = store.latest_sequences(study.name, before=before, limit=limit, equal=equal)
    more = sequences[-1] if len(sequences) == limit and sequences[-1] > 1 else None
    return JobList(study=study.name, jobs=jobs_at(store, study, sequences), next_before=more)


def jobs_at(store: Store, study: Study, sequences: Sequence[int]) -> list[JobRow]:
    """These jobs, in this order."""
    judged = store.predictions_at(study.name, sequences)
    observations = store.observations_at(study.name, sequences, pruned=True)
    return [_row(study, job, judged.get(job.sequence)) for job in observations]


def _row(study: Study, one: Observation, judged: PrequentialRecord | None) -> JobRow:
    outcome = judged.outcome if judged else None
    score = study.score(one.metrics)
    if score is None and outcome is not None:
        score = outcome.score  # of a job that was pruned

    def metric(value: float | None) -> float | None:
        return None if value is None else study.metric_value(value)

    ends = [outcome.low, outcome.high] if outcome else [None, None]
    low, high = (
        metric(end) for end in (ends if study.objective.goal == "maximize" else ends[::-1])
    )
    return JobRow(
        sequence=one.sequence,
        job_id=one.job_id,
        finished_at=one.finished_at,
        status=one.status.value,
        user=one.user,
        context_key=judged.context_key if judged else study.context_key(one.context),
        value=metric(score),
        predicted=metric(outcome.predicted) if outcome else None,
        low=low,
        high=high,
        following=outcome.following if outcome else None,
        ran_as=outcome.ran_as if outcome else None,
        ran=outcome.ran if outcome else None,
        imported=one.history,
        gpu_hours=outcome.gpu_hours if outcome else None,
    )


def job_detail(store: Store, study: Study, sequence: int) -> JobDetail | None:
    """A job; None where there is none of this sequence."""
    try:
        (job,) = store.observations_at(study.name, [sequence], pruned=True)
    except LookupError:
        return None
    judged = store.predictions_at(study.name, [sequence]).get(sequence)
    outcome = judged.outcome if judged else None
    stood = _message(store, outcome.recommendation_id if outcome else None)
    incumbent = stood.incumbent if stood else None
    return JobDetail(
        study=study.name,
        metric=study.objective.metric,
        unit=study.objective.unit,
        row=_row(study, job, judged),
        source=job.source,
        event_id=job.event_id,
        attempt=job.attempt,
        learned=judged is not None,
        context=dict(job.context),
        config=dict(job.config),
        metrics=dict(job.metrics),
        measured_s=job.measured_s,
        gpus=job.gpus,
        extra=dict(job.extra),
        recommendation_id=job.recommendation_id,
        candidate_id=job.candidate_id,
        config_id=outcome.config_id if outcome else None,
        probability_to_run=outcome.feasible if outcome else None,
        tried=outcome.tried if outcome else None,
        advised=[
            _target(study, target)
            for target in ((outcome.incumbent, outcome.first) if outcome else ())
            if target is not None
        ],
        advised_config=dict(incumbent.config) if incumbent else None,
        reason=stood.reason if stood else None,
        realised_gain=realised(study, judged) if judged else None,
        taught=([] if store.observations_left(study.name, [sequence]) else [PRUNED])
        + _taught(judged),
    )


def _message(store: Store, recommendation_id: str | None) -> Recommendation | None:
    """A recommendation as it was first said; None where that is not kept."""
    kept = None
    if recommendation_id:
        kept = store.derivation(recommendation_id) or store.issued(recommendation_id)
    try:
        return None if kept is None else from_bytes(msgspec.json.encode(kept.message))
    except (TunerdError, ValueError):
        return None


def _target(study: Study, one: TargetPrediction) -> PredictedTarget:
    return PredictedTarget(
        kind=one.kind,
        candidate_id=one.config_id,
        value=study.metric_value(one.score),
        feasible=one.feasible,
    )


def _taught(judged: PrequentialRecord | None) -> list[str]:
    if judged is None:
        return ["It is not learned yet."]
    outcome = judged.outcome
    sentences = []
    if outcome.score is None:
        sentences.append("It brought no usable objective, so it says nothing about speed.")
    elif outcome.tried:
        sentences.append(f"It is run {outcome.tried + 1} of this configuration in its context.")
    else:
        sentences.append("It is the first run of this configuration in its context.")
    if outcome.ran is not None:
        sentences.append(
            "It says that its configuration runs."
            if outcome.ran
            else "It says that its configuration does not run."
        )
    if outcome.score is not None and outcome.low is not None and outcome.high is not None:
        if outcome.low <= outcome.score <= outcome.high:
            sentences.append("It came out within the band that was predicted.")
        else:
            side = "better" if outcome.score > outcome.high else "worse"
            sentences.append(f"It came out {side} than the band that was predicted.")
    return sentences


# -- ledger ---------------------------------------------------------------------------------


class LedgerRow(msgspec.Struct, frozen=True, kw_only=True):
    """The sums of one study, one context, or one user."""

    name: str
    account: dict[str, Any]
    net_gpu_hours: Annotated[float, Meta(description="Saved less spent on trying")]


class LedgerWindow(msgspec.Struct, frozen=True, kw_only=True):
    """What following was worth in the last days."""

    schema: Literal["tunerd.ledger-window/1"] = "tunerd.ledger-window/1"
    study: str
    days: int
    since: datetime
    total: dict[str, Any]
    contexts: Annotated[list[LedgerRow], Meta(description="Those that cost most first")]
    users: Annotated[list[LedgerRow], Meta(description="Those that cost most first")]
    left_out: Annotated[int, Meta(description="Earlier jobs of this time that only the total has")]


def ledger_window(digest: StudyDigest, days: int, now: datetime) -> LedgerWindow:
    """The ledger of a study's last days; by context and by user of its latest jobs."""
    begin, total = first_day(days, now), digest.account(days, now)
    contexts: defaultdict[str, LedgerAccount] = defaultdict(LedgerAccount)
    users: defaultdict[str, LedgerAccount] = defaultdict(LedgerAccount)
    jobs = 0
    for day, context_key, user, entry in digest.entries.copy():
        if day >= begin:
            jobs += 1
            contexts[context_key].add(entry)
            users[user or NOBODY].add(entry)
    return LedgerWindow(
        study=digest.name,
        days=days,
        since=datetime.fromisoformat(begin).replace(tzinfo=UTC),
        total=account(total),
        contexts=_rows(contexts.items()),
        users=_rows(users.items()),
        left_out=max(total.jobs - jobs, 0),
    )


class ClusterLedger(msgspec.Struct, frozen=True, kw_only=True):
    """What following was worth in the last days, over all studies."""

    schema: Literal["tunerd.cluster-ledger/1"] = "tunerd.cluster-ledger/1"
    days: int
    since: datetime
    total: dict[str, Any]
    studies: Annotated[list[LedgerRow], Meta(description="Those that cost most first")]
    users: Annotated[list[LedgerRow], Meta(description="Those that cost most first")]
    left_out: Annotated[int, Meta(description="Earlier jobs that users' rows do not have")]
    missing: Annotated[int, Meta(description="Studies that are still being read or cannot be")]


def cluster_ledger(
    digests: Sequence[StudyDigest], there: int, days: int, now: datetime
) -> ClusterLedger:
    """The ledger of all studies' last days, by study and by user."""
    begin, total = first_day(days, now), LedgerAccount()
    studies = {digest.name: digest.account(days, now) for digest in digests}
    users: defaultdict[str, LedgerAccount] = defaultdict(LedgerAccount)
    jobs = 0
    for sums in studies.values():
        join(total, sums)
    for digest in digests:
        for day, _, user, entry in digest.entries.copy():
            if day >= begin:
                jobs += 1
                users[user or NOBODY].add(entry)
    return ClusterLedger(
        days=days,
        since=datetime.fromisoformat(begin).replace(tzinfo=UTC),
        total=account(total),
        studies=_rows((name, sums) for name, sums in studies.items() if sums.jobs),
        users=_rows(users.items()),
        left_out=max(total.jobs - jobs, 0),
        missing=there - len(digests),
    )


def _rows(accounts: Any) -> list[LedgerRow]:
    rows = [
        LedgerRow(name=name, account=account(sums), net_gpu_hours=sums.saved - sums.spent)
        for name, sums in accounts
    ]
    rows.sort(key=lambda row: (row.net_gpu_hours, -row.account["jobs"], row.name))
    if len(rows) <= MOST_ROWS:
        return rows
    return rows[: MOST_ROWS // 2] + rows[-MOST_ROWS // 2 :]
