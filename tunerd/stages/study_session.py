"""The books of one study: what it has learned, in memory as in the store.

:mod:`.loading` loads them; :meth:`StudySession.say` writes what a step has to say and
:meth:`StudySession.save` what it changed, in one transaction. Between steps they are the same as
what is stored; after a failed transaction they are thrown away.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Literal

from tunerd import __version__
from tunerd.core.decisions.context_state import ContextState
from tunerd.core.decisions.decide import gist
from tunerd.core.decisions.lifecycle import compose, is_news
from tunerd.core.decisions.overrides import Override
from tunerd.core.drift.alarms import DriftUpdate
from tunerd.core.evidence.prequential import PrequentialRecord
from tunerd.core.hash_chain import HashChain
from tunerd.core.learning import QuarantineNews
from tunerd.core.model.history_weights import Regime
from tunerd.core.recommendation import Advice, MadeFrom, Recommendation
from tunerd.core.saved_state import layout_of
from tunerd.core.study import Study
from tunerd.core.tuner import PARTS, Tuner
from tunerd.settings.model import TuneSettings
from tunerd.stages.checkpoints import CheckpointManager
from tunerd.stages.model_registry import add_versions
from tunerd.stages.plans import FORECAST_SOURCE, made_ahead
from tunerd.stages.provenance import OfferedSearch, keep_basis, whole_basis
from tunerd.stages.recommendations import LogEvent, RecommendationRegistry, StepReport
from tunerd.store import (
    ContextRow,
    QuarantineRow,
    RecommendationRow,
    RequestRow,
    Transaction,
    TuneStep,
)

__all__ = ["LAYOUT", "QuarantineDecision", "StepPlan", "StudySession"]

LAYOUT = f"23-{layout_of(*PARTS.values(), ContextState, HashChain, Override, Regime)}"
"""Of what is saved. A tunerd of another layout learns the history anew, as for a new generation.
It changes by itself with the fields of states. Raise the number when models, or states that write
their own ``dump``, change their shape."""
MOST_WAITING = 5
"""Contexts, the latest, whose jobs wait since earlier steps and that come before those of new jobs:
so most are told in turn where jobs come about as fast as they can be answered, and no new job waits
until a whole flood has been. What waits longer is among the older contexts, the first of them."""
PRUNE_PREDICTIONS_EVERY = 1000
"""Steps that learned something between two prunings of predictions."""


@dataclass(frozen=True, slots=True)
class QuarantineDecision:
    """What an operator said of jobs in quarantine."""

    state: Literal["released", "bad"]
    sequences: tuple[int, ...]
    who: str
    why: str


@dataclass
class StepPlan:
    """What one step wants to change."""

    served: str | None = None
    """Name of the checkpoint that the step began with."""
    swapped: bool = False
    judged: tuple[PrequentialRecord, ...] = ()
    """What was thought of the observations before they were learned."""
    drift: tuple[DriftUpdate, ...] = ()
    """What the watch for drift found among them."""
    searched: dict[str, Advice | str] = field(default_factory=dict)
    """By context key; a text says why nothing is feasible there."""
    briefly: list[str] = field(default_factory=list)
    """Context keys, those of :attr:`searched` that got a brief look here."""
    approved: dict[str, int] = field(default_factory=dict)
    """By context key, the command by which an operator said yes to the proposal there."""
    declined: list[str] = field(default_factory=list)
    """Context keys whose proposal an operator said no to."""
    urgent: list[str] = field(default_factory=list)
    """Contexts that an operator's command makes due before all others."""
    outlived: list[str] = field(default_factory=list)
    """Contexts of recommendations and proposals that had no job for too long."""
    asked: dict[str, list[RequestRow]] = field(default_factory=dict)
    """Requests to be answered, by context key."""
    unanswered: set[str] = field(default_factory=set)
    """Keys among those that this step had no time to search."""
    forgotten: list[str] = field(default_factory=list)
    """Contexts that were only asked about, long ago."""
    lapsed: Sequence[RecommendationRow] = ()
    """Rows whose ``renew_at`` has passed."""
    results: dict[int, str] = field(default_factory=dict)
    """What came of the operators' commands, by their id."""
    basis: dict[str, bytes] = field(default_factory=dict)
    """By context key, what its search began with: see :mod:`tunerd.stages.provenance`."""
    elsewhere: dict[str, OfferedSearch] = field(default_factory=dict)
    """By context key, those of :attr:`searched` that another instance searched."""
    importing: bool = False
    """Whether old jobs are learned of which more wait: contexts are searched after them."""
    quarantine: list[QuarantineDecision] = field(default_factory=list)
    """What operators said of jobs in quarantine."""
    taken_up: dict[str, Any] = field(default_factory=dict)
    """Of a model that an operator went back to: which version, by which command."""


@dataclass
class StudySession:
    """One study under one epoch."""

    study: Study
    generation: int
    epoch: int
    tuner: Tuner
    recommended: RecommendationRegistry
    checkpoints: CheckpointManager
    settings: TuneSettings
    chain: HashChain = field(default_factory=HashChain)
    """Of the observations that were learned."""
    ended: bool = False
    anew: bool = False
    """Whether this generation just learned its history anew: everything is still to be saved."""
    gone: Sequence[str] = ()
    """Contexts of the former generation that this one does not know."""
    keys: Mapping[int, str] = field(default_factory=dict)
    """Of the contexts of all jobs, by their sequence; empty where they are called as they were."""
    lost: list[LogEvent] = field(default_factory=list)
    """What this generation could not take over from the former one."""
    closed: Sequence[DriftUpdate] = ()
    """Drifts that the former generation watched and this one does not: told to be over …"""
    former: Study | None = None
    """… in its words."""
    damaged: str = ""
    """What was wrong with the saved state, where history was learned anew because of that."""
    judged_steps: int = 0
    """Steps that learned something since the study was loaded."""
    due: list[str] = field(default_factory=list)
    """Contexts still to be searched, the most urgent first."""
    urgent: Collection[str] = ()
    """Those among them that a new job waits for."""
    offered: dict[str, OfferedSearch] = field(default_factory=dict)
    """By context key, those to be searched that are left to other instances for now."""
    search_s: float = 0.0
    """What a search took lately, in seconds; 0 before the first."""
    ahead: list[str] = field(default_factory=list)
    """Contexts to be searched of which a job is only foreseen: after all that is due."""
    foresaw_at: float = float("-inf")
    looked_at: float = float("-inf")
    older_at: float = float("-inf")
    """When the others may be looked at again."""
    in_quarantine: int = 0
    """Jobs of which nobody has said anything."""
    obeyed: bool = False
    """Whether what is said keeps to the operators' orders."""
    put_off: bool = False
    """Whether the last step left new jobs alone, because somebody asked."""
    _taken_back: list[int] = field(default_factory=list)
    """Jobs that were judged before they went into quarantine."""

    @property
    def fallback_key(self) -> str | None:
        """Of the entry for the empty context, where that is one beside ordinary ones."""
        return self.study.name if self.tuner.is_fallback(self.study.name) else None

    def look(self, active: Sequence[str], first: Iterable[str], fresh: Iterable[str]) -> None:
        """See what is to be searched, and in which order: what an operator wants ``first``, then
        where jobs have just come in, ``fresh``; the entry for the empty context last."""
        waiting = [key for key in self.due if key in self.urgent][-MOST_WAITING:]
        self.urgent = dict.fromkeys((*first, *waiting, *fresh))
        due = self.tuner.due(active, self.urgent)
        self.due = [key for key in due if key in self.urgent or key not in self.offered]
        if active and self.tuner.is_fallback_due():
            self.due.append(self.study.name)

    def foresee(self, active: Sequence[str], now: datetime) -> list[str]:
        """See which contexts are to come. Returns those that were not foreseen before."""
        fresh = self.tuner.foresee(now, active, timedelta(days=self.settings.active_days))
        self.tuner.look_again(key for key in fresh if self.recommended.followed(key) is None)
        return fresh

    def outlived(self, now: datetime) -> list[str]:
        """Contexts that something was said for and that had no job for too long, nor are to have
        one."""
        since = now - timedelta(days=self.settings.active_days)
        outlived = [
            key
            for key in sorted({*self.recommended.running, *self.recommended.proposed})
            if (state := self.tuner.contexts.get(key)) is not None
            and (state.alive_at is None or state.alive_at < since)
            and state.foreseen is None
        ]
        name = self.study.name
        speaks = name in self.recommended.running or name in self.recommended.proposed
        if speaks and self.tuner.is_fallback(name) and not self.tuner.active(now, now - since, 1):
            outlived.append(name)
        return outlived

    def only_asked(self, now: datetime) -> list[str]:
        """Contexts where no job ever ran, and that somebody asked about long ago or that were
        foreseen."""
        return self.tuner.only_asked(now - timedelta(days=self.settings.active_days))

    def rounds_out(self) -> list[str]:
        """Contexts whose profiling round schedulers can see."""
        return [
            key
            for key, recommendation in self.recommended.running.items()
            if recommendation.round is not None
        ]

    @property
    def waiting(self) -> int:
        """Contexts still to be searched, wherever."""
        return len(self.due) + len(self.offered)

    # -- saving -----------------------------------------------------------------------------

    def save(
        self,
        tx: Transaction,
        changes: StepPlan,
        learned: int,
        now: datetime,
        detail: Mapping[str, Any],
    ) -> None:
        """Write one step: what was learned and changed."""
        sequence = self.tuner.sequence
        self._save_state(tx, now)
        self._save_judged(tx, changes.judged, now)
        tx.silence_predictions(self.study.name, self._taken_back)
        self._taken_back = []
        tx.save_step(
            TuneStep(
                study=self.study.name,
                epoch=self.epoch,
                generation=self.generation,
                sequence_from=sequence - learned + 1,
                sequence_to=sequence,
                seeds=self.study.search.seeds,
                model=changes.served,
                swapped_model=self.checkpoints.latest if changes.swapped else None,
                contexts=tuple(changes.searched),
                detail={**detail, "history": self.chain.digest},
                finished_at=now,
            )
        )
        tx.mark_learned(self.study.name, sequence)
        for number, result in changes.results.items():
            tx.finish_command(number, result, now)

    def _save_state(self, tx: Transaction, now: datetime) -> None:
        name = self.study.name
        if self.gone:
            tx.forget_contexts(name, self.gone)
        if self.keys:
            tx.rename_predictions(name, self.keys)
        keys = self.tuner.contexts.keys() if self.anew else self.tuner.touched
        contexts = [(key, self.tuner.contexts[key]) for key in sorted(keys)]
        tx.save_context_states(
            name,
            [
                ContextRow(key, context.dump(), context.last_job_at, context.searched)
                for key, context in contexts
            ],
        )
        state = {
            "layout": LAYOUT,
            "generation": self.generation,
            "ended": self.ended,
            "orders": [order.dump() for order in self.tuner.orders.standing],
            "model": self.checkpoints.latest,
            "history": self.chain.dump(),
            "tuner": self.tuner.dump(),
            "ahead": self.tuner.ahead,  # for who shows them: of thousands of contexts a few
        }
        tx.save_study_state(name, state, epoch=self.epoch, now=now)
        self.tuner.touched.clear()
        self.anew, self.gone, self.keys, self.lost, self.closed = False, (), {}, [], ()

    def settle_quarantine(self, tx: Transaction, plan: StepPlan, now: datetime) -> None:
        """Write what changed in the quarantine. Jobs that are released come into history once more,
        and are learned in a step of their own."""
        name, tuner = self.study.name, self.tuner
        news, tuner.quarantine = tuner.quarantine, QuarantineNews()
        if not (news.held or news.confirmed or news.corrected or plan.quarantine or self.anew):
            return
        tx.add_quarantined(
            [
                QuarantineRow(
                    study=name,
                    sequence=job.sequence,
                    reason=job.reason,
                    text=job.text,
                    value=job.value,
                    context_key=job.context_key,
                    config_id=job.config_id,
                    held_at=now,
                )
                for job in news.held
            ]
        )
        if self.anew:
            tx.leave_quarantine(name, tuner.features.quarantined, now)
        tx.settle_quarantined(
            name, news.corrected, "corrected", who="tunerd", why="its end is known", now=now
        )
        why = "another job came near it"
        tx.release_quarantined(name, news.confirmed, who="tunerd", why=why, now=now)
        for decision in plan.quarantine:
            if decision.state == "released":
                tx.release_quarantined(
                    name, decision.sequences, who=decision.who, why=decision.why, now=now
                )
            else:
                tx.settle_quarantined(
                    name,
                    decision.sequences,
                    decision.state,
                    who=decision.who,
                    why=decision.why,
                    now=now,
                )
        self.in_quarantine = tx.quarantine_counts(name).get(name, 0)
        self._taken_back = news.taken_back

    def _save_judged(
        self, tx: Transaction, judged: Sequence[PrequentialRecord], now: datetime
    ) -> None:
        if not judged:
            return
        tx.add_predictions(self.study.name, judged)
        if self.judged_steps % PRUNE_PREDICTIONS_EVERY == 0:
            kept = timedelta(days=self.settings.keep_predictions_days)
            # By the jobs' own clocks, as history: this machine's may be far ahead.
            ended = tx.latest_end(self.study.name)
            tx.prune_predictions(self.study.name, min(now, ended or now) - kept)
        self.judged_steps += 1

    # -- saying -----------------------------------------------------------------------------

    def say(
        self, tx: Transaction, changes: StepPlan, active: Iterable[str], now: datetime
    ) -> StepReport:
        """Write what follows from a step: checkpoint, messages, withdrawals."""
        report = StepReport(lines=list(self.lost))
        self.checkpoints.steps += 1
        self._drop_declined(tx, changes.declined)
        news = {
            key: advice
            for key, advice in changes.searched.items()
            if isinstance(advice, Advice) and self._is_news(key, advice, key in changes.asked)
        }
        model = self.tuner.model
        if model and self.checkpoints.is_due(model, swapped=changes.swapped, news=bool(news)):
            report.lines += self.checkpoints.save(tx, model, now)
        report.lines += add_versions(
            tx,
            self.study.name,
            self.generation,
            self.tuner.training.built,
            self.checkpoints.latest,
            changes.taken_up,
            now,
        )
        self.tuner.training.built.clear()
        if not self.ended:
            self._obey(tx, changes, news, now, report)
            self._say(tx, changes, news, now, report)
        self._let_go(tx, changes.outlived, now, report)
        self._forget(tx, changes.forgotten)
        crowded_out = f"More than {self.settings.max_contexts:,} contexts have newer jobs."
        alive = {*active, *self.tuner.ahead}
        alive |= {self.study.name} if active else set()
        self.recommended.keep_up(tx, changes.lapsed, alive, crowded_out, now, report)
        if self.anew or self.ended:
            self._withdraw_what_ended(tx, now, report)
        return report

    def _say(
        self,
        tx: Transaction,
        changes: StepPlan,
        news: Mapping[str, Advice],
        now: datetime,
        said: StepReport,
    ) -> None:
        recommended = self.recommended
        valid = timedelta(days=self.settings.valid_days)
        # Before what is found in this very step: that is proposed beside it.
        for key, number in changes.approved.items():
            if isinstance(problem := changes.searched.get(key), str):
                changes.results[number] = f"refused: {problem}"
                continue
            revision = recommended.next_revision(key)
            fresh = recommended.proposed[key].renewed(
                revision=revision, issued_at=now, valid_until=now + valid
            )
            recommended.publish(tx, fresh, said)
            self.tuner.promise(key, fresh)
        for key, result in changes.searched.items():
            if isinstance(result, str):
                if not self.tuner.is_fallback(key):
                    said.lines.append(
                        LogEvent("nothing feasible", {"context": key, "problem": result})
                    )
                if key in recommended.proposed:
                    recommended.drop(tx, key, "dropped")
                if key in recommended.running:
                    recommended.withdraw(tx, key, result, now, said)
            elif key in recommended.proposed and self._runs(key, result):
                recommended.drop(tx, key, "dropped")
        for key, advice in news.items():
            offered = changes.elsewhere.get(key)
            message = compose(
                self.study,
                key,
                self.tuner.state(key),
                advice,
                self.made_from(offered),
                revision=recommended.next_revision(key),
                now=now,
                valid=valid,
            )
            message = self._ahead(tx, message, changes.asked.get(key, ()))
            if self.study.mode == "publish":
                recommended.publish(tx, message, said)
                self.tuner.promise(key, advice)
            else:
                recommended.propose(tx, message, said)
            begun = changes.basis.get(key, b"")
            basis = offered.basis if offered else whole_basis(self.tuner, self.chain, key, begun)
            keep_basis(tx, self.generation, message, basis)

    def _ahead(
        self, tx: Transaction, message: Recommendation, asked: Iterable[RequestRow]
    ) -> Recommendation:
        """The message with the forecast that it stands on, where a forecast asked for it."""
        if all(row.request.source != FORECAST_SOURCE for row in asked):
            return message
        plan, least = tx.forecast_plan(self.study.name), self.study.forecast.min_probability
        foreseen = made_ahead(plan, message.context_key, least)
        if foreseen is None:  # the plan was withdrawn since
            return message
        return replace(message, valid_from=foreseen[0], forecast=foreseen[1])

    def made_from(self, offered: OfferedSearch | None = None) -> MadeFrom:
        """Provenance of what is said now, or of what another instance came to."""
        latest = None if self.tuner.model is None else self.checkpoints.latest
        return MadeFrom(
            sequence=offered.sequence if offered else self.tuner.sequence,
            model=offered.model if offered else latest,
            study=self.study.content_hash,
            seeds=self.study.search.seeds,
            tunerd=__version__,
        )

    def _is_news(self, key: str, advice: Advice, asked: bool) -> bool:
        if self.is_declined(key, advice) or self._runs(key, advice):
            return False
        followed = self.recommended.followed(key)
        if asked and followed is None and advice.baseline is not None:
            return True  # to somebody who wants to know, a baseline alone is an answer
        return is_news(self.study, advice, followed)

    def is_declined(self, key: str, advice: Advice) -> bool:
        """Whether this is what an operator declined last: it is not proposed again."""
        declined = self.tuner.state(key).declined
        return self.study.mode == "approve" and declined is not None and gist(advice) == declined

    def _runs(self, key: str, advice: Advice) -> bool:
        """Whether schedulers do already what is advised: nobody is asked to approve that."""
        running = self.recommended.running.get(key)
        if self.study.mode == "observe":
            return False  # it is withdrawn
        return running is not None and not is_news(self.study, advice, running)

    def _drop_declined(self, tx: Transaction, keys: Sequence[str]) -> None:
        for key in keys:
            self.tuner.state(key).declined = gist(self.recommended.proposed[key])
            self.tuner.touch(key)
            self.recommended.drop(tx, key, "declined")

    def _obey(
        self,
        tx: Transaction,
        changes: StepPlan,
        news: Mapping[str, Advice],
        now: datetime,
        said: StepReport,
    ) -> None:
        """Take back at once what is paused or breaks a limit, unless this very step says something
        else in its place."""
        if self.obeyed:
            return
        recommended = self.recommended
        for key, proposal in sorted(recommended.proposed.items()):
            if self.held(proposal):
                recommended.drop(tx, key, "dropped")
        for key, running in sorted(recommended.running.items()):
            replaced = key in news and self.study.mode == "publish"
            explained = isinstance(changes.searched.get(key), str)
            if not (replaced or explained) and (reason := self.held(running)):
                recommended.withdraw(tx, key, reason, now, said)
        self.obeyed = True

    def held(self, one: Recommendation) -> str | None:
        """Why the operators' orders forbid to say something; None when none does."""
        if paused := self.paused(one.context_key):
            return paused
        broken = self.tuner.orders.broken_by(one)
        return (
            None if broken is None else f"It breaks a limit that an operator set: {broken.named}."
        )

    def paused(self, key: str) -> str | None:
        """Why an operator keeps a context silent; None when none does."""
        paused = self.tuner.orders.paused(key)
        if paused is None:
            return None
        why = f": {paused.why}" if paused.why else ""
        return f"Paused by an operator (command {paused.number}){why.rstrip('.')}."

    def _let_go(
        self, tx: Transaction, outlived: Iterable[str], now: datetime, said: StepReport
    ) -> None:
        days = self.settings.active_days
        reason = f"No job in this context for {days:g} day{'' if days == 1 else 's'}."
        for key in outlived:
            if key in self.recommended.proposed:
                self.recommended.drop(tx, key, "dropped")
            if key in self.recommended.running:
                self.recommended.withdraw(tx, key, reason, now, said)

    def _forget(self, tx: Transaction, keys: Iterable[str]) -> None:
        idle = [key for key in keys if self.recommended.followed(key) is None]
        for key in idle:
            del self.tuner.contexts[key]
            self.tuner.touched.discard(key)
        tx.forget_contexts(self.study.name, idle)

    def is_known(self, key: str) -> bool:
        """Whether this generation can say something for a context key."""
        if self.tuner.is_fallback(key):
            return self.tuner.model is not None
        return key in self.tuner.contexts

    def _withdraw_what_ended(self, tx: Transaction, now: datetime, said: StepReport) -> None:
        for key in sorted(self.recommended.proposed):
            if not self.is_known(key):
                self.recommended.drop(tx, key, "withdrawn")
            elif self.ended or self.study.mode == "publish":
                self.recommended.drop(tx, key, "dropped")
        self.recommended.follow_mode(tx)
        for key in sorted(self.recommended.running):
            if self.ended:
                reason = "The study has ended."
            elif self.study.mode == "observe":
                reason = "The study only observes now."
            elif not self.is_known(key):
                reason = "The study has changed and knows this context no longer."
            else:
                continue
            self.recommended.withdraw(tx, key, reason, now, said)
