"""What a change of speed led to in a context, for people: what was given up, what is asked again.

Small and bounded, saved with the study, so that nobody has to read all contexts to say it.
"""

from collections.abc import Collection, Mapping

from msgspec import field

from tunerd.core.decisions.context_state import ContextState
from tunerd.core.evidence.rollout import ESTABLISHED, RolloutResult
from tunerd.core.observation import Value
from tunerd.core.recommendation import Advice
from tunerd.core.saved_state import FrozenState, SavedState
from tunerd.core.study import Study

__all__ = ["DriftConsequences", "ReplacedIncumbent", "asked_again"]

MOST = 16
"""Contexts, and configurations given up, that are remembered: the latest ones."""


MOST_SHOWN = 120
"""Characters of a configuration in a sentence."""


class ReplacedIncumbent(FrozenState, frozen=True, array_like=True):
    """An incumbent that a change made slow, and that gave way to a measured alternative."""

    context_key: str
    config: Mapping[str, Value]
    before: float
    """What it gave before the change, in scores …"""
    now: float
    """… and what it gave since."""
    sequence: int
    """Of the job that decided it."""
    at: str
    """When that job ended, ISO 8601; empty where nobody knows."""

    def words(self, study: Study) -> str:
        """The same for people."""
        before, now = (study.metric_value(score) for score in (self.before, self.now))
        unit = f" {study.objective.unit}" if study.objective.unit else ""
        when = f", {self.at[:16].replace('T', ' ')}" if self.at else ""
        return (
            f"Given up in {self.context_key} with job {self.sequence}{when}: "
            f"{_shown(self.config)}, which gave {before:.4g} before a change and {now:.4g}{unit} "
            "since. It is run again now and then, in case that is over."
        )


class DriftConsequences(SavedState):
    """The latest of a study."""

    given_up: list[ReplacedIncumbent] = field(default_factory=list)
    asked: dict[str, list[dict[str, Value]]] = field(default_factory=dict)
    """Configurations that are being asked again, by context key."""

    def note(self, key: str, state: ContextState, advice: Advice, sequence: int) -> None:
        """Take in what was decided in a context after the job of a sequence."""
        for verdict in state.introduction.verdicts:
            if verdict.outcome == "slowed" and verdict.sequence == sequence:
                self._give_up(key, state, verdict)
        self.asked.pop(key, None)
        if asked := asked_again(state, advice):
            self.asked[key] = asked
            for first in list(self.asked)[:-MOST]:
                del self.asked[first]

    def _give_up(self, key: str, state: ContextState, verdict: RolloutResult) -> None:
        trial = state.evidence.trials.get(verdict.candidate_id)
        if trial is None or trial.former is None:
            return
        replaced = ReplacedIncumbent(
            key, trial.config, trial.former[0], trial.mean, verdict.sequence, verdict.at
        )
        if replaced not in self.given_up:
            self.given_up = [*self.given_up[1 - MOST :], replaced]

    def words(self, study: Study, contexts: Collection[str] = (), since: int = 0) -> list[str]:
        """Sentences for people: all, or those of some contexts and from a job on."""
        sentences = [
            replaced.words(study)
            for replaced in self.given_up
            if replaced.sequence >= since and (not contexts or replaced.context_key in contexts)
        ]
        for key, configs in self.asked.items():
            if not contexts or key in contexts:
                sentences.append(f"Asked again in {key}: {'; '.join(map(_shown, configs))}.")
        return sentences


def _shown(config: Mapping[str, Value]) -> str:
    text = ", ".join(f"{name} = {value}" for name, value in config.items())
    return text if len(text) <= MOST_SHOWN else text[: MOST_SHOWN - 1] + "…"


def asked_again(state: ContextState, advice: Advice) -> list[dict[str, Value]]:
    """The candidates that were measured before a change, and whose few jobs since do not yet say
    where they are now."""
    trials = state.evidence.trials
    return [
        dict(candidate.config)
        for candidate in advice.candidates
        if (trial := trials.get(candidate.candidate_id)) is not None
        and trial.former is not None
        and (trial.runs <= ESTABLISHED or candidate.candidate_id in state.introduction.fallen_ids)
    ]
