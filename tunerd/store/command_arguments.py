"""What each of the operators' commands has to be told.

Commands are rows, and anybody with access to the database can write one. Whoever carries them out
asks here first, so that a wrong row is refused with a reason.
"""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

__all__ = ["arguments_problem"]

_Scalar = bool | int | float | str | None
_Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
_Sequence = Annotated[int, Meta(ge=1, le=2**63 - 1)]
_AtLeastOne = Annotated[int, Meta(ge=1, le=2**31 - 1)]


class _NoArguments(Struct, frozen=True):
    """Nothing."""


class _CampaignArguments(Struct, frozen=True):
    """Of ``campaign``."""

    context: dict[str, _Scalar]
    jobs: _Count
    rounds: _Count
    round_size: _AtLeastOne
    repeats: _AtLeastOne
    patience_h: Annotated[float, Meta(gt=0)] = 1.0
    min_feasible: Annotated[float, Meta(ge=0, le=1)] = 0.0


class _KeyArguments(Struct, frozen=True):
    """Of ``cancel``."""

    context_key: str


class _ProposalArguments(_KeyArguments, frozen=True):
    """Of ``approve`` and ``decline``."""

    recommendation_id: str


class _ContextArguments(Struct, frozen=True):
    """Of ``pause`` and ``resume``."""

    context: dict[str, _Scalar]


class _LimitArguments(_ContextArguments, frozen=True):
    """Of ``pin`` and ``forbid``."""

    config: dict[str, _Scalar]


class _QuarantineArguments(Struct, frozen=True):
    """Of ``release`` and ``confirm``."""

    sequences: Annotated[list[_Sequence], Meta(min_length=1, max_length=10_000)]


class _NumberArguments(Struct, frozen=True):
    """Of ``lift``."""

    number: int


class _VersionArguments(Struct, frozen=True):
    """Of ``back``."""

    version: int


_ARGUMENTS: Mapping[str, type[Struct]] = {
    "campaign": _CampaignArguments,
    "cancel": _KeyArguments,
    "approve": _ProposalArguments,
    "decline": _ProposalArguments,
    "pause": _ContextArguments,
    "resume": _ContextArguments,
    "pin": _LimitArguments,
    "forbid": _LimitArguments,
    "lift": _NumberArguments,
    "back": _VersionArguments,
    "latest": _NoArguments,
    "end": _NoArguments,
    "release": _QuarantineArguments,
    "confirm": _QuarantineArguments,
}


def arguments_problem(command: str, arguments: Mapping[str, Any]) -> str | None:
    """Why a command cannot be carried out with these arguments; None where it can, or where this
    version knows no such command. Never raises."""
    expected = _ARGUMENTS.get(command)
    if expected is None:
        return None
    try:
        msgspec.convert(dict(arguments), expected)
    except (msgspec.ValidationError, RecursionError) as error:
        return f"{error}".replace("`", "").replace("$.", "").rstrip(".")
    return None
