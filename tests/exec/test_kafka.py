"""Over a real Kafka: what could not be sent waits, and is sent once the topic is there."""

from uuid import uuid4

from kafka.admin import KafkaAdminClient

from tests.exec.conftest import BASELINE, Place
from tests.integration.daemons import read_events


def test_an_event_waits_for_its_topic_and_arrives_once(place: Place, kafka_bootstrap: str) -> None:
    prefix = f"exec-{uuid4().hex[:8]}"
    (place.folder / "tunerd.toml").write_text(
        f'[stream]\nkind = "kafka"\n[stream.kafka]\nbootstrap_servers = "{kafka_bootstrap}"\n'
        f'[topics]\njobs = "{prefix}.jobs"\nrecommendations = "{prefix}.recommendations"\n'
    )
    early = place.run("--", "sh", "-c", "echo {level}; exit 4")
    assert (early.returncode, early.stdout) == (4, b"3\n")
    assert b"does not exist" in early.stderr
    assert len(place.spool) == 1
    admin = KafkaAdminClient(bootstrap_servers=kafka_bootstrap)
    admin.create_topics({f"{prefix}.jobs": {"num_partitions": 1}})
    admin.close()
    assert place.run("--", "true").returncode == 0
    assert not place.spool
    events = read_events(kafka_bootstrap, f"{prefix}.jobs")
    assert sorted(one["status"] for one in events) == ["failed", "succeeded"]
    assert all(one["config"] == BASELINE for one in events)
