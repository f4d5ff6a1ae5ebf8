"""The API: what it says is what the command line says, held to its own schema; and its bounds."""

import csv
import io
import json
import re
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.ui.conftest import Site, serving
from tests.ui.world import NAMES, World
from tunerd.cli import run
from tunerd.metrics import MetricsExporter
from tunerd.ui import LazyPages, is_loopback
from tunerd.ui.openapi import ANSWERS, openapi
from tunerd.ui.render import context_url
from tunerd.ui.server import HttpServer

pytestmark = pytest.mark.slow

STUDY = "/studies/toy"
JOBS = 132
"""Of it in all, twelve of them in a campaign."""


def held_to_the_schema(template: str, told: Any) -> None:
    schema = openapi()
    shape = schema["paths"][template]["get"]["responses"]["200"]["content"]["application/json"]
    whole = {**shape["schema"], "components": schema["components"]}
    Draft202012Validator(whole).validate(told)


def asked_for(site: Site, study: str = "toy") -> dict[str, str]:
    """A question of each kind, by its template."""
    contexts = site.json(f"/studies/{study}/contexts")["contexts"]
    key = contexts[0]["context_key"]
    context = site.json(context_url(study, key))
    said = context["said"][0]["recommendation_id"]
    return {
        "/studies": "/studies",
        "/ledger": "/ledger?days=30",
        "/studies/{study}": f"/studies/{study}",
        "/studies/{study}/contexts": f"/studies/{study}/contexts?sort=-jobs&limit=2&page=2",
        "/studies/{study}/contexts/{context}": context_url(study, key),
        "/studies/{study}/jobs": f"/studies/{study}/jobs?limit=5",
        "/studies/{study}/jobs/{sequence}": f"/studies/{study}/jobs/30",
        "/studies/{study}/ledger": f"/studies/{study}/ledger?days=30",
        "/studies/{study}/forecast": f"/studies/{study}/forecast",
        "/studies/{study}/importance": f"/studies/{study}/importance",
        "/studies/{study}/recommendations/{recommendation}": (
            f"/studies/{study}/recommendations/{said}"
        ),
        "/studies/{study}/try": f"/studies/{study}/try?n=12",
    }


def test_every_answer_is_as_the_schema_says(site: Site) -> None:
    asked = asked_for(site)
    assert asked.keys() == ANSWERS.keys()
    for template, path in asked.items():
        held_to_the_schema(template, site.json(path))


def test_the_schema_is_served_and_names_every_path(site: Site) -> None:
    status, _, body = site.get("/api/v1/openapi.json")
    told = json.loads(body)
    assert status == 200
    assert told["openapi"] == "3.1.0"
    assert told["paths"].keys() == ANSWERS.keys()
    for template, path in told["paths"].items():
        named = {one["name"] for one in path["get"]["parameters"] if one["in"] == "path"}
        assert named == set(re.findall(r"\{(\w+)\}", template))


def test_studies_that_need_somebody_come_first(site: Site) -> None:
    told = site.json("/studies")
    assert {one["name"] for one in told["studies"]} == set(NAMES)
    first = told["studies"][0]
    levels = [[note["level"] for note in one["attention"]] for one in told["studies"]]
    assert first["attention"], levels
    waiting = next(one for one in told["studies"] if one["name"] == "waiting")
    assert waiting["waiting"] == 3
    assert "wait for approval" in waiting["attention"][0]["text"]
    assert told["studies"][-1]["attention"] == []


def test_a_study_is_what_status_says(
    site: Site, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["status", "toy", "--json", "--settings", str(world.settings)]) == 0
    (said,) = json.loads(capsys.readouterr().out)["studies"]
    del said["file"]
    told = site.json(STUDY)["status"]
    assert told.pop("last_step_at").replace("Z", "+00:00") == said.pop("last_step_at")
    assert json.loads(json.dumps(told).replace('Z"', '+00:00"')) == said


def test_the_ledger_is_what_the_command_says(
    site: Site, world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["ledger", "toy", "--json", "--settings", str(world.settings)]) == 0
    said = json.loads(capsys.readouterr().out)
    told = site.json(f"{STUDY}/ledger?days=30")
    alike(told["total"], said["total"])
    contexts = {row["name"]: row["account"] for row in told["contexts"]}
    for one in said["contexts"]:
        account = contexts[one["context_key"]]
        alike(account, {name: one[name] for name in account})


def alike(account: dict[str, Any], other: dict[str, Any]) -> None:
    """The page sums up by day, so the last digits depend on where midnight was."""
    assert account.keys() == other.keys()
    for name, value in account.items():
        assert value == (pytest.approx(other[name]) if isinstance(value, float) else other[name])


def test_who_never_follows_is_seen(site: Site) -> None:
    rows = {row["name"]: row["account"] for row in site.json(f"{STUDY}/ledger?days=30")["users"]}
    assert rows["never-follows"]["following"].get("followed", 0) == 0
    assert sum(row["following"].get("followed", 0) for row in rows.values()) > 20
    assert sum(row["jobs"] for row in rows.values()) == JOBS


def test_contexts_are_searched_sorted_and_paged(site: Site) -> None:
    keys = [one["context_key"] for one in site.json(f"{STUDY}/contexts?sort=context")["contexts"]]
    assert keys == ["toy|n=16", "toy|n=24", "toy|n=4", "toy|n=8"]
    (one,) = site.json(f"{STUDY}/contexts?search=n+16")["contexts"]
    assert one["context_key"] == "toy|n=16"
    page = site.json(f"{STUDY}/contexts?sort=-context&limit=2&page=2")
    assert (page["page"], page["pages"], page["total"]) == (2, 2, 4)
    assert [one["context_key"] for one in page["contexts"]] == ["toy|n=24", "toy|n=16"]
    jobs = [one["jobs"] for one in site.json(f"{STUDY}/contexts?sort=-jobs")["contexts"]]
    assert jobs == sorted(jobs, reverse=True)
    assert sum(jobs) == JOBS


def test_jobs_are_paged_by_what_comes_before(site: Site) -> None:
    seen: list[int] = []
    before = ""
    while True:
        told = site.json(f"{STUDY}/jobs?limit=50{before}")
        seen += [one["sequence"] for one in told["jobs"]]
        if told["next_before"] is None:
            break
        before = f"&before={told['next_before']}"
    assert seen == list(range(JOBS, 0, -1))
    mine = site.json(f"{STUDY}/jobs?user=never-follows&limit=200")["jobs"]
    assert {one["user"] for one in mine} == {"never-follows"}
    assert len(mine) == 16
    (one,) = site.json(f"{STUDY}/jobs?job=j7")["jobs"]
    assert one["job_id"] == "j7"


def test_a_context_says_what_came_of_its_jobs(site: Site) -> None:
    told = site.json(f"{STUDY}/contexts/n=8")
    assert told["context"] == {"n": 8}
    (best,) = (row for row in told["configs"] if row["role"] == "incumbent")
    assert best["config"] == told["recommendations"][0]["incumbent"]["config"]
    assert best["low"] < best["mean"] < best["high"]
    assert best["runs"] >= 2
    assert [one["sequence"] for one in told["said"]] == sorted(
        (one["sequence"] for one in told["said"]), reverse=True
    )


def test_what_each_change_brings_sums_to_the_whole(site: Site) -> None:
    context = site.json(f"{STUDY}/contexts/n=16")
    said = context["recommendations"][0]["recommendation_id"]
    told = site.json(f"{STUDY}/recommendations/{said}")
    assert told["recommendation"]["recommendation_id"] == said
    for one in told["recommendation"]["candidates"]:
        assert sum(c["score"] for c in one["changes"]) == pytest.approx(one["score"], abs=1e-6)


def test_trying_tells_nobody(site: Site, world: World) -> None:
    with world.opened() as store:
        before = store.requests_waiting(), store.recommendations("toy")
        told = site.json(f"{STUDY}/try?n=64")
        assert told["outcome"] == "computed"
        assert told["recommendation"]["context"] == {"n": 64}
        assert (store.requests_waiting(), store.recommendations("toy")) == before


def test_a_job_is_told_with_what_was_thought_of_it(site: Site) -> None:
    followers = [
        one
        for one in site.json(f"{STUDY}/jobs?limit=200")["jobs"]
        if one["following"] == "followed"
    ]
    told = site.json(f"{STUDY}/jobs/{followers[0]['sequence']}")
    assert told["row"]["predicted"] is not None
    assert told["advised"]
    assert told["taught"][0].startswith("It is ")
    assert told["config"].keys() == {"x", "y", "z"}


def test_the_ledger_as_csv(site: Site) -> None:
    status, headers, body = site.get(f"{STUDY}/ledger.csv?days=30")
    rows = list(csv.DictReader(io.StringIO(body.decode())))
    assert (status, headers["content-type"]) == (200, "text/csv; charset=utf-8")
    users = [row for row in rows if row["by"] == "user"]
    assert sum(int(row["jobs"]) for row in users) == JOBS
    total = site.json(f"{STUDY}/ledger?days=30")["total"]
    net = sum(float(row["net_gpu_hours"]) for row in users)
    spent = total["gpu_hours_saved"] - total["gpu_hours_spent_on_trying"]
    assert net == pytest.approx(spent, abs=0.01)


def test_what_a_spreadsheet_would_take_for_a_formula_is_text(hostile_site: Site) -> None:
    body = hostile_site.get(f"{STUDY}/ledger.csv")[2].decode()
    names = [row["name"] for row in csv.DictReader(io.StringIO(body))]
    assert any(name.startswith("'=cmd") for name in names)
    assert not any(name.startswith(("=", "+", "-", "@")) for name in names)


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/studies/nope", 404, "did you mean"),
        ("/studies/to", 404, "the store knows no study to"),
        (f"{STUDY}/contexts/n=5", 404, "no context"),
        (f"{STUDY}/jobs/9999", 404, "no job number"),
        (f"{STUDY}/jobs/99999999999999999999999", 404, "no job number"),
        (f"{STUDY}/jobs?limit=0", 400, "limit: should be"),
        (f"{STUDY}/jobs?limit=100000", 400, "limit: should be"),
        (f"{STUDY}/jobs?before=-1", 400, "before: should be"),
        (f"{STUDY}/contexts?sort=drop", 400, "sort: should be"),
        (f"{STUDY}/ledger?days=x", 400, "days: should be"),
        (f"{STUDY}/try", 400, "missing: n"),
        ("/nothing", 404, "no such page"),
    ],
)
def test_what_is_wrong_is_told(site: Site, path: str, status: int, said: str) -> None:
    got, headers, body = site.get(f"/api/v1{path}")
    assert (got, headers["content-type"]) == (status, "application/json")
    if said != "did you mean":
        assert said in json.loads(body)["problem"]
    got, headers, body = site.get(path)
    assert got == (200 if path == f"{STUDY}/try" else status)
    assert headers["content-type"] == "text/html; charset=utf-8"


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
@pytest.mark.parametrize("path", ["/", STUDY, f"/api/v1{STUDY}/jobs", "/events", "/static/page.js"])
def test_nothing_changes_over_http(site: Site, method: str, path: str) -> None:
    assert site.get(path, method)[0] == 405


@pytest.mark.parametrize("path", ["/", STUDY, f"{STUDY}/contexts/n=8", "/nope", "/static/page.css"])
def test_a_strict_policy_on_everything(site: Site, path: str) -> None:
    _, headers, _ = site.get(path)
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", ""])
def test_another_name_for_this_host_reads_nothing(site: Site, host: str) -> None:
    for path in ("/", f"/api/v1{STUDY}", "/events"):
        status, _, body = site.get(path, Host=host)
        assert status == 421
        assert b"toy" not in body


@pytest.mark.parametrize("host", ["localhost", "localhost:1", "127.0.0.1:9464", "[::1]:80"])
def test_its_own_names_are_answered(site: Site, host: str) -> None:
    assert site.get("/", Host=host)[0] == 200


@pytest.mark.parametrize("number", ["9" * 5_000, "9" * 19, "0", "-1", "x", "%D9%A3"])
def test_a_job_of_no_such_number_is_not_there(site: Site, number: str) -> None:
    for path in (f"{STUDY}/jobs/{number}", f"/api/v1{STUDY}/jobs/{number}"):
        assert site.get(path)[0] == 404


@pytest.mark.parametrize(
    "path",
    [
        "/studies/%00",
        f"{STUDY}/contexts/n=%00",
        f"{STUDY}/jobs?user=%00",
        f"{STUDY}/try?n=%00",
        f"{STUDY}/recommendations/%00",
    ],
)
def test_nothing_is_asked_for_by_what_no_database_keeps(site: Site, path: str) -> None:
    assert site.get(path)[0] == 400
    status, _, body = site.get(f"/api/v1{path}")
    assert (status, "NUL" in json.loads(body)["problem"]) == (400, True)


def test_the_report_is_a_page_that_can_be_saved(site: Site) -> None:
    assert "What people would have gained" in site.page(f"{STUDY}/report")
    _, headers, _ = site.get(f"{STUDY}/report")
    assert headers["content-security-policy"].startswith("default-src 'none'; style-src 'unsafe")
    assert "script" not in headers["content-security-policy"]


def test_head_is_answered_without_a_body(site: Site) -> None:
    status, headers, body = site.get(STUDY, "HEAD")
    assert (status, body) == (200, b"")
    assert int(headers["content-length"]) > 1000


def test_an_empty_store(empty_site: Site) -> None:
    held_to_the_schema("/studies", told := empty_site.json("/studies"))
    assert told["studies"] == []
    assert b"No study yet" in empty_site.get("/")[2]


def test_hostile_names_are_text(hostile_site: Site) -> None:
    found = [one["context_key"] for one in hostile_site.json(f"{STUDY}/contexts")["contexts"]]
    paths = ["/", STUDY, f"{STUDY}/contexts", f"{STUDY}/jobs", f"{STUDY}/ledger", f"{STUDY}/report"]
    paths += [context_url("toy", key) for key in found]
    paths += [f"{STUDY}/jobs/{number}" for number in range(1, 13)]
    for path in paths:
        text = hostile_site.page(path)
        assert not re.search(r"<script(?! src=\"/static)", text), path
        assert "<img" not in text, path
        assert "<b>" not in text, path
        assert not set(text) & {"\x1b", "\u202e", "\x00"}, path


def test_a_store_that_goes_away_is_told(world: World, tmp_path: Path) -> None:
    own = world.copy(tmp_path / "own")
    with serving(own) as site:
        assert site.page(f"{STUDY}/jobs")
        for file in (own.folder / "data").iterdir():
            file.unlink()
        for path in ("/", STUDY, f"{STUDY}/jobs?limit=3", f"/api/v1{STUDY}/jobs?limit=4"):
            status, _, body = site.get(path)
            assert status == 503, path
            assert b"tunerd.sqlite" in body
        assert site.get("/static/page.js")[0] == 200


def test_a_study_that_cannot_be_read_hides_no_other(world: World, tmp_path: Path) -> None:
    own = world.copy(tmp_path / "own")
    with own.opened() as store:
        store.publish_generation("broken", "h", "objective = 1", "test", datetime.now(UTC))
    with serving(own) as site:
        deadline = time.monotonic() + 30
        while (told := site.json("/studies"))["being_read"]:
            assert time.monotonic() < deadline
        assert {one["name"] for one in told["studies"]} == set(NAMES)
        assert told["unreadable"].keys() == {"broken"}
        held_to_the_schema("/studies", told)
        assert "broken cannot be read" in site.page("/")
        status, _, body = site.get("/studies/broken")
        assert (status, b"broken" in body) == (409, True)


def test_a_context_shows_how_far_its_runs_have_come(site: Site) -> None:
    told = site.json(f"{STUDY}/contexts/n=8")
    sequences = [one["sequence"] for one in told["runs"]]
    assert sequences == sorted(set(sequences))
    assert "Every run, and the best so far" in site.page(f"{STUDY}/contexts/n=8")


@pytest.mark.parametrize(
    ("host", "names", "answered", "refused"),
    [
        ("127.0.0.1", [], ["localhost", "127.0.0.1"], ["tunerd.example", "10.0.0.7"]),
        ("127.0.0.1", ["tunerd.example"], ["localhost", "tunerd.example"], ["evil.example"]),
        ("0.0.0.0", ["localhost", "127.0.0.1"], ["localhost:9464"], ["evil.example"]),  # noqa: S104 - a setting
        ("0.0.0.0", [], ["tunerd.example", "10.0.0.7:9464"], []),  # noqa: S104
    ],
)
def test_names_under_which_a_daemon_s_pages_are_asked(
    empty: World, host: str, names: list[str], answered: list[str], refused: list[str]
) -> None:
    problems: list[str] = []
    with empty.opened() as store:
        pages = LazyPages(
            store,
            metrics=MetricsExporter().render,
            problems=lambda: problems,
            arguments=(),
            host=host,
            names=names,
        )
        server = HttpServer("127.0.0.1", 0, MetricsExporter().render, pages=pages)
        site = Site(server.url, server.port)
        try:
            assert {site.get("/", Host=name)[0] for name in answered} == {200}
            assert {site.get("/", Host=name)[0] for name in refused} <= {421}
            assert site.get("/metrics", Host="evil.example")[0] == 200
            assert "ready" in site.page("/")
            problems.append("ingest: the broker <b>is away</b>")
            assert "the broker &lt;b&gt;is away" in site.page("/?again")
        finally:
            pages.close()
            server.close()


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("::1234", False),
        ("0.0.0.0", False),  # noqa: S104 - a setting
        ("::", False),
        ("127.example.org", False),
        ("localhost.example.org", False),
    ],
)
def test_only_this_machine_s_own_addresses_are_loopback(host: str, local: bool) -> None:
    assert is_loopback(host) is local


def test_the_ledger_of_all_studies_is_the_sum_of_theirs(site: Site) -> None:
    whole = site.json("/ledger?days=30")
    ones = {name: site.json(f"/studies/{name}/ledger?days=30")["total"] for name in NAMES}
    assert whole["missing"] == 0
    assert whole["total"]["jobs"] == sum(total["jobs"] for total in ones.values())
    assert {row["name"]: row["account"]["jobs"] for row in whole["studies"]} == {
        name: total["jobs"] for name, total in ones.items() if total["jobs"]
    }
    assert whole["total"]["gpu_hours"] == pytest.approx(
        sum(total["gpu_hours"] for total in ones.values())
    )
    assert sum(row["account"]["jobs"] for row in whole["users"]) == whole["total"]["jobs"]
    lines = site.get("/ledger.csv?days=30")[2].decode().splitlines()
    assert len(lines) == 1 + len(whole["studies"]) + len(whole["users"])


def test_a_campaign_shows_which_round_asked_for_each_run(site: Site) -> None:
    context = site.json("/studies/toy/contexts/n=24")
    rounds = [run["round"] for run in context["runs"]]
    assert rounds == sorted(rounds)
    assert Counter(rounds) == {0: 6, 1: 3, 2: 3}
    assert context["campaign"]["finished"]
    (campaign,) = site.json("/studies/toy")["campaigns"]
    assert campaign["context_key"] == "toy|n=24"
    assert campaign["runs"] == context["runs"]
    page = site.get("/studies/toy")[2].decode()
    assert "What changed, over time" in page
    assert "round 2: " in page
