"""``tunerd tail``."""

import os
from pathlib import Path
from typing import Any

import click

from tunerd.cli.exec_ import typed_values
from tunerd.cli.options import FiniteRange, json_option, settings_option, tell_json, tell_problems
from tunerd.client import STATUSES
from tunerd.errors import MisconfiguredError
from tunerd.threads import SET_HERE

__all__ = ["tail"]

FORMATS = ("megatron", "nemo", "torchtitan")
MISCONFIGURED = 2


@click.command("tail")
@settings_option
@click.option("--study", required=True, metavar="STUDY", help="A study's name, or its file.")
@click.option(
    "--format",
    "log_format",
    required=True,
    type=click.Choice(FORMATS),
    help="Whose log it is.",
)
@click.option(
    "--context",
    multiple=True,
    metavar="NAME=VALUE",
    help="Value of a context feature. Repeatable; every feature has to be named.",
)
@click.option(
    "--config",
    multiple=True,
    metavar="NAME=VALUE",
    help="Value of a parameter that the training runs with. Repeatable.",
)
@click.option(
    "--job-id", metavar="TEXT", help="The scheduler's name of the job. [default: Slurm's]"
)
@click.option("--attempt", type=click.IntRange(1), help="Counts restarts, from 1.")
@click.option(
    "--status",
    type=click.Choice(STATUSES),
    help="How it ended, where somebody knows; else what the log says.",
)
@click.option("--gpus", type=click.IntRange(1), help="Of the whole training, for speeds per GPU.")
@click.option(
    "--tokens-per-sample",
    type=FiniteRange(min=0, min_open=True),
    metavar="N",
    help="The sequence length, where the log counts samples.",
)
@click.option(
    "--warmup-steps",
    type=click.IntRange(0),
    default=10,
    show_default=True,
    help="Lines up to this step are left out.",
)
@click.option(
    "--follow", is_flag=True, help="Read on until the log says that it ended, or SIGTERM."
)
@click.option("--pid", type=click.IntRange(1), help="Read on until this process has ended.")
@json_option
@click.argument("log", type=click.Path(path_type=Path, exists=True, dir_okay=False))
def tail(file: Path | None, log: Path, config: tuple[str, ...], as_json: bool, **given: Any) -> int:
    """Report a training from its LOG: its speed, and how it ended.

    For trainings that nobody can change. The speed is the median over the log's lines, without the
    warm-up. Run it once after the training, or beside it with --follow or --pid.
    """
    from tunerd.trainers.tail import TailOptions, tail_log

    environ = {name: value for name, value in os.environ.items() if name not in SET_HERE}
    try:
        options = TailOptions(
            file=log, settings=file, config=typed_values("--config", config), **given
        )
        path, waits = tail_log(options, environ)
    except MisconfiguredError as error:
        tell_problems(error.problems)
        return MISCONFIGURED
    if waits:
        click.echo(f"tunerd tail: {waits}", err=True)
    if as_json:
        tell_json(path)
        return 0
    cause = path["labels"].get("cause")
    click.echo(path["status"] + (f": {cause}" if cause else ""))
    for name, value in path["metrics"].items():
        click.echo(f"  {name:32} {value:12,.6g}")
    return 0
