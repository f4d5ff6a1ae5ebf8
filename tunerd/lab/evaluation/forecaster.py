"""What predicts, seen from outside: tunerd's own predictors and every peer alike.

A forecaster is shown finished jobs and asked about others. It gets raw observations, so that
each makes of contexts and configurations what suits it best (``FeatureMap(study)`` is there for
all). What it is asked about comes :func:`stripped` of everything that happened.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec
import numpy as np

from tunerd.core.arrays import FloatArray
from tunerd.core.observation import Observation, Status
from tunerd.core.study import Study

__all__ = ["Forecaster", "JobForecasts", "checked", "stripped"]


@dataclass(frozen=True)
class JobForecasts:
    """What a forecaster says of n jobs, in their order."""

    score: FloatArray
    """(n,) the objective as ``Study.score`` gives it: larger is better whatever the goal, a
    natural logarithm where the study says ``scale = "log"``. A peer that can only rank says so in
    any unit it likes and sets ``only_ranks``."""
    low: FloatArray | None = None
    high: FloatArray | None = None
    """(n,) where a share ``band`` of the jobs will lie; None for one that gives no band."""
    band: float = 0.8
    runs: FloatArray | None = None
    """(n,) probability to run, in [0, 1]; None for one that says nothing about it."""
    only_ranks: bool = False
    """Whether ``score`` is in no unit: errors and Pearson's correlation are not told then."""


class Forecaster(Protocol):
    """Predicts jobs from others."""

    @property
    def name(self) -> str:
        """What results are filed under, ``[a-z0-9_]+``."""
        ...

    def foretell(
        self,
        study: Study,
        known: Sequence[Observation],
        asked: Sequence[Observation],
        seed: int,
    ) -> JobForecasts:
        """Predict the jobs ``asked`` from those that are ``known``.

        ``known`` is in the order of its sequences, failures included (``Study.ran`` says what
        each teaches); it may be small or hold no job with an objective. The same arguments give
        the same answer.
        """
        ...


def stripped(observation: Observation) -> Observation:
    """The job without anything that is known only once it has run.

    Context, configuration, who, when and the row's name stay.
    """
    return msgspec.structs.replace(
        observation, status=Status.SUCCEEDED, metrics={}, measured_s=None, extra={}, content_hash=""
    )


def checked(name: str, foretold: JobForecasts, n: int) -> JobForecasts:
    """What was foretold, if it can be judged.

    Raises:
        ValueError: a length is wrong, a score is not finite, or a probability is none.
    """
    arrays = {
        "score": foretold.score,
        "low": foretold.low,
        "high": foretold.high,
        "runs": foretold.runs,
    }
    for what, values in arrays.items():
        if values is None:
            continue
        if values.shape != (n,):
            raise ValueError(f"{name}: {what} has shape {values.shape}, {n} jobs were asked for")
        if np.isnan(values).any() or (what == "score" and not np.isfinite(values).all()):
            raise ValueError(f"{name}: {what} is not a number for some job")
    if (foretold.low is None) != (foretold.high is None):
        raise ValueError(f"{name}: a band needs both low and high")
    if foretold.runs is not None and np.any((foretold.runs < 0) | (foretold.runs > 1)):
        raise ValueError(f"{name}: a probability to run is outside 0..1")
    return foretold
