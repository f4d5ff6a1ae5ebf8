"""Advice on one context: search its space with what was learned, weigh it against the evidence."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from tunerd.core.arrays import Codes
from tunerd.core.conformal import ConformalBands
from tunerd.core.decisions import fallback
from tunerd.core.decisions.context_search import ContextSearch
from tunerd.core.decisions.context_state import ContextState
from tunerd.core.decisions.decide import decide
from tunerd.core.decisions.limits import reachable
from tunerd.core.decisions.overrides import OverrideSet
from tunerd.core.decisions.space_cache import SpaceCache, why_not
from tunerd.core.evidence.decision_inputs import ExcludedConfigs, MeasuredConfig
from tunerd.core.evidence.rollout import ESTABLISHED
from tunerd.core.features import FeatureMap
from tunerd.core.model.model import StudyModel
from tunerd.core.observation import Scalar, Value
from tunerd.core.recommendation import Advice, Recommendation
from tunerd.core.searchers import searcher_class
from tunerd.core.searchers.base import CachedScorer, ScoreFunction, SearchBudget
from tunerd.core.space import SearchSpace
from tunerd.core.study import Study
from tunerd.errors import NothingFeasibleError

__all__ = ["Advisor"]

MOSTLY_EVERYDAY = 0.5
"""Explore share up to which new configurations are introduced by a test."""
SHORTLIST = 256
"""Best configurations of a search that a batch is chosen from."""
BRIEF = 512
"""Configurations that a brief look scores, drawn at random and all at once. Chances are even that
the best of them is among the best 0.14 % of the space."""
START_RAN = 5
"""Where most jobs try something and nothing is known from elsewhere, configurations drawn at random
come first, until so many of all that were tried ran …"""
START = 15
"""… or so many were tried. A search that has seen nothing but a baseline looks at its neighbours
and at corners."""


@dataclass
class Advisor:
    """Advises on the contexts of one study."""

    study: Study
    spaces: SpaceCache
    """As the study file leaves them."""
    only: Mapping[str, Sequence[Mapping[str, Value]]]
    """By context key, the configurations beside which nothing may be tried."""
    orders: OverrideSet = field(init=False)

    def __post_init__(self) -> None:
        self._searcher = searcher_class(self.study.search.searcher)(self.study.search)
        self.impose(OverrideSet(self.study))

    def impose(self, orders: OverrideSet) -> None:
        """Keep to these orders from now on."""
        self.orders = orders
        self._limited = SpaceCache(self.study, orders, self.only)
        self._reach: dict[str, tuple[object, SearchSpace]] = {}
        self._with_best: dict[str, tuple[object, SearchSpace, SearchSpace]] = {}

    def space(self, key: str, context: Mapping[str, Scalar]) -> SearchSpace:
        """The space of a context, as operators' limits leave it.

        Raises:
            NothingFeasibleError: the constraints rule out everything there.
        """
        return (self._limited if self.orders.limits(key) else self.spaces).get(key, context)

    def _survey(
        self,
        key: str,
        state: ContextState,
        model: StudyModel | None,
        bands: ConformalBands,
        features: FeatureMap,
    ) -> ContextSearch:
        space, whole = self._searched(key, state)
        return ContextSearch(
            self.study, key, state, space, space, whole, self.orders, model, bands, features
        )

    def _searched(self, key: str, state: ContextState) -> tuple[SearchSpace, SearchSpace]:
        """The space of a context as operators' limits leave it, and as the study file does.

        Both have the same choices: what is pinned and what the best so far uses are among those of
        a continuous range, so that a search may combine them with anything else.
        """
        space, whole = self.space(key, state.context), self.spaces.get(key, state.context)
        if not any(parameter.continuous for parameter in self.study.parameters):
            return space, whole
        best = state.evidence.trials.get(state.introduction.incumbent or "") or max(
            (trial for _, trial in state.evidence.measured()),
            key=lambda trial: trial.mean,
            default=None,
        )
        study = space.study.with_choices([best.config] if best else [])
        if study.parameters == whole.study.parameters:
            return space, whole
        made_of = (study.parameters, space, whole)
        known = self._with_best.pop(key, None)
        if known is None or known[0] != made_of:
            only = self.only.get(key)
            searched = SearchSpace(study, state.context, only)
            file = replace(study, constraints=self.study.constraints)
            both = searched if space is whole else SearchSpace(file, state.context, only)
            known = (made_of, searched, both)
        self._with_best[key] = known
        if len(self._with_best) > SpaceCache.MOST:
            del self._with_best[next(iter(self._with_best))]
        return known[1], known[2]

    def _settle(
        self,
        state: ContextState,
        survey: ContextSearch,
        sequence: int,
        *,
        profiling: bool,
    ) -> None:
        """Draw the consequences of what is being introduced. Where most jobs are there to find
        something no test decides what is recommended: nor may one decide what leads count from."""
        allowed, barred = survey.rivals
        state.introduction.settle(
            allowed,
            self.study.min_feasible,
            profiling=profiling or self._exploring,
            sequence=sequence,
            at=state.last_job_at.isoformat() if state.last_job_at else "",
            scale=survey.unit,
            barred=barred,
            changed=state.evidence.begun[-1][0] if state.evidence.begun else None,
        )

    def _near(self, key: str, state: ContextState, space: SearchSpace) -> SearchSpace:
        """What of a space is within the study's limits on steps around what serves here; all of it
        where nothing does."""
        if not self.study.limits.of_steps:
            return space
        incumbent = state.evidence.trials.get(state.introduction.incumbent or "")
        serves = incumbent.config if incumbent else self.study.baseline(state.context)
        if serves is None:
            return space
        serves = self.orders.completed(key, serves)
        made_of = (json.dumps(serves, sort_keys=True), len(state.evidence.trials), space)
        known = self._reach.get(key)
        if known is not None and known[0] == made_of:
            return known[1]
        rng = np.random.default_rng([*self.study.search.seeds, *made_of[0].encode()])
        tried = [trial.config for trial in state.evidence.trials.values()]
        only = reachable(space, self.study.limits, serves, tried, rng)
        nearby = space if only is None else SearchSpace(space.study, state.context, only=only)
        self._reach.pop(key, None)
        self._reach[key] = (made_of, nearby)
        if len(self._reach) > SpaceCache.MOST:
            del self._reach[next(iter(self._reach))]
        return nearby

    def _stepping(self, key: str, state: ContextState, survey: ContextSearch) -> ContextSearch:
        """What of a context the next incumbent may come from: what the study's limits on steps
        leave around the present one. All of it where there is none, or nothing around it that runs
        and is established: the one that came first, or what an order rules out, must not keep
        away what people run."""
        near = replace(survey, space=self._near(key, state, survey.space))
        now = state.introduction
        holds = any(
            rival.trial.run_share >= self.study.min_feasible
            and (
                rival.trial.runs >= ESTABLISHED
                or (now.established and rival.candidate_id == now.incumbent)
            )
            for rival in near.rivals[0]
        )
        return near if holds and now.incumbent is not None else survey

    def advise(
        self,
        key: str,
        state: ContextState,
        sequence: int,
        model: StudyModel | None,
        bands: ConformalBands,
        features: FeatureMap,
        running: Recommendation | None,
        overrated: float = 0.0,
        *,
        brief: bool = False,
    ) -> Advice:
        """Search one context and decide what to say there; begins the next campaign round, and
        draws the consequences of what is being introduced (``ContextState.introduction``).

        The same arguments give the same advice. A ``brief`` look scores at most :data:`BRIEF`
        configurations.

        Raises:
            NothingFeasibleError: the constraints rule out everything in this context.
        """
        profiling = state.campaign is not None
        survey = self._survey(key, state, model, bands, features)
        if self.study.limits.of_steps:
            whole, survey = survey, self._stepping(key, state, survey)
            self._settle(state, survey, sequence, profiling=profiling)
            # They are counted from what is the incumbent by now.
            if any(parameter.continuous for parameter in self.study.parameters):
                whole = self._survey(key, state, model, bands, features)
            space = self._near(key, state, whole.space)
            survey = survey if survey.space is space else replace(whole, space=space)
        rng = np.random.default_rng([*self.study.search.seeds, sequence, *key.encode()])
        elsewhere = sequence > 2 * state.evidence.jobs
        begins = self._exploring and not (elsewhere or profiling or _started(state))
        if model is None or begins:
            prospects = survey.start(self.study.search.keep, rng)
        else:
            best = self._search(survey, running, rng, brief=brief)
            batch = survey.batch(best, running, rng, elsewhere=elsewhere)
            prospects = batch + survey.at_random()
        prospects = survey.again() + prospects
        allowed, barred = survey.rivals
        baseline, given_up = survey.baseline()
        wanted = survey.wanted(prospects, rng)
        self._settle(state, survey, sequence, profiling=profiling)
        return decide(
            self.study,
            state.evidence,
            allowed,
            prospects,
            baseline,
            wanted,
            self._excluded(survey, barred, baseline_given_up=given_up),
            # Where most jobs are there to find something, the best estimate leads and no test.
            None if self._exploring else state.introduction,
            overrated,
        )

    def _excluded(
        self, survey: ContextSearch, barred: Sequence[MeasuredConfig], *, baseline_given_up: bool
    ) -> ExcludedConfigs:
        """What may not be recommended in a context, and why."""
        limits = (limit.named for limit in self.orders.limits(survey.key))
        outside, context = survey.outside, survey.state.context
        return ExcludedConfigs(
            (*limits, *self.study.limits.of_steps),
            barred,
            baseline_given_up,
            outside,
            "" if outside is None else why_not(self.study, context, outside.trial.config),
        )

    def _search(
        self,
        survey: ContextSearch,
        running: Recommendation | None,
        rng: np.random.Generator,
        *,
        brief: bool,
    ) -> Codes:
        """The configurations most worth trying, best first: (k, D)."""
        options, size = self.study.search, survey.space.size
        budget = SearchBudget(options.evaluations, max(options.keep, SHORTLIST))
        begin = survey.known_good(running)
        of_best: ScoreFunction = partial(survey.acquisition_of_best, count=budget.keep)
        if brief:
            scored = CachedScorer(of_best, begin.shape[1], len(begin) + BRIEF)
            begin = survey.space.on_choices(begin)
            begin = begin[survey.space.feasible(begin)]
            scored(np.concatenate([begin, survey.space.sample(BRIEF, rng)]))
            return scored.best(budget.keep).codes
        if size is not None and size <= options.listed:  # it is scored whole
            budget = replace(budget, evaluations=size)
            return self._searcher.search(survey.space, of_best, rng, budget, begin).codes
        return self._searcher.search(survey.space, survey.acquisition, rng, budget, begin).codes

    @property
    def _exploring(self) -> bool:
        """Whether most jobs are there to find something."""
        return self.study.explore_share > MOSTLY_EVERYDAY

    def everywhere(
        self,
        contexts: Mapping[str, ContextState],
        model: StudyModel,
        bands: ConformalBands,
        features: FeatureMap,
    ) -> Advice:
        """What to launch in contexts that have no entry of their own.

        Raises:
            NothingFeasibleError: nothing is sound.
        """
        tried = [state.evidence for state in contexts.values()]
        configs = [
            config
            for config in fallback.pool(tried, self.study.min_feasible)
            if self.orders.broken(self.study.name, config) is None
        ]
        surveys = []
        for key, state in contexts.items() if configs else ():
            with suppress(NothingFeasibleError):  # then nothing of it counts for the others
                survey = self._survey(key, state, model, bands, features)
                if survey.rivals[0]:
                    surveys.append(fallback.look(survey, configs))
        return fallback.entry(self.study, configs, surveys)


def _started(state: ContextState) -> bool:
    """Whether a search has something to begin from."""
    tried = [trial for trial in state.evidence.trials.values() if trial.ran or trial.failures]
    return len(tried) >= START or sum(trial.ran > 0 for trial in tried) >= START_RAN
