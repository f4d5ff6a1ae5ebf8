"""Job events: what is accepted becomes the right observation, all else a reason with a field."""

import gzip
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.broken_events import NOW, BrokenEvent, broken_events, good_event
from tunerd.core.observation import Observation, Status
from tunerd.events import (
    JobHalf,
    Rejection,
    SignalPoint,
    TimeLimits,
    conflict,
    job_schema,
    read_job,
    unknown_study,
)

BROKEN = broken_events()


def read(**changes: Any) -> Observation:
    observation = read_job(json.dumps(good_event("e1", **changes)).encode(), (), NOW)
    assert isinstance(observation, Observation), observation
    return observation


def reason(**changes: Any) -> str:
    rejection = read_job(json.dumps(good_event("e1", **changes)).encode(), (), NOW)
    assert isinstance(rejection, Rejection)
    return rejection.reason


def test_a_good_event_becomes_an_observation() -> None:
    seen = read(recommendation_id="r-1", candidate_id="c-1", queue="long")
    assert seen.study == "llm-pretrain"
    assert seen.source == "slurm/cluster-a"
    assert seen.status is Status.SUCCEEDED
    assert seen.finished_at == NOW - timedelta(hours=1)
    assert seen.context == {"model_params": 7e9, "gpu": "H100", "n_gpus": 128, "global_batch": 1024}
    assert seen.config["precision"] == "bf16"
    assert seen.metrics == {"tokens_per_second_per_gpu": 412.7}
    assert (seen.measured_s, seen.gpus, seen.user) == (840.0, 128, "anna")
    assert (seen.recommendation_id, seen.candidate_id) == ("r-1", "c-1")
    assert seen.extra == {
        "queue": "long",
        "nodes": ["node-1", "node-2"],
        "labels": {"team": "pretraining"},
        "submitted_at": "2026-11-20T09:00:00+00:00",
        "started_at": "2026-11-20T10:00:00+00:00",
    }
    assert seen.content_hash.startswith("sha256:")


def test_the_least_that_is_accepted() -> None:
    event = {
        "schema": "tunerd.job/1",
        "event_id": "e",
        "study": "s",
        "job_id": "j",
        "status": "out_of_memory",
        "finished_at": "2026-11-20T10:00:00Z",
        "context": {},
        "config": {},
    }
    seen = read_job(json.dumps(event).encode(), (), NOW)
    assert isinstance(seen, Observation)
    assert (seen.source, seen.attempt, seen.metrics, seen.extra) == ("", 1, {}, {})


def test_null_is_as_good_as_absent_where_a_field_is_optional() -> None:
    optional = [
        "type",
        "source",
        "attempt",
        "measured_s",
        "gpus",
        "user",
        "metrics",
        "recommendation_id",
    ]
    seen = read(**dict.fromkeys(optional), nodes=None, labels=None, submitted_at=None)
    assert (seen.source, seen.attempt, seen.metrics, seen.measured_s) == ("", 1, {}, None)


def test_a_null_metric_is_missing_and_an_integer_is_a_number() -> None:
    metrics = read(metrics={"loss": None, "tokens": 7}).metrics
    assert metrics == {"tokens": 7.0}
    assert type(metrics["tokens"]) is float


@pytest.mark.parametrize(
    "text", ["NaN", "Infinity", "-Infinity", "1e999", '"NaN"', '"inf"', '"-inf"']
)
def test_a_metric_that_is_no_number_is_missing(text: str) -> None:
    event = good_event("e") | {"metrics": {"loss": "here", "speed": 3.5}}
    found = read_job(json.dumps(event).replace('"here"', text).encode(), (), NOW)
    assert isinstance(found, Observation)
    assert found.metrics == {"speed": 3.5}


@pytest.mark.parametrize("name", ["context", "config", "measured_s", "labels"])
def test_elsewhere_in_an_event_of_the_contract_it_is_a_mistake(name: str) -> None:
    event = good_event("e") | {name: 7.5 if name == "measured_s" else {"lr": 7.5}}
    seen = read_job(json.dumps(event).replace("7.5", "NaN").encode(), (), NOW)
    assert isinstance(seen, Rejection)
    assert name in seen.field


def test_empty_ids_of_a_template_count_as_none() -> None:
    seen = read(recommendation_id="", candidate_id="", user="")
    assert (seen.recommendation_id, seen.candidate_id, seen.user) == (None, None, None)


def test_types_in_context_and_config_are_kept() -> None:
    values = {"a": 1, "b": 1.0, "c": True, "d": "x", "e": None, "f": [1, "x", None, 2.5]}
    assert list(map(repr, read(config=values).config.items())) == list(map(repr, values.items()))


def test_times_are_kept_in_utc() -> None:
    zone = timezone(timedelta(hours=5, minutes=30))
    seen = read(finished_at=(NOW - timedelta(hours=1)).astimezone(zone).isoformat())
    assert seen.finished_at == NOW - timedelta(hours=1)
    assert seen.finished_at.tzinfo is UTC


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.kind)
def test_a_broken_event_is_rejected_with_a_reason_that_names_the_field(broken: BrokenEvent) -> None:
    outcome = read_job(broken.value, broken.headers, NOW)
    if broken.by_ingest:
        assert isinstance(outcome, Observation)
        outcome = unknown_study(outcome.study, ["llm-pretrain", "ads"])
    assert isinstance(outcome, Rejection)
    assert outcome.reason.startswith(broken.field), outcome.reason
    assert outcome.reason.partition(":")[2].strip()
    assert outcome.reason.isprintable()
    assert len(outcome.reason) <= 300


def test_there_are_more_than_200_kinds_of_broken_events() -> None:
    assert len({broken.kind for broken in BROKEN}) == len(BROKEN) >= 200


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"metrics": {"speed": "fast"}}, "metrics.speed: expected a number, got the text 'fast'"),
        ({"status": "suceeded"}, "did you mean 'succeeded'?"),
        ({"type": "ended"}, "type: expected 'started', 'reported' or 'completed', got the text"),
        ({"schema": "tunerd.job/2"}, "is a version not known here; expected 'tunerd.job/1'"),
        ({"config": {"x": 10**399}}, "config.x: a number of 400 digits is beyond 64 bits"),
        (
            {"attempt": -3},
            "attempt: expected a whole number from 1 to 2,147,483,647 or null, got the number -3",
        ),
        ({"job_id": 4711}, "job_id: expected a text of 1 to 256 characters, got the number 4711"),
        ({"finished_at": "2026-11-23T12:00:00Z"}, "is more than 24 hours ahead of now"),
        ({"finished_at": "2024-11-23T12:00:00Z"}, "is more than 365 days before now"),
    ],
)
def test_reasons_are_for_a_person(changes: dict[str, Any], expected: str) -> None:
    assert expected in reason(**changes)


def test_10_mb_that_the_stream_cut_short() -> None:
    rejection = read_job(b"{" * 65536, (), NOW, size=10 * 2**20)
    assert isinstance(rejection, Rejection)
    assert rejection.reason == "value: 10 MiB is more than 256 KiB"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (gzip.compress, "is compressed by its sender (gzip, zstd)"),
        (lambda value: value + value, "holds several JSON values; send each as a record"),
        (lambda value: value + b"\n" + value, "holds several JSON values; send each as a record"),
        (lambda value: b"[" + value + b"]", "got a list; send each event as a record of its own"),
    ],
)
def test_reasons_say_what_to_send_instead(change: Callable[[bytes], bytes], expected: str) -> None:
    rejection = read_job(change(json.dumps(good_event("e1")).encode()), (), NOW)
    assert isinstance(rejection, Rejection)
    assert expected in rejection.problem


def test_reasons_never_carry_long_content() -> None:
    secret = "s3cr3t " * 1_000
    assert len(reason(user=secret)) < 200
    assert len(reason(status=secret)) < 300
    assert len(reason(metrics={secret: secret})) < 300


def test_limits_of_time_are_the_callers() -> None:
    raw = json.dumps(good_event("e", finished_at="2001-01-01T00:00:00Z")).encode()
    assert isinstance(read_job(raw, (), NOW, TimeLimits(max_age=None)), Observation)
    strict = read_job(raw, (), NOW, TimeLimits(max_age=timedelta(minutes=30)))
    assert isinstance(strict, Rejection)
    assert "0.5 hours before now" in strict.reason


def test_an_old_job_may_be_of_any_age_but_not_of_tomorrow() -> None:
    old = json.dumps(good_event("e", finished_at="1970-01-01T00:00:00Z", history=True)).encode()
    seen = read_job(old, (), NOW)
    assert isinstance(seen, Observation)
    assert seen.history
    assert seen.extra.keys().isdisjoint({"history"})
    assert "ahead of now" in reason(finished_at="2999-01-01T00:00:00Z", history=True)
    assert reason(history="yes").startswith("history: expected true, false or null, got")


def test_the_content_hash_ignores_layout_and_nothing_else() -> None:
    event = good_event("e1")
    ways = [
        json.dumps(event),
        json.dumps(event, indent=4),
        json.dumps(dict(reversed(event.items()))),
        json.dumps(event, ensure_ascii=False, separators=(",", ":")),
        json.dumps(event).replace("slurm/cluster-a", "slurm\\/cluster\\u002da"),
    ]
    hashes = {hash_of(way) for way in ways}
    assert len(hashes) == 1
    changes: list[dict[str, Any]] = [{"user": "bob"}, {"note": 1}, {"labels": {}}, {"metrics": {}}]
    for change in changes:
        assert hash_of(json.dumps({**event, **change})) not in hashes


def hash_of(text: str) -> str:
    seen = read_job(text.encode(), (), NOW)
    assert isinstance(seen, Observation)
    return seen.content_hash


def test_an_escaped_backslash_before_u0000_is_not_nul() -> None:
    assert read(user="C:\\u0000").user == "C:\\u0000"


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=-(10**400), max_value=10**400)
    | st.floats()
    | st.text(st.characters(), max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)
HEADERS = st.lists(
    st.tuples(
        st.sampled_from(["ce_specversion", "ce_id", "ce_source", "content-type", "X"]),
        st.sampled_from([b"1.0", b"application/cloudevents+json"]) | st.binary(max_size=8),
    ),
    max_size=4,
)


@given(st.binary(max_size=200), HEADERS)
def test_any_bytes_give_an_observation_or_a_rejection(
    value: bytes, headers: list[tuple[str, bytes]]
) -> None:
    assert isinstance(read_job(value, headers, NOW), Rejection)


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from(sorted(good_event("e"))), JSON), JSON, HEADERS)
def test_any_change_of_a_good_event_gives_an_observation_or_a_rejection(
    changes: dict[str, Any], unknown: Any, headers: list[tuple[str, bytes]]
) -> None:
    event = {**good_event("e", **changes), "unknown": unknown}
    outcome = read_job(json.dumps(event).encode(), headers, NOW)
    if isinstance(outcome, Rejection):
        assert outcome.reason.isprintable()
        assert outcome.reason.partition(":")[0].partition(".")[0].partition("[")[0] in {
            *event,
            "ce_id",
            "ce_source",
            "ce_specversion",
            "specversion",
        }
    elif isinstance(outcome, JobHalf):
        assert_plain(outcome.fields)
    elif not isinstance(outcome, SignalPoint):
        assert_storable(outcome)


def assert_storable(observation: Observation) -> None:
    """What a database column, a JSON document and a float conversion ask for."""
    assert_plain([observation.context, observation.config, observation.metrics, observation.extra])
    for value in [*observation.context.values(), *observation.config.values()]:
        if isinstance(value, int | float):
            float(value)


def assert_plain(value: object) -> None:
    """What a JSON document in a database asks for."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=False)
    text.encode()
    assert "\\u0000" not in text.replace("\\\\", "")
    msgspec.json.decode(text)


@given(st.integers(0, 600), st.binary(min_size=1, max_size=3))
def test_a_damaged_byte_never_raises(where: int, patch: bytes) -> None:
    raw = json.dumps(good_event("e")).encode()
    damaged = raw[:where] + patch + raw[where + len(patch) :]
    assert isinstance(read_job(damaged, (), NOW), Observation | JobHalf | Rejection)


def test_an_unknown_study_gets_a_hint() -> None:
    assert unknown_study("llm-pretrian", ["ads", "llm-pretrain"]).reason == (
        "study: no study is called 'llm-pretrian'; did you mean 'llm-pretrain'?"
    )
    assert unknown_study("x", []).reason.endswith("there is none yet")
    assert (
        "there is a0, a1, a2, a3, a4, …" in unknown_study("zzz", [f"a{i}" for i in range(9)]).reason
    )


def test_a_conflict_names_the_id() -> None:
    assert conflict("e-1", "slurm/a").reason == (
        "event_id: the text 'e-1' from source 'slurm/a' was accepted before with other content;"
        " another attempt of the job says so in attempt or started_at"
    )


def test_the_schema_describes_every_field_and_accepts_what_reading_accepts() -> None:
    definition = job_schema()["$defs"]["JobEvent"]
    assert set(definition["properties"]) == set(good_event("e"))
    assert all("description" in field for field in definition["properties"].values())
    assert definition["required"] == [
        "schema", "event_id", "study", "job_id", "status", "finished_at", "context", "config",
    ]  # fmt: skip


def test_now_may_be_in_any_zone() -> None:
    raw = json.dumps(good_event("e")).encode()
    now = NOW.astimezone(timezone(timedelta(hours=-8)))
    assert isinstance(read_job(raw, (), now), Observation)
    assert datetime.now(UTC).tzinfo is UTC
