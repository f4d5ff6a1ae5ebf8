"""Recommendations as bytes: what goes out comes back, and ids say what they should."""

import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunerd.core.observation import Value
from tunerd.core.recommendation import (
    Candidate,
    ForecastBasis,
    Gain,
    Incumbent,
    Kind,
    MadeFrom,
    Predicted,
    Recommendation,
    SignalBand,
    State,
    StatedObjective,
    candidate_id,
    recommendation_id,
)
from tunerd.events import from_bytes, recommendation_schema, to_bytes

NOW = datetime(2026, 11, 20, 10, tzinfo=UTC)
KEY = "llm|gpu=H100|n_gpus=128"


def example(**changes: Any) -> Recommendation:
    config: dict[str, Value] = {
        "tp": 8,
        "hbm_reserved": 0.83,
        "sharding": ["FULL_SHARD", "NO_SHARD"],
    }
    values: dict[str, Any] = {
        "revision": 7,
        "study": "llm",
        "context_key": KEY,
        "context": {"gpu": "H100", "n_gpus": 128},
        "objective": StatedObjective(metric="tps", goal="maximize", unit="tokens/s"),
        "issued_at": NOW,
        "valid_until": NOW + timedelta(days=2),
        "candidates": (
            Candidate(
                candidate_id=candidate_id("llm", KEY, config),
                rank=1,
                kind=Kind.EXPLOIT,
                share=0.1,
                config=config,
                predicted=Predicted(median=430.1, low=418.0, high=441.9),
                feasible=0.98,
                gain=Gain(median=0.042, low=0.011),
            ),
        ),
        "incumbent": Incumbent(config={"tp": 4}, median=412.9, low=409.0, high=416.2, jobs=12),
        "baseline": {"tp": 2},
        "reason": "4.2 % better than the incumbent by prediction.",
        "made_from": MadeFrom(
            sequence=1234, model="sha256:aa", study="sha256:bb", seeds=(1, 2, 3), tunerd="0.1.0"
        ),
    }
    return Recommendation(**{**values, **changes})


def test_the_message_is_that_of_the_contract() -> None:
    message = json.loads(to_bytes(example()))
    assert list(message) == [
        "schema", "recommendation_id", "revision", "state", "study", "context_key", "context",
        "objective", "issued_at", "valid_until", "candidates", "incumbent", "baseline", "reason",
        "round", "made_from",
    ]  # fmt: skip
    assert message["schema"] == "tunerd.recommendation/1"
    assert message["issued_at"] == "2026-11-20T10:00:00Z"
    assert list(message["candidates"][0]) == [
        "candidate_id", "rank", "kind", "share", "wanted", "config",
        "predicted", "feasible", "gain",
    ]  # fmt: skip
    assert message["candidates"][0]["predicted"] == {
        "median": 430.1, "low": 418.0, "high": 441.9, "band": 0.8,
    }  # fmt: skip
    assert message["made_from"]["seeds"] == [1, 2, 3]


AHEAD: dict[str, Any] = {
    "valid_from": NOW + timedelta(hours=3),
    "forecast": ForecastBasis(
        signal='rps{service="a"}',
        made_at=NOW,
        until=NOW + timedelta(hours=8),
        probability=0.7,
        low=640.0,
        median=800.0,
        high=910.0,
        others=(SignalBand(feature="wait", signal="wait", low=1.0, median=2.0, high=4.0),),
    ),
}


def test_one_that_is_made_ahead_says_from_when_and_what_it_stands_on() -> None:
    ahead = example(**AHEAD)
    message = json.loads(to_bytes(ahead))
    assert message["valid_from"] == "2026-11-20T13:00:00Z"
    assert message["forecast"] == {
        "signal": 'rps{service="a"}',
        "made_at": "2026-11-20T10:00:00Z",
        "until": "2026-11-20T18:00:00Z",
        "probability": 0.7,
        "low": 640.0,
        "median": 800.0,
        "high": 910.0,
        "others": [{"feature": "wait", "signal": "wait", "low": 1.0, "median": 2.0, "high": 4.0}],
    }
    assert from_bytes(to_bytes(ahead)) == ahead
    later = NOW + timedelta(days=1)
    renewed = ahead.renewed(revision=8, issued_at=later, valid_until=later + timedelta(days=2))
    assert from_bytes(to_bytes(renewed)).forecast == ahead.forecast
    # The advice is what the id is of; others read the rest of the message as before.
    assert ahead.recommendation_id == example().recommendation_id
    del message["valid_from"], message["forecast"]
    assert message == json.loads(to_bytes(example()))
    bare = {**AHEAD, "valid_from": AHEAD["valid_from"].replace(tzinfo=None)}
    with pytest.raises(ValueError, match="need a zone"):
        to_bytes(example(**bare))


def test_bytes_are_canonical() -> None:
    mixed = example(baseline={"b": 1, "a": 2})
    assert to_bytes(mixed) == to_bytes(example(baseline={"a": 2, "b": 1}))
    assert b" " not in to_bytes(example(reason="none"))


def test_a_renewal_and_a_withdrawal_keep_the_id() -> None:
    first = example()
    later = NOW + timedelta(days=1)
    renewed = first.renewed(revision=8, issued_at=later, valid_until=later + timedelta(days=2))
    assert (renewed.recommendation_id, renewed.revision) == (first.recommendation_id, 8)
    assert renewed.candidates == first.candidates
    withdrawn = renewed.withdrawn(revision=9, issued_at=later, reason="The study ended.")
    assert withdrawn.recommendation_id == first.recommendation_id
    assert (withdrawn.state, withdrawn.candidates) == (State.WITHDRAWN, ())
    assert withdrawn.valid_until == later
    assert from_bytes(to_bytes(withdrawn)) == withdrawn


@pytest.mark.parametrize(
    "change",
    [
        {"study": "other"},
        {"context_key": "llm"},
        {"candidates": ()},
        {"incumbent": None},
        {"baseline": None},
        {"round": 1},
        {"made_from": replace(example().made_from, sequence=1235)},
    ],
)
def test_other_advice_has_another_id(change: dict[str, Any]) -> None:
    assert example(**change).recommendation_id != example().recommendation_id


def test_the_wording_does_not_change_the_id() -> None:
    assert recommendation_id(example(reason="Otherwise put.")) == example().recommendation_id


def test_a_candidate_id_follows_from_study_context_and_configuration() -> None:
    config: dict[str, Value] = {"tp": 8, "precision": "fp8", "layers": [1.0, 2.5]}
    name = candidate_id("llm", KEY, config)
    assert re.fullmatch("c-[0-9a-f]{20}", name)
    assert name == candidate_id("llm", KEY, dict(reversed(list(config.items()))))
    assert name == candidate_id("llm", KEY, config | {"tp": 8.0, "layers": [1, 2.5]})
    assert name != candidate_id("llm", KEY, config | {"tp": 4})
    assert name != candidate_id("llm", KEY, config | {"tp": True})
    assert name != candidate_id("llm", "llm", config)
    assert name != candidate_id("ads", KEY, config)


@pytest.mark.parametrize(
    ("candidates", "message"),
    [
        ([{"share": 0.6}, {"share": 0.5}], "at most 1"),
        ([{"share": -0.1}], "between 0 and 1"),
        ([{"share": float("nan")}], "between 0 and 1"),
        ([{"share": 0.1, "wanted": 2}], "must be 0 where runs are wanted"),
        ([{"share": 0.1, "rank": 2}], "count up from 1"),
        ([{"share": 0.1, "wanted": -1}], "negative"),
    ],
)
def test_impossible_candidates_are_refused(candidates: list[dict[str, Any]], message: str) -> None:
    base = {"candidate_id": "c", "kind": Kind.EXPLOIT, "config": {}}
    with pytest.raises(ValueError, match=message):
        example(
            candidates=tuple(
                Candidate(**{**base, "rank": rank, **candidate})
                for rank, candidate in enumerate(candidates, 1)
            )
        )


def test_ten_shares_of_a_tenth_are_at_most_one() -> None:
    config: dict[str, Any] = {}
    tenths = [
        Candidate(candidate_id=f"c{rank}", rank=rank, kind=Kind.EXPLORE, share=0.1, config=config)
        for rank in range(1, 11)
    ]
    assert len(example(candidates=tuple(tenths)).candidates) == 10


def test_what_json_cannot_hold_is_refused() -> None:
    infinite = Incumbent(config={}, median=float("inf"), low=0.0, high=1.0, jobs=1)
    with pytest.raises(ValueError, match="median"):
        to_bytes(example(incumbent=infinite))
    with pytest.raises(ValueError, match="zone"):
        to_bytes(example(issued_at=NOW.replace(tzinfo=None)))


@pytest.mark.parametrize(
    "raw",
    [b"", b"{}", b"[]", b"\xff", b"[" * 100_000, b'{"schema": "tunerd.recommendation/2"}'],
    ids=["empty", "object", "list", "binary", "deep", "version 2"],
)
def test_what_is_no_recommendation_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match="not a recommendation"):
        from_bytes(raw)


NAMES = st.text("abcxyz_", min_size=1, max_size=6)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | FINITE | st.text(max_size=8)
CONFIGS = st.dictionaries(NAMES, SCALARS | st.lists(SCALARS, max_size=3), max_size=4)
MOMENTS = st.integers(0, 10**9).map(lambda seconds: NOW + timedelta(seconds=seconds))


@st.composite
def recommendations(draw: st.DrawFn) -> Recommendation:
    weights = draw(st.lists(st.integers(0, 10), max_size=5))
    total = max(sum(weights), 1)
    return example(
        revision=draw(st.integers(1, 10**9)),
        state=draw(st.sampled_from(State)),
        context=draw(st.dictionaries(NAMES, SCALARS, max_size=3)),
        issued_at=draw(MOMENTS),
        valid_until=draw(MOMENTS),
        candidates=tuple(
            Candidate(
                candidate_id=f"c-{rank}",
                rank=rank,
                kind=draw(st.sampled_from(Kind)),
                share=weight / total,
                config=draw(CONFIGS),
                predicted=draw(
                    st.none() | st.builds(Predicted, median=FINITE, low=FINITE, high=FINITE)
                ),
                feasible=draw(st.none() | st.floats(0, 1)),
                gain=draw(st.none() | st.builds(Gain, median=FINITE, low=FINITE)),
            )
            for rank, weight in enumerate(weights, 1)
        ),
        baseline=draw(st.none() | CONFIGS),
        reason=draw(st.text(max_size=20)),
        round=draw(st.none() | st.integers(0, 9)),
    )


@pytest.mark.slow
@given(recommendations())
def test_what_goes_out_comes_back(recommendation: Recommendation) -> None:
    raw = to_bytes(recommendation)
    assert from_bytes(raw) == recommendation
    assert to_bytes(from_bytes(raw)) == raw
    assert json.loads(raw)["revision"] == recommendation.revision


def test_the_schema_describes_every_field() -> None:
    schema = recommendation_schema()
    assert schema["$ref"] == "#/$defs/Recommendation"
    names = (
        "Candidate",
        "Incumbent",
        "MadeFrom",
        "Predicted",
        "Gain",
        "ForecastBasis",
        "SignalBand",
    )
    for name in ("Recommendation", *names):
        definition = schema["$defs"][name]
        assert definition["description"]
        optional = {"Recommendation": {"valid_from", "forecast"}, "ForecastBasis": {"others"}}
        required = [
            field for field in definition["properties"] if field not in optional.get(name, ())
        ]
        assert definition["required"] == required
        assert all(field["description"] for field in definition["properties"].values())
    properties = schema["$defs"]["Recommendation"]["properties"]
    assert list(properties) == list(json.loads(to_bytes(example(**AHEAD))))
    for name in ("valid_until", "valid_from"):
        assert properties[name]["format"] == "date-time"
