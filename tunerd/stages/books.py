"""The books of one study: what it has learned and said, in memory as in the store.

:func:`open_books` loads them, :meth:`Books.save` writes what a step changed. Between the two they
are the same as what is stored; after a failed transaction they are thrown away.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from tunerd import __version__
from tunerd.core.decide import Advice
from tunerd.core.lifecycle import FREE_KEY_AFTER, compose, is_news
from tunerd.core.recommendation import MadeFrom, Recommendation, State
from tunerd.core.study import Study, parse_study
from tunerd.core.tuner import Tuner
from tunerd.events import from_bytes, to_bytes
from tunerd.settings.model import TuneSettings
from tunerd.store import (
    Command,
    ContextRow,
    OutboxMessage,
    RecommendationRow,
    Store,
    Transaction,
    TuneStep,
)

__all__ = ["Books", "Changes", "Said", "open_books"]

GATHER = 1000
"""Observations read at a time when a generation learns its history anew."""
STEPS_PER_CHECKPOINT = 25
"""Steps after which a checkpoint is due: recovery learns those since the last one again, and each
costs up to a tenth of a second."""
KEEP_CHECKPOINTS = 200
"""Latest checkpoints kept, so that what was recommended lately can be derived again. Each holds
about 0.2 MB of its own; the 1.3 MB of a fit are shared until the next one."""
MANIFEST_BYTES = 4096
"""A manifest is a JSON object of a dozen names; a part that small is read to tell it apart."""
PRUNE_EVERY = 50
"""Checkpoints between two prunings."""


@dataclass
class Changes:
    """What one step wants to change."""

    swapped: bool = False
    searched: dict[str, Advice | str] = field(default_factory=dict)
    """By context key; a text says why nothing is feasible there."""
    approved: list[Recommendation] = field(default_factory=list)
    lapsed: Sequence[RecommendationRow] = ()
    """Rows whose ``renew_at`` has passed."""
    results: dict[int, str] = field(default_factory=dict)
    """What came of the operators' commands, by their id."""


@dataclass(frozen=True, slots=True)
class Line:
    """Something that an operator cares about."""

    event: str
    detail: dict[str, Any]


@dataclass
class Said:
    """What a step put into the outbox."""

    issued: int = 0
    renewed: int = 0
    withdrawn: int = 0
    candidates: Counter[str] = field(default_factory=Counter)
    lines: list[Line] = field(default_factory=list)


@dataclass
class Books:
    """One study under one epoch."""

    study: Study
    generation: int
    epoch: int
    tuner: Tuner
    topic: str
    settings: TuneSettings
    running: dict[str, Recommendation]
    """What schedulers follow, by context key: published and active."""
    proposed: dict[str, Recommendation]
    """What was observed, or waits for approval."""
    revisions: dict[str, int]
    """Last revision by context key; never restarts."""
    ended: bool = False
    anew: bool = False
    """Whether this generation just learned its history anew: everything is still to be saved."""
    gone: Sequence[str] = ()
    """Contexts of the former generation that this one does not know."""
    model: str | None = None
    """Name of the last checkpoint."""
    model_at: int = 0
    """Sequence of that checkpoint."""
    steps_since: int = 0
    checkpoints: int = 0
    """Written since the study was loaded."""
    due: list[str] = field(default_factory=list)
    """Contexts still to be searched."""
    looked_at: float = float("-inf")

    def followed(self, key: str) -> Recommendation | None:
        """What this study's schedulers, or those who only observe, have in hand."""
        return self.proposed.get(key) or self.running.get(key)

    def end(self) -> str:
        """An operator ends the study: everything is withdrawn, nothing more is said."""
        self.ended = True
        return f"ended; {len(self.running)} recommendations withdrawn"

    def approve(self, command: Command, changes: Changes) -> str:
        """An operator approves what is proposed for a context."""
        key = command.arguments["context_key"]
        proposal = self.proposed.get(key)
        asked = command.arguments["recommendation_id"]
        if self.study.mode != "approve":
            return f"refused: the study is in mode {self.study.mode}, nothing waits for approval"
        if proposal is None or proposal.recommendation_id != asked:
            return f"refused: {asked} is no longer what is proposed for {key}"
        changes.approved.append(proposal)
        return f"published for {key}"

    # -- saving -----------------------------------------------------------------------------

    def save(
        self,
        tx: Transaction,
        changes: Changes,
        learned: int,
        active: Iterable[str],
        now: datetime,
        detail: Mapping[str, Any],
    ) -> Said:
        """Write one step: what was learned, and what follows from it."""
        said = Said()
        sequence = self.tuner.sequence
        served = self.model
        self.steps_since += 1
        news = {
            key: advice
            for key, advice in changes.searched.items()
            if isinstance(advice, Advice) and is_news(advice, self.followed(key))
        }
        if self._checkpoint_due(changes.swapped, bool(news)):
            self._checkpoint(tx, now)
        alive = set(active)
        self._say(tx, changes, news, now, said)
        self._keep_up(tx, changes.lapsed, alive, now, said)
        if self.anew or self.ended:
            self._withdraw_what_ended(tx, now, said)
        self._save_state(tx, now)
        tx.save_step(
            TuneStep(
                study=self.study.name,
                epoch=self.epoch,
                generation=self.generation,
                sequence_from=sequence - learned + 1,
                sequence_to=sequence,
                seeds=self.study.search.seeds,
                model=served,
                swapped_model=self.model if changes.swapped else None,
                contexts=tuple(changes.searched),
                detail=detail,
                finished_at=now,
            )
        )
        tx.mark_learned(self.study.name, sequence)
        for number, result in changes.results.items():
            tx.finish_command(number, result, now)
        return said

    def _save_state(self, tx: Transaction, now: datetime) -> None:
        name = self.study.name
        if self.gone:
            tx.forget_contexts(name, self.gone)
        keys = self.tuner.contexts.keys() if self.anew else self.tuner.touched
        contexts = [(key, self.tuner.contexts[key]) for key in sorted(keys)]
        tx.save_context_states(
            name,
            [ContextRow(key, one.dump(), one.last_job_at, one.searched) for key, one in contexts],
        )
        state = {
            "generation": self.generation,
            "ended": self.ended,
            "model": self.model,
            "tuner": self.tuner.dump(),
        }
        tx.save_study_state(name, state, epoch=self.epoch, now=now)
        self.tuner.touched.clear()
        self.anew, self.gone = False, ()

    def _checkpoint_due(self, swapped: bool, news: bool) -> bool:
        model = self.tuner.model
        if model is None or (self.model is not None and self.model_at == model.learned):
            return False
        return (
            swapped
            or news
            or self.model is None
            or model.learned - self.model_at >= self.settings.checkpoint_every
            or self.steps_since >= STEPS_PER_CHECKPOINT
        )

    def _checkpoint(self, tx: Transaction, now: datetime) -> None:
        assert self.tuner.model is not None
        parts = self.tuner.model.dump()
        names = {
            part: tx.save_checkpoint(self.study.name, blob, now) for part, blob in parts.items()
        }
        manifest = json.dumps({"parts": names}, sort_keys=True).encode()
        self.model = tx.save_checkpoint(self.study.name, manifest, now)
        self.model_at = self.tuner.model.learned
        self.steps_since = 0
        self.checkpoints += 1
        if self.checkpoints % PRUNE_EVERY == 0:
            self._prune(tx)

    def _prune(self, tx: Transaction) -> None:
        """Drop the parts that none of the latest checkpoints is made of."""
        name = self.study.name
        kept: set[str] = set()
        manifests = 0
        rows = tx.checkpoints(name)
        for row in rows:  # newest first
            if row.size < MANIFEST_BYTES and manifests < KEEP_CHECKPOINTS:
                blob = tx.checkpoint(name, row.name)
                if blob.startswith(b'{"parts"'):
                    manifests += 1
                    kept |= {row.name, *json.loads(blob)["parts"].values()}
        tx.delete_checkpoints(name, [row.name for row in rows if row.name not in kept])

    # -- saying -----------------------------------------------------------------------------

    def _say(
        self,
        tx: Transaction,
        changes: Changes,
        news: Mapping[str, Advice],
        now: datetime,
        said: Said,
    ) -> None:
        if self.ended:
            return
        for key, found in changes.searched.items():
            if isinstance(found, str):
                said.lines.append(Line("nothing feasible", {"context": key, "problem": found}))
                if key in self.running:
                    self._withdraw(tx, key, found, now, said)
        for key, advice in news.items():
            recommendation = self._compose(key, advice, now)
            if self.study.mode == "publish":
                self._publish(tx, recommendation, said)
                self.tuner.promise(key, advice)
            else:
                self._propose(tx, recommendation, said)
        for proposal in changes.approved:
            valid = timedelta(days=self.settings.valid_days)
            key = proposal.context_key
            fresh = proposal.renewed(
                revision=self._next(key), issued_at=now, valid_until=now + valid
            )
            self._publish(tx, fresh, said)

    def _compose(self, key: str, advice: Advice, now: datetime) -> Recommendation:
        return compose(
            self.study,
            key,
            self.tuner.contexts[key],
            advice,
            MadeFrom(
                sequence=self.tuner.sequence,
                model=self.model if self.tuner.model is not None else None,
                study=self.study.content_hash,
                seeds=self.study.search.seeds,
                tunerd=__version__,
            ),
            revision=self._next(key),
            now=now,
            valid=timedelta(days=self.settings.valid_days),
        )

    def _next(self, key: str) -> int:
        return self.revisions.get(key, 0) + 1

    def _publish(self, tx: Transaction, recommendation: Recommendation, said: Said) -> None:
        key = recommendation.context_key
        half = (recommendation.valid_until - recommendation.issued_at) / 2
        self._send(tx, recommendation, renew_at=recommendation.issued_at + half)
        self.running[key] = recommendation
        self.proposed.pop(key, None)
        said.issued += 1
        said.candidates.update(c.kind.value for c in recommendation.candidates)
        said.lines.append(Line("recommended", _summary(recommendation)))

    def _propose(self, tx: Transaction, recommendation: Recommendation, said: Said) -> None:
        """Say it to those who look, and publish nothing."""
        key = recommendation.context_key
        running = self.running.get(key)
        self.proposed[key] = recommendation
        text = to_bytes(recommendation).decode()
        told = running or recommendation
        state = "observed" if self.study.mode == "observe" else "pending"
        tx.save_recommendation(
            RecommendationRow(
                study=self.study.name,
                context_key=key,
                revision=self.revisions.get(key, 0),
                recommendation_id=told.recommendation_id,
                state="active" if running else state,
                value=to_bytes(running).decode() if running else text,
                proposal=text if running else None,
                issued_at=told.issued_at,
                valid_until=told.valid_until,
                renew_at=told.issued_at + (told.valid_until - told.issued_at) / 2
                if running
                else None,
            )
        )
        event = "would recommend" if state == "observed" else "waits for approval"
        said.lines.append(Line(event, _summary(recommendation)))

    def _keep_up(
        self,
        tx: Transaction,
        lapsed: Sequence[RecommendationRow],
        alive: set[str],
        now: datetime,
        said: Said,
    ) -> None:
        """Renew what is half over, withdraw what its context has outlived, free old keys."""
        for row in lapsed:
            running = self.running.get(row.context_key)
            if row.state == State.WITHDRAWN and running is None:
                self._free(tx, row, now)
            elif running is None or running.revision != row.revision:
                continue  # this very step said something newer
            elif row.context_key not in alive:
                days = f"{self.settings.active_days:g}"
                self._withdraw(
                    tx, row.context_key, f"No job in this context for {days} days.", now, said
                )
            else:
                valid = running.valid_until - running.issued_at
                renewed = running.renewed(
                    revision=self._next(row.context_key), issued_at=now, valid_until=now + valid
                )
                self._send(tx, renewed, renew_at=now + valid / 2)
                self.running[row.context_key] = renewed
                said.renewed += 1

    def _withdraw_what_ended(self, tx: Transaction, now: datetime, said: Said) -> None:
        for key in sorted(self.running):
            if self.ended:
                reason = "The study has ended."
            elif self.study.mode == "observe":
                reason = "The study only observes now."
            elif key not in self.tuner.contexts:
                reason = "The study has changed and knows this context no longer."
            else:
                continue
            self._withdraw(tx, key, reason, now, said)

    def _withdraw(self, tx: Transaction, key: str, reason: str, now: datetime, said: Said) -> None:
        running = self.running.pop(key)
        withdrawn = running.withdrawn(revision=self._next(key), issued_at=now, reason=reason)
        self._send(tx, withdrawn, renew_at=now + FREE_KEY_AFTER)
        said.withdrawn += 1
        said.lines.append(Line("withdrawn", {"context": key, "reason": reason}))

    def _free(self, tx: Transaction, row: RecommendationRow, now: datetime) -> None:
        """Send the null value, which frees the key on the compacted topic."""
        tx.enqueue(self._message(row.context_key, f"{row.recommendation_id}/null", None, None, now))
        tx.save_recommendation(replace(row, renew_at=None))

    def _send(self, tx: Transaction, recommendation: Recommendation, renew_at: datetime) -> None:
        key, raw = recommendation.context_key, to_bytes(recommendation)
        self.revisions[key] = recommendation.revision
        tx.save_recommendation(
            RecommendationRow(
                study=self.study.name,
                context_key=key,
                revision=recommendation.revision,
                recommendation_id=recommendation.recommendation_id,
                state=recommendation.state.value,
                value=raw.decode(),
                issued_at=recommendation.issued_at,
                valid_until=recommendation.valid_until,
                renew_at=renew_at,
            )
        )
        tx.enqueue(
            self._message(
                key,
                recommendation.recommendation_id,
                raw,
                recommendation.revision,
                recommendation.issued_at,
            )
        )

    def _message(
        self, key: str, message_id: str, value: bytes | None, revision: int | None, now: datetime
    ) -> OutboxMessage:
        return OutboxMessage(
            kind="recommendation",
            message_id=message_id,
            topic=self.topic,
            key=key.encode(),
            value=value,
            study=self.study.name,
            context_key=key,
            revision=revision,
            created_at=now,
        )


def open_books(
    store: Store,
    name: str,
    epoch: int,
    background: Executor,
    topic: str,
    settings: TuneSettings,
    alive: Callable[[], None],
) -> Books:
    """Load a study as it was saved last; a new generation learns its history anew.

    ``alive`` is called now and then while that takes long.
    """
    generation = store.generation(name)
    assert generation is not None
    study = parse_study(generation.text, f"{name}, generation {generation.generation}")
    rows = store.recommendations(name)
    saved = store.study_state(name)
    state: Mapping[str, Any] = saved.state if saved else {}
    books = Books(
        study=study,
        generation=generation.generation,
        epoch=epoch,
        tuner=Tuner(study, background),
        topic=topic,
        settings=settings,
        running={r.context_key: from_bytes(r.value.encode()) for r in rows if r.state == "active"},
        proposed={
            r.context_key: from_bytes((r.proposal or r.value).encode())
            for r in rows
            if r.proposal or r.state in ("observed", "pending")
        },
        revisions={row.context_key: row.revision for row in rows},
    )
    if state.get("generation") == generation.generation:
        books.ended = state["ended"]
        books.model = state["model"]
        books.tuner = _restore(store, study, background, state)
        if books.tuner.model is not None:
            books.model_at = json.loads(_parts(store, name, books.model)["at"])["learned"]
    else:
        _learn_anew(store, books, alive)
    return books


def _restore(store: Store, study: Study, background: Executor, state: Mapping[str, Any]) -> Tuner:
    name = study.name
    last: int = state["tuner"]["sequence"]
    parts = _parts(store, name, state["model"]) if state["model"] else None
    steps = [(s.sequence_from, s.sequence_to) for s in store.steps(name, limit=1000)]
    return Tuner.restore(
        study,
        background,
        state["tuner"],
        {row.context_key: row.state for row in store.context_states(name)},
        parts,
        [step for step in reversed(steps) if step[0] <= step[1] <= last],
        lambda sequences: store.observations_at(name, sequences),
    )


def _parts(store: Store, study: str, manifest: str | None) -> dict[str, bytes]:
    assert manifest is not None
    names = json.loads(store.checkpoint(study, manifest))["parts"]
    return {part: store.checkpoint(study, name) for part, name in names.items()}


def _learn_anew(store: Store, books: Books, alive: Callable[[], None]) -> None:
    name, tuner = books.study.name, books.tuner
    row = store.study(name)
    assert row is not None
    # Up to where it had learned: what came since is predicted first, as always.
    while tuner.sequence < row.learned_sequence:
        left = row.learned_sequence - tuner.sequence
        tuner.gather(store.observations(name, after=tuner.sequence, limit=min(left, GATHER)))
        alive()
    tuner.catch_up()
    former = {one.context_key: one for one in store.context_states(name)}
    tuner.adopt({key: one.state for key, one in former.items()})
    books.gone = sorted(former.keys() - tuner.contexts.keys())
    books.anew = True


def _summary(recommendation: Recommendation) -> dict[str, Any]:
    first = recommendation.candidates[0] if recommendation.candidates else None
    return {
        "context": recommendation.context_key,
        "revision": recommendation.revision,
        "candidates": len(recommendation.candidates),
        "gain": round(first.gain.median, 4) if first and first.gain else None,
        "reason": recommendation.reason,
    }
