"""The ledger as data: what following recommendations was worth."""

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tunerd.core.decisions.ledger import Ledger, LedgerAccount, LedgerContext
    from tunerd.core.evidence.rollout import RolloutResult
    from tunerd.core.study import Study

__all__ = ["account", "incumbent_lead", "introductions", "lead_share", "ledger_accounts"]


def ledger_accounts(
    study: "Study",
    made: "Ledger",
    states: Mapping[str, "LedgerContext"],
    since: datetime,
    incomparable: int,
) -> dict[str, Any]:
    """The ledger of a study as ``tunerd ledger --json`` says it."""
    return {
        "schema": "tunerd.ledger/1",
        "study": study.name,
        "since": since.isoformat(),
        "jobs_of_another_objective": incomparable,
        "total": account(made.study),
        "contexts": [
            {
                "context_key": key,
                "incumbent": states[key].introduction.incumbent if key in states else None,
                "ahead": incumbent_lead(study, states.get(key)),
                **account(entry),
            }
            for key, entry in sorted(made.contexts.items())
        ],
        "recommendations": [
            {"recommendation_id": name, **account(entry)}
            for name, entry in made.recommendations.items()
        ],
        "introductions": [
            {
                "context_key": key,
                "candidate_id": entry.candidate_id,
                "outcome": entry.outcome,
                "at": entry.at or None,
                "sequence": entry.sequence,
                "runs": entry.runs,
                "gain": lead_share(study, entry.gain),
                "cost": entry.cost,
            }
            for key, entry in introductions(states, since)
        ],
    }


def account(one: "LedgerAccount") -> dict[str, Any]:
    """The sums of some jobs."""
    return {
        "jobs": one.jobs,
        "following": dict(sorted(one.following.items())),
        "tried": dict(sorted(one.tried.items())),
        "tried_did_not_run": one.did_not_run,
        "predicted_gain": one.promised if one.promises else None,
        "realised_gain": one.realised if one.promises else None,
        "overrated": one.overrated,
        "compared_jobs": one.promises,
        "gpu_hours": one.gpu_hours,
        "gpu_hours_saved": one.saved,
        "gpu_hours_spent_on_trying": one.spent,
    }


def introductions(
    states: Mapping[str, "LedgerContext"], since: datetime
) -> "list[tuple[str, RolloutResult]]":
    """Those that ended since then, the latest first."""
    verdicts = [
        (key, verdict)
        for key, state in states.items()
        for verdict in state.introduction.verdicts
        if not verdict.at or datetime.fromisoformat(verdict.at) >= since
    ]
    return sorted(verdicts, key=lambda item: (-item[1].sequence, item[0]))


def incumbent_lead(study: "Study", state: "LedgerContext | None") -> float | None:
    """The incumbent's lead over the first one as a share; None where there is no incumbent."""
    if state is None or state.introduction.incumbent is None:
        return None
    return lead_share(study, state.introduction.uplift.ahead)


def lead_share(study: "Study", lead: float) -> float | None:
    """A difference of scores as a share; nobody can say on a linear scale."""
    return study.gain(lead, 0.0) if study.objective.scale == "log" else None
