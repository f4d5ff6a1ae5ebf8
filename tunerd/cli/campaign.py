"""``tunerd campaign``: profiling rounds as in the paper, asked for through the store."""

from datetime import UTC, datetime
from pathlib import Path

import click

from tunerd.cli.options import (
    next_step,
    open_the_store,
    read_settings,
    settings_option,
    who,
    why_option,
)

__all__ = ["campaign"]


@click.command()
@settings_option
@click.argument("study")
@click.option(
    "--context",
    multiple=True,
    metavar="NAME=VALUE",
    help="The context to profile: once for each of the study's context features.",
)
@click.option(
    "--jobs", type=click.IntRange(1), required=True, help="Configurations of the random start."
)
@click.option(
    "--rounds",
    type=click.IntRange(0),
    required=True,
    help="Rounds of the best predicted that follow.",
)
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
@why_option
def campaign(
    file: Path | None,
    study: str,
    context: tuple[str, ...],
    jobs: int,
    rounds: int,
    round_size: int | None,
    repeats: int,
    why: str,
) -> None:
    """Ask for a campaign in one context of STUDY.

    First a spread-out random start of so many jobs, then rounds of the best predicted, each
    configuration wanted a stated number of times.
    """
    settings = read_settings(file)
    with open_the_store(settings, upgrade=False) as store:
        generation = store.generation(study)
        if generation is None:
            known = ", ".join(row.name for row in store.studies()) or "none"
            raise click.UsageError(f"the store knows no study {study}; it knows: {known}")
        from tunerd.cli.contexts import parse_context
        from tunerd.core.study import parse_study

        parsed = parse_study(generation.text, f"{study}, generation {generation.generation}")
        values = parse_context(parsed, context)
        key = parsed.context_key(values)
        size = round_size or jobs
        with store.transaction() as tx:
            number = tx.add_command(
                study,
                "campaign",
                {
                    "context_key": key,
                    "context": values,
                    "jobs": jobs,
                    "rounds": rounds,
                    "round_size": size,
                    "repeats": repeats,
                },
                who=who(),
                why=why,
                now=datetime.now(UTC),
            )
    runs = (jobs + rounds * size) * repeats
    click.echo(f"Command {number}: {runs} runs in all under {key}.")
    click.echo(_what_happens(parsed.mode, settings.topics.recommendations, jobs, repeats))
    click.echo(next_step(settings, study))


def _what_happens(mode: str, topic: str, jobs: int, repeats: int) -> str:
    first = f"{jobs} configurations, each wanted {repeats} times" if repeats > 1 else f"{jobs} jobs"
    if mode == "observe":
        return (
            "The study is in mode observe: nothing will be published. Set its mode to approve or "
            "publish, and reload the daemon, for schedulers to see the rounds."
        )
    if mode == "approve":
        return f"Round 0 ({first}) waits for `tunerd approve` and then goes out on {topic}."
    return f"Round 0 ({first}) goes out on {topic}; the next follows when all of it has been run."
