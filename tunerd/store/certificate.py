"""Why the certificate of a PostgreSQL server is refused: libpq only says that it is."""

import socket
import ssl
import struct
from collections.abc import Mapping
from typing import Any

__all__ = ["refused_certificate"]

_ASK_FOR_TLS = struct.pack("!ii", 8, 80877103)
"""The protocol's SSLRequest; a server that has TLS answers with an S."""
_TIMEOUT_S = 5.0
_REMEDIES = {
    "certificate has expired": "the server needs a new one",
    "certificate is not yet valid": "look at the clocks of both machines",
    "unable to get local issuer certificate": "sslrootcert is not of the authority that signed it",
    "self-signed certificate": "sslrootcert is not of the authority that signed it",
}


def refused_certificate(parameters: Mapping[str, Any]) -> str:
    """Look at the certificate once more, and say what is wrong with it.

    Args:
        parameters: what the connection was to be made with, of which host, port and sslrootcert
            are read.
    """
    authority = str(parameters.get("sslrootcert") or "")
    try:
        context = ssl.create_default_context(cafile=authority or None)
        context.check_hostname = False  # that it is another host's, libpq says itself
        address = (str(parameters.get("host")), int(parameters.get("port") or 5432))
        with socket.create_connection(address, _TIMEOUT_S) as plain:
            plain.sendall(_ASK_FOR_TLS)
            if plain.recv(1) == b"S":
                context.wrap_socket(plain).close()
    except ssl.SSLCertVerificationError as error:
        reason = str(error.verify_message)
        return "; ".join([reason, *(text for key, text in _REMEDIES.items() if key in reason)])
    except (OSError, ValueError):
        pass
    return "certificate verify failed"
