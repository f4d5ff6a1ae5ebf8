"""Watching the topics while the daemon runs: what is wrong with them is said, and what they lost
is sent again."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from tunerd import logs, telemetry
from tunerd.errors import StoreUnavailableError, StreamUnavailableError
from tunerd.service.health import HealthMonitor
from tunerd.settings.model import TopicSettings
from tunerd.stages.upkeep import TopicRepair
from tunerd.streams.base import Stream, TopicProblem

__all__ = ["TopicWatch"]

ROLES = ("jobs", "requests", "recommendations", "rejected", "drift")
"""What topics are for, as the settings name it."""
KEEPS_FROM_READY = ("broken", "away")


@dataclass
class TopicWatch:
    """In a thread of its own: a broker that does not answer must keep no stage waiting."""

    stream: Stream
    upkeep: TopicRepair | None
    """None where this daemon does not publish, or nobody else can write to the topics."""
    topics: TopicSettings
    health: HealthMonitor
    log: logs.Log
    hear: Callable[[telemetry.Report], None]
    publishes: Callable[[], bool] = lambda: True
    """Whether it is this instance that publishes now, and so looks after what is on the topic."""
    _known: frozenset[TopicProblem] = frozenset()
    _away: Collection[str] = ()
    """Topics that were away last time. Once is told to nobody: other brokers are standing in."""
    _roles: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self._roles = {getattr(self.topics, role): role for role in ROLES}

    def step(self) -> None:
        """Look once."""
        try:
            problems = self.stream.check_topics()
        except StreamUnavailableError as error:
            self.hear(telemetry.TopicStates(wrong=dict.fromkeys(ROLES)))
            self.health.note("topics", f"topics: {error}")
            return
        away = {problem.topic for problem in problems if problem.kind == "away"}
        self._tell(
            [
                problem
                for problem in problems
                if problem.kind != "away" or problem.topic in self._away
            ]
        )
        self._away = away
        try:
            keys = self.upkeep.step() if self.upkeep is not None and self.publishes() else 0
        except (StreamUnavailableError, StoreUnavailableError):
            return  # the stages say what is wrong
        if keys:
            self.hear(telemetry.SaidAgain(keys=keys))
            self.log.warning(
                "what holds was not on its topic and is sent again",
                topic=self.topics.recommendations,
                keys=keys,
            )

    def close(self) -> None:
        """Let go of the topics."""
        if self.upkeep is not None:
            self.upkeep.close()

    def _tell(self, found: list[TopicProblem]) -> None:
        broken = [problem.message for problem in found if problem.kind in KEEPS_FROM_READY]
        others = [problem.message for problem in found if problem.kind not in KEEPS_FROM_READY]
        self.health.note("topics", "; ".join(broken))
        self.health.remark("topics", "; ".join(others))
        for problem in found:
            if problem not in self._known:
                level = self.log.info if problem.kind == "unchecked" else self.log.warning
                level(
                    "a topic is not as it should be", topic=problem.topic, problem=problem.message
                )
        for topic in {problem.topic for problem in self._known - set(found)} - {
            problem.topic for problem in found
        }:
            self.log.info("a topic is as it should be again", topic=topic)
        self._known = frozenset(found)
        wrong = {self._roles.get(problem.topic) for problem in found if problem.kind != "unchecked"}
        self.hear(telemetry.TopicStates(wrong={role: role in wrong for role in ROLES}))
