"""How to reach a Kafka cluster. Imports nothing of Kafka, so that settings can use it."""

from dataclasses import dataclass, field
from typing import Literal

__all__ = ["KafkaOptions", "SaslMechanism", "SecurityProtocol"]

SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
SaslMechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


@dataclass(frozen=True, slots=True)
class KafkaOptions:
    """Addresses, credentials and limits. The password is in no repr."""

    bootstrap_servers: tuple[str, ...] = ("127.0.0.1:9092",)
    """``host:port`` each."""
    client_id: str = "tunerd"
    security_protocol: SecurityProtocol = "PLAINTEXT"
    sasl_mechanism: SaslMechanism | None = None
    sasl_username: str | None = None
    sasl_password: str | None = field(default=None, repr=False)
    ssl_cafile: str | None = None
    """PEM; without it the system's authorities are believed."""
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None
    create_topics: bool = True
    partitions: int | None = None
    """For topics that are created; None takes the broker's default."""
    replication_factor: int | None = None
    """For topics that are created; None takes the broker's default."""
    instance: str | None = None
    """Name of this reader in its group that survives a restart (letters, digits, ``._-``): whoever
    comes back under it gets its partitions at once, where a nameless one waits until the broker
    has given up the process that died. Only one at a time may use it."""
    session_timeout_s: float = 15.0
    """A reader that died is noticed after this long, and its partitions go to another."""
    connect_timeout_s: float = 3.0
    """After this long without a broker it counts as unreachable."""
    request_timeout_s: float = 10.0
    """After this long without an answer a connection counts as dead."""
    metadata_age_s: float = 10.0
    """How long until new partitions are noticed, or that a topic was made anew."""
    send_timeout_s: float = 15.0
    """After this long without every acknowledgement sending has failed."""
    stuck_after_s: float = 30.0
    """A reader that has something to read but gets nothing for this long is made anew."""
