"""Who may do what when there are several instances: leases, by the database's clock.

A lease may pass to another owner while the first still believes to hold it (a paused machine).
That is why a lease has an epoch, which counts up whenever it changes hands, and why every
transaction of the tune stage begins with ``fence``: it takes the lease's row, so that the lease
cannot change hands before the commit, and it fails when the lease has.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

import sqlalchemy as sa

from tunerd.errors import FencedOutError
from tunerd.store.access import StoreReads, StoreWrites
from tunerd.store.tables import leases

__all__ = ["Lease", "LeaseReads", "LeaseWrites", "study_lease"]


def study_lease(study: str) -> str:
    """Name of the lease under which a study is tuned."""
    return f"study/{study}"


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease as it stands."""

    name: str
    owner: str | None
    """None once it was released."""
    expires_at: datetime
    epoch: int


class LeaseReads(StoreReads):
    """Who holds what."""

    def leases(self) -> list[Lease]:
        """All leases by name; ``expires_at`` is by the database's clock."""
        with self._reading() as connection:
            rows = connection.execute(sa.select(leases).order_by(leases.c.name))
            return [Lease(row.name, row.owner, row.expires_at, row.epoch) for row in rows]


class LeaseWrites(LeaseReads, StoreWrites):
    """Taking, keeping and leaving."""

    def take_lease(self, name: str, owner: str, ttl_s: float) -> int | None:
        """Take a lease, or prolong one's own.

        Returns:
            Its epoch, counted up if the lease changed hands, had expired or was released; None
            when another owner holds it.
        """
        now = self._database.now(self._connection)
        self._connection.execute(
            self._database.insert(leases)
            .values(name=name, owner=None, expires_at=now, epoch=0)
            .on_conflict_do_nothing()
        )
        lease = self._lock(name)
        assert lease is not None
        # Waiting for the row may have taken a while.
        now = self._database.now(self._connection)
        alive = lease.owner is not None and lease.expires_at > now
        if alive and lease.owner != owner:
            return None
        epoch = lease.epoch if alive else lease.epoch + 1
        self._set(name, owner, now + timedelta(seconds=ttl_s), epoch)
        return epoch

    def renew_lease(self, name: str, owner: str, epoch: int, ttl_s: float) -> bool:
        """Prolong a lease; False when it was lost. One that merely expired is still ours."""
        lease = self._lock(name)
        if lease is None or (lease.owner, lease.epoch) != (owner, epoch):
            return False
        expires_at = self._database.now(self._connection) + timedelta(seconds=ttl_s)
        self._set(name, owner, expires_at, epoch)
        return True

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

    def _lock(self, name: str) -> Lease | None:
        row = self._connection.execute(
            sa.select(leases).where(leases.c.name == name).with_for_update()
        ).one_or_none()
        return None if row is None else Lease(row.name, row.owner, row.expires_at, row.epoch)

    def _set(self, name: str, owner: str | None, expires_at: datetime, epoch: int) -> None:
        self._connection.execute(
            sa.update(leases)
            .where(leases.c.name == name)
            .values(owner=owner, expires_at=expires_at, epoch=epoch)
        )
