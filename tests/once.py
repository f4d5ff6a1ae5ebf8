"""What is made once for all workers of a run: the first that asks makes it, the others wait."""

import fcntl
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["OncePerRun"]


@dataclass(frozen=True)
class OncePerRun:
    """Folders below one that all workers see. Who changes what is in one copies it first."""

    folder: Path

    def __call__(self, name: str, make: Callable[[Path], object]) -> Path:
        """The folder of this name; ``make`` fills it, in one worker. One that fails is tried again
        by whoever asks next."""
        made = self.folder / name
        self.folder.mkdir(exist_ok=True)
        with (self.folder / f"{name}.lock").open("a+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            lock.seek(0)
            if not lock.read():
                shutil.rmtree(made, ignore_errors=True)
                made.mkdir()
                make(made)
                lock.write("made")
        return made
