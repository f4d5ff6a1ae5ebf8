"""The least that any ingest must do, for comparison: poll, ``json.loads``, insert raw rows.

:mod:`benchmarks.ingest` runs it in a process of its own, as the daemon is. It keeps no positions,
checks nothing and knows no duplicates; batches and pragmas are tunerd's. Runs until it is stopped.
"""

import json
import sqlite3
import sys

from kafka import KafkaConsumer, TopicPartition

from tunerd.settings.model import IngestSettings
from tunerd.store.engine import SQLITE_CACHE_KIB


def main() -> None:
    """Run it, with the broker, the topic and the file as arguments."""
    bootstrap, topic, file = sys.argv[1:]
    store = sqlite3.connect(file, isolation_level=None)
    for pragma in (
        "journal_mode=WAL",
        "synchronous=FULL",
        f"cache_size=-{SQLITE_CACHE_KIB}",
        "journal_size_limit=67108864",
    ):
        store.execute(f"PRAGMA {pragma}").close()
    store.execute(
        "CREATE TABLE raw (id INTEGER PRIMARY KEY, study TEXT, event_id TEXT, value TEXT)"
    )
    consumer = KafkaConsumer(
        bootstrap_servers=[bootstrap],
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        metrics_enabled=False,
    )
    partitions = consumer.partitions_for_topic(topic)
    consumer.assign([TopicPartition(topic, number) for number in partitions])
    most = IngestSettings().batch_records
    while True:
        rows = []
        for records in consumer.poll(200, most).values():
            for record in records:
                event = json.loads(record.value)
                rows.append((event["study"], event["event_id"], record.value.decode()))
        if rows:
            store.execute("BEGIN IMMEDIATE")
            store.executemany("INSERT INTO raw (study, event_id, value) VALUES (?, ?, ?)", rows)
            store.execute("COMMIT")
