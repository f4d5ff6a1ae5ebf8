"""A TOML file says what records of any other format mean."""

import json
import re
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.broken_events import good_event
from tunerd.core.observation import Observation
from tunerd.errors import MisconfiguredError
from tunerd.events import JobHalf, Rejection, SignalPoint, read_job
from tunerd.events.mapping import load_mappings, parse_mappings
from tunerd.settings import load_settings

NOW = datetime(2026, 11, 21, tzinfo=UTC)
PAGE = (Path(__file__).parents[2] / "docs" / "events.md").read_text()
SECTION = PAGE.partition("### A mapping for anything else")[2].partition("\n### ")[0]
EXAMPLE, RECORD = (
    re.findall(rf"```{kind}\n(.*?)```", SECTION, re.S)[0] for kind in ("toml", "text")
)


def read(text: str, record: Any) -> Observation | JobHalf | SignalPoint | Rejection:
    return read_job(json.dumps(record).encode(), (), NOW, mappings=parse_mappings(text))


def job(text: str, record: Any) -> Observation:
    seen = read(text, record)
    assert isinstance(seen, Observation), seen
    return seen


def one(**more: str) -> str:
    """A mapping with these lines in its sections."""
    sections = {"when": 'kind = "run"', "fields": "", "context": "", "config": "", **more}
    fields = 'job_id = "id"\nstudy = { value = "s" }\nstatus = "state"\nfinished_at = "end"\n'
    text = f'[[mapping]]\nname = "own"\n[mapping.when]\n{sections.pop("when")}\n'
    text += f"[mapping.fields]\n{fields}{sections.pop('fields')}\n"
    return text + "".join(f"[mapping.{name}]\n{lines}\n" for name, lines in sections.items())


RUN = {"kind": "run", "id": "7", "state": "succeeded", "end": "2026-11-20T10:00:00Z", "n": 3}


def test_the_page_s_example_is_a_job() -> None:
    seen = job(EXAMPLE, json.loads(RECORD))
    assert (seen.source, seen.job_id, seen.attempt) == ("airflow", "train-7", 2)
    assert (seen.study, seen.status.value) == ("llm-pretrain", "succeeded")
    assert seen.finished_at == datetime(2026, 11, 20, 10, 30, tzinfo=UTC)
    assert (seen.context, seen.config) == ({"gpu": "H100", "n_gpus": 16}, {"tp": 8})
    assert seen.metrics == {"tokens_per_second": 412_700.0, "wall_s": 9000.0}


def test_the_same_record_is_the_same_event() -> None:
    assert job(one(), RUN) == job(one(), dict(reversed(RUN.items())))
    assert job(one(), RUN).event_id == "7/1"


@pytest.mark.parametrize(
    ("when", "record", "mine"),
    [
        ('kind = "run"', {}, True),
        ('kind = ["run", 3]', {}, True),
        ('kind = "job"', {}, False),
        ("n = 3", {}, True),
        ("n = 3.0", {}, True),
        ("n = true", {"n": 1}, False),
        ("n = 1", {"n": True}, False),
        ("n = { min = 3, max = 4 }", {}, True),
        ("n = { min = 4 }", {}, False),
        ("n = { min = 4 }", {"n": "5"}, False),
        ('kind = { prefix = "ru" }', {}, True),
        ('kind = { prefix = "ru" }', {"kind": None}, False),
        ("other = { present = false }", {}, True),
        ("kind = { present = false }", {}, False),
        ("kind = { present = true }", {"kind": None}, False),
        ('kind = { not = "run" }', {}, False),
        ('kind = { not = ["a", "b"] }', {}, True),
        ('"a.b" = 1', {"a": {"b": 1}}, True),
        ('"a.1" = 1', {"a": [0, 1]}, True),
        ('"a.9" = 1', {"a": [0, 1]}, False),
        ("""'a\\.b' = 1""", {"a.b": 1}, True),
        ('kind = "run"\nn = 4', {}, False),
    ],
)
def test_which_records_are_its_own(when: str, record: dict[str, Any], mine: bool) -> None:
    seen = read(one(when=when), RUN | record)
    assert isinstance(seen, Observation) == mine, seen


@pytest.mark.parametrize(
    ("lines", "value", "found"),
    [
        ('v = "v"', "text", "text"),
        ('v = "v"', [1, "a"], [1, "a"]),
        ('v = { path = "v", factor = 8 }', 2, 16),
        ('v = { path = "v", factor = 0.5 }', 3, 1.5),
        ('v = { path = "v", factor = 2 }', "1.5", 3.0),
        ('v = { path = "v", format = "size" }', "16G", 16 * 2**30),
        ('v = { path = "v", format = "duration", factor = 1000 }', "1h", 3_600_000),
        ('v = { path = "v", format = "1.234,5", unit = "ms" }', "1.234,5 ms", 1234.5),
        ('v = { path = "v", values = { a = "b", "1" = "one", true = "yes" } }', "a", "b"),
        ('v = { path = "v", values = { a = "b", "1" = "one", true = "yes" } }', 1, "one"),
        ('v = { path = "v", values = { a = "b", "1" = "one", true = "yes" } }', True, "yes"),
        ('v = { path = "v", values = { a = "b" } }', "c", "c"),
        ('v = { path = "v", values = { a = "b" }, other = "d" }', "c", "d"),
        ('v = { path = "v", default = 3 }', None, 3),
        ("v = { value = [1, 2] }", None, [1, 2]),
        ('v = ["x", "y.z"]', None, None),
    ],
)
def test_values(lines: str, value: Any, found: Any) -> None:
    assert job(one(config=lines), RUN | {"v": value}).config.get("v") == found


@pytest.mark.parametrize(
    ("form", "value"),
    [
        ('{ path = "t" }', "2026-11-20T10:00:00Z"),
        ('{ path = "t" }', 1795168800),
        ('{ path = "t" }', 1795168800000),
        ('{ path = "t", format = "milliseconds" }', "1795168800000"),
        (
            '{ path = "t", format = "%d.%m.%Y %H:%M", timezone = "Europe/Berlin" }',
            "20.11.2026 11:00",
        ),
        ('{ path = "t", timezone = "+02:00" }', "2026-11-20 12:00:00"),
    ],
)
def test_times(form: str, value: object) -> None:
    text = one().replace('finished_at = "end"', f"finished_at = {form}")
    assert job(text, RUN | {"t": value}).finished_at == datetime(2026, 11, 20, 10, tzinfo=UTC)


def test_all_entries_of_an_object() -> None:
    text = one(config='"*" = "p"\ntp = "other"', metrics='"*" = "m"')
    record = RUN | {"p": {"tp": 1, "a": {"b": [1, 2]}, "no": None}, "m": {"x": "1.5", "y": "z"}}
    seen = job(text, record | {"other": 8})
    assert seen.config == {"tp": 8, "a.b": [1, 2]}
    assert seen.metrics == {"x": 1.5}


def test_metrics_are_numbers_and_a_diverged_one_is_missing() -> None:
    text = one(metrics='speed = "v"')
    assert job(text, RUN | {"v": "412.7"}).metrics == {"speed": 412.7}
    assert job(text, RUN | {"v": "NaN"}).metrics == {}
    assert job(text, RUN | {"v": None}).metrics == {}
    bad = read(text, RUN | {"v": "fast"})
    assert isinstance(bad, Rejection)
    assert bad.reason == "metrics.speed: expected a number, got the text 'fast' at v"


def test_halves() -> None:
    text = one(
        fields='partial = { value = true }\ntype = { path = "phase", default = "completed" }'
    )
    ended = read(text, RUN)
    assert isinstance(ended, JobHalf)
    assert ended.type == "completed"
    assert read(text, RUN) == ended
    began = read(text, RUN | {"phase": "started", "state": "whatever", "end": None})
    assert isinstance(began, JobHalf)
    assert began.event_id != ended.event_id


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"id": None}, "job_id"),
        ({"id": {}}, "job_id"),
        ({"id": 10**400}, "job_id"),
        ({"state": "great"}, "status"),
        ({"end": "soon"}, "finished_at"),
        ({"end": None}, "finished_at"),
        ({"end": 1e300}, "finished_at"),
        ({"tries": -1}, "attempt"),
        ({"tries": 10**400}, "attempt"),
        ({"conf": {"a": {}}}, "config.conf"),
    ],
)
def test_what_cannot_be_mapped_says_which_field(changes: dict[str, Any], field: str) -> None:
    seen = read(one(fields='attempt = "tries"', config='conf = "conf"'), RUN | changes)
    assert isinstance(seen, Rejection)
    assert seen.field == field


def test_an_event_of_the_contract_is_never_mapped() -> None:
    event = good_event("e") | {"kind": "run"}
    assert read(one(), event) == read_job(json.dumps(event).encode(), (), NOW)


def test_the_first_that_knows_a_record_has_it_also_before_formats_that_tunerd_has() -> None:
    texts = one(), one(when="n = 3").replace('"own"', '"second"').replace('"id"', '"n"')
    assert job("".join(texts), RUN).source == "own"
    assert job("".join(texts), RUN | {"kind": "x"}).source == "second"
    slurm = RUN | {"jobid": 1, "@end": "x"}
    assert job(one(), slurm).source == "own"


MISTAKES = [
    ("", "mapping: should be a list of tables"),
    ("[mapping]\nname = 'x'", "mapping: should be a list of tables"),
    ("mapping = 3\nother = 4", "other: there is no such key"),
    (one().replace('"own"', '"Own"'), "mapping[0].name: should be lower-case"),
    (one().replace('"own"', '"sacct-json"'), "mapping[0].name: 'sacct-json' is a format"),
    (one() + one(), "mapping[1].name: 'own' is another's name too"),
    (one(when=""), "mapping[0].when: is missing"),
    (one(when="a.b = 1"), 'A path stands in quotes: "a.b"'),
    (one(when="kind = {}"), "mapping[0].when.kind: is empty"),
    (one(when="kind = []"), "mapping[0].when.kind: should be a text, a number"),
    (one(when="kind = { prefix = 3 }"), "mapping[0].when.kind.prefix: should be a text"),
    (one(when="kind = { min = 'a' }"), "mapping[0].when.kind.min: should be a number"),
    (one(when="kind = { present = 1 }"), "mapping[0].when.kind.present: should be true or false"),
    (one().replace('job_id = "id"', ""), "mapping[0].fields.job_id: is missing"),
    (one(fields='statuss = "x"'), "mapping[0].fields.statuss: there is no such key; did you mean"),
    (one(fields='user = ""'), "mapping[0].fields.user: should be a path"),
    (one(fields="user = 3"), "mapping[0].fields.user: should be a path such as run.id, or a table"),
    (one(fields="user = {}"), "mapping[0].fields.user: needs a path, or a constant value"),
    (one(fields='user = { value = "a", factor = 2 }'), "user.factor: has no effect on a constant"),
    (one(fields="type = { value = 'ended' }"), "type.value: should be started, reported or"),
    (one(fields='gpus = { path = "g", factor = 0 }'), "gpus.factor: should be above 0, not 0"),
    (one(fields='gpus = { path = "g", factor = nan }'), "gpus.factor: should be a finite number"),
    (one(fields='user = { path = "g", factor = 2 }'), "user.factor: 'user' is no number"),
    (one(fields='started_at = { path = "g", timezone = "Mars" }'), "there is no time zone 'Mars'"),
    (one(fields='started_at = { path = "g", format = "iso" }'), "should be auto, seconds"),
    (one(config='a = { path = "g", format = "hex" }'), "config.a.format: should be one of number"),
    (one(config='a = { path = "g", timezone = "UTC" }'), "config.a.timezone: 'a' is no time"),
    (one(config='"*" = { path = "g", factor = 2 }'), "takes all entries of an object as they are"),
    (one(config="a = 2026-01-01"), "config.a: should be a path"),
    (one(config="a = { value = 2026-01-01 }"), "config.a.value: should be a text, a number"),
    (
        one().replace('"state"', '{ path = "s", values = { a = "suceeded" } }'),
        "status.values.a: should be one of",
    ),
    ("[[mapping]\n", "is not TOML"),
    (
        one(fields='started_at = { path = "g", format = "%d.%m.%Y %d" }'),
        "started_at.format: '%d.%m.%Y %d' names a part of the time twice",
    ),
    (one(fields='started_at = { path = "g", format = "%Q" }'), "'%Q' has a % that means nothing"),
    (one(fields='started_at = { path = "g", format = "%Y-%" }'), "'%Y-%' has a % that means"),
    (one(config='"*" = { value = 3 }'), "config.*: takes all entries of an object as they are"),
    (one(metrics='v = { value = "fast" }'), "metrics.v.value: should be a number, not the text"),
    (one(metrics='v = { path = "g", default = [1] }'), "metrics.v.default: should be a number"),
    (one(metrics='v = { path = "g", other = true }'), "metrics.v.other: should be a number"),
    (one(fields='partial = { value = "yes" }'), "partial.value: should be true or false"),
    (one(fields='gpus = { value = "many" }'), "gpus.value: should be a whole number from 0 on"),
]


def test_features_may_be_called_as_fields_are() -> None:
    constants = 'status = { value = "warm" }\ntype = { path = "n", values = { 3 = "three" } }'
    text = one(context=constants, config='type = { path = "none", default = "a" }')
    seen = job(text, RUN)
    assert seen.context == {"status": "warm", "type": "three"}
    assert seen.config == {"type": "a"}


@pytest.mark.parametrize(("text", "said"), MISTAKES)
def test_mistakes(text: str, said: str) -> None:
    with pytest.raises(MisconfiguredError) as error:
        parse_mappings(text, "m.toml")
    assert said in str(error.value)
    assert "m.toml: " in str(error.value)


def test_all_mistakes_are_said_at_once_and_the_settings_say_them(tmp_path: Path) -> None:
    (tmp_path / "tunerd.toml").write_text('[ingest]\nmappings = "m.toml"\nbatch_records = 0\n')
    file = tmp_path / "m.toml"
    file.write_text(one(fields="user = 3", config="a = 4").replace('"own"', "3"))
    with pytest.raises(MisconfiguredError) as error:
        load_settings(tmp_path / "tunerd.toml", {})
    said = [problem.where.removeprefix(f"{tmp_path}/") for problem in error.value.problems]
    assert said == [
        "tunerd.toml: ingest.batch_records",
        "m.toml: mapping[0].fields.user",
        "m.toml: mapping[0].config.a",
        "m.toml: mapping[0].name",
    ]
    file.unlink()
    (tmp_path / "tunerd.toml").write_text('[ingest]\nmappings = "m.toml"\n')
    with pytest.raises(MisconfiguredError, match=r"ingest\.mappings: cannot read"):
        load_settings(tmp_path / "tunerd.toml", {})
    file.write_text(one())
    assert load_settings(tmp_path / "tunerd.toml", {}).ingest.mappings == file
    assert [mapping.name for mapping in load_mappings(file)] == ["own"]


VALUES: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | st.integers() | st.just(10**400) | st.floats(allow_nan=False)
    | st.text() | st.sampled_from(["NaN", "", "9" * 400, "[", "P1D", "1e400"])
)  # fmt: skip
ANY = st.recursive(
    VALUES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=6
)
EVERYTHING = one(
    fields="""
        attempt = "a"
        gpus = { path = "b", factor = 8 }
        measured_s = "c"
        nodes = "d"
        user = "e"
        started_at = { path = "f", format = "milliseconds" }
        partial = "g"
        type = "h"
        history = "i"
        event_id = "j"
        source = "k"
    """,
    config='"*" = "l"\nm = { path = "m", format = "size" }\nn = { path = "n", values = { x = 1 } }',
    metrics='"*" = "o"\np = "p"\nq = { path = "q", format = "duration", factor = 1e99 }',
    labels='r = "r.0.s"\nt = ["u", "v"]',
)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from([*RUN, *"abcdefghijklmnopqru"]), ANY))
def test_whatever_a_record_holds_it_is_an_event_or_has_a_reason(changes: dict[str, Any]) -> None:
    seen = read(EVERYTHING, RUN | changes | {"kind": "run"})
    assert isinstance(seen, Observation | JobHalf | Rejection)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.data())
def test_whatever_a_file_holds_it_is_read_or_its_mistakes_are_said(data: Any) -> None:
    lines = EXAMPLE.splitlines()
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(lines) - 1))
        key, equals, _ = lines[place].partition("=")
        value = data.draw(
            st.sampled_from(["3", "[]", "{}", "[[1]]", '""', "nan", "1e999", "true", "x"])
        )
        lines[place] = f"{key}= {value}" if equals else value
    with suppress(MisconfiguredError):
        parse_mappings("\n".join(lines))
