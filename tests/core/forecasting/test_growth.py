"""Contexts that come because a number grows."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunerd.core.forecasting.growth import GrownContext, contexts_by_growth
from tunerd.core.observation import Scalar
from tunerd.core.study_file import parse_study

STUDY = parse_study("""
schema = 1
name = "big"
[objective]
metric = "speed"
goal = "maximize"
[context]
model = { type = "category" }
gpus = { type = "int", scale = "log" }
size = { type = "float", scale = "log", key = { bucket = 1.25 } }
[parameters]
x = { type = "int", values = [1, 2, 3] }
""")
NOW = datetime(2026, 11, 20, tzinfo=UTC)
MONTH = timedelta(days=30)
Row = tuple[str, int | None, float, float]
"""Model, GPUs, size, and how many days ago it first came."""


def grown(*rows: Row, most: int = 50) -> dict[str, GrownContext]:
    known: dict[str, tuple[dict[str, Scalar], int]] = {}
    for model, gpus, size, days_ago in rows:
        context: dict[str, Scalar] = {"model": model, "gpus": gpus, "size": size}
        hour = int((NOW - timedelta(days=days_ago)).timestamp() // 3600)
        known[STUDY.context_key(context)] = context, hour
    return contexts_by_growth(STUDY, known, NOW, MONTH, most)


def sizes(*rows: Row) -> list[tuple[Scalar, Scalar, Scalar]]:
    return [
        (one.context["model"], one.context["gpus"], one.context["size"])
        for one in grown(*rows).values()
    ]


def test_a_number_that_doubled_twice_doubles_again() -> None:
    assert sizes(("a", 8, 1.0, 20), ("a", 16, 1.0, 12), ("a", 32, 1.0, 3)) == [("a", 64, 1.0)]


def test_a_number_that_grew_by_equal_steps_takes_another_one() -> None:
    assert sizes(("a", 8, 1.0, 20), ("a", 16, 1.0, 12), ("a", 24, 1.0, 3)) == [("a", 32, 1.0)]


def test_after_two_sizes_the_next_is_one_that_another_model_had() -> None:
    others: list[Row] = [("b", 8, 1.0, 90), ("b", 16, 1.0, 80), ("b", 48, 1.0, 70)]
    assert sizes(*others, ("a", 8, 1.0, 9), ("a", 16, 1.0, 3)) == [("a", 48, 1.0)]
    assert sizes(("a", 8, 1.0, 9), ("a", 20, 1.0, 3)) == []


def test_a_number_that_doubled_once_doubles_again_where_no_other_model_says_more() -> None:
    assert sizes(("a", 8, 1.0, 9), ("a", 16, 1.0, 3)) == [("a", 32, 1.0)]


def test_a_new_model_size_after_two_smaller_ones() -> None:
    others: list[Row] = [("b", 8, size, 90 - size) for size in (1.3, 7.0, 70.0)]
    assert sizes(*others, ("a", 8, 1.3, 9), ("a", 8, 7.0, 3)) == [("a", 8, 70.0)]


@pytest.mark.parametrize(
    "rows",
    [
        [("a", 8, 1.0, 60), ("a", 16, 1.0, 50), ("a", 32, 1.0, 40)],  # it stopped growing
        [("a", 32, 1.0, 20), ("a", 16, 1.0, 12), ("a", 8, 1.0, 3)],  # it shrinks
        [("a", 8, 1.0, 5), ("a", 16, 1.0, 5), ("a", 32, 1.0, 5)],  # a table of old jobs
        [("a", 8, 1.0, 20), ("b", 16, 1.0, 12), ("c", 32, 1.0, 3)],  # different models
        [("a", 8, 1.0, 20), ("a", 11, 1.0, 12), ("a", 40, 1.0, 3)],  # no step twice
        [("a", None, 1.0, 20), ("a", 16, 1.0, 12)],
        [("a", 2**61, 1.0, 20), ("a", 2**62, 1.0, 12), ("a", 2**63 - 1, 1.0, 3)],
        [("a", 8, 1e-300, 20), ("a", 8, 1.0, 12), ("a", 8, 1e300, 3)],
        [("a", 0, 1.0, 20), ("a", -8, 1.0, 12)],
    ],
)
def test_what_does_not_grow_brings_nothing(rows: list[Row]) -> None:
    assert sizes(*rows) == []


def test_what_is_there_already_is_not_to_come() -> None:
    rows: list[Row] = [("a", 8, 1.0, 20), ("a", 16, 1.0, 12), ("a", 32, 1.0, 3)]
    assert sizes(*rows, ("a", 64, 1.0, 40)) == []
    # In the same bucket of sizes it has the same key.
    near: list[Row] = [("a", 8, 1.0, 20), ("a", 8, 2.0, 12), ("a", 8, 4.0, 3)]
    assert sizes(*near, ("a", 8, 8.1, 40)) == []


numbers = st.one_of(st.integers(-(2**63), 2**63 - 1), st.none())
rows = st.tuples(
    st.sampled_from("ab"),
    numbers,
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(0, 90),
)


@pytest.mark.slow
@given(st.lists(rows, max_size=20), st.integers(0, 3))
def test_what_comes_is_new_larger_and_bounded_whatever_was(past: list[Row], most: int) -> None:
    ahead = grown(*past, most=most)
    assert len(ahead) <= most
    known = {STUDY.context_key({"model": m, "gpus": g, "size": s}) for m, g, s, _ in past}
    for key, one in ahead.items():
        assert key == STUDY.context_key(one.context)
        assert key not in known
        assert NOW - one.grew_at <= MONTH + timedelta(hours=1)
        column = ("model", "gpus", "size").index(one.feature)
        family = [
            row[column]
            for row in past
            if all(
                row[other] == one.context[name]
                for other, name in enumerate(("model", "gpus", "size"))
                if other != column
            )
        ]
        assert one.context[one.feature] > max(v for v in family if v is not None)  # type: ignore[operator]
