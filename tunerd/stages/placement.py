"""Which instance tunes which study: leases, spread evenly by what tuning costs.

Each tuner process looks at the same rows and plans for itself. A study that nobody holds goes to
the instance with the least load, and all planners agree on which that is. Where that one does not
come, whoever looks next takes it. An instance with more than its share gives studies up, a few at a
time; they are free then, and go the same way. Who is wrong about the others loses nothing: a lease
goes to one owner, whatever two of them planned.
"""

import heapq
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from tunerd.store import InstanceRow, Lease, Store, leased_study, study_lease

__all__ = [
    "LEASE_S",
    "PAUSE_S",
    "ClusterLoads",
    "PlacementPlan",
    "StudyPlacement",
    "plan_placement",
]

LEASE_S = 8.0
"""How long a lease holds without being renewed. After a crash the others wait for this long. It is
renewed every two seconds, so that a busy machine may miss it twice."""
PAUSE_S = 6.0
"""How long a transaction may pause before the server ends it: a process that is stopped in the
middle of one keeps its lease's row locked, however long ago the lease ran out."""
LOOK_EVERY_S = 1.0
IDLE_LOAD = 0.01
"""Share of a core that a study counts for even if nothing happens in it, so that idle studies are
spread evenly by their number."""
IDLE = 0.5
"""Share of a core up to which an instance counts as idle: it may search for others."""
TOLERANCE = 0.2
"""Two instances may differ by this share of the mean load before a study moves."""
MOVES = 2
"""Studies that an instance gives up in one look. Each has to be loaded again elsewhere."""
OVERDUE_S = 2.0
"""What has been free for so long is taken whoever should have it: that one is in a long step, or
was lost too. Two looks of everybody; balance comes later."""
AVAILABLE_S = 4.0
"""An instance whose tuner process has not looked for so long is in the middle of a long step: it is
given nothing, and waiting for it would leave what is free with nobody."""
GIVEN_S = 10.0
"""A study that was given up is left to the others for so long, although the one that should have it
is in a long step: taken back, it would be given up again."""
SETTLED_S = 5.0
"""A study that was taken less than so long ago is not given up."""


@dataclass(frozen=True, slots=True)
class PlacementPlan:
    """What one instance should do now."""

    take: Sequence[str]
    give: Sequence[str]


@dataclass(frozen=True, slots=True)
class ClusterLoads:
    """What tuning costs where; loads are positive, in any unit."""

    of_tuner: Mapping[str, float]
    """Of each instance that looks for studies now: the sum of those that it holds."""
    free: Mapping[str, float]
    """Of the studies that nobody holds."""

    @classmethod
    def of(
        cls,
        tuners: Collection[str],
        loads: Mapping[str, float],
        holders: Mapping[str, str | None],
    ) -> Self:
        """Add up the ``loads`` of all studies by who holds them, None where nobody does. Instances
        that are no ``tuners`` keep what they hold."""
        of_tuner = dict.fromkeys(tuners, 0.0)
        for study, holder in holders.items():
            if holder in of_tuner:
                of_tuner[holder] += loads[study]
        free = {study: loads[study] for study, holder in holders.items() if holder is None}
        return cls(of_tuner, free)


def plan_placement(me: str, cluster: ClusterLoads, movable: Mapping[str, float]) -> PlacementPlan:
    """Plan which studies an instance takes and gives up.

    Args:
        me: one of the cluster's tuners.
        cluster: as ``me`` sees it.
        movable: loads of the studies of ``me`` that may be given up now.
    """
    heap = [(load, tuner) for tuner, load in cluster.of_tuner.items()]
    heapq.heapify(heap)
    take = []
    for study, load in _largest_first(cluster.free):
        held, tuner = heap[0]
        heapq.heapreplace(heap, (held + load, tuner))
        if tuner == me:
            take.append(study)
    return PlacementPlan(take, _to_give(me, {tuner: load for load, tuner in heap}, movable))


def _largest_first(loads: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(loads.items(), key=lambda item: (-item[1], item[0]))


def _to_give(me: str, of_tuner: Mapping[str, float], movable: Mapping[str, float]) -> list[str]:
    """The one with the most load gives to the one with the least, the second to the second, …: so
    many can move at once, and no two give to the same."""
    ranked = sorted(of_tuner, key=lambda tuner: (-of_tuner[tuner], tuner))
    rank = ranked.index(me)
    if rank >= len(ranked) // 2:
        return []
    excess = of_tuner[me] - of_tuner[ranked[-1 - rank]]
    if excess <= TOLERANCE * sum(of_tuner.values()) / len(ranked):
        return []
    give: list[str] = []
    for study, load in _largest_first(movable):
        # A move takes this much off here and adds it there: it must not turn the two around.
        if 2 * load <= excess and len(give) < MOVES:
            give.append(study)
            excess -= 2 * load
    return give


@dataclass
class StudyPlacement:
    """The studies that this instance holds; for its tuner process."""

    store: Store
    instance: str
    """Name of the instance."""
    owner: str
    """What it holds leases by."""
    clock: Callable[[], float]
    """Monotonic seconds."""
    made_by: str = ""
    """Of what build its own searches are."""
    searches_as: str | None = None
    """Of what build those for others are; None while it searches for nobody."""
    idle: int = 0
    """Others with little to do that search for others as this one would, as of the last look."""
    held: set[str] = field(default_factory=set)
    """Studies that it holds, as of the last look."""
    _held_since: dict[str, float] = field(default_factory=dict)
    _given_at: dict[str, float] = field(default_factory=dict)
    _looked_at: float = float("-inf")

    def look(self, studies: Collection[str]) -> Collection[str]:
        """See, once in a while, who holds what; take what is free. Returns the studies to be given
        up: the caller lets go of each, then calls :meth:`give_up`.

        Raises:
            StoreUnavailableError: the database cannot be reached.
        """
        if self.clock() - self._looked_at < LOOK_EVERY_S:
            return ()
        with self.store.transaction() as tx:
            tx.note_tuner(self.instance, self.owner, searches_as=self.searches_as)
            instances, leases = tx.instances(), tx.leases()
        self._looked_at = self.clock()
        tuners = {self.owner, *(row.owner for row in instances if _looks_for_studies(row))}
        known = {name: lease for lease in leases if (name := leased_study(lease.name)) is not None}
        holders = {study: _holder(known.get(study)) for study in studies}
        loads = {study: _load(known.get(study)) for study in studies}
        alike = (
            row for row in instances if row.owner != self.owner and row.searches_as == self.made_by
        )
        self.idle = _count_idle(alike, known.values())
        self._hold({study for study, holder in holders.items() if holder == self.owner})
        settled = {
            study: loads[study]
            for study, at in self._held_since.items()
            if self.clock() - at > SETTLED_S
        }
        plan = plan_placement(self.owner, ClusterLoads.of(tuners, loads, holders), settled)
        overdue = (study for study, lease in known.items() if lease.free_s > OVERDUE_S)
        free = dict.fromkeys([*plan.take, *sorted(holders.keys() & overdue)])
        for study in [study for study in free if not self._has_just_given(study)]:
            with self.store.transaction() as tx:
                epoch = tx.take_lease(study_lease(study), self.owner, LEASE_S, wait=False)
            if epoch is not None:
                self._hold({*self.held, study})
        return plan.give

    def retake(self, study: str) -> int | None:
        """A new epoch of a study that this instance holds; None when another one took it."""
        with self.store.transaction() as tx:
            epoch = tx.retake_lease(study_lease(study), self.owner, LEASE_S)
        if epoch is None:
            self.lost(study)
        return epoch

    def give_up(self, study: str) -> None:
        """Leave a study to others at once."""
        with self.store.transaction() as tx:
            tx.release_leases(self.owner, [study_lease(study)])
        self._given_at[study] = self.clock()
        self.lost(study)

    def lost(self, study: str) -> None:
        """Another instance has it."""
        self._hold(self.held - {study})

    def leave(self) -> None:
        """Leave everything to others at once, and take nothing any more."""
        with self.store.transaction() as tx:
            tx.note_tuner(self.instance, self.owner, there=False)
        with self.store.transaction() as tx:
            tx.release_leases(self.owner, [study_lease(study) for study in self.held])
        self._hold(set())

    def _has_just_given(self, study: str) -> bool:
        return self.clock() - self._given_at.get(study, float("-inf")) < GIVEN_S

    def _hold(self, studies: set[str]) -> None:
        for study in studies - self.held:
            self._held_since[study] = self.clock()
        for study in self.held - studies:
            self._held_since.pop(study, None)
        self.held = studies


def _looks_for_studies(row: InstanceRow) -> bool:
    """Whether an instance takes what is free. One in the middle of a long step does not."""
    silent_s = row.tuner_silent_s
    return silent_s is not None and silent_s < AVAILABLE_S and row.silent_s < LEASE_S


def _count_idle(rows: Iterable[InstanceRow], leases: Iterable[Lease]) -> int:
    """How many of these instances have little to do."""
    loads: defaultdict[str | None, float] = defaultdict(float)
    for lease in leases:
        loads[lease.owner] += lease.load
    return sum(_looks_for_studies(row) and loads[row.owner] < IDLE for row in rows)


def _holder(lease: Lease | None) -> str | None:
    return lease.owner if lease is not None and lease.alive else None


def _load(lease: Lease | None) -> float:
    return IDLE_LOAD + (0.0 if lease is None else lease.load)
