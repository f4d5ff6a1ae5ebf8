"""On a linear scale the unit of the metric is nobody's business: in bytes or in gigabytes, the same
is said. Factors are powers of two, so that numbers keep their digits and nothing is "about".
"""

from dataclasses import replace
from functools import cache
from itertools import cycle

import pytest
from msgspec import structs

from tests.core.tuning import START, Inline, random_jobs, study
from tunerd.core.decisions.campaign import Campaign
from tunerd.core.decisions.decide import gist
from tunerd.core.observation import Observation, Status
from tunerd.core.predictors import PREDICTORS
from tunerd.core.recommendation import Advice
from tunerd.core.tuner import Tuner

pytestmark = pytest.mark.slow

UNITS = [("maximize", 2.0**20), ("minimize", 2.0**-20)]
"""Of numbers from 30 to 3,000: up to 3e9, down to 3e-5."""


def jobs(goal: str, unit: float) -> list[Observation]:
    """x = 7 never runs."""
    found = []
    for one in random_jobs(80):
        speed = one.metrics.get("speed")
        if one.config["x"] == 7:
            one = structs.replace(one, status=Status.OUT_OF_MEMORY, metrics={})
        elif speed is not None:
            speed = unit * (speed if goal == "maximize" else 2.0**18 / speed)
            one = structs.replace(one, metrics={"speed": speed})
        found.append(one)
    return found


@cache
def said(predictor: str, goal: str, unit: float) -> list[Advice]:
    """What is said where jobs ran and where none did, and of the latter where one profiles: after
    history alone, and after some more jobs."""
    toy = study(scale='"linear"', goal=f'"{goal}"', explore_share="0.1")
    toy = replace(toy, predictor=replace(toy.predictor, name=predictor))
    tuner, past = Tuner(toy, Inline()), jobs(goal, unit)
    tuner.gather(past[:60])
    tuner.catch_up()
    keys = [tuner.ask({"n": n}, START) for n in (8, 64)]
    keys.append(tuner.start_campaign({"n": 128}, Campaign(0, 1, 3), START))
    found = [tuner.advise(key, None) for key in keys]
    tuner.learn(past[60:])
    return found + [tuner.advise(key, None) for key in keys]


@pytest.mark.parametrize(
    ("predictor", "goal", "unit"),
    [
        *((name, *unit) for name, unit in zip(sorted(PREDICTORS), cycle(UNITS), strict=False)),
        ("committee", *UNITS[0]),  # of all the others, and what it weighs them by
    ],
)
def test_in_another_unit_the_same_is_said(predictor: str, goal: str, unit: float) -> None:
    for one, other in zip(said(predictor, goal, 1.0), said(predictor, goal, unit), strict=True):
        assert gist(other) == gist(one)
        for a, b in zip(one.candidates, other.candidates, strict=True):
            assert b.feasible == a.feasible
            assert a.predicted is not None
            assert b.predicted is not None
            told = (b.predicted.median, b.predicted.low, b.predicted.high)
            ends = (a.predicted.median, a.predicted.low, a.predicted.high)
            # What is kept of jobs has six digits.
            assert told == pytest.approx([unit * end for end in ends], rel=1e-3)
            assert (b.gain is None) == (a.gain is None)
            if a.gain is not None and b.gain is not None:
                gains = (a.gain.median, a.gain.low)
                assert (b.gain.median, b.gain.low) == pytest.approx(gains, rel=1e-3, abs=1e-3)
