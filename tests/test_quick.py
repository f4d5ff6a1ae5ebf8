"""What ``make test-quick`` runs: nothing with servers or processes, and most of the rest."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.quick import no_processes, reason

ROOT = Path(__file__).parents[1]
SOME = (
    "tests/contracts/test_stream.py",
    "tests/exec/test_choice.py",
    "tests/stages/test_tune.py",
    "tests/events/test_quantities.py",
)


@pytest.mark.parametrize(
    ("path", "fixtures", "parameters", "marks", "why"),
    [
        ("core/test_space.py", ("rng",), (3,), ("timeout",), None),
        ("integration/test_daemon.py", (), (), (), "processes"),
        ("streams/test_kafka.py", ("rig", "kafka_bootstrap"), (), (), "server"),
        ("contracts/test_store.py", ("store",), ("postgresql",), (), "server"),
        ("contracts/test_store.py", ("store",), ("sqlite",), (), None),
        ("stages/test_tune.py", ("tuning",), (), (), "slow"),
        ("core/test_space.py", (), (), ("slow",), "slow"),
    ],
)
def test_servers_processes_and_long_fits_are_left_out(
    path: str,
    fixtures: tuple[str, ...],
    parameters: tuple[object, ...],
    marks: tuple[str, ...],
    why: str | None,
) -> None:
    assert reason(Path(path), fixtures, parameters, marks) == why


@pytest.mark.slow
def test_it_collects_what_it_should() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--quick", "--collect-only", "-q", *SOME],
        cwd=ROOT,
        env=os.environ | {"PYTEST_ADDOPTS": "-p no:cacheprovider"},
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.findall(r"^(tests/\S+)::(\w+)(.*)", done.stdout, re.M)
    assert {path for path, _, _ in found} == {SOME[0], SOME[3]}, done.stdout + done.stderr
    parameters = [rest for path, _, rest in found if path == SOME[0]]
    assert any("jsonl" in one for one in parameters)
    assert not [one for one in parameters if "kafka" in one]


def test_a_quick_test_that_starts_a_process_fails() -> None:
    with pytest.raises(pytest.fail.Exception, match=r"starts a process \(.*true.*mark it slow"):  # noqa: SIM117
        with no_processes():
            subprocess.run(["true"], check=True)
