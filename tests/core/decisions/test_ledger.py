"""What is entered of a job, and what the sums say."""

import json
import math
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec import structs

from tests.core.tuning import study
from tunerd.core.decisions.context_state import ContextState
from tunerd.core.decisions.ledger import entered, ledger, realised
from tunerd.core.evidence.gain_calibration import MOST_GAIN, PredictedGain, promises_of
from tunerd.core.evidence.prequential import LedgerEntry, PrequentialOutcome, PrequentialRecord
from tunerd.core.observation import Status
from tunerd.core.recommendation import Advice, Candidate, Incumbent, Kind
from tunerd.core.study import Study

STUDY = study()
AT = datetime(2026, 11, 1, tzinfo=UTC)


def judged(sequence: int = 1, *, history: bool = False, **outcome: Any) -> PrequentialRecord:
    made: dict[str, Any] = {"config_id": "c-1", "status": Status.SUCCEEDED, "score": 1.0}
    return PrequentialRecord(
        sequence, AT, history, "toy|n=4", PrequentialOutcome(**(made | outcome))
    )


def context() -> ContextState:
    state = ContextState({"n": 4})
    state.introduction.incumbent = "c-0"
    state.introduction.level, state.introduction.uplift.ahead = 0.9, 0.2
    state.promise({"c-1": PredictedGain(0.3, 0.8, Kind.CONFIRM, "c-0")})
    return state


def test_a_job_is_entered_with_its_lead_and_with_what_was_promised_of_it() -> None:
    one, plain, old = entered(
        {"toy|n=4": context()},
        [
            judged(following="followed", told_to_try=True),
            judged(config_id="c-0"),
            judged(history=True),
        ],
    )
    entry = one.outcome.entry
    assert entry == LedgerEntry(lead=0.1, promised=0.3, kind="confirm")
    assert realised(STUDY, one) == pytest.approx(math.expm1(0.1))
    assert plain.outcome.entry == LedgerEntry(lead=0.1, ahead=0.2)
    assert old.outcome.entry is None


def test_a_job_of_an_earlier_incumbent_is_as_far_ahead_as_that_was() -> None:
    """It was launched before the promotion, and ended after it; or its id is made up."""
    state = context()
    state.introduction.uplift.earlier = {"c-first": 0.0, "c-second": 0.1}
    kept: dict[str, Any] = {"following": "followed", "gpu_hours": 100.0}
    jobs = [
        judged(i, config_id=name, **kept)
        for i, name in enumerate(["c-0", "c-first", "c-second", "c-slow"])
    ]
    entries = [one.outcome.entry for one in entered({"toy|n=4": state}, jobs)]
    assert [one.ahead for one in entries if one] == [0.2, 0.0, 0.1, 0.0]


def test_a_promise_is_compared_only_with_who_it_was_made_against() -> None:
    state = ContextState.load(json.loads(json.dumps(context().dump())))
    job = judged(following="followed", told_to_try=True)

    def compared(incumbent: str) -> bool:
        state.introduction.incumbent = incumbent
        (one,) = entered({"toy|n=4": state}, [job])
        total = ledger(STUDY, [one]).study
        assert total.tried == {"confirm": 1}
        return total.promises == 1

    assert compared("c-0")
    assert not compared("c-1")  # it was promoted before its job ended: it would meet itself
    assert not compared("c-2")


def test_what_no_gain_was_told_of_keeps_its_kind() -> None:
    """It was entered as exploring."""
    linear = study(scale='"linear"')
    told = Candidate(candidate_id="c-1", rank=1, kind=Kind.CONFIRM, share=0.1, config={"x": 2})
    best = Incumbent(config={"x": 1}, median=0.0, low=-1.0, high=1.0, jobs=5)
    state, said = context(), Advice((told,), best, None, "")
    state.promised = {}
    state.promise(promises_of(linear, "toy|n=4", said))
    state = ContextState.load(json.loads(json.dumps(state.dump())))
    jobs = [judged(following="followed", told_to_try=True)]
    total = ledger(linear, entered({"toy|n=4": state}, jobs)).study
    assert (total.tried, total.promises) == ({"confirm": 1}, 0)


def test_sums() -> None:
    kept: dict[str, Any] = {"following": "followed", "gpu_hours": 10.0, "recommendation_id": "r-1"}
    tried = kept | {"told_to_try": True}
    jobs = [
        judged(1, **kept, entry=LedgerEntry(lead=0.0, ahead=0.2)),
        judged(2, **tried, entry=LedgerEntry(lead=-0.1, ahead=0.2, promised=0.3, kind="explore")),
        judged(3, **tried, score=None, ran=False, entry=LedgerEntry(kind="exploit", promised=0.1)),
        judged(4, following="ignored", gpu_hours=5.0, entry=LedgerEntry(ahead=0.2)),
        judged(5, following="unasked", entry=LedgerEntry()),
        judged(6, history=True),
    ]
    made = ledger(STUDY, jobs)
    total = made.study
    assert total.jobs == 5
    assert total.following == {"followed": 3, "ignored": 1, "unasked": 1}
    assert total.tried == {"explore": 1, "exploit": 1}
    assert total.did_not_run == 1
    assert total.gpu_hours == 35.0
    assert total.saved == pytest.approx(10 * math.expm1(0.2))
    assert total.spent == pytest.approx(10 - 10 * math.expm1(-0.1))
    assert (total.promises, total.promised) == (1, 0.3)
    assert total.overrated == pytest.approx(0.3 - math.expm1(-0.1))
    assert made.contexts["toy|n=4"] == total
    assert made.recommendations["r-1"].jobs == 3


@pytest.mark.parametrize("scale", ["log", "linear"])
def test_who_carries_an_id_and_runs_something_else_saves_nothing(scale: str) -> None:
    kept: dict[str, Any] = {"gpu_hours": 10.0, "entry": LedgerEntry(lead=0.0, ahead=0.2)}
    jobs = [judged(1, following="followed", **kept), judged(2, following="changed", **kept)]
    total = ledger(study(scale=f'"{scale}"'), jobs).study
    alone = ledger(study(scale=f'"{scale}"'), jobs[:1]).study
    assert total.following == {"followed": 1, "changed": 1}
    assert total.gpu_hours == 20.0
    assert total.saved == alone.saved > 0.0


@pytest.mark.parametrize("goal", ["maximize", "minimize"])
def test_the_same_jobs_on_a_linear_scale_come_to_the_same(goal: str) -> None:
    """Speeds, or seconds, of 4,000 where the incumbent has 5,000, and the other way round."""
    sums = []
    for scale in ("log", "linear"):
        objective = study(scale=f'"{scale}"', goal=f'"{goal}"')

        def score(speed: float, of: Study = objective) -> float:
            found = of.score({"speed": speed})
            assert found is not None
            return found

        jobs = []
        for number, (own, other) in enumerate([(4e3, 5e3), (5e3, 4e3)], 1):
            lead = score(own) - score(other)
            entry = LedgerEntry(lead=lead, ahead=lead, promised=0.1, kind="exploit")
            kept: dict[str, Any] = {"following": "followed", "gpu_hours": 10.0, "entry": entry}
            jobs += [
                judged(2 * number - 1, **kept, score=score(own)),
                judged(2 * number, **kept, score=score(own), told_to_try=True),
            ]
        total = ledger(objective, jobs).study
        assert total.promises == 2
        sums.append((total.realised, total.saved, total.spent))
    assert sums[1] == pytest.approx(sums[0])


def test_nothing_tried_says_nothing_of_predictions() -> None:
    assert ledger(STUDY, [judged(following="unasked")]).study.overrated is None


@pytest.mark.parametrize("told_to_try", [True, False])
def test_what_broke_a_guard_gains_nothing_however_fast(told_to_try: bool) -> None:
    entry = LedgerEntry(lead=0.3, ahead=0.2, promised=0.1, kind="confirm")
    job = judged(following="followed", told_to_try=told_to_try, ran=False, gpu_hours=10.0)
    job = structs.replace(job, outcome=structs.replace(job.outcome, entry=entry))
    total = ledger(STUDY, [job]).study
    assert (total.promises, total.saved, realised(STUDY, job)) == (0, 0.0, None)
    assert (total.did_not_run, total.spent) == ((1, 10.0) if told_to_try else (0, 0.0))


@pytest.mark.parametrize(("scale", "lead"), [("log", 19.0), ("linear", 1e6)])
def test_one_broken_metric_does_not_drown_what_all_others_gained(scale: str, lead: float) -> None:
    of = study(scale=f'"{scale}"')
    tried: dict[str, Any] = {"following": "followed", "told_to_try": True, "score": lead + 1.0}
    job = judged(1, **tried, entry=LedgerEntry(lead=lead, promised=0.1, kind="confirm"))
    assert ledger(of, [job]).study.realised == MOST_GAIN
