"""Measured jobs through a real Kafka: every context in them gets a valid recommendation.

The rows of ``vtrain_megatron`` and ``trimtuner_ps`` are sent as job events; an independent client
reads all that comes back, every revision, and checks it against the contract: its schema, its
rules, and the study's own space.
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
from tunerd.core.space import SearchSpace
from tunerd.core.study import Study
from tunerd.core.study_file import parse_study
from tunerd.events import from_bytes

TABLES: dict[str, dict[str, str]] = {
    "vtrain_megatron": {"fills_the_cluster": "tp * dp * pp == n_gpus"},
    "trimtuner_ps": {},
}
"""With the rules that a person would write down for them."""
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


def faults(study: Study, key: str, raw: bytes, now: datetime) -> list[str]:
    """What is wrong with a recommendation, by the contract."""
    try:
        from_bytes(raw)
    except ValueError as error:
        return [str(error)]
    message = json.loads(raw)
    issued_at = datetime.fromisoformat(message["issued_at"])
    valid_until = datetime.fromisoformat(message["valid_until"])
    candidates = message["candidates"]
    rules = {
        "schema": message["schema"] == "tunerd.recommendation/1",
        "study": message["study"] == study.name,
        "context_key": message["context_key"] == key == study.context_key(message["context"]),
        "state": message["state"] == "active",
        "revision": message["revision"] >= 1,
        "issued_at or valid_until": issued_at <= now < valid_until,
        "recommendation_id": bool(message["recommendation_id"]),
        "reason": bool(message["reason"]),
        "candidate_id": len({c["candidate_id"] for c in candidates}) == len(candidates),
        "rank": [c["rank"] for c in candidates] == list(range(1, len(candidates) + 1)),
        "share": sum(c["share"] for c in candidates) <= study.explore_share + 1e-9,
        "something to run": bool(candidates or message["incumbent"]),
    }
    wrong = [rule for rule, kept in rules.items() if not kept]
    space = SearchSpace(study, study.clean_context(message["context"]))
    return wrong + [fault for one in candidates for fault in candidate_faults(study, space, one)]


def candidate_faults(study: Study, space: SearchSpace, candidate: Mapping[str, Any]) -> list[str]:
    """What is wrong with one candidate."""
    feasible, band = candidate["feasible"], candidate["predicted"]
    rules = {
        "outside the space": space.encode(candidate["config"]) is not None,
        "may not run": feasible is None or feasible >= study.min_feasible,
        "band": band is None or band["low"] <= band["median"] <= band["high"],
    }
    return [f"candidate {candidate['rank']}: {rule}" for rule, kept in rules.items() if not kept]


def main() -> int:
    """Run it."""
    parser = arguments(__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the tables")
    options = parser.parse_args()
    bars = Bars("kafka_tables")
    with kafka_broker(options) as bootstrap:
        for name in list(TABLES)[: 1 if options.quick else None]:
            table = read_table(name, options.data, constraints=TABLES[name])
            study = parse_study(table.study)
            with tempfile.TemporaryDirectory(prefix="tunerd-bench-") as folder:
                daemon = Daemon(
                    Path(folder), {study.name: study.text}, bootstrap, f"table-{time.time_ns()}"
                )
                with running(daemon):
                    started = time.monotonic()
                    keys = send(bootstrap, daemon.jobs, table, study)
                    found: set[str] = set()
                    while found != keys and time.monotonic() < started + PATIENCE_S:
                        time.sleep(0.5)
                        lines = read_topic(bootstrap, daemon.recommendations, "read_committed")
                        found = {one.key for one in lines}
                    seconds = time.monotonic() - started
                    # And what it says once it knows all rows.
                    learned = f'tunerd_learned_sequence{{study="{study.name}"}}'
                    daemon.wait_for(learned, len(table.observations), PATIENCE_S)
                    time.sleep(5)
                    lines = read_topic(bootstrap, daemon.recommendations, "read_committed")
            now = datetime.now(UTC)
            bad = [(one.key, faults(study, one.key, one.value or b"", now)) for one in lines]
            bad = [(key, wrong) for key, wrong in bad if wrong]
            for key, wrong in bad[:5]:
                print(f"    {key}: {', '.join(wrong)}")
            bars.say(f"{name}: jobs", len(table.observations))
            bars.say(f"{name}: until all contexts had one", seconds, "s")
            missing = len(keys ^ {one.key for one in lines})
            bars.hold(f"{name}: contexts without one", missing, not missing, f"0 of {len(keys)}")
            bars.say(f"{name}: recommendations", len(lines))
            bars.hold(f"{name}: not valid", len(bad), not bad, "0")
    return bars.end(options)


if __name__ == "__main__":
    sys.exit(main())
