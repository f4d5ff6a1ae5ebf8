"""Signals on their way in: points into the store, and into the contexts of jobs."""

import json
from datetime import timedelta
from typing import Any

import pytest

from tests.stages.fakes import FakeStream, Heard, Time
from tests.stages.tuning import Lines
from tunerd import telemetry
from tunerd.core.study_file import parse_study
from tunerd.errors import MisconfiguredError
from tunerd.settings.model import IngestSettings, TopicSettings, TuneSettings
from tunerd.stages.forecast import ForecastStage
from tunerd.stages.ingest import IngestStage
from tunerd.stages.tune import TuneStage
from tunerd.store import Store

TOPICS = TopicSettings(jobs="jobs", recommendations="recommendations", rejected="rejected")
TEXT = """
schema = 1
name = "web"
[objective]
metric = "requests_per_dollar"
goal = "maximize"
[context]
service = { type = "category" }
rps = { type = "float", scale = "log", signal = "rps{service=$service}", over = "10m" }
[parameters]
replicas = { type = "int", values = [1, 2, 4, 8] }
"""


@pytest.fixture
def stream() -> FakeStream:
    return FakeStream()


@pytest.fixture
def ingest(stream: FakeStream, store: Store, time: Time, heard: Heard) -> IngestStage:
    study = parse_study(TEXT)
    store.publish_generation("web", study.content_hash, TEXT, "test", time.now())
    settings = IngestSettings()
    return IngestStage(stream, store, TOPICS, "group", settings, heard, time.now, time.clock)


def signal(time: Time, minutes_ago: float, value: object, **changes: Any) -> bytes:
    at = (time.now() - timedelta(minutes=minutes_ago)).isoformat()
    record = {"schema": "tunerd.signal/1", "name": "rps", "labels": {"service": "a"}, "time": at}
    return json.dumps(record | {"value": value} | changes).encode()


def job(time: Time, name: str, minutes_ago: float, **changes: Any) -> bytes:
    event = {
        "schema": "tunerd.job/1",
        "event_id": name,
        "study": "web",
        "job_id": name,
        "status": "succeeded",
        "finished_at": (time.now() - timedelta(minutes=minutes_ago)).isoformat(),
        "context": {"service": "a"},
        "config": {"replicas": 2},
        "metrics": {"requests_per_dollar": 3.0},
    }
    return json.dumps(event | changes).encode()


def contexts(store: Store) -> dict[str, object]:
    return {one.event_id: one.context.get("rps") for one in store.observations("web")}


def test_a_job_gets_the_value_that_held_when_it_ran(
    ingest: IngestStage, stream: FakeStream, store: Store, time: Time
) -> None:
    for minutes_ago, value in ((90, 1000.0), (65, 100.0), (61, 200.0), (5, 400.0), (1, 600.0)):
        stream.write(signal(time, minutes_ago, value))
    began = (time.now() - timedelta(minutes=70)).isoformat()
    for one in (
        job(time, "then", 60),
        job(time, "now", 0),
        job(time, "long", 0, started_at=began),
        job(time, "own", 0, context={"service": "a", "rps": 7.0}),
        job(time, "other", 0, context={"service": "b"}),
        job(time, "before", 600),
    ):
        stream.write(one)
    while ingest.step():
        pass
    assert contexts(store) == {
        "then": 150.0,
        "now": 500.0,
        "long": 325.0,
        "own": 7.0,
        "other": None,
        "before": None,
    }


def test_a_whole_number_that_no_database_holds_is_not_filled_in(
    ingest: IngestStage, stream: FakeStream, store: Store, time: Time
) -> None:
    text = TEXT.replace('type = "float", scale = "log"', 'type = "int"')
    store.publish_generation("web", parse_study(text).content_hash, text, "test", time.now())
    for minutes_ago, value in ((50, 1e99), (5, -1e99), (30, 12.4)):
        stream.write(signal(time, minutes_ago, value))
    for name, minutes_ago in (("far", 49), ("fine", 29), ("low", 4)):
        stream.write(job(time, name, minutes_ago))
    while ingest.step():
        pass
    assert contexts(store) == {"far": None, "fine": 12, "low": None}


def test_who_lets_go_of_forecasting_leaves_it_to_others_at_once(
    ingest: IngestStage, store: Store, time: Time
) -> None:
    del ingest  # it has put the study there
    first, second = (ForecastStage(store, name, Lines(), time.now) for name in "ab")  # type: ignore[arg-type]
    assert first.step()
    assert not second.step()
    first.close()
    time.pass_(seconds=301.0)
    assert second.step()


def test_a_repeat_changes_nothing_and_a_bad_record_is_rejected_with_its_reason(
    ingest: IngestStage, stream: FakeStream, store: Store, time: Time, heard: Heard
) -> None:
    for record in (
        signal(time, 5, 1.0),
        signal(time, 5, 2.0),
        signal(time, 4, "many"),
        signal(time, 4, 3.0, labels=[1]),
    ):
        stream.write(record)
    while ingest.step():
        pass
    points = store.signal_points('rps{service="a"}', time.now() - timedelta(hours=1))
    assert [value for _, value in points] == [1.0]
    reasons = [dict(one.headers)["reason"].decode() for one in store.unsent(10)]
    assert [reason.partition(":")[0] for reason in reasons] == ["value", "labels"]
    (report,) = heard.of(telemetry.BatchIngested)
    assert (report.duplicates, report.rejected) == (1, {"value": 1, "labels": 1})


def test_a_feature_from_a_signal_is_in_buckets_unless_its_file_says_otherwise() -> None:
    study = parse_study(TEXT)
    near = [study.context_key({"service": "a", "rps": rps}) for rps in (100.0, 105.0, 300.0)]
    assert near[0] == near[1] != near[2]
    exact = parse_study(TEXT.replace('over = "10m"', 'key = "value"'))
    assert exact.context_key({"rps": 100.0}) != exact.context_key({"rps": 105.0})


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("$service}", "$servce}", "there is no context feature 'servce'"),
        ('over = "10m"', 'over = "soon"', "should be a time"),
        ("rps{service=$service}", "rps{", "should be like"),
        ('type = "float", scale = "log", s', 'type = "category", s', "signals are numbers"),
    ],
)
def test_a_mistake_in_the_file_is_named(old: str, new: str, problem: str) -> None:
    assert old in TEXT
    with pytest.raises(MisconfiguredError, match=problem):
        parse_study(TEXT.replace(old, new))


# -- ahead --------------------------------------------------------------------------------------


def busy(hour: float) -> float:
    """Requests a second by the hour of the day: 100 at night, 800 by day."""
    return 800.0 if 9 <= hour % 24 < 18 else 100.0


def past_load(store: Store, time: Time, days: int = 5) -> None:
    now = time.now()
    with store.transaction() as tx:
        for minutes in range(days * 24 * 60, 0, -10):
            at = now - timedelta(minutes=minutes)
            value = busy(at.hour + at.minute / 60) * (1 + 0.02 * ((minutes // 10) % 5 - 2))
            tx.add_signal_points([('rps{service="a"}', at, value)], now)


@pytest.mark.slow
def test_a_context_that_is_to_come_has_a_recommendation_before_its_first_job(
    ingest: IngestStage, stream: FakeStream, store: Store, time: Time, heard: Heard
) -> None:
    time.pass_(seconds=3600 * ((27 - time.now().hour) % 24))  # the small hours
    past_load(store, time)
    study = parse_study(TEXT.replace('name = "web"', 'name = "web"\nmode = "publish"'))
    store.publish_generation("web", study.content_hash, study.text, "test", time.now())
    for number in range(40):
        config = {"replicas": [1, 2, 4, 8][number % 4]}
        metrics = {"requests_per_dollar": 10.0 / config["replicas"]}
        stream.write(job(time, f"j{number}", 50 - number, config=config, metrics=metrics))
    lines = Lines()
    tune = TuneStage(
        store,
        TuneSettings(),
        "recommendations",
        heard,
        lines,  # type: ignore[arg-type]
        time.now,
        time.clock,
    )
    forecast = ForecastStage(store, "me", lines, time.now)  # type: ignore[arg-type]

    def work() -> None:
        while ingest.step() or tune.step():
            pass

    try:
        work()
        by_night = {row.context_key for row in store.recommendations("web")}
        by_day = study.context_key({"service": "a", "rps": 800.0})
        assert by_day not in by_night
        assert forecast.step()
        work()
        published = {row.context_key: row for row in store.recommendations("web")}
        assert published[by_day].state == "active"
        rates = [one.context.get("rps") for one in store.observations("web")]
        assert not any(isinstance(rate, int | float) and rate > 500 for rate in rates)
        kept = store.forecast_plan("web")
        assert kept is not None
        (plan,) = kept[1]["signals"]
        assert (plan["signal"], plan["state"]) == ('rps{service="a"}', "active")
        assert len(plan["windows"]) in (24, 25)
        at_noon = next(w for w in plan["windows"] if w["start_s"] % 86_400 == 12 * 3600)
        assert at_noon["key"] == by_day
        assert at_noon["low"] <= 800 <= at_noon["high"]
        # Nobody asks twice; and nothing is due before five minutes have passed.
        assert not forecast.step()
        time.pass_(seconds=301.0)
        assert forecast.step()
        assert store.requests_waiting() == {}
        # The hour passes: what came stands beside what was foreseen.
        for _ in range(13):
            time.pass_(seconds=600.0)
            with store.transaction() as tx:
                tx.add_signal_points([('rps{service="a"}', time.now(), 100.0)], time.now())
            forecast.step()
        kept = store.forecast_plan("web")
        assert kept is not None
        assert kept[1]["signals"][0]["past"][-1]["came"] == pytest.approx(100.0, rel=0.05)
        # The signal leaves its band: the plan is withdrawn, and says why.
        for _ in range(2):
            time.pass_(seconds=301.0)
            with store.transaction() as tx:
                tx.add_signal_points([('rps{service="a"}', time.now(), 9000.0)], time.now())
        time.pass_(seconds=301.0)
        assert forecast.step()
        kept = store.forecast_plan("web")
        assert kept is not None
        assert kept[1]["signals"][0]["state"] == "withdrawn"
        assert "outside the 98 % band" in kept[1]["signals"][0]["why"]
    finally:
        tune.close()
