"""Who is promoted, who is withdrawn, and how often that is wrong however often one looks."""

import json
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tunerd.core.evidence.config_stats import ConfigStatsTable, ScoreEstimate
from tunerd.core.evidence.decision_inputs import MeasuredConfig
from tunerd.core.evidence.paired_tests import LEAST_RUNS
from tunerd.core.evidence.rollout import ESTABLISHED, PROMOTE, SECOND_LOOK, Rollout
from tunerd.core.evidence.sequential import log_odds, raised, start
from tunerd.core.observation import FeasibilityLabel

ALPHA = math.exp(-PROMOTE)


class Context:
    """One context whose jobs are looked at after each of them."""

    def __init__(self, incumbent: float = 0.0) -> None:
        self.evidence, self.introduction = ConfigStatsTable(), Rollout()
        self.sequence = 0
        for _ in range(ESTABLISHED):
            self.ran("old", incumbent)

    def ran(
        self,
        name: str,
        score: float | None,
        ran: FeasibilityLabel = FeasibilityLabel.YES,
        profiling: bool = False,
    ) -> str | None:
        self.sequence += 1
        self.evidence.add(name, {"x": name}, score, ran, unasked=False, sequence=self.sequence)
        self.introduction.see(name, score, self.sequence)
        return self.settle(profiling)

    def settle(self, profiling: bool = False, without: str = "") -> str | None:
        """``without`` what an operator forbids."""
        rivals = [
            MeasuredConfig(
                name, trial, ScoreEstimate(trial.mean, 0.05 / math.sqrt(trial.runs or 0.1)), 1.0
            )
            for name, trial in self.evidence.measured()
        ]
        return self.introduction.settle(
            [one for one in rivals if one.candidate_id not in without.split()],
            0.8,
            profiling=profiling,
            sequence=self.sequence,
            at="now",
            barred=[one for one in rivals if one.candidate_id in without.split()],
        )

    @property
    def outcomes(self) -> list[tuple[str, str]]:
        return [(one.candidate_id, one.outcome) for one in self.introduction.verdicts]


@pytest.mark.slow
@pytest.mark.parametrize("law", ["normal", "student", "stragglers", "lucky"])
def test_what_is_no_better_rarely_wins_however_often_one_looks(law: str) -> None:
    """Capital of who bets against a true claim, looked at after each of 200 steps."""
    rng = np.random.default_rng(1)
    draws = {
        "normal": rng.standard_normal((500, 200)),
        "student": rng.standard_t(3, (500, 200)) / math.sqrt(3),
        "stragglers": 1.0 - rng.exponential(1.0, (500, 200)),
        "lucky": rng.exponential(1.0, (500, 200)) - 1.0,
    }[law]
    won = 0
    for series in draws:
        logs, most = start(), 0.0
        for z in series:
            logs = raised(logs, float(z))
            most = max(most, log_odds(logs))
        won += most >= PROMOTE
    assert won / 500 <= ALPHA + 0.01


@pytest.mark.slow
@pytest.mark.parametrize(("law", "noise"), [("normal", 0.15), ("student", 0.01)])
def test_a_configuration_that_is_no_better_is_rarely_promoted(law: str, noise: float) -> None:
    """With noise that has to be found out, and one job in ten for the challenger."""
    rng = np.random.default_rng(3)
    promoted = 0
    runs = 150
    for _ in range(runs):
        context = Context(0.0)
        for i in range(300):
            luck = rng.standard_normal() if law == "normal" else rng.standard_t(3) / math.sqrt(3)
            name = "new" if i % 10 == 0 else "old"
            context.ran(name, noise * float(luck))
            if context.introduction.verdicts:
                break
        promoted += ("new", "promoted") in context.outcomes
    assert promoted / runs <= ALPHA + 0.03


@pytest.mark.slow
def test_a_clearly_better_one_is_promoted_after_few_runs() -> None:
    rng = np.random.default_rng(0)
    runs = []
    for _ in range(50):
        context = Context(float(rng.normal(0, 0.02)))
        for i in range(600):
            new = i % 10 == 0
            context.ran("new" if new else "old", 0.1 * new + float(rng.normal(0, 0.02)))
            if context.introduction.incumbent == "new":
                break
        assert context.introduction.incumbent == "new"
        runs.append(context.introduction.verdicts[0].runs)
        assert context.introduction.verdicts[0].gain == pytest.approx(0.1, abs=0.06)
        assert context.introduction.verdicts[0].cost < 0
    assert np.median(runs) <= 6


def test_what_comes_after_a_crowd_that_nobody_could_tell_apart_is_tested_all_the_same() -> None:
    """People had run dozens of configurations twice each, all as fast as the incumbent."""
    rng = np.random.default_rng(0)
    context = Context()
    for name in (f"own-{i}" for i in range(40)):
        for _ in range(2):
            context.ran(name, float(rng.normal(0, 0.02)))
            context.ran("old", float(rng.normal(0, 0.02)))
    assert len(context.introduction.duels) == 32
    for i in range(60):
        new = i % 10 == 0
        context.ran("new" if new else "old", 0.15 * new + float(rng.normal(0, 0.02)))
    assert ("new", "promoted") in context.outcomes


def test_a_clearly_worse_one_is_withdrawn_and_stays_away() -> None:
    rng = np.random.default_rng(0)
    context = Context()
    for i in range(200):
        new = i % 10 == 0
        context.ran("new" if new else "old", -0.3 * new + float(rng.normal(0, 0.02)))
    assert context.outcomes == [("new", "withdrawn")]
    assert context.introduction.verdicts[0].runs <= 3
    assert context.introduction.verdicts[0].cost > 0.2
    assert "new" not in context.introduction.duels


def test_a_cluster_that_slows_down_promotes_and_withdraws_nobody() -> None:
    rng = np.random.default_rng(5)
    context = Context()
    for i in range(400):
        level = 0.0 if i < 200 else -0.25
        context.ran("new" if i % 10 == 0 else "old", level + float(rng.normal(0, 0.02)))
    assert context.introduction.incumbent == "old"
    assert context.introduction.noise < 0.04
    assert "promoted" not in {outcome for _, outcome in context.outcomes}


def test_what_was_fast_in_its_test_and_is_slow_after_it_gives_way_to_the_former() -> None:
    rng = np.random.default_rng(7)
    context = Context()
    slow = 0
    for i in range(400):
        name = context.introduction.incumbent if i % 10 else "new"
        fast = name == "new" and "new" not in dict(context.outcomes)
        worth = 0.05 if fast else -0.3 if name == "new" else 0.0
        slow += name == "new" and not fast and i % 10 > 0
        context.ran(str(name), worth + float(rng.normal(0, 0.02)))
    assert context.introduction.incumbent == "old"
    assert ("new", "returned") in context.outcomes
    assert slow <= 10


def test_what_fails_is_withdrawn_at_once() -> None:
    context = Context()
    context.ran("new", 0.2)
    context.ran("old", 0.0)
    context.ran("new", None, FeasibilityLabel.NO)
    assert context.outcomes == [("new", "failed")]


def test_while_a_campaign_profiles_the_best_estimate_is_the_incumbent() -> None:
    context = Context()
    for _ in range(3):
        context.ran("new", 0.2)  # the incumbent does not run beside it: nothing to compare
    assert context.introduction.incumbent == "old"
    assert context.settle(profiling=True) == "new"


def test_drift_opens_closed_questions_again() -> None:
    context = Context()
    for i in range(20):
        context.ran("new" if i % 5 == 0 else "old", -0.3 * (i % 5 == 0))
    assert "new" in context.introduction.closed
    context.introduction.reopen(context.sequence)
    assert not context.introduction.closed


@pytest.mark.parametrize("after", [0, 1])
def test_a_test_that_began_with_the_drift_goes_on(after: int) -> None:
    """Of a drift that is noticed twice, or late, it has seen nothing but the present."""
    context = Context()
    context.ran("new", 0.2)
    since = context.sequence + after
    for _ in range(2):
        context.ran("old", 0.0)
        context.ran("new", 0.2)
    context.introduction.reopen(context.sequence, since=since)
    assert ("new" in context.introduction.duels) == (not after)


def promoted(slow_after: float) -> Context:
    """A context with a new incumbent, after the first 3 jobs of its probation; one of them was
    slower by this."""
    rng = np.random.default_rng(3)
    context = Context()
    while ("new", "promoted") not in context.outcomes:
        for name in ("new", "old", "old"):
            context.ran(name, 0.1 * (name == "new") + float(rng.normal(0, 0.02)))
    for i in range(3):
        context.ran("new", 0.1 - slow_after * (i % 2) + float(rng.normal(0, 0.02)))
    return context


def test_what_looks_like_drift_and_began_with_a_promotion_brings_the_former_back() -> None:
    """Half of the runs of what serves now are slower: predictions are off, a drift is reported."""
    context = promoted(slow_after=0.35)
    assert context.introduction.incumbent == "new"
    context.introduction.reopen(context.sequence, "then")
    assert context.introduction.incumbent == "old"
    assert context.outcomes[-1] == ("new", "returned")
    assert context.introduction.recheck == ["new"]  # nothing is settled: it is run again
    assert context.introduction.uplift.ahead == pytest.approx(0.0)


def test_what_keeps_up_stays_through_a_drift_and_goes_on_having_to_prove_itself() -> None:
    context = promoted(slow_after=0.0)
    context.introduction.reopen(context.sequence)
    assert context.introduction.incumbent == "new"
    assert context.introduction.recheck == ["old"]
    for i in range(12):
        context.ran("new", 0.1 - 0.35 * (i % 2))
    assert context.introduction.incumbent == "old"
    assert context.outcomes[-1] == ("new", "returned")


def test_a_new_incumbent_is_soon_back_where_the_whole_cluster_slowed_down() -> None:
    rng = np.random.default_rng(4)
    context = promoted(slow_after=0.0)
    away = 0
    for _ in range(60):
        name = str(context.introduction.incumbent)
        away += name != "new"
        context.ran(name, (0.1 if name == "new" else 0.0) - 0.25 + float(rng.normal(0, 0.02)))
    assert ("new", "returned") in context.outcomes
    assert context.introduction.incumbent == "new"
    assert away == SECOND_LOOK
    assert context.introduction.uplift.ahead == pytest.approx(
        context.introduction.verdicts[0].gain, 0.2
    )


def test_one_straggler_is_no_slower_cluster() -> None:
    """What is slow in half of its runs gave way, and stays away."""
    rng = np.random.default_rng(4)
    context = promoted(slow_after=0.0)
    while context.introduction.incumbent == "new":
        context.ran("new", 0.1 - 0.35 * (context.sequence % 2) + float(rng.normal(0, 0.02)))
    context.introduction = Rollout.load(json.loads(json.dumps(context.introduction.dump())))
    for i in range(20):
        context.ran("old", -0.5 * (i == 1) + float(rng.normal(0, 0.02)))
    assert context.introduction.incumbent == "old"
    assert context.outcomes[-1] == ("new", "returned")


def test_what_was_taken_back_says_what_all_of_its_jobs_lost() -> None:
    context = promoted(slow_after=0.35)
    probation = context.introduction.probation
    assert probation is not None
    lost = probation.level - probation.mean
    context.introduction.reopen(context.sequence)
    verdict = context.introduction.verdicts[-1]
    assert (verdict.outcome, verdict.runs) == ("returned", 3)
    assert verdict.gain == pytest.approx(-lost)
    assert verdict.cost == pytest.approx(3 * lost)
    assert lost == pytest.approx(0.35 / 3 - 0.1, abs=0.05)  # one of the three was slow


@pytest.mark.parametrize("runs", [1, ESTABLISHED])
def test_limits_that_come_and_go_add_up(runs: int) -> None:
    """After one run it is no incumbent beside the other, after three it stays."""
    context = Context()
    for i in range(runs):
        context.evidence.add(
            "new", {"x": "new"}, 0.5, FeasibilityLabel.YES, unasked=True, sequence=9 + i
        )
    assert context.settle() == "old"
    for _ in range(3):
        assert context.settle(without="old") == "new"
        assert context.introduction.uplift.ahead == pytest.approx(0.5)
        assert context.settle() == ("old" if runs == 1 else "new")
        context.ran("old", -0.01)  # what it is believed to give has moved
        assert context.settle(without="new") == "old"
        assert context.introduction.uplift.ahead == 0.0


def test_what_nothing_was_left_beside_is_still_compared_with_the_one_before() -> None:
    context = Context()
    assert context.settle(without="old") is None
    assert context.introduction.uplift.ahead == 0.0
    context.evidence.add("new", {"x": "new"}, 0.5, FeasibilityLabel.YES, unasked=True, sequence=9)
    state = json.loads(json.dumps(context.introduction.dump()))
    context.introduction = Rollout.load(state)
    assert context.settle(without="old") == "new"
    assert context.introduction.uplift.ahead == pytest.approx(0.5)
    assert context.settle(without="new") == "old"
    assert context.introduction.uplift.ahead == 0.0


def test_what_won_its_place_back_is_as_far_ahead_as_it_was() -> None:
    context = Context()
    for _ in range(ESTABLISHED):
        context.evidence.add(
            "new", {"x": "new"}, 0.5, FeasibilityLabel.YES, unasked=True, sequence=9
        )
    assert context.settle(without="old") == "new"  # by an order, and it is no better
    while context.introduction.incumbent == "new":
        context.ran("new", -0.1)
        context.ran("old", 0.0)
    assert context.outcomes == [("old", "promoted")]
    assert context.introduction.uplift.ahead == 0.0


@pytest.mark.parametrize(("kept_up", "promoted_after"), [(True, 2), (False, LEAST_RUNS)])
def test_what_did_not_keep_up_once_needs_its_runs_again_after_a_change(
    kept_up: bool, promoted_after: int
) -> None:
    """Two lucky runs prove nothing of what is slow in half of them."""
    rng = np.random.default_rng(3)
    context = Context()
    while ("new", "promoted") not in context.outcomes:
        for name in ("new", "old", "old"):
            context.ran(name, 0.1 * (name == "new") + float(rng.normal(0, 0.02)))
    for i in range(20):
        slower = 0.0 if kept_up else 0.35 * (i % 2)
        context.ran("new", 0.1 - slower + float(rng.normal(0, 0.02)))
    assert context.introduction.incumbent == ("new" if kept_up else "old")
    for _ in range(60):
        context.ran("third", 0.2 + float(rng.normal(0, 0.02)))  # the one that falls
    fell = context.sequence + 1
    for _ in range(4):
        context.ran("third", -0.4 + float(rng.normal(0, 0.02)))
    context.evidence.begin_again(fell, -0.6)
    context.introduction.reopen(context.sequence, since=fell)
    runs = 0
    while context.introduction.incumbent != "new" and runs < 20:
        runs += 1
        context.ran("new", 0.1 + float(rng.normal(0, 0.01)))
        context.ran("third", -0.4 + float(rng.normal(0, 0.01)))
    assert runs == promoted_after


def test_what_gave_way_in_a_campaign_is_run_again_after_a_drift() -> None:
    context = profiled(0, 0.2)
    context.introduction.reopen(context.sequence)
    assert context.introduction.incumbent == "new-7"
    assert context.introduction.recheck[0] == "old"


def profiled(seed: int, gain: float) -> Context:
    """A context after a campaign that ran 24 configurations three times each, one of them so much
    better than all others, which are equally fast."""
    rng = np.random.default_rng(seed)
    context = Context()
    for _ in range(17):
        context.ran("old", float(rng.normal(0, 0.05)))
    for name in (f"new-{i}" for i in range(24)):
        for _ in range(3):
            score = gain * (name == "new-7") + float(rng.normal(0, 0.05))
            context.ran(name, score, profiling=True)
    return context


@pytest.mark.slow
@pytest.mark.parametrize("gain", [0.0, 0.2])
def test_what_a_campaign_found_is_no_farther_ahead_than_it_is(gain: float) -> None:
    """Each incumbent was the luckiest of its time, and none was held against the one before."""
    rng = np.random.default_rng(1)
    found = []
    for seed in range(20):
        context = profiled(seed, gain)
        for _ in range(60):
            name = str(context.introduction.incumbent)
            context.ran(name, gain * (name == "new-7") + float(rng.normal(0, 0.05)))
        found.append(context.introduction.uplift.ahead)
    assert np.mean(found) == pytest.approx(gain, abs=0.015)


def test_what_a_campaign_found_is_settled_once_it_ran_for_long() -> None:
    """By then a slower cluster, which the former incumbent never met, would tell against it."""
    context = profiled(0, 0.2)
    assert context.introduction.incumbent == "new-7"
    for _ in range(60):
        context.ran("new-7", 0.2)
    settled = context.introduction.uplift.ahead
    for _ in range(60):
        context.ran("new-7", -0.2)
    assert context.introduction.uplift.ahead == settled == pytest.approx(0.2, abs=0.03)


def test_a_campaign_that_was_saved_half_way_goes_on_as_it_was() -> None:
    context = profiled(0, 0.2)
    state = json.loads(json.dumps(context.introduction.dump()))
    assert Rollout.load(state) == context.introduction


@pytest.mark.slow
def test_what_is_often_slow_is_rarely_promoted_and_never_for_long() -> None:
    """Half of its runs are 30 % slower; it shows no noise before the first of them."""
    rng = np.random.default_rng(8)
    served, contexts = [], 150
    for _ in range(contexts):
        context = Context()
        for i in range(200):
            name = context.introduction.incumbent if i % 10 else "new"
            worth = 0.1 + (math.log(0.7) if rng.random() < 0.5 else 0.0) if name == "new" else 0.0
            context.ran(str(name), worth + float(rng.normal(0, 0.02)))
        served.append(context.outcomes)
    won = sum(("new", "promoted") in outcomes for outcomes in served)
    kept = sum(outcomes[-1:] == [("new", "promoted")] for outcomes in served)
    assert won / contexts <= 0.12
    assert kept == 0


def kept(draw: Callable[[np.random.Generator], float], seeds: int = 40) -> int:
    """How many of some new incumbents, equally fast until then, outlast their probation."""
    found = 0
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        context = promoted(slow_after=0.0)
        while context.introduction.probation is not None:
            context.ran("new", draw(rng))
        found += context.introduction.incumbent == "new"
    return found


def test_what_is_a_little_slower_in_half_of_its_runs_gives_way() -> None:
    """It gains on average, and its slow half stays within two standard deviations of a run."""

    def score(rng: np.random.Generator) -> float:
        return (0.28 if rng.random() < 0.5 else -0.06) + float(rng.normal(0, 0.02))

    assert kept(score) <= 4


@pytest.mark.slow
def test_what_is_as_fast_as_the_former_mostly_stays() -> None:
    assert kept(lambda rng: float(rng.standard_t(3)) * 0.02) >= 36


@settings(max_examples=30, deadline=None)
@given(
    jobs=st.lists(st.tuples(st.sampled_from(["old", "a", "b"]), st.floats(-2, 2)), max_size=60),
    cut=st.integers(0, 60),
)
def test_saved_and_loaded_it_goes_on_exactly_as_it_was(
    jobs: list[tuple[str, float]], cut: int
) -> None:
    whole, halved = Context(), Context()
    for i, (name, score) in enumerate(jobs):
        whole.ran(name, score)
        if i == cut:
            state = json.loads(json.dumps(halved.introduction.dump()))
            halved.introduction = Rollout.load(state)
        halved.ran(name, score)
    assert whole.introduction == halved.introduction
