from collections.abc import Mapping

import numpy as np
import pytest

from benchmarks.peers.grid import Grid, as_jobs
from tests.needs import need_library
from tunerd.core.observation import Value
from tunerd.core.study_file import parse_study
from tunerd.lab.evaluation.closed_loop import BenchmarkProblem

STUDY = """
schema = 1
name = "grid"
[objective]
metric = "speed"
goal = "maximize"
unit = "1/s"
[context]
gpus = { type = "int" }
[parameters]
tp = { type = "int", scale = "log", values = [1, 2, 4, 16] }
share = { type = "float", values = [0.1, 0.2, 0.3] }
kernel = { type = "category", values = ["a", "b", "c"] }
fixed = { type = "bool", values = [false, true] }
"""
CONFIGS: tuple[Mapping[str, Value], ...] = (
    {"tp": 1, "share": 0.1, "kernel": "a", "fixed": True},
    {"tp": 4, "share": None, "kernel": "c", "fixed": True},
    {"tp": 16, "share": 0.3, "kernel": "a", "fixed": True},
)


@pytest.fixture
def problem() -> BenchmarkProblem:
    study = parse_study(STUDY)
    return BenchmarkProblem(study, {"gpus": 8}, study.context_key({"gpus": 8}), CONFIGS)


def test_numbers_go_from_0_to_1_by_their_scale_and_what_is_constant_is_left_out(
    problem: BenchmarkProblem,
) -> None:
    grid = Grid.of(problem)
    assert [d.name for d in grid.dimensions] == ["tp", "share?", "share", "kernel"]
    columns = dict(zip([d.name for d in grid.dimensions], grid.points.T.tolist(), strict=True))
    assert columns["tp"] == pytest.approx([0, 0.5, 1])
    assert columns["share"] == pytest.approx([0, 0.5, 1]), "what is missing stands in the middle"
    assert columns["share?"] == [0, 1, 0]
    assert columns["kernel"] == [0, 1, 0]
    assert grid.one_hot.shape == (3, 6)


def test_the_nearest_is_the_one_that_differs_least(problem: BenchmarkProblem) -> None:
    grid = Grid.of(problem)
    everything = np.arange(3)
    for index, point in enumerate(grid.points):
        assert grid.nearest(point, everything) == index
    assert grid.nearest(grid.points[0], np.array([1, 2])) == 2, "same kernel, nothing missing"


def test_configurations_as_jobs_say_nothing_of_how_they_went(problem: BenchmarkProblem) -> None:
    jobs = as_jobs(problem)
    assert [job.config for job in jobs] == list(CONFIGS)
    assert not any(job.metrics for job in jobs)


def test_log_expected_improvement_is_exact_and_goes_on_far_below() -> None:
    need_library("sklearn")
    from benchmarks.peers.optimizers.surrogate import log_expected_improvement

    draws = np.random.default_rng(0).normal(size=400_000)
    for mean, sd, best in ((0.0, 1.0, 0.5), (1.0, 0.3, 0.8), (-1.0, 0.5, 0.2)):
        told = log_expected_improvement(np.array([mean]), np.array([sd]), best)
        assert np.exp(told[0]) == pytest.approx(
            np.maximum(mean + sd * draws - best, 0).mean(), rel=0.03
        )
    far = log_expected_improvement(-np.arange(3.0, 60.0), np.ones(57), 0.0)
    assert np.all(np.isfinite(far))
    assert np.all(np.diff(far) < 0)
