"""A study that changes keeps its history: renamed, added, removed, widened."""

import numpy as np
import pytest

from tests.core.tuning import TEXT, Inline, changed, job, random_jobs
from tunerd.core.observation import Value
from tunerd.core.study import Study
from tunerd.core.study_file import parse_study
from tunerd.core.tuner import Tuner
from tunerd.errors import MisconfiguredError

JOBS = random_jobs(120)
KEY = "toy|n=8"


def learned(study: Study) -> Tuner:
    tuner = Tuner(study, Inline())
    tuner.gather(JOBS)
    tuner.catch_up()
    return tuner


def known(tuner: Tuner, key: str = KEY) -> dict[str, tuple[int, float]]:
    """Runs and mean score by configuration id."""
    trials = tuner.contexts[key].evidence.trials
    return {name: (trial.runs, trial.mean) for name, trial in trials.items()}


RENAMED = (
    (
        'x = { type = "int", values = [1, 2, 3, 4, 5, 6, 7, 8] }',
        'ex = { type = "int", values = [1, 2, 3, 4, 5, 6, 7, 8], was = ["older", "x"] }',
    ),
    ('fits = "x <= n"', 'fits = "ex <= n"'),
    ("config = { x = 1,", "config = { ex = 1,"),
)


@pytest.mark.slow
def test_a_renamed_parameter_keeps_everything_known_of_its_configurations() -> None:
    before, after = learned(parse_study(TEXT)), learned(changed(*RENAMED))
    assert sorted(known(after).values()) == sorted(known(before).values())
    for trial in after.contexts[KEY].evidence.trials.values():
        assert set(trial.config) == {"ex", "y", "z"}
    np.testing.assert_array_equal(after.features.rows(JOBS).X, before.features.rows(JOBS).X)
    # New jobs come under the new name, and mean the same; who has both names goes by the new one.
    rest: dict[str, Value] = {"y": "a", "z": True}
    old, new = job(1, {"n": 8}, {"x": 5} | rest), job(2, {"n": 8}, {"ex": 5} | rest)
    both = job(3, {"n": 8}, {"ex": 5, "x": 1} | rest)
    X = after.features.rows([old, new, both]).X
    np.testing.assert_array_equal(X[0], X[1])
    np.testing.assert_array_equal(X[0], X[2])


@pytest.mark.slow
def test_a_renamed_context_feature_changes_the_key_and_nothing_else() -> None:
    before = learned(parse_study(TEXT))
    after = learned(
        changed(
            (
                'n = { type = "int", scale = "log" }',
                'gpus = { type = "int", scale = "log", was = "n" }',
            ),
            ('fits = "x <= n"', 'fits = "x <= gpus"'),
        )
    )
    assert set(after.contexts) == {"toy|gpus=4", "toy|gpus=8", "toy|gpus=16"}
    assert sorted(known(after, "toy|gpus=8").values()) == sorted(known(before).values())


@pytest.mark.slow
def test_an_added_parameter_has_in_old_jobs_what_the_study_says() -> None:
    plain = changed(("z = { type", 'w = { type = "int", values = [1, 2] }\nz = { type'))
    said = changed(("z = { type", 'w = { type = "int", values = [1, 2], absent = 1 }\nz = { type'))
    unknown, given = learned(plain), learned(said)
    place = [column.name for column in given.features.columns].index("w")
    assert np.isnan(unknown.features.rows(JOBS).X[:, place]).all()
    assert (given.features.rows(JOBS).X[:, place] == 1).all()
    # So the old jobs' configurations lie in the new space, and one of them is the incumbent.
    assert all(trial.config["w"] == 1 for trial in given.contexts[KEY].evidence.trials.values())
    assert given.advise(KEY, None).incumbent is not None
    assert unknown.advise(KEY, None).incumbent is None


def test_what_is_absent_may_lie_outside_the_space_and_be_a_list() -> None:
    study = changed(
        (
            "z = { type",
            'w = { type = "category", values = ["p", "q"], repeat = 2, absent = "none" }\n'
            'v = { type = "int", values = [1, 2], repeat = 2, absent = [0, 7] }\nz = { type',
        )
    )
    named = study.named(JOBS[0].config)
    assert (named["w"], named["v"]) == ("none", [0, 7])
    columns = study.columns([{}], [JOBS[0].config])
    assert columns["v"].values.tolist() == [[0, 7]]


def test_a_context_feature_that_old_jobs_do_not_have() -> None:
    after = learned(
        changed(("[parameters]", 'gpu = { type = "category", absent = "A100" }\n[parameters]'))
    )
    assert set(after.contexts) == {f"toy|gpu=A100|n={n}" for n in (4, 8, 16)}


@pytest.mark.parametrize("kind", ["int", "float", "bool", "category"])
def test_a_context_feature_that_no_job_has_yet(kind: str) -> None:
    after = learned(changed(("[parameters]", f'm = {{ type = "{kind}" }}\n[parameters]')))
    assert set(after.contexts) == {f"toy|m=~|n={n}" for n in (4, 8, 16)}
    assert after.advise("toy|m=~|n=8", None).incumbent is not None


@pytest.mark.slow
def test_a_removed_parameter_and_widened_values() -> None:
    before = learned(parse_study(TEXT))
    removed = learned(changed(('z = { type = "bool" }\n', ""), (", z = false }", " }")))
    assert removed.contexts[KEY].evidence.jobs == before.contexts[KEY].evidence.jobs
    assert len(known(removed)) < len(known(before))  # what differed in z alone is one now
    wider = learned(
        changed(("values = [1, 2, 3, 4, 5, 6, 7, 8]", "values = [1, 2, 3, 4, 5, 6, 7, 8, 9]"))
    )
    assert known(wider) == known(before)


@pytest.mark.parametrize(
    ("old", "new", "where", "said"),
    [
        ("z = { type", 'z = { was = "x", type', "parameters.z.was", "'x' is the name of an entry"),
        ("z = { type", 'z = { was = "z", type', "parameters.z.was", "'z' is its own name today"),
        (
            "z = { type",
            'v = { was = "a", type = "bool" }\nz = { was = "a", type',
            "parameters.z.was",
            "earlier name of 'v', too",
        ),
        ("z = { type", "z = { absent = 3, type", "parameters.z.absent", "should be true or false"),
        (
            "z = { type",
            "z = { absent = [true, false], type",
            "parameters.z.absent",
            "has 2 values; it is a single value",
        ),
        ("n = { type", 'n = { absent = "x", type', "context.n.absent", "should be an integer"),
        ("n = { type", "n = { was = 3, type", "context.n.was", ""),
    ],
)
def test_mistakes(old: str, new: str, where: str, said: str) -> None:
    with pytest.raises(MisconfiguredError) as caught:
        changed((old, new))
    (problem,) = caught.value.problems
    assert problem.where.endswith(where)
    assert said in problem.message
