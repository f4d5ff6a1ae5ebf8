"""What published candidates were said to gain, beside what jobs that followed them gained.

A searcher goes where the predictor errs in its favour, so that chosen candidates gain less than was
predicted of them: the searcher-exploitation gap. The decision takes it off its lower bounds.
"""

from msgspec import field

from tunerd.core.observation import FeasibilityLabel
from tunerd.core.recommendation import Advice, Kind, Recommendation, candidate_id
from tunerd.core.saved_state import FrozenState, SavedState
from tunerd.core.study import Study

__all__ = ["MOST_GAIN", "GainCalibration", "PredictedGain", "gained", "promises_of"]

LATEST = 200
"""Gains that count."""
MOST_GAIN = 10.0
"""A gain counts as tenfold at most: one broken metric, or an incumbent at about 0, would drown what
all others gained."""
PRIOR_GAPS = 10
"""Candidates that came out as predicted, before any did."""
MOST_GAP = 0.5
"""One job that went wrong says no more than this about how much predictions are overrated."""


class PredictedGain(FrozenState, frozen=True, array_like=True):
    """What a published candidate was said to gain."""

    gain: float | None
    """Relative to the incumbent of that moment; 0.04 is 4 % better. None where none was told, as of
    an incumbent that may as well give 0: then only the kind is known."""
    reference: float
    """That incumbent's score."""
    kind: Kind
    """Candidates that explore promise nothing; what was predicted of them is compared all the
    same."""
    against: str
    """That incumbent's candidate id."""


def promises_of(study: Study, key: str, said: Advice | Recommendation) -> dict[str, PredictedGain]:
    """What is promised of the candidates of a context, by their ids."""
    if said.incumbent is None:
        return {}
    reference = study.score({study.objective.metric: said.incumbent.median})
    assert reference is not None
    against = candidate_id(study.name, key, said.incumbent.config)
    return {
        candidate.candidate_id: PredictedGain(
            None if candidate.gain is None else candidate.gain.median,
            reference,
            candidate.kind,
            against,
        )
        for candidate in said.candidates
    }


def gained(study: Study, score: float, reference: float) -> float:
    """Gain of a job over an incumbent, as a share, within ± :data:`MOST_GAIN`."""
    return min(max(study.gain(score, reference), -MOST_GAIN), MOST_GAIN)


class GainCalibration(SavedState):
    """The latest promises that a job came of, in all contexts of a study."""

    pairs: list[tuple[float, float]] = field(default_factory=list)
    """(promised, realised) gain over the incumbent of candidates that jobs followed."""
    gaps: list[float] = field(default_factory=list)
    """Predicted less realised gain of candidates that were chosen by what was predicted of them."""

    def compare(
        self,
        study: Study,
        promise: PredictedGain | None,
        score: float | None,
        ran: FeasibilityLabel,
    ) -> None:
        """One job of a candidate of which this was promised."""
        if promise is None or promise.gain is None:
            return
        if ran is FeasibilityLabel.NO:  # it broke a guard, perhaps, and was fast
            if promise.kind is not Kind.CONFIRM:
                self._overrated_by(promise.gain + 1.0)  # all was lost
        elif score is not None:
            realised = gained(study, score, promise.reference)
            if promise.kind is not Kind.EXPLORE:
                self.pairs = [*self.pairs[1 - LATEST :], (promise.gain, realised)]
            if promise.kind is not Kind.CONFIRM:
                self._overrated_by(promise.gain - realised)

    def _overrated_by(self, gap: float) -> None:
        self.gaps = [*self.gaps[1 - LATEST :], gap]

    @property
    def overrated(self) -> float:
        """By how much chosen candidates gained less than was predicted of them. A share, never
        below 0; drawn to 0 while there are few."""
        worst = [min(max(gap, -MOST_GAP), MOST_GAP) for gap in self.gaps]
        return max(0.0, sum(worst) / (len(worst) + PRIOR_GAPS))
