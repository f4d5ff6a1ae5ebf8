"""The request: what is accepted, and what is said of what is not."""

import base64
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunerd.client import Requests
from tunerd.core.request import AdviceRequest
from tunerd.events import Rejection, read_request, request_schema

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


def event(**changes: Any) -> dict[str, Any]:
    given = {
        "schema": "tunerd.request/1",
        "source": "slurm/cluster-a",
        "event_id": "1",
        "study": "llm-pretrain",
        "requested_at": "2026-11-20T12:59:00+01:00",
        "user": "ann",
        "context": {"gpu": "H100", "n_gpus": 64, "tags": ["a", None]},
    }
    changed = given | changes
    return {name: value for name, value in changed.items() if value is not ...}


def read(content: object, headers: tuple[tuple[str, bytes], ...] = ()) -> AdviceRequest | Rejection:
    value = content if isinstance(content, bytes) else json.dumps(content).encode()
    return read_request(value, headers, NOW)


def test_a_good_one() -> None:
    found = read(event())
    assert isinstance(found, AdviceRequest)
    assert (found.study, found.source, found.event_id) == ("llm-pretrain", "slurm/cluster-a", "1")
    assert found.requested_at == NOW - timedelta(minutes=1)
    assert found.context == {"gpu": "H100", "n_gpus": 64, "tags": ["a", None]}


@pytest.mark.parametrize("name", ["source", "requested_at", "user", "labels"])
def test_what_is_optional_may_be_null_or_absent(name: str) -> None:
    assert isinstance(read(event(**{name: None})), AdviceRequest)
    assert isinstance(read(event(**{name: ...})), AdviceRequest)


def test_the_content_tells_duplicates_from_conflicts() -> None:
    one, same, other = read(event()), read(event()), read(event(note="unknown"))
    assert isinstance(one, AdviceRequest)
    assert isinstance(same, AdviceRequest)
    assert isinstance(other, AdviceRequest)
    assert one.content_hash == same.content_hash != other.content_hash


@pytest.mark.parametrize(
    ("changes", "field", "problem"),
    [
        ({"schema": ...}, "schema", "is missing; expected 'tunerd.request/1'"),
        ({"schema": "tunerd.request/2"}, "schema", "a version not known here"),
        ({"schema": "tunerd.job/1"}, "schema", "expected 'tunerd.request/1'"),
        ({"event_id": ...}, "event_id", "is missing"),
        ({"event_id": ""}, "event_id", "a text of 1 to 256 characters"),
        ({"study": 7}, "study", "the number 7"),
        ({"context": ...}, "context", "is missing; expected an object"),
        ({"context": {"gpu": {"name": "H100"}}}, "context.gpu", "got an object"),
        ({"context": {"n": 2**70}}, "context.n", "beyond 64 bits"),
        ({"requested_at": "yesterday"}, "requested_at", "RFC 3339"),
        ({"requested_at": "2026-11-20T12:00:00"}, "requested_at", "RFC 3339"),
        ({"requested_at": "2026-12-20T12:00:00Z"}, "requested_at", "ahead of now"),
        ({"requested_at": "2020-12-20T12:00:00Z"}, "requested_at", "before now"),
        ({"user": 1}, "user", "a text of at most 256"),
        ({"labels": {"a": []}}, "labels.a", "got a list"),
        ({"more": 2**70}, "more", "beyond 64 bits"),
    ],
)
def test_a_bad_one_names_the_field(changes: dict[str, Any], field: str, problem: str) -> None:
    found = read(event(**changes))
    assert isinstance(found, Rejection)
    assert found.field == field
    assert problem in found.reason


def test_as_cloudevents() -> None:
    bare = event(event_id=..., source=...)
    structured = {"specversion": "1.0", "id": "7", "source": "s", "type": "x", "data": bare}
    found = read(structured)
    assert isinstance(found, AdviceRequest)
    assert (found.event_id, found.source) == ("7", "s")
    encoded = base64.b64encode(json.dumps(bare).encode()).decode()
    found = read({"specversion": "1.0", "id": "7", "source": "s", "data_base64": encoded})
    assert isinstance(found, AdviceRequest)
    headers = (("ce_specversion", b"1.0"), ("ce_id", b"8"), ("ce_source", b"t"))
    found = read(bare, headers)
    assert isinstance(found, AdviceRequest)
    assert (found.event_id, found.source) == ("8", "t")


def test_a_tombstone_and_a_large_one() -> None:
    found = read_request(None, (), NOW)
    assert isinstance(found, Rejection)
    assert "a request is a JSON object" in found.reason
    found = read_request(b"{", (), NOW, size=300 * 1024)
    assert isinstance(found, Rejection)
    assert "more than 256 KiB" in found.reason


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from([*event(), "labels", "x"]), _JSON))
def test_whatever_comes_is_read_or_rejected(changes: dict[str, Any]) -> None:
    value = json.dumps(event() | changes).encode("utf-8", "surrogatepass")
    found = read_request(value, (), NOW)
    if isinstance(found, Rejection):
        assert found.reason.isprintable()
    else:
        assert found.study == (event() | changes)["study"]


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_rejected(value: bytes) -> None:
    assert isinstance(read_request(value, (), NOW), Rejection)


@pytest.mark.slow
@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1),
        st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.none(),
        max_size=5,
    )
)
def test_what_the_client_sends_is_accepted(context: dict[str, Any]) -> None:
    sent: list[bytes] = []
    client = Requests(sent.append, lambda: None, "test")
    name = client.ask(study="s", context=context)
    found = read_request(sent[0], (), datetime.now(UTC))
    assert isinstance(found, AdviceRequest), found
    assert (found.event_id, found.source) == (name, "test")
    assert found.context.keys() == context.keys()


def test_the_schema_names_what_is_required() -> None:
    definition = request_schema()["$defs"]["RequestEvent"]
    assert definition["required"] == ["schema", "event_id", "study", "context"]
