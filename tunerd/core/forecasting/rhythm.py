"""Contexts that come by weekday and hour: what a job stream's own past says of its next days.

Of each context it is known in which hours of the latest weeks a job of it began, as bits. What
comes is as it was: the share of weeks with a job in an hour, recent ones weighing more, and how
many weeks lay between them. Hours beside count as well, so that a queue or a change to daylight
saving time hides nothing.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Literal

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
"""One job is no rhythm."""
PATIENCE = 2
"""A context that stays away for so many times its longest break in an hour is not expected any more
then: weekly jobs are given up after three weeks."""
_ALL = (1 << WEEKS) - 1
_WEIGHTS = [FADING**age for age in range(WEEKS)]
_HOUR = timedelta(hours=1)


class JobRhythm(SavedState, array_like=True):
    """Hours in which jobs of one context began. At most 168 numbers, whatever comes; in whichever
    order jobs come, it is the same."""

    first: int | None = None
    """Hour of the earliest job, counted since 1970; None while there is none."""
    week: int = 0
    """The latest week with a job, counted since 1970; weeks begin on Thursdays."""
    hours: dict[int, int] = field(default_factory=dict)
    """Hour of the week → in which weeks a job began then; bit 0 is the latest."""

    def add(self, began: datetime) -> None:
        """Note a job."""
        hour = _hour(began)
        self.first = hour if self.first is None else min(self.first, hour)
        self._move_to(hour // WEEK_H)
        self._mark(hour % WEEK_H, 1 << min(self.week - hour // WEEK_H, WEEKS))

    def merge(self, other: "JobRhythm") -> None:
        """Note the jobs of another one."""
        if other.first is None:
            return
        self.first = other.first if self.first is None else min(self.first, other.first)
        self._move_to(other.week)
        for hour, weeks in other.hours.items():
            self._mark(hour, weeks << min(self.week - other.week, WEEKS))

    def probability(self, at: datetime) -> float:
        """That a job begins within an hour of ``at``, from the weeks before it."""
        return self._probability(_hour(at))

    def within(self, now: datetime, horizon: timedelta, least: float) -> "ContextForecast | None":
        """The hours from now to the horizon at which a job begins with a probability of ``least``
        at least; None where there is no such hour."""
        hour = _hour(now)
        if (
            hour // WEEK_H - self.week > WEEKS
            or sum(weeks.bit_count() for weeks in self.hours.values()) < LEAST_WEEKS
        ):
            return None  # most contexts of a large study
        hours = self._with_jobs(hour, hour + max(1, round(horizon / _HOUR)))
        likely = {at: chance for at in hours if (chance := self._probability(at)) >= least}
        if not likely:
            return None
        first = min(likely)
        # The hour before is as likely, because of this one: it had fewer jobs itself.
        own = {at: self._weeks_before(at).bit_count() for at in likely if at <= first + 2}
        return ContextForecast(
            since=now,
            comes_at=_moment(max(own, key=lambda at: (own[at], -at))),
            until=_moment(max(likely)) + horizon,  # its first job has to end, too
            probability=max(likely.values()),
            why="rhythm",
        )

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
        if came.bit_count() < LEAST_WEEKS:
            return 0.0
        ages = [age for age in range(known) if came >> age & 1]
        away, breaks = ages[0] + 1, [later - age for age, later in pairwise(ages)]
        if away > PATIENCE * max(breaks) + 1:
            return 0.0
        share = sum(_WEIGHTS[age] for age in ages) / (sum(_WEIGHTS[:known]) + PRIOR)
        # Of the breaks that were as long as this one is by now, so many ended then.
        as_long = [weeks for weeks in breaks if weeks >= away]
        return (as_long.count(away) + share) / (len(as_long) + 1)

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
        self.week = week

    def _mark(self, hour: int, weeks: int) -> None:
        if weeks & _ALL:
            self.hours[hour] = self.hours.get(hour, 0) | weeks & _ALL


class ContextForecast(FrozenState, frozen=True):
    """That jobs of a context are to come."""

    since: datetime
    """When it was first foreseen."""
    comes_at: datetime | None
    """The first hour at which it comes; None where nobody knows when."""
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


def _hour(at: datetime) -> int:
    return int(at.timestamp() // 3600)


def _moment(hour: int) -> datetime:
    return datetime.fromtimestamp(3600 * hour, UTC)
