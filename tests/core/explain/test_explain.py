"""What matters to a model whose truth is known: speed depends on x most, then y, then z."""

from collections.abc import Sequence
from dataclasses import replace
from math import log
from typing import Literal

import numpy as np
import pytest
from msgspec import structs

from tests.core.tuning import random_jobs, renamed, study, true_speed
from tunerd.core.explain import explain_change, explain_overall
from tunerd.core.features import FeatureMap
from tunerd.core.model.model import StudyModel
from tunerd.core.observation import Observation, Value
from tunerd.core.study import Study
from tunerd.core.study_file import parse_study

JOBS = random_jobs(200)


def fitted(
    predictor: str, jobs: Sequence[Observation] = JOBS, of: Study | None = None
) -> tuple[FeatureMap, StudyModel]:
    plain = of or study()
    chosen = replace(plain, predictor=replace(plain.predictor, name=predictor))
    features = FeatureMap(chosen)
    return features, StudyModel.fit(chosen, features, features.rows(jobs), len(jobs))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("predictor", "method"),
    [
        ("boosted_trees", "shap"),
        ("boosted_trees", "permutation"),
        ("neural_ensemble", "permutation"),
    ],
)
def test_what_matters_comes_first(predictor: str, method: Literal["shap", "permutation"]) -> None:
    features, model = fitted(predictor)
    found = explain_overall(features, model, JOBS, method=method)
    names = [one.name for one in found.matters if one.group == "parameter"]
    assert names == ["x", "y", "z"]
    assert sum(one.share for one in found.matters) == pytest.approx(1.0)
    assert (found.method, found.contexts, found.within) == (method, 3, True)
    if method == "permutation":
        assert found.matters[1].kendall_tau is not None
        assert found.matters[1].kendall_tau > 0.5
    assert explain_overall(features, model, JOBS, method=method) == found


def test_shap_values_add_up_to_the_prediction() -> None:
    features, model = fitted("boosted_trees")
    rows = features.rows(JOBS)
    model.update(rows, rows, 400)  # with a correction too
    columns, level = model.predictor.contributions(rows)  # type: ignore[attr-defined]
    rest = model.predictor.predict(rows).mean - columns.sum(axis=1) - level
    assert rest == pytest.approx(np.full(len(rows), rest[0]))


@pytest.mark.slow
def test_a_value_that_says_nothing_matters_nothing() -> None:
    text = study().text.replace("z = {", 'w = { type = "bool" }\nz = {')
    rng = np.random.default_rng(5)
    jobs = [structs.replace(one, config={**one.config, "w": bool(rng.integers(2))}) for one in JOBS]
    features, model = fitted("boosted_trees", jobs, parse_study(text))
    found = explain_overall(features, model, jobs, method="permutation")
    assert found.matters[-1].name == "w"
    assert found.matters[-1].share < 0.02


@pytest.mark.slow
def test_what_was_called_otherwise_matters_as_much() -> None:
    before, after = (
        explain_overall(*fitted("boosted_trees", of=one), JOBS, method="permutation").matters
        for one in (study(), renamed())
    )
    assert {one.name for one in after} == {"gpus", "ex", "y", "z"}
    assert [one.importance for one in after] == pytest.approx([one.importance for one in before])


@pytest.mark.slow
def test_only_boosted_trees_have_shap_values() -> None:
    features, model = fitted("neural_ensemble", JOBS[:30])
    with pytest.raises(ValueError, match="permutation"):
        explain_overall(features, model, JOBS, method="shap")
    with pytest.raises(ValueError, match="objective"):
        explain_overall(features, model, [])


def test_where_every_context_is_new_parameters_are_shuffled_among_all_jobs() -> None:
    jobs = [structs.replace(one, context={"n": 8 + i}) for i, one in enumerate(random_jobs(60))]
    features, model = fitted("boosted_trees", jobs)
    found = explain_overall(features, model, jobs, method="permutation")
    assert not found.within
    assert {one.name: one for one in found.matters}["x"].importance > 0.05


def test_changes_share_the_predicted_gain() -> None:
    features, model = fitted("boosted_trees")
    context = {"n": 16}
    old: dict[str, Value] = {"x": 1, "y": "a", "z": True}
    new: dict[str, Value] = {"x": 6, "y": "c", "z": True}
    found = explain_change(features, model, context, new, [old])
    assert [one.parameter for one in found.changes] == ["x", "y"]
    assert sum(one.score for one in found.changes) == pytest.approx(found.score)
    true = {
        name: log(true_speed(context, {**old, name: new[name]}) / true_speed(context, old))
        for name in ("x", "y")
    }
    assert {one.parameter: one.score for one in found.changes} == pytest.approx(true, abs=0.1)
    assert found.exact
    assert found.gain == pytest.approx(np.expm1(found.score))


def test_of_what_may_be_zero_nothing_is_a_share() -> None:
    """Percentages of a prediction of -1e-3 were hundreds of thousands."""
    old: dict[str, Value] = {"x": 4, "y": "a", "z": True}
    best: dict[str, Value] = {"x": 6, "y": "c", "z": True}

    def explained(by: float) -> tuple[float | None, float | None, float]:
        jobs = [
            structs.replace(one, metrics={"speed": one.metrics["speed"] - by * one.context["n"]})  # type: ignore[operator]
            for one in JOBS
            if one.metrics
        ]
        features, model = fitted("boosted_trees", jobs, study(scale='"linear"'))
        found = explain_change(features, model, {"n": 16}, best, [old])
        return found.gain, found.changes[0].gain, found.score

    zero = true_speed({"n": 1}, old)
    gain, first, score = explained(by=zero)
    assert (gain, first) == (None, None)
    assert score > 100
    gain, first, _ = explained(by=0.0)
    assert gain is not None
    assert first is not None
    assert 0 < first < gain < 1


def test_the_same_configuration_has_nothing_to_explain() -> None:
    features, model = fitted("boosted_trees")
    same: dict[str, Value] = {"x": 6, "y": "c", "z": True}
    found = explain_change(features, model, {"n": 8}, same, [same])
    assert (found.changes, found.score) == ((), 0.0)
    with pytest.raises(ValueError, match="compare"):
        explain_change(features, model, {"n": 8}, same, [])


def test_without_an_incumbent_every_parameter_counts() -> None:
    features, model = fitted("boosted_trees")
    several = [one.config for one in JOBS[:20]]
    found = explain_change(features, model, {"n": 16}, {"x": 6, "y": "c", "z": True}, several)
    assert {one.parameter for one in found.changes} == {"x", "y", "z"}
    assert all(one.old is None and one.score > 0 for one in found.changes)
