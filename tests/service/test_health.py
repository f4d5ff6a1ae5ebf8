"""What keeps the daemon from being ready, by a clock that only the test moves."""

from tests.stages.fakes import Time
from tunerd.service.health import HealthMonitor


def test_a_tuner_process_that_falls_silent_between_steps_is_told() -> None:
    time = Time()
    health = HealthMonitor(["ingest", "tune"], 120.0, time.clock, children=["tune"])
    for stage in ("ingest", "tune"):
        health.stepped(stage, worked=False)
    time.pass_(seconds=121)
    health.stepped("ingest", worked=False)
    assert health.problems() == ["tune: its process has said nothing for 121 s"]
    health.stepped("tune", worked=False)
    assert health.problems() == []
