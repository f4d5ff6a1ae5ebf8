"""Asking a Prometheus, or what answers as one, for a range of values.

What answers is a stranger: it may send anything, for ever, or nothing. An answer is bounded in
bytes, series and time, and a redirect is not followed. Passwords and tokens are in no message.
"""

import base64
import http.client
import math
import socket
import ssl
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import msgspec
from pydantic import SecretStr

from tunerd.errors import StreamUnavailableError
from tunerd.events.printable import printable
from tunerd.files import SECRET_BYTES, read_text
from tunerd.settings.model import PrometheusSettings

__all__ = ["MOST_SERIES", "PrometheusAnswer", "PrometheusClient", "PrometheusSeries"]

MOST_BYTES = 16 * 2**20
"""Of an answer: a thousand series of 300 values take half of it."""
MOST_SERIES = 1_000
"""As many as signals are kept."""
MOST_SHOWN = 300
"""Characters of what it says is wrong."""


@dataclass(frozen=True, slots=True)
class PrometheusSeries:
    """One series of an answer."""

    labels: dict[str, str]
    """Without the metric's name."""
    points: list[tuple[float, float]]
    """(seconds since 1970, value), as they came; finite."""


@dataclass(frozen=True, slots=True)
class PrometheusAnswer:
    """What a question brought."""

    series: list[PrometheusSeries]
    warning: str = ""
    """What it says of its answer, such as that only a part of the stores were asked."""


class _Series(msgspec.Struct):
    metric: dict[str, str]
    values: list[tuple[float, str]] = []
    """Empty where a series has histograms instead."""


class _Data(msgspec.Struct):
    result: list[_Series]


class _Answer(msgspec.Struct):
    status: str
    data: _Data | None = None
    error: str = ""
    warnings: list[str] | None = None


@dataclass
class PrometheusClient:
    """Asks one question at a time, on a connection of its own."""

    settings: PrometheusSettings

    def ask(self, query: str, start_s: float, end_s: float) -> PrometheusAnswer:
        """The values of an expression from one time to another, both included, step by step.

        Raises:
            StreamUnavailableError: there is no answer, or none that can be used. Says why.
        """
        form = {"query": query, "start": start_s, "end": end_s, "step": self.settings.step_s}
        headers, secrets = self._login()
        status, content = self._post("/api/v1/query_range", urlencode(form).encode(), headers)
        answer = _decoded(content)
        if status != http.client.OK:
            error = _without(secrets, answer.error if answer else "")
            raise StreamUnavailableError(_refusal(status, error))
        if answer is None or answer.data is None:
            raise StreamUnavailableError("what answers there is no Prometheus")
        if len(answer.data.result) > MOST_SERIES:
            raise StreamUnavailableError(
                f"the query gives {len(answer.data.result):,} series; at most {MOST_SERIES:,} can"
                " be signals: sum by fewer labels"
            )
        warning = _without(secrets, "; ".join(answer.warnings or ()))
        series = [_series(each) for each in answer.data.result]
        return PrometheusAnswer(series, printable(warning[:MOST_SHOWN]))

    def _post(self, path: str, form: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        """Status and body of the answer to a form."""
        timeout_s = self.settings.timeout_s
        connection = self._connection(timeout_s)
        where = urlsplit(self.settings.url).path.rstrip("/") + path
        headers = {"Content-Type": "application/x-www-form-urlencoded", **headers}
        cut = threading.Event()
        try:
            connection.connect()
            # The connection's own limit begins anew with each byte that comes.
            timer = threading.Timer(timeout_s, _shut, (connection.sock, cut))
            timer.daemon = True
            timer.start()
            try:
                connection.request("POST", where, form, headers)
                reply = connection.getresponse()
                content = reply.read(MOST_BYTES + 1)
            finally:
                timer.cancel()
            if cut.is_set():  # what there is of the body then looks like all of it
                raise TimeoutError
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise StreamUnavailableError(_why(error, timeout_s, cut.is_set())) from error
        finally:
            connection.close()
        if len(content) > MOST_BYTES:
            raise StreamUnavailableError(
                f"the answer has more than {MOST_BYTES // 2**20} MiB: sum by fewer labels"
            )
        return reply.status, content

    def _connection(self, timeout_s: float) -> http.client.HTTPConnection:
        url = urlsplit(self.settings.url)
        # Without a port the library would look for one in the last part of an IPv6 address.
        host, port = url.hostname or "", url.port or (80 if url.scheme == "http" else 443)
        if url.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=timeout_s)
        file = self.settings.ca_file
        try:
            context = ssl.create_default_context(cafile=None if file is None else str(file))
        except OSError as error:
            why = f"signals.prometheus.ca_file {file}: {error.strerror or error}"
            raise StreamUnavailableError(why) from error
        return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=context)

    def _login(self) -> tuple[dict[str, str], tuple[str, ...]]:
        """The header that says who asks, and what in it must not be shown."""
        settings = self.settings
        if settings.user is not None:
            password = _secret("password_file", settings.password_file, settings.password)
            login = base64.b64encode(f"{settings.user}:{password}".encode()).decode()
            return {"Authorization": f"Basic {login}"}, (login, password)
        token = _secret("token_file", settings.token_file, settings.token)
        if not (token.isascii() and token.isprintable()):
            raise StreamUnavailableError(
                "signals.prometheus.token_file holds characters that no token has"
            )
        return ({"Authorization": f"Bearer {token}"} if token else {}), (token,)


def _without(secrets: tuple[str, ...], text: str) -> str:
    """Some servers say back what they were sent."""
    for secret in filter(None, secrets):
        text = text.replace(secret, "***")
    return text


def _refusal(status: int, error: str) -> str:
    if 300 <= status < 400:
        return "it sends elsewhere, which is not followed: set signals.prometheus.url to where"
    if status in (http.client.UNAUTHORIZED, http.client.FORBIDDEN):
        return f"it refuses with status {status}: user, password or token is wrong or missing"
    if status in (http.client.BAD_REQUEST, http.client.UNPROCESSABLE_ENTITY) and error:
        return f"it refuses the query: {printable(error[:MOST_SHOWN])}"
    return f"it answers with status {status}"


def _decoded(content: bytes) -> _Answer | None:
    try:
        return msgspec.json.decode(content, type=_Answer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _series(series: _Series) -> PrometheusSeries:
    """NaN and infinite values are gaps: 0/0 is how an expression says that there was nothing."""
    labels = {name: text for name, text in series.metric.items() if name != "__name__"}
    try:
        points = [(at, float(value)) for at, value in series.values]
    except ValueError as error:
        raise StreamUnavailableError("a value of its answer is no number") from error
    return PrometheusSeries(labels, [point for point in points if math.isfinite(point[1])])


def _secret(key: str, file: Path | None, kept: SecretStr | None) -> str:
    """What a file holds now; else what a credential held at the start."""
    if file is None:
        return "" if kept is None else kept.get_secret_value()
    try:
        return read_text(file, SECRET_BYTES).rstrip("\r\n")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is not text"
        raise StreamUnavailableError(f"signals.prometheus.{key} {file}: {why}") from error


def _shut(sock: socket.socket, cut: threading.Event) -> None:
    """End what somebody else is waiting for."""
    cut.set()
    with suppress(OSError):  # not by SSLSocket's own: it would change what the reader is using
        socket.socket.shutdown(sock, socket.SHUT_RDWR)


def _why(error: Exception, timeout_s: float, cut: bool) -> str:
    if cut or isinstance(error, TimeoutError):
        return f"no answer within {timeout_s:g} s"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, OSError | ValueError):  # the latter: a host's name that none could have
        return f"cannot be reached: {getattr(error, 'strerror', None) or type(error).__name__}"
    return f"does not speak HTTP ({type(error).__name__})"
