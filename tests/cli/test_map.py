"""``tunerd map``: what a sample of records would become."""

import json
from collections.abc import Callable
from pathlib import Path

from tests.cli.conftest import Said
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
    assert last == "Halves of 1 attempts; 1 have an end and more."


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
