"""Connecting to Kafka, and hearing why it did not work."""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from kafka.errors import KafkaError
from kafka.net.compat import KafkaNetClient

from tunerd.errors import StreamUnavailableError
from tunerd.streams.kafka.certificates import unusable_files
from tunerd.streams.kafka.options import KafkaOptions
from tunerd.streams.kafka.reasons import nobody_there, unavailable

__all__ = ["Connected", "arguments", "connect", "quiet", "translated"]

Client = TypeVar("Client")
Connected = tuple[Client, KafkaNetClient]

_TELLING = [logging.getLogger(f"kafka.net.{name}") for name in ("manager", "connection")]


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
    if problem := unusable_files(options):
        raise StreamUnavailableError(problem)
    if absent := nobody_there(options):
        raise absent
    made: list[KafkaNetClient] = []

    def network(**configs: Any) -> KafkaNetClient:
        client = KafkaNetClient(**configs)
        # kafka-python 3.0.12 takes allow_auto_create_topics and drops it on the way here.
        client.cluster.config["allow_auto_create_topics"] = False
        made.append(client)
        return made[0]

    with _listening(made) as lines_heard:
        try:
            return make(**arguments(options), kafka_client=network), made[0]
        except (KafkaError, OSError, ValueError) as error:
            # A constructor that fails leaves its thread and its sockets behind.
            for client in made:
                client.close()
            raise unavailable(options, error, made, lines_heard) from error


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


@contextmanager
def translated(options: KafkaOptions, besides: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Turn whatever the client raises, ``besides`` some, into StreamUnavailableError."""
    try:
        yield
    except besides:
        raise
    except (KafkaError, OSError, ValueError, AssertionError, AttributeError, KeyError) as error:
        # The client's own slips too: one of them must not end a service that could reconnect.
        raise unavailable(options, error) from error


@contextmanager
def _listening(made: Sequence[KafkaNetClient]) -> Iterator[list[str]]:
    """Collect what kafka-python logs of the connections of one client, which is made meanwhile.
    Other threads may connect too, and call other brokers by the same numbers."""
    lines_heard: list[str] = []
    here = threading.get_ident()

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            with suppress(Exception):  # a line that cannot be formatted is no reason to fail
                threads = {getattr(client._net._io_thread, "ident", None) for client in made}
                if record.thread == here or record.thread in threads:
                    lines_heard.append(record.getMessage())

    listener = Listener(logging.WARNING)
    for logger in _TELLING:
        logger.addHandler(listener)
    try:
        yield lines_heard
    finally:
        for logger in _TELLING:
            logger.removeHandler(listener)
