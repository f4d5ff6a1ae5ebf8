"""``tunerd backtest``: how well old jobs would have been predicted."""

import multiprocessing
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tunerd import __version__
from tunerd.cli.options import (
    json_option,
    settings_option,
    study_argument,
)
from tunerd.cli.progress import Show, progress, track

if TYPE_CHECKING:
    from tunerd.cli.historical_jobs import HistoricalJobs
    from tunerd.core.observation import Observation
    from tunerd.core.study import Study
    from tunerd.lab.evaluation.backtest import ForecastResult, ForecastTask, SplitScore
    from tunerd.lab.evaluation.importance import PermutationImportance
    from tunerd.lab.evaluation.results import BacktestResult
    from tunerd.lab.evaluation.splits import SplitFold, SplitSpec, TrainingAmount
    from tunerd.lab.evaluation.tunerd_forecaster import PrequentialForecaster, TunerdForecaster

__all__ = ["backtest"]

REPEATS = {"random": 2, "time": 1, "group": 1, "above": 1, "curve": 3}
"""Unless stated; where few jobs are drawn to be known, which ones is luck: then :data:`LUCKY`."""
LUCKY = 5


@click.command()
@study_argument()
@click.argument("files", nargs=-1, metavar="[FILE]...", type=click.Path(path_type=Path))
@settings_option
@click.option(
    "--split",
    "splits",
    multiple=True,
    metavar="SPLIT",
    help="What is asked about: random (a mixture), time (what finished later), group:COLUMN (a"
    " value that nobody has run; group:context_key for a context), above:COLUMN=VALUE (larger"
    " ones), curve (by jobs known). Several are allowed. [default: random]",
)
@click.option(
    "--known",
    metavar="N[,N]...",
    help="Jobs known, as numbers or shares: of all (random, curve), of the target (group, above),"
    " or up to the cut (time). 0,5,10,20 or 5%.",
)
@click.option("--repeats", type=click.IntRange(1, 1_000), help="Draws of the known jobs.")
@click.option(
    "--predictor",
    "predictors",
    multiple=True,
    metavar="NAME",
    help="Several are allowed. [default: the study's own]",
)
@click.option(
    "--live",
    is_flag=True,
    help="With --split time, also each predictor as it serves: learning as jobs come in.",
)
@click.option(
    "--mapping", type=click.Path(path_type=Path), metavar="FILE", help="How to read the tables."
)
@click.option("--seed", type=click.IntRange(0, 2**31), default=0, show_default=True)
@json_option
@click.option(
    "--plots", type=click.Path(path_type=Path), metavar="DIR", help="Draw PNG and SVG here."
)
@click.option(
    "--importance/--no-importance",
    "with_importance",
    default=True,
    help="Say what predictions lose by shuffled values.",
)
@click.option("--processes", type=click.IntRange(1, 64), default=1, show_default=True)
def backtest(
    study: str,
    files: tuple[Path, ...],
    file: Path | None,
    splits: tuple[str, ...],
    known: str | None,
    repeats: int | None,
    predictors: tuple[str, ...],
    live: bool,
    mapping: Path | None,
    seed: int,
    as_json: bool,
    plots: Path | None,
    with_importance: bool,
    processes: int,
) -> None:
    """Leave old jobs out, predict them from the others, and say how well that went.

    STUDY is a study file or the name of a study. Its jobs are those in FILE (CSV, JSON lines or
    Parquet, read by the study's [mapping]), without a FILE those in the store.
    """
    from tunerd.cli.backtest_view import show
    from tunerd.cli.historical_jobs import old_jobs
    from tunerd.lab.evaluation.backtest import verdicts
    from tunerd.lab.evaluation.forecast_scores import GroundTruth
    from tunerd.lab.evaluation.results import results
    from tunerd.lab.evaluation.splits import parse_known, parse_split
    from tunerd.lab.evaluation.tunerd_forecaster import PrequentialForecaster, forecaster

    amounts = parse_known(known) if known else ()
    with progress() as tell:
        jobs = old_jobs(study, files, mapping, file, partial(tell, "reading jobs"))
        for line in jobs.warnings():
            click.echo(line, err=True)
        own = [forecaster(name) for name in predictors or (jobs.study.predictor.name,)]
        wanted = [parse_split(text, jobs.study) for text in splits or ("random",)]
        folds = [fold for split in wanted for fold in _folds(jobs, split, amounts, repeats, seed)]
        if live and not any(split.kind == "time" for split in wanted):
            raise click.UsageError("--live follows jobs in their order: it needs --split time")
        asked = _questions(
            folds,
            own,
            [PrequentialForecaster(forecaster) for forecaster in own] if live else [],
            seed,
        )
        answers = list(track(_answers(jobs, asked, processes), "predicting", len(asked), tell))
        truth = GroundTruth.of(jobs.study, jobs.observations)
        judged = list(verdicts(truth, answers, seed))
        outcomes = results(judged, seed)
        important = _importances(jobs, folds, own, seed, tell) if with_importance else {}
    # Files first: a reader of the tables may have seen enough.
    if plots is not None:
        for path in _draw(plots, jobs.study, truth, judged, outcomes, important):
            click.echo(f"wrote {path}", err=True)
    if as_json:
        click.echo(_json(jobs, outcomes, important, seed))
    else:
        show(jobs.study, outcomes, important)


def _folds(
    jobs: "HistoricalJobs",
    split: "SplitSpec",
    known: "Sequence[TrainingAmount]",
    repeats: int | None,
    seed: int,
) -> "list[SplitFold]":
    from tunerd.errors import MisconfiguredError, ValidationProblem
    from tunerd.lab.evaluation.splits import folds

    if split.kind == "time" and not jobs.dated:
        why = "these jobs have no dates; mapping.finished_at names the column that has them"
        raise MisconfiguredError([ValidationProblem("--split time", why)])
    drawn = any(comparison.amount for comparison in known) and split.kind != "time"
    count = repeats or (LUCKY if drawn else REPEATS[split.kind])
    return folds(jobs.study, split, jobs.observations, known, count, seed)


def _questions(
    folds: "Sequence[SplitFold]",
    own: "Sequence[TunerdForecaster]",
    live: "Sequence[PrequentialForecaster]",
    seed: int,
) -> "list[ForecastTask]":
    from tunerd.lab.evaluation.backtest import ask

    in_order = [fold for fold in folds if fold.split == "time"]
    return ask(folds, own, seed) + ask(in_order, live, seed)


def _answers(
    jobs: "HistoricalJobs", questions: "Sequence[ForecastTask]", processes: int
) -> "Iterator[ForecastResult]":
    """Answers in the order of the questions, from this process or several."""
    from tunerd.lab.evaluation.backtest import answer

    if processes == 1:
        for question in questions:
            yield answer(jobs.study, jobs.observations, question)
        return
    context = multiprocessing.get_context("spawn")
    given = (jobs.study.text, jobs.observations)
    with ProcessPoolExecutor(processes, context, _begin, given) as pool:
        yield from pool.map(_answer, questions)


_given: "tuple[Study, Sequence[Observation]]"
"""In a process that answers: what all its questions are about."""


def _begin(text: str, observations: "Sequence[Observation]") -> None:
    global _given
    from tunerd.core.study_file import parse_study

    _given = parse_study(text), observations


def _answer(question: "ForecastTask") -> "ForecastResult":
    from tunerd.lab.evaluation.backtest import answer

    return answer(*_given, question)


def _importances(
    jobs: "HistoricalJobs",
    folds: "Sequence[SplitFold]",
    own: "Sequence[TunerdForecaster]",
    seed: int,
    tell: Show,
) -> "dict[str, Sequence[PermutationImportance]]":
    """Of each predictor on the last fold of each split: where the most is known."""
    from tunerd.lab.evaluation.importance import importance

    last = {fold.split: fold for fold in folds if fold.repeat == 0}
    asked = [(split, fold, forecaster) for split, fold in last.items() for forecaster in own]
    importances: dict[str, Sequence[PermutationImportance]] = {}
    for split, fold, forecaster in track(asked, "shuffling", len(asked), tell):
        importances[f"{split} {forecaster.name}"] = importance(
            jobs.study, forecaster, jobs.observations, fold, seed
        )
    return importances


def _json(
    jobs: "HistoricalJobs",
    found: "Sequence[BacktestResult]",
    important: "Mapping[str, Sequence[PermutationImportance]]",
    seed: int,
) -> bytes:
    import msgspec

    from tunerd.lab.evaluation.results import BacktestReport

    report = BacktestReport(
        tunerd=__version__,
        study=jobs.study.name,
        study_hash=jobs.study.content_hash,
        jobs=jobs.source,
        rows=len(jobs.observations),
        unusable=dict(jobs.unusable),
        seed=seed,
        results=tuple(found),
        importance={name: tuple(listed) for name, listed in important.items()},
    )
    return msgspec.json.format(msgspec.json.encode(report))


def _draw(
    folder: Path,
    study: "Study",
    truth: Any,
    judged: "Sequence[SplitScore]",
    found: "Sequence[BacktestResult]",
    important: "Mapping[str, Sequence[PermutationImportance]]",
) -> Iterator[Path]:
    from tunerd.lab.evaluation import plots

    folder.mkdir(parents=True, exist_ok=True)
    for split in dict.fromkeys(result.split for result in found):
        name = split.replace(":", "-").replace("=", "-").replace("/", "-")
        mine = [result for result in found if result.split == split]
        shown = [v for v in judged if v.split == split and v.repeat == 0][: plots.MOST_PANELS]
        yield from _save(plots.predicted(study, truth, shown), folder / f"{name}-predicted")
        if len({result.known for result in mine}) > 1:
            yield from _save(plots.amounts(split, mine), folder / f"{name}-known")
        if any(result.calibration and result.auc is not None for result in mine):
            yield from _save(plots.reliabilities(mine), folder / f"{name}-runs")
    if important:
        yield from _save(plots.importances(important), folder / "importance")


def _save(figure: Any, path: Path) -> Iterator[Path]:
    for ending in (".png", ".svg"):
        figure.savefig(path.with_name(path.name + ending), dpi=130)
        yield path.with_name(path.name + ending)
