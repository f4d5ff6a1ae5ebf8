"""Nothing raises into a training, whatever is wrong in here."""

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

__all__ = ["guarded"]


class _HearsOfFaults(Protocol):
    def fault(self, error: Exception) -> None: ...


S = TypeVar("S", bound=_HearsOfFaults)
P = ParamSpec("P")


def guarded(
    method: Callable[Concatenate[S, P], Any],
) -> Callable[Concatenate[S, P], None]:
    """A method that never raises an Exception: its object hears of what it would have raised.

    What is none, KeyboardInterrupt for instance, is the training's and passes.
    """

    @wraps(method)
    def never_raises(self: S, /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            method(self, *args, **kwargs)
        except Exception as error:
            self.fault(error)

    return never_raises
