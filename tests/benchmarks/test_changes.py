"""What turned slow is given up: the closed loop of `benchmarks.changes`, a stream of each kind."""

import pytest

from benchmarks.changes import SCENARIOS, SETTLED, Task, play

SEED = 7
"""Not one of those that the benchmark runs."""


def played(scenario: str, policy: str = "tunerd") -> tuple[int | None, float, float]:
    found = play(Task(scenario, policy, SEED, noise=0.05, following=1.0, explore=0.2))
    return found.half_at, found.mean(SETTLED), found.tried


@pytest.mark.parametrize("name", ["falls", "link", "heals"])
def test_half_of_the_jobs_soon_run_the_new_best(name: str) -> None:
    half_at, settled, tried = played(name)
    bar = SCENARIOS[name]
    assert half_at is not None
    assert bar.half_by is not None
    assert bar.settled is not None
    assert half_at <= bar.half_by
    assert settled >= bar.settled
    assert tried <= 0.2


def test_the_policies_beside_it_do_what_they_say() -> None:
    assert played("falls", "oracle")[:2] == (0, 1.0)
    half_at, settled, _ = played("falls", "never")
    assert half_at is None
    assert settled == pytest.approx(0.15)
    half_at, settled, tried = played("falls", "a tenth")
    assert half_at is not None
    assert settled < 1.0
    assert 0.05 < tried < 0.15
