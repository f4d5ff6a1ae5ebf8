"""What a value does that never was another, nobody knows; bands say so."""

import json
from typing import Any

import numpy as np
from msgspec import structs

from tests.core.tuning import job, random_jobs, study
from tunerd.core.bands import Bands
from tunerd.core.features import FeatureMap, Rows
from tunerd.core.model import Model
from tunerd.core.observation import Observation
from tunerd.core.reach import Reach

FEATURES = FeatureMap(study())


def fixed(**config: Any) -> list[Observation]:
    """Jobs in one context, some parameters always the same."""
    return [
        structs.replace(one, config={**one.config, **config}) for one in random_jobs(80, sizes=[8])
    ]


def one_of(n: int, **config: Any) -> Rows:
    return FEATURES.rows([job(1, {"n": n}, {"x": 3, "y": "a", "z": True, **config})])


def test_only_what_was_never_varied_is_beyond() -> None:
    reach = Reach.of(FEATURES, FEATURES.rows(fixed(y="a")))
    assert reach.beyond(one_of(8))[0] == 0.0
    assert reach.beyond(one_of(8, x=7, z=False))[0] == 0.0
    other = reach.beyond(one_of(8, y="c"))[0]
    assert other > 0
    assert 0 < reach.beyond(one_of(16))[0] < reach.beyond(one_of(64))[0]
    assert reach.beyond(one_of(64, y="c"))[0] > other


def test_a_value_that_has_come_is_no_longer_beyond() -> None:
    reach = Reach.of(FEATURES, FEATURES.rows(fixed()))
    away = one_of(16)
    assert reach.beyond(away)[0] > 0
    reach.learn(away)  # has no objective
    assert reach.beyond(away)[0] > 0
    reach.learn(FEATURES.rows([job(1, {"n": 16}, {"x": 3, "y": "a", "z": True}, speed=9.0)]))
    assert reach.beyond(one_of(32))[0] == 0.0


def test_it_is_kept() -> None:
    reach = Reach.of(FEATURES, FEATURES.rows(fixed(y="a")))
    again = Reach.load(json.loads(json.dumps(reach.dump())))
    for asked in (one_of(8), one_of(16), one_of(8, y="c")):
        assert again.beyond(asked) == reach.beyond(asked)


def test_bands_of_a_model_know_it() -> None:
    features = FeatureMap(study())
    model = Model.fit(study(), features, features.rows(fixed()), at=80)
    near, far = one_of(8), one_of(64)
    bands = Bands()
    bands.start(model.starts)
    no = np.zeros(1, np.bool_)
    told = [model.outlook(r).adjusted(r.context_key, no, bands).spread[0] for r in (near, far)]
    assert told[1] > 0.1
    loaded = Model.load(study(), features, model.dump())
    assert loaded.outlook(far).adjusted(far.context_key, no, bands).spread[0] == told[1]
