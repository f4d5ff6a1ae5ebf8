"""A Gaussian process as BoTorch makes it: one process over context and configuration.

``SingleTaskGP`` with the library's priors (length scales that grow with the number of columns) and
a Matérn-5/2 kernel, on standardised scores. Exact processes cost the cube of the rows: the kernel
is fitted on at most 400 random rows and predicts from at most 1,500.
"""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.peers.matrix import Jobs, chance_to_run
from tunerd.core.arrays import FloatArray
from tunerd.core.observation import Observation
from tunerd.core.study import Study
from tunerd.lab.evaluation.forecaster import JobForecasts

__all__ = ["BoTorchGP"]

FIT_ROWS = 400
PREDICT_ROWS = 1_500
STEPS = 60
"""L-BFGS steps at most; the likelihood is flat long before."""
Z80 = 1.2816
"""Half an 80 % band in standard deviations."""


class BoTorchGP:
    name = "botorch_gp"

    def foretell(
        self, study: Study, known: Sequence[Observation], asked: Sequence[Observation], seed: int
    ) -> JobForecasts:
        jobs = Jobs.of(study, known, asked)
        runs = chance_to_run(jobs, seed)
        if jobs.scored.sum() < 3:
            return JobForecasts(np.zeros(len(asked)), runs=runs)
        X, X_asked = jobs.plain()
        mean, sd = _process(X[jobs.scored], jobs.known.score[jobs.scored], X_asked, seed)
        return JobForecasts(mean, low=mean - Z80 * sd, high=mean + Z80 * sd, band=0.8, runs=runs)


def _process(
    X: FloatArray, score: FloatArray, X_asked: FloatArray, seed: int
) -> tuple[FloatArray, FloatArray]:
    """Mean and standard deviation of a job's score, (asked,) each."""
    import torch

    order = np.random.default_rng(seed).permutation(len(X))[:PREDICT_ROWS]
    X, score = X[order], score[order]
    low, high = X.min(axis=0), X.max(axis=0)
    width = np.where(high > low, high - low, 1.0)
    level, scale = float(score.mean()), float(score.std()) or 1.0
    inputs = torch.tensor((X - low) / width)
    targets = torch.tensor((score - level) / scale).unsqueeze(-1)
    model = _fitted(inputs, targets)
    told = []
    with torch.no_grad():
        for part in np.array_split((X_asked - low) / width, max(len(X_asked) // 2_000, 1)):
            posterior = model.posterior(torch.tensor(part), observation_noise=True)
            told.append(torch.cat([posterior.mean, posterior.variance.sqrt()], dim=1).numpy())
    both = np.concatenate(told) * scale
    return both[:, 0] + level, both[:, 1]


def _fitted(inputs: Any, targets: Any) -> Any:
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from botorch.models.utils.gpytorch_modules import get_covar_module_with_dim_scaled_prior
    from gpytorch.mlls import ExactMarginalLogLikelihood

    def blank(rows: int) -> Any:
        kernel = get_covar_module_with_dim_scaled_prior(
            ard_num_dims=inputs.shape[-1], use_rbf_kernel=False
        )
        return SingleTaskGP(
            inputs[:rows], targets[:rows], covar_module=kernel, outcome_transform=None
        )

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # how its optimizer ended, and of duplicate rows
        model = blank(FIT_ROWS)
        likelihood = ExactMarginalLogLikelihood(model.likelihood, model)
        fit_gpytorch_mll(likelihood, optimizer_kwargs={"options": {"maxiter": STEPS}})
        if len(inputs) > FIT_ROWS:
            full = blank(len(inputs))
            full.load_state_dict(model.state_dict())
            model = full
        return model.eval()
