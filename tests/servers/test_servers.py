"""The servers themselves: data survives a crash, and the address stays."""

import psycopg

from tests.servers.kafka import KafkaServer
from tests.servers.postgres import PostgresServer


def test_postgres_keeps_its_data_and_address_over_a_crash(
    postgres_url: str, postgres_server: PostgresServer
) -> None:
    url = postgres_url.replace("+psycopg", "")
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 7 AS seven")
    postgres_server.kill()
    postgres_server.start()
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT seven FROM kept").fetchall() == [(7,)]


def test_kafka_keeps_its_topics_and_address_over_a_crash(
    kafka_bootstrap: str, kafka_server: KafkaServer, unique: str
) -> None:
    from kafka import KafkaAdminClient

    def topics() -> list[str]:
        admin = KafkaAdminClient(bootstrap_servers=kafka_bootstrap)
        try:
            return [str(name) for name in admin.list_topics()]
        finally:
            admin.close()

    admin = KafkaAdminClient(bootstrap_servers=kafka_bootstrap)
    admin.create_topics([unique])
    admin.close()
    kafka_server.kill()
    kafka_server.start()
    assert unique in topics()
