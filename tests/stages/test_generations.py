"""What a new generation takes over from the one before, through the tune stage."""

from itertools import pairwise

import pytest
from msgspec import structs

from tests.core.tuning import TEXT
from tests.stages.fakes import CrashError, crash_in
from tests.stages.tuning import Tuning, job, random_jobs, true_speed
from tunerd import telemetry
from tunerd.core.observation import Observation, Value
from tunerd.core.recommendation import Recommendation
from tunerd.core.study import Study
from tunerd.core.study_file import parse_study
from tunerd.events import from_bytes
from tunerd.stages.preview import preview

Changes = list[tuple[str, str]]

X = 'x = { type = "int", values = [1, 2, 3, 4, 5, 6, 7, 8] }'
N = 'n = { type = "int", scale = "log" }'
Z = 'z = { type = "bool" }'
UNRELATED: Changes = [("keep = 32", "keep = 31")]
RENAMED: Changes = [
    (X, X.replace("x =", "ex =").replace(" }", ', was = "x" }')),
    ("x <= n", "ex <= n"),
    ("config = { x", "config = { ex"),
]
CONTEXT_RENAMED: Changes = [(N, N.replace("n =", "gpus =").replace(" }", ', was = "n" }'))]
CONTEXT_RENAMED += [("x <= n", "x <= gpus")]
CONTEXT_ADDED: Changes = [(N, N + '\ngpu = { type = "category", absent = "A100" }')]
ADDED: Changes = [(Z, Z + '\nw = { type = "int", values = [1, 2], absent = 2 }')]
KNOWN_NOW: Changes = [(Z, Z + '\nv = { type = "int", values = [1, 2] }')]
"""Jobs always had ``v``; the study had not."""
REMOVED: Changes = [(Z + "\n", ""), (", z = false", "")]
OF_ANOTHER_TYPE: Changes = [
    (X, 'x = { type = "category", values = ["1", "2", "3", "4", "5", "6", "7", "8"] }'),
    ("x <= n", "true"),
    ("config = { x = 1", 'config = { x = "1"'),
]
NARROWED: Changes = [(X, X.replace("1, 2, 3, 4, 5, 6, 7, 8", "1, 2, 3"))]
CONTEXT_REMOVED: Changes = [(N, 'free = { type = "bool" }'), ("x <= n", "true")]


def changed(changes: Changes) -> Study:
    text = TEXT.replace("explore_share = 0.5", "explore_share = 0.1")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return parse_study(text)


def publish(tuning: Tuning, changes: Changes) -> Study:
    new = changed(changes)
    tuning.store.publish_generation(
        "toy", new.content_hash, new.text, "test", tuning.time.now(), force=True
    )
    return new


def said(tuning: Tuning, study: Study) -> Recommendation:
    """About n = 8."""
    row = tuning.rows()[study.context_key({"n": 8})]
    assert row.state == "active"
    return from_bytes(row.value.encode())


def told(tuning: Tuning, study: Study) -> tuple[float, float]:
    """What is said of the incumbent, and the best that is predicted."""
    one = said(tuning, study)
    assert one.incumbent is not None
    best = [c.predicted.median for c in one.candidates if c.predicted is not None]
    return one.incumbent.median, max(best)


def slowed(count: int, change: int) -> list[Observation]:
    """Jobs of n = 8 that from one on take three times as long."""
    return [
        structs.replace(one, metrics={"speed": one.metrics["speed"] / 3})
        if one.metrics and one.sequence > change
        else one
        for one in random_jobs(count, sizes=(8,))
    ]


@pytest.mark.parametrize("changes", [UNRELATED, RENAMED, CONTEXT_RENAMED, ADDED])
def test_what_a_drift_taught_is_not_forgotten(tuning: Tuning, changes: Changes) -> None:
    """As history is learned anew: what ran before tells of another time."""
    before = publish(tuning, [])
    tune, jobs = tuning.start(), slowed(240, 200)
    for first, end in pairwise((0, 20, 100, 200, 220, 240)):
        tuning.add(jobs[first:end])
        tuning.run(tune)
    known = told(tuning, before)
    after = publish(tuning, changes)
    tuning.run(tune)
    assert told(tuning, after) == pytest.approx(known, rel=0.15)
    # And so it is for the generation that comes after, and one that learns anew unasked.
    saved = tuning.store.study_state("toy")
    assert saved is not None
    with tuning.store.transaction() as tx:
        state = saved.state | {"layout": 1}
        tx.save_study_state("toy", state, epoch=saved.epoch, now=tuning.time.now())
    tuning.time.pass_(seconds=600)
    tuning.run(tuning.start())
    assert told(tuning, after) == pytest.approx(known, rel=0.15)


def ran(tuning: Tuning, first: int, x: int, count: int, *, z: bool = False) -> None:
    """Jobs of n = 8; the larger x is, the faster."""
    config: dict[str, Value] = {"x": x, "y": "a", "z": z, "v": 1}
    tuning.add([job(first + i, {"n": 8}, config, speed=10.0 * x) for i in range(count)])


@pytest.mark.parametrize(
    "changes",
    [
        UNRELATED,
        RENAMED,
        CONTEXT_RENAMED,
        CONTEXT_ADDED,
        ADDED,
        KNOWN_NOW,
        REMOVED,
        OF_ANOTHER_TYPE,
    ],
)
def test_who_serves_has_to_be_beaten_in_a_test_whatever_it_is_called_now(
    tuning: Tuning, changes: Changes
) -> None:
    """Two runs that look better are no promotion yet."""
    before = publish(tuning, [])
    tune = tuning.start()
    ran(tuning, 1, 1, 12)
    ran(tuning, 13, 1, 2, z=True)
    tuning.run(tune)
    ran(tuning, 15, 6, 2)
    tuning.run(tune)
    known_before = tuning.store.context_states("toy")[0].state
    state, promised = known_before["introduction"], known_before["promised"]
    assert any(promise[3] == state["incumbent"] for promise in promised.values())
    looked = preview(tuning.store, before, changed(changes))
    assert (looked.incumbents_stay, looked.incumbents) == (1, [])
    after = publish(tuning, changes)
    tuning.run(tune)
    incumbent = said(tuning, after).incumbent
    assert incumbent is not None
    assert str(incumbent.config.get("ex", incumbent.config.get("x"))) == "1"
    (row,) = tuning.store.context_states("toy")
    own = row.state["introduction"]
    assert (own["established"], own["uplift"]["ahead"]) == (True, state["uplift"]["ahead"])
    known = row.state["evidence"]["trials"]
    assert set(own["duels"]) <= known.keys()
    assert len(own["duels"]) == len(state["duels"]) == 1
    # A promise and the incumbent that it was made against go by their present names; jobs that are
    # under way name it as it was.
    renamed = row.state["renamed"]
    for former_id, promise in promised.items():
        if promise[3] == state["incumbent"]:
            assert row.state["promised"][renamed.get(former_id, former_id)][3] == own["incumbent"]


def test_of_contexts_that_become_one_the_incumbent_is_elected_anew(tuning: Tuning) -> None:
    before = publish(tuning, [])
    tune = tuning.start()
    ran(tuning, 1, 1, 12)
    tuning.run(tune)
    ran(tuning, 13, 6, 3)
    tuning.add([job(16 + i, {"n": 16}, {"x": 2, "y": "a", "z": False}, speed=9) for i in range(3)])
    tuning.run(tune)
    after = changed(CONTEXT_REMOVED)
    looked = preview(tuning.store, before, after)
    assert {one["context_key"] for one in looked.incumbents} == {"toy|n=8", "toy|n=16"}
    publish(tuning, CONTEXT_REMOVED)
    tuning.run(tune)
    incumbent = said(tuning, after).incumbent
    assert incumbent is not None
    assert incumbent.config["x"] == 6


def test_a_lead_over_what_is_no_more_begins_at_zero(tuning: Tuning) -> None:
    publish(tuning, [])
    tune = tuning.start()
    ran(tuning, 1, 1, 2)
    tuning.run(tune)
    ran(tuning, 3, 6, 2)
    ran(tuning, 5, 2, 3)
    tuning.run(tune)
    (row,) = tuning.store.context_states("toy")
    assert row.state["introduction"]["uplift"]["ahead"] > 0.5
    publish(tuning, NARROWED)
    tuning.run(tune)
    (row,) = tuning.store.context_states("toy")
    assert row.state["evidence"]["trials"][row.state["introduction"]["incumbent"]]["config"] == {
        "x": 2,
        "y": "a",
        "z": False,
    }
    assert row.state["introduction"]["uplift"]["ahead"] == 0.0


def campaign(tuning: Tuning, n: int = 8) -> None:
    number = tuning.command("campaign", context={"n": n}, jobs=6, rounds=1, round_size=3, repeats=1)
    tuning.run(tuning.made[-1])
    assert "campaign begun" in (tuning.result(number) or "")


ALL = [UNRELATED, RENAMED, CONTEXT_RENAMED, CONTEXT_ADDED, ADDED, REMOVED, OF_ANOTHER_TYPE]


@pytest.mark.parametrize(
    ("changes", "seen"),
    [
        *((changes, True) for changes in ALL),
        *((changes, False) for changes in (RENAMED, CONTEXT_RENAMED, CONTEXT_ADDED)),
    ],
)
def test_a_campaign_goes_on_under_present_names(
    tuning: Tuning, changes: Changes, seen: bool
) -> None:
    """Also in a context where nobody has run a job yet."""
    publish(tuning, [])
    tune = tuning.start()
    tuning.add(random_jobs(40, sizes=(8, 16) if seen else (16,)))
    tuning.run(tune)
    campaign(tuning)
    after = publish(tuning, changes)
    tuning.run(tune)
    assert tuning.lines.of("not taken over") == []
    rounds, at = [], 41
    for _ in range(3):
        one = said(tuning, after)
        if one.round is None:
            break
        rounds.append((one.round, sum(c.wanted for c in one.candidates)))
        for c in one.candidates:
            for _ in range(c.wanted):
                tuning.add([job(at, {"n": 8}, dict(c.config), speed=100.0 + at)])
                at += 1
        tuning.run(tune)
    assert rounds[0][0] == 0
    assert 4 <= rounds[0][1] <= 6
    assert rounds[1:] == [(1, 3)]


def test_what_another_version_kept_otherwise_begins_anew(tuning: Tuning) -> None:
    """Parts of a context's state that this version cannot read take nothing else with them."""
    publish(tuning, [])
    tune = tuning.start()
    tuning.add(random_jobs(60, sizes=(8, 16)))
    tuning.run(tune)
    campaign(tuning)
    said, saved = tuning.rows(), tuning.store.study_state("toy")
    assert saved is not None
    rows = tuning.store.context_states("toy")
    for row in rows:
        del row.state["watched"]["outcomes"]
        del row.state["evidence"]["apart"]
        row.state["introduction"]["doubts"] = row.state["introduction"].pop("doubt")
    with tuning.store.transaction() as tx:
        tx.save_context_states("toy", rows)
        state = saved.state | {"layout": 1}
        tx.save_study_state("toy", state, epoch=saved.epoch, now=tuning.time.now())
    tuning.time.pass_(seconds=600)
    tuning.run(tuning.start())
    assert tuning.rows().keys() == said.keys()
    assert all(row.state == "active" for row in tuning.rows().values())
    now = {row.context_key: row.state for row in tuning.store.context_states("toy")}
    assert now["toy|n=8"]["campaign"] is not None
    whats = {one["what"] for one in tuning.lines.of("not taken over")}
    assert whats == {
        "what was being tested: this version of tunerd does not read what another kept of it"
    }


def test_what_is_lost_of_a_campaign_is_said(tuning: Tuning) -> None:
    publish(tuning, [])
    tune = tuning.start()
    tuning.add(random_jobs(40, sizes=(8, 16)))
    tuning.run(tune)
    campaign(tuning)
    publish(tuning, NARROWED)
    tuning.run(tune)
    (line,) = tuning.lines.of("not taken over")
    assert line["context"] == "toy|n=8"
    assert "configurations of its campaign: they are not in the space" in line["what"]
    campaign(tuning, 16)
    tuning.lines.lines.clear()
    publish(tuning, CONTEXT_REMOVED)
    tuning.run(tune)
    whats = [one["what"] for one in tuning.lines.of("not taken over")]
    assert any("its campaign: one of a context that is the same now" in one for one in whats)


def test_a_model_that_was_to_stay_is_let_go_and_that_is_said(tuning: Tuning) -> None:
    publish(tuning, [])
    tune = tuning.start()
    for first in (1, 31):
        tuning.add(random_jobs(30, first=first, seed=first))
        tuning.run(tune)
    tuning.command("back", version=1)
    tuning.run(tune)
    publish(tuning, UNRELATED)
    tuning.run(tune)
    (line,) = tuning.lines.of("not taken over")
    assert "the model that an operator went back to" in line["what"]


def test_jobs_are_judged_and_told_of_under_the_present_names_of_their_contexts(
    tuning: Tuning,
) -> None:
    publish(tuning, [])
    tuning.add(random_jobs(60))
    tuning.run(tuning.start())
    before = tuning.store.predictions("toy")
    now = publish(tuning, CONTEXT_RENAMED)
    with crash_in(pytest.MonkeyPatch(), "mark_learned"), pytest.raises(CrashError):
        tuning.run(tuning.start())
    assert tuning.store.predictions("toy") == before
    tuning.run(tuning.start())
    after = tuning.store.predictions("toy")
    assert {one.context_key for one in after} == {now.context_key({"n": n}) for n in (4, 8, 16)}
    assert [one.outcome for one in after] == [one.outcome for one in before]


def test_jobs_of_a_context_that_is_split_are_told_of_where_they_belong_now(tuning: Tuning) -> None:
    """Jobs always had ``gpu``; the study had not. What does not have it counts as an A100."""
    publish(tuning, [])
    gpus: list[dict[str, Value]] = [{"gpu": "H100"}, {"gpu": "A100"}, {}]
    jobs = [
        structs.replace(one, context={**one.context, **gpus[i % 3]})
        for i, one in enumerate(random_jobs(60))
    ]
    tuning.add(jobs)
    tuning.run(tuning.start())
    for changes in (CONTEXT_ADDED, []):
        now = publish(tuning, changes)
        tuning.run(tuning.start())
        told = [one.context_key for one in tuning.store.predictions("toy")]
        assert told == [now.context_key(one.context) for one in jobs]


@pytest.mark.parametrize("changes", [CONTEXT_RENAMED, RENAMED])
def test_who_was_launched_under_a_former_name_followed_all_the_same(
    tuning: Tuning, changes: Changes
) -> None:
    publish(tuning, [])
    tuning.add(random_jobs(60))
    tuning.run(tuning.start())
    told = from_bytes(tuning.row(8).value.encode())
    for count, again in enumerate([changes, [*changes, ("keep = 32", "keep = 31")]]):
        publish(tuning, again)
        tune = tuning.start()
        tuning.run(tune)
        for i, one in enumerate(told.candidates):
            tuning.add(
                [
                    job(
                        100 * count + 61 + i,
                        told.context,
                        one.config,
                        speed=true_speed(told.context, one.config),
                        recommendation_id=told.recommendation_id,
                        candidate_id=one.candidate_id,
                    )
                ]
            )
        tuning.run(tune)
        latest = tuning.store.predictions("toy")[-len(told.candidates) :]
        assert [one.outcome.following for one in latest] == ["followed"] * len(told.candidates)
        assert tuning.heard.of(telemetry.StepCommitted)[-1].overrated is not None
