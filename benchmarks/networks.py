"""Is torch faster than the networks' own gradient? The fits of one rebuild, with both.

A rebuild of ``committee`` fits the same small networks on all jobs and on all but some, up to seven
times. Here simulated jobs are learned so in four ways, each in a process of its own:

- ``numpy``: as tunerd does it, one fit after the other, with the gradient that is written out.
- ``torch``: one fit after the other, with autograd and ``torch.optim.Adam(amsgrad=True)``.
- ``torch, one batch``: all fits at once; each takes as many steps as they take in the mean.
- ``cuda, one batch``: the same on a GPU, where there is one.

Seconds, and seconds of processor time, count the import of torch, which each process that fits pays
once. Kendall's τ is that of the jobs left out, within their contexts: a way that trains less well
is not faster.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice

import numpy as np

from benchmarks.kit import Bars, arguments, peak_mib
from benchmarks.learning import simulated
from tunerd.core.arrays import BoolArray, FloatArray, IntArray
from tunerd.core.estimators.design import DesignTransform
from tunerd.core.estimators.networks import (
    BATCH,
    DECAY,
    DROPPED,
    LEVEL_WEIGHT,
    RISING,
    RankingNetworks,
    TrainingSchedule,
)
from tunerd.core.features import FeatureMap
from tunerd.core.predictors.errors import folds_of
from tunerd.core.predictors.folds import all_but_few, apart
from tunerd.core.predictors.neural_ensemble import MOST_STEPS, RATE, STEPS
from tunerd.core.scores import kendall_large, within_contexts
from tunerd.core.study_file import parse_study
from tunerd.lab.simulation.shipped import shipped_study
from tunerd.threads import THREADS

WAYS = ("numpy", "torch", "torch, one batch", "cuda, one batch")
LENGTHS, QUICK = (1_000, 10_000, 100_000), (300,)
MEMBERS = 4
BLOCK = 64
"""Steps whose pairs are drawn together: draws cost torch little more for many than for one."""


@dataclass(frozen=True)
class Fits:
    """What one rebuild asks of the networks: F fits on n rows with D inputs."""

    Z: FloatArray
    """(n, D)"""
    target: FloatArray
    """(n,) in units of its spread, less the mean of its context."""
    group: IntArray
    """(n,) number of the context."""
    masks: BoolArray
    """(F, MEMBERS, n) rows that each network may see; the first fit leaves no context out."""
    steps: list[int]
    """(F,)"""

    def quality(self, fitted: Sequence[RankingNetworks]) -> float:
        """τ within contexts of the rows that a fit left out, mean of all fits that leave some."""
        taus = []
        for networks, masks in zip(fitted[1:], self.masks[1:], strict=True):
            asked = np.flatnonzero(~masks.any(axis=0))
            predicted = networks.predict(self.Z[asked]).mean(axis=1)
            keys = [str(group) for group in self.group[asked].tolist()]
            taus.append(within_contexts(kendall_large, predicted, self.target[asked], keys))
        return float(np.nanmean(taus))


def main(argv: Sequence[str] | None = None) -> int:
    parser = arguments(__doc__)
    parser.add_argument("--jobs", type=int, nargs="+", help="how many, instead of these three")
    parser.add_argument("--only", nargs=2, metavar=("WAY", "JOBS"), help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.only:
        print(json.dumps(measured(options.only[0], int(options.only[1]))))
        return 0
    bars = Bars("networks")
    ways = WAYS if find_spec("torch") else WAYS[:1]
    if len(ways) < len(WAYS):
        bars.say("torch", "not installed: make peers")
    for jobs in options.jobs or (QUICK if options.quick else LENGTHS):
        for way in ways:
            found = apart_from_others(way, jobs)
            if not found:
                bars.say(f"{jobs:,} jobs, {way}", "no GPU")
                continue
            for name, value in found.items():
                bars.say(f"{jobs:,} jobs, {way}: {name}", value)
    return bars.end(options)


def apart_from_others(way: str, jobs: int) -> dict[str, float]:
    """:func:`measured` in a process of its own, so that memory is its own."""
    command = [sys.executable, "-m", "benchmarks.networks", "--only", way, str(jobs)]
    environment = os.environ | THREADS  # as the tuner process is started
    done = subprocess.run(command, check=True, stdout=-1, text=True, env=environment)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def measured(way: str, jobs: int) -> dict[str, float]:
    """All fits in one way; nothing where its device is missing."""
    fits = fits_of(jobs)
    before = peak_mib(os.getpid())
    wall, processor = time.perf_counter(), time.process_time()
    if way == "numpy":
        fitted = list(_by_numpy(fits))
    else:
        import torch

        device = "cuda" if way.startswith("cuda") else "cpu"
        if device == "cuda" and not torch.cuda.is_available():
            return {}
        together = [range(len(fits.steps))] if "batch" in way else [[f] for f in _all(fits)]
        fitted = [networks for which in together for networks in by_torch(fits, which, device)]
    return {
        "seconds": time.perf_counter() - wall,
        "seconds of processor time": time.process_time() - processor,
        "MiB more memory": peak_mib(os.getpid()) - before,
        "tau of jobs left out": fits.quality(fitted),
    }


def fits_of(jobs: int) -> Fits:
    """The fits of a rebuild on so many simulated jobs, random configurations of twelve contexts."""
    study = parse_study(shipped_study("llm-pretrain"))
    features = FeatureMap(study)
    rows = features.rows(list(islice(simulated(study), jobs)))
    rows = rows.take(np.flatnonzero(np.isfinite(rows.score)))
    design = DesignTransform.fit(rows.X, list(features.categories))
    _, group = np.unique(rows.context_key, return_inverse=True)
    target = rows.score - (np.bincount(group, rows.score) / np.bincount(group))[group]
    own = folds_of(len(rows), 2 * MEMBERS, 0)
    masks, steps = [own != np.arange(MEMBERS)[:, None]], [_steps(len(rows))]
    for fold in (*apart(rows, features, 0), *all_but_few(rows, features, 0)):
        seen = np.zeros(len(rows), bool)
        seen[fold.kept] = True
        masks.append(masks[0] & seen)
        steps.append(_steps(len(fold.kept)) // 3)
    return Fits(design(rows.X), target / target.std(), group, np.array(masks), steps)


def _steps(rows: int) -> int:
    return min(20 * rows, STEPS + rows, MOST_STEPS)


def _all(fits: Fits) -> range:
    return range(len(fits.steps))


def _by_numpy(fits: Fits) -> Iterator[RankingNetworks]:
    for masks, steps in zip(fits.masks, fits.steps, strict=True):
        seen = masks.any(axis=0)
        start = RankingNetworks.fresh(MEMBERS, fits.Z.shape[1], 0)
        how = TrainingSchedule(steps, 0, RATE)
        yield start.trained(fits.Z[seen], fits.target[seen], fits.group[seen], masks[:, seen], how)


def by_torch(fits: Fits, which: Sequence[int], device: str) -> list[RankingNetworks]:
    """Some fits as one batch: same networks, loss, schedule and drop-out as in numpy."""
    import torch
    from torch.nn.functional import dropout, mse_loss

    masks = np.concatenate([fits.masks[f] for f in which])
    steps = sum(fits.steps[f] for f in which) // len(which)
    start, times = RankingNetworks.fresh(MEMBERS, fits.Z.shape[1], 0), len(which)
    parameters = [
        torch.tensor(np.tile(weights, (times, 1, 1)), device=device, requires_grad=True)
        for weights in (start.into, start.bias, start.out, start.shift)
    ]
    into, bias, out, shift = parameters
    optimizer = torch.optim.Adam(parameters, RATE, amsgrad=True, weight_decay=DECAY, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, RATE, total_steps=steps, pct_start=RISING
    )
    torch.manual_seed(0)
    inputs = torch.tensor(fits.Z, dtype=torch.float32, device=device)
    targets = torch.tensor(fits.target, dtype=torch.float32, device=device)
    tables = (torch.tensor(table, device=device) for table in _tables(masks, fits.group))
    size, rows, begin, length = tables
    for step in range(steps):
        if step % BLOCK == 0:
            place, other = torch.rand((2, BLOCK, len(masks), BATCH), device=device)
            place = (place * size).long() + rows.shape[1] * torch.arange(
                len(masks), device=device
            ).unsqueeze(1)
            partner = begin.take(place) + (other * length.take(place)).long()
            drawn = rows.take(torch.cat([place, partner], dim=2))
        both = drawn[step % BLOCK]
        goal = targets.take(both)
        gathered = inputs.index_select(0, both.flatten()).unflatten(0, both.shape)
        hidden = dropout(torch.baddbmm(bias, gathered, into).relu_(), DROPPED / 256)
        scores = torch.baddbmm(shift, hidden, out).squeeze(2)
        margin = goal[:, :BATCH] - goal[:, BATCH:]
        ahead = scores[:, :BATCH] - scores[:, BATCH:]
        missed = (margin.abs() - margin.sign() * ahead).relu().sum() / BATCH
        level = 0.5 * LEVEL_WEIGHT * mse_loss(scores, goal, reduction="sum") / BATCH
        optimizer.zero_grad()
        (missed + level).backward()
        optimizer.step()
        schedule.step()
    weights = [parameter.detach().cpu().numpy() for parameter in parameters]
    return [
        RankingNetworks(*(each[f : f + MEMBERS] for each in weights))
        for f in range(0, len(masks), MEMBERS)
    ]


def _tables(masks: BoolArray, group: IntArray) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """(M, 1) how many rows each of M networks sees; (M, widest) these rows, context by context;
    for each, the place in the flat table where its context begins, and how many it has there."""
    order = [np.flatnonzero(mask)[np.argsort(group[mask], kind="stable")] for mask in masks]
    widest = max(map(len, order))
    rows, begin = np.zeros((2, len(order), widest), np.int64)
    length = np.ones_like(rows)
    for m, mine in enumerate(order):
        _, first, inverse, count = np.unique(
            group[mine], return_index=True, return_inverse=True, return_counts=True
        )
        rows[m, : len(mine)] = mine
        begin[m, : len(mine)] = m * widest + first[inverse]
        length[m, : len(mine)] = count[inverse]
    return np.array([[len(mine)] for mine in order]), rows, begin, length


if __name__ == "__main__":
    sys.exit(main())
