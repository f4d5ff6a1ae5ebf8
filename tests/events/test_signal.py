"""Signal records: what is a point, and why one is refused."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import jsonschema
import pytest

from tunerd.core.study.signals import parse_duration, parse_signal, signal_name
from tunerd.events import Rejection, SignalPoint, read_job, signal_schema

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
GOOD = {
    "schema": "tunerd.signal/1",
    "name": "rps",
    "labels": {"service": "search", "zone": 'a"b'},
    "time": "2026-11-20T13:00:00+02:00",
    "value": 840,
}


def read(**changes: Any) -> object:
    content = {key: value for key, value in (GOOD | changes).items() if value is not ...}
    return read_job(json.dumps(content).encode(), (), NOW)


def test_a_record_is_a_point_of_a_signal_by_name_and_labels() -> None:
    point = read()
    name = r'rps{service="search",zone="a\"b"}'
    assert point == SignalPoint(name, datetime(2026, 11, 20, 11, tzinfo=UTC), 840.0)
    jsonschema.validate(GOOD, signal_schema())
    assert read(labels=..., unknown={"a": 1}) == SignalPoint("rps", point.time, 840.0)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"schema": "tunerd.signal/2"},
            "schema: the text 'tunerd.signal/2' is a version not known here",
        ),
        ({"name": ...}, "name: is missing"),
        ({"name": "4 rps"}, "name: expected a name such as rps"),
        ({"name": "rps\n"}, "name: expected a name such as rps"),
        ({"labels": {"fine": "c", "a b": "c"}}, "labels.a b: its name should be of letters"),
        ({"labels": {"a\n": "c"}}, "labels.'a\\n': its name should be of letters"),
        ({"labels": {"fine": "c", "port": 80}}, "labels.port: expected a text, got the number 80"),
        ({"labels": {"path": "x" * 257}}, "labels.path: has 257 characters, more than 256"),
        ({"labels": {f"l{n}": "" for n in range(31)}}, "labels: there are 31, more than 30"),
        ({"labels": ["a"]}, "labels: expected an object of texts"),
        (
            {"labels": {f"l{n}": "\U00020000" * 200 for n in range(2)}},
            "labels: name and labels take",
        ),
        ({"time": "2026-11-20T13:00:00"}, "time: expected an RFC 3339 time"),
        ({"time": ...}, "time: is missing"),
        ({"time": (NOW + timedelta(days=9)).isoformat()}, "time: "),
        ({"value": "840"}, "value: expected a number, got the text '840'"),
        ({"value": None}, "value: expected a number"),
        ({"value": 1e200}, "value: expected a number"),
    ],
)
def test_what_is_wrong_is_named(changes: dict[str, Any], reason: str) -> None:
    refused = read(**changes)
    assert isinstance(refused, Rejection)
    assert refused.reason.startswith(reason)


def test_a_study_names_the_signal_of_a_context() -> None:
    query = parse_signal('rps{service = $service, zone="a"}')
    assert query.of({"service": "search"}) == 'rps{service="search",zone="a"}'
    assert query.of({"service": 4}) == 'rps{service="4",zone="a"}'
    assert query.of({}) is None
    assert parse_signal("queue_length").of({}) == "queue_length"
    assert signal_name("rps", {"zone": "a", "service": "search"}) == query.of({"service": "search"})


@pytest.mark.parametrize("text", ["", "1rps", "rps{", "rps{a}", "rps{a=1,a=2}", "rps{a=$}", "r p"])
def test_what_names_no_signal_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"should be|twice"):
        parse_signal(text)


def test_durations() -> None:
    assert [parse_duration(text) for text in ("30s", "5m", "1.5h", "2d")] == [30, 300, 5400, 172800]
    for wrong in ("5", "0m", "-5m", "5 weeks", "99d"):
        with pytest.raises(ValueError, match="should be a time"):
            parse_duration(wrong)
