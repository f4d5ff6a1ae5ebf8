"""A look at one context: what is known there, what is expected of what could be tried, and what its
campaign asks for. To decide is not its business (decide.py)."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tunerd.core.arrays import Codes, FloatArray, names_of
from tunerd.core.conformal import ConformalBands
from tunerd.core.decisions.acquisition import (
    LEAST_FEASIBLE,
    chosen,
    likely_first,
    worth_trying,
)
from tunerd.core.decisions.context_state import ContextState
from tunerd.core.decisions.decide import side_by_side
from tunerd.core.decisions.overrides import OverrideSet
from tunerd.core.evidence.config_stats import ConfigStats, ScoreEstimate, estimates
from tunerd.core.evidence.decision_inputs import MeasuredConfig, RoundRequest, SearchCandidate
from tunerd.core.evidence.rollout import REPEATS
from tunerd.core.features import FeatureMap
from tunerd.core.model.model import StudyModel
from tunerd.core.observation import Value
from tunerd.core.predictors.predictions import Predictions
from tunerd.core.recommendation import Recommendation, candidate_id
from tunerd.core.space import SearchSpace
from tunerd.core.study import Study

__all__ = ["ContextSearch"]

MOST_WANTED = 100
"""Configurations of a round that one message asks for; the next follow as these are run. A message
must fit into a megabyte, and a study with 48 layers takes a kilobyte for each."""
BEGIN = 8
"""Best measured configurations that a search begins with."""
STEADY = 0.5
"""Added to the logarithm of a running candidate's expected improvement."""
TREMBLE = 1e-3
"""Where nothing ran yet, most are as good as each other: any of them, rather than neighbours."""
DRAWN = 256
"""Random configurations looked at, at most, for some that most likely run …"""
DRAWN_AT_ONCE = 32
"""… and how many of them at a time."""


@dataclass(frozen=True)
class ContextSearch:
    """One context as it stands, with what the model says of it."""

    study: Study
    key: str
    state: ContextState
    space: SearchSpace
    """As operators' limits and the study's on steps leave it."""
    ordered: SearchSpace
    """As operators' limits leave it."""
    whole: SearchSpace
    """As the study file leaves it."""
    orders: OverrideSet
    model: StudyModel | None
    bands: ConformalBands
    features: FeatureMap

    def outlook(self, codes: Codes) -> Predictions:
        """What is said of configurations. The model is asked once: it takes most of the time."""
        assert self.model is not None
        names = names_of(codes)
        known = [self._said[name] for name in names if name in self._said]
        if len(known) == len(names):
            return Predictions.of_rows(known)
        outlook = self.model.outlook(self.features.candidates(self.space, codes))
        return self._noted(names, self._adjusted(names, outlook))

    def _adjusted(self, names: Sequence[bytes], seen: Predictions) -> Predictions:
        tried = np.array([name in self._tried for name in names], np.bool_)
        constant = self.state.evidence.constant
        if constant is not None:
            return seen.known_at(np.ones(len(names), np.bool_), constant)
        return seen.adjusted([self.key] * len(names), tried, self.bands)

    def _noted(self, names: Iterable[bytes], seen: Predictions) -> Predictions:
        self._said.update((name, (seen, i)) for i, name in enumerate(names))
        return seen

    @cached_property
    def _said(self) -> dict[bytes, tuple[Predictions, int]]:
        """By configuration: of what outlook which row."""
        return {}

    @cached_property
    def _tried(self) -> frozenset[bytes]:
        """The configurations of the space that ran here before, or failed to."""
        trials = self.state.evidence.trials.values()
        return self._named_in(self.whole, (t.config for t in trials if t.ran + t.failures))

    def acquisition(self, codes: Codes) -> FloatArray:
        """Expected improvement over the best here, times the probability to run. What was tried
        is not to be searched for."""
        return self._worth(names_of(codes), self.outlook(codes))

    def acquisition_of_best(self, codes: Codes, count: int) -> FloatArray:
        """The same of many configurations, exact for the ``count`` best of them. Of the others it
        is not asked what the probability to run is: if they were sure to run they would not be
        among these, and that is what they get."""
        assert self.model is not None
        names, rows = names_of(codes), self.features.candidates(self.space, codes)
        hoped = self._adjusted(names, self.model.outlook(rows, sure=True))
        worth = self._worth(names, hoped)
        order = np.argsort(-worth, kind="stable")
        asked, best = 0, np.empty(0)
        while asked < len(order) and (len(best) < count or best[-1] <= worth[order[asked]]):
            part = order[asked : asked + max(2 * count, asked)]
            asked += len(part)
            runs = self.model.runs.predict(rows.take(part))
            own = [names[i] for i in part]
            worth[part] = self._worth(own, self._noted(own, replace(hoped.take(part), p_run=runs)))
            best = np.sort(worth[order[:asked]])[::-1][:count]
        return worth

    def _worth(self, names: Sequence[bytes], seen: Predictions) -> FloatArray:
        unit = self.unit
        worth = worth_trying(seen.mean / unit, seen.epistemic_std / unit, seen.p_run, self._best)
        worth = likely_first(worth, seen.p_run, self._least)
        return np.where([name in self._known for name in names], -np.inf, worth)

    @property
    def _least(self) -> float:
        """Probability to run below which nothing is tried if anything else can be."""
        campaign = self.state.campaign
        return self.study.min_feasible if campaign is None else campaign.min_feasible

    @cached_property
    def _known(self) -> frozenset[bytes]:
        """Configurations of which something is known here, before the latest change or since."""
        trials = self.state.evidence.trials.values()
        known = (t.config for t in trials if t.runs or t.failures or t.former)
        return self._named_in(self.whole, known)

    @cached_property
    def _best(self) -> float | None:
        """The best estimate of a configuration that runs here, in :attr:`unit`."""
        least = self.study.min_feasible
        ran = [
            r.estimate.mean / self.unit
            for r in self.rivals[0]
            if r.trial.runs and r.trial.run_share >= least
        ]
        return max(ran, default=None)

    def batch(
        self,
        codes: Codes,
        running: Recommendation | None,
        rng: np.random.Generator,
        *,
        elsewhere: bool,
    ) -> list[SearchCandidate]:
        """Those of a shortlist (k, D), best first, that should be tried side by side, in order.
        ``elsewhere`` says that most jobs ran in other contexts.

        Running candidates stay until something clearly better comes: each job moves every
        prediction a little, and none would ever be run twice.
        """
        if not len(codes):
            return []
        assert self.model is not None
        campaign = self.state.campaign
        count = max(side_by_side(self.study), campaign.round_size if campaign else 0)
        rows, outlook = self.features.candidates(self.space, codes), self.outlook(codes)
        held = [] if running is None else [candidate.config for candidate in running.candidates]
        stays = self._named_in(self.space, held)
        bonus = np.array([STEADY * (name in stays) for name in names_of(codes)])
        if self._best is None:
            bonus += TREMBLE * rng.random(len(bonus))
        unit = self.unit
        order = chosen(
            outlook.mean / unit,
            outlook.epistemic_std / unit,
            outlook.p_run,
            self._best,
            self.model.predictor.correlations(rows),
            np.maximum(outlook.std**2 - outlook.epistemic_std**2, 0.0) / unit**2,
            count,
            bonus,
            least=self._least,
            elsewhere=elsewhere,
        )
        picked = codes[order]
        return self._named(picked, self.outlook(picked))

    def start(self, count: int, rng: np.random.Generator) -> list[SearchCandidate]:
        """A spread-out random start, for when there is nothing to search by yet."""
        codes = self.space.spread(count, rng)
        outlook = None if self.model is None or not len(codes) else self.outlook(codes)
        return self._named(codes, outlook)

    def known_good(self, running: Recommendation | None) -> Codes:
        """Where a search begins, (n, D): what the last one here brought, and the best that ran.

        That is all that a searcher remembers from one time to the next, and it is kept anyway.
        """
        measured = sorted(self.state.evidence.measured(), key=lambda named: -named[1].mean)
        configs = [] if running is None else [candidate.config for candidate in running.candidates]
        configs += [trial.config for _, trial in measured[:BEGIN]]
        inside = [code for code in map(self.space.encode, configs) if code is not None]
        return np.array(inside, np.int32).reshape(len(inside), len(self.space.dimensions))

    def at_random(self) -> list[SearchCandidate]:
        """Feasible configurations that nobody searched for: as many as it takes until there are
        enough that most likely run. Others are drawn once something new was tried here, not at
        every look."""
        campaign, drawn = self.state.campaign, list[SearchCandidate]()
        missing = max(side_by_side(self.study), campaign.round_size if campaign else 0)
        for first in range(0, len(self._drawn), DRAWN_AT_ONCE):
            codes = self._drawn[first : first + DRAWN_AT_ONCE]
            outlook = self.outlook(codes)
            drawn += self._named(codes, outlook)
            likely = (outlook.p_run >= self.study.min_feasible).tolist()
            names = zip(names_of(codes), likely, strict=True)
            missing -= sum(runs and name not in self._tried for name, runs in names)
            if missing <= 0:
                break
        return [replace(prospect, at_random=True) for prospect in drawn]

    @cached_property
    def _drawn(self) -> Codes:
        tried = len(self.state.evidence.trials)
        rng = np.random.default_rng([*self.study.search.seeds, tried, *self.key.encode()])
        return self.space.sample(DRAWN, rng)

    def again(self) -> list[SearchCandidate]:
        """Incumbents of earlier that have to be run again after a drift."""
        trials = self.state.evidence.trials
        codes = [
            code
            for cid in self.state.introduction.recheck
            if cid in trials and (code := self.space.encode(trials[cid].config)) is not None
        ]
        if not codes or self.model is None:
            return []
        prospects = self._named(codes, self.outlook(np.stack(codes)))
        known = {rival.candidate_id: rival.estimate for rival in self.rivals[0]}
        for i, prospect in enumerate(prospects):
            if (belief := known.get(prospect.candidate_id)) is not None:
                prospects[i] = replace(prospect, mean=belief.mean, spread=belief.sd)
        return [replace(prospect, again=True) for prospect in prospects]

    @cached_property
    def rivals(self) -> tuple[list[MeasuredConfig], list[MeasuredConfig]]:
        """The measured configurations that lie in the space, with what is believed of them; apart
        from them those that only an operator's limit rules out."""
        inside = [(cid, trial, code) for cid, trial, code in self._measured if code is not None]
        if not inside:
            return [], []
        trials = [trial for _, trial, _ in inside]
        own = np.array([trial.mean for trial in trials])
        unit = self.study.unit(own)
        noise = self.state.evidence.noise(unit)
        if self.model is None:
            expected, spread = np.full(len(own), own.mean()), np.full(len(own), own.std() + noise)
            feasible = np.ones(len(own))
        else:
            outlook = self.outlook(np.stack([code for _, _, code in inside]))
            expected, spread, feasible = outlook.mean, outlook.std, outlook.p_run
        expected, spread = self._since_change(inside, expected, spread, unit)
        beliefs = estimates(trials, noise, expected, spread)
        alone: Sequence[ScoreEstimate | None] = [None] * len(own)
        if self.model is not None:
            alone = list(map(ScoreEstimate, expected.tolist(), spread.tolist()))
        rivals = [
            MeasuredConfig(cid, trial, belief, float(p), guess)
            for (cid, trial, _), belief, p, guess in zip(
                inside, beliefs, feasible, alone, strict=True
            )
        ]
        if self.space is self.whole:
            return rivals, []
        kept = self.space.feasible(np.stack([code for _, _, code in inside])).tolist()
        return (
            [rival for rival, keep in zip(rivals, kept, strict=True) if keep],
            [rival for rival, keep in zip(rivals, kept, strict=True) if not keep],
        )

    def _since_change(
        self,
        inside: Sequence[tuple[str, ConfigStats, Codes]],
        expected: FloatArray,
        spread: FloatArray,
        unit: float,
    ) -> tuple[FloatArray, FloatArray]:
        """What is expected of configurations (n,), with its standard deviation: of those that ran
        before a change here, what they gave then and how far they are believed to have moved. What
        predicts has learned of them that they moved as one."""
        moves = self.state.evidence.moves(unit)
        expected, spread = expected.copy(), spread.copy()
        for i, (cid, trial, _) in enumerate(inside):
            if trial.former is not None and cid in moves:
                moved, sd = moves[cid]
                expected[i] = trial.former[0] + moved
                spread[i] = np.hypot(trial.former[1], sd)
        return expected, spread

    @cached_property
    def _measured(self) -> list[tuple[str, ConfigStats, Codes | None]]:
        """What was measured here, and where it lies in the space."""
        measured = self.state.evidence.measured()
        return [(cid, trial, self.whole.encode(trial.config)) for cid, trial in measured]

    @property
    def outside(self) -> MeasuredConfig | None:
        """The best that ran here more than once and does not lie in the study's space: it can
        neither lead nor be recommended. None where there is none."""
        least, noise = self.study.min_feasible, self.state.evidence.noise(self.unit)
        outside = [
            MeasuredConfig(
                cid, trial, ScoreEstimate(trial.mean, trial.noise(noise) / trial.sureness**0.5), 1.0
            )
            for cid, trial, code in self._measured
            if code is None and trial.runs >= REPEATS and trial.run_share >= least
        ]
        return max(outside, key=lambda rival: rival.estimate.mean, default=None)

    @cached_property
    def unit(self) -> float:
        """What a relative difference of 1 is in scores; where nothing was measured yet, by what is
        predicted of any configurations."""
        scores = np.array([rival.trial.mean for rival in self.rivals[0]])
        if not len(scores) and self.model is not None and self.study.objective.scale == "linear":
            scores = self.outlook(self._drawn).mean
        return self.study.unit(scores)

    def baseline(self) -> tuple[dict[str, Value] | None, bool]:
        """What people launch here without tunerd, completed by what is pinned and by what unasked
        jobs most often use; as far as it is stated where it cannot be completed. And whether
        there is none because it breaks a limit."""
        stated = self.study.baseline(self.state.context)
        if stated is None:
            return None, False
        stated = self.orders.completed(self.key, stated)
        if self.orders.broken(self.key, stated) is not None:
            return None, True
        if all(p.name in stated for p in self.study.parameters):
            return stated, False
        usual = self.state.evidence.usual(stated)
        if usual is not None and self.space.encode(usual) is not None:
            return usual, False
        return stated, False

    def wanted(
        self, prospects: Sequence[SearchCandidate], rng: np.random.Generator
    ) -> RoundRequest | None:
        """What the context's campaign still asks for, None where it has none or is over; its next
        round begins when one is done."""
        campaign = self.state.campaign
        if campaign is None:
            return None
        for ask in campaign.asks:
            # Not by steps: they are counted from an incumbent that the round itself may move.
            if self.ordered.encode(ask.config) is None:
                ask.missing = 0  # a new generation of the study or a limit rules it out
        # A round that asks for nothing would wait for another search, and nothing may bring one.
        while campaign.round_done and not campaign.finished:
            if campaign.round < 0:
                round_of = self.start(campaign.next_size, rng)
            else:
                # Once each: what was drawn at random may have been found by the search as well.
                distinct = {p.candidate_id: p for p in reversed(prospects)}
                fresh = [
                    p
                    for p in prospects
                    if p is distinct[p.candidate_id]
                    and p.candidate_id not in self.state.evidence.trials
                ]
                # What was drawn at random comes last, and may be likelier than what was found.
                fresh.sort(key=lambda p: (p.feasible or 0.0) < campaign.min_feasible)
                round_of = fresh[: campaign.next_size]
            campaign.begin_round([(p.candidate_id, p.config) for p in round_of])
            self.state.rounds_asked.append([ask.candidate_id for ask in campaign.asks])
        if campaign.finished:
            self.state.campaign = None
            return None
        inside = [
            (ask, code)
            for ask in campaign.asks
            if ask.missing > 0 and (code := self.ordered.encode(ask.config)) is not None
        ]
        known = [code for _, code in inside]
        outlook = None if self.model is None or not known else self.outlook(np.stack(known))
        named = self._named(known, outlook)
        asked = [(p, ask.missing) for p, (ask, _) in zip(named, inside, strict=True)]
        if outlook is not None:
            unit = self.unit
            asked.sort(key=lambda item: -_expected(item[0], unit))
        return RoundRequest(campaign.round, tuple(asked[:MOST_WANTED]))

    @staticmethod
    def _named_in(space: SearchSpace, configs: Iterable[Mapping[str, Value]]) -> frozenset[bytes]:
        """The names of those configurations that lie in a space."""
        inside = [code for code in map(space.encode, configs) if code is not None]
        return frozenset(names_of(np.stack(inside))) if inside else frozenset()

    def _named(
        self, codes: Iterable[Codes], seen: Predictions | None = None
    ) -> list[SearchCandidate]:
        candidates = []
        for i, code in enumerate(codes):
            config = self.space.decode(code)
            candidates.append(
                SearchCandidate(
                    candidate_id=candidate_id(self.study.name, self.key, config),
                    config=config,
                    mean=None if seen is None else float(seen.mean[i]),
                    spread=0.0 if seen is None else float(seen.std[i]),
                    feasible=None if seen is None else float(seen.p_run[i]),
                )
            )
        return candidates


def _expected(candidate: SearchCandidate, unit: float) -> float:
    """What a job may be expected to bring, in logarithms: one that fails brings nothing."""
    runs = max(1.0 if candidate.feasible is None else candidate.feasible, LEAST_FEASIBLE)
    return (candidate.mean or 0.0) / unit + math.log(runs)
