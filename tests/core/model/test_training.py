"""The model that serves: who takes over, what comes back, and that it all survives a crash."""

import json
from collections.abc import Sequence
from datetime import timedelta
from functools import cache
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pytest

from tests.core.tuning import START, TEXT, Inline, job, random_jobs, study, true_speed
from tunerd.core.model.history_weights import Regime
from tunerd.core.model.model import StudyModel
from tunerd.core.model.training import SMALL, SOON, SWAP_AFTER, ModelBuild
from tunerd.core.observation import Observation
from tunerd.core.study import Study
from tunerd.core.study_file import parse_study
from tunerd.core.tuner import Tuner

pytestmark = pytest.mark.slow

JOBS = random_jobs(560)


def learn(tuner: Tuner, jobs: Sequence[Observation], size: int = 10) -> list[ModelBuild]:
    """Learn in steps; returns what became of models."""
    for i in range(0, len(jobs), size):
        tuner.learn(jobs[i : i + size])
    return drained(tuner)


def drained(tuner: Tuner) -> list[ModelBuild]:
    found = list(tuner.training.built)
    tuner.training.built.clear()
    return found


def saved(tuner: Tuner) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(json.dumps(tuner.dump()))
    return loaded


def under_way(tuner: Tuner) -> Any:
    return saved(tuner)["training"]["rebuild"]


def restored(
    tuner: Tuner, parts: dict[str, bytes], jobs: Sequence[Observation], size: int = 10
) -> Tuner:
    ends = range(0, tuner.sequence, size)
    return Tuner.restore(
        tuner.study,
        Inline(),
        saved(tuner),
        {k: json.loads(json.dumps(s.dump())) for k, s in tuner.contexts.items()},
        parts,
        [(end + 1, min(end + size, tuner.sequence)) for end in ends],
        lambda sequences: [jobs[s - 1] for s in sequences],
    )


def model_of(tuner: Tuner) -> StudyModel:
    assert tuner.model is not None
    return tuner.model


def comparing(jobs: Sequence[Observation] = JOBS) -> tuple[Tuner, int]:
    """A tuner in whose study a comparison is about to begin with the next step, and where."""
    tuner, at = Tuner(study(), Inline()), 0
    while under_way(tuner) is None:
        tuner.learn(jobs[at : at + 10])
        at += 10
    drained(tuner)
    return tuner, at


@cache
def usually() -> Sequence[ModelBuild]:
    """What becomes of models while these jobs come."""
    return tuple(learn(Tuner(study(), Inline()), JOBS))


def test_small_studies_are_fitted_on_the_spot_and_larger_ones_compared() -> None:
    built = usually()
    assert (built[0].why, built[0].contest) == ("first", None)
    assert all(one.took_over and one.why == "grown" for one in built[1:] if one.decided_at <= 300)
    compared = [one for one in built if one.contest is not None]
    assert compared
    for one in compared:
        assert one.contest is not None
        assert one.decided_at - one.fitted_at in range(SWAP_AFTER, SWAP_AFTER + 10)
        assert one.contest.jobs > 0.8 * SWAP_AFTER
        assert one.took_over == one.contest.won


def test_a_comparison_survives_a_crash_at_any_step() -> None:
    """With the parts that were saved before it began, and with those of its second step."""
    tuner, at = comparing()
    before = model_of(tuner)
    parts = [before.dump()]
    recovered: list[Tuner] = []
    for i in range(18):
        if i in (0, 3, 6):
            assert under_way(tuner) is not None
            recovered += [restored(tuner, saved_parts, JOBS) for saved_parts in parts]
            assert all(saved(again) == saved(tuner) for again in recovered)
        step = JOBS[at + 10 * i : at + 10 * i + 10]
        learned = tuner.learn(step)
        assert all(again.learn(step) == learned for again in recovered)
        if i == 1:
            parts.append(model_of(tuner).dump())
    built = drained(tuner)
    assert built
    assert model_of(tuner) is not before or under_way(tuner) is None
    for again in recovered:
        assert drained(again) == built
        assert saved(again) == saved(tuner)
        assert model_of(again).dump() == model_of(tuner).dump()


def test_a_challenger_that_ranks_worse_is_turned_down_and_not_tried_at_once_again() -> None:
    """What it learned from was mixed up by a study whose window reaches back an hour: a few dozen
    jobs against all of them."""
    short = Tuner(narrow(), Inline())
    rng = np.random.default_rng(0)
    # The champion has seen everything; the challengers see the latest few jobs, which say nothing.
    learn(short, JOBS[:300])
    confused = [noisy(one, rng) for one in JOBS[300:330]]
    built = learn(short, [*confused, *JOBS[330:440]])
    built += learn(short, continued(random_jobs(150, seed=3), short.sequence + 1))
    verdicts = [one for one in built if one.contest is not None]
    turned_down = [one for one in verdicts if not one.took_over]
    assert turned_down
    first = turned_down[0]
    assert first.contest is not None
    assert first.contest.by in ("ranks", "errors")
    later = [one.fitted_at for one in verdicts if one.fitted_at > first.fitted_at]
    assert all(at >= first.fitted_at * 1.2 for at in later)


def narrow() -> Study:
    return parse_study(TEXT + "[history]\nwindow_days = 0.05\n[drift]\nact = false\n")


def noisy(one: Observation, rng: np.random.Generator) -> Observation:
    """The same job, whose speed says nothing."""
    if "speed" not in one.metrics:
        return one
    return msgspec.structs.replace(one, metrics={"speed": float(np.exp(rng.normal(6, 1)))})


def renumbered(jobs: Sequence[Observation], first: int) -> list[Observation]:
    return [
        msgspec.structs.replace(one, sequence=first + i, event_id=f"r{first + i}")
        for i, one in enumerate(jobs)
    ]


def continued(jobs: Sequence[Observation], first: int) -> list[Observation]:
    """The same, each ended as late as its number says."""
    return [
        msgspec.structs.replace(one, finished_at=START + timedelta(minutes=one.sequence))
        for one in renumbered(jobs, first)
    ]


@pytest.mark.parametrize("jobs", [100, 310], ids=["on the spot", "aside"])
def test_a_rebuild_that_fails_leaves_the_model_that_serves(
    jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tuner = Tuner(study(), Inline())
    learn(tuner, JOBS[:jobs])
    while under_way(tuner) is not None:  # that one was fitted before the trouble began
        learn(tuner, JOBS[tuner.sequence : tuner.sequence + 10])
    serving = model_of(tuner)

    def broken(*_: object) -> StudyModel:
        raise np.linalg.LinAlgError("not positive definite")

    with monkeypatch.context() as trouble:
        trouble.setattr(StudyModel, "fit", broken)
        failed: list[ModelBuild] = []
        while not failed and tuner.sequence < len(JOBS):
            failed = learn(tuner, JOBS[tuner.sequence : tuner.sequence + 10])
    assert [one.took_over for one in failed] == [False]
    assert failed[0].failed is not None
    assert failed[0].failed.endswith("LinAlgError: not positive definite")
    assert model_of(tuner) is serving
    assert model_of(tuner).learned == tuner.sequence
    again = restored(tuner, serving.dump(), JOBS)
    assert saved(again) == saved(tuner)
    later = learn(tuner, renumbered(random_jobs(300, seed=3), tuner.sequence + 1))
    assert later[0].failed is None  # in its turn, when history has grown again, and not at once
    assert later[0].fitted_at >= failed[0].fitted_at * 1.2


def test_without_a_model_a_fit_that_fails_is_not_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object) -> StudyModel:
        raise np.linalg.LinAlgError("not positive definite")

    monkeypatch.setattr(StudyModel, "fit", broken)
    with pytest.raises(np.linalg.LinAlgError):
        learn(Tuner(study(), Inline()), JOBS[:40])


def test_of_a_backlog_few_models_are_fitted_and_a_crash_in_its_middle_changes_nothing() -> None:
    """The last model is as fresh as ever."""
    tuner, crashed = Tuner(study(), Inline()), None
    parts: dict[str, bytes] = {}
    for i in range(0, len(JOBS), 10):
        waiting = len(JOBS) - i - 10
        step = JOBS[i : i + 10]
        learned = tuner.learn(step, waiting=waiting)
        if crashed is not None:
            assert crashed.learn(step, waiting=waiting) == learned
        if i == 320:
            parts = model_of(tuner).dump()
        if i == 350:
            crashed = restored(tuner, parts, JOBS)
    assert crashed is not None
    assert saved(crashed) == saved(tuner)
    assert model_of(crashed).dump() == model_of(tuner).dump()
    usual, built = usually(), drained(tuner)
    assert len(built) <= len(usual) / 2
    last = max(one.fitted_at for one in built)
    assert len(JOBS) - last <= max(len(JOBS) - one.fitted_at for one in usual[-1:])


def test_a_decision_does_not_put_off_the_next_rebuild_where_steps_are_large() -> None:
    tuner = Tuner(study(), Inline())
    tuner.learn(random_jobs(800))
    due = [one for one in drained(tuner) if one.decided_at > SMALL]
    assert len(due) > 2
    assert all(later.fitted_at == one.decided_at for one, later in pairwise(due))


# -- an operator's word ------------------------------------------------------------------------


def test_a_pinned_model_learns_on_and_is_not_replaced() -> None:
    tuner = Tuner(study(), Inline())
    learn(tuner, JOBS[:100])
    early = model_of(tuner).dump()
    learn(tuner, JOBS[100:310])
    old = StudyModel.load(tuner.study, tuner.features, early)
    tuner.training.take_up(old, "back", tuner.sequence, pinned=True)
    (back,) = drained(tuner)
    assert (back.why, back.fitted_at, back.decided_at) == ("back", old.fitted_at, 310)
    assert learn(tuner, JOBS[310:]) == []
    assert model_of(tuner).fitted_at == back.fitted_at
    assert model_of(tuner).learned == 560
    again = restored(tuner, model_of(tuner).dump(), JOBS)
    assert saved(again) == saved(tuner)
    assert again.training.pinned


# -- how much of history counts ----------------------------------------------------------------


def changed(count: int, first: int, days_later: float) -> list[Observation]:
    """Jobs of a later time, when ``y = "c"`` is no longer fast but slow."""
    found = []
    for one in random_jobs(count, seed=9, first=first):
        if "speed" in one.metrics and one.config["y"] == "c":
            one = msgspec.structs.replace(
                one, metrics={"speed": one.metrics["speed"] * float(np.exp(-0.6))}
            )
        found.append(
            msgspec.structs.replace(one, finished_at=one.finished_at + timedelta(days=days_later))
        )
    return found


def likes_c(tuner: Tuner) -> float:
    """By how much the model expects ``c`` to be faster than ``a``, on a log scale."""
    pair = [
        job(
            1,
            {"n": 8},
            {"x": 4, "y": y, "z": True},
            speed=true_speed({"n": 8}, {"x": 4, "y": y, "z": True}),
        )
        for y in "ca"
    ]
    c, a = model_of(tuner).outlook(tuner.features.rows(pair)).mean
    return float(c - a)


def refitted(text: str, jobs: Sequence[Observation]) -> Tuner:
    tuner = Tuner(parse_study(text), Inline())
    tuner.gather(jobs)
    tuner.catch_up()
    return tuner


def test_jobs_outside_the_window_and_old_ones_count_less() -> None:
    jobs = [*random_jobs(200), *changed(60, first=201, days_later=100)]
    everything = likes_c(refitted(TEXT, jobs))
    window = likes_c(refitted(TEXT + "[history]\nwindow_days = 50\n", jobs))
    fading = likes_c(refitted(TEXT + "[history]\nhalf_life_days = 20\n", jobs))
    assert everything > 0.0  # three old jobs to each new one
    assert window < -0.1  # the truth is -0.3
    assert fading < everything - 0.1


@pytest.mark.parametrize(
    "predictor", ["boosted_trees", "gaussian_process", "neural_ensemble", "committee"]
)
def test_a_half_life_lets_every_predictor_go_by_todays_jobs(predictor: str) -> None:
    jobs = [*random_jobs(200), *changed(60, first=201, days_later=100)]
    text = TEXT.replace('"boosted_trees"', f'"{predictor}"')
    fading = refitted(text + "[history]\nhalf_life_days = 10\n", jobs)
    assert likes_c(fading) < -0.2  # the truth is -0.3
    alone = refitted(text, renumbered(jobs[200:], 1))
    asked = fading.features.rows(random_jobs(60, seed=1))
    wide, narrow = (model_of(one).outlook(asked).std.mean() for one in (fading, alone))
    assert wide < 1.5 * narrow


def test_a_window_is_counted_from_the_newest_job_whatever_the_order() -> None:
    old, new = random_jobs(200), changed(60, first=1, days_later=100)
    jobs = [*new, *renumbered(old, 61)]  # an import of older jobs, afterwards
    assert likes_c(refitted(TEXT + "[history]\nwindow_days = 50\n", jobs)) < -0.1


LESS = ["window_days = 50", "half_life_days = 10"]
"""What lets jobs of 100 days ago count for next to nothing."""


def importing(history: str, predictor: str = "boosted_trees") -> Study:
    text = TEXT.replace('"boosted_trees"', f'"{predictor}"')
    return parse_study(f"{text}[drift]\nact = false\n[history]\n{history}\n")


def faster(jobs: Sequence[Observation], times: float) -> list[Observation]:
    return [
        msgspec.structs.replace(one, metrics={k: times * v for k, v in one.metrics.items()})
        for one in jobs
    ]


def expected(tuner: Tuner, jobs: Sequence[Observation]) -> float:
    """The mean score that the model expects of jobs."""
    return float(model_of(tuner).outlook(tuner.features.rows(jobs)).mean.mean())


@pytest.mark.parametrize(
    ("predictor", "history"),
    [("boosted_trees", LESS[0]), ("committee", LESS[0]), ("committee", LESS[1])],
)
def test_old_jobs_that_come_late_do_not_overrule_the_present(predictor: str, history: str) -> None:
    tuner = Tuner(importing(history, predictor), Inline())
    new = changed(320, first=1, days_later=100)
    tuner.gather(new[:310])
    tuner.catch_up()
    told = [expected(tuner, new)]
    for one in range(0, 60, 20):
        slow = faster(random_jobs(60, seed=1)[one : one + 20], 0.5)
        tuner.learn(renumbered(slow, 311 + one))
        assert likes_c(tuner) == pytest.approx(-0.3, abs=0.05)
        told.append(expected(tuner, new))
    tuner.learn(renumbered(new[310:], 371))
    told.append(expected(tuner, new))
    assert model_of(tuner).fitted_at == 310
    np.testing.assert_allclose(told, told[0], atol=0.02)


def test_how_much_an_update_counts_fades_with_the_age_of_its_jobs() -> None:
    new = changed(100, first=1, days_later=100)

    def after(days_ago: int) -> float:
        tuner = Tuner(importing("half_life_days = 10"), Inline())
        learn(tuner, new)
        ended = new[-1].finished_at - timedelta(days=days_ago)
        late = [
            msgspec.structs.replace(one, finished_at=ended)
            for one in renumbered(faster(new[:15], 2.0), 101)
        ]
        before = expected(tuner, new)
        tuner.learn(late)
        return expected(tuner, new) - before

    now, some, long = after(0), after(15), after(60)
    assert now > 1.3 * some > 0.0
    assert abs(long) < 1e-9  # left to the next fit


@pytest.mark.parametrize("history", LESS)
def test_champion_and_challenger_are_compared_on_jobs_of_today_alone(history: str) -> None:
    tuner = Tuner(importing(history), Inline())
    learn(tuner, changed(400, first=1, days_later=100))
    built = learn(tuner, renumbered(random_jobs(260, seed=1), 401))
    compared = [one for one in built if one.contest is not None and one.fitted_at >= 400]
    assert compared
    for one in compared:
        assert one.contest is not None
        assert (one.contest.jobs, one.contest.by, one.took_over) == (0, "few", True)
    assert likes_c(tuner) < -0.2


@pytest.mark.parametrize(("history", "behind"), [(LESS[0], 40), (LESS[1], 0)])
def test_an_import_survives_a_crash_in_the_middle_of_a_comparison(
    history: str, behind: int
) -> None:
    tuner = Tuner(importing(history), Inline())
    jobs = [
        *changed(400, first=1, days_later=100),
        *renumbered(random_jobs(60, seed=1), 401),
        *changed(100, first=461, days_later=101),
    ]
    learn(tuner, jobs[:400])
    at = 400
    while under_way(tuner) is None:
        tuner.learn(jobs[at : at + 10])
        at += 10
    assert at < 440
    parts = model_of(tuner).dump()
    learn(tuner, jobs[at : at + behind])
    at += behind
    again = restored(tuner, parts, jobs)
    for i in range(at, at + 90, 10):
        assert tuner.learn(jobs[i : i + 10]) == again.learn(jobs[i : i + 10])
    assert saved(again) == saved(tuner)
    assert model_of(again).dump() == model_of(tuner).dump()


def test_a_fit_sees_jobs_in_the_order_in_which_they_ended() -> None:
    old, new = random_jobs(120), changed(120, first=121, days_later=100)
    in_order = refitted(TEXT, [*old, *new])
    imported = refitted(TEXT, [*renumbered(new, 1), *renumbered(old, 121)])
    asked = in_order.features.rows(new)
    one, other = (model_of(tuner).outlook(asked) for tuner in (in_order, imported))
    np.testing.assert_array_equal(one.mean, other.mean)
    np.testing.assert_array_equal(one.std, other.std)


def test_a_new_regime_counts_in_front_at_once_and_from_then_on() -> None:
    tuner = Tuner(study(), Inline())
    learn(tuner, JOBS[:340])
    before = likes_c(tuner)
    late = changed(160, first=341, days_later=0)
    learn(tuner, late[:30])
    assert tuner.training.begin(Regime(since=341, before=0.02), tuner.sequence)
    built = learn(tuner, late[30:])
    (drift,) = [one for one in built if one.why == "drift"]
    assert drift.fitted_at == 370
    assert drift.decided_at in range(370 + SOON, 370 + SOON + 10)
    assert before > 0.2
    assert likes_c(tuner) < 0.0
    parts = model_of(tuner).dump()
    again = restored(tuner, parts, [*JOBS[:340], *late])
    assert again.training.regimes == tuner.training.regimes
    assert saved(again) == saved(tuner)
