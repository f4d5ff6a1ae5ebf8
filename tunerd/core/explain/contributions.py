"""What each change of one recommended configuration adds to what is expected of it.

A candidate differs from the incumbent in some parameters. What the model predicts of all the
mixtures of the two divides the predicted difference among these (:mod:`.shapley`), for speed and
for the probability to run alike. Without an incumbent the candidate is compared with feasible
configurations drawn at random: then every parameter counts as changed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import compress

import numpy as np

from tunerd.core.arrays import BoolArray, FloatArray
from tunerd.core.evidence.config_stats import Z
from tunerd.core.explain.shapley import shapley
from tunerd.core.features import FeatureMap
from tunerd.core.model.model import StudyModel
from tunerd.core.observation import Observation, Scalar, Status, Value
from tunerd.core.predictors.predictions import Predictions

__all__ = ["ChangeExplanation", "ShapleyContribution", "explain_change"]

SEED = 0
"""Of the orders that are drawn: the same recommendation is always explained alike."""
MOST_ROWS = 16_384
"""Configurations that the model is asked about for one candidate: a second or two."""


@dataclass(frozen=True, slots=True)
class ShapleyContribution:
    """What the value of one parameter adds."""

    parameter: str
    old: Value
    """In the configuration that the candidate is compared with; None where that is many."""
    new: Value
    score: float
    """Share of the predicted difference, in score units."""
    gain: float | None
    """The same as a gain relative to the reference; 0.04 is 4 % better, whatever the goal. None
    where the reference may as well be 0, of which nothing is a share."""
    feasible: float
    """What it adds to the probability to run."""


@dataclass(frozen=True, slots=True)
class ChangeExplanation:
    """A candidate beside what it is compared with, as the model sees both."""

    changes: tuple[ShapleyContribution, ...]
    """The largest first."""
    score: float
    """Predicted difference, in score units; the changes sum to it."""
    gain: float | None
    """Predicted relative gain; None as in :class:`ShapleyContribution`."""
    reference: float
    """Predicted score of the reference."""
    feasible: float
    """Probability to run."""
    feasible_before: float
    exact: bool
    """Whether all mixtures were asked about; else a sample, always the same one."""


def explain_change(
    features: FeatureMap,
    model: StudyModel,
    context: Mapping[str, Scalar],
    new: Mapping[str, Value],
    old: Sequence[Mapping[str, Value]],
) -> ChangeExplanation:
    """Divide the predicted difference between a configuration and the one in ``old``, or the mean
    of several, among the parameters in which they differ.

    Raises:
        ValueError: ``old`` is empty.
    """
    if not old:
        raise ValueError("there is nothing to compare with")
    study = features.study
    names = [
        p.name for p in study.parameters if len(old) > 1 or old[0].get(p.name) != new.get(p.name)
    ]

    def outlook(configs: Sequence[Mapping[str, Value]]) -> Predictions:
        return model.outlook(
            features.rows([_job(study.name, context, config) for config in configs])
        )

    def outcomes(made: BoolArray) -> FloatArray:
        taken = [{name: new.get(name) for name in compress(names, row)} for row in made.tolist()]
        predicted = outlook([before | changed for changed in taken for before in map(dict, old)])
        both = np.stack([predicted.mean, predicted.p_run], axis=1)
        means: FloatArray = both.reshape(len(made), len(old), 2).mean(axis=1)
        return means

    ends = outcomes(np.array([[False] * len(names), [True] * len(names)]))
    (reference, before), (score, feasible) = ends.tolist()
    in_percent = not study.may_be_zero(reference, Z * float(outlook(old).std.mean()))
    most = max(MOST_ROWS // len(old), 2)
    shares, exact = shapley(outcomes, len(names), SEED, most) if names else (np.zeros((0, 2)), True)

    def change(name: str, share: float, runs: float) -> ShapleyContribution:
        return ShapleyContribution(
            parameter=name,
            old=old[0].get(name) if len(old) == 1 else None,
            new=new.get(name),
            score=share,
            gain=study.gain(reference + share, reference) if in_percent else None,
            feasible=runs,
        )

    changes = [change(name, *both) for name, both in zip(names, shares.tolist(), strict=True)]
    return ChangeExplanation(
        changes=tuple(sorted(changes, key=lambda change: (-abs(change.score), change.parameter))),
        score=score - reference,
        gain=study.gain(score, reference) if in_percent else None,
        reference=reference,
        feasible=feasible,
        feasible_before=before,
        exact=exact,
    )


def _job(study: str, context: Mapping[str, Scalar], config: Mapping[str, Value]) -> Observation:
    """A job that might be: only context and configuration are looked at."""
    return Observation(
        study=study,
        source="",
        event_id="",
        job_id="",
        status=Status.SUCCEEDED,
        finished_at=datetime.min.replace(tzinfo=UTC),
        context=context,
        config=config,
        metrics={},
    )
