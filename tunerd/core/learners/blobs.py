"""State of models as bytes that notice damage: JSON or text behind a digest of itself."""

import hashlib
import json
from typing import Any

__all__ = ["seal", "seal_json", "unseal", "unseal_json"]


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
    return seal(json.dumps(state, allow_nan=False, separators=(",", ":")).encode())


def unseal_json(blob: bytes) -> Any:
    """Return the JSON values that were sealed; raises ValueError as :func:`unseal`."""
    return json.loads(unseal(blob))
