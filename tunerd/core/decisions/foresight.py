"""Which contexts are to come, by the rhythm of a study's jobs and by what grows, and whether they
came.

Only contexts that are not active are foreseen: an active one is kept up to date anyway.
"""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from msgspec.structs import replace

from tunerd.core.decisions.campaign import Campaign
from tunerd.core.decisions.context_state import ContextState
from tunerd.core.forecasting.growth import GrownContext, contexts_by_growth
from tunerd.core.forecasting.rhythm import ContextForecast, contexts_to_come
from tunerd.core.observation import Scalar
from tunerd.core.study import Study

__all__ = ["MOST_AHEAD", "Foresight"]

MOST_AHEAD = 50
"""Contexts of a study that are foreseen at a time by its rhythm, and as many by what grows."""


@dataclass(slots=True)
class Foresight:
    """One look ahead. Notes in the states of contexts what is foreseen."""

    study: Study
    contexts: dict[str, ContextState]
    """By key; those that nobody has run are added."""
    fresh: list[str] = field(default_factory=list)
    """Contexts that were not foreseen before."""
    changed: set[str] = field(default_factory=set)
    """Contexts of which something else is noted now."""
    outcomes: Counter[str] = field(default_factory=Counter)
    """Contexts that were foreseen, and of those foreseen before, that came or were missed."""

    def look(self, now: datetime, active: Collection[str], lately: timedelta) -> None:
        """Settle what was foreseen, and foresee what comes.

        Args:
            active: contexts that are looked after without a forecast.
            lately: how long a family is expected to grow on.
        """
        standing = self._settle(now)
        grown = self._grown(now, active, lately)
        growth = {
            key: ContextForecast(now, None, step.grew_at + lately, None, "growth")
            for key, step in grown.items()
        }
        for key, forecast in {**self._by_rhythm(now, active), **growth}.items():
            if key not in self.contexts or self.contexts[key].foreseen is None:
                if standing[forecast.why] >= MOST_AHEAD:
                    continue
                if key not in self.contexts:
                    self.contexts[key] = self._begin(grown[key].context)
                standing[forecast.why] += 1
                self.fresh.append(key)
                self.outcomes["foreseen"] += 1
            self._note(key, forecast)

    def _settle(self, now: datetime) -> Counter[str]:
        """Whether what was foreseen came; of how many it still may be, by why."""
        standing = Counter[str]()
        for key, state in self.contexts.items():
            if (forecast := state.foreseen) is None:
                continue
            came = state.last_job_at is not None and state.last_job_at >= forecast.since
            if not came and now < forecast.until and self._wants(forecast.why):
                standing[forecast.why] += 1
                continue
            if came or now >= forecast.until:
                self.outcomes["came" if came else "missed"] += 1
            state.foreseen = None
            if state.last_job_at is None and state.campaign is not None:
                state.campaign = None  # nobody but this forecast wanted it …
                state.waiting_since = max(state.searched, 1)  # … and its round is out
            self.changed.add(key)
        return standing

    def _wants(self, why: str) -> bool:
        options = self.study.forecast
        return options.ahead and (options.growth if why == "growth" else options.rhythm)

    def _by_rhythm(self, now: datetime, active: Collection[str]) -> dict[str, ContextForecast]:
        if not self._wants("rhythm"):
            return {}
        quiet = ((key, s.rhythm) for key, s in self.contexts.items() if key not in active)
        options = self.study.forecast
        horizon = timedelta(hours=options.horizon_hours)
        return contexts_to_come(quiet, now, horizon, options.min_probability, MOST_AHEAD)

    def _grown(
        self, now: datetime, active: Collection[str], lately: timedelta
    ) -> dict[str, GrownContext]:
        if not self._wants("growth"):
            return {}
        known = {
            key: (state.context, state.rhythm.first)
            for key, state in self.contexts.items()
            if state.rhythm.first is not None
        }
        grown = contexts_by_growth(self.study, known, now, lately, MOST_AHEAD)
        return {key: step for key, step in grown.items() if key not in active}

    def _begin(self, context: dict[str, Scalar]) -> ContextState:
        """A context that nobody has run, with a round of profiling jobs where the study wants it.
        What it is not given is the time of a job: it stays among those that are only foreseen."""
        state, wanted = ContextState(context), self.study.forecast.profiling
        if wanted:
            state.campaign = Campaign(jobs=0, rounds=1, round_size=wanted)
            state.rounds_asked = [[]]  # there is no random start
        return state

    def _note(self, key: str, forecast: ContextForecast) -> None:
        state = self.contexts[key]
        if state.foreseen is not None:
            forecast = replace(forecast, since=state.foreseen.since)
        if forecast != state.foreseen:
            state.foreseen = forecast
            self.changed.add(key)
