"""What the jobs would have gained that ran something else than the best known configuration.

Asked is what the *incumbent* of that moment would have brought: the configuration of their context
with the best estimate over repeated runs. Not asked is what a searcher's first candidate would have
brought, for nobody can know: a search picks what is overrated (:mod:`tunerd.report.followers`).

For each such job the predictor said, at the same moment and with the same model, what it expected
of the configuration that ran and of the incumbent: their difference is the *predicted gain*. It is
believed only as far as it came true elsewhere, in two steps.

1. **Discount.** Among jobs of the same context that ended about the same time: of what was
   predicted to set the better ones apart from the rest, which share came (the slope of what came
   over what was predicted)? A predictor that has seen only noise predicts gains as well; then the
   slope is 0, and so is the gain.
2. **Matched jobs.** Some jobs ran just the incumbent of their moment, as followers or by
   coincidence. That choice was made before they ran, so they are not lucky ones picked afterwards.
   Whether they beat the others of their context and time by more or less than predicted corrects
   the gain (:mod:`tunerd.report.small_area`).

Intervals come from draws: the discount by a bootstrap over contexts (over times in a context where
there are few), what matched jobs say with the noise of jobs, what they do not say with the
predictor's own uncertainty as wide as it turned out. Pure; seeded.
"""

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from tunerd.core.arrays import BoolArray, FloatArray
from tunerd.core.study import Study
from tunerd.report.discount import GainBin, came_true, discount
from tunerd.report.jobs import JobArrays, saved_share
from tunerd.report.sample import GainSample, near, sample_of
from tunerd.report.small_area import AreaEstimates, areas_of, corrections

__all__ = [
    "ENOUGH_MATCHED",
    "LEVEL",
    "ConfidenceInterval",
    "ContextGain",
    "GainEstimate",
    "Z",
    "estimate_gains",
]

LEVEL = 0.9
"""Of the intervals."""
Z = NormalDist().inv_cdf((1 + LEVEL) / 2)
DRAWS = 600
SEED = 20240912  # of the draws: the same jobs give the same report
ENOUGH_MATCHED = 4.0
"""Matched jobs, each counted as far as there are others to compare it with, for a gain that was
shown."""
ENOUGH_NEAR = 8
"""Jobs predicted nearly as good as the incumbent, for a gain that is likely."""


@dataclass(frozen=True, slots=True)
class ConfidenceInterval:
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
    """That ran the incumbent."""
    predicted: float
    """Mean predicted difference."""
    gain: ConfidenceInterval
    gpu_hours: ConfidenceInterval | None


@dataclass(frozen=True, slots=True)
class GainEstimate:
    """All contexts together."""

    jobs: int
    matched: int
    weight: float
    """Matched jobs that have others to compare with."""
    near: int
    """Jobs predicted nearly as good."""
    discount: ConfidenceInterval
    """Share of predicted differences that came true."""
    predicted: float
    gain: ConfidenceInterval
    positive: float
    """Probability that the gain is above zero."""
    gpu_hours: ConfidenceInterval | None
    """That would have been saved, of the jobs whose hours are known."""
    hours: float
    """GPU-hours of those jobs."""
    contexts: tuple[ContextGain, ...]
    """The context with most jobs first."""
    steps: tuple[GainBin, ...]
    """What became of predicted differences."""

    @property
    def tested(self) -> bool:
        """Whether enough jobs ran the incumbent."""
        return self.weight >= ENOUGH_MATCHED

    @property
    def supported(self) -> bool:
        """Whether enough jobs were at least predicted nearly as good."""
        return self.tested or self.near >= ENOUGH_NEAR


@dataclass(frozen=True)
class _GainDraws:
    """What was estimated, and (draws, …) draws of it."""

    slope: float
    slopes: FloatArray
    correction: FloatArray
    """(A,) of each cell."""
    corrections: FloatArray


def estimate_gains(study: Study, jobs: JobArrays) -> GainEstimate | None:
    """Estimate them; None when hardly any job ran something else than an incumbent."""
    sample = sample_of(jobs)
    if sample is None:
        return None
    rng = np.random.default_rng(SEED)
    slope, slopes = discount(sample, rng, DRAWS)
    areas = areas_of(jobs, sample)
    drawn = _GainDraws(slope, slopes, *corrections(areas, slope, slopes, rng))
    gain = slope * areas.ahead + drawn.correction
    gains = slopes[:, None] * areas.ahead + drawn.corrections
    share = areas.jobs / areas.jobs.sum()
    whole = gains @ share
    hours = _SavedGpuHours.of(study, jobs, sample, drawn)
    contexts = _contexts(sample, areas, gain, gains, hours)
    return GainEstimate(
        jobs=int(areas.jobs.sum()),
        matched=int(areas.matched.sum()),
        weight=float(areas.weight.sum()),
        near=near(sample),
        discount=_interval(slope, slopes),
        predicted=float(areas.ahead @ share),
        gain=_interval(float(gain @ share), whole),
        positive=float(np.mean(whole > 0)),
        gpu_hours=hours.total(),
        hours=hours.known,
        contexts=tuple(sorted(contexts, key=lambda area: -area.jobs)),
        steps=tuple(came_true(sample)),
    )


def _contexts(
    sample: GainSample,
    areas: AreaEstimates,
    gain: FloatArray,
    gains: FloatArray,
    hours: "_SavedGpuHours",
) -> list[ContextGain]:
    """Cells gathered by context: (A,) gains and (draws, A) draws, weighted by jobs."""
    contexts = []
    for number, place in enumerate(sample.places.tolist()):
        cells = np.flatnonzero(areas.context == number)
        jobs = int(areas.jobs[cells].sum())
        if not jobs:
            continue
        share = areas.jobs[cells] / jobs
        contexts.append(
            ContextGain(
                context=place,
                jobs=jobs,
                matched=int(areas.matched[cells].sum()),
                predicted=float(areas.ahead[cells] @ share),
                gain=_interval(float(gain[cells] @ share), gains[:, cells] @ share),
                gpu_hours=hours.of_context(number),
            )
        )
    return contexts


@dataclass(frozen=True)
class _SavedGpuHours:
    """GPU-hours that would have been saved, by context."""

    middle: FloatArray
    drawn: FloatArray
    """(draws, C)"""
    known: float
    there: BoolArray

    @classmethod
    def of(
        cls, study: Study, jobs: JobArrays, sample: GainSample, drawn: _GainDraws
    ) -> "_SavedGpuHours":
        places = len(sample.places)
        rows = np.flatnonzero(sample.other & np.isfinite(jobs.gpu_hours[sample.rows]))
        hours = jobs.gpu_hours[sample.rows][rows]
        context, cell, ahead = sample.context[rows], sample.cell[rows], sample.ahead[rows]

        def saved(slope: float, correction: FloatArray) -> FloatArray:
            shares = saved_share(study, slope * ahead + correction[cell])
            sums: FloatArray = np.bincount(
                context, weights=hours * shares, minlength=places
            ).astype(np.float64)
            return sums

        draws = zip(drawn.slopes.tolist(), drawn.corrections, strict=True)
        return cls(
            saved(drawn.slope, drawn.correction),
            np.stack([saved(slope, correction) for slope, correction in draws]),
            float(hours.sum()),
            np.bincount(context, minlength=places) > 0,
        )

    def of_context(self, number: int) -> ConfidenceInterval | None:
        if not self.there[number]:
            return None
        return _interval(float(self.middle[number]), self.drawn[:, number])

    def total(self) -> ConfidenceInterval | None:
        if not self.there.any():
            return None
        return _interval(float(self.middle.sum()), self.drawn.sum(axis=1))


def _interval(middle: float, draws: FloatArray) -> ConfidenceInterval:
    low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]).tolist()
    return ConfidenceInterval(middle, min(low, middle), max(high, middle))
