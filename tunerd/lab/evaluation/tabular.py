"""A table of measured jobs as something that jobs can be run on.

A context's configurations are those that were measured there and that the study allows; running
one draws from its measured rows. How good a configuration truly is, is its mean over those that
ran; one of which most did not is none.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import msgspec
import numpy as np

from tunerd.core.arrays import FloatArray
from tunerd.core.observation import FeasibilityLabel, Observation, Scalar, Value
from tunerd.core.space import SearchSpace
from tunerd.core.study import Study
from tunerd.errors import MisconfiguredError, NothingFeasibleError, ValidationProblem
from tunerd.lab.evaluation.scores import regret

__all__ = ["TabularBenchmark", "TabularContext", "measured"]

MIN_CONFIGS = 40
"""Configurations that a context needs: with fewer there is little to search."""


@dataclass(frozen=True)
class TabularContext:
    """One context of a table."""

    study: Study
    context: Mapping[str, Scalar]
    context_key: str
    configs: tuple[Mapping[str, Value], ...]
    """Distinct, in the order in which they first occur."""
    rows: tuple[tuple[Observation, ...], ...]
    """For each configuration its jobs."""

    @cached_property
    def scores(self) -> FloatArray:
        """(n,) oriented objective of each configuration's mean, in the raw metric, over the jobs
        that ran; NaN for one of which most did not."""
        return np.array([self._score(rows) for rows in self.rows])

    def _score(self, rows: Sequence[Observation]) -> float:
        metric = self.study.objective.metric
        ran = [row.metrics[metric] for row in rows if self.told(row)[0] is not None]
        runs = 2 * len(ran) >= len(rows)
        score = self.study.score({metric: float(np.mean(ran))}) if runs else None
        return float("nan") if score is None else score

    @cached_property
    def regrets(self) -> FloatArray:
        """(n,) how far each configuration is from the best, as a share of the best in the raw
        metric; 1, the most, for one that does not run."""
        best = float(np.nanmax(self.scores))
        return np.array(
            [regret(self.study, None if np.isnan(s) else s, best) for s in self.scores.tolist()]
        )

    def told(self, row: Observation) -> tuple[float | None, bool]:
        """What a job says: its score, if it ran and reports one, and whether it ran."""
        if self.study.ran(row) is not FeasibilityLabel.YES:
            return None, False
        return self.study.score(row.metrics), True

    def row(self, index: int, time: int, seed: int) -> Observation:
        """What the ``time``-th run (from 0) of a configuration comes to; the same for everyone.

        Its rows come in random order, and again once all have come.
        """
        rows = self.rows[index]
        rng = np.random.default_rng([seed, index, *self.context_key.encode()])
        return rows[int(rng.permutation(len(rows))[time % len(rows)])]

    def start(self, count: int, seed: int) -> list[int]:
        """Distinct random configurations: the start that everyone gets."""
        rng = np.random.default_rng([seed, *self.context_key.encode()])
        return [int(i) for i in rng.permutation(len(self.configs))[:count]]


@dataclass(frozen=True)
class TabularBenchmark:
    """All jobs of a table, and the contexts that are worth a closed loop."""

    study: Study
    observations: tuple[Observation, ...]
    contexts: tuple[TabularContext, ...]
    min_configs: int
    """Configurations that make a context worth one."""
    largest: int
    """Configurations of the context that has the most."""
    left_out: Mapping[str, int]
    """Jobs that take no part in closed loops, by reason; they are history all the same."""
    _unlike: dict[tuple[str, Scalar], tuple[Observation, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """Histories that targets share: without the jobs that have this value."""

    def others(self, target: TabularContext, unknown: str | None = None) -> tuple[Observation, ...]:
        """The jobs of all other contexts, sequences 1, 2, …; with ``unknown``, a feature of the
        context, only of those that differ in it from the target.

        Raises:
            MisconfiguredError: the study has no such feature.
        """
        names = [feature.name for feature in self.study.context]
        if unknown is None:
            return _numbered(row for row, key, _ in self._keyed if key != target.context_key)
        if unknown not in names:
            problem = f"no context feature {unknown!r}; there are {', '.join(names)}"
            raise MisconfiguredError([ValidationProblem("--unknown", problem)])
        value = target.context[unknown]
        if (unknown, value) not in self._unlike:
            kept = (row for row, _, context in self._keyed if context[unknown] != value)
            self._unlike[unknown, value] = _numbered(kept)
        return self._unlike[unknown, value]

    @cached_property
    def _keyed(self) -> list[tuple[Observation, str, Mapping[str, Scalar]]]:
        clean = [self.study.clean_context(row.context) for row in self.observations]
        return [
            (row, self.study.context_key(context), context)
            for row, context in zip(self.observations, clean, strict=True)
        ]


def _numbered(rows: Iterable[Observation]) -> tuple[Observation, ...]:
    return tuple(msgspec.structs.replace(row, sequence=i) for i, row in enumerate(rows, 1))


def measured(
    study: Study, observations: Sequence[Observation], min_configs: int = MIN_CONFIGS
) -> TabularBenchmark:
    """Sort jobs by context and configuration.

    Left out of closed loops, and counted, is what the study does not allow (a value outside the
    grid, a constraint; a missing value is a value of its own), what says nothing about its
    configuration (a cancelled job), and contexts with fewer than ``min_configs`` configurations
    or in which nothing ran.
    """
    left_out: Counter[str] = Counter()
    by_context: dict[str, list[Observation]] = {}
    for row in observations:
        if study.ran(row) is FeasibilityLabel.UNKNOWN:
            left_out["the job says nothing about its configuration"] += 1
        else:
            by_context.setdefault(study.context_key(row.context), []).append(row)
    contexts, largest = [], 0
    for key, rows in by_context.items():
        context = _measured(study, key, rows)
        largest = max(largest, len(context.configs))
        inside = sum(map(len, context.rows))
        left_out["the study does not allow the configuration"] += len(rows) - inside
        if len(context.configs) < min_configs:
            left_out[f"the context has fewer than {min_configs} configurations"] += inside
        elif np.isnan(context.scores).all():
            left_out["nothing ran in the context"] += inside
        else:
            contexts.append(context)
    return TabularBenchmark(
        study, tuple(observations), tuple(contexts), min_configs, largest, dict(+left_out)
    )


def _measured(study: Study, key: str, rows: Sequence[Observation]) -> TabularContext:
    context = study.clean_context(rows[0].context)
    by_config: dict[str, list[Observation]] = {}
    configs: dict[str, dict[str, Value]] = {}
    for row in rows:
        config = {p.name: p.clean(p.of(row.config)) for p in study.parameters}
        name = json.dumps(config)
        configs[name] = config
        by_config.setdefault(name, []).append(row)
    try:
        tried = list(configs.values())
        space = SearchSpace(study.with_choices(tried), context, only=tried)
    except NothingFeasibleError:
        return TabularContext(study, context, key, (), ())
    allowed = [name for name, config in configs.items() if space.encode(config) is not None]
    return TabularContext(
        study,
        context,
        key,
        tuple(configs[name] for name in allowed),
        tuple(tuple(by_config[name]) for name in allowed),
    )
