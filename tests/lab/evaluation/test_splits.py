"""What is known and what is asked for."""

from collections import Counter
from datetime import timedelta

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.tuning import START, job, random_jobs, renamed, study
from tunerd.core.observation import Observation
from tunerd.core.study import Study
from tunerd.errors import MisconfiguredError
from tunerd.lab.evaluation.splits import SplitFold, folds, parse_known, parse_split

STUDY = study()
JOBS = random_jobs(120)
TEXTS = ("random", "curve", "time", "group:n", "group:context_key", "group:y", "above:n=4")


def made(text: str, known: str = "", repeats: int = 1, seed: int = 0) -> list[SplitFold]:
    amounts = parse_known(known) if known else ()
    return folds(STUDY, parse_split(text, STUDY), JOBS, amounts, repeats, seed)


@pytest.mark.parametrize("text", TEXTS)
@given(seed=st.integers(0, 1_000), known=st.sampled_from(["", "10", "5,20", "30%"]))
def test_nothing_is_both_known_and_asked(text: str, seed: int, known: str) -> None:
    for fold in made(text, known, repeats=2, seed=seed):
        assert not set(fold.train.tolist()) & set(fold.asked.tolist())
        assert len(fold.asked)
        for where in (fold.train, fold.asked):
            assert np.all(np.diff(where) > 0)  # ascending, each once
            assert not len(where) or where[-1] < len(JOBS)


@pytest.mark.parametrize("text", TEXTS)
def test_a_split_is_the_same_again(text: str) -> None:
    def told(found: list[SplitFold]) -> list[object]:
        return [(f.known, f.repeat, f.part, f.train.tolist(), f.asked.tolist()) for f in found]

    assert told(made(text, repeats=2)) == told(made(text, repeats=2))
    if text != "time":
        drawn = made(text, "10", repeats=2)
        assert told(drawn) != told(made(text, "10", repeats=2, seed=1))


def test_every_job_is_asked_for_once_by_the_parts_of_a_random_split() -> None:
    found = made("random", repeats=2)
    assert len(found) == 10
    for repeat in (0, 1):
        asked = np.concatenate([f.asked for f in found if f.repeat == repeat])
        assert sorted(asked.tolist()) == list(range(len(JOBS)))


def test_amounts_are_numbers_or_shares() -> None:
    by = {f.known: f for f in made("random", "5%,30")}
    assert len(by["5%"].train) == 6
    assert len(by["30"].train) == 30
    assert len(by["30"].asked) == 90
    assert set(by["5%"].train.tolist()) < set(by["30"].train.tolist())  # more, not others


def test_a_curve_asks_for_the_same_jobs_at_every_amount() -> None:
    found = made("curve")
    assert [f.known for f in found] == ["30", "75", "80%"]
    assert [len(f.train) for f in found] == [30, 75, 96]
    assert len({tuple(f.asked.tolist()) for f in found}) == 1


def test_time_splits_at_moments_and_tears_none_apart() -> None:
    for fold in made("time"):
        known = max(JOBS[i].finished_at for i in fold.train.tolist())
        assert all(JOBS[i].finished_at > known for i in fold.asked.tolist())
    coarse = [
        msgspec.structs.replace(one, finished_at=START + timedelta(days=i // 40))
        for i, one in enumerate(JOBS)
    ]
    found = folds(STUDY, parse_split("time", STUDY), coarse)
    assert [len(f.train) for f in found] == [40, 80]


def test_time_goes_by_dates_and_not_by_the_order_of_the_table() -> None:
    backwards = JOBS[::-1]
    for fold in folds(STUDY, parse_split("time", STUDY), backwards):
        known = max(backwards[i].finished_at for i in fold.train.tolist())
        assert all(backwards[i].finished_at > known for i in fold.asked.tolist())


def test_a_group_is_left_out_whole_but_for_what_may_be_known() -> None:
    sizes = Counter(str(one.context["n"]) for one in JOBS)
    found = made("group:n", "0,5")
    assert {f.part for f in found} == set(sizes)
    for fold in found:
        there = [i for i, one in enumerate(JOBS) if str(one.context["n"]) == fold.part]
        known = set(there) & set(fold.train.tolist())
        assert len(known) == int(fold.known)
        assert set(fold.asked.tolist()) == set(there) - known
        assert len(fold.train) == len(JOBS) - len(there) + len(known)


def test_older_jobs_have_the_values_of_what_was_renamed() -> None:
    def told(split: str, of: Study) -> list[object]:
        found = folds(of, parse_split(split, of), JOBS)
        return [(f.part, f.train.tolist(), f.asked.tolist()) for f in found]

    for before, after in (("group:x", "group:ex"), ("above:x=4", "above:ex=4")):
        assert told(before, STUDY) == told(after, renamed())


def test_a_group_too_small_for_an_amount_has_no_such_fold() -> None:
    few = [one for one in JOBS if one.context["n"] != 4]
    few += [one for one in JOBS if one.context["n"] == 4][:12]
    found = folds(STUDY, parse_split("group:n", STUDY), few, parse_known("0,4,5"))
    assert {f.known for f in found if f.part == "4"} == {"0", "4"}


def test_of_very_many_groups_some_are_drawn() -> None:
    many = random_jobs(1_200, sizes=range(2, 202))
    drawn = [folds(STUDY, parse_split("group:n", STUDY), many, seed=seed) for seed in (0, 0, 1)]
    assert [len(found) for found in drawn] == [100, 100, 100]
    first, again, other = ({f.part for f in found} for found in drawn)
    assert first == again != other


def test_above_asks_for_larger_ones_and_knows_a_few_of_them() -> None:
    for fold in made("above:n=4", "0,10"):
        large = [i for i, one in enumerate(JOBS) if int(str(one.context["n"])) > 4]
        assert len(set(large) & set(fold.train.tolist())) == int(fold.known)
        assert set(fold.asked.tolist()) <= set(large)


def test_missing_values_are_a_group_of_their_own_and_not_above() -> None:
    jobs: list[Observation] = [*JOBS, job(121, {}, {"x": 1, "y": "a", "z": True}, speed=3.0)]
    parts = {f.part for f in folds(STUDY, parse_split("group:n", STUDY), jobs)}
    assert parts == {"4", "8", "16"}  # a single job is a group too small to ask about
    jobs += [job(i, {}, {"x": 1, "y": "a", "z": True}, speed=3.0) for i in range(122, 126)]
    parts = {f.part for f in folds(STUDY, parse_split("group:n", STUDY), jobs)}
    assert parts == {"4", "8", "16", "~"}
    (fold,) = folds(STUDY, parse_split("above:n=4", STUDY), jobs)
    assert 120 in fold.train


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("sometimes", r"none of random, time, group:COLUMN"),
        ("group", r"name a column: group:COLUMN; there are n, x, y, z, context_key"),
        ("group:gpu", r"no column 'gpu'; there are n, x, y, z"),
        ("above:n", r"needs a number, above:n=64"),
        ("above:n=many", r"needs a number"),
        ("above:m=4", r"no column 'm'"),
        ("random:5", r"takes nothing after it"),
    ],
)
def test_wrong_splits_say_what_would_be_right(text: str, says: str) -> None:
    with pytest.raises(MisconfiguredError, match=says):
        parse_split(text, STUDY)


@pytest.mark.parametrize("text", ["", "many", "5.5", "120%", "1,,2", "-3"])
def test_wrong_amounts_are_refused(text: str) -> None:
    with pytest.raises(MisconfiguredError, match="--known"):
        parse_known(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("above:n=400", r"every job is on the same side; n goes from 4 to 16"),
        ("above:y=1", r"y holds no numbers"),
    ],
)
def test_a_split_that_leaves_nothing_says_why(text: str, says: str) -> None:
    with pytest.raises(MisconfiguredError, match=says):
        made(text)


def test_jobs_of_one_moment_cannot_be_split_by_time() -> None:
    undated = [msgspec.structs.replace(one, finished_at=START) for one in JOBS]
    with pytest.raises(MisconfiguredError, match="nothing is dated"):
        folds(STUDY, parse_split("time", STUDY), undated)


def test_too_few_jobs_are_told() -> None:
    with pytest.raises(MisconfiguredError, match="5 jobs leave fewer than 8 to ask about"):
        folds(STUDY, parse_split("random", STUDY), JOBS[:5])
