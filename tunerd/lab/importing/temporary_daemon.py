"""A daemon for the time of an import, where none runs: it ingests and tunes, and publishes nothing.

It is `tunerd run --stages ingest,tune` without HTTP, in a process that ends with its parent.
"""

import argparse
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from tunerd.errors import AlreadyRunningError, MisconfiguredError, TunerdError
from tunerd.store import Store

__all__ = ["TemporaryDaemon", "held"]

TRY_EVERY_S = 1.0
GRACE_S = 30.0
"""How long a daemon that was there may take to come back: it may just be starting anew, and must
not find its store taken."""
STOP_S = 10.0
STAGES = ("ingest", "tune")
ALREADY_RUNNING = 2


def held(store: Store) -> bool:
    """Whether some daemon has the store."""
    try:
        store.guard(datetime.now(UTC)).release()
    except AlreadyRunningError:
        return True
    return False


class TemporaryDaemon:
    """Sees to it that some daemon works on the store: whoever holds it, else one of its own."""

    def __init__(self, settings_file: Path | None, store: Store, log: Path) -> None:
        self._settings_file = settings_file
        self._store = store
        self.log = log
        """What its own daemon says."""
        self._process: subprocess.Popen[bytes] | None = None
        self._tried_at = float("-inf")
        # A log is left by an import that was killed: whoever has the store is its daemon, ending.
        self._grace_s = 0.0 if log.exists() else GRACE_S
        self._seen_at = float("-inf")
        """When another daemon was last seen."""

    @property
    def at_work(self) -> bool:
        """Whether its own daemon runs."""
        return self._process is not None

    def keep(self) -> None:
        """Look after it; call this a few times a second.

        Raises:
            TunerdError: its own daemon ended by itself.
        """
        if self._process is not None:
            code = self._process.poll()
            if code is None:
                return
            self._end()
            if code != ALREADY_RUNNING or not held(self._store):
                raise TunerdError(f"the daemon of this import ended ({code}): {self._last_words()}")
        now = time.monotonic()
        if now - self._tried_at > TRY_EVERY_S:
            self._tried_at = now
            if held(self._store):
                self._seen_at = now
            elif now - self._seen_at > self._grace_s:
                self._start()

    def _start(self) -> None:
        command = [sys.executable, "-m", "tunerd.lab.importing.temporary_daemon"]
        if self._settings_file is not None:
            command += ["--settings", str(self._settings_file)]
        environment = os.environ | {"TUNERD_HTTP__ENABLED": "false", "TUNERD_LOG__FORMAT": "json"}
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment
            )

    def _last_words(self) -> str:
        with self.log.open(errors="replace") as log:
            last = deque(log, 1)
        return f"{last[0].strip() if last else 'it said nothing'} (in {self.log})"

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._end()


def main() -> int:
    """Run the daemon until SIGTERM or the end of standard input, which ends with the parent."""
    from tunerd.service.daemon import run
    from tunerd.settings import load_settings

    parser = argparse.ArgumentParser(prog="tunerd.lab.importing.temporary_daemon")
    parser.add_argument("--settings", type=Path)
    arguments = parser.parse_args()
    try:
        settings = load_settings(arguments.settings, os.environ)
    except MisconfiguredError as error:
        sys.stderr.write("; ".join(map(str, error.problems)) + "\n")
        return 1
    threading.Thread(target=_stop_with_parent, daemon=True).start()
    return run(settings, STAGES, arguments.settings)


def _stop_with_parent() -> None:
    # Not sys.stdin: its lock, held here, would stop the interpreter from ending in order.
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
