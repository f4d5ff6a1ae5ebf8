"""What a scheduler or a trainer imports: follow recommendations, ask, choose, report what came out.

One file that may be copied next to a submit script: it needs the standard library, and
kafka-python only where it talks to Kafka. See ``docs/events.md`` for examples.

    recommendations = Recommendations.follow_jsonl("/var/lib/tunerd/stream")
    recommendations.catch_up()
    choice = recommendations.choose(context_key("llm", features, context), job_id="4711")
"""

import hashlib
import json
import logging
import math
import os
import re
import stat
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, ClassVar, Protocol, Self
from urllib.parse import quote

if TYPE_CHECKING:
    from tunerd.trainers.job import TrainingJob

__all__ = [
    "Choice",
    "JobReporter",
    "RecommendationFile",
    "Recommendations",
    "Requests",
    "context_key",
    "job",
]

log = logging.getLogger("tunerd.client")
"""Warns, once, where nothing of a daemon is found. A warning nobody listens to is on standard
error."""

RECOMMENDATION_SCHEMA = "tunerd.recommendation/1"
PLAN_SCHEMA = "tunerd.plan/1"
PLAN_KEY = "plan:"
"""What a plan's key on the topic begins with; the key of the context without its signal follows."""
JOB_SCHEMA = "tunerd.job/1"
REQUEST_SCHEMA = "tunerd.request/1"
LOOK_EVERY_S = 0.02
LOOK_FOR_TOPIC_S = 1.0
"""How often a topic is looked for that does not exist."""
STATUSES = (
    "succeeded",
    "out_of_memory",
    "failed",
    "timeout",
    "cancelled",
    "preempted",
    "node_failure",
)
MAX_EVENT_BYTES = 256 * 1024
MAX_LINE_BYTES = 4 * 1024 * 1024
MAX_ID = 256
SORTED_LINE = b'{"schema":"tunerd.sorted/1"}\n'
"""The first line of a file whose other lines are sorted by the UTF-8 bytes of their keys."""
MOST_WANTED = 100
"""Candidates of a round that one message names; the next follow as their runs end."""


@dataclass(frozen=True)
class Choice:
    """What to launch a job with, and what to send back in its event."""

    config: dict[str, Any]
    """A value for every parameter; of a ``baseline`` perhaps only for some."""
    kind: str
    """``exploit``, ``explore``, ``confirm``, ``incumbent`` or ``baseline``."""
    recommendation_id: str
    candidate_id: str | None
    """None for incumbent and baseline."""
    match: str = "exact"
    """``exact``: recommended for this context. ``foreseen``: for the one that a plan has in the
    place of this context, whose signal is not known. ``fallback``: for the study's empty context.
    ``baseline``: nothing is recommended, and this is what the study says people launch."""


class _TopicTail(Protocol):
    def read(self, timeout_s: float) -> Iterable[tuple[str | None, Any]]: ...
    def current(self) -> bool: ...
    def close(self) -> None: ...


class Recommendations:
    """The newest recommendation per context key. Safe to share between threads.

    Of each key only the highest revision counts, in whatever order messages come; withdrawn and
    expired ones are not followed, and a null value frees the key.
    """

    def __init__(self, tail: _TopicTail | None = None) -> None:
        """Without a tail, hand messages to :meth:`take` from a transport of your own."""
        self._tail = tail
        self._lock = threading.RLock()
        self._messages: dict[str, dict[str, Any]] = {}
        self._revisions: dict[str, int] = {}
        self._rounds: dict[str, _ProfilingRound] = {}
        self._plans: dict[str, dict[str, Any]] = {}
        self.skipped = 0
        """Messages that were not a recommendation of a version that this file knows."""

    @classmethod
    def follow_jsonl(
        cls, folder: str | Path, topic: str = "tunerd.recommendations"
    ) -> "Recommendations":
        """Follow a topic of tunerd's JSON-lines folder. The file need not exist yet: that no
        daemon has been there is logged once, as a warning."""
        return cls(_JsonlTail(Path(folder) / f"{topic}.jsonl"))

    @classmethod
    def follow_saved(cls, path: str | Path) -> "Recommendations":
        """Read a file that :meth:`save` wrote, or a topic's own. Reading raises OSError where
        something else than a file is in its place."""
        return cls(_JsonlTail(Path(path), optional=True))

    @classmethod
    def follow_kafka(
        cls, bootstrap: str, topic: str = "tunerd.recommendations", **options: Any
    ) -> "Recommendations":
        """Follow a Kafka topic; `options` go to kafka-python's consumer (security and the like).

        The topic need not exist yet: that is logged once, as a warning, and following begins when a
        daemon has made it. Raises kafka.errors.KafkaError when no broker answers.
        """
        return cls(_KafkaTail(bootstrap, topic, options))

    def poll(self, timeout_s: float = 0.0) -> int:
        """Take what is new and return how many messages that was.

        Waits up to `timeout_s` for the first one on Kafka, and never for a file. Without waiting,
        Kafka has nothing yet for who has just begun to follow: see :meth:`catch_up`.
        """
        with self._lock:
            if self._tail is None:
                return 0
            taken = 0
            for key, message in self._tail.read(timeout_s):
                if message is _ANEW:
                    # A plan that was withdrawn is missing from a file that was written anew.
                    self._plans.clear()
                    continue
                self.take(key, message)
                taken += 1
            return taken

    def catch_up(self, timeout_s: float = 30.0) -> bool:
        """Poll until everything that the topic held has been read; False when time ran out."""
        deadline = time.monotonic() + timeout_s
        with self._lock:
            while True:
                self.poll(timeout_s=0.2)
                if self._tail is None or self._tail.current():
                    return True
                if time.monotonic() > deadline:
                    return False

    def take(self, key: str | None, message: Any) -> None:
        """Take one message of the topic, decoded; None is the null value that frees its key."""
        with self._lock:
            if key is not None and key.startswith(PLAN_KEY):
                self._take_plan(key.removeprefix(PLAN_KEY), message)
                return
            if message is None:
                self._messages.pop(key or "", None)
                self._rounds.pop(key or "", None)
                return
            if not _is_recommendation(message):
                self.skipped += 1
                return
            name, revision = message["context_key"], message["revision"]
            # An equal revision is taken again: a file that is read anew repeats its tombstones.
            if revision >= self._revisions.get(name, revision):
                self._revisions[name] = revision
                self._messages[name] = message
                self._count_round(name, message)

    def _take_plan(self, key: str, message: Any) -> None:
        if message is None:
            self._plans.pop(key, None)
        elif _is_plan(key, message):
            self._plans[key] = message
        else:
            self.skipped += 1

    def foreseen(self, context_key: str, at: datetime | None = None) -> str | None:
        """The key of the context that is foreseen at a time (now) for one whose signal is not
        known; None without a plan that reaches there, or where it was withdrawn. Raises ValueError
        for a time without a zone."""
        moment = datetime.now(UTC) if at is None else at
        if moment.tzinfo is None:
            raise ValueError("at: needs a zone, for instance datetime.now(UTC)")
        with self._lock:
            plan = self._plans.get(context_key)
        for window in plan["windows"] if plan else ():
            begins, ends = _time(window["valid_from"]), _time(window["valid_until"])
            if begins is not None and ends is not None and begins <= moment < ends:
                return str(window["context_key"])
        return None

    def _count_round(self, key: str, message: dict[str, Any]) -> None:
        wanted = {c["candidate_id"]: c["wanted"] for c in _ranked(message) if c.get("wanted")}
        if not wanted:
            self._rounds.pop(key, None)
            return
        round_ = self._rounds.get(key)
        if round_ is None or round_.number != message.get("round") or round_.asks_anew(wanted):
            round_ = self._rounds[key] = _ProfilingRound(message.get("round"))
        round_.wanted = wanted
        for candidate_id, runs in wanted.items():
            # A revision says how many runs are still missing; what was launched counts from the
            # most that the round asked for, or a job that ended would be launched again.
            round_.runs[candidate_id] = max(runs, round_.runs.get(candidate_id, 0))

    def find(
        self, context_key: str, now: datetime | None = None, at: datetime | None = None
    ) -> dict[str, Any] | None:
        """The message to follow: of the context that is :meth:`foreseen` at a time (now) in the
        place of this one, else of this key, else of the study's empty context, else None."""
        moment = datetime.now(UTC) if now is None else now
        with self._lock:
            foreseen = self.foreseen(context_key, moment if at is None else at)
            for key in (foreseen, context_key, context_key.partition("|")[0]):
                message = self._messages.get(key or "")
                if message is not None and _live(message, moment):
                    return message
            return None

    def ask(
        self,
        requests: "Requests",
        *,
        context_key: str,
        study: str,
        context: Mapping[str, Any],
        timeout_s: float = 5.0,
        user: str | None = None,
    ) -> dict[str, Any] | None:
        """Ask what to launch in a context and wait for the answer, as a rule a second or less.

        Returns the message that came: the recommendation, which :meth:`choose` follows from now
        on, or one whose `state` is `withdrawn` and whose `reason` says why there is nothing to
        say. None when none came in time: nobody tunes the study at the moment, or its mode does
        not let tunerd publish. The question is answered all the same once somebody can.
        """
        deadline = time.monotonic() + timeout_s
        self.catch_up(timeout_s)
        with self._lock:
            known = self._revisions.get(context_key, 0)
        requests.ask(study=study, context=context, user=user)
        while True:
            taken = self.poll(timeout_s=min(LOOK_EVERY_S, timeout_s))
            with self._lock:
                if self._revisions.get(context_key, 0) > known:
                    return self._messages.get(context_key)
            if time.monotonic() > deadline:
                return None
            if not taken:
                time.sleep(LOOK_EVERY_S / 2)

    def choose(
        self,
        context_key: str,
        job_id: str,
        *,
        attempt: int = 1,
        now: datetime | None = None,
        launched: Mapping[str, int] | None = None,
        at: datetime | None = None,
    ) -> Choice | None:
        """What to launch this job with; None says that tunerd has nothing to say about it.

        Leave a signal out of the context where it is not known: what is foreseen for the time `at`
        which the job begins (now) takes its place, as long as a plan holds. Raises ValueError where
        that time has no zone.

        Candidates of a profiling round come first: each is chosen until it was launched as often
        as it is wanted, best expected first. This object counts its own answers, once per job id
        and round (see :meth:`lost`); `launched` adds what others launched, by candidate id.
        Otherwise the job id decides, so that schedulers need not talk to each other and the same
        job gets the same answer. What no share claims goes to the incumbent, else to the
        baseline. A retry (`attempt` above 1) gets these too: no job dies of a candidate twice.
        """
        with self._lock:
            message = self.find(context_key, now, at)
            if message is None:
                return None
            candidate = None
            if attempt <= 1:
                if round_ := self._rounds.get(message["context_key"]):
                    candidate = round_.choose(message, job_id, launched or {})
                candidate = candidate or _by_share(message, job_id)
            return _choice(message, candidate, _match(message["context_key"], context_key))

    def contents(self) -> dict[str, dict[str, Any]]:
        """The newest message of each key of the topic: recommendations, and plans."""
        with self._lock:
            plans = {PLAN_KEY + key: plan for key, plan in self._plans.items()}
            return {**self._messages, **plans}

    def save(self, path: str | Path) -> int:
        """Write what is known to a file for :class:`RecommendationFile`, and return how many that
        is. Readers see the former file or this one, never half of it. Raises OSError."""
        with self._lock:
            lines = [
                b'{"key":%b,"value":%b}\n'
                % (json.dumps(key).encode(), json.dumps(message).encode())
                for key, message in sorted(
                    self.contents().items(), key=lambda message: message[0].encode()
                )
            ]
        target = Path(path)
        part = target.with_name(f".{target.name}.{os.getpid()}.{threading.get_ident()}")
        try:
            with part.open("wb") as file:
                file.write(SORTED_LINE + b"".join(lines))
                file.flush()
                os.fsync(file.fileno())
            part.replace(target)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        return len(lines)

    def messages(self) -> dict[str, dict[str, Any]]:
        """The newest recommendation of each key, those that are no longer followed too."""
        with self._lock:
            return dict(self._messages)

    def lost(self, job_id: str) -> None:
        """This job ended and taught nothing (cancelled, preempted, never started).

        In a profiling round its candidate is wanted once more.
        """
        with self._lock:
            for round_ in self._rounds.values():
                for jobs in round_.jobs.values():
                    jobs.discard(job_id)

    def close(self) -> None:
        """Let go of the file or the broker."""
        with self._lock:
            if self._tail is not None:
                self._tail.close()


class _ProfilingRound:
    """What of a profiling round was launched already."""

    def __init__(self, number: object) -> None:
        self.number = number
        self.wanted: dict[str, int] = {}
        """As the latest revision says."""
        self.runs: dict[str, int] = {}
        self.jobs: dict[str, set[str]] = {}

    def asks_anew(self, wanted: Mapping[str, int]) -> bool:
        """Whether another campaign has taken its place, in a round of the same number: what is
        missing only ever gets less. A full message may have left out what the next one names."""
        full = len(self.wanted) >= MOST_WANTED
        return any(
            runs > self.wanted.get(name, runs if full else 0) for name, runs in wanted.items()
        )

    def choose(
        self, message: dict[str, Any], job_id: str, launched: Mapping[str, int]
    ) -> dict[str, Any] | None:
        wanted = [candidate for candidate in _ranked(message) if candidate.get("wanted")]
        for candidate in wanted:
            if job_id in self.jobs.get(candidate["candidate_id"], ()):
                return candidate
        for candidate in wanted:
            name = candidate["candidate_id"]
            jobs = self.jobs.setdefault(name, set())
            if len(jobs) + launched.get(name, 0) < self.runs[name]:
                jobs.add(job_id)
                return candidate
        return None


def _is_recommendation(message: Any) -> bool:
    if not isinstance(message, dict) or message.get("schema") != RECOMMENDATION_SCHEMA:
        return False
    candidates, incumbent = message.get("candidates"), message.get("incumbent")
    return (
        isinstance(message.get("revision"), int)
        and _is_unicode(message.get("context_key"))
        and isinstance(message.get("recommendation_id"), str)
        and _time(message.get("valid_until")) is not None
        and isinstance(candidates, list)
        and all(map(_is_candidate, candidates))
        and (incumbent is None or _has_config(incumbent))
        and isinstance(message.get("baseline"), dict | None)
    )


def _is_plan(key: str, message: Any) -> bool:
    if not isinstance(message, dict) or message.get("schema") != PLAN_SCHEMA:
        return False
    windows = message.get("windows")
    return (
        message.get("context_key") == key
        and isinstance(windows, list)
        and all(
            isinstance(window, dict)
            and _time(window.get("valid_from")) is not None
            and _time(window.get("valid_until")) is not None
            and _is_unicode(window.get("context_key"))
            for window in windows
        )
    )


def _match(followed: str, asked: str) -> str:
    """How the key of a message fits the key that was asked for."""
    if followed == asked:
        return "exact"
    return "fallback" if followed == asked.partition("|")[0] else "foreseen"


def _is_unicode(value: Any) -> bool:
    """Whether it is a text without halves of surrogate pairs, which UTF-8 does not have."""
    return isinstance(value, str) and (value.isascii() or not re.search("[\ud800-\udfff]", value))


def _has_config(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("config"), dict)


def _is_candidate(candidate: Any) -> bool:
    return (
        _has_config(candidate)
        and isinstance(candidate.get("candidate_id"), str)
        and isinstance(candidate.get("kind"), str)
        and isinstance(candidate.get("rank"), int)
        and isinstance(candidate.get("share"), int | float)
        and isinstance(candidate.get("wanted", 0), int)
    )


def _time(text: Any) -> datetime | None:
    try:
        time_ = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return time_ if time_.tzinfo else None


def _live(message: dict[str, Any], now: datetime) -> bool:
    valid_until = _time(message["valid_until"])
    return message.get("state") == "active" and valid_until is not None and now < valid_until


def _ranked(message: dict[str, Any]) -> list[dict[str, Any]]:
    return sorted(message["candidates"], key=lambda candidate: int(candidate["rank"]))


def _by_share(message: dict[str, Any], job_id: str) -> dict[str, Any] | None:
    digest = hashlib.sha256(f"{message['context_key']}|{job_id}".encode()).digest()
    lot = int.from_bytes(digest[:8], "big") / 2**64
    cumulated = 0.0
    for candidate in _ranked(message):
        cumulated += candidate["share"]
        if lot < cumulated:
            return candidate
    return None


def _choice(message: dict[str, Any], candidate: dict[str, Any] | None, match: str) -> Choice | None:
    recommendation = message["recommendation_id"]
    if candidate is not None:
        name = candidate["candidate_id"]
        return Choice(candidate["config"], candidate["kind"], recommendation, name, match)
    if incumbent := message.get("incumbent"):
        return Choice(incumbent["config"], "incumbent", recommendation, None, match)
    if baseline := message.get("baseline"):
        return Choice(baseline, "baseline", recommendation, None, "baseline")
    return None


class RecommendationFile:
    """Recommendations in a local file, for who must not wait: a choice takes well under 1 ms.

    :meth:`Recommendations.save` writes such a file, sorted by context key. One context is looked up
    in it by bisection, however many there are, and a changed file is noticed. Any other file of a
    topic will do, but is read in full first. A file that is missing, torn or not one of these says
    nothing. Nothing here raises OSError. Safe to share between threads.
    """

    def __init__(self, path: str | Path) -> None:
        """The file need not exist yet."""
        self._path = Path(path)
        self._lock = threading.Lock()
        self._known = Recommendations()
        self._followed: Recommendations | None = None

    def choose(
        self,
        context_key: str,
        job_id: str,
        *,
        attempt: int = 1,
        now: datetime | None = None,
        at: datetime | None = None,
    ) -> Choice | None:
        """What to launch this job with, as :meth:`Recommendations.choose` says it.

        Of each context the highest revision counts that this object has seen: a file that an older
        copy replaced is not followed back.
        """
        with self._lock:
            try:
                known = self._look_up(context_key, now, at)
            except OSError:
                known = self._known
            return known.choose(context_key, job_id, attempt=attempt, now=now, at=at)

    def _look_up(
        self, context_key: str, now: datetime | None, at: datetime | None
    ) -> Recommendations:
        with open_regular(self._path) as file:
            if file.readline(len(SORTED_LINE)) != SORTED_LINE:
                return self._follow()
            end = os.fstat(file.fileno()).st_size

            def take(key: str) -> None:
                self._known.take(key, _bisect(file, key.encode(), len(SORTED_LINE), end))

            if "=~" in context_key:  # a plan is for a context without its signal
                take(PLAN_KEY + context_key)
            foreseen = self._known.foreseen(context_key, now if at is None else at)
            for key in (foreseen, context_key, context_key.partition("|")[0]):
                if key is None:
                    continue
                take(key)
                message = self._known.find(key, now)
                # A fallback that was read before may have changed: it is read again.
                if message is not None and message["context_key"] == key:
                    break
        return self._known

    def _follow(self) -> Recommendations:
        if self._followed is None:
            self._followed = Recommendations.follow_saved(self._path)
        self._followed.poll()
        return self._followed


def _bisect(file: IO[bytes], key: bytes, low: int, high: int) -> Any:
    """The value of a key in the lines that begin from `low` on and before `high`, else None."""
    while low < high:
        middle = (low + high) // 2
        begin = low
        if middle > low:  # the first line that begins there or later
            file.seek(middle - 1)
            file.readline(MAX_LINE_BYTES)
            begin = file.tell()
        if begin >= high:
            high = middle
            continue
        file.seek(begin)
        line = file.readline(MAX_LINE_BYTES)
        at = _key_of(line)
        if at is None:
            return None
        if at == key:
            return _output_line(line)[1]
        if at < key:
            low = begin + len(line)
        else:
            high = middle
    return None


def _key_of(line: bytes) -> bytes | None:
    """The key of a saved line, without reading the rest of it."""
    if not line.startswith(b'{"key":') or not line.endswith(b"\n"):
        return None
    try:
        key, _ = _DECODER.raw_decode(line.decode(), len('{"key":'))
        return key.encode() if isinstance(key, str) else None
    except (ValueError, RecursionError):  # half a surrogate pair, too
        return None


_DECODER = json.JSONDecoder()
_ANEW = object()
"""What a file begins with that is read from its start."""


class _JsonlTail:
    """Reads a file to its last newline; one that was replaced or cut is read from the start."""

    def __init__(self, path: Path, *, optional: bool = False) -> None:
        """Of a file that is `optional` nothing is said where it is missing."""
        self._path = path
        self._identity: tuple[int, int] | None = None
        self._offset = 0
        self._last = b""
        """The line before the offset: a file that took another's place may have its inode too."""
        self._warned = optional

    def read(self, timeout_s: float) -> Iterable[tuple[str | None, Any]]:  # noqa: ARG002
        try:
            file = open_regular(self._path)
        except FileNotFoundError:
            if not self._warned:
                self._warned = True
                log.warning("there is nothing to follow: %s", _nobody_here(self._path))
            return
        with file:
            status = os.fstat(file.fileno())
            identity = (status.st_dev, status.st_ino)
            file.seek(self._offset - len(self._last))
            if identity != self._identity or file.read(len(self._last)) != self._last:
                self._identity, self._offset, self._last = identity, 0, b""
                file.seek(0)
                yield None, _ANEW
            while line := file.readline(MAX_LINE_BYTES):
                if not line.endswith(b"\n"):
                    return  # torn: whoever writes it has not finished, or never will
                self._offset, self._last = self._offset + len(line), line
                yield _output_line(line)

    def current(self) -> bool:
        return True

    def close(self) -> None: ...


def _output_line(line: bytes) -> tuple[str | None, Any]:
    try:
        record = json.loads(line)
        return record["key"], record["value"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None, {}


class _KafkaTail:
    """Reads every partition from the beginning, without a consumer group."""

    def __init__(self, bootstrap: str, topic: str, options: Mapping[str, Any]) -> None:
        from kafka import KafkaConsumer

        self._consumer = KafkaConsumer(
            **{
                "bootstrap_servers": bootstrap,
                "group_id": None,
                "enable_auto_commit": False,
                "auto_offset_reset": "earliest",
                # What a publisher that lost its lease left uncommitted is not for us.
                "isolation_level": "read_committed",
                "metadata_max_age_ms": 30_000,
                # A topic that following created would not be compacted.
                "allow_auto_create_topics": False,
                **options,
            }
        )
        # Without this, a subscription may see no partitions for minutes.
        self._consumer.bootstrap(timeout_ms=30_000)
        self._topic, self._subscribed, self._looked_at = topic, False, float("-inf")
        if not self._subscribe():
            log.warning(
                "there is nothing to follow: topic %s does not exist, so no tunerd daemon has been "
                "here; it is followed once `tunerd run` has made it",
                topic,
            )

    def _subscribe(self) -> bool:
        """Subscribe to the topic if it exists: asking for one that does not makes some brokers
        create it, with their defaults."""
        if not self._subscribed and time.monotonic() - self._looked_at > LOOK_FOR_TOPIC_S:
            self._looked_at = time.monotonic()
            if self._topic in self._consumer.topics():
                self._consumer.subscribe([self._topic])
                self._subscribed = True
        return self._subscribed

    def read(self, timeout_s: float) -> Iterable[tuple[str | None, Any]]:
        if not self._subscribe():
            time.sleep(min(timeout_s, LOOK_FOR_TOPIC_S))
            return
        batches = self._consumer.poll(timeout_ms=int(timeout_s * 1000), max_records=10_000)
        for records in batches.values():
            for record in records:
                key = None if record.key is None else record.key.decode("utf-8", "replace")
                yield key, _decoded(record.value)

    def current(self) -> bool:
        if not self._subscribed:
            return True  # a topic that does not exist holds nothing
        partitions = self._consumer.assignment()
        if not partitions:
            return False
        ends = self._consumer.end_offsets(partitions)
        return all(self._consumer.position(p) >= end for p, end in ends.items())

    def close(self) -> None:
        self._consumer.close()


def _decoded(value: bytes | None) -> Any:
    try:
        return None if value is None else json.loads(value)
    except (ValueError, RecursionError):
        return {}


class _EventSender:
    """Sends events of one kind to their topic."""

    TOPIC: ClassVar[str]

    def __init__(
        self, send: Callable[[bytes], None], close: Callable[[], None], source: str
    ) -> None:
        """`send` returns once the event is safe; see :meth:`jsonl` and :meth:`kafka`."""
        self._send = send
        self._close = close
        self._source = source

    @classmethod
    def jsonl(cls, folder: str | Path, topic: str | None = None, source: str = "") -> Self:
        """Append to a topic of tunerd's JSON-lines folder; `source` names who sends."""
        path = Path(folder) / f"{topic or cls.TOPIC}.jsonl"
        return cls(lambda event: _append(path, event), lambda: None, source)

    @classmethod
    def kafka(
        cls, bootstrap: str, topic: str | None = None, source: str = "", **options: Any
    ) -> Self:
        """Send to a Kafka topic; `options` go to kafka-python's producer."""
        return cls(*_to_kafka(bootstrap, topic or cls.TOPIC, options), source)

    def send(self, event: bytes) -> None:
        """Send an event that was kept, byte for byte: one that arrived already is dropped."""
        self._send(event)

    def close(self) -> None:
        """Let go of the broker."""
        self._close()


class Requests(_EventSender):
    """Asks tunerd what to launch in a context, seen or not. See :meth:`Recommendations.ask`."""

    TOPIC = "tunerd.requests"

    def ask(
        self,
        *,
        study: str,
        context: Mapping[str, Any],
        user: str | None = None,
        event_id: str | None = None,
    ) -> str:
        """Send one request and return its event id, which is new unless given.

        The answer is the next revision under the context's key on the recommendations topic.
        Raises ValueError for what is plainly of no use to tunerd, and what the stream raises when
        it cannot send.
        """
        event = {
            "schema": REQUEST_SCHEMA,
            "source": self._source,
            "event_id": event_id or uuid.uuid4().hex,
            "study": study,
            "requested_at": datetime.now(UTC).isoformat(),
            "user": user,
            "context": context,
        }
        self._send(_event_bytes(event))
        return str(event["event_id"])


class JobReporter(_EventSender):
    """Sends what became of a job to tunerd: whole, in one event, or in halves.

    Halves are for jobs of which a scheduler knows how they were launched and how they ended, and a
    trainer how fast they were: :meth:`started`, :meth:`reported` and :meth:`completed`. tunerd
    joins them by cluster, job id and attempt, in whatever order they come.
    """

    TOPIC = "tunerd.jobs"

    def report(
        self,
        *,
        study: str,
        job_id: str,
        status: str,
        context: Mapping[str, Any],
        config: Mapping[str, Any],
        metrics: Mapping[str, Any] | None = None,
        attempt: int = 1,
        finished_at: datetime | None = None,
        choice: Choice | None = None,
        event_id: str | None = None,
        **fields: Any,
    ) -> str:
        """Send one completed job and return its event id.

        `fields` are the contract's others (`started_at`, `gpus`, `user`, `labels`, …). A metric
        that is not finite is sent as missing. The event id follows from study, job id and
        attempt unless given, so that a report repeated by mistake cannot count twice. Raises
        ValueError for what is plainly of no use to tunerd, and what the stream raises when it
        cannot send; whatever else is wrong is told on tunerd's topic of rejected records.
        """
        if status not in STATUSES:
            raise ValueError(f"status: expected one of {', '.join(STATUSES)}, got {status!r}")
        event = {
            "schema": JOB_SCHEMA,
            "type": "completed",
            "source": self._source,
            "event_id": event_id or f"{study}/{job_id}/{attempt}",
            "study": study,
            "job_id": job_id,
            "attempt": attempt,
            "status": status,
            "finished_at": _moment("finished_at", finished_at),
            "context": context,
            "config": config,
            "metrics": metrics or {},
            **_of_choice(choice),
            **fields,
        }
        self._send(_event_bytes(event))
        return str(event["event_id"])

    def started(
        self,
        *,
        job_id: str,
        attempt: int = 1,
        study: str | None = None,
        context: Mapping[str, Any] | None = None,
        config: Mapping[str, Any] | None = None,
        choice: Choice | None = None,
        started_at: datetime | None = None,
        cluster: str | None = None,
        event_id: str | None = None,
        **fields: Any,
    ) -> str:
        """Send how an attempt of a job was launched and return the event's id.

        Leave out what this sender does not know: the halves of an attempt complete each other.
        `cluster` is where job ids are unique; without it, what follows the first ``/`` of the
        reporter's source, which then must be the same for all senders. `started_at` is now unless
        given. Repeating a half by mistake does no harm. Raises as :meth:`report`.
        """
        known = {"context": context, "config": config, **_of_choice(choice)}
        moment = {"started_at": _moment("started_at", started_at)}
        event = {"study": study, **known, **moment, **fields}
        return self._half("started", job_id, attempt, cluster, event_id, event)

    def reported(
        self,
        *,
        job_id: str,
        metrics: Mapping[str, Any],
        steps: int | None = None,
        measured_s: float | None = None,
        attempt: int = 1,
        study: str | None = None,
        reported_at: datetime | None = None,
        cluster: str | None = None,
        event_id: str | None = None,
        **fields: Any,
    ) -> str:
        """Send what was measured of an attempt so far and return the event's id.

        `metrics` are over all `steps` since the attempt began, which took `measured_s` seconds:
        of several reports that with the most steps counts. While the job runs, a report counts
        only if it says its steps, 100 or more unless the study says otherwise. See :meth:`started`
        for the rest.
        """
        event = {
            "study": study,
            "metrics": metrics,
            "steps": steps,
            "measured_s": measured_s,
            "reported_at": _moment("reported_at", reported_at),
            **fields,
        }
        return self._half("reported", job_id, attempt, cluster, event_id, event)

    def completed(
        self,
        *,
        job_id: str,
        status: str,
        attempt: int = 1,
        study: str | None = None,
        finished_at: datetime | None = None,
        cluster: str | None = None,
        event_id: str | None = None,
        **fields: Any,
    ) -> str:
        """Send how an attempt ended and return the event's id; :meth:`report` sends a whole job.

        See :meth:`started`. `metrics` among the `fields` says that no trainer will report.
        """
        if status not in STATUSES:
            raise ValueError(f"status: expected one of {', '.join(STATUSES)}, got {status!r}")
        moment = {"finished_at": _moment("finished_at", finished_at)}
        event = {"partial": True, "study": study, "status": status, **moment, **fields}
        return self._half("completed", job_id, attempt, cluster, event_id, event)

    def _half(
        self,
        kind: str,
        job_id: str,
        attempt: int,
        cluster: str | None,
        event_id: str | None,
        fields: Mapping[str, Any],
    ) -> str:
        known = {name: value for name, value in fields.items() if value is not None}
        names = {"source": self._source, "cluster": cluster, "job_id": job_id, "attempt": attempt}
        half = {name: value for name, value in names.items() if value is not None}
        event = {"schema": JOB_SCHEMA, "type": kind, "event_id": "-", **half, **known}
        # The same half told again has the same id; a later report of an attempt has another.
        digest = hashlib.sha256(_event_bytes(event)).hexdigest()[:16]
        event["event_id"] = event_id or f"{kind}/{attempt}/{digest}"
        self._send(_event_bytes(event))
        return str(event["event_id"])


def _of_choice(choice: Choice | None) -> dict[str, Any]:
    return {
        "recommendation_id": choice and choice.recommendation_id,
        "candidate_id": choice and choice.candidate_id,
    }


def _moment(name: str, moment: datetime | None) -> str:
    moment = datetime.now(UTC) if moment is None else moment
    if moment.tzinfo is None:
        raise ValueError(f"{name}: needs a zone, for instance datetime.now(UTC)")
    return moment.isoformat()


def job(
    study: str | Path,
    context: Mapping[str, Any],
    *,
    config: Mapping[str, Any] | None = None,
    defaults: Mapping[str, Any] | None = None,
    choice: Choice | None = None,
    stream: str | Path | None = None,
    kafka: str | None = None,
    kafka_options: Mapping[str, Any] | None = None,
    job_id: str | None = None,
    attempt: int | None = None,
    gpus: int | None = None,
    replicas: int | None = None,
    warmup_steps: int = 10,
    labels: Mapping[str, Any] | None = None,
    handle_sigterm: bool = True,
    halves: bool = False,
    cluster: str | None = None,
) -> "TrainingJob":
    """A training that tunerd chooses for and hears of. Nothing of it can fail the training::

        with tunerd.client.job("llm", {"gpu": "H100"}, defaults={"tp": 8}) as job:
            for batch in loader:
                train(batch, **job.config)
                job.step(tokens=batch.numel())

    `study` is a name or a study's file. With `config` that is what runs, and nothing is chosen.
    Without it ``job.config`` has what is recommended, over `defaults`. `stream` is the folder of
    the topics, `kafka` the broker's addresses; without either, settings say (``TUNERD_SETTINGS``,
    ``tunerd.toml``). Only rank 0 reports. `gpus` is for speeds per GPU (all ranks, once CUDA is in
    use); `replicas` is by what counts of one process are multiplied (all ranks). The first
    `warmup_steps` are left out. With `halves` the scheduler tells how the job ended, and this only
    how it was launched and how fast it was; `cluster` is where its job ids are unique.

    Needs the rest of the package, though none of its libraries.
    """
    from tunerd.trainers.job import JobOptions, TrainingJob

    return TrainingJob(
        JobOptions(
            study=str(study),
            context=context,
            config=config,
            defaults=defaults or {},
            choice=choice,
            stream=stream,
            kafka=kafka,
            kafka_options=kafka_options or {},
            job_id=job_id,
            attempt=attempt,
            gpus=gpus,
            replicas=replicas,
            warmup_steps=warmup_steps,
            labels=labels or {},
            handle_sigterm=handle_sigterm,
            halves=halves,
            cluster=cluster,
        )
    )


def _to_kafka(
    bootstrap: str, topic: str, options: Mapping[str, Any]
) -> tuple[Callable[[bytes], None], Callable[[], None]]:
    """How to send to a topic so that it is safe, and how to let go."""
    from kafka import KafkaProducer

    producer = KafkaProducer(**{"bootstrap_servers": bootstrap, **options})
    flushed = False

    def send(event: bytes) -> None:
        nonlocal flushed
        if not flushed:
            _refuse_to_create(bootstrap, topic, options)
            flushed = True
        producer.send(topic, value=event).get(timeout=60)

    return send, producer.close


def _refuse_to_create(bootstrap: str, topic: str, options: Mapping[str, Any]) -> None:
    """Raise UnknownTopicOrPartitionError where there is no such topic. Sending would wait for a
    minute, or make some brokers create it, with their defaults."""
    from kafka import KafkaAdminClient
    from kafka.errors import KafkaError, UnknownTopicOrPartitionError

    shared = {k: v for k, v in options.items() if k in KafkaAdminClient.DEFAULT_CONFIG}
    try:
        admin = KafkaAdminClient(**{"bootstrap_servers": bootstrap, **shared})
        try:
            topics = admin.list_topics()
        finally:
            admin.close()
    except KafkaError:
        return  # who may send need not be allowed to look: sending says what is wrong
    if topic not in topics:
        raise UnknownTopicOrPartitionError(
            f"the event was not sent: topic {topic} does not exist, so no tunerd daemon has been "
            "here. `tunerd run` makes it; `topics` in the daemon's settings says how it is called."
        )


def _event_bytes(event: Mapping[str, Any]) -> bytes:
    event = _plain(event)
    for name in ("event_id", "study", "job_id"):
        text = event.get(name, "-")  # a request has no job
        if not isinstance(text, str) or not 1 <= len(text) <= MAX_ID:
            raise ValueError(f"{name}: expected a text of 1 to {MAX_ID} characters, got {text!r}")
    for name, value in event.get("metrics", {}).items():
        if isinstance(value, bool) or not isinstance(value, int | float | None):
            raise ValueError(f"metrics.{name}: expected a number, got {value!r}")
    raw = json.dumps(event, allow_nan=False, separators=(",", ":"), default=_refuse).encode()
    if len(raw) > MAX_EVENT_BYTES:
        raise ValueError(f"the event has {len(raw):,} bytes, more than {MAX_EVENT_BYTES:,}")
    return raw


def _plain(value: Any) -> Any:
    """`value` as JSON has it: tuples and arrays become lists, numpy's scalars numbers, times
    text, NaN null."""
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError(f"{value!r}: needs a zone, for instance datetime.now(UTC)")
        return value.isoformat()
    return value


def _refuse(value: Any) -> Any:
    raise ValueError(f"cannot send {value!r}: it is a {type(value).__name__}")


def _nobody_here(path: Path) -> str:
    missing = path if path.parent.is_dir() else path.parent
    return (
        f"{missing} does not exist, so no tunerd daemon has been here. `tunerd run` makes it; "
        "`stream.folder` in the daemon's settings says where."
    )


def _append(path: Path, event: bytes) -> None:
    """Append one line in one write, so that several senders never mix their lines."""
    import fcntl

    if not path.parent.is_dir():
        raise FileNotFoundError(f"the event was not sent: {_nobody_here(path)}")
    if not path.exists():
        log.warning("the event waits in a new file: %s", _nobody_here(path))
    descriptor = _append_to(path)
    try:
        # Half of another client's write would look like the torn line of one that died.
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        size = os.fstat(descriptor).st_size
        torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        line = (b"\n" if torn else b"") + event + b"\n"
        if os.write(descriptor, line) != len(line):
            raise OSError(f"{path}: the disk is full; the event was not written whole")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_regular(path: Path) -> IO[bytes]:
    """A file to read; a pipe or a device in its place is an error, and nothing waits for it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    file = os.fdopen(descriptor, "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(f"{path} is not a regular file")
    return file


def _append_to(path: Path) -> int:
    """A descriptor to append to a file. A new one is for its owner alone; in a folder that its
    group may write to, for the group too. Nothing is written through a symbolic link."""
    flags = os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        descriptor = os.open(path, flags)
    else:
        folder = path.parent.stat()
        os.fchmod(descriptor, 0o660 if folder.st_mode & stat.S_IWGRP else 0o600)
        if os.geteuid() == 0:  # tunerd's own user must be able to read it
            os.fchown(descriptor, folder.st_uid, folder.st_gid)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path} is not a regular file")
    return descriptor


def context_key(study: str, features: Mapping[str, Any], context: Mapping[str, Any]) -> str:
    """The context key of the contract: ``study|name=value|…``, only ``study`` without features.

    `features` is the ``[context]`` table of the study file as it stands there, or just the type
    of each feature: ``{"gpu": "category", "n_gpus": {"type": "int", "key": {"bucket": 1.25}}}``.
    """
    parts = [study]
    for name in sorted(features):
        feature = features[name]
        kind, key = (feature, "value") if isinstance(feature, str) else _feature(feature)
        if key != "ignore":
            parts.append(f"{name}={_key_text(_clean(_plain(context.get(name)), kind), key)}")
    return "|".join(parts)


def _feature(feature: Mapping[str, Any]) -> tuple[str, Any]:
    return feature["type"], feature.get("key", "value")


def _key_text(value: bool | int | float | str | None, key: Any) -> str:
    if value is None:
        return "~"
    if isinstance(key, Mapping) and isinstance(value, int | float):
        value = _bucket_edge(value, key["bucket"])
    if isinstance(value, str):
        return quote(value, safe="").replace("~", "%7E")
    return _number_text(value)


def _number_text(value: bool | int | float) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value or 0.0:.6g}" if isinstance(value, float) else str(value)


def _bucket_edge(value: int | float, factor: float) -> float:
    """The largest whole power of `factor` that is not above `value`, up to rounding (1e-9)."""
    if value <= 0:
        return -_bucket_edge(-value, factor) if value else 0.0
    power = math.floor(math.log(value) / math.log(factor))
    # The quotient of logarithms can be one off at exact powers.
    for exponent in (power + 1, power):
        if _power(factor, exponent) <= float(value) * (1 + 1e-9):
            return _power(factor, exponent)
    return _power(factor, power - 1)


def _power(factor: float, exponent: int) -> float:
    try:
        return float(factor**exponent)
    except OverflowError:
        return math.inf


_INTEGER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?", re.ASCII)
_TRUE = frozenset({"true", "t", "yes", "y", "on", "1"})
_FALSE = frozenset({"false", "f", "no", "n", "off", "0"})
_INT64 = range(-(2**63), 2**63)


def _clean(value: Any, kind: str) -> bool | int | float | str | None:
    """`value` in the feature's type; None where it is missing or of no use."""
    if kind == "category":
        return _category(value)
    if kind == "bool":
        if isinstance(value, str):
            text = value.strip().lower()
            if text in _TRUE or text in _FALSE:
                return text in _TRUE
            value = _float(text)
        return bool(value) if isinstance(value, int | float) and value in (0, 1) else None
    if isinstance(value, bool):
        return None
    return _int(value) if kind == "int" else _float(value)


def _category(value: Any) -> str | None:
    if isinstance(value, str):
        return value if _is_unicode(value) else None
    if isinstance(value, float) and math.isfinite(value):
        # Six digits, as in keys of floats, would make one of two builds 20231001 and 20231002.
        whole = value.is_integer() and abs(value) < 2.0**53
        return str(int(value)) if whole else f"{value:.15g}"
    if isinstance(value, bool):
        return _number_text(value)
    return str(value) if isinstance(value, int) and value in _INT64 else None


def _int(value: Any) -> int | None:
    if isinstance(value, str):
        text = value.strip()
        value = int(text) if _INTEGER.fullmatch(text) else _float(text)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and value in _INT64 else None


def _float(value: Any) -> float | None:
    if isinstance(value, str) and not _NUMBER.fullmatch(value.strip()):
        return None
    if not isinstance(value, int | float | str):
        return None
    try:
        # `float` itself takes fewer characters for space than `strip`.
        number = float(value.strip() if isinstance(value, str) else value)
    except OverflowError:
        return None
    return number + 0.0 if math.isfinite(number) else None
