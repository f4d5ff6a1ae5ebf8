"""``benchmarks.transfer``: history is spoilt as it says, and nothing else is."""

import numpy as np
import pytest

from benchmarks.transfer import KINDS, interval, past, spread
from tests.core.tuning import random_jobs, study
from tunerd.core.scores import spearman
from tunerd.lab.evaluation.tabular import TabularBenchmark, measured

MOST = 1_000


@pytest.fixture(scope="module")
def table() -> TabularBenchmark:
    return measured(study(), random_jobs(400), 5)


def test_history_is_that_of_other_contexts(table: TabularBenchmark) -> None:
    target = table.contexts[0]
    assert past(table, target, "none", 0, MOST) == ()
    right = past(table, target, "right", 0, MOST)
    assert right == table.others(target)
    assert past(table, target, "right", 0, 7) != right[:7]
    assert [job.sequence for job in past(table, target, "right", 0, 7)] == list(range(1, 8))


@pytest.mark.parametrize("kind", KINDS[2:])
def test_only_values_are_spoilt(table: TabularBenchmark, kind: str) -> None:
    """The same jobs, the same values in each context, given to others."""
    target, metric = table.contexts[0], table.study.objective.metric
    right, wrong = (past(table, target, name, 1, MOST) for name in ("right", kind))
    assert [(one.config, one.context) for one in right] == [
        (one.config, one.context) for one in wrong
    ]
    for context in {str(one.context) for one in right}:
        values = [
            [one.metrics.get(metric) for one in jobs if str(one.context) == context]
            for jobs in (right, wrong)
        ]
        ran = [[one for one in part if one is not None] for part in values]
        assert sorted(ran[0]) == sorted(ran[1])
        if kind.startswith("reversed") and ran[0] != ran[1]:
            assert spearman(np.array(ran[0]), np.array(ran[1])) < -0.9
    assert wrong != right


def test_contexts_are_spread_and_intervals_hold_their_mean(table: TabularBenchmark) -> None:
    assert spread(table.contexts, 100) == list(table.contexts)
    assert spread(table.contexts, 2) == [table.contexts[0], table.contexts[-1]]
    low, high = interval(np.array([0.0, 1.0, 2.0, 3.0]))
    assert 0.0 <= low < 1.5 < high <= 3.0
