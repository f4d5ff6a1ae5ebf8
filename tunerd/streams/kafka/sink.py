"""Sending to Kafka: idempotent, in order, and back only when every broker has it.

With a role the producer is transactional, one transaction per call, for one thing only: the next
holder of the role fences this one at the broker, and what a paused process still sends when it
wakes up is refused.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from kafka import KafkaProducer
from kafka.errors import (
    InvalidProducerEpochError,
    KafkaError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    ProducerFencedError,
)

from tunerd.errors import FencedOutError, StreamUnavailableError
from tunerd.streams.base import Message, Record
from tunerd.streams.kafka.connection import connect, refused, translated
from tunerd.streams.kafka.lookback import sent_since
from tunerd.streams.kafka.options import KafkaOptions

__all__ = ["KafkaSink"]

CLOSE_S = 1.0
BATCH_SIZE = 128 * 1024
FENCED = (ProducerFencedError, InvalidProducerEpochError)


class KafkaSink:
    """A :class:`tunerd.streams.base.Sink`."""

    def __init__(self, options: KafkaOptions, role: str | None = None) -> None:
        self._options = options
        self._role = role
        self._producer: KafkaProducer | None = None

    def send(self, messages: Sequence[Message]) -> None:
        if not messages:
            return
        deadline = time.monotonic() + self._options.send_timeout_s
        try:
            with translated(self._options, besides=(MessageSizeTooLargeError, *FENCED)):
                self._send(self._connected(), messages, deadline)
        except FENCED as error:
            self._drop()
            raise FencedOutError(
                f"another instance has taken over {self._role}; nothing was sent"
            ) from error
        except MessageSizeTooLargeError as error:
            self._drop()
            raise ValueError(f"a message is larger than the broker takes: {error}") from error
        except StreamUnavailableError:
            # What was not acknowledged must not be sent later, behind what is sent next.
            self._drop()
            raise

    def sent_since(self, topics: Collection[str], since: datetime) -> Iterator[Record]:
        try:
            with translated(self._options):
                self._connected()
        except StreamUnavailableError:
            self._drop()
            raise
        # What the former holder had begun is committed or aborted by now.
        yield from sent_since(self._options, topics, since)

    def close(self) -> None:
        self._drop()

    def _connected(self) -> KafkaProducer:
        if self._producer is not None:
            return self._producer
        timeout_ms = int(self._options.send_timeout_s * 1000)

        def make(**common: Any) -> KafkaProducer:
            common["request_timeout_ms"] = min(common["request_timeout_ms"], timeout_ms // 2)
            return KafkaProducer(
                enable_idempotence=True,
                transactional_id=self._role,
                transaction_timeout_ms=timeout_ms,
                delivery_timeout_ms=timeout_ms,
                max_block_ms=timeout_ms,
                allow_auto_create_topics=False,
                batch_size=BATCH_SIZE,
                linger_ms=1,
                # A transaction begins with a retry or two while the broker ends the last one.
                retry_backoff_ms=20,
                metrics_enabled=False,
                **common,
            )

        producer, _ = connect(self._options, make)
        self._producer = producer
        if self._role is not None:
            producer.init_transactions()
        return producer

    def _send(self, producer: KafkaProducer, messages: Sequence[Message], deadline: float) -> None:
        self._check_topics({message.topic for message in messages})
        if self._role is not None:
            producer.begin_transaction()
        sent = [
            producer.send(m.topic, value=m.value, key=m.key, headers=list(m.headers))
            for m in messages
        ]
        producer.flush(max(0.0, deadline - time.monotonic()))
        for future in sent:
            future.get(timeout=max(0.0, deadline - time.monotonic()))
        if self._role is not None:
            _within(deadline, producer.commit_transaction)

    def _check_topics(self, topics: set[str]) -> None:
        assert self._producer is not None
        for topic in topics:
            try:
                self._producer.partitions_for(topic)
            except KafkaTimeoutError as error:
                where = ",".join(self._options.bootstrap_servers)
                raise StreamUnavailableError(
                    refused(self._options) or f"Kafka at {where} has no topic {topic}"
                ) from error

    def _drop(self) -> None:
        producer, self._producer = self._producer, None
        if producer is None:
            return
        with suppress(Exception):  # it may be what was broken
            try:
                producer.close(timeout=CLOSE_S)
            except KafkaError:
                # It would go on trying in its thread, and be late.
                producer._sender.force_close()


def _within(deadline: float, call: Callable[[], None]) -> None:
    """Call it, but wait no longer than until ``deadline``; it has no time-out of its own."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, name="kafka-commit", daemon=True)
    thread.start()
    thread.join(max(0.0, deadline - time.monotonic()))
    if thread.is_alive():
        raise StreamUnavailableError("Kafka did not finish a transaction in time")
    if raised:
        raise raised[0]
