"""``tunerd ui``: the page from a store, without a daemon."""

import http.client
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.servers import free_ports
from tests.ui.world import file_of
from tunerd.cli import run
from tunerd.core.toml import load_toml

pytestmark = pytest.mark.slow


@contextmanager
def shown(*arguments: str, cwd: Path | None = None) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tunerd", "ui", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def asked(port: int, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


@pytest.mark.parametrize("how", ["folder", "settings", "here"])
def test_it_says_where_it_is_and_stops_when_told(tmp_path: Path, how: str) -> None:
    world = file_of(tmp_path / "w")
    given = {
        "folder": [str(world.folder)],
        "settings": ["--settings", str(world.settings)],
        "here": [],
    }[how]
    with shown(*given, cwd=world.folder if how == "here" else None) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"at http://127\.0\.0\.1:(\d+) until Ctrl-C", line)
        assert found is not None, line
        status, page = asked(int(found[1]), "/")
        assert status == 200
        assert "No study yet" in page
        assert asked(int(found[1]), "/metrics")[0] == 404
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0


def test_it_changes_nothing_even_where_a_daemon_would(tmp_path: Path) -> None:
    world = file_of(tmp_path / "w")
    (world.folder / "token").write_text("a-token-of-some-length")
    text = world.settings.read_text() + '[http]\nactions = true\ntoken_file = "token"\n'
    assert load_toml(text)
    world.settings.write_text(text)
    with shown(str(world.folder)) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline().partition("127.0.0.1:")[2].partition(" ")[0])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request("POST", "/studies/toy/commands", b"command=pause")
        assert connection.getresponse().status in (404, 405)
        connection.close()


def test_a_store_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "studies").mkdir()
    (tmp_path / "tunerd.toml").write_text('data_dir = "data"\n')
    assert run(["ui", str(tmp_path)]) == 2
    assert "tunerd.sqlite" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


def test_a_port_that_is_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import socket

    world = file_of(tmp_path / "w")
    (port,) = free_ports(1)
    with socket.create_server(("127.0.0.1", port)):
        assert run(["ui", str(world.folder), "--port", str(port)]) == 2
    assert f"--port: 127.0.0.1:{port}: Address already in use" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--demo", "folder"], "--demo makes a folder of its own"),
        (["folder", "--settings", "x.toml"], "not both"),
        (["nowhere"], "nowhere"),
    ],
)
def test_what_makes_no_sense(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["ui", *arguments]) == 2
    assert said in capsys.readouterr().err
