"""The systemd unit: sound, hardened, and true about how the daemon is run."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.needs import need_program
from tunerd.cli import cli

FOLDER = Path(__file__).parents[2] / "deploy" / "systemd"
UNIT = FOLDER / "tunerd.service"
UNITS = sorted(FOLDER.glob("*.service"))
EXPOSURE = 30
"""In tenths: `systemd-analyze security` must stay below 3.0."""


def here(tmp_path: Path, original: Path) -> Path:
    """The unit with a program that exists on this machine, which is what verify looks for."""
    unit = tmp_path / original.name
    unit.write_text(original.read_text().replace("/opt/tunerd/bin/tunerd ", f"{sys.executable} "))
    return unit


@pytest.mark.slow
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_finds_nothing_wrong(tmp_path: Path, unit: Path) -> None:
    analyze = need_program("systemd-analyze", "systemd")
    done = subprocess.run(
        [analyze, "verify", here(tmp_path, unit)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_it_may_do_little(tmp_path: Path, unit: Path) -> None:
    analyze = need_program("systemd-analyze", "systemd")
    subprocess.run(
        [analyze, "security", "--offline=true", f"--threshold={EXPOSURE}", here(tmp_path, unit)],
        check=True,
        capture_output=True,
    )


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_the_command_line_is_one(unit: Path) -> None:
    (line,) = re.findall(r"^ExecStart=(.*)$", unit.read_text(), re.M)
    program, command, option, file, *more = shlex.split(line)
    assert (program, file) == ("/opt/tunerd/bin/tunerd", "/etc/tunerd/tunerd.toml")
    shown = CliRunner().invoke(cli, [command, "--help"])
    assert shown.exit_code == 0
    assert all(one in shown.output for one in (option, *more[::2]))


def test_exit_codes_mean_what_the_unit_says() -> None:
    """2 is misconfigured: systemd must not try again. (The daemon's own tests check the codes,
    and that it notifies READY, WATCHDOG, RELOADING and STOPPING.)"""
    for unit in UNITS:
        text = unit.read_text()
        assert "RestartPreventExitStatus=2\n" in text
        assert "Restart=on-failure\n" in text
        assert "Type=notify\n" in text
        assert "WatchdogSec=" in text


def test_a_broker_that_is_away_at_the_start_is_waited_for_without_end() -> None:
    """The daemon then ends within seconds, with 1: any limit is reached while a broker boots."""
    assert "StartLimitIntervalSec=0\n" in UNIT.read_text()


def test_it_starts_when_the_clock_is_set() -> None:
    for key in ("Wants", "After"):
        (line,) = re.findall(rf"^{key}=(.*)$", UNIT.read_text(), re.M)
        assert "time-sync.target" in line.split()
