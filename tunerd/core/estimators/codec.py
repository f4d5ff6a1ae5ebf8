"""State of models as bytes that notice damage: JSON, text or arrays behind a digest of itself."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save

__all__ = [
    "pack",
    "seal",
    "seal_headed",
    "seal_json",
    "unpack",
    "unseal",
    "unseal_headed",
    "unseal_json",
]


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


def pack(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Arrays by name, in the format of safetensors. That takes memory as it lies: of an array that
    lies column by column, or is a part of another, it would keep other numbers in other places."""
    return save({name: np.ascontiguousarray(array) for name, array in arrays.items()})


def unpack(body: bytes) -> dict[str, NDArray[Any]]:
    """Return the arrays that were packed."""
    return load(body)


def _json(state: object) -> bytes:
    return json.dumps(state, allow_nan=False, separators=(",", ":")).encode()
