"""What is said of topics that are not as they should be, look by look."""

import time
from dataclasses import dataclass, field

import pytest
import structlog

from tests.stages.fakes import FakeStream, Heard
from tunerd import telemetry
from tunerd.errors import StreamUnavailableError
from tunerd.service.health import HealthMonitor
from tunerd.service.topic_watch import TopicWatch
from tunerd.settings.model import TopicSettings
from tunerd.streams.base import TopicProblem


@dataclass
class Topics(FakeStream):
    """A stream whose topics are as the test says."""

    found: list[TopicProblem] | StreamUnavailableError = field(default_factory=list)

    def check_topics(self) -> list[TopicProblem]:
        if isinstance(self.found, StreamUnavailableError):
            raise self.found
        return self.found


@pytest.fixture
def stream() -> Topics:
    return Topics()


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def health() -> HealthMonitor:
    return HealthMonitor([], 60.0, time.monotonic)


@pytest.fixture
def watch(stream: Topics, health: HealthMonitor, heard: Heard) -> TopicWatch:
    return TopicWatch(
        stream, None, TopicSettings(jobs="j"), health, structlog.get_logger(), heard.hear
    )


def wrong(heard: Heard) -> dict[str, bool | None]:
    return heard.of(telemetry.TopicStates)[-1].wrong


def test_what_is_broken_keeps_from_ready_and_what_only_differs_does_not(
    watch: TopicWatch, stream: Topics, health: HealthMonitor, heard: Heard
) -> None:
    watch.step()
    assert (health.problems(), health.remarks()) == ([], [])
    assert set(wrong(heard).values()) == {False}
    stream.found = [TopicProblem("j", "lost"), TopicProblem("j", "few", "differs")]
    watch.step()
    assert (health.problems(), health.remarks()) == (["lost"], ["few"])
    assert wrong(heard)["jobs"]
    assert not wrong(heard)["drift"]
    stream.found = []
    watch.step()
    assert (health.problems(), health.remarks()) == ([], [])
    assert not wrong(heard)["jobs"]


def test_what_nobody_may_check_is_said_and_is_not_wrong(
    watch: TopicWatch, stream: Topics, health: HealthMonitor, heard: Heard
) -> None:
    stream.found = [TopicProblem("j", "may not", "unchecked")]
    watch.step()
    assert (health.problems(), health.remarks()) == ([], ["may not"])
    assert not wrong(heard)["jobs"]


def test_brokers_that_stand_in_for_a_lost_one_have_until_the_next_look(
    watch: TopicWatch, stream: Topics, health: HealthMonitor
) -> None:
    stream.found = [TopicProblem("j", "2 of 6 have no leader", "away")]
    watch.step()
    assert health.problems() == []
    stream.found = [TopicProblem("j", "1 of 6 have no leader", "away")]
    watch.step()
    assert health.problems() == ["1 of 6 have no leader"]


def test_a_broker_that_does_not_answer_says_nothing_of_topics(
    watch: TopicWatch, stream: Topics, health: HealthMonitor, heard: Heard
) -> None:
    stream.found = StreamUnavailableError("refused")
    watch.step()
    assert health.problems() == ["topics: refused"]
    assert set(wrong(heard).values()) == {None}
