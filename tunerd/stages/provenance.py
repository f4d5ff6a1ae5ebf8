"""What a recommendation was made from, beyond what history, checkpoints and steps tell.

That is the state of the context as its search began (of several contexts, for the entry for the
empty one), what was followed there, the orders that stood, what the tuner knows beside its model,
and the build. Kept with each recommendation and proposal, so that :mod:`tunerd.stages.replay` can
make it again, and with each search that is offered to other instances
(:mod:`tunerd.stages.shared_search`).
"""

from collections.abc import Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import msgspec

from tunerd.core.decisions.overrides import Override, OverrideSet
from tunerd.core.hash_chain import HashChain
from tunerd.core.model.training import Fetch
from tunerd.core.recommendation import Recommendation
from tunerd.core.study import Study
from tunerd.core.tuner import Tuner
from tunerd.events import to_bytes
from tunerd.stages.build_info import build
from tunerd.store import ProvenanceRow, Transaction

__all__ = ["OfferedSearch", "basis_of", "keep_basis", "tuner_of", "whole_basis"]

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class OfferedSearch:
    """A search that other instances may do, as it was offered."""

    id: int
    """Of its task."""
    sequence: int
    """Last observation that was learned then …"""
    model: str
    """… and the checkpoint that had."""
    begun: bytes
    """What :func:`basis_of` gave …"""
    basis: Mapping[str, Any]
    """… and :func:`whole_basis`."""


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


def whole_basis(tuner: Tuner, chain: HashChain, key: str, begun: bytes) -> dict[str, Any]:
    """All that the search of a context is made from beside the model, as JSON values. ``begun`` is
    what :func:`basis_of` gave."""
    return {
        **msgspec.json.decode(begun),
        "orders": [order.dump() for order in tuner.orders.standing],
        "chain": chain.dump(),
        "tuner": tuner.dump_basis(key),
        "build": build(),
    }


def keep_basis(
    tx: Transaction, generation: int, message: Recommendation, basis: Mapping[str, Any]
) -> None:
    """Keep what ``message`` was made from."""
    tx.save_derivation(
        ProvenanceRow(
            study=message.study,
            recommendation_id=message.recommendation_id,
            context_key=message.context_key,
            generation=generation,
            sequence=message.made_from.sequence,
            said_at=message.issued_at,
            message=msgspec.json.decode(to_bytes(message)),
            basis=basis,
        )
    )


def tuner_of(
    study: Study,
    background: Executor,
    basis: Mapping[str, Any],
    states: Mapping[str, Mapping[str, Any]],
    parts: Mapping[str, bytes] | None,
    todo: Iterable[tuple[int, int]] = (),
    fetch: Fetch = lambda _: [],
) -> Tuner:
    """A tuner that advises as the one did that gave ``basis``, on contexts in these ``states``. Its
    model, of these ``parts``, learns portions ``todo`` again, for which ``fetch`` gives the jobs.

    Raises:
        ValueError: a part is damaged, or the model has learned something else.
    """
    # Whatever was being rebuilt then had no say in what was said.
    training = {**basis["tuner"]["training"], "rebuild": None}
    tuner = Tuner.restore(
        study,
        background,
        {**Tuner(study, background).dump(), **basis["tuner"], "training": training},
        states,
        parts,
        todo,
        fetch,
    )
    tuner.impose(OverrideSet(study, map(Override.load, basis["orders"])))
    return tuner
