"""What ``tunerd explain`` says, as data: what it prints as JSON, and shows in tables and plots."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import isnan, sqrt
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta

from tunerd import __version__
from tunerd.core.explain import explain_change, explain_overall
from tunerd.core.explain.importance import ImportanceScore, Method, Progress
from tunerd.core.model.model import StudyModel
from tunerd.core.observation import Scalar, Value
from tunerd.core.recommendation import Candidate, Recommendation
from tunerd.core.scores import kendall, within_contexts
from tunerd.core.space import SearchSpace
from tunerd.core.study import Study
from tunerd.errors import NothingFeasibleError
from tunerd.events import from_bytes
from tunerd.queries.saved_model import SavedStudyModel, kept_scores, load_model
from tunerd.store import CorruptCheckpointError, Store

__all__ = [
    "CandidateExplanation",
    "FeatureImportance",
    "GlobalExplanation",
    "ParameterContribution",
    "PrequentialAccuracy",
    "RecommendationExplanation",
    "SelectedRecommendation",
    "StudyExplanation",
    "earlier",
    "explain_one",
    "explain_study",
    "standing",
]

DRAWN = 32
"""Configurations that a candidate is compared with where there is no incumbent."""
LATEST = 500
"""Imported jobs whose predictions are looked at: as many live ones are in the tuner's window."""


@dataclass(frozen=True, slots=True)
class SelectedRecommendation:
    """A recommendation that stands, or would."""

    message: Recommendation
    state: str


class ExplainedModel(msgspec.Struct, frozen=True, kw_only=True):
    """The model that was asked."""

    predictor: str
    checkpoint: str
    jobs: Annotated[int, Meta(description="Jobs that it has learned.")]
    generation: int
    same: Annotated[
        bool,
        Meta(
            description="Whether a recommendation was made with this very model; its own is kept "
            "for a while only."
        ),
    ] = True


class FeatureImportance(msgspec.Struct, frozen=True, kw_only=True):
    """What one parameter, context feature, lookup or derived value is worth."""

    name: str
    group: str
    importance: Annotated[
        float,
        Meta(
            description="In score units (0.1 is about 10 % where the study compares by ratios). "
            "Permutation: rise of the mean absolute error; SHAP: mean size of its contribution."
        ),
    ]
    share: Annotated[
        float, Meta(description="RecommendationExplanation all importance together, 0 to 1.")
    ]
    kendall_tau: Annotated[
        float | None, Meta(description="Loss of Kendall's τ within contexts (permutation).")
    ]
    feasible: Annotated[
        float | None,
        Meta(description="Mean move of the probability to run (permutation)."),
    ]


class PrequentialAccuracy(msgspec.Struct, frozen=True, kw_only=True):
    """How well jobs were told before they were learned: what the model knows of new ones."""

    jobs: Annotated[int, Meta(description="The latest that were predicted before.")]
    kendall_tau: Annotated[
        float, Meta(description="τ within contexts, of live jobs as `tunerd status` has it.")
    ]
    imported: Annotated[
        bool, Meta(description="Whether they are imported ones, while live jobs are too few.")
    ]

    @property
    def chance(self) -> bool:
        """Whether predictions that have nothing to do with the jobs would do as well: τ is within
        two of its standard deviations then, 2/3 by the root of the number of jobs."""
        return self.kendall_tau <= 2 * (2 / 3) / sqrt(self.jobs)


class GlobalExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """What matters in a study, the most important first."""

    method: Method
    jobs: int
    contexts: int
    error: Annotated[
        float,
        Meta(
            description="Mean absolute error on these jobs, which the model has learned, in score "
            "units."
        ),
    ]
    kendall_tau: Annotated[
        float | None,
        Meta(description="τ within contexts on these jobs, which the model has learned."),
    ]
    beforehand: Annotated[
        PrequentialAccuracy | None,
        Meta(description="Null where too few jobs were predicted before."),
    ] = None
    within_contexts: bool
    matters: tuple[FeatureImportance, ...]


class ParameterContribution(msgspec.Struct, frozen=True, kw_only=True):
    """What one changed parameter adds."""

    parameter: str
    old: Value
    new: Value
    score: Annotated[float, Meta(description="In score units; these sum to the whole.")]
    gain: Annotated[
        float | None,
        Meta(
            description="The same as a relative gain; 0.04 is 4 % better. Null where what it is "
            "compared with may as well give 0, of which nothing is a share."
        ),
    ]
    feasible: Annotated[float, Meta(description="ParameterContribution to the probability to run.")]


class CandidateExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """One recommended configuration."""

    candidate_id: str
    rank: int
    kind: str
    said_gain: Annotated[
        float | None,
        Meta(description="As the recommendation says: against what runs of the incumbent showed."),
    ]
    said_gain_low: float | None
    said_feasible: float | None
    gain: Annotated[
        float | None,
        Meta(description="By the model alone, prediction against prediction; null as below."),
    ]
    score: Annotated[float, Meta(description="The same in score units.")]
    feasible: float
    feasible_before: Annotated[
        float, Meta(description="RecommendationExplanation what it is compared with.")
    ]
    exact: Annotated[bool, Meta(description="Whether all mixtures were asked about.")]
    changes: tuple[ParameterContribution, ...]


class RecommendationExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """The recommendation that is explained."""

    recommendation_id: str
    state: str
    context_key: str
    context: Mapping[str, Scalar]
    reason: str
    against: Annotated[
        Literal["incumbent", "baseline", "random"],
        Meta(description="What candidates are compared with; random: feasible configurations."),
    ]
    candidates: tuple[CandidateExplanation, ...]


class StudyExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """What ``tunerd explain`` says."""

    schema: Literal["tunerd.explanation/1"] = "tunerd.explanation/1"
    tunerd: str = __version__
    study: str
    metric: str
    unit: str
    goal: str
    ratios: Annotated[bool, Meta(description="Whether scores are logarithms: 0.1 is about 10 %.")]
    model: ExplainedModel
    overall: GlobalExplanation | None = None
    recommendation: RecommendationExplanation | None = None


def standing(store: Store, study: Study) -> list[SelectedRecommendation]:
    """What is recommended, and what waits or would be, by context key."""
    return [
        SelectedRecommendation(from_bytes(text.encode()), state)
        for row in store.recommendations(study.name)
        for state, text in row.standing(study.mode)
        if state in ("active", "pending", "observed")
    ]


def earlier(store: Store, study: str, recommendation_id: str) -> list[SelectedRecommendation]:
    """A recommendation that no longer stands, as long as its message is kept."""
    kept = store.derivation(recommendation_id) or store.issued(recommendation_id)
    if kept is None or kept.study != study:
        return []
    return [SelectedRecommendation(from_bytes(msgspec.json.encode(kept.message)), "earlier")]


def explain_study(
    store: Store, learned: SavedStudyModel, most: int, method: Method | None, progress: Progress
) -> StudyExplanation:
    """What matters in a study, asked over at most so many jobs."""
    jobs = learned.jobs(store, most)
    importance = explain_overall(learned.features, learned.model, jobs, 0, method, progress)
    overall = GlobalExplanation(
        method=importance.method,
        jobs=importance.jobs,
        contexts=importance.contexts,
        error=importance.error,
        kendall_tau=importance.kendall_tau,
        beforehand=_beforehand(store, learned.study.name),
        within_contexts=importance.within,
        matters=tuple(map(_factor, importance.matters)),
    )
    return StudyExplanation(**_head(learned, learned.checkpoint, learned.model), overall=overall)


def _beforehand(store: Store, study: str) -> PrequentialAccuracy | None:
    live = kept_scores(store, study)
    if live and (tau := live.get("kendall")) is not None:
        return PrequentialAccuracy(
            jobs=int(live["observations"] or 0), kendall_tau=tau, imported=False
        )
    judged = [
        (job.context_key, job.outcome.predicted, job.outcome.score)
        for job in store.predictions(study, history=True, most=LATEST)
        if job.outcome.predicted is not None and job.outcome.score is not None
    ]
    values = np.array([pair for _, *pair in judged], dtype=np.float64).reshape(-1, 2)
    keys = [key for key, _, _ in judged]
    tau = within_contexts(kendall, values[:, 0], values[:, 1], keys)
    return (
        None
        if isnan(tau)
        else PrequentialAccuracy(jobs=len(judged), kendall_tau=tau, imported=True)
    )


def explain_one(
    store: Store, learned: SavedStudyModel, told: SelectedRecommendation, progress: Progress
) -> StudyExplanation:
    """What the changes of each recommended configuration add."""
    message = told.message
    checkpoint, model = _model_of(store, learned, message)
    against, references = _references(learned, message)
    candidates = []
    for i, candidate in enumerate(message.candidates):
        progress(i, len(message.candidates))
        candidates.append(_explained(learned, model, message, candidate, references))
    same = checkpoint == message.made_from.model
    return StudyExplanation(
        **_head(learned, checkpoint, model, same=same),
        recommendation=RecommendationExplanation(
            recommendation_id=message.recommendation_id,
            state=told.state,
            context_key=message.context_key,
            context=message.context,
            reason=message.reason,
            against=against,
            candidates=tuple(candidates),
        ),
    )


def _head(
    learned: SavedStudyModel, checkpoint: str, model: StudyModel, *, same: bool = True
) -> dict[str, Any]:
    objective = learned.study.objective
    return {
        "study": learned.study.name,
        "metric": objective.metric,
        "unit": objective.unit,
        "goal": objective.goal,
        "ratios": objective.scale == "log",
        "model": ExplainedModel(
            predictor=learned.study.predictor.name,
            checkpoint=checkpoint,
            jobs=model.learned,
            generation=learned.generation,
            same=same,
        ),
    }


def _model_of(
    store: Store, learned: SavedStudyModel, message: Recommendation
) -> tuple[str, StudyModel]:
    """The model that a recommendation was made with; the last one where it cannot be read."""
    made = message.made_from
    if made.model is not None and made.study == learned.study.content_hash:
        # Pruned, damaged or of another build; the answer says which model was asked.
        with suppress(LookupError, CorruptCheckpointError, ValueError):
            return made.model, load_model(store, learned.study, learned.features, made.model)
    return learned.checkpoint, learned.model


def _references(
    learned: SavedStudyModel, message: Recommendation
) -> tuple[Literal["incumbent", "baseline", "random"], list[Mapping[str, Value]]]:
    study = learned.study
    if message.incumbent is not None:
        return "incumbent", [message.incumbent.config]
    baseline = message.baseline
    if baseline is not None and all(p.name in baseline for p in study.parameters):
        return "baseline", [baseline]
    try:
        space = SearchSpace(study, message.context)
    except NothingFeasibleError:
        return "random", [candidate.config for candidate in message.candidates]
    codes = space.sample(DRAWN, np.random.default_rng(0))
    return "random", [space.decode(code) for code in codes]


def _explained(
    learned: SavedStudyModel,
    model: StudyModel,
    message: Recommendation,
    candidate: Candidate,
    references: list[Mapping[str, Value]],
) -> CandidateExplanation:
    change = explain_change(learned.features, model, message.context, candidate.config, references)
    return CandidateExplanation(
        candidate_id=candidate.candidate_id,
        rank=candidate.rank,
        kind=candidate.kind.value,
        said_gain=None if candidate.gain is None else candidate.gain.median,
        said_gain_low=None if candidate.gain is None else candidate.gain.low,
        said_feasible=candidate.feasible,
        gain=change.gain,
        score=change.score,
        feasible=change.feasible,
        feasible_before=change.feasible_before,
        exact=change.exact,
        changes=tuple(
            ParameterContribution(
                parameter=part.parameter,
                old=part.old,
                new=part.new,
                score=part.score,
                gain=part.gain,
                feasible=part.feasible,
            )
            for part in change.changes
        ),
    )


def _factor(one: ImportanceScore) -> FeatureImportance:
    return FeatureImportance(
        name=one.name,
        group=one.group,
        importance=one.importance,
        share=one.share,
        kendall_tau=one.kendall_tau,
        feasible=one.feasible,
    )
