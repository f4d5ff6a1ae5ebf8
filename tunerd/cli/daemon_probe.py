"""Asking a daemon how it is, over HTTP, without waiting long for one that is not there."""

import http.client
import json
import ssl
from typing import Any

from tunerd.queries.metric_samples import MetricSamples
from tunerd.settings.model import HttpSettings

__all__ = ["probe"]

TIMEOUT_S = 1.0
PATIENT_S = 3.0
"""For metrics, of a daemon that has just answered: a wrong token is answered after a second."""
REFUSED = (
    "its metrics are not shown: it started with another token than http.read_token_file holds now"
)
MOST_BYTES = 16 * 2**20
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}  # noqa: S104 - asked, not bound


def probe(settings: HttpSettings) -> dict[str, Any]:
    """Whether a daemon answers, whether it is ready, what is wrong, what else to see; and its
    metrics.

    ``running`` is None when nobody can tell, because it does not listen or its port is not known.
    """
    state: dict[str, Any] = {"url": None, "running": None, "ready": None}
    state |= {"problems": [], "remarks": [], "role": None}
    if not settings.enabled:
        return state | {
            "problems": ["http.enabled is false: cannot ask it"],
            "metrics": MetricSamples(),
        }
    if settings.port == 0:
        problem = "http.port is 0: it took a free port and logged which"
        return state | {"problems": [problem], "metrics": MetricSamples()}
    host = _EVERYWHERE.get(settings.host, settings.host)
    scheme = "http" if settings.certificate_file is None else "https"
    state["url"] = f"{scheme}://{f'[{host}]' if ':' in host else host}:{settings.port}"
    refused = ""
    try:
        context = _context(settings)
        ready, body = _get(settings, host, "/readyz", context)
    except _CannotTellError as error:
        return state | {"problems": [str(error)], "metrics": MetricSamples()}
    except ssl.SSLError as error:
        why = getattr(error, "verify_message", "") or error.reason or error
        problem = f"cannot tell: what answers there does not show http.certificate_file ({why})"
        return state | {"problems": [problem], "metrics": MetricSamples()}
    except (OSError, http.client.HTTPException):
        return state | {"running": False, "metrics": MetricSamples()}
    try:
        status, metrics = _get(settings, host, "/metrics", context)
        if status == http.client.UNAUTHORIZED:
            metrics, refused = b"", REFUSED
    except (OSError, http.client.HTTPException):  # it has just answered
        metrics = b""
    try:
        readiness = json.loads(body)
        problems = list(map(str, readiness["problems"]))
        remarks = [*map(str, readiness.get("remarks", ())), *filter(None, [refused])]
        role = readiness.get("role")
        samples = MetricSamples(metrics.decode())
    except (ValueError, KeyError, TypeError):
        problem = "something else than tunerd answers there"
        return state | {"running": False, "problems": [problem], "metrics": MetricSamples()}
    state |= {"running": True, "ready": ready == http.client.OK}
    state |= {"problems": problems, "remarks": remarks, "role": role}
    return state | {"metrics": samples}


class _CannotTellError(Exception):
    """Nobody can ask it from here."""


def _get(
    settings: HttpSettings, host: str, path: str, context: ssl.SSLContext | None
) -> tuple[int, bytes]:
    timeout_s = TIMEOUT_S if path == "/readyz" else PATIENT_S
    connection = (
        http.client.HTTPConnection(host, settings.port, timeout=timeout_s)
        if context is None
        else http.client.HTTPSConnection(host, settings.port, timeout=timeout_s, context=context)
    )
    token = settings.read_token
    headers = {} if token is None else {"Authorization": f"Bearer {token.get_secret_value()}"}
    try:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        return response.status, response.read(MOST_BYTES)
    finally:
        connection.close()


def _context(settings: HttpSettings) -> ssl.SSLContext | None:
    """It is our own: it must show that certificate, under whatever name. None for plain HTTP."""
    file = settings.certificate_file
    if file is None:
        return None
    try:
        context = ssl.create_default_context(cafile=str(file))
    except OSError as error:
        why = error.strerror or error
        raise _CannotTellError(f"cannot ask it: http.certificate_file {file}: {why}") from error
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    context.check_hostname = False
    return context
