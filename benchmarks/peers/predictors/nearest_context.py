"""The ranking of the nearest context: what an operator does who looks up the most similar job.

Contexts are compared by their standardised columns. A configuration is worth what the most similar
configurations were worth in the nearest contexts, relative to each of those contexts' mean, until
those contexts together have twenty jobs: with fewer, the ranking of a context that was run twice
would hide what its neighbour knows. A context's own jobs are the nearest there are. Whether it will
run is told by the same neighbours, failures among them.
"""

from collections.abc import Sequence

import numpy as np

from benchmarks.peers.matrix import Jobs
from tunerd.core.arrays import FloatArray, IntArray
from tunerd.core.observation import Observation
from tunerd.core.study import Study
from tunerd.lab.evaluation.forecaster import JobForecasts

__all__ = ["NearestContext", "by_context", "nearest_first", "similar"]

ENOUGH = 20
"""Jobs of the nearest contexts to go by."""
NEIGHBOURS = 3
AT_ONCE = 500
"""Configurations compared with all others at a time, so that memory stays small."""


class NearestContext:
    name = "nearest_context"

    def foretell(
        self, study: Study, known: Sequence[Observation], asked: Sequence[Observation], seed: int
    ) -> JobForecasts:
        del seed
        jobs = Jobs.of(study, known, asked)
        score, runs = np.zeros(len(asked)), np.ones(len(asked))
        contexts, contexts_asked = jobs.plain("context")
        configs, configs_asked = jobs.plain("configuration")
        scored = by_context(jobs.known.context_key, np.flatnonzero(jobs.scored))
        said = by_context(jobs.known.context_key, np.flatnonzero(np.isfinite(jobs.known.ran)))
        relative = jobs.known.score.copy()
        for rows in scored:
            relative[rows] -= relative[rows].mean()
        for places in by_context(jobs.asked.context_key, np.arange(len(asked))):
            at = contexts_asked[places[0]]
            for told, groups, worth in (
                (score, scored, relative),
                (runs, said, jobs.known.ran),
            ):
                if groups:
                    near = nearest_first(contexts, groups, at)
                    told[places] = similar(
                        configs[near], worth[near], configs_asked[places], NEIGHBOURS
                    )
        return JobForecasts(score, runs=runs, only_ranks=True)


def by_context(keys: Sequence[str], rows: IntArray) -> list[IntArray]:
    """The rows of each context."""
    groups: dict[str, list[int]] = {}
    for row in rows.tolist():
        groups.setdefault(keys[row], []).append(row)
    return [np.array(group) for group in groups.values()]


def nearest_first(
    contexts: FloatArray, groups: Sequence[IntArray], at: FloatArray, enough: int = ENOUGH
) -> IntArray:
    """Rows of the nearest contexts, as many contexts as it takes for ``enough`` rows."""
    far = [float(((contexts[rows[0]] - at) ** 2).sum()) for rows in groups]
    taken: list[IntArray] = []
    for group in np.argsort(far, kind="stable").tolist():
        taken.append(groups[group])
        if sum(len(rows) for rows in taken) >= enough:
            break
    return np.concatenate(taken)


def similar(
    configs: FloatArray, worth: FloatArray, asked: FloatArray, neighbours: int
) -> FloatArray:
    """(asked,) mean worth of the most similar configurations, the nearer the heavier."""
    told = np.zeros(len(asked))
    for some in np.array_split(np.arange(len(asked)), max(len(asked) // AT_ONCE, 1)):
        product = asked[some] @ configs.T
        far = (asked[some] ** 2).sum(axis=1)[:, None] + (configs**2).sum(axis=1) - 2 * product
        near = np.argsort(far, axis=1, kind="stable")[:, :neighbours]
        weight = 1.0 / (np.maximum(np.take_along_axis(far, near, axis=1), 0.0) + 1e-3)
        told[some] = (weight * worth[near]).sum(axis=1) / weight.sum(axis=1)
    return told
