"""One job: physics, noise, troubles, and what of it is the same every time."""

import math
from typing import Any

import numpy as np
import pytest

from tunerd.core.observation import Status
from tunerd.core.space import SearchSpace
from tunerd.core.study import Study
from tunerd.core.study_file import parse_study
from tunerd.lab.simulation.shipped import demo_contexts, shipped_study
from tunerd.lab.simulation.simulator import (
    FaultModel,
    SimulatedRun,
    columns_of,
    job_rng,
    simulator_for,
)

CALM = FaultModel(noise=0.0, gpu_hours_per_failure=math.inf, preempted=0.0)
UNIFORM: dict[str, Any] = {
    "sharding": ["SHARD_GRAD_OP"] * 8,
    "hbm_reserved": 0.8,
    "row_wise_tables": 36,
}


def run(study: Study, troubles: FaultModel, index: int = 0, **changes: Any) -> SimulatedRun:
    context = demo_contexts(study.name)[0]
    config = {**UNIFORM, **changes}
    return simulator_for(study, troubles).run(context, config, job_rng(7, context, config, index))


def test_without_troubles_a_job_measures_what_is_expected(ads: Study) -> None:
    outcome = run(ads, CALM)
    expected = simulator_for(ads).expected(demo_contexts("ads-fsdp")[0], [UNIFORM])[0]
    assert outcome.status is Status.SUCCEEDED
    assert outcome.metrics["qps"] == pytest.approx(expected, rel=1e-5)
    assert 0 < outcome.measured_s < outcome.duration_s
    assert ads.score(outcome.metrics) is not None


def test_the_same_job_runs_the_same_twice_and_the_next_one_differs(ads: Study) -> None:
    assert run(ads, FaultModel()) == run(ads, FaultModel())
    assert run(ads, FaultModel(), index=1).metrics != run(ads, FaultModel()).metrics


def test_noise_has_the_spread_it_is_told(ads: Study) -> None:
    troubles = FaultModel(noise=0.05, gpu_hours_per_failure=math.inf, preempted=0.0)
    speeds = np.log([run(ads, troubles, index=i).metrics["qps"] for i in range(400)])
    assert speeds.std() == pytest.approx(0.05, rel=0.2)  # 4 standard errors of 400 draws: 14 %
    assert speeds.mean() == pytest.approx(np.log(run(ads, CALM).metrics["qps"]), abs=0.0125)


def test_out_of_memory_measures_nothing(ads: Study) -> None:
    outcome = run(ads, CALM, sharding=["NO_SHARD"] * 8)
    assert outcome.status is Status.OUT_OF_MEMORY
    assert outcome.metrics == {}
    assert outcome.measured_s == 0


def test_troubles_end_jobs_without_metrics(ads: Study) -> None:
    preempted = run(ads, FaultModel(preempted=1.0))
    broken = run(ads, FaultModel(gpu_hours_per_failure=1e-6))
    assert preempted.status is Status.PREEMPTED
    assert broken.status is Status.NODE_FAILURE
    assert preempted.metrics == broken.metrics == {}


def test_what_cannot_start_fails() -> None:
    study = parse_study(shipped_study("llm-pretrain"))
    context = {**demo_contexts("llm-pretrain")[0], "gpu": "A100"}
    config = study.baseline(demo_contexts("llm-pretrain")[0])
    assert config is not None
    outcome = simulator_for(study, CALM).run(context, config, np.random.default_rng(0))
    assert outcome.status is Status.FAILED


def test_expected_is_the_same_for_columns_and_configurations(study: Study) -> None:
    context = demo_contexts(study.name)[0]
    space, simulator = SearchSpace(study, context), simulator_for(study)
    codes = space.sample(200, np.random.default_rng(1))
    configs = [space.decode(row) for row in codes]
    of_codes = simulator.expected(context, space.columns(codes))
    of_configs = simulator.expected(context, configs)
    np.testing.assert_array_equal(of_codes, of_configs)
    assert 0.3 < np.isnan(of_codes).mean() < 0.8  # many random jobs die, not nearly all


def test_a_broken_guard_counts_as_not_running() -> None:
    text = shipped_study("llm-pretrain")
    context = demo_contexts("llm-pretrain")[0]
    strict = parse_study(text.replace("max = 0.96", "max = 0.5"))
    codes = SearchSpace(strict, context).sample(200, np.random.default_rng(1))
    columns = SearchSpace(strict, context).columns(codes)
    simulator = simulator_for(strict)
    measured, expected = simulator.measure(context, columns), simulator.expected(context, columns)
    roomy = measured.runs & (measured.metrics["peak_memory_share"] <= 0.5)
    np.testing.assert_array_equal(~np.isnan(expected), roomy)
    assert 0 < roomy.sum() < measured.runs.sum()


def test_studies_that_nobody_simulates_are_refused(ads: Study) -> None:
    other = parse_study(shipped_study("ads-fsdp").replace('"ads-fsdp"', '"bakery"'))
    with pytest.raises(ValueError, match=r"bakery.*ads-fsdp, llm-pretrain"):
        simulator_for(other)
    with pytest.raises(ValueError, match=r"config\.hbm_reserved"):
        columns_of(ads, [{"sharding": "FULL_SHARD", "row_wise_tables": 0}])
    with pytest.raises(ValueError, match=r"config\.sharding"):
        columns_of(ads, [{**UNIFORM, "sharding": ["FULL_SHARD"] * 7}])
