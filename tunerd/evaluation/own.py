"""tunerd's own predictors as forecasters: fitted, and updated, as the service does it."""

from collections.abc import Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import msgspec
import numpy as np

from tunerd.core.decide import BAND
from tunerd.core.features import FeatureMap
from tunerd.core.features.replay import sequences_at
from tunerd.core.model import Model, Outlook
from tunerd.core.observation import Observation
from tunerd.core.predictors import PREDICTORS
from tunerd.core.study import Study
from tunerd.core.tuner import Tuner
from tunerd.errors import MisconfiguredError, Problem
from tunerd.evaluation.predicting import Foretold

__all__ = ["AtOnce", "Live", "Own", "forecaster"]

_HALF_WIDTH = NormalDist().inv_cdf(0.5 + BAND / 2)
"""Of the published band, in spreads."""


def forecaster(name: str) -> "Own":
    """A predictor of tunerd's by its name in a study file.

    Raises:
        MisconfiguredError: there is no such predictor.
    """
    if name not in PREDICTORS:
        message = f"no predictor {name!r}; there are {', '.join(PREDICTORS)}"
        raise MisconfiguredError([Problem("--predictor", message)])
    return Own(name)


@dataclass(frozen=True)
class Own:
    """A predictor of the registry beside the model of what runs, as one fit of the service makes
    them."""

    name: str

    def foretell(
        self,
        study: Study,
        known: Sequence[Observation],
        asked: Sequence[Observation],
        seed: int,
    ) -> Foretold:
        """See :meth:`Forecaster.foretell`."""
        features, model = self.fit(study, known, seed)
        return _told(model.outlook(features.rows(asked)))

    def fit(
        self, study: Study, known: Sequence[Observation], seed: int
    ) -> tuple[FeatureMap, Model]:
        """The model of a daemon that has just rebuilt it after the jobs ``known``."""
        study = _with(study, self.name, seed)
        features = FeatureMap(study)
        kept = sequences_at(len(known)) - 1
        rows = features.rows([known[i] for i in kept.tolist()])
        return features, Model.fit(study, features, rows, at=len(known))


@dataclass(frozen=True)
class Live:
    """The same predictor as it serves: every job is predicted before it is learned, rebuilds and
    updates come when the daemon would make them."""

    of: Own

    @property
    def name(self) -> str:
        """What results are filed under."""
        return f"{self.of.name}_live"

    def follow(
        self,
        study: Study,
        known: Sequence[Observation],
        asked: Sequence[Observation],
        seed: int,
        batch: int = 10,
    ) -> Foretold:
        """Predict ``asked`` in order, learning a batch once it was predicted."""
        tuner = Tuner(_with(study, self.of.name, seed), AtOnce())
        jobs = [
            msgspec.structs.replace(job, sequence=i + 1) for i, job in enumerate([*known, *asked])
        ]
        if known:
            tuner.gather(jobs[: len(known)])
            tuner.catch_up()
        told = []
        for start in range(len(known), len(jobs), batch):
            came = jobs[start : start + batch]
            if tuner.model is None:
                told.append(_nothing(len(came)))
            else:
                told.append(tuner.model.outlook(tuner.features.rows(came)))
            tuner.learn(came)
        return _told(
            Outlook(
                np.concatenate([one.mean for one in told]),
                np.concatenate([one.spread for one in told]),
                np.concatenate([one.feasible for one in told]),
            )
        )


class AtOnce(Executor):
    """Runs what is submitted in the caller's thread, so that a rebuild needs no other."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> "Future[Any]":
        """See :meth:`Executor.submit`."""
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


def _with(study: Study, predictor: str, seed: int) -> Study:
    """The study with this predictor; seed 0 is its own."""
    options = replace(study.predictor, name=predictor, seed=study.predictor.seed + seed)
    return replace(study, predictor=options)


def _nothing(n: int) -> Outlook:
    return Outlook(np.zeros(n), np.full(n, 1e3), np.ones(n))


def _told(outlook: Outlook) -> Foretold:
    reach = _HALF_WIDTH * outlook.spread
    return Foretold(
        outlook.mean, outlook.mean - reach, outlook.mean + reach, BAND, outlook.feasible
    )
