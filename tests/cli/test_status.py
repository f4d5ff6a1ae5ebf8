"""``tunerd status``, with and without a daemon that answers."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from tests.cli.conftest import Installation, Said
from tests.contracts.store_data import observation
from tunerd.cli.status_view import show
from tunerd.core.request import AdviceRequest
from tunerd.core.usability import ObjectiveUsability
from tunerd.metrics import MetricsExporter
from tunerd.store import ContextRow, RecommendationRow, TuneStep
from tunerd.telemetry import (
    BatchIngested,
    ConsumerLag,
    MessageDropped,
    PrequentialScores,
    StageStarting,
    StepCommitted,
    StudySetAside,
)
from tunerd.ui.server import HttpServer

Tunerd = Callable[..., Said]

NOW = datetime.now(UTC)
VALUE = """{"recommendation_id": "r-1", "reason": "it is faster", "candidates": [{"rank": 1,
"kind": "exploit", "share": 0.1, "wanted": 0, "config": {"tp": 2, "pp": [1, 2]},
"gain": {"median": 0.042, "low": 0.01}}], "round": null}"""


@pytest.fixture
def daemon(installation: Installation) -> Iterator[list[str]]:
    """Something that answers as a daemon does; its problems."""
    problems: list[str] = []
    metrics = MetricsExporter()
    for stage in ("ingest", "publish"):
        metrics.hear(StageStarting(stage=stage))
    metrics.hear(ConsumerLag(records=1234))
    metrics.hear(BatchIngested(rejected={"event_id": 80}, seconds=0.1))
    metrics.hear(MessageDropped(kind="recommendation", message_id="r-1", problem="too large"))
    metrics.hear(MessageDropped(kind="rejected", message_id="1", problem="too large"))
    scores = PrequentialScores(observations=40, kendall=0.61, noise=0.023, repeats=9)
    outside = {"pp": 1, "tp": 30, "": 7}
    metrics.hear(
        StepCommitted(study="llm", sequence=1, gain_realised=0.042, scores=scores, outside=outside)
    )
    metrics.hear(StudySetAside(study="llm"))
    server = HttpServer("127.0.0.1", 0, metrics.render, ready=lambda: problems)
    installation.file.write_text(f"[http]\nport = {server.port}\n")
    yield problems
    server.close()


def recommend(
    installation: Installation,
    *,
    state: str,
    proposal: str | None = None,
    context_key: str = "llm|gpu=H100|n_gpus=8",
    value: str = VALUE,
) -> None:
    with installation.open_store() as store, store.transaction() as tx:
        tx.save_recommendation(
            RecommendationRow(
                study="llm",
                context_key=context_key,
                revision=1,
                recommendation_id="r-1",
                state=state,
                value=value,
                proposal=proposal,
                issued_at=NOW,
                valid_until=NOW + timedelta(days=7),
                renew_at=NOW + timedelta(days=7) if state in ("active", "withdrawn") else None,
            )
        )


def step(installation: Installation, number: int, detail: dict[str, object]) -> None:
    with installation.open_store() as store, store.transaction() as tx:
        tx.save_step(
            TuneStep(
                study="llm",
                epoch=1,
                generation=1,
                sequence_from=number,
                sequence_to=number,
                seeds=(1,),
                model=None,
                detail=detail,
                finished_at=NOW - timedelta(seconds=30),
            )
        )


def test_without_a_daemon(tunerd: Tunerd, installation: Installation) -> None:
    said = tunerd("status", "--settings", installation.file)
    assert said.code == 0
    assert "the daemon is not running" in said.out
    assert "llm" in said.out
    assert "outbox   empty" in said.out
    report = tunerd("status", "--settings", installation.file, "--json").json
    assert report["daemon"]["running"] is False
    assert report["lag_records"] is None
    (study,) = report["studies"]
    assert (study["name"], study["mode"], study["generation"]) == ("llm", "approve", 1)
    assert (study["observations"], study["last_step_at"]) == (0, None)


@pytest.mark.slow
def test_with_a_daemon(tunerd: Tunerd, installation: Installation, daemon: list[str]) -> None:
    recommend(installation, state="active")
    said = tunerd("status", "--settings", installation.file)
    for part in (
        "running, ready",
        "1,234 records not ingested",
        "rejected 80 since the start: tunerd.rejected says why",
        "lost     2 messages since the start",
        "0.61",
        "2.3%",
        "+4.2%",
        "set aside",
        "values that the study does not have, since the start: tp in 30 jobs, pp in 1 job\n",
    ):
        assert part in said.out
    report = tunerd("status", "--settings", installation.file, "--json").json
    assert report["lag_records"] == 1234
    assert report["rejected_records"] == 80
    assert report["studies"][0]["recommendations"] == {"active": 1}
    assert report["studies"][0]["scores"]["kendall"] == 0.61
    assert report["studies"][0]["gain_realised"] == 0.042
    assert report["studies"][0]["outside"] == {"pp": 1, "tp": 30, "_other": 7}
    daemon.append("ingest: the broker cannot be reached")
    said = tunerd("status", "--settings", installation.file)
    assert "not ready" in said.out
    assert "stages   ingest, publish; requests and tune do not run" in said.out
    assert daemon[0] in said.out


def test_scores_are_kept_while_no_daemon_runs(tunerd: Tunerd, installation: Installation) -> None:
    step(installation, 1, {"scores": {"observations": 40, "kendall": 0.61}})
    step(installation, 2, {})
    report = tunerd("status", "--settings", installation.file, "--json").json
    assert report["studies"][0]["scores"] == {"observations": 40, "kendall": 0.61}
    assert report["studies"][0]["steps"] == 2


def test_jobs_without_a_usable_objective_are_told(
    tunerd: Tunerd, installation: Installation
) -> None:
    seen = ObjectiveUsability(310, 2, 250, 0.0, 1, 985380.0, "-" * 100)
    with installation.open_store() as store, store.transaction() as tx:
        state = {"tuner": {"usability": seen.dump()}}
        tx.save_study_state("llm", state, epoch=0, now=NOW)
    said = tunerd("status", "--settings", installation.file)
    for part in (
        "unusable 1 job reported what cannot be right, the last 985380: they went into quarantine",
        "252 of 310 jobs came without a usable speed: 2 without a value and 250 with",
        "a value that it cannot have, the last 0; 100 of the latest 100",
        'write missing = "ran" and impossible = "ran" under [objective]',
    ):
        assert part in " ".join(said.out.split())
    report = tunerd("status", "--settings", installation.file, "--json").json
    assert report["studies"][0]["unusable"] == {
        "metric": "speed",
        "jobs": 310,
        "missing": 2,
        "impossible": 250,
        "example": 0.0,
        "implausible": 1,
        "held_back": 985380.0,
        "latest_jobs": 100,
        "latest_unusable": 100,
        "says": {"missing": "failed", "impossible": "failed"},
    }


def test_what_another_version_saved_is_left_out(tunerd: Tunerd, installation: Installation) -> None:
    """Until the new daemon has learned history anew; the old one may still run."""
    tuner = {"usability": {"jobs": 310}, "watch": {"active": [{"drift": {"since": "monday"}}]}}
    with installation.open_store() as store, store.transaction() as tx:
        tx.save_study_state("llm", {"tuner": tuner}, epoch=0, now=NOW)
    study = tunerd("status", "--settings", installation.file, "--json").json["studies"][0]
    assert (study["unusable"], study["drift"]) == (None, [])


def test_recommendations_of_a_study(tunerd: Tunerd, installation: Installation) -> None:
    recommend(installation, state="active", proposal=VALUE.replace("r-1", "r-2"))
    said = tunerd("status", "llm", "--settings", installation.file)
    for part in ("gpu=H100", "n_gpus=8", "tp=2", "pp=1,2", "+4.2%", "it is faster", "r-2"):
        assert part in said.out
    report = tunerd("status", "llm", "--settings", installation.file, "--json").json
    assert report["recommendations"][0]["proposal"]["recommendation_id"] == "r-2"


def test_a_reason_says_how_old_it_is(tunerd: Tunerd, installation: Installation) -> None:
    made = VALUE.replace('"round"', '"made_from": {"sequence": 3}, "round"')
    recommend(installation, state="active", proposal=made)
    with installation.open_store() as store, store.transaction() as tx:
        tx.add_observations("llm", [observation(f"{i}", study="llm") for i in range(15)], NOW)

    def said() -> str:
        return " ".join(tunerd("status", "llm", "--settings", installation.file).out.split())

    for learned, told in ((3, False), (15, True)):
        with installation.open_store() as store, store.transaction() as tx:
            tx.mark_learned("llm", learned)
        assert ("(as it was 12 jobs ago)" in said()) == told


@pytest.mark.slow
def test_of_many_contexts_those_with_the_latest_jobs_are_shown(
    tunerd: Tunerd, installation: Installation
) -> None:
    keys = [f"llm|gpu=H100|n_gpus={number}" for number in range(1, 24)]
    for key in ["llm", *keys]:
        recommend(installation, state="active", context_key=key)
    with installation.open_store() as store, store.transaction() as tx:
        ended = [NOW - timedelta(minutes=number) for number in range(1, 24)]
        tx.save_context_states(
            "llm", [ContextRow(key, {}, at, 1) for key, at in zip(keys, ended, strict=True)]
        )
    said = tunerd("status", "llm", "--settings", installation.file).out.split()
    shown = [word for word in said if word.startswith(("n_gpus=", "any"))]
    assert shown == ["any", *(f"n_gpus={number}" for number in range(1, 20))]
    assert "and 4 more contexts: `tunerd status llm --all` shows" in " ".join(said)
    assert "n_gpus=23" in tunerd("status", "llm", "--all", "--settings", installation.file).out
    report = tunerd("status", "llm", "--settings", installation.file, "--json").json
    assert len(report["recommendations"]) == 24


@pytest.mark.slow
def test_of_contexts_that_are_not_shown_no_message_is_read(
    tunerd: Tunerd, installation: Installation
) -> None:
    keys = [f"llm|gpu=H100|n_gpus={number}" for number in range(1, 24)]
    for number, key in enumerate(keys):
        recommend(
            installation,
            state="active",
            context_key=key,
            value=VALUE if number < 20 else "no JSON",
        )
    with installation.open_store() as store, store.transaction() as tx:
        ended = [NOW - timedelta(minutes=number) for number in range(1, 24)]
        tx.save_context_states(
            "llm", [ContextRow(key, {}, at, 1) for key, at in zip(keys, ended, strict=True)]
        )
    said = tunerd("status", "llm", "--settings", installation.file)
    assert (said.code, "23 active" in said.out) == (0, True)


def test_an_id_in_the_context_is_told(tunerd: Tunerd, installation: Installation) -> None:
    with installation.open_store() as store, store.transaction() as tx:
        tx.save_context_states(
            "llm",
            [ContextRow(f"llm|gpu={i:08x}|n_gpus={i % 4}", {}, NOW, 1) for i in range(100)],
        )
    said = tunerd("status", "--settings", installation.file)
    assert "gpu is hardly ever the same twice" in " ".join(said.out.split())
    report = tunerd("status", "--settings", installation.file, "--json").json
    assert report["studies"][0]["hardly_ever_the_same"] == ["gpu"]


def test_a_study_that_is_not_there(tunerd: Tunerd, installation: Installation) -> None:
    said = tunerd("status", "nope", "--settings", installation.file)
    assert said.code == 2
    assert "no study nope" in said.err


def test_an_installation_that_never_ran(tunerd: Tunerd, tmp_path: Path) -> None:
    (tmp_path / "tunerd.toml").write_text("")
    said = tunerd("status", "--settings", tmp_path / "tunerd.toml")
    assert said.code == 2
    assert "`tunerd run` makes it" in said.err
    assert not (tmp_path / "tunerd-data").exists()


@pytest.mark.parametrize("http", ["enabled = false", "port = 0"])
def test_a_daemon_that_cannot_be_asked(
    tunerd: Tunerd, installation: Installation, http: str
) -> None:
    installation.file.write_text(f"[http]\n{http}\n")
    said = tunerd("status", "--settings", installation.file)
    assert "cannot tell whether the daemon runs" in said.out


def test_broken_studies_do_not_hide_the_status(tunerd: Tunerd, installation: Installation) -> None:
    installation.study_file.write_text("broken")
    assert tunerd("status", "--settings", installation.file).code == 0


@pytest.mark.slow
def test_who_asked_and_waits_is_counted(installation: Installation, tunerd: Tunerd) -> None:
    asked = [
        AdviceRequest(study="llm", source="s", event_id=name, context={"gpu": "H100"})
        for name in "ab"
    ]
    with installation.open_store() as store, store.transaction() as tx:
        tx.add_requests(asked, NOW)
    said = tunerd("status", "--settings", installation.file)
    assert "2 requests wait for an answer" in said.out
    said = tunerd("status", "--settings", installation.file, "--json")
    assert said.json["studies"][0]["unanswered_requests"] == 2


def test_what_is_wrong_is_said_to_its_end_on_a_narrow_terminal() -> None:
    why = (
        "publish: the broker kafka-3.prod.example.com:9093 refuses the login of user tunerd-prod: "
        "SASL authentication failed, expired password"
    )
    url = "postgresql://tunerd@db.prod.example.com:5432/tunerd_production_a?sslmode=verify-full"
    daemon = {
        "running": True,
        "ready": False,
        "url": "",
        "problems": [why, "tune: " + "x" * 200],
        "remarks": ["a remark"],
    }
    out = StringIO()
    show(
        {
            "name": "tunerd",
            "daemon": daemon,
            "lag_records": 3,
            "rejected_records": None,
            "stages": [],
            "rejected_topic": "tunerd.rejected",
            "unsendable_messages": None,
            "attempts": {"waiting": 0, "incomplete": 0, "oldest_at": None, "wait_days": 7.0},
            "stream": "kafka",
            "store": url,
            "outbox": {},
            "studies": [],
            "study_files": {"folder": "studies", "problems": 0, "not_taken_up": []},
            "commands": [],
        },
        Console(file=out, width=80, force_terminal=True, color_system=None),
    )
    head, _, rest = out.getvalue().partition("stream   ")
    assert why in " ".join(head.split())
    assert "x" * 200 in "".join(head.split())
    assert max(map(len, head.splitlines())) <= 80
    assert f"store    {url}\n" in rest


@pytest.mark.parametrize(
    ("mode", "state", "proposal", "counts", "parts"),
    [
        ("approve", "active", True, {"active": 1, "pending": 1}, ["waits for approval"]),
        ("approve", "withdrawn", True, {"pending": 1, "withdrawn": 1}, ["waits for approval"]),
        ("observe", "withdrawn", True, {"observed": 1, "withdrawn": 1}, ["would recommend"]),
        ("approve", "observed", False, {"pending": 1}, ["1 waits"]),
        ("approve", "declined", False, {"declined": 1}, ["none", "An operator declined"]),
        ("approve", "dropped", False, {"dropped": 1}, ["none", "was taken back"]),
    ],
)
def test_what_is_proposed_is_told_alike_by_all_who_tell_it(
    tunerd: Tunerd,
    installation: Installation,
    mode: str,
    state: str,
    proposal: bool,
    counts: dict[str, int],
    parts: list[str],
) -> None:
    text = installation.study_file.read_text().replace("approve", mode)
    with installation.open_store() as store:
        store.publish_generation("llm", "h", text, "test", NOW, force=True)
    recommend(installation, state=state, proposal=VALUE.replace("r-1", "r-2") if proposal else None)
    said = tunerd("status", "llm", "--settings", installation.file).out
    assert all(part in said for part in parts)
    assert ("waits for approval" in said) == (proposal and mode == "approve")
    told = tunerd("status", "llm", "--settings", installation.file, "--json").json
    (study,) = told["studies"]
    assert study["recommendations"] == counts
    assert study["waiting_for_approval"] == counts.get("pending", 0)
    (row,) = told["recommendations"]
    assert (row["proposal_state"] in counts) == proposal
    listed = tunerd("approve", "--settings", installation.file).out
    assert ("r-" in listed) == ("pending" in counts)


def test_what_waits_beside_a_key_that_is_free_is_told_alone(
    tunerd: Tunerd, installation: Installation
) -> None:
    recommend(installation, state="withdrawn", proposal=VALUE.replace("r-1", "r-2"))
    with installation.open_store() as store, store.transaction() as tx:
        (row,) = store.recommendations("llm")
        tx.save_recommendation(replace(row, renew_at=None))
    (told,) = tunerd("status", "llm", "--settings", installation.file, "--json").json[
        "recommendations"
    ]
    assert (told["state"], told["recommendation_id"], told["proposal"]) == ("pending", "r-2", None)
