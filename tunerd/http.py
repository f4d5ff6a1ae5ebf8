"""Metrics and health over HTTP for machines: ``/metrics``, ``/livez``, ``/readyz``, nothing else.

Read-only, on loopback unless told otherwise, without authentication. Knows neither Prometheus nor
the stages: it is given functions to ask.
"""

import contextlib
import json
import logging
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from tunerd import __version__

__all__ = ["HttpServer"]

log = logging.getLogger(__name__)

TIMEOUT_S = 5.0
"""A client that sends or reads nothing for so long is dropped."""
LONGEST_S = 10.0
"""So is one that takes longer in all, however busy it looks: a byte now and then holds no place."""
MOST_CLIENTS = 32
"""Connections beyond these are closed at once: no client, however slow, can take all threads."""

Ask = Callable[[], Sequence[str]]
"""Gives sentences that say what is wrong; none when all is well. Must answer at once."""
Answer = tuple[HTTPStatus, bytes, str]
Route = Callable[[str], Answer]
"""From an Accept header to status, body and content type."""


def _nothing() -> Sequence[str]:
    return ()


class HttpServer:
    """Answers in threads of its own from construction until :meth:`close`.

    ``metrics`` gets an Accept header and gives a body and its content type; ``ready`` and
    ``alive`` give what is wrong, ``remarks`` what somebody must see although the daemon is ready.
    Raises OSError when the address cannot be had.
    """

    def __init__(
        self,
        host: str,
        port: int,
        metrics: Callable[[str], tuple[bytes, str]],
        ready: Ask = _nothing,
        alive: Ask = _nothing,
        remarks: Ask = _nothing,
    ) -> None:
        routes: dict[str, Route] = {
            "/metrics": lambda accept: (HTTPStatus.OK, *metrics(accept)),
            "/readyz": lambda _: _health(ready, remarks),
            "/livez": lambda _: _health(alive, _nothing),
        }
        self._server = _ThreadedServer(host, port, routes)
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
        """Stop listening. Nobody waits for requests that still run."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _health(ask: Ask, remarks: Ask) -> Answer:
    document: dict[str, Any]
    try:
        problems = list(ask())
        document = {"ok": not problems, "problems": problems}
        if remarked := list(remarks()):
            document["remarks"] = remarked
    except Exception as error:  # whatever it is, it is not health
        document = {"ok": False, "problems": [f"cannot tell: {type(error).__name__}"]}
    status = HTTPStatus.OK if document["ok"] else HTTPStatus.SERVICE_UNAVAILABLE
    body = json.dumps(document, ensure_ascii=False) + "\n"
    return status, body.encode(errors="replace"), "application/json"


class _ThreadedServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64  # with the usual 5, a burst waits for retransmissions

    def __init__(self, host: str, port: int, routes: Mapping[str, Route]) -> None:
        self.routes = routes
        self._free = threading.BoundedSemaphore(MOST_CLIENTS)
        self._since: dict[socket.socket, float] = {}
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _RequestHandler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        self._since[request] = time.monotonic()
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread to be had
            self._end(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._end(request)

    def service_actions(self) -> None:
        """Called several times a second."""
        for request, since in list(self._since.items()):
            if time.monotonic() - since > LONGEST_S:
                with contextlib.suppress(OSError):  # it has just ended
                    request.shutdown(socket.SHUT_RDWR)

    def _end(self, request: Any) -> None:
        del self._since[request]
        self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """A client that went away is nothing that an operator cares about; the rest is ours."""
        if not isinstance(sys.exception(), OSError):
            log.exception("HTTP request failed")


class _RequestHandler(BaseHTTPRequestHandler):
    timeout = TIMEOUT_S
    server: _ThreadedServer

    def do_GET(self) -> None:
        try:
            route = self.server.routes.get(urlsplit(self.path).path)
        except ValueError:  # "//[" is no URL
            route = None
        if route is None:
            self._say(HTTPStatus.NOT_FOUND, "There are /metrics, /livez and /readyz.")
        else:
            self._answer(*route(self.headers.get("Accept", "")))

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        self._say(HTTPStatus.METHOD_NOT_ALLOWED, "Only GET and HEAD: nothing changes over HTTP.")

    def do_PUT(self) -> None:
        self.do_POST()

    def do_PATCH(self) -> None:
        self.do_POST()

    def do_DELETE(self) -> None:
        self.do_POST()

    def do_OPTIONS(self) -> None:
        self.do_POST()

    def _say(self, status: HTTPStatus, text: str) -> None:
        self._answer(status, text.encode() + b"\n", "text/plain; charset=utf-8")

    def _answer(self, status: HTTPStatus, body: bytes, content_type: str) -> None:
        self.send_response(status)
        if status == HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
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
