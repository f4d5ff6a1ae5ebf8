"""What the committee's trees do beyond what every predictor promises."""

from dataclasses import replace

import numpy as np

from tunerd.core.features import FeatureMap
from tunerd.core.predictors.tree_kinds import ConfigurationTrees
from tunerd.core.scores import kendall
from tunerd.core.space import Space
from tunerd.core.study import parse_study

KERNEL = parse_study("""
schema = 1
name = "kernel"
[objective]
metric = "speed"
goal = "maximize"
[context]
size = { type = "int", scale = "log" }
[parameters]
a = { type = "int", values = [1, 2, 4, 8, 16, 32] }
b = { type = "int", values = [1, 2, 4, 8, 16, 32] }
c = { type = "int", values = [1, 2, 4, 8, 16] }
d = { type = "category", values = ["i", "j", "k", "l", "m"] }
""")


def test_what_single_configurations_did_elsewhere_carries_to_a_new_context() -> None:
    """As with kernels: hundreds of the same configurations in each context, and no two that are
    neighbours alike."""
    features, rng = FeatureMap(KERNEL), np.random.default_rng(0)
    codes = Space(KERNEL, {"size": 1}).table(1_000)
    assert codes is not None
    assert len(codes) == 900
    of_its_own = rng.normal(size=len(codes))
    parts = []
    for size in (64, 128, 256, 512):
        rows = features.candidates(Space(KERNEL, {"size": size}), codes)
        score = np.log(size) + of_its_own + 0.3 * rng.normal(size=len(codes))
        parts.append(replace(rows, score=score))
    known = parts[0].joined(parts[1]).joined(parts[2])
    trees = ConfigurationTrees.fit(KERNEL, features, known, seed=1)
    assert kendall(trees.predict(parts[3]).mean, parts[3].score) > 0.72
