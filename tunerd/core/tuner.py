"""One study: observations in (:mod:`.learning`), advice out. Pure; the tune stage saves and
publishes.

Given the same observations in the same steps, the same generation and the same seeds, the same
advice comes out, bit for bit.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from tunerd.core.carry_over import CarryOver
from tunerd.core.conformal import ConformalBands
from tunerd.core.decisions.advisor import Advisor
from tunerd.core.decisions.campaign import Campaign
from tunerd.core.decisions.context_state import ContextState
from tunerd.core.decisions.drift_consequences import DriftConsequences
from tunerd.core.decisions.fallback import MOST_CONTEXTS
from tunerd.core.decisions.foresight import Foresight
from tunerd.core.decisions.overrides import OverrideSet
from tunerd.core.decisions.space_cache import SpaceCache
from tunerd.core.drift.monitor import DriftMonitor
from tunerd.core.evidence.gain_calibration import GainCalibration, promises_of
from tunerd.core.evidence.rollout import RolloutResult
from tunerd.core.features import FeatureMap
from tunerd.core.learning import StudyLearner
from tunerd.core.model.training import Fetch, ModelTrainer
from tunerd.core.observation import Scalar, Value
from tunerd.core.outliers import OutlierFilter
from tunerd.core.recommendation import Advice, Recommendation
from tunerd.core.saved_state import SavedState
from tunerd.core.scores import PrequentialWindow
from tunerd.core.study import Study
from tunerd.core.usability import ObjectiveUsability
from tunerd.errors import NothingFeasibleError

__all__ = ["PARTS", "Tuner"]

PARTS: Mapping[str, type[SavedState]] = {
    "fallback": ContextState,
    "window": PrequentialWindow,
    "bands": ConformalBands,
    "watch": DriftMonitor,
    "after_change": DriftConsequences,
    "gains": GainCalibration,
    "usability": ObjectiveUsability,
    "plausibility": OutlierFilter,
}
"""Of a tuner, what is saved by its fields."""
_BASIS = ("fallback", "bands", "gains")
"""Those that advice is made from."""

STALE = 0.2
"""A context is searched again when history grew by this share since its last search."""


@dataclass
class Tuner(StudyLearner):
    """Learns one study and advises on its contexts."""

    fallback: ContextState = field(init=False, default_factory=lambda: ContextState({}))
    """Of the entry for the empty context, which readers elsewhere fall back on."""
    after_change: DriftConsequences = field(init=False, default_factory=DriftConsequences)
    """What changes of speed led to, for people."""
    foreseen: Counter[str] = field(init=False, default_factory=Counter)
    """Contexts that were foreseen, came or were missed, since somebody looked and emptied it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._advisor = Advisor(self.study, self.spaces, self.only)

    # -- which contexts are looked at ---------------------------------------------------------

    def active(self, now: datetime, within: timedelta, most: int) -> list[str]:
        """Keys of the contexts that had a job or request lately, at most the ``most`` latest."""
        since = now - within
        alive = [
            (at, key)
            for key, state in self.contexts.items()
            if (at := state.alive_at) is not None and at >= since
        ]
        return [key for _, key in sorted(alive)[-most:]]

    def due(self, active: Iterable[str], fresh: Collection[str] = ()) -> list[str]:
        """Which of these contexts are worth a search: ``fresh`` ones first, whose jobs have just
        come in, then those that wait for longest since theirs came, then the stalest. Never paused
        ones: they wait."""
        waiting, stale = [], []
        active = {key for key in active if self.orders.paused(key) is None}
        first = [key for key in fresh if key in active]
        for key in active.difference(first):
            state = self.contexts[key]
            if state.waiting_since:
                waiting.append((state.waiting_since, key))
            elif self._is_stale(state):
                stale.append((state.searched, key))
        return first + [key for _, key in sorted(waiting) + sorted(stale)]

    def is_fallback_due(self) -> bool:
        """Whether the entry for the empty context is worth another look."""
        if self.model is None or not self.is_fallback(self.study.name):
            return False
        if self.orders.paused(self.study.name) is not None:
            return False
        return bool(self.fallback.waiting_since) or self._is_stale(self.fallback)

    def _is_stale(self, state: ContextState) -> bool:
        learned_since = self.sequence - max(state.searched, 0)
        return self.model is not None and learned_since >= max(20, STALE * state.searched)

    def is_fresh(self, key: str) -> bool:
        """Whether nothing was learned or ordered since a context was searched last."""
        state = self.contexts[key]
        return state.searched == self.sequence and not state.waiting_since

    def wake(self, keys: Iterable[str], now: datetime) -> None:
        """Old jobs of these contexts were imported: they are active from now on, as after a
        request."""
        for key in keys:
            self.contexts[key].imported_at = now
            self.touched.add(key)

    def ask(self, context: Mapping[str, Value], now: datetime) -> str:
        """Somebody wants to know what to launch in a context, seen or not: it is active from now
        on. Returns its key."""
        clean = self.study.clean_context(context)
        key = self.study.context_key(clean)
        self.contexts.setdefault(key, ContextState(clean)).asked_at = now
        self.touched.add(key)
        return key

    def foresee(self, now: datetime, active: Collection[str], lately: timedelta) -> list[str]:
        """Note which contexts beside the active ones are to come. What grew is expected to grow on
        for so long as ``lately``. Returns those that were not foreseen before; nobody has run some
        of them."""
        if self.model is None:
            return []
        look = Foresight(self.study, self.contexts)
        look.look(now, active, lately)
        self.touched |= look.changed
        self.foreseen += look.outcomes
        return look.fresh

    @property
    def ahead(self) -> list[str]:
        """Keys of the contexts that are foreseen."""
        return [key for key, state in self.contexts.items() if state.foreseen is not None]

    def only_asked(self, before: datetime) -> list[str]:
        """Keys of contexts where no job ever ran, and that nobody has asked about since ``before``
        or that were foreseen and did not come: they can be forgotten."""
        return [
            key
            for key, state in self.contexts.items()
            if not state.evidence.jobs
            and state.campaign is None
            and state.foreseen is None
            and (state.alive_at is None or (state.asked_at is not None and state.alive_at < before))
        ]

    def touch(self, key: str) -> None:
        """Note that what is known of a context has changed."""
        if key in self.contexts:
            self.touched.add(key)

    # -- advising -----------------------------------------------------------------------------

    def state(self, key: str) -> ContextState:
        """What is known of a context, or of the entry for the empty one."""
        return self.fallback if self.is_fallback(key) else self.contexts[key]

    def is_fallback(self, key: str) -> bool:
        """Whether a key is that of the entry for the empty context, beside ordinary ones."""
        return key == self.study.name != self.study.context_key({})

    def advise(self, key: str, running: Recommendation | None, *, brief: bool = False) -> Advice:
        """Search one context and decide what to say there. After a ``brief`` look it waits for a
        whole one.

        Raises:
            NothingFeasibleError: the constraints rule out everything in this context; of the
                entry for the empty context: no configuration is sound.
        """
        state = self.state(key)
        state.waiting_since = max(self.sequence, 1) if brief else 0
        state.searched = self.sequence
        self.touch(key)
        if self.is_fallback(key):
            return self._fall_back()
        before = state.introduction.verdicts
        advice = self._advisor.advise(
            key,
            state,
            self.sequence,
            self.model,
            self.bands,
            self.features,
            running,
            self.gains.overrated,
            brief=brief,
        )
        self._note(key, state, before, advice, self.sequence)
        return advice

    def take_over(
        self, key: str, state: ContextState, advice: Advice | None, sequence: int
    ) -> None:
        """Take over what :meth:`advise` came to on a copy of this tuner that had learned up to
        ``sequence``: the context's state after it, and its advice; None where nothing is feasible.
        """
        before = self.contexts[key].introduction.verdicts
        self.contexts[key] = state
        self.touch(key)
        if advice is not None:
            self._note(key, state, before, advice, sequence)

    def _note(
        self,
        key: str,
        state: ContextState,
        before: Sequence[RolloutResult],
        advice: Advice,
        sequence: int,
    ) -> None:
        self._count_verdicts(state, before, sequence)
        self.after_change.note(key, state, advice, sequence)

    def _fall_back(self) -> Advice:
        """What to launch in contexts that have no entry of their own."""
        if self.model is None:
            raise NothingFeasibleError("There is nothing to predict from yet.")
        known = self.basis(self.study.name)
        return self._advisor.everywhere(known, self.model, self.bands, self.features)

    def basis(self, key: str) -> dict[str, ContextState]:
        """The contexts that advice for a key is made from: its own, or several for the entry for
        the empty context."""
        if not self.is_fallback(key):
            return {key: self.contexts[key]}
        latest = sorted(
            (state.last_job_at, key)
            for key, state in self.contexts.items()
            if state.last_job_at is not None and state.evidence.jobs
        )[-MOST_CONTEXTS:]
        return {key: self.contexts[key] for _, key in latest}

    def feasible(self, key: str) -> int | None:
        """Number of configurations that are feasible in a context; None where it is too large a
        space to count."""
        return self._advisor.space(key, self.contexts[key].context).size

    def promise(self, key: str, advice: Advice | Recommendation) -> None:
        """Remember what was published for a context, to compare it with what comes."""
        if promises := promises_of(self.study, key, advice):
            self.state(key).promise(promises)
            self.touch(key)

    # -- what operators ask for ---------------------------------------------------------------

    @property
    def orders(self) -> OverrideSet:
        """What operators have ordered, as far as it stands."""
        return self._advisor.orders

    def impose(self, orders: OverrideSet) -> None:
        """Keep to these orders from now on."""
        self._advisor.impose(orders)

    def unfit(self, key: str, orders: OverrideSet) -> str | None:
        """Why nothing would be feasible in a context under other orders; None where something is,
        and where nothing is under the present ones."""
        context = self.contexts[key].context
        try:
            self._advisor.space(key, context)
        except NothingFeasibleError:
            return None
        try:
            SpaceCache(self.study, orders, self.only).get(key, context)
        except NothingFeasibleError as error:
            return str(error)
        return None

    def start_campaign(
        self, context: Mapping[str, Scalar], campaign: Campaign, now: datetime
    ) -> str:
        """Begin a campaign in a context, seen or not. Returns its key.

        Raises:
            NothingFeasibleError: the constraints rule out everything there.
        """
        clean = self.study.clean_context(context)
        key = self.study.context_key(clean)
        self._advisor.space(key, clean)
        state = self.contexts.setdefault(key, ContextState(clean))
        state.campaign = campaign
        state.rounds_asked = [[]] * max(
            campaign.round + 1, 0
        )  # no random start: none is asked for in it
        state.last_job_at = max(state.last_job_at or now, now)
        state.waiting_since = max(self.sequence, 1)
        self.touched.add(key)
        return key

    def cancel_campaign(self, key: str) -> int | None:
        """End the campaign of a context; says how many runs its round still missed, None when
        there is no campaign."""
        state = self.contexts.get(key)
        if state is None or state.campaign is None:
            return None
        missing = state.campaign.missing
        state.campaign = None
        self.look_again([key])
        return missing

    def close_overdue(self, visible: Collection[str], now: datetime) -> dict[str, int]:
        """Close rounds that wait in vain, among those of contexts whose round schedulers can see;
        no other waits, as while it is paused. Says how many runs were given up where."""
        closed = {}
        for key, state in self.contexts.items():
            if (campaign := state.campaign) is None:
                continue
            before = campaign.waits_since
            if key not in visible:
                campaign.waits_since = None
            elif given_up := campaign.close_if_overdue(now):
                closed[key] = given_up
            if campaign.waits_since != before:
                self.touched.add(key)
        self.look_again(closed)
        return closed

    # -- keeping ------------------------------------------------------------------------------

    def adopt(
        self,
        former: Mapping[str, Mapping[str, Any]],
        study: Study | None,
        said: Iterable[Recommendation],
    ) -> list[tuple[str, str]]:
        """Take over what history does not tell of the contexts of the former generation, whose
        ``study`` is None where nobody can read it any more: campaigns under way, proposals
        declined and who asked; incumbents, their tests and promises made where scores still mean
        the same, else the best by evidence is elected anew. Contexts without a job stay under the
        key that this generation gives them. Where several became one, its incumbent is elected
        anew, too. ``said`` is what was recommended: jobs under way name its candidates as they
        were.

        Returns:
            Former context keys, and what could not be taken over there.
        """
        self.fallback.waiting_since = max(self.sequence, 1)
        succession = self._succession(former, study)
        adoption = CarryOver(self.study, self.spaces, self.contexts, self.sequence)
        return adoption.take_over(former, succession, said)

    def dump(self) -> dict[str, object]:
        """Everything but the contexts and the model, as JSON values; see :meth:`restore`."""
        return {
            "sequence": self.sequence,
            "vocabulary": self.features.dump(),
            "training": self.training.dump(),
            **{name: getattr(self, name).dump() for name in PARTS},
        }

    def dump_basis(self, key: str) -> dict[str, object]:
        """What advice for a key is made from beside its contexts and the model, as part of what
        :meth:`dump` gives. Its size does not grow with the number of contexts: it is kept with each
        recommendation."""
        return {
            "sequence": self.sequence,
            "vocabulary": self.features.dump(),
            "fallback": self.fallback.dump(),
            "bands": self.bands.of(self.basis(key)).dump(),
            "gains": self.gains.dump(),
            "training": self.training.dump(),
        }

    @classmethod
    def restore(
        cls,
        study: Study,
        background: Executor,
        state: Mapping[str, Any],
        contexts: Mapping[str, Mapping[str, Any]],
        parts: Mapping[str, bytes] | None,
        steps: Iterable[tuple[int, int]],
        fetch: Fetch,
        only: Mapping[str, Sequence[Mapping[str, Value]]] | None = None,
    ) -> "Tuner":
        """Bring back a tuner exactly as it was after the step that saved ``state``.

        ``parts`` is the last checkpoint of its model (:meth:`StudyModel.dump`), None if there was
        no model; ``steps`` are the (first, last) sequences of the steps, oldest first, of which
        those after the checkpoint are learned again. ``only`` is :attr:`only`.
        """
        tuner = cls(study, background, only or {})
        tuner.features = FeatureMap(study, state["vocabulary"])
        tuner.take_basis(state, contexts)
        tuner._take(state, PARTS.keys() - _BASIS)
        tuner.training = ModelTrainer(study, tuner.features, background)
        tuner.training.restore(state["training"], parts, steps, tuner.sequence, fetch)
        return tuner

    def take_basis(
        self, state: Mapping[str, Any], contexts: Mapping[str, Mapping[str, Any]]
    ) -> None:
        """Take what :meth:`dump_basis` gave and these contexts in the place of one's own, to advise
        on them. Model and vocabulary stay: they must be those of that moment."""
        self._take(state, _BASIS)
        self.contexts = {key: ContextState.load(saved) for key, saved in contexts.items()}
        self.sequence = state["sequence"]

    def _take(self, state: Mapping[str, Any], parts: Iterable[str]) -> None:
        for name in parts:
            setattr(self, name, PARTS[name].load(state[name]))
