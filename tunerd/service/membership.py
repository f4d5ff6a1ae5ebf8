"""This daemon as one of several instances that share a store: its row, its heartbeat, its leases.

The heartbeat comes from the parent: a tuner process in a long step could not send any. The parent
renews the leases of studies only while its tuner process is well, so that a hanging one does not
keep studies from others. The lease to publish is renewed by the stage that publishes.
"""

import json
import os
import socket
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from tunerd import __version__
from tunerd.connections import instance_name
from tunerd.errors import (
    AlreadyRunningError,
    MisconfiguredError,
    StoreUnavailableError,
    ValidationProblem,
)
from tunerd.settings import Settings
from tunerd.stages.ingest import IngestStage
from tunerd.stages.placement import LEASE_S, PAUSE_S
from tunerd.store import InstanceRow, Store, leased_study
from tunerd.store.instances import InstanceReads, Neighbour

__all__ = ["BEAT_S", "Membership", "refuse_strangers"]

BEAT_S = 2.0


@dataclass
class Membership:
    """Made by :meth:`join`. Methods that talk to the store raise StoreUnavailableError."""

    store: Store
    row: InstanceRow
    alone: bool
    """Whether nobody else was there when it joined."""
    tuner_is_well: Callable[[], bool] = lambda: False
    ingest: IngestStage | None = None
    studies: frozenset[str] = frozenset()
    """Studies that this instance holds, as of the last heartbeat."""
    others: Sequence[InstanceRow] = field(default_factory=list)
    """Instances beside it that are not silent, as of the last heartbeat."""

    @classmethod
    def join(cls, settings: Settings, stages: Sequence[str], store: Store) -> "Membership":
        """Enter this daemon among the instances of the store.

        Raises:
            MisconfiguredError: as :func:`refuse_strangers`.
        """
        store.limit_pauses(PAUSE_S)
        name, now = instance_name(settings), datetime.now(UTC)
        row = InstanceRow(
            name=name,
            owner=f"{name}/{uuid.uuid4().hex}",
            installation=_installation(settings),
            host=socket.gethostname(),
            pid=os.getpid(),
            version=__version__,
            stages=list(stages),
            started_at=now,
            heartbeat_at=now,
        )
        with store.transaction() as tx:
            tx.join_one_by_one()
            others = [
                other for other in tx.instances() if other.name != name and other.silent_s < LEASE_S
            ]
            refuse_strangers(settings, tx)
            tx.join_instance(row)
        return cls(store, row, not others, others=others)

    @property
    def name(self) -> str:
        """Of this instance."""
        return self.row.name

    @property
    def owner(self) -> str:
        """What it holds leases by."""
        return self.row.owner

    def beat(self) -> None:
        """Say that it is there, and renew what it holds; every :data:`BEAT_S` seconds.

        Raises:
            AlreadyRunningError: another process has taken this one's place.
        """
        ingest = self.ingest
        partitions = [] if ingest is None else ingest.partitions()
        lag = None if ingest is None else ingest.lag()
        with self.store.transaction() as tx:
            if not tx.beat(self.name, self.owner, partitions, lag):
                if self.name in {row.name for row in tx.instances()}:
                    raise AlreadyRunningError(
                        f"another process runs as instance {self.name}, since this one was silent"
                    )
                tx.join_instance(self.row)  # it was silent for a day, or the store went back
        if self.tuner_is_well():
            with self.store.transaction() as tx:
                tx.renew_study_leases(self.owner, LEASE_S)
        self.others = [
            row
            for row in self.store.instances()
            if row.name != self.name and row.silent_s < LEASE_S
        ]
        self.studies = frozenset(
            study
            for lease in self.store.leases()
            if lease.alive
            and lease.owner == self.owner
            and (study := leased_study(lease.name)) is not None
        )

    def leave(self) -> None:
        """Leave its leases to others at once. Waits for nobody: they run out otherwise."""
        try:
            with self.store.transaction() as tx:
                tx.leave_instance(self.name, self.owner)
        except StoreUnavailableError:
            pass


def refuse_strangers(settings: Settings, store: InstanceReads) -> None:
    """Look who works on this store, whatever its schema is.

    Raises:
        MisconfiguredError: an instance of another installation does.
    """
    ours = _installation(settings)
    for other in store.neighbours(instance_name(settings), LEASE_S):
        if other.installation != ours:
            raise MisconfiguredError([_stranger(other, ours)])


def _installation(settings: Settings) -> str:
    """What instances must agree on: with other topics each would send what others do not read."""
    topics = settings.topics.model_dump(exclude={"create"})
    return json.dumps({"name": settings.name, "topics": topics}, sort_keys=True)


def _stranger(other: Neighbour, installation: str) -> ValidationProblem:
    theirs, ours = json.loads(other.installation), json.loads(installation)
    if theirs.get("name") != ours["name"]:
        what = f"its name is {theirs.get('name')!r} and not {ours['name']!r}"
    else:
        differing = {
            key
            for key, topic in ours["topics"].items()
            if theirs.get("topics", {}).get(key) != topic
        }
        what = f"it has other topics ({', '.join(sorted(differing))})"
    return ValidationProblem(
        "store.url",
        f"process {other.pid} on {other.host} works on this store, and {what}: instances that "
        "share a store have the same name and topics",
    )
