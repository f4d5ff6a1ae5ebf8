"""What the committee does beyond what every predictor promises."""

from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load, save

from tests.core.tuning import random_jobs, study, true_speed
from tunerd.core.arrays import FloatArray
from tunerd.core.estimators.codec import seal, seal_json, unseal, unseal_json
from tunerd.core.estimators.local_trees import LocalTrees
from tunerd.core.features import FeatureMap, FeatureRows
from tunerd.core.predictors.committee import ALONE, CommitteePredictor
from tunerd.core.predictors.stacking import KINDS
from tunerd.core.scores import kendall
from tunerd.core.space import SearchSpace
from tunerd.core.study_file import parse_study

pytestmark = pytest.mark.slow

TOY = study()
STEPS = parse_study("""
schema = 1
name = "steps"
[objective]
metric = "qps"
goal = "maximize"
[parameters]
a = { type = "int", low = 0, high = 19 }
b = { type = "int", low = 0, high = 19 }
c = { type = "int", low = 0, high = 19 }
d = { type = "int", low = 0, high = 19 }
""")


def every(features: FeatureMap, n: int) -> tuple[FeatureRows, FloatArray]:
    space = SearchSpace(TOY, {"n": n})
    codes = space.table(1_000)
    assert codes is not None
    speed = [true_speed({"n": n}, space.decode(code)) for code in codes]
    return features.candidates(space, codes), np.log(np.array(speed))


def test_one_context_with_few_jobs_is_a_matter_of_its_own_process() -> None:
    features = FeatureMap(TOY)
    rows = features.rows(random_jobs(300, 0))
    key = rows.context_key[0]
    mine = [i for i, k in enumerate(rows.context_key) if k == key and np.isfinite(rows.score[i])]
    few = rows.take(np.array(mine[: min(len(mine), ALONE - 1)]))
    committee = CommitteePredictor.fit(TOY, features, few, seed=1)
    assert not any(name.startswith("0.") for name in committee.dump())
    n = int(float(key.rpartition("=")[2]))
    asked, true = every(features, n)
    assert kendall(committee.predict(asked).mean, true) > 0.7
    elsewhere, true = every(features, 512 if n != 512 else 64)
    strange = committee.predict(elsewhere)
    assert kendall(strange.mean, true) > 0.5  # the only context known speaks for others too
    assert strange.std.min() >= few.score.std()


def test_where_nothing_else_is_known_trees_speak_beside_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    space = SearchSpace(STEPS, {})
    features, codes = FeatureMap(STEPS), space.sample(240, np.random.default_rng(0))
    asked = features.candidates(space, codes)
    steps = (codes > 9) @ np.array([2.0, 1.0, 0.5, 0.0])
    ran = replace(asked, score=steps).take(np.arange(40))
    committee = CommitteePredictor.fit(STEPS, features, ran, seed=1)
    both = committee.predict(asked).mean
    again = CommitteePredictor.load(STEPS, features, committee.dump())
    assert (again.predict(asked).mean == both).all()
    monkeypatch.setattr(LocalTrees, "fit", lambda *_: None)
    alone = CommitteePredictor.fit(STEPS, features, ran, seed=1).predict(asked).mean
    assert np.abs(both - steps).mean() < 0.8 * np.abs(alone - steps).mean()


def test_a_few_jobs_of_a_new_context_correct_what_others_say() -> None:
    features = FeatureMap(TOY)
    committee = CommitteePredictor.fit(TOY, features, features.rows(random_jobs(200, 0)), seed=1)
    asked, true = every(features, 512)
    before = np.abs(committee.predict(asked).mean - (true - 1.5)).mean()
    rng = np.random.default_rng(0)
    for i in rng.permutation(len(true))[:5].tolist():
        one = asked.take(np.array([i]))
        ran = FeatureRows(
            one.X, true[[i]] - 1.5, one.ran, one.ran_weight, one.context_key, one.weight, one.margin
        )
        committee.update(ran, ran)
    said = committee.predict(asked)
    assert np.abs(said.mean - (true - 1.5)).mean() < 0.3 * before
    assert kendall(said.mean, true) > 0.7


def test_two_jobs_of_a_second_context_do_not_silence_what_the_first_one_says() -> None:
    features = FeatureMap(TOY)
    rows = features.rows(random_jobs(900, 0))
    there = np.isfinite(rows.score)
    first, second = (
        [i for i, key in enumerate(rows.context_key) if key.endswith(end) and there[i]]
        for end in ("=8", "=16")
    )
    known = rows.take(np.array([*first, *second[:2]]))
    committee = CommitteePredictor.fit(TOY, features, known, seed=1)
    asked, true = every(features, 16)
    assert len(first) >= 100
    assert kendall(committee.predict(asked).mean, true) > 0.9


def test_what_is_uncertain_goes_together_where_configurations_are_alike() -> None:
    features = FeatureMap(TOY)
    committee = CommitteePredictor.fit(TOY, features, features.rows(random_jobs(60, 0)), seed=1)
    asked, _ = every(features, 512)  # nobody has run it
    together = committee.correlations(asked)(0)
    np.testing.assert_allclose(together[0], 1.0)
    assert np.abs(together).max() <= 1.0
    places = features.coordinates(asked.X)
    far = np.linalg.norm(places - places[0], axis=1)
    assert np.corrcoef(together, far)[0, 1] < -0.3


def test_caution_that_jobs_close_by_disprove_is_kept_where_less_is_known() -> None:
    features = FeatureMap(TOY)
    rows = features.rows(random_jobs(200, 0))
    blobs = dict(CommitteePredictor.fit(TOY, features, rows, seed=1).dump())
    state, live = unseal_json(blobs["committee"]), unseal_json(blobs["live"])

    def spread(n: int, noise: float) -> FloatArray:
        told = blobs | {"live": seal_json(live | {"noise": noise})}
        told["committee"] = seal_json(state)
        return CommitteePredictor.load(TOY, features, told).predict(every(features, n)[0]).std

    known, far = (spread(n, 0.1) / spread(n, 1.0) for n in (8, 512))
    assert np.median(known) < 0.35  # √.1
    assert 0.6 < far.min() < far.max() < 1.0
    del state["usual"]
    with pytest.raises(ValueError, match="usual"):  # of a tunerd that did not know this
        spread(8, 0.1)


def test_members_that_do_not_help_are_not_asked() -> None:
    features = FeatureMap(TOY)
    committee = CommitteePredictor.fit(TOY, features, features.rows(random_jobs(400, 0)), seed=1)
    for kind in KINDS:
        shares = [weight[kind] for weight in committee.weights.named().values()]
        assert abs(sum(shares) - 1.0) < 1e-9
        assert min(shares) >= 0.0


def test_who_was_right_where_few_jobs_were_left_counts_where_a_few_are_known() -> None:
    features = FeatureMap(TOY)
    rows = features.rows(random_jobs(900, 0))
    place = {n: np.array([key.endswith(f"={n}") for key in rows.context_key]) for n in (8, 16)}
    few, many = np.flatnonzero(place[8])[:4], np.flatnonzero(place[16])
    known = rows.take(np.concatenate([few, many, np.flatnonzero(~place[8] & ~place[16])]))
    blobs = dict(CommitteePredictor.fit(TOY, features, known, seed=1).dump())

    def said(right: int, n: int) -> FloatArray:
        record = dict(load(unseal(blobs["left_out few"])))
        off = np.where(np.arange(record["mean"].shape[1]) == right, 0.0, 1.0)
        wrong = np.random.default_rng(0).normal(size=record["mean"].shape)
        record["mean"] = record["score"][:, None] + off * wrong
        told = blobs | {"left_out few": seal(save(record))}
        return CommitteePredictor.load(TOY, features, told).predict(every(features, n)[0]).mean

    few, many, new = (np.abs(said(0, n) - said(2, n)).max() for n in (8, 16, 512))
    assert few > 0.002
    assert many == new == 0.0


def test_the_more_jobs_a_context_has_the_better_it_is_predicted_and_the_surer() -> None:
    features = FeatureMap(TOY)
    rows = features.rows(random_jobs(900, 0))
    there = np.isfinite(rows.score)
    apart = np.array([key.endswith("=16") for key in rows.context_key])
    rest, own = np.flatnonzero(there & ~apart)[:150], np.flatnonzero(there & apart)
    score = rows.score.copy()
    score[apart] += 0.8 * rows.X[apart, 1]  # another context than the others
    rows = replace(rows, score=score)
    asked, true = every(features, 16)
    true = true + 0.8 * asked.X[:, 1]
    spreads, off = [], []
    for jobs in (0, 2, 40):
        known = rows.take(np.concatenate([rest, own[:jobs]]))
        said = CommitteePredictor.fit(TOY, features, known, seed=1).predict(asked)
        spreads.append(float(said.std.mean()))
        off.append(float(np.abs(said.mean - true).mean()))
    assert spreads[1] > spreads[2]  # what is known of none of it cannot tell how strange it is
    assert off[0] > off[1] > off[2]
