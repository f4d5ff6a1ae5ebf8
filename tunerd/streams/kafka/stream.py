"""A Kafka cluster as a stream."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TypeVar

from kafka import KafkaAdminClient
from kafka.errors import (
    AuthorizationError,
    InvalidReplicationFactorError,
    KafkaConnectionError,
    PolicyViolationError,
    TopicAlreadyExistsError,
)

from tunerd.errors import MisconfiguredError, ValidationProblem
from tunerd.streams.base import Restore, TopicProblem, TopicSpec
from tunerd.streams.kafka.connection import connect, quiet, translated
from tunerd.streams.kafka.follower import KafkaFollower
from tunerd.streams.kafka.options import KafkaOptions
from tunerd.streams.kafka.sink import KafkaSink, Roles
from tunerd.streams.kafka.source import KafkaSource
from tunerd.streams.kafka.table import KafkaTable
from tunerd.streams.kafka.topics import problems_of_topics

__all__ = ["KafkaStream"]

ATTEMPTS = 4
FORBIDDEN = (AuthorizationError, InvalidReplicationFactorError, PolicyViolationError)

Answer = TypeVar("Answer")


class KafkaStream:
    """A :class:`tunerd.streams.base.Stream`."""

    def __init__(self, options: KafkaOptions, topics: Sequence[TopicSpec]) -> None:
        quiet()
        self._options = options
        self._topics = tuple(topics)
        self._roles: Roles = {}

    def ensure_topics(self) -> None:
        with self._admin() as admin:
            there = set(_asked(admin.list_topics))
            missing = [spec for spec in self._topics if spec.name not in there]
            if not missing:
                return
            if not self._options.create_topics:
                raise MisconfiguredError(
                    [self._absent(spec, "creating is off") for spec in missing]
                )
            wanted = {spec.name: self._wanted(spec) for spec in missing}
            try:
                with suppress(TopicAlreadyExistsError):  # another instance was faster
                    _asked(lambda: admin.create_topics(wanted))
            except FORBIDDEN as error:
                raise MisconfiguredError(
                    [self._absent(spec, f"creating it failed: {error}") for spec in missing]
                ) from error
            names = [spec.name for spec in missing]
            _asked(lambda: admin.wait_for_topics(names))

    def check_topics(self) -> list[TopicProblem]:
        admin, client = connect(self._options, KafkaAdminClient)
        try:
            with translated(self._options):
                return _asked(
                    lambda: problems_of_topics(self._options, self._topics, admin, client)
                )
        finally:
            admin.close()

    def table(self, topic: str) -> KafkaTable:
        return KafkaTable(self._options, topic)

    def source(self, topic: str, group: str, restore: Restore) -> KafkaSource:
        return KafkaSource(self._options, topic, group, restore)

    def sink(self, role: str | None = None, *, take_back: bool = False) -> KafkaSink:
        if role is not None and take_back:
            self._roles.pop(role, None)
        return KafkaSink(self._options, role, self._roles)

    def follow(self, topic: str, *, from_beginning: bool = True) -> KafkaFollower:
        return KafkaFollower(self._options, topic, from_beginning=from_beginning)

    @contextmanager
    def _admin(self) -> Iterator[KafkaAdminClient]:
        admin, _ = connect(self._options, KafkaAdminClient)
        try:
            with translated(self._options):
                yield admin
        finally:
            admin.close()

    def _wanted(self, spec: TopicSpec) -> dict[str, object]:
        return {
            "num_partitions": self._options.partitions or -1,
            "replication_factor": self._options.replication_factor or -1,
            "configs": {"cleanup.policy": "compact" if spec.compacted else "delete"},
        }

    def _absent(self, spec: TopicSpec, why: str) -> ValidationProblem:
        where = ",".join(self._options.bootstrap_servers)
        policy = ", compacted" if spec.compacted else ""
        return ValidationProblem(
            f"topic {spec.name}", f"does not exist on Kafka at {where} and {why}; create it{policy}"
        )


def _asked(ask: Callable[[], Answer]) -> Answer:
    """The answer of whichever broker has one: it may ask one that is gone, and another knows as
    well."""
    for _ in range(ATTEMPTS - 1):
        with suppress(KafkaConnectionError):
            return ask()
    return ask()
