"""Why a recommendation says what it says, in words for a person."""

import math
from collections.abc import Collection, Iterator, Sequence
from typing import cast

from tunerd.core.evidence.config_stats import FORGOTTEN, MAX_TRIALS, ConfigStatsTable, Z
from tunerd.core.evidence.decision_inputs import ExcludedConfigs, MeasuredConfig, RoundRequest
from tunerd.core.evidence.rollout import ESTABLISHED, Rollout, RolloutResult, elect
from tunerd.core.observation import Value
from tunerd.core.percent import percent
from tunerd.core.recommendation import Candidate, Gain, Kind
from tunerd.core.study import Study
from tunerd.core.study.context_key import written
from tunerd.core.study.parts import Parameter

__all__ = ["in_percent", "reason_for", "telling"]

MOST_LIMITS = 3
"""Limits that a reason names."""
CLEARLY = 2.0
"""Standard deviations by which what lies outside a space is better, to be mentioned."""
MOST_NEW = 3
"""Values that never ran that a reason names."""
WORTH_SAYING = 0.001
"""Overrating below this is not mentioned."""

_OUTCOMES = {
    "promoted": "The incumbent was promoted after {runs}, in which it was {gain} ahead.",
    "withdrawn": "Last withdrawn: a configuration that was {gain} in {runs}.",
    "given_up": "Last given up: a configuration that {runs} could not tell from the incumbent.",
    "failed": "Last withdrawn: a configuration that often does not run.",
    "slowed": "The former incumbent was given up: since a change it was {gain} in {runs}.",
    "returned": "The incumbent is back: what had replaced it did not keep up over {runs}.",
}


def in_percent(study: Study, incumbent: MeasuredConfig) -> bool:
    """Whether gains over the incumbent can be told as shares of what it gives."""
    estimate = incumbent.estimate
    return not study.may_be_zero(estimate.mean, Z * estimate.sd)


def reason_for(
    study: Study,
    evidence: ConfigStatsTable,
    incumbent: MeasuredConfig | None,
    candidates: Sequence[Candidate],
    wanted: RoundRequest | None,
    held: ExcludedConfigs,
    introduction: Rollout | None,
    overrated: float,
) -> str:
    """The reason of one recommendation."""
    fallen = introduction.fallen_ids if introduction else set()
    parts = [_why(study, evidence, incumbent, candidates, wanted, overrated, fallen)]
    parts += _extrapolated(study, evidence, candidates)
    if introduction is not None and introduction.verdicts and incumbent is not None:
        *earlier, last = introduction.verdicts
        if earlier and earlier[-1].outcome == "slowed" and earlier[-1].sequence == last.sequence:
            parts.append(_verdict(study, earlier[-1]))
        parts.append(_verdict(study, last))
    parts += _held_back(study, held, incumbent)
    parts += _outside(study, held, incumbent)
    return " ".join(parts)


def _why(
    study: Study,
    evidence: ConfigStatsTable,
    incumbent: MeasuredConfig | None,
    candidates: Sequence[Candidate],
    wanted: RoundRequest | None,
    overrated: float,
    fallen: Collection[str],
) -> str:
    jobs = _many(evidence.jobs, "job") + " in this context"
    if wanted is not None:
        runs = _many(sum(missing for _, missing in wanted.prospects), "run")
        what = "a spread-out random start" if wanted.round == 0 else "the best predicted"
        return f"Profiling round {wanted.round}: {runs} still wanted of {what}; {jobs}."
    if not candidates:
        return f"{_nothing(study, evidence, incumbent)}; {jobs}."
    if all(c.predicted is None for c in candidates):
        return f"Random start: nothing to predict from yet; {jobs}."
    if incumbent is None:
        likeliest = max(c.feasible or 0.0 for c in candidates)
        if likeliest < study.min_feasible:
            return (
                "Nothing is known that runs here, and something must be tried: the likeliest to, at"
                f" best with a probability of {likeliest:.0%}; {jobs}."
            )
        return _first_guesses(evidence.jobs, jobs)
    best = telling(candidates)
    if best.candidate_id in fallen:
        return (
            "Keep the incumbent: one that a change made slow is run again now and then, to see"
            f" whether that is over; {jobs}."
        )
    against = f"the incumbent ({_many(incumbent.trial.runs, 'run')})"
    how = f"{against} may as well give 0, of which no gain is a share"
    if best.gain is not None:
        how = _compared(best.gain, against)
        if overrated >= WORTH_SAYING:
            off = percent(overrated, sign=False)
            how += f" ({off} taken off, by which chosen candidates were overrated lately)"
    trial = evidence.trials.get(best.candidate_id)
    if evidence.begun and trial is not None and trial.former and trial.runs <= ESTABLISHED:
        return (
            f"Speeds changed here with job {evidence.begun[-1][0]}: asks again what was measured"
            f" before, the likeliest first: {how}; {jobs}."
        )
    if best.kind is Kind.CONFIRM:
        return f"Tests what may be better before it may become the incumbent: {how}; {jobs}."
    if best.kind is Kind.EXPLOIT:
        return f"Predicted better: {how}; {jobs}."
    return (
        f"Keep the incumbent: {_why_kept(best.gain)}. Candidates are run to learn"
        f" from{'; ' if best.gain is None else ', the best of them '}{how}; {jobs}."
    )


def _why_kept(gain: Gain | None) -> str:
    if gain is not None and gain.low > 0:  # too few of its jobs are expected to run
        return "what is predicted better may not run"
    return "no gain is certain to be above zero"


def _compared(gain: Gain, against: str) -> str:
    """A predicted gain; its low end only where that is a gain."""
    if not gain.median > 0:
        return f"predicted {percent(-gain.median, sign=False)} worse than {against}"
    low = f"{percent(gain.low)} at the low end" if gain.low > 0 else "perhaps none"
    return f"{percent(gain.median)} against {against}, {low}"


def _extrapolated(
    study: Study, evidence: ConfigStatsTable, candidates: Sequence[Candidate]
) -> Iterator[str]:
    """What to add where a candidate has a value that no job here ran."""
    trials = evidence.trials.values()
    if not trials or len(trials) > MAX_TRIALS - FORGOTTEN:  # else some of what ran is forgotten
        return
    new: dict[str, None] = {}
    for parameter in study.parameters:
        ran = [
            setting for t in trials for setting in _values(parameter, t.config.get(parameter.name))
        ]
        for candidate in candidates:
            for value in _values(parameter, candidate.config[parameter.name]):
                if not _is_known(parameter, value, ran):
                    new[f"{parameter.name}={written(cast(Value, value))}"] = None
    if new:
        some = " or ".join(list(new)[:MOST_NEW])
        more = f" (and {len(new) - MOST_NEW} more)" if len(new) > MOST_NEW else ""
        yield f"No job here ran {some}{more}: that it runs, and how well, is extrapolated."


def _values(parameter: Parameter, value: Value | None) -> Sequence[object]:
    return () if value is None else parameter.spread(value)


def _is_known(parameter: Parameter, value: object, ran: Sequence[object]) -> bool:
    """Whether a value ran, or one on either side of it in a range."""
    if not parameter.ranged:
        return value in ran
    numbers = [entry for entry in ran if isinstance(entry, int | float)]
    assert isinstance(value, int | float)
    return bool(numbers) and min(numbers) <= value <= max(numbers)


def _nothing(study: Study, evidence: ConfigStatsTable, incumbent: MeasuredConfig | None) -> str:
    """Why nothing is to be tried."""
    if evidence.constant is not None:
        value, alike, _ = evidence.alike
        measured = f"{study.metric_value(value):.6g} {study.objective.unit}".strip()
        return (
            "Nothing is worth trying, for nothing can be told apart: the latest"
            f" {_many(alike, 'job')} here all gave {measured}, whatever they ran"
        )
    if incumbent is None:
        return "Nothing new is worth trying"
    return "Keep the incumbent: nothing new is worth trying"


def _first_guesses(count: int, jobs: str) -> str:
    if count:
        return (
            f"First guesses: of {jobs} none ran, well enough to go by, in a configuration that may"
            " be recommended."
        )
    return f"First guesses from what other contexts showed; {jobs}."


def telling(candidates: Sequence[Candidate]) -> Candidate:
    """The candidate that a reason speaks of."""
    order = (Kind.CONFIRM, Kind.EXPLOIT, Kind.EXPLORE)
    first = min((c.kind for c in candidates), key=order.index)
    same = [c for c in candidates if c.kind is first]
    return max(same, key=lambda c: c.gain.median if c.gain else -math.inf)


def _verdict(study: Study, last: RolloutResult) -> str:
    gain = study.gain(last.gain, 0.0) if study.objective.scale == "log" else None
    text = _OUTCOMES[last.outcome]
    if gain is None:
        text = text.replace(", in which it was {gain} ahead", "").replace("{gain}", "worse")
    else:
        shown = percent(gain, sign=last.outcome != "promoted")
        text = text.replace("{gain}", shown)
    return text.replace("{runs}", _many(last.runs, "run"))


def _held_back(study: Study, held: ExcludedConfigs, incumbent: MeasuredConfig | None) -> list[str]:
    """What to add to a reason where limits are set."""
    if not held.limits:
        return []
    named = ", ".join(held.limits[:MOST_LIMITS])
    more = len(held.limits) - MOST_LIMITS
    sentences = [f"Limits here: {named}{f' and {more} more' if more > 0 else ''}."]
    best = elect([r for r in held.rivals if r.trial.run_share >= study.min_feasible])
    if best is not None and incumbent is None:
        sentences.append("All that was measured here breaks them.")
    elif best is not None and incumbent is not None:
        gain = study.gain(best.estimate.mean, incumbent.estimate.mean)
        by = f"{percent(gain, sign=False)} " if in_percent(study, incumbent) else ""
        if gain > 0:
            sentences.append(f"They rule out a measured configuration that is {by}better.")
    if held.baseline:
        sentences.append("They rule out the baseline.")
    return sentences


def _outside(study: Study, held: ExcludedConfigs, incumbent: MeasuredConfig | None) -> list[str]:
    """What to add where people run something that cannot be recommended, and is better."""
    if held.outside is None:
        return []
    best, runs = held.outside.estimate, _many(held.outside.trial.runs, "run")
    where = f"the study's space: {held.why_outside}."
    if incumbent is None:
        return [f"What ran best here ({runs}) lies outside {where}"]
    own = incumbent.estimate
    if best.mean - own.mean <= CLEARLY * math.hypot(best.sd, own.sd):
        return []
    gain = percent(study.gain(best.mean, own.mean), sign=False)
    by = f"{gain} " if in_percent(study, incumbent) else ""
    return [f"What ran {by}better ({runs}) lies outside {where}"]


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
