"""Contexts of one study searched by several instances, on a real PostgreSQL: what comes of it is
what comes without, and who helps can do no harm."""

from collections.abc import Iterator
from datetime import timedelta

import pytest
import sqlalchemy as sa
from msgspec import json, structs

from tests.stages.fakes import START, Heard
from tests.stages.sharing import SIZES, Instance, Ticking, elsewhere, join, offer, settle
from tests.stages.tuning import NAME, Tuning, random_jobs
from tunerd import telemetry
from tunerd.core.decisions.campaign import Campaign
from tunerd.core.recommendation import Advice
from tunerd.errors import NothingFeasibleError
from tunerd.settings.model import TuneSettings
from tunerd.stages import shared_search, tune
from tunerd.stages.replay import derive
from tunerd.stages.shared_search import SearchHelper, made_by
from tunerd.stages.study_session import StepPlan
from tunerd.store import SearchTask, open_store
from tunerd.store.tables import search_tasks

pytestmark = pytest.mark.slow


@pytest.fixture
def tuning(postgres_url: str) -> Iterator[Tuning]:
    with open_store(postgres_url) as store:
        made = Tuning(store, Ticking(), Heard())
        yield made
        made.end()


@pytest.fixture
def owner(tuning: Tuning) -> Instance:
    """The first to come: it gets the study."""
    return join(tuning, "a")


@pytest.fixture
def helper(tuning: Tuning, owner: Instance) -> Instance:
    """Comes second, and has nothing to do."""
    tuning.publish()
    assert owner.stage.step()
    return join(tuning, "b")


def claimed(tuning: Tuning, by: str = "b/1", ttl_s: float = 60.0) -> SearchTask:
    with tuning.store.transaction() as tx:
        task = tx.claim_search(by, made_by(), ttl_s)
    assert task is not None
    return task


def tasks(tuning: Tuning) -> int:
    with tuning.store._database.reading() as connection:
        query = sa.select(sa.func.count()).select_from(search_tasks)
        return int(connection.execute(query).scalar_one())


def searcher(instance: Instance) -> SearchHelper:
    assert instance.stage.helper is not None
    return instance.stage.helper


def test_another_comes_to_what_the_owner_would_have_come_to_bit_for_bit(
    tuning: Tuning, owner: Instance, helper: Instance
) -> None:
    offered = offer(tuning, owner, [helper])
    tuner, running = owner.stage._books[NAME].tuner, owner.stage._books[NAME].recommended
    assert len(offered) > 3
    for key in offered:
        task = claimed(tuning)
        assert (task.context_key, task.sequence) == (key, tuner.sequence)
        theirs = json.decode(searcher(helper).search(task))
        problem = ""
        advice: Advice | None = None
        try:
            advice = tuner.advise(key, running.followed(key), brief=task.basis["brief"])
        except NothingFeasibleError as error:
            problem = str(error)
        ours = {"state": tuner.state(key).dump(), "advice": advice, "problem": problem}
        assert json.encode(theirs) == json.encode(ours)


def test_results_are_taken_over_and_can_be_derived_from_history(
    tuning: Tuning, owner: Instance, helper: Instance
) -> None:
    offer(tuning, owner, [helper])
    while helper.stage.step():
        pass
    tuning.add(random_jobs(28, first=73, sizes=[4]))  # learned before results are taken over
    settle(owner, [helper])
    shared = elsewhere(tuning.store.steps(NAME, 1000))
    assert len(shared) > 3
    assert min(shared.values()) == 72
    kept = [tuning.store.derivation(one) for _, one, _ in tuning.store.derivable(NAME, limit=1000)]
    said = [one for one in kept if one and shared.get(one.context_key) == one.sequence == 72]
    assert said
    assert all(derive(tuning.store, one).same for one in said[:5])
    taken_over = sum(
        len(step.detail.get("elsewhere", ())) for step in tuning.store.steps(NAME, 1000)
    )
    searched = {row.name: row.searched for row in tuning.store.instances()}
    assert (searched["a"], searched["b"] >= taken_over) == (0, True)
    heard = owner.heard.of(telemetry.StepCommitted)
    assert sum(step.contexts_searched_elsewhere for step in heard) == taken_over
    assert len(helper.lines.of("contexts searched for another instance")) == 1
    assert tasks(tuning) == 0
    states = owner.stage._books[NAME].tuner.contexts
    assert {state.searched >= 0 for state in states.values()} == {True}


def test_what_a_lost_helper_had_taken_is_searched_by_the_owner(
    tuning: Tuning, owner: Instance, helper: Instance
) -> None:
    offer(tuning, owner, [helper])
    lost = claimed(tuning, ttl_s=-1.0)
    settle(owner)
    assert elsewhere(tuning.store.steps(NAME, 1000)) == {}
    assert owner.stage._books[NAME].tuner.contexts[lost.context_key].searched >= 0
    assert tasks(tuning) == 0
    with tuning.store.transaction() as tx:  # it was only paused
        assert not tx.finish_search(lost.id, "b/1", searcher(helper).search(lost))


def test_what_was_made_from_something_that_has_changed_is_dropped(
    tuning: Tuning, owner: Instance, helper: Instance
) -> None:
    (key, *_) = offer(tuning, owner, [helper])
    task = claimed(tuning)
    assert task.context_key == key
    n = task.basis["states"][key]["context"]["n"]
    last = tuning.store.study(NAME).last_sequence  # type: ignore[union-attr]
    tuning.add(random_jobs(2, first=last + 1, seed=5, sizes=[n]))
    with tuning.store.transaction() as tx:
        assert tx.finish_search(task.id, "b/1", searcher(helper).search(task))
    settle(owner)
    assert key not in elsewhere(tuning.store.steps(NAME, 1000))
    assert owner.stage._books[NAME].tuner.contexts[key].searched > task.sequence


def test_what_an_order_changed_meanwhile_is_dropped(
    tuning: Tuning, owner: Instance, helper: Instance
) -> None:
    (key, *_) = offer(tuning, owner, [helper])
    task = claimed(tuning)
    with tuning.store.transaction() as tx:
        assert tx.finish_search(task.id, "b/1", searcher(helper).search(task))
    tuning.command("pin", context={}, config={"z": False})
    settle(owner)
    assert key not in elsewhere(tuning.store.steps(NAME, 1000))
    assert not any(
        c.config["z"] for c in tuning.said(task.basis["states"][key]["context"]["n"]).candidates
    )


def test_a_result_for_an_earlier_holder_of_the_study_changes_nothing(
    tuning: Tuning, owner: Instance, helper: Instance
) -> None:
    offer(tuning, owner, [helper])
    task = claimed(tuning)
    result = searcher(helper).search(task)
    owner.stage.close()  # and another one takes over
    third = join(tuning, "c")
    while NAME not in third.stage._books:
        third.stage.step()
    assert tasks(tuning) == 0
    before = tuning.store.context_states(NAME), tuning.store.study_state(NAME), tuning.rows()
    with tuning.store.transaction() as tx:
        assert not tx.finish_search(task.id, "b/1", result)
    assert before == (
        tuning.store.context_states(NAME),
        tuning.store.study_state(NAME),
        tuning.rows(),
    )


def test_one_of_another_build_takes_nothing_and_the_owner_goes_on_alone(
    tuning: Tuning, owner: Instance, helper: Instance
) -> None:
    offer(tuning, owner, [helper])
    searcher(helper).made_by = "21-older"
    assert not helper.stage.step()
    settle(owner, [helper])
    assert elsewhere(tuning.store.steps(NAME, 1000)) == {}
    assert tasks(tuning) == 0
    assert NAME in owner.stage.offers._rests  # and offers nothing for a while


def test_a_search_that_fails_elsewhere_is_told_and_left_to_the_owner(
    tuning: Tuning, owner: Instance, helper: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(tuning, owner, [helper])

    def fail(*_: object) -> bytes:
        raise RuntimeError("out of luck")

    monkeypatch.setattr(searcher(helper), "search", fail)
    settle(owner, [helper])
    assert len(helper.lines.of("search for another instance failed: it goes on alone")) == 1
    assert elsewhere(tuning.store.steps(NAME, 1000)) == {}
    assert {state.searched >= 0 for state in owner.stage._books[NAME].tuner.contexts.values()} == {
        True
    }


def test_a_damaged_task_ends_nobody_and_is_left_to_the_owner(
    tuning: Tuning, owner: Instance, helper: Instance
) -> None:
    offer(tuning, owner, [helper])
    with tuning.store.transaction() as tx:
        tx._connection.execute(sa.update(search_tasks).values(basis=b"nonsense"))
    assert helper.stage.step()
    assert len(helper.lines.of("search for another instance failed: it goes on alone")) == 1
    settle(owner, [helper])
    assert elsewhere(tuning.store.steps(NAME, 1000)) == {}
    assert tasks(tuning) == 0


def test_a_result_that_nobody_wrote_is_searched_again_here(
    tuning: Tuning, owner: Instance, helper: Instance
) -> None:
    offered = offer(tuning, owner, [helper])
    deep = (
        b'{"state": {"x": ' + b"[" * 10_000 + b"]" * 10_000 + b'}, "advice": null, "problem": ""}'
    )
    task = claimed(tuning)
    with tuning.store.transaction() as tx:
        assert tx.finish_search(task.id, "b/1", deep)
    settle(owner, [helper])
    assert owner.lines.of("study failed") == []
    assert offered[0] not in elsewhere(tuning.store.steps(NAME, 1000))


def test_what_instances_left_is_dropped_by_a_daemon_that_has_the_store_to_itself(
    tuning: Tuning, owner: Instance, helper: Instance
) -> None:
    offer(tuning, owner, [helper])
    owner.stage.close()
    tuning.run(tuning.start())
    assert tasks(tuning) == 0


def test_a_study_that_takes_too_long_to_search_elsewhere_is_left_alone(
    tuning: Tuning, owner: Instance, helper: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(tuning, owner, [helper])
    monkeypatch.setattr(shared_search, "CLAIM_S", 0.0)
    assert helper.stage.step()
    assert len(helper.lines.of("search for another instance took too long: it goes on alone")) == 1
    helper.stage.step()
    assert claimed(tuning).study == NAME  # there is more, which it leaves alone
    assert len(helper.lines.of("search for another instance took too long: it goes on alone")) == 1


def test_what_nobody_takes_is_the_owners_again_however_much_else_waits(
    tuning: Tuning, owner: Instance, helper: Instance
) -> None:
    offered = offer(tuning, owner, [helper])
    books = owner.stage._books[NAME]
    books.due = ["something else"]
    with tuning.store.transaction() as tx:
        earlier = tuning.time.now() - timedelta(days=400)
        tx._connection.execute(sa.update(search_tasks).values(offered_at=earlier))
    owner.stage.offers.take_over(books, StepPlan())
    assert books.due[1:] == offered
    assert books.offered == {}


def test_who_waits_in_vain_again_and_again_offers_less_and_less_often(
    tuning: Tuning, owner: Instance, helper: Instance
) -> None:
    """An instance that leaves this study alone counts as idle all the same."""
    offers, rested = owner.stage.offers, []
    for _ in range(3):
        offer(tuning, owner, [helper])
        books = owner.stage._books[NAME]
        books.due = ["something else"]
        with tuning.store.transaction() as tx:
            earlier = tuning.time.now() - timedelta(days=400)
            tx._connection.execute(sa.update(search_tasks).values(offered_at=earlier))
        before = tuning.time.at
        offers.take_over(books, StepPlan())
        rested.append(offers._rests[NAME] - (before - START).total_seconds())
        books.due = []
        tuning.time.pass_(seconds=rested[-1])
    assert [round(seconds, -1) for seconds in rested] == [30, 60, 120]
    offer(tuning, owner, [helper])
    assert helper.stage.step()
    offers.collect(owner.stage._books[NAME])
    assert NAME not in offers._rest_s


def test_what_is_to_be_searched_here_anyway_is_not_taken_over(
    tuning: Tuning, owner: Instance, helper: Instance
) -> None:
    """An operator wants it anew; what it is made from is the same."""
    (key, *_) = offer(tuning, owner, [helper])
    assert helper.stage.step()
    books, plan = owner.stage._books[NAME], StepPlan()
    books.due.insert(0, key)
    owner.stage.offers.take_over(books, plan)
    assert plan.elsewhere == {}
    assert books.due.count(key) == 1


def test_what_was_searched_here_meanwhile_is_not_taken_over(
    tuning: Tuning, owner: Instance, helper: Instance
) -> None:
    (key, *_) = offer(tuning, owner, [helper])
    assert helper.stage.step()
    books, plan = owner.stage._books[NAME], StepPlan()
    owner.stage._advise(key, books, StepPlan())  # somebody asked
    owner.stage.offers.take_over(books, plan)
    assert plan.elsewhere == {}
    assert key not in {*books.due, *books.offered}


def test_what_a_job_waits_for_and_campaigns_are_not_offered(
    tuning: Tuning, owner: Instance, helper: Instance
) -> None:
    offer(tuning, owner, [helper])
    books = owner.stage._books[NAME]
    books.offered.clear()
    first, urgent, campaign, *others = books.due = list(books.tuner.contexts)
    books.urgent, books.search_s = [urgent], 10.0
    books.tuner.contexts[campaign].campaign = Campaign(jobs=8, rounds=2, round_size=2)
    owner.stage.offers.placement.idle = 9  # type: ignore[union-attr]
    assert list(owner.stage.offers.choose(books, brief=False)) == others
    assert first not in others


def test_nothing_is_taken_over_of_a_model_that_an_operator_took_out(
    tuning: Tuning, owner: Instance, helper: Instance
) -> None:
    offered = offer(tuning, owner, [helper])
    assert helper.stage.step()
    books, plan = owner.stage._books[NAME], StepPlan(taken_up={"version": 1})
    owner.stage.offers.take_over(books, plan)
    assert plan.elsewhere == books.offered == {}
    assert set(offered) <= set(books.due)
    assert tasks(tuning) == 0


def test_nothing_is_offered_while_old_jobs_are_imported(
    tuning: Tuning, owner: Instance, helper: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(tuning, owner, [helper])
    settle(owner, [helper])
    monkeypatch.setattr(tune, "HISTORY_SHARE", 20)
    last = tuning.store.study(NAME).last_sequence  # type: ignore[union-attr]
    old = random_jobs(72, first=last + 1, seed=5, sizes=SIZES)
    tuning.add([structs.replace(job, history=True) for job in old])
    helper.stage.step()
    for _ in range(40):
        owner.stage.placement.look([NAME])  # type: ignore[union-attr]
        owner.stage.step()
    steps = [step for step in tuning.store.steps(NAME, 1000) if step.sequence_to > last]
    during = [step for step in steps if step.sequence_to < last + 72]
    assert len(during) > 1
    assert [step.detail.get("offered") for step in during] == [None] * len(during)


@pytest.mark.parametrize(
    "why", ["switched off", "alone", "busy", "its is switched off", "another build", "it rests"]
)
def test_nothing_is_offered_where_nobody_is_to_help(tuning: Tuning, why: str) -> None:
    owner = join(tuning, "a", TuneSettings(share_searches=why != "switched off"))
    tuning.publish()
    assert owner.stage.step()
    theirs = TuneSettings(share_searches=why != "its is switched off")
    others = [] if why == "alone" else [join(tuning, "b", theirs)]
    if why == "another build":  # of the same version
        searcher(others[0]).made_by = "22-otherwise"
    if why == "it rests":
        searcher(others[0]).rest(1e9)
    if why == "busy":
        assert others[0].stage.placement is not None
        with tuning.store.transaction() as tx:
            assert tx.take_lease("study/other", "b/1", 600.0) == 1
            assert tx.renew_lease("study/other", "b/1", 1, 600.0, spent_s=200.0)
    with pytest.raises(AssertionError, match="nothing was offered"):
        offer(tuning, owner, others)
    assert tasks(tuning) == 0
    assert len(owner.stage._books[NAME].tuner.contexts) > 20
    assert owner.stage._books[NAME].due == []
