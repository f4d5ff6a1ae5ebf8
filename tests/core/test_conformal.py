"""Bands hold what they promise, whatever the spread they are given."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from tests.core.tuning import Inline, random_jobs, steps, study
from tunerd.core.arrays import BoolArray, FloatArray
from tunerd.core.conformal import HALF, STANDINGS, ConformalBands
from tunerd.core.predictors.out_of_fold import OutOfFoldPredictions
from tunerd.core.tuner import Tuner

KEYS = ("a", "b", "c", "d")


class Played:
    """Bands over a stream, in steps of ten."""

    def __init__(self, bands: ConformalBands | None = None) -> None:
        self.bands = bands or ConformalBands()
        self.held: list[bool] = []
        self.widths: list[float] = []

    def play(
        self,
        score: FloatArray,
        spread: FloatArray,
        tried: BoolArray | None = None,
        keys: tuple[str, ...] = KEYS,
    ) -> "Played":
        """The model says 0 ± spread of every job."""
        n = len(score)
        tried = np.ones(n, np.bool_) if tried is None else tried
        for start in range(0, n, 10):
            at = slice(start, start + 10)
            some = [keys[i % len(keys)] for i in range(n)[at]]
            zero = np.zeros(len(some))
            mean, sd = self.bands.adjusted(some, zero, spread[at], tried[at])
            self.held += (np.abs(score[at] - mean) <= HALF * sd).tolist()
            self.widths += (2 * HALF * sd).tolist()
            self.bands.learn(some, zero, spread[at], score[at], tried[at])
        return self

    def share(self, since: int = 0, to: int | None = None) -> float:
        return float(np.mean(self.held[since:to]))


@pytest.mark.parametrize("wrong_by", [0.05, 1.0, 30.0])
@pytest.mark.parametrize("law", ["normal", "laplace", "t3"])
def test_exchangeable_jobs_are_held_as_promised(wrong_by: float, law: str) -> None:
    rng = np.random.default_rng(3)
    draws = {
        "normal": lambda: rng.normal(size=3_000),
        "laplace": lambda: rng.laplace(size=3_000),
        "t3": lambda: rng.standard_t(3, size=3_000),
    }
    played = Played().play(draws[law](), np.full(3_000, wrong_by))
    assert 0.77 <= played.share(since=200) <= 0.83


@pytest.mark.parametrize("wrong_by", [0.03, 1.0, 30.0])
def test_a_portion_moves_a_band_no_further_than_its_jobs_say(wrong_by: float) -> None:
    """One band judged a whole portion and moved once for each of its jobs: after 6,000 at once it
    went from 0 to 1e300."""
    rng = np.random.default_rng(1)
    n = 6_000
    score, bands = rng.normal(size=n), ConformalBands()
    keys, tried = [KEYS[i % 4] for i in range(n)], np.ones(n, np.bool_)
    bands.learn(KEYS, None, None, np.zeros(4), tried[:4])
    mean, spread = bands.learn(keys, np.zeros(n), np.full(n, wrong_by), score, tried)
    held = np.abs(score - mean) <= HALF * spread
    assert 0.77 <= held[200:].mean() <= 0.83
    after = bands.adjusted(KEYS, np.zeros(4), np.full(4, wrong_by), tried[:4])[1]
    assert np.all((after > 0.7) & (after < 1.5))


def test_a_new_context_stays_one_to_the_model_for_the_whole_portion() -> None:
    bands = ConformalBands()
    one = np.ones(50)
    bands.learn(["new"] * 50, 0 * one, one, one, np.zeros(50, np.bool_))
    assert bands.dump()["factors"]["strange"][3] == 50
    assert bands.dump()["factors"]["new"][3] == 0


def test_new_configurations_have_a_size_of_their_own() -> None:
    """One job in eight is new and off by four times as much: one factor for all would hold nearly
    all of the others and few of these."""
    rng = np.random.default_rng(0)
    new = rng.random(4_000) < 1 / 8
    score = rng.normal(size=4_000) * np.where(new, 4.0, 1.0)
    held = np.array(Played().play(score, np.ones(4_000), ~new).held)
    assert 0.75 <= held[500:][new[500:]].mean() <= 0.85
    assert 0.77 <= held[500:][~new[500:]].mean() <= 0.83


def test_a_context_of_its_own_kind_is_told_from_the_others() -> None:
    rng = np.random.default_rng(1)
    wild = np.arange(4_000) % 4 == 0  # context a
    score = rng.normal(size=4_000) * np.where(wild, 3.0, 1.0)
    held = np.array(Played().play(score, np.ones(4_000)).held)
    assert 0.74 <= held[1_000:][wild[1_000:]].mean() <= 0.84
    assert 0.76 <= held[1_000:][~wild[1_000:]].mean() <= 0.84


def test_a_shape_that_the_spread_has_is_kept() -> None:
    bands = Played().play(np.random.default_rng(0).normal(size=500), np.full(500, 0.1)).bands
    _, spread = bands.adjusted(["a", "a"], np.zeros(2), np.array([1.0, 5.0]), np.ones(2, np.bool_))
    assert spread[1] == pytest.approx(5 * spread[0])


@pytest.mark.parametrize("everywhere", [False, True])
def test_after_an_alarm_the_mean_follows_and_the_band_widens(everywhere: bool) -> None:
    rng = np.random.default_rng(2)
    played = Played().play(rng.normal(0, 0.05, 800), np.full(800, 0.05))
    quiet = np.mean(played.widths[-100:])
    shifted = rng.normal(-0.3, 0.05, 400)
    played.play(shifted[:40], np.full(40, 0.05))
    assert played.share(since=800, to=810) == 0.0
    played.bands.alarm(None if everywhere else KEYS)
    mean, spread = played.bands.adjusted(["a"], np.zeros(1), np.array([0.05]), np.array([True]))
    assert mean[0] < -0.15
    assert spread[0] > quiet / (2 * HALF)
    played.play(shifted[40:], np.full(360, 0.05))
    assert played.share(since=880) > 0.72
    assert 0.74 <= played.share(since=900, to=1_200) <= 0.92


@pytest.mark.slow
@pytest.mark.parametrize("alarmed", [False, True])
@pytest.mark.parametrize("wrong_by", [8.0, 1 / 8])
def test_bands_come_back_from_too_narrow_and_from_too_wide(wrong_by: float, alarmed: bool) -> None:
    """The model is worse, or better, at once than its spreads say, and later as it was."""
    came, went = [], []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        played = Played().play(rng.normal(0, 0.05, 500), np.full(500, 0.05))
        if alarmed:
            played.bands.alarm()
        played.play(rng.normal(0, 0.05 * wrong_by, 300), np.full(300, 0.05))
        if alarmed:
            played.bands.calm()
        played.play(rng.normal(0, 0.05, 150), np.full(150, 0.05))
        came += played.held[550:650]
        went += played.held[850:950]
    assert 0.74 <= np.mean(came) <= 0.86
    assert 0.74 <= np.mean(went) <= 0.86


def test_an_alarm_that_is_wrong_costs_little() -> None:
    quiet, alarmed = (Played() for _ in range(2))
    for played in (quiet, alarmed):
        rng = np.random.default_rng(0)
        played.play(rng.normal(size=400), np.ones(400))
        if played is alarmed:
            played.bands.alarm()
        played.play(rng.normal(size=400), np.ones(400))
    assert 0.75 <= alarmed.share(since=450) <= 0.85
    assert np.mean(alarmed.widths[400:]) < 1.35 * np.mean(quiet.widths[400:])


def test_when_it_is_over_nothing_is_shifted_or_widened() -> None:
    played = Played().play(np.full(200, -0.3), np.full(200, 0.05))
    say = ["a"], np.zeros(1), np.array([0.05]), np.array([True])
    before = played.bands.adjusted(*say)
    played.bands.alarm(["a"])
    assert played.bands.adjusted(*say)[0][0] < -0.1
    assert played.bands.adjusted(["b"], *say[1:])[0][0] == 0.0
    played.bands.calm(["a"])
    assert played.bands.adjusted(*say) == before
    played.bands.alarm()
    played.bands.calm()
    assert played.bands.adjusted(*say) == before


def test_a_new_context_starts_from_the_study_and_a_strange_one_from_what_was_left_out() -> None:
    bands = ConformalBands()
    bands.start({"strange": (6.0, 12), "early": (3.0, 12), "new": (1.5, 50), "tried": (0.5, 50)})
    one, again = np.ones(1), np.ones(1, np.bool_)
    for tried in (again, ~again):
        assert bands.adjusted(["x"], one, one, tried)[1][0] == pytest.approx(6.0)
    bands.learn(["x"], None, None, one, again)
    assert bands.adjusted(["x"], one, one, ~again)[1][0] == pytest.approx(3.0)
    assert bands.adjusted(["x"], one, one, again)[1][0] == pytest.approx(0.5)
    for _ in range(4):
        bands.learn(["x"], None, None, one, again)
    assert bands.adjusted(["x"], one, one, ~again)[1][0] == pytest.approx(1.5)


def test_a_later_fit_counts_beside_live_jobs_and_not_in_their_place() -> None:
    played = Played().play(np.random.default_rng(0).normal(size=2_000), np.ones(2_000))
    before = played.bands.factor("tried")
    played.bands.start({"tried": (10.0, 500)})
    assert before < played.bands.factor("tried") < 1.1 * before


def test_a_model_whose_spreads_are_in_other_units_is_followed() -> None:
    """It says four times the spread for the same errors, and its own left out jobs tell so."""
    rng = np.random.default_rng(0)
    bands = ConformalBands()
    bands.start({"tried": (1.0, 50), "new": (1.0, 50)})
    played = Played(bands).play(rng.normal(size=600), np.ones(600))
    before = bands.factor("tried")
    told = ConformalBands.load(json.loads(json.dumps(bands.dump())))
    bands.start({"tried": (0.25, 50)})
    assert bands.factor("tried") == pytest.approx(before / 2)
    assert bands.factor("new") == told.factor("new")
    told.start({"tried": (0.25, 50)})
    assert told.dump() == bands.dump()
    played.play(rng.normal(size=150), np.full(150, 4.0))
    assert 0.72 <= played.share(since=650) <= 0.88


def test_contexts_left_out_count_as_one_job_each() -> None:
    n = 100
    strange = np.arange(n) < 60
    keys = tuple(f"big {i % 2}" if strange[i] else "stay" for i in range(n))
    score = np.where(strange, 8.0 * HALF, 1.0)
    one = OutOfFoldPredictions(
        keys, np.zeros(n), np.ones(n), score, ~strange, np.zeros(n, np.bool_)
    )
    starts = one.starts()
    assert starts["strange"] == pytest.approx((8.0, 2))
    assert starts["new"] == pytest.approx((1 / HALF, 40))
    assert starts["tried"] == starts["new"]
    assert 1 / HALF < starts["early"][0] < 8.0
    joined = one.joined(one).starts()
    assert joined["new"] == pytest.approx((1 / HALF, 80))


def test_jobs_left_out_that_have_faded_hardly_count() -> None:
    n, nobody = 300, np.zeros(300, np.bool_)
    score = np.where(np.arange(n) < 240, 8.0 * HALF, 1.0)
    counts = np.where(np.arange(n) < 240, 0.001, 1.0)
    one = OutOfFoldPredictions(
        ("stay",) * n, np.zeros(n), np.ones(n), score, ~nobody, nobody, counts
    )
    factor, jobs = one.starts()["new"]
    assert factor == pytest.approx(1 / HALF)
    assert 60 <= jobs <= 61


numbers = st.floats(-1e6, 1e6) | st.sampled_from([math.nan, math.inf, -math.inf, 0.0, 1e300])
jobs = st.lists(
    st.tuples(st.sampled_from(KEYS), numbers, st.floats(0, 1e6) | numbers, numbers, st.booleans()),
    max_size=60,
)
signals = st.lists(
    st.sampled_from(["alarm a", "alarm", "calm a", "calm", "start", "learn"]), max_size=12
)


@pytest.mark.slow
@settings(deadline=None, max_examples=50)
@given(jobs, signals, st.integers(1, 20))
def test_nothing_that_comes_in_makes_a_band_of_something_usable_unusable(
    stream: list[tuple[str, float, float, float, bool]], said: list[str], size: int
) -> None:
    bands = ConformalBands()
    for i in range(0, max(len(stream), 1), size):
        some = stream[i : i + size]
        for word in said[i // size : i // size + 1]:
            _signal(bands, word)
        columns = [np.array([one[k] for one in some], np.float64) for k in (1, 2, 3)]
        again = np.array([one[4] for one in some], np.bool_)
        bands.learn([one[0] for one in some], columns[0], columns[1], columns[2], again)
    mean, spread = bands.adjusted(KEYS, np.zeros(4), np.ones(4), np.array([True, False] * 2))
    assert np.isfinite(mean).all()
    assert (np.isfinite(spread) & (spread > 0)).all()
    kept = ConformalBands.load(json.loads(json.dumps(bands.dump())))
    assert kept.dump() == bands.dump()
    again_mean, again_spread = kept.adjusted(
        KEYS, np.zeros(4), np.ones(4), np.array([True, False] * 2)
    )
    assert (again_mean == mean).all()
    assert (again_spread == spread).all()


def _signal(bands: ConformalBands, word: str) -> None:
    match word.split():
        case ["alarm", *keys]:
            bands.alarm(keys or None)
        case ["calm", *keys]:
            bands.calm(keys or None)
        case ["start"]:
            bands.start(dict.fromkeys(STANDINGS, (2.0, 10)))


@pytest.mark.slow
@settings(deadline=None, max_examples=25)
@given(st.integers(0, 99), st.floats(1e-6, 1e6), st.floats(-1e3, 1e3))
def test_bands_are_the_same_in_any_unit(seed: int, scale: float, zero: float) -> None:
    rng = np.random.default_rng(seed)
    keys = [KEYS[i] for i in rng.integers(0, 4, 120)]
    mean, spread = rng.normal(size=120), rng.uniform(0.5, 2, 120)
    score, again = mean + rng.normal(size=120), rng.random(120) < 0.7
    here, there = ConformalBands(), ConformalBands()
    for bands, a, b in ((here, 1.0, 0.0), (there, scale, zero)):
        for at in (slice(0, 60), slice(60, 120)):
            bands.learn(keys[at], a * mean[at] + b, a * spread[at], a * score[at] + b, again[at])
            bands.alarm(["a"])
    m, s = here.adjusted(keys, mean, spread, again)
    far, wide = there.adjusted(keys, scale * mean + zero, scale * spread, again)
    tolerance = 1e-3 * spread.max() * scale + 1e-6 * abs(zero)
    assert wide == pytest.approx(scale * s, rel=1e-3)
    assert far == pytest.approx(scale * m + zero, abs=tolerance)


def test_what_is_kept_does_not_grow() -> None:
    bands = ConformalBands()
    one, yes = np.ones(1), np.ones(1, np.bool_)
    sizes = []
    for i in range(3_000):
        bands.learn([f"context {i:05}"], 0 * one, one, one, yes)
        sizes.append(i if i % 1_000 else len(json.dumps(bands.dump())))
    assert len(json.dumps(bands.dump())) <= 1.1 * sizes[-1_000]


@pytest.mark.slow
@pytest.mark.parametrize("predictor", ["committee", "boosted_trees"])
def test_the_first_live_bands_are_no_lie(predictor: str) -> None:
    """Right after the first real fit, on jobs that nobody has predicted yet."""
    held: list[bool] = []
    toy = study()
    toy = replace(toy, predictor=replace(toy.predictor, name=predictor))
    for seed in range(8):
        tuner = Tuner(toy, Inline())
        past = random_jobs(80, seed)
        for step in steps(past, 40):
            tuner.gather(step)
        tuner.catch_up()
        tuner.training.pin()  # the next fit would come after what is looked at
        judged = tuner.learn(random_jobs(30, seed + 50, first=81)).judged
        for one in judged:
            told = one.outcome
            if told.score is not None and told.low is not None and told.high is not None:
                held.append(told.low <= told.score <= told.high)
    assert len(held) > 200
    assert 0.7 <= np.mean(held) <= 0.95


@pytest.mark.slow
@pytest.mark.parametrize("together", [10, 400])
def test_jobs_that_a_study_serves_are_held(together: int) -> None:
    """However many come at once: of 800 that had waited for the daemon six tenths were held."""
    tuner = Tuner(study(), Inline())
    held = []
    for step in steps(random_jobs(400, noise=0.05), together):
        for one in tuner.learn(step).judged:
            told = one.outcome
            if told.score is not None and told.low is not None and told.high is not None:
                held.append(told.low <= told.score <= told.high)
    assert 0.74 <= np.mean(held) <= 0.86
    assert tuner.window.scores().coverage == pytest.approx(np.mean(held[-500:]))


@pytest.mark.slow
def test_imported_jobs_count_too() -> None:
    old = [structs.replace(one, history=True) for one in random_jobs(300)]
    tuner = Tuner(study(), Inline())
    tuner.learn(old)
    assert len(tuner.window) == 0
    dumped = json.loads(json.dumps(tuner.dump()))["bands"]
    assert sum(tracker[3] for tracker in dumped["factors"].values()) > 150
