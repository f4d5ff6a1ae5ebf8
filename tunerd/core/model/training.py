"""What a study predicts with, kept up to date: the model, the sample it is rebuilt from, and
the rebuilds.

Every portion of jobs updates the model at constant cost. Full rebuilds run aside in a background
executor, and whether one takes over is decided at a *sequence*, not when it happens to be ready,
so that the machine's speed cannot change a result. One that ends with an error is turned down like
one that predicts worse: what serves goes on.
"""

import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

from tunerd.core.arrays import FloatArray, IntArray
from tunerd.core.features import FeatureMap, FeatureRows
from tunerd.core.features.replay import LATEST, ReplayBuffer, ReplaySample, sequences_at
from tunerd.core.features.rows import FAINT
from tunerd.core.model.comparison import ModelComparison, contest
from tunerd.core.model.history_weights import Regime, days, faded, within
from tunerd.core.model.model import StudyModel
from tunerd.core.observation import Observation
from tunerd.core.predictors.predictions import Predictions
from tunerd.core.study import Study

__all__ = [
    "PORTION_MOST",
    "SMALL",
    "SOON",
    "SWAP_AFTER",
    "Fetch",
    "ModelBuild",
    "ModelTrainer",
    "Why",
    "portions",
]

Fetch = Callable[[Sequence[int]], Sequence[Observation]]
"""Reads the observations with these sequences from history, in this order. Those that were pruned
may be left out."""

FIRST_FIT = 5
"""Observations with an objective before the first model: what a model tells after five random jobs
is worth more than further random ones …"""
FIRST_RUNS = 1
"""… or these, beside as many failures: where most of a space does not run, failures teach more."""
SMALL = 300
"""Up to here a full fit takes a fraction of a second and is done on the spot, without a comparison:
a fifth of so few jobs is too few to tell, and the new model has seen more."""
GROWTH = 0.2
"""A rebuild follows when history grew by this share since the last fit, so that what rebuilds
cost per event stays constant."""
MAX_GROWTH = 4_000
"""… or by this many observations, once the sample that a rebuild sees is full."""
BACKLOG_GROWTH = 1.5
"""… by this share, while so many jobs wait to be learned that the fit would be obsolete before they
are: a backlog of 100,000 jobs is learned with 11 fits instead of 46, one of 100 jobs with two. Near
its end the usual share counts, so that the model that serves afterwards is as fresh as any."""
SWAP_AFTER = 64
"""Observations between the start of a rebuild and the decision. A rebuild that is not ready by
then is waited for."""
SOON = 24
"""… after drift, when every job on the old model costs more."""
RECENT = 500
"""Window that an update's correction is fitted on."""
PORTION_MOST = 1_000
"""Observations that the daemon learns together at most: with a hundred parameters half a minute."""
PORTION = 32
"""Observations learned together at the start of a study, and from four times as many on a quarter
of what is known: else a table of 400 old jobs would be learned whole, and none of them predicted
first."""


MOST_REGIMES = 8
"""Latest ends of regimes that fits remember."""

Why = Literal["first", "grown", "drift", "generation", "back", "latest"]
"""Why a model was built or put in place: ``first``, there was none; ``grown``, history has grown;
``drift``, jobs behave differently; ``generation``, the study has changed; ``back`` and ``latest``,
an operator said so."""


@dataclass(frozen=True, slots=True)
class ModelBuild:
    """A model that was built, or taken up again, and what became of it."""

    why: Why
    fitted_at: int
    """Sequence of the last job that its fit could see."""
    decided_at: int
    """Sequence at which it took over or was turned down."""
    took_over: bool
    contest: ModelComparison | None = None
    """How it compared with the one that served; None without a comparison."""
    failed: str | None = None
    """The traceback of the error that a rebuild ended with; None where it ended well."""


@dataclass(slots=True)
class _CandidateModel:
    """A model in the background, and what it said of each job since its fit before learning it."""

    model: StudyModel
    told: Predictions
    """As far as these jobs are among the latest that the replay keeps."""

    def meet(self, rows: FeatureRows, heard: "_UpdateRows", at: int) -> "_CandidateModel":
        """Predict rows, then learn what is heard of them."""
        self.told = self.told.concat(self.model.predictor.predict(rows)).last(LATEST)
        self.model.update(*heard, at)
        return self


class _UpdateRows(NamedTuple):
    """What a model learns of new jobs, as far as they count by now."""

    rows: FeatureRows
    recent: FeatureRows
    """The window that includes them."""


@dataclass(slots=True)
class _PendingRebuild:
    started_at: int
    decide_at: int
    why: Why
    future: "Future[_CandidateModel]"
    """The challenger as it is after the latest portion."""
    told: Predictions
    """What the champion said of each job since ``started_at``, as far as these are among the latest
    that the replay keeps."""
    ends: list[int]
    """Last sequences of the portions since."""

    def dump(self) -> dict[str, object]:
        return {
            "started_at": self.started_at,
            "decide_at": self.decide_at,
            "why": self.why,
            "mean": self.told.mean.tolist(),
            "spread": self.told.std.tolist(),
            "ends": self.ends,
        }


@dataclass
class ModelTrainer:
    """Holds a study's model and trains it. Rows come in the order of their sequences.

    The model that serves is the *champion*. A rebuild makes a *challenger*: both predict, then
    learn, the jobs that come in between the start of the rebuild and the decision
    (:mod:`tunerd.core.model.comparison`). The challenger's side of that runs in the background too.
    """

    study: Study
    features: FeatureMap
    background: Executor
    model: StudyModel | None = field(init=False, default=None)
    """The champion."""
    replay: ReplayBuffer = field(init=False, default_factory=ReplayBuffer)
    pinned: bool = field(init=False, default=False)
    """Whether an operator went back to a model: nothing replaces it."""
    regimes: tuple[Regime, ...] = field(init=False, default=())
    """What every fit and update takes into account."""
    built: list[ModelBuild] = field(init=False, default_factory=list)
    """What became of models since it was last saved; whoever saves empties it."""
    _attempted_at: int = field(init=False, default=0)
    """Where the last rebuild was started."""
    _rebuild: _PendingRebuild | None = field(init=False, default=None)

    def gather(self, rows: FeatureRows, finished: FloatArray, sequences: IntArray) -> None:
        """Keep rows without learning them; their sequences may have gaps. ``finished`` is when
        their jobs ended, in days."""
        self.replay.add(rows, sequences, finished)

    def _gathered(self, rows: FeatureRows, finished: FloatArray, sequence: int) -> ReplaySample:
        new = ReplaySample(rows, np.arange(sequence - len(rows) + 1, sequence + 1), finished)
        self.replay.add(new.rows, new.sequences, new.finished)
        return new

    def learn(
        self, rows: FeatureRows, finished: FloatArray, sequence: int, waiting: int = 0
    ) -> bool:
        """Let the model learn rows, the last of which is ``sequence``; says whether it was
        replaced. So many observations are ``waiting`` to be learned after them: when a fit is worth
        its time depends on that."""
        new = self._gathered(rows, finished, sequence)
        if self.model is None:
            return self._fit_now(sequence, "first")
        if (
            sequence <= SMALL
            and self._has_grown(sequence, waiting)
            and self._fit_now(sequence, "grown")
        ):
            return True
        heard = self._heard(new)
        if self._rebuild is not None:
            self._meet(self._rebuild, rows, heard, sequence)
        self.model.update(*heard, sequence)
        replaced = False
        if self._rebuild is not None and sequence >= self._rebuild.decide_at:
            replaced = self._decide(self._rebuild, sequence)
            if len(rows) <= SWAP_AFTER:
                return replaced
            # Of a backlog the next portion may be the last one: a rebuild that is due begins now.
        if self._rebuild is None and self._has_grown(sequence, waiting):
            self._start(sequence, "grown", SWAP_AFTER)
        return replaced

    def take_back(self, earlier: Sequence[int], sequence: int, *, whole: bool = False) -> list[int]:
        """Learn anew, on what is known at ``sequence``, without the scores of earlier
        observations, or with ``whole`` without all that they say; returns those of which that was
        done. Only while a fit is quick."""
        if sequence > SMALL or self.pinned:
            return []
        forgotten = [place for place in earlier if self.replay.forget_score(place, whole=whole)]
        if forgotten and self.model is not None:
            self._fit_now(sequence, "grown")
        return forgotten

    def catch_up(self, sequence: int) -> None:
        """Fit on what was gathered up to ``sequence``, for a new generation."""
        self._fit_now(sequence, "generation")

    def begin(self, regime: Regime, sequence: int) -> bool:
        """Jobs behave differently since a while: rebuild with the new regime in front, now or
        aside. Says whether a checkpoint is due: updates count otherwise from here on.

        A rebuild under way is given up for it. A pinned model learns on, with the new jobs in
        front, and stays.
        """
        self.regimes = (*self.regimes, regime)[-MOST_REGIMES:]
        if self.model is None:
            return False
        if self.pinned or (sequence <= SMALL and self._fit_now(sequence, "drift")):
            return True
        self._start(sequence, "drift", SOON)
        return True

    def take_up(self, model: StudyModel, why: Why, sequence: int, *, pinned: bool) -> None:
        """Put an earlier model of this generation in place and let it learn what it has missed,
        as far as that is among the latest jobs. A rebuild under way is given up."""
        self._rebuild = None
        self.model, self.pinned = model, pinned
        missed = self.replay.since(model.learned)
        if len(missed.rows):
            model.update(*self._heard(missed), sequence)
        self.built.append(ModelBuild(why, model.fitted_at, sequence, took_over=True))

    def pin(self) -> None:
        """Keep the model that serves, whatever comes; it learns on."""
        self._rebuild, self.pinned = None, True

    # -- fitting ----------------------------------------------------------------------------

    def _fit_now(self, sequence: int, why: Why) -> bool:
        rows = self._all()
        scored, failed = int(np.isfinite(rows.score).sum()), int((rows.ran == 0).sum())
        if scored < FIRST_FIT and (scored < FIRST_RUNS or failed < FIRST_FIT):
            return False
        try:
            self.model, self._rebuild = self._fit(rows, sequence), None
        except Exception as error:
            if self.model is None:
                raise  # there is nothing to go on with
            self._attempted_at = sequence
            self._fail(why, sequence, sequence, error)
            return False
        self.built.append(ModelBuild(why, sequence, sequence, took_over=True))
        return True

    def _fail(self, why: Why, fitted_at: int, at: int, error: Exception) -> None:
        text = "".join(traceback.format_exception(error)).strip()
        self.built.append(ModelBuild(why, fitted_at, at, took_over=False, failed=text))

    def _fit(self, rows: FeatureRows, at: int) -> StudyModel:
        return StudyModel.fit(self.study, self.features, rows, at)

    def _all(self) -> FeatureRows:
        """What a fit sees, by when the jobs ended: an import that comes late is no news."""
        return self._counted(self.replay.sample().by_time())

    def _heard(self, new: ReplaySample) -> _UpdateRows:
        """What an update sees: new rows, and the window that includes them."""
        return _UpdateRows(self._counted(new), self._counted(self.replay.recent(RECENT)))

    def _counted(self, sample: ReplaySample) -> FeatureRows:
        """The rows that count, and what they count by now."""
        history, now = self.study.history, self.replay.now
        inside = np.flatnonzero(within(sample, history, now))
        return faded(sample, history, self.regimes, now).take(inside)

    def fit_at(self, sequence: int, fetch: Fetch) -> StudyModel:
        """The model that a rebuild on what was known at ``sequence`` makes: for deriving again
        what it said. Of a training that has learned nothing."""
        self._refill(sequence, fetch)
        return self._fit(self._all(), sequence)

    def _has_grown(self, sequence: int, waiting: int) -> bool:
        if self.pinned:
            return False
        fitted_at = self.model.fitted_at if self.model else 0
        attempted = max(fitted_at, self._attempted_at)
        grown = sequence - attempted
        if waiting > _lasts(sequence):
            return grown >= max(FIRST_FIT, BACKLOG_GROWTH * attempted)
        return grown >= _lasts(attempted)

    # -- champion and challenger ------------------------------------------------------------

    def _start(self, at: int, why: Why, jobs: int) -> None:
        """Begin a rebuild on what is known at ``at``, to be decided after so many more jobs."""
        future = self.background.submit(_challenger, self._fit, self._all(), at)
        self._rebuild = _PendingRebuild(at, at + jobs, why, future, NOTHING, [])
        self._attempted_at = at

    def _meet(
        self, rebuild: _PendingRebuild, rows: FeatureRows, heard: _UpdateRows, sequence: int
    ) -> None:
        """Let both predict rows that neither has learned; the challenger learns them, too."""
        assert self.model is not None
        rebuild.told = rebuild.told.concat(self.model.predictor.predict(rows)).last(LATEST)
        self._follow(rebuild, rows, heard, sequence)

    def _follow(
        self, rebuild: _PendingRebuild, rows: FeatureRows, heard: _UpdateRows, sequence: int
    ) -> None:
        before = rebuild.future
        rebuild.future = self.background.submit(_meet, before, rows, heard, sequence)
        rebuild.ends.append(sequence)

    def _decide(self, rebuild: _PendingRebuild, sequence: int) -> bool:
        self._rebuild = None
        try:
            challenger = rebuild.future.result()
        except Exception as error:
            self._fail(rebuild.why, rebuild.started_at, sequence, error)
            return False
        took_over = self._contest(rebuild, challenger)
        self.built.append(
            ModelBuild(rebuild.why, rebuild.started_at, sequence, took_over.won, took_over)
        )
        if took_over.won:
            self.model = challenger.model
        return took_over.won

    def _contest(self, rebuild: _PendingRebuild, challenger: _CandidateModel) -> ModelComparison:
        """Compare the two on the jobs since that speak of today: old ones, told late, would be for
        the model that still goes by their like."""
        met = self.replay.since(rebuild.started_at)
        history, now = self.study.history, self.replay.now
        counts = faded(met, history, self.regimes, now).counts
        today = np.flatnonzero(within(met, history, now) & (counts >= FAINT))
        jobs = met.rows.take(today)
        both = (rebuild.told.last(len(met.rows)), challenger.told.last(len(met.rows)))
        predictions = both[0].take(today), both[1].take(today)
        return contest(jobs.context_key, jobs.score, *predictions)

    # -- keeping ----------------------------------------------------------------------------

    def dump(self) -> dict[str, object]:
        """Everything but the model and :attr:`built`, as JSON values; see :meth:`restore`."""
        return {
            "pinned": self.pinned,
            "regimes": [regime.dump() for regime in self.regimes],
            "attempted_at": self._attempted_at,
            "rebuild": self._rebuild.dump() if self._rebuild else None,
        }

    def restore(
        self,
        state: Mapping[str, Any],
        parts: Mapping[str, bytes] | None,
        steps: Iterable[tuple[int, int]],
        last: int,
        fetch: Fetch,
    ) -> None:
        """Become, up to observation ``last``, exactly what gave ``state``.

        ``parts`` is the last checkpoint of the model (:meth:`StudyModel.dump`), None if there was
        none; ``steps`` are the (first, last) sequences of the steps, oldest first, of which those
        after the checkpoint are learned again. A comparison under way is made again as it went.
        """
        self.pinned = state["pinned"]
        self.regimes = tuple(map(Regime.load, state["regimes"]))
        self._attempted_at = state["attempted_at"]
        if parts is None:
            self._refill(last, fetch)
            return
        self.model = model = StudyModel.load(self.study, self.features, parts)
        behind = model.learned
        fresh = (step for step in steps if step[0] > behind)
        ends = [end for step in fresh for _, end in portions(*step, PORTION_MOST)]
        ends = [end for end in ends if end <= last]
        under_way: Mapping[str, Any] | None = state["rebuild"]
        if under_way is None:
            self._refill(behind, fetch)
        else:
            # What came before the checkpoint is not learned again by the champion, but the
            # challenger, which is in no checkpoint, meets it again.
            self._refill(min(behind, under_way["started_at"]), fetch)
            ends = sorted({*ends, *under_way["ends"]} | {under_way["started_at"]})
        at = min(behind, under_way["started_at"]) if under_way else behind
        for end in ends:
            if end > at:
                observations = fetch(range(at + 1, end + 1))
                rows = self.features.rows(observations)
                heard = self._heard(self._gathered(rows, days(observations), end))
                if end > behind:
                    model.update(*heard, end)
                if self._rebuild is not None:
                    self._follow(self._rebuild, rows, heard, end)
                at = end
            if under_way is not None and end == under_way["started_at"]:
                self._start(end, under_way["why"], under_way["decide_at"] - end)
        if model.learned != last:
            raise ValueError(f"steps lead to {model.learned}, not to {last}")
        if under_way is not None:
            assert self._rebuild is not None
            self._rebuild.told = Predictions.of_scores(
                np.array(under_way["mean"]), np.array(under_way["spread"])
            )

    def _refill(self, sequence: int, fetch: Fetch) -> None:
        """Fill the replay as it was at a sequence."""
        sequences = sequences_at(sequence)
        observations = fetch(sequences.tolist()) if len(sequences) else []
        if observations:
            there = np.array([job.sequence for job in observations])
            self.replay.add(self.features.rows(observations), there, days(observations))


def _lasts(fitted_at: int) -> float:
    """Observations after which a fit is followed by the next one."""
    return max(FIRST_FIT, min(GROWTH * fitted_at, MAX_GROWTH))


NOTHING = Predictions.of_scores(np.empty(0), np.empty(0))


def _challenger(
    fit: Callable[[FeatureRows, int], StudyModel], rows: FeatureRows, at: int
) -> _CandidateModel:
    return _CandidateModel(fit(rows, at), NOTHING)


def _meet(
    before: "Future[_CandidateModel]", rows: FeatureRows, heard: _UpdateRows, sequence: int
) -> _CandidateModel:
    return before.result().meet(rows, heard, sequence)


def portions(first: int, last: int, most: int | None = None) -> Iterator[tuple[int, int]]:
    """First and last sequence of what is learned together of the observations of a step, ``most``
    at a time."""
    while first <= last:
        size = max(PORTION, (first - 1) // 4)
        end = min(first - 1 + (size if most is None else min(size, most)), last)
        yield first, end
        first = end + 1
