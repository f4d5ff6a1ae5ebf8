"""Operators' orders on a daemon as it runs: given on the command line, seen by a scheduler."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.daemons import Daemon, events
from tunerd.cli import run
from tunerd.client import Recommendations

EIGHT = "toy|n=8"


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    made = Daemon(tmp_path)
    made.start()
    yield made
    made.end()


def test_a_pin_a_pause_and_a_resume_reach_the_schedulers(
    daemon: Daemon, capsys: pytest.CaptureFixture[str]
) -> None:
    def tunerd(*arguments: str) -> str:
        code = run([*arguments, "--settings", str(daemon.file)])
        said = capsys.readouterr()
        assert code == 0, said.err
        return said.out

    scheduler = Recommendations.follow_jsonl(
        daemon.folder / "data/stream", f"{daemon.name}.recommendations"
    )

    def values() -> set[object]:
        """What jobs of one context may be launched with, for ``y``."""
        scheduler.poll()
        message = scheduler.find(EIGHT)
        if message is None:
            return set()
        configs = [candidate["config"] for candidate in message["candidates"]]
        configs += [message["incumbent"]["config"]] if message["incumbent"] else []
        configs += [message["baseline"]] if message["baseline"] else []
        return {config["y"] for config in configs}

    daemon.send(events(60))
    daemon.learned(60)
    daemon.until(lambda: "c" in values(), "advice is out")
    said = tunerd("pin", "toy", "--set", "y=b", "--context", "n=8", "--why", "fibre cut")
    assert "in force; 1 recommendation broke it" in said
    daemon.until(lambda: values() == {"b"}, "the pin is obeyed")
    before = scheduler.find(EIGHT)
    assert before is not None
    assert "Limits here: pin 1 (y = b)" in before["reason"]
    assert daemon.stop()[0] == 0
    daemon.start()  # and the pin stands
    daemon.send(events(20, first=61))
    daemon.learned(80)
    assert values() == {"b"}
    assert "3 recommendations withdrawn" in tunerd("pause", "toy", "--why", "an upgrade")
    daemon.until(lambda: values() == set(), "advice is withdrawn")
    assert scheduler.choose(EIGHT, "job-1") is None
    assert {line["value"]["state"] for line in daemon.recommended()[-3:]} == {"withdrawn"}
    assert daemon.recommended()[-1]["value"]["reason"].endswith("(command 2): an upgrade.")
    daemon.until(
        lambda: 'tunerd_study_paused{study="toy"} 1' in daemon.get("/metrics")[1], "paused"
    )
    assert "3 contexts searched again" in tunerd("resume", "toy")
    daemon.until(lambda: values() == {"b"}, "advice is back")
    assert "lifted: pin y = b (1) where n = 8" in tunerd("lift", "toy", "1")
    daemon.until(lambda: "c" in values(), "the pin is lifted")
    assert tunerd("commands", "toy").count("toy") >= 4
    assert daemon.stop()[0] == 0
