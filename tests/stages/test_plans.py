"""Plans on the topic: sent, sent again, withdrawn, and followed by clients."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.stages.fakes import Time
from tests.stages.test_signals import forecasting, ran_in, short_load
from tests.stages.tuning import SIGNAL_STUDY as TEXT
from tunerd.client import PLAN_KEY, RecommendationFile, Recommendations
from tunerd.core.recommendation import MadeFrom, Recommendation, SignalBand, StatedObjective
from tunerd.core.study_file import parse_study
from tunerd.events import to_bytes
from tunerd.events.plan import PublishedBand, PublishedPlan
from tunerd.stages.plans import made_ahead, publish_plans
from tunerd.stages.topic_check import take_up
from tunerd.store import OutboxMessage, Store

NOW = datetime(2026, 11, 20, 10, tzinfo=UTC)
BASE = "web|rps=~|service=a"
TOPIC = "recommendations"
STUDY = parse_study(TEXT.replace('name = "web"', 'name = "web"\nmode = "publish"'))


def key(rps: float) -> str:
    return STUDY.context_key({"service": "a", "rps": rps})


def kept(*loads: float, state: str = "active", published: Any = None) -> dict[str, Any]:
    """A plan of hours from NOW on, as the forecast stage keeps it."""
    windows = [
        {
            "start_s": NOW.timestamp() + 3600 * i,
            "end_s": NOW.timestamp() + 3600 * (i + 1),
            "low": 0.9 * load,
            "median": load,
            "high": 1.1 * load,
            "lowest": 0.8 * load,
            "highest": 1.2 * load,
            "key": key(load),
            "contexts": {key(load): 1.0},
        }
        for i, load in enumerate(loads)
    ]
    return {
        "signal": 'rps{service="a"}',
        "context": {"service": "a"},
        "state": state,
        "why": "",
        "methods": {},
        "windows": windows,
        "past": [],
        "published": published,
    }


def say(
    plan: dict[str, Any], before: list[dict[str, Any]], hours: float = 0
) -> list[OutboxMessage]:
    return publish_plans("web", STUDY, [plan], before, TOPIC, NOW + timedelta(hours=hours))


def test_hours_of_one_context_are_one_window() -> None:
    (message,) = say(kept(100, 100, 800, 800, 100), [])
    assert (message.kind, message.key) == ("plan", f"{PLAN_KEY}{BASE}".encode())
    plan = msgspec.json.decode(message.value or b"", type=PublishedPlan)
    assert (plan.context_key, plan.feature, plan.context) == (BASE, "rps", {"service": "a"})
    assert [window.context_key for window in plan.windows] == [key(100), key(800), key(100)]
    assert plan.windows[1].valid_from == NOW + timedelta(hours=2)
    assert plan.windows[1].valid_until == NOW + timedelta(hours=4)
    assert (plan.windows[1].low, plan.windows[1].high) == pytest.approx((720.0, 880.0))


def test_a_plan_on_several_signals_says_which_and_what_each_is() -> None:
    plan = kept(100, 100, 800)
    assert b'"others"' not in (say(kept(100), [])[0].value or b"")
    plan["others"] = {"wait": {"signal": 'wait{service="a"}', "methods": {}}}
    for hour, window in enumerate(plan["windows"]):
        window["others"] = {"wait": [1.0 + hour, 2.0 + hour, 3.0 + hour, 0.0, 9.0]}
    (message,) = say(plan, [])
    sent = msgspec.json.decode(message.value or b"", type=PublishedPlan)
    assert (sent.signal, sent.others) == ('rps{service="a"}', {"wait": 'wait{service="a"}'})
    assert [window.others for window in sent.windows] == [
        {"wait": PublishedBand(low=1.0, median=2.5, high=4.0)},
        {"wait": PublishedBand(low=3.0, median=4.0, high=5.0)},
    ]
    # A recommendation made ahead says it, too.
    ahead = made_ahead((NOW, {"signals": [plan]}), key(800), 0.5)
    assert ahead is not None
    assert ahead[1].others == (
        SignalBand(feature="wait", signal='wait{service="a"}', low=3.0, median=4.0, high=5.0),
    )
    single = made_ahead((NOW, {"signals": [kept(100)]}), key(100), 0.5)
    assert single is not None
    assert single[1].others is msgspec.UNSET


def test_a_plan_is_sent_again_only_where_it_changes_or_half_of_it_is_over() -> None:
    first = kept(*[100] * 8)
    say(first, [])
    again = kept(*[100] * 9)
    assert say(again, [first], 1) == []
    assert again["published"] == first["published"]
    # What is far off waits until the last message is an hour old.
    assert say(kept(*[100] * 6, 800, 100), [first], 0.9) == []
    assert len(say(kept(100, 800, *[100] * 6), [first], 0.1)) == 1
    changed = kept(*[100] * 6, 800, 100)
    assert len(say(changed, [again], 2)) == 1
    assert say(kept(*[100] * 8), [first], 3.9) == []
    assert len(say(kept(*[100] * 8), [first], 4)) == 1
    # An hour that is over has nothing to say, whatever was planned for it.
    past = kept(800, *[100] * 7)
    assert say(past, [first], 1.5) == []


def test_a_plan_is_withdrawn_with_the_null_value() -> None:
    first = kept(*[100] * 8)
    say(first, [])
    failed = kept(*[100] * 8, state="withdrawn")
    (message,) = say(failed, [first])
    assert (message.key, message.value) == (f"{PLAN_KEY}{BASE}".encode(), None)
    assert failed["published"] is None
    assert say(kept(*[100] * 8, state="withdrawn"), [failed]) == []
    # So is one whose context nobody runs any more, and all of a study that only observes.
    (gone,) = publish_plans("web", STUDY, [], [first], TOPIC, NOW)
    (quiet,) = publish_plans("web", None, [kept(100)], [first], TOPIC, NOW)
    assert (gone.value, quiet.value) == (None, None)


def test_what_is_published_is_bounded() -> None:
    loads = [100.0 * (1 + hour % 2) for hour in range(14 * 24)]
    (message,) = say(kept(*loads), [])
    plan = msgspec.json.decode(message.value or b"", type=PublishedPlan)
    assert len(plan.windows) == 48
    assert len(message.value or b"") < 16_000


def recommended(rps: float, replicas: int, ends: datetime) -> Recommendation:
    return Recommendation(
        revision=1,
        study="web",
        context_key=key(rps),
        context={"service": "a", "rps": rps},
        objective=StatedObjective(metric="x", goal="maximize", unit=""),
        issued_at=NOW,
        valid_until=ends,
        baseline={"replicas": replicas},
        reason="",
        made_from=MadeFrom(sequence=1, model=None, study="", seeds=(), tunerd=""),
    )


def followed(known: Recommendations, path: Path, at: datetime) -> Any:
    """What is chosen at a time, by who follows the topic and from a file, which is the same."""
    known.save(path)
    choice = known.choose(BASE, "1", now=NOW, at=at)
    assert RecommendationFile(path).choose(BASE, "1", now=NOW, at=at) == choice
    return choice and choice.config["replicas"]


def test_a_client_that_does_not_know_the_signal_follows_the_plan(tmp_path: Path) -> None:
    known, path = Recommendations(), tmp_path / "file"
    for rps, replicas in ((100.0, 1), (800.0, 8)):
        row = recommended(rps, replicas, NOW + timedelta(days=1))
        known.take(row.context_key, msgspec.json.decode(to_bytes(row)))
    assert followed(known, path, NOW) is None
    first = kept(100, 100, 800, 300)
    (message,) = say(first, [])
    known.take((message.key or b"").decode(), msgspec.json.decode(message.value or b""))
    assert known.skipped == 0
    assert followed(known, path, NOW) == 1
    assert followed(known, path, NOW + timedelta(hours=2)) == 8
    assert known.foreseen(BASE, NOW + timedelta(hours=3)) == key(300)
    assert followed(known, path, NOW + timedelta(hours=3)) is None  # nothing is recommended there
    assert followed(known, path, NOW + timedelta(hours=4)) is None  # beyond the plan
    exact = known.choose(key(800), "1", now=NOW)  # who knows the signal asks as before
    assert exact is not None
    assert (exact.config, exact.match) == ({"replicas": 8}, "baseline")
    reader = RecommendationFile(path)
    assert reader.choose(BASE, "1", now=NOW) is not None
    (withdrawal,) = say(kept(100, state="withdrawn"), [first])
    known.take((withdrawal.key or b"").decode(), None)
    assert followed(known, path, NOW) is None
    assert reader.choose(BASE, "1", now=NOW) is None


@pytest.mark.slow
def test_a_plan_goes_out_with_the_forecast_and_is_withdrawn_when_the_signal_leaves_its_band(
    store: Store, time: Time
) -> None:
    ran_in(store, time, STUDY.text, {"service": "a"})
    short_load(store, time, 'rps{service="a"}')
    stage = forecasting(store, time)

    def sent() -> list[bytes | None]:
        """What waits in the outbox; it counts as sent from then on."""
        waiting = store.unsent(10)
        store.mark_sent([message.id for message in waiting], time.now())
        assert {message.key for message in waiting} <= {f"{PLAN_KEY}{BASE}".encode()}
        return [message.value for message in waiting]

    assert stage.step()
    (plan,) = sent()
    assert plan is not None
    for _ in range(2):
        time.pass_(seconds=301.0)
        with store.transaction() as tx:
            tx.add_signal_points([('rps{service="a"}', time.now(), 1e6)], time.now())
    time.pass_(seconds=301.0)
    assert stage.step()
    assert sent()[-1] is None
    # A study that is foreseen no longer leaves nothing on the topic.
    for _ in range(24):
        time.pass_(seconds=301.0)
        short_load(store, time, 'rps{service="a"}')
        assert stage.step()
    assert sent()[-1] is not None
    text = STUDY.text + "[forecast]\nahead = false\n"
    store.publish_generation("web", parse_study(text).content_hash, text, "test", time.now())
    time.pass_(seconds=301.0)
    stage.step()
    assert sent() == [None]


def test_who_reads_a_file_anew_hears_that_a_plan_is_gone(tmp_path: Path) -> None:
    """A saved file, as a compacted one, has no null values."""
    known, path = Recommendations(), tmp_path / "file"
    (message,) = say(kept(100, 800), [])
    known.take((message.key or b"").decode(), msgspec.json.decode(message.value or b""))
    known.save(path)
    reader = Recommendations.follow_saved(path)
    reader.poll()
    assert reader.foreseen(BASE, NOW) == key(100)
    known.take((message.key or b"").decode(), None)
    row = recommended(100, 1, NOW + timedelta(days=1))
    known.take(row.context_key, msgspec.json.decode(to_bytes(row)))
    known.save(path)
    reader.poll()
    assert reader.foreseen(BASE, NOW) is None


@pytest.mark.parametrize("planned", [False, True])
def test_a_time_without_a_zone_is_refused_with_a_plan_and_without(
    tmp_path: Path, planned: bool
) -> None:
    known = Recommendations()
    if planned:
        (message,) = say(kept(100, 800), [])
        known.take((message.key or b"").decode(), msgspec.json.decode(message.value or b""))
    known.save(tmp_path / "file")
    for reader in (known, RecommendationFile(tmp_path / "file")):
        with pytest.raises(ValueError, match="at: needs a zone"):
            reader.choose(BASE, "1", at=datetime(2026, 11, 20, 11))  # noqa: DTZ001


def test_a_topic_that_may_hold_something_else_gets_what_holds_and_loses_what_does_not(
    store: Store,
) -> None:
    first, second = kept(*[100] * 8), kept(*[100] * 8)
    say(first, [])
    second["published"] = {**first["published"], "key": "web|rps=~|service=b"}
    store.publish_generation("web", STUDY.content_hash, STUDY.text, "test", NOW)
    with store.transaction() as tx:
        tx.save_forecast_plan("web", {"feature": "rps", "signals": [first, second]}, NOW)
    assert say(kept(*[100] * 8), [first]) == []
    take_up(store, [], NOW)  # as `tunerd recover` does
    stored = store.forecast_plan("web")
    assert stored is not None
    assert stored[0] == NOW
    sent = {message.key: message.value for message in say(kept(*[100] * 8), stored[1]["signals"])}
    assert sent.pop(f"{PLAN_KEY}web|rps=~|service=b".encode()) is None
    (plan,) = sent.values()
    assert plan is not None


@pytest.mark.parametrize("change", ["the file", "a pause", "nothing"])
def test_what_was_planned_for_this_hour_stands_unless_the_file_changed_or_nobody_looked(
    store: Store, time: Time, change: str
) -> None:
    ran_in(store, time, STUDY.text, {"service": "a"})
    short_load(store, time, 'rps{service="a"}')
    assert forecasting(store, time).step()

    def this_hour() -> dict[str, Any]:
        stored = store.forecast_plan("web")
        assert stored is not None
        (plan,) = stored[1]["signals"]
        start_s = time.now().timestamp() // 3600 * 3600
        (window,) = [w for w in plan["windows"] if w["start_s"] == start_s]
        return dict(window)

    time.pass_(hours=3) if change == "a pause" else time.pass_(seconds=301)
    before = this_hour()
    if change == "the file":
        text = STUDY.text.replace('over = "10m"', 'over = "10m", key = { bucket = 3 }')
        store.publish_generation("web", parse_study(text).content_hash, text, "test", time.now())
    with store.transaction() as tx:
        tx.add_signal_points([('rps{service="a"}', time.now(), 150.0)], time.now())
    assert forecasting(store, time).step()
    assert (this_hour() == before) is (change == "nothing")
