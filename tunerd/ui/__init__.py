"""The page: what tunerd knows, live, in a browser; and the same as JSON."""

import threading
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from anyio import to_thread

if TYPE_CHECKING:
    from tunerd.store import Store
    from tunerd.ui.app import Pages

__all__ = ["LazyPages", "is_loopback"]


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens there."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


class LazyPages:
    """The pages of a daemon, made when the first of them is asked for: many a daemon is never
    looked at, and templates, plots and numpy take memory and half a second."""

    def __init__(
        self,
        store: "Store",
        *,
        metrics: Callable[[str], tuple[bytes, str]],
        problems: Callable[[], Sequence[str]],
        arguments: Sequence[str],
        host: str,
        names: Sequence[str],
        token: str | None = None,
    ) -> None:
        self._store = store
        self._metrics = metrics
        self._problems = problems
        self._arguments = arguments
        self._host, self._names = host, names
        self._token = token
        self._lock = threading.Lock()
        self._pages: Pages | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """As ASGI has it."""
        pages = self._pages
        if pages is None:
            pages = await to_thread.run_sync(self._made)
        await pages(scope, receive, send)

    def close(self) -> None:
        """End what runs for them."""
        with self._lock:
            if self._pages is not None:
                self._pages.close()

    def _made(self) -> "Pages":
        from tunerd.queries.metric_samples import MetricSamples
        from tunerd.ui.app import LOCAL, Pages

        with self._lock:
            if self._pages is None:
                local = is_loopback(self._host)
                own = LOCAL | {self._host} if local else frozenset[str]()
                hosts = own.union(self._names)
                self._pages = Pages(
                    self._store,
                    metrics=lambda: MetricSamples(self._metrics("")[0].decode()),
                    problems=self._problems,
                    arguments=self._arguments,
                    hosts=hosts or None,
                    token=self._token,
                )
            return self._pages
