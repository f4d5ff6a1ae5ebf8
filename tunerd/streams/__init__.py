"""Where events come from and recommendations go: a folder of JSON-lines files, or Kafka.

A new kind of stream is one module that keeps :class:`tunerd.streams.base.Stream` and one line in
``STREAMS``.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tunerd.streams.base import Stream, TopicSpec

__all__ = [
    "STREAMS",
    "open_stream",
]


def open_stream(kind: str, topics: Sequence[TopicSpec], options: Mapping[str, Any]) -> Stream:
    """Return the stream of a kind in ``STREAMS``. Does not connect.

    ``options`` are the arguments of JsonlStream (``folder``, ``create_topics``) or the fields of
    KafkaOptions.
    """
    return STREAMS[kind](topics, options)


def _jsonl(topics: Sequence[TopicSpec], options: Mapping[str, Any]) -> Stream:
    from tunerd.streams.jsonl.stream import JsonlStream

    return JsonlStream(topics=topics, **options)


def _kafka(topics: Sequence[TopicSpec], options: Mapping[str, Any]) -> Stream:
    from tunerd.streams.kafka.options import KafkaOptions
    from tunerd.streams.kafka.stream import KafkaStream

    return KafkaStream(KafkaOptions(**options), topics)


STREAMS: dict[str, Callable[[Sequence[TopicSpec], Mapping[str, Any]], Stream]] = {
    "jsonl": _jsonl,
    "kafka": _kafka,
}
"""Kinds of streams by name. Kafka is imported by those who use it only."""
