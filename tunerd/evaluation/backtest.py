"""Splits and forecasters in, figures out.

Everything is asked of every forecaster: the same jobs known, the same asked for, in the same
repeats with the same seeds. What comes out of one question is an :class:`Answer`; answers to
the parts of a split (fifths, groups) are put together and judged as one prediction.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tunerd.core.arrays import FloatArray, IntArray
from tunerd.core.observation import Observation
from tunerd.core.study import Study
from tunerd.evaluation.judging import Judged, Truth, judge
from tunerd.evaluation.own import Live
from tunerd.evaluation.predicting import Forecaster, Foretold, checked, stripped
from tunerd.evaluation.splits import Fold

__all__ = ["Answer", "Question", "Verdict", "answer", "ask", "verdicts"]


@dataclass(frozen=True)
class Question:
    """One fold put to one forecaster."""

    fold: Fold
    who: "Forecaster | Live"
    seed: int


@dataclass(frozen=True)
class Answer:
    """What a forecaster said."""

    fold: Fold
    who: str
    foretold: Foretold
    seconds: float
    """For all of it: fit and prediction."""


@dataclass(frozen=True)
class Verdict:
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
    judged: Judged
    where: IntArray
    """Which jobs were asked for."""
    foretold: Foretold


def ask(
    folds: Sequence[Fold], whom: "Sequence[Forecaster | Live]", seed: int = 0
) -> list[Question]:
    """All questions; the forecasters take turns, so that a comparison is fair at any moment."""
    return [Question(fold, who, seed + fold.repeat) for fold in folds for who in whom]


def answer(study: Study, observations: Sequence[Observation], question: Question) -> Answer:
    """Put one question.

    Raises:
        ValueError: the forecaster said something that cannot be judged.
    """
    fold, who = question.fold, question.who
    known = [observations[i] for i in fold.train.tolist()]
    asked = [observations[i] for i in fold.asked.tolist()]
    started = time.perf_counter()
    if isinstance(who, Live):
        foretold = who.follow(study, known, asked, question.seed)
    else:
        foretold = who.foretell(study, known, [stripped(one) for one in asked], question.seed)
    seconds = time.perf_counter() - started
    return Answer(fold, who.name, checked(who.name, foretold, len(asked)), seconds)


def verdicts(truth: Truth, answers: Iterable[Answer], seed: int = 0) -> Iterator[Verdict]:
    """Put answers to the parts of a split together and judge them.

    ``answers`` may come in any order; verdicts come in the order of split, amount known and
    repeat in which these first came.
    """
    together: dict[tuple[str, str, int, str], list[Answer]] = {}
    for one in answers:
        fold = one.fold
        together.setdefault((fold.split, fold.known, fold.repeat, one.who), []).append(one)
    for (split, known, repeat, who), parts in together.items():
        where = np.concatenate([one.fold.asked for one in parts])
        foretold = _joined([one.foretold for one in parts])
        # The same ties are broken in the same way for everyone.
        rng = np.random.default_rng([seed, repeat])
        yield Verdict(
            split,
            known,
            repeat,
            who,
            len(parts),
            float(np.mean([len(one.fold.train) for one in parts])),
            float(np.mean([one.seconds for one in parts])),
            judge(truth.take(where), foretold, rng),
            where,
            foretold,
        )


def _joined(parts: Sequence[Foretold]) -> Foretold:
    def together(of: Callable[[Foretold], FloatArray | None]) -> FloatArray | None:
        arrays = [of(part) for part in parts]
        there = [array for array in arrays if array is not None]
        return np.concatenate(there) if len(there) == len(arrays) else None

    return Foretold(
        np.concatenate([part.score for part in parts]),
        together(lambda part: part.low),
        together(lambda part: part.high),
        parts[0].band,
        together(lambda part: part.runs),
        parts[0].only_ranks,
    )
