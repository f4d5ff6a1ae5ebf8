"""Whatever jobs come, and however they lie over contexts, a model learns them and answers."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from tests.core.tuning import job, study
from tunerd.core.features import FeatureMap
from tunerd.core.model.model import StudyModel
from tunerd.core.observation import Observation, Status
from tunerd.core.predictors import PREDICTORS
from tunerd.core.study_file import parse_study

STUDY = study()
FEATURES = FeatureMap(STUDY)
ENDED = [Status.SUCCEEDED, Status.SUCCEEDED, Status.OUT_OF_MEMORY, Status.FAILED, Status.CANCELLED]
JOBS = st.builds(
    lambda x, y, z, status, speed: job(
        1,
        {"n": 4},
        {"x": x, "y": y, "z": z},
        speed=speed if status is Status.SUCCEEDED else None,
        status=status,
    ),
    st.integers(1, 4),
    st.sampled_from("abc"),
    st.booleans(),
    st.sampled_from(ENDED),
    st.floats(1e-6, 1e9) | st.just(100.0),
)
CONTEXTS = st.lists(st.lists(JOBS, min_size=1, max_size=20), min_size=1, max_size=3)


@pytest.mark.slow
@pytest.mark.parametrize("name", PREDICTORS)
@given(contexts=CONTEXTS, share=st.floats(0, 1))
@settings(max_examples=30)
def test_any_jobs_are_learned(name: str, contexts: list[list[Observation]], share: float) -> None:
    toy = replace(STUDY, predictor=replace(STUDY.predictor, name=name))
    jobs = [
        structs.replace(one, context={"n": 4 * 2**place})
        for place, there in enumerate(contexts)
        for one in there
    ]
    rows, known = FEATURES.rows(jobs), int(share * len(jobs))
    model = StudyModel.fit(toy, FEATURES, rows.take(np.arange(known)), known)
    for _ in range(2):
        seen = model.outlook(rows)
        assert np.isfinite(seen.mean).all()
        assert np.isfinite(seen.std).all()
        assert (seen.std > 0).all()
        assert ((seen.p_run >= 0) & (seen.p_run <= 1)).all()
        model.update(rows.take(np.arange(known, len(rows))), rows, len(rows))


SPEEDS = {"A": 100.0, "B": 200.0, "C": 400.0, "D": 800.0, "between": 280.0, "beyond": 1_600.0}
LOOKED_UP = f"""
schema = 1
name = "gpus"
objective = {{ metric = "speed", goal = "maximize" }}
context.gpu = {{ type = "category" }}
{"".join(f"lookup.gpu.{name}.tflops = {speed}" + chr(10) for name, speed in SPEEDS.items())}
parameters.tp = {{ type = "int", values = [1, 2, 4, 8] }}
"""


@pytest.mark.slow
@pytest.mark.parametrize("predictor", ["committee", "gaussian_process"])
def test_lookups_carry_to_hardware_that_nobody_has_run(predictor: str) -> None:
    gpus, rng = parse_study(LOOKED_UP), np.random.default_rng(0)
    gpus = replace(gpus, predictor=replace(gpus.predictor, name=predictor))
    features, jobs = FeatureMap(gpus), []
    for i in range(100):
        tp = int(rng.choice([1, 2, 4, 8]))
        speed = SPEEDS["ABCD"[i % 4]] * (1.0 - 0.1 * abs(tp - 2)) * np.exp(0.03 * rng.normal())
        jobs.append(job(i + 1, {"gpu": "ABCD"[i % 4]}, {"tp": tp}, speed=float(speed)))
    model = StudyModel.fit(gpus, features, features.rows(jobs), len(jobs))
    asked = [job(1, {"gpu": name}, {"tp": 2}) for name in ("between", "beyond")]
    between, beyond = np.exp(model.outlook(features.rows(asked)).mean)
    assert between == pytest.approx(SPEEDS["between"], rel=0.1)
    assert beyond > 1.2 * SPEEDS["D"]
