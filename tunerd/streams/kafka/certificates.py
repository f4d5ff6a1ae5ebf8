"""What is wrong with the certificates and the key that the settings name, before anybody connects.

The client and the broker say of all of it only that TLS failed, or nothing.
"""

import os
import re
import ssl
from datetime import UTC, datetime
from pathlib import Path

from tunerd.streams.kafka.options import KafkaOptions

__all__ = ["outdated_certificate", "unusable_files"]

CERTIFICATE = re.compile("-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.S)
SEQUENCE, UTC_TIME = 0x30, 0x17
VERSION = 0xA0


class _EncryptedError(Exception):
    """The key wants a password."""


def unusable_files(options: KafkaOptions) -> str | None:
    """Return what keeps these files from being used at all, in a sentence; None if nothing does."""
    for name in ("ssl_cafile", "ssl_certfile", "ssl_keyfile"):
        path = getattr(options, name)
        if path is not None and not (os.path.isfile(path) and os.access(path, os.R_OK)):
            return f"cannot use Kafka: {name} {path} cannot be read"
    if not options.security_protocol.endswith("SSL"):
        return None
    problem = _authorities(options.ssl_cafile) or _pair(options.ssl_certfile, options.ssl_keyfile)
    return problem and f"cannot use Kafka: {problem}"


def outdated_certificate(options: KafkaOptions) -> str | None:
    """Return that the client's certificate has expired or is not yet valid; None if it is valid."""
    if options.ssl_certfile is None or not options.security_protocol.endswith("SSL"):
        return None
    try:
        begins, ends = _validity(Path(options.ssl_certfile).read_text())
    except (OSError, ValueError, IndexError):
        return None
    if ends < datetime.now(UTC):
        return f"ssl_certfile {options.ssl_certfile} expired on {ends:%Y-%m-%d %H:%M} UTC"
    if begins > datetime.now(UTC):
        return (
            f"ssl_certfile {options.ssl_certfile} is not valid before {begins:%Y-%m-%d %H:%M} UTC"
        )
    return None


def _authorities(path: str | None) -> str | None:
    if path is None:
        return None
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except (ssl.SSLError, OSError):
        return f"ssl_cafile {path} is no PEM file of certificates"
    return None


def _pair(certificate: str | None, key: str | None) -> str | None:
    """What is wrong with the client's certificate and its key."""
    if certificate is None:
        return None if key is None else f"ssl_keyfile {key} is of no use without ssl_certfile"
    key_name = f"ssl_certfile {certificate}" if key is None else f"ssl_keyfile {key}"

    def ask() -> str:
        raise _EncryptedError

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(certificate, key, ask)
    except _EncryptedError:
        return (
            f"the key in {key_name} is encrypted, and tunerd takes no password for it; "
            "`openssl pkey` writes it without"
        )
    except (ssl.SSLError, OSError) as error:
        if "KEY_VALUES_MISMATCH" in str(error) or "KEY_TYPE_MISMATCH" in str(error):
            return f"the key in {key_name} does not belong to ssl_certfile {certificate}"
        if not _has_certificate(certificate):
            return f"ssl_certfile {certificate} is no PEM file of a certificate"
        return f"{key_name} has no private key in PEM that can be read"
    return None


def _has_certificate(path: str) -> bool:
    try:
        _validity(Path(path).read_text())
    except (OSError, ValueError, IndexError):
        return False
    return True


def _validity(pem: str) -> tuple[datetime, datetime]:
    """From when to when the first certificate is valid. Raises ValueError or IndexError."""
    match = CERTIFICATE.search(pem)
    if match is None:
        raise ValueError("no certificate")
    der = ssl.PEM_cert_to_DER_cert(match.group())
    # Certificate, and in it what was signed: [version,] serial, algorithm, issuer, validity.
    parts = _children(_children(_children(der)[0][1])[0][1])
    if parts[0][0] == VERSION:
        del parts[0]
    if parts[3][0] != SEQUENCE:
        raise ValueError("no certificate")
    begins, ends = (_time(*part) for part in _children(parts[3][1]))
    return begins, ends


def _children(der: bytes) -> list[tuple[int, bytes]]:
    """Tags and contents of what follows one another in DER."""
    children = []
    at = 0
    while at < len(der):
        tag, length = der[at], der[at + 1]
        at += 2
        if length & 0x80:
            size = length & 0x7F
            length = int.from_bytes(der[at : at + size], "big")
            at += size
        children.append((tag, der[at : at + length]))
        at += length
    return children


def _time(tag: int, text: bytes) -> datetime:
    digits = text.decode("ascii")
    if tag == UTC_TIME:  # two digits of a year up to 2049
        digits = ("20" if int(digits[:2]) < 50 else "19") + digits
    return datetime.strptime(digits, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
