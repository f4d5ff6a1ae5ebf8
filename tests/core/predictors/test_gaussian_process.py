"""The Gaussian process as a predictor."""

import numpy as np
import pytest

from tests.core.tuning import random_jobs, study
from tunerd.core.features import FeatureMap
from tunerd.core.predictors.gaussian_process import GaussianProcess


@pytest.mark.slow
def test_with_some_jobs_left_out_it_is_about_as_sure_of_itself() -> None:
    """Bands are sized by fits that leave jobs out: what is not the jobs' doing must not differ."""
    features = FeatureMap(study())
    asked = features.rows(random_jobs(60, 99))
    ratios = []
    for seed in range(6):
        rows = features.rows(random_jobs(80, seed))
        whole = GaussianProcess.fit(study(), features, rows, 0)
        kept = np.sort(np.random.default_rng(seed).permutation(80)[:56])
        part = whole.roughly(study(), features, rows.take(kept), 0)
        ratios.append(np.median(part.predict(asked).std / whole.predict(asked).std))
    assert 1.0 < np.mean(ratios) < 1.5
