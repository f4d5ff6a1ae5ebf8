"""What is special about single configurations, and repeats from context to context."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunerd.core.arrays import FloatArray
from tunerd.core.features import FeatureMap, FeatureRows
from tunerd.core.predictors.base import Predictor
from tunerd.core.predictors.boosted_trees import BoostedTrees
from tunerd.core.predictors.config_effects import MOST, ConfigEffects
from tunerd.core.predictors.members import MEMBERS
from tunerd.core.scores import kendall
from tunerd.core.space import SearchSpace
from tunerd.core.study_file import parse_study

KERNEL = parse_study("""
schema = 1
name = "kernel"
[objective]
metric = "speed"
goal = "maximize"
[context]
size = { type = "int", scale = "log" }
generation = { type = "int" }
[parameters]
a = { type = "int", values = [1, 2, 4, 8, 16, 32] }
b = { type = "int", values = [1, 2, 4, 8, 16, 32] }
c = { type = "int", values = [1, 2, 4, 8, 16] }
d = { type = "category", values = ["i", "j", "k", "l", "m"] }
""")
FEATURES = FeatureMap(KERNEL)
COUNT = 900
"""Configurations of it."""


def rows(size: int, score: FloatArray, generation: int = 1, first: int = 0) -> FeatureRows:
    """One job of each configuration, or of as many as there are scores, beginning with one."""
    space = SearchSpace(KERNEL, {"size": size, "generation": generation})
    codes = space.table(COUNT)
    assert codes is not None
    assert len(codes) == COUNT
    found = FEATURES.candidates(space, codes[first : first + len(score)])
    return replace(found, score=score)


def joined(*parts: FeatureRows) -> FeatureRows:
    found = parts[0]
    for part in parts[1:]:
        found = found.joined(part)
    return found


def fitted(known: FeatureRows) -> ConfigEffects:
    """Of one member, which saw every row."""
    return ConfigEffects.fit(FEATURES, known, known.score[:, None], np.ones(len(known), np.int64))


def share_told(found: ConfigEffects, asked: FeatureRows) -> float:
    rest = asked.score - asked.score.mean()
    return 1.0 - float(np.mean((rest - found.of(asked.X)[0]) ** 2) / np.mean(rest**2))


HEART = {"networks": 0.6}
"""They learn by heart what they see, the noise of a run as well."""


@pytest.mark.slow
@pytest.mark.parametrize("name", MEMBERS)
def test_what_single_configurations_did_elsewhere_carries_to_a_new_context(name: str) -> None:
    """As with kernels: hundreds of the same configurations in each context, and no two that are
    neighbours alike."""
    rng = np.random.default_rng(0)
    special = rng.normal(size=COUNT)
    *known, asked = (
        rows(size, np.log(size) + special + 0.3 * rng.normal(size=COUNT))
        for size in (64, 128, 256, 512)
    )
    member: type[Predictor] = MEMBERS[name]
    found = member.fit(KERNEL, FEATURES, joined(*known), 1)
    assert kendall(found.predict(asked).mean, asked.score) > HEART.get(name, 0.72)
    again = member.load(KERNEL, FEATURES, found.dump())
    assert (again.predict(asked).mean == found.predict(asked).mean).all()


@pytest.mark.slow
def test_what_is_special_is_told_of_all_parameters_of_a_configuration() -> None:
    rng = np.random.default_rng(8)
    special = rng.normal(size=COUNT)
    known = joined(*(rows(n, special + 0.1 * rng.normal(size=COUNT)) for n in (8, 16, 32)))
    trees = BoostedTrees.fit(KERNEL, FEATURES, known, 1)
    asked = rows(64, special)
    added, level = trees.contributions(asked)
    constant = trees.predict(asked).mean - added.sum(axis=1) - level
    assert np.ptp(constant) < 1e-9
    assert np.std(added[:, 2:], axis=0).min() > 0.1


def test_it_is_drawn_to_nothing_by_how_little_it_repeats() -> None:
    rng = np.random.default_rng(1)
    special = rng.normal(size=COUNT)
    for noise, most in ((0.1, 1.0), (1.0, 0.8)):
        *known, asked = (rows(n, special + noise * rng.normal(size=COUNT)) for n in (8, 16, 32, 64))
        found = fitted(joined(*known))
        told = share_told(found, replace(asked, score=special))
        assert 0.6 < told < most
        # What is said is as large as it should be: neither noise taken for news, nor timid.
        said, _ = found.of(asked.X)
        assert 0.85 < float(said @ special / (said @ said)) < 1.25


def test_members_that_learned_by_heart_hide_no_effect() -> None:
    """Each tells a configuration by most of its mean over the contexts in which it saw it. What
    that leaves in those sums to next to nothing, and only where it was not seen does anybody see
    that it repeats."""
    rng = np.random.default_rng(9)
    special = rng.normal(size=COUNT)
    *known, asked = (special + np.sqrt(0.1) * rng.normal(size=COUNT) for _ in range(4))
    score, members, by_heart = np.stack(known), 5, 0.8
    unseen = rng.integers(members, size=score.shape)
    said = [
        by_heart * np.average(score, axis=0, weights=(unseen != m) + 1e-9) for m in range(members)
    ]
    rest = score - np.stack(said)[:, None]
    jobs = joined(*(rows(size, one) for size, one in zip((2, 64, 2048), score, strict=True)))
    each = rest.reshape(members, -1).T
    blind = ConfigEffects.fit(FEATURES, jobs, each, np.full(len(jobs), members))
    seeing = ConfigEffects.fit(FEATURES, jobs, each, unseen.ravel())
    assert blind.left == 1.0
    assert seeing.left < 0.95
    # Who has seen one of two runs of a configuration has seen it.
    other = (unseen.ravel() + 1) % members
    runs = joined(jobs, jobs), np.tile(each, (2, 1)), np.append(other, unseen.ravel())
    assert ConfigEffects.fit(FEATURES, *runs).left == 1.0
    later = rows(65_536, asked)
    off = asked - np.mean(said, axis=0)
    assert np.mean((off - seeing.of(later.X)[0]) ** 2) < 0.95 * np.mean(off**2)


def test_contexts_alike_are_asked_first() -> None:
    rng = np.random.default_rng(2)
    on = {generation: rng.normal(size=COUNT) for generation in (1, 2)}
    known = [rows(n, on[g] + 0.1 * rng.normal(size=COUNT), g) for n in (8, 16, 32, 64) for g in on]
    found = fitted(joined(*known))
    for generation, special in on.items():
        assert share_told(found, rows(24, special, generation)) > 0.9


@pytest.mark.slow
@given(st.integers(0, 10_000), st.integers(2, 12), st.integers(1, 60))
def test_an_effect_is_never_larger_than_what_it_stands_on(
    seed: int, contexts: int, jobs: int
) -> None:
    rng = np.random.default_rng(seed)
    known = joined(*(rows(2**n, rng.normal(size=jobs)) for n in range(contexts)))
    found = fitted(known)
    effects, wider = found.of(rows(2**20, rng.normal(size=jobs)).X)
    assert np.isfinite(effects).all()
    assert np.abs(effects).max() <= np.abs(found.rest).max(initial=0.0)
    assert (wider == 1.0).all()


@pytest.mark.slow
def test_of_five_hundred_studies_without_effects_hardly_any_is_told_one() -> None:
    """Half of them have a few wild jobs (Student's t of two degrees)."""
    told = 0
    for seed in range(500):
        rng = np.random.default_rng(seed)
        contexts, jobs = int(rng.integers(2, 13)), int(rng.integers(2, 61))
        luck = rng.standard_t(2 if seed % 2 else 1_000, size=(contexts, jobs))
        known = joined(*(rows(2**n, one) for n, one in enumerate(luck)))
        told += fitted(known).left < 1.0
    assert told <= 5


def test_configurations_that_are_met_once_have_none() -> None:
    rng = np.random.default_rng(3)
    known = joined(*(rows(2**n, rng.normal(size=100), first=100 * n) for n in range(8)))
    found = fitted(known)
    assert found.left == 1.0
    effects, wider = found.of(known.X)
    assert not effects.any()
    assert (wider == 1.0).all()


def test_jobs_of_one_context_count_as_one() -> None:
    """A recommendation that ran a hundred times in its context says nothing of others."""
    rng = np.random.default_rng(4)
    special = rng.normal(size=COUNT)
    known = [rows(n, special + 0.3 * rng.normal(size=COUNT)) for n in (8, 16, 32)]
    once = fitted(joined(*known))
    often = fitted(joined(*known, *[known[0].take(np.arange(5))] * 100))
    asked = rows(64, special)
    assert np.allclose(once.of(asked.X)[0], often.of(asked.X)[0])


def test_what_it_costs_does_not_grow_with_the_contexts_of_one_configuration() -> None:
    rng = np.random.default_rng(5)
    special = rng.normal(size=3)
    known = [rows(n, special + 0.1 * rng.normal(size=3)) for n in range(1, 300)]
    found = fitted(joined(*known))
    assert len(found.rest) == 3 * MOST
    told, _ = found.of(rows(1_000, special).X)
    assert np.abs(told - (special - special.mean())).max() < 0.1


def test_the_same_bits_after_loading_and_damage_is_noticed() -> None:
    rng = np.random.default_rng(6)
    special = rng.normal(size=COUNT)
    found = fitted(joined(*(rows(n, special + rng.normal(size=COUNT)) for n in (8, 16))))
    asked = rows(32, special)
    blobs: Mapping[str, bytes] = found.dump()
    assert np.array_equal(ConfigEffects.load(blobs).of(asked.X), found.of(asked.X))
    for name in blobs:
        with pytest.raises(KeyError):
            ConfigEffects.load({k: v for k, v in blobs.items() if k != name})
        with pytest.raises(ValueError, match="damaged"):
            ConfigEffects.load({**blobs, name: blobs[name][:-1] + b"?"})


def test_of_no_jobs_there_are_none() -> None:
    effects, wider = fitted(rows(8, np.zeros(0))).of(rows(8, np.zeros(3)).X)
    assert not effects.any()
    assert (wider == 1.0).all()


@pytest.mark.slow
def test_a_configuration_that_nobody_has_run_is_told_with_less_certainty() -> None:
    rng = np.random.default_rng(9)
    special = rng.normal(size=COUNT)
    known = joined(*(rows(n, special[:600] + 0.1 * rng.normal(size=600)) for n in (8, 16, 32)))
    asked = rows(24, special)
    effects, wider = fitted(known).of(asked.X)
    assert not effects[600:].any()
    assert (wider[:600] == 1.0).all()
    assert (wider[600:] > 5.0).all()
    trees = BoostedTrees.fit(KERNEL, FEATURES, known, 1)
    spread = trees.predict(asked).std
    assert spread[600:].min() > 2.0 * np.median(spread[:600])


def test_a_missing_value_is_a_value() -> None:
    rng = np.random.default_rng(7)
    special = rng.normal(size=COUNT)
    known = joined(*(rows(n, special + 0.1 * rng.normal(size=COUNT)) for n in (8, 16)))
    X = known.X.copy()
    column = [c.name for c in FEATURES.columns].index("b")
    X[X[:, column] == 32, column] = np.nan
    found = fitted(replace(known, X=X))
    missing = np.isnan(X[:COUNT, column])
    assert float(np.corrcoef(found.of(X[:COUNT])[0][missing], special[missing])[0, 1]) > 0.9
