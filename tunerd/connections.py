"""What the settings name outside of tunerd, opened: the store and the stream."""

import os
from hashlib import blake2b

from tunerd.settings import Settings
from tunerd.store import Store, open_store, open_store_unchecked
from tunerd.streams import open_stream
from tunerd.streams.base import Stream, TopicContent, TopicSpec

__all__ = ["instance_name", "store_of", "stream_of", "unchecked_store_of"]

DAY_S = 86400.0
"""How long records are kept at least: an outage or a weekend's night must not lose any."""


def store_of(settings: Settings, *, upgrade: bool = True) -> Store:
    """The store that the settings name; see :func:`tunerd.store.open_store`."""
    return open_store(settings.store.url, _password(settings), upgrade=upgrade)


def unchecked_store_of(settings: Settings) -> Store:
    """The store that the settings name; see :func:`tunerd.store.open_store_unchecked`."""
    return open_store_unchecked(settings.store.url, _password(settings))


def _password(settings: Settings) -> str | None:
    password = settings.store.password
    return None if password is None else password.get_secret_value()


def stream_of(settings: Settings) -> Stream:
    """The stream that the settings name, with the installation's topics. Does not connect."""
    topics = settings.topics
    specs = [
        TopicSpec(topics.jobs, TopicContent.EVENT, keep_s=DAY_S),
        TopicSpec(topics.requests, TopicContent.EVENT),
        TopicSpec(topics.recommendations, TopicContent.JSON, compacted=True),
        TopicSpec(topics.rejected, TopicContent.BYTES, keep_s=DAY_S),
        TopicSpec(topics.drift, TopicContent.JSON, keep_s=DAY_S),
    ]
    if settings.stream.kind == "jsonl":
        folder = {"folder": settings.stream.folder, "create_topics": topics.create}
        return open_stream("jsonl", specs, folder)
    kafka = settings.stream.kafka
    password = kafka.sasl_password
    options = {
        "bootstrap_servers": tuple(
            s.strip() for s in kafka.bootstrap_servers.split(",") if s.strip()
        ),
        "client_id": kafka.client_id,
        "security_protocol": kafka.security_protocol,
        "sasl_mechanism": kafka.sasl_mechanism,
        "sasl_username": kafka.sasl_username,
        "sasl_password": password.get_secret_value() if password else None,
        "ssl_cafile": kafka.ssl_cafile and str(kafka.ssl_cafile),
        "ssl_certfile": kafka.ssl_certfile and str(kafka.ssl_certfile),
        "ssl_keyfile": kafka.ssl_keyfile and str(kafka.ssl_keyfile),
        "partitions": kafka.partitions,
        "replication_factor": kafka.replication_factor,
        "session_timeout_s": kafka.session_timeout_s,
        "instance": instance_name(settings),
        "create_topics": topics.create,
    }
    return open_stream("kafka", specs, options)


def instance_name(settings: Settings) -> str:
    """Name of this daemon among the readers of its group and the instances of its store: the same
    after every start, and another for each that can run at the same time, since two cannot share
    a folder for data."""
    place = f"{os.uname().nodename}:{settings.data_dir.resolve()}"
    return f"{settings.name}-{blake2b(place.encode(), digest_size=8).hexdigest()}"
