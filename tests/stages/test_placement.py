"""Several tuner processes on one store: who tunes what, and that nobody else writes."""

import random
from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import cast

import pytest
import sqlalchemy as sa

from tests.stages.fakes import Heard, Time
from tests.stages.tuning import NAME, TOPIC, Lines, Tuning, random_jobs
from tunerd import logs, telemetry
from tunerd.settings.model import TuneSettings
from tunerd.stages.placement import (
    GIVEN_S,
    LOOK_EVERY_S,
    MOVES,
    OVERDUE_S,
    ClusterLoads,
    PlacementPlan,
    StudyPlacement,
    plan_placement,
)
from tunerd.stages.tune import TuneStage
from tunerd.store import InstanceRow, Store, study_lease
from tunerd.store.tables import leases


class World:
    """Instances that plan by the same rows, in rounds."""

    def __init__(self, loads: Mapping[str, float], tuners: Collection[str]) -> None:
        self.loads = loads
        self.tuners = set(tuners)
        self.holders: dict[str, str | None] = dict.fromkeys(loads)
        self.moved = 0

    def plans(self) -> dict[str, PlacementPlan]:
        cluster = ClusterLoads.of(self.tuners, self.loads, self.holders)
        return {tuner: plan_placement(tuner, cluster, self.held_by(tuner)) for tuner in self.tuners}

    def held_by(self, tuner: str) -> dict[str, float]:
        return {
            study: self.loads[study] for study, holder in self.holders.items() if holder == tuner
        }

    def round(self) -> bool:
        """All plan at once, and do it. Whether anything moved."""
        plans = self.plans()
        for tuner, plan in plans.items():
            for study in plan.give:
                assert self.holders[study] == tuner
                self.holders[study] = None
                self.moved += 1
            for study in plan.take:
                assert self.holders[study] is None
                self.holders[study] = tuner
        return any(plan.take or plan.give for plan in plans.values())

    def run(self) -> int:
        rounds = 0
        while self.round():
            rounds += 1
            assert rounds < 1000
        return rounds

    def load(self, tuner: str) -> float:
        return sum(self.held_by(tuner).values())

    @property
    def spread(self) -> float:
        loads = [self.load(tuner) for tuner in self.tuners]
        return (max(loads) - min(loads)) / (sum(loads) / len(loads))


def equal(count: int) -> dict[str, float]:
    return {f"s{i:03}": 0.01 for i in range(count)}


def test_what_is_free_goes_to_each_in_equal_shares_and_to_nobody_twice() -> None:
    world = World(equal(60), "abc")
    taken = [study for plan in world.plans().values() for study in plan.take]
    assert sorted(taken) == sorted(world.loads)
    world.run()
    assert [round(world.load(tuner), 6) for tuner in "abc"] == [0.2] * 3
    assert world.moved == 0


def test_one_that_joins_gets_its_share_a_few_studies_at_a_time() -> None:
    world = World(equal(60), "ab")
    world.run()
    world.tuners.add("c")
    assert all(len(plan.give) <= MOVES for plan in world.plans().values())
    rounds = world.run()
    assert world.spread <= 0.25
    assert world.moved <= 20  # no study moved that need not
    assert rounds >= 20 / (2 * MOVES)


def test_what_one_that_left_had_is_shared_by_the_others_at_once() -> None:
    world = World(equal(60), "abc")
    world.run()
    kept = {study: holder for study, holder in world.holders.items() if holder != "c"}
    world.tuners.remove("c")
    world.holders.update(dict.fromkeys(world.holders.keys() - kept.keys()))
    assert world.round()
    assert not any(holder is None for holder in world.holders.values())
    assert {study: world.holders[study] for study in kept} == kept
    assert world.spread <= 0.1


def test_a_study_that_costs_more_counts_more() -> None:
    world = World(equal(20) | {"heavy": 0.2}, "ab")
    world.run()
    alone = world.holders["heavy"]
    assert sum(holder == alone for holder in world.holders.values()) == 1


def test_small_differences_move_nothing() -> None:
    world = World(equal(7), "ab")
    world.run()
    world.loads = {study: 0.01 * random.Random(study).uniform(0.95, 1.05) for study in world.loads}
    world.run()
    assert world.moved == 0
    one = World({"only": 1.0}, "ab")
    one.run()
    assert one.moved == 0


@pytest.mark.parametrize("seed", range(5))
def test_any_loads_and_any_number_of_instances_come_to_rest_and_to_balance(seed: int) -> None:
    dice = random.Random(seed)
    loads = {f"s{i}": 0.01 + dice.expovariate(20) for i in range(300)}
    world = World(loads, [f"i{i}" for i in range(dice.randint(2, 12))])
    world.run()
    for name in ("new-1", "new-2"):
        world.tuners.add(name)
        world.run()
    # No difference is left that moving a study of the fullest could halve.
    fullest = max(world.tuners, key=world.load)
    least = min(world.load(tuner) for tuner in world.tuners)
    smallest = min(loads[study] for study, holder in world.holders.items() if holder == fullest)
    assert world.spread <= 0.2 or 2 * smallest > world.load(fullest) - least


# -- with real stages -----------------------------------------------------------------------


def placed(tuning: Tuning, name: str) -> TuneStage:
    """A tuner process of one of several instances."""
    row = InstanceRow(
        name=name,
        owner=f"{name}/1",
        installation="{}",
        host="host",
        pid=1,
        version="1",
        stages=["tune"],
        started_at=tuning.time.now(),
        heartbeat_at=tuning.time.now(),
    )
    with tuning.store.transaction() as tx:
        tx.join_instance(row)
    made = stage(tuning.store, tuning.time, tuning.heard, tuning.lines, name)
    tuning.made.append(made)
    return made


def stage(store: Store, time: Time, heard: Heard, lines: Lines, name: str) -> TuneStage:
    placement = StudyPlacement(store, name, f"{name}/1", time.clock)
    log = cast(logs.Log, lines)
    settings = TuneSettings()
    return TuneStage(store, settings, TOPIC, heard, log, time.now, time.clock, placement=placement)


def crash(tuning: Tuning, tune: TuneStage) -> None:
    """Nothing of it goes on, and its leases have run out."""
    assert tune.placement is not None
    with tuning.store.transaction() as tx:
        tx.note_tuner(tune.placement.instance, tune.placement.owner, there=False)
        tx.release_leases(tune.placement.owner)


def test_one_of_two_tunes_a_study_and_the_other_goes_on_from_what_it_saved(tuning: Tuning) -> None:
    tuning.publish()
    first = placed(tuning, "a")
    tuning.add(random_jobs(12))
    tuning.run(first)
    second = placed(tuning, "b")
    assert tuning.run(second) == 0
    assert tuning.store.study(NAME).learned_sequence == 12  # type: ignore[union-attr]
    said = {key: row.value for key, row in tuning.rows().items()}

    first.close()
    tuning.add(random_jobs(3, first=13))
    tuning.run(second)
    assert tuning.store.study(NAME).learned_sequence == 15  # type: ignore[union-attr]
    assert [line["anew"] for line in tuning.lines.of("study loaded")] == [True, False]
    assert said
    owners = {lease.owner for lease in tuning.store.leases()}
    assert owners == {"b/1"}


def test_one_that_was_paused_writes_nothing_when_it_wakes(tuning: Tuning) -> None:
    tuning.publish()
    first = placed(tuning, "a")
    tuning.add(random_jobs(12))
    tuning.run(first)
    second = placed(tuning, "b")
    crash(tuning, first)  # as far as anybody else can see
    tuning.run(second)
    tuning.add(random_jobs(6, first=13))

    before = tuning.store.steps(NAME, 100), tuning.store.study_state(NAME), tuning.rows()
    first._commands_at = tuning.time.clock()
    assert first.placement is not None
    first.placement._looked_at = tuning.time.clock()  # it wakes in the middle of a step
    assert first.step()
    assert tuning.lines.of("study taken over")
    after = tuning.store.steps(NAME, 100), tuning.store.study_state(NAME), tuning.rows()
    assert after == before
    assert tuning.heard.of(telemetry.StudyReleased)
    tuning.run(second)
    assert tuning.store.study(NAME).learned_sequence == 18  # type: ignore[union-attr]


def test_a_study_whose_next_holder_does_not_come_goes_to_who_looks(store: Store) -> None:
    """The one with the least load is in a long step, and looked a moment before."""
    tuning = Tuning(store, Time(), Heard())
    busy, idle = placed(tuning, "a").placement, placed(tuning, "b").placement
    assert busy is not None
    assert idle is not None
    busy.look(["mine"])
    idle.look([])
    with store.transaction() as tx:
        tx.take_lease(study_lease("lost"), "c/1", 60.0)
        assert tx.renew_lease(study_lease("mine"), busy.owner, 1, 60.0, spent_s=30.0)
    for free_s, held in ((0.5, {"mine"}), (OVERDUE_S + 0.5, {"mine", "lost"})):
        with store._database.writing() as connection:
            since = store._database.now(connection) - timedelta(seconds=free_s)
            mine = leases.c.name == study_lease("lost")
            connection.execute(sa.update(leases).where(mine).values(expires_at=since))
        tuning.time.pass_(seconds=LOOK_EVERY_S)
        busy.look(["mine", "lost"])
        assert busy.held == held


def test_what_it_has_just_given_up_is_left_to_the_others_for_a_while(store: Store) -> None:
    """The one that should have it is in a long step; taken back, it would be given up again."""
    tuning = Tuning(store, Time(), Heard())
    giver, busy = placed(tuning, "a").placement, placed(tuning, "b").placement
    assert giver is not None
    assert busy is not None
    giver.look(["study"])
    busy.look([])
    giver.give_up("study")
    with store._database.writing() as connection:
        since = store._database.now(connection) - timedelta(seconds=OVERDUE_S + 0.5)
        connection.execute(sa.update(leases).values(expires_at=since))
    for seconds, held in ((LOOK_EVERY_S, set()), (GIVEN_S, {"study"})):
        tuning.time.pass_(seconds=seconds)
        giver.look(["study"])
        assert giver.held == held


def test_a_command_is_carried_out_where_the_study_is(tuning: Tuning) -> None:
    tuning.publish()
    first, second = placed(tuning, "a"), placed(tuning, "b")
    tuning.run(first)
    number = tuning.command("end")
    tuning.run(second)
    assert tuning.result(number) is None
    tuning.run(first)
    assert tuning.result(number) is not None


def test_a_former_process_of_the_same_instance_is_fenced_too(tuning: Tuning) -> None:
    tuning.publish()
    died = placed(tuning, "a")
    tuning.add(random_jobs(6))
    tuning.run(died)
    again = stage(tuning.store, tuning.time, tuning.heard, tuning.lines, "a")
    tuning.made.append(again)
    tuning.run(again)
    tuning.add(random_jobs(3, first=7))
    steps = tuning.store.steps(NAME, 100)
    died._books[NAME].looked_at = tuning.time.clock()
    assert died.step()
    assert tuning.store.steps(NAME, 100) == steps
