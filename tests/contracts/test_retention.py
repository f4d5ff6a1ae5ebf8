"""Retention, over each kind of store: history shrinks, and a tuner advises as if it had not.

The sample that models are fitted on is made small here. A tuner with retention is held to one of
the same jobs without it.
"""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa
from msgspec import structs

from tests.core.tuning import job, random_jobs, study, true_speed
from tests.stages.fakes import Heard, Time
from tests.stages.tuning import NAME, Tuning, another
from tunerd import telemetry
from tunerd.core.features import replay
from tunerd.core.observation import Observation, Status, Value, corrected
from tunerd.core.tuner import Tuner
from tunerd.errors import FencedOutError
from tunerd.queries.job_views import PRUNED, job_detail
from tunerd.stages.replay import derive
from tunerd.stages.retention import (
    BATCH_EVERY_S,
    PASS_EVERY_S,
    HistoryRetention,
    RetentionLimits,
    RetentionPass,
)
from tunerd.stages.tune import TuneStage
from tunerd.store import ProvenanceRow, Store

LATEST, SAMPLED = 40, 30
LIMITS = RetentionLimits(max_age=None, max_jobs=60)
CONFIGS: list[dict[str, Value]] = [
    {"x": 1, "y": "a", "z": False},
    {"x": 4, "y": "b", "z": True},
    {"x": 6, "y": "c", "z": True},
]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "LATEST", LATEST)
    monkeypatch.setattr(replay, "SAMPLED", SAMPLED)


def jobs(count: int, first: int = 1) -> list[Observation]:
    """Three configurations in two contexts, again and again; each twentieth job fails."""
    rng = np.random.default_rng(first)
    made = []
    for n in range(first, first + count):
        context, config = {"n": (8, 16)[n % 2]}, CONFIGS[n % 3]
        speed = true_speed(context, config) * float(np.exp(rng.normal(0, 0.02)))
        failed = n % 20 == 0
        one = job(
            n,
            context,
            config,
            speed=None if failed else speed,
            status=Status.FAILED if failed else Status.SUCCEEDED,
        )
        made.append(structs.replace(one, user=f"u{n % 4}"))
    return made


def go_on(tuning: Tuning, stage: TuneStage, count: int, first: int, step: int = 40) -> None:
    for at in range(first, first + count, step):
        tuning.add(jobs(min(step, first + count - at), at))
        tuning.run(stage, seconds=PASS_EVERY_S)


def start(tuning: Tuning, limits: RetentionLimits = LIMITS) -> TuneStage:
    """A tuner process with retention."""
    stage = tuning.start()
    time = tuning.time
    stage.retention = HistoryRetention(tuning.store, limits, time.now, time.clock)
    return stage


def tuner_of(stage: TuneStage) -> Tuner:
    return stage._books[NAME].tuner


def whole(store: Store) -> list[int]:
    return [one.sequence for one in store.observations(NAME)]


def prune(tuning: Tuning, limits: RetentionLimits = LIMITS) -> int:
    """All that can be pruned now, by hand."""
    going = RetentionPass.begin(tuning.store, study(), limits, tuning.time.now())
    pruned = 0
    while going.at:
        pruned += going.step(tuning.time.now()).pruned
    return pruned


def ever_sampled(count: int) -> set[int]:
    """What models are fitted on, at the end or at a checkpoint shortly before it."""
    ends = range(count - 80, count + 1)
    return {n for end in ends for n in replay.sequences_at(end).tolist()}


def said(store: Store) -> list[ProvenanceRow]:
    found = [store.derivation(one) for _, one, _ in store.derivable(NAME, limit=1000)]
    return sorted((one for one in found if one is not None), key=lambda one: one.said_at)


@pytest.fixture
def tuning(store: Store) -> Iterator[Tuning]:
    made = Tuning(store, Time(), Heard())
    made.publish()
    yield made
    made.end()


@pytest.fixture
def beside(tmp_path: Path) -> Iterator[Tuning]:
    """The same study without retention."""
    with another(tmp_path) as made:
        made.publish()
        yield made


def test_a_tuner_advises_as_without_retention(tuning: Tuning, beside: Tuning) -> None:
    """While it runs, and when it starts again."""
    stages = [start(tuning), beside.start()]
    for made, stage in zip((tuning, beside), stages, strict=True):
        go_on(made, stage, 160, 1)
    assert len(whole(tuning.store)) < 130
    assert len(whole(beside.store)) == 160
    stages = [start(tuning), beside.start()]
    for made, stage in zip((tuning, beside), stages, strict=True):
        go_on(made, stage, 80, 161)
    samples = [tuner_of(stage).training.replay.sample() for stage in stages]
    assert np.array_equal(samples[0].sequences, samples[1].sequences)
    assert np.array_equal(samples[0].rows.X, samples[1].rows.X)
    assert tuner_of(stages[0]).model is not None
    assert {key: row.value for key, row in tuning.rows().items()} == {
        key: row.value for key, row in beside.rows().items()
    }
    pruned = tuning.store.pruned_history(NAME)
    assert pruned is not None
    assert pruned.jobs == 240 - len(whole(tuning.store)) > 60
    reports = tuning.heard.of(telemetry.HistoryPruned)
    assert sum(report.jobs for report in reports) == pruned.jobs


def test_history_learned_anew_gives_the_same_model_and_incumbents(
    tuning: Tuning, beside: Tuning
) -> None:
    for made in (tuning, beside):
        go_on(made, made.start(), 200, 1)
    assert prune(tuning) > 50
    stages = []
    for made in (tuning, beside):
        with made.store._database.writing() as connection:
            connection.execute(sa.text("DELETE FROM checkpoints"))
            connection.execute(sa.text("UPDATE study_states SET state = 'damaged'"))
        stages.append(made.start())
        made.run(stages[-1])
        assert made.heard.of(telemetry.StudyRelearned)
    models = [tuner_of(stage).model for stage in stages]
    assert models[0] is not None
    assert models[1] is not None
    assert models[0].dump() == models[1].dump()
    for key in (tuning.key(8), tuning.key(16)):
        known = [tuner_of(stage).contexts[key] for stage in stages]
        assert known[0].introduction.incumbent == known[1].introduction.incumbent is not None
        trials = [state.evidence.trials for state in known]
        assert trials[0].keys() == trials[1].keys()
        for name, trial in trials[0].items():
            assert trial.latest == trials[1][name].latest
            assert trial.last_sequence == trials[1][name].last_sequence
            assert abs(trial.run_share - trials[1][name].run_share) < 0.06


def test_a_new_generation_keeps_the_keys_of_pruned_jobs(tuning: Tuning, beside: Tuning) -> None:
    text = study().text.replace("n = { type", 'gpus = { was = "n", type')
    text = text.replace("x <= n", "x <= gpus")
    for made in (tuning, beside):
        go_on(made, made.start(), 200, 1)
    assert prune(tuning) > 50
    for made in (tuning, beside):
        made.store.publish_generation(NAME, "sha256:new", text, "test", made.time.now(), force=True)
        made.run(made.start())
    keys = [
        {one.sequence: one.context_key for one in made.store.predictions(NAME)}
        for made in (tuning, beside)
    ]
    assert keys[0] == keys[1]
    assert set(keys[0].values()) == {"toy|gpus=8", "toy|gpus=16"}


def test_jobs_that_are_needed_stay(tuning: Tuning) -> None:
    stage = tuning.start()
    go_on(tuning, stage, 160, 1)
    slip = structs.replace(job(161, {"n": 8}, CONFIGS[0], speed=1e9), user="eve")
    tuning.add([slip])
    tuning.run(stage)
    go_on(tuning, stage, 120, 162)
    assert [row.sequence for row in tuning.store.quarantined(NAME)] == [161]
    at = tuner_of(stage).sequence
    prune(tuning)
    left = set(whole(tuning.store))
    assert set(range(at - LIMITS.max_jobs + 1, at + 1)) <= left  # type: ignore[operator]
    assert set(replay.sequences_at(at).tolist()) <= left
    assert 161 in left
    for state in tuner_of(stage).contexts.values():
        for trial in state.evidence.trials.values():
            assert {run[2] for run in trial.latest} | {trial.last_sequence} <= left
    assert prune(tuning) == 0


def test_duplicates_of_pruned_jobs_are_refused_for_400_days(tuning: Tuning) -> None:
    go_on(tuning, tuning.start(), 200, 1)
    gone = set(range(1, 201)) - set(whole(tuning.store))
    assert not gone
    assert prune(tuning) > 50
    gone = set(range(1, 201)) - set(whole(tuning.store))
    again = [one for one in jobs(200) if one.sequence in gone]

    def added() -> int:
        with tuning.store.transaction() as tx:
            return len(tx.add_observations(NAME, again, tuning.time.now()).fresh)

    assert added() == 0
    tuning.time.pass_(days=399)
    prune(tuning)
    assert added() == 0
    tuning.time.pass_(days=2)
    prune(tuning)
    pruned = tuning.store.pruned_history(NAME)
    assert pruned is not None
    assert pruned.forgotten == len(gone)
    assert added() == len(gone)


def test_age_counts_from_when_a_job_came_in(tuning: Tuning) -> None:
    limits = RetentionLimits(timedelta(days=30), None)
    stage = tuning.start()
    go_on(tuning, stage, 120, 1)
    assert prune(tuning, limits) == 0
    tuning.time.pass_(days=31)
    go_on(tuning, stage, 80, 121)
    assert prune(tuning, limits) > 20
    assert set(range(121, 201)) <= set(whole(tuning.store))


def test_a_clock_that_was_behind_once_makes_no_other_job_old(tuning: Tuning) -> None:
    limits = RetentionLimits(timedelta(days=30), None)
    stage = tuning.start()
    go_on(tuning, stage, 120, 1)
    with tuning.store.transaction() as tx:
        tx.add_observations(NAME, jobs(1, 121), tuning.time.now() - timedelta(days=2_000))
    tuning.run(stage)
    go_on(tuning, stage, 119, 122)
    prune(tuning, limits)
    assert set(range(1, 241)) - set(whole(tuning.store)) <= {121}


def prune_by_itself(tuning: Tuning, limits: RetentionLimits, **ahead: float) -> None:
    """As the daemon does, whose clock is ahead."""
    time, behind = tuning.time, timedelta(**ahead)
    retention = HistoryRetention(tuning.store, limits, lambda: time.now() + behind, time.clock)
    epoch = next(lease.epoch for lease in tuning.store.leases() if lease.name.endswith(NAME))
    while retention.step(study(), epoch) is not None:
        time.pass_(seconds=BATCH_EVERY_S)


def test_a_daemon_whose_clock_is_far_ahead_prunes_nothing_young(tuning: Tuning) -> None:
    limits = RetentionLimits(timedelta(days=30), None)
    stage = tuning.start()
    go_on(tuning, stage, 199, 1)
    # A producer's clock is far ahead, too.
    wrong = structs.replace(jobs(1, 200)[0], finished_at=tuning.time.now() + timedelta(days=900))
    with tuning.store.transaction() as tx:
        tx.add_observations(NAME, [wrong], tuning.time.now())
    tuning.run(stage)
    prune_by_itself(tuning, limits, days=800)
    assert set(whole(tuning.store)) == set(range(1, 201))
    tuning.time.pass_(days=31)
    go_on(tuning, stage, 80, 201)
    prune_by_itself(tuning, limits)
    assert len(set(range(1, 201)) - set(whole(tuning.store))) > 50
    assert set(range(201, 281)) <= set(whole(tuning.store))


def test_what_corrects_a_job_that_stays_stays_too(tuning: Tuning) -> None:
    count = 320
    sample = set(replay.sequences_at(count).tolist())
    wrong = next(n for n in range(60, 200) if n in sample and n + 1 not in sample and n % 20)
    stage = tuning.start()
    go_on(tuning, stage, wrong - 1, 1)
    odd = {**CONFIGS[0], "x": 2}
    tuning.add([job(wrong, {"n": 8}, odd, speed=9.0)])
    (stored,) = tuning.store.observations_at(NAME, [wrong])
    right = structs.replace(job(wrong + 1, {"n": 8}, odd, speed=3.0), finished_at=tuning.time.now())
    tuning.add([corrected(right, stored)])
    tuning.run(stage)
    go_on(tuning, stage, count - wrong - 1, wrong + 2)
    assert prune(tuning) > 50
    assert {wrong, wrong + 1} <= set(whole(tuning.store))


def test_what_was_corrected_does_not_come_back_as_a_failure(tuning: Tuning) -> None:
    """The job that took the place of a failed one was pruned."""
    count = 320
    wrong = next(n for n in range(60, 200) if not {n, n + 1} & ever_sampled(count) and n % 20)
    stage = tuning.start()
    go_on(tuning, stage, wrong - 1, 1)
    tuning.add([job(wrong, {"n": 8}, CONFIGS[0], status=Status.FAILED)])
    (stored,) = tuning.store.observations_at(NAME, [wrong])
    speed = true_speed({"n": 8}, CONFIGS[0])
    tuning.add([corrected(job(wrong + 1, {"n": 8}, CONFIGS[0], speed=speed), stored)])
    tuning.run(stage)
    go_on(tuning, stage, count - wrong - 1, wrong + 2)
    assert prune(tuning) > 50
    assert not {wrong, wrong + 1} & set(whole(tuning.store))


def test_a_release_from_quarantine_holds_for_good(
    tuning: Tuning, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for the jobs near it, after all that it stood beside is gone."""
    monkeypatch.setattr("tunerd.stages.retention.BATCH", 1)  # the two are looked at one by one
    count = 320
    odd: dict[str, Value] = {"x": 2, "y": "c", "z": False}
    slip = next(n for n in range(180, 230) if not {n, n + 1} & ever_sampled(count))
    stage = tuning.start()
    go_on(tuning, stage, slip - 1, 1)
    first = job(slip, {"n": 8}, odd, speed=1.3e7)
    tuning.add([structs.replace(first, user="eve")])
    tuning.run(stage)
    assert tuning.store.quarantine_counts() == {NAME: 1}
    tuning.command("release", sequences=[slip])
    tuning.run(stage)
    near = [job(n, {"n": 8}, odd, speed=1.3e7 + n) for n in range(slip + 2, slip + 14)]
    tuning.add([structs.replace(one, user=f"u{n % 4}") for n, one in enumerate(near)])
    tuning.run(stage)
    go_on(tuning, stage, count - slip - 13, slip + 14)
    assert tuning.store.quarantine_counts() == {}
    assert prune(tuning) > 50
    assert {slip, slip + 1} <= set(whole(tuning.store))
    tuning.publish(explore_share="0.3")
    tuning.run(tuning.start())
    assert tuning.lines.of("study loaded")[-1]["anew"]
    rows = tuning.store.quarantine_rows(NAME, range(1, 400))
    assert {sequence: row.state for sequence, row in rows.items()} == {slip: "released"}


def test_a_job_without_parameters_is_not_called_pruned(tuning: Tuning) -> None:
    go_on(tuning, tuning.start(), 200, 1)
    tuning.add([job(201, {"n": 8}, {}, speed=3.0)])
    assert prune(tuning) > 50
    gone = min(set(range(1, 201)) - set(whole(tuning.store)))
    pages = [job_detail(tuning.store, study(), sequence) for sequence in (gone, 201)]
    assert [page is not None and PRUNED in page.taught for page in pages] == [True, False]


def test_imported_jobs_are_known_as_duplicates_for_ever(tuning: Tuning) -> None:
    old = [structs.replace(one, history=True) for one in jobs(200)]
    tuning.add(old)
    tuning.run(tuning.start())
    assert prune(tuning) > 50
    tuning.time.pass_(days=1_000)
    prune(tuning)
    with tuning.store.transaction() as tx:
        assert not tx.add_observations(NAME, old, tuning.time.now()).fresh


def test_what_was_said_is_derived_as_far_as_history_goes(tuning: Tuning) -> None:
    stage = tuning.start()
    go_on(tuning, stage, 160, 1, step=20)
    before = said(tuning.store)
    assert derive(tuning.store, before[-1], "rebuilt").same
    go_on(tuning, stage, 80, 161, step=20)
    prune(tuning)
    pruned = tuning.store.pruned_history(NAME)
    assert pruned is not None
    latest, old = derive(tuning.store, said(tuning.store)[-1]), derive(tuning.store, before[0])
    checks = {one.what: one for one in latest.checks}
    gone = f"history before job {pruned.last_sequence + 1:,} was pruned, last on 2026-11-20"
    assert checks["history"].same
    assert gone in checks["history"].text
    assert checks["evidence"].same is None
    assert latest.same, (latest.checks, latest.differences)
    checks = {one.what: one for one in old.checks}
    assert checks["history"].same is None
    assert gone in checks["history"].text
    assert old.same, (old.checks, old.differences)


def test_a_job_that_was_changed_since_is_still_found(tuning: Tuning) -> None:
    go_on(tuning, tuning.start(), 240, 1, step=20)
    prune(tuning)
    with tuning.store._database.writing() as connection:
        changed = "UPDATE observations SET metrics = '{\"speed\"\\:1.0}' WHERE sequence = 231"
        assert connection.execute(sa.text(changed)).rowcount == 1
    derived = derive(tuning.store, said(tuning.store)[-1])
    history = next(one for one in derived.checks if one.what == "history")
    assert history.same is False
    assert "is not what was learned" in history.text


def test_batches_come_now_and_then(tuning: Tuning, monkeypatch: pytest.MonkeyPatch) -> None:
    """However much waits, one batch in a quarter of a second, and a pass in an hour."""
    monkeypatch.setattr("tunerd.stages.retention.BATCH", 50)
    go_on(tuning, tuning.start(), 200, 1)
    time = tuning.time
    retention = HistoryRetention(tuning.store, LIMITS, time.now, time.clock)
    epoch = next(lease.epoch for lease in tuning.store.leases() if lease.name.endswith(NAME))
    books = study()
    batches = 0
    while (result := retention.step(books, epoch)) is not None:
        batches += bool(result.pruned)
        assert retention.step(books, epoch) is None
        time.pass_(seconds=BATCH_EVERY_S)
    assert batches > 1
    assert prune(tuning) == 0
    time.pass_(seconds=PASS_EVERY_S)
    assert retention.step(books, epoch) is not None


def test_who_lost_the_study_prunes_nothing(tuning: Tuning) -> None:
    go_on(tuning, tuning.start(), 200, 1)
    time = tuning.time
    retention = HistoryRetention(tuning.store, LIMITS, time.now, time.clock)
    with pytest.raises(FencedOutError):
        retention.step(study(), 99)
    assert tuning.store.pruned_history(NAME) is None
    assert len(whole(tuning.store)) == 200


def test_nothing_goes_while_history_is_about_to_be_learned_anew(tuning: Tuning) -> None:
    stage = tuning.start()
    go_on(tuning, stage, 200, 1)
    tuning.publish(explore_share="0.3")
    assert prune(tuning) == 0
    assert RetentionPass.begin(tuning.store, study(explore_share="0.3"), LIMITS, tuning.time.now())
    with tuning.store._database.writing() as connection:
        connection.execute(sa.text("UPDATE study_states SET state = 'damaged'"))
    assert prune(tuning) == 0


def test_many_small_configurations_are_bounded(tuning: Tuning) -> None:
    """What evidence has forgotten is not kept for it."""
    stage = tuning.start()
    for at in range(1, 241, 40):
        tuning.add(random_jobs(40, first=at, seed=at, sizes=(8, 16)))
        tuning.run(stage)
    pruned = prune(tuning)
    needed = {
        sequence
        for state in tuner_of(stage).contexts.values()
        for trial in state.evidence.trials.values()
        for sequence in (*(run[2] for run in trial.latest), trial.last_sequence)
    }
    needed |= set(replay.sequences_at(240).tolist()) | set(range(181, 241))
    assert set(whole(tuning.store)) == needed  # where none failed
    assert pruned == 240 - len(needed)


def test_damage_ends_a_pass_and_nothing_else(tuning: Tuning) -> None:
    stage = tuning.start()
    go_on(tuning, stage, 200, 1)
    with tuning.store._database.writing() as connection:
        connection.execute(sa.text("UPDATE context_states SET state = 'damaged'"))
    time = tuning.time
    stage.retention = HistoryRetention(tuning.store, LIMITS, time.now, time.clock)
    tuning.run(stage)
    assert tuning.store.pruned_history(NAME) is None
    go_on(tuning, stage, 40, 201)  # what is in memory is saved again
    assert tuner_of(stage).sequence == 240
    time.pass_(seconds=PASS_EVERY_S)
    tuning.run(stage)
    assert tuning.store.pruned_history(NAME) is not None


def test_a_row_that_lost_its_configuration_before_it_was_learned_stops_nobody(
    tuning: Tuning,
) -> None:
    stage = tuning.start()
    go_on(tuning, stage, 80, 1)
    tuning.add(jobs(10, 81))
    with tuning.store._database.writing() as connection:
        connection.execute(sa.text("UPDATE observations SET config = '' WHERE sequence = 85"))
    tuning.run(stage)
    assert tuner_of(stage).sequence == 90
