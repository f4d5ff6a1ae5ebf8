"""Optuna's samplers, by name."""

import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest

from tests.contracts.test_searcher import LAYERS, SPACES, separable
from tests.needs import need_library
from tunerd.core.searchers.base import SearchBudget
from tunerd.core.searchers.optuna import MOST_ASKED, OptunaOptions, OptunaSearcher
from tunerd.core.study_file import parse_study
from tunerd.errors import MisconfiguredError

OPTIONS = replace(LAYERS.search, searcher="optuna")


def text(table: str) -> str:
    return f'{LAYERS.text}\n[search]\nsearcher = "optuna"\n{table}'


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sampler", "evaluations"),
    [
        ("BruteForceSampler", 40),
        ("CmaEsSampler", 60),
        ("GPSampler", 11),
        ("NSGAIISampler", 80),
        ("NSGAIIISampler", 80),
        ("QMCSampler", 80),
        ("RandomSampler", 80),
        ("TPESampler", 80),
    ],
)
def test_a_study_chooses_its_sampler(sampler: str, evaluations: int) -> None:
    need_library("optuna", "optuna")
    if sampler == "GPSampler":
        need_library("torch", "trainers")
    study = parse_study(text(f'sampler = "{sampler}"\nseeds = [1]'))
    space = SPACES["wide rule"]
    found = OptunaSearcher(study.search).search(
        space, separable(space), np.random.default_rng(1), SearchBudget(evaluations, 5)
    )
    assert 0 < len(found.codes) <= 5
    assert found.evaluations == evaluations
    assert space.feasible(found.codes).all()


@pytest.mark.slow
def test_cma_es_learns_what_is_good() -> None:
    need_library("cmaes", "optuna")
    space = SPACES["wide rule"]
    score = separable(space)
    options = replace(OPTIONS, own=(OptunaOptions(sampler="CmaEsSampler"),), seeds=(1,))
    found = OptunaSearcher(options).search(
        space, score, np.random.default_rng(1), SearchBudget(300, 1)
    )
    drawn = score(space.sample(2_000, np.random.default_rng(2)))
    assert found.scores[0] > drawn.mean() + 3 * drawn.std()


def test_a_slow_sampler_is_asked_so_often_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    need_library("optuna", "optuna")
    monkeypatch.setitem(MOST_ASKED, "RandomSampler", 20)
    space = SPACES["wide rule"]
    options = replace(OPTIONS, own=(OptunaOptions(sampler="RandomSampler"),))
    found = OptunaSearcher(options).search(
        space, separable(space), np.random.default_rng(1), SearchBudget(200, 5)
    )
    assert found.evaluations == 20


@pytest.mark.parametrize("sampler", ["GridSampler", "PartialFixedSampler", "BaseSampler", "tpe"])
def test_a_sampler_that_cannot_be_used_is_refused_with_those_that_can(sampler: str) -> None:
    need_library("optuna", "optuna")
    with pytest.raises(MisconfiguredError, match=f"no sampler '{sampler}'; there are .*TPESampler"):
        parse_study(text(f'sampler = "{sampler}"'))


@pytest.mark.parametrize(
    "make", [lambda: parse_study(text("")), lambda: OptunaSearcher(OPTIONS)], ids=["file", "class"]
)
def test_without_optuna_it_says_what_to_install(
    make: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    import tunerd.core.searchers.optuna as module

    monkeypatch.setattr(module, "find_spec", lambda _: None)
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MisconfiguredError, match=r"optuna.*pip install 'tunerd\[optuna\]'"):
        make()


def test_without_torch_it_says_that_one_sampler_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    import tunerd.core.searchers.optuna as module

    need_library("optuna", "optuna")
    there = find_spec
    monkeypatch.setattr(module, "find_spec", lambda name: None if name == "torch" else there(name))
    with pytest.raises(MisconfiguredError, match=r"the package torch: pip install torch"):
        parse_study(text('sampler = "GPSampler"'))
    assert parse_study(text('sampler = "TPESampler"')).search.own == (OptunaOptions(),)
