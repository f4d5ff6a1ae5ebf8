"""Asking a daemon how it is, over HTTP, without waiting long for one that is not there."""

import http.client
import json
import ssl
from typing import Any

from tunerd.queries.metric_samples import MetricSamples
from tunerd.settings.model import HttpSettings

__all__ = ["probe"]

TIMEOUT_S = 1.0
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
    try:
        ready, body = _get(settings, host, "/readyz")
        _, metrics = _get(settings, host, "/metrics")
    except (OSError, http.client.HTTPException):
        return state | {"running": False, "metrics": MetricSamples()}
    try:
        readiness = json.loads(body)
        problems = list(map(str, readiness["problems"]))
        remarks = list(map(str, readiness.get("remarks", ())))
        role = readiness.get("role")
        samples = MetricSamples(metrics.decode())
    except (ValueError, KeyError, TypeError):
        problem = "something else than tunerd answers there"
        return state | {"running": False, "problems": [problem], "metrics": MetricSamples()}
    state |= {"running": True, "ready": ready == http.client.OK}
    state |= {"problems": problems, "remarks": remarks, "role": role}
    return state | {"metrics": samples}


def _get(settings: HttpSettings, host: str, path: str) -> tuple[int, bytes]:
    connection = _connection(settings, host)
    token = settings.read_token
    headers = {} if token is None else {"Authorization": f"Bearer {token.get_secret_value()}"}
    try:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        return response.status, response.read(MOST_BYTES)
    finally:
        connection.close()


def _connection(settings: HttpSettings, host: str) -> http.client.HTTPConnection:
    if settings.certificate_file is None:
        return http.client.HTTPConnection(host, settings.port, timeout=TIMEOUT_S)
    # It is our own: it must show that certificate, under whatever name.
    context = ssl.create_default_context(cafile=str(settings.certificate_file))
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    context.check_hostname = False
    return http.client.HTTPSConnection(host, settings.port, timeout=TIMEOUT_S, context=context)
