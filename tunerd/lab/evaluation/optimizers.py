"""Who takes part in every closed loop: tunerd itself, and random as the yardstick.

tunerd plays through the daemon's own code: its tuner learns, searches and decides, and the jobs
follow the recommendation that comes of it. Everyday jobs give ``explore_share`` of themselves to
candidates and the rest to the incumbent; here all of them are there to find something, so that
``shares`` are scaled up to the whole batch. With ``campaign`` one runs in the context, as
``tunerd campaign`` starts it: each batch is one of its rounds, and jobs run what is wanted of it.
"""

import copy
import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Literal

import msgspec
import numpy as np

from tunerd import __version__, errors
from tunerd.core.decisions.campaign import Campaign
from tunerd.core.decisions.lifecycle import compose, is_news
from tunerd.core.observation import Observation, Value
from tunerd.core.predictors import PREDICTORS
from tunerd.core.recommendation import Candidate, MadeFrom, Recommendation
from tunerd.core.searchers import SEARCHERS
from tunerd.core.study import Study
from tunerd.core.tuner import Tuner
from tunerd.lab.evaluation.closed_loop import EPOCH, BenchmarkProblem, TrialResult
from tunerd.lab.evaluation.tunerd_forecaster import InlineExecutor

__all__ = ["Follow", "RandomOptimizer", "TunerdOptimizer"]

Follow = Literal["campaign", "shares"]
"""How jobs follow tunerd's recommendations."""

STEP = 1_000
"""Jobs of history taken in at a time."""
ROUNDS = 1_000_000
"""Rounds of the campaign: it ends with the jobs."""


@dataclass(frozen=True)
class RandomOptimizer:
    """Configurations that were not tried yet, at random."""

    name: str = "random"

    def begin(self, problem: BenchmarkProblem, seed: int) -> "_RandomRun":
        """See :meth:`Optimizer.begin`."""
        return _RandomRun(len(problem.configs), np.random.default_rng([seed, 1]))


class _RandomRun:
    def __init__(self, configs: int, rng: np.random.Generator) -> None:
        self._untried = dict.fromkeys(rng.permutation(configs).tolist())

    def ask(self, n: int) -> list[int]:
        return list(self._untried)[:n]

    def tell(self, jobs: Sequence[TrialResult]) -> None:
        for job in jobs:
            self._untried.pop(job.index, None)


@dataclass(frozen=True)
class TunerdOptimizer:
    """tunerd as it stands: the study's predictor, searcher and settings."""

    searcher: str | None = None
    """Instead of the study's."""
    predictor: str | None = None
    """Instead of the study's."""
    follow: Follow = "campaign"
    name: str = "tunerd"
    _histories: "_WarmStartCache" = field(
        default_factory=lambda: _WarmStartCache(), init=False, repr=False, compare=False
    )

    def begin(self, problem: BenchmarkProblem, seed: int) -> "_TunerdRun":
        """See :meth:`Optimizer.begin`; each seed searches and fits with seeds of its own."""
        tuner = self._histories.learned(problem, self.study(problem.study, seed), seed)
        return _TunerdRun(problem, tuner, seed, self.follow)

    def study(self, study: Study, seed: int = 0) -> Study:
        """The study as it is played; seed 0 is its own.

        Raises:
            MisconfiguredError: there is no such searcher or predictor.
        """
        problems = [
            errors.ValidationProblem(
                f"--{kind}", f"no {kind} {name!r}; there are {', '.join(known)}"
            )
            for kind, name, known in (
                ("searcher", self.searcher, SEARCHERS),
                ("predictor", self.predictor, PREDICTORS),
            )
            if name is not None and name not in known
        ]
        if problems:
            raise errors.MisconfiguredError(problems)
        search, predictor = study.search, study.predictor
        return replace(
            study,
            search=replace(
                search,
                searcher=self.searcher or search.searcher,
                seeds=tuple(old_seed + seed for old_seed in search.seeds),
            ),
            predictor=replace(
                predictor, name=self.predictor or predictor.name, seed=predictor.seed + seed
            ),
        )


class _WarmStartCache:
    """Tuners that have learned what was known beforehand. What several targets have in common is
    learned once, saved, and recovered for each, as a daemon does after a restart."""

    MOST = 8

    def __init__(self) -> None:
        self._saved: OrderedDict[tuple[int, int], _TunerSnapshot] = OrderedDict()

    def learned(self, problem: BenchmarkProblem, study: Study, seed: int) -> Tuner:
        """A tuner of its own for each caller."""
        history, only = problem.history, {problem.context_key: problem.configs}
        if not history:
            return Tuner(study, InlineExecutor(), only)
        saved = self._saved.get((id(history), seed))
        if saved is None or saved.study != study:
            tuner = Tuner(study, InlineExecutor(), only)
            for at in range(0, len(history), STEP):
                tuner.gather(history[at : at + STEP])
            tuner.catch_up()
            self._saved[id(history), seed] = _TunerSnapshot(study, history, tuner)
            if len(self._saved) > self.MOST:
                self._saved.popitem(last=False)
            return tuner
        return saved.recovered(only)


class _TunerSnapshot:
    def __init__(self, study: Study, history: Sequence[Observation], tuner: Tuner) -> None:
        self.study = study
        self._history = history  # held, so that nothing else gets its id
        self._state = tuner.dump()
        self._contexts = {key: state.dump() for key, state in tuner.contexts.items()}
        self._parts = None if tuner.model is None else tuner.model.dump()

    def recovered(self, only: Mapping[str, Sequence[Mapping[str, Value]]]) -> Tuner:
        return Tuner.restore(
            self.study,
            InlineExecutor(),
            self._state,
            copy.deepcopy(self._contexts),
            self._parts,
            [],
            lambda sequences: [self._history[job - 1] for job in sequences],
            only,
        )


class _TunerdRun:
    """A daemon's tuner in one context, and a cluster that does what it says."""

    def __init__(self, problem: BenchmarkProblem, tuner: Tuner, seed: int, follow: Follow) -> None:
        self._problem, self._follow = problem, follow
        self._key = problem.context_key
        self._places = {_name(config): i for i, config in enumerate(problem.configs)}
        self._untried = _RandomRun(len(problem.configs), np.random.default_rng([seed, 2]))
        self._running: Recommendation | None = None
        self._asked: list[Candidate | None] = []
        self._revision = 0
        self._now = max((job.finished_at for job in problem.history), default=EPOCH)
        self.tuner = tuner

    def ask(self, n: int) -> list[int]:
        """Search, decide, and let n jobs follow what is said."""
        self._plan_round(n)
        advice = self.tuner.advise(self._key, self._running)
        if is_news(self.tuner.study, advice, self._running):
            self._revision += 1
            self._running = compose(
                self.tuner.study,
                self._key,
                self.tuner.contexts[self._key],
                advice,
                self._made_from(),
                revision=self._revision,
                now=self._now,
                valid=timedelta(days=1),
            )
            self.tuner.promise(self._key, advice)
        picked = [] if self._running is None else followed(self._running.candidates, n)
        self._asked = [*picked, *[None] * (n - len(picked))]
        places = [self._places[_name(candidate.config)] for candidate in picked]
        return [*places, *self._unclaimed(n - len(picked))]

    def tell(self, jobs: Sequence[TrialResult]) -> None:
        """Learn what jobs came to."""
        asked = self._asked if len(self._asked) == len(jobs) else [None] * len(jobs)
        self._asked = []
        self._untried.tell(jobs)
        outcomes = []
        for outcome, candidate in zip(jobs, asked, strict=True):
            job = outcome.job
            if candidate is not None and self._running is not None:
                job = msgspec.structs.replace(
                    job,
                    recommendation_id=self._running.recommendation_id,
                    candidate_id=candidate.candidate_id,
                )
            outcomes.append(job)
        self._now = outcomes[-1].finished_at
        self.tuner.learn(outcomes)

    def _plan_round(self, n: int) -> None:
        """Let the campaign's next round have n configurations; begin it with the first ask. It
        draws a random start of its own only where nothing at all is known yet."""
        state = self.tuner.contexts.get(self._key)
        if state is not None and state.campaign is not None:
            state.campaign.round_size = n
        elif self._follow == "campaign":
            campaign = Campaign(0 if self.tuner.sequence else n, ROUNDS, round_size=n)
            self.tuner.start_campaign(self._problem.context, campaign, self._now)
        elif state is None:
            self.tuner.start_campaign(self._problem.context, Campaign(0, 0, 0), self._now)

    def _unclaimed(self, n: int) -> list[int]:
        """What n jobs run that no candidate claims: the incumbent, else the baseline, else what
        nobody has tried yet."""
        running = self._running
        if n and running is not None:
            stands = running.incumbent.config if running.incumbent else running.baseline
            if stands is not None and (place := self._places.get(_name(stands))) is not None:
                return [place] * n
        return self._untried.ask(n)

    def _made_from(self) -> MadeFrom:
        study = self.tuner.study
        return MadeFrom(
            sequence=self.tuner.sequence,
            model=None,
            study=study.content_hash,
            seeds=study.search.seeds,
            tunerd=__version__,
        )


def followed(candidates: Sequence[Candidate], n: int) -> list[Candidate]:
    """Which candidates n jobs run: what is wanted first, in order of rank, as often as it is
    wanted; then each in proportion to its share. Fewer than n only if nothing has a share."""
    wanted = [candidate for candidate in candidates for _ in range(candidate.wanted)][:n]
    left, total = n - len(wanted), sum(candidate.share for candidate in candidates)
    if not left or not total:
        return wanted
    ends = np.cumsum([candidate.share for candidate in candidates]) / total
    counts = np.diff(np.floor(ends * left + 0.5), prepend=0.0).astype(int).tolist()
    return wanted + [c for c, count in zip(candidates, counts, strict=True) for _ in range(count)]


def _name(config: Mapping[str, Value]) -> str:
    return json.dumps(config, sort_keys=True)
