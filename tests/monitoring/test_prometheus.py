"""Prometheus' own tools on what ``deploy/prometheus`` has, and on what a daemon exports."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.integration.daemons import Daemon, events
from tests.monitoring.names import PROCESS
from tests.needs import need_program
from tunerd.metrics import DEFINITIONS
from tunerd.monitoring.alerts import AlertTimings
from tunerd.monitoring.rules import rule_file

FOLDER = Path(__file__).parents[2] / "deploy/prometheus"
PATIENCE_S = 60.0


def promtool(*arguments: str, given: str | None = None) -> str:
    done = subprocess.run(
        [need_program("promtool", "prometheus"), *arguments],
        cwd=FOLDER,
        input=given,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    return said


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "config", "prometheus.yml"),
        ("check", "rules", "--lint=all", "--lint-fatal", "alerts.yml"),
        ("test", "rules", "tests.yml"),
    ],
    ids=" ".join,
)
def test_promtool_accepts_it(arguments: tuple[str, ...]) -> None:
    assert "SUCCESS" in promtool(*arguments)


@pytest.mark.slow
def test_rules_with_other_times_are_rules(tmp_path: Path) -> None:
    """As ``python -m benchmarks.monitoring`` uses them."""
    times = AlertTimings(moment=2, stalled=5, outbox=5, window=10, hour=60, day=90)
    (tmp_path / "alerts.yml").write_text(rule_file(times))
    assert "SUCCESS" in promtool("check", "rules", "--lint-fatal", str(tmp_path / "alerts.yml"))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """``/metrics`` of a daemon that has learned, rejected and published."""
    daemon = Daemon(tmp_path_factory.mktemp("daemon"))
    try:
        daemon.start()
        daemon.send([*events(30), b"rubbish"])
        daemon.learned(30)
        status, text = daemon.get("/metrics")
        assert status == 200
        yield text
    finally:
        daemon.end()


@pytest.mark.slow
def test_promtool_accepts_what_a_daemon_exports(page: str) -> None:
    promtool("check", "metrics", given=page)


@pytest.mark.slow
def test_a_daemon_exports_all_that_is_defined(page: str) -> None:
    families = {one.name: one for one in text_string_to_metric_families(page)}
    for one in DEFINITIONS:
        assert families[one.name].type == one.kind
    for name in PROCESS:
        assert families[name].samples
