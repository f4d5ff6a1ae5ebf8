"""Which jobs are left out of fits."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.tuning import random_jobs, study
from tunerd.core.features import FeatureMap
from tunerd.core.predictors.folds import (
    ENOUGH,
    FEW_ROWS,
    MOST_KEPT,
    MOST_LEFT,
    ONE_IN,
    TURNS,
    all_but_few,
    apart,
)

TOY = study()
FEATURES = FeatureMap(TOY)
ROWS = FEATURES.rows(random_jobs(ENOUGH * ONE_IN, 0))


@pytest.mark.slow
@given(st.integers(10, 300), st.integers(0, 5))
def test_each_context_is_left_out_once_whole_and_no_row_alone_twice(n: int, seed: int) -> None:
    rows = ROWS.take(np.arange(n))
    folds = list(apart(rows, FEATURES, seed))
    for fold in folds:
        assert sorted([*fold.held, *fold.kept]) == list(range(n))
        assert len(fold.kept) >= FEW_ROWS
        assert len(fold.held)
        seen = {rows.context_key[i] for i in fold.kept}
        assert not seen & fold.without
        if fold.without:
            assert {rows.context_key[i] for i in fold.held} == fold.without
    gone = [key for fold in folds for key in fold.without]
    assert len(gone) == len(set(gone))
    alone = [i for fold in folds if not fold.without for i in fold.held]
    assert len(alone) == len(set(alone))
    assert len(alone) >= TURNS * (n // ONE_IN)


def test_one_context_is_left_out_by_rows_alone() -> None:
    same = [i for i, key in enumerate(ROWS.context_key) if key == ROWS.context_key[0]]
    folds = list(apart(ROWS.take(np.array(same)), FEATURES, 0))
    assert len(folds) == TURNS
    assert not any(fold.without for fold in folds)


def test_of_many_rows_no_more_are_left_out_alone_than_are_needed() -> None:
    folds = [fold for fold in apart(ROWS, FEATURES, 0) if not fold.without]
    assert [len(fold.held) for fold in folds] == [ENOUGH]


@given(st.integers(0, 300), st.integers(0, 5))
def test_of_some_contexts_all_but_a_few_rows_are_left_out(n: int, seed: int) -> None:
    rows = ROWS.take(np.arange(n))
    folds = list(all_but_few(rows, FEATURES, seed))
    assert len(folds) <= 1
    assert folds or n < 12  # of fewer, one context may have nearly all
    for fold in folds:
        assert not fold.without
        assert sorted([*fold.held, *fold.kept]) == list(range(n))
        assert len(fold.kept) >= FEW_ROWS
        of, left = Counter(rows.context_key), Counter(rows.context_key[i] for i in fold.held)
        if len(of) > 3:  # contexts enough
            assert sum(of[key] for key in left) <= MOST_LEFT * n
        for key, gone in left.items():
            assert 1 <= of[key] - gone <= min(MOST_KEPT, of[key] // 2)


def test_where_there_is_one_context_it_keeps_its_rows() -> None:
    same = [i for i, key in enumerate(ROWS.context_key) if key == ROWS.context_key[0]]
    assert not list(all_but_few(ROWS.take(np.array(same)), FEATURES, 0))
