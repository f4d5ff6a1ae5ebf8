"""After sending: wait until what was sent is ingested and learned, and its contexts searched."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tunerd.lab.importing.reading import Show
from tunerd.lab.importing.spool import ImportSpool
from tunerd.lab.importing.temporary_daemon import TemporaryDaemon
from tunerd.store import Store

__all__ = ["settle"]

LOOK_EVERY_S = 0.2
MILESTONES = 50
QUIET_S = 120.0
"""After so long without progress somebody should look."""


def settle(
    study: str,
    source: str,
    spool: ImportSpool,
    store: Store,
    stand_in: TemporaryDaemon,
    show: Show,
    warn: Callable[[str], None],
) -> None:
    """Wait. ``warn`` is told once if nothing moves.

    Raises:
        TunerdError: no daemon runs, and one of its own ended by itself.
    """
    watch = _SettleMonitor(study, source, store, list(spool.milestones(MILESTONES)))
    moved_at, warned = time.monotonic(), False
    order: tuple[object, ...] = ()
    for state in watch.until_settled(show):
        stand_in.keep()
        if state != order:
            moved_at, order = time.monotonic(), state
        elif time.monotonic() - moved_at > QUIET_S and not warned:
            warned = True
            where = f"see {stand_in.log}" if stand_in.at_work else "see what the daemon says"
            warn(f"nothing has moved for {QUIET_S:g} s; {where}")
        time.sleep(LOOK_EVERY_S)


@dataclass
class _SettleMonitor:
    study: str
    source: str
    store: Store
    milestones: list[tuple[int, str]]
    """Event ids in the order in which they were sent, with how many there are up to each."""

    def until_settled(self, show: Show) -> Iterator[tuple[object, ...]]:
        """Yields what it saw for as long as there is something to wait for."""
        yield from self._taken_in(show)
        row = self.store.study(self.study)
        if row is None:
            return
        first, last = row.learned_sequence, row.last_sequence
        while row is not None and row.learned_sequence < last:
            show("learning", row.learned_sequence - first, last - first)
            yield ("learning", row.learned_sequence)
            row = self.store.study(self.study)
        show("learning", last - first, last - first)
        yield from self._searched(last, show)

    def _taken_in(self, show: Show) -> Iterator[tuple[object, ...]]:
        """They come in order: when one is there, all before it are."""
        total = self.milestones[-1][0] if self.milestones else 0
        there = 0
        for done, event_id in self.milestones:
            while not self.store.content_hashes(self.source, [event_id]):
                show("taking in", there, total)
                yield ("taking in", there)
            there = done
        show("taking in", total, total)

    def _searched(self, last: int, show: Show) -> Iterator[tuple[object, ...]]:
        most = 0
        while True:
            steps = self.store.steps(self.study, limit=1)
            step = steps[0] if steps else None
            waiting = -1
            if step is not None and step.sequence_to >= last:
                waiting = int(step.detail.get("waiting", 0))
            if waiting == 0:
                show("searching", most, most)
                return
            most = max(most, waiting)
            if most:
                show("searching", most - max(waiting, 0), most)
            yield ("searching", waiting)
