"""Three daemons with one PostgreSQL and one Kafka: one is killed, one paused, one stopped, while
jobs come in. `make chaos` does more of it, for longer."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks.chaos import STUDIES as ALL
from benchmarks.chaos import Fleet, judge, settle
from benchmarks.feed import Feeder, traffic
from tests.servers import wait_until
from tunerd.cli import cli

EVENTS = 240
STUDIES = ALL[:3]


@pytest.fixture
def fleet(tmp_path: Path, kafka_bootstrap: str, postgres_url: str, unique: str) -> Iterator[Fleet]:
    made = Fleet.make(tmp_path, 3, kafka_bootstrap, postgres_url, unique, STUDIES)
    try:
        yield made
    finally:
        made.end()


def role(fleet: Fleet, number: int) -> dict[str, object]:
    """What an instance says of itself."""
    with urlopen(fleet.instances[number].daemon.url("/readyz"), timeout=5) as page:
        found: dict[str, object] = json.loads(page.read())["role"]
        return found


def held(fleet: Fleet, number: int) -> int:
    """Studies of which an instance has gauges."""
    names = fleet.instances[number].daemon.metrics()
    return sum(name.startswith("tunerd_learned_sequence{") for name in names)


@pytest.mark.slow
@pytest.mark.timeout(400)  # a minute; more where others want the cores too
def test_losing_one_after_the_other_loses_and_doubles_nothing(fleet: Fleet) -> None:
    one, two, three = fleet.instances
    sent = traffic(EVENTS, np.random.default_rng(50), STUDIES)
    feeder = Feeder(fleet.bootstrap, one.daemon.jobs, sent.records, 15.0)
    for instance in fleet.instances:
        instance.begin()
    assert fleet.wait_until_spread(3)
    feeder.start()

    one.kill()
    two.pause()
    assert fleet.wait_until_spread(1)
    one.begin()
    two.wake()
    there = "SELECT count(*) FROM instances WHERE tuner_at > now() - interval '5 seconds'"
    wait_until(lambda: fleet.sql.number(there) == 3, 60, "all three are there")
    three.daemon.stop()
    assert fleet.wait_until_spread(2)

    feeder.finish()
    assert settle(fleet.sql, len(sent.events), 90)
    assert {what: count for what, count in judge(fleet, sent).items() if count} == {}

    wait_until(lambda: held(fleet, 0) + held(fleet, 1) == len(STUDIES), 10, "gauges follow leases")
    roles = [role(fleet, number) for number in (0, 1)]
    assert sum(bool(one["publishes"]) for one in roles) == 1
    settings = ["--settings", str(one.daemon.file)]

    def listed() -> list[dict[str, Any]]:
        shown = CliRunner().invoke(cli, ["instances", "--json", *settings], catch_exceptions=False)
        rows: list[dict[str, Any]] = json.loads(shown.stdout)
        return rows

    def partitions() -> list[str]:
        return sorted(part for row in listed() for part in row["partitions"])

    # Nothing was on the ones that the third left: the last job may be learned before they move.
    wait_until(lambda: partitions() == ["0", "1", "2"], 30, "partitions are spread over two")
    assert len(listed()) == 2
    assert sorted(study for row in listed() for study in row["studies"]) == sorted(STUDIES)
    assert sum(row["publishes"] for row in listed()) == 1

    # Any settings file will do: what is said is carried out where the study is.
    file = one.daemon.folder / "studies" / f"{STUDIES[0]}.toml"
    file.write_text(file.read_text().replace("explore_share = 0.5", "explore_share = 0.4"))
    reloaded = CliRunner().invoke(cli, ["reload", "--json", *settings], catch_exceptions=False)
    changed = [row for row in json.loads(reloaded.stdout)["studies"] if row["outcome"] != "same"]
    assert [(row["study"], row["generation"]) for row in changed] == [(STUDIES[0], 2)]
    steps = "SELECT count(*) FROM tune_steps WHERE generation = 2"
    wait_until(lambda: fleet.sql.number(steps) > 0, 90, "the new generation is tuned")
    again = CliRunner().invoke(cli, ["instances", *settings], catch_exceptions=False)
    assert "heartbeat" in again.output
