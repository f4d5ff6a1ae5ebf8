"""Bands that hold what they promise: the predictor's spread, sized by what came of its bands.

A predictor's spread says where predictions are surer than elsewhere; how sure they are in all is
read off the jobs. Each job gives one *size*, ``|score - mean| / (Φ⁻¹(0.9) · spread)``: at most 1
inside the band. The 80 % quantile of sizes is followed, in logarithms, and every spread multiplied
by it (conformal prediction, adapting online). It is the product of

- one factor for each *standing* a job can have: in a context that nobody has run, in one with a
  few jobs, a new configuration in a context that is known, a configuration that ran there before.
  Most jobs repeat one, and a single factor would hold for those alone, while recommendations are
  mostly new. Followed by DtACI (Gibbs & Candès, arXiv 2208.08401): several rates at once, weighted
  by how well each did lately, so that it is calm in quiet times and quick after a change;
- one factor for each context, drawn to 1, so that a new context starts from the study's.

After an alarm (drift) the context's last :data:`LATEST` residuals shift the mean by
``Σ residual / (n + 3)``, and widen the band by as much as they are larger than expected, until they
are as usual again.

Jobs that come together are told one by one: each by bands that know what came of those before it,
though the model knows of none. So it makes no difference how many come at once.

Before there are live predictions, the factors are those of jobs that a fit left out
(:mod:`tunerd.core.predictors.out_of_fold`). When another model takes over, its spreads are in other
units, and factors move by half of what these say of that. All of it is in units of the predictor's
spread: scores may be multiplied and shifted at will. Cost per job and state are constant.
"""

import math
from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Literal, Self

import numpy as np
from msgspec import field, structs

from tunerd.core.arrays import BoolArray, FloatArray
from tunerd.core.saved_state import SavedState

__all__ = ["BAND", "HALF", "STANDINGS", "ConformalBands", "Standing"]

BAND = 0.8
"""Share of jobs that a band is to hold."""
HALF = NormalDist().inv_cdf((1 + BAND) / 2)
"""Half width of the band in spreads."""

Standing = Literal["strange", "early", "new", "tried"]
STANDINGS: tuple[Standing, ...] = ("strange", "early", "new", "tried")
"""Of a job: its context has no jobs; has fewer than :data:`KNOWN`, and none of its configuration;
is known, but not with this configuration; has jobs of this very configuration."""
KNOWN = 5
"""Jobs with which a context is known."""
RATES = (0.005, 0.02, 0.08, 0.3)
TRACKERS = len(RATES) + 1
"""How far a factor's logarithm moves at a job, for each of the trackers that are blended. The first
remembers hundreds of jobs, the last ten."""
WINDOW = 15
"""One more tracker says the quantile of so many latest jobs: the others step down slowly after a
model has learned what changed."""
SURENESS = 3.0
"""How much a tracker that did better is preferred (η in the paper)."""
SHARED = 0.05
"""Weight that each job hands round, so that every tracker may come back (σ there)."""
STEADY = 0.01
"""Rate at which what is blended is itself held to 80 %: a blend of quantiles lies a little low."""
FIRST_JOBS = 5
"""At its n-th job a tracker moves by at least 1 / (n + 5): it settles before it is calm."""
CONTEXT_RATE = 0.08
FORGETTING = 0.005
"""Share of a context's own factor that a job takes away."""
HURRIED = 0.1
"""… after an alarm, which widens bands by itself."""
RELEARNED = 0.5
"""What is left of a context's own factor when a model takes over after an alarm."""
LATEST = 5
"""Residuals of a context that an alarm looks at. The model learns meanwhile: with ten, those from
before it did made bands wide that need not be."""
SHRINKAGE = 2
"""Jobs without a residual that they are joined by."""
WILDEST = 10.0
"""Half widths at which a single residual is cut off."""
HUGE = 1e140
"""Numbers are taken to lie below, spreads above its inverse: what is made of them stays finite."""
LARGEST = 7.0
"""Bound of a factor's logarithm: a factor of a thousand."""
TRUST = 20
"""Jobs that what the first fit left out counts as, at most."""
RESCALED = 0.5
"""How far factors move from what one fit left out to what the next one did. These are quantiles of
tens of jobs: not all of the difference is one of the models."""
MAX_CONTEXTS = 1_000
"""Contexts kept, the latest ones; others are as if nobody had run them."""
MEAN_SIZE = 0.8 / HALF
"""Mean size of a job whose band is right."""


class QuantileTracker(SavedState, array_like=True):
    """Follows the 80 % quantile of a stream of numbers: DtACI with quantiles for levels."""

    values: list[float] = field(default_factory=lambda: [0.0] * TRACKERS)
    weights: list[float] = field(default_factory=lambda: [1.0 / TRACKERS] * TRACKERS)
    steady: float = 0.0
    """Added to the blend."""
    jobs: int = 0
    """That it has settled on."""
    latest: list[float] = field(default_factory=list)
    left_out: float | None = None
    """What the jobs say that the fit of the present model left out; None before the first."""

    @property
    def value(self) -> float:
        """The quantile as far as is known."""
        blend = sum(w * v for w, v in zip(self.weights, self.values, strict=True))
        return blend + self.steady

    def learn(self, number: float, *, inside: bool) -> None:
        """See the next number, and whether it was at most what was said of it."""
        off = [number - self.steady - value for value in self.values]
        self.steady = _bounded(self.steady + STEADY * (BAND - inside))
        losses = [BAND * x if x > 0 else (BAND - 1.0) * x for x in off]
        liked = [
            w * math.exp(-SURENESS * loss) for w, loss in zip(self.weights, losses, strict=True)
        ]
        total = sum(liked)
        self.weights = [(1 - SHARED) * w / total + SHARED / TRACKERS for w in liked]
        self.jobs += 1
        least = 1.0 / (self.jobs + FIRST_JOBS)
        self.latest = [*self.latest[1 - WINDOW :], _short(number - self.steady)]
        self.values = [
            *(
                _bounded(v + max(rate, least) * (BAND if x > 0 else BAND - 1.0))
                for v, rate, x in zip(self.values[:-1], RATES, off[:-1], strict=True)
            ),
            self._of_latest(),
        ]

    def _of_latest(self) -> float:
        """Their quantile, as one more of them would be held by."""
        n = len(self.latest)
        if n < WINDOW:
            return self.values[-2]
        return _bounded(sorted(self.latest)[math.ceil(BAND * (n + 1)) - 1])

    def start(self, value: float, jobs: int) -> None:
        """Another model took over, whose fit left jobs out that say ``value``. Of the first, join
        that as if it came from so many jobs; with another model all numbers are in other units."""
        if self.left_out is None:
            jobs = min(jobs, TRUST)
            share = jobs / (jobs + self.jobs) if jobs else 0.0
            self.values = [_bounded(v + share * (value - self.value)) for v in self.values]
            self.jobs = max(self.jobs, jobs)
        else:
            moved = RESCALED * (value - self.left_out)
            self.values = [_bounded(v + moved) for v in self.values]
            self.latest = [_short(x + moved) for x in self.latest]
        self.left_out = value


class _ContextBands(SavedState, array_like=True):
    """What is known of the bands in one context."""

    jobs: int = 0
    """With a score, predicted or not."""
    factor: float = 0.0
    """Logarithm of its own factor."""
    alarmed: bool = False
    latest: list[tuple[float, float, bool]] = field(default_factory=list)
    """Of the latest jobs: residual, half width as the model's own spread has it, and whether the
    configuration was tried before."""


class ConformalBands(SavedState):
    """Bands of one study. Deterministic; survives the models."""

    factors: dict[Standing, QuantileTracker] = field(
        default_factory=lambda: {name: QuantileTracker() for name in STANDINGS}
    )
    contexts: dict[str, _ContextBands] = field(default_factory=dict)
    """By key, the one with the latest job at the end."""
    everywhere: bool = False
    """Whether there is an alarm in all contexts."""

    def adjusted(
        self, keys: Sequence[str], mean: FloatArray, spread: FloatArray, tried: BoolArray
    ) -> tuple[FloatArray, FloatArray]:
        """What to say of n jobs: (n,) mean and (n,) spread such that mean ± Φ⁻¹(0.9) · spread holds
        80 %.

        Args:
            keys: of their contexts.
            mean: as the model predicts it.
            spread: likewise.
            tried: whether the job's configuration ran in its context before.
        """
        names = list(dict.fromkeys(keys))
        place = {name: i for i, name in enumerate(names)}
        factors = [self._in_context(name) for name in names]
        at = (
            np.zeros(len(keys), np.intp)
            if len(names) == 1
            else np.array([place[key] for key in keys], np.intp)
        )
        factor = np.array([context.factors for context in factors]).reshape(-1, 2)
        shift = np.array([context.shift for context in factors])
        return mean + shift[at], spread * factor[at, tried.astype(np.intp)]

    def learn(
        self,
        keys: Sequence[str],
        mean: FloatArray | None,
        spread: FloatArray | None,
        score: FloatArray,
        tried: BoolArray,
    ) -> tuple[FloatArray, FloatArray]:
        """Learn what came of n jobs, in their order.

        The model predicted all of them at once. Bands move with each, so that a thousand jobs that
        come together are held as well as the same jobs one by one. What a job is to the model (of
        a new context, of a known configuration) is what it was before the first.

        Args:
            keys: of their contexts.
            mean: as the model predicted it; None for jobs that nobody predicted, which make their
                contexts known.
            spread: likewise.
            score: what came; a job without one (NaN) teaches nothing.
            tried: whether the job's configuration ran in its context before.

        Returns:
            (n,) mean and (n,) spread as they were said of each job, before what came of it was
            learned; NaN for jobs that nobody predicted.
        """
        n = len(keys)
        mean = np.full(n, math.nan) if mean is None else mean
        spread = np.full(n, math.nan) if spread is None else spread
        novelty = {key: self._novelty(key) for key in dict.fromkeys(keys)}
        said_mean, said_spread = mean.copy(), spread.copy()
        jobs = zip(mean.tolist(), spread.tolist(), score.tolist(), tried.tolist(), strict=True)
        for i, (key, (expected, sd, came, again)) in enumerate(zip(keys, jobs, strict=True)):
            predicted = math.isfinite(expected) and math.isfinite(sd)
            band = self._in_context(key, novelty[key]) if predicted else None
            if band is not None:
                said_mean[i] = expected + band.shift
                said_spread[i] = sd * band.factors[again]
            if not math.isfinite(came):
                continue
            context = self.contexts.pop(key, None) or _ContextBands()
            self.contexts[key] = context
            if band is not None:
                self._learn(context, band, came - expected, sd, again)
            context.jobs += 1
        while len(self.contexts) > MAX_CONTEXTS:
            del self.contexts[next(iter(self.contexts))]
        return said_mean, said_spread

    def start(self, sizes: Mapping[Standing, tuple[float, int]]) -> None:
        """Another model took over. ``sizes`` are what its fit left out: for each standing the 80 %
        quantile of sizes there, and the jobs that it counts as. The first joins what live jobs say;
        later ones tell in what units spreads are from now on. What was off by the former model
        after an alarm says nothing of this one."""
        for standing, (size, jobs) in sizes.items():
            self.factors[standing].start(_bounded(math.log(max(size, 1e-9))), jobs)
        for context in self.contexts.values():
            if context.alarmed or self.everywhere:
                context.latest = []
                context.factor *= RELEARNED

    def alarm(self, keys: Collection[str] | None = None) -> None:
        """Jobs behave differently: in these contexts, or everywhere."""
        if keys is None:
            self.everywhere = True
        for key in keys or ():
            if key in self.contexts:
                self.contexts[key].alarmed = True

    def calm(self, keys: Collection[str] | None = None) -> None:
        """It is over: in these contexts, or everywhere."""
        if keys is None:
            self.everywhere = False
        for key in self.contexts if keys is None else keys:
            if key in self.contexts:
                self.contexts[key].alarmed = False

    def factor(self, standing: Standing) -> float:
        """What spreads are multiplied by, contexts apart."""
        return math.exp(self.factors[standing].value)

    def _novelty(self, key: str) -> Standing:
        """Standing of a configuration that did not run in this context before."""
        context = self.contexts.get(key)
        if context is None or context.jobs == 0:
            return "strange"
        return "new" if context.jobs >= KNOWN else "early"

    def _in_context(self, key: str, fresh: Standing | None = None) -> "_BandFactors":
        """What bands are in a context by now, where configurations that did not run there before
        have the standing ``fresh``; None for what it is by now."""
        fresh = fresh or self._novelty(key)
        if fresh == "strange":
            both = (fresh, self.factors[fresh].value)
            return _BandFactors(both, both)
        context = self.contexts.get(key)
        if context is None:  # it fell out: there are more than are kept
            context = _ContextBands()
        band = _BandFactors(
            (fresh, self.factors[fresh].value),
            ("tried", self.factors["tried"].value),
            context.factor,
        )
        if context.alarmed or self.everywhere:
            return _alarmed(band, context.latest)
        return band

    def _learn(
        self, context: _ContextBands, said: "_BandFactors", off: float, sd: float, again: bool
    ) -> None:
        """Learn one job, its residual and its spread by the model; ``said`` is what was said when
        it was predicted."""
        standing, value = said.tried if again else said.fresh
        half = HALF * min(max(sd, 1.0 / HUGE), HUGE)
        off = min(max(off, -HUGE), HUGE)
        left = abs(off - said.shift)
        # Three e-folds from the band a number says no more than that it is outside, or well inside.
        size = math.log(max(left / half, 1.0 / HUGE)) - value - said.own - said.wider
        size = min(max(size, -3.0), 3.0)
        self.factors[standing].learn(value + size, inside=size <= 0)
        if standing != "strange":  # else the first job of every context would move its own factor
            step = CONTEXT_RATE * (BAND - (size <= 0))
            forgotten = HURRIED if context.alarmed or self.everywhere else FORGETTING
            context.factor = _bounded((1.0 - forgotten) * context.factor + step)
        context.latest = [*context.latest[1 - LATEST :], (_short(off), _short(half), again)]

    def of(self, keys: Container[str]) -> Self:
        """As these contexts have them; of all others nothing is known."""
        contexts = {key: bands for key, bands in self.contexts.items() if key in keys}
        return structs.replace(self, contexts=contexts)


@dataclass(frozen=True, slots=True)
class _BandFactors:
    """What bands are in one context. Factors as logarithms."""

    fresh: tuple[Standing, float]
    """Standing of a configuration that is new there, and its factor."""
    tried: tuple[Standing, float]
    """Of one that ran there before."""
    own: float = 0.0
    """The context's factor."""
    wider: float = 0.0
    """What an alarm adds."""
    shift: float = 0.0
    """Of the mean, in score units."""

    @property
    def factors(self) -> tuple[float, float]:
        """Of one that is new there, and of one that ran there before."""
        added = self.own + self.wider
        return (
            math.exp(_bounded(self.fresh[1] + added)),
            math.exp(_bounded(self.tried[1] + added)),
        )


def _bounded(logarithm: float) -> float:
    return min(max(logarithm, -LARGEST), LARGEST)


def _alarmed(said: _BandFactors, latest: Collection[tuple[float, float, bool]]) -> _BandFactors:
    """What bands are after an alarm: the latest residuals shift the mean, and widen the band by as
    much as they are larger than it says as it is now."""
    fresh, tried = said.factors
    halves = [half * (tried if again else fresh) for _, half, again in latest]
    cut = [_cut(off, half) for (off, _, _), half in zip(latest, halves, strict=True)]
    n = len(cut) + SHRINKAGE
    shift = sum(cut) / n
    sizes = [abs(off - shift) / half for off, half in zip(cut, halves, strict=True)]
    mean_size = (sum(sizes) + SHRINKAGE * MEAN_SIZE) / n
    return replace(said, shift=shift, wider=max(0.0, math.log(mean_size / MEAN_SIZE)))


def _cut(off: float, half: float) -> float:
    return min(max(off, -WILDEST * half), WILDEST * half)


def _short(value: float) -> float:
    """Six digits: ten pairs for each context are saved with every step."""
    return float(f"{value:.6g}")
