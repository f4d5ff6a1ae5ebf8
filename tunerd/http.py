"""Metrics and health over HTTP for machines: ``/metrics``, ``/livez``, ``/readyz``, nothing else.

Read-only, on loopback unless told otherwise, without authentication. Knows neither Prometheus nor
the stages: it is given functions to ask.
"""

import json
import threading
from collections.abc import Callable, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from tunerd import __version__

__all__ = ["HttpServer"]

TIMEOUT_S = 5.0
"""A client that sends or reads slower than this is dropped, so that it cannot hold a thread."""

Ask = Callable[[], Sequence[str]]
"""Gives sentences that say what is wrong; none when all is well. Must answer at once."""


def _nothing() -> Sequence[str]:
    return ()


class HttpServer:
    """Answers in threads of its own from construction until :meth:`close`.

    ``metrics`` gets an Accept header and gives a body and its content type; ``ready`` and
    ``alive`` give what is wrong. Raises OSError when the address cannot be had.
    """

    def __init__(
        self,
        host: str,
        port: int,
        metrics: Callable[[str], tuple[bytes, str]],
        ready: Ask = _nothing,
        alive: Ask = _nothing,
    ) -> None:
        handler = type("Handler", (_Handler,), {"metrics": staticmethod(metrics)})
        handler.checks = {"/readyz": ready, "/livez": alive}
        self._server = _Server((host, port), handler)
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, name="http"
        )
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that is listened on (the one found free, when 0 was asked for)."""
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        """Where it is."""
        host = str(self._server.server_address[0])
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    def close(self) -> None:
        """Stop listening; requests that run may take until their timeout, nobody waits for them."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], handler: Any) -> None:
        if ":" in address[0]:
            import socket

            self.address_family = socket.AF_INET6
        super().__init__(address, handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client went away: nothing that an operator cares about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = TIMEOUT_S
    metrics: Callable[[str], tuple[bytes, str]]
    checks: dict[str, Ask]

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if path == "/metrics":
            body, content_type = self.metrics(self.headers.get("Accept", ""))
            self._answer(HTTPStatus.OK, body, content_type)
        elif path in self.checks:
            problems = list(self.checks[path]())
            status = HTTPStatus.SERVICE_UNAVAILABLE if problems else HTTPStatus.OK
            body = json.dumps({"ok": not problems, "problems": problems}, ensure_ascii=False)
            self._answer(status, body.encode() + b"\n", "application/json")
        else:
            text = b"There are /metrics, /livez and /readyz.\n"
            self._answer(HTTPStatus.NOT_FOUND, text, "text/plain; charset=utf-8")

    do_HEAD = do_GET

    def _answer(self, status: HTTPStatus, body: bytes, content_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def version_string(self) -> str:
        return f"tunerd/{__version__}"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Requests are not worth a line."""
