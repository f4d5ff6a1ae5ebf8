"""Who may do what when there are several instances: leases, by the database's clock.

A lease may pass to another owner while the first still believes to hold it (a paused machine).
That is why a lease has an epoch, which counts up whenever it changes hands, and why every
transaction of the tune stage begins with ``fence``: it takes the lease's row, so that the lease
cannot change hands before the commit, and it fails when the lease has.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from tunerd.errors import FencedOutError
from tunerd.store.access import StoreReads, StoreWrites, chunks
from tunerd.store.tables import leases

__all__ = ["PUBLISH_LEASE", "Lease", "LeaseReads", "LeaseWrites", "leased_study", "study_lease"]

PUBLISH_LEASE = "publish"
"""Name of the lease under which the outbox is sent."""
_STUDY = "study/"
_CHUNK = 1000
LOAD_S = 300.0
"""Time constant over which the load of a lease is averaged."""


def study_lease(study: str) -> str:
    """Name of the lease under which a study is tuned."""
    return _STUDY + study


def leased_study(lease: str) -> str | None:
    """The study that a lease is of; None for another kind."""
    return lease.removeprefix(_STUDY) if lease.startswith(_STUDY) else None


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease as it stands."""

    name: str
    owner: str | None
    """None once it was released."""
    expires_at: datetime
    epoch: int
    load: float = 0.0
    """Of the study: the share of one core that tuning it took lately."""
    alive: bool = False
    """Whether somebody holds it and it has not expired, by the database's clock."""
    free_s: float = 0.0
    """Seconds since it expired or was released; 0 while somebody holds it."""


class LeaseReads(StoreReads):
    """Who holds what."""

    def leases(self) -> list[Lease]:
        """All leases by name; ``expires_at`` is by the database's clock."""
        with self._reading() as connection:
            rows = connection.execute(sa.select(leases).order_by(leases.c.name)).all()
            now = self._database.now(connection)
        return [_lease(row, now) for row in rows]


class LeaseWrites(LeaseReads, StoreWrites):
    """Taking, keeping and leaving."""

    def take_lease(self, name: str, owner: str, ttl_s: float, *, wait: bool = True) -> int | None:
        """Take a lease, or prolong one's own.

        Args:
            wait: for a transaction that has the lease's row; without it, such a lease is not taken.

        Returns:
            Its epoch, counted up if the lease changed hands, had expired or was released; None
            when another owner holds it.
        """
        known = sa.select(leases.c.name).where(leases.c.name == name)
        if self._connection.execute(known).one_or_none() is None:
            # Not otherwise: it would wait for a transaction that has the row.
            self._connection.execute(
                self._database.insert(leases)
                .values(name=name, owner=None, expires_at=self._now(), epoch=0)
                .on_conflict_do_nothing()
            )
        lease = self._lock(name, wait=wait)
        if lease is None:
            return None
        if lease.alive and lease.owner != owner:
            return None
        epoch = lease.epoch if lease.alive else lease.epoch + 1
        # Waiting for the row may have taken a while.
        self._set(name, owner, self._now() + timedelta(seconds=ttl_s), epoch)
        return epoch

    def retake_lease(self, name: str, owner: str, ttl_s: float) -> int | None:
        """Take a lease, and count its epoch up where it is one's own already: what an earlier
        process of this owner may still write is fenced. None when another owner holds it."""
        lease = self._lock(name)
        if lease is not None and lease.owner == owner:
            self._set(name, None, self._database.now(self._connection), lease.epoch)
        return self.take_lease(name, owner, ttl_s)

    def renew_lease(
        self, name: str, owner: str, epoch: int, ttl_s: float, spent_s: float = 0.0
    ) -> bool:
        """Prolong a lease; False when it was lost. One that merely expired is still ours.

        Args:
            spent_s: seconds that were just spent on what it is for, to be counted to its load.
        """
        lease = self._lock(name)
        if lease is None or (lease.owner, lease.epoch) != (owner, epoch):
            return False
        now = self._database.now(self._connection)
        self._set(name, owner, now + timedelta(seconds=ttl_s), epoch)
        if spent_s:
            load = lease.load + spent_s / LOAD_S
            self._connection.execute(
                sa.update(leases).where(leases.c.name == name).values(load=load, load_at=now)
            )
        return True

    def renew_study_leases(self, owner: str, ttl_s: float) -> None:
        """Prolong all study leases of an owner. A lease whose row is locked is left out: a
        transaction of the tune stage has it, which prolongs it itself."""
        mine = (
            sa.select(leases.c.name)
            .where(leases.c.owner == owner, leases.c.name.startswith(_STUDY, autoescape=True))
            .order_by(leases.c.name)
            .with_for_update(skip_locked=True)
        )
        names = self._connection.execute(mine).scalars().all()
        expires_at = self._database.now(self._connection) + timedelta(seconds=ttl_s)
        for chunk in chunks(names, _CHUNK):
            self._connection.execute(
                sa.update(leases).where(leases.c.name.in_(chunk)).values(expires_at=expires_at)
            )

    def release_leases(self, owner: str, names: Sequence[str] | None = None) -> None:
        """Leave leases of an owner to others at once; all of them by default."""
        now = self._database.now(self._connection)
        mine = leases.c.owner == owner
        if names is not None:
            mine &= leases.c.name.in_(names)
        self._connection.execute(
            sa.select(leases.c.name).where(mine).order_by(leases.c.name).with_for_update()
        ).all()
        self._connection.execute(sa.update(leases).where(mine).values(owner=None, expires_at=now))

    def release_lease(self, name: str, owner: str, epoch: int) -> None:
        """Leave a lease to others at once; nothing happens when it was lost before."""
        lease = self._lock(name)
        if lease is not None and (lease.owner, lease.epoch) == (owner, epoch):
            self._set(name, None, self._database.now(self._connection), epoch)

    def fence(self, study: str, epoch: int) -> None:
        """Make sure, until the end of this transaction, that the study's lease is of this epoch.

        A study whose lease nobody ever took has epoch 0.

        Raises:
            FencedOutError: it is not.
        """
        lease = self._lock(study_lease(study))
        actual = 0 if lease is None else lease.epoch
        if actual != epoch:
            raise FencedOutError(
                f"study {study!r} is in epoch {actual}, this is a write of epoch {epoch}"
            )

    def fence_lease(self, name: str, owner: str, epoch: int) -> None:
        """Make sure, until the end of this transaction, that a lease is this owner's.

        Raises:
            FencedOutError: it is not, or not in this epoch.
        """
        lease = self._lock(name)
        if lease is None or (lease.owner, lease.epoch) != (owner, epoch):
            raise FencedOutError(f"the lease {name!r} of epoch {epoch} was lost")

    def owns_lease(self, name: str, owner: str) -> bool:
        """Whether a lease is this owner's; it then stays so until the end of this transaction."""
        lease = self._lock(name)
        return lease is not None and lease.owner == owner

    def _now(self) -> datetime:
        return self._database.now(self._connection)

    def _lock(self, name: str, *, wait: bool = True) -> Lease | None:
        row = self._connection.execute(
            sa.select(leases).where(leases.c.name == name).with_for_update(skip_locked=not wait)
        ).one_or_none()
        return None if row is None else _lease(row, self._database.now(self._connection))

    def _set(self, name: str, owner: str | None, expires_at: datetime, epoch: int) -> None:
        self._connection.execute(
            sa.update(leases)
            .where(leases.c.name == name)
            .values(owner=owner, expires_at=expires_at, epoch=epoch)
        )


def _lease(row: sa.Row[Any], now: datetime) -> Lease:
    alive = row.owner is not None and row.expires_at > now
    idle_s = 0.0 if row.load_at is None else max(0.0, (now - row.load_at).total_seconds())
    load = row.load * math.exp(-idle_s / LOAD_S)
    free_s = 0.0 if alive else max(0.0, (now - row.expires_at).total_seconds())
    return Lease(row.name, row.owner, row.expires_at, row.epoch, load, alive, free_s)
