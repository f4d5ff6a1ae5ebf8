"""Where configurations stop running, recalibrated by contexts that were left out."""

import numpy as np

from tunerd.core.runs.boundary import Boundary


def test_contexts_that_say_nothing_of_each_other_say_little_of_another() -> None:
    """One job of a second context gets all of the first wrong: neither is believed of a third."""
    X = np.random.default_rng(0).normal(size=(39, 3))
    ran = (X[:, 0] > 0).astype(float)
    keys = ["first"] * 38 + ["second"]
    boundary = Boundary.fit(X, ran, np.ones(39), [False] * 3, keys, 0)
    far = np.array([[2.0, 0.0, 0.0], [-2.0, 0.0, 0.0]])
    runs, fails = boundary.predict(far, np.ones(2))
    assert runs > 0.95
    assert fails < 0.05
    runs, fails = boundary.predict(far, np.zeros(2))
    assert 0.05 < fails < runs < 0.95
