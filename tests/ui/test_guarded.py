"""HTTP beyond loopback: with a certificate that may change, and with a token for whoever reads."""

import base64
import contextlib
import http.client
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.daemons import Daemon
from tests.servers.secure import certify
from tunerd.cli.daemon_probe import probe
from tunerd.errors import MisconfiguredError
from tunerd.metrics import MetricsExporter
from tunerd.settings import load_settings
from tunerd.ui import server as http_module
from tunerd.ui.certificate import ReloadingCertificate
from tunerd.ui.server import HttpServer

pytestmark = pytest.mark.slow

TOKEN = "a-token-that-nobody-guesses"  # noqa: S105


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return certify(tmp_path_factory.mktemp("tls"))


def ask(port: int, path: str, authority: Path | None = None, header: str = "") -> int:
    connection = http.client.HTTPConnection("localhost", port, timeout=20)
    if authority is not None:
        context = ssl.create_default_context(cafile=str(authority))
        connection = http.client.HTTPSConnection("localhost", port, timeout=20, context=context)
    try:
        connection.request("GET", path, headers={"Authorization": header} if header else {})
        response = connection.getresponse()
        response.read()
        return response.status
    finally:
        connection.close()


@pytest.fixture
def guarded() -> Iterator[HttpServer]:
    server = HttpServer("127.0.0.1", 0, MetricsExporter().render, token=TOKEN)
    yield server
    server.close()


def basic(text: str) -> str:
    return f"Basic {base64.b64encode(text.encode()).decode()}"


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ("", 401),
        (f"Bearer {TOKEN}", 200),
        (f"bearer {TOKEN}", 200),
        (basic(f"anybody:{TOKEN}"), 200),
        (basic(f":{TOKEN}"), 200),
        (f"Bearer {TOKEN[:-1]}", 401),
        ("Bearer", 401),
        ("Bearer ", 401),
        (f"Token {TOKEN}", 401),
        (basic(TOKEN), 401),
        ("Basic !!", 401),
        ("Basic", 401),
        ("Bearer \xff", 401),
    ],
)
def test_what_shows_jobs_needs_the_token(
    guarded: HttpServer, monkeypatch: pytest.MonkeyPatch, header: str, status: int
) -> None:
    monkeypatch.setattr(http_module, "WRONG_TOKEN_S", 0.0)
    assert ask(guarded.port, "/metrics", header=header) == status
    assert ask(guarded.port, "/nothing", header=header) == (404 if status == 200 else 401)
    assert ask(guarded.port, "/livez", header=header) == 200
    assert ask(guarded.port, "/readyz", header=header) == 200


def test_a_new_certificate_is_served_without_a_restart(tmp_path: Path) -> None:
    first, second = certify(tmp_path, "first"), certify(tmp_path, "second")
    used = tmp_path / "tls.crt", tmp_path / "tls.key"
    for target, source in zip(used, first, strict=True):
        shutil.copy(source, target)
    server = HttpServer(
        "127.0.0.1", 0, MetricsExporter().render, certificate=ReloadingCertificate(*used)
    )
    try:
        assert server.url.startswith("https://")
        assert ask(server.port, "/metrics", first[0]) == 200
        for target, source in zip(used, second, strict=True):
            shutil.copy(source, target)
        assert ask(server.port, "/metrics", second[0]) == 200
        with pytest.raises(ssl.SSLCertVerificationError):
            ask(server.port, "/metrics", first[0])
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            ask(server.port, "/metrics")  # not HTTP any more
        assert ask(server.port, "/metrics", second[0]) == 200
    finally:
        server.close()


def test_who_never_ends_a_handshake_takes_no_place_from_others(
    files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_module, "TIMEOUT_S", 1.0)
    server = HttpServer(
        "127.0.0.1", 0, MetricsExporter().render, certificate=ReloadingCertificate(*files)
    )
    silent = []
    before = len(os.listdir("/proc/self/fd"))
    try:
        silent = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(200)]
        most = before + len(silent) + http_module.MOST_INSIDE
        # Those beyond are closed, and told so.
        for one in silent[http_module.MOST_INSIDE :]:
            one.settimeout(20)
            with contextlib.suppress(ConnectionError):
                assert one.recv(1) == b""
        assert len(os.listdir("/proc/self/fd")) <= most
        for one in silent:  # and the others after a second
            one.settimeout(20)
            with contextlib.suppress(ConnectionError):
                assert one.recv(1) == b""
        assert ask(server.port, "/livez", files[0]) == 200
    finally:
        for one in silent:
            one.close()
        server.close()


def test_a_daemon_that_others_may_ask(files: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN + "\n")
    daemon = Daemon(
        tmp_path,
        settings=f'certificate_file = "{files[0]}"\nkey_file = "{files[1]}"\n'
        'read_token_file = "token"\nhost = "0.0.0.0"\n',
    )
    try:
        daemon.start()
        daemon.until(lambda: ask(daemon.port, "/readyz", files[0]) == 200, "it is ready")
        for path in ("/metrics", "/", "/api/v1/studies", "/events", "/static/page.css"):
            assert ask(daemon.port, path, files[0]) == 401, path
        for path in ("/metrics", "/", "/api/v1/studies"):
            assert ask(daemon.port, path, files[0], basic(f"me:{TOKEN}")) == 200, path
        command = [sys.executable, "-m", "tunerd", "status", "--json"]
        done = subprocess.run(
            [*command, "--settings", str(daemon.file)], capture_output=True, text=True, check=True
        )
        state = json.loads(done.stdout)["daemon"]
        assert state["url"].startswith("https://")
        assert state["running"]
        assert state["ready"]
        assert TOKEN not in daemon.log.read_text() + done.stdout + done.stderr
    finally:
        daemon.end()


def probed(server: HttpServer, folder: Path, *lines: str) -> dict[str, Any]:
    """What `tunerd status` finds out with such settings."""
    (folder / "tunerd.toml").write_text("\n".join(("[http]", f"port = {server.port}", *lines)))
    return probe(load_settings(folder / "tunerd.toml", {}).http)


@pytest.mark.parametrize("token", [None, "another-token-than-the-daemon-has"])
def test_a_daemon_that_wants_another_token_runs_all_the_same(
    guarded: HttpServer, tmp_path: Path, token: str | None
) -> None:
    (tmp_path / "token").write_text(token or "")
    state = probed(guarded, tmp_path, *(['read_token_file = "token"'] if token else []))
    assert (state["running"], state["ready"]) == (True, True)
    assert "another token" in " ".join(state["remarks"])


def test_nobody_says_that_it_does_not_run_who_cannot_ask_it(
    files: tuple[Path, Path], tmp_path: Path
) -> None:
    other, _ = certify(tmp_path, "other")
    (tmp_path / "rubbish").write_text("rubbish")
    server = HttpServer(
        "127.0.0.1", 0, MetricsExporter().render, certificate=ReloadingCertificate(*files)
    )
    try:
        for certificate, running in (
            (files[0], True),
            (other, None),
            (tmp_path / "nowhere", None),
            (tmp_path / "rubbish", None),
        ):
            lines = f'certificate_file = "{certificate}"', 'key_file = "x"'
            state = probed(server, tmp_path, *lines)
            assert state["running"] is running, certificate
            assert ("http.certificate_file" in " ".join(state["problems"])) != bool(running)
    finally:
        server.close()
    assert probed(server, tmp_path)["running"] is False


def test_a_certificate_that_cannot_be_served_with_is_named(
    files: tuple[Path, Path], tmp_path: Path
) -> None:
    (tmp_path / "rubbish").write_text("rubbish")
    daemon = Daemon(
        tmp_path, settings=f'certificate_file = "{files[0]}"\nkey_file = "{tmp_path}/rubbish"\n'
    )
    code, told = daemon.run()
    assert code == 2
    assert "http.certificate_file" in told
    assert "Traceback" not in told


def test_each_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    where = "http.certificate_file", "http.key_file"
    with pytest.raises(MisconfiguredError) as wrong:
        ReloadingCertificate.configured(tmp_path / "none.crt", tmp_path / "none.key", where)
    assert [problem.where for problem in wrong.value.problems] == list(where)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('certificate_file = "x"', "key_file"),
        ('key_file = "x"', "certificate_file"),
        ('read_token_file = "short"', "http.read_token_file: holds a token of fewer than 16"),
        ('read_token_file = "nowhere"', "http.read_token_file: cannot read"),
    ],
)
def test_what_is_wrong_with_them_is_told_at_the_start(tmp_path: Path, line: str, told: str) -> None:
    (tmp_path / "short").write_text("short")
    (tmp_path / "tunerd.toml").write_text(f"[http]\n{line}\n")
    with pytest.raises(MisconfiguredError, match=told):
        load_settings(tmp_path / "tunerd.toml", {})
