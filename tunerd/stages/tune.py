"""Tune: learn what is new, search, decide, and put what is worth saying into the outbox.

One step works on one study. Everything that it changes is saved in one transaction under the
study's epoch; whatever goes wrong, the study is loaded again from what was saved.
"""

import uuid
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any, Self

import msgspec

from tunerd import logs, telemetry
from tunerd.connections import unchecked_store_of
from tunerd.core.decisions.drift_consequences import DriftConsequences
from tunerd.core.model.training import PORTION_MOST, portions
from tunerd.core.observation import Observation
from tunerd.errors import (
    FencedOutError,
    MisconfiguredError,
    NothingFeasibleError,
    StoreUnavailableError,
)
from tunerd.settings import Settings
from tunerd.settings.model import TuneSettings
from tunerd.stages.commands import CommandHandler
from tunerd.stages.drift_events import tell_drift, told
from tunerd.stages.loading import open_books
from tunerd.stages.placement import LEASE_S as PLACED_S
from tunerd.stages.placement import PAUSE_S, StudyPlacement
from tunerd.stages.provenance import basis_of
from tunerd.stages.recommendations import StepReport
from tunerd.stages.request_answers import answer_requests
from tunerd.stages.retention import HistoryRetention, RetentionLimits
from tunerd.stages.shared_search import SearchHelper, SearchOffers, made_by
from tunerd.stages.study_session import StepPlan, StudySession
from tunerd.stages.study_status import following, outside, scores, standing, taken
from tunerd.store import (
    OperatorCommand,
    RequestRow,
    Store,
    StudyRow,
    Transaction,
    study_lease,
)

__all__ = ["TuneStage"]

LEARN_MOST = 4000
"""Observations learned in one step; a backlog is learned in steps of so many at most: after each,
everything that changed is saved, and contexts are searched …"""
LEARN_S = 5.0
"""… and as far as this time goes: a portion of jobs of a study with a hundred parameters can take
half a minute, and meanwhile other studies, requests and commands wait. Where a step is cut is in
its row, and it is cut between portions: the same is learned."""
HISTORY_SHARE = 4
"""Old jobs are learned at most a quarter of what is known at a time, so that nearly all are
predicted first by a model that knows most of those before them: a report on the first day says how
well tunerd would have predicted last year."""
HISTORY_LEAST = 20
ANSWER_MOST = 200
"""Requests that one step looks at."""
ANSWER_S = 1.0
"""How long a step goes on to further contexts that somebody asked about before it saves what it
has: half of what an answer may take."""
SEARCH_S = 1.0
"""How long a step goes on to the contexts of its own observations before it saves what it has."""
BRIEF_ABOVE = 100
"""Contexts that wait for a search above which one that was never searched gets a brief look first:
so all of two thousand have something before the first is looked at whole."""
LATEST_SEARCHES = 10
"""Over about so many what a search takes is averaged."""
BACKLOG_S = 2.0
"""How long a step goes on while so many wait, no other study has anything to do and no job or
request comes in: what a step changed is saved whole, which takes a quarter of the time in steps of
half a second. An operator's command waits for as long."""
OLDER_WAIT = 9.0
"""How long older contexts wait after a search of one of them that a new job had to wait for, in
multiples of what it took: while jobs keep coming they take a tenth of the time. Where a job comes
in, a context is not older any more."""
LOOK_EVERY_S = 0.5
"""How often operators' commands are looked for."""
FORESEE_EVERY_S = 300.0
"""How often it is foreseen which contexts come."""
HOUSEKEEP_EVERY_S = 10.0
"""How often renewals, withdrawals and stale contexts are looked for without a new observation."""
LEASE_S = 60.0


@dataclass
class TuneStage:
    """The stage. Holds the studies that it tunes in memory; shares the store."""

    store: Store
    settings: TuneSettings
    topic: str
    """Of the recommendations."""
    listener: telemetry.TelemetryListener
    log: logs.Log
    now: Callable[[], datetime]
    clock: Callable[[], float]
    """Monotonic seconds."""
    set_aside: Mapping[str, str] = field(default_factory=dict)
    """Studies that are left alone, and why."""
    stop: Callable[[], bool] = lambda: False
    """Whether the process is asked to end: then a step saves what it has."""
    drift_topic: str = "tunerd.drift"
    anew: Collection[str] = ()
    """Studies whose saved state is not to be trusted: they ended processes before this one."""
    placement: StudyPlacement | None = None
    """Which studies are this instance's; None where it has the store to itself."""
    retention: HistoryRetention | None = None
    """Prunes the studies that this process tunes; None where history is kept for ever."""
    name: str = "tune"
    _owner: str = field(default_factory=lambda: uuid.uuid4().hex)
    _background: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))
    _books: dict[str, StudySession] = field(default_factory=dict)
    _left: dict[str, tuple[int, str]] = field(default_factory=dict)
    """By study that is left alone until its next generation: this one, and why."""
    _faults: Counter[str] = field(default_factory=Counter)
    """By study, exceptions since its last step that was saved."""
    _turn: int = 0
    _waiting: Mapping[str, int] = field(default_factory=dict)
    """Requests that wait for an answer, by study."""
    _favoured: bool = False
    """Whether the last step was given to a study because somebody asked."""
    _commands_at: float = float("-inf")
    _commands: list[OperatorCommand] = field(default_factory=list)
    offers: SearchOffers = field(init=False)
    helper: SearchHelper | None = field(init=False, default=None)
    """None where there is nobody to help."""

    def __post_init__(self) -> None:
        share = self.settings.share_searches
        self.offers = SearchOffers(self.store, self.placement, self.clock, enabled=share)
        if (placed := self.placement) is not None:
            placed.made_by = made_by()
        if placed is not None and share:
            self.helper = SearchHelper(
                self.store,
                placed.instance,
                placed.owner,
                self._background,
                self.log,
                self.listener,
                self.clock,
            )

    @classmethod
    def open(
        cls,
        settings: Settings,
        listener: telemetry.TelemetryListener,
        log: logs.Log,
        *,
        set_aside: Mapping[str, str] | None = None,
        anew: Collection[str] = (),
        stop: Callable[[], bool] = lambda: False,
        instance: str = "",
        owner: str = "",
        alone_s: float = 0.0,
    ) -> Self:
        """The stage as the tuner process runs it.

        ``instance`` and ``owner`` are given where several instances share the store, ``alone_s``
        is how long it searches for none of the others.
        """
        store = unchecked_store_of(settings)
        if owner:
            store.limit_pauses(PAUSE_S)
        limits = RetentionLimits.of(settings.retention, settings.ingest, settings.tune)
        stage = cls(
            store,
            settings.tune,
            settings.topics.recommendations,
            listener,
            log,
            _now,
            monotonic,
            set_aside or {},
            stop,
            settings.topics.drift,
            anew,
            StudyPlacement(store, instance, owner, monotonic) if owner else None,
            HistoryRetention(store, limits, _now, monotonic) if limits.limited else None,
        )
        if stage.helper is not None:
            stage.helper.rest(alone_s)
        return stage

    def step(self) -> bool:
        """Work on the next study that has something to do."""
        known = self._placed(self.store.studies())
        rows = [row for row in known if not self._why_aside(row)]
        if self.clock() - self._commands_at > LOOK_EVERY_S:
            self._commands_at = self.clock()
            self._commands = self.store.commands()
            self._refuse({row.name: why for row in known if (why := self._why_aside(row))})
        self._waiting = self.store.requests_waiting()
        for i in self._order(rows):
            row = rows[i]
            try:
                worked = self._step_study(row)
            except FencedOutError as error:
                self.log.warning("study taken over", study=row.name, problem=str(error))
                self._drop(row.name)
                if self.placement is not None:
                    self.placement.lost(row.name)
                worked = True
            except MisconfiguredError as error:
                self._leave(row, "study set aside: this tunerd cannot read it", str(error))
                worked = True
            except StoreUnavailableError:
                self._books.pop(row.name, None)
                raise
            except Exception as error:  # a fault of ours, or of what is saved: others go on
                self._fault(row, error)
                worked = True
            if worked:
                self._turn = (i + 1) % len(rows)
                return True
        return self._help()

    def _help(self) -> bool:
        """Search for another instance, where this one has nothing of its own to do."""
        if self.helper is None:
            return False
        return self.helper.step({*self.set_aside, *self._left})

    def _placed(self, known: Sequence[StudyRow]) -> Sequence[StudyRow]:
        """The studies that are this instance's. What it has lost or gives up is dropped: between
        two steps all that was learned is saved."""
        if self.placement is None:
            return known
        helper = None if self.helper is None or self.helper.rests else self.helper
        self.placement.searches_as = None if helper is None else helper.made_by
        for study in self.placement.look([row.name for row in known]):
            self._drop(study)
            self.placement.give_up(study)
            self.log.info("study given to another instance", study=study)
        for study in self._books.keys() - self.placement.held:
            self.log.info("study taken over", study=study)
            self._drop(study)
        return [row for row in known if row.name in self.placement.held]

    def _why_aside(self, row: StudyRow) -> str:
        """Why a study is left alone; empty where it is not."""
        generation, why = self._left.get(row.name, (None, ""))
        return self.set_aside.get(row.name) or (why if generation == row.generation else "")

    def _refuse(self, aside: Mapping[str, str]) -> None:
        """Nobody carries out a command for a study that is set aside: who gave it is told."""
        given = [command for command in self._commands if command.study in aside]
        if not given:
            return
        with self.store.transaction() as tx:
            for command in given:
                if self.placement is not None and not tx.owns_lease(
                    study_lease(command.study), self.placement.owner
                ):
                    continue  # whoever has the study by now may carry it out
                result = f"refused: {command.study} is set aside: {aside[command.study]}"
                tx.finish_command(command.id, result, self.now())
        self._commands = [command for command in self._commands if command.study not in aside]

    def _order(self, rows: Sequence[StudyRow]) -> list[int]:
        """Whose turn it is: one after the other, but every second step is for who is asked."""
        order = [(self._turn + i) % len(rows) for i in range(len(rows))]
        self._favoured = not self._favoured and any(row.name in self._waiting for row in rows)
        if self._favoured:
            order.sort(key=lambda i: rows[i].name not in self._waiting)
        return order

    def forget(self) -> None:
        """Drop everything in memory; it is loaded again from the store."""
        self._books.clear()
        self._commands_at = float("-inf")

    def close(self) -> None:
        """Leave the studies to others at once."""
        if self.placement is not None:
            self.placement.leave()
        for study, books in self._books.items():
            self.store.release_lease(study_lease(study), self._owner, books.epoch)
        self._background.shutdown(wait=False, cancel_futures=True)
        self.store.close()

    # -- one study --------------------------------------------------------------------------

    def _step_study(self, row: StudyRow) -> bool:
        books = self._books.get(row.name)
        if books is None or books.generation != row.generation:
            self._load(row)
            return True
        asked = (
            self.store.requests(row.name, limit=ANSWER_MOST) if row.name in self._waiting else []
        )
        # Who asks does not wait until a backlog is learned; but it is learned all the same.
        books.put_off = bool(asked) and not books.put_off
        observations = [] if books.put_off else self._unlearned(row, books)
        commands = [command for command in self._commands if command.study == row.name]
        idle_s = self.clock() - books.looked_at
        news = observations or commands or asked
        waits = books.waiting or books.ahead
        if not (news or waits or books.anew or idle_s > HOUSEKEEP_EVERY_S):
            return self._prune(books)
        self.listener.hear(telemetry.StepStarted(study=row.name))
        started = self.clock()
        changes = StepPlan(served=books.checkpoints.latest)
        fresh: tuple[str, ...] = ()
        if observations:
            observations, fresh = self._learn(observations, books, changes, row.last_sequence)
        learn_s = self.clock() - started
        if observations or commands or idle_s > HOUSEKEEP_EVERY_S:
            books.looked_at = started
            self._close_overdue(books)
            self._carry_out(commands, books, changes)
            now = self.now()  # before who is active is told: none of them has outlived then
            if books.ended:
                books.due, books.ahead = [], []
            else:
                active = self._active(books)
                books.look(active, changes.urgent, fresh)
                self._foresee(books, active, now)
            changes.lapsed = self.store.recommendations(row.name, renew_before=self.now())
            changes.outlived = books.outlived(now)
            changes.forgotten = books.only_asked(now)
        self._take_up(asked, books, changes)
        self.offers.take_over(books, changes)
        searched_s = self._answer(books, changes)
        changes.importing = self._importing(row, books, observations)
        if not asked and not changes.importing:
            searched_s = self._search(row, books, changes)
            searched_s += self._search_ahead(row, books, changes)
        worked = bool(
            news
            or changes.searched
            or changes.forgotten
            or changes.lapsed
            or changes.outlived
            or books.anew
            or books.tuner.touched
        )
        if worked:
            self._save(row, books, observations, changes, learn_s, searched_s)
        self._prune(books)
        self.listener.hear(telemetry.StageProgressed(stage="tune", worked=worked))
        return worked

    def _prune(self, books: StudySession) -> bool:
        """Let a few old jobs leave history where that is due; says whether any did."""
        if self.retention is None or books.anew:
            return False
        pruned = self.retention.step(books.study, books.epoch)
        if pruned is None or not (pruned.pruned or pruned.forgotten):
            return False
        books.tuner.features.forget(pruned.jobs)
        report = telemetry.HistoryPruned(
            study=books.study.name, jobs=pruned.pruned, forgotten=pruned.forgotten
        )
        self.listener.hear(report)
        return True

    def _unlearned(self, row: StudyRow, books: StudySession) -> Sequence[Observation]:
        if row.last_sequence <= books.tuner.sequence:
            return []
        known = books.tuner.sequence
        # Nothing that was not learned can have been pruned: a row that looks so is damaged.
        jobs = self.store.observations(row.name, after=known, limit=LEARN_MOST, pruned=True)
        if jobs and jobs[0].history:
            return jobs[: max(HISTORY_LEAST, known // HISTORY_SHARE)]
        return jobs

    def _learn(
        self, found: Sequence[Observation], books: StudySession, changes: StepPlan, last: int
    ) -> tuple[Sequence[Observation], tuple[str, ...]]:
        """Learn observations, a portion at a time, until this step's time for it is over; history
        goes on to ``last``. Returns those that were learned, and the contexts of live jobs among
        them."""
        started, first = self.clock(), found[0].sequence
        done, fresh = 0, dict[str, None]()
        for begin, end in portions(first, found[-1].sequence, PORTION_MOST):
            if done and (self.stop() or self.clock() - started > LEARN_S):
                break
            # The parent's deadline is for what hangs: a backlog that takes long is no fault.
            self.listener.hear(telemetry.StepStarted(study=books.study.name))
            portion = found[begin - first : end - first + 1]
            learned = books.tuner.learn(
                portion, books.recommended.advised, last - portion[-1].sequence
            )
            changes.swapped = changes.swapped or learned.swapped
            changes.judged += learned.judged
            changes.drift += learned.drift
            fresh |= dict.fromkeys(learned.contexts)
            books.tuner.wake(learned.imported, self.now())
            done += len(portion)
        books.chain = books.chain.after(found[:done])
        return found[:done], tuple(fresh)

    def _importing(
        self, row: StudyRow, books: StudySession, learned: Sequence[Observation]
    ) -> bool:
        """Whether old jobs were learned and more wait: contexts are searched when all have been,
        not again and again on the way."""
        more = row.last_sequence > books.tuner.sequence
        return more and bool(learned) and all(job.history for job in learned)

    def _active(self, books: StudySession) -> list[str]:
        within = timedelta(days=self.settings.active_days)
        return books.tuner.active(self.now(), within, self.settings.max_contexts)

    def _take_up(self, asked: Sequence[RequestRow], books: StudySession, changes: StepPlan) -> None:
        """Make the contexts of requests active, and say which of them are to be searched."""
        for row in asked:
            if books.ended:
                key = books.study.context_key(row.request.context)
            else:
                key = books.tuner.ask(row.request.context, self.now())
                silent = books.tuner.orders.paused(key) is not None
                speaks = books.recommended.followed(key) is not None
                if not (silent or (speaks and books.tuner.is_fresh(key))):
                    changes.unanswered.add(key)
            changes.asked.setdefault(key, []).append(row)

    def _answer(self, books: StudySession, changes: StepPlan) -> float:
        """Search what somebody asked about, in the order in which they came."""
        started = self.clock()
        for key in [key for key in changes.asked if key in changes.unanswered]:
            if changes.searched and (self.stop() or self.clock() - started > ANSWER_S):
                break
            self._advise(key, books, changes)
            changes.unanswered.discard(key)
            books.due = [due for due in books.due if due != key]
        return self.clock() - started

    def _advise(
        self, key: str, books: StudySession, changes: StepPlan, *, brief: bool = False
    ) -> None:
        followed, state = books.recommended.followed(key), books.tuner.state(key)
        # Once: where there is nothing to say, brief looks would be all that it ever gets. And a
        # campaign's rounds are of a whole look.
        brief = brief and state.searched < 0 and state.campaign is None
        brief = brief and key != books.fallback_key
        if brief:
            changes.briefly.append(key)
        began = self.clock()
        changes.basis[key] = basis_of(books.tuner, key, followed, brief=brief)
        try:
            changes.searched[key] = books.tuner.advise(key, followed, brief=brief)
        except NothingFeasibleError as error:
            changes.searched[key] = str(error)
        took = self.clock() - began
        books.search_s += (took - books.search_s) / LATEST_SEARCHES if books.search_s else took

    def _search(self, row: StudyRow, books: StudySession, changes: StepPlan) -> float:
        """Search what is due, the most urgent first, until this step's time is over. What has just
        come in is told before older contexts are looked at again; and where a job came in while
        one was, and had to wait for it, the others leave most of the time to jobs."""
        started = self.clock()
        backlog = books.waiting >= BRIEF_ABOVE and not self._others_wait(row)
        while books.due and not self.stop():
            began = self.clock()
            urgent = books.due[0] in books.urgent
            if not urgent and began < books.older_at:
                break
            if changes.searched and (
                self._is_over(began - started, row, urgent=urgent, backlog=backlog)
                or (not urgent and any(key in changes.searched for key in books.urgent))
                or self._somebody_asks()
            ):
                break
            key, brief = books.due.pop(0), books.waiting >= BRIEF_ABOVE
            self._advise(key, books, changes, brief=brief)
            if not urgent and self._has_news(row):
                books.older_at = self.clock() + OLDER_WAIT * (self.clock() - began)
                break
        return self.clock() - started

    def _foresee(self, books: StudySession, active: Sequence[str], now: datetime) -> None:
        """See which contexts come, now and then and before any is withdrawn, and which of them wait
        for a search."""
        if self.clock() - books.foresaw_at >= FORESEE_EVERY_S or books.outlived(now):
            books.foresaw_at = self.clock()
            if fresh := books.foresee(active, now):
                self.log.info("contexts ahead", study=books.study.name, foreseen=len(fresh))
        books.ahead = books.tuner.due(set(books.tuner.ahead).difference(active))

    def _search_ahead(self, row: StudyRow, books: StudySession, changes: StepPlan) -> float:
        """Search one context that is only foreseen, where nothing else is to be done: no job of
        any study waits for longer than this one search."""
        started = self.clock()
        if (
            books.ahead
            and not (books.due or changes.searched or self.stop())
            and not (self._somebody_asks() or self._has_news(row) or self._others_wait(row))
        ):
            self._advise(books.ahead.pop(0), books, changes)
        return self.clock() - started

    def _is_over(self, spent_s: float, row: StudyRow, *, urgent: bool, backlog: bool) -> bool:
        """Whether this step has searched for long enough. In a backlog it goes on for longer, until
        a job comes in."""
        if spent_s <= (SEARCH_S if urgent else self.settings.budget_s):
            return False
        return spent_s > BACKLOG_S or not backlog or self._has_news(row)

    def _others_wait(self, row: StudyRow) -> bool:
        """Whether another study of this process has jobs to learn or contexts to search."""
        ours = None if self.placement is None else self.placement.held
        return any(
            other.name != row.name
            and (ours is None or other.name in ours)
            and not self._why_aside(other)
            and (
                other.last_sequence > other.learned_sequence
                or (books := self._books.get(other.name)) is None
                or bool(books.due)
            )
            for other in self.store.studies()
        )

    def _has_news(self, row: StudyRow) -> bool:
        """Whether a new job has come in meanwhile: it should not wait for old contexts."""
        now = self.store.study(row.name)
        return now is not None and now.last_sequence > row.last_sequence

    def _somebody_asks(self) -> bool:
        """Whether a request waits that this process can answer."""
        waiting = self.store.requests_waiting().keys() - {*self.set_aside, *self._left}
        return bool(waiting if self.placement is None else waiting & self.placement.held)

    def _save(
        self,
        row: StudyRow,
        books: StudySession,
        observations: Sequence[Observation],
        changes: StepPlan,
        learn_s: float,
        search_s: float,
    ) -> None:
        active = self._active(books)
        known = scores(books)
        failed = sum(model.failed is not None for model in books.tuner.training.built)
        detail = {
            "learn_s": round(learn_s, 4),
            "search_s": round(search_s, 4),
            "waiting": books.waiting,  # contexts: `tunerd import` waits for them
            "known": row.last_sequence,  # when a model is fitted depends on what waits
            "scores": msgspec.to_builtins(known),
        }
        if changes.briefly:
            detail["brief"] = changes.briefly
        if changes.elsewhere:
            detail["elsewhere"] = {key: at.sequence for key, at in changes.elsewhere.items()}
        if changes.results:
            detail["commands"] = list(changes.results)
        spent_s = learn_s + search_s
        report = self._commit(books, changes, active, len(observations), spent_s, detail)
        self._commands = [given for given in self._commands if given.id not in changes.results]
        self._tell(row.name, report)
        self._faults.pop(row.name, None)
        if books.ended:
            self.listener.hear(telemetry.StudyReleased(study=row.name))
            return
        self.listener.hear(
            telemetry.StepCommitted(
                **standing(row, books, len(active), known),
                observations=len(observations),
                learn_s=learn_s if observations else None,
                search_s=search_s if changes.searched.keys() - changes.elsewhere.keys() else None,
                contexts_searched=len(changes.searched.keys() - {books.fallback_key}),
                contexts_searched_elsewhere=len(changes.elsewhere),
                rebuilt=changes.swapped,
                rebuilds_failed=failed,
                issued=report.issued,
                renewed=report.renewed,
                withdrawn=report.withdrawn,
                suggested=report.suggested,
                candidates=report.candidates,
                following=following(changes.judged),
                outside=outside(books.study, observations),
                unusable=taken(books.tuner.unusable),
                drift=told(changes.drift),
                introductions=taken(books.tuner.introduced),
                contexts_foreseen=taken(books.tuner.foreseen),
            )
        )

    def _commit(
        self,
        books: StudySession,
        changes: StepPlan,
        active: list[str],
        learned: int,
        spent_s: float,
        detail: dict[str, Any],
    ) -> StepReport:
        """Save what a step learned and put what it has to say into the outbox, in one
        transaction."""
        name = books.study.name
        with self.store.transaction() as tx:
            self._renew(tx, name, books.epoch, spent_s)
            tx.fence(name, books.epoch)
            now = self.now()
            books.settle_quarantine(tx, changes, now)
            report = books.say(tx, changes, active, now)
            answer_requests(books, tx, changes, now, report)
            for study, drift, after in (
                (books.former or books.study, books.closed, DriftConsequences()),
                (books.study, changes.drift, books.tuner.after_change),
            ):
                report.lines += tell_drift(tx, study, drift, after, self.drift_topic, now)
            brief = books.waiting >= BRIEF_ABOVE
            if not changes.importing and (
                offered := self.offers.offer(tx, books, report, now, brief=brief)
            ):
                detail["offered"] = offered  # and which of them get a brief look
            books.save(tx, changes, learned, now, detail)
            if self.placement is not None:  # a large study takes long to save
                self._renew(tx, name, books.epoch)
        return report

    def _renew(self, tx: Transaction, study: str, epoch: int, spent_s: float = 0.0) -> None:
        """Prolong a study's lease, at the beginning of a long transaction and at its end."""
        owner = self._owner if self.placement is None else self.placement.owner
        ttl_s = LEASE_S if self.placement is None else PLACED_S
        tx.renew_lease(study_lease(study), owner, epoch, ttl_s, spent_s)

    def _tell(self, study: str, report: StepReport) -> None:
        """Log what a step said, and count the requests that it answered."""
        for line in report.lines:
            tell = self.log.error if line.wrong else self.log.info
            tell(line.event, study=study, **line.detail)
        if report.answered:
            self.listener.hear(
                telemetry.RequestsAnswered(
                    study=study, outcomes=dict(report.answered), seconds=tuple(report.waited_s)
                )
            )

    # -- loading ----------------------------------------------------------------------------

    def _load(self, row: StudyRow) -> None:
        """Take the study's lease and bring it back as it was saved last, or, for a new
        generation, learn it anew from its history."""
        self.listener.hear(telemetry.StepStarted(study=row.name))
        started = self.clock()
        self._books.pop(row.name, None)
        epoch = self._take(row.name)
        books = open_books(
            self.store,
            row.name,
            epoch,
            self._background,
            self.topic,
            self.settings,
            alive=lambda: self.listener.hear(telemetry.StepStarted(study=row.name)),
            anew=self._distrusted(row.name),
        )
        self.offers.begin(books)
        self._books[row.name] = books
        self._left.pop(row.name, None)
        if books.damaged:
            self.log.error(
                "saved state damaged: learned anew from history",
                study=row.name,
                problem=books.damaged,
            )
            self.listener.hear(telemetry.StudyRelearned(study=row.name, why=books.damaged))
        self.listener.hear(telemetry.StageProgressed(stage="tune", worked=True))
        if books.ended:
            self.listener.hear(telemetry.StudyReleased(study=row.name))
        else:
            active = len(self._active(books))
            self.listener.hear(telemetry.StudyLoaded(**standing(row, books, active, scores(books))))
        self.log.info(
            "study loaded",
            study=row.name,
            generation=books.generation,
            observations=books.tuner.sequence,
            contexts=len(books.tuner.contexts),
            anew=books.anew,
            seconds=round(self.clock() - started, 2),
        )
        orders = books.tuner.orders
        for order in orders.standing:
            if books.anew and (wrong := orders.problem(order)):
                self.log.warning(
                    "order does not fit", study=row.name, order=f"{order.number}", problem=wrong
                )

    def _take(self, study: str) -> int:
        """Take over the lease. Whoever has the store to itself takes it from a process of its own
        that died or is about to. The new epoch keeps that one from writing.

        Raises:
            FencedOutError: another instance has it meanwhile.
        """
        if self.placement is not None:
            taken = self.placement.retake(study)
            if taken is None:
                raise FencedOutError(f"another instance took study {study!r}")
            return taken
        name = study_lease(study)
        with self.store.transaction() as tx:
            for lease in tx.leases():
                if lease.name == name and lease.owner is not None:
                    tx.release_lease(name, lease.owner, lease.epoch)
            epoch = tx.take_lease(name, self._owner, LEASE_S)
        assert epoch is not None
        return epoch

    def _drop(self, study: str) -> None:
        self._books.pop(study, None)
        if self.retention is not None:
            self.retention.drop(study)
        self.listener.hear(telemetry.StudyReleased(study=study))

    def _distrusted(self, study: str) -> str:
        """Why what was saved of a study is not to be used; empty where it may be."""
        again = self._faults[study] == max(1, self.settings.max_crashes - 1)
        return "it failed with what was saved" if study in self.anew or again else ""

    def _fault(self, row: StudyRow, error: Exception) -> None:
        """A step or a load failed: try with what was saved, then without it, then leave it."""
        self._books.pop(row.name, None)
        self._faults[row.name] += 1
        count, most = self._faults[row.name], self.settings.max_crashes
        self.log.exception("study failed", study=row.name, times=count)
        if count >= most:
            del self._faults[row.name]
            what = f"{type(error).__name__}: {error}"
            self._leave(row, "study set aside: it failed too often", what)

    def _leave(self, row: StudyRow, event: str, problem: str) -> None:
        """Leave a study alone until its next generation: it would fail again and again, and hold
        up the others."""
        self._drop(row.name)
        self._left[row.name] = row.generation, problem
        self.listener.hear(telemetry.StudySetAside(study=row.name, why=problem))
        unreadable = "install the newer tunerd again, or a study file that this one can read"
        failed = "report the traceback before; a new version of the study file or a restart tries"
        remedy = unreadable if "read" in event else f"{failed} again"
        self.log.error(event, study=row.name, problem=problem, remedy=remedy)

    def _close_overdue(self, books: StudySession) -> None:
        closed = books.tuner.close_overdue(books.rounds_out(), self.now())
        for key, given_up in closed.items():
            self.log.warning(
                "round closed", study=books.study.name, context=key, runs_given_up=given_up
            )

    # -- commands ---------------------------------------------------------------------------

    def _carry_out(
        self, commands: Sequence[OperatorCommand], books: StudySession, changes: StepPlan
    ) -> None:
        if not commands:
            return
        began = telemetry.StepStarted(study=books.study.name)
        desk = CommandHandler(
            books,
            changes,
            self._active(books),
            self.now(),
            lambda: self.listener.hear(began),
            self.store,
        )
        for command in commands:
            result = desk.carry_out(command)
            changes.results[command.id] = result
            self.log.info(
                "command carried out",
                study=command.study,
                command=command.command,
                who=command.who,
                why=command.why,
                result=result,
            )


def _now() -> datetime:
    return datetime.now(UTC)
