"""What is known of each context, the one that had the last job last, in several blobs, of which a
job changes one.

A checkpoint tells of all contexts. In one blob each would write all of them again, and a job would
cost the more the more there were before it.
"""

import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

__all__ = ["ShardedState"]

T = TypeVar("T")

SHELVES = 32
"""More make what a job writes smaller, and the list of a checkpoint's parts longer."""


class ShardedState(Mapping[str, T], Generic[T]):
    """Context key → what is known there. What changes in place has to be :meth:`put` again."""

    def __init__(self, items: Iterable[tuple[str, T]] = ()) -> None:
        self._items = OrderedDict(items)
        self._turn = {key: i for i, key in enumerate(self._items)}
        """When each was put, in turns."""
        self._dumped: dict[int, bytes] = {}
        """Blobs by shelf, of those on which nothing changed since."""

    def __getitem__(self, key: str) -> T:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def put(self, key: str, item: T) -> None:
        """Keep what is known of a context, as the last one."""
        last = next(reversed(self._items), None)
        self._items[key] = item
        self._items.move_to_end(key)
        self._turn[key] = 0 if last is None else self._turn[last] + 1
        self._dumped.pop(_shelf(key), None)

    def drop_first(self) -> T:
        """Forget the context that had no job for longest."""
        key, item = self._items.popitem(last=False)
        del self._turn[key]
        self._dumped.pop(_shelf(key), None)
        return item

    def dump(
        self, prefix: str, pack: Callable[[Sequence[tuple[str, int, T]]], bytes]
    ) -> dict[str, bytes]:
        """Blobs by name; ``pack`` makes one of keys, turns, and what is known."""
        changed: dict[int, list[tuple[str, int, T]]] = {}
        for key, item in self._items.items():
            if (shelf := _shelf(key)) not in self._dumped:
                changed.setdefault(shelf, []).append((key, self._turn[key], item))
        self._dumped |= {shelf: pack(items) for shelf, items in changed.items()}
        return {f"{prefix}{shelf}": blob for shelf, blob in sorted(self._dumped.items())}

    @classmethod
    def load(
        cls,
        blobs: Mapping[str, bytes],
        prefix: str,
        unpack: Callable[[bytes], Iterable[tuple[str, int, T]]],
    ) -> "ShardedState[T]":
        """Build from what :meth:`dump` gave, among other blobs."""
        items = [item for name in blobs if name.startswith(prefix) for item in unpack(blobs[name])]
        items.sort(key=lambda item: item[1])
        state = cls((key, item) for key, _, item in items)
        state._turn = {key: turn for key, turn, _ in items}
        return state


def _shelf(key: str) -> int:
    return zlib.crc32(key.encode()) % SHELVES
