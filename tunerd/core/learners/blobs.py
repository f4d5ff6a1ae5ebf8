"""State of models as bytes that notice damage: JSON or text behind a digest of itself."""

import hashlib
import json
from typing import Any

__all__ = ["seal", "seal_headed", "seal_json", "unseal", "unseal_headed", "unseal_json"]


def seal(body: bytes) -> bytes:
    """Put a digest before ``body``."""
    return hashlib.sha256(body).hexdigest().encode() + b"\n" + body


def unseal(blob: bytes) -> bytes:
    """Return what was sealed.

    Raises:
        ValueError: a byte is missing or changed.
    """
    digest, _, body = blob.partition(b"\n")
    if hashlib.sha256(body).hexdigest().encode() != digest:
        raise ValueError("damaged model: its digest does not agree; fit it again")
    return body


def seal_json(state: object) -> bytes:
    """Seal JSON values. Floats survive to the last bit."""
    return seal(_json(state))


def unseal_json(blob: bytes) -> Any:
    """Return the JSON values that were sealed; raises ValueError as :func:`unseal`."""
    return json.loads(unseal(blob))


def seal_headed(head: object, body: bytes) -> bytes:
    """Seal bytes, and before them the JSON values that say what they are."""
    return seal(_json(head) + b"\n" + body)


def unseal_headed(blob: bytes) -> tuple[Any, bytes]:
    """Return both again; raises ValueError as :func:`unseal`."""
    head, _, body = unseal(blob).partition(b"\n")
    return json.loads(head), body


def _json(state: object) -> bytes:
    return json.dumps(state, allow_nan=False, separators=(",", ":")).encode()
