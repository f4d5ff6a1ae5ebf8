"""The spool of an import: order, repeats, and going on after a kill."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunerd.errors import AlreadyRunningError
from tunerd.lab.importing.spool import ImportSpool, SpooledJob


def job(at: int, name: str) -> SpooledJob:
    return SpooledJob(at, name, f"hash of {name}", 0, 1, name.encode())


def take(spool: ImportSpool, many: int) -> list[str]:
    """Send the next ones."""
    jobs = spool.next(many)
    if jobs:
        spool.tally.at, spool.tally.place = jobs[-1].at, jobs[-1].place
    return [one.event_id for one in jobs]


@pytest.mark.slow
@given(
    times=st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=40),
    many=st.integers(1, 9),
    restart=st.booleans(),
)
def test_oldest_first_and_else_in_the_order_of_the_rows(
    tmp_path_factory: pytest.TempPathFactory, times: list[int], many: int, restart: bool
) -> None:
    path = tmp_path_factory.mktemp("spool") / "s.sqlite"
    jobs = [job(at, str(place)) for place, at in enumerate(times)]
    spool = ImportSpool(path)
    assert spool.add(jobs) == len(jobs)
    spool.sorted()
    spool.save()
    found: list[str] = []
    while batch := take(spool, many):
        found += batch
        spool.save()
        if restart:
            spool.close()
            spool = ImportSpool(path)
    assert found == [one.event_id for one in sorted(jobs, key=lambda one: one.at)]
    spool.close()


def test_what_was_not_saved_is_read_or_sent_again(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    with ImportSpool(path) as spool:
        assert not spool.resumed
        spool.add([job(1, "a")])
        spool.tally.row = 1
        spool.save()
        spool.add([job(2, "b")])
        spool.tally.row = 2
    with ImportSpool(path) as spool:
        assert spool.resumed
        assert (spool.tally.row, spool.count()) == (1, 1)
        spool.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_job_is_there_once(tmp_path: Path) -> None:
    with ImportSpool(tmp_path / "s.sqlite") as spool:
        assert spool.add([job(1, "a"), job(2, "b")]) == 2
        assert spool.add([job(1, "a"), job(2, "c")]) == 1


def test_rows_that_are_alike_are_counted_in_each_table(tmp_path: Path) -> None:
    with ImportSpool(tmp_path / "s.sqlite") as spool:
        assert [spool.place_among_alike(0, "x") for _ in range(2)] == [1, 2]
        spool.add([job(1, "x"), job(1, "x.2")])
        assert [spool.place_among_alike(0, "x") for _ in range(2)] == [3, 4]
        assert [spool.place_among_alike(1, "x") for _ in range(3)] == [1, 2, 3]
        assert spool.place_among_alike(1, "y") == 1
        assert spool.place_among_alike(2, "y") == 1


def test_one_process_at_a_time(tmp_path: Path) -> None:
    with (
        ImportSpool(tmp_path / "s.sqlite"),
        pytest.raises(AlreadyRunningError, match="imported by another process"),
    ):
        ImportSpool(tmp_path / "s.sqlite")


@pytest.mark.parametrize("count", [1, 2, 49, 50, 51, 333])
def test_milestones_are_spread_and_end_with_the_last(tmp_path: Path, count: int) -> None:
    with ImportSpool(tmp_path / "s.sqlite") as spool:
        spool.add([job(at, str(at)) for at in range(count)])
        spool.sorted()
        found = list(spool.milestones(50))
    assert len(found) == min(count, 50)
    assert found[-1] == (count, str(count - 1))
    assert all(event_id == str(place - 1) for place, event_id in found)
