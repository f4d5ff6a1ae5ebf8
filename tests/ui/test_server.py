"""HTTP: metrics and health, nothing else, and it cannot be hung."""

import asyncio
import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tunerd.metrics import MetricsExporter
from tunerd.ui import server as http_module
from tunerd.ui.server import EVENTS, MOST_CLIENTS, HttpServer


class Daemon:
    """What the server asks."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def ready(self) -> list[str]:
        return self.problems


@pytest.fixture
def daemon() -> Daemon:
    return Daemon()


@pytest.fixture
def server(daemon: Daemon) -> Iterator[HttpServer]:
    server = HttpServer("127.0.0.1", 0, MetricsExporter().render, ready=daemon.ready)
    yield server
    server.close()


def ask(server: HttpServer, path: str, method: str = "GET") -> tuple[int, str, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.headers["Content-Type"], response.read()
    finally:
        connection.close()


def test_metrics(server: HttpServer) -> None:
    status, content_type, body = ask(server, "/metrics?x=1")
    assert status == 200
    assert content_type.startswith("text/plain")
    assert b"tunerd_build_info" in body


def test_health(server: HttpServer, daemon: Daemon) -> None:
    assert ask(server, "/livez")[0] == 200
    status, content_type, body = ask(server, "/readyz")
    assert (status, content_type) == (200, "application/json")
    assert json.loads(body) == {"ok": True, "problems": []}
    daemon.problems.append("ingest: the broker cannot be reached")
    status, _, body = ask(server, "/readyz")
    assert status == 503
    assert json.loads(body) == {"ok": False, "problems": daemon.problems}
    assert ask(server, "/livez")[0] == 200


def test_what_somebody_must_see_is_told_although_it_is_ready() -> None:
    said: list[str] = ["study toy is set aside"]
    server = HttpServer("127.0.0.1", 0, MetricsExporter().render, remarks=lambda: said)
    try:
        status, _, body = ask(server, "/readyz")
        assert (status, json.loads(body)) == (200, {"ok": True, "problems": [], "remarks": said})
        assert json.loads(ask(server, "/livez")[2]) == {"ok": True, "problems": []}
    finally:
        server.close()


def test_health_that_cannot_be_told_is_bad() -> None:
    def broken() -> list[str]:
        raise RuntimeError("secret")

    server = HttpServer("127.0.0.1", 0, MetricsExporter().render, ready=broken)
    try:
        status, _, body = ask(server, "/readyz")
    finally:
        server.close()
    assert status == 503
    assert b"RuntimeError" in body
    assert b"secret" not in body


@pytest.mark.parametrize("path", ["/", "/metricsx", "/metrics/", "/../metrics", "/x"])
def test_everything_else_is_not_found(server: HttpServer, path: str) -> None:
    assert ask(server, path)[0] == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_nothing_changes_over_http(server: HttpServer, method: str) -> None:
    assert ask(server, "/metrics", method)[0] == 405


def test_head_has_no_body(server: HttpServer) -> None:
    status, content_type, body = ask(server, "/readyz", "HEAD")
    assert (status, content_type, body) == (200, "application/json", b"")


def test_it_is_silent(server: HttpServer, capfd: pytest.CaptureFixture[str]) -> None:
    ask(server, "/metrics")
    ask(server, "/none")
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as client:
        client.sendall(b"\x16\x03\x01 no http\r\n\r\n")
        client.recv(1000)
    assert capfd.readouterr() == ("", "")


def test_a_fault_of_ours_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def broken(accept: str) -> tuple[bytes, str]:
        raise ZeroDivisionError(accept)

    server = HttpServer("127.0.0.1", 0, broken)
    try:
        assert ask(server, "//[")[0] == 404
        assert ask(server, "/metrics")[0] == 500
    finally:
        server.close()
    assert "ZeroDivisionError" in caplog.text


def test_slow_clients_do_not_keep_others_out_for_long(server: HttpServer) -> None:
    slow = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(MOST_CLIENTS + 3)]
    try:
        for client in slow[: MOST_CLIENTS // 2]:
            client.close()
        deadline = time.monotonic() + 5
        while True:
            try:
                assert ask(server, "/livez")[0] == 200
                break
            except (ConnectionError, http.client.HTTPException):
                assert time.monotonic() < deadline
    finally:
        for client in slow:
            client.close()


def test_clients_that_send_a_byte_now_and_then_lose_their_places(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_module, "LONGEST_S", 0.3)
    slow = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(MOST_CLIENTS)]
    deadline = time.monotonic() + 5
    answered = False
    while not answered:
        for client in slow:
            with contextlib.suppress(OSError):
                client.sendall(b"G")
        try:
            answered = ask(server, "/livez")[0] == 200
        except (ConnectionError, http.client.HTTPException):
            assert time.monotonic() < deadline
    for client in slow:
        client.close()


def test_closing_frees_the_port_and_waits_for_nobody(daemon: Daemon) -> None:
    server = HttpServer("127.0.0.1", 0, MetricsExporter().render, ready=daemon.ready)
    with socket.create_connection(("127.0.0.1", server.port)):
        ask(server, "/livez")
        started = time.monotonic()
        server.close()
        assert time.monotonic() - started < 2
    again = HttpServer("127.0.0.1", server.port, MetricsExporter().render)
    again.close()


def test_a_port_that_is_taken_is_an_error(server: HttpServer) -> None:
    before = threading.active_count()
    with pytest.raises(OSError, match="in use"):
        HttpServer("127.0.0.1", server.port, MetricsExporter().render)
    assert threading.active_count() == before


def test_ipv6() -> None:
    try:
        server = HttpServer("::1", 0, MetricsExporter().render)
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    try:
        assert server.url == f"http://[::1]:{server.port}"
        with socket.create_connection(("::1", server.port), timeout=5) as client:
            client.sendall(b"GET /livez HTTP/1.0\r\n\r\n")
            assert client.recv(100).startswith(b"HTTP/1.1 200")
    finally:
        server.close()


# -- pages ----------------------------------------------------------------------------------


async def _endless(_scope: Any, _receive: Any, send: Any) -> None:
    """A line now and then, under every path."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    while True:
        await send({"type": "http.response.body", "body": b"more\n", "more_body": True})
        await asyncio.sleep(0.05)


async def _huge(_scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"x" * 5_000_000})


def test_pages_stand_beside_the_metrics() -> None:
    server = HttpServer("127.0.0.1", 0, MetricsExporter().render, pages=_huge)
    try:
        assert len(ask(server, "/")[2]) == 5_000_000
        assert b"tunerd_build_info" in ask(server, "/metrics")[2]
        assert ask(server, "/livez")[0] == 200
    finally:
        server.close()


def test_who_does_not_read_loses_the_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_module, "LONGEST_S", 0.3)
    server = HttpServer("127.0.0.1", 0, MetricsExporter().render, pages=_huge)
    readers = []
    try:
        for _ in range(MOST_CLIENTS):
            reader = socket.create_connection(("127.0.0.1", server.port), timeout=5)
            reader.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            readers.append(reader)
        deadline = time.monotonic() + 20
        while True:
            with contextlib.suppress(ConnectionError, http.client.HTTPException):
                assert ask(server, "/livez")[0] == 200
                break
            assert time.monotonic() < deadline
    finally:
        for reader in readers:
            reader.close()
        server.close()


def test_news_goes_on_where_another_answer_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_module, "LONGEST_S", 0.3)
    server = HttpServer("127.0.0.1", 0, pages=_endless)
    try:
        assert _lasts(server, EVENTS) > 1.0
        assert _lasts(server, "/other") < 1.0
    finally:
        server.close()


def _lasts(server: HttpServer, path: str, most_s: float = 1.5) -> float:
    """Seconds until an answer is cut, at most so many."""
    started = time.monotonic()
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as client:
        client.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        with contextlib.suppress(ConnectionError):
            while client.recv(1000):
                if time.monotonic() - started > most_s:
                    break
    return time.monotonic() - started


def test_a_connection_is_kept_for_further_questions(server: HttpServer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
    try:
        for _ in range(3):
            connection.request("GET", "/livez")
            assert connection.getresponse().read()
        connection.sock.getpeername()
    finally:
        connection.close()
