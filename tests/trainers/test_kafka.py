"""Over a real Kafka, by settings as a daemon has them: what waits for its topic arrives."""

import pytest
from kafka.admin import KafkaAdminClient

from tests.integration.daemons import read_events
from tests.trainers.conftest import TrainingPlace

pytestmark = pytest.mark.slow


def test_an_event_waits_for_its_topic_and_arrives(
    place: TrainingPlace, kafka_bootstrap: str, unique: str
) -> None:
    (place.folder / "tunerd.toml").write_text(
        f'[stream]\nkind = "kafka"\n[stream.kafka]\nbootstrap_servers = "{kafka_bootstrap}"\n'
        f'[topics]\njobs = "{unique}.jobs"\nrecommendations = "{unique}.recommendations"\n'
    )
    assert "waits in" in place.run()
    assert len(place.spool) == 1
    admin = KafkaAdminClient(bootstrap_servers=kafka_bootstrap)
    admin.create_topics({f"{unique}.jobs": {"num_partitions": 1}})
    admin.close()
    runs = 1
    while place.spool and runs < 8:  # a short training may end before what waited is sent
        place.run()
        runs += 1
    assert place.spool == []
    events = read_events(kafka_bootstrap, f"{unique}.jobs")
    assert {event["status"] for event in events} == {"succeeded"}
    assert len({event["event_id"] for event in events}) == runs
