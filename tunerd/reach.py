"""Whether anybody is there: a folder that exists, a broker that accepts connections."""

import socket
from pathlib import Path

__all__ = ["AwayError", "find_folder", "knock"]

ANSWERS_WITHIN_S = 2.0
"""A broker that takes longer to accept a connection counts as away."""


class AwayError(Exception):
    """Nobody is there: no folder, no broker that answers."""


def find_folder(path: str) -> None:
    """Raise AwayError where a stream's folder does not exist."""
    if not Path(path).is_dir():
        raise AwayError(f"{path} does not exist, so no daemon has been there")


def knock(servers: str) -> None:
    """Return once one of several ``host:port`` accepts a connection. Raises AwayError."""
    why = "no address"
    for server in filter(None, (part.strip() for part in servers.split(","))):
        host, _, port = server.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), ANSWERS_WITHIN_S).close()
            return
        except (OSError, ValueError) as error:
            why = f"{server}: {getattr(error, 'strerror', None) or error}"
    raise AwayError(why)
