"""Forecasters whose figures are known beforehand: yardsticks of the yardsticks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tunerd.core.observation import FeasibilityLabel, Observation
from tunerd.core.study import Study
from tunerd.lab.evaluation.forecaster import JobForecasts

__all__ = ["Constant", "Oracle", "oracle", "shuffled"]


@dataclass(frozen=True)
class Oracle:
    """Says of each job what it was told beforehand, by the job's name."""

    scores: Mapping[str, float]
    runs: Mapping[str, float]
    name: str = "oracle"

    def foretell(
        self, study: Study, known: Sequence[Observation], asked: Sequence[Observation], seed: int
    ) -> JobForecasts:
        del study, known, seed
        score = np.array([self.scores[one.event_id] for one in asked])
        runs = np.array([self.runs[one.event_id] for one in asked])
        return JobForecasts(score, score - 0.01, score + 0.01, runs=runs)


def oracle(study: Study, observations: Sequence[Observation]) -> Oracle:
    """Knows what came of every job; of what has no score it says the worst."""
    scores = {one.event_id: study.score(one.metrics) for one in observations}
    worst = min(score for score in scores.values() if score is not None)
    return Oracle(
        {name: worst if score is None else score for name, score in scores.items()},
        {one.event_id: float(study.ran(one) is FeasibilityLabel.YES) for one in observations},
    )


def shuffled(study: Study, observations: Sequence[Observation], seed: int = 0) -> Oracle:
    """Knows what came of some other job of the same table."""
    known = oracle(study, observations)
    names = list(known.scores)
    others = [names[i] for i in np.random.default_rng(seed).permutation(len(names)).tolist()]
    pairs = list(zip(names, others, strict=True))
    return Oracle(
        {name: known.scores[other] for name, other in pairs},
        {name: known.runs[other] for name, other in pairs},
        "shuffled",
    )


@dataclass(frozen=True)
class Constant:
    """Says the same of every job, and nothing about bands and running."""

    name: str = "constant"

    def foretell(
        self, study: Study, known: Sequence[Observation], asked: Sequence[Observation], seed: int
    ) -> JobForecasts:
        del study, known, seed
        return JobForecasts(np.zeros(len(asked)))
