"""Everything that a study has learned to predict with, as one thing: it is fitted, updated, swapped
and saved whole. A new model is fitted aside (:meth:`Model.fit` is pure) while the old one serves."""

import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tunerd.core.predictors import predictor_class
from tunerd.core.predictors.base import Predictor
from tunerd.core.runs import RunsModel
from tunerd.core.study import Study

if TYPE_CHECKING:
    from tunerd.core.features import FeatureMap, Rows

__all__ = ["Model", "Outlook"]

_MAGIC = b"tunerd-model-1\n"


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is expected of n configurations. ``mean`` and ``spread`` are in score units."""

    mean: NDArray[np.float64]
    spread: NDArray[np.float64]
    feasible: NDArray[np.float64]
    """(n,) probability to run."""


@dataclass(slots=True)
class Model:
    """The predictor of the objective beside the model of what runs at all."""

    predictor: Predictor
    runs: RunsModel
    fitted_at: int
    """Sequence of the last observation that the fit could see."""
    learned: int
    """Sequence of the last observation learned since, by updates."""

    @classmethod
    def fit(cls, study: Study, features: "FeatureMap", rows: "Rows", at: int) -> "Model":
        """Fit both from scratch on the replay sample of sequence ``at``."""
        seed = study.predictor.seed
        return cls(
            predictor_class(study.predictor.name).fit(study, features, rows, seed),
            RunsModel.fit(study, features, rows, seed),
            fitted_at=at,
            learned=at,
        )

    def update(self, rows: "Rows", recent: "Rows", at: int) -> None:
        """Learn new rows at constant cost; ``recent`` is the window that includes them."""
        self.predictor.update(rows, recent)
        self.runs.update(rows, recent)
        self.learned = at

    def outlook(self, rows: "Rows") -> Outlook:
        """Predict every row."""
        prediction = self.predictor.predict(rows)
        return Outlook(prediction.mean, prediction.spread, self.runs.predict(rows))

    def dump(self) -> bytes:
        """One blob without pickle: a JSON line that lists the parts, then the parts, compressed."""
        parts = {f"predictor/{k}": v for k, v in self.predictor.dump().items()}
        parts |= {f"runs/{k}": v for k, v in self.runs.dump().items()}
        index = {
            "fitted_at": self.fitted_at,
            "learned": self.learned,
            "parts": [[name, len(part)] for name, part in sorted(parts.items())],
        }
        body = json.dumps(index).encode() + b"\n" + b"".join(p for _, p in sorted(parts.items()))
        # Level 1: a model text shrinks to a fifth in a few milliseconds; 9 gains little more.
        return _MAGIC + zlib.compress(body, 1)

    @classmethod
    def load(cls, study: Study, features: "FeatureMap", blob: bytes) -> "Model":
        """Build from what :meth:`dump` gave.

        Raises:
            ValueError: the blob is damaged or was made for other columns.
        """
        if not blob.startswith(_MAGIC):
            raise ValueError("not a model of tunerd")
        try:
            head, _, body = zlib.decompress(blob[len(_MAGIC) :]).partition(b"\n")
            index = json.loads(head)
        except (zlib.error, ValueError) as error:
            raise ValueError(f"damaged model: {error}") from error
        parts: dict[str, bytes] = {}
        start = 0
        for name, length in index["parts"]:
            parts[name] = body[start : start + length]
            start += length
        return cls(
            predictor_class(study.predictor.name).load(study, features, _below(parts, "predictor")),
            RunsModel.load(study, features, _below(parts, "runs")),
            fitted_at=index["fitted_at"],
            learned=index["learned"],
        )


def _below(parts: Mapping[str, bytes], prefix: str) -> dict[str, bytes]:
    return {k.partition("/")[2]: v for k, v in parts.items() if k.startswith(prefix + "/")}


def content_name(blob: bytes) -> str:
    """Name of a checkpoint: what is in it."""
    return "sha256:" + hashlib.sha256(blob).hexdigest()
