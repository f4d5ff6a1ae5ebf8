"""The webhook over real TLS: certificates of openssl, requests as Kubernetes sends them."""

import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.servers.secure import certify
from tests.webhook.conftest import JOB, STUDY, Webhook, message, patched, review, save
from tunerd.ui.certificate import ReloadingCertificate
from tunerd.webhook import server as server_module
from tunerd.webhook.review import answer
from tunerd.webhook.server import MOST_BYTES, WebhookServer

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return certify(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def server(webhook: Webhook, files: tuple[Path, Path]) -> Iterator[WebhookServer]:
    server = WebhookServer(
        "127.0.0.1",
        0,
        ReloadingCertificate(*files),
        lambda body: answer(body, webhook.planner),
        lambda: [] if webhook.file.exists() else ["not yet"],
    )
    yield server
    server.close()


def connect(port: int, authority: Path) -> http.client.HTTPSConnection:
    context = ssl.create_default_context(cafile=str(authority))
    return http.client.HTTPSConnection("localhost", port, timeout=10, context=context)


def ask(
    port: int, authority: Path, body: bytes | None, path: str = "/mutate?timeout=5s", **headers: str
) -> tuple[int, bytes]:
    connection = connect(port, authority)
    method = "GET" if body is None else "POST"
    try:
        connection.request(method, path, body, {"Content-Type": "application/json", **headers})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def test_a_review_over_tls(server: WebhookServer, files: tuple[Path, Path]) -> None:
    status, body = ask(server.port, files[0], review(JOB))
    assert status == 200
    job = patched(JOB, json.loads(body)["response"])
    assert job["spec"]["template"]["spec"]["containers"][0]["args"][0] == "-T8"


def test_health_and_what_is_not_there(
    server: WebhookServer, webhook: Webhook, files: tuple[Path, Path]
) -> None:
    assert ask(server.port, files[0], None, "/livez")[0] == 200
    assert ask(server.port, files[0], None, "/readyz") == (200, b"ready\n")
    webhook.file.unlink()
    assert ask(server.port, files[0], None, "/readyz") == (503, b"not yet\n")
    assert ask(server.port, files[0], None, "/metrics")[0] == 404
    assert ask(server.port, files[0], review(JOB), "/other")[0] == 404
    assert ask(server.port, files[0], b"{}")[0] == 400


def test_bodies_are_bounded(server: WebhookServer, files: tuple[Path, Path]) -> None:
    connection = connect(server.port, files[0])
    connection.putrequest("POST", "/mutate")
    connection.putheader("Content-Length", str(MOST_BYTES + 1))
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()
    large = {**JOB, "more": "x" * (3 << 20)}
    assert ask(server.port, files[0], review(large))[0] == 200
    connection = connect(server.port, files[0])
    connection.putrequest("POST", "/mutate")
    connection.endheaders()
    assert connection.getresponse().status == 411
    connection.close()


def test_who_speaks_no_tls_or_stays_silent_keeps_nobody_waiting(
    server: WebhookServer, files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "LONGEST_S", 0.5)
    silent = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(5)]
    plain = socket.create_connection(("127.0.0.1", server.port))
    plain.sendall(b"GET / HTTP/1.0\r\n\r\n")
    slow = connect(server.port, files[0])
    slow.putrequest("POST", "/mutate")
    slow.putheader("Content-Length", "1000")
    slow.endheaders()
    assert ask(server.port, files[0], review(JOB))[0] == 200
    begin = time.monotonic()
    for one in (*silent, plain, slow.sock):
        one.settimeout(10)
        try:
            while one.recv(1000):
                pass
        except OSError:  # reset, which is an end too
            pass
        one.close()
    assert time.monotonic() - begin < 8


def test_old_versions_of_tls_are_refused(server: WebhookServer) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    plain = socket.create_connection(("127.0.0.1", server.port))
    with plain, pytest.raises((ssl.SSLError, ConnectionError)):
        context.wrap_socket(plain)


def test_a_certificate_that_changes_is_read_again(webhook: Webhook, tmp_path: Path) -> None:
    first, second = certify(tmp_path, "first"), certify(tmp_path, "second")
    names = tmp_path / "certificate", tmp_path / "key"
    for name, target in zip(names, first, strict=True):
        name.symlink_to(target)
    server = WebhookServer(
        "127.0.0.1",
        0,
        ReloadingCertificate(*names),
        lambda body: answer(body, webhook.planner),
        list,
    )
    try:
        assert ask(server.port, first[0], review(JOB))[0] == 200
        for name, target in zip(names, second, strict=True):
            # As a Secret's volume does; in between they do not fit, and the former one stays.
            assert ask(server.port, first[0], review(JOB))[0] == 200
            next_one = tmp_path / "next"
            next_one.symlink_to(target)
            next_one.replace(name)
        assert ask(server.port, second[0], review(JOB))[0] == 200
        with pytest.raises(ssl.SSLCertVerificationError):
            ask(server.port, first[0], review(JOB))
        second[0].write_text("rubbish")
        assert connect_once(server.port)  # with the one that was good
        names[0].unlink()
        assert connect_once(server.port)
    finally:
        server.close()


def connect_once(port: int) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    plain = socket.create_connection(("127.0.0.1", port), timeout=10)
    with plain, context.wrap_socket(plain) as secure:
        return secure.version() is not None


def launch(folder: Path, *arguments: str) -> "subprocess.Popen[str]":
    (folder / "studies").mkdir(exist_ok=True)
    (folder / "studies" / "compress.toml").write_text(STUDY)
    return subprocess.Popen(
        [sys.executable, "-m", "tunerd", "webhook", "--port", "0", *arguments],
        cwd=folder,
        env={name: v for name, v in os.environ.items() if not name.startswith("TUNERD_")},
        stderr=subprocess.PIPE,
        text=True,
    )


def port_of(process: "subprocess.Popen[str]") -> int:
    assert process.stderr is not None
    line = process.stderr.readline()
    assert line.startswith("tunerd webhook: listening on 127.0.0.1:"), line
    return int(line.rpartition(":")[2])


@pytest.mark.parametrize("from_stream", [True, False])
def test_the_command(tmp_path: Path, files: tuple[Path, Path], from_stream: bool) -> None:
    more: list[Any] = []
    if from_stream:
        stream = tmp_path / "tunerd-data" / "stream"
        stream.mkdir(parents=True)
        line = {"key": message()["context_key"], "value": message(), "headers": {}}
        (stream / "tunerd.recommendations.jsonl").write_text(json.dumps(line) + "\n")
    else:
        save(tmp_path / "saved.jsonl", message())
        more = ["--recommendations", "saved.jsonl", "--cluster", "west"]
    process = launch(tmp_path, "--certificate", str(files[0]), "--key", str(files[1]), *more)
    try:
        port = port_of(process)
        deadline = time.monotonic() + 60
        while ask(port, files[0], None, "/readyz")[0] != 200:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        status, body = ask(port, files[0], review(JOB))
        job = patched(JOB, json.loads(body)["response"])
        assert (status, job["spec"]["template"]["spec"]["containers"][0]["args"][0]) == (200, "-T8")
        cluster = "kubernetes" if from_stream else "west"
        assert job["metadata"]["annotations"]["tunerd.dev/cluster"] == cluster
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.communicate()


def test_mistakes_end_it_with_2_before_it_listens(tmp_path: Path, files: tuple[Path, Path]) -> None:
    (tmp_path / "rubbish").write_text("rubbish")
    for arguments, said in (
        (
            ("--certificate", "none", "--key", "none"),
            ["--certificate: cannot read", "--key: cannot"],
        ),
        (("--certificate", "rubbish", "--key", str(files[1])), ["are no certificate and its key"]),
    ):
        process = launch(tmp_path, *arguments)
        _, error = process.communicate(timeout=60)
        assert process.returncode == 2
        for text in said:
            assert text in error
