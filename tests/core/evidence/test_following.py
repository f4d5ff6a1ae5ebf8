"""What a job did with the advice that was there for it."""

from datetime import timedelta
from typing import Any

import pytest
from msgspec import structs

from tests.core.tuning import START, job, study
from tunerd.core.evidence.following import Following, follows
from tunerd.core.recommendation import (
    Candidate,
    Incumbent,
    Kind,
    MadeFrom,
    Recommendation,
    StatedObjective,
    candidate_id,
)

CONTEXT = {"n": 8}
KEY = study().context_key(CONTEXT)
STAY: dict[str, Any] = {"x": 1, "y": "a", "z": False}
NEW: dict[str, Any] = {"x": 6, "y": "c", "z": True}
OTHER: dict[str, Any] = {"x": 2, "y": "b", "z": False}


def named(config: dict[str, Any]) -> str:
    return candidate_id("toy", KEY, config)


def recommendation(**changes: Any) -> Recommendation:
    told: dict[str, Any] = {
        "revision": 1,
        "study": "toy",
        "context_key": KEY,
        "context": CONTEXT,
        "objective": StatedObjective(metric="speed", goal="maximize", unit="1/s"),
        "issued_at": START,
        "valid_until": START,
        "candidates": (
            Candidate(candidate_id=named(NEW), rank=1, kind=Kind.EXPLOIT, share=0.1, config=NEW),
        ),
        "incumbent": Incumbent(config=STAY, median=1.0, low=0.9, high=1.1, jobs=3),
        "baseline": {"x": 1},
        "reason": "",
        "made_from": MadeFrom(sequence=1, model=None, study="", seeds=(1,), tunerd=""),
    }
    return Recommendation(**told | changes)


TOLD = recommendation()
RID = TOLD.recommendation_id


@pytest.mark.parametrize(
    ("config", "carries", "published", "following"),
    [
        (OTHER, (None, None), None, "unasked"),
        (NEW, (None, None), None, "unasked"),
        (OTHER, (None, None), TOLD, "ignored"),
        (NEW, (None, None), TOLD, "ignored"),
        (NEW, (RID, named(NEW)), TOLD, "followed"),
        (NEW, ("r-older", named(NEW)), TOLD, "followed"),
        (NEW, (RID, named(NEW)), None, "followed"),
        (OTHER, (RID, named(NEW)), TOLD, "changed"),
        (STAY, (RID, None), TOLD, "followed"),
        (OTHER, (RID, None), TOLD, "changed"),
        (OTHER, ("r-older", None), TOLD, "followed"),
    ],
)
def test_each_job_is_one_of_four(
    config: dict[str, Any],
    carries: tuple[str | None, str | None],
    published: Recommendation | None,
    following: Following,
) -> None:
    one = job(1, CONTEXT, config, recommendation_id=carries[0], candidate_id=carries[1])
    stay = named(STAY) if published else None
    assert follows(one, named(config), published, stay) == following


@pytest.mark.parametrize(
    ("finished", "started_at", "revision", "following"),
    [
        (-1, None, 1, "unasked"),
        (1, None, 1, "ignored"),
        (60, -1, 1, "unasked"),
        (60, 1, 1, "ignored"),
        (60, 61, 1, "ignored"),  # cannot be: when it ended says what there is to say
        (60, -24 * 60 * 367, 1, "ignored"),  # nor can this
        (-1, None, 2, "ignored"),  # there was an earlier one, and when that came is not kept
    ],
)
def test_a_job_that_was_before_the_first_advice_did_not_ignore_it(
    finished: int, started_at: int | None, revision: int, following: Following
) -> None:
    """Minutes after the recommendation was issued."""
    extra = {}
    if started_at is not None:
        extra = {"started_at": (START + timedelta(minutes=started_at)).isoformat()}
    one = structs.replace(
        job(1, CONTEXT, OTHER), finished_at=START + timedelta(minutes=finished), extra=extra
    )
    told = recommendation(revision=revision)
    assert follows(one, named(OTHER), told, named(STAY)) == following
    carries = structs.replace(one, recommendation_id=told.recommendation_id)
    assert follows(carries, named(OTHER), told, named(STAY)) == "changed"  # its clock is wrong


@pytest.mark.parametrize("started_at", ["soon", "2026-01-01T00:00:00", 3, None])
def test_a_start_that_is_none_is_not_gone_by(started_at: object) -> None:
    one = structs.replace(job(1, CONTEXT, OTHER), extra={"started_at": started_at})
    assert follows(one, named(OTHER), TOLD, named(STAY)) == "ignored"


@pytest.mark.parametrize(("x", "following"), [(1, "followed"), (2, "changed")])
def test_without_an_incumbent_the_baseline_is_what_was_offered(
    x: int, following: Following
) -> None:
    told = recommendation(incumbent=None)
    config = STAY | {"x": x}
    one = job(1, CONTEXT, config, recommendation_id=told.recommendation_id)
    assert follows(one, named(config), told, None) == following
