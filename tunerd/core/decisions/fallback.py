"""The entry for the empty context: what to launch in a context that has no entry of its own.

Readers fall back on it (contract: context key), wherever they are, so it names one configuration
and tries nothing: one that was measured in several contexts, would run in nearly any, and is
better over the known contexts than what people launch there. Where no configuration is all of
that, there is no entry.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tunerd.core.arrays import BoolArray, FloatArray
from tunerd.core.decisions.context_search import ContextSearch
from tunerd.core.evidence.config_stats import ConfigStatsTable, Z
from tunerd.core.observation import Value
from tunerd.core.recommendation import Advice, Incumbent
from tunerd.core.study import Study
from tunerd.errors import NothingFeasibleError

__all__ = ["MOST_CONTEXTS", "PoolEstimates", "entry", "look", "pool"]

MOST_CONTEXTS = 32
"""Contexts looked at: those with the latest jobs."""
MOST_POOLED = 48
MEASURED_IN = 3
"""Contexts that a configuration was measured in at least: elsewhere it may be predicted."""
HARM = 0.05
"""A configuration that is this much slower than what people launch does harm, as one that does not
run."""
CLOSE = 0.01
"""Configurations whose mean gain differs by less are told apart by their worst."""


@dataclass(frozen=True, slots=True)
class PoolEstimates:
    """One context, and what is believed of each configuration of the pool there."""

    reference: float
    """Score of what people launch there without tunerd."""
    mean: FloatArray
    """(Q,) score; NaN where the context rules the configuration out."""
    spread: FloatArray
    runs: FloatArray
    """(Q,) probability to run, 0 where it is ruled out."""
    jobs: FloatArray
    """(Q,) jobs that measured it there."""


def pool(contexts: Iterable[ConfigStatsTable], min_feasible: float) -> list[dict[str, Value]]:
    """Configurations that may be best everywhere: of those that were measured in several contexts,
    the ones that on average ranked best among what was measured there."""
    ranks: dict[str, list[float]] = {}
    configs: dict[str, dict[str, Value]] = {}
    for evidence in contexts:
        here = [trial for _, trial in evidence.measured() if trial.run_share >= min_feasible]
        here.sort(key=lambda trial: trial.mean)
        for place, trial in enumerate(here):
            name = _name(trial.config)
            ranks.setdefault(name, []).append((place + 1) / len(here))
            configs[name] = trial.config
    several = {name: sum(r) / len(r) for name, r in ranks.items() if len(r) >= MEASURED_IN}
    best = sorted(several, key=lambda name: (-several[name], name))
    return [configs[name] for name in best[:MOST_POOLED]]


def look(survey: ContextSearch, configs: Sequence[Mapping[str, Value]]) -> PoolEstimates:
    """What one context says of each configuration: by its own jobs where there are any, by
    prediction elsewhere."""
    count = len(configs)
    mean, spread = np.full(count, np.nan), np.zeros(count)
    runs, jobs = np.zeros(count), np.zeros(count)
    codes = [survey.space.encode(config) for config in configs]
    inside = [(i, code) for i, code in enumerate(codes) if code is not None]
    if inside:
        at = [i for i, _ in inside]
        outlook = survey.outlook(np.stack([code for _, code in inside]))
        mean[at], spread[at], runs[at] = outlook.mean, outlook.std, outlook.p_run
    measured = {_name(rival.trial.config): rival for rival in survey.rivals[0]}
    for i, config in enumerate(configs):
        own = measured.get(_name(config))
        if own is not None and codes[i] is not None:
            mean[i], spread[i] = own.estimate.mean, own.estimate.sd
            runs[i], jobs[i] = min(own.feasible, own.trial.run_share), own.trial.runs
    return PoolEstimates(_launched(survey), mean, spread, runs, jobs)


def _launched(survey: ContextSearch) -> float:
    """Score of what people launch in a context: the baseline, where it is stated whole, else what
    the jobs reached that followed no recommendation."""
    rivals, _ = survey.rivals
    stated, _ = survey.baseline()
    code = None if stated is None else survey.space.encode(stated)
    if stated is not None and code is not None:
        same = [rival for rival in rivals if _name(rival.trial.config) == _name(stated)]
        return same[0].estimate.mean if same else float(survey.outlook(code[None]).mean[0])
    weights = np.array([rival.trial.unasked for rival in rivals], float)
    if not weights.any():
        weights = np.array([max(rival.trial.runs, 1) for rival in rivals], float)
    return float(np.average([rival.trial.mean for rival in rivals], weights=weights))


def _name(config: Mapping[str, Value]) -> str:
    return json.dumps(config, sort_keys=True)


def entry(
    study: Study, configs: Sequence[dict[str, Value]], seen: Sequence[PoolEstimates]
) -> Advice:
    """Choose among the configurations (Q,) over the contexts seen (C,).

    Raises:
        NothingFeasibleError: none of them is sound; says why.
    """
    if not configs or not seen:
        raise NothingFeasibleError(f"No configuration was measured in {MEASURED_IN} contexts.")
    mean = np.stack([look.mean for look in seen])
    reference = np.array([look.reference for look in seen])
    scale = _scale(study, reference)
    gains = (mean - reference[:, None]) / scale
    harmless = np.where(gains >= -HARM, np.stack([look.runs for look in seen]), 0.0)
    jobs = np.stack([look.jobs for look in seen])
    spread = np.stack([look.spread for look in seen]) / scale
    # As if one more context were known, in which it does harm: a handful proves little.
    safe = harmless.sum(axis=0) / (len(seen) + 1)
    counted = np.isfinite(gains)
    number = np.maximum(counted.sum(axis=0), 1)
    middle = np.where(counted, gains, 0.0).sum(axis=0) / number
    worst = np.where(counted, gains, math.inf).min(axis=0)
    around = np.where(counted, (gains - middle) ** 2 + spread**2, 0.0).sum(axis=0) / number
    low = middle - Z * np.sqrt(around / number)
    measured = (jobs > 0).sum(axis=0) >= MEASURED_IN
    sound = measured & (safe >= study.min_feasible) & (low > 0)
    if not sound.any():
        raise NothingFeasibleError(_why_none(measured, safe >= study.min_feasible, len(seen)))
    good = sound & (middle >= middle[sound].max() - CLOSE)
    chosen = int(np.argmax(np.where(good, worst, -math.inf)))
    scores = mean[counted[:, chosen], chosen]
    return Advice(
        candidates=(),
        incumbent=_stated(study, configs[chosen], scores, int(jobs[:, chosen].sum())),
        baseline=study.baseline({}),
        reason=(
            f"For contexts without an entry of their own: {_said(study, middle[chosen])} over "
            f"what people launch, on average over {len(scores)} of {len(seen)} contexts "
            f"({_said(study, worst[chosen])} in the worst); measured in "
            f"{int((jobs[:, chosen] > 0).sum())} of them."
        ),
    )


def _scale(study: Study, reference: FloatArray) -> FloatArray:
    """What a relative gain of 1 is in scores, by context."""
    if study.objective.scale == "log":
        return np.ones((len(reference), 1))
    return np.maximum(np.abs(reference), 1e-12)[:, None]


def _said(study: Study, gain: float) -> str:
    """A gain as :func:`entry` counts it, as a share of the metric."""
    return f"{study.gain(gain, 0.0) if study.objective.scale == 'log' else gain:+.1%}"


def _stated(study: Study, config: dict[str, Value], scores: FloatArray, jobs: int) -> Incumbent:
    """The middle context, and the band that four in five of them lie in."""
    values = [study.metric_value(float(score)) for score in np.quantile(scores, (0.1, 0.5, 0.9))]
    low, median, high = sorted(values)
    return Incumbent(config=config, median=median, low=low, high=high, jobs=jobs)


def _why_none(measured: BoolArray, safe: BoolArray, contexts: int) -> str:
    known = f"{contexts} context{'' if contexts == 1 else 's'}"
    if not measured.any():
        return f"No configuration was measured in {MEASURED_IN} of {known}."
    if not (measured & safe).any():
        return f"No configuration measured in several of {known} would run well in nearly all."
    return f"No configuration is surely better over {known} than what people launch."
