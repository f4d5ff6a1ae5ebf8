"""The thread that has the disk: it keeps what is known of a training, and sees that it is told.

The network has threads of its own. A broker that does not answer holds up neither the spool nor the
training, and what it did not take stays in the spool.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from tunerd.client import JobReporter
from tunerd.spool import EventSpool, SpoolEntry, reported_half, started_half
from tunerd.trainers.destination import EventDestination

__all__ = ["EventTeller"]

log = logging.getLogger("tunerd.trainers")

PROGRESS_FIRST_S, PROGRESS_LAST_S = 5.0, 300.0
"""How often the spool learns how fast the training was so far."""

REPORT_EVERY_S = 1800.0
"""A job that runs for weeks teaches before it ends."""

Progress = Callable[[], dict[str, Any]]


class EventTeller(threading.Thread):
    """Keeps one training's file in the spool, and sends its event."""

    def __init__(
        self,
        begin: Mapping[str, Any],
        spool: EventSpool | None,
        destination: EventDestination,
        source: str,
        progress: Progress,
    ) -> None:
        """``progress`` says what was measured so far; empty before that is worth anything."""
        super().__init__(name="tunerd", daemon=True)
        self._begin, self._spool = dict(begin), spool
        self._destination, self._source, self._progress = destination, source, progress
        self._entry: SpoolEntry | None = None
        self._orders: SimpleQueue[bytes | None] = SimpleQueue()
        self._done = threading.Event()
        self._senders: list[threading.Thread] = []
        self._sent = False

    def tell(self, event: bytes, within_s: float) -> bool:
        """Keep and send the event; whether it had arrived when the time was over.

        What else is being sent has the rest of the time: a short training sends it, too.
        """
        deadline = time.monotonic() + within_s
        self._orders.put(event)
        done = self._done.wait(within_s)
        for thread in self._senders if done else ():
            thread.join(max(0.0, deadline - time.monotonic()))
        return done and self._sent

    def forget(self) -> None:
        """There is nothing to tell; returns at once."""
        self._orders.put(None)

    def close_in_child(self) -> None:
        """In a process that was forked: the file, and the lock on it, are the parent's."""
        if self._entry is not None:
            with suppress(OSError):
                self._entry.close()

    def _start_sender(self, send: Callable[[], None]) -> None:
        thread = threading.Thread(target=send, name="tunerd", daemon=True)
        thread.start()
        self._senders.append(thread)

    def _deliver(self, event: bytes) -> None:
        """Send an event on the way: another that is kept until it has arrived."""
        try:
            entry = self._spool.new() if self._spool is not None else None
            if entry is not None:
                entry.write_event(event)
            self._send_now(event)
            if entry is not None:
                entry.remove()
        except Exception as error:
            log.info("tunerd: half of an event waits or is lost: %s", error)

    def _tell_halves(self) -> None:
        """Where the scheduler tells the end: how it was launched, and how fast it is by now."""
        self._deliver(started_half(self._begin))
        while not self._done.wait(REPORT_EVERY_S):
            if half := self._progress():
                self._deliver(reported_half(self._begin, **half))

    def run(self) -> None:
        """Until the training ends."""
        try:
            self._open()
            self._start_sender(self._send_what_waits)
            if self._begin.get("cluster") is not None:
                self._start_sender(self._tell_halves)
            event = self._wait()
            if event is None:
                if self._entry is not None:
                    self._entry.remove()
                self._done.set()
                return
            if self._entry is not None:
                self._keep(lambda entry: entry.write_event(event))
            network = threading.Thread(target=self._send, args=(event,), name="tunerd", daemon=True)
            try:
                network.start()
            except RuntimeError:  # Python is about to end and starts none
                self._send(event)
        except Exception as error:  # a fault of ours: the training goes on
            log.warning("tunerd: %s: %s", type(error).__name__, error)
            self._done.set()

    def _open(self) -> None:
        if self._spool is None:
            return
        try:
            self._entry = self._spool.new()
            self._entry.write_begin(self._begin)
        except Exception as error:
            self._lose_spool(error)

    def _keep(self, write: Callable[[SpoolEntry], None]) -> None:
        try:
            if self._entry is not None:
                write(self._entry)
        except Exception as error:
            self._lose_spool(error)

    def _lose_spool(self, error: Exception) -> None:
        log.warning("tunerd: the spool: %s; an event that cannot be sent is lost", error)
        if self._entry is not None:
            with suppress(Exception):
                self._entry.remove()
            self._entry = None

    def _wait(self) -> bytes | None:
        every = PROGRESS_FIRST_S
        while True:
            try:
                return self._orders.get(timeout=every)
            except Empty:
                every = min(2 * every, PROGRESS_LAST_S)
            self._keep(self._add_progress)

    def _add_progress(self, entry: SpoolEntry) -> None:
        if progress := self._progress():
            entry.write_progress(progress)

    def _send_what_waits(self) -> None:
        if self._spool is None:
            return
        reporter: JobReporter | None = None

        def send(event: bytes) -> None:
            nonlocal reporter
            if reporter is None:
                reporter = self._destination.reporter(self._source)
            reporter.send(event)

        try:
            self._spool.send(send)
        except Exception as error:  # the end says so too, if that is still so
            log.info(
                "tunerd: events of earlier trainings wait in %s: %s", self._spool.folder, error
            )
        finally:
            if reporter is not None:
                with suppress(Exception):
                    reporter.close()

    def _send_now(self, event: bytes) -> None:
        reporter = self._destination.reporter(self._source)
        try:
            reporter.send(event)
        finally:
            with suppress(Exception):
                reporter.close()

    def _send(self, event: bytes) -> None:
        try:
            self._send_now(event)
            self._sent = True
            if self._entry is not None:
                self._entry.remove()
        except Exception as error:  # whatever a broker or a disk says
            kept = self._spool.folder if self._spool and self._entry else None
            waits = f"waits in {kept}" if kept else "is lost"
            log.warning("tunerd: %s; the event %s", error, waits)
        finally:
            self._done.set()


def append_metrics(file: Path, metrics: Mapping[str, float]) -> None:
    """Tell ``tunerd exec``, which started this training and reports it. Raises OSError."""
    with file.open("a") as lines:
        lines.write(json.dumps(dict(metrics)) + "\n")
