"""Which observations a rebuild learns from."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunerd.core.features.replay import LATEST, SAMPLED, ReplayBuffer, ReplaySample, sequences_at
from tunerd.core.features.rows import FeatureRows


def rows_of(sequences: np.ndarray[tuple[int], np.dtype[np.int64]]) -> FeatureRows:
    """Rows that can be told apart: everything in them follows from the sequence."""
    values = sequences.astype(np.float64)
    return FeatureRows(
        X=np.stack([values, -values], axis=1),
        score=values * 2,
        ran=np.ones(len(values)),
        ran_weight=np.full(len(values), 0.5),
        context_key=tuple(f"c{s}" for s in sequences.tolist()),
        weight=values + 0.25,
        margin=-values,
    )


def assert_holds(
    sample: ReplaySample, sequences: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> None:
    rows, wanted = sample.rows, rows_of(sequences)
    np.testing.assert_array_equal(sample.sequences, sequences)
    np.testing.assert_array_equal(sample.finished, sequences / 10)
    np.testing.assert_array_equal(rows.X, wanted.X)
    np.testing.assert_array_equal(rows.score, wanted.score)
    np.testing.assert_array_equal(rows.ran_weight, wanted.ran_weight)
    np.testing.assert_array_equal(rows.weight, wanted.weight)
    np.testing.assert_array_equal(rows.margin, wanted.margin)
    assert rows.context_key == wanted.context_key


@pytest.mark.slow
@given(
    batches=st.lists(st.integers(1, 40), min_size=1, max_size=12),
    latest=st.integers(1, 30),
    sampled=st.integers(1, 30),
)
def test_what_is_kept_depends_on_the_last_sequence_alone(
    batches: list[int], latest: int, sampled: int
) -> None:
    replay = ReplayBuffer(latest, sampled)
    last = 0
    for size in batches:
        sequences = np.arange(last + 1, last + size + 1)
        replay.add(rows_of(sequences), sequences, sequences / 10)
        last += size
        kept = sequences_at(last, latest, sampled)
        assert_holds(replay.sample(), kept)
        assert len(replay) == len(kept) == min(last, latest + sampled)
    assert_holds(replay.recent(latest), np.arange(max(last - latest, 0) + 1, last + 1))
    assert_holds(replay.recent(1), np.array([last]))
    assert_holds(replay.since(last - 1), np.array([last]))


def test_recovery_may_add_the_sample_at_once() -> None:
    """A replay filled from ``sequences_at`` goes on as the one that saw everything."""
    seen, recovered = ReplayBuffer(10, 15), ReplayBuffer(10, 15)
    everything = np.arange(1, 101)
    seen.add(rows_of(everything), everything, everything / 10)
    sample = sequences_at(80, 10, 15)
    recovered.add(rows_of(sample), sample, sample / 10)
    rest = np.arange(81, 101)
    recovered.add(rows_of(rest), rest, rest / 10)
    assert_holds(recovered.sample(), sequences_at(100, 10, 15))
    assert_holds(seen.sample(), sequences_at(100, 10, 15))


def test_older_observations_are_kept_evenly() -> None:
    kept = sequences_at(200_000)
    assert len(kept) == LATEST + SAMPLED
    assert (kept[-LATEST:] == np.arange(200_000 - LATEST + 1, 200_001)).all()
    # 18,000 of 198,000 in ten bins: 1,800 each, sd 40 (binomial); 6 sd is about 1e-8 for all ten.
    counts, _ = np.histogram(kept[:-LATEST], bins=10, range=(1, 200_000 - LATEST))
    assert np.abs(counts - SAMPLED / 10).max() < 6 * 40


def test_nothing_added_is_no_rows() -> None:
    assert len(ReplayBuffer().sample().rows) == 0
    assert len(ReplayBuffer().recent(5).rows) == 0
    assert len(ReplayBuffer().since(3).rows) == 0
    assert len(sequences_at(0)) == 0


def test_what_is_recent_goes_by_when_jobs_ended() -> None:
    replay = ReplayBuffer(latest=20, sampled=5)
    new, old = np.arange(1, 11), np.arange(11, 21)
    replay.add(rows_of(new), new, (new + 100).astype(np.float64))
    replay.add(rows_of(old), old, old.astype(np.float64))
    np.testing.assert_array_equal(replay.recent(12).sequences, [*new, 19, 20])
    np.testing.assert_array_equal(replay.since(18).sequences, [19, 20])
    ended = replay.sample().by_time()
    np.testing.assert_array_equal(ended.sequences, [*old, *new])
    assert (np.diff(ended.finished) > 0).all()


def test_now_is_when_the_newest_job_ended_that_is_kept() -> None:
    """Whether it was asked for in between or not: recovery asks once."""
    for asked in (True, False):
        replay = ReplayBuffer(latest=5, sampled=5)
        assert not asked or replay.now == 0.0
        for last in range(1, 41):
            one = np.array([last])
            replay.add(rows_of(one), one, 100.0 - one)  # an import of the newest first
            assert not asked or replay.now == replay.sample().finished.max()
        assert replay.now == replay.sample().finished.max() < 99.0
