"""The daemon as a process: it starts, learns, recommends, survives what happens, and stops."""

import contextlib
import json
import math
import os
import signal
import socket
import sqlite3
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from sqlalchemy import make_url

from tests.core.tuning import TEXT
from tests.integration.daemons import Daemon, events, read_topic
from tests.servers import free_ports, wait_until
from tests.servers.kafka import KafkaServer
from tests.servers.wire import Wire
from tunerd.cli import run as tunerd
from tunerd.metrics import definitions as d

STARTS_S = 10.0
"""Bar: 3 s on a machine that does nothing else; tests run beside others."""
STOPS_S = 6.0
"""Bar: 5 s, likewise."""

LOST = "what holds was not on its topic and is sent again"

Make = Callable[..., Daemon]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Makes daemons; none outlives its test."""
    made: list[Daemon] = []

    def new(name: str = "tunerd", **options: object) -> Daemon:
        made.append(Daemon(tmp_path / f"{name}-{len(made)}", name=name, **options))  # type: ignore[arg-type]
        return made[-1]

    yield new
    for one in made:
        one.end()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One daemon on a folder, for tests that leave it well."""
    daemon = Daemon(tmp_path_factory.mktemp("shared"))
    daemon.start()
    yield daemon
    daemon.end()


def gone(pid: int) -> bool:
    """Whether there is no such process any more, or only its exit code."""
    try:
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True


# -- a life ---------------------------------------------------------------------------------


def test_a_life_on_a_folder(make: Make, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.setblocking(False)
        daemon = make(
            environ={"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "20000000"}
        )
        begin = monotonic()
        daemon.start()
        assert monotonic() - begin < STARTS_S
        assert daemon.get("/livez")[0] == 200
        assert daemon.get("/")[0] == 200  # on loopback whoever asks is shown the pages
        daemon.send([*events(40), b"rubbish"])
        daemon.learned(40)
        daemon.until(lambda: daemon.get("/readyz")[0] == 200, "it is ready")
        lines = daemon.recommended()
        assert {line["key"] for line in lines} == {"toy|n=4", "toy|n=8", "toy|n=16"}
        assert "tunerd_" in daemon.get("/metrics")[1]
        heard = set(_messages(systemd))
        assert {"READY=1", "WATCHDOG=1"} <= heard
        code, seconds = daemon.stop()
        assert (code, seconds < STOPS_S) == (0, True), f"{code} after {seconds:.1f} s"
        assert "STOPPING=1" in _messages(systemd)
    said = [line["event"] for line in daemon.lines()]
    assert said.index("started") < said.index("stopping") < said.index("stopped")
    with daemon.store() as store:
        assert store.outbox_depths() == {}
        assert {row.context_key: row.value for row in store.recommendations("toy")} == {
            line["key"]: _canonical(daemon, line["key"]) for line in lines
        }
    daemon.start()  # and goes on where it was
    daemon.send([*events(40), *events(5, first=41)])
    daemon.learned(45)
    assert daemon.study().last_sequence == 45
    assert daemon.stop()[0] == 0


def _messages(receiver: socket.socket) -> Iterator[str]:
    with contextlib.suppress(BlockingIOError):
        while True:
            yield receiver.recv(1000).decode()


def _canonical(daemon: Daemon, key: str) -> str:
    """The last value of a key, byte by byte as it stands in the file."""
    path = daemon.folder / f"data/stream/{daemon.name}.recommendations.jsonl"
    line = [one for one in path.read_text().splitlines() if f'"key":"{key}"' in one][-1]
    return line.partition('"value":')[2].rpartition(',"headers":')[0]


def test_with_all_standard_streams_closed_it_runs_as_ever(make: Make) -> None:
    daemon = make("closed")
    closed = 'exec "$0" -m tunerd "$@" 0<&- 1>&- 2>&-'
    process = daemon.spawn("bash", "-c", closed, sys.executable)
    daemon.until(lambda: daemon.get("/readyz")[0] == 200, "it is ready")
    opened = {os.readlink(f"/proc/{process.pid}/fd/{number}") for number in range(3)}
    assert opened == {os.devnull}
    daemon.send(events(4))
    daemon.learned(4)
    assert daemon.stop()[0] == 0


def test_a_life_on_kafka_with_the_broker_away_for_a_while(
    make: Make, kafka_bootstrap: str, kafka_server: KafkaServer, unique: str
) -> None:
    daemon = make(unique, bootstrap=kafka_bootstrap)
    begin = monotonic()
    daemon.start()
    assert monotonic() - begin < STARTS_S
    daemon.send(events(20))
    daemon.learned(20)
    daemon.until(lambda: daemon.get("/readyz")[0] == 200, "it is ready")
    kafka_server.kill()
    try:
        daemon.until(lambda: daemon.get("/readyz")[0] == 503, "it is not ready")
        daemon.until(lambda: "ingest: " in daemon.get("/readyz")[1], "it says that ingest waits")
        assert daemon.get("/livez")[0] == 200
        assert daemon.metric(d.REACHABLE, stage="ingest", what="stream") == 0
        daemon.until(lambda: math.isnan(daemon.metric(d.LAG) or 0), "nobody knows the lag")
        assert daemon.metric(d.REACHABLE, stage="tune", what="store") == 1
    finally:
        kafka_server.start()
    daemon.until(lambda: daemon.get("/readyz")[0] == 200, "it is ready again")
    assert daemon.metric(d.REACHABLE, stage="ingest", what="stream") == 1
    daemon.until(lambda: daemon.metric(d.LAG) == 0, "the lag is known again")
    daemon.send(events(20, first=21))
    daemon.learned(40)
    # A broker that does not answer holds nobody up who wants to stop.
    kafka_server.freeze()
    try:
        with daemon.store() as store, store.transaction() as tx:
            number = tx.add_command("toy", "end", {}, who="ann", why="", now=datetime.now(UTC))
        daemon.until(lambda: _waiting(daemon, number), "withdrawals wait to be sent")
        code, seconds = daemon.stop()
    finally:
        kafka_server.thaw()
    assert (code, seconds < STOPS_S) == (0, True), f"{code} after {seconds:.1f} s"
    daemon.start()
    daemon.learned(40)
    assert _last_states(kafka_bootstrap, daemon) == {"withdrawn"}


def _waiting(daemon: Daemon, number: int) -> bool:
    with daemon.store() as store:
        command = store.command(number)
        return command is not None and command.result is not None and bool(store.outbox_depths())


def _last_states(bootstrap: str, daemon: Daemon) -> set[str]:
    last = dict(_topic(bootstrap, f"{daemon.name}.recommendations"))
    return {json.loads(value)["state"] for value in last.values()}


def _topic(bootstrap: str, topic: str) -> list[tuple[bytes | None, bytes]]:
    return [(record.key(), record.value() or b"") for record in read_topic(bootstrap, topic)]


def test_what_was_sent_when_it_was_killed_is_not_sent_again(
    make: Make, kafka_bootstrap: str, unique: str
) -> None:
    daemon = make(unique, bootstrap=kafka_bootstrap)
    daemon.start()
    daemon.send([b"rubbish"])
    daemon.until(lambda: len(_topic(kafka_bootstrap, f"{unique}.rejected")) == 1, "it is rejected")
    with closing(sqlite3.connect(daemon.folder / "data/tunerd.sqlite")) as store:
        # Whoever holds the write lock keeps the publisher from marking what it has sent.
        store.execute("BEGIN IMMEDIATE")
        _enqueue(store, f"{unique}.rejected", "twice?")
        store.commit()
        store.execute("BEGIN IMMEDIATE")
        daemon.until(lambda: len(_topic(kafka_bootstrap, f"{unique}.rejected")) == 2, "it is sent")
        daemon.end()
        store.rollback()
        unsent = "SELECT count(*) FROM outbox WHERE settled_at IS NULL"
        assert store.execute(unsent).fetchone() == (1,)
        daemon.start()
        daemon.until(lambda: store.execute(unsent).fetchone() == (0,), "it is marked")
    values = sorted(value for _, value in _topic(kafka_bootstrap, f"{unique}.rejected"))
    assert values == [b"rubbish", b"twice?"]


def _enqueue(store: sqlite3.Connection, topic: str, value: str, kind: str = "rejected") -> None:
    now = datetime.now(UTC).isoformat(timespec="microseconds")
    store.execute(
        "INSERT INTO outbox (kind, message_id, topic, value, headers, created_at) "
        "VALUES (?, 'x', ?, ?, '[]', ?)",
        (kind, topic, value.encode(), now),
    )


# -- what happens to it ---------------------------------------------------------------------


@pytest.mark.parametrize("waiting", [0, 1])
def test_it_stops_while_the_database_does_not_answer(
    make: Make, postgres_url: str, waiting: int
) -> None:
    """Whether a job waits to be written or nobody has noticed."""
    url = make_url(postgres_url)
    wire = Wire(url.port or 5432)
    wired = url.set(port=wire.port).render_as_string(hide_password=False)
    daemon = make(settings=f'[store]\nurl = "{wired}"')
    daemon.start()
    daemon.until(lambda: daemon.get("/readyz")[0] == 200, "it is ready")
    wire.cut()
    daemon.send(events(waiting))
    code, took = daemon.stop()
    assert code == 0
    assert took < STOPS_S
    wire.close()


def test_a_second_daemon_on_the_same_store_or_folder_names_the_first(
    shared: Daemon, make: Make
) -> None:
    assert shared.process is not None
    second = make("second")
    for section in (
        f'[store]\nurl = "sqlite:///{shared.folder}/data/tunerd.sqlite"\n',
        f'[stream]\nkind = "jsonl"\nfolder = "{shared.folder}/data/stream"\n',
    ):
        text = second.file.read_text().replace('[stream]\nkind = "jsonl"\n', "")
        second.file.write_text(f"{text}{section}")
        code, said = second.run()
        assert code == 2, said
        assert f"process {shared.process.pid} on" in said
        assert "Traceback" not in said
        second.__post_init__()
    assert shared.process.poll() is None


def test_studies_are_read_again_on_sighup_and_a_broken_one_changes_nothing(shared: Daemon) -> None:
    assert shared.process is not None
    before = shared.study().generation
    shared.write_study(TEXT.replace("explore_share = 0.5", "explore_share = 0.25"))
    shared.process.send_signal(signal.SIGHUP)
    shared.until(lambda: shared.study().generation == before + 1, "a new generation")
    shared.write_study(TEXT.replace("explore_share = 0.5", 'explore_share = "much"'))
    shared.process.send_signal(signal.SIGHUP)
    shared.until(
        lambda: bool(shared.lines("studies not reloaded, the old ones stay")), "it says so"
    )
    assert "explore_share" in shared.lines("studies not reloaded, the old ones stay")[0]["problem"]
    assert shared.study().generation == before + 1
    shared.write_study(TEXT)
    shared.process.send_signal(signal.SIGHUP)
    shared.until(lambda: shared.study().generation == before + 2, "the former one is forced")


def test_recommendations_whose_file_is_deleted_are_said_again(make: Make) -> None:
    daemon = make()
    daemon.start()
    daemon.send(events(12))
    daemon.learned(12)
    said = {line["key"]: line["value"] for line in daemon.recommended()}
    assert said
    assert not daemon.lines(LOST)
    path = daemon.folder / f"data/stream/{daemon.name}.recommendations.jsonl"
    path.unlink()
    daemon.until(lambda: bool(daemon.lines(LOST)) and path.exists(), "it is noticed")
    daemon.until(
        lambda: {line["key"]: line["value"] for line in daemon.recommended()} == said,
        "they are there again",
    )


EARLY_SIGHUP = """
import os, signal, sys

class Early:
    def find_spec(self, name, *_):
        if name == "tunerd.service.daemon":
            os.kill(os.getpid(), signal.SIGHUP)

sys.meta_path.insert(0, Early())
from tunerd.cli import main
main()
"""
"""A daemon that is told to reload before it has begun to listen for that."""


def test_a_sighup_during_the_start_is_a_reload_and_no_end(make: Make) -> None:
    daemon = make()
    daemon.spawn(sys.executable, "-c", EARLY_SIGHUP)
    daemon.until(lambda: bool(daemon.lines("started")), "it starts")
    daemon.write_study(TEXT.replace("explore_share = 0.5", "explore_share = 0.25"))
    assert daemon.process is not None
    daemon.process.send_signal(signal.SIGHUP)
    daemon.until(lambda: daemon.study().generation == 2, "a new generation")
    assert daemon.stop()[0] == 0


def test_a_start_says_that_it_waits_for_a_locked_store(make: Make) -> None:
    daemon = make()
    daemon.start()
    assert daemon.stop()[0] == 0
    with closing(sqlite3.connect(daemon.folder / "data/tunerd.sqlite")) as store:
        store.execute("BEGIN EXCLUSIVE")
        daemon.spawn()
        daemon.until(lambda: "waits for the store" in str(daemon.lines()), "it says so")
        store.rollback()
    daemon.until(lambda: bool(daemon.lines("started")), "it starts")


def test_the_command_reload_is_answered(shared: Daemon, capsys: pytest.CaptureFixture[str]) -> None:
    before = shared.study().generation
    shared.write_study(TEXT.replace("explore_share = 0.5", "explore_share = 0.25"))
    assert tunerd(["reload", "--settings", str(shared.file)]) == 0
    said = capsys.readouterr().out
    assert f"toy: generation {before + 1} (was {before})" in said
    assert "The daemon has taken it up." in said
    shared.write_study(TEXT)
    assert tunerd(["reload", "--settings", str(shared.file)]) == 0


def test_a_killed_tuner_process_is_replaced_and_the_parent_goes_on(shared: Daemon) -> None:
    """The new one goes by its parent's settings: the file cannot even be read meanwhile."""
    assert shared.process is not None
    count, read = shared.study().last_sequence, shared.file.read_text()
    try:
        for turn in range(2):
            shared.until(lambda: shared.tuner_pid is not None, "a tuner process")
            pid = shared.tuner_pid
            assert pid is not None
            shared.file.write_text("[settings")
            os.kill(pid, signal.SIGKILL)
            shared.send(events(10, first=1000 + 10 * turn))
            shared.learned(count + 10 * (turn + 1))
            assert shared.tuner_pid not in (None, pid)
    finally:
        shared.file.write_text(read)
    assert shared.lines("tuner process replaced")[-1]["cause"] == "it was killed by signal 9"
    assert shared.process.poll() is None
    shared.until(lambda: shared.get("/readyz")[0] == 200, "it is ready")


def test_a_topic_may_get_another_name_while_messages_wait_for_it(make: Make) -> None:
    daemon = make(environ={"TUNERD_HTTP__PAGES": "false"})
    daemon.start()
    daemon.send(events(10))
    daemon.learned(10)
    assert status_of(f"http://127.0.0.1:{daemon.port}/metrics") == 200
    assert status_of(f"http://127.0.0.1:{daemon.port}/") == 404, "pages are off"
    (daemon.folder / "data/stream/tunerd.rejected.jsonl").unlink()
    (daemon.folder / "data/stream/tunerd.rejected.jsonl").mkdir()
    daemon.send([b"rubbish"])
    daemon.until(lambda: bool(daemon.lines("stream unavailable, trying again")), "it waits")
    daemon.stop()
    said = {line["key"]: line["value"] for line in daemon.recommended()}
    settings = daemon.file.read_text().replace("tunerd.rejected", "of-no-use")
    daemon.file.write_text(settings.replace("tunerd.recommendations", "advice"))
    daemon.start()
    moved = daemon.folder / "data/stream/of-no-use.jsonl"
    daemon.until(lambda: bool(moved.read_text()), "it is sent where it belongs now")
    active = {key: value for key, value in said.items() if value["state"] == "active"}
    advice = daemon.folder / "data/stream/advice.jsonl"

    def advised() -> dict[str, Any]:
        lines = advice.read_text().splitlines() if advice.exists() else []
        return {line["key"]: line["value"] for line in map(json.loads, lines)}

    daemon.until(lambda: len(advised()) >= len(active), "advice is there too")
    assert advised() == active
    a_fault_of_its_own_ends_it_with_1(daemon)


def a_fault_of_its_own_ends_it_with_1(daemon: Daemon) -> None:
    with closing(sqlite3.connect(daemon.folder / "data/tunerd.sqlite")) as store:
        # There is no such message: the stage that sends it has a fault, says so, and ends it all.
        _enqueue(store, "nowhere", "", kind="nonsense")
        store.commit()
    assert daemon.process is not None
    assert daemon.process.wait(30) == 1
    (crash,) = daemon.lines("stage crashed")
    assert crash["stage"] == "publish"
    assert daemon.lines("stopped")


def test_a_killed_parent_leaves_no_tuner_and_the_next_one_loses_nothing(make: Make) -> None:
    daemon = make()
    daemon.start()
    daemon.send(events(30))
    daemon.until(lambda: daemon.tuner_pid is not None, "a tuner process")
    tuner = daemon.tuner_pid
    assert tuner is not None
    daemon.end()
    wait_until(lambda: gone(tuner), 20, "the tuner process ends")
    daemon.start()
    daemon.learned(30)
    assert daemon.study().last_sequence == 30
    assert daemon.stop()[0] == 0
    damaged_it_is_learned_anew_and_told(daemon)


def damaged_it_is_learned_anew_and_told(daemon: Daemon) -> None:
    """Its checkpoint, after 30 jobs."""
    with closing(sqlite3.connect(daemon.folder / "data/tunerd.sqlite")) as store:
        store.execute("UPDATE checkpoints SET blob = zeroblob(length(blob))")
        store.commit()
    daemon.start()
    daemon.send(events(5, first=31))
    daemon.learned(35)
    assert not daemon.lines("tuner process replaced")
    (line,) = daemon.lines("saved state damaged: learned anew from history")
    status, said = daemon.get("/readyz")
    assert status == 200
    (remark,) = json.loads(said)["remarks"]
    assert f"study toy: what was saved of it was damaged ({line['problem']})" in remark
    assert daemon.metric(d.LEARNED_ANEW, study="toy") == 1


SLOW = (
    TEXT.replace('name = "toy"', 'name = "slow"')
    .replace("members = 3", "members = 64")
    .replace("trees = 30", "trees = 10000")
)


def test_a_study_whose_steps_pass_their_deadline_is_set_aside_and_others_go_on(make: Make) -> None:
    daemon = make(
        studies={"slow": SLOW, "toy": TEXT},
        settings="[tune]\nstep_deadline_s = 2\nmax_crashes = 1",
    )
    daemon.start()
    daemon.send(events(30, study="slow"))
    daemon.until(lambda: bool(daemon.lines("study set aside")), "set aside")
    daemon.send(events(30))
    daemon.learned(30)
    replaced = daemon.lines("tuner process replaced")
    assert [line["study"] for line in replaced] == ["slow"]
    assert replaced[0]["cause"] == "its step took more than 2 s (tune.step_deadline_s)"
    assert daemon.study("slow").learned_sequence == 0
    said = daemon.get("/readyz")[1]
    assert "study slow is set aside and not tuned: its step took more than 2 s" in said
    assert "it is tried again after 10 minutes" in said
    assert 'study="slow"' in daemon.get("/metrics")[1]
    assert daemon.stop()[0] == 0


def test_a_store_that_is_gone_is_noticed_and_nothing_is_acknowledged(make: Make) -> None:
    daemon = make()
    # The folder of streams lies elsewhere: only the store goes.
    text = daemon.file.read_text().replace("[stream]", '[stream]\nfolder = "stream"')
    daemon.file.write_text(text)
    (daemon.folder / "data").mkdir()
    (daemon.folder / "data/stream").symlink_to(daemon.folder / "stream")
    daemon.start()
    daemon.send(events(5))
    daemon.learned(5)
    (daemon.folder / "data").rename(daemon.folder / "elsewhere")
    begin = monotonic()
    daemon.until(lambda: daemon.get("/readyz")[0] == 503, "it notices")
    assert monotonic() - begin < 10
    assert "its folder renamed; nothing is written or acknowledged" in daemon.get("/readyz")[1]
    with (daemon.folder / "stream/tunerd.jobs.jsonl").open("ab") as file:
        file.write(b"".join(event + b"\n" for event in events(5, first=6)))
    daemon.until(lambda: "ingest: " in daemon.get("/readyz")[1], "ingest notices")
    daemon.until(lambda: bool(daemon.lines("not ready")), "it says so")
    assert "put it back" in daemon.lines("not ready")[0]["problem"]
    assert not (daemon.folder / "data").exists()
    (daemon.folder / "elsewhere").rename(daemon.folder / "data")
    daemon.learned(10)
    daemon.until(lambda: daemon.get("/readyz")[0] == 200, "it goes on")
    assert daemon.study().last_sequence == 10


def test_it_stops_in_time_in_the_middle_of_a_step_that_takes_minutes(make: Make) -> None:
    daemon = make(studies={"slow": SLOW})
    daemon.start()
    daemon.send(events(30, study="slow"))
    daemon.until(lambda: daemon.study("slow").last_sequence == 30, "the jobs are there")
    code, seconds = daemon.stop()
    assert code == 0
    assert seconds < STOPS_S
    assert daemon.lines("stopped")
    assert daemon.study("slow").last_sequence == 30


# -- exit codes -----------------------------------------------------------------------------


def test_misconfigured_it_exits_2_and_says_where(make: Make) -> None:
    daemon = make(settings="[tune]\nbudget_seconds = 3")
    code, said = daemon.run()
    assert code == 2
    assert "tune.budget_seconds" in said
    assert "Traceback" not in said


def test_what_the_machine_refuses_is_one_line_that_names_the_setting(make: Make) -> None:
    daemon = make()
    with socket.create_server(("127.0.0.1", daemon.port)):
        code, said = daemon.run()
    assert code == 1
    assert f"http.host 127.0.0.1, http.port {daemon.port}: Address already in use" in said
    assert "Traceback" not in said
    assert "frames" not in said


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_a_start_waits_for_brokers_that_are_down_or_slow(
    make: Make, kafka_bootstrap: str, kafka_server: KafkaServer, unique: str
) -> None:
    (nobody,) = free_ports(1)
    brokers = f"127.0.0.1:{nobody},{kafka_bootstrap}"
    daemon, stopped = make(unique, bootstrap=brokers), make(f"{unique}b", bootstrap=brokers)
    kafka_server.freeze()
    try:
        daemon.spawn()
        stopped.spawn()
        daemon.until(lambda: bool(daemon.lines("the start waits")), "it says so")
        stopped.until(lambda: bool(stopped.lines("the start waits")), "it says so")
        code, seconds = stopped.stop()
        assert (code, stopped.lines("crashed")) == (0, [])
        assert seconds < STOPS_S
        problem = daemon.lines("the start waits")[0]["problem"]
        assert f"127.0.0.1:{nobody}: connection refused" in problem.lower()
        assert kafka_bootstrap in problem
    finally:
        kafka_server.thaw()
    daemon.until(lambda: bool(daemon.lines("started")), "it starts")
    daemon.send(events(4))
    daemon.learned(4)


@pytest.mark.parametrize(
    ("environ", "status"),
    [
        ({"TUNERD_HTTP__HOST": "0.0.0.0"}, 404),  # noqa: S104 - a setting
        ({"TUNERD_HTTP__HOST": "0.0.0.0", "TUNERD_HTTP__NAMES": "127.0.0.1"}, 200),  # noqa: S104
    ],
    ids=["beyond", "beyond, by names"],
)
def test_pages_are_served_beyond_loopback_only_where_that_is_said(
    make: Make, environ: dict[str, str], status: int
) -> None:
    """Whoever opened the port for Prometheus shows no jobs and users there."""
    daemon = make(environ=environ)
    daemon.start()
    assert status_of(f"http://127.0.0.1:{daemon.port}/metrics") == 200
    assert status_of(f"http://127.0.0.1:{daemon.port}/") == status


def status_of(url: str) -> int:
    """Of what is answered there."""
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return int(error.code)
