"""What the jobs of one context said about each configuration that was tried there.

A configuration's speed is an estimate over its repeats, drawn towards what the predictor expects
of it, so that one lucky run makes no incumbent (DESIGN: incumbent). Everything is updated in
constant time per job; at most :data:`MAX_TRIALS` configurations a context are kept.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from tunerd.core.observation import Ran, Value

__all__ = ["MAX_TRIALS", "Estimate", "Evidence", "Trial", "estimate", "estimates"]

MAX_TRIALS = 512
"""Configurations kept per context. The state is written whole whenever its context has a new job
(about 150 bytes a configuration); what falls out is what was tried longest ago and is not good."""

PRIOR_NOISE = 0.05
"""Relative noise of one run before there are repeats: between the 0.4 % of `llmfoundry_fsdp` and
the tens of per cent of burstable machines in `trimtuner_ps`."""
PRIOR_WEIGHT = 3.0
"""Degrees of freedom that :data:`PRIOR_NOISE` counts as."""


@dataclass(slots=True)
class Trial:
    """The jobs of one configuration in one context. ``mean`` and ``spread_sum`` are in scores."""

    config: dict[str, Value]
    runs: int = 0
    """Jobs with an objective value."""
    mean: float = 0.0
    spread_sum: float = 0.0
    """Sum of squared deviations from ``mean`` (Welford)."""
    ran: int = 0
    failures: int = 0
    """Jobs that say the configuration does not run (or, weakly, may not)."""
    unasked: int = 0
    """Jobs that followed no recommendation: what people launch by themselves."""
    last_sequence: int = 0

    @property
    def run_share(self) -> float:
        """Share of the jobs that ran, among those that say anything about it; 1 without any."""
        said = self.ran + self.failures
        return self.ran / said if said else 1.0


@dataclass(frozen=True, slots=True)
class Estimate:
    """Normal posterior of one configuration's score."""

    mean: float
    sd: float


def estimate(trial: Trial, noise: float, expected: float, spread: float) -> Estimate:
    """Combine a configuration's own runs with the predictor's expectation of it.

    Precision weighting of two normals: N(``expected``, ``spread``²) and the mean of the runs,
    N(``trial.mean``, ``noise``² / runs). All in score units.
    """
    prior = 1.0 / max(spread, 1e-6) ** 2
    own = trial.runs / max(noise, 1e-6) ** 2
    mean = (prior * expected + own * trial.mean) / (prior + own)
    return Estimate(mean, math.sqrt(1.0 / (prior + own)))


def estimates(
    trials: Sequence[Trial],
    noise: float,
    expected: NDArray[np.float64],
    spread: NDArray[np.float64],
) -> list[Estimate]:
    """:func:`estimate` of each trial, given predictions (n,) in the same order."""
    return [
        estimate(trial, noise, float(e), float(s))
        for trial, e, s in zip(trials, expected, spread, strict=True)
    ]


class Evidence:
    """Every configuration tried in one context, by candidate id."""

    def __init__(self) -> None:
        self.trials: dict[str, Trial] = {}
        self.jobs = 0

    def add(
        self,
        candidate_id: str,
        config: Mapping[str, Value],
        score: float | None,
        ran: Ran,
        *,
        unasked: bool,
        sequence: int,
    ) -> None:
        """Count one job. ``score`` is the oriented objective, None when the job has none."""
        self.jobs += 1
        trial = self.trials.get(candidate_id)
        if trial is None:
            trial = self.trials[candidate_id] = Trial(dict(config))
            self._forget_one_too_many(candidate_id)
        trial.last_sequence = sequence
        trial.unasked += unasked
        if ran is Ran.YES:
            trial.ran += 1
        elif ran in (Ran.NO, Ran.WEAK_NO):
            trial.failures += 1
        if score is not None and ran is not Ran.NO:
            trial.runs += 1
            step = score - trial.mean
            trial.mean += step / trial.runs
            trial.spread_sum += step * (score - trial.mean)

    def begin_again(self, levels: Mapping[str, tuple[float, int]]) -> None:
        """Take estimates from drift on: by the beginning of a candidate id, mean score and the
        jobs that it counts as. What is not in it has no runs any more that count; where nothing
        ran since, everything stays."""
        if not levels:
            return
        size = len(next(iter(levels)))
        for name, trial in self.trials.items():
            mean, runs = levels.get(name[:size], (0.0, 0))
            apart = trial.spread_sum / max(trial.runs - 1, 1)
            trial.mean, trial.runs = mean, min(runs, trial.runs)
            trial.spread_sum = apart * max(trial.runs - 1, 0)

    def noise(self, scale: float = 1.0) -> float:
        """Standard deviation of one run, pooled over the repeats of all configurations.

        ``scale`` turns the relative prior into score units: 1 for a log objective, the typical
        size of the objective for a linear one.
        """
        squares = PRIOR_WEIGHT * (PRIOR_NOISE * scale) ** 2
        freedom = PRIOR_WEIGHT
        for trial in self.trials.values():
            if trial.runs > 1:
                squares += trial.spread_sum
                freedom += trial.runs - 1
        return math.sqrt(squares / freedom)

    def measured(self) -> list[tuple[str, Trial]]:
        """Configurations with at least one objective value, in the order they were first tried."""
        return [(key, trial) for key, trial in self.trials.items() if trial.runs]

    def usual(self, wanted: Mapping[str, Value]) -> dict[str, Value] | None:
        """The configuration that unasked jobs most often use, among those that agree with
        ``wanted``; it completes a baseline that names only some parameters."""
        fitting = [
            trial
            for trial in self.trials.values()
            if trial.unasked and all(trial.config.get(k) == v for k, v in wanted.items())
        ]
        if not fitting:
            return None
        most = max(fitting, key=lambda trial: (trial.unasked, trial.last_sequence))
        return dict(most.config)

    def dump(self) -> dict[str, object]:
        """State as JSON values; :meth:`load` gives it back exactly."""
        return {"jobs": self.jobs, "trials": {k: asdict(t) for k, t in self.trials.items()}}

    @classmethod
    def load(cls, state: Mapping[str, object]) -> "Evidence":
        """Build from what :meth:`dump` gave."""
        evidence = cls()
        jobs, trials = state["jobs"], state["trials"]
        assert isinstance(jobs, int)
        assert isinstance(trials, dict)
        evidence.jobs = jobs
        evidence.trials = {key: Trial(**trial) for key, trial in trials.items()}
        return evidence

    def _forget_one_too_many(self, newest: str) -> None:
        if len(self.trials) <= MAX_TRIALS:
            return
        # The best eighth stays whatever its age: the incumbent and its rivals are among them.
        measured = sorted(self.measured(), key=lambda item: -item[1].mean)
        kept = {key for key, _ in measured[: MAX_TRIALS // 8]} | {newest}
        oldest = min(
            (item for item in self.trials.items() if item[0] not in kept),
            key=lambda item: item[1].last_sequence,
        )
        del self.trials[oldest[0]]
