"""A loop without work looks less and less often, and at once more often after work."""

from tunerd.service.idle import LONGEST_S, SHORTEST_S, IdlePause


def test_pauses_grow_to_a_bound_and_start_over_with_work() -> None:
    pause = IdlePause()
    idle = [pause.after(worked=False) for _ in range(200)]
    assert idle[0] == SHORTEST_S
    assert idle == sorted(idle)
    assert idle[-1] == LONGEST_S
    assert 1.0 < sum(s for s in idle if s < LONGEST_S) < 5.0
    assert pause.after(worked=True) == 0.0
    assert pause.after(worked=False) == SHORTEST_S
