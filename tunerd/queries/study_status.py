"""What a study has come to: what ``tunerd status`` says of it, and the pages."""

import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tunerd.queries.metric_samples import MetricSamples

if TYPE_CHECKING:  # commands that only look must not wait for the learners
    from tunerd.core.decisions.drift_consequences import DriftConsequences
    from tunerd.store import RecommendationRow, Store, StudyGeneration, StudyOverview

__all__ = ["drifts", "recommendation_summary", "study_status"]

MANY_CONTEXTS = 100
"""From so many on, contexts that hardly ever have two jobs are told."""


def study_status(
    store: "Store", overview: "StudyOverview", metrics: MetricSamples
) -> dict[str, Any]:
    """A study in numbers, and what somebody must see of it. Reads no history."""
    row, last = overview.study, overview.last_step
    name = row.name
    generation = store.generation(name)
    saved = store.study_state(name)
    state: dict[str, Any] = saved.state if saved else {}
    mode = _mode(generation.text) if generation else None
    states = _states(store, name, mode)
    orders = _orders(store, generation, state.get("orders", []))
    return {
        "name": name,
        "mode": mode,
        "generation": row.generation,
        "content_hash": generation.content_hash if generation else None,
        "observations": row.last_sequence,
        "learned": row.learned_sequence,
        "pruned": _pruned(store, name),
        "contexts": overview.contexts,
        "hardly_ever_the_same": _hardly_ever_the_same(store, overview),
        "steps": last.step if last else 0,
        "last_step_at": last.finished_at if last else None,
        "recommendations": states,
        "pending_commands": overview.pending_commands,
        "unanswered_requests": store.requests_waiting().get(name, 0),
        "ended": state.get("ended", False),
        "orders": orders or [],
        "orders_damaged": orders is None,
        "waiting_for_approval": states.get("pending", 0) if mode == "approve" else 0,
        "drift": [*drifts(generation, state), *_signal_shifts(store, name)],
        "given_up": _given_up(generation, state),
        "pinned_model": _pinned(store, name, state),
        "scores": _scores(store, name, metrics),
        "unusable": _unusable(generation, state),
        "quarantined": store.quarantine_counts(name).get(name, 0),
        "outside": metrics.by("tunerd_outside_jobs_total", "parameter", study=name),
        "gain_predicted": metrics.of("tunerd_gain_predicted_ratio", study=name),
        "gain_realised": metrics.of("tunerd_gain_realised_ratio", study=name),
        "set_aside": metrics.of("tunerd_study_set_aside", study=name) == 1,
    }


def _pruned(store: "Store", study: str) -> dict[str, Any] | None:
    """How many jobs left history; None where none did."""
    pruned = store.pruned_history(study)
    return None if pruned is None else asdict(pruned)


def _hardly_ever_the_same(store: "Store", overview: "StudyOverview") -> list[str]:
    """Context features that have another value in nearly every job, as a job's id would, where
    that leaves hardly a context with two jobs."""
    learned = overview.study.learned_sequence
    if overview.contexts < MANY_CONTEXTS or 2 * overview.contexts < learned:
        return []
    kinds: dict[str, set[str]] = {}
    keys = store.last_jobs(overview.study.name)
    for key in keys:
        for part in key.split("|")[1:]:
            name, _, value = part.partition("=")
            kinds.setdefault(name, set()).add(value)
    return [name for name, values in kinds.items() if 2 * len(values) > len(keys)]


def _orders(
    store: "Store", generation: "StudyGeneration | None", standing: Any
) -> list[dict[str, Any]] | None:
    """Pauses and limits that stand, with who gave them; None where nobody can read them."""
    if standing == [] or generation is None:
        return []
    from tunerd.core.decisions.context_state import UNREADABLE
    from tunerd.core.decisions.overrides import Override, OverrideSet
    from tunerd.core.study_file import parse_study

    try:
        orders = OverrideSet(parse_study(generation.text), map(Override.load, standing))
    except UNREADABLE:
        return None
    listed = []
    for order in orders.standing:
        command = store.command(order.number)
        listed.append(
            order.dump()
            | {
                "words": order.what + order.where,
                "who": command.who if command else None,
                "at": command.at if command else None,
                "does_not_fit": orders.problem(order),
            }
        )
    return listed


def drifts(generation: "StudyGeneration | None", state: dict[str, Any]) -> list[dict[str, Any]]:
    """What no longer is as it was, and is not over."""
    from tunerd.core.decisions.context_state import UNREADABLE

    try:
        active = list(state["tuner"]["watch"]["active"])
    except UNREADABLE:  # nothing was saved yet, or it is damaged: then its daemon learns it anew
        return []
    if not active or generation is None:
        return []
    from tunerd.core.decisions.drift_consequences import DriftConsequences
    from tunerd.core.drift.alarms import Drift, DriftUpdate, Phase
    from tunerd.core.study_file import parse_study
    from tunerd.events.drift import drift_event

    study = parse_study(generation.text)
    after = DriftConsequences(
        asked=_after_change(state).asked
    )  # what was given up has its own lines
    drifting = []
    for active_drift in active:
        try:
            drift = Drift.load(active_drift["drift"])
        except UNREADABLE:
            continue  # kept otherwise by another version; this one's daemon watches anew
        phase: Phase = "grew" if drift.times > 1 else "began"
        event = drift_event(
            study, DriftUpdate(phase, drift, drift.noticed, drift.noticed_at), after
        )
        drifting.append(
            {
                "drift_id": drift.drift_id,
                "kind": event.kind,
                "context_keys": list(event.context_keys),
                "feature": event.feature,
                "parameter": event.parameter,
                "value": event.value,
                "size": event.size,
                "since": {"sequence": drift.since, "finished_at": drift.since_at},
                "noticed": {"sequence": drift.noticed, "finished_at": drift.noticed_at},
                "jobs_since": active_drift["jobs"],
                "message": event.message,
                "asked_again": [
                    {"context_key": asked.context_key, "configs": list(asked.configs)}
                    for asked in event.asked_again
                ],
            }
        )
    return drifting


def _signal_shifts(store: "Store", study: str) -> list[dict[str, Any]]:
    """Signals that are at another level than was foreseen, as what :func:`drifts` gives."""
    from tunerd.store.signals import shifts_of

    kept = store.forecast_plan(study)
    shifts = {} if kept is None else shifts_of(kept[1])
    if not shifts:
        return []
    from tunerd.events.drift import shift_event

    events = [shift_event(study, signal, "began", **shift) for signal, shift in shifts.items()]
    return [
        {
            "drift_id": event.drift_id,
            "kind": event.kind,
            "context_keys": list(event.context_keys),
            "feature": event.feature,
            "parameter": None,
            "value": None,
            "size": None,
            "since": {"sequence": 0, "finished_at": event.since.finished_at},
            "noticed": {"sequence": 0, "finished_at": event.noticed.finished_at},
            "jobs_since": 0,
            "message": event.message,
            "asked_again": [],
        }
        for event in events
    ]


def _unusable(generation: "StudyGeneration | None", state: dict[str, Any]) -> dict[str, Any] | None:
    """How many jobs came without a usable objective; None before there was a job, and where
    another version counted them."""
    from tunerd.core.decisions.context_state import UNREADABLE
    from tunerd.core.usability import ObjectiveUsability

    if generation is None:
        return None
    try:
        usability = ObjectiveUsability.load(state["tuner"]["usability"])
    except UNREADABLE:
        return None
    objective = tomllib.loads(generation.text)["objective"]
    return {
        "metric": objective["metric"],
        "jobs": usability.jobs,
        "missing": usability.missing,
        "impossible": usability.impossible,
        "example": usability.example,
        "implausible": usability.implausible,
        "held_back": usability.held_back,
        "latest_jobs": len(usability.latest),
        "latest_unusable": usability.latest.count("-"),
        "says": {name: objective.get(name, "failed") for name in ("missing", "impossible")},
    }


def _after_change(state: dict[str, Any]) -> "DriftConsequences":
    """What changes of speed led to; nothing where another version saved it."""
    from tunerd.core.decisions.context_state import UNREADABLE
    from tunerd.core.decisions.drift_consequences import DriftConsequences

    try:
        return DriftConsequences.load(state["tuner"]["after_change"])
    except UNREADABLE:
        return DriftConsequences()


def _given_up(generation: "StudyGeneration | None", state: dict[str, Any]) -> list[dict[str, Any]]:
    """Incumbents that a change made slow and that gave way, the latest first."""
    after = _after_change(state)
    if generation is None or not after.given_up:
        return []
    from tunerd.core.study_file import parse_study

    study = parse_study(generation.text)
    return [
        {
            "context_key": replaced.context_key,
            "config": replaced.config,
            "before": study.metric_value(replaced.before),
            "now": study.metric_value(replaced.now),
            "sequence": replaced.sequence,
            "at": replaced.at or None,
            "message": replaced.words(study),
        }
        for replaced in reversed(after.given_up)
    ]


def _pinned(store: "Store", study: str, state: dict[str, Any]) -> int | None:
    """The version that an operator went back to, while it stands."""
    from tunerd.core.decisions.context_state import UNREADABLE
    from tunerd.store import serving

    try:
        pinned = bool(state["tuner"]["training"]["pinned"])
    except UNREADABLE:
        return None
    if not pinned:
        return None
    serves = serving(store.models(study))
    return None if serves is None else serves.version


def _scores(store: "Store", study: str, metrics: MetricSamples) -> dict[str, float | None] | None:
    """How well the last jobs were predicted: from the daemon, else from the last steps."""

    def of(name: str) -> float | None:
        return metrics.of(f"tunerd_prediction_{name}", study=study)

    observations = of("window_observations")
    if observations is not None:
        return {
            "observations": int(observations),
            "kendall": of("kendall_tau"),
            "spearman": of("spearman"),
            "pearson": of("pearson"),
            "mape": of("mape_ratio"),
            "coverage": of("coverage_ratio"),
            "noise": metrics.of("tunerd_job_noise_ratio", study=study),
        }
    from tunerd.queries.saved_model import kept_scores

    return kept_scores(store, study)


def _mode(text: str) -> str:
    mode: str = tomllib.loads(text).get("mode", "observe")
    return mode


def recommendation_summary(
    row: "RecommendationRow",
    standing: Sequence[tuple[str, str]],
    read: Callable[[str], Mapping[str, Any]],
) -> dict[str, Any]:
    """A recommendation in short. What is proposed while something else is published, or was, is
    told under ``proposal``."""
    *proposed, (state, text) = standing
    value = read(text)
    return {
        "context_key": row.context_key,
        "state": state,
        "revision": row.revision,
        "recommendation_id": value.get("recommendation_id", row.recommendation_id),
        "issued_at": row.issued_at,
        "valid_until": row.valid_until,
        "reason": value.get("reason"),
        "made_from": value.get("made_from"),
        "round": value.get("round"),
        "candidates": value.get("candidates", []),
        "incumbent": value.get("incumbent"),
        "proposal": read(proposed[0][1]) if proposed else None,
        "proposal_state": proposed[0][0] if proposed else None,
    }


def _states(store: "Store", study: str, mode: str | None) -> dict[str, int]:
    """How many contexts have something in a state: what is active may have a proposal beside it."""
    rows = store.standing_rows(study)
    states = Counter(state for row in rows for state in row.standing(mode))
    return dict(sorted(states.items()))
