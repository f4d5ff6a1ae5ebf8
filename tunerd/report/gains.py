"""What the jobs would have gained that ran something else than what was recommended.

For each such job the predictor said, at the same moment and with the same model, what it expected
of the configuration that ran and of the one recommended: their difference is the *predicted gain*.
It is believed only as far as it came true elsewhere, in two steps.

1. **Discount.** Among jobs of the same context that ended about the same time: of what was
   predicted to set the better ones apart from the rest, which share came (the slope *b* of what
   came over what was predicted)? A searcher hunts the predictor's errors, and a predictor that has
   seen only noise predicts gains as well; then b is 0, and so is the gain.
2. **Matched jobs.** Some jobs ran exactly what was recommended at that moment, as followers
   or by coincidence. That choice was made before they ran, so they are not lucky ones picked
   afterwards. Whether they beat the others of their context and time by more or less than
   predicted corrects the gain there, and a little in all contexts: a Fay-Herriot model (1979) of
   small areas, in which each context's own evidence counts by its precision.

Intervals come from draws: the discount by a bootstrap over contexts (over times in a context where
there are few), what matched jobs say with the noise of jobs, what they do not say with the
predictor's own uncertainty as wide as it turned out. Pure; seeded.
"""

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from tunerd.core.arrays import BoolArray, FloatArray
from tunerd.core.study import Study
from tunerd.report.areas import Areas, areas_of, corrections
from tunerd.report.discount import Step, came_true, discount
from tunerd.report.jobs import Jobs, Named, saved_share
from tunerd.report.sample import Sample, near, sample_of

__all__ = ["LEVEL", "ContextGain", "Gains", "Interval", "Z", "estimate_gains"]

LEVEL = 0.9
"""Of the intervals."""
Z = NormalDist().inv_cdf((1 + LEVEL) / 2)
DRAWS = 600
SEED = 20240912  # of the draws: the same jobs give the same report
ENOUGH_MATCHED = 4.0
"""Matched jobs, each counted as far as there are others to compare it with, for a gain that was
shown."""
ENOUGH_NEAR = 8
"""Jobs predicted nearly as good as what was recommended, for a gain that is likely."""


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its 90 % interval."""

    middle: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class ContextGain:
    """One context. Differences are in relative units (:mod:`tunerd.report.jobs`)."""

    context: int
    jobs: int
    """That ran something else."""
    matched: int
    """That ran what was recommended."""
    predicted: float
    """Mean predicted difference."""
    gain: Interval
    gpu_hours: Interval | None


@dataclass(frozen=True, slots=True)
class Gains:
    """All contexts together."""

    target: Named
    jobs: int
    matched: int
    weight: float
    """Matched jobs that have others to compare with."""
    near: int
    discount: Interval
    """Share of predicted differences that came true."""
    predicted: float
    gain: Interval
    positive: float
    """Probability that the gain is above zero."""
    gpu_hours: Interval | None
    """That would have been saved, of the jobs whose hours are known."""
    hours: float
    """GPU-hours of those jobs."""
    contexts: tuple[ContextGain, ...]
    """The context with most jobs first."""
    steps: tuple[Step, ...]
    """What became of predicted differences."""

    @property
    def tested(self) -> bool:
        """Whether enough jobs ran what was recommended."""
        return self.weight >= ENOUGH_MATCHED

    @property
    def supported(self) -> bool:
        """Whether enough jobs were at least predicted nearly as good."""
        return self.tested or self.near >= ENOUGH_NEAR


def estimate_gains(study: Study, jobs: Jobs, target: Named) -> Gains | None:
    """Estimate what the jobs that did not follow would have gained with ``target``: the incumbent,
    or the first candidate where it was thought to be better. None below :data:`FEW` such jobs."""
    sample = sample_of(jobs, target)
    if sample is None:
        return None
    rng = np.random.default_rng(SEED)
    slope, slopes = discount(sample, rng, DRAWS)
    areas = areas_of(jobs, sample)
    middle, drawn = corrections(areas, slope, slopes, rng)
    return _gathered(study, jobs, sample, target, areas, (slope, slopes), (middle, drawn))


def _gathered(
    study: Study,
    jobs: Jobs,
    sample: Sample,
    target: Named,
    areas: Areas,
    discounts: tuple[float, FloatArray],
    corrected: tuple[FloatArray, FloatArray],
) -> Gains:
    slope, slopes = discounts
    middle, drawn = corrected
    gain = slope * areas.predicted + middle
    gains = slopes[:, None] * areas.predicted + drawn
    share = areas.jobs / areas.jobs.sum()
    whole = gains @ share
    hours = Hours.of(study, jobs, sample, discounts, corrected)
    contexts = [
        ContextGain(
            context=int(sample.places[c]),
            jobs=int(areas.jobs[c]),
            matched=int(areas.matched[c]),
            predicted=float(areas.predicted[c]),
            gain=interval(float(gain[c]), gains[:, c]),
            gpu_hours=hours.of_context(c),
        )
        for c in np.argsort(-areas.jobs, kind="stable").tolist()
        if areas.jobs[c]
    ]
    return Gains(
        target=target,
        jobs=int(areas.jobs.sum()),
        matched=int(areas.matched.sum()),
        weight=float(areas.weight.sum()),
        near=near(sample),
        discount=interval(slope, slopes),
        predicted=float(areas.predicted @ share),
        gain=interval(float(gain @ share), whole),
        positive=float(np.mean(whole > 0)),
        gpu_hours=hours.total(),
        hours=hours.known,
        contexts=tuple(contexts),
        steps=tuple(came_true(sample)),
    )


@dataclass(frozen=True)
class Hours:
    """GPU-hours that would have been saved, by context."""

    middle: FloatArray
    drawn: FloatArray
    """(draws, C)"""
    known: float
    there: BoolArray

    @classmethod
    def of(
        cls,
        study: Study,
        jobs: Jobs,
        sample: Sample,
        discounts: tuple[float, FloatArray],
        corrected: tuple[FloatArray, FloatArray],
    ) -> "Hours":
        places = len(sample.places)
        hours = jobs.gpu_hours[sample.rows]
        rows = np.flatnonzero(sample.other & np.isfinite(hours))
        context, hours, ahead = sample.context[rows], hours[rows], sample.target[rows]

        def saved(slope: float, correction: FloatArray) -> FloatArray:
            shares = saved_share(study, slope * ahead + correction[context])
            return np.bincount(context, weights=hours * shares, minlength=places).astype(np.float64)

        return cls(
            saved(discounts[0], corrected[0]),
            np.stack([saved(s, c) for s, c in zip(discounts[1], corrected[1], strict=True)]),
            float(hours.sum()),
            np.bincount(context, minlength=places) > 0,
        )

    def of_context(self, c: int) -> Interval | None:
        return interval(float(self.middle[c]), self.drawn[:, c]) if self.there[c] else None

    def total(self) -> Interval | None:
        if not self.there.any():
            return None
        return interval(float(self.middle.sum()), self.drawn.sum(axis=1))


def interval(middle: float, draws: FloatArray) -> Interval:
    low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]).tolist()
    return Interval(middle, min(low, middle), max(high, middle))
