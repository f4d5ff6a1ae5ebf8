"""The ensemble of networks learns to rank within contexts, and comes out the same every time."""

import math

import numpy as np
import pytest

from tests.needs import need_library
from tunerd.core.arrays import BoolArray, FloatArray, IntArray
from tunerd.core.estimators.networks import (
    DROPPED,
    HIDDEN,
    RankingNetworks,
    TrainingSchedule,
    _gradients,
)
from tunerd.core.scores import kendall

MEMBERS = 3


def problem(rows: int = 300) -> tuple[FloatArray, FloatArray, IntArray, BoolArray]:
    """A bent surface in four contexts."""
    rng = np.random.default_rng(1)
    Z = rng.normal(size=(rows, 5))
    y = np.sin(2 * Z[:, 0]) + 0.5 * Z[:, 1] * Z[:, 2]
    masks = np.ones((MEMBERS, rows), bool)
    masks[0, : rows // 2] = False
    return Z, y / y.std(), rng.integers(0, 4, rows), masks


def trained(steps: int, seed: int = 5) -> RankingNetworks:
    Z, y, group, masks = problem()
    return RankingNetworks.fresh(MEMBERS, 5, seed).trained(
        Z, y, group, masks, TrainingSchedule(steps, seed, 1e-2)
    )


def test_it_learns_to_rank_and_keeps_the_scale() -> None:
    Z, y, _, _ = problem()
    before = RankingNetworks.fresh(MEMBERS, 5, 5).predict(Z)
    after = trained(400).predict(Z)
    assert after.shape == (300, MEMBERS)
    for member in range(MEMBERS):
        assert kendall(after[:, member], y) > max(0.8, kendall(before[:, member], y))
    slope = np.polyfit(after.mean(axis=1), y, 1)[0]
    assert 0.8 < slope < 1.25


def test_a_member_learns_nothing_from_rows_that_it_may_not_see() -> None:
    Z, y, group, masks = problem()
    other = y.copy()
    other[:150] = -other[:150]
    start = RankingNetworks.fresh(MEMBERS, 5, 5)
    how = TrainingSchedule(20, 5, 1e-2)
    one = start.trained(Z, y, group, masks, how).predict(Z)
    two = start.trained(Z, other, group, masks, how).predict(Z)
    np.testing.assert_array_equal(one[:, 0], two[:, 0])
    assert (one[:, 1] != two[:, 1]).any()


def test_the_same_seed_gives_the_same_bits_and_another_does_not() -> None:
    assert trained(30).dump() == trained(30).dump()
    assert trained(30).dump() != trained(30, seed=6).dump()


def test_weights_survive_to_the_last_bit() -> None:
    Z, *_ = problem()
    networks = trained(10)
    again = RankingNetworks.load(networks.dump())
    np.testing.assert_array_equal(networks.predict(Z), again.predict(Z))
    assert again.dump() == networks.dump()


@pytest.mark.slow
def test_rows_are_looked_at_as_often_as_they_count() -> None:
    Z, y, group, _ = problem()
    masks, other = np.ones((MEMBERS, 300), bool), y.copy()
    other[:200] = -other[:200]
    counts = np.append(np.full(200, 0.001), np.ones(100))
    start, how = RankingNetworks.fresh(MEMBERS, 5, 5), TrainingSchedule(300, 5, 1e-2)
    found = start.trained(Z, other, group, masks, how, counts).predict(Z).mean(axis=1)
    assert kendall(found[200:], y[200:]) > 0.8
    assert kendall(found[:200], y[:200]) > 0.4  # as the other rows have it
    alike = start.trained(Z, y, group, masks, how, np.full(300, 0.1))
    assert alike.dump() == start.trained(Z, y, group, masks, how).dump()


@pytest.mark.slow
def test_few_rows_learn_as_many_do_that_are_the_same() -> None:
    """Of few, each is computed once for all its places in a batch; of many, every place is."""
    few, often = 200, 3  # 200 rows lie below the batch, three times as many above
    Z, y, group, _ = problem(few)
    how = TrainingSchedule(300, 5, 1e-2)
    once = RankingNetworks.fresh(MEMBERS, 5, 5).trained(
        Z, y, group, np.ones((MEMBERS, few), bool), how
    )
    thrice = RankingNetworks.fresh(MEMBERS, 5, 5).trained(
        np.tile(Z, (often, 1)),
        np.tile(y, often),
        np.tile(group, often),
        np.ones((MEMBERS, often * few), bool),
        how,
    )
    new = np.random.default_rng(7).normal(size=(500, 5))
    one, two = once.predict(new).mean(axis=1), thrice.predict(new).mean(axis=1)
    assert np.corrcoef(one, two)[0, 1] > 0.99


@pytest.mark.slow
def test_the_squared_error_alone_learns_the_level_which_no_pair_tells() -> None:
    Z, y, group, masks = problem()
    start, off = RankingNetworks.fresh(MEMBERS, 5, 5), {}
    for ranking, squared in ((1.0, 0.0), (0.0, 1.0)):
        how = TrainingSchedule(400, 5, 1e-2, ranking=ranking, squared=squared)
        shown = start.trained(Z, y + 3.0, group, masks, how).predict(Z).mean(axis=1)
        off[squared] = abs(float(shown.mean()) - 3.0)
        assert kendall(shown, y) > 0.5
    assert off[1.0] < 0.3
    assert off[0.0] > 1.0


@pytest.mark.slow
@pytest.mark.parametrize("rows", [40, 300], ids=["fewer than a batch", "more"])
def test_the_gradient_is_the_one_that_torch_finds(rows: int) -> None:
    torch = need_library("torch", "trainers")
    Z, y, *_ = problem(rows)
    rng = np.random.default_rng(3)
    inputs, targets = Z.astype(np.float32), y.astype(np.float32)
    both = rng.integers(0, rows, (MEMBERS, 100))
    start = RankingNetworks.fresh(MEMBERS, 5, 5)
    weights = [start.into, start.bias + np.float32(0.1), start.out, start.shift]
    how = TrainingSchedule(1, 5, 1e-2)
    ours = _gradients(weights, inputs, targets, both, np.random.default_rng(9), how)

    shape = (MEMBERS, rows if rows < 100 else 100, HIDDEN)
    drawn = np.frombuffer(np.random.default_rng(9).bytes(math.prod(shape)), np.uint8)
    kept = torch.tensor((drawn.reshape(shape) >= DROPPED) * np.float32(256 / (256 - DROPPED)))
    into, bias, out, shift = theirs = [torch.tensor(w, requires_grad=True) for w in weights]
    place, goal = torch.tensor(both), torch.tensor(targets[both])
    seen = torch.tensor(inputs if rows < 100 else inputs[both])
    scores = (((seen @ into + bias).relu() * kept) @ out + shift)[:, :, 0]
    scores = scores.gather(1, place) if rows < 100 else scores
    margin, ahead = goal[:, :50] - goal[:, 50:], scores[:, :50] - scores[:, 50:]
    missed = (margin.abs() - margin.sign() * ahead).relu().sum()
    loss = how.ranking * missed + how.squared / 2 * ((scores - goal) ** 2).sum()
    (loss / 50).backward()
    for mine, parameter in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, parameter.grad.numpy(), rtol=1e-3, atol=1e-5)
