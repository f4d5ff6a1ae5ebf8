"""What every store promises about versions of models."""

from dataclasses import replace

import pytest
import sqlalchemy as sa

from tests.contracts.store_data import LATER, NOW, STUDY, add_study
from tunerd.store import ModelVersion, Store

FIRST = ModelVersion(
    version=1,
    generation=1,
    checkpoint="sha256:aa",
    why="first",
    fitted_sequence=5,
    decided_sequence=5,
    took_over=True,
    decided_at=NOW,
)
REFUSED = ModelVersion(
    version=2,
    generation=1,
    checkpoint=None,
    why="grown",
    fitted_sequence=360,
    decided_sequence=424,
    took_over=False,
    detail={"contest": {"jobs": 60, "champion": {"kendall": 0.75}}},
    decided_at=LATER,
)


def test_versions_come_back_newest_first(store: Store) -> None:
    add_study(store)
    with store.transaction() as tx:
        tx.add_model(STUDY, FIRST)
        tx.add_model(STUDY, REFUSED)
    assert store.models(STUDY) == [REFUSED, FIRST]
    assert store.models("unknown") == []


def test_a_number_is_given_once(store: Store) -> None:
    add_study(store)
    with store.transaction() as tx:
        tx.add_model(STUDY, FIRST)
    with pytest.raises(sa.exc.IntegrityError), store.transaction() as tx:
        tx.add_model(STUDY, replace(REFUSED, version=1))
    assert store.models(STUDY) == [FIRST]


def test_old_versions_are_forgotten(store: Store) -> None:
    add_study(store)
    with store.transaction() as tx:
        tx.add_model(STUDY, FIRST)
        tx.add_model(STUDY, REFUSED)
        tx.forget_models(STUDY, up_to=1)
    assert store.models(STUDY) == [REFUSED]
