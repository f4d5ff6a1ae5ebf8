"""Jobs as numbers, the same for every peer: the columns that tunerd's own predictors get.

Peers that want a plain matrix get logarithms, one column per category value and everything
standardised (:class:`tunerd.core.learners.design.Design`), as a careful person would prepare it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tunerd.core.arrays import BoolArray, FloatArray
from tunerd.core.features import FeatureMap
from tunerd.core.features.rows import Rows
from tunerd.core.learners.design import Design
from tunerd.core.observation import Observation
from tunerd.core.study import Study

__all__ = ["Jobs", "chance_to_run"]


@dataclass(frozen=True)
class Jobs:
    """Jobs that are known and jobs that are asked about, as matrices."""

    features: FeatureMap
    known: Rows
    asked: Rows

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
        design = Design.fit(both, flags)
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


def chance_to_run(jobs: Jobs, seed: int) -> FloatArray:
    """(asked,) probability to run by a LightGBM classifier; the plain share while all or none of
    the known jobs ran, or there are too few to split."""
    import lightgbm

    said = np.isfinite(jobs.known.ran)
    ran = jobs.known.ran[said]
    share = float((ran.sum() + 1.0) / (len(ran) + 1.0)) if len(ran) else 1.0
    if len(ran) < 10 or ran.min() == ran.max():
        return np.full(len(jobs.asked), share if len(ran) and not ran.all() else 1.0)
    model = lightgbm.LGBMClassifier(
        verbosity=-1,
        n_jobs=1,
        random_state=seed,
        deterministic=True,
        min_child_samples=20 if len(ran) >= 400 else 5,
    )
    data = jobs.known.X[said]
    model.fit(data, ran.astype(int), categorical_feature=jobs.categorical)
    told = model.predict_proba(jobs.asked.X, num_threads=1)
    return np.asarray(told, dtype=np.float64)[:, 1]
