"""From evidence, scored candidates and what already runs to what is worth saying in one context.

Pure: everything it looks at is in its arguments. Two situations differ. Where jobs mostly run an
established incumbent, candidates are introduced carefully: those that are being tested first
(*confirm*), then those whose gain is certain by the calibrated lower bound (*exploit*), then those
that are only there to teach something (*explore*), each kind with its part of ``explore_share``.
Where there is none yet, or a campaign profiles the context, what is learned per job counts: the
search's candidates as they come, with even shares.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tunerd.core.conformal import BAND
from tunerd.core.decisions.reasons import in_percent, reason_for
from tunerd.core.evidence.config_stats import ConfigStatsTable, ScoreEstimate, Z
from tunerd.core.evidence.decision_inputs import (
    UNHELD,
    ExcludedConfigs,
    MeasuredConfig,
    RoundRequest,
    SearchCandidate,
)
from tunerd.core.evidence.rollout import ChallengerEstimate, Rollout, elect
from tunerd.core.observation import Value
from tunerd.core.recommendation import (
    LARGEST,
    Advice,
    Candidate,
    Gain,
    Incumbent,
    Kind,
    Predicted,
    Recommendation,
)
from tunerd.core.study import Study

__all__ = ["decide", "gist", "says_the_same", "side_by_side"]

NOTHING = 0.01
"""Part of a band's half width below which its middle is told as 0: else what has always been 0 is
told as -6e-10."""
MAX_CANDIDATES = 5
"""With three or more, one failing at once is no disaster; with many, none gets enough jobs …"""
MOST_SHARE = 0.08
"""… but where most jobs try something, none gets a larger share: on a busy cluster others would be
given the same before its first job has ended."""
SURE = (1.0 + BAND) / 2.0
"""Probability to run from which on a gain may be called certain: as likely as that it is above its
low end."""
CONFIRM_RUNS = 3
"""Runs after which a configuration is known and needs no more confirming."""
MAX_SERVED = 4
"""Candidates beside an established incumbent, without the random one: every job of one is one that
the others wait for."""
MAX_TESTED = 2
"""Of them, those that were run before and are being tested."""
LIKELY = 0.3
"""Probability to be better from which on what was run is run again."""
ASKED = 0.15
"""The same of what has not run since a change: one job mostly tells."""
WEIGHTS: Mapping[Kind, tuple[float, ...]] = {
    Kind.CONFIRM: (4.0, 2.0),
    Kind.EXPLOIT: (2.0,),
    Kind.EXPLORE: (1.0,),
}
"""Parts of the explore share, of the first and the following candidates of a kind."""
UNLIKELY = 0.25
"""Part of one whose job is not expected to gain anything: it may teach something, and mostly loses
(`benchmarks.never_harm` counts how many)."""
FULL = 4.0
"""Parts that claim all of the explore share: where nothing is likely to be better, less is spent
on looking."""
AGAIN = 2.0
"""Part of a former incumbent that has to be run again after a drift: of all that may be better now,
it is what most is known of."""
DRAWN = 0.25
"""Part of one that was drawn at random: in a month of 1,500 jobs in 3 contexts (``never_harm``) it
cost as much as it taught; that it is there at all keeps a study from staying around its
baseline."""


def side_by_side(study: Study) -> int:
    """How many candidates one message has, but for what a profiling round asks for."""
    return max(MAX_CANDIDATES, math.ceil(round(study.explore_share / MOST_SHARE, 6)))


def decide(
    study: Study,
    evidence: ConfigStatsTable,
    rivals: Sequence[MeasuredConfig],
    prospects: Sequence[SearchCandidate],
    baseline: Mapping[str, Value] | None,
    wanted: RoundRequest | None = None,
    held: ExcludedConfigs = UNHELD,
    introduction: Rollout | None = None,
    overrated: float = 0.0,
) -> Advice:
    """Choose candidates, shares and incumbent for one context.

    ``rivals`` are the measured configurations of the space, ``prospects`` what the search found,
    in the order in which they should be tried.
    ``introduction`` is settled already; without one the best estimate is the incumbent.
    ``overrated`` is by how much chosen candidates gained less than was predicted of them, as a
    share: lower bounds are lower by it.
    """
    usable = [r for r in rivals if r.trial.run_share >= study.min_feasible]
    if introduction is None:
        incumbent = elect(usable)
    else:
        incumbent = next((r for r in usable if r.candidate_id == introduction.incumbent), None)
    if evidence.constant is not None:
        prospects = ()  # nothing is to be won where every job gives the same
    careful = introduction if introduction and introduction.established and incumbent else None
    tested = _tested(study, usable, careful) if careful else _to_confirm(study, usable, incumbent)
    tested = tested if evidence.constant is None else ()
    confirming = [_confirming(study, r, incumbent, overrated, c) for r, c in tested]
    # A former incumbent that has to be run again may be tested already, or lead once more.
    named = {c.candidate_id for c in confirming} | {incumbent and incumbent.candidate_id}
    fresh = _fresh(study, evidence, prospects, incumbent)
    fresh = [p for p in fresh if p.candidate_id not in named]
    if careful:
        candidates = _served_beside(study, confirming, fresh, incumbent, overrated)
    else:
        chosen = _choose(fresh, side_by_side(study) - len(confirming))
        proposed = [_proposing(study, p, incumbent, overrated) for p in chosen]
        candidates = _share([*confirming, *proposed], study.explore_share)
    if wanted is not None:
        candidates = _with_wanted(study, candidates, wanted, incumbent)
    if incumbent is not None and not in_percent(study, incumbent):
        candidates = [replace(c, gain=None) for c in candidates]
    return Advice(
        candidates=tuple(candidates),
        incumbent=_stated(study, incumbent),
        baseline=baseline,
        reason=reason_for(
            study, evidence, incumbent, candidates, wanted, held, introduction, overrated
        ),
        round=wanted.round if wanted else None,
    )


def _served_beside(
    study: Study,
    confirming: Sequence[Candidate],
    fresh: Sequence[SearchCandidate],
    incumbent: MeasuredConfig | None,
    overrated: float,
) -> list[Candidate]:
    """What is tried beside an established incumbent, with the share of jobs of each."""
    room = MAX_SERVED + 1 - max(len(confirming), 1)
    again = [p for p in fresh if p.again][: room - 1]
    others = [p for p in fresh if not p.again]
    chosen = again + _choose(others, room - len(again))
    drawn = {p.candidate_id for p in chosen if p.at_random}
    proposed = [_proposing(study, p, incumbent, overrated) for p in chosen]
    proposed.sort(key=lambda c: (c.candidate_id in drawn, c.kind is not Kind.EXPLOIT))
    parts = {c.candidate_id: UNLIKELY for c in proposed if not _likely(c)}
    parts |= {p.candidate_id: AGAIN for p in again} | dict.fromkeys(drawn, DRAWN)
    return _weighed([*confirming, *proposed], study.explore_share, parts)


def _fresh(
    study: Study,
    evidence: ConfigStatsTable,
    prospects: Sequence[SearchCandidate],
    incumbent: MeasuredConfig | None,
) -> list[SearchCandidate]:
    """What was not tried here and most likely runs. Where nothing has run yet and nothing is
    likely to, what is likeliest: something must be tried."""
    # Once each: what was drawn at random may have been found by the search as well.
    distinct = {p.candidate_id: p for p in reversed(prospects)}
    untried = [
        p
        for p in prospects
        if p is distinct[p.candidate_id] and (p.again or _untried(evidence, p.candidate_id))
    ]
    fresh = [p for p in untried if p.feasible is None or p.feasible >= study.min_feasible]
    if fresh or incumbent is not None:
        return fresh
    return sorted(untried, key=lambda p: -(p.feasible or 0.0))


def says_the_same(advice: Advice, running: Recommendation) -> bool:
    """Whether schedulers would do the same under both: candidates, kinds, shares, wanted runs,
    incumbent and baseline. Predictions may have moved; that alone is no news."""
    return _instructions(advice) == _instructions(running)


def gist(said: Advice | Recommendation) -> str:
    """A name of what schedulers are told to do: alike where :func:`says_the_same`."""
    text = json.dumps(_instructions(said), sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def _untried(evidence: ConfigStatsTable, candidate_id: str) -> bool:
    """Whether nothing is known here of a configuration's speed."""
    trial = evidence.trials.get(candidate_id)
    return trial is None or (trial.ran > 0 and not trial.runs and trial.former is None)


def _tested(
    study: Study, usable: Sequence[MeasuredConfig], introduction: Rollout
) -> Sequence[tuple[MeasuredConfig, ChallengerEstimate | None]]:
    """What was run beside the incumbent and may well be better. Of what has not run since a change
    the likeliest to be better comes first."""
    by_id = {r.candidate_id: r for r in usable if r.feasible >= study.min_feasible}
    tested, asked = [], []
    for challenge in introduction.challenges(usable):
        rival = by_id.get(challenge.candidate_id)
        if rival is None:
            continue
        if rival.trial.runs and challenge.better >= LIKELY:
            tested.append((rival, challenge))
        elif not rival.trial.runs and challenge.better >= ASKED:
            asked.append((rival, challenge))
    asked.sort(key=lambda ask: -ask[1].better)
    return [*tested, *asked][:MAX_TESTED]


def _to_confirm(
    study: Study, rivals: Sequence[MeasuredConfig], incumbent: MeasuredConfig | None
) -> Sequence[tuple[MeasuredConfig, ChallengerEstimate | None]]:
    """What was hardly run and looks better than the incumbent."""
    if incumbent is None:
        return []
    open_questions = [
        r
        for r in rivals
        if r is not incumbent
        and r.trial.runs < CONFIRM_RUNS
        and r.feasible >= study.min_feasible
        and r.estimate.mean > incumbent.estimate.mean
    ]
    best = sorted(open_questions, key=lambda r: -r.estimate.mean)[:MAX_TESTED]
    return [(r, None) for r in best]


def _choose(prospects: Sequence[SearchCandidate], count: int) -> list[SearchCandidate]:
    """The first that are to be tried, and last one that was drawn at random.

    A searcher goes where the predictor already knows something; without the random one a study
    stays around its baseline.
    """
    searched = [p for p in prospects if not p.at_random]
    drawn = [p for p in prospects if p.at_random][: 1 if searched else count]
    return searched[: count - len(drawn)] + drawn


def _share(candidates: Sequence[Candidate], total: float) -> list[Candidate]:
    """Divide ``total`` evenly, rounded down so that the sum never passes it. By rank, two
    configurations to confirm would take two thirds of what is there to find new ones."""
    each = math.floor(1e6 * total / max(len(candidates), 1)) / 1e6
    return [replace(c, rank=i + 1, share=each) for i, c in enumerate(candidates)]


def _weighed(
    candidates: Sequence[Candidate], total: float, special: Mapping[str, float]
) -> list[Candidate]:
    """Divide ``total``, or as much of it as they deserve together, in proportion to what each
    candidate's kind weighs; ``special`` has what others weigh, by candidate id."""
    parts: list[float] = []
    for i, candidate in enumerate(candidates):
        before = sum(other.kind is candidate.kind for other in candidates[:i])
        weights = WEIGHTS[candidate.kind]
        part = weights[min(before, len(weights) - 1)]
        parts.append(special.get(candidate.candidate_id, part))
    whole = max(sum(parts), FULL)
    shares = [math.floor(1e6 * total * part / whole) / 1e6 for part in parts]
    return [
        replace(c, rank=i + 1, share=share)
        for i, (c, share) in enumerate(zip(candidates, shares, strict=True))
    ]


def _likely(candidate: Candidate) -> bool:
    """Whether a job of it is expected to gain anything; one that does not run loses all."""
    if candidate.gain is None or candidate.feasible is None:
        return True
    return candidate.feasible * (1.0 + candidate.gain.median) > 1.0


def _with_wanted(
    study: Study,
    candidates: Sequence[Candidate],
    wanted: RoundRequest,
    incumbent: MeasuredConfig | None,
) -> list[Candidate]:
    asked = [
        replace(_proposing(study, prospect, incumbent), wanted=missing)
        for prospect, missing in wanted.prospects
    ]
    ids = {candidate.candidate_id for candidate in asked}
    rest = [c for c in candidates if c.candidate_id not in ids]
    return [replace(c, rank=i + 1) for i, c in enumerate([*asked, *rest])]


def _proposing(
    study: Study,
    prospect: SearchCandidate,
    incumbent: MeasuredConfig | None,
    overrated: float = 0.0,
) -> Candidate:
    gain = None
    if prospect.mean is not None:
        gain = _gain(study, ScoreEstimate(prospect.mean, prospect.spread), incumbent, overrated)
    sure = gain is not None and gain.low > 0.0 and (prospect.feasible or 0.0) >= SURE
    return Candidate(
        candidate_id=prospect.candidate_id,
        rank=1,
        kind=Kind.EXPLOIT if sure else Kind.EXPLORE,
        share=0.0,
        config=prospect.config,
        predicted=None
        if prospect.mean is None
        else _predicted(study, ScoreEstimate(prospect.mean, prospect.spread)),
        feasible=None if prospect.feasible is None else round(prospect.feasible, 4),
        gain=gain,
    )


def _confirming(
    study: Study,
    rival: MeasuredConfig,
    incumbent: MeasuredConfig | None,
    overrated: float,
    challenge: ChallengerEstimate | None,
) -> Candidate:
    gain = _gain(study, rival.estimate, incumbent, overrated)
    if challenge is not None and incumbent is not None:
        against = incumbent.estimate.mean
        gain = _gain_by(study, challenge.mean, challenge.sd, against, overrated)
    if gain is not None and incumbent is not None and rival.trial.runs < CONFIRM_RUNS:
        gain = _no_surer(study, gain, rival.expected, incumbent)
    return Candidate(
        candidate_id=rival.candidate_id,
        rank=1,
        kind=Kind.CONFIRM,
        share=0.0,
        config=rival.trial.config,
        predicted=None if rival.expected is None else _predicted(study, rival.expected),
        feasible=round(rival.feasible, 4),
        gain=gain,
    )


def _band(study: Study, belief: ScoreEstimate) -> tuple[float, float, float]:
    """Median, low and high in the objective's unit; low is the smaller number whatever the goal.

    Always finite: after a handful of jobs a spread can be such that e to its power is not.
    """
    scores = (belief.mean, belief.mean - Z * belief.sd, belief.mean + Z * belief.sd)
    median, *ends = (min(max(study.metric_value(s), -LARGEST), LARGEST) for s in scores)
    if study.may_be_zero(belief.mean, NOTHING * Z * belief.sd):
        median = 0.0
    return median, min(ends), max(ends)


def _predicted(study: Study, belief: ScoreEstimate) -> Predicted:
    median, low, high = _band(study, belief)
    return Predicted(median=median, low=low, high=high, band=BAND)


def _gain(
    study: Study, belief: ScoreEstimate, incumbent: MeasuredConfig | None, overrated: float
) -> Gain | None:
    if incumbent is None:
        return None
    difference = belief.mean - incumbent.estimate.mean
    sd = math.hypot(belief.sd, incumbent.estimate.sd)
    return _gain_by(study, difference, sd, incumbent.estimate.mean, overrated)


def _gain_by(study: Study, difference: float, sd: float, against: float, overrated: float) -> Gain:
    return Gain(
        median=study.gain(against + difference, against),
        low=study.gain(against + difference - Z * sd, against) - overrated,
    )


def _no_surer(
    study: Study, gain: Gain, expected: ScoreEstimate | None, incumbent: MeasuredConfig
) -> Gain:
    """A gain whose low end is no better than that of what is predicted: hardly a run speaks
    against what lies there."""
    if expected is None:
        return gain
    low = study.gain(expected.mean - Z * expected.sd, incumbent.estimate.mean)
    return replace(gain, low=min(gain.low, low))


def _stated(study: Study, incumbent: MeasuredConfig | None) -> Incumbent | None:
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
