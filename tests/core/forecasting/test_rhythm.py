"""Contexts that come by weekday and hour: what counts as a rhythm, and when one is given up."""

import random
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunerd.core.forecasting.rhythm import DAYS, WEEKS, JobRhythm, contexts_to_come

MONDAY = datetime(2026, 9, 7, 6, 20, tzinfo=UTC)
DAY, WEEK = timedelta(days=1), timedelta(weeks=1)
moments = st.floats(0, 7 * 365 * 86400).map(
    lambda seconds: datetime(2020, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
)


def rhythm(*jobs: datetime) -> JobRhythm:
    made = JobRhythm()
    for began in jobs:
        made.add(began)
    return made


def weekly(count: int, every: int = 1) -> JobRhythm:
    return rhythm(*(MONDAY + every * week * WEEK for week in range(count)))


def test_what_came_every_monday_is_foreseen_for_the_next_one() -> None:
    forecast = weekly(4).within(MONDAY + 4 * WEEK - timedelta(hours=20), DAY, 0.1)
    assert forecast is not None
    assert forecast.comes_at == (MONDAY + 4 * WEEK).replace(minute=0)
    assert forecast.probability is not None
    assert 0.8 < forecast.probability < 1
    assert forecast.until > MONDAY + 4 * WEEK + DAY
    assert weekly(4).within(MONDAY + 4 * WEEK - 2 * DAY, DAY, 0.1) is None


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_queue_or_summer_time_hides_nothing(hours: int) -> None:
    late = [MONDAY + week * WEEK + timedelta(hours=hours * (week % 2)) for week in range(4)]
    assert rhythm(*late).probability(MONDAY + 4 * WEEK) == weekly(4).probability(MONDAY + 4 * WEEK)


def test_an_hour_at_the_end_of_a_week_has_its_neighbour_in_the_next() -> None:
    turn = datetime(2026, 9, 10, tzinfo=UTC)  # weeks are counted from a Thursday
    around = [turn + week * WEEK + timedelta(minutes=30 * (-1) ** week) for week in range(4)]
    for minutes in (-30, 30):
        assert rhythm(*around).probability(turn + 4 * WEEK + timedelta(minutes=minutes)) > 0.8


def test_one_job_or_many_of_one_week_are_no_rhythm() -> None:
    burst = rhythm(*(MONDAY + timedelta(minutes=10 * i) for i in range(30)))
    for made in (JobRhythm(), weekly(1), burst):
        assert made.probability(MONDAY + WEEK) == 0.0
        assert made.within(MONDAY, 14 * DAY, 1e-9) is None


def test_what_comes_every_fifth_week_is_not_expected_in_between() -> None:
    chances = [weekly(3, every=5).probability(MONDAY + week * WEEK) for week in range(11, 16)]
    assert max(chances[:4]) < 0.1
    assert chances[4] > 0.6


def test_what_stays_away_is_given_up() -> None:
    chances = [weekly(10).probability(MONDAY + (9 + away) * WEEK) for away in range(1, 8)]
    assert chances[:3] == sorted(chances[:3], reverse=True)
    assert min(chances[:3]) > 0.5
    assert max(chances[3:]) == 0.0
    assert weekly(10).probability(MONDAY + 4000 * WEEK) == 0.0


@pytest.mark.parametrize(
    ("dates", "next_date"),
    [
        (((7, 1), (8, 1), (9, 1)), (10, 1)),
        (((6, 30), (7, 31), (8, 31), (9, 30)), (10, 30)),  # the last working day: 31 is a Saturday
        (((7, 13), (8, 10), (9, 14)), (10, 12)),  # the second Monday
        (((7, 31), (8, 28), (9, 25)), (10, 30)),  # the last Friday
        (((5, 4), (6, 1), (7, 1), (8, 3), (9, 1)), (10, 1)),  # the first working day
        (((7, 1), (7, 15), (8, 1), (8, 15), (9, 1), (9, 15)), (10, 15)),
    ],
)
def test_what_came_on_a_date_of_each_month_is_foreseen_for_the_next(
    dates: tuple[tuple[int, int], ...], next_date: tuple[int, int]
) -> None:
    made = rhythm(*(datetime(2026, month, day, 6, 20, tzinfo=UTC) for month, day in dates))
    comes_at = datetime(2026, *next_date, 6, tzinfo=UTC)
    forecast = made.within(comes_at - timedelta(hours=20), DAY, 0.5)
    assert forecast is not None
    assert forecast.comes_at == comes_at
    assert made.within(comes_at - 3 * DAY, DAY, 0.5) is None
    # A month in which it stays away says less, and after three it is given up.
    following = [comes_at + timedelta(days=days) for days in range(200)]
    assert max(map(made.probability, following[150:])) == 0.0


def test_two_of_many_days_have_an_hour_in_common_by_chance() -> None:
    days = (0, 3, 9, 14, 20, 26, 31)  # two Mondays are among them
    made = rhythm(*(MONDAY + day * DAY + timedelta(hours=5 * (day % 7)) for day in days))
    assert made.probability(MONDAY + 4 * WEEK) == 0.0
    made.add(MONDAY + 4 * WEEK)
    assert made.probability(MONDAY + 6 * WEEK) > 0.5


@pytest.mark.slow
def test_days_at_random_are_no_dates() -> None:
    for seed in range(20):
        luck = random.Random(seed)
        days = [day for day in range(180) if luck.random() < 1 / 9]
        made = rhythm(*(MONDAY + day * DAY + timedelta(hours=day % 24) for day in days))
        chances = [
            made.probability(MONDAY + hour * timedelta(hours=1)) for hour in range(4320, 5760)
        ]
        assert sum(chance > 0.1 for chance in chances) <= 24


def test_what_should_have_begun_may_be_running_for_as_long_as_the_longest_took() -> None:
    made = JobRhythm()
    for week in range(4):
        made.add(MONDAY + week * WEEK, timedelta(hours=47 + week))
    begun = MONDAY + 4 * WEEK
    for hours in (3, 30, 49):
        forecast = made.within(begun + timedelta(hours=hours), DAY, 0.1)
        assert forecast is not None
        assert forecast.comes_at == begun.replace(minute=0)
        assert forecast.until == begun.replace(minute=0) + timedelta(hours=1 + 51)
    assert made.within(begun + timedelta(hours=54), DAY, 0.1) is None
    made.add(begun, timedelta(hours=3))  # it has ended
    assert made.within(begun + timedelta(hours=30), DAY, 0.1) is None


def test_one_long_job_is_not_reckoned_with_for_ever() -> None:
    made = JobRhythm()
    made.add(MONDAY, timedelta(weeks=9))
    lasted = []
    for week in range(1, 41):
        made.add(MONDAY + week * WEEK, timedelta(hours=2))
        lasted.append(made.lasted)
    assert lasted[0] >= 2 * 168
    assert lasted == sorted(lasted, reverse=True)
    assert lasted[-1] == 2


def test_what_came_twice_is_not_expected_after_a_shorter_break() -> None:
    made = weekly(2, every=4)
    chances = [made.probability(MONDAY + week * WEEK) for week in range(5, 9)]
    assert max(chances[:3]) < 0.1
    assert chances[3] > 0.5


@pytest.mark.parametrize(
    ("dates", "other"),
    [
        # The first working day was the first of the month, mostly.
        ([(4, 1), (5, 1), (6, 1), (7, 1), (8, 1), (9, 1), (10, 1)], (11, 2)),
        ([(4, 30), (5, 30), (6, 30), (7, 30), (8, 30), (9, 30)], (10, 31)),
    ],
)
def test_a_date_that_is_another_one_now_and_then_is_not_foreseen_beside_it(
    dates: list[tuple[int, int]], other: tuple[int, int]
) -> None:
    made = rhythm(*(datetime(2026, month, day, 6, tzinfo=UTC) for month, day in dates))
    hours = [datetime(2026, *other, hour, tzinfo=UTC) for hour in range(24)]
    assert max(made.probability(at) for at in hours) < 0.1


def test_two_dates_make_no_third() -> None:
    months = range(3, 9)
    late = [datetime(2026, month, 1, 23, tzinfo=UTC) for month in months]
    early = [datetime(2026, month, 2, 1, tzinfo=UTC) for month in months]
    made, first = rhythm(*late, *early), datetime(2026, 8, 31, tzinfo=UTC)
    hours = [hour for hour in range(96) if made.probability(first + timedelta(hours=hour)) > 0.5]
    assert hours == [24 + 23, 48 + 1]


def test_a_job_before_the_first_day_there_is_harms_nothing() -> None:
    made = weekly(4)
    made.add(datetime.fromisoformat("0001-01-01T00:00+14:00"))
    assert made.probability(MONDAY + 4 * WEEK) > 0.5
    assert made.within(MONDAY + 4 * WEEK, DAY, 0.1) is not None


def test_what_a_tunerd_before_this_one_kept_is_read() -> None:
    made = weekly(4)
    assert JobRhythm.load_with_defaults(made.dump()[:3]).hours == made.hours


def test_the_most_probable_come_first_and_only_so_many() -> None:
    rhythms = {"always": weekly(8), "seldom": weekly(3, every=3), "never": weekly(1)}
    now = MONDAY + 9 * WEEK - timedelta(hours=5)
    rhythms["always"].add(MONDAY + 8 * WEEK)
    assert list(contexts_to_come(rhythms.items(), now, DAY, 0.1, 9)) == ["always", "seldom"]
    assert list(contexts_to_come(rhythms.items(), now, DAY, 0.1, 1)) == ["always"]
    assert list(contexts_to_come(rhythms.items(), now, DAY, 0.8, 9)) == ["always"]


@pytest.mark.slow
@given(st.lists(moments, max_size=40), st.randoms(), moments)
def test_the_order_of_jobs_and_what_is_kept_of_them_make_no_difference(
    jobs: list[datetime], luck: object, now: datetime
) -> None:
    def noted(some: list[datetime]) -> JobRhythm:
        made = JobRhythm()
        for began in some:
            made.add(began, timedelta(hours=20 * began.day))
        return made

    made, shuffled = noted(jobs), [*jobs, *jobs]
    luck.shuffle(shuffled)  # type: ignore[attr-defined]
    assert noted(shuffled) == made
    assert JobRhythm.load(made.dump()) == made
    half = noted(jobs[::2])
    half.merge(noted(jobs[1::2]))
    assert half == made
    assert 0.0 <= made.probability(now) < 1.0


@given(st.lists(moments, max_size=200))
def test_what_is_kept_is_bounded(jobs: list[datetime]) -> None:
    made = rhythm(*jobs)
    assert len(made.hours) <= 168
    assert all(0 < weeks < 1 << WEEKS for weeks in made.hours.values())
    assert len(made.days) <= DAYS


@pytest.mark.slow
@given(
    st.lists(st.integers(0, 167), max_size=20),
    st.integers(0, 20 * 168),
    st.integers(1, 14 * 24),
    st.floats(0.05, 0.9),
)
def test_a_context_is_foreseen_if_some_hour_of_the_horizon_is_probable(
    hours: list[int], passed: int, horizon: int, least: float
) -> None:
    made = rhythm(*(MONDAY + timedelta(hours=h + 168 * (i % 3)) for i, h in enumerate(hours)))
    now = MONDAY + timedelta(hours=passed)
    chances = [made.probability(now + timedelta(hours=h)) for h in range(horizon)]
    forecast = made.within(now, timedelta(hours=horizon), least)
    assert (forecast is not None) == (max(chances) >= least)
    if forecast is not None:
        assert forecast.probability == max(chances)
        assert forecast.comes_at is not None
        assert made.probability(forecast.comes_at) >= least
        assert now.replace(minute=0) <= forecast.comes_at < now + timedelta(hours=horizon)
        assert forecast.until > forecast.comes_at


def test_only_hours_near_jobs_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    whole = JobRhythm._probability

    def counted(rhythm: JobRhythm, hour: int) -> float:
        looks.append(hour)
        return whole(rhythm, hour)

    monkeypatch.setattr(JobRhythm, "_probability", counted)
    assert weekly(4).within(MONDAY + 4 * WEEK - DAY, 14 * DAY, 0.1) is not None
    assert len(looks) == 6  # three around each of two Mondays
    looks.clear()
    assert weekly(4).within(MONDAY + (WEEKS + 5) * WEEK, 14 * DAY, 0.1) is None
    assert not looks
