"""A made-up cluster with a known truth: jobs that are judged as tunerd judges them.

Each context has some configurations with a true level. A predictor guesses the levels, is more or
less right, and learns from runs; what it recommends follows from that as in the real thing: the
incumbent by evidence, the first candidate by what it expects of untried configurations.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from tunerd.core.arrays import FloatArray, IntArray
from tunerd.core.evidence.prequential import (
    HALF,
    PrequentialOutcome,
    PrequentialRecord,
    TargetPrediction,
)
from tunerd.core.observation import Status

START = datetime(2026, 11, 1, tzinfo=UTC)


@dataclass
class World:
    """Draw one with :func:`world`; :meth:`run` lets jobs come."""

    truth: FloatArray
    """(C, K) level of each configuration, log units."""
    guess: FloatArray
    """(C, K) what the predictor guesses before any run."""
    doubt: float
    """Standard deviation that the predictor gives its guesses."""
    noise: float
    """Standard deviation of a job around its level."""
    popularity: FloatArray
    """(K,) how often people choose each configuration; 0 for what nobody ever runs."""
    rng: np.random.Generator
    following: float = 0.0
    """Share of the jobs that run what is recommended."""
    explore: float = 0.2
    """Share of those that run the first candidate."""
    shift: FloatArray | None = None
    """Added to every job's level, by time: drift that the predictor follows with a lag of 10."""
    runs: IntArray = field(init=False)
    total: FloatArray = field(init=False)
    level: float = 0.0

    def __post_init__(self) -> None:
        self.runs = np.zeros(self.truth.shape, dtype=np.int64)
        self.total = np.zeros(self.truth.shape)

    def expects(self, context: int) -> tuple[FloatArray, FloatArray]:
        """Posterior mean and standard deviation of each configuration's level."""
        prior, own = 1 / self.doubt**2, self.runs[context] / self.noise**2
        mean = prior * self.guess[context] + self.total[context] / self.noise**2
        return mean / (prior + own) + self.level, np.sqrt(1 / (prior + own))

    def run(self, jobs: int, **fixed: Any) -> tuple[list[PrequentialRecord], dict[str, float]]:
        """Let jobs come. Returns them as judged, and the true mean gain of those that ran
        something else than the incumbent, and than the first candidate."""
        contexts, configs = self.truth.shape
        rows: list[PrequentialRecord] = []
        gained: dict[str, list[float]] = {"incumbent": [], "first": []}
        chances = self.popularity / self.popularity.sum()
        for number in range(1, jobs + 1):
            c = int(self.rng.integers(contexts))
            mean, sd = self.expects(c)
            stay, first, better = self._recommended(c, mean, sd)
            own = int(self.rng.choice(configs, p=chances))
            follows = bool(self.rng.random() < self.following and stay is not None)
            if follows:
                tries = better and self.rng.random() < self.explore
                own = first if tries else int(stay or 0)
            moved = 0.0 if self.shift is None else float(self.shift[number - 1])
            came = float(self.truth[c, own] + moved + self.rng.normal(0, self.noise))
            rows.append(
                self._judged(number, c, own, came, mean, sd, (stay, first, better), follows, fixed)
            )
            if stay is not None and own != stay and not follows:
                gained["incumbent"].append(float(self.truth[c, stay] - self.truth[c, own]))
            if better and own != first and not follows:
                gained["first"].append(float(self.truth[c, first] - self.truth[c, own]))
            self.runs[c, own] += 1
            self.total[c, own] += came - moved
            self.level += 0.1 * (moved - self.level)
        return rows, {k: float(np.mean(v)) if v else float("nan") for k, v in gained.items()}

    def _recommended(
        self, c: int, mean: FloatArray, sd: FloatArray
    ) -> tuple[int | None, int, bool]:
        repeated = np.flatnonzero(self.runs[c] >= 2)
        untried = np.flatnonzero(self.runs[c] == 0)
        stay = int(repeated[np.argmax((mean - sd)[repeated])]) if len(repeated) else None
        first = int(untried[np.argmax(mean[untried])]) if len(untried) else -1
        better = stay is not None and first >= 0 and bool(mean[first] > mean[stay])
        return stay, first, better

    def _judged(
        self,
        number: int,
        c: int,
        own: int,
        came: float,
        mean: FloatArray,
        sd: FloatArray,
        told: tuple[int | None, int, bool],
        follows: bool,
        fixed: Mapping[str, Any],
    ) -> PrequentialRecord:
        stay, first, better = told
        spread = float(np.hypot(sd[own], self.noise))
        ran_as = "incumbent" if own == stay else "first" if own == first else None

        def target(config: int | None, kind: Any) -> TargetPrediction | None:
            if config is None or config < 0:
                return None
            return TargetPrediction(
                config_id=f"c-{config}",
                kind=kind,
                score=float(mean[config]),
                spread=float(np.hypot(sd[config], self.noise)),
                feasible=0.95,
            )

        values: dict[str, Any] = {
            "config_id": f"c-{own}",
            "tried": int(self.runs[c, own]),
            "status": Status.SUCCEEDED,
            "score": came,
            "ran": True,
            "predicted": float(mean[own]),
            "low": float(mean[own] - HALF * spread),
            "high": float(mean[own] + HALF * spread),
            "feasible": 0.95,
            "following": "followed" if follows else "unasked",
            "told_to_try": follows and own != stay,
            "recommendation_id": "r-1",
            "ran_as": ran_as,
            "incumbent": target(stay, "incumbent"),
            "first": target(first, "exploit" if better else "explore"),
            "gpu_hours": 10.0,
        }
        return PrequentialRecord(
            number,
            START + timedelta(minutes=20 * number),
            False,
            f"toy|n={c}",
            PrequentialOutcome(**values | dict(fixed)),
        )


def world(
    seed: int,
    *,
    contexts: int = 5,
    configs: int = 40,
    popular: int = 8,
    effect: float = 0.1,
    error: float = 0.05,
    doubt: float | None = None,
    noise: float = 0.03,
    signal: float = 1.0,
    **options: Any,
) -> World:
    """Draw a world. ``effect`` is the standard deviation of true levels; guesses are
    ``signal · truth`` plus errors of size ``error``; ``doubt`` is what the predictor thinks that
    its errors are."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(0, 1, (contexts, configs)) * effect
    guess = signal * truth + rng.normal(0, 1, truth.shape) * error
    popularity = np.zeros(configs)
    popularity[:popular] = rng.dirichlet(np.ones(popular))
    return World(truth, guess, doubt or max(error, 1e-3), noise, popularity, rng, **options)
