"""One study's learner: observations in, advice out. Pure; the tune stage saves and publishes.

Given the same observations in the same steps, the same generation and the same seeds, the same
advice comes out, bit for bit. Full rebuilds run aside in ``background`` and are swapped in at a
*sequence*, not when they happen to be ready, so that the machine's speed cannot change a result.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import numpy as np

from tunerd.core.campaign import Campaign
from tunerd.core.contexts import ContextState
from tunerd.core.decide import Advice, Prospect, Rival, Wanted, decide
from tunerd.core.evidence import estimates
from tunerd.core.features import FeatureMap, Rows
from tunerd.core.model import Model
from tunerd.core.observation import Observation, Ran, Scalar, Value
from tunerd.core.recommendation import Recommendation, candidate_id
from tunerd.core.replay import Replay
from tunerd.core.scores import Window
from tunerd.core.searchers import make_searcher
from tunerd.core.searchers.base import Budget
from tunerd.core.space import Codes, Space
from tunerd.core.study import Study
from tunerd.errors import NothingFeasibleError

__all__ = ["FETCH", "Learned", "Tuner"]

FETCH = Callable[[Sequence[int]], Sequence[Observation]]
"""Reads the observations with these sequences, in this order, from history."""

FIRST_FIT = 5
"""Observations with an objective before the first model: five random jobs, then the model
(findings: a start of five beats a start of fifteen)."""
SMALL = 300
"""Up to here a full fit takes a fraction of a second and is done on the spot."""
GROWTH = 0.2
"""A rebuild follows when history grew by this share since the last fit, so that what rebuilds
cost per event stays constant."""
MAX_GROWTH = 4_000
"""… or by this many observations, once the sample that a rebuild sees is full."""
SWAP_AFTER = 64
"""Observations between the start of a rebuild and its swap. A rebuild that is not ready by then
is waited for."""
RECENT = 500
"""Window that an update's correction is fitted on."""
SPACES = 256
"""Search spaces kept in memory: some take tens of milliseconds to build."""


@dataclass(frozen=True, slots=True)
class Learned:
    """What one call of :meth:`Tuner.learn` did."""

    sequence_from: int
    sequence_to: int
    touched: tuple[str, ...]
    """Context keys of the observations."""
    swapped: bool
    """Whether a new model was put in place: a checkpoint is due."""


@dataclass(slots=True)
class _Rebuild:
    started_at: int
    future: "Future[Model] | None" = None


@dataclass
class Tuner:
    """Learns one study and advises on its contexts."""

    study: Study
    background: Executor
    features: FeatureMap = field(init=False)
    model: Model | None = field(init=False, default=None)
    replay: Replay = field(init=False)
    window: Window = field(init=False)
    contexts: dict[str, ContextState] = field(init=False, default_factory=dict)
    sequence: int = field(init=False, default=0)
    """Last observation learned."""

    def __post_init__(self) -> None:
        self.features = FeatureMap(self.study)
        self.replay = Replay()
        self.window = Window()
        self._rebuild: _Rebuild | None = None
        self._spaces: OrderedDict[str, Space] = OrderedDict()

    # -- learning ---------------------------------------------------------------------------

    def learn(self, observations: Sequence[Observation]) -> Learned:
        """Test, then train: predict the observations, then learn them.

        They must follow :attr:`sequence` without a gap. Cost does not depend on history.
        """
        first, last = observations[0].sequence, observations[-1].sequence
        if first != self.sequence + 1 or last != self.sequence + len(observations):
            raise ValueError(f"expected observations from {self.sequence + 1}, got {first}..{last}")
        rows = self.features.rows(observations)
        self._predict_first(rows)
        for observation, key, score in zip(observations, rows.context_key, rows.score, strict=True):
            self._remember(observation, key, None if np.isnan(score) else float(score))
        self.sequence = last
        swapped = self._train(rows, np.arange(first, last + 1))
        return Learned(first, last, tuple(dict.fromkeys(rows.context_key)), swapped)

    def _predict_first(self, rows: Rows) -> None:
        if self.model is None:
            return
        mean = self.model.predictor.predict(rows).mean
        for key, predicted, actual in zip(rows.context_key, mean, rows.score, strict=True):
            if not np.isnan(actual):
                self.window.add(key, float(predicted), float(actual))

    def _remember(self, observation: Observation, key: str, score: float | None) -> None:
        state = self.contexts.get(key)
        if state is None:
            state = ContextState(self.study.clean_context(observation.context))
            self.contexts[key] = state
        config = self._own_config(key, observation.config)
        cid = candidate_id(self.study.name, key, config)
        ran = self.study.ran(observation)
        state.evidence.add(
            cid,
            config,
            score,
            ran,
            unasked=observation.candidate_id is None,
            sequence=observation.sequence,
        )
        if state.campaign is not None and ran is not Ran.UNKNOWN:
            state.campaign.count(cid)
        finished = observation.finished_at
        state.last_job_at = max(state.last_job_at or finished, finished)
        state.waiting_since = state.waiting_since or observation.sequence

    def _own_config(self, key: str, config: Mapping[str, Value]) -> dict[str, Value]:
        """The study's own parameters, as written in the study file where they are in the space."""
        space = self.space(key)
        code = None if space is None else space.encode(config)
        if space is not None and code is not None:
            return space.decode(code)
        return {p.name: config[p.name] for p in self.study.parameters if p.name in config}

    def _train(self, rows: Rows, sequences: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> bool:
        self.replay.add(rows, sequences)
        swapped = self._swap_when_due()
        if self.model is None or (self._grown() and self.sequence <= SMALL):
            if np.isfinite(self.replay.rows().score).sum() >= FIRST_FIT:
                self.model = self._fit(self.replay.rows(), self.sequence)
                swapped = True
        elif not swapped:
            self.model.update(rows, self.replay.recent(RECENT), self.sequence)
        if self._rebuild is None and self.model is not None and self._grown():
            self._start_rebuild(self.sequence, self.replay.rows())
        return swapped

    def _grown(self) -> bool:
        if self.model is None:
            return True
        grown = self.sequence - self.model.fitted_at
        return grown >= max(FIRST_FIT, min(GROWTH * self.model.fitted_at, MAX_GROWTH))

    def _fit(self, rows: Rows, at: int) -> Model:
        return Model.fit(self.study, self.features, rows, at)

    def _start_rebuild(self, at: int, rows: Rows) -> None:
        self._rebuild = _Rebuild(at, self.background.submit(self._fit, rows, at))

    def _swap_when_due(self) -> bool:
        rebuild = self._rebuild
        if rebuild is None or self.sequence < rebuild.started_at + SWAP_AFTER:
            return False
        assert rebuild.future is not None
        model = rebuild.future.result()
        self._rebuild = None
        since = self.replay.since(rebuild.started_at)
        model.update(since, self.replay.recent(RECENT), self.sequence)
        self.model = model
        return True

    # -- advising ---------------------------------------------------------------------------

    def due(self, now: datetime, active: timedelta, most: int) -> list[str]:
        """Context keys worth a search: those with new jobs first, then the stalest.

        ``most`` is the number of contexts that count as active, those with the latest jobs.
        """
        since = now - active
        alive = [
            (key, state)
            for key, state in self.contexts.items()
            if state.last_job_at is not None and state.last_job_at >= since
        ]
        if len(alive) > most:
            alive = sorted(alive, key=lambda item: item[1].last_job_at or since)[-most:]
        waiting = sorted((s.waiting_since, key) for key, s in alive if s.waiting_since)
        stale = sorted(
            (s.searched, key) for key, s in alive if not s.waiting_since and self._is_stale(s)
        )
        return [key for _, key in waiting + stale]

    def _is_stale(self, state: ContextState) -> bool:
        return self.model is not None and (
            self.sequence - state.searched >= max(20, GROWTH * max(state.searched, 0))
        )

    def advise(self, key: str, running: Recommendation | None) -> Advice:
        """Search one context and decide what to say there.

        Raises:
            NothingFeasibleError: the study's constraints rule out everything in this context.
        """
        state = self.contexts[key]
        state.waiting_since = 0
        state.searched = self.sequence
        space = self.space(key)
        if space is None:
            raise NothingFeasibleError(self._blocked(key))
        rng = np.random.default_rng([*self.study.search.seeds, self.sequence, *key.encode()])
        prospects = self._prospects(key, space, rng)
        return decide(
            self.study,
            state.evidence,
            self._rivals(key, space),
            prospects,
            self._baseline(state, space),
            running,
            self._wanted(key, space, prospects, rng),
        )

    def space(self, key: str) -> Space | None:
        """The search space in a context that was seen; None where nothing is feasible."""
        space = self._spaces.get(key)
        if space is None:
            try:
                space = Space(self.study, self.contexts[key].context)
            except NothingFeasibleError:
                return None
            self._spaces[key] = space
            if len(self._spaces) > SPACES:
                self._spaces.popitem(last=False)
        self._spaces.move_to_end(key)
        return space

    def _blocked(self, key: str) -> str:
        try:
            Space(self.study, self.contexts[key].context)
        except NothingFeasibleError as error:
            return str(error)
        return "nothing feasible"  # pragma: no cover - the same arguments failed a moment ago

    def _prospects(self, key: str, space: Space, rng: np.random.Generator) -> list[Prospect]:
        search = self.study.search
        if self.model is None:
            return self._start(key, space, search.keep, rng)
        model = self.model

        def acquisition(codes: Codes) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
            outlook = model.outlook(self.features.candidates(space, codes))
            return self._acquisition(outlook.mean, outlook.spread, outlook.feasible)

        found = make_searcher(self.study).search(
            space, acquisition, rng, Budget(search.evaluations, search.keep)
        )
        outlook = model.outlook(self.features.candidates(space, found.codes))
        return [
            Prospect(
                candidate_id=candidate_id(self.study.name, key, config),
                config=config,
                code=code,
                acquisition=float(score),
                mean=float(outlook.mean[i]),
                spread=float(outlook.spread[i]),
                feasible=float(outlook.feasible[i]),
            )
            for i, (code, score) in enumerate(zip(found.codes, found.scores, strict=True))
            for config in [space.decode(code)]
        ]

    def _acquisition(
        self,
        mean: "np.ndarray[tuple[int], np.dtype[np.float64]]",
        spread: "np.ndarray[tuple[int], np.dtype[np.float64]]",
        feasible: "np.ndarray[tuple[int], np.dtype[np.float64]]",
    ) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
        """Upper confidence bound, times the probability to run (on a log scale a product is a
        sum). What most likely does not run sinks below everything else, but keeps its order, so
        that a policy still feels the slope towards what runs."""
        optimistic = mean + self.study.search.optimism * spread
        optimistic = optimistic + np.log(np.clip(feasible, 1e-3, 1.0))
        too_risky = feasible < self.study.min_feasible
        return np.where(too_risky, optimistic - 10.0 * (1.0 - feasible), optimistic)

    def _start(
        self, key: str, space: Space, count: int, rng: np.random.Generator
    ) -> list[Prospect]:
        """A spread-out random start: there is nothing to predict from yet."""
        return [
            Prospect(
                candidate_id=candidate_id(self.study.name, key, config),
                config=config,
                code=code,
                acquisition=0.0,
            )
            for code in space.spread(count, rng)
            for config in [space.decode(code)]
        ]

    def _rivals(self, key: str, space: Space) -> list[Rival]:
        evidence = self.contexts[key].evidence
        inside = [
            (cid, trial, code)
            for cid, trial in evidence.measured()
            for code in [space.encode(trial.config)]
            if code is not None
        ]
        if not inside or self.model is None:
            return []
        codes = np.stack([code for _, _, code in inside])
        outlook = self.model.outlook(self.features.candidates(space, codes))
        scale = 1.0
        if self.study.objective.scale == "linear":
            scale = float(np.mean([abs(trial.mean) for _, trial, _ in inside]))
        noise = evidence.noise(scale)
        beliefs = estimates([t for _, t, _ in inside], noise, outlook.mean, outlook.spread)
        return [
            Rival(cid, trial, belief, float(feasible))
            for (cid, trial, _), belief, feasible in zip(
                inside, beliefs, outlook.feasible, strict=True
            )
        ]

    def _baseline(self, state: ContextState, space: Space) -> dict[str, Value] | None:
        stated = self.study.baseline(state.context)
        if stated is None:
            return None
        if all(p.name in stated for p in self.study.parameters):
            return stated
        usual = state.evidence.usual(stated)
        if usual is not None and space.encode(usual) is not None:
            return usual
        return stated

    # -- campaigns --------------------------------------------------------------------------

    def start_campaign(
        self, context: Mapping[str, Scalar], campaign: Campaign, now: datetime
    ) -> str:
        """Begin a campaign in a context, seen or not. Returns its key.

        Raises:
            NothingFeasibleError: the study's constraints rule out everything there.
        """
        clean = self.study.clean_context(context)
        Space(self.study, clean)
        key = self.study.context_key(clean)
        state = self.contexts.setdefault(key, ContextState(clean))
        state.campaign = campaign
        state.last_job_at = max(state.last_job_at or now, now)
        state.waiting_since = max(self.sequence, 1)
        return key

    def _wanted(
        self, key: str, space: Space, prospects: Sequence[Prospect], rng: np.random.Generator
    ) -> Wanted | None:
        state = self.contexts[key]
        campaign = state.campaign
        if campaign is None:
            return None
        if campaign.round_done and not campaign.finished:
            if campaign.round < 0:
                chosen = self._start(key, space, campaign.next_size, rng)
            else:
                fresh = [p for p in prospects if p.candidate_id not in state.evidence.trials]
                fresh.sort(key=lambda p: -(p.mean if p.mean is not None else p.acquisition))
                chosen = fresh[: campaign.next_size]
            campaign.begin_round([(p.candidate_id, p.config) for p in chosen])
        if campaign.finished:
            state.campaign = None
            return None
        known = {p.candidate_id: p for p in prospects}
        missing = [ask for ask in campaign.asks if ask.missing > 0]
        return Wanted(
            campaign.round,
            tuple(
                (
                    known.get(ask.candidate_id) or self._ask(space, ask.candidate_id, ask.config),
                    ask.missing,
                )
                for ask in missing
            ),
        )

    def _ask(self, space: Space, cid: str, config: Mapping[str, Value]) -> Prospect:
        code = space.encode(config)
        if code is None or self.model is None:
            zeros = np.zeros(len(space.sizes), np.int32)
            return Prospect(cid, config, zeros if code is None else code, 0.0)
        outlook = self.model.outlook(self.features.candidates(space, code[None, :]))
        return Prospect(
            cid,
            config,
            code,
            0.0,
            float(outlook.mean[0]),
            float(outlook.spread[0]),
            float(outlook.feasible[0]),
        )
