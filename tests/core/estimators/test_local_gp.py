"""The process over one context's own jobs."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import check_grad

from tunerd.core.arrays import FloatArray, IntArray
from tunerd.core.estimators import local_gp as local
from tunerd.core.estimators.local_gp import ContextRuns, Elsewhere, LocalGP, replayed_share

GROUPS: IntArray = np.array([0, 1, 1, 2])


def jobs(n: int, seed: int = 0) -> tuple[FloatArray, FloatArray]:
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(n, 4))
    return Z, np.sin(Z[:, 0]) + 0.3 * Z[:, 1] * Z[:, 2]


def test_the_gradient_is_that_of_the_posterior() -> None:
    Z, y = jobs(20)
    parts = local._parts(Z, GROUPS, 3)
    slope, weight = 0.3 * Z[:, 3], np.linspace(0.5, 2.0, 20)
    theta = np.array([0.3, 0.9, 1.4, -0.4, 0.6, -0.2, -3.0])
    off = check_grad(
        lambda at: local._posterior(
            at, local._priors(3), [(*parts, y, slope, weight, np.array(4.0))]
        )[0],
        lambda at: local._posterior(
            at, local._priors(3), [(*parts, y, slope, weight, np.array(4.0))]
        )[1],
        theta,
    )
    assert off < 1e-4


def test_it_learns_from_a_few_jobs() -> None:
    Z, y = jobs(60)
    asked, true = jobs(200, seed=1)
    mean, variance = LocalGP.fit(GROUPS, Z, y, np.ones(60)).predict(asked)
    assert np.corrcoef(mean, true)[0, 1] > 0.9
    assert np.mean((true - mean) ** 2 < 9 * variance + 0.01) > 0.9


def test_of_many_jobs_the_latest_say_what_matters() -> None:
    """Older ones, which hardly count any more, were of another law."""
    rng = np.random.default_rng(0)
    Z, asked = rng.normal(size=(200, 4)), rng.normal(size=(300, 4))
    new = np.arange(200) >= 130
    score = np.sin(3 * np.where(new, Z[:, 3], Z[:, 0]))
    process = LocalGP.fit(GROUPS, Z, score, np.where(new, 1.0, 0.01))
    assert np.corrcoef(process.predict(asked)[0], np.sin(3 * asked[:, 3]))[0, 1] > 0.9


def test_without_jobs_it_says_what_other_contexts_say() -> None:
    asked, _ = jobs(5)
    told = np.arange(5.0)
    nothing = np.zeros(0)
    process = LocalGP.fit(GROUPS, np.zeros((0, 4)), nothing, nothing, nothing, Elsewhere(0.1))
    mean, variance = process.predict(asked, told)
    np.testing.assert_allclose(mean, told)
    assert (variance > 0).all()


def test_one_job_moves_the_level_of_all() -> None:
    asked, _ = jobs(5)
    told = np.arange(5.0)
    process = LocalGP.fit(GROUPS, asked[:1], told[:1] - 7.0, np.ones(1), told[:1], Elsewhere(0.1))
    mean, _ = process.predict(asked, told)
    np.testing.assert_allclose(mean, told - 7.0, atol=0.5)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_units_do_not_matter(scale: float) -> None:
    Z, y = jobs(30)
    asked, _ = jobs(10, seed=1)
    one = LocalGP.fit(GROUPS, Z, y, np.ones(30)).predict(asked)
    other = LocalGP.fit(GROUPS, Z, scale * y + 5.0, np.ones(30)).predict(asked)
    np.testing.assert_allclose(other[0], scale * one[0] + 5.0, rtol=1e-3, atol=1e-3 * scale)
    np.testing.assert_allclose(np.sqrt(other[1]), scale * np.sqrt(one[1]), rtol=1e-2)


def test_a_line_goes_on_and_is_believed_less_the_farther_it_goes() -> None:
    Z, _ = jobs(12)
    y = 2.0 * Z[:, 0] + np.random.default_rng(2).normal(0.0, 0.3, 12)
    far = np.array([[3.0, 0.0, 0.0, 0.0], [30.0, 0.0, 0.0, 0.0]])
    mean, variance = LocalGP.fit(GROUPS, Z, y, np.ones(12)).predict(far)
    np.testing.assert_allclose(mean, 2.0 * far[:, 0], rtol=0.25)
    assert variance[1] > 10 * variance[0]


def test_what_ten_jobs_say_of_others_is_honest() -> None:
    """Rough everywhere, so that ten jobs tell lengths badly: half of the errors lie within about
    a standard deviation, and hardly any is a surprise beyond reason."""
    off = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        Z = rng.normal(size=(40, 4))
        y = np.sin(2.0 * Z[:, 0]) * np.cos(Z[:, 3]) + 0.5 * Z[:, 1]
        mean, variance = LocalGP.fit(GROUPS, Z[:10], y[:10], np.ones(10)).predict(Z[10:])
        off.append(np.abs(y[10:] - mean) / np.sqrt(variance))
    errors = np.concatenate(off)
    assert 0.4 < np.median(errors) < 1.2
    assert np.mean(errors > 4.0) < 0.05


@pytest.mark.parametrize("rough", [0.0, 0.5])
def test_covariance_agrees_with_variance(rough: float) -> None:
    Z, y = jobs(25)
    y = y + rough * np.random.default_rng(2).normal(size=25)
    asked, _ = jobs(6, seed=1)
    told = asked[:, 0]
    process = LocalGP.fit(GROUPS, Z, y, np.ones(25), Z[:, 0], Elsewhere(0.5))
    assert (process.share < 1.0) == (rough > 0.0)
    _, variance = process.predict(asked, told)
    found = np.array([process.covariance(asked, told, i) for i in range(6)])
    np.testing.assert_allclose(np.diag(found), variance, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found, found.T, atol=1e-9)
    assert np.linalg.eigvalsh(found).min() > 0.0


@pytest.mark.parametrize("far", [1e2, 1e4, 1e8])
def test_one_job_far_from_all_others_is_no_problem(far: float) -> None:
    Z, y = jobs(40)
    Z[7] = Z[8]
    Z[3, 0] = far
    mean, variance = LocalGP.fit(GROUPS, Z, y, np.ones(40)).predict(jobs(10, seed=1)[0])
    assert np.isfinite(mean).all()
    assert (variance > 0).all()


@pytest.mark.slow
@given(corner=st.lists(st.sampled_from([-1.0, 1.0]), min_size=7, max_size=7))
def test_wherever_the_choice_looks_there_is_a_posterior(corner: list[float]) -> None:
    """In grids many configurations lie in a line: the matrix is nearly singular."""
    Z = np.random.default_rng(0).choice([-1.4, -0.5, 0.5, 1.4], size=(120, 4))
    mean, sd = local._priors(3)
    theta = mean + local.BOUND * sd * np.array(corner)
    parts = local._parts(Z, GROUPS, 3)
    terms = (*parts, Z[:, 0], np.zeros(120), np.full(120, 10.0), np.array(4.0))
    value, gradient = local._posterior(theta, (mean, sd), [terms])
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()


@pytest.mark.slow
@given(seed=st.integers(0, 10_000), n=st.integers(3, 60), firm=st.floats(0.01, 10.0))
def test_whatever_was_tried_it_can_be_learned(seed: int, n: int, firm: float) -> None:
    rng = np.random.default_rng(seed)
    Z = rng.choice([-1.5, 0.0, 1.5], size=(n, 4)) * rng.choice([1e-9, 1.0, 30.0], size=4)
    y = 10.0 ** rng.integers(-6, 6) * Z @ rng.normal(size=4)
    mean, variance = LocalGP.fit(GROUPS, Z, y, np.full(n, firm)).predict(Z)
    assert np.isfinite(mean).all()
    assert (variance > 0).all()


def test_equal_scores_are_no_problem() -> None:
    Z, _ = jobs(10)
    mean, variance = LocalGP.fit(GROUPS, Z, np.full(10, 3.0), np.ones(10)).predict(Z)
    np.testing.assert_allclose(mean, 3.0)
    assert np.isfinite(variance).all()


@pytest.mark.parametrize("parts", [3, 30])
def test_configurations_left_out_are_predicted_from_all_others(parts: int) -> None:
    rng = np.random.default_rng(parts)
    Z, weight, told = rng.normal(size=(30, 2)), rng.uniform(0.5, 3.0, 30), rng.normal(size=30)
    score = told + np.sin(Z[:, 0]) + 0.1 * rng.normal(size=30)
    process = LocalGP.fit(np.arange(2), Z, score, weight, told, Elsewhere(1.0))
    part = np.arange(30) % parts
    K = process.factor @ process.factor.T
    y = (score - told - process.level) / process.unit
    for one in range(parts):
        out, seen = part == one, part != one
        mean = K[np.ix_(out, seen)] @ np.linalg.solve(K[np.ix_(seen, seen)], y[seen])
        expected = told[out] + process.level + mean * process.unit
        assert process.left_out(part)[out] == pytest.approx(expected, abs=1e-8)


def told_but_for(rough: float, n: int, seed: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(n, 4) configurations, scores, and what others say: all but what each has to itself."""
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(n, 4))
    told = np.sin(Z[:, 0]) + Z[:, 1]
    return Z, told + rough * rng.normal(size=n), told


def test_a_few_jobs_do_not_spoil_what_others_say() -> None:
    """What is left of it repeats nowhere: whoever makes a law of it ranks others worse."""
    off: list[float] = []
    spoiled: list[float] = []
    for seed in range(20):
        Z, score, told = told_but_for(0.5, 60, seed)
        process = LocalGP.fit(GROUPS, Z[:10], score[:10], np.ones(10), told[:10], Elsewhere(0.5))
        for found, one in ((off, process), (spoiled, replace(process, share=1.0))):
            found.append(float(np.std(one.predict(Z[10:], told[10:])[0] - told[10:])))
    assert np.mean(off) < 0.15
    assert np.mean(off) < 0.4 * np.mean(spoiled)


def test_what_was_run_itself_is_known_all_the_same() -> None:
    Z, score, told = told_but_for(0.5, 12, 3)
    process = LocalGP.fit(GROUPS, Z, score, np.ones(12), told, Elsewhere(0.5))
    assert process.share < 0.2
    mean, variance = process.predict(Z, told)
    _, elsewhere = process.predict(Z + 0.5, told)
    assert np.corrcoef(mean - told, score - told)[0, 1] > 0.95
    assert variance.max() < 0.5 * elsewhere.min()


def test_where_others_miss_something_jobs_correct_it() -> None:
    Z, score, told = told_but_for(0.0, 80, 0)
    score = score + 2.0 * Z[:, 3]
    process = LocalGP.fit(GROUPS, Z[:20], score[:20], np.ones(20), told[:20], Elsewhere(2.0))
    mean, _ = process.predict(Z[20:], told[20:])
    assert process.share > 0.8
    assert np.corrcoef(mean, score[20:])[0, 1] > 0.98


def test_what_faded_tells_no_level() -> None:
    """A context got slower: of what ran before hardly anything counts."""
    Z, score, told = told_but_for(0.2, 60, 1)
    score[:50] += 3.0
    weight = np.where(np.arange(60) < 50, 1e-3, 1.0)
    process = LocalGP.fit(GROUPS, Z, score, weight, told, Elsewhere(0.3))
    asked, true, _ = told_but_for(0.2, 40, 2)
    mean, _ = process.predict(asked, np.sin(asked[:, 0]) + asked[:, 1])
    assert abs(float(np.mean(mean - true))) < 0.5


@pytest.mark.slow
def test_what_is_usual_elsewhere_is_where_a_context_begins() -> None:
    """Everywhere one coordinate of four matters, and steeply: eight jobs do not tell which."""

    def context(seed: int, n: int) -> local.ContextRuns:
        rng = np.random.default_rng(seed)
        Z = rng.normal(size=(n, 4))
        score = np.sin(2.0 * Z[:, 0] + rng.uniform(0.0, 6.0)) + 0.02 * rng.normal(size=n)
        return local.ContextRuns(Z, score, np.ones(n), np.zeros(n))

    around = local.usual(GROUPS, [context(100 + i, 60) for i in range(6)], Elsewhere(0.7))
    found = []
    for seed in range(20):
        Z, score, _, _ = context(seed, 60)
        few, weight = slice(8), np.ones(8)
        off = [
            LocalGP.fit(GROUPS, Z[few], score[few], weight, around=one).predict(Z[8:])[0]
            - score[8:]
            for one in (None, around)
        ]
        found.append([np.mean(one**2) for one in off])
    without, knowing = np.mean(found, axis=0)
    assert knowing < 0.8 * without


def test_where_contexts_agree_what_they_call_bad_is_surely_bad() -> None:
    """Only what others call best was tried here, and these agree on how far apart things lie. If
    they did not say so, the slope could be anything, and the worst there is was worth trying."""

    def context(seed: int, best: bool, slope: float) -> local.ContextRuns:
        rng = np.random.default_rng(seed)
        Z, told = rng.normal(size=(60, 4)), np.sort(rng.uniform(-3.0, 0.0, 60))
        score = slope * told + 0.1 * rng.normal(size=60)
        some = slice(-8, None) if best else slice(None)
        return local.ContextRuns(Z[some], score[some], np.ones(len(score[some])), told[some])

    def unsure(slopes: list[float]) -> float:
        others = [context(100 + i, False, slope) for i, slope in enumerate(slopes)]
        process = LocalGP.fit(
            GROUPS,
            *context(0, True, 1.0),
            Elsewhere(0.2),
            around=local.usual(GROUPS, others, Elsewhere(0.2)),
        )
        _, variance = process.predict(np.zeros((1, 4)), np.array([-3.0]))
        return float(np.sqrt(variance[0]))

    assert unsure([1.0, 1.0, 1.0, 1.0]) < 0.2
    assert unsure([0.4, 1.6, 0.6, 1.4]) > 0.4


def test_nothing_is_usual_where_nobody_says_anything() -> None:
    assert local.usual(GROUPS, [], None) == pytest.approx(local._priors(3)[0])


def twins(slower: float) -> LocalGP:
    """Of which five jobs in one corner are all so much slower than others say."""
    Z, _ = jobs(5)
    Z, told = 2.0 + 0.05 * Z, np.linspace(1.0, 1.1, 5)
    elsewhere = Elsewhere(0.3, 0.3, 1.0)
    return LocalGP.fit(GROUPS, Z, told - slower, np.ones(5), told, elsewhere)


def test_a_slow_corner_is_a_corner_where_contexts_seldom_lie_off() -> None:
    far = np.full((1, 4), -2.0)
    mean, variance = twins(0.8).predict(far, np.ones(1))
    assert 1.0 - mean[0] < 0.55  # of .8: the rest is the corner's own
    assert np.sqrt(variance[0]) > 0.2
    free = LocalGP.fit(
        *(GROUPS, np.full((5, 4), 2.0) + 0.05 * jobs(5)[0], np.full(5, 0.2), np.ones(5)),
        *(np.ones(5), Elsewhere(0.3)),
    )
    assert 1.0 - free.predict(far, np.ones(1))[0][0] > 0.75


@pytest.mark.parametrize(("wrong", "least", "most"), [(False, 0.0, 0.2), (True, 0.7, 1.0)])
def test_replays_show_how_far_others_are_believed(wrong: bool, least: float, most: float) -> None:
    """Where what others say is right there is nothing to add; where it is nonsense, own jobs are
    all there is."""
    contexts = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        Z = rng.normal(size=(60, 4))
        score = Z @ np.array([1.0, -0.8, 0.5, 0.3]) + 0.05 * rng.normal(size=60)
        told = rng.permutation(score) if wrong else score + 0.05 * rng.normal(size=60)
        contexts.append(ContextRuns(Z, score, np.ones(60), told))
    elsewhere = Elsewhere(1.5 if wrong else 0.07, 0.5)
    theta = local.usual(GROUPS, contexts, elsewhere)
    assert least <= replayed_share(GROUPS, contexts, elsewhere, theta) <= most


def test_contexts_too_small_to_replay_say_nothing() -> None:
    Z, y = jobs(6)
    few = ContextRuns(Z, y, np.ones(6), y)
    assert replayed_share(GROUPS, [few], Elsewhere(0.1, 0.1), local._priors(3)[0]) == 0.0


def noisy_elsewhere() -> FloatArray:
    """What is usual where scores were dealt out at random in every other context."""
    rng = np.random.default_rng(7)

    def context(seed: int) -> ContextRuns:
        Z, score = jobs(60, seed)
        return ContextRuns(Z, rng.permutation(score), np.ones(60), 0.3 * rng.normal(size=60))

    return local.usual(GROUPS, [context(200 + i) for i in range(8)], Elsewhere(0.8, 0.3))


@pytest.mark.parametrize("n", [10, 20, 25])
def test_where_others_tell_nothing_own_jobs_alone_do(n: int) -> None:
    asked, true = jobs(300, seed=1)
    around = noisy_elsewhere()
    errors: list[tuple[float, float]] = []
    for seed in range(5):
        Z, y = jobs(n, seed=seed + 20)
        noise = np.random.default_rng(seed).normal(size=(2, 300)) * 0.5
        runs = Z, y, np.ones(n), noise[0, :n], Elsewhere(0.8, 0.3)
        process = LocalGP.fit(GROUPS, *runs, around=around)
        hedged = process.hedged(y, np.ones(n))
        off = [
            float(((p.predict(asked, noise[1])[0] - true) ** 2).mean()) for p in (process, hedged)
        ]
        errors.append((off[0], off[1]))
    before, after = np.mean(errors, axis=0)
    assert after < 0.8 * before


def test_where_others_are_right_they_keep_their_word() -> None:
    asked, true = jobs(300, seed=1)
    for seed in range(5):
        Z, y = jobs(10, seed=seed + 20)
        noise = np.random.default_rng(seed).normal(size=(2, 300)) * 0.1
        told, expected = y + noise[0, :10], true + noise[1]
        process = LocalGP.fit(GROUPS, Z, y, np.ones(10), told, Elsewhere(0.1, 0.1))
        hedged = process.hedged(y, np.ones(10))
        assert hedged.alone_share < 0.2
        best = int(np.argmax(hedged.predict(asked, expected)[0]))
        assert true[best] > np.quantile(true, 0.97)


def test_too_few_jobs_and_many_are_told_by_one_process() -> None:
    for n in (2, 41):
        Z, y = jobs(n)
        process = LocalGP.fit(GROUPS, Z, y, np.ones(n), 0.0 * y, Elsewhere(0.5))
        assert process.hedged(y, np.ones(n)) is process


def test_what_others_know_of_a_configuration_is_what_a_fit_without_it_knows() -> None:
    Z, y = jobs(12)
    weight = np.linspace(0.5, 10.0, 12)
    process = LocalGP.fit(GROUPS, Z, y, weight)
    known = process._known_left_out(weight)
    for i in range(12):
        rest = np.arange(12) != i
        without = LocalGP.fit(GROUPS, Z[rest], y[rest], weight[rest], theta=process.theta)
        variance = without.predict(Z[[i]])[1]
        assert known[i] == pytest.approx(without._known(Z[[i]], variance)[0], abs=1e-6)


@pytest.mark.slow
def test_the_second_process_fades_out() -> None:
    Z, y = jobs(40, seed=3)
    told = np.random.default_rng(3).normal(size=40)
    shares = []
    for n in (20, 39, 40):
        runs = Z[:n], y[:n], np.ones(n), told[:n], Elsewhere(0.8, 0.3)
        process = LocalGP.fit(GROUPS, *runs, around=noisy_elsewhere())
        shares.append(process.hedged(y[:n], np.ones(n)).alone_share)
    assert shares[0] > 0.3
    assert shares[2] < shares[1] < 0.15


@pytest.mark.slow
@settings(max_examples=40)
@given(seed=st.integers(0, 10_000), n=st.integers(3, 12), wrong=st.floats(-2.0, 2.0))
def test_whatever_both_say_together_it_is_a_belief(seed: int, n: int, wrong: float) -> None:
    Z, y = jobs(n, seed)
    process = LocalGP.fit(GROUPS, Z, y, np.ones(n), wrong * y, Elsewhere(0.5, 0.5))
    hedged = process.hedged(y, np.ones(n))
    assert 0.0 <= hedged.alone_share <= 1.0
    asked, _ = jobs(6, seed + 1)
    told = np.zeros(6)
    mean, variance = hedged.predict(asked, told)
    assert np.isfinite(mean).all()
    assert (variance > 0).all()
    together = hedged.covariance(asked, told, 2)
    assert together[2] == pytest.approx(variance[2])
    assert (np.abs(together) <= np.sqrt(variance * variance[2]) * (1 + 1e-6)).all()


def test_what_faded_tells_no_share() -> None:
    """Old runs that hardly count any more were at another level, which one process knew."""
    Z, y = jobs(30, seed=4)
    old = np.arange(30) < 20
    score, weight = np.where(old, y - 2.0, y), np.where(old, 0.01, 1.0)
    told = y + 0.05 * np.random.default_rng(4).normal(size=30)
    process = LocalGP.fit(GROUPS, Z, score, weight, told, Elsewhere(0.1, 0.1))
    assert process.hedged(score, weight).alone_share < 0.2
