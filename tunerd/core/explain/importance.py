"""What matters to a model's predictions over many jobs.

*Permutation*, for any predictor: a value is shuffled among jobs and the model is asked again. What
its predictions lose is what the value is worth to it. Parameters are shuffled among the jobs of one
context, since nobody chooses the context; context features among all jobs, while the model still
knows by its key which context a job is of. Shuffled are values as jobs have them: a ``repeat``
parameter moves as a whole, and what follows from a value (derived values, lookups) follows.

*SHAP*, for ``boosted_trees``: what each value adds to a prediction, by LightGBM's own account of
its trees (Lundberg et al. 2018) and by the line below them; of that the mean size.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from msgspec import structs

from tunerd.core.arrays import FloatArray, IntArray
from tunerd.core.features import FeatureMap, FeatureRows
from tunerd.core.features.columns import Group
from tunerd.core.model.model import StudyModel
from tunerd.core.observation import Observation
from tunerd.core.predictors.boosted_trees import BoostedTrees
from tunerd.core.scores import MIN_ROWS, kendall, within_contexts
from tunerd.core.study.parts import ContextFeature, Parameter

__all__ = [
    "CONTEXT_ITSELF",
    "GlobalImportance",
    "ImportanceScore",
    "Method",
    "Progress",
    "explain_overall",
]

Method = Literal["shap", "permutation"]
Progress = Callable[[int, int], None]
"""Is told how many things have been looked at, and of how many."""

SHUFFLES = 5
CONTEXT_ITSELF = "context itself"
"""What is known of a context by its own jobs, beyond its features."""


@dataclass(frozen=True, slots=True)
class ImportanceScore:
    """What one parameter or context feature is worth to the predictions."""

    name: str
    group: Group
    importance: float
    """In score units. Permutation: rise of the mean absolute error, near 0 for nothing. SHAP: mean
    size of what it adds to a prediction."""
    share: float
    """Of all importance together, 0 to 1."""
    kendall_tau: float | None = None
    """Permutation: loss of Kendall's τ within contexts, on jobs that the model has learned; a
    search would lose less, as new ones are told less well. None where no context has enough jobs,
    and for SHAP."""
    feasible: float | None = None
    """Permutation: by how much the probability to run moves, on average."""


@dataclass(frozen=True, slots=True)
class GlobalImportance:
    """What matters, the most important first."""

    method: Method
    matters: tuple[ImportanceScore, ...]
    jobs: int
    """Jobs that were looked at: those with an objective."""
    contexts: int
    error: float
    """Mean absolute error on them as they are, in score units. The model has learned them."""
    kendall_tau: float | None
    """τ within contexts on them as they are."""
    within: bool
    """Whether parameters were shuffled within contexts; among all jobs where hardly any context
    has two of them."""


def _silent(done: int, of: int) -> None:
    """Nobody watches."""


def explain_overall(
    features: FeatureMap,
    model: StudyModel,
    observations: Sequence[Observation],
    seed: int = 0,
    method: Method | None = None,
    progress: Progress = _silent,
) -> GlobalImportance:
    """Ask what matters on these jobs. ``method`` is by default SHAP where the predictor can.

    Raises:
        ValueError: no job has an objective, or SHAP is asked of a predictor that cannot.
    """
    study = features.study
    jobs = [job for job in observations if study.score(job.metrics) is not None]
    if not jobs:
        raise ValueError("none of these jobs has a usable objective")
    predictor = model.predictor
    if method == "shap" and not isinstance(predictor, BoostedTrees):
        raise ValueError(f"{study.predictor.name} has no SHAP values; permutation does for all")
    rows = features.rows(jobs)
    counts = Counter(rows.context_key)
    within = sum(count for count in counts.values() if count > 1) >= MIN_ROWS
    if isinstance(predictor, BoostedTrees) and method != "permutation":
        method, scores = "shap", _shap(features, predictor, rows)
        progress(1, 1)
    else:
        method = "permutation"
        scores = _permuted(features, model, jobs, rows, within, seed, progress)
    total = sum(max(feature.importance, 0.0) for feature in scores) or 1.0
    shared = [replace(feature, share=max(feature.importance, 0.0) / total) for feature in scores]
    error, tau = _quality(rows, predictor.predict(rows).mean)
    return GlobalImportance(
        method=method,
        matters=tuple(sorted(shared, key=lambda feature: -feature.importance)),
        jobs=len(jobs),
        contexts=len(counts),
        error=error,
        kendall_tau=None if np.isnan(tau) else tau,
        within=within,
    )


def _permuted(
    features: FeatureMap,
    model: StudyModel,
    jobs: Sequence[Observation],
    rows: FeatureRows,
    within: bool,
    seed: int,
    progress: Progress,
) -> list[ImportanceScore]:
    study = features.study
    entries: list[tuple[Parameter | ContextFeature, Group]] = [
        *((parameter, "parameter") for parameter in study.parameters),
        *((feature, "context") for feature in study.context),
    ]
    before = _asked(model, rows)
    scores = []
    for i, (entry, group) in enumerate(entries):
        rng = np.random.default_rng([seed, i])
        losses = []
        for _ in range(SHUFFLES):
            apart = group == "parameter" and within
            order = _order(rows.context_key if apart else ("",) * len(rows), rng)
            moved = features.rows(_moved(jobs, entry, group, order))
            # By its key the model still knows the context.
            after = _asked(model, replace(rows, X=moved.X))
            shift = float(np.mean(np.abs(after[3] - before[3])))
            losses.append((after[0] - before[0], before[1] - after[1], shift))
        error, tau, shift = np.mean(losses, axis=0).tolist()
        tau_or_none = None if np.isnan(tau) else tau
        scores.append(ImportanceScore(entry.name, group, error, 0.0, tau_or_none, shift))
        progress(i + 1, len(entries))
    return scores


def _asked(model: StudyModel, rows: FeatureRows) -> tuple[float, float, FloatArray, FloatArray]:
    """Error, τ, predictions and probabilities to run."""
    predicted = model.outlook(rows)
    return (*_quality(rows, predicted.mean), predicted.mean, predicted.p_run)


def _quality(rows: FeatureRows, predicted: FloatArray) -> tuple[float, float]:
    error = float(np.mean(np.abs(predicted - rows.score)))
    return error, within_contexts(kendall, predicted, rows.score, rows.context_key)


def _order(keys: Sequence[str], rng: np.random.Generator) -> IntArray:
    """An order in which rows change places with rows of the same key alone."""
    order = np.arange(len(keys))
    _, groups = np.unique(np.array(keys), return_inverse=True)
    by_group = np.argsort(groups, kind="stable")
    for where in np.split(by_group, np.flatnonzero(np.diff(groups[by_group])) + 1):
        order[where] = rng.permutation(where)
    return order


def _moved(
    jobs: Sequence[Observation], entry: Parameter | ContextFeature, group: Group, order: IntArray
) -> list[Observation]:
    """The jobs, each with another one's value, under whatever name either has it."""
    part = "context" if group == "context" else "config"
    names = {entry.name, *entry.was}
    moved_jobs = []
    for job, other in zip(jobs, order.tolist(), strict=True):
        values = {name: value for name, value in getattr(job, part).items() if name not in names}
        theirs = entry.of(getattr(jobs[other], part))
        if theirs is not None:
            values[entry.name] = theirs
        moved_jobs.append(structs.replace(job, **{part: values}))
    return moved_jobs


def _shap(
    features: FeatureMap, predictor: BoostedTrees, rows: FeatureRows
) -> list[ImportanceScore]:
    columns, levels = predictor.contributions(rows)
    scores = []
    for source in features.sources:
        width = source.totals.stop - source.start
        added = columns[:, source.start : source.start + width].sum(axis=1)
        scores.append(
            ImportanceScore(source.name, source.group, float(np.mean(np.abs(added))), 0.0)
        )
    own = float(np.mean(np.abs(levels - levels.mean())))
    return [*scores, ImportanceScore(CONTEXT_ITSELF, "context", own, 0.0)]
