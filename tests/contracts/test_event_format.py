"""What every event format promises: it knows its records, repeats itself, and never raises."""

import copy
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.broken_events import good_event
from tests.events.samples import SAMPLES
from tunerd.core.observation import Observation
from tunerd.events import FORMATS, JobHalf, Rejection, SignalPoint, TimeLimits, format_of, read_job

NOW = datetime(2026, 11, 21, tzinfo=UTC)
PAGE = (Path(__file__).parents[2] / "docs" / "events.md").read_text()
EACH = [(form, record) for form, records in SAMPLES.items() for record in records]
each_record = pytest.mark.parametrize(
    ("form", "record"), EACH, ids=[f"{form}-{place}" for place, (form, _) in enumerate(EACH)]
)

Seen = Observation | JobHalf | SignalPoint | Rejection


def read(record: Any) -> Seen:
    return read_job(json.dumps(record).encode(), (), NOW)


def test_each_format_has_samples_and_stands_on_the_page() -> None:
    names = {form.name for form in FORMATS}
    assert names - {"cloudevents-binary"} == SAMPLES.keys()  # that one is all headers
    assert [name for name in names if f"`{name}`" not in PAGE] == []


@each_record
def test_it_knows_its_own_records_and_no_others(form: str, record: dict[str, Any]) -> None:
    assert [one.name for one in FORMATS if one.recognises(copy.deepcopy(record), {})] == [form]
    assert format_of(json.dumps(record).encode()) == form


@each_record
def test_a_sample_is_a_job_or_half_of_one(form: str, record: dict[str, Any]) -> None:  # noqa: ARG001
    assert isinstance(read(record), Observation | JobHalf), read(record)


@each_record
def test_told_again_it_is_the_same_event(form: str, record: dict[str, Any]) -> None:
    (one,) = [one for one in FORMATS if one.name == form]
    given = copy.deepcopy(record)
    first = one.unwrap(given, {})
    assert given == record  # what is rejected is kept as it came
    assert one.unwrap(dict(reversed(record.items())), {}) == first
    assert read(record) == read(dict(reversed(record.items())))


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_an_event_of_the_contract_is_nobodys(form: Any) -> None:
    assert not form.recognises(good_event("e"), {})


@each_record
def test_what_it_says_does_not_depend_on_when_it_is_read(form: str, record: dict[str, Any]) -> None:  # noqa: ARG001
    limits = TimeLimits(None, None)
    value = json.dumps(record).encode()
    assert read_job(value, (), NOW, limits) == read_job(value, (), NOW + timedelta(9), limits)


HOSTILE: st.SearchStrategy[Any] = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=2**62)
    | st.just(10**400)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.sampled_from(["", " ", "\x1b[2J", "x" * 5_000, "1e999", "NaN", "9" * 400, "[" * 99])
    | st.sampled_from(["{", '{"a":'])
    | st.sampled_from(['{"a": "\\u0000"}', '["\\ud800"]', '{"\\u0000": 1}', "-1", "[1, [2]]"])
    | st.just([]) | st.just({}) | st.just([None, {}, [], 1, "a"])
    | st.just({"": {"a": [[[]]]}}) | st.just({"set": True, "number": -1})
)  # fmt: skip


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    if isinstance(value, dict | list):
        for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
            found += _places(inner, (*path, name))
    return found


def _damaged(record: Any, path: tuple[Any, ...], value: Any) -> Any:
    made = copy.deepcopy(record)
    inner = made
    for part in path[:-1]:
        inner = inner[part]
    inner[path[-1]] = value
    return made


def judge(record: Any) -> None:
    seen = read(record)
    assert isinstance(seen, Observation | JobHalf | Rejection)
    if isinstance(seen, Rejection):
        assert seen.reason.isprintable()
        return
    # What is accepted can be stored.
    fields = seen.fields if isinstance(seen, JobHalf) else {"c": seen.context, "x": seen.extra}
    text = json.dumps(fields, ensure_ascii=False)
    assert "\0" not in text.encode().decode()


@pytest.mark.slow
@pytest.mark.parametrize("form", SAMPLES)
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_whatever_a_record_holds_it_is_an_event_or_has_a_reason(form: str, data: Any) -> None:
    record = data.draw(st.sampled_from(SAMPLES[form]))
    for _ in range(data.draw(st.integers(1, 3))):
        places = _places(record)
        if not places:
            break
        record = _damaged(record, data.draw(st.sampled_from(places)), data.draw(HOSTILE))
    judge(record)


@pytest.mark.slow
@pytest.mark.parametrize("form", SAMPLES)
def test_each_place_may_hold_anything(form: str) -> None:
    for record in SAMPLES[form]:
        for place in _places(record):
            for value in (None, 10**400, {"a": 1}, ["a"], "x" * 300, -1, True, "\x1b", 1e300):
                judge(_damaged(record, place, value))
