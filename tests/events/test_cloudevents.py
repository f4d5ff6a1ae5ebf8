"""Job events that travel as CloudEvents are the same observations as plain ones."""

import base64
import json
from typing import Any

import pytest

from tests.broken_events import NOW, good_event
from tunerd.core.observation import Observation
from tunerd.events import read_job

STRUCTURED = (("content-type", b"application/cloudevents+json"),)
BINARY = (("ce_specversion", b"1.0"), ("ce_id", b"ce-17"), ("ce_source", b"/slurm/b"))


def observation(value: bytes, headers: tuple[tuple[str, bytes], ...] = ()) -> Observation:
    seen = read_job(value, headers, NOW)
    assert isinstance(seen, Observation), seen
    return seen


def envelope(**changes: Any) -> bytes:
    return json.dumps(
        {
            "specversion": "1.0",
            "id": "ce-17",
            "source": "/slurm/b",
            "type": "org.example.job.completed",
            "datacontenttype": "application/json",
            **changes,
        }
    ).encode()


def without_identity() -> dict[str, Any]:
    return {k: v for k, v in good_event("e").items() if k not in ("event_id", "source")}


@pytest.mark.parametrize("headers", [STRUCTURED, (), (("Content-Type", b"application/json"),)])
def test_structured_is_recognised_by_content_type_or_by_its_content(
    headers: tuple[tuple[str, bytes], ...],
) -> None:
    plain = observation(json.dumps(good_event("e")).encode())
    assert observation(envelope(data=good_event("e")), headers) == plain


def test_structured_data_in_base64() -> None:
    plain = json.dumps(good_event("e")).encode()
    wrapped = envelope(data_base64=base64.b64encode(plain).decode())
    assert observation(wrapped) == observation(plain)


def test_binary_is_the_plain_event_with_headers() -> None:
    plain = json.dumps(good_event("e")).encode()
    assert observation(plain, BINARY) == observation(plain)


def test_the_envelope_stands_in_where_the_event_has_no_id_or_source() -> None:
    structured = observation(envelope(data=without_identity()))
    binary = observation(json.dumps(without_identity()).encode(), BINARY)
    assert (structured.event_id, structured.source) == ("ce-17", "/slurm/b")
    assert binary == structured


def test_the_envelope_does_not_override_the_event() -> None:
    seen = observation(json.dumps(good_event("mine")).encode(), BINARY)
    assert (seen.event_id, seen.source) == ("mine", "slurm/cluster-a")


def test_the_same_event_in_another_wrapping_is_a_duplicate_not_a_conflict() -> None:
    plain = {**without_identity(), "event_id": "ce-17", "source": "/slurm/b"}
    hashes = {
        observation(json.dumps(plain).encode()).content_hash,
        observation(envelope(data=without_identity())).content_hash,
        observation(json.dumps(without_identity()).encode(), BINARY).content_hash,
    }
    assert len(hashes) == 1
