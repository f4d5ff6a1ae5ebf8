"""The store as the rest of tunerd sees it.

Reads are methods of :class:`Store`. Writes are methods of a :class:`Transaction`, which can read
as well; a few that always stand alone are also offered by the store itself. Rows are locked in
this order, so that no two transactions wait for each other: positions, leases, attempts, studies by
name, recommendations, search tasks.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Self

from tunerd.store.attempts import AttemptReads, AttemptWrites
from tunerd.store.commands import CommandReads, CommandWrites
from tunerd.store.engine import Database
from tunerd.store.instance_lock import InstanceLock, is_held, share_store, store_guard
from tunerd.store.instances import InstanceReads, InstanceWrites
from tunerd.store.leases import LeaseReads
from tunerd.store.models import ModelReads, ModelWrites
from tunerd.store.outbox import OutboxReads, OutboxWrites
from tunerd.store.overview import OverviewReads
from tunerd.store.positions import PositionReads, PositionWrites
from tunerd.store.predictions import PredictionReads, PredictionWrites
from tunerd.store.provenance import ProvenanceReads, ProvenanceWrites
from tunerd.store.quarantine import QuarantineReads, QuarantineWrites
from tunerd.store.recommendations import RecommendationReads, RecommendationWrites
from tunerd.store.requests import RequestReads, RequestWrites
from tunerd.store.retention import RetentionReads, RetentionWrites
from tunerd.store.schema import check_schema, upgrade_schema
from tunerd.store.search_tasks import SearchTaskWrites
from tunerd.store.signals import SignalReads, SignalWrites
from tunerd.store.studies import GenerationOutcome, StudyReads, StudyWrites
from tunerd.store.transfer import Show, export_store, load_store
from tunerd.store.tuner_state import TunerStateReads, TunerStateWrites

__all__ = ["Store", "Transaction", "open_store", "open_store_unchecked"]


class Transaction(
    OverviewReads,
    QuarantineWrites,
    OutboxWrites,
    PositionWrites,
    StudyWrites,
    TunerStateWrites,
    ModelWrites,
    PredictionWrites,
    RecommendationWrites,
    InstanceWrites,
    CommandWrites,
    ProvenanceWrites,
    RequestWrites,
    AttemptWrites,
    SignalWrites,
    RetentionWrites,
    SearchTaskWrites,
):
    """All or nothing. Of no use after its ``with`` block."""


class Store(
    OverviewReads,
    QuarantineReads,
    OutboxReads,
    PositionReads,
    StudyReads,
    TunerStateReads,
    ModelReads,
    PredictionReads,
    RecommendationReads,
    InstanceReads,
    LeaseReads,
    CommandReads,
    ProvenanceReads,
    RequestReads,
    AttemptReads,
    SignalReads,
    RetentionReads,
):
    """History, what was learned from it, and what is to be sent. Thread-safe."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """A transaction, committed at the end of the block; an exception rolls it back.

        Raises:
            StoreUnavailableError: wait and try the whole block again. If the connection broke
                during the commit, it may have taken place; the compare-and-set of positions, the
                ids of events and the epochs of leases make a repeat harmless.
        """
        with self._database.writing() as connection:
            yield Transaction(self._database, connection)

    def upgrade_schema(self) -> None:
        """See :func:`tunerd.store.schema.upgrade_schema`."""
        upgrade_schema(self._database)

    def guard(self, now: datetime) -> InstanceLock:
        """Claim the store for this daemon.

        Raises:
            AlreadyRunningError: names the daemon that has it.
        """
        return store_guard(self._database, now)

    @property
    def is_shareable(self) -> bool:
        """Whether several daemons can work on it at once."""
        return not self._database.is_sqlite

    def limit_pauses(self, seconds: float) -> None:
        """From now on a transaction of this process in which nothing happens for so long is ended
        by the server: where several instances share it, others wait for the locks of one that is
        paused."""
        self._database.longest_pause_s = seconds

    def share(self, instance: str, now: datetime) -> InstanceLock:
        """Claim the store for one of several daemons. Who wants it to itself (:meth:`guard`) has to
        wait until all have gone.

        Args:
            instance: name of this daemon, which only one at a time may have.

        Raises:
            AlreadyRunningError: somebody has the store alone, or this name.
        """
        return share_store(self._database, instance, now)

    def held(self) -> bool:
        """Whether some daemon has the store; claims nothing."""
        return is_held(self._database)

    def mark_sent(self, ids: Sequence[int], now: datetime) -> None:
        """See :meth:`Transaction.mark_sent`."""
        with self.transaction() as tx:
            tx.mark_sent(ids, now)

    def prune_outbox(self, before: datetime, limit: int = 1000) -> int:
        """See :meth:`Transaction.prune_outbox`."""
        with self.transaction() as tx:
            return tx.prune_outbox(before, limit)

    def publish_generation(
        self,
        study: str,
        content_hash: str,
        text: str,
        who: str,
        now: datetime,
        *,
        force: bool = False,
    ) -> GenerationOutcome:
        """See :meth:`Transaction.publish_generation`."""
        with self.transaction() as tx:
            return tx.publish_generation(study, content_hash, text, who, now, force=force)

    def take_lease(self, name: str, owner: str, ttl_s: float) -> int | None:
        """See :meth:`Transaction.take_lease`."""
        with self.transaction() as tx:
            return tx.take_lease(name, owner, ttl_s)

    def renew_lease(self, name: str, owner: str, epoch: int, ttl_s: float) -> bool:
        """See :meth:`Transaction.renew_lease`."""
        with self.transaction() as tx:
            return tx.renew_lease(name, owner, epoch, ttl_s)

    def release_lease(self, name: str, owner: str, epoch: int) -> None:
        """See :meth:`Transaction.release_lease`."""
        with self.transaction() as tx:
            tx.release_lease(name, owner, epoch)

    def export(
        self, target: Path, studies: Sequence[str] | None, now: datetime, show: Show
    ) -> dict[str, int]:
        """See :func:`tunerd.store.transfer.export_store`."""
        return export_store(self._database, target, studies, now, show)

    def load(self, source: Path, show: Show) -> tuple[list[str], dict[str, int]]:
        """See :func:`tunerd.store.transfer.load_store`."""
        return load_store(self._database, source, show)

    def close(self) -> None:
        """Close all connections."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def open_store(url: str, password: str | None = None, *, upgrade: bool = True) -> Store:
    """Open a store.

    Args:
        url: ``sqlite:///FILE`` or ``postgresql://USER@HOST:PORT/DATABASE``.
        password: for PostgreSQL.
        upgrade: make the file and bring the schema up to date. Without it (a command that only
            looks), a store that is missing or of another version is an error.

    Raises:
        MisconfiguredError: the URL is wrong, or the schema is of a newer tunerd.
        StoreUnavailableError: the database cannot be reached.
    """
    return _opened(
        Database(url, password, create=upgrade), upgrade_schema if upgrade else check_schema
    )


def open_store_unchecked(url: str, password: str | None = None) -> Store:
    """Open a store whatever its schema is, and make the file where there is none.

    For a daemon, which claims the store before it upgrades it (:meth:`Store.upgrade_schema`), and
    for its tuner process: one that is started again goes on where a newer daemon has upgraded the
    store meanwhile.

    Raises:
        MisconfiguredError: the URL is wrong.
        StoreUnavailableError: the database cannot be reached.
    """
    return _opened(Database(url, password), lambda _: None)


def _opened(database: Database, prepare: Callable[[Database], None]) -> Store:
    try:
        prepare(database)
        database.watch()
    except BaseException:
        database.close()
        raise
    return Store(database)
