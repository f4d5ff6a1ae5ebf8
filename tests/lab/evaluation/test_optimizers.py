"""tunerd in the closed loop: through the daemon's own tuner, and the same every time."""

from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np
import pytest

from tests.lab.evaluation.loops import STUDY, rows
from tunerd.core.observation import Observation, Status
from tunerd.core.recommendation import Candidate, Kind
from tunerd.errors import MisconfiguredError
from tunerd.lab.evaluation.closed_loop import (
    BenchmarkPlan,
    BenchmarkProblem,
    RegretCurve,
    TrialResult,
    play,
    play_all,
)
from tunerd.lab.evaluation.loop_results import loops
from tunerd.lab.evaluation.optimizers import Follow, RandomOptimizer, TunerdOptimizer, followed
from tunerd.lab.evaluation.tabular import measured

TABLE = measured(STUDY, rows((4, 8, 16)), min_configs=20)
TARGET = next(one for one in TABLE.contexts if one.context == {"n": 8})


def says(curves: Sequence[RegretCurve]) -> list[tuple[object, ...]]:
    return [(c.context_key, c.seed, c.regret, c.tried) for c in curves]


@pytest.mark.slow
@pytest.mark.parametrize("follow", ["shares", "campaign"])
def test_it_finds_the_best_sooner_than_chance(follow: Follow) -> None:
    plan = BenchmarkPlan(jobs=30, start=10, seeds=(0, 1))
    own = loops("tunerd", list(play_all(TABLE, TunerdOptimizer(follow=follow), plan)), 10)
    random = loops("random", list(play_all(TABLE, RandomOptimizer(), plan)), 10)
    assert own.area < random.area
    assert own.mean_regret["10"] == random.mean_regret["10"]
    assert own.mean_regret["30"] < 0.02 < random.mean_regret["30"]


@pytest.mark.slow
def test_what_other_contexts_showed_is_known_from_the_first_job_on() -> None:
    plan = BenchmarkPlan(jobs=10, start=0, history="others", seeds=(0, 1))
    own = loops("tunerd", list(play_all(TABLE, TunerdOptimizer(), plan)), 0)
    alone = BenchmarkPlan(jobs=10, start=0, seeds=(0, 1))
    cold = loops("tunerd", list(play_all(TABLE, TunerdOptimizer(), alone)), 0)
    assert own.mean_regret["1"] < 0.5 * cold.mean_regret["1"]
    assert own.mean_regret["5"] < 0.05


@pytest.mark.slow
@pytest.mark.parametrize("follow", ["shares", "campaign"])
@pytest.mark.parametrize("history", ["none", "others"])
def test_the_same_again_is_the_same_to_the_bit(follow: Follow, history: str) -> None:
    plan = BenchmarkPlan(jobs=22, start=7, batch=4, seeds=(3,), history=history)  # type: ignore[arg-type]
    first, again = (
        says(list(play_all(TABLE, TunerdOptimizer(follow=follow), plan))) for _ in range(2)
    )
    assert first == again


@pytest.mark.slow
def test_seeds_differ() -> None:
    plan = BenchmarkPlan(jobs=15, start=0, batch=5)
    tried = {play(TARGET, TunerdOptimizer(), plan, seed).tried for seed in range(4)}
    assert len(tried) == 4


@pytest.mark.slow
def test_a_history_that_targets_share_is_learned_once_and_is_the_same_for_each() -> None:
    """Recovered from what was saved, as a daemon does after a restart."""
    plan = BenchmarkPlan(jobs=12, start=0)
    targets = [target for target in TABLE.contexts if target is not TARGET]
    shared = tuple(row for row in TABLE.others(targets[0]) if row.context != targets[1].context)
    shared = tuple(msgspec.structs.replace(row, sequence=i) for i, row in enumerate(shared, 1))
    together = TunerdOptimizer()
    for target in targets:
        again = [play(target, player, plan, 1, shared) for player in (together, TunerdOptimizer())]
        assert says(again[:1]) == says(again[1:])


@pytest.mark.slow
def test_only_what_is_in_the_table_is_tried() -> None:
    """A table with holes: three quarters of the space were never measured."""
    rng = np.random.default_rng(0)
    holes = measured(STUDY, [row for row in rows((16,)) if rng.random() < 0.25], 10)
    target = holes.contexts[0]
    assert len(target.configs) < 30
    curve = play(target, TunerdOptimizer(), BenchmarkPlan(jobs=100, start=3, batch=2), 0)
    assert set(curve.tried) <= set(range(len(target.configs)))
    assert curve.regret[-1] == 0.0


def test_a_round_of_a_campaign_has_as_many_configurations_as_are_asked_for() -> None:
    curve = play(
        TARGET, TunerdOptimizer(follow="campaign"), BenchmarkPlan(jobs=45, start=5, batch=20), 0
    )
    assert len(set(curve.tried)) == 45


def test_more_jobs_than_candidates_repeat_them() -> None:
    curve = play(
        TARGET, TunerdOptimizer(follow="shares"), BenchmarkPlan(jobs=25, start=5, batch=20), 0
    )
    assert len(set(curve.tried)) == 12  # the start and, as half of the jobs explore, seven
    assert max(Counter(curve.tried).values()) == 3


def test_jobs_say_which_recommendation_they_followed() -> None:
    problem = BenchmarkProblem(STUDY, TARGET.context, TARGET.context_key, TARGET.configs)
    run = TunerdOptimizer().begin(problem, 0)
    run.tell([done(i, at) for at, i in enumerate(run.ask(5), 1)])
    state = run.tuner.contexts[TARGET.context_key]
    assert state.evidence.jobs == 5
    assert not any(trial.unasked for trial in state.evidence.trials.values())
    assert run.tuner.model is not None
    run.tell([done(i, at) for at, i in enumerate([7, 8], 6)])  # what nobody asked for
    assert sum(trial.unasked for trial in state.evidence.trials.values()) == 2


def done(index: int, sequence: int) -> TrialResult:
    row = msgspec.structs.replace(TARGET.rows[index][0], sequence=sequence)
    return TrialResult(index, *TARGET.told(row), row)


def candidate(rank: int, share: float, wanted: int = 0) -> Candidate:
    return Candidate(
        candidate_id=f"c{rank}", rank=rank, kind=Kind.EXPLORE, share=share, wanted=wanted, config={}
    )


@pytest.mark.parametrize(
    ("candidates", "n", "ranks"),
    [
        ([(0.02, 0)] * 5, 5, [1, 2, 3, 4, 5]),
        ([(0.02, 0)] * 5, 10, [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]),
        ([(0.3, 0), (0.1, 0)], 4, [1, 1, 1, 2]),
        ([(0.0, 2), (0.0, 1), (0.1, 0)], 5, [1, 1, 2, 3, 3]),
        ([(0.0, 2), (0.0, 1)], 2, [1, 1]),
        ([(0.0, 2), (0.0, 1)], 5, [1, 1, 2]),
        ([], 3, []),
    ],
)
def test_jobs_follow_what_is_wanted_and_then_the_shares(
    candidates: list[tuple[float, int]], n: int, ranks: list[int]
) -> None:
    given = [candidate(i, share, wanted) for i, (share, wanted) in enumerate(candidates, 1)]
    assert [one.rank for one in followed(given, n)] == ranks


@pytest.mark.slow
def test_where_hardly_anything_runs_jobs_go_on() -> None:
    """Nothing is likely enough to run to be recommended: the incumbent, or what is untried."""
    table = [
        row if row.config["x"] == 8 and row.config["y"] == "a" else failed(row)
        for row in rows((8,))
    ]
    target = measured(STUDY, table).contexts[0]
    for follow in ("shares", "campaign"):
        curve = play(target, TunerdOptimizer(follow=follow), BenchmarkPlan(jobs=40, start=15), 0)
        assert len(curve.tried) == 40


def failed(row: Observation) -> Observation:
    return msgspec.structs.replace(row, metrics={}, status=Status.OUT_OF_MEMORY)


def test_other_searchers_and_predictors_by_name() -> None:
    other = TunerdOptimizer(searcher="random")
    assert other.study(STUDY).search.searcher == "random"
    assert TunerdOptimizer().study(STUDY) == STUDY
    assert other.study(STUDY, 2).search.seeds != STUDY.search.seeds
    with pytest.raises(MisconfiguredError, match="--searcher: no searcher 'best'; there are") as e:
        TunerdOptimizer("best", "perfect").study(STUDY)
    assert len(e.value.problems) == 2
