"""Opening the books of a study: loading them as they were saved last, or learning history anew.

That is for a new generation of the study, and for another version of tunerd that remembers
otherwise. It is also for saved state that is damaged, whatever part of it. What history does not
tell is taken over from the generation before.
"""

import logging
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import Any

from tunerd.core.decisions.context_state import UNREADABLE, readable_state
from tunerd.core.decisions.overrides import Override, OverrideSet
from tunerd.core.drift.alarms import Drift, DriftUpdate
from tunerd.core.hash_chain import HashChain
from tunerd.core.model.history_weights import Regime
from tunerd.core.observation import Observation
from tunerd.core.study import Study
from tunerd.core.study_file import parse_study
from tunerd.core.tuner import Tuner
from tunerd.errors import CorruptDataError, MisconfiguredError, StoreUnavailableError
from tunerd.settings.model import TuneSettings
from tunerd.stages.checkpoints import CheckpointManager, parts_of
from tunerd.stages.commands import order_of
from tunerd.stages.recommendations import LogEvent, RecommendationRegistry
from tunerd.stages.study_session import LAYOUT, StudySession
from tunerd.store import Store, arguments_problem

__all__ = ["open_books"]

log = logging.getLogger(__name__)

GATHER = 1000
"""Observations read at a time when a generation learns its history anew."""
PINNED = "the model that an operator went back to: a new version of the study learns its own"
DAMAGED = "all that history does not tell: what was saved is damaged"
WATCHED_ANEW = "What is usual is learned anew."


def open_books(
    store: Store,
    name: str,
    epoch: int,
    background: Executor,
    topic: str,
    settings: TuneSettings,
    alive: Callable[[], None],
    *,
    anew: str = "",
) -> StudySession:
    """Load a study as it was saved last; a new generation, another version of tunerd that
    remembers otherwise, and saved state that is damaged learn its history anew.

    ``alive`` is called now and then while that takes long. ``anew`` says why what was saved must
    not be trusted.

    Raises:
        MisconfiguredError: the study's file cannot be read.
    """
    generation = store.generation(name)
    assert generation is not None
    study = parse_study(generation.text, f"{name}, generation {generation.generation}")
    state, damaged = _saved(store, study)
    books = StudySession(
        study=study,
        generation=generation.generation,
        epoch=epoch,
        tuner=Tuner(study, background),
        recommended=RecommendationRegistry.load(study, topic, store.recommendations(name)),
        checkpoints=CheckpointManager(name, generation.generation, settings),
        settings=settings,
    )
    current = state.get("generation") == generation.generation
    books.ended = bool(current and state["ended"])
    known = current and state.get("layout") == LAYOUT
    damaged = damaged or (anew if known else "")
    if known and not damaged:
        damaged = _take_up(store, books, background, state)
    if damaged or not known:
        books.tuner = Tuner(study, background)
        books.checkpoints = CheckpointManager(name, generation.generation, settings)
        before = study if current else _study_of(store, name, state.get("generation"))
        _learn_anew(store, books, before, state, alive)
    books.damaged = damaged
    books.in_quarantine = store.quarantine_counts(name).get(name, 0)
    books.chain = HashChain.go_on(state.get("history"), books.tuner.sequence)
    books.tuner.impose(OverrideSet(study, map(Override.load, state.get("orders", []))))
    return books


def _saved(store: Store, study: Study) -> tuple[Mapping[str, Any], str]:
    """The state that was saved last, and what is wrong with it: then only what operators ordered,
    which their commands still tell."""
    try:
        saved = store.study_state(study.name)
        if saved is None:
            return {}, ""
        bool(saved.state["ended"])
        HashChain.go_on(saved.state.get("history"), 0)
        list(map(Override.load, saved.state.get("orders", [])))
        return saved.state, ""
    except (CorruptDataError, *UNREADABLE) as error:
        return _ordered(store, study), _told(error)


def _ordered(store: Store, study: Study) -> Mapping[str, Any]:
    """What a state says of orders, and whether the study has ended, from operators' commands."""
    orders, ended = OverrideSet(study), False
    row = store.study(study.name)
    for command in store.commands(study.name, pending=False):
        given = command.arguments
        done = command.result or "refused"
        if done.startswith("refused") or arguments_problem(command.command, given):
            continue
        match command.command:
            case "pause" | "pin" | "forbid" if done.startswith(("paused", "in force")):
                orders = orders.given(order_of(command))
            case "resume":
                over = orders.pauses_within(given["context"])
                orders = orders.lifted(override.number for override in over)
            case "lift":
                orders = orders.lifted([given["number"]])
            case "end":
                ended = True
    generation = None if row is None else row.generation
    standing = [override.dump() for override in orders.standing]
    return {"generation": generation, "ended": ended, "orders": standing}


def _take_up(
    store: Store, books: StudySession, background: Executor, state: Mapping[str, Any]
) -> str:
    """Go on from what was saved. Returns what is wrong with it where that cannot be: then the
    books hold no model yet."""
    try:
        parts = None
        if (latest := state["model"]) is not None:
            parts = parts_of(store, books.study.name, latest)
            books.checkpoints.go_on(latest, parts)
        books.tuner = _restore(store, books.study, background, state, parts)
    except StoreUnavailableError:
        raise
    except Exception as error:  # whatever a damaged state leads to
        log.warning("saved state of study %s cannot be used", books.study.name, exc_info=True)
        return _told(error)
    return ""


def _told(error: Exception) -> str:
    return str(error) if isinstance(error, CorruptDataError) else f"{type(error).__name__}: {error}"


def _restore(
    store: Store,
    study: Study,
    background: Executor,
    state: Mapping[str, Any],
    parts: Mapping[str, bytes] | None,
) -> Tuner:
    name = study.name
    last: int = state["tuner"]["sequence"]
    steps = [(s.sequence_from, s.sequence_to) for s in store.steps(name, limit=1000)]
    return Tuner.restore(
        study,
        background,
        state["tuner"],
        {row.context_key: row.state for row in store.context_states(name)},
        parts,
        [step for step in reversed(steps) if step[0] <= step[1] <= last],
        lambda sequences: store.observations_left(name, sequences),
    )


def _study_of(store: Store, name: str, number: int | None) -> Study | None:
    """An earlier generation of a study; None where this version of tunerd cannot read it."""
    row = None if number is None else store.generation(name, number)
    if row is None:
        return None
    try:
        return parse_study(row.text, f"{name}, generation {number}")
    except MisconfiguredError:
        return None


def _training_of(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a saved state says of training; nothing where another tunerd keeps it otherwise."""
    tuner = state.get("tuner")
    training = tuner.get("training") if isinstance(tuner, dict) else None
    return training if isinstance(training, dict) else {}


def _regimes_of(state: Mapping[str, Any]) -> list[Regime]:
    """The drifts that a saved state knows of."""
    try:
        return [Regime.load(regime) for regime in _training_of(state).get("regimes", [])]
    except UNREADABLE:
        return []


def _drifts_of(state: Mapping[str, Any]) -> list[Drift]:
    """The drifts that were not over in a saved state; none where another tunerd keeps them
    otherwise."""
    try:
        return [Drift.load(recovery["drift"]) for recovery in state["tuner"]["watch"]["active"]]
    except UNREADABLE:
        return []


def _learn_anew(
    store: Store,
    books: StudySession,
    before: Study | None,
    state: Mapping[str, Any],
    alive: Callable[[], None],
) -> None:
    """Learn all history; take over from the former generation, whose ``state`` was saved last,
    what that does not tell."""
    name, tuner = books.study.name, books.tuner
    row = store.study(name)
    assert row is not None
    rows = store.context_states(name, whole_ones=True)
    kept = {row.context_key: readable_state(row.state) for row in rows}
    former = {key: state for key, state in kept.items() if state is not None}
    tuner.expect(former, before, _regimes_of(state))
    tuner.bad = store.bad_sequences(name)
    last = None
    # Up to where it had learned: what came since is predicted first, as always.
    while jobs := _up_to(store, name, tuner.sequence, row.learned_sequence):
        tuner.gather(jobs)
        last = jobs[-1].finished_at
        alive()
    tuner.sequence = row.learned_sequence
    tuner.catch_up()
    alive()
    messages = [*books.recommended.proposed.values(), *books.recommended.running.values()]
    lost = tuner.adopt(former, before, messages)
    lost += [(key, DAMAGED) for key in kept.keys() - former.keys()]
    books.lost = [LogEvent("not taken over", {"context": key, "what": what}) for key, what in lost]
    if _training_of(state).get("pinned"):
        books.lost.append(LogEvent("not taken over", {"what": PINNED}))
    books.former = before
    books.closed = [
        DriftUpdate("over", drift, tuner.sequence, last or drift.noticed_at, WATCHED_ANEW)
        for drift in _drifts_of(state)
    ]
    books.gone = sorted(former.keys() - tuner.contexts.keys())
    if before is None or before.context != books.study.context:
        books.keys = _keys(store, books.study, alive)
    books.anew = True


def _up_to(store: Store, name: str, after: int, last: int) -> list[Observation]:
    """The next observations up to a sequence, as far as they were not pruned."""
    jobs = store.observations(name, after=after, limit=min(last - after, GATHER))
    return [job for job in jobs if job.sequence <= last]


def _keys(store: Store, study: Study, alive: Callable[[], None]) -> dict[int, str]:
    """Of the contexts of all jobs, pruned ones included: what a study calls them, by sequence."""
    keys: dict[int, str] = {}
    at = 0
    while rows := store.job_contexts(study.name, at, GATHER):
        keys |= {sequence: sys.intern(study.context_key(context)) for sequence, context in rows}
        at = rows[-1][0]
        alive()
    return keys
