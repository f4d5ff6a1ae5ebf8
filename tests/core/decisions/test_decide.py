"""What is said, and what is kept silent, from evidence and prospects alone."""

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunerd.core.decisions.context_state import ContextState
from tunerd.core.decisions.decide import decide
from tunerd.core.decisions.lifecycle import compose, is_news, worth_saying
from tunerd.core.evidence.config_stats import ConfigStatsTable, ScoreEstimate
from tunerd.core.evidence.decision_inputs import MeasuredConfig, RoundRequest, SearchCandidate
from tunerd.core.evidence.rollout import Rollout
from tunerd.core.observation import FeasibilityLabel
from tunerd.core.recommendation import Advice, Kind, MadeFrom, Recommendation, candidate_id
from tunerd.core.study import Study
from tunerd.core.study_file import parse_study
from tunerd.events import from_bytes, to_bytes

STUDY = parse_study(
    """
schema = 1
name = "s"
mode = "publish"
explore_share = 0.2
min_feasible = 0.8
[objective]
metric = "speed"
goal = "maximize"
unit = "1/s"
scale = "log"
[context]
n = { type = "int" }
[parameters]
x = { type = "int", values = [1, 2, 3, 4, 5, 6, 7, 8] }
y = { type = "int", values = [1, 2, 3, 4] }
"""
)
KEY = STUDY.context_key({"n": 1})
NOW = datetime(2026, 11, 1, tzinfo=UTC)


def config(x: int, y: int = 1) -> dict[str, int]:
    return {"x": x, "y": y}


def prospect(
    x: int, y: int = 1, mean: float | None = 0.0, feasible: float | None = 1.0
) -> SearchCandidate:
    return SearchCandidate(
        candidate_id=candidate_id("s", KEY, config(x, y)),
        config=config(x, y),
        mean=mean,
        spread=0.05,
        feasible=feasible,
    )


def tried(
    evidence: ConfigStatsTable, x: int, *scores: float, belief: ScoreEstimate | None = None
) -> MeasuredConfig:
    cid = candidate_id("s", KEY, config(x))
    for score in scores:
        evidence.add(
            cid, config(x), score, FeasibilityLabel.YES, unasked=True, sequence=evidence.jobs + 1
        )
    trial = evidence.trials[cid]
    sd = 0.05 / math.sqrt(trial.runs)
    return MeasuredConfig(cid, trial, belief or ScoreEstimate(trial.mean, sd), 1.0)


def message(advice: Advice, now: datetime = NOW) -> Recommendation:
    made = MadeFrom(sequence=1, model=None, study=STUDY.content_hash, seeds=(1,), tunerd="0")
    return compose(
        STUDY,
        KEY,
        ContextState({"n": 1}),
        advice,
        made,
        revision=1,
        now=now,
        valid=timedelta(days=7),
    )


def test_with_nothing_known_it_starts_at_random_within_the_explore_share() -> None:
    starts = [prospect(x, mean=None, feasible=None) for x in range(1, 9)]
    advice = decide(STUDY, ConfigStatsTable(), [], starts, None)
    assert len(advice.candidates) == 5
    assert {c.kind for c in advice.candidates} == {Kind.EXPLORE}
    assert all(c.predicted is None and c.gain is None for c in advice.candidates)
    assert advice.incumbent is None
    assert 0.19 < sum(c.share for c in advice.candidates) <= 0.2
    assert "Random start" in advice.reason


@pytest.mark.parametrize(("explore", "most"), [(0.2, 5), (0.4, 5), (0.8, 10), (1.0, 13)])
def test_where_most_jobs_explore_no_candidate_gets_many(explore: float, most: int) -> None:
    study: Study = replace(STUDY, explore_share=explore)
    starts = [prospect(x, y, mean=None, feasible=None) for x in range(1, 9) for y in (1, 2)]
    advice = decide(study, ConfigStatsTable(), [], starts, None)
    assert len(advice.candidates) == most
    assert max(c.share for c in advice.candidates) <= 0.08


def test_the_incumbent_is_the_best_estimate_and_not_the_luckiest_run() -> None:
    evidence = ConfigStatsTable()
    proven = tried(evidence, 1, *[1.00] * 9)
    lucky = tried(evidence, 2, 1.08)
    advice = decide(
        STUDY, evidence, [proven, replace(lucky, estimate=ScoreEstimate(1.03, 0.05))], [], None
    )
    assert advice.incumbent is not None
    assert advice.incumbent.config == config(1)
    assert advice.incumbent.jobs == 9
    assert [c.kind for c in advice.candidates] == [Kind.CONFIRM]
    assert advice.candidates[0].config == config(2)


@pytest.mark.parametrize("goal", ["maximize", "minimize"])
def test_nothing_is_a_share_of_an_incumbent_that_always_gave_0(
    goal: Literal["maximize", "minimize"],
) -> None:
    """Its estimate is a hair's breadth off; on a linear scale a gain over that was 3,908 %."""
    objective = replace(STUDY.objective, scale="linear", goal=goal)
    study: Study = replace(STUDY, objective=objective)
    evidence = ConfigStatsTable()
    nothing = tried(evidence, 1, *[0.0] * 9, belief=ScoreEstimate(-6e-10, 1e-3))
    maybe = tried(evidence, 2, 0.02, belief=ScoreEstimate(0.02, 0.05))
    found = [prospect(3, mean=0.5), prospect(4, mean=-0.5)]
    introduction = Rollout(incumbent=nothing.candidate_id, established=True)
    advice = decide(study, evidence, [nothing, maybe], found, None, introduction=introduction)
    assert advice.incumbent is not None
    assert str(advice.incumbent.median) == "0.0"
    assert advice.incumbent.low < 0 < advice.incumbent.high
    kinds = {c.config["x"]: (c.kind, c.gain) for c in advice.candidates}
    assert kinds == {2: (Kind.CONFIRM, None), 3: (Kind.EXPLOIT, None), 4: (Kind.EXPLORE, None)}
    assert "%" not in advice.reason
    assert "may as well give 0" in advice.reason
    some = replace(nothing, estimate=ScoreEstimate(0.1, 1e-3))
    told = decide(study, evidence, [some, maybe], found, None, introduction=introduction)
    assert all(c.gain is not None for c in told.candidates)
    assert "%" in told.reason


def test_better_predictions_are_exploited_and_worse_ones_only_explored() -> None:
    evidence = ConfigStatsTable()
    incumbent = tried(evidence, 1, *[1.0] * 5)
    better, worse = prospect(5, 1, mean=1.2), prospect(2, 3, mean=0.9)
    advice = decide(STUDY, evidence, [incumbent], [better, worse], None)
    kinds = {c.config["x"]: c.kind for c in advice.candidates}
    assert kinds == {5: Kind.EXPLOIT, 2: Kind.EXPLORE}
    gain = advice.candidates[0].gain
    assert gain is not None
    assert gain.median == pytest.approx(math.exp(0.2) - 1)
    assert gain.low < gain.median
    predicted = advice.candidates[0].predicted
    assert predicted is not None
    assert predicted.low < predicted.median < predicted.high


def test_what_was_tried_is_no_news_and_what_may_not_run_is_not_recommended() -> None:
    evidence = ConfigStatsTable()
    incumbent = tried(evidence, 1, *[1.0] * 5)
    advice = decide(
        STUDY,
        evidence,
        [incumbent],
        [prospect(1, mean=2.0), prospect(3, mean=2.0, feasible=0.79)],
        None,
    )
    assert advice.candidates == ()
    assert advice.incumbent is not None


def test_a_configuration_that_often_fails_is_no_incumbent() -> None:
    evidence = ConfigStatsTable()
    safe = tried(evidence, 1, *[1.0] * 5)
    fast = tried(evidence, 2, *[2.0] * 5)
    fast.trial.failures = 5
    advice = decide(STUDY, evidence, [safe, fast], [], None)
    assert advice.incumbent is not None
    assert advice.incumbent.config == config(1)


def test_what_was_drawn_at_random_is_not_what_was_found_as_well() -> None:
    found = [prospect(x, mean=1.0 - x / 10) for x in (1, 2)]
    drawn = [replace(prospect(x, mean=0.5), at_random=True) for x in (1, 1, 3, 3)]
    advice = decide(STUDY, ConfigStatsTable(), [], [*found, *drawn], None)
    assert [c.config for c in advice.candidates] == [config(1), config(2), config(3)]
    advice = decide(STUDY, ConfigStatsTable(), [], drawn, None)
    assert [c.config for c in advice.candidates] == [config(1), config(3)]


def test_a_profiling_round_asks_by_runs_and_not_by_share() -> None:
    wanted = RoundRequest(2, ((prospect(1, mean=1.0), 3), (prospect(2, mean=0.5), 1)))
    advice = decide(
        STUDY, ConfigStatsTable(), [], [prospect(1, mean=1.0), prospect(7, mean=0.9)], None, wanted
    )
    asked = [c for c in advice.candidates if c.wanted]
    assert [(c.config["x"], c.wanted, c.share, c.rank) for c in asked] == [
        (1, 3, 0, 1),
        (2, 1, 0, 2),
    ]
    assert advice.round == 2
    assert len({c.candidate_id for c in advice.candidates}) == len(advice.candidates)


def test_after_a_withdrawal_all_that_is_worth_saying_is_news() -> None:
    advice = decide(STUDY, ConfigStatsTable(), [], [prospect(1)], None)
    gone = message(advice).withdrawn(revision=2, issued_at=NOW, reason="over")
    assert is_news(STUDY, advice, gone)
    assert not worth_saying(replace(advice, candidates=(), incumbent=None))


def test_the_same_of_another_objective_is_news() -> None:
    advice = decide(STUDY, ConfigStatsTable(), [], [prospect(1)], None)
    other = replace(STUDY, objective=replace(STUDY.objective, metric="pace"))
    assert not is_news(STUDY, advice, message(advice))
    assert is_news(other, advice, message(advice))


@given(mean=st.floats(-1e4, 1e4), spread=st.floats(0, 1e4), rival=st.floats(-1e3, 1e3))
def test_whatever_is_believed_is_published_in_numbers(
    mean: float, spread: float, rival: float
) -> None:
    evidence = ConfigStatsTable()
    incumbent = tried(evidence, 8, rival, rival)
    guess = replace(prospect(1, mean=mean), spread=spread)
    advice = decide(STUDY, evidence, [incumbent], [guess], None)
    assert advice.candidates
    assert from_bytes(to_bytes(message(advice))).candidates == advice.candidates


@given(
    share=st.floats(0, 1),
    means=st.lists(st.floats(-3, 3), max_size=8, unique=True),
    goal=st.sampled_from(["maximize", "minimize"]),
)
def test_shares_never_pass_the_explore_share_and_bands_are_in_order(
    share: float, means: list[float], goal: str
) -> None:
    objective = replace(STUDY.objective, goal=goal)  # type: ignore[arg-type]
    study: Study = replace(STUDY, explore_share=share, objective=objective)
    evidence = ConfigStatsTable()
    incumbent = tried(evidence, 8, 0.0, 0.1)
    prospects = [prospect(x + 1, mean=m) for x, m in enumerate(means[:7])]
    advice = decide(study, evidence, [incumbent], prospects, None)
    assert sum(c.share for c in advice.candidates) <= share + 1e-12
    for c in advice.candidates:
        assert c.predicted is not None
        assert c.predicted.low <= c.predicted.median <= c.predicted.high
        assert c.gain is not None
        assert c.gain.low <= c.gain.median
        mean = next(p.mean for p in prospects if p.candidate_id == c.candidate_id)
        assert mean is not None
        assert (c.gain.median > 0) == (mean > incumbent.estimate.mean)


def served(*tested: float) -> tuple[ConfigStatsTable, list[MeasuredConfig], Rollout]:
    """A context with an incumbent that is at 1.0, and challengers with these leads in a duel."""
    evidence, introduction = ConfigStatsTable(), Rollout()
    rivals = [tried(evidence, 8, *[1.0] * 5)]
    rivals += [tried(evidence, x + 1, 1.0 + lead) for x, lead in enumerate(tested)]
    introduction.incumbent, introduction.established = rivals[0].candidate_id, True
    for rival, lead in zip(rivals[1:], tested, strict=True):
        introduction.see(rival.candidate_id, 1.0 + lead, evidence.jobs)
        introduction.see(rivals[0].candidate_id, 1.0, evidence.jobs)
    return evidence, rivals, introduction


def test_beside_an_incumbent_most_goes_to_what_is_tested_and_least_to_what_only_teaches() -> None:
    evidence, rivals, introduction = served(0.1, -0.4)
    prospects = [prospect(5, mean=1.3), prospect(6, mean=1.01), prospect(7, mean=0.9)]
    advice = decide(STUDY, evidence, rivals, prospects, None, introduction=introduction)
    shares = {c.config["x"]: (c.kind, c.share) for c in advice.candidates}
    assert shares[1][0] is Kind.CONFIRM
    assert shares[5][0] is Kind.EXPLOIT
    assert shares[6][0] is shares[7][0] is Kind.EXPLORE
    assert 2 not in shares  # ran here, and is most likely worse
    assert shares[1][1] == pytest.approx(2 * shares[5][1], rel=1e-3)
    assert shares[5][1] == pytest.approx(2 * shares[6][1], rel=1e-3)
    assert shares[6][1] == pytest.approx(4 * shares[7][1], rel=1e-3)  # predicted to be slower
    assert 0.19 < sum(share for _, share in shares.values()) <= 0.2
    assert "Tests what may be better" in advice.reason


def test_the_incumbent_is_kept_where_no_gain_is_certain_and_the_reason_says_so() -> None:
    evidence, rivals, introduction = served()
    unsure = replace(prospect(5, mean=1.05), spread=0.1)
    advice = decide(STUDY, evidence, rivals, [unsure], None, introduction=introduction)
    assert [c.kind for c in advice.candidates] == [Kind.EXPLORE]
    assert "Keep the incumbent: no gain is certain" in advice.reason
    assert "perhaps none" in advice.reason
    assert "No job here ran x=5: that it runs, and how well, is extrapolated." in advice.reason
    fails = replace(prospect(5, mean=1.2), spread=0.02, feasible=0.85)
    advice = decide(STUDY, evidence, rivals, [fails], None, introduction=introduction)
    assert "what is predicted better may not run" in advice.reason
    worse = replace(prospect(5, mean=0.5), spread=0.6)
    advice = decide(STUDY, evidence, rivals, [worse], None, introduction=introduction)
    assert "worse than the incumbent (5 runs)" in advice.reason
    sure = replace(prospect(5, mean=1.2), spread=0.02)
    advice = decide(STUDY, evidence, rivals, [sure], None, introduction=introduction)
    assert [c.kind for c in advice.candidates] == [Kind.EXPLOIT]
    careful = decide(
        STUDY, evidence, rivals, [sure], None, introduction=introduction, overrated=0.3
    )
    assert [c.kind for c in careful.candidates] == [Kind.EXPLORE]
    assert "30.0% taken off" in careful.reason


def test_where_nothing_is_likely_to_gain_less_is_spent_on_looking() -> None:
    evidence, rivals, introduction = served()
    slower = [prospect(x, mean=0.9) for x in range(1, 4)]
    advice = decide(STUDY, evidence, rivals, slower, None, introduction=introduction)
    assert 0.0 < sum(c.share for c in advice.candidates) < 0.25 * STUDY.explore_share
    failing = [prospect(x, mean=1.05, feasible=0.85) for x in range(1, 4)]
    again = decide(STUDY, evidence, rivals, failing, None, introduction=introduction)
    assert [c.share for c in again.candidates] == [c.share for c in advice.candidates]


def test_a_gain_is_not_certain_where_one_job_in_ten_may_fail() -> None:
    evidence, rivals, introduction = served()
    prospects = [prospect(1, mean=1.5, feasible=0.89), prospect(2, mean=1.5, feasible=0.91)]
    advice = decide(STUDY, evidence, rivals, prospects, None, introduction=introduction)
    kinds = {c.config["x"]: c.kind for c in advice.candidates}
    assert kinds == {1: Kind.EXPLORE, 2: Kind.EXPLOIT}


def test_a_former_incumbent_is_soon_run_again_after_a_drift() -> None:
    evidence, rivals, introduction = served()
    prospects = [prospect(x, mean=1.05) for x in range(1, 4)]
    prospects.append(replace(prospect(7, mean=0.8), again=True))
    advice = decide(STUDY, evidence, rivals, prospects, None, introduction=introduction)
    shares = {c.config["x"]: c.share for c in advice.candidates}
    assert shares[7] == pytest.approx(2 * shares[1], rel=1e-3)


@pytest.mark.parametrize("established", [True, False])
def test_a_former_incumbent_is_named_once_though_it_is_tested_or_leads_by_now(
    established: bool,
) -> None:
    evidence, rivals, introduction = served(0.5)
    tested, leads = rivals[-1], introduction.incumbent
    again = [
        replace(prospect(5), again=True, config=one.trial.config, candidate_id=one.candidate_id)
        for one in rivals
        if one is tested or one.candidate_id == leads
    ]
    introduction.established = established
    advice = decide(STUDY, evidence, rivals, again, None, introduction=introduction)
    assert [(c.candidate_id, c.kind) for c in advice.candidates] == [
        (tested.candidate_id, Kind.CONFIRM)
    ]


def test_a_better_looking_run_makes_no_incumbent_where_one_is_established() -> None:
    evidence, rivals, introduction = served(0.5)
    advice = decide(STUDY, evidence, rivals, [], None, introduction=introduction)
    assert advice.incumbent is not None
    assert advice.incumbent.config == config(8)
    assert [c.kind for c in advice.candidates] == [Kind.CONFIRM]


def test_where_nothing_has_run_and_nothing_is_likely_to_the_likeliest_is_tried() -> None:
    unlikely = [prospect(x, mean=1.0, feasible=x / 20) for x in range(1, 9)]
    advice = decide(STUDY, ConfigStatsTable(), [], unlikely, None)
    assert [c.config["x"] for c in advice.candidates] == [8, 7, 6, 5, 4]
    assert "Nothing is known that runs here" in advice.reason
    assert "at best with a probability of 40%" in advice.reason
    evidence, rivals, introduction = served()
    advice = decide(STUDY, evidence, rivals, unlikely[:7], None, introduction=introduction)
    assert advice.candidates == ()
