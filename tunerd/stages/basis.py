"""What a recommendation was made from, beyond what history, checkpoints and steps tell.

That is the state of the context as its search began (of several contexts, for the entry for the
empty one), what was followed there, the orders that stood, what the tuner knows beside its model,
and the build. Kept with each recommendation and proposal, so that :mod:`tunerd.stages.deriving` can
make it again.
"""

from typing import TYPE_CHECKING

import msgspec

from tunerd.core.recommendation import Recommendation
from tunerd.events import to_bytes
from tunerd.stages.build import build
from tunerd.store import Derivation, Transaction

if TYPE_CHECKING:
    from tunerd.stages.books import Books

__all__ = ["basis_of", "keep_basis"]

_encode = msgspec.json.Encoder().encode


def basis_of(books: "Books", key: str) -> bytes:
    """What the search of a context begins with. A fraction of a millisecond."""
    followed = books.recommended.followed(key)
    return _encode(
        {
            "states": {name: one.dump() for name, one in books.tuner.basis(key).items()},
            "running": None if followed is None else msgspec.Raw(to_bytes(followed)),
        }
    )


def keep_basis(books: "Books", tx: Transaction, message: Recommendation, begun: bytes) -> None:
    """Keep what ``message`` was made from; its search began with ``begun``."""
    tuner = books.tuner.dump()
    del tuner["window"]  # the largest part: how well predictions did decides nothing
    tx.save_derivation(
        Derivation(
            study=message.study,
            recommendation_id=message.recommendation_id,
            context_key=message.context_key,
            generation=books.generation,
            sequence=books.tuner.sequence,
            said_at=message.issued_at,
            message=msgspec.json.decode(to_bytes(message)),
            basis={
                **msgspec.json.decode(begun),
                "orders": [order.dump() for order in books.tuner.orders.standing],
                "chain": books.chain.dump(),
                "tuner": tuner,
                "build": build(),
            },
        )
    )
