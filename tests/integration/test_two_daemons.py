"""Two daemons of one name on one Kafka, each with a store of its own: one of them ends."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.daemons import PATIENCE_S, Daemon, events


@pytest.fixture
def pair(tmp_path: Path, kafka_bootstrap: str, unique: str) -> Iterator[tuple[Daemon, Daemon]]:
    made = tuple(Daemon(tmp_path / name, kafka_bootstrap, unique) for name in ("former", "latter"))
    try:
        yield made[0], made[1]
    finally:
        for one in made:
            one.end()


def test_the_later_of_two_daemons_of_one_name_wins_and_the_earlier_ends_for_good(
    pair: tuple[Daemon, Daemon],
) -> None:
    former, latter = pair
    former.start()
    latter.start()
    assert former.process is not None
    assert former.process.wait(PATIENCE_S) == 2  # systemd starts that one no more
    (line,) = former.lines("another daemon has taken over; this one ends")
    assert f"the name {former.name}" in line["problem"]
    assert former.lines("stopped")
    latter.send(events(8))
    latter.learned(8)
    assert latter.process is not None
    assert latter.process.poll() is None
