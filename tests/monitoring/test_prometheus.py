"""Prometheus' own tools on what ``deploy/prometheus`` has, and on what a daemon exports."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.monitoring import shorter_rules
from tests.integration.daemons import Daemon, events
from tests.monitoring.names import PROCESS
from tests.needs import need_program
from tunerd.metrics import DEFINITIONS

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
def test_rules_with_shorter_times_are_rules(tmp_path: Path) -> None:
    """As ``python -m benchmarks.monitoring`` uses them: nothing in them waits for minutes."""
    assert not re.search(r"(for: |\[)\d+[mhd]|> [2-9]00$", shorter_rules(), re.MULTILINE)
    (tmp_path / "alerts.yml").write_text(shorter_rules())
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
