"""Asking a daemon that runs: by the topic, by the client, by the command line."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from tests.integration.daemons import Daemon, events
from tunerd.client import Recommendations, Requests, context_key
from tunerd.metrics import definitions as d

FEATURES = {"n": "int"}
ANSWERED_S = 8.0
"""Bar: two seconds on a machine that does nothing else; tests run beside others."""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One on a folder that has learned some jobs."""
    made = Daemon(tmp_path_factory.mktemp("asked"))
    made.start()
    made.send(events(60))
    made.learned(60)
    yield made
    made.end()


def key(n: int) -> str:
    return context_key("toy", FEATURES, {"n": n})


def ask(recommendations: Recommendations, requests: Requests, n: int) -> dict[str, Any] | None:
    return recommendations.ask(
        requests, context_key=key(n), study="toy", context={"n": n}, timeout_s=45, user="ann"
    )


def clients(daemon: Daemon) -> tuple[Recommendations, Requests]:
    if daemon.bootstrap:
        return (
            Recommendations.follow_kafka(daemon.bootstrap, f"{daemon.name}.recommendations"),
            Requests.kafka(daemon.bootstrap, f"{daemon.name}.requests", "test"),
        )
    folder = daemon.folder / "data/stream"
    return (
        Recommendations.follow_jsonl(folder, f"{daemon.name}.recommendations"),
        Requests.jsonl(folder, f"{daemon.name}.requests", "test"),
    )


def asked_of(daemon: Daemon) -> None:
    """A context that nobody has run is answered, one where nothing runs says why."""
    recommendations, requests = clients(daemon)
    begin = monotonic()
    message = ask(recommendations, requests, 7)
    assert monotonic() - begin < ANSWERED_S
    assert message is not None
    assert (message["state"], message["revision"], message["context"]) == ("active", 1, {"n": 7})
    assert all(one["predicted"] for one in message["candidates"])
    choice = recommendations.choose(key(7), job_id="1")
    assert choice is not None
    assert choice.recommendation_id == message["recommendation_id"]
    again = ask(recommendations, requests, 7)
    assert again is not None
    assert again["revision"] > 1
    nothing = ask(recommendations, requests, 0)
    assert nothing is not None
    assert nothing["state"] == "withdrawn"
    assert "fits" in nothing["reason"]
    assert recommendations.find(key(0)) is None or key(0) != "toy"
    recommendations.close()
    requests.close()


def test_a_daemon_on_a_folder_answers(daemon: Daemon) -> None:
    asked_of(daemon)
    daemon.until(
        lambda: (daemon.metric(d.ANSWERED, study="toy", outcome="published") or 0) >= 1,
        "the answer is counted",
    )
    assert (daemon.metric(d.ANSWERED, study="toy", outcome="nothing") or 0) >= 1
    assert (daemon.metric(d.REQUESTS, outcome="accepted") or 0) >= 3


def test_a_daemon_on_kafka_answers(tmp_path: Path, kafka_bootstrap: str, unique: str) -> None:
    made = Daemon(tmp_path, bootstrap=kafka_bootstrap, name=unique)
    try:
        made.start()
        made.send(events(60))
        made.learned(60)
        asked_of(made)
    finally:
        made.end()


def test_an_unusable_request_is_rejected(daemon: Daemon) -> None:
    daemon.send([b'{"schema": "tunerd.request/1", "event_id": "x", "study": "toy"}'], "requests")
    rejected = daemon.folder / "data/stream/tunerd.rejected.jsonl"

    def told() -> bool:
        return rejected.exists() and "context: is missing" in rejected.read_text()

    daemon.until(told, "it is rejected")


def command(daemon: Daemon, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [
            *(sys.executable, "-m", "tunerd", "recommend", "--settings", str(daemon.file)),
            *("toy", *arguments),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_command_line_asks_it(daemon: Daemon) -> None:
    done = command(daemon, "--context", "n=9", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["outcome"] == "published"
    assert told["context_key"] == "toy|n=9"
    lines = [line["value"] for line in daemon.recommended() if line["key"] == "toy|n=9"]
    daemon.until(lambda: any(one["key"] == "toy|n=9" for one in daemon.recommended()), "it is sent")
    lines = [line["value"] for line in daemon.recommended() if line["key"] == "toy|n=9"]
    assert told["recommendation"] in lines
    shown = command(daemon, "--context", "n=900")
    assert shown.returncode == 0
    assert "share" in shown.stdout
    assert "no job ran as far out as n = 900; jobs had 4 to 16" in shown.stdout
    assert command(daemon, "--context", "n=0").returncode == 1


def test_what_was_asked_while_no_daemon_ran_is_answered_by_the_next(tmp_path: Path) -> None:
    made = Daemon(tmp_path)
    try:
        made.start()
        made.send(events(40))
        made.learned(40)
        made.stop()
        _, requests = clients(made)
        requests.ask(study="toy", context={"n": 7}, event_id="while it was away")
        done = command(made, "--context", "n=7", "--json")
        told = json.loads(done.stdout)
        assert told["outcome"] == "computed"
        assert any("no daemon runs" in note for note in told["notes"])
        assert told["recommendation"]["candidates"]
        with made.store() as store:
            assert store.requests() == []
            assert store.recommendation("toy", "toy|n=7") is None
        made.start()
        made.until(lambda: any(one["key"] == "toy|n=7" for one in made.recommended()), "an answer")
        (value,) = [one["value"] for one in made.recommended() if one["key"] == "toy|n=7"]
        # The same knowledge, the same seeds: what was computed is what is published.
        same = ("candidates", "incumbent", "baseline", "reason")
        assert {k: value[k] for k in same} == {k: told["recommendation"][k] for k in same}
    finally:
        made.end()
