"""BoTorch: ``SingleTaskGP`` and qLogEI, a batch at a time over what exists.

The library's defaults: an ARD process with its dimension-scaled priors on standardised scores,
``qLogExpectedImprovement`` with 128 samples, ``optimize_acqf_discrete`` choosing the batch one by
one while the others are pending. Failures get a process of their own on ran or not, and enter the
acquisition as a constraint (BoTorch's way for outcome constraints), once there are any.
"""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.peers.grid import PeerRun
from tunerd.lab.evaluation.closed_loop import BenchmarkProblem, OptimizerRun

__all__ = ["BoTorch"]

SAMPLES = 128
STEPS = 60
AT_ONCE = 512


class BoTorch:
    name = "botorch"

    def begin(self, problem: BenchmarkProblem, seed: int) -> OptimizerRun:
        return _Run(problem, seed)


class _Run(PeerRun):
    def choose(self, n: int) -> Sequence[int]:
        usable = np.isfinite(self.scores) & (self.ran > 0)
        if usable.sum() < 2:
            return self.at_random(n)
        import torch
        from botorch.optim import optimize_acqf_discrete

        with warnings.catch_warnings(), torch.random.fork_rng():
            warnings.simplefilter("ignore")  # how the optimizer of the likelihood ended
            torch.manual_seed(self.seed * 1_000 + len(self.jobs))
            there = self.there
            choices = torch.tensor(self.grid.one_hot[there])
            chosen, _ = optimize_acqf_discrete(
                self._acquisition(), q=n, choices=choices, max_batch_size=AT_ONCE, unique=True
            )
            same = (choices[None, :, :] == chosen[:, None, :]).all(dim=2)
        picks: list[int] = there[same.int().argmax(dim=1).numpy()].tolist()
        return picks

    def _acquisition(self) -> Any:
        import torch
        from botorch.acquisition import qLogExpectedImprovement
        from botorch.acquisition.objective import GenericMCObjective
        from botorch.models import ModelListGP
        from botorch.sampling import SobolQMCNormalSampler

        X = torch.tensor(self.grid.one_hot[self.tried])
        usable = np.isfinite(self.scores) & (self.ran > 0)
        y = self.scores[usable]
        score = _fitted(X[usable], torch.tensor((y - y.mean()) / (y.std() or 1.0)))
        best = float((y.max() - y.mean()) / (y.std() or 1.0))
        sampler = SobolQMCNormalSampler(torch.Size([SAMPLES]), seed=self.seed)
        if usable.all():
            return qLogExpectedImprovement(score, best, sampler)
        ran = _fitted(X, torch.tensor(np.where(usable, 1.0, -1.0)))
        return qLogExpectedImprovement(
            ModelListGP(score, ran),
            best,
            sampler,
            objective=GenericMCObjective(lambda samples, X=None: samples[..., 0]),  # noqa: ARG005
            constraints=[lambda samples: -samples[..., 1]],
        )


def _fitted(X: Any, y: Any) -> Any:
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from gpytorch.mlls import ExactMarginalLogLikelihood

    model = SingleTaskGP(X, y.unsqueeze(-1), outcome_transform=None)
    likelihood = ExactMarginalLogLikelihood(model.likelihood, model)
    fit_gpytorch_mll(likelihood, optimizer_kwargs={"options": {"maxiter": STEPS}})
    return model
