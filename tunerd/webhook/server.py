"""The webhook's HTTP server: TLS with a certificate that may change, and bounds on everything.

A thread for each connection, which does its handshake too, so that no client keeps others waiting.
"""

import contextlib
import json
import logging
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from tunerd import __version__
from tunerd.ui.certificate import ReloadingCertificate
from tunerd.webhook.review import NoReviewError

__all__ = ["WebhookServer"]

log = logging.getLogger("tunerd.webhook")

PATH = "/mutate"
MOST_BYTES = 4 << 20
"""Kubernetes takes objects of 3 MiB at most."""

TIMEOUT_S = 5.0
"""A client that sends or reads nothing for so long is dropped."""
LONGEST_S = 10.0
"""So is one that takes longer in all, however busy it looks: a byte now and then holds no place."""
MOST_CLIENTS = 32
"""Connections beyond these are closed at once: no client, however slow, can take all threads."""

Review = Callable[[bytes], dict[str, Any]]
"""From the body of a request to the answer; raises NoReviewError."""


class WebhookServer:
    """Answers in threads of its own from construction until :meth:`close`.

    ``review`` answers ``POST /mutate``; ``ready`` says what is wrong, for ``/readyz``. Raises
    OSError when the address cannot be had.
    """

    def __init__(
        self,
        host: str,
        port: int,
        certificate: ReloadingCertificate,
        review: Review,
        ready: Callable[[], Sequence[str]],
    ) -> None:
        self._server = _TlsServer(host, port, certificate, review, ready)
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, name="webhook"
        )
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that is listened on (the one found free, when 0 was asked for)."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Stop listening. Nobody waits for requests that still run."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _TlsServer(ThreadingHTTPServer):
    """A thread for each connection, at most so many, and none for longer than it may take."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64  # with the usual 5, a burst waits for retransmissions

    def __init__(
        self,
        host: str,
        port: int,
        certificate: ReloadingCertificate,
        review: Review,
        ready: Callable[[], Sequence[str]],
    ) -> None:
        self.certificate, self.review, self.ready = certificate, review, ready
        self._free = threading.BoundedSemaphore(MOST_CLIENTS)
        self._since: dict[socket.socket, float] = {}
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _WebhookHandler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread to be had
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def finish_request(self, request: Any, client_address: Any) -> None:
        plain: socket.socket = request
        plain.settimeout(TIMEOUT_S)
        context = self.certificate.context()
        with context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False) as secure:
            self._since[secure] = time.monotonic()
            try:
                secure.do_handshake()
                super().finish_request(secure, client_address)
            finally:
                del self._since[secure]

    def service_actions(self) -> None:
        """Called several times a second."""
        for connection, since in list(self._since.items()):
            if time.monotonic() - since > LONGEST_S:
                with contextlib.suppress(OSError):  # it has just ended
                    connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """A client that went away is nothing that an operator cares about; the rest is ours."""
        if not isinstance(sys.exception(), OSError):
            log.exception("a request failed")


class _WebhookHandler(BaseHTTPRequestHandler):
    timeout = TIMEOUT_S
    server: _TlsServer

    def do_GET(self) -> None:
        path = _path(self.path)
        if path == "/livez":
            self._say(HTTPStatus.OK, "alive")
        elif path == "/readyz":
            problems = list(self.server.ready())
            status = HTTPStatus.SERVICE_UNAVAILABLE if problems else HTTPStatus.OK
            self._say(status, "; ".join(problems) or "ready")
        else:
            self._say(HTTPStatus.NOT_FOUND, f"There are POST {PATH}, /livez and /readyz.")

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            self._say(HTTPStatus.LENGTH_REQUIRED, "Content-Length is missing.")
            return
        if len(length) > 9 or int(length) > MOST_BYTES:
            self._say(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"At most {MOST_BYTES:,} bytes.")
            return
        # Read in any case: what is left unread when a connection closes takes the answer with it.
        body = self.rfile.read(int(length))
        if _path(self.path) != PATH:
            self._say(HTTPStatus.NOT_FOUND, f"There are POST {PATH}, /livez and /readyz.")
            return
        try:
            answer = self.server.review(body)
        except NoReviewError as error:
            self._say(HTTPStatus.BAD_REQUEST, str(error))
            return
        self._answer(HTTPStatus.OK, json.dumps(answer).encode(), "application/json")

    def _say(self, status: HTTPStatus, text: str) -> None:
        self._answer(status, text.encode(errors="replace") + b"\n", "text/plain; charset=utf-8")

    def _answer(self, status: HTTPStatus, body: bytes, content_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def version_string(self) -> str:
        return f"tunerd/{__version__}"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Requests are not worth a line."""


def _path(url: str) -> str:
    try:
        return urlsplit(url).path
    except ValueError:  # "//[" is no URL
        return ""
