"""The contract of a predictor: a model of the objective that learns at constant cost.

A predictor answers in *score* units, the oriented objective in which larger is better
(``Study.score``). Its state after observation S is a pure function of the rows it was fitted on,
the new rows it learned since in their order, the recent window at S, and its seed; two runs over
the same observations in the same steps are equal bit for bit.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import ClassVar, Self

import numpy as np

from tunerd.core.arrays import FloatArray
from tunerd.core.features import FeatureMap, FeatureRows
from tunerd.core.predictors.out_of_fold import OutOfFoldPredictions, left_out
from tunerd.core.predictors.predictions import Predictions
from tunerd.core.study import PluginOptions, Study

__all__ = ["Predictor"]


class Predictor(ABC):
    """Predicts the score of configurations in contexts. Register in ``predictors/__init__.py``."""

    options_type: ClassVar[type[PluginOptions]] = PluginOptions
    """Options of its own."""

    @classmethod
    @abstractmethod
    def fit(cls, study: Study, features: FeatureMap, rows: FeatureRows, seed: int) -> Self:
        """Build from scratch on a bounded sample (``replay.py``). Expensive and pure.

        Rows without a score are ignored; with no usable row at all the result predicts a constant
        with a wide spread. Touches nothing shared and leaves the interpreter lock alone for most
        of the time, so that it may run in a background thread.
        """

    @abstractmethod
    def update(self, rows: FeatureRows, recent: FeatureRows) -> None:
        """Learn new rows at a cost that does not depend on history.

        ``recent`` is the bounded window of the latest rows and includes ``rows``.
        """

    @abstractmethod
    def predict(self, rows: FeatureRows) -> Predictions:
        """Predict every row. Changes nothing and looks at ``X`` and ``context_key`` only."""

    def means(self, rows: FeatureRows) -> FloatArray:
        """(n,) of :meth:`predict` the means, where nobody asks how sure they are: a predictor for
        which that is less work says how."""
        return self.predict(rows).mean

    def correlations(self, rows: FeatureRows) -> Callable[[int], FloatArray]:
        """Of n rows of one context: a function that says of one of them how what is uncertain of
        each goes together with what is uncertain of it, (n,) from -1 to 1. Not at all, where a
        predictor does not know."""

        def with_one(row: int) -> FloatArray:
            covariances = np.zeros(len(rows))
            covariances[row] = 1.0
            return covariances

        return with_one

    def roughly(
        self, study: Study, features: FeatureMap, rows: FeatureRows, seed: int
    ) -> "Predictor":
        """Fit another of this kind on fewer rows, as cheaply as tells what a fit is worth.

        Half of the members and not two: each leaves its share of the rows out.
        """
        whole = study.predictor
        rough = replace(whole, members=(whole.members + 1) // 2, trees=(3 * whole.trees + 3) // 4)
        return type(self).fit(replace(study, predictor=rough), features, rows, seed)

    def left_out(
        self, study: Study, features: FeatureMap, rows: FeatureRows, seed: int
    ) -> OutOfFoldPredictions | None:
        """How far off this is on jobs that it has not seen, right after a fit on ``rows``; None
        where they are too few to say."""

        def told(kept: FeatureRows, asked: FeatureRows) -> tuple[FloatArray, FloatArray]:
            rough = self.roughly(study, features, kept, seed).predict(asked)
            return rough.mean, rough.std

        return left_out(told, features, rows, seed)

    @abstractmethod
    def dump(self) -> dict[str, bytes]:
        """State as named blobs. No pickle; what :meth:`load` builds predicts the same bits."""

    @classmethod
    @abstractmethod
    def load(cls, study: Study, features: FeatureMap, blobs: Mapping[str, bytes]) -> Self:
        """Build from what :meth:`dump` gave.

        Raises:
            ValueError: the blobs are damaged, or were made for other columns than ``features``.
        """
