"""What tunerd thought of a job before it learned it, beside what came of it.

One bounded row per observation, kept with the step that learned it (test, then train). From these
rows alone ``tunerd report`` says how good predictions were and what following them would have
gained: a row has what the same model expected at the same moment of what the job ran, and of what
was recommended instead, so that whatever shifts a whole context cancels between the two.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec
import numpy as np
from msgspec import structs

from tunerd.core.arrays import FloatArray
from tunerd.core.conformal import HALF, ConformalBands
from tunerd.core.evidence.following import Following, follows
from tunerd.core.observation import FeasibilityLabel, Observation, Status, Value, started
from tunerd.core.recommendation import LARGEST, Kind, Recommendation, candidate_id
from tunerd.core.study import Study

if TYPE_CHECKING:  # whoever reads rows of a store needs no learners: they take a second to import
    from tunerd.core.features import FeatureMap, FeatureRows
    from tunerd.core.model.model import StudyModel

__all__ = [
    "HALF",
    "AdvisedRecommendation",
    "Advises",
    "LedgerEntry",
    "NamedJob",
    "PrequentialOutcome",
    "PrequentialRecord",
    "TargetPrediction",
    "judge",
    "nobody",
    "shortened",
]

_RAN = {
    FeasibilityLabel.YES: True,
    FeasibilityLabel.NO: False,
    FeasibilityLabel.WEAK_NO: False,
    FeasibilityLabel.UNKNOWN: None,
}


class TargetPrediction(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """A recommended configuration, as the model saw it at the moment of a job. In scores."""

    config_id: str
    """The candidate id of the configuration."""
    kind: Literal["incumbent", "exploit", "explore", "confirm"]
    score: float
    """Expected."""
    spread: float
    """Standard deviation of one job's score around it."""
    feasible: float
    """Probability to run."""


class LedgerEntry(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """What the ledger (:mod:`tunerd.core.decisions.ledger`) keeps of a live job. Leads are
    differences of scores."""

    lead: float | None = None
    """How far it was ahead of the incumbent of its time."""
    ahead: float = 0.0
    """How far its configuration, the incumbent or an earlier one, is ahead of what was launched
    here first; 0 for any other."""
    promised: float | None = None
    """Gain over the incumbent that was predicted of the candidate that it followed; None where that
    is no longer the incumbent."""
    kind: Literal["exploit", "explore", "confirm"] | None = None
    """Of that candidate."""


class PrequentialOutcome(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """What was thought of a job, and what came. Scores are oriented: larger is better."""

    config_id: str
    """The candidate id of the configuration that it ran."""
    tried: int = 0
    """Jobs of that configuration that its context knew already."""
    status: Status
    score: float | None = None
    """What came; None without a usable objective."""
    ran: bool | None = None
    """What it says about whether its configuration runs; None for nothing."""
    predicted: float | None = None
    """None before there was a model."""
    low: float | None = None
    """Lower end of the 80 % band."""
    high: float | None = None
    feasible: float | None = None
    """Predicted probability to run."""
    following: Following | None = None
    """None for an imported job."""
    told_to_try: bool = False
    """Whether it followed by running a candidate, and not by keeping to the best known."""
    recommendation_id: str | None = None
    """Of what was recommended in its context when it came, published or only observed."""
    ran_as: Literal["incumbent", "first", "candidate"] | None = None
    """As what that recommendation names the job's configuration, asked for or by coincidence."""
    incumbent: TargetPrediction | None = None
    """The best by evidence at that moment, as the recommendation names it."""
    first: TargetPrediction | None = None
    """The recommendation's first candidate."""
    gpu_hours: float | None = None
    """GPUs times hours from start to end, where the event has both."""
    entry: LedgerEntry | None = None
    """None for an imported job."""


class PrequentialRecord(msgspec.Struct, frozen=True, gc=False):
    """One row: a job's place, and what was thought of it."""

    sequence: int
    finished_at: datetime
    history: bool
    """Imported: it followed nothing and could not have."""
    context_key: str
    outcome: PrequentialOutcome
    corrects: int = 0
    """Sequence of the row of the same attempt whose outcome this puts right; 0 for none."""


@dataclass(frozen=True, slots=True)
class AdvisedRecommendation:
    """What is recommended in a context."""

    recommendation: Recommendation
    published: bool
    """Whether schedulers could see it; else it was only observed, or waits for approval."""


Advises = Callable[[str], AdvisedRecommendation | None]
"""What is recommended for a context key at the moment."""


def nobody(context_key: str) -> None:
    """Advise on nothing."""


class NamedJob(NamedTuple):
    """A job whose configuration has its name."""

    observation: Observation
    config_id: str
    config: Mapping[str, Value]
    tried: int
    """Jobs of this configuration that its context knew already."""


class _NamedRecommendation(NamedTuple):
    """A recommendation, its configurations named."""

    advised: AdvisedRecommendation
    stay: str | None
    """Config id of the incumbent."""
    candidates: Mapping[str, int]
    """Config id → rank."""

    @property
    def targets(self) -> list[tuple[str, Mapping[str, Value] | None, str | None]]:
        """The incumbent and the first candidate: (name, configuration, config id)."""
        recommendation = self.advised.recommendation
        stays = recommendation.incumbent
        first = next(iter(recommendation.candidates), None)
        return [
            ("incumbent", stays.config if stays else None, self.stay),
            ("first", first.config, first.candidate_id) if first else ("first", None, None),
        ]


def judge(
    study: Study,
    features: "FeatureMap",
    model: "StudyModel | None",
    bands: ConformalBands,
    jobs: Sequence[NamedJob],
    rows: "FeatureRows",
    tried: Callable[[str, str], int],
    advises: Advises = nobody,
    constant: Callable[[str], float | None] = nobody,
) -> list[PrequentialRecord]:
    """Judge jobs that are not learned yet; ``rows`` are theirs. One prediction for all of them.

    Bands learn each job right after it was judged, whether or not there is a model. What is
    recommended is looked at as it stood before the first of them. ``tried`` says how many jobs of a
    configuration a context knows, by context key and config id; ``constant`` what every job of a
    context gives, by its key.
    """
    offers = {key: _offer(study, key, advises(key)) for key in dict.fromkeys(rows.context_key)}
    predictions = _JobPredictions.of(
        study, features, model, bands, jobs, rows, tried, offers, constant
    )
    return [
        PrequentialRecord(
            sequence=job.observation.sequence,
            finished_at=job.observation.finished_at,
            history=job.observation.history,
            context_key=key,
            outcome=_outcome(study, job, key, i, score, offers[key], predictions),
        )
        for i, (job, key, score) in enumerate(
            zip(jobs, rows.context_key, rows.score.tolist(), strict=True)
        )
    ]


def _offer(
    study: Study, key: str, advised: AdvisedRecommendation | None
) -> _NamedRecommendation | None:
    if advised is None:
        return None
    recommendation = advised.recommendation
    stay = (
        candidate_id(study.name, key, recommendation.incumbent.config)
        if recommendation.incumbent
        else None
    )
    return _NamedRecommendation(
        advised, stay, {c.candidate_id: c.rank for c in recommendation.candidates}
    )


def _outcome(
    study: Study,
    job: NamedJob,
    key: str,
    i: int,
    score: float,
    offer: _NamedRecommendation | None,
    seen: "_JobPredictions",
) -> PrequentialOutcome:
    observation, config_id, _, tried = job
    plain = seen.job(
        i,
        PrequentialOutcome(
            config_id=config_id,
            tried=tried,
            status=observation.status,
            score=None if math.isnan(score) else shortened(score),
            ran=_RAN[study.ran(observation)],
            gpu_hours=_gpu_hours(observation),
        ),
    )
    if observation.history:
        return plain
    incumbent, first = seen.targets(i, key)
    recommendation = offer.advised.recommendation if offer else None
    published = recommendation if offer and offer.advised.published else None
    following = follows(observation, config_id, published, offer.stay if offer else None)
    return structs.replace(
        plain,
        following=following,
        told_to_try=following == "followed" and observation.candidate_id is not None,
        recommendation_id=recommendation.recommendation_id if recommendation else None,
        ran_as=_ran_as(config_id, offer),
        incumbent=incumbent,
        first=first,
    )


def _ran_as(
    config_id: str, offer: _NamedRecommendation | None
) -> Literal["incumbent", "first", "candidate"] | None:
    if offer is None:
        return None
    if config_id == offer.stay:
        return "incumbent"
    rank = offer.candidates.get(config_id)
    return None if rank is None else "first" if rank == 1 else "candidate"


@dataclass(frozen=True)
class _JobPredictions:
    """What the model says of n jobs, and below them of what was recommended to each."""

    mean: list[float]
    spread: list[float]
    feasible: list[float]
    places: Mapping[tuple[object, str], int]
    """(whose, as what) → row."""
    offers: Mapping[str, "_NamedRecommendation | None"]
    single: bool
    """Whether all jobs of a context key are of the very same context."""

    @classmethod
    def of(
        cls,
        study: Study,
        features: "FeatureMap",
        model: "StudyModel | None",
        bands: ConformalBands,
        jobs: Sequence[NamedJob],
        rows: "FeatureRows",
        tried: Callable[[str, str], int],
        offers: Mapping[str, "_NamedRecommendation | None"],
        constant: Callable[[str], float | None],
    ) -> "_JobPredictions":
        single = all(feature.key == "value" for feature in study.context)
        places: dict[tuple[object, str], int] = {}
        again = [job.tried > 0 for job in jobs]
        if model is None:
            bands.learn(rows.context_key, None, None, rows.score, np.array(again, np.bool_))
            return cls([], [], [], places, offers, single)
        wanted: list[Observation] = []
        for i, (job, key) in enumerate(zip(jobs, rows.context_key, strict=True)):
            offer, whose = offers[key], key if single else i
            if offer is None or job.observation.history or (whose, "first") in places:
                continue
            for name, config, config_id in offer.targets:
                places[whose, name] = -1
                if config is not None and config_id is not None:
                    places[whose, name] = len(rows) + len(wanted)
                    wanted.append(_as_if(job.observation, config))
                    again.append(tried(key, config_id) > 0)
        if wanted:
            rows = rows.joined(features.rows(wanted))
        n, keys, tried_before = len(jobs), rows.context_key, np.array(again, np.bool_)
        ended, advised = model.outlook(rows).split(n)
        # What was recommended is looked at as it stood before the first of the jobs.
        advised = advised.adjusted(keys[n:], tried_before[n:], bands)
        ended = ended.followed(keys[:n], tried_before[:n], bands, rows.score[:n])
        outlook = ended.concat(advised)
        for key in dict.fromkeys(keys):
            if (value := constant(key)) is not None:
                outlook = outlook.known_at(np.array([other == key for other in keys]), value)
        return cls(
            _shorts(outlook.mean),
            _shorts(outlook.std),
            _shorts(outlook.p_run),
            places,
            offers,
            single,
        )

    def job(self, i: int, outcome: PrequentialOutcome) -> PrequentialOutcome:
        """The outcome of a job with what was predicted of it."""
        if not self.mean:
            return outcome
        mean, half = self.mean[i], HALF * self.spread[i]
        return structs.replace(
            outcome,
            predicted=mean,
            low=shortened(mean - half),
            high=shortened(mean + half),
            feasible=self.feasible[i],
        )

    def targets(self, i: int, key: str) -> tuple[TargetPrediction | None, TargetPrediction | None]:
        """What was expected of the incumbent and of the first candidate in the context of job
        ``i``; None for what there is not."""
        offer, whose = self.offers[key], key if self.single else i
        if offer is None:
            return None, None
        incumbent = first = None
        at = self.places.get((whose, "incumbent"), -1)
        if at >= 0 and offer.stay is not None:
            incumbent = self._target(at, offer.stay, "incumbent")
        at = self.places.get((whose, "first"), -1)
        if at >= 0:
            candidate = offer.advised.recommendation.candidates[0]
            first = self._target(at, candidate.candidate_id, candidate.kind)
        return incumbent, first

    def _target(
        self, at: int, config_id: str, kind: Kind | Literal["incumbent"]
    ) -> TargetPrediction:
        return TargetPrediction(
            config_id=config_id,
            kind="incumbent" if kind == "incumbent" else kind.value,
            score=self.mean[at],
            spread=self.spread[at],
            feasible=self.feasible[at],
        )


def _as_if(job: Observation, config: Mapping[str, Value]) -> Observation:
    """The job, had it run this configuration."""
    return Observation(
        study=job.study,
        source="",
        event_id="",
        job_id="",
        status=Status.SUCCEEDED,
        finished_at=job.finished_at,
        context=job.context,
        config=config,
        metrics={},
    )


def _gpu_hours(job: Observation) -> float | None:
    began = started(job)
    if job.gpus is None or job.gpus <= 0 or began is None:
        return None
    hours = (job.finished_at - began).total_seconds() / 3600
    return shortened(job.gpus * hours) if hours > 0 else None


def shortened(value: float) -> float:
    """Seven digits: a row is read by people's programs and kept for a year."""
    return float(f"{value:.7g}")


def _shorts(values: FloatArray) -> list[float]:
    finite = np.nan_to_num(values, nan=0.0, posinf=LARGEST, neginf=-LARGEST)
    return [shortened(value) for value in finite.tolist()]
