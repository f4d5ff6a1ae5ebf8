"""``tunerd map``: what a sample of records would become."""

import json
from collections.abc import Callable
from pathlib import Path

from tests.cli.conftest import Said
from tests.events.samples import SACCT, SACCT_21
from tests.events.test_slurm import ENDED
from tunerd.events.rejection import MAX_EVENT_BYTES

Tunerd = Callable[..., Said]

SPEED = {
    "schema": "tunerd.job/1",
    "type": "reported",
    "source": "torch/cluster-a",
    "event_id": "t",
    "study": "llm",
    "job_id": "4711",
    "metrics": {"speed": 1.5},
}


def sample(tmp_path: Path, *lines: object) -> Path:
    file = tmp_path / "records.jsonl"
    texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
    file.write_text("\n".join(texts) + "\n")
    return file


def test_each_record_is_told_and_halves_are_counted(tunerd: Tunerd, tmp_path: Path) -> None:
    said = tunerd("map", sample(tmp_path, ENDED, SPEED))
    assert said.code == 0
    first, second, *_, last = said.out.splitlines()
    assert first.startswith("1: slurm-jobcomp → completed half of job 4711, attempt 1 on cluster-a")
    assert second.startswith("2: event → reported half of job 4711, attempt 1 on cluster-a")
    assert last == "  1 would wait for: context, config"
    assert "Halves of 1 attempts; 0 would be joined." in said.out


def test_what_would_be_rejected_says_why_and_ends_with_2(tunerd: Tunerd, tmp_path: Path) -> None:
    longest = json.dumps(SPEED | {"job_id": "x" * (3 * MAX_EVENT_BYTES)})
    said = tunerd("map", sample(tmp_path, "rubbish", ENDED | {"state": "\x1b[2J"}, longest, SPEED))
    assert said.code == 2
    lines = said.out.splitlines()
    assert "is not JSON" in lines[0]
    assert "state" in lines[1]
    assert "\x1b" not in said.out
    assert "is more than 256 KiB" in lines[2]
    assert "reported half" in lines[3]  # what is too long is one line


def test_for_programs(tunerd: Tunerd, tmp_path: Path) -> None:
    found = tunerd("map", sample(tmp_path, ENDED, "3"), "--json").json
    assert found["counts"] == {"completed halves": 1, "rejected": 1}
    one, two = found["records"]
    assert (one["line"], one["format"], one["job_id"]) == (1, "slurm-jobcomp", "4711")
    assert one["fields"]["gpus"] == 24
    assert (two["becomes"], two["format"]) == ("rejected", None)


MAPPING = """
[[mapping]]
name = "airflow"
[mapping.when]
kind = "run"
[mapping.fields]
job_id = "id"
study = { value = "llm" }
status = { path = "state", values = { good = "succeeded" }, other = "failed" }
finished_at = "ended"
[mapping.context]
[mapping.config]
tp = "tp"
"""
RUN = {"kind": "run", "id": 7, "state": "good", "ended": "2026-11-20T10:00:00", "tp": 8}


def test_a_mapping_is_tried(tunerd: Tunerd, tmp_path: Path) -> None:
    mapping = tmp_path / "mappings.toml"
    mapping.write_text(MAPPING)
    records = sample(tmp_path, RUN, RUN, RUN | {"tp": 4}, {"kind": "other"}, RUN | {"id": 8})
    said = tunerd("map", records, "--mapping", mapping)
    assert said.code == 2
    lines = said.out.splitlines()
    assert lines[0] == "1: airflow → job 7 of llm: succeeded, nothing measured"
    assert lines[1].endswith("; says the same as 1, dropped")
    assert "was accepted before with other content" in lines[2]
    assert lines[3] == "4: unknown → rejected: schema: is missing; expected 'tunerd.job/1'"
    assert lines[5] == "5 records: 1 duplicates, 2 jobs, 2 rejected."


def test_mistakes_of_a_mapping_are_said_at_once(tunerd: Tunerd, tmp_path: Path) -> None:
    mapping = tmp_path / "mappings.toml"
    mapping.write_text(MAPPING.replace("job_id", "jobid").replace('"llm"', "[[]]"))
    said = tunerd("map", sample(tmp_path, RUN), "--mapping", mapping)
    assert (said.code, said.out) == (2, "")
    assert "mapping[0].fields.jobid: there is no such key; did you mean 'job_id'?" in said.err
    assert "mapping[0].fields.study.value: should be a text" in said.err
    missing = tunerd("map", sample(tmp_path, RUN), "--mapping", tmp_path / "none.toml")
    assert missing.code == 2
    assert "ingest.mappings: cannot read" in missing.err


def test_a_document_is_shown_record_by_record(tunerd: Tunerd, tmp_path: Path) -> None:
    file = tmp_path / "sacct.json"
    file.write_text(json.dumps({"meta": {}, "jobs": [SACCT, SACCT_21]}, indent=2))
    said = tunerd("map", file)
    assert said.code == 0
    assert "1: sacct-json → completed half of job 4711" in said.out
    assert "2: sacct-json → completed half of job 4700_11" in said.out
    assert "jq -c '.jobs[]'" in said.err
    file.write_text("{\n" + "[" * 100_000)
    broken = tunerd("map", file)
    assert broken.code == 2
    assert "neither lines of records nor JSON" in broken.err


def test_what_comes_again_is_one_half(tunerd: Tunerd, tmp_path: Path) -> None:
    said = tunerd("map", sample(tmp_path, *[ENDED] * 10, SPEED, SPEED | {"metrics": {}}), "--json")
    assert said.json["counts"] == {
        "completed halves": 1,
        "duplicates": 9,
        "reported halves": 1,
        "rejected": 1,
    }
    assert said.json["records"][9]["same_as"] == 1
    assert said.json["attempts"] == [
        {"cluster": "cluster-a", "job_id": "4711", "attempt": 1, "missing": ["context", "config"]}
    ]
