"""How much of history counts."""

import numpy as np

from tests.core.tuning import random_jobs, study
from tunerd.core.features import FeatureMap
from tunerd.core.features.replay import ReplaySample
from tunerd.core.model.history_weights import Regime, days, faded
from tunerd.core.study.parts import HistoryOptions


def test_a_regime_lets_scores_weigh_less_and_only_age_is_fading() -> None:
    jobs = random_jobs(20)
    rows, finished = FeatureMap(study()).rows(jobs), days(jobs)
    sample = ReplaySample(rows, np.arange(1, 21), finished)
    regime = Regime(since=11, before=0.05, moved=-0.5)
    drifted = faded(sample, HistoryOptions(), [regime], finished[-1])
    np.testing.assert_allclose(drifted.weight, np.repeat([0.05, 1.0], 10))
    np.testing.assert_array_equal(drifted.counts, np.ones(20))
    old = faded(sample, HistoryOptions(half_life_days=10.0), [regime], finished[-1] + 20.0)
    np.testing.assert_allclose(old.counts, 0.25, rtol=1e-3)
    np.testing.assert_allclose(old.weight, drifted.weight * old.counts)
