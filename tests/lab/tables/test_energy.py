"""Energy counters that are sometimes off: what is said stays within what an energy can be."""

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.core.tuning import Inline
from tests.lab.tables.test_draft import drafted, written
from tunerd.core.tuner import Tuner
from tunerd.lab.tables.guess import UserAnswers
from tunerd.lab.tables.mapping import read_observations
from tunerd.lab.tables.sentinel_values import Meaning


def rows() -> Sequence[dict[str, Any]]:
    """Jobs of very different size; every fifth one has no energy."""
    rng = random.Random(4)
    return [
        {
            "energy_j": 0 if place % 5 == 0 else int(10 ** rng.uniform(3, 9)),
            "partition": rng.choice(["long", "short"]),
            "qos": rng.choice(["normal", "high"]),
            "threads": rng.choice([1, 2, 4, 8]),
            "state": rng.choice(["COMPLETED", "COMPLETED", "FAILED"]),
        }
        for place in range(60)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("meaning", [None, "value", "failed"])
def test_no_prediction_lies_below_0_and_no_gain_above_all_of_it(
    meaning: Meaning | None, tmp_path: Path
) -> None:
    """There were predictions of -15,000,000 J and gains of "+14329 % (at least -40096 %)"."""
    path = written(tmp_path / "jobs.csv", rows())
    _, study, table = drafted(path, UserAnswers("energy_j", "minimize", meaning=meaning))
    quick = replace(study.predictor, name="boosted_trees", members=3, trees=20)
    study = replace(study, predictor=quick)
    tuner = Tuner(study, Inline())
    jobs = list(read_observations(study, None, [table]).observations)
    for at in range(0, len(jobs), 10):
        for one in tuner.learn(jobs[at : at + 10]).judged:
            told = one.outcome
            for score in (told.predicted, told.low, told.high):
                assert score is None or study.metric_value(score) >= 0
    assert tuner.usability.impossible == (0 if meaning == "value" else 12)
    for key in list(tuner.contexts)[:2]:
        advice = tuner.advise(key, None)
        for candidate in advice.candidates:
            assert candidate.predicted is None or candidate.predicted.low >= 0
            assert candidate.gain is None or candidate.gain.low <= candidate.gain.median <= 1
        assert advice.incumbent is None or advice.incumbent.low >= 0
