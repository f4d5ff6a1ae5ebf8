"""Running sums of what a study's jobs came to, for those who look often.

A page must answer at once, however long history is: jobs are read once, as they are learned, and
what is kept of them is bounded. :class:`StudyDigests` keeps the digests of a store up to date while
somebody looks.
"""

import logging
import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from typing import Any, NamedTuple

import msgspec

from tunerd.core.decisions.ledger import JobEntry, LedgerAccount
from tunerd.core.evidence.gain_calibration import gained
from tunerd.core.evidence.prequential import PrequentialRecord
from tunerd.core.evidence.uplift import UpliftTracker
from tunerd.core.observation import Scalar
from tunerd.core.study import Study
from tunerd.core.study_file import parse_study
from tunerd.errors import CorruptDataError, StoreUnavailableError, TunerdError
from tunerd.queries.accounts import lead_share
from tunerd.queries.metric_samples import MetricSamples
from tunerd.queries.study_status import study_status
from tunerd.report.formatting import context_label
from tunerd.report.gather import incomparable_until
from tunerd.store import Store
from tunerd.store.overview import StudyProgress

__all__ = [
    "ContextLine",
    "JobBlock",
    "KeptEntry",
    "StudyDigest",
    "StudyDigests",
    "first_day",
    "join",
]

log = logging.getLogger(__name__)

PORTION = 2_000
"""Jobs read at a time."""
BLOCKS = 20
"""Parts of a study's jobs that are summed up one by one; twice as many are merged in pairs."""
LEAST = 5
"""Jobs of a part at least."""
LATEST = 24
"""Latest scores that are kept of a context."""
DAYS = 400
ENTRIES = 20_000
"""Latest live jobs that are kept one by one, for a ledger by context and by user: 5 MB."""
OLD_S = 3_600.0
"""After so long sums are made anew: jobs were corrected and forgotten meanwhile."""
LOOK_S = 0.5
"""How often it is seen whether there is news, while somebody looks."""
IDLE_S = 60.0
"""Nobody has looked for so long: nothing is read until somebody does."""
PAUSE_S = 0.02
"""Between two portions of jobs."""
DUTY = 5.0
"""Times as long as a look took that nobody looks again: ingest wants the interpreter too."""
MOST_PAUSE_S = 5.0
FEW_CONTEXTS = 500
STATUS_S = 5.0
"""How often the rest is looked at where no job came: orders, proposals, drifts."""


@dataclass(slots=True)
class JobBlock:
    """Sums over consecutive live jobs."""

    first_at: datetime
    last_at: datetime
    jobs: int = 0
    measured: int = 0
    """Jobs with a gain."""
    gain: float = 0.0
    """Sum of how far their configurations are ahead of what was launched first, as shares."""
    squares: float = 0.0
    judged: int = 0
    held: int = 0
    """Judged jobs within their band."""
    error: float = 0.0
    """Sum of absolute errors of predictions, in scores."""
    failed: int = 0

    def add(self, study: Study, one: PrequentialRecord) -> None:
        """Count a job."""
        outcome = one.outcome
        self.last_at = max(self.last_at, one.finished_at)
        self.first_at = min(self.first_at, one.finished_at)
        self.jobs += 1
        self.failed += outcome.ran is False
        if outcome.score is None:
            return
        if outcome.entry is not None and outcome.ran is not False:
            gain = gained(study, outcome.score, outcome.score - outcome.entry.ahead)
            if gain is not None and math.isfinite(gain):
                self.measured += 1
                self.gain += gain
                self.squares += gain * gain
        if outcome.predicted is not None and outcome.low is not None and outcome.high is not None:
            self.judged += 1
            self.held += outcome.low <= outcome.score <= outcome.high
            self.error += abs(outcome.score - outcome.predicted)

    def merge(self, other: "JobBlock") -> None:
        """Take in the block after it."""
        self.last_at = max(self.last_at, other.last_at)
        self.first_at = min(self.first_at, other.first_at)
        for name in ("jobs", "measured", "gain", "squares", "judged", "held", "error", "failed"):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    @property
    def mean_gain(self) -> tuple[float, float, float] | None:
        """Mean gain of a job, and its 90 % interval; None without any."""
        if not self.measured:
            return None
        mean = self.gain / self.measured
        variance = max(self.squares / self.measured - mean * mean, 0.0)
        half = 1.645 * math.sqrt(variance / self.measured)
        return mean, mean - half, mean + half


@dataclass(slots=True)
class ContextLine:
    """One context in a line."""

    key: str
    context: Mapping[str, Scalar] = field(default_factory=dict)
    jobs: int = 0
    last_job_at: datetime | None = None
    gain: float | None = None
    """Of the incumbent over what was launched there first, as a share."""
    incumbent: str | None = None
    """Its candidate id."""
    profiled: bool = False
    """Whether it has, or had, a campaign."""
    states: list[str] = field(default_factory=list)
    latest: deque[float] = field(default_factory=lambda: deque(maxlen=LATEST))
    """Scores of the latest jobs."""

    text: str = ""
    """What a search looks at, in small letters."""


class KeptEntry(NamedTuple):
    """What a live job adds to accounts, and to whose."""

    day: str
    context_key: str
    user: str | None
    entry: JobEntry


class _Rollout(msgspec.Struct, frozen=True, gc=False):
    incumbent: str | None
    uplift: UpliftTracker


class _Evidence(msgspec.Struct, frozen=True, gc=False):
    jobs: int


class _State(msgspec.Struct, frozen=True, gc=False):
    context: dict[str, Any]
    introduction: _Rollout
    evidence: _Evidence
    campaign: Any = None
    rounds_asked: list[list[str]] = []


class StudyDigest:
    """What is kept in memory of one study. Built and refreshed by one thread, read by others."""

    def __init__(self, store: Store, name: str) -> None:
        generation = store.generation(name)
        if generation is None:
            raise store.unknown_study(name)
        self.name = name
        self.study: Study = parse_study(generation.text, name)
        self.generation = generation.generation
        self.began = time.monotonic()
        self.sequence = 0
        self.blocks: list[JobBlock] = []
        self.size = LEAST
        self.days: dict[str, LedgerAccount] = {}
        self.entries: deque[KeptEntry] = deque(maxlen=ENTRIES)
        self.last_job_at: datetime | None = None
        self.contexts: dict[str, ContextLine] = {}
        self.statuses: Counter[str] = Counter()
        self.following: Counter[str] = Counter()
        self.points: deque[PrequentialRecord] = deque(maxlen=400)
        """Latest judged live jobs."""
        self.status: dict[str, Any] = {}
        self.version = 0
        self._comparable_after = incomparable_until(store, self.study)
        self._dirty: set[str] = set()
        self._all = True
        self._looked_at: tuple[object, float] = (None, 0.0)

    @property
    def ready(self) -> bool:
        """Whether it has come to the present once."""
        return self.version > 0

    def refresh(
        self, store: Store, progress: StudyProgress, metrics: Callable[[], MetricSamples]
    ) -> bool:
        """Take in what is new; says whether anything was. Stops after a portion of jobs: call again
        while :attr:`sequence` is behind."""
        changed = False
        if self.sequence < progress.learned_sequence:
            rows = store.predictions_after(self.name, self.sequence, PORTION)
            for record in rows:
                self._add(record)
            self._account(store, rows)
            last = rows[-1].sequence if rows else 0
            self.sequence = last if len(rows) == PORTION else max(last, progress.learned_sequence)
            changed = True
        if self.sequence < progress.learned_sequence:
            return changed
        now, place = time.monotonic(), (progress.last_sequence, progress.learned_sequence)
        news = changed or place != self._looked_at[0]
        due = now - self._looked_at[1] > STATUS_S
        # To look at ten thousand contexts takes a tenth of a second: not with every job.
        if due or not self.ready or (news and len(self.contexts) <= FEW_CONTEXTS):
            changed |= self._look(store, metrics())
            self._looked_at = (place, now)
        return news or changed

    def _add(self, one: PrequentialRecord) -> None:
        line = self.contexts.get(one.context_key)
        if line is None:
            line = self.contexts[one.context_key] = ContextLine(one.context_key)
        self._dirty.add(one.context_key)
        self.statuses[one.outcome.status.value] += 1
        if one.outcome.score is not None and one.sequence > self._comparable_after:
            line.latest.append(one.outcome.score)
        if one.history or one.sequence <= self._comparable_after:
            return
        if one.outcome.following is not None:
            self.following[one.outcome.following] += 1
        if one.outcome.predicted is not None and one.outcome.score is not None:
            self.points.append(one)
        if not self.blocks or self.blocks[-1].jobs >= self.size:
            self.blocks.append(JobBlock(one.finished_at, one.finished_at))
        self.blocks[-1].add(self.study, one)
        if len(self.blocks) > 2 * BLOCKS:
            self._merge()

    def _merge(self) -> None:
        last = self.blocks.pop() if len(self.blocks) % 2 else None
        for first, second in zip(self.blocks[::2], self.blocks[1::2], strict=True):
            first.merge(second)
        self.blocks = self.blocks[::2] + ([last] if last is not None else [])
        self.size *= 2

    def _account(self, store: Store, rows: list[PrequentialRecord]) -> None:
        live = [job for job in rows if not job.history and job.sequence > self._comparable_after]
        if not live:
            return
        users = store.usernames(self.name, live[0].sequence, live[-1].sequence)
        for job in live:
            day, entry = job.finished_at.date().isoformat(), JobEntry.of(self.study, job)
            self.entries.append(KeptEntry(day, job.context_key, users.get(job.sequence), entry))
            self.days.setdefault(day, LedgerAccount()).add(entry)
        for day in sorted(self.days)[:-DAYS]:
            del self.days[day]

    def _look(self, store: Store, metrics: MetricSamples) -> bool:
        """What no job tells. Says whether something changed."""
        overview = store.overview_of(self.name)
        status = study_status(store, overview, metrics)
        changed = self._look_at_contexts(store, status["mode"])
        changed |= status != self.status
        self.status = status
        return changed or not self.ready

    def _look_at_contexts(self, store: Store, mode: str | None) -> bool:
        changed = False
        keys = None if self._all else list(self._dirty)
        for start in range(0, 1 if keys is None else len(keys), 500):
            portion = None if keys is None else keys[start : start + 500]
            try:
                parts = store.context_parts(self.name, _State, portion)
            except (msgspec.ValidationError, CorruptDataError):
                parts = {}  # of another version, or damaged: the daemon says so
            for key, state in parts.items():
                line = self.contexts.setdefault(key, ContextLine(key))
                line.context = state.context
                line.jobs = state.evidence.jobs
                line.incumbent = state.introduction.incumbent
                line.profiled = state.campaign is not None or bool(state.rounds_asked)
                ahead = state.introduction.uplift.ahead
                line.gain = lead_share(self.study, ahead) if line.incumbent else None
                line.text = _search_text(line)
                changed = True
        self._dirty.clear()
        self._all = False
        for key, at in store.last_jobs(self.name).items():
            line = self.contexts.setdefault(key, ContextLine(key))
            line.last_job_at = at
            if self.last_job_at is None or at > self.last_job_at:
                self.last_job_at = at
        standing = {row.context_key: row.standing(mode) for row in store.standing_rows(self.name)}
        for key in standing.keys() - self.contexts.keys():
            self.contexts[key] = ContextLine(key, text=key.lower())
        for key, line in self.contexts.items():
            states = standing.get(key, [])
            if states != line.states:
                line.states, changed = states, True
        return changed

    def account(self, days: int | None, now: datetime) -> LedgerAccount:
        """Sums over the live jobs of the last days, of all where None."""
        begin = "" if days is None else first_day(days, now)
        total = LedgerAccount()
        for day, sums in self.days.copy().items():
            if day >= begin:
                join(total, sums)
        return total


def first_day(days: int, now: datetime) -> str:
    """The day so many days ago, ISO 8601: with it the last days begin."""
    return (now - timedelta(days=days)).date().isoformat()


def _search_text(line: ContextLine) -> str:
    label = context_label(line.key, line.context).replace("\u00a0", " ")
    return f"{label} {line.key}".lower()


def join(total: LedgerAccount, one: LedgerAccount) -> None:
    """Add the sums of other jobs to ``total``."""
    promises = total.promises + one.promises
    for name in ("promised", "realised"):
        if promises:
            sums = getattr(total, name) * total.promises + getattr(one, name) * one.promises
            setattr(total, name, sums / promises)
    total.promises = promises
    for name in ("jobs", "did_not_run", "gpu_hours", "saved", "spent"):
        setattr(total, name, getattr(total, name) + getattr(one, name))
    for mine, other in ((total.following, one.following), (total.tried, one.tried)):
        for key, count in other.items():
            mine[key] = mine.get(key, 0) + count


class StudyDigests:
    """Digests of all studies of a store, kept up to date by a thread while somebody looks."""

    def __init__(self, store: Store, metrics: Callable[[], MetricSamples]) -> None:
        self.store = store
        self.version = 0
        self._metrics = metrics
        self._digests: dict[str, StudyDigest] = {}
        self._wrong: dict[str, str] = {}
        """Why a study cannot be read, by its name."""
        self._wanted_at = -math.inf
        self._news = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def close(self) -> None:
        """End the thread."""
        with self._news:
            self._closed = True
            self._news.notify_all()
        if self._thread is not None:
            self._thread.join(5.0)

    def all(self, wait_s: float = 0.2) -> list[StudyDigest]:
        """Those that are ready, by name; waits a moment for the first look."""
        self.wanted()
        names = [row.name for row in self.store.studies()]
        self._wait(lambda: all(self._is_ready(n) or n in self._wrong for n in names), wait_s)
        return [self._digests[name] for name in names if self._is_ready(name)]

    def unreadable(self) -> dict[str, str]:
        """Why studies cannot be read, by name."""
        return {name: why for name, why in self._wrong.copy().items() if not self._is_ready(name)}

    def of(self, name: str, wait_s: float = 0.2) -> StudyDigest | None:
        """One of them; None while it is not ready.

        Raises:
            UnknownStudyError: the store has no such study.
            TunerdError: it cannot be read.
        """
        self.wanted()
        if self.store.study(name) is None:
            raise self.store.unknown_study(name)
        self._wait(lambda: self._is_ready(name) or name in self._wrong, wait_s)
        if name in self._wrong and not self._is_ready(name):
            raise TunerdError(f"study {name} cannot be read: {self._wrong[name]}")
        return self._digests[name] if self._is_ready(name) else None

    def wait(self, version: int, wait_s: float) -> int:
        """Wait until the version is another one than this, at most so long; returns it."""
        self.wanted()
        self._wait(lambda: self.version != version, wait_s)
        return self.version

    def _is_ready(self, name: str) -> bool:
        digest = self._digests.get(name)
        return digest is not None and digest.ready

    def _wait(self, done: Callable[[], bool], wait_s: float) -> None:
        with self._news:
            self._news.wait_for(lambda: done() or self._closed, wait_s)

    def wanted(self) -> None:
        """Somebody looks."""
        with self._news:
            self._wanted_at = time.monotonic()
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="digests", daemon=True)
                self._thread.start()
            self._news.notify_all()

    def _run(self) -> None:
        while True:
            with self._news:
                self._news.wait_for(
                    lambda: self._closed or time.monotonic() - self._wanted_at < IDLE_S
                )
                if self._closed:
                    return
            began = time.monotonic()
            try:
                self._look()
            except TunerdError as error:  # the store is away: pages say so themselves
                log.debug("not looked: %s", error)
            took = time.monotonic() - began
            time.sleep(min(max(LOOK_S, DUTY * took), MOST_PAUSE_S))

    def _look(self) -> None:
        metrics = cache(self._metrics)
        there = self.store.progress()
        # The shortest first: they are ready at once.
        for progress in sorted(there, key=lambda progress: progress.learned_sequence):
            if self._closed:
                return
            try:
                self._look_at(progress, metrics)
            except StoreUnavailableError:
                raise
            except Exception as error:  # one study must not keep the others from being seen
                if self._wrong.get(progress.name) != str(error):
                    log.warning("pages cannot read study %s: %s", progress.name, error)
                self._wrong[progress.name] = str(error)
            else:
                self._wrong.pop(progress.name, None)
        gone = self._digests.keys() - {progress.name for progress in there}
        for name in gone:
            del self._digests[name]

    def _look_at(self, progress: StudyProgress, metrics: Callable[[], MetricSamples]) -> None:
        digest = self._digests.get(progress.name)
        if digest is None or self._is_old(digest):
            digest = StudyDigest(self.store, progress.name)
        while digest.refresh(self.store, progress, metrics):
            if digest.sequence < progress.learned_sequence:
                time.sleep(PAUSE_S)  # others want the interpreter too
                continue
            digest.version += 1
            with self._news:
                self._digests[progress.name] = digest
                self.version += 1
                self._news.notify_all()
            return

    def _is_old(self, digest: StudyDigest) -> bool:
        if time.monotonic() - digest.began > OLD_S:
            return True
        row = self.store.study(digest.name)
        return row is not None and row.generation != digest.generation
