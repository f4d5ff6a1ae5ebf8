"""What docs/events.md shows runs, and what it lists is all there is."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tunerd.core.observation import Observation
from tunerd.core.request import AdviceRequest
from tunerd.events import (
    JobHalf,
    from_bytes,
    half_schema,
    job_schema,
    read_job,
    read_request,
    request_schema,
)
from tunerd.events.plan import PublishedPlan

PAGE = (Path(__file__).parents[2] / "docs" / "events.md").read_text()
NOW = datetime(2026, 11, 20, 11, tzinfo=UTC)


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_example_events_are_accepted() -> None:
    job, cloudevent, halves, _, _, plan, request = blocks("json")
    for example in (job, cloudevent):
        seen = read_job(example.encode(), (), NOW)
        assert isinstance(seen, Observation), seen
        assert seen.event_id == "cluster-a/4711/1"
    decoder = json.JSONDecoder()
    types = []
    while halves.strip():
        _, end = decoder.raw_decode(halves)
        half = read_job(halves[:end].encode(), (), NOW)
        assert isinstance(half, JobHalf), half
        assert half.key == ("cluster-a", "4711", 1)
        types.append(half.type)
        halves = halves[end:].lstrip()
    assert types == ["started", "reported", "completed"]
    asked = read_request(request.encode(), (), NOW)
    assert isinstance(asked, AdviceRequest), asked
    assert msgspec.json.decode(plan, type=PublishedPlan).feature == "rps"


def test_the_example_recommendation_is_one() -> None:
    example = from_bytes(blocks("json")[3].encode())
    assert example.candidates[0].config == {"tp": 4, "pp": 2, "precision": "fp8"}


@pytest.mark.parametrize(
    ("title", "schema"),
    [("Job event", job_schema), ("Half of a job", half_schema), ("Request", request_schema)],
)
def test_the_table_lists_every_field_and_says_which_are_required(
    title: str, schema: Callable[[], dict[str, Any]]
) -> None:
    section = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| (required)? ?\|", section, re.MULTILINE)
    (definition,) = [
        one for one in schema()["$defs"].values() if "schema" in one.get("properties", {})
    ]
    assert [name for name, _ in rows] == list(definition["properties"])
    assert [name for name, required in rows if required] == definition["required"]


@pytest.mark.slow
@pytest.mark.parametrize("number", range(7))
def test_the_programs_run(number: int, tmp_path: Path) -> None:
    program = blocks("python")[number]
    (tmp_path / "stream").mkdir()
    message = blocks("json")[3].replace("2026-11-27", "2999-11-27")
    line = {"key": "llm-pretrain", "value": json.loads(message), "headers": {}}
    recommendations = tmp_path / "stream" / "tunerd.recommendations.jsonl"
    recommendations.write_text(json.dumps(line) + "\n")
    check = {
        0: "assert choice.config['tp'] in (4, 8)",
        1: "",
        2: f"import json\nassert choose(json.loads({message!r}), '1')['tp'] in (4, 8)",
        3: "assert choice is None",
        4: "",
        5: "assert answer is None and choice is None",
        6: "assert choice.config['tp'] in (4, 8) and choice.match == 'exact'",
    }[number]
    subprocess.run([sys.executable, "-c", f"{program}\n{check}"], cwd=tmp_path, check=True)
    if number == 0:
        (sent,) = (tmp_path / "stream" / "tunerd.jobs.jsonl").read_bytes().splitlines()
        assert isinstance(read_job(sent, (), datetime.now(UTC)), Observation)
    if number == 1:
        lines = (tmp_path / "stream" / "tunerd.jobs.jsonl").read_bytes().splitlines()
        halves = [read_job(one, (), datetime.now(UTC)) for one in lines]
        assert [half.type for half in halves if isinstance(half, JobHalf)] == [
            "started",
            "reported",
            "completed",
        ]
