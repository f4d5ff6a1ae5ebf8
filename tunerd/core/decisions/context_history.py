"""What the jobs of one context showed: told once of each job, each correction and each drift.

Its parts look at the same jobs. Each keeps what it is asked for, with a bound and an age of its
own; docs/decisions/history.md says why they are not one.
"""

import numpy as np
from msgspec import field

from tunerd.core.decisions.limits import ContributionCaps
from tunerd.core.drift.alarms import Drift
from tunerd.core.drift.context_monitor import ContextMonitor
from tunerd.core.evidence.config_stats import ConfigStatsTable
from tunerd.core.evidence.prequential import NamedJob
from tunerd.core.evidence.rollout import Rollout
from tunerd.core.observation import CorrectedObservation, FeasibilityLabel, Scalar
from tunerd.core.saved_state import SavedState
from tunerd.core.study import Study

__all__ = ["ContextHistory"]


class ContextHistory(SavedState):
    """Bounded, at constant cost per job."""

    context: dict[str, Scalar]
    evidence: ConfigStatsTable = field(default_factory=ConfigStatsTable)
    introduction: Rollout = field(default_factory=Rollout)
    influence: ContributionCaps = field(default_factory=ContributionCaps)
    watched: ContextMonitor = field(default_factory=ContextMonitor)
    """What the watch for drift remembers: it is told of jobs before they are learned."""

    def tried(self, config_id: str) -> int:
        """Jobs of a configuration that said whether it runs."""
        trial = self.evidence.trials.get(config_id)
        return trial.ran + trial.failures if trial else 0

    def unit(self, study: Study) -> float:
        """What a relative difference of 1 is in scores here."""
        if study.objective.scale == "log":  # every step asks: not for nothing
            return 1.0
        return study.unit(np.array([trial.mean for _, trial in self.evidence.measured()]))

    def learn(
        self, study: Study, job: NamedJob, score: float | None, weight: float
    ) -> tuple[float | None, FeasibilityLabel]:
        """Take in a job. Returns its score, and what it says about whether its configuration runs,
        as far as they count: nobody counts for more than his share."""
        observation, cid, config, _ = job
        ran = study.ran(observation)
        says = score is not None or ran is not FeasibilityLabel.UNKNOWN  # else it takes no share
        if says and not self.influence.counts(cid, observation, study.limits):
            score, ran = None, FeasibilityLabel.UNKNOWN
        unasked, sequence = observation.recommendation_id is None, observation.sequence
        self.evidence.add(
            cid, config, score, ran, unasked=unasked, sequence=sequence, weight=weight
        )
        if not observation.history:
            usable = None if ran is FeasibilityLabel.NO else score
            self.introduction.see(cid, usable, sequence)
        return score, ran

    def correct(
        self,
        study: Study,
        config_id: str,
        one: CorrectedObservation,
        learned_at: int,
        run: tuple[float, float] | None,
    ) -> None:
        """Put right what a job of a configuration said when it was learned as ``learned_at``;
        ``run`` is its score and weight now, None without one."""
        was, ran = study.ran(one.earlier), study.ran(one)
        measured = study.score(one.earlier.metrics) is not None
        self.evidence.correct(config_id, learned_at, run, was, ran, measured=measured)
        if ran is FeasibilityLabel.NO and was is not ran and not one.history:
            self.introduction.see(config_id, None, one.sequence)

    def restart(self, study: Study, drift: Drift, sequence: int, at: str) -> None:
        """Speeds are not what they were, as was noticed at a job: estimates and tests begin again.
        What the watch remembers began again with its alarm, before that job was learned."""
        self.introduction.reopen(sequence, at, drift.since)
        self.evidence.begin_again(drift.since, drift.moved, self.unit(study))
