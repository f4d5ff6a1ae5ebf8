"""Sending to Kafka: idempotent, in order, and back only when every broker has it.

With a role the producer is transactional, one transaction per call, for one thing only: the next
holder of the role fences this one at the broker, and what a paused process still sends when it
wakes up is refused.

Whoever was fenced must not take the role back, and kafka-python says in many ways that it was, or
only that something failed. So the broker is asked whose the role is: after a failure that looks
like it, and before a role that this process once had is taken again.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from kafka import KafkaAdminClient, KafkaProducer
from kafka.errors import (
    InvalidProducerEpochError,
    KafkaError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    ProducerFencedError,
    TransactionalIdNotFoundError,
)
from kafka.producer.transaction_manager import TransactionState

from tunerd.errors import FencedOutError, StreamUnavailableError
from tunerd.streams.base import StreamMessage, StreamRecord
from tunerd.streams.kafka.connection import connect, translated
from tunerd.streams.kafka.lookback import sent_since
from tunerd.streams.kafka.options import KafkaOptions
from tunerd.streams.kafka.reasons import refused

__all__ = ["KafkaSink", "Roles"]

CLOSE_S = 1.0
BATCH_SIZE = 128 * 1024
FENCED = (ProducerFencedError, InvalidProducerEpochError)
ENDED = ("PrepareAbort", "CompleteAbort")
"""States of a transaction that the broker ended because it took too long."""
CHANGING = "PrepareEpochFence"
"""State of one that it is about to end, for that reason or for somebody who takes the role."""

Roles = dict[str, tuple[int, int]]
"""Producer id and epoch that the broker gave this process for each role that it took."""


class KafkaSink:
    """A :class:`tunerd.streams.base.StreamSink`. Those of one process share ``roles``."""

    def __init__(
        self, options: KafkaOptions, role: str | None = None, roles: Roles | None = None
    ) -> None:
        self._options = options
        self._role = role
        self._roles: Roles = {} if roles is None else roles
        self._producer: KafkaProducer | None = None

    def send(self, messages: Sequence[StreamMessage]) -> None:
        if not messages:
            return
        deadline = time.monotonic() + self._options.send_timeout_s
        try:
            with translated(self._options, besides=(MessageSizeTooLargeError,)):
                self._send(self._connected(), messages, deadline)
        except MessageSizeTooLargeError as error:
            self._drop()
            raise ValueError(f"a message is larger than the broker takes: {error}") from error
        except StreamUnavailableError as error:
            fenced = self._looks_fenced(error)
            # What was not acknowledged must not be sent later, behind what is sent next.
            self._drop()
            if fenced and self._taken_over() is not False:
                raise self._fenced_out() from error
            raise

    def hold(self) -> None:
        if self._role is None:
            return
        if self._producer is not None and self._taken_over():
            self._drop()
            raise self._fenced_out()
        try:
            with translated(self._options):
                self._connected()
        except StreamUnavailableError:
            self._drop()
            raise

    def sent_since(self, topics: Collection[str], since: datetime) -> Iterator[StreamRecord]:
        try:
            with translated(self._options):
                self._connected()
        except StreamUnavailableError:
            self._drop()
            raise
        # What the former holder had begun is committed or aborted by now.
        if topics:
            yield from sent_since(self._options, topics, since)

    def close(self) -> None:
        self._drop()

    def _connected(self) -> KafkaProducer:
        if self._producer is not None:
            return self._producer
        if self._taken_over():
            raise self._fenced_out()
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
            self._roles.pop(self._role, None)  # should the answer be lost, it is not known
            producer.init_transactions()
            self._remember(producer)
        return producer

    def _remember(self, producer: KafkaProducer) -> None:
        """Keep what the broker knows this holder by. The client may have changed it meanwhile."""
        assert self._role is not None
        manager = producer._transaction_manager
        known = manager.producer_id_and_epoch
        sure = manager._current_state not in (
            TransactionState.UNINITIALIZED,
            TransactionState.INITIALIZING,
            TransactionState.BUMPING_PRODUCER_EPOCH,
        )
        if known.is_valid and sure:
            self._roles[self._role] = known.producer_id, known.epoch
        else:
            self._roles.pop(self._role, None)

    def _fenced_out(self) -> FencedOutError:
        return FencedOutError(
            f"another instance has taken over {self._role} on Kafka at "
            f"{','.join(self._options.bootstrap_servers)}; nothing was sent"
        )

    def _looks_fenced(self, error: BaseException) -> bool:
        if self._role is None:
            return False
        if self._producer is not None:
            manager = self._producer._transaction_manager
            if _names_fence(manager._last_error):
                return True
        return _names_fence(error)

    def _taken_over(self) -> bool | None:
        """Whether somebody else has the role that this process had; None where nobody can say.

        A role that nobody has is not taken over, nor one whose transaction the broker ended
        because it took too long: to the client that looks the same.

        Raises StreamUnavailableError.
        """
        held = self._roles.get(self._role) if self._role is not None else None
        if held is None:
            return None
        admin, _ = connect(self._options, KafkaAdminClient)
        try:
            there = admin.describe_transactions([self._role])[self._role]
        except TransactionalIdNotFoundError:
            return False
        except KafkaError as error:
            if error.retriable:
                with translated(self._options):
                    raise
            return None  # the broker is too old, or does not allow it
        finally:
            admin.close()
        now = there.producer_id, there.producer_epoch
        if now == held:
            return False
        if there.state.value == CHANGING:
            raise StreamUnavailableError("Kafka is ending a transaction of this name")
        late = time.time() * 1000 - there.transaction_start_time_ms > there.transaction_timeout_ms
        ended = there.state.value in ENDED and now == (held[0], held[1] + 1)
        return not (ended and late)

    def _send(
        self, producer: KafkaProducer, messages: Sequence[StreamMessage], deadline: float
    ) -> None:
        self._check_topics({message.topic for message in messages})
        if self._role is not None:
            producer.begin_transaction()
        sent = [
            producer.send(m.topic, value=m.value, key=m.key, headers=list(m.headers))
            for m in messages
        ]
        # Not by `flush`: in kafka-python 3.0.12 it fails where a batch is too large for the topic
        # and is split, and would fail again with each try.
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
        if self._role is not None and self._role in self._roles:
            self._remember(producer)
        with suppress(Exception):  # it may be what was broken
            try:
                producer.close(timeout=CLOSE_S)
            except KafkaError:
                # It would go on trying in its thread, and be late.
                producer._sender.force_close()


def _names_fence(error: BaseException | None) -> bool:
    """Whether an error is, wraps or quotes one that says that the role is somebody else's."""
    ids: set[int] = set()
    waiting = [error]
    while waiting:
        cause = waiting.pop()
        if not isinstance(cause, BaseException) or id(cause) in ids:
            continue
        ids.add(id(cause))
        if isinstance(cause, FENCED) or any(kind.__name__ in str(cause) for kind in FENCED):
            return True
        waiting += [cause.__cause__, cause.__context__, *cause.args]
    return False


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
