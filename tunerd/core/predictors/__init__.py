"""Models of the objective. A new one is one file and one line in :data:`PREDICTORS`."""

from importlib import import_module
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from tunerd.core.predictors.base import Predictor

__all__ = ["PREDICTORS", "predictor_class"]

PREDICTORS: dict[str, str] = {
    "boosted_trees": "tunerd.core.predictors.boosted_trees:BoostedTrees",
    "committee": "tunerd.core.predictors.committee:CommitteePredictor",
    "gaussian_process": "tunerd.core.predictors.gaussian_process:GaussianProcess",
    "neural_ensemble": "tunerd.core.predictors.neural_ensemble:NeuralEnsemble",
}
"""Name in a study file → module and class. Text, so that only the studies that use a predictor
import its libraries."""


def predictor_class(name: str) -> "type[Predictor]":
    """Import the predictor called ``name``.

    Raises:
        KeyError: there is no such predictor; study files are checked against :data:`PREDICTORS`.
    """
    module, _, attribute = PREDICTORS[name].partition(":")
    return cast("type[Predictor]", getattr(import_module(module), attribute))
