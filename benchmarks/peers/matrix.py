"""Jobs as numbers, the same for every peer: the columns that tunerd's own predictors get.

Peers that want a plain matrix get logarithms, one column per category value and everything
standardised (:class:`tunerd.core.estimators.design.DesignTransform`), as a careful person would
prepare it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tunerd.core.arrays import BoolArray, FloatArray
from tunerd.core.estimators.design import DesignTransform
from tunerd.core.features import FeatureMap, FeatureRows
from tunerd.core.observation import Observation
from tunerd.core.study import Study

__all__ = ["MANY", "Jobs", "boosted_chance", "chance_to_run", "for_few"]

FEW = 10
"""Outcomes below which there is nothing to split."""
MANY = 1_000
"""Jobs from which on LightGBM's defaults have enough to split."""


@dataclass(frozen=True)
class Jobs:
    """Jobs that are known and jobs that are asked about, as matrices."""

    features: FeatureMap
    known: FeatureRows
    asked: FeatureRows

    @classmethod
    def of(cls, study: Study, known: Sequence[Observation], asked: Sequence[Observation]) -> "Jobs":
        """Bring both into the same columns."""
        features = FeatureMap(study)
        return cls(features, features.rows(known), features.rows(asked))

    @property
    def categorical(self) -> list[int]:
        """Places of the columns that hold categories."""
        return [i for i, column in enumerate(self.features.columns) if column.categorical]

    @property
    def scored(self) -> BoolArray:
        """(known,) which of the known jobs have an objective."""
        return np.isfinite(self.known.score)

    def plain(self, group: str | None = None) -> tuple[FloatArray, FloatArray]:
        """Known and asked jobs as standardised numbers without gaps, (n, P) and (m, P).

        ``group`` takes the columns of the context alone (``"context"``), or of the
        configuration alone (``"configuration"``).
        """
        where = self._columns(group)
        flags = [self.features.columns[i].categorical for i in where]
        both = np.concatenate([self.known.X, self.asked.X])[:, where]
        # What is asked about is known as well: which values there are is no secret.
        design = DesignTransform.fit(both, flags)
        numbers = design(both)
        numbers = numbers[:, numbers.std(axis=0) > 0]
        return numbers[: len(self.known)], numbers[len(self.known) :]

    def _columns(self, group: str | None) -> list[int]:
        context = {"context", "lookup"}
        return [
            i
            for i, column in enumerate(self.features.columns)
            if group is None or (column.group in context) == (group == "context")
        ]


def for_few(rows: int) -> dict[str, Any]:
    """Parameters for LightGBM when there are few rows: smaller leaves than its default of 20.

    Categories go in as plain codes then, because its own way with them wants a hundred rows per
    group. On 30 to 750 rows of the measured tables τ rose everywhere, .50 to .72 from 0 at 30.
    """
    return {} if rows >= MANY else {"min_data_in_leaf": 5}


def chance_to_run(jobs: Jobs, seed: int) -> FloatArray:
    """(asked,) probability to run by a LightGBM classifier; see :func:`boosted_chance`."""
    return boosted_chance(jobs.known.X, jobs.known.ran, jobs.asked.X, jobs.categorical, seed)


def boosted_chance(
    X: FloatArray, ran: FloatArray, asked: FloatArray, categorical: Sequence[int], seed: int
) -> FloatArray:
    """(asked,) probability to run by a LightGBM classifier of (n, F) jobs and whether each ran,
    NaN where that is not known; 1 while all ran, the smoothed share while none did or there are
    too few to split."""
    import lightgbm

    said = np.isfinite(ran)
    ran = ran[said]
    if not len(ran) or ran.all():
        return np.ones(len(asked))
    if len(ran) < FEW or not ran.any():
        return np.full(len(asked), float((ran.sum() + 1.0) / (len(ran) + 1.0)))
    categories = list(categorical) if len(ran) >= MANY else []
    # Not LGBMClassifier, which is the same and needs scikit-learn.
    options = {"objective": "binary", "seed": seed, "num_threads": 1, "deterministic": True}
    booster = lightgbm.train(
        {**options, "verbosity": -1, **for_few(len(ran))},
        lightgbm.Dataset(X[said], ran, categorical_feature=categories),
    )
    told = booster.predict(asked, num_threads=1)
    return np.asarray(told, dtype=np.float64)
