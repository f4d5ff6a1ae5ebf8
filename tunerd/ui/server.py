"""What the daemon says over HTTP: ``/metrics``, ``/livez``, ``/readyz``, and beside them the pages.

On loopback unless told otherwise, without authentication. Knows neither Prometheus nor the stages:
it is given functions to ask, and the pages as an application of their own.
"""

import asyncio
import base64
import hmac
import json
import logging
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from tunerd import __version__
from tunerd.ui.certificate import ReloadingCertificate

__all__ = ["EVENTS", "WRONG_TOKEN_S", "HttpServer"]

log = logging.getLogger(__name__)

TIMEOUT_S = 5
"""A connection on which nothing is asked for so long is closed."""
LONGEST_S = 10.0
"""A request that takes longer in all, however busy it looks, loses its connection: a byte now and
then holds no place."""
MOST_CLIENTS = 64
"""Connections beyond these are closed at once: no client, however slow, can take all places. A
browser opens up to seven."""
MOST_INSIDE = 2 * MOST_CLIENTS
"""The same, with those that are at their TLS handshake."""
MOST_HEADERS = 64 * 1024
"""Bytes of a request's line and headers."""
EVENTS = "/events"
"""Path under which answers go on and on …"""
LONGEST_EVENTS_S = 60.0
"""… and how long one of these lasts at most. Browsers then ask anew by themselves."""
OPEN = ("/livez", "/readyz")
"""What needs no token."""
WRONG_TOKEN_S = 1.0
"""How long a wrong token waits for its answer: nobody tries many."""
TOKEN_WANTED = PlainTextResponse(
    "The token is missing or wrong: http.read_token_file.\n",
    HTTPStatus.UNAUTHORIZED,
    {"WWW-Authenticate": 'Basic realm="tunerd"', "Cache-Control": "no-store"},
)
QUEUE = 64
"""With the usual 5, a burst waits for retransmissions."""

Ask = Callable[[], Sequence[str]]
"""Gives sentences that say what is wrong; none when all is well. Must answer at once."""


def _nothing() -> Sequence[str]:
    return ()


class HttpServer:
    """Answers in a thread of its own from construction until :meth:`close`.

    ``metrics`` gets an Accept header and gives a body and its content type; ``ready`` and
    ``alive`` give what is wrong, ``remarks`` what somebody must see although the daemon is ready.
    ``role`` says what this one of several instances does, and is empty where there is one only.
    ``pages`` answers everything else. With a ``certificate`` it is HTTPS. With a ``token`` every
    request but those for health needs it.
    Raises OSError when the address cannot be had.
    """

    def __init__(
        self,
        host: str,
        port: int,
        metrics: Callable[[str], tuple[bytes, str]] | None = None,
        ready: Ask = _nothing,
        alive: Ask = _nothing,
        remarks: Ask = _nothing,
        pages: ASGIApp | None = None,
        role: Callable[[], Mapping[str, Any]] = dict,
        certificate: ReloadingCertificate | None = None,
        token: str | None = None,
    ) -> None:
        self._socket = _listening(host, port)
        routes: list[BaseRoute] = []
        if metrics is not None:
            routes = [
                Route("/metrics", partial(_metrics, metrics)),
                Route("/readyz", partial(_health, ready, remarks, role)),
                Route("/livez", partial(_health, alive, _nothing, dict)),
            ]
        if pages is not None:
            routes.append(Mount("/", app=pages))
        handlers: dict[Any, Any] = {HTTPException: _refusal, Exception: _fault}
        app = Starlette(routes=routes, exception_handlers=handlers)
        app.router.redirect_slashes = False
        self._scheme = "http" if certificate is None else "https"
        config = _Config(
            app if token is None else TokenGate(app, token),
            http=_Connection,
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            log_level="critical",  # requests are not worth a line; faults of ours are ours to log
            access_log=False,
            proxy_headers=False,
            server_header=False,
            headers=[
                ("Server", f"tunerd/{__version__}"),
                ("X-Content-Type-Options", "nosniff"),
            ],
            backlog=QUEUE,
            timeout_keep_alive=TIMEOUT_S,
            timeout_graceful_shutdown=1,
            h11_max_incomplete_event_size=MOST_HEADERS,
        )
        config.certificate = certificate
        self._server = Server(config)
        self._thread = threading.Thread(
            target=self._server.run, args=([self._socket],), name="http", daemon=True
        )
        self._address: Any = self._socket.getsockname()
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that is listened on (the one found free, when 0 was asked for)."""
        return int(self._address[1])

    @property
    def url(self) -> str:
        """Where it is."""
        host = str(self._address[0])
        return f"{self._scheme}://{f'[{host}]' if ':' in host else host}:{self.port}"

    def close(self) -> None:
        """Stop listening. Requests that still run have a second."""
        self._server.should_exit = True
        self._thread.join()


class _Door(socket.socket):
    """Lets so many in at a time. Those that are still at their TLS handshake are no connections to
    uvicorn yet: a thousand of them would leave the daemon no descriptor for its store."""

    def __init__(self, family: int) -> None:
        super().__init__(family)
        self._inside: list[socket.socket] = []

    def accept(self) -> tuple[socket.socket, Any]:
        """As a socket's; refuses as one does whose client has gone meanwhile."""
        client, address = super().accept()
        self._inside = [inside for inside in self._inside if inside.fileno() >= 0]
        if len(self._inside) >= MOST_INSIDE:
            client.close()
            raise ConnectionAbortedError
        self._inside.append(client)
        return client, address


class _Loop(asyncio.SelectorEventLoop):
    """asyncio's, with a handshake that takes no minute."""

    async def create_server(self, *args: Any, **options: Any) -> Any:
        """As asyncio has it."""
        if options.get("ssl") is not None:
            options["ssl_handshake_timeout"] = TIMEOUT_S
        return await super().create_server(*args, **options)


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = _Door(family)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(QUEUE)
    except OSError:
        listening.close()
        raise
    return listening


async def _metrics(ask: Callable[[str], tuple[bytes, str]], request: Request) -> Response:
    accept = request.headers.get("Accept", "")
    body, content_type = await asyncio.to_thread(ask, accept)
    return Response(body, headers={"Content-Type": content_type, "Cache-Control": "no-store"})


async def _health(
    ask: Ask, remarks: Ask, role: Callable[[], Mapping[str, Any]], _: Request
) -> Response:
    document: dict[str, Any]
    try:
        problems = list(ask())
        document = {"ok": not problems, "problems": problems}
        if remarked := list(remarks()):
            document["remarks"] = remarked
        if played := dict(role()):
            document["role"] = played
    except Exception as error:  # whatever it is, it is not health
        document = {"ok": False, "problems": [f"cannot tell: {type(error).__name__}"]}
    status = HTTPStatus.OK if document["ok"] else HTTPStatus.SERVICE_UNAVAILABLE
    body = json.dumps(document, ensure_ascii=False) + "\n"
    return Response(
        body.encode(errors="replace"),
        status,
        headers={"Content-Type": "application/json", "Cache-Control": "no-store"},
    )


async def _refusal(_: Request, error: HTTPException) -> Response:
    sentences = {
        HTTPStatus.NOT_FOUND: "There are /metrics, /livez and /readyz.",
        HTTPStatus.METHOD_NOT_ALLOWED: "Only GET and HEAD: nothing changes over HTTP.",
    }
    text = sentences.get(HTTPStatus(error.status_code), error.detail)
    return PlainTextResponse(text + "\n", error.status_code, error.headers)


async def _fault(_: Request, error: Exception) -> Response:
    """A client that went away is nothing that an operator cares about; the rest is ours."""
    if not isinstance(error, OSError | ClientDisconnect):
        log.error("HTTP request failed", exc_info=error)
    return PlainTextResponse("This failed; the log says why.\n", HTTPStatus.INTERNAL_SERVER_ERROR)


class _Config(Config):
    """uvicorn's, with a certificate that may change; its own is read once and never again."""

    certificate: ReloadingCertificate | None = None

    def get_loop_factory(self) -> Callable[[], asyncio.AbstractEventLoop] | None:
        """As uvicorn has it."""
        return _Loop

    def load(self) -> None:
        super().load()
        self.ssl = None if self.certificate is None else self.certificate.serving()


class TokenGate:
    """Lets requests through that carry the token, as a bearer token or as the password of whoever.

    Health needs none: what asks for it can seldom keep a secret, and it shows no jobs.
    """

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI has it."""
        if scope["type"] == "http" and scope["path"] not in OPEN:
            given = _token_of(Headers(scope=scope).get("Authorization", ""))
            if given is None or not hmac.compare_digest(given, self._token):
                if given is not None:
                    log.warning("a request with a wrong token was refused")
                    await asyncio.sleep(WRONG_TOKEN_S)
                await TOKEN_WANTED(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _token_of(header: str) -> bytes | None:
    """What an Authorization header carries; None where it carries nothing."""
    kind, _, value = header.partition(" ")
    if kind.lower() == "bearer":
        return value.strip().encode()
    if kind.lower() == "basic":
        try:
            return base64.b64decode(value, validate=True).partition(b":")[2]
        except ValueError:
            return b""
    return None


class _Connection(H11Protocol):
    """One client, in its time. uvicorn itself waits for ever for a request to become whole, and for
    an answer to be read."""

    _last: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if len(self.connections) >= MOST_CLIENTS:
            transport.abort()
        super().connection_made(transport)
        self._wait(LONGEST_S)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._last is not None:
            self._last.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        self._wait(LONGEST_S)
        super().on_response_complete()

    def _wait(self, seconds: float) -> None:
        if self._last is not None:
            self._last.cancel()
        self._last = self.loop.call_later(seconds, self._end, seconds)

    def _end(self, waited_s: float) -> None:
        running = self.cycle is not None and not self.cycle.response_complete
        goes_on = running and self.scope["path"] == EVENTS and not self.flow.write_paused
        if goes_on and waited_s < LONGEST_EVENTS_S:
            self._wait(LONGEST_EVENTS_S)
        else:
            self.transport.abort()
