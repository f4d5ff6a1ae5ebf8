"""The peers: what tunerd is measured beside, in the same run on the same jobs.

A peer is one file in :mod:`.predictors` or :mod:`.optimizers` and one line here. Each is meant to
be at its honest best: configured as its documentation advises for this kind of problem, told of
failures in the way that suits it best, given old jobs where it can use them. Where a choice had to
be made, the better one on the measured tables was taken, and the file says which. They need the
extra ``peers`` (``pip install -e '.[peers]'``), the ones of LightGBM alone excepted.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module, util
from typing import cast

from tunerd.lab.evaluation.closed_loop import Optimizer
from tunerd.lab.evaluation.forecaster import Forecaster

__all__ = ["OPTIMIZERS", "PREDICTORS", "Peer", "forecaster", "optimizer"]


@dataclass(frozen=True)
class Peer:
    """Where a peer is, and what it can do."""

    where: str
    """``module:Class``; text, so that only those who run it import its libraries."""
    needs: tuple[str, ...] = ()
    """Modules that must be installed."""
    history: bool = False
    """An optimizer that learns from jobs of other contexts."""
    cold: bool = True
    """An optimizer that can do without."""

    @property
    def installed(self) -> bool:
        """Whether everything is there that it needs."""
        return all(util.find_spec(module) is not None for module in self.needs)

    def make(self) -> object:
        """Import it and make one."""
        module, _, name = self.where.partition(":")
        return getattr(import_module(module), name)()


PREDICTORS: Mapping[str, Peer] = {
    "lightgbm": Peer("benchmarks.peers.predictors.lightgbm:DefaultLightGBM"),
    "lightgbm_log": Peer("benchmarks.peers.predictors.lightgbm:LogLightGBM"),
    "extra_trees": Peer("benchmarks.peers.predictors.extra_trees:ExtraTrees", ("sklearn",)),
    "lightgbm_mlp": Peer("benchmarks.peers.predictors.lightgbm_mlp:LightGBMWithMLP", ("sklearn",)),
    "botorch_gp": Peer("benchmarks.peers.predictors.botorch_gp:BoTorchGP", ("botorch",)),
    "nearest_context": Peer("benchmarks.peers.predictors.nearest_context:NearestContext"),
    "mean_share": Peer("benchmarks.peers.predictors.mean_share:MeanShare"),
}
"""Name in results → peer."""

OPTIMIZERS: Mapping[str, Peer] = {
    "random": Peer("tunerd.lab.evaluation.optimizers:RandomOptimizer"),
    "optuna_tpe": Peer("benchmarks.peers.optimizers.optuna_tpe:OptunaTPE", ("optuna",)),
    "optuna_gp": Peer("benchmarks.peers.optimizers.optuna_gp:OptunaGP", ("optuna", "torch")),
    "optuna_cmaes": Peer(
        "benchmarks.peers.optimizers.optuna_cmaes:OptunaCMAES", ("optuna", "cmaes")
    ),
    "smac": Peer("benchmarks.peers.optimizers.smac:SMAC", ("smac",)),
    "botorch": Peer("benchmarks.peers.optimizers.botorch:BoTorch", ("botorch",)),
    "ei_gaussian_process": Peer(
        "benchmarks.peers.optimizers.ei_gaussian_process:EIGP", ("sklearn",), history=True
    ),
    "ei_extra_trees": Peer(
        "benchmarks.peers.optimizers.ei_extra_trees:EIExtraTrees", ("sklearn",), history=True
    ),
    "lightgbm_greedy": Peer("benchmarks.peers.optimizers.lightgbm:GreedyLightGBM", history=True),
    "lightgbm_once": Peer(
        "benchmarks.peers.optimizers.lightgbm:OnceLightGBM", history=True, cold=False
    ),
    "nearest_context": Peer(
        "benchmarks.peers.optimizers.nearest_context:NearestContextsBest", history=True, cold=False
    ),
}
"""Name in results → peer."""


def forecaster(name: str) -> Forecaster:
    """Make the predictor called ``name``.

    Raises:
        KeyError: there is none.
    """
    return cast("Forecaster", PREDICTORS[name].make())


def optimizer(name: str) -> Optimizer:
    """Make the optimizer called ``name``.

    Raises:
        KeyError: there is none.
    """
    return cast("Optimizer", OPTIMIZERS[name].make())
