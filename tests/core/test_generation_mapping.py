"""What passes from one generation to the next where names change and configurations merge."""

import pytest

from tests.core.tuning import TEXT, changed
from tunerd.core.decisions.campaign import Campaign, PendingRuns
from tunerd.core.evidence.paired_tests import PairedTest, PromotionGuard, RollbackReview
from tunerd.core.evidence.rollout import Rollout, RolloutResult, SlowedIncumbent
from tunerd.core.evidence.uplift import UntestedIncumbents, UpliftTracker
from tunerd.core.generation_mapping import GenerationMapping, campaign_of, introduction_of
from tunerd.core.model.history_weights import Regime
from tunerd.core.study_file import parse_study

BEFORE = parse_study(TEXT)
GONE = changed(
    ('n = { type = "int", scale = "log" }', 'm = { type = "int", absent = 0 }'),
    ('fits = "x <= n"', 'fits = "true"'),
)
CALLED = changed(
    ('n = { type = "int", scale = "log" }', 'm = { type = "int", was = "n" }'),
    ('fits = "x <= n"', 'fits = "x <= m"'),
)
CONTEXTS = {"toy|n=4": {"n": 4}, "toy|n=8": {"n": 8}}


def test_regimes_go_by_present_keys() -> None:
    one, all_of_it = Regime(7, ("toy|n=8",), moved=0.2), Regime(9)
    called = GenerationMapping(CALLED, BEFORE, CONTEXTS)
    assert called.regimes([one, all_of_it]) == (Regime(7, ("toy|m=8",), moved=0.2), all_of_it)
    merged = GenerationMapping(GONE, BEFORE, CONTEXTS)
    assert merged.regimes([one, all_of_it]) == (all_of_it,)
    both = Regime(8, ("toy|n=4", "toy|n=8"))
    assert merged.regimes([both]) == (Regime(8, ("toy|m=0",)),)


def test_estimates_begin_again_where_they_did_in_all_that_became_one() -> None:
    told: dict[str, list[tuple[int, float | None]]] = {
        "toy|n=8": [(9, None), (7, 0.2)],
        "toy|n=4": [(9, None)],
    }
    assert GenerationMapping(BEFORE, BEFORE, CONTEXTS).begun(told) == {
        "toy|n=8": [(7, 0.2), (9, None)],
        "toy|n=4": [(9, None)],
    }
    assert GenerationMapping(GONE, BEFORE, CONTEXTS).begun(told) == {"toy|m=0": [(9, None)]}


def test_what_was_found_out_passes_on_to_one_heir_alone() -> None:
    assert GenerationMapping(CALLED, BEFORE, CONTEXTS).passes_on("toy|n=8", "toy|m=8")
    assert not GenerationMapping(GONE, BEFORE, CONTEXTS).passes_on("toy|n=8", "toy|m=0")


def known() -> Rollout:
    return Rollout(
        incumbent="a1",
        established=True,
        level=1.0,
        uplift=UpliftTracker(
            0.2,
            {"b1": 0.1, "a2": 0.15},
            UntestedIncumbents("b1", 0.1, {"b2": 3, "a1": 4, "e1": 2}),
        ),
        duels={
            "c1": PairedTest(5, runs=3),
            "c2": PairedTest(6, runs=9),
            "a2": PairedTest(6, runs=2),
        },
        closed={"d1": 4, "d2": 8, "c3": 2, "e1": 1},
        probation=PromotionGuard("b1", level=0.9, noise=0.1),
        doubt=RollbackReview("d1", 0.9, 0.1, 0.05),
        verdicts=[RolloutResult("a1", "promoted", 3, "", 4, 0.1, 0.0)],
        formers=["b1", "b2", "a2"],
        recheck=["b2", "a2"],
        fallen=[
            SlowedIncumbent("b2", 1.5, 4),
            SlowedIncumbent("a2", 1.4, 2),
            SlowedIncumbent("e1", 1.3, 1),
        ],
        noise_squares=0.3,
        noise_weight=4.0,
    )


def test_all_ids_of_an_introduction_are_put_into_present_words() -> None:
    """Configurations that become one: the first letter is what is left of a name."""
    new = introduction_of(known(), lambda one: None if one[0] == "e" else f"new {one[0]}")
    assert (new.incumbent, new.established, new.level) == ("new a", True, 1.0)
    untested = UntestedIncumbents("new b", 0.1, {"new a": 4})
    assert new.uplift == UpliftTracker(0.2, {"new b": 0.1, "new a": 0.15}, untested)
    assert {cid: duel.runs for cid, duel in new.duels.items()} == {"new c": 9}
    assert new.closed == {"new d": 8}
    assert new.probation is not None
    assert new.probation.former == "new b"
    assert new.doubt is not None
    assert new.doubt.candidate_id == "new d"
    assert (new.formers, new.recheck) == (["new b"], ["new b"])
    assert new.fallen == [SlowedIncumbent("new b", 1.5, 4)]
    assert [one.candidate_id for one in new.verdicts] == ["new a"]


@pytest.mark.parametrize("letter", ["b", "d"])
def test_a_trial_of_strength_with_itself_is_none(letter: str) -> None:
    new = introduction_of(known(), lambda one: "a" if one[0] in ("a", letter) else one)
    assert (new.probation is None, new.doubt is None) == (letter == "b", letter == "d")


def test_without_its_incumbent_a_lead_begins_at_zero() -> None:
    new = introduction_of(known(), lambda one: None if one == "a1" else one)
    assert (new.incumbent, new.established, new.uplift) == (None, False, UpliftTracker())
    assert (new.duels, new.probation, new.doubt, new.level) == ({}, None, None, None)
    assert (new.closed, new.noise) == (known().closed, known().noise)


def test_a_campaign_counts_the_runs_of_what_became_one_together() -> None:
    asks = [
        PendingRuns("a1", {"x": 1, "z": 1}, 2),
        PendingRuns("a2", {"x": 1, "z": 2}, 1),
        PendingRuns("b", {"x": 9}, 3),
    ]
    campaign = Campaign(6, 1, 4, repeats=3, round=0, asks=asks, waits_since="then")
    new, dropped = campaign_of(
        campaign, lambda config: None if config["x"] == 9 else ("a", {"x": config["x"]})
    )
    # Of three runs one and two are done: none is missing.
    assert (new.asks, dropped) == ([PendingRuns("a", {"x": 1}, 0)], 1)
    assert (new.round, new.waits_since, new.repeats) == (0, "then", 3)
