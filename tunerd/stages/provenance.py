"""What a recommendation was made from, beyond what history, checkpoints and steps tell.

That is the state of the context as its search began (of several contexts, for the entry for the
empty one), what was followed there, the orders that stood, what the tuner knows beside its model,
and the build. Kept with each recommendation and proposal, so that :mod:`tunerd.stages.replay` can
make it again.
"""

import msgspec

from tunerd.core.hash_chain import HashChain
from tunerd.core.recommendation import Recommendation
from tunerd.core.tuner import Tuner
from tunerd.events import to_bytes
from tunerd.stages.build_info import build
from tunerd.store import ProvenanceRow, Transaction

__all__ = ["basis_of", "keep_basis"]

_encode = msgspec.json.Encoder().encode


def basis_of(
    tuner: Tuner, key: str, followed: Recommendation | None, *, brief: bool = False
) -> bytes:
    """What the search of a context begins with; ``followed`` is what schedulers follow there. A
    fraction of a millisecond."""
    return _encode(
        {
            "states": {name: state.dump() for name, state in tuner.basis(key).items()},
            "running": None if followed is None else msgspec.Raw(to_bytes(followed)),
            "brief": brief,
        }
    )


def keep_basis(
    tx: Transaction,
    generation: int,
    tuner: Tuner,
    chain: HashChain,
    message: Recommendation,
    begun: bytes,
) -> None:
    """Keep what ``message`` was made from; its search began with ``begun``."""
    tx.save_derivation(
        ProvenanceRow(
            study=message.study,
            recommendation_id=message.recommendation_id,
            context_key=message.context_key,
            generation=generation,
            sequence=tuner.sequence,
            said_at=message.issued_at,
            message=msgspec.json.decode(to_bytes(message)),
            basis={
                **msgspec.json.decode(begun),
                "orders": [order.dump() for order in tuner.orders.standing],
                "chain": chain.dump(),
                "tuner": tuner.dump_basis(message.context_key),
                "build": build(),
            },
        )
    )
