"""Joining: the same halves make the same event, in whatever order and however often they come."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.broken_events import NOW
from tunerd.core.observation import Observation, Status
from tunerd.events import JobHalf
from tunerd.events.half import AttemptKey, read_half
from tunerd.events.job import TimeLimits, read_content
from tunerd.events.joining import AttemptHalves, attempt_event_id
from tunerd.events.rejection import MAX_EVENT_BYTES

KEY = AttemptKey("a", "1", 1)
LIMITS = TimeLimits()


def half(**fields: Any) -> JobHalf:
    names = {"schema": "tunerd.job/1", "source": "slurm/a", "job_id": "1", "event_id": "e"}
    seen = read_half({**names, **fields}, NOW, LIMITS)
    assert isinstance(seen, JobHalf), seen
    return seen


def together(halves: list[JobHalf]) -> AttemptHalves:
    made = AttemptHalves()
    for one in halves:
        made.add(one)
    return made


def joined(made: AttemptHalves) -> Observation:
    seen = made.observation(KEY, attempt_event_id(KEY))
    assert isinstance(seen, Observation), seen
    return seen


TIMES = st.integers(0, 5).map(lambda n: (NOW - timedelta(hours=6 - n)).isoformat())
NAMES = st.sampled_from(["x", "y", "z"])
VALUES = st.one_of(st.integers(0, 3), st.sampled_from(["p", "q"]), st.none())
ENTRIES = st.dictionaries(NAMES, VALUES, max_size=3)
SHARED = {
    "user": st.sampled_from(["anna", "ben"]),
    "gpus": st.integers(0, 3),
    "context": ENTRIES,
    "config": ENTRIES,
    "labels": ENTRIES,
    "study": st.just("s"),
    "queue": st.sampled_from(["long", "short"]),
    "recommendation_id": st.sampled_from(["r-1", "r-2"]),
}
METRICS = st.dictionaries(NAMES, st.one_of(st.floats(0, 9), st.none()), max_size=3)
STARTED = st.fixed_dictionaries(
    {"type": st.just("started")}, optional={"started_at": TIMES, **SHARED}
)
REPORTED = st.fixed_dictionaries(
    {"type": st.just("reported"), "metrics": METRICS},
    optional={"steps": st.integers(0, 4), "reported_at": TIMES, **SHARED},
)
COMPLETED = st.fixed_dictionaries(
    {
        "type": st.just("completed"),
        "partial": st.just(True),
        "status": st.sampled_from(["succeeded", "failed", "preempted"]),
        "finished_at": TIMES,
    },
    optional={"metrics": METRICS, **SHARED},
)
HALVES = st.lists(st.one_of(STARTED, REPORTED, COMPLETED), min_size=1, max_size=6).map(
    lambda found: [half(**one, event_id=f"e{i}") for i, one in enumerate(found)]
)


@pytest.mark.slow
@settings(max_examples=40)
@given(HALVES, st.data())
def test_neither_order_nor_repeats_matter(halves: list[JobHalf], data: st.DataObject) -> None:
    again = data.draw(st.lists(st.sampled_from(halves), max_size=4))
    one = together(halves)
    other = together(data.draw(st.permutations([*halves, *again])))
    assert one.missing == other.missing
    assert one.material == other.material
    assert (one.study, one.history, one.types) == (other.study, other.history, other.types)
    for name in ("x", "y"):
        for steps in (-1, 0, 3):
            assert one.measured(name, steps, 2) == other.measured(name, steps, 2)
    if not one.missing:
        assert joined(one) == joined(other)
    key = AttemptKey("a", "1", 1)
    seen = [made.observation(key, "e", running_at=NOW) for made in (one, other)]
    assert seen[0] == seen[1]


@pytest.mark.slow
@settings(max_examples=40)
@given(HALVES, st.data())
def test_a_half_joins_alike_after_the_others_were_kept(
    halves: list[JobHalf], data: st.DataObject
) -> None:
    """What is kept in the store between two halves is all that there is."""
    made = AttemptHalves()
    for one in data.draw(st.permutations(halves)):
        text = msgspec.json.encode(made)
        made = msgspec.json.decode(text, type=AttemptHalves)
        made.add(one)
    assert made.material == together(halves).material
    assert made.missing == together(halves).missing


WHOLE = {
    "study": "s",
    "context": {"gpu": "H100", "n": 8},
    "config": {"tp": 4, "pp": [1, 2]},
    "user": "anna",
    "gpus": 8,
    "nodes": ["n1"],
    "labels": {"team": "x"},
    "recommendation_id": "r-1",
    "candidate_id": "c-1",
    "submitted_at": (NOW - timedelta(hours=3)).isoformat(),
    "started_at": (NOW - timedelta(hours=2)).isoformat(),
    "queue": {"name": "long"},
    "metrics": {"tps": 100.0, "mem": None},
    "measured_s": 60.0,
    "steps": 10,
    "reported_at": (NOW - timedelta(hours=1)).isoformat(),
    "status": "succeeded",
    "finished_at": (NOW - timedelta(minutes=30)).isoformat(),
}
PLACES = {
    "started": 0,
    "metrics": 1,
    "measured_s": 1,
    "steps": 1,
    "reported_at": 1,
    "status": 2,
    "finished_at": 2,
}


@given(
    st.fixed_dictionaries({name: st.integers(0, 2) for name in WHOLE if name not in PLACES}),
    st.permutations([0, 1, 2]),
)
def test_halves_of_a_whole_event_teach_what_it_does(
    places: dict[str, int], order: list[int]
) -> None:
    """Whoever knows what of it: the joined observation is the one of the whole event."""
    parts: list[dict[str, Any]] = [
        {"type": "started", "event_id": "e0"},
        {"type": "reported", "event_id": "e1"},
        {"type": "completed", "event_id": "e2", "partial": True},
    ]
    for name, value in WHOLE.items():
        parts[PLACES.get(name, places.get(name, 0))][name] = value
    seen = joined(together([half(**parts[i]) for i in order]))
    names = {"schema": "tunerd.job/1", "type": "completed", "source": "a", "job_id": "1"}
    which = {"attempt": 1, "event_id": attempt_event_id(KEY)}
    assert seen == read_content({**WHOLE, **names, **which}, NOW, LIMITS)


def test_what_is_missing_is_said() -> None:
    made = AttemptHalves()
    assert list(made.missing) == ["study", "context", "config", "reported", "completed"]
    made.add(half(type="started", study="s", context={}, config={"tp": 1}))
    assert list(made.missing) == ["reported", "completed"]
    made.add(half(type="completed", status="succeeded", finished_at=NOW.isoformat()))
    assert list(made.missing) == ["reported"]
    made.add(half(type="reported", metrics={"tps": None}))
    assert list(made.missing) == []
    assert joined(made).metrics == {}


@pytest.mark.parametrize("status", ["failed", "out_of_memory", "cancelled", "preempted"])
def test_what_did_not_succeed_needs_no_report(status: str) -> None:
    end = half(type="completed", status=status, finished_at=NOW.isoformat())
    made = together([half(type="started", study="s", context={}, config={}), end])
    assert made.missing == ()
    assert joined(made).status == Status(status)


def test_a_later_report_that_is_no_number_says_that_nothing_is_known() -> None:
    made = together(
        [
            half(type="reported", metrics={"tps": None, "loss": 2.0}, steps=20, event_id="2"),
            half(type="reported", metrics={"tps": 5.0, "mem": 1.0}, steps=10, event_id="1"),
        ]
    )
    assert not made.measured("tps", 0, 0)
    assert made.measured("loss", 20, 0)
    assert made.measured("mem", 20, 0)
    assert not made.measured("mem", 21, 0)


def test_how_long_it_ran_follows_from_its_times_else_from_what_was_measured() -> None:
    report = half(type="reported", metrics={"tps": 5.0}, steps=10, measured_s=7200)
    made = together([report])
    assert made.measured("tps", 10, 2.0)
    assert not made.measured("tps", 10, 2.1)
    made.add(half(type="started", started_at="2026-11-20T10:00:00Z"))
    assert made.measured("tps", 10, 2.0)
    later = {"reported_at": "2026-11-20t12:00:00.123456789+01:00", "steps": 11, "event_id": "2"}
    made.add(half(type="reported", metrics={"tps": 5.0}, **later))
    assert made.measured("tps", 10, 1.0)
    assert not made.measured("tps", 10, 1.1)


def test_what_is_kept_stays_small_however_often_a_trainer_reports() -> None:
    made = AttemptHalves()
    made.add(half(type="started", study="s", context={}, config={}))
    for n in range(2_000):
        made.add(half(type="reported", metrics={"tps": float(n)}, steps=n, event_id=f"r{n}"))
    assert len(msgspec.json.encode(made)) < 4_000
    assert made.types == {"started": 1, "reported": 2_000}
    assert made.add(
        half(type="reported", metrics={"tps": 1999.0}, steps=1999, event_id="r1999")
    ) == ("duplicate")


def test_together_they_are_no_larger_than_an_event() -> None:
    made = AttemptHalves()
    big = {f"{n}": "x" * 1000 for n in range(150)}
    assert made.add(half(type="started", labels=big)) == "fresh"
    more = {f"b{n}": "x" * 1000 for n in range(150)}
    assert made.add(half(type="reported", metrics={}, labels=more)) == "too large"
    assert made.add(half(type="reported", metrics={"tps": 1.0})) == "fresh"
    assert len(big) * 1000 < MAX_EVENT_BYTES


def test_long_names_have_an_id_of_their_own() -> None:
    ids = {attempt_event_id(AttemptKey("a", "x" * 256, n)) for n in range(3)}
    assert len(ids) == 3
    assert all(len(one) <= 250 for one in ids)
