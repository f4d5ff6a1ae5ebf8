"""What a prediction loses when values are shuffled among the jobs asked for.

By group (context, lookups, parameters, derived values) and by column. The model is fitted once, on
values as they are; shuffled are the columns that it sees, so that a lookup can be told from the
category that it describes. Columns that say the same share what they are worth: with ``dp`` given
by ``tp`` and ``pp``, none of the three may matter alone.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from tunerd.core.arrays import FloatArray, IntArray
from tunerd.core.features import FeatureMap, FeatureRows
from tunerd.core.features.columns import Group
from tunerd.core.observation import Observation
from tunerd.core.scores import kendall_large, within_contexts
from tunerd.core.study import Study
from tunerd.lab.evaluation.splits import SplitFold
from tunerd.lab.evaluation.tunerd_forecaster import TunerdForecaster

__all__ = ["PermutationImportance", "importance"]

SHUFFLES = 3
MOST_ROWS = 1_000
"""Jobs asked for that are looked at; more say nothing new of which columns matter."""
GROUPS: dict[Group, str] = {
    "context": "all context",
    "lookup": "all lookups",
    "parameter": "all parameters",
    "derived": "all derived values",
}
"""Groups, and what they are called beside their columns."""


class PermutationImportance(msgspec.Struct, frozen=True):
    """What one group or column is worth: means over shuffles, near 0 or below for nothing."""

    group: Group
    column: Annotated[str | None, Meta(description="None for the whole group together.")]
    error: Annotated[
        float,
        Meta(
            description="Rise of the mean absolute error in score units: 0.1 is about 10 % where "
            "the study compares by ratios."
        ),
    ]
    kendall_tau: Annotated[float, Meta(description="Loss of τ over all jobs together.")]
    kendall_tau_within: Annotated[
        float | None,
        Meta(
            description="Loss of τ within contexts, None where no context has enough jobs. Of a "
            "parameter this is what a search would lose."
        ),
    ]

    @property
    def name(self) -> str:
        """For people."""
        return GROUPS[self.group] if self.column is None else self.column


def importance(
    study: Study,
    own: TunerdForecaster,
    observations: Sequence[Observation],
    fold: SplitFold,
    seed: int = 0,
) -> list[PermutationImportance]:
    """Fit on the known jobs of a fold and shuffle among those asked for; groups first."""
    rng = np.random.default_rng([seed, fold.repeat])
    features, model = own.fit(study, [observations[i] for i in fold.train.tolist()], seed)
    rows = features.rows([observations[i] for i in fold.asked.tolist()])
    scored = np.flatnonzero(np.isfinite(rows.score))
    rows = rows.take(np.sort(rng.permutation(scored)[:MOST_ROWS]))
    if len(rows) < 2:
        return []
    before = _quality(rows, model.predictor.predict(rows).mean)
    importances = []
    for group, column, places in _targets(features):
        losses = []
        for _ in range(SHUFFLES):
            shuffled = _shuffled(
                rows, places, rng.permutation(len(rows)), group if column is None else None
            )
            after = _quality(rows, model.predictor.predict(shuffled).mean)
            losses.append(before - after)
        error, tau, within = np.mean(losses, axis=0).tolist()
        overall = None if np.isnan(within) else within
        importances.append(PermutationImportance(group, column, -error, tau, overall))
    return importances


def _targets(features: FeatureMap) -> Iterator[tuple[Group, str | None, IntArray]]:
    for group in GROUPS:
        places = [i for i, column in enumerate(features.columns) if column.group == group]
        if places:
            yield group, None, np.array(places)
    for i, column in enumerate(features.columns):
        yield column.group, column.name, np.array([i])


def _shuffled(
    rows: FeatureRows, places: IntArray, order: IntArray, group: Group | None
) -> FeatureRows:
    X = rows.X.copy()
    X[:, places] = rows.X[order][:, places]
    if group != "context":
        return replace(rows, X=X)
    # What is known of a context by its key is part of what the context says.
    return replace(rows, X=X, context_key=tuple(rows.context_key[i] for i in order.tolist()))


def _quality(rows: FeatureRows, predicted: FloatArray) -> FloatArray:
    """Mean absolute error, τ over all, τ within contexts."""
    return np.array(
        [
            float(np.mean(np.abs(predicted - rows.score))),
            np.nan_to_num(kendall_large(predicted, rows.score)),
            within_contexts(kendall_large, predicted, rows.score, rows.context_key),
        ]
    )
