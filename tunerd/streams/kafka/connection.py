"""Connecting to Kafka, and saying in one sentence why it did not work.

kafka-python answers a wrong password, an unknown authority and a closed port alike, with
"Unable to bootstrap" after the whole time-out. What was wrong it only logs, so the log is read
while connecting.
"""

import logging
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from kafka.errors import (
    AuthorizationError,
    KafkaError,
    UnsupportedCodecError,
)
from kafka.net.compat import KafkaNetClient

from tunerd.errors import StreamUnavailableError
from tunerd.streams.kafka.certificates import outdated_certificate, unusable_files
from tunerd.streams.kafka.options import KafkaOptions

__all__ = ["Connected", "arguments", "connect", "explain", "quiet", "refused", "translated"]

Client = TypeVar("Client")
Connected = tuple[Client, KafkaNetClient]

_TELLING = [logging.getLogger(f"kafka.net.{name}") for name in ("manager", "connection")]

CAUSES = (
    (r"SaslAuthenticationFailed|Authentication failed", "it refused the user name or password"),
    (r"UnsupportedSaslMechanism", "it does not know this sasl_mechanism"),
    (r"IllegalSaslState", "it does not ask for SASL there: is the security_protocol right?"),
    (
        r"(?i)certificate.required|bad.certificate|unknown.ca\b|certificate.unknown",
        "it wants a client certificate that it believes (ssl_certfile, ssl_keyfile)",
    ),
    (
        r"(?i)hostname mismatch|IP address mismatch",
        "its certificate is for another host name than this address",
    ),
    (
        r"(?i)alert.certificate.expired",
        "it says that this client's certificate has expired (ssl_certfile)",
    ),
    (
        r"(?i)verify failed: certificate (has expired|is not yet valid)",
        "its certificate, or that of its authority in ssl_cafile, has expired or is not yet valid",
    ),
    (
        r"CERTIFICATE_VERIFY_FAILED",
        "its certificate is not from an authority that this client believes (ssl_cafile)",
    ),
    (r"WRONG_VERSION_NUMBER|UNEXPECTED_EOF|\[SSL", "it does not speak TLS there as expected"),
    (r"ECONNREFUSED", "connection refused"),
    (r"DNS Resolution", "its name cannot be resolved"),
    (r"Invalid frame length", "it speaks TLS there: is the security_protocol right?"),
)
"""What the client logs, and what it means. The first that is found anywhere counts."""
HUNG_UP = re.compile("socket disconnected")
"""What is often all that the client sees of a refused login."""


def arguments(options: KafkaOptions) -> dict[str, Any]:
    """Return what consumers, producers and admin clients have in common."""
    options_for: dict[str, Any] = {
        "bootstrap_servers": list(options.bootstrap_servers),
        "client_id": options.client_id,
        "security_protocol": options.security_protocol,
        "bootstrap_timeout_ms": int(options.connect_timeout_s * 1000),
        "request_timeout_ms": int(options.request_timeout_s * 1000),
        # Back soon after the broker is: the default waits up to 30 s.
        "reconnect_backoff_max_ms": 1000,
    }
    if options.security_protocol.startswith("SASL"):
        options_for["sasl_mechanism"] = options.sasl_mechanism
        options_for["sasl_plain_username"] = options.sasl_username
        options_for["sasl_plain_password"] = options.sasl_password
    if options.security_protocol.endswith("SSL"):
        options_for["ssl_cafile"] = options.ssl_cafile
        options_for["ssl_certfile"] = options.ssl_certfile
        options_for["ssl_keyfile"] = options.ssl_keyfile
    return options_for


def connect(options: KafkaOptions, make: Callable[..., Client]) -> Connected[Client]:
    """Make a client of a kind and connect it. Returns it and the network client in it.

    Raises StreamUnavailableError after at most ``connect_timeout_s`` and a little.
    """
    problem = unusable_files(options) or refused(options)
    if problem:
        raise StreamUnavailableError(problem)
    made: list[KafkaNetClient] = []

    def network(**configs: Any) -> KafkaNetClient:
        client = KafkaNetClient(**configs)
        # kafka-python 3.0.12 takes allow_auto_create_topics and drops it on the way here.
        client.cluster.config["allow_auto_create_topics"] = False
        made.append(client)
        return made[0]

    with _listening() as lines_heard:
        try:
            return make(**arguments(options), kafka_client=network), made[0]
        except (KafkaError, OSError, ValueError) as error:
            # A constructor that fails leaves its thread and its sockets behind.
            for client in made:
                client.close()
            raise StreamUnavailableError(explain(options, error, lines_heard)) from error


def quiet() -> None:
    """Silence kafka-python's own log, unless somebody has set its level.

    Without a broker it writes several lines a second; a StreamUnavailableError says it once. What
    says why a connection failed is still logged, for ``connect`` to hear, and goes nowhere else.
    """
    logger = logging.getLogger("kafka")
    if logger.level != logging.NOTSET:
        return
    logger.setLevel(logging.CRITICAL)
    for pattern in _TELLING:
        pattern.setLevel(logging.WARNING)
        pattern.propagate = False
        pattern.addHandler(logging.NullHandler())


def refused(options: KafkaOptions) -> str | None:
    """Return None if some bootstrap server takes a TCP connection, else a sentence.

    It fails at once where the client would try until its time is up.
    """
    reasons = []
    for server in options.bootstrap_servers:
        host, _, port = server.rpartition(":")
        try:
            address = (host.strip("[]"), int(port))
            socket.create_connection(address, timeout=options.connect_timeout_s).close()
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            reasons.append(f"{server}: {reason or error}")
        else:
            return None
    return f"cannot reach Kafka ({'; '.join(reasons)})"


def explain(options: KafkaOptions, error: BaseException, said: list[str] | None = None) -> str:
    """Return one sentence for an operator, without secrets."""
    where = ",".join(options.bootstrap_servers)
    heard = "\n".join([*(said or []), str(error)])
    if isinstance(error, UnsupportedCodecError):
        text = (
            f"cannot read from Kafka at {where}: {error}; install lz4, zstandard or python-snappy"
        )
    elif isinstance(error, AuthorizationError):
        text = f"Kafka at {where} does not allow it: {_one_line(error)}"
    else:
        cause = _cause(options, heard)
        old = outdated_certificate(options)
        if old and not re.search(r"ECONNREFUSED|DNS Resolution", heard):
            cause = f"it hung up, and {old}" if HUNG_UP.search(heard) else f"{cause}; {old}"
        text = f"cannot use Kafka at {where}: {cause or _one_line(error)}"
    if options.sasl_password:
        text = text.replace(options.sasl_password, "***")
    return text


@contextmanager
def translated(options: KafkaOptions, besides: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Turn whatever the client raises, ``besides`` some, into StreamUnavailableError."""
    try:
        yield
    except besides:
        raise
    except (KafkaError, OSError, ValueError, AssertionError, AttributeError, KeyError) as error:
        # The client's own slips too: one of them must not end a service that could reconnect.
        raise StreamUnavailableError(explain(options, error)) from error


def _cause(options: KafkaOptions, heard: str) -> str | None:
    for sign, meaning in CAUSES:
        if re.search(sign, heard):
            return meaning
    if not HUNG_UP.search(heard):
        return None
    if options.security_protocol.startswith("SASL"):
        return "it hung up at the login: user name, password or sasl_mechanism may be wrong"
    return "it hung up: is the security_protocol right?"


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 300 else text[:299] + "…"


@contextmanager
def _listening() -> Iterator[list[str]]:
    """Collect what kafka-python logs about connections meanwhile. Other threads may connect too."""
    lines_heard: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            with suppress(Exception):  # a line that cannot be formatted is no reason to fail
                lines_heard.append(record.getMessage())

    listener = Listener(logging.WARNING)
    for logger in _TELLING:
        logger.addHandler(listener)
    try:
        yield lines_heard
    finally:
        for logger in _TELLING:
            logger.removeHandler(listener)
