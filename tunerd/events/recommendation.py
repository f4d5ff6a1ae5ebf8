"""The recommendation of the contract as bytes, and back.

The values are :mod:`tunerd.core.recommendation`'s; their declared fields, in their order, are
the message, so that code, wire and JSON Schema cannot drift apart.
"""

import dataclasses
import typing
from datetime import datetime
from typing import Any

import msgspec

from tunerd.core import recommendation as core
from tunerd.core.recommendation import ForecastBasis, Recommendation

__all__ = ["from_bytes", "recommendation_schema", "to_bytes"]

OPTIONAL = ("valid_from", "forecast", "others")
"""Fields that a message has only where it was made ahead, or on several signals."""

_encode = msgspec.json.Encoder(order="deterministic").encode
_decode = msgspec.json.Decoder(Recommendation).decode


def to_bytes(recommendation: Recommendation) -> bytes:
    """Canonical JSON: fields in the declared order, keys of objects sorted, no white space.

    Raises ValueError when the value cannot be read back as it is, for instance for a NaN, which
    JSON cannot hold, or a time without a zone.
    """
    raw: bytes = _encode(recommendation)
    if from_bytes(raw) != recommendation:
        raise ValueError("a recommendation must be finite and its times must have a zone")
    return raw


def from_bytes(raw: bytes) -> Recommendation:
    """Read a message of the recommendations topic. Raises ValueError naming the field."""
    try:
        read: Recommendation = _decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"not a recommendation: {error}") from None
    times = [read.issued_at, read.valid_until, read.valid_from]
    if isinstance(read.forecast, ForecastBasis):
        times += [read.forecast.made_at, read.forecast.until]
    if any(isinstance(time, datetime) and time.tzinfo is None for time in times):
        raise ValueError("not a recommendation: its times need a zone")
    return read


def recommendation_schema() -> dict[str, Any]:
    """JSON Schema of the recommendation, version 1, with the descriptions of the core's fields.

    A message always has every field, so all are required here, in the message's order; but for
    those of :data:`OPTIONAL`.
    """
    schema = msgspec.json.schema(Recommendation)
    for name, definition in schema["$defs"].items():
        definition["description"] = definition.get("description", name).partition("\n")[0]
        kind = getattr(core, name)
        if dataclasses.is_dataclass(kind):
            properties = definition["properties"]
            definition["properties"] = {
                field: _described(properties[field], hint)
                for field, hint in typing.get_type_hints(kind, include_extras=True).items()
            }
            definition["required"] = [
                field for field in definition["properties"] if field not in OPTIONAL
            ]
    return schema


def _described(schema: dict[str, Any], hint: Any) -> dict[str, Any]:
    """One field's schema with the text that its ``Annotated`` carries."""
    value = {name: part for name, part in schema.items() if name != "default"}
    if datetime in (hint.__origin__, *typing.get_args(hint.__origin__)):
        value["format"] = "date-time"
    return {"description": hint.__metadata__[0], **value}
