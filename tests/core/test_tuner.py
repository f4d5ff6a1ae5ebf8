"""Learning online: what is predicted, what is remembered, and that it comes out the same again."""

import json
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import msgspec
import numpy as np
import pytest

from tests.core.tuning import (
    START,
    TEXT,
    Inline,
    job,
    learned_tuner,
    random_jobs,
    steps,
    study,
    true_speed,
)
from tunerd.core.conformal import HALF
from tunerd.core.decisions.advisor import START_RAN
from tunerd.core.decisions.campaign import Campaign
from tunerd.core.decisions.overrides import Override, OverrideSet
from tunerd.core.evidence.gain_calibration import MOST_GAIN, MOST_GAP, PRIOR_GAPS
from tunerd.core.model.training import SWAP_AFTER
from tunerd.core.observation import Observation, Status, Value
from tunerd.core.predictors import PREDICTORS
from tunerd.core.recommendation import Advice, Candidate, Kind
from tunerd.core.study import Study
from tunerd.core.study_file import parse_study
from tunerd.core.tuner import Tuner
from tunerd.errors import NothingFeasibleError

pytestmark = pytest.mark.slow


def learned(
    observations: list[Observation], size: int = 10, of_study: Study | None = None
) -> Tuner:
    return learned_tuner(observations, size, of_study)


def test_it_starts_at_random_and_learns_what_is_fast() -> None:
    tuner = learned(random_jobs(150))
    key = tuner.study.context_key({"n": 8})
    advice = tuner.advise(key, None)
    found = [c.config for c in advice.candidates]
    if advice.incumbent is not None:
        found.append(advice.incumbent.config)
    speeds = [true_speed({"n": 8}, config) for config in found]
    top = true_speed({"n": 8}, {"x": 6, "y": "c", "z": True})
    assert max(speeds) > 0.94 * top
    assert tuner.window.scores(tuner.study.metric_value).kendall_within > 0.5


def test_where_people_run_what_cannot_be_recommended_and_is_better_the_reason_says_so() -> None:
    """It said nothing, and what was recommended was half as fast."""
    people: dict[str, Value] = {"x": 6, "y": "c"}  # their jobs do not say what z is

    def reason(factor: float, config: dict[str, Value]) -> str:
        speed = factor * true_speed({"n": 8}, {"x": 6, "y": "c", "z": True})
        theirs = [job(61 + i, {"n": 8}, config, speed=speed) for i in range(4)]
        return (
            learned([*random_jobs(60), *theirs]).advise(study().context_key({"n": 8}), None).reason
        )

    assert "better (4 runs) lies outside the study's space: z is missing." in reason(2.0, people)
    other: dict[str, Value] = {"x": 9, "y": "c", "z": True}
    assert "outside the study's space: x = 9 is not one of its values." in reason(2.0, other)
    assert "outside" not in reason(0.5, people)
    alone = learned([job(i, {"n": 8}, people, speed=100.0) for i in range(1, 5)])
    said = alone.advise(study().context_key({"n": 8}), None).reason
    assert "What ran best here (4 runs) lies outside the study's space: z is missing." in said
    assert "outside" not in reason(1.0, people | {"z": True})


def test_before_anything_is_known_it_spreads_out() -> None:
    tuner = learned([job(1, {"n": 8}, {"x": 1, "y": "a", "z": False}, speed=10.0)])
    advice = tuner.advise(tuner.study.context_key({"n": 8}), None)
    assert all(c.kind is Kind.EXPLORE and c.predicted is None for c in advice.candidates)
    assert len({json.dumps(c.config) for c in advice.candidates}) == 7


@pytest.mark.parametrize("share", ["0.5", "0.8"])
def test_where_most_jobs_try_something_no_search_begins_beside_the_baseline(share: str) -> None:
    baseline: dict[str, Value] = {"x": 1, "y": "a", "z": False}
    others: list[dict[str, Value]] = [{"x": 3 + i, "y": "c", "z": True} for i in range(START_RAN)]

    def changes(configs: list[dict[str, Value]]) -> tuple[float, bool]:
        """In how many parameters candidates differ from the baseline, and whether the best
        predicted leads them."""
        context = {"n": 8}
        told = [
            job(i, context, config, speed=true_speed(context, config) * (1.0 + 0.01 * (i % 3)))
            for i, config in enumerate(configs, 1)
        ]
        tuner = Tuner(study(explore_share=share), Inline())
        for step in steps(told, 5):
            tuner.learn(step)
        found = tuner.advise(tuner.study.context_key(context), None).candidates
        found = tuple(one for one in found if one.kind is not Kind.CONFIRM)
        predicted = [one.predicted.median for one in found if one.predicted]
        differ = [sum(one.config[k] != v for k, v in baseline.items()) for one in found]
        return float(np.mean(differ)), predicted[0] == max(predicted)

    differ, _ = changes([baseline] * 10)
    assert differ >= 2.0 if share == "0.8" else differ < 1.5  # at random, or with care
    _, best_first = changes([baseline] * 10 + others)
    assert best_first


def test_up_to_twice_what_a_search_may_ask_for_is_looked_at_whole() -> None:
    """48 are feasible where n is 8; with half of them a search finds others."""
    jobs, said = random_jobs(60, sizes=[8]), []
    for evaluations in ("200", "24"):
        tuner = Tuner(study(evaluations=evaluations), Inline())
        tuner.learn(jobs)
        said.append(tuner.advise(tuner.study.context_key({"n": 8}), None))
    assert said[0].candidates
    assert said[1].candidates == said[0].candidates


def test_observations_must_follow_without_a_gap() -> None:
    tuner = learned(random_jobs(3))
    with pytest.raises(ValueError, match="expected observations from 4"):
        tuner.learn(random_jobs(2, first=5))


@pytest.mark.parametrize("count", [40, 400])
def test_the_same_steps_give_the_same_advice_bit_for_bit(count: int) -> None:
    jobs = random_jobs(count)
    inline = learned(jobs)
    with ThreadPoolExecutor(1) as background:
        threaded = Tuner(study(), background)
        for step in steps(jobs, 10):
            threaded.learn(step)
        for key in inline.contexts:
            assert inline.advise(key, None) == threaded.advise(key, None)
    assert inline.dump() == threaded.dump()


@pytest.mark.parametrize(
    ("size", "count", "checkpoints"),
    [
        (90, 4, [4]),
        (5, 60, [60, 45]),
        (5, 420, [420, 390, 380]),
        (90, 420, [390]),
        (90, 500, [310]),
    ],
)
def test_recovery_goes_on_exactly_where_it_was(
    size: int, count: int, checkpoints: list[int]
) -> None:
    """Wherever the last of the ``checkpoints`` was taken: the steps since are learned again."""
    jobs = random_jobs(count)
    tuner = Tuner(study(), Inline())
    parts: dict[int, dict[str, bytes] | None] = dict.fromkeys(checkpoints)
    for step in steps(jobs, size):
        swapped = tuner.learn(step).swapped
        for at in checkpoints:
            if tuner.model is not None and (swapped or tuner.sequence <= at):
                parts[at] = tuner.model.dump()
    recovered = [
        Tuner.restore(
            study(),
            Inline(),
            json.loads(json.dumps(tuner.dump())),
            {k: json.loads(json.dumps(s.dump())) for k, s in tuner.contexts.items()},
            parts[at],
            [(step[0].sequence, step[-1].sequence) for step in steps(jobs, size)],
            lambda sequences: [jobs[s - 1] for s in sequences],
        )
        for at in checkpoints
    ]
    more = random_jobs(2 * SWAP_AFTER, seed=1, first=count + 1)
    for step in steps(more, 16):
        learned = tuner.learn(step)
        assert all(again.learn(step) == learned for again in recovered)
    for key in tuner.contexts:
        advice = tuner.advise(key, None)
        assert all(again.advise(key, None) == advice for again in recovered)
    assert all(again.dump() == tuner.dump() for again in recovered)


@pytest.mark.parametrize("seed", [3, 4])
def test_what_is_learned_again_is_the_same_whatever_was_asked_before(seed: int) -> None:
    """Predictions of a few rows and of many differ in their last bits."""
    committee = replace(study(), predictor=replace(study().predictor, name="committee"))
    jobs = random_jobs(30, seed)
    tuner, parts = Tuner(committee, Inline()), None
    for step in steps(jobs, 3):
        if tuner.model is not None:
            tuner.model.outlook(tuner.features.rows([*step, *jobs[:5]]))
        if tuner.learn(step).swapped and tuner.model is not None:
            parts = tuner.model.dump()
        if parts is None:
            continue
        again = Tuner.restore(
            committee,
            Inline(),
            json.loads(json.dumps(tuner.dump())),
            {k: json.loads(json.dumps(s.dump())) for k, s in tuner.contexts.items()},
            parts,
            [(one[0].sequence, one[-1].sequence) for one in steps(jobs[: tuner.sequence], 3)],
            lambda sequences: [jobs[s - 1] for s in sequences],
        )
        assert tuner.model is not None
        assert again.model is not None
        assert tuner.model.dump() == again.model.dump()


@pytest.mark.parametrize("predictor", list(PREDICTORS))
def test_one_wild_run_moves_no_predictor_far(predictor: str) -> None:
    named = replace(study(), predictor=replace(study().predictor, name=predictor))
    jobs, rng = random_jobs(90), np.random.default_rng(0)
    often = next(one for one in jobs if one.metrics)
    for at in range(40, 90, 5):
        told = {"speed": often.metrics["speed"] * float(np.exp(0.02 * rng.normal()))}
        jobs[at] = msgspec.structs.replace(often, sequence=at + 1, job_id=f"j{at}", metrics=told)
    tuner = learned(jobs, of_study=named)
    assert tuner.model is not None
    rows = tuner.features.rows([often])
    (before,) = tuner.model.outlook(rows).mean
    wild = {"speed": 50 * often.metrics["speed"]}
    tuner.learn([msgspec.structs.replace(often, sequence=91, job_id="j91", metrics=wild)])
    assert tuner.model.fitted_at < 91
    assert tuner.model.outlook(rows).mean[0] == pytest.approx(before, abs=0.1)


@pytest.mark.parametrize("scale", ["linear", "log"])
@pytest.mark.parametrize("wild", [1e99, 1e200, 1.7e308, -1.7e308, 5e-324])
def test_no_number_ends_learning(wild: float, scale: str) -> None:
    text = TEXT.replace('scale = "log"\n[context]', f'scale = "{scale}"\n[context]')
    guards = "[guards]\nmemory = { max = 0 }\npower = { min = 5, max = 900 }\n"
    guarded = parse_study(text.replace("[context]", f"{guards}[context]"))
    jobs = random_jobs(60)
    metrics = {"speed": wild, "memory": wild, "power": wild}
    jobs[40] = msgspec.structs.replace(jobs[40], metrics=metrics)
    tuner = Tuner(guarded, Inline())
    for step in steps(jobs, 10):
        tuner.learn(step)
    json.dumps(tuner.dump(), allow_nan=False)
    assert not [one.failed for one in tuner.training.built if one.failed]
    assert tuner.model is not None
    told = tuner.model.outlook(tuner.features.rows(jobs))
    assert np.isfinite(told.mean).all()
    assert np.isfinite(told.std).all()


def test_a_backlog_is_predicted_as_it_is_learned() -> None:
    (all_at_once,) = steps(random_jobs(400), 400)
    tuner = Tuner(study(), Inline())
    judged = tuner.learn(all_at_once).judged
    assert [one.sequence for one in judged] == list(range(1, 401))
    predicted = [one for one in judged if one.outcome.predicted is not None]
    assert len(predicted) >= 350
    assert tuner.window.scores().kendall_within > 0.5


def test_history_that_is_gathered_teaches_the_same_evidence() -> None:
    jobs = random_jobs(120)
    online, anew = learned(jobs), Tuner(study(), Inline())
    for step in steps(jobs, 50):
        anew.gather(step)
    anew.catch_up()
    assert {k: s.evidence.dump() for k, s in anew.contexts.items()} == {
        k: s.evidence.dump() for k, s in online.contexts.items()
    }
    assert anew.model is not None
    assert len(anew.window) == 0


def test_contexts_with_new_jobs_come_first_then_the_stalest() -> None:
    tuner = learned(random_jobs(60))
    active = tuner.active(START + timedelta(days=1), timedelta(days=30), 1000)
    assert len(active) == 3
    for key in tuner.due(active):
        tuner.advise(key, None)
    assert tuner.due(active) == []
    tuner.learn([job(61, {"n": 16}, {"x": 3, "y": "b", "z": True}, speed=50.0)])
    assert tuner.due(active) == [tuner.study.context_key({"n": 16})]
    assert tuner.active(START + timedelta(days=40), timedelta(days=30), 1000) == []
    assert len(tuner.active(START + timedelta(days=1), timedelta(days=30), 2)) == 2


def test_a_context_in_which_nothing_is_feasible_says_so() -> None:
    tuner = learned([*random_jobs(20), job(21, {"n": 0}, {"x": 1}, speed=1.0)])
    with pytest.raises(NothingFeasibleError, match="fits"):
        tuner.advise(tuner.study.context_key({"n": 0}), None)


def test_what_an_order_puts_in_place_is_held_against_what_it_rules_out() -> None:
    slow: dict[str, Value] = {"x": 1, "y": "a", "z": False}
    fast = slow | {"x": 4}
    jobs = [job(i + 1, {"n": 8}, slow, speed=10.0) for i in range(12)]
    tuner = learned([*jobs, job(13, {"n": 8}, fast, speed=20.0)])
    key = tuner.study.context_key({"n": 8})

    def ahead(*orders: Override) -> float:
        tuner.impose(OverrideSet(tuner.study, orders))
        tuner.advise(key, None)
        return tuner.contexts[key].introduction.uplift.ahead

    assert ahead() == 0.0
    pinned = ahead(Override(1, "pin", {}, {"x": 4}))
    assert 0.0 < pinned <= math.log(2.0)
    assert ahead() == 0.0
    assert ahead(Override(2, "forbid", {}, {"x": 1})) == pytest.approx(pinned)


def test_where_most_jobs_explore_leads_are_counted_from_who_is_recommended() -> None:
    rng = np.random.default_rng(0)
    tuner = Tuner(study(explore_share="0.6"), Inline())
    key = tuner.study.context_key({"n": 8})
    serves: dict[str, Value] = {"x": 2, "y": "a", "z": False}
    better = serves | {"x": 3}
    state, other = None, 0
    for i in range(1, 41):
        run, speed = (better, 830) if i > 6 and i % 2 else (serves, 800)
        tuner.learn([job(i, {"n": 8}, run, speed=speed * math.exp(rng.normal(0, 0.04)))])
        said = tuner.advise(key, None).incumbent
        state = tuner.contexts[key]
        assert said is not None
        counted = state.evidence.trials[str(state.introduction.incumbent)].config
        assert counted == said.config
        other += counted == better
    assert state is not None
    assert other
    assert state.introduction.verdicts == []


def test_a_campaign_asks_round_by_round_and_ends() -> None:
    tuner = Tuner(study(), Inline())
    campaign = Campaign(jobs=6, rounds=2, round_size=3, repeats=1)
    key = tuner.start_campaign({"n": 8}, campaign, START)
    assert tuner.due([key]) == [key]
    rounds: list[tuple[int, int]] = []
    sequence = 0
    while tuner.contexts[key].campaign is not None and len(rounds) < 10:
        advice: Advice = tuner.advise(key, None)
        wanted = [c for c in advice.candidates if c.wanted]
        if advice.round is None:
            break
        rounds.append((advice.round, len(wanted)))
        for candidate in wanted:
            sequence += 1
            speed = true_speed({"n": 8}, candidate.config)
            tuner.learn([job(sequence, {"n": 8}, candidate.config, speed=speed)])
    assert rounds == [(0, 6), (1, 3), (2, 3)]
    assert tuner.contexts[key].campaign is None


def test_the_band_of_what_is_tested_is_that_of_one_job() -> None:
    tuner = Tuner(study(explore_share="0.5"), Inline())
    key, noise = tuner.study.context_key({"n": 8}), 0.1
    bands = []
    for step in steps(random_jobs(60, noise=noise, sizes=(8,)), 10):
        tuner.learn(step)
        if tuner.model is not None:
            candidates = tuner.advise(key, None).candidates
            bands += [c.predicted for c in candidates if c.kind is Kind.CONFIRM]
    assert bands
    for band in bands:
        assert band is not None
        # That of the mean of the jobs so far has half of this, and held a third of what came.
        assert np.log(band.high / band.low) / (2 * HALF) > 0.7 * noise


def test_promises_are_held_against_what_came() -> None:
    tuner = learned(random_jobs(100))
    key = tuner.study.context_key({"n": 8})
    advice = tuner.advise(key, None)
    tuner.promise(key, advice)
    state = tuner.contexts[key]
    assert {p.against for p in state.promised.values()} == {state.introduction.incumbent}
    promised = next(c for c in advice.candidates if c.gain and c.kind is not Kind.EXPLORE)
    explored = next(c for c in advice.candidates if c.kind is Kind.EXPLORE)
    assert promised.gain is not None
    assert advice.incumbent is not None
    tuner.learn(
        [
            job(
                101,
                {"n": 8},
                promised.config,
                speed=1.1 * advice.incumbent.median,
                recommendation_id="r",
                candidate_id=promised.candidate_id,
            ),
            job(
                102,
                {"n": 8},
                explored.config,
                speed=0.5 * advice.incumbent.median,
                recommendation_id="r",
                candidate_id=explored.candidate_id,
            ),
        ]
    )
    ((said, came),) = tuner.gains.pairs
    assert said == promised.gain.median
    assert came == pytest.approx(0.1)
    assert explored.gain is not None
    assert explored.gain.median + 0.5 == pytest.approx(tuner.gains.gaps[-1])
    failed = job(
        103,
        {"n": 8},
        explored.config,
        status=Status.OUT_OF_MEMORY,
        recommendation_id="r",
        candidate_id=explored.candidate_id,
    )
    tuner.learn([failed])
    assert tuner.gains.gaps[-1] == pytest.approx(explored.gain.median + 1.0)  # all was lost
    gaps = [min(gap, MOST_GAP) for gap in tuner.gains.gaps]
    assert tuner.gains.overrated == pytest.approx(sum(gaps) / (len(gaps) + PRIOR_GAPS))


def test_a_candidate_that_did_not_run_gained_nothing_however_fast_it_was() -> None:
    tuner = learned(random_jobs(100))
    key = tuner.study.context_key({"n": 8})
    advice = tuner.advise(key, None)
    tuner.promise(key, advice)
    tuner.learn(
        [
            job(
                101 + i,
                {"n": 8},
                one.config,
                speed=9999.0,
                status=Status.OUT_OF_MEMORY,
                recommendation_id="r",
                candidate_id=one.candidate_id,
            )
            for i, one in enumerate(advice.candidates)
        ]
    )
    assert {one.kind for one in advice.candidates} >= {Kind.CONFIRM, Kind.EXPLORE}
    assert not tuner.gains.pairs
    assert all(gap > 0 for gap in tuner.gains.gaps)


def test_what_a_round_asks_for_stays_wanted_when_the_incumbent_moves() -> None:
    """Steps go from the incumbent, and what the round finds takes its place."""
    tuner = Tuner(parse_study(f"{TEXT}\n[limits]\nmax_changes = 2\n"), Inline())
    start: dict[str, Value] = {"x": 2, "y": "a", "z": False}
    tuner.learn([job(i, {"n": 8}, start, speed=true_speed({"n": 8}, start)) for i in range(1, 7)])
    key = tuner.start_campaign({"n": 8}, Campaign(12, 1, 4, repeats=2), START)
    missing, moved = [], 0
    while (advice := tuner.advise(key, None)).round == 0:
        wanted = [c for c in advice.candidates if c.wanted]
        missing.append(sum(c.wanted for c in wanted))
        moved += advice.incumbent is not None and advice.incumbent.config != start
        run = wanted[0].config
        tuner.learn([job(tuner.sequence + 1, {"n": 8}, run, speed=true_speed({"n": 8}, run))])
    assert moved
    assert missing == list(range(24, 0, -1))


@pytest.mark.parametrize("seed", range(4))
def test_a_campaign_may_try_what_fails_now_and_then(seed: int) -> None:
    """Where it runs, y = c is four times as fast; half of the time it does not."""
    jobs, rng = [], np.random.default_rng(seed)
    for i in range(48):
        config: dict[str, Value] = {"x": i % 8 + 1, "y": "abc"[i % 3], "z": i % 2 == 0}
        best = config["y"] == "c"
        ran = not best or rng.random() < 0.5  # of itself: x and z say nothing of it
        jobs.append(
            job(
                i + 1,
                {"n": 8},
                config,
                speed=true_speed({"n": 8}, config) * (4 if best else 1) if ran else None,
                status=Status.SUCCEEDED if ran else Status.OUT_OF_MEMORY,
            )
        )

    def tried(campaign: Campaign) -> list[Candidate]:
        tuner = learned(jobs)
        key = tuner.start_campaign({"n": 8}, campaign, START)
        return [c for c in tuner.advise(key, None).candidates if c.wanted]

    bold, careful = tried(Campaign(0, 1, 6)), tried(Campaign(0, 1, 6, min_feasible=0.8))
    assert min(c.feasible or 0.0 for c in careful) >= 0.8
    assert {c.config["y"] for c in bold if (c.feasible or 0.0) < 0.8} == {"c"}


def test_a_campaign_asks_for_distinct_configurations_that_are_likely_to_run() -> None:
    """In a small space the search and the random draws come upon the same ones."""
    jobs = [
        job(
            i,
            {"n": 8},
            {"x": x, "y": y, "z": z},
            speed=None if y == "c" else true_speed({"n": 8}, {"x": x, "y": y, "z": z}),
            status=Status.OUT_OF_MEMORY if y == "c" else Status.SUCCEEDED,
        )
        for i, (x, y, z) in enumerate(
            [(x, y, z) for x in (1, 3, 5, 8) for y in "abc" for z in (False, True)], 1
        )
    ]
    tuner = learned(jobs)
    key = tuner.start_campaign({"n": 8}, Campaign(0, 3, round_size=12, round=0), START)
    wanted = [c for c in tuner.advise(key, None).candidates if c.wanted]
    assert len({c.candidate_id for c in wanted}) == len(wanted) == 12
    assert sum(c.config["y"] == "c" for c in wanted) <= 2


@pytest.mark.parametrize("scale", ["log", "linear"])
def test_one_broken_metric_does_not_drown_what_all_others_gained(scale: str) -> None:
    tuner = learned(random_jobs(100), of_study=study(scale=f'"{scale}"'))
    key = tuner.study.context_key({"n": 8})
    advice = tuner.advise(key, None)
    tuner.promise(key, advice)
    one = next(c for c in advice.candidates if c.gain and c.kind is not Kind.EXPLORE)
    for sequence, speed in ((101, 1.3e30), (102, 1.2e30)):
        assert not tuner.gains.pairs  # what no other job comes near waits for a repeat
        tuner.learn(
            [
                job(
                    sequence,
                    {"n": 8},
                    one.config,
                    speed=speed,
                    recommendation_id="r",
                    candidate_id=one.candidate_id,
                )
            ]
        )
    ((_, came),) = tuner.gains.pairs
    assert came == MOST_GAIN
