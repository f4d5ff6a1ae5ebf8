"""From evidence, scored candidates and what already runs to what is worth saying in one context.

Pure: everything it looks at is in its arguments. Depth that is still missing (sequential tests,
a calibrated lower bound before anything is promoted, limits per user) is named in
``docs/architecture.md``.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tunerd.core.arrays import FloatArray
from tunerd.core.evidence import Estimate, Evidence, Trial
from tunerd.core.observation import Value
from tunerd.core.recommendation import Candidate, Gain, Incumbent, Kind, Predicted, Recommendation
from tunerd.core.study import Study

__all__ = [
    "BAND",
    "Advice",
    "Held",
    "Prospect",
    "Rival",
    "Wanted",
    "decide",
    "gist",
    "says_the_same",
    "steady",
]

LARGEST = 1e300
"""What is published in the place of an infinite number, which JSON does not have."""
BAND = 0.8
"""Share of jobs that a published band should hold."""
_Z = 1.2815515655446004
"""Half width of that band in standard deviations of a normal: Φ⁻¹(0.9)."""

MAX_CANDIDATES = 5
"""With three or more, one failing at once is no disaster (findings: in `calculon_simulated_16k`
the first pick fails in one context for every method); with many, none gets enough jobs."""
CLOSE = 0.5
"""Distance at which two configurations are hardly alike; two random ones are √2 apart."""
REPEATS = 2
"""Runs that an incumbent has at least, where any configuration has as many."""
MOST_LIMITS = 3
"""Limits that a reason names."""
CONFIRM_RUNS = 3
"""Runs after which a configuration is known and needs no more confirming."""


@dataclass(frozen=True, slots=True)
class Prospect:
    """A configuration that a search found. Scores are oriented: larger is better."""

    candidate_id: str
    config: Mapping[str, Value]
    place: FloatArray
    """(C,) ``FeatureMap.coordinates``: tells how alike two prospects are."""
    acquisition: float
    mean: float | None = None
    spread: float = 0.0
    feasible: float | None = None
    at_random: bool = False
    """Drawn at random rather than searched for."""


@dataclass(frozen=True, slots=True)
class Rival:
    """A configuration of the space that was tried here, with what is believed of it now."""

    candidate_id: str
    trial: Trial
    estimate: Estimate
    feasible: float


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a profiling round still asks for, best predicted first."""

    round: int
    prospects: tuple[tuple[Prospect, int], ...]
    """With the number of runs still missing."""


@dataclass(frozen=True, slots=True)
class Held:
    """What operators' limits hold back in this context."""

    limits: tuple[str, ...] = ()
    """As a reason names them."""
    rivals: Sequence[Rival] = ()
    """Measured configurations that they rule out."""
    baseline: bool = False
    """Whether the baseline is ruled out too."""


@dataclass(frozen=True, slots=True)
class Advice:
    """The part of a recommendation that is decided; the rest is book-keeping."""

    candidates: tuple[Candidate, ...]
    incumbent: Incumbent | None
    incumbent_id: str | None
    baseline: Mapping[str, Value] | None
    reason: str
    round: int | None = None


def decide(
    study: Study,
    evidence: Evidence,
    rivals: Sequence[Rival],
    prospects: Sequence[Prospect],
    baseline: Mapping[str, Value] | None,
    running: Recommendation | None = None,
    wanted: Wanted | None = None,
    held: Held = Held(),
) -> Advice:
    """Choose candidates, shares and incumbent for one context.

    ``rivals`` are the measured configurations of the space, ``prospects`` what the search found,
    best acquisition first, ``running`` the recommendation that schedulers follow at the moment.
    """
    incumbent = _incumbent(study, rivals)
    confirm = _to_confirm(study, rivals, incumbent)
    # Once each: what was drawn at random may have been found by the search as well.
    distinct = {p.candidate_id: p for p in reversed(prospects)}
    fresh = [
        p
        for p in prospects
        if p is distinct[p.candidate_id]
        and p.candidate_id not in evidence.trials
        and (p.feasible is None or p.feasible >= study.min_feasible)
    ]
    chosen = _choose(fresh, running, MAX_CANDIDATES - len(confirm))
    candidates = [_confirming(study, rival, incumbent) for rival in confirm]
    candidates += [_proposing(study, prospect, incumbent) for prospect in chosen]
    candidates = _share(candidates, study.explore_share)
    if wanted is not None:
        candidates = _with_wanted(study, candidates, wanted, incumbent)
    return Advice(
        candidates=tuple(candidates),
        incumbent=_stated(study, incumbent),
        incumbent_id=incumbent.candidate_id if incumbent else None,
        baseline=baseline,
        reason=_reason(evidence, incumbent, candidates, wanted)
        + _held_back(study, held, incumbent),
        round=wanted.round if wanted else None,
    )


def says_the_same(advice: Advice, running: Recommendation) -> bool:
    """Whether schedulers would do the same under both: candidates, kinds, shares, wanted runs,
    incumbent and baseline. Predictions may have moved; that alone is no news."""
    return _instructions(advice) == _instructions(running)


def gist(said: Advice | Recommendation) -> str:
    """A name of what schedulers are told to do: alike where :func:`says_the_same`."""
    text = json.dumps(_instructions(said), sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def steady(prospects: Sequence[Prospect], running: Recommendation | None) -> list[Prospect]:
    """Order prospects so that running candidates stay until something clearly better comes.

    Each model update moves every prediction a little; without this the published candidates
    would change with every job, and none would ever be run twice.
    """
    if running is None or not prospects:
        return list(prospects)
    held = {candidate.candidate_id for candidate in running.candidates}
    values = [p.acquisition for p in prospects if math.isfinite(p.acquisition)]
    bonus = 0.25 * (float(np.std(values)) if values else 0.0)
    return sorted(
        prospects, key=lambda p: -(p.acquisition + (bonus if p.candidate_id in held else 0.0))
    )


def _incumbent(study: Study, rivals: Sequence[Rival]) -> Rival | None:
    """The configuration with the best cautious estimate: mean less one standard deviation, so
    that a second and third run of a good one count for it. One run makes no incumbent while
    another configuration has two: what was measured once and looked best is mostly luck."""
    running = [r for r in rivals if r.trial.run_share >= study.min_feasible]
    repeated = [r for r in running if r.trial.runs >= REPEATS]
    return max(repeated or running, key=lambda r: r.estimate.mean - r.estimate.sd, default=None)


def _to_confirm(study: Study, rivals: Sequence[Rival], incumbent: Rival | None) -> list[Rival]:
    if incumbent is None:
        return []
    open_questions = [
        r
        for r in rivals
        if r is not incumbent
        and r.trial.runs < CONFIRM_RUNS
        and r.trial.run_share >= study.min_feasible
        and r.feasible >= study.min_feasible
        and r.estimate.mean > incumbent.estimate.mean
    ]
    return sorted(open_questions, key=lambda r: -r.estimate.mean)[:2]


def _choose(
    prospects: Sequence[Prospect], running: Recommendation | None, count: int
) -> list[Prospect]:
    """The best that differ, and last one that was drawn at random.

    A searcher goes where the predictor already knows something; without the random one a study
    stays around its baseline (simulated ads cluster, 240 jobs: 2.6 % gained instead of 5.3 %).
    """
    searched = [p for p in prospects if not p.at_random]
    drawn = [p for p in prospects if p.at_random][: 1 if searched else count]
    return _diverse(steady(searched, running), count - len(drawn)) + drawn


def _diverse(prospects: Sequence[Prospect], count: int) -> list[Prospect]:
    """Greedy choice with a penalty for closeness to what was chosen already: like configurations
    share the predictor's error, so a second one teaches less (findings: a penalty for closeness
    in the first batch beat the plain top five). One spread for a twin."""
    if not prospects:
        return []
    penalty = float(np.median([p.spread for p in prospects]))
    places = np.stack([p.place for p in prospects])
    left = np.array([p.acquisition for p in prospects])
    chosen: list[Prospect] = []
    while len(chosen) < min(count, len(prospects)):
        best = int(np.argmax(left))
        chosen.append(prospects[best])
        squares = ((places - places[best]) ** 2).sum(axis=1)
        left = left - penalty * np.exp(-squares / CLOSE**2)
        left[best] = -math.inf
    return chosen


def _share(candidates: Sequence[Candidate], total: float) -> list[Candidate]:
    """Divide ``total`` evenly, rounded down so that the sum never passes it. By rank, two
    configurations to confirm would take two thirds of what is there to find new ones."""
    each = math.floor(1e6 * total / max(len(candidates), 1)) / 1e6
    return [replace(c, rank=i + 1, share=each) for i, c in enumerate(candidates)]


def _with_wanted(
    study: Study, candidates: Sequence[Candidate], wanted: Wanted, incumbent: Rival | None
) -> list[Candidate]:
    asked = [
        replace(_proposing(study, prospect, incumbent), wanted=missing)
        for prospect, missing in wanted.prospects
    ]
    ids = {candidate.candidate_id for candidate in asked}
    rest = [c for c in candidates if c.candidate_id not in ids]
    return [replace(c, rank=i + 1) for i, c in enumerate([*asked, *rest])]


def _proposing(study: Study, prospect: Prospect, incumbent: Rival | None) -> Candidate:
    gain = None
    if prospect.mean is not None:
        gain = _gain(study, Estimate(prospect.mean, prospect.spread), incumbent)
    better = gain is not None and gain.median > 0
    return Candidate(
        candidate_id=prospect.candidate_id,
        rank=1,
        kind=Kind.EXPLOIT if better else Kind.EXPLORE,
        share=0.0,
        config=prospect.config,
        predicted=None
        if prospect.mean is None
        else _predicted(study, Estimate(prospect.mean, prospect.spread)),
        feasible=None if prospect.feasible is None else round(prospect.feasible, 4),
        gain=gain,
    )


def _confirming(study: Study, rival: Rival, incumbent: Rival | None) -> Candidate:
    return Candidate(
        candidate_id=rival.candidate_id,
        rank=1,
        kind=Kind.CONFIRM,
        share=0.0,
        config=rival.trial.config,
        predicted=_predicted(study, rival.estimate),
        feasible=round(rival.feasible, 4),
        gain=_gain(study, rival.estimate, incumbent),
    )


def _band(study: Study, belief: Estimate) -> tuple[float, float, float]:
    """Median, low and high in the objective's unit; low is the smaller number whatever the goal.

    Always finite: after a handful of jobs a spread can be such that e to its power is not.
    """
    scores = (belief.mean, belief.mean - _Z * belief.sd, belief.mean + _Z * belief.sd)
    median, *ends = (min(max(study.metric_value(s), -LARGEST), LARGEST) for s in scores)
    return median, min(ends), max(ends)


def _predicted(study: Study, belief: Estimate) -> Predicted:
    median, low, high = _band(study, belief)
    return Predicted(median=median, low=low, high=high, band=BAND)


def _gain(study: Study, belief: Estimate, incumbent: Rival | None) -> Gain | None:
    if incumbent is None:
        return None
    sd = math.hypot(belief.sd, incumbent.estimate.sd)
    return Gain(
        median=study.gain(belief.mean, incumbent.estimate.mean),
        low=study.gain(belief.mean - _Z * sd, incumbent.estimate.mean),
    )


def _stated(study: Study, incumbent: Rival | None) -> Incumbent | None:
    if incumbent is None:
        return None
    median, low, high = _band(study, incumbent.estimate)
    return Incumbent(
        config=incumbent.trial.config, median=median, low=low, high=high, jobs=incumbent.trial.runs
    )


def _instructions(said: Advice | Recommendation) -> list[object]:
    return [
        [[c.candidate_id, c.kind, c.share, c.wanted] for c in said.candidates],
        dict(said.incumbent.config) if said.incumbent else None,
        None if said.baseline is None else dict(said.baseline),
        said.round,
    ]


def _reason(
    evidence: Evidence,
    incumbent: Rival | None,
    candidates: Sequence[Candidate],
    wanted: Wanted | None,
) -> str:
    jobs = f"{evidence.jobs} job{'' if evidence.jobs == 1 else 's'} in this context"
    if wanted is not None:
        runs = sum(missing for _, missing in wanted.prospects)
        what = "a spread-out random start" if wanted.round == 0 else "the best predicted"
        return f"Profiling round {wanted.round}: {runs} runs still wanted of {what}; {jobs}."
    if not candidates:
        return f"Nothing new is worth trying; {jobs}."
    if all(c.predicted is None for c in candidates):
        return f"Random start: nothing to predict from yet; {jobs}."
    first = candidates[0]
    if incumbent is None:
        return f"First guesses from what other contexts showed; {jobs}."
    gain = first.gain
    if gain is None:  # pragma: no cover - an incumbent and a prediction always give a gain
        return jobs
    against = f"the incumbent ({incumbent.trial.runs} runs)"
    how = f"{gain.median:+.1%} against {against}, {gain.low:+.1%} at the low end"
    if first.kind is Kind.CONFIRM:
        return f"Runs again what looked better: {how}; {jobs}."
    if first.kind is Kind.EXPLOIT:
        return f"Predicted better: {how}; {jobs}."
    return f"Keep the incumbent; candidates are there to learn from: {how}; {jobs}."


def _held_back(study: Study, held: Held, incumbent: Rival | None) -> str:
    """What to add to a reason where operators have set limits."""
    if not held.limits:
        return ""
    named = ", ".join(held.limits[:MOST_LIMITS])
    more = len(held.limits) - MOST_LIMITS
    said = f" Limits here: {named}{f' and {more} more' if more > 0 else ''}."
    best = _incumbent(study, held.rivals)
    if best is not None and incumbent is None:
        said += " All that was measured here breaks them."
    elif best is not None and incumbent is not None:
        gain = study.gain(best.estimate.mean, incumbent.estimate.mean)
        if gain > 0:
            said += f" They rule out a measured configuration that is {gain:.1%} better."
    return said + (" They rule out the baseline." if held.baseline else "")
