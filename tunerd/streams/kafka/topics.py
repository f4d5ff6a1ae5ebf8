"""Whether topics are as they should be, and what mends one that is not.

A broker that creates topics by itself, which is Kafka's default, makes them with its own defaults:
one partition, and everything deleted after a week. It does so for whoever writes or reads first.
"""

import socket
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from kafka import KafkaAdminClient
from kafka.admin import ConfigResource
from kafka.errors import KafkaError, TopicAuthorizationFailedError
from kafka.net.compat import KafkaNetClient

from tunerd.streams.base import TopicProblem, TopicSpec
from tunerd.streams.kafka.options import KafkaOptions

__all__ = ["problems_of_topics"]

MOST_AT_ONCE = 8
Described = Mapping[str, Any]


def problems_of_topics(
    options: KafkaOptions,
    specs: Sequence[TopicSpec],
    admin: KafkaAdminClient,
    client: KafkaNetClient,
) -> list[TopicProblem]:
    """Return what is wrong with the topics, in their order. Raises KafkaError."""
    described = {
        topic["name"]: topic for topic in admin.describe_topics([spec.name for spec in specs])
    }
    there = [spec for spec in specs if described.get(spec.name, {}).get("partitions")]
    hidden = {
        name
        for name, topic in described.items()
        if topic["error_code"] == TopicAuthorizationFailedError.errno
    }
    configs = _configs(admin, [spec.name for spec in there])
    partitions = [partition for spec in there for partition in described[spec.name]["partitions"]]
    alive = _answering(
        options, client, {node for partition in partitions for node in _nodes(partition)}
    )
    problems = []
    for spec in specs:
        if spec.name in hidden:
            text = f"topic {spec.name} could not be checked; this user lacks DESCRIBE on it"
            problems.append(TopicProblem(spec.name, text, "unchecked"))
            continue
        if spec not in there:
            problems.append(_missing(options, spec))
            continue
        topic, config = described[spec.name], configs.get(spec.name, {})
        problems += _wrong_settings(options, spec, len(topic["partitions"]), config)
        problems += _unavailable(spec, topic["partitions"], config, alive)
        if not config:
            text = f"topic {spec.name}: its configuration could not be checked; this user may lack "
            problems.append(TopicProblem(spec.name, text + "DESCRIBE_CONFIGS on it", "unchecked"))
    return problems


def _configs(admin: KafkaAdminClient, topics: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
    """Their configuration, and nothing of those of which we may not know it."""
    configs: dict[str, dict[str, str]] = {}
    with suppress(KafkaError):  # what is not known is said not to be
        if topics:
            wanted = [ConfigResource("TOPIC", name) for name in topics]
            answer = admin.describe_configs(wanted, config_filter="all")
            for name, entries in answer.get("topic", {}).items():
                configs[name] = {key: entry["value"] for key, entry in entries.items()}
    return configs


def _missing(options: KafkaOptions, spec: TopicSpec) -> TopicProblem:
    policy = "compact" if spec.compacted else "delete"
    mend = f"--create --topic {spec.name} --config cleanup.policy={policy}"
    mend += f" --partitions {options.partitions}" if options.partitions else ""
    mend += f" --replication-factor {options.replication_factor}" * bool(options.replication_factor)
    return TopicProblem(spec.name, f"topic {spec.name} does not exist; {_topics(options, mend)}")


def _wrong_settings(
    options: KafkaOptions, spec: TopicSpec, partitions: int, config: Mapping[str, str]
) -> Iterator[TopicProblem]:
    def altered(setting: str) -> str:
        where = ",".join(options.bootstrap_servers)
        return (
            f"`kafka-configs.sh --bootstrap-server {where} --alter --entity-type topics "
            f"--entity-name {spec.name} --add-config {setting}` mends it"
        )

    policy = config.get("cleanup.policy")
    policies = {part.strip() for part in (policy or "").split(",")} - {""}
    if spec.compacted and policy is not None and policies != {"compact"}:
        text = f"topic {spec.name} has cleanup.policy={policy} and must have compact: "
        text += "recommendations that hold would be deleted with time"
        yield TopicProblem(spec.name, f"{text}; {altered('cleanup.policy=compact')}")
    if not spec.compacted and "compact" in policies:
        text = f"topic {spec.name} has cleanup.policy={policy} and must have delete: "
        text += "compaction loses records, and refuses those without a key"
        yield TopicProblem(spec.name, f"{text}; {altered('cleanup.policy=delete')}")
    with suppress(KeyError, ValueError, TypeError):
        kept_ms, wanted_ms = int(config["retention.ms"]), int(spec.keep_s * 1000)
        if "delete" in policies and 0 <= kept_ms < wanted_ms:
            text = f"topic {spec.name} has retention.ms={kept_ms}, which is less than "
            text += f"{spec.keep_s / 3600:g} hours: records may be gone before they are read"
            mend = altered(f"retention.ms={wanted_ms}")
            yield TopicProblem(spec.name, f"{text}; {mend}", "differs")
    wanted = options.partitions if options.create_topics else None
    if wanted and partitions < wanted:
        text = f"topic {spec.name} has {_count(partitions, 'partition')}, and "
        text += f"stream.kafka.partitions wants {wanted}"
        mend = _topics(options, f"--alter --topic {spec.name} --partitions {wanted}")
        yield TopicProblem(spec.name, f"{text}; {mend}, or lower that setting", "differs")


def _unavailable(
    spec: TopicSpec,
    partitions: Sequence[Described],
    config: Mapping[str, str],
    alive: set[int],
) -> Iterator[TopicProblem]:
    """What keeps records from being written: no leader, or too few brokers that have them all."""
    count = len(partitions)
    headless = sum(partition["leader_id"] not in alive for partition in partitions)
    if headless:
        text = f"topic {spec.name}: {headless} of {_count(count, 'partition')} "
        yield TopicProblem(spec.name, text + "have no leader that answers", "away")
    with suppress(KeyError, ValueError, TypeError):
        least = int(config["min.insync.replicas"])
        # A topic with fewer copies than that takes what it gets.
        few = sum(
            len(alive & set(partition["isr_nodes"])) < min(least, len(partition["replica_nodes"]))
            for partition in partitions
        )
        if few and not headless:
            text = f"topic {spec.name}: {few} of {_count(count, 'partition')} have fewer than "
            text += f"{_count(least, 'broker')} in sync (min.insync.replicas) and take no records"
            yield TopicProblem(spec.name, text, "away")


def _nodes(partition: Described) -> set[int]:
    return {partition["leader_id"], *partition["isr_nodes"]} - {-1}


def _answering(options: KafkaOptions, client: KafkaNetClient, nodes: Collection[int]) -> set[int]:
    """Those of the brokers that take a connection. What the others say of one that died may be
    old: without a majority of the controllers nobody updates it."""

    def answers(node: int) -> bool:
        broker = client.cluster.broker_metadata(node)
        if broker is None:
            return False
        try:
            address = (broker.host, broker.port)
            socket.create_connection(address, timeout=options.connect_timeout_s).close()
        except OSError:
            return False
        return True

    if not nodes:
        return set()
    ordered = sorted(nodes)
    with ThreadPoolExecutor(min(MOST_AT_ONCE, len(ordered))) as pool:
        return {node for node, up in zip(ordered, pool.map(answers, ordered), strict=True) if up}


def _topics(options: KafkaOptions, what: str) -> str:
    where = ",".join(options.bootstrap_servers)
    return f"`kafka-topics.sh --bootstrap-server {where} {what}` mends it"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
