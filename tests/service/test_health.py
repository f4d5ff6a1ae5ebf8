"""What keeps the daemon from being ready, by a clock that only the test moves."""

from tests.stages.fakes import Time
from tunerd.outage import SETTLED_S
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


def test_a_stage_is_away_until_no_step_has_failed_for_a_while() -> None:
    """A study that cannot be saved is loaded again between two failures, which goes well."""
    time = Time()
    health = HealthMonitor(["tune"], 120.0, time.clock, children=["tune"])
    assert health.troubled("tune", "permission denied")
    for _ in range(100):
        time.pass_(seconds=1)
        assert not health.stepped("tune", worked=True)
        assert not health.troubled("tune", "permission denied")
        assert health.problems() == ["tune: permission denied"]
    assert not health.stepped("tune", worked=True)
    time.pass_(seconds=SETTLED_S - 0.1)
    assert not health.stepped("tune", worked=False)
    assert health.is_away("tune")
    time.pass_(seconds=0.2)
    assert health.stepped("tune", worked=False)
    assert health.problems() == []
    assert not health.stepped("tune", worked=False)
