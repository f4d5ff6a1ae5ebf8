"""What repeats say of a configuration, and what a single lucky run must not."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunerd.core.evidence.config_stats import (
    FORGOTTEN,
    MAX_TRIALS,
    ConfigStats,
    ConfigStatsTable,
    ScoreEstimate,
    Z,
    estimate,
    estimates,
)
from tunerd.core.observation import FeasibilityLabel


def add(
    evidence: ConfigStatsTable,
    cid: str,
    *scores: float | None,
    ran: FeasibilityLabel = FeasibilityLabel.YES,
    unasked: bool = True,
) -> None:
    for score in scores:
        evidence.add(cid, {"x": cid}, score, ran, unasked=unasked, sequence=evidence.jobs + 1)


def test_repeats_are_pooled_by_how_long_they_were_measured() -> None:
    evidence = ConfigStatsTable()
    add(evidence, "a", 1.0, 2.0, 4.5)
    trial = evidence.trials["a"]
    assert trial.runs == 3
    assert trial.mean == pytest.approx(2.5)
    assert trial.sureness == pytest.approx(3.0)
    evidence.add("b", {}, 1.0, FeasibilityLabel.YES, unasked=True, sequence=4)
    evidence.add("b", {}, 2.0, FeasibilityLabel.YES, unasked=True, sequence=5, weight=0.25)
    assert evidence.trials["b"].mean == pytest.approx(1.2)
    assert evidence.trials["b"].sureness == pytest.approx(1.25)


@pytest.mark.parametrize("wild", [-3.0, 3.0])
@pytest.mark.parametrize("place", range(6))
def test_one_wild_run_moves_neither_the_estimate_nor_the_noise_far(wild: float, place: int) -> None:
    scores = [1.0, 1.02, 0.98, 1.01, 0.99, 1.0]
    calm, struck = ConfigStatsTable(), ConfigStatsTable()
    add(calm, "a", *scores)
    scores[place] += wild
    add(struck, "a", *scores)
    assert abs(struck.trials["a"].mean - calm.trials["a"].mean) < 0.02
    assert struck.trials["a"].sureness < calm.trials["a"].sureness - 0.5
    assert struck.noise() < 2.5 * calm.noise()


def test_repeats_that_mostly_say_the_same_are_not_without_noise() -> None:
    """As of a metric in whole numbers."""
    evidence = ConfigStatsTable()
    add(
        evidence,
        "a",
        *(np.round(20 + 0.4 * np.random.default_rng(0).normal(size=60)) / 20).tolist(),
    )
    assert np.median(evidence.apart) == 0.0
    assert 0.01 < evidence.seen_noise() < 0.04


def test_a_run_that_was_wild_stays_cut_when_it_is_no_longer_kept() -> None:
    evidence = ConfigStatsTable()
    rng = np.random.default_rng(0)
    add(evidence, "a", 1.0, 1.01, 6.0, *(1.0 + 0.01 * rng.normal(size=20)).tolist())
    assert evidence.trials["a"].mean == pytest.approx(1.0, abs=0.02)


def test_a_slow_drift_is_no_noise() -> None:
    evidence = ConfigStatsTable()
    add(evidence, "a", *(1.0 - 0.01 * i for i in range(60)))
    assert evidence.seen_noise() < 0.02


def test_one_lucky_run_does_not_pass_many_good_ones() -> None:
    lucky = ConfigStats({"x": 1}, runs=1, mean=0.30)
    proven = ConfigStats({"x": 2}, runs=8, mean=0.20)
    expected, spread, noise = 0.10, 0.05, 0.10
    assert (
        estimate(lucky, noise, expected, spread).mean
        < estimate(proven, noise, expected, spread).mean
    )


def test_two_runs_that_contradict_each_other_are_no_sure_estimate() -> None:
    """One of 191 and one of 699,710 were told as 10,079 (9,825 to 10,339)."""
    evidence = ConfigStatsTable()
    for name in "abcdefgh":
        add(evidence, name, 5.0, 5.02, 5.01)
    add(evidence, "slip", math.log(191.0), math.log(699_710.0))
    noise, expected = evidence.noise(), 5.2
    belief = estimate(evidence.trials["slip"], noise, expected, 10.0)
    assert belief.mean - Z * belief.sd < math.log(191.0)
    assert belief.mean + Z * belief.sd > math.log(699_710.0)
    near = estimate(evidence.trials["slip"], noise, expected, 0.1)
    assert near.mean == pytest.approx(expected, abs=0.01)
    usual = evidence.trials["a"]
    assert estimate(usual, noise, 5.0, 0.1).sd <= noise / math.sqrt(usual.sureness)


@pytest.mark.slow
@given(
    runs=st.integers(1, 50),
    mean=st.floats(-5, 5),
    noise=st.floats(0.001, 1),
    expected=st.floats(-5, 5),
    spread=st.floats(0.001, 1),
)
def test_an_estimate_lies_between_its_sources_and_is_surer_than_either(
    runs: int, mean: float, noise: float, expected: float, spread: float
) -> None:
    belief = estimate(ConfigStats({}, runs=runs, mean=mean), noise, expected, spread)
    low, high = sorted((mean, expected))
    assert low - 1e-9 <= belief.mean <= high + 1e-9
    assert belief.sd <= min(spread, noise / math.sqrt(runs)) + 1e-12


def test_noise_is_learned_from_repeats_and_starts_at_the_prior() -> None:
    quiet, loud = ConfigStatsTable(), ConfigStatsTable()
    assert quiet.noise() == pytest.approx(0.05)
    for i in range(40):
        add(quiet, f"c{i}", 1.0, 1.001)
        add(loud, f"c{i}", 1.0, 1.6)
    assert quiet.noise() < 0.02
    assert loud.noise() > 0.3


def test_a_job_that_breaks_a_guard_counts_as_failed_and_teaches_no_speed() -> None:
    evidence = ConfigStatsTable()
    add(evidence, "a", 9.0, ran=FeasibilityLabel.NO)
    assert evidence.measured() == []
    assert evidence.trials["a"].run_share == 0.0


def test_the_usual_configuration_is_what_unasked_jobs_use_most() -> None:
    evidence = ConfigStatsTable()
    add(evidence, "rare", 1.0)
    add(evidence, "often", 1.0, 1.0)
    add(evidence, "followed", 1.0, 1.0, 1.0, unasked=False)
    assert evidence.usual({}) == {"x": "often"}
    assert evidence.usual({"x": "rare"}) == {"x": "rare"}
    assert evidence.usual({"x": "never"}) is None


def test_memory_is_bounded_and_the_best_stays() -> None:
    evidence = ConfigStatsTable()
    add(evidence, "best", 100.0)
    for i in range(MAX_TRIALS + 200):
        add(evidence, f"c{i}", float(-i))
    # One too many makes room for the next ones; 200 more came after the first that was.
    assert len(evidence.trials) == MAX_TRIALS + 1 - FORGOTTEN + 200 % FORGOTTEN <= MAX_TRIALS
    assert "best" in evidence.trials
    assert evidence.jobs == MAX_TRIALS + 201


def test_a_change_leaves_what_was_known_and_says_nothing_of_what_did_not_run_since() -> None:
    evidence = ConfigStatsTable()
    add(evidence, "one", 1.0, 1.0, 1.0)
    add(evidence, "two", 0.2)
    evidence.begin_again(5, -0.3)
    assert {name: trial.mean for name, trial in evidence.measured()} == {"one": 1.0, "two": 0.2}
    assert not evidence.begun  # nothing ran since
    add(evidence, "one", 0.8, 0.8)
    evidence.begin_again(5, -0.2)
    one, two = evidence.trials["one"], evidence.trials["two"]
    assert (one.mean, one.runs, two.runs) == (0.8, 2, 0)
    assert one.former is not None
    assert one.former[0] == 1.0
    assert two.former is not None
    assert two.former[0] == 0.2
    moved, sd = evidence.moves()["two"]
    assert -0.2 < moved < 0.0
    assert sd > 0.05  # it may have stayed where it was


def test_an_alarm_soon_after_another_is_about_the_same_change() -> None:
    """The first was dated wrongly: what the incumbent gave before is not forgotten for it."""
    evidence = ConfigStatsTable()
    add(evidence, "one", *[1.0] * 10)
    add(evidence, "one", *[0.5] * 3)
    evidence.begin_again(9, -0.25)
    add(evidence, "one", *[0.5] * 4)
    evidence.begin_again(11, -0.25)
    one = evidence.trials["one"]
    assert one.former is not None
    assert one.former[0] == pytest.approx(1.0)
    assert one.mean == 0.5


@pytest.mark.slow
@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(-1e6, 1e6)), max_size=30))
def test_state_survives_json_exactly(jobs: list[tuple[str, float]]) -> None:
    evidence = ConfigStatsTable()
    for cid, score in jobs:
        add(evidence, cid, score)
    again = ConfigStatsTable.load(json.loads(json.dumps(evidence.dump())))
    assert again.trials == evidence.trials
    assert again.noise() == evidence.noise()


def test_estimates_pair_predictions_with_trials() -> None:
    trials = [ConfigStats({}, runs=1, mean=1.0), ConfigStats({}, runs=4, mean=2.0)]
    both = estimates(trials, 0.1, np.array([1.0, 2.0]), np.array([0.1, 0.1]))
    assert [round(b.mean, 6) for b in both] == [1.0, 2.0]
    assert isinstance(both[0], ScoreEstimate)
    assert both[1].sd < both[0].sd


def test_who_learns_history_anew_comes_to_what_a_drift_left() -> None:
    """Older runs say what configurations gave before it, and later ones what they give now."""
    evidence = ConfigStatsTable()
    add(evidence, "one", 1.0, 1.0, 1.0)
    add(evidence, "two", 0.2)
    evidence.begin_again(5, -0.3, history=True)
    told = {name: (round(trial.mean, 9), trial.runs) for name, trial in evidence.measured()}
    assert told == {"one": (0.7, 0), "two": (-0.1, 0)}
    add(evidence, "one", 0.6, 0.6)
    one = evidence.trials["one"]
    assert (one.runs, one.mean) == (2, 0.6)
    evidence.begin_again(9, None, history=True)
    add(evidence, "two", 0.5)
    assert [(name, trial.runs) for name, trial in evidence.measured()] == [("one", 0), ("two", 1)]
    again = ConfigStatsTable.load(json.loads(json.dumps(evidence.dump())))
    assert again.begun == evidence.begun == [(5, -0.3), (9, None)]
    assert again.trials == evidence.trials
