"""Measured jobs through a real Kafka: every context in them gets a valid recommendation.

The rows of ``vtrain_megatron`` and ``trimtuner_ps`` are sent as job events; an independent client
reads what comes back and checks it against the contract, and against nothing of tunerd's but the
study's own space.
"""

import json
import sys
import tempfile
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from benchmarks.kit import Bars, Daemon, arguments, kafka_broker, running
from benchmarks.tables import DATA, Table, read_table
from benchmarks.witness import read_topic
from tunerd.client import context_key
from tunerd.core.space import Space
from tunerd.core.study import Study, parse_study

TABLES = ("vtrain_megatron", "trimtuner_ps")
PATIENCE_S = 300.0


def send(bootstrap: str, topic: str, table: Table, study: Study) -> set[str]:
    """Send every row as a job that has just finished; returns the context keys in them."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    features = {f.name: {"type": f.type} for f in study.context}
    keys = set()
    for row in table.observations:
        event = {
            "schema": "tunerd.job/1",
            "source": "table",
            "event_id": row.event_id,
            "study": study.name,
            "job_id": row.job_id,
            "status": row.status.value,
            "finished_at": datetime.now(UTC).isoformat(),
            "context": dict(row.context),
            "config": dict(row.config),
            "metrics": dict(row.metrics),
        }
        producer.produce(topic, json.dumps(event).encode())
        producer.poll(0)
        keys.add(context_key(study.name, features, row.context))
    producer.flush()
    return keys


def faults(study: Study, key: str, message: Mapping[str, Any], now: datetime) -> list[str]:
    """What is wrong with a recommendation, by the contract."""
    wrong = []
    if message["schema"] != "tunerd.recommendation/1" or message["study"] != study.name:
        wrong.append("schema or study")
    if message["context_key"] != key or study.context_key(message["context"]) != key:
        wrong.append("context_key")
    if message["state"] != "active" or message["revision"] < 1:
        wrong.append("state or revision")
    if datetime.fromisoformat(message["valid_until"]) <= now:
        wrong.append("valid_until")
    candidates = message["candidates"]
    if [c["rank"] for c in candidates] != list(range(1, len(candidates) + 1)):
        wrong.append("ranks")
    if sum(c["share"] for c in candidates) > study.explore_share + 1e-9:
        wrong.append("shares")
    if not candidates and message["incumbent"] is None:
        wrong.append("says nothing")
    space = Space(study, study.clean_context(message["context"]))
    for candidate in candidates:
        if space.encode(candidate["config"]) is None:
            wrong.append(f"candidate {candidate['rank']} is outside the space")
        if candidate["feasible"] is not None and candidate["feasible"] < study.min_feasible:
            wrong.append(f"candidate {candidate['rank']} may not run")
        band = candidate["predicted"]
        if band is not None and not band["low"] <= band["median"] <= band["high"]:
            wrong.append(f"candidate {candidate['rank']}: band")
    return wrong


def main() -> int:
    """Run it."""
    parser = arguments(__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the tables")
    options = parser.parse_args()
    bars = Bars("kafka_tables")
    with kafka_broker(options) as bootstrap:
        for name in TABLES[: 1 if options.quick else None]:
            table = read_table(name, options.data)
            study = parse_study(table.study)
            with tempfile.TemporaryDirectory(prefix="tunerd-bench-") as folder:
                daemon = Daemon(
                    Path(folder), {study.name: study.text}, bootstrap, f"table-{time.time_ns()}"
                )
                with running(daemon):
                    started = time.monotonic()
                    keys = send(bootstrap, daemon.jobs, table, study)
                    found: dict[str, Any] = {}
                    while found.keys() != keys and time.monotonic() < started + PATIENCE_S:
                        time.sleep(1)
                        lines = read_topic(bootstrap, daemon.recommendations, "read_committed")
                        found = {one.key: json.loads(one.value) for one in lines if one.value}
                    seconds = time.monotonic() - started
            now = datetime.now(UTC)
            bad = {key: faults(study, key, message, now) for key, message in found.items()}
            for key, wrong in [(key, wrong) for key, wrong in bad.items() if wrong][:5]:
                print(f"    {key}: {', '.join(wrong)}")
            bars.say(f"{name}: jobs", len(table.observations))
            bars.say(f"{name}: seconds until all contexts had one", seconds, "s")
            missing, invalid = len(keys - found.keys()), sum(map(bool, bad.values()))
            bars.hold(f"{name}: contexts without one", missing, not missing, f"0 of {len(keys)}")
            bars.hold(f"{name}: not valid", invalid, not invalid, "0")
    return bars.end(options)


if __name__ == "__main__":
    sys.exit(main())
