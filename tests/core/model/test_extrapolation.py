"""What a value does that never was another, nobody knows; bands say so."""

import json
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from tests.core.tuning import TEXT, job, random_jobs, study
from tunerd.core.arrays import FloatArray
from tunerd.core.conformal import HALF, ConformalBands
from tunerd.core.features import FeatureMap, FeatureRows
from tunerd.core.model.extrapolation import Extrapolation
from tunerd.core.model.model import StudyModel
from tunerd.core.observation import Observation, Value
from tunerd.core.study_file import parse_study

FEATURES = FeatureMap(study())
WITH_KINDS = parse_study(TEXT.replace("[context]\n", '[context]\ngpu = { type = "category" }\n'))


def fixed(**config: Any) -> list[Observation]:
    """Jobs in one context, some parameters always the same."""
    return [
        structs.replace(one, config={**one.config, **config}) for one in random_jobs(80, sizes=[8])
    ]


def one_of(n: int, **config: Any) -> FeatureRows:
    return FEATURES.rows([job(1, {"n": n}, {"x": 3, "y": "a", "z": True, **config})])


def test_only_what_was_never_varied_is_beyond() -> None:
    reach = Extrapolation.of(FEATURES, FEATURES.rows(fixed(y="a")))
    assert reach.beyond(one_of(8))[0] == 0.0
    assert reach.beyond(one_of(8, x=7, z=False))[0] == 0.0
    other = reach.beyond(one_of(8, y="c"))[0]
    assert other > 0
    assert 0 < reach.beyond(one_of(16))[0] < reach.beyond(one_of(64))[0]
    assert reach.beyond(one_of(64, y="c"))[0] > other


def test_a_value_that_has_come_is_no_longer_beyond() -> None:
    reach = Extrapolation.of(FEATURES, FEATURES.rows(fixed()))
    away = one_of(16)
    assert reach.beyond(away)[0] > 0
    reach.learn(away)  # has no objective
    assert reach.beyond(away)[0] > 0
    reach.learn(FEATURES.rows([job(1, {"n": 16}, {"x": 3, "y": "a", "z": True}, speed=9.0)]))
    assert reach.beyond(one_of(32))[0] == 0.0


def test_it_is_kept() -> None:
    reach = Extrapolation.of(FEATURES, FEATURES.rows(fixed(y="a")))
    again = Extrapolation.load(json.loads(json.dumps(reach.dump())))
    for asked in (one_of(8), one_of(16), one_of(8, y="c")):
        assert again.beyond(asked) == reach.beyond(asked)


def test_bands_of_a_model_know_it() -> None:
    features = FeatureMap(study())
    model = StudyModel.fit(study(), features, features.rows(fixed()), at=80)
    near, far = one_of(8), one_of(64)
    bands = ConformalBands()
    bands.start(model.starts)
    no = np.zeros(1, np.bool_)
    told = [model.outlook(r).adjusted(r.context_key, no, bands).std[0] for r in (near, far)]
    assert told[1] > 0.1
    loaded = StudyModel.load(study(), features, model.dump())
    assert loaded.outlook(far).adjusted(far.context_key, no, bands).std[0] == told[1]


def kinds(
    levels: FloatArray, rng: np.random.Generator, jobs: int = 60
) -> tuple[Extrapolation, FeatureMap]:
    """Jobs on GPUs called 0, 1, …, e^level times as fast as usual; and what is beyond them."""
    features = FeatureMap(WITH_KINDS)
    return Extrapolation.of(features, features.rows(on(levels, rng, jobs))), features


def on(levels: FloatArray, rng: np.random.Generator, jobs: int) -> list[Observation]:
    found = []
    for one in random_jobs(jobs, seed=int(rng.integers(1_000_000))):
        gpu = int(rng.integers(len(levels)))
        speed = float(one.metrics["speed"]) * float(np.exp(levels[gpu])) if one.metrics else None
        context = {**one.context, "gpu": str(gpu)}
        found.append(job(one.sequence, context, one.config, speed=speed, status=one.status))
    return found


def one_on(features: FeatureMap, gpu: str) -> FeatureRows:
    config: dict[str, Value] = {"x": 3, "y": "a", "z": True}
    return features.rows([job(1, {"n": 8, "gpu": gpu}, config, speed=9.0)])


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 3, 6])
def test_one_more_kind_is_as_far_off_as_bands_say(count: int) -> None:
    """Kinds are draws; so is the next one."""
    rng = np.random.default_rng(count)
    held = []
    for _ in range(60):
        levels = rng.normal(0, 1.5, count + 1)
        reach, features = kinds(levels[:-1], rng)
        beyond = reach.beyond(one_on(features, "other"))[0]
        held.append(abs(levels[-1] - levels[:-1].mean()) <= HALF * beyond)
    assert 0.7 <= np.mean(held) <= 0.93


def test_a_kind_that_was_seen_is_not_beyond_and_one_kind_says_least() -> None:
    rng = np.random.default_rng(0)
    reach, features = kinds(np.array([0.0, 0.2, -0.2, 0.1]), rng)
    assert reach.beyond(one_on(features, "2"))[0] == 0.0
    other = one_on(features, "other")
    few = reach.beyond(other)[0]
    assert few > 0
    single, its = kinds(np.zeros(1), rng)
    assert single.beyond(one_on(its, "0"))[0] == 0.0
    assert single.beyond(one_on(its, "other"))[0] > few
    again = Extrapolation.load(json.loads(json.dumps(reach.dump())))
    assert again == reach
    reach.learn(other)
    assert reach.beyond(other)[0] == 0.0
    assert reach.beyond(one_on(features, "third"))[0] == few
    assert Extrapolation.load(json.loads(json.dumps(reach.dump()))) == reach
