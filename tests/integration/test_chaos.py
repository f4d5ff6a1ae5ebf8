"""The short version of `make chaos`, as a program of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers.kafka import KafkaServer
from tests.servers.postgres import PostgresServer

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(600)  # two minutes; more where others want the cores too
def test_three_instances_stand_the_loss_of_brokers_of_the_database_and_of_each_other(
    kafka_server: KafkaServer, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    assert kafka_server  # where there can be none, these say so
    assert postgres_server
    done = subprocess.run(
        [
            *(sys.executable, "-m", "benchmarks.chaos", "--quick", "--check"),
            *("--seed", "50", "--folder", str(tmp_path)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 broker, 1 database" in done.stdout
