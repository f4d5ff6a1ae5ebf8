"""A certificate for serving over TLS, read again when its files change."""

import logging
import os
import ssl
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from tunerd.errors import MisconfiguredError, ValidationProblem

__all__ = ["ReloadingCertificate"]

log = logging.getLogger(__name__)


class ReloadingCertificate:
    """A certificate and its key in PEM files, read again when they change.

    Files that do not fit each other, as while somebody replaces them, leave the former in use.
    """

    def __init__(self, certificate: Path, key: Path) -> None:
        """Raises OSError and ssl.SSLError for files that will not do."""
        self._files = certificate, key
        self._lock = threading.Lock()
        self._read = self._stat()
        self._context = self._load()

    @classmethod
    def configured(cls, certificate: Path, key: Path, where: tuple[str, str]) -> Self:
        """Read the files that ``where``, a setting or an option for each, names.

        Raises MisconfiguredError: a file cannot be read, or the two do not fit each other.
        """
        problems = []
        for name, path in zip(where, (certificate, key), strict=True):
            try:
                path.open("rb").close()
            except OSError as error:
                problems.append(ValidationProblem(name, f"cannot read {path}: {error.strerror}"))
        if not problems:
            try:
                return cls(certificate, key)
            except (OSError, ssl.SSLError) as error:
                message = f"{certificate} and {key} are no certificate and its key: {error}"
                problems.append(ValidationProblem(where[0], message))
        raise MisconfiguredError(problems)

    def context(self) -> ssl.SSLContext:
        """For the next connection."""
        with self._lock:
            stat = self._stat()
            if stat != self._read:
                self._read = stat
                try:
                    self._context = self._load()
                    log.warning("the certificate was read again")
                except (OSError, ssl.SSLError) as error:
                    log.error("the new certificate is not used: %s", error)
            return self._context

    def serving(self) -> ssl.SSLContext:
        """One context for a server that asks once: each handshake takes the present certificate."""
        context = self._load()

        def present(handshake: ssl.SSLObject, _name: str, _context: ssl.SSLContext) -> None:
            handshake.context = self.context()

        context.sni_callback = present
        return context

    def _stat(self) -> Sequence[tuple[int, int, int] | None]:
        stats: list[tuple[int, int, int] | None] = []
        for file in self._files:
            try:
                status = os.stat(file)
                stats.append((status.st_ino, status.st_mtime_ns, status.st_size))
            except OSError:
                stats.append(None)
        return stats

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        certificate, key = self._files
        context.load_cert_chain(certificate, key, password=_no_password)
        return context


def _no_password() -> str:
    raise OSError("the key has a password")
