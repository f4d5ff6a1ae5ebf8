"""From event sent to recommendation received, on a real Kafka, by an independent client.

Every probe is a finished job in a context that nobody has seen; the clock runs from the moment it
is sent until the recommendation for its context key is received. With little and with much
history in the same run, so that the two can be compared.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from confluent_kafka import Consumer, Producer

from benchmarks.kit import Bars, Daemon, arguments, kafka_broker, percentile, running
from tunerd.core.observation import Scalar
from tunerd.core.space import SearchSpace
from tunerd.core.study import Study
from tunerd.core.study_file import parse_study
from tunerd.lab.simulation.shipped import shipped_study
from tunerd.lab.simulation.simulator import CostSimulator, job_rng, simulator_for

RATE = 2.0
"""Probes per second."""
P99_S = 3.0
RATIO = 1.5


def history(simulator: CostSimulator, count: int, seed: int = 0) -> list[dict[str, object]]:
    """Random jobs of the LLM study in about 200 contexts."""
    study, rng = simulator.study, np.random.default_rng(seed)
    contexts: list[dict[str, Scalar]] = [
        {
            "gpu": str(rng.choice(["H100", "A100"])),
            "n_gpus": int(2 ** rng.integers(3, 11)),
            "model_params": float(rng.choice([1, 3, 7, 13, 30, 70])) * 1e9,
            "global_batch": int(2 ** rng.integers(8, 12)),
            "seq_len": int(2 ** rng.integers(11, 14)),
        }
        for _ in range(200)
    ]
    spaces = [(c, SearchSpace(study, study.clean_context(c))) for c in contexts]
    events = []
    for i in range(count):
        context, space = spaces[int(rng.integers(len(spaces)))]
        config = space.decode(space.sample(1, rng)[0])
        outcome = simulator.run(context, config, job_rng(seed, context, config, i))
        events.append(event(study, f"h{i}", context, config, outcome.status.value, outcome.metrics))
    return events


def event(
    study: Study,
    name: str,
    context: object,
    config: object,
    status: str,
    metrics: object,
) -> dict[str, object]:
    """A job event of the contract."""
    return {
        "schema": "tunerd.job/1",
        "source": "bench",
        "event_id": name,
        "study": study.name,
        "job_id": name,
        "status": status,
        "finished_at": datetime.now(UTC).isoformat(),
        "context": context,
        "config": config,
        "metrics": metrics,
    }


def probe(
    daemon: Daemon, bootstrap: str, simulator: CostSimulator, count: int, tag: int
) -> tuple[list[float], int]:
    """Seconds from event to recommendation of each probe, and how many got none."""
    study, rng = simulator.study, np.random.default_rng(tag)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"probe-{tag}",
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 10,
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([daemon.recommendations])
    sent: dict[str, float] = {}
    took: dict[str, float] = {}
    begin = time.monotonic() + 3.0  # the group forms meanwhile
    while len(sent) < count or (len(took) < count and time.monotonic() < begin + count / RATE + 30):
        now = time.monotonic()
        if len(sent) < count and now >= begin + len(sent) / RATE:
            context = {
                "gpu": "H100",
                "n_gpus": 64,
                "model_params": 7e9,
                "global_batch": 1024,
                "seq_len": 4096 + 1 + tag * 10_000 + len(sent),
            }
            space = SearchSpace(study, study.clean_context(context))
            config = space.decode(space.sample(1, rng)[0])
            metrics = {"tokens_per_second_per_gpu": 400.0 + len(sent) % 50}
            message = event(study, f"p{tag}-{len(sent)}", context, config, "succeeded", metrics)
            sent[study.context_key(context)] = time.monotonic()
            producer.produce(daemon.jobs, json.dumps(message).encode())
            producer.flush()
        record = consumer.poll(0.02)
        raw = None if record is None or record.error() is not None else record.key()
        if raw is not None:
            key = raw.decode()
            if key in sent and key not in took:
                took[key] = time.monotonic() - sent[key]
    consumer.close()
    return sorted(took.values()), count - len(took)


def measure(
    options: argparse.Namespace, bars: Bars, bootstrap: str, counts: Sequence[int], probes: int
) -> None:
    """One daemon per size of history, on the same broker."""
    study = parse_study(shipped_study("llm-pretrain"))
    simulator = simulator_for(study)
    events = history(simulator, max(counts))
    p99: list[float] = []
    for tag, count in enumerate(counts):
        with tempfile.TemporaryDirectory(prefix="tunerd-bench-") as folder:
            daemon = Daemon(
                Path(folder), {study.name: study.text}, bootstrap, f"latency-{tag}-{time.time_ns()}"
            )
            with running(daemon):
                producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
                for one in events[:count]:
                    producer.produce(daemon.jobs, json.dumps(one).encode())
                    producer.poll(0)
                producer.flush()
                name = f'tunerd_learned_sequence{{study="{study.name}"}}'
                daemon.wait_for(name, count, 600)
                # What the flood left to search again is not what a probe should wait for.
                time.sleep(5 if options.quick else 20)
                took, lost = probe(daemon, bootstrap, simulator, probes, tag + 1)
        bars.say(f"{count} observations: p50", percentile(took, 0.5), "s")
        bars.hold(
            f"{count} observations: p99",
            percentile(took, 0.99),
            percentile(took, 0.99) < P99_S and not lost,
            f"under {P99_S:g} s, none lost ({lost} lost)",
            "s",
        )
        p99.append(percentile(took, 0.99))
    ratio = p99[-1] / p99[0]
    bars.hold("p99, most history against least", ratio, ratio <= RATIO, f"at most {RATIO:g}", "x")


def main() -> int:
    """Run it."""
    parser = arguments(__doc__)
    parser.add_argument("--probes", type=int, default=300)
    parser.add_argument("--counts", default="1000,20000", help="sizes of history")
    options = parser.parse_args()
    sizes = tuple(int(size) for size in options.counts.split(","))
    counts, probes = ((200, 1000), 20) if options.quick else (sizes, options.probes)
    bars = Bars("latency")
    print(f"{probes} probes at {RATE:g}/s, each in a new context")
    with kafka_broker(options) as bootstrap:
        measure(options, bars, bootstrap, counts, probes)
    return bars.end(options)


if __name__ == "__main__":
    sys.exit(main())
