"""Which jobs are left out of fits."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.core.tuning import random_jobs, study
from tunerd.core.features import FeatureMap
from tunerd.core.folds import ENOUGH, FEW_ROWS, ONE_IN, TURNS, apart

TOY = study()
FEATURES = FeatureMap(TOY)
ROWS = FEATURES.rows(random_jobs(ENOUGH * ONE_IN, 0))


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
