"""A digest of history up to an observation: it shows later whether history is still the same.

Every observation is chained to those before it, so that the digest of a step depends on all that
was ever learned, at a constant cost per job (4 µs). Each step keeps it.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Self

import msgspec

from tunerd.core.observation import Observation
from tunerd.core.saved_state import FrozenState

__all__ = ["HashChain"]

_encode = msgspec.json.Encoder(order="deterministic").encode


class HashChain(FrozenState, frozen=True):
    """The observations above ``since`` up to ``at``."""

    since: int = 0
    """0, but where a study was older than its chain."""
    at: int = 0
    digest: str = ""

    def after(self, observations: Sequence[Observation]) -> "HashChain":
        """The chain with the next observations, as history has them.

        Raises:
            ValueError: they do not follow it.
        """
        if not observations:
            return self
        if observations[0].sequence != self.at + 1:
            raise ValueError(f"the chain ends at {self.at}, not before {observations[0].sequence}")
        digest = self.digest
        for job in observations:
            digest = hashlib.sha256(digest.encode() + _encode(job)).hexdigest()
        return HashChain(self.since, observations[-1].sequence, digest)

    @classmethod
    def go_on(cls, state: Mapping[str, Any] | None, at: int) -> Self:
        """Go on from what :meth:`dump` gave, or begin at observation ``at`` where that does not end
        there.

        Raises:
            ValueError: it is no such state, wherever it ends.
        """
        chain = None if state is None else cls.load(state)
        return cls(at, at) if chain is None or chain.at != at else chain
