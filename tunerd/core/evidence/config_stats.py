"""What the jobs of one context said about each configuration that was tried there.

A configuration's speed is an estimate over its repeats, drawn towards what the predictor expects
of it, so that one lucky run makes no incumbent (DESIGN: incumbent). Runs count by how long they
were measured, and less the farther they fall from the others. Noise is how far a configuration's
successive runs lie apart, wild ones cut: what drifts slowly is none. Everything is updated in
constant time per job; at most :data:`MAX_TRIALS` configurations a context are kept.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec import field
from numpy.typing import NDArray

from tunerd.core.evidence.config_shifts import shifts
from tunerd.core.features.pooling import CUT, apart, location
from tunerd.core.observation import FeasibilityLabel, Value
from tunerd.core.saved_state import SavedState

__all__ = [
    "MAX_TRIALS",
    "TINY",
    "ConfigStats",
    "ConfigStatsTable",
    "ScoreEstimate",
    "Z",
    "estimate",
    "estimates",
    "noise_of_repeats",
]

MAX_TRIALS = 512
"""Configurations kept per context. The state is written whole whenever its context has a new job
(about 150 bytes a configuration); what falls out is what was tried longest ago and is not good …"""
FORGOTTEN = 32
"""… so many at a time: to see which costs a look at all."""

PRIOR_NOISE = 0.05
"""Relative noise of one run before there are repeats: between the tenths of a per cent of quiet
clusters and the tens of per cent of burstable machines."""
LATEST = 8
"""Runs of a configuration whose scores are kept one by one."""
REPEATS = 64
"""Repeats that a context's noise is told by, the latest ones."""
CUT_APART = 3.0
"""Standard deviations at which the distance of two runs is cut, for the noise."""
UNLIKE = 4.0
"""Standard deviations, of the distance of two runs, from which on they are not taken for repeats
of one speed: noise alone puts two so far apart once in 15,000 times."""
PRIOR_WEIGHT = 3.0
"""Degrees of freedom that :data:`PRIOR_NOISE` counts as."""
MOST_BEGUN = 8
"""Latest drifts from which on estimates were begun again that are remembered."""
SOON = 20
"""Runs since a change before which the next alarm is about the same change: it was dated wrongly,
or went on."""
ALIKE = 1e-9
"""Difference of two scores, relative to their size, below which a metric has not changed."""
MANY_ALIKE = 8
"""Jobs in a row with one value …"""
CONFIGS_ALIKE = 3
"""… of so many configurations, after which a metric is taken for one that never changes …"""
LONG_ALIKE = 40
"""… and so many where others were seen before. A coarse metric, in whole milliseconds, is the same
for some configurations and not for all."""
Z = 1.2815515655446004
"""Half width of an 80 % band in standard deviations of a normal: Φ⁻¹(0.9)."""
TINY = 1e-150
"""In the place of a standard deviation of 0, of which one cannot be divided by the square."""


class ConfigStats(SavedState):
    """The jobs of one configuration in one context. ``mean`` and ``spread_sum`` are in scores."""

    config: dict[str, Value]
    runs: int = 0
    """Jobs with an objective value."""
    mean: float = 0.0
    """Where the runs lie, wild ones counting less."""
    weight: float = 0.0
    """Runs that they count as; 0 for as many as there are."""
    latest: tuple[tuple[float, float, int], ...] = ()
    """Score, weight and sequence of the latest :data:`LATEST` runs."""
    older: tuple[float, float] = (0.0, 0.0)
    """Mean and weight of those before."""
    ran: int = 0
    failures: int = 0
    """Jobs that say the configuration does not run (or, weakly, may not)."""
    unasked: int = 0
    """Jobs that followed no recommendation: what people launch by themselves."""
    last_sequence: int = 0
    former: tuple[float, float] | None = None
    """Mean and standard deviation of what it gave before the latest change here; None where there
    was none, or it never ran before. What it gives now is then told by :attr:`runs` since, and by
    how others moved (:mod:`.config_shifts`)."""

    @property
    def sureness(self) -> float:
        """Runs that the mean counts as."""
        return self.weight or float(self.runs)

    def noise(self, pooled: float) -> float:
        """Standard deviation of one run, ``pooled`` over all configurations. Two runs that lie
        farther apart than that explains tell by themselves how much: of two nobody can say which
        one is wild. From three on a wild one counts less (:func:`.location`)."""
        if len(self.latest) != 2 or self.older[1]:
            return pooled
        (first, sure, _), (second, also, _) = self.latest
        away = abs(first - second) / math.sqrt(1.0 / sure + 1.0 / also)
        return away if away > UNLIKE * pooled else pooled

    def add_run(self, score: float, weight: float, sequence: int) -> float | None:
        """Count a run; says how far it lies from the one before in units of one long run's
        deviation, None where there was none."""
        before = self.latest[-1] if self.latest else None
        self.runs += 1
        self.latest = (*self.latest, (score, weight, sequence))
        if len(self.latest) > LATEST:
            # What is wild stays cut, once it cannot be seen among the others any more.
            value, sureness, _ = self.latest[0]
            reach = CUT * apart(np.array(self.latest)[:, 0]) or math.inf
            value = min(max(value, self.mean - reach), self.mean + reach)
            mean, total = self.older[0], self.older[1] + sureness
            self.latest = self.latest[1:]
            self.older = (mean + (value - mean) * sureness / total, total)
        self.mean, self.weight = self._pooled()
        if before is None:
            return None
        return abs(score - before[0]) / math.sqrt(1.0 / weight + 1.0 / before[1])

    def split(self, since: int) -> tuple[float, float]:
        """Forget the runs from before a sequence; returns where they lay, and how many they count
        as. Of runs that are not kept one by one it is not known when they were: they count as from
        before."""
        old = [run for run in self.latest if run[2] < since]
        new = tuple(run for run in self.latest if run[2] >= since)
        points = np.array([self.older, *(run[:2] for run in old)] if self.older[1] else old)
        mean, weight = 0.0, 0.0
        if len(points):
            mean, counts = location(points[:, 0], points[:, 1])
            weight = float(counts.sum())
        self.latest, self.older, self.runs = new, (0.0, 0.0), len(new)
        self.mean, self.weight = self._pooled() if new else (mean, 0.0)
        return mean, weight

    def take_back(self, score: float) -> None:
        """Forget one of the latest runs, which told nothing of the configuration."""
        scores = [run[0] for run in self.latest]
        if score in scores:
            self._put_right(scores.index(score), None)

    def correct_run(self, sequence: int, run: tuple[float, float] | None) -> None:
        """Give the run of a job another score and weight, or forget it; nothing where it is not
        among the latest."""
        sequences = [recent[2] for recent in self.latest]
        if sequence in sequences:
            self._put_right(sequences.index(sequence), run)

    def _put_right(self, place: int, run: tuple[float, float] | None) -> None:
        right = () if run is None else ((*run, self.latest[place][2]),)
        self.latest = self.latest[:place] + right + self.latest[place + 1 :]
        self.runs -= run is None
        self.mean, self.weight = (0.0, 0.0)
        if self.latest or self.older[1]:
            self.mean, self.weight = self._pooled()

    def _pooled(self) -> tuple[float, float]:
        """Where the runs lie, and how many they count as."""
        latest = [run[:2] for run in self.latest]
        points = np.array([self.older, *latest] if self.older[1] else latest)
        mean, weights = location(points[:, 0], points[:, 1])
        return mean, float(weights.sum())

    @property
    def run_share(self) -> float:
        """Share of the jobs that ran, among those that say anything about it; 1 without any."""
        attempts = self.ran + self.failures
        return self.ran / attempts if attempts else 1.0


@dataclass(frozen=True, slots=True)
class ScoreEstimate:
    """Normal posterior of one configuration's score."""

    mean: float
    sd: float


def estimate(trial: ConfigStats, noise: float, expected: float, spread: float) -> ScoreEstimate:
    """Combine a configuration's own runs with the predictor's expectation of it.

    Precision weighting of two normals: N(``expected``, ``spread``²) and the mean of the runs,
    N(``trial.mean``, ``noise``² / sureness). All in score units.
    """
    noise = trial.noise(noise)
    prior = 1.0 / max(spread, TINY) ** 2
    own = trial.sureness / max(noise, TINY) ** 2 if trial.runs else 0.0
    mean = (prior * expected + own * trial.mean) / (prior + own)
    return ScoreEstimate(mean, math.sqrt(1.0 / (prior + own)))


def estimates(
    trials: Sequence[ConfigStats],
    noise: float,
    expected: NDArray[np.float64],
    spread: NDArray[np.float64],
) -> list[ScoreEstimate]:
    """:func:`estimate` of each trial, given predictions (n,) in the same order."""
    return [
        estimate(trial, noise, float(e), float(s))
        for trial, e, s in zip(trials, expected, spread, strict=True)
    ]


def noise_of_repeats(apart: Sequence[float]) -> float:
    """Standard deviation of one run, from how far repeats lay from the run before; NaN without
    any. What is wild beside most of them is cut, unless most lie nowhere apart, as with a metric in
    whole numbers."""
    if not apart:
        return math.nan
    usual = sorted(apart)[len(apart) // 2] / 0.6745  # the median of a normal's size
    cut = [min(difference, CUT_APART * usual or difference) for difference in apart]
    return math.sqrt(sum(difference * difference for difference in cut) / len(cut))


class ConfigStatsTable(SavedState):
    """Every configuration tried in one context, by candidate id."""

    jobs: int = 0
    apart: list[float] = field(default_factory=list)
    """How far the latest repeats lay from the run before, :data:`REPEATS` at most."""
    begun: list[tuple[int, float | None]] = field(default_factory=list)
    """From which sequences on estimates were begun again, and by how much older ones moved, None
    where they told nothing any more: for who learns history anew, without the watch."""
    alike: tuple[float, int, int] = (0.0, 0, 0)
    """Score that the latest jobs have in common, how many these are, and the sequence of the
    first."""
    trials: dict[str, ConfigStats] = field(default_factory=dict)

    def add(
        self,
        candidate_id: str,
        config: Mapping[str, Value],
        score: float | None,
        ran: FeasibilityLabel,
        *,
        unasked: bool,
        sequence: int,
        weight: float = 1.0,
    ) -> None:
        """Count one job. ``score`` is the oriented objective, None when the job has none;
        ``weight`` says how much it counts beside one that was measured for long, 0 to 1."""
        self.jobs += 1
        trial = self.trials.get(candidate_id)
        if trial is None:
            trial = self.trials[candidate_id] = ConfigStats(dict(config))
            self._forget_some(candidate_id)
        trial.last_sequence = sequence
        trial.unasked += unasked
        if ran is FeasibilityLabel.YES:
            trial.ran += 1
        elif ran in (FeasibilityLabel.NO, FeasibilityLabel.WEAK_NO):
            trial.failures += 1
        if score is not None and ran is not FeasibilityLabel.NO:
            away = trial.add_run(score, weight, sequence)
            if away is not None:
                self.apart = [*self.apart, away][-REPEATS:]
            value, jobs, since = self.alike
            same = jobs > 0 and abs(score - value) <= ALIKE * max(abs(value), 1.0)
            self.alike = (value, jobs + 1, since) if same else (score, 1, sequence)

    @property
    def constant(self) -> float | None:
        """The score of a metric that is the same whatever runs; None where it is not."""
        value, jobs, since = self.alike
        if jobs < MANY_ALIKE:
            return None
        measured = [trial for trial in self.trials.values() if trial.runs]
        ran = sum(1 for trial in measured if trial.last_sequence >= since)
        if ran < CONFIGS_ALIKE or (jobs < LONG_ALIKE and ran < len(measured)):
            return None
        return value

    def take_back(self, candidate_id: str, score: float) -> None:
        """Forget a job of a configuration that ran, and how far it lay from those beside it."""
        trial = self.trials.get(candidate_id)
        if trial is None:
            return
        scores = [run[0] for run in trial.latest]
        trial.take_back(score)
        trial.ran = max(0, trial.ran - 1)
        self.jobs = max(0, self.jobs - 1)
        trial.unasked = min(trial.unasked, trial.ran + trial.failures)
        if not (trial.ran or trial.failures or trial.runs):
            del self.trials[candidate_id]
        nearest = min((abs(other - score) for other in scores if other != score), default=math.inf)
        self.apart = [difference for difference in self.apart if difference < nearest / 2.0]

    def correct(
        self,
        candidate_id: str,
        sequence: int,
        run: tuple[float, float] | None,
        was: FeasibilityLabel,
        ran: FeasibilityLabel,
        *,
        measured: bool = True,
    ) -> None:
        """Put right what a job counted as: ``run`` is its score and weight now, None without one;
        ``was`` what it said about whether its configuration runs, ``ran`` what it says now;
        ``measured`` whether it had a score before."""
        trial = self.trials.get(candidate_id)
        if trial is None:
            return
        failed = (FeasibilityLabel.NO, FeasibilityLabel.WEAK_NO)
        yes = FeasibilityLabel.YES
        trial.ran = max(0, trial.ran + (ran is yes) - (was is yes))
        trial.failures = max(0, trial.failures + (ran in failed) - (was in failed))
        run = None if ran is FeasibilityLabel.NO else run
        if measured:
            trial.correct_run(sequence, run)
        elif run is not None:
            away = trial.add_run(*run, sequence)
            if away is not None:
                self.apart = [*self.apart, away][-REPEATS:]

    def begin_again(
        self, since: int, moved: float | None, scale: float = 1.0, *, history: bool = False
    ) -> None:
        """Take estimates from a change on: ``since`` is the sequence of its first job, ``moved``
        by how much scores moved, None where nobody can tell; both are remembered in :attr:`begun`.
        ``scale`` is as for :meth:`noise`.

        Of what a configuration gave before, what is believed at this moment is kept in
        :attr:`ConfigStats.former`. Everything stays where nothing ran since, but with ``history``,
        whose jobs since are still to come.
        """
        ran = [t for t in self.trials.values() if t.latest and t.latest[-1][2] >= since]
        if not (ran or history):
            return
        noise = self.noise(scale)
        soon = sum(trial.runs for trial in self.trials.values() if trial.former) < SOON
        moves = {} if soon else self.moves(scale)
        for name, trial in self.trials.items():
            if not (trial.runs or trial.former):
                continue
            former, runs = trial.former, trial.runs
            mean, weight = trial.split(since)
            if former is not None and (soon or weight < 1.0):
                at, sd = moves.get(name, (0.0, 0.0))
                trial.former = former[0] + at, math.hypot(former[1], sd)
            elif runs:
                trial.former = (mean, noise / math.sqrt(weight)) if weight else None
            if not trial.runs and trial.former is not None:
                trial.mean = trial.former[0] + (moved or 0.0)
        self.begun = [*self.begun, (since, moved)][-MOST_BEGUN:]

    def moves(self, scale: float = 1.0) -> dict[str, tuple[float, float]]:
        """By candidate id, mean and standard deviation of how far each configuration that ran
        before the latest change is believed to have moved since, its own jobs left out. Empty
        where nothing ran on both sides of it. ``scale`` is as for :meth:`noise`."""
        known = {name: trial for name, trial in self.trials.items() if trial.former is not None}
        if not any(trial.runs for trial in known.values()):
            return {}
        noise = self.noise(scale)
        moved, variance = np.full(len(known), np.nan), np.ones(len(known))
        for i, trial in enumerate(known.values()):
            if trial.runs and trial.former is not None:
                moved[i] = trial.mean - trial.former[0]
                variance[i] = noise**2 / trial.sureness + trial.former[1] ** 2
        mean, sd = shifts([trial.config for trial in known.values()], moved, variance)
        return dict(zip(known, zip(mean.tolist(), sd.tolist(), strict=True), strict=True))

    def noise(self, scale: float = 1.0) -> float:
        """Standard deviation of one run, pooled over the repeats of all configurations.

        ``scale`` turns the relative prior into score units: 1 for a log objective, the typical
        size of the objective for a linear one.
        """
        squares = PRIOR_WEIGHT * (PRIOR_NOISE * scale) ** 2
        pairs = len(self.apart)
        if pairs:
            squares += pairs * self.seen_noise() ** 2
        return math.sqrt(squares / (PRIOR_WEIGHT + pairs))

    def seen_noise(self) -> float:
        """The same from the repeats alone; NaN without any."""
        return noise_of_repeats(self.apart)

    def measured(self) -> list[tuple[str, ConfigStats]]:
        """Configurations with at least one objective value, before the latest change or since, in
        the order they were first tried."""
        return [(key, trial) for key, trial in self.trials.items() if trial.runs or trial.former]

    def usual(self, wanted: Mapping[str, Value]) -> dict[str, Value] | None:
        """The configuration that unasked jobs most often use, among those that agree with
        ``wanted``; it completes a baseline that names only some parameters. None where none
        agrees."""
        fitting = [
            trial
            for trial in self.trials.values()
            if trial.unasked and all(trial.config.get(k) == v for k, v in wanted.items())
        ]
        if not fitting:
            return None
        most = max(fitting, key=lambda trial: (trial.unasked, trial.last_sequence))
        return dict(most.config)

    def _forget_some(self, newest: str) -> None:
        """Make room for :data:`FORGOTTEN` configurations, where there are too many."""
        if len(self.trials) <= MAX_TRIALS:
            return
        # The best eighth stays whatever its age: the incumbent and its rivals are among them.
        measured = sorted(self.measured(), key=lambda item: -item[1].mean)
        kept = {key for key, _ in measured[: MAX_TRIALS // 8]} | {newest}
        others = [(trial.last_sequence, key) for key, trial in self.trials.items()]
        for _, key in sorted(other for other in others if other[1] not in kept)[:FORGOTTEN]:
            del self.trials[key]
