"""The life of a recommendation: issued when there is news, renewed at half its validity, withdrawn
when its context or study ends or the evidence no longer holds. Expiry needs no message."""

from datetime import datetime, timedelta

from tunerd.core.decisions.context_state import ContextState
from tunerd.core.decisions.decide import says_the_same
from tunerd.core.recommendation import Advice, MadeFrom, Recommendation, State, StatedObjective
from tunerd.core.study import Study

__all__ = ["FREE_KEY_AFTER", "compose", "is_news", "worth_saying"]

FREE_KEY_AFTER = timedelta(days=7)
"""A withdrawn key is freed by the null value after this long (contract: recommendation)."""


def compose(
    study: Study,
    key: str,
    state: ContextState,
    advice: Advice,
    made_from: MadeFrom,
    *,
    revision: int,
    now: datetime,
    valid: timedelta,
) -> Recommendation:
    """The message that says ``advice``."""
    return Recommendation(
        revision=revision,
        study=study.name,
        context_key=key,
        context=state.context,
        objective=_stated(study),
        issued_at=now,
        valid_until=now + valid,
        candidates=advice.candidates,
        incumbent=advice.incumbent,
        baseline=advice.baseline,
        reason=advice.reason,
        round=advice.round,
        made_from=made_from,
    )


def worth_saying(advice: Advice) -> bool:
    """Whether a scheduler could do anything with it."""
    return bool(advice.candidates) or advice.incumbent is not None


def is_news(study: Study, advice: Advice, running: Recommendation | None) -> bool:
    """Whether schedulers that follow ``running`` would act differently on ``advice``, or whoever
    reads it would take its numbers for those of another objective, or of another time: what the
    incumbent gives now has no band in common with what was published."""
    if running is None or running.state is State.WITHDRAWN:
        return worth_saying(advice)
    if running.objective != _stated(study) or not says_the_same(advice, running):
        return True
    before, now = running.incumbent, advice.incumbent
    return (
        before is not None and now is not None and (now.high < before.low or before.high < now.low)
    )


def _stated(study: Study) -> StatedObjective:
    objective = study.objective
    return StatedObjective(metric=objective.metric, goal=objective.goal, unit=objective.unit)
