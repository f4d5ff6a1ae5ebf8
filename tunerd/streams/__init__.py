"""Where events come from and recommendations go: a folder of JSON-lines files, or Kafka.

A new kind of stream is one module that keeps :class:`tunerd.streams.base.Stream` and one line in
``STREAMS``.
"""

from collections.abc import Callable, Sequence

from tunerd.settings.model import Settings
from tunerd.streams.base import (
    Content,
    Follower,
    Message,
    Position,
    Record,
    Restore,
    Sink,
    Source,
    Stream,
    TopicSpec,
)

__all__ = [
    "STREAMS",
    "Content",
    "Follower",
    "Message",
    "Position",
    "Record",
    "Restore",
    "Sink",
    "Source",
    "Stream",
    "TopicSpec",
    "open_stream",
    "topics_of",
]


def open_stream(settings: Settings) -> Stream:
    """Return the stream that the settings describe, with its topics. Does not connect."""
    return STREAMS[settings.stream.kind](settings, topics_of(settings))


def topics_of(settings: Settings) -> tuple[TopicSpec, ...]:
    """Return what each topic holds."""
    topics = settings.topics
    return (
        TopicSpec(topics.jobs, Content.EVENT),
        TopicSpec(topics.recommendations, Content.JSON, compacted=True),
        TopicSpec(topics.rejected, Content.BYTES),
    )


def _jsonl(settings: Settings, topics: Sequence[TopicSpec]) -> Stream:
    from tunerd.streams.jsonl.stream import JsonlStream

    return JsonlStream(settings.stream.folder, topics, create_topics=settings.topics.create)


def _kafka(settings: Settings, topics: Sequence[TopicSpec]) -> Stream:
    from tunerd.streams.kafka.options import KafkaOptions
    from tunerd.streams.kafka.stream import KafkaStream

    kafka = settings.stream.kafka
    password = kafka.sasl_password
    options = KafkaOptions(
        bootstrap_servers=tuple(kafka.bootstrap_servers.replace(" ", "").split(",")),
        client_id=kafka.client_id,
        security_protocol=kafka.security_protocol,
        sasl_mechanism=kafka.sasl_mechanism,
        sasl_username=kafka.sasl_username,
        sasl_password=None if password is None else password.get_secret_value(),
        ssl_cafile=None if kafka.ssl_cafile is None else str(kafka.ssl_cafile),
        ssl_certfile=None if kafka.ssl_certfile is None else str(kafka.ssl_certfile),
        ssl_keyfile=None if kafka.ssl_keyfile is None else str(kafka.ssl_keyfile),
        create_topics=settings.topics.create,
        partitions=kafka.partitions,
        replication_factor=kafka.replication_factor,
        session_timeout_s=kafka.session_timeout_s,
    )
    return KafkaStream(options, topics)


STREAMS: dict[str, Callable[[Settings, Sequence[TopicSpec]], Stream]] = {
    "jsonl": _jsonl,
    "kafka": _kafka,
}
"""Kinds of streams by name. Kafka is imported by those who use it only."""
