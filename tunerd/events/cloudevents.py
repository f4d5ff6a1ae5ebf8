"""Events that travel as CloudEvents 1.0 (https://github.com/cloudevents/spec).

Structured mode: the record is a JSON envelope and our event is its ``data``. Binary mode: the
record is our event and the envelope's attributes are ``ce_*`` headers. The envelope's id and
source stand in where the event itself has none; everything else in it is ignored.
"""

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from tunerd.events.rejection import Rejection
from tunerd.events.values import decode_object, describe

__all__ = ["BinaryMode", "StructuredMode"]


class StructuredMode:
    """Recognised by its content type or by ``specversion`` in the JSON."""

    name = "cloudevents-structured"

    def recognises(self, content: Mapping[str, Any], headers: Mapping[str, bytes]) -> bool:
        """Whether this record is a CloudEvent in structured mode."""
        if "specversion" in content or not headers:
            return "specversion" in content
        return _media_type(headers).startswith("application/cloudevents+json")

    def unwrap(
        self,
        content: dict[str, Any],
        headers: Mapping[str, bytes],  # noqa: ARG002
    ) -> dict[str, Any] | Rejection:
        """The event inside."""
        if (fault := _wrong_version(content.get("specversion"))) is not None:
            return fault
        data = content.get("data")
        if "data_base64" in content:
            data = _decoded(content["data_base64"])
        elif data is None:
            return Rejection("data", "is missing; expected the event, an object")
        if isinstance(data, Rejection):
            return data
        if not isinstance(data, dict):
            return Rejection("data", f"expected the event, an object, got {describe(data)}")
        return _filled(data, content.get("id"), content.get("source"))


class BinaryMode:
    """Recognised by its ``ce_specversion`` header."""

    name = "cloudevents-binary"

    def recognises(self, content: Mapping[str, Any], headers: Mapping[str, bytes]) -> bool:  # noqa: ARG002
        """Whether this record is a CloudEvent in binary mode."""
        return "ce_specversion" in headers

    def unwrap(
        self, content: dict[str, Any], headers: Mapping[str, bytes]
    ) -> dict[str, Any] | Rejection:
        """The event, with what it lacks taken from the headers."""
        attributes: dict[str, str | None] = {}
        for name in ("ce_specversion", "ce_id", "ce_source"):
            text = _text(headers.get(name))
            if isinstance(text, Rejection):
                return Rejection(name, text.problem)
            attributes[name] = text
        if (fault := _wrong_version(attributes["ce_specversion"])) is not None:
            return Rejection("ce_specversion", fault.problem)
        return _filled(content, attributes["ce_id"], attributes["ce_source"])


def _media_type(headers: Mapping[str, bytes]) -> str:
    return headers.get("content-type", b"").decode("latin-1").strip().lower()


def _wrong_version(version: object) -> Rejection | None:
    if isinstance(version, str) and version.partition(".")[0] == "1":
        return None
    if version is None:
        return Rejection("specversion", "is missing; expected '1.0'")
    return Rejection("specversion", f"expected '1.0', got {describe(version)}")


def _decoded(data: object) -> dict[str, Any] | Rejection:
    try:
        raw = base64.b64decode(data if isinstance(data, str) else "", validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if not raw:
        return Rejection("data_base64", "expected the event in base64")
    content = decode_object(raw)
    return Rejection("data_base64", content.reason) if isinstance(content, Rejection) else content


def _text(raw: bytes | None) -> str | Rejection | None:
    try:
        text = None if raw is None else raw.decode()
    except UnicodeDecodeError:
        return Rejection("headers", "is not UTF-8")
    if text is not None and "\0" in text:
        return Rejection("headers", "contains the character NUL, which a database cannot store")
    return text


def _filled(content: dict[str, Any], event_id: object, source: object) -> dict[str, Any]:
    filled = dict(content)
    if filled.get("event_id") is None and event_id is not None:
        filled["event_id"] = event_id
    if filled.get("source") is None and source is not None:
        filled["source"] = source
    return filled
