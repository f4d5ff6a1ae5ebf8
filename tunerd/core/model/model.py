"""Everything that a study has learned to predict with, as one thing.

It is fitted, updated, swapped and saved whole. A new model is fitted aside (:meth:`StudyModel.fit`
is pure) while the old one serves.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from tunerd.core.conformal import Standing
from tunerd.core.feasibility import FeasibilityModel
from tunerd.core.features import FeatureMap, FeatureRows
from tunerd.core.features.pooling import held, pooled
from tunerd.core.model.extrapolation import Extrapolation
from tunerd.core.predictors import predictor_class
from tunerd.core.predictors.base import Predictor
from tunerd.core.predictors.out_of_fold import doubted
from tunerd.core.predictors.predictions import Predictions
from tunerd.core.study import Study

__all__ = ["StudyModel"]


@dataclass(slots=True)
class StudyModel:
    """The predictor of the objective beside the model of what runs at all."""

    predictor: Predictor
    runs: FeasibilityModel
    fitted_at: int
    """Sequence of the last observation that the fit could see."""
    learned: int
    """Sequence of the last observation learned since, by updates."""
    starts: Mapping[Standing, tuple[float, int]] = field(default_factory=dict)
    """Of bands, right after a fit: what ``Bands.start`` takes. A model that was loaded knows none:
    its bands go on from live jobs."""
    reach: Extrapolation | None = None
    """What jobs have varied."""

    @classmethod
    def fit(cls, study: Study, features: FeatureMap, rows: FeatureRows, at: int) -> "StudyModel":
        """Fit both from scratch on the replay sample of sequence ``at``."""
        seed = study.predictor.seed
        measured = pooled(rows)
        predictor = predictor_class(study.predictor.name).fit(study, features, measured, seed)
        left_out = predictor.left_out(study, features, measured, seed)
        return cls(
            predictor,
            FeasibilityModel.fit(study, features, _in_full(rows), seed),
            fitted_at=at,
            learned=at,
            starts=_doubted(left_out.starts()) if left_out else {},
            reach=Extrapolation.of(features, rows),
        )

    def update(self, rows: FeatureRows, recent: FeatureRows, at: int) -> None:
        """Learn new rows at constant cost; ``recent`` is the window that includes them. The
        predictor leaves what is faint (:data:`FAINT`) to the next fit; whether a job ran does not
        fade."""
        if len(rows):
            self.predictor.update(*held(rows.take(rows.fresh()), recent))
            self.runs.update(_in_full(rows), _in_full(recent))
        if self.reach is not None:
            self.reach.learn(rows)
        self.learned = at

    def outlook(self, rows: FeatureRows, *, sure: bool = False) -> Predictions:
        """Predict every row as the model itself sees it. What is said to people and programs is
        :meth:`Predictions.adjusted`. With ``sure`` all of them are taken to run: to say what does
        takes most of the time."""
        reach = self.reach if self.reach is not None and self.reach.ends else None
        return replace(
            self.predictor.predict(rows),
            p_run=np.ones(len(rows)) if sure else self.runs.predict(rows),
            extrapolation_std=None if reach is None else reach.beyond(rows),
        )

    def dump(self) -> dict[str, bytes]:
        """Named parts, without pickle. Parts that updates leave alone stay the same bytes, so a
        store that names content by its hash keeps them once."""
        parts = {f"predictor/{name}": part for name, part in self.predictor.dump().items()}
        parts |= {f"runs/{name}": part for name, part in self.runs.dump().items()}
        at: dict[str, object] = {"fitted_at": self.fitted_at, "learned": self.learned}
        if self.reach is not None:
            at["reach"] = self.reach.dump()
        return parts | {"at": json.dumps(at).encode()}

    @classmethod
    def load(cls, study: Study, features: FeatureMap, parts: Mapping[str, bytes]) -> "StudyModel":
        """Build from what :meth:`dump` gave.

        Raises:
            ValueError: a part is damaged, or was made for other columns.
        """
        at = json.loads(parts["at"])
        return cls(
            predictor_class(study.predictor.name).load(study, features, _below(parts, "predictor")),
            FeasibilityModel.load(study, features, _below(parts, "runs")),
            fitted_at=at["fitted_at"],
            learned=at["learned"],
            reach=Extrapolation.load(at["reach"]) if "reach" in at else None,
        )


def _doubted(starts: Mapping[Standing, tuple[float, int]]) -> dict[Standing, tuple[float, int]]:
    return {standing: (doubted(factor, jobs), jobs) for standing, (factor, jobs) in starts.items()}


def _in_full(rows: FeatureRows) -> FeatureRows:
    """The rows as none of which has faded."""
    return replace(rows, fading=None)


def _below(parts: Mapping[str, bytes], prefix: str) -> dict[str, bytes]:
    return {k.partition("/")[2]: v for k, v in parts.items() if k.startswith(prefix + "/")}
