"""Splits and forecasters in, figures out: known answers, and tunerd's own predictors."""

from collections.abc import Sequence
from itertools import pairwise

import msgspec
import numpy as np
import pytest

from tests.core.tuning import job, random_jobs, study
from tests.lab.evaluation.forecasters import Constant, oracle, shuffled
from tests.needs import need_library
from tunerd.core.observation import Observation, Status
from tunerd.core.study import Study
from tunerd.errors import MisconfiguredError
from tunerd.lab.evaluation.backtest import SplitScore, answer, ask, verdicts
from tunerd.lab.evaluation.forecast_scores import GroundTruth
from tunerd.lab.evaluation.forecaster import Forecaster, JobForecasts
from tunerd.lab.evaluation.importance import importance
from tunerd.lab.evaluation.plots import amounts, predicted
from tunerd.lab.evaluation.results import BacktestReport, BacktestResult, backtest_schema, results
from tunerd.lab.evaluation.splits import folds, parse_known, parse_split
from tunerd.lab.evaluation.tunerd_forecaster import (
    PrequentialForecaster,
    TunerdForecaster,
    forecaster,
)

STUDY = study()
TREES = forecaster("boosted_trees")


def with_failures(jobs: Sequence[Observation]) -> list[Observation]:
    """What has x = 1 runs out of memory."""
    return [
        msgspec.structs.replace(one, metrics={}, status=Status.OUT_OF_MEMORY)
        if one.config["x"] == 1
        else one
        for one in jobs
    ]


def asked(
    who: Sequence[Forecaster | PrequentialForecaster],
    jobs: Sequence[Observation],
    split: str = "random",
    known: str = "",
    repeats: int = 1,
) -> list[SplitScore]:
    amounts = parse_known(known) if known else ()
    made = folds(STUDY, parse_split(split, STUDY), jobs, amounts, repeats)
    answers = (answer(STUDY, jobs, question) for question in ask(made, who))
    return list(verdicts(GroundTruth.of(STUDY, jobs), answers))


def told(found: Sequence[SplitScore]) -> list[BacktestResult]:
    return results(found)


@pytest.mark.slow
def test_numbers_beside_a_plot_stand_clear_of_each_other() -> None:
    """Where all jobs lie within a factor of ten, axes had 2.25 × 10⁴, 2.5 × 10⁴, … on one spot."""
    jobs = [
        msgspec.structs.replace(one, metrics={STUDY.objective.metric: 21_000.0 * (1 + n / 60)})
        for n, one in enumerate(random_jobs(50, sizes=(8,)))
    ]
    figure = predicted(STUDY, GroundTruth.of(STUDY, jobs), asked([oracle(STUDY, jobs)], jobs))
    (axes,) = (axes for axes in figure.axes if axes.get_visible())
    figure.draw_without_rendering()
    boxes = [label.get_window_extent() for label in axes.get_xticklabels(which="both")]
    shown = sorted((box.x0, box.x1) for box in boxes if box.width > 0)
    assert len(shown) >= 2
    assert all(left[1] < right[0] for left, right in pairwise(shown))


def test_a_panel_of_which_nothing_can_be_told_says_so() -> None:
    jobs = random_jobs(60, sizes=tuple(range(1, 31)))
    figure = amounts("curve", told(asked([oracle(STUDY, jobs)], jobs, "curve")))
    for axes in figure.axes:
        assert [text.get_text() for text in axes.texts] == ["too few jobs in each context to tell"]
        assert [label.get_text() for label in axes.get_xticklabels()] == ["30", "80%"]
        assert axes.get_xlim()[0] < 30 < 48 < axes.get_xlim()[1]


@pytest.mark.parametrize("split", ["random", "time", "group:n", "above:n=4", "curve"])
def test_an_oracle_has_no_regret_and_a_tau_of_1(split: str) -> None:
    jobs = with_failures(random_jobs(300))
    for result in told(asked([oracle(STUDY, jobs)], jobs, split)):
        for figures in (result.overall, result.within_contexts, *result.per_context.values()):
            assert figures.kendall_tau in (None, pytest.approx(1))
            assert {v for v in figures.regret_at.values() if v is not None} <= {0.0}
            assert figures.auc in (None, 1.0)
        assert result.kendall_tau == pytest.approx(1)
        assert result.regret_at["1"] == 0
        assert result.mape == pytest.approx(0)
        assert result.coverage == result.auc == 1
        assert result.brier == result.ece == 0


@pytest.mark.slow
def test_shuffled_targets_have_no_tau_and_the_regret_of_random() -> None:
    jobs = with_failures(random_jobs(600, sizes=(8, 16)))
    who = [shuffled(STUDY, jobs, seed) for seed in range(40)]
    found = [told(asked([one], jobs))[0] for one in who]
    taus = [result.within_contexts.kendall_tau for result in found]
    assert abs(np.mean([t for t in taus if t is not None])) < 0.02
    assert abs(np.mean([result.auc for result in found if result.auc is not None]) - 0.5) < 0.02
    for k in ("1", "3", "5", "10"):
        mine = np.array([r.regret_at[k] for r in found if r.regret_at[k] is not None])
        random = found[0].random_regret_at[k]
        assert random is not None
        assert abs(mine.mean() - random) < 4 * mine.std() / np.sqrt(len(mine)) + 1e-9


@pytest.mark.slow
def test_a_constant_has_the_regret_of_random_too() -> None:
    jobs = random_jobs(600, sizes=(8, 16))
    (result,) = told(asked([Constant()], jobs, repeats=40))
    assert result.within_contexts.kendall_tau == 0
    assert result.regret_at["5"] == pytest.approx(result.random_regret_at["5"], rel=0.35)
    assert result.coverage is result.auc is None


class Spy:
    """Remembers what it was shown."""

    name = "spy"

    def __init__(self) -> None:
        self.seen: list[tuple[list[Observation], list[Observation], int]] = []

    def foretell(
        self, study: Study, known: Sequence[Observation], asked: Sequence[Observation], seed: int
    ) -> JobForecasts:
        del study
        self.seen.append((list(known), list(asked), seed))
        return JobForecasts(np.zeros(len(asked)))


def test_nobody_is_shown_what_happened_to_the_jobs_asked_about() -> None:
    jobs = with_failures(random_jobs(100))
    spy = Spy()
    asked([spy], jobs, repeats=2)
    assert len(spy.seen) == 10
    for known, shown, _ in spy.seen:
        assert all(one.metrics == {} and one.status is Status.SUCCEEDED for one in shown)
        assert [one.sequence for one in known] == sorted(one.sequence for one in known)
        assert not {one.event_id for one in known} & {one.event_id for one in shown}
    assert {seed for _, _, seed in spy.seen} == {0, 1}


def test_results_are_one_per_split_amount_and_predictor() -> None:
    jobs = random_jobs(150)
    found = told(asked([Constant(), oracle(STUDY, jobs)], jobs, known="10,20", repeats=3))
    assert [(r.split, r.known, r.predictor) for r in found] == [
        ("random", "10", "constant"),
        ("random", "10", "oracle"),
        ("random", "20", "constant"),
        ("random", "20", "oracle"),
    ]
    assert {r.repeats for r in found} == {3}
    assert [r.known_rows for r in found] == [10, 10, 20, 20]


@pytest.mark.slow
def test_intervals_hold_the_mean_and_shrink_with_contexts() -> None:
    def width(sizes: Sequence[int]) -> float:
        jobs = random_jobs(60 * len(sizes), sizes=sizes, noise=0.3)
        (result,) = told(asked([TREES], jobs, known="80", repeats=3))
        low, high = result.intervals["within_contexts"]["kendall_tau"]
        assert result.within_contexts.kendall_tau is not None
        assert low <= result.within_contexts.kendall_tau <= high
        return high - low

    assert width([4, 8, 16]) > width([4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 20, 24])


def test_two_repeats_of_one_part_allow_no_interval() -> None:
    jobs = random_jobs(100, sizes=(8,))
    (result,) = told(asked([Constant()], jobs, repeats=2))
    assert result.intervals == {"overall": {}, "within_contexts": {}}


@pytest.mark.slow
def test_a_report_is_json_that_fits_its_schema() -> None:
    jsonschema = need_library("jsonschema", "test")
    jobs = with_failures(random_jobs(120))
    found = told(asked([TREES, Constant()], jobs, "group:n", "0,5"))
    fold = folds(STUDY, parse_split("random", STUDY), jobs)[0]
    report = BacktestReport(
        tunerd="0",
        study="toy",
        study_hash="sha256:0",
        jobs="made up",
        rows=120,
        unusable={},
        seed=0,
        results=tuple(found),
        importance={"random boosted_trees": tuple(importance(STUDY, TREES, jobs, fold))},
    )
    data = msgspec.json.decode(msgspec.json.encode(report))
    jsonschema.validate(data, backtest_schema())
    first = data["results"][0]
    for figures in (first, first["overall"], *first["per_context"].values()):
        assert {"kendall_tau", "spearman", "pearson", "mape", "coverage"} <= set(figures)
        assert {"rows", "contexts", "auc", "brier", "ece", "band_width"} <= set(figures)
        assert set(figures["regret_at"]) == {"1", "3", "5", "10"}


@pytest.mark.slow
def test_boosted_trees_rank_what_they_have_seen_and_what_runs() -> None:
    jobs = with_failures(random_jobs(400))
    (result,) = told(asked([TREES], jobs))
    assert result.within_contexts.kendall_tau is not None
    assert result.within_contexts.kendall_tau > 0.7
    assert result.regret_at["5"] is not None
    assert result.regret_at["5"] < 0.05
    assert result.auc is not None
    assert result.auc > 0.95
    assert result.coverage is not None
    assert 0.6 < result.coverage <= 1


@pytest.mark.slow
def test_answers_are_the_same_again_and_differ_by_seed() -> None:
    jobs = random_jobs(100)
    fold = folds(STUDY, parse_split("random", STUDY), jobs)[0]
    once, again = (answer(STUDY, jobs, ask([fold], [TREES])[0]).foretold.score for _ in range(2))
    other = answer(STUDY, jobs, ask([fold], [TREES], seed=1)[0]).foretold.score
    assert np.array_equal(once, again)
    assert not np.array_equal(once, other)


@pytest.mark.slow
def test_live_predicts_before_it_learns_and_follows_a_change() -> None:
    jobs = random_jobs(200)
    slower = [
        msgspec.structs.replace(one, metrics={k: v / 2 for k, v in one.metrics.items()})
        for one in random_jobs(200, seed=1, first=201)
    ]
    found = asked([TREES, PrequentialForecaster(TREES)], [*jobs, *slower], "time", "50%")
    still, live = (v.judged.overall.mape for v in found)
    assert still is not None
    assert live is not None
    assert live < 0.75 * still  # it learned that everything became slower
    assert [v.who for v in found] == ["boosted_trees", "boosted_trees_live"]


def test_live_starts_from_nothing() -> None:
    jobs = random_jobs(40)
    foretold = PrequentialForecaster(TREES).follow(STUDY, [], jobs, 0)
    assert foretold.score.shape == (40,)
    assert np.all(foretold.score[:10] == 0)


def test_no_job_known_and_no_score_known_are_answered() -> None:
    jobs = random_jobs(20)
    failed = [job(i, {"n": 8}, {"x": 2, "y": "a", "z": True}, status=Status.FAILED) for i in (1, 2)]
    for known in ([], failed):
        foretold = TREES.foretell(STUDY, known, jobs, 0)
        assert np.isfinite(foretold.score).all()
        assert foretold.runs is not None
        assert foretold.runs.shape == (20,)


def test_an_unknown_predictor_names_those_there_are() -> None:
    with pytest.raises(MisconfiguredError, match=r"no predictor 'tea_leaves'; there are boosted"):
        forecaster("tea_leaves")


def test_importance_finds_what_matters() -> None:
    jobs = random_jobs(400)
    fold = folds(STUDY, parse_split("random", STUDY), jobs)[0]
    found = {
        (one.group, one.column): one
        for one in importance(STUDY, TunerdForecaster("boosted_trees"), jobs, fold)
    }
    assert set(found) == {
        ("context", None),
        ("parameter", None),
        ("context", "n"),
        *(("parameter", name) for name in "xyz"),
    }
    assert found["context", "n"].error > found["parameter", "x"].error > 0
    assert found["parameter", "x"].error > found["parameter", "z"].error
    within = found["parameter", None].kendall_tau_within
    assert within is not None
    assert within > 0.5
