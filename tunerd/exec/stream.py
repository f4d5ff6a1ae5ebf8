"""Where recommendations come from and events go to, and whether anybody is there.

Nothing here may keep a program from running: whatever is wrong with a stream is an ``OSError`` or a
``KafkaError`` in a sentence, after seconds at most.
"""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tunerd.client import JobReporter, Recommendations, Requests
from tunerd.exec.plan import JobPlan
from tunerd.reach import AwayError, find_folder, knock

__all__ = ["SOURCE", "AwayError", "follow", "reporter_to", "requests_to"]

# What the client has to say goes to the program's standard error, which is not ours to talk on.
logging.getLogger("tunerd.client").setLevel(logging.ERROR)

SOURCE = "tunerd exec"


def follow(plan: JobPlan) -> Recommendations:
    """Recommendations of the stream, not yet read. Raises AwayError."""
    if plan.stream == "jsonl":
        find_folder(plan.where)
        return Recommendations.follow_jsonl(plan.where, plan.recommendations_topic)
    options = _kafka(plan)
    try:
        return Recommendations.follow_kafka(plan.where, plan.recommendations_topic, **options)
    except Exception as error:  # kafka-python's errors have no base that is known without it
        raise AwayError(f"{plan.where}: {error}") from None


def reporter_to(plan: JobPlan) -> JobReporter:
    """Who sends to the jobs topic. Raises AwayError."""
    if plan.stream == "jsonl":
        find_folder(plan.where)
        return JobReporter.jsonl(plan.where, plan.jobs_topic, SOURCE)
    options = _kafka(plan)
    try:
        return JobReporter.kafka(plan.where, plan.jobs_topic, SOURCE, **options)
    except Exception as error:
        raise AwayError(f"{plan.where}: {error}") from None


def requests_to(plan: JobPlan) -> Requests:
    """Who sends to the requests topic. Raises AwayError."""
    if plan.stream == "jsonl":
        return Requests.jsonl(plan.where, plan.requests_topic, SOURCE)
    options = _kafka(plan)
    try:
        return Requests.kafka(plan.where, plan.requests_topic, SOURCE, **options)
    except Exception as error:
        raise AwayError(f"{plan.where}: {error}") from None


def _kafka(plan: JobPlan) -> Mapping[str, Any]:
    """kafka-python's options, once a broker accepts connections. Raises AwayError."""
    knock(plan.where)
    import os

    from tunerd.settings import load_settings

    file = None if plan.settings_file is None else Path(plan.settings_file)
    kafka = load_settings(file, os.environ, check_studies=False).stream.kafka
    password = kafka.sasl_password
    options = {
        "client_id": kafka.client_id,
        "security_protocol": kafka.security_protocol,
        "sasl_mechanism": kafka.sasl_mechanism,
        "sasl_plain_username": kafka.sasl_username,
        "sasl_plain_password": password.get_secret_value() if password else None,
        "ssl_cafile": kafka.ssl_cafile and str(kafka.ssl_cafile),
        "ssl_certfile": kafka.ssl_certfile and str(kafka.ssl_certfile),
        "ssl_keyfile": kafka.ssl_keyfile and str(kafka.ssl_keyfile),
    }
    return {name: value for name, value in options.items() if value is not None}
