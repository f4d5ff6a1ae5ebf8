"""``tunerd check``: contracts, before anything runs."""

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tunerd.cli.options import (
    json_option,
    read_settings,
    settings_option,
    tell_json,
    tell_problems,
)
from tunerd.errors import MisconfiguredError, NothingFeasibleError, ValidationProblem

if TYPE_CHECKING:
    from tunerd.core.study import Study
    from tunerd.settings import Settings

__all__ = ["check"]

MOST_COUNTED = 1_000_000
"""Feasible configurations are counted up to here; of more the number says nothing."""
MOST_JOBS = 100_000
"""The latest jobs of which it is said whether they lie in the space."""


@click.command()
@settings_option
@click.argument("studies", nargs=-1, metavar="[STUDY.toml]...", type=click.Path(path_type=Path))
@click.option(
    "--context",
    multiple=True,
    metavar="NAME=VALUE",
    help="With one STUDY.toml: count the configurations that are feasible in this context.",
)
@click.option(
    "--diff",
    is_flag=True,
    help="Say what the studies would change where they are installed: entries, history, contexts, "
    "recommendations, incumbents. Changes nothing.",
)
@click.option(
    "--against",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="With --diff and one STUDY.toml: compare with this file, not with what is installed.",
)
@click.option(
    "--history",
    is_flag=True,
    help="Say how many of the jobs in history lie in the space, and why the others do not.",
)
@json_option
def check(
    file: Path | None,
    studies: tuple[Path, ...],
    context: tuple[str, ...],
    diff: bool,
    against: Path | None,
    history: bool,
    as_json: bool,
) -> int:
    """Validate the settings and the studies in their folder, or just these STUDY.toml files.

    Says everything that is wrong at once, with file, key and what would be right. Exit code 0
    when all is well, else 2. What `tunerd init` guessed is repeated until it is confirmed.
    """
    if context and len(studies) != 1:
        raise click.UsageError("--context needs exactly one STUDY.toml")
    if against is not None and not diff:
        raise click.UsageError("--against needs --diff")
    if against is not None and len(studies) != 1:
        raise click.UsageError("--against needs exactly one STUDY.toml")
    problems: list[ValidationProblem] = []
    settings, files = _read(file, studies, problems)
    summaries = [_summary(study) for study in files]
    _judge_constraints(settings, files, summaries, problems)
    if context and files:
        summaries[0]["feasible"] = _feasible(files[0], context)
    if history and not problems:
        _add_places(settings or read_settings(file), files, summaries)
    if diff and not problems:
        from tunerd.cli.diff import compare

        for summary, comparison in zip(summaries, compare(file, files, against), strict=True):
            summary["diff"] = comparison
    if as_json:
        report = {
            "ok": not problems,
            "problems": [{"where": p.where, "message": p.message} for p in problems],
            "studies": summaries,
        }
        tell_json(report)
    else:
        tell_problems(problems)
        for summary in summaries:
            click.echo(_told(summary) if not diff or problems else f"{summary['name']}:")
            if "diff" in summary:
                from tunerd.cli.diff import show

                show(summary["diff"])
        if not problems:
            click.echo(_all_well(settings, len(files)))
    return 2 if problems else 0


def _judge_constraints(
    settings: "Settings | None",
    found: "Sequence[Study]",
    summaries: Sequence[dict[str, Any]],
    problems: list[ValidationProblem],
) -> None:
    """Add what is to be said of constraints that can never hold."""
    if not any(study.constraints for study in found):
        return
    from tunerd.cli.unsatisfiable import impossible, latest_jobs, never_true

    for study, summary in zip(found, summaries, strict=True):
        problems += impossible(study)
        jobs = [] if settings is None else latest_jobs(settings, study.name)
        summary["never_true"] = list(never_true(study, jobs))


def _read(
    file: Path | None, files: Sequence[Path], problems: list[ValidationProblem]
) -> "tuple[Settings | None, Sequence[Study]]":
    """Settings (unless only studies are asked for) and studies; mistakes go to ``problems``."""
    from tunerd.settings import is_there
    from tunerd.settings.studies import load_studies, passed_over, read_studies

    settings = None
    if file is not None or not files:
        try:
            settings = read_settings(file, check_studies=not files)
        except MisconfiguredError as error:
            problems += error.problems
    try:
        if files:
            return settings, read_studies(files)
        if settings is not None and is_there(settings.studies):
            for problem in passed_over(settings.studies):
                click.echo(f"Note: {problem}.", err=True)
            return settings, load_studies(settings.studies)
    except MisconfiguredError as error:
        problems += error.problems
    return settings, ()


def _summary(study: "Study") -> dict[str, Any]:
    from tunerd.lab.tables.open_guesses import open_guesses

    return {
        "name": study.name,
        "mode": study.mode,
        "objective": f"{study.objective.goal} {study.objective.metric}",
        "unit": study.objective.unit,
        "context": [feature.name for feature in study.context],
        "parameters": {
            parameter.name: len(parameter.choices) ** parameter.repeat
            for parameter in study.parameters
        },
        "continuous": [parameter.name for parameter in study.parameters if parameter.continuous],
        "configurations": math.prod(
            len(parameter.choices) ** parameter.repeat for parameter in study.parameters
        ),
        "constraints": [constraint.name for constraint in study.constraints],
        "never_true": [],
        "guards": [guard.metric for guard in study.guards],
        "baselines": len(study.baselines),
        "search": _way(study, None),
        "guesses": [
            {"line": text.line, "entry": text.entry, "why": text.why}
            for text in open_guesses(study.text)
        ],
        "content_hash": study.content_hash,
    }


def _way(study: "Study", feasible: int | None) -> str:
    """How candidates are looked for, where that many configurations are feasible, or unknown."""
    options = study.search
    most, seeds = options.evaluations, len(options.seeds)
    searcher = options.searcher
    if searcher == "optuna":
        from tunerd.core.searchers.optuna import OptunaOptions

        searcher += f" ({OptunaOptions.among(options.own).sampler})"
    asked = f"{_number(most)} prediction{'s' * (most > 1)}"
    by = f"{searcher}, {seeds} seed{'s' * (seeds > 1)}, at most {asked}"
    before = math.prod(len(p.choices) ** p.repeat for p in study.parameters)
    if (before if feasible is None else feasible) <= options.listed:
        return "all are looked at"
    if feasible is not None or not study.constraints:
        return by
    return f"{by}; all are looked at where no more are feasible"


def _feasible(study: "Study", given: Sequence[str]) -> dict[str, Any]:
    """How many configurations are feasible in a context; ``None`` for too many to count."""
    from tunerd.cli.contexts import parse_context
    from tunerd.core.space import SearchSpace

    context = parse_context(study, given)
    try:
        space = SearchSpace(study, context)
    except NothingFeasibleError as error:
        return {"context": context, "configurations": 0, "why": str(error)}
    count = space.size
    way = _way(study, study.search.listed + 1 if count is None else count)
    shown = None if count is None or count > MOST_COUNTED else count
    return {"context": context, "configurations": shown, "search": way}


def _told(summary: dict[str, Any]) -> str:
    from tunerd.lab.tables.open_guesses import A_GUESS

    unit = f" ({summary['unit']})" if summary["unit"] else ""
    lines = [
        f"{summary['name']}: {summary['objective']}{unit}, mode {summary['mode']}",
        f"  context         {', '.join(summary['context']) or 'none'}",
        f"  parameters      {', '.join(summary['parameters'])}",
        f"  configurations  {_configurations(summary)} before constraints",
        f"  constraints     {', '.join(summary['constraints']) or 'none'}",
        f"  guards          {', '.join(summary['guards']) or 'none'}",
        f"  baselines       {summary['baselines'] or 'none: what unasked jobs most often use'}",
        f"  search          {summary['search']}",
    ]
    if "history" in summary:
        lines.append(f"  history         {_history(summary['history'])}")
    lines += [f"  never true      {never}" for never in summary["never_true"]]
    feasible = summary.get("feasible")
    if feasible:
        count = feasible["configurations"]
        text = f"more than {_number(MOST_COUNTED)}" if count is None else _number(count)
        lines.append(f"  feasible here   {text}")
        if "search" in feasible:
            lines.append(f"  search here     {feasible['search']}")
        if "why" in feasible:
            lines.append(f"    {feasible['why']}")
    if summary["guesses"]:
        lines.append(f"  guessed         take out {A_GUESS!r} where it is right:")
        lines += [
            f"    line {guess['line']}: {guess['entry']}  # {guess['why']}"
            for guess in summary["guesses"]
        ]
    return "\n".join(lines)


def _configurations(summary: dict[str, Any]) -> str:
    count = _number(summary["configurations"])
    if not summary["continuous"]:
        return count
    return f"no end ({', '.join(summary['continuous'])} continuous); {count} on the search's grid,"


def _add_places(
    settings: "Settings", found: "Sequence[Study]", summaries: Sequence[dict[str, Any]]
) -> None:
    """Add how many jobs of history lie in the space of each study."""
    from tunerd.cli.unsatisfiable import latest_jobs
    from tunerd.core.decisions.space_cache import why_outside

    for study, summary in zip(found, summaries, strict=True):
        jobs = latest_jobs(settings, study.name, MOST_JOBS)
        outside = Counter(why for why in why_outside(study, jobs) if why is not None)
        inside = len(jobs) - outside.total()
        summary["history"] = {"in_space": inside, "outside": dict(outside.most_common())}


def _history(counts: dict[str, Any]) -> str:
    from tunerd.core.decisions.space_cache import in_space_text

    if not counts["in_space"] and not counts["outside"]:
        return "no jobs yet"
    return in_space_text(counts["in_space"], counts["outside"])


def _number(count: int) -> str:
    return (
        f"{count:,}" if count < 10**9 else f"{float(count):.1e}" if count < 10**300 else "10^300+"
    )


def _all_well(settings: "Settings | None", count: int) -> str:
    studies = "1 study" if count == 1 else f"{count} studies"
    if settings is None:
        return f"{studies}, nothing wrong."
    if count == 0:
        return f"Nothing wrong, but nothing to do: {settings.studies} has no study (*.toml)."
    return f"{settings.name}: {studies} in {settings.studies}, nothing wrong."
