"""What one look foresees: how many contexts, what an upgrade knows, and campaigns of forecasts."""

from datetime import UTC, datetime, timedelta

from tests.core.tuning import TEXT, changed
from tunerd.core.carry_over import CarryOver
from tunerd.core.decisions.campaign import Campaign
from tunerd.core.decisions.context_state import ContextState
from tunerd.core.decisions.foresight import MOST_AHEAD, Foresight
from tunerd.core.decisions.space_cache import SpaceCache
from tunerd.core.forecasting.rhythm import ContextForecast
from tunerd.core.generation_mapping import GenerationMapping
from tunerd.core.study import Study
from tunerd.core.study_file import parse_study

NOW = datetime(2026, 11, 20, 6, 10, tzinfo=UTC)
DAY, WEEK, MONTH = timedelta(days=1), timedelta(weeks=1), timedelta(days=30)
STUDY = parse_study(TEXT + "\n[forecast]\ngrowth = true\nprofiling = 3\n")


def key(n: int) -> str:
    return STUDY.context_key({"n": n})


def ran(n: int, *days_ago: float) -> ContextState:
    state = ContextState({"n": n})
    for days in days_ago:
        state.rhythm.add(NOW - days * DAY)
        state.last_job_at = NOW - days * DAY
    return state


def old(n: int, days_ago: float) -> ContextState:
    """As a tunerd without rhythms saved it."""
    saved = ran(n, days_ago).dump()
    del saved["rhythm"], saved["foreseen"]
    return ContextState.load_other(saved)[0]


def look(*states: ContextState, at: datetime = NOW) -> Foresight:
    made = Foresight(STUDY, {STUDY.context_key(state.context): state for state in states})
    made.look(at, set(), MONTH)
    return made


def test_what_comes_weekly_takes_no_place_from_what_grows() -> None:
    weekly = [ran(1000 - n, 21, 14, 7) for n in range(MOST_AHEAD + 5)]
    fresh = look(*weekly, ran(2000, 6), ran(4000, 3)).fresh
    assert key(8000) in fresh
    assert len(fresh) == MOST_AHEAD + 1


def test_after_an_upgrade_old_contexts_do_not_grow() -> None:
    upgraded = [old(2, 80), old(4, 70), old(8, 60)]
    for state, days in zip(upgraded, (3, 2, 1), strict=True):
        state.rhythm.add(NOW - days * DAY)  # their first jobs since
    assert not look(*upgraded).fresh


def test_after_an_upgrade_a_context_without_a_job_since_is_somebodys() -> None:
    growing = [ran(2, 9), ran(4, 6), ran(8, 3)]
    assert look(*growing).fresh == [key(16)]
    growing = [ran(2, 9), ran(4, 6), ran(8, 3)]
    assert not look(*growing, old(16, 60)).fresh


def test_a_campaign_of_a_forecast_ends_with_it_though_somebody_asked() -> None:
    made = look(ran(2, 9), ran(4, 6), ran(8, 3))
    state = made.contexts[key(16)]
    assert state.campaign is not None
    state.asked_at = NOW + DAY
    look(*made.contexts.values(), at=NOW + 2 * MONTH)
    assert state.foreseen is None
    assert state.campaign is None
    assert state.waiting_since  # else the round stays published


def carried(study: Study, *states: ContextState) -> dict[str, ContextState]:
    former = {key(int(state.context["n"] or 0)): state for state in states}
    contexts: dict[str, ContextState] = {}
    mapping = GenerationMapping(study, STUDY, {k: s.context for k, s in former.items()})
    carry = CarryOver(study, SpaceCache(study), contexts, 100)
    carry.take_over({k: s.dump() for k, s in former.items()}, mapping, [])
    return contexts


def test_a_new_generation_keeps_the_campaign_of_a_forecast_only_with_that() -> None:
    merged = changed(
        ('n = { type = "int", scale = "log" }', 'm = { type = "int", absent = 0 }'),
        ('fits = "x <= n"', 'fits = "true"'),
    )
    for asked_at in (None, NOW):
        ahead, beside = ContextState({"n": 16}, asked_at=asked_at), ran(8, 3)
        ahead.foreseen = ContextForecast(NOW, None, NOW + MONTH, None, "growth")
        ahead.campaign = Campaign(jobs=0, rounds=1, round_size=3)
        assert carried(STUDY, ahead)[key(16)].campaign == ahead.campaign
        assert all(heir.campaign is None for heir in carried(merged, ahead, beside).values())
    wanted = ContextState({"n": 16}, last_job_at=NOW)  # by an operator
    wanted.campaign = Campaign(jobs=0, rounds=1, round_size=3)
    (heir,) = carried(merged, wanted, beside).values()
    assert heir.campaign is not None
