"""More than 200 kinds of broken job events, each with the field that its rejection must name.

Tests read them one by one; the benchmark sends them between good ones.
"""

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

__all__ = ["NOW", "STUDY", "BrokenEvent", "broken_events", "good_event"]

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
STUDY = "llm-pretrain"

_OMIT = object()


@dataclass(frozen=True)
class BrokenEvent:
    """One record that must be rejected."""

    kind: str
    """Unique, for a person."""
    field: str
    """What the reason must begin with."""
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()
    by_ingest: bool = False
    """Only a look at studies or history shows that it is broken: reading alone accepts it."""


def good_event(event_id: str, now: datetime = NOW, /, **changes: Any) -> dict[str, Any]:
    """A job event that is accepted, with top-level fields changed."""
    event = {
        "schema": "tunerd.job/1",
        "type": "completed",
        "source": "slurm/cluster-a",
        "event_id": event_id,
        "study": STUDY,
        "job_id": f"job-{event_id}",
        "attempt": 1,
        "status": "succeeded",
        "submitted_at": (now - timedelta(hours=3)).isoformat(),
        "started_at": (now - timedelta(hours=2)).isoformat(),
        "finished_at": (now - timedelta(hours=1)).isoformat(),
        "measured_s": 840,
        "gpus": 128,
        "user": "anna",
        "nodes": ["node-1", "node-2"],
        "context": {"model_params": 7e9, "gpu": "H100", "n_gpus": 128, "global_batch": 1024},
        "config": {"tp": 8, "pp": 1, "cp": 1, "micro_batch": 2, "precision": "bf16"},
        "metrics": {"tokens_per_second_per_gpu": 412.7},
        "recommendation_id": None,
        "candidate_id": None,
        "labels": {"team": "pretraining"},
        "history": False,
    }
    return {name: value for name, value in {**event, **changes}.items() if value is not _OMIT}


def broken_events(now: datetime = NOW) -> list[BrokenEvent]:
    """Every kind once; event ids are unique among them, apart from the conflict with itself."""
    return [
        *_not_json(now),
        *_wrong_fields(now),
        *_wrong_entries(now),
        *_wrong_numbers(now),
        *_wrong_texts(now),
        *_wrong_cloudevents(now),
        *_only_ingest_can_tell(now),
    ]


_ids = count()


def _id() -> str:
    return f"broken-{next(_ids)}"


def _json(now: datetime, /, **changes: Any) -> bytes:
    return json.dumps(good_event(_id(), now, **changes)).encode()


def _spliced(now: datetime, field: str, raw: bytes) -> bytes:
    """An event in which `field` holds `raw`, which need not be JSON."""
    return _json(now, **{field: "@@"}).replace(b'"@@"', raw)


def _entry(now: datetime, field: str, raw: bytes) -> bytes:
    """An event in which the entry `x` of `field` holds `raw`."""
    return _json(now, **{field: {"x": "@@"}}).replace(b'"@@"', raw)


def _not_json(now: datetime) -> Iterator[BrokenEvent]:
    good = _json(now)
    values: dict[str, bytes | None] = {
        "a tombstone": None,
        "nothing": b"",
        "white space": b" \t\r\n ",
        "a NUL byte": b"\0",
        "plain text": b"job 17 is done",
        "XML": b"<job id='17'/>",
        "CSV": b"job_id,status\n17,succeeded",
        "a YAML document": b"schema: tunerd.job/1\nstatus: succeeded",
        "protobuf": b"\x0a\x0ctunerd.job/1\x12\x03abc",
        "gzip": b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xab\xae\x05\x00",
        "pickle": b"\x80\x04}\x94.",
        "a byte-order mark": b"\xef\xbb\xbf" + good,
        "UTF-16": good.decode().encode("utf-16"),
        "UTF-16 without a mark": good.decode().encode("utf-16-be"),
        "UTF-32": good.decode().encode("utf-32"),
        "cut in half": good[: len(good) // 2],
        "cut by one byte": good[:-1],
        "one byte too many": good + b"}",
        "two events in one record": good + good,
        "two events on two lines": good + b"\n" + good,
        "single quotes": good.replace(b'"', b"'"),
        "names without quotes": good.replace(b'"study"', b"study"),
        "a trailing comma": good[:-1] + b",}",
        "a comment": b"/* job */" + good,
        "a missing colon": good.replace(b'"study":', b'"study"', 1),
        "a missing comma": good.replace(b', "study"', b' "study"', 1),
        "a raw line feed in a text": good.replace(b"anna", b"an\nna"),
        "a raw NUL in a text": good.replace(b"anna", b"an\0na"),
        "a wrong escape": good.replace(b"anna", b"an\\xna"),
        "half an escape": good.replace(b"anna", b"an\\u12"),
        "a hexadecimal number": good.replace(b"840", b"0x348"),
        "a number with a leading zero": good.replace(b"840", b"0840"),
        "a number with a plus": good.replace(b"840", b"+840"),
        "a number that ends in a point": good.replace(b"840", b"840."),
        "undefined": good.replace(b"840", b"undefined"),
        "True of Python": good.replace(b"840", b"True"),
        "a list": b"[" + good + b"]",
        "an empty list": b"[]",
        "a text": b'"succeeded"',
        "an event inside a text": json.dumps(good.decode()).encode(),
        "a number": b"42",
        "only NaN": b"NaN",
        "null": b"null",
        "true": b"true",
        "100,000 lists deep": b"[" * 100_000 + b"]" * 100_000,
        "100,000 lists deep and open": b"[" * 100_000,
        "25,000 objects deep": b'{"a":' * 25_000 + b"1" + b"}" * 25_000,
        "25,000 objects deep inside a context": _entry(
            now, "context", b'{"a":' * 25_000 + b"1" + b"}" * 25_000
        ),
        "10 MB of one text": _json(now, labels={"log": "x" * 10_000_000}),
        "10 MB of spaces": good + b" " * 10_000_000,
        "10 MB of NUL": b"\0" * 10_000_000,
        "one byte more than 256 KiB": good + b" " * (256 * 1024 + 1 - len(good)),
    }
    for kind, value in values.items():
        yield BrokenEvent(kind, "value", value)
    yield BrokenEvent("an empty object", "schema", b"{}")
    yield BrokenEvent("an object of something else", "schema", b'{"jobid": 17, "state": "DONE"}')


def _wrong_fields(now: datetime) -> Iterator[BrokenEvent]:
    required = [
        "schema",
        "event_id",
        "study",
        "job_id",
        "status",
        "finished_at",
        "context",
        "config",
    ]
    for field in required:
        yield BrokenEvent(f"no {field}", field, _json(now, **{field: _OMIT}))
        yield BrokenEvent(f"{field} is null", field, _json(now, **{field: None}))
    wrong: dict[str, list[Any]] = {
        "schema": ["tunerd.job/2", "tunerd.job/0", "tunerd.job", "tunerd.recommendation/1", 1, ""],
        "type": ["begun", "report", "finished", "COMPLETED", 1, ["completed"]],
        "source": [7, ["slurm"], {"name": "slurm"}, True, "s" * 257],
        "event_id": [17, "", ["e"], {"id": "e"}, False, "e" * 257],
        "study": [17, "", [STUDY], "s" * 257, True],
        "job_id": [4711, "", ["4711"], "j" * 257, 47.11],
        "attempt": [0, -1, "1", 1.5, 1.0, True, [1], 2**31],
        "status": ["COMPLETED", "ok", "", "success", 0, True, ["succeeded"], "Succeeded"],
        "measured_s": [-1, "840", True, [840], {"s": 840}],
        "gpus": [-8, "128", 128.5, True, [128], 2**31],
        "user": [1000, ["anna"], {"name": "anna"}, "u" * 257],
        "nodes": ["node-1", {"n": 1}, [1, 2], [None], 4],
        "context": [[], "gpu=H100", 4, True],
        "config": [[], "--tp 8", 4, [["tp", 8]]],
        "metrics": [[], 412.7, "412.7", [["loss", 1.0]]],
        "labels": [[], "team", 1],
        "recommendation_id": [7, ["r"], {"id": "r"}, "r" * 257],
        "candidate_id": [7, ["c"], {"id": "c"}, "c" * 257],
    }
    for field, values in wrong.items():
        for value in values:
            shown = json.dumps(value)
            kind = f"{field} is {shown if len(shown) < 40 else 'very long'}"
            yield BrokenEvent(kind, field, _json(now, **{field: value}))
    yield from _wrong_times(now)


def _wrong_times(now: datetime) -> Iterator[BrokenEvent]:
    moment = now.replace(microsecond=0, tzinfo=None)
    times: dict[str, Any] = {
        "without a zone": moment.isoformat(),
        "only a date": moment.date().isoformat(),
        "Slurm's Unknown": "Unknown",
        "empty": "",
        "Unix seconds": int(now.timestamp()),
        "Unix seconds as text": str(int(now.timestamp())),
        "an American date": moment.strftime("%m/%d/%Y %H:%M:%S"),
        "HTTP's form": moment.strftime("%a, %d %b %Y %H:%M:%S GMT"),
        "the 30th of February": "2026-02-30T10:00:00Z",
        "month 13": "2026-13-01T10:00:00Z",
        "day 0": "2026-11-00T10:00:00Z",
        "hour 24": "2026-11-19T24:00:00Z",
        "second 61": "2026-11-19T10:00:61Z",
        "year 0": "0000-01-01T00:00:00Z",
        "year 10000": "10000-01-01T00:00:00Z",
        "a zone of 99 hours": moment.isoformat() + "+99:00",
        "the basic form": moment.strftime("%Y%m%dT%H%M%SZ"),
        "a week date": "2026-W47-5T10:00:00Z",
        "a list": [moment.isoformat() + "Z"],
        "with text behind it": moment.isoformat() + "Z or so",
    }
    for kind, value in times.items():
        yield BrokenEvent(f"finished_at is {kind}", "finished_at", _json(now, finished_at=value))
    for field in ("submitted_at", "started_at"):
        for kind in ("without a zone", "Slurm's Unknown", "Unix seconds"):
            yield BrokenEvent(f"{field} is {kind}", field, _json(now, **{field: times[kind]}))
    distant = {
        "two days ahead": now + timedelta(days=2),
        "in ten years": now + timedelta(days=3653),
        "at the end of time": datetime.max.replace(tzinfo=UTC),
        "two years old": now - timedelta(days=731),
        "at the epoch": datetime(1970, 1, 1, tzinfo=UTC),
        "in the year 1": datetime.min.replace(tzinfo=UTC),
    }
    for kind, time in distant.items():
        value = _json(now, finished_at=time.isoformat())
        yield BrokenEvent(f"finished_at lies {kind}", "finished_at", value)
    for kind, text in {
        "before the year 1 in UTC": "0001-01-01T00:00:00+23:00",
        "after the year 9999 in UTC": "9999-12-31T23:59:59-23:00",
    }.items():
        value = _json(now, finished_at=text)
        yield BrokenEvent(f"finished_at lies {kind}", "finished_at", value)


def _wrong_entries(now: datetime) -> Iterator[BrokenEvent]:
    for field in ("context", "config"):
        wrong: dict[str, Any] = {
            "an object": {"a": 1},
            "an empty object": {},
            "a list of lists": [[1, 2], [3, 4]],
            "a list with an object": [1, {"a": 1}],
            "a very long text": "x" * 2_000,
            "a list of 2,000": [1] * 2_000,
            "a list with a very long text": ["x" * 2_000],
        }
        for kind, value in wrong.items():
            yield BrokenEvent(
                f"{kind} in {field}", f"{field}.x", _json(now, **{field: {"x": value}})
            )
    for value in ("fast", "412.7", "", True, False, [412.7], [], {"mean": 1.0}):
        kind = f"metric {json.dumps(value)}"
        yield BrokenEvent(kind, "metrics.x", _json(now, metrics={"x": value}))
    yield BrokenEvent(
        "the second metric is a text",
        "metrics.loss",
        _json(now, metrics={"x": 1.0, "loss": "low", "z": "high"}),
    )
    yield BrokenEvent("a list in labels", "labels.x", _json(now, labels={"x": [1]}))
    yield BrokenEvent("an object in labels", "labels.x", _json(now, labels={"x": {}}))
    for field in ("context", "config", "metrics"):
        many = {f"x{i}": i for i in range(1_001)}
        yield BrokenEvent(f"1,001 entries in {field}", field, _json(now, **{field: many}))
        yield BrokenEvent(f"an empty name in {field}", field, _json(now, **{field: {"": 1}}))
        yield BrokenEvent(
            f"a long name in {field}", f"{field}.", _json(now, **{field: {"n" * 300: 1}})
        )


def _wrong_numbers(now: datetime) -> Iterator[BrokenEvent]:
    numbers = {
        "NaN": b"NaN",
        "Infinity": b"Infinity",
        "-Infinity": b"-Infinity",
        "1e999": b"1e999",
        "-1e999": b"-1e999",
        "400 digits": b"9" * 400,
        "minus 400 digits": b"-" + b"9" * 400,
        "400 digits and a fraction": b"9" * 400 + b".5",
        "5,000 digits": b"9" * 5_000,
    }
    places: dict[str, Callable[[bytes], bytes]] = {
        "context.x": lambda raw: _entry(now, "context", raw),
        "config.x": lambda raw: _entry(now, "config", raw),
        "metrics.x": lambda raw: _entry(now, "metrics", raw),
        "labels.x": lambda raw: _entry(now, "labels", raw),
        "measured_s": lambda raw: _spliced(now, "measured_s", raw),
        "gpus": lambda raw: _spliced(now, "gpus", raw),
        "attempt": lambda raw: _spliced(now, "attempt", raw),
        "cost_center": lambda raw: _spliced(now, "cost_center", raw),
        "config.x[1]": lambda raw: _entry(now, "config", b"[1, " + raw + b"]"),
    }
    # A metric that is no number is missing: the run diverged.
    diverged = {"NaN", "Infinity", "-Infinity", "1e999", "-1e999", "400 digits and a fraction"}
    for field, place in places.items():
        for kind, raw in numbers.items():
            if field == "metrics.x" and kind in diverged:
                continue
            yield BrokenEvent(f"{kind} in {field}", field, place(raw))
    for field in ("context.x", "config.x", "labels.x", "cost_center"):
        yield BrokenEvent(f"an integer of 20 digits in {field}", field, places[field](b"9" * 20))


def _wrong_texts(now: datetime) -> Iterator[BrokenEvent]:
    texts = {
        "NUL": b'"a\\u0000b"',
        "the first half of a surrogate pair": b'"a\\ud83d"',
        "the second half of a surrogate pair": b'"a\\ude00b"',
        "a surrogate pair the wrong way round": b'"\\ude00\\ud83d"',
        "Latin-1": b'"caf\xe9"',
        "an overlong encoding": b'"\xc0\xaf"',
        "a surrogate in UTF-8": b'"\xed\xa0\x80"',
    }
    top = [
        "event_id",
        "study",
        "job_id",
        "source",
        "user",
        "recommendation_id",
        "candidate_id",
        "comment",
    ]
    for kind, raw in texts.items():
        for field in top:
            yield BrokenEvent(f"{kind} in {field}", field, _spliced(now, field, raw))
        for field in ("context", "config", "labels"):
            yield BrokenEvent(f"{kind} in {field}", f"{field}.x", _entry(now, field, raw))
        name = _json(now, context={"@@": 1}).replace(b'"@@"', raw)
        yield BrokenEvent(f"{kind} in a name", "context.", name)
    deep = b"[" * 40 + b"1" + b"]" * 40
    yield BrokenEvent("an unknown field 40 deep", "steps", _spliced(now, "steps", deep))
    deeper = b"[" * 500 + b"1" + b"]" * 500
    yield BrokenEvent("an unknown field 500 deep", "steps", _spliced(now, "steps", deeper))


def _wrong_cloudevents(now: datetime) -> Iterator[BrokenEvent]:
    def envelope(**changes: Any) -> bytes:
        event = {
            "specversion": "1.0",
            "id": _id(),
            "source": "/slurm/a",
            "type": "job",
            "data": good_event(_id(), now),
            **changes,
        }
        return json.dumps({k: v for k, v in event.items() if v is not _OMIT}).encode()

    def based(raw: bytes) -> bytes:
        return envelope(data=_OMIT, data_base64=base64.b64encode(raw).decode())

    structured = (("content-type", b"application/cloudevents+json; charset=utf-8"),)
    binary = (("ce_specversion", b"1.0"), ("ce_id", b"1"), ("ce_source", b"/a"))
    broken = good_event(_id(), now, status="odd")
    nameless = good_event(_id(), now, event_id=_OMIT)
    raw = json.dumps(nameless).encode()
    cases: list[tuple[str, str, bytes | None, tuple[tuple[str, bytes], ...]]] = [
        ("no data", "data", envelope(data=_OMIT), structured),
        ("null data", "data", envelope(data=None), structured),
        ("a text as data", "data", envelope(data=raw.decode()), structured),
        ("a list as data", "data", envelope(data=[nameless]), structured),
        ("version 0.3", "specversion", envelope(specversion="0.3"), structured),
        ("version 1.0 as a number", "specversion", envelope(specversion=1.0), structured),
        ("no version", "specversion", envelope(specversion=_OMIT), structured),
        ("broken data", "status", envelope(data=broken), structured),
        ("broken data, no content type", "status", envelope(data=broken), ()),
        ("empty data", "schema", envelope(data={}), ()),
        ("no id anywhere", "event_id", envelope(data=nameless, id=_OMIT), ()),
        ("a number as id", "event_id", envelope(data=nameless, id=17), ()),
        ("data that is not base64", "data_base64", envelope(data_base64="§"), ()),
        ("base64 of nothing", "data_base64", based(b""), ()),
        ("base64 of no JSON", "data_base64", based(b"\xff\xfe\x00"), ()),
        ("base64 of a list", "data_base64", based(b"[]"), ()),
        ("a number as base64", "data_base64", envelope(data_base64=17), ()),
        ("no data, binary", "value", None, binary),
        ("empty data, binary", "value", b"", binary),
        ("version 0.3, binary", "ce_specversion", raw, (("ce_specversion", b"0.3"), binary[1])),
        ("an id with NUL", "ce_id", raw, (binary[0], ("ce_id", b"a\0b"))),
        ("an id that is not UTF-8", "ce_id", raw, (binary[0], ("ce_id", b"\xff"))),
        ("an empty id", "event_id", raw, (binary[0], ("ce_id", b""))),
        ("a very long id", "event_id", raw, (binary[0], ("ce_id", b"i" * 300))),
        ("no id, binary", "event_id", raw, (binary[0],)),
        ("a source that is not UTF-8", "ce_source", raw, (*binary[:2], ("ce_source", b"\xff"))),
    ]
    for kind, field, value, headers in cases:
        yield BrokenEvent(f"CloudEvent: {kind}", field, value, headers)


def _only_ingest_can_tell(now: datetime) -> Iterator[BrokenEvent]:
    for kind, name in {
        "an unknown study": "image-gen",
        "a misspelt study": "llm-pretrian",
        "a study in capitals": "LLM-PRETRAIN",
        "a study with a space": f"{STUDY} ",
        "a study with a path": f"../{STUDY}",
        "a study with a line break": f"{STUDY}\n",
    }.items():
        yield BrokenEvent(kind, "study", _json(now, study=name), by_ingest=True)
