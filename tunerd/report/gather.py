"""Reading what a report is made of: the only part of this room that knows the store."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from tunerd.core.decisions.context_state import UNREADABLE
from tunerd.core.decisions.drift_consequences import DriftConsequences
from tunerd.core.decisions.space_cache import in_space_text, why_outside
from tunerd.core.evidence.prequential import PrequentialRecord
from tunerd.core.observation import effective
from tunerd.core.recommendation import Recommendation
from tunerd.core.study import Study
from tunerd.core.study_file import parse_study
from tunerd.errors import TunerdError
from tunerd.events import from_bytes
from tunerd.store import RecommendationRow, Store

__all__ = [
    "CurrentRecommendation",
    "ReportInputs",
    "gather",
    "incomparable_until",
]

MOST = 100_000
"""Jobs of a window that are looked at, the latest ones: two seconds, 300 MB."""
MOST_HISTORY = 20_000
MOST_PLACED = 5_000
"""The latest jobs of which it is said whether they lie in the space."""


@dataclass(frozen=True, slots=True)
class CurrentRecommendation:
    """What is recommended in a context now, or would be."""

    state: str
    recommendation: Recommendation


@dataclass(frozen=True, slots=True)
class ReportInputs:
    """What a report is made of."""

    study: Study
    generation: int
    since: datetime
    until: datetime
    live: list[PrequentialRecord]
    live_total: int
    history: list[PrequentialRecord]
    history_total: int
    told: Mapping[str, CurrentRecommendation]
    """By context key."""
    unlearned: int
    """Jobs in the store that are not learned yet."""
    incomparable: int
    """Live jobs of this time that were judged by another objective, and are left out."""
    in_space: str = ""
    """How many of the latest jobs lie in the study's space, in words; empty without jobs."""
    changed: Sequence[str] = ()
    """What changes of speed led to, in words."""


def gather(
    store: Store, name: str, since: datetime, until: datetime, *, past: bool
) -> ReportInputs:
    """Read a study's window; imported jobs too when asked for, or where there is little else.

    Raises:
        UnknownStudyError: the store has no such study.
    """
    row, generation = store.study(name), store.generation(name)
    if row is None or generation is None:
        raise store.unknown_study(name)
    live = store.predictions(name, since=since, until=until, most=MOST)
    total = len(live)
    if total == MOST:
        total = store.count_predictions(name, since=since, until=until)
    history: list[PrequentialRecord] = []
    history_total = 0
    if past or len(live) < FEW_LIVE:
        history = store.predictions(name, history=True, most=MOST_HISTORY)
        history_total = len(history)
        if history_total == MOST_HISTORY:
            history_total = store.count_predictions(name, history=True)
    study = parse_study(generation.text, f"{name}, generation {generation.generation}")
    after = incomparable_until(store, study)
    alike = [job for job in live if job.sequence > after]
    past_alike = [job for job in history if job.sequence > after]
    return ReportInputs(
        study=study,
        generation=generation.generation,
        since=since,
        until=until,
        live=alike,
        live_total=total - len(live) + len(alike),
        history=past_alike,
        history_total=history_total - len(history) + len(past_alike),
        told={
            row.context_key: message
            for row in store.recommendations(name)
            if (message := _told(row, study.mode)) is not None
        },
        unlearned=row.last_sequence - row.learned_sequence,
        incomparable=len(live) - len(alike),
        in_space=_in_space(store, study, row.last_sequence),
        changed=_changed(store, study),
    )


def _in_space(store: Store, study: Study, last: int) -> str:
    jobs = effective(store.observations(study.name, after=last - MOST_PLACED, limit=MOST_PLACED))
    if not jobs:
        return ""
    outside = Counter(why for why in why_outside(study, jobs) if why is not None)
    latest = "Of the latest jobs, " if last > MOST_PLACED else ""
    return latest + in_space_text(len(jobs) - outside.total(), outside)


def _changed(store: Store, study: Study) -> list[str]:
    """What was given up and what is asked again; nothing where another version saved it."""
    saved = store.study_state(study.name)
    try:
        return (
            DriftConsequences.load(saved.state["tuner"]["after_change"]).words(study)
            if saved
            else []
        )
    except UNREADABLE:
        return []


def incomparable_until(store: Store, study: Study) -> int:
    """The last job whose score means something else than scores mean in a study now: another
    metric, goal or scale was its objective then. 0 where there is none."""
    for number, last in store.learned_until(study.name).items():
        row = store.generation(study.name, number)
        try:
            if row is None or not study.scores_like(parse_study(row.text)):
                return last
        except TunerdError:  # of an older tunerd
            return last
    return 0


FEW_LIVE = 100
"""Live jobs below which imported ones are shown without being asked for."""


def _told(row: RecommendationRow, mode: str) -> CurrentRecommendation | None:
    standing = row.standing(mode)
    return (
        CurrentRecommendation(standing[0][0], from_bytes(standing[0][1].encode()))
        if standing
        else None
    )
