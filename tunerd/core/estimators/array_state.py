"""Parts of models that are saved by their fields, arrays among them."""

from typing import Any, Self, get_args

import msgspec
import numpy as np

from tunerd.core.saved_state import FrozenState

__all__ = ["ArrayState"]


class ArrayState(FrozenState, frozen=True, eq=False):
    """Base of a state with numpy arrays. Numbers survive to the last bit."""

    def dump(self) -> Any:
        """State as JSON values; :meth:`load` gives it back exactly."""
        return msgspec.to_builtins(self, str_keys=True, enc_hook=_values)

    @classmethod
    def load_with_defaults(cls, state: Any) -> Self:
        """See :meth:`FrozenState.load_with_defaults`."""
        return msgspec.convert(state, cls, str_keys=True, dec_hook=_array)


def _values(array: Any) -> Any:
    """An array as lists; with its shape where that would be lost without any values."""
    return array.tolist() if array.ndim == 1 else {"shape": array.shape, "values": array.ravel()}


def _array(kind: Any, state: Any) -> Any:
    (dtype,) = get_args(get_args(kind)[1])
    if isinstance(state, dict):
        return np.array(state["values"], dtype).reshape(state["shape"])
    return np.array(state, dtype)
