"""Explanations made up for the purpose: what tables and plots are drawn from."""

from collections.abc import Sequence

from tunerd.queries.explanation import (
    CandidateExplanation,
    ExplainedModel,
    FeatureImportance,
    GlobalExplanation,
    ParameterContribution,
    RecommendationExplanation,
    StudyExplanation,
)

__all__ = ["of_one", "overall"]


def overall(*, matters: Sequence[tuple[str, str, float]], **more: object) -> StudyExplanation:
    """What matters, by name, group and importance, of a study called ``toy``."""
    total = sum(importance for _, _, importance in matters) or 1.0
    told = {
        "method": "permutation",
        "jobs": 300,
        "contexts": 6,
        "error": 0.05,
        "kendall_tau": 0.6,
        "within_contexts": True,
    }
    found = tuple(
        FeatureImportance(
            name=name,
            group=group,
            importance=importance,
            share=importance / total,
            kendall_tau=None,
            feasible=None,
        )
        for name, group, importance in matters
    )
    return StudyExplanation(**_head(more), overall=GlobalExplanation(**told | more, matters=found))  # type: ignore[arg-type]


def of_one(
    changes: Sequence[tuple[str, object, object, float]],
    candidates: int = 1,
    *,
    shares: bool = True,
    **more: object,
) -> StudyExplanation:
    """Why a recommendation: each candidate's changes by parameter, old, new and gain; without
    ``shares`` that is in the objective's unit."""
    made = tuple(
        ParameterContribution(
            parameter=name,
            old=old,  # type: ignore[arg-type]
            new=new,  # type: ignore[arg-type]
            score=gain,
            gain=gain if shares else None,
            feasible=0.0,
        )
        for name, old, new, gain in changes
    )
    told = {
        "recommendation_id": "r-1",
        "state": "active",
        "context_key": "toy|n=8",
        "context": {"n": 8},
        "reason": "",
        "against": "incumbent",
    }
    found = tuple(
        CandidateExplanation(
            candidate_id=f"c-{rank}",
            rank=rank,
            kind="exploit",
            said_gain=0.04,
            said_gain_low=0.01,
            said_feasible=0.9,
            gain=sum(one.score for one in made) if shares else None,
            score=sum(one.score for one in made),
            feasible=0.9,
            feasible_before=0.9,
            exact=True,
            changes=made,
        )
        for rank in range(1, candidates + 1)
    )
    head = _head(more)
    recommendation = RecommendationExplanation(**told | more, candidates=found)  # type: ignore[arg-type]
    return StudyExplanation(**head, recommendation=recommendation)  # type: ignore[arg-type]


def _head(more: dict[str, object]) -> dict[str, object]:
    """What all explanations have; takes its own out of ``more``."""
    plain = {
        "study": "toy",
        "metric": "speed",
        "unit": "1/s",
        "goal": "maximize",
        "ratios": True,
        "model": ExplainedModel(
            predictor="committee", checkpoint="sha256:0", jobs=300, generation=1
        ),
    }
    return plain | {name: more.pop(name) for name in plain if name in more}
