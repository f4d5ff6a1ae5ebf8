"""``--local``: a daemon of one's own, which runs while it is needed."""

import fcntl
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.exec.conftest import STUDY, Place
from tunerd.exec.local import SETTINGS, stop

Until = Callable[[Callable[[], object]], None]


def keeper_runs(folder: Path) -> bool:
    with (folder / "keeper").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Place]:
    """Nothing but a study's file, and whoever was started is stopped at the end."""
    place = Place(tmp_path)
    (tmp_path / "tmp").mkdir()
    (tmp_path / "my study.toml").write_text(STUDY)
    yield place
    stop(tmp_path / "state" / "tunerd" / "local")


def test_a_study_file_is_all_it_needs(own: Place, until: Until) -> None:
    folder = own.folder / "state" / "tunerd" / "local"
    program = (
        *("--local", "--study", "my study.toml", "--metric", "wall_s=took ([0-9]+)"),
        *("--", "echo", "took {level}, {threads}, {mode}"),
    )
    assert own.run(*program).returncode == 0
    assert keeper_runs(folder)
    assert (folder / "studies" / "zip.toml").read_text() == STUDY
    stream = folder / "data" / "stream"
    until(
        lambda: (file := stream / "tunerd.recommendations.jsonl").exists() and file.stat().st_size
    )
    # Something else is tried. Levels alone would tell by luck: most that is tried has level 3 too.
    until(lambda: own.run(*program).stdout != b"took 3, 1, very small\n")
    changed = STUDY.replace("[1, 3, 5, 9]", "[3, 7]")
    (own.folder / "my study.toml").write_text(changed)
    before = (stream / "tunerd.recommendations.jsonl").stat().st_size
    assert own.run(*program).returncode == 0
    until(lambda: (stream / "tunerd.recommendations.jsonl").stat().st_size > before)
    assert (folder / "studies" / "zip.toml").read_text() == changed


def test_what_is_wrong_with_a_study_is_told_before_anything_starts(own: Place) -> None:
    study = own.folder / "my study.toml"
    study.write_text(STUDY.replace('goal = "minimize"', 'goal = "smaller"'))
    done = own.run("--local", "--study", "my study.toml", "--", "touch", "started")
    assert done.returncode == 125
    assert b"goal" in done.stderr
    assert not (own.folder / "started").exists()


def test_the_daemon_ends_when_nobody_needs_it(own: Place, until: Until) -> None:
    folder = own.folder / "state" / "tunerd" / "local"
    (folder / "studies").mkdir(parents=True)
    (folder / "studies" / "zip.toml").write_text(STUDY)
    (folder / "tunerd.toml").write_text(SETTINGS)
    (folder / "used").touch()
    keeper = subprocess.Popen(
        [sys.executable, "-m", "tunerd.exec.local", str(folder), "1"],
        stderr=subprocess.DEVNULL,
        cwd=own.folder,
    )
    with (folder / "used").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_SH)  # a program runs
        until(lambda: (folder / "data" / "stream" / "tunerd.jobs.jsonl").exists())
        assert keeper.poll() is None
    assert keeper.wait(60) == 0
    assert not keeper_runs(folder)


def test_it_can_be_stopped(own: Place, until: Until) -> None:
    folder = own.folder / "state" / "tunerd" / "local"
    assert own.run("--local", "--study", "my study.toml", "--", "true").returncode == 0
    until(lambda: (folder / "data" / "stream" / "tunerd.jobs.jsonl").read_text())
    until(lambda: (folder / "keeper").read_text())
    stop(folder)
    until(lambda: not keeper_runs(folder))
    stop(folder)  # nobody is there any more
