"""A table as something that jobs can be run on."""

import msgspec
import numpy as np
import pytest

from tests.core.tuning import job, renamed, study
from tests.lab.evaluation.loops import STUDY, rows
from tunerd.core.observation import Status, Value
from tunerd.core.study_file import parse_study
from tunerd.errors import MisconfiguredError
from tunerd.lab.evaluation.tabular import measured


def test_configurations_are_sorted_by_context_with_all_of_their_rows() -> None:
    table = measured(STUDY, rows())
    assert [one.context for one in table.contexts] == [{"n": 8}, {"n": 16}] or [
        one.context for one in table.contexts
    ] == [{"n": 16}, {"n": 8}]
    for one in table.contexts:
        assert len(one.configs) == 48
        assert {len(of_one) for of_one in one.rows} == {2}
        for config, of_one in zip(one.configs, one.rows, strict=True):
            assert all(dict(row.config) == config for row in of_one)
    assert table.left_out == {}


def test_how_good_a_configuration_is_is_its_mean_in_the_raw_metric() -> None:
    jobs = [
        job(i, {"n": 8}, {"x": x, "y": "a", "z": True}, speed=speed)
        for i, (x, speed) in enumerate([(1, 10.0), (1, 30.0), (2, 25.0), (3, 5.0)], 1)
    ]
    jobs.append(job(5, {"n": 8}, {"x": 4, "y": "a", "z": True}, status=Status.FAILED))
    one = measured(STUDY, jobs, 2).contexts[0]
    assert np.exp(one.scores[:3]) == pytest.approx([20.0, 25.0, 5.0])
    assert np.isnan(one.scores[3])
    assert one.regrets == pytest.approx([0.2, 0.0, 0.8, 1.0])


def test_a_configuration_of_which_most_runs_fail_does_not_run() -> None:
    half: dict[str, Value] = {"x": 1, "y": "a", "z": True}
    less: dict[str, Value] = {"x": 2, "y": "a", "z": True}
    jobs = [
        *(job(i, {"n": 8}, half, speed=10.0) for i in (1, 2)),
        *(job(i, {"n": 8}, half, status=Status.OUT_OF_MEMORY) for i in (3, 4)),
        job(5, {"n": 8}, less, speed=99.0),
        *(job(i, {"n": 8}, less, status=Status.FAILED) for i in (6, 7)),
    ]
    assert measured(STUDY, jobs, 2).contexts[0].regrets == pytest.approx([0.0, 1.0])


def test_regret_of_what_is_to_be_small_is_relative_to_the_smallest_and_at_most_1() -> None:
    less = parse_study(STUDY.text.replace('"maximize"', '"minimize"'))
    jobs = [
        job(x, {"n": 8}, {"x": x, "y": "a", "z": True}, speed=speed)
        for x, speed in enumerate([10.0, 12.0, 500.0], 1)
    ]
    assert measured(less, jobs, 2).contexts[0].regrets == pytest.approx([0.0, 0.2, 1.0])


def test_a_run_that_breaks_a_guard_has_not_run() -> None:
    guarded = parse_study(STUDY.text + "\n[guards]\nhbm = { max = 80 }\n")
    jobs = [
        msgspec.structs.replace(
            job(x, {"n": 8}, {"x": x, "y": "a", "z": True}),
            metrics={"speed": 10.0 * x, "hbm": hbm},
        )
        for x, hbm in ((1, 70.0), (2, 75.0), (3, 99.0))
    ]
    one = measured(guarded, jobs, 2).contexts[0]
    assert one.told(one.rows[2][0]) == (None, False)
    assert one.regrets == pytest.approx([0.5, 0.0, 1.0])


def test_what_takes_no_part_is_counted() -> None:
    config: dict[str, Value] = {"x": 1, "y": "a", "z": True}
    more = [
        job(1, {"n": 8}, config, status=Status.CANCELLED),
        job(2, {"n": 8}, {"x": 9, "y": "a", "z": True}, speed=1.0),
        job(3, {"n": 1}, {"x": 2, "y": "a", "z": True}, speed=1.0),
        job(4, {"n": 4}, config, speed=1.0),
    ]
    table = measured(STUDY, rows((8,)) + more)
    assert len(table.contexts) == 1
    assert len(table.contexts[0].configs) == 48
    assert table.left_out == {
        "the job says nothing about its configuration": 1,
        "the study does not allow the configuration": 2,
        "the context has fewer than 40 configurations": 1,
    }
    failed = [
        job(x, {"n": 2}, {"x": 1, "y": y, "z": True}, status=Status.FAILED)
        for x, y in enumerate("abc", 1)
    ]
    assert measured(STUDY, failed, 2).left_out == {"nothing ran in the context": 3}


def test_a_missing_value_is_a_value_of_its_own() -> None:
    free = parse_study(STUDY.text.replace('fits = "x <= n"', ""))
    configs: list[dict[str, Value]] = [
        {"x": 1, "y": "a", "z": True},
        {"y": "a", "z": True},
        {"x": 1, "y": "a"},
    ]
    jobs = [job(i, {"n": 8}, config, speed=1.0) for i, config in enumerate(configs, 1)]
    one = measured(free, jobs, 2).contexts[0]
    assert [c["x"] for c in one.configs] == [1, None, 1]
    assert [c["z"] for c in one.configs] == [True, True, None]
    # A constraint that a missing value leaves undefined rules the configuration out.
    assert len(measured(study(), jobs, 2).contexts[0].configs) == 2


def test_configurations_of_older_jobs_are_what_they_are_called_now() -> None:
    before, after = (measured(one, rows((8,))) for one in (STUDY, renamed()))
    assert after.left_out == before.left_out == {}
    names = [
        {"ex": config["x"], "y": config["y"], "z": config["z"]}
        for config in (before.contexts[0].configs)
    ]
    assert list(after.contexts[0].configs) == names
    added = parse_study(
        STUDY.text.replace("[constraints]", "w = { type = 'bool', absent = true }\n[constraints]")
    )
    assert {config["w"] for config in measured(added, rows((8,))).contexts[0].configs} == {True}


def test_runs_draw_every_row_before_one_comes_again_the_same_for_everyone() -> None:
    one = measured(STUDY, rows(repeats=4)).contexts[0]
    drawn = [one.row(7, time, seed=3).event_id for time in range(8)]
    assert set(drawn[:4]) == {row.event_id for row in one.rows[7]}
    assert drawn[4:] == drawn[:4]
    assert drawn == [one.row(7, time, seed=3).event_id for time in range(8)]
    orders = {tuple(one.row(7, time, seed).event_id for time in range(4)) for seed in range(20)}
    assert len(orders) > 5


def test_the_start_is_distinct_and_depends_on_context_and_seed() -> None:
    first, second = measured(STUDY, rows()).contexts
    assert len(set(first.start(15, 0))) == 15
    assert first.start(15, 0) == first.start(15, 0)
    assert first.start(5, 0) == first.start(15, 0)[:5]
    assert first.start(15, 0) != first.start(15, 1)
    assert first.start(15, 0) != second.start(15, 0)


def test_the_jobs_of_others_are_renumbered_and_leave_the_target_out() -> None:
    table = measured(STUDY, rows((4, 8, 16)))
    target = table.contexts[0]
    others = table.others(target)
    assert [row.sequence for row in others] == list(range(1, len(others) + 1))
    assert {row.context["n"] for row in others} == {4, 8, 16} - {target.context["n"]}
    assert [row.event_id for row in others] == [
        row.event_id for row in rows((4, 8, 16)) if row.context["n"] != target.context["n"]
    ]


def test_a_whole_group_may_be_unknown() -> None:
    both = parse_study(STUDY.text.replace("[context]", '[context]\napp = { type = "category" }'))
    jobs = [
        msgspec.structs.replace(row, context={**row.context, "app": app})
        for app in ("one", "two")
        for row in rows()
    ]
    table = measured(both, jobs)
    assert len(table.contexts) == 4
    for target in table.contexts:
        assert {r.context["app"] for r in table.others(target)} == {"one", "two"}
        unlike = table.others(target, unknown="app")
        assert {r.context["app"] for r in unlike} == {"one", "two"} - {target.context["app"]}
        assert len(unlike) == len(jobs) / 2
    with pytest.raises(MisconfiguredError, match="no context feature 'gpu'; there are app, n"):
        table.others(table.contexts[0], unknown="gpu")
