"""Where configurations stop running: a straight boundary beside a forest.

What does not fit into memory is a sum that passes a limit, and a sum is what a line in the
logarithms sees with far fewer failures than trees need. Where the boundary is crooked the forest is
better, and where both say the same of many configurations the other one tells them apart. So both
are fitted and their log odds averaged. Choosing how much each counts by rows left out does worse
than one share for all: with few failures it is luck, and of larger jobs than any so far the rows
left out say nothing, where the forest knows nothing and the line does.

Which rows a tree sees is luck as well: of forests that differ in nothing else, one in some sends
the first jobs of a new context to where nothing runs. So three are grown and averaged.

Where a context has few outcomes beside all others', trees split it off where others run, which is
where its failures weigh most: what was most promising there comes last then, and what is hopeless
everywhere is passed over. So they are heard of such a context only as far as its outcomes are many,
and otherwise those are that were fitted without it. Its own outcomes correct these (tried.py).

They are too sure of themselves, most of all in a context that nobody has run yet
(`benchmarks.running`). So rows are left out, and contexts, and what is said of them is recalibrated
(Platt 1999) by what came, each context counting the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import numpy as np
from scipy.special import expit

from tunerd.core.arrays import FloatArray, IntArray
from tunerd.core.estimators.array_state import ArrayState
from tunerd.core.estimators.design import DesignTransform
from tunerd.core.estimators.trees import BoosterEnsemble, TreeDataset, TreeOptions
from tunerd.core.feasibility.log_odds import log_odds

__all__ = ["FeasibilityClassifier", "LogisticRegression"]

PENALTY = 1.0
FOLDS = 3
FOREST = 2 / 3
"""Share of the forests in the average. From .6 to .75 it is all the same."""
FORESTS = 3
"""Side by side, each with its own draws of rows."""
MAX_STEPS = 30
NEW_SLOPE = 0.7
"""By how much log odds are believed in a context that nobody has run, before any was left out."""
SPREAD = (0.3, 0.7)
"""How far slope and shift may be from that, as standard deviations."""
SLOPES = (0.05, 2.5)
"""Between which a slope is chosen."""
CONTEXT = 30.0
"""Jobs that one context counts as at most: more of them say more of it and not of the next one.
Times the share of all jobs by which it was told: what few foretold says little of what all will."""
SUREST = 2.0
"""Odds at which n jobs are heard of another context, at most: n + 1 to this power. Trees that saw
one job are as sure of all others as can be. Heard as sure as that, the first job of a second
context, which gets the first one wrong, took all trust from what that one says of others."""
SCARCE = (60.0, 0.5)
"""A context of which little is known has fewer jobs than this, and than this part of what is usual.
All such together have less than half of the jobs: what is fitted without them has seen the most."""
HALF_HEARD = 10.0
"""Jobs of it with which those that saw them count for half. With twenty known and 3 here, .60 of
what is given .8 runs; with 10, .93; with 60 all, of a fifth as much (``benchmarks.running``)."""


class LogisticRegression(ArrayState, frozen=True, eq=False):
    """Logistic regression with a ridge penalty on a design."""

    design: DesignTransform
    intercept: float
    slopes: FloatArray

    @classmethod
    def fit(
        cls,
        X: FloatArray,
        ran: FloatArray,
        weight: FloatArray,
        categorical: Sequence[float] | FloatArray,
    ) -> "LogisticRegression":
        """Newton's method on (n, F) with outcomes and weights (n,)."""
        design = DesignTransform.fit(X, categorical)
        Z = np.column_stack([np.ones(len(X)), design(X)])
        penalty = np.full(Z.shape[1], PENALTY)
        penalty[0] = 1e-6
        slopes = np.zeros(Z.shape[1])
        for _ in range(MAX_STEPS):
            p = expit(Z @ slopes)
            gradient = Z.T @ (weight * (p - ran)) + penalty * slopes
            curvature = (Z * (weight * p * (1 - p))[:, None]).T @ Z + np.diag(penalty)
            step = np.linalg.solve(curvature, gradient)
            slopes = slopes - step
            if float(np.abs(step).max()) < 1e-6:
                break
        return cls(design, float(slopes[0]), slopes[1:])

    def logit(self, X: FloatArray) -> FloatArray:
        """(n, F) → (n,) log odds to run."""
        return self.intercept + self.design(X) @ self.slopes


@dataclass(frozen=True)
class AveragedClassifier:
    """Forests and line, their log odds averaged."""

    forest: BoosterEnsemble
    line: LogisticRegression

    @classmethod
    def fit(
        cls,
        X: FloatArray,
        ran: FloatArray,
        weight: FloatArray,
        categorical: Sequence[float] | FloatArray,
        seed: int,
    ) -> "AveragedClassifier":
        """Fit on (n, F) with outcomes and weights (n,)."""
        n = len(X)  # capacity grows with the data
        trees, leaves, least = (60, 7, 3) if n < 500 else (60, 15, 3) if n < 1_000 else (100, 31, 5)
        options = TreeOptions(trees, leaves, least, seed, objective="binary")
        data = TreeDataset(X, np.flatnonzero(categorical).tolist(), weight)
        seeds = range(FORESTS * seed, FORESTS * (seed + 1))
        forest = BoosterEnsemble(
            [data.grow(ran, replace(options, seed=number)) for number in seeds]
        )
        return cls(forest, LogisticRegression.fit(X, ran, weight, categorical))

    def __call__(self, X: FloatArray) -> FloatArray:
        """(n, F) → (n,) log odds to run."""
        grown = log_odds(self.forest.predict(X)).mean(axis=1)
        return np.asarray(FOREST * grown + (1.0 - FOREST) * self.line.logit(X), np.float64)

    def dump(self) -> tuple[bytes, dict[str, Any]]:
        """The forest as a blob, the line as JSON values; numbers survive to the last bit."""
        return self.forest.dump(), self.line.dump()

    @classmethod
    def load(cls, forest: bytes, line: Mapping[str, Any]) -> "AveragedClassifier":
        """Build from what :meth:`dump` gave."""
        return cls(BoosterEnsemble.load(forest), LogisticRegression.load(line))


@dataclass(frozen=True)
class PlattScaling:
    """How far an average is believed: log odds = slope * average + shift."""

    slope: float
    shift: float

    def __call__(self, average: FloatArray) -> FloatArray:
        """Log odds (n,) from the average's."""
        return self.slope * average + self.shift

    @classmethod
    def learned(
        cls, average: FloatArray, ran: FloatArray, weight: FloatArray, slope: float
    ) -> Self:
        """Slope and shift of highest posterior on rows that were left out, around ``slope`` and no
        shift. The weights say how many independent jobs there are."""
        Z = np.column_stack([average, np.ones(len(ran))])
        prior, firm = np.array([slope, 0.0]), np.array(SPREAD) ** -2

        def off(at: FloatArray) -> tuple[float, FloatArray]:
            margin, away = Z @ at, at - prior
            loss = weight @ (np.logaddexp(0.0, margin) - ran * margin) + 0.5 * firm @ away**2
            return float(loss), Z.T @ (weight * (expit(margin) - ran)) + firm * away

        from scipy.optimize import minimize  # a fifth of a second, for those whose jobs fail

        # Not by Newton's method: where all that was said is wrong, its steps go ever farther.
        fitted = minimize(off, prior, jac=True, method="L-BFGS-B", bounds=(SLOPES, (None, None)))
        return cls(float(fitted.x[0]), float(fitted.x[1]))


@dataclass(frozen=True)
class FeasibilityClassifier:
    """What everything tried anywhere says, and how far it is believed where."""

    whole: AveragedClassifier
    """Has seen all of it."""
    known: PlattScaling
    """In contexts that have outcomes of their own."""
    new: PlattScaling
    """In contexts that have none."""
    heard: Mapping[str, float]
    """Contexts of which little is known → how far what has seen their outcomes is heard, 0 to 1."""
    others: AveragedClassifier | None
    """Has seen none of these; None where there are none."""

    @classmethod
    def fit(
        cls,
        X: FloatArray,
        ran: FloatArray,
        weight: FloatArray,
        categorical: Sequence[float] | FloatArray,
        keys: Sequence[str],
        seed: int,
    ) -> "FeasibilityClassifier":
        """Fit on (n, F) with outcomes 0 or 1, positive weights, and context keys (n,)."""

        def fitted(where: IntArray) -> AveragedClassifier:
            return AveragedClassifier.fit(X[where], ran[where], weight[where], categorical, seed)

        def left_out(folds: IntArray) -> FloatArray:
            margins = np.zeros(len(X))
            for fold in np.unique(folds):
                there = np.flatnonzero(folds == fold)
                margins[there] = fitted(np.flatnonzero(folds != fold))(X[there])
            return margins

        rng = np.random.default_rng(seed)
        margins = left_out(rng.permutation(len(X)) % FOLDS)
        known = PlattScaling.learned(margins, ran, weight, 1.0)
        new = replace(known, slope=NEW_SLOPE)
        names, context = np.unique(keys, return_inverse=True)
        count = np.bincount(context, weight)
        if len(count) > 1:
            folds = rng.permutation(len(count)) % FOLDS
            margins = left_out(folds[context])
            behind = float(count.sum()) - np.bincount(folds, count)[folds]
            counts_as = np.minimum(count, CONTEXT) * behind / count.sum()
            each = weight * (counts_as / count)[context]
            surest = SUREST * np.log1p(behind)[context]
            new = PlattScaling.learned(np.clip(margins, -surest, surest), ran, each, NEW_SLOPE)
        few, part = SCARCE
        scarce = count < min(few, part * float(np.median(count[context])))
        share = count[scarce] / (count[scarce] + HALF_HEARD)
        heard = dict(zip(names[scarce].tolist(), share.tolist(), strict=True))
        others = fitted(np.flatnonzero(~scarce[context])) if heard else None
        return cls(fitted(np.arange(len(X))), known, new, heard, others)

    def predict(self, X: FloatArray, keys: Sequence[str], known: FloatArray) -> FloatArray:
        """(n, F) in contexts (n,) → (n,) probability to run; ``known`` (n,) says by how much, 0 to
        1, a row's context has outcomes of its own."""
        X_seen = strange = self.whole(X)
        if self.others is not None:
            where = np.flatnonzero([key in self.heard for key in keys])
            if len(where):
                strange, known = X_seen.copy(), known.copy()
                strange[where] = self.others(X[where])
                known[where] = [self.heard[keys[i]] for i in where.tolist()]
        probability: FloatArray = known * expit(self.known(X_seen))
        probability += (1.0 - known) * expit(self.new(strange))
        return probability

    def dump(self) -> tuple[dict[str, bytes], dict[str, Any]]:
        """The forests as named blobs, the rest as JSON values."""
        forest, line = self.whole.dump()
        blobs, state = {"forest": forest}, {"line": line, "heard": dict(self.heard)}
        if self.others is not None:
            blobs["others"], state["others"] = self.others.dump()
        return blobs, state | {"known": asdict(self.known), "new": asdict(self.new)}

    @classmethod
    def load(cls, blobs: Mapping[str, bytes], state: Mapping[str, Any]) -> "FeasibilityClassifier":
        """Build from what :meth:`dump` gave.

        Raises:
            ValueError: another version of tunerd gave it, or a part is missing.
        """
        try:
            known, new, heard = (
                PlattScaling(**state["known"]),
                PlattScaling(**state["new"]),
                state["heard"],
            )
            whole = AveragedClassifier.load(blobs["forest"], state["line"])
            others = AveragedClassifier.load(blobs["others"], state["others"]) if heard else None
        except (KeyError, TypeError):
            raise ValueError("this model is of another version of tunerd; fit it again") from None
        return cls(whole, known, new, heard, others)
