"""A network between a client and a server that can stop carrying anything."""

import contextlib
import socket
import threading

from tests.servers import free_ports

__all__ = ["Wire"]


class Wire:
    """Carries bytes between connections to ``port`` of 127.0.0.1 and a server's port there."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._ends: list[socket.socket] = []
        (self.port,) = free_ports(1)
        self.mend()

    def cut(self) -> None:
        """Carry nothing more and take no connection; neither side is told."""
        self._carries.clear()
        with contextlib.suppress(OSError):  # cut already
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def mend(self) -> None:
        """Take connections again. Those from before stay silent."""
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._carries = threading.Event()
        self._carries.set()
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def tell(self) -> None:
        """Both sides notice that what was silent is gone."""
        ends, self._ends = self._ends, []
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def close(self) -> None:
        """End all that there is."""
        self.cut()
        self.tell()

    def _accept(self, listener: socket.socket) -> None:
        carries = self._carries
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = listener.accept()
                server = socket.create_connection(("127.0.0.1", self._server_port))
                self._ends += [client, server]
                for ends in ((client, server), (server, client)):
                    threading.Thread(target=_carry, args=(*ends, carries), daemon=True).start()


def _carry(source: socket.socket, target: socket.socket, carries: threading.Event) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            if carries.is_set():
                target.sendall(data)
        if carries.is_set():
            target.shutdown(socket.SHUT_WR)
