"""What a tuner does about drift, and that it survives being brought back in the midst of it."""

import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
from msgspec import structs

from tests.core.tuning import START, Inline, random_jobs, study
from tunerd.core.drift import DriftUpdate
from tunerd.core.evidence.paired_tests import PromotionGuard
from tunerd.core.observation import Observation, Status
from tunerd.core.study import Study
from tunerd.core.study_file import parse_study
from tunerd.core.tuner import Tuner

pytestmark = pytest.mark.slow

CHANGE = 300


def slowed(count: int) -> list[Observation]:
    """Jobs that take a third off their speed in one of three contexts from one on."""
    return [
        structs.replace(job, metrics={"speed": job.metrics["speed"] / 1.5})
        if job.metrics and job.context["n"] == 8 and job.sequence > CHANGE
        else job
        for job in random_jobs(count, seed=5)
    ]


def steps(jobs: Sequence[Observation], size: int = 10) -> Iterator[Sequence[Observation]]:
    for start in range(0, len(jobs), size):
        yield jobs[start : start + size]


def acting(act: bool = True) -> Study:
    plain = study()
    return replace(plain, drift=replace(plain.drift, act=act))


def test_a_drift_makes_a_new_model_and_says_when_it_is_over() -> None:
    tuner, due = Tuner(acting(), Inline()), False
    found: list[DriftUpdate] = []
    key = tuner.study.context_key({"n": 8})
    for step in steps(slowed(600)):
        learned = tuner.learn(step)
        found += learned.drift
        due = due or (any(one.phase == "began" for one in learned.drift) and learned.swapped)
    speed = [one for one in found if one.drift.kind == "speed"]
    assert [one.phase for one in speed] == ["began", "over"]
    assert speed[0].drift.contexts == (key,)
    assert CHANGE < speed[0].at < CHANGE + 60
    assert due
    (regime,) = tuner.training.regimes
    assert (regime.keys, regime.since) == ((key,), speed[0].drift.since)
    assert regime.moved == pytest.approx(-0.405, abs=0.06)
    assert any(built.why == "drift" for built in tuner.training.built)


@pytest.mark.parametrize("then", [1.0, 0.64])
def test_a_second_change_before_the_first_is_over_is_learned_from_where_it_began(
    then: float,
) -> None:
    """Jobs between the two are moved along, too: else what they said is held against it."""
    second, context, rng = CHANGE + 45, {"n": 8}, np.random.default_rng(1)
    few = [job for job in random_jobs(40, seed=5) if job.metrics and job.context == context][:3]
    jobs = []
    for job in random_jobs(CHANGE + 80, seed=5):
        if job.context == context:
            like = few[job.sequence % 3]
            factor = 1.0 if job.sequence <= CHANGE else 0.8 if job.sequence <= second else then
            speed = like.metrics["speed"] * factor * math.exp(rng.normal(0.0, 0.03))
            job = structs.replace(
                job, config=like.config, metrics={"speed": speed}, status=like.status
            )
        jobs.append(job)
    tuner = Tuner(acting(), Inline())
    found: list[DriftUpdate] = []
    for step in steps(jobs):
        found += tuner.learn(step).drift
    assert [one.phase for one in found if one.drift.of_speed] == ["began", "grew"]
    first, again = tuner.training.regimes
    assert abs(first.since - CHANGE) < 15
    assert abs(again.since - second) < 15
    assert again.moved == pytest.approx(math.log(then / 0.8), abs=0.08)
    key = tuner.study.context_key(context)
    known = {
        json.dumps(trial.config, sort_keys=True): trial.mean
        for _, trial in tuner.contexts[key].evidence.measured()
    }
    for like in few:
        mean = known[json.dumps(like.config, sort_keys=True)]
        assert mean == pytest.approx(math.log(like.metrics["speed"] * then), abs=0.04)


def test_estimates_begin_again_where_it_drifted_and_nowhere_else() -> None:
    tuner = Tuner(acting(), Inline())
    for step in steps(slowed(CHANGE)):
        tuner.learn(step)
    before = {
        n: {
            cid: t.mean
            for cid, t in tuner.contexts[tuner.study.context_key({"n": n})].evidence.measured()
        }
        for n in (8, 16)
    }
    for step in steps(slowed(CHANGE + 60)[CHANGE:]):
        tuner.learn(step)
    for n, moved in ((8, -0.405), (16, 0.0)):
        state = tuner.contexts[tuner.study.context_key({"n": n})]
        known = dict(state.evidence.measured())
        changes = [known[cid].mean - mean for cid, mean in before[n].items() if cid in known]
        assert sum(changes) / len(changes) == pytest.approx(moved, abs=0.07)


def test_a_former_incumbent_that_a_drift_brings_back_keeps_what_it_was_known_for() -> None:
    """Else whoever has run since, the one that gave way above all, would be elected instead. The
    watch remembers it no more."""
    tuner = Tuner(acting(), Inline())
    jobs = slowed(CHANGE + 60)
    for step in steps(jobs[:CHANGE]):
        tuner.learn(step)
    state = tuner.contexts[tuner.study.context_key({"n": 8})]
    names = {json.dumps(t.config, sort_keys=True): cid for cid, t in state.evidence.measured()}
    later = Counter(
        names.get(json.dumps(job.config, sort_keys=True))
        for job in jobs[CHANGE:]
        if job.context == {"n": 8}
    )
    serving = next(cid for cid, _ in later.most_common() if cid is not None)
    former = next(cid for cid in names.values() if cid not in later)
    known = state.evidence.trials[former]
    runs, mean = known.runs, known.mean
    serves = state.evidence.trials[serving].mean
    cell = next(name for name in state.watched.cells if former.startswith(name))
    del state.watched.cells[cell]
    state.introduction.incumbent, state.introduction.established = serving, True
    state.introduction.probation = PromotionGuard(former, level=serves, noise=0.02)
    for step in steps(jobs[CHANGE:]):
        tuner.learn(step)
    assert state.introduction.incumbent == former
    assert known.former is not None
    assert known.former[0] == pytest.approx(mean)
    assert (known.runs, runs) == (0, 3)  # where it is now, its own jobs have to say


def test_who_only_wants_to_be_told_is_only_told() -> None:
    tuner = Tuner(acting(act=False), Inline())
    found: list[DriftUpdate] = []
    for step in steps(slowed(450)):
        found += tuner.learn(step).drift
    assert [one.drift.kind for one in found if one.phase == "began"] == ["speed"]
    assert tuner.training.regimes == ()


def test_it_is_brought_back_exactly() -> None:
    """Wherever it is cut: from right after the change to long after it."""
    jobs = slowed(CHANGE + 160)
    tuner, parts = Tuner(acting(), Inline()), None
    recovered: list[Tuner] = []
    for step in steps(jobs):
        if tuner.sequence in (CHANGE + 10, CHANGE + 30, CHANGE + 50, CHANGE + 80):
            again = Tuner.restore(
                acting(),
                Inline(),
                json.loads(json.dumps(tuner.dump())),
                {k: json.loads(json.dumps(s.dump())) for k, s in tuner.contexts.items()},
                parts,
                [(s[0].sequence, s[-1].sequence) for s in steps(jobs[: tuner.sequence])],
                lambda sequences: [jobs[s - 1] for s in sequences],
            )
            assert again.dump() == tuner.dump()
            recovered.append(again)
        learned = tuner.learn(step)
        assert all(again.learn(step) == learned for again in recovered)
        if learned.swapped and tuner.model is not None:
            parts = tuner.model.dump()
    assert len(recovered) == 4
    assert all(again.dump() == tuner.dump() for again in recovered)


FOUR = """
schema = 1
name = "toy"
mode = "publish"
explore_share = 0.2
objective = { metric = "speed", goal = "maximize" }
context.n = { type = "int" }
parameters.x = { type = "int", values = [1, 2, 4, 8], scale = "log" }
predictor = { name = "boosted_trees", members = 3, trees = 30 }
"""


def test_after_a_change_more_is_explored_and_all_questions_are_open_again() -> None:
    """Each of the others was measured twelve times, lost, and was withdrawn."""
    tuner, rng = Tuner(parse_study(FOUR), Inline()), np.random.default_rng(0)
    key = tuner.study.context_key({"n": 1})

    def learn(*jobs: tuple[int, float]) -> list[tuple[object, float]]:
        tuner.learn(
            [
                Observation(
                    study="toy",
                    source="test",
                    event_id=str(number),
                    job_id=str(number),
                    status=Status.SUCCEEDED,
                    finished_at=START,
                    context={"n": 1},
                    config={"x": x},
                    metrics={"speed": speed * float(np.exp(rng.normal(0, 0.05)))},
                    sequence=number,
                    content_hash=str(number),
                )
                for number, (x, speed) in enumerate(jobs, tuner.sequence + 1)
            ]
        )
        return [(one.config["x"], one.share) for one in tuner.advise(key, None).candidates]

    for _ in range(12):
        learn(*((x, 100 * x**0.5) for x in (1, 2, 4, 8)))
    for _ in range(10):
        assert learn(*[(8, 100 * 8**0.5)] * 4) == []  # all questions are answered
    assert len(tuner.contexts[key].introduction.verdicts) == 3
    for _ in range(3):
        asked = learn(*[(8, 60.0)] * 4)
    assert [x for x, _ in asked] == [4, 2]  # the likeliest first
    assert asked[0][1] > asked[1][1]
    assert sum(share for _, share in asked) == pytest.approx(0.2, abs=1e-5)
