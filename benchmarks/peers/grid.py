"""A problem's configurations as points, and what every peer's run keeps of its jobs.

The same for all peers: numbers from 0 to 1, by their logarithm where the study says that ratios
matter; categories as categories; what is the same in all configurations left out. A missing
number stands in the middle, and a further category says that it is missing.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from tunerd.core.arrays import BoolArray, FloatArray, IntArray
from tunerd.core.observation import Observation, Scalar, Status, Value
from tunerd.core.study import Parameter
from tunerd.lab.evaluation.closed_loop import BenchmarkProblem, TrialResult

__all__ = ["Dimension", "Grid", "PeerRun", "as_jobs"]


@dataclass(frozen=True)
class Dimension:
    """One of the values that differ between configurations."""

    name: str
    categories: tuple[str, ...]
    """Empty for a number."""


@dataclass(frozen=True)
class Grid:
    """All configurations that exist."""

    dimensions: tuple[Dimension, ...]
    points: FloatArray
    """(n, D): numbers in [0, 1], categories as their place in ``Dimension.categories``."""

    @classmethod
    def of(cls, problem: BenchmarkProblem) -> "Grid":
        """Lay out the configurations of a problem."""
        dimensions: list[Dimension] = []
        columns: list[FloatArray] = []
        for parameter in problem.study.parameters:
            values = [_values(parameter, config.get(parameter.name)) for config in problem.configs]
            for place in range(parameter.repeat):
                name = f"{parameter.name}[{place}]" if parameter.repeated else parameter.name
                for dimension, column in _laid_out(name, parameter, [v[place] for v in values]):
                    dimensions.append(dimension)
                    columns.append(column)
        shape = (len(problem.configs), len(columns))
        points = np.array(columns, dtype=np.float64).reshape(shape[::-1]).T
        return cls(tuple(dimensions), points)

    def __len__(self) -> int:
        return len(self.points)

    @property
    def one_hot(self) -> FloatArray:
        """(n, P): numbers in [0, 1], one column per category."""
        columns = [np.zeros((len(self.points), 0))]
        for dimension, column in zip(self.dimensions, self.points.T, strict=True):
            if not dimension.categories:
                columns.append(column[:, None])
            else:
                codes = np.arange(len(dimension.categories))
                columns.append((column[:, None] == codes).astype(np.float64))
        return np.concatenate(columns, axis=1)

    def nearest(self, point: FloatArray, among: IntArray) -> int:
        """Which of these configurations is the most similar: categories equal or not, numbers by
        how far apart they are."""
        off = np.abs(self.points[among] - point)
        for d, dimension in enumerate(self.dimensions):
            if dimension.categories:
                off[:, d] = off[:, d] > 0
        return int(among[np.argmin((off**2).sum(axis=1))])


class PeerRun(ABC):
    """A run that proposes only what was not tried yet: in these tables a second job of the same
    configuration tells next to nothing."""

    def __init__(self, problem: BenchmarkProblem, seed: int) -> None:
        self.problem = problem
        self.seed = seed
        self.grid = Grid.of(problem)
        self.rng = np.random.default_rng([seed, 7])
        self.untried: BoolArray = np.ones(len(problem.configs), dtype=np.bool_)
        self.jobs: list[TrialResult] = []

    def ask(self, n: int) -> Sequence[int]:
        """As many untried configurations as are asked for, and there are."""
        there: list[int] = self.there.tolist()
        picks = list(self.choose(n)) if len(there) > n else there
        self.untried[picks] = False
        return picks

    def tell(self, jobs: Sequence[TrialResult]) -> None:
        """Keep them."""
        self.jobs += jobs
        self.untried[[job.index for job in jobs]] = False

    @abstractmethod
    def choose(self, n: int) -> Sequence[int]:
        """n distinct untried configurations, of which there are more than n."""

    @property
    def there(self) -> IntArray:
        """Untried configurations."""
        return np.flatnonzero(self.untried)

    @property
    def tried(self) -> IntArray:
        """Configuration of each job so far."""
        return np.array([job.index for job in self.jobs], dtype=np.int64)

    @property
    def scores(self) -> FloatArray:
        """Score of each job so far, NaN for one without."""
        scores = [math.nan if job.score is None else job.score for job in self.jobs]
        return np.array(scores, dtype=np.float64)

    @property
    def ran(self) -> FloatArray:
        """1 or 0 for each job so far."""
        return np.array([float(job.ran) for job in self.jobs])

    def at_random(self, n: int) -> list[int]:
        """n untried configurations, any."""
        picks: list[int] = self.rng.choice(self.there, size=n, replace=False).tolist()
        return picks


def as_jobs(problem: BenchmarkProblem) -> list[Observation]:
    """The configurations as jobs of which nothing is known but what was run where."""
    return [
        Observation(
            study=problem.study.name,
            source="peer",
            event_id=str(i),
            job_id=str(i),
            status=Status.SUCCEEDED,
            finished_at=datetime(2026, 1, 1, tzinfo=UTC),
            context=problem.context,
            config=config,
            metrics={},
        )
        for i, config in enumerate(problem.configs)
    ]


def _values(parameter: Parameter, value: Value) -> list[Scalar]:
    if isinstance(value, list):
        return value if len(value) == parameter.repeat else [None] * parameter.repeat
    return [value] * parameter.repeat


def _laid_out(
    name: str, parameter: Parameter, values: Sequence[Scalar]
) -> list[tuple[Dimension, FloatArray]]:
    """The dimensions of one value, none if it is the same everywhere."""
    if len(set(values)) < 2:
        return []
    if parameter.type in ("category", "bool"):
        texts = tuple(sorted({str(value) for value in values}))
        codes = np.array([texts.index(str(value)) for value in values], dtype=np.float64)
        return [(Dimension(name, texts), codes)]
    numbers = np.array([math.nan if v is None else float(v) for v in values], dtype=np.float64)
    missing = np.isnan(numbers)
    found = []
    if missing.any():
        there = Dimension(f"{name}?", ("there", "missing"))
        found.append((there, missing.astype(np.float64)))
        numbers[missing] = np.median(numbers[~missing])
    if parameter.scale == "log" and numbers.min() > 0:
        numbers = np.log(numbers)
    width = float(np.ptp(numbers))
    if width > 0:
        found.append((Dimension(name, ()), (numbers - numbers.min()) / width))
    return found
