"""Splits and forecasters in, figures out.

Everything is asked of every forecaster: the same jobs known, the same asked for, in the same
repeats with the same seeds. What comes out of one question is a :class:`ForecastResult`; answers to
the parts of a split (fifths, groups) are put together and judged as one prediction.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tunerd.core.arrays import FloatArray, IntArray
from tunerd.core.observation import Observation
from tunerd.core.study import Study
from tunerd.lab.evaluation.forecast_scores import ForecastEvaluation, GroundTruth, judge
from tunerd.lab.evaluation.forecaster import Forecaster, JobForecasts, checked, stripped
from tunerd.lab.evaluation.splits import SplitFold
from tunerd.lab.evaluation.tunerd_forecaster import PrequentialForecaster

__all__ = ["ForecastResult", "ForecastTask", "SplitScore", "answer", "ask", "verdicts"]


@dataclass(frozen=True)
class ForecastTask:
    """One fold put to one forecaster."""

    fold: SplitFold
    who: "Forecaster | PrequentialForecaster"
    seed: int


@dataclass(frozen=True)
class ForecastResult:
    """What a forecaster said."""

    fold: SplitFold
    who: str
    foretold: JobForecasts
    seconds: float
    """For all of it: fit and prediction."""


@dataclass(frozen=True)
class SplitScore:
    """How well one forecaster did in one repeat of a split, all its parts judged together."""

    split: str
    known: str
    repeat: int
    who: str
    parts: int
    """Folds that were put together."""
    known_rows: float
    """Jobs known, a mean over them."""
    seconds: float
    """Of one fit and its predictions."""
    judged: ForecastEvaluation
    where: IntArray
    """Which jobs were asked for."""
    foretold: JobForecasts


def ask(
    folds: Sequence[SplitFold], whom: "Sequence[Forecaster | PrequentialForecaster]", seed: int = 0
) -> list[ForecastTask]:
    """All questions; the forecasters take turns, so that a comparison is fair at any moment."""
    return [ForecastTask(fold, who, seed + fold.repeat) for fold in folds for who in whom]


def answer(
    study: Study, observations: Sequence[Observation], question: ForecastTask
) -> ForecastResult:
    """Put one question.

    Raises:
        ValueError: the forecaster said something that cannot be judged.
    """
    fold, who = question.fold, question.who
    known = [observations[i] for i in fold.train.tolist()]
    asked = [observations[i] for i in fold.asked.tolist()]
    started = time.perf_counter()
    if isinstance(who, PrequentialForecaster):
        foretold = who.follow(study, known, asked, question.seed)
    else:
        foretold = who.foretell(study, known, [stripped(job) for job in asked], question.seed)
    seconds = time.perf_counter() - started
    return ForecastResult(fold, who.name, checked(who.name, foretold, len(asked)), seconds)


def verdicts(
    truth: GroundTruth, answers: Iterable[ForecastResult], seed: int = 0
) -> Iterator[SplitScore]:
    """Put answers to the parts of a split together and judge them.

    ``answers`` may come in any order; verdicts come in the order of split, amount known and
    repeat in which these first came.
    """
    together: dict[tuple[str, str, int, str], list[ForecastResult]] = {}
    for answer in answers:
        fold = answer.fold
        together.setdefault((fold.split, fold.known, fold.repeat, answer.who), []).append(answer)
    for (split, known, repeat, who), parts in together.items():
        where = np.concatenate([answer.fold.asked for answer in parts])
        foretold = _joined([answer.foretold for answer in parts])
        # The same ties are broken in the same way for everyone.
        rng = np.random.default_rng([seed, repeat])
        yield SplitScore(
            split,
            known,
            repeat,
            who,
            len(parts),
            float(np.mean([len(answer.fold.train) for answer in parts])),
            float(np.mean([answer.seconds for answer in parts])),
            judge(truth.take(where), foretold, rng),
            where,
            foretold,
        )


def _joined(parts: Sequence[JobForecasts]) -> JobForecasts:
    def together(of: Callable[[JobForecasts], FloatArray | None]) -> FloatArray | None:
        arrays = [of(part) for part in parts]
        there = [array for array in arrays if array is not None]
        return np.concatenate(there) if len(there) == len(arrays) else None

    return JobForecasts(
        np.concatenate([part.score for part in parts]),
        together(lambda part: part.low),
        together(lambda part: part.high),
        parts[0].band,
        together(lambda part: part.runs),
        parts[0].only_ranks,
    )
