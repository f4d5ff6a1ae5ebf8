"""Why Kafka could not be used: one sentence for an operator, with each broker's own reason.

kafka-python answers a wrong password, an unknown authority and a closed port alike, with
"Unable to bootstrap" after the whole time-out. What was wrong it only logs, so the log is read
while connecting (``connection.py``).
"""

import re
import socket
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kafka.errors import AuthorizationError, UnsupportedCodecError
from kafka.net.compat import KafkaNetClient

from tunerd.errors import StreamUnavailableError
from tunerd.streams.kafka.certificates import outdated_certificate
from tunerd.streams.kafka.options import KafkaOptions

__all__ = ["nobody_there", "refused", "unavailable"]

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
    (
        r"InvalidTimestamp|Timestamp \d+ of message .* is out of range",
        "it refuses this machine's time: its clock or the broker's is wrong",
    ),
    (r"Invalid frame length", "it speaks TLS there: is the security_protocol right?"),
)
"""What the client logs, and what it means. The first that is found counts. None of it passes by
itself."""
ABSENT = (
    (r"ECONNREFUSED", "connection refused"),
    (r"DNS Resolution", "its name cannot be resolved"),
    (r"paused: .*throttle", "it throttles this client, whose quota is used up"),
)
"""The same, of what passes: a broker that is not there, or makes clients wait."""
TOO_LATE = re.compile("(?i)timed? ?out")
HUNG_UP = re.compile("socket disconnected")
"""What is often all that the client sees of a refused login, and of a broker that ends."""
BOOTSTRAP = re.compile(r"\bbootstrap-\d+\b")
"""What the client calls an address that it was given."""
FAILED = re.compile(r"failed: (.*?)(?: \(backoff .*)?$", re.M)


class _Reason(NamedTuple):
    text: str
    passes: bool | None
    """Whether it may pass by itself; None where it may be either."""


def refused(options: KafkaOptions) -> str | None:
    """Return None if some bootstrap server takes a TCP connection, else a sentence.

    It fails at once where the client would try until its time is up.
    """
    error = nobody_there(options)
    return None if error is None else str(error)


def nobody_there(options: KafkaOptions) -> StreamUnavailableError | None:
    """The same as an error. A single address where nobody is may just be wrong."""
    reasons = {}
    for server in options.bootstrap_servers:
        reason = _closed(server, options)
        if reason is None:
            return None
        reasons[server] = reason
    return StreamUnavailableError(
        f"cannot reach Kafka ({_each(reasons)})", may_pass=len(options.bootstrap_servers) > 1
    )


def unavailable(
    options: KafkaOptions,
    error: BaseException,
    made: Sequence[KafkaNetClient] | None = None,
    lines_heard: Sequence[str] = (),
) -> StreamUnavailableError:
    """What went wrong, without secrets.

    Args:
        made: the client that was to be connected, if it got so far; None for one that was
            connected before.
        lines_heard: what the client logged meanwhile.
    """
    where = ",".join(options.bootstrap_servers)
    by_broker = _by_broker(made[0], lines_heard) if made else {}
    passes = False
    if isinstance(error, UnsupportedCodecError):
        text = (
            f"cannot read from Kafka at {where}: {error}; install lz4, zstandard or python-snappy"
        )
    elif isinstance(error, AuthorizationError) and not by_broker:
        text = f"Kafka at {where} does not allow it: {_one_line(str(error))}"
    elif by_broker:
        reasons = {server: _why(options, server, heard) for server, heard in by_broker.items()}
        verdicts = {reason.passes for reason in reasons.values()}
        # A broker that is away too is no reason to wait for a password to become right.
        passes = True in verdicts and False not in verdicts
        texts = {server: reason.text for server, reason in reasons.items()}
        same = len(set(texts.values())) == 1
        text = f"cannot use Kafka at {where}: {next(iter(texts.values()))}"
        text = text if same else f"cannot use Kafka ({_each(texts)})"
    else:
        reason = _reason(options, "\n".join([*lines_heard, str(error)]), str(error))
        passes = made is None and reason.passes is not False
        text = f"cannot use Kafka at {where}: {reason.text}"
    if options.sasl_password:
        text = text.replace(options.sasl_password, "***")
    return StreamUnavailableError(text, may_pass=passes)


def _each(reasons: Mapping[str, str]) -> str:
    return "; ".join(f"{server}: {reason}" for server, reason in reasons.items())


def _closed(server: str, options: KafkaOptions) -> str | None:
    """Why nothing takes a TCP connection there; None where something does."""
    host, _, port = server.rpartition(":")
    try:
        address = (host.strip("[]"), int(port))
        socket.create_connection(address, timeout=options.connect_timeout_s).close()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        return reason or str(error)
    return None


def _by_broker(client: KafkaNetClient, lines_heard: Sequence[str]) -> dict[str, str]:
    """What was heard of each address that the client was given; nothing where it asked none."""
    by_node: dict[str, list[str]] = {}
    for line in lines_heard:
        if named := BOOTSTRAP.search(line):
            by_node.setdefault(named.group(), []).append(line)
    brokers = sorted(client.cluster.bootstrap_brokers(), key=_address) if by_node else []
    return {_address(broker): "\n".join(by_node.get(broker.node_id, ())) for broker in brokers}


def _address(broker: Any) -> str:
    return f"{broker.host}:{broker.port}"


def _why(options: KafkaOptions, server: str, heard: str) -> _Reason:
    """Why this broker was of no use. The client asks them at random until its time is up, and one
    that does not answer may take it all."""
    if not heard:
        closed = _closed(server, options)
        return _Reason(closed or "it takes connections, but gave no answer in time", True)
    last = FAILED.findall(heard)
    reason = _reason(options, heard, last[-1] if last else heard)
    if reason.passes is None and TOO_LATE.search(heard) and not HUNG_UP.search(heard):
        return _Reason(f"no answer within {options.connect_timeout_s:g} s", True)
    return reason


def _reason(options: KafkaOptions, heard: str, text: str) -> _Reason:
    """What is behind ``heard``; where nobody knows, ``text``."""
    for sign, meaning in ABSENT:
        if re.search(sign, heard):
            return _Reason(meaning, True)
    hung_up = HUNG_UP.search(heard)
    passes = None
    for sign, meaning in CAUSES:
        if re.search(sign, heard):
            text, passes, hung_up = meaning, False, None
            break
    old = outdated_certificate(options)
    if old:
        return _Reason(f"it hung up, and {old}" if hung_up else f"{_one_line(text)}; {old}", False)
    if hung_up and options.security_protocol.startswith("SASL"):
        text = "it hung up at the login: user name, password or sasl_mechanism may be wrong"
        passes = False  # a broker that starts is slow or not there
    elif hung_up:
        text = "it hung up: is the security_protocol right?"
    return _Reason(_one_line(text), passes)


def _one_line(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 300 else text[:299] + "…"
