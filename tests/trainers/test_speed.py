"""The speed of a training: the middle of its stretches, without warm-up and pauses."""

import pytest

from tunerd.trainers.speed import MeasuredSpeed, StepTimer


class Clock:
    """Time that passes when told."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def timed(*steps: float, warmup: int = 10, tokens: float = 100) -> MeasuredSpeed | None:
    """The speed of a training whose steps took so many seconds."""
    clock = Clock()
    timer = StepTimer(warmup, clock)
    for seconds in steps:
        clock.now += seconds
        timer.step({"tokens": tokens})
    return timer.measure()


def test_the_warm_up_is_left_out() -> None:
    speed = timed(*[10.0] * 10, *[0.5] * 90)
    assert speed is not None
    assert speed.rates == {"steps": pytest.approx(2), "tokens": pytest.approx(200)}
    assert speed.seconds == pytest.approx(45)
    assert (speed.steps, speed.warmup_steps) == (90, 10)


def test_of_a_short_run_the_first_half_is_left_out() -> None:
    speed = timed(10.0, 10.0, 10.0, 0.5, 0.5, 0.5)
    assert speed is not None
    assert speed.rates["steps"] == pytest.approx(2)
    assert (speed.steps, speed.warmup_steps) == (3, 3)


@pytest.mark.parametrize("steps", [0, 1])
def test_one_step_is_no_speed(steps: int) -> None:
    assert timed(*[1.0] * steps) is None


def test_a_checkpoint_now_and_then_does_not_count() -> None:
    steps = [0.5] * 1000
    steps[200::200] = [60.0] * len(steps[200::200])
    speed = timed(*steps)
    assert speed is not None
    assert speed.rates["tokens"] == pytest.approx(200)


def test_steps_that_are_only_queued_are_not_fast() -> None:
    """Nine return at once and the tenth waits for the GPU."""
    speed = timed(*([0.001] * 9 + [4.991]) * 100)
    assert speed is not None
    assert speed.rates["steps"] == pytest.approx(2, rel=0.1)


@pytest.mark.parametrize("resume", [True, False])
def test_pauses_do_not_count(resume: bool) -> None:
    """Without ``resume`` a pause lasts to the end of the next step."""
    clock = Clock()
    timer = StepTimer(2, clock)
    for step in range(600):
        clock.now += 0.5
        timer.step({})
        if step % 20 == 0:
            timer.pause()
            timer.pause()
            clock.now += 30
            if resume:
                timer.resume()
    speed = timer.measure()
    assert speed is not None
    assert speed.rates["steps"] == pytest.approx(2, rel=0 if resume else 0.06)


@pytest.mark.parametrize("count", [100, 10_000, 300_000])
def test_memory_is_bounded_and_the_speed_the_same(count: int) -> None:
    clock = Clock()
    timer = StepTimer(300, clock)
    for _ in range(count):
        clock.now += 0.25
        timer.step({"samples": 8})
    speed = timer.measure()
    assert speed is not None
    assert speed.rates == {"steps": pytest.approx(4), "samples": pytest.approx(32)}
    assert 1 <= speed.stretches <= 16
    assert speed.steps >= (count - min(300, count // 2)) * 0.95
    assert len(timer._marks) <= 257


def test_what_differs_between_steps_is_counted_as_it_is() -> None:
    """Batches of other lengths: tokens over time, not the mean of ratios."""
    clock = Clock()
    timer = StepTimer(10, clock)
    for step in range(400):
        long = step % 2
        clock.now += 0.9 if long else 0.1
        timer.step({"tokens": 90 if long else 10})
    speed = timer.measure()
    assert speed is not None
    assert speed.rates["tokens"] == pytest.approx(100)
