"""``optuna``: any of Optuna's samplers, by its name there (study file: ``[search] sampler``).

One Optuna study per seed; a sampler proposes a few configurations at a time, what breaks a
constraint is repaired, and the sampler is told what the repaired one scored. Optuna is an extra
(``pip install 'tunerd[optuna]'``), and slow beside the other searchers: a proposal takes some
milliseconds, more with each one before it. A study that uses it wants fewer ``evaluations``.
"""

import inspect
import warnings
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import numpy as np
from pydantic import Field

from tunerd.core.arrays import Codes, FloatArray
from tunerd.core.searchers.base import CachedScorer, Searcher
from tunerd.core.space import SearchSpace
from tunerd.core.study import PluginOptions, SearchOptions

__all__ = ["OptunaOptions", "OptunaSearcher"]

BATCH = 8
"""Proposals of one sampler that are scored together. Each is made without knowing the score of the
others; a prediction of eight costs little more than of one."""
PATIENCE = 20
"""Rounds with nothing new after which a search ends."""
MOST_ASKED = {"GPSampler": 64}
"""Proposals in one search of a sampler that fits a Gaussian process for each, which takes up to a
second: it would hold up everything else for minutes."""
PACKAGES = {"CmaEsSampler": ("cmaes", "'tunerd[optuna]'"), "GPSampler": ("torch", "torch")}
"""What a sampler needs beside Optuna, and what to install for it."""


class OptunaOptions(PluginOptions):
    """Which of Optuna's samplers it asks."""

    sampler: str = Field(
        default="TPESampler",
        description="For the searcher optuna: which of its samplers, by the name it has there.",
    )


class OptunaSearcher(Searcher):
    """One Optuna study per seed of the study's ``[search]`` table."""

    options_type = OptunaOptions

    @classmethod
    def problem(cls, options: SearchOptions) -> str | None:
        """See :meth:`Searcher.problem`."""
        sampler = OptunaOptions.among(options.own).sampler
        optuna = ("optuna", "'tunerd[optuna]'")
        for package, wanted in (optuna, PACKAGES.get(sampler, optuna)):
            if find_spec(package) is None:
                return f"it needs the package {package}: pip install {wanted}"
        usable = _samplers()
        if sampler not in usable:
            return f"no sampler {sampler!r}; there are {', '.join(sorted(usable))}"
        return None

    def _explore(
        self, space: SearchSpace, scored: CachedScorer, begin: Codes, rng: np.random.Generator
    ) -> None:
        sampler = OptunaOptions.among(self.options.own).sampler
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what is experimental or deprecated is its own matter
            seeds = rng.integers(2**31, size=len(self.options.seeds)).tolist()
            asking = [_OptunaStudy(space, sampler, seed, scored.new_lane()) for seed in seeds]
            if len(begin):
                for trial in asking:
                    trial.know(begin, scored(begin))
            idle, left = 0, MOST_ASKED.get(sampler)
            while scored.left and idle < PATIENCE and left != 0:
                before = len(scored)
                for trial in asking:
                    scored.lane = trial.lane
                    asked = trial.turn(scored, rng, left)
                    left = None if left is None else left - asked
                idle = 0 if len(scored) > before else idle + 1


@dataclass
class _OptunaStudy:
    """One Optuna study over the choices of a space."""

    space: SearchSpace
    sampler: str
    seed: int
    lane: int
    _worst: float = field(default=np.inf, init=False)

    def __post_init__(self) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._trials = optuna.trial
        kind = getattr(optuna.samplers, self.sampler)
        options: dict[str, Any] = {"seed": self.seed}
        # CMA-ES knows numbers only, and would draw categories at random.
        numbers = kind is optuna.samplers.CmaEsSampler
        options |= {"with_margin": True} if numbers else {}
        options = {k: v for k, v in options.items() if k in inspect.signature(kind).parameters}
        self._study: Any = optuna.create_study(direction="maximize", sampler=kind(**options))
        types = {p.name: p.type for p in self.space.study.parameters}
        self._distributions = {
            d.name: optuna.distributions.IntDistribution(0, d.size - 1)
            if numbers or types[d.parameter] in ("int", "float")
            else optuna.distributions.CategoricalDistribution(range(d.size))
            for d in self.space.dimensions
        }

    def know(self, codes: Codes, scores: FloatArray) -> None:
        """Tell scores of (n, D) configurations that nobody asked about."""
        for code, score in zip(codes.tolist(), scores.tolist(), strict=True):
            if np.isfinite(score):
                params = dict(zip(self._distributions, code, strict=True))
                self._study.add_trial(
                    self._trials.create_trial(
                        params=params, distributions=self._distributions, value=score
                    )
                )

    def turn(self, scored: CachedScorer, rng: np.random.Generator, most: int | None) -> int:
        """Ask, score and tell once, at most ``most`` proposals. Returns how many were asked for."""
        count = min(BATCH, scored.left, BATCH if most is None else most)
        trials = [self._study.ask(self._distributions) for _ in range(count)]
        asked = [[trial.params[name] for name in self._distributions] for trial in trials]
        if not asked:
            return 0
        codes = self.space.repair(np.array(asked, np.int32), rng)
        for trial, score in zip(trials, scored(codes).tolist(), strict=True):
            if np.isfinite(score):
                self._worst = min(self._worst, score)
                self._study.tell(trial, score)
            elif np.isfinite(self._worst) and not np.isposinf(score):
                self._study.tell(trial, self._worst)
            else:
                self._study.tell(trial, state=self._trials.TrialState.FAIL)
        return count


def _samplers() -> list[str]:
    """Names of the samplers that need nothing that a study file cannot say."""
    from optuna import samplers

    usable = []
    for name in samplers.__all__:
        kind = getattr(samplers, name)
        if not inspect.isclass(kind) or inspect.isabstract(kind):
            continue
        needed = [p for p in inspect.signature(kind).parameters.values() if p.default is p.empty]
        usable += [] if needed else [name]
    return usable
