"""``tunerd exec``."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from tunerd.cli.options import FiniteRange, settings_option, tell_problems
from tunerd.errors import MisconfiguredError, ValidationProblem
from tunerd.threads import SET_HERE

__all__ = ["exec_", "typed_values"]

NOT_STARTED = 125
"""As env, nice and timeout: the program may end with 1 and 2 itself."""


class _Exec(click.Command):
    """A command whose own mistakes have an exit code of their own."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        try:
            return super().make_context(*args, **kwargs)
        except click.ClickException as error:
            error.show()
            raise click.exceptions.Exit(NOT_STARTED) from None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            error.show()
        except MisconfiguredError as error:
            tell_problems(error.problems)
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            click.echo(f"tunerd exec: {where}{error.strerror or error}", err=True)
        return NOT_STARTED


@click.command(
    "exec",
    cls=_Exec,
    context_settings={"allow_interspersed_args": False},
    options_metavar="[OPTIONS]",
)
@settings_option
@click.option("--study", required=True, metavar="STUDY", help="A study's name, or its file.")
@click.option(
    "--context",
    multiple=True,
    metavar="NAME=VALUE",
    help="Value of a context feature. Repeatable; every feature has to be named.",
)
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    metavar="NAME[:HOW]=REGEX",
    help="Take a metric from what the program prints: the number in the pattern's group. HOW is "
    "median (the default), mean, min, max, first, last, sum or p95. Repeatable.",
)
@click.option(
    "--cause",
    "causes",
    multiple=True,
    metavar="STATUS=REGEX",
    help="How the job ended where the program prints this: out_of_memory, failed, timeout, "
    "preempted, node_failure. Repeatable.",
)
@click.option(
    "--write",
    multiple=True,
    metavar="FORMAT|FILE",
    help="Write the configuration as toml, yaml, json, env or hydra, into a file of that suffix or "
    "a temporary one, {config_file} in the command. Repeatable.",
)
@click.option(
    "--fill",
    "templates",
    multiple=True,
    metavar="TEMPLATE=TARGET",
    help="Write TARGET as TEMPLATE with {parameter} filled in. Repeatable.",
)
@click.option(
    "--default",
    "defaults",
    multiple=True,
    metavar="NAME=VALUE",
    help="A parameter's value where neither a recommendation nor the baseline has one.",
)
@click.option(
    "--offline",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Recommendations to follow while the stream is away, a copy of the topic's file; else the "
    "last that was followed.",
)
@click.option(
    "--ask",
    "ask_s",
    type=FiniteRange(min=0),
    default=0.0,
    metavar="SECONDS",
    help="Ask the daemon about a context without a recommendation, and wait so long.",
)
@click.option(
    "--job-id", metavar="TEXT", help="The scheduler's name of the job. [default: Slurm's]"
)
@click.option("--attempt", type=click.IntRange(1), help="Counts restarts, from 1.")
@click.option(
    "--timeout",
    "timeout_s",
    type=FiniteRange(min=0, min_open=True),
    metavar="SECONDS",
    help="End the program then: SIGTERM, and SIGKILL after --kill-after.",
)
@click.option(
    "--kill-after",
    "kill_after_s",
    type=FiniteRange(min=0),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
)
@click.option(
    "--local",
    is_flag=True,
    help="Use a daemon of my own: keep its folder with this user's state, and run it while needed.",
)
@click.option("-v", "--verbose", is_flag=True, help="Say what was chosen and what came out.")
@click.option("--dry-run", is_flag=True, help="Print the command that would be run.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
def exec_(
    file: Path | None,
    study: str,
    metrics: tuple[str, ...],
    causes: tuple[str, ...],
    defaults: tuple[str, ...],
    **given: Any,
) -> int:
    """Run COMMAND with the configuration that tunerd recommends, and report how it went.

    \b
    tunerd exec --study zstd --context file=logs.tar --
        zstd -T{threads} -{level} --long={window} logs.tar -o /dev/null

    {name} in COMMAND becomes the parameter's value; the environment has it too, as
    TUNERD_PARAM_NAME, and everything as JSON in TUNERD_CONFIG. Signals, standard input, the
    terminal and the exit code pass through. Metrics come from the clock (wall_s, cpu_s,
    peak_memory_mib), from what the program prints (--metric), or from the file that TUNERD_METRICS
    names, JSON lines of {"name": number}.

    Exit code: the program's; 125 when tunerd could not start it, 126 and 127 as a shell's.
    """
    from tunerd.exec.causes import parse_causes
    from tunerd.exec.metrics import parse_metrics
    from tunerd.exec.run import ExecOptions, run_job

    if given["local"] and file is not None:
        raise click.UsageError("--local has settings of its own; leave --settings out")
    job = ExecOptions(
        study=study,
        settings=file,
        metrics=parse_metrics(metrics),
        causes=parse_causes(causes),
        defaults=typed_values("--default", defaults),
        **given,
    )
    environ = {name: value for name, value in os.environ.items() if name not in SET_HERE}
    return run_job(job, environ)


def typed_values(option: str, texts: Sequence[str]) -> dict[str, Any]:
    """Values as JSON has them, else texts."""
    import json

    values: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise MisconfiguredError([ValidationProblem(option, f"{text}: should be NAME=VALUE")])
        try:
            values[name] = json.loads(value)
        except ValueError:
            values[name] = value
    return values
