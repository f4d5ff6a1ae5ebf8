"""Contexts that come by weekday and hour, or by the date: what the past of a job stream says.

Of each context it is known in which hours of the latest weeks a job of it began, as bits. What
comes is as it was: the share of weeks with a job in an hour, recent ones weighing more, and how
many weeks lay between them. Hours beside count as well, so that a queue or a change to daylight
saving time hides nothing. Of the latest days with a job it is known by which names people would
call them (the first of the month, its last working day, its second Monday): what came so in several
months comes so again.
"""

import calendar
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from typing import Literal, NamedTuple

from msgspec import field

from tunerd.core.saved_state import FrozenState, SavedState

__all__ = ["ContextForecast", "JobRhythm", "contexts_to_come"]

WEEK_H = 168
WEEKS = 16
"""Weeks that are looked at: what comes every four weeks came four times."""
FADING = 0.84
"""Weight of a week beside the one after it: half after four weeks."""
PRIOR = 0.5
"""Weeks without a job that each context counts as having had before its first."""
LEAST_WEEKS = 2
"""One job is no rhythm, and two are one where at most as many came on other days."""
MONTHS, LEAST_MONTHS = 6, 3
"""Months that are looked at, and in how many of them a date counts as a rhythm."""
DAYS = 24
"""Latest days with a job that are kept for that."""
LONGEST_H = 4 * WEEK_H
"""A job that took longer counts as having taken so long."""
COUNTED_BACK = 10
"""Days of a month that people count from its end: the 1st is not the thirtieth from there."""
HALVED_WEEKS = 4
"""Each time so many weeks have passed, a job counts as having taken half as long."""
PATIENCE = 2
"""A context that stays away for so many times its longest break in an hour is not expected any more
then: weekly jobs are given up after three weeks."""
_ALL = (1 << WEEKS) - 1
_WEIGHTS = [FADING**age for age in range(WEEKS)]
_HOUR = timedelta(hours=1)


class JobRhythm(SavedState, array_like=True):
    """Hours in which jobs of one context began. At most 200 numbers, whatever comes; in whichever
    order jobs come, it is the same."""

    first: int | None = None
    """Hour of the earliest job, counted since 1970; None while there is none."""
    week: int = 0
    """The latest week with a job, counted since 1970; weeks begin on Thursdays."""
    hours: dict[int, int] = field(default_factory=dict)
    """Hour of the week → in which weeks a job began then; bit 0 is the latest."""
    lasted: int = 0
    """Hours that the longest job took; of older ones half, once in :data:`HALVED_WEEKS`."""
    days: dict[int, int] = field(default_factory=dict)
    """The latest days with a job, counted since 1970 → in which hour its first job began."""

    def add(self, began: datetime, lasted: timedelta = timedelta(0)) -> None:
        """Note a job, and how long it took."""
        hour = _hour(began)
        self.first = hour if self.first is None else min(self.first, hour)
        self._move_to(hour // WEEK_H)
        self._note_length(min(math.ceil(lasted / _HOUR), LONGEST_H), hour // WEEK_H)
        self._mark(hour % WEEK_H, 1 << min(self.week - hour // WEEK_H, WEEKS))
        self._keep_days({hour // 24: hour % 24})

    def merge(self, other: "JobRhythm") -> None:
        """Note the jobs of another one."""
        if other.first is None:
            return
        self.first = other.first if self.first is None else min(self.first, other.first)
        self._move_to(other.week)
        self._note_length(other.lasted, other.week)
        for hour, weeks in other.hours.items():
            self._mark(hour, weeks << min(self.week - other.week, WEEKS))
        self._keep_days(other.days)

    def probability(self, at: datetime) -> float:
        """That a job begins within an hour of ``at``, from the weeks before it."""
        hour = _hour(at)
        return max(self._probability(hour), self._by_date(hour, hour + 1).get(hour, 0.0))

    def within(self, now: datetime, horizon: timedelta, least: float) -> "ContextForecast | None":
        """The hours from now to the horizon at which a job begins with a probability of ``least``
        at least; None where there is no such hour. A job that should have begun before may still be
        running, for as long as the longest took: nothing is known of it until it has ended."""
        hour = _hour(now)
        if (
            hour // WEEK_H - self.week > WEEKS
            or sum(weeks.bit_count() for weeks in self.hours.values()) < LEAST_WEEKS
        ):
            return None  # most contexts of a large study
        begin = min(hour, max(hour - self.lasted, self._latest() + 2))
        end = hour + max(1, round(horizon / _HOUR))
        chances = self._by_date(begin, end)
        for at in self._with_jobs(begin, end):
            chances[at] = max(self._probability(at), chances.get(at, 0.0))
        likely = {at: chance for at, chance in chances.items() if chance >= least}
        if not likely:
            return None
        first = min(likely)
        # The hour before is as likely, because of this one: it had fewer jobs itself.
        own = {at: self._weeks_before(at).bit_count() for at in likely if at <= first + 2}
        return ContextForecast(
            since=now,
            comes_at=_moment(max(own, key=lambda at: (own[at], -at))),
            # Its first job has to end, too.
            until=_moment(max(likely)) + max(horizon, (self.lasted + 1) * _HOUR),
            probability=max(likely.values()),
            why="rhythm",
        )

    def _latest(self) -> int:
        """The hour in which the latest job began; there is one."""
        latest = (hour for hour, weeks in self.hours.items() if weeks & 1)
        return self.week * WEEK_H + max(latest, default=0)

    def _with_jobs(self, begin: int, end: int) -> Iterable[int]:
        """Those hours of a span at which, or beside which, a job began in an earlier week."""
        near = {(hour + beside - begin) % WEEK_H for hour in self.hours for beside in (-1, 0, 1)}
        return (at for ahead in near for at in range(begin + ahead, end, WEEK_H))

    def _probability(self, hour: int) -> float:
        if self.first is None:
            return 0.0
        known = min((hour + 1 - self.first) // WEEK_H, WEEKS)
        came = (
            self._weeks_before(hour - 1) | self._weeks_before(hour) | self._weeks_before(hour + 1)
        )
        came &= (1 << max(known, 0)) - 1
        hits = came.bit_count()
        if hits < LEAST_WEEKS or (hits == LEAST_WEEKS and 2 * hits < self._days_before(hour)):
            return 0.0  # of many days, two have an hour in common by chance
        ages = [age for age in range(known) if came >> age & 1]
        return _chance(ages, known)

    def _by_date(self, begin: int, end: int) -> dict[int, float]:
        """Of the hours of a span: that a job begins there because it did on the same date of
        several months. Where most days with a job had other dates, that is by chance."""
        chances: dict[int, float] = {}
        for day in range(begin // 24, -(-end // 24)) if len(self.days) >= LEAST_MONTHS else ():
            month, names = _dates(day)
            past = [d for d in self.days if d < day and month - _dates(d).month <= MONTHS]
            known = min(month - _dates((self.first or 0) // 24).month, MONTHS)
            often = Counter(name for d in past for name in _dates(d).names)
            # The first Monday may be the 1st: what tells the most days is the reason.
            least = max(LEAST_MONTHS, len(past) / 2, max(often.values(), default=0))
            for name in (name for name in names if often[name] >= least):
                hits = sorted((d for d in past if name in _dates(d).names), reverse=True)
                at = 24 * day + self.days[hits[0]]
                if begin <= at < end:
                    chance = _chance([month - 1 - _dates(d).month for d in hits], known)
                    chances[at] = max(chance, chances.get(at, 0.0))
        return chances

    def _keep_days(self, days: Mapping[int, int]) -> None:
        for day, hour in days.items():
            self.days[day] = min(hour, self.days.get(day, 24))
        for day in sorted(self.days)[:-DAYS]:
            del self.days[day]

    def _days_before(self, hour: int) -> int:
        """Days with a job in the weeks before an hour."""
        return sum(hour // 24 - 7 * WEEKS <= day < hour // 24 for day in self.days)

    def _weeks_before(self, hour: int) -> int:
        """In which weeks before an hour a job began at the same time; bit 0 is a week before."""
        weeks = self.hours.get(hour % WEEK_H, 0)
        later = min(hour // WEEK_H - self.week - 1, WEEKS)
        return (weeks << later if later >= 0 else weeks >> -later) & _ALL

    def _move_to(self, week: int) -> None:
        if week <= self.week:
            return
        if self.hours:
            passed = min(week - self.week, WEEKS)
            moved = {hour: weeks << passed & _ALL for hour, weeks in self.hours.items()}
            self.hours = {hour: weeks for hour, weeks in moved.items() if weeks}
        lasted, before = self.lasted, self.week
        self.week, self.lasted = week, 0
        self._note_length(lasted, before)

    def _note_length(self, lasted: int, week: int) -> None:
        """Of a job in a week that may be long ago. One of four weeks is not reckoned with for
        ever."""
        halvings = self.week // HALVED_WEEKS - week // HALVED_WEEKS
        self.lasted = max(self.lasted, lasted >> halvings)

    def _mark(self, hour: int, weeks: int) -> None:
        if weeks & _ALL:
            self.hours[hour] = self.hours.get(hour, 0) | weeks & _ALL


class ContextForecast(FrozenState, frozen=True):
    """That jobs of a context are to come."""

    since: datetime
    """When it was first foreseen."""
    comes_at: datetime | None
    """The first hour at which it comes, or came where its job may be running; None where nobody
    knows when."""
    until: datetime
    """From then on it counts as not having come."""
    probability: float | None
    """At its most probable hour; None where nobody knows."""
    why: Literal["rhythm", "growth"]


def contexts_to_come(
    rhythms: Iterable[tuple[str, JobRhythm]],
    now: datetime,
    horizon: timedelta,
    least: float,
    most: int,
) -> dict[str, ContextForecast]:
    """Which contexts come within the horizon by their rhythm, the most probable first.

    Args:
        rhythms: context keys and rhythms.
        least: probability at some hour, from which on a context counts.
        most: so many contexts at most.
    """
    ahead = [
        (-forecast.probability, key, forecast)
        for key, rhythm in rhythms
        if (forecast := rhythm.within(now, horizon, least)) is not None
        and forecast.probability is not None
    ]
    return {key: forecast for _, key, forecast in sorted(ahead, key=lambda a: a[:2])[:most]}


class _Dates(NamedTuple):
    """A day by the calendar."""

    month: int
    """Counted since the year 0."""
    names: frozenset[tuple[str, int]]
    """What people call it within the month, which has one day of each name at most."""


@lru_cache(4096)
def _dates(day: int) -> _Dates:
    """Of a day that is counted since 1970."""
    ordinal = date(1970, 1, 1).toordinal() + day  # by UTC it may be before the first there is
    on = date.fromordinal(min(max(ordinal, 1), date.max.toordinal()))
    length, weekday = calendar.monthrange(on.year, on.month)[1], on.weekday()
    names = {("day", on.day)}
    if length - on.day < COUNTED_BACK:
        names.add(("day from the end", length - on.day))
    names.add((f"weekday {weekday}", (on.day - 1) // 7))
    names.add((f"weekday {weekday} from the end", (length - on.day) // 7))
    if weekday < 5:
        working = [d for d in range(1, length + 1) if (weekday + d - on.day) % 7 < 5]
        names.add(("working day", working.index(on.day)))
        names.add(("working day from the end", len(working) - working.index(on.day)))
    return _Dates(12 * on.year + on.month, frozenset(names))


def _chance(ages: Sequence[int], known: int) -> float:
    """That what came so many weeks or months ago, of those that are known, comes now.

    Args:
        ages: two at least, ascending; 0 for the last week or month.
    """
    away, breaks = ages[0] + 1, [later - age for age, later in pairwise(ages)]
    if away > PATIENCE * max(breaks) + 1:
        return 0.0
    share = sum(_WEIGHTS[age] for age in ages) / (sum(_WEIGHTS[:known]) + PRIOR)
    # Of the breaks that were as long as this one is by now, so many ended then.
    as_long = [each for each in breaks if each >= away]
    ended = as_long.count(away)
    if as_long and not ended:
        share *= share  # it was never back so early
    return (ended + share) / (len(as_long) + 1)


def _hour(at: datetime) -> int:
    return int(at.timestamp() // 3600)


def _moment(hour: int) -> datetime:
    return datetime.fromtimestamp(3600 * hour, UTC)
