"""Signals on their way in: points into the store, and into the contexts of jobs."""

import json
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from tests.stages.fakes import FakeStream, Heard, Time
from tests.stages.tuning import SIGNAL_STUDY as TEXT
from tests.stages.tuning import Lines
from tunerd import telemetry
from tunerd.core.decisions.context_state import ContextState
from tunerd.core.forecasting.forecaster import SignalForecast, SignalForecaster
from tunerd.core.study_file import parse_study
from tunerd.errors import MisconfiguredError
from tunerd.events.drift import DriftEvent
from tunerd.queries.forecasts import study_forecast
from tunerd.queries.metric_samples import MetricSamples
from tunerd.queries.study_status import study_status
from tunerd.settings.model import IngestSettings, TopicSettings, TuneSettings
from tunerd.stages.drift_events import SignalAlarm, follow_shifts
from tunerd.stages.forecast import ForecastStage
from tunerd.stages.ingest import IngestStage
from tunerd.stages.signal_forecasters import MADE_AT_ONCE
from tunerd.stages.tune import TuneStage
from tunerd.store import ContextRow, RecommendationRow, Store
from tunerd.store.signals import KEPT, shifts_of

TOPICS = TopicSettings(jobs="jobs", recommendations="recommendations", rejected="rejected")


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


def test_a_point_too_old_to_keep_is_rejected_and_no_duplicate(
    ingest: IngestStage, stream: FakeStream, store: Store, time: Time, heard: Heard
) -> None:
    old = int((KEPT + timedelta(days=1)) / timedelta(minutes=1))
    for record in (signal(time, 5, 1.0), signal(time, old, 2.0)):
        stream.write(record)
    while ingest.step():
        pass
    (rejected,) = [dict(message.headers)["reason"].decode() for message in store.unsent(10)]
    assert rejected.startswith("time: ")
    assert rejected.endswith("more than 60 days before now, too old to keep")
    (report,) = heard.of(telemetry.BatchIngested)
    assert (report.duplicates, report.rejected) == (0, {"time": 1})


def test_a_feature_from_a_signal_is_in_buckets_unless_its_file_says_otherwise() -> None:
    study = parse_study(TEXT)
    near = [study.context_key({"service": "a", "rps": rps}) for rps in (100.0, 105.0, 300.0)]
    assert near[0] == near[1] != near[2]
    exact = parse_study(TEXT.replace('over = "10m"', 'key = "value"'))
    assert exact.context_key({"rps": 100.0}) != exact.context_key({"rps": 105.0})


def test_all_mistakes_of_a_feature_are_named_at_once() -> None:
    text = TEXT.replace("$service}", "$servce,zone=$zone}").replace('"10m"', '"soon"')
    with pytest.raises(MisconfiguredError) as refused:
        parse_study(text)
    told = [str(problem) for problem in refused.value.problems]
    assert len(told) == 3
    assert all(any(word in one for one in told) for word in ("soon", "'servce'", "'zone'"))


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


def test_a_whole_number_beyond_64_bits_is_missing(
    ingest: IngestStage, stream: FakeStream, store: Store, time: Time
) -> None:
    text = TEXT.replace('type = "float", scale = "log"', 'type = "int"')
    study = parse_study(text)
    store.publish_generation("web", study.content_hash, text, "test", time.now())
    for service, value in (("a", 1e30), ("b", 41.8)):
        stream.write(signal(time, 1, value, labels={"service": service}))
        stream.write(job(time, service, 0, context={"service": service}))
    while ingest.step():
        pass
    assert contexts(store) == {"a": None, "b": 42}


def test_the_signal_of_a_job_is_named_by_its_features_as_the_study_reads_them(
    ingest: IngestStage, stream: FakeStream, store: Store, time: Time
) -> None:
    text = TEXT.replace(
        'service = { type = "category"', 'service = { type = "category", was = "app"'
    )
    study = parse_study(text)
    store.publish_generation("web", study.content_hash, text, "test", time.now())
    stream.write(signal(time, 1, 5.0))
    stream.write(signal(time, 1, 7.0, labels={"service": "3000000"}))
    stream.write(job(time, "renamed", 0, context={"app": "a"}))
    stream.write(job(time, "number", 0, context={"service": 3e6}))
    while ingest.step():
        pass
    assert contexts(store) == {"renamed": 5.0, "number": 7.0}


def test_what_holds_for_jobs_without_a_value_is_for_those_without_a_point(
    ingest: IngestStage, stream: FakeStream, store: Store, time: Time
) -> None:
    text = TEXT.replace('over = "10m"', "absent = 1.0")
    study = parse_study(text)
    store.publish_generation("web", study.content_hash, text, "test", time.now())
    stream.write(signal(time, 1, 5.0))
    stream.write(job(time, "told", 0))
    stream.write(job(time, "untold", 0, context={"service": "b"}))
    while ingest.step():
        pass
    assert contexts(store) == {"told": 5.0, "untold": None}


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
        message = json.loads(published[by_day].value)
        assert message["valid_from"].endswith("T09:00:00Z")
        assert message["forecast"]["signal"] == 'rps{service="a"}'
        assert message["forecast"]["until"].endswith("T18:00:00Z")
        assert message["forecast"]["probability"] >= 0.5
        assert message["forecast"]["low"] <= 800 <= message["forecast"]["high"]
        assert all("valid_from" not in json.loads(published[key].value) for key in by_night)
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


def ran_in(store: Store, time: Time, study_text: str, *given: dict[str, Any]) -> None:
    """Jobs have run in these contexts of a study."""
    study = parse_study(study_text)
    store.publish_generation(study.name, study.content_hash, study_text, "test", time.now())
    rows = []
    for context in given:
        state = ContextState(context, last_job_at=time.now())
        rows.append(ContextRow(study.context_key(context), state.dump(), time.now(), -1))
    with store.transaction() as tx:
        tx.save_context_states(study.name, rows)


def plans(store: Store, study: str) -> list[dict[str, Any]]:
    kept = store.forecast_plan(study)
    assert kept is not None
    found: list[dict[str, Any]] = kept[1]["signals"]
    return found


def short_load(store: Store, time: Time, *names: str) -> None:
    """Two hours of points that say little."""
    with store.transaction() as tx:
        times = [time.now() - timedelta(minutes=m) for m in range(120, 0, -5)]
        points = [(name, at, 100.0 + at.minute) for at in times for name in names]
        tx.add_signal_points(points, time.now())


def forecasting(store: Store, time: Time, owner: str = "me") -> ForecastStage:
    return ForecastStage(store, owner, Lines(), time.now)  # type: ignore[arg-type]


def test_contexts_that_share_a_signal_have_plans_of_their_own(store: Store, time: Time) -> None:
    text = TEXT.replace("rps{service=$service}", "rps")
    ran_in(store, time, text, {"service": "a"}, {"service": "b"})
    short_load(store, time, "rps")
    stage = forecasting(store, time)
    for _ in range(2):
        assert stage.step()
        time.pass_(seconds=301.0)
    found = plans(store, "web")
    assert sorted(plan["context"]["service"] for plan in found) == ["a", "b"]
    for plan in found:
        service = plan["context"]["service"]
        assert all(w["key"].endswith(f"service={service}") for w in plan["windows"])


def test_studies_that_share_a_signal_have_horizons_and_scales_of_their_own(
    store: Store, time: Time
) -> None:
    near = TEXT + "[forecast]\nhorizon_hours = 2\n"
    far = TEXT.replace('"web"', '"far"').replace('scale = "log", ', "")
    ran_in(store, time, near, {"service": "a"})
    ran_in(store, time, far, {"service": "a"})
    short_load(store, time, 'rps{service="a"}')
    stage = forecasting(store, time)
    for _ in range(2):
        assert stage.step()
        time.pass_(seconds=301.0)
    assert len(plans(store, "web")[0]["windows"]) <= 3
    assert len(plans(store, "far")[0]["windows"]) >= 24


@pytest.mark.slow
def test_a_study_with_two_signals_is_planned_where_both_are_known(store: Store, time: Time) -> None:
    text = TEXT.replace(
        "[parameters]",
        'queue = { type = "float", signal = "queue{service=$service}" }\n[parameters]',
    )
    ran_in(store, time, text, {"service": "a"}, {"service": "b"})
    short_load(store, time, 'rps{service="a"}', 'rps{service="b"}', 'queue{service="a"}')
    stage = forecasting(store, time)
    assert stage.step()
    (plan,) = plans(store, "web")
    assert plan["context"] == {"service": "a"}
    keys = {key for window in plan["windows"] for key in window["contexts"]}
    assert all("|queue=" in key and "|rps=" in key for key in keys)
    # Each has its band, and what came of it in the hours before.
    (shown,) = study_forecast(store, "web", time.now()).signals
    rps, queue = shown.by_signal()
    assert (rps.signal, queue.signal) == ('rps{service="a"}', 'queue{service="a"}')
    assert queue.methods
    assert [hour.start_s for hour in queue.windows] == [hour.start_s for hour in rps.windows]
    assert all(hour.low <= hour.median <= hour.high for hour in queue.windows)
    time.pass_(minutes=6)
    assert stage.step()
    time.pass_(minutes=60)
    short_load(store, time, 'rps{service="a"}', 'queue{service="a"}')
    assert stage.step()
    (shown,) = study_forecast(store, "web", time.now()).signals
    came = [hour.came for hour in shown.by_signal()[1].past]
    assert came
    assert all(value is not None and 100.0 <= value < 160.0 for value in came)
    # The second one leaves its band.
    time.pass_(minutes=6)
    with store.transaction() as tx:
        points = [('rps{service="a"}', time.now(), 120.0), ('queue{service="a"}', time.now(), 1e9)]
        tx.add_signal_points(points, time.now())
    time.pass_(minutes=6)
    assert stage.step()
    (plan,) = plans(store, "web")
    assert plan["state"] == "withdrawn"
    assert plan["why"].startswith("queue: 5e+08 is outside the 98 % band")


@pytest.mark.slow
def test_a_signal_that_stopped_is_not_planned_on(store: Store, time: Time) -> None:
    ran_in(store, time, TEXT, {"service": "a"})
    short_load(store, time, 'rps{service="a"}')
    time.pass_(seconds=3 * 86_400.0)
    assert forecasting(store, time).step()
    (plan,) = plans(store, "web")
    assert (plan["state"], plan["why"]) == ("withdrawn", "no point has come for 2 days")
    assert store.requests_waiting() == {}


def test_a_study_whose_forecast_fails_keeps_no_other_from_it(store: Store, time: Time) -> None:
    """Its recommendation is damaged, say."""
    study = parse_study(TEXT.replace('"web"', '"broken"'))
    ran_in(store, time, study.text, {"service": "a"})
    ran_in(store, time, TEXT, {"service": "a"})
    short_load(store, time, 'rps{service="a"}')
    with store.transaction() as tx:
        for key in {study.context_key({"service": "a", "rps": 1.0 * n}) for n in range(90, 200)}:
            row = RecommendationRow(
                study="broken",
                context_key=key,
                revision=1,
                recommendation_id=key,
                state="active",
                value="{",
                issued_at=time.now(),
                valid_until=time.now(),
            )
            tx.save_recommendation(row)
    assert forecasting(store, time).step()
    assert len(plans(store, "web")) == 1
    assert store.forecast_plan("broken") is None


@pytest.mark.parametrize("damaged", [{"nonsense": 1}, {"feature": "rps", "signals": [{}]}])
def test_a_damaged_plan_is_told_and_made_anew(
    store: Store, time: Time, caplog: pytest.LogCaptureFixture, damaged: dict[str, Any]
) -> None:
    ran_in(store, time, TEXT, {"service": "a"})
    short_load(store, time, 'rps{service="a"}')
    with store.transaction() as tx:
        tx.save_forecast_plan("web", damaged, time.now())
    assert forecasting(store, time).step()
    assert len(plans(store, "web")) == 1
    assert "the forecast of study web is damaged, and made anew" in caplog.text


def drift_events(store: Store) -> list[DriftEvent]:
    waiting = [message for message in store.unsent(1_000) if message.kind == "drift"]
    return [msgspec.json.decode(message.value or b"", type=DriftEvent) for message in waiting]


def hours_pass(store: Store, time: Time, stage: ForecastStage, hours: int, times: float) -> None:
    """The load is so many times the usual one."""
    for _ in range(hours // 4):
        points = []
        for _ in range(24):
            time.pass_(minutes=10)
            value = times * busy(time.now().hour + time.now().minute / 60)
            points.append(('rps{service="a"}', time.now(), value))
        with store.transaction() as tx:
            tx.add_signal_points(points, time.now())
        stage.step()


@pytest.mark.slow
def test_a_signal_at_another_level_is_told_once_as_a_drift_until_it_is_followed(
    store: Store, time: Time
) -> None:
    ran_in(store, time, TEXT, {"service": "a"})
    past_load(store, time, days=15)
    lines = Lines()
    stage = ForecastStage(store, "me", lines, time.now)  # type: ignore[arg-type]
    hours_pass(store, time, stage, 8, 1.0)
    assert drift_events(store) == []
    hours_pass(store, time, stage, 20, 3.0)
    (began,) = drift_events(store)
    assert (began.phase, began.kind, began.feature, began.acted) == (
        "began",
        "signal",
        "rps",
        False,
    )
    assert began.signal == 'rps{service="a"}'
    assert began.context_keys == ("web|rps=~|service=a",)
    assert began.message.startswith('rps{service="a"} stays above its forecast, noticed 2026-')
    assert lines.of("drift")[0]["message"] == began.message
    overview = store.overview_of("web")
    (note,) = study_status(store, overview, MetricSamples())["drift"]
    assert note["message"] == began.message
    # A daemon that starts sees the same alarm, and tells nothing again.
    stage.close()
    stage = forecasting(store, time)
    assert stage.step()
    assert len(drift_events(store)) == 1
    hours_pass(store, time, stage, 60, 3.0)
    _, *grew, over = drift_events(store)
    assert {event.drift_id for event in (*grew, over)} == {began.drift_id}
    assert {event.phase for event in grew} <= {"grew"}
    assert over.phase == "over"
    assert over.message.endswith("over. It has been as foreseen for a day.")
    assert study_status(store, overview, MetricSamples())["drift"] == []


@pytest.mark.slow
@pytest.mark.parametrize("end", ["other contexts", "nothing foreseen"])
def test_a_shift_is_over_though_its_context_is_gone(
    store: Store, time: Time, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """Jobs of it come no longer, or the study no longer foresees signals."""
    ran_in(store, time, TEXT, {"service": "a"})
    past_load(store, time, days=15)
    stage = forecasting(store, time)
    hours_pass(store, time, stage, 8, 1.0)
    hours_pass(store, time, stage, 20, 3.0)
    (began,) = drift_events(store)
    if end == "other contexts":
        monkeypatch.setattr("tunerd.stages.forecast.MOST_CONTEXTS", 1)
        ran_in(store, time, TEXT, {"service": "b"})
        short_load(store, time, 'rps{service="b"}')
    else:
        ran_in(store, time, TEXT + "[forecast]\nahead = false\n", {"service": "a"})
    overview = store.overview_of("web")
    time.pass_(minutes=6)
    stage.step()
    assert [note["drift_id"] for note in study_status(store, overview, MetricSamples())["drift"]]
    time.pass_(hours=25)
    stage.step()
    *grew, over = drift_events(store)[1:]
    assert {event.phase for event in grew} <= {"grew"}
    assert (over.phase, over.drift_id) == ("over", began.drift_id)
    assert (over.feature, over.context_keys) == ("rps", began.context_keys)
    assert over.message.endswith("over. No context of the study has it foreseen any more.")
    assert study_status(store, overview, MetricSamples())["drift"] == []


def test_a_shift_belongs_to_the_signal_whichever_contexts_share_it() -> None:
    alarms = {"rps": SignalAlarm("load", 1_000.0, True, ["web|a", "web|b"])}
    kept, (began,) = follow_shifts("web", {}, alarms, 2_000.0)
    assert (began.phase, began.feature, began.context_keys) == ("began", "load", ("web|a", "web|b"))
    alarms = {"rps": SignalAlarm("load", 1_000.0, True, ["web|b"])}
    again, events = follow_shifts("web", kept, alarms, 3_000.0)
    assert events == []
    assert again["rps"]["context_keys"] == ["web|b"]
    # What an earlier tunerd kept by context goes on.
    plan = {"shifts": {"rps": {"began_s": 1_000.0, "noticed_s": 1_000.0, "up": True}}}
    former = shifts_of({"feature": "load", "signals": [plan]})
    none, (over,) = follow_shifts("web", former, {}, 1_000.0 + 86_400.0)
    assert none == {}
    assert (over.phase, over.drift_id, over.feature) == ("over", began.drift_id, "load")


@pytest.mark.slow
def test_late_points_reach_a_forecaster_that_runs(store: Store, time: Time) -> None:
    """Days of the past come in, long after they were over."""
    ran_in(store, time, TEXT, {"service": "a"})
    short_load(store, time, 'rps{service="a"}')
    stage, fresh = forecasting(store, time), forecasting(store, time, "fresh")
    assert stage.step()
    began = time.now()

    with store.transaction() as tx:
        times = [began + timedelta(minutes=m) for m in range(0, 60, 5)]
        tx.add_signal_points([('rps{service="a"}', at, 150.0) for at in times], began)
    time.pass_(minutes=61)
    assert stage.step()
    assert max(window["high"] for window in plans(store, "web")[0]["windows"]) < 300
    past_load(store, time, days=6)
    time.pass_(minutes=60)
    assert stage.step()
    (after,) = plans(store, "web")
    stage.close()
    assert fresh.step()
    (expected,) = plans(store, "web")
    assert [w["median"] for w in after["windows"]] == [w["median"] for w in expected["windows"]]
    assert max(window["high"] for window in after["windows"]) > 500


def test_points_are_forgotten_whether_or_not_a_study_uses_them(store: Store, time: Time) -> None:
    short_load(store, time, "nobodys")
    time.pass_(seconds=KEPT.total_seconds() + 60)
    forecasting(store, time).step()
    assert store.signal_names() == {}


def test_who_starts_next_need_not_wait_for_a_lease_to_run_out(store: Store, time: Time) -> None:
    ran_in(store, time, TEXT, {"service": "a"})
    short_load(store, time, 'rps{service="a"}')
    first = forecasting(store, time, "first")
    assert first.step()
    assert not forecasting(store, time, "second").step()
    first.close()
    assert forecasting(store, time, "second").step()


def test_hours_are_foreseen_once_an_hour_and_at_once_where_a_signal_left_its_band(
    store: Store, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every five minutes would take a tenth of a core for a thousand signals."""
    ran_in(store, time, TEXT, {"service": "a"}, {"service": "b"})
    names = ['rps{service="a"}', 'rps{service="b"}']
    short_load(store, time, *names)
    asked: list[SignalForecaster] = []
    forecast = SignalForecaster.forecast

    def counted(forecaster: SignalForecaster) -> SignalForecast | None:
        asked.append(forecaster)
        return forecast(forecaster)

    monkeypatch.setattr(SignalForecaster, "forecast", counted)
    stage = forecasting(store, time)

    def look(**values: float) -> int:
        asked.clear()
        with store.transaction() as tx:
            points = [(f'rps{{service="{name}"}}', time.now(), v) for name, v in values.items()]
            tx.add_signal_points(points, time.now())
        time.pass_(seconds=301.0)
        assert stage.step()
        return len(asked)

    def states() -> dict[object, str]:
        return {plan["context"]["service"]: plan["state"] for plan in plans(store, "web")}

    assert look(a=130.0, b=130.0) == 2
    assert [look(a=130.0, b=130.0) for _ in range(6)] == [0] * 6
    assert states() == {"a": "active", "b": "active"}
    assert look(a=130.0, b=9e9) == 1
    assert states() == {"a": "active", "b": "withdrawn"}
    assert [look(a=130.0, b=130.0) for _ in range(3)][-1] == 0
    assert states() == {"a": "active", "b": "active"}
    assert look(a=130.0, b=130.0) == 2, "another hour"
    # A context that is new is planned for at once, others stay as they are.
    state = ContextState({"service": "c"}, last_job_at=time.now())
    with store.transaction() as tx:
        tx.save_context_states("web", [ContextRow("web|c", state.dump(), time.now(), -1)])
    assert look(a=130.0, b=130.0, c=130.0) == 1
    assert set(states()) == {"a", "b", "c"}
    # Somebody wrote to the store: the plans come back, and nothing is foreseen anew.
    with store.transaction() as tx:
        tx.save_forecast_plan("web", {"feature": "rps", "signals": []}, time.now())
    assert look(a=130.0, b=130.0, c=130.0) == 0
    assert set(states()) == {"a", "b", "c"}


def test_a_start_is_spread_over_steps_and_plans_stand_meanwhile(store: Store, time: Time) -> None:
    """A thousand signals took one step of minutes, in which nobody could stop the daemon."""
    services = [f"s{number}" for number in range(2 * MADE_AT_ONCE + 1)]
    ran_in(store, time, TEXT, *({"service": service} for service in services))
    short_load(store, time, *(f'rps{{service="{service}"}}' for service in services))
    stage = forecasting(store, time)

    def steps() -> list[int]:
        """How many plans there are after each step of a look."""
        kept = []
        while stage.step():
            kept.append(len(plans(store, "web")) if store.forecast_plan("web") else 0)
        return kept

    assert steps() == [0, 0, len(services)]
    before = store.forecast_plan("web")
    stage = forecasting(store, time)
    time.pass_(seconds=301.0)
    assert [len(services)] * 3 == steps()
    assert before != store.forecast_plan("web")
    # Late points of many signals are taken in steps, too.
    time.pass_(minutes=61)
    short_load(store, time, *(f'rps{{service="{service}"}}' for service in services))
    assert len(steps()) == 3


def test_what_was_parsed_of_a_study_goes_with_it(
    store: Store, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran_in(store, time, TEXT, {"service": "a"})
    ran_in(store, time, TEXT.replace('"web"', '"other"'), {"service": "a"})
    short_load(store, time, 'rps{service="a"}')
    stage = forecasting(store, time)
    assert stage.step()
    assert set(stage._studies) == set(stage._contexts) == {"other", "web"}
    rows = [row for row in store.studies() if row.name == "web"]
    monkeypatch.setattr(store, "studies", lambda: rows)
    time.pass_(seconds=301.0)
    assert stage.step()
    assert set(stage._studies) == set(stage._contexts) == {"web"}


@pytest.mark.slow
def test_what_came_before_an_hour_does_not_withdraw_its_plan(store: Store, time: Time) -> None:
    """The load is eight times as high from nine o'clock on, as every day."""
    time.pass_(hours=22, minutes=57)
    ran_in(store, time, TEXT, {"service": "a"})
    now = time.now()
    with store.transaction() as tx:
        times = [now - timedelta(minutes=m) for m in range(8 * 24 * 60, 0, -5)]
        points = [('rps{service="a"}', at, busy(at.hour) + at.minute / 10) for at in times]
        tx.add_signal_points(points, now)
    stage = forecasting(store, time)
    assert stage.step()
    for _ in range(5):
        with store.transaction() as tx:
            value = busy(time.now().hour)
            tx.add_signal_points([('rps{service="a"}', time.now(), value)], time.now())
        time.pass_(seconds=301.0)
        assert stage.step()
        (plan,) = plans(store, "web")
        assert (plan["state"], plan["why"]) == ("active", "")
    assert plan["windows"][0]["median"] > 500
