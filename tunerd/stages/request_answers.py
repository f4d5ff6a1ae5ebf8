"""Answering requests, in the step that searched their contexts.

The answer is the ordinary recommendation: a new one where there is news, else what runs, renewed,
so that who asked sees a revision come. Where there is nothing to say, a withdrawal of nothing says
why. A study that only observes or waits for approval publishes nothing; the answer then lies in the
store, for ``tunerd recommend``.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta

from tunerd.core.decisions.context_state import ContextState
from tunerd.core.decisions.lifecycle import compose, worth_saying
from tunerd.core.observation import Value
from tunerd.core.recommendation import Advice, Recommendation
from tunerd.core.request import RequestAnswer, RequestOutcome
from tunerd.stages.recommendations import StepReport
from tunerd.stages.study_session import StepPlan, StudySession
from tunerd.store import RequestRow, Store, Transaction

__all__ = ["answer_requests", "compute_answer"]

KEEP = timedelta(days=30)
"""How long an answered request is remembered: who sends it again within that gets no second
answer."""
PRUNE_EVERY = 200
"""Request ids between two prunings."""


def answer_requests(
    books: StudySession, tx: Transaction, changes: StepPlan, now: datetime, said: StepReport
) -> None:
    """Answer what was asked, as far as this step has looked at it."""
    for key, rows in changes.asked.items():
        if key in changes.unanswered:
            continue
        answer = _RequestAnswerer(books, tx, changes, now, said).answer(key, rows[0])
        for row in rows:
            tx.answer_request(row.id, answer, now)
            said.answered[answer.outcome.value] += 1
            said.waited_s.append(max((now - row.received_at).total_seconds(), 0.0))
            if row.id % PRUNE_EVERY == 0:
                tx.prune_requests(books.study.name, tx.no_later(now) - KEEP)


def compute_answer(
    books: StudySession, store: Store, context: Mapping[str, Value], now: datetime
) -> tuple[Recommendation | None, str]:
    """What would be answered now (None: nothing), and why. Nothing is written; the books are of no
    use afterwards.

    Raises:
        NothingFeasibleError: the constraints rule out everything in this context.
    """
    tuner = books.tuner
    _learn_rest(books, store)
    key = tuner.ask(context, now)
    if paused := books.paused(key):
        return None, paused
    advice = tuner.advise(key, books.recommended.followed(key))
    if not worth_saying(advice) and advice.baseline is None:
        return None, _why_nothing(books, advice)
    recommendation = compose(
        books.study,
        key,
        tuner.contexts[key],
        advice,
        books.made_from(),
        revision=books.recommended.next_revision(key),
        now=now,
        valid=timedelta(days=books.settings.valid_days),
    )
    return recommendation, recommendation.reason


def _learn_rest(books: StudySession, store: Store) -> None:
    """Learn what no daemon has learned yet."""
    tuner = books.tuner
    row = store.study(books.study.name)
    assert row is not None
    anew = tuner.sequence == 0
    while tuner.sequence < row.last_sequence:
        jobs = store.observations(books.study.name, after=tuner.sequence, limit=1000)
        if anew:
            tuner.gather(jobs)
        else:
            tuner.learn(jobs)
    if anew and tuner.sequence:
        tuner.catch_up()


def _why_nothing(books: StudySession, found: Advice | str | None) -> str:
    """Why a search came to nothing that a scheduler could launch."""
    why = found.reason if isinstance(found, Advice) else "Nothing is worth trying."
    return (
        f"{why} No configuration is likely enough to run here (min_feasible = "
        f"{books.study.min_feasible:g}), none has run here, and there is no baseline."
    )


class _RequestAnswerer:
    """Finds the answer for one context, and puts into the outbox what belongs there."""

    def __init__(
        self,
        books: StudySession,
        tx: Transaction,
        changes: StepPlan,
        now: datetime,
        said: StepReport,
    ) -> None:
        self.books, self.tx, self.changes, self.now, self.said = books, tx, changes, now, said
        self.recommended = books.recommended

    def answer(self, key: str, row: RequestRow) -> RequestAnswer:
        if reason := self._refused(key):
            return self._nothing(key, row, reason)
        proposal = self.recommended.proposed.get(key)
        running = self.recommended.running.get(key)
        if running is not None and key not in self.said.issued_for:
            self.recommended.renew(self.tx, key, self.now, self.said)
        if proposal is not None:
            observed = self.books.study.mode == "observe"
            return RequestAnswer(
                outcome=RequestOutcome.OBSERVED if observed else RequestOutcome.PENDING,
                context_key=key,
                reason=proposal.reason,
                recommendation_id=proposal.recommendation_id,
            )
        if running is None:
            return self._nothing(key, row, self._why_nothing(key))
        running = self.recommended.running[key]
        news = key in self.said.issued_for
        return RequestAnswer(
            outcome=RequestOutcome.PUBLISHED if news else RequestOutcome.RENEWED,
            context_key=key,
            reason=running.reason,
            revision=running.revision,
            recommendation_id=running.recommendation_id,
        )

    def _refused(self, key: str) -> str | None:
        """Why nothing may be said, whatever was found."""
        if self.books.ended:
            return "The study has ended."
        if paused := self.books.paused(key):
            return paused
        outcome = self.changes.searched.get(key)
        return outcome if isinstance(outcome, str) else None

    def _why_nothing(self, key: str) -> str:
        outcome = self.changes.searched.get(key)
        if isinstance(outcome, Advice) and self.books.is_declined(key, outcome):
            return "What there is to say was declined by an operator."
        return _why_nothing(self.books, outcome)

    def _nothing(self, key: str, row: RequestRow, reason: str) -> RequestAnswer:
        revision = None
        if self.books.study.mode == "publish" and key not in self.recommended.running:
            revision = self.recommended.next_revision(key)
            self._refuse(key, row, reason, revision)
        return RequestAnswer(
            outcome=RequestOutcome.NOTHING, context_key=key, reason=reason, revision=revision
        )

    def _refuse(self, key: str, row: RequestRow, reason: str, revision: int) -> None:
        study = self.books.study
        empty = compose(
            study,
            key,
            ContextState(study.clean_context(row.request.context)),
            Advice((), None, None, reason),
            self.books.made_from(),
            revision=revision,
            now=self.now,
            valid=timedelta(0),
        )
        self.recommended.refuse(self.tx, empty, reason, self.now, self.said)
