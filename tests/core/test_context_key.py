"""The context key: its test vectors, and that two contexts never share a key by accident."""

import json
import math
import re
import string
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunerd.core.observation import Scalar, Value
from tunerd.core.study import Study
from tunerd.core.study.context_key import (
    BucketValue,
    ValueType,
    bucket_edge,
    canonical_context_key,
    clean_value,
    value_text,
    written,
)
from tunerd.core.study_file import parse_study

VECTORS = Path(__file__).parents[2] / "docs" / "context-key-vectors.json"
TYPES: tuple[ValueType, ...] = ("int", "float", "category", "bool")


def load_vectors() -> list[dict[str, Any]]:
    vectors: list[dict[str, Any]] = json.loads(VECTORS.read_text())["vectors"]
    return vectors


def study_with(name: str, features: Mapping[str, Mapping[str, Any]]) -> Study:
    lines = [
        "schema = 1",
        f'name = "{name}"',
        'objective = { metric = "qps", goal = "maximize" }',
        "parameters.on.type = 'bool'",
    ]
    for feature, table in features.items():
        lines.append(f'context.{feature}.type = "{table["type"]}"')
        match table.get("key"):
            case str(key):
                lines.append(f'context.{feature}.key = "{key}"')
            case {"bucket": factor}:
                lines.append(f"context.{feature}.key.bucket = {factor}")
    return parse_study("\n".join(lines))


@pytest.mark.parametrize("vector", load_vectors(), ids=lambda vector: vector["note"])
def test_vectors(vector: dict[str, Any]) -> None:
    study = study_with(vector["study"], vector["features"])
    assert study.context_key(vector["context"]) == vector["key"]
    # What was cleaned once has the same key.
    assert study.context_key(study.clean_context(vector["context"])) == vector["key"]


def test_the_vectors_show_every_character_that_some_encoder_leaves_alone() -> None:
    """JavaScript's own does so with brackets: A100 (80GB) had a key that nobody publishes."""
    shown = {
        character
        for vector in load_vectors()
        for value in vector["context"].values()
        if isinstance(value, str)
        for character in value
    }
    assert set(string.punctuation) <= shown


def test_half_a_surrogate_pair_is_no_text() -> None:
    assert clean_value("\ud800", "category") is None


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**400, "1e999", "9" * 5_000])
@pytest.mark.parametrize("kind", ["int", "float"])
def test_numbers_without_end_are_missing(value: object, kind: ValueType) -> None:
    assert clean_value(value, kind) is None


anything = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.lists(st.integers(), max_size=2),
)


@pytest.mark.slow
@given(anything, st.sampled_from(TYPES))
def test_cleaning_twice_is_cleaning_once(value: object, kind: ValueType) -> None:
    clean = clean_value(value, kind)
    assert clean_value(clean, kind) == clean
    wanted = {"int": int, "float": float, "category": str, "bool": bool}[kind]
    assert clean is None or type(clean) is wanted


def canonical(value: Scalar) -> Scalar:
    """What a key can tell apart: floats by six digits."""
    return value_text(value) if isinstance(value, float) else value


contexts = st.tuples(
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.none() | st.floats(allow_nan=False, allow_infinity=False),
    st.none() | st.text(st.characters(exclude_categories=["Cs"])),
    st.none() | st.booleans(),
)


@pytest.mark.slow
@given(contexts, contexts)
def test_different_contexts_have_different_keys(
    one: tuple[Scalar, ...], other: tuple[Scalar, ...]
) -> None:
    names = ("i", "f", "c", "b")
    keys = [canonical_context_key("s", dict(zip(names, v, strict=True))) for v in (one, other)]
    same = tuple(map(canonical, one)) == tuple(map(canonical, other))
    assert (keys[0] == keys[1]) == same


@given(contexts)
def test_keys_are_plain_ascii_with_one_field_for_each_value(values: tuple[Scalar, ...]) -> None:
    key = canonical_context_key("s", dict(zip("ifcb", values, strict=True)))
    assert key.isascii()
    assert key.isprintable()
    assert " " not in key
    assert key.count("|") == key.count("=") == 4


@given(
    st.floats(1e-300, 1e300),
    st.sampled_from([1.01, 1.1, 1.25, 1.5, 2.0, 3.0, 10.0, 1024.0]),
)
def test_a_bucket_holds_its_value(value: float, factor: float) -> None:
    edge = bucket_edge(value, factor)
    assert edge <= value * (1 + 1e-8)
    assert value < edge * factor * (1 + 1e-8)
    assert bucket_edge(edge, factor) == edge
    assert bucket_edge(-value, factor) == -edge


@given(st.integers(-200, 200), st.sampled_from([1.1, 1.25, 2.0, 3.0, 10.0]))
def test_a_power_however_computed_is_its_own_bucket(power: int, factor: float) -> None:
    by_steps = 1.0
    for _ in range(abs(power)):
        by_steps = by_steps * factor if power > 0 else by_steps / factor
    assert bucket_edge(by_steps, factor) == bucket_edge(factor**power, factor)
    assert math.isclose(bucket_edge(by_steps, factor), factor**power, rel_tol=1e-12)


def test_the_end_of_the_floats_has_a_bucket() -> None:
    assert bucket_edge(1.7e308, 10.0) == pytest.approx(1e308)
    assert bucket_edge(5e-324, 2.0) > 0
    assert BucketValue(3, 2.0).value == 3


def test_values_are_written_as_orders_take_them() -> None:
    """``tunerd status`` wrote ``remat=False``, which ``tunerd forbid --set`` refuses."""
    values: list[Value] = [True, 0.83, 8, "bf16", None, ["a", "a", "b"], [True, True, False]]
    assert " ".join(map(written, values)) == "true 0.83 8 bf16 ~ a×2,b true×2,false"


_AS_BEFORE = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?", re.ASCII)


@given(st.text("+-.eE012_ n", max_size=12))
def test_texts_are_the_numbers_they_were(text: str) -> None:
    number = float(text) if _AS_BEFORE.fullmatch(text.strip()) else math.inf
    assert clean_value(text, "float") == (number if math.isfinite(number) else None)


def test_a_long_run_of_digits_is_read_in_linear_time() -> None:
    """Where each digit is tried as the end of another run, this takes minutes."""
    assert clean_value("1" * 300_000 + "x", "float") is None
