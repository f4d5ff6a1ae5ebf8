"""A made-up table for closed loops: repeats, failures, a small context, and a known best."""

from collections.abc import Sequence

import msgspec
import numpy as np

from tests.core.tuning import job, study, true_speed
from tunerd.core.observation import Observation, Status, Value
from tunerd.lab.evaluation.closed_loop import BenchmarkProblem, TrialResult
from tunerd.lab.evaluation.tabular import TabularContext

STUDY = study()
FAILS = 3
"""Runs with this x are out of memory where y is "b"."""


def rows(
    sizes: Sequence[int] = (8, 16), repeats: int = 2, seed: int = 0, noise: float = 0.02
) -> list[Observation]:
    """Every configuration of the toy study in every context; 48 of them for n ≥ 8."""
    rng = np.random.default_rng(seed)
    found: list[Observation] = []
    for n in sizes:
        for x in range(1, min(n, 8) + 1):
            for y in "abc":
                for z in (False, True):
                    config: dict[str, Value] = {"x": x, "y": y, "z": z}
                    for _ in range(repeats):
                        fails = x == FAILS and y == "b"
                        speed = true_speed({"n": n}, config) * float(np.exp(rng.normal(0, noise)))
                        found.append(
                            job(
                                0,
                                {"n": n},
                                config,
                                speed=None if fails else speed,
                                status=Status.OUT_OF_MEMORY if fails else Status.SUCCEEDED,
                            )
                        )
    order = rng.permutation(len(found)).tolist()
    return [
        msgspec.structs.replace(found[i], sequence=at, event_id=f"e{at}", job_id=f"j{at}")
        for at, i in enumerate(order, 1)
    ]


class Oracle:
    """Knows the table."""

    name = "oracle"

    def __init__(self, targets: Sequence[TabularContext]) -> None:
        self.targets = {target.context_key: target for target in targets}

    def begin(self, problem: BenchmarkProblem, seed: int) -> "Scripted":  # noqa: ARG002
        best_first = np.argsort(self.targets[problem.context_key].regrets, kind="stable")
        return Scripted([int(i) for i in best_first])


class Scripted:
    """Asks for these, one after the other, and keeps what it is told."""

    name = "scripted"

    def __init__(self, indices: Sequence[int]) -> None:
        self.indices = list(indices)
        self.told: list[list[TrialResult]] = []

    def begin(self, problem: BenchmarkProblem, seed: int) -> "Scripted":  # noqa: ARG002
        return self

    def ask(self, n: int) -> list[int]:
        asked, self.indices = self.indices[:n], self.indices[n:]
        return asked

    def tell(self, jobs: Sequence[TrialResult]) -> None:
        self.told.append(list(jobs))
