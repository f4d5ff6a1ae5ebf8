"""tunerd's own predictors as forecasters: fitted, and updated, as the service does it."""

from collections.abc import Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np

from tunerd.core.conformal import BAND, HALF, ConformalBands
from tunerd.core.evidence.prequential import PrequentialOutcome
from tunerd.core.features import FeatureMap
from tunerd.core.features.replay import sequences_at
from tunerd.core.model.model import StudyModel
from tunerd.core.observation import Observation
from tunerd.core.predictors import PREDICTORS
from tunerd.core.study import Study
from tunerd.core.tuner import Tuner
from tunerd.errors import MisconfiguredError, ValidationProblem
from tunerd.lab.evaluation.forecaster import JobForecasts

__all__ = ["InlineExecutor", "PrequentialForecaster", "TunerdForecaster", "forecaster"]


def forecaster(name: str) -> "TunerdForecaster":
    """A predictor of tunerd's by its name in a study file.

    Raises:
        MisconfiguredError: there is no such predictor.
    """
    if name not in PREDICTORS:
        message = f"no predictor {name!r}; there are {', '.join(PREDICTORS)}"
        raise MisconfiguredError([ValidationProblem("--predictor", message)])
    return TunerdForecaster(name)


@dataclass(frozen=True)
class TunerdForecaster:
    """A predictor of the registry beside the model of what runs, as one fit of the service makes
    them."""

    name: str

    def foretell(
        self,
        study: Study,
        known: Sequence[Observation],
        asked: Sequence[Observation],
        seed: int,
    ) -> JobForecasts:
        """See :meth:`Forecaster.foretell`."""
        features, model = self.fit(study, known, seed)
        rows, bands = features.rows(known), ConformalBands()
        bands.learn(rows.context_key, None, None, rows.score, np.zeros(len(rows), np.bool_))
        bands.start(model.starts)
        table = features.rows(asked)
        names_known = set(rows.names)
        tried = np.array([name in names_known for name in table.names], np.bool_)
        outlook = model.outlook(table).adjusted(table.context_key, tried, bands)
        reach = HALF * outlook.std
        return JobForecasts(
            outlook.mean, outlook.mean - reach, outlook.mean + reach, BAND, outlook.p_run
        )

    def fit(
        self, study: Study, known: Sequence[Observation], seed: int
    ) -> tuple[FeatureMap, StudyModel]:
        """The model of a daemon that has just rebuilt it after the jobs ``known``."""
        study = _with(study, self.name, seed)
        features = FeatureMap(study)
        kept = sequences_at(len(known)) - 1
        rows = features.rows([known[i] for i in kept.tolist()])
        return features, StudyModel.fit(study, features, rows, at=len(known))


@dataclass(frozen=True)
class PrequentialForecaster:
    """The same predictor as it serves: every job is predicted before it is learned, rebuilds and
    updates come when the daemon would make them."""

    of: TunerdForecaster

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
    ) -> JobForecasts:
        """Predict ``asked`` in order, learning a batch once it was predicted."""
        tuner = Tuner(_with(study, self.of.name, seed), InlineExecutor())
        jobs = [
            msgspec.structs.replace(job, sequence=i + 1) for i, job in enumerate([*known, *asked])
        ]
        if known:
            tuner.gather(jobs[: len(known)])
            tuner.catch_up()
        outcomes: list[PrequentialOutcome] = []
        for start in range(len(known), len(jobs), batch):
            outcomes += [
                record.outcome for record in tuner.learn(jobs[start : start + batch]).judged
            ]
        return JobForecasts(
            np.array(
                [0.0 if outcome.predicted is None else outcome.predicted for outcome in outcomes]
            ),
            np.array([-1e3 if outcome.low is None else outcome.low for outcome in outcomes]),
            np.array([1e3 if outcome.high is None else outcome.high for outcome in outcomes]),
            BAND,
            np.array(
                [1.0 if outcome.feasible is None else outcome.feasible for outcome in outcomes]
            ),
        )


class InlineExecutor(Executor):
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
