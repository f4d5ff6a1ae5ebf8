"""The digest of history: every change of any job shows, however the jobs were divided."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from tests.core.tuning import random_jobs
from tunerd.core.hash_chain import HashChain

JOBS = [structs.replace(one, sequence=i + 1) for i, one in enumerate(random_jobs(30))]


@given(cuts=st.sets(st.integers(1, 29)))
def test_steps_do_not_matter(cuts: set[int]) -> None:
    chain = HashChain()
    for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), 30], strict=True):
        chain = chain.after(JOBS[start:end])
    assert chain == HashChain().after(JOBS)
    assert HashChain.go_on(chain.dump(), at=30) == chain


@pytest.mark.parametrize(
    "change",
    [
        {"metrics": {"speed": 1.0}},
        {"context": {"n": 5}},
        {"user": "eve"},
        {"history": True},
        {"extra": {"nodes": ["a"]}},
        {"content_hash": "other"},
    ],
)
def test_every_field_counts(change: dict[str, object]) -> None:
    changed = [*JOBS[:10], structs.replace(JOBS[10], **change), *JOBS[11:]]
    assert HashChain().after(changed).digest != HashChain().after(JOBS).digest


def test_jobs_follow_without_a_gap() -> None:
    with pytest.raises(ValueError, match="ends at 5"):
        HashChain().after(JOBS[:5]).after(JOBS[6:])


def test_a_study_that_had_none_begins_one() -> None:
    assert HashChain.go_on(None, at=400) == HashChain(400, 400, "")
    assert HashChain.go_on(HashChain().after(JOBS).dump(), at=31) == HashChain(31, 31, "")
