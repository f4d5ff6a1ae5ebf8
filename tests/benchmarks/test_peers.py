"""Every peer is held to the same contract, and to being good at something easy."""

from collections.abc import Sequence

import numpy as np
import pytest

from benchmarks.peers import OPTIMIZERS, PREDICTORS, forecaster, optimizer
from benchmarks.tables import read_table
from tests.benchmarks.made_up import NAME, write_table
from tests.needs import without
from tunerd.core.observation import Observation, Status
from tunerd.core.predictors import PREDICTORS as OWN
from tunerd.core.scores import kendall_large
from tunerd.core.study import Study
from tunerd.core.study_file import parse_study
from tunerd.lab.evaluation.closed_loop import BenchmarkPlan, BenchmarkProblem, TrialResult, play
from tunerd.lab.evaluation.forecaster import checked, stripped
from tunerd.lab.evaluation.tabular import TabularBenchmark, measured

# What other people's libraries warn of is theirs to mend.
pytestmark = pytest.mark.filterwarnings("ignore")

Made = tuple[Study, Sequence[Observation], TabularBenchmark]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = write_table(tmp_path_factory.mktemp("made"))
    table = read_table(NAME, folder)
    study = parse_study(table.study)
    return study, table.observations, measured(study, table.observations, min_configs=30)


def needs(name: str, registry: object) -> None:
    peer = PREDICTORS[name] if registry is PREDICTORS else OPTIMIZERS[name]
    if not peer.installed:
        without(", ".join(peer.needs), "`make peers`, or pip install -e '.[peers]'")


@pytest.fixture(params=list(PREDICTORS))
def predictor(request: pytest.FixtureRequest) -> str:
    needs(request.param, PREDICTORS)
    return str(request.param)


@pytest.fixture(params=list(OPTIMIZERS))
def player(request: pytest.FixtureRequest) -> str:
    needs(request.param, OPTIMIZERS)
    return str(request.param)


def test_no_peer_is_called_as_a_predictor_of_tunerd() -> None:
    assert not set(PREDICTORS) & set(OWN)


# ── predictors ───────────────────────────────────────────────────────────────────────────────


def test_predictors_rank_what_is_easy(predictor: str, made: Made) -> None:
    study, jobs, _ = made
    known, asked = jobs[:330], [stripped(job) for job in jobs[330:]]
    told = checked(predictor, forecaster(predictor).foretell(study, known, asked, 1), len(asked))
    actual = [study.score(job.metrics) for job in jobs[330:]]
    ran = [i for i, score in enumerate(actual) if score is not None]
    tau = kendall_large(told.score[ran], np.array([actual[i] for i in ran], dtype=np.float64))
    # A share of its context's best is not meant to be compared between contexts.
    assert tau > (0.1 if told.only_ranks else 0.5)
    assert told.runs is not None
    did = np.array([score is not None for score in actual])
    assert told.runs[did].mean() > told.runs[~did].mean() + 0.05


def test_predictors_say_the_same_twice(predictor: str, made: Made) -> None:
    study, jobs, _ = made
    assert forecaster(predictor).name == predictor
    asked = [stripped(job) for job in jobs[100:140]]
    one, two = (forecaster(predictor).foretell(study, jobs[:100], asked, 3) for _ in range(2))
    assert np.array_equal(one.score, two.score)
    assert one.runs is not None
    assert two.runs is not None
    assert np.array_equal(one.runs, two.runs)


@pytest.mark.parametrize("known", ["nothing", "one", "two", "failures", "alike"])
def test_predictors_can_do_with_next_to_nothing(predictor: str, known: str, made: Made) -> None:
    study, jobs, _ = made
    failed = [job for job in jobs if job.status is not Status.SUCCEEDED]
    ran = [job for job in jobs if job.status is Status.SUCCEEDED]
    given = {
        "nothing": [],
        "one": ran[:1],
        "two": ran[:2],
        "failures": failed[:12],
        "alike": [ran[0]] * 12,
    }[known]
    asked = [stripped(job) for job in jobs[200:220]]
    checked(predictor, forecaster(predictor).foretell(study, given, asked, 0), len(asked))


# ── optimizers ───────────────────────────────────────────────────────────────────────────────


def regret(player: str, made: Made, plan: BenchmarkPlan) -> float:
    """Mean over contexts, after all jobs."""
    table = made[2]
    found = []
    for target in table.contexts[:2]:
        history = table.others(target) if plan.history == "others" else ()
        curve = play(target, optimizer(player), plan, plan.seeds[0], history)
        assert len(set(curve.tried)) == len(curve.tried), "tried twice"
        found.append(curve.regret[-1])
    return float(np.mean(found))


@pytest.mark.parametrize("player", [n for n, one in OPTIMIZERS.items() if one.cold], indirect=True)
def test_optimizers_find_something_good(player: str, made: Made) -> None:
    worst = 0.25 if player in ("random", "optuna_cmaes") else 0.12
    assert regret(player, made, BenchmarkPlan(jobs=30, start=10, seeds=(1,))) < worst


@pytest.mark.parametrize(
    "player", [n for n, one in OPTIMIZERS.items() if one.history], indirect=True
)
def test_optimizers_use_old_jobs(player: str, made: Made) -> None:
    worst = 0.25 if player == "nearest_context" else 0.15
    assert (
        regret(player, made, BenchmarkPlan(jobs=10, start=0, seeds=(1,), history="others")) < worst
    )


def test_optimizers_play_the_same_twice(player: str, made: Made) -> None:
    assert optimizer(player).name == player
    table = made[2]
    plan = BenchmarkPlan(jobs=20, start=8, seeds=(2,))
    one, two = (play(table.contexts[0], optimizer(player), plan, 2) for _ in range(2))
    assert one.tried == two.tried


def test_optimizers_try_everything_in_the_end(player: str, made: Made) -> None:
    target = made[2].contexts[0]
    n = len(target.configs)
    curve = play(target, optimizer(player), BenchmarkPlan(jobs=n + 5, start=n - 12, seeds=(0,)), 0)
    assert sorted(curve.tried) == list(range(n))


def test_optimizers_go_on_while_nothing_runs(player: str, made: Made) -> None:
    study, jobs, table = made
    target = table.contexts[0]
    problem = BenchmarkProblem(study, target.context, target.context_key, target.configs)
    run = optimizer(player).begin(problem, 0)
    failed = next(job for job in jobs if job.status is Status.OUT_OF_MEMORY)
    tried: set[int] = set()
    for _ in range(4):
        picks = list(run.ask(4))
        assert len(set(picks) - tried) == 4
        tried.update(picks)
        run.tell([TrialResult(index, None, False, failed) for index in picks])
