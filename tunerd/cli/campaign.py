"""``tunerd campaign``: profiling rounds as in the paper, asked for through the store."""

from pathlib import Path

import click

from tunerd.cli.command_submission import giving
from tunerd.cli.options import (
    FiniteRange,
    json_option,
    settings_option,
    study_argument,
    why_option,
)

__all__ = ["campaign"]


@click.command()
@settings_option
@study_argument()
@click.option(
    "--context",
    multiple=True,
    metavar="NAME=VALUE",
    help="The context to profile: once for each of the study's context features.",
)
@click.option(
    "--jobs",
    type=click.IntRange(0),
    help="Configurations of the random start; 0 for none, where other contexts or earlier jobs "
    "tell what to try.",
)
@click.option("--rounds", type=click.IntRange(0), help="Rounds of the best predicted that follow.")
@click.option(
    "--round-size",
    type=click.IntRange(1),
    help="Configurations per round.  [default: as many as the random start]",
)
@click.option(
    "--repeats",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Runs wanted of each configuration.",
)
@click.option(
    "--patience",
    type=FiniteRange(min=0, min_open=True),
    default=168.0,
    show_default=True,
    metavar="HOURS",
    help="A round in which no run ended for so long is closed with what it has.",
)
@click.option(
    "--min-feasible",
    type=FiniteRange(0, 1),
    default=0.3,
    show_default=True,
    metavar="P",
    help="Rounds try nothing that is less likely to run while there is something else. What is "
    "recommended goes by the study's own min_feasible.",
)
@click.option("--cancel", is_flag=True, help="End the campaign that is under way there instead.")
@why_option
@json_option
def campaign(
    file: Path | None,
    study: str,
    context: tuple[str, ...],
    jobs: int | None,
    rounds: int | None,
    round_size: int | None,
    repeats: int,
    patience: float,
    min_feasible: float,
    cancel: bool,
    why: str,
    as_json: bool,
) -> int:
    """Ask for a campaign in one context of STUDY.

    First a spread-out random start of so many jobs, then rounds of the best predicted, each
    configuration wanted a stated number of times. The next round follows when all runs of one
    have ended, or none has ended for a while.
    """
    if cancel and (jobs is not None or rounds is not None or round_size is not None):
        raise click.UsageError("--cancel ends a campaign: leave out --jobs and --rounds")
    if not cancel and (jobs is None or rounds is None):
        raise click.UsageError("say how many --jobs, and how many --rounds after them")
    if jobs == 0 and not (rounds and round_size):
        raise click.UsageError("without a random start say how many --rounds of what --round-size")
    with giving(file, why, as_json=as_json) as giver:
        parsed = giver.study(study)
        from tunerd.cli.contexts import parse_context

        values = parse_context(parsed, context)
        key = parsed.context_key(values)
        if cancel:
            giver.give([(study, "cancel", {"context_key": key})])
            return giver.follow()
        assert jobs is not None
        assert rounds is not None
        size = round_size or jobs
        number, first = (0, jobs) if jobs else (1, size)
        wanted = {
            "context_key": key,
            "context": values,
            "jobs": jobs,
            "rounds": rounds,
            "round_size": size,
            "repeats": repeats,
            "patience_h": patience,
            "min_feasible": min_feasible,
        }
        giver.give([(study, "campaign", wanted)])
        most = (jobs + rounds * size) * repeats
        code = giver.follow(most_runs=most)
        if code or as_json:
            return code
        click.echo(f"At most {most} runs in all under {key}: rounds end where the space does.")
        topic = giver.settings.topics.recommendations
        click.echo(_what_happens(parsed.mode, topic, number, first, repeats))
        return 0


def _what_happens(mode: str, topic: str, number: int, jobs: int, repeats: int) -> str:
    first = f"{jobs} configurations, each wanted {repeats} times" if repeats > 1 else f"{jobs} jobs"
    first = f"Round {number} (at most {first})"
    if mode == "observe":
        return (
            "The study is in mode observe: nothing will be published. Set its mode to approve or "
            "publish, and `tunerd reload`, for schedulers to see the rounds."
        )
    if mode == "approve":
        return f"{first} waits for `tunerd approve` and then goes out on {topic}."
    return f"{first} goes out on {topic}; the next follows when all of it has been run."
