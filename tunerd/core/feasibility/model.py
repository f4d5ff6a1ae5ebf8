"""The probability that a configuration runs at all in a context.

Two steps. A classifier over everything that was tried anywhere, trees and a line on the same
columns as the predictor's, says what to expect (the share that runs, smoothed, until there is a
failure and a success, in one context alone a few of both). There a configuration counts once,
however often it ran. Then the context's own outcomes near the configuration correct it, at once and
at constant cost. A failure of unknown cause is believed as far as bad luck is the less likely
reason: as it repeats, here or with what configurations have in common, and while those that ran
before go on to run.

A guard's metric says more than whether its bound held: how far it stayed within is learned like a
speed, by a Gaussian process, because memory and its like are smooth in what is tuned. So what comes
near a bound is known before any job has broken it. That a configuration stays within and that it
runs otherwise are taken to be independent: their probabilities are multiplied.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from scipy.special import ndtr

from tunerd.core.arrays import FloatArray, IntArray, places_of
from tunerd.core.estimators.codec import seal_headed, seal_json, unseal_headed, unseal_json
from tunerd.core.estimators.local_history import familiar
from tunerd.core.estimators.sharded_state import ShardedState
from tunerd.core.feasibility.classifier import FeasibilityClassifier
from tunerd.core.feasibility.context_outcomes import (
    CHANCE,
    ConfigOutcomes,
    ContextOutcomes,
    share_of,
)
from tunerd.core.features import FeatureMap, FeatureRows
from tunerd.core.predictors.gaussian_process import GaussianProcess
from tunerd.core.study import Study

__all__ = ["FeasibilityModel"]

TRIED = "tried."
"""What the names of the blobs with the contexts' outcomes begin with."""
MAX_TRIED = 10_000
"""Configurations kept over all contexts; the contexts whose last job is oldest go first."""
SLOW = 20.0
"""Jobs that draw the classifier to the plain share."""
FEW = 1.0
"""Failures, and successes, below which there is nothing to tell apart. One failure among thirty
jobs tells in which direction it lies, and other contexts know nothing else …"""
FEW_ALONE = 5.0
"""… and in one context alone, whose outcomes speak for their neighbours without a classifier: it is
there to carry what they say to other contexts."""
LATELY = 0.1
"""Share of the latest job in how many fail that ran before: where ten of these fail in a row, it is
not what others run that fails them."""
FEW_MARGINS = 5
"""Jobs that reported a guard's metric below which nothing is made of it."""


class GuardMarginGP(GaussianProcess):
    """How far jobs stay within their guards. A search asks it of every candidate, and a probability
    takes fewer rows than a speed: half of them are as good (``benchmarks.running``)."""

    kept_rows = 500


class FeasibilityModel:
    """Learns whether configurations run. Deterministic for its rows and seed."""

    def __init__(self, features: FeatureMap) -> None:
        self._features = features
        self._boundary: FeasibilityClassifier | None = None
        self._margin: GuardMarginGP | None = None
        """Predicts how far jobs stay within their guards."""
        self._fitted_on = 0.0
        """Weight of the rows behind the classifier."""
        self._ran, self._said = 0.0, 0.0
        """Weight of the jobs that ran, and of those that say anything about it, without those whose
        margin says why they did not."""
        self._failing = 0.0
        """Share of the latest jobs of configurations that had run which failed, and nobody knows
        why."""
        self._contexts: ShardedState[ContextOutcomes] = ShardedState()
        self._tried = 0

    @classmethod
    def fit(cls, study: Study, features: FeatureMap, rows: FeatureRows, seed: int) -> Self:
        """Build from scratch on a bounded sample, in the order in which it was learned. Pure."""
        model = cls(features)
        model._learn(rows)
        known = rows.take(np.flatnonzero(np.isfinite(rows.ran)))
        margins = _margins(rows)
        if len(margins) >= FEW_MARGINS:
            model._margin = GuardMarginGP.fit(study, features, margins, seed)
        where, weight = _once(known, model._firmness(known))
        known = known.take(where)
        model._count(known, weight)
        usable = weight > 0
        ran, jobs = float(weight @ known.ran), float(weight.sum())
        needed = FEW if len(set(known.context_key)) > 1 else FEW_ALONE
        if min(ran, jobs - ran) >= needed:
            model._boundary = FeasibilityClassifier.fit(
                known.X[usable],
                known.ran[usable],
                weight[usable],
                features.categories,
                [known.context_key[i] for i in np.flatnonzero(usable).tolist()],
                seed,
            )
            model._fitted_on = jobs
        model._expect(known)
        return model

    def update(self, rows: FeatureRows, recent: FeatureRows) -> None:
        """Learn new rows at constant cost: the classifier waits for the next fit, the context's
        own outcomes and the margins do not. ``recent`` is the window that includes ``rows``."""
        if self._margin is not None:
            self._margin.update(_margins(rows), _margins(recent))
        news = self._news(rows)
        self._learn(rows)
        known = rows.take(np.flatnonzero(np.isfinite(rows.ran)))
        self._expect(known)
        first = rows.take(news)
        self._count(first, self._firmness(first))

    def predict(self, rows: FeatureRows) -> FloatArray:
        """Probability to run, (n,) in [0, 1]. Looks at ``X`` and ``context_key`` only."""
        expected, share = self._expected(rows), share_of(self._ran, self._said - self._ran)
        points = self._features.coordinates(rows.X)
        for key, where in places_of(rows.context_key).items():
            tried = self._contexts.get(key)
            if tried is not None:
                expected[where] = tried.correct(
                    points[where], expected[where], share, classified=self._boundary is not None
                )
        return np.clip(expected, 0.0, 1.0)

    def dump(self) -> dict[str, bytes]:
        """State as named blobs, no pickle."""
        state: dict[str, Any] = {
            "columns": [c.name for c in self._features.columns],
            "fitted_on": self._fitted_on,
            "ran": self._ran,
            "said": self._said,
            "failing": self._failing,
            "contexts": len(self._contexts),
        }
        blobs = self._contexts.dump(TRIED, _pack)
        if self._boundary is not None:
            forests, state["boundary"] = self._boundary.dump()
            blobs |= forests
        if self._margin is not None:
            margin = self._margin.dump()
            blobs |= {f"margin.{name}": blob for name, blob in margin.items()}
            state["margin"] = True
        blobs["state"] = seal_json(state)
        return blobs

    @classmethod
    def load(cls, study: Study, features: FeatureMap, blobs: Mapping[str, bytes]) -> Self:
        """Build from what :meth:`dump` gave.

        Raises:
            ValueError: the blobs are damaged, or were made for other columns than ``features``.
        """
        if "state" not in blobs:
            raise ValueError("damaged model: parts are missing; fit it again")
        state = unseal_json(blobs["state"])
        if state["columns"] != [c.name for c in features.columns]:
            raise ValueError(f"this model is of another generation of {study.name}; fit it again")
        model = cls(features)
        if "boundary" in state:
            model._boundary = FeasibilityClassifier.load(blobs, state["boundary"])
        if "margin" in state:
            margin = {k.partition(".")[2]: v for k, v in blobs.items() if k.startswith("margin.")}
            model._margin = GuardMarginGP.load(study, features, margin)
        model._fitted_on, model._ran = state["fitted_on"], state["ran"]
        model._said, model._failing = state["said"], state["failing"]
        model._contexts = ShardedState.load(blobs, TRIED, _unpack)
        if len(model._contexts) != state["contexts"]:
            raise ValueError("damaged model: some contexts' outcomes are missing; fit it again")
        model._tried = sum(len(tried.outcomes) for tried in model._contexts.values())
        return model

    def _expected(self, rows: FeatureRows) -> FloatArray:
        """(n,) before the context's own outcomes near each row."""
        expected = np.full(len(rows), share_of(self._ran, self._said - self._ran))
        if self._boundary is not None:
            trust = self._fitted_on / (self._fitted_on + SLOW)
            likely = self._boundary.predict(
                rows.X, rows.context_key, self._familiar(rows.context_key)
            )
            expected = trust * likely + (1.0 - trust) * expected
        if self._margin is not None and len(rows):
            margin = self._margin.predict(rows)
            expected *= ndtr(margin.mean / margin.std)
        return expected

    def _count(self, said: FeatureRows, weight: FloatArray) -> None:
        """Note how many ran of jobs that say whether they did. What its margin explains is no news
        of other causes: counted here as well, every configuration would pay for it."""
        if self._margin is not None:
            weight = np.where(said.margin < 0.0, 0.0, weight)
        self._ran += float(weight @ said.ran)
        self._said += float(weight.sum())

    def _news(self, rows: FeatureRows) -> IntArray:
        """Places of the first outcomes of configurations: the next fit sees the others."""
        news: dict[tuple[str, bytes], int] = {}
        for i, point in self._points(rows):
            tried = self._contexts.get(rows.context_key[i])
            if tried is None or point not in tried.outcomes:
                news.setdefault((rows.context_key[i], point), i)
        return np.array(list(news.values()), np.intp)

    def _familiar(self, keys: Sequence[str]) -> FloatArray:
        """(n,) how well each row's context is known, 0 to 1."""
        tried = {key: self._contexts.get(key) for key in dict.fromkeys(keys)}
        jobs = {
            key: 0 if outcomes is None else len(outcomes.outcomes)
            for key, outcomes in tried.items()
        }
        return familiar(np.array([jobs[key] for key in keys]))

    def _expect(self, rows: FeatureRows) -> None:
        """Note what the classifier says of configurations that were just tried: only what it
        does not explain is told to their neighbours."""
        if not len(rows) or (self._boundary is None and self._margin is None):
            return
        expected = self._expected(rows).tolist()
        for i, point in self._points(rows):
            tried = self._contexts.get(rows.context_key[i])
            if tried is not None:  # else it fell out: more was tried than is kept
                tried.expect(point, expected[i])

    def _learn(self, rows: FeatureRows) -> None:
        for i, point in self._points(rows):
            key = rows.context_key[i]
            tried = self._contexts.get(key) or ContextOutcomes()
            self._contexts.put(key, tried)
            self._tried -= len(tried.outcomes)
            ran, firm = rows.ran[i] > 0, rows.ran_weight[i] >= 1.0
            before = tried.outcomes.get(point)
            if before is not None and before.yes > 0.0 and (ran or not firm):
                self._failing += LATELY * (float(not ran) - self._failing)
            tried.add(point, ran, firm, max(CHANCE, self._failing))
            self._tried += len(tried.outcomes)
            while self._tried > MAX_TRIED and len(self._contexts) > 1:
                self._tried -= len(self._contexts.drop_first().outcomes)

    def _firmness(self, rows: FeatureRows) -> FloatArray:
        """(n,) how firmly each outcome is believed, with all that is known by now."""
        weight = rows.ran_weight.copy()
        weak: dict[str, dict[int, bytes]] = {}
        for i, point in self._points(rows):
            if weight[i] < 1.0:
                weak.setdefault(rows.context_key[i], {})[i] = point
        runs = _shares(rows) if weak else {}
        for key, points in weak.items():
            tried = self._contexts.get(key) or ContextOutcomes()
            weight[list(points)] = tried.believed(points.values(), runs[key])
        return weight

    def _points(self, rows: FeatureRows) -> list[tuple[int, bytes]]:
        where = np.flatnonzero(np.isfinite(rows.ran))
        if not len(where):
            return []
        points = self._features.coordinates(rows.X[where]).astype(np.float32)
        return [(int(i), point.tobytes()) for i, point in zip(where, points, strict=True)]


def _shares(rows: FeatureRows) -> dict[str, float]:
    """Context key → share of its configurations that ran, every failure believed."""
    ran: dict[str, dict[bytes, bool]] = {}
    for (key, config), did_run in zip(rows.names, (rows.ran > 0).tolist(), strict=True):
        there = ran.setdefault(key, {})
        there[config] = there.get(config, False) or did_run
    return {key: share_of(sum(o.values()), len(o) - sum(o.values())) for key, o in ran.items()}


def _once(said: FeatureRows, weight: FloatArray) -> tuple[IntArray, FloatArray]:
    """Places of the first job of each configuration and outcome, and what these count as: a
    configuration once in all, however often it ran. What runs all day says no more of others than
    what ran once, and of what was tried beside it nobody would believe that it fails."""
    first: dict[tuple[tuple[str, bytes], float], int] = {}
    jobs: Counter[tuple[str, bytes]] = Counter()
    total = np.zeros(len(said))
    for i, (name, ran) in enumerate(zip(said.names, said.ran.tolist(), strict=True)):
        jobs[name] += 1
        total[first.setdefault((name, ran), i)] += weight[i]
    where = np.array(list(first.values()), np.intp)
    return where, total[where] / [jobs[name] for name, _ in first]


def _margins(rows: FeatureRows) -> FeatureRows:
    """The rows that reported a guard's metric, with the margin to its bound as their score."""
    known = rows.take(np.flatnonzero(np.isfinite(rows.margin)))
    return replace(known, score=known.margin, weight=np.ones(len(known)))


def _pack(told: Sequence[tuple[str, int, ContextOutcomes]]) -> bytes:
    head = [
        [key, turn, [[o.yes, o.no, o.weak, o.luck, o.expected] for o in tried.outcomes.values()]]
        for key, turn, tried in told
    ]
    points = b"".join(point for _, _, tried in told for point in tried.outcomes)
    return seal_headed(head, points)


def _unpack(blob: bytes) -> Iterator[tuple[str, int, ContextOutcomes]]:
    header, points = unseal_headed(blob)
    width, at = len(points) // sum(len(outcomes) for _, _, outcomes in header), 0
    for key, turn, outcomes in header:
        tried = ContextOutcomes()
        for values in outcomes:
            tried.outcomes[points[at : at + width]] = ConfigOutcomes(*values)
            at += width
        yield key, turn, tried
