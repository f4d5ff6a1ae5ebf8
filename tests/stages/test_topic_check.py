"""A store that knows less than was published: whether it is noticed, and where it goes on."""

import json
from datetime import timedelta
from pathlib import Path

import pytest

from tests.events.test_recommendation import KEY, example
from tests.stages.fakes import Time
from tests.stages.test_publish import keep
from tunerd.events import to_bytes
from tunerd.stages.topic_check import newer_than, published, take_up, why_behind
from tunerd.store import Store
from tunerd.streams.base import EVER, Stream, StreamMessage, TopicContent, TopicSpec
from tunerd.streams.jsonl.stream import JsonlStream

TOPIC = "recommendations"


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    """Where revision 7 of a key went out."""
    made = JsonlStream(tmp_path / "stream", [TopicSpec(TOPIC, TopicContent.JSON, compacted=True)])
    made.ensure_topics()
    sink = made.sink()
    sink.send([StreamMessage(TOPIC, KEY.encode(), to_bytes(example()))])
    sink.close()
    return made


def publish_study(store: Store, mode: str) -> None:
    now = Time().now()
    store.publish_generation(example().study, mode, f'mode = "{mode}"', "test", now)


@pytest.mark.parametrize("mode", ["approve", "publish"])
def test_a_store_that_knows_less_is_told_until_it_has_taken_up_the_rest(
    store: Store, stream: Stream, mode: str
) -> None:
    assert why_behind(store, stream, TOPIC) is None  # of a study of somebody else
    publish_study(store, mode)
    problem = why_behind(store, stream, TOPIC)
    assert problem is not None
    assert f"({KEY}: 7)" in problem
    take_up(store, newer_than(store, published(stream, TOPIC, EVER)), Time().now())
    assert why_behind(store, stream, TOPIC) is None
    row = store.recommendation(example().study, KEY)
    assert row is not None
    assert json.loads(row.value)["revision"] == row.revision == 7
    assert row.renew_at == example().issued_at + timedelta(days=1)


def test_what_a_restored_store_has_said_since_hides_nothing(
    store: Store, stream: Stream, time: Time
) -> None:
    publish_study(store, "publish")
    later = example().issued_at + timedelta(days=30)
    keep(store, time, f"{example().study}|gpu=new", 1, study=example().study, issued_at=later)
    problem = why_behind(store, stream, TOPIC)
    assert problem is not None
    assert f"({KEY}: 7)" in problem


def test_who_only_observes_may_do_so_beside_others(store: Store, stream: Stream) -> None:
    publish_study(store, "observe")
    assert why_behind(store, stream, TOPIC) is None
