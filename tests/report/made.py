"""What a report is made of, made up."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from tests.core.tuning import study
from tests.report.world import START
from tunerd.core.evidence.prequential import PrequentialRecord
from tunerd.core.recommendation import (
    Candidate,
    Gain,
    Incumbent,
    Kind,
    MadeFrom,
    Predicted,
    Recommendation,
    StatedObjective,
)
from tunerd.core.study import Study
from tunerd.report.gather import CurrentRecommendation, ReportInputs

NOW = START + timedelta(days=30)


def told(key: str, context: Mapping[str, Any], **changes: Any) -> Recommendation:
    """A recommendation with everything in it."""
    values: dict[str, Any] = {
        "revision": 1,
        "study": "toy",
        "context_key": key,
        "context": context,
        "objective": StatedObjective(metric="speed", goal="maximize", unit="1/s"),
        "issued_at": NOW,
        "valid_until": NOW,
        "candidates": (
            Candidate(
                candidate_id="c-new",
                rank=1,
                kind=Kind.EXPLOIT,
                share=0.1,
                config={"x": 6, "y": "c", "z": True},
                predicted=Predicted(median=130.0, low=120.0, high=140.0),
                feasible=0.97,
                gain=Gain(median=0.3, low=0.1),
            ),
            Candidate(candidate_id="c-two", rank=2, kind=Kind.EXPLORE, share=0.1, config={"x": 2}),
        ),
        "incumbent": Incumbent(
            config={"x": 6, "y": "a", "z": False}, median=100.0, low=95.0, high=105.0, jobs=7
        ),
        "baseline": {"x": 1},
        "reason": "Predicted better: +30.0%.",
        "made_from": MadeFrom(sequence=1, model=None, study="", seeds=(1,), tunerd=""),
    }
    return Recommendation(**values | changes)


def material(
    live: Sequence[PrequentialRecord] = (),
    *,
    history: Sequence[PrequentialRecord] = (),
    recommendations: Mapping[str, CurrentRecommendation] | None = None,
    of: Study | None = None,
    **changes: Any,
) -> ReportInputs:
    """As it would be read from a store."""
    known = of or study(mode='"observe"')
    values: dict[str, Any] = {
        "study": known,
        "generation": 3,
        "since": START,
        "until": NOW,
        "live": list(live),
        "live_total": len(live),
        "history": list(history),
        "history_total": len(history),
        "told": recommendations or {},
        "unlearned": 0,
        "incomparable": 0,
    }
    return ReportInputs(**values | changes)


def advised(contexts: int) -> dict[str, CurrentRecommendation]:
    """A recommendation in each context of a world."""
    return {
        f"toy|n={c}": CurrentRecommendation("observed", told(f"toy|n={c}", {"n": c}))
        for c in range(contexts)
    }
