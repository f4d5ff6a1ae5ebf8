"""Contexts of one study that other instances search, while one learns.

The instance that tunes a study offers some of the contexts that wait: each with all that its search
is made from, and the checkpoint of its model. An instance whose tuner process has nothing to do
takes one, searches it as the other would, and writes what came of it into the task's row. It writes
nothing else. The owner takes a result over where the context is still as it was when it was
offered, and searches itself what nobody came to.
"""

import hashlib
import math
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Any

import msgspec

from tunerd import logs, telemetry
from tunerd.core.decisions.context_state import UNREADABLE, ContextState
from tunerd.core.recommendation import Advice
from tunerd.core.study_file import parse_study
from tunerd.core.tuner import Tuner
from tunerd.errors import NothingFeasibleError, StoreUnavailableError
from tunerd.events import from_bytes
from tunerd.stages.build_info import build, whole_code
from tunerd.stages.checkpoints import parts_of
from tunerd.stages.placement import StudyPlacement
from tunerd.stages.provenance import OfferedSearch, basis_of, tuner_of, whole_basis
from tunerd.stages.recommendations import StepReport
from tunerd.stages.study_session import LAYOUT, StepPlan, StudySession
from tunerd.store import CollectedSearch, SearchTask, Store, Transaction

__all__ = ["SearchHelper", "SearchOffers", "made_by"]

HEAD_S = 2.0
"""What the owner keeps for itself of the contexts that wait: about as much as it searches in one
step of a backlog."""
MOST_EACH = 16
"""Contexts that are offered at a time for each idle instance …"""
MOST = 200
"""… and at most for all of them: an offer takes 1.6 ms of its step's transaction."""
MOST_BYTES = 4 * 1024 * 1024
"""Of what contexts know that are offered in one step: each is written to the store."""
CLAIM_S = 15.0
"""What a search may take elsewhere before the owner does it: so long a context waits for an
instance that was lost. Loading a large model takes a second, a search 0.06 to 1.4."""
UNTAKEN_S = 15.0
"""What nobody has taken for so long is the owner's again, however much else waits."""
REST_S = 30.0
"""How long nothing is offered after nobody took any: each offer has its cost. Twice as long each
time that the owner had waited for it in vain …"""
LONGEST_REST_S = 600.0
"""… and at most so long: an idle instance may leave this one study alone, which nobody is told."""
LOOK_EVERY_S = 0.25
"""How often an idle instance looks for searches to do."""
FAILED_S = 600.0
"""How long an instance leaves a study alone after a search of it failed here."""
QUIET_S = 60.0
"""A study that is helped again after so long is told in the log again."""


class _SearchResult(msgspec.Struct, frozen=True):
    """What a search came to."""

    state: dict[str, Any]
    """Of the context, after it."""
    advice: Advice | None
    problem: str
    """Why nothing is feasible there, where there is no advice."""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_SearchResult).decode


@cache
def made_by() -> str:
    """Of what build and layout a search is: with another one it might come to something else. The
    core decides, but what it is given and what is kept of it is the stages' and the store's."""
    parts = hashlib.sha256(_encode([sorted(build().items()), whole_code()])).hexdigest()
    return f"{LAYOUT} {parts[:16]}"


# -- the instance that tunes the study ------------------------------------------------------------


@dataclass
class SearchOffers:
    """Offers searches of the studies that this instance tunes, and takes the results over."""

    store: Store
    placement: StudyPlacement | None
    """None where this instance has the store to itself."""
    clock: Callable[[], float]
    enabled: bool = True
    _rests: dict[str, float] = field(default_factory=dict)
    """Until when nothing is offered, by study."""
    _rest_s: dict[str, float] = field(default_factory=dict)
    """How long it rests the next time, by study."""

    def begin(self, books: StudySession) -> None:
        """Drop what was offered of the study so far, by whoever held it."""
        with self.store.transaction() as tx:
            tx.fence(books.study.name, books.epoch)
            tx.drop_searches(books.study.name)

    def take_over(self, books: StudySession, changes: StepPlan) -> None:
        """Take over what others came to. What they did not, and what was decided from something
        that has changed since, is to be searched here."""
        back: list[str] = []
        if changes.taken_up:  # an operator thought nothing of the model that those are made with
            back += books.offered
            books.offered.clear()
            self.begin(books)
        for row in self.collect(books) if books.offered else ():
            offered = books.offered.get(row.context_key)
            if offered is None or offered.id != row.id:
                continue
            del books.offered[row.context_key]
            if row.result is None or not _accept(books, changes, row, offered, row.result):
                back.append(row.context_key)
        if back and not books.ended:
            there = books.tuner.contexts.keys() & set(back).difference(changes.forgotten)
            books.due += [key for key in books.tuner.due(there) if key not in books.due]

    def collect(self, books: StudySession) -> Sequence[CollectedSearch]:
        """What is finished or overdue; what nobody has taken for a while, or at once where there is
        nothing else to do."""
        name, offered = books.study.name, len(books.offered)
        with self.store.transaction() as tx:
            tx.fence(name, books.epoch)
            rows = tx.collect_searches(name, unclaimed_s=UNTAKEN_S if books.due else 0.0)
        if any(row.claimed for row in rows):
            self._rest_s.pop(name, None)
        elif len(rows) == offered:
            rest_s = self._rest_s.get(name, REST_S)
            self._rests[name] = self.clock() + rest_s
            if books.due:  # else it did not even wait
                self._rest_s[name] = min(2 * rest_s, LONGEST_REST_S)
        return rows

    def offer(
        self,
        tx: Transaction,
        books: StudySession,
        report: StepReport,
        now: datetime,
        *,
        brief: bool,
    ) -> dict[str, bool]:
        """Offer some of what waits, at the end of a step and in its transaction. Returns which
        contexts, and whether each gets a brief look only: where so many wait that those get one
        which were never searched."""
        model = books.tuner.model
        chosen = {} if model is None or books.ended else self.choose(books, brief=brief)
        if model is None or not chosen:
            return {}
        checkpoints = books.checkpoints
        if checkpoints.latest is None or checkpoints.learned != model.learned:
            report.lines += checkpoints.save(tx, model, now)
        assert checkpoints.latest is not None
        searches = {}
        size = 0
        for key, briefly in chosen.items():
            begun = basis_of(books.tuner, key, books.recommended.followed(key), brief=briefly)
            size += len(begun)
            if size > MOST_BYTES:
                break
            searches[key] = begun, whole_basis(books.tuner, books.chain, key, begun)
        ids = tx.offer_searches(
            [
                SearchTask(
                    study=books.study.name,
                    epoch=books.epoch,
                    generation=books.generation,
                    context_key=key,
                    sequence=books.tuner.sequence,
                    model=checkpoints.latest,
                    made_by=made_by(),
                    basis=basis,
                )
                for key, (_, basis) in searches.items()
            ]
        )
        for number, (key, (begun, basis)) in zip(ids, searches.items(), strict=True):
            books.offered[key] = OfferedSearch(
                number, books.tuner.sequence, checkpoints.latest, begun, basis
            )
        books.due = [key for key in books.due if key not in searches]
        return {key: chosen[key] for key in searches}

    def choose(self, books: StudySession, *, brief: bool) -> dict[str, bool]:
        """Which contexts to offer: those that come next behind what the owner gets to by itself.
        Never one that a job waits for, nor a campaign's, whose rounds are of one piece, nor the
        entry for the empty context."""
        idle = self.placement.idle if self.placement is not None and self.enabled else 0
        room = min(MOST_EACH * idle, MOST) - len(books.offered)
        rests = self._rests.get(books.study.name, float("-inf")) > self.clock()
        if room <= 0 or rests or not books.search_s:
            return {}
        states = books.tuner.contexts
        waiting = [
            key
            for key in books.due[math.ceil(HEAD_S / books.search_s) :]
            if key not in books.urgent and key in states and states[key].campaign is None
        ]
        return {key: brief and states[key].searched < 0 for key in waiting[:room]}


def _accept(
    books: StudySession,
    changes: StepPlan,
    row: CollectedSearch,
    offered: OfferedSearch,
    result: bytes,
) -> bool:
    """Take over a result; False where what it was made from has changed."""
    key, tuner = row.context_key, books.tuner
    if books.ended or key not in tuner.contexts or key in books.due:  # to be searched here anyway
        return False
    brief: bool = offered.basis["brief"]
    if basis_of(tuner, key, books.recommended.followed(key), brief=brief) != offered.begun:
        return False
    if [order.dump() for order in tuner.orders.standing] != offered.basis["orders"]:
        return False
    try:
        read = _decode(result)
        state = ContextState.load(read.state)
    except (RecursionError, *UNREADABLE):  # written by no tunerd of this build
        return False
    tuner.take_over(key, state, read.advice, offered.sequence)
    changes.searched[key] = read.problem if read.advice is None else read.advice
    changes.elsewhere[key] = offered
    return True


# -- the instance that has nothing else to do -----------------------------------------------------


@dataclass
class SearchHelper:
    """Searches for other instances, one context at a time."""

    store: Store
    instance: str
    owner: str
    """What it holds leases by."""
    background: Executor
    log: logs.Log
    listener: telemetry.TelemetryListener
    clock: Callable[[], float]
    made_by: str = field(default_factory=made_by)
    """What it can search for."""
    _look_at: float = float("-inf")
    _rests_until: float = float("-inf")
    _failed: dict[str, float] = field(default_factory=dict)
    """Studies of which a search failed here, and until when their owners go on alone."""
    _helped: dict[str, float] = field(default_factory=dict)
    """When a context of a study was searched last."""
    _kept: tuple[bytes, Tuner] | None = None
    """The tuner of the last search, and what it was made of."""

    def rest(self, seconds: float) -> None:
        """Search for nobody for so long."""
        self._look_at = self._rests_until = self.clock() + seconds

    @property
    def rests(self) -> bool:
        """Whether it searches for nobody just now."""
        return self.clock() < self._rests_until

    def step(self, besides: Collection[str]) -> bool:
        """Search one context of a study that is none of ``besides``; says whether there was any."""
        if self.clock() < self._look_at:
            return False
        with self.store.transaction() as tx:
            failed = [study for study, until in self._failed.items() if until > self.clock()]
            task = tx.claim_search(self.owner, self.made_by, CLAIM_S, {*besides, *failed})
        if task is None:
            self._look_at = self.clock() + LOOK_EVERY_S
            if all(self.clock() - at > QUIET_S for at in self._helped.values()):
                self._kept = None
            return False
        began = self.clock()
        self.listener.hear(telemetry.StepStarted(study=task.study, helping=True))
        result = self._result(task)
        with self.store.transaction() as tx:
            finished = tx.finish_search(task.id, self.owner, result)
            if finished and result is not None:
                tx.note_search(self.instance, self.owner)
        if not finished and (took := self.clock() - began) > CLAIM_S:
            self._failed[task.study] = self.clock() + FAILED_S
            self.log.warning(
                "search for another instance took too long: it goes on alone",
                study=task.study,
                seconds=round(took, 1),
            )
        self.listener.hear(telemetry.StageProgressed(stage="tune", worked=True))
        return True

    def _result(self, task: SearchTask) -> bytes | None:
        """What a search comes to; None where it fails, which its owner finds out as well."""
        if self.clock() - self._helped.get(task.study, float("-inf")) > QUIET_S:
            self.log.info("contexts searched for another instance", study=task.study)
        try:
            result = self.search(task)
        except StoreUnavailableError:
            raise
        except Exception:
            self._kept = None
            self._failed[task.study] = self.clock() + FAILED_S
            self.log.exception(
                "search for another instance failed: it goes on alone",
                study=task.study,
                context=task.context_key,
            )
            return None
        self._helped[task.study] = self.clock()
        return result

    def search(self, task: SearchTask) -> bytes:
        """Search a context as the instance would that offered it.

        Raises:
            LookupError: its model is not kept.
            ValueError: what it is made from cannot be read, or its result cannot be written.
        """
        basis, key = task.basis, task.context_key
        tuner = self._tuner(task)
        tuner.take_basis(basis["tuner"], basis["states"])
        running = basis["running"]
        followed = None if running is None else from_bytes(_encode(running))
        advice: Advice | None = None
        problem = ""
        try:
            advice = tuner.advise(key, followed, brief=basis["brief"])
        except NothingFeasibleError as error:
            problem = str(error)
        result = _SearchResult(tuner.state(key).dump(), advice, problem)
        written = _encode(result)
        read = _decode(written)
        if read.advice != advice or ContextState.load(read.state).dump() != result.state:
            raise ValueError("what it came to cannot be written: it is not finite")
        return written

    def _tuner(self, task: SearchTask) -> Tuner:
        """A tuner with the model of a task: the last one, where that was made of the same."""
        basis = task.basis
        vocabulary = basis["tuner"]["vocabulary"]
        made_of = _encode([task.study, task.generation, task.model, vocabulary, basis["orders"]])
        if self._kept is not None and self._kept[0] == made_of:
            return self._kept[1]
        self._kept = None  # before the next one takes as much memory
        row = self.store.generation(task.study, task.generation)
        if row is None:
            raise LookupError(f"generation {task.generation} of study {task.study!r} is not kept")
        study = parse_study(row.text, f"{task.study}, generation {task.generation}")
        parts = parts_of(self.store, task.study, task.model)
        tuner = tuner_of(study, self.background, basis, basis["states"], parts)
        self._kept = made_of, tuner
        return tuner
