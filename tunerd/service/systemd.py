"""Telling systemd how we are: ready, alive, reloading, stopping (sd_notify, sd_watchdog_enabled).

Standard library only. Without systemd every call does nothing. A message that cannot be sent is
dropped: the service must not fail because nobody listens.
"""

import contextlib
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["SystemdNotifier"]


@dataclass(frozen=True, slots=True)
class SystemdNotifier:
    """The service manager that started us, if it was systemd with ``Type=notify``."""

    address: str | None = None
    """Path of the datagram socket to notify; ``@`` begins an abstract one."""
    watchdog_s: float | None = None
    """Unless it hears :meth:`alive` within so many seconds, systemd restarts us. Call it at half
    of that. ``None`` when nobody watches."""

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> "SystemdNotifier":
        """Read NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID (sd_watchdog_enabled(3))."""
        watchdog_s = None
        usec, pid = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
        if usec.isdecimal() and int(usec) > 0 and pid in ("", str(os.getpid())):
            watchdog_s = int(usec) / 1e6
        return cls(environ.get("NOTIFY_SOCKET") or None, watchdog_s)

    def ready(self, status: str = "") -> None:
        """Started, or reloaded: what depends on us may go on."""
        self._notify("READY=1", status)

    def alive(self) -> None:
        """Still making progress."""
        if self.watchdog_s is not None:
            self._notify("WATCHDOG=1")

    def status(self, status: str) -> None:
        """One line for ``systemctl status``."""
        self._notify("", status)

    def reloading(self) -> None:
        """Reading studies again; :meth:`ready` ends it. Type=notify-reload wants the time."""
        now_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self._notify(f"RELOADING=1\nMONOTONIC_USEC={now_us}")

    def stopping(self) -> None:
        """Asked to stop, and doing so."""
        self._notify("STOPPING=1")

    def _notify(self, state: str, status: str = "") -> None:
        if self.address is None:
            return
        lines = [state] if state else []
        if status:
            lines.append("STATUS=" + " ".join(status.split()))
        address = self.address
        if address.startswith("@"):
            address = "\0" + address[1:]
        with (
            contextlib.suppress(OSError),  # it hears the next one, or its watchdog acts
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender,
        ):
            sender.setblocking(False)
            sender.sendto("\n".join(lines).encode(), address)
