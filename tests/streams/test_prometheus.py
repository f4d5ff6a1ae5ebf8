"""What answers instead of Prometheus may send anything, for ever or never: a reason, in time."""

import contextlib
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.servers.secure import certify
from tunerd.errors import StreamUnavailableError
from tunerd.settings import load_settings
from tunerd.streams import prometheus
from tunerd.streams.prometheus import PrometheusAnswer, PrometheusClient, PrometheusSeries

Play = Callable[[socket.socket], None]
PASSWORD = "hunter2"  # noqa: S105


class Stranger:
    """Plays one scene to each connection, and remembers what it was sent."""

    def __init__(self, play: Play, context: ssl.SSLContext | None = None) -> None:
        self.play, self.context = play, context
        self.asked: list[bytes] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"{'https' if context else 'http'}://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                raw, _ = self.listener.accept()
                with contextlib.suppress(OSError):
                    guest = self.context.wrap_socket(raw, server_side=True) if self.context else raw
                    asked = b""
                    while b"step=" not in asked:
                        asked += guest.recv(65_536)
                    self.asked.append(asked)
                    self.play(guest)
                    guest.close()


@pytest.fixture
def stranger() -> Iterator[Callable[..., Stranger]]:
    made: list[Stranger] = []

    def make(play: Play, context: ssl.SSLContext | None = None) -> Stranger:
        made.append(Stranger(play, context))
        return made[-1]

    yield make
    for one in made:
        one.listener.shutdown(socket.SHUT_RDWR)  # ends its thread
        one.listener.close()


def client(folder: Path, url: str, more: str = "") -> PrometheusClient:
    file = folder / "tunerd.toml"
    file.write_text(
        f'[signals.prometheus]\nurl = "{url}"\nqueries = {{ rps = "rps" }}\nstep_s = 60\n{more}'
    )
    return PrometheusClient(load_settings(file, {}, check_studies=False).signals.prometheus)


def saying(body: bytes, status: str = "200 OK", headers: str = "") -> Play:
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode()
    return lambda guest: guest.sendall(head + body)


def answer(*series: object, **more: object) -> bytes:
    content = {"status": "success", "data": {"resultType": "matrix", "result": series}, **more}
    return json.dumps(content).encode()


def for_ever(head: bytes, piece: bytes, pause_s: float) -> Play:
    def play(guest: socket.socket) -> None:
        guest.sendall(head)
        while True:
            guest.sendall(piece)
            time.sleep(pause_s)

    return play


def refused(asked: PrometheusClient) -> str:
    with pytest.raises(StreamUnavailableError) as caught:
        asked.ask("rps", 0.0, 600.0)
    return str(caught.value)


def test_an_answer_becomes_series_and_what_is_no_number_a_gap(
    tmp_path: Path, stranger: Callable[..., Stranger]
) -> None:
    values = [[0, "1.5"], [60, "NaN"], [120.5, "+Inf"], [180, "-2e3"]]
    labels = {"__name__": "x", "service": "a"}
    server = stranger(saying(answer({"metric": labels, "values": values}, warnings=["w"])))
    heard = client(tmp_path, server.url + "/prefix/").ask("rate(x[5m]) > 0", 0.0, 600.0)
    series = [PrometheusSeries({"service": "a"}, [(0.0, 1.5), (180.0, -2000.0)])]
    assert heard == PrometheusAnswer(series, "w")
    (asked,) = server.asked
    assert asked.startswith(b"POST /prefix/api/v1/query_range HTTP/1.1\r\n")
    assert asked.endswith(b"query=rate%28x%5B5m%5D%29+%3E+0&start=0.0&end=600.0&step=60")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "no Prometheus"),
        (b"<html>", "no Prometheus"),
        (b"\xff\xfe\x00", "no Prometheus"),
        (b"[" * 100_000, "no Prometheus"),
        (b'{"status": "success"}', "no Prometheus"),
        (answer({"metric": {}, "values": [[0, 1.5]]}), "no Prometheus"),
        (answer({"metric": {}, "values": [[0, "many"]]}), "a value of its answer is no number"),
        (answer(*[{"metric": {"n": str(n)}} for n in range(1_001)]), "gives 1,001 series"),
    ],
)
def test_rubbish_is_refused_with_a_reason(
    tmp_path: Path, stranger: Callable[..., Stranger], body: bytes, why: str
) -> None:
    assert why in refused(client(tmp_path, stranger(saying(body)).url))


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (
            "400 Bad Request",
            b'{"status":"error","error":"parse error \\u001b"}',
            "parse error \ufffd",
        ),
        ("422 Unprocessable Content", b"{}", "status 422"),
        ("401 Unauthorized", b"", "user, password or token"),
        ("503 Service Unavailable", b"down", "status 503"),
        ("999 ", b"", "status 999"),
    ],
)
def test_a_refusal_is_told(
    tmp_path: Path, stranger: Callable[..., Stranger], status: str, body: bytes, why: str
) -> None:
    assert why in refused(client(tmp_path, stranger(saying(body, status)).url))


def test_nobody_is_sent_elsewhere_with_our_token(
    tmp_path: Path, stranger: Callable[..., Stranger]
) -> None:
    (tmp_path / "token").write_text(PASSWORD)
    elsewhere = stranger(saying(answer()))
    location = f"Location: {elsewhere.url}/api/v1/query_range\r\n"
    server = stranger(saying(b"", "307 Temporary Redirect", location))
    why = refused(client(tmp_path, server.url, 'token_file = "token"'))
    assert "sends elsewhere" in why
    assert elsewhere.asked == []
    assert b"Authorization: Bearer hunter2\r\n" in server.asked[0]


@pytest.mark.parametrize(
    "play",
    [
        for_ever(b"HTTP/1.1 200 OK\r\n", b"X-A: b\r\n", 0.1),
        for_ever(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b" ", 0.1),
        for_ever(b"HTTP/1.1 200 OK\r\n\r\n", b" ", 0.1),
        for_ever(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n", 0.1),
        for_ever(b"", b"", 0.1),
    ],
    ids=["headers", "length", "no length", "chunks", "silence"],
)
def test_what_drips_is_given_up_in_time(
    tmp_path: Path, stranger: Callable[..., Stranger], play: Play
) -> None:
    asked = client(tmp_path, stranger(play).url, "timeout_s = 0.6")
    assert refused(asked) == "no answer within 0.6 s"


@pytest.mark.parametrize("head", [b"", b"Transfer-Encoding: chunked\r\n"])
def test_an_endless_answer_is_given_up(
    tmp_path: Path,
    stranger: Callable[..., Stranger],
    monkeypatch: pytest.MonkeyPatch,
    head: bytes,
) -> None:
    monkeypatch.setattr(prometheus, "MOST_BYTES", 2**20)
    piece = b" " * 65_536
    piece = b"10000\r\n" + piece + b"\r\n" if head else piece
    play = for_ever(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n", piece, 0.0)
    assert "more than 1 MiB" in refused(client(tmp_path, stranger(play).url))


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://127.0.0.1:9", "cannot be reached: "),
        (f"http://{'a' * 70}.example", "cannot be reached"),
        ("http://a..b", "cannot be reached"),
        ("http://[fe80::abcd]", "cannot be reached"),
        ("https://[::1]", "cannot be reached"),
    ],
)
def test_who_is_not_there_is_told(tmp_path: Path, url: str, why: str) -> None:
    assert why in refused(client(tmp_path, url))


def test_what_is_no_http_is_told(tmp_path: Path, stranger: Callable[..., Stranger]) -> None:
    server = stranger(lambda guest: guest.sendall(b"SSH-2.0-OpenSSH_9.7\r\n"))
    assert "does not speak HTTP" in refused(client(tmp_path, server.url))


@pytest.mark.slow
def test_a_certificate_is_checked_and_a_user_sent_and_a_password_read_anew(
    tmp_path: Path, stranger: Callable[..., Stranger]
) -> None:
    certificate, key = certify(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = stranger(saying(answer()), context)
    (tmp_path / "password").write_text("old\n")
    login = 'user = "tunerd"\npassword_file = "password"\n'
    asked = client(tmp_path, server.url, f'{login}ca_file = "{certificate}"')
    (tmp_path / "password").write_text(PASSWORD)
    assert asked.ask("rps", 0.0, 600.0) == PrometheusAnswer([])
    assert b"Authorization: Basic dHVuZXJkOmh1bnRlcjI=\r\n" in server.asked[0]
    assert "its certificate is not trusted" in refused(client(tmp_path, server.url, login))
    assert "ca_file" in refused(client(tmp_path, server.url, f'{login}ca_file = "none.pem"'))
    (tmp_path / "password").unlink()
    assert "password_file" in refused(asked)


def test_a_secret_that_is_said_back_is_not_in_the_reason(
    tmp_path: Path, stranger: Callable[..., Stranger]
) -> None:
    (tmp_path / "secret").write_text(PASSWORD)
    error = b'{"status": "error", "error": "hunter2 dHVuZXJkOmh1bnRlcjI="}'
    server = stranger(saying(error, "400 Bad Request"))
    login = 'user = "tunerd"\npassword_file = "secret"\n'
    assert refused(client(tmp_path, server.url, login)) == "it refuses the query: *** ***"
    login = 'token_file = "secret"\n'
    assert PASSWORD not in refused(client(tmp_path, server.url, login))


def test_a_token_that_no_header_can_carry_is_not_in_the_reason(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{PASSWORD}\n{PASSWORD}")
    why = refused(client(tmp_path, "http://127.0.0.1:9", 'token_file = "token"'))
    assert "characters that no token has" in why
    assert PASSWORD not in why
