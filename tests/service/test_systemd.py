"""systemd hears what the daemon says, over both kinds of sockets."""

import os
import secrets
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tunerd.service.systemd import SystemdNotifier

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="systemd is Linux only")


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, socket.socket]]:
    address = str(tmp_path / "notify")
    if request.param == "abstract":
        address = f"@tunerd-{secrets.token_hex(8)}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(address.replace("@", "\0", 1))
        receiver.settimeout(5)
        yield address, receiver


def test_a_life(manager: tuple[str, socket.socket]) -> None:
    address, receiver = manager
    systemd = SystemdNotifier.from_environ({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "3000000"})
    assert systemd.watchdog_s == 3.0

    def heard() -> str:
        return receiver.recv(1000).decode()

    systemd.ready("2 studies\nwell")
    assert heard() == "READY=1\nSTATUS=2 studies well"
    systemd.alive()
    assert heard() == "WATCHDOG=1"
    systemd.status("busy")
    assert heard() == "STATUS=busy"
    systemd.reloading()
    state, _, at = heard().partition("\n")
    assert state == "RELOADING=1"
    assert int(at.removeprefix("MONOTONIC_USEC=")) > 0
    systemd.stopping()
    assert heard() == "STOPPING=1"


def test_without_systemd_nothing_happens() -> None:
    systemd = SystemdNotifier.from_environ({})
    assert systemd.watchdog_s is None
    systemd.ready()
    systemd.alive()
    systemd.stopping()


def test_a_manager_that_is_gone_is_no_error(tmp_path: Path) -> None:
    SystemdNotifier.from_environ({"NOTIFY_SOCKET": str(tmp_path / "gone")}).ready()


@pytest.mark.parametrize(
    ("environ", "watchdog_s"),
    [
        ({"WATCHDOG_USEC": "500000", "WATCHDOG_PID": str(os.getpid())}, 0.5),
        ({"WATCHDOG_USEC": "500000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_the_watchdog_is_for_whom_it_names(
    environ: dict[str, str], watchdog_s: float | None
) -> None:
    assert SystemdNotifier.from_environ(environ).watchdog_s == watchdog_s
