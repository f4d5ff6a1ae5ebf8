"""Signals from a real Prometheus with some days of history, and from what pretends to be one."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.servers.prometheus import PrometheusServer
from tests.stages.fakes import Heard, Time
from tests.stages.tuning import Lines
from tunerd import telemetry
from tunerd.errors import StreamUnavailableError
from tunerd.settings.model import PrometheusSettings
from tunerd.stages import prometheus
from tunerd.stages.prometheus import MOST_STEPS, PrometheusStage
from tunerd.store import Store, Transaction
from tunerd.store.signals import MOST_SIGNALS
from tunerd.streams.prometheus import PrometheusAnswer, PrometheusClient, PrometheusSeries

STEP_S = 300
BEGAN = datetime(2026, 11, 20, tzinfo=UTC)
DAYS = 3
SERVICES = ("a", "b")


def load(service: str, at: datetime) -> float:
    return (100.0 if service == "a" else 7.0) + at.hour


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a Prometheus has on its disk after three days, as promtool writes it."""
    folder = tmp_path_factory.mktemp("prometheus")
    lines = ["# TYPE load gauge"]
    for service in SERVICES:
        for step in range(DAYS * 86_400 // STEP_S + 1):
            at = BEGAN + timedelta(seconds=step * STEP_S)
            lines.append(f'load{{service="{service}"}} {load(service, at)} {at.timestamp():.0f}')
    (folder / "history").write_text("\n".join([*lines, "# EOF\n"]))
    subprocess.run(
        [
            "promtool",
            "tsdb",
            "create-blocks-from",
            "openmetrics",
            folder / "history",
            folder / "data",
        ],
        check=True,
        capture_output=True,
    )
    return folder


@pytest.fixture
def server(history: Path) -> Iterator[PrometheusServer]:
    server = PrometheusServer(history, "127.0.0.1:9", "groups: []")
    server.start()
    yield server
    server.stop()


@dataclass
class Rig:
    """Stages on one store; each new one is a daemon that was started again."""

    store: Store
    time: Time
    url: str
    heard: Heard = field(default_factory=Heard)
    lines: Lines = field(default_factory=Lines)
    remarks: dict[str, str] = field(default_factory=dict)

    def stage(self, owner: str = "me", **changes: object) -> PrometheusStage:
        settings = {"queries": {"rps": "load"}, "step_s": STEP_S, "timeout_s": 10.0} | changes
        return PrometheusStage(
            self.store,
            PrometheusSettings(url=self.url, **settings),  # type: ignore[arg-type]
            owner,
            self.heard,
            self.lines,  # type: ignore[arg-type]
            self.remarks.__setitem__,
            self.time.now,
        )

    def points(self, service: str) -> dict[datetime, float]:
        points = self.store.signal_points(f'rps{{service="{service}"}}', BEGAN - timedelta(days=30))
        return {datetime.fromtimestamp(at, UTC): value for at, value in points}

    def count(self) -> int:
        return sum(report.points for report in self.heard.of(telemetry.PrometheusAsked))


@pytest.fixture
def time() -> Time:
    return Time(BEGAN + timedelta(days=DAYS - 1))


def drive(stage: PrometheusStage) -> int:
    steps = 0
    while stage.step():
        steps += 1
    return steps


def expected(service: str, until: datetime) -> dict[datetime, float]:
    steps = int((until - timedelta(seconds=30) - BEGAN).total_seconds()) // STEP_S + 1
    times = [BEGAN + timedelta(seconds=step * STEP_S) for step in range(steps)]
    return {at: load(service, at) for at in times}


@pytest.mark.slow
def test_a_real_prometheus_is_read_once_across_starts_and_outages(
    server: PrometheusServer, store: Store, time: Time
) -> None:
    rig = Rig(store, time, f"http://127.0.0.1:{server.port}")
    stage = rig.stage()
    # A part of the history, then another daemon: nothing is lost and nothing twice.
    for _ in range(13):
        assert stage.step()
    assert 0 < rig.count() < 2 * len(expected("a", time.now()))
    stage = rig.stage()
    drive(stage)
    for service in SERVICES:
        assert rig.points(service) == expected(service, time.now())
    assert rig.count() == 2 * len(expected("a", time.now()))
    assert not stage.step()
    # It is away for some hours.
    server.stop()
    for _ in range(3):
        time.pass_(hours=1)
        assert drive(stage) == 1
    assert "cannot be reached: Connection refused" in rig.remarks["prometheus rps"]
    assert len(rig.lines.of("signal not read from Prometheus")) == 1
    server.start()
    time.pass_(hours=1)
    drive(stage)
    assert rig.remarks["prometheus rps"] == ""
    assert len(rig.lines.of("signal read from Prometheus again")) == 1
    for service in SERVICES:
        assert rig.points(service) == expected(service, time.now())
    assert rig.count() == 2 * len(expected("a", time.now()))
    assert len([r for r in rig.heard.of(telemetry.PrometheusAsked) if r.failed]) == 3


@pytest.mark.slow
def test_a_query_that_prometheus_refuses_keeps_no_other_from_being_asked(
    server: PrometheusServer, store: Store, time: Time
) -> None:
    rig = Rig(store, time, f"http://127.0.0.1:{server.port}")
    stage = rig.stage(queries={"bad": "sum by (", "rps": "load > 200 / 0 or load"})
    drive(stage)
    assert "it refuses the query: " in rig.remarks["prometheus bad"]
    assert "parse error" in rig.remarks["prometheus bad"]
    assert rig.points("b") == expected("b", time.now())


# -- what pretends to be one ------------------------------------------------------------------


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., object]], None]:
    """What the client gives to a question; its own tests have real strangers."""

    def answer(ask: Callable[..., object]) -> None:
        def asked(_: object, *question: object) -> PrometheusAnswer:
            answer = ask(*question)
            return answer if isinstance(answer, PrometheusAnswer) else PrometheusAnswer(answer)  # type: ignore[arg-type]

        monkeypatch.setattr(PrometheusClient, "ask", asked)

    return answer


def test_labels_that_no_signal_has_are_left_out_and_told(
    store: Store, time: Time, answers: Callable[[Callable[..., object]], None]
) -> None:
    at = time.now().timestamp() - 600
    series = [
        PrometheusSeries(
            {"service": "a"}, [(at, 1.0), (at + 300, 1e300), (at - 1e6, 5.0), (1e18, 5.0)]
        ),
        PrometheusSeries({"a.b": "c"}, [(at, 2.0)]),
        PrometheusSeries({"long": "x" * 2_000}, [(at, 3.0)]),
        PrometheusSeries({"service": "zero\x00"}, [(at, 4.0)]),
    ]
    answers(lambda *_: series)
    rig = Rig(store, time, "http://127.0.0.1:9")
    drive(rig.stage(backfill_days=0.01))
    assert list(store.signal_names()) == ['rps{service="a"}']
    assert list(rig.points("a").values()) == [1.0]
    assert rig.remarks["prometheus rps"].startswith("signal rps from Prometheus: value: expected")


@pytest.mark.parametrize(
    ("series", "warning", "remark"),
    [
        ([{"service": "a"}], "store-2: no answer, the rest is partial", "it warns: store-2"),
        ([{"service": "a"}, {"service": "a"}], "", "labels: several series have the same"),
    ],
)
def test_an_answer_that_lacks_something_is_told(
    store: Store,
    time: Time,
    answers: Callable[[Callable[..., object]], None],
    series: list[dict[str, str]],
    warning: str,
    remark: str,
) -> None:
    at = time.now().timestamp() - 600
    points = [PrometheusSeries(labels, [(at, 1.0 + n)]) for n, labels in enumerate(series)]
    answers(lambda *_: PrometheusAnswer(points, warning))
    rig = Rig(store, time, "http://127.0.0.1:9")
    drive(rig.stage(backfill_days=0.01))
    assert list(rig.points("a").values()) == [1.0]
    assert remark in rig.remarks["prometheus rps"]


@pytest.mark.slow
def test_more_signals_than_are_kept_are_told(
    store: Store, time: Time, answers: Callable[[Callable[..., object]], None]
) -> None:
    with store.transaction() as tx:
        others = [(f"other{n}", time.now(), 1.0) for n in range(MOST_SIGNALS - 1)]
        tx.add_signal_points(others, time.now())
    at = time.now().timestamp() - 600
    answers(lambda *_: [PrometheusSeries({"service": s}, [(at, 1.0)]) for s in SERVICES])
    rig = Rig(store, time, "http://127.0.0.1:9")
    drive(rig.stage(backfill_days=0.01))
    assert rig.count() == 1
    assert "1,000 signals already" in rig.remarks["prometheus rps"]


@pytest.mark.slow
def test_a_crash_within_a_large_answer_leaves_no_hole(
    store: Store,
    time: Time,
    answers: Callable[[Callable[..., object]], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def ask(_: str, start_s: float, end_s: float) -> list[PrometheusSeries]:
        times = [start_s + n * STEP_S for n in range(MOST_STEPS) if start_s + n * STEP_S <= end_s]
        return [PrometheusSeries({"n": str(n)}, [(at, 1.0) for at in times]) for n in range(80)]

    answers(ask)
    rig = Rig(store, time, "http://127.0.0.1:9")
    transaction, begun = store.transaction, 0

    def killed() -> AbstractContextManager[Transaction]:
        nonlocal begun
        begun += 1
        if begun == 5:
            raise KeyboardInterrupt
        return transaction()

    with monkeypatch.context() as patched:
        patched.setattr(prometheus, "BATCH_POINTS", 400)
        patched.setattr(store, "transaction", killed)
        with pytest.raises(KeyboardInterrupt):
            drive(rig.stage(backfill_days=1.0))
    kept = len(store.signal_points('rps{n="0"}', BEGAN))
    assert kept == len(store.signal_points('rps{n="79"}', BEGAN)) == 15
    drive(rig.stage(backfill_days=1.0))
    assert len(store.signal_points('rps{n="79"}', BEGAN)) == 86_400 // STEP_S
    assert rig.count() == 80 * (86_400 // STEP_S - kept)


@pytest.mark.parametrize("lag", [timedelta(0), timedelta(minutes=40)])
def test_a_clock_that_was_ahead_and_a_server_that_lags_lose_nothing(
    store: Store,
    time: Time,
    answers: Callable[[Callable[..., object]], None],
    lag: timedelta,
) -> None:
    real = [time.now()]

    def ask(_: str, start_s: float, end_s: float) -> list[PrometheusSeries]:
        until_s = min(end_s, (real[0] - lag).timestamp())
        times = [start_s + n * STEP_S for n in range(MOST_STEPS)]
        return [PrometheusSeries({}, [(at, 1.0) for at in times if at <= until_s])]

    answers(ask)
    rig = Rig(store, time, "http://127.0.0.1:9")
    stage = rig.stage(backfill_days=1.0)
    drive(stage)
    if not lag:
        time.pass_(days=3)
        drive(stage)
        stage.now = lambda: real[0]
    begin = real[0]
    for _ in range(20):
        real[0] += timedelta(seconds=STEP_S)
        if lag:
            time.pass_(seconds=STEP_S)
        drive(stage)
    points = store.signal_points("rps", begin - lag)
    assert len(points) >= 20 - 2


def test_of_two_instances_one_asks_and_the_other_takes_over(
    store: Store, time: Time, answers: Callable[[Callable[..., object]], None]
) -> None:
    questions: list[float] = []

    def ask(_: str, __: float, end_s: float) -> list[PrometheusSeries]:
        questions.append(end_s)
        raise StreamUnavailableError("away")

    answers(ask)
    rig, other = Rig(store, time, "http://127.0.0.1:9"), Rig(store, time, "http://127.0.0.1:9")
    first, second = rig.stage("first"), other.stage("second")
    assert first.step()
    assert not second.step()
    assert (len(questions), rig.remarks["prometheus rps"], other.remarks) == (
        1,
        "signal rps from Prometheus: away",
        {},
    )
    first.close()
    time.pass_(seconds=31)
    assert second.step()
    assert not first.step()
    assert rig.remarks["prometheus rps"] == ""
    assert len(questions) == 2
