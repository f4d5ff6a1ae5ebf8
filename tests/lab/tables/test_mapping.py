"""Mappings: what columns mean for a study, and what is said of rows that cannot be used."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunerd.core.observation import Observation, Status
from tunerd.core.study import Study
from tunerd.core.study_file import parse_study
from tunerd.errors import MisconfiguredError
from tunerd.lab.tables.files import TableRow, UnreadableLine, open_table
from tunerd.lab.tables.mapping import (
    TableReader,
    UnusableRow,
    read_mapping,
    read_observations,
)
from tunerd.lab.tables.values import status_in, typed

STUDY = """
schema = 1
name = "small"
[objective]
metric = "qps"
goal = "maximize"
[guards]
peak_gib = { max = 70 }
[context]
gpu = { type = "category" }
n_gpus = { type = "int" }
big = { type = "bool" }
[parameters]
tp = { type = "int", values = [1, 2, 4] }
reserved = { type = "float", low = 0.7, high = 0.9, step = 0.01 }
layer = { type = "category", values = ["A", "B"], repeat = 3 }
"""
HEADER = "gpu,n_gpus,big,tp,reserved,layer,qps"
LINE = "H100,8,yes,2,0.83,A,412.5"


def study(mapping: str = "") -> Study:
    return parse_study(STUDY + mapping)


def reader(tmp_path: Path, header: str, mapping: str = "") -> TableReader:
    file = tmp_path / "jobs.csv"
    file.write_text(header + "\n")
    return TableReader(study(mapping), study(mapping).mapping, open_table(file))


def event(
    tmp_path: Path, header: str, line: str, mapping: str = ""
) -> dict[str, Any] | UnusableRow:
    values = [one or None for one in line.split(",")]
    row = TableRow(1, dict(zip(header.split(","), values, strict=True)))
    return reader(tmp_path, header, mapping).event(row)


def good(tmp_path: Path, header: str, line: str, mapping: str = "") -> dict[str, Any]:
    found = event(tmp_path, header, line, mapping)
    assert isinstance(found, dict), found
    return found


def refused(tmp_path: Path, header: str, line: str, mapping: str = "") -> str:
    found = event(tmp_path, header, line, mapping)
    assert isinstance(found, UnusableRow), found
    return str(found)


def mistakes(tmp_path: Path, header: str, mapping: str = "") -> list[str]:
    with pytest.raises(MisconfiguredError) as caught:
        reader(tmp_path, header, mapping)
    return [str(one).replace(str(tmp_path) + "/", "") for one in caught.value.problems]


# ── types ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("gpu", "qps", "layer", "why"),
    [
        ("A\0", 1.0, "A", "context.gpu: contains the character NUL"),
        ("A", 1.0, '["A", "\\u0000", "B"]', "config.layer[1]: contains the character NUL"),
        ("A", str(10**400), "A", "metrics.qps: expected a number"),
        ("A", 1.0, "[" * 5_000, "config.layer: has 5,000 characters"),
    ],
)
def test_what_no_database_keeps_is_unusable(
    tmp_path: Path, gpu: str, qps: float | str, layer: str, why: str
) -> None:
    row = TableRow(1, {"gpu": gpu, "n_gpus": 8, "tp": 1, "layer": layer, "qps": qps})
    found = reader(tmp_path, "gpu,n_gpus,tp,layer,qps").event(row)
    assert isinstance(found, UnusableRow)
    assert str(found).startswith(why)


def test_columns_named_as_in_the_study_need_no_mapping(tmp_path: Path) -> None:
    found = good(tmp_path, HEADER, LINE)
    assert found["context"] == {"gpu": "H100", "n_gpus": 8, "big": True}
    assert found["config"] == {"tp": 2, "reserved": 0.83, "layer": "A"}
    assert found["metrics"] == {"qps": 412.5}
    assert (found["status"], found["history"], found["source"]) == ("succeeded", True, "import")
    assert found["finished_at"] == "1970-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("kind", "raw", "value"),
    [
        ("int", "8", 8),
        ("int", "8.0", 8),
        ("int", " 1e3 ", 1000),
        ("int", 8.0, 8),
        ("int", "NA", None),
        ("int", "-", None),
        ("int", float("nan"), None),
        ("float", "1e-3", 0.001),
        ("float", "null", None),
        ("bool", "True", True),
        ("bool", "yes", True),
        ("bool", "1.0", True),
        ("bool", 0, False),
        ("bool", "n", False),
        ("bool", "None", None),
        ("category", "none", "none"),
        ("category", "NA", "NA"),
        ("category", 80, "80"),
        ("category", True, "true"),
    ],
)
def test_values_come_in_the_types_of_the_study(kind: Any, raw: Any, value: Any) -> None:
    found = typed(raw, kind)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        ("int", "8.5"),
        ("int", "eight"),
        ("int", True),
        ("int", "1e30"),
        ("float", "inf"),
        ("float", "1,5"),
        ("bool", "maybe"),
        ("bool", "2"),
    ],
)
def test_what_is_not_of_its_type_is_refused(kind: Any, raw: Any) -> None:
    with pytest.raises(ValueError, match="expected"):
        typed(raw, kind)


@given(st.integers(-(2**53), 2**53))
def test_every_way_to_write_an_integer(number: int) -> None:
    assert typed(str(number), "int") == typed(f"{number}.0", "int") == number
    assert typed(float(number), "int") == number


def test_refusals_name_the_field_and_what_stood_there(tmp_path: Path) -> None:
    line = LINE.replace(",2,", ",two,")
    assert refused(tmp_path, HEADER, line) == "config.tp: expected an integer, got the text 'two'"


def test_a_factor_makes_units_of_units(tmp_path: Path) -> None:
    mapping = """
[mapping.columns]
qps = { column = "kqps", factor = 1000 }
n_gpus = { column = "nodes", factor = 8 }
peak_gib = { column = "peak_mib", factor = 0.0009765625 }
"""
    header = "gpu,nodes,big,tp,kqps,peak_mib"
    found = good(tmp_path, header, "H100,4,no,2,0.4125,51200", mapping)
    assert found["metrics"] == {"qps": 412.5, "peak_gib": 50.0}
    assert found["context"]["n_gpus"] == 32


def test_other_words_for_a_category(tmp_path: Path) -> None:
    mapping = '[mapping.columns]\ngpu = { values = { "a100_80gb" = "A100" } }\n'
    found = good(tmp_path, HEADER, LINE.replace("H100", "a100_80gb"), mapping)
    assert found["context"]["gpu"] == "A100"
    assert good(tmp_path, HEADER, LINE, mapping)["context"]["gpu"] == "H100"


def test_defaults_fill_what_the_table_lacks(tmp_path: Path) -> None:
    mapping = '[mapping.defaults]\ngpu = "H100"\nbig = false\nlayer = ["A", "B", "A"]\n'
    found = good(tmp_path, "big,n_gpus,tp,qps", ",8,2,1", mapping)
    assert found["context"] == {"gpu": "H100", "n_gpus": 8, "big": False}
    assert found["config"] == {"tp": 2, "layer": ["A", "B", "A"]}


def test_repeat_parameters_from_lists_and_from_several_columns(tmp_path: Path) -> None:
    native = TableRow(1, {"tp": 2, "qps": 1.0, "layer": ["A", "B", "A"]})
    found = reader(tmp_path, "tp,qps,layer").event(native)
    assert isinstance(found, dict)
    assert found["config"]["layer"] == ["A", "B", "A"]
    as_text = TableRow(1, {"tp": 2, "qps": 1.0, "layer": '["A", "B", "A"]'})
    found = reader(tmp_path, "tp,qps,layer").event(as_text)
    assert isinstance(found, dict)
    assert found["config"]["layer"] == ["A", "B", "A"]
    mapping = '[mapping]\ncolumns = { layer = ["l0", "l1", "l2"] }\n'
    found = good(tmp_path, "tp,qps,l0,l1,l2", "2,1,A,B,A", mapping)
    assert found["config"]["layer"] == ["A", "B", "A"]


def test_events_written_as_json_lines_are_a_table(tmp_path: Path) -> None:
    file = tmp_path / "jobs.jsonl"
    file.write_text(
        json.dumps(
            {
                "job_id": 17,
                "status": "succeeded",
                "finished_at": "2026-01-02T03:04:05+01:00",
                "context": {"gpu": "H100", "n_gpus": 8},
                "config": {"tp": 2},
                "metrics": {"qps": 3.5},
            }
        )
        + "\n"
    )
    [found] = read_observations(study(), None, [open_table(file)]).observations
    assert (found.job_id, found.metrics) == ("17", {"qps": 3.5})
    assert found.context == {"gpu": "H100", "n_gpus": 8, "big": None}
    assert found.finished_at == datetime(2026, 1, 2, 2, 4, 5, tzinfo=UTC)


# ── times, statuses and other fields of the event ────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "mapping", "time"),
    [
        ("2019-04-20T11:43:11Z", "", "2019-04-20T11:43:11Z"),
        ("2019-04-20 11:43:11+02:00", "", "2019-04-20T09:43:11Z"),
        ("2019-04-20T11:43:11", "", "2019-04-20T11:43:11Z"),
        ("2019-04-20T11:43:11", 'timezone = "Europe/Berlin"', "2019-04-20T09:43:11Z"),
        ("2019-04-20T11:43:11", 'timezone = "-03:30"', "2019-04-20T15:13:11Z"),
        ("2023-05-03", "", "2023-05-03T00:00:00Z"),
        ("20230503", "", "2023-05-03T00:00:00Z"),
        ("1555760591", "", "2019-04-20T11:43:11Z"),
        ("1555760591.5", "", "2019-04-20T11:43:11.500000Z"),
        ("1.555760591e9", "", "2019-04-20T11:43:11Z"),
        ("1555760591000", "", "2019-04-20T11:43:11Z"),
        ("1555760591000000", "", "2019-04-20T11:43:11Z"),
        ("60000", 'format = "milliseconds"', "1970-01-01T00:01:00Z"),
        ("03.05.2023 07:08", 'format = "%d.%m.%Y %H:%M"', "2023-05-03T07:08:00Z"),
    ],
)
def test_times_in_many_forms(tmp_path: Path, text: str, mapping: str, time: str) -> None:
    mapping = f'[mapping.finished_at]\ncolumn = "end"\n{mapping}\n'
    assert good(tmp_path, f"{HEADER},end", f"{LINE},{text}", mapping)["finished_at"] == time


@pytest.mark.parametrize(
    "text", ["03.05.2023", "yesterday", "1e300", "", "9999-12-31T23:59:59-23:00"]
)
def test_times_that_are_none(tmp_path: Path, text: str) -> None:
    mapping = '[mapping]\nfinished_at = "end"\n'
    assert "finished_at" in refused(tmp_path, f"{HEADER},end", f"{LINE},{text}", mapping)


def test_a_job_that_is_still_to_come_is_not_used(tmp_path: Path) -> None:
    assert "ahead of now" in refused(tmp_path, f"{HEADER},finished_at", f"{LINE},2999-01-01")


@pytest.mark.parametrize(
    ("word", "status"),
    [
        ("succeeded", Status.SUCCEEDED),
        ("COMPLETED", Status.SUCCEEDED),
        ("ok", Status.SUCCEEDED),
        ("OUT_OF_ME+", Status.OUT_OF_MEMORY),
        ("Out of memory", Status.OUT_OF_MEMORY),
        ("NODE_FAIL", Status.NODE_FAILURE),
        ("CANCELLED by 1042", Status.CANCELLED),
        ("timeout", Status.TIMEOUT),
        ("RUNNING", None),
    ],
)
def test_words_for_a_status(word: str, status: Status | None) -> None:
    assert status_in(word) is status


def test_statuses_of_a_table(tmp_path: Path) -> None:
    header = f"{HEADER},status"
    assert good(tmp_path, header, f"{LINE},OOM")["status"] == "out_of_memory"
    told = refused(tmp_path, header, f"{LINE},infeasible")
    assert told == "status: nothing says what 'infeasible' means: list it in status.values"
    mapping = """
[mapping.status]
values = { infeasible = "out_of_memory", "0" = "succeeded" }
other = "failed"
default = "cancelled"
"""
    for word, status in [("infeasible", "out_of_memory"), ("0", "succeeded"), ("OK", "succeeded")]:
        assert good(tmp_path, header, f"{LINE},{word}", mapping)["status"] == status
    assert good(tmp_path, header, f"{LINE},burnt", mapping)["status"] == "failed"
    assert good(tmp_path, header, f"{LINE},", mapping)["status"] == "cancelled"


def test_without_a_status_the_objective_says_that_a_job_succeeded(tmp_path: Path) -> None:
    line = LINE.replace("412.5", "")
    assert "metrics.qps: is missing, and so is a status" in refused(tmp_path, HEADER, line)
    line = LINE.replace("412.5", "0")
    # A job whose speed cannot be: kept as it stands, for the study to say what it means.
    assert good(tmp_path, HEADER, line)["status"] == "succeeded"
    assert good(tmp_path, f"{HEADER},status", f"{line},failed")["metrics"] == {"qps": 0}


def test_fields_of_the_event(tmp_path: Path) -> None:
    mapping = """
[mapping]
job_id = "JobID"
user = "User"
source = "slurm/a"
measured_s = { column = "ms", factor = 0.001 }
gpus = { column = "nodes", factor = 8 }
labels = ["queue"]
config = ["nccl"]
metrics = ["mfu"]
"""
    header = f"{HEADER},JobID,User,ms,nodes,queue,nccl,mfu,attempt"
    found = good(tmp_path, header, f"{LINE},77,ann,90000,4,batch,2.19,51,3", mapping)
    assert (found["job_id"], found["user"], found["source"]) == ("77", "ann", "slurm/a")
    assert (found["measured_s"], found["gpus"], found["attempt"]) == (90.0, 32, 3)
    assert found["labels"] == {"queue": "batch"}
    assert found["config"]["nccl"] == "2.19"
    assert found["metrics"] == {"qps": 412.5, "mfu": 51.0}


def test_a_column_of_the_study_is_not_taken_for_a_field_of_the_event(tmp_path: Path) -> None:
    text = STUDY.replace("big = {", "user = {").replace('"bool"', '"category"')
    file = tmp_path / "jobs.csv"
    file.write_text("tp,user,qps\n2,ann,1\n")
    [found] = read_observations(parse_study(text), None, [open_table(file)]).observations
    assert found.user is None
    assert found.context["user"] == "ann"


@pytest.mark.parametrize(
    ("form", "problem"),
    [("%d.%m.%Y %d", "names a part of the time twice"), ("%Q", "has a % that means nothing")],
)
def test_a_pattern_that_reads_no_time_is_a_mistake(tmp_path: Path, form: str, problem: str) -> None:
    mapping = f'[mapping]\nfinished_at = {{ column = "end", format = "{form}" }}\n'
    said = mistakes(tmp_path, "tensor,gpu,throughput,end", mapping)
    assert f"mapping.finished_at.format: {form!r} {problem}" in said


def test_a_line_that_is_no_row_is_unusable(tmp_path: Path) -> None:
    found = reader(tmp_path, HEADER).event(
        UnreadableLine(3, "has 2 fields, the header has 7", "a,b")
    )
    assert str(found) == "row: has 2 fields, the header has 7"


# ── mistakes ─────────────────────────────────────────────────────────────────────────────────


def test_all_mistakes_of_a_mapping_at_once(tmp_path: Path) -> None:
    mapping = """
[mapping]
job_id = "JobId"
finished_at = { column = "end", timezone = "Europe/Berln" }
labels = ["partition"]
columns = { tp = "tensor", gpu = { factor = 2 }, qps = "speed" }
defaults = { n_gpus = "many" }
"""
    assert mistakes(tmp_path, "JobID,tensr,gpu,throughput", mapping) == [
        "mapping.columns.gpu.factor: 'gpu' is no number",
        "mapping.defaults.n_gpus: expected an integer, not 'many'",
        "mapping.columns.tp: jobs.csv has no column 'tensor'; did you mean 'tensr'?; it has "
        "JobID, tensr, gpu, throughput",
        "mapping.finished_at.timezone: there is no time zone 'Europe/Berln' here; did you mean "
        "'Europe/Berlin'?",
        "mapping.finished_at: jobs.csv has no column 'end'",
        "mapping.columns.qps: jobs.csv has no column 'speed'",
        "mapping.labels: jobs.csv has no column 'partition'",
        "mapping.job_id: jobs.csv has no column 'JobId'; did you mean 'JobID'?",
    ]


def test_mistakes_that_need_no_table_are_said_when_the_study_is_checked() -> None:
    mapping = """
[mapping]
columns = { tpp = "a", qps = "b", gpu = ["a", "b"], layer = [] }
defaults = { qps = 1, other = 2 }
finished_at = 3
status = { values = { bad = "crashed" } }
colums = {}
"""
    with pytest.raises(MisconfiguredError) as caught:
        parse_study(STUDY + mapping, "s.toml")
    told = [str(one) for one in caught.value.problems]
    assert told == [
        "s.toml: mapping.colums: unknown key; did you mean 'columns'?",
        "s.toml: mapping.finished_at: should be a text or a table, not 3",
        "s.toml: mapping.status.values.bad: should be 'succeeded', 'out_of_memory', 'failed', "
        "'timeout', 'cancelled', 'preempted' or 'node_failure', not 'crashed'",
    ]
    mapping = mapping.replace("finished_at = 3\n", "").replace("crashed", "failed")
    with pytest.raises(MisconfiguredError) as caught:
        parse_study(STUDY + mapping.replace("colums = {}\n", ""), "s.toml")
    assert [str(one) for one in caught.value.problems] == [
        "s.toml: mapping.columns.tpp: the study has no 'tpp'; did you mean 'tp'?",
        "s.toml: mapping.columns.gpu: 'gpu' is one value: name one column",
        "s.toml: mapping.columns.layer: names no column",
        "s.toml: mapping.defaults.qps: 'qps' is a metric: what was not measured has no value",
        "s.toml: mapping.defaults.other: the study has no 'other'; there are gpu, n_gpus, big, "
        "tp, reserved, layer",
    ]


def test_a_table_without_objective_or_parameters(tmp_path: Path) -> None:
    assert mistakes(tmp_path, "gpu,tp") == [
        "mapping.columns: jobs.csv has no column for the objective, 'qps'; it has gpu, tp"
    ]
    assert mistakes(tmp_path, "gpu,qps") == [
        "mapping.columns: jobs.csv has no column for any parameter: tp, reserved, layer"
    ]


def test_what_the_table_lacks_is_noted(tmp_path: Path) -> None:
    [note] = reader(tmp_path, "gpu,n_gpus,tp,qps").notes
    assert note.endswith("has no column for big, reserved, layer: its jobs count as without")


def test_the_mapping_is_no_part_of_the_content_hash() -> None:
    assert study().content_hash == study('[mapping]\nuser = "who"\n').content_hash


@pytest.mark.parametrize("heading", ["", "[mapping]\n"])
def test_a_mapping_in_a_file_of_its_own(tmp_path: Path, heading: str) -> None:
    file = tmp_path / "old.toml"
    file.write_text(heading + 'job_id = "JobID"\n')
    assert read_mapping(file, study()).job_id == "JobID"
    file.write_text(heading + "job_id = 3\ncolumns = { tp = { factr = 1 } }\n")
    with pytest.raises(MisconfiguredError) as caught:
        read_mapping(file, study())
    told = [str(one).replace(str(tmp_path) + "/", "") for one in caught.value.problems]
    assert told == [
        "old.toml: mapping.columns.tp.factr: unknown key; did you mean 'factor'?",
        "old.toml: mapping.job_id: should be a text, not 3",
    ]
    file.write_text(heading + 'columns = { tpp = "x" }\n')
    with pytest.raises(MisconfiguredError, match="the study has no 'tpp'; did you mean 'tp'"):
        read_mapping(file, study())


# ── whole tables ─────────────────────────────────────────────────────────────────────────────


def table(tmp_path: Path, name: str, *lines: str, header: str = HEADER) -> Any:
    file = tmp_path / name
    file.write_text("\n".join([header, *lines]) + "\n")
    return open_table(file)


def read(*files: Any, mapping: str = "") -> list[Observation]:
    return list(read_observations(study(mapping), None, files).observations)


def test_dated_tables_come_oldest_first(tmp_path: Path) -> None:
    header = f"{HEADER},finished_at"
    lines = [f"{LINE},2024-0{month}-01" for month in (3, 1, 2)]
    history = read_observations(study(), None, [table(tmp_path, "a.csv", *lines, header=header)])
    assert history.dated
    assert [one.finished_at.month for one in history.observations] == [1, 2, 3]
    assert [one.sequence for one in history.observations] == [1, 2, 3]


def test_rows_that_are_alike_are_jobs_of_their_own(tmp_path: Path) -> None:
    found = read(table(tmp_path, "a.csv", LINE, LINE, LINE))
    assert len({one.event_id for one in found}) == 3
    assert [one.sequence for one in found] == [1, 2, 3]


def test_a_job_in_two_tables_is_one_job(tmp_path: Path) -> None:
    other = LINE.replace("412.5", "300")
    first = table(tmp_path, "a.csv", LINE, LINE)
    longer = table(tmp_path, "b.csv", LINE, other, LINE)
    assert [one.metrics["qps"] for one in read(first, longer)] == [412.5, 412.5, 300.0]
    assert [one.event_id for one in read(first)] == [one.event_id for one in read(longer)[::2]]


def test_unusable_rows_are_counted_by_reason(tmp_path: Path) -> None:
    bad = LINE.replace(",2,", ",two,")
    told: list[tuple[int, int]] = []
    history = read_observations(
        study(),
        None,
        [table(tmp_path, "a.csv", LINE, bad, bad.replace("two", "three"), "x,y")],
        lambda done, total: told.append((done, total)),
    )
    assert history.unusable == {
        "config.tp: expected an integer": 2,
        "row: has 2 fields, the header has 7": 1,
    }
    assert len(history.observations) == 1
    assert told[-1][0] == told[-1][1]


def test_mistakes_of_several_tables_are_said_together(tmp_path: Path) -> None:
    files = [table(tmp_path, name, "1,2", header="tp,speed") for name in ("a.csv", "b.csv")]
    with pytest.raises(MisconfiguredError) as caught:
        read_observations(study(), None, files)
    assert len(caught.value.problems) == 2


@pytest.mark.parametrize("text", ["NaN", "nan", "inf", "-Infinity"])
@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_an_objective_that_is_no_number_is_a_job_without_one(
    tmp_path: Path, text: str, suffix: str
) -> None:
    """What such a job means, the study says; nobody may lose it."""
    path = tmp_path / f"jobs.{suffix}"
    if suffix == "csv":
        path.write_text(f"gpu,tp,qps\nA,1,{text}\nA,2,\nA,4,7.5\n")
    else:
        literal = {"nan": "NaN", "inf": "Infinity"}.get(text, text)
        lines = [f'{{"gpu": "A", "tp": {tp}, "qps": {q}}}' for tp, q in ((1, literal), (2, "null"))]
        path.write_text("\n".join(lines) + '\n{"gpu": "A", "tp": 4, "qps": 7.5}\n')
    history = read_observations(study(), None, [open_table(path)])
    assert [(job.config["tp"], dict(job.metrics)) for job in history.observations] == [
        (1, {}),
        (4, {"qps": 7.5}),
    ]
    assert history.unusable == {"metrics.qps: is missing, and so is a status": 1}
